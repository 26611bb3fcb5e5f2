//! The engine benchmark: `make bench`. Absolute figures differ from machine to machine; what decides is the ratio to what
//! the store and the disk do in the same run. Writes `target/bench/engine.json`.
//!
//! `SEMEL_BENCH_QUICK=1` measures everything small, for development. `SEMEL_BENCH_ONLY` is one of `sqlite`, `postgres`;
//! `SEMEL_BENCH_PHASES` some of `load,alone,long,duplicates,children,large,sleepers`, or `profile`: the runs of `load` and nothing
//! else.
//! `SEMEL_BENCH_SECONDS` sets the time for each figure (6), `SEMEL_BENCH_CALLERS` the callers of `load`
//! (64,256,1024,4096), `SEMEL_BENCH_CHILDREN` the children of one run (10000), `SEMEL_BENCH_SLEEPERS` the sleeping runs.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![allow(missing_docs, reason = "a program, not a library")]
#![allow(clippy::cast_precision_loss, reason = "figures for people")]

#[path = "../store/baseline.rs"]
mod baseline;
mod children;
#[allow(dead_code, reason = "shared with the store benchmark, which needs all of it")]
#[path = "../store/disk.rs"]
mod disk;
mod large;
mod load;
mod long;
mod place;
#[allow(dead_code, reason = "shared with the store benchmark, which needs all of it")]
#[path = "../store/report.rs"]
mod report;
mod sleepers;
#[allow(dead_code, reason = "shared with the store benchmark, which needs all of it")]
#[path = "../store/load.rs"]
mod store;
#[path = "../store/turns.rs"]
mod turns;
mod workflows;

use std::path::Path;
use std::time::Duration;

use place::Place;
use report::Report;

type Anything<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// How much is measured.
struct Extent {
    /// For each figure.
    time: Duration,
    callers: Vec<usize>,
    phases: Vec<String>,
    /// The longest run.
    longest: u64,
    /// Of one run.
    children: u64,
    /// Runs that end a step with a large value at once.
    large: usize,
    sleepers: u64,
    naps: u64,
}

impl Extent {
    fn new() -> Self {
        let quick = std::env::var_os("SEMEL_BENCH_QUICK").is_some();
        let seconds = setting("SEMEL_BENCH_SECONDS", if quick { 1 } else { 6 });
        let list = |name, default: &str| -> Vec<String> {
            let text: String = setting(name, default.to_owned());
            text.split(',').map(str::to_owned).collect()
        };
        let callers = list("SEMEL_BENCH_CALLERS", "64,256,1024,4096");
        Self {
            time: Duration::from_secs(seconds),
            callers: callers.iter().filter_map(|n| n.parse().ok()).collect(),
            phases: list("SEMEL_BENCH_PHASES", "load,alone,long,duplicates,children,large,sleepers"),
            longest: if quick { 20_000 } else { 100_000 },
            children: setting("SEMEL_BENCH_CHILDREN", if quick { 1_000 } else { 10_000 }),
            large: if quick { 50 } else { 600 },
            sleepers: setting("SEMEL_BENCH_SLEEPERS", if quick { 20_000 } else { 1_000_000 }),
            naps: if quick { 1_000 } else { 10_000 },
        }
    }

    fn has(&self, phase: &str) -> bool {
        self.phases.iter().any(|wanted| wanted == phase)
    }
}

fn main() -> Anything<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    match Place::given() {
        // A process of its own, started by this benchmark for its memory to be measured.
        Some(place) => runtime.block_on(sleepers::wake(&place)),
        None => runtime.block_on(bench()),
    }
}

fn setting<T: std::str::FromStr>(name: &str, default: T) -> T {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

async fn bench() -> Anything<()> {
    let only: String = setting("SEMEL_BENCH_ONLY", String::new());
    let folder = tempfile::tempdir()?;
    let (mut report, extent) = (Report::default(), Extent::new());
    if only != "postgres" {
        println!("The engine on SQLite");
        let place = |name: &str| Place::Sqlite(folder.path().join(format!("{name}.db")));
        measure(&mut report, "sqlite", &extent, place, folder.path()).await?;
    }
    if only != "sqlite" {
        match baseline::url() {
            None => println!("PostgreSQL is left out: run under scripts/with-postgres"),
            Some(url) => {
                println!("The engine on PostgreSQL");
                let place =
                    |name: &str| Place::Postgres { url: url.clone(), schema: format!("engine_{name}") };
                measure(&mut report, "postgres", &extent, place, folder.path()).await?;
            }
        }
    }
    report.summary();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/bench/engine.json");
    report.write(&path)?;
    println!("written to target/bench/engine.json");
    Ok(())
}

async fn measure(
    report: &mut Report,
    name: &str,
    extent: &Extent,
    place: impl Fn(&str) -> Place,
    folder: &Path,
) -> Anything<()> {
    if ["profile", "load", "alone", "duplicates"].iter().any(|phase| extent.has(phase)) {
        load::measure(report, name, extent, &place("load"), folder).await?;
    }
    if extent.has("long") {
        long::measure(report, name, extent, &place("long")).await?;
    }
    if extent.has("children") {
        children::measure(report, name, extent, &place("children")).await?;
    }
    if extent.has("large") {
        large::measure(report, name, extent, &place("large")).await?;
    }
    if extent.has("sleepers") {
        sleepers::measure(report, name, extent, &place("sleepers")).await?;
    }
    Ok(())
}
