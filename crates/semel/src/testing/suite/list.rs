//! Lists: their order, filters and pages, and how many runs are read for one of them.

use super::world::{ORDER, STRANGER, WORKSPACE, World, all, code, name};
use crate::id::RunId;
use crate::rules::run::Run;
use crate::rules::start::Start;
use crate::rules::status::Status;
use crate::store::{LeaseAct, Page, Query};

promises![
    runs_are_listed_the_newest_first,
    lists_are_filtered,
    running_runs_are_listed_whether_their_nodes_live_or_not,
    lists_come_in_pages_without_gap_or_repetition,
    a_list_shows_its_own_workspace_only,
    a_rare_workflow_or_state_is_found_without_reading_the_others,
    a_time_in_the_future_reads_nothing,
    a_page_is_partial_when_too_many_runs_would_be_read,
    every_combination_of_filters_is_listed_page_by_page,
    a_page_after_a_run_that_is_not_there_is_refused,
];

async fn ids(world: &World, query: Query) -> Vec<RunId> {
    let listed = world.store().list(query).await.expect("a listing is always possible");
    listed.runs.iter().map(Run::id).collect()
}

async fn runs_are_listed_the_newest_first(world: World) {
    let mut started = Vec::new();
    for n in 0..5 {
        started.push(world.start(&n.to_string()).await.run.id());
    }
    started.reverse();
    assert_eq!(ids(&world, all(WORKSPACE)).await, started);
    world.cancel(started[4]).await;
    assert_eq!(ids(&world, all(WORKSPACE)).await, started, "by their beginning, whatever happens to them");
}

async fn lists_are_filtered(world: World) {
    let mut by_status = Vec::new();
    for status in Status::ALL {
        by_status.push((status, world.run_that_is(status, &status.to_string()).await));
    }
    for (status, run) in by_status {
        let query = Query { status: vec![status], ..all(WORKSPACE) };
        assert_eq!(ids(&world, query).await, [run], "{status}");
    }
    world.pass(10);
    let since = world.now();
    let refund = world.begin(Start { workflow: name("refund"), ..world.request("r") }).await.run.id();
    let query = Query { workflow: vec![name("refund")], ..all(WORKSPACE) };
    assert_eq!(ids(&world, query).await, [refund]);
    assert_eq!(ids(&world, Query { since: Some(since), ..all(WORKSPACE) }).await, [refund]);
    let both = Query { since: Some(since), status: vec![Status::Completed], ..all(WORKSPACE) };
    assert!(ids(&world, both).await.is_empty());
    let pending = Query { status: vec![Status::Pending], workflow: vec![name(ORDER)], ..all(WORKSPACE) };
    assert_eq!(ids(&world, pending).await.len(), 1);
}

async fn running_runs_are_listed_whether_their_nodes_live_or_not(world: World) {
    let (dies, lives) = (world.node().await, world.node().await);
    let mut runs = Vec::new();
    for (n, node) in [dies, lives, dies, lives, dies, lives].into_iter().enumerate() {
        let start = Start { claim: Some(node), ..world.request(&n.to_string()) };
        runs.insert(0, world.begin(start).await.run.id());
    }
    world.lease(dies, LeaseAct::Leave).await.expect("a node may go");
    assert_eq!(world.sweep(2).await.orphaned, 2, "a part of them at a time");
    assert_eq!(world.sweep(10).await.orphaned, 1);
    let running = Query { status: vec![Status::Running], ..all(WORKSPACE) };
    assert_eq!(ids(&world, running.clone()).await, runs);
    let page = Query { limit: 2, before: Some(runs[1]), ..running };
    assert_eq!(ids(&world, page).await, runs[2..4]);
}

