//! The events of one partition in the order of their serials, and the record of missing ones. Slots
//! and the bytes of their events are in chunks, so that memory grows and shrinks in small steps,
//! and no more than a chunk is ever moved. An event overwritten in the middle leaves a hole. Holes
//! between the same two events are merged per pubend, a chunk at a time. A hole without an event
//! before it is not kept, but raises the tick up to which the partition is incomplete.

mod evict;

use std::collections::{VecDeque, vec_deque};

use whimbrel_event::{AcceptedEvent, Tick, Time, split_mix};

use super::chunk::{BLOCK, Chunk, ChunkBytes, LARGE, block};
use super::slot::{CacheSlot, SlotContent};

/// The most slots of a chunk.
pub(super) const CHUNK: usize = 512;

/// A chunk has at most this part of a partition's slots and bytes: few are unused at both ends.
const PARTS: usize = 16;

/// Slots of a chunk of the smallest partition.
const CHUNK_MIN: usize = 8;

/// Neighbours with no more slots than this together become one chunk.
const JOIN_MAX: usize = CHUNK * 3 / 4;

/// Holes that a chunk takes between two compactions, at least.
const FRESH_MIN: usize = 16;

/// Holes that a partition may have in addition to one per event.
const HOLES_SLACK: u64 = 256;

/// Random draws before the oldest event is taken. Among chunks of similar sizes at least one draw
/// in six succeeds; fewer do where large events make short ones.
const DRAWS_MAX: usize = 128;

/// Unused memory of a large event, 256ths: half the distance of two sizes, a quarter of a doubling.
const LARGE_UNUSED: u64 = 32;

/// The cost of an event besides its own bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Charge {
    /// Its slot, possible hole, and part of unused memory in chunks and the allocator, bytes.
    pub(super) place: u64,
    /// Its part of dead bytes before compaction, 256ths of its own bytes; only small ones.
    pub(super) dead: u64,
}

impl Charge {
    fn of(self, len: usize) -> u64 {
        let more = if len > LARGE { LARGE_UNUSED } else { self.dead };
        self.place + len as u64 + ((len as u64 * more) >> 8)
    }
}

/// The place of a slot until slots are moved: to be checked against the serial.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct At {
    /// Counted from the first chunk that ever was.
    chunk: u64,
    /// Counted from the first slot that the chunk ever had.
    index: usize,
}

/// The order of a partition's events.
#[derive(Debug)]
pub(super) struct Slots {
    /// No chunk is empty; the first slot of all is an event.
    chunks: VecDeque<Chunk>,
    /// The last freed chunk: its memory serves the next.
    spare: Option<Chunk>,
    /// The most slots of any chunk but the last one, or more.
    width: usize,
    /// The slots that the last chunk, which still grows, may have had in all, also those that were
    /// removed at its front: it is not used forever.
    last_slots_max: usize,
    /// Chunks begun since `width` was computed.
    begun: usize,
    /// Chunks removed at the front.
    gone: u64,
    pub(super) events: u64,
    pub(super) holes: u64,
    pub(super) bytes: u64,
    charge: Charge,
    /// Slots looked at or moved besides those asked for.
    pub(super) work: u64,
    /// By the number of the pubend: the tick up to which any events may be missing.
    incomplete: Vec<Tick>,
}

impl Slots {
    pub(super) fn new(charge: Charge) -> Self {
        Slots {
            charge,
            chunks: VecDeque::new(),
            spare: None,
            width: 0,
            last_slots_max: 0,
            begun: 0,
            gone: 0,
            events: 0,
            holes: 0,
            bytes: 0,
            work: 0,
            incomplete: Vec::new(),
        }
    }

    /// Its memory from the allocator, bytes.
    #[cfg(test)]
    pub(super) fn held(&self) -> u64 {
        self.chunks.iter().chain(&self.spare).map(Chunk::held).sum()
    }

    /// The cost of an event of this many bytes.
    pub(super) fn cost(&self, len: usize) -> u64 {
        self.charge.of(len)
    }

    /// Changes the charge of each event.
    pub(super) fn recharge(&mut self, charge: Charge) {
        self.charge = charge;
        self.bytes = self.walk(0).filter(|(slot, _)| slot.is_event()).map(|(slot, _)| charge.of(slot.len())).sum();
    }

    /// Forgets the missing events of a pubend's number.
    pub(super) fn forget(&mut self, pubend: u16) {
        if let Some(tick) = self.incomplete.get_mut(usize::from(pubend)) {
            *tick = Tick(0);
        }
    }

