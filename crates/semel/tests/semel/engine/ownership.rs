//! Which engine drives a run, and what happens to earlier drivers.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::task::Poll;
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use semel::clock::Clock as _;
use semel::id::{RunId, WorkspaceId};
use semel::rules::json::Payload;
use semel::rules::path::Name;
use semel::rules::receipt::ReceiptKind;
use semel::rules::run::Retention;
use semel::rules::start::Start;
use semel::rules::status::Status;
use semel::store::faulty::{Fault, Faulty};
use semel::store::{Lease, LeaseAct, Store, Sweep, Wake};
use semel::testing::history;
use semel::{Ctx, Engine, Limits, Result};
use tokio::sync::Semaphore;

use super::basics::Count;
use super::{Lab, by_turns, limits, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("a_takeover_refuses_the_old_driver", takeover),
        trial("a_late_commit_is_not_taken_for_one_of_another_node", late_commit),
        trial("a_commit_of_a_run_that_was_ended_and_forgotten_is_given_up", forgotten_meanwhile),
        trial("a_graceful_stop_lets_bodies_end_and_gives_runs_back", graceful),
        trial("a_stop_without_patience_gives_runs_back_too", impatient),
        trial("a_stop_while_runs_are_claimed_ends", stop_while_claiming),
        trial("a_run_that_is_claimed_while_the_engine_stops_begins_nothing", claimed_while_stopping),
        trial("resting_runs_make_room_and_are_rebuilt", evicted),
        trial("more_runs_than_places_wait_in_the_store", few_places),
        trial("an_engine_with_room_looks_for_no_runs_when_one_ends", room_enough),
        trial("what_others_had_locked_is_looked_for_when_a_run_ends", locked_by_others),
        trial("two_engines_share_the_work", two_engines),
        trial("a_run_that_was_cancelled_before_its_start_was_answered_begins_nothing", late_start),
        by_turns("a_start_that_is_answered_late_drives_a_run_that_is_still_its_own", late_start_of_its_own),
    ]
}

/// An engine whose first start is answered late, and the run that it has started by then.
async fn answered_late(lab: &Lab, gate: &FirstCallGate) -> Result<(Arc<Faulty>, Engine, RunId), Failed> {
    let mut faults = VecDeque::from([Fault::Held]);
    let plan = move |call: &'static str| if call == "start" { faults.pop_front() } else { None };
    let store = Arc::new(Faulty::new(lab.store.clone(), plan).deaf());
    let shared: Arc<dyn Store> = store.clone();
    let engine = lab.engine().store(shared).state(gate.clone()).workflow("gated", gated).open().await?;
    let starter = engine.clone();
    tokio::spawn(async move { starter.start(gated, ()).key("k").await });
    lab.until(async || engine.run_by_key("k").await.is_ok_and(|run| run.is_some())).await;
    let run = engine.run_by_key("k").await?.expect("it is there");
    Ok((store, engine, run.id()))
}

async fn late_start() -> Result<(), Failed> {
    let (lab, gate) = (Lab::new(), FirstCallGate::new());
    let (store, engine, run) = answered_late(&lab, &gate).await?;
    assert!(engine.run(run).cancel("enough").await?.changed);
    store.let_go();
    // It stops when all that was begun has ended.
    engine.shutdown(Duration::from_secs(1)).await?;
    assert_eq!(gate.calls.get(), 0, "no step begins after a won cancel");
    Ok(())
}

/// Something was heard of the run, but nothing has happened to it.
async fn late_start_of_its_own() -> Result<(), Failed> {
    let (lab, gate) = (Lab::new(), FirstCallGate::new());
    let (store, engine, run) = answered_late(&lab, &gate).await?;
    gate.open();
    store.tell(Wake::Taken(run));
    // The engine hears it now: there is one thread, and all other tasks have a turn.
    tokio::task::yield_now().await;
    store.let_go();
    lab.until(async || engine.run(run).status().await.is_ok_and(Status::is_terminal)).await;
    assert_eq!(engine.run(run).typed::<u32>().result().await?, 1);
    assert_eq!(gate.calls.get(), 1);
    Ok(())
}

