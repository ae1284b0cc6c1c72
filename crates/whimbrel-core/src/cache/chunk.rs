//! A run of neighbouring slots, with the bytes of their events one behind the other: written and read in order, and given back as a whole.

use std::collections::VecDeque;

use whimbrel_event::{AcceptedEvent, Tick};

use super::slot::{Merged, Slot, What};

/// Dead bytes that a chunk may have whatever its size.
const DEAD_MIN: usize = 4096;

/// Bytes of events that a chunk may have, but for one that has only one event.
pub(super) const BLOCK: usize = 56 << 10;

/// The block that so many bytes are kept in: one of a few sizes, so that what one chunk gives back serves another.
pub(super) fn block(bytes: usize) -> usize {
    bytes.next_multiple_of(if bytes > BLOCK / 8 { BLOCK / 8 } else { BLOCK / 32 })
}

/// Up to [`super::slots::CHUNK`] slots.
#[derive(Debug, Default)]
pub(super) struct Chunk {
    pub(super) slots: VecDeque<Slot>,
    /// The events' bytes. Those of events that are gone stay until the chunk is compacted or goes as well.
    data: Vec<u8>,
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
    /// An empty one with room for so many bytes of events, which may be made of one that is gone.
    pub(super) fn new(bytes: usize, spare: Option<Chunk>) -> Self {
        let mut chunk = Chunk::default();
        if let Some(Chunk { slots, data, .. }) = spare.filter(|spare| spare.data.capacity() == bytes) {
            (chunk.slots, chunk.data) = (slots, data);
            chunk.slots.clear();
            chunk.data.clear();
        } else {
            chunk.data.reserve_exact(bytes);
        }
        chunk
    }

    /// Bytes of its events, and of some that are gone.
    pub(super) fn len(&self) -> usize {
        self.data.len()
    }

    /// Whether it has room for so many more bytes.
    pub(super) fn has_room(&self, more: usize) -> bool {
        self.data.capacity() - self.data.len() >= more
    }

    /// Packs an event behind the others, and says where it is and how long.
    pub(super) fn put(&mut self, event: &AcceptedEvent<'_>, len: usize) -> (u32, u32) {
        let place = self.data.len();
        self.data.resize(place + len, 0);
        event.pack(&mut self.data[place..]);
        // Alone in its chunk if it is large.
        let fits = "events and chunks have less than 4 GiB";
        (u32::try_from(place).expect(fits), u32::try_from(len).expect(fits))
    }

    /// Nothing is put into it any more: what it does not need is given back.
    pub(super) fn close(&mut self) {
        self.data.shrink_to(block(self.data.len()));
        self.slots.shrink_to(self.slots.len().next_power_of_two());
    }

    /// All events' bytes.
    pub(super) fn data(&self) -> &[u8] {
        &self.data
    }

    /// The chunk's parts for whoever takes it to pieces.
    pub(super) fn into_parts(self) -> (VecDeque<Slot>, Vec<u8>) {
        (self.slots, self.data)
    }

    /// Notes that an event of so many bytes has become a hole.
    pub(super) fn lose(&mut self, len: usize) {
        self.dead += len;
        self.holes += 1;
        self.fresh += 1;
    }

    /// Whether enough has gone that compacting pays.
    pub(super) fn is_sparse(&self, fresh_min: usize) -> bool {
        self.fresh >= fresh_min.max(self.slots.len() / 4) || self.dead > DEAD_MIN.max(self.data.len() / 4)
    }

    /// Merges its holes, or drops all of them, as what they say is said by `incomplete` or is about to be; and moves the bytes of its events together. One
    /// that still grows keeps its room.
    pub(super) fn compact(&mut self, grows: bool, drop_holes: bool, incomplete: &mut Vec<Tick>) {
        let (old, data) = (core::mem::take(&mut self.slots), core::mem::take(&mut self.data));
        let live: usize = old.iter().map(Slot::len).sum();
        let bytes = if grows { data.capacity() } else { block(live) };
        let mut merged = Merged::new((old.len(), bytes), &data, drop_holes, incomplete);
        for slot in old {
            merged.take(slot);
        }
        merged.end_run();
        let Merged { slots, data, classes, .. } = merged;
        self.holes = slots.iter().filter(|slot| !slot.is_event()).count();
        (self.fresh, self.gone, self.dead) = (0, 0, 0);
        self.classes = classes;
        self.last = slots.last().map_or(0, |slot| slot.last);
        self.data = data;
        // Not shrunk, as an allocator may leave a block as large as it was.
        self.slots = VecDeque::with_capacity(slots.len().next_power_of_two());
        self.slots.extend(slots);
    }

    /// Takes in all that the next one has.
    pub(super) fn append(&mut self, next: Chunk) {
        let slots = (self.slots.len() + next.slots.len()).next_power_of_two();
        self.slots.reserve_exact(slots - self.slots.len());
        let bytes = block(self.data.len() + next.data.len());
        self.data.reserve_exact(bytes - self.data.len());
        let shift = self.data.len() as u32;
        self.data.extend_from_slice(&next.data);
        self.slots.extend(next.slots.into_iter().map(|mut slot| {
            if let What::Event { place, .. } = &mut slot.what {
                *place += shift;
            }
            slot
        }));
        self.last = next.last;
        self.dead += next.dead;
        self.holes += next.holes;
        self.fresh += next.fresh;
        self.classes |= next.classes;
    }
}
