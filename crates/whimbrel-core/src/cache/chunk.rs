//! A run of neighbouring slots, with the bytes of their events one behind the other: written and
//! read in order, and freed as a whole.

use std::collections::VecDeque;

use whimbrel_event::{AcceptedEvent, Packed, Tick};

use super::slot::{CacheSlot, Merged, SlotContent};

/// Bytes of small events in a chunk, at most.
pub(super) const BLOCK: usize = 56 << 10;

/// An event of more bytes has an allocation of its own, so that chunks have similar numbers of
/// slots with events of any size.
pub(super) const LARGE: usize = 1 << 10;

/// The dead bytes for each slot to be moved at which a chunk is compacted.
const DEAD_PER_SLOT: usize = 8;

/// The size of the block for this many bytes: one of a few sizes, so that a block that one chunk
/// frees serves another.
pub(super) fn block(bytes: usize) -> usize {
    bytes.next_multiple_of(if bytes > BLOCK / 8 { BLOCK / 8 } else { BLOCK / 32 })
}

/// The bytes of a chunk's events.
#[derive(Debug, Default)]
pub(super) struct ChunkBytes {
    /// Small events. Dead ones stay until the chunk is compacted or freed.
    small: Vec<u8>,
    /// Large events; `None` where one was removed.
    large: Vec<Option<Box<[u8]>>>,
}

impl ChunkBytes {
    fn with_room(small: usize) -> Self {
        ChunkBytes { small: Vec::with_capacity(small), large: Vec::new() }
    }

    /// The event at a place.
    #[inline]
    pub(super) fn get(&self, place: u32, len: u32) -> Packed<'_> {
        let (place, len) = (place as usize, len as usize);
        Packed::kept(match len > LARGE {
            false => &self.small[place..][..len],
            true => self.large[place].as_deref().expect("a slot has an event"),
        })
    }

    /// Packs an event behind the others; returns its place.
    fn put(&mut self, event: &AcceptedEvent<'_>, len: usize) -> u32 {
        if len > LARGE {
            let mut bytes = Vec::with_capacity(len);
            event.pack_onto(&mut bytes);
            self.large.push(Some(bytes.into()));
            return (self.large.len() - 1) as u32;
        }
        let place = self.small.len();
        event.pack_onto(&mut self.small);
        debug_assert_eq!(self.small.len(), place + len, "an event takes as many bytes as it says");
        place as u32
    }

    /// Moves an event here from another chunk's bytes.
    pub(super) fn take(&mut self, from: &mut ChunkBytes, place: &mut u32, len: u32) {
        let (at, len) = (*place as usize, len as usize);
        if len > LARGE {
            *place = self.large.len() as u32;
            self.large.push(from.large[at].take());
        } else {
            *place = self.small.len() as u32;
            self.small.extend_from_slice(&from.small[at..at + len]);
        }
    }

    /// Drops an event; returns its bytes that stay dead.
    fn drop_event(&mut self, place: u32, len: u32) -> usize {
        let (place, len) = (place as usize, len as usize);
        if len > LARGE {
            self.large[place] = None;
            return 0;
        }
        if place + len == self.small.len() {
            self.small.truncate(place);
            return 0;
        }
        len
    }
}

/// Up to [`super::slots::CHUNK`] slots.
#[derive(Debug, Default)]
pub(super) struct Chunk {
    pub(super) slots: VecDeque<CacheSlot>,
    bytes: ChunkBytes,
    /// Dead bytes: of events that were removed from the middle.
    dead: usize,
    /// The `last` of its last slot.
    pub(super) last: u64,
    /// The number of slots that were removed at its front.
    pub(super) gone: usize,
    pub(super) holes: usize,
    /// Holes since it was last compacted.
    pub(super) fresh: usize,
    /// The classes of its events, a bit for each; may have more bits.
    pub(super) classes: u16,
}

impl Chunk {
    /// An empty chunk with room for this many bytes of small events; may reuse the memory of a
    /// freed one.
    pub(super) fn new(small: usize, spare: Option<Chunk>) -> Self {
        let mut chunk = Chunk::default();
        if let Some(Chunk { slots, bytes, .. }) = spare.filter(|spare| spare.bytes.small.capacity() == small) {
            (chunk.slots, chunk.bytes.small) = (slots, bytes.small);
        } else {
            chunk.bytes = ChunkBytes::with_room(small);
        }
        chunk
    }

    /// Its memory from the allocator, bytes.
    #[cfg(test)]
    pub(super) fn held(&self) -> u64 {
        let ChunkBytes { small, large } = &self.bytes;
        let large_bytes: usize = large.iter().flatten().map(|event| event.len()).sum();
        let places = self.slots.capacity() * size_of::<CacheSlot>() + large.capacity() * size_of::<Box<[u8]>>();
        (size_of::<Chunk>() + places + small.capacity() + large_bytes) as u64
    }

