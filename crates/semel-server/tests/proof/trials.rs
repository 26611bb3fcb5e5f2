//! The trials: the short form of the proof.

use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::{Failed, Trial};

use crate::findings::Findings;
use crate::nemesis::Pace;
use crate::phase::{Phase, Tally, play};
use crate::site::Layout;

pub(crate) fn trials() -> Vec<Trial> {
    vec![Trial::test("proof::killed_servers_and_workers_on_sqlite_lose_nothing_and_double_nothing", short)]
}

fn number(name: &str) -> Result<Option<u64>, Failed> {
    std::env::var(name).ok().map(|text| text.parse().map_err(|e| format!("{name}: {e}").into())).transpose()
}

fn short() -> Result<(), Failed> {
    let seconds = number("SEMEL_PROOF_SECONDS")?.unwrap_or(30);
    let seed = number("SEMEL_PROOF_SEED")?.unwrap_or(5);
    let phase = Phase {
        layout: Layout {
            name: "sqlite",
            servers: 1,
            workers: 3,
            store: None,
            rows: None,
            server_env: Vec::new(),
            worker_env: Vec::new(),
        },
        pace: Pace {
            server_kills: Some(Duration::from_millis(2500)),
            worker_kills: Some(Duration::from_millis(2000)),
            zombies: Some(Duration::from_millis(2500)),
            freezes: Some(Duration::from_secs(8)),
        },
        callers: 32,
        load: Duration::from_secs(seconds),
        calm: Duration::from_secs(25),
    };
    let folder = tempfile::tempdir()?;
    let (findings, runtime) = (Arc::new(Findings::default()), tokio::runtime::Runtime::new()?);
    let tally = runtime.block_on(play(phase, folder.path(), seed, &findings));
    let verdict = match tally {
        Ok(tally) => {
            println!("{tally:?}");
            judge(&tally)
        }
        Err(failed) => Err(failed),
    };
    verdict.map_err(|failed| {
        let kept = folder.keep();
        let why = failed.message().unwrap_or("no reason");
        format!("SEMEL_PROOF_SEED={seed}: {why}; logs and stores are in {}", kept.display()).into()
    })
}

fn judge(tally: &Tally) -> Result<(), Failed> {
    if !tally.is_clean() {
        return Err("promises were broken, see above".into());
    }
    Ok(())
}
