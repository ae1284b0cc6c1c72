//! The events of one partition in the order of their serials, and what is known to be missing.
//!
//! Slots stand in chunks, so that memory grows and shrinks by little, and nothing that has to be moved is longer than a chunk. An event that is
//! overwritten in the middle leaves a hole. Holes between the same two events are merged per pubend, a chunk at a time. A hole that has no
//! event before it is not kept: what is known then is the tick up to which the partition is incomplete.

use std::collections::{VecDeque, vec_deque};
use std::sync::Arc;

use whimbrel_event::{Event, Tick, Time};

use super::slot::{Merged, Slot, What};
use crate::stream::split_mix;

/// Slots of a chunk.
pub(super) const CHUNK: usize = 256;

/// Neighbours that have no more slots than this together become one chunk.
const JOIN_MAX: usize = CHUNK * 3 / 4;

/// Holes that a chunk takes between two compactions, at least.
const FRESH_MIN: usize = 16;

/// Holes that a partition may have besides as many as it has events.
const HOLES_SLACK: u64 = 256;

/// How often a random place is drawn before the oldest event is taken. At least one draw in six succeeds.
const DRAWS_MAX: usize = 128;

/// What the place of an event costs besides the event, bytes: its slot, and its part of what chunks and the allocator leave unused.
const PLACE_BYTES: u64 = 40;

/// Up to [`CHUNK`] slots.
#[derive(Debug)]
struct Chunk {
    slots: VecDeque<Slot>,
    /// Of its last slot.
    last: u64,
    /// How many slots at its front were taken out.
    gone: usize,
    holes: usize,
    /// Holes since it was last compacted.
    fresh: usize,
    /// The classes of its events, a bit for each; may have more.
    classes: u16,
}

impl Chunk {
    fn new() -> Self {
        Chunk { slots: VecDeque::with_capacity(CHUNK), last: 0, gone: 0, holes: 0, fresh: 0, classes: 0 }
    }
}

/// Where a slot is, as long as nothing is moved: it is to be checked against the serial.
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
    /// None of them is empty; the first slot of all is an event.
    chunks: VecDeque<Chunk>,
    /// Chunks that were taken out at the front.
    gone: u64,
    pub(super) events: u64,
    pub(super) holes: u64,
    pub(super) bytes: u64,
    /// What each event costs besides its weight.
    place_bytes: u64,
    /// Slots that were looked at or moved besides those that were asked for.
    pub(super) work: u64,
    /// By the number of the pubend: up to here events may be missing anywhere.
    incomplete: Vec<Tick>,
}

impl Slots {
    /// `hole_bytes` is what each event is charged for the hole that it may leave.
    pub(super) fn new(hole_bytes: u64) -> Self {
        let place_bytes = PLACE_BYTES + hole_bytes;
        Slots {
            place_bytes,
            chunks: VecDeque::new(),
            gone: 0,
            events: 0,
            holes: 0,
            bytes: 0,
            work: 0,
            incomplete: Vec::new(),
        }
    }

    /// What an event costs, bytes.
    pub(super) fn cost(&self, event: &Event) -> u64 {
        event.weight() as u64 + self.place_bytes
    }

    /// From now on each event is charged otherwise for the hole that it may leave.
    pub(super) fn charge_holes(&mut self, hole_bytes: u64) {
        let place_bytes = PLACE_BYTES + hole_bytes;
        self.bytes = self.bytes - self.events * self.place_bytes + self.events * place_bytes;
        self.place_bytes = place_bytes;
    }

    /// Nothing is known any more of what had that number.
    pub(super) fn forget(&mut self, pubend: u16) {
        if let Some(tick) = self.incomplete.get_mut(usize::from(pubend)) {
            *tick = Tick(0);
        }
    }

    /// Up to which tick events of that pubend may be missing anywhere.
    pub(super) fn incomplete(&self, pubend: u16) -> Tick {
        self.incomplete.get(usize::from(pubend)).copied().unwrap_or(Tick(0))
    }

    /// Events of that pubend up to `to` may be missing.
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
    pub(super) fn front(&self) -> Option<&Slot> {
        self.chunks.front().map(|chunk| &chunk.slots[0])
    }

    /// Appends an event. Serials must grow.
    pub(super) fn push(&mut self, serial: u64, event: Arc<Event>, pubend: u16, class: u8, since: Time) -> At {
        self.bytes += self.cost(&event);
        self.events += 1;
        let chunk = self.tail();
        chunk.classes |= 1 << class;
        chunk.last = serial;
        chunk.slots.push_back(Slot { last: serial, what: What::Event { event, since, pubend, class } });
        let index = chunk.gone + chunk.slots.len() - 1;
        At { chunk: self.gone + self.chunks.len() as u64 - 1, index }
    }

