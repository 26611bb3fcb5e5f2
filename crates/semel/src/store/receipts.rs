//! Receipts on their way to the store: collected per run, written behind.
//!
//! An absorbed duplicate must not wait for a write, and a hundred thousand of them a second must not make a hundred
//! thousand rows. So they are added up in memory and written a moment later, one row per run and kind. A crash may
//! lose the last moment's receipts; never a run, and never a count that was shown.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::rules::receipt::{Absorbed, ReceiptKind, Receipts};

/// How long receipts are collected before they are written: long enough to add up a burst.
pub(crate) const COLLECT: Duration = Duration::from_millis(100);

pub(crate) type Collected = HashMap<(i64, ReceiptKind), Receipts>;

#[derive(Debug, Default)]
struct PendingReceipts {
    receipts: Collected,
    /// Whether a call has taken on to write them.
    scheduled: bool,
}

/// The receipts that are not written yet.
#[derive(Debug, Default)]
pub(crate) struct ReceiptBuffer {
    pending: Mutex<PendingReceipts>,
    /// Held during a write. Receipts that are being written are neither here nor in the store, so a reader waits for it.
    writing: tokio::sync::Mutex<()>,
}

impl ReceiptBuffer {
    /// Adds one. True if the caller has to write the collected receipts.
    pub(crate) fn note(&self, num: i64, kind: ReceiptKind, absorbed: Absorbed) -> bool {
        let mut pending = self.lock();
        merge(&mut pending.receipts, (num, kind), Receipts::one(absorbed));
        !std::mem::replace(&mut pending.scheduled, true)
    }

    /// Waits for one's turn to write.
    pub(crate) async fn writing(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.writing.lock().await
    }

    /// Takes all of them out, to write them.
    pub(crate) fn take(&self) -> Collected {
        let mut pending = self.lock();
        pending.scheduled = false;
        std::mem::take(&mut pending.receipts)
    }

    /// Puts back what could not be written.
    pub(crate) fn put_back(&self, receipts: Collected) {
        let mut pending = self.lock();
        let newer = std::mem::replace(&mut pending.receipts, receipts);
        for (at, receipts) in newer {
            merge(&mut pending.receipts, at, receipts);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, PendingReceipts> {
        // The map is whole after every statement, so a panic elsewhere does not spoil it.
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn merge(receipts: &mut Collected, at: (i64, ReceiptKind), more: Receipts) {
    match receipts.get_mut(&at) {
        Some(held) => held.merge(more),
        None => drop(receipts.insert(at, more)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Time;

    #[test]
    fn one_caller_writes_for_all() {
        let buffer = ReceiptBuffer::default();
        let absorbed = |at| Absorbed::new(Time(at), String::new());
        assert!(buffer.note(1, ReceiptKind::Start, absorbed(1)));
        assert!(!buffer.note(1, ReceiptKind::Start, absorbed(2)));
        let taken = buffer.take();
        assert_eq!(taken[&(1, ReceiptKind::Start)].count, 2);
        assert!(
            buffer.note(1, ReceiptKind::Start, absorbed(3)),
            "they are taken: the next one has to be written"
        );
        buffer.put_back(taken);
        let all = buffer.take().remove(&(1, ReceiptKind::Start)).unwrap();
        assert_eq!(all.recent.iter().map(|r| r.at.0).collect::<Vec<_>>(), [1, 2, 3]);
    }
}
