//! PUBLISH (3.3): flags, topics, what is forwarded, overlapping subscriptions.

use crate::wire::{
    Ack, Connect, Encode, PINGREQ, Packet, Props, Publish, Subscribe, V5, option, packet, property, puback, pubcomp,
    pubrec,
};
use crate::world::World;

// covers: MQTT-3.3.1-2, MQTT-4.3.1-1, MQTT-2.2.1-2, MQTT-2.2.2-1, MQTT-3.3.4-1
#[test]
fn qos_0_is_delivered_without_identifier_and_dup_and_is_not_answered() {
    let mut world = World::new();
    let subscriber = world.client("subscriber");
    world.subscribe(subscriber, "t", 0);
    let publisher = world.client("publisher");
    world.send(publisher, Publish::new("t", "x"));
    assert_eq!(world.packets(publisher), []);
    let message = world.message(subscriber);
    assert_eq!((message.qos, message.dup, message.retain, message.id), (0, false, false, 0));
    assert_eq!((message.topic.as_str(), message.text()), ("t", "x"));
}

// covers: MQTT-3.3.1-2, MQTT-3.3.1-4, MQTT-2.2.1-2, MQTT-2.2.1-3
#[test]
fn impossible_publish_flags_and_identifiers_are_refused() {
    let mut world = World::new();
    let rows: [(&str, Vec<u8>, &[u8]); 6] = [
        ("QoS 3", packet(0x36, b"\x00\x01t\x00\x01\x00x"), &[0x81]),
        ("QoS 3 with DUP and RETAIN", packet(0x3F, b"\x00\x01t\x00\x01\x00x"), &[0x81]),
        ("DUP at QoS 0", packet(0x38, b"\x00\x01t\x00x"), &[0x81, 0x82]),
        ("identifier 0 at QoS 1", Publish::new("t", "x").qos(1, 0).encode(V5), &[0x81, 0x82]),
        ("identifier 0 at QoS 2", Publish::new("t", "x").qos(2, 0).encode(V5), &[0x81, 0x82]),
        ("no identifier at QoS 1", packet(0x32, b"\x00\x01t"), &[0x81]),
    ];
    for (what, bytes, codes) in rows {
        let conn = world.client("a");
        world.send(conn, bytes);
        let packets = world.packets(conn);
        let told = matches!(packets.as_slice(), [Packet::Disconnect { code, .. }] if codes.contains(code));
        assert!(told && world.is_closed(conn), "{what}: {packets:?}");
    }
}

// covers: MQTT-3.3.1-3, MQTT-3.3.1-1
#[test]
fn dup_of_a_publisher_is_not_forwarded() {
    let mut world = World::new();
    let subscriber = world.client("subscriber");
    world.subscribe(subscriber, "t", 2);
    let publisher = world.client("publisher");
    world.send(publisher, Publish::new("t", "1").qos(1, 5).dup());
    world.send(publisher, Publish::new("t", "2").qos(2, 6).dup());
    let messages = world.messages(subscriber);
    assert_eq!(
        messages.iter().map(|m| (m.text(), m.qos, m.dup)).collect::<Vec<_>>(),
        [("1", 1, false), ("2", 2, false)]
    );
}

// covers: MQTT-3.3.2-1, MQTT-3.3.2-2, MQTT-4.7.0-1, MQTT-4.7.3-1, MQTT-4.7.3-2, MQTT-1.5.4-1
// covers: MQTT-1.5.4-2
#[test]
fn a_topic_name_must_be_one() {
    let mut world = World::new();
    let rows: [(&[u8], &[u8]); 9] = [
        (b"", &[0x81, 0x82, 0x90]),
        (b"#", &[0x81, 0x82, 0x90]),
        (b"a/#", &[0x81, 0x82, 0x90]),
        (b"+", &[0x81, 0x82, 0x90]),
        (b"a/+/b", &[0x81, 0x82, 0x90]),
        (b"a+", &[0x81, 0x82, 0x90]),
        (b"a\x00b", &[0x81]),
        (b"\xFF", &[0x81]),
        (b"a/\xED\xA0\x80", &[0x81]),
    ];
    for (topic, codes) in rows {
        for qos in 0..=2 {
            let conn = world.client("a");
            world.send(conn, Publish::new(topic, "x").qos(qos, 7));
            let packets = world.packets(conn);
            let told = matches!(packets.as_slice(), [Packet::Disconnect { code, .. }] if codes.contains(code));
            assert!(told && world.is_closed(conn), "{topic:x?} at QoS {qos}: {packets:?}");
        }
    }
}

