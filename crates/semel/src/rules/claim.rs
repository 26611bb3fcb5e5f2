//! Claims: which node may drive a run, and when a run is parked because it keeps killing its drivers.
//!
//! When a node dies, it is not known which of its runs killed it, because the start of a keyed step is not durable.
//! So each death adds a little to the count (`stalls`) of all of them. A run that has twice been on a dying node
//! without making progress is a *suspect*. The higher the counts of suspects are, the fewer of them a node may hold
//! at a time, and a node that holds nothing takes one suspect alone. Innocent suspects make progress there, which
//! resets their count; the run that kills nodes is soon alone on its node, and is parked. A node that shuts down in
//! good order adds to no count.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::attention::Attention;
use super::entry::{Entry, PauseReason};
use super::family::Family;
use super::path::Name;
use super::run::{NewRun, Run, RunState};
use super::status::Status;
use crate::id::{NodeId, RunId, WorkspaceId};

/// Number of deaths of its nodes, without progress in between, after which a run is a suspect.
pub const SUSPECT: u32 = 2;
/// Number of deaths after which a run that was alone on its nodes is parked.
pub const MAX_DEATHS: u32 = 5;
/// What a death adds for a suspect that was alone on its node: as far as the store knows, nothing else can have been
/// the cause. In company it adds 1, so other runs would have to kill many nodes in its presence before it is parked.
const ALONE: u32 = 3;
/// Count at which a run is parked; [`MAX_DEATHS`] deaths of nodes on which it was alone add up to it.
pub const MAX_STALLS: u32 = SUSPECT + (MAX_DEATHS - SUSPECT) * ALONE;
/// Delay before a suspect that a node may not take now is due again. Meanwhile it does not hide other due runs.
pub(crate) const SET_BACK: Duration = Duration::from_secs(1);

/// Size of ledgers, and of inboxes, at which a claim takes no more runs, in bytes.
pub const MOST_BYTES: usize = 32 * 1024 * 1024;

/// Number of suspects that a node may hold at a time if one of them has this count. It falls quickly: each death in
/// company leaves a smaller group to be blamed further.
fn company(stalls: u32) -> usize {
    match stalls - SUSPECT {
        0 => 64,
        1 => 8,
        _ => 1,
    }
}

/// Runs that a node drove when it died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hands {
    /// Number of runs. More than one if the number is not known for certain.
    pub runs: usize,
    /// Number of suspects among them.
    pub suspects: usize,
}

/// The new count of a run whose node died while it held `hands`.
pub fn blamed(stalls: u32, hands: Hands) -> u32 {
    if stalls < SUSPECT {
        stalls + 1
    } else if hands.runs == 1 {
        stalls + ALONE
    } else if hands.suspects <= company(stalls) {
        stalls + 1
    } else {
        stalls
    }
}

/// Selection among due runs for one node.
#[derive(Debug, Default)]
pub struct Choice {
    /// Runs that the node takes, in their order.
    pub taken: Vec<Run>,
    /// Suspects that it may not take now. Other runs that it does not take stay due.
    pub set_back: Vec<Run>,
}

/// Whether the store must know what a node holds in order to [choose].
pub fn has_suspects(due: &[Run]) -> bool {
    due.iter().any(|run| run.state.stalls >= SUSPECT)
}

/// Chooses among due runs for a node that holds runs with the counts `held`. A node that holds nothing takes the
/// first suspect, and nothing else.
pub fn choose(due: Vec<Run>, held: &[u32]) -> Choice {
    let mut choice = Choice::default();
    let mut suspects: Vec<u32> = held.iter().copied().filter(|stalls| *stalls >= SUSPECT).collect();
    let mut alone = false;
    for run in due {
        match run.state.stalls {
            // The claim parks it, whatever the node holds.
            MAX_STALLS.. => choice.taken.push(run),
            stalls @ SUSPECT.. => {
                let most = suspects.iter().chain([&stalls]).map(|stalls| company(*stalls)).min();
                let fits = suspects.len() < most.unwrap_or_default() && !alone;
                if fits {
                    alone = held.is_empty();
                    suspects.push(stalls);
                    choice.taken.push(run);
                } else {
                    choice.set_back.push(run);
                }
            }
            _ => choice.taken.push(run),
        }
    }
    if alone {
        choice.taken.retain(|run| run.state.stalls >= SUSPECT);
    }
    choice
}

