//! What workflows, bodies, handles and starts can say beside what every workflow says: one thing at a time.

use std::collections::HashSet;
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use semel::clock::{Clock, Time};
use semel::rules::key::{Key, KeyScope};
use semel::rules::ledger::Lineage;
use semel::rules::run::Retention;
use semel::rules::status::Status;
use semel::testing::history;
use semel::{Attempt, Ctx, Fail, FailExt, Once, Result, Retry, RunHandle, WorkflowRef};
use serde_json::{Value, json};

use super::basics::Count;
use super::replay::{ended, waiting};
use super::rest::yield_often;
use super::{Lab, by_turns, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        by_turns("a_run_sleeps_until_a_time_and_not_at_all_if_that_has_passed", until_a_time),
        by_turns("a_race_of_several_gives_the_place_and_the_output_of_the_first", race_of_several),
        by_turns("a_race_of_several_has_the_same_winner_after_a_rebuild", same_winner),
        trial("a_race_without_branches_is_refused", empty_race),
        by_turns("a_workflow_can_tell_that_it_is_replayed", replayed),
        trial("what_was_done_once_is_done_again_after_its_time", once_for_a_time),
        trial("a_token_is_free_when_its_hook_is_disposed_of", disposed),
        trial("a_step_has_a_key_per_effect_and_a_uuid_and_both_stay_over_all_tries", keys),
        trial("a_body_under_way_can_tell_that_its_run_was_asked_to_end", asked_to_end),
        by_turns("a_failure_that_says_when_is_tried_again_then", || told_when(false)),
        by_turns("a_failure_that_says_when_is_no_doubt_in_a_step_that_runs_at_most_once", || told_when(true)),
        trial("a_released_key_is_free_for_another_run", released),
        trial("a_fork_has_the_key_that_it_is_given", fork_with_key),
        trial("what_is_ignored_in_the_input_makes_no_other_request", ignored),
        trial("a_key_is_remembered_for_as_long_as_its_start_has_said", remembered),
        trial("the_same_key_in_another_scope_is_another_key", scopes),
        trial("a_function_with_several_names_is_started_by_one_of_them_only", several_names),
        trial("a_workflow_has_not_the_name_of_a_queue", named_like_a_queue),
    ]
}

const HOUR: Duration = Duration::from_hours(1);
const ALMOST_AN_HOUR: Duration = Duration::from_millis(3_599_999);
const THE_REST_OF_IT: Duration = Duration::from_millis(1);

/// Waits until a run rests; a forgetful engine has forgotten it then.
pub(super) async fn at_rest<Out>(lab: &Lab, run: &RunHandle<Out>) {
    waiting(lab, run).await;
    yield_often().await;
}

async fn echo(_: Ctx, input: Value) -> Result<Value> {
    Ok(input)
}

async fn slow_echo(ctx: Ctx, input: Value) -> Result<Value> {
    ctx.sleep("nap", HOUR).await?;
    Ok(input)
}

async fn late(ctx: Ctx, at: Time) -> Result<u32> {
    let count = ctx.state::<Count>();
    ctx.sleep_until("nap", at).await?;
    ctx.step("wake").run(async |_| Ok(count.up())).await
}

async fn until_a_time() -> Result<(), Failed> {
    let (lab, count) = (Lab::new(), Count::default());
    let engine = lab.engine().state(count.clone()).workflow("late", late).open().await?;
    let at = lab.clock.now().after(HOUR);
    let run = engine.start(late, at).await?;
    at_rest(&lab, &run).await;
    lab.clock.advance(ALMOST_AN_HOUR);
    yield_often().await;
    assert_eq!((run.status().await?, count.get()), (Status::Waiting, 0), "not a moment before");
    lab.clock.advance(THE_REST_OF_IT);
    assert_eq!(run.result().await?, 1);
    let passed = engine.start(late, Time(at.0 - 1)).await?;
    assert_eq!(passed.result().await?, 2, "although the clock stands still");
    Ok(())
}

/// Gives the place of the shortest nap, and how many minutes that took.
async fn shortest(ctx: Ctx, naps: Vec<u64>) -> Result<(usize, u64)> {
    let ctx = &ctx;
    let nap = |minutes: u64| async move {
        ctx.sleep(format!("nap {minutes}"), Duration::from_mins(minutes)).await.map(|()| minutes)
    };
    let (place, slept) = ctx.race_all("shortest", naps.into_iter().map(nap).collect()).await?;
    Ok((place, slept?))
}

async fn race_of_several() -> Result<(), Failed> {
    for forgetful in [false, true] {
        let lab = Lab::new();
        let builder = if forgetful { lab.forgetful() } else { lab.engine() };
        let engine = builder.workflow("shortest", shortest).open().await?;
        let run = engine.start(shortest, vec![30, 10, 20]).await?;
        at_rest(&lab, &run).await;
        lab.clock.advance(Duration::from_mins(10));
        assert_eq!(run.result().await?, (1, 10));
    }
    Ok(())
}

