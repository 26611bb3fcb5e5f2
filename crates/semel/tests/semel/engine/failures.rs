//! What goes wrong in user code, and stays there.

use std::future::pending;
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use semel::rules::entry::{FailureKind, Outcome, PauseReason};
use semel::rules::ledger::LedgerBounds;
use semel::rules::status::Status;
use semel::testing::{Crasher, Effects, Moment, Point, Scene, history};
use semel::{Ctx, FailExt, Limits, Result, Retry, fatal};

use super::basics::Count;
use super::{Lab, limits, trial};

pub(crate) fn trials() -> Vec<Trial> {
    let sync = |name: &str, test: fn()| {
        Trial::test(format!("engine::{name}"), move || {
            test();
            Ok(())
        })
    };
    vec![
        trial("a_panic_in_a_step_is_a_failed_try", panic_in_step),
        trial("a_panic_in_a_workflow_fails_its_run_only", panic_in_workflow),
        trial("a_fatal_failure_is_not_tried_again", fatal_failure),
        trial("an_uncertain_failure_is_a_doubt", uncertain_failure),
        trial("giving_up_a_doubt_fails_the_step", give_up),
        trial("a_step_that_was_given_up_is_asked_about_before_it_is_tried_again", give_up_and_retry),
        trial("an_input_of_another_type_fails_the_run", wrong_input),
        trial("a_run_whose_ledger_is_full_begins_nothing_new_and_cleans_up", full_ledger),
        sync("a_step_that_takes_too_long_is_tried_again", timeout),
        sync("a_run_that_kills_its_engines_is_parked", poisoned),
    ]
}

async fn jumpy(ctx: Ctx, (): ()) -> Result<u32> {
    let count = ctx.state::<Count>();
    let retry = Retry::fixed(Duration::ZERO);
    ctx.step("jump")
        .retry(retry)
        .run(async |attempt| {
            assert!(count.up() > 2, "not yet");
            Ok(attempt.number())
        })
        .await
}

async fn endless(ctx: Ctx, children: bool) -> Result<u32> {
    let count = ctx.state::<Count>();
    let work = async {
        for n in 0.. {
            match children {
                true => drop(ctx.child(jumpy, ()).key(n).await?),
                false => ctx.step("more").key(n).run(async |_| Ok(count.up())).await.map(drop)?,
            }
        }
        Ok(())
    };
    let full: semel::Fail = work.await.expect_err("there is a limit");
    ctx.cleanup().step("undo").run(async |_| Ok(count.up())).await?;
    Err(full)
}

async fn full_ledger() -> Result<(), Failed> {
    for children in [false, true] {
        let (lab, count) = (Lab::new(), Count::default());
        let ledger = LedgerBounds { entries: 20, ..LedgerBounds::default() };
        let engine = lab.engine().limits(Limits { ledger, ..limits() }).state(count.clone());
        let engine = engine.workflow("endless", endless).workflow("jumpy", jumpy).open().await?;
        let run = engine.start(endless, children).await?;
        let Outcome::Failed(failure) = run.outcome().await? else { panic!("it has failed") };
        assert_eq!(failure.code.as_deref(), Some("LEDGER_FULL"), "{failure:?}");
        assert!(failure.message.contains("at most 20 entries"), "{failure:?}");
        let entries = run.ledger().await?;
        assert!((20..30).contains(&entries.len()), "{}", entries.len());
        assert!(history(&run).await?.to_string().contains("undo"), "clean-up takes place");
    }
    Ok(())
}

async fn panic_in_step() -> Result<(), Failed> {
    let (lab, count) = (Lab::new(), Count::default());
    let engine = lab.engine().state(count.clone()).workflow("jumpy", jumpy).open().await?;
    let run = engine.start(jumpy, ()).await?;
    assert_eq!((run.result().await?, count.get()), (3, 3));
    let failed: Vec<_> = history(&run)
        .await?
        .entries()
        .filter_map(|entry| match entry {
            semel::rules::entry::Entry::StepFailed { error, .. } => Some((error.kind, error.message.clone())),
            _ => None,
        })
        .collect();
    assert_eq!(failed, vec![(FailureKind::Panic, "it panicked: not yet".to_owned()); 2]);
    Ok(())
}

async fn broken(_: Ctx, broken: bool) -> Result<u32> {
    assert!(!broken, "it is broken");
    Ok(1)
}

async fn panic_in_workflow() -> Result<(), Failed> {
    let lab = Lab::new();
    let engine = lab.engine().workflow("broken", broken).open().await?;
    let Outcome::Failed(failure) = engine.start(broken, true).await?.outcome().await? else { panic!() };
    assert_eq!(failure.kind, FailureKind::Panic);
    assert_eq!(failure.message, "the workflow panicked: it is broken");
    assert_eq!(engine.start(broken, false).await?.result().await?, 1, "others go on");
    Ok(())
}

async fn hopeless(ctx: Ctx, uncertain: bool) -> Result<u32> {
    let count = ctx.state::<Count>();
    ctx.step("try")
        .run(async |_| {
            count.up();
            let failed = Err(std::io::Error::other("broken pipe"));
            if uncertain { failed.uncertain() } else { failed.fatal() }
        })
        .await
}

async fn fatal_failure() -> Result<(), Failed> {
    let (lab, count) = (Lab::new(), Count::default());
    let engine = lab.engine().state(count.clone()).workflow("hopeless", hopeless).open().await?;
    let failed = engine.start(hopeless, false).await?.result().await.expect_err("it does not end well");
    assert!(failed.to_string().ends_with("has failed: try: broken pipe"), "{failed}");
    assert_eq!(count.get(), 1);
    Ok(())
}

