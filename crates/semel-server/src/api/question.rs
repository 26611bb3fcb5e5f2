//! Answers to questions about a workspace: numbers, doubts, hooks, keys, nodes, workflows and queues.

use semel::rules::attention::Attention;
use semel::rules::entry::Class;
use semel::rules::status::Status;
use serde::{Deserialize, Serialize};

use super::{DuplicatesView, RunView, Value};

/// A number that was counted up to a bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct CappedView {
    /// Number that was counted. The real number is at least this.
    pub count: u64,
    /// True if there may be more, because counting stopped. Absent if false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
}

impl From<semel::store::Capped> for CappedView {
    fn from(counted: semel::store::Capped) -> Self {
        Self { count: counted.count, more: counted.more }
    }
}

/// Answer of `GET /counts`: numbers of a workspace, each counted to 10,000.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CountsView {
    /// Runs by status; every status is listed.
    pub statuses: Vec<StatusCount>,
    /// Paused runs by what they need; every kind is listed.
    pub attention: Vec<AttentionCount>,
    /// Runs that are due and that no node drives.
    pub due: CappedView,
    /// Runs among them that have been due for ten seconds or longer.
    pub late: CappedView,
    /// Workflow versions with due runs that nothing serves.
    pub unserved: Vec<UnservedVersion>,
}

/// Number of runs with one status.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct StatusCount {
    /// Status of the counted runs.
    #[schema(value_type = semel::rules::status::Status)]
    pub status: Status,
    /// Number of runs that have this status now.
    #[serde(flatten)]
    pub runs: CappedView,
}

/// Number of paused runs that need one kind of attention.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct AttentionCount {
    /// Kind of the reason for which the counted runs are paused.
    #[schema(value_type = semel::rules::attention::Attention)]
    pub attention: Attention,
    /// Number of runs that are paused for such a reason.
    #[serde(flatten)]
    pub runs: CappedView,
}

/// A workflow version with due runs that nothing serves.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnservedVersion {
    /// Name of the workflow.
    pub workflow: String,
    /// Version of the workflow.
    pub workflow_version: String,
    /// Number of its runs that are due.
    pub due: CappedView,
    /// Time since which the first of them is due, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub oldest_due_at: Option<String>,
}

/// Answer of `GET /doubts`: steps in doubt, of the runs that were created first.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DoubtList {
    /// Steps in doubt of the runs of this page.
    pub doubts: Vec<DoubtView>,
    /// Cursor of the next page: pass it as `cursor`. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// True if the server reached its limit of runs to read; `next` continues from there. Absent if false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
}

/// A step of which it is not known whether its effect took place, with the evidence in its run's ledger.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DoubtView {
    /// Id of the run.
    pub run: String,
    /// Idempotency key of the run.
    pub key: String,
    /// Workflow of the run.
    pub workflow: String,
    /// Version of the run's ledger. Used as `expectedVersion` when the doubt is resolved.
    pub version: u64,
    /// Path of the step in its run.
    pub path: String,
    /// Which visit of the path this is, from 1.
    pub tick: u32,
    /// How the effect is protected. Absent if the step began too long before the end of the ledger to be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<semel::rules::entry::Class>)]
    pub class: Option<Class>,
    /// Why the outcome is unknown, with the answer of a look-up if there was one.
    pub reason: String,
    /// Time at which the step became in doubt, RFC 3339.
    #[schema(format = DateTime)]
    pub since: String,
    /// Key of the effect, which the provider was given.
    pub effect_key: String,
    /// The entry that was written before the effect. Absent if it is too far from the end of the ledger to be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<IntentView>,
    /// The note that the step was given: what its effect is about. Absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub note: Option<Value>,
}

/// The entry with which a step in doubt began.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct IntentView {
    /// Number of the entry in the ledger.
    pub entry: u64,
    /// Time at which it was recorded, RFC 3339.
    #[schema(format = DateTime)]
    pub at: String,
    /// Number of the attempt that it began.
    pub attempt: u32,
    /// Node that made the attempt. Absent if its claim is too far from the end of the ledger to be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Fence under which the attempt was made: the number of the claim. Absent like `node`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<u64>,
}

/// Answer of `GET /hooks`: open hooks of a workspace.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct HookList {
    /// Hooks of this page, in the order that was asked for.
    pub hooks: Vec<OpenHookView>,
    /// Cursor of the next page: pass it as `cursor`. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// An open hook: a token to which payloads can be delivered.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OpenHookView {
    /// Token of the hook.
    pub token: String,
    /// Id of the run that owns the token.
    pub run: String,
    /// Idempotency key of that run.
    pub key: String,
    /// Workflow of that run.
    pub workflow: String,
    /// Status of that run.
    #[schema(value_type = semel::rules::status::Status)]
    pub status: Status,
    /// Path at which the run has opened the hook. Absent if a start with a payload has reserved the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Time at which it was opened, or reserved. Absent if that is not recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub opened_at: Option<String>,
    /// Time at which the run is given up: its own time limit. Absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub deadline: Option<String>,
    /// Deliveries to the token that the run has not consumed, among the first 100 messages of its inbox.
    pub unconsumed: CappedView,
}

