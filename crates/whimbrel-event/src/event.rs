//! Events: borrowed while they pass through, and owned where they are kept.

use std::sync::{Arc, Weak};

use crate::{AcceptedEvent, Attributes, DomainLabel, EventId, FNV_OFFSET, Packed, Predecessors, Time, fnv1a};

/// Importance of an event without an explicit one.
pub const IMPORTANCE_DEFAULT: u8 = 5;

/// The largest importance; the smallest is 1.
pub const IMPORTANCE_MAX: u8 = 10;

/// Guarantee with which a message is handed over between a client and its broker.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Qos {
    /// Sent once and forgotten.
    AtMostOnce = 0,
    /// Repeated until acknowledged.
    AtLeastOnce = 1,
    /// Acknowledged in two phases so that no message is taken twice.
    ExactlyOnce = 2,
}

/// The guarantees for an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reliability {
    /// Once or not at all.
    BestEffort,
    /// Exactly once within the subscription's durability class, or a gap.
    Reliable,
}

/// The fields of an event besides topic, attributes and payload. Those that its publisher has set
/// are passed on unaltered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Headers<'a> {
    /// The payload is UTF-8 text, as its publisher says.
    pub text_payload: Option<bool>,
    /// The payload's media type or another description that publisher and subscriber agree on.
    pub content_type: Option<&'a str>,
    /// The topic for a reply.
    pub response_topic: Option<&'a str>,
    /// Data that a reply must carry to be told from others.
    pub correlation: Option<&'a [u8]>,
    /// Earlier events of its publisher at other brokers; set by the broker that accepts the event.
    pub after: Predecessors<'a>,
    /// The event may be a repetition of one that was accepted at a broker that could not be asked;
    /// set by the broker that accepts it.
    pub maybe_repeat: bool,
    /// The retain mark of its PUBLISH, or will: a subscription with Retain As Published gets it, on
    /// whichever path the event reaches it.
    pub retain: bool,
    /// Which brokers may carry the event; one list. Set by the broker that accepts it.
    pub domains: DomainLabel<'a>,
}

impl Headers<'_> {
    /// No header is present.
    pub const EMPTY: Headers<'static> = Headers {
        text_payload: None,
        content_type: None,
        response_topic: None,
        correlation: None,
        after: Predecessors::NONE,
        maybe_repeat: false,
        retain: false,
        domains: DomainLabel::ANY,
    };

    /// True if no header is present.
    #[inline]
    pub fn is_empty(&self) -> bool {
        let Headers { text_payload, content_type, response_topic, correlation, after, maybe_repeat, retain, domains } =
            self;
        let has_text = content_type.is_some() | response_topic.is_some();
        let has_flag = text_payload.is_some() | *maybe_repeat | *retain;
        !(has_text | has_flag | correlation.is_some() | !after.is_empty() | !domains.is_any())
    }
}

/// The identity of a publisher, by which its own events are left out of what it gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Publisher(u64);

impl Publisher {
    /// The broker itself, or an unknown publisher: equal to no client.
    pub const UNKNOWN: Publisher = Publisher(0);

    /// The client with that id: FNV-1a, 64 bits, the same at every broker. Two clients are taken
    /// for one with a probability of 2^-64.
    pub fn named(client_id: &str) -> Publisher {
        Publisher(fnv1a(FNV_OFFSET, client_id.as_bytes()).max(1))
    }

    /// As a number; 0 is [`Publisher::UNKNOWN`].
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// From its number.
    pub fn from_bits(bits: u64) -> Publisher {
        Publisher(bits)
    }
}

/// An event that passes through: its bytes are borrowed.
#[derive(Clone, Copy, Debug)]
pub struct EventRef<'a> {
    /// The topic's name, checked by the code that accepted the event.
    pub topic: &'a str,
    /// Typed key/value pairs.
    pub attributes: Attributes<'a>,
    /// The content for subscribers.
    pub payload: &'a [u8],
    /// Headers of the field's request/response and content conventions.
    pub headers: Headers<'a>,
    /// Quality of service of its PUBLISH; no subscriber gets it with a greater one.
    pub qos: Qos,
    /// Guarantees for the event.
    pub reliability: Reliability,
    /// 1 to [`IMPORTANCE_MAX`].
    pub importance: u8,
    /// Not delivered at or after this moment.
    pub expires: Option<Time>,
    /// End-to-end deadline in milliseconds after acceptance.
    pub deadline_ms: Option<u32>,
    /// The event's publisher.
    pub publisher: Publisher,
}

impl<'a> EventRef<'a> {
    /// An event with the defaults of everything else: reliable unless it is published at most once.
    #[inline]
    pub fn new(topic: &'a str, payload: &'a [u8], qos: Qos) -> Self {
        EventRef {
            topic,
            attributes: Attributes::EMPTY,
            payload,
            headers: Headers::EMPTY,
            qos,
            reliability: if qos == Qos::AtMostOnce { Reliability::BestEffort } else { Reliability::Reliable },
            importance: IMPORTANCE_DEFAULT,
            expires: None,
            deadline_ms: None,
            publisher: Publisher::UNKNOWN,
        }
    }
}

/// An event that is kept: one allocation for all of it, shared by all its users.
#[derive(Clone, PartialEq, Eq)]
pub struct Event(Arc<[u8]>);

/// An event that takes no more bytes than this is packed on the stack first.
const SMALL: usize = 256;

