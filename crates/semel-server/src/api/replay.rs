//! Answer to a replay by the server.

use semel::engine::replay::{ReplayKind, ReplayVerdict};
use semel::rules::status::Status;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

/// What the code of a run does now, compared with what is recorded.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplayDiff {
    /// Id of the run that was replayed.
    pub run: String,
    /// Name of its workflow.
    pub workflow: String,
    /// Status of the run according to its ledger.
    #[schema(value_type = semel::rules::status::Status)]
    pub status: Status,
    /// Number of entries in its ledger.
    pub version: u64,
    /// Whether the code does what is recorded, and nothing else.
    pub identical: bool,
    /// Number of rows by verdict.
    pub summary: ReplayCounts,
    /// All comparisons, in the order of the ledger; additions come last.
    pub rows: Vec<ReplayRowView>,
}

/// Number of rows by verdict.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplayCounts {
    /// The code does the same there.
    pub identical: usize,
    /// The code does something else there.
    pub changed: usize,
    /// It is recorded, and the code does not visit it.
    pub missing: usize,
    /// The code asks for it, and it is not recorded.
    pub added: usize,
}

/// One comparison of a replay.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplayRowView {
    /// Place in the run: a path, or the label of a shared result.
    pub path: String,
    /// Kind of work; if it has changed, the recorded kind.
    pub kind: ReplayKind,
    /// Recorded value. Absent if nothing is recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original: Option<Json>,
    /// What the code produces now, as far as that is known without executing it. Absent if nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replayed: Option<Json>,
    /// Whether recorded and present behaviour agree.
    pub verdict: ReplayVerdict,
}
