//! MQTT 3.1.1 where it differs from 5.0: return codes, no reason codes and properties, sessions
//! without expiry, and no last word of the server. The statement numbers at `covers` are those of
//! 5.0, so there are none here.

use whimbrel_mqtt::{Config, ConnId};

use crate::wire::{
    Ack, Connect, Encode, PINGREQ, Packet, Props, Publish, Subscribe, Unsubscribe, V311, Will, ack, field, option,
    packet, property, puback, pubcomp, pubrec, pubrel,
};
use crate::world::{World, quiet, seconds};

fn client(world: &mut World, client_id: &str) -> ConnId {
    world.connect(&Connect::v311(client_id))
}

/// The connection must have been closed without a word.
#[track_caller]
fn assert_cut_off(world: &mut World, conn: ConnId) {
    assert_eq!(world.packets(conn), [], "the server has no DISCONNECT to send");
    assert!(world.is_closed(conn));
}

/// The raw answer to a CONNECT that is refused; empty if the connection was closed silently.
fn refusal(world: &mut World, bytes: Vec<u8>) -> Vec<u8> {
    let conn = world.open();
    world.send(conn, bytes);
    assert!(world.is_closed(conn));
    world.peek(conn).to_vec()
}

#[test]
fn connack_has_two_bytes() {
    let mut world = World::new();
    let conn = world.start(&Connect::v311("a"));
    assert_eq!(world.peek(conn), [0x20, 2, 0, 0]);
}

#[test]
fn an_unacceptable_protocol_level_is_return_code_1() {
    let mut world = World::new();
    for (name, level) in [(&b"MQTT"[..], 3), (b"MQIsdp", 3), (b"MQTT", 0)] {
        let mut body = field(name);
        body.extend([level, 2, 0, 0]);
        body.extend(field(b"a"));
        let told = refusal(&mut world, packet(0x10, &body));
        let v5_told = [0x20, 3, 0, 0x84, 0];
        assert!([&[][..], &[0x20, 2, 0, 1], &v5_told].contains(&told.as_slice()), "level {level}: {told:x?}");
    }
}

#[test]
fn an_empty_client_id_needs_a_clean_session() {
    let mut world = World::new();
    let clean = client(&mut world, "");
    let another = client(&mut world, "");
    world.assert_undisturbed(clean);
    world.assert_undisturbed(another);
    assert_eq!(refusal(&mut world, Connect::v311("").resume().bytes()), [0x20, 2, 0, 2]);
}

#[test]
fn malformed_connects_are_cut_off() {
    let mut world = World::new();
    let plain = Connect::v311("a");
    let willing = plain.clone().will(Will::new("w", "x"));
    let secret = Connect { password: Some(b"p".to_vec()), ..plain.clone() };
    for (what, bytes) in [
        ("reserved flag", plain.with_flags(0x03)),
        ("will QoS without will", plain.with_flags(0x0A)),
        ("will retain without will", plain.with_flags(0x22)),
        ("will QoS 3", willing.with_flags(willing.flags() | 0x18)),
        ("user name flag without user name", plain.with_flags(0x82)),
        ("will flag without will", plain.with_flags(0x06)),
        ("will without its flag", willing.with_flags(0x02)),
        ("password without user name", secret.bytes()),
        ("client id that is not UTF-8", Connect { client_id: b"\xFF".to_vec(), ..plain.clone() }.bytes()),
        ("client id with U+0000", Connect { client_id: b"a\0".to_vec(), ..plain.clone() }.bytes()),
        ("cut off", packet(0x10, &plain.bytes()[2..10])),
    ] {
        let told = refusal(&mut world, bytes);
        assert!(told.is_empty(), "{what}: {told:x?}");
    }
}

