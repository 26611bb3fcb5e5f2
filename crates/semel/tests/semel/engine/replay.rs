//! Replay: the code of today beside what was recorded.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use semel::engine::Builder;
use semel::engine::replay::{ReplayKind, ReplayRow, ReplayVerdict};
use semel::rules::status::Status;
use semel::{Ctx, Engine, Replay, Result, Retry, RunHandle, fatal};

use super::basics::Count;
use super::{Lab, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("replay::unchanged_code_is_identical_and_does_nothing", unchanged),
        trial("replay::an_open_run_is_identical_as_far_as_it_goes", open_run),
        trial("replay::a_failed_run_is_identical_before_and_after_its_retry", failed),
        trial("replay::a_run_that_was_asked_to_end_is_identical_with_its_clean_up", asked_to_end),
        trial("replay::a_run_that_was_ended_from_outside_is_identical", ended_from_outside),
        trial("replay::a_restarted_and_a_forked_run_are_identical", other_lives),
        trial("replay::what_lost_a_race_is_not_reported", lost_race),
        trial("replay::a_renamed_step_is_missing_and_added", renamed),
        trial("replay::a_removed_step_is_missing", removed),
        trial("replay::an_added_step_is_added_once_the_run_has_ended", added),
        trial("replay::another_result_another_kind_and_another_input_are_changes", changed),
        trial("replay::a_panic_a_foreign_wait_and_an_endless_turn_do_not_hold_up_the_caller", ill_behaved),
    ]
}

/// Moves the clock until the run has ended.
pub(super) async fn ended<Out>(lab: &Lab, run: &RunHandle<Out>) -> Result<(), Failed> {
    while !run.status().await?.is_terminal() {
        lab.clock.advance(Duration::from_secs(1));
        tokio::task::yield_now().await;
    }
    Ok(())
}

pub(super) async fn waiting<Out>(lab: &Lab, run: &RunHandle<Out>) {
    lab.until(async || run.status().await.is_ok_and(|status| status == Status::Waiting)).await;
}

pub(super) fn identical(replay: &Replay) {
    assert!(replay.is_identical(), "{replay}");
}

/// Verdict, kind and path of what differs.
pub(super) fn differences(replay: &Replay) -> Vec<String> {
    replay
        .differences()
        .map(|ReplayRow { verdict, kind, path, .. }| format!("{verdict} {kind} {path}"))
        .collect()
}

async fn total(ctx: Ctx, items: Vec<u32>) -> Result<u32> {
    ctx.step("sum").run(async |_| Ok(items.iter().sum())).await
}

/// One of everything.
async fn everything(ctx: Ctx, items: Vec<u32>) -> Result<String> {
    let count = ctx.state::<Count>();
    for item in &items {
        ctx.step("pack").key(item).run(async |_| Ok(count.up())).await?;
        ctx.step("weigh").indexed().run(async |_| Ok(count.up())).await?;
    }
    ctx.skip("gift", "not asked for").await?;
    let (left, right) = (ctx.scope("left"), ctx.scope("right"));
    let (left, right) =
        tokio::join!(async { left.step("ship").run(async |_| Ok(count.up())).await }, async {
            right.step("ship").at_most_once().run(async |_| Ok(count.up())).await
        },);
    let mut hook = ctx.hook::<String>("word/1");
    let (first, second) = (hook.recv().await?, hook.recv().await?);
    let unanswered = hook.recv_for(Duration::from_secs(5)).await?;
    let won = ctx
        .race("first", ctx.sleep("long", Duration::from_secs(9)), ctx.sleep("short", Duration::from_secs(3)))
        .await?;
    let retried = ctx
        .step("stubborn")
        .retry(Retry::fixed(Duration::from_secs(1)).max_attempts(3))
        .run(async |attempt| match attempt.number() {
            3 => Ok(count.up()),
            _ => Err(std::io::Error::other("not yet").into()),
        })
        .await?;
    let failed = ctx.step("hopeless").run(async |_| Err::<(), _>(fatal("never"))).await;
    let found = ctx.step("found").reconcile(async |_| Ok(None)).run(async |_| Ok(count.up())).await?;
    let once: u32 = ctx.run_once("once", async || Ok(count.up())).await?;
    let shared: u32 = ctx.run_once("shared", async || Ok(7)).scope(semel::Once::Workspace).await?;
    let (now, random, id) = (ctx.now("now").await?, ctx.random("random").await?, ctx.uuid("id").await?);
    let children = ctx.child(total, items.clone()).key("a").await?;
    let sum = children.result().await?;
    Ok(format!(
        "{left:?} {right:?} {first} {second} {unanswered:?} {won:?} {retried} {failed:?} {found} {once} {shared} {now} \
         {random} {id} {sum}"
    ))
}

