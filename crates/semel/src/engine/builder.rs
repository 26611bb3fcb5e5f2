//! How an engine is described and opened.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
#[cfg(not(all(feature = "sqlite", feature = "postgres", feature = "remote")))]
use std::future::{Ready, ready};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;

use super::residents::Residents;
use super::store_time::StoreTime;
use super::{Core, Engine, Running, join};
use crate::clock::{Clock, SystemClock};
use crate::error::{Error, Result};
use crate::id::{NodeId, WorkspaceId};
use crate::rules::path::Name;
use crate::rules::start::DEFAULT_VERSION;
use crate::sdk::workflow::{Registry, Workflow};
use crate::store::Store;
use crate::store::memory::MemoryStore;

/// How much an engine takes on at once.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Runs that are driven at the same time; more wait in the store.
    pub driven: usize,
    /// Runs that wait and stay in memory nevertheless, so that they need not be rebuilt.
    pub resting: usize,
    /// The memory that those may take, roughly.
    pub resting_bytes: usize,
    /// How long the store believes in an engine that does not say that it is alive. Its runs are then given to others.
    pub lease: Duration,
}

impl Default for Limits {
    /// 4,096 driven and 16,384 resting runs, 64 MiB, ten seconds.
    fn default() -> Self {
        Self {
            driven: 4096,
            resting: 16_384,
            resting_bytes: 64 * 1024 * 1024,
            lease: Duration::from_secs(10),
        }
    }
}

/// Where an engine keeps its runs: see [`Builder::store`].
pub enum IntoStore {
    /// A path or URL.
    Address(String),
    /// A store that is open already.
    Open(Arc<dyn Store>),
}

impl From<&str> for IntoStore {
    fn from(address: &str) -> Self {
        Self::Address(address.to_owned())
    }
}

impl From<String> for IntoStore {
    fn from(address: String) -> Self {
        Self::Address(address)
    }
}

impl From<&Path> for IntoStore {
    fn from(path: &Path) -> Self {
        Self::Address(path.to_string_lossy().into_owned())
    }
}

impl From<PathBuf> for IntoStore {
    fn from(path: PathBuf) -> Self {
        path.as_path().into()
    }
}

impl From<Arc<dyn Store>> for IntoStore {
    fn from(store: Arc<dyn Store>) -> Self {
        Self::Open(store)
    }
}

impl fmt::Debug for IntoStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            // An address may contain a password.
            Self::Address(_) => "Address",
            Self::Open(_) => "Open",
        })
    }
}

/// Describes an [`Engine`]; [`Builder::open`] opens it.
#[derive(Default)]
#[must_use = "an engine is opened by `.open().await`"]
pub struct Builder {
    store: Option<IntoStore>,
    clock: Option<Arc<dyn Clock>>,
    workspace: Option<WorkspaceId>,
    limits: Limits,
    registry: Registry,
    states: HashMap<TypeId, Arc<dyn Any + Send + Sync>>,
    wrong: Option<Error>,
    #[cfg(feature = "testing")]
    probe: Option<Arc<crate::testing::crash::fate::Fate>>,
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("store", &self.store)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

impl Builder {
    /// Where runs are kept: a path (`semel.db`, also `sqlite:semel.db`), `postgres://…`, `http://…`
    /// of a server, `memory:`, or an open store.
    ///
    /// ```no_run
    /// # use semel::Engine;
    /// # async fn open() -> Result<(), semel::Error> {
    /// let one_process = Engine::builder().store("semel.db").open().await?;
    /// let one_of_many = Engine::builder().store("postgres://semel@db/semel").open().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn store(mut self, store: impl Into<IntoStore>) -> Self {
        self.store = Some(store.into());
        self
    }

