//! Canonical workflows, each killed before and after every durable write it makes.

use std::time::Duration;

use libtest_mimic::Trial;
use semel::rules::entry::{Outcome, Resolution};
use semel::rules::json::Payload;
use semel::rules::status::Status;
use semel::sdk::Either;
use semel::testing::{Crasher, Effects, Moment, Scene};
use semel::{Ctx, Error, Fail, Result, Retry, fatal};

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |name: &str, test: fn()| {
        Trial::test(format!("engine::crash::{name}"), move || {
            test();
            Ok(())
        })
    };
    vec![
        trial("plain_steps", plain_steps),
        trial("the_moments_of_a_step", moments),
        trial("retries", retries),
        trial("at_most_once_is_never_called_twice", at_most_once),
        trial("reconcile_adopts_what_it_finds", reconcile),
        trial("reconcile_runs_again_what_is_not_there", reconcile_absent),
        trial("loops", loops),
        trial("two_scopes_at_once", scopes),
        trial("a_race_won_by_a_step", race_won_by_step),
        trial("a_race_won_by_a_timer", race_won_by_timer),
        trial("a_race_lost_by_an_effect_that_must_not_repeat", race_lost_by_letter),
        trial("sleep", naps),
        trial("a_value_stays_what_it_was", stable_values),
        trial("a_run_that_times_out", times_out),
        trial("a_restart_after_a_failure", restarts),
        trial("a_restart_from_the_beginning", begins_anew),
        trial("a_saga_that_is_cancelled", saga),
    ]
}

/// Calls the provider with the step's key.
async fn effect(ctx: &Ctx, name: &str) -> Result<u32> {
    let effects = ctx.state::<Effects>();
    ctx.step(name).run(async |attempt| effects.apply(name, attempt.key())).await
}

/// What the provider knows of an effect that happens once in the whole test.
pub(super) fn by_count(effects: &Effects, path: &str) -> Resolution {
    let name = path.rsplit('/').next().unwrap_or(path);
    match effects.applied(name) {
        0 => Resolution::DidNotHappen,
        _ => Resolution::Happened(Payload::of(&1u32).expect("it works")),
    }
}

/// Every effect of these names took place this often, each under one key.
#[track_caller]
pub(super) fn assert_effects(effects: &Effects, expected: &[(&str, u32)]) {
    let names: Vec<_> = expected.iter().map(|(name, _)| (*name).to_owned()).collect();
    let mut sorted = names.clone();
    sorted.sort();
    assert_eq!(effects.names(), sorted, "nothing else is called, and nothing is lost");
    for (name, times) in expected {
        assert_eq!(effects.applied(name), *times, "{name}: {effects:?}");
        assert_eq!(effects.keys(name).len(), *times as usize, "{name} has one key per effect: {effects:?}");
    }
}

async fn plain(ctx: Ctx, (): ()) -> Result<u32> {
    let charged = effect(&ctx, "charge").await?;
    ctx.skip("gift wrap", "not asked for").await?;
    let packed = effect(&ctx, "pack").await?;
    let sent = effect(&ctx, "send").await?;
    Ok(charged + packed + sent)
}

fn plainly() -> Crasher<Effects, u32> {
    Crasher::new(
        Effects::new,
        |effects, engine| engine.state(effects.clone()).workflow("plain", plain),
        async |scene: Scene<Effects>| scene.engine().start(plain, ()).key("k").await?.result().await,
    )
}

fn plain_steps() {
    let check = |effects: &Effects| assert_effects(effects, &[("charge", 1), ("pack", 1), ("send", 1)]);
    let plays = plainly().every_boundary(|ended| {
        check(&ended.world);
        let history = ended.history();
        history.assert_order(&["charge", "pack", "send"]);
        for step in ["charge", "pack", "send"] {
            history.assert_attempts(step, 1);
            history.assert_completed(step);
        }
        assert!(ended.world.calls("charge") <= 1 + ended.crashes.len());
    });
    plainly().every_fault(|ended| {
        check(&ended.world);
        assert_eq!(ended.world.calls("charge"), 1, "the engine knows that it has called");
    });
    // A start and three commits: the end rides on the last one.
    assert_eq!(plays, 1 + 2 * 4);
    plainly().every_two_boundaries(|ended| check(&ended.world));
}

