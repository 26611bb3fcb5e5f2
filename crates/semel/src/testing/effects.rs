//! A provider for tests: it counts calls and effects.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::fail::{Fail, Result};

/// A provider that counts. It keeps one effect per key, as a good provider does, and remembers every call. It can be
/// told to fail, before it has done something or after. Clones are the same provider; it survives every crash.
///
/// ```
/// use semel::testing::Effects;
///
/// let effects = Effects::new();
/// effects.fail("charge", 1).lose_answers("letter", 1);
/// assert!(effects.apply("charge", "key-1").is_err(), "it was told to fail once");
/// assert_eq!(effects.apply("charge", "key-1")?, 1);
/// assert_eq!(effects.apply("charge", "key-1")?, 1, "the same key, the same effect");
/// assert_eq!((effects.calls("charge"), effects.applied("charge")), (3, 1));
///
/// assert!(effects.apply("letter", "key-2").is_err(), "it was sent, and the answer is lost");
/// assert_eq!(effects.find("key-2"), Some(1), "a look-up knows");
/// # Ok::<(), semel::Fail>(())
/// ```
#[derive(Clone, Default)]
pub struct Effects(Arc<Mutex<Provider>>);

#[derive(Default)]
struct Provider {
    /// Every call: its name and key.
    calls: Vec<(String, String)>,
    /// What was done, by key: its name, and which of that name it was.
    done: HashMap<String, (String, u32)>,
    faults: HashMap<String, Vec<EffectFault>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum EffectFault {
    Before,
    After,
}

impl fmt::Debug for Effects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let calls = &self.lock().calls;
        f.debug_list().entries(calls.iter().map(|(name, key)| format!("{name} {key}"))).finish()
    }
}

impl Effects {
    /// A provider without calls so far.
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, Provider> {
        // Nothing is left half done by a panic in here.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next `times` calls of this name fail, and nothing is done.
    pub fn fail(&self, name: &str, times: usize) -> &Self {
        self.plan(name, times, EffectFault::Before)
    }

    /// The next `times` calls of this name do their work and then fail.
    pub fn lose_answers(&self, name: &str, times: usize) -> &Self {
        self.plan(name, times, EffectFault::After)
    }

    fn plan(&self, name: &str, times: usize, fault: EffectFault) -> &Self {
        let mut provider = self.lock();
        let faults = provider.faults.entry(name.to_owned()).or_default();
        faults.extend(std::iter::repeat_n(fault, times));
        drop(provider);
        self
    }

    /// Does something, once per key: gives which of its name it was, from 1.
    pub fn apply(&self, name: &str, key: &str) -> Result<u32> {
        let mut provider = self.lock();
        provider.calls.push((name.to_owned(), key.to_owned()));
        let fault = provider.faults.get_mut(name).filter(|faults| !faults.is_empty()).map(|f| f.remove(0));
        if fault == Some(EffectFault::Before) {
            return Err(Fail::retryable(format_args!("{name} failed, on purpose")));
        }
        let number = provider.applied(name) + 1;
        let done = provider.done.entry(key.to_owned()).or_insert_with(|| (name.to_owned(), number));
        assert_eq!(done.0, name, "{key} is the key of another effect");
        match fault {
            Some(_) => Err(Fail::retryable(format_args!("the answer of {name} is lost, on purpose"))),
            None => Ok(done.1),
        }
    }

    /// What was done under a key: the answer that [`Effects::apply`] gave, or would have.
    pub fn find(&self, key: &str) -> Option<u32> {
        self.lock().done.get(key).map(|(_, number)| *number)
    }

    /// Number of calls of this name.
    pub fn calls(&self, name: &str) -> usize {
        self.lock().calls.iter().filter(|(called, _)| called == name).count()
    }

    /// Number of calls of this name under the key with the most calls.
    pub fn most_calls(&self, name: &str) -> usize {
        let mut counts = HashMap::new();
        for (_, key) in self.lock().calls.iter().filter(|(called, _)| called == name) {
            *counts.entry(key.clone()).or_insert(0) += 1;
        }
        counts.into_values().max().unwrap_or(0)
    }

    /// Number of calls under a key.
    pub fn calls_under(&self, key: &str) -> usize {
        self.lock().calls.iter().filter(|(_, called)| called == key).count()
    }

    /// How many effects of this name there are.
    pub fn applied(&self, name: &str) -> u32 {
        self.lock().applied(name)
    }

    /// The different keys of the calls of this name, in the order of their first calls.
    pub fn keys(&self, name: &str) -> Vec<String> {
        let mut keys = Vec::new();
        for (_, key) in self.lock().calls.iter().filter(|(called, _)| called == name) {
            if !keys.contains(key) {
                keys.push(key.clone());
            }
        }
        keys
    }

    /// Every name that was called, each once, sorted.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = self.lock().calls.iter().map(|(name, _)| name.clone()).collect();
        names.sort();
        names.dedup();
        names
    }
}

impl Provider {
    fn applied(&self, name: &str) -> u32 {
        self.done.values().filter(|(done, _)| done == name).count() as u32
    }
}
