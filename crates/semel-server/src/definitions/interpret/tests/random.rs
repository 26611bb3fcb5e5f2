//! Random definitions, each undisturbed and then killed before and after every one of its writes: effects and result are those that the
//! document says. `SEMEL_SEED=7` plays definition 7 alone, and `SEMEL_SEED=200..1000` these.

use std::collections::{BTreeMap, HashSet};

use semel::Error;
use semel::rules::entry::{Entry, Outcome};
use semel::rules::status::Status;
use semel::testing::{Crasher, Dice, Scene};
use serde_json::{Map, Value as Json, json};

use super::effect::Doings;
use super::{Fixed, TESTED, definition};

/// Definitions that are played if nothing is said.
const DEFINITIONS: u64 = 60;
/// Steps that a definition has, about.
const STEPS: u32 = 7;
const DEPTH: u32 = 3;

/// A step of a definition. `n` is its number, different in all of the definition.
#[derive(Clone, Debug)]
enum Act {
    Effect { n: u32, undo: bool },
    Skipped { n: u32 },
    Wait { n: u32, seconds: u64 },
    Set { n: u32 },
    Parallel { n: u32, branches: Vec<Vec<Act>> },
    ForEach { n: u32, times: u32, parallel: u32, acts: Vec<Act> },
    Loop { n: u32, times: u32, before: bool, acts: Vec<Act> },
    Switch { n: u32, chosen: u32, acts: Vec<Act> },
    Try { n: u32, fails: bool, acts: Vec<Act>, mend: Vec<Act>, close: Vec<Act> },
}

/// How a definition ends, after its acts.
#[derive(Clone, Debug)]
enum End {
    Completes,
    Fails,
    /// By a `return` inside of these blocks.
    Returns(Vec<Around>),
    /// By a graceful cancel, while it waits inside of these blocks.
    Cancelled(Vec<Around>),
}

/// A block around one step.
#[derive(Clone, Debug)]
enum Around {
    ForEach {
        n: u32,
    },
    Loop,
    Switch,
    Parallel,
    /// With an effect that takes place in any case.
    Try {
        n: u32,
    },
}

/// A definition.
#[derive(Clone, Debug)]
struct Drawn {
    acts: Vec<Act>,
    end: End,
}

struct Drawer {
    dice: Dice,
    last: u32,
    left: u32,
}

impl Drawer {
    fn next(&mut self) -> u32 {
        self.left = self.left.saturating_sub(1);
        self.last += 1;
        self.last
    }

    /// A list ends with an effect, whose value is that of the list.
    fn list(&mut self, depth: u32, undo: bool) -> Vec<Act> {
        let mut acts = Vec::new();
        for _ in 0..self.dice.below(3) {
            if self.left > 0 {
                acts.push(self.act(depth, undo));
            }
        }
        acts.push(self.effect(undo));
        acts
    }

    fn effect(&mut self, undo: bool) -> Act {
        let undo = undo && self.dice.percent(60);
        Act::Effect { n: self.next(), undo }
    }

    fn act(&mut self, depth: u32, undo: bool) -> Act {
        if depth == 0 {
            return self.effect(undo);
        }
        match self.dice.below(16) {
            0..=3 => self.effect(undo),
            4 => Act::Skipped { n: self.next() },
            5 => Act::Wait { n: self.next(), seconds: self.dice.between(1, 600) },
            6 => Act::Set { n: self.next() },
            7 | 8 => {
                let n = self.next();
                let branches = (0..self.dice.between(2, 3)).map(|_| self.list(depth - 1, undo)).collect();
                Act::Parallel { n, branches }
            }
            9 | 10 => {
                let (n, times, parallel) = (self.next(), self.dice.some(1, 3), self.dice.some(1, 3));
                Act::ForEach { n, times, parallel, acts: self.list(depth - 1, undo) }
            }
            11 | 12 => {
                let (n, times, before) = (self.next(), self.dice.some(1, 3), self.dice.percent(50));
                Act::Loop { n, times, before, acts: self.list(depth - 1, undo) }
            }
            13 => {
                let (n, chosen) = (self.next(), self.dice.some(0, 2));
                Act::Switch { n, chosen, acts: self.list(depth - 1, undo) }
            }
            _ => {
                let (n, fails) = (self.next(), self.dice.percent(60));
                let (acts, mend) = (self.list(depth - 1, undo), self.list(0, undo));
                // What is done in any case is not undone here: after a failure it is part of the clean-up.
                Act::Try { n, fails, acts, mend, close: self.list(0, false) }
            }
        }
    }
}