fn moments() {
    let calls = |moment| {
        let ended = plainly().crash_at("pack", moment);
        assert_eq!((ended.value, ended.crashes.len()), (3, 1));
        (ended.world.calls("charge"), ended.world.calls("pack"), ended.world.keys("pack").len())
    };
    assert_eq!(calls(Moment::Entered), (1, 1, 1));
    assert_eq!(calls(Moment::Returned), (1, 2, 1));
}

async fn stubborn(ctx: Ctx, (): ()) -> Result<u32> {
    let effects = ctx.state::<Effects>();
    let retry = Retry::fixed(Duration::from_mins(1)).max_attempts(4);
    ctx.step("try").retry(retry).run(async |attempt| effects.apply("try", attempt.key())).await
}

fn retries() {
    let world = || {
        let effects = Effects::new();
        effects.fail("try", 2).lose_answers("try", 1);
        effects
    };
    let crasher = Crasher::new(
        world,
        |effects, engine| engine.state(effects.clone()).workflow("stubborn", stubborn),
        async |scene: Scene<Effects>| scene.engine().start(stubborn, ()).key("k").await?.result().await,
    );
    crasher.every_boundary(|ended| {
        assert_effects(&ended.world, &[("try", 1)]);
        assert!(ended.history().attempts("try") <= 4, "{}", ended.history());
        if ended.crashes.is_empty() {
            ended.history().assert_attempts("try", 4);
        }
    });
}

async fn letter(ctx: Ctx, (): ()) -> Result<u32> {
    let effects = ctx.state::<Effects>();
    effect(&ctx, "before").await?;
    let sent =
        ctx.step("letter").at_most_once().run(async |attempt| effects.apply("letter", attempt.key())).await?;
    effect(&ctx, "after").await?;
    Ok(sent)
}

fn at_most_once() {
    let crasher = Crasher::new(
        Effects::new,
        |effects, engine| engine.state(effects.clone()).workflow("letter", letter),
        async |scene: Scene<Effects>| {
            let run = scene.engine().start(letter, ()).key("k").await?;
            scene.settled(&run, |_, path| by_count(scene.world(), path)).await
        },
    );
    let check = |effects: &Effects| {
        assert_effects(effects, &[("before", 1), ("letter", 1), ("after", 1)]);
        assert_eq!(effects.calls("letter"), 1, "never twice");
    };
    crasher.every_boundary(|ended| check(&ended.world));
    crasher.every_two_boundaries(|ended| check(&ended.world));
    crasher.every_fault(|ended| check(&ended.world));
}

async fn asked(ctx: Ctx, attempts: u32) -> Result<u32> {
    let effects = ctx.state::<Effects>();
    let sent = ctx
        .step("letter")
        .retry(Retry::fixed(Duration::from_secs(1)).max_attempts(attempts))
        .reconcile(async |attempt| Ok(effects.find(attempt.key())))
        .run(async |attempt| effects.apply("letter", attempt.key()))
        .await?;
    effect(&ctx, "after").await?;
    Ok(sent)
}

fn asking(world: impl Fn() -> Effects + 'static, attempts: u32) -> Crasher<Effects, u32> {
    Crasher::new(
        world,
        |effects, engine| engine.state(effects.clone()).workflow("asked", asked),
        async move |scene: Scene<Effects>| {
            scene.engine().start(asked, attempts).key("k").await?.result().await
        },
    )
}

fn reconcile() {
    let world = || {
        let effects = Effects::new();
        effects.lose_answers("letter", 1);
        effects
    };
    let check = |effects: &Effects| {
        assert_effects(effects, &[("letter", 1), ("after", 1)]);
        assert_eq!(effects.calls("letter"), 1, "what was found is not sent again");
    };
    asking(world, 3).every_boundary(|ended| check(&ended.world));
    asking(world, 3).every_two_boundaries(|ended| check(&ended.world));
}

/// A crash is no failure of the step: with one attempt only it still runs again if it is not there.
fn reconcile_absent() {
    let check = |effects: &Effects| {
        assert_effects(effects, &[("letter", 1), ("after", 1)]);
        assert_eq!(effects.calls("letter"), 1);
    };
    asking(Effects::new, 1).every_boundary(|ended| check(&ended.world));
    asking(Effects::new, 1).every_two_boundaries(|ended| check(&ended.world));
}

