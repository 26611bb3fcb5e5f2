//! Plays many seeds, on all processors: each simulation stays on its own thread.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{available_parallelism, scope};

use crate::case::Case;
use crate::figures::Figures;
use crate::play::play;
use crate::stage::Violation;

/// Number of threads: one for each processor.
pub(crate) fn threads() -> usize {
    available_parallelism().map_or(1, usize::from)
}

/// The result of a hunt.
#[derive(Default)]
pub(crate) struct Hunted {
    /// Number of seeds that were played.
    pub(crate) seeds: u64,
    pub(crate) figures: Figures,
    /// The first play that broke a promise.
    pub(crate) caught: Option<(u64, Violation)>,
}

/// Plays these seeds on `threads` threads, until one breaks a promise.
pub(crate) fn hunt(seeds: Range<u64>, threads: usize) -> Hunted {
    let (next, stop, hunted) =
        (AtomicU64::new(seeds.start), AtomicBool::new(false), Mutex::new(Hunted::default()));
    let work = || {
        while !stop.load(Ordering::SeqCst) {
            let seed = next.fetch_add(1, Ordering::SeqCst);
            if seed >= seeds.end {
                return;
            }
            let played = play(&Case::of(seed), false);
            let mut hunted = hunted.lock().unwrap_or_else(PoisonError::into_inner);
            hunted.seeds += 1;
            hunted.figures.merge(&played.figures);
            if let Some(violation) = played.violation {
                stop.store(true, Ordering::SeqCst);
                // The lowest of those that were under way: the same one each time.
                if hunted.caught.as_ref().is_none_or(|(caught, _)| seed < *caught) {
                    hunted.caught = Some((seed, violation));
                }
            }
        }
    };
    scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    hunted.into_inner().unwrap_or_else(PoisonError::into_inner)
}
