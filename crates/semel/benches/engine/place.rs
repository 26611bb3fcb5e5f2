//! Where runs are kept, in words that another process can be given.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use semel::store::Store;
use semel::store::postgres::{PostgresOptions, PostgresStore};
use semel::store::sqlite::{SqliteOptions, SqliteStore};
use semel::{Engine, Result};

use crate::workflows;

/// The child's environment: a path, or a URL and its schema.
const FILE: &str = "SEMEL_BENCH_CHILD_FILE";
const URL: &str = "SEMEL_BENCH_CHILD_URL";
const SCHEMA: &str = "SEMEL_BENCH_CHILD_SCHEMA";

pub(crate) enum Place {
    Sqlite(PathBuf),
    Postgres { url: String, schema: String },
}

impl Place {
    /// The place that this process was given, if it was started by another.
    pub(crate) fn given() -> Option<Self> {
        if let Some(path) = std::env::var_os(FILE) {
            return Some(Self::Sqlite(path.into()));
        }
        Some(Self::Postgres { url: std::env::var(URL).ok()?, schema: std::env::var(SCHEMA).ok()? })
    }

    /// Gives it to another process.
    pub(crate) fn give(&self, command: &mut tokio::process::Command) {
        match self {
            Self::Sqlite(path) => command.env(FILE, path),
            Self::Postgres { url, schema } => command.env(URL, url).env(SCHEMA, schema),
        };
    }

    pub(crate) async fn open(&self) -> Result<Arc<dyn Store>, semel::Error> {
        Ok(match self {
            Self::Sqlite(path) => Arc::new(SqliteStore::open(SqliteOptions::new(path)).await?),
            Self::Postgres { url, schema } => {
                let options = PostgresOptions { schema: Some(schema.clone()), ..PostgresOptions::new(url) };
                Arc::new(PostgresStore::open(options).await?)
            }
        })
    }

    /// Opens the store, and an engine with all workflows of the benchmark.
    pub(crate) async fn engine(&self) -> Result<Engine, semel::Error> {
        workflows::add_to(Engine::builder().store(self.open().await?)).open().await
    }

    /// Stops an engine, and closes its store: another may open it then.
    pub(crate) async fn close(engine: &Engine, grace: Duration) -> Result<(), semel::Error> {
        engine.shutdown(grace).await?;
        engine.store().close().await
    }
}
