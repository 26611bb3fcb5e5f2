//! Time limits: what is overdue ends, whether or not it has a driver.

use std::time::Duration;

use super::driver::SuiteDriver;
use super::world::{LEASE, World, call, code, payload, refused, token};
use crate::error::Error;
use crate::rules::control::ControlAction;
use crate::rules::deadline::GRACE;
use crate::rules::entry::{Entry, Outcome, RestartFrom};
use crate::rules::ledger::RefusedEntry;
use crate::rules::once::{Ask, OnceAnswer};
use crate::rules::start::{Handover, Policy, Start, StartVerdict};
use crate::rules::status::Status;
use crate::store::Wake;

promises![
    a_run_that_was_never_claimed_ends_at_its_limit,
    a_run_that_waits_ends_at_its_limit,
    a_run_whose_node_died_ends_at_its_limit,
    a_living_driver_ends_its_run_itself,
    a_driver_that_hangs_loses_its_run,
    a_paused_run_ends_when_it_is_resumed,
    a_run_without_a_limit_never_times_out,
    overdue_runs_end_in_portions,
    what_depends_on_an_overdue_run_is_told,
    a_restarted_run_ends_at_its_new_limit,
    a_driver_does_not_end_a_run_before_its_limit,
    a_limit_is_there_after_reopening,
    a_start_finds_an_overdue_run_ended,
    a_start_with_a_payload_finds_an_overdue_run_ended,
    a_refused_start_with_a_payload_ends_no_overdue_run,
];

fn limited(world: &World, key: &str) -> Start {
    Start { timeout: Some(LIMIT), ..world.request(key) }
}

const LIMIT: Duration = Duration::from_mins(1);

/// Lets the time of a run pass but for a millisecond, then that too. What a sweep ends before and after.
async fn at_the_limit(world: &World) -> [usize; 2] {
    world.clock().advance(LIMIT.saturating_sub(Duration::from_millis(1)));
    let before = world.sweep(10).await.timed_out;
    world.pass(1);
    [before, world.sweep(10).await.timed_out]
}

async fn a_run_that_was_never_claimed_ends_at_its_limit(world: World) {
    let started = world.begin(limited(&world, "k")).await.run;
    let limit = world.now().after(LIMIT);
    assert_eq!(started.state.deadline, Some(limit));
    let delayed = world.begin(Start { delay: 2 * LIMIT, ..limited(&world, "later") }).await.run.id();
    assert_eq!(at_the_limit(&world).await, [0, 2]);
    for id in [started.id(), delayed] {
        let run = world.run(id).await;
        assert_eq!(
            (run.status(), run.state.due, run.state.ended),
            (Status::TimedOut, None, Some(world.now()))
        );
        assert_eq!(world.outcome(id).await, Some(Outcome::TimedOut));
        assert_eq!(world.entries(id).await[1..], [Entry::TimedOut { limit }]);
    }
    assert!(world.claim_all().await.is_empty());
    assert_eq!(world.sweep(10).await.timed_out, 0, "once");
    let strict = Start { policy: Policy::STRICT, ..world.request("k") };
    match refused(world.try_start(strict).await) {
        Error::DuplicateRun { status, .. } => assert_eq!(status, Status::TimedOut),
        other => panic!("{other}"),
    }
}

async fn a_run_that_waits_ends_at_its_limit(world: World) {
    let mut driver = world.drive(limited(&world, "k")).await;
    driver.step("a").await.expect("ours");
    driver.wait(None).await;
    assert_eq!(at_the_limit(&world).await, [0, 1]);
    assert_eq!(world.run(driver.id()).await.status(), Status::TimedOut);
    assert_eq!(world.kinds(driver.id()).await.last(), Some(&"timedOut"));
}

async fn a_run_whose_node_died_ends_at_its_limit(world: World) {
    let mut driver = world.drive(limited(&world, "k")).await;
    driver.step("a").await.expect("ours");
    world.crash().await;
    assert_eq!(world.run(driver.id()).await.status(), Status::Running);
    world.clock().advance(LIMIT.saturating_sub(LEASE));
    assert_eq!(world.sweep(10).await.timed_out, 1);
    assert_eq!(world.run(driver.id()).await.status(), Status::TimedOut);
    assert_eq!(code(driver.step("late").await), "CONCURRENCY_ERROR");
}

/// A run with a driver, at its limit.
async fn driven_to_its_limit(world: &World) -> SuiteDriver {
    world.begin(limited(world, "k")).await;
    world.clock().advance(LIMIT.saturating_sub(Duration::from_secs(1)));
    let driver = world.claim_one().await;
    world.pass(1_000);
    driver
}

