//! The command line: one file for each command.

mod demo;

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
    Demo(demo::Demo),
    #[command(hide = true)]
    DemoProvider(demo::DemoProvider),
    #[command(hide = true)]
    DemoEngine(demo::DemoEngine),
}

impl Cli {
    /// Does what was asked; gives the exit code.
    pub async fn run(self) -> u8 {
        match self.command {
            Command::Demo(demo) => demo.run().await,
            Command::DemoProvider(provider) => provider.run().await,
            Command::DemoEngine(engine) => engine.run().await,
        }
    }
}
