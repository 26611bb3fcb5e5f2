//! Once: one recorded outcome per label and scope, shared by all runs that ask for it.

use std::time::Duration;

use super::driver::SuiteDriver;
use super::world::{LEASE, ORDER, STRANGER, WORKSPACE, World, code, key, label, name, payload};
use crate::error::Result;
use crate::id::RunId;
use crate::rules::claim::MAX_DEATHS;
use crate::rules::control::ControlAction;
use crate::rules::entry::{Entry, Message};
use crate::rules::key::{KeyScope, Scope};
use crate::rules::once::{Ask, OnceAnswer, OnceCall, OnceScope};
use crate::rules::start::Start;
use crate::rules::status::Status;

promises![
    one_run_makes_the_result_and_the_others_get_it,
    a_settled_label_wakes_those_who_wait_once,
    a_repeated_settle_keeps_the_first_result,
    a_released_label_goes_to_the_next,
    a_result_is_forgotten_after_its_time,
    an_overtaken_executor_cannot_settle,
    a_zombie_cannot_settle_what_was_released_and_granted_again,
    a_zombie_cannot_settle_what_was_forgotten_and_granted_again,
    an_owner_that_ends_gives_its_right_to_others,
    an_owner_that_rests_gives_its_right_to_others,
    an_owner_that_pauses_gives_its_right_to_others,
    an_owner_that_is_paused_gives_its_right_to_others,
    an_owner_that_is_parked_gives_its_right_to_others,
    a_settled_result_outlives_its_owner,
    labels_and_scopes_do_not_meet,
    a_runs_own_result_and_a_shared_one_do_not_meet_in_its_ledger,
    an_ended_run_asks_for_nothing,
    a_once_of_an_unknown_or_a_strangers_run_is_not_found,
];

fn settle(fence: u64, json: &str) -> Ask {
    Ask::Settle { fence, value: payload(json), ttl: None }
}

fn settled(json: &str) -> OnceAnswer {
    OnceAnswer::Settled(payload(json))
}

async fn claim(world: &World, run: RunId) -> OnceAnswer {
    world.once(run, "sms", Ask::Claim).await.expect("an open run may ask")
}

async fn one_run_makes_the_result_and_the_others_get_it(world: World) {
    let (owner, other) = (world.start("a").await.run.id(), world.start("b").await.run.id());
    let fence = world.grant(owner, "sms").await;
    assert_eq!(claim(&world, other).await, OnceAnswer::InFlight(owner));
    assert_eq!(world.once(owner, "sms", settle(fence, "7")).await.expect("granted"), settled("7"));
    for run in [owner, other] {
        assert_eq!(claim(&world, run).await, settled("7"));
    }
}

async fn a_settled_label_wakes_those_who_wait_once(world: World) {
    let owner = world.start("a").await.run.id();
    let mut waiter = world.driven("b").await;
    let fence = world.grant(owner, "sms").await;
    for _ in 0..2 {
        assert_eq!(claim(&world, waiter.id()).await, OnceAnswer::InFlight(owner));
    }
    waiter.wait(None).await;
    world.once(owner, "sms", settle(fence, "7")).await.expect("granted");
    let inbox = world.inbox(waiter.id()).await;
    let message = Message::OnceSettled { scope: "*".to_owned(), label: label("sms") };
    assert_eq!(
        inbox.into_iter().map(|a| a.message).collect::<Vec<_>>(),
        [message],
        "asked twice, woken once"
    );
    assert_eq!(world.run(waiter.id()).await.state.due, Some(world.now()));
    assert_eq!(claim(&world, waiter.id()).await, settled("7"));
}

async fn a_repeated_settle_keeps_the_first_result(world: World) {
    let run = world.start("k").await.run.id();
    let fence = world.grant(run, "sms").await;
    for json in ["1", "1", "2"] {
        assert_eq!(world.once(run, "sms", settle(fence, json)).await.expect("granted"), settled("1"));
    }
    assert_eq!(code(world.once(run, "sms", Ask::Release { fence }).await), "CONCURRENCY_ERROR");
    assert_eq!(claim(&world, run).await, settled("1"));
}

