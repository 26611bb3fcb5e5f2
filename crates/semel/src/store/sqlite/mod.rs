//! The SQLite store: one file, one process, one writer.
//!
//! All writes go through one thread that takes whatever is waiting, runs it in one transaction and makes it durable with
//! one fsync: group commit without a timer (`writer`). Reads, and with them almost every duplicate start, go through
//! other threads with connections of their own and wait for no write (`reader`). Checkpoints run beside the writer
//! (`checkpoint`).

mod archive;
mod checkpoint;
mod counts;
mod job;
mod list;
mod open;
mod part;
mod private;
mod reader;
mod starts;
mod steps;
mod tx;
mod values;
mod writer;

use std::path::PathBuf;
use std::sync::Arc;

use uuid::Uuid;

use super::Started;
use super::meters::StoreMeters;
use super::receipts::ReceiptBuffer;
use super::serve::Backend;
use super::stats::StatsBuffer;
use super::tx::Verb;
use super::verbs::StartRun;
use super::wakes::Wakes;
use crate::clock::{Clock, SystemClock};
use crate::error::Result;
use crate::rules::commit::{Commit, Saved};
use job::JobSender;

#[cfg(all(feature = "testing", feature = "postgres"))]
pub(crate) use list::{keys_statement, statement as list_statement};
#[cfg(all(feature = "testing", feature = "postgres"))]
pub(crate) use tx::{HOOKS_BY_AGE, HOOKS_BY_TOKEN, count_statements, family_statements};
#[cfg(feature = "testing")]
pub use writer::CommitFault;

/// The version of the schema that this Semel knows, and has in every file that it opens.
pub const SCHEMA_VERSION: usize = open::MIGRATIONS.len();

/// How to open a SQLite store.
pub struct SqliteOptions {
    /// The file; it is created if it is not there.
    pub path: PathBuf,
    /// Clock that decides about timers, leases and retention; that of the machine by default.
    pub clock: Arc<dyn Clock>,
    /// Memory for cached pages, once for the writer and once for the reader.
    pub cache_bytes: usize,
    /// A fault to inject into the next COMMIT, asked for before each.
    #[cfg(feature = "testing")]
    pub commit_fault: Option<Box<dyn FnMut() -> Option<CommitFault> + Send>>,
}

impl SqliteOptions {
    /// The defaults: the machine's clock, 32 MiB of cache each.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            clock: Arc::new(SystemClock::new()),
            cache_bytes: 32 * 1024 * 1024,
            #[cfg(feature = "testing")]
            commit_fault: None,
        }
    }
}

/// A store in one SQLite file. Clones share it. [`close`](super::Store::close) closes it and waits until it is; when the last
/// clone is dropped instead, it is closed soon after.
#[derive(Clone)]
pub struct SqliteStore(Arc<SqliteShared>);

struct SqliteShared {
    clock: Arc<dyn Clock>,
    buffer: ReceiptBuffer,
    stats: StatsBuffer,
    meters: StoreMeters,
    wakes: Wakes,
    writes: JobSender,
    /// Short reads: look-ups, and the first look of every start.
    reads: JobSender,
    /// Long ones: ledgers, lists.
    scans: JobSender,
}

impl SqliteStore {
    /// Opens the file, or creates it.
    ///
    /// A file that another process has open is refused, and so is one that a newer Semel has written. Nodes of an
    /// earlier process ([`Join`](super::LeaseAct::Join)) are dead by definition: their runs are due at the first sweep.
    /// Nodes elsewhere ([`Enroll`](super::LeaseAct::Enroll)) keep their leases, for at least ten seconds from now on.
    pub async fn open(options: SqliteOptions) -> Result<Self> {
        tokio::task::spawn_blocking(move || Self::open_blocking(options))
            .await
            .map_err(|e| crate::Error::Open { what: "the SQLite store".to_owned(), source: e.into() })?
    }

    fn open_blocking(options: SqliteOptions) -> Result<Self> {
        let clock = options.clock.clone();
        let file = open::File::open(&options)?;
        let reads = reader::spawn(&file, clock.clone())?;
        let scans = reader::spawn(&file, clock.clone())?;
        let writes = writer::spawn(file, options)?;
        Ok(Self(Arc::new(SqliteShared {
            clock,
            buffer: ReceiptBuffer::default(),
            // One process at a time has the file open: its rows go on with those of the one before.
            stats: StatsBuffer::new(Uuid::nil()),
            meters: StoreMeters::default(),
            wakes: Wakes::default(),
            writes,
            reads,
            scans,
        })))
    }
}

impl Backend for SqliteStore {
    async fn execute<V: Verb>(&self, verb: V) -> Result<V::Answer> {
        let queue = match (V::READS, V::SCANS) {
            (false, _) => &self.0.writes,
            (true, false) => &self.0.reads,
            (true, true) => &self.0.scans,
        };
        queue.ask(verb).await
    }

    fn commit_run(&self, commit: Commit) -> impl Future<Output = Result<Saved>> + Send {
        let writes = &self.0.writes;
        // Told apart here and not inside, as starts are.
        let asked = match commit.is_progress() && !commit.asks_news {
            true => Ok(commit),
            false => Err(Box::pin(writes.commit(commit))),
        };
        async move {
            match asked {
                Ok(step) => writes.step(step).await,
                Err(verb) => verb.await,
            }
        }
    }

    fn create_run(&self, start: StartRun) -> impl Future<Output = Result<Started>> + Send {
        let SqliteShared { clock, writes, .. } = &*self.0;
        let asked = match start.is_plain() {
            true => Ok(writes.start(start, clock.now())),
            false => Err(Box::pin(writes.ask(start))),
        };
        async move {
            match asked {
                Ok(plain) => plain.await,
                Err(verb) => verb.await,
            }
        }
    }

    async fn stop(&self) -> Result<()> {
        self.0.reads.stop().await;
        self.0.scans.stop().await;
        self.0.writes.stop().await;
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
        &*self.0.clock
    }
}
