//! The own streams of a node: events are matched against the interests of other nodes, kept, and
//! sent again to nodes that lack them.

use std::collections::BTreeMap;

use whimbrel_event::{
    AcceptedEvent, Attributes, EventId, EventRef, Headers, HostId, IMPORTANCE_DEFAULT, KIND_PUBENDS_MAX, Publisher,
    Qos, Reliability, Tick, Time,
};
use whimbrel_net::forward::{Sending, SilenceTarget};
use whimbrel_net::interest::own::tag_of;
use whimbrel_net::route::TopicPaths;
use whimbrel_net::{LinkOutput, Net, PeerLink};
use whimbrel_selector::{TopicFilter, TopicName};
use whimbrel_wire::{Dest, Nack, Part, Repairers, compact};

/// Most events that are kept; the oldest go first, and are lost.
const KEPT_MAX: usize = 4_096;

/// Most events in the answer to one nack.
const ANSWER_EVENTS_MAX: usize = 256;

/// The number of own streams.
const OWN: usize = 3;

/// The indices of the own streams: a reliable one, one of best effort, and a reliable one of events
/// with a deadline.
pub const STREAMS: [u8; OWN] = [0, KIND_PUBENDS_MAX, 2 * KIND_PUBENDS_MAX];

/// The network layer, the time, and the receiver of its effects.
pub struct Surroundings<'a> {
    pub net: &'a mut Net,
    pub now: Time,
    pub out: &'a mut dyn LinkOutput,
}

/// An event that is to be published.
#[derive(Clone, Copy)]
pub struct Content<'a> {
    pub topic: &'a str,
    pub payload: &'a [u8],
    pub reliability: Reliability,
    pub deadline_ms: Option<u32>,
}

/// An event that is kept for nodes that lack it.
struct Kept {
    accepted: Time,
    topic: Box<str>,
    /// In its packed form.
    event: Vec<u8>,
}

/// Another node with an interest.
struct Destination {
    incarnation: u64,
    version: u64,
    filters: Vec<Box<str>>,
    /// Per own stream, the tick up to which it was told everything, or should have been; of events
    /// with a deadline that of the last event.
    last: [Tick; OWN],
    /// Per own stream, the tick after which this version is in force.
    since: [Tick; OWN],
    /// Per own stream, the tick after which it has an interest at all.
    begin: [Tick; OWN],
    gets_best_effort: bool,
}

impl Destination {
    fn wants(&self, topic: &str) -> bool {
        let topic = TopicName::checked(topic);
        self.filters.iter().any(|filter| TopicFilter::checked(filter).matches(topic))
    }
}

/// The own streams and their destinations.
pub struct Sender {
    /// Per own stream, the tick up to which it has passed.
    passed: [Tick; OWN],
    /// The paths of events with a deadline.
    paths: TopicPaths,
    /// Until then repeats of the events of best effort are on their path.
    repeated_until: Time,
    /// The tick behind which events are kept.
    kept_from: Tick,
    kept: BTreeMap<EventId, Kept>,
    destinations: BTreeMap<HostId, Destination>,
}

impl Sender {
    /// Streams that begin behind a tick.
    pub fn new(birth: Tick, paths: TopicPaths) -> Sender {
        let (kept, destinations) = (BTreeMap::new(), BTreeMap::new());
        let repeated_until = Time::ZERO;
        Sender { passed: [birth; OWN], paths, repeated_until, kept_from: birth, kept, destinations }
    }

    /// Publishes an event in an own stream.
    pub fn publish(&mut self, here: Surroundings<'_>, content: Content<'_>) -> EventId {
        let Surroundings { net, now, out } = here;
        let Content { topic, payload, reliability, deadline_ms } = content;
        let stream = match (reliability, deadline_ms) {
            (Reliability::BestEffort, _) => 1,
            (Reliability::Reliable, None) => 0,
            (Reliability::Reliable, Some(_)) => 2,
        };
        let tick = Tick::next(self.passed[stream], now);
        self.passed[stream] = tick;
        let id = EventId { pubend: net.host().pubend(STREAMS[stream]), tick };
        let event = packed(id, now, topic, payload);
        let mut dests = Vec::new();
        for (host, destination) in self.destinations.iter_mut().filter(|(_, destination)| destination.wants(topic)) {
            let previous = core::mem::replace(&mut destination.last[stream], tick);
            destination.gets_best_effort |= reliability == Reliability::BestEffort;
            dests.push((*host, Dest { tag: tag_of(*host, destination.version), previous }));
        }
        let by_datagram = reliability == Reliability::BestEffort && deadline_ms.is_some();
        let sending = Sending { deadline_ms, by_datagram, paths: self.paths, ..sending(id, 0, &event) };
        let take = net.send_own(now, &sending, &dests, out);
        if by_datagram {
            self.repeated_until = self.repeated_until.max(now + take);
        }
        if reliability == Reliability::Reliable {
            self.kept.insert(id, Kept { accepted: now, topic: topic.into(), event });
        }
        while self.kept.len() > KEPT_MAX {
            let (oldest, _) = self.kept.pop_first().expect("it is not empty");
            self.kept_from = oldest.tick;
        }
        id
    }

    /// Takes the interest of another node as it is known now, and tells that node since when it is
    /// in force.
    pub fn adopt(&mut self, here: Surroundings<'_>, host: HostId) {
        let Surroundings { net, now, out } = here;
        self.pass(now);
        let Some(known) = net.interest_of(host) else { return };
        let filters = known.entries.values().map(|entry| entry.filter.clone()).collect();
        let before = self.destinations.get(&host).filter(|before| before.incarnation == known.incarnation);
        let before = before.filter(|before| !before.filters.is_empty());
        let destination = Destination {
            incarnation: known.incarnation,
            version: known.version,
            filters,
            last: before.map_or(self.passed, |before| before.last),
            since: self.passed,
            begin: before.map_or(self.passed, |before| before.begin),
            gets_best_effort: before.is_some_and(|before| before.gets_best_effort),
        };
        self.destinations.insert(host, destination);
        self.tell(Surroundings { net, now, out }, host);
    }

