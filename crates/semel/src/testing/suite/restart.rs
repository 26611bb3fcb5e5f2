//! A restarted run: its time, its children and its hooks in the new life.

use std::time::Duration;

use super::driver::SuiteDriver;
use super::world::{World, payload, token, visit};
use crate::id::RunId;
use crate::rules::control::ControlAction;
use crate::rules::entry::{Entry, Outcome, RestartFrom};
use crate::rules::ledger::{HookState, VisitRecord};
use crate::rules::start::{Policy, Start, StartVerdict};
use crate::rules::status::Status;

promises![
    a_restarted_run_has_its_full_time_again,
    a_run_without_a_limit_has_none_after_a_restart,
    a_retried_start_gives_the_run_its_full_time_again,
    a_restarted_parent_restarts_the_child_that_failed,
    a_restarted_child_has_its_results_and_fails_or_ends_anew,
    a_cancelled_child_is_replaced_by_a_new_run,
    a_completed_child_is_not_started_again,
    an_open_hook_keeps_its_payloads_and_its_token_over_a_restart,
    a_token_that_was_taken_meanwhile_conflicts_after_a_restart,
];

async fn restart(world: &World, run: RunId) {
    world.control(run, ControlAction::Restart(RestartFrom::Failure)).await.expect("a failed run may");
}

/// Claims what is due and gives the driver of one of them.
async fn claim(world: &World, run: RunId) -> SuiteDriver {
    world.claim_all().await.into_iter().find(|driver| driver.id() == run).expect("the run is due")
}

fn limited(world: &World, millis: u64) -> Start {
    Start { timeout: Some(Duration::from_millis(millis)), ..world.request("k") }
}

async fn a_restarted_run_has_its_full_time_again(world: World) {
    let mut driver = world.drive(limited(&world, 100)).await;
    assert_eq!(driver.ledger.deadline(), Some(world.after(100)));
    world.pass(150);
    driver.time_out().await;
    for passed in [70, 30] {
        world.pass(passed);
        restart(&world, driver.id()).await;
        let Some(Entry::Restarted { deadline, .. }) = world.entries(driver.id()).await.pop() else {
            panic!("the last entry is the restart")
        };
        assert_eq!(deadline, Some(world.after(100)), "and not what was left, nor twice as much");
        driver = claim(&world, driver.id()).await;
        assert_eq!(driver.ledger.deadline(), deadline);
        driver.fail().await;
    }
}

async fn a_run_without_a_limit_has_none_after_a_restart(world: World) {
    let failed = world.run_that_is(Status::Failed, "k").await;
    restart(&world, failed).await;
    assert_eq!(world.claim_one().await.ledger.deadline(), None);
}

async fn a_retried_start_gives_the_run_its_full_time_again(world: World) {
    let mut driver = world.drive(limited(&world, 100)).await;
    world.pass(100);
    driver.time_out().await;
    world.pass(25);
    let again = world.begin(Start { policy: Policy::RETRY_FAILED, ..limited(&world, 100) }).await;
    assert_eq!((again.run.id(), again.verdict), (driver.id(), StartVerdict::Restarted));
    assert_eq!(world.claim_one().await.ledger.deadline(), Some(world.after(100)));
}

/// A parent that has failed over the end of its child, restarted, and asking for the child again: the parent, the
/// child there was, the one it has now, and whether that was there.
async fn asked_again(world: &World, key: &str, ended: Status) -> (SuiteDriver, RunId, RunId, bool) {
    let mut parent = world.driven(key).await;
    let (child, _) = parent.child("pack", world.run_id()).await;
    let mut driver = claim(world, child).await;
    driver.step("wrap").await.expect("ours");
    match ended {
        Status::Completed => drop(driver.complete("7").await),
        Status::Failed => drop(driver.fail().await),
        _ => assert!(world.cancel(child).await),
    }
    parent.look().await.child_ended("pack");
    parent.fail().await;
    restart(world, parent.id()).await;
    let mut parent = claim(world, parent.id()).await;
    let (now, attached) = parent.child("pack", world.run_id()).await;
    (parent, child, now, attached)
}

async fn a_restarted_parent_restarts_the_child_that_failed(world: World) {
    let ended = Status::Failed;
    let (mut parent, child, now, attached) = asked_again(&world, &ended.to_string(), ended).await;
    assert_eq!((now, attached), (child, true), "{ended}: the same run");
    let restarted = world.run(child).await;
    assert_eq!((restarted.status(), restarted.state.due), (Status::Pending, Some(world.now())), "{ended}");
    assert_eq!(parent.look().await.inbox, [], "{ended}: its former end is no news");
    let Some(Entry::Restarted { by, .. }) = world.entries(child).await.pop() else {
        panic!("the last entry is the restart")
    };
    assert_eq!(by, parent.id().to_string(), "{ended}");
    claim(&world, child).await.complete("8").await;
    assert_eq!(parent.look().await.inbox.len(), 1, "{ended}: heard of once");
    assert_eq!(parent.child_ended("pack"), Outcome::Completed(payload("8")), "{ended}");
    parent.complete("1").await;
}

