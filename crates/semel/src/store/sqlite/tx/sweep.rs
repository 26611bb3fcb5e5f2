//! Forgetting: runs whose retention has ended.

use rusqlite::params;

use super::{RUN, RUNS, SqliteStoreTx, read_run};
use crate::clock::Time;
use crate::error::Result;
use crate::rules::run::Run;
use crate::store::tx::SweepRows;

impl SweepRows for SqliteStoreTx {
    async fn purgeable(&mut self, limit: usize) -> Result<Vec<Run>> {
        let sql = format!("SELECT {RUN} FROM {RUNS} WHERE purge <= ? ORDER BY purge, num LIMIT ?");
        self.all(&sql, params![self.now, limit as i64], read_run)
    }

    // Deletes up to `limit` rows of a run's history; how many there were.
    async fn delete_history(&mut self, num: i64, limit: usize) -> Result<usize> {
        self.write("DELETE FROM receipts WHERE run = ?", [num])?;
        let mut gone = 0;
        for table in ["calls", "inbox"] {
            let delete = format!(
                "DELETE FROM {table} WHERE rowid IN (SELECT rowid FROM {table} WHERE run = ? LIMIT ?)"
            );
            gone += self.write(&delete, [num, (limit - gone) as i64])?;
        }
        self.deleted_rows = true;
        self.heads.forget(num);
        // Row by row, without reading the entries: a history may be larger than the memory. From the end, where the head
        // begins; it then names the row that is the last one by now.
        let head: Option<Option<i64>> =
            self.first("SELECT last FROM heads WHERE num = ?", [num], |row| row.get(0))?;
        let mut last = head.flatten();
        while gone < limit
            && let Some(row) = last
        {
            let delete = "DELETE FROM ledger WHERE num = ? RETURNING prev";
            last = self.first(delete, [row], |row| row.get(0))?.flatten();
            gone += 1;
        }
        self.write("UPDATE heads SET last = ?, first = NULL WHERE num = ?", (last, num))?;
        Ok(gone)
    }

    async fn set_purged(&mut self, num: i64, next: Time) -> Result<()> {
        self.write("UPDATE runs SET purged = 1, purge = ? WHERE num = ?", params![next, num]).map(drop)
    }

    async fn delete_run(&mut self, num: i64) -> Result<()> {
        self.write("DELETE FROM heads WHERE num = ?", [num])?;
        self.write("DELETE FROM runs WHERE num = ?", [num]).map(drop)
    }
}
