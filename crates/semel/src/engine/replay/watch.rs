//! A dry run seen from the side: what its code asks for, and what of that it still waits for.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::rules::json::Payload;
use crate::rules::key::{Label, Token};
use crate::rules::path::{Name, Visit};

/// Work that the code asks for at a place.
#[derive(Clone, Debug)]
pub(crate) enum Requested {
    Step,
    Skip,
    Timer,
    Hook(Token),
    Child {
        workflow: Name,
        input: Payload,
    },
    Value,
    /// A race of this number of futures.
    Race(usize),
    Once,
}

/// Where in a run something is recorded.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Location {
    Visit(Visit),
    Once(String, Label),
}

/// Requests of the code in a dry run.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Everything the code has asked for, in that order.
    pub(super) asked: Vec<(Location, Requested)>,
    /// Visits at which the code waits, because nothing is recorded there.
    pub(super) waits: BTreeMap<u64, Visit>,
    last: u64,
}

/// Looks at a dry run.
#[derive(Debug, Default)]
pub(crate) struct ReplayObserver(Mutex<Seen>);

impl ReplayObserver {
    pub(super) fn seen(&self) -> MutexGuard<'_, Seen> {
        // Every change is a single call that cannot panic half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn asks(&self, place: Location, asked: Requested) {
        self.seen().asked.push((place, asked));
    }

    /// The code waits for something that is not recorded, until the guard is dropped: it was cancelled, or lost a race.
    pub(crate) fn waits(&self, visit: &Visit) -> Waiting<'_> {
        let mut seen = self.seen();
        seen.last += 1;
        let id = seen.last;
        seen.waits.insert(id, visit.clone());
        Waiting { watch: self, id }
    }
}

/// Something that the code waits for.
pub(crate) struct Waiting<'a> {
    watch: &'a ReplayObserver,
    id: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.watch.seen().waits.remove(&self.id);
    }
}
