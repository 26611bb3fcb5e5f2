//! A run that is suspected of killing its nodes is driven alone. Until it has made progress, its engine takes no
//! other run, so the next death is evidence against it and harms no other run (see
//! [`rules::claim`](crate::rules::claim)).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::Core;
use crate::clock::Time;
use crate::id::RunId;
use crate::rules::claim::SUSPECT;
use crate::store::Claimed;

/// Maximum time for which an engine takes no other run. A suspect that needs longer for its next step must not hold
/// up the others; if it kills its node later, it does so in company.
const LONGEST: Duration = Duration::from_secs(30);

/// The suspect that an engine drives alone, if there is one.
#[derive(Default)]
pub(super) struct Alone {
    /// Whether there may be one: the only thing that a start has to check.
    any: AtomicBool,
    suspect: Mutex<Option<Suspect>>,
}

struct Suspect {
    run: RunId,
    /// Version of the run when it was claimed.
    version: u64,
    until: Time,
}

impl Core {
    /// Notes a suspect that was claimed without others.
    pub(super) fn note_suspect(&self, claimed: &[Claimed]) {
        if let [Claimed { run, .. }] = claimed
            && run.state.stalls >= SUSPECT
        {
            let (version, until) = (run.state.version, self.clock.now().after(LONGEST));
            let suspect = Suspect { run: run.id(), version, until };
            *self.alone.suspect.lock().unwrap_or_else(PoisonError::into_inner) = Some(suspect);
            self.alone.any.store(true, Ordering::SeqCst);
        }
    }

    /// Whether a suspect is driven here that has made no progress yet.
    pub(super) fn drives_suspect(&self) -> bool {
        if !self.alone.any.load(Ordering::SeqCst) {
            return false;
        }
        let mut suspect = self.alone.suspect.lock().unwrap_or_else(PoisonError::into_inner);
        let still = suspect.as_ref().is_some_and(|suspect| self.has_stalled(suspect));
        if !still {
            *suspect = None;
            self.alone.any.store(false, Ordering::SeqCst);
        }
        still
    }

    fn has_stalled(&self, suspect: &Suspect) -> bool {
        let Some(cell) = self.residents.get(suspect.run) else { return false };
        self.clock.now() < suspect.until
            && !self.residents.rests(&cell)
            && cell.lock().durable() <= suspect.version
    }
}
