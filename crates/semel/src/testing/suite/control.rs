//! Control: what operators do. Each action takes the run away from its driver, and may be repeated.

use std::time::Duration;

use super::driver::failure;
use super::world::{STRANGER, World, code, payload, refused, visit};
use crate::error::Error;
use crate::id::{RunId, WorkspaceId};
use crate::rules::control::{Control, ControlAction};
use crate::rules::entry::{Class, Entry, Message, Outcome, PauseReason, Resolution, RestartFrom};
use crate::rules::ledger::VisitRecord;
use crate::rules::receipt::ReceiptKind;
use crate::rules::run::Retention;
use crate::rules::start::{Start, StartVerdict};
use crate::rules::status::Status;
use crate::rules::step::StepState;

promises![
    every_action_in_every_state_is_done_absorbed_or_refused,
    a_cancel_says_who_won,
    a_pause_takes_the_run_and_a_resume_gives_it_back,
    a_run_that_was_to_begin_later_still_does_after_a_pause,
    a_call_repeated_under_its_id_is_absorbed_and_counted,
    a_call_id_stands_for_one_call,
    a_refused_call_burns_no_id,
    a_call_of_any_length_may_have_an_id,
    an_action_may_ask_for_a_version,
    an_action_on_an_unknown_or_a_strangers_run_is_not_found,
    a_restart_from_the_failure_keeps_results,
    a_restart_from_the_beginning_keeps_identities_and_intents,
    a_keyed_step_in_doubt_does_not_outlive_a_restart,
    a_step_that_was_given_up_is_not_simply_tried_again,
    a_released_key_leaves_the_run_with_its_driver,
    a_released_key_leaves_a_waiting_run_as_it_is,
    a_run_in_doubt_is_not_resumed,
    a_doubt_is_resolved_in_three_ways,
    the_run_goes_on_when_its_last_doubt_is_gone,
    a_resolution_does_not_end_an_operators_pause,
    a_resolution_under_a_running_driver_leaves_the_run_due,
    only_a_step_in_doubt_can_be_resolved,
    the_end_is_found_behind_many_resolutions,
    a_forgotten_run_takes_no_action,
    a_requested_cancel_arrives_in_the_inbox,
    a_requested_cancel_does_not_take_the_run_from_its_driver,
    a_requested_cancel_of_an_ended_run_is_absorbed,
    a_requested_cancel_repeated_under_its_id_is_absorbed,
];

fn cancel() -> ControlAction {
    ControlAction::Cancel { reason: "no longer wanted".to_owned() }
}

/// What is hashed of a call, and what is kept of one that was absorbed, has no bound of its own to run into.
async fn a_call_of_any_length_may_have_an_id(world: World) {
    let run = world.start("k").await.run.id();
    let long = || ControlAction::Cancel { reason: "\"".repeat(2 * 1024 * 1024) };
    assert!(world.control_as("c", run, long()).await.expect("taken").changed);
    assert!(!world.control_as("c", run, long()).await.expect("taken").changed, "the same call again");
    let receipts = world.store().receipts(WorkspaceId::DEFAULT, run).await.expect("taken");
    assert!(receipts[0].1.recent[0].detail.len() < 2_000, "in short");
    assert!(world.start("another").await.created(), "and the store goes on");
}

const RESTART: ControlAction = ControlAction::Restart(RestartFrom::Failure);

