//! A run that was asked to end cleans up, also when its engine dies meanwhile.

use std::sync::Arc;

use libtest_mimic::{Failed, Trial};
use semel::rules::entry::Outcome;
use semel::rules::status::Status;
use semel::{Ctx, Result};
use tokio::sync::Notify;

use super::basics::Count;
use super::{Lab, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![trial("a_clean_up_goes_on_after_a_crash_in_its_middle", crash_in_clean_up)]
}

/// Lets the second step of the clean-up end.
#[derive(Clone, Default)]
struct Gate(Arc<Notify>);

/// Books, waits for a word that never comes, and takes the booking back in two steps.
async fn book(ctx: Ctx, (): ()) -> Result<()> {
    let (count, gate) = (ctx.state::<Count>(), ctx.state::<Gate>());
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
    let (lab, count, gate) = (Lab::new(), Count::default(), Gate::default());
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
