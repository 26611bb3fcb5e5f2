//! Workflows that have to do with others (deliveries, children, shared results), killed at every durable write.

use std::time::Duration;

use libtest_mimic::Trial;
use semel::rules::entry::Outcome;
use semel::rules::status::Status;
use semel::testing::{Crasher, Effects, Scene};
use semel::{Ctx, Error, Fail, OnConflict, Once, Result, fatal};

use super::crash::assert_effects;

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |name: &str, test: fn()| {
        Trial::test(format!("engine::crash::{name}"), move || {
            test();
            Ok(())
        })
    };
    vec![
        trial("deliveries", deliveries),
        trial("deliveries_in_a_loop", deliveries_in_a_loop),
        trial("a_delivery_that_comes_with_the_start", handover),
        trial("two_runs_want_one_token", rivals),
        trial("children", children),
        trial("a_child_that_fails", failing_child),
        trial("a_cancelled_parent_tells_its_child", cancelled_parent),
        trial("once_in_every_scope", once),
        trial("once_is_made_by_one_of_two", shared_once),
    ]
}

async fn effect(ctx: &Ctx, name: &str) -> Result<u32> {
    let effects = ctx.state::<Effects>();
    ctx.step(name).run(async |attempt| effects.apply(name, attempt.key())).await
}

async fn approval(ctx: Ctx, (): ()) -> Result<String> {
    let mut hook = ctx.hook::<String>("order:7");
    effect(&ctx, "ask").await?;
    let first = hook.recv().await?;
    effect(&ctx, "thank").await?;
    let second = hook.recv_for(Duration::from_mins(1)).await?;
    let third = hook.recv_for(Duration::from_mins(1)).await?;
    drop(hook);
    effect(&ctx, "close").await?;
    Ok(format!("{first} {second:?} {third:?}"))
}

