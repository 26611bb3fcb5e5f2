//! The engine: workflows that really run. Most do so on the memory store and a clock that stands still; the suite keeps the
//! other stores equal to it.

mod basics;
mod children;
mod cleanup;
mod clients;
mod control;
mod crash;
#[cfg(feature = "sqlite")]
mod crash_examples;
mod crash_others;
mod divergence;
mod failures;
mod hidden;
mod history;
mod hosting;
mod once;
mod ownership;
mod patches;
mod presence;
mod profiles;
mod queue;
mod races;
#[cfg(feature = "sqlite")]
mod random;
mod replay;
mod rest;
mod seams;
mod spans;
mod surface;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(crate) mod tx;
mod versions;
mod wakes;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use semel::clock::{Clock, Time};
use semel::engine::Builder;
use semel::store::Store;
use semel::store::memory::MemoryStore;
use semel::testing::ManualClock;
use semel::{Engine, Limits};
use tokio::runtime::Builder as Runtime;

pub(crate) fn trials() -> Vec<Trial> {
    [
        basics::trials(),
        children::trials(),
        clients::trials(),
        control::trials(),
        crash::trials(),
        #[cfg(feature = "sqlite")]
        crash_examples::trials(),
        crash_others::trials(),
        divergence::trials(),
        failures::trials(),
        once::trials(),
        profiles::trials(),
        ownership::trials(),
        queue::trials(),
        races::trials(),
        #[cfg(feature = "sqlite")]
        random::trials(),
        #[cfg(any(feature = "sqlite", feature = "postgres"))]
        tx::trials(),
        cleanup::trials(),
        hidden::trials(),
        history::trials(),
        hosting::trials(),
        patches::trials(),
        presence::trials(),
        replay::trials(),
        rest::trials(),
        seams::trials(),
        spans::trials(),
        surface::trials(),
        versions::trials(),
        wakes::trials(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Long enough for the slowest machine, short enough to tell a hang.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A test of the engine, in a runtime of its own.
pub(crate) fn trial<F>(name: &str, test: impl FnOnce() -> F + Send + 'static) -> Trial
where
    F: Future<Output = Result<(), Failed>>,
{
    trial_on(Runtime::new_multi_thread, name, test)
}

/// A test of the engine in one thread, where a task that yields gives all other tasks a turn.
fn by_turns<F>(name: &str, test: impl FnOnce() -> F + Send + 'static) -> Trial
where
    F: Future<Output = Result<(), Failed>>,
{
    trial_on(Runtime::new_current_thread, name, test)
}

fn trial_on<F>(runtime: fn() -> Runtime, name: &str, test: impl FnOnce() -> F + Send + 'static) -> Trial
where
    F: Future<Output = Result<(), Failed>>,
{
    Trial::test(format!("engine::{name}"), move || {
        runtime().worker_threads(2).enable_all().build()?.block_on(async move {
            tokio::time::timeout(PATIENCE, test()).await.map_err(|_| "the test does not end")?
        })
    })
}

/// A test moves its clock as it likes, without taking the engine's lease away.
fn limits() -> Limits {
    Limits { lease: Duration::from_hours(24 * 365), ..Limits::default() }
}

/// A store and a clock that outlive their engines.
pub(crate) struct Lab {
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) store: Arc<dyn Store>,
}

impl Lab {
    pub(crate) fn new() -> Self {
        Self::with_ids(0)
    }

    /// A lab whose runs have ids that no other test and process has: servers that several share are told of them.
    pub(crate) fn apart() -> Self {
        static LABS: AtomicU64 = AtomicU64::new(1);
        let count = LABS.fetch_add(1, Ordering::Relaxed);
        Self::with_ids(u64::from(std::process::id()) << 32 | count << 12)
    }

    fn with_ids(ids: u64) -> Self {
        let clock = Arc::new(ManualClock::new(Time(1_000_000), ids));
        let store = Arc::new(MemoryStore::new(clock.clone()));
        Self { clock, store }
    }

    pub(crate) fn engine(&self) -> Builder {
        let clock = self.clock.clone() as Arc<dyn Clock>;
        Engine::builder().store(self.store.clone()).clock(clock).limits(limits())
    }

    /// An engine that keeps nothing in memory that waits.
    pub(crate) fn forgetful(&self) -> Builder {
        self.engine().limits(Limits { resting: 0, ..limits() })
    }

    /// Waits until the condition is true. The engine works on other threads meanwhile.
    pub(crate) async fn until(&self, so: impl AsyncFn() -> bool) {
        while !so().await {
            tokio::task::yield_now().await;
        }
    }
}
