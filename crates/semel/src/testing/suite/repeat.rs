//! Every mutating call can be made again: after it did not take place, and after it did and its answer was lost.

use std::sync::Arc;

use super::record::keep;
use super::world::{LEASE, WORKSPACE, World, call, code, label, orders, payload, token, visit};
use crate::error::Error;
use crate::id::NodeId;
use crate::rules::claim::Claim;
use crate::rules::control::{Control, ControlAction, Fork};
use crate::rules::deliver::Deliver;
use crate::rules::entry::{Class, Entry, RestartFrom};
use crate::rules::ledger::Lineage;
use crate::rules::once::{Ask, OnceAnswer, OnceCall, OnceScope};
use crate::rules::receipt::ReceiptKind;
use crate::rules::start::{Handover, Policy, Start, StartVerdict};
use crate::rules::status::Status;
use crate::store::faulty::{Fault, Faulty, until_answered};
use crate::store::{Lease, LeaseAct, Store, Sweep};

promises![
    a_fault_before_changes_nothing_and_one_after_changes_all,
    a_repeated_start_starts_one_run,
    a_repeated_start_supersedes_once,
    a_repeated_commit_is_recorded_once,
    a_repeated_delivery_arrives_once,
    a_repeated_action_is_done_once,
    a_repeated_fork_makes_one_run,
    a_repeated_once_runs_its_body_under_one_fence,
    a_repeated_lease_is_one_lease,
    a_repeated_record_is_written_once,
    a_claim_whose_answer_is_lost_is_claimed_again_after_the_lease,
    a_repeated_sweep_finds_nothing_new,
];

/// The first call did not take place, or did; the next one is answered.
const FAULTS: [Fault; 2] = [Fault::Before, Fault::After];

fn faulty(world: &World, fault: Fault) -> Arc<dyn Store> {
    Arc::new(Faulty::listed(world.store().clone(), [Some(fault)]))
}

async fn a_fault_before_changes_nothing_and_one_after_changes_all(world: World) {
    let before = faulty(&world, Fault::Before).start(world.request("k")).await;
    assert!(matches!(before, Err(Error::Unavailable(_))), "{before:?}");
    assert_eq!(world.list().await, []);
    let after = faulty(&world, Fault::After).start(world.request("k")).await;
    assert!(matches!(after, Err(Error::Unknown(_))), "{after:?}");
    assert_eq!(world.list().await.len(), 1);
}

async fn a_repeated_start_starts_one_run(world: World) {
    for (n, fault) in FAULTS.into_iter().enumerate() {
        let deliver = Handover { token: token(&format!("t{n}")), payload: payload("1"), id: None };
        let request = Start { deliver: Some(deliver), ..world.request(&n.to_string()) };
        let store = faulty(&world, fault);
        let started = until_answered(|| store.start(request.clone())).await.expect("answered");
        assert_eq!((started.verdict, started.run.id()), (StartVerdict::Created, request.run), "{fault:?}");
        assert_eq!(world.list().await.len(), n + 1, "{fault:?}");
        assert_eq!(world.inbox(request.run).await.len(), 1, "{fault:?}");
    }
}

async fn a_repeated_start_supersedes_once(world: World) {
    for fault in FAULTS {
        let old = world.start(&format!("{fault:?}")).await.run.id();
        let request =
            Start { input: payload("2"), policy: Policy::SUPERSEDE, ..world.request(&format!("{fault:?}")) };
        let store = faulty(&world, fault);
        let started = until_answered(|| store.start(request.clone())).await.expect("answered");
        assert_eq!((started.run.id(), started.run.status()), (request.run, Status::Pending), "{fault:?}");
        assert_eq!(world.run(old).await.status(), Status::Cancelled, "{fault:?}");
    }
    assert_eq!(world.list().await.len(), 4);
}

/// A lost commit is not a failed one: a driver that is told of another version reads the ledger.
async fn a_repeated_commit_is_recorded_once(world: World) {
    for fault in FAULTS.into_iter().chain([Fault::Late]) {
        let mut driver = world.driven(&format!("{fault:?}")).await;
        let (expected, store) = (driver.version() + 2, faulty(&world, fault));
        let commit = driver.begin("pay", Class::Keyed).done("pay", "1").prepare();
        let answer = until_answered(|| store.commit(commit.clone())).await;
        match fault {
            Fault::Before | Fault::Held => assert_eq!(answer.expect("ours").version, expected),
            Fault::After | Fault::Late => assert_eq!(code(answer), "CONCURRENCY_ERROR"),
        }
        assert_eq!(world.kinds(driver.id()).await, ["created", "claimed", "stepStarted", "stepCompleted"]);
        driver.step("next").await.expect("it is still its driver's");
    }
}

async fn a_repeated_delivery_arrives_once(world: World) {
    let mut driver = world.driven("k").await;
    driver.open("t").await;
    for (n, fault) in FAULTS.into_iter().enumerate() {
        let store = faulty(&world, fault);
        let deliver = Deliver { id: Some(call(&n.to_string())), ..World::delivery("t", &n.to_string()) };
        let delivered = until_answered(|| store.deliver(deliver.clone())).await.expect("answered");
        let absorbed = fault == Fault::After;
        assert_eq!((delivered.arrival, delivered.absorbed), (n as u64 + 1, absorbed), "{fault:?}");
        assert_eq!(world.absorbed(driver.id(), ReceiptKind::Delivery).await, u64::from(absorbed));
    }
    assert_eq!(driver.look().await.receive("t"), ["0", "1"]);
}

