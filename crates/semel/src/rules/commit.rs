//! Commits: entries at an expected version, with everything that must change together with them.
//!
//! Only a [`Ledger`](super::ledger::Ledger) makes a [`Commit`], after checking its entries against all earlier ones.
//! The store's guard on the version then tells whether those are still all earlier ones. So a store never judges
//! entries, and yet no invalid entry is written.

mod child;
mod decide;
mod fate;

use std::ops::Deref;
use std::sync::Arc;

pub(crate) use self::child::EarlierChild;
pub use self::decide::decide;
pub use self::fate::CommitFate;
use super::attention::Attention;
use super::entry::{Entry, Lines, Outcome};
use super::json::Payload;
use super::key::{Fingerprint, Key, Token};
use super::path::{Name, Visit};
use super::run::{NewRun, Parent, Retention};
use super::status::Status;
use crate::clock::Time;
use crate::id::{NodeId, RunId, WorkspaceId};

/// Entries, or a request for one whose final form depends on rows of other runs and is decided by the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Draft {
    /// Entries in their final form.
    Entries(Lines),
    /// Opens a hook under a token: becomes `HookOpened`, or `HookConflicted` if another run owns the token.
    OpenHook {
        /// Visit at which the hook is opened.
        hook: Visit,
        /// Token that the run asks for.
        token: Token,
    },
    /// Starts a child: becomes `ChildStarted`.
    StartChild(Box<ChildStart>),
}

/// A child to start. Its key is the effect key of the visit, so a replayed or restarted parent finds the child that
/// it had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildStart {
    /// Visit in the parent that starts the child.
    pub child: Visit,
    /// Id of the child, if it is new.
    pub run: RunId,
    /// Workflow of the child.
    pub workflow: Name,
    /// Version of that workflow.
    pub workflow_version: Name,
    /// Input of the child.
    pub input: Payload,
    /// Key of the child: the effect key of the visit.
    pub key: Key,
    /// Fingerprint of workflow and input.
    pub fingerprint: Fingerprint,
    /// How long the child is remembered after its end.
    pub retention: Retention,
}

/// Content that a commit writes into the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Entries as the text that is stored.
    Ready(String),
    /// Drafts; at least one of them is settled by the store.
    Drafts(Vec<Draft>),
}

/// One atomic write of entries at an expected version. It is shared, not copied: its driver keeps it until the store
/// has answered, in case it has to be sent again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit(Arc<Write>);

impl Commit {
    pub(crate) fn new(write: Write) -> Self {
        Self(Arc::new(write))
    }

    /// The same commit, whose answer has [`arrivals`](Saved::arrivals) and [`written`](Saved::written). Engines learn of
    /// messages and of the time in other ways, so theirs do not ask.
    #[must_use]
    pub fn ask_news(mut self) -> Self {
        Arc::make_mut(&mut self.0).asks_news = true;
        self
    }
}

impl Deref for Commit {
    type Target = Write;

    fn deref(&self) -> &Write {
        &self.0
    }
}

/// The write of a commit, as the store reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    pub(crate) num: i64,
    pub(crate) run: RunId,
    /// What the run was created as: its workspace and workflow, for figures.
    pub(crate) new: Arc<NewRun>,
    /// Version of the claim under which the commit is made.
    pub(crate) fence: u64,
    /// The node that drives the run; none if the commit is not made by a driver.
    pub(crate) node: Option<NodeId>,
    pub(crate) expected: u64,
    pub(crate) count: u64,
    pub(crate) content: Content,
    /// Status of the run after the commit.
    pub(crate) status: Status,
    /// With `Waiting`: the number of arrivals that the driver has seen. Any later arrival makes the run due at once.
    pub(crate) seen: u64,
    /// Whether the answer has [`arrivals`](Saved::arrivals) and [`written`](Saved::written).
    pub(crate) asks_news: bool,
    pub(crate) tally: Tally,
    /// Boxed, because thousands of commits are in flight at a time and those of steps need none of it.
    pub(crate) beyond: Option<Box<Beyond>>,
}

