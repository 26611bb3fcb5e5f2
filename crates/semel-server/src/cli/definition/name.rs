//! `semel definition use | archive`.

use crate::api::{ArchiveName, NameChanged, UseVersion};
use crate::cli::client::{ApiCall, Client, ServerArgs};
use crate::cli::exit::Done;
use crate::cli::output::{facts, plain};

/// Choose the version that new starts of a name get.
///
/// Open runs keep theirs. An archived name is available again.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  semel definition use process-order 3")]
pub(in crate::cli) struct DefinitionUse {
    /// Name of the definition.
    name: String,
    /// Label or id of the version.
    version: String,
}

/// Archive a definition: it is hidden from lists, and takes no new starts.
///
/// Open runs go on. `semel definition use` or a push makes it available again.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  semel definition archive process-order")]
pub(in crate::cli) struct DefinitionArchive {
    /// Name of the definition.
    name: String,
}

impl DefinitionUse {
    pub(super) async fn execute(self, server: &ServerArgs) -> Done {
        let path = ["workflow-definitions", &self.name, "use"];
        let answer = Client::new(server)?;
        let answer = answer.call(&ApiCall::post(path, None, &UseVersion { version: self.version })).await?;
        answer.print(server.output, shown)
    }
}

impl DefinitionArchive {
    pub(super) async fn execute(self, server: &ServerArgs) -> Done {
        let path = ["workflow-definitions", &self.name, "archive"];
        let answer = Client::new(server)?.call(&ApiCall::post(path, None, &ArchiveName {})).await?;
        answer.print(server.output, shown)
    }
}

fn shown(changed: &NameChanged) -> String {
    let named = &changed.named;
    facts(&[
        ("definition", plain(&named.name)),
        ("current", plain(&format!("{} {}", named.version.version, named.version.id))),
        ("state", if named.archived { "archived".to_owned() } else { "open".to_owned() }),
        ("changed", if changed.changed { "yes".to_owned() } else { "no: it was so already".to_owned() }),
    ])
}
