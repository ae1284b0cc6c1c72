//! Flow control against clients (3.3.4, 4.9): what they may have in flight towards the server.

use whimbrel_mqtt::{Config, Limits};

use crate::wire::{Ack, Connect, Packet, Publish, ack, pubrel};
use crate::world::{World, quiet};

fn world_with_receive_maximum(receive_maximum: u16) -> World {
    let limits = Limits { receive_maximum, ..Limits::default() };
    World::with(Config { limits, ..quiet() })
}

// covers: MQTT-3.3.4-7, MQTT-4.13.1-1
#[test]
fn more_than_the_receive_maximum_in_flight_is_refused() {
    let mut world = world_with_receive_maximum(3);
    let conn = world.client("a");
    for id in 1..=3 {
        assert!(matches!(world.ask(conn, Publish::new("t", "x").qos(2, id)), Packet::Ack { kind: Ack::Pubrec, .. }));
    }
    world.send(conn, Publish::new("t", "x").qos(2, 4));
    world.assert_disconnected(conn, 0x93);
}

// covers: MQTT-3.3.4-7, MQTT-3.3.4-8, MQTT-4.9.0-3
#[test]
fn completing_makes_room_and_other_packets_need_none() {
    let mut world = world_with_receive_maximum(2);
    let conn = world.client("a");
    for id in 1..=2 {
        world.ask(conn, Publish::new("t", "x").qos(2, id));
    }
    world.assert_undisturbed(conn);
    world.send(conn, Publish::new("t", "x"));
    assert_eq!(world.ask(conn, pubrel(1)), ack(Ack::Pubcomp, 1));
    assert!(matches!(world.ask(conn, Publish::new("t", "x").qos(2, 3)), Packet::Ack { kind: Ack::Pubrec, id: 3, .. }));
    assert!(matches!(world.ask(conn, Publish::new("t", "x").qos(2, 3).dup()), Packet::Ack { id: 3, .. }), "a repeat");
}

// covers: MQTT-3.3.4-7
#[test]
fn qos_1_is_answered_at_once_and_takes_no_room() {
    let mut world = world_with_receive_maximum(2);
    let conn = world.client("a");
    let burst: Vec<u8> = (1..=100)
        .flat_map(|id| crate::wire::Encode::encode(&Publish::new("t", "x").qos(1, id), crate::wire::V5))
        .collect();
    world.send(conn, burst);
    assert_eq!(world.packets(conn).len(), 100);
    world.assert_undisturbed(conn);
}

// covers: MQTT-3.3.4-7
#[test]
fn the_receive_maximum_counts_anew_on_each_connection() {
    let mut world = world_with_receive_maximum(2);
    let connect = Connect::v5("a").expiry(100).resume();
    let conn = world.connect(&connect);
    for id in 1..=2 {
        world.ask(conn, Publish::new("t", "x").qos(2, id));
    }
    world.fail(conn);
    let conn = world.connect(&connect);
    for id in 3..=4 {
        assert!(matches!(world.ask(conn, Publish::new("t", "x").qos(2, id)), Packet::Ack { kind: Ack::Pubrec, .. }));
    }
    assert_eq!(world.ask(conn, pubrel(1)), ack(Ack::Pubcomp, 1));
}
