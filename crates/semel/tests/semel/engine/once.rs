//! `run_once`: when it fails, when it is inside of a step, and when several ask at once.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use semel::engine::Builder;
use semel::testing::{Crasher, Effects, Scene, history};
use semel::{Ctx, Once, Result, fatal};
use tokio::sync::Semaphore;

use super::replay::{ended, identical, waiting};
use super::{Lab, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("once::a_failure_is_the_same_after_a_rebuild", fails),
        trial("once::a_failure_is_the_same_for_branches_that_come_in_another_order", branches_meet),
        trial("once::a_failure_is_not_taken_by_a_loser_of_a_race_that_never_began", loser_visits),
        trial("once::a_failure_is_forgotten_by_a_retry_of_the_run", fails_and_is_retried),
        trial("once::a_panic_of_the_closure_itself_is_a_failure", panics),
        trial("once::two_callers_of_one_run_share_one_execution", shared),
        trial("once::a_branch_that_waits_is_woken_once_however_often_it_is_polled", waits_and_is_polled),
        trial("once::inside_of_a_step_is_made_once_and_replays_identically", inside),
        Trial::test("engine::once::survives_a_crash_at_every_boundary", || {
            crashes();
            Ok(())
        }),
    ]
}

/// Counts how often it is woken.
#[derive(Default)]
struct CountedWakes(AtomicUsize);

impl Wake for CountedWakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Two branches want the result of one label. The second is polled very often while the first makes it.
async fn crowded(ctx: Ctx, (): ()) -> Result<(u32, u32, usize)> {
    let (gate, begun, wakes) = (Semaphore::new(0), AtomicUsize::new(0), Arc::<CountedWakes>::default());
    let make = async || {
        begun.fetch_add(1, Ordering::SeqCst);
        gate.acquire().await?.forget();
        Ok(7)
    };
    let mut first = ctx.run_once("rate", make).into_future();
    poll_fn(|cx| match first.as_mut().poll(cx) {
        Poll::Pending if begun.load(Ordering::SeqCst) == 0 => Poll::Pending,
        _ => Poll::Ready(()),
    })
    .await;
    let mut second = ctx.run_once("rate", async || Ok(8)).into_future();
    let waker = Waker::from(wakes.clone());
    for _ in 0..1_000 {
        assert!(second.as_mut().poll(&mut Context::from_waker(&waker)).is_pending(), "the first is at it");
    }
    gate.add_permits(1);
    let made = first.await?;
    let woken = wakes.0.load(Ordering::SeqCst);
    Ok((made, second.await?, woken))
}

async fn waits_and_is_polled() -> Result<(), Failed> {
    let engine = Lab::new().engine().workflow("crowded", crowded).open().await?;
    assert_eq!(engine.start(crowded, ()).await?.result().await?, (7, 7, 1));
    Ok(())
}

/// Tries something that may fail, twice under one label, and does something else each time it has.
async fn falls_back(ctx: Ctx, scope: u8) -> Result<Vec<String>> {
    let effects = ctx.state::<Effects>();
    let scope = [Once::Run, Once::Key, Once::Workspace][usize::from(scope)];
    let mut said = Vec::new();
    for turn in ["first", "second"] {
        let body = async || effects.apply("fetch", "fetch").map_err(fatal);
        match ctx.run_once("fe/tch", body).scope(scope).await {
            Ok(value) => said.push(value.to_string()),
            Err(fail) => {
                said.push(fail.to_string());
                ctx.step("fall back").key(turn).run(async |a| effects.apply("fall back", a.key())).await?;
            }
        }
        ctx.sleep(turn, Duration::from_mins(1)).await?;
    }
    Ok(said)
}

fn world(builder: Builder, effects: &Effects) -> Builder {
    builder.state(effects.clone()).workflow("falls-back", falls_back)
}

async fn fails() -> Result<(), Failed> {
    for scope in 0..3 {
        let (lab, effects) = (Lab::new(), Effects::new());
        effects.fail("fetch", 1);
        let engine = world(lab.forgetful(), &effects).open().await?;
        let run = engine.start(falls_back, scope).await?;
        waiting(&lab, &run).await;
        identical(&engine.replay(run.id()).await?);
        ended(&lab, &run).await?;
        assert_eq!(run.result().await?, ["fe/tch: fetch failed, on purpose"; 2], "{}", history(&run).await?);
        assert_eq!((effects.calls("fetch"), effects.calls("fall back")), (1, 2));
        identical(&engine.replay(run.id()).await?);
    }
    Ok(())
}

/// Live, `late` asks after the other branch has failed; when both are rebuilt, it comes first.
async fn branches(ctx: Ctx, (): ()) -> Result<(bool, bool)> {
    let (effects, gate) = (ctx.state::<Effects>(), ctx.state::<Semaphore>());
    let branch = async |name: &'static str, waits: bool| {
        let body = async |_| {
            if waits {
                gate.acquire().await?.forget();
            }
            Ok(())
        };
        ctx.step(name).run(body).await?;
        let made = ctx.run_once("token", async || effects.apply("token", "token")).await.is_ok();
        gate.add_permits(1);
        ctx.step(format!("{name} {made}")).run(async |_| Ok(made)).await
    };
    let (late, early) = tokio::join!(branch("late", true), branch("early", false));
    ctx.sleep("nap", Duration::from_mins(1)).await?;
    Ok((late?, early?))
}

