//! Lease: one per node. A node whose lease has ended is dead, also in its own eyes.

use super::world::{LEASE, World, code};
use crate::id::NodeId;
use crate::rules::status::Status;
use crate::store::LeaseAct;

promises![
    a_lease_lasts_from_now_on,
    a_renewed_lease_lasts_longer,
    a_lease_that_has_ended_is_not_renewed,
    an_unknown_node_does_not_renew,
    joining_again_is_the_same_as_joining,
    a_node_that_leaves_frees_its_runs,
    leaving_can_be_repeated,
    one_lease_covers_all_runs_of_a_node,
];

async fn a_lease_lasts_from_now_on(world: World) {
    let node = NodeId(world.run_id().0);
    assert_eq!(world.lease(node, LeaseAct::Join(LEASE)).await.expect("new"), world.now().after(LEASE));
    let run = world.start("k").await.run.id();
    world.pass(9_999);
    let claimed = world.try_claim(node, 1).await.expect("alive up to the last millisecond");
    assert_eq!(claimed[0].run.id(), run);
    assert_eq!(world.sweep(10).await.orphaned, 0);
    world.pass(1);
    assert_eq!(world.sweep(10).await.orphaned, 1);
}

async fn a_renewed_lease_lasts_longer(world: World) {
    let node = world.node().await;
    for _ in 0..5 {
        world.pass(9_999);
        assert_eq!(world.lease(node, LeaseAct::Renew(LEASE)).await.expect("alive"), world.now().after(LEASE));
        assert_eq!(world.sweep(10).await.orphaned, 0);
    }
    assert_eq!(world.try_claim(node, 1).await.expect("alive"), []);
}

async fn a_lease_that_has_ended_is_not_renewed(world: World) {
    let driver = world.driven("k").await;
    let node = driver.ledger.run().state.node.expect("driven");
    world.clock().advance(LEASE);
    assert_eq!(code(world.lease(node, LeaseAct::Renew(LEASE)).await), "CONCURRENCY_ERROR", "not swept yet");
    world.sweep(10).await;
    assert_eq!(code(world.lease(node, LeaseAct::Renew(LEASE)).await), "CONCURRENCY_ERROR");
    assert_eq!(world.claim_one().await.id(), driver.id());
}

async fn an_unknown_node_does_not_renew(world: World) {
    let node = NodeId(world.run_id().0);
    assert_eq!(code(world.lease(node, LeaseAct::Renew(LEASE)).await), "CONCURRENCY_ERROR");
    assert_eq!(code(world.try_claim(node, 1).await), "CONCURRENCY_ERROR", "and is no node by asking");
}

async fn joining_again_is_the_same_as_joining(world: World) {
    let node = world.node().await;
    world.pass(5_000);
    let until = world.lease(node, LeaseAct::Join(LEASE)).await.expect("the answer was lost");
    assert_eq!(until, world.now().after(LEASE));
    world.pass(9_999);
    assert_eq!(world.try_claim(node, 1).await.expect("alive"), []);
}

async fn a_node_that_leaves_frees_its_runs(world: World) {
    let mut driver = world.driven("k").await;
    let node = driver.ledger.run().state.node.expect("driven");
    world.lease(node, LeaseAct::Leave).await.expect("a node may go");
    assert_eq!(code(world.lease(node, LeaseAct::Renew(LEASE)).await), "CONCURRENCY_ERROR");
    assert_eq!(code(world.try_claim(node, 1).await), "CONCURRENCY_ERROR");
    assert_eq!(world.sweep(10).await.orphaned, 1, "at once, not when the lease would have ended");
    assert_eq!(world.claim_one().await.id(), driver.id());
    assert_eq!(code(driver.step("late").await), "CONCURRENCY_ERROR");
}

async fn leaving_can_be_repeated(world: World) {
    let node = world.node().await;
    for _ in 0..2 {
        world.lease(node, LeaseAct::Leave).await.expect("a node may go");
    }
    world.sweep(10).await;
    world.lease(node, LeaseAct::Leave).await.expect("also when it is forgotten");
    assert_eq!(code(world.try_claim(node, 1).await), "CONCURRENCY_ERROR");
}

async fn one_lease_covers_all_runs_of_a_node(world: World) {
    for n in 0..20 {
        world.start(&n.to_string()).await;
    }
    let (busy, idle) = (world.node().await, world.node().await);
    assert_eq!(world.try_claim(busy, 100).await.expect("alive").len(), 20);
    world.pass(9_000);
    world.lease(idle, LeaseAct::Renew(LEASE)).await.expect("alive");
    world.pass(1_000);
    assert_eq!(world.sweep(100).await.orphaned, 20);
    let claimed = world.try_claim(idle, 100).await.expect("alive");
    assert_eq!(claimed.len(), 20);
    assert!(claimed.iter().all(|c| c.run.status() == Status::Running && c.run.state.node == Some(idle)));
}
