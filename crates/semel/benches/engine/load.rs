//! Many callers that each start a run and await its result, with keys of their own and without; one caller alone; many callers of one key.

use std::path::Path;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, UNIX_EPOCH};

use semel::Engine;
use semel::rules::entry::Entry;
use tokio::task::JoinSet;

use crate::place::Place;
use crate::report::{Latencies, Rate, Report};
use crate::store::Load;
use crate::turns::under_load;
use crate::workflows::{self, STEPS_OF_TEN, one, ten};
use crate::{Anything, Extent, baseline, disk};

/// Rounds in which compared figures are measured, one right after the other; the median of the ratios counts. On a
/// machine that is not alone on its host, two measurements are only comparable if they are neighbours.
const ROUNDS: usize = 5;

/// Number of measurements that share the time given for a figure.
const SHARES: u32 = 3;

/// The one in the middle.
pub(crate) fn middle(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Callers that ask for runs which are there.
const STARTERS: usize = 256;

pub(crate) async fn measure(
    report: &mut Report,
    name: &str,
    extent: &Extent,
    place: &Place,
    folder: &Path,
) -> Anything<()> {
    let engine = place.engine().await?;
    let load = Load::new(engine.store().clone()).await?;
    if extent.has("alone") {
        alone(report, name, &engine, &load, place, extent.time, folder).await?;
    }
    if extent.has("profile") {
        for &callers in &extent.callers {
            for keys in [Keys::Given, Keys::Absent] {
                let rate = whole_runs(&engine, keys, callers, extent.time).await?;
                report.rate(&format!("{name}.steps.{callers}{}", keys.label()), rate);
            }
        }
    }
    if extent.has("load") {
        throughput(report, name, &engine, &load, extent).await?;
    }
    if extent.has("duplicates") {
        duplicates(report, name, &engine, &load, extent.time).await?;
    }
    Ok(Place::close(&engine, Duration::from_secs(5)).await?)
}

/// Whether runs are started under keys of their caller, as users do, or without. A key has to be looked for before the run
/// is made, and has its place in an index.
#[derive(Clone, Copy, PartialEq)]
enum Keys {
    Given,
    Absent,
}

impl Keys {
    /// What is added to the name of a figure.
    fn label(self) -> &'static str {
        match self {
            Self::Given => "",
            Self::Absent => ".without keys",
        }
    }
}

/// Tells the keys of this process from those of others: a database may have seen this benchmark before.
static PROCESS: LazyLock<u128> = LazyLock::new(|| UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos()));

async fn run_ten(engine: &Engine, keys: Keys) -> semel::Result<(), semel::Error> {
    static STARTED: AtomicU64 = AtomicU64::new(0);
    let start = engine.start(ten, 7u64);
    let started = match keys {
        Keys::Given => {
            let n = STARTED.fetch_add(1, Ordering::Relaxed);
            start.key(format!("order-{}-{n}", *PROCESS)).await?
        }
        Keys::Absent => start.await?,
    };
    started.result().await.map(drop)
}

/// Whole runs of ten steps, one after the other per caller: their latencies, and steps per second.
///
/// Steps are counted, not runs: callers that began together end together, and an end of thousands falls into the
/// time or not. The first part, in which they spread out, does not count.
async fn whole_runs(engine: &Engine, keys: Keys, callers: usize, time: Duration) -> Anything<Rate> {
    let (spread, counted) = (time / 4, time / 4 * 3);
    let load = under_load(callers, time, |_, mut turns| {
        let engine = engine.clone();
        async move {
            while turns.begin() {
                run_ten(&engine, keys).await?;
                turns.end();
            }
            Ok::<_, semel::Error>(turns)
        }
    });
    let steps = async {
        tokio::time::sleep(spread).await;
        let (begun, before) = (Instant::now(), workflows::steps());
        tokio::time::sleep(counted).await;
        (workflows::steps() - before) as f64 / begun.elapsed().as_secs_f64()
    };
    let (rate, per_second) = tokio::join!(load, steps);
    Ok(Rate { per_second, ..rate? })
}

async fn throughput(
    report: &mut Report,
    name: &str,
    engine: &Engine,
    load: &Load,
    extent: &Extent,
) -> Anything<()> {
    let mut best = (0, 0.0, 0.0);
    for &callers in &extent.callers {
        let (mut commits, mut steps, mut keyless, mut ratios) = (vec![], vec![], vec![], vec![]);
        for _ in 0..ROUNDS {
            let of_store = load.commits(callers, extent.time / SHARES).await?;
            let of_engine = whole_runs(engine, Keys::Given, callers, extent.time / SHARES).await?;
            keyless.push(whole_runs(engine, Keys::Absent, callers, extent.time / SHARES).await?);
            ratios.push(of_engine.per_second / of_store.per_second);
            commits.push(of_store);
            steps.push(of_engine);
        }
        let (commits, steps, ratio) = (Rate::middle(commits), Rate::middle(steps), middle(ratios));
        report.rate(&format!("{name}.commits.{callers}"), commits);
        report.rate(&format!("{name}.steps.{callers}"), steps);
        report.rate(&format!("{name}.steps.{callers}{}", Keys::Absent.label()), Rate::middle(keyless));
        report.number(&format!("{name}.steps.{callers} / commits"), ratio);
        if steps.per_second > best.1 {
            best = (callers, steps.per_second, ratio);
        }
    }
    let (callers, steps, ratio) = best;
    report.number(&format!("{name}.best.callers"), callers as f64);
    report.number(&format!("{name}.best.runs"), steps / STEPS_OF_TEN as f64);
    report.goal(&format!("{name}.steps"), steps, if name == "sqlite" { 100_000.0 } else { 50_000.0 });
    report.goal(&format!("{name}.steps.{callers} / {name}.commits.{callers}"), ratio, 0.5);
    let half = half_load(engine, steps / STEPS_OF_TEN as f64 / 2.0, extent.time).await?;
    report.rate(&format!("{name}.runs.half-load"), half);
    Ok(())
}

