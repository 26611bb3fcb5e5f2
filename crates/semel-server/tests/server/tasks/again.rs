//! Runs of definitions that are executed again: retried, restarted or forked after a failure. What has completed is not repeated, and
//! what was undone is never taken for done.

use std::collections::BTreeMap;

use libtest_mimic::Trial;
use semel::id::RunId;
use semel::rules::entry::Entry;
use semel::rules::ledger::Lineage;
use semel::testing::Scene;
use semel::{Error, RunHandle};
use serde_json::{Value, json};

use super::crashes::{settle, told};
use super::play::{Stage, crasher, everywhere};

pub(super) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (how, name) in HOW {
        let mut add = |what: &str, test: fn(How)| {
            trials.push(Trial::test(format!("tasks::{what}_{name}"), move || {
                test(how);
                Ok(())
            }));
        };
        add("a_run_that_was_undone_does_nothing_when_it_is", undone);
        // A fork of a whole run has the failure of its last step too.
        if how == How::Forked {
            continue;
        }
        add("a_try_that_was_undone_is_not_tried_again_when_its_run_is", caught);
        add("a_try_that_was_caught_is_not_tried_again_when_its_run_is", caught_only);
        add("a_try_that_nothing_caught_is_tried_again_when_its_run_is", not_caught);
        add("a_step_that_has_completed_takes_place_once_although_its_run_is", completed);
    }
    for (name, test) in [
        ("a_run_that_was_undone_begins_anew_in_a_fork_with_fresh_keys", fresh as fn()),
        ("a_run_that_has_completed_goes_on_from_any_tick_in_a_fork", forked),
    ] {
        trials.push(Trial::test(format!("tasks::{name}"), move || {
            test();
            Ok(())
        }));
    }
    trials
}

/// How a failed run goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Retried,
    Restarted,
    Forked,
    /// At the tick after its first step has completed.
    ForkedEarlier,
}

const HOW: [(How, &str); 4] = [
    (How::Retried, "retried"),
    (How::Restarted, "restarted"),
    (How::Forked, "forked"),
    (How::ForkedEarlier, "forked_at_an_earlier_tick"),
];

fn document(steps: &str) -> Vec<String> {
    vec![format!("semel: 1\nname: tested\nsteps:\n{steps}")]
}

/// The version of a run at which the step `charge` had completed, perhaps by the word of an operator.
async fn charged(scene: &Scene<Stage>, run: &RunHandle<Value>) -> Result<u64, Error> {
    let history = scene.history(run.id()).await?;
    let at = history.entries().position(|entry| match entry {
        Entry::StepCompleted { step, .. } | Entry::StepResolved { step, .. } => step.to_string() == "charge",
        _ => false,
    });
    Ok(at.expect("it has completed") as u64 + 1)
}

/// Executes a run again, and gives its outcome. However often the script is played, it is asked for once.
async fn again(scene: &Scene<Stage>, run: &RunHandle<Value>, how: How) -> Result<Value, Error> {
    let asked = scene.engine().run(run.id()).call_id("again");
    let id = match how {
        How::Retried => asked.retry().await?.run.id(),
        How::Restarted => asked.restart().await?.run.id(),
        How::Forked => asked.fork(None, Lineage::Inherited).await?.id(),
        How::ForkedEarlier => asked.fork(Some(charged(scene, run).await?), Lineage::Inherited).await?.id(),
    };
    outcome(scene, id).await
}

/// The outcome of a run by a handle that does not know how it ended before. A replay does the same.
async fn outcome(scene: &Scene<Stage>, id: RunId) -> Result<Value, Error> {
    let outcome = scene.engine().run(id).outcome().await?;
    let replay = scene.engine().replay(id).await?;
    assert!(replay.is_identical(), "{replay}");
    Ok(told(outcome))
}

/// Plays a definition whose run ends, in most cases because the provider keeps something locked; then that is unlocked, and the run is
/// executed again. Says with which outcome that must be, and how often everything was done.
fn played(
    steps: &str,
    repeat: impl AsyncFn(&Scene<Stage>, &RunHandle<Value>) -> Result<Value, Error> + 'static,
    expected: &Value,
    effects: &[(&str, usize)],
) {
    let crasher = crasher(document(steps), false, async move |scene: Scene<Stage>| {
        let run = Stage::start(&scene, &json!({})).await?;
        drop(settle(&scene, &run).await?);
        scene.world().account.unlock();
        repeat(&scene, &run).await
    });
    let effects: BTreeMap<_, _> = effects.iter().map(|(path, times)| ((*path).to_owned(), *times)).collect();
    let plays = everywhere(&crasher, |ended| {
        assert_eq!(ended.value, *expected, "{}", ended.history());
        assert_eq!(ended.world.account.all_times(), effects, "{}", ended.history());
    });
    assert!(plays > 8, "{plays}");
}

const UNDONE: &str = "  - name: charge
    http: {on: for-ever, post: /charge}
    undo: [{name: refund, http: {on: for-ever, post: /refund}}]
  - {name: ship, http: {on: locked, post: /ship}, keep: {shipped: true}}";