async fn a_released_label_goes_to_the_next(world: World) {
    let (owner, other) = (world.start("a").await.run.id(), world.start("b").await.run.id());
    let fence = world.grant(owner, "sms").await;
    assert_eq!(claim(&world, other).await, OnceAnswer::InFlight(owner));
    let released = world.once(owner, "sms", Ask::Release { fence }).await.expect("granted");
    assert_eq!(released, OnceAnswer::Released);
    assert_eq!(world.inbox(other).await.len(), 1, "it is worth asking again");
    assert_eq!(code(world.once(owner, "sms", settle(fence, "1")).await), "CONCURRENCY_ERROR");
    let fence = world.grant(other, "sms").await;
    assert_eq!(world.once(other, "sms", settle(fence, "2")).await.expect("granted"), settled("2"));
}

async fn a_result_is_forgotten_after_its_time(world: World) {
    let run = world.start("k").await.run.id();
    let fence = world.grant(run, "sms").await;
    let brief = Ask::Settle { fence, value: payload("1"), ttl: Some(Duration::from_millis(10)) };
    world.once(run, "sms", brief).await.expect("granted");
    world.pass(9);
    assert_eq!(claim(&world, run).await, settled("1"));
    world.pass(1);
    let fence = world.grant(run, "sms").await;
    assert_eq!(world.once(run, "sms", settle(fence, "2")).await.expect("granted"), settled("2"));
}

async fn an_overtaken_executor_cannot_settle(world: World) {
    let run = world.start("k").await.run.id();
    let first = world.grant(run, "sms").await;
    let second = world.grant(run, "sms").await;
    assert!(second > first, "the run's own right from before a crash, under a new fence");
    for ask in [settle(first, "1"), Ask::Release { fence: first }, settle(second + 1, "1")] {
        assert_eq!(code(world.once(run, "sms", ask).await), "CONCURRENCY_ERROR");
    }
    let other = world.start("l").await.run.id();
    assert_eq!(code(world.once(other, "sms", settle(second, "1")).await), "CONCURRENCY_ERROR");
    assert_eq!(world.once(run, "sms", settle(second, "2")).await.expect("granted"), settled("2"));
}

async fn a_zombie_cannot_settle_what_was_released_and_granted_again(world: World) {
    let run = world.driven("k").await.id();
    let zombie = world.grant(run, "sms").await;
    world.crash().await;
    world.claim_one().await;
    let fence = world.grant(run, "sms").await;
    world.once(run, "sms", Ask::Release { fence }).await.expect("granted");
    let fence = world.grant(run, "sms").await;
    assert_eq!(code(world.once(run, "sms", settle(zombie, "1")).await), "CONCURRENCY_ERROR");
    assert_eq!(world.once(run, "sms", settle(fence, "2")).await.expect("granted"), settled("2"));
}

async fn a_zombie_cannot_settle_what_was_forgotten_and_granted_again(world: World) {
    let run = world.driven("k").await.id();
    let zombie = world.grant(run, "sms").await;
    world.crash().await;
    world.claim_one().await;
    let fence = world.grant(run, "sms").await;
    let brief = Ask::Settle { fence, value: payload("1"), ttl: Some(Duration::ZERO) };
    world.once(run, "sms", brief).await.expect("granted");
    assert_eq!(world.sweep(10).await.once, 1);
    let fence = world.grant(run, "sms").await;
    assert_eq!(code(world.once(run, "sms", settle(zombie, "2")).await), "CONCURRENCY_ERROR");
    assert_eq!(world.once(run, "sms", settle(fence, "3")).await.expect("granted"), settled("3"));
}

