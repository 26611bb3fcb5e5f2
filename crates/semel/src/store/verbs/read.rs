//! Reading: runs, ledgers, inboxes, receipts; and the receipts that are written behind.

use std::collections::HashMap;

use crate::clock::Time;
use crate::error::{Error, Result};
use crate::id::{RunId, WorkspaceId};
use crate::rules::claim::Drives;
use crate::rules::control::Control;
use crate::rules::entry::{Entry, Message, Outcome, decode};
use crate::rules::finish;
use crate::rules::receipt::{ReceiptKind, Receipts};
use crate::rules::run::Run;
use crate::store::duplicates::DuplicatePlace;
use crate::store::tx::{InboxRow, LedgerRow, StoreTx, Verb};
use crate::store::{DuplicateCursor, DuplicatesPage, DuplicatesQuery, Find, FindBy, Part};

/// How many commits from the end an outcome or a pause is looked for at first: after it come a release of the key or
/// resolutions of doubts, if anything.
const TAIL: usize = 4;

/// The entries of one stored commit.
pub(crate) fn entries_of(row: &LedgerRow) -> Result<Vec<Entry>> {
    decode(&row.text)
        .map_err(|e| Error::Corrupt { at: format!("ledger {}:{}", row.num, row.seq), source: e.into() })
}

/// How a run ended; none if it has not.
pub(crate) async fn outcome_of<T: StoreTx>(tx: &mut T, run: &Run) -> Result<Option<Outcome>> {
    match run.status().is_terminal() {
        false => Ok(None),
        true if run.purged => Ok(finish::purged(run)),
        true => latest(tx, run.num, Entry::outcome).await,
    }
}

/// Searches a run's entries from the latest on, and gives what `find` finds first.
pub(super) async fn latest<T: StoreTx, R>(
    tx: &mut T,
    num: i64,
    find: impl Fn(&Entry) -> Option<R> + Send,
) -> Result<Option<R>> {
    let mut limit = TAIL;
    loop {
        let tail = tx.ledger_tail(num, limit).await?;
        if let Some(found) = latest_in(&tail, &find)? {
            return Ok(Some(found));
        }
        if tail.len() < limit {
            return Ok(None);
        }
        limit *= 8;
    }
}

