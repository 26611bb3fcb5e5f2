//! A ledger that only checks. A server keeps one for each run that a worker drives, and needs to know which entry may come
//! next, but no value: of what is settled nothing changes any more, so that a hash of its place is enough. A step then
//! takes some thirty bytes, whatever its result.

use sha2::{Digest as _, Sha256};

use super::{HookState, Ledger, Record, Refused};
use crate::map::Set;
use crate::rules::json::Payload;
use crate::rules::path::Visit;

/// What a ledger takes that has nothing in it.
const EMPTY: usize = 1_000;
/// What something takes that is not settled.
const OPEN: usize = 300;
/// What a settled place takes, with the room that a table keeps free.
const PLACE: usize = 20;

/// The places where something is settled, each by half of its SHA-256: two places of a run do not meet there.
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
    /// The same ledger without values, for checking entries only. It accepts and refuses the same entries of a driver, and
    /// makes the same commits; it cannot be asked for results, and does not know what a restart would keep.
    #[must_use]
    pub fn slim(mut self) -> Self {
        if let Some(created) = &mut self.created {
            created.input = Payload::null();
        }
        let seldom = self.seldom.get_or_insert_default();
        seldom.settled.get_or_insert_default();
        seldom.once.values_mut().for_each(|value| *value = Payload::null());
        seldom.carried = std::collections::HashSet::default();
        for visit in self.records.keys().cloned().collect::<Vec<_>>() {
            self.slim_down(&visit);
        }
        self.records.shrink_to_fit();
        self
    }

    /// In a slim ledger, forgets all of what stands here that no later entry depends on.
    pub(super) fn slim_down(&mut self, visit: &Visit) {
        let Some(seldom) = self.seldom.as_mut().filter(|seldom| seldom.settled.is_some()) else { return };
        if let Some(Some(Record::Hook {
            state: HookState::Open(all) | HookState::Opening(all) | HookState::Released(all),
            ..
        })) = self.records.get_mut(visit)
        {
            *all = Vec::new();
        }
        if self.records.get(visit).is_some_and(|record| record.as_ref().is_some_and(Record::is_settled)) {
            self.records.remove(visit);
            seldom.intents.remove(visit);
            seldom.carried.remove(visit);
            if let Some(Settled(places)) = &mut seldom.settled {
                places.insert(Settled::hash(visit));
            }
        }
    }

    /// Refuses an entry about a place where something is settled and forgotten.
    pub(super) fn not_settled(&self, visit: &Visit, entry: &'static str) -> Result<(), Refused> {
        let settled = self.seldom.as_ref().and_then(|seldom| seldom.settled.as_ref());
        match settled.is_some_and(|settled| settled.includes(visit)) {
            false => Ok(()),
            true => {
                Err(Refused::Visit { visit: visit.clone(), entry: entry.into(), found: "settled".into() })
            }
        }
    }

    /// Roughly how many bytes a slim ledger takes; none if it is not slim.
    pub(super) fn slim_weight(&self) -> Option<usize> {
        let seldom = self.seldom.as_ref()?;
        let Settled(places) = seldom.settled.as_ref()?;
        Some(EMPTY + PLACE * places.capacity() + OPEN * (self.records.len() + seldom.once.len()))
    }
}
