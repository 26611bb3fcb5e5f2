//! A million runs that sleep: what they cost in memory and at the start of a process, and how late it wakes them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use semel::clock::{Clock, SystemClock, Time};
use semel::rules::entry::Entry;
use semel::rules::path::Name;
use semel::rules::run::Run;
use semel::rules::status::Status;
use semel::store::Query;
use semel::{Engine, Error};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::place::Place;
use crate::report::{Latencies, Report, resident_mib};
use crate::workflows::{self, nap, one, sleeper};
use crate::{Anything, Extent};

/// Filling the store ends after this, with as many as there are.
const PATIENCE: Duration = Duration::from_mins(10);
/// From the start of the naps to the first wake-up: the other process has to be ready by then.
const LEAD: Duration = Duration::from_secs(12);
/// Over so much time the wake-ups are spread.
const SPREAD: Duration = Duration::from_secs(8);
/// So much later as many wake up at one moment.
const PAUSE: Duration = Duration::from_secs(4);

pub(crate) async fn measure(report: &mut Report, name: &str, extent: &Extent, place: &Place) -> Anything<()> {
    let engine = place.engine().await?;
    let begun = Instant::now();
    let asleep = fill(&engine, extent.sleepers).await?;
    report.goal(&format!("{name}: runs that sleep"), asleep as f64, extent.sleepers as f64);
    report.number(&format!("{name}.sleepers put to sleep/s"), asleep as f64 / begun.elapsed().as_secs_f64());
    report.number(&format!("{name}.resident of who put them to sleep, MiB"), resident_mib("VmRSS:"));
    naps(&engine, extent.naps).await?;
    settle(&engine).await?;
    Place::close(&engine, Duration::from_secs(5)).await?;
    drop(engine);

    let mut child = tokio::process::Command::new(std::env::current_exe()?);
    place.give(&mut child);
    let output = child.env("SEMEL_BENCH_NAPS", extent.naps.to_string()).kill_on_drop(true).output().await?;
    if !output.status.success() {
        return Err(format!("the other process failed: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let found: Value = serde_json::from_slice(&output.stdout)?;
    let figure = |name: &str| found[name].as_f64().ok_or(format!("no {name} in {found}"));
    report.limit(&format!("{name}: resident memory with sleepers, MiB"), figure("rssMib")?, 512.0);
    report.limit(&format!("{name}: seconds until ready"), figure("readySeconds")?, 3.0);
    report.number(&format!("{name}.open, ms"), figure("openSeconds")? * 1_000.0);
    report.number(&format!("{name}.resident after naps, MiB"), figure("peakMib")?);
    for wave in ["spread", "at once"] {
        for share in ["p50", "p99", "max"] {
            let late = found[wave][share].as_f64().ok_or("no lateness")?;
            report.number(&format!("{name}.late, {wave}, {share}, ms"), late);
        }
        let woken = found[wave]["woken"].as_f64().ok_or("no count")?;
        report.goal(&format!("{name}: naps that ended, {wave}"), woken, extent.naps as f64);
    }
    Ok(())
}

/// Starts sleepers until `wanted` of them sleep, or the time for it is over. Gives how many sleep.
async fn fill(engine: &Engine, wanted: u64) -> Anything<u64> {
    let (begun, before) = (Instant::now(), workflows::steps());
    let started = Arc::new(AtomicU64::new(0));
    let mut callers = JoinSet::new();
    for _ in 0..1_024 {
        let (engine, started) = (engine.clone(), started.clone());
        callers.spawn(async move {
            loop {
                let n = started.fetch_add(1, Ordering::Relaxed);
                if n >= wanted || begun.elapsed() > PATIENCE {
                    started.fetch_sub(1, Ordering::Relaxed);
                    return Ok::<_, Error>(());
                }
                engine.start(sleeper, n).await?;
                // No caller waits for the end of a sleeper, so starts must not outrun the engine that drives them.
                while n > workflows::steps() - before + 2_048 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
        });
    }
    let mut shown = 0;
    while !callers.is_empty() {
        tokio::select! {
            Some(ended) = callers.join_next() => ended??,
            () = tokio::time::sleep(Duration::from_secs(1)) => {
                let tenth = started.load(Ordering::Relaxed) * 10 / wanted;
                if tenth > shown {
                    shown = tenth;
                    println!("  {tenth}0 % sleep, {:.0} s", begun.elapsed().as_secs_f64());
                }
            }
        }
    }
    Ok(started.load(Ordering::Relaxed))
}

/// Starts the runs that sleep until the near future: some spread over seconds, as many at one moment.
async fn naps(engine: &Engine, each: u64) -> Anything<()> {
    let begin = SystemClock::new().now().after(LEAD);
    let moment = begin.after(SPREAD + PAUSE);
    let mut starts = JoinSet::new();
    for n in 0..each {
        let spread = begin.after(SPREAD.mul_f64(n as f64 / each as f64));
        for until in [spread, moment] {
            let engine = engine.clone();
            starts.spawn(async move { engine.start(nap, until.0).await.map(drop) });
        }
        if starts.len() > 2_048 {
            starts.join_next().await.expect("just counted")??;
        }
    }
    while let Some(started) = starts.join_next().await {
        started??;
    }
    Ok(())
}

/// Waits until all runs sleep.
async fn settle(engine: &Engine) -> Anything<()> {
    for status in [Status::Pending, Status::Running, Status::Pending, Status::Running] {
        while !runs(engine, status, None, 1).await?.is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    Ok(())
}

async fn runs(engine: &Engine, status: Status, workflow: Option<&str>, limit: usize) -> Anything<Vec<Run>> {
    let workflow = workflow.map(Name::new).transpose()?.into_iter().collect();
    let (workspace, status) = (engine.workspace(), vec![status]);
    // However many have to be read for it.
    let query = Query { status, workflow, look_at: usize::MAX, ..Query::all(workspace, limit) };
    Ok(engine.store().list(query).await?.runs)
}

/// The other process: opens the store with all that sleeps in it, shows that it is ready, and wakes whose time has come.
pub(crate) async fn wake(place: &Place) -> Anything<()> {
    let begun = Instant::now();
    let engine = place.engine().await?;
    let open = begun.elapsed().as_secs_f64();
    engine.start(one, 1u64).await?.result().await?;
    let ready = begun.elapsed().as_secs_f64();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let rss = resident_mib("VmRSS:");
    let each: usize = crate::setting("SEMEL_BENCH_NAPS", 0);
    let deadline = begun + 4 * (LEAD + SPREAD + PAUSE);
    while Instant::now() < deadline && !runs(&engine, Status::Waiting, Some("nap"), 1).await?.is_empty() {
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    settle(&engine).await?;
    let peak = resident_mib("VmHWM:");
    let (mut spread, mut at_once) = (Lateness::default(), Lateness::default());
    let ended = runs(&engine, Status::Completed, Some("nap"), 2 * each).await?;
    let mut timers = Vec::new();
    for run in &ended {
        timers.push(timer(&engine, run).await?);
    }
    let moment = timers.iter().map(|(set, _)| *set).max();
    for (set, fired) in timers {
        let wave = if Some(set) == moment { &mut at_once } else { &mut spread };
        wave.add(Duration::from_millis((fired.0 - set.0).unsigned_abs()));
    }
    let figures = json!({
        "openSeconds": open, "readySeconds": ready, "rssMib": rss, "peakMib": peak,
        "spread": spread.figures(), "at once": at_once.figures(),
    });
    println!("{figures}");
    Ok(Place::close(&engine, Duration::ZERO).await?)
}

/// When a run's timer was to fire, and when that was recorded.
async fn timer(engine: &Engine, run: &Run) -> Anything<(Time, Time)> {
    let (mut set, mut fired) = (None, None);
    for numbered in engine.run(run.id()).ledger().await? {
        match numbered.entry {
            Entry::TimerSet { at, .. } => set = Some(at),
            Entry::TimerFired { .. } => fired = Some(numbered.at),
            _ => {}
        }
    }
    Ok(set.zip(fired).ok_or("a nap without a timer")?)
}

#[derive(Default)]
struct Lateness(Latencies, Duration, u64);

impl Lateness {
    fn add(&mut self, late: Duration) {
        self.0.add(late);
        self.1 = self.1.max(late);
        self.2 += 1;
    }

    fn figures(&self) -> Value {
        let rate = self.0.rate(Duration::from_secs(1));
        let max = self.1.as_millis() as f64;
        json!({ "p50": rate.p50_micros / 1e3, "p99": rate.p99_micros / 1e3, "max": max, "woken": self.2 })
    }
}
