//! An engine that dies before and after every durable write of each task: every effect takes place once, counted by its key.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use libtest_mimic::Trial;
use semel::clock::Clock as _;
use semel::engine::queue::{AssignmentRef, Take};
use semel::id::{NodeId, WorkspaceId};
use semel::rules::entry::{Outcome, Resolution};
use semel::rules::json::Payload;
use semel::rules::path::Name;
use semel::rules::run::Run;
use semel::rules::status::Status;
use semel::store::{Lease, LeaseAct};
use semel::testing::{Ended, Scene};
use semel::{Error, RunHandle};
use serde_json::{Value, json};

use super::play::{Stage, crasher, everywhere};
use super::provider::Account;

pub(super) fn trials() -> Vec<Trial> {
    let trial = |name: String, test: Box<dyn FnOnce() + Send>| {
        Trial::test(format!("tasks::{name}"), move || {
            test();
            Ok(())
        })
    };
    let mut trials = Vec::new();
    for loses in [false, true] {
        let how = if loses { "_whose_answer_is_lost" } else { "" };
        for (name, connection, more) in WRITES {
            let name = format!("a_write_{name}{how}_takes_place_once_whatever_write_the_engine_dies_at");
            trials.push(trial(name, Box::new(move || written(connection, more, loses))));
        }
        let name = format!("what_was_done{how}_is_undone_once_whatever_write_the_engine_dies_at");
        trials.push(trial(name, Box::new(move || undone(loses))));
    }
    for (name, test) in [
        ("a_webhook", webhook as fn()),
        ("a_step_of_a_worker", worker),
        ("a_child", child),
        ("an_event", event),
        ("a_recorded_value", values),
        ("a_return_inside_of_blocks", returned),
        ("a_graceful_cancel", cancelled),
    ] {
        let name = format!("{name}_is_the_same_whatever_write_the_engine_dies_at");
        trials.push(trial(name, Box::new(test)));
    }
    trials
}

/// The ways of a write: a name for the test, the connection, and what else the step says.
const WRITES: [(&str, &str, &str); 5] = [
    ("by_key", "for-ever", ""),
    ("by_key_with_a_window", "window", ""),
    ("by_look_up", "searched", ""),
    ("by_nothing", "plain", ""),
    ("at_most_once", "for-ever", ", class: at-most-once"),
];

/// The outcome as a value that can be compared.
pub(super) fn told(outcome: Outcome) -> Value {
    match outcome {
        Outcome::Completed(value) => value.read().expect("a result is JSON"),
        Outcome::Failed(failure) => json!({ "failed": failure.code }),
        other => json!(format!("{other:?}")),
    }
}

/// Waits for the end. An operator who is asked about a step in doubt looks into the books of the provider.
pub(super) async fn settled(scene: &Scene<Stage>, run: &RunHandle<Value>) -> Result<Value, Error> {
    let outcome = settle(scene, run).await?;
    replayed(scene).await?;
    Ok(told(outcome))
}

/// The same without a look at the replays of all runs, of which some may go on.
pub(super) async fn settle(scene: &Scene<Stage>, run: &RunHandle<Value>) -> Result<Outcome, Error> {
    let account = scene.world().account;
    let became = |_, path: &str| {
        let step = path.rsplit('/').next().unwrap_or(path);
        let found = account.done().iter().position(|effect| effect.path.ends_with(&format!("/{step}")));
        found.map_or(Resolution::DidNotHappen, |at| {
            Resolution::Happened(Payload::of(&json!({"id": at + 1})).expect("it is JSON"))
        })
    };
    scene.settle(run, became).await
}

/// The end of a run that is never in doubt.
pub(super) async fn ended(scene: &Scene<Stage>, run: &RunHandle<Value>) -> Result<Value, Error> {
    let outcome = run.outcome().await?;
    replayed(scene).await?;
    Ok(told(outcome))
}

/// A replay of each run does what was recorded, and calls nothing.
pub(super) async fn replayed(scene: &Scene<Stage>) -> Result<(), Error> {
    let done = scene.world().account.done();
    // The runs of remote steps are the worker's: there is no code to replay.
    let own = |run: &Run| !run.new.workflow.as_str().starts_with("queue:");
    for run in scene.runs().await?.into_iter().filter(own) {
        let replay = scene.engine().replay(run.id()).await?;
        assert!(replay.is_identical(), "{replay}");
    }
    assert_eq!(scene.world().account.done(), done);
    Ok(())
}

