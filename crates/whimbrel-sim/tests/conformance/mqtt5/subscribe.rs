//! SUBSCRIBE and SUBACK (3.8, 3.9).

use whimbrel_mqtt::Config;

use crate::wire::{Connect, Packet, Publish, Subscribe, Unsubscribe, option, puback};
use crate::world::{World, quiet};

fn codes(packet: Packet, expected: u16) -> Vec<u8> {
    match packet {
        Packet::Suback { id, codes, .. } if id == expected => codes,
        other => panic!("SUBACK {expected} expected, got {other:?}"),
    }
}

// covers: MQTT-3.8.4-1, MQTT-3.8.4-2, MQTT-2.2.1-6
#[test]
fn subscribe_is_answered_with_its_identifier() {
    let mut world = World::new();
    let conn = world.client("a");
    for id in [1, 2, 0x1234, 65_535, 1] {
        assert_eq!(codes(world.ask(conn, Subscribe::new(id, &[("t", 0)])), id), [0]);
    }
}

// covers: MQTT-3.8.4-5, MQTT-3.8.4-6, MQTT-3.8.4-7, MQTT-3.9.3-1, MQTT-3.9.3-2
#[test]
fn each_filter_has_its_reason_code_in_order() {
    let core = whimbrel_core::Limits { subscriptions_per_session: 3, ..whimbrel_core::Limits::default() };
    let mut world = World::with(Config { core, ..quiet() });
    let conn = world.client("a");
    let filters = [("a", 2), ("b/+", 0), ("c/#", 1), ("d", 1), ("a", 1)];
    let codes = codes(world.ask(conn, Subscribe::new(7, &filters)), 7);
    assert_eq!(codes.len(), 5);
    assert_eq!(codes[..3], [2, 0, 1]);
    assert!([0x80, 0x83, 0x87, 0x97].contains(&codes[3]), "one too many: {:#x}", codes[3]);
    assert_eq!(codes[4], 1, "replacing needs no room");
    let publisher = world.client("publisher");
    for topic in ["a", "b/x", "c/x/y", "d"] {
        world.send(publisher, Publish::new(topic, topic).qos(2, 1));
        world.send(publisher, crate::wire::pubrel(1));
    }
    let seen: Vec<_> = world.messages(conn).iter().map(|m| (m.topic.clone(), m.qos)).collect();
    assert_eq!(seen, [("a".into(), 1), ("b/x".into(), 0), ("c/x/y".into(), 1)] as [(String, u8); 3]);
}

// covers: MQTT-3.8.4-5
#[test]
fn filters_of_one_subscribe_count_one_after_the_other() {
    let mut world = World::new();
    let conn = world.client("a");
    assert_eq!(codes(world.ask(conn, Subscribe::new(1, &[("t", 0), ("u", 0), ("t", 2)])), 1), [0, 0, 2]);
    let publisher = world.client("publisher");
    world.send(publisher, Publish::new("t", "x").qos(2, 1));
    assert_eq!(world.message(conn).qos, 2, "the later one replaced the earlier");
}

// covers: MQTT-3.8.4-8
#[test]
fn messages_arrive_with_the_lower_of_both_qos() {
    let mut world = World::new();
    let publisher = world.client("publisher");
    for granted in 0..=2 {
        let conn = world.client("subscriber");
        world.subscribe(conn, "t", granted);
        for published in 0..=2 {
            world.send(publisher, Publish::new("t", "x").qos(published, 1));
            assert_eq!(world.message(conn).qos, published.min(granted));
            world.send(publisher, crate::wire::pubrel(1));
        }
    }
}

// covers: MQTT-3.8.4-3
#[test]
fn the_same_filter_again_replaces_the_subscription() {
    let mut world = World::new();
    let conn = world.client("a");
    let publisher = world.client("publisher");
    for options in [0, 2, 1, option::RETAIN_AS_PUBLISHED | 1, option::NO_LOCAL] {
        world.subscribe(conn, "t/+", options);
        world.send(publisher, Publish::new("t/u", "").qos(2, 1).retain());
        let message = world.message(conn);
        assert_eq!(message.qos, options & 3);
        assert_eq!(message.retain, options & option::RETAIN_AS_PUBLISHED != 0);
        world.send(publisher, crate::wire::pubrel(1));
    }
}

