//! Wake-ups. The clock of these tests stands still, so an engine finds nothing by a periodic look: it has to be woken.

use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::Poll;
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use semel::clock::{Clock, Time, Until};
use semel::rules::status::Status;
use semel::store::Store;
use semel::store::faulty::{Fault, Faulty};
use semel::testing::ManualClock;
use semel::{Ctx, Engine, Fail, Once, Result};
use tokio::sync::Notify;
use uuid::Uuid;

use super::basics::Count;
use super::rest::yield_often;
use super::{Lab, by_turns, limits, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("a_once_goes_to_the_next_as_soon_as_its_owner_has_ended", given_up),
        trial("a_run_once_value_whose_branch_lost_a_race_is_free_for_others", lost_race),
        trial("a_pause_by_the_driver_is_told_to_its_waiters", paused),
        by_turns("what_is_due_while_a_commit_is_under_way_waits_for_it", both_due),
    ]
}

#[derive(Clone, Default)]
struct WakeGate {
    begun: Count,
    opened: Arc<Notify>,
}

/// Begins a `run_once` value, and ends without its result.
async fn gives_up(ctx: Ctx, (): ()) -> Result<()> {
    let gate = ctx.state::<WakeGate>();
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
    let (lab, gate) = (Lab::new(), WakeGate::default());
    let one = lab.engine().state(gate.clone()).workflow("gives up", gives_up).open().await?;
    // Another engine, which learns of it by the wake-up only.
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

/// Takes too long to make a `run_once` value, and lets its child do it.
async fn too_slow(ctx: Ctx, (): ()) -> Result<u32> {
    let gate = ctx.state::<WakeGate>();
    let make = async || {
        gate.begun.up();
        pending::<Result<u32>>().await
    };
    let slow = ctx.run_once("table", make).scope(Once::Workspace).into_future();
    ctx.race("first", ctx.sleep("limit", SECOND), slow).await?;
    ctx.child(waits, ()).await?.result().await
}

async fn lost_race() -> Result<(), Failed> {
    let (lab, gate) = (Lab::new(), WakeGate::default());
    let builder = lab.engine().state(gate.clone()).workflow("too slow", too_slow);
    let engine = builder.workflow("waits", waits).open().await?;
    let run = engine.start(too_slow, ()).await?;
    lab.until(async || gate.begun.get() == 1).await;
    lab.clock.advance(SECOND);
    assert_eq!(run.result().await?, 7, "the child makes it");
    Ok(())
}

async fn doubtful(ctx: Ctx, (): ()) -> Result<()> {
    let gate = ctx.state::<WakeGate>();
    ctx.step("try")
        .at_most_once()
        .run(async |_| {
            gate.opened.notified().await;
            Err(Fail::uncertain("no answer"))
        })
        .await
}

async fn paused() -> Result<(), Failed> {
    let (lab, gate) = (Lab::new(), WakeGate::default());
    let engine = lab.engine().state(gate.clone()).workflow("doubtful", doubtful).open().await?;
    let run = engine.start(doubtful, ()).await?;
    let mut reached = pin!(run.reached(Status::Paused));
    let first = poll_fn(|cx| Poll::Ready(reached.as_mut().poll(cx))).await;
    assert!(first.is_pending(), "it is not paused yet");
    gate.opened.notify_one();
    assert_eq!(reached.await?, Status::Paused);
    Ok(())
}

const SECOND: Duration = Duration::from_secs(1);

/// A clock that counts how many timers are set on it.
struct Counting {
    clock: Arc<ManualClock>,
    alarms: AtomicU32,
}

impl Clock for Counting {
    fn now(&self) -> Time {
        self.clock.now()
    }

    fn uuid(&self) -> Uuid {
        self.clock.uuid()
    }

    fn until(&self, at: Time) -> Until {
        self.alarms.fetch_add(1, Ordering::SeqCst);
        self.clock.until(at)
    }
}

async fn naps(ctx: Ctx, (): ()) -> Result<()> {
    let step = ctx.step("first").run(async |_| Ok(()));
    let (slept, done) = tokio::join!(ctx.sleep("nap", SECOND), step);
    slept.and(done)
}

/// The deadline of a run and its timer pass while a commit is under way and the store cannot be reached: the run waits for the
/// store.
async fn both_due() -> Result<(), Failed> {
    let (lab, sent, away) = (Lab::new(), Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(true)));
    let (commits, is_away) = (sent.clone(), away.clone());
    let plan = move |call| {
        (call == "commit" && {
            commits.fetch_add(1, Ordering::SeqCst);
            is_away.load(Ordering::SeqCst)
        })
        .then_some(Fault::Before)
    };
    let store: Arc<dyn Store> = Arc::new(Faulty::new(lab.store.clone(), plan));
    let clock = Arc::new(Counting { clock: lab.clock.clone(), alarms: AtomicU32::new(0) });
    let builder = Engine::builder().store(store).clock(clock.clone() as Arc<dyn Clock>).limits(limits());
    let engine = builder.workflow("naps", naps).open().await?;
    let run = engine.start(naps, ()).timeout(SECOND).await?;
    lab.until(async || sent.load(Ordering::SeqCst) == 1).await;
    // Again and again: the pause before the commit is sent again may begin only after the clock was set.
    let sent_again = async || {
        lab.clock.advance(2 * SECOND);
        sent.load(Ordering::SeqCst) >= 2
    };
    lab.until(sent_again).await;
    let before = clock.alarms.load(Ordering::SeqCst);
    yield_often().await;
    let alarms = clock.alarms.load(Ordering::SeqCst) - before;
    assert!(alarms < 100, "{alarms} alarms were set while nothing could be done");
    away.store(false, Ordering::SeqCst);
    let ended = async || {
        lab.clock.advance(SECOND);
        run.status().await.is_ok_and(Status::is_terminal)
    };
    lab.until(ended).await;
    assert_eq!(run.status().await?, Status::TimedOut);
    Ok(())
}
