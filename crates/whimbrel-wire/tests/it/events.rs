//! Events as they travel: their bytes, and what is refused.

use core::time::Duration;
use std::panic::{AssertUnwindSafe, catch_unwind};

use whimbrel_event::{
    AcceptedEvent, Attributes, AttributesBuf, EventId, EventRef, Headers, PubendId, Publisher, Qos, Reliability, Tick,
    Time,
};
use whimbrel_wire::{FRAME_BYTES_MAX, Invalid, TOPIC_BYTES_MAX, compact};

const ID: EventId = EventId { pubend: PubendId(0x17), tick: Tick(1000) };

fn plain() -> AcceptedEvent<'static> {
    let event = EventRef {
        topic: "t/1",
        attributes: Attributes::EMPTY,
        payload: b"payload",
        headers: Headers::EMPTY,
        qos: Qos::AtMostOnce,
        reliability: Reliability::BestEffort,
        importance: 5,
        expires: None,
        deadline_ms: None,
        publisher: Publisher::UNKNOWN,
    };
    AcceptedEvent { id: ID, accepted: Time::from_nanos(1000), clock_offset: 0, event }
}

fn written(event: &AcceptedEvent<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    compact::write(event, &mut out);
    out
}

fn wrong(bytes: &[u8]) -> Invalid {
    compact::read(bytes, ID).expect_err("not an event")
}

#[test]
fn a_plain_event_takes_three_bytes_beside_its_own() {
    assert_eq!(written(&plain()), b"\0\x05\x03t/1payload");
}

#[test]
fn a_full_event_has_these_bytes() {
    let mut attributes = AttributesBuf::new();
    attributes.push("k", "v");
    let AcceptedEvent { event, .. } = plain();
    let event = EventRef {
        attributes: attributes.as_attributes(),
        headers: Headers {
            text_payload: Some(true),
            content_type: Some("c"),
            response_topic: Some("rr"),
            correlation: Some(b"\xff"),
            ..Headers::EMPTY
        },
        qos: Qos::ExactlyOnce,
        reliability: Reliability::Reliable,
        importance: 10,
        expires: Some(Time::from_nanos(1100)),
        deadline_ms: Some(200),
        publisher: Publisher::from_bits(0x0102_0304_0506_0708),
        ..event
    };
    let bytes = written(&AcceptedEvent { id: ID, accepted: Time::from_nanos(990), clock_offset: 0, event });
    let wanted = [
        // Flags; accepted 10 ns before the tick; publisher; expiry 110 ns after acceptance;
        // deadline.
        &[0b1111_1110, 0b1_1010, 19, 8, 7, 6, 5, 4, 3, 2, 1, 0xdc, 1, 0xc8, 1][..],
        &[0b1_1111, 1, b'c', 2, b'r', b'r', 1, 0xff],
        &[3, 6],
        b"t/1\0\x01k\0\x01vpayload",
    ];
    assert_eq!(bytes, wanted.concat());
    let read = compact::read(&bytes, ID).expect("an event");
    assert_eq!((read.id, read.accepted, read.event.publisher), (ID, Time::from_nanos(990), event.publisher));
}