async fn every_action_in_every_state_is_done_absorbed_or_refused(world: World) {
    let absorbed = "absorbed";
    let (finished, invalid) = ("RUN_FINISHED", "INVALID_TRANSITION");
    let table = [
        (Status::Pending, ["CANCELLED", "PAUSED", absorbed, invalid]),
        (Status::Running, ["CANCELLED", "PAUSED", absorbed, invalid]),
        (Status::Waiting, ["CANCELLED", "PAUSED", absorbed, invalid]),
        (Status::Paused, ["CANCELLED", absorbed, "PENDING", invalid]),
        (Status::Completed, [absorbed, finished, finished, finished]),
        (Status::Failed, [absorbed, finished, finished, "PENDING"]),
        (Status::Cancelled, [absorbed, finished, finished, finished]),
        (Status::TimedOut, [absorbed, finished, finished, "PENDING"]),
    ];
    for (status, expected) in table {
        for (action, expected) in
            [cancel(), ControlAction::Pause, ControlAction::Resume, RESTART].into_iter().zip(expected)
        {
            let at = format!("{action:?} of {status}");
            let run = world.run_that_is(status, &at).await;
            let before = world.run(run).await;
            let said = match world.control(run, action).await {
                Ok(done) => {
                    assert_eq!(done.run, world.run(run).await, "{at}");
                    if done.changed { done.run.status().to_string() } else { absorbed.to_owned() }
                }
                Err(error) => error.code().to_owned(),
            };
            assert_eq!(said, expected, "{at}");
            let changed = ![absorbed, finished, invalid].contains(&expected);
            let after = world.run(run).await;
            assert_eq!(after.state.version, before.state.version + u64::from(changed), "{at}");
            assert_eq!(
                after.state.due,
                if said == "PENDING" { Some(world.now()) } else { before.state.due.filter(|_| !changed) },
                "{at}"
            );
        }
    }
}

async fn a_cancel_says_who_won(world: World) {
    let mut winner = world.driven("a").await;
    winner.complete("1").await;
    let late = world.control(winner.id(), cancel()).await.expect("every run can be asked");
    assert_eq!((late.changed, late.run.status()), (false, Status::Completed));
    assert_eq!(world.absorbed(winner.id(), ReceiptKind::Control).await, 1);
    let mut loser = world.driven("b").await;
    let won = world.control(loser.id(), cancel()).await.expect("every run can be asked");
    assert_eq!((won.changed, won.run.status()), (true, Status::Cancelled));
    assert_eq!(code(loser.clone().step("a").await), "CONCURRENCY_ERROR", "after it no step begins");
    assert_eq!(
        code(loser.record(Entry::Completed { value: payload("1") }).commit().await),
        "CONCURRENCY_ERROR"
    );
    let Some(Entry::Cancelled { reason, by }) = world.entries(loser.id()).await.pop() else { panic!("last") };
    assert_eq!((reason.as_str(), by.as_str()), ("no longer wanted", "ann"));
}

async fn a_pause_takes_the_run_and_a_resume_gives_it_back(world: World) {
    let mut driver = world.driven("k").await;
    driver.step("a").await.expect("ours");
    world.control(driver.id(), ControlAction::Pause).await.expect("an open run may");
    assert_eq!(code(driver.step("b").await), "CONCURRENCY_ERROR");
    let paused = world.run(driver.id()).await;
    assert_eq!((paused.state.node, paused.state.due), (None, None));
    world.control(driver.id(), ControlAction::Resume).await.expect("a paused run may");
    let mut next = world.claim_one().await;
    assert!(next.ledger.record_at(&visit("a")).is_some() && next.ledger.pause().is_none());
    next.step("b").await.expect("ours");
}

async fn a_run_that_was_to_begin_later_still_does_after_a_pause(world: World) {
    let delay = std::time::Duration::from_hours(1);
    let run = world.begin(Start { delay, ..world.request("k") }).await.run;
    world.control(run.id(), ControlAction::Pause).await.expect("an open run may");
    world.control(run.id(), ControlAction::Resume).await.expect("a paused run may");
    let resumed = world.run(run.id()).await;
    assert!(resumed.state.due.is_some() && resumed.state.due == run.state.due, "{:?}", resumed.state.due);
}

