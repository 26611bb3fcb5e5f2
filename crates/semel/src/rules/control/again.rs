//! Resume and restart: decisions that need facts from the ledger besides the header.

use super::{Entry, Error, PauseReason, RefusedEntry, Run, RunState, Time, Visit};
use crate::rules::entry::Created;

/// The part of a run's ledger that a decision depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// None: the header is enough.
    Header,
    /// The entry with which the run was created.
    Created,
    /// The same, and the steps in doubt over which the run is paused.
    Doubts,
}

impl Needs {
    /// Tells what the decision on an action depends on; `entry` is the one that [`decide`](super::decide) gave.
    pub(crate) fn of(entry: &Entry) -> Self {
        match entry {
            Entry::Restarted { .. } => Self::Created,
            Entry::Resumed { .. } => Self::Doubts,
            _ => Self::Header,
        }
    }
}

/// Facts from the ledger of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct AgainFacts {
    /// The entry with which the run was created. None if it is not needed, or if the history is forgotten.
    pub(crate) created: Option<Box<Created>>,
    /// Steps in doubt. Only needed if [`is_over_doubts`] holds for the latest pause.
    pub(crate) doubts: Vec<Visit>,
}

/// Whether a run that was paused for this reason stays paused until its doubts are resolved.
pub(crate) fn is_over_doubts(paused: Option<&PauseReason>) -> bool {
    paused == Some(&PauseReason::InDoubt)
}

/// Completes a decision with the facts that it [needs](Needs): the entry and the state after it.
pub(crate) fn complete(
    run: &Run,
    (entry, state): (Entry, RunState),
    facts: AgainFacts,
    now: Time,
) -> Result<(Entry, RunState), Error> {
    let AgainFacts { created, doubts } = facts;
    match entry {
        Entry::Restarted { from, by, .. } => {
            let deadline = deadline_from_now(run, created.as_deref(), now);
            Ok((Entry::Restarted { from, by, deadline }, RunState { deadline, ..state }))
        }
        // Its driver could only pause it again.
        Entry::Resumed { .. } if !doubts.is_empty() => {
            Err(Error::Refused { run: run.id(), source: RefusedEntry::Doubts(doubts) })
        }
        Entry::Resumed { .. } => {
            // A run that was to begin later still does.
            let due = state.due.max(created.and_then(|created| created.not_before));
            Ok((entry, RunState { due, ..state }))
        }
        entry => Ok((entry, state)),
    }
}

/// The deadline of a run that begins again: it has as much time as it had at first.
fn deadline_from_now(run: &Run, created: Option<&Created>, now: Time) -> Option<Time> {
    let allowed = created?.deadline?.0.saturating_sub(run.new.created.0);
    Some(Time(now.0.saturating_add(allowed)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::control::tests::created;
    use crate::rules::control::{ControlAction, RestartFrom, decide};
    use crate::rules::run::tests::run;
    use crate::rules::status::Status;

    const NOW: Time = Time(5_000);

    fn completed(
        status: Status,
        action: &ControlAction,
        facts: AgainFacts,
    ) -> Result<(Entry, RunState), Error> {
        let run = run(status);
        let decided = decide(&run, action, "me", NOW).unwrap().unwrap();
        complete(&run, decided, facts, NOW)
    }

    #[test]
    fn a_resumed_run_is_due_at_once_but_not_before_it_was_to_begin() {
        let table = [(None, 5_000), (Some(4_000), 5_000), (Some(6_000), 6_000)];
        for (not_before, due) in table {
            let created = Created { not_before: not_before.map(Time), ..created() };
            let facts = AgainFacts { created: Some(Box::new(created)), ..AgainFacts::default() };
            let (_, state) = completed(Status::Paused, &ControlAction::Resume, facts).unwrap();
            assert_eq!(state.due, Some(Time(due)), "{not_before:?}");
        }
    }

    #[test]
    fn a_run_is_not_resumed_while_a_step_is_in_doubt() {
        let doubt = Visit::parse("pay").unwrap();
        let facts = AgainFacts { doubts: vec![doubt.clone()], ..AgainFacts::default() };
        let refused = completed(Status::Paused, &ControlAction::Resume, facts).unwrap_err();
        assert!(
            matches!(&refused, Error::Refused { source: RefusedEntry::Doubts(steps), .. } if *steps == [doubt]),
            "{refused}"
        );
    }

    #[test]
    fn a_restarted_run_has_as_much_time_as_it_had_at_first() {
        // The run was created at 0.
        let table = [(None, None), (Some(700), Some(5_700)), (Some(i64::MAX), Some(i64::MAX))];
        for (limit, deadline) in table {
            let created = Created { deadline: limit.map(Time), ..created() };
            let facts = AgainFacts { created: Some(Box::new(created)), ..AgainFacts::default() };
            let restart = ControlAction::Restart(RestartFrom::Failure);
            let (entry, state) = completed(Status::Failed, &restart, facts).unwrap();
            assert_eq!(state.deadline, deadline.map(Time), "{limit:?}");
            assert!(matches!(entry, Entry::Restarted { deadline: said, .. } if said == state.deadline));
        }
    }

    #[test]
    fn only_resume_and_restart_depend_on_the_ledger() {
        let needs = |status, action: &ControlAction| {
            Needs::of(&decide(&run(status), action, "me", NOW).unwrap().unwrap().0)
        };
        assert_eq!(needs(Status::Paused, &ControlAction::Resume), Needs::Doubts);
        assert_eq!(needs(Status::Failed, &ControlAction::Restart(RestartFrom::Failure)), Needs::Created);
        assert_eq!(needs(Status::Waiting, &ControlAction::Pause), Needs::Header);
        let doubts = [Some(PauseReason::InDoubt), Some(PauseReason::Operator { by: "me".to_owned() }), None];
        assert_eq!(doubts.map(|paused| is_over_doubts(paused.as_ref())), [true, false, false]);
    }
}
