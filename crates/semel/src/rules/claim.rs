//! Claims: who may drive a run, and when a run is parked because it keeps killing its drivers.

use std::fmt;
use std::sync::Arc;

use super::entry::{Entry, PauseReason};
use super::path::Name;
use super::run::{Run, State};
use super::status::Status;
use crate::id::{NodeId, WorkspaceId};

/// Claims without progress after which a run is parked.
pub const MAX_STALLS: u32 = 5;

/// A request for due runs.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Who will drive them. Its lease must be alive.
    pub node: NodeId,
    /// What it can drive. A run of anything else, another version of the same workflow included, is left to others.
    pub workflows: Vec<Drives>,
    /// At most this many.
    pub limit: usize,
    /// What the node has in memory already: the ledgers of these runs are not read again.
    pub held: Option<Arc<dyn Held>>,
}

impl Claim {
    /// A request of a node that has nothing in memory.
    pub fn new(node: NodeId, workflows: Vec<Drives>, limit: usize) -> Self {
        Self { node, workflows, limit, held: None }
    }
}

/// One thing that a node drives: the runs of a workflow that follow one version of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Drives {
    /// The tenant.
    pub workspace: WorkspaceId,
    /// The workflow.
    pub workflow: Name,
    /// The version of it that the node has.
    pub workflow_version: Name,
}

/// The runs whose ledgers a node has in memory.
pub trait Held: fmt::Debug + Send + Sync {
    /// Whether the node has the ledger of this run, up to this version.
    fn holds(&self, num: i64, version: u64) -> bool;
}

/// Takes a due run for a node, or parks it. The entry it writes is what fences the former owner off.
pub fn decide(run: &Run, node: NodeId) -> (Entry, State) {
    let state = State { version: run.state.version + 1, due: None, ..run.state.clone() };
    if run.state.stalls >= MAX_STALLS {
        let state = State { status: Status::Paused, node: None, stalls: 0, ..state };
        return (Entry::Paused { reason: PauseReason::Poisoned }, state);
    }
    let state = State { status: Status::Running, node: Some(node), stalls: run.state.stalls + 1, ..state };
    (Entry::Claimed { node }, state)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::run::tests::run;
    use uuid::Uuid;

    #[test]
    fn the_sixth_claim_without_progress_parks() {
        let (node, mut run) = (NodeId(Uuid::from_u128(3)), run(Status::Pending));
        for n in 1..=MAX_STALLS {
            let (entry, state) = decide(&run, node);
            assert_eq!((entry, state.stalls, state.status), (Entry::Claimed { node }, n, Status::Running));
            run.state = state;
        }
        let (entry, state) = decide(&run, node);
        assert_eq!(entry, Entry::Paused { reason: PauseReason::Poisoned });
        assert_eq!((state.status, state.node, state.version), (Status::Paused, None, run.state.version + 1));
    }
}
