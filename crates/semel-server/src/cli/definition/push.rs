//! `semel definition push`: stores definitions on a server.

use std::path::{Path, PathBuf};

use super::{listed, read};
use crate::api::{PushAnswer, PushedAs};
use crate::cli::client::{ApiCall, Client, ServerArgs};
use crate::cli::exit::{Done, Exit, Failure};
use crate::cli::output::{Format, Rows, json, note, plain, print};
use crate::cli::start::word;

/// Push definitions to a server, in the order of the files.
///
/// The same content is the same version, so a push may be repeated. New starts of the name get the pushed version; open runs keep
/// theirs. The first definition that is refused ends the command; those before it are pushed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  semel definition push order.yaml
  semel definition push definitions/*.yaml -o json
  semel definition push order.yaml --not-current")]
pub(in crate::cli) struct PushDefinitions {
    /// Files with definitions, in YAML or JSON; `-` is stdin.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Leave the current version of each name as it is. The first version becomes current in any case.
    #[arg(long)]
    not_current: bool,
}

impl PushDefinitions {
    pub(super) async fn execute(self, server: &ServerArgs) -> Done {
        let client = Client::new(server)?;
        let (mut pushed, mut refused) = (Vec::new(), Ok(()));
        for file in &self.files {
            match self.push(&client, file).await {
                Ok(answer) => pushed.push(answer),
                Err(failure) => {
                    refused = Err(failure);
                    break;
                }
            }
        }
        match server.output {
            Format::Table if pushed.is_empty() => {}
            Format::Table => table(&pushed)?,
            Format::Ndjson => pushed.iter().try_for_each(|answer| print(&json(answer)))?,
            Format::Json => print(&json(&serde_json::json!({"pushed": pushed})))?,
        }
        refused
    }

    async fn push(&self, client: &Client, file: &Path) -> Done<PushAnswer> {
        let text = read(file)?;
        let current = self.not_current.then_some(false);
        let call = ApiCall::post_yaml(["workflow-definitions"], &text).query("current", current);
        let answer = client.call(&call).await.map_err(|failure| match failure.problems.as_slice() {
            [] => failure,
            problems => Failure::new(Exit::Usage, listed(file, problems)),
        })?;
        let answer: PushAnswer = answer.read()?;
        if !answer.warnings.is_empty() {
            note(&listed(file, &answer.warnings));
        }
        Ok(answer)
    }
}

fn table(pushed: &[PushAnswer]) -> Done {
    let columns = ["DEFINITION", "PUSHED", "CURRENT", "ID"];
    let mut rows = Rows::new(columns, "nothing was pushed").whole([1, 2, 3]);
    for answer in pushed {
        let current = match (answer.current, answer.verdict, &answer.previous) {
            (false, ..) => "no",
            (true, PushedAs::Unchanged, Some(_)) => "again",
            (true, ..) => "yes",
        };
        rows.add([
            plain(&format!("{}@{}", answer.name, answer.version)),
            word(&answer.verdict),
            current.to_owned(),
            answer.id.clone(),
        ]);
    }
    rows.print()
}
