//! Definitions in execution: what each block does, and what a crash at every boundary leaves of it.

mod effect;
mod kills;
#[cfg(feature = "sabotage")]
mod planted;
mod random;

use std::sync::Arc;

use semel::engine::{Code, Programs};
use semel::id::WorkspaceId;
use semel::rules::entry::{Failure, Outcome};
use semel::rules::family::Family;
use semel::rules::path::Name;
use semel::{Engine, WorkflowRef};
use serde_json::{Value as Json, json};

use self::effect::Doings;
use super::{code_of, code_within};
use crate::definitions::check::check;
use crate::definitions::language::Definition;

/// One definition, for every version of its family.
pub(crate) struct Fixed(pub(crate) Arc<Definition>);

/// The same, with a limit on the steps of a run.
struct Limited(Arc<Definition>, u32);

impl Programs for Limited {
    fn families(&self) -> Vec<Family> {
        Fixed(self.0.clone()).families()
    }

    fn code(&self, _: WorkspaceId, _: &Name, _: &Name) -> Option<Code> {
        Some(code_within(self.0.clone(), self.1))
    }
}

impl Programs for Fixed {
    fn families(&self) -> Vec<Family> {
        vec![Family::new("def1_").unwrap()]
    }

    fn code(&self, _: WorkspaceId, _: &Name, _: &Name) -> Option<Code> {
        Some(code_of(self.0.clone()))
    }
}

pub(crate) const TESTED: WorkflowRef<Json, Json> = WorkflowRef::new("tested").version("def1_tested");

/// The steps of a definition; a `worker` is an effect that is named by its queue.
fn definition(steps: &str) -> Arc<Definition> {
    let text = format!("semel: 1\nname: tested\n{steps}");
    let mut definition = check(&text).unwrap_or_else(|problems| panic!("{problems:#?}")).definition;
    effect::replace_workers(&mut definition.steps);
    Arc::new(definition)
}

/// The outcome of a definition, and what it did.
async fn run(text: &str, input: Json) -> (Outcome, Doings) {
    let effects = Doings::default();
    let builder = Engine::builder().store("memory:").state(effects.clone());
    let engine = builder.programs(Fixed(definition(text))).open().await.unwrap();
    let run = engine.start(TESTED, input).await.unwrap();
    let outcome = run.outcome().await.unwrap();
    let replay = engine.replay(run.id()).await.unwrap();
    assert!(replay.is_identical(), "{replay}");
    (outcome, effects)
}

async fn value_of(text: &str, input: Json) -> Json {
    match run(text, input).await.0 {
        Outcome::Completed(value) => value.read().unwrap(),
        other => panic!("{other:?}"),
    }
}

