//! What only the SQLite store has: its file, its lock, and a COMMIT that fails to answer.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use semel::Error;
use semel::clock::{Clock, SystemClock, Time};
use semel::id::{NodeId, RunId, WorkspaceId};
use semel::rules::entry::Entry;
use semel::rules::json::Payload;
use semel::rules::key::Key;
use semel::rules::ledger::Ledger;
use semel::rules::path::{Name, Visit};
use semel::rules::run::Retention;
use semel::rules::start::Start;
use semel::store::sqlite::{CommitFault, SqliteOptions, SqliteStore};
use semel::store::{Lease, LeaseAct, Query, Started, Store};
use semel::testing::ManualClock;

type Test = Result<(), Failed>;

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |name: &str, test: fn() -> Test| Trial::test(format!("sqlite::{name}"), test);
    vec![
        trial("a_commit_that_says_it_failed_but_did_not_is_answered_as_done", || {
            faults(&[Some(CommitFault::After)])
        }),
        trial("a_commit_that_failed_is_tried_again", || faults(&[Some(CommitFault::Before), None])),
        trial("a_commit_that_keeps_failing_is_told_and_leaves_nothing", keeps_failing),
        trial("a_commit_is_found_although_its_entries_are_forgotten_with_it", forgotten_mark),
        trial("a_write_that_did_not_begin_is_not_unknown", did_not_begin),
        trial("answers_do_not_need_the_runtime_that_opened_the_store", another_runtime),
        trial("a_store_that_cannot_write_its_receipts_closes_all_the_same", closes),
        trial("a_file_of_a_newer_semel_is_refused", newer_schema),
        trial("a_foreign_database_is_refused_and_left_alone", foreign),
        trial("a_second_store_on_the_same_file_is_refused", second),
        trial("the_write_ahead_log_stays_short_under_load", log_stays_short),
        trial("nodes_of_an_earlier_process_are_dead", dead_nodes),
        trial("remote_workers_have_a_grace_period_after_reopening", remote_nodes),
    ]
}

pub(crate) fn run<T>(future: impl Future<Output = Result<T, Failed>>) -> Result<T, Failed> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(future)
}

/// A store in a fresh folder, with faults for its next commits (`None` is no fault).
async fn store(
    folder: &tempfile::TempDir,
    faults: Vec<Option<CommitFault>>,
) -> semel::error::Result<SqliteStore> {
    let faults = Mutex::new(VecDeque::from(faults));
    let mut options = SqliteOptions::new(folder.path().join("semel.db"));
    options.commit_fault =
        Some(Box::new(move || faults.lock().expect("no panic inside").pop_front().flatten()));
    SqliteStore::open(options).await
}

pub(crate) fn request(key: &str) -> semel::error::Result<Start> {
    let (run, input) = (RunId(SystemClock::new().uuid()), Payload::parse("{}")?);
    Ok(Start::new(WorkspaceId::DEFAULT, run, Name::new("order")?, input, Some(Key::new(key)?)))
}

pub(crate) async fn start(
    store: &dyn Store,
    key: &str,
    claim: Option<NodeId>,
) -> semel::error::Result<Started> {
    store.start(Start { claim, ..request(key)? }).await
}

pub(crate) fn record_step(run: &mut Ledger, name: &str) -> Result<(), Failed> {
    let at = Visit::parse(name).ok_or("a path")?;
    run.record(Entry::Recorded { at, value: Payload::null(), failed: None })?;
    Ok(())
}

async fn count(store: &SqliteStore) -> semel::error::Result<usize> {
    let all = Query::all(WorkspaceId::DEFAULT, 1_000);
    Ok(store.list(all).await?.runs.len())
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

/// The last row of a transaction is its mark; a sweep in the same transaction may delete it.
fn forgotten_mark() -> Test {
    let folder = tempfile::tempdir()?;
    let (committing, at_commit) = mpsc::channel();
    let (fate, fates) = mpsc::channel();
    let mut options = SqliteOptions::new(folder.path().join("semel.db"));
    options.commit_fault = Some(Box::new(move || {
        committing.send(()).unwrap_or_default();
        fates.recv().unwrap_or(None)
    }));
    // On one thread, so that a task that has been spawned has asked by the time another one is waited for.
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let store = SqliteStore::open(options).await?;
        let node = NodeId(SystemClock::new().uuid());
        let lease = Lease { node, act: LeaseAct::Join(Duration::from_mins(1)) };
        fate.send(None)?;
        store.lease(lease).await?;
        let mut request = Start::new(
            WorkspaceId::DEFAULT,
            RunId(SystemClock::new().uuid()),
            Name::new("order")?,
            Payload::null(),
            None,
        );
        request.claim = Some(node);
        request.retention = Retention { history: Duration::ZERO, key: Duration::ZERO };
        fate.send(None)?;
        let started = store.start(request).await?;
        let mut ledger = Ledger::read(started.run, started.entries)?;
        ledger.record(Entry::Completed { value: Payload::null() })?;
        let commit = ledger.commit().ok_or("an entry")?;
        at_commit.try_iter().for_each(drop);
        let spawn = |asked: std::pin::Pin<Box<dyn Future<Output = semel::error::Result<()>> + Send>>| {
            tokio::spawn(asked)
        };
        let (one, two, three) = (store.clone(), store.clone(), store.clone());
        let first = spawn(Box::pin(async move { one.lease(lease).await.map(drop) }));
        tokio::task::yield_now().await;
        at_commit.recv()?;
        let end = spawn(Box::pin(async move { two.commit(commit).await.map(drop) }));
        let sweep = spawn(Box::pin(async move {
            let swept = three.sweep(semel::store::Sweep { limit: 10 }).await?;
            assert_eq!(swept.runs, 1, "in the same transaction");
            Ok(())
        }));
        tokio::task::yield_now().await;
        fate.send(None)?;
        fate.send(Some(CommitFault::After))?;
        drop(fate);
        for asked in [first, end, sweep] {
            asked.await??;
        }
        Ok(())
    })
}

