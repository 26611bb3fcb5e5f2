//! New runs: a header, the head of a ledger and its first row each.
//!
//! Runs that were asked for without a key are inserted several at a time. To begin a statement, to open a table with its
//! indexes and to close them again takes longer than a row.

use std::sync::LazyLock;

use rusqlite::types::ToSqlOutput;
use rusqlite::{CachedStatement, ErrorCode};

use super::job::{StartJob, Work};
use super::steps::{self, NewRow};
use super::tx::{SqliteStoreTx, failed};
use crate::error::Result;
use crate::rules::run::{NewRun, RunState};
use crate::rules::status::Status;
use crate::store::tx::millis;
use crate::store::verbs::NewStart;

/// Numbers of runs that one statement inserts. The largest that fits is used first, the rest goes to the next.
const ROWS: [usize; 3] = [16, 4, 1];

/// A run that may be there already is not inserted again.
pub(super) static HEADER: LazyLock<String> =
    LazyLock::new(|| format!("INSERT INTO {} ON CONFLICT DO NOTHING", headers(1)));
pub(super) static HEAD: LazyLock<String> = LazyLock::new(|| format!("INSERT INTO {}", heads(1)));

/// The statements for one of these numbers of runs. `OR FAIL`, as for the rows of the ledger: what fails is the end of its transaction.
struct Sql {
    headers: String,
    heads: String,
    ledgers: String,
}

static SQL: LazyLock<[Sql; ROWS.len()]> = LazyLock::new(|| {
    ROWS.map(|rows| Sql {
        headers: format!("INSERT OR FAIL INTO {}", headers(rows)),
        heads: format!("INSERT OR FAIL INTO {}", heads(rows)),
        ledgers: steps::insert(rows),
    })
});

fn headers(rows: usize) -> String {
    let values = vec!["(?,?,0,?,?,?,?,?,?,0,?,?,?,?,?,?,?,?,?,?,?,?,?)"; rows].join(", ");
    format!(
        "runs (num, status, arrivals, due, node, ended, purge, holds_key, ties, purged, id, workspace, workflow, \
         workflow_version, scope, key, fingerprint, lineage, parent, keep_history, keep_key, created, deadline) VALUES {values}"
    )
}

fn heads(rows: usize) -> String {
    let values = vec!["(?, ?, ?, ?, ?, ?)"; rows].join(", ");
    format!("heads (num, version, last, first, running, stalls) VALUES {values}")
}

/// A run's row.
pub(super) struct Header<'a> {
    pub(super) num: i64,
    pub(super) new: &'a NewRun,
    pub(super) state: &'a RunState,
}

impl Header<'_> {
    /// Binds it as the `n`th row of a statement.
    pub(super) fn bind(&self, statement: &mut CachedStatement<'_>, n: usize) -> rusqlite::Result<()> {
        let Self { num, new, state } = self;
        let mut next = ParameterBinder { statement, place: n * 21 };
        next.bind(num)?;
        next.bind(state.status)?;
        next.bind(state.due)?;
        next.bind(state.node)?;
        next.bind(state.ended)?;
        next.bind(state.purge)?;
        next.bind(state.holds_key)?;
        next.bind(state.ties)?;
        next.bind(new.id)?;
        next.bind(new.workspace)?;
        next.bind(new.workflow.as_str())?;
        next.bind(new.workflow_version.as_str())?;
        next.bind(new.scope.as_str())?;
        next.bind(new.key.as_str())?;
        next.bind(new.fingerprint.0)?;
        next.bind(new.lineage)?;
        next.bind(new.parent)?;
        next.bind(millis(new.retention.history))?;
        next.bind(millis(new.retention.key))?;
        next.bind(new.created)?;
        next.bind(state.deadline)
    }
}

/// Column `running` of the head of a ledger.
#[derive(Clone, Copy)]
pub(super) enum RunningFlag {
    No = 0,
    Yes = 1,
    /// Yes, and rows elsewhere change when it ends.
    Tied = 2,
}

