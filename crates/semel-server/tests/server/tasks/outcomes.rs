//! What each answer of the other side means for a step of a definition: whether it is tried again and when, fails, or is in doubt.

use std::time::Duration;

use libtest_mimic::Trial;
use semel::clock::Clock as _;
use semel::engine::queue::{AssignmentRef, Take};
use semel::id::{NodeId, WorkspaceId};
use semel::rules::json::Payload;
use semel::rules::path::Name;
use semel::store::{Lease, LeaseAct};
use semel::testing::{Crasher, Ended, Moment, Point, Scene, Side};
use semel::{Error, RunHandle};
use serde_json::{Value, json};

use super::crashes::{settled, told};
use super::play::{Stage, crasher};
use super::provider::{Account, Scripted};

pub(super) fn trials() -> Vec<Trial> {
    let trial = |(name, test): (&str, fn())| {
        Trial::test(format!("tasks::{name}"), move || {
            test();
            Ok(())
        })
    };
    [
        ("what_is_busy_is_asked_again_and_taken_over", what_is_busy_is_asked_again_and_taken_over as fn()),
        ("what_is_busy_in_the_last_try_is_in_doubt", what_is_busy_in_the_last_try_is_in_doubt),
        (
            "a_key_of_another_request_fails_as_payload_changed",
            a_key_of_another_request_fails_as_payload_changed,
        ),
        (
            "a_failure_that_every_repetition_gets_is_in_doubt_at_once",
            a_failure_that_every_repetition_gets_is_in_doubt_at_once,
        ),
        ("a_failure_that_is_not_kept_is_tried_again", a_failure_that_is_not_kept_is_tried_again),
        (
            "what_is_asked_to_wait_waits_up_to_the_most_of_the_step",
            what_is_asked_to_wait_waits_up_to_the_most_of_the_step,
        ),
        (
            "an_answer_that_is_too_large_fails_the_step_and_is_undone",
            an_answer_that_is_too_large_fails_the_step_and_is_undone,
        ),
        (
            "a_connection_that_is_missing_fails_the_step_and_sends_nothing",
            a_connection_that_is_missing_fails_the_step_and_sends_nothing,
        ),
        (
            "a_connection_that_is_put_back_goes_on_with_the_same_effect",
            a_connection_that_is_put_back_goes_on_with_the_same_effect,
        ),
        (
            "a_write_whose_last_answer_is_lost_is_in_doubt_and_undone",
            a_write_whose_last_answer_is_lost_is_in_doubt_and_undone,
        ),
        (
            "a_refusal_after_a_lost_answer_fails_only_if_it_speaks_for_both",
            a_refusal_after_a_lost_answer_fails_only_if_it_speaks_for_both,
        ),
        (
            "a_read_whose_answers_are_all_lost_fails_with_what_happened",
            a_read_whose_answers_are_all_lost_fails_with_what_happened,
        ),
        (
            "a_token_of_another_run_is_a_conflict_that_names_it",
            a_token_of_another_run_is_a_conflict_that_names_it,
        ),
        ("a_child_that_is_absent_at_run_time_is_not_found", a_child_that_is_absent_at_run_time_is_not_found),
        ("what_a_worker_reports_is_bounded_after_keep", what_a_worker_reports_is_bounded_after_keep),
        (
            "what_a_child_and_a_delivery_bring_is_bounded_after_keep",
            what_a_child_and_a_delivery_bring_is_bounded_after_keep,
        ),
    ]
    .map(trial)
    .into()
}

/// What a play gave: the outcome, and the time that passed.
type Played = (Value, Duration);

fn plan(steps: &str, prepare: impl Fn(Account) + 'static) -> Crasher<Stage, Played> {
    let documents = [format!("semel: 1\nname: tested\nsteps:\n{steps}")];
    let world = move || {
        let stage = Stage::new(&documents, false);
        prepare(stage.account);
        stage
    };
    Crasher::new(world, Stage::engine, async |scene: Scene<Stage>| {
        let before = scene.clock().now();
        let run = Stage::start(&scene, &json!({})).await?;
        let value = settled(&scene, &run).await?;
        Ok((value, Duration::from_millis(scene.clock().now().0.abs_diff(before.0))))
    })
}

fn play(steps: &str, answers: Vec<Scripted>) -> Ended<Stage, Played> {
    plan(steps, move |account| account.answers(answers.clone())).undisturbed()
}

/// A charge by a connection whose provider drops repeated keys, says that it is busy, and keeps failures.
fn charge(retry: &str) -> String {
    format!(
        "  - {{name: charge, http: {{on: doubtful, post: /charge}}, keep: {{id: '{{{{ this.body.id }}}}'}}, retry: {retry}}}"
    )
}

