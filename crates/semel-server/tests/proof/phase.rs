//! One phase: everything is set up, loaded and disturbed for a while, left alone until all has ended, and checked.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use libtest_mimic::Failed;
use semel::clock::{Clock as _, Time};
use tokio::task::JoinSet;

use crate::api::Question;
use crate::bulk;
use crate::checker::{Checker, Counted};
use crate::driver::Driver;
use crate::findings::{Findings, Sort};
use crate::nemesis::{Disturbance, Nemesis, Pace};
use crate::operator::Operator;
use crate::site::{Layout, Site};
use crate::trap::Trap;

/// No program kills its worker, so no run is to be blamed. A run can be alone with a worker each time that one is killed: at
/// most one for so many kills of workers.
const POISONED: u64 = 10;

/// What is to happen.
pub(crate) struct Phase {
    pub(crate) layout: Layout,
    pub(crate) pace: Pace,
    pub(crate) others: Vec<Box<dyn Disturbance>>,
    /// How many runs are under way at once.
    pub(crate) callers: usize,
    /// How long there are new orders, and blows.
    pub(crate) load: Duration,
    /// How long all that was begun may take to end afterwards.
    pub(crate) calm: Duration,
}

/// What has happened.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) name: String,
    /// Blows, starts and so on, in the order of the report.
    pub(crate) figures: Vec<(&'static str, u64)>,
    pub(crate) counted: Counted,
    pub(crate) lost: u64,
    pub(crate) doubled: u64,
    pub(crate) stuck: u64,
    pub(crate) wrong: u64,
    pub(crate) millis: u64,
}

impl Tally {
    /// Whether every promise was kept.
    pub(crate) fn is_clean(&self) -> bool {
        self.lost + self.doubled + self.stuck + self.wrong == 0
    }

    pub(crate) fn figure(&self, name: &str) -> u64 {
        self.figures.iter().filter(|(known, _)| *known == name).map(|(_, count)| count).sum()
    }
}