async fn branches_meet() -> Result<(), Failed> {
    let (lab, effects) = (Lab::new(), Effects::new());
    effects.fail("token", 1);
    let builder = lab.forgetful().state(effects.clone()).state(Semaphore::new(0));
    let engine = builder.workflow("branches", branches).open().await?;
    let run = engine.start(branches, ()).await?;
    waiting(&lab, &run).await;
    ended(&lab, &run).await?;
    assert_eq!((run.result().await?, effects.calls("token")), ((false, false), 1), "one outcome for both");
    Ok(())
}

/// The second runner is not polled before the first has won; in a replay it is.
async fn races(ctx: Ctx, (): ()) -> Result<bool> {
    let effects = ctx.state::<Effects>();
    let ask = || ctx.run_once("token", async || effects.apply("token", "token"));
    ctx.race("first", std::future::ready(()), async { ask().await }).await?;
    let made = ask().await.is_ok();
    ctx.step(format!("made {made}")).run(async |_| Ok(())).await?;
    ctx.sleep("nap", Duration::from_mins(1)).await?;
    Ok(made)
}

async fn loser_visits() -> Result<(), Failed> {
    let (lab, effects) = (Lab::new(), Effects::new());
    effects.fail("token", 1);
    let engine = lab.forgetful().state(effects.clone()).workflow("races", races).open().await?;
    let run = engine.start(races, ()).await?;
    waiting(&lab, &run).await;
    ended(&lab, &run).await?;
    assert_eq!((run.result().await?, effects.calls("token")), (false, 1));
    identical(&engine.replay(run.id()).await?);
    Ok(())
}

async fn insists(ctx: Ctx, (): ()) -> Result<u32> {
    let effects = ctx.state::<Effects>();
    ctx.run_once("fetch", async || effects.apply("fetch", "fetch")).await
}

async fn fails_and_is_retried() -> Result<(), Failed> {
    let (lab, effects) = (Lab::new(), Effects::new());
    effects.fail("fetch", 1);
    let engine = lab.engine().state(effects.clone()).workflow("insists", insists).open().await?;
    let run = engine.start(insists, ()).await?;
    run.result().await.expect_err("it does not end well");
    run.retry().await?;
    assert_eq!((run.result().await?, effects.calls("fetch")), (1, 2));
    Ok(())
}

async fn jumpy(ctx: Ctx, (): ()) -> Result<String> {
    let body = || -> std::future::Ready<Result<u32>> { panic!("before there is a future") };
    Ok(ctx.run_once("jump", body).await.expect_err("it does not end well").to_string())
}

async fn panics() -> Result<(), Failed> {
    let lab = Lab::new();
    let engine = lab.engine().workflow("jumpy", jumpy).open().await?;
    let said = engine.start(jumpy, ()).await?.result().await?;
    assert_eq!(said, "jump: it panicked: before there is a future");
    Ok(())
}

async fn together(ctx: Ctx, (): ()) -> Result<(u32, u32)> {
    let effects = ctx.state::<Effects>();
    let ask = || async {
        ctx.run_once("table", async || {
            tokio::task::yield_now().await;
            // Another key each time: it would be another effect.
            effects.apply("table", &effects.calls("table").to_string())
        })
        .await
    };
    let (one, two) = tokio::join!(ask(), ask());
    Ok((one?, two?))
}

async fn shared() -> Result<(), Failed> {
    let (lab, effects) = (Lab::new(), Effects::new());
    let engine = lab.engine().state(effects.clone()).workflow("together", together).open().await?;
    assert_eq!(engine.start(together, ()).await?.result().await?, (1, 1));
    assert_eq!(effects.calls("table"), 1);
    Ok(())
}

/// Two steps that need the same thing, made by whichever comes first; it fails at first.
async fn prepares(ctx: Ctx, (): ()) -> Result<u32> {
    let effects = ctx.state::<Effects>();
    let mut last = 0;
    for item in 0..2 {
        last = ctx
            .step("item")
            .key(item)
            .run(async |attempt| {
                let table: u32 = ctx.run_once("table", async || effects.apply("table", "table")).await?;
                Ok(table + effects.apply("item", attempt.key())?)
            })
            .await?;
    }
    ctx.sleep("nap", Duration::from_mins(1)).await?;
    Ok(last)
}

async fn inside() -> Result<(), Failed> {
    let (lab, effects) = (Lab::new(), Effects::new());
    effects.fail("table", 1);
    let engine = lab.forgetful().state(effects.clone()).workflow("prepares", prepares).open().await?;
    let run = engine.start(prepares, ()).await?;
    ended(&lab, &run).await?;
    assert_eq!(run.result().await?, 3, "{}", history(&run).await?);
    assert_eq!((effects.calls("table"), effects.calls("item")), (2, 2));
    identical(&engine.replay(run.id()).await?);
    Ok(())
}

fn crashes() {
    let crasher = Crasher::new(
        || {
            let effects = Effects::new();
            effects.fail("fetch", 1).fail("table", 1);
            effects
        },
        |effects, builder| world(builder, effects).workflow("prepares", prepares),
        async |scene: Scene<Effects>| {
            let said = scene.engine().start(falls_back, 0).key("one").await?.result().await?;
            Ok((said.len(), scene.engine().start(prepares, ()).key("two").await?.result().await?))
        },
    );
    crasher.every_boundary(|ended| {
        assert_eq!(ended.value, (2, 3));
        // A crash before its failure is recorded lets it be tried again.
        assert!([0, 2].contains(&ended.world.applied("fall back")), "{:?}", ended.world);
        assert_eq!((ended.world.applied("table"), ended.world.applied("item")), (1, 2));
    });
}
