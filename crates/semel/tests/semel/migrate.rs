//! Data of earlier versions: opened by this one, it is brought up to date and is all there.

use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use semel::clock::{Clock as _, SystemClock};
use semel::id::{NodeId, RunId, WorkspaceId};
use semel::rules::claim::{Claim, Drives};
use semel::rules::json::Payload;
use semel::rules::key::{Label, RecordId};
use semel::rules::once::{Ask, OnceCall, OnceScope};
use semel::rules::path::Name;
use semel::rules::receipt::ReceiptKind;
use semel::rules::record::{Keep, Look, LookBy};
use semel::store::postgres::{PostgresOptions, PostgresStore};
use semel::store::sqlite::{SqliteOptions, SqliteStore};
use semel::store::{DuplicatesQuery, Lease, LeaseAct, Query, Store};
use uuid::Uuid;

use crate::sqlite::{run, start};

type Test = Result<(), Failed>;

/// What was released, as it stood then.
const SQLITE_1: &str = include_str!("../../src/store/sqlite/migrations/001_schema.sql");
const POSTGRES_1: &str = include_str!("../../src/store/postgres/migrations/001_schema.sql");

/// A run as version 1 kept it, on either database but for the notation of bytes.
const RUN_1: &str = "INSERT INTO runs (num, status, arrivals, holds_key, ties, purged, id, workspace, workflow, \
     workflow_version, scope, key, fingerprint, lineage, keep_history, keep_key, created, due";

/// The receipts of that run.
const RECEIPTS_1: &str = "INSERT INTO receipts (run, kind, count, first, last, recent) \
     VALUES (1, 0, 3, 5, 7, '[{\"at\":7,\"detail\":\"start old\"}]')";

/// The id of that run, as a number.
const OLD: u128 = 7;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("migrate::a_file_of_version_1_is_brought_up_to_date", sqlite),
        Trial::test("migrate::a_schema_of_version_1_is_brought_up_to_date", postgres),
    ]
}

/// The run is there, what is new works, and what was there still does.
async fn check(store: &dyn Store) -> Test {
    // Its receipts are still read, and are listed now.
    let old = RunId(Uuid::from_u128(OLD));
    let receipts = store.receipts(WorkspaceId::DEFAULT, old).await?;
    let [(ReceiptKind::Start, starts)] = receipts.as_slice() else { panic!("{receipts:?}") };
    assert_eq!((starts.count, starts.recent[0].detail.as_str()), (3, "start old"));
    let listed = store.duplicates(DuplicatesQuery::all(WorkspaceId::DEFAULT, 10)).await?;
    assert_eq!(listed.rows.iter().map(|calls| (calls.run, calls.count)).collect::<Vec<_>>(), [(old, 3)]);
    let all = Query::all(WorkspaceId::DEFAULT, 10);
    let keys: Vec<_> = store.list(all).await?.into_iter().map(|run| run.new.key.to_string()).collect();
    assert_eq!(keys, ["old"]);
    assert!(start(store, "new", None).await?.created());
    let (kind, id) = (Name::new("workspace")?, RecordId::new("acme")?);
    let keep =
        Keep { kind: kind.clone(), id: id.clone(), body: Payload::null(), expected: Some(0), ttl: None };
    let kept = store.keep(keep).await?;
    assert_eq!(store.records(Look { kind, by: LookBy::Id(id) }).await?, [kept]);
    // Runs that waited for a `run_once` value then are told of it now.
    let (workspace, run, scope, label) =
        (WorkspaceId::DEFAULT, RunId(Uuid::from_u128(OLD)), OnceScope::Workspace, Label::new("sms")?);
    let ask = Ask::Settle { fence: 1, value: Payload::null(), ttl: None };
    store.once(OnceCall { workspace, scope, label, run, ask }).await?;
    assert_eq!(store.inbox(workspace, run, 1).await?.len(), 1);
    // Only nodes that have its version of the workflow can claim it.
    let node = NodeId(SystemClock::new().uuid());
    store.lease(Lease { node, act: LeaseAct::Join(Duration::from_mins(1)) }).await?;
    for (version, claimed) in [("2", vec![]), ("1", vec![run])] {
        let (workflow, workflow_version) = (Name::new("order")?, Name::new(version)?);
        let claim = Claim::new(node, vec![Drives { workspace, workflow, workflow_version }], 1);
        let runs: Vec<_> = store.claim(claim).await?.runs.iter().map(|claimed| claimed.run.id()).collect();
        assert_eq!(runs, claimed);
    }
    Ok(())
}

