//! The trials: the short form of the proof, and the long one.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::{Failed, Trial};

use crate::disk::SmallDisk;
use crate::disturbances::{ClockJumps, Database, FullDisk, Network, SyncErrors, database};
use crate::faults::Haunted;
use crate::findings::Findings;
use crate::nemesis::Pace;
use crate::phase::{Phase, Tally, play};
use crate::report::{self, Least};
use crate::site::{Layout, Surroundings};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        #[cfg(feature = "sabotage")]
        Trial::test("sabotage::every_deliberate_bug_of_processes_is_found", crate::sabotage::find_all),
        Trial::test("proof::killed_servers_and_workers_on_sqlite_lose_nothing_and_double_nothing", short),
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
    let folder = tempfile::tempdir()?;
    crate::runtime().block_on(play(folder.path().to_owned())).map_err(|failed| {
        let (why, seed) = (failed.message().unwrap_or("no reason"), seed().unwrap_or_default());
        format!("SEMEL_PROOF_SEED={seed}: {why}; logs and stores are in {}", folder.keep().display()).into()
    })
}

pub(crate) fn sqlite(name: &'static str) -> Layout {
    let (surroundings, env) = (Surroundings::Ordinary, Vec::new());
    Layout { name, servers: 1, workers: 3, store: None, rows: None, surroundings, lines: false, env }
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

/// The least that the long form must have shown.
const LONG: [Least; 9] = [
    ("server kills", 100),
    ("worker kills", 100),
    ("zombies", 20),
    ("postgres kills", 10),
    ("failovers", 3),
    ("disk full", 5),
    ("fsync errors", 20),
    ("runs", 20_000),
    ("effects", 100_000),
];

/// The phases of the long form, and for how many seconds each is loaded.
const PHASES: [(&str, u64); 4] = [("sqlite", 260), ("postgres", 280), ("faults", 160), ("disk", 25)];

fn long() -> Result<(), Failed> {
    if !cfg!(debug_assertions) {
        without_sabotage()?;
    }
    let seed = seed()?;
    let only = std::env::var("SEMEL_PROOF_ONLY").ok();
    let wanted = |name: &str| only.as_ref().is_none_or(|only| only.split(',').any(|wanted| wanted == name));
    in_folder(async |folder| {
        let mut tallies: Vec<Tally> = Vec::new();
        for (name, seconds) in PHASES.into_iter().filter(|(name, _)| wanted(name)) {
            let load = Duration::from_secs(number("SEMEL_PROOF_SECONDS", seconds)?);
            tallies.push(phase(name, load, &folder, seed).await?);
            println!("\n{}", report::table(&tallies));
        }
        report::write("proof.json", &report::proof(seed, &tallies, &LONG))?;
        // What was asked to be short is not held to what the whole must show.
        let whole = only.is_none() && std::env::var_os("SEMEL_PROOF_SECONDS").is_none();
        report::judge(&tallies, if whole { &LONG } else { &[] })
    })
}

async fn phase(name: &'static str, load: Duration, folder: &Path, seed: u64) -> Result<Tally, Failed> {
    let pace = Pace {
        server_kills: Duration::from_millis(2200),
        worker_kills: Duration::from_millis(1800),
        zombies: Duration::from_secs(2),
        freezes: Duration::from_secs(12),
    };
    let (layout, calm) = (Layout { lines: true, ..sqlite(name) }, Duration::from_mins(1));
    let mut phase = Phase { layout, pace, others: Vec::new(), callers: 64, load, calm };
    let mut kept = None;
    match name {
        "postgres" => {
            let (new, line, url) = database().await?;
            let (store, rows) = (Some(url.clone()), Some(url));
            phase.layout = Layout { servers: 2, workers: 4, store, rows, ..phase.layout };
            phase.others.push(Box::new(Network { database: Some(line.clone()) }));
            phase.others.push(Box::new(Database { cluster: new.clone(), line: line.clone(), blows: 0 }));
            // They are needed after the last blow.
            kept = Some((new, line));
        }
        "faults" => {
            let haunted = Arc::new(Haunted::new()?);
            phase.layout.surroundings = Surroundings::Haunted(haunted.clone());
            phase.others.push(Box::new(SyncErrors(haunted.clone())));
            phase.others.push(Box::new(FullDisk::Haunted(haunted.clone())));
            phase.others.push(Box::new(ClockJumps(haunted)));
        }
        "disk" => {
            let disk = Arc::new(SmallDisk::new()?);
            phase.layout.surroundings = Surroundings::Small(disk.clone());
            phase.others.push(Box::new(FullDisk::Small(disk)));
            // Only so many runs fit on it.
            phase.callers = 8;
        }
        _ => phase.others.push(Box::new(Network { database: None })),
    }
    let tally = play(phase, folder, seed, &Arc::new(Findings::default())).await;
    drop(kept);
    tally
}
