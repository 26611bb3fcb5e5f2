//! Hash maps for what is looked up many times per step.

use std::hash::Hash;

/// As the standard one, with a faster hash that is also seeded anew in every process. Its order is no order.
pub(crate) type Map<K, V> = std::collections::HashMap<K, V, foldhash::fast::RandomState>;

/// The same for sets.
pub(crate) type Set<T> = std::collections::HashSet<T, foldhash::fast::RandomState>;

/// Makes room for what is added to a map that each run has. A table that grows is moved entry by entry, and a run that has
/// more than the three steps of the first table most often has more than the seven of the next: that one is left out.
pub(crate) fn make_room<K: Eq + Hash, V>(map: &mut Map<K, V>) {
    const FIRST: usize = 3;
    const THIRD: usize = 14;
    if map.len() == FIRST && map.capacity() == FIRST {
        map.reserve(THIRD - FIRST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_table_is_left_out() {
        let mut map = Map::default();
        let mut capacities = Vec::new();
        for n in 0..100 {
            make_room(&mut map);
            map.insert(n, n);
            capacities.push(map.capacity());
        }
        capacities.dedup();
        assert_eq!(capacities, [3, 14, 28, 56, 112]);
    }
}
