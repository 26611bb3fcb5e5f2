//! `semel store migrate`: brings a schema up to date.

use super::StoreArgs;
use crate::cli::exit::Done;
use crate::cli::output::{Format, facts, json, print};

/// Create a store, or migrate it to the schema version of this program.
///
/// A server does the same when it starts; use this command to do it beforehand.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  semel store migrate --store sqlite:semel.db
  semel store migrate --store postgres://semel@localhost/semel")]
pub(in crate::cli) struct Migrate {
    #[command(flatten)]
    place: StoreArgs,
}

impl Migrate {
    pub(super) async fn execute(self, output: Format) -> Done {
        self.place.open().await?.close().await?;
        let (kind, version) = match self.place.file() {
            Some(_) => (self.place.kind(), semel::store::sqlite::SCHEMA_VERSION),
            None => (self.place.kind(), semel::store::postgres::SCHEMA_VERSION),
        };
        match output {
            Format::Table => {
                print(&facts(&[("store", kind.to_owned()), ("schema version", version.to_string())]))
            }
            _ => print(&json(&serde_json::json!({"store": kind, "schemaVersion": version}))),
        }
    }
}
