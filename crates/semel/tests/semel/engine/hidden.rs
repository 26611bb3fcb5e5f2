//! Steps whose end is hidden: by a crash, or because it cannot be told.

use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use semel::rules::status::Status;
use semel::testing::{Effects, history};
use semel::{Ctx, Fail, FailExt, Result, Retry, fatal};
use tokio::sync::Notify;

use super::basics::Count;
use super::{Lab, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("a_reconciled_step_outlives_more_crashes_than_it_has_tries", more_crashes_than_tries),
        trial("a_step_whose_result_cannot_be_kept_is_not_done_again", unkept),
        trial("a_look_up_is_asked_also_after_a_fatal_failure", fatal_after_the_effect),
        trial("a_look_up_is_not_asked_if_the_code_says_that_nothing_took_place", retry_after),
    ]
}

#[derive(Clone, Default)]
struct ShipGate(Arc<Notify>);

async fn ship(ctx: Ctx, (): ()) -> Result<u32> {
    let (count, gate) = (ctx.state::<Count>(), ctx.state::<ShipGate>());
    ctx.step("ship")
        .reconcile(async |_| Ok(None))
        .run(async |attempt| {
            count.up();
            gate.0.notified().await;
            Ok(attempt.number())
        })
        .await
}

/// Three tries are allowed; a crash before the effect is none of them.
async fn more_crashes_than_tries() -> Result<(), Failed> {
    let (lab, count, gate) = (Lab::new(), Count::default(), ShipGate::default());
    let builder = || lab.engine().state(count.clone()).state(gate.clone()).workflow("ship", ship);
    let mut engine = builder().open().await?;
    let run = engine.start(ship, ()).await?.id();
    for crash in 1..=4 {
        lab.until(async || count.get() == crash).await;
        engine.crash().await;
        lab.clock.advance(Duration::from_hours(24 * 366));
        engine = builder().open().await?;
    }
    lab.until(async || count.get() == 5).await;
    gate.0.notify_one();
    assert_eq!(engine.run(run).result().await?, 5);
    Ok(())
}

/// A step whose result is too long, found also by its look-up if it has one.
async fn verbose(ctx: Ctx, with_look_up: bool) -> Result<usize> {
    let effects = ctx.state::<Effects>();
    let long = || "x".repeat(3 << 20);
    let body = async |attempt: semel::Attempt| effects.apply("print", attempt.key()).map(|_| long());
    let step = ctx.step("print");
    let text = match with_look_up {
        false => step.at_most_once().run(body).await?,
        true => step.reconcile(async |_| Ok(Some(long()))).run(body).await?,
    };
    Ok(text.len())
}

/// The effect took place, so the step must not count as failed: a retry would repeat the effect.
async fn unkept() -> Result<(), Failed> {
    for with_look_up in [false, true] {
        let (lab, effects) = (Lab::new(), Effects::new());
        let engine = lab.engine().state(effects.clone()).workflow("verbose", verbose).open().await?;
        let run = engine.start(verbose, with_look_up).await?;
        assert_eq!(run.reached(Status::Paused).await?, Status::Paused);
        let found = history(&run).await?;
        assert_eq!(found.in_doubt().len(), 1, "{found}");
        assert!(found.to_string().contains("its result cannot be kept"), "{found}");
        run.happened("print", &"short").await?;
        assert_eq!((run.result().await?, effects.calls("print")), (5, 1));
    }
    Ok(())
}

/// Fails with a fatal error after its effect, until the run is retried.
async fn hasty(ctx: Ctx, (): ()) -> Result<u32> {
    let effects = ctx.state::<Effects>();
    ctx.step("pay")
        .reconcile(async |attempt| Ok(effects.find(attempt.key())))
        .run(async |attempt| {
            effects.apply("pay", attempt.key())?;
            Err(fatal("the answer makes no sense"))
        })
        .await
}

async fn fatal_after_the_effect() -> Result<(), Failed> {
    let (lab, effects) = (Lab::new(), Effects::new());
    let engine = lab.engine().state(effects.clone()).workflow("hasty", hasty).open().await?;
    let run = engine.start(hasty, ()).await?;
    assert_eq!((run.result().await?, effects.calls("pay")), (1, 1), "the look-up knows of it");
    Ok(())
}

/// Is told to come back later, and does not ask meanwhile.
async fn patient(ctx: Ctx, (): ()) -> Result<u32> {
    let (effects, questions) = (ctx.state::<Effects>(), ctx.state::<Count>());
    ctx.step("pay")
        .retry(Retry::fixed(Duration::from_secs(1)))
        .reconcile(async |_| {
            questions.up();
            Ok(None)
        })
        .run(async |attempt| match attempt.number() {
            1 => Err(Fail::retryable("too many of you")).retry_after(Duration::from_mins(1)),
            _ => effects.apply("pay", attempt.key()),
        })
        .await
}

async fn retry_after() -> Result<(), Failed> {
    let (lab, effects, questions) = (Lab::new(), Effects::new(), Count::default());
    let builder = lab.engine().state(effects.clone()).state(questions.clone());
    let engine = builder.workflow("patient", patient).open().await?;
    let run = engine.start(patient, ()).await?;
    super::replay::waiting(&lab, &run).await;
    let due = run.header().await?.state.due.expect("it waits for a time");
    assert_eq!(due, semel::clock::Clock::now(&*lab.clock).after(Duration::from_mins(1)));
    lab.clock.advance(Duration::from_mins(1));
    assert_eq!((run.result().await?, effects.calls("pay"), questions.get()), (1, 1, 0));
    Ok(())
}
