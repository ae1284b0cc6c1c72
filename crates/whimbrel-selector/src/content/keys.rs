//! The keys (subscriptions) of a selector.

use std::collections::BTreeMap;

use smallvec::{SmallVec, smallvec};

/// The number of keys up to which they are kept in an array. More are kept in a tree, so that
/// removing one of many keys is as fast as removing the only one.
const ROW: usize = 32;

/// The keys of one selector. A key may occur more than once.
#[derive(Debug)]
pub(super) enum Keys<K> {
    Row(SmallVec<[K; 2]>),
    /// Each key with the number of its occurrences.
    Tree(BTreeMap<K, u32>),
}

impl<K: Copy + Ord> Keys<K> {
    pub(super) fn of(key: K) -> Self {
        Keys::Row(smallvec![key])
    }

    pub(super) fn is_empty(&self) -> bool {
        match self {
            Keys::Row(row) => row.is_empty(),
            Keys::Tree(tree) => tree.is_empty(),
        }
    }

    pub(super) fn push(&mut self, key: K) {
        match self {
            Keys::Row(row) if row.len() < ROW => row.push(key),
            Keys::Row(row) => {
                let mut tree = BTreeMap::new();
                row.iter().chain([&key]).for_each(|key| *tree.entry(*key).or_insert(0) += 1);
                *self = Keys::Tree(tree);
            }
            Keys::Tree(tree) => *tree.entry(key).or_insert(0) += 1,
        }
    }

    /// Removes one occurrence; false if there is none.
    pub(super) fn remove(&mut self, key: K) -> bool {
        match self {
            Keys::Row(row) => {
                let Some(place) = row.iter().position(|known| *known == key) else { return false };
                row.swap_remove(place);
                true
            }
            Keys::Tree(tree) => {
                let Some(count) = tree.get_mut(&key) else { return false };
                *count -= 1;
                if *count == 0 {
                    tree.remove(&key);
                }
                true
            }
        }
    }

    pub(super) fn for_each(&self, found: &mut impl FnMut(K)) {
        match self {
            Keys::Row(row) => row.iter().for_each(|key| found(*key)),
            Keys::Tree(tree) => {
                for (key, count) in tree {
                    (0..*count).for_each(|_| found(*key));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_as_often_as_they_were_added() {
        let mut keys = Keys::of(0);
        let mut model = vec![0];
        for step in 0..300_u32 {
            let key = step * 7 % 90;
            if step % 3 == 2 {
                assert_eq!(keys.remove(key), model.contains(&key));
                if let Some(place) = model.iter().position(|known| *known == key) {
                    model.swap_remove(place);
                }
            } else {
                keys.push(key);
                model.push(key);
            }
            let mut found = Vec::new();
            keys.for_each(&mut |key| found.push(key));
            found.sort_unstable();
            model.sort_unstable();
            assert_eq!(found, model);
        }
        model.into_iter().for_each(|key| assert!(keys.remove(key)));
        assert!(keys.is_empty());
    }
}
