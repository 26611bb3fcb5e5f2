//! Code that no longer fits the ledger: the run is paused, nothing new is done, and the old code can go on.

use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Barrier};
use std::task::Poll;
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use semel::clock::Time;
use semel::rules::entry::PauseReason;
use semel::rules::status::Status;
use semel::testing::{Effects, history};
use semel::{Ctx, Engine, Fail, Result, Retry, WorkflowRef};
use tokio::sync::Semaphore;

use super::{Lab, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("a_renamed_step_diverges", async || diverges(Code::Renamed, &["`first`", "`other`"]).await),
        trial("a_removed_step_diverges", async || diverges(Code::Removed, &["`second`"]).await),
        trial("a_step_added_before_diverges", async || diverges(Code::Added, &["`first`", "`new`"]).await),
        trial("a_step_moved_before_a_recorded_one_diverges", async || {
            diverges(Code::Moved, &["`second`", "`last`"]).await
        }),
        trial("another_kind_at_the_same_path_diverges", async || {
            diverges(Code::OtherKind, &["`first`"]).await
        }),
        trial("an_end_before_what_is_recorded_diverges", async || {
            diverges(Code::Shorter, &["`second`"]).await
        }),
        trial("an_end_before_what_is_recorded_diverges_also_while_the_engine_stops", while_stopping),
        trial("a_child_in_place_of_the_last_step_diverges", async || {
            switched((Form::Failing, Form::Child), "`act` is a child in the code").await
        }),
        trial("a_remote_step_in_place_of_the_last_step_diverges", async || {
            switched((Form::Failing, Form::Remote), "`act` is a child in the code").await
        }),
        trial("a_step_that_was_skipped_diverges", async || {
            switched((Form::Skip, Form::Failing), "`act` was skipped").await
        }),
        trial("a_skip_of_a_step_that_took_place_diverges", async || {
            switched((Form::Step, Form::Skip), "`act` is skipped in the code").await
        }),
        trial("a_race_without_its_recorded_winner_diverges", async || {
            switched((Form::Race(3), Form::Race(2)), "`act` was won by number 3").await
        }),
        trial("a_name_inside_of_a_body_pauses_the_run_before_it_has_done_harm", inside_a_body),
        trial("a_payload_is_not_received_inside_of_a_body", received_inside),
        trial("a_name_beside_bodies_on_other_threads_is_fine", beside_bodies),
        trial("a_skip_that_is_new_before_what_is_recorded_does_not_diverge", new_skip),
        trial("effects_that_have_begun_come_to_their_end_although_the_code_does_not_fit", under_way),
        trial("an_effect_that_does_not_end_holds_up_the_pause_for_a_while_only", stuck),
        trial("of_very_many_steps_that_are_missing_some_are_named", many_missing),
        trial("a_run_whose_code_does_not_fit_leaves_nothing_in_memory", nothing_left),
        trial("a_step_added_at_the_end_does_not_diverge", async || fits(Code::Longer, 4).await),
        trial("recorded_steps_may_change_their_order", async || fits(Code::Swapped, 3).await),
        trial("a_step_visited_twice_fails_and_says_why", duplicate_step),
    ]
}

/// Editions of one workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Code {
    Old,
    Renamed,
    Removed,
    Added,
    Moved,
    OtherKind,
    Shorter,
    Longer,
    Swapped,
}

async fn edited(ctx: Ctx, (): ()) -> Result<()> {
    let (code, effects) = (*ctx.state::<Code>(), ctx.state::<Effects>());
    let step = async |name: &str| {
        ctx.step(name).run(async |attempt| effects.apply(name, attempt.key()).map(drop)).await
    };
    match code {
        Code::Renamed => step("other").await?,
        Code::Added => {
            step("new").await?;
            step("first").await?;
        }
        Code::OtherKind => ctx.sleep("first", Duration::from_secs(1)).await?,
        Code::Swapped => {}
        _ => step("first").await?,
    }
    match code {
        Code::Removed => {}
        Code::Shorter => return Ok(()),
        Code::Moved => {
            step("last").await?;
            step("second").await?;
        }
        _ => step("second").await?,
    }
    if code == Code::Swapped {
        step("first").await?;
    }
    ctx.sleep("nap", Duration::from_hours(1)).await?;
    if code != Code::Moved {
        step("last").await?;
    }
    if code == Code::Longer {
        step("more").await?;
    }
    Ok(())
}

