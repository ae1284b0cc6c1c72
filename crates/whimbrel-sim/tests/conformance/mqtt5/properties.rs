//! Message expiry, topic aliases both ways, maximum packet size, problem information (3.1.2.11,
//! 3.3.2.3).

use whimbrel_mqtt::{Config, ConnId, Limits};

use crate::wire::{
    Ack, Connect, Packet, Props, Publish, Subscribe, Unsubscribe, Will, acknowledge_with, disconnect, packet, property,
    puback, pubrec, pubrel,
};
use crate::world::{World, quiet, seconds};

fn alias(topic: &str, payload: &str, alias: u16) -> Publish {
    Publish::new(topic, payload).props(Props::new().u16(property::TOPIC_ALIAS, alias))
}

fn expiring(payload: &str, after: u32) -> Publish {
    Publish::new("t", payload).props(Props::new().u32(property::MESSAGE_EXPIRY, after))
}

// covers: MQTT-3.3.2-6
#[test]
fn message_expiry_is_forwarded_less_the_time_waited() {
    let mut world = World::new();
    let resume = Connect::v5("subscriber").expiry(1000).resume();
    let subscriber = world.connect(&resume);
    world.subscribe(subscriber, "t", 1);
    let publisher = world.client("publisher");
    world.send(publisher, expiring("now", 100).qos(1, 1));
    let message = world.message(subscriber);
    assert_eq!(message.props.number(property::MESSAGE_EXPIRY), Some(100));
    world.send(subscriber, puback(message.id));
    world.fail(subscriber);
    world.send(publisher, expiring("later", 100).qos(1, 2));
    world.advance(seconds(30));
    let conn = world.connect(&resume);
    assert_eq!(world.message(conn).props.number(property::MESSAGE_EXPIRY), Some(70));
}

// covers: MQTT-3.3.2-5
#[test]
fn an_expired_message_is_not_delivered() {
    let mut world = World::new();
    let resume = Connect::v5("subscriber").expiry(1000).resume();
    let subscriber = world.connect(&resume);
    world.subscribe(subscriber, "t", 2);
    world.fail(subscriber);
    let publisher = world.client("publisher");
    for (number, after) in [(1, 10), (2, 60), (3, 10)] {
        world.send(publisher, expiring(&format!("{after}"), after).qos(1 + (number % 2) as u8, number));
    }
    world.send(publisher, Publish::new("t", "never").qos(1, 4));
    world.advance(seconds(11));
    let conn = world.connect(&resume);
    assert_eq!(world.payloads(conn), ["60", "never"]);
}

// covers: MQTT-3.3.2-5, MQTT-3.3.2-6
#[test]
fn a_retained_message_expires_too() {
    let mut world = World::new();
    let publisher = world.client("publisher");
    world.send(publisher, expiring("x", 10).retain());
    world.advance(seconds(4));
    let early = world.client("early");
    world.subscribe(early, "t", 0);
    assert_eq!(world.message(early).props.number(property::MESSAGE_EXPIRY), Some(6));
    world.advance(seconds(7));
    let late = world.client("late");
    world.subscribe(late, "t", 0);
    assert_eq!(world.messages(late), []);
}

// covers: MQTT-3.3.2-5
#[test]
fn a_message_that_waits_for_the_receive_maximum_expires() {
    let mut world = World::new();
    let subscriber = world.connect(&Connect::v5("subscriber").receive_maximum(1));
    world.subscribe(subscriber, "t", 1);
    let publisher = world.client("publisher");
    for (number, after) in [(1, 100), (2, 10), (3, 100)] {
        world.send(publisher, expiring(&number.to_string(), after).qos(1, number));
    }
    world.advance(seconds(20));
    let first = world.message(subscriber);
    assert_eq!(first.text(), "1");
    world.send(subscriber, puback(first.id));
    let next = world.message(subscriber);
    assert_eq!((next.text(), next.props.number(property::MESSAGE_EXPIRY)), ("3", Some(80)));
}

// covers: MQTT-3.3.2-12, MQTT-3.3.2-8
#[test]
fn every_topic_alias_up_to_the_maximum_is_accepted() {
    let limits = Limits { topic_alias_maximum: 5, ..Limits::default() };
    let mut world = World::with(Config { limits, ..quiet() });
    let subscriber = world.client("subscriber");
    world.subscribe(subscriber, "#", 0);
    let publisher = world.client("publisher");
    for number in 1..=5 {
        world.send(publisher, alias(&format!("topic/{number}"), "set", number));
    }
    for number in (1..=5).rev() {
        world.send(publisher, alias("", "used", number));
    }
    world.send(publisher, alias("other", "changed", 3));
    world.send(publisher, alias("", "used", 3));
    let topics: Vec<_> = world.messages(subscriber).into_iter().map(|message| message.topic).collect();
    let set = [1, 2, 3, 4, 5].map(|number| format!("topic/{number}"));
    let used = [5, 4, 3, 2, 1].map(|number| format!("topic/{number}"));
    assert_eq!(topics, [&set[..], &used, &["other".into(), "other".into()]].concat());
}

