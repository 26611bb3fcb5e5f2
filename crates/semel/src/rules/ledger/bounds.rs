//! Bounds on the size of a ledger. Each rebuild of a run reads all of it.

use std::fmt;

use super::Ledger;

/// Maximum size of a run's ledger. What reaches it begins nothing new; a run that needs more keeps large values
/// elsewhere, or hands parts of the work to children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedgerBounds {
    /// Maximum number of entries; one million by default, ten times the longest history that is tested.
    pub entries: u64,
    /// Maximum size of the entries in memory, in bytes; 512 MiB by default.
    pub bytes: usize,
}

impl Default for LedgerBounds {
    fn default() -> Self {
        Self { entries: 1_000_000, bytes: 512 * 1024 * 1024 }
    }
}

impl fmt::Display for LedgerBounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { entries, bytes } = self;
        write!(
            f,
            "a run has at most {entries} entries and {bytes} bytes; keep large values elsewhere, or hand parts of the work to \
             children"
        )
    }
}

impl Ledger {
    /// Whether the ledger has reached its maximum size. The size counts all values, also those that a
    /// [slim](Self::slim) ledger has dropped.
    pub fn is_full(&self, bounds: LedgerBounds) -> bool {
        self.run.state.version >= bounds.entries || self.weight >= bounds.bytes
    }
}
