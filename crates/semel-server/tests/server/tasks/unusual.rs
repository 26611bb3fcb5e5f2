//! An engine that dies at every durable write of what definitions do more seldom: loops that look before a pass, calls without a
//! connection, events that are told at most once, workers that fail or fall silent, and a cancel inside of blocks.

use libtest_mimic::Trial;
use semel::Error;
use semel::clock::Clock as _;
use semel::engine::queue::{AssignmentRef, Take};
use semel::id::{NodeId, WorkspaceId};
use semel::rules::entry::{Failure, FailureKind, Outcome};
use semel::rules::path::Name;
use semel::rules::queue::Assignment;
use semel::rules::status::Status;
use semel::store::{Lease, LeaseAct};
use semel::testing::{Ended, Scene};
use serde_json::{Value, json};

use super::crashes::{LEASE, check, document, ended, replayed, settled};
use super::play::{Stage, crasher, everywhere};

pub(super) fn trials() -> Vec<Trial> {
    [
        ("a_loop_that_looks_before_each_pass", looks_before as fn()),
        ("a_call_without_a_connection", without_connection),
        ("a_webhook_at_most_once", told_at_most_once),
        ("a_step_whose_worker_fails", fails_first),
        ("a_step_whose_worker_falls_silent", silent_first),
        ("a_graceful_cancel_inside_of_blocks", cancelled_inside),
    ]
    .map(|(name, test)| {
        let name = format!("tasks::{name}_is_the_same_whatever_write_the_engine_dies_at");
        Trial::test(name, move || {
            test();
            Ok(())
        })
    })
    .into()
}

fn looks_before() {
    let steps = "steps:
  - {name: first, set: {n: 0}}
  - name: count
    loop: {while: '{{ vars.n < input.n }}', most: 5}
    steps:
      - {name: told, http: {on: for-ever, post: '/told/{{ index }}'}}
      - {name: more, set: {n: '{{ vars.n + 1 }}'}}
return: '{{ vars.n }}'";
    let crasher = crasher(vec![document(steps)], false, async |scene: Scene<Stage>| {
        let run = Stage::start(&scene, &json!({"n": 3})).await?;
        ended(&scene, &run).await
    });
    let plays = everywhere(&crasher, |ended| {
        assert_eq!(ended.value, json!(3));
        check(
            ended.world.account,
            &["/keyed/told/0", "/keyed/told/1", "/keyed/told/2"].map(|path| (path, 1)),
        );
    });
    assert!(plays > 10, "{plays}");
}

/// Nothing is known about the other side, so a write is never repeated without a person's word.
fn without_connection() {
    let steps = "steps:
  - {name: rate, http: {url: '{{ input.url }}', get: /rates}, keep: '{{ this.body.n }}'}
  - name: charge
    http: {url: '{{ input.url }}', post: /charge, json: {n: '{{ steps.rate }}'}}
    keep: {id: '{{ this.body.id }}'}
    undo: [{name: refund, http: {url: '{{ input.url }}', post: /refund, json: {id: '{{ steps.charge.id }}'}}}]
  - {name: fails, fail: {code: LAST}}";
    for loses in [false, true] {
        let crasher = crasher(vec![document(steps)], loses, async |scene: Scene<Stage>| {
            let url = scene.world().account.address("plain");
            let run = Stage::start(&scene, &json!({ "url": url })).await?;
            settled(&scene, &run).await
        });
        let plays = everywhere(&crasher, |ended| {
            assert_eq!(ended.value, json!({"failed": "LAST"}));
            check(ended.world.account, &[("/plain/charge", 1), ("/plain/refund", 1)]);
        });
        assert!(plays > 12, "{plays}");
    }
}

fn told_at_most_once() {
    let steps = "steps:
  - name: told
    webhook: {on: notices, path: /told, type: order.paid, data: {n: 7}}
    class: at-most-once
    keep: {id: '{{ this.body.id }}'}
  - {name: done, set: {id: '{{ steps.told.id }}'}}";
    for loses in [false, true] {
        let crasher = crasher(vec![document(steps)], loses, async |scene: Scene<Stage>| {
            let run = Stage::start(&scene, &json!({})).await?;
            settled(&scene, &run).await
        });
        let plays = everywhere(&crasher, |ended| {
            assert_eq!(ended.value, json!({"id": 1}));
            check(ended.world.account, &[("/notices/told", 1)]);
            assert_eq!(ended.world.account.writes(), 1, "it is not even sent again");
        });
        assert!(plays > 8, "{plays}");
    }
}

/// What a worker does with a task before it reports, if it does.
type Work = fn(&Scene<Stage>, &Assignment) -> Option<Result<Value, Failure>>;

