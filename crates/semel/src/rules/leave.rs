//! Whether a run stops where it is driven, and as what it ends.
//!
//! The driver asks [`decide`] when nothing moves by itself, and [`ending`] when the workflow has returned.

use std::time::Duration;

use super::entry::{Entry, Failure, FailureKind, PauseReason};
use super::json::Payload;
use crate::clock::Time;

/// Beginning of the message of a failure that says that the run was asked to end; the reason comes behind it.
pub const ASKED_TO_END: &str = "the run was asked to end: ";

/// A wait that is shorter than this is not worth the two writes of a rest.
const NOT_WORTH_A_REST: Duration = Duration::from_millis(20);

/// Facts about a run in which nothing moves by itself.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "the facts do not exclude each other")]
pub struct LeaveFacts {
    /// Time by which the run must have ended, if it has a limit.
    pub deadline: Option<Time>,
    /// Whether the code does not fit the ledger.
    pub diverged: bool,
    /// Until when running effects are waited for in that case; none if that is not decided yet.
    pub grace: Option<Time>,
    /// Whether bodies of steps are running.
    pub active: bool,
    /// Whether the code waits until something is durable.
    pub has_barriers: bool,
    /// Whether the engine stops when the running effects have ended.
    pub stop: bool,
    /// Whether the engine stops at once.
    pub stop_now: bool,
    /// Whether a step is in doubt.
    pub in_doubt: bool,
    /// Whether only durable waits are left, and the inbox holds nothing unread.
    pub only_waits: bool,
    /// The earliest time at which one of those waits is over.
    pub due: Option<Time>,
}

/// Decision whether a run stays in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// The run stays in memory.
    Stay,
    /// It stays until its running effects have ended, but not longer than the grace period, which begins now.
    BeginGrace,
    /// The run ends as timed out, because this limit has passed.
    TimeOut(Time),
    /// It is paused, because the code does not fit.
    PauseDiverged,
    /// It is given back to the store, due at once.
    GiveBack,
    /// It is paused, because a step is in doubt.
    PauseInDoubt,
    /// It waits in the store, until this time or for input.
    Rest(Option<Time>),
}

/// Decides whether a run stops here. `now` is asked only if the time matters.
pub fn decide(facts: &LeaveFacts, now: impl Fn() -> Time) -> Leave {
    // Whether or not the code fits.
    if let Some(limit) = facts.deadline.filter(|limit| *limit <= now()) {
        return Leave::TimeOut(limit);
    }
    if facts.diverged {
        let over = !facts.active || facts.stop_now || facts.grace.is_some_and(|end| end <= now());
        match (over, facts.grace) {
            (true, _) => return Leave::PauseDiverged,
            (false, None) => return Leave::BeginGrace,
            (false, Some(_)) => {}
        }
    }
    let idle = !facts.active && !facts.has_barriers;
    if facts.stop_now || (facts.stop && idle) {
        return Leave::GiveBack;
    }
    if facts.in_doubt && idle {
        return Leave::PauseInDoubt;
    }
    if facts.only_waits {
        let due = earliest(facts.due, facts.deadline);
        if due.is_none_or(|due| due > now().after(NOT_WORTH_A_REST)) {
            return Leave::Rest(due);
        }
    }
    Leave::Stay
}

/// The last entry of a run whose workflow has returned. `in_doubt` is whether a step is in doubt, `cancelling` why and
/// by whom the run was asked to end.
pub fn ending(result: Result<Payload, Failure>, in_doubt: bool, cancelling: Option<(&str, &str)>) -> Entry {
    match (result, cancelling) {
        // The run must not end over a doubt. When it is settled, the workflow gets here again.
        (Ok(_), _) if in_doubt => Entry::Paused { reason: PauseReason::InDoubt },
        (Ok(value), _) => Entry::Completed { value },
        (Err(error), Some((reason, by))) if error.kind == FailureKind::Cancelled => {
            // The workflow may have added to it, such as what it could not clean up.
            let told = error.message.strip_prefix(ASKED_TO_END).filter(|told| told.starts_with(reason));
            Entry::Cancelled { reason: told.unwrap_or(reason).to_owned(), by: by.to_owned() }
        }
        (Err(error), _) => Entry::Failed { error },
    }
}

