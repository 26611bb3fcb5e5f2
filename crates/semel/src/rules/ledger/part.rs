//! Large commits: what an execution records at once is cut into parts, which are committed one after the other.
//!
//! An entry is valid after all entries before it, so every prefix of what was recorded is a ledger that an execution
//! can go on from; a crash between two parts is a crash between two commits. Only executions of the engine are cut
//! like this: what a remote worker sends is one commit, or nothing.

use super::{Ledger, PendingCommit};
use crate::rules::status::Status;

/// Size in bytes at which a part is full: far below the limits of databases and requests, and quick to send.
const BYTES: usize = 4 * 1024 * 1024;
/// Maximum number of hooks and children that one commit settles. Other writes wait meanwhile.
const DRAFTS: usize = 500;
/// Maximum number of messages that one commit consumes.
const CONSUMED: usize = 1_000;

impl PendingCommit {
    fn is_full(&self) -> bool {
        let consumed = self.beyond.as_ref().map_or(0, |beyond| beyond.consumed.len());
        // Each draft follows the entries before it.
        self.drafts.len() >= 2 * DRAFTS || consumed >= CONSUMED || self.lines.len() + self.inputs >= BYTES
    }
}

impl Ledger {
    /// Whether something is recorded that no commit contains yet, such as what follows a committed part.
    pub(crate) fn has_unsent(&self) -> bool {
        self.pending.count > 0 || self.seldom.as_ref().is_some_and(|seldom| !seldom.parts.is_empty())
    }

    /// Begins another part if this one is full. Called before each entry, so that the entry that ends the run, or
    /// lets it rest, is in the last part.
    pub(super) fn part(&mut self) {
        if !self.cuts || !self.pending.is_full() || self.run.status() != Status::Running {
            return;
        }
        let pending = std::mem::take(&mut self.pending);
        let expected = self.run.state.version - pending.count;
        self.seldom.get_or_insert_default().parts.push_back((expected, pending));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::RunId;
    use crate::rules::entry::{Created, Entry};
    use crate::rules::json::Payload;
    use crate::rules::path::{Name, Path, Visit};
    use crate::rules::run::tests::run;
    use uuid::Uuid;

    fn visit(n: usize) -> Visit {
        Visit::first(Path::parse(&format!("child[{n}]")).unwrap())
    }

    /// A ledger of a run that is being driven.
    fn driven() -> Ledger {
        let run = run(Status::Running);
        let created = Created {
            workflow: run.new.workflow.clone(),
            workflow_version: run.new.workflow_version.clone(),
            input: Payload::null(),
            key: run.new.key.clone(),
            scope: run.new.scope.clone(),
            lineage: run.new.lineage,
            not_before: None,
            deadline: None,
            parent: None,
            forked_from: None,
        };
        let node = crate::id::NodeId(Uuid::from_u128(7));
        Ledger::read(run, [Entry::Created(Box::new(created)), Entry::Claimed { node }]).unwrap()
    }

    fn start_children(ledger: &mut Ledger, children: usize) {
        let name = Name::new("w").unwrap();
        for n in 0..children {
            let (run, name) = (RunId(Uuid::from_u128(n as u128)), name.clone());
            ledger.start_child(visit(n), run, name.clone(), name, Payload::null()).unwrap();
        }
    }

    /// The expected version, the number of entries and the status of each commit.
    fn commits(ledger: &mut Ledger) -> Vec<(u64, u64, Status)> {
        std::iter::from_fn(|| ledger.commit()).map(|c| (c.expected, c.count, c.status)).collect()
    }

    #[test]
    fn many_children_are_started_by_several_commits_and_the_end_is_in_the_last() {
        let mut ledger = driven();
        ledger.begin();
        start_children(&mut ledger, 2 * DRAFTS + 1);
        ledger.record(Entry::Waiting { due: None }).unwrap();
        assert!(ledger.has_unsent());
        let (drafts, running) = (DRAFTS as u64, Status::Running);
        let expected =
            [(2, drafts, running), (2 + drafts, drafts, running), (2 + 2 * drafts, 2, Status::Waiting)];
        assert_eq!(commits(&mut ledger), expected);
        assert!(!ledger.has_unsent());
    }

    #[test]
    fn large_values_are_committed_in_parts() {
        let mut ledger = driven();
        ledger.begin();
        let value = Payload::parse(&format!("\"{}\"", "x".repeat(BYTES / 4))).unwrap();
        for n in 0..10 {
            ledger.record(Entry::Recorded { at: visit(n), value: value.clone(), failed: None }).unwrap();
        }
        ledger.record(Entry::Completed { value: Payload::null() }).unwrap();
        let all = commits(&mut ledger);
        assert_eq!(all, [(2, 4, Status::Running), (6, 4, Status::Running), (10, 3, Status::Completed)]);
    }

    #[test]
    fn what_no_execution_records_is_one_commit() {
        let mut ledger = driven();
        start_children(&mut ledger, 2 * DRAFTS + 1);
        assert_eq!(commits(&mut ledger), [(2, 2 * DRAFTS as u64 + 1, Status::Running)]);
    }
}
