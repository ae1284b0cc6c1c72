//! Retained messages (3.3.1.3, 3.8.3.1).

use whimbrel_mqtt::Config;

use crate::wire::{Ack, Connect, Packet, Publish, Subscribe, ack, option, puback, pubcomp, pubrec, pubrel};
use crate::world::{World, quiet, seconds};

/// The retained messages that a new client's subscription gets: topic, payload, QoS.
fn retained(world: &mut World, filter: &str, options: u8) -> Vec<(String, String, u8)> {
    let conn = world.client("");
    world.subscribe(conn, filter, options);
    let messages = world.messages(conn);
    world.leave(conn);
    assert!(messages.iter().all(|message| message.retain), "{messages:?}");
    messages.iter().map(|message| (message.topic.clone(), message.text().to_owned(), message.qos)).collect()
}

fn payloads(world: &mut World, filter: &str) -> Vec<String> {
    retained(world, filter, 0).into_iter().map(|(_, payload, _)| payload).collect()
}

// covers: MQTT-3.3.1-5, MQTT-3.3.1-9
#[test]
fn the_newest_retained_message_of_a_topic_is_kept() {
    let mut world = World::new();
    let publisher = world.client("publisher");
    for payload in ["1", "2", "3"] {
        world.send(publisher, Publish::new("a/b", payload).retain());
    }
    world.send(publisher, Publish::new("a/c", "4").retain());
    assert_eq!(payloads(&mut world, "a/b"), ["3"]);
    let mut all = payloads(&mut world, "a/#");
    all.sort();
    assert_eq!(all, ["3", "4"]);
    assert_eq!(payloads(&mut world, "a"), [] as [&str; 0]);
}

// covers: MQTT-3.3.1-5, MQTT-3.8.4-8
#[test]
fn a_retained_message_has_the_lower_of_both_qos() {
    for published in 0..=2 {
        for granted in 0..=2 {
            let mut world = World::new();
            let publisher = world.client("publisher");
            world.send(publisher, Publish::new("t", "x").qos(published, 1).retain());
            let messages = retained(&mut world, "t", granted);
            assert_eq!(messages, [("t".into(), "x".into(), published.min(granted))]);
        }
    }
}

// covers: MQTT-3.3.1-6, MQTT-3.3.1-7
#[test]
fn an_empty_retained_message_is_delivered_and_clears_the_topic() {
    let mut world = World::new();
    let subscriber = world.client("subscriber");
    world.subscribe(subscriber, "t", option::RETAIN_AS_PUBLISHED);
    let publisher = world.client("publisher");
    world.send(publisher, Publish::new("t", "x").retain());
    world.send(publisher, Publish::new("t", "").retain());
    let seen: Vec<_> = world.messages(subscriber).iter().map(|m| (m.payload.len(), m.retain)).collect();
    assert_eq!(seen, [(1, true), (0, true)], "processed normally");
    assert_eq!(retained(&mut world, "t", 0), []);
    world.send(publisher, Publish::new("never set", "").retain());
    assert_eq!(retained(&mut world, "#", 0), []);
}

// covers: MQTT-3.3.1-8
#[test]
fn an_ordinary_message_leaves_the_retained_one() {
    let mut world = World::new();
    let publisher = world.client("publisher");
    world.send(publisher, Publish::new("other", "x"));
    world.send(publisher, Publish::new("t", "kept").retain());
    world.send(publisher, Publish::new("t", "passing"));
    world.send(publisher, Publish::new("t", ""));
    assert_eq!(payloads(&mut world, "#"), ["kept"]);
}

// covers: MQTT-3.3.1-9, MQTT-3.3.1-10, MQTT-3.3.1-11, MQTT-3.8.4-4
#[test]
fn retain_handling_decides_when_retained_messages_are_sent() {
    let mut world = World::new();
    let publisher = world.client("publisher");
    world.send(publisher, Publish::new("t", "x").retain());
    for (handling, first, again) in [(0, 1, 1), (option::RETAIN_IF_NEW, 1, 0), (option::RETAIN_NEVER, 0, 0)] {
        let conn = world.client("subscriber");
        world.subscribe(conn, "t", handling);
        assert_eq!(world.messages(conn).len(), first, "handling {handling:#x}, new");
        world.subscribe(conn, "t", handling | 1);
        assert_eq!(world.messages(conn).len(), again, "handling {handling:#x}, existing");
    }
}

