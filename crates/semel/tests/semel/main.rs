//! The crate's only integration-test program: one named test per store and case.

mod conformance;
mod differential;
#[cfg(all(feature = "sqlite", feature = "postgres"))]
mod encrypted;
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
#[cfg(all(feature = "sqlite", feature = "postgres"))]
mod schema;
#[cfg(feature = "sqlite")]
mod sqlite;
mod stores;
mod tidy;
mod vectors;

use std::collections::HashSet;
use std::path::Path;
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
    if SERVICES.iter().any(|(variable, _)| std::env::var_os(variable).is_none()) {
        return again_with_services();
    }
    let _listeners = listeners();
    let arguments = Arguments::from_args();
    let mut trials = tidy::trials();
    trials.extend(vectors::trials());
    trials.extend(conformance::trials());
    trials.extend(differential::trials());
    trials.extend(engine::trials());
    trials.extend(fuzz::trials());
    #[cfg(feature = "sqlite")]
    trials.extend(examples::trials());
    #[cfg(feature = "sqlite")]
    trials.extend(sqlite::trials());
    #[cfg(all(feature = "sqlite", feature = "postgres"))]
    {
        trials.extend(encrypted::trials());
        trials.extend(kill::trials());
        trials.extend(lost::trials());
        trials.extend(migrate::trials());
        trials.extend(plans::trials());
        trials.extend(postgres::trials());
        trials.extend(processes::trials());
        trials.extend(schema::trials());
    }
    for stores in stores::all() {
        trials.extend(cases().into_iter().map(|case| trial(stores.clone(), case)));
    }
    let names: HashSet<_> = trials.iter().map(Trial::name).collect();
    assert_eq!(names.len(), trials.len(), "every test has a name of its own");
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Two that hear nothing, for as long as there are tests. With one subscriber in the whole program, `tracing` takes it for the
/// global one: the first thread without a listener that reaches a log statement would turn that
/// statement off for the test that listens on its own thread.
fn listeners() -> [Dispatch; 2] {
    [(); 2].map(|()| Dispatch::new(NoSubscriber::new()))
}

/// The servers that tests use: the variable with the URL, and the script that starts one.
const SERVICES: &[(&str, &str)] = &[
    #[cfg(feature = "postgres")]
    ("SEMEL_TEST_POSTGRES", "with-postgres"),
    #[cfg(feature = "sqlx-mysql")]
    ("SEMEL_TEST_MARIADB", "with-mariadb"),
];

/// Plain `cargo test` has no servers: the scripts start them and run this program again. A script whose server is there
/// already only runs the next one.
fn again_with_services() -> ExitCode {
    let scripts = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts"));
    let this = std::env::current_exe().expect("a program knows where it is");
    let mut words = SERVICES.iter().map(|(_, script)| scripts.join(script)).chain([this]);
    let mut command = Command::new(words.next().expect("there is a program at least"));
    let ended = command.args(words).args(std::env::args_os().skip(1)).status();
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