async fn an_owner_that_ends_gives_its_right_to_others(world: World) {
    for end in ["complete", "fail", "cancel"] {
        let (mut owner, mut waiter) = (world.driven(end).await, world.driven(&format!("{end} waiter")).await);
        let fence = world.grant(owner.id(), end).await;
        let answer = world.once(waiter.id(), end, Ask::Claim).await.expect("open");
        assert_eq!(answer, OnceAnswer::InFlight(owner.id()));
        waiter.wait(None).await;
        match end {
            "complete" => drop(owner.complete("1").await),
            "fail" => drop(owner.fail().await),
            _ => assert!(world.cancel(owner.id()).await),
        }
        assert_eq!(world.run(waiter.id()).await.state.due, Some(world.now()), "{end}: it is told");
        world.grant(waiter.id(), end).await;
        assert_eq!(code(world.once(owner.id(), end, settle(fence, "1")).await), "CONCURRENCY_ERROR", "{end}");
        assert!(world.cancel(waiter.id()).await);
    }
}

/// While a run rests, no code uses its grant; a run that is only handed over keeps it.
async fn an_owner_that_rests_gives_its_right_to_others(world: World) {
    let (mut owner, mut waiter) = (world.driven("owner").await, world.driven("waiter").await);
    let fence = world.grant(owner.id(), "sms").await;
    owner.wait(Some(world.now())).await;
    let mut owner = world.claim_one().await;
    assert_eq!(claim(&world, waiter.id()).await, OnceAnswer::InFlight(owner.id()));
    waiter.wait(None).await;
    owner.wait(Some(world.after(1_000))).await;
    assert_eq!(world.run(waiter.id()).await.state.due, Some(world.now()), "it is told");
    assert_eq!(code(world.once(owner.id(), "sms", settle(fence, "1")).await), "CONCURRENCY_ERROR");
    assert_eq!(code(world.once(owner.id(), "sms", Ask::Claim).await), "CONCURRENCY_ERROR", "long on its way");
    let waiter = world.claim_one().await;
    let fence = world.grant(waiter.id(), "sms").await;
    world.once(waiter.id(), "sms", settle(fence, "7")).await.expect("granted");
}

async fn an_owner_that_pauses_gives_its_right_to_others(world: World) {
    let (mut owner, waiter) = owner_and_waiter(&world).await;
    owner.doubt("pay").await;
    goes_to_the_waiter(&world, owner.id(), waiter).await;
}

async fn an_owner_that_is_paused_gives_its_right_to_others(world: World) {
    let (owner, waiter) = owner_and_waiter(&world).await;
    world.control(owner.id(), ControlAction::Pause).await.expect("it may be paused");
    goes_to_the_waiter(&world, owner.id(), waiter).await;
}

async fn owner_and_waiter(world: &World) -> (SuiteDriver, RunId) {
    let (owner, mut waiter) = (world.driven("owner").await, world.driven("waiter").await);
    world.grant(owner.id(), "sms").await;
    assert_eq!(claim(world, waiter.id()).await, OnceAnswer::InFlight(owner.id()));
    waiter.wait(None).await;
    (owner, waiter.id())
}

/// The owner is paused: its grant would not be used.
async fn goes_to_the_waiter(world: &World, owner: RunId, waiter: RunId) {
    assert_eq!(world.run(owner).await.status(), Status::Paused);
    assert_eq!(world.run(waiter).await.state.due, Some(world.now()), "it is told");
    assert_eq!(code(world.once(owner, "sms", Ask::Claim).await), "CONCURRENCY_ERROR", "long on its way");
    assert_eq!(world.claim_one().await.id(), waiter);
    world.grant(waiter, "sms").await;
}

async fn an_owner_that_is_parked_gives_its_right_to_others(world: World) {
    let owner = world.start("owner").await.run.id();
    for _ in 1..MAX_DEATHS {
        // Each time its node dies without a word.
        assert_eq!(world.claim_one().await.id(), owner);
        world.clock().advance(LEASE);
        world.sweep(10).await;
    }
    assert_eq!(world.claim_one().await.id(), owner);
    world.grant(owner, "sms").await;
    let mut waiter = world.driven("waiter").await;
    assert_eq!(claim(&world, waiter.id()).await, OnceAnswer::InFlight(owner));
    waiter.wait(None).await;
    world.clock().advance(LEASE);
    world.sweep(10).await;
    assert_eq!(world.claim_all().await.len(), 0, "the one that is due is parked");
    goes_to_the_waiter(&world, owner, waiter.id()).await;
}