#[test]
fn a_session_lasts_unless_it_is_clean() {
    let mut world = World::new();
    let lasting = Connect::v311("a").resume();
    let (conn, present) = world.reconnect(&lasting);
    assert!(!present);
    world.subscribe(conn, "t", 1);
    world.leave(conn);
    world.advance(seconds(24 * 3600));
    let publisher = client(&mut world, "publisher");
    world.send(publisher, Publish::new("t", "1").qos(1, 1));
    let (conn, present) = world.reconnect(&lasting);
    assert!(present);
    assert_eq!(world.payloads(conn), ["1"]);
    world.fail(conn);
    let (conn, present) = world.reconnect(&Connect::v311("a"));
    assert!(!present, "a clean session discards the former one");
    world.subscribe(conn, "t", 1);
    world.fail(conn);
    assert!(!world.reconnect(&lasting).1, "and ends with its connection");
}

#[test]
fn a_lasting_session_ends_after_the_longest_expiry() {
    let core = whimbrel_core::Limits { session_expiry_max: seconds(100), ..whimbrel_core::Limits::default() };
    let mut world = World::with(Config { core, ..quiet() });
    let lasting = Connect::v311("a").resume();
    let conn = world.connect(&lasting);
    world.fail(conn);
    world.advance(seconds(99));
    let (conn, present) = world.reconnect(&lasting);
    assert!(present);
    world.fail(conn);
    world.advance(seconds(101));
    assert!(!world.reconnect(&lasting).1);
}

#[test]
fn refused_filters_are_0x80_in_suback() {
    let core = whimbrel_core::Limits { subscriptions_per_session: 2, ..whimbrel_core::Limits::default() };
    let mut world = World::with(Config { core, ..quiet() });
    let conn = client(&mut world, "a");
    let answer = world.ask(conn, Subscribe::new(7, &[("a", 2), ("b", 1), ("c", 0), ("a", 0)]));
    assert!(matches!(&answer, Packet::Suback { id: 7, codes, .. } if codes == &[2, 1, 0x80, 0]), "{answer:?}");
}

#[test]
fn subscription_options_other_than_qos_are_malformed() {
    let mut world = World::new();
    for options in [0x03, option::NO_LOCAL, option::RETAIN_AS_PUBLISHED, option::RETAIN_NEVER, 0x40, 0x80, 0xFF] {
        let conn = client(&mut world, "a");
        world.send(conn, Subscribe::new(1, &[("t", options)]));
        assert_cut_off(&mut world, conn);
    }
}

#[test]
fn unsuback_has_no_codes() {
    let mut world = World::new();
    let conn = client(&mut world, "a");
    world.subscribe(conn, "t", 0);
    for (id, filters) in [(5, &["t"][..]), (6, &["t", "u"])] {
        assert!(
            matches!(world.ask(conn, Unsubscribe { id, filters }), Packet::Unsuback { id: got, codes, .. } if got == id && codes.is_empty())
        );
    }
    world.send(conn, Publish::new("t", "x"));
    assert_eq!(world.messages(conn), []);
}

#[test]
fn a_takeover_is_silent() {
    let mut world = World::new();
    let first = client(&mut world, "a");
    let second = client(&mut world, "a");
    assert_cut_off(&mut world, first);
    let third = world.client("a");
    assert_cut_off(&mut world, second);
    world.assert_undisturbed(third);
    client(&mut world, "a");
    world.assert_disconnected(third, 0x8E);
}

