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
    /// Milliseconds from its due time to the claim.
    pub(crate) late: Option<u64>,
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
        let mut candidates: Vec<_> = due.into_iter().map(|run| Candidate::of(run, self)).collect();
        let read = self.read(tx, &mut candidates).await?;
        for late in candidates.iter().filter_map(|candidate| candidate.late(tx.now())) {
            lateness.record(Duration::from_millis(late));
        }
        tx.take(&candidates.iter().map(Candidate::row).collect::<Vec<_>>()).await?;
        let mut freed = false;
        for parked in candidates.iter().filter(|candidate| !candidate.is_claimed()) {
            freed |= super::finish::leave_onces(tx, &parked.run).await?;
        }
        let is_cut = read.is_cut;
        let runs = read.claimed(tx, candidates).await?;
        let next_due = match is_cut {
            // What was left is due.
            true => Some(tx.now()),
            false => self.next_due(tx).await?,
        };
        Ok(ClaimRows { runs, next_due, now: tx.now(), freed })
    }
}

/// A due run, and what the claim makes of it.
#[derive(Debug)]
struct Candidate {
    /// The run in its new state.
    run: Run,
    /// Version before the claim.
    expected: u64,
    /// When it was due.
    due: Option<Time>,
    entry: Entry,
    /// Whether the node has its ledger in memory.
    held: bool,
}

impl Candidate {
    fn of(run: Run, claim: &Claim) -> Self {
        let (entry, state) = claim::decide(&run, claim.node);
        let (due, expected) = (run.state.due, run.state.version);
        let held = claim.held.as_ref().is_some_and(|held| held.holds(run.num, expected));
        Self { run: Run { state, ..run }, expected, due, entry, held }
    }

    /// Whether the node drives it from here on. Otherwise the claim parks it.
    fn is_claimed(&self) -> bool {
        matches!(self.entry, Entry::Claimed { .. })
    }

    /// Milliseconds since it was due.
    fn late(&self, now: Time) -> Option<u64> {
        self.due.map(|due| now.0.saturating_sub(due.0).max(0).unsigned_abs())
    }

    fn text(&self) -> String {
        encode(std::slice::from_ref(&self.entry))
    }

    fn row(&self) -> ClaimedRow {
        let (num, expected, state) = (self.run.num, self.expected, self.run.state.clone());
        ClaimedRow { num, expected, state, text: self.text() }
    }
}

/// What drivers need of the runs that a claim takes, read before it takes them.
#[derive(Debug, Default)]
struct ReadRuns {
    ledgers: HashMap<i64, Vec<LedgerRow>>,
    inboxes: HashMap<i64, Vec<InboxRow>>,
    /// Whether runs were left because they are too large to be claimed with the others.
    is_cut: bool,
}

impl ReadRuns {
    /// The claimed runs, each with its ledger, claim included.
    async fn claimed<T: StoreTx>(
        mut self,
        tx: &mut T,
        candidates: Vec<Candidate>,
    ) -> Result<Vec<ClaimedRows>> {
        let mut runs = Vec::with_capacity(candidates.len());
        for claimed in candidates.into_iter().filter(Candidate::is_claimed) {
            let (num, seq, text) = (claimed.run.num, claimed.expected, claimed.text());
            let late = claimed.late(tx.now());
            let mut run = claimed.run;
            let mut ledger = self.ledgers.remove(&num);
            if let Some(first) = ledger.as_ref().and_then(|rows| rows.first())
                && let Some(end) = super::deadline::try_ends(&run, first, tx.now())?
            {
                let state = &mut run.state;
                state.deadline = Some(state.deadline.map_or(end, |deadline| deadline.min(end)));
                tx.save(num, state.version, state).await?;
            }
            if let Some(rows) = &mut ledger {
                rows.push(LedgerRow { num, seq, at: tx.now(), text });
            }
            let inbox = self.inboxes.remove(&num).unwrap_or_default();
            runs.push(ClaimedRows { run, ledger, inbox, late });
        }
        Ok(runs)
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

    /// Reads what drivers need of the runs, within the bytes of the claim, and leaves those that do not fit. The first run
    /// is always read, whole.
    async fn read<T: StoreTx>(&self, tx: &mut T, candidates: &mut Vec<Candidate>) -> Result<ReadRuns> {
        let mut read = ReadRuns::default();
        let unread = |candidate: &&Candidate| candidate.is_claimed() && !candidate.held;
        let nums: Vec<_> = candidates.iter().filter(unread).map(|candidate| candidate.run.num).collect();
        let (mut bytes, most) = (0, self.bytes.max(1));
        for row in tx.whole_ledgers(&nums, most).await? {
            bytes += row.text.len();
            read.ledgers.entry(row.num).or_default().push(row);
        }
        if bytes >= most {
            let left =
                |candidate: &Candidate| unread(&candidate) && !read.ledgers.contains_key(&candidate.run.num);
            read.is_cut |= cut(candidates, left);
        }
        let nums: Vec<_> = candidates
            .iter()
            .filter(|candidate| candidate.is_claimed())
            .map(|candidate| candidate.run.num)
            .collect();
        let mut rows = tx.inboxes(&nums, 1, most).await?;
        if rows.iter().map(|row| row.text.len()).sum::<usize>() >= most {
            // What was read last may not be complete, and of the runs behind it nothing was read.
            let last =
                rows.last().and_then(|row| nums.iter().position(|num| *num == row.num)).unwrap_or_default();
            let whole = last.max(1).min(nums.len());
            match last {
                0 => rows = tx.inboxes(&nums[..whole], 1, usize::MAX).await?,
                _ => rows.retain(|row| nums[..whole].contains(&row.num)),
            }
            read.is_cut |= cut(candidates, |candidate| nums[whole..].contains(&candidate.run.num));
        }
        for row in rows {
            read.inboxes.entry(row.num).or_default().push(row);
        }
        Ok(read)
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

/// Takes out the candidates that are left to other claims; whether there are any.
fn cut(candidates: &mut Vec<Candidate>, is_left: impl Fn(&Candidate) -> bool) -> bool {
    let before = candidates.len();
    candidates.retain(|candidate| !is_left(candidate));
    candidates.len() < before
}
