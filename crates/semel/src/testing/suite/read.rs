//! Reading: look-ups, lists, ledgers, inboxes, receipts; and who may not see them.

use super::world::{ORDER, STRANGER, WORKSPACE, World, all, code, key, name, token};
use crate::id::RunId;
use crate::rules::control::Action;
use crate::rules::key::{KeyScope, Scope};
use crate::rules::receipt::{RECENT, ReceiptKind};
use crate::rules::start::Start;
use crate::rules::status::Status;
use crate::store::{Find, FindBy, LeaseAct, Query};

promises![
    a_run_is_found_by_id_key_and_token,
    a_strangers_look_ups_find_nothing,
    runs_are_listed_the_newest_first,
    lists_are_filtered,
    running_runs_are_listed_whether_their_nodes_live_or_not,
    lists_come_in_pages_without_gap_or_repetition,
    a_list_shows_its_own_workspace_only,
    a_ledger_is_read_from_any_entry,
    entries_say_when_they_were_committed,
    receipts_count_all_and_keep_the_latest,
    receipts_of_different_kinds_are_kept_apart,
    reading_changes_nothing,
];

async fn a_run_is_found_by_id_key_and_token(world: World) {
    let scope = |scope| Scope::of(scope, &name(ORDER), &name("1"));
    let request = Start { scope: KeyScope::WorkflowVersion, ..world.request("k") };
    let mut driver = world.drive(request).await;
    driver.open("t").await;
    let by_key = FindBy::Key(scope(KeyScope::WorkflowVersion), key("k"));
    for by in [FindBy::Id(driver.id()), by_key, FindBy::Token(token("t"))] {
        let found = world.find(by.clone()).await.unwrap_or_else(|| panic!("{by:?}"));
        assert_eq!(found, world.run(driver.id()).await);
    }
    let elsewhere = FindBy::Key(scope(KeyScope::Workflow), key("k"));
    for by in [FindBy::Id(world.run_id()), elsewhere, FindBy::Token(token("u"))] {
        assert_eq!(world.find(by).await, None);
    }
}

async fn a_strangers_look_ups_find_nothing(world: World) {
    let mut driver = world.driven("k").await;
    driver.open("t").await;
    let scope = Scope::of(KeyScope::Workspace, &name(ORDER), &name("1"));
    for by in [FindBy::Id(driver.id()), FindBy::Key(scope, key("k")), FindBy::Token(token("t"))] {
        let find = Find { workspace: STRANGER, by };
        assert_eq!(world.store().find(find).await.expect("a look-up"), None);
    }
    let (store, run) = (world.store(), driver.id());
    assert_eq!(code(store.ledger(STRANGER, run, 1).await), "NOT_FOUND");
    assert_eq!(code(store.inbox(STRANGER, run, 1).await), "NOT_FOUND");
    assert_eq!(code(store.receipts(STRANGER, run).await), "NOT_FOUND");
    let unknown: RunId = world.run_id();
    assert_eq!(code(store.ledger(WORKSPACE, unknown, 1).await), "NOT_FOUND");
    assert_eq!(code(store.inbox(WORKSPACE, unknown, 1).await), "NOT_FOUND");
    assert_eq!(code(store.receipts(WORKSPACE, unknown).await), "NOT_FOUND");
}

async fn ids(world: &World, query: Query) -> Vec<RunId> {
    let listed = world.store().list(query).await.expect("a listing is always possible");
    listed.iter().map(crate::rules::run::Run::id).collect()
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
        let query = Query { status: Some(status), ..all(WORKSPACE) };
        assert_eq!(ids(&world, query).await, [run], "{status}");
    }
    world.pass(10);
    let since = world.now();
    let refund = world.begin(Start { workflow: name("refund"), ..world.request("r") }).await.run.id();
    let query = Query { workflow: Some(name("refund")), ..all(WORKSPACE) };
    assert_eq!(ids(&world, query).await, [refund]);
    assert_eq!(ids(&world, Query { since: Some(since), ..all(WORKSPACE) }).await, [refund]);
    let both = Query { since: Some(since), status: Some(Status::Completed), ..all(WORKSPACE) };
    assert!(ids(&world, both).await.is_empty());
    let pending = Query { status: Some(Status::Pending), workflow: Some(name(ORDER)), ..all(WORKSPACE) };
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
    let running = Query { status: Some(Status::Running), ..all(WORKSPACE) };
    assert_eq!(ids(&world, running.clone()).await, runs);
    let page = Query { limit: 2, before: Some(world.run(runs[1]).await.num), ..running };
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
        let Some(last) = page.last() else { break };
        before = Some(last.num);
        paged.extend(page.iter().map(crate::rules::run::Run::id));
        // What is started meanwhile belongs to no later page.
        world.start(&format!("meanwhile {}", paged.len())).await;
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

