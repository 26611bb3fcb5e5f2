//! Runs: their headers, their keys, and the guarded change of their state.

use super::{MemoryTables, MemoryTx};
use crate::error::Result;
use crate::id::{RunId, WorkspaceId};
use crate::rules::key::{Key, Scope};
use crate::rules::run::{NewRun, Run, RunState};
use crate::rules::status::Status;
use crate::store::Order;
use crate::store::list::{ListCursor, Scan, Scanned};
use crate::store::tx::{KeyScan, LedgerRows, RunRows};

impl RunRows for MemoryTx<'_> {
    async fn insert_run(&mut self, new: &NewRun, state: &RunState, text: &str) -> Result<Option<i64>> {
        let run = Run { num: 0, new: new.clone().into(), state: state.clone(), arrivals: 0, purged: false };
        let key_taken = self.tables.keys.contains_key(&MemoryTables::key(&run));
        if key_taken || self.tables.ids.contains_key(&new.id) {
            return Ok(None);
        }
        let tables = self.write();
        tables.last_num += 1;
        let num = tables.last_num;
        tables.ids.insert(new.id, num);
        tables.children.extend(new.parent.map(|parent| (parent, num)));
        tables.listed.insert((new.workspace, new.created, num));
        let bare = RunState { due: None, node: None, purge: None, holds_key: false, ..state.clone() };
        tables.runs.insert(num, Run { num, state: bare, ..run });
        tables.update(num, |run| run.state = state.clone());
        self.append(num, 0, text).await?;
        Ok(Some(num))
    }

    async fn holder(&mut self, workspace: WorkspaceId, scope: &Scope, key: &Key) -> Result<Option<Run>> {
        let num = self.tables.keys.get(&(workspace, scope.clone(), key.clone()));
        Ok(num.map(|num| self.tables.runs[num].clone()))
    }

    async fn run(&mut self, id: RunId) -> Result<Option<Run>> {
        Ok(self.tables.ids.get(&id).map(|num| self.tables.runs[num].clone()))
    }

    async fn run_at(&mut self, num: i64) -> Result<Option<Run>> {
        Ok(self.tables.runs.get(&num).cloned())
    }

    async fn status(&mut self, id: RunId) -> Result<Option<Status>> {
        Ok(self.run(id).await?.map(|run| run.status()))
    }

    async fn save(&mut self, num: i64, expected: u64, state: &RunState) -> Result<bool> {
        if self.tables.runs.get(&num).is_none_or(|run| run.state.version != expected) {
            return Ok(false);
        }
        self.write().update(num, |run| run.state = state.clone());
        Ok(true)
    }

    async fn advance(&mut self, num: i64, expected: u64, count: u64, text: &str) -> Result<bool> {
        let running = |run: &Run| run.state.version == expected && run.status() == Status::Running;
        if !self.tables.runs.get(&num).is_some_and(running) {
            return Ok(false);
        }
        let run = self.write().runs.get_mut(&num).expect("just seen");
        run.state.version += count;
        run.state.stalls = 0;
        self.append(num, expected, text).await?;
        Ok(true)
    }

    async fn open_children(&mut self, parent: RunId) -> Result<Vec<Run>> {
        let nums = self.tables.children.range((parent, 0)..=(parent, i64::MAX)).map(|(_, num)| num);
        let runs = nums.filter_map(|num| self.tables.runs.get(num));
        Ok(runs.filter(|run| !run.status().is_terminal()).cloned().collect())
    }

    async fn list(&mut self, scan: &Scan<'_>) -> Result<Scanned> {
        let at = |(created, num): ListCursor| (scan.workspace(), created, num);
        let (from, to) = (at(scan.range.from), at(scan.range.to));
        if from >= to {
            return Ok(Scanned::default());
        }
        let runs = self.tables.listed.range(from..to).map(|(.., num)| &self.tables.runs[num]);
        let stands_there = |run: &&Run| scan.index.has(run);
        match scan.query.order {
            Order::Newest => scan.read(runs.rev().filter(stands_there).cloned().map(Ok)),
            Order::Oldest => scan.read(runs.filter(stands_there).cloned().map(Ok)),
        }
    }

    async fn keys(&mut self, scan: &KeyScan<'_>) -> Result<Vec<Run>> {
        let wanted = |run: &&Run| {
            run.new.workspace == scan.workspace
                && run.state.holds_key == scan.held
                && scan.keys.fits(run)
                && scan.after.is_none_or(|after| run.new.key > *after)
        };
        let mut found: Vec<&Run> = self.tables.runs.values().filter(wanted).collect();
        found.sort_unstable_by_key(|run| (&run.new.key, run.num));
        Ok(found.into_iter().take(scan.limit).cloned().collect())
    }
}
