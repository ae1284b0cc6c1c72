//! Events packed into one run of bytes: the form in which they are kept and cached.
//!
//! Numbers are little endian. The fixed part of every event, 40 bytes:
//!
//! | at | bytes | what |
//! |---|---|---|
//! | 0 | 8 | pubend |
//! | 8 | 8 | tick |
//! | 16 | 8 | when it was accepted, nanoseconds; of another broker's event by this broker's clock |
//! | 24 | 8 | publisher |
//! | 32 | 1 | flags: quality of service (2 bits), reliable, then which of the parts below are there |
//! | 33 | 1 | importance (4 bits); highest bit: there is a label of domains |
//! | 34 | 2 | bytes of the topic |
//! | 36 | 4 | bytes of the attributes |
//!
//! Then, each if its flag is set: the expiry (8), the deadline in milliseconds (4), when another
//! broker accepted it (8; without the flag it is the tick), the headers (a length of 4, a byte of
//! flags, each present header as a length of 4 and its bytes, the label of domains likewise, and in
//! the rest of that length the pubend and tick, 8 each, of its predecessors). Then topic,
//! attributes, and the payload, which is the rest.

use core::time::Duration;

use crate::event::{EventRef, Headers, Publisher, Qos, Reliability};
use crate::{Attributes, DomainLabel, EventId, IMPORTANCE_MAX, Predecessors, PubendId, Tick, Time};

/// Bytes of the fixed part.
const FIXED: usize = 40;

const QOS: u8 = 0b11;
const RELIABLE: u8 = 1 << 2;
const EXPIRES: u8 = 1 << 3;
const DEADLINE: u8 = 1 << 4;
const HEADERS: u8 = 1 << 5;
/// Another broker accepted it.
const OTHER_CLOCK: u8 = 1 << 6;
/// Only with [`OTHER_CLOCK`]: its broker accepted it at another moment than its tick.
const ACCEPTED: u8 = 1 << 7;

/// In the byte of the importance. Programs before 0.2 take it for an importance that is none, and
/// refuse the event.
const LABELLED: u8 = 1 << 7;

const TEXT_PAYLOAD_KNOWN: u8 = 1;
const TEXT_PAYLOAD: u8 = 1 << 1;
const CONTENT_TYPE: u8 = 1 << 2;
const RESPONSE_TOPIC: u8 = 1 << 3;
const CORRELATION: u8 = 1 << 4;
const AFTER: u8 = 1 << 5;
const MAYBE_REPEAT: u8 = 1 << 6;
// Programs before 0.2 ignore this flag, and never set it.
const RETAIN: u8 = 1 << 7;

/// A published event, with its id and the time of its acceptance.
#[derive(Clone, Copy, Debug)]
pub struct AcceptedEvent<'a> {
    /// The event's id.
    pub id: EventId,
    /// When it was accepted, by the clock of the broker that did.
    pub accepted: Time,
    /// How far this broker's clock is ahead of that clock, nanoseconds, as the age with which the
    /// event came says; 0 if this broker accepted it.
    pub clock_offset: i64,
    /// The published event.
    pub event: EventRef<'a>,
}

impl EventRef<'_> {
    /// Bytes of its packed form; see [`AcceptedEvent::packed_len`] for another broker's.
    #[inline]
    pub fn packed_len(&self) -> usize {
        let expires = if self.expires.is_some() { 8 } else { 0 };
        let deadline = if self.deadline_ms.is_some() { 4 } else { 0 };
        let headers = if self.headers.is_empty() { 0 } else { 4 + headers_len(&self.headers) };
        let variable = self.topic.len() + self.attributes.as_bytes().len() + self.payload.len();
        FIXED + expires + deadline + headers + variable
    }
}