async fn a_call_repeated_under_its_id_is_absorbed_and_counted(world: World) {
    let actions = [ControlAction::Pause, ControlAction::Resume, ControlAction::ReleaseKey, cancel()];
    let run = world.start("k").await.run.id();
    for (n, action) in actions.into_iter().enumerate() {
        let id = format!("call-{n}");
        let done = world.control_as(&id, run, action.clone()).await.expect("possible");
        assert!(done.changed, "{action:?}");
        let again = world.control_as(&id, run, action.clone()).await.expect("the same again");
        assert_eq!((again.changed, again.run), (false, done.run), "{action:?}");
        assert_eq!(world.absorbed(run, ReceiptKind::Control).await, n as u64 + 1);
    }
    let kinds = world.kinds(run).await;
    assert_eq!(kinds, ["created", "paused", "resumed", "keyReleased", "cancelled"]);
    // Long after, when the same action would mean something else: a retry of a retry.
    let failed = world.run_that_is(Status::Failed, "f").await;
    world.control_as("retry", failed, RESTART).await.expect("a failed run may");
    world.claim_one().await.fail().await;
    let again = world.control_as("retry", failed, RESTART).await.expect("the same again");
    assert_eq!((again.changed, again.run.status()), (false, Status::Failed));
}

async fn a_call_id_stands_for_one_call(world: World) {
    let (one, two) = (world.start("a").await.run.id(), world.start("b").await.run.id());
    world.control_as("c", one, ControlAction::Pause).await.expect("an open run may");
    for (run, action) in [(one, cancel()), (two, ControlAction::Pause)] {
        let error = refused(world.control_as("c", run, action).await);
        assert!(matches!(&error, Error::CallReused { owner, .. } if *owner == one), "{error}");
    }
    assert_eq!(world.run(two).await.status(), Status::Pending);
}

async fn a_refused_call_burns_no_id(world: World) {
    let run = world.start("k").await.run.id();
    assert_eq!(code(world.control_as("c", run, RESTART).await), "INVALID_TRANSITION");
    assert!(world.control_as("c", run, ControlAction::Pause).await.expect("the id is free").changed);
}

async fn an_action_may_ask_for_a_version(world: World) {
    let run = world.start("k").await.run;
    let ask = |id: &str, expected, action| Control {
        expected: Some(expected),
        id: Some(super::world::call(id)),
        ..World::action(run.id(), action)
    };
    let wrong = refused(world.try_control(ask("a", 2, ControlAction::Pause)).await);
    assert!(matches!(wrong, Error::Concurrency { expected: 2, .. }), "{wrong}");
    assert_eq!(world.run(run.id()).await, run);
    assert!(world.try_control(ask("a", 1, ControlAction::Pause)).await.expect("it has that version").changed);
    let again = world.try_control(ask("a", 1, ControlAction::Pause)).await.expect("the same again");
    assert!(!again.changed, "the version it asked for was right when it was done");
    let late = refused(world.try_control(ask("b", 1, ControlAction::Resume)).await);
    assert!(matches!(late, Error::Concurrency { expected: 1, .. }), "{late}");
}

async fn an_action_on_an_unknown_or_a_strangers_run_is_not_found(world: World) {
    let run = world.start("k").await.run;
    let unknown = refused(world.control(world.run_id(), ControlAction::Pause).await);
    let foreign = Control { workspace: STRANGER, ..World::action(run.id(), ControlAction::Pause) };
    let foreign = refused(world.try_control(foreign).await);
    assert_eq!((unknown.code(), foreign.code()), ("NOT_FOUND", "NOT_FOUND"));
    assert_eq!(foreign.to_string(), Error::RunNotFound(run.id()).to_string());
    assert_eq!(world.run(run.id()).await, run);
}

async fn a_restart_from_the_failure_keeps_results(world: World) {
    for end in ["failed", "timed out"] {
        let timeout = (end != "failed").then_some(Duration::ZERO);
        let mut driver = world.drive(Start { timeout, ..world.request(end) }).await;
        driver.step("a").await.expect("ours");
        driver.begin("b", Class::Keyed);
        driver.record(Entry::StepFailed { step: visit("b"), attempt: 1, error: failure(), retry_at: None });
        if end == "failed" {
            driver.fail().await;
        } else {
            driver.time_out().await;
        }
        let restarted = world.control(driver.id(), RESTART).await.expect("a failed run may").run;
        assert_eq!((restarted.state.ended, restarted.state.purge), (None, None), "{end}");
        assert_eq!(world.outcome(driver.id()).await, None, "{end}: it has not ended any more");
        let mut next = world.claim_one().await;
        assert!(next.ledger.record_at(&visit("a")).is_some(), "{end}");
        assert_eq!(next.ledger.record_at(&visit("b")), None, "{end}: what failed is tried again");
        next.step("b").await.expect("ours");
        next.complete("1").await;
    }
}

