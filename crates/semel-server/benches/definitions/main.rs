//! What the interpreter of definitions costs: ten trivial tasks as a definition against the same workflow in Rust, in turns on one
//! engine and one file. Absolute figures differ from machine to machine; what decides is the ratio. Part of `make bench`; writes
//! `target/bench/definitions.json`.
//!
//! A trivial task is a keyed step whose body adds a number to its input: what a task of the server does around its own work, and
//! nothing else. No task of the server is as cheap; so the benchmark brings one.
//!
//! `SEMEL_BENCH_SECONDS` sets the time for each figure (6), `SEMEL_BENCH_CALLERS` the callers (`1,1024`), `SEMEL_BENCH_PHASES` what is
//! measured (`rust,definition`; one alone is for profilers, and decides nothing).
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![allow(missing_docs, reason = "a program, not a library")]
#![allow(clippy::cast_precision_loss, reason = "figures for people")]

#[allow(dead_code, reason = "shared with the store benchmark, which needs all of it")]
#[path = "../../../semel/benches/store/report.rs"]
mod report;
mod trivial;
#[path = "../../../semel/benches/store/turns.rs"]
mod turns;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use report::{Rate, Report};
use semel::{Ctx, Engine, Result, WorkflowRef};
use serde_json::Value as Json;
use turns::under_load;

type Anything<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Steps of a run.
const STEPS: u64 = 10;
/// How often the two are measured, one right after the other. The ratio in the middle counts.
const ROUNDS: usize = 5;
/// Least share of the steps per second of Rust, by many callers and by one.
const LEAST: [(usize, f64); 2] = [(1, 0.95), (1024, 0.6)];

/// The definition, as any engine that hosts it knows it.
const DEFINED: WorkflowRef<Json, Json> = WorkflowRef::new("defined").version("def1_trivial");

static DONE: AtomicU64 = AtomicU64::new(0);

/// The work of a step.
fn add(sum: u64, n: u64) -> u64 {
    DONE.fetch_add(1, Ordering::Relaxed);
    sum + n
}

/// The same in Rust.
async fn rust(ctx: Ctx, mut sum: u64) -> Result<u64> {
    for n in 1..=STEPS {
        sum = ctx.step(format!("step{n}")).run(async |_| Ok(add(sum, n))).await?;
    }
    Ok(sum)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Written {
    InRust,
    AsDefinition,
}

impl Written {
    async fn run(self, engine: &Engine) -> Result<(), semel::Error> {
        static STARTED: AtomicU64 = AtomicU64::new(0);
        let key = format!("order-{}", STARTED.fetch_add(1, Ordering::Relaxed));
        let sum = match self {
            Self::InRust => engine.start(rust, 7u64).key(key).await?.result().await?,
            Self::AsDefinition => {
                let run = engine.start(DEFINED, Json::from(7)).key(key).await?;
                run.result().await?.as_u64().unwrap_or_default()
            }
        };
        assert_eq!(sum, 7 + STEPS * (STEPS + 1) / 2, "both add the same");
        Ok(())
    }

    fn label(self) -> &'static str {
        match self {
            Self::InRust => "rust",
            Self::AsDefinition => "definition",
        }
    }
}

fn setting<T: std::str::FromStr>(name: &str, default: T) -> T {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn main() -> Anything<()> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(bench())
}

async fn bench() -> Anything<()> {
    let time = Duration::from_secs(setting("SEMEL_BENCH_SECONDS", 6));
    let callers: String = setting("SEMEL_BENCH_CALLERS", "1,1024".to_owned());
    let phases: String = setting("SEMEL_BENCH_PHASES", "rust,definition".to_owned());
    let folder = tempfile::tempdir()?;
    let store = format!("sqlite:{}", folder.path().join("semel.db").display());
    let engine = Engine::builder()
        .store(store)
        .workflow("rust", rust)
        .programs(trivial::Hosted::new()?)
        .open()
        .await?;
    let mut report = Report::default();
    println!("Ten trivial tasks as a definition and in Rust, on SQLite");
    for callers in callers.split(',').filter_map(|n| n.parse().ok()) {
        measure(&mut report, &engine, callers, time / 3, &phases).await?;
    }
    report.summary();
    report.write(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/bench/definitions.json"))?;
    println!("written to target/bench/definitions.json");
    engine.shutdown(Duration::from_secs(5)).await?;
    Ok(())
}

async fn measure(
    report: &mut Report,
    engine: &Engine,
    callers: usize,
    time: Duration,
    phases: &str,
) -> Anything<()> {
    let wanted = |written: &Written| phases.split(',').any(|phase| phase == written.label());
    let both: Vec<_> = [Written::InRust, Written::AsDefinition].into_iter().filter(wanted).collect();
    let (mut rates, mut ratios) = (vec![Vec::new(); both.len()], Vec::new());
    for _ in 0..ROUNDS {
        for (written, rates) in both.iter().zip(&mut rates) {
            rates.push(steps(engine, *written, callers, time).await?);
        }
        if let [rust, defined] = &rates[..] {
            let last = |rates: &[Rate]| rates.last().map_or(0.0, |rate| rate.per_second);
            ratios.push(last(defined) / last(rust));
        }
    }
    for (written, rates) in both.iter().zip(rates) {
        report.rate(&format!("{}.steps.{callers}", written.label()), Rate::middle(rates));
    }
    ratios.sort_by(f64::total_cmp);
    if let Some(ratio) = ratios.get(ratios.len() / 2) {
        let least = LEAST.iter().find(|(known, _)| *known == callers).map_or(0.6, |(_, least)| *least);
        report.goal(&format!("definition.steps.{callers} / rust.steps.{callers}"), *ratio, least);
    }
    Ok(())
}

/// Whole runs, one after the other per caller: steps per second, without the time in which the callers spread out.
async fn steps(engine: &Engine, written: Written, callers: usize, time: Duration) -> Anything<Rate> {
    let (spread, counted) = (time / 4, time / 4 * 3);
    let load = under_load(callers, time, |_, mut turns| {
        let engine = engine.clone();
        async move {
            while turns.begin() {
                written.run(&engine).await?;
                turns.end();
            }
            Ok::<_, semel::Error>(turns)
        }
    });
    let counting = async {
        tokio::time::sleep(spread).await;
        let (begun, before) = (Instant::now(), DONE.load(Ordering::Relaxed));
        tokio::time::sleep(counted).await;
        (DONE.load(Ordering::Relaxed) - before) as f64 / begun.elapsed().as_secs_f64()
    };
    let (rate, per_second) = tokio::join!(load, counting);
    Ok(Rate { per_second, ..rate? })
}