// covers: MQTT-3.3.2-13, MQTT-3.3.2-14, MQTT-3.3.2-19, MQTT-4.7.0-1, MQTT-1.5.4-1, MQTT-1.5.4-2
// covers: MQTT-1.5.7-1
#[test]
fn strings_among_the_properties_must_be_valid() {
    let mut world = World::new();
    let rows: [(Props, &[u8]); 8] = [
        (Props::new().data(property::RESPONSE_TOPIC, b"r\xFF"), &[0x81]),
        (Props::new().data(property::RESPONSE_TOPIC, b"r\x00"), &[0x81]),
        (Props::new().data(property::RESPONSE_TOPIC, "r/#"), &[0x81, 0x82, 0x90]),
        (Props::new().data(property::RESPONSE_TOPIC, "+"), &[0x81, 0x82, 0x90]),
        (Props::new().data(property::CONTENT_TYPE, b"\xC3\x28"), &[0x81]),
        (Props::new().data(property::CONTENT_TYPE, b"\x00"), &[0x81]),
        (Props::new().user(b"\xFF", b"value"), &[0x81]),
        (Props::new().user(b"name", b"\xED\xBF\xBF"), &[0x81]),
    ];
    for (index, (props, codes)) in rows.into_iter().enumerate() {
        let conn = world.client("a");
        world.send(conn, Publish::new("t", "x").props(props));
        let packets = world.packets(conn);
        let told = matches!(packets.as_slice(), [Packet::Disconnect { code, .. }] if codes.contains(code));
        assert!(told && world.is_closed(conn), "row {index}: {packets:?}");
    }
}

// covers: MQTT-3.3.2-4, MQTT-3.3.2-15, MQTT-3.3.2-16, MQTT-3.3.2-17, MQTT-3.3.2-18, MQTT-3.3.2-20
#[test]
fn properties_are_forwarded_as_they_came() {
    let mut world = World::new();
    let subscribers = [0, 1, 2].map(|qos| {
        let subscriber = world.client(&format!("subscriber {qos}"));
        world.subscribe(subscriber, "t", qos);
        subscriber
    });
    let publisher = world.client("publisher");
    let user = [
        ("b", "1"),
        ("a", "2"),
        ("b", "1"),
        ("", ""),
        ("ключ", "значение"),
        ("w-unknown", "x"),
        ("w-importance", "7"),
        ("b", "3"),
    ];
    let props = Props::new()
        .byte(property::PAYLOAD_FORMAT, 1)
        .data(property::CONTENT_TYPE, "text/plain; charset=utf-8")
        .data(property::RESPONSE_TOPIC, "answers/7")
        .data(property::CORRELATION_DATA, b"\x00\xFF\x01");
    let props = user.iter().fold(props, |props, (name, value)| props.user(name, value));
    world.send(publisher, Publish::new("t", "x").qos(2, 1).props(props));
    for subscriber in subscribers {
        let received = world.message(subscriber).props;
        assert_eq!(received.number(property::PAYLOAD_FORMAT), Some(1));
        assert_eq!(received.text(property::CONTENT_TYPE), Some("text/plain; charset=utf-8"));
        assert_eq!(received.text(property::RESPONSE_TOPIC), Some("answers/7"));
        assert_eq!(received.data(property::CORRELATION_DATA), Some(b"\x00\xFF\x01".as_slice()));
        assert_eq!(received.user(), user);
    }
}

// covers: MQTT-3.3.2-4, MQTT-3.3.2-20
#[test]
fn properties_that_did_not_come_are_not_made_up() {
    let mut world = World::new();
    let subscriber = world.client("subscriber");
    world.subscribe(subscriber, "t", 1);
    let publisher = world.client("publisher");
    world.send(publisher, Publish::new("t", "x").qos(1, 1));
    world.send(publisher, Publish::new("t", "x").qos(1, 2).props(Props::new().byte(property::PAYLOAD_FORMAT, 0)));
    let messages = world.messages(subscriber);
    assert_eq!(messages[0].props.0, []);
    // An indicator of 0 means the same as none.
    assert_eq!(messages[1].props.number(property::PAYLOAD_FORMAT).unwrap_or(0), 0);
}

// covers: MQTT-1.5.4-3
#[test]
fn a_byte_order_mark_is_a_character_like_any_other() {
    let mut world = World::new();
    let marked = world.client("marked");
    world.subscribe(marked, "\u{FEFF}a/#", 0);
    let plain = world.client("plain");
    world.subscribe(plain, "a/#", 0);
    let publisher = world.client("publisher");
    world.send(publisher, Publish::new("\u{FEFF}a/b", "x").props(Props::new().user("\u{FEFF}n", "\u{FEFF}")));
    let message = world.message(marked);
    assert_eq!(message.topic, "\u{FEFF}a/b");
    assert_eq!(message.props.user(), [("\u{FEFF}n", "\u{FEFF}")]);
    assert_eq!(world.messages(plain), []);
}

