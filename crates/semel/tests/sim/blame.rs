//! Which runs a node may have died of: those whose bodies were under way there. Only such a run may be parked as poisoned.

use std::collections::BTreeSet;

use semel::id::RunId;
use semel::rules::entry::{Entry, PauseReason};

use crate::clients::CLIENT;
use crate::oracle::Seen;
use crate::stage::Scene;

/// What lives of nodes have executed, and what they died of.
#[derive(Default)]
pub(crate) struct Blame {
    /// Claims under which a body has begun: the run, the number of the claim, and the life of a node that drives it.
    executing: BTreeSet<(RunId, u64, usize, u32)>,
    /// Claims that ended because their node died or stood still, while their run was executed there.
    culprits: BTreeSet<(RunId, u64)>,
    /// The input of the poisonous program.
    poison: Option<String>,
}

impl Blame {
    pub(crate) fn of_poison(poison: Option<String>) -> Self {
        Self { poison, ..Self::default() }
    }

    /// A run is paused; gives what is wrong about it.
    pub(crate) fn saw_pause(
        &self,
        run: RunId,
        seen: &Seen,
        reason: &PauseReason,
    ) -> Option<(&'static str, String)> {
        match reason {
            // An engine pauses what it cannot go on with, and that is never so.
            PauseReason::Operator { by } if by != CLIENT => {
                Some(("paused", format!("{run} was paused by {by}")))
            }
            PauseReason::Diverged(why) => Some(("diverged", format!("{run}: {why}"))),
            PauseReason::Poisoned if !self.is_deserved(run, seen) => {
                Some(("blame", format!("{run} is parked as poisoned, and no node has died of it")))
            }
            _ => None,
        }
    }

    /// Whether a node has died of a run since the run last made progress.
    fn is_deserved(&self, run: RunId, seen: &Seen) -> bool {
        let is_driven = |entry: &Entry| matches!(entry, Entry::Claimed { .. } | Entry::KeyReleased { .. });
        let mut claims = seen.entries.iter().rev().take_while(|numbered| is_driven(&numbered.entry));
        claims.any(|claim| self.culprits.contains(&(run, claim.number)))
    }
}

impl Scene {
    /// A body of a run begins, or a look-up of it. What a dead node goes on with has no effect.
    pub(crate) fn executes(&mut self, run: RunId, claim: u64, node: usize, life: u32) {
        if self.lives(node, life) {
            self.oracle.blame.executing.insert((run, claim, node, life));
        }
    }

    /// A node dies or stands still: because of a run, or for a reason of its own. Then any run that it executes may be the
    /// cause.
    pub(crate) fn blames(&mut self, node: usize, because_of: Option<RunId>) {
        let life = self.nodes[node].life;
        let blame = &mut self.oracle.blame;
        let here = blame.executing.iter().filter(|(.., at, of)| (*at, *of) == (node, life));
        let caused = here.filter(|(run, ..)| because_of.is_none_or(|cause| cause == *run));
        blame.culprits.extend(caused.map(|(run, claim, ..)| (*run, *claim)));
    }

    /// Whether what a run does outside kills its node.
    pub(crate) fn is_poisonous(&self, run: RunId) -> bool {
        let input = self.oracle.runs.get(&run).and_then(Seen::created).map(|created| created.input.text());
        !self.calm && input.is_some() && input == self.oracle.blame.poison.as_deref()
    }
}
