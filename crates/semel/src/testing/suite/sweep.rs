//! Sweep: runs of dead nodes become due, what is past its retention is forgotten, a bounded amount at a time.

use std::time::Duration;

use super::driver::SuiteDriver;
use super::world::{LEASE, World, code, payload};
use crate::rules::control::ControlAction;
use crate::rules::entry::{Entry, Outcome, RestartFrom};
use crate::rules::once::{Ask, OnceAnswer};
use crate::rules::receipt::ReceiptKind;
use crate::rules::run::Retention;
use crate::rules::start::{Start, StartVerdict};
use crate::rules::status::Status;
use crate::store::{Find, FindBy, LeaseAct, Part, Swept};

promises![
    an_empty_store_has_nothing_to_sweep,
    orphaned_runs_are_claimed_once,
    a_waiting_or_ended_run_is_no_orphan,
    orphans_come_in_portions,
    the_runs_of_many_dead_nodes_come_together_and_those_of_the_living_stay,
    a_node_is_dead_once_its_runs_are_given_away,
    history_goes_first_and_the_key_by_its_own_time,
    what_is_forgotten_comes_in_portions,
    a_long_history_is_forgotten_in_portions_and_never_read_in_half,
    a_restarted_run_is_not_forgotten,
    an_expired_once_is_forgotten,
    a_forgotten_run_leaves_nothing_behind,
    a_forgotten_waiter_does_not_stop_an_owner,
];

async fn an_empty_store_has_nothing_to_sweep(world: World) {
    assert_eq!(world.sweep(10).await, Swept::default());
}

async fn orphaned_runs_are_claimed_once(world: World) {
    let node = world.node().await;
    for n in 0..10 {
        world.start(&n.to_string()).await;
    }
    world.try_claim(node, 10).await.expect("alive");
    world.clock().advance(LEASE);
    assert_eq!(world.sweep(100).await.orphaned, 10);
    assert_eq!(world.sweep(100).await.orphaned, 0, "the second sweeper finds nothing left to do");
    let (one, two) = (world.node().await, world.node().await);
    let first = world.try_claim(one, 7).await.expect("alive").len();
    let second = world.try_claim(two, 7).await.expect("alive").len();
    assert_eq!((first, second), (7, 3));
}

async fn a_waiting_or_ended_run_is_no_orphan(world: World) {
    for status in Status::ALL.into_iter().filter(|status| *status != Status::Running) {
        world.run_that_is(status, &status.to_string()).await;
    }
    world.clock().advance(LEASE);
    assert_eq!(world.sweep(100).await.orphaned, 0);
}

async fn orphans_come_in_portions(world: World) {
    let node = world.node().await;
    for n in 0..5 {
        world.start(&n.to_string()).await;
    }
    world.try_claim(node, 5).await.expect("alive");
    world.clock().advance(LEASE);
    let (mut portions, mut more) = (Vec::new(), true);
    while more {
        let swept = world.sweep(2).await;
        portions.push(swept.orphaned);
        more = swept.more;
    }
    assert_eq!(portions, [2, 2, 1]);
    assert_eq!(world.claim_all().await.len(), 5);
}

async fn the_runs_of_many_dead_nodes_come_together_and_those_of_the_living_stay(world: World) {
    let mut driven = Vec::new();
    for n in 0..6 {
        // Of every other node nothing is driven.
        let node = world.node().await;
        if n % 2 == 0 {
            driven.push(world.start(&n.to_string()).await.run.id());
            assert_eq!(world.try_claim(node, 1).await.expect("alive").len(), 1);
        }
    }
    world.clock().advance(LEASE);
    let kept = world.driven("kept").await;
    let (first, second) = (world.sweep(2).await, world.sweep(2).await);
    assert_eq!((first.orphaned, first.more, second.orphaned), (2, true, 1));
    assert_eq!(world.sweep(10).await.orphaned, 0, "the nodes are forgotten");
    assert!(world.run(kept.id()).await.state.node.is_some(), "its node lives");
    let mut claimed: Vec<_> = world.claim_all().await.iter().map(SuiteDriver::id).collect();
    claimed.sort_unstable();
    driven.sort_unstable();
    assert_eq!(claimed, driven);
}

