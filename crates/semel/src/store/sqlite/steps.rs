//! The commits of steps: two prepared statements each, held for a whole batch.
//!
//! This is the one thing that happens hundreds of thousands of times a second, so it goes around the verb that does the
//! same ([`Commit`]'s, through [`Tx::advance`](crate::store::tx::Tx::advance)) and does nothing else.

use std::collections::HashMap;

use rusqlite::{CachedStatement, Connection, OptionalExtension, params};

use super::tx::failed;
use crate::clock::Time;
use crate::error::Result;

/// How many heads are remembered: some megabytes, more than a process drives at once.
const REMEMBERED: usize = 100_000;

/// The latest ledger row of runs at a version, as the writer last wrote it. It saves a read, and is never trusted for the
/// version itself: the guard is in the statement. Forgotten whenever a transaction does not take place.
#[derive(Default)]
pub(super) struct Heads(HashMap<i64, (u64, i64)>);

impl Heads {
    fn remember(&mut self, num: i64, version: u64, row: i64) {
        if self.0.len() >= REMEMBERED {
            self.0.clear();
        }
        self.0.insert(num, (version, row));
    }

    pub(super) fn forget(&mut self, num: i64) {
        self.0.remove(&num);
    }

    pub(super) fn forget_all(&mut self) {
        self.0.clear();
    }
}

/// Entries of a step, to be appended.
pub(super) struct Entries<'a> {
    pub(super) num: i64,
    pub(super) expected: u64,
    pub(super) count: u64,
    pub(super) at: Time,
    pub(super) text: &'a str,
}

/// The statements. None of them touches an index or can fail half-way: SQLite then keeps no copy of the pages it changes.
pub(super) struct Steps<'c> {
    last: CachedStatement<'c>,
    update: CachedStatement<'c>,
    insert: CachedStatement<'c>,
}

impl<'c> Steps<'c> {
    pub(super) fn prepare(conn: &'c Connection) -> Result<Self> {
        let statement = |sql| conn.prepare_cached(sql).map_err(failed);
        Ok(Self {
            last: statement("SELECT last FROM heads WHERE num = ? AND version = ?")?,
            update: statement(
                "UPDATE heads SET version = ?3, last = ?4, stalls = 0 WHERE num = ?1 AND version = ?2 AND running",
            )?,
            insert: statement(
                "INSERT INTO ledger (num, prev, run, seq, at, entries) VALUES (?, ?, ?, ?, ?, ?)",
            )?,
        })
    }

    /// Appends entries as ledger row `row` if the run is running and at the expected version. Whether it did.
    pub(super) fn advance(&mut self, heads: &mut Heads, row: i64, entries: &Entries<'_>) -> Result<bool> {
        let Entries { num, expected, count, at, text } = *entries;
        let prev = match heads.0.get(&num) {
            Some((version, row)) if *version == expected => Some(*row),
            _ => self
                .last
                .query_row(params![num, expected], |row| row.get(0))
                .optional()
                .map_err(failed)?
                .flatten(),
        };
        let version = expected + count;
        if self.update.execute(params![num, expected, version, row]).map_err(failed)? == 0 {
            return Ok(false);
        }
        self.insert.execute(params![row, prev, num, expected, at, text]).map_err(failed)?;
        heads.remember(num, version, row);
        Ok(true)
    }
}
