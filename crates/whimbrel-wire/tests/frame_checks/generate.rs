//! Frames, trees and events from arbitrary bytes.

use whimbrel_event::{
    AcceptedEvent, Attributes, DomainLabel, Domains, EventId, EventRef, Headers, HostId, LABEL_LISTS_MAX,
    PREDECESSORS_MAX, Predecessors, PubendId, Publisher, Qos, Reliability, Tick, Time,
};
use whimbrel_wire::*;

use super::tree::Node;

/// Decisions taken from a string of bytes; all zero when it is used up, so that shorter strings
/// make simpler frames.
pub struct Choices<'a>(pub &'a [u8]);

impl<'a> Choices<'a> {
    pub fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    pub fn below(&mut self, bound: usize) -> usize {
        usize::from(u16::from_be_bytes([self.byte(), self.byte()])) % bound
    }

    pub fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// Often small, sometimes as great as can be.
    pub fn u64(&mut self) -> u64 {
        let mut bytes = [0; 8];
        let count = usize::from(self.byte()) % 9;
        bytes[..count].fill_with(|| self.byte());
        u64::from_le_bytes(bytes)
    }

    pub fn u32(&mut self) -> u32 {
        self.u64() as u32
    }

    fn one_of<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    fn bytes(&mut self) -> &'a [u8] {
        let count = self.below(40).min(self.0.len());
        let (here, rest) = self.0.split_at(count);
        self.0 = rest;
        here
    }

    fn maybe<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        if self.flag() { Some(make(self)) } else { None }
    }

    fn list<T>(&mut self, mut make: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.below(6)).map(|_| make(self)).collect()
    }

    fn host(&mut self) -> HostId {
        HostId::new(self.u64())
    }

    fn tick(&mut self) -> Tick {
        Tick(self.u64())
    }

    /// Not after `upto`.
    fn tick_before(&mut self, upto: Tick) -> Tick {
        Tick(upto.0.saturating_sub(self.u64()))
    }

    fn event_id(&mut self) -> EventId {
        EventId { pubend: PubendId(self.u64()), tick: self.tick() }
    }

    fn predecessors(&mut self) -> Predecessors<'a> {
        let bytes = self.bytes();
        let whole = bytes.len() / 16 % (PREDECESSORS_MAX + 1) * 16;
        Predecessors::from_bytes(&bytes[..whole]).expect("as many as there may be")
    }

    fn name(&mut self) -> &'static str {
        self.one_of(&["a", "north-1.example_7", "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"])
    }

    /// With at most that many lists.
    fn label(&mut self, lists: usize) -> DomainLabel<'static> {
        let known = if lists > 1 { &["", "eu", "de,eu,us", "eu;us", "a,b;a,c;d"][..] } else { &["", "eu", "de,eu,us"] };
        DomainLabel::read(self.one_of(known), lists).expect("a label")
    }

    fn version(&mut self) -> &'static str {
        self.one_of(&[
            "",
            "0.2.0",
            "1.20.300-rc.1 (łódź)",
            "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
        ])
    }

    fn text(&mut self) -> &'static str {
        self.one_of(&["", "a", "żółw/łódź", "fleet/+/position", "line = 'N56' AND speed > 10", "\u{1}\u{7f}🚌"])
    }

    fn topic(&mut self) -> &'static str {
        self.one_of(&["a", "#", "fleet/7/position", "łódź/🚌"])
    }

    fn host_version(&mut self) -> HostVersion {
        (self.host(), self.u64(), self.u64())
    }
}

/// A tree of at most 6 levels of ports and `size` nodes, all of whose branches end in destinations.
pub fn tree(c: &mut Choices<'_>, tick: Tick, default_previous: Tick, size: usize, levels: usize) -> Node {
    let mut left = size;
    let mut children = Vec::new();
    while left > 1 && levels > 0 && c.flag() {
        let part = 1 + c.below(left - 1);
        children.push(tree(c, tick, default_previous, part, levels - 1));
        left -= part;
    }
    let is_destination = children.is_empty() || c.flag();
    let previous = if c.flag() { default_previous } else { c.tick_before(tick) };
    let dest = is_destination.then(|| Dest { tag: c.below(1 << 16) as u16, previous });
    let port = if c.flag() { c.below(70) as u16 } else { c.below(1 << 16) as u16 };
    Node { port, dest, children }
}