// covers: MQTT-3.8.4-4
#[test]
fn replacing_a_subscription_loses_no_message() {
    let mut world = World::new();
    let conn = world.connect(&Connect::v5("subscriber").receive_maximum(1));
    world.subscribe(conn, "t", 1);
    let publisher = world.client("publisher");
    for number in 1..=5 {
        world.send(publisher, Publish::new("t", number.to_string()).qos(1, number));
    }
    let mut received: Vec<_> = world.messages(conn);
    world.subscribe(conn, "t", 1);
    for number in 6..=8 {
        world.send(publisher, Publish::new("t", number.to_string()).qos(1, number));
    }
    let mut next = 0;
    while next < received.len() {
        world.send(conn, puback(received[next].id));
        received.extend(world.messages(conn));
        next += 1;
    }
    let seen: Vec<_> = received.iter().map(|message| message.text()).collect();
    assert_eq!(seen, ["1", "2", "3", "4", "5", "6", "7", "8"]);
}

// covers: MQTT-3.8.4-4
#[test]
fn replacing_a_subscription_sends_retained_messages_again() {
    let mut world = World::new();
    let publisher = world.client("publisher");
    world.send(publisher, Publish::new("t", "kept").retain());
    let conn = world.client("subscriber");
    for _ in 0..3 {
        world.subscribe(conn, "t", 0);
        assert_eq!(world.payloads(conn), ["kept"]);
    }
}

// covers: MQTT-4.7.1-1, MQTT-4.7.1-2, MQTT-4.7.3-1, MQTT-3.8.4-7, MQTT-3.9.3-2
#[test]
fn impossible_filters_are_refused() {
    let mut world = World::new();
    for filter in ["", "a/#/b", "#/a", "a#", "a/b#", "##", "a+", "+a", "a/+b/c", "++", "a/b+/#"] {
        let conn = world.connect(&Connect::v5("a").expiry(100).resume());
        world.subscribe(conn, "known", 0);
        world.send(conn, Subscribe::new(1, &[("good", 0), (filter, 0)]));
        world.assert_disconnected(conn, 0x82);
        let conn = world.connect(&Connect::v5("a").expiry(100).resume());
        world.send(conn, Unsubscribe { id: 2, filters: &["known", filter] });
        world.assert_disconnected(conn, 0x82);
        let conn = world.connect(&Connect::v5("a").expiry(100).resume());
        let answer = world.ask(conn, Unsubscribe { id: 3, filters: &["known", "good"] });
        assert!(matches!(&answer, Packet::Unsuback { codes, .. } if codes == &[0, 0x11]), "{filter:?}: {answer:?}");
    }
}

// covers: MQTT-3.8.3-3
#[test]
fn no_local_looks_at_the_client_id() {
    let mut world = World::new();
    let conn = world.client("a");
    world.subscribe(conn, "t", option::NO_LOCAL | 1);
    world.subscribe(conn, "u", 1);
    world.ask(conn, Publish::new("t", "own").qos(1, 1));
    assert_eq!(world.packets(conn), []);
    world.send(conn, Publish::new("u", "own"));
    assert_eq!(world.payloads(conn), ["own"]);
    let other = world.client("b");
    world.send(other, Publish::new("t", "other"));
    assert_eq!(world.payloads(conn), ["other"]);
}

// covers: MQTT-3.8.3-3
#[test]
fn no_local_holds_for_a_will_too() {
    let mut world = World::new();
    let will = crate::wire::Will::new("t", "gone").delay(5);
    let connect = Connect::v5("a").expiry(100).will(will).resume();
    let conn = world.connect(&connect);
    world.subscribe(conn, "t", option::NO_LOCAL | 1);
    world.fail(conn);
    world.advance(crate::world::seconds(10));
    let conn = world.connect(&Connect::v5("a").expiry(100).resume());
    assert_eq!(world.messages(conn), []);
}

// covers: MQTT-3.8.4-6
#[test]
fn more_filters_in_one_packet_than_a_session_may_have_are_refused_and_others_served() {
    let mut world = World::new();
    let conn = world.client("a");
    let filters = vec![("t", 0); 10_000];
    assert_eq!(codes(world.ask(conn, Subscribe::new(1, &filters)), 1), [0; 10_000]);
    let filters = vec![("u", 0); 10_001];
    assert_eq!(codes(world.ask(conn, Subscribe::new(2, &filters)), 2), [0x97; 10_001]);
    world.assert_undisturbed(conn);
    assert_eq!(world.stats().core.subscriptions, 1);
    world.send(conn, Unsubscribe { id: 3, filters: &vec!["t"; 10_001] });
    world.assert_disconnected(conn, 0x97);
}
