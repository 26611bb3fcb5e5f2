//! Fork: another run that has done what this one had done at a version.

use super::driver::{SuiteDriver, failure};
use super::world::{STRANGER, World, code, key, label, payload, refused, visit};
use crate::error::{Error, Result};
use crate::id::RunId;
use crate::rules::control::{ControlAction, Controlled, Fork};
use crate::rules::entry::{Class, Entry, Resolution, RestartFrom};
use crate::rules::ledger::Lineage;
use crate::rules::receipt::ReceiptKind;
use crate::rules::run::Retention;
use crate::rules::start::Start;
use crate::rules::status::Status;

promises![
    a_fork_has_done_what_its_source_had_done,
    a_fork_leaves_its_source_alone,
    an_inherited_lineage_keeps_effect_keys_and_a_fresh_one_does_not,
    at_most_once_steps_are_inherited_with_the_lineage,
    what_was_open_begins_anew_in_a_fork,
    a_fork_of_a_restarted_run_can_be_driven,
    a_fork_of_a_fork_can_be_driven,
    a_doubt_that_was_given_up_is_forked_as_it_stands,
    a_fork_finds_the_children_of_its_lineage,
    a_fork_under_a_key_in_use_is_refused,
    a_fork_under_the_id_of_a_strangers_run_is_told_nothing_of_it,
    a_fork_takes_a_key_that_is_remembered_no_more,
    a_repeated_fork_is_the_same_fork,
    a_forgotten_run_is_not_forked,
];

fn fork(world: &World, at: Option<u64>, lineage: Lineage) -> Fork {
    Fork { run: world.run_id(), key: None, at, lineage }
}

async fn try_fork(world: &World, of: RunId, fork: Fork) -> Result<Controlled> {
    world.control(of, ControlAction::Fork(fork)).await
}

/// Forks and drives the new run, which must be the only one that is due.
async fn forked(world: &World, of: RunId, at: Option<u64>, lineage: Lineage) -> SuiteDriver {
    let wish = fork(world, at, lineage);
    let done = try_fork(world, of, wish.clone()).await.expect("a run with a history can be forked");
    assert_eq!((done.changed, done.run.id()), (true, wish.run));
    assert_eq!(done.run, world.run(wish.run).await);
    assert_eq!(world.entries(wish.run).await.len() as u64, done.run.state.version);
    let driver = world.claim_one().await;
    assert_eq!(driver.id(), wish.run);
    driver
}

async fn a_fork_has_done_what_its_source_had_done(world: World) {
    let mut source = world.driven("k").await;
    source.step("a").await.expect("ours");
    source.record(Entry::Recorded { at: visit("now"), value: payload("5"), failed: None });
    source
        .record(Entry::Once { label: label("sms"), scope: String::new(), value: payload("1"), inside: false })
        .save()
        .await;
    let at = source.version();
    source.step("b").await.expect("ours");
    source.record(Entry::Once {
        label: label("mail"),
        scope: String::new(),
        value: payload("2"),
        inside: false,
    });
    source.fail().await;
    let mut fork = forked(&world, source.id(), Some(at), Lineage::Inherited).await;
    assert!(fork.ledger.record_at(&visit("a")).is_some() && fork.ledger.record_at(&visit("now")).is_some());
    assert_eq!(fork.ledger.record_at(&visit("b")), None, "that came later");
    assert_eq!(fork.ledger.once("", &label("sms")), Some(&payload("1")));
    assert_eq!(fork.ledger.once("", &label("mail")), None);
    assert_eq!(fork.ledger.created().forked_from, Some((source.id(), at)));
    assert_eq!(fork.ledger.created().input, source.ledger.created().input);
    fork.step("b").await.expect("ours");
    fork.complete("1").await;
    let whole = forked(&world, source.id(), None, Lineage::Inherited).await;
    assert!(whole.ledger.record_at(&visit("b")).is_some(), "all of it, if no version is given");
    let least = forked(&world, source.id(), Some(0), Lineage::Inherited).await;
    assert_eq!(least.ledger.record_at(&visit("a")), None);
}

async fn a_fork_leaves_its_source_alone(world: World) {
    let mut source = world.driven("k").await;
    source.step("a").await.expect("ours");
    let before = world.run(source.id()).await;
    forked(&world, source.id(), None, Lineage::Fresh).await.complete("1").await;
    assert_eq!(world.run(source.id()).await, before);
    assert_eq!(world.holder_of("k").await, Some(source.id()));
    source.step("b").await.expect("still ours");
}

async fn an_inherited_lineage_keeps_effect_keys_and_a_fresh_one_does_not(world: World) {
    let mut source = world.driven("k").await;
    source.step("a").await.expect("ours");
    let effect = |driver: &SuiteDriver| driver.ledger.effect_key(&visit("b"), "");
    let same = forked(&world, source.id(), None, Lineage::Inherited).await;
    assert_eq!(effect(&same), effect(&source));
    assert_eq!(same.ledger.created().lineage, source.id());
    let fresh = forked(&world, source.id(), None, Lineage::Fresh).await;
    assert_ne!(effect(&fresh), effect(&source));
    assert_eq!(fresh.ledger.created().lineage, fresh.id());
    assert!(fresh.ledger.record_at(&visit("a")).is_some(), "results are inherited either way");
}