/// Bytes of an allocation: sizes are rounded up to 16 bytes below 64, and to one of four steps of
/// each doubling above, as in mimalloc.
fn allocated(bytes: usize) -> usize {
    if bytes <= 64 {
        return bytes.next_multiple_of(16);
    }
    let step = 1 << ((bytes - 1).ilog2() - 2);
    bytes.next_multiple_of(step)
}

fn weight(packed: usize) -> usize {
    allocated(2 * size_of::<usize>() + packed)
}

impl AcceptedEvent<'_> {
    /// Keeps the event.
    ///
    /// # Panics
    /// As [`AcceptedEvent::pack`].
    pub fn keep(&self) -> Event {
        let len = self.packed_len();
        // A small one is packed on the stack first, so that there is only one allocation.
        let mut small = [0; SMALL];
        if let Some(bytes) = small.get_mut(..len) {
            self.pack(bytes);
            return Event(Arc::from(&*bytes));
        }
        let mut bytes = Vec::with_capacity(len);
        self.pack_onto(&mut bytes);
        Event(bytes.into())
    }
}

impl Event {
    /// Keeps `event`, which this broker accepted at `accepted` under the id `id`.
    ///
    /// # Panics
    /// As [`AcceptedEvent::pack`].
    pub fn keep(id: EventId, accepted: Time, event: &EventRef<'_>) -> Event {
        AcceptedEvent { id, accepted, clock_offset: 0, event: *event }.keep()
    }

    /// Copies an event that is packed somewhere else.
    pub fn copied(event: Packed<'_>) -> Event {
        Event(event.as_bytes().into())
    }

    /// A weak reference to the event.
    pub fn downgrade(&self) -> WeakEvent {
        WeakEvent(Arc::downgrade(&self.0))
    }

    /// The event in the form in which it is kept.
    #[inline]
    pub fn packed(&self) -> Packed<'_> {
        Packed::kept(&self.0)
    }

    /// The event's id.
    pub fn id(&self) -> EventId {
        self.packed().id()
    }

    /// When it was accepted.
    pub fn accepted(&self) -> Time {
        self.packed().accepted()
    }

    /// Quality of service of its PUBLISH.
    pub fn qos(&self) -> Qos {
        self.packed().qos()
    }

    /// The event's publisher.
    pub fn publisher(&self) -> Publisher {
        self.packed().publisher()
    }

    /// Cost of keeping it, bytes: what an allocator with size classes allocates for it.
    pub fn weight(&self) -> usize {
        weight(self.0.len())
    }

    /// Cost of keeping `event`, bytes.
    pub fn weight_of(event: &EventRef<'_>) -> usize {
        weight(event.packed_len())
    }

    /// True at and after its expiry.
    pub fn is_expired(&self, now: Time) -> bool {
        self.packed().is_expired(now)
    }

    /// When it expires, if ever.
    pub fn expires(&self) -> Option<Time> {
        self.packed().expires()
    }

    /// The topic's name.
    pub fn topic(&self) -> &str {
        self.view().topic
    }

    /// A view of the whole event.
    pub fn view(&self) -> EventRef<'_> {
        self.packed().view()
    }
}

/// A weak reference to an event that is kept elsewhere, or was dropped.
#[derive(Clone, Debug)]
pub struct WeakEvent(Weak<[u8]>);

impl WeakEvent {
    /// The event, if it is still kept.
    pub fn upgrade(&self) -> Option<Event> {
        self.0.upgrade().map(Event)
    }
}

impl core::fmt::Debug for Event {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.packed().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AttributesBuf, PubendId, Tick};

    #[test]
    fn allocations_come_in_four_sizes_for_each_doubling() {
        let sizes = [0, 1, 16, 17, 64, 65, 80, 81, 97, 113, 128, 129, 161, 1_025, 10_000].map(allocated);
        assert_eq!(sizes, [0, 16, 16, 32, 64, 80, 80, 96, 112, 128, 128, 160, 192, 1_280, 10_240]);
    }

    #[test]
    fn a_kept_event_shows_what_was_put_in() {
        let mut attributes = AttributesBuf::new();
        attributes.push("line", "N56");
        let event = EventRef {
            topic: "fleet/7/position",
            attributes: attributes.as_attributes(),
            payload: b"52.2,21.0",
            headers: Headers { response_topic: Some("r"), correlation: Some(b"\0\x01"), ..Headers::EMPTY },
            qos: Qos::AtLeastOnce,
            reliability: Reliability::Reliable,
            importance: 9,
            expires: Some(Time::from_nanos(50)),
            deadline_ms: Some(20),
            publisher: Publisher::named("bus-7"),
        };
        let id = EventId { pubend: PubendId(1), tick: Tick(2) };
        let kept = Event::keep(id, Time::from_nanos(10), &event);
        let view = kept.view();
        assert_eq!((kept.id(), kept.accepted(), kept.topic()), (id, Time::from_nanos(10), "fleet/7/position"));
        assert_eq!((view.topic, view.attributes, view.payload), (event.topic, event.attributes, event.payload));
        assert_eq!((view.headers, view.importance, view.deadline_ms), (event.headers, 9, Some(20)));
        assert_eq!(view.publisher, event.publisher);
        assert!(!kept.is_expired(Time::from_nanos(49)));
        assert!(kept.is_expired(Time::from_nanos(50)));
    }
}
