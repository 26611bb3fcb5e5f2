//! Branches of transactions over several databases that were left prepared, and a database that prepares none.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use libtest_mimic::{Failed, Trial};
use semel::clock::{Clock as _, SystemClock, Time};
use semel::id::WorkspaceId;
use semel::store::memory::MemoryStore;
use semel::tx::{BranchName, Dialect, PgPoolOptions};
use semel_server::access::Caller;
use semel_server::api::Permission;
use semel_server::app::App;

use super::site::{Site, SiteKind, open};
use crate::cli::say;
use crate::world::{Api, runtime};

/// Says how many transactions a PostgreSQL of `scripts/with-postgres` can have prepared.
const PREPARED: &str = "SEMEL_TEST_POSTGRES_PREPARED";
const UNPREPARED: &str = "databases::several::a_push_to_a_postgres_that_prepares_nothing_says_what_to_set";

pub(super) fn trials() -> Vec<Vec<Trial>> {
    vec![vec![
        Trial::test("databases::several::the_doctor_lists_branches_that_were_left_prepared", || {
            runtime().block_on(listed())
        }),
        Trial::test(UNPREPARED, unprepared),
    ]]
}

/// The name of a branch that was prepared this number of minutes ago.
fn branch(run: &str, minutes: i64) -> BranchName {
    let since = Time(SystemClock::new().now().0 - minutes * 60_000);
    BranchName { run: run.to_owned(), key: "e1left".to_owned(), fence: 1, attempt: 1, index: 0, since }
}

/// A database that other tests do not use: they would list its branches too.
async fn apart() -> Result<Site, Failed> {
    let url = std::env::var("SEMEL_TEST_POSTGRES")?;
    let name = format!("left_{}", std::process::id());
    PgPoolOptions::new(&url).build()?.get().await?.batch_execute(&format!("CREATE DATABASE {name}")).await?;
    let (server, _) = url.rsplit_once('/').ok_or("an address")?;
    let folder = Arc::new(tempfile::tempdir()?);
    Ok(Site { kind: SiteKind::Postgres, url: format!("{server}/{name}"), folder })
}

async fn listed() -> Result<(), Failed> {
    let site = apart().await?;
    let config = site.folder().join("semel.toml");
    let url = site.folder().join("url");
    std::fs::write(&url, &site.url)?;
    std::fs::write(
        &config,
        format!("[connections.bank]\nkind = 'postgres'\nurl = {{ file = '{}' }}\n", url.display()),
    )?;
    // There is no server: only what is said of the database is looked at.
    let doctor = || -> Result<(String, String, String), Failed> {
        let said = say(&[
            "doctor",
            "--url",
            "http://127.0.0.1:1",
            "--config",
            &config.display().to_string(),
            "-o",
            "json",
        ]);
        let found: serde_json::Value = serde_json::from_str(said.stdout())?;
        let checks = found["checks"].as_array().ok_or("a list")?;
        let of_database: Vec<_> = checks.iter().filter(|check| check["check"] == "database").collect();
        assert_eq!(of_database.len(), 1, "{found}");
        let text = |member: &str| of_database[0][member].as_str().unwrap_or_default().to_owned();
        Ok((text("state"), text("found"), text("fix")))
    };
    let nothing = "bank has no branches of transactions that were left prepared";
    assert_eq!(doctor()?.1, nothing);
    let client = PgPoolOptions::new(&site.url).build()?.get().await?;
    let (fresh, old) = (branch("run_fresh", 2), branch("run_old", 90));
    for name in [&fresh, &old] {
        client.batch_execute(&format!("BEGIN; PREPARE TRANSACTION '{name}'")).await?;
    }
    // Transactions that are not ours are not told.
    client.batch_execute("BEGIN; PREPARE TRANSACTION 'of-another-program'").await?;
    let (state, told, fix) = doctor()?;
    assert_eq!(state, "look");
    assert!(
        told.contains(&old.to_string()) && told.contains("of run_old, prepared 90 minutes ago"),
        "{told}"
    );
    assert!(fix.contains("start the server that drives the run"), "{fix}");
    client.batch_execute(&Dialect::Postgres.rollback_branch(&old)).await?;
    assert_eq!(doctor()?.1, nothing, "a branch of two minutes is under way");
    client.batch_execute(&Dialect::Postgres.rollback_branch(&fresh)).await?;
    client.batch_execute("ROLLBACK PREPARED 'of-another-program'").await?;
    Ok(())
}

/// Plays the test beside a PostgreSQL of its own, with the default of PostgreSQL: none can be prepared.
fn unprepared() -> Result<(), Failed> {
    if std::env::var(PREPARED).is_ok_and(|prepared| prepared == "0") {
        return runtime().block_on(refused());
    }
    let scripts = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts"));
    let ended = Command::new(scripts.join("with-postgres"))
        .arg(std::env::current_exe()?)
        .args(["--exact", UNPREPARED])
        .env_remove("SEMEL_TEST_POSTGRES")
        .env(PREPARED, "0")
        .output()?;
    let told = String::from_utf8_lossy(&ended.stdout);
    assert!(
        ended.status.success() && told.contains("1 passed"),
        "{told}{}",
        String::from_utf8_lossy(&ended.stderr)
    );
    Ok(())
}

async fn refused() -> Result<(), Failed> {
    let (bank, stock) = (Site::new(SiteKind::Postgres).await, Site::new(SiteKind::Mariadb).await);
    let connections = open(&[("bank", &bank), ("stock", &stock)], "")?;
    let app = App {
        connections: Some(Arc::new(connections)),
        ..App::open(Arc::new(MemoryStore::new(Arc::new(SystemClock::new()))), Arc::new(SystemClock::new()))
    };
    let caller = Caller::new(WorkspaceId::DEFAULT, "author", vec![Permission::Admin]);
    let api = Api::serve_as(app, caller).await;
    let block = |second: &str| {
        format!(
            "semel: 1\nname: a\nsteps:\n  - name: x\n    transaction: [{{name: a, sql: {{on: bank, run: DELETE FROM account}}}}, \
             {{name: b, sql: {{on: {second}, run: DELETE FROM account}}}}]"
        )
    };
    let answer = api.post("/workflow-definitions", block("stock")).await;
    assert_eq!(answer.status, 400, "{}", answer.text);
    for part in
        ["`bank` cannot commit together with other databases", "set `max_prepared_transactions = 100`"]
    {
        assert!(answer.text.contains(part), "{}", answer.text);
    }
    // Alone it commits without.
    let answer = api.post("/workflow-definitions", block("bank")).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    Ok(())
}
