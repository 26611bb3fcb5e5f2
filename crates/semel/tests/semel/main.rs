//! The crate's only integration-test program: one named test per store and case.

mod differential;
mod stores;
mod tidy;
mod vectors;

use std::collections::HashSet;
use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Failed, Trial};
use semel::testing::suite::{Case, Stores, World, cases};
use tokio::runtime::{Builder, Runtime};

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let mut trials = tidy::trials();
    trials.extend(vectors::trials());
    trials.extend(differential::trials());
    for stores in stores::all() {
        trials.extend(cases().into_iter().map(|case| trial(stores.clone(), case)));
    }
    let names: HashSet<_> = trials.iter().map(Trial::name).collect();
    assert_eq!(names.len(), trials.len(), "every test has a name of its own");
    libtest_mimic::run(&arguments, trials).exit_code()
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