    /// Tells all destinations up to where the own streams have nothing more for them.
    pub fn tell_all(&mut self, here: Surroundings<'_>) {
        let Surroundings { net, now, out } = here;
        self.pass(now);
        let hosts: Vec<HostId> = self.destinations.keys().copied().collect();
        for host in hosts {
            self.tell(Surroundings { net: &mut *net, now, out: &mut *out }, host);
        }
    }

    fn tell(&mut self, here: Surroundings<'_>, host: HostId) {
        let Surroundings { net, now, out } = here;
        let Some(destination) = self.destinations.get_mut(&host) else { return };
        if destination.filters.is_empty() || !net.is_reachable(host) {
            return;
        }
        let mut parts = Vec::new();
        // Silence would close the hole of an event whose repeat is still to come.
        let is_told = |stream: &usize| STREAMS[*stream] != KIND_PUBENDS_MAX || self.repeated_until <= now;
        for stream in (0..STREAMS.len()).filter(is_told) {
            let (after, upto) = (destination.last[stream], self.passed[stream]);
            // An event with a deadline tells what was silent before it, in this version.
            let told = if stream < 2 { upto } else { destination.since[stream] };
            destination.last[stream] = told.max(after);
            parts.push(part(destination, stream, (after, upto), false));
        }
        net.send_silence(now, target(host, destination), parts, out);
    }

    /// Answers a nack for an own stream, or asks for the interest that it is about.
    pub fn answer(&mut self, here: Surroundings<'_>, link: PeerLink, nack: &Nack) {
        let Surroundings { net, now, out } = here;
        let newest = nack.ranges.iter().map(|range| range.version).max().unwrap_or(0);
        let known = self.destinations.get(&nack.from);
        let is_known = |known: &&Destination| known.incarnation == nack.incarnation && known.version >= newest;
        let Some(destination) = known.filter(is_known) else {
            return net.ask_for_interest(now, link, nack.from, out);
        };
        let stream = STREAMS.iter().position(|index| *index == nack.pubend.index()).unwrap_or(0);
        let mut left = ANSWER_EVENTS_MAX;
        let mut parts = Vec::new();
        for range in &nack.ranges {
            let (mut after, mut upto) = (range.after, range.upto.min(self.passed[stream]));
            if after < self.kept_from {
                parts.push(part(destination, stream, (after, self.kept_from.min(upto)), true));
                after = self.kept_from;
            }
            let first = EventId { pubend: nack.pubend, tick: Tick(after.0 + 1) };
            let last = EventId { pubend: nack.pubend, tick: range.upto.max(after) };
            let wanted = self.kept.range(first..).filter(|(_, kept)| destination.wants(&kept.topic));
            for (id, kept) in wanted.take_while(|(id, _)| **id <= last) {
                if left == 0 {
                    upto = after;
                    break;
                }
                left -= 1;
                let dest = Dest { tag: tag_of(nack.from, destination.version), previous: after };
                let age_us = now.since(kept.accepted).as_micros() as u64;
                let again = Sending { answer: true, ..sending(*id, age_us, &kept.event) };
                net.send_again(now, &again, nack.from, dest, out);
                after = id.tick;
            }
            if after < upto {
                parts.push(part(destination, stream, (after, upto), false));
            }
        }
        for parts in parts.chunks(whimbrel_wire::PARTS_MAX) {
            net.send_silence(now, target(nack.from, destination), parts.to_vec(), out);
        }
    }

    /// Removes a destination.
    pub fn forget(&mut self, host: HostId) {
        self.destinations.remove(&host);
    }

    /// Ends all ticks up to now, with one that no event has: later events get later ones.
    fn pass(&mut self, now: Time) {
        for passed in &mut self.passed {
            *passed = Tick::next(*passed, now);
        }
    }
}

fn part(of: &Destination, stream: usize, (after, upto): (Tick, Tick), lost: bool) -> Part {
    let (begin, since) = (of.begin[stream], of.since[stream]);
    Part { index: STREAMS[stream], begin, since, after, upto, lost, still: upto }
}

fn target(host: HostId, of: &Destination) -> SilenceTarget {
    let Destination { incarnation, version, gets_best_effort, .. } = *of;
    SilenceTarget { host, incarnation, version, gets_best_effort }
}

fn sending(id: EventId, age_us: u64, event: &[u8]) -> Sending<'_> {
    let (answer, retain, by_datagram, repairers) = (false, false, false, Repairers::NONE);
    Sending {
        id,
        age_us,
        deadline_ms: None,
        answer,
        retain,
        repairers,
        by_datagram,
        paths: TopicPaths::One,
        last_us: None,
        event,
    }
}

fn packed(id: EventId, accepted: Time, topic: &str, payload: &[u8]) -> Vec<u8> {
    let event = EventRef {
        topic,
        attributes: Attributes::EMPTY,
        payload,
        headers: Headers::EMPTY,
        qos: Qos::AtLeastOnce,
        reliability: id.pubend.reliability(),
        importance: IMPORTANCE_DEFAULT,
        expires: None,
        deadline_ms: None,
        publisher: Publisher::UNKNOWN,
    };
    let mut bytes = Vec::new();
    compact::write(&AcceptedEvent { id, accepted, clock_offset: 0, event }, &mut bytes);
    bytes
}
