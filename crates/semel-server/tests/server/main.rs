//! The server's only integration-test program: one named test per store and case.

mod access;
mod batch;
mod cli;
mod control;
mod demo;
mod dependencies;
mod deployed;
mod describe;
mod documented;
mod events;
mod fuzz;
mod hooks;
mod hostile;
mod keys;
mod kill;
mod operate;
mod process;
mod queues;
mod reads;
mod secure;
mod served;
mod servers;
mod starts;
mod strict;
mod tenants;
mod workers;
mod world;

use std::collections::HashSet;
use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    if std::env::var_os("SEMEL_TEST_POSTGRES").is_none() {
        return again_with_postgres();
    }
    let arguments = Arguments::from_args();
    let mut trials = describe::trials();
    trials.extend(dependencies::trials());
    trials.extend(deployed::trials());
    trials.extend(fuzz::trials());
    trials.extend(servers::trials());
    trials.extend(kill::trials());
    trials.extend(access::trials());
    trials.extend(operate::trials());
    trials.extend(process::trials());
    trials.extend(secure::trials());
    trials.extend(tenants::trials());
    trials.extend(hostile::trials());
    trials.extend(demo::trials());
    trials.extend(documented::trials());
    trials.extend(workers::trials());
    trials.extend(cli::trials());
    for cases in [
        starts::cases(),
        batch::cases(),
        reads::cases(),
        events::cases(),
        control::cases(),
        hooks::cases(),
        keys::cases(),
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