async fn a_living_driver_ends_its_run_itself(world: World) {
    let mut driver = driven_to_its_limit(&world).await;
    world.clock().advance(GRACE.saturating_sub(Duration::from_millis(1)));
    assert_eq!(world.sweep(10).await.timed_out, 0);
    driver.time_out().await;
    world.pass(1);
    assert_eq!(world.sweep(10).await.timed_out, 0);
    assert_eq!(world.kinds(driver.id()).await, ["created", "claimed", "timedOut"]);
}

async fn a_driver_that_hangs_loses_its_run(world: World) {
    let mut driver = driven_to_its_limit(&world).await;
    world.clock().advance(GRACE);
    assert_eq!(world.sweep(10).await.timed_out, 1);
    let run = world.run(driver.id()).await;
    assert_eq!((run.status(), run.state.node), (Status::TimedOut, None));
    assert_eq!(code(driver.step("late").await), "CONCURRENCY_ERROR");
}

async fn a_paused_run_ends_when_it_is_resumed(world: World) {
    let run = world.begin(limited(&world, "k")).await.run.id();
    world.control(run, ControlAction::Pause).await.expect("an open run may");
    world.clock().advance(2 * LIMIT);
    assert_eq!(world.sweep(10).await.timed_out, 0);
    assert_eq!(world.run(run).await.status(), Status::Paused);
    world.control(run, ControlAction::Resume).await.expect("a paused run may");
    assert_eq!(world.sweep(10).await.timed_out, 1);
    assert_eq!(world.run(run).await.status(), Status::TimedOut);
}

async fn a_run_without_a_limit_never_times_out(world: World) {
    let mut driver = world.driven("k").await;
    world.clock().advance(1_000 * LIMIT);
    assert_eq!(world.sweep(10).await.timed_out, 0);
    let early = driver.ledger.record(Entry::TimedOut { limit: world.now() });
    assert_eq!(early, Err(RefusedEntry::Limit { limit: None }));
}

async fn overdue_runs_end_in_portions(world: World) {
    let mut runs = Vec::new();
    for n in 0..5 {
        runs.push(world.begin(limited(&world, &n.to_string())).await.run.id());
        world.pass(1);
    }
    world.clock().advance(LIMIT);
    let (mut portions, mut more) = (Vec::new(), true);
    while more {
        let swept = world.sweep(2).await;
        portions.push(swept.timed_out);
        more = swept.more;
    }
    assert_eq!(portions, [2, 2, 1]);
    for run in runs {
        assert_eq!(world.run(run).await.status(), Status::TimedOut);
    }
}

async fn what_depends_on_an_overdue_run_is_told(world: World) {
    let mut driver = world.drive(limited(&world, "k")).await;
    driver.open("t").await;
    world.grant(driver.id(), "sms").await;
    driver.step("a").await.expect("ours");
    world.crash().await;
    let mut ear = world.store().wakes();
    world.clock().advance(LIMIT);
    assert_eq!(world.sweep(10).await.timed_out, 1);
    assert_eq!(world.owner_of("t").await, None);
    let other = world.driven("other").await.id();
    assert!(matches!(world.once(other, "sms", Ask::Claim).await, Ok(OnceAnswer::Mine(_))));
    let mut heard = Vec::new();
    while let Ok(wake) = ear.try_recv() {
        heard.push(wake);
    }
    assert!(heard.contains(&Wake::Ended(driver.id())) && heard.contains(&Wake::Settled), "{heard:?}");
}

async fn a_restarted_run_ends_at_its_new_limit(world: World) {
    let run = world.begin(limited(&world, "k")).await.run.id();
    for _ in 0..2 {
        assert_eq!(at_the_limit(&world).await, [0, 1]);
        world.pass(7);
        world.control(run, ControlAction::Restart(RestartFrom::Failure)).await.expect("it has timed out");
        assert_eq!(world.run(run).await.state.deadline, Some(world.now().after(LIMIT)));
    }
    assert_eq!(at_the_limit(&world).await, [0, 1]);
}

async fn a_driver_does_not_end_a_run_before_its_limit(world: World) {
    let mut driver = world.drive(limited(&world, "k")).await;
    let (limit, other) = (world.now().after(LIMIT), world.after(1));
    let recorded = driver.ledger.record(Entry::TimedOut { limit: other });
    assert_eq!(recorded, Err(RefusedEntry::Limit { limit: Some(limit) }));
    driver.record(Entry::TimedOut { limit });
    assert!(matches!(refused(driver.commit().await), Error::TooEarly { .. }));
    assert_eq!(world.run(driver.id()).await.status(), Status::Running);
}

