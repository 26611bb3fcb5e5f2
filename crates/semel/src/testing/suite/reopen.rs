//! Durability: what was answered is there after the store was closed and opened again, after every verb.
//!
//! A store of one process takes its own nodes for dead when it is opened, others do not; so these cases let the leases end.

use super::driver::SuiteDriver;
use super::world::{LEASE, World, call, code, payload, visit};
use crate::id::NodeId;
use crate::rules::claim::MAX_DEATHS;
use crate::rules::control::{ControlAction, Fork};
use crate::rules::entry::{Class, Entry, Outcome, Resolution, RestartFrom};
use crate::rules::ledger::Lineage;
use crate::rules::once::{Ask, OnceAnswer};
use crate::rules::receipt::ReceiptKind;
use crate::rules::run::Retention;
use crate::rules::start::{Start, StartVerdict};
use crate::rules::status::Status;
use crate::store::{FindBy, LeaseAct};

promises![
    a_started_run_is_there_after_reopening,
    a_claimed_run_is_taken_over_after_reopening,
    every_commit_is_there_after_reopening,
    hooks_and_deliveries_are_there_after_reopening,
    children_are_there_after_reopening,
    operator_actions_are_there_after_reopening,
    once_is_there_after_reopening,
    ends_are_there_after_reopening,
    receipts_are_there_after_reopening,
    what_was_forgotten_stays_forgotten_after_reopening,
    a_node_that_has_left_stays_away_after_reopening,
    the_lease_of_a_remote_worker_lasts_over_reopening,
    numbers_are_not_given_twice_after_reopening,
    numbers_rise_also_after_reopening,
    all_of_a_life_with_a_reopening_between_any_two_calls,
];

async fn a_started_run_is_there_after_reopening(mut world: World) {
    let request = world.request("k");
    let started = world.begin(request.clone()).await;
    world.reopen().await;
    assert_eq!(world.run(started.run.id()).await, started.run);
    assert_eq!(world.kinds(started.run.id()).await, ["created"]);
    assert_eq!(
        world.begin(request).await.verdict,
        StartVerdict::Created,
        "the same request: its answer was lost"
    );
    assert_eq!(world.start("k").await.run.id(), started.run.id());
    assert_eq!(world.claim_one().await.id(), started.run.id());
}

async fn a_claimed_run_is_taken_over_after_reopening(mut world: World) {
    let before = world.driven("k").await;
    world.reopen().await;
    world.crash().await;
    let after = world.claim_one().await;
    assert_eq!(after.id(), before.id());
    assert!(after.version() > before.version());
    assert_eq!(world.kinds(after.id()).await, ["created", "claimed", "claimed"]);
}

async fn every_commit_is_there_after_reopening(mut world: World) {
    let mut driver = world.driven("k").await;
    for n in 0..3 {
        driver.step(&format!("step-{n}")).await.expect("ours");
        driver.begin(&format!("intent-{n}"), Class::AtMostOnce).save().await;
        let (kinds, version) = (world.kinds(driver.id()).await, driver.version());
        world.reopen().await;
        assert_eq!(world.kinds(driver.id()).await, kinds);
        assert_eq!(world.run(driver.id()).await.state.version, version);
        world.crash().await;
        driver = world.claim_one().await;
    }
    driver.wait(Some(world.after(100))).await;
    world.reopen().await;
    let run = world.run(driver.id()).await;
    assert_eq!((run.status(), run.state.due), (Status::Waiting, Some(world.after(100))));
}

async fn hooks_and_deliveries_are_there_after_reopening(mut world: World) {
    let mut driver = world.driven("k").await;
    driver.open("t").await;
    let first = world.deliver_as("d", "t", "1").await.expect("new");
    driver.wait(None).await;
    world.reopen().await;
    assert_eq!(world.owner_of("t").await, Some(driver.id()));
    assert!(world.deliver_as("d", "t", "1").await.expect("the same again").absorbed);
    assert_eq!(world.deliver("t", "2").await.arrival, first.arrival + 1);
    world.reopen().await;
    let mut next = world.claim_one().await;
    assert_eq!(next.receive("t"), ["1", "2"]);
    next.close("t").await;
    world.reopen().await;
    assert_eq!(world.owner_of("t").await, None);
    assert_eq!(world.inbox(next.id()).await, []);
}