/// Everything was done as often as expected, each time under a key of its own, and nothing was refused.
pub(super) fn check(account: Account, expected: &[(&str, usize)]) {
    let expected: BTreeMap<_, _> =
        expected.iter().map(|(path, times)| ((*path).to_owned(), *times)).collect();
    assert_eq!(account.all_times(), expected);
    assert_eq!(account.refused(), Vec::<String>::new());
    let done = account.done();
    let keys: Vec<_> = done.iter().map(|effect| effect.key.as_str()).filter(|key| !key.is_empty()).collect();
    assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len(), "{done:?}");
}

pub(super) fn document(steps: &str) -> String {
    format!("semel: 1\nname: tested\n{steps}")
}

/// A read, and a write of what it has read, by every way of a write.
fn written(connection: &str, more: &str, loses: bool) {
    let steps = format!(
        "steps:
  - {{name: rate, http: {{on: plain, get: /rates}}, keep: '{{{{ this.body.n }}}}'}}
  - {{name: time, now: }}
  - name: charge
    http: {{on: {connection}, post: /charge, json: {{n: '{{{{ steps.rate }}}}', at: '{{{{ steps.time }}}}'}}}}
    keep: {{id: '{{{{ this.body.id }}}}'}}
    timeout: 20s{}
  - {{name: done, set: {{id: '{{{{ steps.charge.id }}}}', rate: '{{{{ steps.rate }}}}'}}}}",
        more.replace(", ", "\n    ")
    );
    let crasher = crasher(vec![document(&steps)], loses, async |scene: Scene<Stage>| {
        let run = Stage::start(&scene, &json!({})).await?;
        settled(&scene, &run).await
    });
    let part = match connection {
        "for-ever" | "window" => "keyed",
        other => other,
    };
    let path = format!("/{part}/charge");
    let plays = everywhere(&crasher, |ended| {
        assert_eq!(ended.value, json!({"id": 1, "rate": 7}));
        check(ended.world.account, &[(path.as_str(), 1)]);
    });
    assert!(plays > 10, "{plays}");
}

/// A run that fails after writes by three ways, each of which has an undo.
fn undone(loses: bool) {
    let steps = "steps:
  - name: charge
    http: {on: plain, post: /charge}
    keep: {id: '{{ this.body.id }}'}
    undo: [{name: refund, http: {on: plain, post: /refund, json: {id: '{{ steps.charge.id }}'}}}]
  - name: hold
    http: {on: searched, post: /hold, json: {}}
    undo: [{name: free, http: {on: searched, post: /free, json: {}}}]
  - name: book
    http: {on: window, post: /book}
    undo: [{name: unbook, http: {on: for-ever, post: /unbook}}]
  - {name: fails, fail: {code: LAST}}";
    let crasher = crasher(vec![document(steps)], loses, async |scene: Scene<Stage>| {
        let run = Stage::start(&scene, &json!({})).await?;
        settled(&scene, &run).await
    });
    let all = [
        "/plain/charge",
        "/searched/hold",
        "/keyed/book",
        "/keyed/unbook",
        "/searched/free",
        "/plain/refund",
    ];
    let plays = everywhere(&crasher, |ended| {
        assert_eq!(ended.value, json!({"failed": "LAST"}));
        check(ended.world.account, &all.map(|path| (path, 1)));
        let order: Vec<_> = ended.world.account.done().into_iter().map(|effect| effect.path).collect();
        assert_eq!(order, all, "the last one is undone first");
    });
    assert!(plays > 30, "{plays}");
}

fn webhook() {
    for loses in [false, true] {
        let steps = "steps:
  - {name: told, webhook: {on: notices, path: /orders, type: order.paid, data: {n: '{{ input.n }}'}}, keep: {id: '{{ this.body.id }}'}}
  - {name: done, set: {id: '{{ steps.told.id }}'}}";
        let crasher = crasher(vec![document(steps)], loses, async |scene: Scene<Stage>| {
            let run = Stage::start(&scene, &json!({"n": 7})).await?;
            settled(&scene, &run).await
        });
        let plays = everywhere(&crasher, |ended| {
            assert_eq!(ended.value, json!({"id": 1}));
            check(ended.world.account, &[("/notices/orders", 1)]);
            let body: Value = serde_json::from_str(&ended.world.account.done()[0].body).expect("it is JSON");
            assert_eq!((&body["type"], &body["data"]), (&json!("order.paid"), &json!({"n": 7})));
        });
        assert!(plays > 8, "{plays}");
    }
}

