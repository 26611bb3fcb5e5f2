//! The rows: what a backend must be able to read and write inside one transaction.
//!
//! This is the whole difference between the backends. The verbs are written once, over these rows, so that no rule and
//! no transition exists twice. Whatever a method reads is locked until the transaction ends, where it says so.

use std::collections::HashSet;
use std::future::Future;

use crate::clock::Time;
use crate::error::{Error, Result};
use crate::id::{NodeId, RunId, WorkspaceId};
use crate::rules::claim::Drives;
use crate::rules::deliver::{PastCall, Unconsumed};
use crate::rules::entry::Message;
use crate::rules::finish::Purge;
use crate::rules::key::{CallId, Key, Label, RecordId, Scope, Token};
use crate::rules::once::OnceRow;
use crate::rules::path::{Name, Visit};
use crate::rules::receipt::{ReceiptKind, Receipts};
use crate::rules::record::{Look, Record};
use crate::rules::run::{NewRun, Run, State};
use crate::rules::status::Status;

use super::archive::{ArchiveRows, OnceAt};
use super::list::{Scan, Scanned};

/// The entries of one commit, as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LedgerRow {
    /// The run.
    pub(crate) num: i64,
    /// How many entries come before these.
    pub(crate) seq: u64,
    pub(crate) at: Time,
    pub(crate) text: String,
}

/// A message in an inbox, as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InboxRow {
    pub(crate) num: i64,
    pub(crate) arrival: u64,
    pub(crate) at: Time,
    pub(crate) text: String,
}

/// Where a call is remembered: its id is unique in its workspace and scope.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallAt<'a> {
    pub(crate) workspace: WorkspaceId,
    pub(crate) scope: &'a str,
    pub(crate) id: &'a CallId,
}

/// A run taken by a claim: its new state and the entry that says so.
#[derive(Clone, Debug)]
pub(crate) struct Taken {
    pub(crate) num: i64,
    pub(crate) expected: u64,
    pub(crate) state: State,
    pub(crate) text: String,
}

/// A new run, and its first entries as stored.
#[derive(Clone, Debug)]
pub(crate) struct InsertedRun {
    pub(crate) new: NewRun,
    pub(crate) state: State,
    pub(crate) text: String,
}

/// A node whose lease has ended, or that has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeadNode {
    pub(crate) id: NodeId,
    /// Whether it is found dead for the first time: all of its runs are still its.
    pub(crate) is_new: bool,
    /// Whether it has left in good order.
    pub(crate) departed: bool,
}

/// A run in the hands of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Driven {
    pub(crate) num: i64,
    pub(crate) node: NodeId,
    pub(crate) stalls: u32,
}

/// A run that is due from a time on, and in no node's hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SetFree {
    pub(crate) num: i64,
    pub(crate) due: Time,
    pub(crate) stalls: u32,
}

/// A run that waits for another's end.
#[derive(Clone, Debug)]
pub(crate) struct Watcher {
    pub(crate) num: i64,
    pub(crate) visit: Visit,
}

/// The unsettled once of a run that ends.
#[derive(Clone, Debug)]
pub(crate) struct HeldOnce {
    pub(crate) workspace: WorkspaceId,
    pub(crate) scope: String,
    pub(crate) label: Label,
    pub(crate) row: OnceRow,
}

impl HeldOnce {
    /// Where it stands.
    pub(crate) fn at(&self) -> OnceAt {
        (self.workspace, self.scope.clone(), self.label.clone())
    }
}

/// Two transactions met in a way that only concurrent backends know: nothing is written, and the verb runs again.
#[derive(Debug, thiserror::Error)]
#[error("a concurrent transaction was faster, again and again")]
pub(crate) struct Race;

/// The error of a verb that lost a race and is to be run again.
pub(crate) fn race() -> Error {
    Error::Unavailable(Box::new(Race))
}

/// One transaction over the rows.
pub(crate) trait Tx: ArchiveRows {
    /// The store's time, the same throughout the transaction.
    fn now(&self) -> Time;

