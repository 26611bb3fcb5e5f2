//! The rows in SQLite. One connection, one transaction at a time; nothing here waits or decides.

use std::cell::Cell;

use rusqlite::types::FromSqlError;
use rusqlite::{CachedStatement, Connection, OptionalExtension, Params, Row, params};

use super::part::Trails;
use super::starts::{HEAD, HEADER, Head, Header, Running};
use super::steps::{Entries, Heads, Steps};
use super::values::{self, Id, Json, Text};
use crate::clock::Time;
use crate::error::{Error, Result};
use crate::id::{NodeId, RunId, WorkspaceId};
use crate::rules::claim::Drives;
use crate::rules::deliver::{PastCall, Unconsumed};
use crate::rules::entry::Message;
use crate::rules::json::Payload;
use crate::rules::key::{CallId, Fingerprint, Key, Label, RecordId, Scope, Token};
use crate::rules::once::OnceRow;
use crate::rules::path::{Name, Visit};
use crate::rules::receipt::{ReceiptKind, Receipts};
use crate::rules::record::{Look, Record};
use crate::rules::run::{NewRun, Retention, Run, State};
use crate::rules::status::Status;
use crate::store::archive::OnceAt;
use crate::store::list::{Scan, Scanned};
use crate::store::tx::{
    CallAt, DeadNode, Driven, HeldOnce, InboxRow, LedgerRow, SetFree, Tx, Watcher, duration, message_text,
};

/// A run with the head of its ledger.
pub(super) const RUNS: &str = "runs JOIN heads USING (num)";

/// Its columns, in the order in which [`read_run`] reads them.
pub(super) const RUN: &str = "num, version, status, stalls, arrivals, due, node, ended, purge, holds_key, ties, purged, id, workspace, \
     workflow, workflow_version, scope, key, fingerprint, lineage, parent, keep_history, keep_key, created, deadline";

