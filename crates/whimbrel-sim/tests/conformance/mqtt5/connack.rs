//! CONNACK (3.2): session present, and what the server says about itself.

use whimbrel_mqtt::{Config, Limits};

use crate::wire::{Connect, Packet, Properties, Props, Publish, Subscribe, Will, property};
use crate::world::{World, quiet, seconds};

/// The properties of the CONNACK that answers `connect`.
fn told(world: &mut World, connect: &Connect) -> Properties {
    match world.try_connect(connect) {
        (_, Packet::Connack { code: 0, props, .. }) => props,
        (_, other) => panic!("refused with {other:?}"),
    }
}

// covers: MQTT-3.2.0-1, MQTT-3.1.4-5, MQTT-3.2.2-1, MQTT-3.2.2-8, MQTT-2.2.2-1
#[test]
fn connack_is_the_first_packet_and_accepts() {
    let mut world = World::new();
    let (conn, answer) = world.try_connect(&Connect::v5("a"));
    assert!(matches!(answer, Packet::Connack { present: false, code: 0, .. }), "{answer:?}");
    assert_eq!(world.packets(conn), [], "and the only one");
}

// covers: MQTT-3.2.2-2, MQTT-3.2.2-3, MQTT-3.1.2-4, MQTT-3.1.2-5, MQTT-3.1.2-6, MQTT-3.1.4-4
// covers: MQTT-3.1.3-2
#[test]
fn session_present_tells_whether_there_was_a_session() {
    let mut world = World::new();
    let lasting = Connect::v5("a").expiry(1000);
    let (conn, present) = world.reconnect(&lasting.clone().resume());
    assert!(!present, "no session yet");
    world.fail(conn);
    let (conn, present) = world.reconnect(&lasting.clone().resume());
    assert!(present, "the session is resumed");
    world.fail(conn);
    let (_, present) = world.reconnect(&Connect::v5("b").expiry(1000).resume());
    assert!(!present, "another client's session is not it");
    let (conn, present) = world.reconnect(&lasting);
    assert!(!present, "Clean Start discards it");
    world.fail(conn);
    let (_, present) = world.reconnect(&lasting.resume());
    assert!(present, "and begins one that can be resumed");
}

// covers: MQTT-3.2.2-16
#[test]
fn only_an_empty_client_id_gets_an_assigned_one() {
    let mut world = World::new();
    assert!(!told(&mut world, &Connect::v5("a")).has(property::ASSIGNED_CLIENT_ID));
    assert!(told(&mut world, &Connect::v5("")).has(property::ASSIGNED_CLIENT_ID));
}

// covers: MQTT-3.2.2-9, MQTT-3.2.2-10, MQTT-3.2.2-12, MQTT-3.2.2-13
#[test]
fn every_qos_and_retain_are_available_and_connack_restricts_neither() {
    let mut world = World::new();
    let listener = world.client("listener");
    world.subscribe(listener, "wills/#", 2);
    for qos in 0..=2 {
        let topic = format!("wills/{qos}");
        let connect = Connect::v5("a").will(Will::new(&topic, "gone").qos(qos).retain());
        let (conn, answer) = world.try_connect(&connect);
        let Packet::Connack { code: 0, props, .. } = answer else { panic!("QoS {qos} refused: {answer:?}") };
        assert!(!props.has(property::MAXIMUM_QOS), "QoS 2 is the maximum");
        assert_ne!(props.number(property::RETAIN_AVAILABLE), Some(0));
        assert_ne!(props.number(property::WILDCARD_AVAILABLE), Some(0));
        assert_ne!(props.number(property::SHARED_AVAILABLE), Some(0));
        assert_ne!(props.number(property::SUBSCRIPTION_ID_AVAILABLE), Some(0));
        world.send(conn, Subscribe::new(1, &[("x", qos)]));
        assert!(matches!(world.packets(conn).as_slice(), [Packet::Suback { codes, .. }] if codes == &[qos]));
        world.fail(conn);
        assert_eq!(world.message(listener).qos, qos);
    }
}

// covers: MQTT-3.1.2-28
#[test]
fn response_information_is_not_returned_unasked() {
    let mut world = World::new();
    for connect in [Connect::v5("a"), Connect::v5("a").props(Props::new().byte(property::REQUEST_RESPONSE_INFO, 0))] {
        assert!(!told(&mut world, &connect).has(property::RESPONSE_INFO));
    }
}

