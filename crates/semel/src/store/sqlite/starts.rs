//! New runs: a header, the head of a ledger and its first row each.
//!
//! Runs that nobody else can have asked for are inserted several at a time. To begin a statement, to open a table with its
//! indexes and to close them again takes longer than a row.

use std::sync::LazyLock;

use rusqlite::{CachedStatement, ErrorCode};

use super::job::{VerbJob, Work};
use super::steps::{self, NewRow};
use super::tx::{SqliteTx, failed};
use crate::error::Result;
use crate::rules::entry::{Entry, encode};
use crate::rules::run::{NewRun, Run, State};
use crate::rules::status::Status;
use crate::store::Started;
use crate::store::tx::millis;
use crate::store::verbs::StartRun;

/// So many at a time: most of what there is to gain, and a quiet process has as many as well.
const ROWS: usize = 4;

/// A run that may be there already is not inserted again.
pub(super) static HEADER: LazyLock<String> =
    LazyLock::new(|| format!("INSERT INTO {} ON CONFLICT DO NOTHING", headers(1)));
pub(super) static HEAD: LazyLock<String> = LazyLock::new(|| format!("INSERT INTO {}", heads(1)));

/// `OR FAIL`, as for the rows of the ledger: what fails is the end of its transaction.
static HEADERS: LazyLock<String> = LazyLock::new(|| format!("INSERT OR FAIL INTO {}", headers(ROWS)));
static HEADS: LazyLock<String> = LazyLock::new(|| format!("INSERT OR FAIL INTO {}", heads(ROWS)));
static LEDGERS: LazyLock<String> = LazyLock::new(|| steps::insert(ROWS));

fn headers(rows: usize) -> String {
    let values = vec!["(?,?,0,?,?,?,?,?,?,0,?,?,?,?,?,?,?,?,?,?,?,?)"; rows].join(", ");
    format!(
        "runs (num, status, arrivals, due, node, ended, purge, holds_key, ties, purged, id, workspace, workflow, \
         workflow_version, scope, key, fingerprint, lineage, parent, keep_history, keep_key, created) VALUES {values}"
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
    pub(super) state: &'a State,
}

impl Header<'_> {
    /// Binds it as the `n`th row of a statement.
    pub(super) fn bind(&self, statement: &mut CachedStatement<'_>, n: usize) -> rusqlite::Result<()> {
        let Self { num, new, state } = self;
        let mut next = Next { statement, place: n * 20 };
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
        next.bind(new.created)
    }
}

/// The head of a ledger whose first and last row, if it has any, is `row`.
pub(super) struct Head<'a> {
    pub(super) num: i64,
    pub(super) state: &'a State,
    pub(super) row: Option<i64>,
}

impl Head<'_> {
    /// Binds it as the `n`th row of a statement.
    pub(super) fn bind(&self, statement: &mut CachedStatement<'_>, n: usize) -> rusqlite::Result<()> {
        let Self { num, state, row } = self;
        let mut next = Next { statement, place: n * 6 };
        next.bind(num)?;
        next.bind(state.version)?;
        next.bind(row)?;
        next.bind(row)?;
        next.bind(state.status == Status::Running)?;
        next.bind(state.stalls)
    }
}

/// The next place of a statement.
struct Next<'a, 'c> {
    statement: &'a mut CachedStatement<'c>,
    place: usize,
}

impl Next<'_, '_> {
    fn bind(&mut self, value: impl rusqlite::ToSql) -> rusqlite::Result<()> {
        self.place += 1;
        self.statement.raw_bind_parameter(self.place, value)
    }
}

/// A run that is about to be inserted.
struct Made {
    new: NewRun,
    state: State,
    entries: Vec<Entry>,
    text: String,
}

/// What became of the starts of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inserted {
    /// They are inserted and answered, as many as fill whole statements. The rest is left to their verb.
    Done,
    /// One of them was there already: its start is a repetition, and the transaction is of no use.
    Repeated,
}

/// Inserts the starts of a batch that nobody else can have asked for.
pub(super) fn insert(tx: &mut SqliteTx, batch: &mut [Work]) -> Result<Inserted> {
    let mut jobs = Vec::new();
    for work in batch {
        match work {
            Work::Start(job) if job.verb.is_plain() => jobs.push(&mut **job),
            _ => {}
        }
    }
    for jobs in jobs.chunks_exact_mut(ROWS) {
        if insert_rows(tx, jobs)? == Inserted::Repeated {
            return Ok(Inserted::Repeated);
        }
    }
    Ok(Inserted::Done)
}

fn insert_rows(tx: &mut SqliteTx, jobs: &mut [&mut VerbJob<StartRun>]) -> Result<Inserted> {
    let made = jobs.iter().map(|job| make(tx, &job.verb)).collect::<Result<Vec<_>>>()?;
    let places = || (tx.last_num + 1..).zip(tx.last_row + 1..).enumerate();
    let mut headers = tx.statement(&HEADERS)?;
    for (Made { new, state, .. }, (n, (num, _))) in made.iter().zip(places()) {
        Header { num, new, state }.bind(&mut headers, n).map_err(failed)?;
    }
    match headers.raw_execute() {
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {
            return Ok(Inserted::Repeated);
        }
        executed => executed.map_err(failed)?,
    };
    let (mut ledgers, mut heads) = (tx.statement(&LEDGERS)?, tx.statement(&HEADS)?);
    for (Made { state, text, .. }, (n, (num, row))) in made.iter().zip(places()) {
        NewRow { row, prev: None, num, seq: 0, at: tx.now, text }.bind(&mut ledgers, n).map_err(failed)?;
        Head { num, state, row: Some(row) }.bind(&mut heads, n).map_err(failed)?;
    }
    ledgers.raw_execute().and_then(|_| heads.raw_execute()).map_err(failed)?;
    drop((headers, ledgers, heads));
    for (Made { new, state, entries, .. }, job) in made.into_iter().zip(jobs) {
        tx.last_num += 1;
        tx.last_row += 1;
        tx.count_writes(1);
        tx.heads.remember(tx.last_num, state.version, tx.last_row);
        let run = Run { num: tx.last_num, new: new.into(), state, arrivals: 0, purged: false };
        job.answer = Some(Ok(Started::of_new(run, entries)));
    }
    Ok(Inserted::Done)
}

fn make(tx: &mut SqliteTx, verb: &StartRun) -> Result<Made> {
    let lease = match verb.start.claim {
        Some(node) => tx.lease_of(node)?,
        None => None,
    };
    let (new, state, entries) = verb.made(lease, tx.now);
    let text = encode(&entries);
    Ok(Made { new, state, entries, text })
}

#[cfg(test)]
pub(super) mod tests {
    use std::path::Path;
    use std::time::Duration;

    use uuid::Uuid;

    use crate::clock::{Clock as _, SystemClock};
    use crate::id::{NodeId, RunId, WorkspaceId};
    use crate::rules::control::{Action, Control};
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

    /// Enough for whole statements, and some that are left over; for a node that lives, one that does not, and nobody.
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

    /// Whoever still has the number of a forgotten run must not find another one under it.
    #[tokio::test]
    async fn a_number_is_not_given_again_after_its_run_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path()).await;
        let soon = Retention { history: Duration::ZERO, key: Duration::ZERO };
        let run = store.start(Start { retention: soon, ..start() }).await.unwrap().run;
        let action = Action::Cancel { reason: "no longer wanted".to_owned() };
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