async fn empty_race() -> Result<(), Failed> {
    let lab = Lab::new();
    let engine = lab.engine().workflow("shortest", shortest).open().await?;
    let run = engine.start(shortest, Vec::<u64>::new()).await?;
    let refused = run.result().await.expect_err("there is no branch to win").to_string();
    assert!(refused.ends_with("the race shortest has no branches"), "{refused}");
    Ok(())
}

/// Who is ready at once is another one in each life, as it must not be: only what is recorded keeps the winner.
async fn fickle(ctx: Ctx, (): ()) -> Result<(usize, usize)> {
    let life = ctx.state::<Count>().up();
    let racer = |place: usize| async move {
        if life == 1 && place < 2 {
            pending::<()>().await;
        }
        place * 10
    };
    let won = ctx.race_all("first", (0..3).map(racer).collect()).await?;
    ctx.sleep("nap", HOUR).await?;
    Ok(won)
}

async fn same_winner() -> Result<(), Failed> {
    let (lab, lives) = (Lab::new(), Count::default());
    let engine = lab.forgetful().state(lives.clone()).workflow("fickle", fickle).open().await?;
    let run = engine.start(fickle, ()).await?;
    at_rest(&lab, &run).await;
    lab.clock.advance(HOUR);
    assert_eq!(run.result().await?, (2, 20));
    assert!(lives.get() > 1, "it was rebuilt");
    Ok(())
}

async fn watchful(ctx: Ctx, (): ()) -> Result<[bool; 3]> {
    let begin = ctx.is_replaying();
    ctx.step("work").run(async |_| Ok(())).await?;
    let middle = ctx.is_replaying();
    ctx.sleep("nap", HOUR).await?;
    Ok([begin, middle, ctx.is_replaying()])
}

async fn replayed() -> Result<(), Failed> {
    for (forgetful, expected) in [(false, [false; 3]), (true, [true, true, false])] {
        let lab = Lab::new();
        let builder = if forgetful { lab.forgetful() } else { lab.engine() };
        let engine = builder.workflow("watchful", watchful).open().await?;
        let run = engine.start(watchful, ()).await?;
        at_rest(&lab, &run).await;
        lab.clock.advance(HOUR);
        assert_eq!(run.result().await?, expected);
    }
    Ok(())
}

async fn rates(ctx: Ctx, (): ()) -> Result<u32> {
    let count = ctx.state::<Count>();
    ctx.run_once("rates", async || Ok(count.up())).scope(Once::Workspace).ttl(HOUR).await
}

async fn once_for_a_time() -> Result<(), Failed> {
    let lab = Lab::new();
    let engine = lab.engine().state(Count::default()).workflow("rates", rates).open().await?;
    let asked = async || -> Result<u32, Failed> { Ok(engine.start(rates, ()).await?.result().await?) };
    assert_eq!(asked().await?, 1);
    lab.clock.advance(ALMOST_AN_HOUR);
    assert_eq!(asked().await?, 1, "another run has the same result");
    lab.clock.advance(THE_REST_OF_IT);
    assert_eq!(asked().await?, 2, "it is forgotten");
    Ok(())
}

async fn clerk(ctx: Ctx, (): ()) -> Result<String> {
    let mut desk = ctx.hook::<String>("desk");
    let word = desk.recv().await?;
    desk.dispose();
    ctx.sleep("paperwork", HOUR).await?;
    Ok(word)
}

async fn disposed() -> Result<(), Failed> {
    let (lab, words) = (Lab::new(), ["one", "two"]);
    let engine = lab.engine().workflow("clerk", clerk).open().await?;
    let mut runs = Vec::new();
    for word in words {
        let run = engine.start(clerk, ()).await?;
        waiting(&lab, &run).await;
        assert_eq!(engine.hook("desk").await?.map(|owner| owner.id()), Some(run.id()));
        engine.deliver("desk", word).await?;
        lab.until(async || history(&run).await.is_ok_and(|found| found.count("hookClosed") == 1)).await;
        waiting(&lab, &run).await;
        assert!(engine.hook("desk").await?.is_none(), "while its run goes on");
        runs.push(run);
    }
    lab.clock.advance(HOUR);
    for (run, word) in runs.iter().zip(words) {
        assert_eq!(run.result().await?, word);
    }
    Ok(())
}

/// The keys that each try has seen.
#[derive(Clone, Default)]
struct Keys(Arc<Mutex<Vec<[String; 4]>>>);

