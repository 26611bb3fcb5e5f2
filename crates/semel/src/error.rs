//! The one error of the library, split by what the caller can do about it.

use crate::clock::Time;
use crate::id::{InvalidId, NodeId, RunId};
use crate::rules::entry::Outcome;
use crate::rules::json::InvalidJson;
use crate::rules::key::{CallId, InvalidKey, Label, RecordId, Token};
use crate::rules::ledger::Refused;
use crate::rules::path::{InvalidPath, Name};
use crate::rules::status::Status;

/// The result of everything that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong. Nothing is half done: a call that answers with an error has changed nothing, except
/// [`Error::Unknown`], which says that it cannot tell.
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
    /// Nobody owns the token now.
    #[error("no open hook has the token {0}; deliver when the run has opened it, or start with `deliver`")]
    HookNotFound(Token),

    /// The run has too many messages that it has not consumed; nothing was changed.
    #[error(
        "the inbox of {run} is full: it has {count} messages with {bytes} bytes that it has not consumed; deliver again when \
         it has, and look whether a worker drives it"
    )]
    InboxFull {
        /// The owner of the token.
        run: RunId,
        /// How many messages it has not consumed.
        count: u64,
        /// How long they are together, in bytes.
        bytes: u64,
    },

    /// The key stands for another request.
    #[error("the key is in use for another request: {owner} differs at {}; use another key, or send the same input", pointers.join(", "))]
    KeyReused {
        /// The run that has the key.
        owner: RunId,
        /// Where the requests differ.
        pointers: Vec<String>,
    },
    /// The call id stands for another call.
    #[error("the call id {id} was used for another call on {owner}; use another id, or repeat the same call")]
    CallReused {
        /// The id.
        id: CallId,
        /// The run that was called.
        owner: RunId,
    },
    /// The policy refuses a duplicate.
    #[error(
        "{owner} exists under this key and is {status}: take it for yours, use another key, or another `onConflict` policy"
    )]
    DuplicateRun {
        /// The run that has the key.
        owner: RunId,
        /// Its state.
        status: Status,
    },

    /// Somebody else has written to the run; nothing was changed. Whoever drove it has lost it.
    #[error(
        "{run} is no longer at version {expected}: it was modified concurrently, and nothing was changed"
    )]
    Concurrency {
        /// The run.
        run: RunId,
        /// The version the caller had seen.
        expected: u64,
    },
    /// The node's lease has ended and its runs are being taken over. A process that goes on takes a new node id.
    #[error("the lease of {0} has ended; its runs belong to others now")]
    NodeLost(NodeId),
    /// The right to settle a once has gone to somebody else.
    #[error("{run} may no longer settle {label}")]
    OnceLost {
        /// The label.
        label: Label,
        /// The run that tried.
        run: RunId,
    },
    /// Somebody else has written the record; nothing was changed.
    #[error("the {kind} {id} is not as it was expected to be: look at it again, and decide anew")]
    RecordChanged {
        /// What it is a record of.
        kind: Name,
        /// Its id.
        id: RecordId,
    },
    /// A timer was said to have fired before its time.
    #[error("the timer fires at {until}, and it is {now}")]
    TooEarly {
        /// The timer's time.
        until: Time,
        /// The store's time.
        now: Time,
    },
    /// The run's state does not allow it.
    #[error("{run}: {source}")]
    Refused {
        /// The run.
        run: RunId,
        /// Why.
        source: Refused,
    },
    /// The run has ended.
    #[error(
        "{run} has ended and is {status}: it takes nothing more; look at its outcome, fork it, or start another"
    )]
    RunFinished {
        /// The run.
        run: RunId,
        /// Its state.
        status: Status,
    },

    /// The run has ended, but not with a result.
    #[error("{run} {}", said(outcome))]
    Ended {
        /// The run.
        run: RunId,
        /// How it ended.
        outcome: Outcome,
    },

    /// The store cannot answer now; nothing was changed. Try again.
    #[error("the store is not available: {0}")]
    Unavailable(#[source] Source),
    /// The store lost its disk or its database while writing, and could not find out whether the write took place.
    /// Look it up before trying again.
    #[error("it is unknown whether the write took place: {0}")]
    Unknown(#[source] Source),
    /// The store holds something that it should not.
    #[error("the store is damaged at {at}: {source}")]
    Corrupt {
        /// Where.
        at: String,
        /// What is wrong.
        source: Source,
    },
    /// The store was written by a newer Semel.
    #[error("the store has schema version {found}, this Semel knows up to {known}: use a newer Semel")]
    NewerSchema {
        /// What the store says.
        found: i64,
        /// What this version knows.
        known: i64,
    },
    /// Another process has the file open.
    #[error(
        "{path} is open in another process (or twice in this one); a SQLite store has one process, use PostgreSQL for several"
    )]
    Locked {
        /// The file.
        path: String,
    },
    /// The store could not be opened.
    #[error("cannot open {what}: {source}")]
    Open {
        /// What.
        what: String,
        /// Why.
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

/// An error of a library below.
pub type Source = Box<dyn std::error::Error + Send + Sync>;

impl Error {
    /// The upper-case word for it on the wire.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Json(InvalidJson::TooLarge(_)) => "PAYLOAD_TOO_LARGE",
            Self::Validation(_) | Self::Json(_) | Self::Key(_) | Self::Path(_) | Self::Id(_) => {
                "VALIDATION_ERROR"
            }
            Self::RunNotFound(_) => "NOT_FOUND",
            Self::HookNotFound(_) => "HOOK_NOT_FOUND",
            Self::InboxFull { .. } => "INBOX_FULL",
            Self::KeyReused { .. } | Self::CallReused { .. } => "KEY_REUSED",
            Self::DuplicateRun { .. } => "DUPLICATE_RUN",
            Self::Concurrency { .. }
            | Self::NodeLost(_)
            | Self::OnceLost { .. }
            | Self::RecordChanged { .. } => "CONCURRENCY_ERROR",
            Self::TooEarly { .. } | Self::Refused { .. } => "INVALID_TRANSITION",
            Self::RunFinished { .. } | Self::Ended { .. } => "RUN_FINISHED",
            Self::Unavailable(_)
            | Self::Unknown(_)
            | Self::Corrupt { .. }
            | Self::NewerSchema { .. }
            | Self::Locked { .. }
            | Self::Open { .. } => "UNAVAILABLE",
        }
    }

    /// The HTTP status for it.
    pub fn status(&self) -> u16 {
        match self.code() {
            "VALIDATION_ERROR" => 400,
            "NOT_FOUND" | "HOOK_NOT_FOUND" => 404,
            "PAYLOAD_TOO_LARGE" => 413,
            "KEY_REUSED" => 422,
            "INBOX_FULL" => 429,
            "UNAVAILABLE" => 503,
            _ => 409,
        }
    }

    /// Whether the very same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::Unavailable(_) | Self::HookNotFound(_) | Self::InboxFull { .. } | Self::TooEarly { .. }
        )
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
}