    /// Appends a hole where an event would be that was not kept.
    pub(super) fn push_hole(&mut self, serial: u64, pubend: u16, tick: Tick) {
        if self.events == 0 {
            self.miss(pubend, tick);
            return;
        }
        self.holes += 1;
        let chunk = self.tail();
        chunk.holes += 1;
        chunk.fresh += 1;
        chunk.last = serial;
        chunk.slots.push_back(Slot { last: serial, what: What::Hole { from: tick, to: tick, span: 0, pubend } });
        let place = self.chunks.len() - 1;
        self.tidy(place);
    }

    fn tail(&mut self) -> &mut Chunk {
        if self.chunks.back().is_none_or(|chunk| chunk.slots.len() >= CHUNK) {
            self.chunks.push_back(Chunk::new());
        }
        self.chunks.back_mut().expect("there is one now")
    }

    /// Takes the oldest event out; what it leaves at the front is no hole.
    pub(super) fn pop(&mut self) -> Option<Arc<Event>> {
        let slot = self.take_front()?;
        let What::Event { event, pubend, .. } = slot.what else { unreachable!("the first slot is an event") };
        self.events -= 1;
        self.bytes -= self.cost(&event);
        self.miss(pubend, event.id().tick);
        self.absorb();
        Some(event)
    }

    /// Takes the first slot out; the caller counts it.
    fn take_front(&mut self) -> Option<Slot> {
        let chunk = self.chunks.front_mut()?;
        let slot = chunk.slots.pop_front();
        chunk.gone += 1;
        if chunk.slots.is_empty() {
            self.chunks.pop_front();
            self.gone += 1;
        }
        slot
    }

    /// Turns holes at the front into incompleteness.
    fn absorb(&mut self) {
        while let Some(chunk) = self.chunks.front_mut() {
            let What::Hole { to, pubend, .. } = chunk.slots[0].what else { return };
            chunk.holes -= 1;
            chunk.fresh = chunk.fresh.saturating_sub(1);
            self.holes -= 1;
            self.miss(pubend, to);
            self.take_front();
        }
    }

    /// Takes an event out that is there; it leaves a hole.
    pub(super) fn overwrite(&mut self, at: At) -> Arc<Event> {
        let (place, index) = self.resolve(at).expect("the place of an event");
        if place == 0 && index == 0 {
            return self.pop().expect("the place of an event");
        }
        let chunk = &mut self.chunks[place];
        let hole = What::Hole { from: Tick(0), to: Tick(0), span: 0, pubend: 0 };
        let slot = &mut chunk.slots[index];
        let What::Event { event, pubend, .. } = core::mem::replace(&mut slot.what, hole) else {
            unreachable!("the place of an event")
        };
        let tick = event.id().tick;
        slot.what = What::Hole { from: tick, to: tick, span: 0, pubend };
        chunk.holes += 1;
        chunk.fresh += 1;
        self.events -= 1;
        self.holes += 1;
        self.bytes -= self.cost(&event);
        self.tidy(place);
        event
    }

    /// Bounds the holes after one came to a chunk.
    fn tidy(&mut self, place: usize) {
        let chunk = &self.chunks[place];
        if chunk.fresh >= FRESH_MIN.max(chunk.slots.len() / 4) {
            self.compact(place, false);
            self.join(place);
        }
        if self.holes > self.events + HOLES_SLACK {
            self.fold();
        }
    }

    /// Merges the holes of a chunk, or drops all of them, as what they say is said by the incompleteness or is about to be.
    fn compact(&mut self, place: usize, drop_holes: bool) {
        let is_tail = place + 1 == self.chunks.len();
        let Some(chunk) = self.chunks.get_mut(place) else { return };
        let old = core::mem::take(&mut chunk.slots);
        self.work += old.len() as u64;
        let before = chunk.holes;
        let mut merged = Merged::new(old.len(), drop_holes, &mut self.incomplete);
        for slot in old {
            merged.take(slot);
        }
        merged.end_run();
        let (merged, classes) = (merged.slots, merged.classes);
        // Not shrunk, as an allocator may leave a block as large as it was.
        let mut slots = VecDeque::with_capacity(if is_tail { CHUNK } else { merged.len() });
        slots.extend(merged);
        chunk.holes = slots.iter().filter(|slot| !slot.is_event()).count();
        chunk.fresh = 0;
        chunk.gone = 0;
        chunk.classes = classes;
        self.holes -= (before - chunk.holes) as u64;
        chunk.last = slots.back().map_or(0, |slot| slot.last);
        chunk.slots = slots;
        // The first chunk begins with an event: it is never the empty one.
        if chunk.slots.is_empty() {
            self.chunks.remove(place);
        }
    }

