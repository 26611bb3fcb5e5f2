//! Cache of look-ups by id. An entry is valid for less than a second, so that a revoked key is refused within a second on
//! every server. Ids that do not exist are cached too, so that invalid tokens do not all reach the store.

use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use semel::clock::Time;

use crate::bounded::{BoundedCache, Most};

/// Age from which an entry is invalid: a second, less the time of a look-up.
const BELIEVED_MS: i64 = 900;
/// Age from which one caller looks the entry up again, while the others still use it.
const FRESH_MS: i64 = 500;
/// Maximum number of cached ids: enough for all that are in use.
const MOST: usize = 10_000;

#[derive(Debug)]
struct Entry<V> {
    value: Option<Arc<V>>,
    /// Time at which the look-up began.
    at: Time,
    refreshing: bool,
}

/// Group of an entry: invalid ids, of which a caller may send any number, evict no valid ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Existence {
    Found,
    Absent,
}

/// Results of look-ups by id.
#[derive(Debug)]
pub(crate) struct Cache<K, V>(Mutex<BoundedCache<K, Existence, Entry<V>>>);

/// Cached result for an id.
#[derive(Debug)]
pub(crate) enum Cached<V> {
    /// A valid result: the object, or that there is none.
    Known(Option<Arc<V>>),
    /// The object existed; it has to be looked up again.
    Before,
    /// No result, or an old one without an object.
    Never,
}

impl<K: Eq + Hash + Copy, V> Default for Cache<K, V> {
    fn default() -> Self {
        Self(Mutex::new(BoundedCache::new(Most { entries: MOST, weight: 0 })))
    }
}

impl<K: Eq + Hash + Copy, V> Cache<K, V> {
    /// The cached result for an id.
    pub(crate) fn get(&self, id: K, now: Time) -> Cached<V> {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(entry) = entries.get_mut(&id) else { return Cached::Never };
        let age = now.0.saturating_sub(entry.at.0);
        let old = age >= BELIEVED_MS || (age >= FRESH_MS && !entry.refreshing);
        match (old, &entry.value) {
            (false, value) => Cached::Known(value.clone()),
            (true, value) => {
                entry.refreshing = true;
                if value.is_some() { Cached::Before } else { Cached::Never }
            }
        }
    }

    /// Stores the result of a look-up that began at this time.
    pub(crate) fn put(&self, id: K, value: Option<Arc<V>>, at: Time) {
        let existence = if value.is_some() { Existence::Found } else { Existence::Absent };
        let entry = Entry { value, at, refreshing: false };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(id, existence, entry);
    }

    /// Removes an id.
    pub(crate) fn forget(&self, id: K) {
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
        matches!(cache.get(1, Time(at)), Cached::Known(Some(_)))
    }

    #[test]
    fn nothing_older_than_a_second_is_believed() {
        let cache = Cache::default();
        cache.put(1, Some(Arc::new("a")), Time(0));
        assert!(is_known(&cache, FRESH_MS - 1));
        assert!(!is_known(&cache, FRESH_MS), "the first to find it old looks it up");
        assert!(is_known(&cache, FRESH_MS), "the others still believe it");
        assert!(is_known(&cache, BELIEVED_MS - 1));
        assert!(!is_known(&cache, BELIEVED_MS), "too old to be believed");
        assert!(matches!(cache.get(1, Time(BELIEVED_MS)), Cached::Before));
        const { assert!(BELIEVED_MS < 1_000) };
    }

    #[test]
    fn what_is_not_there_is_remembered_too() {
        let cache = Cache::<u32, &str>::default();
        assert!(matches!(cache.get(1, Time(0)), Cached::Never));
        cache.put(1, None, Time(0));
        assert!(matches!(cache.get(1, Time(1)), Cached::Known(None)));
        assert!(matches!(cache.get(1, Time(BELIEVED_MS)), Cached::Never));
    }

    #[test]
    fn it_is_bounded_and_invalid_ids_evict_no_valid_ones() {
        let cache = Cache::default();
        cache.put(1, Some(Arc::new("a")), Time(0));
        for id in 2..(MOST as u32 * 2) {
            cache.put(id, None, Time(0));
        }
        assert!(cache.len() <= MOST);
        assert!(is_known(&cache, 0));
        cache.forget(1);
        assert!(matches!(cache.get(1, Time(0)), Cached::Never));
    }
}