async fn a_limit_is_there_after_reopening(mut world: World) {
    let run = world.begin(limited(&world, "k")).await.run;
    let kept = world.begin(Start { timeout: Some(2 * LIMIT), ..world.request("kept") }).await.run;
    world.reopen().await;
    assert_eq!(world.run(run.id()).await, run);
    assert_eq!(at_the_limit(&world).await, [0, 1]);
    assert_eq!(world.run(kept.id()).await, kept);
}

/// Before the next sweep.
async fn a_start_finds_an_overdue_run_ended(world: World) {
    let run = world.begin(limited(&world, "k")).await.run.id();
    world.clock().advance(LIMIT);
    let strict = Start { policy: Policy::STRICT, ..world.request("k") };
    match refused(world.try_start(strict).await) {
        Error::DuplicateRun { status, .. } => assert_eq!(status, Status::TimedOut),
        other => panic!("{other}"),
    }
    let again = world.begin(Start { policy: Policy::RETRY_FAILED, ..limited(&world, "k") }).await;
    assert_eq!((again.run.id(), again.verdict), (run, StartVerdict::Restarted));
    assert_eq!(world.kinds(run).await, ["created", "timedOut", "restarted"]);
    world.clock().advance(LIMIT);
    let attached = world.begin(limited(&world, "k")).await;
    assert_eq!((attached.run.status(), attached.outcome), (Status::TimedOut, Some(Outcome::TimedOut)));
    let next = world.begin(Start { policy: Policy::UNIQUE_WHILE_OPEN, ..limited(&world, "k") }).await;
    assert_eq!(next.verdict, StartVerdict::Created);
}

fn with_payload(start: Start) -> Start {
    let deliver = Some(Handover { token: token("t"), payload: payload("1"), id: None });
    Start { deliver, ..start }
}

/// Before the next sweep: no payload goes to a run whose time is up.
async fn a_start_with_a_payload_finds_an_overdue_run_ended(world: World) {
    let mut driver = world.drive(limited(&world, "k")).await;
    driver.open("t").await;
    driver.wait(None).await;
    let run = driver.id();
    world.clock().advance(LIMIT);
    let strict = with_payload(Start { policy: Policy::STRICT, ..world.request("k") });
    match refused(world.try_start(strict).await) {
        Error::DuplicateRun { status, .. } => assert_eq!(status, Status::TimedOut),
        other => panic!("{other}"),
    }
    assert_eq!(world.run(run).await.status(), Status::Waiting, "a refused start writes nothing");
    let attached = world.begin(with_payload(limited(&world, "k"))).await;
    assert_eq!((attached.run.id(), attached.delivered), (run, None));
    assert_eq!((attached.run.status(), attached.outcome), (Status::TimedOut, Some(Outcome::TimedOut)));
    assert_eq!(world.run(run).await.status(), Status::TimedOut);
    assert_eq!(world.owner_of("t").await, None, "the token went with the run");
    assert!(world.inbox(run).await.is_empty());
    let again = with_payload(Start { policy: Policy::RETRY_FAILED, ..limited(&world, "k") });
    let again = world.begin(again).await;
    assert_eq!((again.run.id(), again.verdict), (run, StartVerdict::Restarted));
    assert_eq!(again.delivered.map(|delivered| (delivered.run, delivered.absorbed)), Some((run, false)));
    // Once more overdue, with the payload in its inbox: a new run gets its own.
    world.clock().advance(LIMIT);
    let next = with_payload(Start { policy: Policy::UNIQUE_WHILE_OPEN, ..limited(&world, "k") });
    let next = world.begin(next).await;
    assert_eq!((next.verdict, next.superseded), (StartVerdict::Created, None));
    assert_eq!(next.delivered.map(|delivered| delivered.run), Some(next.run.id()));
    assert_eq!(world.run(run).await.status(), Status::TimedOut);
    assert_eq!(world.owner_of("t").await, Some(next.run.id()));
}

async fn a_refused_start_with_a_payload_ends_no_overdue_run(world: World) {
    let run = world.begin(limited(&world, "k")).await.run.id();
    let mut owner = world.driven("owner").await;
    owner.open("t").await;
    world.deliver_as("d", "t", "1").await.expect("the hook is open");
    world.clock().advance(LIMIT);
    let deliver = Some(Handover { token: token("t"), payload: payload("2"), id: Some(call("d")) });
    let start = Start { deliver, ..limited(&world, "k") };
    assert_eq!(code(world.try_start(start).await), "KEY_REUSED");
    assert_eq!(world.kinds(run).await, ["created"], "a refused start writes nothing");
    assert_eq!(world.sweep(10).await.timed_out, 1);
}
