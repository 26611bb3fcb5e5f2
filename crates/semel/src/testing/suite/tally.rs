//! Numbers of a workspace: runs by status, by what they need, by version and by node.

use super::world::{ORDER, STRANGER, WORKSPACE, World, name};
use crate::id::NodeId;
use crate::rules::attention::Attention;
use crate::rules::json::Payload;
use crate::rules::node::{EngineRecord, LostNode, WorkerNode};
use crate::rules::path::Name;
use crate::rules::record::{Keep, Look, LookBy, Record};
use crate::rules::start::Start;
use crate::rules::status::Status;
use crate::store::{Capped, LeaseAct, RunTally, TallyQuery};

promises![
    runs_are_counted_by_status_and_attention,
    a_number_ends_at_its_bound,
    runs_are_counted_by_workflow_and_time,
    due_runs_are_counted_by_version,
    open_runs_are_counted_by_version,
    a_node_shows_its_lease_and_its_runs,
    a_late_commit_is_counted_on_its_node,
    a_node_that_was_lost_is_remembered_for_a_day,
    a_node_that_left_in_good_order_is_not_remembered,
];

fn query(cap: usize) -> TallyQuery {
    TallyQuery { workspace: WORKSPACE, workflow: None, since: None, cap }
}

async fn tally(world: &World, query: TallyQuery) -> RunTally {
    world.store().tally(query).await.expect("counting is always possible")
}

fn exactly(count: u64) -> Capped {
    Capped { count, more: false }
}

async fn runs_are_counted_by_status_and_attention(world: World) {
    for (n, status) in Status::ALL.into_iter().enumerate() {
        for round in 0..=n {
            world.run_that_is(status, &format!("{status} {round}")).await;
        }
    }
    world.begin(Start { workspace: STRANGER, ..world.request("theirs") }).await;
    let tally = tally(&world, query(100)).await;
    let expected: Vec<_> = Status::ALL.into_iter().zip(1..).map(|(status, n)| (status, exactly(n))).collect();
    assert_eq!(tally.statuses, expected);
    let paused = Attention::ALL.map(|kind| (kind, exactly(4 * u64::from(kind == Attention::Operator))));
    assert_eq!(tally.attention, paused);
}

async fn a_number_ends_at_its_bound(world: World) {
    for n in 0..4 {
        for status in [Status::Pending, Status::Completed, Status::Failed] {
            world.run_that_is(status, &format!("{status} {n}")).await;
        }
    }
    for (cap, expected) in [(3, Capped { count: 3, more: true }), (4, exactly(4))] {
        let tally = tally(&world, query(cap)).await;
        let of = |status: Status| tally.statuses[status.code() as usize].1;
        assert_eq!([of(Status::Pending), of(Status::Failed)], [expected; 2], "{cap}");
        assert_eq!(of(Status::Completed), expected, "{cap}");
        assert_eq!(tally.versions[0].due, expected, "{cap}");
    }
    assert_eq!(tally(&world, query(100)).await.statuses[4].1, exactly(4));
}

async fn runs_are_counted_by_workflow_and_time(world: World) {
    world.start("old").await;
    world.pass(10);
    let since = Some(world.now());
    world.run_that_is(Status::Completed, "done").await;
    world.begin(Start { workflow: name("refund"), ..world.request("r") }).await;
    let of = async |workflow: Option<&str>, since| {
        let query = TallyQuery { workflow: workflow.map(name), since, ..query(100) };
        let tally = tally(&world, query).await;
        let count = |status: Status| tally.statuses[status.code() as usize].1.count;
        [count(Status::Pending), count(Status::Completed)]
    };
    assert_eq!(of(None, None).await, [2, 1]);
    assert_eq!(of(None, since).await, [1, 1]);
    assert_eq!(of(Some(ORDER), None).await, [1, 1]);
    assert_eq!(of(Some("refund"), since).await, [1, 0]);
    assert_eq!(of(Some("absent"), None).await, [0, 0]);
}

async fn due_runs_are_counted_by_version(world: World) {
    let oldest = world.now();
    world.start("late").await;
    world.pass(20_000);
    world.start("due").await;
    for version in ["2", "10"] {
        let start = Start { workflow_version: name(version), ..world.request(version) };
        world.begin(start).await;
    }
    world.begin(Start { workflow: name("refund"), ..world.request("r") }).await;
    let versions = tally(&world, query(100)).await.versions;
    let shown: Vec<_> = versions
        .iter()
        .map(|version| {
            (version.workflow.as_str(), version.workflow_version.as_str(), version.due, version.late)
        })
        .collect();
    let one = (exactly(1), exactly(0));
    assert_eq!(
        shown,
        [
            (ORDER, "1", exactly(2), exactly(1)),
            (ORDER, "10", one.0, one.1),
            (ORDER, "2", one.0, one.1),
            ("refund", "1", one.0, one.1)
        ]
    );
    assert_eq!(versions[0].oldest, Some(oldest));
    let refunds = tally(&world, TallyQuery { workflow: Some(name("refund")), ..query(100) }).await;
    assert_eq!(refunds.versions.len(), 1);
    world.claim_all().await;
    let left = tally(&world, query(100)).await.versions;
    assert!(
        left.iter().all(|version| version.workflow_version != name("1") || version.workflow != name(ORDER))
    );
}