/// Answer of `GET /keys`: idempotency keys in the order of their bytes.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct KeyList {
    /// Keys of this page. A key that no run holds any more is listed with its former holders.
    pub keys: Vec<KeyEntryView>,
    /// Cursor of the next page: pass it as `cursor`. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A key, the run that holds it, and those that have lost it.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeyEntryView {
    /// The idempotency key, as callers give it.
    pub key: String,
    /// Scope in which the key is unique.
    pub scope: String,
    /// Fingerprint of the request with which the key was used, in hexadecimal digits. Absent if no run holds the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// Time until which the key is remembered, RFC 3339. Absent while its run is open, and if no run holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub remembered_until: Option<String>,
    /// The run that holds the key. Absent if none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunView>,
    /// Runs that have held the key, the latest first. At most 50 are listed for one key.
    pub earlier: Vec<FormerHolder>,
}

/// A run that has lost its key.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FormerHolder {
    /// Id of the run.
    pub run: String,
    /// Status of the run now.
    #[schema(value_type = semel::rules::status::Status)]
    pub status: Status,
    /// Time of the run's creation, RFC 3339.
    #[schema(format = DateTime)]
    pub created_at: String,
    /// How the run lost the key.
    pub lost: LostKey,
    /// Who released the key, or the reason of the cancel with which it was superseded. Absent if neither is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// How a run lost its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LostKey {
    /// An operator has released the key.
    Released,
    /// The run was cancelled for a later start with the key.
    Superseded,
    /// The run had ended, and a later start has taken the key over: by its policy, or after the key's retention.
    TakenOver,
}

/// Answer of `GET /keys/{key}`.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeyView {
    /// The idempotency key, as the caller gave it.
    pub key: String,
    /// Scope in which the key is unique: `*` (the workspace), `w/<workflow>`, `v/<workflow>/<version>` or `child`.
    pub scope: String,
    /// The run that holds the key.
    pub run: RunView,
    /// Fingerprint of the request with which the key was used, in hexadecimal digits.
    #[serde(default)]
    pub fingerprint: String,
    /// Time until which the key is remembered, RFC 3339. Absent while its run is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub remembered_until: Option<String>,
    /// Runs that have held the key before, the latest first; at most 50.
    #[serde(default)]
    pub earlier: Vec<FormerHolder>,
    /// Duplicate calls that the run has absorbed, by kind.
    pub duplicates: Vec<DuplicatesView>,
}

/// Answer of `GET /nodes`: everything that drives runs of the workspace, or did so within the last day.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct NodeList {
    /// Engines and remote workers: those that live first, then those that were lost. At most 500 of each kind.
    pub nodes: Vec<NodeView>,
}

/// An engine or a remote worker.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeView {
    /// Id of the node.
    pub node: String,
    /// What the node is.
    pub kind: NodeKind,
    /// Name of the node: that of its program, unless it was given another.
    pub name: String,
    /// Host name of its machine. Absent if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Workflows (`name@version`) that it drives, and queues (`queue:name`); `*@doc1_*` means all versions with that prefix.
    pub serves: Vec<String>,
    /// Time until which its lease lasts, RFC 3339. Absent if it was lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub lease_until: Option<String>,
    /// Runs of the workspace that it drives.
    pub runs: CappedView,
    /// Commits of this node that the answering server has refused since it started, because others had taken the run.
    pub stale: u64,
    /// Time at which the node was found dead, RFC 3339. Absent while it lives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub lost_at: Option<String>,
}

/// Kind of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NodeKind {
    /// An engine in a process that opens the store itself, such as a server.
    Engine,
    /// A worker that reaches the store through a server.
    Worker,
}

/// Answer of `GET /workflows`: workflow versions that are served, or that have open runs.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct WorkflowList {
    /// Workflow versions by name and version. Queues are not among them.
    pub workflows: Vec<WorkflowView>,
}

/// A workflow version, what serves it, and how many of its runs are open.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkflowView {
    /// Name of this workflow.
    pub name: String,
    /// Version of the workflow; of a definition, its id.
    pub version: String,
    /// Names of the engines and workers that serve it. Empty if nothing does.
    pub served_by: Vec<String>,
    /// Runs that have not ended. At most 2,000 runs of each status are counted for the whole workspace.
    pub open: CappedView,
    /// Runs that are due and that no node drives.
    pub due: CappedView,
    /// JSON Schema of the input. Absent if the workflow is no definition, or if the definition has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub input_schema: Option<serde_json::Value>,
}

/// Answer of `GET /queues`: queues that are served, or in which steps wait.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct QueueList {
    /// Queues by their names.
    pub queues: Vec<QueueView>,
}

/// A queue of remote steps.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueView {
    /// Name of the queue.
    pub name: String,
    /// Steps that wait for a worker.
    pub depth: CappedView,
    /// Time since which the first of them waits, RFC 3339. Absent if none waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub oldest_at: Option<String>,
    /// Steps that workers have taken and not reported yet.
    pub in_hand: CappedView,
    /// Names of the workers that take steps from it. Empty if none does.
    pub served_by: Vec<String>,
}

/// Answer of `GET /workflow-runs/{id}/inbox`: messages that a run has not consumed.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct InboxView {
    /// Id of the run.
    pub run: String,
    /// Messages of this page, in the order of their arrival.
    pub messages: Vec<MessageView>,
    /// Number from which the next page begins: pass it as `from`. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// A message in the inbox of a run.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct MessageView {
    /// Number of the message in the inbox, from 1.
    pub number: u64,
    /// Time at which it was accepted, RFC 3339.
    #[schema(format = DateTime)]
    pub at: String,
    /// The message as stored: its kind and its fields.
    #[schema(value_type = serde_json::Value)]
    pub message: Value,
}
