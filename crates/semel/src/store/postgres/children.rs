//! Children that a run starts at once: looked up, inserted and waited for together.

use std::collections::{HashMap, HashSet};

use uuid::Uuid;

use super::rows::{column, corrupt};
use super::tx::{Params, PgTx};
use crate::error::Result;
use crate::id::WorkspaceId;
use crate::rules::key::{Key, Scope};
use crate::store::tx::{InsertedRun, Tx, Watcher, millis};

impl PgTx<'_> {
    pub(super) async fn find_held(
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

    /// Inserts runs that nobody drives and that have not ended, with their first entries.
    pub(super) async fn insert_many(&mut self, runs: &[InsertedRun]) -> Result<Vec<Option<i64>>> {
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
        ];
        let rows = self.rows(include_str!("children.sql"), params).await?;
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

    pub(super) async fn insert_many_watchers(&mut self, watchers: &[(i64, Watcher)]) -> Result<()> {
        let insert = "INSERT INTO watchers (run, watcher, visit) SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[])";
        let runs: Vec<i64> = watchers.iter().map(|(num, _)| *num).collect();
        let waiting: Vec<i64> = watchers.iter().map(|(_, watcher)| watcher.num).collect();
        let visits: Vec<String> = watchers.iter().map(|(_, watcher)| watcher.visit.to_string()).collect();
        self.write(insert, &[&runs, &waiting, &visits]).await.map(drop)
    }
}