async fn looping(ctx: Ctx, items: Vec<String>) -> Result<u32> {
    let effects = ctx.state::<Effects>();
    let mut sum = 0;
    for item in &items {
        sum += ctx.step("pack").key(item).run(async |attempt| effects.apply("pack", attempt.key())).await?;
    }
    for _ in &items {
        sum += ctx.step("count").indexed().run(async |attempt| effects.apply("count", attempt.key())).await?;
    }
    Ok(sum)
}

fn loops() {
    let crasher = Crasher::new(
        Effects::new,
        |effects, engine| engine.state(effects.clone()).workflow("looping", looping),
        async |scene: Scene<Effects>| {
            let items: Vec<_> = ["a", "b", "c"].map(str::to_owned).into();
            scene.engine().start(looping, items).key("k").await?.result().await
        },
    );
    crasher.every_boundary(|ended| {
        assert_effects(&ended.world, &[("pack", 3), ("count", 3)]);
        ended.history().assert_order(&["pack[a]", "pack[b]", "pack[c]", "count", "count#2", "count#3"]);
    });
}

async fn branch(ctx: Ctx, name: &str) -> Result<u32> {
    let one = effect(&ctx, &format!("{name} one")).await?;
    tokio::task::yield_now().await;
    let two = effect(&ctx, &format!("{name} two")).await?;
    Ok(one + two)
}

async fn both(ctx: Ctx, (): ()) -> Result<u32> {
    let (left, right) = tokio::join!(branch(ctx.scope("left"), "left"), branch(ctx.scope("right"), "right"));
    let last = effect(&ctx, "last").await?;
    Ok(left? + right? + last)
}

fn scopes() {
    let crasher = Crasher::new(
        Effects::new,
        |effects, engine| engine.state(effects.clone()).workflow("both", both),
        async |scene: Scene<Effects>| scene.engine().start(both, ()).key("k").await?.result().await,
    );
    crasher.every_boundary(|ended| {
        let expected = [("left one", 1), ("left two", 1), ("right one", 1), ("right two", 1), ("last", 1)];
        assert_effects(&ended.world, &expected);
        ended.history().assert_order(&["left/left one", "left/left two", "last"]);
    });
}

async fn quick(ctx: Ctx, (): ()) -> Result<String> {
    let limit = ctx.sleep("limit", Duration::from_hours(1));
    let first = ctx.race("first", branch(ctx.scope("work"), "work"), limit).await?;
    effect(&ctx, "after").await?;
    Ok(match first {
        Either::A(sum) => format!("step {}", sum?),
        Either::B(_) => "timer".to_owned(),
    })
}

fn race_won_by_step() {
    let crasher = Crasher::new(
        Effects::new,
        |effects, engine| engine.state(effects.clone()).workflow("quick", quick),
        async |scene: Scene<Effects>| scene.engine().start(quick, ()).key("k").await?.result().await,
    );
    crasher.every_boundary(|ended| {
        assert_eq!(ended.value, "step 2");
        assert_effects(&ended.world, &[("work one", 1), ("work two", 1), ("after", 1)]);
    });
}

/// A step that begins and never ends, against a timer that is set before it.
async fn slow(ctx: Ctx, (): ()) -> Result<String> {
    let effects = ctx.state::<Effects>();
    let endless = async |attempt: semel::Attempt| {
        effects.apply("endless", attempt.key())?;
        std::future::pending::<Result<u32>>().await
    };
    let limit = ctx.sleep("limit", Duration::from_mins(1));
    let first = ctx.race("first", limit, ctx.step("endless").run(endless)).await?;
    effect(&ctx, "after").await?;
    Ok(match first {
        Either::A(fired) => format!("timer {:?}", fired.is_ok()),
        Either::B(_) => "step".to_owned(),
    })
}

fn race_won_by_timer() {
    let crasher = Crasher::new(
        Effects::new,
        |effects, engine| engine.state(effects.clone()).workflow("slow", slow),
        async |scene: Scene<Effects>| scene.engine().start(slow, ()).key("k").await?.result().await,
    );
    crasher.every_boundary(|ended| {
        assert_eq!(ended.value, "timer true");
        assert_effects(&ended.world, &[("endless", 1), ("after", 1)]);
    });
}

