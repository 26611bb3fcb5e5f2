//! A child that a run starts again: the one from before the run's restart still holds the key.

use crate::rules::run::Run;
use crate::rules::status::Status;

/// What a restarted run does with its earlier child that holds the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EarlierChild {
    /// The run waits for it, or gets its result.
    Stays,
    /// It failed and is restarted, as a failed step is tried again.
    Restarts,
    /// It was cancelled. It gives its key to a new child.
    MakesRoom,
}

impl EarlierChild {
    /// Decides by the child's header.
    pub(crate) fn of(child: &Run) -> Self {
        match child.status() {
            Status::Failed | Status::TimedOut if !child.purged => Self::Restarts,
            Status::Cancelled => Self::MakesRoom,
            _ => Self::Stays,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::run::tests::run;

    #[test]
    fn what_failed_is_tried_again_and_what_was_cancelled_makes_room() {
        use EarlierChild::{MakesRoom, Restarts, Stays};
        let table = [
            (Status::Pending, Stays, Stays),
            (Status::Running, Stays, Stays),
            (Status::Waiting, Stays, Stays),
            (Status::Paused, Stays, Stays),
            (Status::Completed, Stays, Stays),
            (Status::Failed, Restarts, Stays),
            (Status::Cancelled, MakesRoom, MakesRoom),
            (Status::TimedOut, Restarts, Stays),
        ];
        for (status, known, purged) in table {
            let mut child = run(status);
            assert_eq!(EarlierChild::of(&child), known, "{status}");
            child.purged = true;
            assert_eq!(EarlierChild::of(&child), purged, "{status}, its history is forgotten");
        }
    }
}
