//! Publishers that move: an event at the new broker does not overtake earlier ones of its
//! publisher.

use core::time::Duration;

use whimbrel_core::overlay::PREDECESSOR_MAX;
use whimbrel_core::{Channel, Input, Link, Publish};
use whimbrel_event::{EventId, EventRef, Headers, PredecessorsBuf, PubendId, Qos, Tick};
use whimbrel_wire::Frame;

use super::SECOND;
use super::common::{Told, event, plain};
use super::moving::{MILLI, world};
use super::net::{Net, frame};

impl Net {
    fn publish_after(&mut self, node: usize, payload: &str, after: EventId) {
        self.publish_after_all(node, payload, [after]);
    }

    fn publish_after_all(&mut self, node: usize, payload: &str, after: impl IntoIterator<Item = EventId>) {
        let event = event("a", payload, Qos::AtLeastOnce);
        let after = PredecessorsBuf::from_iter(after);
        let event = EventRef { headers: Headers { after: after.as_predecessors(), ..event.headers }, ..event };
        self.input(node, Input::Publish(Publish { link: Link(1), tag: 8, retain: false, number: None, event: &event }));
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

/// The waiting stream rejoins when its restarted broker reports that it knows the interest of the
/// subscriber's new broker: the stream waits on.
#[test]
fn what_a_publisher_published_before_it_moved_comes_first_where_both_logs_are_read() {
    let mut net = Net::mesh(3);
    assert_eq!(net.connect(2, 9, "publisher"), Some(false));
    assert_eq!(net.connect(0, 1, "sub"), Some(false));
    net.subscribe_durably(0, 1, "t", Qos::AtLeastOnce);
    net.attach(1, 2, "other");
    net.subscribe(1, 2, plain("u", Qos::AtLeastOnce));
    net.leave(0, 1);
    net.advance(SECOND);
    net.publish_all(2, 9, &["1", "2", "3"]);
    net.leave(2, 9);
    assert_eq!(net.connect(0, 9, "publisher"), Some(true));
    net.publish_all(0, 9, &["4", "5", "6"]);
    // So the stream has been passed up to here where its subscriber will be.
    net.publish(0, 9, "u", "other", Qos::AtLeastOnce);
    net.advance(SECOND);
    assert_eq!(net.payloads(1, 2), ["other"]);
    net.kill(0);
    net.advance(SECOND);
    net.revive(0, true);
    net.advance(SECOND * 2);
    for far in [0, 1] {
        net.delay([far, 2], MILLI * 200);
    }
    // That broker knows of the interest, and does not report it yet.
    net.drops = Box::new(|from, _, bytes| from == 0 && matches!(frame(bytes), Some(Frame::Silence(_))));
    assert_eq!(net.connect(1, 1, "sub"), Some(true));
    let had = net.settled(1, 1, MILLI * 100);
    assert!(had.is_empty(), "{had:?}");
    net.drops = Box::new(|_, _, _| false);
    assert_eq!(net.settled(1, 1, SECOND * 4), ["1", "2", "3", "4", "5", "6"]);
    let stats = net.nodes[1].core.overlay_stats().expect("it is one of several");
    assert_eq!(stats.order_breaks, 0);
}

/// A publisher passes through the second broker, which ends before it has sent anything. Returns
/// the payloads for a subscriber that was away meanwhile and reads all of them from logs, that of
/// its own broker first.
fn passed_through(prepare: impl Fn(&mut whimbrel_core::Broker)) -> Vec<String> {
    let mut net = world(Qos::AtLeastOnce);
    prepare(&mut net.nodes[1].core);
    net.leave(1, 1);
    // The publisher has been at the second broker before.
    net.leave(0, 9);
    assert_eq!(net.connect(1, 9, "publisher"), Some(true));
    net.publish_all(1, 9, &["1"]);
    net.leave(1, 9);
    assert_eq!(net.connect(0, 9, "publisher"), Some(true));
    net.publish_all(0, 9, &["2", "3"]);
    net.leave(0, 9);
    assert_eq!(net.connect(1, 9, "publisher"), Some(true));
    net.kill(1);
    net.advance(MILLI * 500);
    net.revive(1, true);
    net.advance(SECOND * 2);
    assert_eq!(net.connect(2, 9, "publisher"), Some(true));
    net.publish_all(2, 9, &["4", "5"]);
    net.advance(SECOND);
    // Reading from other brokers takes some time.
    net.delay([0, 2], MILLI * 50);
    assert_eq!(net.connect(2, 1, "sub"), Some(true));
    net.settled(2, 1, SECOND * 2)
}

#[test]
fn the_order_of_a_publisher_survives_the_end_of_a_broker_that_it_only_passed_through() {
    assert_eq!(passed_through(|_| {}), ["1", "2", "3", "4", "5"]);
}

#[cfg(feature = "mutants")]
#[test]
fn what_it_published_before_is_written_where_it_went() {
    let got = passed_through(|core| core.build_in(whimbrel_core::Mutant::PredecessorUnwritten));
    assert_ne!(got, ["1", "2", "3", "4", "5"]);
}