/// Plays a phase in a folder.
pub(crate) async fn play(
    phase: Phase,
    folder: &Path,
    seed: u64,
    findings: &Arc<Findings>,
) -> Result<Tally, Failed> {
    let Phase { layout, pace, others, callers, load, calm } = phase;
    let name = layout.name.to_owned();
    let site = Arc::new(Site::open(layout, folder, seed, findings.clone()).await?);
    let (trap, from) = (Arc::new(Trap::default()), site.clock.now());
    let driver = Arc::new(Driver::new(site.clone(), seed, findings.clone(), trap.clone()));
    let witness = Arc::new(site.outside.clone());
    let operator = Arc::new(Operator::new(site.clone(), findings.clone(), witness));
    let nemesis = Arc::new(Nemesis::new(site.clone(), seed, pace, trap));
    let mut calls = JoinSet::new();
    for _ in 0..callers {
        calls.spawn(driver.clone().call());
    }
    let mut operating = JoinSet::new();
    operating.spawn(operator.clone().operate());
    #[cfg(feature = "sabotage")]
    let _watching = {
        let mut watching = JoinSet::new();
        if site.layout.env.iter().any(|(name, _)| name == semel::sabotage::VARIABLE) {
            watching.spawn(crate::sabotage::watch(site.clone(), findings.clone()));
        }
        watching
    };
    let mut blows = nemesis.begin(others);
    let over = site.clock.now().after(load);
    // A stream of blows ends early only by what went wrong.
    let early = tokio::select! {
        () = site.clock.until(over) => None,
        Some(ended) = blows.join_next() => Some(ended),
    };
    driver.end();
    nemesis.end();
    let mut next = match early {
        Some(ended) => Some(ended),
        None => blows.join_next().await,
    };
    while let Some(ended) = next {
        ended??;
        next = blows.join_next().await;
    }
    let end = site.clock.now().after(calm);
    let came_to_rest = tokio::select! {
        joined = all(&mut calls) => {
            joined?;
            at_rest(&site, end).await?
        }
        () = site.clock.until(end) => false,
    };
    calls.abort_all();
    if !came_to_rest {
        findings.add(Sort::Stuck, "some", "", format!("not all has ended {calm:?} after the last blow"));
    }
    for slot in site.servers.iter().chain(&site.workers) {
        if !slot.process().is_some_and(|process| process.lives()) {
            return Err("a server or worker has ended by itself after the last blow".into());
        }
    }
    operator.end();
    all(&mut operating).await?;
    let (begun, lives, books) = (driver.begun(), driver.lives(), site.outside.books().await?);
    let counted = Checker::new(&site, findings.clone(), &begun, &lives, &books).check().await?;
    site.no_process_panicked()?;
    let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let (blows, asked) = (&nemesis.blows, &driver.asked);
    let (poisoned, kills) = (count(&operator.poisoned), count(&blows.worker_kills));
    if poisoned * POISONED > kills + POISONED {
        let said = format!("{poisoned} runs were parked as poisoned, with {kills} kills of workers");
        findings.add(Sort::Wrong, "some", "", said);
    }
    let mut figures = vec![
        ("server kills", count(&blows.server_kills)),
        ("at an answer", count(&blows.ambushes)),
        ("worker kills", count(&blows.worker_kills)),
        ("zombies", count(&blows.zombies)),
        ("freezes", count(&blows.freezes)),
        ("failed starts of servers", count(&site.failed_starts)),
        ("starts", count(&asked.starts)),
        ("duplicate starts", count(&asked.duplicates)),
        ("refused starts", count(&asked.refused)),
        ("answers lost", count(&asked.repeated)),
        ("deliveries", count(&asked.deliveries)),
        ("cancels", count(&asked.cancels)),
        ("graceful cancels", lives.iter().filter(|life| life.ended_on_request()).count() as u64),
        ("large programs", count(&driver.bulky).min(bulk::MOST)),
        ("doubts", count(&operator.doubts)),
        ("poisoned", poisoned),
    ];
    figures.extend(blows.others.lock().expect("no holder of the lock panics").iter());
    Ok(Tally {
        name,
        figures,
        counted,
        lost: findings.count(Sort::Lost) as u64,
        doubled: findings.count(Sort::Doubled) as u64,
        stuck: findings.count(Sort::Stuck) as u64,
        wrong: findings.count(Sort::Wrong) as u64,
        millis: (site.clock.now().0 - from.0) as u64,
    })
}

/// Waits for all of them; one that has panicked is a failure.
pub(crate) async fn all(tasks: &mut JoinSet<()>) -> Result<(), Failed> {
    while let Some(ended) = tasks.join_next().await {
        ended?;
    }
    Ok(())
}

/// The states of a run that has not ended, in the order in which most runs pass them.
const OPEN: [&str; 4] = ["PENDING", "RUNNING", "WAITING", "PAUSED"];

/// Waits until no run is open, the children and remote steps of cancelled ones included.
pub(crate) async fn at_rest(site: &Site, end: Time) -> Result<bool, Failed> {
    let back = OPEN.into_iter().rev();
    loop {
        // A run that moves from a state that is asked for later to one that was asked for before is missed by one
        // round, and met by a round the other way.
        if none_open(site, OPEN).await? && none_open(site, back.clone()).await? {
            return Ok(true);
        }
        if site.clock.now() > end {
            return Ok(false);
        }
        site.clock.until(site.clock.now().after(Duration::from_millis(100))).await;
    }
}

/// Whether no run is in one of these states, asked for one after the other.
async fn none_open(site: &Site, states: impl IntoIterator<Item = &str>) -> Result<bool, Failed> {
    for status in states {
        let list = site.api.ask(&Question::get(0, format!("/workflow-runs?status={status}&limit=1"))).await?;
        match list.body["runs"].as_array() {
            Some(runs) if list.is_ok() && runs.is_empty() => {}
            Some(_) if list.is_ok() => return Ok(false),
            _ => return Err(format!("a list is answered with {} {}", list.status, list.body).into()),
        }
    }
    Ok(true)
}
