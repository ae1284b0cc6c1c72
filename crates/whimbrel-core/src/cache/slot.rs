//! One place in the order of serials, and merging the holes among several.

use whimbrel_event::{Tick, Time};

use super::chunk::ChunkBytes;

const _: () = assert!(size_of::<CacheSlot>() == 40, "a slot has five words");

/// A place in the order of serials.
#[derive(Debug)]
pub(super) struct CacheSlot {
    /// The serial of the event, or the last one up to which the hole may reach.
    pub(super) last: u64,
    pub(super) what: SlotContent,
}

/// The content of a slot.
#[derive(Debug)]
pub(super) enum SlotContent {
    Event {
        tick: Tick,
        /// The place of its bytes in the chunk.
        place: u32,
        len: u32,
        /// The time of its arrival, or of its move to the protected part.
        since: Time,
        pubend: u16,
        /// Its class by the policy (see [`super::classes`]).
        class: u8,
        importance: u8,
    },
    /// No event of the pubend from one tick to the other is in the partition, and some were.
    Hole {
        from: Tick,
        to: Tick,
        /// The distance of the serial of the event at `from` below the slot's.
        span: u32,
        pubend: u16,
    },
}

impl CacheSlot {
    /// The lowest serial of the slot.
    pub(super) fn first(&self) -> u64 {
        match self.what {
            SlotContent::Event { .. } => self.last,
            SlotContent::Hole { span, .. } => self.last - u64::from(span),
        }
    }

    pub(super) fn pubend(&self) -> u16 {
        match self.what {
            SlotContent::Event { pubend, .. } | SlotContent::Hole { pubend, .. } => pubend,
        }
    }

    /// The bytes of its event.
    pub(super) fn len(&self) -> usize {
        match self.what {
            SlotContent::Event { len, .. } => len as usize,
            SlotContent::Hole { .. } => 0,
        }
    }

    pub(super) fn is_event(&self) -> bool {
        matches!(self.what, SlotContent::Event { .. })
    }
}

/// The slots of a chunk with holes between the same events merged, and the bytes of its live
/// events.
pub(super) struct Merged<'i> {
    pub(super) slots: Vec<CacheSlot>,
    pub(super) bytes: ChunkBytes,
    /// The bytes from which it takes events.
    old: &'i mut ChunkBytes,
    /// Classes of its events, a bit for each.
    pub(super) classes: u16,
    /// The begin in `slots` of the holes after the last event.
    run: usize,
    drop_holes: bool,
    incomplete: &'i mut Vec<Tick>,
}

impl<'i> Merged<'i> {
    /// Begins with room for a number of slots, and for the bytes of events.
    pub(super) fn new(
        slots: usize,
        bytes: ChunkBytes,
        old: &'i mut ChunkBytes,
        drop_holes: bool,
        incomplete: &'i mut Vec<Tick>,
    ) -> Self {
        Merged { slots: Vec::with_capacity(slots), bytes, old, classes: 0, run: 0, drop_holes, incomplete }
    }

    /// Takes the next slot.
    pub(super) fn take(&mut self, mut slot: CacheSlot) {
        match &mut slot.what {
            SlotContent::Event { place, len, class, .. } => {
                self.end_run();
                self.classes |= 1 << *class;
                self.bytes.take(self.old, place, *len);
                self.slots.push(slot);
                self.run = self.slots.len();
            }
            SlotContent::Hole { to, pubend, .. } => {
                let (to, pubend) = (*to, *pubend);
                let place = usize::from(pubend);
                if self.drop_holes {
                    if self.incomplete.len() <= place {
                        self.incomplete.resize(place + 1, Tick(0));
                    }
                    self.incomplete[place] = self.incomplete[place].max(to);
                }
                if self.incomplete.get(place).is_none_or(|covered| to > *covered) {
                    self.take_hole(slot, to, pubend);
                }
            }
        }
    }

    fn take_hole(&mut self, slot: CacheSlot, end: Tick, pubend: u16) {
        if self.slots.get(self.run).is_some_and(|first| slot.last - first.first() > u64::from(u32::MAX)) {
            self.end_run();
        }
        let same = self.slots[self.run..].iter_mut().find_map(|known| match &mut known.what {
            SlotContent::Hole { from, to, span, pubend: of } if *of == pubend => {
                Some((&mut known.last, from, to, span))
            }
            _ => None,
        });
        match same {
            Some((last, _, to, span)) => {
                *span += (slot.last - *last) as u32;
                *last = slot.last;
                *to = end.max(*to);
            }
            None => self.slots.push(slot),
        }
    }

    /// Extends all holes between two events to the last of them, so that both ends of slots grow
    /// along the order.
    pub(super) fn end_run(&mut self) {
        let run = self.slots[self.run..].iter();
        let Some(last) = run.map(|hole| hole.last).max() else { return };
        for hole in &mut self.slots[self.run..] {
            if let SlotContent::Hole { span, .. } = &mut hole.what {
                *span += (last - hole.last) as u32;
                hole.last = last;
            }
        }
        self.run = self.slots.len();
    }
}
