//! The cache of trees.

use hashbrown::HashTable;
use hashbrown::hash_table::OccupiedEntry;
use whimbrel_event::{HostId, Seeded};

/// Most sets of destinations whose trees are cached.
pub const TREES_MAX: usize = 4_096;

/// Destinations and nodes of all cached trees together, each 8 bytes; a single set may have more.
pub const TREES_SIZE_MAX: usize = 1 << 21;

/// What is cached for a set.
pub(super) trait CachedPlan {
    /// Its destinations that are not reached, and its nodes; or what takes as much memory.
    fn size(&self) -> usize;
}

/// A set of destinations, and the number of what their paths are to be.
pub(super) type PlanKey<'a> = (&'a [HostId], u64);

#[derive(Debug)]
struct CachedTree<P> {
    set: Box<[HostId]>,
    wanted: u64,
    trees: P,
    epoch: u64,
    /// Asked for since the hand passed it.
    is_used: bool,
}

impl<P: CachedPlan> CachedTree<P> {
    fn key(&self) -> PlanKey<'_> {
        (&self.set, self.wanted)
    }

    fn size(&self) -> usize {
        self.set.len() + self.trees.size()
    }
}

/// Trees by their sets. When the cache is full, sets that were not asked for recently are evicted
/// first (second chance: Corbató, "A Paging Experiment with the Multics System", 1968).
#[derive(Debug)]
pub(super) struct Cached<P> {
    known: Vec<CachedTree<P>>,
    /// Places in `known`, by set.
    by_set: HashTable<u32>,
    hasher: Seeded,
    /// The place that is examined next when a set has to be evicted.
    hand: usize,
    size: usize,
}

impl<P: CachedPlan> Cached<P> {
    pub(super) fn new(seed: u64) -> Cached<P> {
        Cached { known: Vec::new(), by_set: HashTable::new(), hasher: Seeded::new(seed), hand: 0, size: 0 }
    }

    /// Number of destinations and nodes in the cache.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// The cached trees of a set, if they are of this epoch and `is_good`; otherwise those that
    /// `make` returns.
    pub(super) fn get(
        &mut self,
        key: PlanKey<'_>,
        epoch: u64,
        is_good: impl FnOnce(&mut P) -> bool,
        make: impl FnOnce() -> P,
    ) -> &P {
        let hash = self.hasher.hash_one(key);
        let at = self.by_set.find(hash, |&at| self.known[at as usize].key() == key).map(|&at| at as usize);
        if let Some(at) = at {
            if self.known[at].epoch == epoch && is_good(&mut self.known[at].trees) {
                self.known[at].is_used = true;
                return &self.known[at].trees;
            }
            self.remove(at);
        }
        let (set, wanted) = key;
        let fresh = CachedTree { set: set.into(), wanted, trees: make(), epoch, is_used: false };
        self.make_room(fresh.size(), epoch);
        self.size += fresh.size();
        let at = self.known.len();
        self.known.push(fresh);
        let Cached { known, by_set, hasher, .. } = self;
        by_set.insert_unique(hash, at as u32, |&at| hasher.hash_one(known[at as usize].key()));
        &self.known[at].trees
    }

    /// Evicts sets until there is room; examines each at most twice.
    fn make_room(&mut self, size: usize, epoch: u64) {
        while self.known.len() >= TREES_MAX || (self.size + size > TREES_SIZE_MAX && !self.known.is_empty()) {
            self.hand %= self.known.len();
            let looked_at = &mut self.known[self.hand];
            if looked_at.is_used && looked_at.epoch == epoch {
                looked_at.is_used = false;
                self.hand += 1;
            } else {
                self.remove(self.hand);
            }
        }
    }

    /// Removes a set; the last one takes its place.
    fn remove(&mut self, at: usize) {
        self.find(at).remove();
        let last = self.known.len() - 1;
        if at != last {
            *self.find(last).get_mut() = at as u32;
        }
        let gone = self.known.swap_remove(at);
        self.size -= gone.size();
    }

    fn find(&mut self, at: usize) -> OccupiedEntry<'_, u32> {
        let hash = self.hasher.hash_one(self.known[at].key());
        self.by_set.find_entry(hash, |&other| other as usize == at).expect("what is remembered is found by its set")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::Trees;

    fn set(number: usize) -> [HostId; 1] {
        [HostId::new((number as u64) << 4)]
    }

    /// Trees that can be told apart, of `size` destinations that are not reached.
    fn trees(first: u16, size: usize) -> Trees {
        Trees { trees: Vec::new(), unreachable: vec![first; size] }
    }

    fn is_known(cached: &mut Cached<Trees>, number: usize, epoch: u64) -> bool {
        let mut is_known = true;
        cached.get(
            (&set(number), 0),
            epoch,
            |_| true,
            || {
                is_known = false;
                trees(0, 1)
            },
        );
        is_known
    }

    #[test]
    fn a_set_that_is_asked_for_again_outlives_those_that_are_not() {
        let mut cached = Cached::new(1);
        for number in 0..10 * TREES_MAX {
            is_known(&mut cached, number, 1);
            assert!(number == 0 || is_known(&mut cached, 0, 1), "forgotten when {number} came");
            assert!(cached.known.len() <= TREES_MAX && cached.by_set.len() == cached.known.len());
        }
        assert!(!is_known(&mut cached, 1, 1));
    }

    #[test]
    fn another_epoch_makes_the_tree_anew() {
        let mut cached = Cached::new(1);
        assert_eq!(*cached.get((&set(1), 0), 1, |_| true, || trees(1, 1)), trees(1, 1));
        assert_eq!(*cached.get((&set(1), 0), 1, |_| true, || trees(2, 1)), trees(1, 1));
        assert_eq!(*cached.get((&set(1), 0), 2, |_| true, || trees(3, 1)), trees(3, 1));
        assert_eq!((cached.known.len(), cached.size), (1, 2));
    }

    #[test]
    fn what_is_of_another_epoch_goes_although_it_was_used() {
        let mut cached = Cached::new(1);
        for number in 0..TREES_MAX {
            assert!(!is_known(&mut cached, number, 1));
            assert!(is_known(&mut cached, number, 1));
        }
        is_known(&mut cached, TREES_MAX, 2);
        assert_eq!(cached.hand, 0, "the first that was looked at");
    }

    #[test]
    fn all_together_have_a_bound_and_a_single_one_may_pass_it() {
        let mut cached = Cached::new(1);
        for number in 0..100 {
            cached.get((&set(number), 0), 1, |_| true, || trees(0, TREES_SIZE_MAX / 10));
            let size: usize = cached.known.iter().map(CachedTree::size).sum();
            assert!(size <= TREES_SIZE_MAX && size == cached.size);
        }
        assert_eq!(cached.known.len(), 9);
        cached.get((&set(100), 0), 1, |_| true, || trees(0, 2 * TREES_SIZE_MAX));
        assert_eq!(cached.known.len(), 1);
        cached.get((&set(101), 0), 1, |_| true, || trees(0, 1));
        assert_eq!((cached.known.len(), cached.size), (1, 2));
    }
}
