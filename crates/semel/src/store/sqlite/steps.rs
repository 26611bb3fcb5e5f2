//! The commits of steps, and of ends that change nothing elsewhere: prepared statements, held for a whole batch.
//!
//! These commits are written hundreds of thousands of times a second, so they bypass the verb that does the same
//! ([`Commit`]'s, through [`RunRows::advance`](crate::store::tx::RunRows::advance)).
//!
//! The conditions repeat [`rules::commit::decide`](crate::rules::commit::decide), the assignments `state_after` and
//! [`rules::finish::ended`](crate::rules::finish::ended). What is not taken here is decided by the verb. The suite's
//! `commit_rule` compares each combination with the rule.

use std::sync::LazyLock;

use rusqlite::{CachedStatement, Connection, OptionalExtension, params};

use super::tx::failed;
use crate::clock::Time;
use crate::error::Result;
use crate::map::Map;
use crate::rules::commit::Commit;
use crate::rules::status::Status;

/// Maximum number of heads that are remembered: some megabytes, more than a process drives at once.
const REMEMBERED: usize = 100_000;

/// The latest ledger row of runs at a version, as the writer last wrote it. It saves a read, and is never trusted for the
/// version itself: the guard is in the statement. Forgotten whenever a transaction does not take place.
#[derive(Default)]
pub(super) struct Heads(Map<i64, (u64, i64)>);

impl Heads {
    pub(super) fn remember(&mut self, num: i64, version: u64, row: i64) {
        if self.0.len() >= REMEMBERED {
            self.0.clear();
        }
        self.0.insert(num, (version, row));
    }

    /// The latest row of a run at a version, if it is remembered.
    pub(super) fn last(&self, num: i64, version: u64) -> Option<i64> {
        self.0.get(&num).filter(|(at, _)| *at == version).map(|(_, row)| *row)
    }

    pub(super) fn forget(&mut self, num: i64) {
        self.0.remove(&num);
    }

    pub(super) fn forget_all(&mut self) {
        self.0.clear();
    }
}

/// Entries of a step, or of a run's end, to be appended.
pub(super) struct Entries<'a> {
    pub(super) num: i64,
    pub(super) expected: u64,
    pub(super) count: u64,
    pub(super) at: Time,
    pub(super) text: &'a str,
    /// How the run ends with them, if it does.
    pub(super) end: Option<RunEnd>,
}

impl<'a> Entries<'a> {
    /// Of a commit that lets its run go on, or ends it, and does nothing else.
    pub(super) fn of(commit: &'a Commit, at: Time) -> Option<Self> {
        let end = match commit.is_progress() {
            true => None,
            false => Some(RunEnd {
                status: commit.status,
                purge: commit.plain_ending()?.retention.first_purge(at),
            }),
        };
        let text = commit.text()?;
        Some(Self { num: commit.num, expected: commit.expected, count: commit.count, at, text, end })
    }
}

/// The end of a run.
#[derive(Clone, Copy)]
pub(super) struct RunEnd {
    pub(super) status: Status,
    pub(super) purge: Time,
}

/// The statements. Those of steps touch no index. None is to be taken back half-way: SQLite then keeps no copy of the
/// pages it changes. What would have to be fails, and the whole transaction with it.
pub(super) struct Steps<'c, 'a> {
    last: CachedStatement<'c>,
    update: CachedStatement<'c>,
    end_head: CachedStatement<'c>,
    end_run: CachedStatement<'c>,
    insert: CachedStatement<'c>,
    insert_rows: CachedStatement<'c>,
    /// Rows of the ledger whose heads have been moved on, and that are still to be written.
    rows: Vec<NewRow<'a>>,
}

/// A row for the ledger.
pub(super) struct NewRow<'a> {
    pub(super) row: i64,
    pub(super) prev: Option<i64>,
    pub(super) num: i64,
    pub(super) seq: u64,
    pub(super) at: Time,
    pub(super) text: &'a str,
}

/// Number of rows that one statement inserts: to begin it, to find the end of the ledger and to end it takes longer than the row.
const ROWS: usize = 16;

static INSERT: LazyLock<String> = LazyLock::new(|| insert(1));
static INSERT_ROWS: LazyLock<String> = LazyLock::new(|| insert(ROWS));

