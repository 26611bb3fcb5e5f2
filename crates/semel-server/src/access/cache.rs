//! What was found under an id a moment ago. Nothing older than a second is believed, so that a revoked key is one within a
//! second on every server; what was not found is remembered too, so that wrong tokens do not all reach the store.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use semel::clock::Time;

/// What is older is not believed: a second, less what a request takes to come here.
const BELIEVED_MS: i64 = 900;
/// What is older is looked up again by one caller, while the others still believe it.
const FRESH_MS: i64 = 500;
/// So many ids are remembered: all that are in use, and not all that somebody tries.
const MOST: usize = 10_000;

#[derive(Debug)]
struct Entry<V> {
    value: Option<Arc<V>>,
    /// When it was asked for, which is before it was answered.
    at: Time,
    refreshing: bool,
}

/// What was found under ids.
#[derive(Debug)]
pub(super) struct Cache<K, V>(Mutex<HashMap<K, Entry<V>>>);

/// What is remembered of an id.
#[derive(Debug)]
pub(super) enum Seen<V> {
    /// This, or that there is nothing; as good as the truth.
    Known(Option<Arc<V>>),
    /// It was there; ask whether it still is.
    Before,
    /// Nothing.
    Never,
}

impl<K, V> Default for Cache<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash + Copy, V> Cache<K, V> {
    /// What is remembered.
    pub(super) fn get(&self, id: K, now: Time) -> Seen<V> {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(entry) = entries.get_mut(&id) else { return Seen::Never };
        let age = now.0.saturating_sub(entry.at.0);
        let old = age >= BELIEVED_MS || (age >= FRESH_MS && !entry.refreshing);
        match (old, &entry.value) {
            (false, value) => Seen::Known(value.clone()),
            (true, value) => {
                entry.refreshing = true;
                if value.is_some() { Seen::Before } else { Seen::Never }
            }
        }
    }

    /// Remembers what was found by a question that was asked at this time.
    pub(super) fn put(&self, id: K, value: Option<Arc<V>>, at: Time) {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() >= MOST {
            // What is there is worth more than what is not.
            entries.retain(|_, entry| entry.value.is_some());
        }
        if entries.len() >= MOST {
            entries.clear();
        }
        entries.insert(id, Entry { value, at, refreshing: false });
    }

    /// Forgets an id.
    pub(super) fn forget(&self, id: K) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_known(cache: &Cache<u32, &str>, at: i64) -> bool {
        matches!(cache.get(1, Time(at)), Seen::Known(Some(_)))
    }

    #[test]
    fn nothing_older_than_a_second_is_believed() {
        let cache = Cache::default();
        cache.put(1, Some(Arc::new("a")), Time(0));
        assert!(is_known(&cache, FRESH_MS - 1));
        assert!(!is_known(&cache, FRESH_MS), "the first to find it old looks it up");
        assert!(is_known(&cache, FRESH_MS), "the others still believe it");
        assert!(is_known(&cache, BELIEVED_MS - 1));
        assert!(!is_known(&cache, BELIEVED_MS), "nobody believes it any more");
        assert!(matches!(cache.get(1, Time(BELIEVED_MS)), Seen::Before));
        const { assert!(BELIEVED_MS < 1_000) };
    }

    #[test]
    fn what_is_not_there_is_remembered_too() {
        let cache = Cache::<u32, &str>::default();
        assert!(matches!(cache.get(1, Time(0)), Seen::Never));
        cache.put(1, None, Time(0));
        assert!(matches!(cache.get(1, Time(1)), Seen::Known(None)));
        assert!(matches!(cache.get(1, Time(BELIEVED_MS)), Seen::Never));
    }

    #[test]
    fn it_is_bounded_and_what_is_there_stays_longest() {
        let cache = Cache::default();
        cache.put(1, Some(Arc::new("a")), Time(0));
        for id in 2..(MOST as u32 * 2) {
            cache.put(id, None, Time(0));
        }
        assert!(cache.len() <= MOST);
        assert!(is_known(&cache, 0));
        cache.forget(1);
        assert!(matches!(cache.get(1, Time(0)), Seen::Never));
    }
}
