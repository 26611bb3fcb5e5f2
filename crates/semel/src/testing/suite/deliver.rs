//! Deliver: what is accepted is consumed once and in order, or shown as unconsumed; never a silent success.

use super::world::{STRANGER, WORKSPACE, World, code, payload, refused, token};
use crate::error::Error;
use crate::rules::control::ControlAction;
use crate::rules::deliver::{Deliver, UNCONSUMED_BYTES};
use crate::rules::entry::Message;
use crate::rules::json::MAX_BYTES;
use crate::rules::receipt::ReceiptKind;
use crate::rules::status::Status;

promises![
    deliveries_arrive_in_order_and_are_numbered,
    a_delivery_before_the_wait_is_kept,
    a_delivery_wakes_the_waiting_owner,
    a_delivery_does_not_take_the_run_from_its_driver,
    a_delivery_leaves_a_paused_or_delayed_run_where_it_is,
    an_unknown_token_has_no_owner,
    a_token_of_another_workspace_is_unknown,
    tokens_that_look_alike_are_different_tokens,
    the_same_delivery_id_is_absorbed_and_counted,
    a_delivery_id_is_absorbed_after_the_hook_is_closed,
    a_delivery_id_is_absorbed_after_the_run_has_ended,
    a_delivery_id_of_an_ended_owner_is_free_for_the_next,
    a_delivery_id_with_another_payload_or_spelling_is_told_apart,
    a_delivery_id_belongs_to_its_token,
    a_refused_delivery_burns_no_id,
    what_is_not_consumed_is_shown,
    a_full_inbox_takes_nothing_more,
];