/// A node's request for due runs.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The node that will drive them. Its lease must be alive.
    pub node: NodeId,
    /// Workflow versions that the node can drive. Runs of all others are left to other nodes.
    pub workflows: Vec<Drives>,
    /// Families of workflow versions that the node can drive, in all workspaces.
    pub families: Vec<Family>,
    /// Maximum number of runs to claim.
    pub limit: usize,
    /// Only this run, if it is due and the node can drive it. Any run if absent.
    pub only: Option<RunId>,
    /// Size of ledgers, and of inboxes, at which the claim takes no more runs, in bytes; [`MOST_BYTES`] by default. The
    /// first run is taken whatever its size. What is left stays due.
    pub bytes: usize,
    /// What the node has in memory already: the ledgers of these runs are not read again.
    pub held: Option<Arc<dyn HeldRuns>>,
}

impl Claim {
    /// A request of a node that drives no family and has nothing in memory.
    pub fn new(node: NodeId, workflows: Vec<Drives>, limit: usize) -> Self {
        Self { node, workflows, families: Vec::new(), limit, only: None, bytes: MOST_BYTES, held: None }
    }

    /// Whether the node can drive this run.
    pub fn drives(&self, run: &Run) -> bool {
        let NewRun { workspace, workflow, workflow_version, .. } = &*run.new;
        let by_version = self.workflows.iter().any(|drives| {
            (drives.workspace, &drives.workflow, &drives.workflow_version)
                == (*workspace, workflow, workflow_version)
        });
        by_version || self.families.iter().any(|family| Family::of(workflow_version).as_ref() == Some(family))
    }
}

/// One workflow version, in one workspace, that a node can drive.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Drives {
    /// Workspace in which the node drives it.
    pub workspace: WorkspaceId,
    /// Name of the workflow.
    pub workflow: Name,
    /// Version of the workflow that the node has.
    pub workflow_version: Name,
}

/// The runs whose ledgers a node has in memory.
pub trait HeldRuns: fmt::Debug + Send + Sync {
    /// Whether the node has the ledger of this run, up to this version.
    fn holds(&self, num: i64, version: u64) -> bool;
}