/// A gate in front of a body: the first call waits there, the others go through.
#[derive(Clone)]
struct FirstCallGate {
    calls: Count,
    after: Count,
    opened: Arc<Semaphore>,
}

impl FirstCallGate {
    fn new() -> Self {
        Self { calls: Count::default(), after: Count::default(), opened: Arc::new(Semaphore::new(0)) }
    }

    fn open(&self) {
        self.opened.add_permits(1);
    }
}

async fn gated(ctx: Ctx, (): ()) -> Result<u32> {
    let gate = ctx.state::<FirstCallGate>();
    let call = ctx
        .step("gate")
        .run(async |_| {
            let call = gate.calls.up();
            if call == 1 {
                gate.opened.acquire().await?.forget();
            }
            Ok(call)
        })
        .await?;
    ctx.step("after").run(async |_| Ok(gate.after.up())).await?;
    Ok(call)
}

async fn takeover() -> Result<(), Failed> {
    let (lab, gate) = (Lab::new(), FirstCallGate::new());
    // Once it is cut off, it hears nothing of its lease and of what is due.
    let cut_off = Arc::new(AtomicBool::new(false));
    let deaf = cut_off.clone();
    let plan = move |call: &'static str| {
        (deaf.load(Ordering::SeqCst) && matches!(call, "lease" | "claim" | "sweep")).then_some(Fault::Before)
    };
    let store: Arc<dyn Store> = Arc::new(Faulty::new(lab.store.clone(), plan));
    let old = lab.engine().store(store).state(gate.clone()).workflow("gated", gated).open().await?;
    let run = old.start(gated, ()).await?;
    lab.until(async || gate.calls.get() == 1).await;
    cut_off.store(true, Ordering::SeqCst);
    // The node is taken for dead while its body runs.
    let node = run.header().await?.state.node.expect("it is driven");
    lab.store.lease(Lease { node, act: LeaseAct::Leave }).await?;
    assert_eq!(lab.store.sweep(Sweep { limit: 10 }).await?.orphaned, 1);
    let new = lab.engine().state(gate.clone()).workflow("gated", gated).open().await?;
    assert_eq!(new.run(run.id()).typed::<u32>().result().await?, 2, "the new owner's result stands");
    let ledger = run.ledger().await?;
    gate.open();
    let refused = async || {
        let receipts = lab.store.receipts(old.workspace(), run.id()).await.expect("it works");
        receipts.iter().any(|(kind, receipts)| *kind == ReceiptKind::Result && receipts.count == 1)
    };
    lab.until(refused).await;
    assert_eq!(run.ledger().await?, ledger, "nothing was changed");
    assert_eq!((gate.calls.get(), gate.after.get()), (2, 1), "and nothing more was begun");
    assert_eq!(run.result().await?, 2, "the old owner's handle knows too");
    Ok(())
}

/// The answer to a commit is lost, it is not in the ledger yet, the store cannot be reached for a moment, and then it is there.
async fn late_commit() -> Result<(), Failed> {
    let (lab, gate) = (Lab::new(), FirstCallGate::new());
    let mut faults = VecDeque::from([Fault::Late, Fault::Before]);
    let plan = move |call: &'static str| if call == "commit" { faults.pop_front() } else { None };
    let store: Arc<dyn Store> = Arc::new(Faulty::new(lab.store.clone(), plan));
    let engine = lab.engine().store(store).state(gate.clone()).workflow("gated", gated).open().await?;
    gate.open();
    let run = engine.start(gated, ()).await?;
    super::replay::ended(&lab, &run).await?;
    assert_eq!((run.result().await?, gate.calls.get(), gate.after.get()), (1, 1, 1));
    Ok(())
}

