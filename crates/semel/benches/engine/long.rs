//! Long runs: what a step costs when many came before, and what it costs to build such a run up again.

use std::time::{Duration, Instant};

use semel::Engine;

use crate::place::Place;
use crate::report::Report;
use crate::workflows::{BLOCK, GO, HELD, MARK, held, long, paced};
use crate::{Anything, Extent};

/// A run that would take longer than this is measured shorter.
const PATIENCE: f64 = 60.0;

/// Blocks at the end of the longest run that are measured, each right after a run of one block: on a machine that is not
/// alone on its host, a second now and a second a minute ago are not comparable.
const BESIDE: u64 = 9;

/// Step 10,000 is not in one of those.
const LEAST: u64 = 20 * BLOCK;

pub(crate) async fn measure(report: &mut Report, name: &str, extent: &Extent, place: &Place) -> Anything<()> {
    let engine = place.engine().await?;
    let affordable = PATIENCE / steps(&engine, BLOCK).await?.as_secs_f64();
    let longest = extent.longest.min(affordable as u64).max(LEAST) / BLOCK * BLOCK;
    let (mut short, mut middle, mut last) = (Vec::new(), Vec::new(), Vec::new());
    let run = engine.start(paced, longest).await?;
    MARK.notified().await;
    for block in 2..=longest / BLOCK {
        let measured = block > longest / BLOCK - BESIDE;
        if measured {
            short.push(steps(&engine, BLOCK).await?);
        }
        let begun = Instant::now();
        GO.add_permits(1);
        MARK.notified().await;
        let took = begun.elapsed() / BLOCK as u32;
        match block * BLOCK {
            _ if measured => last.push(took),
            10_000 => middle.push(took),
            _ => {}
        }
    }
    GO.add_permits(1);
    run.result().await?;
    let ratios = last.iter().zip(&short).map(|(last, short)| last.as_secs_f64() / short.as_secs_f64());
    let ratio = crate::load::middle(ratios.collect());
    for (count, costs) in [(BLOCK, short), (10_000, middle), (longest, last)] {
        let cost = crate::load::middle(costs.iter().map(|cost| cost.as_secs_f64() * 1e6).collect());
        report.number(&format!("{name}.step of {count}, µs"), cost);
    }
    report.limit(&format!("{name}: a step of {longest} / a step of {BLOCK}"), ratio, 1.2);
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

/// What a step costs in a run of this number of steps.
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
        status: vec![semel::rules::status::Status::Running],
        workflow: vec![name],
        ..semel::store::Query::all(engine.workspace(), 10)
    };
    for run in engine.store().list(query).await? {
        engine.run(run.id()).cancel("measured").await?;
    }
    Place::close(&engine, Duration::ZERO).await?;
    Ok(took)
}