impl Drawer {
    fn around(&mut self) -> Vec<Around> {
        let depth = self.dice.between(1, 3);
        (0..depth).map(|_| self.one_around()).collect()
    }

    fn one_around(&mut self) -> Around {
        match self.dice.below(6) {
            0 => Around::ForEach { n: self.next() },
            1 => Around::Loop,
            2 => Around::Switch,
            3 => Around::Parallel,
            _ => Around::Try { n: self.next() },
        }
    }

    fn end(&mut self) -> End {
        match self.dice.below(10) {
            0..=3 => End::Fails,
            4 | 5 => End::Returns(self.around()),
            6 | 7 => End::Cancelled(self.around()),
            _ => End::Completes,
        }
    }
}

fn draw(seed: u64) -> Drawn {
    let mut drawer = Drawer { dice: Dice::named(seed, "definition"), last: 0, left: STEPS };
    let mut acts = Vec::new();
    while drawer.left > 0 {
        let act = drawer.act(DEPTH, true);
        acts.push(act);
    }
    acts.push(drawer.effect(true));
    Drawn { acts, end: drawer.end() }
}

/// The last steps of a definition that ends in this way.
fn last_steps(end: &End) -> Vec<Json> {
    let never = || json!({"name": "never", "worker": {"queue": "never"}});
    match end {
        End::Completes => Vec::new(),
        End::Fails => vec![json!({"name": "end", "fail": {"code": "LAST"}})],
        End::Returns(around) => {
            vec![wrapped(around, json!({"name": "found", "return": {"returned": "{{ input.x }}"}})), never()]
        }
        End::Cancelled(around) => {
            vec![wrapped(around, json!({"name": "silence", "event": {"token": SILENCE}})), never()]
        }
    }
}

/// A step inside of blocks, the first of them around all others.
fn wrapped(around: &[Around], step: Json) -> Json {
    around.iter().rev().fold(step, |inside, around| match around {
        Around::ForEach { n } => {
            let each = json!({"in": [7], "as": format!("k{n}")});
            json!({"name": "each", "for_each": each, "steps": [inside]})
        }
        Around::Loop => {
            json!({"name": "loop", "loop": {"while": "{{ index < 1 }}", "most": 1}, "steps": [inside]})
        }
        Around::Switch => json!({"name": "case", "switch": [{"steps": [inside]}]}),
        Around::Parallel => json!({"name": "both", "parallel": {"one": [inside]}}),
        Around::Try { n } => {
            let close = json!({"name": format!("s{n}"), "worker": {"queue": format!("e{n}")}});
            let never = json!([{"steps": [{"name": "never", "worker": {"queue": "never"}}]}]);
            json!({"name": format!("t{n}"), "try": [inside], "catch": never, "finally": [close]})
        }
    })
}

/// The steps as JSON, which is YAML. `inside` says that there is an `index`.
fn steps(acts: &[Act], inside: bool) -> Vec<Json> {
    acts.iter().map(|act| step(act, inside)).collect()
}

fn step(act: &Act, inside: bool) -> Json {
    let name = |n: u32| format!("s{n}");
    let all = |acts: &[Act]| steps(acts, inside);
    match act {
        Act::Effect { n, undo } => {
            let index = if inside { json!("{{ index }}") } else { json!(0) };
            let input = json!({"v": n, "i": index});
            let mut step = json!({"name": name(*n), "worker": {"queue": format!("e{n}"), "input": input}});
            if *undo {
                step["undo"] = json!([{"name": "back", "worker": {"queue": format!("u{n}")}}]);
            }
            step
        }
        Act::Skipped { n } => {
            json!({"name": name(*n), "if": "{{ input.x == 0 }}", "worker": {"queue": "never"}})
        }
        Act::Wait { n, seconds } => json!({"name": name(*n), "wait": format!("{seconds}s")}),
        Act::Set { n } => json!({"name": name(*n), "set": {format!("v{n}"): "{{ input.x + 1 }}"}}),
        Act::Parallel { n, branches } => {
            let branches: Map<String, Json> =
                branches.iter().enumerate().map(|(b, acts)| (format!("b{b}"), all(acts).into())).collect();
            json!({"name": name(*n), "parallel": branches})
        }
        Act::ForEach { n, times, parallel, acts } => {
            let items: Vec<String> = (0..*times).map(|item| format!("k{item}")).collect();
            let each = json!({"in": items, "as": format!("k{n}"), "key": format!("{{{{ k{n} }}}}"), "parallel": parallel});
            json!({"name": name(*n), "for_each": each, "steps": steps(acts, true)})
        }
        Act::Loop { n, times, before: true, acts } => {
            let goes_on = format!("{{{{ index < {times} }}}}");
            json!({"name": name(*n), "loop": {"while": goes_on, "most": 5}, "steps": steps(acts, true)})
        }
        Act::Loop { n, times, before: false, acts } => {
            let until = format!("{{{{ steps.{}.i == {} }}}}", name(last(acts)), times - 1);
            json!({"name": name(*n), "loop": {"until": until, "most": 5}, "steps": steps(acts, true)})
        }
        Act::Switch { n, chosen, acts } => {
            let never = json!([{"name": "never", "worker": {"queue": "never"}}]);
            let case =
                |x: u32, steps: Json| json!({"when": format!("{{{{ input.x == {x} }}}}"), "steps": steps});
            let mut cases: Vec<Json> = (0..*chosen).map(|x| case(x + 2, never.clone())).collect();
            cases.push(case(1, all(acts).into()));
            cases.push(json!({"steps": never}));
            json!({"name": name(*n), "switch": cases})
        }
        Act::Try { n, fails, acts, mend, close } => {
            let mut tried = all(acts);
            if *fails {
                tried.push(json!({"name": "bad", "fail": {"code": "BAD"}}));
            }
            let when = "{{ error.code == 'BAD' }}";
            json!({"name": name(*n), "try": tried, "catch": [{"when": when, "steps": all(mend)}], "finally": all(close)})
        }
    }
}

