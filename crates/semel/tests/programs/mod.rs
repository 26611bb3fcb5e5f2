//! Random workflow programs: what they are made of, and the one workflow that executes them all. Two test programs
//! play them: `semel` kills an engine at every write of one, `sim` lets several engines fight over many. The tests of the SDKs
//! in `clients/` play those that `semel` has written for them, and kill a worker at every boundary.

mod bulk;
mod draw;
mod expected;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use semel::clock::Time;
use semel::id::RunId;
use semel::rules::entry::Class;
use semel::sdk::Either;
use semel::{Attempt, Ctx, Fail, Once, Result, Retry, fatal};
use serde::{Deserialize, Serialize};

pub(crate) use self::draw::{Pace, draw};
pub(crate) use self::expected::{Calls, Count, Expected};

/// One thing that a program does. `n` is its name, different in all of a program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Act {
    /// A step with a key, whose first tries fail.
    Step { n: u32, fails: u32 },
    /// A step that fails with a fatal error after its effect took place; the program goes on.
    Fatal { n: u32 },
    /// A step that fails with a fatal error, and the run with it, the first times that it is called.
    Fails { n: u32, times: u32 },
    /// A step that must not be called twice.
    Letter { n: u32 },
    /// A step with a look-up, whose answer may be lost.
    Asked { n: u32, lost: bool },
    /// A step whose effect is a row in a database.
    Pay { n: u32 },
    /// The same step several times, told apart by key or by count.
    Repeat { n: u32, times: u32, indexed: bool },
    /// Parts of a program several times, each in a scope of its own.
    Loop { n: u32, times: u32, acts: Vec<Act> },
    /// Two parts at once.
    Join { n: u32, left: Vec<Act>, right: Vec<Act> },
    /// A part against a limit (in milliseconds) that it does not reach, or (`late`) does. If the limit is not `far`, not
    /// all of the part need have been done by then.
    Race { n: u32, late: bool, far: bool, limit: u64, acts: Vec<Act> },
    /// Two waits that race; the winner decides what is done next, and a replay must not decide otherwise.
    Close { n: u32, millis: u64 },
    /// A wait.
    Sleep { n: u32, millis: u64 },
    /// A hook, and how much it receives; then, perhaps, it waits in vain for this number of milliseconds.
    Hook { n: u32, recv: u32, recv_for: u32, in_vain: Option<u64> },
    /// A token that all programs want; the program that gets it holds it for a while.
    Door { n: u32, millis: u64 },
    /// Another run.
    Child { n: u32, acts: Vec<Act> },
    /// Something once in the run, or once among all runs.
    Once { n: u32, shared: bool },
    /// Values that must not change.
    Values { n: u32 },
    /// Steps, hooks and children at once, `count` of each, each with a value of `kib` kibibytes.
    Bulk { n: u32, parts: u32, kib: u32 },
    /// A large text, which comes with the input of a run, and is given back.
    Ballast { text: String },
}

/// Why a run fails that is to fail.
pub(crate) const FAILS: &str = "the run is to fail here";

/// A program, and the place at which it is executed: a child's is inside its parent's.
pub(crate) type Program = (String, Vec<Act>);

/// The answer of the world outside.
pub(crate) type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// A wait: of which run, its name there, and how long it is to be.
pub(crate) type Nap<'a> = (RunId, &'a str, Duration);

/// The world outside of the workflows, in which effects take place.
pub(crate) trait Outside: Send + Sync + 'static {
    /// The body of a step begins.
    fn begins(&self, _name: &str, _class: Class, _attempt: &Attempt) {}
    /// Does something under a key; gives which of its name it was. `once` is the run whose once asks for it, none if a
    /// step does.
    fn apply(&self, name: String, key: String, once: Option<RunId>) -> Answer<'_, u32>;
    /// What was done under a key.
    fn find(&self, key: String) -> Answer<'_, Option<u32>>;
    /// How often something was asked for under a key.
    fn calls_under(&self, key: &str) -> usize;
    /// Writes a row in a transactional step, and gives its name.
    fn pay(&self, _ctx: Ctx, name: String) -> Answer<'_, String> {
        Box::pin(async move { Err(fatal(format!("there is no database for {name}"))) })
    }
    /// The code has the result of `run_once`, of this run alone or of all runs.
    fn has_once(&self, _run: RunId, _label: &str, _result: &str) {}
    /// The code asks for a wait, perhaps not for the first time; gives when.
    fn sleeps(&self, _nap: Nap<'_>) -> Time {
        Time(0)
    }
    /// The code goes on behind a wait that it asked for at this time.
    fn slept(&self, _nap: Nap<'_>, _asked: Time) {}
}