// covers: MQTT-3.3.2-8, MQTT-3.3.2-9, MQTT-3.2.2-17, MQTT-3.2.2-18, MQTT-4.13.1-1
#[test]
fn impossible_topic_aliases_are_refused() {
    for (maximum, number, topic, code) in
        [(5, 0, "t", 0x94), (5, 6, "t", 0x94), (5, 65_535, "t", 0x94), (0, 1, "t", 0x94), (5, 4, "", 0x82)]
    {
        let limits = Limits { topic_alias_maximum: maximum, ..Limits::default() };
        let mut world = World::with(Config { limits, ..quiet() });
        let conn = world.client("a");
        world.send(conn, alias(topic, "x", number));
        world.assert_disconnected(conn, code);
    }
}

// covers: MQTT-3.3.2-7
#[test]
fn a_topic_alias_ends_with_the_connection() {
    let mut world = World::new();
    let connect = Connect::v5("a").expiry(100).resume();
    let conn = world.connect(&connect);
    world.send(conn, alias("t", "x", 1));
    world.fail(conn);
    let conn = world.connect(&connect);
    world.send(conn, alias("", "x", 1));
    world.assert_disconnected(conn, 0x82);
}

/// Publishes each of these topics to a subscriber with that topic alias maximum, which gets them
/// all.
fn delivered_with_aliases(world: &mut World, subscriber: ConnId, topics: &[&str]) -> usize {
    let publisher = world.client("publisher");
    for topic in topics {
        world.send(publisher, Publish::new(topic, "x"));
    }
    let messages = world.messages(subscriber);
    assert_eq!(messages.iter().map(|m| m.topic.as_str()).collect::<Vec<_>>(), topics);
    messages.iter().filter(|message| message.props.has(property::TOPIC_ALIAS)).count()
}

const TOPICS: [&str; 9] = ["a", "b", "a", "c", "d", "a", "b", "a", "d"];

// covers: MQTT-3.1.2-26, MQTT-3.3.2-8, MQTT-3.3.2-11
#[test]
fn topic_aliases_to_a_client_keep_within_its_maximum() {
    let mut world = World::new();
    // Every alias is compared with the client's maximum, and resolved, when it is received.
    for maximum in [1, 2, 65_535] {
        let subscriber = world.connect(&Connect::v5("subscriber").topic_alias_maximum(maximum));
        world.subscribe(subscriber, "+", 0);
        assert!(delivered_with_aliases(&mut world, subscriber, &TOPICS) > 0, "aliases are used");
    }
}

// covers: MQTT-3.1.2-27
#[test]
fn no_topic_alias_is_sent_to_a_client_that_wants_none() {
    let mut world = World::new();
    for connect in [Connect::v5("subscriber"), Connect::v5("subscriber").topic_alias_maximum(0)] {
        let subscriber = world.connect(&connect);
        world.subscribe(subscriber, "+", 0);
        assert_eq!(delivered_with_aliases(&mut world, subscriber, &TOPICS), 0);
    }
}

// covers: MQTT-3.3.2-7
#[test]
fn topic_aliases_to_a_client_end_with_the_connection() {
    let mut world = World::new();
    let connect = Connect::v5("subscriber").topic_alias_maximum(10).expiry(100);
    let subscriber = world.connect(&connect);
    world.subscribe(subscriber, "+", 0);
    delivered_with_aliases(&mut world, subscriber, &TOPICS);
    world.fail(subscriber);
    // On a new connection an alias that was not set anew would not be resolved.
    let subscriber = world.connect(&connect.resume());
    delivered_with_aliases(&mut world, subscriber, &TOPICS);
}

// covers: MQTT-3.1.2-24, MQTT-3.1.2-25, MQTT-4.5.0-1
#[test]
fn what_is_too_large_for_a_client_is_dropped_as_if_delivered() {
    let mut world = World::new();
    let small = world.connect(&Connect::v5("small").maximum_packet_size(60).receive_maximum(1));
    world.subscribe(small, "t", 2);
    let large = world.client("large");
    world.subscribe(large, "t", 0);
    let publisher = world.client("publisher");
    for qos in 0..=2 {
        world.send(publisher, Publish::new("t", [b'x'; 100]).qos(qos, 1));
        assert_eq!(world.message(large).payload.len(), 100, "QoS {qos}");
    }
    world.send(publisher, Publish::new("t", "fits").qos(1, 2));
    assert_eq!(world.payloads(small), ["fits"], "the dropped ones occupy no window");
}

