//! A clock that moves only when it is told to.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use uuid::{Builder, Uuid};

use crate::clock::{Clock, Time};

/// A clock that stands still until it is moved. Its ids are counted, not drawn: the same test makes the same ids.
#[derive(Debug)]
pub struct ManualClock {
    now: AtomicI64,
    ids: AtomicU64,
}

impl ManualClock {
    /// A clock that shows this time. Its ids begin after `ids`; two clocks of one test must not share a range.
    pub fn new(now: Time, ids: u64) -> Self {
        Self { now: AtomicI64::new(now.0), ids: AtomicU64::new(ids) }
    }

    /// Moves it forward.
    pub fn advance(&self, by: Duration) {
        let by = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
        self.now.fetch_add(by, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Time {
        Time(self.now.load(Ordering::SeqCst))
    }

    fn uuid(&self) -> Uuid {
        let count = self.ids.fetch_add(1, Ordering::SeqCst) + 1;
        let mut random = [0; 10];
        random[2..].copy_from_slice(&count.to_be_bytes());
        Builder::from_unix_timestamp_millis(self.now().0.unsigned_abs(), &random).into_uuid()
    }
}