fn is_in_doubt(ended: &Ended<Stage, Played>) -> bool {
    ended.history().to_string().contains("stepInDoubt")
}

fn what_is_busy_is_asked_again_and_taken_over() {
    let lost = Scripted { does: true, status: None, ..Scripted::status(200) };
    let ended =
        play(&charge("{attempts: 5, first: 1s}"), vec![lost, Scripted::status(409), Scripted::status(409)]);
    assert_eq!(ended.value.0, json!({"id": 1}));
    assert_eq!((ended.world.account.writes(), ended.world.account.done().len()), (4, 1));
    assert!(!is_in_doubt(&ended), "{}", ended.history());
}

fn what_is_busy_in_the_last_try_is_in_doubt() {
    let ended = play(&charge("{attempts: 1}"), vec![Scripted::status(409)]);
    assert!(is_in_doubt(&ended), "{}", ended.history());
    // The operator has found nothing, so it was done then.
    assert_eq!((ended.value.0.clone(), ended.world.account.writes()), (json!({"id": 1}), 2));
}

fn a_key_of_another_request_fails_as_payload_changed() {
    let ended = play(&charge("{attempts: 5, first: 1s}"), vec![Scripted::status(422)]);
    assert_eq!(ended.value.0, json!({"failed": "PAYLOAD_CHANGED"}));
    assert_eq!((ended.world.account.writes(), ended.world.account.done().len()), (1, 0));
}

fn a_failure_that_every_repetition_gets_is_in_doubt_at_once() {
    let kept = Scripted { header: "idempotent-replayed: true\r\n", ..Scripted::status(500) };
    let ended = play(&charge("{attempts: 5, first: 1s}"), vec![kept]);
    assert!(is_in_doubt(&ended), "{}", ended.history());
    assert_eq!(ended.world.account.writes(), 2, "once before the doubt, once after the word of an operator");
    assert_eq!(ended.value.0, json!({"id": 1}));
}

fn a_failure_that_is_not_kept_is_tried_again() {
    let ended = play(&charge("{attempts: 5, first: 1s}"), vec![Scripted::status(500)]);
    assert!(!is_in_doubt(&ended), "{}", ended.history());
    assert_eq!((ended.value.0.clone(), ended.world.account.writes()), (json!({"id": 1}), 2));
}

fn what_is_asked_to_wait_waits_up_to_the_most_of_the_step() {
    for (status, header, waited) in [
        (429, "retry-after: 3600\r\n", 30),
        (503, "retry-after: 3600\r\n", 30),
        (429, "retry-after: 5\r\n", 5),
    ] {
        let asked = Scripted { header, ..Scripted::status(status) };
        let ended = play(&charge("{attempts: 2, first: 1s, most: 30s}"), vec![asked]);
        assert_eq!(ended.value, (json!({"id": 1}), Duration::from_secs(waited)), "{status} {header}");
    }
}

fn an_answer_that_is_too_large_fails_the_step_and_is_undone() {
    let large =
        Scripted { does: true, body: format!("\"{}\"", "x".repeat(2 << 20)), ..Scripted::status(200) };
    let steps = charge("{attempts: 5, first: 1s}")
        .replace(", retry", ", undo: [{name: refund, http: {on: for-ever, post: /refund}}], retry");
    let ended = play(&steps, vec![large]);
    assert_eq!(ended.value.0, json!({"failed": "TOO_LARGE"}));
    let times = ended.world.account.all_times();
    assert_eq!((times["/keyed/charge"], times["/keyed/refund"]), (1, 1), "{times:?}");
    assert_eq!(ended.world.account.writes(), 2, "it is not sent again");
}

fn a_connection_that_is_missing_fails_the_step_and_sends_nothing() {
    let ended = plan(&charge("{attempts: 3, first: 1s}"), |account| account.connects([false])).undisturbed();
    assert_eq!(ended.value.0, json!({"failed": "CONNECTION"}));
    assert_eq!(ended.world.account.writes(), 0);
    assert_eq!(ended.history().to_string().matches("stepFailed").count(), 3, "{}", ended.history());
}

/// The first server does it and dies, the second one has no connection and dies at one of its writes, the third one has it again.
fn a_connection_that_is_put_back_goes_on_with_the_same_effect() {
    let connected = [true, false, true];
    let crasher = plan(&charge("{attempts: 20, first: 1s}"), move |account| account.connects(connected));
    let mut goes_on = 0;
    for write in 1..=6 {
        let done = Point::Body("charge".to_owned(), Moment::Returned);
        let ended = crasher.play(&[done, Point::Write(write, Side::After)]);
        assert_eq!(
            (ended.crashes.len(), ended.value.0.clone()),
            (2, json!({"id": 1})),
            "{}",
            ended.history()
        );
        assert_eq!(ended.world.account.done().len(), 1);
        // A server that dies in a try without a connection does not know whether that could be repeated: then a person is asked.
        goes_on += usize::from(!is_in_doubt(&ended) && ended.world.account.writes() == 2);
    }
    assert!(goes_on > 0, "it is sent again under its key");
}