impl AcceptedEvent<'_> {
    /// Moves an event that has come from another broker to this broker's clock. `age`: how long ago
    /// it was accepted. What is left of its lifetime counts from `now`, as clocks differ.
    pub fn arrive(&mut self, now: Time, age: Duration) {
        let accepted = self.accepted;
        let expires = |expires: Time| now + expires.since(accepted).saturating_sub(age);
        self.event.expires = self.event.expires.map(expires);
        self.clock_offset = now.before(age).ahead_of(accepted);
    }

    /// How long ago it was accepted, at whichever broker, by this broker's clock.
    pub fn age(&self, now: Time) -> Duration {
        now.since(self.accepted_here())
    }

    /// By how much it is past its deadline, if it has one and is.
    #[inline]
    pub fn late_by(&self, now: Time) -> Option<Duration> {
        let deadline = Duration::from_millis(u64::from(self.event.deadline_ms?));
        self.age(now).checked_sub(deadline).filter(|late| !late.is_zero())
    }

    /// What is left until its deadline, if it has one; zero when that is past.
    pub fn slack(&self, now: Time) -> Option<Duration> {
        let deadline = Duration::from_millis(u64::from(self.event.deadline_ms?));
        Some(deadline.saturating_sub(self.age(now)))
    }

    /// When it was accepted, at whichever broker, by this broker's clock.
    #[inline]
    pub fn accepted_here(&self) -> Time {
        self.accepted.by_clock_ahead(self.clock_offset)
    }

    /// Bytes of its packed form.
    #[inline]
    pub fn packed_len(&self) -> usize {
        let len = self.event.packed_len();
        if self.clock_offset == 0 { len } else { len + self.accepted_len() }
    }

    /// Bytes of the moment at which another broker accepted the event: it is left out where it is
    /// the tick.
    #[cold]
    fn accepted_len(&self) -> usize {
        if self.accepted.as_nanos() == self.id.tick.0 { 0 } else { 8 }
    }

    /// Packs it.
    ///
    /// # Panics
    /// When `into` is not [`AcceptedEvent::packed_len`] bytes long, the topic has 64 KiB or more,
    /// or the attributes 4 GiB; edges bound both far below.
    pub fn pack(&self, into: &mut [u8]) {
        let mut room = Room(into);
        self.put(&mut room);
        assert!(room.0.is_empty(), "an event is packed into as many bytes as it takes");
    }

    /// Packs it behind the bytes of `onto`, which grow by [`AcceptedEvent::packed_len`].
    ///
    /// # Panics
    /// As [`AcceptedEvent::pack`], but for the length.
    #[inline]
    pub fn pack_onto(&self, onto: &mut Vec<u8>) {
        self.put(onto);
    }

    #[inline]
    fn put(&self, to: &mut impl ByteSink) {
        let AcceptedEvent { id, accepted, event, .. } = self;
        let attributes = event.attributes.as_bytes();
        let topic_len = u16::try_from(event.topic.len()).expect("a topic has less than 64 KiB");
        let attributes_len = u32::try_from(attributes.len()).expect("attributes have less than 4 GiB");
        let has_accepted = self.clock_offset != 0 && self.accepted_len() != 0;
        let has_headers = !event.headers.is_empty();
        let mut fixed = [0; FIXED];
        fixed[0..8].copy_from_slice(&id.pubend.0.to_le_bytes());
        fixed[8..16].copy_from_slice(&id.tick.0.to_le_bytes());
        fixed[16..24].copy_from_slice(&accepted.as_nanos().to_le_bytes());
        fixed[24..32].copy_from_slice(&event.publisher.to_bits().to_le_bytes());
        fixed[32] = flags(event) | if has_headers { HEADERS } else { 0 };
        fixed[33] = event.importance | if event.headers.domains.is_any() { 0 } else { LABELLED };
        fixed[34..36].copy_from_slice(&topic_len.to_le_bytes());
        fixed[36..40].copy_from_slice(&attributes_len.to_le_bytes());
        if self.clock_offset != 0 {
            fixed[16..24].copy_from_slice(&self.accepted_here().as_nanos().to_le_bytes());
            fixed[32] |= OTHER_CLOCK | if has_accepted { ACCEPTED } else { 0 };
        }
        to.put(&fixed);
        if let Some(expires) = event.expires {
            to.put(&expires.as_nanos().to_le_bytes());
        }
        if let Some(deadline) = event.deadline_ms {
            to.put(&deadline.to_le_bytes());
        }
        if has_accepted {
            to.put(&accepted.as_nanos().to_le_bytes());
        }
        if has_headers {
            put_headers(&event.headers, to);
        }
        to.put(event.topic.as_bytes());
        to.put(attributes);
        to.put(event.payload);
    }
}

