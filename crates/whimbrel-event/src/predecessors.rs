//! Events that have to be delivered before an event.

use core::cmp::Reverse;

use crate::{EventId, HostId, PubendId, Tick};

/// The most predecessors of one event. A publisher that was at more brokers within a few seconds
/// names the last ones.
pub const PREDECESSORS_MAX: usize = 8;

/// Bytes of each predecessor: pubend and tick, little endian.
const ONE: usize = 16;

/// Earlier events of an event's publisher, at other brokers; the latest first, one per stream, at
/// most [`PREDECESSORS_MAX`]. A subscription is not to get the event before it has got, or passed,
/// all of these: a single one would not do, as nothing is known of the predecessors of an event
/// that is not wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Predecessors<'a>(&'a [u8]);

impl<'a> Predecessors<'a> {
    /// No predecessors.
    pub const NONE: Predecessors<'static> = Predecessors(&[]);

    /// From the bytes of [`Predecessors::as_bytes`]; `None` if they are malformed, or too many.
    pub fn from_bytes(bytes: &'a [u8]) -> Option<Self> {
        (bytes.len().is_multiple_of(ONE) && bytes.len() <= ONE * PREDECESSORS_MAX).then_some(Predecessors(bytes))
    }

    /// 16 bytes for each: pubend and tick, little endian.
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// The ids, the latest first.
    pub fn iter(self) -> impl Iterator<Item = EventId> + 'a {
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        self.0
            .chunks_exact(ONE)
            .map(move |one| EventId { pubend: PubendId(number(&one[..8])), tick: Tick(number(&one[8..])) })
    }
}

/// Owned [`Predecessors`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PredecessorsBuf(Vec<u8>);

impl PredecessorsBuf {
    /// No predecessors.
    pub const fn new() -> Self {
        PredecessorsBuf(Vec::new())
    }

    /// A borrowed view.
    pub fn as_predecessors(&self) -> Predecessors<'_> {
        Predecessors(&self.0)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The ids, the latest first.
    pub fn iter(&self) -> impl Iterator<Item = EventId> + '_ {
        self.as_predecessors().iter()
    }

    /// Adds an older event than those present. It is left out if a later one of its stream is
    /// present, or if there would be too many.
    pub fn add_older(&mut self, id: EventId) {
        if self.0.len() < ONE * PREDECESSORS_MAX && self.iter().all(|known| known.pubend != id.pubend) {
            self.0.extend_from_slice(&id.pubend.0.to_le_bytes());
            self.0.extend_from_slice(&id.tick.0.to_le_bytes());
        }
    }

    /// Makes an event the latest; an earlier one of its stream is left out, and of too many the
    /// oldest.
    pub fn put_latest(&mut self, id: EventId) {
        let (pubend, tick) = (id.pubend.0.to_le_bytes(), id.tick.0.to_le_bytes());
        match self.0.get_mut(..ONE) {
            Some(first) if first[..8] == pubend => first[8..].copy_from_slice(&tick),
            _ => *self = [id].into_iter().chain(self.iter()).collect(),
        }
    }

    /// The union of both, with the later event of each stream. If there would be too many, the
    /// earliest by tick are left out.
    #[must_use]
    pub fn merged(&self, other: &Self) -> Self {
        let mut all: Vec<EventId> = self.iter().chain(other.iter()).collect();
        all.sort_by_key(|id| Reverse(id.tick));
        all.into_iter().collect()
    }

    /// The predecessors that are not in streams of `host`.
    #[must_use]
    pub fn elsewhere(&self, host: HostId) -> Self {
        self.iter().filter(|id| id.pubend.host() != host).collect()
    }
}

impl FromIterator<EventId> for PredecessorsBuf {
    /// From ids, the latest first.
    fn from_iter<I: IntoIterator<Item = EventId>>(ids: I) -> Self {
        let mut all = PredecessorsBuf::new();
        ids.into_iter().for_each(|id| all.add_older(id));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(pubend: u64, tick: u64) -> EventId {
        EventId { pubend: PubendId(pubend), tick: Tick(tick) }
    }

    #[test]
    fn the_latest_is_put_first_and_replaces_the_one_of_its_stream() {
        let mut all = PredecessorsBuf::new();
        let ids = [id(1, 3), id(1, 4), id(2, 5), id(1, 6), id(1, 7)];
        ids.into_iter().for_each(|id| all.put_latest(id));
        assert_eq!(all.iter().collect::<Vec<_>>(), [id(1, 7), id(2, 5)]);
    }

    #[test]
    fn the_latest_of_each_stream_count_and_no_more_than_fit() {
        let all: PredecessorsBuf = [id(1, 9), id(2, 5), id(1, 3)].into_iter().collect();
        assert_eq!(all.iter().collect::<Vec<_>>(), [id(1, 9), id(2, 5)]);
        let other = [id(3, 1), id(2, 7), id(1, 2)].into_iter().collect();
        assert_eq!(all.merged(&other).iter().collect::<Vec<_>>(), [id(1, 9), id(2, 7), id(3, 1)]);
        let later: PredecessorsBuf = (0..6).map(|at| id(10 + at, 20 - at)).collect();
        let of_three: PredecessorsBuf = all.iter().chain(other.iter()).collect();
        let merged = of_three.merged(&later);
        assert_eq!(merged.iter().map(|id| id.tick.0).collect::<Vec<_>>(), [20, 19, 18, 17, 16, 15, 9, 5]);
        let many: PredecessorsBuf = (0..20).map(|at| id(at, at)).collect();
        assert_eq!(many.iter().count(), PREDECESSORS_MAX);
        let bytes = many.as_predecessors().as_bytes();
        assert_eq!(Predecessors::from_bytes(bytes), Some(many.as_predecessors()));
        assert_eq!(Predecessors::from_bytes(&bytes[1..]), None);
        assert_eq!(Predecessors::from_bytes(&[0; ONE * (PREDECESSORS_MAX + 1)]), None);
    }
}
