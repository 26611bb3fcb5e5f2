//! Reading runs.

use semel::rules::status::Status;
use serde::{Deserialize, Serialize};

use super::{FailureView, Value};

/// A run.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunView {
    /// Its id.
    pub id: String,
    /// Its workflow.
    pub workflow: String,
    /// The workflow's version.
    pub workflow_version: String,
    /// `PENDING`, `RUNNING`, `WAITING`, `PAUSED`, `COMPLETED`, `FAILED`, `CANCELLED`, `TIMED_OUT`.
    #[schema(value_type = String)]
    pub status: Status,
    /// The length of its ledger.
    pub version: u64,
    /// Its key.
    pub key: String,
    /// Where the key is unique.
    pub scope: String,
    /// Whether the key still points at this run.
    pub holds_key: bool,
    /// The root of its effects' identities: its own id, unless it is a fork.
    pub lineage: String,
    /// The run that started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Who drives it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// When it was created.
    pub created_at: String,
    /// From when on it may be claimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at: Option<String>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    /// Its result, if it has completed. Absent also from a completed run that is `purged`: its result is no longer kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub result: Option<Value>,
    /// Its error, if it has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<FailureView>,
    /// Why it was cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel_reason: Option<String>,
    /// Whether its history is past its retention and has been forgotten. Its `status` stays; result, error and cancel reason
    /// are no longer kept.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub purged: bool,
    /// `true` if it is `PENDING` and no worker, engine of the server or queue worker is known to serve its workflow in its
    /// version: it waits until one does. Absent otherwise. An engine embedded in another process on the same database
    /// is not known to the server.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unserved: bool,
}

/// A run with what happened in it: `GET /workflow-runs/{id}`.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunDetail {
    /// The run.
    #[serde(flatten)]
    pub run: RunView,
    /// Its input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub input: Option<Value>,
    /// Why it is paused, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_reason: Option<String>,
    /// Its steps, in the order of their first entry. Of a ledger with more than 10,000 entries or 8 MiB, the steps that the
    /// entries before `nextEntry` tell of.
    pub steps: Vec<StepView>,
    /// The tokens of the hooks that it has open. Empty if there is a `nextEntry`.
    pub hooks: Vec<String>,
    /// How many messages it has not consumed.
    pub unconsumed: u64,
    /// What was absorbed on it.
    pub duplicates: Vec<DuplicatesView>,
    /// The number of the first entry that `steps` knows nothing of, because the ledger is too long for one answer: go on
    /// with `GET /workflow-runs/{id}/ledger?from=` this. Absent if all entries were read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_entry: Option<u64>,
}

/// A step.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepView {
    /// Its path.
    pub path: String,
    /// Which visit of the path.
    pub tick: u32,
    /// What state it is in.
    pub status: StepStatus,
    /// `keyed`, `at-most-once`, `reconcile`, `tx`.
    #[schema(value_type = String)]
    pub class: semel::rules::entry::Class,
    /// How many attempts have begun.
    pub attempts: u32,
    /// The stable key of its effect.
    pub effect_key: String,
    /// When its last attempt was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// When its outcome was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    /// When it is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<String>,
    /// Its result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub value: Option<Value>,
    /// Its last error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<FailureView>,
    /// Why it was skipped or is in doubt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The state of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum StepStatus {
    /// An attempt goes on.
    Running,
    /// Waits for its next attempt.
    Retrying,
    /// Has its result.
    Completed,
    /// Has failed for good.
    Failed,
    /// Was not needed.
    Skipped,
    /// Nobody knows whether its effect took place.
    InDoubt,
}

/// What was absorbed, of one kind.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DuplicatesView {
    /// `start`, `delivery`, `result`, `control`.
    #[schema(value_type = String)]
    pub kind: semel::rules::receipt::ReceiptKind,
    /// How many.
    pub count: u64,
    /// When the first came.
    pub first_at: String,
    /// When the last came.
    pub last_at: String,
    /// The latest few.
    pub recent: Vec<AbsorbedView>,
}

/// One absorbed call.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AbsorbedView {
    /// When.
    pub at: String,
    /// What it asked, in short.
    pub detail: String,
}

/// Runs, the newest first: `GET /workflow-runs`.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunList {
    /// The runs of this page.
    pub runs: Vec<RunView>,
    /// Cursor of the next page: ask again with `cursor=` this. Absent if this page is the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Whether the server has read as many runs as it reads for one page before the page was full. `next` goes on from
    /// there. Absent if the page is whole.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
}

/// The entries of a run: `GET /workflow-runs/{id}/ledger`.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LedgerView {
    /// The run.
    pub run: String,
    /// Its entries.
    pub entries: Vec<EntryView>,
    /// Ask with `from=` this for the next page; none if this is the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// One line of a ledger. Also the data of a live event, whose id is its number.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct EntryView {
    /// Its place, from 1: the version it made.
    pub number: u64,
    /// When it was committed.
    pub at: String,
    /// The name of its kind.
    pub kind: String,
    /// The entry as it is stored: its kind with its members.
    #[schema(value_type = serde_json::Value)]
    pub entry: Value,
}