/// An event of arbitrary content.
pub fn event<'a>(c: &mut Choices<'a>, id: EventId) -> AcceptedEvent<'a> {
    const PAIRS: &[u8] = b"\0\x04line\0\x03N56\0\x01a\0\0";
    let attributes = if c.flag() { Attributes::from_bytes(PAIRS).expect("attributes") } else { Attributes::EMPTY };
    let accepted = if c.flag() { Time::from_nanos(id.tick.0) } else { Time::from_nanos(c.u64()) };
    let event = EventRef {
        topic: c.topic(),
        attributes,
        payload: c.bytes(),
        headers: Headers {
            text_payload: c.maybe(Choices::flag),
            content_type: c.maybe(|c| c.text()),
            response_topic: c.maybe(|c| c.text()),
            correlation: c.maybe(Choices::bytes),
            after: c.predecessors(),
            maybe_repeat: c.flag(),
            // It stands in the frame.
            retain: false,
            domains: c.label(1),
        },
        qos: c.one_of(&[Qos::AtMostOnce, Qos::AtLeastOnce, Qos::ExactlyOnce]),
        reliability: c.one_of(&[Reliability::BestEffort, Reliability::Reliable]),
        importance: 1 + c.below(10) as u8,
        expires: c.maybe(|c| Time::from_nanos(c.u64())),
        deadline_ms: c.maybe(Choices::u32),
        publisher: c.one_of(&[Publisher::UNKNOWN, Publisher::named("bus-7")]),
    };
    AcceptedEvent { id, accepted, clock_offset: 0, event }
}

/// Makes one frame of any kind and shows it to `check`.
pub fn with_frame<R>(c: &mut Choices<'_>, check: impl FnOnce(&Frame<'_>) -> R) -> R {
    let (mut trees, mut events) = (Vec::new(), Vec::new());
    let bytes = c.bytes();
    let frame = match c.below(25) {
        0 => Frame::Hello(hello(c)),
        1 => Frame::Goodbye(Goodbye { code: c.byte(), text: c.text() }),
        2 => Frame::LinkState(link_state(c)),
        3 => {
            let (link_states, interests) = (c.list(Choices::host_version), c.list(Choices::host_version));
            Frame::Digest(Digest { link_states, interests, more: c.flag() })
        }
        4 => Frame::Interest(interest(c)),
        5 => Frame::Ask(Ask { interests: c.list(Choices::host), link_states: c.list(Choices::host) }),
        6 => Frame::Event(event_frame(c, &mut trees, &mut events)),
        7 => Frame::Silence(silence(c, &mut trees)),
        8 => Frame::Nack(nack(c)),
        9 => Frame::Probe(Probe { sequence: c.u32(), sent: c.u64() }),
        10 => Frame::ProbeEcho(ProbeEcho { sequence: c.u32(), sent: c.u64(), held_us: c.u32() }),
        11 => Frame::Registry(Registry { entries: c.list(registry_entry) }),
        12 => Frame::RegistryDigest(RegistryDigest { ranges: c.list(|c| (u16::from(c.byte()), c.u64())) }),
        13 => Frame::RegistryAsk(RegistryAsk { ranges: c.list(|c| u16::from(c.byte())) }),
        14 => {
            Frame::PreviousIdentities(PreviousIdentities { to: c.host(), hops: c.byte(), hosts: c.list(former_host) })
        }
        15 => {
            let (to, hops, is_bulk, from) = (c.host(), c.byte(), c.flag(), c.host());
            let label = c.label(LABEL_LISTS_MAX);
            let message =
                MessageFrame { to, hops, is_bulk, from, incarnation: c.u64(), kind: c.byte(), label, body: bytes };
            message.framed()
        }
        16 => Frame::MapEntries(of_map(c, |c| Registry { entries: c.list(registry_entry) })),
        17 => Frame::MapDigest(of_map(c, |c| RegistryDigest { ranges: c.list(|c| (u16::from(c.byte()), c.u64())) })),
        18 => Frame::MapAsk(of_map(c, |c| RegistryAsk { ranges: c.list(|c| u16::from(c.byte())) })),
        19 => {
            let stamp = link_stamp(c);
            Frame::DeadlineEvent(StampedEvent { stamp, frame: event_frame(c, &mut trees, &mut events) })
        }
        20 => {
            let (number, highest) = (c.byte(), c.u32() as u16);
            Frame::LinkReport(LinkReport { number, highest, excess_us: c.u32(), missing: c.u64() & !1 })
        }
        21 => Frame::Flash(flash(c)),
        22 => {
            let (last_us, stamp) = (c.u32(), link_stamp(c));
            let stamped = StampedEvent { stamp, frame: event_frame(c, &mut trees, &mut events) };
            Frame::CopiedEvent(CopiedEvent { last_us, stamped })
        }
        23 => {
            let (sequence, front) = (c.u32() as u16, c.bytes());
            let own = if bytes.is_empty() { &[0] } else { bytes };
            Frame::Repeat(Repeat::of(sequence, own, front, &mut events))
        }
        _ => Frame::Unknown(28 + c.byte() % 100),
    };
    check(&frame)
}

fn link_stamp(c: &mut Choices<'_>) -> LinkStamp {
    LinkStamp { sequence: c.u32() as u16, departed_us: c.u32(), deadline_ms: c.u32().max(1) }
}

fn flash(c: &mut Choices<'_>) -> Flash {
    let (host, incarnation, sequence, number) = (c.host(), c.u64(), c.u64(), c.u64().max(1));
    let neighbour = HostId::new(host.as_u64().wrapping_add(1 << 8));
    Flash { host, incarnation, sequence, number, neighbour, delay_us: c.u32(), loss: c.below(1_001) as u16 }
}