async fn failure_of(text: &str, input: Json) -> (Failure, Doings) {
    match run(text, input).await {
        (Outcome::Failed(failure), effects) => (failure, effects),
        (other, _) => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn values_go_from_step_to_step_and_the_last_one_is_the_result() {
    let steps = "steps:
  - {name: a, worker: {queue: x, input: {n: '{{ input.n + 1 }}'}}}
  - {name: skipped, if: '{{ steps.a.n > 100 }}', worker: {queue: never}}
  - {name: b, worker: {queue: x, input: {n: '{{ steps.a.n * 2 }}'}}, keep: {twice: '{{ this.n }}'}}
  - {name: c, if: '{{ steps.skipped is defined }}', worker: {queue: never}}";
    assert_eq!(value_of(steps, json!({"n": 1})).await, json!({"twice": 4}));
}

#[tokio::test]
async fn a_return_ends_the_run_wherever_it_is() {
    let steps = "steps:
  - name: all
    for_each: {in: '{{ input }}', parallel: 2}
    steps:
      - {name: found, if: '{{ item == 2 }}', return: {found: '{{ index }}'}}
      - {name: other, worker: {queue: x}}
  - {name: never, worker: {queue: never}}";
    assert_eq!(value_of(steps, json!([1, 2, 3])).await, json!({"found": 1}));
    assert_eq!(
        value_of("steps: [{name: a, set: {b: 1}}]\nreturn: {c: '{{ vars.b }}'}", json!({})).await,
        json!({"c": 1})
    );
}

#[tokio::test]
async fn passes_are_known_by_their_keys_and_bounded() {
    let steps = "steps:
  - name: pack
    for_each: {in: '{{ input }}', as: line, key: '{{ line.sku }}', parallel: 3}
    steps:
      - {name: label, worker: {queue: labels, input: '{{ line.sku }}'}}
  - {name: all, set: {n: '{{ steps.pack }}'}}";
    let lines = json!([{"sku": "ink"}, {"sku": "a/b"}, {"sku": "pens"}]);
    assert_eq!(value_of(steps, lines).await, json!({"n": ["ink", "a/b", "pens"]}));
    let (failure, effects) = failure_of(steps, json!([{"sku": "ink"}, {"sku": "ink"}])).await;
    assert_eq!((failure.code.as_deref(), effects.effects.calls("labels")), (Some("EXPRESSION"), 0));
    let bounded =
        "steps: [{name: p, for_each: {in: '{{ input }}', most: 1}, steps: [{name: a, worker: {queue: x}}]}]";
    assert_eq!(failure_of(bounded, json!([1, 2])).await.0.code.as_deref(), Some("LIMIT"));
}

#[tokio::test]
async fn loops_look_before_or_after_a_pass_and_end() {
    let before = "steps:
  - {name: first, set: {n: 0}}
  - name: count
    loop: {while: '{{ vars.n < input }}', most: 5}
    steps:
      - {name: more, set: {n: '{{ vars.n + 1 }}'}}
return: '{{ vars.n }}'";
    for n in [0, 1, 5] {
        assert_eq!(value_of(before, json!(n)).await, json!(n));
    }
    assert_eq!(failure_of(before, json!(6)).await.0.code.as_deref(), Some("LIMIT"));
    let after = "steps:
  - name: count
    loop: {until: '{{ steps.more.n == input }}', most: 3}
    steps:
      - {name: more, worker: {queue: x, input: {n: '{{ index }}'}}}";
    assert_eq!(value_of(after, json!(2)).await, json!([{"n": 0}, {"n": 1}, {"n": 2}]));
    assert_eq!(failure_of(after, json!(3)).await.0.code.as_deref(), Some("LIMIT"));
}

#[tokio::test]
async fn a_failure_is_caught_by_the_first_case_that_applies() {
    let steps = "steps:
  - name: pay
    try:
      - {name: card, worker: {queue: x, input: {fail: '{{ input }}'}}}
    catch:
      - when: \"{{ error.code == 'DECLINED' }}\"
        steps: [{name: invoice, set: {by: invoice, of: '{{ error.step }}'}}]
      - when: \"{{ error.code == 'LOST' }}\"
        steps: [{name: again, fail: {code: AGAIN}}]
    finally:
      - {name: closed, worker: {queue: desks}}";
    assert_eq!(value_of(steps, json!("DECLINED")).await, json!({"by": "invoice", "of": "pay/card"}));
    for (code, told) in [("LOST", "AGAIN"), ("OTHER", "OTHER")] {
        let (failure, effects) = failure_of(steps, json!(code)).await;
        assert_eq!((failure.code.as_deref(), effects.effects.applied("desks")), (Some(told), 1), "{code}");
    }
}

#[tokio::test]
async fn branches_stop_when_one_has_failed_and_the_first_failure_is_told() {
    let steps = "steps:
  - name: both
    parallel:
      a:
        - {name: slow, wait: 1ms}
        - {name: fails, fail: {code: A}}
        - {name: never, worker: {queue: never}}
      b:
        - {name: slow, wait: 200ms}
        - {name: stopped, worker: {queue: never}}";
    let (failure, effects) = failure_of(steps, json!({})).await;
    assert_eq!((failure.code.as_deref(), effects.effects.calls("never")), (Some("A"), 0));
    let two =
        "steps: [{name: both, parallel: {b: [{name: x, fail: {code: B}}], a: [{name: x, fail: {code: A}}]}}]";
    assert_eq!(failure_of(two, json!({})).await.0.code.as_deref(), Some("A"));
    let values =
        "steps: [{name: both, parallel: {b: [{name: x, set: {v: 2}}], a: [{name: x, set: {v: 1}}]}}]";
    assert_eq!(value_of(values, json!({})).await, json!({"a": {"v": 1}, "b": {"v": 2}}));
}

#[tokio::test]
async fn what_has_completed_is_undone_the_last_first() {
    let steps = "steps:
  - {name: a, worker: {queue: x}, undo: [{name: back, worker: {queue: undo-a, input: '{{ steps.a }}'}}]}
  - {name: no, if: '{{ false }}', worker: {queue: x}, undo: [{name: back, worker: {queue: never}}]}
  - name: each
    for_each: {in: '{{ [1, 2] }}'}
    steps:
      - {name: b, worker: {queue: x}, undo: [{name: back, worker: {queue: 'undo-b'}}]}
  - {name: broken, worker: {queue: x}, undo: [{name: back, worker: {queue: undo-c, input: {fail: WORSE}}}]}
  - {name: fails, worker: {queue: x, input: {fail: LAST}}, undo: [{name: back, worker: {queue: never}}]}";
    let (failure, effects) = failure_of(steps, json!({})).await;
    assert_eq!(failure.code.as_deref(), Some("LAST"));
    assert!(failure.message.contains("not undone: broken/undo/back"), "{}", failure.message);
    let undone: Vec<_> = effects.order().into_iter().filter(|name| name.starts_with("undo")).collect();
    assert_eq!(undone, ["undo-b", "undo-b", "undo-a"]);
    assert_eq!(effects.effects.calls("never"), 0);
}

#[tokio::test]
async fn a_run_has_no_more_steps_than_the_limit_counted_over_all_blocks_and_skips() {
    let steps = "steps:
  - name: all
    for_each: {in: '{{ input }}'}
    steps:
      - {name: never, if: '{{ false }}', worker: {queue: never}}
      - {name: told, worker: {queue: told}}";
    let effects = Doings::default();
    let builder = Engine::builder().store("memory:").state(effects.clone());
    let engine = builder.programs(Limited(definition(steps), 7)).open().await.unwrap();
    // The block, and two steps in each pass.
    let fits = engine.start(TESTED, json!([1, 2, 3])).await.unwrap();
    assert!(matches!(fits.outcome().await.unwrap(), Outcome::Completed(_)));
    let larger = engine.start(TESTED, json!([1, 2, 3, 4])).await.unwrap();
    let Outcome::Failed(failure) = larger.outcome().await.unwrap() else { panic!("it has too many steps") };
    assert_eq!(failure.code.as_deref(), Some("LIMIT"));
    assert!(failure.message.contains("a run has at most 7 steps"), "{}", failure.message);
    assert_eq!(effects.effects.calls("told"), 6, "those before the limit took place");
    assert!(engine.replay(larger.id()).await.unwrap().is_identical());
}
