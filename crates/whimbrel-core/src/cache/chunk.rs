//! A run of neighbouring slots, with the bytes of their events one behind the other: written and
//! read in order, and given back as a whole.

use std::collections::VecDeque;

use whimbrel_event::{AcceptedEvent, Packed, Tick};

use super::slot::{CacheSlot, Merged, SlotContent};

/// Bytes of events that a chunk may have besides those of large ones.
pub(super) const BLOCK: usize = 56 << 10;

/// An event that takes more bytes has an allocation of its own, so that chunks have like numbers of
/// slots whatever their events take.
pub(super) const LARGE: usize = 1 << 10;

/// For each slot that has to be moved so many bytes must have died before a chunk is compacted.
const DEAD_PER_SLOT: usize = 8;

/// The block that so many bytes are kept in: one of a few sizes, so that what one chunk gives back
/// serves another.
pub(super) fn block(bytes: usize) -> usize {
    bytes.next_multiple_of(if bytes > BLOCK / 8 { BLOCK / 8 } else { BLOCK / 32 })
}

/// The bytes of a chunk's events.
#[derive(Debug, Default)]
pub(super) struct ChunkBytes {
    /// Those of small ones. What is gone stays until the chunk is compacted or goes as well.
    small: Vec<u8>,
    /// Large ones; none where one is gone.
    large: Vec<Option<Box<[u8]>>>,
}

impl ChunkBytes {
    fn with_room(small: usize) -> Self {
        ChunkBytes { small: Vec::with_capacity(small), large: Vec::new() }
    }

    /// The event there.
    #[inline]
    pub(super) fn get(&self, place: u32, len: u32) -> Packed<'_> {
        let (place, len) = (place as usize, len as usize);
        Packed::kept(match len > LARGE {
            false => &self.small[place..][..len],
            true => self.large[place].as_deref().expect("a slot has an event"),
        })
    }

    /// Packs an event behind the others, and says where it is.
    fn put(&mut self, event: &AcceptedEvent<'_>, len: usize) -> u32 {
        if len > LARGE {
            let mut bytes = vec![0; len];
            event.pack(&mut bytes);
            self.large.push(Some(bytes.into()));
            return (self.large.len() - 1) as u32;
        }
        let place = self.small.len();
        self.small.resize(place + len, 0);
        event.pack(&mut self.small[place..]);
        place as u32
    }

    /// Moves an event here from where it was.
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

    /// Lets go of an event; says how many bytes of it stay.
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
    /// Bytes of events that were taken out of the middle.
    dead: usize,
    /// Of its last slot.
    pub(super) last: u64,
    /// How many slots at its front were taken out.
    pub(super) gone: usize,
    pub(super) holes: usize,
    /// Holes since it was last compacted.
    pub(super) fresh: usize,
    /// The classes of its events, a bit for each; may have more.
    pub(super) classes: u16,
}

impl Chunk {
    /// An empty one with room for so many bytes of small events, which may be made of one that is
    /// gone.
    pub(super) fn new(small: usize, spare: Option<Chunk>) -> Self {
        let mut chunk = Chunk::default();
        if let Some(Chunk { slots, bytes, .. }) = spare.filter(|spare| spare.bytes.small.capacity() == small) {
            (chunk.slots, chunk.bytes.small) = (slots, bytes.small);
            chunk.slots.clear();
            chunk.bytes.small.clear();
        } else {
            chunk.bytes = ChunkBytes::with_room(small);
        }
        chunk
    }

    /// What it takes from the allocator, bytes.
    #[cfg(test)]
    pub(super) fn held(&self) -> u64 {
        let ChunkBytes { small, large } = &self.bytes;
        let large_bytes: usize = large.iter().flatten().map(|event| event.len()).sum();
        let places = self.slots.capacity() * size_of::<CacheSlot>() + large.capacity() * size_of::<Box<[u8]>>();
        (size_of::<Chunk>() + places + small.capacity() + large_bytes) as u64
    }

    /// Bytes of its small events, and of some that are gone.
    pub(super) fn small(&self) -> usize {
        self.bytes.small.len()
    }

    /// Whether it has room for an event of so many bytes.
    pub(super) fn has_room(&self, len: usize) -> bool {
        len > LARGE || self.bytes.small.capacity() - self.bytes.small.len() >= len
    }

    /// Packs an event behind the others, and says where it is and how long.
    pub(super) fn put(&mut self, event: &AcceptedEvent<'_>, len: usize) -> (u32, u32) {
        (self.bytes.put(event, len), u32::try_from(len).expect("an event has less than 4 GiB"))
    }

    /// Nothing is put into it any more: what it does not need is given back.
    pub(super) fn close(&mut self) {
        self.bytes.small.shrink_to(block(self.small()));
        self.slots.shrink_to(self.slots.len().next_power_of_two());
    }

    /// All events' bytes.
    pub(super) fn bytes(&self) -> &ChunkBytes {
        &self.bytes
    }

    /// The chunk's parts for whoever takes it to pieces.
    pub(super) fn into_parts(self) -> (VecDeque<CacheSlot>, ChunkBytes) {
        (self.slots, self.bytes)
    }

    /// Takes the first slot out.
    pub(super) fn pop(&mut self) -> Option<CacheSlot> {
        let slot = self.slots.pop_front()?;
        self.gone += 1;
        if let SlotContent::Event { place, len, .. } = slot.what {
            // What stays goes with the chunk, which is the first.
            self.bytes.drop_event(place, len);
        }
        Some(slot)
    }

    /// Notes a hole that never was an event.
    pub(super) fn skip(&mut self) {
        self.holes += 1;
        self.fresh += 1;
    }

    /// Notes that an event has become a hole.
    pub(super) fn lose(&mut self, place: u32, len: u32) {
        self.dead += self.bytes.drop_event(place, len);
        self.skip();
    }

    /// Whether enough has gone that compacting pays.
    pub(super) fn is_sparse(&self, fresh_min: usize) -> bool {
        self.fresh >= fresh_min.max(self.slots.len() / 4)
            || self.dead > (self.small() / 4).max(self.slots.len() * DEAD_PER_SLOT)
    }

    /// Merges its holes, or drops all of them, as what they say is said by `incomplete` or is about
    /// to be; and moves the bytes of its events together. One that still grows keeps its room.
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
        // Not shrunk, as an allocator may leave a block as large as it was.
        self.slots = VecDeque::with_capacity(slots.len().next_power_of_two());
        self.slots.extend(slots);
    }

    /// Takes in all that the next one has.
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
