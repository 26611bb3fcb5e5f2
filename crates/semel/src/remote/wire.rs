//! What travels between a worker and its server, as JSON. Used by both sides.
//!
//! The words are those of the [store](crate::store), but the types are of their own: what travels is a contract with workers
//! that are already installed, and the types of the rules and of the store may change. Some travel as they are. Entries, messages,
//! outcomes and failures are stored in the same form and so are a contract already. Look-ups and lists (`Find`, `Query`,
//! `RunCounts`, `Receipts`), wake-ups (`Wake`), calls about `run_once` values (`OnceCall`, `OnceAnswer`), actions of operators
//! (`ControlAction`), policies, verdicts, retentions and the reasons of refusals (`RefusedEntry`) have no second type either:
//! a change of them is a change of the protocol. The texts in `wire/golden.json` pin what travels. The tenant is never said;
//! the server knows it by the credential. A commit travels as the entries that it appends: the server has them checked by a
//! ledger of its own before they get anywhere.

/// Conversions both ways between a type of the rules or of the store and the one that travels, which has the same members.
macro_rules! same_members {
    ($($inner:ident = $wire:ident { $($member:ident),+ $(,)? })+) => {$(
        impl From<$inner> for $wire {
            fn from(inner: $inner) -> Self {
                let $inner { $($member),+ } = inner;
                Self { $($member: $member.into()),+ }
            }
        }

        impl From<$wire> for $inner {
            fn from(wire: $wire) -> Self {
                let $wire { $($member),+ } = wire;
                Self { $($member: $member.into()),+ }
            }
        }
    )+};
}

mod commit;
mod control;
mod folded;
mod refusal;
mod run;
mod start;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

#[cfg(feature = "openapi")]
pub use self::commit::described::{CommitCallSchema, CommitItemSchema};
pub use self::commit::{CommitAnswers, CommitCall, CommitItem, DraftView, PlacedDraft, SavedCommit, entries};
pub use self::control::ControlCall;
pub use self::folded::{CancellingView, FoldedRun, HookStateView, OnceRecordView, RecordView};
pub use self::refusal::{ErrorView, LimitReached};
pub use self::run::{
    ArrivedMessage, ControlledRun, FoundRun, NewRunHeader, NumberedEntry, RunHeader, RunPage, RunStateHeader,
};
pub use self::start::{DeliverCall, DeliveredPayload, HandoverItem, StartCall, StartItem, StartedRun};
use crate::clock::Time;
use crate::error::Error;
use crate::id::{NodeId, RunId, WorkspaceId};
use crate::rules::entry::Entry;
use crate::rules::path::Name;
use crate::rules::start::default_version;

/// Header of requests and answers: the version of the protocol that the caller, or the server, speaks.
pub const PROTOCOL_HEADER: &str = "semel-protocol";
/// Version of the protocol of workers. A change that earlier SDKs would not survive raises it.
pub const PROTOCOL: &str = "1";

/// The prefix of all routes of the server.
pub const PREFIX: &str = "/api/v1";
/// Route: registers a worker; `GET` lists the registered ones.
pub const WORKERS: &str = "/workers";
/// Route: claims due runs for a worker.
pub const CLAIM: &str = "/workers/claim";
/// Route: appends entries to the ledgers of many runs.
pub const COMMIT: &str = "/workers/commit";
/// Route: starts many runs, or finds those of their keys.
pub const START: &str = "/workers/start";
/// Route: renews the lease of a worker.
pub const HEARTBEAT: &str = "/workers/heartbeat";
/// Route: ends the lease of a worker and frees its runs.
pub const RELEASE: &str = "/workers/release";
/// Route: claims, settles or releases a `run_once` value.
pub const ONCE: &str = "/workers/once";
/// Route: delivers a payload to a hook.
pub const DELIVER: &str = "/workers/deliver";
/// Route: takes an operator's action on a run.
pub const CONTROL: &str = "/workers/control";
/// Route: looks a run up by its id or key.
pub const FIND: &str = "/workers/find";
/// Route: lists the runs of the workspace.
pub const LIST: &str = "/workers/list";
/// Route: counts the open runs of the workspace.
pub const COUNTS: &str = "/workers/counts";
/// Route: reads the entries of a run.
pub const LEDGER: &str = "/workers/ledger";
/// Route: reads the inbox of a run.
pub const INBOX: &str = "/workers/inbox";
/// Route: reads the absorbed duplicates of a run.
pub const RECEIPTS: &str = "/workers/receipts";
/// Route: streams wake-ups, one JSON document per line.
pub const WAKES: &str = "/workers/wakes";
/// `GET`: the same without the runs that are due, for who drives none.
pub const WAKES_NOT_DUE: &str = "/workers/wakes?due=false";