async fn uncertain_failure() -> Result<(), Failed> {
    let (lab, count) = (Lab::new(), Count::default());
    let engine = lab.engine().state(count.clone()).workflow("hopeless", hopeless).open().await?;
    let run = engine.start(hopeless, true).await?;
    lab.until(async || run.status().await.is_ok_and(|status| status == Status::Paused)).await;
    let found = history(&run).await?;
    assert_eq!(found.pause(), Some(&PauseReason::InDoubt));
    assert_eq!(found.in_doubt().iter().map(ToString::to_string).collect::<Vec<_>>(), ["try"]);
    run.happened("try", &7u32).await?;
    assert_eq!((run.result().await?, count.get()), (7, 1));
    Ok(())
}

async fn give_up() -> Result<(), Failed> {
    let (lab, count) = (Lab::new(), Count::default());
    let engine = lab.engine().state(count.clone()).workflow("hopeless", hopeless).open().await?;
    let run = engine.start(hopeless, true).await?;
    lab.until(async || run.status().await.is_ok_and(|status| status == Status::Paused)).await;
    run.give_up("try", "outcome unknown").await?;
    let failed = run.result().await.expect_err("it does not end well").to_string();
    assert!(failed.ends_with("try: outcome unknown"), "{failed}");
    assert_eq!(count.get(), 1);
    Ok(())
}

/// A step whose answers are lost; only a look-up, from its second answer on, says whether the effect took place.
async fn unanswered(ctx: Ctx, with_look_up: bool) -> Result<u32> {
    let (tries, questions) = (ctx.state::<Count>(), ctx.state::<Questions>());
    let step = ctx.step("try");
    let body = async |_| {
        tries.up();
        Err(semel::Fail::from(std::io::Error::other("broken pipe")))
    };
    if !with_look_up {
        return step.at_most_once().run(body).await;
    }
    let look_up = async |_| match questions.0.up() {
        1 => Err(semel::Fail::from(std::io::Error::other("out of order"))),
        _ => Ok(Some(7)),
    };
    step.reconcile(look_up).run(body).await
}

#[derive(Clone, Default)]
struct Questions(Count);

/// To give up is not to say that it did not happen.
async fn give_up_and_retry() -> Result<(), Failed> {
    for with_look_up in [false, true] {
        let (lab, tries) = (Lab::new(), Count::default());
        let builder = lab.engine().state(tries.clone()).state(Questions::default());
        let engine = builder.workflow("unanswered", unanswered).open().await?;
        let run = engine.start(unanswered, with_look_up).await?;
        let paused = async || run.status().await.is_ok_and(|status| status == Status::Paused);
        lab.until(paused).await;
        run.give_up("try", "outcome unknown").await?;
        run.result().await.expect_err("it does not end well");
        run.retry().await?;
        if with_look_up {
            assert_eq!((run.result().await?, tries.get()), (7, 1), "it is asked about again");
            continue;
        }
        lab.until(paused).await;
        assert_eq!((history(&run).await?.in_doubt().len(), tries.get()), (1, 1), "it is in doubt again");
        run.did_not_happen("try").await?;
        lab.until(async || tries.get() == 2).await;
    }
    Ok(())
}

async fn wrong_input() -> Result<(), Failed> {
    const NAMED: semel::WorkflowRef<&str, u32> = semel::WorkflowRef::new("broken");
    let lab = Lab::new();
    let engine = lab.engine().workflow("broken", broken).open().await?;
    let failed =
        engine.start(NAMED, "no bool").await?.result().await.expect_err("it does not end well").to_string();
    assert!(failed.contains("the input does not fit the workflow"), "{failed}");
    Ok(())
}

async fn slow(ctx: Ctx, (): ()) -> Result<u32> {
    let effects = ctx.state::<Effects>();
    ctx.step("slow")
        .timeout(Duration::from_secs(10))
        .run(async |attempt| {
            effects.apply("slow", attempt.key())?;
            if attempt.number() < 3 {
                pending::<()>().await;
            }
            Ok(attempt.number())
        })
        .await
}

fn timeout() {
    let crasher = Crasher::new(
        Effects::new,
        |effects, engine| engine.state(effects.clone()).workflow("slow", slow),
        async |scene: Scene<Effects>| scene.engine().start(slow, ()).key("k").await?.result().await,
    );
    crasher.every_boundary(|ended| {
        assert_eq!((ended.value, ended.world.keys("slow").len()), (3, 1));
        ended.history().assert_attempts("slow", 3);
    });
}

async fn deadly(ctx: Ctx, (): ()) -> Result<()> {
    ctx.step("deadly").run(async |_| Err(fatal("the engine is dead before this"))).await
}

async fn harmless(ctx: Ctx, (): ()) -> Result<u32> {
    ctx.sleep("nap", Duration::from_secs(1)).await?;
    ctx.step("work").run(async |_| Ok(1)).await
}

fn poisoned() {
    let crasher = Crasher::new(
        || (),
        |(), engine| engine.workflow("deadly", deadly).workflow("harmless", harmless),
        async |scene: Scene<()>| {
            let deadly = scene.engine().start(deadly, ()).key("deadly").await?;
            scene.until_status(deadly.id(), Status::Paused).await;
            let harmless = scene.engine().start(harmless, ()).key("harmless").await?.result().await?;
            Ok((scene.status(deadly.id()).await?, harmless))
        },
    );
    let ended = crasher.play(&vec![Point::Body("deadly".to_owned(), Moment::Entered); 5]);
    assert_eq!((ended.value, ended.crashes.len()), ((Status::Paused, 1), 5));
    assert_eq!(ended.history().pause(), Some(&PauseReason::Poisoned), "{}", ended.history());
    assert_eq!(ended.history().count("claimed"), 5);
}
