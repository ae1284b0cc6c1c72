//! Trees that are remembered.

use hashbrown::HashTable;
use hashbrown::hash_table::OccupiedEntry;
use whimbrel_event::{HostId, Seeded};

use super::trees::Trees;

/// Most sets of destinations whose trees are remembered.
pub const TREES_MAX: usize = 4_096;

/// Destinations and nodes that are remembered in all trees together, each 8 bytes; a single set may have more.
pub const TREES_SIZE_MAX: usize = 1 << 21;

#[derive(Debug)]
struct Known {
    set: Box<[HostId]>,
    trees: Trees,
    epoch: u64,
    /// Asked for since the hand has passed.
    is_used: bool,
}

impl Known {
    fn size(&self) -> usize {
        self.set.len() + self.trees.size()
    }
}

/// Trees by their sets. When it is full, those go first that were not asked for of late (second chance: Corbató, "A Paging Experiment
/// with the Multics System", 1968).
#[derive(Debug)]
pub(super) struct Cached {
    known: Vec<Known>,
    /// Set to its place.
    by_set: HashTable<u32>,
    hasher: Seeded,
    /// The place that is looked at next when one has to go.
    hand: usize,
    size: usize,
}

impl Cached {
    pub(super) fn new(seed: u64) -> Cached {
        Cached { known: Vec::new(), by_set: HashTable::new(), hasher: Seeded::new(seed), hand: 0, size: 0 }
    }

    /// What is remembered of an epoch, else what is made now.
    pub(super) fn get(&mut self, set: &[HostId], epoch: u64, make: impl FnOnce() -> Trees) -> &Trees {
        let hash = self.hasher.hash_one(set);
        let at = self.by_set.find(hash, |&at| *self.known[at as usize].set == *set).map(|&at| at as usize);
        if let Some(at) = at {
            if self.known[at].epoch == epoch {
                self.known[at].is_used = true;
                return &self.known[at].trees;
            }
            self.remove(at);
        }
        let fresh = Known { set: set.into(), trees: make(), epoch, is_used: false };
        self.make_room(fresh.size(), epoch);
        self.size += fresh.size();
        let at = self.known.len();
        self.known.push(fresh);
        let Cached { known, by_set, hasher, .. } = self;
        by_set.insert_unique(hash, at as u32, |&at| hasher.hash_one(&*known[at as usize].set));
        &self.known[at].trees
    }

    /// Looks at each one twice at most.
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

    /// The last one takes its place.
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
        let hash = self.hasher.hash_one(&*self.known[at].set);
        self.by_set.find_entry(hash, |&other| other as usize == at).expect("what is remembered is found by its set")
    }
}