/// The loser has begun, its intent is durable, and the race is decided: the run goes on, and completes only when
/// the doubt is resolved.
async fn letter_too_late(ctx: Ctx, (): ()) -> Result<String> {
    let effects = ctx.state::<Effects>();
    let endless = async |attempt: semel::Attempt| {
        effects.apply("letter", attempt.key())?;
        std::future::pending::<Result<u32>>().await
    };
    let limit = ctx.sleep("limit", Duration::from_mins(1));
    let first = ctx.race("first", limit, ctx.step("letter").at_most_once().run(endless)).await?;
    effect(&ctx, "one").await?;
    effect(&ctx, "two").await?;
    Ok(if matches!(first, Either::A(_)) { "timer" } else { "step" }.to_owned())
}

fn race_lost_by_letter() {
    let crasher = Crasher::new(
        Effects::new,
        |effects, engine| engine.state(effects.clone()).workflow("late", letter_too_late),
        async |scene: Scene<Effects>| {
            let run = scene.engine().start(letter_too_late, ()).key("k").await?;
            scene.settle(&run, |_, path| by_count(scene.world(), path)).await
        },
    );
    let undisturbed = crasher.undisturbed();
    for point in Crasher::<Effects, Outcome>::points(&undisturbed.lives[0]) {
        let ended = crasher.play(&[point]);
        let effects = &ended.world;
        assert!(effects.calls("letter") <= 1, "{:?}", ended.crashes);
        assert!(matches!(ended.value, Outcome::Completed(_)), "{:?}", ended.value);
        let history = ended.history();
        assert!(history.count("stepInDoubt") >= 1 && history.in_doubt().is_empty(), "{history}");
        assert_eq!((effects.applied("one"), effects.applied("two")), (1, 1));
    }
}

async fn nap(ctx: Ctx, (): ()) -> Result<u32> {
    let before = effect(&ctx, "before").await?;
    ctx.sleep("long", Duration::from_hours(1)).await?;
    ctx.sleep("short", Duration::from_millis(5)).await?;
    let after = effect(&ctx, "after").await?;
    Ok(before + after)
}

fn naps() {
    let crasher = Crasher::new(
        Effects::new,
        |effects, engine| engine.state(effects.clone()).workflow("nap", nap),
        async |scene: Scene<Effects>| scene.engine().start(nap, ()).key("k").await?.result().await,
    );
    let check = |ended: &semel::testing::Ended<Effects, u32>| {
        assert_effects(&ended.world, &[("before", 1), ("after", 1)]);
        assert_eq!(ended.history().count("timerSet"), 2, "set once each");
        assert_eq!(ended.history().count("timerFired"), 2, "fired once each");
    };
    crasher.every_boundary(check);
    crasher.every_two_boundaries(check);
}

/// Each value goes through a step, and is compared with what a later execution is given.
async fn values(ctx: Ctx, (): ()) -> Result<bool> {
    let (now, random, uuid) = (ctx.now("now").await?, ctx.random("random").await?, ctx.uuid("id").await?);
    let noted = ctx.step("note").run(async |_| Ok((now, random.to_bits(), uuid.to_string()))).await?;
    ctx.sleep("later", Duration::from_mins(1)).await?;
    let later = ctx.now("later").await?;
    let second = ctx.step("second").run(async |_| Ok(later)).await?;
    ctx.sleep("even later", Duration::from_mins(1)).await?;
    Ok(noted == (now, random.to_bits(), uuid.to_string()) && second == later && later > now)
}

fn stable_values() {
    let crasher = Crasher::new(
        || (),
        |(), engine| engine.workflow("values", values),
        async |scene: Scene<()>| scene.engine().start(values, ()).key("k").await?.result().await,
    );
    crasher.every_boundary(|ended| assert!(ended.value, "{}", ended.history()));
}

async fn too_long(ctx: Ctx, (): ()) -> Result<u32> {
    effect(&ctx, "before").await?;
    ctx.sleep("too long", Duration::from_hours(1)).await?;
    effect(&ctx, "never").await
}

