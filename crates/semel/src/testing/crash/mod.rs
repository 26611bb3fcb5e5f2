//! Crashes at every boundary: a workflow is run undisturbed, and then again for each of its durable writes, with an
//! engine that dies there.
//!
//! Each engine has a runtime of its own, on one thread and with a clock that stands still, so that a crash can be repeated
//! exactly. When the engine dies, the runtime is dropped with all that was under way.

pub(crate) mod fate;
mod point;
mod scene;
mod store;

use std::fmt;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

pub use self::point::{Moment, Point, Side};
pub use self::scene::Scene;

use self::fate::Fate;
use self::store::Mortal;
use super::{LedgerView, ManualClock};
use crate::clock::{Clock, Time};
use crate::engine::{Builder, Engine, Limits};
use crate::error::{Error, Result};
use crate::id::{NodeId, WorkspaceId};
use crate::rules::ledger::Ledger;
use crate::rules::run::Run;
use crate::store::layer::Layered;
use crate::store::memory::MemoryStore;
use crate::store::{Lease, LeaseAct, Store};

type Playing<T> = Pin<Box<dyn Future<Output = Result<T>>>>;
type Script<W, T> = Box<dyn Fn(Scene<W>) -> Playing<T>>;
type Build<W> = Box<dyn Fn(&W, Builder) -> Builder>;
/// All runs, each with its history.
type Runs = Vec<(Run, LedgerView)>;

/// Kills the engine before and after every durable write, and lets another one continue.
///
/// It has three parts: the *world* that survives every crash (an [`Effects`](super::Effects), as a rule), the
/// *engine* that works in it, and the *script* that plays the clients. Every play has a fresh world and an empty store.
/// The script gives a value, and that must be the same with and without crashes.
///
/// ```
/// use semel::testing::{Crasher, Effects, Scene};
/// use semel::{Ctx, Result};
/// use std::time::Duration;
///
/// async fn order(ctx: Ctx, items: Vec<String>) -> Result<usize> {
///     let effects = ctx.state::<Effects>();
///     ctx.step("charge").run(async |attempt| effects.apply("charge", attempt.key())).await?;
///     for item in &items {
///         ctx.step("pack").key(item).run(async |attempt| effects.apply("pack", attempt.key())).await?;
///     }
///     ctx.sleep("cool off", Duration::from_secs(600)).await?;
///     Ok(items.len())
/// }
///
/// let crasher = Crasher::new(
///     Effects::new,
///     |effects, engine| engine.state(effects.clone()).workflow("order", order),
///     async |scene: Scene<Effects>| {
///         let items = vec!["book".to_owned(), "pen".to_owned()];
///         scene.engine().start(order, items).key("order-7").await?.result().await
///     },
/// );
/// let plays = crasher.every_boundary(|ended| {
///     assert_eq!(ended.world.applied("charge"), 1);
///     assert_eq!(ended.world.keys("pack").len(), 2, "two effects, two keys, however often they were called");
/// });
/// assert!(plays > 10);
/// ```
///
/// The bodies of steps must not wait for the real world: time passes as soon as nothing moves in the store. Those of
/// transactional steps may, for their database: the clock stands still meanwhile.
pub struct Crasher<W, T> {
    world: Box<dyn Fn() -> W>,
    build: Build<W>,
    script: Script<W, T>,
    turns: u32,
}

impl<W, T> fmt::Debug for Crasher<W, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Crasher")
    }
}

/// The result of a play.
#[derive(Debug)]
pub struct Ended<W, T> {
    /// The value that the script returned.
    pub value: T,
    /// What survived the crashes.
    pub world: W,
    /// The crashes and faults of the play, in their order.
    pub crashes: Vec<Point>,
    /// All runs, the oldest first, each with its history.
    pub runs: Vec<(Run, LedgerView)>,
    /// The writes of each life: the names of the store's calls.
    pub lives: Vec<Vec<&'static str>>,
}

impl<W, T> Ended<W, T> {
    /// The history of the first run that was started.
    ///
    /// # Panics
    /// If there is none.
    pub fn history(&self) -> &LedgerView {
        &self.runs.first().expect("a run was started").1
    }
}

/// One life of an engine: the script's value and the runs, unless it died before.
struct Life<T> {
    end: Option<(Result<T>, Runs)>,
    writes: Vec<&'static str>,
    nodes: Vec<NodeId>,
}

