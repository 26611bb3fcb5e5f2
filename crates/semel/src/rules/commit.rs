//! Commits: entries at an expected version, with everything that must change together with them.
//!
//! A [`Commit`] is only made by a [`Ledger`](super::ledger::Ledger), which has checked its entries against all that
//! came before. The store's guard on the version then says whether that is still all that came before. So a store
//! never judges entries, and yet no invalid one gets in.

use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::entry::{Entry, Lines, Outcome, decode};
use super::json::Payload;
use super::key::{Fingerprint, Key, Token};
use super::path::{Name, Visit};
use super::run::{Parent, Retention};
use super::status::Status;
use crate::clock::Time;
use crate::id::{NodeId, RunId, WorkspaceId};

/// Entries, or the wish for one whose final form depends on rows of other runs and is decided by the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Draft {
    /// Entries as they are.
    Entries(Lines),
    /// Own a token: becomes `HookOpened`, or `HookConflicted` if another run owns it.
    OpenHook {
        /// Where.
        hook: Visit,
        /// The token.
        token: Token,
    },
    /// Start a child: becomes `ChildStarted`.
    StartChild(Box<ChildStart>),
}

/// A child to start. Its key is the effect key of the visit, so a parent that lives again finds the child it had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildStart {
    /// Where in the parent.
    pub child: Visit,
    /// The id it gets if it is new.
    pub run: RunId,
    /// Its workflow.
    pub workflow: Name,
    /// That workflow's version.
    pub workflow_version: Name,
    /// Its input.
    pub input: Payload,
    /// Its key: the visit's effect key.
    pub key: Key,
    /// The hash of what is asked.
    pub fingerprint: Fingerprint,
    /// How long it is remembered.
    pub retention: Retention,
}

/// What a commit writes into the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Entries, as stored.
    Ready(String),
    /// At least one of them is settled by the store.
    Drafts(Vec<Draft>),
}

/// One atomic write of entries at an expected version. It is shared, not copied: its driver keeps it until it is answered, in
/// case that it has to be sent again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit(Arc<Write>);

impl Commit {
    pub(crate) fn new(write: Write) -> Self {
        Self(Arc::new(write))
    }
}

impl Deref for Commit {
    type Target = Write;

    fn deref(&self) -> &Write {
        &self.0
    }
}

/// What a commit writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    pub(crate) num: i64,
    pub(crate) run: RunId,
    /// The node that drives the run; none if nothing claims to.
    pub(crate) node: Option<NodeId>,
    pub(crate) expected: u64,
    pub(crate) count: u64,
    pub(crate) content: Content,
    /// The run's state after it.
    pub(crate) status: Status,
    /// With `Waiting`: the arrivals that the driver has seen; any later one makes the run due at once.
    pub(crate) seen: u64,
    pub(crate) tally: Tally,
    /// Apart: thousands of commits are under way at a time, and those of steps have nothing of it.
    pub(crate) beyond: Option<Box<Beyond>>,
}

/// What a commit has beyond entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Beyond {
    /// The tenant: who listens is told whose children are due.
    pub(crate) workspace: Option<WorkspaceId>,
    /// With a state in which no node drives the run: the node that did until then.
    pub(crate) driver: Option<NodeId>,
    /// With `Waiting`: from when on the run may be claimed.
    pub(crate) due: Option<Time>,
    /// The latest timer that it says has fired: too early before that.
    pub(crate) not_before: Option<Time>,
    /// Inbox messages it consumes.
    pub(crate) consumed: Vec<u64>,
    /// Tokens it frees.
    pub(crate) closed: Vec<Token>,
    /// The run's end, if this is it.
    pub(crate) ending: Option<Ending>,
}

/// The end of a run, and what follows from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ending {
    /// How it ended.
    pub(crate) outcome: Outcome,
    /// The run that started it, which hears of it, and where it waits.
    pub(crate) parent: Option<Parent>,
    /// How long the run is remembered.
    pub(crate) retention: Retention,
}