/// The rarer parts of a commit, beside its entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Beyond {
    /// Workspace of the run, so that listeners learn whose children are due.
    pub(crate) workspace: Option<WorkspaceId>,
    /// If the new status has no driver: the node that drove the run until then.
    pub(crate) driver: Option<NodeId>,
    /// With `Waiting`: the time from which the run may be claimed.
    pub(crate) due: Option<Time>,
    /// If the run is paused: why.
    pub(crate) attention: Option<Attention>,
    /// The latest timer that the commit says has fired. Before that time the commit is too early.
    pub(crate) not_before: Option<Time>,
    /// Arrivals of the inbox messages that it consumes.
    pub(crate) consumed: Vec<u64>,
    /// Tokens that it frees.
    pub(crate) closed: Vec<Token>,
    /// The end of the run, if this commit ends it.
    pub(crate) ending: Option<Ending>,
}

/// The end of a run, and what follows from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ending {
    /// Outcome of the run.
    pub(crate) outcome: Outcome,
    /// The run that started it and is told of its end, with the visit that waits. None for a run without a parent.
    pub(crate) parent: Option<Parent>,
    /// How long the run is remembered after its end.
    pub(crate) retention: Retention,
}

/// Numbers of steps that a commit settles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Steps that get an outcome.
    pub steps: u32,
    /// Attempts at steps that failed and will be repeated.
    pub retries: u32,
    /// Steps that become in doubt.
    pub in_doubt: u32,
}

impl Tally {
    /// Adds an entry to the numbers.
    pub(crate) fn count(&mut self, entry: &Entry) {
        match entry {
            Entry::StepCompleted { .. }
            | Entry::StepFailed { retry_at: None, .. }
            | Entry::StepSkipped { .. } => self.steps += 1,
            Entry::StepFailed { retry_at: Some(_), .. } => self.retries += 1,
            Entry::StepInDoubt { .. } => self.in_doubt += 1,
            _ => {}
        }
    }
}

impl Write {
    /// The run that the commit belongs to.
    pub fn run(&self) -> RunId {
        self.run
    }

    /// Number of entries in the ledger before this commit.
    pub fn expected(&self) -> u64 {
        self.expected
    }

    /// Number of entries that it appends.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Outcome of the run, if this commit ends it.
    pub fn outcome(&self) -> Option<&Outcome> {
        self.beyond().ending.as_ref().map(|ending| &ending.outcome)
    }

    pub(crate) fn beyond(&self) -> &Beyond {
        static NOTHING: Beyond = Beyond {
            workspace: None,
            driver: None,
            due: None,
            attention: None,
            not_before: None,
            consumed: Vec::new(),
            closed: Vec::new(),
            ending: None,
        };
        self.beyond.as_deref().unwrap_or(&NOTHING)
    }

    /// Numbers of steps that the commit settles.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Whether only the run's own row and ledger change, provided that the run has no ties when it ends.
    pub(crate) fn is_plain(&self) -> bool {
        let Beyond { consumed, closed, .. } = self.beyond();
        matches!(self.content, Content::Ready(_)) && consumed.is_empty() && closed.is_empty()
    }

    /// Whether the run simply goes on: the one commit per step, which everything is built to make cheap.
    pub(crate) fn is_progress(&self) -> bool {
        self.is_plain() && self.status == Status::Running && self.beyond().not_before.is_none()
    }

    /// The end of the run if this commit is one, and if it changes nothing else unless the run has ties.
    #[cfg(feature = "sqlite")]
    pub(crate) fn plain_ending(&self) -> Option<&Ending> {
        let Beyond { not_before, ending, .. } = self.beyond();
        ending.as_ref().filter(|_| self.is_plain() && not_before.is_none())
    }

    /// The entries as stored text; none if the store has yet to settle some of them.
    pub(crate) fn text(&self) -> Option<&str> {
        match &self.content {
            Content::Ready(text) => Some(text),
            Content::Drafts(_) => None,
        }
    }
}

/// The store's answer to a commit that took place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Saved {
    /// Version of the run after the commit.
    pub version: u64,
    /// The settled drafts, in order; empty if there were none.
    pub settled: Vec<Entry>,
    /// Whether the run has ended or gone to rest while it had the grant of a `run_once` value: another run may
    /// make it now.
    pub freed: bool,
    /// Number of the latest message in the run's inbox when the commit was written, 0 if none has ever arrived. None
    /// unless the commit has [asked](Commit::ask_news).
    pub arrivals: Option<u64>,
    /// Time of the store when the commit was written. None unless the commit has asked, if its answer was lost and it was
    /// found again, and if the store is that of a server elsewhere.
    pub written: Option<Time>,
}