/// Lease of a worker elsewhere, which does not die.
pub(super) const LEASE: Duration = Duration::from_hours(24);

fn worker() {
    let steps = "steps:
  - {name: label, worker: {queue: labels, input: {n: '{{ input.n }}', key: '{{ effect.key }}'}}, keep: {n: '{{ this.n * 2 }}'}}
  - {name: done, set: {n: '{{ steps.label.n }}'}}";
    let crasher = crasher(vec![document(steps)], false, async |scene: Scene<Stage>| {
        let run = Stage::start(&scene, &json!({"n": 7})).await?;
        let (node, queues) = (NodeId(scene.clock().uuid()), scene.queues());
        let work = async || -> Result<bool, Error> {
            scene.store().lease(Lease { node, act: LeaseAct::Join(LEASE) }).await?;
            let names = vec![Name::new("labels")?];
            let take = Take { workspace: WorkspaceId::DEFAULT, node, queues: names, limit: 10 };
            for task in queues.take(take).await?.tasks {
                let input: Value = task.input.read().expect("it is JSON");
                assert_eq!(
                    input["key"],
                    task.key.as_str(),
                    "`effect.key` is the key that the worker is given"
                );
                scene.world().account.apply("/labels", task.key.as_str());
                let of = AssignmentRef { workspace: WorkspaceId::DEFAULT, run: task.run, fence: task.fence };
                queues.complete(of, task.input.clone()).await?;
            }
            Ok(scene.status(run.id()).await?.is_terminal())
        };
        scene.until(async || work().await.expect("the store of the worker lives")).await;
        ended(&scene, &run).await
    });
    let plays = everywhere(&crasher, |ended| {
        check(ended.world.account, &[("/labels", 1)]);
        assert_eq!(ended.value, json!({"n": 14}));
    });
    assert!(plays > 8, "{plays}");
}