    /// Bytes of its small events, live or dead.
    pub(super) fn small(&self) -> usize {
        self.bytes.small.len()
    }

    /// Whether it takes another slot, with an event of `len` bytes: it has room for these, and has
    /// had fewer than `slots_max` slots since it began or was last compacted.
    #[inline]
    pub(super) fn takes(&self, len: usize, slots_max: usize) -> bool {
        let has_room = len > LARGE || self.bytes.small.capacity() - self.bytes.small.len() >= len;
        has_room && self.gone + self.slots.len() < slots_max
    }

    /// Packs an event behind the others; returns its place and length.
    pub(super) fn put(&mut self, event: &AcceptedEvent<'_>, len: usize) -> (u32, u32) {
        (self.bytes.put(event, len), u32::try_from(len).expect("an event has less than 4 GiB"))
    }

    /// Frees unused memory: no event will be added any more.
    pub(super) fn close(&mut self) {
        self.bytes.small.shrink_to(block(self.small()));
        self.slots.shrink_to(self.slots.len().next_power_of_two());
    }

    /// Whether an event of it has an allocation of its own.
    pub(super) fn has_large(&self) -> bool {
        !self.bytes.large.is_empty()
    }

    /// Frees its events; the memory of its slots and small events stays.
    pub(super) fn clear(&mut self) {
        self.slots.clear();
        self.bytes.small.clear();
        self.bytes.large = Vec::new();
    }

    /// The bytes of its events.
    pub(super) fn bytes(&self) -> &ChunkBytes {
        &self.bytes
    }

    /// Takes the chunk apart, for dealing its events.
    pub(super) fn into_parts(self) -> (VecDeque<CacheSlot>, ChunkBytes) {
        (self.slots, self.bytes)
    }

    /// Removes the first slot.
    pub(super) fn pop(&mut self) -> Option<CacheSlot> {
        let slot = self.slots.pop_front()?;
        self.gone += 1;
        if let SlotContent::Event { place, len, .. } = slot.what {
            // Dead bytes are freed with the chunk, which is the first.
            self.bytes.drop_event(place, len);
        }
        Some(slot)
    }

    /// Counts a hole that never was an event.
    pub(super) fn skip(&mut self) {
        self.holes += 1;
        self.fresh += 1;
    }

    /// Counts an event that has become a hole.
    pub(super) fn lose(&mut self, place: u32, len: u32) {
        self.dead += self.bytes.drop_event(place, len);
        self.skip();
    }

    /// Whether compacting pays.
    pub(super) fn is_sparse(&self, fresh_min: usize) -> bool {
        self.fresh >= fresh_min.max(self.slots.len() / 4)
            || self.dead > (self.small() / 4).max(self.slots.len() * DEAD_PER_SLOT)
    }

    /// Merges its holes, or drops all of them if `incomplete` covers them or is about to; moves the
    /// bytes of its events together. A chunk that still grows keeps its room.
    pub(super) fn compact(&mut self, grows: bool, drop_holes: bool, incomplete: &mut Vec<Tick>) {
        let old = core::mem::take(&mut self.slots);
        let mut bytes = core::mem::take(&mut self.bytes);
        let live: usize = old.iter().map(CacheSlot::len).filter(|len| *len <= LARGE).sum();
        let room = ChunkBytes::with_room(if grows { bytes.small.capacity() } else { block(live) });
        let mut merged = Merged::new(old.len(), room, &mut bytes, drop_holes, incomplete);
        for slot in old {
            merged.take(slot);
        }
        merged.end_run();
        let Merged { slots, bytes, classes, .. } = merged;
        self.holes = slots.iter().filter(|slot| !slot.is_event()).count();
        (self.fresh, self.gone, self.dead) = (0, 0, 0);
        self.classes = classes;
        self.last = slots.last().map_or(0, |slot| slot.last);
        self.bytes = bytes;
        // Not shrunk, as an allocator may leave a block at its size.
        self.slots = VecDeque::with_capacity(slots.len().next_power_of_two());
        self.slots.extend(slots);
    }

    /// Appends all slots of the next chunk.
    pub(super) fn append(&mut self, next: Chunk) {
        let slots = (self.slots.len() + next.slots.len()).next_power_of_two();
        self.slots.reserve_exact(slots - self.slots.len());
        let Chunk { slots: more, bytes: mut from, .. } = next;
        let small = block(self.small() + from.small.len());
        self.bytes.small.reserve_exact(small - self.small());
        for mut slot in more {
            if let SlotContent::Event { place, len, .. } = &mut slot.what {
                self.bytes.take(&mut from, place, *len);
            }
            self.slots.push_back(slot);
        }
        self.last = next.last;
        self.holes += next.holes;
        self.fresh += next.fresh;
        self.classes |= next.classes;
    }
}
