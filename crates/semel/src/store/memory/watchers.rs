//! Watchers: runs that wait for the end of other runs.

use super::MemoryTx;
use crate::error::Result;
use crate::store::tx::{Watcher, WatcherRows};

impl WatcherRows for MemoryTx<'_> {
    async fn insert_watcher(&mut self, num: i64, watcher: &Watcher) -> Result<()> {
        self.write().watchers.entry(num).or_default().push(watcher.clone());
        Ok(())
    }

    async fn take_watchers(&mut self, num: i64) -> Result<Vec<Watcher>> {
        Ok(self.write().watchers.remove(&num).unwrap_or_default())
    }
}
