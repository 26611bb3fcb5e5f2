//! Forgetting: runs whose retention has ended.

use std::future::Future;

use super::TxTime;
use crate::clock::Time;
use crate::error::Result;
use crate::rules::finish::Purge;
use crate::rules::run::Run;

/// Rows that the sweep deletes, in one transaction.
pub(crate) trait SweepRows: TxTime {
    /// Runs that have something to forget, locked.
    fn purgeable(&mut self, limit: usize) -> impl Future<Output = Result<Vec<Run>>> + Send;
    /// Deletes up to `limit` rows of what a run's history is made of: remembered calls, messages, entries. Its receipts are
    /// few, and go without being counted. How many there were.
    fn delete_history(&mut self, num: i64, limit: usize) -> impl Future<Output = Result<usize>> + Send;
    /// Says that a run's history is forgotten, and when the sweep comes back.
    fn set_purged(&mut self, num: i64, next: Time) -> impl Future<Output = Result<()>> + Send;
    /// Deletes a run of which nothing is left but its header.
    fn delete_run(&mut self, num: i64) -> impl Future<Output = Result<()>> + Send;
    /// Forgets up to `limit` rows of a run's history; if that was all of it, what is to be forgotten of the run. Until then
    /// the history is marked as forgotten, so that no half of it is read, and the next sweep goes on. How many rows
    /// there were. A backend may do it in one go.
    fn forget(&mut self, run: &Run, what: Purge, limit: usize) -> impl Future<Output = Result<usize>> + Send {
        async move {
            let gone = self.delete_history(run.num, limit).await?;
            match what {
                _ if gone == limit => self.set_purged(run.num, run.state.purge.unwrap_or(self.now())).await?,
                Purge::History(next) => self.set_purged(run.num, next).await?,
                Purge::Run => self.delete_run(run.num).await?,
                Purge::Keep => {}
            }
            Ok(gone)
        }
    }
}
