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
    unvisited: Set<Visit>,
    ticks: Map<Path, u32>,
}

impl Ledger {
    /// An execution begins. It has come by nothing of what is recorded.
    pub(crate) fn begin(&mut self) {
        self.records.retain(|_, record| record.is_some());
        if let Some(seldom) = &mut self.seldom {
            seldom.visits = Visits::default();
        }
        if !self.records.is_empty() {
            let unvisited = self.records.keys().cloned().collect();
            self.seldom.get_or_insert_default().visits.unvisited = unvisited;
        }
        self.unvisited = self.to_visit();
    }

    /// How many visits a faithful execution comes by: all but those that an earlier life has left.
    pub fn to_visit(&self) -> usize {
        self.records().count() - self.seldom.as_ref().map_or(0, |seldom| seldom.carried.len())
    }

    /// How many of those the execution has not come by yet.
    pub(crate) fn unvisited(&self) -> usize {
        self.unvisited
    }

    /// What is recorded and was not come by, in order of the paths.
    pub(crate) fn missing(&self) -> Vec<Visit> {
        let left = self.seldom.iter().flat_map(|seldom| &seldom.visits.unvisited);
        let mut missing: Vec<Visit> = left.filter(|visit| !self.is_carried(visit)).cloned().collect();
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
        let left = |visit| self.seldom.as_ref().is_some_and(|seldom| seldom.visits.unvisited.contains(visit));
        self.records.contains_key(visit) && !left(visit)
    }

    /// Whether it is the first time.
    fn come_by(&mut self, visit: &Visit) -> bool {
        if let Some(seldom) = &mut self.seldom
            && seldom.visits.unvisited.remove(visit)
        {
            self.unvisited -= usize::from(!seldom.carried.contains(visit));
            if seldom.visits.unvisited.is_empty() {
                // It may have been large, and is not needed any more.
                seldom.visits.unvisited = Set::default();
            }
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