async fn a_settled_result_outlives_its_owner(world: World) {
    let mut owner = world.driven("a").await;
    let fence = world.grant(owner.id(), "sms").await;
    world.once(owner.id(), "sms", settle(fence, "7")).await.expect("granted");
    owner.complete("1").await;
    let other = world.start("b").await.run.id();
    assert_eq!(claim(&world, other).await, settled("7"));
}

async fn labels_and_scopes_do_not_meet(world: World) {
    let run = world.start("k").await.run.id();
    let workflow = |name_: &str| Scope::of(KeyScope::Workflow, &name(name_), &name("1"));
    let scopes = [
        (OnceScope::Workspace, "sms"),
        (OnceScope::Workspace, "SMS"),
        (OnceScope::Workspace, "sm/s"),
        (OnceScope::Key(workflow(ORDER), key("a")), "sms"),
        (OnceScope::Key(workflow(ORDER), key("a/b")), "sms"),
        (OnceScope::Key(workflow("orde"), key("r/a")), "sms"),
        (OnceScope::Key(Scope::of(KeyScope::Workspace, &name(ORDER), &name("1")), key("a")), "sms"),
    ];
    for (n, (scope, text)) in scopes.iter().enumerate() {
        let ask = async |ask| -> Result<OnceAnswer> {
            let (scope, label) = (scope.clone(), label(text));
            world.store().once(OnceCall { workspace: WORKSPACE, scope, label, run, ask }).await
        };
        let Ok(OnceAnswer::Mine(fence)) = ask(Ask::Claim).await else { panic!("{scope:?} {text} is free") };
        ask(settle(fence, &n.to_string())).await.expect("granted");
        assert_eq!(ask(Ask::Claim).await.expect("open"), settled(&n.to_string()));
    }
    let stranger = world.begin(Start { workspace: STRANGER, ..world.request("k") }).await.run.id();
    let (scope, label) = (OnceScope::Workspace, label("sms"));
    let once = OnceCall { workspace: STRANGER, scope, label, run: stranger, ask: Ask::Claim };
    assert!(matches!(world.store().once(once).await, Ok(OnceAnswer::Mine(_))), "nor do workspaces");
}

/// One label may have two results: the run's own and a shared one.
async fn a_runs_own_result_and_a_shared_one_do_not_meet_in_its_ledger(world: World) {
    let mut driver = world.driven("k").await;
    let entry = |scope: &str, json| Entry::Once {
        label: label("sms"),
        scope: scope.to_owned(),
        value: payload(json),
        inside: false,
    };
    driver.record(entry("", "1")).record(entry("*", "2")).record(entry("k1/*/k", "3")).save().await;
    assert!(driver.ledger.record(entry("*", "4")).is_err(), "one outcome per label and scope");
    world.crash().await;
    let ledger = world.claim_one().await.ledger;
    for (scope, json) in [("", "1"), ("*", "2"), ("k1/*/k", "3")] {
        assert_eq!(ledger.once(scope, &label("sms")), Some(&payload(json)), "{scope:?}");
    }
    assert_eq!(ledger.once("other", &label("sms")), None);
}

async fn an_ended_run_asks_for_nothing(world: World) {
    let run = world.start("k").await.run.id();
    world.cancel(run).await;
    assert_eq!(code(world.once(run, "sms", Ask::Claim).await), "RUN_FINISHED");
    let other = world.start("l").await.run.id();
    world.grant(other, "sms").await;
}

async fn a_once_of_an_unknown_or_a_strangers_run_is_not_found(world: World) {
    let run = world.start("k").await.run.id();
    assert_eq!(code(world.once(world.run_id(), "sms", Ask::Claim).await), "NOT_FOUND");
    let (scope, label) = (OnceScope::Workspace, label("sms"));
    let foreign = OnceCall { workspace: STRANGER, scope, label, run, ask: Ask::Claim };
    assert_eq!(code(world.store().once(foreign).await), "NOT_FOUND");
}
