//! Claim: a due run gets one driver, and its former driver is fenced off by that.

use std::sync::Arc;
use std::time::Duration;

use super::driver::SuiteDriver;
use super::world::{LEASE, ORDER, STRANGER, WORKSPACE, World, code, drives, name, orders, payload};
use crate::id::{NodeId, RunId};
use crate::rules::claim::{Claim, Drives, HeldRuns, MAX_DEATHS, SUSPECT};
use crate::rules::control::ControlAction;
use crate::rules::entry::{Entry, PauseReason};
use crate::rules::family::Family;
use crate::rules::receipt::ReceiptKind;
use crate::rules::start::Start;
use crate::rules::status::Status;
use crate::store::{Claims, LeaseAct};

promises![
    a_claim_brings_all_that_the_driver_needs,
    the_longest_due_run_is_claimed_first,
    a_claim_takes_no_more_than_its_limit,
    only_the_workflows_asked_for_are_claimed,
    runs_of_another_version_are_not_claimed_and_hide_no_others,
    a_claimed_run_is_not_claimed_again,
    a_claim_fences_the_former_owner_off,
    a_waiting_run_is_due_at_its_time_and_not_before,
    a_run_that_waits_for_input_only_is_never_due,
    a_paused_run_is_not_claimed,
    an_ended_run_is_not_claimed,
    a_run_that_keeps_crashing_is_parked_and_others_go_on,
    progress_ends_the_count_of_crashes,
    a_resumed_run_has_all_its_tries_again,
    leaving_in_good_order_is_no_crash,
    bystanders_of_a_poisonous_run_are_not_parked,
    a_suspect_is_taken_alone_by_a_node_that_holds_nothing,
    suspects_that_are_left_hide_nothing,
    a_node_without_a_lease_claims_nothing,
    a_ledger_that_the_node_holds_is_not_read_again,
    a_claim_takes_what_fits_into_its_bytes,
    a_claim_leaves_runs_whose_messages_do_not_fit,
    a_claim_tells_when_the_next_run_is_due,
    a_family_is_claimed_in_all_workspaces_whatever_the_workflow,
    a_claim_by_version_and_by_family_takes_the_longest_due_first,
    a_claim_of_a_family_tells_when_its_next_run_is_due,
];

/// The runs up to a version, as if a node had them in memory.
#[derive(Debug)]
struct UpTo(u64);

impl HeldRuns for UpTo {
    fn holds(&self, _: i64, version: u64) -> bool {
        version == self.0
    }
}

async fn a_claim_brings_all_that_the_driver_needs(world: World) {
    let mut first = world.driven("k").await;
    first.open("t").await;
    world.deliver("t", "1").await;
    first.step("a").await.expect("ours");
    world.crash().await;
    let node = world.node().await;
    let claimed = world.try_claim(node, 10).await.expect("alive").remove(0);
    let entries = claimed.entries.expect("nothing is held");
    assert_eq!(entries, world.entries(first.id()).await);
    assert_eq!(claimed.inbox, world.inbox(first.id()).await);
    assert_eq!(claimed.inbox.len(), 1);
    assert_eq!(claimed.run, world.run(first.id()).await);
    assert_eq!((claimed.run.status(), claimed.run.state.node), (Status::Running, Some(node)));
    assert_eq!(entries.last(), Some(&Entry::Claimed { node }));
    assert_eq!(claimed.run.state.version, entries.len() as u64);
}

async fn the_longest_due_run_is_claimed_first(world: World) {
    let mut order = Vec::new();
    for (key, due) in [("c", 30), ("a", 10), ("d", 40), ("b", 20)] {
        let delay = std::time::Duration::from_millis(due);
        order.push((due, world.begin(Start { delay, ..world.request(key) }).await.run.id()));
    }
    order.sort_unstable();
    world.pass(40);
    let node = world.node().await;
    for (_, expected) in order {
        let claimed = world.try_claim(node, 1).await.expect("alive");
        assert_eq!(claimed.iter().map(|c| c.run.id()).collect::<Vec<_>>(), [expected]);
    }
}