#[test]
fn what_is_no_event_is_refused_with_its_reason() {
    for (bytes, invalid) in [
        (&b""[..], Invalid::Truncated),
        (b"\x03\x05\x01t", Invalid::Range("a quality of service")),
        (b"\0\0\x01t", Invalid::Range("an importance")),
        (b"\0\x0b\x01t", Invalid::Range("an importance")),
        (b"\0\x45\x01t", Invalid::Form("flags of an event")),
        (b"\0\x25\0\x01t", Invalid::Text("a label")),
        (b"\0\x25\x01?\x01t", Invalid::Text("a label")),
        (b"\0\x25\x05us,eu\x01t", Invalid::Text("a label")),
        (b"\0\x25\x05eu;us\x01t", Invalid::Text("a label")),
        // The parts that a flag announces, but which say nothing.
        (b"\x80\x05\0\x01t", Invalid::Form("when an event was accepted")),
        (b"\x40\x05\0\0\0\0\0\0\0\0\x01t", Invalid::Form("a publisher")),
        (b"\x20\x05\0\x01t", Invalid::Form("headers")),
        (b"\x20\x05\x02\x01t", Invalid::Form("headers")),
        (b"\x20\x05\x80\x01t", Invalid::Form("headers")),
        (b"\0\x15\x01\0t", Invalid::Form("attributes")),
        (b"\0\x15\x01\x01ta", Invalid::Form("attributes")),
        (b"\x20\x05\x04\x01\xff\x01t", Invalid::Text("a content type")),
        (b"\x20\x05\x08\x01\xff\x01t", Invalid::Text("a response topic")),
        (b"\x10\x05\x80\x80\x80\x80\x10\x01t", Invalid::Range("a deadline")),
        (b"\0\x05\0", Invalid::Range("the length of a topic")),
        (b"\0\x05\x80\x80\x04", Invalid::Range("the length of a topic")),
        (b"\0\x05\x01\xff", Invalid::Text("a topic")),
        (b"\0\x05\x02t", Invalid::Truncated),
        // Longer than it needs to be, and than 64 bits.
        (b"\0\x05\x81\0t", Invalid::Number),
        (b"\0\x05\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", Invalid::Number),
        (b"\0\x05\xff\xff\xff\xff\xff\xff\xff\xff\xff\x80\x01", Invalid::Number),
    ] {
        assert_eq!(wrong(bytes), invalid, "{bytes:02x?}");
    }
}

#[test]
fn an_event_is_no_longer_than_a_frame() {
    let rest = written(&plain()).len() - plain().event.payload.len();
    let payload = vec![0; FRAME_BYTES_MAX + 1 - rest];
    let event = |payload| AcceptedEvent { event: EventRef { payload, ..plain().event }, ..plain() };
    assert!(compact::read(&written(&event(&payload[1..])), ID).is_ok());
    assert_eq!(wrong(&written(&event(&payload))), Invalid::TooLong);
}

#[test]
fn an_event_that_nobody_would_read_is_not_written() {
    let long = "t".repeat(TOPIC_BYTES_MAX + 1);
    let event = |topic, importance| AcceptedEvent { event: EventRef { topic, importance, ..plain().event }, ..plain() };
    let refused = |event| catch_unwind(AssertUnwindSafe(|| written(&event))).is_err();
    assert!(compact::read(&written(&event(&long[1..], 1)), ID).is_ok());
    for event in [event("", 5), event(&long, 5), event("t", 0), event("t", 11)] {
        assert!(refused(event));
    }
}

#[test]
fn distances_of_moments_may_be_as_great_as_can_be() {
    for (tick, accepted, expires) in [(0, u64::MAX, 0), (u64::MAX, 0, u64::MAX), (1 << 63, 0, 1 << 63)] {
        let id = EventId { tick: Tick(tick), ..ID };
        let event = EventRef { expires: Some(Time::from_nanos(expires)), ..plain().event };
        let bytes = written(&AcceptedEvent { id, accepted: Time::from_nanos(accepted), clock_offset: 0, event });
        let read = compact::read(&bytes, id).expect("an event");
        assert_eq!(read.accepted.as_nanos(), accepted);
        assert_eq!(read.event.expires, event.expires);
    }
}

#[test]
fn an_event_that_came_over_links_is_written_as_its_own_broker_wrote_it() {
    let event = EventRef { expires: Some(Time::from_nanos(1100)), ..plain().event };
    let bytes = written(&AcceptedEvent { event, ..plain() });
    for (now, age) in [(5_000, 10), (7, 3), (1 << 40, 99)] {
        let mut here = compact::read(&bytes, ID).expect("an event");
        here.arrive(Time::from_nanos(now), Duration::from_nanos(age));
        assert_eq!(here.age(Time::from_nanos(now + 1)), Duration::from_nanos(age + 1));
        assert_eq!(here.event.expires, Some(Time::from_nanos(now + 100 - age)));
        assert_eq!(written(&here), bytes);
    }
}
