//! The places at which a workflow waits durably: for a time, for input, or for whichever comes first.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::task::Waker;

use super::inbox::On;
use crate::clock::Time;

struct Wait {
    on: Option<On>,
    due: Option<Time>,
    waker: Waker,
}

/// All durable waits of one run. A wait registers itself, and is removed when it goes on or is dropped.
#[derive(Default)]
pub(in crate::engine) struct Waits {
    /// Boxed: most runs never have any, and every turn asks.
    kept: Option<Box<WaitTable>>,
}

#[derive(Default)]
struct WaitTable {
    last: u64,
    /// In the order in which they were registered, which is also the order in which they are woken.
    all: BTreeMap<u64, Wait>,
    by_time: BTreeSet<(Time, u64)>,
    by_input: HashMap<On, Vec<u64>>,
}

impl Waits {
    pub(in crate::engine) fn enter(&mut self, on: Option<On>, due: Option<Time>, waker: Waker) -> u64 {
        let kept = self.kept.get_or_insert_default();
        kept.last += 1;
        let id = kept.last;
        kept.by_time.extend(due.map(|due| (due, id)));
        if let Some(on) = &on {
            kept.by_input.entry(on.clone()).or_default().push(id);
        }
        kept.all.insert(id, Wait { on, due, waker });
        id
    }

    pub(in crate::engine) fn renew(&mut self, id: u64, waker: &Waker) {
        if let Some(wait) = self.kept.as_mut().and_then(|kept| kept.all.get_mut(&id)) {
            wait.waker.clone_from(waker);
        }
    }

    pub(in crate::engine) fn leave(&mut self, id: u64) {
        let Some(kept) = &mut self.kept else { return };
        let Some(wait) = kept.all.remove(&id) else { return };
        if let Some(due) = wait.due {
            kept.by_time.remove(&(due, id));
        }
        if let Some(on) = wait.on
            && let Some(ids) = kept.by_input.get_mut(&on)
        {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                kept.by_input.remove(&on);
            }
        }
    }

    pub(in crate::engine) fn is_empty(&self) -> bool {
        self.kept.as_ref().is_none_or(|kept| kept.all.is_empty())
    }

    /// The earliest time that a wait is due.
    pub(in crate::engine) fn due(&self) -> Option<Time> {
        self.kept.as_ref()?.by_time.first().map(|(due, _)| *due)
    }

    /// Wakes the waits whose time has come.
    pub(in crate::engine) fn wake_due(&self, now: Time) {
        let Some(kept) = &self.kept else { return };
        for (_, id) in kept.by_time.range(..=(now, u64::MAX)) {
            kept.all[id].waker.wake_by_ref();
        }
    }

    /// Wakes the waits for this event.
    pub(in crate::engine) fn wake_on(&self, on: &On) {
        let Some(kept) = &self.kept else { return };
        for id in kept.by_input.get(on).into_iter().flatten() {
            kept.all[id].waker.wake_by_ref();
        }
    }

    /// Wakes all waits.
    pub(in crate::engine) fn wake_all(&self) {
        for wait in self.kept.iter().flat_map(|kept| kept.all.values()) {
            wait.waker.wake_by_ref();
        }
    }
}
