//! The binary `semel`. All of it is in the library, so that nothing is compiled twice.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    ExitCode::from(semel_server::cli::Cli::parse().run())
}
