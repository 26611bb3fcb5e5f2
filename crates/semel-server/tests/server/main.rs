//! The server's only integration-test program: one named test per store and case.

mod workers;

use std::collections::HashSet;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let trials = workers::trials();
    let names: HashSet<_> = trials.iter().map(Trial::name).collect();
    assert_eq!(names.len(), trials.len(), "every test has a name of its own");
    libtest_mimic::run(&arguments, trials).exit_code()
}