#[test]
fn errors_end_the_connection_without_a_word() {
    let mut world = World::new();
    let rows = [
        ("a second CONNECT", Connect::v311("a").bytes()),
        ("AUTH", packet(0xF0, &[])),
        ("reserved bits of PUBREL", packet(0x60, b"\x00\x01")),
        ("reserved bits of SUBSCRIBE", packet(0x80, b"\x00\x01\x00\x01t\x00")),
        ("reserved bits of UNSUBSCRIBE", packet(0xA0, b"\x00\x01\x00\x01t")),
        ("reserved bits of DISCONNECT", packet(0xE1, &[])),
        ("DISCONNECT with a body", packet(0xE0, &[0])),
        ("SUBSCRIBE without filters", Subscribe::new(1, &[]).encode(V311)),
        ("UNSUBSCRIBE without filters", Unsubscribe { id: 1, filters: &[] }.encode(V311)),
        ("SUBSCRIBE to nothing", Subscribe::new(1, &[("", 0)]).encode(V311)),
        ("SUBSCRIBE with # in the middle", Subscribe::new(1, &[("t", 0), ("a/#/b", 0)]).encode(V311)),
        ("SUBSCRIBE with + in a level", Subscribe::new(1, &[("a+/b", 0)]).encode(V311)),
        ("UNSUBSCRIBE from nothing", Unsubscribe { id: 1, filters: &[""] }.encode(V311)),
        ("UNSUBSCRIBE with # in the middle", Unsubscribe { id: 1, filters: &["t", "a/#/b"] }.encode(V311)),
        ("UNSUBSCRIBE with + in a level", Unsubscribe { id: 1, filters: &["a+/b"] }.encode(V311)),
        ("PUBACK with identifier 0", packet(0x40, b"\x00\x00")),
        ("PUBREC with identifier 0", packet(0x50, b"\x00\x00")),
        ("PUBREL with identifier 0", packet(0x62, b"\x00\x00")),
        ("PUBCOMP with identifier 0", packet(0x70, b"\x00\x00")),
        ("SUBSCRIBE with identifier 0", Subscribe::new(0, &[("t", 0)]).encode(V311)),
        ("QoS 3", packet(0x36, b"\x00\x01t\x00\x01x")),
        ("PUBLISH with identifier 0", Publish::new("t", "x").qos(1, 0).encode(V311)),
        ("a wildcard in a topic name", Publish::new("a/+", "x").encode(V311)),
        ("an empty topic name", Publish::new("", "x").encode(V311)),
        ("a topic name that is not UTF-8", Publish::new(b"\xFF", "x").encode(V311)),
        ("PUBACK with a reason code", packet(0x40, b"\x00\x01\x00")),
        ("PINGREQ with a body", packet(0xC0, b"\x00")),
        ("an endless remaining length", vec![0x30, 0xFF, 0xFF, 0xFF, 0xFF]),
        ("a packet of the server", packet(0xD0, &[])),
    ];
    for (what, bytes) in rows {
        let conn = client(&mut world, "a");
        world.send(conn, bytes);
        assert_eq!(world.packets(conn), [], "{what}");
        assert!(world.is_closed(conn), "{what}");
    }
}

#[test]
fn acknowledgements_of_another_kind_end_the_connection() {
    for (qos, first) in [(1, 0x50), (1, 0x70), (2, 0x40), (2, 0x70)] {
        let mut world = World::new();
        let conn = client(&mut world, "subscriber");
        world.subscribe(conn, "t", 2);
        let publisher = client(&mut world, "publisher");
        world.send(publisher, Publish::new("t", "x").qos(qos, 1));
        let message = world.message(conn);
        world.send(conn, packet(first, &message.id.to_be_bytes()));
        assert_cut_off(&mut world, conn);
    }
}

#[test]
fn what_is_no_shared_subscription_is_refused_as_any_filter_that_is_not_accepted() {
    let mut world = World::new();
    let conn = client(&mut world, "a");
    for filter in ["$share/", "$share//t", "$share/group", "$share/#/t"] {
        let answer = world.ask(conn, Subscribe::new(7, &[(filter, 0)]));
        assert!(matches!(&answer, Packet::Suback { codes, .. } if codes == &[0x80]), "{filter}: {answer:?}");
        let answer = world.ask(conn, Unsubscribe { id: 8, filters: &[filter] });
        assert!(matches!(answer, Packet::Unsuback { id: 8, .. }), "{filter}: {answer:?}");
    }
}

