//! What was done outside, by the place and path of the step that asked for it.

use std::collections::BTreeMap;

use crate::findings::{Findings, Sort};

/// All that the other sides have counted.
#[derive(Clone, Debug, Default)]
pub(super) struct Deeds {
    /// Numbers of what was done, one for each time.
    pub(super) done: BTreeMap<String, Vec<u64>>,
    /// Calls of models and tools, repetitions included.
    pub(super) calls: BTreeMap<String, u64>,
    /// Requests that asked for something, repetitions included.
    pub(super) asked: u64,
    /// Requests that were recognised as repetitions.
    pub(super) absorbed: u64,
    /// Repetitions that were not the same request.
    pub(super) changed: Vec<String>,
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