/// `OR FAIL`: otherwise SQLite would keep copies of the pages, to take back the rows before one that fails. Here a statement
/// that fails is the end of its transaction.
pub(super) fn insert(rows: usize) -> String {
    let values = vec!["(?, ?, ?, ?, ?, ?)"; rows].join(", ");
    format!("INSERT OR FAIL INTO ledger (num, prev, run, seq, at, entries) VALUES {values}")
}

impl<'c, 'a> Steps<'c, 'a> {
    pub(super) fn prepare(conn: &'c Connection) -> Result<Self> {
        let statement = |sql: &str| conn.prepare_cached(sql).map_err(failed);
        Ok(Self {
            last: statement("SELECT last FROM heads WHERE num = ? AND version = ?")?,
            update: statement(
                "UPDATE heads SET version = ?3, last = ?4, stalls = 0 WHERE num = ?1 AND version = ?2 AND running",
            )?,
            end_head: statement(include_str!("sql/end_head.sql"))?,
            // All that `rules::finish::ended` changes in a run without ties.
            end_run: statement(
                "UPDATE runs SET status = ?2, due = NULL, node = NULL, ended = ?3, purge = ?4 WHERE num = ?1",
            )?,
            insert: statement(&INSERT)?,
            insert_rows: statement(&INSERT_ROWS)?,
            rows: Vec::with_capacity(ROWS),
        })
    }

    /// Writes the rows that are left.
    pub(super) fn finish(mut self) -> Result<()> {
        for row in &self.rows {
            row.bind(&mut self.insert, 0).map_err(failed)?;
            self.insert.raw_execute().map_err(failed)?;
        }
        Ok(())
    }

    fn append(&mut self, row: NewRow<'a>) -> Result<()> {
        self.rows.push(row);
        if self.rows.len() < ROWS {
            return Ok(());
        }
        for (n, row) in self.rows.drain(..).enumerate() {
            row.bind(&mut self.insert_rows, n).map_err(failed)?;
        }
        self.insert_rows.raw_execute().map(drop).map_err(failed)
    }

    /// Appends entries as ledger row `row` if the run is running and at the expected version, and has no ties if it ends.
    /// Whether it did; the row is written at [`finish`](Self::finish) at the latest.
    pub(super) fn advance(&mut self, heads: &mut Heads, row: i64, entries: &Entries<'a>) -> Result<bool> {
        let Entries { num, expected, count, at, text, end } = *entries;
        let prev = match heads.0.get(&num) {
            Some((version, row)) if *version == expected => Some(*row),
            _ => self
                .last
                .query_row(params![num, expected], |row| row.get(0))
                .optional()
                .map_err(failed)?
                .flatten(),
        };
        let head = if end.is_some() { &mut self.end_head } else { &mut self.update };
        let version = expected + count;
        if head.execute(params![num, expected, version, row]).map_err(failed)? == 0 {
            return Ok(false);
        }
        if let Some(RunEnd { status, purge }) = end {
            let ended = self.end_run.execute(params![num, status, at, purge]);
            // Its head says that it has ended.
            ended.and_then(one_row).map_err(failed)?;
        }
        self.append(NewRow { row, prev, num, seq: expected, at, text })?;
        match end {
            None => heads.remember(num, version, row),
            Some(_) => heads.forget(num),
        }
        Ok(true)
    }
}

fn one_row(changed: usize) -> rusqlite::Result<()> {
    match changed {
        1 => Ok(()),
        other => Err(rusqlite::Error::StatementChangedRows(other)),
    }
}

impl NewRow<'_> {
    /// Binds it as the `n`th row of a statement.
    pub(super) fn bind(&self, statement: &mut CachedStatement<'_>, n: usize) -> rusqlite::Result<()> {
        let first = n * 6 + 1;
        statement.raw_bind_parameter(first, self.row)?;
        statement.raw_bind_parameter(first + 1, self.prev)?;
        statement.raw_bind_parameter(first + 2, self.num)?;
        statement.raw_bind_parameter(first + 3, self.seq)?;
        statement.raw_bind_parameter(first + 4, self.at)?;
        statement.raw_bind_parameter(first + 5, self.text)
    }
}
