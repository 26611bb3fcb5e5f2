//! The definition of the phase, part by part: each has steps, and says what must have come of them.
//!
//! A task that is added to the language gets a part here, or in [`super::tasks`] if it works with another product: its steps, with
//! `PLACE` for the place of the run, and its effects. The other side counts each of them as `PLACE path`.

/// How often an effect is done, and whether a person may be asked about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartSort {
    /// Once, and never in doubt.
    Sure,
    /// Once; in doubt if its end is lost, or if a window has run out.
    Doubtable,
    /// Once if the run fails, and not at all if it does not.
    Undo,
}

use PartSort::{Doubtable, Sure, Undo};

use super::tasks::TASKS;

/// One effect of a part.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartEffect {
    /// Path of the step.
    pub(super) path: &'static str,
    pub(super) sort: PartSort,
    /// Path, with `/`, under which its number is in the result of the run; empty if it is not there.
    pub(super) told: &'static str,
}

pub(super) const fn effect(path: &'static str, sort: PartSort, told: &'static str) -> PartEffect {
    PartEffect { path, sort, told }
}

/// Some steps of the definition.
pub(super) struct Part {
    pub(super) steps: &'static str,
    pub(super) effects: &'static [PartEffect],
}

/// The parts of the language itself, of HTTP, people and workers, in the order of the definition.
const PARTS: &[Part] = &[
    Part {
        steps: "
  - {name: at, now: }
  - {name: id, uuid: }
  - {name: basics, set: {n: 0, id: '{{ steps.id }}', at: '{{ steps.at }}'}}",
        effects: &[],
    },
    Part {
        steps: "
  - {name: price, http: {on: key, get: /prices}, RETRY, keep: '{{ this.body.n }}'}
  - {name: key, http: {on: key, post: /effects, json: {at: 'PLACE key'}}, RETRY, KEEP, undo: [
      {name: back, http: {on: key, post: /effects, json: {at: 'PLACE key/undo/back'}}, RETRY}]}",
        effects: &[effect("key", Sure, "key"), effect("key/undo/back", Undo, "")],
    },
    Part {
        steps: "
  - {name: kept, http: {on: kept, post: /effects, json: {at: 'PLACE kept'}}, RETRY, KEEP}
  - {name: found, http: {on: found, post: /effects, json: {at: 'PLACE found'}}, RETRY, KEEP}
  - {name: never, http: {on: repeated, put: /effects, json: {}}, if: '{{ false }}'}
  - {name: repeated-once, http: {on: repeated, post: /effects, json: {at: 'PLACE repeated-once'}}, RETRY,
     keep: {n: '{{ this.body.n|default(0) }}'}}",
        effects: &[
            effect("kept", Sure, "kept"),
            effect("found", Sure, "found"),
            effect("repeated-once", Sure, "repeated"),
        ],
    },
    Part {
        steps: "
  - {name: window, http: {on: window, post: /effects, json: {at: 'PLACE window'}}, RETRY, KEEP}
  - {name: look-up, http: {on: look-up, post: /effects, json: {at: 'PLACE look-up'}}, RETRY, KEEP}
  - {name: nothing, http: {on: nothing, post: /effects, json: {at: 'PLACE nothing'}}, RETRY, KEEP}
  - {name: once, class: at-most-once, http: {on: key, post: /effects, json: {at: 'PLACE once'}}, RETRY, KEEP, undo: [
      {name: back, http: {on: nothing, post: /effects, json: {at: 'PLACE once/undo/back'}}, RETRY, KEEP}]}",
        effects: &[
            effect("window", Doubtable, "window"),
            effect("look-up", Sure, "found_later"),
            effect("nothing", Doubtable, "nothing"),
            effect("once", Doubtable, "once"),
            effect("once/undo/back", Undo, ""),
        ],
    },
    Part {
        steps: "
  - {name: hook, webhook: {on: told, path: /effects, type: run.told, data: {at: 'PLACE hook'}}, RETRY, KEEP}
  - {name: queued, worker: {queue: elsewhere, input: '{{ input.place }}'}, RETRY}
  - {name: below, child: {run: everything-below, input: {place: '{{ input.place }}.below'}}}
  - {name: aside, child: {run: everything-below, wait: false, input: {place: '{{ input.place }}.aside'}}}",
        effects: &[effect("hook", Sure, "hook"), effect("queued", Sure, "queued")],
    },
    Part {
        steps: "
  - name: people
    parallel:
      asked: [{name: ask, approval: {title: 'Let {{ input.place }} go on?', content: {n: 1}, timeout: 1d}}]
      filled: [{name: form, human: {title: 'How many?', form: {type: integer}, timeout: 1d}}]
      early: [{name: hear, event: {hook: changes}}]
      late: [{name: hear, event: {token: '{{ input.place }}:late', timeout: 1d}}]",
        effects: &[],
    },
    Part {
        steps: "
  - name: pack
    for_each: {in: '{{ input.lines }}', as: line, key: '{{ line }}', parallel: 2}
    steps:
      - {name: label, http: {on: key, post: /effects, json: {at: 'PLACE pack[{{ line }}]/label'}}, RETRY, KEEP, undo: [
          {name: back, http: {on: key, post: /effects, json: {at: 'PLACE pack[{{ line }}]/label/undo/back'}}, RETRY}]}
      - {name: paste, worker: {queue: elsewhere, input: '{{ input.place }}'}, RETRY}
  - name: poll
    loop: {until: '{{ vars.n == 2 }}', most: 5}
    steps:
      - {name: look, http: {on: kept, post: /effects, json: {at: 'PLACE poll[{{ index }}]/look'}}, RETRY}
      - {name: add, set: {n: '{{ vars.n + 1 }}'}}
      - {name: pause, wait: 50ms}
  - name: size
    switch:
      - {when: '{{ input.lines|length > 9 }}', steps: [{name: never, http: {on: key, post: /effects, json: {at: never}}}]}
      - steps: [{name: small, http: {on: key, post: /effects, json: {at: 'PLACE size/small'}}, RETRY}]",
        effects: &[
            effect("pack[ink]/label", Sure, ""),
            effect("pack[ink]/label/undo/back", Undo, ""),
            effect("pack[ink]/paste", Sure, ""),
            effect("pack[pens]/label", Sure, ""),
            effect("pack[pens]/label/undo/back", Undo, ""),
            effect("pack[pens]/paste", Sure, ""),
            effect("poll[0]/look", Sure, ""),
            effect("poll[1]/look", Sure, ""),
            effect("size/small", Sure, ""),
        ],
    },
    Part {
        steps: "
  - name: guard
    try:
      - {name: taken, http: {on: key, post: /effects, json: {at: 'PLACE guard/taken'}}, RETRY, undo: [
          {name: back, http: {on: key, post: /effects, json: {at: 'PLACE guard/taken/undo/back'}}, RETRY}]}
      - {name: refused, http: {on: key, post: /refused, json: {}}, RETRY}
    catch:
      - when: '{{ error.status == 422 }}'
        steps: [{name: mend, http: {on: key, post: /effects, json: {at: 'PLACE guard/catch/mend'}}, RETRY}]
    finally: [{name: close, http: {on: key, post: /effects, json: {at: 'PLACE guard/finally/close'}}, RETRY}]",
        effects: &[
            effect("guard/taken", Sure, ""),
            effect("guard/taken/undo/back", Sure, ""),
            effect("guard/catch/mend", Sure, ""),
            effect("guard/finally/close", Sure, ""),
        ],
    },
];