async fn unchanged() -> Result<(), Failed> {
    for forgetful in [false, true] {
        let (lab, count) = (Lab::new(), Count::default());
        let builder = if forgetful { lab.forgetful() } else { lab.engine() };
        let builder = builder.state(count.clone()).workflow("total", total);
        let engine = builder.workflow("everything", everything).open().await?;
        let run = engine.start(everything, vec![3, 4]).key("k").await?;
        waiting(&lab, &run).await;
        identical(&engine.replay(run.id()).await?);
        for word in ["hello", "world"] {
            engine.deliver("word/1", word).await?;
        }
        ended(&lab, &run).await?;
        run.result().await?;
        let (before, called) = (run.ledger().await?, count.get());
        let replay = engine.replay(run.id()).await?;
        identical(&replay);
        assert_eq!(replay.count(ReplayVerdict::Identical), replay.rows.len());
        // Four in the loop, one skipped, two shipped, hook and its limit, race and its timers, three more steps, two onces,
        // three values, the child, the end.
        assert_eq!(replay.rows.len(), 22, "{replay}");
        assert_eq!(
            replay.rows.last().map(|row| (row.kind, row.path.as_str())),
            Some((ReplayKind::Run, "@end"))
        );
        assert_eq!(
            (run.ledger().await?, count.get()),
            (before, called),
            "nothing was written, nothing was called"
        );
        let text = replay.to_string();
        assert!(text.contains("22 identical") && text.contains("left/ship"), "{text}");
        let json: serde_json::Value = serde_json::from_str(&serde_json::to_string(&replay)?)?;
        assert_eq!(json["rows"][0]["verdict"], "identical");
        assert_eq!(json["rows"][0]["original"]["completed"], 1);
    }
    Ok(())
}

async fn approve(ctx: Ctx, token: String) -> Result<String> {
    let count = ctx.state::<Count>();
    ctx.step("ask").run(async |_| Ok(count.up())).await?;
    let said: String = ctx.hook(token).recv().await?;
    ctx.step("note").run(async |_| Ok(count.up())).await?;
    Ok(said)
}

async fn open_run() -> Result<(), Failed> {
    let (lab, count) = (Lab::new(), Count::default());
    let engine = lab.engine().state(count.clone()).workflow("approve", approve).open().await?;
    let run = engine.start(approve, "order:7".to_owned()).await?;
    waiting(&lab, &run).await;
    let state = async || -> Result<_, Failed> {
        let inbox = engine.store().inbox(engine.workspace(), run.id(), 1).await?;
        let owner = engine.hook("order:7").await?.map(|owner| owner.id());
        Ok((run.ledger().await?, run.header().await?, inbox, owner))
    };
    let before = state().await?;
    let replay = engine.replay(run.id()).await?;
    identical(&replay);
    assert_eq!((replay.rows.len(), replay.status), (2, Status::Waiting), "the step and the hook; no end");
    assert_eq!(state().await?, before);
    engine.deliver("order:7", "yes").await?;
    assert_eq!(run.result().await?, "yes");
    identical(&engine.replay(run.id()).await?);
    assert_eq!(count.get(), 2);
    Ok(())
}

/// Whether the shop is open now.
#[derive(Clone, Default)]
struct ShopHours(Arc<AtomicBool>);

async fn buy(ctx: Ctx, (): ()) -> Result<u32> {
    let (count, shop) = (ctx.state::<Count>(), ctx.state::<ShopHours>());
    ctx.step("walk").run(async |_| Ok(count.up())).await?;
    ctx.step("post").at_most_once().run(async |_| Ok(count.up())).await?;
    let _: u32 = ctx.run_once("money", async || Ok(count.up())).await?;
    ctx.step("buy")
        .run(async |_| if shop.0.load(Ordering::SeqCst) { Ok(count.up()) } else { Err(fatal("closed")) })
        .await
}

async fn failed() -> Result<(), Failed> {
    let (lab, count, shop) = (Lab::new(), Count::default(), ShopHours::default());
    let engine = lab.engine().state(count.clone()).state(shop.clone()).workflow("buy", buy).open().await?;
    let run = engine.start(buy, ()).await?;
    assert!(run.result().await.is_err());
    let replay = engine.replay(run.id()).await?;
    identical(&replay);
    assert_eq!(replay.status, Status::Failed);
    shop.0.store(true, Ordering::SeqCst);
    run.retry().await?;
    assert_eq!(engine.run(run.id()).outcome().await.map(|_| count.get())?, 4);
    let replay = engine.replay(run.id()).await?;
    identical(&replay);
    assert_eq!((replay.status, replay.rows.len()), (Status::Completed, 5), "{replay}");
    Ok(())
}

