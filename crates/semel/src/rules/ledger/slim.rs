//! A ledger that only checks entries. A server keeps one for each run that a worker drives. It needs to know which
//! entry may come next, but no values: a settled visit does not change any more, so a hash of it is enough. A step
//! then takes about thirty bytes, whatever its result.

use sha2::{Digest as _, Sha256};

use super::{HookState, Ledger, RefusedEntry, VisitRecord};
use crate::map::Set;
use crate::rules::json::Payload;
use crate::rules::path::Visit;

/// Approximate size of an empty ledger, in bytes.
const EMPTY: usize = 1_000;
/// Approximate size of a record that is not settled, in bytes.
const OPEN: usize = 300;
/// Approximate size of a settled visit, in bytes, with the free room of the table.
const PLACE: usize = 20;

/// The settled visits, each as half of its SHA-256 hash: two visits of a run do not collide.
#[derive(Clone, Debug, Default)]
pub(super) struct Settled(Set<u128>);

impl Settled {
    fn hash(visit: &Visit) -> u128 {
        let mut hash = Sha256::new();
        hash.update(visit.path.as_str().as_bytes());
        hash.update(b"#");
        hash.update(visit.tick.to_be_bytes());
        let full: [u8; 32] = hash.finalize().into();
        u128::from_be_bytes(full[..16].try_into().expect("16 of 32 bytes"))
    }

    fn includes(&self, visit: &Visit) -> bool {
        !self.0.is_empty() && self.0.contains(&Self::hash(visit))
    }
}

impl Ledger {
    /// The same ledger without values, for checking entries only. It accepts and refuses the same entries of a
    /// driver, and makes the same commits. It has no results, and does not know what a restart would keep.
    #[must_use]
    pub fn slim(mut self) -> Self {
        if let Some(created) = &mut self.created {
            created.input = Payload::null();
        }
        let seldom = self.seldom.get_or_insert_default();
        seldom.settled.get_or_insert_default();
        seldom.once.values_mut().for_each(|value| *value = Payload::null());
        // Of the records from before a restart, only a closed hook may change: it may be opened again.
        let records = &self.records;
        let closed = |visit: &Visit| {
            matches!(records.get(visit), Some(Some(VisitRecord::Hook { state: HookState::Closed(_), .. })))
        };
        seldom.carried.retain(closed);
        for visit in self.records.keys().cloned().collect::<Vec<_>>() {
            self.slim_down(&visit);
        }
        self.records.shrink_to_fit();
        self
    }

    /// In a slim ledger, forgets everything at this visit that no later entry depends on.
    pub(super) fn slim_down(&mut self, visit: &Visit) {
        let Some(seldom) = self.seldom.as_mut().filter(|seldom| seldom.settled.is_some()) else { return };
        match self.records.get_mut(visit) {
            Some(Some(VisitRecord::Hook { state: HookState::Closed(all), .. }))
                if seldom.carried.contains(visit) =>
            {
                *all = Vec::new();
                return;
            }
            Some(Some(VisitRecord::Hook {
                state: HookState::Open(all) | HookState::Opening(all) | HookState::Released(all),
                ..
            })) => *all = Vec::new(),
            _ => {}
        }
        if self.records.get(visit).is_some_and(|record| record.as_ref().is_some_and(VisitRecord::is_settled))
        {
            self.records.remove(visit);
            seldom.intents.remove(visit);
            seldom.carried.remove(visit);
            if let Some(Settled(places)) = &mut seldom.settled {
                places.insert(Settled::hash(visit));
            }
        }
    }

    /// Refuses an entry about a place where something is settled and forgotten.
    pub(super) fn not_settled(&self, visit: &Visit, entry: &'static str) -> Result<(), RefusedEntry> {
        let settled = self.seldom.as_ref().and_then(|seldom| seldom.settled.as_ref());
        match settled.is_some_and(|settled| settled.includes(visit)) {
            false => Ok(()),
            true => Err(RefusedEntry::Visit {
                visit: visit.clone(),
                entry: entry.into(),
                found: "settled".into(),
            }),
        }
    }

    /// Approximate size of a slim ledger in bytes; none if it is not slim.
    pub(super) fn slim_weight(&self) -> Option<usize> {
        let seldom = self.seldom.as_ref()?;
        let Settled(places) = seldom.settled.as_ref()?;
        Some(EMPTY + PLACE * places.capacity() + OPEN * (self.records.len() + seldom.once.len()))
    }
}
