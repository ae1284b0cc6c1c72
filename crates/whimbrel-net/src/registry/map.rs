//! A replicated map as the network layer reads it, and the part of it that a neighbour is still to
//! be told.

use core::ops::ControlFlow;
use std::collections::BTreeSet;

use whimbrel_event::{DomainLabel, PubendId, Publisher, Tick, Time};
use whimbrel_wire::REGISTRY_RANGES;

/// Most replicated maps.
pub const MAPS_MAX: usize = 4;

/// Keys whose entries are pending on a link, per map; beyond that the link is told that ranges
/// differ instead.
pub const KEYS_PENDING_MAX: usize = 4_096;

/// The version of an entry.
pub type Version = (Tick, PubendId);

/// A map with versions that is the same at every broker, as the network layer reads it.
///
/// A version without a value says that the key was removed; it is kept until every broker that has
/// the value is sure to have heard of that. A map must not refuse entries by a bound of its own:
/// hashes would never be equal, and each comparison would send the whole range again.
pub trait Replicated {
    /// The version of a key.
    fn version(&self, key: &str) -> Option<Version>;

    /// Appends the value of a key and returns its age, milliseconds; `None`: it was removed.
    fn put_value(&self, now: Time, key: &str, into: &mut Vec<u8>) -> Option<u64>;

    /// For each range of keys, the combined [`entry_hash`]es of its entries; 0: it is empty.
    fn hashes(&self) -> &[u64; REGISTRY_RANGES];

    /// Visits the keys from this one on, in their order, until the visitor breaks off.
    fn visit_from<'a>(&'a self, from: &str, visit: &mut dyn FnMut(&'a str) -> ControlFlow<()>);

    /// Whether other brokers have the key, too; some are each broker's own.
    fn is_shared(&self, key: &str) -> bool;

    /// Which brokers may carry the value of a key. Others are told its version with an empty value:
    /// it is *withheld* from them.
    fn label(&self, _key: &str) -> DomainLabel<'_> {
        DomainLabel::ANY
    }

    /// Visits the keys whose values not every broker may carry, in their order, and tells of each
    /// whether its value is withheld from this broker.
    fn visit_labelled<'a>(&'a self, _visit: &mut dyn FnMut(&'a str, bool)) {}
}

/// The range of a map that a key belongs to.
pub fn range_of(key: &str) -> usize {
    (hash(key) >> 56) as usize % REGISTRY_RANGES
}

/// A hash that is equal at every broker.
fn hash(key: &str) -> u64 {
    let mut state = Publisher::named(key).to_bits();
    whimbrel_event::split_mix(&mut state)
}

/// The part of a key with its version in the hash of its range.
pub fn entry_hash(key: &str, (tick, pubend): Version) -> u64 {
    let mut state = hash(key) ^ tick.0.rotate_left(17) ^ pubend.0.rotate_left(41);
    whimbrel_event::split_mix(&mut state)
}

/// What makes the hash of a withheld value another one.
const WITHHELD: u64 = 0x9e37_79b9_7f4a_7c15;

/// As [`entry_hash`], of a key whose value is withheld. It is mixed again: in the sum of a range,
/// two such differences would cancel each other otherwise.
pub fn withheld_hash(key: &str, version: Version) -> u64 {
    let mut state = entry_hash(key, version) ^ WITHHELD;
    whimbrel_event::split_mix(&mut state)
}

/// A walk through a map, for the keys of some ranges.
#[derive(Debug, Default)]
pub(super) struct Survey {
    /// The ranges that are surveyed.
    pub(super) ranges: BTreeSet<u16>,
    /// The least key that the walk has not passed.
    pub(super) from: String,
}

/// The keys of a map whose entries a neighbour is still to be told.
#[derive(Debug, Default)]
pub struct MapBacklog {
    /// At most [`KEYS_PENDING_MAX`].
    pub(super) keys: BTreeSet<Box<str>>,
    /// The walk for the ranges that the other end has asked for, while it goes on.
    pub(super) survey: Option<Survey>,
    /// More keys changed than are noted: the hashes of all ranges are told anew.
    pub(super) all: bool,
}

impl MapBacklog {
    /// The number of noted keys.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether no key is noted.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The entry of a key is to be told. Beyond [`KEYS_PENDING_MAX`] keys the hashes of all
    /// ranges are compared instead.
    pub(super) fn record_key(&mut self, key: &str) {
        if self.keys.len() >= KEYS_PENDING_MAX {
            self.all = true;
        } else {
            self.keys.insert(key.into());
        }
    }

    /// Notes the keys of the next slice of the survey, if there is room for all of them.
    pub(super) fn find_keys(&mut self, map: &dyn Replicated, slice: usize) {
        let keys = &mut self.keys;
        let Some(mut open) = self.survey.take_if(|_| keys.len() <= KEYS_PENDING_MAX - slice) else { return };
        let (mut seen, mut next) = (0, None);
        map.visit_from(&open.from, &mut |key| {
            if seen == slice {
                next = Some(key);
                return ControlFlow::Break(());
            }
            seen += 1;
            if map.is_shared(key) && open.ranges.contains(&(range_of(key) as u16)) {
                keys.insert(key.into());
            }
            ControlFlow::Continue(())
        });
        if let Some(next) = next {
            next.clone_into(&mut open.from);
            self.survey = Some(open);
        }
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_event::{PubendId, Tick};

    use super::*;

    #[test]
    fn two_withheld_values_do_not_cancel_each_other_in_the_hash_of_a_range() {
        let sum = |hash: fn(&str, Version) -> u64| {
            let of = |key: &str| hash(key, (Tick(5), PubendId(7)));
            of("port/1") ^ of("port/2")
        };
        assert_ne!(sum(entry_hash), sum(withheld_hash));
    }
}
