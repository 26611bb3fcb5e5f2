//! Random programs, each undisturbed and then killed at many of its writes. `SEMEL_SEED=7` plays program 7 alone, and
//! `SEMEL_SEED=200..1000` these, at every write.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::Trial;
use semel::id::RunId;
use semel::rules::entry::Resolution;
use semel::rules::json::Payload;
use semel::rules::key::EffectKey;
use semel::rules::status::Status;
use semel::testing::{Crasher, Dice, Effects, Ended, Point, Scene};
use semel::{Error, Limits};

use crate::programs::{Answer, Calls, Count, Expected, Outside, Pace, Program, World, draw, execute};

const PROGRAMS: u64 = 200;
const AT_ONCE: u64 = 25;
/// So many crashes of each program; a quarter as many faults, and pairs of crashes.
const CRASHES: usize = 12;

/// Time costs nothing here: the limit of a race is longer than all that can be inside.
const PACE: Pace = Pace {
    acts: 9,
    depth: 3,
    waits: [3, 15, 500, 60_000],
    in_vain: 30_000,
    limit: |depth, _| (true, 36_000_000 * 20u64.pow(depth - 1)),
    company: false,
};

impl Outside for Effects {
    fn apply(&self, name: String, key: String, _once: Option<RunId>) -> Answer<'_, u32> {
        Box::pin(async move { Effects::apply(self, &name, &key) })
    }

    fn find(&self, key: String) -> Answer<'_, Option<u32>> {
        Box::pin(async move { Ok(Effects::find(self, &key)) })
    }

    fn calls_under(&self, key: &str) -> usize {
        Effects::calls_under(self, key)
    }
}

pub(crate) fn trials() -> Vec<Trial> {
    let chosen = std::env::var("SEMEL_SEED").ok().and_then(|seeds| {
        let (first, end) = seeds.split_once("..").unwrap_or((&seeds, ""));
        let first = first.parse().ok()?;
        Some((first, end.parse().unwrap_or(first + 1)))
    });
    let (first, end) = chosen.unwrap_or((0, PROGRAMS));
    let groups = (first..end).step_by(AT_ONCE as usize).map(|first| (first, end.min(first + AT_ONCE)));
    let trial = |(first, end): (u64, u64)| {
        Trial::test(format!("engine::crash::random_programs_from_{first}"), move || {
            (first..end).for_each(|seed| play(seed, chosen.is_some()));
            Ok(())
        })
    };
    groups.map(trial).collect()
}

/// Says which program it was.
struct Seed(u64, Program);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("SEMEL_SEED={} is {:?}", self.0, self.1);
        }
    }
}

type Values = Vec<String>;

fn play(seed: u64, everywhere: bool) {
    let program = draw(seed, "p", PACE);
    let shown = Seed(seed, program.clone());
    let expected = Expected::of(&program);
    let most = if everywhere { usize::MAX } else { CRASHES };
    let crasher = crasher(seed, program.clone(), None);
    let undisturbed = sample(seed, most, &crasher, |ended| check(&expected, ended));
    // Asked to end at some point, the program may come to any end, but to one.
    let entries = undisturbed.history().kinds().len() as u64;
    let at = Dice::new(seed).below(entries) as usize;
    let crasher = self::crasher(seed, program, Some(at));
    sample(seed, most / 2, &crasher, |ended| check_cancelled(&expected, ended));
    drop(shown);
}

fn crasher(seed: u64, program: Program, cancel: Option<usize>) -> Crasher<Effects, Values> {
    // Every other program is rebuilt whenever it has waited.
    let limits = move |engine: semel::engine::Builder| match seed % 2 {
        0 => engine,
        _ => engine.limits(Limits {
            resting: 0,
            lease: Duration::from_hours(24 * 365 * 100),
            ..Limits::default()
        }),
    };
    Crasher::new(
        Effects::new,
        move |effects, engine| limits(engine).state(World(Arc::new(effects.clone()))).workflow("program", execute),
        async move |scene: Scene<Effects>| script(scene, program.clone(), cancel).await,
    )
    // And some have a store that takes its time.
    .slow_store([0, 1, 3][seed as usize % 3])
}