/// The world outside, as workflows find it among the engine's states.
pub(crate) struct World(pub(crate) Arc<dyn Outside>);

pub(crate) async fn execute(ctx: Ctx, (place, acts): Program) -> Result<Vec<String>> {
    match run_all(&ctx, place, &acts).await {
        Err(fail) if fail.is_cancelled() => {
            clean_up(&ctx.cleanup()).await?;
            Err(fail)
        }
        ended => ended,
    }
}

async fn clean_up(ctx: &Ctx) -> Result<()> {
    let world = &ctx.state::<World>().0;
    for part in ["one", "two"] {
        let body = async |attempt: Attempt| applied(&**world, "clean up".to_owned(), &attempt).await;
        ctx.step("clean up").key(part).run(body).await?;
        ctx.sleep(format!("after {part}"), Duration::from_secs(1)).await?;
    }
    Ok(())
}

/// The effect of a keyed step.
async fn applied(world: &dyn Outside, name: String, attempt: &Attempt) -> Result<u32> {
    applied_as(world, name, Class::Keyed, attempt).await
}

/// The effect of a step of any class.
async fn applied_as(world: &dyn Outside, name: String, class: Class, attempt: &Attempt) -> Result<u32> {
    world.begins(&name, class, attempt);
    world.apply(name, attempt.key().to_owned(), None).await
}

/// A wait that the world hears of. Its name is its own at its place.
async fn nap(ctx: &Ctx, place: &str, name: String, time: Duration) -> Result<()> {
    let world = ctx.state::<World>().0.clone();
    let known_as = format!("{place}/{name}");
    let nap = (ctx.run_id(), known_as.as_str(), time);
    let asked = world.sleeps(nap);
    ctx.sleep(name, time).await?;
    world.slept(nap, asked);
    Ok(())
}

type Running<'a> = Pin<Box<dyn Future<Output = Result<Vec<String>>> + Send + 'a>>;

fn run_all<'a>(ctx: &'a Ctx, place: String, acts: &'a [Act]) -> Running<'a> {
    Box::pin(async move {
        let mut values = Vec::new();
        for act in acts {
            values.extend(run(ctx, &place, act).await?);
        }
        Ok(values)
    })
}