fn of_map<'a, B>(c: &mut Choices<'a>, body: impl FnOnce(&mut Choices<'a>) -> B) -> OfMap<B> {
    OfMap { map: c.byte().max(1), body: body(c) }
}

fn hello<'a>(c: &mut Choices<'_>) -> Hello<'a> {
    Hello {
        major: MAJOR,
        minor: c.byte(),
        deployment: c.u64(),
        host: c.host(),
        incarnation: c.u64(),
        name: c.name(),
        time: c.u64(),
        reliable: 1 + c.byte() % 4,
        further: c.byte() % 13,
        birth: c.tick(),
        version: c.version(),
    }
}

fn former_host(c: &mut Choices<'_>) -> PreviousIdentity {
    let (reliable, further) = (1 + c.byte() % 4, c.byte() % 13);
    PreviousIdentity { host: c.host(), reliable, further, birth: c.tick(), upto: c.tick() }
}

fn link_state<'a>(c: &mut Choices<'a>) -> LinkStateFrame<'a> {
    let told = c.maybe(|c| (Protocol { minor: c.byte().max(2), features: c.u64() & !Protocol::DOMAINS }, c.bytes()));
    let (protocol, later) = told.unwrap_or((Protocol::UNTOLD, &[]));
    let has_surcharges = protocol.minor >= 3;
    let domains =
        if has_surcharges { Domains::read(c.label(1).as_str()).expect("one list") } else { Domains::default() };
    LinkStateFrame {
        host: c.host(),
        incarnation: c.u64(),
        sequence: c.u64(),
        name: c.name(),
        reliable: 1 + c.byte() % 4,
        further: c.byte() % 13,
        birth: c.tick(),
        age_ms: c.u32(),
        addresses: (0..c.below(5)).map(|_| c.one_of(&["127.0.0.1:1", "[2001:db8::7]:65535"])).collect(),
        neighbours: c.list(|c| LinkEnd {
            host: c.host(),
            port: c.u32() as u16,
            delay_us: c.u32(),
            loss: c.below(1001) as u16,
            surcharge_us: if has_surcharges { c.u32() } else { 0 },
        }),
        previous: c.list(former_host),
        domains,
        protocol,
        later: &later[..later.len().min(LATER_BYTES_MAX)],
    }
}

fn interest<'a>(c: &mut Choices<'_>) -> InterestUpdate<'a> {
    let version = c.u64();
    InterestUpdate {
        host: c.host(),
        incarnation: c.u64(),
        version,
        base: c.maybe(Choices::u64).filter(|base| *base < version),
        removed: c.list(Choices::u32),
        added: c.list(|c| {
            let (filter, selector) = (c.topic(), c.maybe(|c| c.text()));
            InterestEntry { id: c.u32(), filter, selector, durable: c.flag() }
        }),
        age_ms: c.u64(),
    }
}

fn event_frame<'a>(c: &mut Choices<'_>, trees: &'a mut Vec<u8>, events: &'a mut Vec<u8>) -> EventFrame<'a> {
    let EventId { pubend, tick } = c.event_id();
    let default_previous = if c.flag() { tick } else { c.tick_before(tick) };
    let mut repairers = Repairers::NONE;
    for _ in 0..c.below(REPAIRERS_MAX + 1) {
        assert!(repairers.push(c.host()));
    }
    tree(c, tick, default_previous, 30, 6).write(trees, tick, default_previous);
    let (age_us, answer, retain) = (c.u64(), c.flag(), c.flag());
    compact::write(&event(c, EventId { pubend, tick }), events);
    EventFrame { pubend, tick, age_us, answer, retain, repairers, tree: trees, default_previous, event: events }
}

fn silence<'a>(c: &mut Choices<'_>, trees: &'a mut Vec<u8>) -> Silence<'a> {
    tree(c, Tick(0), Tick(0), 5, 6).write(trees, Tick(0), Tick(0));
    let part = |c: &mut Choices<'_>| {
        let upto = c.tick();
        Part {
            index: c.byte() % 16,
            begin: c.tick(),
            since: c.tick(),
            after: c.tick_before(upto),
            upto,
            lost: c.flag(),
            still: c.tick_before(upto),
        }
    };
    Silence { from: c.host(), target_tree: trees, incarnation: c.u64(), version: c.u64(), parts: c.list(part) }
}

fn nack(c: &mut Choices<'_>) -> Nack {
    let range = |c: &mut Choices<'_>| {
        let upto = Tick(c.u64().max(1));
        let after = c.tick_before(Tick(upto.0 - 1));
        Range { after, upto, ends_in_data: c.flag(), version: c.one_of(&[0, 1, u64::MAX]) }
    };
    Nack { pubend: PubendId(c.u64()), from: c.host(), incarnation: c.u64(), hops: c.byte(), ranges: c.list(range) }
}

fn registry_entry<'a>(c: &mut Choices<'a>) -> RegistryEntry<'a> {
    RegistryEntry {
        key: c.text(),
        version: (c.tick(), PubendId(c.u64())),
        value: c.maybe(Choices::bytes),
        age_ms: c.u64(),
    }
}