async fn a_claim_takes_no_more_than_its_limit(world: World) {
    for n in 0..5 {
        world.start(&n.to_string()).await;
    }
    let node = world.node().await;
    let mut sizes = Vec::new();
    for limit in [0, 2, 2, 2, 2] {
        sizes.push(world.try_claim(node, limit).await.expect("alive").len());
    }
    assert_eq!(sizes, [0, 2, 2, 1, 0]);
}

async fn a_claim_takes_what_fits_into_its_bytes(world: World) {
    let input = payload(&format!("\"{}\"", "x".repeat(2_000)));
    let mut runs = Vec::new();
    for n in 0..6 {
        let start = Start { input: input.clone(), ..world.request(&n.to_string()) };
        runs.push(world.begin(start).await.run.id());
        world.pass(1);
    }
    let node = world.node().await;
    let claim = Claim { bytes: 3_000, ..Claim::new(node, vec![orders()], 10) };
    for expected in runs.chunks(2) {
        let claims = world.store().claim(claim.clone()).await.expect("alive");
        assert_eq!(ids(&claims), expected, "the second one exceeds the bytes, and is the last");
        for claimed in &claims.runs {
            assert_eq!(claimed.entries.as_ref(), Some(&world.entries(claimed.run.id()).await));
        }
        let left = expected != &runs[4..];
        assert_eq!(claims.next_due == Some(claims.now), left, "what is left is due");
    }
    // However small the bytes are, the first run is taken.
    let large = world.begin(Start { input, ..world.request("large") }).await.run.id();
    let claim = Claim { bytes: 0, ..claim };
    assert_eq!(ids(&world.store().claim(claim).await.expect("alive")), [large]);
}

async fn a_claim_leaves_runs_whose_messages_do_not_fit(world: World) {
    let message = format!("\"{}\"", "x".repeat(4_000));
    for token in ["a", "b", "c"] {
        world.driven(token).await.open(token).await;
        for _ in 0..3 {
            world.deliver(token, &message).await;
        }
    }
    world.crash().await;
    let node = world.node().await;
    let claim = |bytes| Claim { bytes, ..Claim::new(node, vec![orders()], 10) };
    // The messages of one run exceed 6,000 bytes, those of two exceed 15,000.
    for (bytes, left) in [(6_000, true), (15_000, true), (15_000, false)] {
        let claims = world.store().claim(claim(bytes)).await.expect("alive");
        assert_eq!(claims.runs.len(), 1, "{bytes}");
        assert_eq!(claims.runs[0].inbox, world.inbox(claims.runs[0].run.id()).await);
        assert_eq!(claims.runs[0].inbox.len(), 3, "a run has all of its messages");
        assert_eq!(claims.next_due == Some(claims.now), left);
    }
}

fn hosted() -> Family {
    Family::new("doc1_").expect("a proper prefix")
}

/// Claims runs of a family, and of versions by their names.
async fn claim_hosted(world: &World, node: NodeId, workflows: Vec<Drives>, limit: usize) -> Claims {
    let claim = Claim { families: vec![hosted()], ..Claim::new(node, workflows, limit) };
    world.store().claim(claim).await.expect("alive")
}

fn ids(claims: &Claims) -> Vec<RunId> {
    claims.runs.iter().map(|claimed| claimed.run.id()).collect()
}

async fn a_family_is_claimed_in_all_workspaces_whatever_the_workflow(world: World) {
    let start = async |key: &str, version: &str, of: Start| {
        let start = Start { workflow_version: name(version), ..of };
        (key.to_owned(), world.begin(start).await.run.id())
    };
    let mut mine = Vec::new();
    for (n, version) in ["doc1_a", "doc1_b", "doc1_"].into_iter().enumerate() {
        let key = format!("k{n}");
        mine.push(start(&key, version, world.request(&key)).await.1);
        let workflow = name(&format!("workflow-{n}"));
        let theirs = Start { workspace: STRANGER, workflow, ..world.request(&key) };
        mine.push(start(&key, version, theirs).await.1);
    }
    for (n, version) in ["1", "doc2_a", "doc1", "Doc1_a", "2024_7", "dóc1_a"].into_iter().enumerate() {
        let key = format!("other{n}");
        start(&key, version, world.request(&key)).await;
    }
    let node = world.node().await;
    let claims = claim_hosted(&world, node, Vec::new(), 4).await;
    assert_eq!(claims.runs.len(), 4);
    let mut claimed = ids(&claims);
    claimed.extend(ids(&claim_hosted(&world, node, Vec::new(), 100).await));
    assert_eq!(claimed, mine);
    assert!(claims.runs.iter().all(|claimed| claimed.run.state.node == Some(node)));
    assert!(ids(&claim_hosted(&world, node, Vec::new(), 100).await).is_empty());
}

