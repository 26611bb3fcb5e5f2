//! `semel definition …`: definitions in files, and those of a server.

mod check;
mod graph;
mod import;
mod ls;
mod name;
mod push;
mod show;

use std::path::Path;

use clap::Subcommand;

use super::ServerCommand;
use super::exit::{Done, Exit, Failure};
use super::output::print;
use crate::api::DocumentProblem;
use crate::definitions::check::Accepted;
use crate::definitions::editor;
use crate::definitions::problem::Problem;

/// Check, push, show, draw and import workflow definitions.
#[derive(Debug, Subcommand)]
pub(super) enum DefinitionCommand {
    Check(check::CheckDefinitions),
    Push(ServerCommand<push::PushDefinitions>),
    Ls(ServerCommand<ls::DefinitionsLs>),
    Show(ServerCommand<show::DefinitionShow>),
    Use(ServerCommand<name::DefinitionUse>),
    Archive(ServerCommand<name::DefinitionArchive>),
    Graph(graph::DrawGraph),
    #[command(subcommand)]
    Import(import::ImportCommand),
    Schema(Schema),
}

impl DefinitionCommand {
    pub(super) async fn execute(self) -> Done {
        match self {
            Self::Check(check) => check.execute().await,
            Self::Push(push) => push.command.execute(&push.server).await,
            Self::Ls(ls) => ls.command.execute(&ls.server).await,
            Self::Show(show) => show.command.execute(&show.server).await,
            Self::Use(used) => used.command.execute(&used.server).await,
            Self::Archive(archive) => archive.command.execute(&archive.server).await,
            Self::Graph(graph) => graph.execute(),
            Self::Import(import) => import.execute(),
            Self::Schema(Schema {}) => print_schema(),
        }
    }
}

/// Print the JSON Schema of definitions, for editors.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  semel definition schema > definition.schema.json
  # and at the head of a definition, for editors with the YAML language server:
  # yaml-language-server: $schema=definition.schema.json")]
pub(super) struct Schema {}

fn print_schema() -> Done {
    print(&serde_json::to_string_pretty(&editor::schema()).expect("a schema is JSON"))
}

/// Reads a file; `-` is stdin.
fn read(path: &Path) -> Done<String> {
    let text = if path.as_os_str() == "-" {
        std::io::read_to_string(std::io::stdin().lock())
    } else {
        std::fs::read_to_string(path)
    };
    text.map_err(|error| {
        let exit = match error.kind() {
            std::io::ErrorKind::NotFound => Exit::NotFound,
            std::io::ErrorKind::InvalidData => Exit::Usage,
            _ => Exit::Failed,
        };
        Failure::new(exit, format!("{}: {error}", path.display()))
    })
}

/// Reads and checks a file that must be right.
fn accepted(path: &Path) -> Done<Accepted> {
    crate::definitions::check::check(&read(path)?).map_err(|problems| {
        let failure = Failure::new(Exit::Usage, listed(path, &shown(problems)));
        failure.help(format!("`semel definition check {}` says the same", path.display()))
    })
}

/// Problems in the form in which a server answers them.
fn shown(problems: Vec<Problem>) -> Vec<DocumentProblem> {
    problems.into_iter().map(Into::into).collect()
}

/// Problems as compilers show them: a line for each, with file, line and column.
fn listed(path: &Path, problems: &[DocumentProblem]) -> String {
    let lines = problems.iter().map(|problem| format!("{}:{problem}", path.display()));
    lines.collect::<Vec<_>>().join("\n")
}