// covers: MQTT-3.1.2-24, MQTT-3.1.2-25
#[test]
fn the_maximum_packet_size_is_exact() {
    let mut world = World::new();
    let publisher = world.client("publisher");
    // 2 of header and length, 3 of topic, 2 of identifier, 1 of properties.
    for (length, arrives) in [(12, true), (13, false)] {
        let subscriber = world.connect(&Connect::v5("subscriber").maximum_packet_size(20));
        world.subscribe(subscriber, "t", 1);
        world.send(publisher, Publish::new("t", vec![b'x'; length]).qos(1, 1));
        assert_eq!(world.messages(subscriber).len(), arrives as usize, "{length} bytes");
    }
}

/// Provokes an answer with an error, or an unusual one, of every kind that a client can provoke
/// without being disconnected.
fn provoke(world: &mut World, conn: ConnId) -> Vec<Packet> {
    world.send(conn, pubrel(900));
    world.send(conn, pubrec(901));
    world.send(conn, acknowledge_with(0x40, 902, 0x80));
    world.send(conn, Unsubscribe { id: 903, filters: &["not subscribed"] });
    world.send(conn, Subscribe::new(904, &[("t", 0), ("u", 1), ("v", 2)]));
    world.send(conn, Publish::new("$t2", "x").qos(1, 905));
    world.send(conn, Publish::new("$t3", "x").qos(2, 906));
    world.packets(conn)
}

fn world_that_refuses() -> World {
    let core = whimbrel_core::Limits { subscriptions_per_session: 1, ..whimbrel_core::Limits::default() };
    World::with(Config { core, ..quiet() })
}

// covers: MQTT-3.1.2-29
#[test]
fn without_problem_information_there_are_no_reason_strings() {
    let mut world = world_that_refuses();
    let conn = world.connect(&Connect::v5("a").props(Props::new().byte(property::REQUEST_PROBLEM_INFO, 0)));
    let packets = provoke(&mut world, conn);
    assert_eq!(packets.len(), 6, "{packets:?}");
    for packet in &packets {
        let (Packet::Ack { props, .. } | Packet::Suback { props, .. } | Packet::Unsuback { props, .. }) = packet else {
            panic!("an acknowledgement expected, got {packet:?}")
        };
        assert!(!props.has(property::REASON_STRING) && !props.has(property::USER), "{packet:?}");
    }
}

// covers: MQTT-3.1.2-29
#[test]
fn refusals_are_explained_to_a_client_that_wants_to_know() {
    let mut world = world_that_refuses();
    let asking = Props::new().byte(property::REQUEST_PROBLEM_INFO, 1);
    for connect in [Connect::v5("a"), Connect::v5("a").props(asking)] {
        let conn = world.connect(&connect);
        let mut explained = 0;
        for packet in provoke(&mut world, conn) {
            let refused = match &packet {
                Packet::Ack { kind: Ack::Puback | Ack::Pubrec, code: 0x80.., props, .. } => props,
                Packet::Suback { codes, props, .. } if codes.iter().any(|code| *code >= 0x80) => props,
                _ => continue,
            };
            assert!(refused.text(property::REASON_STRING).is_some_and(|reason| !reason.is_empty()), "{packet:?}");
            explained += 1;
        }
        assert_eq!(explained, 3, "SUBACK, PUBACK and PUBREC");
    }
}

// covers: MQTT-3.4.2-2, MQTT-3.4.2-3, MQTT-3.5.2-2, MQTT-3.5.2-3, MQTT-3.6.2-2, MQTT-3.6.2-3
// covers: MQTT-3.7.2-2, MQTT-3.7.2-3, MQTT-3.9.2-1, MQTT-3.9.2-2, MQTT-3.11.2-1, MQTT-3.11.2-2
#[test]
fn acknowledgements_keep_within_the_maximum_packet_size() {
    let mut world = world_that_refuses();
    // Every packet is compared with the client's maximum when it is received.
    for maximum in [16, 20, 24, 40] {
        let conn = world.connect(&Connect::v5("a").maximum_packet_size(maximum));
        let packets = provoke(&mut world, conn);
        assert_eq!(packets.len(), 6, "reason strings are left out, not the answers: {packets:?}");
        let kinds =
            packets.iter().filter(|packet| matches!(packet, Packet::Ack { kind: Ack::Pubcomp | Ack::Pubrel, .. }));
        assert_eq!(kinds.count(), 2);
        world.assert_undisturbed(conn);
    }
}

