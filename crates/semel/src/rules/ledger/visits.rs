//! The visits of one execution: each path once, unless its visits are counted.

use std::collections::hash_map::Entry::{Occupied, Vacant};

use super::Ledger;
use crate::map::{Map, Set, make_room};
use crate::rules::path::{InvalidPath, Path, Visit};
use crate::sabotage::{self, Bug};

/// What an execution keeps beside the records. A visited place is in the records, with a value or without; so this
/// holds those that were recorded and have not been visited yet, and the paths whose visits are counted.
#[derive(Clone, Debug, Default)]
pub(super) struct Visits {
    /// Recorded visits that a faithful execution must still make.
    missing: Set<Visit>,
    /// Visits kept by a restart or a fork, patches and times of first tries: the execution may make them.
    optional: Set<Visit>,
    ticks: Map<Path, u32>,
}

impl Visits {
    fn includes(&self, visit: &Visit) -> bool {
        self.missing.contains(visit) || self.optional.contains(visit)
    }

    /// Removes a visit that the execution makes. False if it is in neither set.
    fn take(&mut self, visit: &Visit) -> bool {
        let taken = self.missing.remove(visit) || self.optional.remove(visit);
        if taken && self.missing.is_empty() {
            // It may have been large, and is no longer needed.
            self.missing = Set::default();
        }
        taken
    }
}

impl Ledger {
    /// Begins an execution, which has made none of the recorded visits.
    pub(crate) fn begin(&mut self) {
        self.cuts = true;
        self.records.retain(|_, record| record.is_some());
        if self.records.is_empty() && self.seldom.is_none() {
            return;
        }
        let seldom = self.seldom.get_or_insert_default();
        let places = self.records.keys().cloned();
        let (optional, missing) =
            places.partition(|visit| seldom.carried.contains(visit) || visit.path.is_optional());
        seldom.visits = Visits { missing, optional, ticks: Map::default() };
    }

    /// Number of recorded visits that the execution has not made yet.
    pub(crate) fn unvisited(&self) -> usize {
        self.seldom.as_ref().map_or(0, |seldom| seldom.visits.missing.len())
    }

    /// Whether the execution has yet to make a recorded visit, patches and times of first tries aside, whether it must or may.
    pub(crate) fn has_more_recorded(&self) -> bool {
        self.seldom.as_ref().is_some_and(|seldom| {
            let Visits { missing, optional, .. } = &seldom.visits;
            !missing.is_empty() || optional.iter().any(|visit| !visit.path.is_optional())
        })
    }

    /// The recorded visits that the execution has not made yet, in order of their paths.
    pub(crate) fn missing(&self) -> Vec<Visit> {
        let mut missing: Vec<Visit> =
            self.seldom.iter().flat_map(|seldom| &seldom.visits.missing).cloned().collect();
        missing.sort();
        missing
    }

    /// Visits `path`; fails if this execution has visited it before.
    pub(crate) fn visit_once(&mut self, path: Path) -> Result<Visit, InvalidPath> {
        let visit = Visit::first(path);
        match self.make_visit(&visit) {
            true => Ok(visit),
            false => Err(InvalidPath::DuplicateStep(visit.path)),
        }
    }

    /// Visits `path` once more; visits are counted.
    pub(crate) fn visit_counted(&mut self, path: Path) -> Visit {
        let before = self.has_visited(&Visit::first(path.clone()));
        let ticks = &mut self.seldom.get_or_insert_default().visits.ticks;
        let tick = ticks.entry(path.clone()).or_insert(u32::from(before));
        *tick = if sabotage::commits(Bug::TicksAreNotCounted) { 1 } else { *tick + 1 };
        let visit = Visit { path, tick: *tick };
        self.make_visit(&visit);
        visit
    }

    /// Whether the execution has made this visit.
    pub(crate) fn has_visited(&self, visit: &Visit) -> bool {
        let left = self.seldom.as_ref().is_some_and(|seldom| seldom.visits.includes(visit));
        self.records.contains_key(visit) && !left
    }

    /// Makes a visit. True if this execution makes it for the first time.
    fn make_visit(&mut self, visit: &Visit) -> bool {
        if self.seldom.as_mut().is_some_and(|seldom| seldom.visits.take(visit)) {
            return true;
        }
        make_room(&mut self.records);
        match self.records.entry(visit.clone()) {
            Occupied(_) => false,
            Vacant(place) => {
                place.insert(None);
                true
            }
        }
    }
}
