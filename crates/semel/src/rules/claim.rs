//! Claims: who may drive a run, and when a run is parked because it keeps killing its drivers.
//!
//! When a node dies, it is not known which of its runs killed it: the start of a keyed step is not durable. So a death counts
//! a little for all of them (`stalls`). A run that has been there twice without progress is a *suspect*. Nodes hold fewer
//! suspects at a time the more often these have stalled, and a node that holds nothing takes one alone. Innocent suspects
//! make progress there, which ends their count; the one that kills is soon alone with its nodes, and is parked. A node that
//! leaves in good order blames nothing.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::entry::{Entry, PauseReason};
use super::path::Name;
use super::run::{Run, State};
use super::status::Status;
use crate::id::{NodeId, WorkspaceId};

/// Deaths of its nodes, without progress in between, after which a run is a suspect.
pub const SUSPECT: u32 = 2;
/// Deaths after which a run is parked that was alone with its nodes.
pub const MAX_DEATHS: u32 = 5;
/// What a death counts for a suspect that was alone with its node: nothing else can have been the cause, as far as the store
/// knows. In company it counts 1, so that others would have to kill many nodes in its presence before it is parked.
const ALONE: u32 = 3;
/// The count at which a run is parked: reached by [`MAX_DEATHS`] deaths alone.
pub const MAX_STALLS: u32 = SUSPECT + (MAX_DEATHS - SUSPECT) * ALONE;
/// How long a suspect that a node may not take now is left to others. Meanwhile it hides no other due run.
pub(crate) const SET_BACK: Duration = Duration::from_secs(1);

/// How many suspects a node may hold at a time, if one of them has this count. It falls quickly: each death in company
/// leaves a smaller group that is blamed further.
fn company(stalls: u32) -> usize {
    match stalls - SUSPECT {
        0 => 64,
        1 => 8,
        _ => 1,
    }
}

/// What a node held when it died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hands {
    /// How many runs. More than one if that is not known for certain.
    pub runs: usize,
    /// How many of them were suspects.
    pub suspects: usize,
}

/// The count of a run whose node has died with this in its hands.
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

/// Which of the due runs a node takes.
#[derive(Debug, Default)]
pub struct Choice {
    /// Those that it takes, in their order.
    pub taken: Vec<Run>,
    /// Suspects that it may not take now. The other runs that it does not take stay due.
    pub set_back: Vec<Run>,
}

/// Whether the store must know what a node holds to [choose].
pub fn has_suspects(due: &[Run]) -> bool {
    due.iter().any(|run| run.state.stalls >= SUSPECT)
}

/// Chooses among due runs for a node that holds runs with these counts. A node that holds nothing takes the first suspect,
/// and nothing else.
pub fn choose(due: Vec<Run>, held: &[u32]) -> Choice {
    let mut choice = Choice::default();
    let mut suspects: Vec<u32> = held.iter().copied().filter(|stalls| *stalls >= SUSPECT).collect();
    let mut alone = false;
    for run in due {
        match run.state.stalls {
            // It is parked by the claim, whatever the node holds.
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
    let state = State { status: Status::Running, node: Some(node), ..state };
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
            run.state = State { stalls: blamed(state.stalls, Hands { runs: 1, suspects }), ..state };
        }
        let (entry, state) = decide(&run, node);
        assert_eq!(entry, Entry::Paused { reason: PauseReason::Poisoned });
        assert_eq!((state.status, state.node, state.version), (Status::Paused, None, run.state.version + 1));
    }

    #[test]
    fn a_death_counts_less_the_more_company_there_was() {
        // (count, runs in the node's hands, suspects among them) to the new count.
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
        // The counts of the due runs, those of the runs in hand; the counts of those taken, how many are set back.
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

    /// Thirty runs beside one that kills its node as soon as it is driven, on nodes that hold all they may.
    #[test]
    fn bystanders_of_a_poisonous_run_are_not_parked() {
        const POISON: i64 = 17;
        let mut due: Vec<Run> = (1..=31).map(|num| Run { num, ..with(0) }).collect();
        let (mut deaths, mut parked) = (0, Vec::new());
        while !due.is_empty() {
            let mut held: Vec<Run> = Vec::new();
            // A node claims until it dies, or nothing is due any more. What it drives makes progress unless it dies at once.
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
