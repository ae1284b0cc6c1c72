//! Reading several partitions in the order of serials.

use core::ops::ControlFlow;

use smallvec::SmallVec;
use whimbrel_event::{Packed, PubendId, Tick};

use super::chunk::ChunkBytes;
use super::pubends::Pubends;
use super::slot::{CacheSlot, SlotContent};
use super::slots::{SlotWalk, Slots};

/// An item shown to a reader.
#[derive(Debug)]
pub enum CacheItem<'a> {
    /// An event.
    Event {
        /// Its number in the broker's own order.
        serial: u64,
        /// The event.
        event: Packed<'a>,
    },
    /// From one tick to the other (both included), events of the pubend were overwritten in one of
    /// the partitions. Other partitions may still have events in between; they are shown later.
    Hole {
        /// The stream.
        pubend: PubendId,
        /// The first tick that is missing.
        from: Tick,
        /// The last tick that is missing.
        to: Tick,
    },
}

/// The state of a reader after a reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextRead {
    /// Where to continue.
    pub serial: u64,
    /// There is nothing more to read for now.
    pub exhausted: bool,
    /// The number of slots that were looked at.
    pub looked_at: usize,
}

/// The cursor of a reading in one partition.
struct PartitionCursor<'a> {
    head: (&'a CacheSlot, &'a ChunkBytes),
    first: u64,
    rest: SlotWalk<'a>,
}

impl<'a> PartitionCursor<'a> {
    fn new(slots: &'a Slots, from: u64) -> Option<Self> {
        let mut rest = slots.walk(from);
        let head = rest.next()?;
        Some(PartitionCursor { head, first: head.0.first(), rest })
    }

    /// Advances by one slot; false at the end.
    #[inline]
    fn advance(&mut self) -> bool {
        match self.rest.next() {
            Some(head) => {
                self.head = head;
                self.first = head.0.first();
                true
            }
            None => false,
        }
    }
}

/// A walk through several partitions.
pub(super) struct CacheReading<'a> {
    cursors: SmallVec<[PartitionCursor<'a>; 8]>,
    pubends: &'a Pubends,
    looked_at: usize,
}

impl<'a> CacheReading<'a> {
    pub(super) fn new(pubends: &'a Pubends, partitions: impl Iterator<Item = &'a Slots>, from: u64) -> Self {
        CacheReading {
            cursors: partitions.filter_map(|slots| PartitionCursor::new(slots, from)).collect(),
            pubends,
            looked_at: 0,
        }
    }

    fn show(
        &self,
        (slot, bytes): (&'a CacheSlot, &'a ChunkBytes),
        visit: &mut impl FnMut(CacheItem<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        match &slot.what {
            SlotContent::Event { place, len, .. } => {
                visit(CacheItem::Event { serial: slot.last, event: bytes.get(*place, *len) })
            }
            SlotContent::Hole { from, to, pubend, .. } => {
                let _ = visit(CacheItem::Hole { pubend: self.pubends.id(*pubend), from: *from, to: *to });
                ControlFlow::Continue(())
            }
        }
    }

    /// Shows holes that begin before `from` and reach to it or beyond. They do not count: a reader
    /// that continues there is shown them again.
    fn show_begun(&mut self, from: u64, visit: &mut impl FnMut(CacheItem<'_>) -> ControlFlow<()>) {
        let mut number = 0;
        while let Some(cursor) = self.cursors.get_mut(number) {
            if cursor.first >= from {
                number += 1;
                continue;
            }
            let slot = cursor.head;
            if !cursor.advance() {
                self.cursors.swap_remove(number);
            }
            self.looked_at += 1;
            let _ = self.show(slot, visit);
        }
    }

    /// Shows up to `budget` slots from `from` on; `end` is the serial after all of them.
    pub(super) fn run(
        mut self,
        from: u64,
        end: u64,
        budget: usize,
        mut visit: impl FnMut(CacheItem<'_>) -> ControlFlow<()>,
    ) -> NextRead {
        self.show_begun(from, &mut visit);
        let mut left = budget.max(1);
        loop {
            let Some((number, until)) = self.lowest() else {
                return NextRead { serial: end.max(from), exhausted: true, looked_at: self.looked_at };
            };
            loop {
                let cursor = &mut self.cursors[number];
                if left == 0 {
                    return NextRead { serial: cursor.first, exhausted: false, looked_at: self.looked_at };
                }
                let slot = cursor.head;
                let has_more = cursor.advance();
                let is_next = has_more && cursor.first < until;
                if !has_more {
                    self.cursors.swap_remove(number);
                }
                self.looked_at += 1;
                left -= 1;
                if self.show(slot, &mut visit).is_break() {
                    left = 0;
                }
                if !is_next {
                    break;
                }
            }
        }
    }

    /// The cursor with the lowest serial, and the lowest serial of the others.
    fn lowest(&self) -> Option<(usize, u64)> {
        let mut lowest = None;
        let mut second = u64::MAX;
        for (number, cursor) in self.cursors.iter().enumerate() {
            match lowest {
                Some((_, first)) if cursor.first >= first => second = second.min(cursor.first),
                _ => {
                    if let Some((_, first)) = lowest {
                        second = first;
                    }
                    lowest = Some((number, cursor.first));
                }
            }
        }
        lowest.map(|(number, _)| (number, second))
    }
}
