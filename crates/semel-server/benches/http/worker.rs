//! A remote worker: runs of ten trivial steps, started and driven in this process, kept by the server.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use semel::{Ctx, Engine, Result};

use crate::figures::Figures;
use crate::{Anything, Extent};

/// Steps that were executed.
static STEPS: AtomicU64 = AtomicU64::new(0);
const STEPS_OF_TEN: u64 = 10;
/// What is asked for, in steps a second.
const GOAL: f64 = 20_000.0;

/// Ten steps, each with a small result.
pub(crate) async fn ten(ctx: Ctx, mut sum: u64) -> Result<u64> {
    for n in 1..=STEPS_OF_TEN {
        let step = async |_| {
            STEPS.fetch_add(1, Ordering::Relaxed);
            Ok(n)
        };
        sum += ctx.step(format!("step-{n}")).run(step).await?;
    }
    Ok(sum)
}

/// Steps that this process has executed.
pub(crate) fn executed() -> u64 {
    STEPS.load(Ordering::Relaxed)
}

/// Runs workflows of ten steps with the callers, and for the time, of `extent`. Gives steps per second.
pub(crate) async fn measure(url: &str, extent: &Extent, figures: &mut Figures) -> Anything<()> {
    println!("A remote worker on a server on SQLite, {} callers", extent.callers);
    let engine = Engine::builder().store(url).workflow("ten", ten).open().await?;
    let (begun, before) = (Instant::now(), executed());
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..extent.callers as u64 {
        let (engine, end) = (engine.clone(), begun + extent.time);
        callers.spawn(async move {
            let mut runs = 0u64;
            while Instant::now() < end {
                let run = engine.start(ten, caller).await?;
                let sum = run.result().await?;
                assert_eq!(sum, caller + 55);
                runs += 1;
            }
            Ok::<_, semel::Error>(runs)
        });
    }
    let mut runs = 0;
    while let Some(ended) = callers.join_next().await {
        runs += ended??;
    }
    let seconds = begun.elapsed().as_secs_f64();
    let steps = (executed() - before) as f64 / seconds;
    figures.goal("worker.stepsPerSecond", steps, GOAL);
    figures.number("worker.runsPerSecond", runs as f64 / seconds);
    engine.shutdown(std::time::Duration::from_secs(2)).await?;
    Ok(())
}
