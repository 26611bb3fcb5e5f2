//! Describing and opening an engine.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
#[cfg(not(all(feature = "sqlite", feature = "postgres", feature = "remote")))]
use std::future::{Ready, ready};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;

use super::programs::{Hosted, Programs};
use super::registry::Registry;
use super::residents::Residents;
use super::store_time::StoreTime;
use super::{Core, Engine, StopOnDrop, join};
use crate::clock::{Clock, SystemClock};
use crate::error::{Error, Result};
use crate::id::{NodeId, WorkspaceId};
use crate::rules::ledger::LedgerBounds;
use crate::store::Store;
use crate::store::memory::MemoryStore;

/// Limits on the work that an engine takes on at once.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum number of runs that are driven at the same time; further ones wait in the store.
    pub driven: usize,
    /// Maximum number of waiting runs that stay in memory, so that they need not be rebuilt.
    pub resting: usize,
    /// Approximate memory that those may take, in bytes.
    pub resting_bytes: usize,
    /// Maximum size of a run's ledger. A run that has reached it begins no step, child or hook, except as clean-up:
    /// these fail with the code `LEDGER_FULL`.
    pub ledger: LedgerBounds,
    /// Duration of the engine's lease. The engine renews it three times in this time; if it cannot, other engines take over its
    /// runs when the lease has ended.
    pub lease: Duration,
}

impl Default for Limits {
    /// 4,096 driven and 16,384 resting runs, 64 MiB, ledgers of a million entries or 512 MiB, ten seconds.
    fn default() -> Self {
        Self {
            driven: 4096,
            resting: 16_384,
            resting_bytes: 64 * 1024 * 1024,
            ledger: LedgerBounds::default(),
            lease: Duration::from_secs(10),
        }
    }
}

/// The store of an engine: see [`Builder::store`].
pub enum IntoStore {
    /// A path or URL of the store.
    Address(String),
    /// A store that is already open.
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

/// Makes a state of the engine's store.
type StateOfStore = Box<dyn FnOnce(Arc<dyn Store>) -> (TypeId, Arc<dyn Any + Send + Sync>) + Send>;

/// Describes an [`Engine`]; [`Builder::open`] opens it.
#[derive(Default)]
#[must_use = "an engine is opened by `.open().await`"]
pub struct Builder {
    store: Option<IntoStore>,
    clock: Option<Arc<dyn Clock>>,
    workspace: Option<WorkspaceId>,
    limits: Limits,
    name: Option<String>,
    registry: Registry,
    programs: Vec<Arc<dyn Programs>>,
    states: HashMap<TypeId, Arc<dyn Any + Send + Sync>>,
    states_of_store: Vec<StateOfStore>,
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

    /// Adds a value that workflows find by its type, with [`Ctx::state`](crate::Ctx::state).
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

    /// Like [`state`](Self::state), for a value that other code shares.
    pub fn shared_state<T: Any + Send + Sync>(mut self, state: Arc<T>) -> Self {
        self.states.insert(TypeId::of::<T>(), state);
        self
    }

    /// Like [`state`](Self::state), for a value that is made of the engine's store when the engine is opened: code that keeps
    /// records beside the runs.
    pub fn state_of_store<T: Any + Send + Sync>(
        mut self,
        make: impl FnOnce(Arc<dyn Store>) -> T + Send + 'static,
    ) -> Self {
        self.states_of_store.push(Box::new(|store| (TypeId::of::<T>(), Arc::new(make(store)))));
        self
    }

    /// Adds programs that this engine hosts, beside the functions that are registered: see [`Programs`].
    pub fn programs(mut self, programs: impl Programs) -> Self {
        self.programs.push(Arc::new(programs));
        self
    }

    /// Changes the registry of functions; the first error is that of [`open`](Self::open).
    pub(crate) fn register(mut self, add: impl FnOnce(&mut Registry) -> Result<()>) -> Self {
        if let Err(error) = add(&mut self.registry) {
            self.wrong.get_or_insert(error);
        }
        self
    }

    /// Sets the limits on the work that it takes on at once.
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

    /// Sets the name under which operators find it in the list of engines (`semel worker ls`); that of the program by
    /// default.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the clock, for tests.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Sets what decides whether it dies at a step, for tests.
    #[cfg(feature = "testing")]
    pub(crate) fn probe(mut self, probe: Arc<crate::testing::crash::fate::Fate>) -> Self {
        self.probe = Some(probe);
        self
    }

    /// Sets the workspace in which it drives the registered workflows, and for which it starts and finds runs; see
    /// [`Engine::in_workspace`] for others. Without this it is the default workspace.
    pub fn workspace(mut self, workspace: WorkspaceId) -> Self {
        self.workspace = Some(workspace);
        self
    }

    /// Opens the store and begins to drive due runs.
    pub async fn open(self) -> Result<Engine> {
        if let Some(wrong) = self.wrong {
            return Err(wrong);
        }
        let registry = Arc::new(self.registry);
        let hosted = Hosted::new(&registry, self.programs)?;
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
        let workspace = self.workspace.unwrap_or(WorkspaceId::DEFAULT);
        let mut states = self.states;
        states.extend(self.states_of_store.into_iter().map(|make| make(store.clone())));
        let core = Arc::new(Core {
            store,
            node: Mutex::new(NodeId(clock.uuid())),
            name: self.name.unwrap_or_else(super::presence::program),
            since: clock.now(),
            clock,
            home: workspace,
            registry,
            hosted,
            states,
            limits: self.limits,
            store_time: StoreTime::new(),
            alone: super::alone::Alone::default(),
            gauges: super::gauges::Gauges::default(),
            residents: Arc::new(Residents::new(self.limits.driven.max(1))),
            due: Notify::new(),
            renew: Notify::new(),
            renamed: Notify::new(),
            left: Notify::new(),
            stopping: AtomicBool::new(false),
            owns_store,
            tasks: Mutex::default(),
            #[cfg(feature = "testing")]
            probe: self.probe,
        });
        let engine = Engine { shared: Arc::new(StopOnDrop { core: core.clone() }), workspace };
        join(&core).await?;
        Ok(engine)
    }
}

/// Opens a store by its address: a path, `sqlite:path`, `postgres://…` or `memory:`. Without a clock the store uses
/// its own: that of the machine or of the database.
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

/// The same for a program that drives no runs.
pub(super) async fn open_for_client(address: &str, clock: Option<Arc<dyn Clock>>) -> Result<Arc<dyn Store>> {
    #[cfg(feature = "remote")]
    if address.starts_with("http://") || address.starts_with("https://") {
        use crate::remote::{Options, RemoteStore};
        let options = Options { drives: false, ..Options::new(address) };
        return Ok(Arc::new(RemoteStore::open(options).await?));
    }
    open_store(address, clock).await
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
    use crate::remote::{Options, RemoteStore};
    Ok(Arc::new(RemoteStore::open(Options::new(url)).await?))
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
