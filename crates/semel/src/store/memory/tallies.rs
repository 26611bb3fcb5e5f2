//! Numbers of a workspace, in memory.

use std::collections::BTreeMap;

use super::MemoryTx;
use crate::clock::Time;
use crate::error::Result;
use crate::id::{NodeId, WorkspaceId};
use crate::rules::claim::Drives;
use crate::rules::path::Name;
use crate::rules::run::Run;
use crate::rules::status::Status;
use crate::store::tx::{CountScan, DueScan, LATE_MS, TallyRows, due_version};
use crate::store::{DueVersion, OpenVersion};

impl TallyRows for MemoryTx<'_> {
    async fn count_runs(&mut self, scan: &CountScan<'_>) -> Result<(u64, usize)> {
        let stands_there = |run: &&Run| scan.index.has(run) && run.new.created >= scan.since;
        let read: Vec<&Run> = self.runs_of(scan.workspace).filter(stands_there).take(scan.rows).collect();
        let wanted = |run: &&&Run| {
            scan.workflow.is_none_or(|workflow| run.new.workflow == *workflow)
                && scan.status.is_none_or(|status| run.status() == status)
        };
        Ok((read.iter().filter(wanted).count() as u64, read.len()))
    }

    async fn due_versions(&mut self, scan: &DueScan<'_>) -> Result<Vec<DueVersion>> {
        let mut versions: BTreeMap<(Name, Name), Vec<i64>> = BTreeMap::new();
        for (Drives { workspace, workflow, workflow_version }, due, _) in &self.tables.due {
            if *workspace == scan.workspace && scan.workflow.is_none_or(|wanted| wanted == workflow) {
                let dues = versions.entry((workflow.clone(), workflow_version.clone())).or_default();
                dues.push(due.0);
            }
        }
        let counted = |(version, dues): ((Name, Name), Vec<i64>)| {
            let by = |time: i64| dues.iter().filter(|due| **due <= time).take(scan.cap + 1).count() as u64;
            let oldest = dues.iter().copied().min().filter(|due| *due <= self.now.0);
            due_version(version, (by(self.now.0), by(self.now.0.saturating_sub(LATE_MS)), oldest), scan.cap)
        };
        Ok(versions.into_iter().take(scan.versions).map(counted).collect())
    }

    async fn open_versions(
        &mut self,
        workspace: WorkspaceId,
        status: Status,
        cap: usize,
    ) -> Result<Vec<OpenVersion>> {
        let mut versions: BTreeMap<(Name, Name), u64> = BTreeMap::new();
        for run in self.runs_of(workspace).filter(|run| run.status() == status).take(cap) {
            *versions.entry((run.new.workflow.clone(), run.new.workflow_version.clone())).or_default() += 1;
        }
        let shown =
            |((workflow, workflow_version), count)| OpenVersion { workflow, workflow_version, status, count };
        Ok(versions.into_iter().map(shown).collect())
    }

    async fn leases(&mut self, limit: usize) -> Result<Vec<(NodeId, Option<Time>)>> {
        Ok(self.tables.nodes.iter().take(limit).map(|(node, row)| (*node, row.lease)).collect())
    }

    async fn held_in(&mut self, workspace: WorkspaceId, cap: usize) -> Result<Vec<(NodeId, u64)>> {
        let mut held: BTreeMap<NodeId, u64> = BTreeMap::new();
        for node in self.runs_of(workspace).filter_map(|run| run.state.node).take(cap) {
            *held.entry(node).or_default() += 1;
        }
        Ok(held.into_iter().collect())
    }
}

impl MemoryTx<'_> {
    fn runs_of(&self, workspace: WorkspaceId) -> impl Iterator<Item = &Run> {
        let all = (workspace, Time(i64::MIN), i64::MIN)..=(workspace, Time(i64::MAX), i64::MAX);
        self.tables.listed.range(all).map(|(.., num)| &self.tables.runs[num])
    }
}
