//! Pushes of definitions with 100 steps, and starts of them.

use std::fmt::Write as _;
use std::time::Instant;

use tokio::task::JoinSet;

use crate::figures::Figures;
use crate::wire::Wire;
use crate::{Anything, Extent};

/// What is asked for: 99 of 100 pushes are answered within this many milliseconds.
const GOAL: f64 = 50.0;
/// Steps of a definition.
const STEPS: usize = 100;
/// Pushes of one caller.
const PUSHES: usize = 500;
/// Names that a caller pushes versions of.
const NAMES: usize = 10;
/// Callers at the same time, where there are several.
const CALLERS: usize = 4;
/// Concurrent callers that start runs.
const STARTING: usize = 64;

/// A definition with 100 steps that have expressions; every number gives another one.
fn definition(name: &str, number: usize) -> String {
    let mut text = format!(
        "semel: 1\nname: {name}\ninput: {{type: object, required: [n], properties: {{n: {{type: integer}}}}}}\nsteps:\n"
    );
    for step in 0..STEPS {
        writeln!(
            text,
            "  - {{name: s{step}, if: \"{{{{ input.n > {step} }}}}\", set: {{v{step}: \"{{{{ input.n * {number} + {step} }}}}\", of: [\"a {{{{ \
             input.n }}}}\", {{b: {step}}}]}}}}"
        )
        .expect("a text takes everything");
    }
    text
}

pub(crate) async fn measure(url: &str, extent: &Extent, figures: &mut Figures) -> Anything<()> {
    println!("Pushes of definitions with {STEPS} steps to a server on SQLite");
    let mut alone = pushes(url, "alone", 201).await?;
    figures.limit("push.p99Millis", percentile(&mut alone), GOAL);
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let url = url.to_owned();
        callers.spawn(async move { pushes(&url, &format!("caller{caller}"), 201).await });
    }
    let mut beside = Vec::new();
    while let Some(ended) = callers.join_next().await {
        beside.extend(ended??);
    }
    figures.limit("push.fourCallersP99Millis", percentile(&mut beside), GOAL);
    let mut again = pushes(url, "alone", 200).await?;
    figures.limit("push.unchangedP99Millis", percentile(&mut again), GOAL);
    figures.number("push.startsPerSecond", starts(url, extent).await?);
    Ok(())
}

/// The times of pushes, in milliseconds.
async fn pushes(url: &str, name: &str, status: u16) -> Anything<Vec<f64>> {
    let mut wire = Wire::connect(url).await?;
    let mut times = Vec::with_capacity(PUSHES);
    for number in 0..PUSHES {
        let text = definition(&format!("{name}-{}", number % NAMES), number);
        let begun = Instant::now();
        let (answered, answer) = wire.post("/workflow-definitions", &text).await?;
        times.push(begun.elapsed().as_secs_f64() * 1_000.0);
        if answered != status {
            return Err(format!("{answered}: {answer:.300}").into());
        }
    }
    Ok(times)
}

fn percentile(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() * 99 / 100]
}

/// Starts of a definition a second.
async fn starts(url: &str, extent: &Extent) -> Anything<f64> {
    let begun = Instant::now();
    let mut callers = JoinSet::new();
    for caller in 0..STARTING {
        let (mut wire, end) = (Wire::connect(url).await?, begun + extent.time);
        callers.spawn(async move {
            let mut started = 0u64;
            while Instant::now() < end {
                let body = format!(
                    r#"{{"definitionId":"alone-0","idempotencyKey":"{caller}-{started}","input":{{"n":7}}}}"#
                );
                let (status, answer) = wire.post("/workflow-runs", &body).await?;
                if status != 201 {
                    return Err(format!("{status}: {answer:.300}").into());
                }
                started += 1;
            }
            Anything::Ok(started)
        });
    }
    let mut started = 0;
    while let Some(ended) = callers.join_next().await {
        started += ended??;
    }
    Ok(started as f64 / begun.elapsed().as_secs_f64())
}
