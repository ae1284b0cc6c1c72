//! Positions in streams, as told by tokens, names of events and notices.

use std::collections::BTreeMap;

use mqtt_protocol_core::mqtt::packet::Property;
use whimbrel_event::CheckpointToken;

use crate::check::moment;
use crate::speech::{event_name, user_properties};

/// The name of an event: its pubend and its tick.
pub(super) type Name = (u64, u64);

/// Reads the name of an event.
pub(super) fn name(text: &str) -> Option<Name> {
    event_name(text)
}

/// A position in every stream.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct Place {
    of: BTreeMap<u64, u64>,
    /// The tick in streams that are not named.
    rest: u64,
}

impl Place {
    /// The position after everything up to a tick.
    pub(super) fn after(tick: u64) -> Place {
        Place { of: BTreeMap::new(), rest: tick }
    }

    /// The position of a token; streams that the token does not cover begin later.
    pub(super) fn of_token(text: &str) -> Option<Place> {
        let token: CheckpointToken = text.parse().ok()?;
        let of = token.pubends().map(|(pubend, tick)| (pubend.0, tick.0)).collect();
        Some(Place { of, rest: 0 })
    }

    /// Whether it is a moment, and names no streams.
    pub(super) fn is_moment(&self) -> bool {
        self.of.is_empty() && self.rest > 0
    }

    pub(super) fn at(&self, pubend: u64) -> u64 {
        self.of.get(&pubend).copied().unwrap_or(self.rest)
    }

    pub(super) fn raise(&mut self, (pubend, tick): Name) {
        let known = self.of.entry(pubend).or_insert(self.rest);
        *known = tick.max(*known);
    }

    /// Moves the streams that it does not name forward to the other position.
    pub(super) fn raise_rest(&mut self, other: &Place) {
        self.rest = other.rest.max(self.rest);
    }

    pub(super) fn names(&self, pubend: u64) -> bool {
        self.of.contains_key(&pubend)
    }

    /// Moves forward to at least the other position.
    pub(super) fn raise_all(&mut self, other: &Place) {
        other.of.iter().for_each(|(pubend, tick)| self.raise((*pubend, *tick)));
        // A moment is a position in every stream.
        self.of.values_mut().for_each(|tick| *tick = other.rest.max(*tick));
        self.rest = other.rest.max(self.rest);
    }

    /// Moves back to at most the other position, in the streams that it names.
    pub(super) fn lower_all(&mut self, other: &Place) {
        for (pubend, tick) in &mut self.of {
            *tick = (*tick).min(other.at(*pubend));
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Name> {
        self.of.iter().map(|(pubend, tick)| (*pubend, *tick))
    }
}

/// The position that `w-from` names; `None`: it names none.
pub(super) fn named(from: &str) -> Option<Place> {
    if let Some(at) = moment(from) {
        return Some(Place::after(at));
    }
    let (first, ids) = from.split_once(',').unwrap_or((from, ""));
    let mut place = match name(first) {
        Some(name) => {
            let mut place = Place::default();
            place.raise(name);
            place
        }
        None => Place::of_token(first)?,
    };
    ids.split(',').filter_map(name).for_each(|name| place.raise(name));
    Some(place)
}

/// The value of a user property.
pub(super) fn property(properties: &[Property], name: &str) -> Option<String> {
    user_properties(properties).into_iter().find(|(known, _)| known == name).map(|(_, value)| value)
}
