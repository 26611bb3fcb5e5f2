//! The store: one method, one durable transition.
//!
//! [`Store`] is what the engine and the server use. [`memory`] is the reference, [`sqlite`] the embedded default,
//! `postgres` the one for several processes. They differ only in how rows are kept (`tx`); what a transition *does* is
//! written once (`verbs`) and decided by the [rules](crate::rules). All of them group their writes: while one batch is
//! being made durable the next one fills up.

mod absorb;
pub mod archive;
mod counts;
mod duplicates;
pub mod layer;
pub(crate) mod list;
#[cfg(feature = "sabotage")]
mod lying;
pub mod memory;
mod meters;
mod origin;
mod part;
#[cfg(feature = "postgres")]
pub mod postgres;
mod questions;
mod receipts;
mod serve;
#[cfg(feature = "sqlite")]
pub mod sqlite;
mod stats;
pub(crate) mod tx;
pub(crate) mod verbs;
mod wakes;
mod watch;

#[cfg(feature = "testing")]
pub mod faulty;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;

pub use self::archive::Archive;
pub(crate) use self::counts::CAP as COUNTS_CAP;
pub use self::counts::{Counts, RunCounts, WorkflowCounts};
pub use self::duplicates::{AbsorbedCalls, DuplicateCursor, DuplicatesPage, DuplicatesQuery};
pub use self::list::{KeyPage, KeyPrefix, KeyQuery, Order, Page, Query};
pub use self::origin::Origin;
pub use self::part::{LedgerPart, Part};
pub use self::questions::{
    Capped, DueVersion, Glance, HookOrder, HookPage, HookPlace, HookQuery, NodeFacts, OpenHook, OpenVersion,
    OpenVersions, RunTally, TallyQuery,
};
pub use self::stats::{StatsBucket, StatsQuery, StatsSeries};
pub use self::wakes::Wake;
pub use self::watch::Watch;
use crate::clock::Time;
use crate::error::Result;
use crate::id::{NodeId, RunId, WorkspaceId};
use crate::rules::claim::{Claim, Drives};
use crate::rules::commit::{Commit, Saved};
use crate::rules::control::{Control, Controlled};
use crate::rules::deliver::{Deliver, Delivered};
use crate::rules::entry::{Entry, Message, Outcome};
use crate::rules::key::{CallId, Key, Scope, Token};
use crate::rules::once::{OnceAnswer, OnceCall};
use crate::rules::receipt::{ReceiptKind, Receipts};
use crate::rules::record::{Keep, Look, Record};
use crate::rules::run::Run;
use crate::rules::start::{Start, StartVerdict};

