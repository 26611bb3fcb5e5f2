//! The only file that reads time or randomness.
//!
//! Everything else is handed a [`Time`] or a [`Clock`], so that tests and simulations decide what time it is.

use std::fmt;
use std::pin::Pin;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A point in time: milliseconds since 1970-01-01 UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Time(pub i64);

impl Time {
    /// This time plus a duration, at the far end of time if it does not fit.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0)
    }
}

/// Where time and fresh ids come from.
pub trait Clock: Send + Sync + 'static {
    /// The time now. Never earlier than what it said before.
    fn now(&self) -> Time;
    /// A fresh time-ordered id (`UUIDv7`).
    fn uuid(&self) -> Uuid;
    /// Is over when it is this time, and never before.
    fn until(&self, at: Time) -> Until;
}

/// A wait for a time, to be awaited.
pub type Until = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The machine's clock, read once at start and then advanced by the monotonic clock: a wall clock that
/// is set forward or back under a running process fires no timer early and none twice. The monotonic clock
/// does not count the time that a machine sleeps, so after that timers are late until the process is restarted.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    start: SystemTime,
    ticks: Instant,
}

impl SystemClock {
    /// A clock that starts at the machine's present time.
    #[expect(clippy::disallowed_methods, reason = "this is the file that reads the clock")]
    pub fn new() -> Self {
        Self { start: SystemTime::now(), ticks: Instant::now() }
    }

    /// How long ago this clock was started, finer than its time: to measure how long something takes.
    pub fn elapsed(&self) -> Duration {
        self.ticks.elapsed()
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Time {
        let since_epoch = self.start.duration_since(UNIX_EPOCH).unwrap_or_default();
        Time(0).after(since_epoch + self.ticks.elapsed())
    }

    #[expect(clippy::disallowed_methods, reason = "this is the file that makes random ids")]
    fn uuid(&self) -> Uuid {
        Uuid::now_v7()
    }

    fn until(&self, at: Time) -> Until {
        let clock = *self;
        Box::pin(async move {
            // The timer counts in whole milliseconds too, but from another beginning: what is left is looked at again.
            while let Some(left) = at.0.checked_sub(clock.now().0).filter(|left| *left > 0) {
                tokio::time::sleep(Duration::from_millis(left.unsigned_abs())).await;
            }
        })
    }
}