fn last(acts: &[Act]) -> u32 {
    match acts.last() {
        Some(Act::Effect { n, .. }) => *n,
        other => panic!("a list ends with an effect, and not with {other:?}"),
    }
}

/// How often each effect takes place.
type Times = BTreeMap<String, u32>;

/// Counts the effects of a list that is executed so often; gives what has to be undone if something around it fails.
fn count(acts: &[Act], times: u32, done: &mut Times) -> Vec<(String, u32)> {
    let mut open = Vec::new();
    for act in acts {
        match act {
            Act::Effect { n, undo } => {
                *done.entry(format!("e{n}")).or_default() += times;
                open.extend(undo.then(|| (format!("u{n}"), times)));
            }
            Act::Skipped { .. } | Act::Wait { .. } | Act::Set { .. } => {}
            Act::Parallel { branches, .. } => {
                for acts in branches {
                    open.extend(count(acts, times, done));
                }
            }
            Act::ForEach { times: passes, acts, .. } | Act::Loop { times: passes, acts, .. } => {
                open.extend(count(acts, times * passes, done));
            }
            Act::Switch { acts, .. } => open.extend(count(acts, times, done)),
            Act::Try { fails, acts, mend, close, .. } => {
                let inside = count(acts, times, done);
                if *fails {
                    undo(inside, done);
                    open.extend(count(mend, times, done));
                } else {
                    open.extend(inside);
                }
                open.extend(count(close, times, done));
            }
        }
    }
    open
}

fn undo(open: Vec<(String, u32)>, done: &mut Times) {
    for (name, times) in open {
        *done.entry(name).or_default() += times;
    }
}

/// The value of a list in the pass with this number.
fn value_of(acts: &[Act], index: u32) -> Json {
    json!({"v": last(acts), "i": index})
}

/// The value of a step at the top, if it has one.
fn value(act: &Act) -> Option<(u32, Json)> {
    let passes = |acts: &[Act], times: u32| (0..times).map(|index| value_of(acts, index)).collect();
    Some(match act {
        Act::Skipped { .. } | Act::Wait { .. } => return None,
        Act::Effect { n, .. } => (*n, json!({"v": n, "i": 0})),
        Act::Set { n } => (*n, json!({format!("v{n}"): 2})),
        Act::Parallel { n, branches } => {
            let branch = |(b, acts): (usize, &Vec<Act>)| (format!("b{b}"), value_of(acts, 0));
            (*n, Json::Object(branches.iter().enumerate().map(branch).collect()))
        }
        Act::ForEach { n, times, acts, .. } | Act::Loop { n, times, acts, .. } => (*n, passes(acts, *times)),
        Act::Switch { n, acts, .. } => (*n, value_of(acts, 0)),
        Act::Try { n, fails, acts, mend, .. } => (*n, value_of(if *fails { mend } else { acts }, 0)),
    })
}

/// The numbers of all choices.
fn choices(acts: &[Act], found: &mut HashSet<String>) {
    for act in acts {
        match act {
            Act::Switch { n, acts, .. } => {
                found.insert(format!("s{n}"));
                choices(acts, found);
            }
            Act::Parallel { branches, .. } => branches.iter().for_each(|acts| choices(acts, found)),
            Act::ForEach { acts, .. } | Act::Loop { acts, .. } | Act::Try { acts, .. } => {
                choices(acts, found);
            }
            Act::Effect { .. } | Act::Skipped { .. } | Act::Wait { .. } | Act::Set { .. } => {}
        }
    }
}