    /// Something that workflows find by its type, with [`Ctx::state`](crate::Ctx::state).
    ///
    /// ```
    /// # use semel::{Ctx, Engine, Result};
    /// struct Shop { currency: &'static str }
    ///
    /// async fn price(ctx: Ctx, cents: u64) -> Result<String> {
    ///     Ok(format!("{cents} {}", ctx.state::<Shop>().currency))
    /// }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// let shop = Shop { currency: "Rappen" };
    /// let engine = Engine::builder().store("memory:").state(shop).workflow("price", price).open().await?;
    /// assert_eq!(engine.start(price, 70).await?.result().await?, "70 Rappen");
    /// # Ok(())
    /// # }
    /// ```
    pub fn state<T: Any + Send + Sync>(mut self, state: T) -> Self {
        self.states.insert(TypeId::of::<T>(), Arc::new(state));
        self
    }

    /// The same, for something that others hold as well.
    pub fn shared_state<T: Any + Send + Sync>(mut self, state: Arc<T>) -> Self {
        self.states.insert(TypeId::of::<T>(), state);
        self
    }

    /// A workflow: a plain `async fn(Ctx, In) -> Result<Out>`, and the name under which its runs are known. Its version
    /// is `1`.
    ///
    /// ```
    /// # use semel::{Ctx, Engine, Result};
    /// async fn greet(_: Ctx, name: String) -> Result<String> {
    ///     Ok(format!("Hello, {name}!"))
    /// }
    /// let builder = Engine::builder().workflow("greet", greet);
    /// ```
    pub fn workflow<W, In>(self, name: &str, workflow: W) -> Self
    where
        W: Workflow<In>,
        In: DeserializeOwned + Send + 'static,
        W::Out: Serialize,
    {
        self.workflow_version(name, DEFAULT_VERSION, workflow)
    }

    /// A version of a workflow. A run that is started by its function gets the version of that function, one that is started
    /// by a [`WorkflowRef`](crate::WorkflowRef) the version that this names. It is executed by that version for good, on
    /// whichever engine has it registered; as long as there is none, it waits in the store.
    ///
    /// To let new code go on with the runs of an old version, register it under that version too:
    /// `.workflow_version("order", "2", order).workflow_version("order", "1", order)`. Such a function is started by a
    /// `WorkflowRef`, which says under which version.
    pub fn workflow_version<W, In>(mut self, name: &str, version: &str, workflow: W) -> Self
    where
        W: Workflow<In>,
        In: DeserializeOwned + Send + 'static,
        W::Out: Serialize,
    {
        let names = Name::new(name).and_then(|name| Ok((name, Name::new(version)?)));
        match names {
            Ok((name, version)) => {
                if let Err(error) = self.registry.add(name, version, workflow) {
                    self.wrong.get_or_insert(error);
                }
            }
            Err(error) => {
                self.wrong.get_or_insert(error.into());
            }
        }
        self
    }

    /// How much it takes on at once.
    ///
    /// ```
    /// # use semel::{Engine, Limits};
    /// // A small machine: more runs wait in the store.
    /// let limits = Limits { driven: 100, resting: 1000, ..Limits::default() };
    /// let builder = Engine::builder().limits(limits);
    /// ```
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Where time comes from, for tests.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Who decides whether it dies at a step, for tests.
    #[cfg(feature = "testing")]
    pub(crate) fn probe(mut self, probe: Arc<crate::testing::crash::fate::Fate>) -> Self {
        self.probe = Some(probe);
        self
    }

    /// The tenant whose runs it drives.
    pub fn workspace(mut self, workspace: WorkspaceId) -> Self {
        self.workspace = Some(workspace);
        self
    }

