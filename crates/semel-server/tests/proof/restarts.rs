//! Servers that are restarted while their workers live on: in good order, and by SIGKILL. No worker may lose its lease for that,
//! no run may be taken from it, and none of its steps may be in doubt.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::Failed;
use semel::clock::{Clock as _, SystemClock};
use semel::testing::Dice;
use semel::{Attempt, Ctx, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::api::Question;
use crate::books::Books;
use crate::execute::Told;
use crate::findings::{Findings, Sort};
use crate::nemesis::{Disturbance, Striking};
use crate::outside::{Ask, Outside};
use crate::program::Kind;
use crate::site::{LEASE, Layout, Site};

/// The name of the workflow that every worker has beside the programs.
pub(crate) const LETTERS: &str = "letters";
/// Runs at the same time.
const RUNS: usize = 12;
/// Steps of each, one after the other, and the longest time that one takes.
const COUNT: u32 = 4;
const LONGEST: Duration = Duration::from_millis(2_500);
/// Restarts, every other one by SIGKILL, and the time between two of them.
const RESTARTS: u64 = 6;
const GAP: Duration = Duration::from_millis(900);
/// The longest time that a server is away: longer than the leases of its workers.
const AWAY: Duration = Duration::from_millis(LEASE.as_millis() as u64 * 3 / 2);
/// Nothing takes this long.
const PATIENCE: Duration = Duration::from_mins(1);
const ROUND: Duration = Duration::from_millis(20);

/// What a worker logs when its lease has ended.
const LOST: &str = "the lease has ended; this engine goes on as another node";
/// What a worker logs when it gives up its lease itself: the answer to a claim was lost with the server.
const GIVEN_UP: &str = "it is unknown which runs were claimed";

/// Steps one after the other, each of which takes a while and has an effect.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Letters {
    /// The place of the effects, and the key of the run.
    pub(crate) place: String,
    /// Number of steps.
    pub(crate) count: u32,
    /// How long each takes.
    pub(crate) millis: u64,
    /// Whether no step may run twice.
    pub(crate) at_most_once: bool,
}

impl Letters {
    /// Starts a run that writes them; gives its id.
    pub(crate) async fn start(&self, site: &Site) -> Result<String, Failed> {
        let body = json!({"workflow": LETTERS, "input": self});
        let reply = site.api.ask(&Question::post(0, "/workflow-runs", &self.place, body)).await?;
        match reply.is_ok() {
            true => Ok(reply.text("/run/id")),
            false => Err(format!("a start is answered with {} {}", reply.status, reply.body).into()),
        }
    }
}

/// Writes the letters. A body ends well in any case: what is in doubt afterwards was taken from its worker.
pub(crate) async fn write(ctx: Ctx, letters: Letters) -> Result<Told> {
    let (outside, clock, mut told) = (ctx.state::<Outside>(), SystemClock::new(), Told::new());
    for n in 0..letters.count {
        let body = async |attempt: Attempt| {
            clock.until(clock.now().after(Duration::from_millis(letters.millis))).await;
            let ask = Ask::of(Kind::Keyed, &letters.place, &attempt);
            loop {
                // The recorder loses answers, and absorbs what it knows.
                if let Ok(number) = outside.effect(&ask).await {
                    return Ok(number);
                }
            }
        };
        let name = format!("letter{n}");
        let step = ctx.step(&name).timeout(PATIENCE);
        let step = if letters.at_most_once { step.at_most_once() } else { step };
        let number = step.run(body).await?;
        told.push((name, number));
    }
    Ok(told)
}

/// How a server ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Orderly,
    Killed,
}

/// Ends a server, and starts another in its place after a while.
async fn restart(site: &Site, server: usize, ending: Ending, away: Duration) -> Result<(), Failed> {
    let slot = &site.servers[server];
    let _turn = slot.turn.lock().await;
    match ending {
        Ending::Killed => slot.kill()?,
        Ending::Orderly => {
            let process = slot.process().ok_or("a disturbance puts the process back")?;
            process.signal("TERM")?;
            let end = site.clock.now().after(PATIENCE);
            while process.lives() {
                if site.clock.now() > end {
                    return Err(format!("a server does not stop; see {}", process.log().display()).into());
                }
                site.clock.until(site.clock.now().after(ROUND)).await;
            }
        }
    }
    site.clock.until(site.clock.now().after(away)).await;
    site.start_server(server).await
}

