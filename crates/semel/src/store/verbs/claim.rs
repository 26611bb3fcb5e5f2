//! Claim due runs for a node, each with all that its driver needs.

use std::collections::HashMap;
use std::time::Duration;

use crate::clock::Time;
use crate::error::{Error, Result};
use crate::metrics::CLAIM_LATENESS;
use crate::rules::claim::{self, Claim};
use crate::rules::entry::{Entry, encode};
use crate::rules::run::Run;
use crate::store::tx::{ClaimedRow, InboxRow, LedgerRow, SetFree, StoreTx, Verb};

/// A claimed run as its rows; decoded by the caller, not in the transaction.
#[derive(Debug)]
pub(crate) struct ClaimedRows {
    pub(crate) run: Run,
    /// None if the node has it.
    pub(crate) ledger: Option<Vec<LedgerRow>>,
    pub(crate) inbox: Vec<InboxRow>,
}

/// Claimed runs, as rows that are not decoded yet.
#[derive(Debug)]
pub(crate) struct ClaimRows {
    pub(crate) runs: Vec<ClaimedRows>,
    pub(crate) next_due: Option<Time>,
    pub(crate) now: Time,
    /// Whether a run was parked that had the grant of a `run_once` value: others may take it now.
    pub(crate) freed: bool,
}

impl Verb for Claim {
    type Answer = ClaimRows;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<ClaimRows> {
        let dead = tx.lease(self.node).await?.is_none_or(|until| until <= tx.now());
        if dead {
            return Err(Error::NodeLost(self.node));
        }
        let lateness = metrics::histogram!(CLAIM_LATENESS);
        let due = self.due(tx).await?;
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
            let (entry, state) = claim::decide(&run, self.node);
            let (num, expected) = (run.num, run.state.version);
            taken.push(ClaimedRow {
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
            claimed.get_mut(&row.num).expect("asked for claimed runs only").inbox.push(row);
        }
        let runs = order.iter().filter_map(|num| claimed.remove(num)).collect();
        let next_due = self.next_due(tx).await?;
        Ok(ClaimRows { runs, next_due, now: tx.now(), freed })
    }
}

impl Claim {
    /// Runs that are due now and that the node can drive, the longest due first.
    async fn due<T: StoreTx>(&self, tx: &mut T) -> Result<Vec<Run>> {
        if let Some(id) = self.only {
            let now = tx.now();
            let run = tx.run(id).await?.filter(|run| run.state.due.is_some_and(|due| due <= now));
            return Ok(run.filter(|run| self.limit > 0 && self.drives(run)).into_iter().collect());
        }
        let mut due = tx.due(&self.workflows, self.limit).await?;
        if !self.families.is_empty() {
            due.extend(tx.due_in(&self.families, self.limit).await?);
            due.sort_by_key(|run| (run.state.due, run.num));
            // A version may be asked for by its name and by its family.
            due.dedup_by_key(|run| run.num);
            due.truncate(self.limit);
        }
        Ok(due)
    }

    async fn next_due<T: StoreTx>(&self, tx: &mut T) -> Result<Option<Time>> {
        let now = tx.now();
        let by_version = tx.dues(&self.workflows, now).await?.into_iter().flatten().min();
        let by_family = match self.families.is_empty() {
            true => None,
            false => tx.next_due_in(&self.families, now).await?,
        };
        Ok(by_version.into_iter().chain(by_family).min())
    }

    /// Which of the due runs the node takes, if there are suspects among them. Those that it may not take are due later, so
    /// that they do not hide what others, or this node, may take.
    async fn choose<T: StoreTx>(&self, tx: &mut T, due: Vec<Run>) -> Result<Vec<Run>> {
        let held = tx.held_by(self.node).await?;
        let claim::Choice { taken, set_back } = claim::choose(due, &held);
        let later = tx.now().after(claim::SET_BACK);
        let later = |run: &Run| SetFree { num: run.num, due: later, stalls: run.state.stalls };
        tx.set_free(&set_back.iter().map(later).collect::<Vec<_>>()).await?;
        Ok(taken)
    }
}
