//! What is heard at once: the clock of these tests stands still, so nobody looks again by itself.

use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use libtest_mimic::{Failed, Trial};
use semel::rules::status::Status;
use semel::{Ctx, Fail, Once, Result};
use tokio::sync::Notify;

use super::basics::Count;
use super::{Lab, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("a_once_goes_to_the_next_as_soon_as_its_owner_has_ended", given_up),
        trial("a_pause_by_the_driver_is_heard_by_whoever_waits_for_it", paused),
    ]
}

#[derive(Clone, Default)]
struct Gate {
    begun: Count,
    opened: Arc<Notify>,
}

/// Begins the once, and ends without a result of it.
async fn gives_up(ctx: Ctx, (): ()) -> Result<()> {
    let gate = ctx.state::<Gate>();
    let make = async || {
        gate.begun.up();
        pending::<Result<u32>>().await
    };
    tokio::select! {
        result = ctx.run_once("table", make).scope(Once::Workspace).into_future() => result.map(drop),
        () = gate.opened.notified() => Ok(()),
    }
}

async fn waits(ctx: Ctx, (): ()) -> Result<u32> {
    ctx.run_once("table", async || Ok(7)).scope(Once::Workspace).await
}

async fn given_up() -> Result<(), Failed> {
    let (lab, gate) = (Lab::new(), Gate::default());
    let one = lab.engine().state(gate.clone()).workflow("gives up", gives_up).open().await?;
    // Another engine: that of the owner looks for due runs when it has room again.
    let two = lab.engine().workflow("waits", waits).open().await?;
    let owner = one.start(gives_up, ()).await?;
    lab.until(async || gate.begun.get() == 1).await;
    let waiter = two.start(waits, ()).await?;
    lab.until(async || waiter.status().await.is_ok_and(|status| status == Status::Waiting)).await;
    gate.opened.notify_one();
    owner.result().await?;
    assert_eq!(waiter.result().await?, 7, "it makes the result itself");
    Ok(())
}

async fn doubtful(ctx: Ctx, (): ()) -> Result<()> {
    let gate = ctx.state::<Gate>();
    ctx.step("try")
        .at_most_once()
        .run(async |_| {
            gate.opened.notified().await;
            Err(Fail::uncertain("no answer"))
        })
        .await
}

async fn paused() -> Result<(), Failed> {
    let (lab, gate) = (Lab::new(), Gate::default());
    let engine = lab.engine().state(gate.clone()).workflow("doubtful", doubtful).open().await?;
    let run = engine.start(doubtful, ()).await?;
    let mut reached = pin!(run.reached(Status::Paused));
    let first = poll_fn(|cx| Poll::Ready(reached.as_mut().poll(cx))).await;
    assert!(first.is_pending(), "it is not paused yet");
    gate.opened.notify_one();
    assert_eq!(reached.await?, Status::Paused);
    Ok(())
}