/// A server that stops in good order and comes back, in the midst of everything else.
pub(crate) struct OrderlyRestarts;

impl Disturbance for OrderlyRestarts {
    fn gap(&self) -> Duration {
        Duration::from_secs(6)
    }

    fn strike<'a>(&'a mut self, site: &'a Site, dice: &'a mut Dice) -> Striking<'a> {
        Box::pin(async move {
            let server = dice.below(site.servers.len() as u64) as usize;
            restart(site, server, Ending::Orderly, Duration::from_millis(dice.below(500))).await?;
            Ok(("orderly restarts", 1))
        })
    }
}

/// What was seen of workers that were left alone.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) restarts: u64,
    pub(crate) steps: u64,
    /// Workers that gave up their lease themselves.
    pub(crate) given_up: u64,
}

/// Restarts a server again and again, while its workers are in the middle of steps.
pub(crate) async fn play(
    layout: Layout,
    folder: &Path,
    seed: u64,
    findings: &Arc<Findings>,
) -> Result<Seen, Failed> {
    let site = Site::open(layout, folder, seed, findings.clone()).await?;
    let mut trial = Trial { dice: Dice::named(seed, LETTERS), site, findings, seen: Seen::default() };
    let nodes = trial.nodes().await?;
    let runs = trial.start().await?;
    while trial.seen.restarts < RESTARTS && findings.count(Sort::Wrong) == 0 {
        trial.pause(GAP).await;
        let ending = if trial.seen.restarts.is_multiple_of(2) { Ending::Orderly } else { Ending::Killed };
        let away = Duration::from_millis(trial.dice.below(AWAY.as_millis() as u64));
        restart(&trial.site, 0, ending, away).await?;
        trial.seen.restarts += 1;
        // Heartbeats come three times in a lease.
        trial.pause(LEASE / 2).await;
        trial.leases()?;
    }
    for run in &runs {
        trial.end_of(run).await?;
    }
    trial.leases()?;
    let kept = trial.kept(&nodes)?;
    for run in &runs {
        trial.owners(run, &kept).await?;
    }
    trial.letters(&trial.site.outside.books().await?);
    trial.site.no_process_panicked()?;
    Ok(trial.seen)
}

struct Trial<'a> {
    dice: Dice,
    site: Site,
    findings: &'a Arc<Findings>,
    seen: Seen,
}

