//! The rows in PostgreSQL. A run is always locked before its tokens and its key; `NO KEY UPDATE` is what an UPDATE takes
//! too, and lets receipts be added meanwhile.
//!
//! Every statement runs READ COMMITTED and sees what is committed when it begins. So after a lock has been waited for,
//! what was read before it is read again, or the write carries its guard.

use std::collections::HashSet;

use deadpool_postgres::Object;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error as PgError, Row};
use uuid::Uuid;

use super::rows::{self, Lookup, bigint, column, corrupt, run_columns, select_run, unavailable};
use super::server::Server;
use crate::clock::Time;
use crate::error::Result;
use crate::id::{NodeId, RunId, WorkspaceId};
use crate::rules::claim::Drives;
use crate::rules::deliver::{PastCall, Unconsumed};
use crate::rules::entry::Message;
use crate::rules::finish::Purge;
use crate::rules::key::{CallId, Key, Label, RecordId, Scope, Token};
use crate::rules::once::OnceRow;
use crate::rules::path::{Name, Visit};
use crate::rules::receipt::{ReceiptKind, Receipts};
use crate::rules::record::{Look, Record};
use crate::rules::run::{NewRun, Run, State};
use crate::rules::status::Status;
use crate::store::archive::OnceAt;
use crate::store::list::{Scan, Scanned};
use crate::store::tx::{
    CallAt, DeadNode, Driven, HeldOnce, InboxRow, InsertedRun, LedgerRow, SetFree, Taken, Tx, Watcher,
    message_text, millis, race,
};

pub(super) type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

/// One transaction, or, if it only reads, the statements of one verb.
pub(super) struct PgTx<'a> {
    server: &'a Server,
    client: &'a Object,
    /// None until a read has looked for a run, which brings the time along.
    pub(super) now: Option<Time>,
    locks: bool,
    writes: u64,
    /// The end of the ledger that came with the run that was looked up.
    tail: Option<(i64, Vec<LedgerRow>)>,
    /// The holder of the key that was looked up beforehand.
    held: Option<Run>,
}

impl<'a> PgTx<'a> {
    pub(super) fn writing(server: &'a Server, client: &'a Object, now: Time) -> Self {
        Self { server, client, now: Some(now), locks: true, writes: 0, tail: None, held: None }
    }

    pub(super) fn reading(server: &'a Server, client: &'a Object, now: Option<Time>) -> Self {
        Self { server, client, now, locks: false, writes: 0, tail: None, held: None }
    }

    /// To read beside a run that was found under its key, in one statement with others; none if the end of its ledger was
    /// too long to come along.
    pub(super) fn beside(
        server: &'a Server,
        client: &'a Object,
        now: Time,
        row: &Row,
    ) -> Result<Option<Self>> {
        let run = rows::run_of(row)?;
        let Some(tail) = rows::tail_beside(row, run.num)? else { return Ok(None) };
        let tail = Some((run.num, tail));
        Ok(Some(Self { tail, held: Some(run), ..Self::reading(server, client, Some(now)) }))
    }

    pub(super) fn count_writes(&mut self, rows: usize) {
        self.writes += rows as u64;
    }

    pub(super) fn is_untouched(&self) -> bool {
        self.writes == 0
    }

    /// Sends a statement, and waits for its answer.
    async fn ask<T>(&self, asking: impl Future<Output = Result<T, PgError>>) -> Result<T> {
        self.server.answered(asking).await?.map_err(unavailable)
    }

    pub(super) async fn rows(&self, sql: &str, params: Params<'_>) -> Result<Vec<Row>> {
        let client = self.client;
        self.ask(async { client.query(&client.prepare_cached(sql).await?, params).await }).await
    }

    pub(super) async fn row(&self, sql: &str, params: Params<'_>) -> Result<Option<Row>> {
        let client = self.client;
        self.ask(async { client.query_opt(&client.prepare_cached(sql).await?, params).await }).await
    }

