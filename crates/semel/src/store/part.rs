//! Parts of ledgers: a ledger may have a hundred thousand entries, and an entry two megabytes.

use super::Numbered;
use crate::id::{RunId, WorkspaceId};

/// A question for a part of a run's ledger.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Workspace to which the run must belong.
    pub workspace: WorkspaceId,
    /// Run whose ledger is read.
    pub run: RunId,
    /// The number of the first entry; the first of a ledger is 1.
    pub from: u64,
    /// The highest number of entries to read.
    pub limit: usize,
    /// Most bytes of the entries as they are stored. The commit that exceeds them is the last one of the part, so that a
    /// part of a ledger that has entries is never empty.
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
        let mut bytes = 0;
        let fits = |line: &&Numbered| {
            let before = bytes;
            bytes += serde_json::to_string(&line.entry).map_or(0, |text| text.len());
            before < self.bytes.max(1)
        };
        let enough = entries.iter().take(self.limit).take_while(fits).count();
        let next = entries.get(enough).map(|line| line.number);
        entries.truncate(enough);
        LedgerPart { entries, next }
    }
}
