//! Workers in Rust, TypeScript and Python, one after the other, each on a server of its own with the same runs: `make bench-workers`.
//!
//! `SEMEL_BENCH_SDKS` has a line for each program: its name, the share of the Rust worker's steps that it is to reach in per cent
//! (0: it is only reported), the time in which it is to finish a run of ten steps in milliseconds, the interpreter and the file.

use std::process::Stdio;
use std::time::{Duration, Instant};

use semel::Engine;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::figures::Figures;
use crate::server::Process;
use crate::starts::BATCH;
use crate::wire::Wire;
use crate::worker::{executed, ten};
use crate::{Anything, Extent, setting};

/// Runs of ten steps that are there when a worker begins: more than it finishes while it is measured.
const RUNS: u64 = 60_000;
/// Longest time for a sleep of 50 ms, in milliseconds.
const NAP: f64 = 100.0;

pub(crate) async fn measure(extent: &Extent, figures: &mut Figures) -> Anything<()> {
    let runs = setting("SEMEL_BENCH_RUNS", RUNS);
    println!("Workers in three languages on servers on SQLite, {runs} runs of ten steps");
    let rust = {
        let server = filled(runs).await?;
        of_rust(&server.url, extent.time).await?
    };
    figures.number("sdks.rust.stepsPerSecond", rust);
    for line in setting("SEMEL_BENCH_SDKS", String::new()).lines() {
        let [name, share, run_ms, interpreter, file] = line.split_whitespace().collect::<Vec<_>>()[..] else {
            return Err(format!("{line:?} is not a name, two numbers, an interpreter and a file").into());
        };
        let play =
            async |what: &str, server: Process| play(&server, extent.time, interpreter, file, what).await;
        let steps = number(&play("steps", filled(runs).await?).await?, "stepsPerSecond")?;
        figures.number(&format!("sdks.{name}.stepsPerSecond"), steps);
        let percent = steps * 100.0 / rust;
        match share.parse::<f64>()? {
            0.0 => figures.number(&format!("sdks.{name}.percentOfRust"), percent),
            share => figures.goal(&format!("sdks.{name}.percentOfRust"), percent, share),
        }
        let latency = play("latency", Process::spawn()?).await?;
        figures.limit(&format!("sdks.{name}.runOfTenMs"), number(&latency, "runMs")?, run_ms.parse()?);
        figures.limit(&format!("sdks.{name}.sleepOf50Ms"), number(&latency, "napMs")?, NAP);
    }
    Ok(())
}

/// A server with this number of runs that no worker drives yet.
async fn filled(runs: u64) -> Anything<Process> {
    let server = Process::spawn()?;
    let mut wire = Wire::connect(&server.url).await?;
    for from in (0..runs).step_by(usize::try_from(BATCH)?) {
        let start = |n: u64| json!({"workflow": "ten", "input": 0, "idempotencyKey": format!("ten-{n}")});
        let starts: Vec<Value> = (from..from + BATCH).map(start).collect();
        let (status, answer) =
            wire.post("/workflow-runs/batch", &json!({"runs": starts}).to_string()).await?;
        if status != 200 {
            return Err(answer.into());
        }
    }
    Ok(server)
}

/// Steps a second of a worker in this process.
async fn of_rust(url: &str, time: Duration) -> Anything<f64> {
    let before = executed();
    let engine = Engine::builder().store(url).workflow("ten", ten).open().await?;
    while executed() == before {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let (before, begun) = (executed(), Instant::now());
    tokio::time::sleep(time).await;
    let steps = (executed() - before) as f64 / begun.elapsed().as_secs_f64();
    engine.shutdown(Duration::from_secs(5)).await?;
    Ok(steps)
}

/// What a program prints, at the root of the repository.
async fn play(
    server: &Process,
    time: Duration,
    interpreter: &str,
    file: &str,
    what: &str,
) -> Anything<Value> {
    let mut program = Command::new(interpreter);
    program.args([file, what]).current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    program.env("SEMEL_URL", &server.url).env("SEMEL_BENCH_SECONDS", time.as_secs_f64().to_string());
    let ended = program.stderr(Stdio::inherit()).kill_on_drop(true).output().await?;
    if !ended.status.success() {
        return Err(format!("{interpreter} {file} {what} has failed").into());
    }
    Ok(serde_json::from_slice(&ended.stdout)?)
}

fn number(printed: &Value, name: &str) -> Anything<f64> {
    printed[name].as_f64().ok_or_else(|| format!("{printed} has no {name}").into())
}
