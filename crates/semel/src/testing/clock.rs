//! A clock that moves only when it is told to.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use uuid::{Builder, Uuid};

use crate::clock::{Clock, Time, Until};

/// A clock that stands still until it is moved. Its ids are counted, not drawn: the same test makes the same ids.
///
/// ```
/// use semel::clock::{Clock, Time};
/// use semel::testing::ManualClock;
/// use std::time::Duration;
///
/// let clock = ManualClock::new(Time(0), 0);
/// clock.advance(Duration::from_secs(1));
/// assert_eq!(clock.now(), Time(1_000));
/// ```
#[derive(Debug)]
pub struct ManualClock {
    now: watch::Sender<Time>,
    ids: AtomicU64,
}

impl ManualClock {
    /// A clock that shows this time. Its ids begin after `ids`; two clocks of one test must not share a range.
    pub fn new(now: Time, ids: u64) -> Self {
        Self { now: watch::Sender::new(now), ids: AtomicU64::new(ids) }
    }

    /// Moves the clock forward; tasks whose time has come go on.
    pub fn advance(&self, by: Duration) {
        self.now.send_modify(|now| *now = now.after(by));
    }

    /// Moves it forward to a time; a time that has passed leaves it as it is.
    pub fn advance_to(&self, at: Time) {
        self.now.send_modify(|now| *now = at.max(*now));
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Time {
        *self.now.borrow()
    }

    fn uuid(&self) -> Uuid {
        let count = self.ids.fetch_add(1, Ordering::SeqCst) + 1;
        let mut random = [0; 10];
        random[2..].copy_from_slice(&count.to_be_bytes());
        Builder::from_unix_timestamp_millis(self.now().0.unsigned_abs(), &random).into_uuid()
    }

    fn until(&self, at: Time) -> Until {
        let mut now = self.now.subscribe();
        Box::pin(async move {
            if now.wait_for(|now| *now >= at).await.is_err() {
                // The clock is gone, and with it the time that was waited for.
                std::future::pending::<()>().await;
            }
        })
    }
}