async fn a_restart_from_the_beginning_keeps_identities_and_intents(world: World) {
    let mut driver = world.driven("k").await;
    driver.step("keyed").await.expect("ours");
    driver.begin("charge", Class::AtMostOnce).done("charge", "1").save().await;
    let key = driver.ledger.effect_key(&visit("keyed"), "");
    driver.fail().await;
    let again = ControlAction::Restart(RestartFrom::Beginning);
    world.control(driver.id(), again).await.expect("a failed run may");
    let next = world.claim_one().await;
    assert_eq!(next.ledger.record_at(&visit("keyed")), None, "it runs again");
    assert_eq!(next.ledger.effect_key(&visit("keyed"), ""), key, "as the same effect");
    let charged = VisitRecord::Step(StepState::Completed(payload("1")));
    assert_eq!(next.ledger.record_at(&visit("charge")), Some(&charged), "at most once is at most once");
}

async fn a_keyed_step_in_doubt_does_not_outlive_a_restart(world: World) {
    let mut driver = world.driven("k").await;
    driver.begin("a", Class::Keyed);
    driver.record(Entry::StepInDoubt { step: visit("a"), reason: "no answer".to_owned() });
    driver.fail().await;
    world.control(driver.id(), RESTART).await.expect("a failed run may");
    let mut next = world.claim_one().await;
    assert!(!next.ledger.is_in_doubt(), "it runs again under its key");
    next.step("a").await.expect("ours");
    next.complete("1").await;
    assert_eq!(world.run(next.id()).await.status(), Status::Completed);
}

/// Giving up does not say that the effect did not happen.
async fn a_step_that_was_given_up_is_not_simply_tried_again(world: World) {
    for from in [RestartFrom::Failure, RestartFrom::Beginning] {
        let mut driver = world.driven(&format!("{from:?}")).await;
        driver.doubt("charge").await;
        let give_up = resolve("charge", Resolution::GiveUp(failure()));
        world.control(driver.id(), give_up).await.expect("it is in doubt");
        world.claim_one().await.fail().await;
        world.control(driver.id(), ControlAction::Restart(from)).await.expect("a failed run may");
        let mut next = world.claim_one().await;
        let hidden = VisitRecord::Step(StepState::Started { attempt: 1, class: Class::AtMostOnce });
        assert_eq!(next.ledger.record_at(&visit("charge")), Some(&hidden), "{from:?}");
        next.doubt_again("charge").await;
        let happened = resolve("charge", Resolution::Happened(payload("9")));
        world.control(next.id(), happened).await.expect("it is in doubt again");
        world.claim_one().await.complete("1").await;
    }
}

/// A step under way is not put in doubt by it.
async fn a_released_key_leaves_the_run_with_its_driver(world: World) {
    let mut driver = world.driven("k").await;
    driver.begin("charge", Class::AtMostOnce).save().await;
    let before = world.run(driver.id()).await;
    let released =
        world.control_as("r", driver.id(), ControlAction::ReleaseKey).await.expect("an open run may");
    assert!(released.changed && !released.run.state.holds_key);
    assert_eq!(released.run, world.run(driver.id()).await);
    let (state, after) = (&before.state, &released.run.state);
    assert_eq!((state.version, state.node, state.due), (after.version, after.node, after.due));
    assert_eq!(world.holder_of("k").await, None);
    assert!(
        world.control_as("r", driver.id(), ControlAction::ReleaseKey).await.expect("the same again").repeated
    );
    assert!(!world.control(driver.id(), ControlAction::ReleaseKey).await.expect("already so").changed);
    driver.done("charge", "1").save().await;
    // Recorded once, and only by the driver.
    let inbox = world.inbox(driver.id()).await;
    let [arrival] = &inbox[..] else { panic!("{inbox:?}") };
    assert_eq!(arrival.message, Message::KeyReleased { by: "ann".to_owned() });
    let entry = |arrival| Entry::KeyReleased { by: "ann".to_owned(), arrival };
    assert!(driver.ledger.record(entry(None)).is_err(), "without a message it is the store's to write");
    driver.record(entry(Some(arrival.number))).save().await;
    assert_eq!(world.inbox(driver.id()).await, []);
    driver.complete("1").await;
    let kinds = world.kinds(driver.id()).await;
    assert_eq!(kinds[2..], ["stepStarted", "stepCompleted", "keyReleased", "completed"]);
    assert_eq!(world.start("k").await.verdict, StartVerdict::Created, "the key is free");
}

