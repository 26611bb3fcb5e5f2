//! How the databases execute the statements of lists, and those that claim hosted workflows. Millions of runs are not made
//! here: the plan says what they would cost.

use std::fmt::Write as _;

use libtest_mimic::{Failed, Trial};
use semel::id::WorkspaceId;
use semel::store::Store as _;
use semel::store::postgres::{PostgresOptions, PostgresStore};
use semel::store::sqlite::{SqliteOptions, SqliteStore};
use semel::testing::statements::{
    FAMILIES, POSTGRES_SETTINGS, PlannedStatement, postgres_families, postgres_lists, sqlite_families,
    sqlite_lists, sqlite_questions,
};
use serde_json::Value;

type Test = Result<(), Failed>;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("plans::every_list_count_and_claim_on_sqlite_reads_an_index_in_its_order", sqlite),
        Trial::test("plans::every_list_on_postgres_reads_an_index_in_its_order", lists_on_postgres),
        Trial::test("plans::the_list_of_duplicates_on_sqlite_reads_its_index", duplicates_on_sqlite),
        Trial::test("plans::the_list_of_duplicates_on_postgres_reads_its_index", duplicates_on_postgres),
        Trial::test(
            "plans::a_claim_of_families_on_postgres_reads_their_index_in_its_order",
            families_on_postgres,
        ),
    ]
}

/// Neither a walk through a table or a whole index, nor a sort, which reads all before it gives the first.
fn reads_an_index(steps: &[String], index: &str) -> bool {
    // What a subquery yields is bounded by its limit.
    let scans = |step: &String| step.contains("SCAN") && !step.contains("SCAN (subquery");
    let bad = |step: &String| scans(step) || step.contains("TEMP B-TREE");
    let searches = |step: &String| {
        let (plain, covering) = (format!("USING INDEX {index}"), format!("USING COVERING INDEX {index}"));
        step.contains("SEARCH") && (step.contains(&plain) || step.contains(&covering))
    };
    steps.iter().any(searches) && !steps.iter().any(bad)
}

fn sqlite() -> Test {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("semel.db");
    crate::runtime(false).block_on(async {
        let store = SqliteStore::open(SqliteOptions::new(&path)).await?;
        store.close().await
    })?;
    let file = rusqlite::Connection::open(&path)?;
    let lists = sqlite_lists().into_iter().map(|statement| (statement.text, "runs_"));
    let families = sqlite_families().into_iter().map(|text| (text, "runs_family"));
    for (text, index) in lists.chain(families).chain(sqlite_questions()) {
        let mut plan = file.prepare(&format!("EXPLAIN QUERY PLAN {text}"))?;
        // Its parameters are not bound: a plan does not depend on them.
        let mut rows = plan.raw_query();
        let mut steps = Vec::new();
        while let Some(row) = rows.next()? {
            steps.push(row.get(3)?);
        }
        assert!(reads_an_index(&steps, index), "{steps:?}\n{text}");
    }
    let found = "SEARCH runs USING INDEX runs_list (workspace=?)";
    assert!(!reads_an_index(&[found.to_owned()], "runs_family"));
    for bad in ["SCAN runs", "USE TEMP B-TREE FOR ORDER BY"] {
        assert!(!reads_an_index(&[found.to_owned(), bad.to_owned()], "runs_"), "{bad}");
    }
    Ok(())
}

/// The statements that list duplicates.
const SQLITE_DUPLICATES: &str = include_str!("../../src/store/sqlite/sql/duplicates.sql");
const POSTGRES_DUPLICATES: &str = include_str!("../../src/store/postgres/sql/duplicates.sql");

fn duplicates_on_sqlite() -> Test {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("semel.db");
    crate::runtime(false).block_on(async {
        let store = SqliteStore::open(SqliteOptions::new(&path)).await?;
        store.close().await
    })?;
    let file = rusqlite::Connection::open(&path)?;
    let mut plan = file.prepare(&format!("EXPLAIN QUERY PLAN {SQLITE_DUPLICATES}"))?;
    let mut rows = plan.raw_query();
    let mut steps: Vec<String> = Vec::new();
    while let Some(row) = rows.next()? {
        steps.push(row.get(3)?);
    }
    assert!(steps.iter().any(|step| step.contains("SEARCH x USING INDEX receipts_last")), "{steps:?}");
    let reads_all = |step: &String| step.contains("SCAN") || step.contains("TEMP B-TREE");
    assert!(!steps.iter().any(reads_all), "{steps:?}");
    Ok(())
}