async fn other_lives() -> Result<(), Failed> {
    let (lab, count, shop) = (Lab::new(), Count::default(), ShopHours::default());
    let engine = lab.engine().state(count.clone()).state(shop.clone()).workflow("buy", buy).open().await?;
    let run = engine.start(buy, ()).await?;
    assert!(run.result().await.is_err());
    shop.0.store(true, Ordering::SeqCst);
    run.restart().await?;
    engine.run(run.id()).outcome().await?;
    assert_eq!(count.get(), 6, "walk, money and buy anew, the letter once");
    identical(&engine.replay(run.id()).await?);
    let fork = run.fork(None, semel::rules::ledger::Lineage::Fresh).await?;
    fork.result().await?;
    let replay = engine.replay(fork.id()).await?;
    identical(&replay);
    assert_eq!(replay.rows.len(), 5, "{replay}");
    Ok(())
}

async fn book(ctx: Ctx, undo: bool) -> Result<()> {
    let count = ctx.state::<Count>();
    ctx.step("book").run(async |_| Ok(count.up())).await?;
    let word = ctx.hook::<String>("word").recv().await;
    if undo && word.as_ref().is_err_and(semel::Fail::is_cancelled) {
        let refused = ctx.step("refused").run(async |_| Ok(count.up())).await;
        assert!(refused.is_err_and(|fail| fail.is_cancelled()));
        ctx.cleanup().step("unbook").run(async |_| Ok(count.up())).await?;
        ctx.cleanup().sleep("breathe", Duration::from_secs(3)).await?;
    }
    word.map(drop)
}

async fn asked_to_end() -> Result<(), Failed> {
    for undo in [false, true] {
        let (lab, count) = (Lab::new(), Count::default());
        let engine = lab.engine().state(count.clone()).workflow("book", book).open().await?;
        let run = engine.start(book, undo).await?;
        waiting(&lab, &run).await;
        run.request_cancel("no need").await?;
        ended(&lab, &run).await?;
        let replay = engine.replay(run.id()).await?;
        identical(&replay);
        assert_eq!((replay.status, count.get()), (Status::Cancelled, 1 + u32::from(undo)));
        assert_eq!(replay.rows.len(), if undo { 5 } else { 3 }, "{replay}");
    }
    Ok(())
}

async fn ended_from_outside() -> Result<(), Failed> {
    let (lab, count) = (Lab::new(), Count::default());
    let engine = lab.engine().state(count.clone()).workflow("book", book).open().await?;
    let cancelled = engine.start(book, true).await?;
    waiting(&lab, &cancelled).await;
    cancelled.cancel("enough").await?;
    let late = engine.start(book, true).timeout(Duration::from_mins(1)).await?;
    waiting(&lab, &late).await;
    ended(&lab, &late).await?;
    for (run, status) in [(cancelled, Status::Cancelled), (late, Status::TimedOut)] {
        let replay = engine.replay(run.id()).await?;
        identical(&replay);
        assert_eq!(replay.status, status);
    }
    Ok(())
}

async fn impatient(ctx: Ctx, (): ()) -> Result<u32> {
    let slow = ctx.step("slow").run(async |_| std::future::pending::<Result<u32>>().await);
    ctx.race("either", ctx.sleep("limit", Duration::from_secs(2)), slow).await?;
    ctx.step("after").run(async |_| Ok(1)).await
}

async fn lost_race() -> Result<(), Failed> {
    let lab = Lab::new();
    let engine = lab.engine().workflow("impatient", impatient).open().await?;
    let run = engine.start(impatient, ()).await?;
    ended(&lab, &run).await?;
    identical(&engine.replay(run.id()).await?);
    Ok(())
}

/// The versions of an order: before and after a change of its code.
async fn order(ctx: Ctx, n: u32) -> Result<u32> {
    let a = ctx.step("charge").run(async |_| Ok(n)).await?;
    let b = ctx.step("ship").run(async |_| Ok(a + 1)).await?;
    ctx.child(total, vec![n]).await?.result().await?;
    ctx.step("tell").run(async |_| Ok(b + 1)).await
}

pub(super) fn was(lab: &Lab) -> Builder {
    lab.engine().workflow("order", order).workflow("total", total)
}

pub(super) async fn ordered(engine: &Engine) -> Result<RunHandle<u32>, Failed> {
    let run = engine.start(order, 1).await?;
    assert_eq!(run.result().await?, 3);
    Ok(run)
}

/// What a replay with other code finds.
macro_rules! replayed {
    ($code:expr) => {{
        let lab = Lab::new();
        let run = ordered(&was(&lab).open().await?).await?;
        let engine = lab.engine().workflow("order", $code).workflow("total", total).open().await?;
        engine.replay(run.id()).await?
    }};
}

