//! A crash between the two commits, and a run that begins anew.

use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use semel::rules::key::EffectKey;
use semel::rules::ledger::Lineage;
use semel::rules::path::Visit;
use semel::store::Store;
use semel::store::faulty::{Fault, Faulty};
use semel::{Ctx, Fail, Result, Retry, fatal};
use tokio::sync::Notify;

use super::bank::{Bank, Place};
use super::{Count, Lab, Script, on, pay, payer, said, take_away, trial};

pub(super) fn trials(all: &mut Vec<Trial>) {
    on!(all, between, "after_a_crash_between_the_commits_the_outcome_is_adopted":
        sqlite postgres sqlx_sqlite sqlx_postgres sqlx_mysql);
    on!(all, restarted, "a_run_that_begins_anew_adopts_what_had_taken_place": sqlite postgres sqlx_mysql);
    on!(all, forked, "a_fork_of_the_lineage_adopts_and_is_not_fenced_off": sqlite postgres sqlx_mysql);
    on!(all, restored, "a_store_older_than_the_fence_table_is_an_error": sqlite postgres sqlx_mysql);
}

/// The user's COMMIT takes place, the ledger's never does, and the process dies.
async fn between<S: Bank>() -> Result<(), Failed> {
    let (lab, place) = (Lab::new(), Place::new());
    let bank: S = place.fresh().await.map_err(said)?;
    let cut = Faulty::new(lab.store.clone(), |call| (call == "commit").then_some(Fault::Before));
    let (first, second) = (Script::plain(), Script::plain());
    let engine = payer(lab.engine().store(Arc::new(cut) as Arc<dyn Store>), &bank, &first).open().await?;
    let run = engine.start(pay::<S>, 30).await?;
    lab.until(async || bank.state().await.is_ok_and(|state| state == (970, 1, 1))).await;
    engine.crash().await;
    take_away(&lab.store, &run).await?;
    let engine = payer(lab.engine(), &bank, &second).open().await?;
    assert_eq!(engine.run(run.id()).typed::<i64>().result().await?, 970);
    assert_eq!((first.calls.get(), second.calls.get()), (1, 0), "the body is not called again");
    assert_eq!(bank.state().await.map_err(said)?, (970, 1, 1));
    Ok(())
}

/// What the two branches of a run tell each other.
#[derive(Clone, Default)]
struct Branches {
    bodies: Count,
    fails: Count,
    committed: Arc<Notify>,
}

/// One branch commits in the user's database and gets no further; the other fails the run then, the first time.
async fn forked_way<S: Bank>(ctx: Ctx, cents: i64) -> Result<i64> {
    let (bank, branches) = (ctx.state::<S>(), ctx.state::<Branches>());
    let debit = ctx.tx("debit", &*bank).run(async |mut tx| {
        branches.bodies.up();
        let left = S::debit(&mut tx, cents).await?;
        let committed = tx.commit(left).await?;
        branches.committed.notify_one();
        std::future::pending::<()>().await;
        Ok(committed)
    });
    let fail = ctx.step("fail").retry(Retry::none()).run(async |_| {
        if branches.fails.up() == 1 {
            branches.committed.notified().await;
            return Err(fatal("the other branch fails"));
        }
        Ok(())
    });
    let (left, ()) = tokio::try_join!(debit, fail)?;
    Ok(left)
}

async fn restarted<S: Bank>() -> Result<(), Failed> {
    let (lab, place, branches) = (Lab::new(), Place::new(), Branches::default());
    let bank: S = place.fresh().await.map_err(said)?;
    let engine = lab.engine().state(bank.clone()).state(branches.clone());
    let engine = engine.workflow("pay", forked_way::<S>).open().await?;
    let run = engine.start(forked_way::<S>, 30).await?;
    assert!(
        run.result().await.expect_err("it must not succeed").to_string().contains("the other branch fails")
    );
    let knows = run.ledger().await?.iter().any(|n| n.entry.kind() == "stepCompleted");
    assert!(!knows, "the ledger has nothing of the transaction");
    run.restart().await?;
    assert_eq!(engine.run(run.id()).typed::<i64>().result().await?, 970);
    assert_eq!(branches.bodies.get(), 1);
    assert_eq!(bank.state().await.map_err(said)?, (970, 1, 1));
    Ok(())
}

/// A fork has other versions than the run it comes from, and may find a fence that it will never reach.
async fn forked<S: Bank>() -> Result<(), Failed> {
    for outcome in ["NULL", "'5'"] {
        let (lab, place) = (Lab::new(), Place::new());
        let bank: S = place.fresh().await.map_err(said)?;
        let script = Script::new(async |call| if call == 1 { std::future::pending().await } else { Ok(()) });
        let engine = payer(lab.engine(), &bank, &script).open().await?;
        let run = engine.start(pay::<S>, 30).await?;
        lab.until(async || script.calls.get() == 1).await;
        run.cancel("no more").await?;
        let debit = Visit::parse("debit").expect("a path");
        let key = EffectKey::of(engine.workspace(), run.id(), &debit, "");
        let columns = "fenced_task_idempotency_lock (effect_key, run_id, step, fence, attempt, outcome)";
        let row = format!("('{key}', '{}', 'debit', 1000, 1, {outcome})", run.id());
        bank.script(&format!("INSERT INTO {columns} VALUES {row}")).await.map_err(said)?;
        let fork = run.fork(Some(1), Lineage::Inherited).await?;
        let left = fork.result().await?;
        let state = bank.state().await.map_err(said)?;
        match outcome {
            "NULL" => assert_eq!((left, script.calls.get(), state), (970, 2, (970, 1, 1))),
            _ => {
                assert_eq!((left, script.calls.get(), state), (5, 1, (1000, 0, 1)), "the outcome is adopted");
            }
        }
    }
    Ok(())
}

/// Its first try leaves a fence that no claim of this run has, as if the store had been restored.
async fn ahead<S: Bank>(ctx: Ctx, cents: i64) -> Result<i64> {
    let (bank, calls) = (ctx.state::<S>(), ctx.state::<Count>());
    ctx.tx("debit", &*bank)
        .retry(Retry::fixed(Duration::ZERO))
        .run(async |mut tx| {
            calls.up();
            S::debit(&mut tx, cents).await?;
            let (key, run) = (tx.attempt().key().to_owned(), tx.attempt().run_id().to_string());
            drop(tx);
            let values = format!("('{key}', '{run}', 'debit', 1000, 1)");
            let columns = "fenced_task_idempotency_lock (effect_key, run_id, step, fence, attempt)";
            bank.script(&format!("INSERT INTO {columns} VALUES {values}")).await?;
            Err(Fail::retryable("again"))
        })
        .await
}

async fn restored<S: Bank>() -> Result<(), Failed> {
    let (lab, place, calls) = (Lab::new(), Place::new(), Count::default());
    let bank: S = place.fresh().await.map_err(said)?;
    let engine =
        lab.engine().state(bank.clone()).state(calls.clone()).workflow("ahead", ahead::<S>).open().await?;
    let failed =
        engine.start(ahead::<S>, 30).await?.result().await.expect_err("it must not succeed").to_string();
    assert!(failed.contains("knows claim 1000 of this run"), "{failed}");
    assert_eq!((calls.get(), bank.state().await.map_err(said)?), (1, (1000, 0, 0)));
    Ok(())
}
