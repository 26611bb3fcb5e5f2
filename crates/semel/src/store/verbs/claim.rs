//! Claim due runs for a node, each with all that its driver needs.

use std::collections::HashMap;

use crate::error::{Error, Result};
use crate::rules::claim::{self, Claim};
use crate::rules::entry::{Entry, encode};
use crate::rules::run::Run;
use crate::store::tx::{InboxRow, LedgerRow, Taken, Tx, Verb};

/// A claimed run as its rows; decoded by the caller, not in the transaction.
#[derive(Debug)]
pub(crate) struct ClaimedRows {
    pub(crate) run: Run,
    pub(crate) ledger: Vec<LedgerRow>,
    pub(crate) inbox: Vec<InboxRow>,
}

impl Verb for Claim {
    type Answer = Vec<ClaimedRows>;

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Vec<ClaimedRows>> {
        if tx.lease(self.node).await?.is_none_or(|until| until <= tx.now()) {
            return Err(Error::NodeLost(self.node));
        }
        let due = tx.due(&self.workflows, self.limit).await?;
        let (mut taken, mut claimed) = (Vec::with_capacity(due.len()), HashMap::new());
        let mut order = Vec::new();
        for mut run in due {
            let (entry, state) = claim::decide(&run, self.node);
            let (num, expected) = (run.num, run.state.version);
            taken.push(Taken {
                num,
                expected,
                state: state.clone(),
                text: encode(std::slice::from_ref(&entry)),
            });
            if matches!(entry, Entry::Claimed { .. }) {
                run.state = state;
                order.push(num);
                claimed.insert(num, ClaimedRows { run, ledger: Vec::new(), inbox: Vec::new() });
            }
        }
        tx.take(&taken).await?;
        for row in tx.ledgers(&order, 0).await? {
            claimed.get_mut(&row.num).expect("asked for claimed runs only").ledger.push(row);
        }
        for row in tx.inboxes(&order).await? {
            claimed.get_mut(&row.num).expect("asked for claimed runs only").inbox.push(row);
        }
        Ok(order.iter().filter_map(|num| claimed.remove(num)).collect())
    }
}
