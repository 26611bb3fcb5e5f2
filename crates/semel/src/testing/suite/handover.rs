//! A start that brings a payload: one transaction starts the run, or hands the payload to the owner of the token.

use super::world::{World, call, code, payload, token, visit};
use crate::error::Error;
use crate::rules::control::ControlAction;
use crate::rules::entry::Message;
use crate::rules::key::KeyScope;
use crate::rules::path::Name;
use crate::rules::receipt::ReceiptKind;
use crate::rules::start::{Handover, Policy, Start, StartVerdict};
use crate::rules::status::Status;
use crate::store::FindBy;

promises![
    a_start_with_a_payload_creates_and_reserves_the_token,
    the_payload_goes_to_the_owner_of_the_token,
    the_payload_goes_to_the_run_under_the_key,
    another_workflow_under_the_same_key_and_payload_is_started,
    a_finished_run_makes_room_for_the_same_request,
    a_failed_run_is_restarted_by_the_same_request,
    a_released_key_starts_a_run_with_the_payload,
    a_policy_that_refuses_does_so_also_with_a_payload,
    a_repeated_request_delivers_once_also_when_the_run_has_ended,
    a_request_that_went_to_another_run_makes_one_when_the_policy_says_so,
    an_explicit_delivery_id_is_free_for_the_next_run,
    a_delivery_absorbed_with_a_start_leaves_a_receipt,
    a_reserved_token_has_no_conflict_with_its_run,
    a_reserved_token_is_free_when_its_run_ends,
    a_start_repeated_under_a_delivery_id_delivers_once,
    a_start_repeated_under_its_run_id_delivers_once,
    a_repeated_handover_finds_the_owner_that_got_it,
    a_delivery_id_with_another_payload_is_refused,
    a_run_that_has_ended_takes_no_payload,
    a_payload_wakes_the_waiting_run,
    superseding_with_a_payload_moves_the_token,
    a_refused_start_delivers_nothing,
];

fn with(start: Start, to: &str, json: &str, id: Option<&str>) -> Start {
    let deliver = Some(Handover { token: token(to), payload: payload(json), id: id.map(call) });
    Start { deliver, ..start }
}

async fn a_start_with_a_payload_creates_and_reserves_the_token(world: World) {
    let started = world.begin(with(world.request("k"), "t", "1", None)).await;
    let delivered = started.delivered.expect("the payload found its run");
    assert_eq!(started.verdict, StartVerdict::Created);
    assert_eq!((delivered.run, delivered.arrival, delivered.absorbed), (started.run.id(), 1, false));
    assert_eq!(world.owner_of("t").await, Some(started.run.id()));
    assert_eq!(world.run(started.run.id()).await, started.run);
    let message = Message::Delivery { token: token("t"), payload: payload("1") };
    assert_eq!(world.inbox(started.run.id()).await[0].message, message);
}

async fn the_payload_goes_to_the_owner_of_the_token(world: World) {
    let mut owner = world.driven("owner").await;
    assert_eq!(owner.open("t").await, None);
    let request = with(world.request("k"), "t", "5", None);
    let never = request.run;
    let started = world.begin(request).await;
    assert_eq!((started.verdict, started.run.id()), (StartVerdict::Attached, owner.id()));
    assert_eq!(started.delivered.map(|d| (d.run, d.absorbed)), Some((owner.id(), false)));
    assert_eq!(started.run, world.run(owner.id()).await, "the answer shows the owner as it is now");
    assert_eq!(world.find(FindBy::Id(never)).await, None, "no run is started beside the owner");
    assert_eq!(world.holder_of("k").await, None, "and no key is burnt");
    assert_eq!(owner.look().await.receive("t"), ["5"]);
}

async fn the_payload_goes_to_the_run_under_the_key(world: World) {
    let first = world.start("k").await.run.id();
    let again = world.begin(with(world.request("k"), "t", "1", None)).await;
    assert_eq!((again.verdict, again.run.id()), (StartVerdict::Attached, first));
    assert_eq!(again.delivered.map(|d| d.run), Some(first));
    assert_eq!(again.run, world.run(first).await);
    assert_eq!(world.owner_of("t").await, Some(first), "reserved for the run that owns the key");
    world.begin(with(world.request("k"), "t", "2", None)).await;
    assert_eq!(world.inbox(first).await.len(), 2, "another payload without an id is another payload");
}

