//! Errors as they travel: the reader can react as if the store were in the same process.

use serde::{Deserialize, Serialize};

use crate::clock::Time;
use crate::error::Error;
use crate::id::{NodeId, RunId};
use crate::rules::entry::Outcome;
use crate::rules::json::InvalidJson;
use crate::rules::key::{CallId, Label, RecordId, Token};
use crate::rules::ledger::RefusedEntry;
use crate::rules::path::Name;
use crate::rules::status::Status;

/// A server's limit that a call has reached; the caller may try again later. It is the source of
/// [`Error::Unavailable`].
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct LimitReached(pub String);

/// An [`Error`] as it travels. What is the server's own affair (its disk, its database) goes to its log, not here.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
#[expect(missing_docs, reason = "each is the error of the same name")]
pub enum ErrorView {
    Validation(String),
    Json(InvalidJson),
    RunNotFound(RunId),
    HookNotFound(Token),
    InboxFull { run: RunId, count: u64, bytes: u64 },
    KeyReused { owner: RunId, pointers: Vec<String> },
    CallReused { id: CallId, owner: RunId },
    DuplicateRun { owner: RunId, status: Status },
    Concurrency { run: RunId, expected: u64 },
    NodeLost(NodeId),
    OnceLost { label: Label, run: RunId },
    RecordChanged { kind: Name, id: RecordId },
    TooEarly { until: Time, now: Time },
    Refused { run: RunId, source: RefusedEntry },
    RunFinished { run: RunId, status: Status },
    Ended { run: RunId, outcome: Outcome },
    Unavailable,
    RateLimit(String),
    Unknown,
}

impl ErrorView {
    /// An error as it travels.
    pub fn of(error: &Error) -> Self {
        match error {
            Error::Validation(text) => Self::Validation(text.clone()),
            Error::Json(wrong) => Self::Json(wrong.clone()),
            Error::Key(_) | Error::Path(_) | Error::Id(_) => Self::Validation(error.to_string()),
            Error::RunNotFound(run) => Self::RunNotFound(*run),
            Error::HookNotFound(token) => Self::HookNotFound(token.clone()),
            Error::InboxFull { run, count, bytes } => {
                Self::InboxFull { run: *run, count: *count, bytes: *bytes }
            }
            Error::KeyReused { owner, pointers } => {
                Self::KeyReused { owner: *owner, pointers: pointers.clone() }
            }
            Error::CallReused { id, owner } => Self::CallReused { id: id.clone(), owner: *owner },
            Error::DuplicateRun { owner, status } => Self::DuplicateRun { owner: *owner, status: *status },
            Error::Concurrency { run, expected } => Self::Concurrency { run: *run, expected: *expected },
            Error::NodeLost(node) => Self::NodeLost(*node),
            Error::OnceLost { label, run } => Self::OnceLost { label: label.clone(), run: *run },
            Error::RecordChanged { kind, id } => Self::RecordChanged { kind: kind.clone(), id: id.clone() },
            Error::TooEarly { until, now } => Self::TooEarly { until: *until, now: *now },
            Error::Refused { run, source } => Self::Refused { run: *run, source: source.clone() },
            Error::RunFinished { run, status } => Self::RunFinished { run: *run, status: *status },
            Error::Ended { run, outcome } => Self::Ended { run: *run, outcome: (**outcome).clone() },
            Error::Unknown(_) => Self::Unknown,
            Error::Unavailable(source) if source.is::<LimitReached>() => Self::RateLimit(source.to_string()),
            Error::Unavailable(_)
            | Error::Corrupt { .. }
            | Error::NewerSchema { .. }
            | Error::Locked { .. }
            | Error::Open { .. }
            | Error::Database { .. } => Self::Unavailable,
        }
    }
}

impl From<ErrorView> for Error {
    fn from(view: ErrorView) -> Self {
        match view {
            ErrorView::Validation(text) => Self::Validation(text),
            ErrorView::Json(wrong) => Self::Json(wrong),
            ErrorView::RunNotFound(run) => Self::RunNotFound(run),
            ErrorView::HookNotFound(token) => Self::HookNotFound(token),
            ErrorView::InboxFull { run, count, bytes } => Self::InboxFull { run, count, bytes },
            ErrorView::KeyReused { owner, pointers } => Self::KeyReused { owner, pointers },
            ErrorView::CallReused { id, owner } => Self::CallReused { id, owner },
            ErrorView::DuplicateRun { owner, status } => Self::DuplicateRun { owner, status },
            ErrorView::Concurrency { run, expected } => Self::Concurrency { run, expected },
            ErrorView::NodeLost(node) => Self::NodeLost(node),
            ErrorView::OnceLost { label, run } => Self::OnceLost { label, run },
            ErrorView::RecordChanged { kind, id } => Self::RecordChanged { kind, id },
            ErrorView::TooEarly { until, now } => Self::TooEarly { until, now },
            ErrorView::Refused { run, source } => Self::Refused { run, source },
            ErrorView::RunFinished { run, status } => Self::RunFinished { run, status },
            ErrorView::Ended { run, outcome } => Self::Ended { run, outcome: outcome.into() },
            ErrorView::Unavailable => Self::Unavailable("the server's store does not answer".into()),
            ErrorView::RateLimit(text) => Self::Unavailable(Box::new(LimitReached(text))),
            ErrorView::Unknown => Self::Unknown("the server cannot tell".into()),
        }
    }
}