/// The earlier of two times, of which either may be missing.
pub fn earliest(one: Option<Time>, other: Option<Time>) -> Option<Time> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time(1_000);
    const LATER: Time = Time(9_000);

    fn facts() -> LeaveFacts {
        LeaveFacts::default()
    }

    #[test]
    fn the_first_reason_to_leave_counts() {
        let diverged = LeaveFacts { diverged: true, ..facts() };
        let waits = LeaveFacts { only_waits: true, ..facts() };
        let all = LeaveFacts {
            deadline: Some(NOW),
            diverged: true,
            stop_now: true,
            in_doubt: true,
            only_waits: true,
            ..facts()
        };
        for (facts, expected) in [
            (facts(), Leave::Stay),
            (all, Leave::TimeOut(NOW)),
            (LeaveFacts { deadline: None, ..all }, Leave::PauseDiverged),
            (LeaveFacts { deadline: None, diverged: false, ..all }, Leave::GiveBack),
            (LeaveFacts { in_doubt: true, ..waits }, Leave::PauseInDoubt),
            (LeaveFacts { deadline: Some(LATER), ..facts() }, Leave::Stay),
            (diverged, Leave::PauseDiverged),
            (LeaveFacts { active: true, ..diverged }, Leave::BeginGrace),
            (LeaveFacts { active: true, grace: Some(LATER), ..diverged }, Leave::Stay),
            (LeaveFacts { active: true, grace: Some(NOW), ..diverged }, Leave::PauseDiverged),
            (
                LeaveFacts { active: true, grace: Some(LATER), stop_now: true, ..diverged },
                Leave::PauseDiverged,
            ),
            (LeaveFacts { stop: true, ..facts() }, Leave::GiveBack),
            (LeaveFacts { stop: true, active: true, ..facts() }, Leave::Stay),
            (LeaveFacts { stop: true, has_barriers: true, ..facts() }, Leave::Stay),
            (LeaveFacts { stop_now: true, active: true, ..facts() }, Leave::GiveBack),
            (LeaveFacts { in_doubt: true, active: true, ..facts() }, Leave::Stay),
            (LeaveFacts { in_doubt: true, has_barriers: true, ..facts() }, Leave::Stay),
            (waits, Leave::Rest(None)),
            (LeaveFacts { due: Some(LATER), ..waits }, Leave::Rest(Some(LATER))),
            (
                LeaveFacts { due: Some(LATER), deadline: Some(Time(5_000)), ..waits },
                Leave::Rest(Some(Time(5_000))),
            ),
            (LeaveFacts { due: Some(Time(1_020)), ..waits }, Leave::Stay),
            (LeaveFacts { due: Some(Time(1_021)), ..waits }, Leave::Rest(Some(Time(1_021)))),
        ] {
            assert_eq!(decide(&facts, || NOW), expected, "{facts:?}");
        }
    }

    #[test]
    fn the_time_is_asked_only_where_it_matters() {
        let untimed = LeaveFacts { only_waits: true, in_doubt: true, stop: true, diverged: true, ..facts() };
        for facts in [untimed, LeaveFacts { diverged: false, ..untimed }, facts()] {
            decide(&facts, || panic!("the clock is asked for {facts:?}"));
        }
    }

    #[test]
    fn what_a_workflow_adds_to_a_request_to_end_is_in_the_reason() {
        for (message, expected) in [
            ("the run was asked to end: enough", "enough"),
            ("the run was asked to end: enough; not undone: pay", "enough; not undone: pay"),
            ("the run was asked to end: something else", "enough"),
            ("no", "enough"),
        ] {
            let failed = Err(Failure::new(FailureKind::Cancelled, message));
            let Entry::Cancelled { reason, by } = ending(failed, false, Some(("enough", "me"))) else {
                panic!("{message}: it is cancelled")
            };
            assert_eq!((reason.as_str(), by.as_str()), (expected, "me"));
        }
    }

    #[test]
    fn what_a_workflow_returns_ends_its_run() {
        let asked = Some(("enough", "me"));
        let failed = |kind| Err(Failure::new(kind, "no"));
        for (result, in_doubt, cancelling, kind) in [
            (Ok(Payload::null()), false, None, "completed"),
            (Ok(Payload::null()), false, asked, "completed"),
            (Ok(Payload::null()), true, asked, "paused"),
            (failed(FailureKind::Fatal), true, asked, "failed"),
            (failed(FailureKind::Cancelled), false, None, "failed"),
            (failed(FailureKind::Cancelled), true, asked, "cancelled"),
        ] {
            assert_eq!(
                ending(result.clone(), in_doubt, cancelling).kind(),
                kind,
                "{result:?} {cancelling:?}"
            );
        }
    }
}
