//! The proof: real servers, workers and a recorder, loaded and disturbed, and a checker that would find a lost or doubled effect.
//!
//! `make check` plays the short form; `make proof` the long one. `SEMEL_PROOF_SEED` chooses what is drawn,
//! `SEMEL_PROOF_SECONDS` how long a phase is loaded, `SEMEL_PROOF_ONLY` which phases of the long form are played.

mod api;
mod books;
mod checker;
mod dice;
mod driver;
mod execute;
mod findings;
mod nemesis;
mod operator;
mod outside;
mod phase;
mod process;
mod program;
mod recorder;
mod report;
mod rows;
#[cfg(feature = "sabotage")]
mod sabotage;
mod site;
mod trap;
mod trials;
mod worker;

use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Failed};
use serde::de::DeserializeOwned;

use crate::process::{PLACE, ROLE};

fn main() -> ExitCode {
    if let Ok(role) = std::env::var(ROLE) {
        return match play(&role) {
            Ok(()) => ExitCode::SUCCESS,
            Err(failed) => {
                eprintln!("{role}: {}", failed.message().unwrap_or("no reason"));
                ExitCode::FAILURE
            }
        };
    }
    if std::env::var_os("SEMEL_TEST_POSTGRES").is_none() {
        return again_with_postgres();
    }
    let mut arguments = Arguments::from_args();
    // Two processors are shared by all processes of one trial.
    arguments.test_threads = Some(1);
    libtest_mimic::run(&arguments, trials::trials()).exit_code()
}

/// This process is one of those that are disturbed, or the one that never is.
fn play(role: &str) -> Result<(), Failed> {
    // It does not outlive whoever started it.
    std::thread::spawn(|| {
        drop(std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink()));
        std::process::exit(0);
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    match role {
        "recorder" => runtime.block_on(recorder::record(place()?)),
        "worker" => runtime.block_on(worker::work(place()?)),
        other => Err(format!("{other:?} is no role").into()),
    }
}

fn place<T: DeserializeOwned>() -> Result<T, Failed> {
    Ok(serde_json::from_str(&std::env::var(PLACE)?)?)
}

/// Plain `cargo test` has no PostgreSQL: the script starts one and runs this program again.
fn again_with_postgres() -> ExitCode {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/with-postgres");
    let this = std::env::current_exe().expect("a program knows where it is");
    let ended = Command::new(script).arg(this).args(std::env::args_os().skip(1)).status();
    match ended.expect("the script can be run").code() {
        Some(0) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}