// covers: MQTT-3.3.4-6, MQTT-4.13.1-1
#[test]
fn a_publish_with_a_subscription_identifier_is_refused() {
    let mut world = World::new();
    let conn = world.client("a");
    world.send(conn, Publish::new("t", "x").props(Props::new().var(property::SUBSCRIPTION_ID, 5)));
    assert!(world.is_closed(conn));
    let packets = world.packets(conn);
    assert!(matches!(packets.as_slice(), [Packet::Disconnect { code: 0x81 | 0x82, .. }]), "{packets:?}");
}

// covers: MQTT-3.3.4-2, MQTT-3.3.4-3, MQTT-3.3.4-4, MQTT-3.3.4-5
#[test]
fn overlapping_subscriptions_deliver_one_copy_each_with_its_own_identifier() {
    let mut world = World::new();
    let subscriber = world.client("subscriber");
    for (filter, qos, identifier) in [("a/#", 1, Some(10)), ("a/+", 2, Some(268_435_455)), ("a/b", 0, None)] {
        let props = identifier.map_or(Props::new(), |id| Props::new().var(property::SUBSCRIPTION_ID, id));
        let filters = [(filter, qos)];
        let answer = world.ask(subscriber, Subscribe::new(1, &filters).props(props));
        assert!(matches!(answer, Packet::Suback { codes, .. } if codes == [qos]));
    }
    let publisher = world.client("publisher");
    world.send(publisher, Publish::new("a/b", "x").qos(2, 1));
    let mut copies: Vec<_> =
        world.messages(subscriber).iter().map(|m| (m.qos, m.props.numbers(property::SUBSCRIPTION_ID))).collect();
    copies.sort();
    assert_eq!(copies, [(0, vec![]), (1, vec![10]), (2, vec![268_435_455])], "the highest QoS is among them");
}

// covers: MQTT-3.3.4-3
#[test]
fn a_subscription_identifier_is_that_of_the_newest_subscribe() {
    let mut world = World::new();
    let subscriber = world.client("subscriber");
    let publisher = world.client("publisher");
    for (identifier, expected) in [(Some(1), vec![1]), (Some(2), vec![2]), (None, vec![])] {
        let props = identifier.map_or(Props::new(), |id| Props::new().var(property::SUBSCRIPTION_ID, id));
        world.ask(subscriber, Subscribe::new(1, &[("t", 0)]).props(props));
        world.send(publisher, Publish::new("t", "x"));
        assert_eq!(world.message(subscriber).props.numbers(property::SUBSCRIPTION_ID), expected);
    }
}

// covers: MQTT-3.3.2-3
#[test]
fn the_topic_delivered_is_the_topic_published() {
    let mut world = World::new();
    let subscriber = world.client("subscriber");
    world.subscribe(subscriber, "+/b/#", 0);
    let publisher = world.client("publisher");
    for topic in ["a/b", "a/b/c", "/b", "a/b/", "b/a", "a", "a/B"] {
        world.send(publisher, Publish::new(topic, "x"));
    }
    let topics: Vec<_> = world.messages(subscriber).into_iter().map(|message| message.topic).collect();
    assert_eq!(topics, ["a/b", "a/b/c", "/b", "a/b/"]);
}

// covers: MQTT-3.3.4-9, MQTT-3.3.4-10, MQTT-4.9.0-1, MQTT-4.9.0-2, MQTT-4.9.0-3
#[test]
fn no_more_than_the_receive_maximum_is_in_flight() {
    for (qos, maximum) in [(1, 1), (1, 3), (2, 1), (2, 3)] {
        let mut world = World::new();
        let subscriber = world.connect(&Connect::v5("subscriber").receive_maximum(maximum));
        world.subscribe(subscriber, "t", qos);
        world.subscribe(subscriber, "fast", 0);
        let publisher = world.client("publisher");
        for number in 1..=10 {
            world.send(publisher, Publish::new("t", number.to_string()).qos(qos, number));
        }
        let mut open: Vec<u16> = world.messages(subscriber).iter().map(|message| message.id).collect();
        assert_eq!(open.len(), maximum as usize, "QoS {qos}");
        world.send(publisher, Publish::new("fast", "x"));
        assert_eq!(world.message(subscriber).topic, "fast", "QoS 0 does not wait");
        assert_eq!(world.ask(subscriber, PINGREQ), Packet::Pingresp, "nor does anything else");
        assert!(matches!(world.ask(subscriber, Subscribe::new(9, &[("u", 1)])), Packet::Suback { id: 9, .. }));
        let mut received = open.len();
        while let Some(id) = open.pop() {
            if qos == 1 {
                world.send(subscriber, puback(id));
            } else {
                assert!(matches!(world.ask(subscriber, pubrec(id)), Packet::Ack { .. }), "PUBREL, and no PUBLISH yet");
                world.send(subscriber, pubcomp(id));
            }
            let next = world.messages(subscriber);
            assert!(next.len() <= 1, "one acknowledgement makes room for one");
            received += next.len();
            open.extend(next.iter().map(|message| message.id));
        }
        assert_eq!(received, 10);
    }
}