/// A run that rests has no driver: the release is written into its ledger, and its due time stays.
async fn a_released_key_leaves_a_waiting_run_as_it_is(world: World) {
    let mut waiting = world.driven("w").await;
    waiting.wait(Some(world.after(500))).await;
    world.control(waiting.id(), ControlAction::ReleaseKey).await.expect("an open run may");
    let run = world.run(waiting.id()).await;
    assert_eq!((run.status(), run.state.due), (Status::Waiting, Some(world.after(500))));
    assert_eq!(world.kinds(run.id()).await.last().copied(), Some("keyReleased"));
}

async fn a_run_in_doubt_is_not_resumed(world: World) {
    let mut driver = world.driven("k").await;
    for path in ["a", "b"] {
        driver.begin(path, Class::AtMostOnce);
        driver.record(Entry::StepInDoubt { step: visit(path), reason: "no answer".to_owned() });
    }
    driver.record(Entry::Paused { reason: PauseReason::InDoubt }).save().await;
    let before = world.run(driver.id()).await;
    let error = refused(world.try_control(World::action(driver.id(), ControlAction::Resume)).await);
    assert_eq!(error.code(), "INVALID_TRANSITION");
    assert!(error.to_string().contains("resolve first a, b"), "{error}");
    assert_eq!(world.run(driver.id()).await, before);
    world.control(driver.id(), resolve("a", Resolution::DidNotHappen)).await.expect("it is in doubt");
    let error = refused(world.try_control(World::action(driver.id(), ControlAction::Resume)).await);
    assert!(error.to_string().ends_with("resolve first b"), "{error}");
    let resolved =
        world.control(driver.id(), resolve("b", Resolution::DidNotHappen)).await.expect("in doubt");
    assert_eq!(resolved.run.status(), Status::Pending);
    // One that an operator has paused is resumed, whatever stands in its ledger.
    world.control(driver.id(), ControlAction::Pause).await.expect("an open run may");
    assert!(world.control(driver.id(), ControlAction::Resume).await.expect("a paused run may").changed);
}

fn resolve(step: &str, resolution: Resolution) -> ControlAction {
    ControlAction::Resolve { step: visit(step), resolution }
}

async fn a_doubt_is_resolved_in_three_ways(world: World) {
    let ways = [
        (Resolution::Happened(payload("9")), StepState::Completed(payload("9"))),
        (Resolution::DidNotHappen, StepState::Cleared { attempt: 1 }),
        (
            Resolution::GiveUp(failure()),
            StepState::GivenUp { attempt: 1, class: Class::AtMostOnce, error: failure() },
        ),
    ];
    for (resolution, becomes) in ways {
        let key = format!("{resolution:?}");
        let mut driver = world.driven(&key).await;
        driver.doubt("charge").await;
        assert_eq!(world.run(driver.id()).await.status(), Status::Paused, "{key}");
        let done = world.control_as(&key, driver.id(), resolve("charge", resolution.clone())).await;
        let done = done.expect("it is in doubt");
        assert_eq!((done.changed, done.run.status()), (true, Status::Pending), "{key}");
        assert_eq!(done.run, world.run(driver.id()).await, "{key}");
        let again = world.control_as(&key, driver.id(), resolve("charge", resolution)).await;
        assert!(!again.expect("the same again").changed, "{key}");
        let mut next = world.claim_one().await;
        assert_eq!(
            next.ledger.record_at(&visit("charge")),
            Some(&VisitRecord::Step(becomes.clone())),
            "{key}"
        );
        if matches!(becomes, StepState::Cleared { .. }) {
            next.record(Entry::step_started(visit("charge"), 2, Class::AtMostOnce));
            next.done("charge", "1").save().await;
        }
        next.complete("1").await;
    }
}

