//! Remote steps, as workers take and report them.

use semel::id::{NodeId, RunId};
use semel::rules::entry::FailureKind;
use semel::rules::path::Name;
use semel::rules::queue::Assignment;
use serde::{Deserialize, Serialize};

use super::{ProblemView, Value, value};

/// Body of `POST /workers/steps/claim`.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TakeSteps {
    /// Node id of the registered worker.
    #[schema(value_type = String)]
    pub node: NodeId,
    /// Queues to take steps from, at most 100.
    #[schema(value_type = Vec<String>)]
    pub queues: Vec<Name>,
    /// Maximum number of steps to take, up to 1,000.
    #[serde(default = "one")]
    #[schema(default = 1)]
    pub limit: usize,
    /// Milliseconds to wait for the first step, up to 60,000. 0 (no wait) if absent.
    #[serde(default)]
    pub wait_ms: u64,
    /// Waits until a step is due and takes none: the answer has `due`. Unlike a claim it may be lost without harm, so a
    /// worker that executes something waits in this way. False if absent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub look: bool,
}

fn one() -> usize {
    1
}

/// A remote step that a worker has taken.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AssignmentView {
    /// Id of the run that represents the step in its queue.
    pub run: String,
    /// Queue that the step was taken from.
    pub queue: String,
    /// Path of the step in the run that requested it.
    pub step: String,
    /// JSON input that the step was given.
    #[schema(value_type = serde_json::Value)]
    pub input: Value,
    /// Effect key: the same for every attempt, also after crashes and takeovers. Pass it to the provider as
    /// idempotency key.
    pub key: String,
    /// Number of this attempt, from 1.
    pub attempt: u32,
    /// Fence of this attempt: must be sent back with the report.
    pub fence: u64,
    /// Milliseconds that this attempt may take. No limit if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

impl From<Assignment> for AssignmentView {
    fn from(assignment: Assignment) -> Self {
        Self {
            run: assignment.run.to_string(),
            queue: assignment.queue.to_string(),
            step: assignment.step.to_string(),
            input: value(&assignment.input),
            key: assignment.key.to_string(),
            attempt: assignment.attempt,
            fence: assignment.fence,
            timeout_ms: assignment.timeout_ms,
        }
    }
}

/// Answer of `POST /workers/steps/claim`.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AssignmentList {
    /// The taken steps; they belong to the worker until its lease ends. Empty if none was available in time.
    pub steps: Vec<AssignmentView>,
    /// Whether a step was due when a `look` ended. Absent if none was, and in answers to other calls.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub due: bool,
    /// Whether this repeats the answer to an earlier call with the same `Idempotency-Key`. Absent if not: if an earlier call
    /// with that key was sent, it may have taken steps that are not in this answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repeated: bool,
}

/// Body of `POST /workers/steps/complete`.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CompleteSteps {
    /// Node id of the registered worker. If absent, the steps must be held by a worker that was registered with the
    /// same API key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub node: Option<NodeId>,
    /// The reports, at most 1,000. Each is decided independently.
    pub steps: Vec<CompletedStep>,
}

/// Report of a completed step.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CompletedStep {
    /// Id of the run that represents the step.
    #[schema(value_type = String)]
    pub run: RunId,
    /// Fence that came with the step.
    pub fence: u64,
    /// JSON result of the step.
    #[schema(value_type = serde_json::Value)]
    pub value: Value,
}

/// Body of `POST /workers/steps/fail`.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FailSteps {
    /// Node id of the registered worker. If absent, the steps must be held by a worker that was registered with the
    /// same API key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub node: Option<NodeId>,
    /// The reports, at most 1,000. Each is decided independently.
    pub steps: Vec<FailedStep>,
}

/// Report of a failed step.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FailedStep {
    /// Id of the run that represents the step.
    #[schema(value_type = String)]
    pub run: RunId,
    /// Fence that came with the step.
    pub fence: u64,
    /// Kind of failure. `retryable` (default), `timeout` and `panic`: retried as the workflow specifies. `fatal`: not
    /// retried. `uncertain`: the effect may have taken place, and the step is in doubt.
    #[serde(default = "retryable")]
    #[schema(value_type = semel::rules::entry::FailureKind, default = "retryable")]
    pub kind: FailureKind,
    /// Error message of the attempt, for people. At most 10,000 bytes.
    pub message: String,
    /// Code of the error, for the workflow to decide by, such as `CARD_DECLINED`. At most 200 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 200)]
    pub code: Option<String>,
    /// Details of the error, as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub data: Option<Value>,
    /// Milliseconds until the next attempt. The workflow's retry policy decides if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

fn retryable() -> FailureKind {
    FailureKind::Retryable
}

/// Answer to one report of a step.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepAnswers {
    /// One result per report, in the same order.
    pub results: Vec<StepAnswer>,
}

/// Answer to one report.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepAnswer {
    /// Id of the run that represents the step.
    pub run: String,
    /// 200 if the report is recorded, now or earlier; 409 if the step is no longer held by this worker.
    pub status: u16,
    /// Why the report was refused. Absent if it was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<ProblemView>,
}
