//! Lease: one per node. A node whose lease has ended is dead, also in its own eyes.

use super::world::{LEASE, World, code, payload};
use crate::id::NodeId;
use crate::rules::node::EngineRecord;
use crate::rules::record::{Keep, Look, LookBy};
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
    an_engines_record_goes_with_its_node,
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

async fn an_engines_record_goes_with_its_node(world: World) {
    let (leaves, dies, stays) = (world.node().await, world.node().await, world.node().await);
    let unknown = NodeId(world.run_id().0);
    for node in [leaves, dies, stays, unknown] {
        let (kind, id, body) = (EngineRecord::kind(), EngineRecord::id(node), payload("1"));
        let keep = Keep { kind, id, body, expected: Some(0), ttl: None };
        world.store().keep(keep).await.expect("there is none");
    }
    let there = async || {
        let by = LookBy::Page { after: None, limit: 10, newest_first: false };
        let look = Look { kind: EngineRecord::kind(), by };
        let found = world.store().records(look).await.expect("a look is always possible");
        found.into_iter().map(|record| record.id).collect::<Vec<_>>()
    };
    let ids = |nodes: &[NodeId]| {
        let mut ids: Vec<_> = nodes.iter().map(|node| EngineRecord::id(*node)).collect();
        ids.sort();
        ids
    };
    world.lease(leaves, LeaseAct::Leave).await.expect("it may leave");
    assert_eq!(there().await.len(), 4, "the sweep removes it");
    world.sweep(10).await;
    assert_eq!(there().await, ids(&[dies, stays, unknown]));
    world.pass(9_999);
    world.lease(stays, LeaseAct::Renew(LEASE)).await.expect("alive");
    world.pass(1);
    world.sweep(10).await;
    assert_eq!(there().await, ids(&[stays, unknown]), "a node without a lease is not swept");
}