impl RunningFlag {
    pub(super) fn of(state: &RunState) -> Self {
        match (state.status == Status::Running, state.ties) {
            (false, _) => Self::No,
            (true, false) => Self::Yes,
            (true, true) => Self::Tied,
        }
    }
}

impl rusqlite::ToSql for RunningFlag {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok((*self as i64).into())
    }
}

/// The head of a ledger whose first and last row, if it has any, is `row`.
pub(super) struct Head<'a> {
    pub(super) num: i64,
    pub(super) state: &'a RunState,
    pub(super) row: Option<i64>,
}

impl Head<'_> {
    /// Binds it as the `n`th row of a statement.
    pub(super) fn bind(&self, statement: &mut CachedStatement<'_>, n: usize) -> rusqlite::Result<()> {
        let Self { num, state, row } = self;
        let mut next = ParameterBinder { statement, place: n * 6 };
        next.bind(num)?;
        next.bind(state.version)?;
        next.bind(row)?;
        next.bind(row)?;
        next.bind(RunningFlag::of(state))?;
        next.bind(state.stalls)
    }
}

/// The next place of a statement.
struct ParameterBinder<'a, 'c> {
    statement: &'a mut CachedStatement<'c>,
    place: usize,
}

impl ParameterBinder<'_, '_> {
    fn bind(&mut self, value: impl rusqlite::ToSql) -> rusqlite::Result<()> {
        self.place += 1;
        self.statement.raw_bind_parameter(self.place, value)
    }
}

/// Result of inserting the starts of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inserted {
    /// They are inserted, but for those of a node that is dead. Those are left to their verb.
    Done,
    /// One of them exists already, or its id is the key of another run: the transaction has to be rolled back.
    Repeated,
}

/// Inserts the starts of a batch that have no key.
pub(super) fn insert(tx: &mut SqliteStoreTx, batch: &mut [Work]) -> Result<Inserted> {
    let mut starts = Vec::new();
    for work in batch {
        if let Work::Start(start) = work
            && tx.is_free_to(start.new.state.node)?
        {
            starts.push(&mut **start);
        }
    }
    let mut starts = &mut starts[..];
    for (rows, sql) in ROWS.into_iter().zip(&*SQL) {
        let whole = starts.len() / rows * rows;
        let (these, rest) = starts.split_at_mut(whole);
        if whole > 0 && insert_all(tx, sql, these.chunks_exact_mut(rows))? == Inserted::Repeated {
            return Ok(Inserted::Repeated);
        }
        starts = rest;
    }
    Ok(Inserted::Done)
}

/// Inserts them, as many at a time as the statements take.
fn insert_all<'a>(
    tx: &mut SqliteStoreTx,
    sql: &Sql,
    starts: impl Iterator<Item = &'a mut [&'a mut StartJob]>,
) -> Result<Inserted> {
    let SqliteStoreTx { conn, now, writes, last_row, last_num, heads: remembered, .. } = tx;
    let prepare = |sql| conn.prepare_cached(sql).map_err(failed);
    let (mut headers, mut heads) = (prepare(&sql.headers)?, prepare(&sql.heads)?);
    let mut ledgers = prepare(&sql.ledgers)?;
    for starts in starts {
        for (n, start) in starts.iter_mut().enumerate() {
            let NewStart { new, state, text, .. } = &start.new;
            (*last_num, *last_row) = (*last_num + 1, *last_row + 1);
            let (num, row) = (*last_num, *last_row);
            Header { num, new, state }.bind(&mut headers, n).map_err(failed)?;
            NewRow { row, prev: None, num, seq: 0, at: *now, text }.bind(&mut ledgers, n).map_err(failed)?;
            Head { num, state, row: Some(row) }.bind(&mut heads, n).map_err(failed)?;
            remembered.remember(num, state.version, row);
            start.num = Some(num);
        }
        match headers.raw_execute() {
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {
                return Ok(Inserted::Repeated);
            }
            executed => executed.map_err(failed)?,
        };
        ledgers.raw_execute().and_then(|_| heads.raw_execute()).map_err(failed)?;
        writes.set(writes.get() + starts.len());
    }
    Ok(Inserted::Done)
}

