//! What an event costs on a link beside its own bytes.

use whimbrel_event::{
    AcceptedEvent, AttributesBuf, EventId, EventRef, Headers, HostId, Publisher, Qos, Reliability, Tick, Time,
};
use whimbrel_wire::{Cutter, Dest, EventFrame, Frame, Repairers, TreeWriter, compact};

const TICK: Tick = Tick(1_795_000_000_123_456_789);
const TOPIC: &str = "fleet/7/position";
const PAYLOAD: &[u8] = &[7; 200];

/// So far back that the distance takes four bytes: 10 to 260 ms.
const BEFORE: u64 = 50_000_000;

/// A way to some destinations: how a tree for them is written.
type Ways = fn(&mut TreeWriter<'_>, Dest);

/// Length, type, header, tree and event, less payload, topic and attributes.
fn overhead(ways: Ways, default_previous: Tick) -> usize {
    let mut attributes = AttributesBuf::new();
    attributes.push("line", "N56");
    let event = EventRef {
        topic: TOPIC,
        attributes: attributes.as_attributes(),
        payload: PAYLOAD,
        headers: Headers::EMPTY,
        qos: Qos::AtLeastOnce,
        reliability: Reliability::Reliable,
        importance: 5,
        expires: None,
        deadline_ms: None,
        publisher: Publisher::named("bus-7"),
    };
    let id = EventId { pubend: HostId::new(0xabcd_ef01_2345_6780).pubend(1), tick: TICK };
    let (mut packed, mut tree) = (Vec::new(), Vec::new());
    compact::write(&AcceptedEvent { id, accepted: Time::from_nanos(TICK.0), clock_offset: 0, event }, &mut packed);
    let mut writer = TreeWriter::new(&mut tree, TICK, default_previous);
    ways(&mut writer, Dest { tag: 513, previous: Tick(TICK.0 - BEFORE) });
    writer.finish();
    let frame = EventFrame {
        pubend: id.pubend,
        tick: TICK,
        age_us: 15_000,
        answer: false,
        retain: false,
        repairers: Repairers::NONE,
        tree: &tree,
        default_previous,
        event: &packed,
    };
    let mut out = Vec::new();
    Frame::Event(frame).encode(&mut out);
    let mut chunk = out.as_slice();
    assert_eq!(Frame::decode(Cutter::new().next(&mut chunk).unwrap().unwrap()), Ok(Frame::Event(frame)));
    out.len() - PAYLOAD.len() - TOPIC.len() - attributes.as_attributes().as_bytes().len()
}

/// Ten neighbours.
fn star(writer: &mut TreeWriter<'_>, dest: Dest) {
    writer.root(None, 10);
    (0..10).for_each(|port| writer.child(port, Some(dest), 0));
}

/// Two neighbours that want it themselves and pass it on to four each.
fn two_hops(writer: &mut TreeWriter<'_>, dest: Dest) {
    writer.root(None, 2);
    for port in 0..2 {
        writer.child(port, Some(dest), 4);
        (0..4).for_each(|port| writer.child(port + 58, Some(dest), 0));
    }
}

/// Two neighbours that only pass it on, to five each.
fn through_others(writer: &mut TreeWriter<'_>, dest: Dest) {
    writer.root(None, 2);
    for port in 0..2 {
        writer.child(port, None, 5);
        (0..5).for_each(|port| writer.child(port, Some(dest), 0));
    }
}

/// Each passes it on to the next.
fn chain(writer: &mut TreeWriter<'_>, dest: Dest) {
    writer.root(None, 1);
    (0..10).for_each(|at| writer.child(at, Some(dest), usize::from(at < 9)));
}

/// Only the reader.
fn alone(writer: &mut TreeWriter<'_>, dest: Dest) {
    writer.root(Some(dest), 0);
}

#[test]
fn ten_destinations_take_at_most_eight_bytes_each_and_32_for_all() {
    for ways in [star, two_hops, through_others] as [Ways; 3] {
        // Each with a previous tick of its own, or all with the frame's.
        assert!(overhead(ways, TICK) <= 32 + 8 * 10, "{}", overhead(ways, TICK));
        assert!(overhead(ways, Tick(TICK.0 - BEFORE)) <= 32 + 8 * 10);
    }
}

#[test]
fn the_bytes_of_some_shapes() {
    let shared = Tick(TICK.0 - BEFORE);
    let bytes = |ways| (overhead(ways, TICK), overhead(ways, shared));
    assert_eq!(bytes(star), (105, 69));
    assert_eq!(bytes(two_hops), (107, 71));
    assert_eq!(bytes(through_others), (109, 73));
    assert_eq!(bytes(chain), (114, 78));
    assert_eq!(bytes(alone), (41, 41));
}