    /// Inserts a run with its first entries and gives it a number; none if its key is held by another, or its id is taken.
    fn insert_run(
        &mut self,
        new: &NewRun,
        state: &State,
        text: &str,
    ) -> impl Future<Output = Result<Option<i64>>> + Send;
    /// Inserts runs as [`Tx::insert_run`] does each of them, and gives their numbers. A backend may do it in one go.
    fn insert_runs(&mut self, runs: &[InsertedRun]) -> impl Future<Output = Result<Vec<Option<i64>>>> + Send {
        async move {
            let mut nums = Vec::with_capacity(runs.len());
            for InsertedRun { new, state, text } in runs {
                nums.push(self.insert_run(new, state, text).await?);
            }
            Ok(nums)
        }
    }
    /// Which of these keys are held by a run, not locked.
    fn held_keys(
        &mut self,
        workspace: WorkspaceId,
        scope: &Scope,
        keys: &[&Key],
    ) -> impl Future<Output = Result<HashSet<Key>>> + Send {
        async move {
            let mut held = HashSet::new();
            for key in keys {
                held.extend(self.holder(workspace, scope, key).await?.map(|run| run.new.key.clone()));
            }
            Ok(held)
        }
    }
    /// The run that holds a key, locked.
    fn holder(
        &mut self,
        workspace: WorkspaceId,
        scope: &Scope,
        key: &Key,
    ) -> impl Future<Output = Result<Option<Run>>> + Send;
    /// A run, locked.
    fn run(&mut self, id: RunId) -> impl Future<Output = Result<Option<Run>>> + Send;
    /// A run by its number, locked.
    fn run_at(&mut self, num: i64) -> impl Future<Output = Result<Option<Run>>> + Send;
    /// A run's state, not locked.
    fn status(&mut self, id: RunId) -> impl Future<Output = Result<Option<Status>>> + Send;
    /// Replaces a run's state if its version is still the expected one.
    fn save(&mut self, num: i64, expected: u64, state: &State) -> impl Future<Output = Result<bool>> + Send;
    /// The same, with the entries that led to it.
    fn save_with(
        &mut self,
        num: i64,
        expected: u64,
        state: &State,
        text: &str,
    ) -> impl Future<Output = Result<bool>> + Send {
        async move {
            let saved = self.save(num, expected, state).await?;
            if saved {
                self.append(num, expected, text).await?;
            }
            Ok(saved)
        }
    }
    /// The one write of a step: `count` entries more, if the version is still the expected one and the run is running.
    fn advance(
        &mut self,
        num: i64,
        expected: u64,
        count: u64,
        text: &str,
    ) -> impl Future<Output = Result<bool>> + Send;
    /// Due runs of these versions of workflows, the longest due first, locked; those that somebody else has locked are left out.
    fn due(&mut self, workflows: &[Drives], limit: usize) -> impl Future<Output = Result<Vec<Run>>> + Send;
    /// For each of these, the earliest time later than `after` at which a run of it is or becomes due.
    fn dues(
        &mut self,
        workflows: &[Drives],
        after: Time,
    ) -> impl Future<Output = Result<Vec<Option<Time>>>> + Send;
    /// Takes claimed runs: what [`Tx::due`] has locked. A backend may do it in one go.
    fn take(&mut self, taken: &[Taken]) -> impl Future<Output = Result<()>> + Send {
        async move {
            for run in taken {
                if !self.save(run.num, run.expected, &run.state).await? {
                    return Err(race());
                }
                self.append(run.num, run.expected, &run.text).await?;
            }
            Ok(())
        }
    }
    /// The open runs that a run has started, locked.
    fn open_children(&mut self, parent: RunId) -> impl Future<Output = Result<Vec<Run>>> + Send;
    /// One pass over an index of runs.
    fn list(&mut self, scan: &Scan<'_>) -> impl Future<Output = Result<Scanned>> + Send;

    /// Appends the entries of one commit.
    fn append(&mut self, num: i64, seq: u64, text: &str) -> impl Future<Output = Result<()>> + Send;
    /// All of some runs' ledgers, in order, from the commit that contains entry number `from`.
    fn ledgers(&mut self, nums: &[i64], from: u64) -> impl Future<Output = Result<Vec<LedgerRow>>> + Send;
    /// The commits of a run from the one that contains entry number `from`: at most `limit`, and none after the one that
    /// exceeds `bytes`. None if there is still some way to go to that entry: then the verb is asked again, and others are
    /// served in between.
    fn ledger_part(
        &mut self,
        num: i64,
        from: u64,
        limit: usize,
        bytes: usize,
    ) -> impl Future<Output = Result<Option<Vec<LedgerRow>>>> + Send;
    /// The first commit of a run: what it was created with.
    fn ledger_first(&mut self, num: i64) -> impl Future<Output = Result<Option<LedgerRow>>> + Send;
    /// The last few commits of a run, the latest first.
    fn ledger_tail(&mut self, num: i64, limit: usize) -> impl Future<Output = Result<Vec<LedgerRow>>> + Send;

    /// Puts a message into the inbox of a run that has not ended, and makes it due if it waits. Gives the message's
    /// number; none if the run has ended.
    fn arrive(&mut self, num: i64, message: &Message) -> impl Future<Output = Result<Option<u64>>> + Send;
    /// What is in some runs' inboxes from a number on, in order of arrival.
    fn inboxes(&mut self, nums: &[i64], from: u64) -> impl Future<Output = Result<Vec<InboxRow>>> + Send;
    /// How much is in a run's inbox. Its values are not read.
    fn unconsumed(&mut self, num: i64) -> impl Future<Output = Result<Unconsumed>> + Send;
    /// Which of these messages are in a run's inbox.
    fn arrived(&mut self, num: i64, arrivals: &[u64]) -> impl Future<Output = Result<Vec<u64>>> + Send;
    /// Takes a message out; false if it is not there.
    fn consume(&mut self, num: i64, arrival: u64) -> impl Future<Output = Result<bool>> + Send;
    /// Takes messages out. A backend may do it in one go.
    fn consume_all(&mut self, num: i64, arrivals: &[u64]) -> impl Future<Output = Result<()>> + Send {
        async move {
            for arrival in arrivals {
                self.consume(num, *arrival).await?;
            }
            Ok(())
        }
    }

    /// Gives a token to a run; false if it has an owner.
    fn insert_hook(
        &mut self,
        workspace: WorkspaceId,
        token: &Token,
        num: i64,
    ) -> impl Future<Output = Result<bool>> + Send;
    /// The owner of a token, not locked.
    fn hook_owner(
        &mut self,
        workspace: WorkspaceId,
        token: &Token,
    ) -> impl Future<Output = Result<Option<RunId>>> + Send;
    /// The owner of a token, locked, and still the owner now that it is.
    fn hook(
        &mut self,
        workspace: WorkspaceId,
        token: &Token,
    ) -> impl Future<Output = Result<Option<Run>>> + Send;
    /// Frees a token of a run.
    fn delete_hook(
        &mut self,
        workspace: WorkspaceId,
        token: &Token,
        num: i64,
    ) -> impl Future<Output = Result<()>> + Send;
    /// Frees all tokens of a run.
    fn delete_hooks(&mut self, num: i64) -> impl Future<Output = Result<()>> + Send;

    /// Lets a run wait for another's end.
    fn insert_watcher(&mut self, num: i64, watcher: &Watcher) -> impl Future<Output = Result<()>> + Send;
    /// Lets runs wait for others' ends, whose numbers come first. A backend may do it in one go.
    fn insert_watchers(&mut self, watchers: &[(i64, Watcher)]) -> impl Future<Output = Result<()>> + Send {
        async move {
            for (num, watcher) in watchers {
                self.insert_watcher(*num, watcher).await?;
            }
            Ok(())
        }
    }
    /// Takes away and gives those who wait for a run's end.
    fn take_watchers(&mut self, num: i64) -> impl Future<Output = Result<Vec<Watcher>>> + Send;

    /// The call that was accepted under an id.
    fn call(
        &mut self,
        workspace: WorkspaceId,
        scope: &str,
        id: &CallId,
    ) -> impl Future<Output = Result<Option<PastCall>>> + Send;
    /// Remembers a call, for as long as the history of the run with this number; false if the id is taken. With `replaces`, a
    /// call of that run gives up the id.
    fn insert_call(
        &mut self,
        at: CallAt<'_>,
        num: i64,
        call: &PastCall,
        replaces: Option<RunId>,
    ) -> impl Future<Output = Result<bool>> + Send;

    /// A once, locked; locked against others also if it is not there.
    fn once(
        &mut self,
        workspace: WorkspaceId,
        scope: &str,
        label: &Label,
    ) -> impl Future<Output = Result<Option<OnceRow>>> + Send;
    /// Writes a once that [`Tx::once`] has locked, or deletes it.
    fn put_once(
        &mut self,
        workspace: WorkspaceId,
        scope: &str,
        label: &Label,
        row: Option<&OnceRow>,
    ) -> impl Future<Output = Result<()>> + Send;
    /// Lets a run wait for a once that [`Tx::once`] has locked, if it does not already.
    fn insert_once_waiter(&mut self, at: &OnceAt, run: RunId) -> impl Future<Output = Result<()>> + Send;
    /// Those who wait for a once, in order of their ids.
    fn once_waiters(&mut self, at: &OnceAt) -> impl Future<Output = Result<Vec<RunId>>> + Send;
    /// Takes away all who wait for a once.
    fn delete_once_waiters(&mut self, at: &OnceAt) -> impl Future<Output = Result<()>> + Send;
    /// The unsettled ones of a run, locked.
    fn held_once(&mut self, owner: RunId) -> impl Future<Output = Result<Vec<HeldOnce>>> + Send;
    /// Forgets settled ones that have expired.
    fn delete_expired_once(&mut self, limit: usize) -> impl Future<Output = Result<usize>> + Send;

    /// A record, locked, whether or not it has expired.
    fn record(&mut self, kind: &Name, id: &RecordId) -> impl Future<Output = Result<Option<Record>>> + Send;
    /// Writes a record in place of a version, or, with none, where there is none; false if that is not so.
    fn put_record(
        &mut self,
        record: &Record,
        replaces: Option<u64>,
    ) -> impl Future<Output = Result<bool>> + Send;
    /// Records that have not expired, in the order that is asked for.
    fn records(&mut self, look: &Look) -> impl Future<Output = Result<Vec<Record>>> + Send;
    /// Forgets records that have expired.
    fn delete_expired_records(&mut self, limit: usize) -> impl Future<Output = Result<usize>> + Send;

    /// Adds to the receipts of a run, if the run is still known.
    fn add_receipts(
        &mut self,
        num: i64,
        kind: ReceiptKind,
        receipts: &Receipts,
    ) -> impl Future<Output = Result<()>> + Send;
    /// The receipts of a run.
    fn receipts(&mut self, num: i64) -> impl Future<Output = Result<Vec<(ReceiptKind, Receipts)>>> + Send;

    /// Until when a node's lease lasts; none if it is unknown or given up for dead. Locked against its end.
    fn lease(&mut self, node: NodeId) -> impl Future<Output = Result<Option<Time>>> + Send;
    /// Sets a node's lease; with none, gives the node up for dead.
    fn put_lease(&mut self, node: NodeId, until: Option<Time>) -> impl Future<Output = Result<()>> + Send;
    /// Sets the lease of a node that is not of this process. Only a store of one process has to know.
    fn enroll(&mut self, node: NodeId, until: Time) -> impl Future<Output = Result<()>> + Send {
        self.put_lease(node, Some(until))
    }
    /// Ends the lease of a node that leaves in good order.
    fn depart(&mut self, node: NodeId) -> impl Future<Output = Result<()>> + Send;
    /// Nodes whose lease has ended, or that have left or are given up for dead, locked.
    fn dead_nodes(&mut self) -> impl Future<Output = Result<Vec<DeadNode>>> + Send;
    /// Up to `limit` runs in the hands of nodes that are given up for dead, the first by their numbers, locked.
    fn driven(&mut self, dead: &[NodeId], limit: usize) -> impl Future<Output = Result<Vec<Driven>>> + Send;
    /// The counts of deaths (`stalls`) of the runs in a node's hands.
    fn held_by(&mut self, node: NodeId) -> impl Future<Output = Result<Vec<u32>>> + Send;
    /// Takes runs that are locked out of all hands.
    fn set_free(&mut self, runs: &[SetFree]) -> impl Future<Output = Result<()>> + Send;
    /// Forgets a node.
    fn delete_node(&mut self, node: NodeId) -> impl Future<Output = Result<()>> + Send;

    /// Runs that are open and not paused and whose deadline has passed, the longest overdue first, locked; those that are
    /// locked already are left out.
    fn overdue(&mut self, limit: usize) -> impl Future<Output = Result<Vec<Run>>> + Send;

    /// Runs that have something to forget, locked.
    fn purgeable(&mut self, limit: usize) -> impl Future<Output = Result<Vec<Run>>> + Send;
    /// Deletes up to `limit` rows of what a run's history is made of: remembered calls, messages, entries. Its receipts are
    /// few, and go without being counted. How many there were.
    fn delete_history(&mut self, num: i64, limit: usize) -> impl Future<Output = Result<usize>> + Send;
    /// Says that a run's history is forgotten, and when the sweep comes back.
    fn set_purged(&mut self, num: i64, next: Time) -> impl Future<Output = Result<()>> + Send;
    /// Deletes a run of which nothing is left but its header.
    fn delete_run(&mut self, num: i64) -> impl Future<Output = Result<()>> + Send;
    /// Forgets up to `limit` rows of a run's history; if that was all of it, what is to be forgotten of the run. Until then
    /// the history is marked as forgotten, so that nobody reads half of it, and the sweep comes back at once. How many rows
    /// there were. A backend may do it in one go.
    fn forget(&mut self, run: &Run, what: Purge, limit: usize) -> impl Future<Output = Result<usize>> + Send {
        async move {
            let gone = self.delete_history(run.num, limit).await?;
            match what {
                _ if gone == limit => self.set_purged(run.num, run.state.purge.unwrap_or(self.now())).await?,
                Purge::History(next) => self.set_purged(run.num, next).await?,
                Purge::Run => self.delete_run(run.num).await?,
                Purge::Keep => {}
            }
            Ok(gone)
        }
    }
}

/// One durable transition, written once for every backend.
///
/// A verb that answers with an error has written nothing: it decides first and writes then. Backends check that.
pub(crate) trait Verb: Send + Sync + 'static {
    /// What it answers.
    type Answer: Send + 'static;
    /// Whether it only reads; such a verb waits for no write.
    const READS: bool = false;
    /// Whether it may read so much that short reads should not wait behind it.
    const SCANS: bool = false;
    /// How many bytes of values it writes, roughly: a batch has room for so many.
    #[cfg(feature = "sqlite")]
    fn weight(&self) -> usize {
        0
    }
    /// Runs it in a transaction.
    fn run<T: Tx>(&self, tx: &mut T) -> impl Future<Output = Result<Self::Answer>> + Send;
}

/// A message as stored.
pub(crate) fn message_text(message: &Message) -> String {
    serde_json::to_string(message).expect("messages are plain data with text keys")
}

/// Runs a verb over rows that never make it wait: memory, and SQLite on its own thread.
pub(crate) fn now_or_never<F: Future>(future: F) -> F::Output {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future).poll(&mut context) {
        std::task::Poll::Ready(output) => output,
        std::task::Poll::Pending => unreachable!("these rows never make a verb wait"),
    }
}

/// A duration as stored; what is longer than the store can count is for ever.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(crate) fn millis(duration: std::time::Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Reads what [`millis`] wrote.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(crate) fn duration(millis: i64) -> std::time::Duration {
    if millis == i64::MAX {
        std::time::Duration::MAX
    } else {
        std::time::Duration::from_millis(millis.unsigned_abs())
    }
}
