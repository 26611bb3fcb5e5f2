//! Long runs of one remote worker: the server checks each commit with a fold of the run's ledger. What it keeps in memory has a
//! bound, and a commit must not cost more when the runs have become long.

use std::time::{Duration, Instant};

use semel::clock::{Clock as _, SystemClock};
use semel::id::{NodeId, RunId};
use serde_json::{Value, json};

use crate::figures::Figures;
use crate::wire::Wire;
use crate::{Anything, setting};

/// Steps of each run before the measurement ends, and at either end of it those whose time is compared.
const STEPS: usize = 660;
const EDGE: usize = 60;
/// What is asked for: how much longer a round takes at the end than at the beginning.
const GROWTH: f64 = 2.0;
const LEASE_MS: u64 = 3_600_000;

pub(crate) async fn measure(url: &str, figures: &mut Figures) -> Anything<()> {
    let count: usize = setting("SEMEL_BENCH_FOLDS", 1_000);
    let rounds = setting("SEMEL_BENCH_FOLDED", STEPS).max(2);
    println!("{count} runs of {rounds} steps by a remote worker, one step of each in a round");
    let mut wire = Wire::connect(url).await?;
    let runs = driven(&mut wire, count).await?;
    let mut took = Vec::new();
    for round in 0..rounds {
        let commit = |run: &RunId| {
            let step = format!("step-{round}");
            let (started, completed) =
                (json!({"step": step, "attempt": 1}), json!({"step": step, "value": round}));
            let entries = [json!({"stepStarted": started}), json!({"stepCompleted": completed})];
            json!({"run": run, "expected": 2 + 2 * round, "entries": entries})
        };
        let body = json!({"commits": runs.iter().map(commit).collect::<Vec<_>>()}).to_string();
        let begun = Instant::now();
        let answer = ask(&mut wire, "/workers/commit", &body).await?;
        took.push(begun.elapsed());
        if let Some(refused) =
            answer["answers"].as_array().into_iter().flatten().find(|one| one["ok"].is_null())
        {
            return Err(format!("a commit of round {round} is refused: {refused}").into());
        }
    }
    let edge = EDGE.min(rounds / 2);
    let (first, last) = (mean(&took[..edge]), mean(&took[rounds - edge..]));
    figures.number("folds.firstRoundsMs", first * 1_000.0);
    figures.number("folds.lastRoundsMs", last * 1_000.0);
    figures.ratio("folds.lastToFirstRounds", last / first, GROWTH);
    Ok(())
}

/// Runs that a worker has started and drives: two entries each.
async fn driven(wire: &mut Wire, count: usize) -> Anything<Vec<RunId>> {
    let clock = SystemClock::new();
    let node = NodeId(clock.uuid());
    let join = json!({"node": node, "name": "folds", "serves": ["folds@1"], "leaseMs": LEASE_MS});
    ask(wire, "/workers", &join.to_string()).await?;
    let runs: Vec<RunId> = (0..count).map(|_| RunId(clock.uuid())).collect();
    let start = |run: &RunId| json!({"run": run, "workflow": "folds", "input": null, "key": run.to_string(), "claim": node});
    let starts = json!({"starts": runs.iter().map(start).collect::<Vec<_>>()}).to_string();
    let answer = ask(wire, "/workers/start", &starts).await?;
    match answer["answers"].as_array().into_iter().flatten().find(|one| one["ok"].is_null()) {
        None => Ok(runs),
        Some(refused) => Err(format!("a start is refused: {refused}").into()),
    }
}

async fn ask(wire: &mut Wire, path: &str, body: &str) -> Anything<Value> {
    let (status, answer) = wire.post(path, body).await?;
    if status >= 300 {
        return Err(format!("{path} is answered with {status}: {answer}").into());
    }
    Ok(serde_json::from_str(&answer)?)
}

fn mean(times: &[Duration]) -> f64 {
    times.iter().sum::<Duration>().as_secs_f64() / times.len() as f64
}