async fn a_claim_by_version_and_by_family_takes_the_longest_due_first(world: World) {
    let mut order = Vec::new();
    for (key, due, version) in [("c", 30, "doc1_x"), ("a", 10, "1"), ("d", 40, "1"), ("b", 20, "doc1_y")] {
        let (workflow_version, delay) = (name(version), Duration::from_millis(due));
        let started = world.begin(Start { workflow_version, delay, ..world.request(key) }).await;
        order.push((due, started.run.id()));
    }
    order.sort_unstable();
    world.pass(40);
    let node = world.node().await;
    // The version by its name, too: a run is claimed once.
    let workflows = vec![orders(), drives(WORKSPACE, ORDER, "doc1_x")];
    for (_, expected) in order {
        assert_eq!(ids(&claim_hosted(&world, node, workflows.clone(), 1).await), [expected]);
    }
}

async fn a_claim_of_a_family_tells_when_its_next_run_is_due(world: World) {
    let node = world.node().await;
    assert_eq!(claim_hosted(&world, node, Vec::new(), 1).await.next_due, None);
    for (key, due, version) in [("a", 10, "1"), ("b", 20, "doc1_y"), ("c", 30, "doc1_x")] {
        let (workflow_version, delay) = (name(version), Duration::from_millis(due));
        world.begin(Start { workflow_version, delay, ..world.request(key) }).await;
    }
    let now = world.now();
    let next = async |workflows| claim_hosted(&world, node, workflows, 1).await.next_due;
    assert_eq!(next(Vec::new()).await, Some(now.after(Duration::from_millis(20))));
    assert_eq!(next(vec![orders()]).await, Some(now.after(Duration::from_millis(10))));
}

async fn only_the_workflows_asked_for_are_claimed(world: World) {
    let mine = world.start("k").await.run.id();
    let refund = world.begin(Start { workflow: name("refund"), ..world.request("r") }).await.run.id();
    let theirs = world.begin(Start { workspace: STRANGER, ..world.request("k") }).await.run.id();
    let node = world.node().await;
    let claim = async |workflows| {
        let claimed = world.store().claim(Claim::new(node, workflows, 10)).await.expect("alive");
        claimed.runs.iter().map(|claimed| claimed.run.id()).collect::<Vec<_>>()
    };
    assert!(claim(vec![]).await.is_empty());
    assert!(claim(vec![drives(STRANGER, "refund", "1")]).await.is_empty());
    assert_eq!(claim(vec![drives(STRANGER, ORDER, "1")]).await, [theirs]);
    let refunds = drives(WORKSPACE, "refund", "1");
    assert_eq!(
        claim(vec![orders(), refunds, orders()]).await,
        [mine, refund],
        "what is said twice counts once"
    );
}

