//! The index: an ordered map of topic → (version, value).

use std::collections::BTreeMap;
use std::ops::Bound;

use whimbrel_event::{PubendId, Seeded, Tick};
use whimbrel_selector::TopicFilter;

/// Tick and pubend at which a value was published: of two values, the one with the greater version
/// counts.
pub(crate) type TopicVersion = (Tick, PubendId);

/// A topic's value and its version.
#[derive(Debug)]
pub(crate) struct TopicEntry<V> {
    pub(crate) version: TopicVersion,
    pub(crate) value: V,
}

/// An ordered map of topic → (version, value) in which a filter finds its topics without a look at
/// all others: see [`TopicIndex::walk`].
///
/// Topics are in byte order, so that all topics below a prefix are neighbours. Beside them it
/// counts the topics that have a level's text at its depth: a filter with a text that no topic has
/// there finds nothing in one look-up per level. (Both are ordered maps, as a hash table that grows
/// moves everything in one turn.)
#[derive(Debug)]
pub(crate) struct TopicIndex<V> {
    entries: BTreeMap<Box<str>, TopicEntry<V>>,
    /// The number of topics with some text at some depth, by the hash of both. Texts with equal
    /// hashes count as one: a filter then looks where it need not.
    levels: BTreeMap<u64, u32>,
    hasher: Seeded,
}

impl<V> TopicIndex<V> {
    /// An index without topics. `seed` keeps clients from choosing texts with equal hashes.
    pub(crate) fn new(seed: u64) -> Self {
        TopicIndex { entries: BTreeMap::new(), levels: BTreeMap::new(), hasher: Seeded::new(seed) }
    }

    pub(crate) fn get(&self, topic: &str) -> Option<&TopicEntry<V>> {
        self.entries.get(topic)
    }

    pub(crate) fn get_mut(&mut self, topic: &str) -> Option<&mut TopicEntry<V>> {
        self.entries.get_mut(topic)
    }

    /// Adds a topic that is not in the index.
    pub(crate) fn insert(&mut self, topic: &str, entry: TopicEntry<V>) {
        let old = self.entries.insert(topic.into(), entry);
        assert!(old.is_none(), "a topic is added once");
        for (depth, text) in topic.split('/').enumerate() {
            *self.levels.entry(self.hasher.hash_one((depth, text))).or_default() += 1;
        }
    }

    /// Removes a topic.
    pub(crate) fn remove(&mut self, topic: &str) -> Option<TopicEntry<V>> {
        let entry = self.entries.remove(topic)?;
        for (depth, text) in topic.split('/').enumerate() {
            let hash = self.hasher.hash_one((depth, text));
            let topics = self.levels.get_mut(&hash).expect("counted when it was added");
            *topics -= 1;
            if *topics == 0 {
                self.levels.remove(&hash);
            }
        }
        Some(entry)
    }

    /// All topics that are not less than `topic`, in order.
    pub(crate) fn from<'a>(&'a self, topic: &str) -> impl Iterator<Item = (&'a str, &'a TopicEntry<V>)> + use<'a, V> {
        let range = self.entries.range::<str, _>((Bound::Included(topic), Bound::Unbounded));
        range.map(|(topic, entry)| (&**topic, entry))
    }

    /// The number of counted pairs of a depth and a text.
    #[cfg(test)]
    pub(super) fn levels_known(&self) -> usize {
        self.levels.len()
    }

    /// Whether each text of the filter is at its depth in some topic; not necessarily all in one
    /// topic.
    pub(super) fn has_levels(&self, filter: TopicFilter<'_>) -> bool {
        let literal = |(_, text): &(usize, &str)| !matches!(*text, "+" | "#");
        let mut levels = filter.as_str().split('/').enumerate().filter(literal);
        levels.all(|level| self.levels.contains_key(&self.hasher.hash_one(level)))
    }
}
