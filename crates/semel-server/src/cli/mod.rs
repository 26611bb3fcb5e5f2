//! The command line: one file for each command.

use clap::{Parser, Subcommand};

/// A durable workflow engine in which every effect takes place once.
#[derive(Debug, Parser)]
#[command(name = "semel", version)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {}

impl Cli {
    /// Does what was asked; gives the exit code.
    pub async fn run(self) -> u8 {
        match self.command {}
    }
}
