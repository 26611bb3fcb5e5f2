//! Control, doubts, hooks and keys.

use semel::rules::entry::RestartFrom;
use serde::{Deserialize, Serialize};

use super::{DuplicatesView, RunView, Value};

/// `POST /workflow-runs/{id}/cancel`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CancelRun {
    /// Why; recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Let its clean-up run first, instead of ending it at once.
    #[serde(default)]
    pub graceful: bool,
    /// Only if the run still has this version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_version: Option<u64>,
}

/// `POST /workflow-runs/{id}/pause | resume | retry`, and `POST /keys/{key}/release`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ControlRun {
    /// Only if the run still has this version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_version: Option<u64>,
}

/// `POST /workflow-runs/resume`: which paused runs go on.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResumeRuns {
    /// Why the runs are paused.
    pub reason: PauseKind,
    /// Only runs of this workflow; runs of any workflow if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<String>,
    /// Most paused runs that one call looks at: 100 if absent, at most 500.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// The `next` of the answer before. Absent for the first call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// Why a run is paused. A run with a step in doubt is not here: it goes on when the doubt is resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum PauseKind {
    /// An operator has paused it.
    Operator,
    /// The nodes that drove it died, again and again.
    Poisoned,
    /// Its code no longer fits its ledger.
    Diverged,
}

/// The runs that a call has resumed.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResumedRuns {
    /// Their ids, the newest run first. A run that was changed by another call meanwhile is left out.
    pub resumed: Vec<String>,
    /// The cursor of the next call. Absent if all paused runs were looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// `POST /workflow-runs/{id}/restart`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RestartRun {
    /// `failure` (default; results are kept) or `beginning`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub from: Option<RestartFrom>,
    /// Only if the run still has this version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_version: Option<u64>,
}

/// `POST /workflow-runs/{id}/fork`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ForkRun {
    /// The number of entries after which the new run goes its own way; all of them if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<u64>,
    /// The key of the new run; its id if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Whether its effects get keys of their own; without, an effect that this run had is not repeated.
    #[serde(default)]
    pub fresh_keys: bool,
    /// Only if the run still has this version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_version: Option<u64>,
}

/// What a control came to.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ControlAnswer {
    /// The run as it is now; with a fork, the new one.
    pub run: RunView,
    /// Whether this call changed it. A cancel that came too late did not: the run's status says who won.
    pub changed: bool,
}

/// `POST /workflow-runs/{id}/steps/{path}/resolve`: what became of a step in doubt.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResolveStep {
    /// What became of it.
    pub resolution: ResolutionView,
    /// Which visit of the path; the first if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tick: Option<u32>,
    /// With `happened`: its result; `null` if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub value: Option<Value>,
    /// With `give-up`: what to record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// What somebody knows about a step in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ResolutionView {
    /// It took place.
    Happened,
    /// It did not: run it again.
    DidNotHappen,
    /// Give up: the step has failed. A retry of the run asks again.
    GiveUp,
}

/// What became of a delivery.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeliverAnswer {
    /// The owner of the token.
    pub run: String,
    /// Its number in the owner's inbox.
    pub arrival: u64,
    /// Whether it had been delivered before.
    pub absorbed: bool,
}

/// Who owns a token: `GET /hooks/{token}`.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct HookView {
    /// The token.
    pub token: String,
    /// Its owner.
    pub run: RunView,
}

/// What a key points at: `GET /keys/{key}`.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeyView {
    /// The key.
    pub key: String,
    /// Where it is unique.
    pub scope: String,
    /// The run that holds it.
    pub run: RunView,
    /// The duplicates that were absorbed, and when they came.
    pub duplicates: Vec<DuplicatesView>,
}