#[test]
fn a_message_to_more_levels_than_are_served_is_never_acknowledged() {
    let (served, deep) = (["l"; 128].join("/"), ["l"; 129].join("/"));
    for qos in [1, 2] {
        let mut world = World::new();
        let listener = client(&mut world, "listener");
        world.subscribe(listener, "#", 0);
        let answer = world.ask(listener, Subscribe::new(2, &[(&deep, 0)]));
        assert!(matches!(&answer, Packet::Suback { codes, .. } if codes == &[0x80]), "{answer:?}");
        let conn = client(&mut world, "publisher");
        world.ask(conn, Publish::new(served.as_bytes(), "x").qos(qos, 1));
        assert_eq!(world.message(listener).topic, served);
        world.send(conn, Publish::new(deep.as_bytes(), "x").qos(qos, 2));
        assert_cut_off(&mut world, conn);
        assert_eq!(world.messages(listener), []);
        let conn = client(&mut world, "publisher");
        world.send(conn, Publish::new(deep.as_bytes(), "x"));
        world.assert_undisturbed(conn);
        assert_eq!(world.stats().publishes_refused.count(0x90), 2);
    }
}

#[test]
fn every_end_but_disconnect_publishes_the_will() {
    let mut world = World::new();
    let listener = client(&mut world, "listener");
    world.subscribe(listener, "wills/#", 2);
    let willing = Connect::v311("a").keep_alive(10).will(Will::new("wills/a", "gone").qos(1).retain());
    let conn = world.connect(&willing);
    world.leave(conn);
    assert_eq!(world.messages(listener), []);

    let conn = world.connect(&willing);
    world.fail(conn);
    let will = world.message(listener);
    assert_eq!((will.topic.as_str(), will.text(), will.qos, will.retain), ("wills/a", "gone", 1, false));
    let late = client(&mut world, "late");
    world.subscribe(late, "wills/#", 0);
    assert!(world.message(late).retain);

    let conn = world.connect(&willing);
    world.send(conn, packet(0x30, &[]));
    assert_cut_off(&mut world, conn);
    assert_eq!(world.payloads(listener), ["gone"], "after an error");

    let conn = world.connect(&willing);
    world.advance(seconds(16));
    assert_cut_off(&mut world, conn);
    assert_eq!(world.payloads(listener), ["gone"], "after silence");

    world.connect(&willing);
    world.connect(&willing);
    assert_eq!(world.payloads(listener), ["gone"], "after a takeover");
}

#[test]
fn acknowledgements_have_no_reason_codes() {
    let mut world = World::new();
    let conn = client(&mut world, "a");
    assert_eq!(world.ask(conn, Publish::new("nobody", "x").qos(1, 7)), ack(Ack::Puback, 7));
    assert_eq!(world.ask(conn, Publish::new("nobody", "x").qos(2, 8)), ack(Ack::Pubrec, 8));
    assert_eq!(world.ask(conn, Publish::new("nobody", "x").qos(2, 8).dup()), ack(Ack::Pubrec, 8));
    assert_eq!(world.ask(conn, pubrel(8)), ack(Ack::Pubcomp, 8));
    assert_eq!(world.ask(conn, pubrel(8)), ack(Ack::Pubcomp, 8), "also for what is not known");
    assert_eq!(world.ask(conn, pubrec(9)), ack(Ack::Pubrel, 9));
    assert_eq!(world.ask(conn, PINGREQ), Packet::Pingresp);
}

#[test]
fn unfinished_deliveries_are_sent_again_in_order() {
    let mut world = World::new();
    let lasting = Connect::v311("subscriber").resume();
    let conn = world.connect(&lasting);
    world.subscribe(conn, "t", 2);
    let publisher = client(&mut world, "publisher");
    for number in 1..=4_u16 {
        world.send(publisher, Publish::new("t", number.to_string()).qos(1 + (number % 2) as u8, number));
    }
    let first = world.messages(conn);
    assert_eq!(world.ask(conn, pubrec(first[0].id)), ack(Ack::Pubrel, first[0].id));
    world.send(conn, puback(first[1].id));
    world.fail(conn);
    let conn = world.connect(&lasting);
    match world.packets(conn).as_slice() {
        [Packet::Ack { kind: Ack::Pubrel, id, .. }, Packet::Publish(third), Packet::Publish(fourth)] => {
            assert_eq!(*id, first[0].id);
            assert_eq!((third.id, third.dup, third.text()), (first[2].id, true, "3"));
            assert_eq!((fourth.id, fourth.dup, fourth.text()), (first[3].id, true, "4"));
        }
        other => panic!("PUBREL and two PUBLISHes expected, got {other:?}"),
    }
    world.send(conn, pubcomp(first[0].id));
    world.assert_undisturbed(conn);
}

