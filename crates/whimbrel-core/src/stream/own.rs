//! The streams that this broker hosts: its pubends.

use core::time::Duration;

use whimbrel_event::{
    EventId, HOST_FURTHER_MAX, HOST_PUBENDS_MAX, HOST_RELIABLE_MAX, HostId, KIND_PUBENDS_MAX, PredecessorsBuf,
    PubendId, Publisher, Tick, Time, split_mix,
};

use super::kind::StreamKind;

use crate::fault::Faults;

/// How far the ticks of a stream may be ahead of the clock before its publishers are to be slowed.
pub const AHEAD_MAX: Duration = Duration::from_secs(1);

/// One hosted stream. An event has its tick from its *assignment* on, and other brokers learn of it
/// at its *pass*; in between it may wait for the disk. Events pass in the order of their ticks.
#[derive(Clone, Copy, Debug)]
struct Stream {
    /// The last tick that an event was assigned, or that none will be assigned.
    assigned: Tick,
    /// The last tick that the consolidated stream has passed: no event at or below it will be
    /// passed any more. Never above `assigned`.
    passed: Tick,
    /// Events that have their ticks and have not passed.
    waiting: u32,
    /// The tick of the last event that has passed, which other brokers have been told of; until
    /// there is one, the tick where this process began.
    told: Tick,
    /// This process has passed nothing at or below this tick.
    began: Tick,
}

impl Stream {
    fn new(began: Tick) -> Self {
        Stream { assigned: began, passed: began, waiting: 0, told: began, began }
    }

    /// Counts an event that has passed, or never will, as no longer waiting.
    fn let_go(&mut self) {
        self.waiting = self.waiting.checked_sub(1).expect("an event that waits");
    }

    /// Passes the silence after the last event if none waits before it. Ticks above `bound` that no
    /// event has are not named: after a crash they could be assigned again.
    fn pass_silence(&mut self, bound: Tick) {
        if self.waiting == 0 {
            self.passed = self.passed.max(self.assigned.min(bound));
        }
    }
}

/// All hosted streams.
#[derive(Debug)]
pub struct Streams {
    host: HostId,
    /// By the indices of their pubends.
    each: [Stream; Streams::COUNT],
    /// The tick up to which silence has been declared. Streams in which events waited may not have
    /// passed it.
    closed: Tick,
    /// The last tick that any stream has assigned.
    farthest: Tick,
    /// Ticks up to this one are not assigned again, also after a crash of this process; `None`:
    /// that does not matter, as the host ends with the process.
    reserved: Option<Tick>,
    pub(crate) faults: Faults,
}

impl Streams {
    /// Reliable streams of a broker: those that may be logged.
    pub const RELIABLE: u8 = HOST_RELIABLE_MAX;
    /// Streams of a broker as hellos, link states and tokens count them: those from index 0 on.
    pub const FIRST: u8 = KIND_PUBENDS_MAX;
    /// As [`Streams::FIRST`]: those from index [`KIND_PUBENDS_MAX`] on.
    pub const FURTHER: u8 = HOST_FURTHER_MAX;
    /// All streams of a broker. Their places here are the indices of their pubends.
    pub const COUNT: usize = HOST_PUBENDS_MAX as usize;

    /// New streams, whose ticks are all greater than `floor`, of a host that ends with the process.
    /// The seed alone decides the host.
    pub fn new(mut seed: u64, floor: Tick) -> Self {
        Streams::with(HostId::new(split_mix(&mut seed)), [floor; Streams::COUNT], None)
    }

    /// The streams of a host that was here before, each with the last tick that it can have used or
    /// named then. Nothing is reserved for it yet.
    pub fn restored(host: HostId, last: [Tick; Streams::COUNT]) -> Self {
        Streams::with(host, last, Some(Tick(0)))
    }

    fn with(host: HostId, began: [Tick; Streams::COUNT], reserved: Option<Tick>) -> Self {
        let farthest = began.into_iter().fold(Tick(0), Tick::max);
        let each = began.map(Stream::new);
        Streams { host, each, closed: Tick(0), farthest, reserved, faults: Faults::default() }
    }

    /// The host of all of them.
    pub fn host(&self) -> HostId {
        self.host
    }

