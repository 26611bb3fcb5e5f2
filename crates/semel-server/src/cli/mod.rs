//! The command line: one file for each command.
//!
//! Results go to stdout, as a table or as JSON; notes, progress and errors to stderr. Commands on runs talk to a server;
//! those under `store` work on a store itself.

mod bench;
mod client;
mod completions;
mod demo;
mod dev;
mod doctor;
mod exit;
mod hook;
mod input;
mod key;
mod output;
mod run;
mod serve;
mod start;
mod step;
mod store;
mod token;
mod worker;
mod workspace;

use clap::{Parser, Subcommand};

pub use exit::EXIT_CODES;

use client::Server;
use exit::{Done, Exit, Failure};

/// A durable workflow engine in which every effect takes place once.
#[derive(Debug, Parser)]
#[command(name = "semel", version, after_help = exit::help())]
pub struct Cli {
    #[command(flatten)]
    server: Server,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
#[expect(clippy::large_enum_variant, reason = "there is one, and it is taken apart at once")]
enum Command {
    Dev(dev::Dev),
    Serve(serve::Serve),
    Demo(demo::Demo),
    #[command(hide = true)]
    DemoProvider(demo::DemoProvider),
    #[command(hide = true)]
    DemoEngine(demo::DemoEngine),
    Start(start::Start),
    #[command(subcommand)]
    Run(run::Run),
    #[command(subcommand)]
    Hook(hook::Hook),
    #[command(subcommand)]
    Key(key::Key),
    #[command(subcommand)]
    Step(step::Step),
    #[command(subcommand)]
    Worker(worker::Worker),
    #[command(subcommand)]
    Workspace(workspace::Workspace),
    #[command(subcommand)]
    Token(token::Token),
    #[command(subcommand)]
    Store(store::Store),
    Doctor(doctor::Doctor),
    Bench(bench::Bench),
    Completions(completions::Completions),
}

impl Cli {
    /// Executes the command on a runtime of its own and returns the exit code. The runtime is made here, not in `main`: a future
    /// that the binary polls would be compiled a second time with the binary.
    pub fn run(self) -> u8 {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        let done = match runtime {
            Ok(runtime) => runtime.block_on(self.execute()),
            Err(error) => Err(Failure::new(Exit::Failed, format!("the runtime cannot be started: {error}"))),
        };
        match done {
            Ok(code) => code,
            Err(failure) => {
                output::note(&format!("semel: {failure}"));
                failure.exit as u8
            }
        }
    }

    async fn execute(self) -> Done<u8> {
        let server = &self.server;
        match self.command {
            Command::Demo(demo) => return Ok(demo.run(server.output).await),
            Command::DemoProvider(provider) => return Ok(provider.run().await),
            Command::DemoEngine(engine) => return Ok(engine.run().await),
            Command::Dev(dev) => dev.run().await?,
            Command::Serve(serve) => serve.run().await?,
            Command::Start(start) => start.execute(server).await?,
            Command::Run(run) => run.execute(server).await?,
            Command::Hook(hook) => hook.execute(server).await?,
            Command::Key(key) => key.execute(server).await?,
            Command::Step(step) => step.execute(server).await?,
            Command::Worker(worker) => worker.execute(server).await?,
            Command::Workspace(workspace) => workspace.execute(server).await?,
            Command::Token(token) => token.execute(server).await?,
            Command::Store(store) => store.execute(server.output).await?,
            Command::Doctor(doctor) => doctor.execute(server).await?,
            Command::Bench(bench) => bench.execute(server).await?,
            Command::Completions(completions) => completions.execute()?,
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn each(command: &clap::Command, path: &str, found: &mut Vec<(String, String)>) {
        let path = format!("{path} {}", command.get_name());
        found.push((path.clone(), command.clone().render_long_help().to_string()));
        for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
            each(inner, &path, found);
        }
    }

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_a_help_with_an_example() {
        let mut found = Vec::new();
        each(&Cli::command(), "", &mut found);
        assert!(found.len() > 30, "{}", found.len());
        for (path, help) in found.iter().skip(1) {
            assert!(help.lines().next().is_some_and(|line| line.len() > 10), "{path}: {help}");
            let group = help.contains("Commands:");
            assert!(group || help.contains("Examples:\n  semel "), "{path} has no example:\n{help}");
        }
    }
}