async fn a_ledger_is_read_from_any_entry(world: World) {
    let mut driver = world.driven("k").await;
    for n in 0..4 {
        driver.step(&format!("step-{n}")).await.expect("ours");
    }
    let whole = world.store().ledger(WORKSPACE, driver.id(), 1).await.expect("known");
    assert_eq!(whole.iter().map(|line| line.number).collect::<Vec<_>>(), (1..=10).collect::<Vec<_>>());
    for from in 0..=12u64 {
        let part = world.store().ledger(WORKSPACE, driver.id(), from).await.expect("known");
        assert_eq!(part, whole[from.saturating_sub(1).min(10) as usize..], "from {from}");
    }
}

async fn entries_say_when_they_were_committed(world: World) {
    let began = world.now();
    let mut driver = world.driven("k").await;
    world.pass(5);
    driver.step("a").await.expect("ours");
    let ledger = world.store().ledger(WORKSPACE, driver.id(), 1).await.expect("known");
    assert_eq!(
        ledger.iter().map(|line| line.at).collect::<Vec<_>>(),
        [began, began, world.now(), world.now()]
    );
    assert_eq!(world.run(driver.id()).await.new.created, began);
}

async fn receipts_count_all_and_keep_the_latest(world: World) {
    let run = world.start("k").await.run.id();
    assert_eq!(world.store().receipts(WORKSPACE, run).await.expect("known"), []);
    let first = world.after(1);
    for n in 1..=12u64 {
        world.pass(1);
        world.start("k").await;
        // Read now and then: what is written in portions adds up.
        if n % 5 == 0 {
            assert_eq!(world.absorbed(run, ReceiptKind::Start).await, n);
        }
    }
    let receipts = world.store().receipts(WORKSPACE, run).await.expect("known");
    let [(ReceiptKind::Start, starts)] = receipts.as_slice() else { panic!("{receipts:?}") };
    assert_eq!((starts.count, starts.first, starts.last), (12, first, world.now()));
    assert_eq!(starts.recent.len(), RECENT);
    assert!(starts.recent.windows(2).all(|pair| pair[0].at < pair[1].at));
    assert_eq!(starts.recent.last().map(|absorbed| absorbed.at), Some(world.now()));
}

async fn receipts_of_different_kinds_are_kept_apart(world: World) {
    let mut driver = world.driven("k").await;
    driver.open("t").await;
    world.start("k").await;
    for _ in 0..2 {
        world.deliver_as("d", "t", "1").await.expect("accepted or absorbed");
    }
    let mut zombie = driver.clone();
    for _ in 0..2 {
        world.control_as("c", driver.id(), Action::Pause).await.expect("done or absorbed");
    }
    assert_eq!(code(zombie.step("late").await), "CONCURRENCY_ERROR");
    let receipts = world.store().receipts(WORKSPACE, driver.id()).await.expect("known");
    let counted: Vec<_> = receipts.iter().map(|(kind, receipts)| (*kind, receipts.count)).collect();
    assert_eq!(counted, ReceiptKind::ALL.map(|kind| (kind, 1)));
    assert_eq!(world.store().receipts(WORKSPACE, driver.id()).await.expect("known"), receipts);
}

async fn reading_changes_nothing(world: World) {
    let mut driver = world.driven("k").await;
    driver.open("t").await;
    world.deliver("t", "1").await;
    let before = (world.run(driver.id()).await, world.inbox(driver.id()).await);
    for _ in 0..3 {
        world.find(FindBy::Token(token("t"))).await;
        world.list().await;
        world.entries(driver.id()).await;
    }
    assert_eq!((world.run(driver.id()).await, world.inbox(driver.id()).await), before);
    driver.step("a").await.expect("still ours");
}