fn in_workflow(world: &World, key: &str, workflow: &str) -> Start {
    let workflow = Name::new(workflow).expect("a plain name");
    Start { workflow, scope: KeyScope::Workflow, ..world.request(key) }
}

async fn another_workflow_under_the_same_key_and_payload_is_started(world: World) {
    let first = world.begin(with(in_workflow(&world, "1", "wa"), "u", "1", None)).await.run.id();
    assert!(world.cancel(first).await);
    let second = world.begin(with(in_workflow(&world, "1", "wb"), "u", "1", None)).await;
    assert_eq!(second.verdict, StartVerdict::Created);
    assert_eq!(second.run.new.workflow.as_str(), "wb");
    let delivered = second.delivered.expect("it goes to the new run");
    assert_eq!((delivered.run, delivered.absorbed), (second.run.id(), false));
    assert_eq!(world.inbox(second.run.id()).await.len(), 1);
}

async fn a_finished_run_makes_room_for_the_same_request(world: World) {
    for id in [None, Some("d")] {
        let key = format!("{id:?}");
        let policy = Policy::UNIQUE_WHILE_OPEN;
        let request = || with(Start { policy, ..world.request(&key) }, &key, "1", id);
        let first = world.begin(request()).await.run.id();
        assert!(world.cancel(first).await);
        let second = world.begin(request()).await;
        assert_eq!(
            (second.verdict, second.delivered.map(|d| d.absorbed)),
            (StartVerdict::Created, Some(false))
        );
        assert_ne!(second.run.id(), first);
        let again = world.begin(request()).await;
        assert_eq!((again.verdict, again.run.id()), (StartVerdict::Attached, second.run.id()), "{key}");
        assert_eq!(again.delivered.map(|d| (d.run, d.absorbed)), Some((second.run.id(), true)), "{key}");
        assert_eq!(world.inbox(second.run.id()).await.len(), 1, "{key}");
    }
}

/// Its payload is still in its inbox, or was consumed by a step that is not executed again.
async fn a_failed_run_is_restarted_by_the_same_request(world: World) {
    for id in [None, Some("d")] {
        let key = format!("{id:?}");
        let request = || with(Start { policy: Policy::RETRY_FAILED, ..world.request(&key) }, &key, "1", id);
        let mut driver = world.drive(request()).await;
        driver.fail().await;
        let restarted = world.begin(request()).await;
        assert_eq!((restarted.verdict, restarted.run.id()), (StartVerdict::Restarted, driver.id()), "{key}");
        assert_eq!(restarted.delivered.map(|d| d.absorbed), Some(true), "{key}");
        assert_eq!(world.inbox(driver.id()).await.len(), 1, "{key}");
        assert_eq!(world.begin(request()).await.verdict, StartVerdict::Attached, "{key}");
        world.claim_one().await.complete("1").await;
    }
}

async fn a_released_key_starts_a_run_with_the_payload(world: World) {
    let request = || with(world.request("k"), "t", "1", None);
    let first = world.begin(request()).await.run.id();
    world.control(first, ControlAction::ReleaseKey).await.expect("an open run may");
    assert!(world.cancel(first).await);
    let second = world.begin(request()).await;
    assert_eq!((second.verdict, second.delivered.map(|d| d.absorbed)), (StartVerdict::Created, Some(false)));
    assert_eq!(world.inbox(second.run.id()).await.len(), 1);
}

async fn a_policy_that_refuses_does_so_also_with_a_payload(world: World) {
    let request = |policy| with(Start { policy, ..world.request("k") }, "t", "1", None);
    let first = world.begin(request(Policy::REJECT)).await.run.id();
    assert_eq!(code(world.try_start(request(Policy::REJECT)).await), "DUPLICATE_RUN");
    assert_eq!(code(world.try_start(request(Policy::STRICT)).await), "DUPLICATE_RUN");
    assert_eq!(world.inbox(first).await.len(), 1);
}

async fn a_repeated_request_delivers_once_also_when_the_run_has_ended(world: World) {
    for id in [None, Some("d")] {
        let key = format!("{id:?}");
        let request = || with(world.request(&key), &key, "1", id);
        let mut driver = world.drive(request()).await;
        driver.complete("1").await;
        // Another run owns the token by now: the payload is not its.
        let mut next = world.driven(&format!("next {key}")).await;
        next.open(&key).await;
        let again = world.begin(request()).await;
        assert_eq!((again.verdict, again.run.id()), (StartVerdict::Replayed, driver.id()), "{key}");
        assert_eq!(again.delivered.map(|d| (d.run, d.absorbed)), Some((driver.id(), true)), "{key}");
        assert_eq!(world.inbox(next.id()).await, [], "{key}");
    }
}

