//! The streams that this broker hosts.

use whimbrel_event::{CheckpointToken, Deployment, EventId, HostId, PubendId, Reliability, Tick, Time};

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
    host: HostId,
    birth: Tick,
    reliable: [Pubend; PUBENDS],
    best_effort: [Pubend; PUBENDS],
}

impl Streams {
    pub(crate) fn new(seed: u64, floor: Tick, now: Time) -> Self {
        let mut state = seed;
        let host = PubendId(split_mix(&mut state)).host();
        let pubend = |i: usize| Pubend { id: host.pubend(i as u8), last: floor };
        Streams {
            host,
            birth: Tick(now.as_nanos()),
            reliable: core::array::from_fn(pubend),
            best_effort: core::array::from_fn(|i| pubend(i + 4)),
        }
    }
    pub(crate) fn positions(&self) -> impl Iterator<Item = (PubendId, Tick)> + '_ {
        self.reliable.iter().chain(&self.best_effort).map(|p| (p.id, p.last))
    }
    pub(crate) fn births(&self) -> impl Iterator<Item = (PubendId, Tick)> + '_ {
        self.positions().map(|p| (p.0, self.birth))
    }
    pub(crate) fn knows(&self, pubend: PubendId) -> bool {
        self.positions().any(|p| p.0 == pubend)
    }
    pub(crate) fn closed(&self, pubend: PubendId) -> Option<Tick> {
        self.positions().find(|p| p.0 == pubend).map(|p| p.1)
    }
    pub(crate) fn token(&self, deployment: Deployment, common: Tick, _now: Time) -> CheckpointToken {
        let mut token = CheckpointToken::new(deployment, common);
        token.cover(self.host, 4, 4).expect("one host fits");
        token
    }
    pub(crate) fn close(&mut self, now: Time) -> Tick {
        let to = self.positions().map(|p| p.1).max().unwrap_or_default().max(Tick(now.as_nanos()));
        self.reliable.iter_mut().chain(&mut self.best_effort).for_each(|p| p.last = to);
        to
    }
    pub(crate) fn ahead_of(&self, _: &crate::follow::Positions) -> crate::follow::Positions {
        Default::default()
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
        let mut streams = Streams::new(3, Tick(0), Time::from_nanos(1));
        let now = Time::from_nanos(50);
        let first = streams.accept(1, Reliability::Reliable, now);
        let second = streams.accept(1, Reliability::Reliable, now);
        let other = streams.accept(1, Reliability::BestEffort, now);
        assert_eq!((first.pubend, first.tick, second.tick), (second.pubend, Tick(50), Tick(51)));
        assert_ne!(first.pubend, other.pubend);
        assert_eq!(other.tick, Tick(50));
    }
}