async fn engine(lab: &Lab, code: Code, effects: &Effects) -> Result<Engine, Failed> {
    Ok(lab.engine().state(code).state(effects.clone()).workflow("edited", edited).open().await?)
}

/// A run of the old code that sleeps, whose engine is gone.
async fn asleep(lab: &Lab) -> Result<semel::id::RunId, Failed> {
    let effects = Effects::new();
    let engine = engine(lab, Code::Old, &effects).await?;
    let run = engine.start(edited, ()).await?;
    lab.until(async || run.status().await.is_ok_and(|status| status == Status::Waiting)).await;
    engine.crash().await;
    Ok(run.id())
}

async fn diverges(code: Code, named: &[&str]) -> Result<(), Failed> {
    let lab = Lab::new();
    let (id, new, old) = (asleep(&lab).await?, Effects::new(), Effects::new());
    let edited = engine(&lab, code, &new).await?;
    let run = edited.run(id);
    lab.clock.advance(Duration::from_hours(1));
    lab.until(async || run.status().await.is_ok_and(|status| status == Status::Paused)).await;
    let found = history(&run).await?;
    let Some(PauseReason::Diverged(why)) = found.pause() else { panic!("{found}") };
    for name in named {
        assert!(why.contains(name), "{why}");
    }
    assert!(new.names().is_empty(), "no effect of the new code took place: {new:?}");
    edited.crash().await;

    let restored = engine(&lab, Code::Old, &old).await?;
    let run = restored.run(id);
    run.resume().await?;
    run.result().await?;
    assert_eq!(old.names(), ["last"], "{}", history(&run).await?);
    Ok(())
}

