//! Events of a publisher that has moved, at its new broker, where its last earlier event has not
//! arrived yet.

use core::time::Duration;

use whimbrel_core::Channel;
use whimbrel_core::overlay::PREDECESSOR_MAX;
use whimbrel_event::Qos;
use whimbrel_wire::Frame;

use super::SECOND;
use super::common::Told;
use super::moving::world;
use super::net::{Net, frame};

const MILLI: Duration = Duration::from_millis(1);

/// Three brokers, a subscriber at the third, and a publisher that has gone there from the first:
/// its last event from there is lost on its way.
fn follower_at_the_new_broker() -> Net {
    let mut net = world(Qos::AtLeastOnce);
    assert_eq!(net.connect(2, 1, "local"), Some(false));
    net.subscribe_durably(2, 1, "t", Qos::AtLeastOnce);
    net.drops = Box::new(|from, channel, bytes| {
        from == 0 && channel == Channel::Reliable && matches!(frame(bytes), Some(Frame::Event(_)))
    });
    net.publish(0, 9, "t", "one", Qos::AtLeastOnce);
    assert_eq!(net.connect(2, 9, "publisher"), Some(true));
    net
}

fn waits(net: &Net) -> [u64; 2] {
    let stats = net.nodes[2].core.overlay_stats().expect("it is one of several");
    [stats.publishers_early, stats.order_breaks]
}

#[test]
fn who_is_at_a_publishers_new_broker_gets_first_what_it_published_elsewhere() {
    let mut net = follower_at_the_new_broker();
    net.publish(2, 9, "t", "two", Qos::AtLeastOnce);
    net.publish(2, 9, "t", "three", Qos::AtLeastOnce);
    net.advance(MILLI * 50);
    assert_eq!(net.settled(2, 1, MILLI * 100), Vec::<String>::new());
    assert!(!net.told(2, 9).iter().any(|told| matches!(told, Told::Accepted { .. })), "nor is it accepted");
    net.drops = Box::new(|_, _, _| false);
    assert_eq!(net.settled(2, 1, SECOND), ["one", "two", "three"]);
    let told = net.told(2, 9);
    assert_eq!(told.iter().filter(|told| matches!(told, Told::Accepted { .. })).count(), 2);
    assert_eq!(waits(&net), [1, 0]);
    // It waits no more.
    net.publish_all(2, 9, &["four"]);
    assert_eq!(net.settled(2, 1, MILLI * 100), ["four"]);
    assert_eq!(waits(&net), [1, 0]);
}

#[test]
fn a_publisher_that_has_moved_waits_for_five_seconds() {
    let mut net = follower_at_the_new_broker();
    net.publish(2, 9, "t", "two", Qos::AtLeastOnce);
    assert_eq!(net.settled(2, 1, PREDECESSOR_MAX - MILLI * 100), Vec::<String>::new());
    assert_eq!(net.settled(2, 1, MILLI * 200), ["two"]);
    assert_eq!(waits(&net), [1, 1]);
}

/// The wait counts from the publisher's first event, as everywhere else, and not from its arrival.
#[test]
fn a_publisher_that_was_silent_waits_as_long() {
    let mut net = follower_at_the_new_broker();
    net.advance(PREDECESSOR_MAX - SECOND);
    net.publish(2, 9, "t", "two", Qos::AtLeastOnce);
    assert_eq!(net.settled(2, 1, SECOND * 3), Vec::<String>::new());
    net.drops = Box::new(|_, _, _| false);
    assert_eq!(net.settled(2, 1, SECOND), ["one", "two"]);
    assert_eq!(waits(&net), [1, 0]);
}

#[test]
fn all_that_a_silent_publisher_says_at_first_says_what_came_before() {
    let mut net = follower_at_the_new_broker();
    net.advance(PREDECESSOR_MAX + SECOND);
    net.publish(2, 9, "other", "first", Qos::AtLeastOnce);
    net.publish(2, 9, "t", "two", Qos::AtLeastOnce);
    net.advance(PREDECESSOR_MAX + MILLI * 100);
    let got = net.got(2, 1);
    let said: Vec<(&str, bool)> = got.iter().map(|got| (&*got.payload, got.after.is_some())).collect();
    assert_eq!(said, [("two", true)]);
}

/// Coming again makes it wait no longer.
#[test]
fn a_publisher_that_connects_again_has_waited_already() {
    let mut net = follower_at_the_new_broker();
    net.publish(2, 9, "t", "two", Qos::AtLeastOnce);
    net.advance(SECOND * 3);
    net.leave(2, 9);
    assert_eq!(net.connect(2, 9, "publisher"), Some(true));
    net.publish(2, 9, "t", "two", Qos::AtLeastOnce);
    assert_eq!(net.settled(2, 1, SECOND), Vec::<String>::new());
    assert_eq!(net.settled(2, 1, SECOND * 2), ["two"]);
}

#[test]
fn what_waits_to_be_accepted_goes_with_its_connection() {
    let mut net = follower_at_the_new_broker();
    net.publish(2, 9, "t", "two", Qos::AtLeastOnce);
    net.leave(2, 9);
    net.drops = Box::new(|_, _, _| false);
    assert_eq!(net.settled(2, 1, SECOND), ["one"]);
    assert_eq!(net.connect(2, 9, "publisher"), Some(true));
    net.publish_all(2, 9, &["two"]);
    assert_eq!(net.settled(2, 1, SECOND), ["two"]);
    assert_eq!(waits(&net), [1, 0]);
}

#[test]
fn at_a_broker_where_nobody_wants_anything_nothing_is_waited_for() {
    let mut net = world(Qos::AtLeastOnce);
    net.publish_all(0, 9, &["one"]);
    assert_eq!(net.settled(1, 1, SECOND), ["one"]);
    for at in [2, 0, 2] {
        assert_eq!(net.connect(at, 9, "publisher"), Some(true));
        net.publish(at, 9, "t", "two", Qos::AtLeastOnce);
        net.advance(MILLI * 50);
        assert!(net.told(at, 9).iter().any(|told| matches!(told, Told::Accepted { .. })), "at {at}");
        assert_eq!(net.settled(1, 1, MILLI * 100), ["two"]);
    }
}

/// Deliveries in flight to a client when its broker was killed come out of two logs, of which one
/// answers later.
#[test]
fn what_was_on_its_way_keeps_its_order_through_a_restart() {
    for qos in [Qos::AtLeastOnce, Qos::ExactlyOnce] {
        let mut net = world(qos);
        net.publish_all(0, 9, &["1", "2"]);
        assert_eq!(net.connect(2, 9, "publisher"), Some(true));
        net.publish_all(2, 9, &["3", "4"]);
        net.advance(SECOND);
        let first: Vec<String> = net.got(1, 1).into_iter().map(|got| got.payload).collect();
        assert_eq!(first, ["1", "2", "3", "4"], "nobody acknowledges any of it");
        net.kill(1);
        net.advance(SECOND);
        net.revive(1, true);
        net.drops = Box::new(|from, channel, _| from == 0 && channel == Channel::BestEffort);
        assert_eq!(net.connect(1, 1, "sub"), Some(true));
        assert_eq!(net.settled(1, 1, SECOND), Vec::<String>::new(), "{qos:?}");
        net.drops = Box::new(|_, _, _| false);
        assert_eq!(net.settled(1, 1, SECOND * 3), ["1", "2", "3", "4"], "{qos:?}");
    }
}
