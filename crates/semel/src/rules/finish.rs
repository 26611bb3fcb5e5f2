//! The end of a run: its header afterwards, and when it may be forgotten.

use super::entry::Outcome;
use super::run::{Run, RunState};
use super::status::Status;
use crate::clock::Time;

/// The state of a run that has just ended in a commit that leaves its ledger `version` long.
pub fn ended(run: &Run, status: Status, version: u64, now: Time) -> RunState {
    RunState {
        status,
        version,
        due: None,
        node: None,
        stalls: 0,
        ended: Some(now),
        purge: Some(run.next_purge(now)),
        ties: false,
        attention: None,
        ..run.state.clone()
    }
}

/// The outcome of a run of which only the header is left. None if the run has not ended.
pub fn purged(run: &Run) -> Option<Outcome> {
    run.status().is_terminal().then(|| Outcome::Purged(run.status()))
}

/// What the sweep does with an ended run that has something to forget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purge {
    /// Forget the history; the key is remembered until the given time.
    History(Time),
    /// Delete the run: header, history and key.
    Run,
    /// Nothing to forget yet, or no longer: the run was restarted.
    Keep,
}

/// Decides what to forget now.
pub fn purge(run: &Run, now: Time) -> Purge {
    let Some(ended) = run.state.ended else { return Purge::Keep };
    // A key that a later run has taken over need not be remembered.
    let last = if run.state.holds_key { ended.after(run.new.retention.key) } else { ended };
    let history = ended.after(run.new.retention.history);
    if history.max(last) <= now {
        Purge::Run
    } else if history <= now && (!run.purged || run.is_half_forgotten()) {
        Purge::History(history.max(last))
    } else {
        Purge::Keep
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::run::Retention;
    use crate::rules::run::tests::run;
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn history_and_key_are_forgotten_apart() {
        let mut run = run(Status::Completed);
        Arc::make_mut(&mut run.new).retention =
            Retention { history: Duration::from_millis(10), key: Duration::from_millis(20) };
        let at = |run: &Run, ms: i64| purge(run, Time(1_000 + ms));
        assert_eq!(at(&run, 9), Purge::Keep);
        assert_eq!(at(&run, 10), Purge::History(Time(1_020)));
        run.purged = true;
        run.state.purge = Some(Time(1_010));
        assert_eq!(
            at(&run, 11),
            Purge::History(Time(1_020)),
            "a long history is forgotten in several passes"
        );
        run.state.purge = Some(Time(1_020));
        assert_eq!(at(&run, 19), Purge::Keep);
        assert_eq!(at(&run, 20), Purge::Run);
        Arc::make_mut(&mut run.new).retention.history = Duration::from_millis(30);
        run.purged = false;
        assert_eq!(at(&run, 29), Purge::Keep, "the history outlives the key if it is asked to");
        run.state.holds_key = false;
        Arc::make_mut(&mut run.new).retention.history = Duration::from_millis(10);
        assert_eq!(at(&run, 10), Purge::Run, "a key that was taken over is not remembered here");
    }

    #[test]
    fn a_purged_run_ended_in_its_state_and_not_otherwise() {
        for status in Status::ALL {
            let expected = status.is_terminal().then_some(Outcome::Purged(status));
            assert_eq!(super::purged(&run(status)), expected, "{status}");
        }
    }

    #[test]
    fn an_open_run_is_never_forgotten() {
        let mut open = run(Status::Waiting);
        open.state.purge = Some(Time(0));
        assert_eq!(purge(&open, Time(i64::MAX)), Purge::Keep);
    }
}
