//! The PostgreSQL store: the one for several processes.
//!
//! A verb is one transaction over a pool of connections; plain commits and starts go in batches, one statement each. What two
//! processes must not do at once is decided by row locks and unique indexes alone. The answer to a COMMIT that is lost is
//! looked up, never assumed.

mod address;
mod archive;
mod batch;
mod binding;
mod binds;
mod commits;
mod counts;
mod ends;
mod list;
mod lookups;
mod migrate;
mod notify;
mod pool;
mod queue;
mod rows;
mod schema;
mod server;
mod starts;
mod tasks;
mod tls;
mod tx;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod, Runtime};
use tokio_postgres::Config;

pub use self::pool::PgPoolOptions;

use self::address::Address;
use self::commits::CommitQueue;
use self::schema::Schema;
use self::server::Server;
use self::starts::StartQueue;
use self::tasks::Tasks;
use super::Started;
use super::archive::Each;
use super::meters::StoreMeters;
use super::receipts::ReceiptBuffer;
use super::serve::Backend;
use super::stats::StatsBuffer;
use super::tx::Verb;
use super::verbs::StartRun;
use super::wakes::Wakes;
use crate::clock::{Clock, SystemClock};
use crate::error::{Error, Result};
use crate::id::WorkspaceId;
use crate::rules::commit::{Commit, Saved};

#[cfg(all(feature = "testing", feature = "sqlite"))]
pub(crate) use tx::family_statements;
#[cfg(all(feature = "testing", feature = "sqlite"))]
pub(crate) use {binds::Bound, list::KEYS, list::statement as list_statement};

/// The version of the schema that this Semel knows, and has in every database that it opens.
pub const SCHEMA_VERSION: usize = migrate::MIGRATIONS.len();

/// How to open a store in PostgreSQL. [`PostgresOptions::new`] fills in the defaults; set the public fields to change
/// them.
#[derive(Clone, Debug)]
pub struct PostgresOptions {
    /// `postgres://user:password@host:port/database`, with the parameters of libpq. A host that begins with `%2F` (or `/`, as
    /// the parameter `host`) is the folder of a local socket.
    ///
    /// `sslmode` is `disable`, `prefer` (the default: encrypted if the server can), `require` (encrypted, with any
    /// certificate), `verify-ca` (with a certificate of the authority in `sslrootcert`) or `verify-full` (that, and for
    /// the host of the URL). `sslrootcert` is a PEM file, or `system` for the authorities of the machine. `schema` is
    /// the same as the field.
    pub url: String,
    /// The schema of Semel's tables, made if it is missing: lower-case letters, digits and `_`. Without one, the
    /// schema of the store that the user's search path leads to, and if there is none, `semel`.
    pub schema: Option<String>,
    /// Clock that decides about timers, leases and retention; the database's by default.
    pub clock: PgClock,
    /// Connections for everything but plain commits, new runs and wake-ups. Plain commits and new runs have four of their
    /// own each, ends of children three, one of them for large values; wake-ups have two. They are opened when needed.
    pub connections: usize,
    /// How long the store tries to find out whether a write took place after its connection broke: long enough
    /// for a restart of the server. Then the answer is [`Error::Unknown`]. A connection on which no answer has come for as
    /// long is given up as broken; the URL's `tcp_user_timeout`, in seconds, is another limit for that.
    pub patience: Duration,
}

impl PostgresOptions {
    /// The defaults: the schema `semel`, the database's clock, 16 connections, 30 seconds.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            schema: None,
            clock: PgClock::Database,
            connections: 16,
            patience: Duration::from_secs(30),
        }
    }
}

/// Whose time decides about timers, leases and retention.
#[derive(Clone, Default)]
pub enum PgClock {
    /// The database's: one for all processes, whatever their own clocks say.
    #[default]
    Database,
    /// A clock of this process, for tests.
    Given(Arc<dyn Clock>),
}

impl fmt::Debug for PgClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Database => "Database",
            Self::Given(_) => "Given",
        })
    }
}

/// A store in PostgreSQL. Clones share their connections.
#[derive(Clone)]
pub struct PostgresStore(Arc<PostgresShared>);

struct PostgresShared {
    server: Arc<Server>,
    commits: CommitQueue,
    starts: StartQueue,
    buffer: ReceiptBuffer,
    stats: StatsBuffer,
    meters: StoreMeters,
    wakes: Arc<Wakes>,
    /// Tasks that send wake-ups to other processes and listen to theirs.
    neighbours: Tasks,
}

