//! Plays a case: opens its nodes, starts clients and operators, advances the time, and asks the oracle for its verdict.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;

use semel::clock::Clock;
use semel::store::Store;
use semel::store::memory::MemoryStore;
use semel::{Engine, Error};
use tokio::runtime::Builder;

use crate::case::{Case, NodeKind, Trouble, When};
use crate::clients::{Client, play_all};
use crate::figures::Figures;
use crate::line::Line;
use crate::outside::Way;
use crate::programs::{World, execute};
use crate::stage::{DAWN, Stage, Violation};
use crate::time::{NodeClock, StoreClock};
use crate::{operator, postman, verdict};

/// Milliseconds after which a play counts as stuck.
const LONGEST: i64 = 5 * 60 * 1000;
/// Number of moments with events after which a play counts as stuck.
const MOST_MOMENTS: u32 = 200_000;

/// The result of a play.
pub(crate) struct Played {
    pub(crate) violation: Option<Violation>,
    pub(crate) figures: Figures,
    /// The hash of all that happened, and all of it in words, if that was asked for.
    pub(crate) hash: u64,
    pub(crate) lines: Vec<String>,
}

thread_local! {
    /// What panicked on this thread.
    static PANICKED: RefCell<Option<String>> = const { RefCell::new(None) };
    /// Whether a simulation is under way on it.
    static PLAYS: Cell<bool> = const { Cell::new(false) };
}

/// A panic in a task of the engine is a violation, and no news for the terminal.
pub(crate) fn note_panics() {
    let ordinary = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !PLAYS.get() {
            return ordinary(panic);
        }
        let text = panic.to_string();
        PANICKED.with(|panicked| panicked.borrow_mut().get_or_insert(text).truncate(2_000));
    }));
}

pub(crate) fn play(case: &Case, keep_trace: bool) -> Played {
    PANICKED.take();
    PLAYS.set(true);
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime can be made");
    let stage = Stage::new(case, keep_trace);
    runtime.block_on(perform(&stage, &Arc::new(case.clone())));
    // With the engines goes what they hold of the stage.
    let engines: Vec<_> = stage.lock().nodes.iter_mut().map(|node| node.engine.take()).collect();
    drop(engines);
    drop(runtime);
    PLAYS.set(false);
    if let Some(text) = PANICKED.take() {
        stage.lock().violate("panic", text);
    }
    let (hash, lines) = stage.trace();
    let figures = stage.lock().figures.clone();
    Played { violation: stage.violation(), figures, hash, lines }
}

async fn perform(stage: &Arc<Stage>, case: &Arc<Case>) {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Arc::new(StoreClock(stage.clone()))));
    let front = Line::open(stage, &store, case.nodes.len());
    for (node, kind) in case.nodes.iter().enumerate() {
        tokio::spawn(live(stage.clone(), store.clone(), node, *kind));
    }
    let client = Client { stage: stage.clone(), front: front.clone(), node: 0, direct: false };
    play_all(stage, case, &front);
    tokio::spawn(postman::go_round(client.clone(), case.clone()));
    tokio::spawn(operator::go_round(client, case.clone()));
    disturb(stage, case);
    pass_the_time(stage, case, &store).await;
    if stage.violation().is_none() {
        verdict::give(stage, case, &*store).await;
    }
}

/// What happens at a time; and after the storm nothing of the kind.
fn disturb(stage: &Arc<Stage>, case: &Case) {
    for disturbance in &case.troubles {
        let (stage, node, trouble) = (stage.clone(), disturbance.node, disturbance.trouble.clone());
        let When::At(at) = disturbance.when else { continue };
        tokio::spawn(async move {
            stage.pause(at).await;
            match trouble {
                Trouble::Dies { down, .. } => stage.lock().kill(node, down),
                Trouble::StandsStill { millis } => stage.freeze(node, millis),
                other => unreachable!("{other:?} happens at a call"),
            }
        });
    }
    let (stage, storm) = (stage.clone(), case.storm);
    tokio::spawn(async move {
        stage.pause(storm).await;
        let mut scene = stage.lock();
        scene.note(|| "from here on all is calm".to_owned());
        scene.calm = true;
        (0..scene.nodes.len()).for_each(|node| scene.thaw(node));
    });
}

/// One life of a node: it opens its engine, and tries again if the store does not let it.
async fn live(stage: Arc<Stage>, store: Arc<dyn Store>, node: usize, kind: NodeKind) {
    let life = {
        let mut scene = stage.lock();
        scene.note(|| format!("node {node} begins"));
        scene.nodes[node].alive = true;
        scene.nodes[node].life
    };
    loop {
        let way: Arc<dyn Store> = Line::open(&stage, &store, node);
        let clock: Arc<dyn Clock> = Arc::new(NodeClock { stage: stage.clone(), node, life });
        let world = World(Arc::new(Way { stage: stage.clone(), node, life }));
        let engine = Engine::builder().store(way).clock(clock).limits(kind.limits()).state(world);
        match engine.workflow("program", execute).open().await {
            Ok(engine) => {
                let before = {
                    let mut scene = stage.lock();
                    let lives = scene.lives(node, life);
                    if lives { scene.nodes[node].engine.replace(engine) } else { Some(engine) }
                };
                // Not under the lock: what an engine drops has a place on the stage.
                drop(before);
                return;
            }
            Err(Error::Unavailable(_) | Error::Unknown(_) | Error::NodeLost(_)) => stage.pause(100).await,
            Err(error) => {
                stage.lock().violate("open", format!("node {node} cannot be opened: {error}"));
                return;
            }
        }
    }
}

async fn pass_the_time(stage: &Arc<Stage>, case: &Arc<Case>, store: &Arc<dyn Store>) {
    for moment in 0.. {
        until_nothing_moves().await;
        bury(stage, case, store).await;
        if let Some(text) = PANICKED.take() {
            stage.lock().violate("panic", text);
        }
        let (now, done) = {
            let scene = stage.lock();
            // A start that came late may have made another run since the operator went round.
            (scene.now, scene.done && operator::all_over(&scene))
        };
        if done || stage.violation().is_some() {
            return;
        }
        if now.0 - DAWN.0 > LONGEST || moment > MOST_MOMENTS || !stage.pass_time() {
            let how = verdict::how_things_stand(&stage.lock());
            stage.lock().violate("stuck", how);
            return;
        }
    }
}

/// The runtime's own time stands still while anything can move: a wait for it is over when nothing does.
async fn until_nothing_moves() {
    let moment = Duration::from_millis(1);
    let _over = tokio::time::timeout(moment, std::future::pending::<()>()).await;
}

/// Removes the engines of dead nodes, and opens new ones in their places.
async fn bury(stage: &Arc<Stage>, case: &Arc<Case>, store: &Arc<dyn Store>) {
    let dead = std::mem::take(&mut stage.lock().dead);
    for (node, down) in dead {
        let engine = stage.lock().nodes[node].engine.take();
        if let Some(engine) = engine {
            engine.crash().await;
        }
        let (stage, store, kind) = (stage.clone(), store.clone(), case.nodes[node]);
        tokio::spawn(async move {
            stage.pause(down).await;
            live(stage, store, node, kind).await;
        });
    }
}
