//! How the databases execute the statements of lists. A million ended runs are not made here: the plan says what they
//! would cost.

use std::fmt::Write as _;

use libtest_mimic::{Failed, Trial};
use semel::id::WorkspaceId;
use semel::store::Store as _;
use semel::store::postgres::{PostgresOptions, PostgresStore};
use semel::store::sqlite::{SqliteOptions, SqliteStore};
use semel::testing::statements::{POSTGRES_SETTINGS, postgres_lists, sqlite_lists};
use serde_json::Value;

type Test = Result<(), Failed>;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("plans::every_list_on_sqlite_reads_an_index_in_its_order", sqlite),
        Trial::test("plans::every_list_on_postgres_reads_an_index_in_its_order", postgres),
    ]
}

/// Neither a walk through a table or a whole index, nor a sort, which reads all before it gives the first.
fn reads_an_index(steps: &[String]) -> bool {
    let bad = |step: &String| step.contains("SCAN") || step.contains("TEMP B-TREE");
    steps.iter().any(|step| step.contains("SEARCH runs USING INDEX runs_")) && !steps.iter().any(bad)
}

fn sqlite() -> Test {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("semel.db");
    crate::runtime(false).block_on(async {
        let store = SqliteStore::open(SqliteOptions::new(&path)).await?;
        store.close().await
    })?;
    let file = rusqlite::Connection::open(&path)?;
    for statement in sqlite_lists() {
        let mut plan = file.prepare(&format!("EXPLAIN QUERY PLAN {}", statement.text))?;
        // Its parameters are not bound: a plan does not depend on them.
        let mut rows = plan.raw_query();
        let mut steps = Vec::new();
        while let Some(row) = rows.next()? {
            steps.push(row.get(3)?);
        }
        assert!(reads_an_index(&steps), "{steps:?}\n{}", statement.text);
    }
    let found = "SEARCH runs USING INDEX runs_list (workspace=?)";
    for bad in ["SCAN runs", "USE TEMP B-TREE FOR ORDER BY"] {
        assert!(!reads_an_index(&[found.to_owned(), bad.to_owned()]), "{bad}");
    }
    Ok(())
}

/// More than any list may read.
const RUNS: usize = 3_000;

/// Ended runs of one workflow, a millisecond apart.
fn fill() -> String {
    format!(
        "INSERT INTO runs (id, workspace, workflow, workflow_version, scope, key, fingerprint, lineage, keep_history, \
         keep_key, created, status, version, stalls, ended, holds_key, ties) \
         SELECT gen_random_uuid(), '{}', 'order', '1', '*', n::text, '\\x00', gen_random_uuid(), 0, 0, n, \
         CASE WHEN n % 2 = 0 THEN 4 ELSE 5 END, 1, 0, n, true, false FROM generate_series(1, {RUNS}) n",
        WorkspaceId::DEFAULT.0
    )
}

fn postgres() -> Test {
    const SCHEMA: &str = "plans_of_lists";
    let url = std::env::var("SEMEL_TEST_POSTGRES")?;
    crate::runtime(false).block_on(async {
        let mut config: tokio_postgres::Config = url.parse()?;
        config.options(format!("{POSTGRES_SETTINGS} -c search_path={SCHEMA}"));
        let (client, connection) = config.connect(tokio_postgres::NoTls).await?;
        let connected = tokio::spawn(connection);
        client.batch_execute(&format!("DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")).await?;
        let options = PostgresOptions { schema: Some(SCHEMA.to_owned()), ..PostgresOptions::new(&url) };
        PostgresStore::open(options).await?.close().await?;
        client.batch_execute(&fill()).await?;
        // Without statistics, and with them.
        for prepared in ["", "ANALYZE runs"] {
            client.batch_execute(prepared).await?;
            for (n, statement) in postgres_lists().iter().enumerate() {
                let name = format!("list_{}_{n}", prepared.len());
                client.batch_execute(&format!("PREPARE {name} AS {}", statement.text)).await?;
                let explain = format!("EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE {name}({})", statement.values);
                let mut text = String::new();
                for message in client.simple_query(&explain).await? {
                    if let tokio_postgres::SimpleQueryMessage::Row(row) = message {
                        writeln!(text, "{}", row.get(0).ok_or("a plan")?)?;
                    }
                }
                let plan: Value = serde_json::from_str(&text)?;
                let read = reads(&plan[0]["Plan"], &statement.text);
                let most = f64::from(u32::try_from(statement.reads)?);
                assert!(read <= most, "{read} of {most}:\n{text}");
            }
        }
        client.batch_execute(&format!("DROP SCHEMA {SCHEMA} CASCADE")).await?;
        drop(client);
        connected.await??;
        Ok(())
    })
}

/// How many runs a plan has read. Refuses what does not read an index in its order.
fn reads(plan: &Value, statement: &str) -> f64 {
    let number = |name: &str| plan[name].as_f64().unwrap_or(0.0);
    let node = plan["Node Type"].as_str().unwrap_or_default();
    let here = match node {
        "Index Scan" | "Index Only Scan" => {
            let index = plan["Index Name"].as_str().unwrap_or_default();
            assert!(["runs_list", "runs_workflow", "runs_status"].contains(&index), "{index}\n{statement}");
            number("Actual Loops") * (number("Actual Rows") + number("Rows Removed by Filter"))
        }
        "Limit" | "Subquery Scan" | "WindowAgg" => 0.0,
        other => panic!("{other}\n{statement}\n{plan:#}"),
    };
    let below = plan["Plans"].as_array().into_iter().flatten();
    here + below.map(|plan| reads(plan, statement)).sum::<f64>()
}
