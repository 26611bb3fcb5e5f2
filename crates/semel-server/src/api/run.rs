//! Answers to reads of runs and ledgers.

use semel::rules::attention::Attention;
use semel::rules::status::Status;
use serde::{Deserialize, Serialize};

use super::{DuplicatesView, FailureView, Value};

/// A run of a workflow.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunView {
    /// Id of the run (`run_…`).
    pub id: String,
    /// Name of the workflow.
    pub workflow: String,
    /// Version of the workflow.
    pub workflow_version: String,
    /// Status of the run.
    #[schema(value_type = semel::rules::status::Status)]
    pub status: Status,
    /// Length of the run's ledger. Used as `expectedVersion`.
    pub version: u64,
    /// Idempotency key of the run.
    pub key: String,
    /// Scope in which the key is unique: `*` (the workspace), `w/<workflow>`, `v/<workflow>/<version>` or `child`.
    pub scope: String,
    /// Whether the key still belongs to this run.
    pub holds_key: bool,
    /// Id from which effect keys are derived: the run's own id; a fork without fresh keys inherits that of its
    /// source.
    pub lineage: String,
    /// Id of the parent run. Absent if the run is no child.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Id of the node that drives the run. Absent if none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Time of creation, RFC 3339.
    #[schema(format = DateTime)]
    pub created_at: String,
    /// Time from which a node may claim the run. Absent if no time is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub due_at: Option<String>,
    /// Time of the run's end. Absent while the run is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub ended_at: Option<String>,
    /// Result of a completed run. Absent if the run has not completed, or is `purged`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub result: Option<Value>,
    /// Error of a failed run. Absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<FailureView>,
    /// Reason of the cancel. Absent if the run was not cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel_reason: Option<String>,
    /// Why a `PAUSED` run is paused, for people. Absent if it is not paused, and in answers that do not look it up: a
    /// page of runs has the reasons of its first 100 paused runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_reason: Option<String>,
    /// True if the history was deleted after its retention. The `status` remains; result, error and cancel reason are
    /// gone. Absent if false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub purged: bool,
    /// True if the run is `PENDING`, or is `WAITING` and due, and nothing is known to serve its workflow version: no worker, no queue worker, no
    /// engine of a server, and, on PostgreSQL, no engine that another program on the same database has opened. The run
    /// waits until something does. Absent if false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unserved: bool,
    /// Kind of the reason for which a `PAUSED` run is paused. Absent if it is not paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<semel::rules::attention::Attention>)]
    pub paused_for: Option<Attention>,
    /// What an open run does or waits for. Absent if that is not known, and in answers that do not look it up: a page of
    /// runs has it for its first 100 runs, like the next three members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<NowView>,
    /// Number of duplicate calls that the run has absorbed. Absent in answers that do not look it up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duplicate_count: Option<u64>,
    /// The run it was forked from. Absent if it is no fork, and in answers that do not look it up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<ForkedFrom>,
    /// Size of the input in bytes. Absent in answers that do not look it up, and in a list if the input has more than about
    /// 16 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_bytes: Option<u64>,
}

/// What an open run does or waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NowView {
    /// Kind of the activity or of the wait.
    pub kind: NowKind,
    /// Path of the step, timer, hook or child. Absent if the latest entries of the ledger do not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Token of the hook. Absent unless it waits for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Id of the child run. Absent unless it waits for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// Time at which the run goes on by itself, RFC 3339. Absent if it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub until: Option<String>,
    /// Number of the attempt that is being made, or that is next. Absent if none is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
}

/// Kind of what an open run does or waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NowKind {
    /// A node drives the run.
    Step,
    /// It waits for a delivery to a token.
    Hook,
    /// It waits until a time.
    Timer,
    /// It waits for the next attempt at a step.
    Retry,
    /// It waits for a child run or a remote step.
    Child,
    /// A step is in doubt, and a person has to decide.
    Doubt,
    /// Nothing serves its workflow version.
    Unserved,
}

/// The run from which another was forked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ForkedFrom {
    /// Id of the source run.
    pub run: String,
    /// Version of the source run at the fork.
    pub version: u64,
}

/// Numbers of a run's steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct StepCounts {
    /// Steps that have a result or were skipped.
    pub done: usize,
    /// Steps that run, wait for an attempt, or are in doubt.
    pub open: usize,
    /// Steps that have failed and are not retried.
    pub failed: usize,
}

/// Answer of `GET /workflow-runs/{id}`: a run with its steps.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunDetail {
    /// The run, with the same members as in a list.
    #[serde(flatten)]
    pub run: RunView,
    /// Input of the run. Absent if it is no longer kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub input: Option<Value>,
    /// Time at which the run ends as `TIMED_OUT`. Absent if it has no time limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub deadline: Option<String>,
    /// Steps in the order of their first entry. If the ledger has more than 10,000 entries or 8 MiB, only the entries
    /// before `nextEntry` are included.
    pub steps: Vec<StepView>,
    /// Numbers of the steps by their state. Absent if `nextEntry` is present.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_counts: Option<StepCounts>,
    /// Tokens of the run's open hooks. Empty if `nextEntry` is present.
    pub hooks: Vec<String>,
    /// Child runs and remote steps, in the order in which they were started. Empty if `nextEntry` is present.
    #[serde(default)]
    pub children: Vec<ChildView>,
    /// Timers that have not fired, the earliest first. Empty if `nextEntry` is present.
    #[serde(default)]
    pub timers: Vec<TimerView>,
    /// Results of `run_once`, in the order in which they were recorded.
    #[serde(default)]
    pub onces: Vec<OnceView>,
    /// Number of messages in the inbox that the run has not consumed.
    pub unconsumed: u64,
    /// Duplicate calls that the run has absorbed, by kind.
    pub duplicates: Vec<DuplicatesView>,
    /// Number of the first entry that `steps` does not include, because the ledger is too long for one answer:
    /// continue with `GET /workflow-runs/{id}/ledger?from=`. Absent if all entries were read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_entry: Option<u64>,
}

