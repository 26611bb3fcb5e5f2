//! Claim due runs for a node, each with all that its driver needs.

use std::collections::HashMap;
use std::time::Duration;

use crate::clock::Time;
use crate::error::{Error, Result};
use crate::rules::claim::{self, Claim};
use crate::rules::entry::{Entry, encode};
use crate::rules::run::{Run, State};
use crate::rules::status::Status;
use crate::sabotage::{self, Bug};
use crate::store::CLAIM_LATENESS;
use crate::store::tx::{InboxRow, LedgerRow, SetFree, Taken, Tx, Verb};

/// A claimed run as its rows; decoded by the caller, not in the transaction.
#[derive(Debug)]
pub(crate) struct ClaimedRows {
    pub(crate) run: Run,
    /// None if the node has it.
    pub(crate) ledger: Option<Vec<LedgerRow>>,
    pub(crate) inbox: Vec<InboxRow>,
}

/// What a claim found.
#[derive(Debug)]
pub(crate) struct ClaimRows {
    pub(crate) runs: Vec<ClaimedRows>,
    pub(crate) next_due: Option<Time>,
    /// Whether a run was parked that had the right to make the result of a once: others may do it now.
    pub(crate) freed: bool,
}

impl Verb for Claim {
    type Answer = ClaimRows;

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<ClaimRows> {
        let dead = tx.lease(self.node).await?.is_none_or(|until| until <= tx.now());
        if dead && !sabotage::commits(Bug::ClaimWithoutLease) {
            return Err(Error::NodeLost(self.node));
        }
        let lateness = metrics::histogram!(CLAIM_LATENESS);
        let due = tx.due(&self.workflows, self.limit).await?;
        let due = match claim::has_suspects(&due) {
            true => self.choose(tx, due).await?,
            false => due,
        };
        let (mut taken, mut claimed) = (Vec::with_capacity(due.len()), HashMap::new());
        let (mut order, mut unread, mut parked) = (Vec::new(), Vec::new(), Vec::new());
        for mut run in due {
            if let Some(due) = run.state.due {
                lateness.record(Duration::from_millis(tx.now().0.saturating_sub(due.0).max(0) as u64));
            }
            let (entry, mut state) = claim::decide(&run, self.node);
            let (num, expected) = (run.num, run.state.version);
            if sabotage::commits(Bug::ClaimedStaysDue) {
                state.due = run.state.due;
            }
            if sabotage::commits(Bug::TakeoverKeepsVersion) && run.status() == Status::Running {
                run.state = State { version: expected, ..state };
                tx.save(num, expected, &run.state).await?;
                order.push(num);
                unread.push(num);
                claimed.insert(num, ClaimedRows { run, ledger: Some(Vec::new()), inbox: Vec::new() });
                continue;
            }
            taken.push(Taken {
                num,
                expected,
                state: state.clone(),
                text: encode(std::slice::from_ref(&entry)),
            });
            if matches!(entry, Entry::Paused { .. }) {
                parked.push(Run { state: state.clone(), ..run.clone() });
            }
            if matches!(entry, Entry::Claimed { .. }) {
                let held = self.held.as_ref().is_some_and(|held| held.holds(num, expected));
                run.state = state;
                order.push(num);
                if !held {
                    unread.push(num);
                }
                let ledger = (!held).then(Vec::new);
                claimed.insert(num, ClaimedRows { run, ledger, inbox: Vec::new() });
            }
        }
        tx.take(&taken).await?;
        let mut freed = false;
        for run in &parked {
            freed |= super::finish::leave_onces(tx, run).await?;
        }
        for row in tx.ledgers(&unread, 0).await? {
            let run: &mut ClaimedRows = claimed.get_mut(&row.num).expect("asked for claimed runs only");
            if row.seq == 0
                && let Some(end) = super::deadline::try_ends(&run.run, &row, tx.now())?
            {
                let state = &mut run.run.state;
                state.deadline = Some(state.deadline.map_or(end, |deadline| deadline.min(end)));
                tx.save(row.num, state.version, state).await?;
            }
            run.ledger.get_or_insert_default().push(row);
        }
        for row in tx.inboxes(&order, 1).await? {
            if sabotage::commits(Bug::ClaimDropsInbox) {
                tx.consume(row.num, row.arrival).await?;
                continue;
            }
            claimed.get_mut(&row.num).expect("asked for claimed runs only").inbox.push(row);
        }
        let runs = order.iter().filter_map(|num| claimed.remove(num)).collect();
        let next_due = tx.dues(&self.workflows, tx.now()).await?.into_iter().flatten().min();
        Ok(ClaimRows { runs, next_due, freed })
    }
}

impl Claim {
    /// Which of the due runs the node takes, if there are suspects among them. Those that it may not take are due later, so
    /// that they do not hide what others, or this node, may take.
    async fn choose<T: Tx>(&self, tx: &mut T, due: Vec<Run>) -> Result<Vec<Run>> {
        let held = tx.held_by(self.node).await?;
        let claim::Choice { taken, set_back } = claim::choose(due, &held);
        let later = tx.now().after(claim::SET_BACK);
        let later = |run: &Run| SetFree { num: run.num, due: later, stalls: run.state.stalls };
        tx.set_free(&set_back.iter().map(later).collect::<Vec<_>>()).await?;
        Ok(taken)
    }
}
