//! Counting what is open, due and alive, each up to a bound.

use std::future::Future;

use super::ledger::LedgerRows;
use crate::error::Result;
use crate::id::WorkspaceId;
use crate::rules::path::Name;
use crate::rules::status::Status;
use crate::store::verbs::paused_in_doubt;

/// Open runs, counted.
#[derive(Clone, Debug, Default)]
pub(crate) struct OpenRuns {
    /// Number of runs by workflow and status. A pair may occur several times: its counts add up.
    pub(crate) counts: Vec<(Name, Status, u64)>,
    /// Numbers of the paused runs.
    pub(crate) paused: Vec<i64>,
}

impl OpenRuns {
    /// Number of runs with this status.
    pub(crate) fn of(&self, status: Status) -> u64 {
        self.counts.iter().filter(|(_, other, _)| *other == status).map(|(.., count)| count).sum()
    }

    /// Whether a status has as many runs as are counted at most.
    pub(crate) fn is_capped(&self, cap: usize) -> bool {
        Status::ALL.into_iter().any(|status| self.of(status) >= cap as u64)
    }
}

/// Counts that read a bounded stretch of an index each.
pub(crate) trait CountRows: LedgerRows {
    /// Open runs of a workspace, or of all if none is given, at most `cap` of each status.
    fn open_runs(
        &mut self,
        workspace: Option<WorkspaceId>,
        cap: usize,
    ) -> impl Future<Output = Result<OpenRuns>> + Send;
    /// Number of open runs of a workspace, at most `cap`.
    fn open_in(&mut self, workspace: WorkspaceId, cap: usize) -> impl Future<Output = Result<u64>> + Send;
    /// Number of these paused runs that are paused because of a step in doubt. A backend may count where the rows are.
    fn in_doubt(&mut self, paused: &[i64]) -> impl Future<Output = Result<u64>> + Send {
        paused_in_doubt(self, paused)
    }
    /// Number of runs that are due, at most `cap`.
    fn due_now(&mut self, cap: usize) -> impl Future<Output = Result<u64>> + Send;
    /// Number of nodes with a lease that has not ended, at most `cap`.
    fn live_nodes(&mut self, cap: usize) -> impl Future<Output = Result<u64>> + Send;
}