async fn runs_of_another_version_are_not_claimed_and_hide_no_others(world: World) {
    let start = async |key: &str, version: &str| {
        world.begin(Start { workflow_version: name(version), ..world.request(key) }).await.run.id()
    };
    let (mut newer, mut older) = (Vec::new(), Vec::new());
    for n in 0..5 {
        // Each of the newer ones is due for longer.
        newer.push(start(&format!("new {n}"), "2").await);
        world.pass(1);
    }
    for n in 0..2 {
        older.push(start(&format!("old {n}"), "1").await);
        world.pass(1);
    }
    let node = world.node().await;
    let claim = async |workflows, limit| {
        let claimed = world.store().claim(Claim::new(node, workflows, limit)).await.expect("alive");
        claimed.runs.iter().map(|claimed| claimed.run.id()).collect::<Vec<_>>()
    };
    let (one, two, ten) = (orders(), drives(WORKSPACE, ORDER, "2"), drives(WORKSPACE, ORDER, "10"));
    assert!(claim(vec![ten.clone(), drives(WORKSPACE, "refund", "2")], 10).await.is_empty());
    assert_eq!(claim(vec![one.clone()], 1).await, older[..1], "with room for one only");
    assert_eq!(claim(vec![one.clone(), ten], 10).await, older[1..]);
    assert!(claim(vec![one.clone()], 10).await.is_empty());
    for run in &newer {
        let left = world.run(*run).await;
        assert_eq!((left.status(), left.state.version, left.state.stalls), (Status::Pending, 1, 0));
    }
    let last = start("old 2", "1").await;
    assert_eq!(
        claim(vec![one, two], 10).await,
        [newer, vec![last]].concat(),
        "a node with both versions takes both"
    );
}

async fn a_claimed_run_is_not_claimed_again(world: World) {
    world.start("k").await;
    let (one, two) = (world.node().await, world.node().await);
    assert_eq!(world.try_claim(one, 10).await.expect("alive").len(), 1);
    assert_eq!(world.try_claim(two, 10).await.expect("alive"), []);
    assert_eq!(world.try_claim(one, 10).await.expect("alive"), []);
}

async fn a_claim_fences_the_former_owner_off(world: World) {
    let mut zombie = world.driven("k").await;
    zombie.step("a").await.expect("ours");
    world.crash().await;
    let mut owner = world.claim_one().await;
    assert!(owner.version() > zombie.version(), "the fence grows");
    assert_eq!(code(zombie.clone().step("b").await), "CONCURRENCY_ERROR");
    owner.step("b").await.expect("the new owner goes on");
    owner.complete("1").await;
    // Whenever it wakes up, and whatever it wants to say.
    zombie.record(Entry::Completed { value: payload("2") });
    assert_eq!(code(zombie.commit().await), "CONCURRENCY_ERROR");
    assert_eq!(world.absorbed(owner.id(), ReceiptKind::Result).await, 2);
    assert_eq!(world.outcome(owner.id()).await, owner.ledger.outcome().cloned());
}

async fn a_waiting_run_is_due_at_its_time_and_not_before(world: World) {
    let mut driver = world.driven("k").await;
    let due = world.after(500);
    driver.wait(Some(due)).await;
    let run = world.run(driver.id()).await;
    assert_eq!((run.status(), run.state.due, run.state.node), (Status::Waiting, Some(due), None));
    world.pass(499);
    assert!(world.claim_all().await.is_empty(), "one millisecond early is early");
    world.pass(1);
    assert_eq!(world.claim_one().await.id(), driver.id());
    assert!(world.claim_all().await.is_empty(), "and it fires once");
}

async fn a_run_that_waits_for_input_only_is_never_due(world: World) {
    let mut driver = world.driven("k").await;
    driver.wait(None).await;
    world.clock().advance(LEASE * 1000);
    assert_eq!(world.sweep(10).await.orphaned, 0, "no node has it, so no node's death concerns it");
    assert!(world.claim_all().await.is_empty());
}

async fn a_paused_run_is_not_claimed(world: World) {
    let (pending, mut waiting) = (world.start("a").await.run.id(), world.driven("b").await);
    waiting.wait(Some(world.now())).await;
    for run in [pending, waiting.id()] {
        assert!(world.control(run, ControlAction::Pause).await.expect("an open run may").changed);
        assert_eq!(world.run(run).await.state.due, None);
    }
    world.crash().await;
    assert!(world.claim_all().await.is_empty());
}

async fn an_ended_run_is_not_claimed(world: World) {
    for status in Status::ALL.into_iter().filter(|status| status.is_terminal()) {
        world.run_that_is(status, &status.to_string()).await;
    }
    world.crash().await;
    assert!(world.claim_all().await.is_empty());
}

