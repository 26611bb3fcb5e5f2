//! What operators and pages ask of a store beside lists of runs: hooks, what runs do now, numbers, nodes. Every answer reads
//! bounded stretches of indexes.

use crate::clock::Time;
use crate::id::{NodeId, RunId, WorkspaceId};
use crate::rules::attention::Attention;
use crate::rules::entry::PauseReason;
use crate::rules::glance::DoesNow;
use crate::rules::key::Token;
use crate::rules::path::{Name, Visit};
use crate::rules::run::Run;
use crate::rules::status::Status;

/// A number that was counted up to a bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capped {
    /// How many there are at least.
    pub count: u64,
    /// Whether there may be more.
    pub more: bool,
}

impl Capped {
    /// What was counted with one more than the bound.
    pub(crate) fn of(count: u64, cap: usize) -> Self {
        let cap = cap as u64;
        Self { count: count.min(cap), more: count > cap }
    }
}

/// Order of a list of hooks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HookOrder {
    /// By the bytes of their tokens.
    #[default]
    Token,
    /// The one that was opened first comes first.
    Age,
}

/// A question for a page of open hooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookQuery {
    /// Workspace whose hooks are listed.
    pub workspace: WorkspaceId,
    /// Text with which the tokens begin; all tokens if empty. Only in the order of tokens: the other order has them all.
    pub prefix: String,
    /// Order of the list.
    pub order: HookOrder,
    /// Only hooks behind this place: the [`next`](HookPage::next) of the page before.
    pub after: Option<HookPlace>,
    /// Most hooks of the page.
    pub limit: usize,
}

/// Place of a hook in a list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HookPlace {
    /// Time at which it was opened; 0 if that is not known.
    pub opened: Time,
    /// Token of the hook.
    pub token: Token,
}

/// An open hook: a token that a run owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenHook {
    /// Token of the hook.
    pub token: Token,
    /// The run that owns it.
    pub run: Run,
    /// Visit at which the run has opened it. None if a start has reserved it for the run.
    pub visit: Option<Visit>,
    /// Time at which it was opened, or reserved; 0 if that is not known.
    pub opened: Time,
    /// Deliveries to it that the run has not consumed, among the first 100 messages of the run's inbox.
    pub deliveries: Capped,
}

impl OpenHook {
    /// Its place in a list.
    pub fn place(&self) -> HookPlace {
        HookPlace { opened: self.opened, token: self.token.clone() }
    }
}

/// A page of open hooks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HookPage {
    /// The hooks of this page.
    pub hooks: Vec<OpenHook>,
    /// The place after which the next page begins. Absent if this page is the last.
    pub next: Option<HookPlace>,
}

/// What a run does, and what it began with, as far as the ends of its ledger tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glance {
    /// Duplicates that the run has absorbed.
    pub duplicates: u64,
    /// The run it was forked from, and that run's version at the fork. None if it is no fork, or if its beginning is too
    /// large to be read for a list.
    pub forked_from: Option<(RunId, u64)>,
    /// Bytes of its input. None if its beginning is too large to be read for a list, or forgotten.
    pub input_bytes: Option<u64>,
    /// Why it is paused, if the latest commits tell.
    pub pause: Option<PauseReason>,
    /// What it does or waits for. None if it has ended, if an operator has to act, or if nothing is known.
    pub now: Option<DoesNow>,
}

/// A question for the numbers of a workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TallyQuery {
    /// Workspace whose runs are counted.
    pub workspace: WorkspaceId,
    /// Only runs of this workflow; all if absent.
    pub workflow: Option<Name>,
    /// Only runs created at this time or later; it does not bear on what is due.
    pub since: Option<Time>,
    /// Bound of each number.
    pub cap: usize,
}

/// Numbers of a workspace, each counted up to a bound.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunTally {
    /// Number of runs in each status.
    pub statuses: Vec<(Status, Capped)>,
    /// Paused runs by the kind of their pause.
    pub attention: Vec<(Attention, Capped)>,
    /// Workflow versions with runs that are due, or will be. At most 500.
    pub versions: Vec<DueVersion>,
}

/// Runs of a workflow version that no node drives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueVersion {
    /// Name of the workflow.
    pub workflow: Name,
    /// Version of the workflow.
    pub workflow_version: Name,
    /// Runs that are due.
    pub due: Capped,
    /// Runs that have been due for ten seconds or longer.
    pub late: Capped,
    /// Time since which the first of them is due. None if none is.
    pub oldest: Option<Time>,
}

/// Open runs of a workflow version in one state, counted up to a bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenVersion {
    /// Name of the workflow.
    pub workflow: Name,
    /// Version of the workflow.
    pub workflow_version: Name,
    /// State of the runs.
    pub status: Status,
    /// Number of runs in that state.
    pub count: u64,
}

/// Open runs of a workspace by workflow version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenVersions {
    /// Open runs by version and state, in that order.
    pub open: Vec<OpenVersion>,
    /// States of which there are more runs than were counted.
    pub capped: Vec<Status>,
    /// Versions with runs that are due, or will be. At most 500.
    pub due: Vec<DueVersion>,
}

/// What a store knows of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeFacts {
    /// Id of the node.
    pub node: NodeId,
    /// Time at which its lease ends, or has ended. None if the node is given up for dead.
    pub lease: Option<Time>,
    /// Runs of the workspace that it drives.
    pub runs: Capped,
    /// Commits of this node that this instance of the store has refused, because others had taken the run.
    pub stale: u64,
}
