//! Random workflow programs: what they are made of, how they are drawn, and the one workflow that executes them all.

use std::pin::Pin;
use std::time::Duration;

use semel::sdk::Either;
use semel::testing::Effects;
use semel::{Ctx, Fail, Once, Result, Retry, fatal};
use serde::{Deserialize, Serialize};

/// One thing that a program does. `n` is its name, different in all of a program.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Act {
    /// A step with a key, whose first tries fail.
    Step { n: u32, fails: u32 },
    /// A step that fails for good after its effect took place; the program goes on.
    Fatal { n: u32 },
    /// A step that must not be called twice.
    Letter { n: u32 },
    /// A step with a look-up, whose answer may be lost.
    Asked { n: u32, lost: bool },
    /// The same step several times, told apart by key or by count.
    Repeat { n: u32, times: u32, indexed: bool },
    /// Parts of a program several times, each in a scope of its own.
    Loop { n: u32, times: u32, acts: Vec<Act> },
    /// Two parts at once.
    Join { n: u32, left: Vec<Act>, right: Vec<Act> },
    /// A part against a limit that it does not reach, or (`late`) does.
    Race { n: u32, late: bool, acts: Vec<Act> },
    /// A wait.
    Sleep { n: u32, millis: u64 },
    /// A hook, and how much it receives; then, perhaps, it waits in vain.
    Hook { n: u32, recv: u32, recv_for: u32, in_vain: bool },
    /// Another run.
    Child { n: u32, acts: Vec<Act> },
    /// Something once in the run, or once among all runs.
    Once { n: u32, shared: bool },
    /// Values that must not change.
    Values { n: u32 },
}

/// A program, and the place at which it is executed: a child's is inside its parent's.
pub(super) type Program = (String, Vec<Act>);

/// Nothing else in a program takes as long.
const LIMIT: Duration = Duration::from_hours(10);

pub(super) async fn execute(ctx: Ctx, (place, acts): Program) -> Result<Vec<String>> {
    run_all(&ctx, place, &acts).await
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
        | Act::Letter { .. }
        | Act::Asked { .. }
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
        Act::Race { n, late, acts } => race(ctx, place, *n, *late, acts).await,
        Act::Sleep { n, millis } => {
            ctx.sleep(format!("sl{n}"), Duration::from_millis(*millis)).await?;
            said("slept")
        }
        Act::Hook { n, recv, recv_for, in_vain } => hook(ctx, place, *n, (*recv, *recv_for, *in_vain)).await,
        Act::Child { n, acts } => {
            let program = (format!("{place}/c{n}"), acts.clone());
            ctx.child(execute, program).key(n).await?.result().await
        }
        Act::Once { n, shared } => once(ctx, place, *n, *shared).await,
        Act::Values { n } => {
            let (now, uuid) = (ctx.now().await?, ctx.uuid().await?);
            let noted = ctx.step(format!("v{n}")).run(async |_| Ok((now, uuid.to_string()))).await?;
            ctx.sleep(format!("v{n} later"), Duration::from_secs(1)).await?;
            assert_eq!(noted, (now, uuid.to_string()), "a value has changed");
            said("the same")
        }
    }
}

