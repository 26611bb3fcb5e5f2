//! The outside world: counts the calls, and remembers which attempts are refused from now on.

use std::collections::{HashMap, HashSet};

use libtest_mimic::Failed;

/// What the parent knows of all effects, from all workers.
#[derive(Default)]
pub(super) struct Recorder {
    /// The keys under which each effect was asked for, one per call.
    calls: HashMap<(u64, String), Vec<String>>,
    /// Keys of effects that a look-up has reported as absent, and the fence from which on they may take place:
    /// a zombie must not do it after all.
    closed: HashMap<String, u64>,
    rates: HashMap<String, u64>,
    runs: HashMap<u64, String>,
    pub(super) ended: HashMap<u64, (u64, u64)>,
    pub(super) doubts: usize,
    pub(super) poisoned: usize,
    pub(super) zombies: usize,
    /// Answers that a worker could not use, the latest last.
    pub(super) notes: Vec<String>,
}

impl Recorder {
    /// Hears a line; gives the answer to it, if it wants one.
    pub(super) fn hear(&mut self, line: &str) -> Result<Option<String>, Failed> {
        let words: Vec<&str> = line.split(' ').collect();
        Ok(match words.as_slice() {
            ["effect", id, order, name, fence, key] => {
                Some(answer(id, self.effect(order.parse()?, name, fence.parse()?, key)))
            }
            ["look", id, order, name, fence, key] => {
                Some(answer(id, Some(self.look(order.parse()?, name, fence.parse()?, key))))
            }
            ["doubt", id, order, name, version, key] => {
                self.doubts += 1;
                Some(answer(id, Some(self.look(order.parse()?, name, version.parse()?, key))))
            }
            ["rate", id, label] => {
                // Another number each time: only an engine that keeps the first has the same everywhere.
                let rate = self.rates.entry((*label).to_owned()).or_default();
                *rate += 1;
                Some(answer(id, Some(*rate)))
            }
            ["started", order, run] => {
                let first = self.runs.entry(order.parse()?).or_insert_with(|| (*run).to_owned());
                assert_eq!(first, run, "an order is one run");
                None
            }
            ["ended", order, value] => {
                let (order, value) = (order.parse()?, serde_json::from_str(value)?);
                let first = *self.ended.entry(order).or_insert(value);
                assert_eq!(first, value, "an end is never another");
                None
            }
            ["poisoned"] => {
                self.poisoned += 1;
                None
            }
            ["note", ..] => {
                self.notes.push(line.to_owned());
                None
            }
            _ => return Err(line.to_owned().into()),
        })
    }

    fn effect(&mut self, order: u64, name: &str, fence: u64, key: &str) -> Option<u64> {
        if self.closed.get(key).is_some_and(|from| fence < *from) {
            self.zombies += 1;
            return None;
        }
        self.calls.entry((order, name.to_owned())).or_default().push(key.to_owned());
        Some(order)
    }

    /// Whether an effect has taken place. If it has not, calls with an older fence are refused from now on.
    fn look(&mut self, order: u64, name: &str, fence: u64, key: &str) -> u64 {
        let found = self.calls.get(&(order, name.to_owned())).map_or(0, Vec::len) as u64;
        if found == 0 {
            self.closed.insert(key.to_owned(), fence);
        }
        found
    }

    /// How many calls there were.
    pub(super) fn calls(&self) -> usize {
        self.calls.values().map(Vec::len).sum()
    }

    /// Everything took place, and as often as was promised.
    pub(super) fn check(&self, orders: u64) {
        let mut all = HashSet::new();
        for order in 0..orders {
            for name in ["charge", "label", "letter", "ship"] {
                let calls = self.calls.get(&(order, name.to_owned())).map_or(&[][..], Vec::as_slice);
                let keys: HashSet<&String> = calls.iter().collect();
                assert_eq!(keys.len(), 1, "{name} of {order} was asked for under {keys:?}");
                assert!(
                    keys.into_iter().all(|key| all.insert(key)),
                    "the key of {name} of {order} is another's"
                );
                if matches!(name, "letter" | "ship") {
                    assert_eq!(calls.len(), 1, "{name} of {order} took place {} times", calls.len());
                }
            }
        }
        let mut rates: HashMap<u64, u64> = HashMap::new();
        for (order, (word, rate)) in &self.ended {
            assert_eq!(word, order);
            let first = *rates.entry(order % 16).or_insert(*rate);
            assert_eq!(first, *rate, "all have the same rate");
        }
    }
}

fn answer(id: &str, value: Option<u64>) -> String {
    value.map_or_else(|| format!("no {id}"), |value| format!("ok {id} {value}"))
}