    /// Opens the store and begins to drive what is due.
    pub async fn open(self) -> Result<Engine> {
        if let Some(wrong) = self.wrong {
            return Err(wrong);
        }
        let owns_store = !matches!(self.store, Some(IntoStore::Open(_)));
        let store = match self.store {
            Some(IntoStore::Open(store)) => store,
            Some(IntoStore::Address(address)) => open_store(&address, self.clock.clone()).await?,
            None => {
                let hint = "an engine needs a store: add `.store(\"semel.db\")`, or `.store(\"memory:\")` for a test";
                return Err(Error::Validation(hint.to_owned()));
            }
        };
        let clock = self.clock.unwrap_or_else(|| Arc::new(SystemClock::new()));
        let core = Arc::new(Core {
            store,
            node: Mutex::new(NodeId(clock.uuid())),
            clock,
            workspace: self.workspace.unwrap_or(WorkspaceId::DEFAULT),
            registry: self.registry,
            states: self.states,
            limits: self.limits,
            store_time: StoreTime::new(),
            alone: super::alone::Alone::default(),
            residents: Arc::new(Residents::new(self.limits.driven.max(1))),
            due: Notify::new(),
            renew: Notify::new(),
            left: Notify::new(),
            stopping: AtomicBool::new(false),
            owns_store,
            tasks: Mutex::default(),
            #[cfg(feature = "testing")]
            probe: self.probe,
        });
        let engine = Engine(Arc::new(Running { core: core.clone() }));
        join(&core).await?;
        Ok(engine)
    }
}

/// Opens a store by its address: a path, `sqlite:path`, `postgres://…` or `memory:`. Without a clock it has its own: the
/// machine's, or the database's.
pub async fn open_store(address: &str, clock: Option<Arc<dyn Clock>>) -> Result<Arc<dyn Store>> {
    if address == "memory:" {
        let clock = clock.unwrap_or_else(|| Arc::new(SystemClock::new()));
        return Ok(Arc::new(MemoryStore::new(clock)));
    }
    if address.starts_with("postgres://") || address.starts_with("postgresql://") {
        return open_postgres(address, clock).await;
    }
    if address.starts_with("http://") || address.starts_with("https://") {
        return open_remote(address).await;
    }
    if let Some((scheme, _)) = address.split_once("://") {
        let known = "a path, `sqlite:path`, `postgres://…`, `http://…` or `memory:`";
        return Err(Error::Validation(format!("{scheme}:// is no store that Semel knows; give {known}")));
    }
    open_sqlite(address.strip_prefix("sqlite:").unwrap_or(address), clock).await
}

#[cfg(feature = "postgres")]
async fn open_postgres(url: &str, clock: Option<Arc<dyn Clock>>) -> Result<Arc<dyn Store>> {
    use crate::store::postgres::{PgClock, PostgresOptions, PostgresStore};
    let mut options = PostgresOptions::new(url);
    if let Some(clock) = clock {
        options.clock = PgClock::Given(clock);
    }
    Ok(Arc::new(PostgresStore::open(options).await?))
}

#[cfg(not(feature = "postgres"))]
fn open_postgres(_: &str, _: Option<Arc<dyn Clock>>) -> Ready<Result<Arc<dyn Store>>> {
    ready(Err(Error::Validation("this build has no PostgreSQL store: add the feature `postgres`".to_owned())))
}

#[cfg(feature = "remote")]
async fn open_remote(url: &str) -> Result<Arc<dyn Store>> {
    use crate::remote::{Options, Remote};
    Ok(Arc::new(Remote::open(Options::new(url)).await?))
}

#[cfg(not(feature = "remote"))]
fn open_remote(_: &str) -> Ready<Result<Arc<dyn Store>>> {
    ready(Err(Error::Validation("this build has no client of a server: add the feature `remote`".to_owned())))
}

#[cfg(feature = "sqlite")]
async fn open_sqlite(path: &str, clock: Option<Arc<dyn Clock>>) -> Result<Arc<dyn Store>> {
    use crate::store::sqlite::{SqliteOptions, SqliteStore};
    let mut options = SqliteOptions::new(path);
    if let Some(clock) = clock {
        options.clock = clock;
    }
    Ok(Arc::new(SqliteStore::open(options).await?))
}

#[cfg(not(feature = "sqlite"))]
fn open_sqlite(_: &str, _: Option<Arc<dyn Clock>>) -> Ready<Result<Arc<dyn Store>>> {
    ready(Err(Error::Validation("this build has no SQLite store: add the feature `sqlite`".to_owned())))
}