// covers: MQTT-3.8.3-3
#[test]
fn no_local_keeps_a_client_from_its_own_messages() {
    let mut world = World::new();
    let conn = world.client("a");
    world.subscribe(conn, "t", option::NO_LOCAL);
    world.subscribe(conn, "u", 0);
    let other = world.client("b");
    world.send(conn, Publish::new("t", "own"));
    world.send(conn, Publish::new("u", "own"));
    world.send(other, Publish::new("t", "other"));
    let received: Vec<_> = world.messages(conn).iter().map(|m| (m.topic.clone(), m.text().to_owned())).collect();
    assert_eq!(received, [("u".into(), "own".into()), ("t".into(), "other".into())] as [(String, String); 2]);
}

// covers: MQTT-3.3.4-3, MQTT-3.3.4-5
#[test]
fn a_subscription_identifier_comes_with_every_kind_of_delivery() {
    let mut world = World::new();
    let publisher = world.client("publisher");
    world.send(publisher, Publish::new("t", "retained").retain());
    let connect = Connect::v5("subscriber").expiry(100);
    let conn = world.connect(&connect);
    for (filter, identifier) in [("t", 7), ("$share/group/s", 300)] {
        let filters = [(filter, 1)];
        let subscribe = Subscribe::new(1, &filters).props(Props::new().var(property::SUBSCRIPTION_ID, identifier));
        world.send(conn, subscribe);
    }
    let identifiers = |world: &mut World, conn| -> Vec<(String, Vec<u32>)> {
        let packets = world.packets(conn).into_iter();
        packets
            .filter_map(|packet| match packet {
                Packet::Publish(m) => Some((m.text().to_owned(), m.props.numbers(property::SUBSCRIPTION_ID))),
                _ => None,
            })
            .collect()
    };
    let expected = |payload: &str, identifier: u32| (payload.to_owned(), vec![identifier]);
    assert_eq!(identifiers(&mut world, conn), [expected("retained", 7)]);
    world.send(publisher, Publish::new("t", "live").qos(1, 1));
    world.send(publisher, Publish::new("s", "shared").qos(1, 2));
    assert_eq!(identifiers(&mut world, conn), [expected("live", 7), expected("shared", 300)]);
    world.fail(conn);
    world.send(publisher, Publish::new("t", "waiting").qos(1, 3));
    let conn = world.connect(&connect.resume());
    let all = identifiers(&mut world, conn);
    assert!(all.contains(&expected("live", 7)) && all.contains(&expected("waiting", 7)), "{all:?}");
    assert!(all.contains(&expected("shared", 300)), "{all:?}");
}

#[test]
fn importance_and_deadline_are_numbers_within_their_bounds() {
    let mut world = World::new();
    let (subscriber, publisher) = (world.client("subscriber"), world.client("publisher"));
    world.subscribe(subscriber, "t", 0);
    for (name, value, fits) in [
        ("w-importance", "1", true),
        ("w-importance", "10", true),
        ("w-importance", "0", false),
        ("w-importance", "11", false),
        ("w-importance", "high", false),
        ("w-deadline-ms", "0", true),
        ("w-deadline-ms", "4294967296", false),
        ("w-deadline-ms", "-1", false),
    ] {
        let publish = Publish::new("t", value).qos(1, 1).props(Props::new().user(name, value));
        let Packet::Ack { kind: Ack::Puback, code, props, .. } = world.ask(publisher, publish) else {
            panic!("PUBACK expected for {name} {value}")
        };
        assert_eq!(code, if fits { 0 } else { 0x83 }, "{name} {value}");
        let reason = props.text(property::REASON_STRING).unwrap_or_default();
        assert_eq!(reason.starts_with(name), !fits, "{name} {value}: {reason}");
        assert_eq!(world.payloads(subscriber).len(), usize::from(fits));
    }
}
