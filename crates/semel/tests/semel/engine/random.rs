//! Random programs, each undisturbed and then killed before and after every one of its writes. `SEMEL_SEED=7` plays
//! program 7 alone, and `SEMEL_SEED=200..1000` these.

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
use semel::tx::{self, SqliteDb, SqliteTx};
use semel::{Ctx, Error, Limits};

use super::crash_examples::now;
use crate::programs::{Answer, Calls, Count, Expected, Outside, Pace, Program, World, draw, execute};

const PROGRAMS: u64 = 200;
const AT_ONCE: u64 = 25;
const MORE: usize = 4;

/// Time costs nothing here: the limit of a race is longer than all that can be inside.
const PACE: Pace = Pace {
    acts: 9,
    depth: 3,
    waits: [3, 15, 500, 60_000],
    in_vain: 30_000,
    limit: |depth, _| (true, 36_000_000 * 20u64.pow(depth - 1)),
    company: false,
    close: None,
    bank: true,
};

/// The world outside: a provider, and a database of the user's.
#[derive(Clone, Debug)]
struct Town {
    effects: Effects,
    bank: SqliteDb,
}

impl Town {
    fn fresh() -> Self {
        let bank = now(async {
            let bank = SqliteDb::open(":memory:").await?;
            tx::install(&bank).await?;
            bank.call(|conn| conn.execute_batch("CREATE TABLE paid (name)")).await?;
            Ok(bank)
        });
        Self { effects: Effects::new(), bank }
    }

    /// How often an effect has taken place.
    fn applied(&self, Count { name, calls, .. }: &Count) -> u32 {
        if *calls != Calls::Rows {
            return self.effects.applied(name);
        }
        let (rows, name) = ("SELECT count(*) FROM paid WHERE name = ?1", name.clone());
        now(async { Ok(self.bank.call(move |conn| conn.query_row(rows, [name], |row| row.get(0))).await?) })
    }
}

impl Outside for Town {
    fn apply(&self, name: String, key: String, _once: Option<RunId>) -> Answer<'_, u32> {
        Box::pin(async move { self.effects.apply(&name, &key) })
    }

    fn find(&self, key: String) -> Answer<'_, Option<u32>> {
        Box::pin(async move { Ok(self.effects.find(&key)) })
    }

    fn calls_under(&self, key: &str) -> usize {
        self.effects.calls_under(key)
    }

    fn pay(&self, ctx: Ctx, name: String) -> Answer<'_, String> {
        Box::pin(async move {
            let body = async |mut tx: SqliteTx| {
                let (insert, row) = ("INSERT INTO paid VALUES (?1)", name.clone());
                tx.call(move |conn| Ok(conn.execute(insert, [row])?)).await?;
                tx.commit(name.clone()).await
            };
            ctx.tx(name.clone(), &self.bank).run(body).await
        })
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
            (first..end).for_each(play);
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

fn play(seed: u64) {
    let program = draw(seed, "p", PACE);
    let shown = Seed(seed, program.clone());
    let expected = Expected::of(&program);
    let crasher = crasher(seed, program.clone(), None);
    let undisturbed = everywhere(seed, &crasher, |ended| check(&expected, ended));
    // Asked to end at some point, the program may have any outcome, but only one.
    let entries = undisturbed.history().kinds().len() as u64;
    let at = Dice::new(seed).below(entries) as usize;
    let crasher = self::crasher(seed, program, Some(at));
    everywhere(seed, &crasher, |ended| check_cancelled(&expected, ended));
    drop(shown);
}

fn crasher(seed: u64, program: Program, cancel: Option<usize>) -> Crasher<Town, Values> {
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
        Town::fresh,
        move |town, engine| limits(engine).state(World(Arc::new(town.clone()))).workflow("program", execute),
        async move |scene: Scene<Town>| script(scene, program.clone(), cancel).await,
    )
    // And some have a store that takes its time.
    .slow_store([0, 1, 3][seed as usize % 3])
}