fn undone(how: How) {
    let effects = [("/keyed/charge", 1), ("/keyed/refund", 1)];
    let repeat = async move |scene: &Scene<Stage>, run: &RunHandle<Value>| again(scene, run, how).await;
    played(UNDONE, repeat, &json!({"failed": "UNDONE"}), &effects);
}

fn fresh() {
    let repeat = async |scene: &Scene<Stage>, run: &RunHandle<Value>| {
        let asked = scene.engine().run(run.id()).call_id("again");
        outcome(scene, asked.fork(Some(1), Lineage::Fresh).await?.id()).await
    };
    let effects = [("/keyed/charge", 2), ("/keyed/refund", 1), ("/locked/ship", 1)];
    played(UNDONE, repeat, &json!({"shipped": true}), &effects);
}

/// A `try` that fails because of the card, with this among its steps, and a step after it that fails too.
fn caught_with(reserve: &str) -> String {
    format!(
        "  - {{name: charge, http: {{on: for-ever, post: /charge}}}}
  - name: pay
    try:
{reserve}      - {{name: card, http: {{on: locked, post: /card}}, keep: {{by: card}}}}
    catch:
      - when: \"{{{{ error.code == 'HTTP' and error.status == 423 }}}}\"
        steps: [{{name: invoice, http: {{on: for-ever, post: /invoice}}, keep: {{by: invoice}}}}]
  - {{name: ship, http: {{on: locked, post: /ship}}}}
return: '{{{{ steps.pay }}}}'"
    )
}

fn caught(how: How) {
    let reserve = "      - name: reserve
        http: {on: for-ever, post: /reserve}
        undo: [{name: free, http: {on: for-ever, post: /free}}]\n";
    let effects = [
        ("/keyed/charge", 1),
        ("/keyed/reserve", 1),
        ("/keyed/free", 1),
        ("/keyed/invoice", 1),
        ("/locked/ship", 1),
    ];
    let repeat = async move |scene: &Scene<Stage>, run: &RunHandle<Value>| again(scene, run, how).await;
    played(&caught_with(reserve), repeat, &json!({"by": "invoice"}), &effects);
}

/// The invoice was sent because of the failure, so the card is not charged beside it.
fn caught_only(how: How) {
    let effects = [("/keyed/charge", 1), ("/keyed/invoice", 1), ("/locked/ship", 1)];
    let repeat = async move |scene: &Scene<Stage>, run: &RunHandle<Value>| again(scene, run, how).await;
    played(&caught_with(""), repeat, &json!({"by": "invoice"}), &effects);
}

fn not_caught(how: How) {
    let steps = "  - {name: charge, http: {on: for-ever, post: /charge}}
  - name: pay
    try: [{name: card, http: {on: locked, post: /card}, keep: {by: card}}]
    catch: [{when: \"{{ error.code == 'TIMEOUT' }}\", steps: [{name: never, http: {on: for-ever, post: /never}}]}]
    finally: [{name: close, http: {on: for-ever, post: /close}}]
return: '{{ steps.pay }}'";
    let effects = [("/keyed/charge", 1), ("/keyed/close", 1), ("/locked/card", 1)];
    let repeat = async move |scene: &Scene<Stage>, run: &RunHandle<Value>| again(scene, run, how).await;
    played(steps, repeat, &json!({"by": "card"}), &effects);
}

fn completed(how: How) {
    let steps = "  - {name: charge, http: {on: plain, post: /charge}}
  - {name: hold, http: {on: window, post: /hold}}
  - name: each
    for_each: {in: '{{ [1, 2] }}', key: '{{ item }}', parallel: 2}
    steps: [{name: told, http: {on: searched, post: '/told/{{ item }}', json: {}}}]
  - {name: ship, http: {on: locked, post: /ship}, keep: {shipped: true}}";
    let effects = [
        ("/plain/charge", 1),
        ("/keyed/hold", 1),
        ("/searched/told/1", 1),
        ("/searched/told/2", 1),
        ("/locked/ship", 1),
    ];
    let repeat = async move |scene: &Scene<Stage>, run: &RunHandle<Value>| again(scene, run, how).await;
    played(steps, repeat, &json!({"shipped": true}), &effects);
}

fn forked() {
    let steps = "  - {name: charge, http: {on: for-ever, post: /charge}, keep: {id: '{{ this.body.id }}'}}
  - {name: pause, wait: 5m}
  - {name: told, http: {on: for-ever, post: /told}, keep: {charge: '{{ steps.charge.id }}'}}";
    for (lineage, told) in [(Lineage::Inherited, 1), (Lineage::Fresh, 2)] {
        let repeat = async move |scene: &Scene<Stage>, run: &RunHandle<Value>| {
            let at = Some(charged(scene, run).await?);
            let asked = scene.engine().run(run.id()).call_id("again");
            outcome(scene, asked.fork(at, lineage).await?.id()).await
        };
        played(steps, repeat, &json!({"charge": 1}), &[("/keyed/charge", 1), ("/keyed/told", told)]);
    }
}
