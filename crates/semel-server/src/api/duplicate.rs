//! Answers about absorbed duplicates and refused calls.

use semel::rules::receipt::{DifferingValue, ReceiptKind, ReceiptVerdict};
use serde::{Deserialize, Serialize};

/// Absorbed duplicates, or refused calls, of one kind.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DuplicatesView {
    /// Kind of the calls.
    #[schema(value_type = semel::rules::receipt::ReceiptKind)]
    pub kind: ReceiptKind,
    /// Number of calls of this kind.
    pub count: u64,
    /// Time of the first call.
    #[schema(format = DateTime)]
    pub first_at: String,
    /// Time of the last call.
    #[schema(format = DateTime)]
    pub last_at: String,
    /// The last fifty calls, oldest first.
    pub recent: Vec<AbsorbedView>,
}

/// One absorbed duplicate, or one refused call: it changed nothing. Members are absent where they mean nothing.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AbsorbedView {
    /// Time of the call, RFC 3339.
    #[schema(format = DateTime)]
    pub at: String,
    /// Short description of the call.
    pub detail: String,
    /// Answer that the call got.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<semel::rules::receipt::ReceiptVerdict>)]
    pub verdict: Option<ReceiptVerdict>,
    /// Error code of a refused call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Name of the caller: of its API key, of an operator, or the id of a node or run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Id of the HTTP request, as in the header `X-Request-Id` of its answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// Of a start: whether it asked for the same as the start that made the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same: Option<bool>,
    /// Of a start that asked for something else: the first eight places at which the two differ, with at most 200 bytes of
    /// both values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<semel::rules::receipt::DifferingValue>)]
    pub pointers: Vec<DifferingValue>,
    /// Id of the delivery or of the call, as the caller gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery_id: Option<String>,
    /// Of a late result: the fence under which it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<u64>,
    /// Version of the run that the call expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<u64>,
}

/// Answer of `GET /duplicates`: absorbed and refused calls, the latest first.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DuplicateList {
    /// One element for each run and kind of call.
    pub duplicates: Vec<DuplicateView>,
    /// Cursor of the next page: pass it as `cursor`. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// True if the server reached its limit of rows to read before the page was full; `next` continues from there. Absent
    /// if false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
}

/// The absorbed or refused calls of one kind on one run.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DuplicateView {
    /// Id of the run that owns the original.
    pub run: String,
    /// Name of its workflow.
    pub workflow: String,
    /// Idempotency key of the run.
    pub key: String,
    /// Scope in which the key is unique.
    pub scope: String,
    /// Kind of the calls.
    #[schema(value_type = semel::rules::receipt::ReceiptKind)]
    pub kind: ReceiptKind,
    /// Number of calls of this kind.
    pub count: u64,
    /// Time of the first call.
    #[schema(format = DateTime)]
    pub first_at: String,
    /// The latest call; the run has the others.
    pub latest: AbsorbedView,
}
