//! Many callers at once: exactly one wins, and all are told the truth.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::task::JoinSet;

use super::driver::SuiteDriver;
use super::record::{keep, look};
use super::world::{ORDER, WORKSPACE, World, absorbed, call, label, name, orders, payload, token};
use crate::error::Error;
use crate::id::RunId;
use crate::rules::claim::Claim;
use crate::rules::control::ControlAction;
use crate::rules::deliver::Deliver;
use crate::rules::entry::Entry;
use crate::rules::once::{Ask, OnceAnswer, OnceCall, OnceScope};
use crate::rules::receipt::ReceiptKind;
use crate::rules::record::{Keep, Look, LookBy};
use crate::rules::start::{Handover, Policy, Start, StartVerdict};
use crate::rules::status::Status;
use crate::store::{Store, Sweep};

promises![
    on several threads:
    a_hundred_equal_starts_create_one_run,
    ten_thousand_equal_starts_create_one_run,
    equal_starts_through_two_instances_create_one_run,
    equal_keyless_retries_create_one_run_each,
    many_nodes_claim_each_run_once,
    two_nodes_recover_a_dead_one_without_sharing_a_run,
    what_is_started_for_a_node_that_dies_is_given_to_others,
    cancel_and_complete_agree_about_the_end,
    deliveries_from_many_tasks_arrive_once_and_in_line,
    a_delivery_that_races_the_end_is_taken_or_refused,
    a_delivery_that_races_the_wait_wakes_the_run,
    a_childs_end_that_races_the_wait_wakes_the_parent,
    ends_of_many_children_at_once_are_each_told_once,
    fifty_runs_that_want_one_token_have_one_owner,
    fifty_starts_with_a_payload_for_one_token_start_one_run,
    a_once_has_one_executor,
    superseding_starts_leave_one_open_run,
    a_zombies_commits_stand_before_the_claim_or_nowhere,
    equal_operator_calls_are_done_once,
    a_hundred_writers_create_a_record_once,
    writers_that_look_first_lose_no_write_of_a_record,
    two_instances_are_one_store,
    two_instances_claim_each_run_once,
];

/// Runs a call as often as there are items, all at once, and gives the answers.
async fn at_once<I, T, F>(items: impl IntoIterator<Item = I>, call: impl Fn(I) -> F) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    for item in items {
        tasks.spawn(call(item));
    }
    tasks.join_all().await
}

/// Equal starts from this many tasks, the stores in turn; how many created, and the one run.
async fn equal_starts(world: &World, stores: Vec<Arc<dyn Store>>, total: usize, tasks: usize) -> RunId {
    let next = Arc::new(AtomicUsize::new(0));
    let requests: Vec<_> = (0..tasks).map(|n| (n, world.request("k"))).collect();
    let clock = world.clock().clone();
    let answers = at_once(requests, |(n, request)| {
        let (store, next, clock) = (stores[n % stores.len()].clone(), next.clone(), clock.clone());
        async move {
            let (mut created, mut runs) = (0, HashSet::new());
            while next.fetch_add(1, Ordering::Relaxed) < total {
                let run = RunId(crate::clock::Clock::uuid(&*clock));
                let started = store.start(Start { run, ..request.clone() }).await;
                let started = started.expect("callers are not told of conflicts in the database");
                created += usize::from(started.verdict == StartVerdict::Created);
                runs.insert(started.run.id());
            }
            (created, runs)
        }
    })
    .await;
    let created: usize = answers.iter().map(|(created, _)| created).sum();
    let runs: HashSet<_> = answers.into_iter().flat_map(|(_, runs)| runs).collect();
    assert_eq!((created, runs.len()), (1, 1));
    let run = runs.into_iter().next().expect("one run");
    // Each instance writes its own receipts when it is asked; the last answer has them all.
    let mut counted = 0;
    for store in stores {
        counted = absorbed(&store, run, ReceiptKind::Start).await;
    }
    assert_eq!(counted, total as u64 - 1, "every other start is counted");
    assert_eq!(world.list().await.len(), 1);
    run
}

async fn a_hundred_equal_starts_create_one_run(world: World) {
    let stores = vec![world.store().clone()];
    equal_starts(&world, stores, 100, 100).await;
}