    /// The stream of each kind that a publisher is bound to, from the hash of its name.
    pub fn binding(client_hash: u64) -> u8 {
        (client_hash % u64::from(KIND_PUBENDS_MAX)) as u8
    }

    /// The streams to which a client's reliable events go, each with its tick among `ticks`, which
    /// are by the places of the streams: no event of the client there is later.
    pub(crate) fn latest_of(&self, client: &str, ticks: &[Tick; Streams::RELIABLE as usize]) -> PredecessorsBuf {
        let binding = Streams::binding(Publisher::named(client).to_bits());
        let pubends = StreamKind::RELIABLE.map(|kind| self.bound_to(binding, kind));
        let places = pubends.into_iter().filter_map(|pubend| Some((pubend, pubend.reliable_place()?)));
        places.map(|(pubend, place)| EventId { pubend, tick: ticks[usize::from(place)] }).collect()
    }

    /// The stream of a kind to which a publisher with a binding is bound.
    pub fn bound_to(&self, binding: u8, kind: StreamKind) -> PubendId {
        self.host.pubend(kind.index(binding))
    }

    /// Assigns an id to the next event of a publisher with a binding. The event waits until it has
    /// [`Streams::passed`] or is [`Streams::withdrawn`].
    pub fn assign(&mut self, binding: u8, kind: impl Into<StreamKind>, now: Time) -> EventId {
        let index = kind.into().index(binding);
        let stream = &mut self.each[usize::from(index)];
        stream.assigned = Tick::next(stream.assigned, now);
        stream.waiting += 1;
        self.farthest = self.farthest.max(stream.assigned);
        EventId { pubend: self.host.pubend(index), tick: stream.assigned }
    }

    /// As [`Streams::assign`] and [`Streams::passed`] at once: the event's id, and the tick that
    /// the latter returns. `None` if the event has to wait, as others wait before it or its tick is
    /// not reserved; then nothing has happened.
    pub fn assign_passing(&mut self, binding: u8, kind: impl Into<StreamKind>, now: Time) -> Option<(EventId, Tick)> {
        let bound = self.bound();
        let index = kind.into().index(binding);
        let stream = &mut self.each[usize::from(index)];
        let tick = Tick::next(stream.assigned, now);
        if stream.waiting > 0 || tick > bound {
            return None;
        }
        (stream.assigned, stream.passed) = (tick, tick);
        self.farthest = self.farthest.max(tick);
        Some((EventId { pubend: self.host.pubend(index), tick }, core::mem::replace(&mut stream.told, tick)))
    }

    /// The id that the next event of a publisher with a binding will be assigned.
    pub fn next(&self, binding: u8, kind: StreamKind, now: Time) -> EventId {
        let index = kind.index(binding);
        EventId { pubend: self.host.pubend(index), tick: Tick::next(self.each[usize::from(index)].assigned, now) }
    }

    /// Records that the consolidated stream passes an assigned event. Other brokers are told of it,
    /// and of no other event since the tick that is returned.
    ///
    /// # Panics
    /// When no event waits in that stream, or one with a later tick has passed before.
    pub fn passed(&mut self, id: EventId) -> Tick {
        let bound = self.bound();
        let stream = &mut self.each[usize::from(id.pubend.index())];
        assert!(stream.passed < id.tick && id.tick <= stream.assigned, "{id} passes after {}", stream.passed);
        stream.let_go();
        stream.passed = id.tick;
        stream.pass_silence(bound);
        core::mem::replace(&mut stream.told, id.tick)
    }

    /// Withdraws an assigned event: its tick is silent, and no other event gets it.
    ///
    /// # Panics
    /// When no event waits in that stream, or the event has passed.
    pub fn withdrawn(&mut self, id: EventId) {
        let bound = self.bound();
        let stream = &mut self.each[usize::from(id.pubend.index())];
        assert!(stream.passed < id.tick && id.tick <= stream.assigned, "{id} is withdrawn after {}", stream.passed);
        stream.let_go();
        stream.pass_silence(bound);
    }

    /// Records that ticks up to `upto` will not be assigned by a later process. Before the first
    /// call, all ticks of new streams may be used.
    pub fn reserve(&mut self, upto: Tick) {
        self.reserved = self.reserved.max(Some(upto));
    }