async fn run_step(ctx: &Ctx, act: &Act) -> Result<Vec<String>> {
    let effects = ctx.state::<Effects>();
    let retry = Retry::fixed(Duration::from_secs(1)).max_attempts(4);
    let done = match act {
        Act::Step { n, fails } => {
            let body = async |attempt: semel::Attempt| match attempt.number() <= *fails {
                true => Err(Fail::retryable("as planned")),
                false => effects.apply(&format!("s{n}"), attempt.key()).map(|_| format!("s{n}")),
            };
            ctx.step(format!("s{n}")).retry(retry).run(body).await
        }
        Act::Fatal { n } => {
            let body = async |attempt: semel::Attempt| {
                effects.apply(&format!("f{n}"), attempt.key())?;
                Err::<String, _>(fatal("as planned"))
            };
            let failed = ctx.step(format!("f{n}")).run(body).await;
            Ok(failed.expect_err("it always fails").to_string())
        }
        Act::Letter { n } => {
            let run = ctx.run_id();
            let body = async |attempt: semel::Attempt| {
                effects.apply(&format!("m{n} sent"), &format!("{run} {}", attempt.path()))?;
                effects.apply(&format!("m{n}"), attempt.key()).map(|_| format!("m{n}"))
            };
            ctx.step(format!("m{n}")).at_most_once().run(body).await
        }
        Act::Asked { n, lost } => {
            let look_up =
                async |attempt: semel::Attempt| Ok(effects.find(attempt.key()).map(|_| format!("a{n}")));
            let body = async |attempt: semel::Attempt| {
                effects.apply(&format!("a{n}"), attempt.key())?;
                if *lost { Err(Fail::retryable("as planned")) } else { Ok(format!("a{n}")) }
            };
            ctx.step(format!("a{n}")).retry(Retry::none()).reconcile(look_up).run(body).await
        }
        Act::Repeat { n, times, indexed } => {
            for i in 0..*times {
                let step = ctx.step(format!("r{n}"));
                let step = if *indexed { step.indexed() } else { step.key(i) };
                step.run(async |attempt| effects.apply(&format!("r{n}"), attempt.key())).await?;
            }
            Ok(format!("r{n}"))
        }
        _ => unreachable!("no step"),
    };
    Ok(vec![done?])
}

async fn race(ctx: &Ctx, place: &str, n: u32, late: bool, acts: &[Act]) -> Result<Vec<String>> {
    let part = ctx.scope(format!("race{n}"));
    let work = async {
        let values = run_all(&part, place.to_owned(), acts).await?;
        if late {
            part.sleep(format!("too long {n}"), LIMIT * 10).await?;
            part.step(format!("never {n}"))
                .run(async |_| Err::<(), _>(fatal("this is never reached")))
                .await?;
        }
        Ok::<_, Fail>(values)
    };
    let (name, limit) = (format!("race{n}"), ctx.sleep(format!("limit{n}"), LIMIT));
    match ctx.race(&name, work, limit).await? {
        Either::A(values) => values,
        Either::B(fired) => fired.map(|()| vec!["too late".to_owned()]),
    }
}

async fn hook(
    ctx: &Ctx,
    place: &str,
    n: u32,
    (recv, recv_for, in_vain): (u32, u32, bool),
) -> Result<Vec<String>> {
    let (mut hook, mut values) = (ctx.hook::<u32>(token(place, n)), Vec::new());
    for _ in 0..recv {
        values.push(hook.recv().await?.to_string());
    }
    for _ in 0..recv_for {
        values.push(format!("{:?}", hook.recv_for(LIMIT / 2).await?));
    }
    if in_vain {
        values.push(format!("{:?}", hook.recv_for(Duration::from_secs(30)).await?));
    }
    Ok(values)
}

async fn once(ctx: &Ctx, place: &str, n: u32, shared: bool) -> Result<Vec<String>> {
    let effects = ctx.state::<Effects>();
    let name = format!("o{n}");
    let (label, scope) = match shared {
        true => (name.clone(), Once::Workspace),
        false => (format!("{place}/{name}"), Once::Run),
    };
    let make = async || {
        effects.apply(&name, &label)?;
        tokio::task::yield_now().await;
        Ok(name.clone())
    };
    Ok(vec![ctx.run_once(label.clone(), make).scope(scope).await?])
}

fn token(place: &str, n: u32) -> String {
    format!("{place}:h{n}")
}

/// What a program must have done in the end.
#[derive(Debug, Default)]
pub(super) struct Expected {
    /// Effects by name, how many there are, and whether each is called once only.
    pub(super) effects: Vec<(String, u32, bool)>,
    /// Tokens, and how many payloads each is to get.
    pub(super) tokens: Vec<(String, u32)>,
}

impl Expected {
    pub(super) fn of((place, acts): &Program) -> Self {
        let mut expected = Self::default();
        expected.add_all(place, acts);
        expected
    }

    fn add_all(&mut self, place: &str, acts: &[Act]) {
        acts.iter().for_each(|act| self.add(place, act));
    }

