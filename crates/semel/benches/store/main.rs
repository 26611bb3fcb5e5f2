//! The store benchmark: `make bench`. Absolute figures differ from machine to machine; what decides is the ratio to the
//! disk's own limit, and to one transaction per step, in the same run. Writes `target/bench/store.json`.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![allow(missing_docs, reason = "a program, not a library")]
#![allow(clippy::cast_precision_loss, reason = "figures for people")]

mod disk;
mod load;
mod report;

use std::sync::Arc;
use std::time::Duration;

use load::Load;
use report::rss_mib;
use semel::store::sqlite::{SqliteOptions, SqliteStore};
use serde_json::{Value, json};

type Anything<T> = Result<T, Box<dyn std::error::Error>>;

const CALLERS: [usize; 4] = [1, 16, 256, 4_096];

fn main() -> Anything<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(bench())
}

async fn bench() -> Anything<()> {
    let time = Duration::from_secs(
        std::env::var("SEMEL_BENCH_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(3),
    );
    let folder = tempfile::tempdir()?;
    let mut out = json!({});
    println!("disk, {}", folder.path().display());
    let alone = disk::alone(folder.path(), time)?;
    println!("  alone            {alone}");
    out["disk"]["alone"] = alone.json();
    let mut grouped = Vec::new();
    for callers in CALLERS {
        let rate = disk::grouped(folder.path(), callers, time).await?;
        println!("  {callers:>5} grouped    {rate}");
        out["disk"]["grouped"][callers.to_string()] = rate.json();
        grouped.push(rate.per_second);
    }
    println!("SQLite, synchronous=FULL");
    let path = folder.path().join("bench.db");
    let store = SqliteStore::open(SqliteOptions::new(&path)).await?;
    let load = Load::new(Arc::new(store)).await?;
    for (callers, raw) in CALLERS.into_iter().zip(&grouped) {
        let rate = load.commits(callers, time).await?;
        println!(
            "  {callers:>5} commits    {rate}  {:.2} of raw  {:.2} of fsync",
            rate.per_second / raw,
            rate.per_second / alone.per_second
        );
        out["sqlite"]["commits"][callers.to_string()] = rate.json();
    }
    let new = load.starts(256, None, time).await?;
    println!("  new starts       {new}");
    let duplicates = load.starts(256, Some(1_000), time).await?;
    println!("  duplicates       {duplicates}");
    println!("  equal            {}", load.equal_starts(256, 10_000).await?);
    println!("  rss {:.0} MiB", rss_mib());
    let _: Value = out.take();
    Ok(())
}
