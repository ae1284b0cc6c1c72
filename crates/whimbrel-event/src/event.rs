//! Events: as they pass through (borrowed) and as they are kept (owned).

use std::sync::Arc;

use crate::{Attributes, EventId, Time};

/// The importance of an event that does not say otherwise.
pub const IMPORTANCE_DEFAULT: u8 = 5;

/// The largest importance; the smallest is 1.
pub const IMPORTANCE_MAX: u8 = 10;

/// How surely a message is handed over between a client and its broker.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Qos {
    /// Sent once and forgotten.
    AtMostOnce = 0,
    /// Repeated until acknowledged.
    AtLeastOnce = 1,
    /// Acknowledged in two phases so that nothing is taken twice.
    ExactlyOnce = 2,
}

/// Which promises hold for an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reliability {
    /// Once or not at all.
    BestEffort,
    /// Exactly once within the subscription's durability class, or a gap.
    Reliable,
}

/// What an event carries besides topic, attributes and payload. All of it is passed on unaltered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Headers<'a> {
    /// The payload is UTF-8 text, as its publisher says.
    pub text_payload: Option<bool>,
    /// The payload's media type or another description that publisher and subscriber agree on.
    pub content_type: Option<&'a str>,
    /// Where a reply is wanted.
    pub response_topic: Option<&'a str>,
    /// What a reply must carry to be told from others.
    pub correlation: Option<&'a [u8]>,
}

impl Headers<'_> {
    /// No header is present.
    pub const EMPTY: Headers<'static> =
        Headers { text_payload: None, content_type: None, response_topic: None, correlation: None };

    /// True if no header is present.
    pub fn is_empty(&self) -> bool {
        *self == Headers::EMPTY
    }
}

/// A publisher, as far as it takes to leave its own events out of what it gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Publisher(u64);

impl Publisher {
    /// The broker itself, or somebody unknown: equal to no client.
    pub const UNKNOWN: Publisher = Publisher(0);

    /// The client with that id: FNV-1a, 64 bits, the same at every broker. Two clients are taken for one with a probability of 2^-64.
    pub fn named(client_id: &str) -> Publisher {
        let hash = client_id
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
        Publisher(hash.max(1))
    }
}

/// An event as it passes through: its bytes belong to somebody else.
#[derive(Clone, Copy, Debug)]
pub struct EventRef<'a> {
    /// The topic's name, checked by whoever accepted the event.
    pub topic: &'a str,
    /// Typed key/value pairs.
    pub attributes: Attributes<'a>,
    /// What subscribers get.
    pub payload: &'a [u8],
    /// Headers of the field's request/response and content conventions.
    pub headers: Headers<'a>,
    /// How its publisher handed it over; no subscriber gets it with more.
    pub qos: Qos,
    /// Which promises hold.
    pub reliability: Reliability,
    /// 1 to [`IMPORTANCE_MAX`].
    pub importance: u8,
    /// Not delivered at or after this moment.
    pub expires: Option<Time>,
    /// End-to-end deadline in milliseconds after acceptance.
    pub deadline_ms: Option<u32>,
    /// Who published it.
    pub publisher: Publisher,
}

/// An event that is kept: one allocation for all its text and bytes, shared by everyone who waits for it.
#[derive(Debug)]
pub struct Event {
    id: EventId,
    accepted: Time,
    bytes: Box<[u8]>,
    topic_end: u32,
    attributes_end: u32,
    payload_end: u32,
    extra: Option<Box<ExtraHeaders>>,
    expires: Option<Time>,
    deadline_ms: Option<u32>,
    publisher: Publisher,
    qos: Qos,
    reliability: Reliability,
    importance: u8,
}

/// Headers of a kept event; few events have any.
#[derive(Debug)]
struct ExtraHeaders {
    text_payload: Option<bool>,
    content_type: Option<Box<str>>,
    response_topic: Option<Box<str>>,
    correlation: Option<Box<[u8]>>,
}

impl ExtraHeaders {
    fn weight(&self) -> usize {
        let text = |text: &Option<Box<str>>| text.as_ref().map_or(0, |text| allocated(text.len()));
        let correlation = self.correlation.as_ref().map_or(0, |bytes| allocated(bytes.len()));
        allocated(size_of::<ExtraHeaders>()) + text(&self.content_type) + text(&self.response_topic) + correlation
    }
}

