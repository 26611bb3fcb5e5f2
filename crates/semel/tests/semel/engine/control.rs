//! What operators and clients do to runs while they go on.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use semel::clock::Clock as _;
use semel::id::{RunId, WorkspaceId};
use semel::rules::entry::Outcome;
use semel::rules::json::Payload;
use semel::rules::ledger::Lineage;
use semel::rules::path::Name;
use semel::rules::run::Retention;
use semel::rules::start::{Start, StartVerdict};
use semel::rules::status::Status;
use semel::store::Sweep;
use semel::testing::{Effects, history};
use semel::{Ctx, Result, fatal};
use tokio::sync::Notify;

use super::{Lab, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("every_answer_to_a_cancel_agrees_with_the_end", cancel_against_completion),
        trial("a_cancel_ends_a_sleeping_run", cancel_asleep),
        trial("a_paused_run_goes_on_when_it_is_resumed", pause_and_resume),
        trial("a_pause_stops_a_driven_run", pause_driven),
        trial("a_released_key_leaves_a_step_under_way_alone", release_under_way),
        trial("a_purged_run_has_not_failed", purged),
        trial("a_workflow_without_input_takes_an_empty_object", no_input),
        trial("a_fork_inherits_results_and_keys", fork_inherited),
        trial("a_fork_with_fresh_keys_does_its_own_effects", fork_fresh),
        trial("a_restart_and_a_fork_go_on_behind_a_race", behind_a_race),
        trial("a_restart_tries_again_what_failed_in_the_winner_of_a_race", failed_in_a_race),
        trial("what_one_life_has_skipped_the_next_may_do", second_thoughts),
        trial("a_hundred_equal_starts_are_one_run", equal_starts),
        trial("a_start_delivers_to_its_run_or_to_the_owner", start_with_delivery),
        trial("a_dropped_hook_frees_its_token_and_a_resting_one_does_not", tokens),
    ]
}

#[derive(Clone, Default)]
struct Ends(Arc<Mutex<(HashSet<RunId>, u32)>>);

async fn many_steps(ctx: Ctx, (): ()) -> Result<()> {
    let ends = ctx.state::<Ends>();
    let id = ctx.run_id();
    for i in 0..8 {
        ctx.step("step")
            .key(i)
            .run(async |_| {
                let mut ends = ends.0.lock().expect("it works");
                if ends.0.contains(&id) {
                    ends.1 += 1;
                }
                Ok(())
            })
            .await?;
    }
    Ok(())
}

async fn cancel_against_completion() -> Result<(), Failed> {
    let (lab, ends) = (Lab::new(), Ends::default());
    let engine = lab.engine().state(ends.clone()).workflow("many", many_steps).open().await?;
    let mut cancels = Vec::new();
    for i in 0..300 {
        let run = engine.start(many_steps, ()).await?;
        let ends = ends.clone();
        cancels.push(tokio::spawn(async move {
            for _ in 0..i % 40 {
                tokio::task::yield_now().await;
            }
            let cancelled = run.cancel("too late?").await.expect("it works");
            if cancelled.changed {
                ends.0.lock().expect("it works").0.insert(run.id());
            }
            (run, cancelled)
        }));
    }
    for cancel in cancels {
        let (run, cancelled) = cancel.await.expect("it works");
        let ended = run.outcome().await?;
        let status = run.status().await?;
        assert_eq!(cancelled.changed, status == Status::Cancelled, "{ended:?}");
        assert_eq!(cancelled.run.status(), status, "the answer says who won");
    }
    assert_eq!(ends.0.lock().expect("it works").1, 0, "no step began after a won cancel");
    Ok(())
}

async fn nap(ctx: Ctx, (): ()) -> Result<u32> {
    let effects = ctx.state::<Effects>();
    let one = ctx.step("one").run(async |attempt| effects.apply("one", attempt.key())).await?;
    ctx.sleep("nap", Duration::from_hours(1)).await?;
    let two = ctx.step("two").run(async |attempt| effects.apply("two", attempt.key())).await?;
    Ok(one + two)
}

async fn cancel_asleep() -> Result<(), Failed> {
    for forgetful in [false, true] {
        let (lab, effects) = (Lab::new(), Effects::new());
        let builder = if forgetful { lab.forgetful() } else { lab.engine() };
        let engine = builder.state(effects.clone()).workflow("nap", nap).open().await?;
        let run = engine.start(nap, ()).await?;
        lab.until(async || run.status().await.is_ok_and(|status| status == Status::Waiting)).await;
        assert!(run.cancel("enough").await?.changed);
        assert!(!run.cancel("enough").await?.changed, "it has ended already");
        assert!(
            run.result()
                .await
                .expect_err("it does not end well")
                .to_string()
                .ends_with("was cancelled: enough")
        );
        lab.clock.advance(Duration::from_hours(2));
        lab.until(async || engine.run(run.id()).status().await.is_ok_and(Status::is_terminal)).await;
        assert_eq!(effects.names(), ["one"]);
    }
    Ok(())
}