/// Runs that begin at a given rate, whatever becomes of those before.
async fn half_load(engine: &Engine, per_second: f64, time: Duration) -> Anything<Rate> {
    let (begun, mut runs) = (Instant::now(), JoinSet::new());
    let mut asked = 0u32;
    while begun.elapsed() < time {
        let due = (begun.elapsed().as_secs_f64() * per_second) as u32;
        for n in asked..due {
            let engine = engine.clone();
            // Late is late, even if it was the caller who came late.
            let due = begun + Duration::from_secs_f64(f64::from(n) / per_second);
            runs.spawn(async move { run_ten(&engine, Keys::Given).await.map(|()| due.elapsed()) });
        }
        asked = due;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let elapsed = begun.elapsed();
    let mut latencies = Latencies::default();
    while let Some(latency) = runs.join_next().await {
        latencies.add(latency??);
    }
    Ok(latencies.rate(elapsed))
}

/// One run at a time, against the disk's own time for as many commits; and against the database's, which is what a run
/// could take at best.
async fn alone(
    report: &mut Report,
    name: &str,
    engine: &Engine,
    load: &Load,
    place: &Place,
    time: Duration,
    folder: &Path,
) -> Anything<()> {
    let time = time / SHARES;
    let commits_of_run = commits_of_a_run(engine).await?;
    report.number(&format!("{name}.commits of a run"), commits_of_run);
    let (mut syncs, mut bare, mut commits) = (Vec::new(), Vec::new(), Vec::new());
    let (mut runs, mut keyless) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        syncs.push(disk::alone(folder, time)?);
        if let Place::Postgres { url, .. } = place {
            bare.push(baseline::one_statement_per_step(url, 1, time).await?);
        }
        runs.push(whole_runs_alone(engine, Keys::Given, time).await?);
        commits.push(load.commits(1, time).await?);
        keyless.push(whole_runs_alone(engine, Keys::Absent, time).await?);
    }
    let taken = |by: &[Rate]| {
        let ratios = by.iter().zip(&runs).map(|(by, run)| by.per_second / (run.per_second * commits_of_run));
        middle(ratios.collect())
    };
    report.limit(&format!("{name}: a run alone / (commits * fdatasync)"), taken(&syncs), 1.5);
    if !bare.is_empty() {
        report.limit(&format!("{name}: a run alone / (commits * bare commit)"), taken(&bare), 1.5);
        let ratios = syncs.iter().zip(&bare).map(|(sync, bare)| sync.per_second / bare.per_second);
        report.number(&format!("{name}: bare commit / fdatasync"), middle(ratios.collect()));
        report.rate(&format!("{name}.bare commits.alone"), Rate::middle(bare));
    }
    report.rate(&format!("{name}.disk.alone"), Rate::middle(syncs));
    report.rate(&format!("{name}.commits.alone"), Rate::middle(commits));
    report.rate(&format!("{name}.runs.alone"), Rate::middle(runs));
    report.rate(&format!("{name}.runs.alone{}", Keys::Absent.label()), Rate::middle(keyless));
    Ok(())
}

/// Whole runs of ten steps of one caller.
async fn whole_runs_alone(engine: &Engine, keys: Keys, time: Duration) -> Anything<Rate> {
    let rate = under_load(1, time, |_, mut turns| {
        let engine = engine.clone();
        async move {
            while turns.begin() {
                run_ten(&engine, keys).await?;
                turns.end();
            }
            Ok::<_, semel::Error>(turns)
        }
    });
    Ok(rate.await?)
}

/// One for the start, one for each step; the end rides on the last.
async fn commits_of_a_run(engine: &Engine) -> Anything<f64> {
    let run = engine.start(ten, 7u64).await?;
    run.result().await?;
    let ledger = run.ledger().await?;
    let steps = ledger.iter().filter(|n| matches!(n.entry, Entry::StepCompleted { .. })).count();
    Ok((1 + steps) as f64)
}

async fn duplicates(
    report: &mut Report,
    name: &str,
    engine: &Engine,
    load: &Load,
    time: Duration,
) -> Anything<()> {
    const KEYS: usize = 1_000;
    for n in 0..KEYS {
        engine.start(one, n as u64).key(format!("again-{n}")).await?.result().await?;
    }
    let store = load.starts(STARTERS, Some(KEYS), time / 2).await?;
    let rate = under_load(STARTERS, time / 2, |mut n, mut turns| {
        let engine = engine.clone();
        async move {
            while turns.begin() {
                n += 1;
                let run = engine.start(one, (n % KEYS) as u64).key(format!("again-{}", n % KEYS)).await?;
                turns.end();
                assert!(!run.created(), "a duplicate creates nothing");
            }
            Ok::<_, semel::Error>(turns)
        }
    });
    let rate = rate.await?;
    report.rate(&format!("{name}.duplicates.store"), store);
    report.rate(&format!("{name}.duplicates"), rate);
    Ok(())
}