/// The flags but for those of the headers and of another broker's event.
fn flags(event: &EventRef<'_>) -> u8 {
    let reliable = if event.reliability == Reliability::Reliable { RELIABLE } else { 0 };
    let expires = if event.expires.is_some() { EXPIRES } else { 0 };
    let deadline = if event.deadline_ms.is_some() { DEADLINE } else { 0 };
    event.qos as u8 | reliable | expires | deadline
}

/// The bytes of each header, if present, in their order.
fn parts<'a>(headers: &Headers<'a>) -> [Option<&'a [u8]>; 3] {
    [headers.content_type.map(str::as_bytes), headers.response_topic.map(str::as_bytes), headers.correlation]
}

/// Bytes of the headers, behind the length.
fn headers_len(headers: &Headers<'_>) -> usize {
    let label = if headers.domains.is_any() { 0 } else { 4 + headers.domains.as_str().len() };
    1 + label
        + headers.after.as_bytes().len()
        + parts(headers).into_iter().flatten().map(|part| 4 + part.len()).sum::<usize>()
}

fn put_headers(headers: &Headers<'_>, to: &mut impl ByteSink) {
    let mut flags = match headers.text_payload {
        None => 0,
        Some(false) => TEXT_PAYLOAD_KNOWN,
        Some(true) => TEXT_PAYLOAD_KNOWN | TEXT_PAYLOAD,
    };
    for (part, flag) in parts(headers).iter().zip([CONTENT_TYPE, RESPONSE_TOPIC, CORRELATION]) {
        flags |= if part.is_some() { flag } else { 0 };
    }
    flags |= if headers.after.is_empty() { 0 } else { AFTER };
    flags |= if headers.maybe_repeat { MAYBE_REPEAT } else { 0 };
    flags |= if headers.retain { RETAIN } else { 0 };
    let len = |bytes: usize| u32::try_from(bytes).expect("headers have less than 4 GiB").to_le_bytes();
    to.put(&len(headers_len(headers)));
    to.put(&[flags]);
    for part in parts(headers).into_iter().flatten() {
        to.put(&len(part.len()));
        to.put(part);
    }
    if !headers.domains.is_any() {
        to.put(&len(headers.domains.as_str().len()));
        to.put(headers.domains.as_str().as_bytes());
    }
    to.put(headers.after.as_bytes());
}

/// Bytes that are filled from their begin.
trait ByteSink {
    fn put(&mut self, bytes: &[u8]);
}

impl ByteSink for Vec<u8> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// The rest of a buffer that is filled.
struct Room<'a>(&'a mut [u8]);

impl ByteSink for Room<'_> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        let (here, rest) = core::mem::take(&mut self.0).split_at_mut(bytes.len());
        here.copy_from_slice(bytes);
        self.0 = rest;
    }
}

/// A packed event.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Packed<'a>(&'a [u8]);

impl<'a> Packed<'a> {
    /// An event in bytes that [`AcceptedEvent::pack`] has filled. Other bytes are a bug, for which
    /// any method may panic.
    pub fn kept(bytes: &'a [u8]) -> Self {
        Packed(bytes)
    }

