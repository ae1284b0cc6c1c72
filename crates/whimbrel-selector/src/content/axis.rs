//! The axes along which clauses are found, and the use of each.

use core::hash::Hash;

use whimbrel_event::Seeded;

use crate::facts::{FieldId, HEADERS, header_index};

/// Lengths of prefixes that are always looked up if a selector has one, bytes.
const LENGTHS: [u16; 12] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64];

/// Number of prefix lengths of one field that are looked up: [`LENGTHS`], and others in the order
/// of their first use. Beyond that, a prefix is looked up by the longest of [`LENGTHS`] that it
/// has. Limits the look-ups per value.
const PREFIXES: usize = 40;

/// Number of classes of ranges, by the share of values that they let through; 0 is the widest.
pub(super) const CLASSES: u8 = 4;

/// The field of all fences.
pub(super) const FENCE: FieldId = FieldId(u32::MAX);

/// Number of kinds, including prefixes and classes.
const KINDS: usize = 6 + PREFIXES + CLASSES as usize;

/// The statement of a clause about a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// The field is this text.
    Text,
    /// The field is this number.
    Number,
    /// The field is this boolean.
    Boolean,
    /// The field is present, and not a number.
    NotNumber,
    /// The field is present.
    Present,
    /// The position is in this fence.
    Fence,
    /// The field begins with this text, whose length has this index among the field's lengths.
    Prefix(u8),
    /// The field is in a range of this class.
    Range(u8),
}

impl Kind {
    pub(super) const fn index(self) -> u8 {
        match self {
            Kind::Text => 0,
            Kind::Number => 1,
            Kind::Boolean => 2,
            Kind::NotNumber => 3,
            Kind::Present => 4,
            Kind::Fence => 5,
            Kind::Prefix(place) => 6 + place,
            Kind::Range(class) => 6 + PREFIXES as u8 + class,
        }
    }

    pub(super) const fn of_index(index: u8) -> Kind {
        const RANGES: u8 = 6 + PREFIXES as u8;
        match index {
            0 => Kind::Text,
            1 => Kind::Number,
            2 => Kind::Boolean,
            3 => Kind::NotNumber,
            4 => Kind::Present,
            5 => Kind::Fence,
            RANGES.. => Kind::Range(index - RANGES),
            place => Kind::Prefix(place - 6),
        }
    }

    pub(super) const fn bit(self) -> u64 {
        1 << self.index()
    }
}

/// One value of one field, or one fence: of a clause, of an event, or of the path to a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) field: FieldId,
    pub(super) kind: Kind,
    pub(super) hash: u64,
}

impl Point {
    #[inline]
    fn new(field: FieldId, kind: Kind, value: impl Hash, hasher: &Seeded) -> Point {
        Point { field, kind, hash: hasher.hash_one((field.0, kind.index(), value)) }
    }

    /// A text, or the prefix of it that the kind refers to.
    #[inline]
    pub(super) fn text(field: FieldId, kind: Kind, text: &[u8], hasher: &Seeded) -> Point {
        Point::new(field, kind, text, hasher)
    }

    #[inline]
    pub(super) fn number(field: FieldId, value: f64, hasher: &Seeded) -> Point {
        // Adding zero makes -0 and 0 the same.
        Point::new(field, Kind::Number, (value + 0.0).to_bits(), hasher)
    }

    /// A boolean; for [`Kind::Present`] and [`Kind::NotNumber`], `true`.
    pub(super) fn flag(field: FieldId, kind: Kind, value: bool, hasher: &Seeded) -> Point {
        Point::new(field, kind, value, hasher)
    }

    pub(super) fn fence(fence: u32, hasher: &Seeded) -> Point {
        Point::new(FENCE, Kind::Fence, fence, hasher)
    }

    /// The point that all ranges of one field and class share.
    pub(super) fn range(field: FieldId, class: u8, hasher: &Seeded) -> Point {
        Point::new(field, Kind::Range(class), 0_u64, hasher)
    }
}

/// The number of uses of each kind of one field by the index.
#[derive(Debug)]
pub(super) struct Use {
    counts: [u32; KINDS],
    mask: u64,
    /// Lengths beyond [`LENGTHS`]; 0 is unused.
    lengths: [u16; PREFIXES - LENGTHS.len()],
}

impl Use {
    fn new() -> Box<Use> {
        Box::new(Use { counts: [0; KINDS], mask: 0, lengths: [0; PREFIXES - LENGTHS.len()] })
    }

    /// The kinds in use, by [`Kind::bit`].
    #[inline]
    pub(super) fn mask(&self) -> u64 {
        self.mask
    }