    fn count(&mut self, name: String, times: u32, exact: bool) {
        match self.effects.iter_mut().find(|(known, ..)| *known == name) {
            Some((_, count, _)) => *count += times,
            None => self.effects.push((name, times, exact)),
        }
    }

    fn add(&mut self, place: &str, act: &Act) {
        match act {
            Act::Step { n, .. } => self.count(format!("s{n}"), 1, false),
            Act::Fatal { n } => self.count(format!("f{n}"), 1, false),
            Act::Letter { n } => self.count(format!("m{n}"), 1, true),
            Act::Asked { n, .. } => self.count(format!("a{n}"), 1, true),
            Act::Repeat { n, times, .. } => self.count(format!("r{n}"), *times, false),
            Act::Once { n, shared: false } => self.count(format!("o{n}"), 1, false),
            // However often it is asked for.
            Act::Once { n, shared: true }
                if self.effects.iter().any(|(name, ..)| *name == format!("o{n}")) => {}
            Act::Once { n, shared: true } => self.count(format!("o{n}"), 1, false),
            Act::Loop { n, times, acts } => {
                (0..*times).for_each(|i| self.add_all(&format!("{place}/l{n}-{i}"), acts));
            }
            Act::Join { left, right, .. } => {
                self.add_all(place, left);
                self.add_all(place, right);
            }
            Act::Race { acts, .. } => self.add_all(place, acts),
            Act::Child { n, acts } => self.add_all(&format!("{place}/c{n}"), acts),
            Act::Hook { n, recv, recv_for, .. } => self.tokens.push((token(place, *n), recv + recv_for)),
            Act::Sleep { .. } | Act::Values { .. } => {}
        }
    }
}

/// Numbers from a seed.
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x5EED)
    }

    /// A number below another (splitmix64).
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % limit
    }

    fn flip(&mut self) -> bool {
        self.below(2) == 0
    }

    fn some(&mut self, least: u32, most: u32) -> u32 {
        least + self.below(u64::from(most - least + 1)) as u32
    }
}

/// Draws a program.
pub(super) fn draw(seed: u64) -> Program {
    let mut drawer = Drawer { dice: Dice::new(seed), last: 0, left: 9 };
    let acts = drawer.acts(3);
    ("p".to_owned(), acts)
}

struct Drawer {
    dice: Dice,
    last: u32,
    /// So many more things may be drawn.
    left: u32,
}

impl Drawer {
    fn acts(&mut self, depth: u32) -> Vec<Act> {
        let wanted = self.dice.some(1, 4);
        let mut acts = Vec::new();
        while acts.len() < wanted as usize && self.left > 0 {
            self.left -= 1;
            acts.push(self.act(depth));
        }
        acts
    }

    fn act(&mut self, depth: u32) -> Act {
        self.last += 1;
        let n = self.last;
        let kinds = if depth == 0 { 9 } else { 13 };
        match self.dice.below(kinds) {
            0 => Act::Step { n, fails: self.dice.some(0, 2) },
            1 => Act::Fatal { n },
            2 => Act::Letter { n },
            3 => Act::Asked { n, lost: self.dice.flip() },
            4 => Act::Repeat { n, times: self.dice.some(1, 3), indexed: self.dice.flip() },
            5 => Act::Sleep { n, millis: [3, 15, 500, 60_000][self.dice.below(4) as usize] },
            6 => {
                let (recv, recv_for) = (self.dice.some(0, 2), self.dice.some(0, 1));
                Act::Hook { n, recv, recv_for, in_vain: self.dice.flip() }
            }
            7 => Act::Once { n, shared: self.dice.flip() },
            8 => Act::Values { n },
            9 => Act::Loop { n, times: self.dice.some(1, 2), acts: self.acts(depth - 1) },
            10 => Act::Join { n, left: self.acts(depth - 1), right: self.acts(depth - 1) },
            11 => Act::Race { n, late: self.dice.flip(), acts: self.acts(depth - 1) },
            _ => Act::Child { n, acts: self.acts(depth - 1) },
        }
    }
}
