//! `semel connection ls | check`.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Subcommand;
use semel::clock::SystemClock;
use semel::store::memory::MemoryStore;
use serde_json::json;

use super::client::{ApiCall, Client, ServerArgs};
use super::exit::{Done, Exit, Failure};
use super::output::{Format, Rows, json as text, plain, print, status};
use super::{OutputCommand, ServerCommand};
use crate::config::Config;
use crate::connections::{Checked, Connection, ConnectionList, Connections};

/// List and check the connections of definitions.
#[derive(Debug, Subcommand)]
pub(super) enum ConnectionCommand {
    Ls(ServerCommand<ConnectionLs>),
    Check(OutputCommand<ConnectionCheck>),
}

/// List the connections that definitions of the workspace may use.
#[derive(Debug, clap::Args)]
#[command(
    visible_alias = "list",
    after_help = "Examples:\n  semel connection ls\n  semel connection ls -o json"
)]
pub(super) struct ConnectionLs {}

/// Check connections of a configuration file from this machine.
///
/// Reads the file and the secrets that it names, and asks the other side of each connection whether it can be used: an HTTP address is
/// sent `HEAD`, with its credentials. Nothing is changed there without `--install`, and no secret is printed. Run it where the server runs.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  semel connection check\n  semel connection check stripe --config /etc/semel/semel.toml"
)]
pub(super) struct ConnectionCheck {
    /// Names of the connections. All if absent.
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Make what is missing there and belongs to Semel, such as the fence table of a database.
    #[arg(long, requires = "names")]
    install: bool,
    /// Configuration file with the connections.
    #[arg(long, env = "SEMEL_CONFIG", default_value = "semel.toml", value_name = "FILE")]
    config: PathBuf,
}

impl ConnectionCommand {
    pub(super) async fn execute(self) -> Done {
        match self {
            Self::Ls(ls) => list(&ls.server).await,
            Self::Check(check) => check.command.execute(check.output.output).await,
        }
    }
}

async fn list(server: &ServerArgs) -> Done {
    let answer = Client::new(server)?.call(&ApiCall::get(["connections"])).await?;
    answer.print(server.output, |list: &ConnectionList| {
        let mut rows = Rows::new(["NAME", "KIND", "CLASS", "PROFILE"], "no connections").whole([0]);
        for view in &list.connections {
            rows.add([plain(&view.name), view.kind.clone(), view.class.clone(), plain(&view.profile)]);
        }
        rows.text()
    })
}

/// What was found at the other end.
struct Reached {
    name: String,
    kind: &'static str,
    checked: Checked,
}

impl ConnectionCheck {
    async fn execute(self, output: Format) -> Done {
        let config = Config::load(Some(&self.config), std::iter::empty(), std::iter::empty())?;
        let store = Arc::new(MemoryStore::new(Arc::new(SystemClock::new())));
        let connections = Connections::open(&config, store)?;
        let mut reached = Vec::new();
        for connection in self.chosen(&connections)? {
            let checked = connection.look(&connections, self.install).await;
            reached.push(Reached { name: connection.name.clone(), kind: connection.kind(), checked });
        }
        report(&reached, output)?;
        match reached.iter().all(|reached| reached.checked.is_fine) {
            true => Ok(()),
            false => {
                Err(Failure::new(Exit::Unavailable, "not all connections can be used; see the last column"))
            }
        }
    }

    fn chosen<'c>(&self, connections: &'c Connections) -> Done<Vec<&'c Arc<Connection>>> {
        if self.names.is_empty() {
            return Ok(connections.all().collect());
        }
        let find = |name: &String| {
            connections.all().find(|connection| connection.name == *name).ok_or_else(|| {
                let message = format!("{} has no connection `{name}`", self.config.display());
                Failure::new(Exit::NotFound, message)
            })
        };
        self.names.iter().map(find).collect()
    }
}

fn report(reached: &[Reached], output: Format) -> Done {
    let word = |reached: &Reached| if reached.checked.is_fine { "ok" } else { "wrong" };
    if output == Format::Table {
        let mut rows = Rows::new(["NAME", "KIND", "STATE", "FOUND"], "no connections").whole([0]);
        for found in reached {
            rows.add([
                plain(&found.name),
                found.kind.to_owned(),
                status(word(found)),
                plain(&found.checked.found),
            ]);
        }
        return rows.print();
    }
    let views: Vec<_> = reached
        .iter()
        .map(|found| json!({"name": found.name, "kind": found.kind, "state": word(found), "found": found.checked.found}))
        .collect();
    match output {
        Format::Ndjson => views.iter().try_for_each(|view| print(&text(view))),
        _ => print(&text(&json!({ "connections": views }))),
    }
}