/// What a commit says of steps, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Steps that have an outcome by it.
    pub steps: u32,
    /// Steps that are in doubt by it.
    pub in_doubt: u32,
}

impl Tally {
    /// Counts an entry.
    pub(crate) fn count(&mut self, entry: &Entry) {
        match entry {
            Entry::StepCompleted { .. }
            | Entry::StepFailed { retry_at: None, .. }
            | Entry::StepSkipped { .. } => self.steps += 1,
            Entry::StepInDoubt { .. } => self.in_doubt += 1,
            _ => {}
        }
    }
}

impl Write {
    /// The run it belongs to.
    pub fn run(&self) -> RunId {
        self.run
    }

    /// How many entries it was made after.
    pub fn expected(&self) -> u64 {
        self.expected
    }

    /// How many entries it appends.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// How the run ended, if this ends it.
    pub fn outcome(&self) -> Option<&Outcome> {
        self.beyond().ending.as_ref().map(|ending| &ending.outcome)
    }

    pub(crate) fn beyond(&self) -> &Beyond {
        static NOTHING: Beyond = Beyond {
            workspace: None,
            driver: None,
            due: None,
            not_before: None,
            consumed: Vec::new(),
            closed: Vec::new(),
            ending: None,
        };
        self.beyond.as_deref().unwrap_or(&NOTHING)
    }

    /// What it says of steps, in numbers.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Whether these entries are what this commit writes; if so, what became of its drafts.
    pub fn matches(&self, written: &[Entry]) -> Option<Vec<Entry>> {
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

    /// Whether these entries are the first of what this commit writes, and some are missing: it was sent in pieces, and
    /// not all of them have come through.
    pub fn begins_with(&self, written: &[Entry]) -> bool {
        let (mut rest, mut fits) = (written.iter(), (written.len() as u64) < self.count);
        let same = |text: &str, rest: &mut std::slice::Iter<'_, Entry>| match decode(text) {
            Ok(entries) => {
                rest.by_ref().take(entries.len()).zip(&entries).all(|(found, wanted)| found == wanted)
            }
            Err(_) => false,
        };
        match &self.content {
            Content::Ready(text) => fits &= same(text, &mut rest),
            Content::Drafts(drafts) => {
                for draft in drafts {
                    fits &= match draft {
                        Draft::Entries(lines) => same(&lines.clone().finish(), &mut rest),
                        Draft::OpenHook { hook: visit, .. } => {
                            rest.next().is_none_or(|found| found.visit() == Some(visit))
                        }
                        Draft::StartChild(start) => {
                            rest.next().is_none_or(|found| found.visit() == Some(&start.child))
                        }
                    };
                }
            }
        }
        fits
    }

    /// Whether nothing but the run's own row and ledger changes, as long as the run has no ties when it ends.
    pub(crate) fn is_plain(&self) -> bool {
        let Beyond { consumed, closed, .. } = self.beyond();
        matches!(self.content, Content::Ready(_)) && consumed.is_empty() && closed.is_empty()
    }

    /// Whether the run just goes on: the one commit per step that everything is built to make cheap.
    pub(crate) fn is_progress(&self) -> bool {
        self.is_plain() && self.status == Status::Running && self.beyond().not_before.is_none()
    }

    /// The end of the run if it is one, and if that changes nothing else unless the run has ties.
    #[cfg(feature = "sqlite")]
    pub(crate) fn plain_ending(&self) -> Option<&Ending> {
        let Beyond { not_before, ending, .. } = self.beyond();
        ending.as_ref().filter(|_| self.is_plain() && not_before.is_none())
    }

    /// Its entries as stored; nothing if the store has yet to settle some.
    pub(crate) fn text(&self) -> Option<&str> {
        match &self.content {
            Content::Ready(text) => Some(text),
            Content::Drafts(_) => None,
        }
    }
}

/// What the store says of a commit that took place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Saved {
    /// The run's version now.
    pub version: u64,
    /// What became of the drafts, in order; empty if there were none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settled: Vec<Entry>,
    /// Whether it ended, or put to rest, a run that had the right to make the result of a once: others may do it now.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub freed: bool,
}
