//! Random workflow programs: what they are made of, how they are drawn, and what must have come of them.

use std::collections::HashSet;

use semel::testing::Dice;
use serde::{Deserialize, Serialize};

use crate::bulk::Bulk;

/// One thing that a program does. `n` is its name, different in all of a program.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Act {
    /// A step with a key.
    Step { n: u32 },
    /// A step that fails with a fatal error after its effect took place; the program goes on.
    Fatal { n: u32 },
    /// A step that must not be called twice.
    Letter { n: u32 },
    /// A step with a look-up.
    Asked { n: u32 },
    /// A transaction in the database of the harness.
    Tx { n: u32 },
    /// A step for a queue.
    Remote { n: u32 },
    /// The same step several times, told apart by key or by count.
    Repeat { n: u32, times: u32, indexed: bool },
    /// Parts of a program several times, each in a scope of its own.
    Loop { n: u32, times: u32, acts: Vec<Act> },
    /// Two parts at once.
    Join { n: u32, left: Vec<Act>, right: Vec<Act> },
    /// A part against a limit that it may reach.
    Race { n: u32, millis: u64, acts: Vec<Act> },
    /// A wait between two steps, whose calls tell how long it was.
    Nap { n: u32, millis: u64 },
    /// A hook, and how much it receives.
    Hook { n: u32, payloads: u32 },
    /// Something once among all runs.
    Once { label: u32 },
    /// Another run.
    Child { n: u32, acts: Vec<Act> },
    /// Large values at the same moment.
    Bulk(Bulk),
    /// A text that makes the input of a run large, and its result.
    Ballast { text: String },
}

/// A program, and the place at which it is executed, different for every run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Program {
    pub(crate) place: String,
    pub(crate) acts: Vec<Act>,
}

/// How an effect is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Kind {
    /// The recorder knows keys: whatever is asked again is absorbed.
    Keyed,
    /// The recorder applies whatever it is asked for.
    Blind,
    /// A row in the database of the harness.
    Row,
}

/// An effect of a program.
#[derive(Clone, Debug)]
pub(crate) struct Effect {
    /// Place and path.
    pub(crate) at: String,
    pub(crate) kind: Kind,
    /// Whether it must have taken place if the run has completed.
    pub(crate) required: bool,
    /// Whether its number is in the run's result then.
    pub(crate) told: bool,
}

/// A wait: the steps around it, and its length.
#[derive(Clone, Debug)]
pub(crate) struct Nap {
    pub(crate) before: String,
    pub(crate) after: String,
    pub(crate) millis: u64,
}

/// What a program must have come to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Expected {
    pub(crate) effects: Vec<Effect>,
    /// Tokens, and how many payloads each is to get.
    pub(crate) tokens: Vec<(String, u32)>,
    pub(crate) naps: Vec<Nap>,
    /// Where it is executed, with the places of its children.
    pub(crate) places: Vec<String>,
    /// Those of its places that ask for what others make. A message says when they have; who has looked before does not need
    /// it.
    pub(crate) asking: HashSet<String>,
}

/// The two parts of a clean-up.
pub(crate) const PARTS: [&str; 2] = ["one", "two"];

/// The step of a clean-up, as the recorder knows it.
pub(crate) fn cleaned(place: &str, part: &str) -> String {
    format!("{place} clean up[{part}]")
}

/// The token of a hook. A scope ends with a slash, which would have to be escaped in addresses.
pub(crate) fn token(place: &str, scope: &str, n: u32) -> String {
    format!("{place}:{}h{n}", scope.replace('/', "."))
}

/// The place of a child.
pub(crate) fn below(place: &str, scope: &str, n: u32) -> String {
    format!("{place}.{}{n}", scope.replace('/', "."))
}

impl Expected {
    pub(crate) fn of(program: &Program) -> Self {
        let mut expected = Self::default();
        expected.run(&program.place, &program.acts, true);
        expected
    }

    /// A run at a place of its own.
    fn run(&mut self, place: &str, acts: &[Act], required: bool) {
        self.places.push(place.to_owned());
        for act in acts {
            self.add(place, "", act, required);
        }
    }

    fn all(&mut self, place: &str, scope: &str, acts: &[Act], required: bool) {
        for act in acts {
            self.add(place, scope, act, required);
        }
    }

    fn effect(&mut self, at: String, kind: Kind, required: bool) {
        self.effects.push(Effect { at, kind, required, told: true });
    }

