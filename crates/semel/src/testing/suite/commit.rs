//! Commit: entries at an expected version, all of them or none, with everything that changes together with them.

use super::driver::{SuiteDriver, failure};
use super::world::{World, code, name, payload, refused, token, visit};
use crate::error::Error;
use crate::rules::control::ControlAction;
use crate::rules::entry::{Class, Entry, Outcome, PauseReason, RestartFrom};
use crate::rules::json::Payload;
use crate::rules::key::Scope;
use crate::rules::receipt::ReceiptKind;
use crate::rules::start::Start;
use crate::rules::status::Status;
use crate::store::FindBy;

promises![
    the_version_is_the_length_of_the_ledger,
    a_stale_commit_changes_nothing_and_is_counted,
    a_repeated_commit_is_refused_and_recorded_once,
    an_ended_run_takes_no_commit,
    a_fired_timer_is_refused_before_its_time,
    a_delivery_that_the_driver_did_not_see_wakes_it_at_once,
    what_the_driver_has_seen_does_not_wake_it,
    a_message_is_consumed_once,
    a_token_has_one_owner_and_the_others_are_told_who,
    a_run_has_no_conflict_with_itself,
    a_token_of_two_hooks_stays_until_both_are_closed,
    a_token_closed_and_opened_in_one_commit_stays,
    a_closed_hook_frees_its_token_at_once,
    a_child_starts_with_its_parents_commit,
    a_childs_end_reaches_its_parent_once,
    a_restarted_parent_finds_its_child_and_hears_of_it_once,
    a_restarted_parent_hears_of_a_child_that_has_ended,
    a_child_whose_history_is_forgotten_is_not_waited_for,
    a_child_that_has_ended_wakes_a_parent_that_waits,
    a_childs_child_is_its_own,
];

async fn the_version_is_the_length_of_the_ledger(world: World) {
    let mut driver = world.driven("k").await;
    let check = async |driver: &SuiteDriver| {
        let (run, entries) = (world.run(driver.id()).await, world.entries(driver.id()).await);
        assert_eq!(run.state.version, entries.len() as u64, "{entries:?}");
        assert_eq!(driver.version(), run.state.version);
        assert_eq!(driver.ledger.run().status(), run.status());
    };
    check(&driver).await;
    driver.step("a").await.expect("ours");
    check(&driver).await;
    driver.open("t").await;
    check(&driver).await;
    driver.child("child", world.run_id()).await;
    check(&driver).await;
    driver.record(Entry::Recorded { at: visit("now"), value: payload("5"), failed: None });
    driver.record(Entry::Once {
        label: super::world::label("sms"),
        scope: String::new(),
        value: payload("1"),
        inside: false,
    });
    driver.record(Entry::TimerSet { timer: visit("timer"), at: world.now() }).save().await;
    check(&driver).await;
    driver.record(Entry::TimerFired { timer: visit("timer") });
    driver.wait(None).await;
    check(&driver).await;
    world.deliver("t", "1").await;
    let claimed = world.claim_all().await;
    let mut driver = claimed.into_iter().find(|d| d.id() == driver.id()).expect("a delivery wakes it");
    check(&driver).await;
    assert_eq!(driver.receive("t"), ["1"]);
    driver.complete("1").await;
    check(&driver).await;
}

/// Every kind of commit, by a driver that has lost the run.
async fn a_stale_commit_changes_nothing_and_is_counted(world: World) {
    let mut zombie = world.driven("k").await;
    zombie.open("t").await;
    world.deliver("t", "1").await;
    zombie.look().await;
    world.crash().await;
    let owner = world.claim_one().await;
    let (before, inbox) = (world.run(owner.id()).await, world.inbox(owner.id()).await);
    let kinds: [fn(&mut SuiteDriver); 9] = [
        |d| {
            d.begin("s", Class::Keyed).done("s", "1");
        },
        |d| {
            d.begin("s", Class::AtMostOnce);
        },
        |d| drop(d.receive("t")),
        |d| {
            d.record(Entry::HookClosed { hook: visit("t") });
        },
        |d| d.ledger.open_hook(visit("u"), token("u")).expect("free"),
        |d| {
            d.record(Entry::Waiting { due: None });
        },
        |d| {
            d.record(Entry::Paused { reason: PauseReason::InDoubt });
        },
        |d| {
            d.record(Entry::Completed { value: Payload::null() });
        },
        |d| {
            d.record(Entry::Failed { error: failure() });
        },
    ];
    for (n, kind) in kinds.into_iter().enumerate() {
        let mut late = zombie.clone();
        kind(&mut late);
        let error = refused(late.commit().await);
        let expected = zombie.version();
        assert!(
            matches!(error, Error::Concurrency { run, expected: e } if run == owner.id() && e == expected),
            "{n}"
        );
        assert_eq!(world.absorbed(owner.id(), ReceiptKind::Result).await, n as u64 + 1);
    }
    let mut late = zombie.clone();
    let child = world.run_id();
    late.ledger.start_child(visit("c"), child, name("order"), name("1"), Payload::null()).expect("free");
    assert_eq!(code(late.commit().await), "CONCURRENCY_ERROR");
    assert_eq!(world.run(owner.id()).await, before);
    assert_eq!(world.inbox(owner.id()).await, inbox);
    assert_eq!(world.entries(owner.id()).await.len() as u64, before.state.version);
    assert_eq!((world.owner_of("t").await, world.owner_of("u").await), (Some(owner.id()), None));
    assert_eq!(world.find(FindBy::Id(child)).await, None);
}

