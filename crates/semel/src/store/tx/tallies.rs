//! Numbers of a workspace, each from a bounded stretch of an index.

use std::future::Future;

use crate::clock::Time;
use crate::error::Result;
use crate::id::{NodeId, WorkspaceId};
use crate::rules::path::Name;
use crate::rules::status::Status;
use crate::store::list::Index;
use crate::store::{Capped, DueVersion, OpenVersion};

/// A stretch whose runs are counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CountScan<'a> {
    pub(crate) workspace: WorkspaceId,
    pub(crate) index: Index<'a>,
    /// Only runs created at this time or later.
    pub(crate) since: Time,
    /// Only runs of this workflow are counted, of those that are read.
    pub(crate) workflow: Option<&'a Name>,
    /// Only runs in this state are counted, of those that are read.
    pub(crate) status: Option<Status>,
    /// Most runs that are read.
    pub(crate) rows: usize,
}

/// What is asked about due runs by workflow version.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DueScan<'a> {
    pub(crate) workspace: WorkspaceId,
    /// Only versions of this workflow.
    pub(crate) workflow: Option<&'a Name>,
    /// Bound of each number.
    pub(crate) cap: usize,
    /// Most versions.
    pub(crate) versions: usize,
}

/// How long a run has been due that is late, in milliseconds.
pub(crate) const LATE_MS: i64 = 10_000;

/// Rows that are counted in one transaction.
pub(crate) trait TallyRows: Send {
    /// How many runs of a stretch are counted, and how many were read.
    fn count_runs(&mut self, scan: &CountScan<'_>) -> impl Future<Output = Result<(u64, usize)>> + Send;
    /// Workflow versions with runs that are due or will be, by workflow and version.
    fn due_versions(&mut self, scan: &DueScan<'_>) -> impl Future<Output = Result<Vec<DueVersion>>> + Send;
    /// Open runs of a state by workflow version, in that order; at most `cap` are read.
    fn open_versions(
        &mut self,
        workspace: WorkspaceId,
        status: Status,
        cap: usize,
    ) -> impl Future<Output = Result<Vec<OpenVersion>>> + Send;
    /// Nodes with a row, by id, and the ends of their leases; at most `limit`.
    fn leases(&mut self, limit: usize) -> impl Future<Output = Result<Vec<(NodeId, Option<Time>)>>> + Send;
    /// How many runs of a workspace each node drives, by node; at most `cap` runs are read.
    fn held_in(
        &mut self,
        workspace: WorkspaceId,
        cap: usize,
    ) -> impl Future<Output = Result<Vec<(NodeId, u64)>>> + Send;
}

/// The numbers of a version as they are counted: with one more than the bound.
pub(crate) fn due_version(
    (workflow, workflow_version): (Name, Name),
    (due, late, oldest): (u64, u64, Option<i64>),
    cap: usize,
) -> DueVersion {
    DueVersion {
        workflow,
        workflow_version,
        due: Capped::of(due, cap),
        late: Capped::of(late, cap),
        oldest: oldest.map(Time),
    }
}