async fn pause_and_resume() -> Result<(), Failed> {
    let (lab, effects) = (Lab::new(), Effects::new());
    let engine = lab.engine().state(effects.clone()).workflow("nap", nap).open().await?;
    let run = engine.start(nap, ()).await?;
    lab.until(async || run.status().await.is_ok_and(|status| status == Status::Waiting)).await;
    assert!(run.pause().await?.changed);
    lab.clock.advance(Duration::from_hours(2));
    // Whatever is due is claimed before this one is over.
    let other = engine.start(nap, ()).await?;
    lab.until(async || other.status().await.is_ok_and(|status| status == Status::Waiting)).await;
    assert_eq!((run.status().await?, effects.calls("two")), (Status::Paused, 0));
    assert!(run.resume().await?.changed);
    assert_eq!(run.result().await?, 2);
    assert_eq!(effects.keys("two").len(), 1);
    Ok(())
}

/// Tells that a step has begun, and lets it end.
#[derive(Default)]
struct StepGate {
    begun: Notify,
    may_end: Notify,
}

async fn charge(ctx: Ctx, (): ()) -> Result<u32> {
    let gate = ctx.state::<Arc<StepGate>>().clone();
    let charge = async |_| {
        gate.begun.notify_one();
        gate.may_end.notified().await;
        Ok(7)
    };
    ctx.step("charge").at_most_once().run(charge).await
}

async fn release_under_way() -> Result<(), Failed> {
    let (lab, gate) = (Lab::new(), Arc::new(StepGate::default()));
    let engine = lab.engine().state(gate.clone()).workflow("charge", charge).open().await?;
    let run = engine.start(charge, ()).key("k").await?;
    gate.begun.notified().await;
    assert!(run.release_key().await?.changed);
    lab.until(async || history(&run).await.is_ok_and(|found| found.count("keyReleased") == 1)).await;
    gate.may_end.notify_one();
    assert_eq!(run.result().await?, 7);
    let found = history(&run).await?;
    assert_eq!((found.count("claimed"), found.count("stepInDoubt")), (1, 0));
    gate.may_end.notify_one();
    assert!(engine.start(charge, ()).key("k").await?.created());
    Ok(())
}

async fn brief(_: Ctx, (): ()) -> Result<u32> {
    Ok(7)
}

async fn purged() -> Result<(), Failed> {
    let lab = Lab::new();
    let engine = lab.engine().workflow("brief", brief).open().await?;
    let retention = Retention { history: Duration::from_secs(1), ..Retention::default() };
    let run = engine.start(brief, ()).key("k").retention(retention).await?;
    assert_eq!(run.result().await?, 7);
    lab.clock.advance(Duration::from_secs(2));
    lab.store.sweep(Sweep { limit: 10 }).await?;
    let again = engine.start(brief, ()).key("k").await?;
    assert_eq!((again.verdict(), again.id()), (Some(StartVerdict::Replayed), run.id()));
    assert_eq!(again.outcome().await?, Outcome::Purged(Status::Completed));
    let error = again.result().await.expect_err("there is no result").to_string();
    assert!(error.ends_with("has ended as COMPLETED, and its result is no longer kept"), "{error}");
    Ok(())
}

async fn no_input() -> Result<(), Failed> {
    let lab = Lab::new();
    let engine = lab.engine().workflow("brief", brief).open().await?;
    let (id, name) = (RunId(lab.clock.uuid()), Name::new("brief")?);
    let start = Start::new(WorkspaceId::DEFAULT, id, name, Payload::parse("{}")?, None);
    lab.store.start(start).await?;
    assert_eq!(engine.run(id).outcome().await?, Outcome::Completed(Payload::parse("7")?));
    Ok(())
}

async fn endless(ctx: Ctx, (): ()) -> Result<()> {
    let effects = ctx.state::<Effects>();
    for i in 0..100_000u32 {
        ctx.step("step").key(i).run(async |_| effects.apply("step", &i.to_string())).await?;
    }
    Ok(())
}

