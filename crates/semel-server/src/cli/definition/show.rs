//! `semel definition show`: a definition with its versions.

use crate::api::DefinitionDetail;
use crate::cli::client::{ApiCall, Client, ServerArgs};
use crate::cli::exit::Done;
use crate::cli::output::{Format, Rows, ago, facts, plain, print, when};

/// Show a definition: its versions, and the text as it was pushed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  semel definition show process-order
  semel definition show process-order@3 --text > order.yaml
  semel definition show process-order -o json | jq .document.input")]
pub(in crate::cli) struct DefinitionShow {
    /// Name for the current version, `name@label`, or id.
    #[arg(value_name = "DEFINITION")]
    reference: String,
    /// Print only the text as it was pushed.
    #[arg(long)]
    text: bool,
}

impl DefinitionShow {
    pub(super) async fn execute(self, server: &ServerArgs) -> Done {
        let answer =
            Client::new(server)?.call(&ApiCall::get(["workflow-definitions", &self.reference])).await?;
        if self.text {
            let detail: DefinitionDetail = answer.read()?;
            return print(detail.text.trim_end());
        }
        match server.output {
            Format::Table => print(&shown(&answer.read()?)),
            Format::Json | Format::Ndjson => print(&answer.text.replace(['\n', '\r'], " ")),
        }
    }
}

fn shown(detail: &DefinitionDetail) -> String {
    let named = &detail.named;
    let state = match (named.archived, named.current) {
        (true, _) => "archived: takes no new starts",
        (false, true) => "current: new starts get this version",
        (false, false) => "not current",
    };
    let head = facts(&[
        ("definition", plain(&format!("{}@{}", named.name, named.version.version))),
        ("id", named.version.id.clone()),
        ("state", state.to_owned()),
        ("pushed", format!("{} by {}", when(&named.version.pushed_at), plain(&named.version.pushed_by))),
    ]);
    let mut rows = Rows::new(["VERSION", "PUSHED", "BY", "ID"], "no versions").whole([1, 3]);
    for version in &detail.versions {
        rows.add([
            plain(&version.version),
            ago(&version.pushed_at),
            plain(&version.pushed_by),
            version.id.clone(),
        ]);
    }
    format!("{head}\n\n{}", rows.text())
}