/// The columns by which due runs are found, as the database tells.
const DUE: &str = "(workspace, workflow, workflow_version, due";

fn sqlite() -> Test {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("semel.db");
    let file = rusqlite::Connection::open(&path)?;
    file.execute_batch(SQLITE_1)?;
    let (workspace, zeros, id) = (hex(WorkspaceId::DEFAULT), "00".repeat(32), RunId(Uuid::from_u128(OLD)));
    file.execute_batch(&format!(
        "{RUN_1}) VALUES (1, 0, 0, 1, 0, 0, x'{OLD:032x}', x'{workspace}', 'order', '1', '*', 'old', x'{zeros}', \
         x'{OLD:032x}', 1000, 1000, 5, 5); INSERT INTO heads VALUES (1, 1, NULL, NULL, 0, 0); {RECEIPTS_1}; \
         INSERT INTO once VALUES (x'{workspace}', '*', 'sms', x'{OLD:032x}', 1, NULL, NULL, '[\"{id}\"]');",
    ))?;
    file.pragma_update(None, "user_version", 1)?;
    file.pragma_update(None, "application_id", 0x536d_6c31)?;
    drop(file);
    run(async {
        let store = SqliteStore::open(SqliteOptions::new(&path)).await?;
        check(&store).await?;
        store.close().await?;
        let file = rusqlite::Connection::open(&path)?;
        let index = "SELECT sql FROM sqlite_schema WHERE name = 'runs_due'";
        let index: String = file.query_row(index, [], |row| row.get(0))?;
        assert!(index.contains(DUE), "{index}");
        drop(file);
        let again = SqliteStore::open(SqliteOptions::new(&path)).await?;
        assert!(!start(&again, "new", None).await?.created(), "brought up to date once");
        Ok(())
    })
}

fn postgres() -> Test {
    const SCHEMA: &str = "of_version_1";
    let url = std::env::var("SEMEL_TEST_POSTGRES")?;
    run(async {
        let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await?;
        let connected = tokio::spawn(connection);
        let (workspace, zeros) = (hex(WorkspaceId::DEFAULT), "00".repeat(32));
        let old = format!(
            "DROP SCHEMA IF EXISTS {SCHEMA} CASCADE; CREATE SCHEMA {SCHEMA}; SET search_path = {SCHEMA}; {POSTGRES_1}; \
             CREATE TABLE semel_schema (version bigint NOT NULL); INSERT INTO semel_schema VALUES (1); \
             {RUN_1}, version, stalls) OVERRIDING SYSTEM VALUE VALUES (1, 0, 0, true, false, false, '{OLD:032x}', '{workspace}', \
             'order', '1', '*', 'old', '\\x{zeros}', '{OLD:032x}', 1000, 1000, 5, 5, 1, 0); \
             {RECEIPTS_1}; \
             INSERT INTO once VALUES ('{workspace}', '*', 'sms', '{OLD:032x}', 1, NULL, NULL, ARRAY['{OLD:032x}'::uuid]); \
             SELECT setval(pg_get_serial_sequence('runs', 'num'), 1)",
        );
        client.batch_execute(&old).await?;
        let options = PostgresOptions { schema: Some(SCHEMA.to_owned()), ..PostgresOptions::new(url) };
        let store = PostgresStore::open(options.clone()).await?;
        check(&store).await?;
        store.close().await?;
        let index = "SELECT indexdef FROM pg_indexes WHERE schemaname = $1 AND indexname = 'runs_due'";
        let index: String = client.query_one(index, &[&SCHEMA]).await?.try_get(0)?;
        assert!(index.contains(DUE), "{index}");
        drop(client);
        connected.await??;
        let again = PostgresStore::open(options).await?;
        assert!(!start(&again, "new", None).await?.created(), "brought up to date once");
        Ok(())
    })
}

fn hex(workspace: WorkspaceId) -> String {
    workspace.0.simple().to_string()
}
