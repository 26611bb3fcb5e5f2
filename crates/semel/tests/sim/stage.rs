//! The stage: everything that a simulation shares. Its time, its nodes and whether they live, the plan of what goes wrong,
//! what was noted, and the first thing that should not have happened.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use semel::Engine;
use semel::clock::Time;
use semel::id::RunId;
use semel::rules::json::Payload;
use semel::testing::Dice;

use crate::blame::Blame;
use crate::case::{Case, Disturbance, Trouble, What};
use crate::clients::Told;
use crate::figures::Figures;
use crate::oracle::Oracle;
use crate::outside::Provider;
use crate::time::Wait;

/// When a simulation begins.
pub(crate) const DAWN: Time = Time(1_000_000_000);

/// Something that must not happen.
#[derive(Clone, Debug)]
pub(crate) struct Violation {
    /// What kind of thing: a case is shrunk as long as it fails in the same way.
    pub(crate) kind: &'static str,
    pub(crate) message: String,
}

/// What is shared, behind its lock.
pub(crate) struct Stage {
    scene: Mutex<Scene>,
}

/// Where everything stands.
pub(crate) struct Scene {
    pub(crate) now: Time,
    pub(crate) waiting: BTreeMap<(Time, u64), Waker>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) figures: Figures,
    pub(crate) oracle: Oracle,
    pub(crate) provider: Provider,
    /// Nothing goes wrong any more.
    pub(crate) calm: bool,
    /// Every client has its answers, and every run has ended.
    pub(crate) done: bool,
    /// Calls under way that take longer than usual.
    pub(crate) slow: u32,
    pub(crate) told: Told,
    /// Calls about a run that nodes wait for.
    pub(crate) open_calls: BTreeMap<RunId, u32>,
    /// Nodes that died and are to be removed, and the time until another takes their place.
    pub(crate) dead: Vec<(usize, u64)>,
    last_number: u64,
    /// Draws how long ordinary calls take.
    ways: Dice,
    plan: BTreeMap<(usize, What, u32), Trouble>,
    violation: Option<Violation>,
    trace: Trace,
}

/// A node: the place of one engine. The last one has no engine: clients that call the store directly use it.
pub(crate) struct Node {
    pub(crate) engine: Option<Engine>,
    pub(crate) life: u32,
    pub(crate) alive: bool,
    pub(crate) frozen_at: Option<Time>,
    pub(crate) wrong_by: i64,
    pub(crate) deaf: bool,
    thaw: Vec<Waker>,
    counts: BTreeMap<What, u32>,
}

/// All that happened, as a hash; and as text, if a seed is printed.
#[derive(Default)]
struct Trace {
    hash: DefaultHasher,
    lines: Option<Vec<String>>,
}

impl Scene {
    pub(crate) fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// Notes what happened.
    pub(crate) fn note(&mut self, what: impl FnOnce() -> String) {
        let line = format!("{:>7} {}", self.now.0 - DAWN.0, what());
        line.hash(&mut self.trace.hash);
        if let Some(lines) = &mut self.trace.lines {
            lines.push(line);
        }
    }

    /// The first violation counts: what follows may be its consequence.
    pub(crate) fn violate(&mut self, kind: &'static str, message: impl Into<String>) {
        let message = message.into();
        self.note(|| format!("VIOLATION {kind}: {message}"));
        self.violation.get_or_insert(Violation { kind, message });
    }

    /// What goes wrong with the next thing of this kind that a node does.
    pub(crate) fn trouble(&mut self, node: usize, what: What) -> Option<Trouble> {
        let count = self.nodes[node].counts.entry(what).or_default();
        *count += 1;
        let count = *count;
        let trouble = self.plan.get(&(node, what, count)).filter(|_| !self.calm).cloned()?;
        self.note(|| format!("node {node}: {trouble:?}"));
        self.figures.count(trouble.kind(what));
        Some(trouble)
    }

    /// A node dies: nothing that it does takes place from here on.
    pub(crate) fn kill(&mut self, node: usize, down: u64) {
        self.kill_by(node, down, None);
    }

    /// A node dies of what a run does there.
    pub(crate) fn kill_by(&mut self, node: usize, down: u64, run: Option<RunId>) {
        if self.nodes[node].alive {
            self.note(|| format!("node {node} dies"));
            self.figures.count("crashes");
            self.blames(node, run);
            let here = &mut self.nodes[node];
            (here.alive, here.life, here.frozen_at) = (false, here.life + 1, None);
            self.dead.push((node, down));
        }
    }

    pub(crate) fn lives(&self, node: usize, life: u32) -> bool {
        self.nodes[node].alive && self.nodes[node].life == life
    }

    pub(crate) fn thaw(&mut self, node: usize) {
        if self.nodes[node].frozen_at.take().is_some() {
            self.note(|| format!("node {node} goes on"));
        }
        self.nodes[node].thaw.drain(..).for_each(Waker::wake);
    }
}