/// The two tasks that send again under a key: each tells the provider of something, by a step that is undone when the run fails.
const TOLD: [&str; 2] = [
    "http: {on: for-ever, post: /told}",
    "webhook: {on: notices, path: /told, type: order.paid, data: {n: 7}}",
];

/// Such a step with two attempts, and the failure of the run after it.
fn told_and_failed(task: &str) -> String {
    format!(
        "  - name: told
    {task}
    keep: {{id: '{{{{ this.body.id }}}}'}}
    retry: {{attempts: 2, first: 1s}}
    undo: [{{name: back, http: {{on: plain, post: /back, json: {{id: '{{{{ steps.told.id }}}}'}}}}}}]
  - {{name: fails, fail: {{code: LAST}}}}"
    )
}

/// How often the effect and its undo took place.
fn told_and_back(account: Account) -> (usize, usize) {
    let times = account.all_times();
    let of = |end: &str| times.iter().filter(|(path, _)| path.ends_with(end)).map(|(_, times)| times).sum();
    (of("/told"), of("/back"))
}

fn a_write_whose_last_answer_is_lost_is_in_doubt_and_undone() {
    for task in TOLD {
        for last in [None, Some(500), Some(409)] {
            let lost = Scripted { does: true, status: None, ..Scripted::status(200) };
            let ended = play(&told_and_failed(task), vec![lost.clone(), Scripted { status: last, ..lost }]);
            assert!(is_in_doubt(&ended), "{task} {last:?}: {}", ended.history());
            assert_eq!(
                ended.value.0,
                json!({"failed": "LAST"}),
                "{task} {last:?}: it took place, and the run goes on"
            );
            assert_eq!(told_and_back(ended.world.account), (1, 1), "{task} {last:?}");
        }
    }
}

/// A provider that knows keys looks one up before it refuses a request: the lost try did nothing either. A receiver of webhooks
/// promises nothing of the kind, and an answer about credentials or the path comes before any look-up.
fn a_refusal_after_a_lost_answer_fails_only_if_it_speaks_for_both() {
    let lost = |does| Scripted { does, status: None, ..Scripted::status(200) };
    let by_key = play(&told_and_failed(TOLD[0]), vec![lost(false), Scripted::status(400)]);
    assert_eq!(by_key.value.0, json!({"failed": "HTTP"}));
    assert!(!is_in_doubt(&by_key), "{}", by_key.history());
    assert_eq!(told_and_back(by_key.world.account), (0, 0));
    for (task, status) in [(TOLD[0], 401), (TOLD[0], 404), (TOLD[1], 400), (TOLD[1], 401), (TOLD[1], 410)] {
        let ended = play(&told_and_failed(task), vec![lost(true), Scripted::status(status)]);
        assert!(is_in_doubt(&ended), "{task} {status}: {}", ended.history());
        assert_eq!(ended.value.0, json!({"failed": "LAST"}), "{task} {status}");
        assert_eq!(told_and_back(ended.world.account), (1, 1), "{task} {status}");
    }
    for task in TOLD {
        for status in [400, 401, 404, 409] {
            let ended = play(&told_and_failed(task), vec![Scripted::status(status)]);
            assert_eq!(ended.value.0, json!({"failed": "HTTP"}), "{task} {status}: nothing was lost before");
            assert!(!is_in_doubt(&ended), "{task} {status}: {}", ended.history());
        }
    }
}

fn a_read_whose_answers_are_all_lost_fails_with_what_happened() {
    let steps = "  - {name: rate, http: {on: silent, get: /rates}, retry: {attempts: 2, first: 1s}}";
    let ended = play(steps, Vec::new());
    assert_eq!(ended.value.0, json!({"failed": "HTTP"}));
    assert!(!is_in_doubt(&ended), "{}", ended.history());
}

