//! The workflows that are measured. Their steps do next to nothing: what is left is what the engine costs.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use semel::clock::Time;
use semel::engine::Builder;
use semel::{Ctx, Result};
use tokio::sync::{Notify, Semaphore};

/// Steps that were executed in this process.
static STEPS: AtomicU64 = AtomicU64::new(0);
/// Notified when a run has reached the step that never ends.
pub(crate) static HELD: Notify = Notify::const_new();

/// Notified when a run has reached the end of a block and waits for a permit of [`GO`].
pub(crate) static MARK: Notify = Notify::const_new();
/// Each permit lets a run continue with its next block.
pub(crate) static GO: Semaphore = Semaphore::const_new(0);

/// Number of steps with large values that wait for a permit of [`LARGE_GO`].
static LARGE_WAITING: AtomicUsize = AtomicUsize::new(0);
/// Each permit lets one of these steps end.
pub(crate) static LARGE_GO: Semaphore = Semaphore::const_new(0);

/// The steps of a block.
pub(crate) const BLOCK: u64 = 1_000;
pub(crate) const STEPS_OF_TEN: u64 = 10;

pub(crate) fn steps() -> u64 {
    STEPS.load(Ordering::Relaxed)
}

fn done(n: u64) -> u64 {
    STEPS.fetch_add(1, Ordering::Relaxed);
    n
}

pub(crate) fn add_to(builder: Builder) -> Builder {
    builder
        .workflow("ten", ten)
        .workflow("long", long)
        .workflow("paced", paced)
        .workflow("held", held)
        .workflow("one", one)
        .workflow("large", large)
        .workflow("brood", brood)
        .workflow("sleeper", sleeper)
        .workflow("nap", nap)
}

/// Ten steps, each with a small result.
pub(crate) async fn ten(ctx: Ctx, mut sum: u64) -> Result<u64> {
    for n in 1..=STEPS_OF_TEN {
        sum += ctx.step(format!("step-{n}")).run(async |_| Ok(done(n))).await?;
    }
    Ok(sum)
}

/// A run of `steps` steps.
pub(crate) async fn long(ctx: Ctx, steps: u64) -> Result<u64> {
    let mut sum = 0;
    for n in 1..=steps {
        sum += ctx.step("step").key(n).run(async |_| Ok(done(n))).await?;
    }
    Ok(sum)
}

/// A run of `steps` steps in blocks: the last step of each block waits for a permit of [`GO`].
pub(crate) async fn paced(ctx: Ctx, steps: u64) -> Result<u64> {
    let mut sum = 0;
    for n in 1..=steps {
        let body = async |_| {
            if n.is_multiple_of(BLOCK) {
                MARK.notify_one();
                GO.acquire().await?.forget();
            }
            Ok(done(n))
        };
        sum += ctx.step("step").key(n).run(body).await?;
    }
    Ok(sum)
}

/// A run of `steps` steps, followed by one that never ends.
pub(crate) async fn held(ctx: Ctx, steps: u64) -> Result<u64> {
    long(ctx.clone(), steps).await?;
    let hold = async |_| {
        HELD.notify_one();
        std::future::pending().await
    };
    ctx.step("hold").run(hold).await
}

pub(crate) async fn one(ctx: Ctx, n: u64) -> Result<u64> {
    ctx.step("step").run(async |_| Ok(done(n))).await
}

pub(crate) fn large_waiting() -> usize {
    LARGE_WAITING.load(Ordering::Relaxed)
}

/// One step whose result has `bytes` bytes; it ends when there is a permit of [`LARGE_GO`].
pub(crate) async fn large(ctx: Ctx, bytes: usize) -> Result<usize> {
    let body = async |_| {
        LARGE_WAITING.fetch_add(1, Ordering::Relaxed);
        LARGE_GO.acquire().await?.forget();
        Ok("x".repeat(bytes))
    };
    Ok(ctx.step("large").run(body).await?.len())
}

/// Starts `children` children at once, and adds up their results.
pub(crate) async fn brood(ctx: Ctx, children: u64) -> Result<u64> {
    let started = (0..children).map(async |n| ctx.child(one, n).key(n).await?.result().await);
    Ok(futures_util::future::try_join_all(started).await?.into_iter().sum())
}

/// One step, and a month of sleep.
pub(crate) async fn sleeper(ctx: Ctx, n: u64) -> Result<u64> {
    let n = ctx.step("step").run(async |_| Ok(done(n))).await?;
    ctx.sleep("month", Duration::from_hours(30 * 24)).await?;
    Ok(n)
}

/// One step, and sleep until a given moment.
pub(crate) async fn nap(ctx: Ctx, until: i64) -> Result<i64> {
    ctx.step("step").run(async |_| Ok(done(0))).await?;
    ctx.sleep_until("nap", Time(until)).await?;
    Ok(until)
}
