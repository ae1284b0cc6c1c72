//! UNSUBSCRIBE and UNSUBACK (3.10, 3.11).

use crate::wire::{Ack, Connect, Packet, Publish, Unsubscribe, ack, puback, pubcomp, pubrec};
use crate::world::World;

const NO_SUBSCRIPTION_EXISTED: u8 = 0x11;

fn codes(packet: Packet, expected: u16) -> Vec<u8> {
    match packet {
        Packet::Unsuback { id, codes, .. } if id == expected => codes,
        other => panic!("UNSUBACK {expected} expected, got {other:?}"),
    }
}

// covers: MQTT-3.10.4-4, MQTT-3.10.4-5, MQTT-2.2.1-6, MQTT-3.11.3-2
#[test]
fn unsubscribe_is_answered_with_its_identifier_whatever_it_deletes() {
    let mut world = World::new();
    let conn = world.client("a");
    world.subscribe(conn, "t", 0);
    for (id, filter, code) in
        [(7, "u", NO_SUBSCRIPTION_EXISTED), (0x1234, "t", 0), (65_535, "t", NO_SUBSCRIPTION_EXISTED)]
    {
        assert_eq!(codes(world.ask(conn, Unsubscribe { id, filters: &[filter] }), id), [code]);
    }
}

// covers: MQTT-3.10.4-1
#[test]
fn filters_are_compared_character_by_character() {
    let mut world = World::new();
    let conn = world.client("a");
    world.subscribe(conn, "a/+", 0);
    let others = ["a/b", "+/+", "a/#", "#", "A/+", "a/+/", "a"];
    let answer = world.ask(conn, Unsubscribe { id: 1, filters: &others });
    assert_eq!(codes(answer, 1), [NO_SUBSCRIPTION_EXISTED; 7]);
    let publisher = world.client("publisher");
    world.send(publisher, Publish::new("a/b", "1"));
    assert_eq!(world.payloads(conn), ["1"]);
    assert_eq!(codes(world.ask(conn, Unsubscribe { id: 2, filters: &["a/+"] }), 2), [0]);
    world.send(publisher, Publish::new("a/b", "2"));
    assert_eq!(world.messages(conn), []);
}

// covers: MQTT-3.10.4-6, MQTT-3.11.3-1
#[test]
fn several_filters_are_answered_in_order_by_one_unsuback() {
    let mut world = World::new();
    let conn = world.client("a");
    for filter in ["a", "b", "c"] {
        world.subscribe(conn, filter, 0);
    }
    let answer = world.ask(conn, Unsubscribe { id: 9, filters: &["c", "x", "a", "c"] });
    assert_eq!(codes(answer, 9), [0, NO_SUBSCRIPTION_EXISTED, 0, NO_SUBSCRIPTION_EXISTED]);
    let publisher = world.client("publisher");
    for topic in ["a", "b", "c"] {
        world.send(publisher, Publish::new(topic, topic));
    }
    assert_eq!(world.payloads(conn), ["b"]);
}

// covers: MQTT-3.10.4-2
#[test]
fn nothing_is_added_after_unsubscribe() {
    let mut world = World::new();
    let conn = world.connect(&Connect::v5("a").expiry(100));
    world.subscribe(conn, "t", 2);
    assert_eq!(codes(world.ask(conn, Unsubscribe { id: 1, filters: &["t"] }), 1), [0]);
    let publisher = world.client("publisher");
    for qos in 0..=2 {
        world.send(publisher, Publish::new("t", "x").qos(qos, 1));
    }
    assert_eq!(world.packets(conn), []);
    world.fail(conn);
    let conn = world.connect(&Connect::v5("a").expiry(100).resume());
    assert_eq!(world.packets(conn), []);
}

// covers: MQTT-3.10.4-3
#[test]
fn a_delivery_that_has_begun_is_completed() {
    let mut world = World::new();
    let resume = Connect::v5("a").expiry(100).resume();
    let conn = world.connect(&resume);
    world.subscribe(conn, "t", 2);
    let publisher = world.client("publisher");
    world.send(publisher, Publish::new("t", "1").qos(1, 1));
    world.send(publisher, Publish::new("t", "2").qos(2, 2));
    let messages = world.messages(conn);
    assert_eq!(codes(world.ask(conn, Unsubscribe { id: 1, filters: &["t"] }), 1), [0]);
    assert_eq!(world.ask(conn, pubrec(messages[1].id)), ack(Ack::Pubrel, messages[1].id));
    world.fail(conn);
    let conn = world.connect(&resume);
    match world.packets(conn).as_slice() {
        [Packet::Publish(message), Packet::Ack { kind: Ack::Pubrel, id, .. }] => {
            assert_eq!((message.id, message.dup, *id), (messages[0].id, true, messages[1].id));
        }
        other => panic!("PUBLISH and PUBREL again expected, got {other:?}"),
    }
    world.send(conn, puback(messages[0].id));
    world.send(conn, pubcomp(messages[1].id));
    world.fail(conn);
    let conn = world.connect(&resume);
    assert_eq!(world.packets(conn), []);
}
