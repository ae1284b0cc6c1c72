//! Eviction at the front: the oldest event, or the oldest chunk as a whole.

use super::{PARTS, Slots};
use crate::cache::chunk::Chunk;
use crate::cache::slot::{CacheSlot, SlotContent};

/// A chunk is evicted as a whole if it has at most this part of a partition's events.
const EVICTED_PART: usize = PARTS / 2;

impl Slots {
    /// Removes the oldest event, without a hole at the front. False if there is none.
    pub(in crate::cache) fn pop(&mut self) -> bool {
        let Some(slot) = self.take_front() else { return false };
        let SlotContent::Event { tick, len, pubend, .. } = slot.what else {
            unreachable!("the first slot is an event")
        };
        self.events -= 1;
        self.bytes -= self.cost(len as usize);
        self.miss(pubend, tick);
        self.absorb();
        true
    }

    /// Removes the first slot; the caller counts it.
    fn take_front(&mut self) -> Option<CacheSlot> {
        let chunk = self.chunks.front_mut()?;
        let slot = chunk.pop();
        if chunk.slots.is_empty() {
            let freed = self.chunks.pop_front();
            freed.into_iter().for_each(|chunk| self.retire(chunk));
        }
        slot
    }

    /// Removes the oldest chunk with all its events and holes, as a large part of a message's cost
    /// is to remove the slots of others one by one; returns the number of events. A chunk that is
    /// too large a part of the partition, or has events with allocations of their own, stays: 0.
    pub(in crate::cache) fn pop_chunk(&mut self) -> u64 {
        let (before, charge) = (self.events, self.charge);
        let is_small = |chunk: &Chunk| !chunk.has_large() && chunk.slots.len() * EVICTED_PART <= before as usize;
        let chunk = if self.chunks.front().is_some_and(is_small) { self.chunks.pop_front() } else { None };
        let Some(chunk) = chunk else { return 0 };
        for slot in &chunk.slots {
            match slot.what {
                SlotContent::Event { tick, len, pubend, .. } => {
                    self.events -= 1;
                    self.bytes -= charge.of(len as usize);
                    self.miss(pubend, tick);
                }
                SlotContent::Hole { to, pubend, .. } => {
                    self.holes -= 1;
                    self.miss(pubend, to);
                }
            }
        }
        self.retire(chunk);
        self.absorb();
        before - self.events
    }

    /// Keeps the memory of the first chunk, which was removed, for the next one.
    fn retire(&mut self, mut chunk: Chunk) {
        chunk.clear();
        self.spare = Some(chunk);
        self.gone += 1;
    }

    /// Turns holes at the front into incompleteness.
    fn absorb(&mut self) {
        while let Some(chunk) = self.chunks.front_mut() {
            let SlotContent::Hole { to, pubend, .. } = chunk.slots[0].what else { return };
            chunk.holes -= 1;
            chunk.fresh = chunk.fresh.saturating_sub(1);
            self.holes -= 1;
            self.miss(pubend, to);
            self.take_front();
        }
    }
}