/// A child run, or a remote step: a child run whose workflow is `queue:<name>`.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChildView {
    /// Path of the call that started the child.
    pub path: String,
    /// Which visit of the path this is, from 1.
    pub tick: u32,
    /// Id of the child run.
    pub run: String,
    /// Workflow of the child; `queue:<name>` for a remote step. Only looked up for the first 50 children whose end
    /// this run has not seen; absent for the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<String>,
    /// Status of the child. Absent if the child has not been looked up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<semel::rules::status::Status>)]
    pub status: Option<Status>,
    /// Id of the node that drives the child. Absent if none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

/// A timer that has not fired.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TimerView {
    /// Path of the timer.
    pub path: String,
    /// Which visit of the path this is, from 1.
    pub tick: u32,
    /// Time at which the timer fires.
    #[schema(format = DateTime)]
    pub fires_at: String,
}

/// A result of `run_once` that the run has recorded.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OnceView {
    /// Label of the `run_once` value.
    pub label: String,
    /// Scope of the label, as for keys. Absent if the label belongs to this run only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// Time at which the run recorded the result.
    #[schema(format = DateTime)]
    pub recorded_at: String,
    /// The value that was recorded, as JSON.
    #[schema(value_type = serde_json::Value)]
    pub value: Value,
}

/// A step of a run.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepView {
    /// Path of the step: scopes, name and optional key.
    pub path: String,
    /// Which visit of the path this is, from 1.
    pub tick: u32,
    /// Current status of the step.
    pub status: StepStatus,
    /// How the effect is protected.
    #[schema(value_type = semel::rules::entry::Class)]
    pub class: semel::rules::entry::Class,
    /// The attempts that have begun, in order. After a restart that repeats the step, only those since.
    pub attempts: Vec<AttemptView>,
    /// Stable key of the effect, the same for every attempt.
    pub effect_key: String,
    /// What the step is for, as the workflow's code notes it. Absent if the code gives no note.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub note: Option<Value>,
    /// Time at which the body of the last attempt began. Absent before that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub started_at: Option<String>,
    /// Time at which the outcome was recorded. Absent before that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub ended_at: Option<String>,
    /// Time of the next attempt. Absent if none is planned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub retry_at: Option<String>,
    /// Result of the step. Absent unless it has completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub value: Option<Value>,
    /// Last error of the step. Absent if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<FailureView>,
    /// Why the step was skipped or is in doubt. Absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// One execution of a step's body.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AttemptView {
    /// Number of the attempt, from 1.
    pub number: u32,
    /// Time at which the body began, RFC 3339. In ledgers of earlier releases, the time at which the attempt was recorded.
    #[schema(format = DateTime)]
    pub began_at: String,
    /// Milliseconds from then to the commit of its end. Absent while it runs, and if its end is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
    /// Id of the node that drove the run then. Absent if the claim is not among the entries that were read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Fence under which the body ran: the version of that node's claim. Absent like `node`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<u64>,
    /// Error with which the attempt failed. Absent if it has not failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<FailureView>,
}

/// Status of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum StepStatus {
    /// An attempt has begun and has no result yet.
    Running,
    /// The step waits for its next attempt.
    Retrying,
    /// The step has a result.
    Completed,
    /// The step has failed and is not retried.
    Failed,
    /// The workflow skipped the step.
    Skipped,
    /// It is unknown whether the effect took place.
    InDoubt,
}

/// Answer of `GET /workflow-runs`: runs, newest first.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunList {
    /// The runs of this page.
    pub runs: Vec<RunView>,
    /// Cursor of the next page: pass it as `cursor`. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// True if the server reached its limit of runs to read before the page was full; `next` continues from there.
    /// Absent if false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
}

/// Answer of `GET /workflow-runs/{id}/ledger`.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LedgerView {
    /// Id of the run.
    pub run: String,
    /// Entries of this page, in order.
    pub entries: Vec<EntryView>,
    /// Number of the next entry: pass it as `from`. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// One ledger entry. Also the data of a live event, whose event id is the entry's number.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct EntryView {
    /// Position in the ledger, from 1.
    pub number: u64,
    /// Time of the commit, RFC 3339.
    #[schema(format = DateTime)]
    pub at: String,
    /// Name of the entry's kind.
    pub kind: String,
    /// The entry as stored: its kind and its fields.
    #[schema(value_type = serde_json::Value)]
    pub entry: Value,
}
