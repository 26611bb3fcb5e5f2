//! Remote workers: the suite of stores over a real connection, the protocol itself, and processes that are killed.

mod clients;
mod clock;
mod described;
mod folded;
pub(crate) mod large;
pub(crate) mod ownership;
mod processes;
mod protocol;
mod site;
mod suite;
mod tls;
pub(crate) mod waiting;

use libtest_mimic::{Failed, Trial};
use tokio::runtime::{Builder, Runtime};

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = suite::trials();
    trials.extend(protocol::trials());
    trials.extend(folded::trials());
    trials.extend(described::trials());
    trials.extend(clock::trials());
    trials.extend(clients::trials());
    trials.extend(processes::trials());
    trials.extend(tls::trials());
    trials
}

fn runtime(threads: bool) -> Runtime {
    let mut builder = if threads { Builder::new_multi_thread() } else { Builder::new_current_thread() };
    builder.worker_threads(2).enable_all().build().expect("a runtime can be made")
}

/// A test on a runtime of its own.
fn test<F: Future<Output = Result<(), Failed>> + 'static>(name: &str, body: fn() -> F) -> Trial {
    Trial::test(format!("workers::{name}"), move || runtime(true).block_on(body()))
}