async fn a_restarted_child_has_its_results_and_fails_or_ends_anew(world: World) {
    let (mut parent, child, ..) = asked_again(&world, "k", Status::Failed).await;
    let mut driver = claim(&world, child).await;
    assert!(driver.ledger.record_at(&visit("wrap")).is_some(), "what it had done is done");
    driver.fail().await;
    assert!(matches!(parent.look().await.child_ended("pack"), Outcome::Failed(_)), "the new failure is told");
    parent.save().await;
}

async fn a_cancelled_child_is_replaced_by_a_new_run(world: World) {
    let (mut parent, child, now, attached) = asked_again(&world, "k", Status::Cancelled).await;
    assert!(now != child && !attached);
    assert_eq!(world.run(child).await.status(), Status::Cancelled, "it stays as it ended");
    assert!(!world.run(child).await.state.holds_key);
    claim(&world, now).await.complete("8").await;
    assert_eq!(parent.look().await.inbox.len(), 1);
    assert_eq!(parent.child_ended("pack"), Outcome::Completed(payload("8")));
    parent.complete("1").await;
}

async fn a_completed_child_is_not_started_again(world: World) {
    let mut parent = world.driven("k").await;
    let (child, _) = parent.child("pack", world.run_id()).await;
    claim(&world, child).await.complete("7").await;
    let version = world.run(child).await.state.version;
    parent.fail().await;
    restart(&world, parent.id()).await;
    let mut parent = claim(&world, parent.id()).await;
    assert_eq!(parent.child("pack", world.run_id()).await, (child, true));
    assert_eq!(world.run(child).await.state.version, version, "nothing was written to it");
    assert_eq!(parent.look().await.child_ended("pack"), Outcome::Completed(payload("7")));
}

/// A run with an open hook that has received two payloads, failed and restarted.
async fn with_payloads(world: &World) -> SuiteDriver {
    let mut driver = world.driven("k").await;
    driver.open("t").await;
    for json in ["1", "2"] {
        world.deliver("t", json).await;
    }
    assert_eq!(driver.look().await.receive("t"), ["1", "2"]);
    driver.save().await;
    driver.fail().await;
    driver
}

fn hook(driver: &SuiteDriver) -> Option<&HookState> {
    match driver.ledger.record_at(&visit("t")) {
        Some(VisitRecord::Hook { state, .. }) => Some(state),
        _ => None,
    }
}

async fn an_open_hook_keeps_its_payloads_and_its_token_over_a_restart(world: World) {
    let failed = with_payloads(&world).await;
    assert_eq!(world.owner_of("t").await, None, "the token went with the end");
    restart(&world, failed.id()).await;
    let mut driver = claim(&world, failed.id()).await;
    assert_eq!(hook(&driver), Some(&HookState::Released(vec![payload("1"), payload("2")])));
    assert_eq!(driver.open("t").await, None);
    assert_eq!(world.owner_of("t").await, Some(driver.id()));
    world.deliver("t", "3").await;
    assert_eq!(driver.look().await.receive("t"), ["3"]);
    driver.save().await;
    let all = HookState::Open(vec![payload("1"), payload("2"), payload("3")]);
    assert_eq!(hook(&driver), Some(&all));
    world.crash().await;
    assert_eq!(hook(&claim(&world, driver.id()).await), Some(&all), "and every reader sees the same");
}

async fn a_token_that_was_taken_meanwhile_conflicts_after_a_restart(world: World) {
    let failed = with_payloads(&world).await;
    let mut taker = world.driven("taker").await;
    assert_eq!(taker.open("t").await, None);
    restart(&world, failed.id()).await;
    let mut driver = claim(&world, failed.id()).await;
    assert_eq!(driver.open("t").await, Some(taker.id()));
    world.deliver("t", "3").await;
    assert_eq!(taker.look().await.receive("t"), ["3"], "it is for the owner");
    taker.record(Entry::HookClosed { hook: visit("t") }).save().await;
    assert_eq!(world.owner_of("t").await, None);
    assert_eq!(
        driver.ledger.record_at(&visit("t")),
        Some(&VisitRecord::Hook { token: token("t"), state: HookState::Conflicted(taker.id()) })
    );
}
