//! The crate's only integration-test program: one named test per store and case.

mod differential;
mod engine;
#[cfg(feature = "sqlite")]
mod examples;
mod fuzz;
#[cfg(all(feature = "sqlite", feature = "postgres"))]
mod kill;
#[cfg(all(feature = "sqlite", feature = "postgres"))]
mod lost;
#[cfg(all(feature = "sqlite", feature = "postgres"))]
mod migrate;
#[cfg(all(feature = "sqlite", feature = "postgres"))]
mod plans;
#[cfg(all(feature = "sqlite", feature = "postgres"))]
mod postgres;
#[cfg(all(feature = "sqlite", feature = "postgres"))]
mod processes;
#[path = "../programs/mod.rs"]
mod programs;
#[cfg(feature = "sqlite")]
mod sqlite;
mod stores;
mod tidy;
mod vectors;

use std::collections::HashSet;
use std::process::{Command, ExitCode};
use std::sync::Arc;

use libtest_mimic::{Arguments, Failed, Trial};
use semel::testing::suite::{Case, Stores, World, cases};
use tokio::runtime::{Builder, Runtime};
use tracing::Dispatch;
use tracing::subscriber::NoSubscriber;

fn main() -> ExitCode {
    #[cfg(all(feature = "sqlite", feature = "postgres"))]
    if let Some(played) = processes::play() {
        return match played {
            Ok(()) => ExitCode::SUCCESS,
            Err(failed) => {
                eprintln!("{failed:?}");
                ExitCode::FAILURE
            }
        };
    }
    if cfg!(feature = "postgres") && std::env::var_os("SEMEL_TEST_POSTGRES").is_none() {
        return again_with_postgres();
    }
    let _listeners = listeners();
    let arguments = Arguments::from_args();
    let mut trials = tidy::trials();
    trials.extend(vectors::trials());
    trials.extend(differential::trials());
    trials.extend(engine::trials());
    trials.extend(fuzz::trials());
    #[cfg(feature = "sqlite")]
    trials.extend(examples::trials());
    #[cfg(feature = "sqlite")]
    trials.extend(sqlite::trials());
    #[cfg(all(feature = "sqlite", feature = "postgres"))]
    {
        trials.extend(kill::trials());
        trials.extend(lost::trials());
        trials.extend(migrate::trials());
        trials.extend(plans::trials());
        trials.extend(postgres::trials());
        trials.extend(processes::trials());
    }
    for stores in stores::all() {
        trials.extend(cases().into_iter().map(|case| trial(stores.clone(), case)));
    }
    let names: HashSet<_> = trials.iter().map(Trial::name).collect();
    assert_eq!(names.len(), trials.len(), "every test has a name of its own");
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Two that hear nothing, for as long as there are tests. With one subscriber in the whole program, `tracing` takes it for the
/// global one: whoever comes first by a place where something is said, on a thread where nobody listens, would turn that
/// place off for the test that listens on its own thread.
fn listeners() -> [Dispatch; 2] {
    [(); 2].map(|()| Dispatch::new(NoSubscriber::new()))
}

/// Plain `cargo test` has no server: the script starts one and runs this program again.
fn again_with_postgres() -> ExitCode {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/with-postgres");
    let this = std::env::current_exe().expect("a program knows where it is");
    let ended = Command::new(script).arg(this).args(std::env::args_os().skip(1)).status();
    match ended.expect("the script can be run").code() {
        Some(0) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

fn trial(stores: Arc<dyn Stores>, case: Case) -> Trial {
    let name = format!("{}::{}", stores.name(), case.name);
    Trial::test(name, move || runtime(case.threads).block_on(play(&*stores, case)))
}

async fn play(stores: &dyn Stores, case: Case) -> Result<(), Failed> {
    (case.run)(World::new(stores).await?).await;
    Ok(())
}

fn runtime(threads: bool) -> Runtime {
    let mut builder = if threads { Builder::new_multi_thread() } else { Builder::new_current_thread() };
    builder.worker_threads(2).enable_all().build().expect("a runtime can be made")
}