impl Trial<'_> {
    async fn pause(&self, time: Duration) {
        self.site.clock.until(self.site.clock.now().after(time)).await;
    }

    fn wrong(&self, run: &str, at: &str, said: String) {
        self.findings.add(Sort::Wrong, run, at, said);
    }

    /// The node of each worker, when all of them are known to the server.
    async fn nodes(&self) -> Result<BTreeMap<usize, String>, Failed> {
        let end = self.site.clock.now().after(PATIENCE);
        while self.site.clock.now() < end {
            let list = self.site.api.ask(&Question::get(0, "/workers")).await?.body;
            let mut nodes = BTreeMap::new();
            for (worker, slot) in self.site.workers.iter().enumerate() {
                let name = slot.process().map(|process| format!("pid-{}", process.pid()));
                let known = |view: &&Value| view["name"].as_str() == name.as_deref();
                let view = list["workers"].as_array().into_iter().flatten().find(known);
                nodes.extend(view.and_then(|view| Some((worker, view["node"].as_str()?.to_owned()))));
            }
            if nodes.len() == self.site.workers.len() {
                return Ok(nodes);
            }
            self.pause(ROUND).await;
        }
        Err("the workers are not known to the server".into())
    }

    async fn start(&mut self) -> Result<Vec<String>, Failed> {
        let mut runs = Vec::new();
        for n in 0..RUNS {
            let millis = LONGEST.as_millis() as u64 / 4 + self.dice.below(LONGEST.as_millis() as u64 * 3 / 4);
            let letters = Letters { place: format!("l{n}"), count: COUNT, millis, at_most_once: true };
            runs.push(letters.start(&self.site).await?);
        }
        Ok(runs)
    }

    /// How often a worker has logged some words.
    fn lines(&self, worker: usize, words: &str) -> Result<usize, Failed> {
        let said = std::fs::read(self.site.folder.join(format!("worker-{worker}.log")))?;
        Ok(String::from_utf8_lossy(&said).lines().filter(|line| line.contains(words)).count())
    }

    /// No worker has lost its lease: each of them lives, and has renewed it all the time.
    fn leases(&self) -> Result<(), Failed> {
        for worker in 0..self.site.workers.len() {
            if self.lines(worker, LOST)? > 0 {
                let said = format!("worker {worker} has lost its lease to a restart of its server");
                self.wrong("", LETTERS, said);
            }
        }
        Ok(())
    }

    /// The nodes of the workers that have not given up their leases themselves.
    fn kept(&mut self, nodes: &BTreeMap<usize, String>) -> Result<BTreeSet<String>, Failed> {
        let mut kept = BTreeSet::new();
        for (worker, node) in nodes {
            if self.lines(*worker, GIVEN_UP)? == 0 {
                kept.insert(node.clone());
            } else {
                self.seen.given_up += 1;
            }
        }
        Ok(kept)
    }

    /// Waits until a run has ended, or stands still.
    async fn end_of(&self, run: &str) -> Result<(), Failed> {
        let (end, wait) = (self.site.clock.now().after(PATIENCE), Duration::from_secs(2));
        while self.site.clock.now() < end {
            let path = format!("/workflow-runs/{run}?wait={}", wait.as_secs());
            let detail = self.site.api.ask(&Question { wait, ..Question::get(0, path) }).await?.body;
            if detail["endedAt"].is_string() || detail["status"] == "PAUSED" {
                return Ok(());
            }
        }
        self.findings.add(Sort::Stuck, run, "", "it does not end");
        Ok(())
    }

    /// No run was taken from a worker that has its lease, and no step is in doubt for that.
    async fn owners(&mut self, run: &str, kept: &BTreeSet<String>) -> Result<(), Failed> {
        let path = format!("/workflow-runs/{run}/ledger?from=1&limit=1000");
        let page = self.site.api.ask(&Question::get(0, path)).await?;
        let entries = page.body["entries"].as_array().ok_or_else(|| format!("no ledger: {}", page.body))?;
        let (mut driver, mut before) = (None, None);
        for entry in entries.iter().map(|line| &line["entry"]) {
            if let Some(node) = entry["claimed"]["node"].as_str() {
                before = driver.replace(node).filter(|before| *before != node);
                if let Some(before) = before
                    && kept.contains(before)
                {
                    self.wrong(run, "", format!("it was taken from {before}, whose worker lives"));
                }
            }
            if entry["stepInDoubt"].is_object() && before.is_none_or(|before| kept.contains(before)) {
                let step = entry["stepInDoubt"]["step"].to_string();
                self.wrong(run, &step, "it is in doubt, although its worker lives".to_owned());
            }
            self.seen.steps += u64::from(entry["stepCompleted"].is_object());
        }
        Ok(())
    }

    /// Each letter was written by one try only.
    fn letters(&self, books: &Books) {
        let mut tries: BTreeMap<&str, BTreeSet<(u64, u32)>> = BTreeMap::new();
        for call in &books.calls {
            tries.entry(&call.ask.at).or_default().insert((call.ask.fence, call.ask.attempt));
        }
        for (at, tries) in tries.into_iter().filter(|(_, tries)| tries.len() > 1) {
            self.findings.add(Sort::Doubled, "", at, format!("it was written by the tries {tries:?}"));
        }
    }
}
