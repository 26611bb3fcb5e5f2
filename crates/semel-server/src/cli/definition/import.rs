//! `semel definition import …`.

use std::path::PathBuf;

use super::read;
use crate::cli::exit::{Done, Exit, Failure};
use crate::cli::output::{note, print};
use crate::definitions::import::conductor;

/// Convert a definition of another engine.
#[derive(Debug, clap::Subcommand)]
pub(in crate::cli) enum ImportCommand {
    Conductor(Conductor),
}

impl ImportCommand {
    pub(super) fn execute(self) -> Done {
        match self {
            Self::Conductor(conductor) => conductor.execute(),
        }
    }
}

/// Convert a workflow definition of Conductor.
///
/// What cannot be converted is refused, with the task and the reason: JavaScript, jq, and tasks that are chosen at run time. What is
/// to be decided by hand is noted.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  semel definition import conductor workflow.json > order.yaml
  semel definition import conductor - < workflow.json")]
pub(in crate::cli) struct Conductor {
    /// File with the definition, as JSON; `-` is stdin.
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

impl Conductor {
    fn execute(self) -> Done {
        let imported = conductor::import(&read(&self.file)?).map_err(|refusals| {
            let lines: Vec<String> = refusals.iter().map(ToString::to_string).collect();
            Failure::new(Exit::Usage, lines.join("\n")).help("rewrite these tasks, and import again")
        })?;
        imported.notes.iter().for_each(|text| note(text));
        print(imported.text.trim_end())
    }
}
