//! The one error of the library, split by what the caller can do about it.

mod code;
pub mod failure_code;

pub use code::ErrorCode;

use crate::clock::Time;
use crate::id::{InvalidId, NodeId, RunId};
use crate::rules::entry::Outcome;
use crate::rules::json::InvalidJson;
use crate::rules::key::{CallId, InvalidKey, Label, RecordId, Token};
use crate::rules::ledger::RefusedEntry;
use crate::rules::path::{InvalidPath, Name};
use crate::rules::status::Status;

/// The result of everything that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the engine or a store. A call that answers with an error has changed nothing, except [`Error::Unknown`],
/// which says that the outcome is not known.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The request is not acceptable as it is; change it.
    #[error("{0}")]
    Validation(String),
    /// A value is not acceptable.
    #[error(transparent)]
    Json(#[from] InvalidJson),
    /// A key, token or label is not acceptable.
    #[error(transparent)]
    Key(#[from] InvalidKey),
    /// A name or path is not acceptable.
    #[error(transparent)]
    Path(#[from] InvalidPath),
    /// An id is not acceptable.
    #[error(transparent)]
    Id(#[from] InvalidId),

    /// There is no such run in this workspace.
    #[error("there is no run {0} in this workspace")]
    RunNotFound(RunId),
    /// No run owns the token now.
    #[error("no open hook has the token {0}; deliver when the run has opened it, or start with `deliver`")]
    HookNotFound(Token),

    /// The run has too many unconsumed messages; nothing was changed.
    #[error(
        "the inbox of {run} is full: it has {count} messages with {bytes} bytes that it has not consumed; deliver again when \
         it has, and check that a worker drives it"
    )]
    InboxFull {
        /// The run that owns the token.
        run: RunId,
        /// Number of unconsumed messages.
        count: u64,
        /// Their total length in bytes.
        bytes: u64,
    },

    /// The key belongs to a different request.
    #[error("the key is in use for another request: {owner} differs at {}; use another key, or send the same input", pointers.join(", "))]
    KeyReused {
        /// The run that has the key.
        owner: RunId,
        /// JSON pointers at which the requests differ.
        pointers: Vec<String>,
    },
    /// The call id was used for a different call.
    #[error("the call id {id} was used for another call on {owner}; use another id, or repeat the same call")]
    CallReused {
        /// The call id that was given.
        id: CallId,
        /// The run that was called under it.
        owner: RunId,
    },
    /// The policy refuses a duplicate.
    #[error(
        "{owner} exists under this key and is {status}: use that run, another key, or another `onConflict` policy"
    )]
    DuplicateRun {
        /// The run that has the key.
        owner: RunId,
        /// Status of that run.
        status: Status,
    },

    /// The run was modified concurrently; nothing was changed. Its former driver has lost it.
    #[error(
        "{run} is no longer at version {expected}: it was modified concurrently, and nothing was changed"
    )]
    Concurrency {
        /// The run that was to be modified.
        run: RunId,
        /// Version that the caller had seen.
        expected: u64,
    },
    /// The node's lease has ended and its runs are being taken over. A process that goes on must take a new node id.
    #[error("the lease of {0} has ended; its runs are driven by other nodes")]
    NodeLost(NodeId),
    /// Another run has got the right to settle the once.
    #[error("{run} may no longer settle {label}")]
    OnceLost {
        /// Label of the once.
        label: Label,
        /// The run that tried to settle it.
        run: RunId,
    },
    /// The record was changed concurrently; nothing was changed.
    #[error(
        "the {kind} {id} was modified concurrently, and nothing was changed: read it again and repeat the call"
    )]
    RecordChanged {
        /// Kind of the record.
        kind: Name,
        /// Id of the record.
        id: RecordId,
    },
    /// A timer was reported as fired before its time.
    #[error("the timer fires at {until}, and it is {now}")]
    TooEarly {
        /// Time at which the timer fires.
        until: Time,
        /// Present time of the store.
        now: Time,
    },
    /// The run's state does not allow the request.
    #[error("{run}: {source}")]
    Refused {
        /// The run that refused it.
        run: RunId,
        /// The reason in detail.
        source: RefusedEntry,
    },
    /// The run has already ended.
    #[error(
        "{run} has ended and is {status}: it takes nothing more; look at its outcome, fork it, or start another"
    )]
    RunFinished {
        /// The run that has ended.
        run: RunId,
        /// Status in which it ended.
        status: Status,
    },

    /// The run has ended without a result.
    #[error("{run} {}", said(outcome))]
    Ended {
        /// The run that has ended.
        run: RunId,
        /// How the run ended.
        outcome: Box<Outcome>,
    },

    /// The store cannot answer now; nothing was changed. Try again.
    #[error("the store is not available: {0}")]
    Unavailable(#[source] Source),
    /// The store lost its disk or its database while writing, and could not find out whether the write took place.
    /// Look it up before trying again.
    #[error("it is unknown whether the write took place: {0}")]
    Unknown(#[source] Source),
    /// The store holds invalid data.
    #[error("the store is damaged at {at}: {source}")]
    Corrupt {
        /// Place of the damage in the store.
        at: String,
        /// What is wrong there.
        source: Source,
    },
    /// The store was written by a newer Semel.
    #[error("the store has schema version {found}, this Semel knows up to {known}: use a newer Semel")]
    NewerSchema {
        /// Schema version of the store.
        found: i64,
        /// Newest schema version that this release knows.
        known: i64,
    },
    /// Another process has the store's file open.
    #[error(
        "{path} is open in another process (or twice in this one); a SQLite store has one process, use PostgreSQL for several"
    )]
    Locked {
        /// Path of the file.
        path: String,
    },
    /// The store could not be opened.
    #[error("cannot open {what}: {source}")]
    Open {
        /// The store that could not be opened.
        what: String,
        /// The reason in detail.
        source: Source,
    },
    /// A database of the user's refused a call that belongs to no run, such as [`tx::install`](crate::tx::install).
    #[error("{what}: {source}")]
    Database {
        /// The database, or what was to be done in it.
        what: String,
        /// Error of the database's driver.
        source: Source,
    },
}