async fn a_repeated_commit_is_refused_and_recorded_once(world: World) {
    let mut driver = world.driven("k").await;
    let commit = driver.begin("pay", Class::Keyed).done("pay", "1").prepare();
    world.store().commit(commit.clone()).await.expect("ours");
    assert_eq!(code(world.store().commit(commit).await), "CONCURRENCY_ERROR");
    assert_eq!(world.kinds(driver.id()).await, ["created", "claimed", "stepStarted", "stepCompleted"]);
    driver.step("next").await.expect("still ours");
}

async fn an_ended_run_takes_no_commit(world: World) {
    for status in [Status::Completed, Status::Failed, Status::Cancelled, Status::TimedOut] {
        let mut driver = world.drive(world.request_for(status, &status.to_string())).await;
        let late = driver.clone();
        match status {
            Status::Completed => drop(driver.complete("1").await),
            Status::Failed => drop(driver.fail().await),
            Status::TimedOut => drop(driver.time_out().await),
            _ => assert!(world.cancel(driver.id()).await),
        }
        let ended = world.run(driver.id()).await;
        assert_eq!(code(late.clone().step("a").await), "CONCURRENCY_ERROR", "{status}");
        for entry in [Entry::Completed { value: payload("2") }, Entry::Waiting { due: None }] {
            assert_eq!(code(late.clone().record(entry).commit().await), "CONCURRENCY_ERROR", "{status}");
        }
        assert_eq!(world.run(driver.id()).await, ended);
    }
}

async fn a_fired_timer_is_refused_before_its_time(world: World) {
    let mut driver = world.driven("k").await;
    let (soon, later) = (world.after(100), world.after(200));
    driver.record(Entry::TimerSet { timer: visit("soon"), at: soon });
    driver.record(Entry::TimerSet { timer: visit("later"), at: later }).save().await;
    let before = world.run(driver.id()).await;
    let fire = |driver: &SuiteDriver, timer: &str| {
        let mut driver = driver.clone();
        driver.record(Entry::TimerFired { timer: visit(timer) });
        driver
    };
    world.pass(99);
    let error = refused(fire(&driver, "soon").commit().await);
    assert!(
        matches!(error, Error::TooEarly { until, now } if until == soon && now == world.now()),
        "{error}"
    );
    assert_eq!(world.run(driver.id()).await, before, "nothing of the commit is written");
    world.pass(1);
    // The latest of several decides.
    let both = fire(&fire(&driver, "soon"), "later").commit().await;
    assert_eq!(code(both), "INVALID_TRANSITION");
    fire(&driver, "soon").commit().await.expect("it is time");
    world.pass(100);
    let mut driver = fire(&driver, "soon");
    assert_eq!(code(driver.commit().await), "CONCURRENCY_ERROR", "and it has fired once");
}

async fn a_delivery_that_the_driver_did_not_see_wakes_it_at_once(world: World) {
    let mut driver = world.driven("k").await;
    driver.open("t").await;
    driver.look().await;
    world.deliver("t", "1").await;
    driver.wait(Some(world.after(1000))).await;
    assert_eq!(world.run(driver.id()).await.state.due, Some(world.now()));
    let mut next = world.claim_one().await;
    assert_eq!(next.receive("t"), ["1"]);
}

async fn what_the_driver_has_seen_does_not_wake_it(world: World) {
    let mut driver = world.driven("k").await;
    driver.open("t").await;
    world.deliver("t", "1").await;
    driver.look().await.wait(None).await;
    assert_eq!(world.run(driver.id()).await.state.due, None);
    world.deliver("t", "2").await;
    assert_eq!(world.run(driver.id()).await.state.due, Some(world.now()), "the next one does");
}

