//! Definitions on a server that is killed again and again: every effect takes place once, whatever the task and the block.
//!
//! [`parts`] and [`tasks`]: what the definition has in it, and what must come of it. [`provider`]: the other side of APIs, which is never
//! killed and counts. [`components`]: the other products, which are killed by [`killer`]. [`caller`]: who starts the runs, and does what
//! people do. [`verdict`]: what was found at the end.

mod brokers;
mod caller;
mod components;
mod databases;
mod deeds;
mod desk;
mod killer;
mod mails;
mod parts;
pub(crate) mod provider;
mod script;
pub(crate) mod stand_in;
mod tasks;
mod verdict;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use semel::clock::Clock as _;
#[cfg(feature = "sabotage")]
use semel::clock::SystemClock;
use tokio::task::JoinSet;

use self::caller::DefinitionCaller;
use self::components::{Component, Components};
use self::desk::{OtherSides, ProviderDesk, connections};
use self::killer::Killer;
use self::provider::ProviderPlace;
use self::verdict::Found;
use crate::checker::Counted;
use crate::findings::{Findings, Sort};
use crate::forms::{CALM, in_folder, number, seed, sqlite};
use crate::nemesis::{Disturbance, Nemesis, Pace};
use crate::operator::Operator;
use crate::phase::{Tally, all, at_rest};
use crate::process::Process;
use crate::report::{self, Least};
use crate::site::{Layout, Site, free_port};
use crate::trap::Trap;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("definitions::runs_of_killed_servers_have_every_effect_once", short),
        Trial::test("definitions::only_a_kill_meanwhile_explains_a_repeated_call", || {
            deeds::explained();
            Ok(())
        }),
    ]
}

/// How much is played.
pub(crate) struct Scale {
    pub(crate) runs: u64,
    /// Kills of the server.
    pub(crate) kills: u64,
    /// Kills of each component.
    pub(crate) component_kills: u64,
    /// Mean time between two kills of a component.
    pub(crate) gap: Duration,
    pub(crate) callers: usize,
}

impl Scale {
    fn least(&self) -> Vec<Least> {
        let mut least = vec![("server kills", self.kills), ("runs", self.runs), ("effects", self.runs * 40)];
        least.extend(COMPONENTS.map(|figure| (figure, self.component_kills)));
        least
    }
}

/// The form of `make check`.
pub(crate) const SHORT: Scale =
    Scale { runs: 50, kills: 5, component_kills: 1, gap: Duration::from_secs(8), callers: 16 };
/// The form of `make proof`.
pub(crate) const LONG: Scale =
    Scale { runs: 500, kills: 100, component_kills: 10, gap: Duration::from_secs(15), callers: 32 };

/// The least that the long form must have shown.
pub(crate) const LEAST: [Least; 12] = [
    ("server kills", 100),
    ("worker kills", 20),
    ("runs", 500),
    ("effects", 20_000),
    (COMPONENTS[0], 10),
    (COMPONENTS[1], 10),
    (COMPONENTS[2], 10),
    (COMPONENTS[3], 10),
    (COMPONENTS[4], 10),
    (COMPONENTS[5], 10),
    (COMPONENTS[6], 10),
    (COMPONENTS[7], 10),
];

fn short() -> Result<(), Failed> {
    let scale = Scale {
        runs: number("SEMEL_PROOF_RUNS", SHORT.runs)?,
        kills: number("SEMEL_PROOF_KILLS", SHORT.kills)?,
        ..SHORT
    };
    let least = scale.least();
    in_folder(async |folder| {
        let layout = Layout { workers: 2, ..sqlite("definitions") };
        let findings = Arc::new(Findings::default());
        let tallies = [play(&scale, layout, &folder, seed()?, &findings).await?];
        println!("\n{}", report::table(&tallies));
        report::judge(&tallies, &least)
    })
}

/// Mean time between two kills of a server: longer than it takes to come up, to notice that its predecessor is dead, and to get some
/// steps done.
const KILLS: Duration = Duration::from_millis(2500);
/// Nothing takes this long.
const PATIENCE: Duration = Duration::from_mins(20);
const ROUND: Duration = Duration::from_millis(50);
/// Pause between two looks of a hunt for a bug.
#[cfg(feature = "sabotage")]
const WATCHED: Duration = Duration::from_millis(500);