async fn renamed() -> Result<(), Failed> {
    let replay = replayed!(async |ctx: Ctx, n: u32| {
        let a = ctx.step("charge").run(async |_| Ok(n)).await?;
        let b = ctx.step("send").run(async |_| Ok(a + 1)).await?;
        ctx.child(total, vec![n]).await?.result().await?;
        ctx.step("tell").run(async |_| Ok(b + 1)).await
    });
    let expected = [
        "missing step ship",
        "missing child total",
        "missing step tell",
        "added step send",
        "missing run @end",
    ];
    assert_eq!(differences(&replay), expected, "{replay}");
    Ok(())
}

async fn removed() -> Result<(), Failed> {
    let replay = replayed!(async |ctx: Ctx, n: u32| {
        let a = ctx.step("charge").run(async |_| Ok(n)).await?;
        ctx.child(total, vec![n]).await?.result().await?;
        ctx.step("tell").run(async |_| Ok(a + 1)).await
    });
    assert_eq!(differences(&replay), ["missing step ship"], "{replay}");
    Ok(())
}

async fn added() -> Result<(), Failed> {
    let replay = replayed!(async |ctx: Ctx, n: u32| {
        let (one, two) = tokio::join!(ctx.sleep("nap", Duration::from_secs(1)), async {
            let _hook = ctx.hook::<()>("new");
            let _: u32 = ctx.run_once("label", async || Ok(1)).await?;
            order(ctx.clone(), n).await
        });
        one.and(two)
    });
    let expected = [
        "missing step charge",
        "missing step ship",
        "missing child total",
        "missing step tell",
        "added timer nap",
        "added hook @hook[new]",
        "added once label",
        "missing run @end",
    ];
    assert_eq!(differences(&replay), expected, "{replay}");
    let lab = Lab::new();
    let engine = lab.engine().state(Count::default()).workflow("approve", approve).open().await?;
    let run = engine.start(approve, "t".to_owned()).await?;
    waiting(&lab, &run).await;
    let more = async |ctx: Ctx, token: String| {
        ctx.step("ask").run(async |_| Ok(1)).await?;
        let mut hook = ctx.hook::<String>(token);
        tokio::join!(hook.recv(), ctx.step("more").run(async |_| Ok(1))).0
    };
    let engine = lab.engine().state(Count::default()).workflow("approve", more).open().await?;
    identical(&engine.replay(run.id()).await?);
    Ok(())
}

async fn changed() -> Result<(), Failed> {
    let replay = replayed!(async |ctx: Ctx, n: u32| Ok::<_, semel::Fail>(order(ctx, n).await? + 1));
    assert_eq!(differences(&replay), ["changed run @end"], "{replay}");
    let replay = replayed!(async |ctx: Ctx, n: u32| {
        ctx.skip("charge", "for free").await?;
        tokio::join!(ctx.sleep("ship", Duration::from_secs(1)), async {
            ctx.child(total, vec![n, n]).await?.result().await
        })
        .0
    });
    let expected = [
        "changed step charge",
        "changed step ship",
        "changed child total",
        "missing step tell",
        "missing run @end",
    ];
    assert_eq!(differences(&replay), expected, "{replay}");
    let replay = replayed!(async |ctx: Ctx, n: u32| {
        // The step has recorded a number.
        let name: String = ctx.step("charge").run(async |_| Ok("charge".to_owned())).await?;
        Ok::<_, semel::Fail>(name.len() as u32 + n)
    });
    let end = replay.rows.last().and_then(|row| row.replayed.as_ref()).map(ToString::to_string);
    assert!(end.is_some_and(|end| end.contains("charge is of another type")), "{replay}");
    Ok(())
}

async fn ill_behaved() -> Result<(), Failed> {
    let replay = replayed!(async |ctx: Ctx, n: u32| {
        ctx.step("charge").run(async |_| Ok(n)).await?;
        assert!(n == 0, "no more");
        Ok::<u32, semel::Fail>(n)
    });
    let end = replay.rows.last().and_then(|row| row.replayed.clone()).ok_or("an end")?;
    assert_eq!(end["failed"]["message"], "the workflow panicked: no more", "{replay}");
    let replay = replayed!(async |ctx: Ctx, n: u32| {
        ctx.step("charge").run(async |_| Ok(n)).await?;
        std::future::pending::<Result<u32>>().await
    });
    assert_eq!(replay.count(ReplayVerdict::Missing), 4, "{replay}");
    let replay = replayed!(async |_: Ctx, _: u32| -> Result<u32> {
        loop {
            tokio::task::yield_now().await;
        }
    });
    assert_eq!(replay.count(ReplayVerdict::Missing), 5, "{replay}");
    // A turn or two of the runtime is nothing to stumble over.
    let replay = replayed!(async |ctx: Ctx, n: u32| {
        tokio::task::yield_now().await;
        let ordered = order(ctx, n).await;
        tokio::task::yield_now().await;
        ordered
    });
    identical(&replay);
    Ok(())
}
