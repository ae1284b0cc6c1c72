//! The index over topic filters: a tree of levels in one hash table.
//!
//! A node is found by (parent, level) in a single table, so a subscription takes one node per level
//! that no other filter shares, and a match takes at most two look-ups per level and distinct
//! wildcard prefix, for any number of filters.

use smallvec::SmallVec;
use whimbrel_event::Seeded;

use crate::store::{Slab, Table};
use crate::topic::{TopicFilter, TopicName};

const ROOT: u32 = 0;
const NONE: u32 = u32::MAX;

#[derive(Debug)]
struct Node<K> {
    level: Box<str>,
    parent: u32,
    /// The child for `+`; it is not in the table.
    plus: u32,
    /// Literal children, and `plus` if there is one.
    children: u32,
    /// Keys under exactly this path.
    exact: SmallVec<[K; 2]>,
    /// Keys under this path followed by `#`.
    below: SmallVec<[K; 2]>,
}

impl<K> Node<K> {
    fn new(level: &str, parent: u32) -> Self {
        Node { level: level.into(), parent, plus: NONE, children: 0, exact: SmallVec::new(), below: SmallVec::new() }
    }

    fn is_unused(&self) -> bool {
        self.children == 0 && self.exact.is_empty() && self.below.is_empty()
    }
}

/// Finds the keys of all filters that match a topic name.
///
/// Insertion and removal are incremental: their cost grows with the levels of the filter, not with
/// the number of filters (removal also looks through the keys of the same filter).
#[derive(Debug)]
pub struct FilterIndex<K> {
    nodes: Slab<Node<K>>,
    table: Table,
    hasher: Seeded,
    keys: usize,
}

impl<K: Copy + Eq> FilterIndex<K> {
    /// An empty index. `seed` keys its hash table, so that clients cannot choose topics that
    /// collide.
    pub fn new(seed: u64) -> Self {
        let mut nodes = Slab::new();
        assert!(nodes.insert(Node::new("", NONE)) == ROOT, "the first place");
        FilterIndex { nodes, table: Table::new(), hasher: Seeded::new(seed), keys: 0 }
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.keys
    }

    /// True if there is no key.
    pub fn is_empty(&self) -> bool {
        self.keys == 0
    }

    /// Adds `key` under `filter`. The same key may be under several filters; added twice under one
    /// filter, it is found twice.
    pub fn insert(&mut self, filter: TopicFilter<'_>, key: K) {
        let mut at = ROOT;
        for level in filter.as_str().split('/') {
            if level == "#" {
                self.nodes[at].below.push(key);
                self.keys += 1;
                return;
            }
            at = self.child_or_insert(at, level);
        }
        self.nodes[at].exact.push(key);
        self.keys += 1;
    }

    /// Removes `key` from `filter`; false if it is not there.
    pub fn remove(&mut self, filter: TopicFilter<'_>, key: K) -> bool {
        let mut at = ROOT;
        let mut multi = false;
        for level in filter.as_str().split('/') {
            if level == "#" {
                multi = true;
                break;
            }
            at = if level == "+" { self.nodes[at].plus } else { self.literal_child(at, level) };
            if at == NONE {
                return false;
            }
        }
        let node = &mut self.nodes[at];
        let keys = if multi { &mut node.below } else { &mut node.exact };
        let Some(position) = keys.iter().position(|k| *k == key) else { return false };
        keys.swap_remove(position);
        if keys.is_empty() {
            keys.shrink_to_fit();
        }
        self.keys -= 1;
        self.prune(at);
        true
    }

    /// Calls `found` with the key of every filter that matches `name`, in an order that depends
    /// only on the insertions and removals so far.
    pub fn for_each_match(&self, name: TopicName<'_>, mut found: impl FnMut(K)) {
        let mut rest = name.as_str().split('/');
        let Some(first) = rest.next() else { return };
        let root = &self.nodes[ROOT];
        if !name.is_system() {
            root.below.iter().for_each(|key| found(*key));
            if root.plus != NONE {
                self.descend(root.plus, rest.clone(), &mut found);
            }
        }
        let child = self.literal_child(ROOT, first);
        if child != NONE {
            self.descend(child, rest, &mut found);
        }
    }

    /// The depth of recursion is at most the levels of a topic name ([`crate::LEVELS_MAX`]).
    fn descend(&self, at: u32, mut rest: core::str::Split<'_, char>, found: &mut impl FnMut(K)) {
        let node = &self.nodes[at];
        node.below.iter().for_each(|key| found(*key));
        let Some(level) = rest.next() else {
            node.exact.iter().for_each(|key| found(*key));
            return;
        };
        if node.children == 0 {
            return;
        }
        if node.plus != NONE {
            self.descend(node.plus, rest.clone(), found);
        }
        let child = self.literal_child(at, level);
        if child != NONE {
            self.descend(child, rest, found);
        }
    }

