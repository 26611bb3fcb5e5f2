//! Parts of ledgers and inboxes: a ledger may have a hundred thousand entries, and an entry two megabytes.

use super::Numbered;
use crate::id::{RunId, WorkspaceId};

/// A question for a part of a run's ledger or inbox.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Workspace to which the run must belong.
    pub workspace: WorkspaceId,
    /// Run whose ledger is read.
    pub run: RunId,
    /// The number of the first entry or message; the first one is 1.
    pub from: u64,
    /// Maximum number of entries or messages.
    pub limit: usize,
    /// Maximum size as stored, in bytes. The commit or message that exceeds it is the last one of the part, so that a
    /// part is never empty if there is something to read.
    pub bytes: usize,
}

/// A part of a run's ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LedgerPart {
    /// Entries of the part, in order, with their numbers.
    pub entries: Vec<Numbered>,
    /// The number of the first entry behind this part. Absent if the part reaches the end of the ledger.
    pub next: Option<u64>,
}

impl Part {
    /// The part of these entries, which are all from [`from`](Self::from) on.
    pub fn cut(&self, mut entries: Vec<Numbered>) -> LedgerPart {
        let enough = self.fitting(&entries, |line| serde_json::to_string(&line.entry));
        let next = entries.get(enough).map(|line| line.number);
        entries.truncate(enough);
        LedgerPart { entries, next }
    }

    /// Number of these items that belong to the part, by their stored texts.
    pub(super) fn fitting<T>(&self, items: &[T], text: impl Fn(&T) -> serde_json::Result<String>) -> usize {
        let mut bytes = 0;
        let fits = |item: &&T| {
            let before = bytes;
            bytes += text(item).map_or(0, |text| text.len());
            before < self.bytes.max(1)
        };
        items.iter().take(self.limit).take_while(fits).count()
    }
}
