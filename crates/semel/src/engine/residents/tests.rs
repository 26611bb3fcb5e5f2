//! A run that leaves memory at the moment at which it is claimed again. These tests have one thread and await nothing in
//! between, so no other task has a turn.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::*;
use crate::clock::Time;
use crate::engine::{Core, Limits};
use crate::id::WorkspaceId;
use crate::rules::status::Status;
use crate::testing::ManualClock;
use crate::{Ctx, Engine, Result, RunHandle};

/// What happens when the workflow is dropped: its driver has decided to leave, and has not left yet.
#[derive(Default)]
struct Meanwhile(Mutex<Option<Box<dyn FnOnce() + Send>>>);

struct Dropped(Arc<Meanwhile>);

impl Drop for Dropped {
    fn drop(&mut self) {
        let happens = self.0.0.lock().expect("it works").take();
        if let Some(happens) = happens {
            happens();
        }
    }
}

async fn nap(ctx: Ctx, (): ()) -> Result<u32> {
    let _dropped = Dropped(ctx.state());
    ctx.sleep("nap", Duration::from_hours(1)).await?;
    Ok(7)
}

/// A run that rests and is due, and the claim of it that this engine has just been given.
async fn claimed(meanwhile: &Arc<Meanwhile>) -> (Engine, RunHandle<u32>, Arc<Cell>, Claimed) {
    let clock = Arc::new(ManualClock::new(Time(1_000_000), 0));
    let limits = Limits { lease: Duration::from_hours(24), ..Limits::default() };
    let builder = Engine::builder().store("memory:").clock(clock.clone()).limits(limits);
    let builder = builder.shared_state(meanwhile.clone()).workflow("nap", nap);
    let engine = builder.open().await.expect("the engine opens");
    let run = engine.start(nap, ()).await.expect("it works");
    let core = engine.core();
    let cell = core.residents.get(run.id()).expect("it was started here");
    while !core.residents.rests(&cell) {
        tokio::task::yield_now().await;
    }
    clock.advance(Duration::from_hours(1));
    assert_eq!(core.residents.reserve(1), 1, "there is room");
    let mut claims = core.store.claim(core.claim(1)).await.expect("it works");
    let claimed = claims.runs.pop().expect("it is due");
    assert!(claimed.entries.is_none(), "its ledger is here");
    (engine, run, cell, claimed)
}

async fn ends(run: &RunHandle<u32>) {
    let ended = tokio::time::timeout(Duration::from_secs(30), run.result()).await;
    assert_eq!(ended.expect("it has a driver").expect("it ends well"), 7);
    assert_eq!(run.status().await.expect("it works"), Status::Completed);
}

fn taken(core: &Core) -> usize {
    core.residents.taken.load(Ordering::SeqCst)
}

#[tokio::test]
async fn a_claim_after_an_eviction_is_given_back() {
    let (engine, run, cell, claimed) = claimed(&Arc::default()).await;
    let core = engine.core();
    core.residents.evict(run.id());
    assert!(!core.residents.holds(cell.num, claimed.run.state.version - 1), "no claim relies on it");
    let claimed = core.residents.wake(Box::new(claimed)).expect_err("its driver is leaving");
    core.take(*claimed);
    ends(&run).await;
    assert_eq!(taken(core), 0, "and its slot is free");
}

#[tokio::test]
async fn a_claim_before_an_eviction_is_driven() {
    let (engine, run, _, claimed) = claimed(&Arc::default()).await;
    let core = engine.core();
    core.take(claimed);
    core.residents.evict(run.id());
    ends(&run).await;
    assert_eq!(taken(core), 0);
}

#[tokio::test]
async fn a_claim_that_meets_a_leaving_driver_is_not_lost() {
    // What rests leaves for others to have room, because it is lost, or because the engine stops.
    let ways: [fn(&Core, &Arc<Cell>); 3] = [
        |core, cell| core.residents.evict(cell.id),
        |_, cell| cell.order(|orders| orders.lost = true),
        |_, cell| cell.order(|orders| orders.stop = true),
    ];
    for leave in ways {
        let meanwhile = Arc::new(Meanwhile::default());
        let (engine, run, cell, claimed) = claimed(&meanwhile).await;
        let core = engine.core().clone();
        let late = core.clone();
        *meanwhile.0.lock().expect("it works") = Some(Box::new(move || late.take(claimed)));
        leave(&core, &cell);
        ends(&run).await;
        assert_eq!(taken(&core), 0);
    }
}

#[tokio::test]
async fn a_claim_is_not_lost_with_the_one_before_it() {
    let (engine, run, cell, claimed) = claimed(&Arc::default()).await;
    let core = engine.core();
    // The end of the earlier claim is learnt late: the run rests here, and its driver has had no turn since.
    cell.lose(cell.claim());
    core.take(claimed);
    ends(&run).await;
    assert_eq!(taken(core), 0);
}

#[tokio::test]
async fn a_run_that_rests_as_it_is_in_the_store_is_still_this_nodes() {
    let meanwhile = Arc::default();
    let (engine, run, cell, claimed) = claimed(&meanwhile).await;
    let core = engine.core();
    core.check_taken(&cell).await.expect("it works");
    assert!(!cell.is_lost(), "this engine has claimed it again");
    core.take(claimed);
    ends(&run).await;
}

async fn all_free(core: &Core) {
    let free = async {
        while taken(core) > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), free).await.expect("its slot is free");
}

#[tokio::test]
async fn a_run_that_was_cancelled_since_its_claim_is_not_rebuilt() {
    let (engine, run, cell, claimed) = claimed(&Arc::default()).await;
    let core = engine.core();
    core.residents.evict(run.id());
    assert!(run.cancel("enough").await.expect("it works").changed);
    core.take(claimed);
    all_free(core).await;
    assert!(!cell.lock().resting || core.residents.get(run.id()).is_none(), "nothing drives it");
}

#[tokio::test]
async fn a_run_that_is_forgotten_since_its_claim_is_not_rebuilt() {
    let (engine, run, _, mut claimed) = claimed(&Arc::default()).await;
    let core = engine.core();
    core.residents.evict(run.id());
    let mut gone = (*claimed.run.new).clone();
    gone.id = RunId(core.clock.uuid());
    claimed.run.new = Arc::new(gone);
    core.take(claimed);
    all_free(core).await;
}

#[tokio::test]
async fn a_run_is_set_aside_only_under_its_claim() {
    let (engine, run, _, claimed) = claimed(&Arc::default()).await;
    let (core, version) = (engine.core(), claimed.run.state.version);
    let in_time = async |version: u64| {
        let set_aside = core.set_aside(WorkspaceId::DEFAULT, run.id(), version, "engine: a test".to_owned());
        tokio::time::timeout(Duration::from_secs(30), set_aside).await.expect("it ends");
    };
    in_time(version - 1).await;
    assert_eq!(run.status().await.expect("it works"), Status::Running, "under another claim");
    in_time(version).await;
    assert_eq!(run.status().await.expect("it works"), Status::Paused);
    assert!(run.cancel("enough").await.expect("it works").changed);
    in_time(version + 2).await;
    assert_eq!(run.status().await.expect("it works"), Status::Cancelled, "it has ended");
}
