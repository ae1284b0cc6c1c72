//! DISCONNECT (3.14), PINGREQ (3.12), and how the server ends a connection (4.13).

use crate::wire::{Connect, PINGREQ, Packet, Props, Publish, Will, disconnect, packet, property};
use crate::world::{World, seconds};

// covers: MQTT-3.12.4-1
#[test]
fn pingreq_is_answered() {
    let mut world = World::new();
    let conn = world.client("a");
    assert_eq!(world.ask(conn, PINGREQ), Packet::Pingresp);
    world.send(conn, [PINGREQ, PINGREQ].concat());
    assert_eq!(world.packets(conn), [Packet::Pingresp, Packet::Pingresp]);
}

// covers: MQTT-3.14.4-1, MQTT-3.14.4-2
#[test]
fn disconnect_closes_the_connection_and_nothing_after_it_is_read() {
    let mut world = World::new();
    let listener = world.client("listener");
    world.subscribe(listener, "t", 0);
    let conn = world.client("a");
    world.send(conn, [packet(0xE0, &[]), packet(0x30, b"\x00\x01t\x00x")].concat());
    assert!(world.is_closed(conn));
    assert_eq!(world.packets(conn), []);
    assert_eq!(world.packets(listener), []);
}

// covers: MQTT-3.14.4-3, MQTT-3.1.2-10
#[test]
fn a_normal_disconnect_discards_the_will() {
    for goodbye in [packet(0xE0, &[]), packet(0xE0, &[0]), disconnect(0, &Props::new())] {
        let mut world = World::new();
        let listener = world.client("listener");
        world.subscribe(listener, "wills/#", 0);
        let conn = world.connect(&Connect::v5("a").expiry(10).will(Will::new("wills/a", "gone")));
        world.send(conn, goodbye);
        assert!(world.is_closed(conn));
        world.advance(seconds(100));
        assert_eq!(world.messages(listener), []);
    }
}

// covers: MQTT-3.1.2-8
#[test]
fn any_other_disconnect_publishes_the_will() {
    for code in [0x04, 0x80, 0x81, 0x82, 0x83, 0x90, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99] {
        let mut world = World::new();
        let listener = world.client("listener");
        world.subscribe(listener, "wills/#", 0);
        let conn = world.connect(&Connect::v5("a").will(Will::new("wills/a", "gone")));
        world.send(conn, disconnect(code, &Props::new()));
        assert!(world.is_closed(conn), "{code:#x}");
        assert_eq!(world.payloads(listener), ["gone"], "{code:#x}");
        assert_eq!(world.packets(conn), []);
    }
}

// covers: MQTT-3.14.2-1, MQTT-4.13.1-1
#[test]
fn unknown_reason_codes_in_disconnect_are_malformed() {
    let mut world = World::new();
    for code in [0x01, 0x03, 0x10, 0x7F, 0x84, 0x91, 0xFF] {
        let conn = world.client("a");
        world.send(conn, disconnect(code, &Props::new()));
        assert!(world.is_closed(conn));
        let packets = world.packets(conn);
        assert!(matches!(packets.as_slice(), [Packet::Disconnect { code: 0x81 | 0x82, .. }]), "{code:#x}: {packets:?}");
    }
}

// covers: MQTT-3.14.1-1, MQTT-2.1.3-1
#[test]
fn reserved_bits_of_disconnect_are_malformed() {
    let mut world = World::new();
    let listener = world.client("listener");
    world.subscribe(listener, "wills/#", 0);
    for first in [0xE1, 0xE2, 0xE4, 0xE8] {
        let conn = world.connect(&Connect::v5("a").will(Will::new("wills/a", "gone")));
        world.send(conn, packet(first, &[]));
        world.assert_disconnected(conn, 0x81);
        assert_eq!(world.payloads(listener), ["gone"], "that was no normal disconnect");
    }
}

// covers: MQTT-4.1.0-2, MQTT-3.1.2-23
#[test]
fn disconnect_may_change_the_session_expiry() {
    let mut world = World::new();
    let connect = Connect::v5("a").expiry(10).resume();
    let conn = world.connect(&connect);
    world.send(conn, disconnect(0, &Props::new().u32(property::SESSION_EXPIRY, 1000)));
    assert!(world.is_closed(conn));
    world.advance(seconds(900));
    let (conn, present) = world.reconnect(&connect);
    assert!(present, "longer");
    world.send(conn, disconnect(0, &Props::new().u32(property::SESSION_EXPIRY, 0)));
    assert!(!world.reconnect(&connect).1, "at once");
}

// covers: MQTT-4.13.1-1
#[test]
fn disconnect_cannot_give_a_session_an_expiry_that_it_was_not_to_have() {
    let mut world = World::new();
    let conn = world.client("a");
    world.send(conn, disconnect(0, &Props::new().u32(property::SESSION_EXPIRY, 5)));
    world.assert_disconnected(conn, 0x82);
    assert!(!world.reconnect(&Connect::v5("a").resume()).1);
}

// covers: MQTT-3.14.2-1, MQTT-3.14.2-2, MQTT-3.14.2-3, MQTT-3.14.2-4, MQTT-3.1.2-24
#[test]
fn a_disconnect_by_the_server_keeps_its_form() {
    let mut world = World::new();
    // Every packet is compared with the client's maximum when it is received.
    for connect in [Connect::v5("a").expiry(10), Connect::v5("a").expiry(10).maximum_packet_size(20)] {
        let conn = world.connect(&connect);
        world.send(conn, Publish::new("a/+", "x"));
        match world.packets(conn).as_slice() {
            [Packet::Disconnect { code, props }] => {
                assert!([0x81, 0x82, 0x90].contains(code), "{code:#x}");
                assert!(!props.has(property::SESSION_EXPIRY));
            }
            other => panic!("DISCONNECT expected, got {other:?}"),
        }
        assert!(world.is_closed(conn));
    }
}

// covers: MQTT-4.13.2-1
#[test]
fn an_error_of_one_client_is_none_of_another() {
    let mut world = World::new();
    let bystander = world.client("bystander");
    world.subscribe(bystander, "t", 1);
    let conn = world.client("a");
    world.send(conn, packet(0x30, &[]));
    world.assert_disconnected(conn, 0x81);
    let publisher = world.client("b");
    world.send(publisher, Publish::new("t", "x"));
    assert_eq!(world.payloads(bystander), ["x"]);
}

// covers: MQTT-3.14.0-1, MQTT-3.14.2-1, MQTT-3.14.4-2, MQTT-3.2.2-7
#[test]
fn a_server_that_shuts_down_takes_leave_of_its_clients_and_refuses_others() {
    let mut world = World::new();
    let conn = world.client("a");
    let older = world.connect(&Connect::v311("b"));
    let silent = world.open();
    world.drain();
    world.assert_disconnected(conn, 0x8B);
    for conn in [older, silent] {
        assert_eq!(world.packets(conn), [], "no DISCONNECT in 3.1.1, and none before CONNACK");
        assert!(world.is_closed(conn));
    }
    let late = world.start(&Connect::v5("c"));
    let packets = world.packets(late);
    assert!(matches!(packets.as_slice(), [Packet::Connack { code: 0x88 | 0x89, present: false, .. }]), "{packets:?}");
    assert!(world.is_closed(late));
}