    fn hash(&self, parent: u32, level: &str) -> u64 {
        self.hasher.hash_one((parent, level))
    }

    fn literal_child(&self, parent: u32, level: &str) -> u32 {
        let nodes = &self.nodes;
        let same = |&id: &u32| nodes[id].parent == parent && &*nodes[id].level == level;
        self.table.find(self.hash(parent, level), same).unwrap_or(NONE)
    }

    fn child_or_insert(&mut self, parent: u32, level: &str) -> u32 {
        let existing = if level == "+" { self.nodes[parent].plus } else { self.literal_child(parent, level) };
        if existing != NONE {
            return existing;
        }
        let node = Node::new(level, parent);
        let id = self.nodes.insert(node);
        self.nodes[parent].children += 1;
        if level == "+" {
            self.nodes[parent].plus = id;
        } else {
            let (nodes, hasher) = (&self.nodes, &self.hasher);
            let rehash = |&id: &u32| hasher.hash_one((nodes[id].parent, &*nodes[id].level));
            self.table.insert(hasher.hash_one((parent, level)), id, rehash);
        }
        id
    }

    /// Removes `at` and its ancestors as far as they are unused.
    fn prune(&mut self, mut at: u32) {
        while at != ROOT && self.nodes[at].is_unused() {
            let parent = self.nodes[at].parent;
            if &*self.nodes[at].level == "+" {
                self.nodes[parent].plus = NONE;
            } else {
                let (nodes, hasher) = (&self.nodes, &self.hasher);
                let rehash = |&id: &u32| hasher.hash_one((nodes[id].parent, &*nodes[id].level));
                self.table.remove(rehash(&at), at, rehash);
            }
            self.nodes[parent].children -= 1;
            self.nodes.remove(at);
            at = parent;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn filter(text: &str) -> TopicFilter<'_> {
        TopicFilter::new(text).expect("a good filter")
    }

    fn found(index: &FilterIndex<u32>, name: &str) -> Vec<u32> {
        let mut keys = Vec::new();
        index.for_each_match(TopicName::new(name).expect("a good name"), |key| keys.push(key));
        keys.sort_unstable();
        keys
    }

    #[test]
    fn removal_gives_every_node_back() {
        let mut index = FilterIndex::new(1);
        for (key, text) in ["a/b/c", "a/+/c", "a/#", "#", "a/b", "/", "a//c"].iter().enumerate() {
            index.insert(filter(text), key as u32);
        }
        assert_eq!(found(&index, "a/b/c"), [0, 1, 2, 3]);
        assert!(!index.remove(filter("a/b/c"), 9));
        assert!(!index.remove(filter("a/x/c"), 0));
        for (key, text) in ["a/b/c", "a/+/c", "a/#", "#", "a/b", "/", "a//c"].iter().enumerate() {
            assert!(index.remove(filter(text), key as u32));
        }
        assert!(index.is_empty());
        assert_eq!(index.nodes.len(), 1, "the root");
    }

    fn level() -> impl Strategy<Value = &'static str> {
        prop_oneof![Just("a"), Just("b"), Just(""), Just("$x"), Just("long level")]
    }

    fn any_name() -> impl Strategy<Value = String> {
        proptest::collection::vec(level(), 1..5).prop_map(|l| l.join("/")).prop_filter("not empty", |t| !t.is_empty())
    }

    fn any_filter() -> impl Strategy<Value = String> {
        let level = prop_oneof![3 => level(), 2 => Just("+")];
        (proptest::collection::vec(level, 0..5), any::<bool>())
            .prop_map(|(mut levels, multi)| {
                if multi {
                    levels.push("#");
                }
                levels.join("/")
            })
            .prop_filter("not empty", |t| !t.is_empty())
    }

    proptest! {
        #[test]
        fn the_index_agrees_with_matching_one_by_one(
            steps in proptest::collection::vec((any_filter(), any::<bool>()), 1..60),
            names in proptest::collection::vec(any_name(), 1..20),
            seed: u64,
        ) {
            let mut index = FilterIndex::new(seed);
            let mut model: Vec<(String, u32)> = Vec::new();
            for (number, (text, add)) in steps.iter().enumerate() {
                if *add || model.is_empty() {
                    index.insert(filter(text), number as u32);
                    model.push((text.clone(), number as u32));
                } else {
                    let (text, key) = model.swap_remove(number % model.len());
                    prop_assert!(index.remove(filter(&text), key));
                }
            }
            prop_assert_eq!(index.len(), model.len());
            for name in &names {
                let checked = TopicName::new(name).expect("a good name");
                let mut expected: Vec<u32> =
                    model.iter().filter(|(text, _)| filter(text).matches(checked)).map(|(_, key)| *key).collect();
                expected.sort_unstable();
                prop_assert_eq!(found(&index, name), expected, "{}", name);
            }
        }
    }
}
