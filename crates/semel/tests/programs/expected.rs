//! What a program must have done in the end.

use semel::rules::json::Payload;
use serde::Serialize;

use super::{Act, Program, bulk, shared_name, token};

/// How often effects of one name take place.
#[derive(Debug, Serialize)]
pub(crate) struct Count {
    pub(crate) name: String,
    /// The least number of keys, if the program ends.
    pub(crate) least: u32,
    /// Maximum number, whatever happens.
    pub(crate) most: u32,
    /// Additional number if the run was restarted from the beginning, and could decide anew.
    #[serde(skip)]
    pub(crate) anew: u32,
    pub(crate) calls: Calls,
}

/// How often one effect is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Calls {
    /// Once.
    One,
    /// Again after a crash that hid its end.
    Several,
    /// The value of the first to ask: all programs share it.
    Shared,
    /// In a transaction, whose rows are counted.
    Rows,
}

/// What a program must have done in the end.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Expected {
    /// Effects by name.
    pub(crate) effects: Vec<Count>,
    /// Tokens, and how many payloads each is to get.
    #[serde(skip)]
    pub(crate) tokens: Vec<(String, u32)>,
    /// Tokens that get a large payload: the token, its part and the kibibytes.
    #[serde(skip)]
    bulky: Vec<(String, u32, u32)>,
    /// What it gives; none where that depends on others.
    pub(crate) values: Vec<Option<String>>,
    /// Maximum number of bodies that are at work at the same time: that number of effects can be repeated after one crash.
    pub(crate) at_once: u32,
}

impl Expected {
    pub(crate) fn of(program: &Program) -> Self {
        Self { at_once: at_once(&program.1), ..Self::default() }.and(program)
    }

    /// The same with another program.
    pub(crate) fn and(mut self, (place, acts): &Program) -> Self {
        self.add_all(place, acts, true);
        self
    }

    /// What is to be delivered to a token, after this number of payloads.
    pub(crate) fn payload(&self, token: &str, nth: u32) -> Payload {
        let payload = match self.bulky.iter().find(|(bulky, ..)| bulky == token) {
            Some((_, part, kib)) => Payload::of(&bulk::ballast(*part, *kib)),
            None => Payload::of(&nth),
        };
        payload.expect("numbers and texts can be kept")
    }

    /// Whether this is what it gives.
    pub(crate) fn fits(&self, values: &[String]) -> bool {
        let fits = |(wanted, value): (&Option<String>, &String)| wanted.as_ref().is_none_or(|w| w == value);
        self.values.len() == values.len() && self.values.iter().zip(values).all(fits)
    }

    fn add_all(&mut self, place: &str, acts: &[Act], certain: bool) {
        for act in acts {
            self.add(place, act, certain);
        }
    }

    fn count(&mut self, name: String, times: u32, calls: Calls, certain: bool) {
        let least = if certain { times } else { 0 };
        match self.effects.iter_mut().find(|known| known.name == name) {
            Some(count) if calls == Calls::Shared => count.least = count.least.max(least),
            Some(count) => (count.least, count.most) = (count.least + least, count.most + times),
            None => self.effects.push(Count { name, least, most: times, anew: 0, calls }),
        }
    }

    fn says(&mut self, value: impl Into<String>) {
        self.values.push(Some(value.into()));
    }

    fn add(&mut self, place: &str, act: &Act, certain: bool) {
        match act {
            Act::Step { n, .. } => {
                self.count(format!("s{n}"), 1, Calls::Several, certain);
                self.says(format!("s{n}"));
            }
            Act::Fatal { n } => {
                self.count(format!("f{n}"), 1, Calls::Several, certain);
                self.says(format!("f{n} failed"));
            }
            Act::Fails { n, .. } => {
                self.count(format!("x{n}"), 1, Calls::Several, certain);
                self.says(format!("x{n}"));
            }
            Act::Letter { n } => {
                self.count(format!("m{n}"), 1, Calls::One, certain);
                self.says(format!("m{n}"));
            }
            Act::Asked { n, .. } => {
                self.count(format!("a{n}"), 1, Calls::One, certain);
                self.says(format!("a{n}"));
            }
            Act::Pay { n } => {
                self.count(format!("t{n}"), 1, Calls::Rows, certain);
                self.says(format!("t{n}"));
            }
            Act::Repeat { n, times, .. } => {
                self.count(format!("r{n}"), *times, Calls::Several, certain);
                (0..*times).for_each(|i| self.says(format!("r{n}.{i}")));
            }
            Act::Once { n, shared } => {
                let (name, calls) = match shared {
                    true => (shared_name(*n), Calls::Shared),
                    false => (format!("o{n}"), Calls::Several),
                };
                self.count(name.clone(), 1, calls, certain);
                self.says(name);
            }
            Act::Loop { n, times, acts } => {
                for i in 0..*times {
                    self.add_all(&format!("{place}/l{n}-{i}"), acts, certain);
                }
            }
            Act::Join { left, right, .. } => {
                self.add_all(place, left, certain);
                self.add_all(place, right, certain);
            }
            Act::Race { late, far, acts, .. } => {
                let said = self.values.len();
                self.add_all(place, acts, certain && *far);
                if *late {
                    self.values.truncate(said);
                    self.says("too late");
                }
            }
            Act::Child { n, acts } => self.add_all(&format!("{place}/c{n}"), acts, certain),
            Act::Hook { n, recv, recv_for, in_vain } => {
                self.tokens.push((token(place, *n), recv + recv_for));
                // Who brings it may bring too much, if runs follow each other that want the same token.
                self.values.extend((0..recv + recv_for + u32::from(in_vain.is_some())).map(|_| None));
            }
            Act::Close { n, .. } => {
                let name = format!("c{n}");
                self.count(name.clone(), 1, Calls::Several, certain);
                self.effects.iter_mut().filter(|count| count.name == name).for_each(|count| count.anew += 1);
                self.values.push(None);
            }
            Act::Door { .. } => self.values.push(None),
            Act::Bulk { n, parts, kib } => {
                self.count(format!("b{n}"), *parts, Calls::Several, certain);
                for part in 0..*parts {
                    let token = bulk::token(place, *n, part);
                    self.tokens.push((token.clone(), 1));
                    self.bulky.push((token, part, *kib));
                }
                self.says(format!("b{n}"));
            }
            // Its parent looks at it.
            Act::Ballast { .. } => self.values.push(None),
            Act::Sleep { .. } => self.says("slept"),
            Act::Values { .. } => self.says("the same"),
        }
    }
}

/// Maximum number of bodies that are at work at the same time.
fn at_once(acts: &[Act]) -> u32 {
    let of = |act: &Act| match act {
        Act::Join { left, right, .. } => at_once(left) + at_once(right),
        Act::Loop { acts, .. } | Act::Race { acts, .. } | Act::Child { acts, .. } => at_once(acts),
        _ => 1,
    };
    acts.iter().map(of).max().unwrap_or(0)
}
