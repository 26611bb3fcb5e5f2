//! The store benchmark: `make bench`. Absolute figures differ from machine to machine; what decides is the ratio to the
//! disk's own limit, and to one statement per step, in the same run. Writes `target/bench/store.json`.
//!
//! `SEMEL_BENCH_SECONDS` sets the time for each figure (6), `SEMEL_BENCH_ENTRIES` the ledger entries of the full store
//! (5,000,000), `SEMEL_BENCH_ONLY` one of `sqlite`, `postgres`. `SEMEL_BENCH_PHASES=hosted` measures only the claims of hosted
//! workflows; without it they are measured last.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![allow(missing_docs, reason = "a program, not a library")]
#![allow(clippy::cast_precision_loss, reason = "figures for people")]

mod baseline;
mod disk;
mod hosted;
mod load;
mod report;
mod turns;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use load::Load;
use report::{Rate, Report, resident_mib};
use semel::store::postgres::{PostgresOptions, PostgresStore};
use semel::store::sqlite::{SqliteOptions, SqliteStore};

type Anything<T> = Result<T, Box<dyn std::error::Error>>;

const CALLERS: [usize; 4] = [1, 16, 256, 4_096];

/// Turns in which compared figures are measured; the median counts.
const ROUNDS: u32 = 3;

/// Beside the 256 callers of the goals for starts.
const STARTERS: usize = 256;

fn main() -> Anything<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(bench())
}

fn setting<T: std::str::FromStr>(name: &str, default: T) -> T {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

async fn bench() -> Anything<()> {
    let time = Duration::from_secs(setting("SEMEL_BENCH_SECONDS", 6));
    let only: String = setting("SEMEL_BENCH_ONLY", String::new());
    let folder = tempfile::tempdir()?;
    let mut report = Report::default();
    let phases: String = setting("SEMEL_BENCH_PHASES", String::new());
    if phases != "hosted" {
        if only != "postgres" {
            sqlite(&mut report, folder.path(), time).await?;
        }
        if only != "sqlite" {
            postgres(&mut report, folder.path(), time).await?;
        }
    }
    hosted(&mut report, folder.path(), &only).await?;
    report.summary();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/bench/store.json");
    report.write(&path)?;
    println!("written to target/bench/store.json");
    Ok(())
}

async fn sqlite(report: &mut Report, folder: &Path, time: Duration) -> Anything<()> {
    println!("SQLite, synchronous=FULL; the disk's own limit beside it");
    let open = async |name: &str| SqliteStore::open(SqliteOptions::new(folder.join(name))).await;
    let load = Load::new(Arc::new(open("bench.db").await?)).await?;
    for callers in CALLERS {
        // In turns, so that a noisy neighbour disturbs all of them alike.
        let (mut alone, mut raw, mut rate) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            if callers == 1 {
                alone.push(disk::alone(folder, time / ROUNDS)?);
            }
            raw.push(disk::grouped(folder, callers, time / ROUNDS).await?);
            rate.push(load.commits(callers, time / ROUNDS).await?);
        }
        let (raw, rate) = (Rate::middle(raw), Rate::middle(rate));
        report.rate(&format!("disk.grouped.{callers}"), raw);
        report.rate(&format!("sqlite.commits.{callers}"), rate);
        let ratio = rate.per_second / raw.per_second;
        match callers {
            1 => {
                let alone = Rate::middle(alone);
                report.rate("disk.alone", alone);
                report.goal("sqlite.commits.1 / disk.alone", rate.per_second / alone.per_second, 0.7);
            }
            256 => report.goal("sqlite.commits.256 / disk.grouped.256", ratio, 0.25),
            4_096 => report.goal("sqlite.commits.4096 / disk.grouped.4096", ratio, 0.15),
            _ => {}
        }
    }
    starts(report, "sqlite", &load, time).await?;
    let rate = report.value("sqlite.starts.duplicate");
    report.goal("sqlite.starts.duplicate", rate, 100_000.0);
    load.store.close().await?;
    full(report, &Load::new(Arc::new(open("full.db").await?)).await?, time).await
}