// covers: MQTT-3.3.1-10
#[test]
fn a_resumed_subscription_is_not_new() {
    let mut world = World::new();
    let publisher = world.client("publisher");
    world.send(publisher, Publish::new("t", "x").retain());
    let connect = Connect::v5("subscriber").expiry(100);
    let conn = world.connect(&connect);
    world.subscribe(conn, "t", option::RETAIN_IF_NEW);
    assert_eq!(world.messages(conn).len(), 1);
    world.fail(conn);
    let conn = world.connect(&connect.resume());
    assert_eq!(world.messages(conn), [], "resuming is not subscribing");
    world.subscribe(conn, "t", option::RETAIN_IF_NEW);
    assert_eq!(world.messages(conn), []);
}

// covers: MQTT-3.3.1-12, MQTT-3.3.1-13
#[test]
fn retain_as_published_decides_over_the_retain_mark() {
    let mut world = World::new();
    let plain = world.client("plain");
    world.subscribe(plain, "t", 0);
    let marked = world.client("marked");
    world.subscribe(marked, "t", option::RETAIN_AS_PUBLISHED);
    let publisher = world.client("publisher");
    world.send(publisher, Publish::new("t", "1").retain());
    world.send(publisher, Publish::new("t", "2"));
    let marks = |world: &mut World, conn| world.messages(conn).iter().map(|m| m.retain).collect::<Vec<_>>();
    assert_eq!(marks(&mut world, plain), [false, false]);
    assert_eq!(marks(&mut world, marked), [true, false]);
}

// covers: MQTT-3.3.1-9
#[test]
fn each_filter_of_a_subscribe_gets_its_retained_messages() {
    let mut world = World::new();
    let publisher = world.client("publisher");
    for topic in ["a/b", "a/c", "d"] {
        world.send(publisher, Publish::new(topic, topic).retain());
    }
    let conn = world.client("subscriber");
    world.send(conn, Subscribe::new(1, &[("a/+", 0), ("d", option::RETAIN_NEVER), ("+/b", 0)]));
    let mut packets = world.packets(conn).into_iter();
    assert!(matches!(packets.next(), Some(Packet::Suback { .. })), "SUBACK comes first");
    let mut seen: Vec<_> = packets
        .map(|packet| match packet {
            Packet::Publish(message) => message.topic,
            other => panic!("PUBLISH expected, got {other:?}"),
        })
        .collect();
    seen.sort();
    assert_eq!(seen, ["a/b", "a/b", "a/c"]);
}

// covers: MQTT-3.3.1-9
#[test]
fn a_shared_subscription_gets_no_retained_messages() {
    let mut world = World::new();
    let publisher = world.client("publisher");
    world.send(publisher, Publish::new("t", "x").retain());
    assert_eq!(retained(&mut world, "$share/group/t", 0), []);
    assert_eq!(payloads(&mut world, "t"), ["x"]);
}

// covers: MQTT-3.3.1-9, MQTT-4.7.1-1, MQTT-4.7.1-2
#[test]
fn filters_find_the_retained_messages_that_they_match() {
    let mut world = World::new();
    let publisher = world.client("publisher");
    // Some of these sort between a topic and the topics below it.
    for topic in
        ["a", "a!", "a-b", "a/", "a/b", "a/b/c", "a/b-c", "a0", "ab", "b", "b/c", "/", "/a", "//", "\u{10FFFD}"]
    {
        world.send(publisher, Publish::new(topic, topic).retain());
    }
    for (filter, expected) in [
        ("a", &["a"][..]),
        ("a/#", &["a", "a/", "a/b", "a/b-c", "a/b/c"]),
        ("a/b/#", &["a/b", "a/b/c"]),
        ("a/+", &["a/", "a/b", "a/b-c"]),
        ("+/b", &["a/b"]),
        ("+", &["a", "a!", "a-b", "a0", "ab", "b", "\u{10FFFD}"]),
        ("+/+", &["/", "/a", "a/", "a/b", "a/b-c", "b/c"]),
        ("/#", &["/", "//", "/a"]),
        ("/+", &["/", "/a"]),
        ("a/b/c/#", &["a/b/c"]),
        ("\u{10FFFD}/#", &["\u{10FFFD}"]),
        ("c/#", &[]),
    ] {
        let mut found = payloads(&mut world, filter);
        found.sort();
        assert_eq!(found, expected, "{filter}");
    }
    assert_eq!(payloads(&mut world, "#").len(), 15);
}

