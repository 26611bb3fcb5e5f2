//! Whether a commit whose answer was lost took place, as the ledger shows.

use super::{Content, Draft, Saved, Write};
use crate::rules::entry::{Entry, decode};

/// Outcome of a commit whose answer was lost, by the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommitFate {
    /// It took place, with this answer.
    Saved(Saved),
    /// It did not take place yet: nothing is at its position.
    Open,
    /// Others have written there, so it never takes place.
    Lost,
}

impl Write {
    /// Finds out whether this commit took place. `after` are the entries of the ledger beyond [`expected`](Self::expected).
    ///
    /// No other write has the same entries at the same position, so entries that are equal are those of this commit.
    pub fn fate(&self, after: impl IntoIterator<Item = Entry>) -> CommitFate {
        let count = usize::try_from(self.count).unwrap_or(usize::MAX);
        let written: Vec<Entry> = after.into_iter().take(count).collect();
        match self.matches(&written) {
            Some(settled) => {
                let version = self.expected + self.count;
                CommitFate::Saved(Saved { version, settled, ..Saved::default() })
            }
            None if written.is_empty() => CommitFate::Open,
            None => CommitFate::Lost,
        }
    }

    /// Compares entries of a ledger with this commit: the settled drafts if they are the same, none if they differ.
    fn matches(&self, written: &[Entry]) -> Option<Vec<Entry>> {
        let (mut rest, mut settled) = (written, Vec::new());
        let same = |text: &str, rest: &mut &[Entry]| {
            let entries = decode(text).ok()?;
            let (these, after) = rest.split_at_checked(entries.len())?;
            *rest = after;
            (these == entries).then_some(())
        };
        match &self.content {
            Content::Ready(text) => same(text, &mut rest)?,
            Content::Drafts(drafts) => {
                for draft in drafts {
                    let asked = match draft {
                        Draft::Entries(lines) => {
                            same(&lines.clone().finish(), &mut rest)?;
                            continue;
                        }
                        Draft::OpenHook { hook, .. } => hook,
                        Draft::StartChild(start) => &start.child,
                    };
                    let (answer, after) = rest.split_first()?;
                    rest = after;
                    settled.extend((answer.visit() == Some(asked)).then(|| answer.clone()));
                }
                let drafted = drafts.iter().filter(|draft| !matches!(draft, Draft::Entries(_))).count();
                (settled.len() == drafted).then_some(())?;
            }
        }
        rest.is_empty().then_some(settled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::RunId;
    use crate::rules::commit::{Commit, Tally};
    use crate::rules::entry::encode;
    use crate::rules::key::Token;
    use crate::rules::path::{Path, Visit};
    use crate::rules::run::tests::run;
    use crate::rules::status::Status;

    fn visit(path: &str) -> Visit {
        Visit::first(Path::parse(path).unwrap())
    }

    fn fired(timer: &str) -> Entry {
        Entry::TimerFired { timer: visit(timer) }
    }

    fn opened(hook: &str) -> Entry {
        Entry::HookOpened { hook: visit(hook), token: Token::new("t").unwrap() }
    }

    fn commit(count: u64, content: Content) -> Commit {
        Commit::new(Write {
            num: 1,
            run: RunId(uuid::Uuid::nil()),
            new: run(Status::Running).new,
            fence: 1,
            node: None,
            expected: 5,
            count,
            content,
            status: Status::Running,
            seen: 0,
            asks_news: false,
            tally: Tally::default(),
            beyond: None,
        })
    }

    fn saved(settled: Vec<Entry>, count: u64) -> CommitFate {
        CommitFate::Saved(Saved { version: 5 + count, settled, ..Saved::default() })
    }

    #[test]
    fn entries_at_its_position_tell_what_became_of_a_commit() {
        let commit = commit(2, Content::Ready(encode(&[fired("a"), fired("b")])));
        for (after, fate) in [
            (vec![], CommitFate::Open),
            (vec![fired("a")], CommitFate::Lost),
            (vec![fired("a"), fired("b")], saved(vec![], 2)),
            (vec![fired("a"), fired("b"), fired("c")], saved(vec![], 2)),
            (vec![fired("b"), fired("a")], CommitFate::Lost),
            (vec![fired("c")], CommitFate::Lost),
        ] {
            assert_eq!(commit.fate(after.clone()), fate, "{after:?}");
        }
    }

    #[test]
    fn a_draft_is_found_as_what_the_store_made_of_it() {
        let hook = Draft::OpenHook { hook: visit("h"), token: Token::new("t").unwrap() };
        let commit = commit(1, Content::Drafts(vec![hook]));
        assert_eq!(commit.fate([opened("h")]), saved(vec![opened("h")], 1));
        assert_eq!(commit.fate([]), CommitFate::Open);
        assert_eq!(commit.fate([opened("other")]), CommitFate::Lost);
    }
}
