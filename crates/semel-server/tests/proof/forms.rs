//! The trials: the short form of the proof, and the long one.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::slice::from_ref;
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::{Failed, Trial};

use crate::cluster::remove;
use crate::definitions;
use crate::disk::SmallDisk;
use crate::disturbances::{ClockJumps, Database, FullDisk, Network, SyncErrors, database};
use crate::faults::Haunted;
use crate::findings::Findings;
use crate::languages::Language;
use crate::nemesis::Pace;
use crate::phase::{Phase, Tally, play};
use crate::poison;
use crate::report::{self, Least};
use crate::restarts::{self, OrderlyRestarts};
use crate::site::{Layout, Surroundings};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        #[cfg(feature = "sabotage")]
        Trial::test("sabotage::every_deliberate_bug_of_processes_is_found", crate::sabotage::find_all),
        Trial::test("proof::killed_servers_and_workers_on_sqlite_lose_nothing_and_double_nothing", short),
        Trial::test("proof::living_workers_keep_their_steps_over_restarts_of_their_server", restarted),
        Trial::test("proof::a_run_that_kills_its_workers_is_parked_and_no_other_is", poisoned),
        // `make proof`.
        Trial::test("proof::long", long).with_ignored_flag(true),
    ]
}

/// The switches of deliberate bugs are not in what people run.
fn without_sabotage() -> Result<(), Failed> {
    let binary = std::fs::read(env!("CARGO_BIN_EXE_semel"))?;
    let contains = |name: &str| binary.windows(name.len()).any(|window| window == name.as_bytes());
    if !contains("SEMEL_ROOT_TOKEN") {
        return Err("the names of variables are not found in the binary as they are".into());
    }
    if contains("SEMEL_SABOTAGE") { Err("the binary has deliberate bugs in it".into()) } else { Ok(()) }
}

/// What the environment says, else what is usual.
pub(crate) fn number(name: &str, usual: u64) -> Result<u64, Failed> {
    std::env::var(name).map_or(Ok(usual), |text| text.parse().map_err(|e| format!("{name}: {e}").into()))
}

pub(crate) fn seed() -> Result<u64, Failed> {
    number("SEMEL_PROOF_SEED", 5)
}

/// Plays something in a folder that is kept if it fails.
pub(crate) fn in_folder<T, Playing>(play: impl FnOnce(PathBuf) -> Playing) -> Result<T, Failed>
where
    Playing: Future<Output = Result<T, Failed>>,
{
    let folder = tempfile::tempdir()?.keep();
    // With the runtime all processes have gone.
    let played = crate::runtime().block_on(play(folder.clone()));
    match played {
        Ok(played) => {
            remove(&folder)?;
            Ok(played)
        }
        Err(failed) => {
            let (why, seed) = (failed.message().unwrap_or("no reason"), seed().unwrap_or_default());
            Err(format!("SEMEL_PROOF_SEED={seed}: {why}; logs and stores are in {}", folder.display()).into())
        }
    }
}

pub(crate) fn sqlite(name: &'static str) -> Layout {
    let (surroundings, env) = (Surroundings::Ordinary, Vec::new());
    Layout {
        name,
        servers: 1,
        workers: 3,
        language: None,
        store: None,
        rows: None,
        surroundings,
        lines: false,
        env,
    }
}

/// How long all may take to end after the last blow of the short form.
pub(crate) const CALM: Duration = Duration::from_secs(25);
/// The least that the short form must have shown for every 30 seconds.
const SHORT: [Least; 4] = [("server kills", 5), ("worker kills", 5), ("zombies", 2), ("effects", 500)];

fn short() -> Result<(), Failed> {
    let (seconds, seed) = (number("SEMEL_PROOF_SECONDS", 30)?, seed()?);
    let phase = Phase {
        layout: sqlite("sqlite"),
        pace: Pace {
            server_kills: Duration::from_millis(2200),
            worker_kills: Duration::from_millis(1800),
            zombies: Duration::from_secs(1),
            freezes: Duration::from_secs(8),
        },
        others: Vec::new(),
        callers: 32,
        load: Duration::from_secs(seconds),
        calm: CALM,
    };
    let least = SHORT.map(|(name, least)| (name, least * seconds / 30));
    in_folder(async |folder| {
        let tallies = [play(phase, &folder, seed, &Arc::new(Findings::default())).await?];
        println!("\n{}", report::table(&tallies));
        report::judge(&tallies, &least)
    })
}

