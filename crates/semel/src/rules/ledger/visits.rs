//! What one execution has come by: each place once, unless its visits are counted.

use std::collections::hash_map::Entry::{Occupied, Vacant};

use super::Ledger;
use crate::map::{Map, Set, make_room};
use crate::rules::path::{InvalidPath, Path, Visit};
use crate::sabotage::{self, Bug};

/// What an execution has to keep in mind beside the records. A place that it has come by is there, with a record or
/// without; so this is of those that it found recorded and has not come by yet, and of places that it counts.
#[derive(Clone, Debug, Default)]
pub(super) struct Visits {
    /// What a faithful execution comes by.
    missing: Set<Visit>,
    /// What an earlier life has left: it may be come by.
    optional: Set<Visit>,
    ticks: Map<Path, u32>,
}

impl Visits {
    fn includes(&self, visit: &Visit) -> bool {
        self.missing.contains(visit) || self.optional.contains(visit)
    }

    /// The execution comes by one of them. False if it is none.
    fn take(&mut self, visit: &Visit) -> bool {
        let taken = self.missing.remove(visit) || self.optional.remove(visit);
        if taken && self.missing.is_empty() {
            // It may have been large, and is not needed any more.
            self.missing = Set::default();
        }
        taken
    }
}

impl Ledger {
    /// An execution begins. It has come by nothing of what is recorded.
    pub(crate) fn begin(&mut self) {
        self.cuts = true;
        self.records.retain(|_, record| record.is_some());
        if self.records.is_empty() && self.seldom.is_none() {
            return;
        }
        let seldom = self.seldom.get_or_insert_default();
        let places = self.records.keys().cloned();
        let (optional, missing) = places.partition(|visit| seldom.carried.contains(visit));
        seldom.visits = Visits { missing, optional, ticks: Map::default() };
    }

    /// How much is recorded that the execution has not come by yet.
    pub(crate) fn unvisited(&self) -> usize {
        self.seldom.as_ref().map_or(0, |seldom| seldom.visits.missing.len())
    }

    /// The same, in order of the paths.
    pub(crate) fn missing(&self) -> Vec<Visit> {
        let mut missing: Vec<Visit> =
            self.seldom.iter().flat_map(|seldom| &seldom.visits.missing).cloned().collect();
        missing.sort();
        missing
    }

    /// Comes by a path that must be come by once only.
    pub(crate) fn visit_once(&mut self, path: Path) -> Result<Visit, InvalidPath> {
        let visit = Visit::first(path);
        match self.come_by(&visit) {
            true => Ok(visit),
            false => Err(InvalidPath::DuplicateStep(visit.path)),
        }
    }

    /// Comes by a path whose visits are counted.
    pub(crate) fn visit_counted(&mut self, path: Path) -> Visit {
        let before = self.has_come_by(&Visit::first(path.clone()));
        let ticks = &mut self.seldom.get_or_insert_default().visits.ticks;
        let tick = ticks.entry(path.clone()).or_insert(u32::from(before));
        *tick = if sabotage::commits(Bug::TicksAreNotCounted) { 1 } else { *tick + 1 };
        let visit = Visit { path, tick: *tick };
        self.come_by(&visit);
        visit
    }

    /// Whether the execution has come by here.
    pub(crate) fn has_come_by(&self, visit: &Visit) -> bool {
        let left = self.seldom.as_ref().is_some_and(|seldom| seldom.visits.includes(visit));
        self.records.contains_key(visit) && !left
    }

    /// Whether it is the first time.
    fn come_by(&mut self, visit: &Visit) -> bool {
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