async fn ten_thousand_equal_starts_create_one_run(world: World) {
    let stores = vec![world.store().clone()];
    let run = equal_starts(&world, stores, 10_000, 256).await;
    assert_eq!(world.kinds(run).await, ["created"]);
}

async fn equal_starts_through_two_instances_create_one_run(world: World) {
    let Some(second) = world.second().await else { return };
    let stores = vec![world.store().clone(), second.clone()];
    equal_starts(&world, stores, 10_000, 256).await;
    second.close().await.expect("a second instance can be closed");
}

/// Clients that lost their answers repeat their requests, each under its run id and without a key.
async fn equal_keyless_retries_create_one_run_each(world: World) {
    let keyless = |_| Start::new(WORKSPACE, world.run_id(), name(ORDER), payload("1"), None);
    let requests: Vec<_> = (0..20).map(keyless).collect();
    let repeated = (0..200).map(|n| requests[n % 20].clone());
    let answers = at_once(repeated, |request| {
        let store = world.store().clone();
        async move { (request.run, store.start(request).await.expect("answered")) }
    })
    .await;
    assert!(answers.iter().all(|(run, started)| started.run.id() == *run && started.created()));
    assert_eq!(world.list().await.len(), 20);
}

/// Claims with several nodes at once until this number of runs is claimed; gives the runs, in any order.
async fn claim_with_nodes(world: &World, nodes: usize, runs: usize) -> Vec<RunId> {
    claim_through(world, &[world.store().clone()], nodes, runs).await
}

/// The same through several instances in turn.
async fn claim_through(world: &World, stores: &[Arc<dyn Store>], nodes: usize, runs: usize) -> Vec<RunId> {
    let taken = Arc::new(AtomicUsize::new(0));
    let mut ids = Vec::new();
    for _ in 0..nodes {
        ids.push(world.node().await);
    }
    let claimed = at_once(ids.into_iter().zip(stores.iter().cycle().cloned()), |(node, store)| {
        let taken = taken.clone();
        async move {
            let mut mine = Vec::new();
            // A claim may come back empty while others hold the rows; so ask until all are taken.
            for _ in 0..100_000 {
                let claimed = store.claim(Claim::new(node, vec![orders()], 7)).await.expect("alive").runs;
                taken.fetch_add(claimed.len(), Ordering::SeqCst);
                mine.extend(claimed.iter().map(|claimed| claimed.run.id()));
                if taken.load(Ordering::SeqCst) >= runs {
                    break;
                }
                tokio::task::yield_now().await;
            }
            mine
        }
    })
    .await;
    claimed.concat()
}

async fn many_nodes_claim_each_run_once(world: World) {
    for n in 0..300 {
        world.start(&n.to_string()).await;
    }
    let claimed = claim_with_nodes(&world, 6, 300).await;
    assert_eq!(claimed.len(), 300);
    assert_eq!(claimed.iter().collect::<HashSet<_>>().len(), 300);
    for run in claimed {
        assert_eq!(world.kinds(run).await, ["created", "claimed"]);
    }
}

async fn two_nodes_recover_a_dead_one_without_sharing_a_run(world: World) {
    let dead = world.node().await;
    for n in 0..100 {
        world.start(&n.to_string()).await;
    }
    assert_eq!(world.try_claim(dead, 100).await.expect("alive").len(), 100);
    world.clock().advance(super::world::LEASE);
    let swept = at_once(0..4, |_| {
        let store = world.store().clone();
        async move { store.sweep(Sweep { limit: 1000 }).await.expect("a sweep").orphaned }
    })
    .await;
    assert_eq!(swept.iter().sum::<usize>(), 100, "every run is given away once");
    let claimed = claim_with_nodes(&world, 2, 100).await;
    assert_eq!((claimed.len(), claimed.iter().collect::<HashSet<_>>().len()), (100, 100));
}

async fn drivers(world: &World, count: usize) -> Vec<SuiteDriver> {
    for n in 0..count {
        world.start(&n.to_string()).await;
    }
    let drivers = world.claim_all().await;
    assert_eq!(drivers.len(), count);
    drivers
}

