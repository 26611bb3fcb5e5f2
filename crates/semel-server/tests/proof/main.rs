//! The proof: real servers, workers and a recorder, loaded and disturbed, and a checker that would find a lost or doubled
//! effect; and the hostile environment in which they live.
//!
//! `make check` plays the short form; `make proof` the long one. `SEMEL_PROOF_SEED` chooses what is drawn,
//! `SEMEL_PROOF_SECONDS` how long a phase is loaded, `SEMEL_PROOF_ONLY` which phases of the long form are played.

mod api;
mod books;
mod bulk;
mod checker;
mod cluster;
mod definitions;
mod disk;
mod disturbances;
mod driver;
mod execute;
mod faults;
mod findings;
mod forms;
mod image;
mod journal;
mod languages;
mod nemesis;
mod operator;
mod outside;
mod phase;
mod poison;
mod power;
mod process;
mod program;
mod proxy;
mod recorder;
mod report;
mod restarts;
mod rows;
#[cfg(feature = "sabotage")]
mod sabotage;
mod said;
#[path = "../server/services.rs"]
mod services;
mod site;
mod starts;
mod trap;
mod victim;
mod worker;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed};
use serde::de::DeserializeOwned;

use crate::process::{PLACE, ROLE};

/// One trial per function, named after the module and the function.
macro_rules! trials {
    ($($name:ident),+ $(,)?) => {{
        let area = module_path!().rsplit("::").next().expect("a module has a name");
        vec![$(libtest_mimic::Trial::test(format!("{area}::{}", stringify!($name)), || {
            crate::runtime().block_on($name())
        })),+]
    }};
}
pub(crate) use trials;

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
    if services::are_missing() {
        return services::start_and_run_again();
    }
    let mut arguments = Arguments::from_args();
    // Each trial has many processes, and they share all processors.
    arguments.test_threads = Some(1);
    let trials = [
        proxy::trials(),
        cluster::trials(),
        rows::trials(),
        faults::trials(),
        disk::trials(),
        power::trials(),
        forms::trials(),
        definitions::trials(),
    ];
    libtest_mimic::run(&arguments, trials.into_iter().flatten().collect()).exit_code()
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().expect("a runtime can be made")
}

/// This process is one of those that are disturbed, or the one that never is.
fn play(role: &str) -> Result<(), Failed> {
    // It does not outlive its parent process.
    std::thread::spawn(|| {
        drop(std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink()));
        std::process::exit(0);
    });
    match role {
        "recorder" => runtime().block_on(recorder::record(place()?)),
        "worker" => runtime().block_on(worker::work(place()?)),
        "provider" => runtime().block_on(definitions::provider::provide(place()?)),
        "stand-in" => runtime().block_on(definitions::stand_in::stand_in(place()?)),
        other => Err(format!("{other:?} is no role").into()),
    }
}

fn place<T: DeserializeOwned>() -> Result<T, Failed> {
    Ok(serde_json::from_str(&std::env::var(PLACE)?)?)
}
