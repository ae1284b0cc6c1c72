//! A durable subscription to another broker's stream when brokers end at awkward moments.

use core::time::Duration;

use whimbrel_core::{Durability, Filter, Input, Limits, Link, NOTICE_TOPIC, Publish, Settlement, SubscriptionSpec};
use whimbrel_event::Qos;

use crate::common::{CLEAN, Got, Told, event, plain};
use crate::net::Net;
use crate::{PUB, SECOND, SUB, WIDE, back, publish};

fn publish_at(net: &mut Net, qos: Qos, payloads: &[&str]) {
    for payload in payloads {
        let tag = payload.as_bytes()[0].into();
        let event = event("t/a", payload, qos);
        net.input(0, Input::Publish(Publish { link: Link(PUB), tag, retain: false, number: None, event: &event }));
        net.advance(Duration::from_millis(1));
    }
    net.advance(SECOND);
}

fn events(net: &mut Net) -> Vec<Got> {
    let told = net.told(1, SUB).into_iter();
    told.filter_map(|told| if let Told::Event(got) = told { Some(got) } else { None }).collect()
}

#[test]
fn what_is_given_up_while_it_is_being_read_is_told() {
    let limits = Limits { max_retain: Some(SECOND * 20), ..Limits::default() };
    let mut net = Net::with(2, limits);
    net.attach(0, PUB, "publisher", CLEAN);
    net.attach(1, SUB, "subscriber", WIDE);
    let spec =
        SubscriptionSpec { durability: Durability::Durable, notices: true, ..plain("t/#", Qos::AtLeastOnce).spec };
    net.subscribe(1, SUB, Filter { spec, ..plain("t/#", Qos::AtLeastOnce) });
    net.detach(1, SUB);
    publish(&mut net, &["a", "b"]);
    net.advance(SECOND);
    net.kill(1);
    net.advance(SECOND * 16);
    net.revive(1);
    net.join(0, 1);
    net.advance(SECOND);
    net.nodes[0].reads_nothing = true;
    back(&mut net, 1);
    net.advance(SECOND);
    net.part(1);
    net.advance(SECOND * 60);
    net.join(0, 1);
    net.advance(SECOND);
    let got = net.got(1, SUB);
    assert!(got.iter().all(|got| !got.payload.contains("released")), "it is being read: {got:?}");
    assert_eq!(net.nodes[0].disk.events(), 0, "it is given up");
    net.nodes[0].reads_nothing = false;
    net.advance(SECOND * 5);
    let got = net.got(1, SUB);
    let released = got.iter().filter(|got| got.topic == NOTICE_TOPIC && got.payload.contains("released"));
    assert_eq!(released.count(), 1, "{got:?}");
}

#[test]
fn what_is_acknowledged_while_its_stream_is_set_aside_does_not_come_again() {
    for (is_there, restarts) in [(true, false), (false, false), (true, true), (false, true)] {
        let mut net = Net::line(2);
        net.attach(0, PUB, "publisher", CLEAN);
        net.attach(1, SUB, "subscriber", WIDE);
        net.subscribe(1, SUB, plain("t/#", Qos::ExactlyOnce));
        publish_at(&mut net, Qos::ExactlyOnce, &["a", "b"]);
        let before = events(&mut net);
        assert_eq!(before.len(), 2);
        net.kill(1);
        net.revive(1);
        if is_there {
            // Its log cannot be read yet.
            net.nodes[0].is_stuck = true;
            net.join(0, 1);
        }
        net.advance(SECOND);
        back(&mut net, 1);
        net.advance(SECOND);
        for by in [Settlement::Received, Settlement::Completed] {
            net.input(1, Input::Settle { link: Link(SUB), tag: before[1].tag, by });
        }
        net.advance(SECOND);
        if restarts {
            net.kill(1);
            net.revive(1);
            back(&mut net, 1);
        }
        net.nodes[0].is_stuck = false;
        if restarts || !is_there {
            net.join(0, 1);
        }
        net.advance(SECOND * 5);
        let got = events(&mut net);
        let got: Vec<(&str, u16)> = got.iter().map(|got| (&*got.payload, got.tag)).collect();
        assert_eq!(got, [("a", before[0].tag)], "{is_there}, {restarts}");
    }
}