/// The figures that count the kills of components, in the order of [`Components`].
pub(crate) const COMPONENTS: [&str; 8] = [
    "kills of PostgreSQL",
    "kills of MariaDB",
    "kills of NATS",
    "kills of Redis",
    "kills of the mail server",
    MODEL,
    TOOLS,
    "kills of PostgreSQL with pgvector",
];
const MODEL: &str = "kills of the model";
const TOOLS: &str = "kills of the MCP server";

/// Makes the tables of Semel in all databases, as an operator does.
async fn install(config: &Path, env: &[(String, String)]) -> Result<(), Failed> {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_semel"));
    command
        .args(["connection", "check", "bank", "stock", "till", "library", "--install", "--config"])
        .arg(config);
    let ended = command.env_clear().envs(env.iter().cloned()).output().await?;
    if ended.status.success() {
        return Ok(());
    }
    let said = [ended.stdout, ended.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
    Err(format!("the tables cannot be made: {said}").into())
}

/// What a phase is played with.
struct Stage {
    site: Arc<Site>,
    provider: ProviderDesk,
    _process: Process,
    components: Arc<Components>,
    caller: Arc<DefinitionCaller>,
    operator: Arc<Operator>,
    nemesis: Arc<Nemesis>,
    /// Kills of the server that came with one of a component.
    together: Arc<AtomicU64>,
}

fn count(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}

impl Stage {
    async fn set(
        mut layout: Layout,
        outer: &Path,
        seed: u64,
        findings: &Arc<Findings>,
    ) -> Result<Self, Failed> {
        let folder = outer.join(layout.name);
        std::fs::create_dir_all(&folder)?;
        let port = free_port()?;
        let provider = ProviderDesk::at(port);
        let log = folder.join("provider.log");
        let process = Process::role("provider", &ProviderPlace { port, seed }, &[], &log)?;
        let components = Arc::new(Components::open(&folder, seed).await?);
        let config = folder.join("semel.toml");
        let text =
            [connections(&provider.base), tasks::channels(&provider.base), components.config()].concat();
        std::fs::write(&config, text)?;
        layout.env.extend_from_slice(components.env());
        layout.env.push(("SEMEL_CONFIG".to_owned(), config.display().to_string()));
        layout.env.push(("PROVIDER_KEY".to_owned(), "the-key-of-the-provider".to_owned()));
        install(&config, &layout.env).await?;
        let site = Arc::new(Site::open(layout, outer, seed, findings.clone()).await?);
        let trap = Arc::new(Trap::default());
        let caller = DefinitionCaller::new(site.clone(), seed, findings.clone(), trap.clone());
        caller.push(&parts::definitions(&components.brokers.stream)).await?;
        let witness = OtherSides { provider: provider.clone(), components: components.clone() };
        let pace = Pace { server_kills: KILLS, worker_kills: KILLS * 2, ..Pace::default() };
        Ok(Self {
            operator: Arc::new(Operator::new(site.clone(), findings.clone(), Arc::new(witness))),
            nemesis: Arc::new(Nemesis::new(site.clone(), seed, pace, trap)),
            caller: Arc::new(caller),
            site,
            provider,
            _process: process,
            components,
            together: Arc::default(),
        })
    }

    fn killers(&self, gap: Duration) -> Vec<Box<dyn Disturbance>> {
        let killer = |(figure, component): (&'static str, &Arc<Component>)| {
            let (component, together) = (component.clone(), self.together.clone());
            let kills = self.nemesis.blows.kills.clone();
            Box::new(Killer { figure, component, gap, together, kills }) as Box<dyn Disturbance>
        };
        COMPONENTS.into_iter().zip(&self.components.all).map(killer).collect()
    }

    fn killed(&self, figure: &str) -> u64 {
        let others = self.nemesis.blows.others.lock().expect("no holder of the lock panics");
        others.iter().filter(|(name, _)| *name == figure).count() as u64
    }

    fn server_kills(&self) -> u64 {
        count(&self.nemesis.blows.server_kills) + count(&self.together)
    }

    fn has_shown(&self, scale: &Scale) -> bool {
        self.server_kills() >= scale.kills
            && self.caller.begun() >= scale.runs
            && COMPONENTS.iter().all(|figure| self.killed(figure) >= scale.component_kills)
    }

    /// Starts runs and kills until enough was shown, and waits until all runs have ended; false if they do not.
    async fn perform(&self, scale: &Scale) -> Result<bool, Failed> {
        let clock = &self.site.clock;
        let mut calls = JoinSet::new();
        for _ in 0..scale.callers {
            calls.spawn(self.caller.clone().call());
        }
        let mut blows = self.nemesis.begin(self.killers(scale.gap));
        let latest = clock.now().after(PATIENCE);
        while !self.has_shown(scale) && clock.now() < latest {
            tokio::select! {
                () = clock.until(clock.now().after(ROUND)) => {}
                // A stream of blows ends early only by what went wrong.
                Some(ended) = blows.join_next() => ended??,
            }
        }
        self.caller.end();
        self.nemesis.end();
        while let Some(ended) = blows.join_next().await {
            ended??;
        }
        let end = clock.now().after(CALM * 4);
        let came_to_rest = tokio::select! {
            joined = all(&mut calls) => {
                joined?;
                at_rest(&self.site, end).await?
            }
            () = clock.until(end) => false,
        };
        calls.abort_all();
        Ok(came_to_rest)
    }

    /// What is found at the end.
    async fn judged(&self, findings: &Arc<Findings>) -> Result<Counted, Failed> {
        self.site.no_process_panicked()?;
        let lives = self.caller.lives();
        let runs: Vec<String> = lives.iter().map(|life| life.run.clone()).collect();
        let found = Found {
            sales: &self.provider.sales().await?,
            books: &self.site.outside.books().await?,
            deeds: self.components.deeds().await?,
            branches: self.components.branches(&runs).await?,
            kills: self.nemesis.blows.kills.lock().expect("no holder of the lock panics").clone(),
        };
        Ok(verdict::check(&lives, found, &self.operator, findings))
    }

    fn figures(&self) -> Vec<(&'static str, u64)> {
        let (blows, caller) = (&self.nemesis.blows, &self.caller);
        let mut figures = vec![
            ("server kills", self.server_kills()),
            ("at an answer", count(&blows.ambushes)),
            ("with a component", count(&self.together)),
            ("worker kills", count(&blows.worker_kills)),
            ("starts", count(&caller.starts)),
            ("duplicate starts", count(&caller.duplicates)),
            ("deliveries", count(&caller.deliveries)),
            ("decisions", count(&caller.decisions)),
            ("doubts", count(&self.operator.doubts)),
        ];
        figures.extend(COMPONENTS.map(|figure| (figure, self.killed(figure))));
        figures
    }
}

/// Looks all the time whether an effect took place twice, so that a hunt for a bug need not wait for the end.
#[cfg(feature = "sabotage")]
async fn watch(provider: ProviderDesk, components: Arc<Components>, findings: Arc<Findings>) {
    let clock = SystemClock::new();
    loop {
        // A component that is away is looked at the next time.
        let mut deeds = components.deeds().await.unwrap_or_default();
        if let Ok(sales) = provider.sales().await {
            deeds.done.extend(sales.done);
        }
        deeds.tell_doubled(&findings);
        clock.until(clock.now().after(WATCHED)).await;
    }
}

/// Plays the phase in a folder.
pub(crate) async fn play(
    scale: &Scale,
    layout: Layout,
    folder: &Path,
    seed: u64,
    findings: &Arc<Findings>,
) -> Result<Tally, Failed> {
    let name = layout.name.to_owned();
    let stage = Stage::set(layout, folder, seed, findings).await?;
    let (mut helpers, over) = (JoinSet::new(), Arc::new(AtomicBool::new(false)));
    let from = stage.site.clock.now();
    #[cfg(feature = "sabotage")]
    let _watching = {
        let mut watching = JoinSet::new();
        if stage.site.layout.env.iter().any(|(name, _)| name == semel::sabotage::VARIABLE) {
            let (provider, components) = (stage.provider.clone(), stage.components.clone());
            watching.spawn(watch(provider, components, findings.clone()));
        }
        watching
    };
    helpers.spawn(stage.operator.clone().operate());
    helpers.spawn(stage.caller.clone().decide(over.clone()));
    if !stage.perform(scale).await? {
        findings.add(Sort::Stuck, "some", "", "not all has ended after the last blow");
    }
    stage.operator.end();
    over.store(true, Ordering::SeqCst);
    all(&mut helpers).await?;
    let counted = stage.judged(findings).await?;
    let figures = stage.figures();
    println!("{name}: {figures:?}");
    let of = |sort| findings.count(sort) as u64;
    Ok(Tally {
        name,
        figures,
        counted,
        lost: of(Sort::Lost),
        doubled: of(Sort::Doubled),
        stuck: of(Sort::Stuck),
        wrong: of(Sort::Wrong),
        millis: (stage.site.clock.now().0 - from.0) as u64,
    })
}