/// A transaction: the writer's, or a reader's.
pub(super) struct SqliteTx {
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
    /// Places in long ledgers, for those who read them part by part.
    pub(super) trails: Trails,
    /// What this transaction has found out about a node: many starts come from the same.
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

impl SqliteTx {
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
    fn insert_header(&mut self, new: &NewRun, state: &State) -> Result<Option<i64>> {
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
    fn insert_head(&self, num: i64, state: &State, row: Option<i64>) -> Result<()> {
        let mut statement = self.statement(&HEAD)?;
        Head { num, state, row }.bind(&mut statement, 0).map_err(failed)?;
        self.count_writes(statement.raw_execute().map_err(failed)?);
        Ok(())
    }

    /// Inserts a run whose ledger comes after it.
    pub(super) fn insert_bare(&mut self, new: &NewRun, state: &State) -> Result<Option<i64>> {
        let Some(num) = self.insert_header(new, state)? else { return Ok(None) };
        self.insert_head(num, state, None)?;
        Ok(Some(num))
    }

    /// The part of a run's state that stands apart from the head of its ledger.
    fn save_header(&self, num: i64, state: &State) -> Result<()> {
        let State { status, due, node, ended, purge, deadline, holds_key, ties, .. } = state;
        let sql = "UPDATE runs SET status = ?2, due = ?3, node = ?4, ended = ?5, purge = ?6, holds_key = ?7, ties = ?8, \
             deadline = ?9 WHERE num = ?1";
        self.write(sql, params![num, status, due, node, ended, purge, holds_key, ties, deadline]).map(drop)
    }

    fn run_where(&self, condition: &'static str, params: impl Params) -> Result<Option<Run>> {
        self.first(&format!("SELECT {RUN} FROM {RUNS} WHERE {condition}"), params, read_run)
    }
}

pub(super) fn read_run(row: &Row<'_>) -> rusqlite::Result<Run> {
    let state = State {
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

impl Tx for SqliteTx {
    fn now(&self) -> Time {
        self.now
    }

    async fn insert_run(&mut self, new: &NewRun, state: &State, text: &str) -> Result<Option<i64>> {
        let Some(num) = self.insert_header(new, state)? else { return Ok(None) };
        self.insert_row(num, None, 0, self.now, text)?;
        self.insert_head(num, state, Some(self.last_row))?;
        self.heads.remember(num, state.version, self.last_row);
        Ok(Some(num))
    }

    async fn holder(&mut self, workspace: WorkspaceId, scope: &Scope, key: &Key) -> Result<Option<Run>> {
        let condition = "workspace = ? AND scope = ? AND key = ? AND holds_key";
        self.run_where(condition, params![workspace, scope.as_str(), key.as_str()])
    }

    async fn run(&mut self, id: RunId) -> Result<Option<Run>> {
        self.run_where("id = ?", [id])
    }

    async fn run_at(&mut self, num: i64) -> Result<Option<Run>> {
        self.run_where("num = ?", [num])
    }

    async fn status(&mut self, id: RunId) -> Result<Option<Status>> {
        self.first("SELECT status FROM runs WHERE id = ?", [id], |row| row.get(0))
    }

    async fn save(&mut self, num: i64, expected: u64, state: &State) -> Result<bool> {
        let State { version, stalls, .. } = state;
        let sql = "UPDATE heads SET version = ?3, running = ?4, stalls = ?5 WHERE num = ?1 AND version = ?2";
        if self.write(sql, params![num, expected, version, Running::of(state), stalls])? == 0 {
            return Ok(false);
        }
        self.save_header(num, state).map(|()| true)
    }

    async fn save_with(&mut self, num: i64, expected: u64, state: &State, text: &str) -> Result<bool> {
        let State { version, stalls, .. } = state;
        let prev = match self.heads.last(num, expected) {
            Some(row) => Some(row),
            None => self.last_row_of(num)?,
        };
        let row = self.last_row + 1;
        let sql = "UPDATE heads SET version = ?3, running = ?4, stalls = ?5, last = ?6 \
             WHERE num = ?1 AND version = ?2";
        if self.write(sql, params![num, expected, version, Running::of(state), stalls, row])? == 0 {
            return Ok(false);
        }
        self.heads.forget(num);
        self.save_header(num, state)?;
        self.insert_row(num, prev, expected, self.now, text).map(|()| true)
    }

    async fn advance(&mut self, num: i64, expected: u64, count: u64, text: &str) -> Result<bool> {
        let entries = Entries { num, expected, count, at: self.now, text, end: None };
        let row = self.last_row + 1;
        let mut steps = Steps::prepare(&self.conn)?;
        let advanced = steps.advance(&mut self.heads, row, &entries)?;
        steps.finish()?;
        if advanced {
            self.last_row = row;
            self.count_writes(1);
        }
        Ok(advanced)
    }

    async fn due(&mut self, workflows: &[Drives], limit: usize) -> Result<Vec<Run>> {
        let sql = format!(
            "SELECT {RUN} FROM {RUNS} WHERE workspace = ? AND workflow = ? AND workflow_version = ? AND due <= ? \
             ORDER BY due, num LIMIT ?"
        );
        let mut found = Vec::new();
        for Drives { workspace, workflow, workflow_version } in workflows {
            let of = params![workspace, workflow.as_str(), workflow_version.as_str(), self.now, limit as i64];
            found.extend(self.all(&sql, of, read_run)?);
        }
        found.sort_by_key(|run| (run.state.due, run.num));
        found.dedup_by_key(|run| run.num);
        found.truncate(limit);
        Ok(found)
    }

    async fn dues(&mut self, workflows: &[Drives], after: Time) -> Result<Vec<Option<Time>>> {
        workflows.iter().map(|drives| self.due_after(drives, after)).collect()
    }

    async fn open_children(&mut self, parent: RunId) -> Result<Vec<Run>> {
        self.all(
            &format!("SELECT {RUN} FROM {RUNS} WHERE parent = ? AND status < 4 ORDER BY num"),
            [parent],
            read_run,
        )
    }

    async fn list(&mut self, scan: &Scan<'_>) -> Result<Scanned> {
        self.scan(scan)
    }

    async fn append(&mut self, num: i64, seq: u64, text: &str) -> Result<()> {
        self.append_row(num, seq, self.now, text)
    }

    async fn ledgers(&mut self, nums: &[i64], from: u64) -> Result<Vec<LedgerRow>> {
        let mut rows = Vec::new();
        for num in nums {
            // Entry number `from` stands in the last commit with fewer entries before it.
            rows.extend(self.walk(*num, |row| row.seq >= from)?.into_iter().rev());
        }
        Ok(rows)
    }

    async fn ledger_part(
        &mut self,
        num: i64,
        from: u64,
        limit: usize,
        bytes: usize,
    ) -> Result<Option<Vec<LedgerRow>>> {
        self.part(num, from, limit, bytes)
    }

    async fn ledger_first(&mut self, num: i64) -> Result<Option<LedgerRow>> {
        let sql = "SELECT prev, run, seq, at, entries FROM ledger WHERE num = (SELECT first FROM heads WHERE num = ?)";
        self.first(sql, [num], read_ledger)
    }

    async fn ledger_tail(&mut self, num: i64, limit: usize) -> Result<Vec<LedgerRow>> {
        let mut left = limit;
        let wanted = |_: &LedgerRow| {
            left = left.saturating_sub(1);
            left > 0
        };
        self.walk(num, wanted)
    }

    async fn arrive(&mut self, num: i64, message: &Message) -> Result<Option<u64>> {
        let sql = "UPDATE runs SET arrivals = arrivals + 1, \
             due = CASE WHEN status = 2 THEN min(coalesce(due, ?2), ?2) ELSE due END \
             WHERE num = ?1 AND status < 4 RETURNING arrivals";
        let arrival = self.first(sql, params![num, self.now], |row| row.get::<_, u64>(0))?;
        if let Some(arrival) = arrival {
            let sql = "INSERT INTO inbox (run, arrival, at, message) VALUES (?, ?, ?, ?)";
            self.write(sql, params![num, arrival, self.now, message_text(message)])?;
        }
        Ok(arrival)
    }

    async fn inboxes(&mut self, nums: &[i64], from: u64) -> Result<Vec<InboxRow>> {
        let sql =
            "SELECT run, arrival, at, message FROM inbox WHERE run = ? AND arrival >= ? ORDER BY arrival";
        // Nothing has a number that SQLite does not have.
        let Ok(from) = i64::try_from(from) else { return Ok(Vec::new()) };
        let mut rows = Vec::new();
        for num in nums {
            let read = |row: &Row<'_>| {
                Ok(InboxRow {
                    num: row.get(0)?,
                    arrival: row.get(1)?,
                    at: Time(row.get(2)?),
                    text: row.get(3)?,
                })
            };
            rows.extend(self.all(sql, [*num, from], read)?);
        }
        Ok(rows)
    }

    async fn unconsumed(&mut self, num: i64) -> Result<Unconsumed> {
        Ok(self.first(values::UNCONSUMED, [num], values::unconsumed)?.unwrap_or_default())
    }

    async fn arrived(&mut self, num: i64, arrivals: &[u64]) -> Result<Vec<u64>> {
        let sql = "SELECT arrival FROM inbox WHERE run = ? AND arrival = ?";
        let mut there = Vec::new();
        // A number that SQLite does not have is not there.
        for arrival in arrivals.iter().filter_map(|arrival| i64::try_from(*arrival).ok()) {
            there.extend(self.first(sql, [num, arrival], |row| row.get::<_, u64>(0))?);
        }
        Ok(there)
    }

    async fn consume(&mut self, num: i64, arrival: u64) -> Result<bool> {
        Ok(self.write("DELETE FROM inbox WHERE run = ? AND arrival = ?", params![num, arrival])? == 1)
    }

    async fn insert_hook(&mut self, workspace: WorkspaceId, token: &Token, num: i64) -> Result<bool> {
        let sql = "INSERT INTO hooks (workspace, token, run) VALUES (?, ?, ?) ON CONFLICT DO NOTHING";
        Ok(self.write(sql, params![workspace, token.as_str(), num])? == 1)
    }

    async fn hook_owner(&mut self, workspace: WorkspaceId, token: &Token) -> Result<Option<RunId>> {
        Ok(self.hook(workspace, token).await?.map(|run| run.id()))
    }

    async fn hook(&mut self, workspace: WorkspaceId, token: &Token) -> Result<Option<Run>> {
        let condition = "num = (SELECT run FROM hooks WHERE workspace = ? AND token = ?)";
        self.run_where(condition, params![workspace, token.as_str()])
    }

    async fn delete_hook(&mut self, workspace: WorkspaceId, token: &Token, num: i64) -> Result<()> {
        let sql = "DELETE FROM hooks WHERE workspace = ? AND token = ? AND run = ?";
        self.write(sql, params![workspace, token.as_str(), num]).map(drop)
    }

    async fn delete_hooks(&mut self, num: i64) -> Result<()> {
        self.write("DELETE FROM hooks WHERE run = ?", [num]).map(drop)
    }

    async fn insert_watcher(&mut self, num: i64, watcher: &Watcher) -> Result<()> {
        let sql = "INSERT INTO watchers (run, watcher, visit) VALUES (?, ?, ?)";
        self.write(sql, params![num, watcher.num, watcher.visit.to_string()]).map(drop)
    }

    async fn take_watchers(&mut self, num: i64) -> Result<Vec<Watcher>> {
        let sql = "SELECT watcher, visit FROM watchers WHERE run = ? ORDER BY rowid";
        let read = |row: &Row<'_>| Ok(Watcher { num: row.get(0)?, visit: row.get::<_, Text<Visit>>(1)?.0 });
        let watchers = self.all(sql, [num], read)?;
        self.write("DELETE FROM watchers WHERE run = ?", [num])?;
        Ok(watchers)
    }

    async fn call(&mut self, workspace: WorkspaceId, scope: &str, id: &CallId) -> Result<Option<PastCall>> {
        let sql = "SELECT owner, fingerprint, result FROM calls WHERE workspace = ? AND scope = ? AND id = ?";
        self.first(sql, params![workspace, scope, id.as_str()], |row| {
            Ok(PastCall {
                run: RunId(row.get::<_, Id>(0)?.0),
                fingerprint: Fingerprint(row.get(1)?),
                result: row.get(2)?,
            })
        })
    }

    async fn insert_call(
        &mut self,
        at: CallAt<'_>,
        num: i64,
        call: &PastCall,
        replaces: Option<RunId>,
    ) -> Result<bool> {
        self.remember_call(at, num, call, replaces)
    }

    async fn once(&mut self, workspace: WorkspaceId, scope: &str, label: &Label) -> Result<Option<OnceRow>> {
        let sql =
            "SELECT owner, fence, value, expires FROM once WHERE workspace = ? AND scope = ? AND label = ?";
        self.first(sql, params![workspace, scope, label.as_str()], read_once)
    }

    async fn put_once(
        &mut self,
        workspace: WorkspaceId,
        scope: &str,
        label: &Label,
        row: Option<&OnceRow>,
    ) -> Result<()> {
        let Some(row) = row else {
            let sql = "DELETE FROM once WHERE workspace = ? AND scope = ? AND label = ?";
            return self.write(sql, params![workspace, scope, label.as_str()]).map(drop);
        };
        let sql = "INSERT OR REPLACE INTO once (workspace, scope, label, owner, fence, value, expires) \
             VALUES (?, ?, ?, ?, ?, ?, ?)";
        let value = row.value.as_ref().map(Payload::text);
        let params = params![workspace, scope, label.as_str(), row.owner, row.fence, value, row.expires];
        self.write(sql, params).map(drop)
    }

    async fn insert_once_waiter(&mut self, (workspace, scope, label): &OnceAt, run: RunId) -> Result<()> {
        let sql = "INSERT OR IGNORE INTO once_waiters (workspace, scope, label, run) VALUES (?, ?, ?, ?)";
        self.write(sql, params![workspace, scope, label.as_str(), run.to_string()]).map(drop)
    }

    async fn once_waiters(&mut self, (workspace, scope, label): &OnceAt) -> Result<Vec<RunId>> {
        let sql = "SELECT run FROM once_waiters WHERE workspace = ? AND scope = ? AND label = ? ORDER BY run";
        self.all(sql, params![workspace, scope, label.as_str()], |row| Ok(row.get::<_, Text<RunId>>(0)?.0))
    }

    async fn delete_once_waiters(&mut self, (workspace, scope, label): &OnceAt) -> Result<()> {
        let sql = "DELETE FROM once_waiters WHERE workspace = ? AND scope = ? AND label = ?";
        self.write(sql, params![workspace, scope, label.as_str()]).map(drop)
    }

    async fn held_once(&mut self, owner: RunId) -> Result<Vec<HeldOnce>> {
        let sql = "SELECT owner, fence, value, expires, workspace, scope, label FROM once \
             WHERE owner = ? AND value IS NULL ORDER BY scope, label";
        self.all(sql, [owner], read_held_once)
    }

    async fn delete_expired_once(&mut self, limit: usize) -> Result<usize> {
        let sql = "DELETE FROM once WHERE rowid IN (SELECT rowid FROM once WHERE expires <= ? LIMIT ?)";
        self.write(sql, params![self.now, limit as i64])
    }

    async fn record(&mut self, kind: &Name, id: &RecordId) -> Result<Option<Record>> {
        self.read_record(kind, id)
    }

    async fn put_record(&mut self, record: &Record, replaces: Option<u64>) -> Result<bool> {
        self.write_record(record, replaces)
    }

    async fn records(&mut self, look: &Look) -> Result<Vec<Record>> {
        self.read_records(look)
    }

    async fn delete_expired_records(&mut self, limit: usize) -> Result<usize> {
        self.sweep_records(limit)
    }

    async fn add_receipts(&mut self, num: i64, kind: ReceiptKind, receipts: &Receipts) -> Result<()> {
        let sql = "SELECT kind, count, first, last, recent FROM receipts WHERE run = ? AND kind = ?";
        let held = self.first(sql, params![num, kind.code()], read_receipts)?;
        let all = match held {
            Some((_, mut held)) => {
                held.merge(receipts.clone());
                held
            }
            None => receipts.clone(),
        };
        let recent = serde_json::to_string(&all.recent).expect("receipts are plain data");
        let sql = "INSERT OR REPLACE INTO receipts (run, kind, count, first, last, recent) \
             SELECT num, ?2, ?3, ?4, ?5, ?6 FROM runs WHERE num = ?1";
        self.write(sql, params![num, kind.code(), all.count, all.first, all.last, recent]).map(drop)
    }

    async fn receipts(&mut self, num: i64) -> Result<Vec<(ReceiptKind, Receipts)>> {
        let sql = "SELECT kind, count, first, last, recent FROM receipts WHERE run = ? ORDER BY kind";
        self.all(sql, [num], read_receipts)
    }

    async fn lease(&mut self, node: NodeId) -> Result<Option<Time>> {
        self.lease_of(node)
    }

    async fn put_lease(&mut self, node: NodeId, until: Option<Time>) -> Result<()> {
        self.write_lease(node, until)
    }

    async fn enroll(&mut self, node: NodeId, until: Time) -> Result<()> {
        self.write_remote_lease(node, until)
    }

    async fn depart(&mut self, node: NodeId) -> Result<()> {
        self.end_lease(node)
    }

    async fn dead_nodes(&mut self) -> Result<Vec<DeadNode>> {
        self.read_dead_nodes()
    }

    async fn driven(&mut self, dead: &[NodeId], limit: usize) -> Result<Vec<Driven>> {
        self.driven_by_dead(dead, limit)
    }

    async fn held_by(&mut self, node: NodeId) -> Result<Vec<u32>> {
        self.stalls_held_by(node)
    }

    async fn set_free(&mut self, runs: &[SetFree]) -> Result<()> {
        self.write_free(runs)
    }

    async fn delete_node(&mut self, node: NodeId) -> Result<()> {
        self.forget_node(node)
    }

    async fn overdue(&mut self, limit: usize) -> Result<Vec<Run>> {
        self.read_overdue(limit)
    }

    async fn purgeable(&mut self, limit: usize) -> Result<Vec<Run>> {
        let sql = format!("SELECT {RUN} FROM {RUNS} WHERE purge <= ? ORDER BY purge, num LIMIT ?");
        self.all(&sql, params![self.now, limit as i64], read_run)
    }

    async fn delete_history(&mut self, num: i64, limit: usize) -> Result<usize> {
        self.delete_rows(num, limit)
    }

    async fn set_purged(&mut self, num: i64, next: Time) -> Result<()> {
        self.write("UPDATE runs SET purged = 1, purge = ? WHERE num = ?", params![next, num]).map(drop)
    }

    async fn delete_run(&mut self, num: i64) -> Result<()> {
        self.write("DELETE FROM heads WHERE num = ?", [num])?;
        self.write("DELETE FROM runs WHERE num = ?", [num]).map(drop)
    }
}

pub(super) fn read_ledger(row: &Row<'_>) -> rusqlite::Result<LedgerRow> {
    Ok(LedgerRow { num: row.get(1)?, seq: row.get(2)?, at: Time(row.get(3)?), text: row.get(4)? })
}

pub(super) fn read_held_once(row: &Row<'_>) -> rusqlite::Result<HeldOnce> {
    Ok(HeldOnce {
        workspace: WorkspaceId(row.get::<_, Id>(4)?.0),
        scope: row.get(5)?,
        label: row.get::<_, Text<Label>>(6)?.0,
        row: read_once(row)?,
    })
}

fn read_once(row: &Row<'_>) -> rusqlite::Result<OnceRow> {
    Ok(OnceRow {
        owner: RunId(row.get::<_, Id>(0)?.0),
        fence: row.get(1)?,
        value: row.get::<_, Option<Text<Payload>>>(2)?.map(|value| value.0),
        expires: row.get::<_, Option<i64>>(3)?.map(Time),
    })
}

fn read_receipts(row: &Row<'_>) -> rusqlite::Result<(ReceiptKind, Receipts)> {
    let kind = ReceiptKind::from_code(row.get(0)?).ok_or(FromSqlError::InvalidType)?;
    let receipts = Receipts {
        count: row.get(1)?,
        first: Time(row.get(2)?),
        last: Time(row.get(3)?),
        recent: row.get::<_, Json<_>>(4)?.0,
    };
    Ok((kind, receipts))
}