/// What an allocation takes: sizes are rounded up to 16 bytes below 64, and to one of four steps of each doubling above, as mimalloc has it.
fn allocated(bytes: usize) -> usize {
    if bytes <= 64 {
        return bytes.next_multiple_of(16);
    }
    let step = 1 << ((bytes - 1).ilog2() - 2);
    bytes.next_multiple_of(step)
}

impl Event {
    /// Keeps `event`, which was accepted at `accepted` under the name `id`.
    ///
    /// # Panics
    /// When topic, attributes and payload together exceed 4 GiB; edges bound packets far below.
    pub fn keep(id: EventId, accepted: Time, event: &EventRef<'_>) -> Arc<Event> {
        let attributes = event.attributes.as_bytes();
        let total = event.topic.len() + attributes.len() + event.payload.len();
        assert!(u32::try_from(total).is_ok(), "an event of {total} bytes passed the edge's bound");
        let mut bytes = Vec::with_capacity(total);
        bytes.extend_from_slice(event.topic.as_bytes());
        bytes.extend_from_slice(attributes);
        bytes.extend_from_slice(event.payload);
        let headers = &event.headers;
        let extra = (!headers.is_empty()).then(|| {
            Box::new(ExtraHeaders {
                text_payload: headers.text_payload,
                content_type: headers.content_type.map(Box::from),
                response_topic: headers.response_topic.map(Box::from),
                correlation: headers.correlation.map(Box::from),
            })
        });
        Arc::new(Event {
            id,
            accepted,
            bytes: bytes.into_boxed_slice(),
            topic_end: event.topic.len() as u32,
            attributes_end: (event.topic.len() + attributes.len()) as u32,
            payload_end: total as u32,
            extra,
            expires: event.expires,
            deadline_ms: event.deadline_ms,
            publisher: event.publisher,
            qos: event.qos,
            reliability: event.reliability,
            importance: event.importance,
        })
    }

    /// The event's name.
    pub fn id(&self) -> EventId {
        self.id
    }

    /// When it was accepted.
    pub fn accepted(&self) -> Time {
        self.accepted
    }

    /// How its publisher handed it over.
    pub fn qos(&self) -> Qos {
        self.qos
    }

    /// Who published it.
    pub fn publisher(&self) -> Publisher {
        self.publisher
    }

    /// What it costs to keep, bytes: what an allocator with size classes gives for it (`examples/cache_memory.rs` of the core compares that with
    /// what a process takes).
    pub fn weight(&self) -> usize {
        let counts = 2 * size_of::<usize>();
        let extra = self.extra.as_ref().map_or(0, |extra| extra.weight());
        allocated(counts + size_of::<Event>()) + allocated(self.bytes.len()) + extra
    }

    /// True at and after its expiry.
    pub fn is_expired(&self, now: Time) -> bool {
        self.expires.is_some_and(|at| at <= now)
    }

    /// When it expires, if ever.
    pub fn expires(&self) -> Option<Time> {
        self.expires
    }

    /// The topic's name.
    pub fn topic(&self) -> &str {
        core::str::from_utf8(&self.bytes[..self.topic_end as usize]).expect("kept from a str")
    }

    /// A view of the whole event.
    pub fn view(&self) -> EventRef<'_> {
        let attributes = &self.bytes[self.topic_end as usize..self.attributes_end as usize];
        let extra = self.extra.as_deref();
        EventRef {
            topic: self.topic(),
            attributes: Attributes::kept(attributes),
            payload: &self.bytes[self.attributes_end as usize..self.payload_end as usize],
            headers: Headers {
                text_payload: extra.and_then(|e| e.text_payload),
                content_type: extra.and_then(|e| e.content_type.as_deref()),
                response_topic: extra.and_then(|e| e.response_topic.as_deref()),
                correlation: extra.and_then(|e| e.correlation.as_deref()),
            },
            qos: self.qos,
            reliability: self.reliability,
            importance: self.importance,
            expires: self.expires,
            deadline_ms: self.deadline_ms,
            publisher: self.publisher,
        }
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
