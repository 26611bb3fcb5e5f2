//! `semel store …`: commands that open a store directly, without a server.

mod check;
mod export;
mod import;
mod migrate;

use std::sync::Arc;

use clap::Subcommand;
use semel::store::Archive;

use super::exit::{Done, Exit, Failure};
use super::output::Format;

/// Migrate, check, export and import a store, without a server.
#[derive(Debug, Subcommand)]
pub(super) enum Store {
    Migrate(migrate::Migrate),
    Check(check::Check),
    Export(export::Export),
    Import(import::Import),
}

impl Store {
    pub(super) async fn execute(self, output: Format) -> Done {
        match self {
            Self::Migrate(migrate) => migrate.execute(output).await,
            Self::Check(check) => check.execute(output).await,
            Self::Export(export) => export.execute(output).await,
            Self::Import(import) => import.execute(output).await,
        }
    }
}

/// Arguments that name a store.
#[derive(clap::Args)]
pub(super) struct StoreArgs {
    /// Store: `sqlite:semel.db`, a path, or `postgres://…`.
    #[arg(long = "store", env = "SEMEL_STORE", hide_env_values = true, value_name = "ADDRESS")]
    address: String,
}

/// Hides the address, which may contain a password.
impl std::fmt::Debug for StoreArgs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Place({})", self.kind())
    }
}

impl StoreArgs {
    /// Whether the store is a file or a database.
    pub(super) fn kind(&self) -> &'static str {
        if self.address.starts_with("postgres") && self.address.contains("://") {
            "PostgreSQL"
        } else {
            "SQLite"
        }
    }

    /// File of a SQLite store; `None` for PostgreSQL.
    pub(super) fn file(&self) -> Option<&str> {
        let path = self.address.strip_prefix("sqlite:").unwrap_or(&self.address);
        (self.kind() == "SQLite").then_some(path)
    }

    /// Opens the store, which also migrates its schema.
    pub(super) async fn open(&self) -> Done<Open> {
        if self.address == "memory:" {
            let failure = Failure::new(Exit::Usage, "a store in memory holds nothing when a command begins");
            return Err(failure.help("give --store sqlite:semel.db or --store postgres://…"));
        }
        Ok(Open(semel::engine::open_store(&self.address, None).await?))
    }

    /// Opens an existing store: a command that reads does not create a file.
    pub(super) async fn open_existing(&self) -> Done<Open> {
        match self.file() {
            Some(path) if !std::path::Path::new(path).exists() && path != "memory:" => {
                let failure = Failure::new(Exit::NotFound, format!("there is no file {path}"));
                Err(failure.help("check the address after --store; `semel store migrate` makes a new store"))
            }
            _ => self.open().await,
        }
    }
}

/// Arguments of commands that can work without a store.
#[derive(clap::Args)]
pub(super) struct MaybePlace {
    /// Store to use (`doctor`: in addition to the server, `bench`: instead of it): `sqlite:semel.db`, a path, or
    /// `postgres://…`.
    #[arg(long = "store", value_name = "ADDRESS")]
    address: Option<String>,
}

impl std::fmt::Debug for MaybePlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.given().fmt(f)
    }
}

impl MaybePlace {
    pub(super) fn given(&self) -> Option<StoreArgs> {
        self.address.clone().map(|address| StoreArgs { address })
    }
}

/// The store that a command has opened.
pub(super) struct Open(Arc<dyn semel::store::Store>);

impl Open {
    pub(super) fn store(&self) -> &Arc<dyn semel::store::Store> {
        &self.0
    }

    fn archive(&self) -> &dyn Archive {
        self.0.archive().expect("every store that is opened by its address has an archive")
    }

    pub(super) async fn close(self) -> Done {
        Ok(self.0.close().await?)
    }
}