#[cfg(test)]
pub(super) mod tests {
    use std::path::Path;
    use std::time::Duration;

    use uuid::Uuid;

    use crate::clock::{Clock as _, SystemClock};
    use crate::id::{NodeId, RunId, WorkspaceId};
    use crate::rules::control::{Control, ControlAction};
    use crate::rules::json::Payload;
    use crate::rules::path::Name;
    use crate::rules::run::Retention;
    use crate::rules::start::Start;
    use crate::rules::status::Status;
    use crate::store::sqlite::{SqliteOptions, SqliteStore};
    use crate::store::{Find, FindBy, Lease, LeaseAct, Store as _, Sweep};

    const WORKSPACE: WorkspaceId = WorkspaceId::DEFAULT;

    async fn open(folder: &Path) -> SqliteStore {
        SqliteStore::open(SqliteOptions::new(folder.join("semel.db"))).await.unwrap()
    }

    pub(crate) fn start() -> Start {
        let run = RunId(SystemClock::new().uuid());
        Start::new(WORKSPACE, run, Name::new("order").unwrap(), Payload::null(), None)
    }

    /// Enough for whole statements, and some that are left over; for a live node, a dead one, and without a node.
    #[tokio::test]
    async fn starts_at_the_same_time_are_kept_as_they_are_answered() {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path()).await;
        let (alive, dead) = (NodeId(Uuid::from_u128(7)), NodeId(Uuid::from_u128(8)));
        store.lease(Lease { node: alive, act: LeaseAct::Join(Duration::from_secs(9)) }).await.unwrap();
        let mut asked = tokio::task::JoinSet::new();
        for claim in [None, Some(alive), Some(dead)].into_iter().cycle().take(50) {
            let store = store.clone();
            asked.spawn(async move { (claim, store.start(Start { claim, ..start() }).await.unwrap()) });
        }
        let mut nums = std::collections::HashSet::new();
        for (claim, started) in asked.join_all().await {
            let status = if claim == Some(alive) { Status::Running } else { Status::Pending };
            assert_eq!(started.run.status(), status, "{claim:?}");
            assert!(nums.insert(started.run.num));
            let found = store.find(Find { workspace: WORKSPACE, by: FindBy::Id(started.run.id()) });
            assert_eq!(found.await.unwrap().unwrap().0, started.run);
            let ledger = store.ledger(WORKSPACE, started.run.id(), 1).await.unwrap();
            let entries: Vec<_> = ledger.into_iter().map(|numbered| numbered.entry).collect();
            assert_eq!(entries, started.entries);
        }
        store.close().await.unwrap();
    }

    /// A driver that still has the number of a forgotten run must not find another run under it.
    #[tokio::test]
    async fn a_number_is_not_given_again_after_its_run_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path()).await;
        let soon = Retention { history: Duration::ZERO, key: Duration::ZERO };
        let run = store.start(Start { retention: soon, ..start() }).await.unwrap().run;
        let action = ControlAction::Cancel { reason: "no longer wanted".to_owned() };
        let (run_id, by) = (run.id(), "test".to_owned());
        let cancel = Control { workspace: WORKSPACE, run: run_id, action, by, id: None, expected: None };
        store.control(cancel).await.unwrap();
        assert_eq!(store.sweep(Sweep { limit: 10 }).await.unwrap().runs, 1);
        store.close().await.unwrap();
        let again = open(folder.path()).await;
        assert!(again.start(start()).await.unwrap().run.num > run.num);
        again.close().await.unwrap();
    }
}
