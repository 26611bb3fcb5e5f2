//! The only file that reads time or randomness.
//!
//! All other code is given a [`Time`] or a [`Clock`], so that tests and simulations decide what time it is.

use std::fmt;
use std::pin::Pin;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use uuid::Uuid;

/// A point in time: milliseconds since 1970-01-01 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Time(pub i64);

impl Time {
    /// This time plus a duration; the latest possible time if the sum does not fit.
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

/// Source of time and fresh ids.
pub trait Clock: Send + Sync + 'static {
    /// The present time. Never earlier than a time it returned before.
    fn now(&self) -> Time;
    /// A fresh time-ordered id (`UUIDv7`).
    fn uuid(&self) -> Uuid;
    /// Completes when it is this time, and never before.
    fn until(&self, at: Time) -> Until;
}

/// A future that completes at a time.
pub type Until = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Maximum time between two looks at the clock while something waits for a time. The runtime's timers stop while the
/// machine is suspended, so after that a wait is late by at most this much.
const LOOK: Duration = Duration::from_secs(1);

/// The machine's clock, read once at start and then advanced by a clock that cannot be set: a wall clock that is set
/// forward or back under a running process fires no timer early and none twice. On Linux and macOS that clock goes on while
/// the machine is suspended. Elsewhere it does not, and timers are late by that time until the process is restarted.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    start: SystemTime,
    /// Value of `since_boot` at that time.
    booted: Duration,
    ticks: Instant,
}

/// The time since some moment before this process began, with the time that the machine was suspended.
#[cfg(any(target_os = "linux", target_os = "macos"))]
fn since_boot() -> Duration {
    #[cfg(target_os = "linux")]
    let clock = rustix::time::ClockId::Boottime;
    // On this system the monotonic clock goes on during suspension; `Instant` uses a different one.
    #[cfg(target_os = "macos")]
    let clock = rustix::time::ClockId::Monotonic;
    let time = rustix::time::clock_gettime(clock);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// Time since the first call, without the time that the machine was suspended: this system offers nothing better.
#[cfg(not(any(target_os = "linux", target_os = "macos")))]
#[expect(clippy::disallowed_methods, reason = "this is the file that reads the clock")]
fn since_boot() -> Duration {
    static FIRST: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    FIRST.get_or_init(Instant::now).elapsed()
}

impl SystemClock {
    /// A clock that starts at the machine's present time.
    #[expect(clippy::disallowed_methods, reason = "this is the file that reads the clock")]
    pub fn new() -> Self {
        Self { start: SystemTime::now(), booted: since_boot(), ticks: Instant::now() }
    }

    /// Time since this clock was started, with a finer resolution than its time. For measuring durations.
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
        Time(0).after(since_epoch + since_boot().saturating_sub(self.booted))
    }

    #[expect(clippy::disallowed_methods, reason = "this is the file that makes random ids")]
    fn uuid(&self) -> Uuid {
        Uuid::now_v7()
    }

    fn until(&self, at: Time) -> Until {
        let clock = *self;
        Box::pin(wait_until(at, move || clock.now()))
    }
}

/// The machine's clock, with a lead that is added to it: for tests of workflows that wait for days. Time goes on as usual, and
/// moves forward at once when the clock is advanced.
#[derive(Debug, Default)]
pub struct ForwardClock {
    machine: SystemClock,
    lead: watch::Sender<Duration>,
}

impl ForwardClock {
    /// Moves the clock forward; what waits for a time in between goes on.
    pub fn advance(&self, by: Duration) {
        self.lead.send_modify(|lead| *lead = lead.saturating_add(by));
    }
}

impl Clock for ForwardClock {
    fn now(&self) -> Time {
        self.machine.now().after(*self.lead.borrow())
    }

    fn uuid(&self) -> Uuid {
        self.machine.uuid()
    }

    fn until(&self, at: Time) -> Until {
        let (machine, mut lead) = (self.machine, self.lead.subscribe());
        Box::pin(async move {
            loop {
                let ahead = *lead.borrow_and_update();
                let left = Time(at.0.saturating_sub(Time(0).after(ahead).0));
                tokio::select! {
                    () = machine.until(left) => return,
                    moved = lead.changed() => if moved.is_err() {
                        // The clock is gone, and is moved no more.
                        return machine.until(left).await;
                    },
                }
            }
        })
    }
}

async fn wait_until(at: Time, now: impl Fn() -> Time) {
    // The timer also counts whole milliseconds, but from a different origin, so the remaining time is checked again.
    while let Some(left) = at.0.checked_sub(now().0).filter(|left| *left > 0) {
        tokio::time::sleep(Duration::from_millis(left.unsigned_abs()).min(LOOK)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicI64, Ordering};

    use super::*;

    /// The runtime's time stands still unless everything waits for it, as timers do while a machine is suspended.
    #[tokio::test(start_paused = true)]
    #[expect(clippy::disallowed_methods, reason = "this is the file that reads the clock")]
    async fn a_wait_is_over_a_second_after_the_machine_wakes_up() {
        let (began, suspended) = (tokio::time::Instant::now(), Arc::new(AtomicI64::new(0)));
        let slept = suspended.clone();
        let millis = move || i64::try_from(began.elapsed().as_millis()).unwrap();
        let now = move || Time(millis() + slept.load(Ordering::SeqCst));
        let hour = 3_600_000;
        let wait = tokio::spawn(wait_until(Time(hour), now));
        tokio::time::advance(Duration::from_secs(10)).await;
        assert!(!wait.is_finished(), "never early");
        suspended.store(hour, Ordering::SeqCst);
        wait.await.unwrap();
        assert!(
            began.elapsed() <= Duration::from_secs(11) + Duration::from_millis(5),
            "{:?}",
            began.elapsed()
        );
    }

    #[tokio::test]
    async fn an_advanced_clock_ends_the_waits_for_the_time_in_between() {
        let clock = ForwardClock::default();
        let (began, day) = (clock.now(), Duration::from_hours(24));
        let (soon, late) = (clock.until(began.after(day)), clock.until(began.after(3 * day)));
        let soon = tokio::spawn(soon);
        let late = tokio::spawn(late);
        clock.advance(2 * day);
        soon.await.unwrap();
        assert!(!late.is_finished(), "never early");
        assert!(clock.now() >= began.after(2 * day));
        clock.advance(2 * day);
        late.await.unwrap();
    }

    #[test]
    fn the_clock_agrees_with_the_wall_clock_at_first_and_never_goes_back() {
        let clock = SystemClock::new();
        let since_epoch = clock.start.duration_since(UNIX_EPOCH).unwrap();
        let (first, second) = (clock.now(), clock.now());
        let apart = first.0 - i64::try_from(since_epoch.as_millis()).unwrap();
        assert!((0..60_000).contains(&apart), "{apart} ms");
        assert!(first <= second);
    }
}
