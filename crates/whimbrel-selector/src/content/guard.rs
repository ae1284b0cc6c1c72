//! Cheap checks stored beside an entry that save most evaluations.

use super::axis::{Kind, Point};
use super::clause::Range;
use super::tree::Note;
use crate::facts::FieldId;

/// Bits in the set of an event's points.
const BITS: usize = 4096;

/// A range or a point of one attribute that must hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Guard {
    /// No check.
    Pass,
    /// A range, rounded outwards.
    Range { field: FieldId, low: f32, high: f32 },
    /// A point, by a part of its hash.
    Point { kind: u8, print: u16, field: FieldId },
}

/// Marks selectors with several clauses, any of which may find them.
pub(super) const SEVERAL: u32 = 1 << 31;

/// Marks places where a hit needs no evaluation, provided that the event's numbers are doubles.
pub(super) const DECIDES: u32 = 1 << 30;

/// The data stored beside the place of a clause, so that a search needs no other memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held<const G: usize> {
    /// The selector's id with the flags [`SEVERAL`] and [`DECIDES`].
    pub(super) selector: u32,
    pub(super) guards: [Guard; G],
}

impl<const G: usize> Note for Held<G> {
    const EMPTY: Self = Held { selector: 0, guards: [Guard::Pass; G] };
}

impl Guard {
    /// The guard for a range; passes if the field is not an attribute, because other fields are
    /// read only on demand.
    pub(super) fn range(range: &Range) -> Guard {
        if !range.field.is_attribute() {
            return Guard::Pass;
        }
        let (mut low, mut high) = (range.low as f32, range.high as f32);
        if f64::from(low) > range.low {
            low = low.next_down();
        }
        if f64::from(high) < range.high {
            high = high.next_up();
        }
        Guard::Range { field: range.field, low, high }
    }

    /// The guard for a point; passes if the field is not an attribute, because other fields are
    /// read only on demand.
    pub(super) fn point(point: &Point) -> Guard {
        if !point.field.is_attribute() {
            return Guard::Pass;
        }
        Guard::Point { kind: point.kind.index(), print: print(point.hash), field: point.field }
    }

    /// The axis that the guard needs among the event's points.
    pub(super) fn axis(self) -> Option<(FieldId, Kind)> {
        match self {
            Guard::Point { kind, field, .. } => Some((field, Kind::of_index(kind))),
            Guard::Pass | Guard::Range { .. } => None,
        }
    }
}

fn print(hash: u64) -> u16 {
    (hash >> 20) as u16 % BITS as u16
}

/// The points of one event, as an approximate set: without false negatives.
#[derive(Debug)]
pub(super) struct Prints([u64; BITS / 64]);

impl Prints {
    pub(super) fn new() -> Self {
        Prints([0; BITS / 64])
    }

    pub(super) fn clear(&mut self) {
        self.0 = [0; BITS / 64];
    }

    pub(super) fn add(&mut self, hash: u64) {
        let print = print(hash);
        self.0[usize::from(print / 64)] |= 1 << (print % 64);
    }

    #[inline]
    pub(super) fn may_have(&self, print: u16) -> bool {
        self.0[usize::from(print) / 64] & 1 << (print % 64) != 0
    }
}