async fn lists_come_in_pages_without_gap_or_repetition(world: World) {
    for n in 0..7 {
        world.start(&n.to_string()).await;
    }
    let whole = ids(&world, all(WORKSPACE)).await;
    let (mut paged, mut before) = (Vec::new(), None);
    loop {
        let query = Query { before, limit: 3, ..all(WORKSPACE) };
        let page = world.store().list(query).await.expect("a listing");
        assert!(!page.partial, "nothing has to be filtered");
        paged.extend(page.runs.iter().map(Run::id));
        // What is started meanwhile belongs to no later page.
        world.start(&format!("meanwhile {}", paged.len())).await;
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    assert_eq!(paged, whole);
    assert!(ids(&world, Query { limit: 0, ..all(WORKSPACE) }).await.is_empty());
}

async fn a_list_shows_its_own_workspace_only(world: World) {
    let ours = world.start("k").await.run.id();
    let theirs = world.begin(Start { workspace: STRANGER, ..world.request("k") }).await.run.id();
    assert_eq!(ids(&world, all(WORKSPACE)).await, [ours]);
    assert_eq!(ids(&world, all(STRANGER)).await, [theirs]);
}

async fn page(world: &World, query: Query) -> Page {
    world.store().list(query).await.expect("a listing is always possible")
}

/// Runs of two workflows, in all states, created at several times.
async fn mixture(world: &World) -> Vec<Run> {
    for round in 0..3 {
        for status in Status::ALL {
            world.run_that_is(status, &format!("{status} {round}")).await;
        }
        world.pass(5);
        for n in 0..3 {
            world
                .begin(Start { workflow: name("refund"), ..world.request(&format!("refund {round} {n}")) })
                .await;
        }
    }
    world.list().await
}

async fn a_rare_workflow_or_state_is_found_without_reading_the_others(world: World) {
    let refund = world.begin(Start { workflow: name("refund"), ..world.request("r") }).await.run.id();
    let paused = world.run_that_is(Status::Paused, "p").await;
    for n in 0..20 {
        world.start(&n.to_string()).await;
    }
    let few = Query { look_at: 3, ..all(WORKSPACE) };
    let rare = [
        (Query { workflow: vec![name("refund")], ..few.clone() }, vec![refund]),
        (
            Query { workflow: vec![name("refund")], status: vec![Status::Pending], ..few.clone() },
            vec![refund],
        ),
        (Query { workflow: vec![name("refund")], status: vec![Status::Paused], ..few.clone() }, vec![]),
        (Query { workflow: vec![name("refund")], status: vec![Status::Completed], ..few.clone() }, vec![]),
        (Query { workflow: vec![name("absent")], ..few.clone() }, vec![]),
        (Query { workflow: vec![name("absent")], status: vec![Status::Pending], ..few.clone() }, vec![]),
        (Query { status: vec![Status::Paused], ..few.clone() }, vec![paused]),
        (Query { status: vec![Status::Paused], workflow: vec![name(ORDER)], ..few.clone() }, vec![paused]),
        (Query { status: vec![Status::Failed], workflow: vec![name(ORDER)], ..few }, vec![]),
    ];
    for (query, expected) in rare {
        let page = page(&world, query.clone()).await;
        assert_eq!(page.runs.iter().map(Run::id).collect::<Vec<_>>(), expected, "{query:?}");
        assert_eq!((page.partial, page.next), (false, None), "{query:?}");
    }
}

async fn a_time_in_the_future_reads_nothing(world: World) {
    for n in 0..5 {
        world.start(&n.to_string()).await;
    }
    let since = Some(world.after(1));
    for status in [None].into_iter().chain(Status::ALL.map(Some)) {
        for workflow in [None, Some(name(ORDER))] {
            let (status, workflow) = (status.into_iter().collect(), workflow.into_iter().collect());
            let query = Query { status, workflow, since, look_at: 1, ..all(WORKSPACE) };
            assert_eq!(page(&world, query).await, Page::default(), "{since:?}");
        }
    }
}

async fn a_page_is_partial_when_too_many_runs_would_be_read(world: World) {
    let completed = world.run_that_is(Status::Completed, "c").await;
    let mut pending = Vec::new();
    for n in 0..7 {
        pending.insert(0, world.start(&n.to_string()).await.run.id());
    }
    let few = Query { status: vec![Status::Completed], look_at: 3, ..all(WORKSPACE) };
    let first = page(&world, few.clone()).await;
    assert_eq!(first, Page { runs: vec![], next: Some(pending[2]), partial: true });
    let second = page(&world, Query { before: first.next, ..few.clone() }).await;
    assert_eq!(second, Page { runs: vec![], next: Some(pending[5]), partial: true });
    let last = page(&world, Query { before: second.next, ..few.clone() }).await;
    assert_eq!(last.runs.iter().map(Run::id).collect::<Vec<_>>(), [completed]);
    assert_eq!((last.partial, last.next), (false, None));
    let full = page(&world, Query { before: second.next, limit: 1, look_at: 2, ..few }).await;
    assert_eq!((full.runs.len(), full.partial), (1, false), "a full page lacks nothing");
}

async fn every_combination_of_filters_is_listed_page_by_page(world: World) {
    let runs = mixture(&world).await;
    let since = runs[runs.len() / 2].new.created;
    for status in [None].into_iter().chain(Status::ALL.map(Some)) {
        for workflow in [None, Some(name(ORDER)), Some(name("refund")), Some(name("absent"))] {
            for since in [None, Some(since), Some(world.after(1))] {
                let (status, workflow) = (status.into_iter().collect(), workflow.clone().into_iter().collect());
                let query = Query { status, workflow, since, ..all(WORKSPACE) };
                let wanted: Vec<_> = runs.iter().filter(|run| query.wants(run)).map(Run::id).collect();
                assert_eq!(ids(&world, query.clone()).await, wanted, "{query:?}");
                let mut paged = Query { limit: 2, look_at: 4, ..query };
                let mut found = Vec::new();
                loop {
                    let page = page(&world, paged.clone()).await;
                    assert!(page.runs.len() <= 2 && (!page.partial || page.next.is_some()), "{page:?}");
                    found.extend(page.runs.iter().map(Run::id));
                    paged.before = page.next;
                    if page.next.is_none() {
                        break;
                    }
                }
                assert_eq!(found, wanted, "{paged:?}");
            }
        }
    }
}

async fn a_page_after_a_run_that_is_not_there_is_refused(world: World) {
    let theirs = world.begin(Start { workspace: STRANGER, ..world.request("k") }).await.run.id();
    for before in [world.run_id(), theirs] {
        let query = Query { before: Some(before), ..all(WORKSPACE) };
        assert_eq!(code(world.store().list(query).await), "NOT_FOUND");
    }
}