/// The longest body of a call, in bytes: eight of the longest values.
pub const BODY_BYTES: usize = 16 * 1024 * 1024;
/// The highest number of commits or starts in one call.
pub const MOST: usize = 1_000;
/// How long a claim may wait for a due run, in milliseconds.
pub const MOST_WAIT_MS: u64 = 60_000;

/// A call that registers a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Join {
    /// Id that the worker has drawn; a new one for each process.
    pub node: NodeId,
    /// Name of the worker, for people.
    pub name: String,
    /// The workflows (`name@version`) that it drives, and the queues (`queue:name`) that it serves. What it claims later is
    /// added.
    #[serde(default)]
    pub serves: Vec<String>,
    /// Length of the worker's lease, in milliseconds. It starts anew with every heartbeat.
    pub lease_ms: u64,
}

/// The answer to a registration.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Joined {
    /// Id of the worker in ledgers and run headers: unique across workspaces, whatever id the worker has drawn.
    pub node: NodeId,
    /// The workspace of the worker's API key.
    pub workspace: WorkspaceId,
    /// Time at which the lease ends.
    pub until: Time,
    /// Time of the store when it answered. With the times at which the request was sent and answered, a worker knows the
    /// store's clock to within their difference.
    #[serde(default)]
    pub now: Time,
}

/// A call that renews the lease of a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Heartbeat {
    /// Id that the worker has registered under.
    pub node: NodeId,
    /// Length of the lease from now on, in milliseconds.
    pub lease_ms: u64,
    /// The remote steps that the worker is executing, at most 1,000: the answer says which of them to stop. If absent, the
    /// server uses those that it has handed to this worker since the server was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<Vec<AtWork>>,
    /// The runs that the worker has in memory, at most 1,000: the answer says of which there is news. None by default.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<DrivenRun>,
}

/// A run that a worker has in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DrivenRun {
    /// Id of the run.
    pub run: RunId,
    /// Version of the worker's claim.
    pub fence: u64,
    /// How many messages of its inbox the worker has seen.
    #[serde(default)]
    pub seen: u64,
}

/// News of a run that a worker has in memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RunNews {
    /// Id of the run.
    pub run: RunId,
    /// How many messages have arrived, if that is more than the worker has seen: read the inbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrived: Option<u64>,
    /// Whether the worker has lost the run: drop it from memory, and write nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub taken: bool,
}

/// A remote step that a worker is executing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AtWork {
    /// Run of the remote step.
    pub run: RunId,
    /// Fence that the step was handed out with.
    pub fence: u64,
}

/// A remote step that a worker should stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct StopView {
    /// Run of the remote step.
    pub run: RunId,
    /// Why the worker should stop it.
    pub reason: StopReason,
}

/// Why a worker should stop a remote step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub enum StopReason {
    /// The step, or the run that handed it over, was cancelled. A result is still accepted unless the step has ended; a
    /// failure ends it.
    Cancelled,
    /// The step has ended in another way.
    Ended,
    /// Another worker has the step, or its run is paused.
    Lost,
}

/// A call that ends the lease of a worker; its runs are due for others at once.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = ReleaseCall))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Release {
    /// Id that the worker has registered under.
    pub node: NodeId,
}

/// The answer to a heartbeat.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Leased {
    /// Time at which the lease ends, by the server's clock.
    pub until: Time,
    /// The remote steps that the worker should stop. Absent if there is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<StopView>,
    /// Time of the store when it answered.
    #[serde(default)]
    pub now: Time,
    /// News of the runs that the worker named. Absent if there is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub news: Vec<RunNews>,
}