/// A charge that was begun after the point of the fork must not be made again under the same effect key.
async fn at_most_once_steps_are_inherited_with_the_lineage(world: World) {
    let mut source = world.driven("k").await;
    source.step("a").await.expect("ours");
    let at = source.version();
    source.begin("charge", Class::AtMostOnce).done("charge", "1").save().await;
    source.begin("letter", Class::AtMostOnce).save().await;
    let same = forked(&world, source.id(), Some(at), Lineage::Inherited).await;
    for path in ["charge", "letter"] {
        assert_eq!(same.ledger.record_at(&visit(path)), source.ledger.record_at(&visit(path)), "{path}");
    }
    let fresh = forked(&world, source.id(), Some(at), Lineage::Fresh).await;
    assert_eq!(fresh.ledger.record_at(&visit("charge")), None, "other keys, other effects");
}

async fn what_was_open_begins_anew_in_a_fork(world: World) {
    let mut source = world.driven("k").await;
    source.open("t").await;
    source.begin("step", Class::Keyed);
    source.record(Entry::TimerSet { timer: visit("timer"), at: world.after(50) }).save().await;
    let mut fork = forked(&world, source.id(), None, Lineage::Inherited).await;
    for path in ["t", "step", "timer"] {
        assert_eq!(fork.ledger.record_at(&visit(path)), None, "{path}");
    }
    assert_eq!(fork.open("t").await, Some(source.id()), "the token is its source's");
}

async fn a_fork_of_a_restarted_run_can_be_driven(world: World) {
    for from in [RestartFrom::Failure, RestartFrom::Beginning] {
        let mut driver = world.driven(&format!("{from:?}")).await;
        driver.step("a").await.expect("ours");
        driver.record(Entry::Once {
            label: label("sms"),
            scope: String::new(),
            value: payload("1"),
            inside: false,
        });
        for (path, class) in [("b", Class::Keyed), ("charge", Class::AtMostOnce)] {
            driver.begin(path, class);
            let (step, error) = (visit(path), failure());
            driver.record(Entry::StepFailed { step, attempt: 1, error, retry_at: None });
        }
        let first_life = driver.version();
        driver.fail().await;
        world.control(driver.id(), ControlAction::Restart(from)).await.expect("a failed run may");
        let mut driver = world.claim_one().await;
        for (path, class) in [("a", Class::Keyed), ("b", Class::Keyed), ("charge", Class::AtMostOnce)] {
            if driver.ledger.record_at(&visit(path)).is_none() {
                driver.begin(path, class).done(path, "2").save().await;
            }
        }
        if driver.ledger.once("", &label("sms")).is_none() {
            driver
                .record(Entry::Once {
                    label: label("sms"),
                    scope: String::new(),
                    value: payload("2"),
                    inside: false,
                })
                .save()
                .await;
        }
        let fork = forked(&world, driver.id(), None, Lineage::Inherited).await;
        for path in ["a", "b", "charge"] {
            let (there, here) = (driver.ledger.record_at(&visit(path)), fork.ledger.record_at(&visit(path)));
            assert_eq!(there, here, "{path} after {from:?}");
        }
        assert_eq!(fork.ledger.once("", &label("sms")), driver.ledger.once("", &label("sms")), "{from:?}");
        let early = forked(&world, driver.id(), Some(first_life), Lineage::Inherited).await;
        let charge = early.ledger.record_at(&visit("charge"));
        assert_eq!(charge, driver.ledger.record_at(&visit("charge")), "the last outcome: {from:?}");
    }
}

/// A restart takes back that it was given up, and is not among what a fork inherits.
async fn a_doubt_that_was_given_up_is_forked_as_it_stands(world: World) {
    let mut driver = world.driven("k").await;
    driver.doubt("charge").await;
    let resolve = |resolution| ControlAction::Resolve { step: visit("charge"), resolution };
    let same = async |source: &SuiteDriver| {
        let mut fork = forked(&world, source.id(), None, Lineage::Inherited).await;
        assert_eq!(fork.ledger.record_at(&visit("charge")), source.ledger.record_at(&visit("charge")));
        fork.fail().await;
    };
    for _life in 0..2 {
        world.control(driver.id(), resolve(Resolution::GiveUp(failure()))).await.expect("it is in doubt");
        let mut told = world.claim_one().await;
        same(&told).await;
        told.fail().await;
        world
            .control(told.id(), ControlAction::Restart(RestartFrom::Failure))
            .await
            .expect("a failed run may");
        driver = world.claim_one().await;
        same(&driver).await;
        driver.doubt_again("charge").await;
        same(&driver).await;
    }
    world.control(driver.id(), resolve(Resolution::DidNotHappen)).await.expect("it is in doubt");
    let mut again = world.claim_one().await;
    same(&again).await;
    again.record(Entry::step_started(visit("charge"), 2, Class::AtMostOnce));
    again.done("charge", "1").save().await;
    same(&again).await;
    again.complete("1").await;
}