async fn run(ctx: &Ctx, place: &str, act: &Act) -> Result<Vec<String>> {
    let said = |what: &str| Ok(vec![what.to_owned()]);
    match act {
        Act::Step { .. }
        | Act::Fatal { .. }
        | Act::Fails { .. }
        | Act::Letter { .. }
        | Act::Asked { .. }
        | Act::Pay { .. }
        | Act::Repeat { .. } => run_step(ctx, act).await,
        Act::Loop { n, times, acts } => {
            let mut values = Vec::new();
            for i in 0..*times {
                let part = format!("l{n}-{i}");
                values.extend(run_all(&ctx.scope(&part), format!("{place}/{part}"), acts).await?);
            }
            Ok(values)
        }
        Act::Join { n, left, right } => {
            let (one, two) = (ctx.scope(format!("left{n}")), ctx.scope(format!("right{n}")));
            let (one, two) =
                tokio::join!(run_all(&one, place.to_owned(), left), run_all(&two, place.to_owned(), right));
            Ok([one?, two?].concat())
        }
        Act::Race { n, late, limit, acts, .. } => {
            race(ctx, place, *n, *late, Duration::from_millis(*limit), acts).await
        }
        Act::Close { n, millis } => close(ctx, place, *n, Duration::from_millis(*millis)).await,
        Act::Sleep { n, millis } => {
            nap(ctx, place, format!("sl{n}"), Duration::from_millis(*millis)).await?;
            said("slept")
        }
        Act::Hook { n, recv, recv_for, in_vain } => hook(ctx, place, *n, (*recv, *recv_for, *in_vain)).await,
        Act::Door { n, millis } => {
            let mut door = ctx.hook::<u32>(format!("door {}", n % 2));
            match door.conflict().await? {
                Some(_) => said("taken"),
                None => {
                    nap(ctx, place, format!("d{n}"), Duration::from_millis(*millis)).await?;
                    said("through")
                }
            }
        }
        Act::Child { n, acts } => {
            let program = (format!("{place}/c{n}"), acts.clone());
            ctx.child(execute, program).key(n).await?.result().await
        }
        Act::Once { n, shared } => once(ctx, place, *n, *shared).await,
        Act::Bulk { n, parts, kib } => bulk::run(ctx, place, *n, *parts, *kib).await,
        Act::Ballast { text } => said(text),
        Act::Values { n } => {
            let name = format!("v{n}");
            let (now, uuid) = (ctx.now(&*name).await?, ctx.uuid(&*name).await?);
            let noted = ctx.step(format!("v{n}")).run(async |_| Ok((now, uuid.to_string()))).await?;
            nap(ctx, place, format!("v{n} later"), Duration::from_secs(1)).await?;
            assert_eq!(noted, (now, uuid.to_string()), "a value has changed");
            said("the same")
        }
    }
}

async fn run_step(ctx: &Ctx, act: &Act) -> Result<Vec<String>> {
    let world = &*ctx.state::<World>().0.clone();
    let retry = Retry::fixed(Duration::from_secs(1)).max_attempts(4);
    let done = match act {
        Act::Step { n, fails } => {
            let body = async |attempt: Attempt| match attempt.number() <= *fails {
                true => {
                    world.begins(&format!("s{n}"), Class::Keyed, &attempt);
                    Err(Fail::retryable("as planned"))
                }
                false => applied(world, format!("s{n}"), &attempt).await.map(|_| format!("s{n}")),
            };
            ctx.step(format!("s{n}")).retry(retry).run(body).await
        }
        Act::Fatal { n } => {
            let body = async |attempt: Attempt| {
                applied(world, format!("f{n}"), &attempt).await?;
                Err::<String, _>(fatal("as planned"))
            };
            let failed = ctx.step(format!("f{n}")).run(body).await.expect_err("it always fails");
            if failed.is_cancelled() { Err(failed) } else { Ok(format!("f{n} failed")) }
        }
        Act::Fails { n, times } => {
            let body = async |attempt: Attempt| {
                let before = world.calls_under(attempt.key()) as u32;
                applied(world, format!("x{n}"), &attempt).await?;
                if before < *times { Err(fatal(FAILS)) } else { Ok(format!("x{n}")) }
            };
            ctx.step(format!("x{n}")).run(body).await
        }
        Act::Letter { n } => {
            let body = async |attempt: Attempt| {
                let name = format!("m{n}");
                applied_as(world, name.clone(), Class::AtMostOnce, &attempt).await.map(|_| name)
            };
            ctx.step(format!("m{n}")).at_most_once().run(body).await
        }
        Act::Asked { n, lost } => {
            let look_up = async |attempt: Attempt| {
                let found = world.find(attempt.key().to_owned()).await?;
                Ok(found.map(|_| format!("a{n}")))
            };
            let body = async |attempt: Attempt| {
                applied_as(world, format!("a{n}"), Class::Reconcile, &attempt).await?;
                if *lost { Err(Fail::retryable("as planned")) } else { Ok(format!("a{n}")) }
            };
            ctx.step(format!("a{n}")).retry(Retry::none()).reconcile(look_up).run(body).await
        }
        Act::Pay { n } => world.pay(ctx.clone(), format!("t{n}")).await,
        Act::Repeat { n, times, indexed } => {
            let mut values = Vec::new();
            for i in 0..*times {
                let step = ctx.step(format!("r{n}"));
                let step = if *indexed { step.indexed() } else { step.key(i) };
                let body =
                    async |attempt: Attempt| applied(world, format!("r{n}"), &attempt).await.map(|_| i);
                values.push(format!("r{n}.{}", step.run(body).await?));
            }
            return Ok(values);
        }
        _ => unreachable!("no step"),
    };
    Ok(vec![done?])
}

