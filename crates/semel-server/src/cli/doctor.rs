//! `semel doctor`: finds problems of the set-up and says what to do.

mod databases;
mod machine;
mod server;

use std::path::PathBuf;

use super::client::ServerArgs;
use super::exit::{Done, Exit, Failure};
use super::output::{Format, Rows, json, plain, print, status};
use super::store::MaybePlace;

/// Check the set-up: address, token, versions, clocks, disk, limits.
///
/// With `--store`, the store is checked as well: whether it opens, which process holds it, how fast its disk syncs. With `--config`, the
/// databases of its connections are asked for branches of transactions that were left prepared for more than five minutes.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  semel doctor
  semel doctor --store sqlite:semel.db
  semel doctor --config /etc/semel/semel.toml
  SEMEL_URL=https://semel.example semel doctor -o json")]
pub(super) struct Doctor {
    #[command(flatten)]
    place: MaybePlace,
    /// Configuration file with the connections to databases.
    #[arg(long, env = "SEMEL_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Result of one check.
pub(super) struct Found {
    check: &'static str,
    state: CheckState,
    what: String,
    fix: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CheckState {
    Fine,
    /// It works, but could be better.
    Look,
    Wrong(Exit),
}

impl CheckState {
    fn word(self) -> &'static str {
        match self {
            Self::Fine => "ok",
            Self::Look => "look",
            Self::Wrong(_) => "wrong",
        }
    }
}

impl Found {
    fn fine(check: &'static str, what: impl Into<String>) -> Self {
        Self { check, state: CheckState::Fine, what: what.into(), fix: "" }
    }

    fn look(check: &'static str, what: impl Into<String>, fix: &'static str) -> Self {
        Self { check, state: CheckState::Look, what: what.into(), fix }
    }

    fn wrong(check: &'static str, exit: Exit, what: impl Into<String>, fix: &'static str) -> Self {
        Self { check, state: CheckState::Wrong(exit), what: what.into(), fix }
    }
}

impl Doctor {
    pub(super) async fn execute(self, server: &ServerArgs) -> Done {
        let mut found = server::look(server).await;
        if let Some(place) = self.place.given() {
            found.extend(machine::store(&place).await);
        }
        if let Some(config) = &self.config {
            found.extend(databases::look(config).await);
        }
        found.push(machine::open_files());
        report(&found, server.output)?;
        let worst = found.iter().find_map(|found| match found.state {
            CheckState::Wrong(exit) => Some(exit),
            _ => None,
        });
        match worst {
            None => Ok(()),
            Some(exit) => Err(Failure::new(exit, "problems were found; see the last column")),
        }
    }
}

fn report(found: &[Found], output: Format) -> Done {
    if output == Format::Table {
        let mut rows = Rows::new(["CHECK", "STATE", "FOUND", "WHAT TO DO"], "nothing was checked");
        for found in found {
            rows.add([
                found.check.to_owned(),
                status(found.state.word()),
                plain(&found.what),
                found.fix.to_owned(),
            ]);
        }
        return rows.print();
    }
    let checks: Vec<_> = found
        .iter()
        .map(|found| {
            serde_json::json!({
                "check": found.check, "state": found.state.word(), "found": found.what, "fix": found.fix,
            })
        })
        .collect();
    match output {
        Format::Ndjson => checks.iter().try_for_each(|check| print(&json(check))),
        _ => print(&json(&serde_json::json!({"checks": checks}))),
    }
}