fn sample(
    seed: u64,
    most: usize,
    crasher: &Crasher<Effects, Values>,
    check: impl Fn(&Ended<Effects, Values>),
) -> Ended<Effects, Values> {
    let undisturbed = crasher.undisturbed();
    check(&undisturbed);
    let mut dice = Dice::new(seed);
    let mut draw = |points: &mut Vec<Point>| match points.len() {
        0 => None,
        left => Some(points.swap_remove(dice.below(left as u64) as usize)),
    };
    let points = Crasher::<Effects, Values>::points;
    let mut firsts = points(&undisturbed.lives[0]);
    let mut faults = Crasher::<Effects, Values>::faults(&undisturbed.lives[0]);
    let pairs = most.div_ceil(4);
    for crash in 0..most {
        let Some(first) = draw(&mut firsts) else { break };
        let once = crasher.check(&undisturbed.value, std::slice::from_ref(&first), &check);
        if crash < pairs
            && let Some(second) = once.lives.get(1).and_then(|life| draw(&mut points(life)))
        {
            crasher.check(&undisturbed.value, &[first, second], &check);
        }
        if crash < pairs || most == usize::MAX {
            let fault = draw(&mut faults).expect("as many as crashes");
            crasher.check(&undisturbed.value, &[fault], &check);
        }
    }
    undisturbed
}

/// Starts the program, delivers what its hooks wait for, and says what became of letters in doubt.
async fn script(scene: Scene<Effects>, program: Program, cancel: Option<usize>) -> Result<Values, Error> {
    let tokens = Expected::of(&program).tokens;
    let run = scene.engine().start(execute, program).key("program").await?;
    let (mut delivered, mut asked) = (HashSet::new(), false);
    while open(&scene).await? {
        if !asked
            && let Some(at) = cancel
            && scene.header(run.id()).await?.state.version > at as u64
        {
            asked = true;
            scene.engine().run(run.id()).call_id("cancel").request_cancel("as planned").await?;
        }
        for (token, wanted) in &tokens {
            if delivered.contains(token) || scene.owner(token).await?.is_none() {
                continue;
            }
            for i in 0..*wanted {
                match scene.engine().deliver(token, i).id(format!("{token} {i}")).await {
                    // It was asked to end meanwhile.
                    Err(Error::HookNotFound(_)) if cancel.is_some() => {}
                    delivered => delivered.map(|_| ())?,
                }
            }
            delivered.insert(token.clone());
        }
        settle_doubts(&scene).await?;
        tokio::task::yield_now().await;
    }
    // What is cancelled gives nothing that could be compared.
    if cancel.is_some() { Ok(Vec::new()) } else { run.result().await }
}

/// Whether some run has not ended.
async fn open(scene: &Scene<Effects>) -> Result<bool, Error> {
    Ok(scene.runs().await?.iter().any(|run| !run.status().is_terminal()))
}

async fn settle_doubts(scene: &Scene<Effects>) -> Result<(), Error> {
    for run in scene.runs().await?.iter().filter(|run| run.status() == Status::Paused) {
        let history = scene.history(run.id()).await?;
        let doubts = history.in_doubt();
        assert!(!doubts.is_empty(), "{} is paused: {:?}\n{history}", run.id(), history.pause());
        for doubt in doubts {
            let key = EffectKey::of(run.new.workspace, run.new.lineage, &doubt, "").to_string();
            let (path, sent) = (doubt.to_string(), scene.world().find(&key));
            let name = path.rsplit('/').next().unwrap_or(&path);
            let resolution = match sent {
                Some(_) => Resolution::Happened(Payload::of(&name)?),
                None => Resolution::DidNotHappen,
            };
            scene.engine().run(run.id()).resolve(&path, resolution).await?;
        }
    }
    Ok(())
}

fn check(expected: &Expected, ended: &Ended<Effects, Values>) {
    let effects = &ended.world;
    assert!(expected.fits(&ended.value), "{:?} instead of {:?}", ended.value, expected.values);
    for Count { name, least, most, calls, .. } in &expected.effects {
        let applied = effects.applied(name);
        assert!((*least..=*most).contains(&applied), "{name} is lost, or done too often: {effects:?}");
        assert_eq!(effects.keys(name).len(), applied as usize, "{name} has one key each: {effects:?}");
        let most = if *calls == Calls::One { 1 } else { 1 + ended.crashes.len() };
        assert!(effects.most_calls(name) <= most, "{name} is called too often: {effects:?}");
    }
    for (run, history) in &ended.runs {
        assert!(run.status().is_terminal(), "{} is {}\n{history}", run.id(), run.status());
    }
}

/// Perhaps not all of it, but nothing twice, and every run has ended.
fn check_cancelled(expected: &Expected, ended: &Ended<Effects, Values>) {
    let effects = &ended.world;
    for Count { name, most, calls, .. } in &expected.effects {
        assert!(effects.applied(name) <= *most, "{name} is done too often: {effects:?}");
        assert_eq!(effects.keys(name).len(), effects.applied(name) as usize, "{name} has one key each");
        assert!(
            *calls != Calls::One || effects.most_calls(name) <= 1,
            "{name} is called too often: {effects:?}"
        );
    }
    for (run, history) in &ended.runs {
        let cleaned = history.completed("clean up[one]") && history.completed("clean up[two]");
        assert_eq!(run.status() == Status::Cancelled, cleaned, "{} is {}\n{history}", run.id(), run.status());
    }
}