impl PostgresStore {
    /// Connects, and brings the schema up to date.
    pub async fn open(options: PostgresOptions) -> Result<Self> {
        let Address { mut config, tls, schema } = Address::parse(&options.url)?;
        let asked = schema::asked(options.schema.as_deref(), schema)?;
        set_up(&mut config, &options);
        let place = place(&config);
        let open = |source| Error::Open { what: place.clone(), source: tls.explain(source) };
        let (connector, silence) = (tls.connector()?, silence(&config, &options));
        let schema = match asked {
            Some(schema) => Schema::Named(schema),
            None => schema::locate(&config, &connector, silence).await.map_err(open)?,
        };
        enter(&mut config, &schema);
        let manager = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_config(config.clone(), connector.clone(), manager);
        let pool = Pool::builder(manager).max_size(options.connections.max(1));
        let pool = pool.create_timeout(Some(silence)).runtime(Runtime::Tokio1).build();
        let server = Server {
            pool: pool.map_err(|e| open(e.into()))?,
            silence,
            config,
            tls: connector,
            clock: options.clock,
            ids: SystemClock::new(),
            patience: options.patience,
        };
        let mut client = server.connect().await.map_err(open)?;
        migrate::migrate(&mut client, &schema).await?;
        let (server, wakes, neighbours) = (Arc::new(server), Arc::new(Wakes::among_others()), Tasks::new());
        notify::start(&neighbours, &server, &client, &wakes).await.map_err(open)?;
        let (commits, starts) = (CommitQueue::start(&server), StartQueue::start(&server));
        let (buffer, meters) = (ReceiptBuffer::default(), StoreMeters::default());
        let stats = StatsBuffer::new(server.ids.uuid());
        let shared = PostgresShared { server, commits, starts, buffer, stats, meters, wakes, neighbours };
        Ok(Self(Arc::new(shared)))
    }
}

impl Backend for PostgresStore {
    async fn execute<V: Verb>(&self, verb: V) -> Result<V::Answer> {
        self.0.server.execute(&verb).await
    }

    async fn commit_run(&self, commit: Commit) -> Result<Saved> {
        let PostgresShared { server, commits, .. } = &*self.0;
        if commit.is_plain() { commits.commit(server, commit).await } else { self.execute(commit).await }
    }

    async fn start_run(&self, start: StartRun) -> Result<Started> {
        let PostgresShared { server, starts, .. } = &*self.0;
        if start.start.deliver.is_none() {
            starts.begin(server, start).await
        } else {
            self.execute(start).await
        }
    }

    async fn export_all(&self, workspace: Option<WorkspaceId>, each: Each<'_>) -> Result<()> {
        archive::export(&self.0.server, workspace, each).await
    }

    async fn stop(&self) -> Result<()> {
        let patience = self.0.server.patience;
        self.0.starts.stop(patience).await;
        self.0.commits.stop(patience).await;
        self.0.neighbours.stop().await;
        self.0.server.pool.close();
        Ok(())
    }

    fn wakes(&self) -> &Wakes {
        &self.0.wakes
    }

    fn meters(&self) -> &StoreMeters {
        &self.0.meters
    }

    fn buffer(&self) -> &ReceiptBuffer {
        &self.0.buffer
    }

    fn stats(&self) -> &StatsBuffer {
        &self.0.stats
    }

    fn clock(&self) -> &dyn Clock {
        match &self.0.server.clock {
            // Receipts are noted without asking the database; no decision hangs on their time.
            PgClock::Database => &self.0.server.ids,
            PgClock::Given(clock) => &**clock,
        }
    }
}

/// Settings of every connection. Each statement of this store is a look-up by an index; a planner that has no statistics
/// yet, or old ones, must not think of anything else. A transaction whose client has vanished gives up its locks.
pub(crate) const SETTINGS: &str = "-c default_transaction_isolation=read\\ committed -c plan_cache_mode=force_generic_plan \
    -c enable_seqscan=off -c enable_bitmapscan=off -c enable_hashjoin=off -c enable_mergejoin=off -c jit=off \
    -c idle_in_transaction_session_timeout=10000";

/// Sets what every connection has, beside the schema.
fn set_up(config: &mut Config, options: &PostgresOptions) {
    let theirs = config.get_options().unwrap_or_default();
    config.options(format!("{theirs} {SETTINGS}"));
    if config.get_application_name().is_none() {
        config.application_name("semel");
    }
    // A server that has vanished without a word is noticed in the time in which one that restarts is back.
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(options.patience);
    }
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(options.patience);
    }
    // Also by a connection that only listens.
    config.keepalives_idle(config.get_keepalives_idle().min(options.patience));
    if config.get_keepalives_interval().is_none() {
        config.keepalives_interval(options.patience / 3);
    }
}

/// Lets every connection find the tables in their schema.
fn enter(config: &mut Config, schema: &Schema) {
    if let Schema::Named(schema) = schema {
        let before = config.get_options().unwrap_or_default();
        config.options(format!("{before} -c search_path=\"{schema}\""));
    }
}

/// How long an answer is waited for.
fn silence(config: &Config, options: &PostgresOptions) -> Duration {
    config.get_tcp_user_timeout().copied().unwrap_or(options.patience)
}

/// Which database, without the password.
fn place(config: &Config) -> String {
    format!(
        "the PostgreSQL database {:?} at {:?}",
        config.get_dbname().unwrap_or_default(),
        config.get_hosts()
    )
}
