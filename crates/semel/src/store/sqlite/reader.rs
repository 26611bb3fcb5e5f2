//! The thread that reads. It sees what is durable, never what is being written.

use std::sync::Arc;

use super::job::{JobReceiver, JobSender, Work, queue};
use super::open::File;
use super::tx::SqliteStoreTx;
use crate::clock::Clock;
use crate::error::{Error, Result};

pub(super) fn spawn(file: &File, clock: Arc<dyn Clock>) -> Result<JobSender> {
    let tx = SqliteStoreTx::new(file.connect_reader()?, clock.now())?;
    let (queue, jobs) = queue();
    let started =
        std::thread::Builder::new().name("semel-reader".to_owned()).spawn(move || read(jobs, tx, &*clock));
    started.map_err(|e| Error::Open { what: "the reader's thread".to_owned(), source: e.into() })?;
    Ok(queue)
}

/// Closes its connection before the queue says that the thread is gone: `tx` goes before `jobs`.
fn read(mut jobs: JobReceiver, mut tx: SqliteStoreTx, clock: &dyn Clock) {
    let mut batch = Vec::new();
    while jobs.take(&mut batch) {
        tx.now = clock.now();
        // One view for all that were waiting: it begins after the last of them was asked, so each sees every write
        // that was answered before.
        let begun = tx.conn.execute_batch("BEGIN");
        for mut work in batch.drain(..) {
            if let Err(error) = &begun {
                work.fail(Error::Unavailable(error.to_string().into()));
                continue;
            }
            if let Work::Verb(job) = &mut work {
                job.run(&mut tx);
            }
            work.answer();
        }
        if begun.is_ok()
            && let Err(error) = tx.conn.execute_batch("COMMIT")
        {
            tracing::warn!(%error, "a read transaction did not end");
            // Or no other could ever begin. If this fails as well there is none.
            drop(tx.conn.execute_batch("ROLLBACK"));
        }
    }
}