async fn children_are_there_after_reopening(mut world: World) {
    let mut parent = world.driven("k").await;
    let (id, _) = parent.child("c", world.run_id()).await;
    parent.wait(None).await;
    world.reopen().await;
    world.claim_one().await.complete("7").await;
    world.reopen().await;
    let mut parent = world.claim_one().await;
    assert_eq!(parent.child_ended("c"), Outcome::Completed(payload("7")));
    assert_eq!(world.run(id).await.new.parent, Some(parent.id()));
}

async fn operator_actions_are_there_after_reopening(mut world: World) {
    let mut driver = world.driven("k").await;
    driver.doubt("charge").await;
    let run = driver.id();
    let resolve = || ControlAction::Resolve { step: visit("charge"), resolution: Resolution::DidNotHappen };
    let fork = Fork { run: world.run_id(), key: None, at: None, lineage: Lineage::Fresh };
    let cancel = || ControlAction::Cancel { reason: "no longer wanted".to_owned() };
    let actions = [
        ("resolve", resolve()),
        ("pause", ControlAction::Pause),
        ("resume", ControlAction::Resume),
        ("fork", ControlAction::Fork(fork.clone())),
        ("release", ControlAction::ReleaseKey),
        ("cancel", cancel()),
    ];
    for (id, action) in actions {
        let done = world.control_as(id, run, action.clone()).await.expect("possible");
        world.reopen().await;
        assert_eq!(world.run(done.run.id()).await, done.run, "{id}");
        let again = world.control_as(id, run, action).await.expect("the same again");
        assert_eq!((again.changed, again.run.id()), (false, done.run.id()), "{id}");
    }
    assert_eq!(world.run(run).await.status(), Status::Cancelled);
    assert_eq!(world.run(fork.run).await.status(), Status::Pending);
}

async fn once_is_there_after_reopening(mut world: World) {
    let (owner, waiter) = (world.start("a").await.run.id(), world.start("b").await.run.id());
    let fence = world.grant(owner, "sms").await;
    world.reopen().await;
    let answer = world.once(waiter, "sms", Ask::Claim).await.expect("open");
    assert_eq!(answer, OnceAnswer::InFlight(owner));
    world.reopen().await;
    let settle = Ask::Settle { fence, value: payload("7"), ttl: None };
    world.once(owner, "sms", settle).await.expect("still granted");
    world.reopen().await;
    assert_eq!(world.inbox(waiter).await.len(), 1);
    let answer = world.once(waiter, "sms", Ask::Claim).await.expect("open");
    assert_eq!(answer, OnceAnswer::Settled(payload("7")));
}

async fn ends_are_there_after_reopening(mut world: World) {
    for status in Status::ALL.into_iter().filter(|status| status.is_terminal()) {
        let key = status.to_string();
        let run = world.run_that_is(status, &key).await;
        let (before, outcome) = (world.run(run).await, world.outcome(run).await);
        assert!(outcome.is_some());
        world.reopen().await;
        assert_eq!((world.run(run).await, world.outcome(run).await), (before, outcome), "{status}");
        assert_eq!(world.start(&key).await.run.id(), run, "{status}");
    }
}

async fn receipts_are_there_after_reopening(mut world: World) {
    let run = world.start("k").await.run.id();
    for n in 1..=3 {
        world.start("k").await;
        world.reopen().await;
        assert_eq!(
            world.absorbed(run, ReceiptKind::Start).await,
            n,
            "a store that is closed has written them"
        );
    }
}

async fn what_was_forgotten_stays_forgotten_after_reopening(mut world: World) {
    let millis = std::time::Duration::from_millis;
    let retention = Retention { history: millis(10), key: millis(20) };
    let mut driver = world.drive(Start { retention, ..world.request("k") }).await;
    driver.complete("1").await;
    world.pass(10);
    assert_eq!(world.sweep(10).await.histories, 1);
    world.reopen().await;
    assert!(world.run(driver.id()).await.purged);
    assert_eq!(world.entries(driver.id()).await, []);
    world.pass(10);
    assert_eq!(world.sweep(10).await.runs, 1);
    world.reopen().await;
    assert_eq!(world.find(FindBy::Id(driver.id())).await, None);
    assert_eq!(world.start("k").await.verdict, StartVerdict::Created);
}