async fn pause_driven() -> Result<(), Failed> {
    let (lab, effects) = (Lab::new(), Effects::new());
    let engine = lab.engine().state(effects.clone()).workflow("endless", endless).open().await?;
    let run = engine.start(endless, ()).await?;
    lab.until(async || effects.calls("step") > 5).await;
    run.pause().await?;
    let done = effects.calls("step");
    let found = history(&run).await?;
    assert_eq!(run.status().await?, Status::Paused);
    assert!(done - found.count("stepCompleted") <= 1, "at most the step that was under way");
    run.resume().await?;
    lab.until(async || effects.calls("step") > done + 5).await;
    assert!(run.cancel("enough").await?.changed);
    assert!(effects.most_calls("step") <= 2);
    Ok(())
}

async fn two_keys(ctx: Ctx, (): ()) -> Result<(String, String)> {
    let effects = ctx.state::<Effects>();
    let keep = async |name: &str| {
        ctx.step(name)
            .run(async |attempt| {
                effects.apply(name, attempt.key())?;
                Ok(attempt.key().to_owned())
            })
            .await
    };
    Ok((keep("one").await?, keep("two").await?))
}

/// Forks after the first step: gives the keys of the run and of the fork, and how often each step was called.
async fn fork(lineage: Lineage) -> Result<([(String, String); 2], [usize; 2]), Failed> {
    let (lab, effects) = (Lab::new(), Effects::new());
    let engine = lab.engine().state(effects.clone()).workflow("two keys", two_keys).open().await?;
    let run = engine.start(two_keys, ()).await?;
    let keys = run.result().await?;
    let ledger = run.ledger().await?;
    let first = ledger.iter().find(|n| n.entry.kind() == "stepCompleted").expect("there is one").number;
    let fork = run.fork(Some(first), lineage).await?;
    assert_ne!(fork.id(), run.id());
    let forked = fork.result().await?;
    Ok(([keys, forked], [effects.calls("one"), effects.calls("two")]))
}

async fn fork_inherited() -> Result<(), Failed> {
    let ([run, fork], calls) = fork(Lineage::Inherited).await?;
    assert_eq!(run, fork, "the same effects");
    assert_eq!(calls, [1, 2], "what was recorded at the fork is not called again");
    Ok(())
}

async fn fork_fresh() -> Result<(), Failed> {
    let ([run, fork], calls) = fork(Lineage::Fresh).await?;
    assert_eq!(run.0, fork.0, "a result is a result");
    assert_ne!(run.1, fork.1, "but a new effect is another one");
    assert_eq!(calls, [1, 2]);
    Ok(())
}

/// A race is over, or fails with its winner; then a step fails the first time.
async fn racing(ctx: Ctx, fails_inside: bool) -> Result<u32> {
    let tries = ctx.state::<Effects>();
    let fails_once = async |attempt: semel::Attempt| match tries.calls(attempt.key()) {
        0 => tries.apply(attempt.key(), attempt.key()).and(Err(semel::fatal("as planned"))),
        _ => Ok(7),
    };
    let work = async {
        ctx.step("inside").run(async |_| Ok(())).await?;
        if fails_inside { ctx.step("fails").run(fails_once).await } else { Ok(0) }
    };
    let limit = ctx.sleep("limit", Duration::from_hours(1));
    match ctx.race("race", work, limit).await? {
        semel::sdk::Either::A(done) if fails_inside => done,
        semel::sdk::Either::A(done) => done.and(ctx.step("behind").run(fails_once).await),
        semel::sdk::Either::B(late) => late.map(|()| 0),
    }
}

async fn behind_a_race() -> Result<(), Failed> {
    let (lab, tries) = (Lab::new(), Effects::new());
    let engine = lab.engine().state(tries).workflow("racing", racing).open().await?;
    let run = engine.start(racing, false).await?;
    assert!(run.result().await.is_err());
    let fork = run.fork(None, Lineage::Fresh).await?;
    assert!(fork.result().await.is_err());
    assert!(run.retry().await?.changed);
    assert_eq!(run.result().await?, 7);
    Ok(())
}

async fn failed_in_a_race() -> Result<(), Failed> {
    let (lab, tries) = (Lab::new(), Effects::new());
    let engine = lab.engine().state(tries).workflow("racing", racing).open().await?;
    let run = engine.start(racing, true).await?;
    assert!(run.result().await.is_err());
    assert!(run.retry().await?.changed);
    assert_eq!(run.result().await?, 7);
    Ok(())
}