/// Crashes at every point. Every [`MORE`]th crash is followed by another one at some point of the life after it, and every
/// [`MORE`]th fault comes about too.
fn everywhere(
    seed: u64,
    crasher: &Crasher<Town, Values>,
    check: impl Fn(&Ended<Town, Values>),
) -> Ended<Town, Values> {
    let undisturbed = crasher.undisturbed();
    check(&undisturbed);
    let mut dice = Dice::new(seed);
    let mut draw = |mut points: Vec<Point>| match points.len() {
        0 => None,
        left => Some(points.swap_remove(dice.below(left as u64) as usize)),
    };
    let points = Crasher::<Town, Values>::points;
    let from = seed as usize % MORE;
    for (i, first) in points(&undisturbed.lives[0]).into_iter().enumerate() {
        let once = crasher.check(&undisturbed.value, std::slice::from_ref(&first), &check);
        if i % MORE == from
            && let Some(second) = once.lives.get(1).and_then(|life| draw(points(life)))
        {
            crasher.check(&undisturbed.value, &[first, second], &check);
        }
    }
    for fault in Crasher::<Town, Values>::faults(&undisturbed.lives[0]).into_iter().skip(from).step_by(MORE) {
        crasher.check(&undisturbed.value, &[fault], &check);
    }
    undisturbed
}

/// Starts the program, delivers what its hooks wait for, and resolves letters in doubt.
async fn script(scene: Scene<Town>, program: Program, cancel: Option<usize>) -> Result<Values, Error> {
    let expected = Expected::of(&program);
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
        for (token, wanted) in &expected.tokens {
            if delivered.contains(token) || scene.owner(token).await?.is_none() {
                continue;
            }
            for i in 0..*wanted {
                match scene
                    .engine()
                    .deliver(token, expected.payload(token, i))
                    .id(format!("{token} {i}"))
                    .await
                {
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
    if cancel.is_some() {
        return Ok(Vec::new());
    }
    let replay = scene.engine().replay(run.id()).await?;
    assert!(replay.is_identical(), "the same code finds another run\n{replay}");
    run.result().await
}

/// Whether some run has not ended.
async fn open(scene: &Scene<Town>) -> Result<bool, Error> {
    Ok(scene.runs().await?.iter().any(|run| !run.status().is_terminal()))
}

async fn settle_doubts(scene: &Scene<Town>) -> Result<(), Error> {
    for run in scene.runs().await?.iter().filter(|run| run.status() == Status::Paused) {
        let history = scene.history(run.id()).await?;
        let doubts = history.in_doubt();
        assert!(!doubts.is_empty(), "{} is paused: {:?}\n{history}", run.id(), history.pause());
        for doubt in doubts {
            let key = EffectKey::of(run.new.workspace, run.new.lineage, &doubt, "").to_string();
            let (path, sent) = (doubt.to_string(), scene.world().effects.find(&key));
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

fn check(expected: &Expected, ended: &Ended<Town, Values>) {
    let effects = &ended.world.effects;
    assert!(expected.fits(&ended.value), "{:?} instead of {:?}", ended.value, expected.values);
    for count in &expected.effects {
        let (Count { name, least, most, calls, .. }, applied) = (count, ended.world.applied(count));
        assert!((*least..=*most).contains(&applied), "{name} is lost, or done too often: {effects:?}");
        if *calls == Calls::Rows {
            continue;
        }
        assert_eq!(effects.keys(name).len(), applied as usize, "{name} has one key each: {effects:?}");
        let most = if *calls == Calls::One { 1 } else { 1 + ended.crashes.len() };
        assert!(effects.most_calls(name) <= most, "{name} is called too often: {effects:?}");
    }
    for (run, history) in &ended.runs {
        assert!(run.status().is_terminal(), "{} is {}\n{history}", run.id(), run.status());
    }
}

/// Perhaps not all of it, but nothing twice, and every run has ended.
fn check_cancelled(expected: &Expected, ended: &Ended<Town, Values>) {
    let effects = &ended.world.effects;
    for count in &expected.effects {
        let Count { name, most, calls, .. } = count;
        assert!(ended.world.applied(count) <= *most, "{name} is done too often: {effects:?}");
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
