//! Order (4.6).

use crate::wire::{Connect, Packet, Publish, option, puback, pubcomp, pubrec};
use crate::world::World;

fn numbers(payloads: &[String]) -> Vec<u16> {
    payloads.iter().map(|payload| payload.parse().expect("payloads are numbers")).collect()
}

// covers: MQTT-4.6.0-5, MQTT-4.6.0-6
#[test]
fn messages_of_a_publisher_arrive_in_order_at_every_qos() {
    let mut world = World::new();
    let subscribers = [0, 1, 2].map(|qos| {
        let subscriber = world.client(&format!("subscriber {qos}"));
        world.subscribe(subscriber, "a/+", qos);
        subscriber
    });
    let publisher = world.client("publisher");
    for number in 1..=100 {
        world.send(publisher, Publish::new(format!("a/{}", number % 3), number.to_string()).qos(2, number));
    }
    for subscriber in subscribers {
        assert_eq!(numbers(&world.payloads(subscriber)), (1..=100).collect::<Vec<_>>());
    }
}

// covers: MQTT-4.6.0-5, MQTT-3.3.4-9
#[test]
fn what_waits_for_the_receive_maximum_keeps_its_order() {
    let mut world = World::new();
    let subscriber = world.connect(&Connect::v5("subscriber").receive_maximum(3));
    world.subscribe(subscriber, "t", 1);
    let publisher = world.client("publisher");
    let mut received = Vec::new();
    for number in 1..=50 {
        world.send(publisher, Publish::new("t", number.to_string()).qos(1, number));
        if number % 2 == 0 {
            for message in world.messages(subscriber) {
                received.push(message.text().to_owned());
                world.send(subscriber, puback(message.id));
            }
        }
    }
    loop {
        let messages = world.messages(subscriber);
        if messages.is_empty() {
            break;
        }
        for message in messages {
            received.push(message.text().to_owned());
            world.send(subscriber, puback(message.id));
        }
    }
    assert_eq!(numbers(&received), (1..=50).collect::<Vec<_>>());
}

// covers: MQTT-4.6.0-1, MQTT-4.4.0-1, MQTT-3.3.1-1
#[test]
fn messages_are_sent_again_in_their_order_before_new_ones() {
    let mut world = World::new();
    let resume = Connect::v5("subscriber").expiry(100).resume();
    let subscriber = world.connect(&resume);
    world.subscribe(subscriber, "t", 2);
    let publisher = world.client("publisher");
    for number in 1..=9_u16 {
        world.send(publisher, Publish::new("t", number.to_string()).qos(1 + (number % 2) as u8, number));
    }
    let messages = world.messages(subscriber);
    world.send(subscriber, pubrec(messages[4].id));
    assert_eq!(world.packets(subscriber).len(), 1, "PUBREL");
    world.send(subscriber, pubcomp(messages[4].id));
    world.send(subscriber, puback(messages[7].id));
    world.fail(subscriber);
    world.send(publisher, Publish::new("t", "10").qos(1, 10));

    let conn = world.connect(&resume);
    let again = world.messages(conn);
    let seen: Vec<_> = again.iter().map(|m| (m.text().parse::<u16>().expect("a number"), m.dup)).collect();
    let repeated = [1, 2, 3, 4, 6, 7, 9].map(|number| (number, true));
    assert_eq!(seen, [&repeated[..], &[(10, false)]].concat());
    for (message, first) in again.iter().zip([0, 1, 2, 3, 5, 6, 8]) {
        assert_eq!(message.id, messages[first].id, "with the identifier it had");
    }
}

// covers: MQTT-4.6.0-1, MQTT-4.4.0-1
#[test]
fn what_is_sent_again_keeps_within_a_smaller_receive_maximum() {
    let mut world = World::new();
    let resume = Connect::v5("subscriber").expiry(100).resume();
    let subscriber = world.connect(&resume);
    world.subscribe(subscriber, "t", 1);
    let publisher = world.client("publisher");
    for number in 1..=6 {
        world.send(publisher, Publish::new("t", number.to_string()).qos(1, number));
    }
    assert_eq!(world.messages(subscriber).len(), 6);
    world.fail(subscriber);
    let conn = world.connect(&resume.receive_maximum(2));
    let mut received = Vec::new();
    for _ in 0..3 {
        let messages = world.messages(conn);
        assert_eq!(messages.len(), 2);
        for message in messages {
            received.push(message.text().to_owned());
            world.send(conn, puback(message.id));
        }
    }
    assert_eq!(numbers(&received), [1, 2, 3, 4, 5, 6]);
}

// covers: MQTT-4.6.0-5
#[test]
fn retained_messages_come_before_later_ones() {
    let mut world = World::new();
    let publisher = world.client("publisher");
    world.send(publisher, Publish::new("t", "1").retain());
    let subscriber = world.client("subscriber");
    world.subscribe(subscriber, "t", option::RETAIN_AS_PUBLISHED);
    world.send(publisher, Publish::new("t", "2"));
    let seen: Vec<_> = world.messages(subscriber).iter().map(|m| (m.text().to_owned(), m.retain)).collect();
    assert_eq!(seen, [("1".to_owned(), true), ("2".to_owned(), false)]);
}

// covers: MQTT-4.6.0-2, MQTT-3.3.4-1
#[test]
fn answers_to_a_burst_have_the_order_of_the_questions() {
    let mut world = World::new();
    let conn = world.client("a");
    let burst = [
        crate::wire::packet(0x32, b"\x00\x01t\x00\x01\x00x"),
        crate::wire::packet(0xC0, &[]),
        crate::wire::packet(0x82, b"\x00\x02\x00\x00\x01u\x00"),
        crate::wire::packet(0x34, b"\x00\x01t\x00\x03\x00x"),
        crate::wire::packet(0xA2, b"\x00\x04\x00\x00\x01u"),
    ];
    world.send(conn, burst.concat());
    match world.packets(conn).as_slice() {
        [
            Packet::Ack { id: 1, .. },
            Packet::Pingresp,
            Packet::Suback { id: 2, .. },
            Packet::Ack { id: 3, .. },
            Packet::Unsuback { id: 4, .. },
        ] => {}
        other => panic!("PUBACK, PINGRESP, SUBACK, PUBREC, UNSUBACK expected, got {other:?}"),
    }
}