/// The code without its second step, and so slow that its engine is stopped meanwhile.
async fn slow(ctx: Ctx, (): ()) -> Result<()> {
    ctx.step("first").run(async |_| Ok(())).await?;
    let pace = ctx.state::<Barrier>();
    pace.wait();
    pace.wait();
    // Its driver hears of the stop between two polls.
    let mut polled = false;
    poll_fn(|cx| match std::mem::replace(&mut polled, true) {
        true => Poll::Ready(()),
        false => {
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await;
    Ok(())
}

async fn while_stopping() -> Result<(), Failed> {
    let lab = Lab::new();
    let (id, pace) = (asleep(&lab).await?, Arc::new(Barrier::new(2)));
    let engine = lab.engine().shared_state(pace.clone()).workflow("edited", slow).open().await?;
    lab.clock.advance(Duration::from_hours(1));
    pace.wait();
    let mut stopped = pin!(engine.shutdown(Duration::from_hours(1)));
    assert!(poll_fn(|cx| Poll::Ready(stopped.as_mut().poll(cx))).await.is_pending(), "it waits for the run");
    pace.wait();
    stopped.await?;
    let run = engine.run(id);
    let found = history(&run).await?;
    assert!(matches!(found.pause(), Some(PauseReason::Diverged(why)) if why.contains("`second`")), "{found}");
    assert_eq!(run.status().await?, Status::Paused);
    Ok(())
}

async fn fits(code: Code, steps: usize) -> Result<(), Failed> {
    let lab = Lab::new();
    let (id, effects) = (asleep(&lab).await?, Effects::new());
    let engine = engine(&lab, code, &effects).await?;
    lab.clock.advance(Duration::from_hours(1));
    let run = engine.run(id);
    run.result().await?;
    assert_eq!(history(&run).await?.count("stepCompleted"), steps);
    assert_eq!(effects.names().len(), steps - 2, "what was recorded is not done again");
    Ok(())
}

/// What a workflow does under the same name, before it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Step,
    /// A step that fails and is tried again an hour later.
    Failing,
    Skip,
    Child,
    Remote,
    /// A race of this number of branches, which the last one wins.
    Race(usize),
}

async fn act(ctx: Ctx, (): ()) -> Result<()> {
    match *ctx.state::<Form>() {
        Form::Step => ctx.step("act").run(async |_| Ok(())).await?,
        Form::Failing => {
            let retry = Retry::fixed(Duration::from_hours(1));
            ctx.step("act").retry(retry).run(async |_| Err::<(), _>(Fail::retryable("not yet"))).await?;
        }
        Form::Skip => ctx.skip("act", "not needed").await?,
        Form::Child => ctx.child(WorkflowRef::<(), ()>::new("act"), ()).await?.result().await?,
        Form::Remote => ctx.remote("act", "queue", ()).await?,
        Form::Race(runners) => {
            let runner = |n| async move {
                if n < 2 {
                    pending::<()>().await;
                }
            };
            ctx.race_all("act", (0..runners).map(runner).collect()).await?;
        }
    }
    ctx.sleep("nap", Duration::from_hours(1)).await
}

/// The code does something else than before under the same name, and every recorded entry is reached.
async fn switched((before, after): (Form, Form), expected: &str) -> Result<(), Failed> {
    let lab = Lab::new();
    let engine = async |form| lab.engine().state(form).workflow("act", act).open().await;
    let old = engine(before).await?;
    let run = old.start(act, ()).await?;
    super::replay::waiting(&lab, &run).await;
    old.crash().await;
    let new = engine(after).await?;
    let dry = new.replay(run.id()).await?;
    assert!(!dry.is_identical(), "a dry run finds it beforehand\n{dry}");
    lab.clock.advance(Duration::from_hours(1));
    let run = new.run(run.id());
    assert_eq!(run.reached(Status::Paused).await?, Status::Paused);
    let found = history(&run).await?;
    assert!(matches!(found.pause(), Some(PauseReason::Diverged(why)) if why.contains(expected)), "{found}");
    Ok(())
}

/// Code that asks for the time inside of a step, which a replay would not reach; and the repaired code.
async fn nosy(ctx: Ctx, mended: bool) -> Result<()> {
    let (effects, mended) = (ctx.state::<Effects>(), mended || *ctx.state::<bool>());
    let before = if mended { Some(ctx.now("before").await?) } else { None };
    ctx.step("stamp")
        .run(async |attempt| {
            if before.is_none() {
                ctx.now("now").await?;
            }
            effects.apply("stamp", attempt.key())
        })
        .await?;
    ctx.sleep("nap", Duration::from_hours(1)).await
}

async fn inside_a_body() -> Result<(), Failed> {
    let (lab, effects) = (Lab::new(), Effects::new());
    let engine = async |mended: bool| {
        lab.forgetful().state(mended).state(effects.clone()).workflow("nosy", nosy).open().await
    };
    let wrong = engine(false).await?;
    let run = wrong.start(nosy, false).await?;
    assert_eq!(run.reached(Status::Paused).await?, Status::Paused);
    let found = history(&run).await?;
    let says = |why: &str| why.contains("`@now[now]`") && why.contains("inside");
    assert!(matches!(found.pause(), Some(PauseReason::Diverged(why)) if says(why)), "{found}");
    assert_eq!(effects.calls("stamp"), 0);
    wrong.crash().await;

    let right = engine(true).await?;
    let run = right.run(run.id());
    run.resume().await?;
    super::replay::waiting(&lab, &run).await;
    lab.clock.advance(Duration::from_hours(1));
    run.result().await?;
    assert_eq!((effects.calls("stamp"), history(&run).await?.count("stepFailed")), (1, 0));
    Ok(())
}

/// What a body receives, the code after it would receive again when it is rebuilt.
async fn greedy(ctx: Ctx, (): ()) -> Result<u32> {
    let hook = tokio::sync::Mutex::new(ctx.hook::<u32>("numbers"));
    ctx.step("take").run(async |_| hook.lock().await.recv().await).await
}

async fn received_inside() -> Result<(), Failed> {
    let lab = Lab::new();
    let engine = lab.engine().workflow("greedy", greedy).open().await?;
    let run = engine.start(greedy, ()).await?;
    assert_eq!(run.reached(Status::Paused).await?, Status::Paused);
    let found = history(&run).await?;
    let says = |why: &str| why.contains("`@hook[numbers]`") && why.contains("inside");
    assert!(matches!(found.pause(), Some(PauseReason::Diverged(why)) if says(why)), "{found}");
    Ok(())
}

/// The bodies of two steps are being polled by other threads, and do not let go, while the workflow asks for the time.
async fn beside(ctx: Ctx, (): ()) -> Result<()> {
    let pace = ctx.state::<Barrier>();
    let steps = ["left", "right"].map(|name| {
        let pace = pace.clone();
        let step = ctx.step(name).run(move |_| {
            let pace = pace.clone();
            async move {
                pace.wait();
                pace.wait();
                Ok(())
            }
        });
        let runtime = tokio::runtime::Handle::current();
        tokio::task::spawn_blocking(move || runtime.block_on(step))
    });
    pace.wait();
    ctx.now("now").await?;
    pace.wait();
    for step in steps {
        step.await.map_err(semel::fatal)??;
    }
    ctx.step("after").run(async |_| Ok(())).await
}

async fn beside_bodies() -> Result<(), Failed> {
    let lab = Lab::new();
    let pace = Arc::new(Barrier::new(3));
    let engine = lab.engine().shared_state(pace).workflow("beside", beside).open().await?;
    let run = engine.start(beside, ()).await?;
    lab.until(async || run.status().await.is_ok_and(|status| status != Status::Running)).await;
    assert_eq!(run.status().await?, Status::Completed, "{}", history(&run).await?);
    Ok(())
}

/// It has no effect, and nothing that is recorded depends on it.
async fn chatty(ctx: Ctx, (): ()) -> Result<()> {
    if *ctx.state::<bool>() {
        ctx.skip("gift", "not wanted").await?;
    }
    ctx.step("pack").run(async |_| Ok(())).await?;
    ctx.sleep("nap", Duration::from_hours(1)).await
}

async fn new_skip() -> Result<(), Failed> {
    let lab = Lab::new();
    let engine = async |skips: bool| lab.engine().state(skips).workflow("chatty", chatty).open().await;
    let old = engine(false).await?;
    let run = old.start(chatty, ()).await?;
    super::replay::waiting(&lab, &run).await;
    old.crash().await;
    let new = engine(true).await?;
    super::replay::identical(&new.replay(run.id()).await?);
    lab.clock.advance(Duration::from_hours(1));
    new.run(run.id()).result().await?;
    super::replay::identical(&new.replay(run.id()).await?);
    Ok(())
}

/// A mistake in one branch, while a letter is being sent in the other.
async fn half_wrong(ctx: Ctx, (): ()) -> Result<u32> {
    let (effects, gate) = (ctx.state::<Effects>(), ctx.state::<Semaphore>());
    let mended = gate.is_closed();
    let wrong = ctx.step("stamp").run(async |_| if mended { Ok(Time(0)) } else { ctx.now("now").await });
    let letter = ctx.step("letter").at_most_once().run(async |attempt| {
        gate.acquire().await?.forget();
        effects.apply("letter", attempt.key())
    });
    let rates = ctx.run_once("rates", async || {
        gate.acquire().await?.forget();
        effects.apply("rates", "rates")
    });
    let (letter, rates, wrong) = tokio::join!(letter, rates.scope(semel::Once::Workspace), wrong);
    wrong?;
    Ok(letter? + rates?)
}

async fn under_way() -> Result<(), Failed> {
    let (lab, effects, gate) = (Lab::new(), Effects::new(), Arc::new(Semaphore::new(0)));
    let builder = lab.engine().state(effects.clone()).shared_state(gate.clone());
    let engine = builder.workflow("half-wrong", half_wrong).open().await?;
    let run = engine.start(half_wrong, ()).await?;
    // The letter's beginning is durable; the mistake has been made by then.
    lab.until(async || history(&run).await.is_ok_and(|found| found.attempts("letter") == 1)).await;
    gate.add_permits(2);
    assert_eq!(run.reached(Status::Paused).await?, Status::Paused);
    let found = history(&run).await?;
    assert!(matches!(found.pause(), Some(PauseReason::Diverged(_))), "{found}");
    assert!(
        found.completed("letter") && found.count("once") == 1,
        "what had begun is not forgotten\n{found}"
    );
    gate.close();
    run.resume().await?;
    assert_eq!(run.result().await?, 2);
    assert_eq!((effects.calls("letter"), effects.calls("rates")), (1, 1));
    Ok(())
}

/// A mistake in one branch, and a body in the other that waits for what that branch would have done next.
async fn half_stuck(ctx: Ctx, (): ()) -> Result<()> {
    let gate = ctx.state::<Semaphore>();
    let waits = ctx.step("waits").run(async |_| {
        gate.acquire().await?.forget();
        Ok(())
    });
    let wrong = async {
        ctx.step("stamp").run(async |_| ctx.now("now").await).await?;
        let open = async |_| {
            gate.add_permits(1);
            Ok(())
        };
        ctx.step("open").run(open).await
    };
    let (waits, wrong) = tokio::join!(waits, wrong);
    waits.and(wrong)
}

async fn stuck() -> Result<(), Failed> {
    let lab = Lab::new();
    let builder = lab.engine().state(Semaphore::new(0));
    let engine = builder.workflow("half-stuck", half_stuck).open().await?;
    let run = engine.start(half_stuck, ()).await?;
    lab.until(async || {
        lab.clock.advance(Duration::from_secs(1));
        run.status().await.is_ok_and(|status| status == Status::Paused)
    })
    .await;
    assert!(matches!(run.pause_reason().await?, Some(PauseReason::Diverged(_))));
    Ok(())
}

/// More steps than a message can list.
async fn many(ctx: Ctx, steps: u32) -> Result<()> {
    let prefix = if *ctx.state::<bool>() { "new" } else { "old" };
    for n in 0..steps {
        ctx.step(prefix).key(n).run(async |_| Ok(())).await?;
    }
    ctx.sleep("nap", Duration::from_hours(1)).await
}

async fn many_missing() -> Result<(), Failed> {
    let lab = Lab::new();
    let engine = async |new: bool| lab.engine().state(new).workflow("many", many).open().await;
    let old = engine(false).await?;
    let run = old.start(many, 300).await?;
    super::replay::waiting(&lab, &run).await;
    old.crash().await;
    let new = engine(true).await?;
    lab.clock.advance(Duration::from_hours(1));
    let run = new.run(run.id());
    run.reached(Status::Paused).await?;
    let Some(PauseReason::Diverged(why)) = run.pause_reason().await? else {
        panic!("it is paused as diverged")
    };
    assert!(why.contains("and 296 more are in the ledger") && why.contains("`new[0]`"), "{why}");
    assert!(why.len() < 500, "{why}");
    Ok(())
}

/// A task that waits for the end of a replay leaves a waker with its run; a run that kept those would keep the whole engine.
async fn nothing_left() -> Result<(), Failed> {
    let lab = Lab::new();
    let (id, state) = (asleep(&lab).await?, Arc::new(Code::Renamed));
    let of_engine = Arc::downgrade(&state);
    let builder = lab.engine().shared_state(state).state(Effects::new());
    let engine = builder.workflow("edited", edited).open().await?;
    assert!(!engine.replay(id).await?.is_identical(), "also looked at, it waits for what never comes");
    lab.clock.advance(Duration::from_hours(1));
    engine.run(id).reached(Status::Paused).await?;
    engine.shutdown(Duration::from_secs(5)).await?;
    drop(engine);
    let gone = lab.until(async || of_engine.upgrade().is_none());
    tokio::time::timeout(Duration::from_secs(30), gone).await.map_err(|_| "the engine is still in memory")?;
    Ok(())
}

async fn twice(ctx: Ctx, (): ()) -> Result<()> {
    ctx.step("pack").run(async |_| Ok(())).await?;
    ctx.step("pack").run(async |_| Ok(())).await
}

async fn duplicate_step() -> Result<(), Failed> {
    let lab = Lab::new();
    let engine = lab.engine().workflow("twice", twice).open().await?;
    let failed = engine.start(twice, ()).await?.result().await.expect_err("it does not end well").to_string();
    let expected = "pack is visited a second time in this run; add a key (`.key(..)`) or count the visits \
                    (`.indexed()`)";
    assert!(failed.ends_with(expected), "{failed}");
    Ok(())
}
