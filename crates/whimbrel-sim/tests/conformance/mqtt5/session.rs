//! Sessions (3.1.2.4, 4.1, 4.4, 4.5).

use crate::wire::{Connect, Packet, Props, Publish, disconnect, property, pubrel};
use crate::world::{World, seconds};

fn lasting(client_id: &str) -> Connect {
    Connect::v5(client_id).expiry(100).resume()
}

// covers: MQTT-3.1.2-23, MQTT-4.5.0-1, MQTT-3.1.2-5
#[test]
fn a_session_keeps_subscriptions_and_what_arrives_meanwhile() {
    let mut world = World::new();
    let subscriber = world.connect(&lasting("subscriber"));
    world.subscribe(subscriber, "t", 2);
    world.fail(subscriber);
    let publisher = world.client("publisher");
    for (number, payload) in [(1, "1"), (2, "2"), (3, "3")] {
        world.send(publisher, Publish::new("t", payload).qos(1 + (number % 2) as u8, number));
    }
    let conn = world.connect(&lasting("subscriber"));
    let messages = world.messages(conn);
    let seen: Vec<_> = messages.iter().map(|m| (m.text(), m.qos, m.dup)).collect();
    assert_eq!(seen, [("1", 2, false), ("2", 1, false), ("3", 2, false)]);
    world.send(publisher, Publish::new("t", "4").qos(1, 4));
    assert_eq!(world.payloads(conn), ["4"], "the subscription is in force");
}

// covers: MQTT-3.1.2-4, MQTT-3.1.4-4
#[test]
fn clean_start_forgets_subscriptions_and_messages() {
    let mut world = World::new();
    let subscriber = world.connect(&lasting("subscriber"));
    world.subscribe(subscriber, "t", 1);
    let publisher = world.client("publisher");
    world.send(publisher, Publish::new("t", "in flight").qos(1, 1));
    world.fail(subscriber);
    world.send(publisher, Publish::new("t", "waiting").qos(1, 2));
    let conn = world.connect(&Connect::v5("subscriber").expiry(100));
    world.send(publisher, Publish::new("t", "later").qos(1, 3));
    assert_eq!(world.packets(conn), []);
    world.fail(conn);
    let conn = world.connect(&lasting("subscriber"));
    assert_eq!(world.packets(conn), [], "the old session does not come back");
}

// covers: MQTT-3.1.2-4, MQTT-4.3.3-10
#[test]
fn clean_start_forgets_unreleased_publishes() {
    let mut world = World::new();
    let subscriber = world.client("subscriber");
    world.subscribe(subscriber, "t", 0);
    let publisher = world.connect(&lasting("publisher"));
    world.ask(publisher, Publish::new("t", "1").qos(2, 5));
    world.fail(publisher);
    let publisher = world.connect(&Connect::v5("publisher"));
    world.ask(publisher, Publish::new("t", "2").qos(2, 5));
    assert_eq!(world.payloads(subscriber), ["1", "2"]);
    world.ask(publisher, pubrel(5));
}

// covers: MQTT-4.1.0-2, MQTT-3.1.2-23
#[test]
fn a_session_ends_when_its_expiry_has_passed() {
    let mut world = World::new();
    let conn = world.connect(&lasting("a"));
    world.subscribe(conn, "t", 1);
    world.fail(conn);
    world.advance(seconds(99));
    let (conn, present) = world.reconnect(&lasting("a"));
    assert!(present, "the time counts from the end of the connection");
    world.fail(conn);
    world.advance(seconds(101));
    let publisher = world.client("publisher");
    world.send(publisher, Publish::new("t", "x").qos(1, 1));
    let (conn, present) = world.reconnect(&lasting("a"));
    assert!(!present);
    assert_eq!(world.packets(conn), []);
}

// covers: MQTT-4.1.0-2
#[test]
fn a_session_without_expiry_ends_with_its_connection() {
    let mut world = World::new();
    for connect in [Connect::v5("a"), Connect::v5("a").expiry(0)] {
        let conn = world.connect(&connect);
        world.subscribe(conn, "t", 1);
        world.fail(conn);
        let (conn, present) = world.reconnect(&Connect::v5("a").resume());
        assert!(!present);
        world.leave(conn);
    }
}

// covers: MQTT-4.1.0-1
#[test]
fn a_session_is_kept_while_its_connection_is_open() {
    let mut world = World::new();
    let subscriber = world.connect(&Connect::v5("subscriber").expiry(1).receive_maximum(1));
    world.subscribe(subscriber, "t", 1);
    let publisher = world.client("publisher");
    world.send(publisher, Publish::new("t", "1").qos(1, 1));
    world.send(publisher, Publish::new("t", "2").qos(1, 2));
    world.advance(seconds(1_000_000));
    let first = world.message(subscriber);
    world.send(subscriber, crate::wire::puback(first.id));
    assert_eq!(world.payloads(subscriber), ["2"]);
    let brief = world.client("brief");
    world.subscribe(brief, "t", 0);
    world.advance(seconds(1_000_000));
    world.send(publisher, Publish::new("t", "3"));
    assert_eq!(world.payloads(brief), ["3"]);
}

