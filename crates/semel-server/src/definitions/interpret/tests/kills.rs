//! An engine that dies before and after every durable write of a definition: every effect takes place once.

use std::collections::BTreeMap;

use semel::rules::entry::Outcome;
use semel::testing::{Crasher, Ended, Scene};
use serde_json::{Value as Json, json};

use super::effect::Doings;
use super::{Fixed, TESTED, definition};

type Played = Result<Json, String>;

/// Plays crashes, and looks at the end of each play.
type PlayCrashes = fn(&Crasher<Doings, Played>, &dyn Fn(&Ended<Doings, Played>)) -> usize;

/// Plays a definition with crashes at every boundary, and gives how often it was played.
fn played(
    steps: &'static str,
    input: &Json,
    expected: &BTreeMap<&'static str, u32>,
    crashes: PlayCrashes,
) -> usize {
    let input = input.clone();
    let crasher = Crasher::new(
        Doings::default,
        move |doings: &Doings, builder| builder.state(doings.clone()).programs(Fixed(definition(steps))),
        async move |scene: Scene<Doings>| {
            let run = scene.engine().start(TESTED, input.clone()).key("k").await?;
            Ok(match run.outcome().await? {
                Outcome::Completed(value) => Ok(value.read().unwrap()),
                Outcome::Failed(failure) => Err(failure.code.unwrap_or_default()),
                other => Err(format!("{other:?}")),
            })
        },
    );
    crashes(&crasher, &|ended| {
        for name in ended.world.effects.names() {
            let once = expected.get(&*name).copied().unwrap_or_default();
            assert_eq!(ended.world.effects.applied(&name), once, "{name}: {:?}", ended.world);
        }
        for (name, times) in expected {
            assert_eq!(ended.world.effects.applied(name), *times, "{name}: {:?}", ended.world);
        }
    })
}

fn once(crasher: &Crasher<Doings, Played>, check: &dyn Fn(&Ended<Doings, Played>)) -> usize {
    crasher.every_boundary(check) + crasher.every_fault(check)
}

fn twice(crasher: &Crasher<Doings, Played>, check: &dyn Fn(&Ended<Doings, Played>)) -> usize {
    crasher.every_two_boundaries(check)
}

#[test]
fn every_block_survives_a_crash_at_every_boundary() {
    let steps = "steps:
  - {name: id, uuid: }
  - {name: first, set: {n: 0, at: '{{ steps.id|length }}'}}
  - {name: charge, worker: {queue: charge}}
  - name: both
    parallel:
      left: [{name: l, worker: {queue: left}}, {name: pause, wait: 5m}, {name: m, worker: {queue: left}}]
      right: [{name: now, now: }, {name: r, worker: {queue: right}}]
  - name: pack
    for_each: {in: '{{ input }}', key: '{{ item }}', parallel: 2}
    steps:
      - {name: label, worker: {queue: label, input: '{{ item }}'}}
      - {name: ship, if: \"{{ item != 'ink' }}\", worker: {queue: ship}}
  - name: count
    loop: {until: '{{ vars.n == 2 }}', most: 3}
    steps: [{name: more, worker: {queue: more}}, {name: add, set: {n: '{{ vars.n + 1 }}'}}, {name: nap, wait: 1s}]
  - name: size
    switch:
      - {when: '{{ vars.n == 7 }}', steps: [{name: never, worker: {queue: never}}]}
      - {steps: [{name: two, worker: {queue: two}}]}
  - name: guarded
    try:
      - {name: taken, worker: {queue: taken}, undo: [{name: back, worker: {queue: back}}]}
      - {name: fails, worker: {queue: x, input: {fail: BAD}}}
    catch: [{when: \"{{ error.code == 'BAD' }}\", steps: [{name: mend, worker: {queue: mend}}]}]
    finally: [{name: close, worker: {queue: close}}]
return: {n: '{{ vars.n }}', at: '{{ vars.at }}', pack: '{{ steps.pack }}'}";
    let expected = [
        ("charge", 1),
        ("left", 2),
        ("right", 1),
        ("label", 3),
        ("ship", 2),
        ("more", 2),
        ("two", 1),
        ("taken", 1),
        ("back", 1),
        ("mend", 1),
        ("close", 1),
    ];
    let plays = played(steps, &json!(["ink", "pens", "paper"]), &expected.into(), once);
    assert!(plays > 60, "{plays}");
}

/// Two branches, of which one fails while a step of the other may be under way.
const BRANCHES: &str = "
  - name: both
    parallel:
      a: [{name: slow, wait: 1s}, {name: fails, worker: {queue: x, input: {fail: BAD}}}]
      b:
        - {name: one, worker: {queue: one}, undo: [{name: back, worker: {queue: back-one}}]}
        - {name: slow, wait: 1s}
        - {name: two, worker: {queue: two}, undo: [{name: back, worker: {queue: back-two}}]}
        - {name: slower, wait: 1m}
        - {name: three, worker: {queue: three}}";

#[test]
fn branches_that_stop_leave_nothing_half_done() {
    for before in
        ["", "\n  - {name: hold, worker: {queue: hold}, undo: [{name: free, worker: {queue: free}}]}"]
    {
        let steps = format!("steps:{before}{BRANCHES}");
        let crasher = Crasher::new(
            Doings::default,
            move |doings: &Doings, builder| builder.state(doings.clone()).programs(Fixed(definition(&steps))),
            async move |scene: Scene<Doings>| {
                let run = scene.engine().start(TESTED, json!({})).key("k").await?;
                Ok(match run.outcome().await? {
                    Outcome::Failed(failure) => failure.code.unwrap_or_default(),
                    other => format!("{other:?}"),
                })
            },
        );
        let plays = crasher.every_two_boundaries(|ended| {
            let applied = |name: &str| ended.world.effects.applied(name);
            assert_eq!(ended.value, "BAD");
            assert_eq!(applied("hold"), applied("free"));
            assert_eq!((applied("one"), applied("back-one")), (1, 1), "{:?}", ended.world);
            // Whatever had begun when the other branch failed is waited for and undone.
            assert_eq!(applied("two"), applied("back-two"), "{:?}", ended.world);
            assert!(applied("three") <= 1);
        });
        assert!(plays > 60, "{plays}");
    }
}

#[test]
fn what_has_completed_is_undone_once() {
    let steps = "steps:
  - {name: a, worker: {queue: a}, undo: [{name: back, worker: {queue: back-a}}]}
  - name: each
    for_each: {in: '{{ [1, 2, 3] }}', parallel: 2}
    steps: [{name: b, worker: {queue: b}, undo: [{name: back, worker: {queue: back-b}}]}]
  - {name: fails, fail: {code: LAST}}";
    let expected = [("a", 1), ("back-a", 1), ("b", 3), ("back-b", 3)];
    let plays = played(steps, &json!({}), &expected.into(), twice);
    assert!(plays > 100, "{plays}");
}