async fn open_runs_are_counted_by_version(world: World) {
    for status in Status::ALL {
        world.run_that_is(status, &status.to_string()).await;
    }
    world.begin(Start { workflow_version: name("2"), ..world.request("new") }).await;
    let versions = world.store().versions(WORKSPACE, 100).await.expect("counting is always possible");
    let shown: Vec<_> =
        versions.open.iter().map(|open| (open.workflow_version.as_str(), open.status, open.count)).collect();
    assert_eq!(
        shown,
        [
            ("1", Status::Pending, 1),
            ("2", Status::Pending, 1),
            ("1", Status::Running, 1),
            ("1", Status::Waiting, 1),
            ("1", Status::Paused, 1)
        ]
    );
    assert_eq!(versions.capped, []);
    assert_eq!(versions.due.len(), 2);
    let bounded = world.store().versions(WORKSPACE, 1).await.expect("counting is always possible");
    assert_eq!(bounded.capped, [Status::Pending, Status::Running, Status::Waiting, Status::Paused]);
}

async fn a_node_shows_its_lease_and_its_runs(world: World) {
    let (busy, idle) = (world.node().await, world.node().await);
    for n in 0..3 {
        world.begin(Start { claim: Some(busy), ..world.request(&n.to_string()) }).await;
    }
    let facts = |nodes: &[crate::store::NodeFacts], node| {
        *nodes.iter().find(|facts| facts.node == node).expect("the node is known")
    };
    let nodes = world.store().nodes(WORKSPACE, 100).await.expect("counting is always possible");
    assert_eq!((facts(&nodes, busy).runs, facts(&nodes, idle).runs), (exactly(3), exactly(0)));
    assert_eq!(facts(&nodes, busy).lease, Some(world.now().after(super::world::LEASE)));
    let theirs = world.store().nodes(STRANGER, 100).await.expect("counting is always possible");
    assert_eq!(facts(&theirs, busy).runs, exactly(0));
}

async fn a_late_commit_is_counted_on_its_node(world: World) {
    let mut zombie = world.driven("k").await;
    let node = zombie.ledger.run().state.node.expect("it drives the run");
    world.cancel(zombie.id()).await;
    zombie.step("late").await.expect_err("the run is cancelled");
    let nodes = world.store().nodes(WORKSPACE, 100).await.expect("counting is always possible");
    let stale: Vec<_> =
        nodes.iter().filter(|facts| facts.stale > 0).map(|facts| (facts.node, facts.stale)).collect();
    assert_eq!(stale, [(node, 1)]);
}

/// A node with what a server writes about the worker that it belongs to.
async fn worker(world: &World) -> NodeId {
    let node = world.node().await;
    let (name, serves) = ("till".to_owned(), vec!["queue:payments".to_owned()]);
    let body = Payload::of(&WorkerNode { name, workspace: WORKSPACE, serves }).expect("plain data");
    let (kind, id) = (WorkerNode::kind(), EngineRecord::id(node));
    let keep = Keep { kind, id, body, expected: Some(0), ttl: None };
    world.store().keep(keep).await.expect("nothing is there yet");
    node
}

async fn records(world: &World, kind: Name) -> Vec<Record> {
    let by = LookBy::Page { after: None, limit: 10, newest_first: false };
    world.store().records(Look { kind, by }).await.expect("a look-up is always possible")
}

async fn a_node_that_was_lost_is_remembered_for_a_day(world: World) {
    let node = worker(&world).await;
    world.crash().await;
    assert_eq!(records(&world, WorkerNode::kind()).await, []);
    let found = records(&world, LostNode::kind()).await;
    assert_eq!(found.iter().map(|record| record.id.clone()).collect::<Vec<_>>(), [EngineRecord::id(node)]);
    let lost: LostNode = found[0].body.read().expect("it is readable");
    let serves = vec!["queue:payments".to_owned()];
    let (name, host) = ("till".to_owned(), String::new());
    assert_eq!(lost, LostNode { name, host, workspace: WORKSPACE, serves, remote: true, lost: world.now() });
    world.clock().advance(LostNode::KEPT);
    world.sweep(10).await;
    assert_eq!(records(&world, LostNode::kind()).await, []);
}

async fn a_node_that_left_in_good_order_is_not_remembered(world: World) {
    let node = worker(&world).await;
    world.lease(node, LeaseAct::Leave).await.expect("a node may go");
    world.sweep(10).await;
    assert_eq!(records(&world, WorkerNode::kind()).await, []);
    assert_eq!(records(&world, LostNode::kind()).await, []);
}