#[test]
fn retained_messages_are_marked_only_when_they_are_old() {
    let mut world = World::new();
    let live = client(&mut world, "live");
    world.subscribe(live, "t", 0);
    let publisher = client(&mut world, "publisher");
    world.send(publisher, Publish::new("t", "x").retain());
    assert!(!world.message(live).retain);
    world.subscribe(live, "t", 0);
    assert!(world.message(live).retain, "subscribing again sends them again");
    world.send(publisher, Publish::new("t", "").retain());
    assert_eq!(world.payloads(live), [""]);
    world.subscribe(live, "t", 0);
    assert_eq!(world.messages(live), []);
}

#[test]
fn silence_for_one_and_a_half_keep_alives_ends_the_connection() {
    let mut world = World::new();
    let conn = world.connect(&Connect::v311("a").keep_alive(10));
    world.advance(seconds(14));
    world.assert_undisturbed(conn);
    world.advance(seconds(14));
    assert!(!world.is_closed(conn));
    world.advance(seconds(2));
    assert_cut_off(&mut world, conn);
}

#[test]
fn both_versions_hear_each_other() {
    let mut world = World::new();
    let old = client(&mut world, "old");
    let new = world.client("new");
    for conn in [old, new] {
        world.subscribe(conn, "t", 2);
    }
    let props =
        Props::new().user("name", "value").data(property::CONTENT_TYPE, "text").u32(property::MESSAGE_EXPIRY, 9);
    for (qos, sender) in [(0, new), (1, new), (2, new), (0, old), (1, old), (2, old)] {
        world.send(sender, Publish::new("t", "x").qos(qos, 1).props(props.clone()));
        for conn in [old, new] {
            let packets = world.packets(conn);
            let message = packets.iter().find_map(|packet| match packet {
                Packet::Publish(message) => Some(message),
                _ => None,
            });
            let message = message.expect("everybody gets it");
            assert_eq!((message.topic.as_str(), message.text(), message.qos), ("t", "x", qos));
            let carried = conn == new && sender == new;
            assert_eq!(message.props.has(property::USER), carried);
            assert_eq!(message.props.has(property::CONTENT_TYPE), carried);
        }
        if qos == 2 {
            world.ask(sender, pubrel(1));
        }
    }
}

#[test]
fn expiry_of_a_newer_publisher_holds_for_an_older_subscriber() {
    let mut world = World::new();
    let lasting = Connect::v311("subscriber").resume();
    let conn = world.connect(&lasting);
    world.subscribe(conn, "t", 1);
    world.fail(conn);
    let publisher = world.client("publisher");
    let expiring =
        |payload: &str, after| Publish::new("t", payload).props(Props::new().u32(property::MESSAGE_EXPIRY, after));
    world.send(publisher, expiring("short", 5).qos(1, 1));
    world.send(publisher, expiring("long", 50).qos(1, 2));
    world.advance(seconds(10));
    let conn = world.connect(&lasting);
    assert_eq!(world.payloads(conn), ["long"]);
}

#[test]
fn a_session_can_be_resumed_with_the_other_version() {
    let mut world = World::new();
    let conn = world.connect(&Connect::v311("a").resume());
    world.subscribe(conn, "t", 1);
    world.fail(conn);
    let publisher = client(&mut world, "publisher");
    world.send(publisher, Publish::new("t", "1").qos(1, 1));
    let (conn, present) = world.reconnect(&Connect::v5("a").expiry(100).resume());
    assert!(present);
    let message = world.message(conn);
    assert_eq!(message.text(), "1");
    world.fail(conn);
    let (conn, present) = world.reconnect(&Connect::v311("a").resume());
    assert!(present);
    let again = world.message(conn);
    assert_eq!((again.id, again.dup), (message.id, true));
}