/// Takes a due run for a node, or parks it. The entry it writes is what fences the former owner off.
pub fn decide(run: &Run, node: NodeId) -> (Entry, RunState) {
    let state = RunState { version: run.state.version + 1, due: None, ..run.state.clone() };
    if run.state.stalls >= MAX_STALLS {
        let attention = Some(Attention::Poisoned);
        let state = RunState { status: Status::Paused, node: None, stalls: 0, attention, ..state };
        return (Entry::Paused { reason: PauseReason::Poisoned }, state);
    }
    let state = RunState { status: Status::Running, node: Some(node), ..state };
    (Entry::Claimed { node }, state)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::run::tests::run;
    use uuid::Uuid;

    fn with(stalls: u32) -> Run {
        let mut run = run(Status::Pending);
        run.state.stalls = stalls;
        run
    }

    #[test]
    fn a_run_alone_with_five_dead_nodes_is_parked() {
        let (node, mut run) = (NodeId(Uuid::from_u128(3)), with(0));
        for _ in 0..MAX_DEATHS {
            let (entry, state) = decide(&run, node);
            assert_eq!(
                (entry, state.stalls, state.status),
                (Entry::Claimed { node }, run.state.stalls, Status::Running)
            );
            let suspects = usize::from(state.stalls >= SUSPECT);
            run.state = RunState { stalls: blamed(state.stalls, Hands { runs: 1, suspects }), ..state };
        }
        let (entry, state) = decide(&run, node);
        assert_eq!(entry, Entry::Paused { reason: PauseReason::Poisoned });
        assert_eq!((state.status, state.node, state.version), (Status::Paused, None, run.state.version + 1));
    }

    #[test]
    fn a_death_counts_less_the_more_company_there_was() {
        // (count, runs that the node holds, suspects among them) → new count.
        let table = [
            ((0, 1, 0), 1),
            ((1, 1_000, 0), 2),
            ((2, 1, 1), 5),
            ((2, 100, 64), 3),
            ((2, 100, 65), 2),
            ((3, 100, 8), 4),
            ((3, 100, 9), 3),
            ((4, 100, 1), 5),
            ((4, 100, 2), 4),
            ((8, 1, 1), MAX_STALLS),
        ];
        for ((stalls, runs, suspects), expected) in table {
            assert_eq!(blamed(stalls, Hands { runs, suspects }), expected, "{stalls} {runs} {suspects}");
        }
    }

    #[test]
    fn a_node_takes_suspects_alone_or_few_at_a_time() {
        // Counts of the due runs; counts of the runs held; counts of the runs taken; number of runs set back.
        type Case<'a> = (&'a [u32], &'a [u32], &'a [u32], usize);
        let table: [Case<'_>; 9] = [
            (&[0, 1, 0], &[], &[0, 1, 0], 0),
            (&[0, 2, 2], &[], &[2], 1),
            (&[0, 2, 2], &[0], &[0, 2, 2], 0),
            (&[4, 0, 4], &[0], &[4, 0], 1),
            (&[4, 0], &[0, 4], &[0], 1),
            (&[2, 0], &[0, 4], &[0], 1),
            (&[3, 3], &[2, 2, 2, 2, 2, 2, 2], &[3], 1),
            (&[MAX_STALLS, 0, 2], &[], &[MAX_STALLS, 2], 0),
            (&[MAX_STALLS, 0], &[4], &[MAX_STALLS, 0], 0),
        ];
        for (due, held, taken, set_back) in table {
            let choice = choose(due.iter().map(|stalls| with(*stalls)).collect(), held);
            let found: Vec<u32> = choice.taken.iter().map(|run| run.state.stalls).collect();
            assert_eq!((&found[..], choice.set_back.len()), (taken, set_back), "{due:?} beside {held:?}");
        }
    }

    /// Thirty runs beside one that kills its node as soon as it is driven, on nodes that hold as much as they may.
    #[test]
    fn bystanders_of_a_poisonous_run_are_not_parked() {
        const POISON: i64 = 17;
        let mut due: Vec<Run> = (1..=31).map(|num| Run { num, ..with(0) }).collect();
        let (mut deaths, mut parked) = (0, Vec::new());
        while !due.is_empty() {
            let mut held: Vec<Run> = Vec::new();
            // A node claims until it dies, or nothing is due any more. Its runs make progress unless it dies at once.
            let died = loop {
                let counts: Vec<u32> = held.iter().map(|run| run.state.stalls).collect();
                let Choice { taken, .. } = choose(due.clone(), &counts);
                if taken.is_empty() {
                    break false;
                }
                due.retain(|run| taken.iter().all(|taken| taken.num != run.num));
                let (poisoned, driven): (Vec<_>, Vec<_>) =
                    taken.into_iter().partition(|run| run.state.stalls >= MAX_STALLS);
                parked.extend(poisoned.iter().map(|run| run.num));
                let dies = driven.iter().any(|run| run.num == POISON);
                held.extend(driven);
                if dies {
                    break true;
                }
                for run in &mut held {
                    run.state.stalls = 0;
                }
            };
            if died {
                deaths += 1;
                let suspects = held.iter().filter(|run| run.state.stalls >= SUSPECT).count();
                let hands = Hands { runs: held.len(), suspects };
                for run in &mut held {
                    run.state.stalls = blamed(run.state.stalls, hands);
                }
                due.extend(held);
            }
        }
        assert_eq!(parked, [POISON]);
        assert!(deaths <= 2 * MAX_DEATHS, "{deaths} nodes died of it");
    }
}