async fn a_run_that_keeps_crashing_is_parked_and_others_go_on(world: World) {
    let poison = world.start("poison").await.run.id();
    for _ in 0..MAX_DEATHS {
        assert_eq!(world.claim_one().await.id(), poison);
        world.crash().await;
    }
    let good = world.start("good").await.run.id();
    assert_eq!(world.claim_one().await.id(), good, "the poisoned run is not handed out any more");
    let parked = world.run(poison).await;
    assert_eq!((parked.status(), parked.state.node, parked.state.due), (Status::Paused, None, None));
    let last = world.entries(poison).await.pop();
    assert_eq!(last, Some(Entry::Paused { reason: PauseReason::Poisoned }));
}

async fn progress_ends_the_count_of_crashes(world: World) {
    world.start("k").await;
    for n in 0..3 * MAX_DEATHS {
        let mut driver: SuiteDriver = world.claim_one().await;
        if n % 4 == 3 {
            driver.step(&format!("step-{n}")).await.expect("ours");
            assert_eq!(world.run(driver.id()).await.state.stalls, 0);
        }
        world.crash().await;
    }
    assert_eq!(world.claim_one().await.ledger.run().status(), Status::Running);
}

async fn a_resumed_run_has_all_its_tries_again(world: World) {
    let run = world.start("k").await.run.id();
    for _ in 0..MAX_DEATHS {
        world.claim_one().await;
        world.crash().await;
    }
    assert!(world.claim_all().await.is_empty());
    assert!(world.control(run, ControlAction::Resume).await.expect("a paused run may").changed);
    for _ in 0..MAX_DEATHS {
        assert_eq!(world.claim_one().await.id(), run);
        world.crash().await;
    }
    assert!(world.claim_all().await.is_empty());
    assert_eq!(world.run(run).await.status(), Status::Paused);
}

async fn leaving_in_good_order_is_no_crash(world: World) {
    let runs: Vec<_> = started(&world, 30).await;
    for _ in 0..2 * MAX_DEATHS {
        let node = world.node().await;
        assert_eq!(world.try_claim(node, 100).await.expect("alive").len(), 30);
        world.lease(node, LeaseAct::Leave).await.expect("a node may go");
        // In portions: also what comes later is not blamed.
        while world.sweep(7).await.more {}
    }
    for run in &runs {
        let left = world.run(*run).await;
        assert_eq!((left.status(), left.state.stalls), (Status::Running, 0));
    }
    assert_eq!(world.claim_all().await.len(), 30);
}

async fn started(world: &World, many: usize) -> Vec<RunId> {
    let mut runs = Vec::new();
    for n in 0..many {
        runs.push(world.start(&n.to_string()).await.run.id());
    }
    runs
}

/// One node at a time, as a worker that is started again. It claims until it has nothing to claim or is dead, and drives
/// what it has: the bystanders make progress if the node lives.
async fn bystanders_of_a_poisonous_run_are_not_parked(world: World) {
    let runs = started(&world, 31).await;
    let (poison, mut deaths) = (runs[17], 0);
    while world.run(poison).await.status() != Status::Paused {
        let (node, mut held) = (world.node().await, Vec::new());
        let killed = loop {
            let claimed = world.try_claim(node, 100).await.expect("alive");
            if claimed.is_empty() {
                break false;
            }
            held.extend(claimed.into_iter().map(|claimed| SuiteDriver::new(world.store().clone(), claimed)));
            if held.iter().any(|driver| driver.id() == poison) {
                break true;
            }
            for (n, driver) in held.iter_mut().enumerate() {
                driver.step(&format!("step {deaths} {n} {}", driver.version())).await.expect("ours");
            }
        };
        deaths += u32::from(killed);
        assert!(deaths <= 2 * MAX_DEATHS, "it is still not parked");
        // It lets its suspects make progress, dies, and others may take what was left to them.
        world.crash().await;
        world.pass(1_000);
    }
    for run in runs {
        let paused = world.run(run).await.status() == Status::Paused;
        assert_eq!(paused, run == poison, "{run} after {deaths} deaths");
    }
}

