//! A run that was asked to end cleans up, also when its engine dies meanwhile.

use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use semel::rules::entry::Outcome;
use semel::rules::ledger::Lineage;
use semel::rules::status::Status;
use semel::sdk::Either;
use semel::{Ctx, Engine, Result, RunHandle, fatal};
use tokio::sync::Notify;

use super::basics::Count;
use super::{Lab, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("a_clean_up_goes_on_after_a_crash_in_its_middle", crash_in_clean_up),
        trial("a_race_that_a_cancel_decided_is_open_again_after_a_restart", restarted),
        trial("a_race_that_a_cancel_decided_is_open_again_in_a_fork", forked),
    ]
}

/// Lets the second step of the clean-up end.
#[derive(Clone, Default)]
struct CleanUpGate(Arc<Notify>);

/// Books, waits for a word that never comes, and takes the booking back in two steps.
async fn book(ctx: Ctx, (): ()) -> Result<()> {
    let (count, gate) = (ctx.state::<Count>(), ctx.state::<CleanUpGate>());
    ctx.step("book").run(async |_| Ok(count.up())).await?;
    let mut word = ctx.hook::<String>("word");
    let said = word.recv().await;
    if said.as_ref().is_err_and(semel::Fail::is_cancelled) {
        let cleanup = ctx.cleanup();
        cleanup.step("unbook").run(async |_| Ok(count.up())).await?;
        cleanup
            .step("tell")
            .run(async |_| {
                gate.0.notified().await;
                Ok(count.up())
            })
            .await?;
    }
    said.map(drop)
}

async fn crash_in_clean_up() -> Result<(), Failed> {
    let (lab, count, gate) = (Lab::new(), Count::default(), CleanUpGate::default());
    let builder = || lab.engine().state(count.clone()).state(gate.clone()).workflow("book", book);
    let engine = builder().open().await?;
    let run = engine.start(book, ()).await?;
    lab.until(async || run.status().await.is_ok_and(|status| status == Status::Waiting)).await;
    run.request_cancel("changed my mind").await?;
    lab.until(async || {
        run.ledger()
            .await
            .is_ok_and(|all| all.iter().filter(|n| n.entry.kind() == "stepCompleted").count() == 2)
    })
    .await;
    engine.crash().await;
    lab.clock.advance(std::time::Duration::from_hours(24 * 366));
    let engine = builder().open().await?;
    gate.0.notify_one();
    let ended = engine.run(run.id()).outcome().await?;
    assert_eq!(ended, Outcome::Cancelled("changed my mind".to_owned()));
    assert_eq!(count.get(), 3, "book, unbook and tell took place once each");
    Ok(())
}

const MINUTE: Duration = Duration::from_mins(1);

/// Waits for the first of two, and tells which it was. A cancel makes it fail.
async fn first(ctx: Ctx, (): ()) -> Result<String> {
    let (long, short) = (ctx.sleep("long", 60 * MINUTE), ctx.sleep("short", MINUTE));
    let (who, slept) = match ctx.race("first", long, short).await? {
        Either::A(slept) => ("long", slept),
        Either::B(slept) => ("short", slept),
    };
    slept.map_err(|_| fatal("it was disturbed"))?;
    Ok(who.to_owned())
}

async fn disturbed(lab: &Lab) -> Result<(Engine, RunHandle<String>), Failed> {
    let engine = lab.engine().workflow("first", first).open().await?;
    let run = engine.start(first, ()).await?;
    lab.until(async || run.status().await.is_ok_and(|status| status == Status::Waiting)).await;
    run.request_cancel("no longer").await?;
    assert!(matches!(run.outcome().await?, Outcome::Failed(_)));
    Ok((engine, run))
}

async fn goes_on(lab: &Lab, run: &RunHandle<String>) -> Result<(), Failed> {
    lab.until(async || run.status().await.is_ok_and(|status| status == Status::Waiting)).await;
    lab.clock.advance(MINUTE);
    lab.until(async || run.status().await.is_ok_and(Status::is_terminal)).await;
    assert_eq!(run.result().await?, "short");
    Ok(())
}

async fn restarted() -> Result<(), Failed> {
    let lab = Lab::new();
    let (_engine, run) = disturbed(&lab).await?;
    run.retry().await?;
    goes_on(&lab, &run).await
}

async fn forked() -> Result<(), Failed> {
    let lab = Lab::new();
    let (_engine, run) = disturbed(&lab).await?;
    goes_on(&lab, &run.fork(None, Lineage::Inherited).await?).await
}