/// The outcome of a commit is unknown; before the store answers again, the run was cancelled and its history forgotten.
async fn forgotten_meanwhile() -> Result<(), Failed> {
    let (lab, gate, commits) = (Lab::new(), FirstCallGate::new(), Arc::new(AtomicUsize::new(0)));
    let (answers, seen) = (Arc::new(AtomicBool::new(false)), commits.clone());
    let open = answers.clone();
    let plan = move |call: &'static str| match (
        call,
        seen.fetch_add(usize::from(call == "commit"), Ordering::SeqCst),
    ) {
        ("commit", 0) => Some(Fault::Late),
        ("commit", _) if !open.load(Ordering::SeqCst) => Some(Fault::Before),
        _ => None,
    };
    let store: Arc<dyn Store> = Arc::new(Faulty::new(lab.store.clone(), plan).deaf());
    let engine = lab.engine().store(store).state(gate.clone()).workflow("gated", gated).open().await?;
    gate.open();
    let retention = Retention { history: Duration::ZERO, key: Duration::MAX };
    let run = engine.start(gated, ()).retention(retention).await?.id();
    lab.until(async || commits.load(Ordering::SeqCst) > 1).await;
    let other = lab.engine().workflow("gated", gated).open().await?;
    assert!(other.run(run).cancel("enough").await?.changed);
    lab.clock.advance(Duration::from_secs(1));
    lab.store.sweep(Sweep { limit: 10 }).await?;
    assert!(other.run(run).ledger().await?.is_empty(), "its history is gone, and its key is not");
    answers.store(true, Ordering::SeqCst);
    let mut stopped = pin!(engine.shutdown(Duration::MAX));
    loop {
        tokio::select! {
            biased;
            stopped = &mut stopped => break stopped?,
            () = tokio::task::yield_now() => lab.clock.advance(Duration::from_millis(1)),
        }
    }
    Ok(())
}

async fn graceful() -> Result<(), Failed> {
    let (lab, gate) = (Lab::new(), FirstCallGate::new());
    let engine = lab.engine().state(gate.clone()).workflow("gated", gated).open().await?;
    let run = engine.start(gated, ()).await?.id();
    lab.until(async || gate.calls.get() == 1).await;
    let mut stopped = pin!(engine.shutdown(Duration::from_mins(1)));
    assert!(poll_fn(|cx| Poll::Ready(stopped.as_mut().poll(cx))).await.is_pending(), "a body is under way");
    gate.open();
    stopped.await?;
    let header = engine.run(run).header().await?;
    assert_eq!((header.status(), header.state.stalls, header.state.node), (Status::Waiting, 0, None));
    assert_eq!((gate.calls.get(), gate.after.get()), (1, 0), "what had begun has ended, and no more");
    let next = lab.engine().state(gate.clone()).workflow("gated", gated).open().await?;
    assert_eq!(next.run(run).typed::<u32>().result().await?, 1, "the body is not called again");
    assert_eq!((gate.calls.get(), gate.after.get()), (1, 1));
    Ok(())
}

async fn impatient() -> Result<(), Failed> {
    let (lab, gate) = (Lab::new(), FirstCallGate::new());
    let engine = lab.engine().state(gate.clone()).workflow("gated", gated).open().await?;
    let run = engine.start(gated, ()).await?.id();
    lab.until(async || gate.calls.get() == 1).await;
    engine.shutdown(Duration::ZERO).await?;
    let header = engine.run(run).header().await?;
    assert_eq!((header.status(), header.state.stalls, header.state.node), (Status::Waiting, 0, None));
    let next = lab.engine().state(gate.clone()).workflow("gated", gated).open().await?;
    assert_eq!(next.run(run).typed::<u32>().result().await?, 2, "the body that was left is called again");
    Ok(())
}

async fn nap(ctx: Ctx, seconds: u64) -> Result<u32> {
    let count = ctx.state::<Count>();
    let before = ctx.step("before").run(async |_| Ok(count.up())).await?;
    ctx.sleep("nap", Duration::from_secs(seconds)).await?;
    ctx.step("after").run(async |_| Ok(before)).await
}

