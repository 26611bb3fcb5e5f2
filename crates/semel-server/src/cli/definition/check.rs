//! `semel definition check`: checks files without storing them, here or with a server.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{listed, read, shown};
use crate::api::{DocumentProblem, PushAnswer};
use crate::cli::OutputArgs;
use crate::cli::client::{ApiCall, CONNECTION, Client, ServerArgs, TrustArgs};
use crate::cli::exit::{Done, Exit, Failure};
use crate::cli::output::{Format, json as text, print};
use crate::definitions::check;

/// Check definitions: everything that can be said without a server, and with `--url` everything that a server would say.
///
/// A server knows connections and children; it writes nothing. All problems are shown at once, the worst first, each with its line and column. With problems the exit code is 2; warnings alone
/// are accepted.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  semel definition check order.yaml
  semel definition check definitions/*.yaml -o json
  semel definition check - < order.yaml
  semel definition check order.yaml --url http://127.0.0.1:7700")]
pub(in crate::cli) struct CheckDefinitions {
    /// Files with definitions, in YAML or JSON; `-` is stdin.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// URL of a server that checks connections and children too. Default: no server is asked.
    #[arg(long, value_name = "URL", help_heading = CONNECTION)]
    url: Option<String>,
    #[command(flatten)]
    trust: TrustArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// What was found in a file.
struct CheckedFile<'a> {
    file: &'a PathBuf,
    /// Name and id, if the definition is accepted.
    accepted: Option<(String, String)>,
    problems: Vec<DocumentProblem>,
}

impl CheckedFile<'_> {
    fn json(&self) -> Value {
        let (name, id) = self.accepted.clone().unzip();
        json!({"file": self.file.display().to_string(), "name": name, "id": id, "problems": self.problems})
    }

    fn lines(&self) -> String {
        let mut lines = Vec::new();
        if !self.problems.is_empty() {
            lines.push(listed(self.file, &self.problems));
        }
        if let Some((name, id)) = &self.accepted {
            lines.push(format!("{}: ok, {name} {id}", self.file.display()));
        }
        lines.join("\n")
    }
}

/// Name and id of an accepted definition, and problems or warnings.
type FileVerdict = (Option<(String, String)>, Vec<DocumentProblem>);

/// Checks a file by itself.
fn offline(path: &Path) -> Done<FileVerdict> {
    Ok(match check::check(&read(path)?) {
        Ok(accepted) => {
            let named = (accepted.definition.name, accepted.id.to_string());
            (Some(named), shown(accepted.warnings))
        }
        Err(problems) => (None, shown(problems)),
    })
}

/// Lets a server check a file.
async fn online(client: &Client, path: &Path) -> Done<FileVerdict> {
    let text = read(path)?;
    let call = ApiCall::post_yaml(["workflow-definitions"], &text).query("check", Some(true));
    match client.call(&call).await {
        Ok(answer) => {
            let PushAnswer { name, id, warnings, .. } = answer.read()?;
            Ok((Some((name, id)), warnings))
        }
        Err(failure) if !failure.problems.is_empty() => Ok((None, failure.problems)),
        Err(failure) => Err(failure),
    }
}

impl CheckDefinitions {
    pub(super) async fn execute(self) -> Done {
        let output = self.output.output;
        let client = match self.url {
            Some(url) => Some(Client::new(&ServerArgs::at(url, self.trust, output))?),
            None => None,
        };
        let mut found = Vec::new();
        for file in &self.files {
            let (accepted, problems) = match &client {
                Some(client) => online(client, file).await?,
                None => offline(file)?,
            };
            found.push(CheckedFile { file, accepted, problems });
        }
        match output {
            Format::Table => found.iter().try_for_each(|checked| print(&checked.lines()))?,
            Format::Ndjson => found.iter().try_for_each(|checked| print(&text(&checked.json())))?,
            Format::Json => {
                print(&text(&json!({"files": found.iter().map(CheckedFile::json).collect::<Vec<_>>()})))?;
            }
        }
        let refused = found.iter().filter(|checked| checked.accepted.is_none()).count();
        match refused {
            0 => Ok(()),
            1 => Err(Failure::new(Exit::Usage, "the definition is not accepted")),
            _ => Err(Failure::new(Exit::Usage, format!("{refused} definitions are not accepted"))),
        }
    }
}