// covers: MQTT-3.2.2-19, MQTT-3.2.2-20, MQTT-3.1.2-24
#[test]
fn connack_keeps_within_the_maximum_packet_size() {
    let mut world = World::new();
    // Every packet is compared with the client's maximum when it is received.
    for maximum in [40, 30, 20] {
        let (conn, answer) = world.try_connect(&Connect::v5("a").maximum_packet_size(maximum));
        assert!(matches!(answer, Packet::Connack { code: 0, .. }), "{answer:?}");
        world.assert_undisturbed(conn);
        let refused = Connect::v5("b")
            .props(Props::new().u32(property::MAXIMUM_PACKET_SIZE, maximum).data(property::AUTH_METHOD, "none-such"));
        let conn = world.start(&refused);
        assert!(matches!(world.packets(conn).as_slice(), [] | [Packet::Connack { code: 0x8C | 0x87, .. }]));
        assert!(world.is_closed(conn));
    }
}

// covers: MQTT-3.1.2-24, MQTT-3.1.4-2
#[test]
fn a_client_that_cannot_take_connack_is_closed() {
    let mut world = World::new();
    for maximum in 1..5 {
        let conn = world.start(&Connect::v5("a").maximum_packet_size(maximum));
        assert_eq!(world.packets(conn), []);
        assert!(world.is_closed(conn));
    }
}

// covers: MQTT-3.2.2-22
#[test]
fn a_server_keep_alive_is_announced_and_used() {
    let limits = Limits { keep_alive_max: 20, ..Limits::default() };
    let mut world = World::with(Config { limits, ..quiet() });
    for (asked, used) in [(0, 20), (60, 20), (10, 10)] {
        let (conn, answer) = world.try_connect(&Connect::v5("a").keep_alive(asked));
        let Packet::Connack { code: 0, props, .. } = answer else { panic!("refused: {answer:?}") };
        let server = props.number(property::SERVER_KEEP_ALIVE);
        assert_eq!(server.unwrap_or(asked as u32), used, "keep-alive {asked}");
        world.advance(seconds(used as u64 * 3 / 2 - 1));
        assert!(!world.is_closed(conn));
        world.advance(seconds(2));
        assert!(world.is_closed(conn), "keep-alive {used} is in force");
    }
}

// covers: MQTT-4.1.0-2
#[test]
fn a_shorter_session_expiry_is_announced_and_used() {
    let core = whimbrel_core::Limits { session_expiry_max: seconds(50), ..whimbrel_core::Limits::default() };
    let mut world = World::with(Config { core, ..quiet() });
    let connect = Connect::v5("a").expiry(u32::MAX).resume();
    let (conn, answer) = world.try_connect(&connect);
    let Packet::Connack { code: 0, props, .. } = answer else { panic!("refused: {answer:?}") };
    assert_eq!(props.number(property::SESSION_EXPIRY), Some(50));
    world.fail(conn);
    world.advance(seconds(49));
    let (conn, present) = world.reconnect(&connect);
    assert!(present);
    world.fail(conn);
    world.advance(seconds(51));
    assert!(!world.reconnect(&connect).1);
}

// covers: MQTT-3.2.2-15, MQTT-4.13.1-1
#[test]
fn limits_of_the_server_are_announced_and_enforced() {
    let limits = Limits { receive_maximum: 2, max_packet_size: 200, topic_alias_maximum: 3, ..Limits::default() };
    let mut world = World::with(Config { limits, ..quiet() });
    let props = told(&mut world, &Connect::v5("a"));
    assert_eq!(props.number(property::RECEIVE_MAXIMUM), Some(2));
    assert_eq!(props.number(property::MAXIMUM_PACKET_SIZE), Some(200));
    assert_eq!(props.number(property::TOPIC_ALIAS_MAXIMUM), Some(3));

    let conn = world.client("fits");
    // 2 bytes of header and length, 2 + 1 of topic, 1 of properties.
    world.send(conn, Publish::new("t", [b'x'; 193]));
    world.assert_undisturbed(conn);
    world.send(conn, Publish::new("t", [b'x'; 196]));
    world.assert_disconnected(conn, 0x95);

    let conn = world.client("declares too much");
    // The length alone tells: nothing needs to be received, let alone kept.
    world.send(conn, [0x30, 0xFF, 0xFF, 0xFF, 0x7F]);
    world.assert_disconnected(conn, 0x95);
}