/// Each step fails once, and rests before its second try: that one is made under another claim.
async fn keyed(ctx: Ctx, (): ()) -> Result<()> {
    let keys = ctx.state::<Keys>();
    for name in ["one", "two"] {
        ctx.step(name)
            .retry(Retry::fixed(Duration::from_secs(1)))
            .run(async |attempt: Attempt| {
                let [letter, bill] = ["letter", "bill"].map(|label| attempt.key_for(label));
                let seen = [attempt.key().to_owned(), letter, bill, attempt.key_uuid().to_string()];
                keys.0.lock().expect("it works").push(seen);
                if attempt.number() == 1 { Err(Fail::retryable("once more")) } else { Ok(()) }
            })
            .await?;
    }
    Ok(())
}

async fn keys() -> Result<(), Failed> {
    let (lab, keys) = (Lab::new(), Keys::default());
    let engine = lab.engine().state(keys.clone()).workflow("keyed", keyed).open().await?;
    let run = engine.start(keyed, ()).await?;
    ended(&lab, &run).await?;
    run.result().await?;
    let seen = keys.0.lock().expect("it works").clone();
    let [one, one_again, two, two_again] = seen.as_slice() else { panic!("{seen:?}") };
    assert_eq!((one, two), (one_again, two_again), "the same over all tries");
    let different: HashSet<_> = one.iter().chain(two).collect();
    assert_eq!(different.len(), 8, "{seen:?}");
    Ok(())
}

/// Works until it is of no more use; gives how often it looked.
async fn heedful(ctx: Ctx, (): ()) -> Result<u32> {
    let looks = ctx.state::<Count>();
    ctx.step("work")
        .run(async |attempt: Attempt| {
            while !attempt.is_cancelled() {
                looks.up();
                tokio::task::yield_now().await;
            }
            Ok(looks.get())
        })
        .await
}

async fn asked_to_end() -> Result<(), Failed> {
    let (lab, looks) = (Lab::new(), Count::default());
    let engine = lab.engine().state(looks.clone()).workflow("heedful", heedful).open().await?;
    let run = engine.start(heedful, ()).await?;
    lab.until(async || looks.get() > 100).await;
    assert_eq!(run.status().await?, Status::Running);
    run.request_cancel("enough").await?;
    assert_eq!(run.result().await?, looks.get(), "what had begun has its result");
    Ok(())
}

/// Is told at first to come back in an hour. Left to itself it would come back in a second.
async fn caller(ctx: Ctx, at_most_once: bool) -> Result<u32> {
    let count = ctx.state::<Count>();
    let step = ctx.step("call").retry(Retry::fixed(Duration::from_secs(1)));
    let step = if at_most_once { step.at_most_once() } else { step };
    step.run(async |attempt: Attempt| match count.up() {
        1 => Err(std::io::Error::other("busy")).retry_after(HOUR),
        _ => Ok(attempt.number()),
    })
    .await
}

async fn told_when(at_most_once: bool) -> Result<(), Failed> {
    let (lab, count) = (Lab::new(), Count::default());
    let engine = lab.engine().state(count.clone()).workflow("caller", caller).open().await?;
    let run = engine.start(caller, at_most_once).await?;
    at_rest(&lab, &run).await;
    lab.clock.advance(ALMOST_AN_HOUR);
    yield_often().await;
    assert_eq!((run.status().await?, count.get()), (Status::Waiting, 1), "not a moment before");
    lab.clock.advance(THE_REST_OF_IT);
    assert_eq!((run.result().await?, count.get()), (2, 2));
    history(&run).await?.assert_attempts("call", 2);
    Ok(())
}

async fn released() -> Result<(), Failed> {
    let lab = Lab::new();
    let engine = lab.engine().workflow("echo", slow_echo).open().await?;
    let start = |word: &str| engine.start(slow_echo, json!(word)).key("k");
    let one = start("one").await?;
    waiting(&lab, &one).await;
    assert_eq!(start("two").await.expect_err("the key is in use").code(), "KEY_REUSED");
    assert!(one.release_key().await?.changed);
    let two = start("two").await?;
    assert!(two.created());
    waiting(&lab, &two).await;
    assert!(!one.release_key().await?.changed, "it has none any more");
    assert_eq!(engine.run_by_key("k").await?.map(|run| run.id()), Some(two.id()));
    lab.clock.advance(HOUR);
    assert_eq!((one.result().await?, two.result().await?), (json!("one"), json!("two")));
    Ok(())
}