fn times_out() {
    let crasher = Crasher::new(
        Effects::new,
        |effects, engine| engine.state(effects.clone()).workflow("too long", too_long),
        async |scene: Scene<Effects>| {
            let start = scene.engine().start(too_long, ()).key("k").timeout(Duration::from_mins(1));
            start.await?.outcome().await
        },
    );
    crasher.every_boundary(|ended| {
        assert_eq!(ended.value, Outcome::TimedOut);
        assert_effects(&ended.world, &[("before", 1)]);
    });
}

async fn broken(ctx: Ctx, (): ()) -> Result<u32> {
    let effects = ctx.state::<Effects>();
    let first = effect(&ctx, "first").await?;
    let second = ctx
        .step("second")
        .run(async |attempt| match effects.find("repaired") {
            None => Err(fatal("it is broken")),
            Some(_) => effects.apply("second", attempt.key()),
        })
        .await?;
    Ok(first + second)
}

async fn repair(scene: &Scene<Effects>, anew: bool) -> Result<u32, Error> {
    let run = scene.engine().start(broken, ()).key("k").await?;
    if let Outcome::Failed(_) = run.outcome().await? {
        scene.world().apply("repair", "repaired").map_err(|fail| Error::Validation(fail.to_string()))?;
        let again = scene.engine().run(run.id()).call_id("again");
        if anew {
            again.restart().await?
        } else {
            again.retry().await?
        };
    }
    // Not by the first handle: that one knows how the run had ended before.
    scene.engine().run(run.id()).typed::<u32>().result().await
}

fn restarts() {
    let crasher = Crasher::new(
        Effects::new,
        |effects, engine| engine.state(effects.clone()).workflow("broken", broken),
        async |scene: Scene<Effects>| repair(&scene, false).await,
    );
    crasher.every_boundary(|ended| {
        assert_effects(&ended.world, &[("first", 1), ("repair", 1), ("second", 1)]);
        assert_eq!(ended.history().count("restarted"), 1);
    });
}

fn begins_anew() {
    let crasher = Crasher::new(
        Effects::new,
        |effects, engine| engine.state(effects.clone()).workflow("broken", broken),
        async |scene: Scene<Effects>| repair(&scene, true).await,
    );
    crasher.every_boundary(|ended| {
        assert_effects(&ended.world, &[("first", 1), ("repair", 1), ("second", 1)]);
        assert!(ended.world.calls("first") >= 2, "it is called again, under the same key");
    });
}

async fn book(ctx: Ctx, (): ()) -> Result<()> {
    effect(&ctx, "book flight").await?;
    effect(&ctx, "book hotel").await?;
    if let Err(fail) = ctx.sleep("before it begins", Duration::from_hours(24)).await {
        return Err(undo(&ctx.cleanup(), fail).await?);
    }
    effect(&ctx, "travel").await.map(drop)
}

async fn undo(ctx: &Ctx, fail: Fail) -> Result<Fail> {
    effect(ctx, "return hotel").await?;
    ctx.sleep("breathe", Duration::from_mins(1)).await?;
    effect(ctx, "return flight").await?;
    Ok(fail)
}

async fn call_off(scene: Scene<Effects>) -> Result<Outcome, Error> {
    let run = scene.engine().start(book, ()).key("k").await?;
    let booked = async || scene.history(run.id()).await.is_ok_and(|history| history.count("timerSet") > 0);
    scene.until(booked).await;
    scene.engine().run(run.id()).call_id("call off").request_cancel("rain").await?;
    let outcome = run.outcome().await?;
    assert_eq!(scene.status(run.id()).await?, Status::Cancelled);
    Ok(outcome)
}

fn saga() {
    let crasher = Crasher::new(
        Effects::new,
        |effects, engine| engine.state(effects.clone()).workflow("book", book),
        call_off,
    );
    let check = |effects: &Effects| {
        let expected = [("book flight", 1), ("book hotel", 1), ("return hotel", 1), ("return flight", 1)];
        assert_effects(effects, &expected);
    };
    crasher.every_boundary(|ended| {
        check(&ended.world);
        assert_eq!(ended.value, Outcome::Cancelled("rain".to_owned()));
    });
}
