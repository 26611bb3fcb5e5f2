//! `semel definition ls`: lists the definitions of a server.

use crate::api::{DefinitionList, DefinitionSummary};
use crate::cli::client::{ApiCall, Client, ServerArgs};
use crate::cli::exit::Done;
use crate::cli::output::{Format, Rows, ago, json, plain, print};

/// Definitions per page.
const PAGE: usize = 200;

/// List the definitions of the workspace, by name.
#[derive(Debug, clap::Args)]
#[command(
    visible_alias = "list",
    after_help = "Examples:
  semel definition ls
  semel definition ls --archived
  semel definition ls -o ndjson | jq -r .name"
)]
pub(in crate::cli) struct DefinitionsLs {
    /// List archived definitions too.
    #[arg(long)]
    archived: bool,
}

impl DefinitionsLs {
    pub(super) async fn execute(self, server: &ServerArgs) -> Done {
        let client = Client::new(server)?;
        let (mut all, mut cursor) = (Vec::new(), None);
        loop {
            let call = ApiCall::get(["workflow-definitions"])
                .query("limit", Some(PAGE))
                .query("archived", self.archived.then_some(true))
                .query("cursor", cursor);
            let page: DefinitionList = client.call(&call).await?.read()?;
            if server.output == Format::Ndjson {
                page.definitions.iter().try_for_each(|definition| print(&json(definition)))?;
            }
            all.extend(page.definitions);
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        match server.output {
            Format::Table => table(&all),
            Format::Json => print(&json(&DefinitionList { definitions: all, next: None })),
            Format::Ndjson => Ok(()),
        }
    }
}

fn table(all: &[DefinitionSummary]) -> Done {
    let columns = ["DEFINITION", "CURRENT", "VERSIONS", "STATE", "PUSHED", "BY", "ID"];
    let mut rows = Rows::new(columns, "no definitions").whole([2, 3, 4, 6]).only_from(110, [5]);
    for DefinitionSummary { name, current, versions, archived } in all {
        rows.add([
            plain(name),
            plain(&current.version),
            versions.to_string(),
            if *archived { "archived".to_owned() } else { "open".to_owned() },
            ago(&current.pushed_at),
            plain(&current.pushed_by),
            current.id.clone(),
        ]);
    }
    rows.print()
}
