//! What a list shows of runs beside their headers.

use rusqlite::params;

use super::SqliteStoreTx;
use crate::error::Result;
use crate::store::sqlite::values::Text;
use crate::store::tx::{GLANCE_BYTES, GLANCE_TAIL, GlanceRow, GlanceRows, NOT_ABSORBED};

/// The latest commits of a run, the last one first; those that are too large are null.
const TAIL: &str = "WITH RECURSIVE tail (place, rest) AS ( \
         SELECT last, ?2 FROM heads WHERE num = ?1 \
         UNION ALL SELECT l.prev, t.rest - 1 FROM tail t JOIN ledger l ON l.num = t.place WHERE t.rest > 1 \
     ) SELECT CASE WHEN octet_length(l.entries) <= ?3 THEN l.entries END \
     FROM tail t JOIN ledger l ON l.num = t.place ORDER BY l.seq DESC";
const FIRST: &str = "SELECT CASE WHEN octet_length(entries) <= ?2 THEN entries END FROM ledger \
     WHERE num = (SELECT first FROM heads WHERE num = ?1) AND seq = 0";
const LATEST_HOOK: &str = "SELECT token, visit FROM hooks WHERE run = ? ORDER BY opened DESC, token LIMIT 1";

impl GlanceRows for SqliteStoreTx {
    async fn glances(&mut self, nums: &[i64]) -> Result<Vec<GlanceRow>> {
        nums.iter().map(|num| self.glance(*num)).collect()
    }
}

impl SqliteStoreTx {
    fn glance(&self, num: i64) -> Result<GlanceRow> {
        let absorbed = "SELECT coalesce(sum(count), 0) FROM receipts WHERE run = ? AND kind < ?";
        let text = |row: &rusqlite::Row<'_>| row.get::<_, Option<String>>(0);
        let bytes = GLANCE_BYTES as i64;
        let tail = self.all(TAIL, params![num, GLANCE_TAIL as i64, bytes], text)?;
        let hook = |row: &rusqlite::Row<'_>| {
            Ok((row.get::<_, Text<_>>(0)?.0, row.get::<_, Option<Text<_>>>(1)?.map(|visit| visit.0)))
        };
        Ok(GlanceRow {
            num,
            duplicates: self
                .first(absorbed, params![num, NOT_ABSORBED], |row| row.get(0))?
                .unwrap_or_default(),
            first: self.first(FIRST, params![num, bytes], text)?.flatten(),
            tail: tail.into_iter().flatten().collect(),
            hook: self.first(LATEST_HOOK, [num], hook)?,
        })
    }
}
