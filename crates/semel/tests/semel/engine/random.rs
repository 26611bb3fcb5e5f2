//! Random programs, each undisturbed and then killed at many of its writes. `SEMEL_SEED=7` plays program 7 alone, at every
//! write.

use std::collections::HashSet;

use libtest_mimic::Trial;
use semel::Error;
use semel::rules::entry::Resolution;
use semel::rules::json::Payload;
use semel::rules::status::Status;
use semel::testing::{Crasher, Effects, Ended, Point, Scene};

use super::program::{Dice, Expected, Program, draw, execute};

const PROGRAMS: u64 = 200;
const AT_ONCE: u64 = 25;
/// So many crashes of each program, and so many pairs of them.
const CRASHES: usize = 10;
const PAIRS: usize = 2;

pub(crate) fn trials() -> Vec<Trial> {
    let chosen = std::env::var("SEMEL_SEED").ok().and_then(|seed| seed.parse().ok());
    let groups: Vec<(u64, u64)> = match chosen {
        Some(seed) => vec![(seed, seed + 1)],
        None => (0..PROGRAMS).step_by(AT_ONCE as usize).map(|first| (first, first + AT_ONCE)).collect(),
    };
    let trial = |(first, end): (u64, u64)| {
        Trial::test(format!("engine::crash::random_programs_from_{first}"), move || {
            (first..end).for_each(|seed| play(seed, chosen.is_some()));
            Ok(())
        })
    };
    groups.into_iter().map(trial).collect()
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
    let program = draw(seed);
    let shown = Seed(seed, program.clone());
    let (expected, scripted) = (Expected::of(&program), program.clone());
    let crasher = Crasher::new(
        Effects::new,
        |effects, engine| engine.state(effects.clone()).workflow("program", execute),
        async move |scene: Scene<Effects>| script(scene, scripted.clone()).await,
    );
    let check = |ended: &Ended<Effects, Values>| check(&expected, ended);
    if everywhere {
        crasher.every_boundary(check);
    } else {
        sample(seed, &crasher, check);
    }
    drop(shown);
}

fn sample(seed: u64, crasher: &Crasher<Effects, Values>, check: impl Fn(&Ended<Effects, Values>)) {
    let undisturbed = crasher.undisturbed();
    check(&undisturbed);
    let mut dice = Dice::new(seed);
    let mut draw = |points: &mut Vec<Point>| match points.len() {
        0 => None,
        left => Some(points.swap_remove(dice.below(left as u64) as usize)),
    };
    let points = Crasher::<Effects, Values>::points;
    let mut firsts = points(&undisturbed.lives[0]);
    for crash in 0..CRASHES {
        let Some(first) = draw(&mut firsts) else { return };
        let once = crasher.check(&undisturbed.value, std::slice::from_ref(&first), &check);
        if crash < PAIRS
            && let Some(second) = once.lives.get(1).and_then(|life| draw(&mut points(life)))
        {
            crasher.check(&undisturbed.value, &[first, second], &check);
        }
    }
}

/// Starts the program, delivers what its hooks wait for, and says what became of letters in doubt.
async fn script(scene: Scene<Effects>, program: Program) -> Result<Values, Error> {
    let tokens = Expected::of(&program).tokens;
    let run = scene.engine().start(execute, program).key("program").await?;
    let mut delivered = HashSet::new();
    while !scene.status(run.id()).await?.is_terminal() {
        for (token, wanted) in &tokens {
            if delivered.contains(token) || scene.owner(token).await?.is_none() {
                continue;
            }
            for i in 0..*wanted {
                scene.engine().deliver(token, i).id(format!("{token} {i}")).await?;
            }
            delivered.insert(token.clone());
        }
        settle_doubts(&scene).await?;
        tokio::task::yield_now().await;
    }
    run.result().await
}

async fn settle_doubts(scene: &Scene<Effects>) -> Result<(), Error> {
    for run in scene.runs().await?.iter().filter(|run| run.status() == Status::Paused) {
        let history = scene.history(run.id()).await?;
        let doubts = history.in_doubt();
        assert!(!doubts.is_empty(), "{} is paused: {:?}\n{history}", run.id(), history.pause());
        for doubt in doubts {
            let (path, sent) = (doubt.to_string(), scene.world().find(&format!("{} {doubt}", run.id())));
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
    for (name, times, exact) in &expected.effects {
        assert_eq!(effects.applied(name), *times, "{name} is lost, or done too often: {effects:?}");
        assert_eq!(effects.keys(name).len(), *times as usize, "{name} has one key each: {effects:?}");
        let most = if *exact { 1 } else { 1 + ended.crashes.len() };
        assert!(effects.most_calls(name) <= most, "{name} is called too often: {effects:?}");
    }
    for (run, history) in &ended.runs {
        assert!(run.status().is_terminal(), "{} is {}\n{history}", run.id(), run.status());
    }
}