impl<W, T> Crasher<W, T>
where
    W: Clone + 'static,
    T: PartialEq + fmt::Debug + 'static,
{
    /// Describes a play: see [`Crasher`].
    pub fn new<S>(
        world: impl Fn() -> W + 'static,
        build: impl Fn(&W, Builder) -> Builder + 'static,
        script: S,
    ) -> Self
    where
        S: AsyncFn(Scene<W>) -> Result<T> + 'static,
    {
        let script = Rc::new(script);
        let script = move |scene| {
            let script = script.clone();
            Box::pin(async move { script(scene).await }) as Playing<T>
        };
        Self { world: Box::new(world), build: Box::new(build), script: Box::new(script), turns: 0 }
    }

    /// Delays every call to the store, and every answer, by this number of turns of all other tasks (at most 8). The
    /// memory store answers at once; others do not, and what happens meanwhile is a test of its own.
    #[must_use]
    pub fn slow_store(self, turns: u32) -> Self {
        Self { turns: turns.min(8), ..self }
    }

    /// Plays without a crash.
    pub fn undisturbed(&self) -> Ended<W, T> {
        self.play(&[])
    }

    /// Plays with an engine that dies when the step at this path is met, and another that goes on.
    ///
    /// # Panics
    /// If no step at this path is met: a test that does not do what it says proves nothing.
    pub fn crash_at(&self, path: &str, moment: Moment) -> Ended<W, T> {
        let ended = self.play(&[Point::Body(path.to_owned(), moment)]);
        assert!(!ended.crashes.is_empty(), "no step {path:?} was met\n{}", ended.history());
        ended
    }

    /// Plays with an engine that dies at the first point, one that goes on and dies at the second (counted from its own
    /// beginning), and so on; the last one finishes.
    ///
    /// # Panics
    /// If the script fails, or if nothing moves any more.
    pub fn play(&self, points: &[Point]) -> Ended<W, T> {
        let context = Context(points);
        let world = (self.world)();
        let clock = Arc::new(ManualClock::new(Time(1_000_000), 0));
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(clock.clone()));
        let (mut crashes, mut lives, mut nodes) = (Vec::new(), Vec::new(), Vec::new());
        for end in points.iter().cloned().map(Some).chain([None]) {
            let life = self.live(&world, &clock, &store, &nodes, end.clone());
            lives.push(life.writes);
            nodes = life.nodes;
            if life.end.is_none() || matches!(end, Some(Point::Answer(..))) {
                crashes.extend(end);
            }
            let Some((value, runs)) = life.end else { continue };
            let value = value.unwrap_or_else(|error| panic!("the script failed: {error}\n{}", listed(&runs)));
            check_ledgers(&runs);
            drop(context);
            return Ended { value, world, crashes, runs, lives };
        }
        unreachable!("the last life has no end before the script's")
    }

    /// One engine, from its opening to its end.
    fn live(
        &self,
        world: &W,
        clock: &Arc<ManualClock>,
        store: &Arc<dyn Store>,
        dead: &[NodeId],
        end: Option<Point>,
    ) -> Life<T> {
        let fate = Arc::new(Fate::new(end, self.turns));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime can be made");
        let end = runtime.block_on(async {
            for node in dead {
                // The lease of a process that is known to be dead is not waited for.
                // Not in good order: its lease ends.
                let ends = LeaseAct::Join(Duration::ZERO);
                store.lease(Lease { node: *node, act: ends }).await.expect("the store works");
            }
            let engine = self.open(world, clock, store, &fate).await;
            let (world, clock, store, fate) = (world.clone(), clock.clone(), store.clone(), fate.clone());
            let scene = Scene { engine: engine.clone(), world, clock, store, fate: fate.clone() };
            let ended = tokio::select! {
                biased;
                () = fate.died() => None,
                value = self.perform(&scene) => Some(value),
                stuck = scene.pass_time() => panic!("nothing moves any more:\n{stuck}"),
            };
            let runs = read(&scene).await;
            // Messages that are still under way are lost from here on.
            fate.die();
            engine.crash().await;
            ended.map(|value| (value, runs))
        });
        Life { end, writes: fate.writes(), nodes: fate.nodes() }
    }

    /// Plays the script, again if the store did not answer it: that is what clients do.
    async fn perform(&self, scene: &Scene<W>) -> Result<T> {
        loop {
            match (self.script)(scene.clone()).await {
                Err(Error::Unavailable(_) | Error::Unknown(_)) => {}
                ended => return ended,
            }
        }
    }

    async fn open(
        &self,
        world: &W,
        clock: &Arc<ManualClock>,
        store: &Arc<dyn Store>,
        fate: &Arc<Fate>,
    ) -> Engine {
        let mortal: Arc<dyn Store> = Arc::new(Layered(Mortal::new(store.clone(), fate.clone())));
        // Only a crash takes the lease away, however far the clock is moved.
        let limits = Limits { lease: Duration::from_hours(24 * 365 * 100), ..Limits::default() };
        let builder = Engine::builder()
            .store(mortal)
            .clock(clock.clone() as Arc<dyn Clock>)
            .limits(limits)
            .workspace(WorkspaceId::DEFAULT)
            .probe(fate.clone());
        (self.build)(world, builder).open().await.expect("the engine opens")
    }

    /// All points at which an engine with these writes can die.
    pub fn points(writes: &[&'static str]) -> Vec<Point> {
        let sides = |(i, write): (usize, &&str)| {
            // What is before a claim is after the write before it.
            let before = (*write != "claim").then_some(Point::Write(i + 1, Side::Before));
            before.into_iter().chain([Point::Write(i + 1, Side::After)])
        };
        writes.iter().enumerate().flat_map(sides).collect()
    }

    /// Plays undisturbed, then once for every write and both of its sides. Gives the number of plays.
    ///
    /// # Panics
    /// If the value of the script is another one with a crash than without, or if `check` says so.
    pub fn every_boundary(&self, check: impl Fn(&Ended<W, T>)) -> usize {
        let undisturbed = self.undisturbed();
        check(&undisturbed);
        let points = Self::points(&undisturbed.lives[0]);
        for point in &points {
            self.check(&undisturbed.value, std::slice::from_ref(point), &check);
        }
        1 + points.len()
    }

    /// The same with lost answers instead of crashes: each write fails once without taking place, and once after taking place.
    ///
    /// # Panics
    /// As [`Crasher::every_boundary`].
    pub fn every_fault(&self, check: impl Fn(&Ended<W, T>)) -> usize {
        let undisturbed = self.undisturbed();
        let faults = Self::faults(&undisturbed.lives[0]);
        for fault in &faults {
            self.check(&undisturbed.value, std::slice::from_ref(fault), &check);
        }
        1 + faults.len()
    }

    /// All faults that an engine with these writes can have.
    pub fn faults(writes: &[&'static str]) -> Vec<Point> {
        let fault = |point| match point {
            Point::Write(number, side) => Point::Answer(number, side),
            other => other,
        };
        Self::points(writes).into_iter().map(fault).collect()
    }

    /// The same with two crashes: for every write the engine dies there, and the next one at each of its own.
    ///
    /// # Panics
    /// As [`Crasher::every_boundary`].
    pub fn every_two_boundaries(&self, check: impl Fn(&Ended<W, T>)) -> usize {
        let undisturbed = self.undisturbed();
        let mut plays = 1;
        for first in Self::points(&undisturbed.lives[0]) {
            let once = self.check(&undisturbed.value, std::slice::from_ref(&first), &check);
            let seconds = once.lives.get(1).map(|life| Self::points(life)).unwrap_or_default();
            plays += 1 + seconds.len();
            for second in seconds {
                self.check(&undisturbed.value, &[first.clone(), second], &check);
            }
        }
        plays
    }

    /// Plays with these crashes and compares.
    ///
    /// # Panics
    /// If the value is not the expected one, or if `check` says so.
    pub fn check(&self, expected: &T, points: &[Point], check: impl Fn(&Ended<W, T>)) -> Ended<W, T> {
        let ended = self.play(points);
        let context = Context(points);
        let told = LedgersOnPanic(&ended.runs);
        assert_eq!(ended.value, *expected, "the crash has changed the result");
        check(&ended);
        drop((context, told));
        ended
    }
}

async fn read<W>(scene: &Scene<W>) -> Runs {
    let mut read = Vec::new();
    for run in scene.runs().await.expect("the store works") {
        let history = scene.history(run.id()).await.expect("the store works");
        read.push((run, history));
    }
    read
}

/// Every ledger can be read, and says of its run what the header says.
fn check_ledgers(runs: &[(Run, LedgerView)]) {
    for (run, history) in runs {
        let entries: Vec<_> = history.entries().cloned().collect();
        let length = entries.len() as u64;
        match Ledger::read(run.clone(), entries) {
            Ok(ledger) => {
                let told = (ledger.run().status(), ledger.run().state.version);
                assert_eq!(
                    told,
                    (run.status(), length),
                    "header and ledger of {} differ\n{history}",
                    run.id()
                );
            }
            Err(refused) => panic!("the ledger of {} cannot be read: {refused}\n{history}", run.id()),
        }
    }
}

fn listed(runs: &[(Run, LedgerView)]) -> String {
    let line = |(run, history): &(Run, LedgerView)| {
        format!("{} {} {}\n{history}", run.id(), run.new.workflow, run.status())
    };
    runs.iter().map(line).collect()
}

/// Says where the engine died, if an assertion fails.
struct Context<'a>(&'a [Point]);

impl Drop for Context<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let points: Vec<_> = self.0.iter().map(ToString::to_string).collect();
            eprintln!(
                "the engine died {}",
                if points.is_empty() { "nowhere".into() } else { points.join(", then ") }
            );
        }
    }
}

/// Shows the ledgers, if an assertion fails.
struct LedgersOnPanic<'a>(&'a [(Run, LedgerView)]);

impl Drop for LedgersOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", listed(self.0));
        }
    }
}
