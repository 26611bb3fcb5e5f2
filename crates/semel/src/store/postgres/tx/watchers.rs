//! Watchers: runs that wait for the end of other runs.

use tokio_postgres::Row;

use super::PgStoreTx;
use crate::error::Result;
use crate::rules::path::Visit;
use crate::store::postgres::rows::{column, corrupt};
use crate::store::tx::{Watcher, WatcherRows};

impl WatcherRows for PgStoreTx<'_> {
    async fn insert_watcher(&mut self, num: i64, watcher: &Watcher) -> Result<()> {
        let insert = "INSERT INTO watchers (run, watcher, visit) VALUES ($1, $2, $3)";
        self.write(insert, &[&num, &watcher.num, &watcher.visit.to_string()]).await?;
        Ok(())
    }

    async fn insert_watchers(&mut self, watchers: &[(i64, Watcher)]) -> Result<()> {
        let insert = "INSERT INTO watchers (run, watcher, visit) SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[])";
        let runs: Vec<i64> = watchers.iter().map(|(num, _)| *num).collect();
        let waiting: Vec<i64> = watchers.iter().map(|(_, watcher)| watcher.num).collect();
        let visits: Vec<String> = watchers.iter().map(|(_, watcher)| watcher.visit.to_string()).collect();
        self.write(insert, &[&runs, &waiting, &visits]).await.map(drop)
    }

    async fn take_watchers(&mut self, num: i64) -> Result<Vec<Watcher>> {
        let take = "WITH gone AS (DELETE FROM watchers WHERE run = $1 RETURNING num, watcher, visit) \
             SELECT num, watcher, visit FROM gone ORDER BY num";
        let rows = self.rows(take, &[&num]).await?;
        self.count_writes(rows.len());
        rows.iter().map(watcher_of).collect()
    }
}

/// Reads the columns after the first.
pub(in crate::store::postgres) fn watcher_of(row: &Row) -> Result<Watcher> {
    let visit: &str = column(row, 2)?;
    let visit = Visit::parse(visit).ok_or_else(|| corrupt(row, format!("{visit:?} is no visit")))?;
    Ok(Watcher { num: column(row, 1)?, visit })
}