/// Searches the entries of these commits from the latest on, and gives what `find` finds first. `tail` has the latest
/// commit first.
pub(super) fn latest_in<R>(tail: &[LedgerRow], find: impl Fn(&Entry) -> Option<R>) -> Result<Option<R>> {
    for row in tail {
        if let Some(found) = entries_of(row)?.iter().rev().find_map(&find) {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// A stored message.
pub(crate) fn message_of(row: &InboxRow) -> Result<Message> {
    serde_json::from_str(&row.text)
        .map_err(|e| Error::Corrupt { at: format!("inbox {}:{}", row.num, row.arrival), source: e.into() })
}

/// When the earliest run of each of these is due.
#[derive(Debug)]
pub(crate) struct ReadDues(pub(crate) Vec<Drives>);

impl Verb for ReadDues {
    type Answer = Vec<Option<Time>>;
    const READS: bool = true;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Self::Answer> {
        tx.dues(&self.0, Time(i64::MIN)).await
    }
}

impl Verb for Find {
    type Answer = Option<(Run, Option<Outcome>)>;
    const READS: bool = true;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Self::Answer> {
        let run = match &self.by {
            FindBy::Id(id) => tx.run(*id).await?.filter(|run| run.new.workspace == self.workspace),
            FindBy::Key(scope, key) => {
                let holder = tx.holder(self.workspace, scope, key).await?;
                holder.filter(|run| !run.key_expired(tx.now()))
            }
            FindBy::Token(token) => tx.hook(self.workspace, token).await?,
            FindBy::Call(id) => match tx.call(self.workspace, Control::CALL_SCOPE, id).await? {
                Some(past) => tx.run(past.run).await?,
                None => None,
            },
        };
        let Some(run) = run else { return Ok(None) };
        let outcome = outcome_of(tx, &run).await?;
        Ok(Some((run, outcome)))
    }
}

pub(super) async fn known<T: StoreTx>(tx: &mut T, workspace: WorkspaceId, run: RunId) -> Result<Run> {
    let found = tx.run(run).await?.filter(|run| run.new.workspace == workspace);
    found.ok_or(Error::RunNotFound(run))
}

/// The stored commits of a run.
pub(crate) struct ReadLedger {
    pub(crate) workspace: WorkspaceId,
    pub(crate) run: RunId,
    pub(crate) from: u64,
}

impl Verb for ReadLedger {
    type Answer = Vec<LedgerRow>;
    const READS: bool = true;
    const SCANS: bool = true;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Vec<LedgerRow>> {
        let run = known(tx, self.workspace, self.run).await?;
        // The sweep may not be through with it yet.
        if run.purged { Ok(Vec::new()) } else { tx.ledgers(&[run.num], self.from).await }
    }
}

impl Verb for Part {
    /// The version of the run, and the commits of the part; none if it has to be asked again.
    type Answer = Option<(u64, Vec<LedgerRow>)>;
    const READS: bool = true;
    const SCANS: bool = true;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Self::Answer> {
        let run = known(tx, self.workspace, self.run).await?;
        // The sweep may not be through with it yet.
        if run.purged {
            return Ok(Some((run.state.version, Vec::new())));
        }
        let rows = tx.ledger_part(run.num, self.from, self.limit, self.bytes).await?;
        Ok(rows.map(|rows| (run.state.version, rows)))
    }
}

/// A part of the unconsumed messages of a run.
pub(crate) struct ReadInbox(pub(crate) Part);

impl Verb for ReadInbox {
    type Answer = Vec<InboxRow>;
    const READS: bool = true;
    const SCANS: bool = true;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Vec<InboxRow>> {
        let Part { workspace, run, from, limit, bytes } = self.0;
        let run = known(tx, workspace, run).await?;
        if run.purged {
            return Ok(Vec::new());
        }
        let mut rows = tx.inboxes(&[run.num], from, bytes).await?;
        rows.truncate(limit);
        Ok(rows)
    }
}

/// How many messages a run has not consumed.
pub(crate) struct CountInbox {
    pub(crate) workspace: WorkspaceId,
    pub(crate) run: RunId,
}

impl Verb for CountInbox {
    type Answer = u64;
    const READS: bool = true;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<u64> {
        let run = known(tx, self.workspace, self.run).await?;
        if run.purged { Ok(0) } else { Ok(tx.unconsumed(run.num).await?.count) }
    }
}

/// Reads the receipts of a run.
pub(crate) struct ReadReceipts {
    pub(crate) workspace: WorkspaceId,
    pub(crate) run: RunId,
}

impl Verb for ReadReceipts {
    type Answer = Vec<(ReceiptKind, Receipts)>;
    const READS: bool = true;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Self::Answer> {
        let run = known(tx, self.workspace, self.run).await?;
        tx.receipts(run.num).await
    }
}

impl Verb for DuplicatesQuery {
    type Answer = DuplicatesPage;
    const READS: bool = true;
    const SCANS: bool = true;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<DuplicatesPage> {
        let before = match self.before {
            None => None,
            Some(DuplicateCursor { last, run, kind }) => {
                let num = known(tx, self.workspace, run).await?.num;
                Some(DuplicatePlace { last, num, kind })
            }
        };
        let rows = tx.duplicates(self, before).await?;
        Ok(DuplicatesPage::of(self, rows))
    }
}

/// Writes collected receipts.
pub(crate) struct FlushReceipts(pub(crate) HashMap<(i64, ReceiptKind), Receipts>);

impl Verb for FlushReceipts {
    type Answer = ();

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<()> {
        // In one order for all: two stores that write receipts of the same runs must not wait for each other.
        let mut all: Vec<_> = self.0.iter().collect();
        all.sort_unstable_by_key(|(at, _)| **at);
        for ((num, kind), receipts) in all {
            tx.add_receipts(*num, *kind, receipts).await?;
        }
        Ok(())
    }
}
