//! The periodic pass: runs of dead nodes become due, what is past its retention is forgotten.

use crate::error::Result;
use crate::rules::finish::{Purge, purge};
use crate::sabotage::{self, Bug};
use crate::store::tx::{Tx, Verb};
use crate::store::{Sweep, Swept};

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
        let purgeable = tx.purgeable(limit).await?;
        swept.more |= purgeable.len() == limit;
        for run in purgeable {
            match purge(&run, tx.now()) {
                Purge::History(next) => {
                    tx.forget_history(run.num, next).await?;
                    swept.histories += 1;
                }
                Purge::Run => {
                    tx.forget_run(run.num).await?;
                    swept.runs += 1;
                }
                Purge::Keep => {}
            }
        }
        swept.once = tx.delete_expired_once(limit).await?;
        swept.records = tx.delete_expired_records(limit).await?;
        swept.more |= swept.once == limit || swept.records == limit;
        Ok(swept)
    }
}
