//! The rows in PostgreSQL. A run is always locked before its tokens and its key; `NO KEY UPDATE` is what an UPDATE takes
//! too, and lets receipts be added meanwhile.
//!
//! Every statement runs READ COMMITTED and sees what is committed when it begins. So after a lock has been waited for,
//! what was read before it is read again, or the write carries its guard.

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

use deadpool_postgres::Object;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error as PgError, Row};

use super::rows::{self, Lookup, column, unavailable};
use super::server::Server;
use crate::clock::Time;
use crate::error::Result;
use crate::rules::run::{NewRun, Run, RunState};
use crate::store::tx::{LedgerRow, TxTime, millis};

#[cfg(all(feature = "testing", feature = "sqlite"))]
pub(crate) use self::due::family_statements;
pub(super) use self::once::held_once_of;
pub(super) use self::records::record_of;
pub(super) use self::watchers::watcher_of;

pub(super) type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

/// One transaction, or, if it only reads, the statements of one verb.
pub(super) struct PgStoreTx<'a> {
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

impl<'a> PgStoreTx<'a> {
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
    pub(super) async fn insert_header(&mut self, new: &NewRun, state: &RunState) -> Result<Option<i64>> {
        let row = self
            .write_row(
                include_str!("sql/insert_header.sql"),
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

impl TxTime for PgStoreTx<'_> {
    fn now(&self) -> Time {
        self.now.expect("a read that asks for the time has looked for a run, which brought it along")
    }
}
