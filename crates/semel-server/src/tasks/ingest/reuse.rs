//! Which rows keep their vectors.

use std::collections::{HashMap, VecDeque};

/// A row of the document that is there: its number and its hash.
pub(super) type Row = (i64, String);

/// The number of the row that has the vector of each chunk, by hashes; none if there is no such row. No row is given twice.
pub(super) fn rows_for<'h>(hashes: impl Iterator<Item = &'h str>, rows: &[Row]) -> Vec<Option<i64>> {
    let mut free: HashMap<&str, VecDeque<i64>> = HashMap::new();
    for (n, hash) in rows {
        free.entry(hash).or_default().push_back(*n);
    }
    hashes.map(|hash| free.get_mut(hash)?.pop_front()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_is_kept_for_one_chunk_of_its_hash() {
        let rows = [(1, "a".to_owned()), (2, "b".to_owned()), (5, "a".to_owned())];
        let kept = |hashes: &[&str]| rows_for(hashes.iter().copied(), &rows);
        assert_eq!(kept(&["a", "b", "a"]), [Some(1), Some(2), Some(5)]);
        assert_eq!(kept(&["b", "c", "a", "b"]), [Some(2), None, Some(1), None]);
        assert_eq!(kept(&[]), []);
    }
}
