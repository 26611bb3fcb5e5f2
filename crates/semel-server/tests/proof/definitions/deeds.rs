//! What was done outside, by the place and path of the step that asked for it.

use std::collections::BTreeMap;

use semel::clock::Time;

use crate::findings::{Findings, Sort};
use crate::nemesis::{Kill, SERVER_KILLS};

/// All that the other sides have counted.
#[derive(Clone, Debug, Default)]
pub(super) struct Deeds {
    /// Numbers of what was done, one for each time.
    pub(super) done: BTreeMap<String, Vec<u64>>,
    /// Calls of models and tools, repetitions included.
    pub(super) calls: BTreeMap<String, Called>,
    /// Requests that asked for something, repetitions included.
    pub(super) asked: u64,
    /// Requests that were recognised as repetitions.
    pub(super) absorbed: u64,
    /// Repetitions that were not the same request.
    pub(super) changed: Vec<String>,
}

/// The calls of one step.
#[derive(Clone, Debug)]
pub(super) struct Called {
    /// The figure that counts the kills of what was called.
    pub(super) killed: &'static str,
    /// When each call arrived.
    pub(super) times: Vec<Time>,
}

impl Called {
    /// How many of these kills can have repeated a call: those of the server and of what was called, between the first call and the
    /// last.
    pub(super) fn disturbed_by(&self, kills: &[Kill]) -> usize {
        let (Some(first), Some(last)) = (self.times.iter().min(), self.times.iter().max()) else { return 0 };
        let between = |kill: &&Kill| kill.begun <= *last && kill.ended >= *first;
        let is_meant = |kill: &&Kill| kill.figure == SERVER_KILLS || kill.figure == self.killed;
        kills.iter().filter(between).filter(is_meant).count()
    }
}

impl Deeds {
    /// Adds something that was asked for once, and done.
    pub(super) fn add(&mut self, at: &str, number: u64) {
        self.asked += 1;
        self.done.entry(at.to_owned()).or_default().push(number);
    }

    /// How often something was done.
    pub(super) fn times(&self, at: &str) -> usize {
        self.done.get(at).map_or(0, Vec::len)
    }

    /// Tells of everything that was done more than once.
    pub(super) fn tell_doubled(&self, findings: &Findings) {
        for (at, numbers) in self.done.iter().filter(|(_, numbers)| numbers.len() > 1) {
            findings.add(Sort::Doubled, "", at, format!("it was done {} times: {numbers:?}", numbers.len()));
        }
    }
}

/// Kills before and after the calls, and of what was not called, explain nothing.
pub(super) fn explained() {
    let called = Called { killed: "kills of the model", times: vec![Time(30), Time(10), Time(20)] };
    let kill = |figure, begun, ended| Kill { figure, begun: Time(begun), ended: Time(ended) };
    for (kills, explained) in [
        (vec![], 0),
        (vec![kill(SERVER_KILLS, 1, 9), kill(called.killed, 31, 40)], 0),
        (vec![kill("kills of NATS", 15, 16)], 0),
        (vec![kill(SERVER_KILLS, 15, 16), kill(called.killed, 25, 40)], 2),
    ] {
        assert_eq!(called.disturbed_by(&kills), explained, "{kills:?}");
    }
}