    /// Writes, and gives the number of rows.
    pub(super) async fn write(&mut self, sql: &str, params: Params<'_>) -> Result<u64> {
        let client = self.client;
        let rows =
            self.ask(async { client.execute(&client.prepare_cached(sql).await?, params).await }).await?;
        self.writes += rows;
        Ok(rows)
    }

    /// Writes, and gives the row that comes of it.
    pub(super) async fn write_row(&mut self, sql: &str, params: Params<'_>) -> Result<Option<Row>> {
        let row = self.row(sql, params).await?;
        self.writes += u64::from(row.is_some());
        Ok(row)
    }

    async fn look_up(&mut self, lookup: &Lookup, params: Params<'_>) -> Result<Option<Run>> {
        if self.locks {
            return self.row(lookup.locked, params).await?.as_ref().map(rows::run_of).transpose();
        }
        let row = self.row(lookup.read, params).await?.expect("the time, even if there is no run");
        self.now.get_or_insert(rows::time_beside(&row)?);
        let Some(num) = column(&row, 0)? else { return Ok(None) };
        self.tail = rows::tail_beside(&row, num)?.map(|tail| (num, tail));
        rows::run_of(&row).map(Some)
    }

    /// Inserts a run without its ledger; none if its key is held by another, or its id is taken.
    pub(super) async fn insert_header(&mut self, new: &NewRun, state: &State) -> Result<Option<i64>> {
        // Any conflict: of the key, and of an id that is there already.
        let insert = "INSERT INTO runs (id, workspace, workflow, workflow_version, scope, key, fingerprint, lineage, \
             parent, keep_history, keep_key, created, status, version, due, node, stalls, ended, purge, holds_key, ties, \
             deadline) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22) \
             ON CONFLICT DO NOTHING RETURNING num";
        let row = self
            .write_row(
                insert,
                &[
                    &new.id.0,
                    &new.workspace.0,
                    &new.workflow.as_str(),
                    &new.workflow_version.as_str(),
                    &new.scope.as_str(),
                    &new.key.as_str(),
                    &new.fingerprint.0.as_slice(),
                    &new.lineage.0,
                    &new.parent.map(|parent| parent.0),
                    &millis(new.retention.history),
                    &millis(new.retention.key),
                    &new.created.0,
                    &state.status.code(),
                    &(state.version as i64),
                    &state.due.map(|due| due.0),
                    &state.node.map(|node| node.0),
                    &(state.stalls as i32),
                    &state.ended.map(|ended| ended.0),
                    &state.purge.map(|purge| purge.0),
                    &state.holds_key,
                    &state.ties,
                    &state.deadline.map(|deadline| deadline.0),
                ],
            )
            .await?;
        row.map(|row| column(&row, 0)).transpose()
    }
}

