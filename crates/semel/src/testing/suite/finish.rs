//! The end of a run: everything that changes with it changes in the same transaction.

use super::driver::{SuiteDriver, failure};
use super::world::{World, code, payload, token, visit};
use crate::id::RunId;
use crate::rules::control::ControlAction;
use crate::rules::entry::{Entry, Message, Outcome};
use crate::rules::run::Retention;
use crate::rules::start::Start;
use crate::rules::status::Status;
use std::time::Duration;

promises![
    an_ended_run_is_nobodys_and_never_due,
    an_end_is_the_same_with_ties_and_without,
    an_end_that_comes_too_late_changes_nothing,
    an_end_that_comes_before_the_next_claim_counts,
    the_way_it_ended_can_be_looked_up,
    a_token_is_free_when_its_owner_ends,
    a_token_opened_by_the_last_commit_is_free_after_it,
    a_child_started_by_the_last_commit_goes_on,
    children_of_a_cancelled_run_are_told,
    a_run_that_ends_otherwise_leaves_its_children_alone,
    a_parent_that_has_ended_needs_no_answer,
    a_child_of_an_earlier_life_can_be_cancelled_with_its_parent,
    steps_and_end_ride_on_one_commit,
];

const ENDS: [Status; 4] = [Status::Completed, Status::Failed, Status::Cancelled, Status::TimedOut];

async fn end(world: &World, driver: &mut SuiteDriver, status: Status) {
    match status {
        Status::Completed => drop(driver.complete("7").await),
        Status::Failed => drop(driver.fail().await),
        Status::TimedOut => drop(driver.time_out().await),
        _ => assert!(world.cancel(driver.id()).await),
    }
}

async fn an_ended_run_is_nobodys_and_never_due(world: World) {
    for status in ENDS {
        let mut driver = world.drive(world.request_for(status, &status.to_string())).await;
        driver.open(&status.to_string()).await;
        world.pass(1);
        end(&world, &mut driver, status).await;
        let state = world.run(driver.id()).await.state;
        assert_eq!((state.status, state.node, state.due), (status, None, None));
        assert_eq!((state.ended, state.holds_key, state.ties), (Some(world.now()), true, false), "{status}");
        assert_eq!(state.purge, Some(world.now().after(driver.ledger.run().new.retention.history)));
    }
}

/// A store may have a short way for runs without ties.
async fn an_end_is_the_same_with_ties_and_without(world: World) {
    let cancelled = Entry::Cancelled { reason: "enough".to_owned(), by: "itself".to_owned() };
    let ends = [
        Entry::Completed { value: payload("7") },
        Entry::Failed { error: failure() },
        Entry::TimedOut { limit: world.now() },
        cancelled,
    ];
    for (n, entry) in ends.into_iter().enumerate() {
        for history in [Duration::ZERO, Duration::from_hours(1), Duration::MAX] {
            let start = |ties: &str| {
                let key = format!("{n} {history:?} {ties}");
                let retention = Retention { history, key: Duration::MAX };
                Start { timeout: Some(Duration::ZERO), retention, ..world.request(&key) }
            };
            let (mut free, mut tied) = (world.drive(start("free")).await, world.drive(start("tied")).await);
            free.step("a").await.expect("the run is ours");
            tied.open("t").await;
            tied.close("t").await;
            world.pass(1);
            let mut left = Vec::new();
            for driver in [&mut free, &mut tied] {
                let wish = ControlAction::RequestCancel { reason: "not seen in time".to_owned() };
                world.control(driver.id(), wish).await.expect("it is open");
                let mut entry = entry.clone();
                if let Entry::TimedOut { limit } = &mut entry {
                    *limit = driver.ledger.deadline().expect("just set");
                }
                driver.record(entry).save().await;
                let run = world.run(driver.id()).await;
                let kinds = world.kinds(driver.id()).await;
                let inbox = world.inbox(driver.id()).await.len();
                left.push((run.state, run.arrivals, kinds.last().copied(), inbox));
            }
            assert_eq!(left[0], left[1], "{entry:?}, remembered for {history:?}");
        }
    }
}

async fn an_end_that_comes_too_late_changes_nothing(world: World) {
    let mut driver = world.driven("k").await;
    let mut zombie = driver.clone();
    driver.step("a").await.expect("the run is ours");
    let (before, entries) = (world.run(driver.id()).await, world.entries(driver.id()).await);
    zombie.record(Entry::Completed { value: payload("1") });
    assert_eq!(code(zombie.commit().await), "CONCURRENCY_ERROR");
    assert_eq!((world.run(driver.id()).await, world.entries(driver.id()).await), (before, entries));
    let mut late = driver.clone();
    driver.complete("2").await;
    let ended = world.run(driver.id()).await;
    late.record(Entry::Failed { error: failure() });
    assert_eq!(code(late.commit().await), "CONCURRENCY_ERROR", "of two ends the first counts");
    assert_eq!(world.run(driver.id()).await, ended);
}

/// Its node was declared dead and the run is due for all nodes, but none has claimed it yet.
async fn an_end_that_comes_before_the_next_claim_counts(world: World) {
    let mut driver = world.driven("k").await;
    world.crash().await;
    assert!(world.run(driver.id()).await.state.due.is_some());
    driver.complete("1").await;
    let state = world.run(driver.id()).await.state;
    assert_eq!((state.status, state.due, state.node), (Status::Completed, None, None));
    assert!(world.claim_all().await.is_empty());
}

