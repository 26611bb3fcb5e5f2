//! Lists: their order, filters and pages, and how many runs are read for one of them.

use super::world::{ORDER, STRANGER, WORKSPACE, World, all, code, key as key_of, name, visit};
use crate::id::{NodeId, RunId};
use crate::rules::attention::Attention;
use crate::rules::control::{ControlAction, Fork};
use crate::rules::entry::{Entry, PauseReason, Resolution};
use crate::rules::ledger::Lineage;
use crate::rules::run::Run;
use crate::rules::start::Start;
use crate::rules::status::Status;
use crate::store::{KeyPrefix, LeaseAct, Order, Page, Query};

promises![
    runs_are_listed_the_newest_first,
    lists_are_filtered,
    running_runs_are_listed_whichever_node_drives_them,
    running_runs_are_listed_when_their_node_has_gone,
    lists_come_in_pages_without_gap_or_repetition,
    a_list_shows_its_own_workspace_only,
    a_rare_workflow_or_state_is_found_without_reading_the_others,
    a_time_in_the_future_reads_nothing,
    a_page_is_partial_when_too_many_runs_would_be_read,
    every_combination_of_filters_is_listed_page_by_page,
    a_page_after_a_run_that_is_not_there_is_refused,
    every_filter_is_listed_page_by_page_in_both_orders,
    paused_runs_are_listed_by_what_they_need,
    a_run_that_goes_on_needs_no_attention,
    a_lineage_is_the_run_and_its_forks,
    a_page_of_several_states_reads_no_more_than_its_bound,
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

/// Six runs that two nodes drive in turns, the newest first; and the first of the nodes.
async fn driven_by_two(world: &World) -> (Vec<RunId>, NodeId) {
    let (one, other) = (world.node().await, world.node().await);
    let mut runs = Vec::new();
    for (n, node) in [one, other, one, other, one, other].into_iter().enumerate() {
        let start = Start { claim: Some(node), ..world.request(&n.to_string()) };
        runs.insert(0, world.begin(start).await.run.id());
    }
    (runs, one)
}

async fn are_running(world: &World, runs: &[RunId]) {
    let running = Query { status: vec![Status::Running], ..all(WORKSPACE) };
    assert_eq!(ids(world, running.clone()).await, runs);
    let page = Query { limit: 2, before: Some(runs[1]), ..running };
    assert_eq!(ids(world, page).await, runs[2..4]);
}

async fn running_runs_are_listed_whichever_node_drives_them(world: World) {
    let (runs, _) = driven_by_two(&world).await;
    are_running(&world, &runs).await;
}

async fn running_runs_are_listed_when_their_node_has_gone(world: World) {
    let (runs, goes) = driven_by_two(&world).await;
    world.lease(goes, LeaseAct::Leave).await.expect("a node may go");
    assert_eq!(world.sweep(2).await.orphaned, 2, "a part of them at a time");
    assert_eq!(world.sweep(10).await.orphaned, 1);
    are_running(&world, &runs).await;
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
                let (status, workflow) =
                    (status.into_iter().collect(), workflow.clone().into_iter().collect());
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

/// What `paged` finds, page by page.
async fn pages(world: &World, mut paged: Query) -> Vec<RunId> {
    let mut found = Vec::new();
    loop {
        let page = page(world, paged.clone()).await;
        assert!(page.runs.len() <= paged.limit && (!page.partial || page.next.is_some()), "{page:?}");
        found.extend(page.runs.iter().map(Run::id));
        paged.before = page.next;
        if page.next.is_none() {
            return found;
        }
    }
}

/// Queries with one or two of all filters each.
fn filters(runs: &[Run]) -> Vec<Query> {
    let (first, middle) = (&runs[0], &runs[runs.len() / 2]);
    let all = || all(WORKSPACE);
    let key_prefix =
        |prefix: &str| Some(KeyPrefix { scope: first.new.scope.clone(), prefix: prefix.to_owned() });
    let ended = runs.iter().filter_map(|run| run.state.ended).max();
    let node = runs.iter().find_map(|run| run.state.node);
    let several = vec![Status::Failed, Status::Paused, Status::Failed, Status::Running];
    vec![
        Query { status: several.clone(), ..all() },
        Query { status: vec![Status::Completed, Status::Pending], ..all() },
        Query { workflow: vec![name("refund"), name(ORDER), name("absent")], ..all() },
        Query { workflow: vec![name("refund"), name(ORDER)], status: several.clone(), ..all() },
        Query { workflow_version: Some(name("1")), ..all() },
        Query { workflow_version: Some(name("9")), ..all() },
        Query { key_prefix: key_prefix("refund 1"), ..all() },
        Query { key_prefix: key_prefix(""), status: several, ..all() },
        Query { key_prefix: key_prefix("absent"), ..all() },
        Query { until: Some(middle.new.created), ..all() },
        Query { since: Some(middle.new.created), until: Some(first.new.created), ..all() },
        Query { ended_since: ended, ..all() },
        Query { parent: Some(first.id()), ..all() },
        Query { lineage: Some(middle.id()), ..all() },
        Query { lineage: Some(middle.id()), parent: Some(first.id()), ..all() },
        Query { node, ..all() },
        Query { node, status: vec![Status::Paused], ..all() },
        Query { attention: Some(Attention::Operator), ..all() },
        Query { attention: Some(Attention::Operator), status: vec![Status::Failed], ..all() },
        Query { attention: Some(Attention::Operator), workflow: vec![name(ORDER)], ..all() },
    ]
}

async fn every_filter_is_listed_page_by_page_in_both_orders(world: World) {
    let mut runs = mixture(&world).await;
    let lost = runs[3].id();
    world.control(lost, ControlAction::ReleaseKey).await.expect("a key can be released");
    runs = world.list().await;
    for query in filters(&runs) {
        for order in [Order::Newest, Order::Oldest] {
            let query = Query { order, ..query.clone() };
            let mut wanted: Vec<_> = runs.iter().filter(|run| query.wants(run)).map(Run::id).collect();
            if order == Order::Oldest {
                wanted.reverse();
            }
            assert_eq!(ids(&world, query.clone()).await, wanted, "{query:?}");
            for (limit, look_at) in [(2, 4), (1, 1), (3, 1_000)] {
                let paged = Query { limit, look_at, ..query.clone() };
                assert_eq!(pages(&world, paged.clone()).await, wanted, "{paged:?}");
            }
        }
    }
}

async fn paused_runs_are_listed_by_what_they_need(world: World) {
    let operator = world.run_that_is(Status::Paused, "operator").await;
    let mut doubt = world.driven("doubt").await;
    doubt.doubt("pay").await;
    let mut diverged = world.driven("diverged").await;
    diverged.record(Entry::Paused { reason: PauseReason::Diverged("here".to_owned()) }).save().await;
    let mut tied = world.driven("tied").await;
    tied.open("token").await;
    tied.doubt("pay").await;
    let poisoned = world.driven("poisoned").await;
    for _ in 0..20 {
        world.crash().await;
        world.claim_all().await;
    }
    assert_eq!(world.run(poisoned.id()).await.status(), Status::Paused);
    for (kind, expected) in [
        (Attention::InDoubt, vec![tied.id(), doubt.id()]),
        (Attention::Diverged, vec![diverged.id()]),
        (Attention::Poisoned, vec![poisoned.id()]),
        (Attention::Operator, vec![operator]),
    ] {
        let query = Query { attention: Some(kind), ..all(WORKSPACE) };
        assert_eq!(ids(&world, query).await, expected, "{kind}");
        for run in expected {
            assert_eq!(world.run(run).await.state.attention, Some(kind));
        }
    }
}

async fn a_run_that_goes_on_needs_no_attention(world: World) {
    let resumed = world.run_that_is(Status::Paused, "resumed").await;
    world.control(resumed, ControlAction::Resume).await.expect("a paused run can be resumed");
    let cancelled = world.run_that_is(Status::Paused, "cancelled").await;
    world.cancel(cancelled).await;
    let mut resolved = world.driven("resolved").await;
    resolved.doubt("pay").await;
    let resolution = Resolution::DidNotHappen;
    let resolve = ControlAction::Resolve { step: visit("pay"), resolution };
    world.control(resolved.id(), resolve).await.expect("a doubt can be resolved");
    for run in [resumed, cancelled, resolved.id()] {
        assert_eq!(world.run(run).await.state.attention, None);
    }
    for kind in Attention::ALL {
        assert!(ids(&world, Query { attention: Some(kind), ..all(WORKSPACE) }).await.is_empty(), "{kind}");
    }
}

async fn a_lineage_is_the_run_and_its_forks(world: World) {
    let source = world.run_that_is(Status::Completed, "source").await;
    let fork = |key: &str, lineage| {
        let run = world.run_id();
        let key = Some(key_of(key));
        (run, ControlAction::Fork(Fork { run, key, at: None, lineage }))
    };
    let (kept, forks) = fork("kept", Lineage::Inherited);
    world.control(source, forks).await.expect("an ended run can be forked");
    let (fresh, forks) = fork("fresh", Lineage::Fresh);
    world.control(source, forks).await.expect("an ended run can be forked");
    let lineage = |run| Query { lineage: Some(run), ..all(WORKSPACE) };
    assert_eq!(ids(&world, lineage(source)).await, [kept, source]);
    assert_eq!(ids(&world, lineage(fresh)).await, [fresh]);
    assert!(ids(&world, lineage(kept)).await.is_empty());
    let oldest = Query { order: Order::Oldest, limit: 1, ..lineage(source) };
    assert_eq!(pages(&world, oldest).await, [source, kept]);
}

async fn a_page_of_several_states_reads_no_more_than_its_bound(world: World) {
    for n in 0..6 {
        world.run_that_is(Status::Paused, &format!("p{n}")).await;
        world.run_that_is(Status::Failed, &format!("f{n}")).await;
    }
    let none = Query {
        status: vec![Status::Paused, Status::Failed],
        workflow_version: Some(name("absent")),
        look_at: 4,
        ..all(WORKSPACE)
    };
    let first = page(&world, none.clone()).await;
    assert!(first.partial && first.runs.is_empty() && first.next.is_some(), "{first:?}");
    assert_eq!(pages(&world, none).await, []);
}