async fn a_node_is_dead_once_its_runs_are_given_away(world: World) {
    let node = world.node().await;
    for n in 0..3 {
        world.start(&n.to_string()).await;
    }
    world.try_claim(node, 3).await.expect("alive");
    world.clock().advance(LEASE);
    assert!(world.sweep(1).await.more, "only one of its runs is given away yet");
    assert_eq!(code(world.lease(node, LeaseAct::Renew(LEASE)).await), "CONCURRENCY_ERROR");
    assert_eq!(code(world.try_claim(node, 3).await), "CONCURRENCY_ERROR");
}

fn kept(history: u64, key: u64) -> Retention {
    Retention { history: Duration::from_millis(history), key: Duration::from_millis(key) }
}

async fn ended(world: &World, key: &str, retention: Retention) -> SuiteDriver {
    let mut driver = world.drive(Start { retention, ..world.request(key) }).await;
    driver.complete("7").await;
    driver
}

async fn history_goes_first_and_the_key_by_its_own_time(world: World) {
    let run = ended(&world, "k", kept(10, 20)).await.id();
    world.start("k").await;
    assert_eq!(world.absorbed(run, ReceiptKind::Start).await, 1);
    world.pass(9);
    assert_eq!((world.sweep(10).await.histories, world.entries(run).await.len()), (0, 3));
    world.pass(1);
    let swept = world.sweep(10).await;
    assert_eq!((swept.histories, swept.runs), (1, 0));
    let shell = world.run(run).await;
    assert!(shell.purged && shell.state.holds_key && shell.status() == Status::Completed);
    assert_eq!(world.entries(run).await, []);
    // It has not failed: it has completed, and its result is no longer kept.
    let gone = Some(Outcome::Purged(Status::Completed));
    let find = Find { workspace: super::world::WORKSPACE, by: FindBy::Id(run) };
    assert_eq!(world.store().find(find).await.expect("it can be read"), Some((shell, gone.clone())));
    assert_eq!(world.absorbed(run, ReceiptKind::Start).await, 0);
    let again = world.start("k").await;
    assert_eq!((again.verdict, again.run.id(), again.outcome), (StartVerdict::Replayed, run, gone));
    world.pass(9);
    let swept = world.sweep(10).await;
    assert_eq!((swept.histories, swept.runs), (0, 0), "nothing is forgotten twice");
    world.pass(1);
    assert_eq!(world.sweep(10).await.runs, 1);
    assert_eq!(world.find(FindBy::Id(run)).await, None);
    assert_eq!(code(world.store().ledger(super::world::WORKSPACE, run, 1).await), "NOT_FOUND");
}

async fn what_is_forgotten_comes_in_portions(world: World) {
    for n in 0..5 {
        ended(&world, &n.to_string(), kept(0, 0)).await;
    }
    let (mut portions, mut more) = (Vec::new(), true);
    while more {
        let swept = world.sweep(2).await;
        portions.push(swept.runs);
        more = swept.more;
    }
    assert_eq!(portions, [2, 2, 1]);
    assert_eq!(world.list().await, []);
}

/// Of two runs: the history of one is forgotten and its key remembered, the other goes altogether.
async fn a_long_history_is_forgotten_in_portions_and_never_read_in_half(world: World) {
    for (key, retention) in [("shell", kept(10, 1_000)), ("gone", kept(10, 10))] {
        let mut driver = world.drive(Start { retention, ..world.request(key) }).await;
        driver.open("t").await;
        for n in 0..6 {
            world.deliver_as(&n.to_string(), "t", "1").await.expect("new");
        }
        for n in 0..20 {
            driver.step(&format!("step[{n}]")).await.expect("ours");
        }
        driver.complete("7").await;
        let run = driver.id();
        world.pass(10);
        let mut passes = Vec::new();
        loop {
            let swept = world.sweep(1).await;
            passes.push(swept.histories + swept.runs);
            if !swept.more {
                break;
            }
            if world.find(FindBy::Id(run)).await.is_none() {
                break;
            }
            let shell = world.run(run).await;
            assert!(shell.purged && shell.state.holds_key, "forgotten for readers from the first pass on");
            assert_eq!(world.outcome(run).await, Some(Outcome::Purged(Status::Completed)));
            assert_eq!(world.entries(run).await, []);
            assert_eq!(world.inbox(run).await, []);
            let part = Part { workspace: super::world::WORKSPACE, run, from: 1, limit: 10, bytes: 1_000 };
            let part = world.store().ledger_part(part).await.expect("it can be read");
            assert_eq!((part.entries.len(), part.next), (0, None));
            assert_eq!(world.holder_of(key).await, (key == "shell").then_some(run), "by the time of the key");
        }
        // 6 calls, 6 messages and 23 commits or so, 4 of them in each pass.
        assert!(passes.len() > 8, "{passes:?}");
        assert_eq!(passes.iter().sum::<usize>(), 1, "{passes:?}");
        assert_eq!(world.find(FindBy::Id(run)).await.is_some(), key == "shell");
    }
    assert_eq!(world.start("shell").await.verdict, crate::rules::start::StartVerdict::Replayed);
    assert_eq!(world.start("gone").await.verdict, crate::rules::start::StartVerdict::Created);
    assert_eq!(world.sweep(10).await.histories, 0, "nothing is forgotten twice");
}