/// A start that sees the node alive must not leave it a run after the sweep has given all of them away.
async fn what_is_started_for_a_node_that_dies_is_given_to_others(world: World) {
    for round in 0..20 {
        let (node, mut tasks) = (world.node().await, JoinSet::new());
        let (say, mut said) = tokio::sync::mpsc::unbounded_channel();
        for task in 0..8 {
            let start = |n| Start { claim: Some(node), ..world.request(&format!("{round}-{task}-{n}")) };
            let (store, starts) = (world.store().clone(), [start(0), start(1), start(2), start(3)]);
            let say = say.clone();
            tasks.spawn(async move {
                for start in starts {
                    store.start(start).await.expect("nothing speaks against it");
                    say.send(()).expect("the test listens");
                }
            });
        }
        // Somewhere in the middle of them.
        for _ in 0..=round {
            said.recv().await.expect("they go on");
        }
        world.crash().await;
        tasks.join_all().await;
        world.sweep(1000).await;
        let free = world.claim_all().await;
        assert_eq!(free.len(), 32, "round {round}");
        for mut driver in free {
            driver.complete("1").await;
        }
    }
}

async fn cancel_and_complete_agree_about_the_end(world: World) {
    let drivers = drivers(&world, 200).await;
    let answers = at_once(drivers, |mut driver| {
        let (store, run) = (world.store().clone(), driver.id());
        let cancel = World::action(run, ControlAction::Cancel { reason: "no longer wanted".to_owned() });
        async move {
            driver.record(Entry::Completed { value: payload("1") });
            let (completed, cancelled) = tokio::join!(driver.commit(), store.control(cancel));
            (run, completed.is_ok(), cancelled.expect("every run can be asked"))
        }
    })
    .await;
    for (run, completed, cancelled) in answers {
        let end = world.run(run).await.status();
        assert_ne!(completed, cancelled.changed, "one of them has won");
        assert_eq!(end, if completed { Status::Completed } else { Status::Cancelled });
        assert_eq!(cancelled.run.status(), end, "and the answer says who");
        assert_eq!(world.entries(run).await.len(), 3);
    }
}

async fn deliveries_from_many_tasks_arrive_once_and_in_line(world: World) {
    let mut driver = world.driven("k").await;
    driver.open("t").await;
    // Every delivery is sent twice, as an impatient client does.
    let answers = at_once(0..200u32, |n| {
        let store = world.store().clone();
        async move {
            let (mut arrivals, mut fresh) = (Vec::new(), 0);
            for m in 0..5 {
                let text = format!("{}", (n / 2) * 5 + m);
                let deliver = Deliver { id: Some(call(&text)), ..World::delivery("t", &text) };
                let delivered = store.deliver(deliver).await.expect("the token has an owner");
                fresh += usize::from(!delivered.absorbed);
                arrivals.push((text, delivered.arrival));
            }
            (arrivals, fresh)
        }
    })
    .await;
    assert_eq!(answers.iter().map(|(_, fresh)| fresh).sum::<usize>(), 500);
    let arrivals: HashMap<_, _> = answers.into_iter().flat_map(|(arrivals, _)| arrivals).collect();
    let inbox = world.inbox(driver.id()).await;
    assert_eq!(inbox.iter().map(|a| a.number).collect::<Vec<_>>(), (1..=500).collect::<Vec<_>>());
    let received = driver.look().await.receive("t");
    assert!(received.iter().zip(1..).all(|(text, number)| arrivals[text] == number), "numbered as answered");
    assert_eq!(received.iter().collect::<HashSet<_>>().len(), 500);
    assert_eq!(world.absorbed(driver.id(), ReceiptKind::Delivery).await, 500);
}

async fn a_delivery_that_races_the_end_is_taken_or_refused(world: World) {
    let mut drivers = drivers(&world, 100).await;
    for driver in &mut drivers {
        driver.open(&driver.id().to_string()).await;
    }
    let answers = at_once(drivers, |mut driver| {
        let store = world.store().clone();
        async move {
            driver.record(Entry::Completed { value: payload("1") });
            let deliver = World::delivery(&driver.id().to_string(), "1");
            let (ended, delivered) = tokio::join!(driver.commit(), store.deliver(deliver));
            ended.expect("a delivery takes no run away");
            (driver.id(), delivered)
        }
    })
    .await;
    for (run, delivered) in answers {
        match delivered {
            Ok(delivered) => assert_eq!((delivered.run, world.inbox(run).await.len()), (run, 1)),
            Err(Error::HookNotFound(_)) => assert_eq!(world.inbox(run).await, []),
            Err(other) => panic!("{other}"),
        }
    }
}