fn restarted() -> Result<(), Failed> {
    let (seed, findings) = (seed()?, Arc::new(Findings::default()));
    in_folder(async |folder| {
        let seen = restarts::play(sqlite("restarts"), &folder, seed, &findings).await?;
        println!("\n{seen:?}");
        match findings.is_empty() {
            true => Ok(()),
            false => Err("promises were broken, see above".into()),
        }
    })
}

fn poisoned() -> Result<(), Failed> {
    let (seed, findings) = (seed()?, Arc::new(Findings::default()));
    in_folder(async |folder| {
        let deaths = poison::play(sqlite("poison"), &folder, seed, &findings).await?;
        println!("\n{deaths} workers have died of a poisonous run");
        match findings.is_empty() {
            true => Ok(()),
            false => Err("promises were broken, see above".into()),
        }
    })
}

/// The least of a phase whose workers are in another language.
const LANGUAGE: &[Least] = &[
    ("server kills", 5),
    ("worker kills", 100),
    ("zombies", 3),
    ("graceful cancels", 10),
    ("runs", 1_000),
    ("effects", 3_500),
];

/// A phase of the long form.
struct Part {
    name: &'static str,
    /// For how many seconds it is loaded.
    seconds: u64,
    /// The least that it must have shown in that time. What a busy machine does not reach is no proof.
    least: &'static [Least],
}

const PARTS: [Part; 7] = [
    Part {
        name: "sqlite",
        seconds: 260,
        least: &[
            ("server kills", 60),
            ("worker kills", 60),
            ("zombies", 12),
            ("orderly restarts", 15),
            ("graceful cancels", 100),
            ("runs", 10_000),
            ("effects", 40_000),
        ],
    },
    Part {
        name: "postgres",
        seconds: 280,
        least: &[
            ("server kills", 40),
            ("worker kills", 40),
            ("zombies", 8),
            ("postgres kills", 10),
            ("failovers", 3),
            ("graceful cancels", 40),
            ("runs", 4_000),
            ("effects", 15_000),
        ],
    },
    Part {
        name: "faults",
        seconds: 160,
        least: &[
            ("server kills", 25),
            ("worker kills", 25),
            ("disk full", 4),
            ("fsync errors", 20),
            ("graceful cancels", 60),
            ("runs", 6_000),
            ("effects", 25_000),
        ],
    },
    Part {
        name: "disk",
        seconds: 25,
        least: &[("server kills", 3), ("disk full", 1), ("runs", 200), ("effects", 800)],
    },
    Part { name: "typescript", seconds: 180, least: LANGUAGE },
    Part { name: "python", seconds: 180, least: LANGUAGE },
    // It ends when it has shown this.
    Part { name: "definitions", seconds: 400, least: &definitions::LEAST },
];

/// The least of a phase that was asked to be short.
const SOMETHING: [Least; 2] = [("runs", 1), ("effects", 1)];

/// The least of all phases together.
const LONG: [Least; 10] = [
    ("server kills", 100),
    ("worker kills", 100),
    ("zombies", 20),
    ("postgres kills", 10),
    ("failovers", 3),
    ("disk full", 5),
    ("fsync errors", 20),
    ("graceful cancels", 200),
    ("runs", 20_000),
    ("effects", 100_000),
];

/// The phases that are wanted; a name that is none, or no name, is a mistake.
fn wanted(only: Option<&str>) -> Result<Vec<Part>, Failed> {
    let Some(only) = only else { return Ok(PARTS.into()) };
    let names: Vec<&str> = only.split(',').map(str::trim).collect();
    match names.iter().find(|name| PARTS.iter().all(|part| part.name != **name)) {
        Some(unknown) => Err(format!("SEMEL_PROOF_ONLY: {unknown:?} is no phase").into()),
        None => Ok(PARTS.into_iter().filter(|part| names.contains(&part.name)).collect()),
    }
}

