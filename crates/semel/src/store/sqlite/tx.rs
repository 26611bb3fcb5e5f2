//! The rows in SQLite. One connection, one transaction at a time; nothing here waits or decides.

mod calls;
mod due;
mod glances;
mod hooks;
mod inbox;
mod ledger;
mod nodes;
mod once;
mod records;
mod runs;
mod stats;
mod sweep;
mod tallies;
mod watchers;

use std::cell::Cell;

use rusqlite::{CachedStatement, Connection, OptionalExtension, Params, Row, params};

use super::part::Trails;
use super::starts::{HEAD, HEADER, Head, Header};
use super::steps::Heads;
use super::values::{Id, Text};
use crate::clock::Time;
use crate::error::{Error, Result};
use crate::id::{NodeId, RunId, WorkspaceId};
use crate::rules::attention::Attention;
use crate::rules::key::{Fingerprint, Key, Scope};
use crate::rules::path::Name;
use crate::rules::run::{NewRun, Retention, Run, RunState};
use crate::store::tx::{TxTime, duration};

#[cfg(all(feature = "testing", feature = "postgres"))]
pub(crate) use self::due::family_statements;
pub(super) use self::ledger::read_ledger;
pub(super) use self::nodes::reopen;
pub(super) use self::once::read_held_once;
pub(super) use self::records::read_record_row;
#[cfg(all(feature = "testing", feature = "postgres"))]
pub(crate) use self::{
    hooks::{HOOKS_BY_AGE, HOOKS_BY_TOKEN},
    tallies::count_statements,
};

/// A run with the head of its ledger.
pub(super) const RUNS: &str = "runs JOIN heads USING (num)";

/// Its columns, in the order in which [`read_run`] reads them.
pub(super) const RUN: &str = "num, version, status, stalls, arrivals, due, node, ended, purge, holds_key, ties, purged, id, workspace, \
     workflow, workflow_version, scope, key, fingerprint, lineage, parent, keep_history, keep_key, created, deadline, attention";

/// A transaction: the writer's, or a reader's.
pub(super) struct SqliteStoreTx {
    pub(super) conn: Connection,
    pub(super) now: Time,
    /// Writes so far, to hold verbs to deciding before they write.
    pub(super) writes: Cell<usize>,
    /// Whether this transaction has deleted rows of the ledger.
    pub(super) deleted_rows: bool,
    /// The latest row of the ledger. There is one writer, so it need not ask.
    pub(super) last_row: i64,
    /// The latest number that was given to a run.
    pub(super) last_num: i64,
    pub(super) heads: Heads,
    /// Positions in long ledgers, for readers that read them part by part.
    pub(super) trails: Trails,
    /// The latest node whose lease was read in this transaction, and the end of the lease: many starts come from one
    /// node.
    pub(super) lease: Option<(NodeId, Option<Time>)>,
}

/// A statement failed: the transaction is of no more use. What was read and makes no sense will not make more later.
pub(super) fn failed(error: rusqlite::Error) -> Error {
    use rusqlite::Error::{FromSqlConversionFailure, InvalidColumnType, QueryReturnedNoRows};
    match error {
        FromSqlConversionFailure(..) | InvalidColumnType(..) | QueryReturnedNoRows => {
            Error::Corrupt { at: "a row of the SQLite file".to_owned(), source: error.into() }
        }
        other => Error::Unavailable(other.into()),
    }
}

impl SqliteStoreTx {
    pub(super) fn new(conn: Connection, now: Time) -> Result<Self> {
        conn.set_prepared_statement_cache_capacity(128);
        let last = |sql: &str| conn.query_row(sql, [], |row| row.get(0)).map_err(failed);
        let last_row = last("SELECT coalesce(max(num), 0) FROM ledger")?;
        let last_num = last("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'runs'")?;
        Ok(Self {
            conn,
            now,
            writes: Cell::new(0),
            deleted_rows: false,
            last_row,
            last_num,
            heads: Heads::default(),
            trails: Trails::default(),
            lease: None,
        })
    }

    /// A new transaction begins.
    pub(super) fn begin(&mut self, now: Time) {
        self.now = now;
        self.writes.set(0);
        self.deleted_rows = false;
        self.lease = None;
    }

    pub(super) fn count_writes(&self, changed: usize) {
        self.writes.set(self.writes.get() + changed);
    }

