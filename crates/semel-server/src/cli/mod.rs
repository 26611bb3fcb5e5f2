//! The command line: one file for each command.

mod demo;
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
    Demo(demo::Demo),
    #[command(hide = true)]
    DemoProvider(demo::DemoProvider),
    #[command(hide = true)]
    DemoEngine(demo::DemoEngine),
}

impl Cli {
    /// Does what was asked; gives the exit code.
    pub async fn run(self) -> u8 {
        let done = match self.command {
            Command::Dev(dev) => dev.run().await,
            Command::Serve(serve) => serve.run().await,
            Command::Demo(demo) => return demo.run().await,
            Command::DemoProvider(provider) => return provider.run().await,
            Command::DemoEngine(engine) => return engine.run().await,
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
