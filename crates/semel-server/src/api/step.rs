//! Steps that are handed to a queue, as a worker takes and reports them.

use semel::id::{NodeId, RunId};
use semel::rules::entry::FailureKind;
use semel::rules::path::Name;
use semel::rules::queue::Task;
use serde::{Deserialize, Serialize};

use super::{ProblemView, Value, value};

/// A worker asks for steps: `POST /workers/steps/claim`.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TakeSteps {
    /// The id under which the worker has registered.
    #[schema(value_type = String)]
    pub node: NodeId,
    /// What it can do, at most 100 queues.
    #[schema(value_type = Vec<String>)]
    pub queues: Vec<Name>,
    /// At most this many, up to 1,000.
    #[serde(default = "one")]
    #[schema(default = 1)]
    pub limit: usize,
    /// How long to wait for the first, up to 60,000.
    #[serde(default)]
    pub wait_ms: u64,
}

fn one() -> usize {
    1
}

/// A step in the hands of a worker.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskView {
    /// The run that stands for it.
    pub run: String,
    /// The queue it was taken from.
    pub queue: String,
    /// Its path in the run that handed it over.
    pub step: String,
    /// What it works on.
    #[schema(value_type = serde_json::Value)]
    pub input: Value,
    /// The same on every try, over crashes and takeovers: hand it to whoever does the work.
    pub key: String,
    /// Which try this is: 1, 2, 3 …
    pub attempt: u32,
    /// To be said with what came of it.
    pub fence: u64,
    /// How long this try may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

impl From<Task> for TaskView {
    fn from(task: Task) -> Self {
        Self {
            run: task.run.to_string(),
            queue: task.queue.to_string(),
            step: task.step.to_string(),
            input: value(&task.input),
            key: task.key.to_string(),
            attempt: task.attempt,
            fence: task.fence,
            timeout_ms: task.timeout_ms,
        }
    }
}

/// What there was to do.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskList {
    /// Each is the worker's until its lease ends; none if nothing came in time.
    pub tasks: Vec<TaskView>,
}

/// Steps have their results: `POST /workers/steps/complete`.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CompleteSteps {
    /// The id under which the worker has registered. If it is absent, the steps must be in the hands of a worker that was
    /// registered with the same API key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub node: Option<NodeId>,
    /// At most 1,000, each decided by itself.
    pub tasks: Vec<CompletedStep>,
}

/// A step has its result.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CompletedStep {
    /// The run that stands for it.
    #[schema(value_type = String)]
    pub run: RunId,
    /// As it came with the step.
    pub fence: u64,
    /// The result.
    #[schema(value_type = serde_json::Value)]
    pub value: Value,
}

/// Steps have failed: `POST /workers/steps/fail`.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FailSteps {
    /// The id under which the worker has registered. If it is absent, the steps must be in the hands of a worker that was
    /// registered with the same API key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub node: Option<NodeId>,
    /// At most 1,000, each decided by itself.
    pub tasks: Vec<FailedStep>,
}

/// A step has failed.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FailedStep {
    /// The run that stands for it.
    #[schema(value_type = String)]
    pub run: RunId,
    /// As it came with the step.
    pub fence: u64,
    /// `retryable` (also if nothing is said), `timeout`, `panic`: it is tried again as its workflow wants it. `fatal`: it is
    /// not. `uncertain`: it may have taken place, and somebody has to decide.
    #[serde(default = "retryable")]
    #[schema(value_type = String, default = "retryable")]
    pub kind: FailureKind,
    /// What went wrong.
    pub message: String,
    /// When it may be tried again, if the worker knows better.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

fn retryable() -> FailureKind {
    FailureKind::Retryable
}

/// One answer for each step, in the same order.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepAnswers {
    /// The answers.
    pub results: Vec<StepAnswer>,
}

/// The answer to one report.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepAnswer {
    /// The run that stands for the step.
    pub run: String,
    /// 200 if it is noted, also if it was before; 409 if the step is in other hands by now.
    pub status: u16,
    /// Why it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<ProblemView>,
}
