//! The users' databases: statements of authors, their results as JSON, and what errors mean.
//!
//! [`statement`]: a text with placeholders. [`rows`]: results. [`failed`]: errors. [`source`]: a database as transactional steps
//! see it, with the limits of its connection. One file for each database executes statements there. [`queue`]: the table of
//! `publish`.

pub(crate) mod failed;
#[cfg(feature = "mysql")]
pub(crate) mod mysql;
pub(crate) mod postgres;
pub(crate) mod queue;
pub(crate) mod rows;
pub(crate) mod source;
pub(crate) mod sqlite;
pub(crate) mod statement;

use semel::Result;
use semel::tx::TwoPhase;
use serde_json::Value as Json;

pub(crate) use rows::{ResultBounds, SqlResult};
pub(crate) use source::Guarded;
pub(crate) use statement::{Spelling, Statement};

/// A statement with its values, ready to be executed.
#[derive(Clone, Debug)]
pub(crate) struct Bound {
    /// The statement as the database takes it.
    pub(crate) text: String,
    /// The values of its parameters, in their order.
    pub(crate) values: Vec<Json>,
}

impl Bound {
    /// A statement with the values of its placeholders.
    pub(crate) fn new(statement: &Statement, args: &Json) -> Self {
        Self { text: statement.text(), values: statement.values(args) }
    }
}

/// A database in which statements of authors are executed.
pub(crate) trait SqlSource: TwoPhase {
    /// How statements are quoted there.
    const SPELLING: Spelling;

    /// Executes a statement in an open transaction.
    fn execute(
        conn: &mut Self::Conn,
        bound: Bound,
        bounds: &ResultBounds,
    ) -> impl Future<Output = Result<SqlResult>> + Send;

    /// Executes a query in a transaction of its own that cannot write.
    fn read(&self, bound: Bound, bounds: &ResultBounds) -> impl Future<Output = Result<SqlResult>> + Send;
}