// covers: MQTT-3.1.2-25, MQTT-3.1.2-26
#[test]
fn a_topic_alias_that_was_not_sent_is_not_used() {
    let mut world = World::new();
    let subscriber = world.connect(&Connect::v5("subscriber").topic_alias_maximum(10).maximum_packet_size(60));
    world.subscribe(subscriber, "+", 1);
    let publisher = world.client("publisher");
    for qos in 0..=1 {
        let topic = format!("topic {qos}");
        world.send(publisher, Publish::new(&topic, [b'x'; 100]).qos(qos, 1));
        assert_eq!(world.messages(subscriber), [], "too large");
        // An alias that was not set would not be resolved.
        for _ in 0..3 {
            world.send(publisher, Publish::new(&topic, "fits").qos(qos, 1));
            assert_eq!(world.message(subscriber).topic, topic);
        }
    }
}

// covers: MQTT-3.3.2-7, MQTT-4.4.0-1
#[test]
fn what_is_sent_again_sets_its_topic_alias_again() {
    let mut world = World::new();
    let connect = Connect::v5("subscriber").topic_alias_maximum(10).expiry(100);
    let subscriber = world.connect(&connect);
    world.subscribe(subscriber, "+", 1);
    let publisher = world.client("publisher");
    for (id, topic) in [(1, "a"), (2, "a"), (3, "b")] {
        world.send(publisher, Publish::new(topic, "x").qos(1, id));
    }
    assert_eq!(world.messages(subscriber).len(), 3);
    world.fail(subscriber);
    let subscriber = world.connect(&connect.resume());
    let topics: Vec<_> = world.messages(subscriber).into_iter().map(|message| message.topic).collect();
    assert_eq!(topics, ["a", "a", "b"]);
}

// covers: MQTT-3.3.2-8, MQTT-3.3.2-12
#[test]
fn a_topic_alias_counts_although_the_message_is_refused() {
    let mut world = World::new();
    let subscriber = world.client("subscriber");
    world.subscribe(subscriber, "$t", 0);
    let publisher = world.client("publisher");
    for alias in [alias("$t", "x", 1).qos(1, 1), alias("", "y", 1).qos(1, 2)] {
        // The second one is refused for its topic, and not for its alias, with which the connection
        // would end.
        let refused = world.ask(publisher, alias);
        assert!(matches!(refused, Packet::Ack { code: 0x80.., .. }), "{refused:?}");
    }
    world.assert_undisturbed(publisher);
    assert!(world.payloads(subscriber).is_empty());
}

// covers: MQTT-4.13.1-1
#[test]
fn every_property_that_a_client_may_send_is_accepted() {
    let mut world = World::new();
    let reason = || Props::new().data(property::REASON_STRING, "because").user("name", "").user("", "value");
    let connect = Props::new()
        .user("first", "1")
        .u32(property::SESSION_EXPIRY, 10)
        .u16(property::RECEIVE_MAXIMUM, 65_535)
        .u32(property::MAXIMUM_PACKET_SIZE, u32::MAX)
        .u16(property::TOPIC_ALIAS_MAXIMUM, 65_535)
        .byte(property::REQUEST_RESPONSE_INFO, 1)
        .byte(property::REQUEST_PROBLEM_INFO, 1)
        .user("last", "2");
    let will = Props::new()
        .u32(property::WILL_DELAY, 1)
        .byte(property::PAYLOAD_FORMAT, 0)
        .u32(property::MESSAGE_EXPIRY, 1)
        .data(property::CONTENT_TYPE, "")
        .data(property::RESPONSE_TOPIC, "r")
        .data(property::CORRELATION_DATA, "")
        .user("", "");
    let conn = world.connect(&Connect::v5("a").props(connect).will(Will::new("w", "").props(will)));
    let filters = [("t", 1)];
    let subscribe = Subscribe::new(1, &filters).props(Props::new().var(property::SUBSCRIPTION_ID, 1).user("n", "v"));
    assert!(matches!(world.ask(conn, subscribe), Packet::Suback { codes, .. } if codes == [1]));
    let publish = Props::new()
        .u16(property::TOPIC_ALIAS, 1)
        .u32(property::MESSAGE_EXPIRY, 0)
        .byte(property::PAYLOAD_FORMAT, 0)
        .data(property::CORRELATION_DATA, [0; 1000]);
    world.send(conn, Publish::new("u", "").qos(1, 7).props(publish));
    let unsubscribe = [&b"\x00\x02"[..], &Props::new().user("n", "v").bytes(), b"\x00\x01t"].concat();
    world.send(conn, packet(0xA2, &unsubscribe));
    let packets = world.packets(conn);
    assert!(
        matches!(packets.as_slice(), [Packet::Ack { .. }, Packet::Unsuback { codes, .. }] if codes == &[0]),
        "{packets:?}"
    );
    world.assert_undisturbed(conn);
    world.send(conn, disconnect(0x04, &reason().u32(property::SESSION_EXPIRY, 3)));
    assert!(world.is_closed(conn));
    assert_eq!(world.packets(conn), []);
}
