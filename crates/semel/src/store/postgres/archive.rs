//! The rows of an archive, in PostgreSQL, and the one moment that an export shows.

use tokio_postgres::Row;

use super::rows::{self, bigint, column, corrupt, select_run, unavailable};
use super::server::Server;
use super::tx::{PgStoreTx, held_once_of, record_of, watcher_of};
use crate::clock::Time;
use crate::error::Result;
use crate::id::{NodeId, RunId, WorkspaceId};
use crate::rules::archive::CallLine;
use crate::rules::attention::Attention;
use crate::rules::key::{CallId, Token};
use crate::rules::record::Record;
use crate::rules::run::Run;
use crate::store::archive::{ArchiveRows, Each, OnceAt, RecordAt};
use crate::store::tx::{HeldOnce, TxTime, Verb, Watcher};
use crate::store::verbs::ExportPage;

/// Exports a snapshot: concurrent writes are not in it, and are not blocked.
pub(super) async fn export(server: &Server, workspace: Option<WorkspaceId>, each: Each<'_>) -> Result<()> {
    let mut session = server.session().await?;
    let client = session.client();
    // The receiver of the lines may be slow.
    let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY; \
         SET LOCAL idle_in_transaction_session_timeout = 0";
    client.batch_execute(begin).await.map_err(unavailable)?;
    let mut next = Some(ExportPage::first(workspace));
    while let Some(page) = next {
        let (lines, after) = page.run(&mut PgStoreTx::reading(server, client, server.given())).await?;
        if lines.into_iter().try_for_each(&mut *each).is_break() {
            break;
        }
        next = after;
    }
    client.batch_execute("ROLLBACK").await.map_err(unavailable)?;
    session.open = false;
    Ok(())
}

impl ArchiveRows for PgStoreTx<'_> {
    async fn runs_after(&mut self, num: i64, limit: usize) -> Result<Vec<Run>> {
        let after = select_run!("FROM runs r WHERE r.num > $1 ORDER BY r.num LIMIT $2");
        self.rows(after, &[&num, &bigint(limit)]).await?.iter().map(rows::run_of).collect()
    }

    async fn tokens_of(&mut self, num: i64) -> Result<Vec<Token>> {
        let owned = "SELECT run, token FROM hooks WHERE run = $1 ORDER BY token";
        let of = |row: &Row| Token::new(column::<String>(row, 1)?).map_err(|e| corrupt(row, e));
        self.rows(owned, &[&num]).await?.iter().map(of).collect()
    }

    async fn calls_of(&mut self, num: i64) -> Result<Vec<CallLine>> {
        let past =
            "SELECT run, scope, id, owner, fingerprint, result FROM calls WHERE run = $1 ORDER BY scope, id";
        let of = |row: &Row| {
            Ok(CallLine {
                scope: column(row, 1)?,
                id: CallId::new(column::<String>(row, 2)?).map_err(|e| corrupt(row, e))?,
                run: RunId(column(row, 3)?),
                fingerprint: rows::fingerprint_of(column(row, 4)?).map_err(|e| corrupt(row, e))?,
                result: column::<i64>(row, 5)? as u64,
            })
        };
        self.rows(past, &[&num]).await?.iter().map(of).collect()
    }

    async fn watchers_of(&mut self, num: i64) -> Result<Vec<Watcher>> {
        let waiting = "SELECT num, watcher, visit FROM watchers WHERE run = $1 ORDER BY num";
        self.rows(waiting, &[&num]).await?.iter().map(watcher_of).collect()
    }

    async fn once_after(&mut self, at: Option<&OnceAt>, limit: usize) -> Result<Vec<HeldOnce>> {
        // The smallest of each comes before all.
        let (workspace, scope, label) =
            at.map_or((uuid::Uuid::nil(), "", ""), |(w, scope, label)| (w.0, scope.as_str(), label.as_str()));
        let after = "SELECT owner, fence, value, expires, workspace, scope, label FROM once \
             WHERE (workspace, scope, label) > ($1, $2, $3) ORDER BY workspace, scope, label LIMIT $4";
        let rows = self.rows(after, &[&workspace, &scope, &label, &bigint(limit)]).await?;
        rows.iter().map(held_once_of).collect()
    }

    async fn records_after(&mut self, at: Option<&RecordAt>, limit: usize) -> Result<Vec<Record>> {
        let (kind, id) = at.map_or(("", ""), |(kind, id)| (kind.as_str(), id.as_str()));
        let after = "SELECT kind, id, version, body, at, expires FROM records WHERE (kind, id) > ($1, $2) \
             ORDER BY kind, id LIMIT $3";
        self.rows(after, &[&kind, &id, &bigint(limit)]).await?.iter().map(record_of).collect()
    }

    async fn live_node(&mut self) -> Result<Option<NodeId>> {
        let live = "SELECT id FROM nodes WHERE lease > $1 LIMIT 1";
        self.row(live, &[&self.now().0]).await?.map(|row| column(&row, 0).map(NodeId)).transpose()
    }

    async fn restore_run(&mut self, run: &Run) -> Result<Option<i64>> {
        let Some(num) = self.insert_header(&run.new, &run.state).await? else { return Ok(None) };
        let update = "UPDATE runs SET arrivals = $2, purged = $3, attention = $4 WHERE num = $1";
        let attention = run.state.attention.map(Attention::code);
        self.write(update, &[&num, &(run.arrivals as i64), &run.purged, &attention]).await?;
        Ok(Some(num))
    }

    async fn restore_commit(&mut self, num: i64, seq: u64, at: Time, text: &str) -> Result<()> {
        let insert = "INSERT INTO ledger (run, seq, at, entries) VALUES ($1, $2, $3, $4)";
        self.write(insert, &[&num, &(seq as i64), &at.0, &text]).await?;
        Ok(())
    }

    async fn restore_message(&mut self, num: i64, arrival: u64, at: Time, text: &str) -> Result<()> {
        let insert = "INSERT INTO inbox (run, arrival, at, message) VALUES ($1, $2, $3, $4)";
        self.write(insert, &[&num, &(arrival as i64), &at.0, &text]).await?;
        Ok(())
    }
}