async fn a_request_that_went_to_another_run_makes_one_when_the_policy_says_so(world: World) {
    for id in [None, Some("d")] {
        let key = format!("{id:?}");
        let request = |policy| with(Start { policy, ..world.request(&key) }, &key, "1", id);
        let mut owner = world.driven(&format!("owner {key}")).await;
        owner.open(&key).await;
        assert_eq!(world.begin(request(Policy::ATTACH)).await.run.id(), owner.id(), "{key}");
        owner.look().await.receive(&key);
        owner.complete("1").await;
        let attached = world.begin(request(Policy::ATTACH)).await;
        assert_eq!((attached.verdict, attached.run.id()), (StartVerdict::Replayed, owner.id()), "{key}");
        let made = world.begin(request(Policy::UNIQUE_WHILE_OPEN)).await;
        assert_eq!(
            (made.verdict, made.delivered.map(|d| d.absorbed)),
            (StartVerdict::Created, Some(false)),
            "{key}"
        );
        assert_eq!(world.inbox(made.run.id()).await.len(), 1, "{key}");
        assert!(world.cancel(made.run.id()).await);
    }
}

async fn an_explicit_delivery_id_is_free_for_the_next_run(world: World) {
    let request = |key: &str| with(world.request(key), "t", "1", Some("d"));
    let first = world.begin(request("k")).await.run.id();
    assert!(world.cancel(first).await);
    let second = world.begin(request("l")).await;
    assert_eq!((second.verdict, second.delivered.map(|d| d.absorbed)), (StartVerdict::Created, Some(false)));
    // As long as that run is open, the id is its.
    let third = world.begin(with(world.request("m"), "t", "1", Some("d"))).await;
    assert_eq!((third.verdict, third.run.id()), (StartVerdict::Attached, second.run.id()));
    assert_eq!(world.inbox(second.run.id()).await.len(), 1);
}

async fn a_delivery_absorbed_with_a_start_leaves_a_receipt(world: World) {
    let request = || with(world.request("k"), "t", "1", None);
    let first = world.begin(request()).await.run.id();
    world.begin(request()).await;
    assert_eq!(world.absorbed(first, ReceiptKind::Delivery).await, 1);
    // Also on the run that got it, if that is another one.
    let mut owner = world.driven("owner").await;
    owner.open("u").await;
    let request = || with(world.request("l"), "u", "1", None);
    world.begin(request()).await;
    world.begin(request()).await;
    assert_eq!(world.absorbed(owner.id(), ReceiptKind::Delivery).await, 1);
}

async fn a_reserved_token_has_no_conflict_with_its_run(world: World) {
    let mut driver = world.drive(with(world.request("k"), "t", "1", None)).await;
    assert_eq!(driver.open("t").await, None);
    world.deliver("t", "2").await;
    assert_eq!(driver.look().await.receive("t"), ["1", "2"]);
    driver.save().await;
    let mut other = world.driven("other").await;
    assert_eq!(other.open("t").await, Some(driver.id()));
}

async fn a_reserved_token_is_free_when_its_run_ends(world: World) {
    let first = world.begin(with(world.request("k"), "t", "1", None)).await.run.id();
    assert!(world.cancel(first).await);
    assert_eq!(world.owner_of("t").await, None);
    let second = world.begin(with(world.request("l"), "t", "1", None)).await;
    assert_eq!(second.verdict, StartVerdict::Created);
    let mut driver = world.claim_one().await;
    driver.complete("1").await;
    assert_eq!(world.owner_of("t").await, None);
}

async fn a_start_repeated_under_a_delivery_id_delivers_once(world: World) {
    let request = || with(world.request("k"), "t", "1", Some("d"));
    let first = world.begin(request()).await;
    let again = world.begin(request()).await;
    assert_eq!((again.verdict, again.run.id()), (StartVerdict::Attached, first.run.id()));
    assert_eq!(again.delivered.map(|d| (d.arrival, d.absorbed)), Some((1, true)));
    assert_eq!(world.inbox(first.run.id()).await.len(), 1);
    assert_eq!(world.absorbed(first.run.id(), ReceiptKind::Start).await, 1);
    // The plain delivery under the same id is the same delivery.
    assert!(world.deliver_as("d", "t", "1").await.expect("the same again").absorbed);
}

