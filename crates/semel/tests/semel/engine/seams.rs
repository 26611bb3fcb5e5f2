//! Interactions of two features: branches and recorded values, clean-up and bodies that read, a pause and its waiters.

use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use semel::Error;
use semel::rules::entry::{Outcome, PauseReason};
use semel::rules::status::Status;
use semel::sdk::Either;
use semel::testing::{Effects, history};
use semel::{Attempt, Ctx, Result};
use tokio::sync::{Notify, Semaphore};

use super::basics::Count;
use super::replay::{ended, identical, waiting};
use super::{Lab, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("branches_find_their_own_values_whichever_comes_first", own_values),
        trial("a_name_of_a_value_is_given_once", same_name),
        trial("a_body_that_cleans_up_is_not_told_to_stop", clean_up_goes_on),
        trial("a_handle_tells_why_its_run_is_paused_and_what_is_in_doubt", why_paused),
        trial("an_effect_that_was_left_before_its_end_is_in_doubt", left_alone),
        trial("what_is_left_and_did_not_happen_lets_its_run_complete", left_and_undone),
        trial("waiters_for_a_run_are_told_when_its_engine_is_stopped_by_force", stopped),
        trial("a_number_that_cannot_be_kept_fails_its_step", not_a_number),
    ]
}

/// Two branches, of which the second is faster while they are executed, and the first when they are rebuilt.
async fn branches(ctx: Ctx, (): ()) -> Result<(String, String)> {
    let gate = ctx.state::<Semaphore>();
    let slow = async {
        let body = async |_| {
            gate.acquire().await?.forget();
            Ok(())
        };
        ctx.step("slow").run(body).await?;
        let id = ctx.uuid("slow").await?.to_string();
        ctx.step("slow id").run(async |_| Ok(id.clone())).await
    };
    let fast = async {
        ctx.step("fast").run(async |_| Ok(())).await?;
        let id = ctx.uuid("fast").await?.to_string();
        let noted = ctx.step("fast id").run(async |_| Ok(id.clone())).await;
        gate.add_permits(1);
        assert_eq!(noted.as_ref().ok(), Some(&id), "the id that was noted");
        noted
    };
    let (slow, fast) = tokio::join!(slow, fast);
    ctx.sleep("nap", Duration::from_hours(1)).await?;
    let again = ctx
        .step("after")
        .run(async |_| Ok((slow.as_ref().ok().cloned(), fast.as_ref().ok().cloned())))
        .await?;
    assert_eq!(again, (slow.as_ref().ok().cloned(), fast.as_ref().ok().cloned()));
    Ok((slow?, fast?))
}

async fn own_values() -> Result<(), Failed> {
    let lab = Lab::new();
    let engine = lab.forgetful().state(Semaphore::new(0)).workflow("branches", branches).open().await?;
    let run = engine.start(branches, ()).await?;
    waiting(&lab, &run).await;
    let noted = |path: &'static str| {
        let run = &run;
        async move {
            let text = history(run).await?.to_string();
            let line = text.lines().find(|line| line.contains("recorded") && line.contains(path));
            Ok::<_, semel::Error>(line.expect("it is recorded").to_owned())
        }
    };
    let (slow_line, fast_line) = (noted("@uuid[slow]").await?, noted("@uuid[fast]").await?);
    ended(&lab, &run).await?;
    let (slow, fast) = run.result().await?;
    assert!(slow_line.contains(&slow) && fast_line.contains(&fast), "{slow_line} {fast_line} {slow} {fast}");
    identical(&engine.replay(run.id()).await?);
    Ok(())
}

async fn again(ctx: Ctx, (): ()) -> Result<bool> {
    Ok(ctx.random("dice").await? < ctx.random("dice").await?)
}

async fn same_name() -> Result<(), Failed> {
    let lab = Lab::new();
    let engine = lab.engine().workflow("again", again).open().await?;
    let failed = engine.start(again, ()).await?.result().await.expect_err("which of the two is meant?");
    assert!(failed.to_string().contains("@random[dice] is visited a second time"), "{failed}");
    Ok(())
}

/// A body that stops early when its result is of no more use.
fn unless_cancelled(attempt: &Attempt, effects: &Effects, name: &str) -> Result<u32> {
    if attempt.is_cancelled() {
        return Err(semel::fatal("it would be of no use"));
    }
    effects.apply(name, attempt.key())
}

async fn book(ctx: Ctx, (): ()) -> Result<()> {
    let effects = ctx.state::<Effects>();
    ctx.step("book").run(async |a| unless_cancelled(&a, &effects, "book")).await?;
    let waited = ctx.sleep("nap", Duration::from_hours(1)).await;
    if waited.is_err() {
        let cleanup = ctx.cleanup();
        cleanup.step("unbook").run(async |a| unless_cancelled(&a, &effects, "unbook")).await?;
    }
    waited
}