    /// Whether an event with a tick may pass without another record that tells a later process of
    /// it.
    pub fn is_reserved(&self, tick: Tick) -> bool {
        tick <= self.bound()
    }

    fn bound(&self) -> Tick {
        self.reserved.unwrap_or(Tick(u64::MAX))
    }

    /// Declares silence in all streams from the last event of each up to the clock's tick, as far
    /// as ticks are reserved; returns that tick. Events assigned from now on come after it, and in
    /// a stream that is ahead of the clock after its last event. Streams in which events wait stay
    /// before these: they pass the silence together with the last of them.
    pub fn close(&mut self, now: Time) -> Tick {
        let bound = self.bound();
        let upto = Tick(now.as_nanos()).min(bound);
        self.closed = self.closed.max(upto);
        for stream in &mut self.each {
            stream.assigned = stream.assigned.max(upto);
            stream.pass_silence(bound);
        }
        self.farthest = self.farthest.max(upto);
        upto
    }

    fn of(&self, pubend: PubendId) -> Option<&Stream> {
        (pubend.host() == self.host).then(|| self.each.get(usize::from(pubend.index()))).flatten()
    }

    /// The last tick of a stream that has been passed; `None` if it is not hosted here. Tokens
    /// about what a subscription was given name no later one.
    pub fn position(&self, pubend: PubendId) -> Option<Tick> {
        self.of(pubend).map(|stream| self.shown(stream))
    }

    /// The tick up to which each stream has passed.
    pub(crate) fn passed_each(&self) -> [Tick; Streams::COUNT] {
        let mut passed = [Tick(0); Streams::COUNT];
        for (place, (_, tick)) in passed.iter_mut().zip(self.pubends()) {
            *place = tick;
        }
        passed
    }

    /// The tick up to which a stream counts as passed.
    fn shown(&self, stream: &Stream) -> Tick {
        if fault!(self, ClosesOverWaiting) {
            return stream.passed.max(self.closed);
        }
        stream.passed
    }

    /// The last tick of a stream that a client can name; `None` if it is not hosted here. While
    /// events wait it may be later than [`Streams::position`]: a client that wants only events
    /// after a certain time names that time.
    pub fn closed(&self, pubend: PubendId) -> Option<Tick> {
        self.of(pubend).map(|stream| stream.passed.max(self.closed))
    }

    /// For an event of a kind whose publisher may have had earlier ones of its topic in streams of
    /// other kinds: the last event of each of these.
    pub(crate) fn last_before(&self, binding: u8, kind: StreamKind) -> PredecessorsBuf {
        let stream = self.bound_to(binding, kind);
        let others = StreamKind::RELIABLE.map(|other| self.bound_to(binding, other));
        let last = others.into_iter().filter(|pubend| *pubend != stream).filter_map(|pubend| self.last_event(pubend));
        last.collect()
    }

    /// The last event of a stream in this process, whether or not it has passed; `None` if there
    /// was none.
    pub(crate) fn last_event(&self, pubend: PubendId) -> Option<EventId> {
        let stream = self.of(pubend)?;
        let tick = if stream.waiting > 0 { stream.assigned } else { stream.told };
        (tick > stream.began).then_some(EventId { pubend, tick })
    }

    /// Whether an event of a stream, or one before it, still waits for its pass.
    pub(crate) fn is_waiting(&self, id: EventId) -> bool {
        self.of(id.pubend).is_some_and(|stream| stream.waiting > 0 && stream.passed < id.tick)
    }

    /// For each stream, the tick of its last event: after it, there was none up to its position.
    pub fn last_events(&self) -> [Tick; Streams::COUNT] {
        core::array::from_fn(|index| self.each[index].told)
    }

    /// The number of a stream's events that wait for their pass; 0 if it is not hosted here.
    pub fn waiting(&self, pubend: PubendId) -> u32 {
        self.of(pubend).map_or(0, |stream| stream.waiting)
    }

    /// The last tick of a stream before this process: its memory has nothing older; `None` if it is
    /// not hosted here.
    pub fn began(&self, pubend: PubendId) -> Option<Tick> {
        self.of(pubend).map(|stream| stream.began)
    }