    /// An event in bytes that come from elsewhere, for instance a disk; `None` if they are
    /// malformed.
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        let (fixed, rest) = bytes.split_first_chunk::<FIXED>()?;
        let flags = fixed[32];
        let mut rest = Unread(rest);
        rest.take(if flags & EXPIRES != 0 { 8 } else { 0 })?;
        rest.take(if flags & DEADLINE != 0 { 4 } else { 0 })?;
        rest.take(if flags & ACCEPTED != 0 { 8 } else { 0 })?;
        let is_labelled = fixed[33] & LABELLED != 0;
        if flags & HEADERS != 0 {
            rest.headers(is_labelled)?;
        } else if is_labelled {
            return None;
        }
        let topic = rest.take(usize::from(u16::from_le_bytes([fixed[34], fixed[35]])))?;
        core::str::from_utf8(topic).ok()?;
        let attributes = u32::from_le_bytes(fixed[36..40].try_into().expect("four bytes"));
        Attributes::from_bytes(rest.take(usize::try_from(attributes).ok()?)?).ok()?;
        let is_important = (1..=IMPORTANCE_MAX).contains(&(fixed[33] & !LABELLED));
        (flags >> 6 != 0b10 && flags & QOS != QOS && is_important).then_some(Packed(bytes))
    }

    /// All its bytes.
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    fn number(self, at: usize) -> u64 {
        u64::from_le_bytes(self.0[at..at + 8].try_into().expect("eight bytes"))
    }

    /// The event's id.
    pub fn id(self) -> EventId {
        EventId { pubend: PubendId(self.number(0)), tick: Tick(self.number(8)) }
    }

    /// Bytes of the expiry and the deadline.
    fn before_accepted(self) -> usize {
        let flags = self.0[32];
        let before = |flag: u8, bytes: usize| if flags & flag != 0 { bytes } else { 0 };
        before(EXPIRES, 8) + before(DEADLINE, 4)
    }

    /// When it was accepted, by the clock of the broker that did.
    pub fn accepted(self) -> Time {
        Time::from_nanos(match self.0[32] & (OTHER_CLOCK | ACCEPTED) {
            0 => self.number(16),
            OTHER_CLOCK => self.number(8),
            _ => self.number(FIXED + self.before_accepted()),
        })
    }

    /// [`AcceptedEvent::clock_offset`] of another broker's event.
    fn clock_offset(self) -> i64 {
        Time::from_nanos(self.number(16)).ahead_of(self.accepted())
    }

    /// The event's publisher.
    pub fn publisher(self) -> Publisher {
        Publisher::from_bits(self.number(24))
    }

    /// Quality of service of its PUBLISH.
    pub fn qos(self) -> Qos {
        match self.0[32] & QOS {
            0 => Qos::AtMostOnce,
            1 => Qos::AtLeastOnce,
            _ => Qos::ExactlyOnce,
        }
    }

    /// 1 to [`crate::IMPORTANCE_MAX`].
    pub fn importance(self) -> u8 {
        self.0[33] & !LABELLED
    }

    /// Which brokers may carry it.
    #[inline]
    pub fn domains(self) -> DomainLabel<'a> {
        if self.0[33] & LABELLED == 0 { DomainLabel::ANY } else { self.view().headers.domains }
    }

    /// When it expires, if ever.
    pub fn expires(self) -> Option<Time> {
        (self.0[32] & EXPIRES != 0).then(|| Time::from_nanos(self.number(FIXED)))
    }

    /// The retain mark of its PUBLISH, or will.
    pub fn retain(self) -> bool {
        let flags = self.0[32];
        // Behind the length of the headers.
        let at = FIXED + self.before_accepted() + if flags & ACCEPTED != 0 { 8 } else { 0 } + 4;
        flags & HEADERS != 0 && self.0[at] & RETAIN != 0
    }

    /// True at and after its expiry.
    pub fn is_expired(self, now: Time) -> bool {
        self.expires().is_some_and(|at| at <= now)
    }

    /// The published event.
    #[inline]
    pub fn view(self) -> EventRef<'a> {
        let flags = self.0[32];
        let topic_len = u16::from_le_bytes([self.0[34], self.0[35]]);
        let mut rest = Rest(&self.0[36..]);
        let attributes_len = rest.length();
        let expires = (flags & EXPIRES != 0).then(|| Time::from_nanos(u64::from_le_bytes(rest.array())));
        let deadline_ms = (flags & DEADLINE != 0).then(|| u32::from_le_bytes(rest.array()));
        rest.take(if flags & ACCEPTED != 0 { 8 } else { 0 });
        let headers = if flags & HEADERS == 0 { Headers::EMPTY } else { rest.headers(self.0[33] & LABELLED != 0) };
        let topic = rest.text(usize::from(topic_len));
        let attributes = Attributes::kept(rest.take(attributes_len));
        EventRef {
            topic,
            attributes,
            payload: rest.0,
            headers,
            qos: self.qos(),
            reliability: if flags & RELIABLE != 0 { Reliability::Reliable } else { Reliability::BestEffort },
            importance: self.importance(),
            expires,
            deadline_ms,
            publisher: self.publisher(),
        }
    }

    /// The published event, with its id and the time of its acceptance.
    pub fn unpack(self) -> AcceptedEvent<'a> {
        let (id, accepted) = (self.id(), self.accepted());
        let clock_offset = if self.0[32] & OTHER_CLOCK == 0 { 0 } else { self.clock_offset() };
        AcceptedEvent { id, accepted, clock_offset, event: self.view() }
    }
}