// covers: MQTT-4.1.0-2, MQTT-3.1.2-23
#[test]
fn an_expiry_of_all_ones_is_long() {
    let mut world = World::new();
    let connect = Connect::v5("a").expiry(u32::MAX).resume();
    let conn = world.connect(&connect);
    world.fail(conn);
    world.advance(seconds(6 * 24 * 3600));
    assert!(world.reconnect(&connect).1);
}

// covers: MQTT-3.1.4-3, MQTT-3.1.2-5, MQTT-4.4.0-1
#[test]
fn a_takeover_continues_the_session() {
    let mut world = World::new();
    let first = world.connect(&lasting("subscriber"));
    world.subscribe(first, "t", 1);
    let publisher = world.client("publisher");
    world.send(publisher, Publish::new("t", "x").qos(1, 1));
    let id = world.message(first).id;
    let (second, present) = world.reconnect(&lasting("subscriber"));
    world.assert_disconnected(first, 0x8E);
    assert!(present);
    let again = world.message(second);
    assert_eq!((again.id, again.dup, again.text()), (id, true, "x"));
}

// covers: MQTT-4.4.0-1
#[test]
fn a_session_that_left_in_peace_is_resumed_as_well() {
    let mut world = World::new();
    let subscriber = world.connect(&lasting("subscriber"));
    world.subscribe(subscriber, "t", 1);
    let publisher = world.client("publisher");
    world.send(publisher, Publish::new("t", "x").qos(1, 1));
    let id = world.message(subscriber).id;
    world.send(subscriber, disconnect(0, &Props::new()));
    let conn = world.connect(&lasting("subscriber"));
    assert_eq!(world.message(conn).id, id);
}

// covers: MQTT-4.5.0-1
#[test]
fn qos_0_messages_for_an_absent_client_are_not_kept() {
    let mut world = World::new();
    let subscriber = world.connect(&lasting("subscriber"));
    world.subscribe(subscriber, "t", 1);
    world.fail(subscriber);
    let publisher = world.client("publisher");
    world.send(publisher, Publish::new("t", "best effort"));
    world.send(publisher, Publish::new("t", "reliable").qos(1, 1));
    let conn = world.connect(&lasting("subscriber"));
    assert_eq!(world.payloads(conn), ["reliable"]);
}

// covers: MQTT-4.5.0-1
#[test]
fn a_message_goes_to_every_matching_session() {
    let mut world = World::new();
    let filters = ["a/b/c", "a/b/+", "a/+/c", "+/+/+", "#", "a/#", "a/b/c/#", "a/b", "b/#", "+"];
    let conns = filters.map(|filter| {
        let conn = world.client(filter);
        world.subscribe(conn, filter, 1);
        conn
    });
    let publisher = world.client("publisher");
    let answer = world.ask(publisher, Publish::new("a/b/c", "x").qos(1, 1));
    assert!(matches!(answer, Packet::Ack { code: 0, .. }));
    for (index, conn) in conns.into_iter().enumerate() {
        assert_eq!(world.messages(conn).len(), (index < 7) as usize, "{}", filters[index]);
    }
}

// covers: MQTT-3.1.2-23
#[test]
fn the_expiry_of_the_newest_connect_counts() {
    let mut world = World::new();
    let conn = world.connect(&lasting("a"));
    world.fail(conn);
    let (conn, present) =
        world.reconnect(&Connect::v5("a").resume().props(Props::new().u32(property::SESSION_EXPIRY, 5)));
    assert!(present);
    world.fail(conn);
    world.advance(seconds(6));
    assert!(!world.reconnect(&lasting("a")).1);
}

// covers: MQTT-3.1.4-3, MQTT-4.3.3-10, MQTT-4.1.0-1
#[test]
fn a_takeover_keeps_unreleased_publishes() {
    let mut world = World::new();
    let subscriber = world.client("subscriber");
    world.subscribe(subscriber, "t", 0);
    let first = world.connect(&lasting("publisher"));
    world.ask(first, Publish::new("t", "x").qos(2, 5));
    let second = world.connect(&lasting("publisher"));
    world.assert_disconnected(first, 0x8E);
    world.ask(second, Publish::new("t", "x").qos(2, 5).dup());
    assert_eq!(world.payloads(subscriber), ["x"]);
    world.ask(second, pubrel(5));
    world.ask(second, Publish::new("t", "y").qos(2, 5));
    assert_eq!(world.payloads(subscriber), ["y"]);
}

// covers: MQTT-3.1.2-22, MQTT-3.1.2-23
#[test]
fn a_session_survives_the_silence_of_its_client() {
    let mut world = World::new();
    let connect = lasting("a").keep_alive(10);
    let conn = world.connect(&connect);
    world.subscribe(conn, "t", 1);
    world.advance(seconds(16));
    assert!(world.is_closed(conn));
    let publisher = world.client("publisher");
    world.send(publisher, Publish::new("t", "x").qos(1, 1));
    let (conn, present) = world.reconnect(&connect);
    assert!(present);
    assert_eq!(world.payloads(conn), ["x"]);
}
