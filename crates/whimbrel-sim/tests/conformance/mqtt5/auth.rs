//! Enhanced authentication (3.15, 4.12): no method is served, and everything that a client may try
//! is refused properly.

use crate::wire::{Connect, Packet, Props, packet, property};
use crate::world::World;

fn auth(first: u8, code: u8, props: &Props) -> Vec<u8> {
    packet(first, &[vec![code], props.bytes()].concat())
}

fn method() -> Props {
    Props::new().data(property::AUTH_METHOD, "SCRAM-SHA-256")
}

// covers: MQTT-4.12.0-1, MQTT-4.12.0-2, MQTT-4.12.0-4, MQTT-4.12.0-5, MQTT-3.15.2-1, MQTT-3.15.2-2
// covers: MQTT-3.15.2-3
#[test]
fn an_authentication_method_is_refused_without_an_exchange() {
    let mut world = World::new();
    for props in [method(), method().data(property::AUTH_DATA, "n,,n=user,r=nonce")] {
        let conn = world.start(&Connect::v5("a").props(props));
        let packets = world.packets(conn);
        let refused = matches!(packets.as_slice(), [Packet::Connack { code: 0x8C | 0x87, present: false, .. }]);
        assert!(refused, "CONNACK 0x8C expected, got {packets:?}");
        assert!(world.is_closed(conn));
    }
}

// covers: MQTT-3.1.2-30, MQTT-4.12.0-3, MQTT-3.1.4-6
#[test]
fn packets_behind_a_refused_method_are_not_answered() {
    let mut world = World::new();
    let conn = world.open();
    world.send(
        conn,
        [Connect::v5("a").props(method()).bytes(), auth(0xF0, 0x18, &method()), packet(0xC0, &[])].concat(),
    );
    let packets = world.packets(conn);
    assert!(matches!(packets.as_slice(), [Packet::Connack { code: 0x8C | 0x87, .. }]), "{packets:?}");
}

// covers: MQTT-4.12.0-6
#[test]
fn without_a_method_there_is_no_word_of_authentication() {
    let mut world = World::new();
    let named = Connect { user_name: Some(b"user".to_vec()), password: Some(b"secret".to_vec()), ..Connect::v5("a") };
    for connect in [Connect::v5("a"), named] {
        let (conn, answer) = world.try_connect(&connect);
        let Packet::Connack { props, .. } = answer else { panic!("CONNACK expected, got {answer:?}") };
        assert!(!props.has(property::AUTH_METHOD) && !props.has(property::AUTH_DATA));
        assert_eq!(world.packets(conn), []);
    }
}

// covers: MQTT-4.12.0-7, MQTT-4.12.1-1, MQTT-4.12.1-2, MQTT-4.13.1-1
#[test]
fn auth_from_a_client_without_a_method_is_a_protocol_error() {
    let mut world = World::new();
    for code in [0x00, 0x18, 0x19] {
        let conn = world.client("a");
        world.send(conn, auth(0xF0, code, &method()));
        world.assert_disconnected(conn, 0x82);
    }
}

// covers: MQTT-3.15.1-1, MQTT-2.1.3-1
#[test]
fn reserved_bits_of_auth_are_malformed() {
    let mut world = World::new();
    for first in [0xF1, 0xF2, 0xF4, 0xF8] {
        let conn = world.client("a");
        world.send(conn, auth(first, 0x19, &method()));
        world.assert_disconnected(conn, 0x81);
    }
}
