//! Publishers that move: an event at the new broker does not overtake earlier ones of its
//! publisher.

use core::time::Duration;

use whimbrel_core::overlay::PREDECESSOR_MAX;
use whimbrel_core::{Channel, Input, Link, Publish};
use whimbrel_event::{EventId, EventRef, Headers, PredecessorsBuf, PubendId, Qos, Tick};
use whimbrel_wire::Frame;

use super::SECOND;
use super::common::{Told, event, plain};
use super::net::{Net, frame};

impl Net {
    fn publish_after(&mut self, node: usize, payload: &str, after: EventId) {
        self.publish_after_all(node, payload, [after]);
    }

    fn publish_after_all(&mut self, node: usize, payload: &str, after: impl IntoIterator<Item = EventId>) {
        let event = event("a", payload, Qos::AtLeastOnce);
        let after = PredecessorsBuf::from_iter(after);
        let event = EventRef { headers: Headers { after: after.as_predecessors(), ..event.headers }, ..event };
        self.input(node, Input::Publish(Publish { link: Link(1), tag: 8, retain: false, number: None, event }));
    }

    fn counted(&self, node: usize) -> (u64, u64) {
        let stats = self.nodes[node].core.overlay_stats().expect("it is one of several");
        (stats.streams_stalled, stats.order_breaks)
    }
}

/// A publisher at the first broker, the same one at the third, and between them a broker that
/// follows both. Events that the first one sends are lost.
fn moving() -> (Net, EventId) {
    let mut net = Net::line(3);
    for node in [0, 2] {
        net.attach(node, 1, &format!("p{node}"));
    }
    for node in [0, 1] {
        net.attach(node, 2, &format!("s{node}"));
        net.subscribe(node, 2, plain("a", Qos::AtLeastOnce));
    }
    net.advance(SECOND);
    net.told(1, 2);
    net.told(0, 2);
    net.drops = Box::new(|from, channel, bytes| from == 0 && channel == Channel::Reliable && !is_silence(bytes));
    net.publish(0, 1, "a", "one", Qos::AtLeastOnce);
    let told = net.told(0, 2);
    let Some(Told::Event(one)) = told.first() else { panic!("it is passed where it was published: {told:?}") };
    (net, one.id)
}

fn is_silence(bytes: &[u8]) -> bool {
    matches!(frame(bytes), Some(Frame::Silence(_)))
}

#[test]
fn an_event_waits_for_the_one_that_its_publisher_published_before() {
    let (mut net, one) = moving();
    net.publish_after(2, "two", one);
    net.advance(SECOND);
    assert_eq!(net.payloads(1, 2), Vec::<String>::new());
    net.drops = Box::new(|_, _, _| false);
    net.advance(SECOND * 2);
    assert_eq!(net.payloads(1, 2), ["one", "two"]);
    assert_eq!(net.counted(1), (1, 0));
}

/// Its publisher was at a third broker in between, whose events no subscriber here wants.
#[test]
fn an_event_waits_for_all_that_its_publisher_published_before() {
    let (mut net, one) = moving();
    let unknown = |pubend| EventId { pubend: PubendId(pubend), tick: Tick(u64::MAX) };
    net.publish_after_all(2, "two", [unknown(0x78_0000), unknown(0x77_0000), one]);
    net.advance(SECOND);
    assert_eq!(net.payloads(1, 2), Vec::<String>::new());
    net.drops = Box::new(|_, _, _| false);
    net.advance(SECOND * 2);
    assert_eq!(net.payloads(1, 2), ["one", "two"]);
    assert_eq!(net.counted(1), (1, 0));
}

#[test]
fn what_was_published_before_is_asked_for_at_once() {
    let (mut net, one) = moving();
    // No frame of the first broker arrives by itself, as if it had just told silence.
    net.drops = Box::new(|from, channel, _| from == 0 && channel == Channel::Reliable);
    net.advance(SECOND);
    net.drops = Box::new(|_, _, _| false);
    net.publish_after(2, "two", one);
    net.advance(Duration::from_millis(10));
    assert_eq!(net.payloads(1, 2), ["one", "two"]);
}

#[test]
fn it_waits_for_five_seconds_and_then_counts_as_out_of_order() {
    let (mut net, one) = moving();
    net.publish_after(2, "two", one);
    net.publish(2, 1, "a", "three", Qos::AtLeastOnce);
    net.advance(PREDECESSOR_MAX - Duration::from_millis(10));
    assert_eq!(net.payloads(1, 2), Vec::<String>::new());
    net.advance(Duration::from_millis(20));
    assert_eq!(net.payloads(1, 2), ["two", "three"]);
    assert_eq!(net.counted(1), (1, 1));
}

#[test]
fn nothing_waits_for_a_broker_that_cannot_be_reached() {
    let (mut net, one) = moving();
    net.publish_after(2, "two", one);
    net.advance(SECOND);
    assert_eq!(net.payloads(1, 2), Vec::<String>::new());
    net.close(0);
    net.advance(SECOND);
    assert_eq!(net.payloads(1, 2), ["two"]);
    // Nor do events that arrive while it is away, or after predecessors that are not known here.
    net.publish_after(2, "three", one);
    net.publish_after(2, "four", EventId { pubend: PubendId(0x77_0000), tick: Tick(u64::MAX) });
    net.advance(SECOND);
    assert_eq!(net.payloads(1, 2), ["three", "four"]);
    assert_eq!(net.counted(1), (1, 2));
}
