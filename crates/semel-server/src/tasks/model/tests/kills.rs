//! An engine that dies before and after every durable write, and around every call: no call is made twice under two keys, and none
//! that must not be repeated is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use semel::clock::SystemClock;
use semel::rules::entry::{Entry, Outcome, Resolution};
use semel::rules::json::Payload;
use semel::rules::status::Status;
use semel::store::faulty::{Fault, Faulty};
use semel::store::memory::MemoryStore;
use semel::store::{Lease, LeaseAct, Store, Sweep};
use semel::testing::{Crasher, Ended, Moment, Point, Scene};
use semel::{Engine, RunHandle};
use serde_json::json;

use super::server::{Say, Script, Scripted};
use super::{built, text};
use crate::definitions::interpret::tests::TESTED;

/// Plays a definition that ends with a value.
fn crasher(script: Script, steps: &'static str) -> Crasher<Scripted, String> {
    Crasher::new(
        move || Scripted::start(script),
        move |server: &Scripted, builder| built(server, steps, builder),
        async |scene: Scene<Scripted>| {
            let run = scene.engine().start(TESTED, json!({"order": "o7"})).key("k").await?;
            Ok(match run.outcome().await? {
                Outcome::Completed(value) => value.text().to_owned(),
                other => format!("{other:?}"),
            })
        },
    )
}

/// Ten rounds with two tools each: twenty calls.
const TWENTY: &str = "steps:
  - name: work
    agent:
      on: model
      prompt: 'Order {{ input.order }}'
      tools:
        - {name: charge, about: Charges., input: {n: integer}, http: {on: shop, post: /effects/charge, json: {n: '{{ call.n }}'}}, keep: '{{ this.body.n }}'}
        - {name: pack, about: Packs., input: {n: integer}, http: {on: shop, post: /effects/pack, json: {n: '{{ call.n }}'}}, keep: '{{ this.body.n }}'}
      limits: {rounds: 11}";

fn twenty(round: usize, _: usize, _: &serde_json::Value) -> Say {
    match round {
        10 => text("done"),
        n => Say::Tools(vec![("charge", json!({"n": n})), ("pack", json!({"n": n}))]),
    }
}

#[test]
fn an_agent_with_twenty_tool_calls_calls_each_once_wherever_it_is_killed() {
    let crasher = crasher(twenty, TWENTY);
    let check = |ended: &Ended<Scripted, String>| {
        let (server, kills) = (&ended.world, ended.crashes.len());
        assert!(ended.value.contains("done"), "{}", ended.value);
        for (what, wanted) in [("model", 11), ("charge", 10), ("pack", 10)] {
            let (keys, calls) = (server.keys(what).len(), server.count(what));
            assert_eq!(keys, wanted, "{what}: {server:?}");
            assert!(calls <= wanted + kills, "{what}: {calls} calls with {kills} kills");
        }
        assert!(server.most() <= 1 + kills);
    };
    let plays = crasher.every_boundary(check) + crasher.every_fault(check);
    assert!(plays > 80, "{plays}");
}

#[test]
fn every_model_and_tool_that_has_answered_is_asked_again_under_the_same_key_only_if_nothing_is_recorded() {
    let crasher = crasher(twenty, TWENTY);
    let models = (1..=11).map(|round| match round {
        1 => ("work/model".to_owned(), "model"),
        round => (format!("work/model#{round}"), "model"),
    });
    let tools = (1..=10).flat_map(|round| {
        [(1, "charge"), (2, "pack")].map(|(n, tool)| (format!("work/tool[{round}-{n}]/{tool}"), tool))
    });
    let calls: Vec<_> = models.chain(tools).collect();
    assert_eq!(calls.len(), 31);
    for (path, what) in calls {
        let undisturbed = if what == "model" { 11 } else { 10 };
        for (moment, calls) in [(Moment::Entered, undisturbed), (Moment::Returned, undisturbed + 1)] {
            let ended = crasher.crash_at(&path, moment);
            assert_eq!(ended.world.keys(what).len(), undisturbed, "{path}");
            assert_eq!(ended.world.count(what), calls, "{path} {moment:?}");
        }
    }
}

/// One of everything: an answer that is asked for again, a tool of each class, a plan.
const ALL: &str = "steps:
  - name: ask
    llm: {on: claude, prompt: a, output: {type: object, required: [a], properties: {a: {const: 1}}}}
  - name: work
    agent: {on: model, prompt: b, tools: [{mcp: crm, only: [find, book]}]}
  - name: plan
    planner:
      on: model
      prompt: c
      steps: [{name: charge, about: Charges., http: {on: shop, post: /effects/charge, json: {n: 1}}}]
