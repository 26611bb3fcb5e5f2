//! Rows as the rules know them: how a run is looked up and read, and how numbers and errors are translated.

use std::sync::Arc;

use tokio_postgres::Row;
use tokio_postgres::error::{Severity, SqlState};
use tokio_postgres::types::FromSql;

use crate::clock::Time;
use crate::error::{Error, Result, Source};
use crate::id::{NodeId, RunId, WorkspaceId};
use crate::rules::attention::Attention;
use crate::rules::key::{Fingerprint, Key, Scope};
use crate::rules::path::Name;
use crate::rules::run::{NewRun, Retention, Run, RunState};
use crate::rules::status::Status;
use crate::store::tx::{LedgerRow, Race, duration};

/// The database's time in milliseconds; never rounded up, or a timer could fire early.
macro_rules! clock {
    () => {
        "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
    };
}

/// The columns of a run, in the order in which [`run_of`] reads them.
macro_rules! run_columns {
    () => {
        "r.num, r.id, r.workspace, r.workflow, r.workflow_version, r.scope, r.key, r.fingerprint, r.lineage, r.parent, \
         r.keep_history, r.keep_key, r.created, r.status, r.version, r.due, r.node, r.stalls, r.ended, r.purge, \
         r.holds_key, r.ties, r.arrivals, r.purged, r.deadline, r.attention"
    };
}

/// Selects whole runs.
macro_rules! select_run {
    ($rest:expr) => {
        concat!("SELECT ", $crate::store::postgres::rows::run_columns!(), " ", $rest)
    };
}

pub(super) use {clock, run_columns, select_run};

/// How one run is looked up: to change it, and only to read it.
pub(super) struct Lookup {
    /// Locks it.
    pub(super) locked: &'static str,
    /// Locks nothing. Brings the time along, also if there is no such run (its columns are null then), and of a run that
    /// has ended the end of its ledger: header and outcome are of one moment and one round trip, without a transaction.
    pub(super) read: &'static str,
}

/// How many commits from the end a [`Lookup::read`] brings along.
pub(super) const TAIL: usize = 4;

/// The end of a run's ledger, if the run has ended, as `t`.
macro_rules! tail_of {
    ($run:literal, $entries:literal) => {
        concat!(
            "LEFT JOIN LATERAL (SELECT array_agg(l.seq) AS seqs, array_agg(l.at) AS ats, array_agg(",
            $entries,
            ") AS texts FROM (SELECT seq, at, entries FROM ledger WHERE run = ",
            $run,
            ".num AND ",
            $run,
            ".status >= 4 AND NOT ",
            $run,
            ".purged ORDER BY seq DESC LIMIT 4) l) t ON true"
        )
    };
}

macro_rules! lookup {
    ($from:literal) => {
        Lookup {
            locked: select_run!(concat!($from, " FOR NO KEY UPDATE OF r")),
            read: concat!(
                "SELECT f.*, ",
                clock!(),
                ", t.seqs, t.ats, t.texts FROM (SELECT) one LEFT JOIN (",
                select_run!($from),
                ") f ON true ",
                tail_of!("f", "l.entries")
            ),
        }
    };
}

pub(super) const BY_ID: Lookup = lookup!("FROM runs r WHERE r.id = $1");
pub(super) const BY_NUM: Lookup = lookup!("FROM runs r WHERE r.num = $1");
pub(super) const BY_KEY: Lookup =
    lookup!("FROM runs r WHERE r.workspace = $1 AND r.scope = $2 AND r.key = $3 AND r.holds_key");
pub(super) const BY_TOKEN: Lookup =
    lookup!("FROM hooks h JOIN runs r ON r.num = h.run WHERE h.workspace = $1 AND h.token = $2");

/// Many look-ups by key at once, like [`Lookup::read`], and which of the keys each row is for. One row without a run if
/// none is found: the time is told in any case. Commits above 8 KiB do not come along, but a null in their place: a thousand
/// runs are looked up at once, and each may have ended with megabytes.
pub(super) const LOOK_UP_KEYS: &str = concat!(
    "SELECT ",
    run_columns!(),
    ", c.now, t.seqs, t.ats, t.texts, k.place FROM (SELECT ",
    clock!(),
    " AS now) c LEFT JOIN (unnest($1::uuid[], $2::text[], $3::text[]) WITH ORDINALITY AS k (workspace, scope, key, place) \
     JOIN runs r ON r.workspace = k.workspace AND r.scope = k.scope AND r.key = k.key AND r.holds_key) ON true ",
    tail_of!("r", "CASE WHEN octet_length(l.entries) <= 8192 THEN l.entries END")
);
/// The column of a [`LOOK_UP_KEYS`] row that says which.
pub(super) const PLACE: usize = 30;