/// The answer of a store, to be awaited.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// Where runs are kept. Every method that changes something is one transaction: when it answers with `Ok`, the change is
/// durable; when it answers with an error, nothing was changed (see [`Error::Unknown`](crate::Error::Unknown) for the one
/// exception).
pub trait Store: Send + Sync + 'static {
    /// Starts a run, or finds the run that owns its key.
    fn start(&self, start: Start) -> Answer<'_, Started>;
    /// For each of these, when its earliest run is or becomes due; none if none is. It changes nothing.
    fn dues(&self, workflows: Vec<Drives>) -> Answer<'_, Vec<Option<Time>>>;
    /// Takes due runs for a node, each with its whole ledger and inbox.
    fn claim(&self, claim: Claim) -> Answer<'_, Claims>;
    /// Appends entries at an expected version. Commits of many runs share one durable write.
    fn commit(&self, commit: Commit) -> Answer<'_, Saved>;
    /// Puts a payload into the inbox of a token's owner.
    fn deliver(&self, deliver: Deliver) -> Answer<'_, Delivered>;
    /// Cancels, pauses, resumes, restarts, forks a run; frees its key; resolves a doubt.
    fn control(&self, control: Control) -> Answer<'_, Controlled>;
    /// Claims, settles or releases a `run_once` value whose scope is wider than one run.
    fn once(&self, once: OnceCall) -> Answer<'_, OnceAnswer>;
    /// Takes, renews or gives up the lease of a node; answers until when it lasts.
    fn lease(&self, lease: Lease) -> Answer<'_, Time>;
    /// Writes a record if its version is the expected one; answers with what is there now.
    fn keep(&self, keep: Keep) -> Answer<'_, Record>;
    /// Makes runs of dead nodes due, ends runs whose time is up and forgets what is past its retention, a bounded amount at a
    /// time.
    fn sweep(&self, sweep: Sweep) -> Answer<'_, Swept>;

    /// A run by its id, key or token, and how it ended.
    fn find(&self, find: Find) -> Answer<'_, Option<(Run, Option<Outcome>)>>;
    /// A page of runs, the newest first unless the query says otherwise.
    fn list(&self, query: Query) -> Answer<'_, Page>;
    /// A page of keys, with the runs that hold them or have lost them. The store of a remote worker refuses.
    fn keys(&self, query: KeyQuery) -> Answer<'_, KeyPage>;
    /// What runs do now, in the order of their headers, which this store has given. The store of a remote worker refuses.
    fn glances(&self, runs: Vec<Run>) -> Answer<'_, Vec<Glance>>;
    /// A page of open hooks. The store of a remote worker refuses.
    fn hooks(&self, query: HookQuery) -> Answer<'_, HookPage>;
    /// Numbers of a workspace: its runs by status and by the kind of their pause, and what is due. The store of a remote
    /// worker refuses.
    fn tally(&self, query: TallyQuery) -> Answer<'_, RunTally>;
    /// The open runs of a workspace by workflow version; at most `cap` of each state are read. The store of a remote
    /// worker refuses.
    fn versions(&self, workspace: WorkspaceId, cap: usize) -> Answer<'_, OpenVersions>;
    /// All nodes, with the runs of a workspace that they drive, counted to `cap`. The store of a remote worker refuses.
    fn nodes(&self, workspace: WorkspaceId, cap: usize) -> Answer<'_, Vec<NodeFacts>>;
    /// The entries of a run from number `from` (the first is 1).
    fn ledger(&self, workspace: WorkspaceId, run: RunId, from: u64) -> Answer<'_, Vec<Numbered>>;
    /// A part of a run's ledger, bounded in entries and bytes. A store that has no way to read less reads all of it.
    fn ledger_part(&self, part: Part) -> Answer<'_, LedgerPart> {
        Box::pin(async move {
            let entries = self.ledger(part.workspace, part.run, part.from).await?;
            Ok(part.cut(entries))
        })
    }
    /// The messages of a run that it has not consumed, from number `from` (the first is 1).
    fn inbox(&self, workspace: WorkspaceId, run: RunId, from: u64) -> Answer<'_, Vec<Arrival>>;
    /// A part of these messages, bounded in number and bytes like a part of a ledger. A store that has no way to read less
    /// reads all of them.
    fn inbox_part(&self, part: Part) -> Answer<'_, Vec<Arrival>> {
        Box::pin(async move {
            let mut arrivals = self.inbox(part.workspace, part.run, part.from).await?;
            let fitting = part.fitting(&arrivals, |arrival| serde_json::to_string(&arrival.message));
            arrivals.truncate(fitting);
            Ok(arrivals)
        })
    }
    /// How many messages a run has not consumed. A store that can count them without reading them does.
    fn unconsumed(&self, workspace: WorkspaceId, run: RunId) -> Answer<'_, u64> {
        Box::pin(async move { Ok(self.inbox(workspace, run, 1).await?.len() as u64) })
    }
    /// Receipts of the duplicates that were absorbed on a run, by kind.
    fn receipts(&self, workspace: WorkspaceId, run: RunId) -> Answer<'_, Vec<(ReceiptKind, Receipts)>>;
    /// A page of the absorbed and refused calls of a workspace, the latest first. The store of a remote worker refuses: it
    /// drives runs, and lists none.
    fn duplicates(&self, query: DuplicatesQuery) -> Answer<'_, DuplicatesPage>;
    /// Figures of a workspace over time: starts, ends, steps, duplicates, doubts. The store of a remote worker refuses.
    fn stats(&self, query: StatsQuery) -> Answer<'_, StatsSeries>;
    /// Records of one kind that have not expired.
    fn records(&self, look: Look) -> Answer<'_, Vec<Record>>;

    /// Numbers of the store now, over all workspaces: open runs by workflow, doubts, backlog, nodes. No number is
    /// counted further than `cap` (open runs: `cap` of each status), so that the cost is bounded. The store of a remote
    /// worker refuses: it knows one workspace only.
    fn counts(&self, cap: u64) -> Answer<'_, Counts>;
    /// The open runs of a workspace, by workflow. No number is counted further than `cap` of each status.
    fn counts_in(&self, workspace: WorkspaceId, cap: u64) -> Answer<'_, RunCounts>;
    /// How many open runs a workspace has, counted to `cap` at most.
    fn open_runs(&self, workspace: WorkspaceId, cap: u64) -> Answer<'_, u64>;

    /// Wake-ups from now on.
    fn wakes(&self) -> broadcast::Receiver<Wake>;

    /// Export and import of the whole store. None if this is not a store itself, but the way to one.
    fn archive(&self) -> Option<&dyn Archive> {
        None
    }

    /// An eye on one run: told of every entry that this process writes, and of what other processes do about the run as a
    /// whole. A store may tell nothing.
    fn watch(&self, run: RunId) -> Watch {
        let _ = run;
        Watch::blind()
    }

    /// Writes what is still to be written (receipts), and stops.
    fn close(&self) -> Answer<'_, ()>;
}