    /// The tick up to which any events of a pubend may be missing.
    pub(super) fn incomplete(&self, pubend: u16) -> Tick {
        self.incomplete.get(usize::from(pubend)).copied().unwrap_or(Tick(0))
    }

    /// Records that events of a pubend up to `to` may be missing.
    pub(super) fn miss(&mut self, pubend: u16, to: Tick) {
        let place = usize::from(pubend);
        if self.incomplete.len() <= place {
            self.incomplete.resize(place + 1, Tick(0));
        }
        self.incomplete[place] = self.incomplete[place].max(to);
    }

    /// The serial of the oldest event.
    pub(super) fn first_serial(&self) -> Option<u64> {
        self.chunks.front().map(|chunk| chunk.slots[0].last)
    }

    /// The oldest event.
    pub(super) fn front(&self) -> Option<&CacheSlot> {
        self.chunks.front().map(|chunk| &chunk.slots[0])
    }

    /// Appends an event of this many bytes. Serials must grow.
    pub(super) fn push(
        &mut self,
        serial: u64,
        event: &AcceptedEvent<'_>,
        len: usize,
        pubend: u16,
        class: u8,
        since: Time,
    ) -> At {
        self.bytes += self.cost(len);
        self.events += 1;
        let chunk = match self.chunks.back_mut() {
            Some(chunk) if chunk.takes(len, self.last_slots_max) => chunk,
            _ => self.begin_chunk(len),
        };
        chunk.classes |= 1 << class;
        chunk.last = serial;
        let (place, len) = chunk.put(event, len);
        let (tick, importance) = (event.id.tick, event.event.importance);
        let what = SlotContent::Event { tick, place, len, since, pubend, class, importance };
        chunk.slots.push_back(CacheSlot { last: serial, what });
        let index = chunk.gone + chunk.slots.len() - 1;
        At { chunk: self.gone + self.chunks.len() as u64 - 1, index }
    }

    /// Appends a hole in place of an event that was not kept.
    pub(super) fn push_hole(&mut self, serial: u64, pubend: u16, tick: Tick) {
        if self.events == 0 {
            self.miss(pubend, tick);
            return;
        }
        self.holes += 1;
        let chunk = match self.chunks.back_mut() {
            Some(chunk) if chunk.takes(0, self.last_slots_max) => chunk,
            _ => self.begin_chunk(0),
        };
        chunk.skip();
        chunk.last = serial;
        chunk
            .slots
            .push_back(CacheSlot { last: serial, what: SlotContent::Hole { from: tick, to: tick, span: 0, pubend } });
        let place = self.chunks.len() - 1;
        self.tidy(place);
    }

    /// Closes the last chunk and begins another, with room for this many bytes.
    fn begin_chunk(&mut self, len: usize) -> &mut Chunk {
        if let Some(full) = self.chunks.back_mut() {
            full.close();
            self.width = self.width.max(full.slots.len());
        }
        let slots = (self.events as usize / PARTS).clamp(CHUNK_MIN, CHUNK);
        self.last_slots_max = slots;
        let events = self.events.max(1);
        let mean = (self.bytes.saturating_sub(self.events * self.charge.place) / events) as usize;
        let part = BLOCK.min(self.bytes as usize / PARTS).min(mean * slots);
        self.chunks.push_back(Chunk::new(block(part.max(len)).min(BLOCK), self.spare.take()));
        self.begun += 1;
        if self.begun > self.chunks.len() {
            self.begun = 0;
            self.width = self.chunks.iter().map(|chunk| chunk.slots.len()).max().unwrap_or(0);
        }
        self.chunks.back_mut().expect("it has just begun")
    }

    /// Removes an event that exists; it leaves a hole.
    pub(super) fn overwrite(&mut self, at: At) {
        let (place, index) = self.resolve(at).expect("the place of an event");
        if place == 0 && index == 0 {
            assert!(self.pop(), "the place of an event");
            return;
        }
        let chunk = &mut self.chunks[place];
        let slot = &mut chunk.slots[index];
        let SlotContent::Event { tick, place: at, len, pubend, .. } = slot.what else {
            unreachable!("the place of an event")
        };
        slot.what = SlotContent::Hole { from: tick, to: tick, span: 0, pubend };
        chunk.lose(at, len);
        self.events -= 1;
        self.holes += 1;
        self.bytes -= self.cost(len as usize);
        self.tidy(place);
    }

