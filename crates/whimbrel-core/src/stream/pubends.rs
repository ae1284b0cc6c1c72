//! The streams that this broker hosts.

use core::time::Duration;

use whimbrel_event::{EventId, HOST_RELIABLE_MAX, HostId, PubendId, Reliability, Tick, Time};

use super::split_mix;

/// How far the ticks of a stream may be ahead of the clock before its publishers are to be slowed.
pub const AHEAD_MAX: Duration = Duration::from_secs(1);

/// All hosted streams. Their host is a random number that dies with the process.
#[derive(Debug)]
pub struct Streams {
    host: HostId,
    /// The last tick of each stream that is used or silent. First the reliable ones, then those of best effort.
    last: [Tick; Streams::COUNT],
    /// The last tick of each stream that other brokers have been told of.
    told: [Tick; Streams::COUNT],
}

impl Streams {
    /// Reliable streams of a broker.
    pub const RELIABLE: u8 = HOST_RELIABLE_MAX;
    /// Best-effort streams of a broker, as many: a publisher has the same place among either.
    pub const BEST_EFFORT: u8 = Streams::RELIABLE;

    const COUNT: usize = (Streams::RELIABLE + Streams::BEST_EFFORT) as usize;

    /// New streams, all of whose ticks are greater than `floor`. The seed alone decides what their host is.
    pub fn new(mut seed: u64, floor: Tick) -> Self {
        let at_floor = [floor; Streams::COUNT];
        Streams { host: HostId::new(split_mix(&mut seed)), last: at_floor, told: at_floor }
    }

    /// The host of all of them.
    pub fn host(&self) -> HostId {
        self.host
    }

    /// Which stream of either kind a publisher is bound to, from the hash of its name.
    pub fn binding(client_hash: u64) -> u8 {
        (client_hash % u64::from(Streams::RELIABLE)) as u8
    }

    /// The id of the next event of a publisher with that binding.
    pub fn accept(&mut self, binding: u8, reliability: Reliability, now: Time) -> EventId {
        let index = Streams::index(binding, reliability);
        let last = &mut self.last[usize::from(index)];
        *last = Tick::next(*last, now);
        EventId { pubend: self.host.pubend(index), tick: *last }
    }

    /// What [`Streams::accept`] would give.
    pub fn next(&self, binding: u8, reliability: Reliability, now: Time) -> EventId {
        let index = Streams::index(binding, reliability);
        EventId { pubend: self.host.pubend(index), tick: Tick::next(self.last[usize::from(index)], now) }
    }

    /// Notes that other brokers are told of that event, and of nothing else since the tick that is returned.
    pub fn tell(&mut self, id: EventId) -> Tick {
        core::mem::replace(&mut self.told[usize::from(id.pubend.index())], id.tick)
    }

    fn index(binding: u8, reliability: Reliability) -> u8 {
        let place = binding % Streams::RELIABLE;
        match reliability {
            Reliability::Reliable => place,
            Reliability::BestEffort => HOST_RELIABLE_MAX + place,
        }
    }

    /// Declares silence in all streams from the last event of each up to the clock's tick, which is returned. What is accepted from now
    /// on comes after it, and in a stream that is ahead of the clock after its last event.
    pub fn close(&mut self, now: Time) -> Tick {
        let upto = Tick(now.as_nanos());
        self.last = self.last.map(|last| last.max(upto));
        upto
    }

    /// The last tick of a stream that is used or silent; `None` if it is not hosted here.
    pub fn last(&self, pubend: PubendId) -> Option<Tick> {
        (pubend.host() == self.host).then(|| self.last.get(usize::from(pubend.index())).copied()).flatten()
    }

    /// All hosted streams in the order of their ids, each with its last tick that is used or silent.
    pub fn pubends(&self) -> impl Iterator<Item = (PubendId, Tick)> {
        (0..).zip(self.last).map(|(index, last)| (self.host.pubend(index), last))
    }

    /// How far the farthest stream is ahead of the clock, if that is more than [`AHEAD_MAX`].
    pub fn ahead(&self, now: Time) -> Option<Duration> {
        let ahead = Time::from_nanos(self.farthest().0).since(now);
        (ahead > AHEAD_MAX).then_some(ahead)
    }

    fn farthest(&self) -> Tick {
        self.last.into_iter().max().expect("a broker hosts streams")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Time {
        Time::from_nanos(nanos)
    }

    #[test]
    fn both_kinds_have_streams_of_their_own_at_one_host() {
        let mut streams = Streams::new(3, Tick(0));
        let first = streams.accept(1, Reliability::Reliable, at(50));
        let second = streams.accept(1, Reliability::Reliable, at(50));
        let other = streams.accept(1, Reliability::BestEffort, at(50));
        assert_eq!((first.pubend, first.tick, second.tick), (second.pubend, Tick(50), Tick(51)));
        assert_ne!(first.pubend, other.pubend);
        assert_eq!(other.tick, Tick(50));
        assert_eq!([first, other].map(|id| id.pubend.host()), [streams.host(); 2]);
        assert_eq!(first.pubend.reliability(), Reliability::Reliable);
        assert_eq!(other.pubend.reliability(), Reliability::BestEffort);
    }

    #[test]
    fn another_seed_is_another_host() {
        assert_ne!(Streams::new(3, Tick(0)).host(), Streams::new(4, Tick(0)).host());
    }

    #[test]
    fn ticks_begin_after_the_floor() {
        let mut streams = Streams::new(3, Tick(900));
        assert_eq!(streams.accept(0, Reliability::Reliable, at(50)).tick, Tick(901));
        assert_eq!(streams.accept(1, Reliability::Reliable, at(2_000)).tick, Tick(2_000));
    }

    #[test]
    fn what_comes_after_closing_comes_after_its_tick() {
        let mut streams = Streams::new(3, Tick(0));
        streams.accept(2, Reliability::Reliable, at(50));
        assert_eq!(streams.close(at(80)), Tick(80));
        assert!(streams.pubends().all(|(pubend, last)| last == Tick(80) && streams.last(pubend) == Some(last)));
        let ahead = streams.accept(0, Reliability::BestEffort, at(80));
        assert_eq!(ahead.tick, Tick(81));
        assert_eq!(streams.close(at(80)), Tick(80));
        assert_eq!(streams.accept(0, Reliability::BestEffort, at(80)).tick, Tick(82), "it was ahead");
        assert_eq!(streams.accept(3, Reliability::Reliable, at(80)).tick, Tick(81));
    }

    #[test]
    fn the_last_tick_is_known_of_hosted_streams_only() {
        let mut streams = Streams::new(3, Tick(7));
        let id = streams.accept(0, Reliability::BestEffort, at(50));
        assert_eq!(streams.last(id.pubend), Some(Tick(50)));
        assert_eq!(streams.last(streams.host().pubend(0)), Some(Tick(7)));
        assert_eq!(streams.last(streams.host().pubend(8)), None);
        assert_eq!(streams.last(Streams::new(4, Tick(7)).host().pubend(0)), None);
        assert_eq!(streams.pubends().count(), 8);
    }

    #[test]
    fn a_stream_far_ahead_of_the_clock_is_reported() {
        let second = 1_000_000_000;
        let mut streams = Streams::new(3, Tick(0));
        streams.accept(0, Reliability::Reliable, at(5 * second));
        assert_eq!(streams.ahead(at(4 * second)), None);
        assert_eq!(streams.ahead(at(4 * second - 1)), Some(AHEAD_MAX + Duration::from_nanos(1)));
        assert_eq!(streams.ahead(at(9 * second)), None);
    }
}
