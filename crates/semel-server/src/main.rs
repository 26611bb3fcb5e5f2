//! The binary.

use std::process::ExitCode;

use clap::Parser;

#[tokio::main]
async fn main() -> ExitCode {
    ExitCode::from(semel_server::cli::Cli::parse().run().await)
}