impl Stage {
    pub(crate) fn new(case: &Case, keep_trace: bool) -> Arc<Self> {
        let node = |place: usize| Node {
            engine: None,
            life: 0,
            alive: place == case.nodes.len(),
            frozen_at: None,
            wrong_by: case.nodes.get(place).map_or(0, |node| node.wrong_by),
            deaf: case.nodes.get(place).is_some_and(|node| node.deaf),
            thaw: Vec::new(),
            counts: BTreeMap::new(),
        };
        let plan = case.troubles.iter().filter_map(Disturbance::planned).collect();
        let poison = case.poison.and_then(|program| Payload::of(&case.programs[program].program).ok());
        let mut scene = Scene {
            now: DAWN,
            waiting: BTreeMap::new(),
            nodes: (0..=case.nodes.len()).map(node).collect(),
            figures: Figures::default(),
            oracle: Oracle::default(),
            provider: Provider::default(),
            calm: false,
            done: false,
            slow: 0,
            told: Told::default(),
            open_calls: BTreeMap::new(),
            dead: Vec::new(),
            last_number: 0,
            ways: Dice::named(case.seed, "ways"),
            plan,
            violation: None,
            trace: Trace { lines: keep_trace.then(Vec::new), ..Trace::default() },
        };
        scene.oracle.blame = Blame::of_poison(poison.map(|input| input.text().to_owned()));
        Arc::new(Self { scene: Mutex::new(scene) })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Scene> {
        // A panic on this stage is a violation of its own; what is here is looked at all the same.
        self.scene.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn until(self: &Arc<Self>, at: Time) -> Wait {
        Wait::new(self.clone(), at)
    }

    /// Waits for `millis` milliseconds.
    pub(crate) async fn pause(self: &Arc<Self>, millis: u64) {
        if millis > 0 {
            let at = self.lock().now.after(Duration::from_millis(millis));
            self.until(at).await;
        }
    }

    /// Goes on when the node is not frozen; never, if that life of it is over.
    pub(crate) async fn gate(&self, node: usize, life: u32) {
        poll_fn(|cx| {
            let mut scene = self.lock();
            if !scene.lives(node, life) {
                return Poll::Pending;
            }
            if scene.nodes[node].frozen_at.is_none() {
                return Poll::Ready(());
            }
            scene.nodes[node].thaw.push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Is over when the next body of a step begins.
    pub(crate) async fn next_body(&self) {
        let before = self.lock().provider.begun();
        poll_fn(|cx| {
            let mut scene = self.lock();
            if scene.provider.begun() > before {
                return Poll::Ready(());
            }
            scene.provider.expectant.push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// A node stands still for a while.
    pub(crate) fn freeze(self: &Arc<Self>, node: usize, millis: u64) {
        let mut scene = self.lock();
        if !scene.nodes[node].alive || scene.nodes[node].frozen_at.is_some() {
            return;
        }
        scene.note(|| format!("node {node} stands still for {millis}"));
        scene.figures.count("stale nodes");
        scene.blames(node, None);
        scene.nodes[node].frozen_at = Some(scene.now);
        let (life, stage) = (scene.nodes[node].life, self.clone());
        drop(scene);
        tokio::spawn(async move {
            stage.pause(millis).await;
            let mut scene = stage.lock();
            if scene.lives(node, life) {
                scene.thaw(node);
            }
        });
    }

    /// How long an ordinary call takes, there and back.
    pub(crate) fn way(&self) -> (u64, u64) {
        let mut scene = self.lock();
        let mut leg = || [0, 0, 0, 1, 1, 2, 5, 20][scene.ways.below(8) as usize];
        (leg(), leg())
    }

    pub(crate) fn violation(&self) -> Option<Violation> {
        self.lock().violation.clone()
    }

    /// The hash of all that happened, and the lines if they were kept.
    pub(crate) fn trace(&self) -> (u64, Vec<String>) {
        let scene = self.lock();
        (scene.trace.hash.finish(), scene.trace.lines.clone().unwrap_or_default())
    }

    /// Advances the time to the next moment that a task waits for. False if no task waits.
    pub(crate) fn pass_time(&self) -> bool {
        let mut scene = self.lock();
        let Some((&(at, _), _)) = scene.waiting.first_key_value() else { return false };
        scene.now = at.max(scene.now);
        let now = scene.now;
        let later = scene.waiting.split_off(&(now, u64::MAX));
        let due = std::mem::replace(&mut scene.waiting, later);
        drop(scene);
        due.into_values().for_each(Waker::wake);
        true
    }

    /// An engine that is alive and not frozen, beginning with this place.
    pub(crate) fn engine_near(&self, place: usize) -> Option<(usize, u32, Engine)> {
        let scene = self.lock();
        let nodes = scene.nodes.len() - 1;
        (0..nodes).map(|i| (place + i) % nodes).find_map(|node| {
            let here = &scene.nodes[node];
            here.engine.clone().filter(|_| here.alive).map(|engine| (node, here.life, engine))
        })
    }
}