    fn length(&self, place: usize) -> usize {
        usize::from(*LENGTHS.get(place).unwrap_or_else(|| &self.lengths[place - LENGTHS.len()]))
    }

    /// The kinds of prefixes in use, and their lengths.
    pub(super) fn prefixes(&self) -> impl Iterator<Item = (Kind, usize)> {
        let first = Kind::Prefix(0).index();
        let mut bits = self.mask >> first & ((1 << PREFIXES) - 1);
        core::iter::from_fn(move || {
            let place = (bits != 0).then(|| bits.trailing_zeros())?;
            bits &= bits - 1;
            Some((Kind::Prefix(place as u8), self.length(place as usize)))
        })
    }
}

/// The number of uses of each kind of each field by the index.
#[derive(Debug, Default)]
pub(super) struct Uses {
    attributes: Vec<Option<Box<Use>>>,
    json: Vec<Option<Box<Use>>>,
    headers: [Option<Box<Use>>; HEADERS],
    /// Prefixes that were assigned and may not be in use.
    held: Vec<(FieldId, Kind)>,
}

impl Uses {
    fn slot(&mut self, field: FieldId) -> Option<&mut Option<Box<Use>>> {
        let (list, place) = if field == FENCE {
            return None;
        } else if field.is_attribute() {
            (&mut self.attributes, field.0 as usize)
        } else if field.is_json() {
            (&mut self.json, field.json_index() as usize)
        } else {
            return Some(&mut self.headers[header_index(field)]);
        };
        if list.len() <= place {
            list.resize_with(place + 1, || None);
        }
        Some(&mut list[place])
    }

    pub(super) fn add(&mut self, field: FieldId, kind: Kind) {
        let Some(slot) = self.slot(field) else { return };
        let known = slot.get_or_insert_with(Use::new);
        known.counts[usize::from(kind.index())] += 1;
        known.mask |= kind.bit();
    }

    pub(super) fn remove(&mut self, field: FieldId, kind: Kind) {
        let Some(slot) = self.slot(field) else { return };
        let known = slot.as_mut().expect("added before");
        known.counts[usize::from(kind.index())] -= 1;
        if known.counts[usize::from(kind.index())] == 0 {
            known.mask &= !kind.bit();
            self.let_go(field, kind);
        }
    }

    /// Assigns the kind and length by which a prefix of `length` bytes of a field is looked up. The
    /// kind is held until [`Uses::settle`].
    pub(super) fn prefix(&mut self, field: FieldId, length: usize) -> (Kind, usize) {
        let shorter = LENGTHS.iter().rposition(|&known| usize::from(known) <= length).expect("a prefix is not empty");
        let rounded = (Kind::Prefix(shorter as u8), usize::from(LENGTHS[shorter]));
        let (Some(slot), Ok(exact)) = (self.slot(field), u16::try_from(length)) else { return rounded };
        if rounded.1 == length {
            return rounded;
        }
        let known = slot.get_or_insert_with(Use::new);
        let place = known.lengths.iter().position(|&known| known == exact);
        match place.or_else(|| known.lengths.iter().position(|&known| known == 0)) {
            Some(place) => {
                known.lengths[place] = exact;
                let kind = Kind::Prefix((LENGTHS.len() + place) as u8);
                self.held.push((field, kind));
                (kind, length)
            }
            None => rounded,
        }
    }

    /// Frees the assigned prefixes that are not in use: their clauses are in a place without that
    /// point, or were dropped.
    pub(super) fn settle(&mut self) {
        while let Some((field, kind)) = self.held.pop() {
            self.let_go(field, kind);
        }
    }

    /// Frees a kind that is held, or was in use, if it is not in use now.
    fn let_go(&mut self, field: FieldId, kind: Kind) {
        let Some(slot) = self.slot(field) else { return };
        let Some(known) = slot else { return };
        if let Kind::Prefix(place) = kind
            && known.mask & kind.bit() == 0
            && let Some(length) = (place as usize).checked_sub(LENGTHS.len()).map(|place| &mut known.lengths[place])
        {
            *length = 0;
        }
        if known.mask == 0 && known.lengths.iter().all(|&length| length == 0) {
            *slot = None;
        }
    }

    /// `None` if the index does not use the field.
    #[inline]
    pub(super) fn of(&self, field: FieldId) -> Option<&Use> {
        let slot = if field.is_attribute() {
            self.attributes.get(field.0 as usize)
        } else if field.is_json() {
            self.json.get(field.json_index() as usize)
        } else {
            self.headers.get(header_index(field))
        };
        slot?.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_distinct_numbers() {
        for index in 0..KINDS as u8 {
            assert_eq!(Kind::of_index(index).index(), index);
        }
    }
}
