//! What an error of a database means for a step: its code, its SQLSTATE, and whether another try can mend it.

use std::error::Error as StdError;

use semel::tx::deadpool_postgres::PoolError;
use semel::tx::{rusqlite, tokio_postgres};
use semel::{Fail, fatal};
use serde_json::json;

use crate::connections::Redactor;
use semel::error::failure_code;

/// Classes and states of SQL after which the same statement may succeed: conflicts, lack of resources, a server that is restarted, and
/// a session that was killed (`70100` is MariaDB's and MySQL's).
const PASSING: [&str; 10] = ["08", "53", "57P", "40", "55P03", "55006", "57014", "58", "25P03", "70100"];

/// What a database said.
struct SaidByDatabase {
    message: String,
    /// SQLSTATE, or the name of the error where the database has none.
    state: Option<String>,
    /// Whether the same statement may succeed later.
    passes: bool,
    /// Whether the database was not reached, or its fence table is missing: an operator can mend that.
    is_connection: bool,
}

/// An error of a database, with its code, without the connection's secrets. Failures that have a code already stay as they are.
pub(crate) fn coded(fail: Fail, redactor: &Redactor) -> Fail {
    if fail.code().is_some() {
        return fail;
    }
    let Some(said) = fail.source().and_then(said) else { return plain(&fail, redactor) };
    let message = redactor.text(&said.message);
    let fail = if said.passes { Fail::retryable(message) } else { fatal(message) };
    if said.is_connection {
        return fail.with_code(failure_code::CONNECTION);
    }
    let fail = fail.with_code(failure_code::SQL);
    match said.state {
        Some(state) => fail.with_data(&json!({"state": state})),
        None => fail,
    }
}

/// A failure of the way to the database: a pool that is exhausted, a file that cannot be opened.
fn plain(fail: &Fail, redactor: &Redactor) -> Fail {
    let message = redactor.text(&fail.to_string());
    if fail.is_fatal() {
        fatal(message).with_code(failure_code::SQL)
    } else {
        Fail::retryable(message).with_code(failure_code::CONNECTION)
    }
}

fn said(error: &(dyn StdError + Send + Sync + 'static)) -> Option<SaidByDatabase> {
    if let Some(error) = error.downcast_ref::<tokio_postgres::Error>() {
        return Some(postgres(error));
    }
    if let Some(PoolError::Backend(error)) = error.downcast_ref::<PoolError>() {
        return Some(SaidByDatabase { is_connection: true, passes: true, ..postgres(error) });
    }
    if let Some(error) = error.downcast_ref::<rusqlite::Error>() {
        return Some(sqlite(error));
    }
    #[cfg(feature = "mysql")]
    if let Some(error) = error.downcast_ref::<semel::tx::sqlx::Error>() {
        return Some(mysql(error));
    }
    None
}

fn passes(state: &str) -> bool {
    PASSING.iter().any(|passing| state.starts_with(passing))
}

fn postgres(error: &tokio_postgres::Error) -> SaidByDatabase {
    let Some(db) = error.as_db_error() else {
        // Without an answer of the server: a broken line. An argument that cannot be sent says so by its source.
        let own = error.source().and_then(|source| source.downcast_ref::<super::postgres::NotSendable>());
        if let Some(own) = own {
            return SaidByDatabase {
                message: own.to_string(),
                state: None,
                passes: false,
                is_connection: false,
            };
        }
        let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
        return SaidByDatabase {
            message: format!("{error}{cause}"),
            state: None,
            passes: true,
            is_connection: true,
        };
    };
    let state = db.code().code();
    let detail = db.detail().map(|detail| format!(": {detail}")).unwrap_or_default();
    let hint = db.hint().map(|hint| format!(" ({hint})")).unwrap_or_default();
    let message = format!("{}{detail}{hint}", db.message());
    SaidByDatabase { message, state: Some(state.to_owned()), passes: passes(state), is_connection: false }
}

fn sqlite(error: &rusqlite::Error) -> SaidByDatabase {
    use rusqlite::ErrorCode as Code;
    let rusqlite::Error::SqliteFailure(failure, message) = error else {
        return SaidByDatabase {
            message: error.to_string(),
            state: None,
            passes: false,
            is_connection: false,
        };
    };
    let passes = matches!(
        failure.code,
        Code::DatabaseBusy
            | Code::DatabaseLocked
            | Code::DiskFull
            | Code::SystemIoFailure
            | Code::OutOfMemory
            | Code::OperationInterrupted
            | Code::CannotOpen
    );
    let message = message.clone().unwrap_or_else(|| failure.to_string());
    // SQLite has no SQLSTATE: its own number, and the name that its manual has.
    let state = format!("SQLITE_{}", failure.extended_code);
    SaidByDatabase {
        message,
        state: Some(state),
        passes,
        is_connection: matches!(failure.code, Code::CannotOpen),
    }
}

#[cfg(feature = "mysql")]
fn mysql(error: &semel::tx::sqlx::Error) -> SaidByDatabase {
    let Some(db) = error.as_database_error() else {
        let is_use =
            matches!(error, semel::tx::sqlx::Error::ColumnDecode { .. } | semel::tx::sqlx::Error::Encode(_));
        return SaidByDatabase {
            message: error.to_string(),
            state: None,
            passes: !is_use,
            is_connection: !is_use,
        };
    };
    let state = db.code().map(std::borrow::Cow::into_owned).unwrap_or_default();
    // A lock that was waited for too long has the state of everything else.
    let is_lock = db
        .try_downcast_ref::<semel::tx::sqlx::mysql::MySqlDatabaseError>()
        .is_some_and(|error| matches!(error.number(), 1205 | 1213 | 3024 | 1969));
    let passes = is_lock || passes(&state);
    SaidByDatabase { message: db.message().to_owned(), state: Some(state), passes, is_connection: false }
}
