//! Lists of databases, one database alone, and databases that cannot prepare.

use libtest_mimic::{Failed, Trial};
use semel::tx::sqlx::{MySqlPool, PgPool};
use semel::tx::{SqliteDb, TwoPhase};
use semel::{Ctx, Result, Retry};

use super::super::super::{Lab, trial};
use super::super::bank::{Bank, Place};
use super::super::said;

pub(super) fn trials(all: &mut Vec<Trial>) {
    all.push(trial("tx_all::one_database_alone_is_not_prepared::sqlite", alone::<SqliteDb>));
    all.push(trial("tx_all::one_database_alone_is_not_prepared::sqlx_postgres", alone::<PgPool>));
    all.push(trial("tx_all::one_database_alone_is_not_prepared::sqlx_mysql", alone::<MySqlPool>));
    all.push(trial("tx_all::a_list_of_databases_gives_a_list", list));
    all.push(trial("tx_all::sqlite_beside_another_database_is_refused", refused));
    all.push(trial("tx_all::two_schemas_of_one_server_are_two_databases", same_server));
}

async fn debit_alone<S: Bank + TwoPhase>(ctx: Ctx, cents: i64) -> Result<(i64,)> {
    let bank = ctx.state::<S>();
    ctx.tx_all("book")
        .on(&*bank, async |mut tx| {
            let left = S::debit(&mut tx, cents).await?;
            tx.ready(left)
        })
        .run()
        .await
}

async fn alone<S: Bank + TwoPhase>() -> Result<(), Failed> {
    let (lab, place) = (Lab::apart(), Place::new());
    let bank: S = place.fresh().await.map_err(said)?;
    let engine = lab.engine().state(bank.clone()).workflow("book", debit_alone::<S>).open().await?;
    let run = engine.start(debit_alone::<S>, 30).await?;
    assert_eq!(run.result().await?, (970,));
    assert_eq!(bank.state().await.map_err(said)?, (970, 1, 1));
    let ledger: Vec<String> =
        run.ledger().await?.iter().map(|numbered| numbered.entry.kind().to_owned()).collect();
    assert!(!ledger.iter().any(|kind| kind == "recorded"), "there is nothing to decide: {ledger:?}");
    Ok(())
}

/// Databases that are known at run time only.
struct Many {
    postgres: Vec<PgPool>,
    mysql: Vec<MySqlPool>,
}

async fn debit_many(ctx: Ctx, cents: i64) -> Result<Vec<i64>> {
    let many = ctx.state::<Many>();
    let mut all = ctx.tx_all("book").list();
    for pool in &many.postgres {
        all.push(pool, async |mut tx| {
            let left = PgPool::debit(&mut tx, cents).await?;
            tx.ready(left)
        });
    }
    for pool in &many.mysql {
        all.push(pool, async |mut tx| {
            let left = MySqlPool::debit(&mut tx, cents).await?;
            tx.ready(left)
        });
    }
    all.run().await
}

async fn list() -> Result<(), Failed> {
    let (lab, places) = (Lab::apart(), [Place::new(), Place::new(), Place::new()]);
    let postgres: Vec<PgPool> =
        vec![places[0].fresh().await.map_err(said)?, places[1].fresh().await.map_err(said)?];
    let mysql: Vec<MySqlPool> = vec![places[2].fresh().await.map_err(said)?];
    let many = Many { postgres: postgres.clone(), mysql: mysql.clone() };
    let engine = lab.engine().state(many).workflow("book", debit_many).open().await?;
    assert_eq!(engine.start(debit_many, 30).await?.result().await?, [970, 970, 970]);
    for pool in &postgres {
        assert_eq!(pool.state().await.map_err(said)?, (970, 1, 1));
    }
    assert_eq!(mysql[0].state().await.map_err(said)?, (970, 1, 1));
    Ok(())
}

async fn debit_both<A: Bank + TwoPhase, B: Bank + TwoPhase>(ctx: Ctx, cents: i64) -> Result<(i64, i64)> {
    let both = ctx.state::<(A, B)>();
    ctx.tx_all("book")
        .retry(Retry::none())
        .on(&both.0, async |mut tx| {
            let left = A::debit(&mut tx, cents).await?;
            tx.ready(left)
        })
        .on(&both.1, async |mut tx| {
            let left = B::debit(&mut tx, cents).await?;
            tx.ready(left)
        })
        .run()
        .await
}

async fn refused() -> Result<(), Failed> {
    let (lab, places) = (Lab::apart(), [Place::new(), Place::new()]);
    let lite: SqliteDb = places[0].fresh().await.map_err(said)?;
    let postgres: PgPool = places[1].fresh().await.map_err(said)?;
    let engine = lab.engine().state((lite.clone(), postgres.clone()));
    let engine = engine.workflow("book", debit_both::<SqliteDb, PgPool>).open().await?;
    let failed = engine.start(debit_both::<SqliteDb, PgPool>, 30).await?.result().await;
    let failed = failed.expect_err("it must not succeed").to_string();
    assert!(failed.contains("SQLite cannot prepare a transaction"), "{failed}");
    assert_eq!(lite.state().await.map_err(said)?, (1000, 0, 0));
    assert_eq!(postgres.state().await.map_err(said)?, (1000, 0, 0));
    Ok(())
}

/// Their branches are listed by the same server.
async fn same_server() -> Result<(), Failed> {
    let (lab, places) = (Lab::apart(), [Place::new(), Place::new()]);
    let (one, two): (MySqlPool, MySqlPool) =
        (places[0].fresh().await.map_err(said)?, places[1].fresh().await.map_err(said)?);
    let engine = lab.engine().state((one.clone(), two.clone()));
    let engine = engine.workflow("book", debit_both::<MySqlPool, MySqlPool>).open().await?;
    assert_eq!(engine.start(debit_both::<MySqlPool, MySqlPool>, 30).await?.result().await?, (970, 970));
    assert_eq!(one.state().await.map_err(said)?, (970, 1, 1));
    assert_eq!(two.state().await.map_err(said)?, (970, 1, 1));
    Ok(())
}