async fn the_run_goes_on_when_its_last_doubt_is_gone(world: World) {
    let mut driver = world.driven("k").await;
    for path in ["a", "b"] {
        driver.begin(path, Class::AtMostOnce);
        driver.record(Entry::StepInDoubt { step: visit(path), reason: "no answer".to_owned() });
    }
    let pause = Entry::Paused { reason: crate::rules::entry::PauseReason::InDoubt };
    driver.record(pause).save().await;
    let first = world.control(driver.id(), resolve("b", Resolution::DidNotHappen)).await.expect("in doubt");
    assert_eq!((first.run.status(), first.run.state.due), (Status::Paused, None));
    let last = world.control(driver.id(), resolve("a", Resolution::DidNotHappen)).await.expect("in doubt");
    assert_eq!((last.run.status(), last.run.state.due), (Status::Pending, Some(world.now())));
    assert_eq!(world.entries(driver.id()).await.len() as u64, last.run.state.version);
    assert_eq!(world.claim_one().await.id(), driver.id());
}

async fn a_resolution_does_not_end_an_operators_pause(world: World) {
    let mut driver = world.driven("k").await;
    driver.begin("a", Class::AtMostOnce);
    driver.record(Entry::StepInDoubt { step: visit("a"), reason: "no answer".to_owned() }).save().await;
    world.control(driver.id(), ControlAction::Pause).await.expect("an open run may");
    let done = world.control(driver.id(), resolve("a", Resolution::DidNotHappen)).await.expect("in doubt");
    assert_eq!((done.changed, done.run.status()), (true, Status::Paused));
    assert!(world.claim_all().await.is_empty());
}

async fn a_resolution_under_a_running_driver_leaves_the_run_due(world: World) {
    let mut driver = world.driven("k").await;
    driver.begin("a", Class::AtMostOnce);
    driver.record(Entry::StepInDoubt { step: visit("a"), reason: "no answer".to_owned() }).save().await;
    world.control(driver.id(), resolve("a", Resolution::DidNotHappen)).await.expect("in doubt");
    assert_eq!(code(driver.step("b").await), "CONCURRENCY_ERROR", "it took the run away");
    let mut next = world.claim_one().await;
    assert!(!next.ledger.is_in_doubt());
    next.step("b").await.expect("ours");
}

async fn only_a_step_in_doubt_can_be_resolved(world: World) {
    let mut driver = world.driven("k").await;
    driver.step("done").await.expect("ours");
    driver.doubt("charge").await;
    let before = world.run(driver.id()).await;
    for path in ["done", "unknown"] {
        let answer = world.control(driver.id(), resolve(path, Resolution::DidNotHappen)).await;
        assert_eq!(code(answer), "INVALID_TRANSITION", "{path}");
    }
    assert_eq!(world.run(driver.id()).await, before);
    world.control(driver.id(), resolve("charge", Resolution::DidNotHappen)).await.expect("in doubt");
    let twice = world.control(driver.id(), resolve("charge", Resolution::DidNotHappen)).await;
    assert_eq!(code(twice), "INVALID_TRANSITION", "without an id it is another resolution");
}

/// A failed run's doubts can still be settled; its end stands further back in the ledger with each of them.
async fn the_end_is_found_behind_many_resolutions(world: World) {
    let mut driver = world.driven("k").await;
    let paths: Vec<String> = (0..6).map(|n| format!("step-{n}")).collect();
    for path in &paths {
        driver.begin(path, Class::AtMostOnce);
        driver.record(Entry::StepInDoubt { step: visit(path), reason: "no answer".to_owned() });
    }
    driver.fail().await;
    for path in &paths {
        let done =
            world.control(driver.id(), resolve(path, Resolution::DidNotHappen)).await.expect("in doubt");
        assert_eq!(done.run.status(), Status::Failed);
        assert_eq!(world.outcome(driver.id()).await, Some(Outcome::Failed(failure())), "{path}");
    }
}

