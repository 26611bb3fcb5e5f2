//! Databases that die between prepare and commit, and one that is set up for no prepared transactions. Each test has servers of
//! its own.

use std::path::Path;
use std::process::Command;

use libtest_mimic::{Failed, Trial};
use semel::tx::deadpool_postgres::Pool;
use semel::tx::sqlx::{MySqlPool, PgPool};

use super::super::super::Lab;
use super::super::{Script, said};
use super::line::{Accounts, Line, Stop};
use super::{NONE, book, booker, ended, is_settled};
use crate::processes::{PLACE, ROLE};

type Test = Result<(), Failed>;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("tx_all::branches_survive_the_death_of_their_databases", || {
            on_own_servers("branches", "100")
        }),
        Trial::test("tx_all::a_postgres_that_prepares_nothing_is_told_what_to_set", || {
            on_own_servers("unprepared", "0")
        }),
    ]
}

/// Plays a role beside servers that only this test has; `prepared` is the limit on prepared transactions of the PostgreSQL.
fn on_own_servers(role: &str, prepared: &str) -> Test {
    let scripts = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts"));
    let ended = Command::new(scripts.join("with-postgres"))
        .arg(scripts.join("with-mariadb"))
        .arg(std::env::current_exe()?)
        .env_remove("SEMEL_TEST_POSTGRES")
        .env_remove("SEMEL_TEST_MARIADB")
        .env("SEMEL_TEST_POSTGRES_PREPARED", prepared)
        .env(ROLE, role)
        .env(PLACE, "")
        .status()?;
    assert!(ended.success(), "see above for what went wrong");
    Ok(())
}

fn control(variable: &str, action: &str) -> Test {
    let ended = Command::new(std::env::var(variable)?).arg(action).status()?;
    assert!(ended.success(), "{variable} {action}");
    Ok(())
}

/// Both servers are killed at every call from the first prepared branch on, and come back; the engine lives.
pub(crate) async fn branches() -> Test {
    for number in 5..=10 {
        for stop in [Stop::Before, Stop::After] {
            let (lab, line) = (Lab::apart(), Line::stops(number, stop));
            let accounts = Accounts::<Pool, MySqlPool>::open().await.map_err(said)?;
            let engine = booker(lab.engine(), &accounts, &line, &Script::plain()).open().await?;
            let run = engine.start(book::<Pool, MySqlPool>, 30).await?;
            line.stopped().await;
            control("SEMEL_TEST_POSTGRES_CTL", "crash")?;
            control("SEMEL_TEST_MARIADB_CTL", "crash")?;
            line.let_go();
            ended(&lab, &accounts, &run).await;
            assert_eq!(run.result().await?, (970, 970), "killed {stop:?} call {number}");
            is_settled(&accounts, &run, &format!("killed {stop:?} call {number}")).await?;
        }
    }
    Ok(())
}

/// The sentence says what to set, and nothing is left in the other database.
pub(crate) async fn unprepared() -> Test {
    let (lab, line) = (Lab::apart(), Line::free());
    let accounts = Accounts::<MySqlPool, PgPool>::open().await.map_err(said)?;
    let engine = booker(lab.engine(), &accounts, &line, &Script::plain()).open().await?;
    let run = engine.start(book::<MySqlPool, PgPool>, 30).await?;
    let failed = run.result().await.expect_err("it must not succeed").to_string();
    assert!(failed.contains("set max_prepared_transactions to its max_connections"), "{failed}");
    assert_eq!(accounts.prepared(&run.id().to_string()).await.map_err(said)?, []);
    assert_eq!(accounts.state().await.map_err(said)?, NONE);
    Ok(())
}