    /// Bounds the holes after one was added to a chunk.
    fn tidy(&mut self, place: usize) {
        if self.chunks[place].is_sparse(FRESH_MIN) {
            self.compact(place, false);
            self.join(place);
        }
        if self.holes > self.events + HOLES_SLACK {
            self.fold();
        }
    }

    /// Merges the holes of a chunk, or drops all of them if the incompleteness covers them or will.
    fn compact(&mut self, place: usize, drop_holes: bool) {
        let is_tail = place + 1 == self.chunks.len();
        let Some(chunk) = self.chunks.get_mut(place) else { return };
        let before = chunk.holes;
        self.work += chunk.slots.len() as u64;
        chunk.compact(is_tail, drop_holes, &mut self.incomplete);
        self.holes -= (before - chunk.holes) as u64;
        // The first chunk begins with an event: it is never the empty one.
        if chunk.slots.is_empty() {
            self.chunks.remove(place);
        }
    }

    /// Joins a chunk with a neighbour if both are small. The last one still grows, and stays.
    fn join(&mut self, place: usize) {
        for first in [place, place.saturating_sub(1)] {
            if first + 2 >= self.chunks.len() {
                continue;
            }
            let (one, two) = (&self.chunks[first], &self.chunks[first + 1]);
            if one.slots.len() + two.slots.len() > JOIN_MAX || one.small() + two.small() > BLOCK / 2 {
                continue;
            }
            let second = self.chunks.remove(first + 1).expect("a neighbour");
            let chunk = &mut self.chunks[first];
            self.work += second.slots.len() as u64;
            chunk.append(second);
            self.width = self.width.max(chunk.slots.len());
        }
    }

    /// Gives up the older half of too many holes: all up to them counts as incomplete.
    fn fold(&mut self) {
        let target = (self.events + HOLES_SLACK) / 2;
        let mut place = 0;
        while self.holes > target && place < self.chunks.len() {
            let chunks = self.chunks.len();
            if self.chunks[place].holes > 0 {
                self.compact(place, true);
                self.join(place);
            }
            if self.chunks.len() == chunks {
                place += 1;
            }
        }
    }

    /// The place of a random event, all with equal probability.
    pub(super) fn draw(&mut self, random: &mut u64) -> Option<At> {
        if self.events == 0 {
            return None;
        }
        let width = self.chunks.back().map_or(0, |last| last.slots.len()).max(self.width);
        let few = (self.chunks.len() <= 4).then(|| self.chunks.iter().map(|chunk| chunk.slots.len()).sum::<usize>());
        for _ in 0..DRAWS_MAX {
            self.work += 1;
            let drawn = split_mix(random);
            // The upper and the lower half serve as two numbers.
            let (high, low) = (drawn >> 32, drawn & u64::from(u32::MAX));
            let (place, index) = match few {
                Some(slots) => {
                    let mut index = scaled(high, slots);
                    let mut place = 0;
                    while index >= self.chunks[place].slots.len() {
                        index -= self.chunks[place].slots.len();
                        place += 1;
                    }
                    (place, index)
                }
                None => (scaled(high, self.chunks.len()), scaled(low, width)),
            };
            let chunk = &self.chunks[place];
            if chunk.slots.get(index).is_some_and(CacheSlot::is_event) {
                return Some(self.at(place, index));
            }
        }
        Some(self.at(0, 0))
    }

    /// The place of the event with a serial, which was at `at` before the last move.
    pub(super) fn locate(&self, serial: u64, at: At) -> At {
        let slot = |at| self.resolve(at).and_then(|(place, index)| self.chunks[place].slots.get(index));
        if slot(at).is_some_and(|slot| slot.last == serial && slot.is_event()) {
            return at;
        }
        let (place, mut index) = self.seek(serial);
        // Holes before an event may reach up to it, not to its serial.
        while !self.chunks[place].slots[index].is_event() {
            index += 1;
        }
        self.at(place, index)
    }

    /// The next event of a class behind `at`.
    pub(super) fn next_of(&mut self, class: u8, at: At) -> Option<(At, &CacheSlot)> {
        let (mut place, index) = self.resolve(at)?;
        let mut index = index + 1;
        loop {
            let chunk = self.chunks.get(place)?;
            if chunk.classes & (1 << class) != 0 {
                let is_it = |slot: &CacheSlot| matches!(slot.what, SlotContent::Event { class: of, .. } if of == class);
                let found = chunk.slots.range(index.min(chunk.slots.len())..).position(is_it);
                self.work += found.unwrap_or(chunk.slots.len().saturating_sub(index)) as u64 + 1;
                if let Some(found) = found {
                    index += found;
                    break;
                }
            }
            self.work += 1;
            place += 1;
            index = 0;
        }
        Some((self.at(place, index), &self.chunks[place].slots[index]))
    }