fn said(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Completed(_) => "has completed".to_owned(),
        Outcome::Failed(failure) => format!("has failed: {failure}"),
        Outcome::Cancelled(reason) => format!("was cancelled: {reason}"),
        Outcome::TimedOut => "has timed out".to_owned(),
        Outcome::Purged(status) => format!("has ended as {status}, and its result is no longer kept"),
    }
}

/// An error of an underlying library.
pub type Source = Box<dyn std::error::Error + Send + Sync>;

impl Error {
    /// Upper-case error code, as used on the wire: the text of [`kind`](Self::kind).
    pub fn code(&self) -> &'static str {
        self.kind().as_str()
    }

    /// The code of the error, as a value of its enum.
    pub fn kind(&self) -> ErrorCode {
        match self {
            Self::Json(InvalidJson::TooLarge(_)) => ErrorCode::PayloadTooLarge,
            Self::Validation(_) | Self::Json(_) | Self::Key(_) | Self::Path(_) | Self::Id(_) => {
                ErrorCode::Validation
            }
            Self::RunNotFound(_) => ErrorCode::NotFound,
            Self::HookNotFound(_) => ErrorCode::HookNotFound,
            Self::InboxFull { .. } => ErrorCode::InboxFull,
            Self::KeyReused { .. } | Self::CallReused { .. } => ErrorCode::KeyReused,
            Self::DuplicateRun { .. } => ErrorCode::DuplicateRun,
            Self::Concurrency { .. }
            | Self::NodeLost(_)
            | Self::OnceLost { .. }
            | Self::RecordChanged { .. } => ErrorCode::Concurrency,
            Self::TooEarly { .. } | Self::Refused { .. } => ErrorCode::InvalidTransition,
            Self::RunFinished { .. } | Self::Ended { .. } => ErrorCode::RunFinished,
            Self::Unavailable(_)
            | Self::Unknown(_)
            | Self::Corrupt { .. }
            | Self::NewerSchema { .. }
            | Self::Locked { .. }
            | Self::Open { .. }
            | Self::Database { .. } => ErrorCode::Unavailable,
        }
    }

    /// HTTP status code of the error.
    pub fn status(&self) -> u16 {
        self.kind().status()
    }

    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::TooEarly { .. } => true,
            // Waiting repairs none of these; after `Unknown` the outcome must be looked up first.
            Self::Unknown(_)
            | Self::Corrupt { .. }
            | Self::NewerSchema { .. }
            | Self::Locked { .. }
            | Self::Open { .. } => false,
            _ => self.kind().is_retryable(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn codes_have_their_status() {
        let run = RunId(Uuid::nil());
        let table: [(Error, &str, u16); 5] = [
            (Error::Concurrency { run, expected: 1 }, "CONCURRENCY_ERROR", 409),
            (Error::KeyReused { owner: run, pointers: vec![] }, "KEY_REUSED", 422),
            (InvalidJson::TooLarge(3).into(), "PAYLOAD_TOO_LARGE", 413),
            (Error::RunNotFound(run), "NOT_FOUND", 404),
            (Error::Unavailable("x".into()), "UNAVAILABLE", 503),
        ];
        for (error, code, status) in table {
            assert_eq!((error.code(), error.status()), (code, status));
        }
    }

    #[test]
    fn an_unknown_outcome_is_not_simply_retried() {
        assert!(Error::Unavailable("x".into()).is_retryable());
        assert!(!Error::Unknown("x".into()).is_retryable());
        assert!(!Error::RunNotFound(RunId(Uuid::nil())).is_retryable());
    }
}