async fn a_delivery_that_races_the_wait_wakes_the_run(world: World) {
    let mut drivers = drivers(&world, 100).await;
    for driver in &mut drivers {
        driver.open(&driver.id().to_string()).await;
    }
    let waiting = at_once(drivers, |mut driver| {
        let store = world.store().clone();
        async move {
            driver.record(Entry::Waiting { due: None });
            let deliver = World::delivery(&driver.id().to_string(), "1");
            let (waits, delivered) = tokio::join!(driver.commit(), store.deliver(deliver));
            waits.expect("a delivery takes no run away");
            delivered.expect("the token has an owner").run
        }
    })
    .await;
    let mut woken = claim_with_nodes(&world, 2, 100).await;
    woken.sort_unstable();
    assert_eq!(woken, sorted(waiting), "whichever came first");
}

fn sorted(mut runs: Vec<RunId>) -> Vec<RunId> {
    runs.sort_unstable();
    runs
}

async fn a_childs_end_that_races_the_wait_wakes_the_parent(world: World) {
    let mut parents = drivers(&world, 50).await;
    for parent in &mut parents {
        parent.child("c", world.run_id()).await;
    }
    let mut children: HashMap<RunId, SuiteDriver> = HashMap::new();
    for child in world.claim_all().await {
        children.insert(child.ledger.created().parent.as_ref().expect("a child").run, child);
    }
    let pairs: Vec<_> =
        parents.into_iter().map(|p| (children.remove(&p.id()).expect("its child"), p)).collect();
    let waiting = at_once(pairs, |(mut child, mut parent)| async move {
        child.record(Entry::Completed { value: payload("7") });
        parent.record(Entry::Waiting { due: None });
        let (ended, waits) = tokio::join!(child.commit(), parent.commit());
        ended.expect("ours");
        waits.expect("a child's end takes no run away");
        parent.id()
    })
    .await;
    assert_eq!(sorted(claim_with_nodes(&world, 2, 50).await), sorted(waiting));
}

/// Children that one commit of each parent has started. Some have ties of their own, whose end is more than a message.
async fn ends_of_many_children_at_once_are_each_told_once(world: World) {
    const EACH: usize = 40;
    let mut parents = drivers(&world, 2).await;
    for parent in &mut parents {
        for n in 0..EACH {
            parent.ask_for_child(&format!("c[{n}]"), world.run_id());
        }
        assert_eq!(parent.save().await.settled.len(), EACH);
    }
    let mut children = world.claim_all().await;
    assert_eq!(children.len(), 2 * EACH);
    for (n, child) in children.iter_mut().enumerate().step_by(10) {
        child.open(&format!("token-{n}")).await;
    }
    at_once(children, |mut child| async move {
        let mut again = child.clone();
        child.record(Entry::Completed { value: payload("7") });
        again.record(Entry::Completed { value: payload("8") });
        let (first, second) = tokio::join!(child.commit(), again.commit());
        assert!(first.is_ok() != second.is_ok(), "an end takes place once: {first:?} {second:?}");
    })
    .await;
    for parent in &mut parents {
        let inbox = parent.look().await.inbox.clone();
        assert!(inbox.iter().zip(1..).all(|(arrival, n)| arrival.number == n), "in line: {inbox:?}");
        assert_eq!(inbox.len(), EACH);
        for n in 0..EACH {
            parent.child_ended(&format!("c[{n}]"));
        }
        parent.complete("1").await;
        assert_eq!(world.inbox(parent.id()).await, [], "all are consumed");
    }
    assert_eq!(world.owner_of("token-0").await, None, "free at the end of its owner");
}

async fn fifty_runs_that_want_one_token_have_one_owner(world: World) {
    let drivers = drivers(&world, 50).await;
    let answers = at_once(drivers, |mut driver| async move { (driver.id(), driver.open("t").await) }).await;
    let owners: Vec<_> =
        answers.iter().filter(|(_, conflict)| conflict.is_none()).map(|(run, _)| *run).collect();
    assert_eq!(owners.len(), 1);
    assert!(
        answers.iter().all(|(run, told)| *run == owners[0] || *told == Some(owners[0])),
        "49 are told who"
    );
    assert_eq!(world.owner_of("t").await, Some(owners[0]));
}