/// The last part, which tells what has come of all others.
const ENDING: Part = Part {
    steps: "
  - name: told
    set:
      told: {key: '{{ steps.key.n }}', kept: '{{ steps.kept.n }}', found: '{{ steps.found.n }}', window: '{{ steps.window.n }}',
             found_later: \"{{ steps['look-up'].n }}\", nothing: '{{ steps.nothing.n }}', once: '{{ steps.once.n }}',
             repeated: \"{{ steps['repeated-once'].n }}\", hook: '{{ steps.hook.n }}', queued: '{{ steps.queued }}',
             below: '{{ steps.below.n }}', decision: '{{ steps.people.asked.decision }}',
             filled: '{{ steps.people.filled.content }}', early: '{{ steps.people.early }}', late: '{{ steps.people.late }}',
             work: '{{ steps.work }}', id: '{{ vars.id }}', at: '{{ vars.at }}'}
  - {name: broken, if: \"{{ input.end == 'fail' }}\", fail: {code: REFUSED, message: 'it was told to fail'}}
  - name: ending
    parallel:
      soon: [{name: leave, if: \"{{ input.end == 'return' }}\", return: '{{ vars.told }}'}]
      idle: [{name: nap, wait: 10ms}]",
    effects: &[],
};

/// The definition of children, and its effect.
pub(super) const CHILD: &str = "semel: 1
name: everything-below
steps:
  - {name: below, http: {on: key, post: /effects, json: {at: 'PLACE below'}}, RETRY, KEEP}
";

/// The elements of `for_each`.
pub(super) const LINES: [&str; 2] = ["ink", "pens"];

/// Replaces the short words in the texts of parts.
fn spelled(text: &str) -> String {
    text.replace("PLACE", "{{ input.place }}")
        .replace("RETRY", "retry: {attempts: 60, first: 10ms, most: 300ms}")
        .replace("STAY", "retry: {attempts: for-ever, first: 20ms, most: 400ms}")
        .replace("KEEP", "keep: {n: '{{ this.body.n }}'}")
}

/// All parts, in the order of the definition.
fn all() -> impl Iterator<Item = &'static Part> {
    PARTS.iter().chain(TASKS).chain([&ENDING])
}

/// The definitions that are pushed: the child first. `stream` is the name of the streams of brokers.
pub(super) fn definitions(stream: &str) -> [String; 2] {
    let head = "semel: 1
name: everything
input: {type: object, required: [place, lines, end], properties: {place: {type: string}, lines: {type: array}, end: {type: string}}}
hooks: {changes: '{{ input.place }}:changes'}
steps:";
    let steps: String = all().map(|part| part.steps).collect();
    let tail = "\nreturn: '{{ vars.told }}'\n";
    [spelled(CHILD), format!("{head}{}{tail}", spelled(&steps).replace("STREAM", stream))]
}

/// All effects of a run.
pub(super) fn effects() -> impl Iterator<Item = &'static PartEffect> {
    all().flat_map(|part| part.effects)
}