fn deliveries() {
    let crasher = Crasher::new(
        Effects::new,
        |effects, engine| engine.state(effects.clone()).workflow("approval", approval),
        async |scene: Scene<Effects>| {
            let run = scene.engine().start(approval, ()).key("k").await?;
            scene.deliver("order:7", "yes", "d1").await?;
            scene.deliver("order:7", "really", "d2").await?;
            run.result().await
        },
    );
    let check = |ended: &semel::testing::Ended<Effects, String>| {
        assert_eq!(ended.value, r#"yes Some("really") None"#);
        assert_effects(&ended.world, &[("ask", 1), ("thank", 1), ("close", 1)]);
        assert_eq!(ended.history().count("hookReceived"), 2, "each is consumed once");
    };
    crasher.every_boundary(check);
    crasher.every_fault(check);
    crasher.every_two_boundaries(check);
}

async fn sums(ctx: Ctx, (): ()) -> Result<u32> {
    let effects = ctx.state::<Effects>();
    let (mut hook, mut sum) = (ctx.hook::<u32>("numbers"), 0);
    while let Some(number) = hook.next().await? {
        if number == 0 {
            break;
        }
        let noted =
            ctx.step("note").indexed().run(async |attempt| effects.apply("note", attempt.key())).await?;
        sum += number * noted;
    }
    Ok(sum)
}

fn deliveries_in_a_loop() {
    let crasher = Crasher::new(
        Effects::new,
        |effects, engine| engine.state(effects.clone()).workflow("sums", sums),
        async |scene: Scene<Effects>| {
            let run = scene.engine().start(sums, ()).key("k").await?;
            for (number, id) in [(5u32, "a"), (7, "b"), (11, "c"), (0, "end")] {
                scene.deliver("numbers", number, id).await?;
            }
            run.result().await
        },
    );
    crasher.every_boundary(|ended| {
        assert_eq!(ended.value, 5 + 7 * 2 + 11 * 3, "all of them, in order");
        assert_effects(&ended.world, &[("note", 3)]);
    });
}

/// The payload is there before the hook is opened.
fn handover() {
    let crasher = Crasher::new(
        Effects::new,
        |effects, engine| engine.state(effects.clone()).workflow("approval", approval),
        async |scene: Scene<Effects>| {
            let start = scene.engine().start(approval, ()).key("k").deliver("order:7", "early");
            start.delivery_id("d1").await?.result().await
        },
    );
    crasher.every_boundary(|ended| {
        assert_eq!(ended.value, "early None None");
        assert_effects(&ended.world, &[("ask", 1), ("thank", 1), ("close", 1)]);
    });
}

async fn owner(ctx: Ctx, name: String) -> Result<String> {
    let mut hook = ctx.hook::<String>("desk");
    if hook.conflict().await?.is_some() {
        effect(&ctx, "give way").await?;
        return Ok(format!("{name} gives way"));
    }
    effect(&ctx, "own").await?;
    let word = hook.recv().await?;
    Ok(format!("{name} hears {word}"))
}

fn rivals() {
    let crasher = Crasher::new(
        Effects::new,
        |effects, engine| engine.state(effects.clone()).workflow("owner", owner),
        async |scene: Scene<Effects>| {
            let first = scene.engine().start(owner, "one".to_owned()).key("one").await?;
            let opened =
                async || scene.history(first.id()).await.is_ok_and(|history| history.count("hookOpened") > 0);
            scene.until(opened).await;
            let second = scene.engine().start(owner, "two".to_owned()).key("two").await?;
            let second = second.result().await?;
            scene.deliver("desk", "hello", "d1").await?;
            Ok((first.result().await?, second))
        },
    );
    crasher.every_boundary(|ended| {
        assert_eq!(ended.value, ("one hears hello".to_owned(), "two gives way".to_owned()));
        assert_effects(&ended.world, &[("own", 1), ("give way", 1)]);
    });
}

async fn part(ctx: Ctx, n: u32) -> Result<u32> {
    effect(&ctx, "part").await?;
    ctx.sleep("work", Duration::from_secs(u64::from(n))).await?;
    effect(&ctx, "done").await?;
    Ok(n * 10)
}

async fn whole(ctx: Ctx, (): ()) -> Result<u32> {
    let one = ctx.child(part, 1).key("one").await?;
    let two = ctx.child(part, 2).key("two").await?;
    effect(&ctx, "meanwhile").await?;
    let (one, two) = tokio::join!(one.result(), two.result());
    let three = ctx.child(part, 3).indexed().await?.result().await?;
    Ok(one? + two? + three)
}

fn children() {
    let crasher = Crasher::new(
        Effects::new,
        |effects, engine| engine.state(effects.clone()).workflow("whole", whole).workflow("part", part),
        async |scene: Scene<Effects>| scene.engine().start(whole, ()).key("k").await?.result().await,
    );
    crasher.every_boundary(|ended| {
        assert_eq!((ended.value, ended.runs.len()), (60, 4), "one run per child");
        assert_effects(&ended.world, &[("meanwhile", 1), ("part", 3), ("done", 3)]);
        assert_eq!(ended.history().count("childFinished"), 3);
    });
    crasher.every_fault(|ended| assert_eq!((ended.value, ended.runs.len()), (60, 4)));
}

async fn unlucky(ctx: Ctx, (): ()) -> Result<u32> {
    effect(&ctx, "try").await?;
    Err(fatal("no luck"))
}

async fn patient(ctx: Ctx, (): ()) -> Result<String> {
    let child = ctx.child(unlucky, ()).await?;
    let said = match child.result().await {
        Ok(_) => "luck".to_owned(),
        Err(fail) => fail.to_string(),
    };
    effect(&ctx, "go on").await?;
    Ok(said)
}

fn failing_child() {
    let crasher = Crasher::new(
        Effects::new,
        |effects, engine| {
            engine.state(effects.clone()).workflow("patient", patient).workflow("unlucky", unlucky)
        },
        async |scene: Scene<Effects>| scene.engine().start(patient, ()).key("k").await?.result().await,
    );
    let check = |ended: &semel::testing::Ended<Effects, String>| {
        assert_eq!(ended.value, "unlucky: no luck");
        assert_effects(&ended.world, &[("try", 1), ("go on", 1)]);
        assert_eq!(ended.runs.len(), 2);
    };
    crasher.every_boundary(check);
    crasher.every_two_boundaries(check);
}

async fn tidy_child(ctx: Ctx, (): ()) -> Result<()> {
    let work = async {
        effect(&ctx, "open").await?;
        ctx.sleep("for ever", Duration::from_hours(1000)).await
    };
    // Also if it was opening: a crash may hide that it has, and the step is then not begun again.
    if let Err(fail) = work.await {
        effect(&ctx.cleanup(), "tidy up").await?;
        return Err(fail);
    }
    Ok(())
}

async fn short_lived(ctx: Ctx, (): ()) -> Result<()> {
    let child = ctx.child(tidy_child, ()).await?;
    child.result().await
}

async fn cancel_parent(scene: Scene<Effects>) -> Result<(Outcome, Status), Error> {
    let run = scene.engine().start(short_lived, ()).key("k").await?;
    let opened = async || scene.world().applied("open") > 0;
    scene.until(opened).await;
    scene.engine().run(run.id()).call_id("c").cancel("enough").await?;
    let outcome = run.outcome().await?;
    let open = async || scene.runs().await.expect("it works").iter().any(|run| !run.status().is_terminal());
    scene.until(async || !open().await).await;
    let child = scene.runs().await.expect("it works").pop().expect("there is a child");
    Ok((outcome, child.status()))
}

fn cancelled_parent() {
    let crasher = Crasher::new(
        Effects::new,
        |effects, engine| {
            engine.state(effects.clone()).workflow("short", short_lived).workflow("tidy", tidy_child)
        },
        cancel_parent,
    );
    crasher.every_boundary(|ended| {
        assert_eq!(ended.value, (Outcome::Cancelled("enough".to_owned()), Status::Cancelled));
        assert_effects(&ended.world, &[("open", 1), ("tidy up", 1)]);
    });
}

async fn shares(ctx: Ctx, (): ()) -> Result<(u32, u32, u32)> {
    let effects = ctx.state::<Effects>();
    let (run, key) = (ctx.run_id().to_string(), ctx.key());
    let make = async |name: &str, place: &str| effects.apply(name, &format!("{name} {place}"));
    let mine = ctx.run_once("mine", async || make("mine", &run).await).await?;
    let keyed = ctx.run_once("keyed", async || make("keyed", &key).await).scope(Once::Key).await?;
    let ours = ctx.run_once("ours", async || make("ours", "").await).scope(Once::Workspace).await?;
    let again = ctx
        .run_once("ours", async || Err::<u32, Fail>(Fail::retryable("is not called")))
        .scope(Once::Workspace)
        .await?;
    assert_eq!(ours, again);
    effect(&ctx, "after").await?;
    Ok((mine, keyed, ours))
}

/// Two runs at once, and one that has the key of the first after it.
fn once() {
    let crasher = Crasher::new(
        Effects::new,
        |effects, engine| engine.state(effects.clone()).workflow("shares", shares),
        async |scene: Scene<Effects>| {
            let start = |key: &str| scene.engine().start(shares, ()).key(key);
            let (one, two) = (start("one").await, start("two").await);
            let (one, two) = (one?, two?);
            let (one, two) = tokio::join!(one.result(), two.result());
            let later = start("one").on_conflict(OnConflict::UNIQUE_WHILE_OPEN).await?.result().await?;
            let (one, two) = (one?, two?);
            let same_key = one.1 == later.1 && one.1 != two.1;
            Ok((same_key, one.2, two.2, later.2))
        },
    );
    crasher.every_boundary(|ended| {
        assert_eq!(ended.value, (true, 1, 1, 1));
        let effects = &ended.world;
        assert_eq!((effects.applied("ours"), effects.applied("keyed")), (1, 2));
        let runs = ended.runs.len() as u32;
        assert_eq!((effects.applied("mine"), effects.applied("after")), (runs, runs));
        for (_, history) in &ended.runs {
            assert_eq!(history.count("once"), 3, "recorded once each\n{history}");
        }
    });
}

async fn slowly(ctx: Ctx, name: String) -> Result<String> {
    let effects = ctx.state::<Effects>();
    let made = ctx
        .run_once("table", async || {
            effects.apply("table", "table")?;
            // Long enough for the other one to start.
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            Ok(name.clone())
        })
        .scope(Once::Workspace)
        .await?;
    effect(&ctx, "sit").await?;
    Ok(made)
}

fn shared_once() {
    let crasher = Crasher::new(
        Effects::new,
        |effects, engine| engine.state(effects.clone()).workflow("slowly", slowly),
        async |scene: Scene<Effects>| {
            let start = |name: &str| scene.engine().start(slowly, name.to_owned()).key(name);
            let (one, two) = (start("one").await?, start("two").await?);
            let (one, two) = (one.result().await?, two.result().await?);
            Ok(one == two)
        },
    );
    let check = |ended: &semel::testing::Ended<Effects, bool>| {
        assert!(ended.value, "both have the result of the same one");
        assert_effects(&ended.world, &[("table", 1), ("sit", 2)]);
        assert!(ended.world.calls("table") <= 1 + ended.crashes.len(), "one at a time");
    };
    crasher.every_boundary(check);
    crasher.every_two_boundaries(check);
}
