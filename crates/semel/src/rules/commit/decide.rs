//! Whether a commit may be written, and the state of the run after it.
//!
//! The SQL stores repeat this rule for plain commits, because one guarded statement for thousands of runs is what makes
//! commits cheap: `advance` and `steps.rs` on SQLite, `stepped.sql`, `moved.sql` and `ends.sql` on PostgreSQL. A commit that
//! such a statement does not take is decided here. The suite (`commit_rule.rs`) plays every combination on every store.

use super::{Commit, Write};
use crate::clock::Time;
use crate::error::{Error, Result};
use crate::rules::finish;
use crate::rules::run::{Run, RunState};
use crate::rules::status::Status;

/// Decides whether a commit may be written, with the run as the store has it now.
pub fn decide(commit: &Commit, run: &Run, now: Time) -> Result<()> {
    if run.state.version != commit.expected {
        return Err(commit.lost());
    }
    if let Some(until) = commit.beyond().not_before.filter(|until| *until > now) {
        return Err(Error::TooEarly { until, now });
    }
    // Commits come from the run's driver. Other changes of status are claims and operator actions.
    if run.status() != Status::Running || !run.status().may_become(commit.status) {
        return Err(commit.lost());
    }
    Ok(())
}

impl Write {
    /// The refusal of a commit whose run has changed since its driver saw it.
    pub(crate) fn lost(&self) -> Error {
        Error::Concurrency { run: self.run, expected: self.expected }
    }

    /// State of the run after this commit. `run` has the hooks, children and messages that the commit itself has made: a child
    /// that had ended before has left a message, which makes the run due at once.
    pub(crate) fn state_after(&self, run: &Run, now: Time) -> RunState {
        let version = run.state.version + self.count;
        let Self { status, .. } = *self;
        let attention = self.beyond().attention;
        let released =
            RunState { status, version, due: None, node: None, stalls: 0, attention, ..run.state.clone() };
        match self.status {
            Status::Running => RunState { version, stalls: 0, ..run.state.clone() },
            Status::Waiting => RunState { due: self.due_at_rest(run, now), ..released },
            status if status.is_terminal() => finish::ended(run, status, version, now),
            _ => released,
        }
    }

    /// When a run that rests becomes due. A message that arrived while its driver decided to rest makes it due at once.
    fn due_at_rest(&self, run: &Run, now: Time) -> Option<Time> {
        if run.arrivals > self.seen { Some(now) } else { self.beyond().due }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::RunId;
    use crate::rules::commit::{Beyond, Content, Tally};
    use crate::rules::run::tests::run;

    const NOW: Time = Time(2_000);

    fn commit(expected: u64, status: Status, beyond: Beyond) -> Commit {
        Commit::new(Write {
            num: 1,
            run: RunId(uuid::Uuid::nil()),
            new: run(Status::Running).new,
            fence: 1,
            node: None,
            expected,
            count: 2,
            content: Content::Ready("[]".to_owned()),
            status,
            seen: 0,
            asks_news: false,
            tally: Tally::default(),
            beyond: Some(Box::new(beyond)),
        })
    }

    #[test]
    fn a_running_run_takes_the_commits_that_its_transitions_allow_and_others_take_none() {
        for from in Status::ALL {
            for to in Status::ALL {
                let run = run(from);
                let commit = commit(run.state.version, to, Beyond::default());
                let decided = decide(&commit, &run, NOW);
                let allowed = from == Status::Running && from.may_become(to);
                assert_eq!(decided.is_ok(), allowed, "{from} to {to}");
                if decided.is_err() {
                    continue;
                }
                let state = commit.state_after(&run, NOW);
                assert_eq!(state.version, run.state.version + 2, "{from} to {to}");
                let ended = if to.is_terminal() { Some(NOW) } else { run.state.ended };
                assert_eq!(state.ended, ended, "{from} to {to}");
                assert!(state.node.is_none() || to == Status::Running, "{from} to {to}");
            }
        }
    }

    #[test]
    fn another_version_is_refused() {
        let run = run(Status::Running);
        for expected in [run.state.version + 1, run.state.version + 2] {
            let refused = decide(&commit(expected, Status::Running, Beyond::default()), &run, NOW);
            assert_eq!(refused.unwrap_err().code(), "CONCURRENCY_ERROR");
        }
    }

    #[test]
    fn a_timer_does_not_fire_before_its_time() {
        let run = run(Status::Running);
        let fired = |at| {
            let beyond = Beyond { not_before: Some(Time(at)), ..Beyond::default() };
            decide(&commit(run.state.version, Status::Running, beyond), &run, NOW)
        };
        assert!(matches!(fired(2_001), Err(Error::TooEarly { .. })));
        assert!(fired(2_000).is_ok());
    }

    #[test]
    fn a_message_that_the_driver_has_not_seen_makes_a_resting_run_due() {
        let mut run = run(Status::Running);
        let rests = |run: &Run| {
            let beyond = Beyond { due: Some(Time(9_000)), ..Beyond::default() };
            commit(run.state.version, Status::Waiting, beyond).state_after(run, NOW).due
        };
        run.arrivals = 0;
        assert_eq!(rests(&run), Some(Time(9_000)));
        run.arrivals = 1;
        assert_eq!(rests(&run), Some(NOW));
    }
}
