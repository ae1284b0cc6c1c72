//! Storage that grows without pauses: no operation copies more than a small part of the contents.

use core::ops::{Index, IndexMut};

use hashbrown::HashTable;

/// Parts of a [`Table`]. Each grows on its own, so that one insertion rehashes at most one of them.
const SHARDS: usize = 256;

/// Items with numbers, in chunks of 2^`SHIFT`. Numbers of removed items are reused, the latest
/// first.
#[derive(Debug)]
pub(crate) struct Slab<T, const SHIFT: u32 = 10> {
    chunks: Vec<Vec<Option<T>>>,
    free: Vec<Vec<u32>>,
    len: usize,
}

impl<T, const SHIFT: u32> Slab<T, SHIFT> {
    pub(crate) const fn new() -> Self {
        Slab { chunks: Vec::new(), free: Vec::new(), len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The number of places, in use or not: all numbers are smaller.
    #[cfg(test)]
    pub(crate) fn places(&self) -> usize {
        self.chunks.iter().map(Vec::len).sum()
    }

    pub(crate) fn insert(&mut self, item: T) -> u32 {
        self.len += 1;
        if let Some(place) = self.pop_free() {
            *self.place(place) = Some(item);
            return place;
        }
        if self.chunks.last().is_none_or(|chunk| chunk.len() == 1 << SHIFT) {
            self.chunks.push(Vec::with_capacity(1 << SHIFT));
        }
        let before = (self.chunks.len() - 1) << SHIFT;
        let chunk = self.chunks.last_mut().expect("just made");
        chunk.push(Some(item));
        u32::try_from(before + chunk.len() - 1).expect("fewer than 2^32 items fit any memory")
    }

    pub(crate) fn remove(&mut self, place: u32) -> T {
        let item = self.place(place).take().expect("a place in use");
        self.len -= 1;
        if self.len == 0 {
            // No number of an empty slab is in use: all memory is freed.
            (self.chunks, self.free) = (Vec::new(), Vec::new());
            return item;
        }
        if self.free.last().is_none_or(|chunk| chunk.len() == 1 << SHIFT) {
            self.free.push(Vec::with_capacity(1 << SHIFT));
        }
        self.free.last_mut().expect("just made").push(place);
        item
    }

    fn pop_free(&mut self) -> Option<u32> {
        let chunk = self.free.last_mut()?;
        let place = chunk.pop();
        if chunk.is_empty() {
            self.free.pop();
        }
        place
    }

    fn place(&mut self, place: u32) -> &mut Option<T> {
        &mut self.chunks[(place >> SHIFT) as usize][place as usize & ((1 << SHIFT) - 1)]
    }
}

impl<T, const SHIFT: u32> Index<u32> for Slab<T, SHIFT> {
    type Output = T;

    #[inline]
    fn index(&self, place: u32) -> &T {
        let item = &self.chunks[(place >> SHIFT) as usize][place as usize & ((1 << SHIFT) - 1)];
        item.as_ref().expect("a place in use")
    }
}

impl<T, const SHIFT: u32> IndexMut<u32> for Slab<T, SHIFT> {
    #[inline]
    fn index_mut(&mut self, place: u32) -> &mut T {
        self.place(place).as_mut().expect("a place in use")
    }
}

/// A hash table of numbers; its owner computes their hashes and equality.
#[derive(Debug)]
pub(crate) struct Table {
    shards: Box<[HashTable<u32>]>,
}

impl Table {
    pub(crate) fn new() -> Self {
        Table { shards: (0..SHARDS).map(|_| HashTable::new()).collect() }
    }

    /// Uses the middle of the hash: hashbrown itself uses both ends.
    fn shard(hash: u64) -> usize {
        (hash >> 36) as usize % SHARDS
    }

    #[inline]
    pub(crate) fn find(&self, hash: u64, same: impl FnMut(&u32) -> bool) -> Option<u32> {
        self.shards[Table::shard(hash)].find(hash, same).copied()
    }

    pub(crate) fn insert(&mut self, hash: u64, item: u32, rehash: impl Fn(&u32) -> u64) {
        self.shards[Table::shard(hash)].insert_unique(hash, item, rehash);
    }

    /// Removes `item`, which must be present.
    pub(crate) fn remove(&mut self, hash: u64, item: u32, rehash: impl Fn(&u32) -> u64) {
        let shard = &mut self.shards[Table::shard(hash)];
        let entry = shard.find_entry(hash, |&other| other == item).expect("what is stored is found by its hash");
        entry.remove();
        if shard.capacity() > 64 && shard.len() * 8 < shard.capacity() {
            shard.shrink_to(shard.len() * 2, rehash);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_used_again() {
        let mut slab: Slab<u32, 2> = Slab::new();
        let places: Vec<u32> = (0..10).map(|item| slab.insert(item)).collect();
        assert_eq!(places, (0..10).collect::<Vec<_>>());
        for place in [3, 7, 0, 9, 4, 5] {
            assert_eq!(slab.remove(place), place);
        }
        assert_eq!([slab.insert(50), slab.insert(40)], [5, 4]);
        assert_eq!((slab[5], slab[4], slab[8], slab.len(), slab.places()), (50, 40, 8, 6, 10));
    }
}