/// A run of another definition holds the token, while a step asks for it, and a child that has it among its `hooks`.
fn a_token_of_another_run_is_a_conflict_that_names_it() {
    let parent = "semel: 1
name: tested
steps:
  - {name: owner, child: {run: holds, wait: false, later: true}}
  - {name: pause, wait: 5m}
  - name: step
    try: [{name: asks, event: {token: taken, timeout: 1h}}]
    catch: [{when: \"{{ error.code == 'HOOK_CONFLICT' }}\", steps: [{name: told, set: {step: '{{ error.data.owner == steps.owner.run }}'}}]}]
  - name: hooks
    try: [{name: asks, child: {run: rival, later: true}}]
    catch:
      - when: \"{{ error.code == 'CHILD' and error.data.code == 'HOOK_CONFLICT' }}\"
        steps: [{name: told, set: {hooks: '{{ error.data.data.owner == steps.owner.run }}'}}]
return: '{{ vars }}'";
    let other = |name: &str| {
        format!(
            "semel: 1\nname: {name}\nhooks: {{own: taken}}\nsteps: [{{name: waits, event: {{hook: own}}}}]"
        )
    };
    let crasher = crasher(vec![parent.to_owned(), other("holds"), other("rival")], false, async |scene| {
        let run = Stage::start(&scene, &json!({})).await?;
        Ok(told(run.outcome().await?))
    });
    assert_eq!(crasher.undisturbed().value, json!({"step": true, "hooks": true}));
}

fn a_child_that_is_absent_at_run_time_is_not_found() {
    let steps = "  - name: child
    try: [{name: absent, child: {run: nowhere@1, later: true}}]
    catch: [{when: \"{{ error.code == 'DEFINITION_NOT_FOUND' }}\", steps: [{name: caught, set: {of: '{{ error.step }}'}}]}]";
    let ended = plan(steps, |_| {}).undisturbed();
    assert_eq!(ended.value.0, json!({"of": "child/absent"}));
    assert_eq!(ended.runs.len(), 1, "no run was started for it");
}

/// A value that is larger than what a step may keep, 256 KiB.
fn large() -> Value {
    json!({"n": 7, "text": "x".repeat(256 << 10)})
}

/// Plays a definition whose step `large` gets that value by something outside, which is done by `act` until the run has ended.
fn bounded(source: &str, act: impl AsyncFn(&Scene<Stage>) -> Result<(), Error> + Clone + 'static) {
    for (keep, expected) in [
        ("", json!({"failed": "TOO_LARGE"})),
        (", keep: {n: '{{ this.n }}'}", json!({"n": 7})),
        (", keep: {n: '{{ this.missing }}'}", json!({"failed": "EXPRESSION"})),
    ] {
        let undo = "undo: [{name: back, http: {on: for-ever, post: /back}}]";
        let steps = format!(
            "semel: 1\nname: tested\nsteps:\n  - {{name: large, {source}{keep}, {undo}}}\n  - {{name: done, set: {{n: '{{{{ steps.large.n }}}}'}}}}"
        );
        let leaf = "semel: 1\nname: leaf\nsteps: [{name: a, set: {b: 1}}]\nreturn: '{{ input }}'".to_owned();
        let documents = [steps, leaf];
        let act = act.clone();
        let crasher = Crasher::new(
            move || Stage::new(&documents, false),
            Stage::engine,
            async move |scene: Scene<Stage>| {
                let run: RunHandle<Value> = Stage::start(&scene, &large()).await?;
                scene
                    .until(async || {
                        act(&scene).await.is_ok()
                            && scene
                                .status(run.id())
                                .await
                                .is_ok_and(semel::rules::status::Status::is_terminal)
                    })
                    .await;
                Ok(told(run.outcome().await?))
            },
        );
        let ended = crasher.undisturbed();
        assert_eq!(ended.value, expected, "{source}{keep}");
        let undone = usize::from(expected.get("failed").is_some());
        assert_eq!(
            ended.world.account.done().len(),
            undone,
            "what took place is undone if its value is refused: {source}{keep}"
        );
    }
}

fn what_a_worker_reports_is_bounded_after_keep() {
    bounded("worker: {queue: labels}", async |scene: &Scene<Stage>| {
        let (node, lease) = (NodeId(scene.clock().uuid()), Duration::from_hours(24));
        scene.store().lease(Lease { node, act: LeaseAct::Join(lease) }).await?;
        let take =
            Take { workspace: WorkspaceId::DEFAULT, node, queues: vec![Name::new("labels")?], limit: 10 };
        for task in scene.queues().take(take).await?.tasks {
            let of = AssignmentRef { workspace: WorkspaceId::DEFAULT, run: task.run, fence: task.fence };
            scene.queues().complete(of, Payload::of(&large()).expect("it fits a ledger")).await?;
        }
        Ok(())
    });
}

fn what_a_child_and_a_delivery_bring_is_bounded_after_keep() {
    bounded("child: {run: leaf, input: '{{ input }}', later: true}", async |_: &Scene<Stage>| Ok(()));
    bounded("event: {token: parcel}", async |scene: &Scene<Stage>| {
        match scene.engine().deliver("parcel", large()).id("d").await {
            Ok(_) | Err(Error::HookNotFound(_)) => Ok(()),
            Err(error) => Err(error),
        }
    });
}
