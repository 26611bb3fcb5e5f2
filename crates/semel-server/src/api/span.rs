//! Answers to reads of a run's timeline.

use semel::rules::entry::{Class, FailureKind};
use serde::{Deserialize, Serialize};

use super::Value;

/// Kind of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SpanKind {
    /// A step of the workflow.
    Step,
    /// A timer that the run has set.
    Timer,
    /// A token for which the run waits.
    Hook,
    /// A child run or a remote step.
    Child,
}

/// State of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SpanStatus {
    /// It has begun and not ended.
    Open,
    /// A step waits for its next attempt.
    Retrying,
    /// It has ended with a result: a step completed, a timer fired, a hook was closed, a child completed.
    Completed,
    /// It has ended without a result: a step or a child failed, or another run owns the token of a hook.
    Failed,
    /// The workflow skipped a step.
    Skipped,
    /// It is unknown whether the effect of a step took place.
    InDoubt,
}

/// Answer of `GET /workflow-runs/{id}/spans`: what a run did and waited for, with times and without values.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SpanList {
    /// Id of the run.
    pub run: String,
    /// Version of the run up to which its entries were read.
    pub version: u64,
    /// Number of spans by state, of the whole run.
    pub totals: SpanTotals,
    /// Spans of this page, in the order of their first entries.
    pub spans: Vec<SpanView>,
    /// The latest claims of the run, at most 500, oldest first. On the first page only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<ClaimSpan>,
    /// Times of two seconds and more in which no attempt was open and nothing was recorded, the last 200. On the first page only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub idle: Vec<IdleView>,
    /// Number of the first span of the next page: pass it as `from`. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<usize>,
}

/// A time in which a run rested.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct IdleView {
    /// Time of the entry before the rest.
    #[schema(format = DateTime)]
    pub from: String,
    /// Time of the entry after the rest.
    #[schema(format = DateTime)]
    pub to: String,
}

/// Number of spans of a run by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SpanTotals {
    /// Number of all spans of the run.
    pub all: usize,
    /// Number of spans that have not ended.
    pub open: usize,
    /// Number of steps that wait for their next attempt.
    pub retrying: usize,
    /// Number of spans that have ended with a result.
    pub completed: usize,
    /// Number of spans that have ended without a result.
    pub failed: usize,
    /// Number of steps that were skipped.
    pub skipped: usize,
    /// Number of steps in doubt.
    pub in_doubt: usize,
}

/// A step, timer, hook or child of a run, from its first entry to its last.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SpanView {
    /// Place of the span among all spans of the run, from 0.
    pub place: usize,
    /// What kind of span it is.
    pub kind: SpanKind,
    /// Path: scopes, name and optional key.
    pub path: String,
    /// Which visit of the path this is, from 1.
    pub tick: u32,
    /// Current state of the span.
    pub status: SpanStatus,
    /// How the effect of a step is protected. Absent for other kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<semel::rules::entry::Class>)]
    pub class: Option<Class>,
    /// Stable key of a step's effect. Absent for other kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect_key: Option<String>,
    /// Token of a hook. Absent for other kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Id of the child run, or of the run that owns the token of a hook. Absent for other kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other: Option<String>,
    /// Time at which a timer fires, or of the next attempt at a step. Absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub until: Option<String>,
    /// Time at which it began, RFC 3339.
    #[schema(format = DateTime)]
    pub started_at: String,
    /// Time of the entry that ended it, RFC 3339. Absent while it is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub ended_at: Option<String>,
    /// Attempts at a step, the last 20, oldest first. Absent for other kinds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<SpanAttempt>,
    /// Why a step was skipped or is in doubt. Absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Number of the first entry of the span.
    pub first_entry: u64,
    /// Number of the last entry of the span so far.
    pub last_entry: u64,
}

/// One attempt at a step.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SpanAttempt {
    /// Number of the attempt, from 1. One that was lost with its owner is repeated under its number.
    pub number: u32,
    /// Time at which the body began, RFC 3339. In ledgers of earlier releases, the time at which the attempt was recorded.
    #[schema(format = DateTime)]
    pub started_at: String,
    /// Time at which its outcome was recorded, or at which another node took the run. Absent while it is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub ended_at: Option<String>,
    /// Id of the node that made the attempt. Absent if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Fence of that node: the number of the entry by which it claimed the run. Absent if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<u64>,
    /// Number of the entry that recorded the attempt.
    pub entry: u64,
    /// Whether the run was taken over before the attempt had an outcome. Derived from the claims.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lost: bool,
    /// Error of the attempt. Absent if it has not failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<SpanError>,
}

/// Error of an attempt, without its details.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SpanError {
    /// Kind of the failure.
    #[schema(value_type = semel::rules::entry::FailureKind)]
    pub kind: FailureKind,
    /// Error message, cut after 500 characters.
    pub message: String,
    /// Code of the error, for programs. Absent if the error has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}

/// A time in which a node drove a run.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimSpan {
    /// Id of the node that claimed the run.
    pub node: String,
    /// Fence of the claim: the number of its entry.
    pub fence: u64,
    /// Time of the claim, RFC 3339.
    #[schema(format = DateTime)]
    pub started_at: String,
    /// Time at which the run waited, paused, ended or was taken over. Absent while the node drives it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub ended_at: Option<String>,
    /// Whether another claim ended it: the node had lost its lease, or the run was taken from it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lost: bool,
}

/// Answer of `GET /workflow-runs/{id}/steps/{path}`: one step with its value and its entries.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepDetail {
    /// The step, with the same members as among the spans.
    #[serde(flatten)]
    pub span: SpanView,
    /// Result of the step. Absent unless it has completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub value: Option<Value>,
    /// What the step is for, as the workflow's code notes it. Absent if the code gives no note.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub note: Option<Value>,
    /// Numbers of the entries of the step, the last 100, in order.
    pub entries: Vec<u64>,
}

/// Message of `GET /events`: what has changed in a workspace since the message before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChangeView {
    /// Ids of those of the followed runs that have new entries.
    pub runs: Vec<String>,
    /// Whether runs of the workspace were started, ended, paused or taken over, or messages arrived for them.
    pub workspace: bool,
}
