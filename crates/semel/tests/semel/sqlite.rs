//! What only the SQLite store has: its file, its lock, and a COMMIT that fails to answer.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use semel::Error;
use semel::clock::{Clock, SystemClock};
use semel::id::{NodeId, RunId, WorkspaceId};
use semel::rules::entry::Entry;
use semel::rules::json::Payload;
use semel::rules::key::Key;
use semel::rules::ledger::Ledger;
use semel::rules::path::{Name, Visit};
use semel::rules::start::Start;
use semel::store::sqlite::{CommitFault, SqliteOptions, SqliteStore};
use semel::store::{Lease, LeaseAct, Query, Started, Store};

type Test = Result<(), Failed>;

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |name: &str, test: fn() -> Test| Trial::test(format!("sqlite::{name}"), test);
    vec![
        trial("a_commit_that_says_it_failed_but_did_not_is_answered_as_done", || {
            faults(&[Some(CommitFault::After)])
        }),
        trial("a_commit_that_failed_is_tried_again", || faults(&[Some(CommitFault::Before), None])),
        trial("a_commit_that_keeps_failing_is_told_and_leaves_nothing", keeps_failing),
        trial("a_file_of_a_newer_semel_is_refused", newer_schema),
        trial("a_foreign_database_is_refused_and_left_alone", foreign),
        trial("a_second_store_on_the_same_file_is_refused", second),
        trial("the_write_ahead_log_stays_short_under_load", log_stays_short),
        trial("nodes_of_an_earlier_process_are_dead", dead_nodes),
    ]
}

pub(crate) fn run<T>(future: impl Future<Output = Result<T, Failed>>) -> Result<T, Failed> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(future)
}

/// A store in a fresh folder, with faults for its next commits (`None` is no fault).
async fn store(folder: &tempfile::TempDir, faults: Vec<Option<CommitFault>>) -> semel::Result<SqliteStore> {
    let faults = Mutex::new(VecDeque::from(faults));
    let mut options = SqliteOptions::new(folder.path().join("semel.db"));
    options.commit_fault =
        Some(Box::new(move || faults.lock().expect("no panic inside").pop_front().flatten()));
    SqliteStore::open(options).await
}

pub(crate) async fn start(store: &dyn Store, key: &str, node: Option<NodeId>) -> semel::Result<Started> {
    let (clock, input) = (SystemClock::new(), Payload::parse("{}")?);
    let mut start = Start::new(
        WorkspaceId::DEFAULT,
        RunId(clock.uuid()),
        Name::new("order")?,
        input,
        Some(Key::new(key)?),
    );
    start.claim = node;
    store.start(start).await
}

pub(crate) fn record_step(run: &mut Ledger, name: &str) -> Result<(), Failed> {
    let at = Visit::parse(name).ok_or("a path")?;
    run.record(Entry::Recorded { at, value: Payload::null() })?;
    Ok(())
}

async fn count(store: &SqliteStore) -> semel::Result<usize> {
    let all = Query {
        workspace: WorkspaceId::DEFAULT,
        status: None,
        workflow: None,
        since: None,
        before: None,
        limit: 1_000,
    };
    Ok(store.list(all).await?.len())
}

/// Every kind of transaction meets the fault once, the ones that append to a ledger and the ones that do not.
fn faults(each: &[Option<CommitFault>]) -> Test {
    run(async {
        let folder = tempfile::tempdir()?;
        let store = store(&folder, each.repeat(5)).await?;
        let node = NodeId(SystemClock::new().uuid());
        let until = store.lease(Lease { node, act: LeaseAct::Join(Duration::from_mins(1)) }).await?;
        assert!(until > SystemClock::new().now());
        let started = start(&store, "k", Some(node)).await?;
        assert!(started.created());
        let mut ledger = Ledger::read(started.run, started.entries)?;
        for step in ["a", "b", "c"] {
            record_step(&mut ledger, step)?;
            let saved = store.commit(ledger.commit().ok_or("an entry")?).await?;
            assert_eq!(saved.version, ledger.run().state.version);
        }
        store.close().await?;
        let store = SqliteStore::open(SqliteOptions::new(folder.path().join("semel.db"))).await?;
        let entries = store.ledger(WorkspaceId::DEFAULT, ledger.run().id(), 1).await?;
        let kinds: Vec<_> = entries.iter().map(|n| n.entry.kind()).collect();
        assert_eq!(kinds, ["created", "claimed", "recorded", "recorded", "recorded"], "each once");
        assert_eq!(count(&store).await?, 1);
        Ok(())
    })
}

