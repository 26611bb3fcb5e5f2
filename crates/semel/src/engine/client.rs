//! A client: starts, finds and controls runs that engines elsewhere drive.

use std::fmt;
use std::sync::Arc;

use super::builder::{self, IntoStore};
use super::caller::EngineOrClient;
use super::registry::{ByName, Registry};
use super::{Begin, DeliverTo, ListRuns, RunHandle};
use crate::clock::{Clock, SystemClock};
use crate::error::{Error, Result};
use crate::id::{RunId, WorkspaceId};
use crate::rules::json::Payload;
use crate::store::{RunCounts, Store};

/// Starts, finds, lists, counts and controls runs, and drives none: it has no lease, claims nothing and does not sweep. It is for
/// programs beside the engines, such as a web server that takes orders. Clones share one store.
///
/// ```
/// use semel::{Client, Ctx, Engine, Result, WorkflowRef};
///
/// /// The name and the types are all that the client knows of the workflow.
/// const GREET: WorkflowRef<String, String> = WorkflowRef::new("greet");
/// # async fn greet(_: Ctx, name: String) -> Result<String> { Ok(format!("Hello, {name}!")) }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<()> {
/// # let engine = Engine::builder().store("memory:").workflow("greet", greet).open().await?;
/// # let store = engine.store().clone();
/// // Usually `postgres://…`, or the `http://…` of a server.
/// let client = Client::builder().store(store).open().await?;
/// let run = client.start(GREET, "Ada".to_owned()).key("greeting-1").await?;
/// assert_eq!(run.result().await?, "Hello, Ada!");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    workspace: WorkspaceId,
    /// Whether the store was opened by this client, and is closed with it.
    owns_store: bool,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({})", self.workspace)
    }
}

impl Client {
    /// Describes a client: its store, and the workspace that it works in.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    fn caller(&self) -> EngineOrClient {
        EngineOrClient::Client(self.clone())
    }

    /// Starts a run of a workflow that is named by a [`WorkflowRef`](crate::WorkflowRef) or a
    /// [`WorkflowName`](crate::WorkflowName), or finds the run of its key. It is driven by an engine that has that
    /// workflow version; until there is one, it waits in the store.
    #[expect(clippy::needless_pass_by_value, reason = "the input is handed over, as to an engine")]
    pub fn start<W, In>(&self, workflow: W, input: In) -> Begin<W::Out>
    where
        W: ByName<In>,
        In: serde::Serialize,
    {
        // A name needs no registry.
        Begin::new(self.caller(), workflow.named(&Registry::default()), Payload::of(&input))
    }

    /// Puts a payload into the inbox of the token's owner, as [`Engine::deliver`](crate::Engine::deliver) does.
    pub fn deliver<T: serde::Serialize>(&self, token: impl Into<String>, payload: T) -> DeliverTo {
        DeliverTo::new(self.caller(), token.into(), Payload::of(&payload))
    }

    /// A run by its id. Whether it exists is checked by the first call on the handle.
    pub fn run(&self, id: RunId) -> RunHandle<serde_json::Value> {
        RunHandle::of(self.caller(), id)
    }

    /// The run that holds a key in the whole workspace.
    pub async fn run_by_key(&self, key: &str) -> Result<Option<RunHandle<serde_json::Value>>> {
        self.caller().run_by_key(key).await
    }

    /// The run that owns a token now.
    pub async fn hook(&self, token: &str) -> Result<Option<RunHandle<serde_json::Value>>> {
        self.caller().hook(token).await
    }

    /// Lists runs, the newest first. Say which, then await it.
    pub fn list(&self) -> ListRuns {
        ListRuns::new(self.caller())
    }

    /// Counts the open runs of the workspace by workflow, as [`Engine::counts`](crate::Engine::counts) does.
    pub async fn counts(&self) -> Result<RunCounts> {
        self.caller().counts().await
    }

    /// The store, for what the client does not show.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    pub(super) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// The tenant whose runs this client starts, finds and controls. With the store of a server it is the workspace of
    /// the API key instead.
    pub fn workspace(&self) -> WorkspaceId {
        self.workspace
    }

    /// The same client for another tenant.
    #[must_use]
    pub fn in_workspace(&self, workspace: WorkspaceId) -> Self {
        Self { workspace, ..self.clone() }
    }

    /// Closes the store if this client has opened it. Other clones of this client cannot be used afterwards.
    pub async fn close(self) -> Result<()> {
        if self.owns_store { self.store.close().await } else { Ok(()) }
    }
}

/// Describes a [`Client`]; [`ClientBuilder::open`] opens it.
#[derive(Default)]
#[must_use = "a client is opened by `.open().await`"]
pub struct ClientBuilder {
    store: Option<IntoStore>,
    clock: Option<Arc<dyn Clock>>,
    workspace: Option<WorkspaceId>,
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder").field("store", &self.store).finish_non_exhaustive()
    }
}

impl ClientBuilder {
    /// Where the runs are kept: `postgres://…`, the `http://…` of a server (its API key in `SEMEL_TOKEN` needs the
    /// permissions `start` and `read`, and `admin` to control runs), or an open store. A SQLite file is open in one
    /// process at a time, so a client in another process than its engine goes through a server.
    pub fn store(mut self, store: impl Into<IntoStore>) -> Self {
        self.store = Some(store.into());
        self
    }

    /// Sets the clock, for tests.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Sets the tenant whose runs it starts, finds and controls; the default workspace if absent.
    pub fn workspace(mut self, workspace: WorkspaceId) -> Self {
        self.workspace = Some(workspace);
        self
    }

    /// Opens the store, and with it the client.
    pub async fn open(self) -> Result<Client> {
        let owns_store = !matches!(self.store, Some(IntoStore::Open(_)));
        let store = match self.store {
            Some(IntoStore::Open(store)) => store,
            Some(IntoStore::Address(address)) => {
                builder::open_for_client(&address, self.clock.clone()).await?
            }
            None => {
                let hint = "a client needs a store: add `.store(\"postgres://…\")`, or `.store(\"http://…\")` of a server";
                return Err(Error::Validation(hint.to_owned()));
            }
        };
        let clock = self.clock.unwrap_or_else(|| Arc::new(SystemClock::new()));
        let workspace = self.workspace.unwrap_or(WorkspaceId::DEFAULT);
        Ok(Client { store, clock, workspace, owns_store })
    }
}
