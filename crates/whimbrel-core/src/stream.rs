//! The streams that this broker hosts.

use whimbrel_event::{EventId, PubendId, Reliability, Tick, Time};

/// Streams of each kind (reliable, best effort) that a broker hosts.
pub(crate) const PUBENDS: usize = 4;

/// One hosted stream.
#[derive(Debug)]
struct Pubend {
    id: PubendId,
    last: Tick,
}

impl Pubend {
    fn next(&mut self, now: Time) -> EventId {
        self.last = Tick::next(self.last, now);
        EventId { pubend: self.id, tick: self.last }
    }
}

/// All hosted streams. Their ids are random and die with the process.
#[derive(Debug)]
pub(crate) struct Streams {
    reliable: [Pubend; PUBENDS],
    best_effort: [Pubend; PUBENDS],
}

impl Streams {
    pub(crate) fn new(seed: u64) -> Self {
        let mut state = seed;
        let mut pubend = |_| Pubend { id: PubendId(split_mix(&mut state)), last: Tick(0) };
        Streams { reliable: core::array::from_fn(&mut pubend), best_effort: core::array::from_fn(&mut pubend) }
    }

    /// Which stream of either kind a publisher is bound to, from the hash of its name.
    pub(crate) fn binding(client_hash: u64) -> u8 {
        (client_hash % PUBENDS as u64) as u8
    }

    /// The id of the next event of a publisher with that binding.
    pub(crate) fn accept(&mut self, binding: u8, reliability: Reliability, now: Time) -> EventId {
        let kind = match reliability {
            Reliability::Reliable => &mut self.reliable,
            Reliability::BestEffort => &mut self.best_effort,
        };
        kind[binding as usize % PUBENDS].next(now)
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): turns one seed into a sequence of well-mixed numbers.
pub(crate) fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_have_streams_of_their_own() {
        let mut streams = Streams::new(3);
        let now = Time::from_nanos(50);
        let first = streams.accept(1, Reliability::Reliable, now);
        let second = streams.accept(1, Reliability::Reliable, now);
        let other = streams.accept(1, Reliability::BestEffort, now);
        assert_eq!((first.pubend, first.tick, second.tick), (second.pubend, Tick(50), Tick(51)));
        assert_ne!(first.pubend, other.pubend);
        assert_eq!(other.tick, Tick(50));
    }
}
