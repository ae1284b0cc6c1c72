//! An answer to one reader of a log answers others on the way there.

use core::time::Duration;

use whimbrel_core::{Input, Link, Publish};
use whimbrel_event::Qos;

use crate::common::{CLEAN, event, plain};
use crate::net::Net;
use crate::{PUB, SECOND, SUB, WIDE, back};

/// A publisher at b0, which b1 leads to; behind that b2 and b3, each with a durable subscriber.
fn world(filters: [&str; 2]) -> Net {
    let mut net = Net::line(3);
    net.grow(1);
    net.advance(SECOND * 2);
    net.attach(0, PUB, "publisher", CLEAN);
    for (node, filter) in [2, 3].into_iter().zip(filters) {
        net.attach(node, SUB, "subscriber", WIDE);
        net.subscribe(node, SUB, plain(filter, Qos::AtLeastOnce));
    }
    net
}

/// Both brokers miss these events.
fn missed(filters: [&str; 2], events: &[(&str, &str)]) -> Net {
    let mut net = world(filters);
    net.advance(SECOND * 2);
    net.kill(2);
    net.kill(3);
    for (topic, payload) in events {
        net.publish(0, PUB, topic, payload);
        net.advance(Duration::from_millis(1));
    }
    net.advance(SECOND * 3);
    net
}

/// A broker is there again, and then its subscriber.
fn returns(net: &mut Net, node: usize) {
    net.revive(node);
    net.join(1, node);
    net.advance(SECOND);
    back(net, node);
}

/// The payloads that a subscriber gets when its broker is back.
fn gets(net: &mut Net, node: usize) -> Vec<String> {
    returns(net, node);
    net.advance(SECOND * 2);
    net.payloads(node, SUB)
}

const THREE: [(&str, &str); 3] = [("t/a", "one"), ("t/b", "two"), ("t/a", "three")];

#[test]
fn what_two_have_missed_is_read_once() {
    let mut net = missed(["t/#", "t/#"], &THREE);
    assert_eq!(gets(&mut net, 2), ["one", "two", "three"]);
    let lent = net.stats(0).events_lent;
    assert_eq!(lent, 3);
    assert_eq!(gets(&mut net, 3), ["one", "two", "three"]);
    assert_eq!((net.stats(0).events_lent, net.stats(1).events_kept), (3, 3));
}

#[test]
fn of_what_is_kept_only_what_is_wanted_is_told() {
    let mut net = missed(["t/#", "t/a"], &THREE);
    gets(&mut net, 2);
    assert_eq!(gets(&mut net, 3), ["one", "three"]);
    assert_eq!((net.stats(0).events_lent, net.stats(1).events_kept), (3, 2));
}

#[test]
fn what_was_told_to_one_who_wanted_less_is_not_enough() {
    let mut net = missed(["t/a", "t/#"], &THREE);
    gets(&mut net, 2);
    assert_eq!(gets(&mut net, 3), ["one", "two", "three"]);
    assert_eq!((net.stats(0).events_lent, net.stats(1).events_kept), (5, 0));
}

#[test]
fn who_asks_while_an_answer_is_under_way_waits_for_it() {
    let mut net = missed(["t/#", "t/a"], &THREE);
    for node in [2, 3] {
        net.revive(node);
        net.join(1, node);
    }
    net.advance(SECOND);
    net.nodes[0].reads_nothing = true;
    back(&mut net, 2);
    back(&mut net, 3);
    net.advance(Duration::from_millis(100));
    net.nodes[0].reads_nothing = false;
    net.publish(0, PUB, "other", "what wakes it up");
    net.advance(SECOND * 5);
    assert_eq!(net.payloads(2, SUB), ["one", "two", "three"]);
    assert_eq!(net.payloads(3, SUB), ["one", "three"]);
    let (log, way) = (net.stats(0), net.stats(1));
    assert_eq!((log.reads_asked, log.events_lent), (8, 3), "one question for each of its streams");
    assert_eq!((way.reads_merged > 0, way.events_kept), (true, 2), "once, however often it asks");
}

#[test]
fn an_event_grows_older_while_it_is_kept() {
    let mut net = world(["t/#", "t/#"]);
    net.advance(SECOND * 2);
    net.kill(2);
    net.kill(3);
    let mut short = event("t/a", "short", Qos::AtLeastOnce);
    short.expires = Some(net.now + SECOND * 12);
    net.input(0, Input::Publish(Publish { link: Link(PUB), tag: 5, retain: false, number: None, event: &short }));
    net.publish(0, PUB, "t/a", "long");
    net.advance(SECOND * 3);
    assert_eq!(gets(&mut net, 2), ["short", "long"]);
    net.advance(SECOND * 5);
    assert_eq!(gets(&mut net, 3), ["long"]);
    assert_eq!(net.stats(1).events_kept, 2);
}

#[test]
fn who_was_given_up_is_told_by_the_log_itself() {
    let mut net = world(["t/#", "t/#"]);
    net.advance(SECOND * 2);
    net.kill(2);
    net.kill(3);
    net.publish(0, PUB, "t/a", "one");
    net.advance(SECOND * 15);
    net.forget(0, "b3", false).expect("it is not there");
    net.revive(2);
    net.revive(3);
    net.join(1, 2);
    net.advance(SECOND * 2);
    back(&mut net, 2);
    net.advance(SECOND * 2);
    assert_eq!(net.payloads(2, SUB), ["one"]);
    net.join(1, 3);
    net.advance(SECOND * 2);
    assert_eq!(net.stats(1).events_kept, 0, "nothing is held for it any more");
}