async fn a_node_that_has_left_stays_away_after_reopening(mut world: World) {
    let driver = world.driven("k").await;
    let node = driver.ledger.run().state.node.expect("driven");
    world.lease(node, LeaseAct::Leave).await.expect("a node may go");
    world.reopen().await;
    assert_eq!(code(world.lease(node, LeaseAct::Renew(LEASE)).await), "CONCURRENCY_ERROR");
    world.sweep(10).await;
    assert_eq!(world.claim_one().await.id(), driver.id());
}

async fn the_lease_of_a_remote_worker_lasts_over_reopening(mut world: World) {
    let node = NodeId(world.run_id().0);
    world.lease(node, LeaseAct::Enroll(LEASE)).await.expect("a new node can join");
    let run = world.start("k").await.run.id();
    let claimed = world.try_claim(node, 1).await.expect("alive").remove(0);
    for _ in 0..2 * MAX_DEATHS {
        world.pass(1_000);
        world.reopen().await;
        assert_eq!(world.sweep(10).await.orphaned, 0, "its work is not given to others");
        assert!(world.claim_all().await.is_empty());
        world.lease(node, LeaseAct::Renew(LEASE)).await.expect("its heartbeats go on");
    }
    let mut driver = SuiteDriver::new(world.store().clone(), claimed);
    driver.step("a").await.expect("what it reports is accepted");
    world.reopen().await;
    world.pass(10_000);
    assert_eq!(world.sweep(10).await.orphaned, 1, "it ends like any other");
    assert_eq!(code(world.lease(node, LeaseAct::Renew(LEASE)).await), "CONCURRENCY_ERROR");
    assert_eq!(world.claim_one().await.id(), run);
}

/// A zombie's commit carries its run's short number: no later run may ever be found under it.
async fn numbers_are_not_given_twice_after_reopening(mut world: World) {
    let retention = Retention { history: std::time::Duration::ZERO, key: std::time::Duration::ZERO };
    let mut driver = world.drive(Start { retention, ..world.request("k") }).await;
    let mut zombie = driver.clone();
    driver.complete("1").await;
    assert_eq!(world.sweep(10).await.runs, 1);
    let commit = zombie.begin("late", Class::Keyed).done("late", "1").prepare();
    world.reopen().await;
    let next = world.driven("next").await;
    assert_ne!(next.ledger.run().num, driver.ledger.run().num);
    assert_eq!(code(world.store().commit(commit).await), "CONCURRENCY_ERROR");
    assert_eq!(world.kinds(next.id()).await, ["created", "claimed"]);
}

async fn numbers_rise_also_after_reopening(mut world: World) {
    let before = world.start("before").await.run.num;
    world.reopen().await;
    assert!(world.start("after").await.run.num > before);
}

async fn all_of_a_life_with_a_reopening_between_any_two_calls(mut world: World) {
    let deliver = crate::rules::start::Handover {
        token: super::world::token("t"),
        payload: payload("1"),
        id: Some(call("d")),
    };
    let run = world.begin(Start { deliver: Some(deliver), ..world.request("k") }).await.run.id();
    world.reopen().await;
    let mut driver = world.claim_one().await;
    assert_eq!(driver.open("t").await, None);
    world.reopen().await;
    world.crash().await;
    let mut driver = world.claim_one().await;
    assert_eq!(driver.receive("t"), ["1"]);
    driver.record(Entry::TimerSet { timer: visit("timer"), at: world.after(50) });
    driver.wait(Some(world.after(50))).await;
    world.reopen().await;
    world.pass(50);
    let mut driver = world.claim_one().await;
    driver.record(Entry::TimerFired { timer: visit("timer") });
    driver.fail().await;
    world.reopen().await;
    world.control(run, ControlAction::Restart(RestartFrom::Failure)).await.expect("a failed run may");
    world.reopen().await;
    let mut driver = world.claim_one().await;
    driver.step("a").await.expect("ours");
    driver.complete("9").await;
    world.reopen().await;
    assert_eq!(world.outcome(run).await, Some(Outcome::Completed(payload("9"))));
    assert_eq!(world.entries(run).await.len() as u64, world.run(run).await.state.version);
    assert_eq!(world.inbox(run).await, []);
}
