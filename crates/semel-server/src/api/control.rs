//! Control of runs, steps in doubt, hooks and keys.

use semel::rules::entry::RestartFrom;
use serde::{Deserialize, Serialize};

use super::{RunView, Value};

/// Body of `POST /workflow-runs/{id}/cancel`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CancelRun {
    /// Reason for the cancel. It is recorded in the ledger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// If true, the run's clean-up code runs first. If false (default), the run ends at once.
    #[serde(default)]
    pub graceful: bool,
    /// Version that the run must still have; otherwise the call is refused. No check if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_version: Option<u64>,
}

/// Body of `POST /workflow-runs/{id}/pause`, `resume` and `retry`, and of `POST /keys/{key}/release`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ControlRun {
    /// Version that the run must still have; otherwise the call is refused. No check if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_version: Option<u64>,
}

/// Body of `POST /workflow-runs/resume`: which paused runs to resume.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResumeRuns {
    /// Resume the runs that are paused for this reason.
    pub reason: PauseKind,
    /// Resume only runs of this workflow. Runs of every workflow if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<String>,
    /// Maximum number of paused runs that one call examines: at most 500, 100 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// The `next` of the previous answer. Absent in the first call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// Why a run is paused. Runs with a step in doubt are not included: they resume when the doubt is resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum PauseKind {
    /// An operator has paused the run.
    Operator,
    /// Nodes died repeatedly while they drove the run.
    Poisoned,
    /// The workflow's code no longer matches the run's ledger.
    Diverged,
}

/// Answer of `POST /workflow-runs/resume`.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResumedRuns {
    /// Ids of the resumed runs, newest first. A run that another call changed in the meantime is left out.
    pub resumed: Vec<String>,
    /// Cursor for the next call. Absent if all paused runs were examined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Body of `POST /workflow-runs/{id}/restart`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RestartRun {
    /// Where the run starts again: `failure` (default; recorded results are kept) or `beginning`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<semel::rules::entry::RestartFrom>)]
    pub from: Option<RestartFrom>,
    /// Version that the run must still have; otherwise the call is refused. No check if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_version: Option<u64>,
}

/// Body of `POST /workflow-runs/{id}/fork`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ForkRun {
    /// Number of ledger entries that the new run inherits. All of them if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<u64>,
    /// Key of the new run. Its own id if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// If true, the new run's effects get new effect keys. If false (default), it shares the effect keys of this run,
    /// so that providers recognise its effects as repetitions.
    #[serde(default)]
    pub fresh_keys: bool,
    /// Version that the run must still have; otherwise the call is refused. No check if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_version: Option<u64>,
}

/// Answer to a control call.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ControlAnswer {
    /// The run after the call. For a fork: the new run.
    pub run: RunView,
    /// Whether this call changed the run. False for a cancel that came too late; the run's status says how it ended.
    pub changed: bool,
}

/// Body of `POST /workflow-runs/{id}/steps/{path}/resolve`: decides a step in doubt.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResolveStep {
    /// What happened to the step.
    pub resolution: ResolutionView,
    /// Visit of the path that is meant. 1, the first visit, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tick: Option<u32>,
    /// Result of the step, with `happened`. `null` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub value: Option<Value>,
    /// Error message to record, with `give-up`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Code of the error to record, with `give-up`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Details of the error to record, with `give-up`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub data: Option<Value>,
}

/// Decision about a step in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ResolutionView {
    /// The effect took place; the step completes with `value`.
    Happened,
    /// The effect did not take place; the step runs again.
    DidNotHappen,
    /// The outcome stays unknown; the step fails. If the run is retried, the question is asked again.
    GiveUp,
}

/// Answer to a delivery.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeliverAnswer {
    /// Id of the run that owns the token.
    pub run: String,
    /// Number of the message in the run's inbox.
    pub arrival: u64,
    /// Whether the same delivery had been accepted before.
    pub absorbed: bool,
}

/// Answer of `GET /hooks/{token}`.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct HookView {
    /// Token of the hook.
    pub token: String,
    /// The run that owns the token.
    pub run: RunView,
}

/// Body of `POST /dev/clock`.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AdvanceClock {
    /// Milliseconds by which the time of the server moves forward.
    pub advance_ms: u64,
}

/// Answer of `POST /dev/clock`.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClockView {
    /// The time of the server after the call.
    pub now: String,
}