// covers: MQTT-3.3.1-5
#[test]
fn at_the_bound_a_message_reaches_its_subscribers_is_accepted_and_not_kept() {
    let core = whimbrel_core::Limits { retained_max: 1, ..whimbrel_core::Limits::default() };
    for connect in [Connect::v5("publisher"), Connect::v311("publisher")] {
        let mut world = World::with(Config { core: core.clone(), ..quiet() });
        let subscriber = world.client("subscriber");
        world.subscribe(subscriber, "#", 2);
        let publisher = world.connect(&connect);
        world.send(publisher, Publish::new("kept", "x").retain());
        for (qos, topic) in ["zero", "one", "two"].into_iter().enumerate() {
            let publish = Publish::new(topic, "y").retain().qos(qos as u8, 7);
            match qos {
                0 => world.send(publisher, publish),
                1 => assert_eq!(world.ask(publisher, publish), ack(Ack::Puback, 7)),
                _ => {
                    assert_eq!(world.ask(publisher, publish), ack(Ack::Pubrec, 7));
                    assert_eq!(world.ask(publisher, pubrel(7)), ack(Ack::Pubcomp, 7));
                }
            }
        }
        let seen: Vec<_> = world.messages(subscriber).iter().map(|m| (m.topic.clone(), m.qos)).collect();
        let expected = [("kept", 0), ("zero", 0), ("one", 1), ("two", 2)];
        assert_eq!(seen, expected.map(|(topic, qos)| (topic.to_owned(), qos)));
        assert_eq!(retained(&mut world, "#", 0).len(), 1);
        assert_eq!(world.stats().core.retained_refused, 3);
    }
}

// covers: MQTT-3.3.1-9
#[test]
fn what_is_retained_comes_whole_to_a_client_with_a_small_window_and_one_packet_at_a_time() {
    let core = whimbrel_core::Limits {
        session_queue_bytes: 2_000,
        best_effort_queue_bytes: 2_000,
        ..whimbrel_core::Limits::default()
    };
    for qos in 0..=2 {
        let mut world = World::with(Config { core: core.clone(), ..quiet() });
        let publisher = world.client("publisher");
        for number in 0..300 {
            world.send(publisher, Publish::new(format!("t/{number:03}"), [b'x'; 100]).qos(qos, 1).retain());
            if qos == 2 {
                world.send(publisher, pubrel(1));
            }
        }
        let subscriber = world.connect(&Connect::v5("subscriber").receive_maximum(1));
        world.send(subscriber, Subscribe::new(1, &[("t/#", qos)]));
        let mut topics = Vec::new();
        loop {
            let packets = world.packets(subscriber);
            if packets.is_empty() {
                break;
            }
            for packet in packets {
                match packet {
                    Packet::Publish(message) => {
                        match message.qos {
                            0 => {}
                            1 => world.send(subscriber, puback(message.id)),
                            _ => world.send(subscriber, pubrec(message.id)),
                        }
                        topics.push(message.topic);
                    }
                    Packet::Ack { kind: Ack::Pubrel, id, .. } => world.send(subscriber, pubcomp(id)),
                    Packet::Suback { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
            world.advance(seconds(1));
        }
        let expected: Vec<String> = (0..300).map(|number| format!("t/{number:03}")).collect();
        assert_eq!(topics, expected, "QoS {qos}");
    }
}