    /// The slot at a place.
    pub(super) fn get(&self, at: At) -> &CacheSlot {
        let (place, index) = self.resolve(at).expect("the place of an event");
        &self.chunks[place].slots[index]
    }

    /// Gives an event another class, and another begin of its age.
    pub(super) fn promote(&mut self, at: At, to: u8, from_now: Time) {
        let (place, index) = self.resolve(at).expect("the place of an event");
        let chunk = &mut self.chunks[place];
        if let SlotContent::Event { class, since, .. } = &mut chunk.slots[index].what {
            (*class, *since) = (to, from_now);
        }
        chunk.classes |= 1 << to;
    }

    fn at(&self, place: usize, index: usize) -> At {
        At { chunk: self.gone + place as u64, index: self.chunks[place].gone + index }
    }

    fn resolve(&self, at: At) -> Option<(usize, usize)> {
        let place = usize::try_from(at.chunk.checked_sub(self.gone)?).ok()?;
        Some((place, at.index.checked_sub(self.chunks.get(place)?.gone)?))
    }

    /// The chunk, and the index in it, of the first slot for `serial` or a later one.
    fn seek(&self, serial: u64) -> (usize, usize) {
        let place = self.chunks.partition_point(|chunk| chunk.last < serial);
        let index = self.chunks.get(place).map_or(0, |chunk| chunk.slots.partition_point(|slot| slot.last < serial));
        (place, index)
    }

    /// The lowest serial with contents, from `from` on.
    pub(super) fn first_at(&self, from: u64) -> Option<u64> {
        self.walk(from).next().map(|(slot, _)| slot.first().max(from))
    }

    /// All slots, in chunks, with the bytes of their events.
    pub(super) fn into_chunks(self) -> impl Iterator<Item = (VecDeque<CacheSlot>, ChunkBytes)> {
        self.chunks.into_iter().map(Chunk::into_parts)
    }

    /// Gives every event the class `of` its importance; passes it to `found` with its cost.
    pub(super) fn reclass(&mut self, of: impl Fn(u8) -> u8, mut found: impl FnMut(At, u64, u8, Time, u64)) {
        for (place, chunk) in self.chunks.iter_mut().enumerate() {
            chunk.classes = 0;
            for (index, slot) in chunk.slots.iter_mut().enumerate() {
                if let SlotContent::Event { len, class, since, importance, .. } = &mut slot.what {
                    *class = of(*importance);
                    chunk.classes |= 1 << *class;
                    let at = At { chunk: self.gone + place as u64, index: chunk.gone + index };
                    found(at, slot.last, *class, *since, self.charge.of(*len as usize));
                }
            }
        }
    }

    /// All slots from the first one for `from` or a later serial.
    pub(super) fn walk(&self, from: u64) -> SlotWalk<'_> {
        let (place, index) = self.seek(from);
        let mut walk = SlotWalk { chunks: self.chunks.range(place..), slots: vec_deque::Iter::default(), bytes: None };
        walk.next_chunk();
        walk.slots = self.chunks.get(place).map(|chunk| chunk.slots.range(index..)).unwrap_or_default();
        walk
    }
}

/// Scales a number below 2^32 to one below `bound`.
fn scaled(random: u64, bound: usize) -> usize {
    ((random * bound as u64) >> 32) as usize
}

/// Slots one by one, each with the bytes of its chunk's events.
#[derive(Debug)]
pub(super) struct SlotWalk<'a> {
    slots: vec_deque::Iter<'a, CacheSlot>,
    bytes: Option<&'a ChunkBytes>,
    chunks: vec_deque::Iter<'a, Chunk>,
}

impl SlotWalk<'_> {
    fn next_chunk(&mut self) -> Option<()> {
        let chunk = self.chunks.next()?;
        (self.slots, self.bytes) = (chunk.slots.iter(), Some(chunk.bytes()));
        Some(())
    }
}

impl<'a> Iterator for SlotWalk<'a> {
    type Item = (&'a CacheSlot, &'a ChunkBytes);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if let Some(slot) = self.slots.next() {
            return self.bytes.map(|bytes| (slot, bytes));
        }
        self.next_chunk()?;
        self.slots.next().zip(self.bytes)
    }
}
