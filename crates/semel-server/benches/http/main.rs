//! The benchmark of the server over loopback: `make bench`. Server and client are two processes on the same processors.
//! Writes `target/bench/http.json` after each phase; a phase that is not measured keeps the figures that are there.
//!
//! `SEMEL_BENCH_PHASES` names the phases (`starts,open,worker,folds,definitions`; `make bench-reads` measures `reads,forget,idle`, `make bench-workers` `sdks`), `SEMEL_BENCH_SECONDS` the time for each figure (6),
//! `SEMEL_BENCH_CALLERS` the callers that start runs at the same time (1024), `SEMEL_BENCH_ENDED` the ended runs of `reads` (1,000,000), `SEMEL_BENCH_FORGOTTEN` the runs past
//! their retention of `forget` (400,000) and `SEMEL_BENCH_LEDGER` the entries of one of them (100,000), `SEMEL_BENCH_IDLE` the workers of `idle` (1,000),
//! `SEMEL_BENCH_FOLDS` the runs of `folds` (1,000) and `SEMEL_BENCH_FOLDED` the steps of each (660).
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![allow(missing_docs, reason = "a program, not a library")]
#![allow(clippy::cast_precision_loss, reason = "figures for people")]

mod definitions;
mod figures;
mod fill;
mod folds;
mod forget;
mod idle;
mod open;
mod reads;
mod sdks;
mod server;
mod starts;
mod wire;
mod worker;

use std::time::Duration;

use figures::Figures;

type Anything<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// How much is measured.
struct Extent {
    /// For each figure.
    time: Duration,
    callers: usize,
}

fn main() -> Anything<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    match server::store_given() {
        // A process of its own, started by this benchmark.
        Some(store) => runtime.block_on(server::serve(store)),
        None => runtime.block_on(bench()),
    }
}

fn setting<T: std::str::FromStr>(name: &str, default: T) -> T {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

async fn bench() -> Anything<()> {
    let extent = Extent {
        time: Duration::from_secs(setting("SEMEL_BENCH_SECONDS", 6)),
        callers: setting("SEMEL_BENCH_CALLERS", 1024),
    };
    let phases: String = setting("SEMEL_BENCH_PHASES", "starts,open,worker,folds,definitions".to_owned());
    let mut figures = Figures::read();
    for phase in phases.split(',') {
        measure(phase, &extent, &mut figures).await?;
        // At once: the figures are there even if a later phase fails.
        figures.write()?;
    }
    Ok(())
}

/// Measures one phase, on servers of its own.
async fn measure(phase: &str, extent: &Extent, figures: &mut Figures) -> Anything<()> {
    match phase {
        "reads" => return reads::measure(figures).await,
        "forget" => return forget::measure(figures).await,
        "idle" => return idle::measure(extent, figures).await,
        "sdks" => return sdks::measure(extent, figures).await,
        _ => {}
    }
    let mut server = server::Process::spawn()?;
    match phase {
        "starts" => starts::measure(&server.url, extent, figures).await,
        "open" => open::measure(&mut server, figures).await,
        "definitions" => definitions::measure(&server.url, extent, figures).await,
        "worker" => worker::measure(&server.url, extent, figures).await,
        "folds" => folds::measure(&server.url, figures).await,
        other => Err(format!("there is no phase {other}").into()),
    }
}