return: {a: '{{ steps.ask.output.a }}', b: '{{ steps.work.text }}', c: '{{ steps.plan.result }}'}";

fn all(round: usize, _: usize, question: &serde_json::Value) -> Say {
    let messages = question["messages"].as_array().unwrap();
    let first = messages.iter().find(|message| message["role"] == "user").unwrap();
    match (first["content"].as_str().unwrap(), round) {
        ("a", 0) => text("one"),
        ("a", _) => text(r#"{"a":1}"#),
        ("b", 0) => Say::Tools(vec![("find", json!({"n": 1})), ("book", json!({"n": 2}))]),
        ("b", _) => text("booked"),
        (_, 0) => text(r#"{"next":{"step":"charge","why":"w","input":{}}}"#),
        _ => text(r#"{"next":{"step":"done","why":"w","result":3}}"#),
    }
}

#[test]
fn every_task_of_models_survives_two_crashes_at_any_boundary() {
    let crasher = crasher(all, ALL);
    let check = |ended: &Ended<Scripted, String>| {
        assert_eq!(ended.value, r#"{"a":1,"b":"booked","c":3}"#);
        let server = &ended.world;
        for (what, wanted) in [("model", 6), ("find", 1), ("book", 1), ("charge", 1)] {
            assert_eq!(server.keys(what).len(), wanted, "{what}: {server:?}");
        }
        // The first answer of `book` is lost, which is one call more.
        assert!(server.most() <= 2 + ended.crashes.len(), "{server:?}");
    };
    let plays = crasher.every_boundary(check) + crasher.every_fault(check);
    assert!(plays > 30, "{plays}");
    let writes = crasher.undisturbed().lives[0].clone();
    // Every pair takes long: every third, which ones differ with the first.
    let points = Crasher::<Scripted, String>::points(&writes);
    for (at, first) in points.iter().enumerate() {
        let once =
            crasher.check(&r#"{"a":1,"b":"booked","c":3}"#.to_owned(), std::slice::from_ref(first), check);
        let seconds =
            once.lives.get(1).map(|life| Crasher::<Scripted, String>::points(life)).unwrap_or_default();
        for second in seconds.into_iter().skip(at % 7).step_by(7) {
            crasher.check(&r#"{"a":1,"b":"booked","c":3}"#.to_owned(), &[first.clone(), second], check);
        }
    }
}

/// An engine that neither hears that it has lost its run nor learns of it from its lease.
async fn unaware(server: &Scripted, store: &Arc<dyn Store>, steps: &str) -> Engine {
    let leases = AtomicU32::new(0);
    let faults =
        move |call| (call == "lease" && leases.fetch_add(1, Ordering::SeqCst) > 0).then_some(Fault::Before);
    let deaf: Arc<dyn Store> = Arc::new(Faulty::new(store.clone(), faults).deaf());
    built(server, steps, Engine::builder().store(deaf)).open().await.unwrap()
}

/// An engine of this store that has the run after its owner has lost it.
async fn next_owner(
    server: &Scripted,
    store: &Arc<dyn Store>,
    steps: &str,
    run: &RunHandle<serde_json::Value>,
) -> Engine {
    let node = run.header().await.unwrap().state.node.expect("it is driven");
    store.lease(Lease { node, act: LeaseAct::Leave }).await.unwrap();
    store.sweep(Sweep { limit: 100 }).await.unwrap();
    built(server, steps, Engine::builder().store(store.clone())).open().await.unwrap()
}

#[tokio::test]
async fn a_zombie_records_nothing_of_the_call_in_which_it_has_lost_its_run() {
    for (what, n) in [
        ("model", 1),
        ("model", 2),
        ("model", 3),
        ("find", 1),
        ("book", 2),
        ("model", 5),
        ("charge", 1),
        ("model", 6),
    ] {
        let server = Scripted::start(all);
        server.hold(what, n);
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Arc::new(SystemClock::new())));
        let zombie = unaware(&server, &store, ALL).await;
        let run = zombie.start(TESTED, json!({})).key("k").await.unwrap();
        server.arrived().await;
        let owner = next_owner(&server, &store, ALL, &run).await;
        let Outcome::Completed(value) = owner.run(run.id()).outcome().await.unwrap() else {
            panic!("{what} {n}")
        };
        assert_eq!(value.text(), r#"{"a":1,"b":"booked","c":3}"#, "{what} {n}");
        server.release();
        // Its own view of the run is over when the store has refused what it wanted to record.
        drop(run.outcome().await.unwrap());
        for (what, wanted) in [("model", 6), ("find", 1), ("book", 1), ("charge", 1)] {
            assert_eq!(server.keys(what).len(), wanted, "{what}: {server:?}");
        }
        let ledger = owner.run(run.id()).ledger().await.unwrap();
        let completed =
            ledger.iter().filter(|line| matches!(line.entry, Entry::StepCompleted { .. })).count();
        assert_eq!(completed, 10, "six answers, three tools, and the list of tools: each once");
    }
}

/// A model that is asked once, and a tool about which nothing is known.
const ONCE: &str = "steps:
  - name: work
    class: at-most-once
    agent: {on: model, prompt: b, tools: [{mcp: crm, only: [push]}]}";

fn once(round: usize, _: usize, _: &serde_json::Value) -> Say {
    match round {
        0 => Say::Tools(vec![("push", json!({"n": 1}))]),
        _ => text("pushed"),
    }
}

#[test]
fn what_must_not_be_repeated_is_in_doubt_and_not_repeated() {
    let crasher = Crasher::new(
        || Scripted::start(once),
        |server: &Scripted, builder| built(server, ONCE, builder),
        async |scene: Scene<Scripted>| {
            let run = scene.engine().start(TESTED, json!({})).key("k").await?;
            let server = scene.world().clone();
            let became = |_, path: &str| {
                let (what, calls, answer) = match path {
                    "work/model" => ("model", 1, answered()),
                    "work/model#2" => ("model", 2, json!("pushed")),
                    _ => ("push", 1, json!({"text": "push of 1"})),
                };
                match server.count(what) {
                    n if n >= calls => Resolution::Happened(Payload::of(&answer).unwrap()),
                    _ => Resolution::DidNotHappen,
                }
            };
            Ok(match scene.settle(&run, became).await? {
                Outcome::Completed(value) => value.read::<serde_json::Value>().unwrap()["text"].to_string(),
                other => format!("{other:?}"),
            })
        },
    );
    let plays = crasher.every_boundary(|ended| {
        assert_eq!(ended.value, "\"pushed\"");
        assert_eq!((ended.world.count("model"), ended.world.count("push")), (2, 1), "{:?}", ended.crashes);
    });
    assert!(plays > 10, "{plays}");
    for path in ["work/model", "work/tool[1-1]/push"] {
        let ended = crasher.play(&[Point::Body(path.to_owned(), Moment::Returned)]);
        assert_eq!((ended.world.count("model"), ended.world.count("push")), (2, 1), "{path}");
    }
}

#[tokio::test]
async fn a_zombie_in_a_call_that_must_not_be_repeated_leaves_one_doubt() {
    for (what, step, answer) in
        [("model", "work/model", answered()), ("push", "work/tool[1-1]/push", json!({"text": "push of 1"}))]
    {
        let server = Scripted::start(once);
        server.hold(what, 1);
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Arc::new(SystemClock::new())));
        let zombie = unaware(&server, &store, ONCE).await;
        let run = zombie.start(TESTED, json!({})).key("k").await.unwrap();
        server.arrived().await;
        let owner = next_owner(&server, &store, ONCE, &run).await;
        let at_owner = owner.run(run.id());
        at_owner.reached(Status::Paused).await.unwrap();
        server.release();
        let doubts = at_owner.doubts().await.unwrap();
        assert_eq!(doubts.iter().map(|doubt| &*doubt.step).collect::<Vec<_>>(), [step]);
        at_owner.happened(step, &answer).await.unwrap();
        let outcome = at_owner.outcome().await.unwrap();
        assert!(matches!(outcome, Outcome::Completed(_)), "{outcome:?}");
        // Its own view of the run is over when the store has refused what it wanted to record.
        drop(run.outcome().await.unwrap());
        assert_eq!((server.count("model"), server.count("push")), (2, 1), "{what}: nothing is called again");
    }
}

/// An answer as an operator gives it who has looked at the provider's log.
fn answered() -> serde_json::Value {
    json!({"semel:model": {"connection": "model", "model": "small", "text": "", "end": "done",
        "message": {"role": "assistant", "content": null, "tool_calls": [{"id": "c0-0"}]},
        "calls": [{"id": "c0-0", "name": "push", "arguments": {"n": 1}}]}})
}