async fn race(
    ctx: &Ctx,
    place: &str,
    n: u32,
    late: bool,
    limit: Duration,
    acts: &[Act],
) -> Result<Vec<String>> {
    let part = ctx.scope(format!("race{n}"));
    let work = async {
        let values = run_all(&part, place.to_owned(), acts).await?;
        if late {
            part.sleep(format!("too long {n}"), limit * 1000).await?;
            part.step(format!("never {n}"))
                .run(async |_| Err::<(), _>(fatal("this is never reached")))
                .await?;
        }
        Ok::<_, Fail>(values)
    };
    let (name, limit) = (format!("race{n}"), nap(ctx, place, format!("limit{n}"), limit));
    match ctx.race(&name, work, limit).await? {
        Either::A(values) => values,
        Either::B(fired) => fired.map(|()| vec!["too late".to_owned()]),
    }
}

async fn close(ctx: &Ctx, place: &str, n: u32, time: Duration) -> Result<Vec<String>> {
    let world = ctx.state::<World>().0.clone();
    // The longer one is asked first: when both are over, it would win.
    let long = nap(ctx, place, format!("long{n}"), time * 2);
    let short = nap(ctx, place, format!("short{n}"), time);
    let winner = match ctx.race(&format!("close{n}"), long, short).await? {
        Either::A(over) => over.map(|()| "long")?,
        Either::B(over) => over.map(|()| "short")?,
    };
    let body = async |attempt: Attempt| applied(&*world, format!("c{n}"), &attempt).await;
    ctx.step(format!("c{n} {winner}")).run(body).await?;
    nap(ctx, place, format!("after {n}"), time * 2).await?;
    Ok(vec![winner.to_owned()])
}

async fn hook(
    ctx: &Ctx,
    place: &str,
    n: u32,
    (recv, recv_for, in_vain): (u32, u32, Option<u64>),
) -> Result<Vec<String>> {
    let (mut hook, mut values) = (ctx.hook::<u32>(token(place, n)), Vec::new());
    for _ in 0..recv {
        values.push(hook.recv().await?.to_string());
    }
    for _ in 0..recv_for {
        values.push(format!("{:?}", hook.recv_for(Duration::from_hours(1)).await?));
    }
    if let Some(millis) = in_vain {
        values.push(format!("{:?}", hook.recv_for(Duration::from_millis(millis)).await?));
    }
    Ok(values)
}

async fn once(ctx: &Ctx, place: &str, n: u32, shared: bool) -> Result<Vec<String>> {
    let world = ctx.state::<World>().0.clone();
    let (name, label, scope) = match shared {
        true => (shared_name(n), shared_name(n), Once::Workspace),
        false => (format!("o{n}"), format!("{place}/o{n}"), Once::Run),
    };
    let make = async || {
        let nth = world.calls_under(&label);
        world.apply(name.clone(), label.clone(), Some(ctx.run_id())).await?;
        tokio::task::yield_now().await;
        // Another execution would give another result.
        Ok(format!("{name} made by call {nth}"))
    };
    let result: String = ctx.run_once(label.clone(), make).scope(scope).await?;
    world.has_once(ctx.run_id(), &label, &result);
    Ok(vec![result.split(' ').next().unwrap_or_default().to_owned()])
}

/// All programs share few of these, so that they meet.
fn shared_name(n: u32) -> String {
    format!("q{}", n % 2)
}

fn token(place: &str, n: u32) -> String {
    format!("{place}:h{n}")
}
