//! Long runs: what a step costs when many came before, and what it costs to build such a run up again.

use std::time::{Duration, Instant};

use semel::Engine;

use crate::place::Place;
use crate::report::Report;
use crate::workflows::{HELD, held, long};
use crate::{Anything, Extent};

/// A run that would take longer than this is measured shorter.
const PATIENCE: f64 = 60.0;

pub(crate) async fn measure(report: &mut Report, name: &str, extent: &Extent, place: &Place) -> Anything<()> {
    let engine = place.engine().await?;
    let mut short = vec![steps(&engine, 1_000).await?, steps(&engine, 1_000).await?];
    let middle = steps(&engine, 10_000).await?;
    short.push(steps(&engine, 1_000).await?);
    let affordable = (PATIENCE / middle.as_secs_f64()) as u64;
    let longest = extent.longest.min(affordable);
    let last = steps(&engine, longest).await?;
    short.extend([steps(&engine, 1_000).await?, steps(&engine, 1_000).await?]);
    short.sort();
    let first = short[short.len() / 2];
    for (count, cost) in [(1_000, first), (10_000, middle), (longest, last)] {
        report.number(&format!("{name}.step of {count}, µs"), micros(cost));
    }
    report.limit(
        &format!("{name}: a step of {longest} / a step of 1000"),
        last.as_secs_f64() / first.as_secs_f64(),
        1.2,
    );
    Place::close(&engine, Duration::from_secs(5)).await?;
    let few = rebuild(place, longest / 10).await?;
    let many = rebuild(place, longest).await?;
    // A step has two entries.
    for (steps, took) in [(longest / 10, few), (longest, many)] {
        report.number(&format!("{name}.rebuild of {steps} steps, ms"), took.as_secs_f64() * 1_000.0);
        report.number(
            &format!("{name}.rebuild of {steps} steps, ns/entry"),
            took.as_secs_f64() * 1e9 / (2 * steps) as f64,
        );
    }
    let growth = many.as_secs_f64() / few.as_secs_f64() / 10.0;
    report.limit(&format!("{name}: rebuild per entry, ten times the entries"), growth, 1.5);
    Ok(())
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// What a step costs in a run of so many.
async fn steps(engine: &Engine, steps: u64) -> Anything<Duration> {
    let begun = Instant::now();
    engine.start(long, steps).await?.result().await?;
    Ok(begun.elapsed() / steps as u32)
}

/// How long it takes another engine to bring a run back to where the first one gave it up.
async fn rebuild(place: &Place, steps: u64) -> Anything<Duration> {
    let engine = place.engine().await?;
    engine.start(held, steps).await?;
    HELD.notified().await;
    Place::close(&engine, Duration::ZERO).await?;
    let engine = place.engine().await?;
    let begun = Instant::now();
    HELD.notified().await;
    let took = begun.elapsed();
    // It stays where it is; the next one must not find it.
    let name = semel::rules::path::Name::new("held")?;
    let query = semel::store::Query {
        status: Some(semel::rules::status::Status::Running),
        workflow: Some(name),
        ..semel::store::Query::all(engine.workspace(), 10)
    };
    for run in engine.store().list(query).await? {
        engine.run(run.id()).cancel("measured").await?;
    }
    Place::close(&engine, Duration::ZERO).await?;
    Ok(took)
}