#[test]
fn what_is_owed_is_held_although_something_else_is_wanted_before_it_is_reported() {
    let mut net = Net::line(2);
    net.attach(0, PUB, "publisher", CLEAN);
    net.attach(1, SUB, "subscriber", WIDE);
    net.attach(1, 3, "another", WIDE);
    net.subscribe(1, SUB, plain("t/a", Qos::AtLeastOnce));
    net.detach(1, SUB);
    publish(&mut net, &["a", "b"]);
    // That covers the other one.
    net.subscribe(1, 3, plain("t/#", Qos::AtLeastOnce));
    net.kill(1);
    net.advance(SECOND * 5);
    assert_eq!(net.nodes[0].disk.events(), 2);
    net.kill(0);
    net.revive(0);
    net.advance(SECOND * 5);
    assert_eq!(net.nodes[0].disk.events(), 2, "also after a restart");
    net.revive(1);
    net.join(0, 1);
    net.advance(SECOND);
    back(&mut net, 1);
    net.advance(SECOND * 3);
    assert_eq!(net.payloads(1, SUB), ["a", "b"]);
    net.advance(SECOND * 3);
    assert_eq!(net.nodes[0].disk.events(), 0);
}

#[test]
fn what_was_wanted_for_a_moment_is_not_held_for_ever() {
    let mut net = Net::line(2);
    net.attach(0, PUB, "publisher", CLEAN);
    net.attach(1, SUB, "subscriber", WIDE);
    net.subscribe(1, SUB, plain("t/#", Qos::AtLeastOnce));
    net.input(1, Input::Unsubscribe { link: Link(SUB), tag: 2, filters: &["t/#"] });
    net.advance(SECOND * 3);
    // Another client's subscription continues.
    net.attach(0, 5, "at home", WIDE);
    net.subscribe(0, 5, plain("t/#", Qos::AtLeastOnce));
    publish(&mut net, &["a", "b"]);
    net.advance(SECOND);
    assert_eq!(net.payloads(0, 5), ["a", "b"]);
    net.advance(SECOND * 3);
    assert_eq!(net.nodes[0].disk.events(), 0);
}

/// Whether a SUBSCRIBE is answered while the disk of another broker is slow, and the payloads
/// received of events published once both have died after that.
fn subscribed_while_stuck(mut net: Net) -> (bool, Vec<String>) {
    net.attach(0, PUB, "publisher", CLEAN);
    net.attach(1, SUB, "subscriber", WIDE);
    net.nodes[0].is_stuck = true;
    net.input(1, Input::Subscribe { link: Link(SUB), tag: 1, filters: &[plain("t/#", Qos::AtLeastOnce)] });
    net.advance(Duration::from_millis(500));
    let is_answered = net.told(1, SUB).iter().any(|told| matches!(told, Told::Subscribed(_)));
    [1, 0].into_iter().for_each(|node| net.kill(node));
    net.revive(0);
    net.attach(0, PUB, "publisher", CLEAN);
    publish(&mut net, &["a"]);
    net.advance(SECOND * 5);
    net.revive(1);
    net.join(0, 1);
    net.advance(SECOND);
    back(&mut net, 1);
    net.advance(SECOND * 5);
    (is_answered, net.payloads(1, SUB))
}

#[test]
fn a_subscription_is_answered_when_what_is_owed_to_it_is_durable() {
    let (is_answered, got) = subscribed_while_stuck(Net::line(2));
    assert_eq!((is_answered, got), (false, Vec::new()), "it was promised nothing");
}

#[cfg(feature = "mutants")]
#[test]
fn answered_before_that_it_would_lose_what_it_was_promised() {
    let mut net = Net::line(2);
    net.nodes[0].core.build_in(whimbrel_core::Mutant::OwedToldEarly);
    let (is_answered, got) = subscribed_while_stuck(net);
    assert_eq!((is_answered, got), (true, Vec::new()));
}
