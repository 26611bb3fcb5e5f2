//! Watchers: runs that wait for the end of other runs.

use std::future::Future;

use crate::error::Result;
use crate::rules::path::Visit;

/// A run that waits for another's end.
#[derive(Clone, Debug)]
pub(crate) struct Watcher {
    pub(crate) num: i64,
    pub(crate) visit: Visit,
}

/// Rows of watchers in one transaction.
pub(crate) trait WatcherRows: Send {
    /// Lets a run wait for another's end.
    fn insert_watcher(&mut self, num: i64, watcher: &Watcher) -> impl Future<Output = Result<()>> + Send;
    /// Lets runs wait for others' ends, whose numbers come first. A backend may do it in one go.
    fn insert_watchers(&mut self, watchers: &[(i64, Watcher)]) -> impl Future<Output = Result<()>> + Send {
        async move {
            for (num, watcher) in watchers {
                self.insert_watcher(*num, watcher).await?;
            }
            Ok(())
        }
    }
    /// Removes and returns the watchers of a run.
    fn take_watchers(&mut self, num: i64) -> impl Future<Output = Result<Vec<Watcher>>> + Send;
}
