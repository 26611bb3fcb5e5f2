//! When a run is put to rest, and what arrives in that very moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use semel::clock::Clock;
use semel::id::WorkspaceId;
use semel::rules::status::Status;
use semel::store::faulty::{Fault, Faulty};
use semel::store::{Find, FindBy, Store, Wake};
use semel::{Ctx, Engine, Result, RunHandle};
use tokio::sync::Notify;

use super::{Lab, by_turns, limits};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        by_turns("a_payload_that_arrives_while_a_run_is_put_to_rest_is_received", delivered),
        by_turns("a_cancel_that_arrives_while_a_run_is_put_to_rest_is_heard", cancelled),
        by_turns("a_run_at_rest_has_no_connection", connected),
        by_turns("a_run_rests_when_a_step_elsewhere_is_over", elsewhere),
    ]
}

/// Its step is polled by a task of its own.
async fn step_elsewhere(ctx: Ctx, (): ()) -> Result<u32> {
    let gate = ctx.state::<Notify>();
    let step = ctx.step("elsewhere").run(move |_| {
        let gate = gate.clone();
        async move {
            gate.notified().await;
            Ok(7)
        }
    });
    let step = tokio::spawn(step);
    ctx.sleep("nap", Duration::from_hours(1)).await?;
    step.await.map_err(semel::fatal)?
}

/// Nothing but the end of the body tells the driver of it.
async fn elsewhere() -> Result<(), Failed> {
    let lab = Lab::new();
    let engine = lab.engine().state(Notify::new()).workflow("elsewhere", step_elsewhere).open().await?;
    let run = engine.start(step_elsewhere, ()).await?;
    yield_often().await;
    assert_eq!(run.status().await?, Status::Running, "its step is under way");
    engine.state::<Notify>().expect("given above").notify_one();
    lab.until(async || run.status().await.is_ok_and(|status| status == Status::Waiting)).await;
    lab.clock.advance(Duration::from_hours(1));
    assert_eq!(run.result().await?, 7);
    Ok(())
}

async fn wait_for_words(ctx: Ctx, (): ()) -> Result<String> {
    let mut hook = ctx.hook::<String>("word");
    Ok(format!("{} {}", hook.recv().await?, hook.recv().await?))
}

/// A run whose commit to rest is under way, and stays so until the clock moves: the store does not answer at first.
async fn going_to_rest(lab: &Lab) -> Result<(Engine, RunHandle<String>), Failed> {
    let (engine, run, _) = going_to_rest_in(lab, |store| store).await?;
    Ok((engine, run))
}

/// The same in a store that is made of another one.
async fn going_to_rest_in(
    lab: &Lab,
    make: impl FnOnce(Faulty) -> Faulty,
) -> Result<(Engine, RunHandle<String>, Arc<Faulty>), Failed> {
    let commits = Arc::new(AtomicU32::new(0));
    let counted = commits.clone();
    // The first one opens the hook, the second puts the run to rest.
    let plan = move |call| {
        (call == "commit" && counted.fetch_add(1, Ordering::SeqCst) == 1).then_some(Fault::Before)
    };
    let faulty = Arc::new(make(Faulty::new(lab.store.clone(), plan)));
    let store: Arc<dyn Store> = faulty.clone();
    let builder = Engine::builder().store(store).clock(lab.clock.clone() as Arc<dyn Clock>).limits(limits());
    let engine = builder.workflow("wait", wait_for_words).open().await?;
    let run = engine.start(wait_for_words, ()).await?;
    lab.until(async || commits.load(Ordering::SeqCst) == 2).await;
    Ok((engine, run, faulty))
}

/// Gives the engine every chance to hear of something, where it works by turns.
pub(super) async fn yield_often() {
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
}

/// Lets the commit through, and waits until the run has stopped.
async fn let_through(lab: &Lab, run: &RunHandle<String>) -> Result<Status, Failed> {
    yield_often().await;
    lab.clock.advance(Duration::from_secs(1));
    let stopped = |status: Status| status.is_terminal() || status == Status::Paused;
    lab.until(async || run.status().await.is_ok_and(stopped)).await;
    Ok(run.status().await?)
}

async fn delivered() -> Result<(), Failed> {
    let lab = Lab::new();
    let (engine, run) = going_to_rest(&lab).await?;
    engine.deliver("word", "hello").await?;
    yield_often().await;
    lab.clock.advance(Duration::from_secs(1));
    let received = async || {
        let entries = run.ledger().await.unwrap_or_default();
        entries.iter().any(|numbered| matches!(numbered.entry.kind(), "hookReceived" | "paused"))
    };
    lab.until(received).await;
    engine.deliver("word", "world").await?;
    assert_eq!(let_through(&lab, &run).await?, Status::Completed);
    assert_eq!(run.result().await?, "hello world");
    Ok(())
}

async fn cancelled() -> Result<(), Failed> {
    let lab = Lab::new();
    let (_engine, run) = going_to_rest(&lab).await?;
    run.request_cancel("never mind").await?;
    assert_eq!(let_through(&lab, &run).await?, Status::Cancelled);
    Ok(())
}

/// It is told to look into its inbox in that moment: its look must not stay under way for as long as it rests, with a
/// connection that others wait for.
async fn connected() -> Result<(), Failed> {
    const CONNECTIONS: usize = 4;
    let lab = Lab::new();
    let (_engine, run, store) = going_to_rest_in(&lab, |store| store.deaf().pooled(CONNECTIONS)).await?;
    lab.clock.advance(Duration::from_secs(1));
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    store.tell(Wake::All);
    let find = || Find { workspace: WorkspaceId::DEFAULT, by: FindBy::Id(run.id()) };
    let rests = async || match lab.store.find(find()).await {
        Ok(Some((run, _))) => run.status() == Status::Waiting,
        _ => false,
    };
    assert!(!rests().await, "its commit is under way");
    lab.until(rests).await;
    yield_often().await;
    assert_eq!(store.idle(), CONNECTIONS);
    Ok(())
}