impl core::fmt::Debug for Packed<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.unpack().fmt(f)
    }
}

/// The unread rest of bytes that may not be an event.
struct Unread<'a>(&'a [u8]);

impl<'a> Unread<'a> {
    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (here, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(here)
    }

    /// Bytes behind their length.
    fn part(&mut self) -> Option<&'a [u8]> {
        let length = u32::from_le_bytes(self.take(4)?.try_into().ok()?);
        self.take(usize::try_from(length).ok()?)
    }

    fn headers(&mut self, is_labelled: bool) -> Option<()> {
        let mut block = Unread(self.part()?);
        let flags = *block.take(1)?.first()?;
        for (flag, is_text) in [(CONTENT_TYPE, true), (RESPONSE_TOPIC, true), (CORRELATION, false)] {
            if flags & flag != 0 && is_text {
                core::str::from_utf8(block.part()?).ok()?;
            } else if flags & flag != 0 {
                block.part()?;
            }
        }
        if is_labelled {
            DomainLabel::read(core::str::from_utf8(block.part()?).ok()?, 1).filter(|label| !label.is_any())?;
        }
        let after = Predecessors::from_bytes(block.0)?;
        (after.is_empty() == (flags & AFTER == 0)).then_some(())
    }
}

/// The unread rest of a packed event.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    #[inline]
    fn take(&mut self, bytes: usize) -> &'a [u8] {
        let (here, rest) = self.0.split_at(bytes);
        self.0 = rest;
        here
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        self.take(N).try_into().expect("as many bytes as were taken")
    }

    fn length(&mut self) -> usize {
        u32::from_le_bytes(self.array()) as usize
    }

    fn text(&mut self, bytes: usize) -> &'a str {
        core::str::from_utf8(self.take(bytes)).expect("packed from a str")
    }

    fn headers(&mut self, is_labelled: bool) -> Headers<'a> {
        let len = self.length();
        let mut block = Rest(self.take(len));
        let [flags] = block.array();
        let mut part = |is_there: bool| {
            is_there.then(|| {
                let len = block.length();
                block.take(len)
            })
        };
        let text = |part: &'a [u8]| core::str::from_utf8(part).expect("packed from a str");
        let content_type = part(flags & CONTENT_TYPE != 0).map(text);
        let response_topic = part(flags & RESPONSE_TOPIC != 0).map(text);
        let correlation = part(flags & CORRELATION != 0);
        let domains = part(is_labelled).map_or(DomainLabel::ANY, |label| DomainLabel::checked(text(label)));
        Headers {
            text_payload: (flags & TEXT_PAYLOAD_KNOWN != 0).then_some(flags & TEXT_PAYLOAD != 0),
            content_type,
            response_topic,
            correlation,
            after: Predecessors::from_bytes(block.0).expect("packed from predecessors"),
            maybe_repeat: flags & MAYBE_REPEAT != 0,
            retain: flags & RETAIN != 0,
            domains,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AttributesBuf, PredecessorsBuf};

    fn packed(event: &AcceptedEvent<'_>) -> Vec<u8> {
        let mut bytes = vec![0xa5; event.packed_len()];
        event.pack(&mut bytes);
        bytes
    }

    #[test]
    fn every_part_comes_out_as_it_went_in() {
        let mut attributes = AttributesBuf::new();
        attributes.push("line", "N56");
        let ids = [(7, u64::MAX), (8, 3)].map(|(pubend, tick)| EventId { pubend: PubendId(pubend), tick: Tick(tick) });
        let before: PredecessorsBuf = ids.into_iter().collect();
        let headers = Headers {
            text_payload: Some(false),
            content_type: Some("text/plain"),
            response_topic: Some("r"),
            correlation: Some(b"\0\x01"),
            after: before.as_predecessors(),
            maybe_repeat: true,
            retain: true,
            domains: DomainLabel::checked("eu,us"),
        };
        let full = EventRef {
            topic: "fleet/7/position",
            attributes: attributes.as_attributes(),
            payload: b"52.2,21.0",
            headers,
            qos: Qos::ExactlyOnce,
            reliability: Reliability::Reliable,
            importance: 9,
            expires: Some(Time::from_nanos(50)),
            deadline_ms: Some(20),
            publisher: Publisher::named("bus-7"),
        };
        // Each optional part is there or not, in all combinations.
        for parts in 0..1_u32 << 15 {
            let has = |bit: u32| parts & (1 << bit) != 0;
            let event = EventRef {
                attributes: if has(0) { full.attributes } else { Attributes::EMPTY },
                payload: if has(1) { full.payload } else { b"" },
                headers: Headers {
                    text_payload: if has(2) { Some(has(3)) } else { None },
                    content_type: headers.content_type.filter(|_| has(4)),
                    response_topic: headers.response_topic.filter(|_| has(5)),
                    correlation: headers.correlation.filter(|_| has(6)),
                    after: if has(9) { headers.after } else { Predecessors::NONE },
                    maybe_repeat: has(10),
                    retain: has(11),
                    domains: if has(14) { headers.domains } else { DomainLabel::ANY },
                },
                qos: [Qos::AtMostOnce, Qos::AtLeastOnce, Qos::ExactlyOnce][parts as usize % 3],
                reliability: if has(3) { Reliability::Reliable } else { Reliability::BestEffort },
                expires: full.expires.filter(|_| has(7)),
                deadline_ms: full.deadline_ms.filter(|_| has(8)),
                ..full
            };
            let id = EventId { pubend: PubendId(u64::MAX - 1), tick: Tick(2) };
            let accepted = Time::from_nanos(if has(13) { 10 } else { 2 });
            let clock_offset = if has(12) { -5 } else { 0 };
            let bytes = packed(&AcceptedEvent { id, accepted, clock_offset, event });
            let packed = Packed::kept(&bytes);
            let AcceptedEvent { id: of, accepted: at, clock_offset: offset, event: view } = packed.unpack();
            assert_eq!((of, at, packed.accepted(), offset), (id, accepted, accepted, clock_offset));
            assert_eq!((view.topic, view.attributes, view.payload), (event.topic, event.attributes, event.payload));
            assert_eq!((view.headers, view.qos, view.reliability), (event.headers, event.qos, event.reliability));
            assert_eq!((view.importance, view.deadline_ms, view.expires), (9, event.deadline_ms, event.expires));
            assert_eq!((view.publisher, packed.publisher()), (event.publisher, event.publisher));
            assert_eq!((packed.expires(), packed.qos()), (event.expires, event.qos));
            assert_eq!((packed.retain(), packed.domains()), (event.headers.retain, event.headers.domains));
            assert_eq!(Packed::read(&bytes), Some(packed));
        }
    }

    #[test]
    fn a_label_that_is_none_is_refused() {
        let headers = Headers { domains: DomainLabel::checked("eu,us"), ..Headers::EMPTY };
        let event = EventRef { headers, ..EventRef::new("t", b"", Qos::AtMostOnce) };
        let id = EventId { pubend: PubendId(1), tick: Tick(2) };
        let bytes = packed(&AcceptedEvent { id, accepted: Time::from_nanos(2), clock_offset: 0, event });
        assert_eq!((Packed::read(&bytes).map(Packed::importance), bytes.len()), (Some(5), 40 + 4 + 1 + 4 + 5 + 1));
        for (at, byte) in [(FIXED + 9, b'z'), (FIXED + 9, b','), (FIXED + 11, b';'), (33, 5), (32, 0)] {
            let mut other = bytes.clone();
            other[at] = byte;
            assert_eq!(Packed::read(&other), None, "{at} {byte}");
        }
    }

    #[test]
    fn an_importance_that_is_none_is_refused() {
        let event = EventRef {
            topic: "t",
            attributes: Attributes::EMPTY,
            payload: b"",
            headers: Headers::EMPTY,
            qos: Qos::AtMostOnce,
            reliability: Reliability::BestEffort,
            importance: 5,
            expires: None,
            deadline_ms: None,
            publisher: Publisher::UNKNOWN,
        };
        let id = EventId { pubend: PubendId(1), tick: Tick(2) };
        let mut bytes = packed(&AcceptedEvent { id, accepted: Time::from_nanos(2), clock_offset: 0, event });
        for (importance, is_read) in [(0, false), (1, true), (IMPORTANCE_MAX, true), (IMPORTANCE_MAX + 1, false)] {
            bytes[33] = importance;
            assert_eq!(Packed::read(&bytes).is_some(), is_read, "{importance}");
        }
    }
}