impl Tx for PgTx<'_> {
    fn now(&self) -> Time {
        self.now.expect("a read that asks for the time has looked for a run, which brought it along")
    }

    async fn insert_run(&mut self, new: &NewRun, state: &State, text: &str) -> Result<Option<i64>> {
        let Some(num) = self.insert_header(new, state).await? else { return Ok(None) };
        self.append(num, 0, text).await?;
        Ok(Some(num))
    }

    async fn holder(&mut self, workspace: WorkspaceId, scope: &Scope, key: &Key) -> Result<Option<Run>> {
        let same =
            |run: &mut Run| run.new.workspace == workspace && run.new.scope == *scope && run.new.key == *key;
        if let Some(run) = self.held.take_if(same) {
            return Ok(Some(run));
        }
        self.look_up(&rows::BY_KEY, &[&workspace.0, &scope.as_str(), &key.as_str()]).await
    }

    async fn run(&mut self, id: RunId) -> Result<Option<Run>> {
        self.look_up(&rows::BY_ID, &[&id.0]).await
    }

    async fn run_at(&mut self, num: i64) -> Result<Option<Run>> {
        self.look_up(&rows::BY_NUM, &[&num]).await
    }

    async fn status(&mut self, id: RunId) -> Result<Option<Status>> {
        let row = self.row("SELECT status FROM runs WHERE id = $1", &[&id.0]).await?;
        row.map(|row| rows::status_of(&row, 0)).transpose()
    }

    async fn save(&mut self, num: i64, expected: u64, state: &State) -> Result<bool> {
        let update = "UPDATE runs SET status = $3, version = $4, due = $5, node = $6, stalls = $7, ended = $8, \
             purge = $9, holds_key = $10, ties = $11, deadline = $12 WHERE num = $1 AND version = $2";
        let saved = self
            .write(
                update,
                &[
                    &num,
                    &(expected as i64),
                    &state.status.code(),
                    &(state.version as i64),
                    &state.due.map(|due| due.0),
                    &state.node.map(|node| node.0),
                    &(state.stalls as i32),
                    &state.ended.map(|ended| ended.0),
                    &state.purge.map(|purge| purge.0),
                    &state.holds_key,
                    &state.ties,
                    &state.deadline.map(|deadline| deadline.0),
                ],
            )
            .await?;
        Ok(saved == 1)
    }

    async fn advance(&mut self, num: i64, expected: u64, count: u64, text: &str) -> Result<bool> {
        // Status 1 is RUNNING.
        let update = "WITH saved AS (UPDATE runs SET version = version + $3, stalls = 0 \
             WHERE num = $1 AND version = $2 AND status = 1 RETURNING num) \
             INSERT INTO ledger (run, seq, at, entries) SELECT num, $2, $4, $5 FROM saved";
        let params: Params<'_> = &[&num, &(expected as i64), &(count as i64), &self.now().0, &text];
        Ok(self.write(update, params).await? == 1)
    }

    async fn due(&mut self, workflows: &[Drives], limit: usize) -> Result<Vec<Run>> {
        let sql =
            concat!(include_str!("due.sql"), "SELECT ", run_columns!(), " FROM r ORDER BY r.due, r.num");
        let workspaces: Vec<Uuid> = workflows.iter().map(|drives| drives.workspace.0).collect();
        let names: Vec<&str> = workflows.iter().map(|drives| drives.workflow.as_str()).collect();
        let versions: Vec<&str> = workflows.iter().map(|drives| drives.workflow_version.as_str()).collect();
        let params: Params<'_> = &[&workspaces, &names, &versions, &self.now().0, &bigint(limit)];
        let rows = self.rows(sql, params).await?;
        rows.iter().map(rows::run_of).collect()
    }

    async fn dues(&mut self, workflows: &[Drives], after: Time) -> Result<Vec<Option<Time>>> {
        if workflows.is_empty() {
            return Ok(Vec::new());
        }
        let workspaces: Vec<Uuid> = workflows.iter().map(|drives| drives.workspace.0).collect();
        let names: Vec<&str> = workflows.iter().map(|drives| drives.workflow.as_str()).collect();
        let versions: Vec<&str> = workflows.iter().map(|drives| drives.workflow_version.as_str()).collect();
        let params: Params<'_> = &[&workspaces, &names, &versions, &after.0];
        let rows = self.rows(include_str!("dues.sql"), params).await?;
        rows.iter().map(|row| rows::time(row, 0)).collect()
    }

    async fn take(&mut self, taken: &[Taken]) -> Result<()> {
        if taken.is_empty() {
            return Ok(());
        }
        let now = self.now().0;
        let texts: Vec<&str> = taken.iter().map(|run| run.text.as_str()).collect();
        let params: Params<'_> = &[
            &now,
            &each(taken, |run| run.num),
            &each(taken, |run| run.expected as i64),
            &each(taken, |run| run.state.version as i64),
            &each(taken, |run| run.state.status.code()),
            &each(taken, |run| run.state.due.map(|due| due.0)),
            &each(taken, |run| run.state.node.map(|node| node.0)),
            &each(taken, |run| run.state.stalls as i32),
            &texts,
        ];
        let rows = self.write(include_str!("take.sql"), params).await?;
        if rows == taken.len() as u64 { Ok(()) } else { Err(race()) }
    }

    async fn open_children(&mut self, parent: RunId) -> Result<Vec<Run>> {
        let open =
            select_run!("FROM runs r WHERE r.parent = $1 AND r.status < 4 ORDER BY r.num FOR NO KEY UPDATE");
        self.rows(open, &[&parent.0]).await?.iter().map(rows::run_of).collect()
    }

    async fn list(&mut self, scan: &Scan<'_>) -> Result<Scanned> {
        self.scan(scan).await
    }

    async fn append(&mut self, num: i64, seq: u64, text: &str) -> Result<()> {
        let insert = "INSERT INTO ledger (run, seq, at, entries) VALUES ($1, $2, $3, $4)";
        self.write(insert, &[&num, &(seq as i64), &self.now().0, &text]).await?;
        Ok(())
    }

    async fn ledgers(&mut self, nums: &[i64], from: u64) -> Result<Vec<LedgerRow>> {
        let rows = self.rows(include_str!("ledgers.sql"), &[&nums, &(from as i64)]).await?;
        rows.iter().map(ledger_row).collect()
    }

    async fn ledger_part(
        &mut self,
        num: i64,
        from: u64,
        limit: usize,
        bytes: usize,
    ) -> Result<Option<Vec<LedgerRow>>> {
        // Nothing has a number that PostgreSQL does not have.
        let from = i64::try_from(from).unwrap_or(i64::MAX);
        let params: Params<'_> = &[&num, &from, &bigint(limit), &bigint(bytes.max(1))];
        let rows = self.rows(include_str!("ledger_part.sql"), params).await?;
        rows.iter().map(ledger_row).collect::<Result<_>>().map(Some)
    }

    async fn ledger_first(&mut self, num: i64) -> Result<Option<LedgerRow>> {
        let first = "SELECT run, seq, at, entries FROM ledger WHERE run = $1 AND seq = 0";
        self.rows(first, &[&num]).await?.first().map(ledger_row).transpose()
    }

    async fn ledger_tail(&mut self, num: i64, limit: usize) -> Result<Vec<LedgerRow>> {
        if let Some((_, tail)) = self.tail.as_ref().filter(|(run, _)| *run == num && limit <= rows::TAIL) {
            return Ok(tail.iter().take(limit).cloned().collect());
        }
        let last = "SELECT run, seq, at, entries FROM ledger WHERE run = $1 ORDER BY seq DESC LIMIT $2";
        self.rows(last, &[&num, &bigint(limit)]).await?.iter().map(ledger_row).collect()
    }

    async fn arrive(&mut self, num: i64, message: &Message) -> Result<Option<u64>> {
        // Status 2 is WAITING, from 4 on the run has ended. LEAST ignores a due that is not there.
        let insert = "WITH run AS (UPDATE runs SET arrivals = arrivals + 1, \
             due = CASE WHEN status = 2 THEN LEAST(due, $2) ELSE due END \
             WHERE num = $1 AND status < 4 RETURNING arrivals) \
             INSERT INTO inbox (run, arrival, at, message) SELECT $1, arrivals, $2, $3 FROM run RETURNING arrival";
        let row = self.write_row(insert, &[&num, &self.now().0, &message_text(message)]).await?;
        row.map(|row| Ok(column::<i64>(&row, 0)? as u64)).transpose()
    }

    async fn inboxes(&mut self, nums: &[i64], from: u64) -> Result<Vec<InboxRow>> {
        // Nothing has a number that PostgreSQL does not have.
        let Ok(from) = i64::try_from(from) else { return Ok(Vec::new()) };
        let all = "SELECT i.run, i.arrival, i.at, i.message FROM unnest($1::bigint[]) WITH ORDINALITY AS n (num, place) \
             JOIN runs r ON r.num = n.num AND NOT r.purged JOIN inbox i ON i.run = n.num AND i.arrival >= $2 \
             ORDER BY n.place, i.arrival";
        let read = |row: &Row| {
            let arrival = column::<i64>(row, 1)? as u64;
            Ok(InboxRow { num: column(row, 0)?, arrival, at: Time(column(row, 2)?), text: column(row, 3)? })
        };
        self.rows(all, &[&nums, &from]).await?.iter().map(read).collect()
    }

    async fn unconsumed(&mut self, num: i64) -> Result<Unconsumed> {
        let sum =
            "SELECT count(*), coalesce(sum(octet_length(message)), 0)::bigint FROM inbox WHERE run = $1";
        let rows = self.rows(sum, &[&num]).await?;
        let read = |row: &Row| {
            Ok(Unconsumed { count: column::<i64>(row, 0)? as u64, bytes: column::<i64>(row, 1)? as u64 })
        };
        rows.first().map_or(Ok(Unconsumed::default()), read)
    }

    async fn arrived(&mut self, num: i64, arrivals: &[u64]) -> Result<Vec<u64>> {
        let there = "SELECT arrival FROM inbox WHERE run = $1 AND arrival = ANY ($2)";
        // A number that PostgreSQL does not have is not there.
        let arrivals: Vec<_> = arrivals.iter().filter_map(|arrival| i64::try_from(*arrival).ok()).collect();
        let rows = self.rows(there, &[&num, &arrivals]).await?;
        rows.iter().map(|row| Ok(column::<i64>(row, 0)? as u64)).collect()
    }

    async fn consume(&mut self, num: i64, arrival: u64) -> Result<bool> {
        let delete = "DELETE FROM inbox WHERE run = $1 AND arrival = $2";
        Ok(self.write(delete, &[&num, &(arrival as i64)]).await? == 1)
    }

    async fn insert_hook(&mut self, workspace: WorkspaceId, token: &Token, num: i64) -> Result<bool> {
        let insert = "INSERT INTO hooks (workspace, token, run) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
        Ok(self.write(insert, &[&workspace.0, &token.as_str(), &num]).await? == 1)
    }

    async fn hook_owner(&mut self, workspace: WorkspaceId, token: &Token) -> Result<Option<RunId>> {
        let owner =
            "SELECT r.id FROM hooks h JOIN runs r ON r.num = h.run WHERE h.workspace = $1 AND h.token = $2";
        let row = self.row(owner, &[&workspace.0, &token.as_str()]).await?;
        row.map(|row| column(&row, 0).map(RunId)).transpose()
    }

    async fn hook(&mut self, workspace: WorkspaceId, token: &Token) -> Result<Option<Run>> {
        let token = token.as_str();
        let params: Params<'_> = &[&workspace.0, &token];
        if !self.locks {
            return self.look_up(&rows::BY_TOKEN, params).await;
        }
        let client = self.client;
        let check = "SELECT run FROM hooks WHERE workspace = $1 AND token = $2";
        let asking = async {
            let lock = client.prepare_cached(rows::BY_TOKEN.locked).await?;
            let check = client.prepare_cached(check).await?;
            // Both are sent at once, and the second begins when the first has its lock: by then the run that was waited
            // for may have ended and lost the token.
            let (locked, owner) =
                tokio::join!(biased; client.query_opt(&lock, params), client.query_opt(&check, params));
            Ok((locked?, owner?))
        };
        let (locked, owner) = self.ask(asking).await?;
        let run = locked.as_ref().map(rows::run_of).transpose()?;
        let owner: Option<i64> = owner.map(|row| column(&row, 0)).transpose()?;
        match run {
            Some(run) if owner != Some(run.num) => Err(race()),
            run => Ok(run),
        }
    }

    async fn delete_hook(&mut self, workspace: WorkspaceId, token: &Token, num: i64) -> Result<()> {
        let delete = "DELETE FROM hooks WHERE workspace = $1 AND token = $2 AND run = $3";
        self.write(delete, &[&workspace.0, &token.as_str(), &num]).await?;
        Ok(())
    }

    async fn delete_hooks(&mut self, num: i64) -> Result<()> {
        self.write("DELETE FROM hooks WHERE run = $1", &[&num]).await?;
        Ok(())
    }

    async fn insert_runs(&mut self, runs: &[InsertedRun]) -> Result<Vec<Option<i64>>> {
        self.insert_many(runs).await
    }

    async fn held_keys(
        &mut self,
        workspace: WorkspaceId,
        scope: &Scope,
        keys: &[&Key],
    ) -> Result<HashSet<Key>> {
        self.find_held(workspace, scope, keys).await
    }

    async fn consume_all(&mut self, num: i64, arrivals: &[u64]) -> Result<()> {
        let delete = "DELETE FROM inbox WHERE run = $1 AND arrival = ANY ($2)";
        let arrivals: Vec<_> = arrivals.iter().map(|arrival| *arrival as i64).collect();
        self.write(delete, &[&num, &arrivals]).await.map(drop)
    }

    async fn insert_watchers(&mut self, watchers: &[(i64, Watcher)]) -> Result<()> {
        self.insert_many_watchers(watchers).await
    }

    async fn insert_watcher(&mut self, num: i64, watcher: &Watcher) -> Result<()> {
        let insert = "INSERT INTO watchers (run, watcher, visit) VALUES ($1, $2, $3)";
        self.write(insert, &[&num, &watcher.num, &watcher.visit.to_string()]).await?;
        Ok(())
    }

    async fn take_watchers(&mut self, num: i64) -> Result<Vec<Watcher>> {
        let take = "WITH gone AS (DELETE FROM watchers WHERE run = $1 RETURNING num, watcher, visit) \
             SELECT num, watcher, visit FROM gone ORDER BY num";
        let rows = self.rows(take, &[&num]).await?;
        self.count_writes(rows.len());
        rows.iter().map(watcher_of).collect()
    }

    async fn call(&mut self, workspace: WorkspaceId, scope: &str, id: &CallId) -> Result<Option<PastCall>> {
        let past =
            "SELECT owner, fingerprint, result FROM calls WHERE workspace = $1 AND scope = $2 AND id = $3";
        let Some(row) = self.row(past, &[&workspace.0, &scope, &id.as_str()]).await? else { return Ok(None) };
        let fingerprint = rows::fingerprint_of(column(&row, 1)?).map_err(|e| corrupt(&row, e))?;
        let result = column::<i64>(&row, 2)? as u64;
        Ok(Some(PastCall { run: RunId(column(&row, 0)?), fingerprint, result }))
    }

    async fn insert_call(
        &mut self,
        at: CallAt<'_>,
        num: i64,
        call: &PastCall,
        replaces: Option<RunId>,
    ) -> Result<bool> {
        // Without a run to replace, the condition is null and the row stays as it is.
        let insert = "INSERT INTO calls (workspace, scope, id, run, owner, fingerprint, result) \
             VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (workspace, scope, id) DO UPDATE \
             SET run = $4, owner = $5, fingerprint = $6, result = $7 WHERE calls.owner = $8";
        let (fingerprint, result) = (call.fingerprint.0.as_slice(), call.result as i64);
        let (scope, id, replaces) = (at.scope, at.id.as_str(), replaces.map(|run| run.0));
        let params: Params<'_> =
            &[&at.workspace.0, &scope, &id, &num, &call.run.0, &fingerprint, &result, &replaces];
        Ok(self.write(insert, params).await? == 1)
    }

    async fn once(&mut self, workspace: WorkspaceId, scope: &str, label: &Label) -> Result<Option<OnceRow>> {
        self.lock_once(workspace, scope, label).await
    }

    async fn put_once(
        &mut self,
        workspace: WorkspaceId,
        scope: &str,
        label: &Label,
        row: Option<&OnceRow>,
    ) -> Result<()> {
        self.write_once(workspace, scope, label, row).await
    }

    async fn insert_once_waiter(&mut self, at: &OnceAt, run: RunId) -> Result<()> {
        self.join_once(at, run).await
    }

    async fn once_waiters(&mut self, at: &OnceAt) -> Result<Vec<RunId>> {
        self.waiters_of(at).await
    }

    async fn delete_once_waiters(&mut self, at: &OnceAt) -> Result<()> {
        self.forget_waiters(at).await
    }

    async fn held_once(&mut self, owner: RunId) -> Result<Vec<HeldOnce>> {
        self.lock_held_once(owner).await
    }

    async fn delete_expired_once(&mut self, limit: usize) -> Result<usize> {
        self.sweep_marks().await?;
        self.sweep_once(limit).await
    }

    async fn record(&mut self, kind: &Name, id: &RecordId) -> Result<Option<Record>> {
        self.lock_record(kind, id).await
    }

    async fn put_record(&mut self, record: &Record, replaces: Option<u64>) -> Result<bool> {
        self.write_record(record, replaces).await
    }

    async fn records(&mut self, look: &Look) -> Result<Vec<Record>> {
        self.read_records(look).await
    }

    async fn delete_expired_records(&mut self, limit: usize) -> Result<usize> {
        self.sweep_records(limit).await
    }

    async fn add_receipts(&mut self, num: i64, kind: ReceiptKind, receipts: &Receipts) -> Result<()> {
        self.write_receipts(num, kind, receipts).await
    }

    async fn receipts(&mut self, num: i64) -> Result<Vec<(ReceiptKind, Receipts)>> {
        self.read_receipts(num).await
    }

    async fn lease(&mut self, node: NodeId) -> Result<Option<Time>> {
        self.lock_lease(node).await
    }

    async fn put_lease(&mut self, node: NodeId, until: Option<Time>) -> Result<()> {
        self.write_lease(node, until).await
    }

    async fn depart(&mut self, node: NodeId) -> Result<()> {
        self.end_lease(node).await
    }

    async fn dead_nodes(&mut self) -> Result<Vec<DeadNode>> {
        self.lock_dead_nodes().await
    }

    async fn driven(&mut self, dead: &[NodeId], limit: usize) -> Result<Vec<Driven>> {
        self.lock_driven(dead, limit).await
    }

    async fn held_by(&mut self, node: NodeId) -> Result<Vec<u32>> {
        self.stalls_held_by(node).await
    }

    async fn set_free(&mut self, runs: &[SetFree]) -> Result<()> {
        self.write_free(runs).await
    }

    async fn delete_node(&mut self, node: NodeId) -> Result<()> {
        self.write("DELETE FROM nodes WHERE id = $1", &[&node.0]).await?;
        Ok(())
    }

    async fn overdue(&mut self, limit: usize) -> Result<Vec<Run>> {
        self.lock_overdue(limit).await
    }

    async fn purgeable(&mut self, limit: usize) -> Result<Vec<Run>> {
        self.lock_purgeable(limit).await
    }

    async fn delete_history(&mut self, num: i64, limit: usize) -> Result<usize> {
        self.purge(num, None, limit).await
    }

    async fn set_purged(&mut self, num: i64, next: Time) -> Result<()> {
        self.write("UPDATE runs SET purged = true, purge = $2 WHERE num = $1", &[&num, &next.0]).await?;
        Ok(())
    }

    async fn delete_run(&mut self, num: i64) -> Result<()> {
        self.write("DELETE FROM runs WHERE num = $1", &[&num]).await?;
        Ok(())
    }

    async fn forget(&mut self, run: &Run, what: Purge, limit: usize) -> Result<usize> {
        self.purge(run.num, Some(what), limit).await
    }
}

/// Reads the columns after the first.
pub(super) fn watcher_of(row: &Row) -> Result<Watcher> {
    let visit: &str = column(row, 2)?;
    let visit = Visit::parse(visit).ok_or_else(|| corrupt(row, format!("{visit:?} is no visit")))?;
    Ok(Watcher { num: column(row, 1)?, visit })
}

fn each<T>(taken: &[Taken], of: impl Fn(&Taken) -> T) -> Vec<T> {
    taken.iter().map(of).collect()
}

fn ledger_row(row: &Row) -> Result<LedgerRow> {
    let seq = column::<i64>(row, 1)? as u64;
    Ok(LedgerRow { num: column(row, 0)?, seq, at: Time(column(row, 2)?), text: column(row, 3)? })
}
