//! The server's only integration-test program: one named test per store and case.

mod access;
mod approvals;
mod batch;
mod browser;
mod canaries;
mod channels;
mod cli;
mod console;
mod control;
mod costs;
mod databases;
mod definitions;
mod demo;
mod dependencies;
mod deployed;
mod describe;
mod documented;
mod events;
mod fuzz;
mod hooks;
mod hostile;
#[cfg(feature = "ingest")]
mod ingest;
mod keys;
mod kill;
mod operate;
mod outbound;
mod overtaken;
mod process;
#[cfg(all(feature = "nats", feature = "redis"))]
mod publish;
mod questions;
mod queues;
mod reads;
mod replays;
mod secure;
mod senders;
mod served;
mod servers;
mod services;
mod starts;
mod strict;
mod tasks;
mod tenants;
mod unread;
mod workers;
mod world;

use std::collections::HashSet;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    if services::are_missing() {
        return services::start_and_run_again();
    }
    let arguments = Arguments::from_args();
    let mut trials = describe::trials();
    trials.extend(dependencies::trials());
    trials.extend(deployed::trials());
    trials.extend(fuzz::trials());
    trials.extend(servers::trials());
    trials.extend(kill::trials());
    trials.extend(access::trials());
    trials.extend(console::visitors::trials());
    trials.extend(browser::trials());
    trials.extend(operate::trials());
    trials.extend(process::trials());
    trials.extend(secure::trials());
    trials.extend(canaries::trials());
    trials.extend(outbound::trials());
    trials.extend(tenants::trials());
    trials.extend(unread::trials());
    trials.extend(databases::trials());
    #[cfg(feature = "ingest")]
    trials.extend(ingest::trials());
    trials.extend(definitions::tenants::trials());
    trials.extend(hostile::trials());
    trials.extend(demo::trials());
    trials.extend(documented::trials());
    trials.extend(workers::trials());
    trials.extend(cli::trials());
    trials.extend(approvals::trials());
    #[cfg(all(feature = "nats", feature = "redis"))]
    trials.extend(publish::trials());
    trials.extend(channels::trials());
    trials.extend(tasks::trials());
    for cases in [
        approvals::cases(),
        tasks::order::cases(),
        senders::cases(),
        starts::cases(),
        batch::cases(),
        reads::cases(),
        replays::cases(),
        events::cases(),
        control::cases(),
        console::pages::cases(),
        console::timeline::cases(),
        costs::cases(),
        hooks::cases(),
        definitions::cases(),
        keys::cases(),
        questions::cases(),
        queues::cases(),
        strict::cases(),
        workers::large::cases(),
        workers::ownership::cases(),
        workers::waiting::cases(),
    ] {
        trials.extend(cases.into_iter().flat_map(world::on_every_store));
    }
    let names: HashSet<_> = trials.iter().map(Trial::name).collect();
    assert_eq!(names.len(), trials.len(), "every test has a name of its own");
    libtest_mimic::run(&arguments, trials).exit_code()
}