async fn fifty_starts_with_a_payload_for_one_token_start_one_run(world: World) {
    let requests: Vec<_> = (0..50)
        .map(|n| {
            let deliver = Handover { token: token("t"), payload: payload(&n.to_string()), id: None };
            Start { deliver: Some(deliver), ..world.request(&n.to_string()) }
        })
        .collect();
    let answers = at_once(requests, |request| {
        let store = world.store().clone();
        async move { store.start(request).await.expect("answered") }
    })
    .await;
    assert_eq!(answers.iter().filter(|started| started.created()).count(), 1);
    let runs: HashSet<_> = answers.iter().map(|started| started.run.id()).collect();
    assert_eq!(runs.len(), 1);
    let mut driver = world.claim_one().await;
    driver.open("t").await;
    assert_eq!(driver.receive("t").len(), 50);
}

async fn a_once_has_one_executor(world: World) {
    let drivers = drivers(&world, 50).await;
    let answers = at_once(drivers, |driver| {
        let (store, run) = (world.store().clone(), driver.id());
        let (scope, label) = (OnceScope::Workspace, label("sms"));
        let once = OnceCall { workspace: WORKSPACE, scope, label, run, ask: Ask::Claim };
        async move { (run, store.once(once).await.expect("open")) }
    })
    .await;
    let mine = |(run, answer): &(RunId, OnceAnswer)| matches!(answer, OnceAnswer::Mine(_)).then_some(*run);
    let executors: Vec<_> = answers.iter().filter_map(mine).collect();
    assert_eq!(executors.len(), 1);
    let in_flight = OnceAnswer::InFlight(executors[0]);
    assert_eq!(answers.iter().filter(|(_, answer)| *answer == in_flight).count(), 49);
    let fence =
        answers.iter().find_map(|(_, a)| if let OnceAnswer::Mine(fence) = a { Some(*fence) } else { None });
    let settle = Ask::Settle { fence: fence.expect("one"), value: payload("7"), ttl: None };
    world.once(executors[0], "sms", settle).await.expect("granted");
    for (run, _) in answers.iter().filter(|(run, _)| *run != executors[0]) {
        assert_eq!(world.inbox(*run).await.len(), 1, "each of them is told, once");
    }
}

async fn superseding_starts_leave_one_open_run(world: World) {
    let requests: Vec<_> = (0..40)
        .map(|n| Start { input: payload(&n.to_string()), policy: Policy::SUPERSEDE, ..world.request("k") })
        .collect();
    let answers = at_once(requests, |request| {
        let store = world.store().clone();
        async move { store.start(request).await.expect("answered") }
    })
    .await;
    let superseded: HashSet<_> = answers.iter().filter_map(|started| started.superseded).collect();
    assert_eq!(superseded.len(), 39, "each but the first has superseded another one");
    let holder = world.holder_of("k").await.expect("the last one");
    for run in world.list().await {
        let expected = if run.id() == holder { Status::Pending } else { Status::Cancelled };
        assert_eq!((run.status(), run.state.holds_key), (expected, run.id() == holder));
        assert_eq!(superseded.contains(&run.id()), run.id() != holder);
    }
}

async fn a_zombies_commits_stand_before_the_claim_or_nowhere(world: World) {
    let zombies = drivers(&world, 50).await;
    let runs: Vec<_> = zombies.iter().map(SuiteDriver::id).collect();
    world.crash().await;
    let committing = at_once(zombies, |mut zombie| async move {
        let mut saved = 0;
        for n in 0..20 {
            match zombie.step(&format!("step-{n}")).await {
                Ok(_) => saved += 1,
                Err(Error::Concurrency { .. }) => break,
                Err(other) => panic!("{other}"),
            }
        }
        (zombie.id(), saved)
    });
    let (saved, claimed) = tokio::join!(committing, claim_with_nodes(&world, 2, 50));
    assert_eq!(sorted(claimed), sorted(runs));
    for (run, steps) in saved {
        let kinds = world.kinds(run).await;
        assert_eq!((kinds.len(), kinds.last()), (3 + 2 * steps, Some(&"claimed")), "{kinds:?}");
    }
}