/// Answer to a start: the run, and how it was found or made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Started {
    /// The run: the new one, or the one that owns the key.
    pub run: Run,
    /// Whether the run is new, or an existing one was found.
    pub verdict: StartVerdict,
    /// How that run ended, if it has.
    pub outcome: Option<Outcome>,
    /// Where the payload that came with the start was delivered. None if there was none, or if the run had already ended.
    pub delivered: Option<Delivered>,
    /// The run that was cancelled for this one.
    pub superseded: Option<RunId>,
    /// The ledger of a run that this start created: with it, a node that claimed the run at once can drive it.
    pub entries: Vec<Entry>,
}

impl Started {
    /// A run that was just created, with its ledger.
    pub(crate) fn of_new(run: Run, entries: Vec<Entry>) -> Self {
        let verdict = StartVerdict::Created;
        Self { run, verdict, outcome: None, delivered: None, superseded: None, entries }
    }

    /// Whether a new run exists because of this start.
    pub fn created(&self) -> bool {
        matches!(self.verdict, StartVerdict::Created | StartVerdict::Superseded)
    }
}

/// Answer to a claim: the claimed runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// The runs that the node may drive now.
    pub runs: Vec<Claimed>,
    /// When the next run becomes due, of those that were asked for. What is due already does not count.
    pub next_due: Option<Time>,
    /// Time of the store at the claim.
    pub now: Time,
}

/// A claimed run: all that its driver needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// Header of the claimed run, after the claim.
    pub run: Run,
    /// Its ledger; none if the node keeps it in memory, but for the claim itself.
    pub entries: Option<Vec<Entry>>,
    /// Messages that the run has not consumed yet.
    pub inbox: Vec<Arrival>,
}

/// An entry with its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbered {
    /// Its place in the ledger, from 1: the version it made.
    pub number: u64,
    /// Time at which it was committed.
    pub at: Time,
    /// The entry, as it was committed.
    pub entry: Entry,
}

/// A message with its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Its number in the run's inbox, from 1.
    pub number: u64,
    /// Time at which it was accepted.
    pub at: Time,
    /// The message, such as a payload for a token or the end of a child.
    pub message: Message,
}

/// A call about a node's lease.
#[derive(Clone, Copy, Debug)]
pub struct Lease {
    /// The node whose lease it is.
    pub node: NodeId,
    /// Whether the lease is taken, renewed or given up.
    pub act: LeaseAct,
}

/// A change of a node's lease.
#[derive(Clone, Copy, Debug)]
pub enum LeaseAct {
    /// A new node of this process takes its first lease. A store that belongs to one process (SQLite) ends it when the store
    /// is opened again: the process that held it is gone.
    Join(Duration),
    /// A new node elsewhere, which reaches the store through this process, takes its first lease. It lasts over a restart of
    /// this process.
    Enroll(Duration),
    /// It goes on; refused once the lease has ended.
    Renew(Duration),
    /// It goes in good order; its runs are free at the next sweep, and none is blamed for it.
    Leave,
}

/// A pass of the sweep.
#[derive(Clone, Copy, Debug)]
pub struct Sweep {
    /// At most this many runs made due, as many ended, and as many forgotten. Four times as many rows of their histories are
    /// deleted at most: a longer history is forgotten in several passes, and cannot be read from the first on.
    pub limit: usize,
}

/// Result of one pass of the sweep, in numbers of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Runs of dead nodes that are due now.
    pub orphaned: usize,
    /// Runs that were ended because their time was up, and tries of remote steps that were given up for the same reason.
    pub timed_out: usize,
    /// Runs whose history was forgotten; their keys are still remembered.
    pub histories: usize,
    /// Runs that were forgotten altogether, keys included.
    pub runs: usize,
    /// Deleted `run_once` values, which had expired.
    pub once: usize,
    /// Records that were deleted because they had expired.
    pub records: usize,
    /// Figures of minutes and hours that were deleted because of their age.
    pub stats: usize,
    /// Whether the limit cut it short.
    pub more: bool,
}

/// A look-up of one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = FindCall))]
#[serde(rename_all = "camelCase")]
pub struct Find {
    /// Workspace of the caller.
    #[serde(skip, default = "WorkspaceId::unsaid")]
    pub workspace: WorkspaceId,
    /// How the run is identified.
    pub by: FindBy,
}

/// By what a run is looked up.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FindBy {
    /// By the id of the run.
    Id(RunId),
    /// By a key that the run holds, in its scope.
    Key(Scope, Key),
    /// By the token of an open hook of the run.
    Token(Token),
    /// The id of an operator action that was done about it.
    Call(CallId),
}