async fn a_fork_of_a_fork_can_be_driven(world: World) {
    let mut source = world.driven("k").await;
    source.step("a").await.expect("ours");
    let mut fork = forked(&world, source.id(), None, Lineage::Inherited).await;
    fork.step("b").await.expect("ours");
    let second = forked(&world, fork.id(), None, Lineage::Inherited).await;
    assert!(second.ledger.record_at(&visit("a")).is_some() && second.ledger.record_at(&visit("b")).is_some());
    assert_eq!(second.ledger.created().lineage, source.id());
}

async fn a_fork_finds_the_children_of_its_lineage(world: World) {
    let mut source = world.driven("k").await;
    let (child, _) = source.child("pack", world.run_id()).await;
    let mut driver = world.claim_one().await;
    let mut same = forked(&world, source.id(), None, Lineage::Inherited).await;
    assert_eq!(same.child("pack", world.run_id()).await, (child, true));
    let mut fresh = forked(&world, source.id(), None, Lineage::Fresh).await;
    assert!(!fresh.child("pack", world.run_id()).await.1);
    driver.complete("7").await;
    for parent in [&mut source, &mut same] {
        assert_eq!(parent.look().await.inbox.len(), 1, "both hear of it");
    }
    assert_eq!(fresh.look().await.inbox.len(), 0);
}

async fn a_fork_under_a_key_in_use_is_refused(world: World) {
    let source = world.driven("k").await;
    let taken = Fork { key: Some(key("k")), ..fork(&world, None, Lineage::Fresh) };
    let error = refused(try_fork(&world, source.id(), taken).await);
    assert!(matches!(error, Error::DuplicateRun { owner, .. } if owner == source.id()), "{error}");
    let free = Fork { key: Some(key("l")), ..fork(&world, None, Lineage::Fresh) };
    let done = try_fork(&world, source.id(), free.clone()).await.expect("the key is free");
    assert_eq!(world.holder_of("l").await, Some(done.run.id()));
    let same_id = Fork { key: Some(key("m")), ..free };
    let error = refused(try_fork(&world, source.id(), same_id).await);
    assert!(matches!(error, Error::DuplicateRun { owner, .. } if owner == done.run.id()), "{error}");
    assert_eq!(world.list().await.len(), 2);
}

async fn a_fork_under_the_id_of_a_strangers_run_is_told_nothing_of_it(world: World) {
    let source = world.driven("k").await;
    let theirs = Start { workspace: STRANGER, ..world.request("theirs") };
    let id = world.begin(theirs).await.run.id();
    let error =
        refused(try_fork(&world, source.id(), Fork { run: id, ..fork(&world, None, Lineage::Fresh) }).await);
    assert_eq!(error.code(), "VALIDATION_ERROR");
    assert_eq!(error.to_string(), format!("{id} is taken; draw another id"));
    assert_eq!(world.list().await.len(), 1);
}

async fn a_fork_takes_a_key_that_is_remembered_no_more(world: World) {
    let millis = std::time::Duration::from_millis;
    let retention = Retention { history: millis(1000), key: millis(10) };
    let mut old = world.drive(Start { retention, ..world.request("old") }).await;
    old.complete("1").await;
    let source = world.start("k").await.run.id();
    let wish = Fork { key: Some(key("old")), ..fork(&world, None, Lineage::Fresh) };
    assert_eq!(code(try_fork(&world, source, wish.clone()).await), "DUPLICATE_RUN");
    world.pass(10);
    let done = try_fork(&world, source, wish).await.expect("the key is free");
    assert_eq!(world.holder_of("old").await, Some(done.run.id()));
    assert!(!world.run(old.id()).await.state.holds_key);
}

async fn a_repeated_fork_is_the_same_fork(world: World) {
    let source = world.driven("k").await;
    let ask = async |lineage| {
        // A caller that asks again draws another id.
        world.control_as("c", source.id(), ControlAction::Fork(fork(&world, None, lineage))).await
    };
    let first = ask(Lineage::Fresh).await.expect("possible");
    let again = ask(Lineage::Fresh).await.expect("the same again");
    assert_eq!((again.changed, again.run.id()), (false, first.run.id()));
    assert_eq!(world.absorbed(first.run.id(), ReceiptKind::Control).await, 1);
    assert_eq!(code(ask(Lineage::Inherited).await), "KEY_REUSED");
    assert_eq!(world.list().await.len(), 2);
}

async fn a_forgotten_run_is_not_forked(world: World) {
    let retention = Retention { history: std::time::Duration::ZERO, ..Retention::default() };
    let mut driver = world.drive(Start { retention, ..world.request("k") }).await;
    driver.complete("1").await;
    assert_eq!(world.sweep(10).await.histories, 1);
    let answer = try_fork(&world, driver.id(), fork(&world, None, Lineage::Fresh)).await;
    assert_eq!(code(answer), "RUN_FINISHED");
    assert_eq!(world.run(driver.id()).await.status(), Status::Completed);
}
