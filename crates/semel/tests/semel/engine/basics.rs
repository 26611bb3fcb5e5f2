//! What a workflow can do, one thing at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use semel::rules::start::StartVerdict;
use semel::rules::status::Status;
use semel::{Ctx, Result, Retry, fatal};

use super::{Lab, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("a_workflow_runs_its_steps_and_gives_its_result", steps),
        trial("a_second_start_gets_the_first_run", duplicate),
        trial("a_failed_step_is_tried_again_after_its_pause", retries),
        trial("a_sleeping_run_waits_and_goes_on_at_its_time", sleeps),
        trial("a_hook_receives_what_is_delivered", hook),
        trial("a_child_gives_its_result_to_its_parent", child),
    ]
}

/// What the steps of a test have done.
#[derive(Clone, Default)]
pub(crate) struct Count(Arc<AtomicU32>);

impl Count {
    pub(crate) fn up(&self) -> u32 {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub(crate) fn get(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }
}

async fn add(ctx: Ctx, (a, b): (u32, u32)) -> Result<u32> {
    let count = ctx.state::<Count>();
    let sum = ctx
        .step("add")
        .run(async |attempt| {
            count.up();
            assert_eq!(attempt.key().len(), 34);
            Ok(a + b)
        })
        .await?;
    let twice = ctx.step("twice").run(async |_| Ok(sum * 2)).await?;
    Ok(twice)
}

async fn steps() -> Result<(), Failed> {
    let (lab, count) = (Lab::new(), Count::default());
    let engine = lab.engine().state(count.clone()).workflow("add", add).open().await?;
    let run = engine.start(add, (2, 3)).key("sum").await?;
    assert_eq!((run.created(), run.verdict()), (true, Some(StartVerdict::Created)));
    assert_eq!(run.result().await?, 10);
    assert_eq!((count.get(), run.status().await?), (1, Status::Completed));
    // One start, and one commit per step: the end rides on the last.
    let kinds: Vec<_> = run.ledger().await?.into_iter().map(|n| n.entry.kind()).collect();
    let expected =
        ["created", "claimed", "stepStarted", "stepCompleted", "stepStarted", "stepCompleted", "completed"];
    assert_eq!(kinds, expected);
    Ok(())
}

async fn duplicate() -> Result<(), Failed> {
    let (lab, count) = (Lab::new(), Count::default());
    let engine = lab.engine().state(count.clone()).workflow("add", add).open().await?;
    let run = engine.start(add, (2, 3)).key("sum").await?;
    let again = engine.start(add, (2, 3)).key("sum").await?;
    assert_eq!((again.created(), again.id()), (false, run.id()));
    assert_eq!(again.result().await?, 10);
    assert_eq!(engine.start(add, (2, 4)).key("sum").await.expect_err("it is refused").code(), "KEY_REUSED");
    assert_eq!(count.get(), 1);
    Ok(())
}

async fn stubborn(ctx: Ctx, fails: u32) -> Result<u32> {
    let count = ctx.state::<Count>();
    let retry = Retry::fixed(Duration::from_mins(1)).max_attempts(3);
    ctx.step("try")
        .retry(retry)
        .run(async |attempt| {
            if count.up() <= fails {
                return Err(std::io::Error::other("not yet").into());
            }
            Ok(attempt.number())
        })
        .await
}

async fn retries() -> Result<(), Failed> {
    let (lab, count) = (Lab::new(), Count::default());
    let engine = lab.engine().state(count.clone()).workflow("stubborn", stubborn).open().await?;
    let run = engine.start(stubborn, 2).await?;
    for tries in 1..3 {
        lab.until(async || run.status().await.is_ok_and(|status| status == Status::Waiting)).await;
        assert_eq!(count.get(), tries);
        lab.clock.advance(Duration::from_mins(1));
        lab.until(async || count.get() > tries).await;
    }
    assert_eq!(run.result().await?, 3);
    let never = engine.start(stubborn, 99).await?;
    while !never.status().await?.is_terminal() {
        lab.clock.advance(Duration::from_mins(1));
        tokio::task::yield_now().await;
    }
    assert!(
        never.result().await.expect_err("it is refused").to_string().ends_with("has failed: try: not yet")
    );
    Ok(())
}

async fn nap(ctx: Ctx, seconds: u64) -> Result<u32> {
    let count = ctx.state::<Count>();
    ctx.step("before").run(async |_| Ok(count.up())).await?;
    ctx.sleep("nap", Duration::from_secs(seconds)).await?;
    ctx.step("after").run(async |_| Ok(count.up())).await
}

async fn sleeps() -> Result<(), Failed> {
    for forgetful in [false, true] {
        let (lab, count) = (Lab::new(), Count::default());
        let builder = if forgetful { lab.forgetful() } else { lab.engine() };
        let engine = builder.state(count.clone()).workflow("nap", nap).open().await?;
        let run = engine.start(nap, 600).await?;
        lab.until(async || run.status().await.is_ok_and(|status| status == Status::Waiting)).await;
        lab.clock.advance(Duration::from_secs(599));
        assert_eq!((run.status().await?, count.get()), (Status::Waiting, 1));
        lab.clock.advance(Duration::from_secs(1));
        assert_eq!((run.result().await?, count.get()), (2, 2), "the step before is not repeated");
    }
    Ok(())
}

async fn approve(ctx: Ctx, token: String) -> Result<String> {
    let mut hook = ctx.hook::<String>(token);
    if let Some(owner) = hook.conflict().await? {
        return Err(fatal(format!("duplicate of {}", owner.run_id)));
    }
    let first = hook.recv().await?;
    let second = hook.recv_for(Duration::from_secs(10)).await?;
    Ok(format!("{first} {second:?}"))
}

async fn hook() -> Result<(), Failed> {
    for forgetful in [false, true] {
        let lab = Lab::new();
        let builder = if forgetful { lab.forgetful() } else { lab.engine() };
        let engine = builder.workflow("approve", approve).open().await?;
        let run = engine.start(approve, "order:7".to_owned()).await?;
        lab.until(async || run.status().await.is_ok_and(|status| status == Status::Waiting)).await;
        assert_eq!(engine.hook("order:7").await?.map(|owner| owner.id()), Some(run.id()));
        let rival = engine.start(approve, "order:7".to_owned()).await?;
        let refused = rival.result().await.expect_err("it is refused").to_string();
        assert!(refused.contains(&format!("duplicate of {}", run.id())), "{refused}");
        engine.deliver("order:7", "yes").id("d1").await?;
        assert!(engine.deliver("order:7", "yes").id("d1").await?.absorbed);
        lab.until(async || {
            run.ledger().await.is_ok_and(|ledger| ledger.iter().any(|n| n.entry.kind() == "timerSet"))
        })
        .await;
        lab.until(async || run.status().await.is_ok_and(|status| status == Status::Waiting)).await;
        lab.clock.advance(Duration::from_secs(10));
        assert_eq!(run.result().await?, "yes None");
        assert!(engine.hook("order:7").await?.is_none(), "the token is free at the end");
    }
    Ok(())
}

async fn total(ctx: Ctx, items: Vec<u32>) -> Result<u32> {
    ctx.step("sum").run(async |_| Ok(items.iter().sum())).await
}

async fn parent(ctx: Ctx, items: Vec<u32>) -> Result<u32> {
    let one = ctx.child(total, items.clone()).key("one").await?;
    let two = ctx.child(total, items).key("two").await?;
    let (one, two) = tokio::join!(one.result(), two.result());
    Ok(one? + two?)
}

async fn child() -> Result<(), Failed> {
    for forgetful in [false, true] {
        let lab = Lab::new();
        let builder = if forgetful { lab.forgetful() } else { lab.engine() };
        let engine = builder.workflow("total", total).workflow("parent", parent).open().await?;
        let run = engine.start(parent, vec![1, 2, 3]).await?;
        assert_eq!(run.result().await?, 12);
    }
    Ok(())
}
