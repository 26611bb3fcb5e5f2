//! Node leases: one per process, whatever the number of its runs.

use crate::clock::Time;
use crate::error::{Error, Result};
use crate::store::tx::{StoreTx, Verb};
use crate::store::{Lease, LeaseAct};

/// Whether a node with this lease lives.
pub(crate) fn is_alive(lease: Option<Time>, now: Time) -> bool {
    lease.is_some_and(|until| until > now)
}

impl Verb for Lease {
    type Answer = Time;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Time> {
        let now = tx.now();
        let alive = is_alive(tx.lease(self.node).await?, now);
        let until = match self.act {
            LeaseAct::Join(ttl) => now.after(ttl),
            LeaseAct::Enroll(ttl) => {
                let until = now.after(ttl);
                tx.enroll(self.node, until).await?;
                return Ok(until);
            }
            // A lease that has ended stays ended: its runs may have been taken over already.
            LeaseAct::Renew(ttl) if alive => now.after(ttl),
            LeaseAct::Renew(_) => return Err(Error::NodeLost(self.node)),
            LeaseAct::Leave => {
                tx.depart(self.node).await?;
                return Ok(now);
            }
        };
        tx.put_lease(self.node, Some(until)).await?;
        Ok(until)
    }
}
