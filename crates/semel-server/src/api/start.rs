//! Requests and answers of starts.

use semel::rules::key::KeyScope;
use semel::rules::start::{Policy, StartVerdict};
use serde::{Deserialize, Serialize};

use super::{Period, ProblemView, RunView, Value};

/// Body of `POST /workflow-runs`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StartRun {
    /// Definition to start: its id, `name@label`, or its name for the current version. Exactly one of `definitionId` and
    /// `workflow` is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definition_id: Option<String>,
    /// Name of a workflow in code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<String>,
    /// Version of the workflow in code. If absent: the current version of a workflow that the server hosts, such as `demo-order`, and
    /// `1` for others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow_version: Option<String>,
    /// Input of the run. `{}` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub input: Option<Value>,
    /// Idempotency key. Must equal the header `Idempotency-Key` if both are given. The server generates one if
    /// neither is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// Scope in which the key is unique: `workspace` (default), `workflow` or `workflow-version`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<semel::rules::key::KeyScope>)]
    pub scope: Option<KeyScope>,
    /// What to do if the key is in use: the name of a policy (`attach`, `strict`, `reject`, `unique-while-open`,
    /// `retry-failed`, `supersede`), or a full policy matrix. `attach` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_conflict: Option<OnConflict>,
    /// How long history and key are kept after the run's end. If absent, as the definition says, else 90 days each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<RetentionView>,
    /// Payload that is delivered in the same transaction: to the owner of the token, or to the started run if the
    /// token has no owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deliver: Option<DeliverWithStart>,
    /// Period before which the run does not begin. None if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<Period>,
    /// Period after which the run ends as `TIMED_OUT`. If absent, as the definition says, else no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Period>,
    /// JSON pointers into the input that are ignored when two inputs are compared. None if absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
}

/// What to do if the key is in use.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(
    untagged,
    expecting = "`onConflict` is the name of a policy, or `same` and `other`, each with an action for `open`, `completed`, \
                 `failed`, `cancelled` and `timedOut`"
)]
pub enum OnConflict {
    /// Name of a preset, such as `attach` or `strict`.
    Preset(String),
    /// Full matrix: an action for the `same` and for an `other` payload in each state of the existing run.
    #[schema(value_type = Object)]
    Matrix(Policy),
}

/// How long a run is kept after its end.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RetentionView {
    /// How long ledger, inbox and receipts are kept. 90 days if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<Period>,
    /// How long the key stays in use. 90 days if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Period>,
}

/// A delivery that is part of a start.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeliverWithStart {
    /// Token of the hook that receives the payload.
    pub token: String,
    /// JSON value for the owner of the token.
    #[schema(value_type = serde_json::Value)]
    pub payload: Value,
    /// Id under which the delivery may be repeated. If absent, the same payload for the same token is absorbed when
    /// the start is repeated with the same workflow, key and scope, as long as the key belongs to the same run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

/// Answer to a start.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct StartAnswer {
    /// The new run, or the run that holds the key.
    pub run: RunView,
    /// Whether this start created a new run.
    pub created: bool,
    /// Whether the run is new, or which existing run was found.
    #[schema(value_type = semel::rules::start::StartVerdict)]
    pub verdict: StartVerdict,
    /// Id of the run that was cancelled in favour of this one. Absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub superseded: Option<String>,
    /// Result of the delivery. Absent if the start had none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered: Option<super::DeliverAnswer>,
}

/// Body of `POST /workflow-runs/batch`.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StartBatch {
    /// The starts, at most 1,000. Each is decided independently.
    pub runs: Vec<StartRun>,
}

/// Answer of `POST /workflow-runs/batch`.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BatchAnswer {
    /// One result per start, in the same order.
    pub results: Vec<BatchResult>,
}

/// Result of one start in a batch.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BatchResult {
    /// HTTP status that a single start would have had.
    pub status: u16,
    /// Answer of a successful start. Absent if it was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<StartAnswer>,
    /// Problem of a refused start. Absent if it succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<ProblemView>,
}
