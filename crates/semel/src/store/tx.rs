//! The rows: what a backend must be able to read and write inside one transaction.
//!
//! Every backend implements them. The SQL backends also have statements for plain starts and commits, which leave to the verbs
//! what they cannot decide. The verbs are written once, over these rows, so that no rule and
//! no transition exists twice. There is one trait for each kind of row, in a file of its own; a backend implements it in a
//! file of the same name. Rows that a method says it locks stay locked until the transaction ends.

mod calls;
mod counts;
mod due;
mod glances;
mod hooks;
mod inbox;
mod ledger;
mod nodes;
mod once;
mod records;
mod runs;
mod stats;
mod sweep;
mod tallies;
mod watchers;

use std::future::Future;

use crate::clock::Time;
use crate::error::{Error, Result};
use crate::store::archive::ArchiveRows;

pub(crate) use self::calls::{CallAt, CallRows};
pub(crate) use self::counts::{CountRows, OpenRuns};
pub(crate) use self::due::{ClaimedRow, DueRows};
pub(crate) use self::glances::{GLANCE_BYTES, GLANCE_TAIL, GlanceRow, GlanceRows, NOT_ABSORBED};
#[cfg(feature = "sqlite")]
pub(crate) use self::hooks::delivery_text;
pub(crate) use self::hooks::{COUNTED_MESSAGES, HookRows, NewHook, tokens_of};
pub(crate) use self::inbox::{InboxRow, InboxRows, message_text};
pub(crate) use self::ledger::{LedgerRow, LedgerRows};
pub(crate) use self::nodes::{DeadNode, Driven, NodeRows, SetFree};
pub(crate) use self::once::{HeldOnce, OnceRows};
pub(crate) use self::records::RecordRows;
pub(crate) use self::runs::{InsertedRun, KeyScan, RunRows};
pub(crate) use self::stats::{StatsAt, StatsLook, StatsRow, StatsRows};
pub(crate) use self::sweep::SweepRows;
pub(crate) use self::tallies::{CountScan, DueScan, LATE_MS, TallyRows, due_version};
pub(crate) use self::watchers::{Watcher, WatcherRows};

/// Two transactions met in a way that only concurrent backends know: nothing is written, and the verb runs again.
#[derive(Debug, thiserror::Error)]
#[error("a concurrent transaction was faster, again and again")]
pub(crate) struct Race;

/// The error of a verb that lost a race and is to be run again.
pub(crate) fn race() -> Error {
    Error::Unavailable(Box::new(Race))
}

/// The time of a transaction.
pub(crate) trait TxTime: Send {
    /// The store's time. It stays the same throughout the transaction.
    fn now(&self) -> Time;
}

/// One transaction over the rows: the methods for each kind of row, and the time. Implement those; this follows.
pub(crate) trait StoreTx:
    TxTime
    + RunRows
    + DueRows
    + LedgerRows
    + InboxRows
    + HookRows
    + WatcherRows
    + CallRows
    + OnceRows
    + RecordRows
    + NodeRows
    + SweepRows
    + StatsRows
    + CountRows
    + GlanceRows
    + TallyRows
    + ArchiveRows
{
}

impl<T> StoreTx for T where
    T: TxTime
        + RunRows
        + DueRows
        + LedgerRows
        + InboxRows
        + HookRows
        + WatcherRows
        + CallRows
        + OnceRows
        + RecordRows
        + NodeRows
        + SweepRows
        + StatsRows
        + CountRows
        + GlanceRows
        + TallyRows
        + ArchiveRows
{
}

/// One durable transition, written once for every backend.
///
/// A verb that answers with an error has written nothing: it decides first and writes then. Backends check that.
pub(crate) trait Verb: Send + Sync + 'static {
    /// Type of its answer.
    type Answer: Send + 'static;
    /// Whether it only reads; such a verb waits for no write.
    const READS: bool = false;
    /// Whether it may read so much that short reads should not wait behind it.
    const SCANS: bool = false;
    /// How many bytes of values it writes, roughly: a batch has a limit on them.
    #[cfg(feature = "sqlite")]
    fn weight(&self) -> usize {
        0
    }
    /// Runs it in a transaction.
    fn run<T: StoreTx>(&self, tx: &mut T) -> impl Future<Output = Result<Self::Answer>> + Send;
}

/// Runs a verb in a transaction. Every backend runs its verbs like this, so that the feature `sabotage` can put rows that lie
/// between the two.
pub(crate) fn run<V: Verb, T: StoreTx>(
    verb: &V,
    tx: &mut T,
) -> impl Future<Output = Result<V::Answer>> + Send {
    #[cfg(feature = "sabotage")]
    return super::lying::run(verb, tx);
    #[cfg(not(feature = "sabotage"))]
    verb.run(tx)
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
