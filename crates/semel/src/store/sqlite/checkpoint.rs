//! Checkpoints: the write-ahead log is carried over into the file beside the writer.
//!
//! A checkpoint of its own connection does the bulk while the writer goes on. It can never finish under load, because the
//! log grows meanwhile; so, when it is through, the writer does the small rest between two batches, after which SQLite
//! begins the log anew. Without that rest the log would grow for as long as the load lasts.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use rusqlite::Connection;

use super::open::File;
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
}

impl Checkpoints {
    pub(super) fn spawn(file: &File) -> Result<Self> {
        let conn = file.connect()?;
        let (wake, woken) = channel::<()>();
        let (running, bulk_done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (still_running, done) = (running.clone(), bulk_done.clone());
        let work = move || {
            while woken.recv().is_ok() {
                if carry_over(&conn) {
                    done.store(true, Ordering::Release);
                }
                still_running.store(false, Ordering::Release);
            }
        };
        let started = std::thread::Builder::new().name("semel-checkpoint".to_owned()).spawn(work);
        let thread = started
            .map_err(|e| Error::Open { what: "the checkpoint's thread".to_owned(), source: e.into() })?;
        Ok(Self { wake: Some(wake), thread: Some(thread), running, bulk_done })
    }

    /// Waits until no checkpoint runs: two at a time there cannot be.
    pub(super) fn wait(&self) {
        while self.running.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
    }

    /// Called by the writer between two batches.
    pub(super) fn between_batches(&self, conn: &Connection) {
        if self.bulk_done.swap(false, Ordering::Acquire) {
            carry_over(conn);
        } else if LOG_LENGTH.get() > LOG_PAGES && !self.running.swap(true, Ordering::Acquire) {
            let wake = self.wake.as_ref().expect("taken only when dropped");
            wake.send(()).expect("the thread lives as long as this sender");
        }
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
pub(super) fn carry_over(conn: &Connection) -> bool {
    let careless = sabotage::commits(Bug::CheckpointWithoutSync);
    let syncing = |how| if careless { conn.pragma_update(None, "synchronous", how) } else { Ok(()) };
    let checkpoint = || conn.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
    let done = syncing("off").and_then(|()| checkpoint()).and_then(|()| syncing("full"));
    if let Err(error) = &done {
        tracing::warn!(%error, "a checkpoint failed; the write-ahead log grows until one succeeds");
    }
    done.is_ok()
}
