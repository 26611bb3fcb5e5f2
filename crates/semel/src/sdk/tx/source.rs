//! What a database has to offer so that steps can be transactional in it.

use super::sql::Dialect;
use crate::fail::Result;
use crate::rules::fence::{FenceMark, FenceRow};

/// A user's database, as transactional steps see it: what `ctx.tx(name, &source)` takes. Semel has it for
/// `deadpool_postgres::Pool` (feature `postgres`), for `SqliteDb` (feature `sqlite`) and for the pools
/// of sqlx (features `sqlx-postgres`, `sqlx-sqlite`, `sqlx-mysql`). The protocol is not here: an implementation for another
/// database says only how its statements are executed.
///
/// Of an open transaction it is expected that it is rolled back when it is dropped, and that it never commits by itself.
pub trait TxSource: Clone + Send + Sync + 'static {
    /// An open transaction.
    type Open: Send + 'static;
    /// Type on which the body executes its statements: [`Tx`](super::Tx) derefs to it.
    type Conn: ?Sized + Send;
    /// How statements are spelled.
    const DIALECT: Dialect;

    /// Begins a transaction.
    fn begin(&self) -> impl Future<Output = Result<Self::Open>> + Send;

    /// Executes statements without parameters and without results, on their own.
    fn script(&self, sql: &str) -> impl Future<Output = Result<()>> + Send;

    /// Reads what stands under an effect key: run, fence, attempt, outcome.
    fn find(
        open: &mut Self::Open,
        sql: &str,
        key: &str,
    ) -> impl Future<Output = Result<Option<FenceRow>>> + Send;

    /// Executes a write with the parameters key, run, step, fence, attempt, outcome; gives how many rows it touched.
    fn put(
        open: &mut Self::Open,
        sql: &str,
        mark: &FenceMark,
        outcome: Option<&str>,
    ) -> impl Future<Output = Result<u64>> + Send;

    /// Commits. An error means that it is unknown whether it took place; the table will be asked, so the next
    /// transaction that is begun must not be on a connection that is in question.
    fn commit(open: Self::Open) -> impl Future<Output = Result<()>> + Send;

    /// Rolls back.
    fn rollback(open: Self::Open) -> impl Future<Output = Result<()>> + Send;

    /// The connection on which the body executes its statements.
    fn conn(open: &Self::Open) -> &Self::Conn;

    /// The same, to be changed.
    fn conn_mut(open: &mut Self::Open) -> &mut Self::Conn;
}