async fn a_message_is_consumed_once(world: World) {
    let mut driver = world.driven("k").await;
    driver.open("t").await;
    world.deliver("t", "1").await;
    driver.look().await;
    let mut twice = driver.clone();
    twice.receive("t");
    twice.receive("t");
    assert_eq!(code(twice.commit().await), "VALIDATION_ERROR");
    let mut never = driver.clone();
    never.record(Entry::Noted { arrival: 2 });
    assert_eq!(code(never.commit().await), "VALIDATION_ERROR");
    assert_eq!(world.inbox(driver.id()).await.len(), 1, "a refused commit consumes nothing");
    assert_eq!(driver.receive("t"), ["1"]);
    driver.save().await;
    assert_eq!(world.inbox(driver.id()).await, []);
    driver.receive("t");
    assert_eq!(code(driver.commit().await), "VALIDATION_ERROR");
}

async fn a_token_has_one_owner_and_the_others_are_told_who(world: World) {
    let mut owner = world.driven("owner").await;
    assert_eq!(owner.open("t").await, None);
    for n in 0..3 {
        let mut other = world.driven(&n.to_string()).await;
        assert_eq!(other.open("t").await, Some(owner.id()));
        let conflict = Entry::HookConflicted { hook: visit("t"), token: token("t"), owner: owner.id() };
        assert_eq!(world.entries(other.id()).await.pop(), Some(conflict), "and the ledger says so");
        other.complete("1").await;
    }
    assert_eq!(world.owner_of("t").await, Some(owner.id()), "their end does not free what is not theirs");
}

async fn a_run_has_no_conflict_with_itself(world: World) {
    let mut driver = world.driven("k").await;
    driver.open("t").await;
    driver.ledger.open_hook(visit("again"), token("t")).expect("another path");
    let settled = driver.save().await.settled;
    assert_eq!(settled, [Entry::HookOpened { hook: visit("again"), token: token("t") }]);
    // Nor has a later life of it.
    driver.fail().await;
    world.control(driver.id(), ControlAction::Restart(RestartFrom::Failure)).await.expect("a failed run may");
    assert_eq!(world.claim_one().await.open("t").await, None);
}

async fn a_token_of_two_hooks_stays_until_both_are_closed(world: World) {
    let mut driver = world.driven("k").await;
    driver.open("t").await;
    driver.ledger.open_hook(visit("again"), token("t")).expect("another path");
    driver.save().await;
    driver.close("t").await;
    assert_eq!(world.owner_of("t").await, Some(driver.id()), "the other hook is still open");
    driver.close("again").await;
    assert_eq!(world.owner_of("t").await, None);
}

async fn a_token_closed_and_opened_in_one_commit_stays(world: World) {
    let mut driver = world.driven("k").await;
    driver.open("t").await;
    driver.record(Entry::HookClosed { hook: visit("t") });
    driver.ledger.open_hook(visit("again"), token("t")).expect("another path");
    driver.save().await;
    assert_eq!(world.owner_of("t").await, Some(driver.id()));
    driver.ledger.open_hook(visit("third"), token("t")).expect("another path");
    driver.record(Entry::HookClosed { hook: visit("again") }).save().await;
    assert_eq!(world.owner_of("t").await, Some(driver.id()));
}

async fn a_closed_hook_frees_its_token_at_once(world: World) {
    let mut first = world.driven("first").await;
    first.open("t").await;
    first.close("t").await;
    assert_eq!(code(world.try_deliver(World::delivery("t", "1")).await), "HOOK_NOT_FOUND");
    let mut second = world.driven("second").await;
    assert_eq!(second.open("t").await, None);
    assert_eq!(world.deliver("t", "2").await.run, second.id());
}

async fn a_child_starts_with_its_parents_commit(world: World) {
    let mut parent = world.driven("k").await;
    let id = world.run_id();
    assert_eq!(parent.child("pack", id).await, (id, false));
    let child = world.run(id).await;
    let key = parent.ledger.effect_key(&visit("pack"), "").to_string();
    assert_eq!((child.status(), child.new.parent), (Status::Pending, Some(parent.id())));
    assert_eq!((&child.new.scope, child.new.key.as_str()), (&Scope::children(), key.as_str()));
    assert_eq!(child.new.lineage, id, "a child is the root of its own effects");
    assert_eq!(child.new.retention, parent.ledger.run().new.retention);
    let driver = world.claim_one().await;
    let said = driver.ledger.created().parent.clone().expect("it knows its parent");
    assert_eq!((driver.id(), said.run, said.visit), (id, parent.id(), visit("pack")));
}

async fn a_childs_end_reaches_its_parent_once(world: World) {
    let mut parent = world.driven("k").await;
    for (n, status) in [Status::Completed, Status::Failed, Status::Cancelled].into_iter().enumerate() {
        let path = format!("child-{n}");
        let (id, _) = parent.child(&path, world.run_id()).await;
        let mut child = world.claim_one().await;
        assert_eq!(child.id(), id);
        match status {
            Status::Completed => drop(child.complete("7").await),
            Status::Failed => drop(child.fail().await),
            _ => assert!(world.cancel(id).await),
        }
        assert_eq!(parent.look().await.inbox.len(), 1, "{status}");
        let expected = world.outcome(id).await;
        assert_eq!(Some(parent.child_ended(&path)), expected, "{status}");
        parent.save().await;
        assert_eq!(world.inbox(parent.id()).await, [], "{status}");
    }
}

