//! Counting the runs of a workspace by state, by what they need, by version and by node.

use crate::clock::Time;
use crate::error::Result;
use crate::id::WorkspaceId;
use crate::rules::attention::Attention;
use crate::rules::status::Status;
use crate::store::list::Index;
use crate::store::tx::{CountScan, DueScan, StoreTx, Verb};
use crate::store::{Capped, NodeFacts, OpenVersions, RunTally, TallyQuery};

/// Most workflow versions whose due runs are counted.
const VERSIONS: usize = 500;
/// Most nodes that are listed.
const NODES: usize = 1_000;
/// Most runs that are read for one number, if the index has others too.
const FILTERED: usize = 1_500;
/// The statuses of open runs.
const OPEN: [Status; 4] = [Status::Pending, Status::Running, Status::Waiting, Status::Paused];

impl Verb for TallyQuery {
    type Answer = RunTally;
    const READS: bool = true;
    const SCANS: bool = true;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<RunTally> {
        let mut tally = RunTally::default();
        for status in Status::ALL.into_iter().filter(|status| *status != Status::Completed) {
            tally.statuses.push((status, self.count(tx, Index::Status(status)).await?));
        }
        let completed = self.completed(tx, &tally.statuses).await?;
        tally.statuses.insert(Status::Completed.code() as usize, (Status::Completed, completed));
        for kind in Attention::ALL {
            tally.attention.push((kind, self.count(tx, Index::Attention(kind)).await?));
        }
        let (workspace, workflow) = (self.workspace, self.workflow.as_ref());
        let scan = DueScan { workspace, workflow, cap: self.cap, versions: VERSIONS };
        tally.versions = tx.due_versions(&scan).await?;
        Ok(tally)
    }
}

impl TallyQuery {
    fn scan<'a>(&'a self, index: Index<'a>) -> CountScan<'a> {
        let since = self.since.unwrap_or(Time(i64::MIN));
        let rows = self.cap.saturating_add(1);
        CountScan { workspace: self.workspace, index, since, workflow: None, status: None, rows }
    }

    /// Runs of a stretch. Those of one workflow are looked for among a bounded number of runs.
    async fn count<T: StoreTx>(&self, tx: &mut T, index: Index<'_>) -> Result<Capped> {
        let mut scan = self.scan(index);
        if let Some(workflow) = &self.workflow {
            (scan.workflow, scan.rows) = (Some(workflow), FILTERED.min(scan.rows));
            let (count, read) = tx.count_runs(&scan).await?;
            return Ok(self.found(count, read == scan.rows));
        }
        let (count, _) = tx.count_runs(&scan).await?;
        Ok(Capped::of(count, self.cap))
    }

    /// Runs that were found among others; `stopped` is whether there may be more behind those that were read.
    fn found(&self, count: u64, stopped: bool) -> Capped {
        let counted = Capped::of(count, self.cap);
        Capped { more: counted.more || stopped, ..counted }
    }

    /// Completed runs have no index of their own: they are all runs without the others. If the others are not known exactly,
    /// they are looked for among the newest.
    async fn completed<T: StoreTx>(&self, tx: &mut T, others: &[(Status, Capped)]) -> Result<Capped> {
        let all = self.workflow.as_ref().map_or(Index::Workspace, Index::Workflow);
        let known: u64 = others.iter().map(|(_, counted)| counted.count).sum();
        let exact = others.iter().all(|(_, counted)| !counted.more) && known <= self.cap as u64;
        let mut scan = self.scan(all);
        if !exact {
            (scan.status, scan.rows) = (Some(Status::Completed), FILTERED);
            let (count, read) = tx.count_runs(&scan).await?;
            return Ok(self.found(count, read == scan.rows));
        }
        scan.rows += known as usize;
        let (count, _) = tx.count_runs(&scan).await?;
        Ok(Capped::of(count.saturating_sub(known), self.cap))
    }
}

/// Counts the open runs of a workspace by workflow version.
pub(crate) struct ReadVersions {
    pub(crate) workspace: WorkspaceId,
    pub(crate) cap: usize,
}

impl Verb for ReadVersions {
    type Answer = OpenVersions;
    const READS: bool = true;
    const SCANS: bool = true;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<OpenVersions> {
        let Self { workspace, cap } = *self;
        let mut versions = OpenVersions::default();
        for status in OPEN {
            let found = tx.open_versions(workspace, status, cap).await?;
            let read: u64 = found.iter().map(|version| version.count).sum();
            if read >= cap as u64 {
                versions.capped.push(status);
            }
            versions.open.extend(found);
        }
        let scan = DueScan { workspace, workflow: None, cap, versions: VERSIONS };
        versions.due = tx.due_versions(&scan).await?;
        Ok(versions)
    }
}

/// Reads what is known of all nodes, with the runs of a workspace that they drive.
pub(crate) struct ReadNodes {
    pub(crate) workspace: WorkspaceId,
    pub(crate) cap: usize,
}

impl Verb for ReadNodes {
    type Answer = Vec<NodeFacts>;
    const READS: bool = true;
    const SCANS: bool = true;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Vec<NodeFacts>> {
        let held = tx.held_in(self.workspace, self.cap).await?;
        let more = held.iter().map(|(_, count)| count).sum::<u64>() >= self.cap as u64;
        let runs = |node| {
            let found = held.binary_search_by_key(&node, |(node, _)| *node);
            Capped { count: found.map_or(0, |at| held[at].1), more }
        };
        let leases = tx.leases(NODES).await?;
        Ok(leases
            .into_iter()
            .map(|(node, lease)| NodeFacts { node, lease, runs: runs(node), stale: 0 })
            .collect())
    }
}