/// Runs that have been in the hands of two nodes that died.
async fn suspects(world: &World, many: usize) -> Vec<RunId> {
    let runs = started(world, many).await;
    for _ in 0..SUSPECT {
        assert_eq!(world.claim_all().await.len(), many);
        world.crash().await;
    }
    runs
}

async fn a_suspect_is_taken_alone_by_a_node_that_holds_nothing(world: World) {
    let suspects = suspects(&world, 3).await;
    let other = world.start("other").await.run.id();
    let node = world.node().await;
    let ids = async || -> Vec<RunId> {
        world.try_claim(node, 10).await.expect("alive").iter().map(|claimed| claimed.run.id()).collect()
    };
    assert_eq!(ids().await, suspects[..1]);
    assert_eq!(ids().await, [other], "beside a suspect, what is under no suspicion");
    world.pass(1_000);
    assert_eq!(ids().await, suspects[1..], "and others as often suspected, but few");
}

async fn suspects_that_are_left_hide_nothing(world: World) {
    suspects(&world, 5).await;
    let other = world.start("other").await.run.id();
    let (one, two) = (world.node().await, world.node().await);
    assert_eq!(world.try_claim(one, 5).await.expect("alive").len(), 1);
    let claimed = world.try_claim(two, 5).await.expect("alive");
    assert_eq!(claimed.iter().map(|claimed| claimed.run.id()).collect::<Vec<_>>(), [other]);
}

async fn a_node_without_a_lease_claims_nothing(world: World) {
    let run = world.start("k").await.run;
    let unknown = NodeId(world.run_id().0);
    assert_eq!(code(world.try_claim(unknown, 10).await), "CONCURRENCY_ERROR");
    let late = world.node().await;
    world.clock().advance(LEASE);
    assert_eq!(code(world.try_claim(late, 10).await), "CONCURRENCY_ERROR", "ended, though not swept yet");
    world.sweep(10).await;
    assert_eq!(code(world.try_claim(late, 10).await), "CONCURRENCY_ERROR");
    assert_eq!(world.run(run.id()).await, run);
}

async fn a_ledger_that_the_node_holds_is_not_read_again(world: World) {
    let mut held = world.driven("held").await;
    held.step("a").await.expect("ours");
    held.wait(Some(world.after(5))).await;
    let version = world.run(held.id()).await.state.version;
    let mut unheld = world.driven("unheld").await;
    unheld.wait(Some(world.after(6))).await;
    world.pass(10);
    let node = world.node().await;
    let claim = Claim { held: Some(Arc::new(UpTo(version))), ..Claim::new(node, vec![orders()], 10) };
    let claims = world.store().claim(claim).await.expect("alive").runs;
    let read: Vec<_> = claims.iter().map(|c| (c.run.id(), c.entries.is_some())).collect();
    assert_eq!(read, [(held.id(), false), (unheld.id(), true)]);
}

async fn a_claim_tells_when_the_next_run_is_due(world: World) {
    let node = world.node().await;
    let next =
        async || world.store().claim(Claim::new(node, vec![orders()], 10)).await.expect("alive").next_due;
    assert_eq!(next().await, None);
    world.driven("k").await.wait(Some(world.after(700))).await;
    assert_eq!(next().await, Some(world.after(700)));
    let delay = Duration::from_millis(500);
    world.begin(Start { delay: delay / 2, workflow: name("other"), ..world.request("l") }).await;
    assert_eq!(next().await, Some(world.after(700)), "of what was asked for");
    world.begin(Start { delay, ..world.request("m") }).await;
    assert_eq!(next().await, Some(world.after(500)));
    let dues = world.store().dues(vec![orders(), Drives { workflow: name("nothing"), ..orders() }]);
    assert_eq!(dues.await.expect("a look"), [Some(world.after(500)), None]);
    world.pass(600);
    assert_eq!(next().await, Some(world.after(100)), "what is due already is no news to wait for");
    let due = world.begin(Start { delay: Duration::ZERO, workflow: name("new"), ..world.request("n") }).await;
    let dues = world.store().dues(vec![Drives { workflow: name("new"), ..orders() }]);
    assert_eq!(dues.await.expect("a look"), [due.run.state.due], "but who looks is told of it");
}