/// A store with many entries against itself when it was empty, and the memory that finished runs take.
async fn full(report: &mut Report, load: &Load, time: Duration) -> Anything<()> {
    let entries: u64 = setting("SEMEL_BENCH_ENTRIES", 5_000_000);
    let empty = load.commits(4_096, time).await?;
    report.rate("sqlite.empty", empty);
    load.whole_runs(4_096, entries / 5).await?;
    let (before, mut there) = (resident_mib("VmRSS:"), entries / 5);
    while there < entries {
        let more = (entries - there).min(entries / 5);
        load.whole_runs(4_096, more).await?;
        there += more;
        println!("  {there} entries, {:.0} MiB resident", resident_mib("VmRSS:"));
    }
    let after = resident_mib("VmRSS:");
    report.number("sqlite.full.entries", there as f64);
    report.number("sqlite.rss.mib", after);
    report.limit("resident memory, five times the finished runs", after / before, 1.1);
    let rate = load.commits(4_096, time).await?;
    report.rate("sqlite.full", rate);
    report.goal("sqlite.full / sqlite.empty", rate.per_second / empty.per_second, 0.6);
    Ok(load.store.close().await?)
}

async fn starts(report: &mut Report, name: &str, load: &Load, time: Duration) -> Anything<()> {
    report.rate(&format!("{name}.starts.new"), load.starts(STARTERS, None, time).await?);
    report.rate(&format!("{name}.starts.duplicate"), load.starts(STARTERS, Some(1_000), time).await?);
    let runs = load.equal_starts(STARTERS, 10_000).await?;
    report.limit(&format!("{name}: runs of 10,000 equal starts"), runs as f64, 1.0);
    Ok(())
}

/// Claims of hosted workflows, on stores of their own.
async fn hosted(report: &mut Report, folder: &Path, only: &str) -> Anything<()> {
    if only != "postgres" {
        println!("SQLite, claims of hosted workflows");
        let store = SqliteStore::open(SqliteOptions::new(folder.join("hosted.db"))).await?;
        let load = Load::new(Arc::new(store)).await?;
        hosted::measure(report, "sqlite", &load).await?;
        load.store.close().await?;
    }
    if let Some(url) = baseline::url().filter(|_| only != "sqlite") {
        println!("PostgreSQL, claims of hosted workflows");
        let options =
            PostgresOptions { schema: Some("bench_hosted".to_owned()), ..PostgresOptions::new(&url) };
        let load = Load::new(Arc::new(PostgresStore::open(options).await?)).await?;
        hosted::measure(report, "postgres", &load).await?;
        load.store.close().await?;
    }
    Ok(())
}

async fn postgres(report: &mut Report, folder: &Path, time: Duration) -> Anything<()> {
    let Some(url) = baseline::url() else {
        println!("PostgreSQL is left out: run under scripts/with-postgres");
        return Ok(());
    };
    println!("PostgreSQL, default durability; one statement per step over a pool beside it");
    let options = PostgresOptions { schema: Some("bench".to_owned()), ..PostgresOptions::new(&url) };
    let load = Load::new(Arc::new(PostgresStore::open(options).await?)).await?;
    for callers in CALLERS {
        let (mut rate, mut single) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            rate.push(load.commits(callers, time / ROUNDS).await?);
            if callers == 4_096 {
                single.push(baseline::one_statement_per_step(&url, callers, time / ROUNDS).await?);
            }
        }
        let rate = Rate::middle(rate);
        report.rate(&format!("postgres.commits.{callers}"), rate);
        if callers == 4_096 {
            let single = Rate::middle(single);
            report.rate("postgres.one-by-one.4096", single);
            report.goal("postgres.commits.4096 / one-by-one", rate.per_second / single.per_second, 5.0);
        }
    }
    starts(report, "postgres", &load, time).await?;
    let rate = report.value("postgres.starts.new");
    report.goal("postgres.starts.new", rate, 20_000.0);
    report.rate("postgres.disk.alone", disk::alone(folder, time)?);
    Ok(load.store.close().await?)
}
