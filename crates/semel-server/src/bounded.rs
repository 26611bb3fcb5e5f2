//! A bounded cache: the least recently used entries of the group that holds the most are evicted first, so that no
//! tenant evicts the entries of another.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// Limits of a cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Most {
    /// Maximum number of entries.
    pub(crate) entries: usize,
    /// Maximum total weight, usually in bytes.
    pub(crate) weight: usize,
}

/// Entries of type `V` by key `K`, each in a group `G`.
#[derive(Debug)]
pub(crate) struct BoundedCache<K, G, V> {
    most: Most,
    entries: HashMap<K, BoundedEntry<G, V>>,
    groups: HashMap<G, Group<K>>,
    uses: u64,
    weight: usize,
}

#[derive(Debug)]
struct BoundedEntry<G, V> {
    value: V,
    group: G,
    used: u64,
    weight: usize,
}

#[derive(Debug)]
struct Group<K> {
    /// Order of use; outdated positions are skipped.
    order: VecDeque<(K, u64)>,
    entries: usize,
    weight: usize,
}

impl<K> Default for Group<K> {
    fn default() -> Self {
        Self { order: VecDeque::new(), entries: 0, weight: 0 }
    }
}

impl<K: Eq + Hash + Copy, G: Eq + Hash + Copy, V> BoundedCache<K, G, V> {
    pub(crate) fn new(most: Most) -> Self {
        Self { most, entries: HashMap::new(), groups: HashMap::new(), uses: 0, weight: 0 }
    }

    /// The entry of a key. Does not count as a use.
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|entry| &entry.value)
    }

    /// The entry of a key, to change it. Does not count as a use.
    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.entries.get_mut(key).map(|entry| &mut entry.value)
    }

    /// Uses the entry of a key; creates one of weight 0 in this group if there is none. [`trim`](Self::trim) has to be
    /// called afterwards.
    pub(crate) fn touch(&mut self, key: K, group: G, new: impl FnOnce() -> V) -> &mut V {
        self.uses += 1;
        let used = self.uses;
        let is_new = !self.entries.contains_key(&key);
        let entry =
            self.entries.entry(key).or_insert_with(|| BoundedEntry { value: new(), group, used, weight: 0 });
        entry.used = used;
        let group = self.groups.entry(entry.group).or_default();
        group.entries += usize::from(is_new);
        group.order.push_back((key, used));
        // The order must not grow with the number of uses.
        if group.order.len() > 2 * group.entries + 1024 {
            let entries = &self.entries;
            group.order.retain(|(key, at)| entries.get(key).is_some_and(|entry| entry.used == *at));
        }
        &mut self.entries.get_mut(&key).expect("just entered").value
    }

    /// Replaces the entry of a key, also if it was in another group. Returns the evicted entries.
    pub(crate) fn insert(&mut self, key: K, group: G, value: V) -> Vec<V> {
        self.remove(&key);
        self.touch(key, group, || value);
        self.trim()
    }

    /// Sets the weight of an entry.
    pub(crate) fn weigh(&mut self, key: &K, weight: usize) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let before = std::mem::replace(&mut entry.weight, weight);
        let group = self.groups.entry(entry.group).or_default();
        group.weight = group.weight - before + weight;
        self.weight = self.weight - before + weight;
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let entry = self.entries.remove(key)?;
        self.weight -= entry.weight;
        if let Some(group) = self.groups.get_mut(&entry.group) {
            (group.weight, group.entries) = (group.weight - entry.weight, group.entries - 1);
            if group.entries == 0 {
                self.groups.remove(&entry.group);
            }
        }
        Some(entry.value)
    }

    /// Evicts the least recently used entries of the largest group until all fit; returns them.
    pub(crate) fn trim(&mut self) -> Vec<V> {
        let mut evicted = Vec::new();
        loop {
            let largest = if self.weight > self.most.weight {
                self.groups.values_mut().max_by_key(|group| group.weight)
            } else if self.entries.len() > self.most.entries {
                self.groups.values_mut().max_by_key(|group| group.entries)
            } else {
                return evicted;
            };
            let Some((key, at)) = largest.and_then(|group| group.order.pop_front()) else { return evicted };
            if self.entries.get(&key).is_some_and(|entry| entry.used == at) {
                evicted.extend(self.remove(&key));
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(entries: usize, weight: usize) -> BoundedCache<u32, u8, u32> {
        BoundedCache::new(Most { entries, weight })
    }

    fn left(cache: &BoundedCache<u32, u8, u32>) -> Vec<u32> {
        let mut left: Vec<_> = cache.entries.keys().copied().collect();
        left.sort_unstable();
        left
    }

    #[test]
    fn what_was_used_longest_ago_is_evicted_first() {
        let mut cache = cache(100, 20);
        for key in 1..=3 {
            cache.touch(key, 1, || key);
            cache.weigh(&key, 10);
        }
        cache.touch(1, 1, || 0);
        assert_eq!(cache.trim(), [2]);
        assert_eq!((left(&cache), cache.weight), (vec![1, 3], 20));
        cache.most.entries = 1;
        assert_eq!(cache.trim(), [3]);
        assert_eq!(left(&cache), [1], "the one that was used last");
    }

    #[test]
    fn a_group_with_much_evicts_no_entry_of_another() {
        let mut cache = cache(1_000, 50);
        cache.touch(1, 1, || 1);
        cache.weigh(&1, 10);
        for key in 2..100 {
            cache.touch(key, 2, || key);
            cache.weigh(&key, 10);
            cache.trim();
            assert!(cache.get(&1).is_some(), "after {key}");
        }
        assert_eq!(left(&cache), [1, 96, 97, 98, 99]);
        for key in left(&cache) {
            cache.remove(&key);
        }
        assert_eq!((cache.weight, cache.groups.len()), (0, 0));
    }

    #[test]
    fn the_order_of_use_does_not_grow_with_the_uses() {
        let mut cache = cache(10, 10);
        for _ in 0..100_000 {
            cache.touch(1, 1, || 1);
        }
        let order = cache.groups[&1].order.len();
        assert!(order < 2_000, "{order}");
    }

    #[test]
    fn an_entry_may_move_to_another_group() {
        let mut cache = cache(2, 10);
        cache.insert(1, 1, 7);
        cache.insert(1, 2, 8);
        assert_eq!((cache.get(&1), cache.groups.len(), cache.len()), (Some(&8), 1, 1));
        *cache.get_mut(&1).expect("it is there") = 9;
        assert_eq!(cache.remove(&1), Some(9));
    }
}
