//! The binary.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    ExitCode::from(semel_server::cli::Cli::parse().run())
}