    /// Makes one chunk of this one and a neighbour if both are small. The last one is left as it is, it still grows.
    fn join(&mut self, place: usize) {
        for first in [place, place.saturating_sub(1)] {
            if first + 2 >= self.chunks.len() {
                continue;
            }
            let (one, two) = (&self.chunks[first], &self.chunks[first + 1]);
            if one.slots.len() + two.slots.len() > JOIN_MAX {
                continue;
            }
            let second = self.chunks.remove(first + 1).expect("a neighbour");
            let chunk = &mut self.chunks[first];
            self.work += second.slots.len() as u64;
            chunk.slots.reserve_exact(second.slots.len());
            chunk.slots.extend(second.slots);
            chunk.last = second.last;
            chunk.holes += second.holes;
            chunk.fresh += second.fresh;
            chunk.classes |= second.classes;
        }
    }

    /// There are too many holes: the older half of them is given up, everything up to them counts as incomplete.
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

    /// The place of an event drawn at random, all with the same probability.
    pub(super) fn draw(&mut self, random: &mut u64) -> Option<At> {
        if self.events == 0 {
            return None;
        }
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
                None => (scaled(high, self.chunks.len()), scaled(low, CHUNK)),
            };
            let chunk = &self.chunks[place];
            if chunk.slots.get(index).is_some_and(Slot::is_event) {
                return Some(self.at(place, index));
            }
        }
        Some(self.at(0, 0))
    }

    /// Where the event with that serial is, which was at `at` when something was moved last.
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

    /// The next event behind `at` of that class.
    pub(super) fn next_of(&mut self, class: u8, at: At) -> Option<(At, &Slot)> {
        let (mut place, index) = self.resolve(at)?;
        let mut index = index + 1;
        loop {
            let chunk = self.chunks.get(place)?;
            if chunk.classes & (1 << class) != 0 {
                let is_it = |slot: &Slot| matches!(slot.what, What::Event { class: of, .. } if of == class);
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

    /// The slot there.
    pub(super) fn get(&self, at: At) -> &Slot {
        let (place, index) = self.resolve(at).expect("the place of an event");
        &self.chunks[place].slots[index]
    }

    /// Gives the event there another class, and another moment from which its age counts.
    pub(super) fn promote(&mut self, at: At, to: u8, from_now: Time) {
        let (place, index) = self.resolve(at).expect("the place of an event");
        let chunk = &mut self.chunks[place];
        if let What::Event { class, since, .. } = &mut chunk.slots[index].what {
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

    /// The first slot that is about `serial` or a later one: the number of its chunk, and its index there.
    fn seek(&self, serial: u64) -> (usize, usize) {
        let place = self.chunks.partition_point(|chunk| chunk.last < serial);
        let index = self.chunks.get(place).map_or(0, |chunk| chunk.slots.partition_point(|slot| slot.last < serial));
        (place, index)
    }

    /// The lowest serial, of those from `from` on, that there is something of.
    pub(super) fn first_at(&self, from: u64) -> Option<u64> {
        self.walk(from).next().map(|slot| slot.first().max(from))
    }

    /// All slots.
    pub(super) fn into_slots(self) -> impl Iterator<Item = Slot> {
        self.chunks.into_iter().flat_map(|chunk| chunk.slots)
    }

    /// Gives every event the class that `of` tells, and tells `found` of it, with what it costs.
    pub(super) fn reclass(&mut self, of: impl Fn(&Event) -> u8, mut found: impl FnMut(At, u64, u8, Time, u64)) {
        for (place, chunk) in self.chunks.iter_mut().enumerate() {
            chunk.classes = 0;
            for (index, slot) in chunk.slots.iter_mut().enumerate() {
                if let What::Event { event, class, since, .. } = &mut slot.what {
                    *class = of(event);
                    chunk.classes |= 1 << *class;
                    let at = At { chunk: self.gone + place as u64, index: chunk.gone + index };
                    found(at, slot.last, *class, *since, event.weight() as u64 + self.place_bytes);
                }
            }
        }
    }

    /// All slots from the first one that is about `from` or a later serial.
    pub(super) fn walk(&self, from: u64) -> Walk<'_> {
        let (place, index) = self.seek(from);
        let slots = self.chunks.get(place).map(|chunk| chunk.slots.range(index..)).unwrap_or_default();
        Walk { chunks: self.chunks.range((place + 1).min(self.chunks.len())..), slots }
    }
}

/// Makes a number below `bound` of one below 2^32.
fn scaled(random: u64, bound: usize) -> usize {
    ((random * bound as u64) >> 32) as usize
}

/// Slots one by one.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    slots: vec_deque::Iter<'a, Slot>,
    chunks: vec_deque::Iter<'a, Chunk>,
}

impl<'a> Iterator for Walk<'a> {
    type Item = &'a Slot;

    #[inline]
    fn next(&mut self) -> Option<&'a Slot> {
        match self.slots.next() {
            Some(slot) => Some(slot),
            None => {
                self.slots = self.chunks.next()?.slots.iter();
                self.slots.next()
            }
        }
    }
}