    /// All hosted streams in the order of their ids, each with its last tick that has been passed.
    pub fn pubends(&self) -> impl Iterator<Item = (PubendId, Tick)> {
        (0..).zip(&self.each).map(|(index, stream)| (self.host.pubend(index), self.shown(stream)))
    }

    /// The reliable streams, by their places.
    fn reliable(&self, of: impl Fn(&Stream) -> Tick) -> [Tick; Streams::RELIABLE as usize] {
        core::array::from_fn(|place| of(&self.each[usize::from(self.host.reliable(place as u8).index())]))
    }

    /// The last tick of each reliable stream that an event was assigned, or that none will be
    /// assigned; by their places.
    pub fn assigned(&self) -> [Tick; Streams::RELIABLE as usize] {
        self.reliable(|stream| stream.assigned)
    }

    /// The last tick of each reliable stream that has been passed, by their places.
    pub fn positions(&self) -> [Tick; Streams::RELIABLE as usize] {
        self.reliable(|stream| self.shown(stream))
    }

    /// The last tick of the stream that is ahead of all others.
    pub fn farthest(&self) -> Tick {
        self.farthest
    }

    /// How far the farthest stream is ahead of the clock, if that is more than [`AHEAD_MAX`].
    pub fn ahead(&self, now: Time) -> Option<Duration> {
        // Compared as numbers: this is asked of every event.
        let is_ahead = self.farthest.0.saturating_sub(now.as_nanos()) > AHEAD_MAX.as_nanos() as u64;
        is_ahead.then(|| Time::from_nanos(self.farthest.0).since(now))
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_event::Reliability::{self, BestEffort, Reliable};

    use super::*;

    fn at(nanos: u64) -> Time {
        Time::from_nanos(nanos)
    }

    /// An event that does not wait.
    fn event(streams: &mut Streams, binding: u8, reliability: Reliability, now: u64) -> EventId {
        let id = streams.assign(binding, reliability, at(now));
        streams.passed(id);
        id
    }

    /// The positions of the ordinary reliable streams.
    fn positions(streams: &Streams) -> Vec<u64> {
        streams.pubends().map(|(_, tick)| tick.0).take(usize::from(Streams::FIRST)).collect()
    }

    #[test]
    fn both_kinds_have_streams_of_their_own_at_one_host() {
        let mut streams = Streams::new(3, Tick(0));
        let first = event(&mut streams, 1, Reliable, 50);
        let second = event(&mut streams, 1, Reliable, 50);
        let other = event(&mut streams, 1, BestEffort, 50);
        assert_eq!((first.pubend, first.tick, second.tick), (second.pubend, Tick(50), Tick(51)));
        assert_ne!(first.pubend, other.pubend);
        assert_eq!(other.tick, Tick(50));
        assert_eq!([first, other].map(|id| id.pubend.host()), [streams.host(); 2]);
        assert_eq!(first.pubend.reliability(), Reliable);
        assert_eq!(other.pubend.reliability(), BestEffort);
    }

    #[test]
    fn publishers_are_spread_over_all_streams_of_a_kind() {
        let bound: Vec<u8> = (0..8).map(Streams::binding).collect();
        assert_eq!(bound, [0, 1, 2, 3, 0, 1, 2, 3]);
        assert_eq!(Streams::binding(u64::MAX), 3);
        let mut streams = Streams::new(3, Tick(0));
        let indices = bound.iter().map(|binding| event(&mut streams, *binding, BestEffort, 50).pubend.index());
        assert_eq!(indices.collect::<Vec<_>>(), [4, 5, 6, 7, 4, 5, 6, 7]);
        let indices = |kind: StreamKind| [0, 1, 2, 3].map(|binding| streams.bound_to(binding, kind).index());
        assert_eq!(indices(StreamKind::Deadline(Reliable)), [8, 9, 8, 9]);
        assert_eq!(indices(StreamKind::DeadlineVolatile), [10, 11, 10, 11], "no event there waits for the disk");
        assert_eq!(indices(StreamKind::Deadline(BestEffort)), [12, 13, 12, 13]);
        assert_eq!(indices(StreamKind::DeadlineDatagram), [14, 15, 14, 15], "datagrams overtake streams");
    }

    #[test]
    fn positions_of_reliable_streams_are_by_their_places() {
        let mut streams = Streams::new(3, Tick(7));
        let ids = StreamKind::RELIABLE.map(|kind| {
            let id = streams.assign(1, kind, at(50));
            streams.passed(id);
            id
        });
        let places = ids.map(|id| id.pubend.reliable_place());
        assert_eq!(places, [Some(1), Some(5), Some(7)]);
        assert_eq!(streams.positions(), [7, 50, 7, 7, 7, 50, 7, 50].map(Tick));
        assert_eq!(streams.assigned(), streams.positions());
    }

    #[test]
    fn another_seed_is_another_host() {
        assert_ne!(Streams::new(3, Tick(0)).host(), Streams::new(4, Tick(0)).host());
    }

    #[test]
    fn ticks_begin_after_the_floor() {
        let mut streams = Streams::new(3, Tick(900));
        assert_eq!(event(&mut streams, 0, Reliable, 50).tick, Tick(901));
        assert_eq!(event(&mut streams, 1, Reliable, 2_000).tick, Tick(2_000));
    }

    #[test]
    fn what_comes_after_closing_comes_after_its_tick() {
        let mut streams = Streams::new(3, Tick(0));
        event(&mut streams, 2, Reliable, 50);
        assert_eq!(streams.close(at(80)), Tick(80));
        assert!(streams.pubends().all(|(pubend, last)| last == Tick(80) && streams.position(pubend) == Some(last)));
        assert_eq!(event(&mut streams, 0, BestEffort, 80).tick, Tick(81));
        assert_eq!(streams.close(at(80)), Tick(80));
        assert_eq!(event(&mut streams, 0, BestEffort, 80).tick, Tick(82), "it was ahead");
        assert_eq!(event(&mut streams, 3, Reliable, 80).tick, Tick(81));
    }

    #[test]
    fn positions_are_known_of_hosted_streams_only() {
        let mut streams = Streams::new(3, Tick(7));
        let id = event(&mut streams, 0, BestEffort, 50);
        let other = Streams::new(4, Tick(7)).host().pubend(0);
        assert_eq!(streams.position(id.pubend), Some(Tick(50)));
        assert_eq!(streams.position(streams.host().pubend(0)), Some(Tick(7)));
        assert_eq!([streams.position(other), streams.closed(other), streams.began(other)], [None; 3]);
        assert_eq!(streams.waiting(other), 0);
        assert_eq!(streams.pubends().count(), 16);
    }

    #[test]
    fn a_stream_far_ahead_of_the_clock_is_reported() {
        let second = 1_000_000_000;
        let mut streams = Streams::new(3, Tick(0));
        // Also a stream whose events wait.
        streams.assign(0, Reliable, at(5 * second));
        assert_eq!(streams.ahead(at(4 * second)), None);
        assert_eq!(streams.ahead(at(4 * second - 1)), Some(AHEAD_MAX + Duration::from_nanos(1)));
        assert_eq!(streams.ahead(at(9 * second)), None);
    }

    #[test]
    fn silence_stops_before_an_event_that_waits_and_goes_on_behind_it() {
        let mut streams = Streams::new(3, Tick(10));
        let [first, second] = [50, 60].map(|now| streams.assign(1, Reliable, at(now)));
        assert_eq!(streams.waiting(first.pubend), 2);
        assert_eq!(streams.close(at(80)), Tick(80));
        assert_eq!(positions(&streams), [80, 10, 80, 80]);
        assert_eq!(streams.passed(first), Tick(10));
        assert_eq!(streams.close(at(90)), Tick(90));
        assert_eq!(positions(&streams), [90, 50, 90, 90]);
        assert_eq!(streams.passed(second), Tick(50), "other brokers are told of nothing before the pass");
        assert_eq!(positions(&streams), [90; 4], "no event got a tick that was closed while it waited");
        assert_eq!(streams.waiting(first.pubend), 0);
        assert_eq!(event(&mut streams, 1, Reliable, 90).tick, Tick(91));
    }

    #[test]
    fn what_is_assigned_after_a_closing_comes_after_it_also_behind_an_event_that_waits() {
        let mut streams = Streams::new(3, Tick(0));
        let first = streams.assign(0, Reliable, at(50));
        streams.close(at(80));
        assert_eq!(streams.closed(first.pubend), Some(Tick(80)), "a client can ask for what comes after that");
        assert_eq!(streams.assign(0, Reliable, at(80)).tick, Tick(81));
    }

    #[test]
    fn a_client_can_name_no_tick_that_waits_unless_silence_was_declared_later() {
        let mut streams = Streams::new(3, Tick(10));
        let id = streams.assign(0, Reliable, at(50));
        assert_eq!((streams.position(id.pubend), streams.closed(id.pubend)), (Some(Tick(10)), Some(Tick(10))));
        streams.close(at(60));
        assert_eq!((streams.position(id.pubend), streams.closed(id.pubend)), (Some(Tick(10)), Some(Tick(60))));
        streams.passed(id);
        assert_eq!((streams.position(id.pubend), streams.closed(id.pubend)), (Some(Tick(60)), Some(Tick(60))));
    }

    #[test]
    fn what_is_withdrawn_is_silent_and_its_tick_is_not_given_again() {
        let mut streams = Streams::new(3, Tick(10));
        let ids = [50, 60, 70].map(|now| streams.assign(0, Reliable, at(now)));
        streams.withdrawn(ids[2]);
        streams.withdrawn(ids[0]);
        assert_eq!(positions(&streams)[0], 10, "another one waits");
        assert_eq!(streams.passed(ids[1]), Tick(10));
        assert_eq!(positions(&streams)[0], 70);
        let last = streams.assign(0, Reliable, at(70));
        assert_eq!(last.tick, Tick(71));
        streams.withdrawn(last);
        assert_eq!(positions(&streams)[0], 71);
    }

    #[test]
    fn silence_ends_with_the_reservation_and_events_go_on() {
        let mut streams = Streams::new(3, Tick(10));
        assert!(streams.is_reserved(Tick(u64::MAX)), "nobody cares so far");
        streams.reserve(Tick(100));
        assert!(streams.is_reserved(Tick(100)) && !streams.is_reserved(Tick(101)));
        assert_eq!(streams.close(at(150)), Tick(100));
        assert_eq!(positions(&streams), [100; 4]);
        let logged = event(&mut streams, 0, Reliable, 150);
        assert_eq!((logged.tick, streams.position(logged.pubend)), (Tick(150), Some(Tick(150))));
        let refused = streams.assign(1, Reliable, at(150));
        streams.withdrawn(refused);
        assert_eq!(
            positions(&streams),
            [150, 100, 100, 100],
            "nothing tells a later process of the tick that is withdrawn"
        );
        streams.reserve(Tick(90));
        assert_eq!(streams.close(at(150)), Tick(100), "a reservation does not shrink");
        streams.reserve(Tick(200));
        assert_eq!(streams.close(at(160)), Tick(160));
        assert_eq!(positions(&streams), [160; 4]);
    }

    #[test]
    fn a_host_that_was_here_before_goes_on_after_its_last_ticks() {
        let host = Streams::new(3, Tick(0)).host();
        let last = core::array::from_fn(|index| Tick(100 + index as u64));
        let mut streams = Streams::restored(host, last);
        assert_eq!(positions(&streams), [100, 101, 102, 103]);
        assert_eq!(streams.began(host.pubend(7)), Some(Tick(107)));
        assert_eq!(streams.close(at(150)), Tick(0), "nothing is reserved");
        assert_eq!(positions(&streams), [100, 101, 102, 103]);
        let id = streams.assign(2, Reliable, at(50));
        assert_eq!((id.tick, streams.passed(id)), (Tick(103), Tick(102)));
        streams.reserve(Tick(200));
        assert_eq!(streams.close(at(150)), Tick(150));
    }

    #[test]
    #[should_panic(expected = "passes after")]
    fn events_pass_in_the_order_of_their_ticks() {
        let mut streams = Streams::new(3, Tick(10));
        let [first, second] = [50, 60].map(|now| streams.assign(0, Reliable, at(now)));
        streams.passed(second);
        streams.passed(first);
    }

    #[test]
    #[should_panic(expected = "passes after")]
    fn an_event_passes_once() {
        let mut streams = Streams::new(3, Tick(10));
        let id = event(&mut streams, 0, Reliable, 50);
        streams.assign(0, Reliable, at(60));
        streams.passed(id);
    }
}