async fn a_forgotten_run_takes_no_action(world: World) {
    let retention = Retention { history: std::time::Duration::ZERO, ..Retention::default() };
    let mut driver = world.drive(Start { retention, ..world.request("k") }).await;
    driver.fail().await;
    let run: RunId = driver.id();
    assert_eq!(world.sweep(10).await.histories, 1);
    for action in
        [RESTART, resolve("a", Resolution::DidNotHappen), ControlAction::Pause, ControlAction::Resume]
    {
        assert_eq!(code(world.control(run, action.clone()).await), "RUN_FINISHED", "{action:?}");
    }
    assert!(!world.cancel(run).await);
    assert_eq!(world.run(run).await.status(), Status::Failed);
}

fn request() -> ControlAction {
    ControlAction::RequestCancel { reason: "no longer wanted".to_owned() }
}

async fn a_requested_cancel_arrives_in_the_inbox(world: World) {
    for status in [Status::Pending, Status::Running, Status::Waiting, Status::Paused] {
        let run = world.run_that_is(status, &status.to_string()).await;
        let before = world.run(run).await;
        let asked = world.control(run, request()).await.expect("every run can be asked");
        assert!(asked.changed, "{status}");
        let wish = Message::CancelRequested { reason: "no longer wanted".to_owned(), by: "ann".to_owned() };
        let inbox: Vec<_> = world.inbox(run).await.into_iter().map(|arrival| arrival.message).collect();
        assert_eq!(inbox, [wish], "{status}");
        let after = world.run(run).await;
        assert_eq!(
            (after.state.version, after.status()),
            (before.state.version, status),
            "no entry is written"
        );
        let due = if status == Status::Waiting { Some(world.now()) } else { before.state.due };
        assert_eq!((after.state.due, after.arrivals), (due, 1), "{status}: who waits is woken to see to it");
    }
}

async fn a_requested_cancel_does_not_take_the_run_from_its_driver(world: World) {
    let mut driver = world.driven("k").await;
    world.control(driver.id(), request()).await.expect("every run can be asked");
    driver.step("a").await.expect("still ours");
    let (reason, by) = ("no longer wanted".to_owned(), "ann".to_owned());
    driver.look().await.record(Entry::Cancelling { arrival: 1, reason: reason.clone(), by: by.clone() });
    driver.step("clean-up").await.expect("still ours");
    assert_eq!(world.inbox(driver.id()).await, [], "seen");
    world.crash().await;
    let mut next = world.claim_one().await;
    assert_eq!(next.ledger.cancelling(), Some(("no longer wanted", "ann")), "the next driver knows of it");
    next.record(Entry::Cancelled { reason, by }).save().await;
    assert_eq!(world.run(driver.id()).await.status(), Status::Cancelled);
}

async fn a_requested_cancel_of_an_ended_run_is_absorbed(world: World) {
    for status in [Status::Completed, Status::Failed, Status::Cancelled, Status::TimedOut] {
        let run = world.run_that_is(status, &status.to_string()).await;
        let before = world.run(run).await;
        let asked = world.control(run, request()).await.expect("every run can be asked");
        assert_eq!((asked.changed, asked.run), (false, before), "{status}");
        assert_eq!(world.inbox(run).await, [], "{status}");
        assert_eq!(world.absorbed(run, ReceiptKind::Control).await, 1, "{status}");
    }
}

async fn a_requested_cancel_repeated_under_its_id_is_absorbed(world: World) {
    let driver = world.driven("k").await;
    let asked = world.control_as("c", driver.id(), request()).await.expect("every run can be asked");
    let again = world.control_as("c", driver.id(), request()).await.expect("the same again");
    assert_eq!((asked.changed, again.changed), (true, false));
    assert_eq!(again.run, asked.run);
    assert_eq!(world.inbox(driver.id()).await.len(), 1);
    assert_eq!(world.absorbed(driver.id(), ReceiptKind::Control).await, 1);
    let other = ControlAction::RequestCancel { reason: "another".to_owned() };
    assert_eq!(code(world.control_as("c", driver.id(), other).await), "KEY_REUSED");
}
