//! Checkpoints: the write-ahead log is carried over into the file beside the writer.
//!
//! A checkpoint of its own connection does the bulk while the writer goes on. It can never finish under load, because the
//! log grows meanwhile; so, when it is through, the writer does the small rest between two batches, after which SQLite
//! begins the log anew. Without that rest the log would grow for as long as the load lasts.
//!
//! A checkpoint that cannot be synced is the last one of this process. The kernel may take pages for written that are not,
//! also those of earlier checkpoints: SQLite syncs only the one that reaches the end of the log, and does not write again what
//! the others wrote. The log has all of it, so it is kept: the next process that opens the file reads it.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use rusqlite::Connection;
use rusqlite::config::DbConfig;
use rusqlite::ffi::SQLITE_IOERR_FSYNC;

use super::open::File;
use super::tx::failed;
use crate::error::{Error, Result};
use crate::sabotage::{self, Bug};

/// A log of this many pages (8 MiB) is carried over: large enough to make checkpoints rare, small enough to get its
/// blocks beforehand. Within them a commit does not lengthen the file, so its fdatasync leaves the metadata alone
/// (measured: a third faster).
pub(super) const LOG_PAGES: u32 = 2_048;

thread_local! {
    /// How long the log was at the last commit of this thread, which is a store's only writer. The hook that tells it is
    /// a plain function, and has no other place to put it.
    static LOG_LENGTH: Cell<u32> = const { Cell::new(0) };
}

/// Lets the writer's connection tell how long the log is. To be called by the thread that writes.
pub(super) fn watch(conn: &Connection) {
    conn.wal_hook(Some(|_, pages| {
        LOG_LENGTH.set(pages.unsigned_abs());
        Ok(())
    }));
}

/// The writer's side of the checkpoints.
pub(super) struct Checkpoints {
    wake: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
    running: Arc<AtomicBool>,
    bulk_done: Arc<AtomicBool>,
    disk: Arc<Disk>,
}

/// Whether the disk can be trusted with the file.
#[derive(Default)]
struct Disk {
    failed: AtomicBool,
}

impl Disk {
    fn is_trusted(&self) -> bool {
        !self.failed.load(Ordering::Acquire) || sabotage::commits(Bug::TrustFailedCheckpoint)
    }

    /// Checks the result of a checkpoint.
    fn judge<T>(&self, done: rusqlite::Result<T>) -> rusqlite::Result<T> {
        let code =
            done.as_ref().err().and_then(rusqlite::Error::sqlite_error).map(|error| error.extended_code);
        if code == Some(SQLITE_IOERR_FSYNC) {
            tracing::error!(
                "a checkpoint could not be synced; the log keeps everything until the store is opened again: restart soon"
            );
            self.failed.store(true, Ordering::Release);
        }
        done
    }

    /// Called with every connection that may be the last one: SQLite would make a checkpoint when it is closed.
    fn before_close(&self, conn: &Connection) {
        if self.is_trusted() {
            return;
        }
        if let Err(error) = conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true) {
            tracing::error!(%error, "the log may be carried over although the disk is not to be trusted");
        }
    }
}

impl Checkpoints {
    pub(super) fn spawn(file: &File) -> Result<Self> {
        let conn = file.connect()?;
        let (wake, woken) = channel::<()>();
        let (running, bulk_done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let disk = Arc::new(Disk::default());
        let (still_running, done, trusted) = (running.clone(), bulk_done.clone(), disk.clone());
        let work = move || {
            while woken.recv().is_ok() {
                if carry_over(&conn, &trusted) {
                    done.store(true, Ordering::Release);
                }
                still_running.store(false, Ordering::Release);
            }
            trusted.before_close(&conn);
        };
        let started = std::thread::Builder::new().name("semel-checkpoint".to_owned()).spawn(work);
        let thread = started
            .map_err(|e| Error::Open { what: "the checkpoint's thread".to_owned(), source: e.into() })?;
        Ok(Self { wake: Some(wake), thread: Some(thread), running, bulk_done, disk })
    }

    /// Waits until no checkpoint runs: two at a time there cannot be.
    pub(super) fn wait(&self) {
        while self.running.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
    }

    /// Called by the writer between two batches.
    pub(super) fn between_batches(&self, conn: &Connection) {
        if self.bulk_done.swap(false, Ordering::Acquire) || sabotage::commits(Bug::AnswerBeforeSync) {
            carry_over(conn, &self.disk);
        } else if LOG_LENGTH.get() > LOG_PAGES && !self.running.swap(true, Ordering::Acquire) {
            let wake = self.wake.as_ref().expect("taken only when dropped");
            wake.send(()).expect("the thread lives as long as this sender");
        }
    }

    /// Makes durable what is visible. After a failed fsync the kernel may take the log's pages for clean although they never
    /// reached the disk; carrying the whole log over writes and syncs every page anew.
    pub(super) fn settle(&self, conn: &Connection) -> Result<()> {
        if !self.disk.is_trusted() {
            return Err(Error::Unavailable("the disk has failed to sync the file".into()));
        }
        let carry = conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0));
        match self.disk.judge(carry).map_err(failed)? {
            0 => Ok(()),
            _ => Err(Error::Unavailable("the write-ahead log is still being read".into())),
        }
    }

    /// Called by the writer before it closes its last connection.
    pub(super) fn before_close(&self, conn: &Connection) {
        self.disk.before_close(conn);
    }
}

/// The thread's connection is closed before the file's lock is given up.
impl Drop for Checkpoints {
    fn drop(&mut self) {
        self.wake = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the checkpoint's thread panicked");
        }
    }
}

/// Carries over what no reader still needs to see in the log.
fn carry_over(conn: &Connection, disk: &Disk) -> bool {
    if !disk.is_trusted() {
        return false;
    }
    let careless = sabotage::commits(Bug::CheckpointWithoutSync);
    let syncing = |how| if careless { conn.pragma_update(None, "synchronous", how) } else { Ok(()) };
    let checkpoint = || conn.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
    let done = disk.judge(syncing("off").and_then(|()| checkpoint()).and_then(|()| syncing("full")));
    if let Err(error) = &done {
        tracing::warn!(%error, "a checkpoint failed; the write-ahead log grows until one succeeds");
    }
    done.is_ok()
}
