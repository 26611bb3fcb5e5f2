//! Races: which branch has won, and what the others may still do.

/// The winner of a race: the recorded one as soon as it is ready, else the first branch that is. None while there is none.
pub fn winner(recorded: Option<usize>, ready: &[bool]) -> Option<usize> {
    match recorded {
        Some(winner) => ready.get(winner).copied().unwrap_or_default().then_some(winner),
        None => ready.iter().position(|ready| *ready),
    }
}

/// Whether code with this number of branches fits a recorded winner.
pub fn fits(recorded: Option<usize>, branches: usize) -> bool {
    recorded.is_none_or(|winner| winner < branches)
}

/// State of a race when one of its branches is about to be polled.
#[derive(Clone, Copy, Debug)]
pub struct RaceRound {
    /// Position of the winner in the ledger. None if it is not recorded.
    pub recorded: Option<usize>,
    /// Whether a winner is known: a recorded one, or a branch that is ready.
    pub is_decided: bool,
    /// Whether the run replays its ledger.
    pub is_replaying: bool,
}

/// How a branch of a race is polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BranchPoll {
    /// It is not polled at all.
    Skip,
    /// Without new work: the branch has lost, and only visits what it has recorded.
    Held,
    /// As any other code of the run.
    Free,
}

impl RaceRound {
    /// How the branch at `place` is polled. Once the winner is known, the others do nothing new: they are polled only so that a
    /// replay visits all that they have recorded. The recorded winner itself goes on: a restart may have forgotten what had
    /// failed in it.
    pub fn poll(self, place: usize, is_ready: bool) -> BranchPoll {
        let has_lost = self.is_decided && self.recorded != Some(place);
        match (is_ready, has_lost) {
            (true, _) => BranchPoll::Skip,
            (false, true) if !self.is_replaying => BranchPoll::Skip,
            (false, true) => BranchPoll::Held,
            (false, false) => BranchPoll::Free,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recorded_winner_wins_and_else_the_first_that_is_ready() {
        for (recorded, ready, expected) in [
            (None, &[false, false][..], None),
            (None, &[false, true], Some(1)),
            (None, &[true, true], Some(0)),
            (Some(1), &[true, false], None),
            (Some(1), &[true, true], Some(1)),
            (Some(0), &[true, true], Some(0)),
            (Some(2), &[true, true], None),
            (None, &[], None),
        ] {
            assert_eq!(winner(recorded, ready), expected, "{recorded:?} {ready:?}");
        }
    }

    #[test]
    fn a_recorded_winner_must_be_a_branch_of_the_code() {
        for (recorded, branches, expected) in
            [(None, 0, true), (Some(0), 1, true), (Some(1), 1, false), (Some(usize::MAX), 3, false)]
        {
            assert_eq!(fits(recorded, branches), expected, "{recorded:?} of {branches}");
        }
    }

    #[test]
    fn a_branch_that_has_lost_does_nothing_new() {
        use BranchPoll::{Free, Held, Skip};
        // The recorded winner, whether one is known, whether the run replays, whether the branch is ready; the branch is 0.
        for (recorded, is_decided, is_replaying, is_ready, expected) in [
            (None, false, false, false, Free),
            (None, false, true, false, Free),
            (None, false, false, true, Skip),
            (None, true, false, false, Skip),
            (None, true, true, false, Held),
            (None, true, true, true, Skip),
            (Some(0), true, false, false, Free),
            (Some(0), true, true, false, Free),
            (Some(0), true, true, true, Skip),
            (Some(1), true, false, false, Skip),
            (Some(1), true, true, false, Held),
        ] {
            let round = RaceRound { recorded, is_decided, is_replaying };
            assert_eq!(round.poll(0, is_ready), expected, "{round:?}, ready: {is_ready}");
        }
    }
}