/// Does all tasks of a queue until the run has ended.
async fn worked(scene: &Scene<Stage>, work: Work) -> Result<Value, Error> {
    let run = Stage::start(scene, &json!({"n": 7})).await?;
    let (node, queues) = (NodeId(scene.clock().uuid()), scene.queues());
    let act = async || -> Result<bool, Error> {
        scene.store().lease(Lease { node, act: LeaseAct::Join(LEASE) }).await?;
        let names = vec![Name::new("labels")?];
        for task in
            queues.take(Take { workspace: WorkspaceId::DEFAULT, node, queues: names, limit: 10 }).await?.tasks
        {
            let of = AssignmentRef { workspace: WorkspaceId::DEFAULT, run: task.run, fence: task.fence };
            match work(scene, &task) {
                Some(Ok(value)) => queues.complete(of, semel::rules::json::Payload::of(&value)?).await?,
                Some(Err(failure)) => queues.fail(of, failure).await?,
                None => {}
            }
        }
        Ok(scene.status(run.id()).await?.is_terminal())
    };
    scene.until(async || act().await.expect("the store of the worker lives")).await;
    ended(scene, &run).await
}

/// A label that is made by a worker, and one for which its second step is only made if the first one is not.
const LABELS: &str = "steps:
  - name: label
    worker: {queue: labels, input: {n: '{{ input.n }}'}}
    retry: {attempts: 3, first: 1s}
    timeout: 1m
    keep: {n: '{{ this.n * 2 }}'}
  - name: guarded
    try: [{name: refused, worker: {queue: labels, input: {refuse: true}}}]
    catch: [{when: \"{{ error.code == 'NO_PAPER' }}\", steps: [{name: caught, set: {of: '{{ error.data.tray }}'}}]}]
  - {name: done, set: {n: '{{ steps.label.n }}', of: '{{ vars.of }}'}}";

/// The end of a task that is done under its key in the last attempt, or refused.
fn reported(scene: &Scene<Stage>, task: &Assignment, last: u32) -> Option<Result<Value, Failure>> {
    let input: Value = task.input.read().expect("it is JSON");
    if input["refuse"] == true {
        let data = semel::rules::json::Payload::of(&json!({"tray": 2})).expect("it is small");
        let refused = Failure::new(FailureKind::Fatal, "there is no paper");
        return Some(Err(Failure { code: Some("NO_PAPER".to_owned()), data: Some(data), ..refused }));
    }
    // Every attempt may have made the label, also one that says otherwise.
    scene.world().account.apply("/labels", task.key.as_str());
    (task.attempt >= last).then_some(Ok(input))
}

fn labels(work: Work) {
    let crasher =
        crasher(vec![document(LABELS)], false, async move |scene: Scene<Stage>| worked(&scene, work).await);
    let plays = everywhere(&crasher, |ended| {
        check(ended.world.account, &[("/labels", 1)]);
        assert_eq!(ended.value, json!({"n": 14, "of": 2}));
    });
    assert!(plays > 12, "{plays}");
}

fn fails_first() {
    labels(|scene, task| {
        let fails = || Some(Err(Failure::new(FailureKind::Retryable, "the printer is busy")));
        reported(scene, task, 3).or_else(fails)
    });
}

fn silent_first() {
    labels(|scene, task| reported(scene, task, 2));
}

/// Every branch and pass waits when the run is asked to end. What is in `finally` takes place, no `catch` does, and all of it is undone.
fn cancelled_inside() {
    let steps = "steps:
  - name: charge
    http: {on: for-ever, post: /charge}
    undo: [{name: refund, http: {on: window, post: /refund}}]
  - name: both
    parallel:
      one:
        - name: guarded
          try:
            - {name: hold, http: {on: for-ever, post: /hold}, undo: [{name: free, http: {on: for-ever, post: /free}}]}
            - {name: silence, event: {token: one}}
          catch: [{steps: [{name: never, http: {on: for-ever, post: /never}}]}]
          finally: [{name: close, http: {on: for-ever, post: /close}}]
      two:
        - name: each
          for_each: {in: '{{ [1, 2] }}', key: '{{ item }}', parallel: 2}
          steps:
            - {name: told, http: {on: for-ever, post: '/told/{{ item }}'}, undo: [{name: back, http: {on: for-ever, post: '/back/{{ item }}'}}]}
            - {name: silence, event: {token: 'two-{{ item }}'}}
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
    let all = ["charge", "hold", "told/1", "told/2", "close", "back/1", "back/2", "free", "refund"];
    let paths = all.map(|path| format!("/keyed/{path}"));
    let plays = everywhere(&crasher, |ended: &Ended<Stage, String>| {
        assert_eq!(ended.value, "enough", "{}", ended.history());
        check(ended.world.account, &paths.each_ref().map(|path| (path.as_str(), 1)));
        let order: Vec<_> = ended.world.account.done().into_iter().map(|effect| effect.path).collect();
        assert_eq!(
            order[5..],
            ["/keyed/back/2", "/keyed/back/1", "/keyed/free", "/keyed/refund"].map(str::to_owned)
        );
    });
    assert!(plays > 20, "{plays}");
}