/// A worker's call for due runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClaimCall {
    /// Id that the worker has registered under.
    pub node: NodeId,
    /// The workflow versions that it can drive.
    pub workflows: Vec<Served>,
    /// The highest number of runs to claim.
    pub limit: usize,
    /// How long to wait if no run is due, in milliseconds; 0 by default.
    #[serde(default)]
    pub wait_ms: u64,
    /// Whether the worker keeps the ledgers of waiting runs in memory. Such runs come without entries; if the worker has
    /// dropped a ledger since, it reads it from the server. False by default.
    #[serde(default)]
    pub keeps: bool,
    /// Whether the answer has folded runs ([`FoldedRun`]) instead of headers and entries. False by default.
    #[serde(default)]
    pub folded: bool,
    /// Waits until a run is due and claims nothing: the answer has no runs, and `nextDue`. Unlike a claim it may be lost
    /// without harm, so a worker that executes something waits in this way. False by default.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub look: bool,
    /// Claims this run only, without waiting. A run that the worker holds already is given again, without another claim, and
    /// whole however large it is. Absent: any run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
}

/// A version of a workflow that a worker can drive.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Served {
    /// Name of the workflow.
    pub workflow: Name,
    /// Version of the workflow; `1` if absent, as in a start.
    #[serde(default = "default_version")]
    pub workflow_version: Name,
}

/// One answer for each item of a call.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Answers<T> {
    /// In the order of the items.
    pub answers: Vec<ItemAnswer<T>>,
}

/// The answer to one item.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub enum ItemAnswer<T> {
    /// The item took place; its answer.
    Ok(T),
    /// The item was refused or failed.
    Error(ErrorView),
}

impl<T> From<Result<T, Error>> for ItemAnswer<T> {
    fn from(answer: Result<T, Error>) -> Self {
        match answer {
            Ok(value) => Self::Ok(value),
            Err(error) => Self::Error(ErrorView::of(&error)),
        }
    }
}

impl<T> From<ItemAnswer<T>> for Result<T, Error> {
    fn from(answer: ItemAnswer<T>) -> Self {
        match answer {
            ItemAnswer::Ok(value) => Ok(value),
            ItemAnswer::Error(view) => Err(view.into()),
        }
    }
}

/// A call that reads entries or messages of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RunCall {
    /// The run to read.
    pub run: RunId,
    /// Number of the first entry or message to read; 1 by default.
    #[serde(default = "first")]
    pub from: u64,
    /// Limit of the answer in bytes: 16 MiB if absent, and at most. The answer has at least one item if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<usize>,
}

/// A call that counts the open runs of the workspace.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CountCall {
    /// Number of runs of each status at which counting stops. The server counts no further than 10,000.
    pub cap: u64,
}

impl RunCall {
    /// Reads from the first entry or message on.
    pub fn all(run: RunId) -> Self {
        Self { run, from: first(), max_bytes: None }
    }
}

/// Answer to a claim: the claimed runs. See [`Claims`](crate::store::Claims).
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ClaimsView {
    /// The runs that the worker may drive now.
    pub runs: Vec<ClaimedView>,
    /// When the next run becomes due for this worker; absent if none is known. If the time has passed, more runs are due: the
    /// answer was full, in runs or in bytes.
    pub next_due: Option<Time>,
    /// Time of the store when it answered.
    #[serde(default)]
    pub now: Time,
    /// Whether this repeats the answer to an earlier call with the same `Idempotency-Key`. Absent if not: if an earlier call
    /// with that key was sent, it may have claimed runs that are not in this answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repeated: bool,
}

/// Answer to a claim that asks for folded runs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct FoldedClaims {
    /// The runs that the worker may drive now.
    pub runs: Vec<FoldedRun>,
    /// Runs that are claimed as well and did not fit into the answer: claim each of them by its id. Absent if all fitted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<RunId>,
    /// When the next run becomes due for this worker; absent if none is known.
    pub next_due: Option<Time>,
    /// Time of the store when it answered.
    pub now: Time,
    /// Whether this repeats the answer to an earlier call with the same `Idempotency-Key`. Absent if not: if an earlier call
    /// with that key was sent, it may have claimed runs that are not in this answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repeated: bool,
}

/// A claimed run, as it travels.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ClaimedView {
    /// Header of the run.
    pub run: RunHeader,
    /// Its ledger. Absent if the worker keeps it in memory, or if it is too large for this answer: then the worker reads it.
    pub entries: Option<Vec<Entry>>,
    /// Its inbox, or as many messages as fit into the answer.
    pub inbox: Vec<ArrivedMessage>,
    /// Number of the first message that did not fit: the worker reads the inbox from there on. Absent if all of them are
    /// in the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inbox_from: Option<u64>,
}

fn first() -> u64 {
    1
}