async fn the_way_it_ended_can_be_looked_up(world: World) {
    for status in ENDS {
        let mut driver = world.drive(world.request_for(status, &status.to_string())).await;
        assert_eq!(world.outcome(driver.id()).await, None);
        end(&world, &mut driver, status).await;
        let expected = match status {
            Status::Completed => Outcome::Completed(payload("7")),
            Status::Failed => Outcome::Failed(failure()),
            Status::TimedOut => Outcome::TimedOut,
            _ => Outcome::Cancelled("no longer wanted".to_owned()),
        };
        assert_eq!(world.outcome(driver.id()).await, Some(expected.clone()), "{status}");
        assert_eq!(world.start(&status.to_string()).await.outcome, Some(expected), "{status}");
    }
}

async fn a_token_is_free_when_its_owner_ends(world: World) {
    let mut owner = world.drive(world.request_for(ENDS[0], "first")).await;
    owner.open("t").await;
    for (n, status) in ENDS.into_iter().enumerate() {
        end(&world, &mut owner, status).await;
        assert_eq!(world.owner_of("t").await, None, "{status}");
        assert_eq!(code(world.try_deliver(World::delivery("t", "1")).await), "HOOK_NOT_FOUND", "{status}");
        let next = ENDS.get(n + 1).copied().unwrap_or(status);
        owner = world.drive(world.request_for(next, &format!("after {status}"))).await;
        assert_eq!(owner.open("t").await, None, "{status}: the next may have it at once");
    }
}

async fn a_token_opened_by_the_last_commit_is_free_after_it(world: World) {
    let mut driver = world.driven("k").await;
    driver.ledger.open_hook(visit("t"), token("t")).expect("free");
    driver.complete("1").await;
    assert_eq!(world.owner_of("t").await, None);
    assert_eq!(code(world.try_deliver(World::delivery("t", "1")).await), "HOOK_NOT_FOUND");
    assert_eq!(world.driven("next").await.open("t").await, None);
}

async fn a_child_started_by_the_last_commit_goes_on(world: World) {
    let mut parent = world.driven("k").await;
    let child = world.run_id();
    let (workflow, version) = (super::world::name("order"), super::world::name("1"));
    parent.ledger.start_child(visit("c"), child, workflow, version, payload("1")).expect("free");
    parent.complete("1").await;
    let mut driver = world.claim_one().await;
    assert_eq!(driver.id(), child);
    driver.complete("2").await;
    assert_eq!(world.inbox(parent.id()).await, []);
}

/// A parent with an open and an ended child.
async fn family(world: &World, start: Start) -> (SuiteDriver, RunId, RunId) {
    let mut parent = world.drive(start).await;
    let (ended, _) = parent.child("ended", world.run_id()).await;
    world.claim_one().await.complete("1").await;
    let (open, _) = parent.child("open", world.run_id()).await;
    world.claim_one().await.wait(None).await;
    (parent, open, ended)
}

async fn children_of_a_cancelled_run_are_told(world: World) {
    let (parent, open, ended) = family(&world, world.request("k")).await;
    assert!(world.cancel(parent.id()).await);
    let told = world.inbox(open).await;
    let message = Message::ParentCancelled { parent: parent.id() };
    assert_eq!(told.into_iter().map(|a| a.message).collect::<Vec<_>>(), [message]);
    assert_eq!(world.run(open).await.state.due, Some(world.now()), "and wakes to hear it");
    assert_eq!(world.inbox(ended).await, []);
    let mut child = world.claim_one().await;
    child.record(Entry::Noted { arrival: 1 });
    child.record(Entry::Cancelled { reason: "its parent".to_owned(), by: "parent".to_owned() }).save().await;
    assert_eq!(world.run(open).await.status(), Status::Cancelled);
}

async fn a_run_that_ends_otherwise_leaves_its_children_alone(world: World) {
    for status in [Status::Completed, Status::Failed, Status::TimedOut] {
        let (mut parent, open, _) = family(&world, world.request_for(status, &status.to_string())).await;
        end(&world, &mut parent, status).await;
        assert_eq!(world.inbox(open).await, [], "{status}");
    }
}

async fn a_parent_that_has_ended_needs_no_answer(world: World) {
    for status in ENDS {
        let mut parent = world.drive(world.request_for(status, &status.to_string())).await;
        parent.child("c", world.run_id()).await;
        let mut child = world.claim_one().await;
        end(&world, &mut parent, status).await;
        let before = world.run(parent.id()).await;
        child.complete("1").await;
        assert_eq!(world.run(parent.id()).await, before, "{status}");
        assert_eq!(world.inbox(parent.id()).await, [], "{status}");
    }
}

async fn a_child_of_an_earlier_life_can_be_cancelled_with_its_parent(world: World) {
    let (mut parent, open, _) = family(&world, world.request("k")).await;
    parent.fail().await;
    let restart = crate::rules::control::ControlAction::Restart(crate::rules::entry::RestartFrom::Failure);
    world.control(parent.id(), restart).await.expect("a failed run may");
    assert!(world.cancel(parent.id()).await);
    assert_eq!(world.inbox(open).await.len(), 1, "it is still its child");
}

async fn steps_and_end_ride_on_one_commit(world: World) {
    let mut driver = world.drive(Start { ..world.request("k") }).await;
    driver.open("t").await;
    world.deliver("t", "5").await;
    driver.look().await.receive("t");
    driver.begin("a", crate::rules::entry::Class::Keyed).done("a", "1");
    driver.record(Entry::HookClosed { hook: visit("t") });
    let saved = driver.complete("9").await;
    assert_eq!(saved.version, 8);
    let kinds = world.kinds(driver.id()).await;
    assert_eq!(kinds[3..], ["hookReceived", "stepStarted", "stepCompleted", "hookClosed", "completed"]);
    assert_eq!(world.inbox(driver.id()).await, []);
    assert_eq!(world.owner_of("t").await, None);
}