#[test]
fn overlapping_subscriptions_deliver_the_highest_qos_among_their_copies() {
    let mut world = World::new();
    let conn = client(&mut world, "subscriber");
    for (filter, qos) in [("a/#", 0), ("a/+", 2), ("a/b", 1)] {
        world.subscribe(conn, filter, qos);
    }
    let publisher = client(&mut world, "publisher");
    world.send(publisher, Publish::new("a/b", "x").qos(2, 1));
    let mut qos: Vec<_> = world.messages(conn).iter().map(|message| message.qos).collect();
    qos.sort();
    assert_eq!(qos, [0, 1, 2]);
}

#[test]
fn packets_beyond_the_limit_end_the_connection() {
    let limits = whimbrel_mqtt::Limits { max_packet_size: 100, ..whimbrel_mqtt::Limits::default() };
    let mut world = World::with(Config { limits, ..quiet() });
    let conn = client(&mut world, "a");
    world.send(conn, Publish::new("t", [b'x'; 200]));
    assert_cut_off(&mut world, conn);
}

/// Protocol level 0x84: what bridges of mosquitto send unless `try_private` is false. It is no part
/// of the standard.
const BRIDGE: u8 = 0x84;

/// A bridge as mosquitto configures it by default: its will, and its state as a retained message,
/// are under `$SYS`.
fn bridge(world: &mut World, client_id: &str) -> ConnId {
    let state = format!("$SYS/broker/connection/{client_id}/state");
    let connect = Connect { version: BRIDGE, ..Connect::v311(client_id) };
    let conn = world.connect(&connect.resume().will(Will::new(&state, "0").qos(1).retain()));
    world.send(conn, Publish::new(&state, "1").qos(1, 1).retain());
    assert!(matches!(world.packets(conn)[..], [Packet::Ack { id: 1, .. }]));
    conn
}

#[test]
fn a_bridge_gets_in_and_its_state_is_told() {
    let mut world = World::new();
    let watcher = client(&mut world, "watcher");
    world.subscribe(watcher, "$SYS/broker/connection/#", 1);
    let conn = bridge(&mut world, "depot.city");
    let message = world.message(watcher);
    assert_eq!((message.topic.as_str(), message.text()), ("$SYS/broker/connection/depot.city/state", "1"));
    world.fail(conn);
    let message = world.message(watcher);
    assert_eq!(message.text(), "0", "the will");
    let late = client(&mut world, "late");
    world.subscribe(late, "$SYS/broker/connection/+/state", 0);
    assert_eq!(world.payloads(late), ["0"], "the will was retained");
}

#[test]
fn a_bridge_gets_nothing_back_and_retain_marks_as_published() {
    let mut world = World::new();
    let bridge = bridge(&mut world, "b");
    world.subscribe(bridge, "#", 0);
    world.send(bridge, Publish::new("t", "own").qos(0, 0));
    assert_eq!(world.packets(bridge), [], "its own message would go round for ever");
    let other = client(&mut world, "other");
    world.send(other, Publish::new("t", "kept").qos(0, 0).retain());
    world.send(other, Publish::new("t", "passing").qos(0, 0));
    let marks: Vec<_> =
        world.messages(bridge).iter().map(|message| (message.text().to_owned(), message.retain)).collect();
    assert_eq!(marks, [("kept".to_owned(), true), ("passing".to_owned(), false)]);
    // No Local is an error with a shared subscription: there it is left out.
    world.subscribe(bridge, "$share/g/s", 0);
    world.send(bridge, Publish::new("s", "shared").qos(0, 0));
    assert_eq!(world.payloads(bridge), ["shared"], "once: by the shared subscription alone");
}

#[test]
fn other_topics_of_the_broker_are_nobodys_to_publish() {
    let mut world = World::new();
    for topic in ["$SYS/broker/uptime", "$SYS/broker/connection//state", "$SYS/broker/connection/a/b/state", "$SYS/x"] {
        let connect = Connect { version: BRIDGE, ..Connect::v311("b") };
        let told = refusal(&mut world, connect.will(Will::new(topic, "0")).bytes());
        assert_eq!(told, [0x20, 2, 0, 5], "{topic}");
    }
}
