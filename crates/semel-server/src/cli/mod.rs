//! The command line: one file for each command.
//!
//! Results go to stdout, as a table or as JSON; notes, progress and errors to stderr. Commands on runs talk to a
//! server; those under `store` open a store directly.

mod approval;
mod bench;
mod client;
mod completions;
mod connection;
mod definition;
mod demo;
mod dev;
mod doctor;
mod doubt;
mod duplicate;
mod exit;
mod hook;
mod input;
mod key;
mod node;
mod output;
mod run;
mod serve;
mod start;
mod stats;
mod step;
mod store;
mod token;
mod worker;
mod workspace;

use clap::{Args, Parser, Subcommand};

pub use exit::EXIT_CODES;

use client::ServerArgs;
use exit::{Done, Exit, Failure};
use output::Format;

/// Durable workflow engine in which every effect takes place once.
#[derive(Debug, Parser)]
#[command(name = "semel", version, after_help = exit::help())]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

// These have no doc comments: clap would show them instead of those of the commands.

#[derive(Debug, Args)]
struct ServerCommand<C: Args> {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    command: C,
}

#[derive(Debug, Args)]
struct ServerGroup<C: Subcommand> {
    #[command(flatten)]
    server: ServerArgs,
    #[command(subcommand)]
    command: C,
}

#[derive(Debug, Args)]
struct OutputCommand<C: Args> {
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    command: C,
}

#[derive(Debug, Args)]
struct OutputGroup<C: Subcommand> {
    #[command(flatten)]
    output: OutputArgs,
    #[command(subcommand)]
    command: C,
}

/// Option of commands that have results but do not talk to a server.
#[derive(Debug, Args)]
struct OutputArgs {
    /// Format of the results.
    #[arg(short, long, global = true, value_enum, default_value_t, value_name = "FORMAT")]
    output: Format,
}

#[derive(Debug, Subcommand)]
enum Command {
    Dev(dev::Dev),
    Serve(serve::Serve),
    Demo(OutputCommand<demo::Demo>),
    #[command(hide = true)]
    DemoProvider(demo::DemoProvider),
    #[command(hide = true)]
    DemoEngine(demo::DemoEngine),
    Start(ServerCommand<start::Start>),
    Run(ServerGroup<run::Run>),
    #[command(subcommand)]
    Definition(definition::DefinitionCommand),
    #[command(subcommand)]
    Connection(connection::ConnectionCommand),
    Hook(ServerGroup<hook::Hook>),
    Approval(ServerGroup<approval::ApprovalCommand>),
    Key(ServerGroup<key::Key>),
    Duplicate(ServerGroup<duplicate::DuplicateCommand>),
    Stats(ServerCommand<stats::StatsCommand>),
    Step(ServerGroup<step::Step>),
    Doubt(ServerGroup<doubt::DoubtCommand>),
    Node(ServerGroup<node::NodeCommand>),
    Worker(ServerGroup<worker::WorkerCommand>),
    Workspace(ServerGroup<workspace::WorkspaceCommand>),
    Token(ServerGroup<token::TokenCommand>),
    Store(OutputGroup<store::Store>),
    Doctor(ServerCommand<doctor::Doctor>),
    Bench(ServerCommand<bench::Bench>),
    Completions(completions::Completions),
}

impl Cli {
    /// Executes the command on its own runtime and returns the exit code. The runtime is built here, not in `main`: a
    /// future that the binary polls would be compiled a second time with the binary.
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
        match self.command {
            Command::Demo(demo) => return Ok(demo.command.run(demo.output.output).await),
            Command::DemoProvider(provider) => return Ok(provider.run().await),
            Command::DemoEngine(engine) => return Ok(engine.run().await),
            Command::Dev(dev) => dev.run().await?,
            Command::Serve(serve) => serve.run().await?,
            Command::Start(start) => start.command.execute(&start.server).await?,
            Command::Run(run) => run.command.execute(&run.server).await?,
            Command::Definition(definition) => definition.execute().await?,
            Command::Connection(connection) => connection.execute().await?,
            Command::Hook(hook) => hook.command.execute(&hook.server).await?,
            Command::Approval(approval) => approval.command.execute(&approval.server).await?,
            Command::Key(key) => key.command.execute(&key.server).await?,
            Command::Duplicate(list) => list.command.execute(&list.server).await?,
            Command::Stats(stats) => stats.command.execute(&stats.server).await?,
            Command::Step(step) => step.command.execute(&step.server).await?,
            Command::Doubt(doubt) => doubt.command.execute(&doubt.server).await?,
            Command::Node(node) => node.command.execute(&node.server).await?,
            Command::Worker(worker) => worker.command.execute(&worker.server).await?,
            Command::Workspace(workspace) => workspace.command.execute(&workspace.server).await?,
            Command::Token(token) => token.command.execute(&token.server).await?,
            Command::Store(store) => store.command.execute(store.output.output).await?,
            Command::Doctor(doctor) => doctor.command.execute(&doctor.server).await?,
            Command::Bench(bench) => bench.command.execute(&bench.server).await?,
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
    fn a_help_lists_only_options_that_mean_something_there() {
        let mut root = Cli::command();
        root.build();
        let mut found = Vec::new();
        each(&root, "", &mut found);
        for (path, help) in found {
            let command = path.split_whitespace().nth(1).unwrap_or_default();
            let (server, output) = match command {
                "start" | "run" | "hook" | "approval" | "key" | "duplicate" | "stats" | "step" | "doubt"
                | "node" | "worker" | "workspace" | "token" | "doctor" | "bench" => (true, true),
                "demo" | "store" => (false, true),
                "definition" => {
                    let server = ["check", "push", "ls", "show", "use", "archive"];
                    let asks = server.iter().any(|command| path.ends_with(&format!("definition {command}")));
                    (asks, asks)
                }
                "connection" => (path.ends_with(" ls"), path.ends_with(" ls") || path.ends_with(" check")),
                "" | "dev" | "serve" | "completions" | "help" => (false, false),
                other => panic!("{other} is not in the table"),
            };
            if path.contains(" help") {
                continue;
            }
            for option in ["--url <URL>", "--token <TOKEN>", "--ca-file <FILE>"] {
                assert_eq!(help.contains(option), server, "{path}: {option}\n{help}");
            }
            let connection = help.split_once("\nConnection:\n").unwrap_or_default();
            assert!(
                !connection.0.contains("--ca-file"),
                "{path} mixes the connection with its own options:\n{help}"
            );
            assert_eq!(connection.1.contains("--ca-file"), server, "{path}\n{help}");
            assert_eq!(help.contains("--output <FORMAT>"), output, "{path}\n{help}");
        }
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
