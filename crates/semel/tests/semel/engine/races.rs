//! Races and children over a retry: what the new life decides anew.

use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use semel::rules::status::Status;
use semel::sdk::Either;
use semel::testing::{Effects, history};
use semel::{Ctx, Result, RunHandle, fatal};

use super::{Lab, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("a_race_that_a_failure_decided_has_its_limit_again_after_a_retry", limit_again),
        trial("a_race_is_undone_by_a_failure_that_was_not_the_last_outcome", limit_of_both),
        trial("a_race_stays_decided_if_its_winner_has_handled_a_failure", handled_failure),
        trial("a_hook_that_lost_to_a_failure_is_open_again_after_a_retry", hook_again),
        trial("a_restarted_run_hears_anew_of_a_child_that_ended_meanwhile", child_again),
    ]
}

/// Whether this is called for the first time.
fn first_time(ctx: &Ctx, name: &str) -> bool {
    let effects = ctx.state::<Effects>();
    let first = effects.calls(name) == 0;
    effects.apply(name, name).expect("it works");
    first
}

async fn fails_once(ctx: &Ctx) -> Result<()> {
    let body = async |_| if first_time(ctx, "work") { Err(fatal("as planned")) } else { Ok(()) };
    ctx.step("work").run(body).await
}

async fn rests(lab: &Lab, run: &RunHandle<String>) {
    lab.until(async || run.status().await.is_ok_and(|status| status == Status::Waiting)).await;
}

/// Work that fails, and waits in vain when it is tried again.
async fn limited(ctx: Ctx, (): ()) -> Result<String> {
    let work = async {
        fails_once(&ctx).await?;
        ctx.hook::<String>("never").recv().await
    };
    match ctx.race("race", work, ctx.sleep("limit", Duration::from_secs(2))).await? {
        Either::A(said) => said,
        Either::B(late) => late.map(|()| "too late".to_owned()),
    }
}

async fn limit_again() -> Result<(), Failed> {
    for forgetful in [false, true] {
        let lab = Lab::new();
        let builder = if forgetful { lab.forgetful() } else { lab.engine() };
        let engine = builder.state(Effects::new()).workflow("limited", limited).open().await?;
        let run = engine.start(limited, ()).await?;
        assert!(run.result().await.is_err());
        run.retry().await?;
        rests(&lab, &run).await;
        lab.clock.advance(Duration::from_secs(2));
        assert_eq!(run.result().await?, "too late");
    }
    Ok(())
}

/// Two things at once: one fails, the other ends well after it.
async fn both(ctx: Ctx, (): ()) -> Result<String> {
    let work = async {
        let slow = async {
            tokio::task::yield_now().await;
            ctx.step("slow").run(async |_| Ok(())).await
        };
        let (one, two) = tokio::join!(fails_once(&ctx), slow);
        one.and(two)?;
        ctx.hook::<String>("never").recv().await
    };
    match ctx.race("race", work, ctx.sleep("limit", Duration::from_secs(2))).await? {
        Either::A(said) => said,
        Either::B(late) => late.map(|()| "too late".to_owned()),
    }
}

async fn limit_of_both() -> Result<(), Failed> {
    let lab = Lab::new();
    let engine = lab.engine().state(Effects::new()).workflow("both", both).open().await?;
    let run = engine.start(both, ()).await?;
    assert!(run.result().await.is_err());
    run.retry().await?;
    rests(&lab, &run).await;
    lab.clock.advance(Duration::from_secs(2));
    assert_eq!(run.result().await?, "too late");
    Ok(())
}

/// The winner handles a failure and goes on. Behind the race something else fails.
async fn handled(ctx: Ctx, (): ()) -> Result<String> {
    let work = async {
        drop(ctx.step("fatal").run(async |_| Err::<(), _>(fatal("as planned"))).await);
        ctx.step("quick").run(async |_| Ok("done".to_owned())).await
    };
    let said = match ctx.race("race", work, ctx.sleep("limit", Duration::from_secs(2))).await? {
        Either::A(said) => said?,
        Either::B(late) => late.map(|()| "too late".to_owned())?,
    };
    fails_once(&ctx).await.map(|()| said)
}

async fn handled_failure() -> Result<(), Failed> {
    let lab = Lab::new();
    let engine = lab.engine().state(Effects::new()).workflow("handled", handled).open().await?;
    let run = engine.start(handled, ()).await?;
    assert!(run.result().await.is_err());
    run.retry().await?;
    assert_eq!(run.result().await?, "done");
    assert_eq!(history(&run).await?.count("recorded"), 1, "it was decided once");
    Ok(())
}

async fn answered(ctx: Ctx, (): ()) -> Result<String> {
    let mut answer = ctx.hook::<String>("answer");
    let work = async {
        fails_once(&ctx).await?;
        ctx.sleep("longer", Duration::from_hours(1)).await
    };
    let answer = async move { answer.recv().await };
    match ctx.race("race", work, answer).await? {
        Either::A(done) => done.map(|()| "done".to_owned()),
        Either::B(said) => said,
    }
}

async fn hook_again() -> Result<(), Failed> {
    for forgetful in [false, true] {
        let lab = Lab::new();
        let builder = if forgetful { lab.forgetful() } else { lab.engine() };
        let engine = builder.state(Effects::new()).workflow("answered", answered).open().await?;
        let run = engine.start(answered, ()).await?;
        assert!(run.result().await.is_err());
        assert_eq!(history(&run).await?.count("hookClosed"), 1, "it was dropped when it had lost");
        run.retry().await?;
        rests(&lab, &run).await;
        engine.deliver("answer", "yes").await?;
        assert_eq!(run.result().await?, "yes");
    }
    Ok(())
}

async fn ask(ctx: Ctx, (): ()) -> Result<String> {
    ctx.hook("question").recv().await
}

/// The child is late the first time. When it has ended all the same, the run fails.
async fn parent(ctx: Ctx, (): ()) -> Result<String> {
    let child = ctx.child(ask, ()).await?;
    let first = match ctx.race("race", child.result(), ctx.sleep("limit", Duration::from_secs(1))).await? {
        Either::A(said) => return said,
        Either::B(late) => late,
    };
    first?;
    ctx.hook::<()>("go").recv().await?;
    ctx.step("after").run(async |_| Err::<String, _>(fatal("as planned"))).await
}

async fn child_again() -> Result<(), Failed> {
    for forgetful in [false, true] {
        let lab = Lab::new();
        let builder = if forgetful { lab.forgetful() } else { lab.engine() };
        let engine = builder.workflow("ask", ask).workflow("parent", parent).open().await?;
        let run = engine.start(parent, ()).await?;
        lab.until(async || engine.hook("question").await.is_ok_and(|owner| owner.is_some())).await;
        rests(&lab, &run).await;
        lab.clock.advance(Duration::from_secs(1));
        lab.until(async || engine.hook("go").await.is_ok_and(|owner| owner.is_some())).await;
        let child = engine.hook("question").await?.expect("it waits");
        engine.deliver("question", "yes").await?;
        child.outcome().await?;
        engine.deliver("go", ()).await?;
        assert!(run.result().await.is_err(), "the end of the child is in its inbox and is not consumed");
        assert!(run.restart().await?.changed);
        assert_eq!(run.result().await?, "yes");
    }
    Ok(())
}
