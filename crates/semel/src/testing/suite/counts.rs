//! Counts: what is open by workflow, in doubt, due and alive, each up to a bound.

use std::time::Duration;

use super::world::{ORDER, STRANGER, WORKSPACE, World, name};
use crate::rules::start::Start;
use crate::rules::status::Status;
use crate::store::{Counts, LeaseAct, RunCounts, WorkflowCounts};

promises![
    open_runs_are_counted_by_workflow_in_all_workspaces,
    a_count_ends_at_its_bound,
    a_run_paused_over_a_doubt_is_counted_until_it_is_resumed,
    due_runs_that_no_node_has_are_the_backlog,
    live_nodes_are_counted,
    open_runs_of_a_workspace_are_counted_to_a_bound,
    open_runs_of_a_workspace_are_counted_by_workflow,
];

async fn counts(world: &World, cap: u64) -> Counts {
    world.store().counts(cap).await.expect("counting is always possible")
}

fn counted(workflow: &str, open: u64, paused: u64) -> WorkflowCounts {
    WorkflowCounts { workflow: name(workflow), open, paused }
}

async fn open_runs_are_counted_by_workflow_in_all_workspaces(world: World) {
    assert_eq!(counts(&world, 100).await.workflows, []);
    for status in Status::ALL {
        world.run_that_is(status, &status.to_string()).await;
    }
    for workspace in [WORKSPACE, STRANGER] {
        world.begin(Start { workspace, workflow: name("refund"), ..world.request("r") }).await;
    }
    let counts = counts(&world, 100).await;
    assert_eq!(counts.workflows, [counted(ORDER, 4, 1), counted("refund", 2, 0)]);
    assert_eq!((counts.open(), counts.paused(), counts.capped), (6, 1, false));
}

async fn a_count_ends_at_its_bound(world: World) {
    for n in 0..5 {
        world.start(&n.to_string()).await;
    }
    let bounded = counts(&world, 3).await;
    assert_eq!(bounded.workflows, [counted(ORDER, 3, 0)]);
    assert_eq!((bounded.backlog, bounded.capped), (3, true));
    let all = counts(&world, 6).await;
    assert_eq!((all.open(), all.backlog, all.capped), (5, 5, false));
}

async fn a_run_paused_over_a_doubt_is_counted_until_it_is_resumed(world: World) {
    world.run_that_is(Status::Paused, "by an operator").await;
    assert_eq!(counts(&world, 100).await.in_doubt, 0, "an operator's pause is no doubt");
    let mut driver = world.driven("doubtful").await;
    driver.doubt("pay").await;
    let doubtful = counts(&world, 100).await;
    assert_eq!((doubtful.in_doubt, doubtful.paused()), (1, 2));
    world.cancel(driver.id()).await;
    let cancelled = counts(&world, 100).await;
    assert_eq!((cancelled.in_doubt, cancelled.paused()), (0, 1));
}

async fn due_runs_that_no_node_has_are_the_backlog(world: World) {
    world.start("due").await;
    let driven = world.driven("claimed").await;
    let later = Start { delay: Duration::from_mins(1), ..world.request("later") };
    world.begin(later).await;
    assert_eq!(counts(&world, 100).await.backlog, 1);
    world.pass(60_000);
    assert_eq!(counts(&world, 100).await.backlog, 2);
    assert_eq!(world.run(driven.id()).await.status(), Status::Running, "and no part of the backlog");
}

async fn live_nodes_are_counted(world: World) {
    let (leaves, _lives) = (world.node().await, world.node().await);
    assert_eq!(counts(&world, 100).await.nodes, 2);
    world.lease(leaves, LeaseAct::Leave).await.expect("a node may go");
    assert_eq!(counts(&world, 100).await.nodes, 1);
}

async fn open_runs_of_a_workspace_are_counted_to_a_bound(world: World) {
    for status in Status::ALL {
        world.run_that_is(status, &status.to_string()).await;
    }
    world.begin(Start { workspace: STRANGER, ..world.request("theirs") }).await;
    for (cap, expected) in [(100, 4), (3, 3), (0, 0)] {
        assert_eq!(world.store().open_runs(WORKSPACE, cap).await.expect("possible"), expected, "{cap}");
    }
    assert_eq!(world.store().open_runs(STRANGER, 100).await.expect("possible"), 1);
}

async fn open_runs_of_a_workspace_are_counted_by_workflow(world: World) {
    let counts = async |workspace, cap| {
        world.store().counts_in(workspace, cap).await.expect("counting is always possible")
    };
    assert_eq!(counts(WORKSPACE, 100).await, RunCounts::default());
    for status in Status::ALL {
        world.run_that_is(status, &status.to_string()).await;
    }
    let mut driver = world.driven("doubtful").await;
    driver.doubt("pay").await;
    for n in 0..3 {
        world.begin(Start { workspace: STRANGER, ..world.request(&n.to_string()) }).await;
    }
    let ours = counts(WORKSPACE, 100).await;
    assert_eq!(ours.workflows, [counted(ORDER, 5, 2)], "one of each open status, and the doubtful one");
    assert_eq!((ours.open(), ours.paused(), ours.in_doubt, ours.capped), (5, 2, 1, false));
    let theirs = counts(STRANGER, 2).await;
    assert_eq!((theirs.workflows, theirs.capped), (vec![counted(ORDER, 2, 0)], true));
}