async fn deliveries_arrive_in_order_and_are_numbered(world: World) {
    let mut driver = world.driven("k").await;
    driver.open("t").await;
    for n in 1..=5u64 {
        let delivered = world.deliver("t", &n.to_string()).await;
        assert_eq!((delivered.run, delivered.arrival, delivered.absorbed), (driver.id(), n, false));
        assert_eq!(delivered.node, driver.ledger.run().state.node, "its driver should look");
        world.pass(1);
    }
    let inbox = world.inbox(driver.id()).await;
    assert_eq!(inbox.iter().map(|a| a.number).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    assert!(inbox.windows(2).all(|pair| pair[0].at < pair[1].at));
    for (from, rest) in [(0, &inbox[..]), (4, &inbox[3..]), (6, &[]), (u64::MAX, &[])] {
        let found = world.store().inbox(WORKSPACE, driver.id(), from).await.expect("the run exists");
        assert_eq!(found, rest, "from {from}");
    }
    assert_eq!(driver.look().await.receive("t"), ["1", "2", "3", "4", "5"]);
    driver.save().await;
    assert_eq!(world.deliver("t", "6").await.arrival, 6, "numbers are not given twice");
}

async fn a_delivery_before_the_wait_is_kept(world: World) {
    let mut driver = world.driven("k").await;
    driver.open("t").await;
    world.deliver("t", "1").await;
    world.crash().await;
    let mut next = world.claim_one().await;
    assert_eq!(next.receive("t"), ["1"]);
    next.save().await;
}

async fn a_delivery_wakes_the_waiting_owner(world: World) {
    for due in [None, Some(world.after(1000))] {
        let name = format!("due {due:?}");
        let mut driver = world.driven(&name).await;
        driver.open(&name).await;
        driver.wait(due).await;
        assert_eq!(world.deliver(&name, "1").await.node, None);
        assert_eq!(world.run(driver.id()).await.state.due, Some(world.now()), "{name}");
        assert_eq!(world.claim_one().await.inbox.len(), 1, "{name}");
    }
}

async fn a_delivery_does_not_take_the_run_from_its_driver(world: World) {
    let mut driver = world.driven("k").await;
    driver.open("t").await;
    for n in 0..10 {
        world.deliver("t", &n.to_string()).await;
        driver.step(&format!("step-{n}")).await.expect("outside traffic makes no owner's commit fail");
    }
}

async fn a_delivery_leaves_a_paused_or_delayed_run_where_it_is(world: World) {
    let mut driver = world.driven("k").await;
    driver.open("t").await;
    world.control(driver.id(), ControlAction::Pause).await.expect("an open run may");
    world.deliver("t", "1").await;
    let paused = world.run(driver.id()).await;
    assert_eq!((paused.status(), paused.state.due, paused.arrivals), (Status::Paused, None, 1));
    world.control(driver.id(), ControlAction::Resume).await.expect("a paused run may");
    assert_eq!(world.claim_one().await.receive("t"), ["1"]);
}

async fn an_unknown_token_has_no_owner(world: World) {
    let answer = world.try_deliver(World::delivery("t", "1")).await;
    assert!(matches!(refused(answer), Error::HookNotFound(found) if found == token("t")));
    let mut driver = world.driven("k").await;
    driver.open("t").await;
    driver.complete("1").await;
    assert_eq!(code(world.try_deliver(World::delivery("t", "1")).await), "HOOK_NOT_FOUND");
    assert_eq!(world.inbox(driver.id()).await, []);
}

async fn a_token_of_another_workspace_is_unknown(world: World) {
    let mut driver = world.driven("k").await;
    driver.open("t").await;
    let foreign = Deliver { workspace: STRANGER, ..World::delivery("t", "1") };
    assert_eq!(code(world.try_deliver(foreign).await), "HOOK_NOT_FOUND");
    assert_eq!(world.inbox(driver.id()).await, []);
}

async fn tokens_that_look_alike_are_different_tokens(world: World) {
    let tokens = ["t", "T", "t ", "\u{e9}", "e\u{301}", "t:u", "t|u", "t%u", "t%2Fu", "t'u", "t_u"];
    let mut owners = Vec::new();
    for text in tokens {
        let mut driver = world.driven(text).await;
        driver.ledger.open_hook(super::world::visit("hook"), token(text)).expect("free");
        driver.save().await;
        owners.push(driver.id());
    }
    for (text, owner) in tokens.into_iter().zip(owners) {
        assert_eq!(world.deliver(text, "1").await.run, owner, "{text:?}");
    }
}

async fn the_same_delivery_id_is_absorbed_and_counted(world: World) {
    let mut driver = world.driven("k").await;
    driver.open("t").await;
    let first = world.deliver_as("d", "t", "1").await.expect("new");
    world.deliver("t", "2").await;
    for n in 1..=3 {
        let again = world.deliver_as("d", "t", "1").await.expect("the same again");
        assert_eq!((again.run, again.arrival, again.absorbed), (first.run, first.arrival, true));
        assert_eq!(world.absorbed(driver.id(), ReceiptKind::Delivery).await, n);
    }
    assert_eq!(driver.look().await.receive("t"), ["1", "2"]);
}

async fn a_delivery_id_is_absorbed_after_the_hook_is_closed(world: World) {
    let mut driver = world.driven("k").await;
    driver.open("t").await;
    world.deliver_as("d", "t", "1").await.expect("new");
    driver.look().await.receive("t");
    driver.close("t").await;
    assert!(world.deliver_as("d", "t", "1").await.expect("the same again").absorbed);
    // Also if the token is another run's by now.
    let mut other = world.driven("other").await;
    other.open("t").await;
    assert_eq!(world.deliver_as("d", "t", "1").await.expect("the same again").run, driver.id());
    assert_eq!(world.inbox(other.id()).await, []);
}

async fn a_delivery_id_is_absorbed_after_the_run_has_ended(world: World) {
    let mut driver = world.driven("k").await;
    driver.open("t").await;
    world.deliver_as("d", "t", "1").await.expect("new");
    driver.look().await.receive("t");
    driver.complete("1").await;
    assert!(world.deliver_as("d", "t", "1").await.expect("the same again").absorbed);
    assert_eq!(code(world.deliver_as("e", "t", "1").await), "HOOK_NOT_FOUND");
    assert_eq!(world.absorbed(driver.id(), ReceiptKind::Delivery).await, 1);
}

async fn a_delivery_id_of_an_ended_owner_is_free_for_the_next(world: World) {
    let mut first = world.driven("k").await;
    first.open("t").await;
    world.deliver_as("d", "t", "1").await.expect("new");
    first.complete("1").await;
    let mut second = world.driven("l").await;
    second.open("t").await;
    let delivered = world.deliver_as("d", "t", "2").await.expect("new for this owner, whatever the payload");
    assert_eq!((delivered.run, delivered.absorbed), (second.id(), false));
    let again = world.deliver_as("d", "t", "2").await.expect("the same again");
    assert_eq!((again.run, again.arrival, again.absorbed), (second.id(), 1, true));
    assert_eq!(code(world.deliver_as("d", "t", "1").await), "KEY_REUSED");
    assert_eq!(second.look().await.receive("t"), ["2"]);
    second.complete("1").await;
    assert!(world.deliver_as("d", "t", "2").await.expect("the same again").absorbed);
    assert_eq!(world.absorbed(second.id(), ReceiptKind::Delivery).await, 2);
    assert_eq!(world.absorbed(first.id(), ReceiptKind::Delivery).await, 0);
}

async fn a_delivery_id_with_another_payload_or_spelling_is_told_apart(world: World) {
    let mut driver = world.driven("k").await;
    driver.open("t").await;
    world.deliver_as("d", "t", r#"{"a":1,"b":2}"#).await.expect("new");
    let other = refused(world.deliver_as("d", "t", r#"{"a":1,"b":3}"#).await);
    assert!(matches!(&other, Error::CallReused { owner, .. } if *owner == driver.id()), "{other}");
    assert_eq!((other.code(), other.status()), ("KEY_REUSED", 422));
    let spelt = world.deliver_as("d", "t", r#"{ "b": 2.0, "a": 1 }"#).await.expect("the same payload");
    assert!(spelt.absorbed);
    assert_eq!(world.inbox(driver.id()).await.len(), 1);
}

async fn a_delivery_id_belongs_to_its_token(world: World) {
    let mut driver = world.driven("k").await;
    driver.open("t").await;
    driver.open("u").await;
    for token in ["t", "u"] {
        assert!(!world.deliver_as("d", token, "1").await.expect("new here").absorbed);
    }
    let foreign =
        Deliver { workspace: STRANGER, id: Some(super::world::call("d")), ..World::delivery("t", "1") };
    assert_eq!(code(world.try_deliver(foreign).await), "HOOK_NOT_FOUND", "nor does it cross workspaces");
}

async fn a_refused_delivery_burns_no_id(world: World) {
    assert_eq!(code(world.deliver_as("d", "t", "1").await), "HOOK_NOT_FOUND");
    let mut driver = world.driven("k").await;
    driver.open("t").await;
    assert!(!world.deliver_as("d", "t", "2").await.expect("the id is free").absorbed);
}

async fn what_is_not_consumed_is_shown(world: World) {
    let mut driver = world.driven("k").await;
    driver.open("t").await;
    world.deliver("t", "1").await;
    driver.complete("1").await;
    let left = world.inbox(driver.id()).await;
    let message = Message::Delivery { token: token("t"), payload: payload("1") };
    assert_eq!(left.into_iter().map(|a| a.message).collect::<Vec<_>>(), [message]);
}

async fn a_full_inbox_takes_nothing_more(world: World) {
    let mut driver = world.driven("k").await;
    driver.open("t").await;
    // As long as a payload may be.
    let large = format!("\"{}\"", "x".repeat(MAX_BYTES - 2));
    let most = UNCONSUMED_BYTES / MAX_BYTES as u64;
    for _ in 0..most {
        world.deliver("t", &large).await;
    }
    let again = Deliver { workspace: WORKSPACE, token: token("t"), payload: payload("1"), id: None };
    let refused = world.store().deliver(again).await;
    assert!(
        matches!(&refused, Err(Error::InboxFull { run, count, .. }) if (*run, *count) == (driver.id(), most))
    );
    assert_eq!(refused.map_err(|error| (error.code(), error.status())), Err(("INBOX_FULL", 429)));
    assert_eq!(world.store().unconsumed(WORKSPACE, driver.id()).await.expect("the run exists"), most);
    let mut other = world.driven("other").await;
    other.open("u").await;
    assert_eq!(world.deliver("u", "1").await.arrival, 1, "another run has an inbox of its own");
}
