//! Forgetting: runs whose retention has ended.

use super::MemoryTx;
use crate::clock::Time;
use crate::error::Result;
use crate::rules::run::Run;
use crate::store::tx::SweepRows;

impl SweepRows for MemoryTx<'_> {
    async fn purgeable(&mut self, limit: usize) -> Result<Vec<Run>> {
        let nums = self.tables.purge.range(..=(self.now, i64::MAX)).take(limit);
        Ok(nums.map(|(_, num)| self.tables.runs[num].clone()).collect())
    }

    async fn delete_history(&mut self, num: i64, limit: usize) -> Result<usize> {
        let tables = self.write();
        tables.receipts.retain(|(run, _), _| *run != num);
        let mut left = limit;
        let mut is_left = || {
            let deleted = left > 0;
            left -= usize::from(deleted);
            !deleted
        };
        tables.calls.retain(|_, (run, _)| *run != num || is_left());
        if let Some(inbox) = tables.inbox.get_mut(&num) {
            inbox.retain(|_, _| is_left());
        }
        if let Some(ledger) = tables.ledger.get_mut(&num) {
            ledger.retain(|_| is_left());
        }
        Ok(limit - left)
    }

    async fn set_purged(&mut self, num: i64, next: Time) -> Result<()> {
        self.write().update(num, |run| {
            run.purged = true;
            run.state.purge = Some(next);
        });
        Ok(())
    }

    async fn delete_run(&mut self, num: i64) -> Result<()> {
        let tables = self.write();
        tables.ledger.remove(&num);
        tables.inbox.remove(&num);
        tables.unindex(num);
        if let Some(run) = tables.runs.remove(&num) {
            tables.ids.remove(&run.id());
            tables.children.retain(|(_, child)| *child != num);
            tables.listed.remove(&(run.new.workspace, run.new.created, num));
        }
        Ok(())
    }
}
