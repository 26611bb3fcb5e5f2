//! Token buckets: a rate of calls per second, and a burst of the same size.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use semel::clock::Time;

/// The tokens that are left in one bucket.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    left: f64,
    at: Time,
}

/// One bucket for each key.
#[derive(Debug)]
pub(super) struct Buckets<K>(Mutex<HashMap<K, Bucket>>);

impl<K> Default for Buckets<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash> Buckets<K> {
    /// Takes one token out of a bucket with this rate; the error is the time until there is one.
    pub(super) fn take(&self, whose: K, rate: u32, now: Time) -> Result<(), Duration> {
        let mut buckets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let rate = f64::from(rate);
        let bucket = filled(&mut buckets, whose, rate, now);
        if bucket.left >= 1.0 {
            bucket.left -= 1.0;
            return Ok(());
        }
        Err(Duration::from_secs_f64((1.0 - bucket.left) / rate.max(0.001)))
    }

    /// Takes up to `most` tokens out of a bucket; gives how many.
    pub(super) fn take_some(&self, whose: K, rate: u32, most: usize, now: Time) -> usize {
        let mut buckets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bucket = filled(&mut buckets, whose, f64::from(rate), now);
        // A bucket never holds more than its rate, which is a u32.
        let taken = (bucket.left as u32).min(u32::try_from(most).unwrap_or(u32::MAX));
        bucket.left -= f64::from(taken);
        taken as usize
    }
}

/// The bucket, refilled for the time since it was last used.
fn filled<K: Eq + Hash>(buckets: &mut HashMap<K, Bucket>, whose: K, rate: f64, now: Time) -> &mut Bucket {
    let bucket = buckets.entry(whose).or_insert(Bucket { left: rate, at: now });
    let millis = now.0.saturating_sub(bucket.at.0).clamp(0, 1_000);
    let passed = Duration::from_millis(millis.unsigned_abs()).as_secs_f64();
    *bucket = Bucket { left: (bucket.left + passed * rate).min(rate), at: bucket.at.max(now) };
    bucket
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_gives_its_rate_and_fills_again() {
        let buckets = Buckets::default();
        let take = |at| buckets.take("a", 10, Time(at)).is_ok();
        assert_eq!((0..20).filter(|_| take(0)).count(), 10);
        assert_eq!((0..20).filter(|_| take(500)).count(), 5);
        assert_eq!((0..20).filter(|_| take(60_000)).count(), 10, "no more than a second's worth is saved up");
        assert!(buckets.take("b", 10, Time(60_000)).is_ok(), "each key has its own bucket");
        assert_eq!(buckets.take("a", 10, Time(60_000)), Err(Duration::from_millis(100)));
    }

    #[test]
    fn some_are_taken_as_far_as_there_are() {
        let buckets = Buckets::default();
        assert_eq!(buckets.take_some("a", 10, 4, Time(0)), 4);
        assert_eq!(buckets.take_some("a", 10, 1_000, Time(0)), 6);
        assert_eq!(buckets.take_some("a", 10, 1_000, Time(500)), 5);
        assert!(buckets.take("a", 10, Time(500)).is_err());
    }

    #[test]
    fn a_clock_that_goes_back_fills_nothing() {
        let buckets = Buckets::default();
        assert!(buckets.take("a", 1, Time(1_000)).is_ok());
        assert!(buckets.take("a", 1, Time(0)).is_err());
        assert!(buckets.take("a", 1, Time(1_500)).is_err());
        assert!(buckets.take("a", 1, Time(2_000)).is_ok());
    }
}