async fn equal_starts() -> Result<(), Failed> {
    let (lab, effects) = (Lab::new(), Effects::new());
    let engine = lab.engine().state(effects.clone()).workflow("two keys", two_keys).open().await?;
    let start = || {
        let engine = engine.clone();
        tokio::spawn(async move {
            let run = engine.start(two_keys, ()).key("same").await.expect("it works");
            (run.id(), run.created(), run.result().await.expect("it works"))
        })
    };
    let (mut created, mut runs, mut results) = (0, HashSet::new(), HashSet::new());
    for started in (0..100).map(|_| start()).collect::<Vec<_>>() {
        let (id, new, result) = started.await.expect("it works");
        created += u32::from(new);
        runs.insert(id);
        results.insert(result);
    }
    assert_eq!((created, runs.len(), results.len()), (1, 1, 1));
    assert_eq!((effects.calls("one"), effects.calls("two")), (1, 1));
    Ok(())
}

async fn inbox(ctx: Ctx, token: String) -> Result<Vec<String>> {
    let mut hook = ctx.hook::<String>(token);
    Ok(vec![hook.recv().await?, hook.recv().await?])
}

async fn start_with_delivery() -> Result<(), Failed> {
    let lab = Lab::new();
    let engine = lab.engine().workflow("inbox", inbox).open().await?;
    let start = |key: &str, word: &str| engine.start(inbox, "desk".to_owned()).key(key).deliver("desk", word);
    let run = start("k", "first").await?;
    assert_eq!(run.verdict(), Some(StartVerdict::Created));
    lab.until(async || history(&run).await.is_ok_and(|found| found.count("hookReceived") == 1)).await;
    let again = start("k", "second").await?;
    assert_eq!((again.verdict(), again.id()), (Some(StartVerdict::Attached), run.id()), "to the owner");
    assert_eq!(run.result().await?, ["first", "second"]);
    Ok(())
}

async fn holds(ctx: Ctx, (): ()) -> Result<()> {
    let hook = ctx.hook::<u32>("held");
    ctx.sleep("with it", Duration::from_mins(1)).await?;
    drop(hook);
    ctx.sleep("without it", Duration::from_mins(1)).await
}

async fn tokens() -> Result<(), Failed> {
    for forgetful in [false, true] {
        let lab = Lab::new();
        let builder = if forgetful { lab.forgetful() } else { lab.engine() };
        let engine = builder.workflow("holds", holds).open().await?;
        let run = engine.start(holds, ()).await?;
        let set = async |timers: usize| {
            let rests = run.status().await.is_ok_and(|status| status == Status::Waiting);
            rests && history(&run).await.is_ok_and(|found| found.count("timerSet") == timers)
        };
        lab.until(async || set(1).await).await;
        assert!(engine.hook("held").await?.is_some(), "a run that rests keeps what it has");
        lab.clock.advance(Duration::from_mins(1));
        lab.until(async || set(2).await).await;
        assert!(engine.hook("held").await?.is_none(), "the workflow has dropped it");
        lab.clock.advance(Duration::from_mins(1));
        run.result().await?;
    }
    Ok(())
}

/// What is done depends on something that fails in the first life of the run.
async fn wraps(ctx: Ctx, (): ()) -> Result<u32> {
    let effects = ctx.state::<Effects>();
    let step = |name: &'static str| {
        ctx.step(name).run(async |attempt| effects.apply(name, attempt.key()).map_err(fatal))
    };
    let (done, skipped) = if step("ask").await.is_ok() { ("wrap", "box") } else { ("box", "wrap") };
    step(done).await?;
    ctx.skip(skipped, "the other one is done").await?;
    step("ship").await?;
    ctx.sleep("rest", Duration::from_mins(1)).await?;
    step("tell").await
}

async fn second_thoughts() -> Result<(), Failed> {
    for forgetful in [false, true] {
        let (lab, effects) = (Lab::new(), Effects::new());
        effects.fail("ask", 1).fail("ship", 1);
        let builder = if forgetful { lab.forgetful() } else { lab.engine() };
        let engine = builder.state(effects.clone()).workflow("wraps", wraps).open().await?;
        let run = engine.start(wraps, ()).await?;
        run.result().await.expect_err("it cannot be shipped");
        assert_eq!((effects.calls("box"), effects.calls("wrap")), (1, 0));
        let fork = run.fork(None, Lineage::Fresh).await?;
        run.retry().await?;
        super::replay::ended(&lab, &run).await?;
        assert_eq!(run.result().await?, 1, "{}", history(&run).await?);
        assert_eq!((effects.calls("box"), effects.calls("wrap"), effects.calls("ship")), (1, 1, 2));
        super::replay::identical(&engine.replay(run.id()).await?);
        // A fork has what had failed, too, and skips the same again.
        super::replay::ended(&lab, &fork).await?;
        fork.result().await.expect_err("it cannot be shipped");
        assert_eq!(history(&fork).await?.count("stepSkipped"), 1, "{}", history(&fork).await?);
    }
    Ok(())
}
