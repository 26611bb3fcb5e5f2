//! The servers of other products that tests use, started by the project's scripts. The proof uses this file, too.

use std::path::Path;
use std::process::{Command, ExitCode};

/// The variable with the URL, and the script that starts the server.
const SERVICES: [(&str, &str); 5] = [
    ("SEMEL_TEST_POSTGRES", "with-postgres"),
    ("SEMEL_TEST_MARIADB", "with-mariadb"),
    ("SEMEL_TEST_NATS", "with-nats"),
    ("SEMEL_TEST_REDIS", "with-redis"),
    ("SEMEL_TEST_PGVECTOR", "with-pgvector"),
];

/// Whether one of the servers is not there.
pub(crate) fn are_missing() -> bool {
    SERVICES.iter().any(|(variable, _)| std::env::var_os(variable).is_none())
}

/// Plain `cargo test` has no servers: the scripts start them and run this program again. A script whose server is there
/// already only runs the next one.
pub(crate) fn start_and_run_again() -> ExitCode {
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
