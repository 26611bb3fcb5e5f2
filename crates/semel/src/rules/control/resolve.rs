//! Resolution of a doubt: what is recorded, and whether the run goes on.

use super::{Entry, PauseReason, Run, RunState, Status, Time, moved, noted};
use crate::rules::ledger::Ledger;

/// Decides what follows a resolution. `ledger` is that of the run, with the resolution recorded. Gives all entries to
/// append, `resolved` being the first, and the state after them.
pub(crate) fn decide(
    run: &Run,
    ledger: &Ledger,
    resolved: Entry,
    by: &str,
    now: Time,
) -> (Vec<Entry>, RunState) {
    // A run that was paused because of doubts goes on when the last one is resolved.
    if ledger.is_in_doubt() || ledger.pause() != Some(&PauseReason::InDoubt) {
        return (vec![resolved], noted(run, 1, now));
    }
    let entries = vec![resolved, Entry::Resumed { by: by.to_owned() }];
    let version = run.state.version + entries.len() as u64;
    (entries, RunState { version, ..moved(run, Status::Pending, now) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::NodeId;
    use crate::rules::control::tests::created;
    use crate::rules::entry::{Class, Resolution};
    use crate::rules::path::Visit;
    use crate::rules::run::tests::run;

    /// A run whose steps `a` and `b` are in doubt, paused for this reason.
    fn in_doubt(reason: PauseReason) -> (Run, Ledger) {
        let mut run = run(Status::Paused);
        let mut entries =
            vec![Entry::Created(Box::new(created())), Entry::Claimed { node: NodeId(uuid::Uuid::nil()) }];
        for path in ["a", "b"] {
            let step = Visit::parse(path).unwrap();
            entries.push(Entry::step_started(step.clone(), 1, Class::AtMostOnce));
            entries.push(Entry::StepInDoubt { step, reason: "no answer".to_owned() });
        }
        entries.push(Entry::Paused { reason });
        run.state.version = entries.len() as u64;
        let ledger = Ledger::read(run.clone(), entries).unwrap();
        (run, ledger)
    }

    #[test]
    fn the_last_doubt_lets_a_run_go_on_that_was_paused_over_it() {
        let operator = PauseReason::Operator { by: "ann".to_owned() };
        let table = [
            (PauseReason::InDoubt, &["a"][..], Status::Paused, 1),
            (PauseReason::InDoubt, &["a", "b"], Status::Pending, 2),
            (operator.clone(), &["a"], Status::Paused, 1),
            (operator, &["a", "b"], Status::Paused, 1),
        ];
        for (reason, paths, status, count) in table {
            let (run, mut ledger) = in_doubt(reason.clone());
            let resolved = |path: &str| Entry::StepResolved {
                step: Visit::parse(path).unwrap(),
                resolution: Resolution::DidNotHappen,
                by: "ann".to_owned(),
            };
            for path in paths {
                ledger.record(resolved(path)).unwrap();
            }
            let last = resolved(paths[paths.len() - 1]);
            let (entries, state) = decide(&run, &ledger, last.clone(), "ann", Time(9));
            assert_eq!((entries.len() as u64, &entries[0]), (count, &last), "{reason:?} {paths:?}");
            assert_eq!(
                (state.status, state.version),
                (status, run.state.version + count),
                "{reason:?} {paths:?}"
            );
            assert_eq!(state.due, (status == Status::Pending).then_some(Time(9)), "{reason:?} {paths:?}");
        }
    }
}