fn long() -> Result<(), Failed> {
    if !cfg!(debug_assertions) {
        without_sabotage()?;
    }
    let (seed, parts) = (seed()?, wanted(std::env::var("SEMEL_PROOF_ONLY").ok().as_deref())?);
    let all = parts.len() == PARTS.len();
    in_folder(async |folder| {
        let (mut tallies, mut short) = (Vec::new(), false);
        let mut judged = Ok(());
        for Part { name, seconds, least } in parts {
            let load = number("SEMEL_PROOF_SECONDS", seconds)?;
            let tally = phase(name, Duration::from_secs(load), &folder, seed).await?;
            // What was asked to be short is not held to what the whole must show; but something must have happened.
            let brief = load < seconds;
            judged = judged.and(report::judge(from_ref(&tally), if brief { &SOMETHING } else { least }));
            short |= brief;
            tallies.push(tally);
            println!("\n{}", report::table(&tallies));
        }
        report::write("proof.json", &report::proof(seed, &tallies, &LONG))?;
        judged?;
        report::judge(&tallies, if all && !short { &LONG } else { &[] })
    })
}

async fn phase(name: &'static str, load: Duration, folder: &Path, seed: u64) -> Result<Tally, Failed> {
    let findings = Arc::new(Findings::default());
    if name == "definitions" {
        let brief = load < Duration::from_mins(1);
        let scale = if brief { definitions::SHORT } else { definitions::LONG };
        let layout = Layout { lines: true, ..sqlite(name) };
        return definitions::play(&scale, layout, folder, seed, &findings).await;
    }
    let own = folder.join(name);
    std::fs::create_dir(&own)?;
    let pace = Pace {
        server_kills: Duration::from_millis(2200),
        worker_kills: Duration::from_millis(1800),
        zombies: Duration::from_secs(2),
        freezes: Duration::from_secs(12),
    };
    let (layout, calm) = (Layout { lines: true, ..sqlite(name) }, Duration::from_mins(1));
    let mut phase = Phase { layout, pace, others: Vec::new(), callers: 64, load, calm };
    let mut kept = None;
    if let Some(language) = Language::of_phase(name) {
        // Both SDKs have a driver for this database; the servers have a file.
        let (new, line, url) = database(&own).await?;
        phase.layout = Layout { rows: Some(url), language: Some(language), workers: 4, ..phase.layout };
        phase.pace = Pace {
            server_kills: Duration::from_secs(10),
            worker_kills: Duration::from_millis(900),
            zombies: Duration::from_secs(3),
            freezes: Duration::from_secs(20),
        };
        kept = Some((new, line));
    }
    match name {
        "postgres" => {
            let (new, line, url) = database(&own).await?;
            let (store, rows) = (Some(url.clone()), Some(url));
            phase.layout = Layout { servers: 2, workers: 4, store, rows, ..phase.layout };
            phase.others.push(Box::new(Network { database: Some(line.clone()) }));
            phase.others.push(Box::new(Database { cluster: new.clone(), line: line.clone(), blows: 0 }));
            // They are needed after the last blow.
            kept = Some((new, line));
        }
        "faults" => {
            let haunted = Arc::new(Haunted::in_folder(&own)?);
            phase.layout.surroundings = Surroundings::Haunted(haunted.clone());
            phase.others.push(Box::new(SyncErrors(haunted.clone())));
            phase.others.push(Box::new(FullDisk::Haunted(haunted.clone())));
            phase.others.push(Box::new(ClockJumps(haunted)));
        }
        "disk" => {
            let disk = Arc::new(SmallDisk::in_folder(&own)?);
            phase.layout.name = disk.phase();
            phase.layout.surroundings = Surroundings::Small(disk.clone());
            phase.others.push(Box::new(FullDisk::Small(disk)));
            // Only so many runs fit on it.
            phase.callers = 8;
        }
        _ => {
            phase.others.push(Box::new(Network { database: None }));
            phase.others.push(Box::new(OrderlyRestarts));
        }
    }
    let tally = play(phase, folder, seed, &findings).await;
    drop(kept);
    tally
}
