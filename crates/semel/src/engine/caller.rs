//! What starts, finds, lists and controls runs: an engine, which may have a run in its memory, or a client, which drives
//! none. [`Begin`](super::Begin), [`DeliverTo`](super::DeliverTo), [`ListRuns`](super::ListRuns) and [`RunHandle`] are
//! written once for both.

use std::sync::Arc;

use super::{Client, Core, Engine, RunHandle};
use crate::clock::Clock;
use crate::error::Result;
use crate::id::WorkspaceId;
use crate::rules::key::{Key, KeyScope, Scope, Token};
use crate::rules::path::Name;
use crate::store::{COUNTS_CAP, Find, FindBy, RunCounts, Store};

/// An engine or a client, for one workspace.
#[derive(Clone, Debug)]
pub(crate) enum EngineOrClient {
    /// It may have the run in memory.
    Engine(Engine),
    /// The run is driven elsewhere.
    Client(Client),
}

impl EngineOrClient {
    pub(super) fn store(&self) -> &Arc<dyn Store> {
        match self {
            Self::Engine(engine) => engine.store(),
            Self::Client(client) => client.store(),
        }
    }

    pub(super) fn clock(&self) -> &Arc<dyn Clock> {
        match self {
            Self::Engine(engine) => &engine.core().clock,
            Self::Client(client) => client.clock(),
        }
    }

    pub(super) fn workspace(&self) -> WorkspaceId {
        match self {
            Self::Engine(engine) => engine.workspace(),
            Self::Client(client) => client.workspace(),
        }
    }

    /// The engine's parts; none of a client.
    pub(super) fn core(&self) -> Option<&Arc<Core>> {
        match self {
            Self::Engine(engine) => Some(engine.core()),
            Self::Client(_) => None,
        }
    }

    /// Name of the caller in ledgers, unless a handle gives another.
    pub(super) fn title(&self) -> &'static str {
        match self {
            Self::Engine(_) => "engine",
            Self::Client(_) => "client",
        }
    }

    /// The open runs of the workspace, counted.
    pub(super) async fn counts(&self) -> Result<RunCounts> {
        self.store().counts_in(self.workspace(), COUNTS_CAP).await
    }

    /// The run that holds a key in the whole workspace.
    pub(super) async fn run_by_key(self, key: &str) -> Result<Option<RunHandle<serde_json::Value>>> {
        // In this scope the names do not count.
        let any = Name::new("any")?;
        let scope = Scope::of(KeyScope::Workspace, &any, &any);
        self.find(FindBy::Key(scope, Key::new(key)?)).await
    }

    /// The run that owns a token now.
    pub(super) async fn hook(self, token: &str) -> Result<Option<RunHandle<serde_json::Value>>> {
        self.find(FindBy::Token(Token::new(token)?)).await
    }

    async fn find(self, by: FindBy) -> Result<Option<RunHandle<serde_json::Value>>> {
        let find = Find { workspace: self.workspace(), by };
        let found = self.store().find(find).await?;
        Ok(found.map(|(run, _)| RunHandle::of(self, run.id())))
    }
}
