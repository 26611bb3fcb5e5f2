//! The command line: one file for each command.

mod dev;
mod serve;

use clap::{Parser, Subcommand};

/// A durable workflow engine in which every effect takes place once.
#[derive(Debug, Parser)]
#[command(name = "semel", version)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Dev(dev::Dev),
    Serve(serve::Serve),
}

impl Cli {
    /// Does what was asked; gives the exit code.
    pub async fn run(self) -> u8 {
        let done = match self.command {
            Command::Dev(dev) => dev.run().await,
            Command::Serve(serve) => serve.run().await,
        };
        match done {
            Ok(()) => 0,
            Err(error) => {
                eprintln!("semel: {error}");
                1
            }
        }
    }
}