    fn add(&mut self, place: &str, scope: &str, act: &Act, required: bool) {
        let at = |name: String| format!("{place} {scope}{name}");
        match act {
            Act::Step { n } | Act::Remote { n } => self.effect(at(format!("s{n}")), Kind::Keyed, required),
            Act::Fatal { n } => {
                self.effects.push(Effect {
                    at: at(format!("s{n}")),
                    kind: Kind::Keyed,
                    required,
                    told: false,
                });
            }
            Act::Letter { n } | Act::Asked { n } => self.effect(at(format!("s{n}")), Kind::Blind, required),
            Act::Tx { n } => self.effect(at(format!("s{n}")), Kind::Row, required),
            Act::Repeat { n, times, indexed } => {
                for i in 1..=*times {
                    let name = match (indexed, i) {
                        (true, 1) => format!("s{n}"),
                        (true, _) => format!("s{n}#{i}"),
                        (false, _) => format!("s{n}[{i}]"),
                    };
                    self.effect(at(name), Kind::Keyed, required);
                }
            }
            Act::Loop { n, times, acts } => {
                for i in 0..*times {
                    self.all(place, &format!("{scope}l{n}-{i}/"), acts, required);
                }
            }
            Act::Join { n, left, right } => {
                self.all(place, &format!("{scope}left{n}/"), left, required);
                self.all(place, &format!("{scope}right{n}/"), right, required);
            }
            Act::Race { n, acts, .. } => self.all(place, &format!("{scope}race{n}/"), acts, false),
            Act::Nap { n, millis } => {
                let (before, after) = (at(format!("b{n}")), at(format!("a{n}")));
                self.effect(before.clone(), Kind::Keyed, required);
                self.effect(after.clone(), Kind::Keyed, required);
                self.naps.push(Nap { before, after, millis: *millis });
            }
            Act::Hook { n, payloads } => self.tokens.push((token(place, scope, *n), *payloads)),
            Act::Once { .. } => {
                self.asking.insert(place.to_owned());
            }
            Act::Child { n, acts } => self.run(&below(place, scope, *n), acts, required),
            Act::Bulk(bulk) => {
                bulk.steps().for_each(|name| self.effect(at(name), Kind::Keyed, required));
                self.tokens.extend(bulk.tokens(place).map(|token| (token, 1)));
                self.places.extend(bulk.places(place));
            }
            Act::Ballast { .. } => {}
        }
    }
}

/// Draws a program for a place.
pub(crate) fn draw(dice: &mut Dice, place: String) -> Program {
    let left = dice.between(4, 9) as u32;
    let mut drawer = Drawer { dice, last: 0, left };
    let mut acts = Vec::new();
    while drawer.left > 0 {
        acts.extend(drawer.acts(2));
    }
    Program { place, acts }
}

struct Drawer<'a> {
    dice: &'a mut Dice,
    last: u32,
    /// So many more things may be drawn.
    left: u32,
}

impl Drawer<'_> {
    fn some(&mut self, least: u64, most: u64) -> u32 {
        self.dice.between(least, most) as u32
    }

    fn acts(&mut self, depth: u32) -> Vec<Act> {
        let wanted = self.some(1, 3) as usize;
        let mut acts = Vec::new();
        while acts.len() < wanted && self.left > 0 {
            acts.push(self.act(depth));
        }
        acts
    }

    /// What has only steps in it, as much as fits into a race.
    fn plain(&mut self) -> Act {
        self.left = self.left.saturating_sub(1);
        self.last += 1;
        let n = self.last;
        match self.dice.below(12) {
            0..=3 => Act::Step { n },
            4 => Act::Fatal { n },
            5 | 6 => Act::Letter { n },
            7 => Act::Asked { n },
            8 | 9 => Act::Tx { n },
            10 => Act::Nap { n, millis: self.dice.between(5, 60) },
            _ => Act::Repeat { n, times: self.some(1, 3), indexed: self.dice.percent(50) },
        }
    }

    fn act(&mut self, depth: u32) -> Act {
        let kind = self.dice.below(100);
        if depth == 0 || kind < 60 {
            return self.plain();
        }
        self.left = self.left.saturating_sub(1);
        self.last += 1;
        let n = self.last;
        match kind {
            60..=64 => Act::Remote { n },
            65..=69 => Act::Hook { n, payloads: self.some(1, 3) },
            70..=74 => Act::Once { label: self.some(0, 15) },
            75..=79 => Act::Nap { n, millis: self.dice.between(50, 400) },
            80..=84 => Act::Loop { n, times: self.some(1, 2), acts: self.acts(depth - 1) },
            85..=89 => Act::Join { n, left: self.acts(depth - 1), right: self.acts(depth - 1) },
            90..=93 => {
                let (millis, acts) = (self.dice.between(20, 200), vec![self.plain(), self.plain()]);
                Act::Race { n, millis, acts }
            }
            _ => Act::Child { n, acts: self.acts(depth - 1) },
        }
    }
}
