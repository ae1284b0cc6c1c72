//! What has to come before an event.

use core::cmp::Reverse;

use crate::{EventId, HostId, PubendId, Tick};

/// The most events that one can name as its predecessors. A publisher that was at more brokers
/// within a few seconds names the last ones.
pub const PREDECESSORS_MAX: usize = 8;

/// Bytes of each: pubend and tick, little endian.
const ONE: usize = 16;

/// Events that the publisher of an event has published before that, at other brokers; the latest
/// first, one per stream, at most [`PREDECESSORS_MAX`]. Whoever wants that event is not to get it
/// before it has got, or passed, all of these: each alone would not do, as nothing is known of what
/// came before an event that is not wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Predecessors<'a>(&'a [u8]);

impl<'a> Predecessors<'a> {
    /// None.
    pub const NONE: Predecessors<'static> = Predecessors(&[]);

    /// As [`Predecessors::as_bytes`] gave them; `None` if they are none, or too many.
    pub fn from_bytes(bytes: &'a [u8]) -> Option<Self> {
        (bytes.len().is_multiple_of(ONE) && bytes.len() <= ONE * PREDECESSORS_MAX).then_some(Predecessors(bytes))
    }

    /// 16 bytes for each: pubend and tick, little endian.
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// There are none.
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// The latest first.
    pub fn iter(self) -> impl Iterator<Item = EventId> + 'a {
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        self.0
            .chunks_exact(ONE)
            .map(move |one| EventId { pubend: PubendId(number(&one[..8])), tick: Tick(number(&one[8..])) })
    }
}

/// [`Predecessors`] that are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PredecessorsBuf(Vec<u8>);

impl PredecessorsBuf {
    /// None.
    pub const fn new() -> Self {
        PredecessorsBuf(Vec::new())
    }

    /// As they are kept.
    pub fn as_predecessors(&self) -> Predecessors<'_> {
        Predecessors(&self.0)
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The latest first.
    pub fn iter(&self) -> impl Iterator<Item = EventId> + '_ {
        self.as_predecessors().iter()
    }

    /// Adds one that came before those that are there. A later one of its stream stands for it, and
    /// what is too many is left out.
    pub fn add_older(&mut self, id: EventId) {
        if self.0.len() < ONE * PREDECESSORS_MAX && self.iter().all(|known| known.pubend != id.pubend) {
            self.0.extend_from_slice(&id.pubend.0.to_le_bytes());
            self.0.extend_from_slice(&id.tick.0.to_le_bytes());
        }
    }

    /// Those of both, the later one of each stream. Where that is too many, the earliest are left
    /// out, as ticks have it.
    #[must_use]
    pub fn merged(&self, other: &Self) -> Self {
        let mut all: Vec<EventId> = self.iter().chain(other.iter()).collect();
        all.sort_by_key(|id| Reverse(id.tick));
        all.into_iter().collect()
    }

    /// Those that are not in streams of a host.
    #[must_use]
    pub fn elsewhere(&self, host: HostId) -> Self {
        self.iter().filter(|id| id.pubend.host() != host).collect()
    }
}

impl FromIterator<EventId> for PredecessorsBuf {
    /// The latest first.
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
