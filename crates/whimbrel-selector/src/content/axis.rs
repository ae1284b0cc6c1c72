//! The axes along which clauses are found, and how often each is used.

use crate::facts::{FieldId, HEADERS, header_index};
use crate::hash::Seeded;

/// Lengths of prefixes that are looked up, bytes. A longer or another prefix is looked up by the longest of these that it has.
pub(super) const PREFIXES: [usize; 10] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32];

/// Classes of ranges by how much of what is seen they let through; 0 is the widest.
pub(super) const CLASSES: u8 = 4;

/// Stands for all fences.
pub(super) const FENCE: FieldId = FieldId(u32::MAX);

/// Kinds, prefixes and classes included.
const KINDS: usize = 6 + PREFIXES.len() + CLASSES as usize;

/// What a clause says of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// It is this text.
    Text,
    /// It is this number.
    Number,
    /// It is this boolean.
    Boolean,
    /// It is there, and no number.
    NotNumber,
    /// It is there.
    Present,
    /// The position is in this fence.
    Fence,
    /// It begins with this text, of [`PREFIXES`] the length at this place.
    Prefix(u8),
    /// It is in a range of this class.
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
            Kind::Prefix(length) => 6 + length,
            Kind::Range(class) => 6 + PREFIXES.len() as u8 + class,
        }
    }

    pub(super) const fn of_index(index: u8) -> Kind {
        const RANGES: u8 = 6 + PREFIXES.len() as u8;
        match index {
            0 => Kind::Text,
            1 => Kind::Number,
            2 => Kind::Boolean,
            3 => Kind::NotNumber,
            4 => Kind::Present,
            5 => Kind::Fence,
            RANGES.. => Kind::Range(index - RANGES),
            length => Kind::Prefix(length - 6),
        }
    }

    pub(super) const fn bit(self) -> u32 {
        1 << self.index()
    }
}

/// The hash of a text as a point.
#[inline]
pub(super) fn text_hash(hasher: &Seeded, field: FieldId, kind: Kind, text: &[u8]) -> u64 {
    hasher.hash_one((field.0, kind.index(), text))
}

/// How often each kind of one field is used by the index.
#[derive(Debug)]
struct Use {
    counts: [u32; KINDS],
    mask: u32,
}

/// How often each kind of each field is used by the index.
#[derive(Debug, Default)]
pub(super) struct Uses {
    attributes: Vec<Option<Box<Use>>>,
    json: Vec<Option<Box<Use>>>,
    headers: [Option<Box<Use>>; HEADERS],
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
        let known = slot.get_or_insert_with(|| Box::new(Use { counts: [0; KINDS], mask: 0 }));
        known.counts[usize::from(kind.index())] += 1;
        known.mask |= kind.bit();
    }

    pub(super) fn remove(&mut self, field: FieldId, kind: Kind) {
        let Some(slot) = self.slot(field) else { return };
        let known = slot.as_mut().expect("added before");
        known.counts[usize::from(kind.index())] -= 1;
        if known.counts[usize::from(kind.index())] == 0 {
            known.mask &= !kind.bit();
            if known.mask == 0 {
                *slot = None;
            }
        }
    }

    /// The kinds in use, by [`Kind::bit`].
    #[inline]
    pub(super) fn mask(&self, field: FieldId) -> u32 {
        let slot = if field.is_attribute() {
            self.attributes.get(field.0 as usize)
        } else if field.is_json() {
            self.json.get(field.json_index() as usize)
        } else {
            self.headers.get(header_index(field))
        };
        slot.and_then(|slot| slot.as_ref()).map_or(0, |known| known.mask)
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
        assert!(KINDS <= 32);
    }
}