async fn a_restarted_run_is_not_forgotten(world: World) {
    let mut driver = world.drive(Start { retention: kept(10, 10), ..world.request("k") }).await;
    driver.fail().await;
    let restart = ControlAction::Restart(RestartFrom::Failure);
    world.control(driver.id(), restart).await.expect("a failed run may");
    world.pass(1_000);
    let swept = world.sweep(10).await;
    assert_eq!((swept.histories, swept.runs), (0, 0));
    let mut driver = world.claim_one().await;
    driver.fail().await;
    world.pass(9);
    assert_eq!(world.sweep(10).await.runs, 0, "its time counts from the last end");
    world.pass(1);
    assert_eq!(world.sweep(10).await.runs, 1);
}

async fn an_expired_once_is_forgotten(world: World) {
    let run = world.start("k").await.run.id();
    for (label, ttl) in [("short", Some(Duration::from_millis(10))), ("long", None)] {
        let fence = world.grant(run, label).await;
        world.once(run, label, Ask::Settle { fence, value: payload("1"), ttl }).await.expect("granted");
    }
    world.grant(run, "unsettled").await;
    world.pass(9);
    assert_eq!(world.sweep(10).await.once, 0);
    world.pass(1);
    assert_eq!(world.sweep(10).await.once, 1);
    assert_eq!(world.sweep(10).await.once, 0);
    let answer = world.once(run, "long", Ask::Claim).await.expect("a claim");
    assert_eq!(answer, OnceAnswer::Settled(payload("1")));
}

/// Everything that a run can leave: entries, messages, receipts, calls, a child, a `run_once` value.
async fn a_forgotten_run_leaves_nothing_behind(world: World) {
    let mut driver = world.drive(Start { retention: kept(0, 0), ..world.request("k") }).await;
    driver.open("t").await;
    world.deliver_as("d", "t", "1").await.expect("new");
    let pause = world.control_as("c", driver.id(), ControlAction::Pause).await.expect("an open run may");
    world.control(pause.run.id(), ControlAction::Resume).await.expect("a paused run may");
    let mut driver = world.claim_one().await;
    driver.step("a").await.expect("ours");
    driver.record(Entry::Noted { arrival: 1 });
    driver.complete("1").await;
    assert_eq!(world.sweep(10).await.runs, 1);
    let mut other = world.driven("other").await;
    assert_eq!(other.open("t").await, None);
    assert!(!world.deliver_as("d", "t", "2").await.expect("the id went with its run").absorbed);
    assert!(world.control_as("c", other.id(), ControlAction::Pause).await.expect("likewise").changed);
    assert_eq!(world.start("k").await.verdict, crate::rules::start::StartVerdict::Created);
}

async fn a_forgotten_waiter_does_not_stop_an_owner(world: World) {
    let owner = world.driven("owner").await;
    let waiter = world.drive(Start { retention: kept(0, 0), ..world.request("waiter") }).await;
    world.grant(owner.id(), "sms").await;
    let answer = world.once(waiter.id(), "sms", Ask::Claim).await.expect("a claim");
    assert_eq!(answer, OnceAnswer::InFlight(owner.id()));
    assert!(world.cancel(waiter.id()).await);
    assert_eq!(world.sweep(10).await.runs, 1);
    assert!(world.cancel(owner.id()).await, "it ends, although another run waits for it");
}
