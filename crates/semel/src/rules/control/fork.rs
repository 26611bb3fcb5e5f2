//! Fork: how the new run is created.

use super::{Error, Fork, Key, Lineage, Run};
use crate::rules::entry::Created;

/// Number of entries that a fork takes over, as the caller asked: at least the first one, which creates the run.
pub(crate) fn at(fork: &Fork) -> u64 {
    fork.at.unwrap_or(u64::MAX).max(1)
}

/// The entry that creates the new run, from the one that created the old run. The new run has no parent, no delay and
/// no deadline: no run waits for it, and its time begins now.
pub(crate) fn created(run: &Run, source: &Created, fork: &Fork) -> Result<Created, Error> {
    let key = match &fork.key {
        Some(key) => key.clone(),
        None => Key::new(fork.run.to_string())?,
    };
    let lineage = match fork.lineage {
        Lineage::Inherited => run.new.lineage,
        Lineage::Fresh => fork.run,
    };
    Ok(Created {
        key,
        lineage,
        not_before: None,
        deadline: None,
        parent: None,
        forked_from: Some((run.id(), at(fork).min(run.state.version))),
        ..source.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Time;
    use crate::id::RunId;
    use crate::rules::control::tests::created as source;
    use crate::rules::path::Visit;
    use crate::rules::run::Parent;
    use crate::rules::run::tests::run;
    use crate::rules::status::Status;
    use uuid::Uuid;

    #[test]
    fn a_fork_is_a_run_of_its_own_with_the_old_input() {
        let mut run = run(Status::Completed);
        run.state.version = 6;
        let new = RunId(Uuid::from_u128(9));
        let parent = Parent { run: RunId(Uuid::from_u128(3)), visit: Visit::parse("child").unwrap() };
        let (time, parent) = (Some(Time(7)), Some(parent));
        let source = Created { not_before: time, deadline: time, parent, ..source() };
        let table = [
            (None, Lineage::Inherited, run.new.lineage, 6),
            (Some(0), Lineage::Inherited, run.new.lineage, 1),
            (Some(3), Lineage::Fresh, new, 3),
            (Some(99), Lineage::Fresh, new, 6),
        ];
        for (at, lineage, root, version) in table {
            let fork = Fork { run: new, key: None, at, lineage };
            let made = created(&run, &source, &fork).unwrap();
            assert_eq!((made.lineage, made.forked_from), (root, Some((run.id(), version))), "{at:?}");
            assert_eq!((made.not_before, made.deadline, &made.parent), (None, None, &None), "{at:?}");
            assert_eq!((&made.input, made.key.to_string()), (&source.input, new.to_string()), "{at:?}");
        }
        let key = Key::new("mine").unwrap();
        let fork = Fork { run: new, key: Some(key.clone()), at: None, lineage: Lineage::Fresh };
        assert_eq!(created(&run, &source, &fork).unwrap().key, key);
    }
}