/// Runs come due at the moment of the stop: each is given back or left to the next, and the stop ends.
async fn stop_while_claiming() -> Result<(), Failed> {
    for _ in 0..20 {
        let (lab, count) = (Lab::new(), Count::default());
        let engine = lab.engine().state(count.clone()).workflow("nap", nap).open().await?;
        let mut runs = Vec::new();
        for _ in 0..20 {
            runs.push(engine.start(nap, 60).await?.id());
        }
        for run in &runs {
            let asleep = |status| status == Status::Waiting;
            lab.until(async || engine.run(*run).status().await.is_ok_and(asleep)).await;
        }
        let stopping = engine.clone();
        let stopped = tokio::spawn(async move { stopping.shutdown(Duration::from_hours(1)).await });
        lab.clock.advance(Duration::from_mins(1));
        stopped.await.expect("it works")?;
        let next = lab.engine().state(count.clone()).workflow("nap", nap).open().await?;
        for run in runs {
            next.run(run).result().await?;
        }
        assert_eq!(count.get(), 20);
    }
    Ok(())
}

/// The claim is on its way when the stop is ordered, so the run arrives only after all tasks were told.
async fn claimed_while_stopping() -> Result<(), Failed> {
    for forgetful in [false, true] {
        let (lab, count) = (Lab::new(), Count::default());
        let (armed, pace) = (Arc::new(AtomicBool::new(false)), Arc::new(Barrier::new(2)));
        let (holds, halt) = (armed.clone(), pace.clone());
        let plan = move |call: &'static str| {
            if call == "claim" && holds.swap(false, Ordering::SeqCst) {
                halt.wait();
                halt.wait();
            }
            None
        };
        let store: Arc<dyn Store> = Arc::new(Faulty::new(lab.store.clone(), plan));
        let builder = if forgetful { lab.forgetful() } else { lab.engine() };
        let engine = builder.store(store).state(count.clone()).workflow("nap", nap).open().await?;
        let run = engine.start(nap, 60).await?.id();
        let asleep = |status| status == Status::Waiting;
        lab.until(async || engine.run(run).status().await.is_ok_and(asleep)).await;
        // A claim is held before the run is due: one that was on its way already must not find it. The engine claims because
        // something is due that is none of its own.
        armed.store(true, Ordering::SeqCst);
        let (other, workflow) = (RunId(lab.clock.uuid()), Name::new("other")?);
        lab.store.start(Start::new(WorkspaceId::DEFAULT, other, workflow, Payload::null(), None)).await?;
        pace.wait();
        lab.clock.advance(Duration::from_mins(1));
        let mut stopped = pin!(engine.shutdown(Duration::from_hours(1)));
        assert!(
            poll_fn(|cx| Poll::Ready(stopped.as_mut().poll(cx))).await.is_pending(),
            "a claim is on its way"
        );
        pace.wait();
        stopped.await?;
        let header = engine.run(run).header().await?;
        assert_eq!((header.status(), header.state.node, header.state.stalls), (Status::Waiting, None, 0));
        let next = lab.engine().state(count.clone()).workflow("nap", nap).open().await?;
        assert_eq!(next.run(run).typed::<u32>().result().await?, 1);
        assert_eq!(count.get(), 1);
    }
    Ok(())
}

async fn evicted() -> Result<(), Failed> {
    let (lab, count) = (Lab::new(), Count::default());
    let tight = Limits { resting: 3, ..limits() };
    let engine = lab.engine().limits(tight).state(count.clone()).workflow("nap", nap).open().await?;
    let mut runs = Vec::new();
    for i in 0..30 {
        runs.push(engine.start(nap, 60 + i % 7).await?);
    }
    for run in &runs {
        lab.until(async || run.status().await.is_ok_and(|status| status == Status::Waiting)).await;
    }
    lab.clock.advance(Duration::from_mins(2));
    for run in &runs {
        run.result().await?;
        let found = history(run).await?;
        assert_eq!((found.count("timerFired"), found.attempts("before")), (1, 1), "{found}");
    }
    assert_eq!(count.get(), 30, "each step once");
    Ok(())
}

