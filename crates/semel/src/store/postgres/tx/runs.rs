//! Runs: their headers, their keys, and the guarded change of their state.

use std::collections::{HashMap, HashSet};

use uuid::Uuid;

use super::{Params, PgStoreTx};
use crate::error::Result;
use crate::id::{RunId, WorkspaceId};
use crate::rules::attention::Attention;
use crate::rules::key::{Key, Scope};
use crate::rules::run::{NewRun, Run, RunState};
use crate::rules::status::Status;
use crate::store::list::{Scan, Scanned};
use crate::store::postgres::rows::{self, column, corrupt, select_run};
use crate::store::tx::{InsertedRun, KeyScan, LedgerRows, RunRows, TxTime, millis};

impl RunRows for PgStoreTx<'_> {
    async fn insert_run(&mut self, new: &NewRun, state: &RunState, text: &str) -> Result<Option<i64>> {
        let Some(num) = self.insert_header(new, state).await? else { return Ok(None) };
        self.append(num, 0, text).await?;
        Ok(Some(num))
    }

    // The runs have no driver and have not ended.
    async fn insert_runs(&mut self, runs: &[InsertedRun]) -> Result<Vec<Option<i64>>> {
        fn each<'a, T>(runs: &'a [InsertedRun], of: impl Fn(&'a InsertedRun) -> T) -> Vec<T> {
            runs.iter().map(of).collect()
        }
        let params: Params<'_> = &[
            &each(runs, |run| run.new.id.0),
            &each(runs, |run| run.new.workspace.0),
            &each(runs, |run| run.new.workflow.as_str()),
            &each(runs, |run| run.new.workflow_version.as_str()),
            &each(runs, |run| run.new.scope.as_str()),
            &each(runs, |run| run.new.key.as_str()),
            &each(runs, |run| run.new.fingerprint.0.as_slice()),
            &each(runs, |run| run.new.lineage.0),
            &each(runs, |run| run.new.parent.map(|parent| parent.0)),
            &each(runs, |run| millis(run.new.retention.history)),
            &each(runs, |run| millis(run.new.retention.key)),
            &each(runs, |run| run.new.created.0),
            &each(runs, |run| run.state.status.code()),
            &each(runs, |run| run.state.version as i64),
            &each(runs, |run| run.state.due.map(|due| due.0)),
            &each(runs, |run| run.state.stalls as i32),
            &each(runs, |run| run.state.holds_key),
            &each(runs, |run| run.state.ties),
            &each(runs, |run| run.state.deadline.map(|deadline| deadline.0)),
        ];
        let rows = self.rows(include_str!("../sql/children.sql"), params).await?;
        self.count_writes(rows.len());
        let mut made = HashMap::with_capacity(rows.len());
        for row in &rows {
            made.insert(column::<Uuid>(row, 0)?, column::<i64>(row, 1)?);
        }
        let nums: Vec<_> = runs.iter().map(|run| made.get(&run.new.id.0).copied()).collect();
        let first = runs.iter().zip(&nums).filter_map(|(run, num)| Some(((*num)?, run.text.as_str())));
        let (made, texts): (Vec<i64>, Vec<&str>) = first.unzip();
        let append = "INSERT INTO ledger (run, seq, at, entries) \
             SELECT num, 0, $1, entries FROM unnest($2::bigint[], $3::text[]) AS a (num, entries)";
        self.write(append, &[&self.now().0, &made, &texts]).await?;
        Ok(nums)
    }

    async fn held_keys(
        &mut self,
        workspace: WorkspaceId,
        scope: &Scope,
        keys: &[&Key],
    ) -> Result<HashSet<Key>> {
        let held =
            "SELECT key FROM runs WHERE workspace = $1 AND scope = $2 AND key = ANY ($3) AND holds_key";
        let keys: Vec<&str> = keys.iter().map(|key| key.as_str()).collect();
        let rows = self.rows(held, &[&workspace.0, &scope.as_str(), &keys]).await?;
        rows.iter().map(|row| Key::new(column::<String>(row, 0)?).map_err(|e| corrupt(row, e))).collect()
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

    async fn save(&mut self, num: i64, expected: u64, state: &RunState) -> Result<bool> {
        let update = "UPDATE runs SET status = $3, version = $4, due = $5, node = $6, stalls = $7, ended = $8, \
             purge = $9, holds_key = $10, ties = $11, deadline = $12, attention = $13 WHERE num = $1 AND version = $2";
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
                    &state.attention.map(Attention::code),
                ],
            )
            .await?;
        Ok(saved == 1)
    }

    async fn advance(&mut self, num: i64, expected: u64, count: u64, text: &str) -> Result<bool> {
        let update = include_str!("../sql/advance.sql");
        let params: Params<'_> = &[&num, &(expected as i64), &(count as i64), &self.now().0, &text];
        Ok(self.write(update, params).await? == 1)
    }

    // Repeats `Status::is_terminal`: statuses from 4 on have ended.
    async fn open_children(&mut self, parent: RunId) -> Result<Vec<Run>> {
        let open =
            select_run!("FROM runs r WHERE r.parent = $1 AND r.status < 4 ORDER BY r.num FOR NO KEY UPDATE");
        self.rows(open, &[&parent.0]).await?.iter().map(rows::run_of).collect()
    }

    async fn list(&mut self, scan: &Scan<'_>) -> Result<Scanned> {
        self.scan(scan).await
    }

    async fn keys(&mut self, scan: &KeyScan<'_>) -> Result<Vec<Run>> {
        self.scan_keys(scan).await
    }
}