/// The request's own id identifies all of it, its payload included.
async fn a_start_repeated_under_its_run_id_delivers_once(world: World) {
    for (key, id) in [("with", Some("d")), ("without", None)] {
        let request = with(world.request(key), key, "1", id);
        let first = world.begin(request.clone()).await;
        let again = world.begin(request).await;
        assert_eq!((again.verdict, again.run.id()), (StartVerdict::Created, first.run.id()), "{key}");
        assert_eq!(again.delivered.map(|d| (d.arrival, d.absorbed)), Some((1, true)), "{key}");
        assert_eq!(world.inbox(first.run.id()).await.len(), 1, "{key}");
    }
}

async fn a_repeated_handover_finds_the_owner_that_got_it(world: World) {
    let mut owner = world.driven("owner").await;
    owner.open("t").await;
    let request = with(world.request("k"), "t", "1", None);
    world.begin(request.clone()).await;
    let again = world.begin(request.clone()).await;
    assert_eq!(again.delivered.map(|d| (d.run, d.absorbed)), Some((owner.id(), true)));
    assert_eq!(owner.look().await.receive("t"), ["1"]);
    owner.complete("1").await;
    // Also when the token is free by now: the payload has been taken, so no run is started for it.
    let late = world.begin(request).await;
    assert_eq!((late.verdict, late.run.id()), (StartVerdict::Replayed, owner.id()));
    assert_eq!(world.list().await.len(), 1);
}

async fn a_delivery_id_with_another_payload_is_refused(world: World) {
    let first = world.begin(with(world.request("k"), "t", "1", Some("d"))).await.run;
    let other = world.try_start(with(world.request("k"), "t", "2", Some("d"))).await;
    let Err(Error::CallReused { owner, .. }) = other else { panic!("{other:?}") };
    assert_eq!(owner, first.id());
    assert_eq!(world.list().await, [first]);
}

async fn a_run_that_has_ended_takes_no_payload(world: World) {
    for status in [Status::Completed, Status::Failed, Status::Cancelled, Status::TimedOut] {
        let key = status.to_string();
        let ended = world.run_that_is(status, &key).await;
        let started = world.begin(with(world.request(&key), "t", "1", Some(&key))).await;
        assert_eq!((started.run.id(), started.run.status()), (ended, status));
        assert_eq!(started.delivered, None, "{key}: no run will ever take it, and the answer says so");
        assert_eq!(world.inbox(ended).await, [], "{key}");
        assert_eq!(world.owner_of("t").await, None, "{key}");
    }
}

async fn a_payload_wakes_the_waiting_run(world: World) {
    let mut driver = world.driven("k").await;
    driver.wait(Some(world.after(1000))).await;
    let started = world.begin(with(world.request("k"), "t", "1", None)).await;
    assert_eq!(started.run.state.due, Some(world.now()));
    assert_eq!(started.run, world.run(driver.id()).await, "the answer shows the run as it is now");
    assert_eq!(world.claim_one().await.id(), driver.id());
}

async fn superseding_with_a_payload_moves_the_token(world: World) {
    let mut old = world.driven("k").await;
    old.open("t").await;
    let newer = Start { input: payload("2"), policy: Policy::SUPERSEDE, ..world.request("k") };
    let started = world.begin(with(newer, "t", "9", None)).await;
    assert_eq!((started.verdict, started.superseded), (StartVerdict::Superseded, Some(old.id())));
    assert_eq!(world.owner_of("t").await, Some(started.run.id()));
    assert_eq!(world.inbox(old.id()).await, []);
    let mut new = world.claim_one().await;
    assert_eq!(new.open("t").await, None);
    assert_eq!(new.receive("t"), ["9"]);
    assert!(new.ledger.record_at(&visit("t")).is_some());
}

async fn a_refused_start_delivers_nothing(world: World) {
    let mut owner = world.driven("k").await;
    owner.open("t").await;
    let reject = Start { policy: Policy::REJECT, ..world.request("k") };
    assert_eq!(code(world.try_start(with(reject, "t", "1", None)).await), "DUPLICATE_RUN");
    let other = Start { input: payload("2"), ..world.request("k") };
    assert_eq!(code(world.try_start(with(other, "t", "1", Some("d"))).await), "KEY_REUSED");
    assert_eq!(world.inbox(owner.id()).await, []);
    assert!(!world.deliver_as("d", "t", "2").await.expect("the id was not burnt").absorbed);
}