/// One child is waited for, one is not, and one fails.
fn child() {
    let parent = "steps:
  - {name: waits, child: {run: leaf, input: {path: first}, later: true}}
  - {name: goes-on, child: {run: leaf, input: {path: second}, wait: false, later: true}}
  - name: guarded
    try: [{name: fails, child: {run: leaf, input: {path: third, fail: true}, later: true}}]
    catch: [{when: \"{{ error.code == 'CHILD' and error.data.code == 'BAD' }}\", steps: [{name: caught, set: {caught: true}}]}]
  - {name: done, set: {first: '{{ steps.waits.path }}', caught: '{{ vars.caught }}'}}";
    let leaf = "semel: 1\nname: leaf\nsteps:
  - {name: told, http: {on: for-ever, post: '/{{ input.path }}'}}
  - {name: fails, if: '{{ input.fail|default(false) }}', fail: {code: BAD}}
return: {path: '{{ input.path }}'}";
    let crasher = crasher(vec![document(parent), leaf.to_owned()], false, async |scene: Scene<Stage>| {
        let run = Stage::start(&scene, &json!({})).await?;
        let value = run.outcome().await.map(told)?;
        let all_ended =
            async || scene.runs().await.is_ok_and(|runs| runs.iter().all(|run| run.status().is_terminal()));
        scene.until(all_ended).await;
        replayed(&scene).await?;
        Ok(value)
    });
    let plays = everywhere(&crasher, |ended| {
        assert_eq!(ended.value, json!({"first": "first", "caught": true}));
        check(ended.world.account, &[("/keyed/first", 1), ("/keyed/second", 1), ("/keyed/third", 1)]);
        assert_eq!(ended.runs.len(), 4, "each child was started once");
    });
    assert!(plays > 20, "{plays}");
}

/// A hook of the definition, whose payload may come early, one of a step, and one to which nothing is delivered.
fn event() {
    let text = "semel: 1
name: tested
hooks: {changes: 'order:{{ input.n }}'}
steps:
  - {name: pause, wait: 5m}
  - {name: change, event: {hook: changes, timeout: 7d}}
  - {name: answer, event: {token: 'answer:{{ input.n }}'}}
  - name: guarded
    try: [{name: silence, event: {token: 'silence', timeout: 1h}}]
    catch: [{when: \"{{ error.code == 'TIMEOUT' }}\", steps: [{name: late, set: {late: true}}]}]
  - {name: told, http: {on: for-ever, post: /told, json: {change: '{{ steps.change }}', answer: '{{ steps.answer.n }}'}}}
return: {change: '{{ steps.change }}', answer: '{{ steps.answer.n }}', late: '{{ vars.late }}'}";
    let crasher = crasher(vec![text.to_owned()], false, async |scene: Scene<Stage>| {
        let run = Stage::start(&scene, &json!({"n": 7})).await?;
        scene.deliver("order:7", "early", "d1").await?;
        scene.deliver("answer:7", json!({"n": 42}), "d2").await?;
        ended(&scene, &run).await
    });
    let plays = everywhere(&crasher, |ended| {
        assert_eq!(ended.value, json!({"change": "early", "answer": 42, "late": true}));
        check(ended.world.account, &[("/keyed/told", 1)]);
    });
    assert!(plays > 15, "{plays}");
}

/// The provider refuses another body under the same key, so these values are the same in every execution.
fn values() {
    let steps = "steps:
  - {name: id, uuid: {}}
  - {name: time, now: {}}
  - {name: pause, wait: 5m}
  - {name: till, wait: {until: '1970-01-01T01:00:00Z'}}
  - {name: sum, set: {n: '{{ input.n + 1 }}'}}
  - {name: skipped, if: '{{ vars.n == 0 }}', http: {on: for-ever, post: /never}}
  - {name: told, http: {on: for-ever, post: /told, json: {id: '{{ steps.id }}', at: '{{ steps.time }}', n: '{{ vars.n }}'}}}
  - {name: later, now: {}}
return: {n: '{{ vars.n }}', waited: '{{ steps.later > \"1970-01-01T01\" }}'}";
    for loses in [false, true] {
        let crasher = crasher(vec![document(steps)], loses, async |scene: Scene<Stage>| {
            let run = Stage::start(&scene, &json!({"n": 7})).await?;
            ended(&scene, &run).await
        });
        let plays = everywhere(&crasher, |ended| {
            assert_eq!(ended.value, json!({"n": 8, "waited": true}));
            check(ended.world.account, &[("/keyed/told", 1)]);
        });
        assert!(plays > 12, "{plays}");
    }
}

fn returned() {
    let steps = "steps:
  - name: each
    for_each: {in: '{{ [1, 2, 3] }}', key: '{{ item }}'}
    steps:
      - name: guarded
        try:
          - {name: told, http: {on: for-ever, post: '/told/{{ item }}'}}
          - {name: found, if: '{{ item == 2 }}', return: {found: '{{ item }}'}}
        finally:
          - {name: closed, http: {on: for-ever, post: '/closed/{{ item }}'}}
  - {name: never, http: {on: for-ever, post: /never}}";
    let crasher = crasher(vec![document(steps)], false, async |scene: Scene<Stage>| {
        let run = Stage::start(&scene, &json!({})).await?;
        ended(&scene, &run).await
    });
    let all = ["/keyed/told/1", "/keyed/closed/1", "/keyed/told/2", "/keyed/closed/2"];
    let plays = everywhere(&crasher, |ended| {
        assert_eq!(ended.value, json!({"found": 2}));
        check(ended.world.account, &all.map(|path| (path, 1)));
    });
    assert!(plays > 12, "{plays}");
}

/// A run that is asked to end undoes what it has done, and its reason says what could not be undone.
fn cancelled() {
    let steps = "steps:
  - name: charge
    http: {on: searched, post: /charge, json: {}}
    undo: [{name: refund, http: {on: window, post: /refund}}]
  - name: hold
    http: {on: for-ever, post: /hold}
    undo: [{name: free, fail: {code: TAKEN, message: it is taken}}]
  - {name: silence, event: {token: silence}}
  - {name: never, http: {on: for-ever, post: /never}}";
    let crasher = crasher(vec![document(steps)], false, async |scene: Scene<Stage>| {
        let run = Stage::start(&scene, &json!({})).await?;
        scene.until_status(run.id(), Status::Waiting).await;
        run.request_cancel("enough").await?;
        let outcome = run.outcome().await?;
        replayed(&scene).await?;
        Ok(match outcome {
            Outcome::Cancelled(reason) => reason,
            other => format!("{other:?}"),
        })
    });
    let check = |ended: &Ended<Stage, String>| {
        assert_eq!(ended.value, "enough; not undone: hold/undo/free: it is taken");
        let all = [("/searched/charge", 1), ("/keyed/hold", 1), ("/keyed/refund", 1)];
        check(ended.world.account, &all);
    };
    let plays = everywhere(&crasher, check);
    assert!(plays > 12, "{plays}");
}
