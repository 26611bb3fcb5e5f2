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

use super::line::spoilt;
use super::site::{Site, SiteKind, open};
use crate::cli::say;
use crate::world::{Api, runtime};

/// Says how many transactions a PostgreSQL of `scripts/with-postgres` can have prepared.
const PREPARED: &str = "SEMEL_TEST_POSTGRES_PREPARED";
const UNPREPARED: &str = "databases::several::a_push_to_a_postgres_that_prepares_nothing_says_what_to_set";

pub(super) fn trials() -> Vec<Vec<Trial>> {
    vec![vec![
        Trial::test("databases::several::the_doctor_lists_branches_that_were_left_prepared", || {
            runtime().block_on(async { listed(apart().await?).await })
        }),
        Trial::test(
            "databases::several::the_doctor_lists_branches_that_were_left_prepared_in_mariadb",
            || runtime().block_on(async { listed(Site::empty(SiteKind::Mariadb).await).await }),
        ),
        Trial::test(UNPREPARED, unprepared),
        Trial::test(
            "databases::several::a_push_to_a_mariadb_that_lists_no_branches_says_what_to_grant",
            || runtime().block_on(unlisted()),
        ),
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

/// Prepares a branch, as a program does that dies then. MariaDB forgets one without a change by itself.
async fn prepare(site: &Site, name: &BranchName) {
    let script = match site.kind {
        SiteKind::Mariadb => {
            let word = |word: &str| Dialect::Mysql.rollback_branch(name).replace("ROLLBACK", word);
            let change = format!("INSERT INTO account VALUES ('{}', 1)", name.run);
            [word("START"), change, word("END"), word("PREPARE")].join("; ")
        }
        _ => format!("BEGIN; PREPARE TRANSACTION '{name}'"),
    };
    site.script(&script).await;
}

fn dialect(kind: SiteKind) -> Dialect {
    if kind == SiteKind::Mariadb { Dialect::Mysql } else { Dialect::Postgres }
}

async fn listed(site: Site) -> Result<(), Failed> {
    let kind = if site.kind == SiteKind::Mariadb { "mysql" } else { "postgres" };
    let config = site.folder().join("semel.toml");
    let url = site.folder().join("url");
    std::fs::write(&url, &site.url)?;
    std::fs::write(
        &config,
        format!("[connections.bank]\nkind = '{kind}'\nurl = {{ file = '{}' }}\n", url.display()),
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
    let (fresh, old) = (branch("run_fresh", 2), branch("run_old", 90));
    for name in [&fresh, &old] {
        prepare(&site, name).await;
    }
    // Transactions that are not ours are not told.
    let (stranger, gone) = match site.kind {
        SiteKind::Mariadb => (
            "XA START 'stranger'; INSERT INTO account VALUES ('stranger', 1); XA END 'stranger'; XA PREPARE 'stranger'",
            "XA ROLLBACK 'stranger'",
        ),
        _ => ("BEGIN; PREPARE TRANSACTION 'a-stranger'", "ROLLBACK PREPARED 'a-stranger'"),
    };
    site.script(stranger).await;
    let (state, told, fix) = doctor()?;
    assert_eq!(state, "look");
    assert!(
        told.contains(&old.to_string()) && told.contains("of run_old, prepared 90 minutes ago"),
        "{told}"
    );
    assert!(fix.contains("start the server that drives the run"), "{fix}");
    site.script(&dialect(site.kind).rollback_branch(&old)).await;
    assert_eq!(doctor()?.1, nothing, "a branch of two minutes is under way");
    site.script(&dialect(site.kind).rollback_branch(&fresh)).await;
    site.script(gone).await;
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

/// A server of the interface with two connections, `bank` and `stock`.
async fn served(bank: &Site, stock: &Site) -> Result<Api, Failed> {
    let connections = open(&[("bank", bank), ("stock", stock)], "")?;
    let app = App {
        connections: Some(Arc::new(connections)),
        ..App::open(Arc::new(MemoryStore::new(Arc::new(SystemClock::new()))), Arc::new(SystemClock::new()))
    };
    let caller = Caller::new(WorkspaceId::DEFAULT, "author", vec![Permission::Admin]);
    Ok(Api::serve_as(app, caller).await)
}

/// A transaction of `bank` and this connection.
fn block(second: &str) -> String {
    format!(
        "semel: 1\nname: a\nsteps:\n  - name: x\n    transaction: [{{name: a, sql: {{on: bank, run: DELETE FROM account}}}}, \
         {{name: b, sql: {{on: {second}, run: DELETE FROM account}}}}]"
    )
}

async fn refused() -> Result<(), Failed> {
    let (bank, stock) = (Site::new(SiteKind::Postgres).await, Site::new(SiteKind::Mariadb).await);
    let api = served(&bank, &stock).await?;
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

/// MySQL without `XA_RECOVER_ADMIN`, played by a MariaDB behind a line that spoils the statement.
async fn unlisted() -> Result<(), Failed> {
    let (bank, stock) = (Site::new(SiteKind::Postgres).await, Site::new(SiteKind::Mariadb).await);
    let stock = spoilt(&stock, "XA RECOVER").await;
    let checked = stock.checked(false).await;
    assert!(checked.is_fine && checked.found.contains("XA_RECOVER_ADMIN"), "{checked:?}");
    let api = served(&bank, &stock).await?;
    let answer = api.post("/workflow-definitions", block("stock")).await;
    assert_eq!(answer.status, 400, "{}", answer.text);
    for part in ["`stock` cannot commit together with other databases", "XA_RECOVER_ADMIN"] {
        assert!(answer.text.contains(part), "{}", answer.text);
    }
    Ok(())
}
