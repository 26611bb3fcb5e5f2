//! Values: what goes in comes out, byte for byte, wherever it was kept.

use super::world::{World, label, payload, visit};
use crate::rules::entry::{Class, Entry, Failure, FailureKind, Message, Outcome};
use crate::rules::json::{MAX_BYTES, MAX_DEPTH, Payload};
use crate::rules::ledger::VisitRecord;
use crate::rules::once::{Ask, OnceAnswer};
use crate::rules::start::Start;
use crate::rules::step::StepState;

promises![
    every_value_comes_back_as_it_was_written,
    two_mebibytes_come_back,
    the_deepest_nesting_comes_back,
    any_text_comes_back_in_names_and_messages,
];

/// Spellings that a careless store would change.
const TEXTS: [&str; 14] = [
    "18446744073709551615",
    "-9223372036854775808",
    "9007199254740993",
    "0.10000000000000000001",
    "1e300",
    "-0.0",
    "1.50",
    r#"{"b":1,"a":{"z":null,"y":[]},"":{}}"#,
    r#""\u00e9é\ud83d\ude00😀\/\\\"\n\t""#,
    "\"e\u{301}\u{e9}\u{200b}\u{202e}\u{feff}\"",
    r#""' OR 1=1; -- %00 \\u0000 $1 ?""#,
    "[ 1,\n  2 ]",
    "true",
    "null",
];

/// Puts a value everywhere where a value can be and looks at all these places.
async fn round_trip(world: &World, key: &str, value: &Payload) {
    let mut driver = world.drive(Start { input: value.clone(), ..world.request(key) }).await;
    driver.open(key).await;
    driver.begin("step", Class::Keyed);
    driver.record(Entry::StepCompleted { step: visit("step"), value: value.clone() });
    driver.record(Entry::Recorded { at: visit("recorded"), value: value.clone(), failed: None });
    driver
        .record(Entry::Once {
            label: label("mine"),
            scope: String::new(),
            value: value.clone(),
            inside: false,
        })
        .save()
        .await;
    world.deliver(key, value.text()).await;
    let fence = world.grant(driver.id(), key).await;
    let settle = Ask::Settle { fence, value: value.clone(), ttl: None };
    world.once(driver.id(), key, settle).await.expect("granted");
    world.crash().await;

    let mut driver = world.claim_one().await;
    assert_eq!(driver.ledger.created().input.text(), value.text());
    let step = VisitRecord::Step(StepState::Completed(value.clone()));
    assert_eq!(driver.ledger.record_at(&visit("step")), Some(&step));
    assert_eq!(driver.ledger.record_at(&visit("recorded")), Some(&VisitRecord::Value(value.clone())));
    assert_eq!(driver.ledger.once("", &label("mine")), Some(value));
    assert_eq!(driver.receive(key), [value.text()]);
    let kept = world.once(driver.id(), key, Ask::Claim).await.expect("open");
    assert_eq!(kept, OnceAnswer::Settled(value.clone()));
    driver.complete(value.text()).await;
    assert_eq!(world.outcome(driver.id()).await, Some(Outcome::Completed(value.clone())));
    let again = world.begin(Start { input: value.clone(), ..world.request(key) }).await;
    assert_eq!(again.outcome, Some(Outcome::Completed(value.clone())));
}

async fn every_value_comes_back_as_it_was_written(world: World) {
    for (n, text) in TEXTS.into_iter().enumerate() {
        round_trip(&world, &n.to_string(), &payload(text)).await;
    }
}

async fn two_mebibytes_come_back(world: World) {
    let large = format!("\"{}\"", "é".repeat((MAX_BYTES - 2) / 2));
    assert_eq!(large.len(), MAX_BYTES);
    assert!(Payload::parse(&format!("{large} ")).is_err(), "one byte more is refused at the door");
    round_trip(&world, "k", &payload(&large)).await;
}

async fn the_deepest_nesting_comes_back(world: World) {
    let deep = |open: &str, close: &str| open.repeat(MAX_DEPTH) + &close.repeat(MAX_DEPTH);
    round_trip(&world, "lists", &payload(&deep("[", "]"))).await;
    let objects = deep("{\"a\":", "}").replace(":}", ":1}");
    round_trip(&world, "objects", &payload(&objects)).await;
}

async fn any_text_comes_back_in_names_and_messages(world: World) {
    let odd = "é e\u{301} 😀 \u{202e} ' \" \\ % _ ; -- $1 ?1 :a @b";
    let name = super::world::name(odd);
    let request = Start { workflow: name.clone(), workflow_version: name, ..world.request(odd) };
    let mut driver = world.drive(request).await;
    assert_eq!(driver.ledger.run().new.workflow.as_str(), odd);
    let path = format!("{odd}/{odd}[{odd}]");
    driver.begin(&path, Class::AtMostOnce);
    // Unlike values, a message is prose: control characters may stand in it, and a panic's often do.
    let message = format!("{odd}\n\t\u{1b}[31m\u{0}");
    let error = Failure::new(FailureKind::Panic, message.clone());
    driver.record(Entry::StepFailed { step: visit(&path), attempt: 1, error: error.clone(), retry_at: None });
    driver.open("hook").await;
    world.deliver("hook", "1").await;
    driver.record(Entry::Failed { error: error.clone() }).save().await;
    let run = world.run(driver.id()).await;
    assert_eq!((run.new.workflow_version.as_str(), run.new.key.as_str()), (odd, odd));
    assert_eq!(world.outcome(driver.id()).await, Some(Outcome::Failed(error.clone())));
    let entries = world.entries(driver.id()).await;
    let Some(Entry::StepFailed { step, error: kept, .. }) = entries.get(3) else { panic!("{entries:?}") };
    assert_eq!((step.path.as_str(), &kept.message), (path.as_str(), &message));
    let inbox = world.inbox(driver.id()).await;
    assert!(matches!(&inbox[0].message, Message::Delivery { payload, .. } if payload.text() == "1"));
}