fn duplicates_on_postgres() -> Test {
    const SCHEMA: &str = "plans_of_duplicates";
    let url = std::env::var("SEMEL_TEST_POSTGRES")?;
    crate::runtime(false).block_on(async {
        let mut config: tokio_postgres::Config = url.parse()?;
        config.options(format!("{POSTGRES_SETTINGS} -c search_path={SCHEMA}"));
        let (client, connection) = config.connect(tokio_postgres::NoTls).await?;
        let connected = tokio::spawn(connection);
        client.batch_execute(&format!("DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")).await?;
        let options = PostgresOptions { schema: Some(SCHEMA.to_owned()), ..PostgresOptions::new(&url) };
        PostgresStore::open(options).await?.close().await?;
        let (workspace, least, most) = (WorkspaceId::DEFAULT.0, i64::MIN, i64::MAX);
        let fill = format!(
            "{}; INSERT INTO receipts (run, kind, count, first, last, recent, workspace) \
             SELECT num, 0, 1, num, num, '[]', workspace FROM runs; ANALYZE receipts; \
             PREPARE duplicates AS {POSTGRES_DUPLICATES}",
            fill()
        );
        client.batch_execute(&fill).await?;
        let explain = format!(
            "EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE duplicates('{workspace}', {most}, {most}, 4, {least}, NULL, NULL, 50)"
        );
        let mut text = String::new();
        for message in client.simple_query(&explain).await? {
            if let tokio_postgres::SimpleQueryMessage::Row(row) = message {
                writeln!(text, "{}", row.get(0).ok_or("a plan")?)?;
            }
        }
        assert!(text.contains("receipts_last") && !text.contains("Seq Scan"), "{text}");
        client.batch_execute(&format!("DROP SCHEMA {SCHEMA} CASCADE")).await?;
        drop(client);
        connected.await??;
        Ok(())
    })
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

/// Due runs of each family, of as many workflows, and as many of a family that is not asked for.
fn fill_families() -> String {
    let one = |family: &str| {
        format!(
            "INSERT INTO runs (id, workspace, workflow, workflow_version, scope, key, fingerprint, lineage, keep_history, \
             keep_key, created, status, version, due, stalls, holds_key, ties) \
             SELECT gen_random_uuid(), gen_random_uuid(), 'hosted-' || n, '{family}' || n, '*', '{family}' || n, '\\x00', \
             gen_random_uuid(), 0, 0, n, 0, 1, n, 0, true, false FROM generate_series(1, {RUNS}) n;"
        )
    };
    FAMILIES.into_iter().chain(["oth1_"]).map(one).collect()
}

fn lists_on_postgres() -> Test {
    let indexes = [
        "runs_list",
        "runs_workflow",
        "runs_status",
        "runs_attention",
        "runs_parent",
        "runs_lineage",
        "runs_key",
        "runs_lost_key",
    ];
    postgres("plans_of_lists", &fill(), &postgres_lists(), &indexes)
}

fn families_on_postgres() -> Test {
    postgres("plans_of_claims", &fill_families(), &postgres_families(), &["runs_family"])
}

fn postgres(schema: &str, fill: &str, statements: &[PlannedStatement], indexes: &[&str]) -> Test {
    let url = std::env::var("SEMEL_TEST_POSTGRES")?;
    crate::runtime(false).block_on(async {
        let mut config: tokio_postgres::Config = url.parse()?;
        config.options(format!("{POSTGRES_SETTINGS} -c search_path={schema}"));
        let (client, connection) = config.connect(tokio_postgres::NoTls).await?;
        let connected = tokio::spawn(connection);
        client.batch_execute(&format!("DROP SCHEMA IF EXISTS {schema} CASCADE")).await?;
        let options = PostgresOptions { schema: Some(schema.to_owned()), ..PostgresOptions::new(&url) };
        PostgresStore::open(options).await?.close().await?;
        client.batch_execute(fill).await?;
        // Without statistics, and with them.
        for prepared in ["", "ANALYZE runs"] {
            client.batch_execute(prepared).await?;
            for (n, statement) in statements.iter().enumerate() {
                let name = format!("planned_{}_{n}", prepared.len());
                client.batch_execute(&format!("PREPARE {name} AS {}", statement.text)).await?;
                let explain = format!("EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE {name}({})", statement.values);
                let mut text = String::new();
                for message in client.simple_query(&explain).await? {
                    if let tokio_postgres::SimpleQueryMessage::Row(row) = message {
                        writeln!(text, "{}", row.get(0).ok_or("a plan")?)?;
                    }
                }
                let plan: Value = serde_json::from_str(&text)?;
                let read = reads(&plan[0]["Plan"], &statement.text, indexes);
                let most = f64::from(u32::try_from(statement.reads)?);
                assert!(read <= most, "{read} of {most}:\n{text}");
            }
        }
        client.batch_execute(&format!("DROP SCHEMA {schema} CASCADE")).await?;
        drop(client);
        connected.await??;
        Ok(())
    })
}

/// How many runs a plan has read. Refuses what does not read an index in its order.
fn reads(plan: &Value, statement: &str, indexes: &[&str]) -> f64 {
    let number = |name: &str| plan[name].as_f64().unwrap_or(0.0);
    let node = plan["Node Type"].as_str().unwrap_or_default();
    let here = match node {
        "Index Scan" | "Index Only Scan" => {
            let index = plan["Index Name"].as_str().unwrap_or_default();
            assert!(indexes.contains(&index), "{index}\n{statement}");
            number("Actual Loops") * (number("Actual Rows") + number("Rows Removed by Filter"))
        }
        "Limit" | "Subquery Scan" | "WindowAgg" => 0.0,
        // A sort of what was found, which the limits of all families together bound.
        "Sort" | "CTE Scan" | "Nested Loop" | "Function Scan" | "LockRows" | "Aggregate"
            if indexes == ["runs_family"] =>
        {
            0.0
        }
        other => panic!("{other}\n{statement}\n{plan:#}"),
    };
    let below = plan["Plans"].as_array().into_iter().flatten();
    here + below.map(|plan| reads(plan, statement, indexes)).sum::<f64>()
}
