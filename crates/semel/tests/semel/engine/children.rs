//! Many children of one run, and much that is past its retention.

use std::time::Duration;

use futures_util::future::try_join_all;
use libtest_mimic::{Failed, Trial};
use semel::clock::Clock as _;
use semel::id::{RunId, WorkspaceId};
use semel::rules::control::{Control, ControlAction};
use semel::rules::entry::Entry;
use semel::rules::json::Payload;
use semel::rules::path::Name;
use semel::rules::run::Retention;
use semel::rules::start::Start;
use semel::store::Query;
use semel::{Ctx, Result};

use super::{Lab, by_turns, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("a_run_hears_of_more_children_than_one_commit_starts", || many_children(false)),
        trial("a_run_that_is_rebuilt_hears_of_more_children_than_one_commit_starts", || many_children(true)),
        trial("steps_with_more_bytes_than_one_commit_takes_are_all_recorded", large_steps),
        by_turns("an_engine_is_ready_before_all_that_is_past_its_retention_is_forgotten", ready_first),
    ]
}

/// A commit starts 500.
const CHILDREN: u64 = 1_201;

async fn twice(ctx: Ctx, n: u64) -> Result<u64> {
    ctx.step("twice").run(async |_| Ok(2 * n)).await
}

async fn parent(ctx: Ctx, children: u64) -> Result<u64> {
    let started = (0..children).map(async |n| ctx.child(twice, n).key(n).await?.result().await);
    Ok(try_join_all(started).await?.into_iter().sum())
}

async fn many_children(forgetful: bool) -> Result<(), Failed> {
    let lab = Lab::new();
    let builder = if forgetful { lab.forgetful() } else { lab.engine() };
    let engine = builder.workflow("twice", twice).workflow("parent", parent).open().await?;
    let run = engine.start(parent, CHILDREN).await?;
    assert_eq!(run.result().await?, CHILDREN * (CHILDREN - 1));
    let ledger = run.ledger().await?;
    let count = |is: fn(&Entry) -> bool| ledger.iter().filter(|line| is(&line.entry)).count() as u64;
    assert_eq!(count(|entry| matches!(entry, Entry::ChildStarted { attached: false, .. })), CHILDREN);
    assert_eq!(count(|entry| matches!(entry, Entry::ChildFinished { .. })), CHILDREN);
    Ok(())
}

async fn large(ctx: Ctx, steps: usize) -> Result<usize> {
    let steps = (0..steps).map(async |n| {
        let step = ctx.step("large").key(n);
        Ok::<_, semel::Fail>(step.run(async |_| Ok("x".repeat(1_500_000))).await?.len())
    });
    Ok(try_join_all(steps).await?.into_iter().sum())
}

async fn large_steps() -> Result<(), Failed> {
    let lab = Lab::new();
    let engine = lab.engine().workflow("large", large).open().await?;
    assert_eq!(engine.start(large, 12).await?.result().await?, 18_000_000);
    Ok(())
}

/// One pass of the sweep forgets a thousand runs. The other passes come after the engine has opened.
async fn ready_first() -> Result<(), Failed> {
    let lab = Lab::new();
    let retention = Retention { history: Duration::ZERO, key: Duration::ZERO };
    for _ in 0..2_500 {
        let (run, workflow) = (RunId(lab.clock.uuid()), Name::new("order")?);
        let start = Start::new(WorkspaceId::DEFAULT, run, workflow, Payload::null(), None);
        lab.store.start(Start { retention, ..start }).await?;
        let (workspace, by) = (WorkspaceId::DEFAULT, "test".to_owned());
        let action = ControlAction::Cancel { reason: "no longer wanted".to_owned() };
        lab.store.control(Control { workspace, run, action, by, id: None, expected: None }).await?;
    }
    let left =
        async || lab.store.list(Query::all(WorkspaceId::DEFAULT, 10_000)).await.map(|page| page.runs.len());
    let engine = lab.engine().workflow("twice", twice).open().await?;
    let when_ready = left().await?;
    assert!(when_ready > 0, "it has not waited for all of them");
    assert_eq!(engine.start(twice, 4).await?.result().await?, 8);
    lab.until(async || left().await.is_ok_and(|left| left <= 1)).await;
    Ok(())
}
