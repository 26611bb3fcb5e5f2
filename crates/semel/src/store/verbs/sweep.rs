//! The periodic pass: runs of dead nodes become due, what is past its retention is forgotten.

use crate::error::Result;
use crate::rules::finish::{Purge, purge};
use crate::sabotage::{self, Bug};
use crate::store::tx::{Tx, Verb};
use crate::store::{Sweep, Swept};

/// How many rows of histories one pass deletes, for each run that it may handle. Other writes wait as long as a pass takes: it
/// must not depend on how long the ledgers are.
const ROWS_EACH: usize = 4;

impl Verb for Sweep {
    type Answer = Swept;

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Swept> {
        // With none at all it would never come to an end.
        let limit = self.limit.max(1);
        let mut swept = Swept::default();
        let dead = tx.dead_nodes().await?;
        for node in &dead {
            // Dead from here on, also for itself: it must not renew a lease whose runs are being given away.
            tx.put_lease(*node, None).await?;
        }
        if !sabotage::commits(Bug::SweepForgetsOrphans) {
            swept.orphaned = tx.orphan(&dead, limit).await?;
        }
        swept.more = swept.orphaned == limit;
        for node in dead.iter().filter(|_| !swept.more) {
            tx.delete_node(*node).await?;
        }
        forget(tx, limit, &mut swept).await?;
        swept.once = tx.delete_expired_once(limit).await?;
        swept.records = tx.delete_expired_records(limit).await?;
        swept.more |= swept.once == limit || swept.records == limit;
        Ok(swept)
    }
}

/// Forgets what is past its retention, up to a number of runs and of rows.
async fn forget<T: Tx>(tx: &mut T, limit: usize, swept: &mut Swept) -> Result<()> {
    let mut rows = limit.saturating_mul(ROWS_EACH);
    let purgeable = tx.purgeable(limit).await?;
    swept.more |= purgeable.len() == limit;
    for run in purgeable {
        let what = purge(&run, tx.now());
        if what == Purge::Keep {
            continue;
        }
        // The header is a row as well. If not all of the history is gone, the run is there in the next pass.
        let gone = if rows == 0 { 0 } else { tx.forget(&run, what, rows).await? };
        if gone == rows {
            swept.more = true;
            return Ok(());
        }
        rows = rows.saturating_sub(gone + 1);
        match what {
            Purge::History(_) => swept.histories += 1,
            Purge::Run => swept.runs += 1,
            Purge::Keep => {}
        }
    }
    Ok(())
}
