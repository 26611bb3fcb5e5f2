//! Watchers: runs that wait for the end of other runs.

use rusqlite::{Row, params};

use super::SqliteStoreTx;
use crate::error::Result;
use crate::rules::path::Visit;
use crate::store::sqlite::values::Text;
use crate::store::tx::{Watcher, WatcherRows};

impl WatcherRows for SqliteStoreTx {
    async fn insert_watcher(&mut self, num: i64, watcher: &Watcher) -> Result<()> {
        let sql = "INSERT INTO watchers (run, watcher, visit) VALUES (?, ?, ?)";
        self.write(sql, params![num, watcher.num, watcher.visit.to_string()]).map(drop)
    }

    async fn take_watchers(&mut self, num: i64) -> Result<Vec<Watcher>> {
        let sql = "SELECT watcher, visit FROM watchers WHERE run = ? ORDER BY rowid";
        let read = |row: &Row<'_>| Ok(Watcher { num: row.get(0)?, visit: row.get::<_, Text<Visit>>(1)?.0 });
        let watchers = self.all(sql, [num], read)?;
        self.write("DELETE FROM watchers WHERE run = ?", [num])?;
        Ok(watchers)
    }
}
