//! Forgetting: runs whose retention has ended.

use super::{Params, PgStoreTx};
use crate::clock::Time;
use crate::error::Result;
use crate::rules::finish::Purge;
use crate::rules::run::Run;
use crate::store::postgres::rows::{bigint, column, run_of, select_run};
use crate::store::tx::{SweepRows, TxTime};

impl SweepRows for PgStoreTx<'_> {
    async fn purgeable(&mut self, limit: usize) -> Result<Vec<Run>> {
        let purgeable = select_run!(
            "FROM runs r WHERE r.purge <= $1 ORDER BY r.purge, r.num LIMIT $2 FOR UPDATE SKIP LOCKED"
        );
        self.rows(purgeable, &[&self.now().0, &bigint(limit)]).await?.iter().map(run_of).collect()
    }

    async fn delete_history(&mut self, num: i64, limit: usize) -> Result<usize> {
        self.purge(num, None, limit).await
    }

    async fn set_purged(&mut self, num: i64, next: Time) -> Result<()> {
        self.write("UPDATE runs SET purged = true, purge = $2 WHERE num = $1", &[&num, &next.0]).await?;
        Ok(())
    }

    async fn delete_run(&mut self, num: i64) -> Result<()> {
        self.write("DELETE FROM runs WHERE num = $1", &[&num]).await?;
        Ok(())
    }

    async fn forget(&mut self, run: &Run, what: Purge, limit: usize) -> Result<usize> {
        self.purge(run.num, Some(what), limit).await
    }
}

impl PgStoreTx<'_> {
    /// Deletes up to `limit` rows of a run's history, and if that was all of it, does what else is to be forgotten; one
    /// round trip. How many rows there were.
    pub(in crate::store::postgres) async fn purge(
        &mut self,
        num: i64,
        what: Option<Purge>,
        limit: usize,
    ) -> Result<usize> {
        let (delete, next) = match what {
            Some(Purge::Run) => (true, None),
            Some(Purge::History(next)) => (false, Some(next.0)),
            Some(Purge::Keep) | None => (false, None),
        };
        let params: Params<'_> = &[&num, &bigint(limit), &what.is_some(), &delete, &next];
        let row = self.write_row(include_str!("../sql/purge.sql"), params).await?;
        row.map_or(Ok(0), |row| Ok(column::<i64>(&row, 0)? as usize))
    }

    /// Forgets old marks. Most writing transactions leave one, so there may be many more of them than of anything else
    /// that a sweep forgets, and the sweep's limit is not theirs.
    pub(in crate::store::postgres) async fn sweep_marks(&mut self) -> Result<()> {
        const MANY: i64 = 10_000;
        self.write(include_str!("../sql/marks.sql"), &[&MANY]).await?;
        Ok(())
    }
}