/// A statement that fails before COMMIT has changed nothing, whether or not the file can be opened again.
fn did_not_begin() -> Test {
    run(async {
        let folder = tempfile::tempdir()?;
        let store = store(&folder, vec![]).await?;
        let node = NodeId(SystemClock::new().uuid());
        store.lease(Lease { node, act: LeaseAct::Join(Duration::from_mins(1)) }).await?;
        let started = start(&store, "k", Some(node)).await?;
        let mut ledger = Ledger::read(started.run, started.entries)?;
        record_step(&mut ledger, "a")?;
        let commit = ledger.commit().ok_or("an entry")?;
        let file = rusqlite::Connection::open(folder.path().join("semel.db"))?;
        file.execute_batch("ALTER TABLE ledger RENAME TO hidden")?;
        let error = store.commit(commit.clone()).await.expect_err("there is no ledger");
        assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
        file.execute_batch("ALTER TABLE hidden RENAME TO ledger")?;
        assert_eq!(store.commit(commit).await?.version, ledger.run().state.version);
        Ok(())
    })
}

/// Many answers at once are given by the runtime, which may be gone by then: what was written is answered all the same.
fn another_runtime() -> Test {
    let folder = tempfile::tempdir()?;
    let store = Arc::new(run(async { Ok(store(&folder, vec![]).await?) })?);
    run(async {
        let mut tasks = tokio::task::JoinSet::new();
        for n in 0..2_000 {
            let store = store.clone();
            tasks.spawn(async move { start(&*store, &format!("k{n}"), None).await });
        }
        while let Some(started) = tasks.join_next().await {
            assert!(started??.created());
        }
        Ok(())
    })
}

fn closes() -> Test {
    run(async {
        let folder = tempfile::tempdir()?;
        let faults = [vec![None], vec![Some(CommitFault::Before); 100]].concat();
        let broken = store(&folder, faults).await?;
        start(&broken, "k", None).await?;
        start(&broken, "k", None).await?;
        let error = broken.close().await.expect_err("the receipt cannot be written");
        assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
        store(&folder, vec![]).await?;
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
        assert!(
            matches!(error, Error::NewerSchema { found: 99, known } if known == known_version()),
            "{error:?}"
        );
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
        let mode: String = file.query_row("PRAGMA journal_mode", [], |row| row.get(0))?;
        assert_eq!(mode, "delete", "as it was");
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
                    ledger
                        .record(Entry::Recorded { at, value: value.clone(), failed: None })
                        .expect("a new path");
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

fn known_version() -> i64 {
    i64::try_from(semel::store::sqlite::SCHEMA_VERSION).expect("few")
}

/// While the file is closed, its workers cannot renew their leases.
fn remote_nodes() -> Test {
    const LEASE: Duration = Duration::from_secs(10);
    run(async {
        let folder = tempfile::tempdir()?;
        let clock = Arc::new(ManualClock::new(Time(1_700_000_000_000), 0));
        let open = async || {
            let path = folder.path().join("semel.db");
            SqliteStore::open(SqliteOptions { clock: clock.clone(), ..SqliteOptions::new(path) }).await
        };
        let node = NodeId(clock.uuid());
        let store = open().await?;
        store.lease(Lease { node, act: LeaseAct::Enroll(LEASE) }).await?;
        store.close().await?;
        clock.advance(Duration::from_secs(12));
        let store = open().await?;
        assert_eq!(store.sweep(semel::store::Sweep { limit: 10 }).await?.orphaned, 0);
        let renew = || Lease { node, act: LeaseAct::Renew(LEASE) };
        store.lease(renew()).await.expect("two seconds late");
        store.close().await?;
        clock.advance(Duration::from_secs(20));
        let store = open().await?;
        assert!(
            matches!(store.lease(renew()).await, Err(Error::NodeLost(lost)) if lost == node),
            "ten seconds late"
        );
        Ok(())
    })
}