async fn equal_operator_calls_are_done_once(world: World) {
    let run = world.run_that_is(Status::Failed, "k").await;
    let restart = ControlAction::Restart(crate::rules::entry::RestartFrom::Failure);
    let control = crate::rules::control::Control { id: Some(call("c")), ..World::action(run, restart) };
    let answers = at_once(0..50, |_| {
        let (store, control) = (world.store().clone(), control.clone());
        async move { store.control(control).await.expect("done or absorbed") }
    })
    .await;
    assert_eq!(answers.iter().filter(|done| done.changed).count(), 1);
    assert!(answers.iter().all(|done| done.run.status() == Status::Pending));
    assert_eq!(world.absorbed(run, ReceiptKind::Control).await, 49);
    assert_eq!(world.kinds(run).await.iter().filter(|kind| **kind == "restarted").count(), 1);
}

/// What one instance answers, the other knows; and who was fenced off through one is fenced off in the other.
async fn a_hundred_writers_create_a_record_once(world: World) {
    let stores = [Some(world.store().clone()), world.second().await];
    let stores: Vec<_> = stores.into_iter().flatten().collect();
    let written = at_once(0..100, |n: usize| {
        let store = stores[n % stores.len()].clone();
        async move { store.keep(keep("a", &n.to_string(), Some(0))).await }
    })
    .await;
    let (won, lost): (Vec<_>, Vec<_>) = written.into_iter().partition(Result::is_ok);
    assert!(lost.iter().all(|lost| matches!(lost, Err(Error::RecordChanged { .. }))), "{lost:?}");
    let won: Vec<_> = won.into_iter().flatten().collect();
    assert_eq!(won.len(), 1);
    assert_eq!(look(&world, LookBy::Id(won[0].id.clone())).await, won, "the one that was told so");
}

async fn writers_that_look_first_lose_no_write_of_a_record(world: World) {
    let store = world.store().clone();
    at_once(0..20, |n: u64| {
        let store = store.clone();
        async move {
            let keep = keep("a", &n.to_string(), None);
            loop {
                let look = Look { kind: keep.kind.clone(), by: LookBy::Id(keep.id.clone()) };
                let found = store.records(look).await.expect("a look is always possible");
                let expected = Some(found.first().map_or(0, |record| record.version));
                match store.keep(Keep { expected, ..keep.clone() }).await {
                    Err(Error::RecordChanged { .. }) => {}
                    written => break written.expect("what was seen is there").version,
                }
            }
        }
    })
    .await;
    let page = LookBy::Page { after: None, limit: 10, newest_first: false };
    let versions: Vec<_> = look(&world, page).await.iter().map(|record| record.version).collect();
    assert_eq!(versions, [20], "each has written once, over what it had seen");
}

async fn two_instances_are_one_store(world: World) {
    let Some(second) = world.second().await else { return };
    let mut zombie = world.driven("k").await;
    zombie.open("t").await;
    let again = second.start(world.request("k")).await.expect("a duplicate");
    assert_eq!((again.verdict, again.run.id()), (StartVerdict::Attached, zombie.id()));
    let delivered = second.deliver(World::delivery("t", "1")).await.expect("the token has an owner");
    assert_eq!((delivered.run, delivered.node), (zombie.id(), zombie.ledger.run().state.node));
    world.clock().advance(super::world::LEASE);
    assert_eq!(second.sweep(Sweep { limit: 10 }).await.expect("a sweep").orphaned, 1);
    let claim = Claim::new(world.node().await, vec![orders()], 10);
    let mut claimed = second.claim(claim).await.expect("alive").runs;
    let mut owner = SuiteDriver::new(second.clone(), claimed.remove(0));
    assert!(matches!(zombie.step("late").await, Err(Error::Concurrency { .. })));
    assert_eq!(owner.receive("t"), ["1"]);
    owner.step("a").await.expect("ours");
    assert!(world.cancel(owner.id()).await);
    assert!(matches!(owner.step("b").await, Err(Error::Concurrency { .. })));
    assert_eq!(world.owner_of("t").await, None);
    second.close().await.expect("a second instance can be closed");
}

async fn two_instances_claim_each_run_once(world: World) {
    let Some(second) = world.second().await else { return };
    for n in 0..100 {
        world.start(&n.to_string()).await;
    }
    let claimed = claim_through(&world, &[world.store().clone(), second.clone()], 4, 100).await;
    assert_eq!((claimed.len(), claimed.iter().collect::<HashSet<_>>().len()), (100, 100));
    second.close().await.expect("a second instance can be closed");
}