async fn a_repeated_action_is_done_once(world: World) {
    for fault in FAULTS {
        let run = world.run_that_is(Status::Failed, &format!("{fault:?}")).await;
        let restart = ControlAction::Restart(RestartFrom::Failure);
        for (n, action) in [restart, ControlAction::Pause, ControlAction::Resume, ControlAction::ReleaseKey]
            .into_iter()
            .enumerate()
        {
            let (before, store) = (world.run(run).await, faulty(&world, fault));
            let id = Some(call(&format!("{fault:?} {n}")));
            let control = Control { id, ..World::action(run, action.clone()) };
            let done = until_answered(|| store.control(control.clone())).await.expect("answered");
            assert_eq!(done.changed, fault == Fault::Before, "{action:?} {fault:?}");
            assert_eq!(done.run.state.version, before.state.version + 1, "{action:?} {fault:?}");
        }
    }
}

async fn a_repeated_fork_makes_one_run(world: World) {
    for (n, fault) in FAULTS.into_iter().enumerate() {
        let source = world.start(&n.to_string()).await.run.id();
        let store = faulty(&world, fault);
        let ask = || {
            let fork = Fork { run: world.run_id(), key: None, at: None, lineage: Lineage::Fresh };
            let id = Some(call(&n.to_string()));
            store.control(Control { id, ..World::action(source, ControlAction::Fork(fork)) })
        };
        let done = until_answered(ask).await.expect("answered");
        assert_ne!(done.run.id(), source);
        assert_eq!(world.list().await.len(), 2 * (n + 1), "{fault:?}");
    }
}

async fn a_repeated_once_runs_its_body_under_one_fence(world: World) {
    for fault in FAULTS {
        let run = world.start(&format!("{fault:?}")).await.run.id();
        let ask = async |ask: Ask| {
            let store = faulty(&world, fault);
            let (scope, label) = (OnceScope::Workspace, label(&format!("{fault:?}")));
            let once = OnceCall { workspace: WORKSPACE, scope, label, run, ask };
            until_answered(|| store.once(once.clone())).await
        };
        let Ok(OnceAnswer::Mine(lost)) = ask(Ask::Claim).await else { panic!("the label is free") };
        assert!(matches!(
            ask(Ask::Release { fence: lost }).await,
            Ok(OnceAnswer::Released) | Err(Error::OnceLost { .. })
        ));
        let Ok(OnceAnswer::Mine(fence)) = ask(Ask::Claim).await else { panic!("it was released") };
        let settle = |json| Ask::Settle { fence, value: payload(json), ttl: None };
        let settled = OnceAnswer::Settled(payload("7"));
        assert_eq!(ask(settle("7")).await.expect("granted"), settled, "{fault:?}");
        assert_eq!(ask(Ask::Claim).await.expect("open"), settled, "{fault:?}");
    }
}

async fn a_repeated_record_is_written_once(world: World) {
    for (fault, id) in FAULTS.into_iter().zip(["a", "b"]) {
        let store = faulty(&world, fault);
        let written = until_answered(|| store.keep(keep(id, "1", Some(0)))).await.expect("there is none");
        assert_eq!(written.version, 1, "{fault:?}");
        let changed = until_answered(|| store.keep(keep(id, "2", Some(1)))).await.expect("seen");
        assert_eq!(changed.version, 2, "{fault:?}");
    }
}

async fn a_repeated_lease_is_one_lease(world: World) {
    for fault in FAULTS {
        let node = NodeId(world.run_id().0);
        for act in [LeaseAct::Join(LEASE), LeaseAct::Renew(LEASE)] {
            let store = faulty(&world, fault);
            let until = until_answered(|| store.lease(Lease { node, act })).await;
            assert_eq!(until.expect("answered"), world.now().after(LEASE), "{act:?} {fault:?}");
        }
        let store = faulty(&world, fault);
        let act = LeaseAct::Leave;
        until_answered(|| store.lease(Lease { node, act })).await.expect("answered");
        assert_eq!(code(world.try_claim(node, 1).await), "CONCURRENCY_ERROR", "{fault:?}");
    }
}

/// The runs of a claim whose answer was lost have no driver; as after any crash, the end of the lease frees them.
async fn a_claim_whose_answer_is_lost_is_claimed_again_after_the_lease(world: World) {
    let run = world.start("k").await.run.id();
    let node = world.node().await;
    let lost = faulty(&world, Fault::After).claim(Claim::new(node, vec![orders()], 1)).await;
    assert!(matches!(lost, Err(Error::Unknown(_))), "{lost:?}");
    assert_eq!(world.try_claim(node, 1).await.expect("alive"), []);
    world.crash().await;
    let mut driver = world.claim_one().await;
    assert_eq!((driver.id(), driver.version()), (run, 3));
    driver.record(Entry::Recorded { at: visit("a"), value: payload("1"), failed: None }).save().await;
}

async fn a_repeated_sweep_finds_nothing_new(world: World) {
    world.driven("k").await;
    world.clock().advance(LEASE);
    for fault in FAULTS {
        let store = faulty(&world, fault);
        let swept = until_answered(|| store.sweep(Sweep { limit: 10 })).await.expect("answered");
        assert_eq!(swept.orphaned, usize::from(fault == Fault::Before));
    }
    assert_eq!(world.claim_one().await.version(), 3);
}