async fn fork_with_key() -> Result<(), Failed> {
    let lab = Lab::new();
    let engine = lab.engine().workflow("echo", echo).open().await?;
    let run = engine.start(echo, json!(7)).key("k").await?;
    run.result().await?;
    let fork = async |key: Option<&str>| -> Result<_, Failed> {
        let key = key.map(Key::new).transpose()?;
        Ok(run.fork_as(key, None, Lineage::Fresh).await)
    };
    let keyed = fork(Some("f")).await??;
    assert_ne!(keyed.id(), run.id());
    assert_eq!(keyed.result().await?, json!(7));
    assert_eq!(keyed.header().await?.new.key.as_str(), "f");
    let again = engine.start(echo, json!(7)).key("f").await?;
    assert_eq!((again.created(), again.id()), (false, keyed.id()), "the same request under that key");
    assert_eq!(fork(Some("k")).await?.expect_err("the key is in use").code(), "DUPLICATE_RUN");
    assert_eq!(engine.run_by_key("k").await?.map(|run| run.id()), Some(run.id()));
    let keyless = fork(None).await??;
    assert_eq!(keyless.header().await?.new.key.as_str(), keyless.id().to_string());
    Ok(())
}

async fn ignored() -> Result<(), Failed> {
    let lab = Lab::new();
    let engine = lab.engine().workflow("echo", echo).open().await?;
    let plain = |item: &str, sent: u32| engine.start(echo, json!({"item": item, "sent": sent})).key("k");
    let start = |item: &str, sent: u32| plain(item, sent).ignoring("/sent");
    let run = start("ink", 1).await?;
    let again = start("ink", 2).await?;
    assert_eq!((again.created(), again.id()), (false, run.id()));
    let refused = start("pens", 3).await.expect_err("that counts");
    assert_eq!(refused.code(), "KEY_REUSED");
    let said = refused.to_string();
    assert!(said.contains("/item") && !said.contains("/sent"), "{said}");
    assert_eq!(plain("ink", 2).await.expect_err("nothing is ignored").code(), "KEY_REUSED");
    Ok(())
}

async fn remembered() -> Result<(), Failed> {
    let lab = Lab::new();
    let engine = lab.engine().workflow("echo", echo).open().await?;
    let start = || engine.start(echo, json!(7)).key("k");
    let retention = Retention { history: 2 * HOUR, key: HOUR };
    let run = start().retention(retention).await?;
    run.result().await?;
    assert_eq!(run.header().await?.new.retention, retention);
    lab.clock.advance(ALMOST_AN_HOUR);
    assert_eq!(start().await?.id(), run.id());
    lab.clock.advance(THE_REST_OF_IT);
    assert!(start().await?.created(), "the key is forgotten");
    assert_eq!(history(&run).await?.count("completed"), 1, "the history is not");
    Ok(())
}

async fn scopes() -> Result<(), Failed> {
    let lab = Lab::new();
    let engine = lab.engine().workflow("echo", echo).workflow("slow", slow_echo).open().await?;
    let start = |scope: KeyScope| engine.start(echo, json!(7)).key("k").scope(scope);
    let (workspace, workflow, version) = (KeyScope::Workspace, KeyScope::Workflow, KeyScope::WorkflowVersion);
    for (scope, stored) in [(workspace, "*"), (workflow, "w/echo"), (version, "v/echo/1")] {
        let run = start(scope).await?;
        assert!(run.created(), "{stored}");
        assert_eq!(run.header().await?.new.scope.as_str(), stored);
        assert_eq!(start(scope).await?.id(), run.id(), "{stored}");
    }
    let other = |scope: KeyScope| engine.start(slow_echo, json!(7)).key("k").scope(scope);
    assert!(other(workflow).await?.created(), "another workflow has keys of its own");
    assert_eq!(other(workspace).await.expect_err("the key is in use").code(), "KEY_REUSED");
    Ok(())
}

async fn first(ctx: Ctx, (): ()) -> Result<u32> {
    ctx.sleep("nap", HOUR).await?;
    Ok(1)
}

/// Function pointers are of one type, whatever they point to.
async fn several_names() -> Result<(), Failed> {
    type Pointer = fn(Ctx, ()) -> std::future::Ready<Result<u32>>;
    let (one, two): (Pointer, Pointer) =
        (|_, ()| std::future::ready(Ok(1)), |_, ()| std::future::ready(Ok(2)));
    let lab = Lab::new();
    let engine =
        lab.engine().workflow("one", one).workflow("two", two).workflow("first", first).open().await?;
    let refused = engine.start(one, ()).await.expect_err("it cannot be told which one is meant").to_string();
    assert!(refused.contains("(one 1, two 1)") && refused.contains("WorkflowRef"), "{refused}");
    let named = engine.start(WorkflowRef::<(), u32>::new("one"), ()).await?;
    assert_eq!(named.result().await?, 1);
    assert!(engine.start(first, ()).await?.created(), "others are not affected");
    Ok(())
}

async fn named_like_a_queue() -> Result<(), Failed> {
    let refused = Lab::new().engine().workflow("queue:payments", echo).open().await;
    let refused = refused.expect_err("its runs are the tasks of others").to_string();
    assert!(refused.contains("queue payments") && refused.contains("choose another"), "{refused}");
    Ok(())
}