async fn restart(world: &World, run: crate::id::RunId) {
    world.control(run, ControlAction::Restart(RestartFrom::Failure)).await.expect("a failed run may");
}

/// Claims what is due and gives the driver of one of them.
async fn claim(world: &World, run: crate::id::RunId) -> SuiteDriver {
    world.claim_all().await.into_iter().find(|driver| driver.id() == run).expect("the run is due")
}

async fn a_restarted_parent_finds_its_child_and_hears_of_it_once(world: World) {
    let mut parent = world.driven("k").await;
    let (id, _) = parent.child("pack", world.run_id()).await;
    parent.fail().await;
    restart(&world, parent.id()).await;
    let mut claimed = world.claim_all().await;
    let mut parent = claimed.remove(claimed.iter().position(|d| d.id() != id).expect("the parent"));
    let mut child = claimed.remove(0);
    assert_eq!(parent.child("pack", world.run_id()).await, (id, true), "the same effect, the same child");
    child.complete("7").await;
    assert_eq!(parent.look().await.inbox.len(), 1);
    assert_eq!(parent.child_ended("pack"), Outcome::Completed(payload("7")));
    parent.complete("1").await;
    assert_eq!(world.list().await.len(), 2);
}

async fn a_restarted_parent_hears_of_a_child_that_has_ended(world: World) {
    for (key, while_it_lived) in [("before", true), ("meanwhile", false)] {
        let mut parent = world.driven(key).await;
        let (id, _) = parent.child("pack", world.run_id()).await;
        if while_it_lived {
            claim(&world, id).await.complete("7").await;
            parent.fail().await;
        } else {
            parent.fail().await;
            claim(&world, id).await.complete("7").await;
        }
        restart(&world, parent.id()).await;
        let mut parent = claim(&world, parent.id()).await;
        assert_eq!(parent.child("pack", world.run_id()).await, (id, true), "{key}");
        assert_eq!(parent.look().await.inbox.len(), 1, "{key}: heard of once");
        assert_eq!(parent.child_ended("pack"), Outcome::Completed(payload("7")), "{key}");
        parent.complete("1").await;
    }
}

/// The history of the child is past its retention, and only its key is remembered: the store knows that it has ended, but not how.
async fn a_child_whose_history_is_forgotten_is_not_waited_for(world: World) {
    let retention = crate::rules::run::Retention {
        history: std::time::Duration::from_millis(10),
        key: std::time::Duration::from_secs(1000),
    };
    let mut parent = world.drive(Start { retention, ..world.request("k") }).await;
    let (id, _) = parent.child("pack", world.run_id()).await;
    world.claim_one().await.complete("7").await;
    parent.look().await.child_ended("pack");
    world.pass(10);
    assert_eq!(world.sweep(10).await.histories, 1);
    parent.fail().await;
    let again = ControlAction::Restart(RestartFrom::Beginning);
    world.control(parent.id(), again).await.expect("a failed run may");
    let mut parent = claim(&world, parent.id()).await;
    assert_eq!(parent.child("pack", world.run_id()).await, (id, true), "and it is not started again");
    let outcome = parent.look().await.child_ended("pack");
    assert_eq!(outcome, Outcome::Purged(Status::Completed), "it has not failed");
}

async fn a_child_that_has_ended_wakes_a_parent_that_waits(world: World) {
    let mut parent = world.driven("k").await;
    let (id, _) = parent.child("pack", world.run_id()).await;
    parent.fail().await;
    claim(&world, id).await.complete("7").await;
    restart(&world, parent.id()).await;
    let mut parent = claim(&world, parent.id()).await;
    let (workflow, version) = (name("order"), name("1"));
    parent
        .ledger
        .start_child(visit("pack"), world.run_id(), workflow, version, Payload::null())
        .expect("free");
    parent.wait(None).await;
    assert_eq!(world.run(parent.id()).await.state.due, Some(world.now()), "its end is in the inbox");
}

async fn a_childs_child_is_its_own(world: World) {
    let mut parent = world.driven("k").await;
    let (id, _) = parent.child("c", world.run_id()).await;
    let mut child = world.claim_one().await;
    let (grandchild, attached) = child.child("c", world.run_id()).await;
    assert!(!attached && grandchild != id, "the same path in another run is another effect");
    world.claim_one().await.complete("1").await;
    assert_eq!(parent.look().await.inbox, [], "the grandparent hears nothing of it");
    assert_eq!(child.look().await.inbox.len(), 1);
}
