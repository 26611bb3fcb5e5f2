//! Time limits: the store ends overdue runs, whether or not they have a driver.

use std::time::Duration;

use super::entry::Entry;
use super::finish;
use super::run::{Run, RunState};
use super::status::Status;
use crate::clock::Time;

/// Grace period for the driver of an overdue run before the store ends the run. A driver ends it at the limit itself,
/// unless it hangs.
pub const GRACE: Duration = Duration::from_secs(5);

/// Whether a run in this status may be ended by its time limit: it is open, and not waiting for an operator.
pub fn is_limited(status: Status) -> bool {
    status.may_become(Status::TimedOut)
}

/// Ends a run whose time is up, as far as its header tells. None if it is not, or if its driver is still to do it.
pub fn decide(run: &Run, now: Time) -> Option<(Entry, RunState)> {
    let limit = run.state.deadline.filter(|_| is_limited(run.status()))?;
    let end = if run.state.node.is_some() { limit.after(GRACE) } else { limit };
    (end <= now).then(|| ended(run, limit, now))
}

/// The end of a run by its time limit.
pub fn ended(run: &Run, limit: Time, now: Time) -> (Entry, RunState) {
    (Entry::TimedOut { limit }, finish::ended(run, Status::TimedOut, run.state.version + 1, now))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::NodeId;
    use crate::rules::run::tests::run;

    #[test]
    fn a_run_is_ended_at_its_limit_and_a_driven_one_later() {
        const LIMIT: Time = Time(1_000);
        let late = LIMIT.after(GRACE).0;
        for status in Status::ALL {
            for (driven, at, ends) in [
                (false, 999, false),
                (false, 1_000, true),
                (true, 1_000, false),
                (true, late - 1, false),
                (true, late, true),
            ] {
                let mut run = run(status);
                run.state.deadline = Some(LIMIT);
                run.state.node = driven.then_some(NodeId(uuid::Uuid::from_u128(3)));
                let open = matches!(status, Status::Pending | Status::Running | Status::Waiting);
                let decided = decide(&run, Time(at));
                assert_eq!(decided.is_some(), ends && open, "{status} {driven} {at}");
                if let Some((entry, state)) = decided {
                    assert_eq!(entry, Entry::TimedOut { limit: LIMIT });
                    assert_eq!((state.status, state.node, state.due), (Status::TimedOut, None, None));
                }
            }
        }
        assert_eq!(decide(&run(Status::Pending), Time(i64::MAX)), None, "without a limit");
    }
}
