//! Counts of runs by status in the memory store.

use super::{MemoryTx, NodeRow};
use crate::clock::Time;
use crate::error::Result;
use crate::id::WorkspaceId;
use crate::rules::run::Run;
use crate::rules::status::Status;
use crate::store::tx::{CountRows, OpenRuns};

impl CountRows for MemoryTx<'_> {
    async fn open_runs(&mut self, workspace: Option<WorkspaceId>, cap: usize) -> Result<OpenRuns> {
        Ok(self.count_open(workspace, cap))
    }

    async fn open_in(&mut self, workspace: WorkspaceId, cap: usize) -> Result<u64> {
        Ok(self.count_open_in(workspace, cap))
    }

    async fn due_now(&mut self, cap: usize) -> Result<u64> {
        Ok(self.count_due(cap))
    }

    async fn live_nodes(&mut self, cap: usize) -> Result<u64> {
        Ok(self.count_nodes(cap))
    }
}

impl MemoryTx<'_> {
    fn count_open(&self, workspace: Option<WorkspaceId>, cap: usize) -> OpenRuns {
        let mut open = OpenRuns::default();
        let all = || self.tables.runs.iter();
        let wanted = |run: &Run| workspace.is_none_or(|workspace| run.new.workspace == workspace);
        for status in Status::ALL.into_iter().filter(|status| !status.is_terminal()) {
            let runs = all().filter(|(_, run)| run.status() == status && wanted(run)).take(cap);
            for (num, run) in runs {
                open.counts.push((run.new.workflow.clone(), status, 1));
                if status == Status::Paused {
                    open.paused.push(*num);
                }
            }
        }
        open
    }

    fn count_open_in(&self, workspace: WorkspaceId, cap: usize) -> u64 {
        let all = (workspace, Time(i64::MIN), i64::MIN)..=(workspace, Time(i64::MAX), i64::MAX);
        let runs = self.tables.listed.range(all).map(|(.., num)| &self.tables.runs[num]);
        runs.filter(|run| !run.status().is_terminal()).take(cap).count() as u64
    }

    fn count_due(&self, cap: usize) -> u64 {
        self.tables.due.iter().filter(|(_, due, _)| *due <= self.now).take(cap).count() as u64
    }

    fn count_nodes(&self, cap: usize) -> u64 {
        let alive = |node: &&NodeRow| !node.departed && node.lease.is_some_and(|until| until > self.now);
        self.tables.nodes.values().filter(alive).take(cap).count() as u64
    }
}