/// Reads the columns of a run.
pub(super) fn run_of(row: &Row) -> Result<Run> {
    let fingerprint: &[u8] = column(row, 7)?;
    Ok(Run {
        num: column(row, 0)?,
        new: Arc::new(NewRun {
            id: RunId(column(row, 1)?),
            workspace: WorkspaceId(column(row, 2)?),
            workflow: name(row, 3)?,
            workflow_version: name(row, 4)?,
            scope: Scope::stored(column(row, 5)?),
            key: Key::new(column::<String>(row, 6)?).map_err(|e| corrupt(row, e))?,
            fingerprint: fingerprint_of(fingerprint).map_err(|e| corrupt(row, e))?,
            lineage: RunId(column(row, 8)?),
            parent: column::<Option<_>>(row, 9)?.map(RunId),
            retention: Retention { history: duration(column(row, 10)?), key: duration(column(row, 11)?) },
            created: Time(column(row, 12)?),
        }),
        state: RunState {
            status: status_of(row, 13)?,
            version: column::<i64>(row, 14)? as u64,
            due: time(row, 15)?,
            node: column::<Option<_>>(row, 16)?.map(NodeId),
            stalls: column::<i32>(row, 17)? as u32,
            ended: time(row, 18)?,
            purge: time(row, 19)?,
            deadline: time(row, 24)?,
            holds_key: column(row, 20)?,
            ties: column(row, 21)?,
            attention: attention_of(row, 25)?,
        },
        arrivals: column::<i64>(row, 22)? as u64,
        purged: column(row, 23)?,
    })
}

/// The time that a [`Lookup::read`] brings along.
pub(super) fn time_beside(row: &Row) -> Result<Time> {
    Ok(Time(column(row, 26)?))
}

/// The end of the ledger that a [`Lookup::read`] brings along, the latest first; none if some of it was too long to come along.
pub(super) fn tail_beside(row: &Row, num: i64) -> Result<Option<Vec<LedgerRow>>> {
    let seqs: Option<Vec<i64>> = column(row, 27)?;
    let ats: Option<Vec<i64>> = column(row, 28)?;
    let texts: Option<Vec<Option<String>>> = column(row, 29)?;
    let commits = seqs.into_iter().flatten().zip(ats.into_iter().flatten()).zip(texts.into_iter().flatten());
    let of = |((seq, at), text): ((i64, i64), Option<String>)| {
        Some(LedgerRow { num, seq: seq as u64, at: Time(at), text: text? })
    };
    Ok(commits.map(of).collect())
}

pub(super) fn column<'a, T: FromSql<'a>>(row: &'a Row, index: usize) -> Result<T> {
    row.try_get(index).map_err(|e| corrupt(row, e))
}

pub(super) fn time(row: &Row, index: usize) -> Result<Option<Time>> {
    Ok(column::<Option<i64>>(row, index)?.map(Time))
}

pub(super) fn status_of(row: &Row, index: usize) -> Result<Status> {
    let code = column(row, index)?;
    Status::from_code(code).ok_or_else(|| corrupt(row, format!("{code} is no status")))
}

fn attention_of(row: &Row, index: usize) -> Result<Option<Attention>> {
    let Some(code) = column(row, index)? else { return Ok(None) };
    let kind = Attention::from_code(code);
    kind.map(Some).ok_or_else(|| corrupt(row, format!("{code} is no kind of a pause")))
}

pub(super) fn name(row: &Row, index: usize) -> Result<Name> {
    Name::new(column(row, index)?).map_err(|e| corrupt(row, e))
}

pub(super) fn fingerprint_of(bytes: &[u8]) -> Result<Fingerprint, std::array::TryFromSliceError> {
    bytes.try_into().map(Fingerprint)
}

/// A value that this version cannot have written.
pub(super) fn corrupt(row: &Row, source: impl Into<Source>) -> Error {
    let columns: Vec<_> = row.columns().iter().map(tokio_postgres::Column::name).collect();
    let first: Option<i64> = row.try_get(0).ok();
    Error::Corrupt { at: format!("row {first:?} of ({})", columns.join(", ")), source: source.into() }
}

/// A limit as it is sent.
pub(super) fn bigint(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// Nothing was written, and the caller may try again; unless the statement itself can never succeed.
pub(super) fn unavailable(error: tokio_postgres::Error) -> Error {
    match error.code() {
        // Names of the greatest length, of characters of the greatest length, all in one index entry.
        Some(&SqlState::PROGRAM_LIMIT_EXCEEDED) => Error::Validation(error.to_string()),
        _ => Error::Unavailable(Box::new(error)),
    }
}

/// Whether the server has refused the statement and said so: then it has certainly not been executed. Anything else,
/// a connection that is gone or a server that goes down, leaves that open.
pub(super) fn is_refused(error: &tokio_postgres::Error) -> bool {
    error.as_db_error().is_some_and(|error| error.parsed_severity() == Some(Severity::Error))
}

/// Whether the statement met others in a way that may not happen again.
pub(super) fn is_collision(error: &tokio_postgres::Error) -> bool {
    matches!(error.code(), Some(&SqlState::T_R_DEADLOCK_DETECTED | &SqlState::T_R_SERIALIZATION_FAILURE))
}

/// Whether a verb that failed like this, before its COMMIT, is to be run again.
pub(super) fn runs_again(error: &Error) -> bool {
    let Error::Unavailable(source) = error else { return false };
    match source.downcast_ref::<tokio_postgres::Error>() {
        // A connection from the pool may have died since it was last used. The next one is another, or cannot be had.
        Some(error) => is_collision(error) || !is_refused(error),
        None => source.is::<Race>(),
    }
}
