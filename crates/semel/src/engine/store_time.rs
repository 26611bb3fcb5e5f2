//! The store's time, as far as this machine can tell.
//!
//! An answer tells the store's time at some moment between question and answer, by this machine's clock. So the
//! difference between the store's clock and this one is known within two bounds, as far apart as the answer took. Due
//! times are judged by the lower bound, so nothing fires early; future times are counted from the upper one, so
//! nothing lasts shorter than requested. One slow answer makes no timer late: clocks keep their distance except for a
//! small drift, so the tightest bounds are used, widened by as much as clocks can have drifted since. Bounds that
//! contradict the newest answer belong to a clock that was set, or to another store, and are dropped.

use std::sync::atomic::{AtomicI64, Ordering};

use crate::clock::Time;

/// Number of milliseconds in which two clocks drift apart by at most one: twice the maximum slew rate (500 ppm).
/// Between two answers, a third of a lease apart, that is too little to matter.
const DRIFT: i64 = 1_000;

/// Marks that no answer has arrived yet.
const NEVER: i64 = i64::MIN;

/// The bounds of the store's clock minus this machine's, in milliseconds. Each is true by itself, so reading one
/// while the other is being written is harmless.
#[derive(Debug)]
pub(super) struct StoreTime {
    least: AtomicI64,
    most: AtomicI64,
    /// When they were last updated, by this machine's clock.
    learned: AtomicI64,
}

impl StoreTime {
    /// Until the first answer, the store's clock is assumed to equal this machine's.
    pub(super) const fn new() -> Self {
        Self { least: AtomicI64::new(0), most: AtomicI64::new(0), learned: AtomicI64::new(NEVER) }
    }

    /// Lower bound of the store's time when this machine's clock shows `local`.
    pub(super) fn earliest(&self, local: Time) -> Time {
        Time(local.0.saturating_add(self.least.load(Ordering::Relaxed)))
    }

    /// Upper bound of the store's time when this machine's clock shows `local`.
    pub(super) fn latest(&self, local: Time) -> Time {
        Time(local.0.saturating_add(self.most.load(Ordering::Relaxed)))
    }

    /// Time of this machine's clock from which on it is certainly `at` for the store.
    pub(super) fn local(&self, at: Time) -> Time {
        Time(at.0.saturating_sub(self.least.load(Ordering::Relaxed)))
    }

    /// Learns from an answer that the store's time is `told`, for a question asked and answered at these times of
    /// this machine.
    pub(super) fn learn(&self, told: Time, asked: Time, heard: Time) {
        let (mut least, mut most) = (told.0.saturating_sub(heard.0), told.0.saturating_sub(asked.0));
        let learned = self.learned.swap(heard.0, Ordering::Relaxed);
        if learned != NEVER {
            let drift = heard.0.saturating_sub(learned).saturating_add(DRIFT - 1) / DRIFT;
            let kept = self.least.load(Ordering::Relaxed).saturating_sub(drift);
            let kept_most = self.most.load(Ordering::Relaxed).saturating_add(drift);
            if kept <= most && least <= kept_most {
                (least, most) = (least.max(kept), most.min(kept_most));
            }
        }
        self.least.store(least, Ordering::Relaxed);
        self.most.store(most, Ordering::Relaxed);
    }

    /// The store's time is only `told`, though it was assumed to be later: its clock was set back.
    pub(super) fn is_only(&self, told: Time, heard: Time) {
        self.least.store(told.0.saturating_sub(heard.0), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the store's time is between, when this machine's clock shows 10,000.
    fn between(time: &StoreTime) -> (i64, i64) {
        (time.earliest(Time(10_000)).0, time.latest(Time(10_000)).0)
    }

    #[test]
    fn an_answer_leaves_as_much_open_as_it_took() {
        let time = StoreTime::new();
        assert_eq!(between(&time), (10_000, 10_000));
        time.learn(Time(50_000), Time(1_000), Time(1_700));
        assert_eq!(between(&time), (58_300, 59_000));
        assert_eq!(time.local(Time(58_300)), Time(10_000));
    }

    #[test]
    fn a_slow_answer_takes_nothing_back_but_the_drift() {
        let time = StoreTime::new();
        time.learn(Time(50_000), Time(1_000), Time(1_002));
        time.learn(Time(55_000), Time(2_000), Time(9_002));
        assert_eq!(between(&time), (58_990, 59_008));
    }

    #[test]
    fn bounds_are_those_that_all_answers_leave() {
        let time = StoreTime::new();
        time.learn(Time(50_000), Time(1_000), Time(1_400));
        time.learn(Time(50_700), Time(1_500), Time(1_900));
        assert_eq!(between(&time), (58_800, 59_001), "but for what they may have drifted");
    }

    #[test]
    fn a_clock_that_was_set_is_believed() {
        let time = StoreTime::new();
        time.learn(Time(50_000), Time(1_000), Time(1_002));
        time.learn(Time(90_000), Time(2_000), Time(2_002));
        assert_eq!(between(&time), (97_998, 98_000));
        time.is_only(Time(60_000), Time(3_000));
        assert_eq!(between(&time).0, 67_000);
        time.learn(Time(61_000), Time(4_000), Time(4_002));
        assert_eq!(between(&time), (66_998, 67_000));
    }
}