fn keeps_failing() -> Test {
    run(async {
        let folder = tempfile::tempdir()?;
        let store = store(&folder, vec![Some(CommitFault::Before); 3]).await?;
        let error = start(&store, "k", None).await.expect_err("three faults in a row");
        assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
        assert!(error.is_retryable());
        assert_eq!(count(&store).await?, 0, "nothing was left");
        assert!(start(&store, "k", None).await?.created(), "and the key is not burnt");
        Ok(())
    })
}

fn newer_schema() -> Test {
    run(async {
        let folder = tempfile::tempdir()?;
        store(&folder, vec![]).await?.close().await?;
        let file = rusqlite::Connection::open(folder.path().join("semel.db"))?;
        file.pragma_update(None, "user_version", 99)?;
        drop(file);
        let error = store(&folder, vec![]).await.err().ok_or("a newer file was opened")?;
        assert!(matches!(error, Error::NewerSchema { found: 99, known: 1 }), "{error:?}");
        assert!(error.to_string().contains("use a newer Semel"));
        Ok(())
    })
}

fn foreign() -> Test {
    run(async {
        let folder = tempfile::tempdir()?;
        let file = rusqlite::Connection::open(folder.path().join("semel.db"))?;
        file.execute_batch("CREATE TABLE mine (x); INSERT INTO mine VALUES (1)")?;
        drop(file);
        let error = store(&folder, vec![]).await.err().ok_or("a foreign file was opened")?.to_string();
        assert!(error.contains("not one of Semel's"), "{error}");
        let file = rusqlite::Connection::open(folder.path().join("semel.db"))?;
        let tables: i64 = file.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        assert_eq!(tables, 1);
        Ok(())
    })
}

fn second() -> Test {
    run(async {
        let folder = tempfile::tempdir()?;
        let first = store(&folder, vec![]).await?;
        let error = store(&folder, vec![]).await.err().ok_or("the same file was opened twice")?;
        assert!(matches!(error, Error::Locked { .. }), "{error:?}");
        assert!(error.to_string().contains("PostgreSQL"), "it says what to do instead");
        first.close().await?;
        store(&folder, vec![]).await?;
        Ok(())
    })
}

/// Without the writer's own small checkpoints the log grows for as long as the load lasts.
fn log_stays_short() -> Test {
    const VALUE: usize = 200_000;
    const STEPS: usize = 800;
    run(async {
        let folder = tempfile::tempdir()?;
        let store = Arc::new(store(&folder, vec![]).await?);
        let node = NodeId(SystemClock::new().uuid());
        store.lease(Lease { node, act: LeaseAct::Join(Duration::from_mins(10)) }).await?;
        let mut tasks = tokio::task::JoinSet::new();
        for caller in 0..4 {
            let store = store.clone();
            tasks.spawn(async move {
                let started = start(&*store, &format!("k{caller}"), Some(node)).await?;
                let mut ledger = Ledger::read(started.run, started.entries).expect("just created");
                let value = Payload::parse(&format!("\"{}\"", "x".repeat(VALUE)))?;
                for n in 0..STEPS / 4 {
                    let at = Visit::parse(&format!("step-{n}")).expect("a path");
                    ledger.record(Entry::Recorded { at, value: value.clone() }).expect("a new path");
                    store.commit(ledger.commit().expect("one entry")).await?;
                }
                Ok::<_, Error>(())
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended??;
        }
        let log = std::fs::metadata(folder.path().join("semel.db-wal"))?.len();
        let written = (VALUE * STEPS) as u64;
        assert!(log < written / 2, "{written} bytes were written, and the log has {log}");
        Ok(())
    })
}

fn dead_nodes() -> Test {
    run(async {
        let folder = tempfile::tempdir()?;
        let first = store(&folder, vec![]).await?;
        let node = NodeId(SystemClock::new().uuid());
        first.lease(Lease { node, act: LeaseAct::Join(Duration::from_mins(10)) }).await?;
        let run = start(&first, "k", Some(node)).await?.run;
        first.close().await?;
        let again = store(&folder, vec![]).await?;
        let renewed = again.lease(Lease { node, act: LeaseAct::Renew(Duration::from_mins(10)) }).await;
        assert!(matches!(renewed, Err(Error::NodeLost(lost)) if lost == node));
        let swept = again.sweep(semel::store::Sweep { limit: 10 }).await?;
        assert_eq!(swept.orphaned, 1, "{} is due at once", run.id());
        Ok(())
    })
}