/// Says which definition it was.
struct Seed(u64, String);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("SEMEL_SEED={} is\n{}", self.0, self.1);
        }
    }
}

/// Effects of a definition, and its outcome as it is told.
fn expected(drawn: &Drawn, values: &BTreeMap<String, Json>) -> (Times, Result<Json, String>) {
    let mut done = Times::new();
    let open = count(&drawn.acts, 1, &mut done);
    if let End::Returns(around) | End::Cancelled(around) = &drawn.end {
        for around in around {
            if let Around::Try { n } = around {
                *done.entry(format!("e{n}")).or_default() += 1;
            }
        }
    }
    let outcome = match &drawn.end {
        End::Completes => Ok(json!(values)),
        End::Returns(_) => Ok(json!({"returned": 1})),
        End::Fails => Err("LAST".to_owned()),
        End::Cancelled(_) => Err("cancelled: enough".to_owned()),
    };
    if outcome.is_err() {
        undo(open, &mut done);
    }
    (done, outcome)
}

/// Token of the hook at which a run waits that is cancelled.
const SILENCE: &str = "silence";

/// Starts the definition, cancels it if that is its end, and gives its outcome.
async fn script(scene: Scene<Doings>, is_cancelled: bool) -> Result<Result<Json, String>, Error> {
    let run = scene.engine().start(TESTED, json!({"x": 1})).key("k").await?;
    if is_cancelled {
        let has_ended = async || scene.status(run.id()).await.is_ok_and(Status::is_terminal);
        scene.until(async || has_ended().await || matches!(scene.owner(SILENCE).await, Ok(Some(_)))).await;
        run.request_cancel("enough").await?;
    }
    Ok(match run.outcome().await? {
        Outcome::Completed(value) => Ok(value.read::<Json>().unwrap()),
        Outcome::Failed(failure) => Err(failure.code.unwrap_or(failure.message)),
        Outcome::Cancelled(reason) => Err(format!("cancelled: {reason}")),
        other => Err(format!("{other:?}")),
    })
}

fn play(seed: u64) {
    let drawn = draw(seed);
    let mut all = steps(&drawn.acts, false);
    all.extend(last_steps(&drawn.end));
    let values: BTreeMap<String, Json> =
        drawn.acts.iter().filter_map(value).map(|(n, value)| (format!("s{n}"), value)).collect();
    let told: Map<String, Json> =
        values.keys().map(|name| (name.clone(), format!("{{{{ steps.{name} }}}}").into())).collect();
    let text = format!("steps: {}\nreturn: {}", Json::from(all), Json::from(told));
    let seed = Seed(seed, text.clone());
    let (expected, outcome) = expected(&drawn, &values);
    let mut chosen = HashSet::new();
    choices(&drawn.acts, &mut chosen);
    let is_cancelled = matches!(drawn.end, End::Cancelled(_));
    let crasher = Crasher::new(
        Doings::default,
        move |doings: &Doings, builder| builder.state(doings.clone()).programs(Fixed(definition(&text))),
        async move |scene: Scene<Doings>| script(scene, is_cancelled).await,
    );
    let plays = crasher.every_boundary(|ended| {
        assert_eq!(ended.value, outcome, "the result\n{}", ended.history());
        let effects = &ended.world.effects;
        let found: Times =
            effects.names().into_iter().map(|name| (name.clone(), effects.applied(&name))).collect();
        assert_eq!(found, expected, "the effects\n{}", ended.history());
        let recorded: HashSet<String> = ended
            .history()
            .entries()
            .filter_map(|entry| match entry {
                Entry::Recorded { at, .. } => at.to_string().rsplit('/').next().map(str::to_owned),
                _ => None,
            })
            .collect();
        assert!(recorded.is_superset(&chosen), "the choices {chosen:?} are recorded\n{}", ended.history());
    });
    assert!(plays > 2, "{plays}");
    drop(seed);
}

/// The seeds that are wanted.
fn seeds() -> std::ops::Range<u64> {
    let chosen = std::env::var("SEMEL_SEED").ok().and_then(|seeds| {
        let (first, end) = seeds.split_once("..").unwrap_or((&seeds, ""));
        let first = first.parse().ok()?;
        Some(first..end.parse().unwrap_or(first + 1))
    });
    chosen.unwrap_or(0..DEFINITIONS)
}

#[test]
fn random_definitions_do_everything_once() {
    seeds().for_each(play);
}