async fn clean_up_goes_on() -> Result<(), Failed> {
    let (lab, effects) = (Lab::new(), Effects::new());
    let engine = lab.engine().state(effects.clone()).workflow("book", book).open().await?;
    let run = engine.start(book, ()).await?;
    waiting(&lab, &run).await;
    run.request_cancel("no longer").await?;
    assert_eq!(run.outcome().await?, Outcome::Cancelled("no longer".to_owned()));
    assert_eq!((effects.calls("book"), effects.calls("unbook")), (1, 1));
    Ok(())
}

async fn unsure(ctx: Ctx, (): ()) -> Result<u32> {
    ctx.step("letter").at_most_once().run(async |_| Err(semel::Fail::uncertain("the line was cut"))).await
}

async fn why_paused() -> Result<(), Failed> {
    let lab = Lab::new();
    let engine = lab.engine().workflow("unsure", unsure).open().await?;
    let run = engine.start(unsure, ()).await?;
    run.reached(Status::Paused).await?;
    assert_eq!(run.pause_reason().await?, Some(PauseReason::InDoubt));
    let doubts = run.doubts().await?;
    assert_eq!(
        doubts.iter().map(|doubt| (&*doubt.step, &*doubt.reason)).collect::<Vec<_>>(),
        [("letter", "the line was cut")]
    );
    run.happened(&doubts[0].step, &7).await?;
    assert_eq!((run.result().await?, run.pause_reason().await?, run.doubts().await?), (7, None, Vec::new()));
    Ok(())
}

/// A letter that must not be sent twice, in a branch that is dropped before it ends.
async fn impatient(ctx: Ctx, (): ()) -> Result<String> {
    let effects = ctx.state::<Effects>();
    let letter = ctx.step("letter").at_most_once().run(async |attempt| {
        effects.apply("letter", attempt.key())?;
        std::future::pending::<Result<u32>>().await
    });
    let won = ctx.race("first", letter, ctx.sleep("nap", Duration::from_hours(1))).await?;
    Ok(if matches!(won, Either::A(_)) { "sent" } else { "too late" }.to_owned())
}

async fn left(lab: &Lab, effects: &Effects) -> Result<semel::RunHandle<String>, Failed> {
    let engine = lab.engine().state(effects.clone()).workflow("impatient", impatient).open().await?;
    let run = engine.start(impatient, ()).await?;
    lab.until(async || effects.calls("letter") == 1).await;
    lab.clock.advance(Duration::from_hours(1));
    assert_eq!(run.reached(Status::Paused).await?, Status::Paused, "it is unknown whether it was sent");
    let doubts = run.doubts().await?;
    assert_eq!((doubts.len(), doubts[0].step.as_str()), (1, "letter"));
    assert!(doubts[0].reason.contains("without waiting for its end"), "{doubts:?}");
    Ok(run)
}

async fn left_alone() -> Result<(), Failed> {
    let (lab, effects) = (Lab::new(), Effects::new());
    let run = left(&lab, &effects).await?;
    run.happened("letter", &1).await?;
    assert_eq!((run.result().await?, effects.calls("letter")), ("too late".to_owned(), 1));
    Ok(())
}

async fn left_and_undone() -> Result<(), Failed> {
    let (lab, effects) = (Lab::new(), Effects::new());
    let run = left(&lab, &effects).await?;
    run.did_not_happen("letter").await?;
    assert_eq!(
        (run.result().await?, effects.calls("letter")),
        ("too late".to_owned(), 1),
        "the race was lost"
    );
    Ok(())
}

#[derive(Clone, Default)]
struct Entered(Arc<Notify>);

async fn endless(ctx: Ctx, (): ()) -> Result<()> {
    let entered = ctx.state::<Entered>();
    let body = async |_| {
        entered.0.notify_one();
        std::future::pending().await
    };
    ctx.step("endless").run(body).await
}

/// No engine drives it any more: waiters get the outcome from the store, or its error.
async fn stopped() -> Result<(), Failed> {
    let (lab, entered) = (Lab::new(), Entered::default());
    let engine = lab.engine().state(entered.clone()).workflow("endless", endless).open().await?;
    let run = engine.start(endless, ()).await?;
    entered.0.notified().await;
    let waits = tokio::spawn({
        let run = engine.run(run.id());
        async move { run.outcome().await }
    });
    engine.crash().await;
    let other = lab.engine().state(Count::default()).open().await?;
    other.run(run.id()).cancel("it is endless").await?;
    lab.until(async || {
        lab.clock.advance(Duration::from_secs(1));
        waits.is_finished()
    })
    .await;
    assert_eq!(waits.await??, Outcome::Cancelled("it is endless".to_owned()));
    Ok(())
}

async fn ratio(ctx: Ctx, (): ()) -> Result<Option<f64>> {
    ctx.step("ratio").run(async |_| Ok(Some(f64::NAN))).await
}

async fn not_a_number() -> Result<(), Failed> {
    let lab = Lab::new();
    let engine = lab.engine().workflow("ratio", ratio).open().await?;
    let failed = engine.start(ratio, ()).await?.result().await.expect_err("it cannot be kept");
    assert!(matches!(failed, Error::Ended { .. }) && failed.to_string().contains("NaN"), "{failed}");
    Ok(())
}