async fn few_places() -> Result<(), Failed> {
    let (lab, count) = (Lab::new(), Count::default());
    let tight = Limits { driven: 2, ..limits() };
    let engine = lab.engine().limits(tight).state(count.clone()).workflow("nap", nap).open().await?;
    let mut runs = Vec::new();
    for _ in 0..30 {
        runs.push(engine.start(nap, 0).await?);
    }
    for run in &runs {
        run.result().await?;
    }
    assert_eq!(count.get(), 30);
    Ok(())
}

async fn step(ctx: Ctx, (): ()) -> Result<u32> {
    ctx.step("step").run(async |_| Ok(ctx.state::<Count>().up())).await
}

async fn room_enough() -> Result<(), Failed> {
    let (lab, looks) = (Lab::new(), Count::default());
    let seen = looks.clone();
    let plan = move |call| {
        if call == "claim" {
            seen.up();
        }
        None
    };
    let engine = lab.engine().store(Arc::new(Faulty::new(lab.store.clone(), plan)) as Arc<dyn Store>);
    let engine = engine.state(Count::default()).workflow("step", step).open().await?;
    lab.until(async || looks.get() == 1).await;
    for n in 1..=30 {
        assert_eq!(engine.start(step, ()).await?.result().await?, n);
    }
    assert_eq!(looks.get(), 1, "nothing was said to be due");
    Ok(())
}

async fn locked_by_others() -> Result<(), Failed> {
    let lab = Lab::new();
    // Started by an engine that is gone before they are due.
    let first = lab.engine().workflow("step", step).state(Count::default()).open().await?;
    let mut runs = Vec::new();
    for _ in 0..5 {
        runs.push(first.start(step, ()).delay(Duration::from_secs(1)).await?.id());
    }
    first.shutdown(Duration::from_secs(5)).await?;
    lab.clock.advance(Duration::from_secs(2));
    let store = Arc::new(Faulty::new(lab.store.clone(), |_| None).spares(1)) as Arc<dyn Store>;
    let engine = lab.engine().store(store).state(Count::default()).workflow("step", step).open().await?;
    // The clock stands still, so nothing is looked up by time.
    for run in runs {
        engine.run(run).reached(Status::Completed).await?;
    }
    Ok(())
}

#[derive(Clone, Default)]
struct Seen(Arc<AtomicU32>, Arc<AtomicBool>);

async fn counted(ctx: Ctx, (): ()) -> Result<()> {
    let seen = ctx.state::<Seen>();
    for i in 0..5 {
        ctx.step("step").key(i).run(async |_| Ok(seen.0.fetch_add(1, Ordering::SeqCst))).await?;
        ctx.sleep(format!("nap {i}"), Duration::from_millis(50)).await?;
    }
    Ok(())
}

/// Whichever of them claims a run: nothing is done twice.
async fn two_engines() -> Result<(), Failed> {
    let (lab, seen) = (Lab::new(), Seen::default());
    let one = lab.engine().state(seen.clone()).workflow("counted", counted).open().await?;
    let two = lab.engine().state(seen.clone()).workflow("counted", counted).open().await?;
    let mut runs: Vec<RunId> = Vec::new();
    for i in 0..40 {
        let engine = if i % 2 == 0 { &one } else { &two };
        runs.push(engine.start(counted, ()).await?.id());
    }
    let clock = lab.clock.clone();
    let done = seen.1.clone();
    let ticking = tokio::spawn(async move {
        while !done.load(Ordering::SeqCst) {
            clock.advance(Duration::from_millis(10));
            tokio::task::yield_now().await;
        }
    });
    for run in runs {
        one.run(run).result().await?;
    }
    seen.1.store(true, Ordering::SeqCst);
    ticking.await.expect("it works");
    assert_eq!(seen.0.load(Ordering::SeqCst), 200, "five steps of forty runs, each once");
    Ok(())
}
