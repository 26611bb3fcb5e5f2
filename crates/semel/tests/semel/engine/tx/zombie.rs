//! Zombies: an engine that has lost its run without noticing, and is still in a body.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use libtest_mimic::{Failed, Trial};
use semel::rules::status::Status;
use semel::store::Store;
use semel::store::faulty::{Fault, Faulty};
use semel::{Engine, Result, fatal};
use tokio::sync::Notify;

use super::bank::{Bank, Place, Tap, Tapped};
use super::{Lab, Script, on, pay, payer, said, take_away, trial};

pub(super) fn trials(all: &mut Vec<Trial>) {
    on!(all, refused, "a_zombie_cannot_commit_after_the_new_owner": postgres sqlx_postgres sqlx_mysql);
    on!(all, fenced, "a_zombie_cannot_commit_when_the_new_owner_has_failed": postgres sqlx_postgres sqlx_mysql);
    on!(all, first, "the_new_owner_adopts_what_a_zombie_committed_before_it": sqlite postgres sqlx_sqlite sqlx_postgres sqlx_mysql);
    on!(all, late, "a_zombie_that_comes_late_finds_the_outcome": sqlite postgres sqlx_sqlite sqlx_postgres sqlx_mysql);
    on!(all, too_late, "a_zombie_that_comes_late_finds_a_fence": sqlite postgres sqlx_sqlite sqlx_postgres sqlx_mysql);
}

/// An engine that neither hears of its loss nor learns of it from its lease.
async fn unaware<S: Bank>(lab: &Lab, bank: &S, script: &Script) -> semel::error::Result<Engine> {
    let leases = AtomicU32::new(0);
    let faults = move |call| {
        let joined = call == "lease" && leases.fetch_add(1, Ordering::SeqCst) > 0;
        joined.then_some(Fault::Before)
    };
    let store = Faulty::new(lab.store.clone(), faults).deaf();
    payer(lab.engine().store(Arc::new(store) as Arc<dyn Store>), bank, script).open().await
}

/// A body that says where it is and waits to be let go.
fn held(go: &Arc<Notify>) -> Script {
    let go = go.clone();
    Script::new(move |_| {
        let go = go.clone();
        async move {
            go.notified().await;
            Ok(())
        }
    })
}

async fn refused<S: Bank>() -> Result<(), Failed> {
    let (lab, place, go) = (Lab::new(), Place::new(), Arc::new(Notify::new()));
    let bank: S = place.fresh().await.map_err(said)?;
    let (first, second) = (held(&go), Script::plain());
    let zombie = unaware(&lab, &bank, &first).await?;
    let run = zombie.start(pay::<S>, 30).await?;
    lab.until(async || first.calls.get() == 1).await;
    take_away(&lab.store, &run).await?;
    let owner = payer(lab.engine(), &bank, &second).open().await?;
    assert_eq!(owner.run(run.id()).typed::<i64>().result().await?, 970);
    go.notify_one();
    // Its own view of the run is over when the store has refused what it wanted to record.
    drop(run.outcome().await?);
    assert_eq!((first.calls.get(), second.calls.get()), (1, 1));
    assert_eq!(bank.state().await.map_err(said)?, (970, 1, 1), "the zombie's rows are not there");
    Ok(())
}

/// The new owner gives up without an outcome: only its fence is there.
async fn fenced<S: Bank>() -> Result<(), Failed> {
    let (lab, place, go, tap) = (Lab::new(), Place::new(), Arc::new(Notify::new()), Arc::new(Tap::default()));
    let bank: S = place.fresh().await.map_err(said)?;
    let (first, second) = (held(&go), Script::new(async |_| Err(fatal("the new owner gives up"))));
    let zombie = unaware(&lab, &Tapped::new(&bank, &tap), &first).await?;
    let run = zombie.start(pay::<Tapped<S>>, 30).await?;
    lab.until(async || first.calls.get() == 1).await;
    take_away(&lab.store, &run).await?;
    let owner = payer(lab.engine(), &bank, &second).open().await?;
    drop(owner.run(run.id()).outcome().await?);
    go.notify_one();
    tap.ends.notified().await;
    assert_eq!(run.status().await?, Status::Failed);
    assert_eq!(bank.state().await.map_err(said)?, (1000, 0, 0), "a failed step has no rows");
    Ok(())
}

/// The zombie commits when the run is no longer its own, but before the new owner has reached the table.
async fn first<S: Bank>() -> Result<(), Failed> {
    let (lab, place, go) = (Lab::new(), Place::new(), Arc::new(Notify::new()));
    let bank: S = place.fresh().await.map_err(said)?;
    let (first, second) = (held(&go), Script::plain());
    let zombie = unaware(&lab, &bank, &first).await?;
    let run = zombie.start(pay::<S>, 30).await?;
    lab.until(async || first.calls.get() == 1).await;
    take_away(&lab.store, &run).await?;
    let tap = Arc::new(Tap { hold: Some(Notify::new()), ..Tap::default() });
    // Registered under the same name: the run does not care what the code is called.
    let owner = payer(lab.engine(), &Tapped::new(&bank, &tap), &second).open().await?;
    tap.begins.notified().await;
    go.notify_one();
    lab.until(async || bank.state().await.is_ok_and(|state| state.2 == 1)).await;
    tap.hold.as_ref().expect("it was set").notify_one();
    assert_eq!(owner.run(run.id()).typed::<i64>().result().await?, 970);
    assert_eq!((first.calls.get(), second.calls.get()), (1, 0), "the new owner's body is not called");
    assert_eq!(bank.state().await.map_err(said)?, (970, 1, 1));
    Ok(())
}

/// A zombie that is stopped before its transaction begins, and begins it when the new owner has finished.
async fn stopped<S: Bank>(second: Script, calls: (u32, u32), state: (i64, i64, i64)) -> Result<(), Failed> {
    let tap = Arc::new(Tap { hold: Some(Notify::new()), ..Tap::default() });
    let (lab, place, first) = (Lab::new(), Place::new(), Script::plain());
    let bank: S = place.fresh().await.map_err(said)?;
    let zombie = unaware(&lab, &Tapped::new(&bank, &tap), &first).await?;
    let run = zombie.start(pay::<Tapped<S>>, 30).await?;
    tap.begins.notified().await;
    take_away(&lab.store, &run).await?;
    let owner = payer(lab.engine(), &bank, &second).open().await?;
    drop(owner.run(run.id()).outcome().await?);
    tap.hold.as_ref().expect("it was set").notify_one();
    tap.ends.notified().await;
    assert_eq!((first.calls.get(), second.calls.get()), calls, "the zombie's body is not called");
    assert_eq!(bank.state().await.map_err(said)?, state);
    Ok(())
}

async fn late<S: Bank>() -> Result<(), Failed> {
    stopped::<S>(Script::plain(), (0, 1), (970, 1, 1)).await
}

async fn too_late<S: Bank>() -> Result<(), Failed> {
    stopped::<S>(Script::new(async |_| Err(fatal("the new owner gives up"))), (0, 1), (1000, 0, 0)).await
}
