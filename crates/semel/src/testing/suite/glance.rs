//! What a list shows of runs beside their headers.

use super::world::{WORKSPACE, World, all, name, payload, token, visit};
use crate::id::RunId;
use crate::rules::control::{ControlAction, Fork};
use crate::rules::entry::{Class, Entry, Failure, FailureKind, PauseReason};
use crate::rules::glance::{DoesNow, NowKind};
use crate::rules::ledger::Lineage;
use crate::rules::start::Start;
use crate::rules::status::Status;
use crate::store::Glance;

promises![
    a_page_tells_what_its_runs_do_now,
    a_glance_tells_the_origin_of_a_run_and_its_duplicates,
    a_commit_that_is_too_large_is_left_out_of_a_glance,
    glances_come_in_the_order_of_the_runs,
];

async fn glance(world: &World, run: RunId) -> Glance {
    let run = world.run(run).await;
    let glances = world.store().glances(vec![run]).await.expect("a glance is always possible");
    glances.into_iter().next().expect("one for each run")
}

async fn now(world: &World, run: RunId) -> Option<DoesNow> {
    glance(world, run).await.now
}

async fn a_page_tells_what_its_runs_do_now(world: World) {
    let mut waits = world.driven("hook").await;
    waits.open("approve").await;
    let due = world.after(900);
    waits.record(Entry::TimerSet { timer: visit("late"), at: due });
    waits.wait(Some(due)).await;
    let hook = now(&world, waits.id()).await.expect("it waits");
    assert_eq!((hook.kind, hook.token, hook.until), (NowKind::Hook, Some(token("approve")), Some(due)));
    assert!(hook.visit.is_some(), "where it has opened the hook");

    let mut retries = world.driven("retry").await;
    let step = visit("pay");
    let error = Failure::new(FailureKind::Retryable, "no answer");
    retries.record(Entry::step_started(step.clone(), 1, Class::Keyed));
    retries.record(Entry::StepFailed { step: step.clone(), attempt: 1, error, retry_at: Some(due) });
    retries.wait(Some(due)).await;
    let retry = now(&world, retries.id()).await.expect("it waits");
    assert_eq!((retry.kind, retry.visit, retry.attempt), (NowKind::Retry, Some(step.clone()), Some(2)));

    let mut parent = world.driven("child").await;
    let (child, _) = parent.child("ship", world.run_id()).await;
    parent.wait(None).await;
    let waits = now(&world, parent.id()).await.expect("it waits");
    assert_eq!((waits.kind, waits.child, waits.until), (NowKind::Child, Some(child), None));

    let mut doubt = world.driven("doubt").await;
    doubt.doubt("pay").await;
    let glance = glance(&world, doubt.id()).await;
    assert_eq!(glance.pause, Some(PauseReason::InDoubt));
    let doubt = glance.now.expect("it waits for a person");
    assert_eq!((doubt.kind, doubt.visit), (NowKind::Doubt, Some(step)));

    for status in [Status::Completed, Status::Failed, Status::Cancelled] {
        let ended = world.run_that_is(status, &status.to_string()).await;
        assert_eq!(now(&world, ended).await, None, "{status}");
    }
}

async fn a_glance_tells_the_origin_of_a_run_and_its_duplicates(world: World) {
    let source = world.run_that_is(Status::Completed, "source").await;
    for _ in 0..3 {
        world.start("source").await;
    }
    let run = world.run_id();
    let fork = Fork { run, key: None, at: Some(2), lineage: Lineage::Inherited };
    world.control(source, ControlAction::Fork(fork)).await.expect("an ended run can be forked");
    // A count that is read is written.
    world.store().receipts(WORKSPACE, source).await.expect("the run exists");
    let source_glance = glance(&world, source).await;
    assert_eq!((source_glance.duplicates, source_glance.forked_from), (3, None));
    assert_eq!(source_glance.input_bytes, Some(r#"{"n":1}"#.len() as u64));
    let fork = glance(&world, run).await;
    assert_eq!((fork.duplicates, fork.forked_from), (0, Some((source, 2))));
}

async fn a_commit_that_is_too_large_is_left_out_of_a_glance(world: World) {
    let large = format!("\"{}\"", "x".repeat(20_000));
    let start = Start { input: payload(&large), workflow: name("order"), ..world.request("large") };
    let mut driver = world.drive(start).await;
    let due = world.after(900);
    driver.record(Entry::step_started(visit("read"), 1, Class::Keyed));
    driver.record(Entry::StepCompleted { step: visit("read"), value: payload(&large) });
    driver.record(Entry::TimerSet { timer: visit("pause"), at: due });
    driver.wait(Some(due)).await;
    let glance = glance(&world, driver.id()).await;
    assert_eq!((glance.input_bytes, glance.forked_from), (None, None));
    let timer = glance.now.expect("its header says until when");
    assert_eq!((timer.kind, timer.visit, timer.until), (NowKind::Timer, None, Some(due)));
}

async fn glances_come_in_the_order_of_the_runs(world: World) {
    for n in 0..4 {
        let start = Start { input: payload(&"1".repeat(n + 1)), ..world.request(&n.to_string()) };
        world.begin(start).await;
    }
    let runs = world.store().list(all(WORKSPACE)).await.expect("a listing is always possible").runs;
    let glances = world.store().glances(runs).await.expect("a glance is always possible");
    assert_eq!(
        glances.iter().map(|glance| glance.input_bytes).collect::<Vec<_>>(),
        [Some(4), Some(3), Some(2), Some(1)]
    );
    assert_eq!(world.store().glances(Vec::new()).await.expect("none"), []);
}
