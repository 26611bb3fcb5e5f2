//! Starting runs.

use semel::rules::key::KeyScope;
use semel::rules::start::{Policy, Verdict};
use serde::{Deserialize, Serialize};

use super::{Period, ProblemView, RunView, Value};

/// A start: `POST /workflow-runs`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StartRun {
    /// The workflow. Also accepted under the name `definitionId`.
    #[serde(alias = "definitionId")]
    pub workflow: String,
    /// Its version; `1` if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow_version: Option<String>,
    /// The input; `{}` if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub input: Option<Value>,
    /// The key; equal to the header `Idempotency-Key` where both are given. One is drawn if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// Where the key is unique: `workspace` (default), `workflow`, `workflow-version`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub scope: Option<KeyScope>,
    /// What to do if the key is in use: the name of a policy (`attach`, `strict`, `reject`, `unique-while-open`,
    /// `retry-failed`, `supersede`), or a whole matrix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_conflict: Option<OnConflict>,
    /// How long the run is remembered after its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<RetentionView>,
    /// A payload for the owner of a token, or for the started run if nobody owns it; in the same transaction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deliver: Option<DeliverWithStart>,
    /// Not before this much time has passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<Period>,
    /// The run must have ended after this much time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Period>,
    /// JSON pointers into the input that do not count when two inputs are compared.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
}

/// What to do if a key is in use.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(
    untagged,
    expecting = "`onConflict` is the name of a policy, or `same` and `other`, each with an action for `open`, `completed`, \
                 `failed`, `cancelled` and `timedOut`"
)]
pub enum OnConflict {
    /// By name.
    Preset(String),
    /// By the whole matrix: `same` and `other` payload × state of the existing run.
    #[schema(value_type = Object)]
    Matrix(Policy),
}

/// How long a run is remembered after its end.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RetentionView {
    /// Ledger, inbox and receipts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<Period>,
    /// The key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Period>,
}

/// A delivery that comes with a start.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeliverWithStart {
    /// To whom.
    pub token: String,
    /// What.
    #[schema(value_type = serde_json::Value)]
    pub payload: Value,
    /// The id under which the delivery may be repeated. If not given, the same payload for the same token is absorbed when it
    /// comes again with the same workflow, key and scope, as long as the key stands for the same run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

/// What a start came to.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct StartAnswer {
    /// The run: the new one, or the one the key stands for.
    pub run: RunView,
    /// Whether a new run exists because of this start.
    pub created: bool,
    /// `created`, `attached`, `replayed`, `restarted`, `superseded`.
    #[schema(value_type = String)]
    pub verdict: Verdict,
    /// The run that was cancelled for this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub superseded: Option<String>,
    /// What became of the payload that came with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered: Option<super::DeliverAnswer>,
}

/// Many starts: `POST /workflow-runs/batch`.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StartBatch {
    /// The starts, at most 1,000. Each is decided by itself.
    pub runs: Vec<StartRun>,
}

/// One answer for each start, in the same order.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BatchAnswer {
    /// The answers.
    pub results: Vec<BatchResult>,
}

/// The answer to one start of a batch.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BatchResult {
    /// The status that a single start would have had.
    pub status: u16,
    /// What it came to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<StartAnswer>,
    /// Or why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<ProblemView>,
}