    pub(super) fn statement(&self, sql: &str) -> Result<CachedStatement<'_>> {
        self.conn.prepare_cached(sql).map_err(failed)
    }

    /// Runs a statement that changes something; how many rows it changed.
    pub(super) fn write(&self, sql: &str, params: impl Params) -> Result<usize> {
        let changed = self.statement(sql)?.execute(params).map_err(failed)?;
        self.count_writes(changed);
        Ok(changed)
    }

    pub(super) fn first<R>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<R>,
    ) -> Result<Option<R>> {
        self.statement(sql)?.query_row(params, read).optional().map_err(failed)
    }

    pub(super) fn all<R>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<R>,
    ) -> Result<Vec<R>> {
        self.statement(sql)?
            .query_map(params, read)
            .map_err(failed)?
            .collect::<rusqlite::Result<_>>()
            .map_err(failed)
    }

    /// The latest row of a run's ledger.
    pub(super) fn last_row_of(&self, num: i64) -> Result<Option<i64>> {
        let last = self.first("SELECT last FROM heads WHERE num = ?", [num], |row| row.get(0))?;
        Ok(last.flatten())
    }

    fn insert_row(&mut self, num: i64, prev: Option<i64>, seq: u64, at: Time, text: &str) -> Result<()> {
        self.last_row += 1;
        let sql = "INSERT INTO ledger (num, prev, run, seq, at, entries) VALUES (?, ?, ?, ?, ?, ?)";
        self.write(sql, params![self.last_row, prev, num, seq, at, text]).map(drop)
    }

    pub(super) fn append_row(&mut self, num: i64, seq: u64, at: Time, text: &str) -> Result<()> {
        self.heads.forget(num);
        // The first row has none before it.
        let prev = if seq == 0 { None } else { self.last_row_of(num)? };
        self.insert_row(num, prev, seq, at, text)?;
        let sql = "UPDATE heads SET last = ?2, first = coalesce(first, ?2) WHERE num = ?1";
        self.write(sql, [num, self.last_row]).map(drop)
    }

    /// Inserts a run without the head of its ledger; none if its key is held by another, or its id is taken.
    fn insert_header(&mut self, new: &NewRun, state: &RunState) -> Result<Option<i64>> {
        let num = self.last_num + 1;
        let mut statement = self.statement(&HEADER)?;
        Header { num, new, state }.bind(&mut statement, 0).map_err(failed)?;
        let inserted = statement.raw_execute().map_err(failed)?;
        drop(statement);
        self.count_writes(inserted);
        self.last_num += inserted as i64;
        Ok((inserted > 0).then_some(num))
    }

    /// Inserts the head of a new run's ledger, whose first and last row, if it has any, is this.
    fn insert_head(&self, num: i64, state: &RunState, row: Option<i64>) -> Result<()> {
        let mut statement = self.statement(&HEAD)?;
        Head { num, state, row }.bind(&mut statement, 0).map_err(failed)?;
        self.count_writes(statement.raw_execute().map_err(failed)?);
        Ok(())
    }

    /// Inserts a run whose ledger comes after it.
    pub(super) fn insert_bare(&mut self, new: &NewRun, state: &RunState) -> Result<Option<i64>> {
        let Some(num) = self.insert_header(new, state)? else { return Ok(None) };
        self.insert_head(num, state, None)?;
        Ok(Some(num))
    }

    /// The part of a run's state that stands apart from the head of its ledger.
    fn save_header(&self, num: i64, state: &RunState) -> Result<()> {
        let RunState { status, due, node, ended, purge, deadline, holds_key, ties, attention, .. } = state;
        let sql = include_str!("sql/save_header.sql");
        self.write(
            sql,
            params![
                num,
                status,
                due,
                node,
                ended,
                purge,
                holds_key,
                ties,
                deadline,
                attention.map(Attention::code)
            ],
        )
        .map(drop)
    }

    fn run_where(&self, condition: &'static str, params: impl Params) -> Result<Option<Run>> {
        self.first(&format!("SELECT {RUN} FROM {RUNS} WHERE {condition}"), params, read_run)
    }
}

pub(super) fn read_run(row: &Row<'_>) -> rusqlite::Result<Run> {
    let state = RunState {
        version: row.get(1)?,
        status: row.get(2)?,
        stalls: row.get(3)?,
        due: row.get::<_, Option<i64>>(5)?.map(Time),
        node: row.get::<_, Option<Id>>(6)?.map(|id| NodeId(id.0)),
        ended: row.get::<_, Option<i64>>(7)?.map(Time),
        purge: row.get::<_, Option<i64>>(8)?.map(Time),
        deadline: row.get::<_, Option<i64>>(24)?.map(Time),
        holds_key: row.get(9)?,
        ties: row.get(10)?,
        attention: row.get(25)?,
    };
    let new = NewRun {
        id: RunId(row.get::<_, Id>(12)?.0),
        workspace: WorkspaceId(row.get::<_, Id>(13)?.0),
        workflow: row.get::<_, Text<Name>>(14)?.0,
        workflow_version: row.get::<_, Text<Name>>(15)?.0,
        scope: Scope::stored(row.get(16)?),
        key: row.get::<_, Text<Key>>(17)?.0,
        fingerprint: Fingerprint(row.get(18)?),
        lineage: RunId(row.get::<_, Id>(19)?.0),
        parent: row.get::<_, Option<Id>>(20)?.map(|id| RunId(id.0)),
        retention: Retention { history: duration(row.get(21)?), key: duration(row.get(22)?) },
        created: Time(row.get(23)?),
    };
    Ok(Run { num: row.get(0)?, new: new.into(), state, arrivals: row.get(4)?, purged: row.get(11)? })
}

impl TxTime for SqliteStoreTx {
    fn now(&self) -> Time {
        self.now
    }
}
