//! Counting what is open, due and alive.

use std::collections::BTreeMap;

use super::read::latest_in;
use crate::error::Result;
use crate::id::WorkspaceId;
use crate::rules::entry::{Entry, PauseReason};
use crate::rules::path::Name;
use crate::rules::status::Status;
use crate::store::counts::{Counts, RunCounts, WorkflowCounts};
use crate::store::tx::{LedgerRows, OpenRuns, StoreTx, Verb};

/// Maximum number of paused runs that are examined for a step in doubt.
const PAUSED: usize = 1_000;
/// Number of commits, from the end of a ledger, in which the latest pause is looked for. After a pause come only resolutions
/// of doubts.
const TAIL: usize = 16;

/// Counts what is in the store, each number up to the bound.
pub(crate) struct ReadCounts(pub(crate) u64);

impl Verb for ReadCounts {
    type Answer = Counts;
    const READS: bool = true;
    const SCANS: bool = true;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Counts> {
        let cap = bound(self.0);
        let RunCounts { workflows, in_doubt, capped } = open_runs(tx, None, cap).await?;
        let (backlog, nodes) = (tx.due_now(cap).await?, tx.live_nodes(cap).await?);
        let capped = capped || backlog.max(nodes) >= cap as u64;
        Ok(Counts { workflows, in_doubt, backlog, nodes, capped })
    }
}

/// Counts the open runs of one workspace by workflow, each status up to the bound.
pub(crate) struct ReadRunCounts {
    pub(crate) workspace: WorkspaceId,
    pub(crate) cap: u64,
}

impl Verb for ReadRunCounts {
    type Answer = RunCounts;
    const READS: bool = true;
    const SCANS: bool = true;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<RunCounts> {
        open_runs(tx, Some(self.workspace), bound(self.cap)).await
    }
}

fn bound(cap: u64) -> usize {
    usize::try_from(cap.max(1)).unwrap_or(usize::MAX)
}

async fn open_runs<T: StoreTx>(tx: &mut T, workspace: Option<WorkspaceId>, cap: usize) -> Result<RunCounts> {
    let mut open = tx.open_runs(workspace, cap).await?;
    let looked_at = open.paused.len().min(PAUSED);
    let capped = open.is_capped(cap) || looked_at < open.paused.len();
    open.paused.truncate(looked_at);
    let in_doubt = tx.in_doubt(&open.paused).await?;
    Ok(RunCounts { workflows: by_workflow(open), in_doubt, capped })
}

fn by_workflow(open: OpenRuns) -> Vec<WorkflowCounts> {
    let mut all: BTreeMap<Name, WorkflowCounts> = BTreeMap::new();
    for (workflow, status, count) in open.counts {
        let none = WorkflowCounts { workflow: workflow.clone(), open: 0, paused: 0 };
        let counts = all.entry(workflow).or_insert(none);
        counts.open += count;
        if status == Status::Paused {
            counts.paused += count;
        }
    }
    let mut all: Vec<_> = all.into_values().collect();
    // Stable: equal ones stay in the order of their names.
    all.sort_by_key(|workflow| std::cmp::Reverse(workflow.open));
    all
}

/// How many of these paused runs are paused because of a step in doubt.
pub(crate) async fn paused_in_doubt<T: LedgerRows + ?Sized>(tx: &mut T, paused: &[i64]) -> Result<u64> {
    let reason = |entry: &Entry| match entry {
        Entry::Paused { reason } => Some(reason.clone()),
        _ => None,
    };
    let mut count = 0;
    for num in paused {
        let tail = tx.ledger_tail(*num, TAIL).await?;
        count += u64::from(latest_in(&tail, reason)? == Some(PauseReason::InDoubt));
    }
    Ok(count)
}

/// Counts the open runs of one workspace, up to the bound.
pub(crate) struct CountOpen {
    pub(crate) workspace: WorkspaceId,
    pub(crate) cap: u64,
}

impl Verb for CountOpen {
    type Answer = u64;
    const READS: bool = true;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<u64> {
        tx.open_in(self.workspace, usize::try_from(self.cap).unwrap_or(usize::MAX)).await
    }
}
