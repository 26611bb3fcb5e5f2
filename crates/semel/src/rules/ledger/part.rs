//! Commits that would be too large: what an execution records at once is cut into parts, which are committed one after the other.
//!
//! An entry is valid after all entries before it, so every beginning of what was recorded is a ledger that an execution can go
//! on from; a crash between two parts is a crash between two commits. Only an execution of the engine is cut like this: what a
//! remote worker sends is one commit, or nothing.

use super::{Ledger, Pending};
use crate::rules::status::Status;

/// A part with so many bytes takes no more: far below what a database or a request accepts, and short on the way.
const BYTES: usize = 4 * 1024 * 1024;
/// So many hooks and children are settled by one commit at most. Other writes wait meanwhile.
const DRAFTS: usize = 500;
/// So many messages are consumed by one commit at most.
const CONSUMED: usize = 1_000;

impl Pending {
    fn is_full(&self) -> bool {
        let consumed = self.beyond.as_ref().map_or(0, |beyond| beyond.consumed.len());
        // Each draft comes after the entries before it.
        self.drafts.len() >= 2 * DRAFTS || consumed >= CONSUMED || self.lines.len() + self.inputs >= BYTES
    }
}

impl Ledger {
    /// Whether a part of what was recorded is full and not committed yet: [`Ledger::commit`] gives that first, and more comes
    /// after it.
    pub(crate) fn has_parts(&self) -> bool {
        self.seldom.as_ref().is_some_and(|seldom| !seldom.parts.is_empty())
    }

    /// Begins another part if this one is full. Called before something is recorded: what ends the run, or puts it to rest, is
    /// in the last part.
    pub(super) fn part(&mut self) {
        if !self.cuts || !self.pending.is_full() || self.run.status() != Status::Running {
            return;
        }
        let pending = std::mem::take(&mut self.pending);
        let expected = self.run.state.version - pending.count;
        self.seldom.get_or_insert_default().parts.push_back((expected, pending));
    }
}
