//! The exchanges of QoS 1 and 2 in both directions (3.4 to 3.7, 4.3).

use crate::wire::{
    Ack, Connect, Packet, Props, Publish, ack, acknowledge_with, packet, property, puback, pubcomp, pubrec, pubrel,
};
use crate::world::{World, seconds};

const PUBREC: u8 = 0x50;
const PUBREL: u8 = 0x62;
const PUBACK: u8 = 0x40;
const PUBCOMP: u8 = 0x70;
const NOT_FOUND: u8 = 0x92;

/// The identifier that an acknowledgement of that kind carries, if it reports success.
fn acknowledged(packet: &Packet, expected: Ack) -> Option<u16> {
    match packet {
        Packet::Ack { kind, id, code, .. } if *kind == expected && *code < 0x80 => Some(*id),
        _ => None,
    }
}

/// A world with a subscriber of that QoS to `t`, and a publisher.
fn pair(qos: u8) -> (World, whimbrel_mqtt::ConnId, whimbrel_mqtt::ConnId) {
    let mut world = World::new();
    let subscriber = world.connect(&Connect::v5("subscriber").expiry(1000));
    world.subscribe(subscriber, "t", qos);
    let publisher = world.connect(&Connect::v5("publisher").expiry(1000));
    (world, subscriber, publisher)
}

// covers: MQTT-4.3.2-4, MQTT-2.2.1-5, MQTT-3.3.4-1, MQTT-3.4.2-1
#[test]
fn qos_1_is_acknowledged_with_its_identifier() {
    let (mut world, _, publisher) = pair(0);
    for id in [1, 2, 0x1234, 65_535] {
        let answer = world.ask(publisher, Publish::new("t", "x").qos(1, id));
        assert_eq!(answer, ack(Ack::Puback, id));
        let unwanted = world.ask(publisher, Publish::new("nobody", "x").qos(1, id));
        assert!(matches!(unwanted, Packet::Ack { kind: Ack::Puback, code: 0x00 | 0x10, .. }), "{unwanted:?}");
    }
}

// covers: MQTT-4.3.2-5, MQTT-3.3.1-3
#[test]
fn after_puback_an_identifier_is_a_new_message() {
    let (mut world, subscriber, publisher) = pair(0);
    world.ask(publisher, Publish::new("t", "first").qos(1, 9));
    world.ask(publisher, Publish::new("t", "second").qos(1, 9));
    world.ask(publisher, Publish::new("t", "third").qos(1, 9).dup());
    assert_eq!(world.payloads(subscriber), ["first", "second", "third"]);
}

// covers: MQTT-4.3.3-8, MQTT-4.3.3-11, MQTT-2.2.1-5, MQTT-3.3.4-1, MQTT-3.5.2-1, MQTT-3.7.2-1
#[test]
fn qos_2_is_received_and_completed_with_its_identifier() {
    let (mut world, subscriber, publisher) = pair(0);
    for id in [1, 0x1234, 65_535] {
        assert_eq!(world.ask(publisher, Publish::new("t", "x").qos(2, id)), ack(Ack::Pubrec, id));
        assert_eq!(world.ask(publisher, pubrel(id)), ack(Ack::Pubcomp, id));
        let unwanted = world.ask(publisher, Publish::new("nobody", "x").qos(2, id));
        assert!(matches!(unwanted, Packet::Ack { kind: Ack::Pubrec, code: 0x00 | 0x10, .. }), "{unwanted:?}");
        assert_eq!(world.ask(publisher, pubrel(id)), ack(Ack::Pubcomp, id));
    }
    assert_eq!(world.payloads(subscriber), ["x", "x", "x"]);
}

// covers: MQTT-4.3.3-10
#[test]
fn until_pubrel_a_repeated_publish_is_not_delivered_again() {
    let (mut world, subscriber, publisher) = pair(2);
    for message in [Publish::new("t", "x").qos(2, 5), Publish::new("t", "x").qos(2, 5).dup()] {
        let answer = world.ask(publisher, message);
        assert_eq!(acknowledged(&answer, Ack::Pubrec), Some(5));
    }
    assert_eq!(world.payloads(subscriber), ["x"]);

    world.fail(publisher);
    let publisher = world.connect(&Connect::v5("publisher").expiry(1000).resume());
    let answer = world.ask(publisher, Publish::new("t", "x").qos(2, 5).dup());
    assert_eq!(acknowledged(&answer, Ack::Pubrec), Some(5), "the session remembers it");
    assert_eq!(world.messages(subscriber), []);
}

// covers: MQTT-4.3.3-12
#[test]
fn after_pubcomp_an_identifier_is_a_new_message() {
    let (mut world, subscriber, publisher) = pair(0);
    for payload in ["first", "second"] {
        assert_eq!(world.ask(publisher, Publish::new("t", payload).qos(2, 5)), ack(Ack::Pubrec, 5));
        assert_eq!(world.ask(publisher, pubrel(5)), ack(Ack::Pubcomp, 5));
    }
    assert_eq!(world.payloads(subscriber), ["first", "second"]);
}

// covers: MQTT-4.3.3-9, MQTT-3.5.2-1, MQTT-3.5.2-2, MQTT-3.5.2-3, MQTT-3.4.2-1, MQTT-3.4.2-2
// covers: MQTT-3.4.2-3
#[test]
fn after_a_refusing_pubrec_an_identifier_is_a_new_message() {
    let mut world = World::new();
    let subscriber = world.client("subscriber");
    world.subscribe(subscriber, "#", 0);
    // Every packet is compared with the client's maximum when it is received.
    let publisher = world.connect(&Connect::v5("publisher").maximum_packet_size(20));
    world.ask(publisher, Publish::new("first", "x").qos(1, 1));
    let refused = world.ask(publisher, Publish::new("$second", "x").qos(2, 7));
    assert!(matches!(refused, Packet::Ack { kind: Ack::Pubrec, id: 7, code: 0x80.., .. }), "{refused:?}");
    let refused = world.ask(publisher, Publish::new("$second", "x").qos(1, 8));
    assert!(matches!(refused, Packet::Ack { kind: Ack::Puback, id: 8, code: 0x80.., .. }), "{refused:?}");
    let accepted = world.ask(publisher, Publish::new("third", "y").qos(2, 7));
    assert_eq!(acknowledged(&accepted, Ack::Pubrec), Some(7), "{accepted:?}");
    let topics: Vec<_> = world.messages(subscriber).into_iter().map(|message| message.topic).collect();
    assert_eq!(topics, ["first", "third"]);
}

// covers: MQTT-3.7.2-1, MQTT-3.7.2-2, MQTT-3.7.2-3, MQTT-4.3.3-11
#[test]
fn pubrel_for_nothing_is_completed_as_not_found() {
    let mut world = World::new();
    for connect in [Connect::v5("a"), Connect::v5("a").maximum_packet_size(20)] {
        let conn = world.connect(&connect);
        let answer = world.ask(conn, pubrel(77));
        assert!(matches!(answer, Packet::Ack { kind: Ack::Pubcomp, id: 77, code: 0 | NOT_FOUND, .. }), "{answer:?}");
        world.assert_undisturbed(conn);
    }
}

// covers: MQTT-4.3.3-13
#[test]
fn an_incoming_exchange_is_completed_though_the_message_has_expired() {
    let (mut world, _, publisher) = pair(2);
    let props = Props::new().u32(property::MESSAGE_EXPIRY, 1);
    assert_eq!(world.ask(publisher, Publish::new("t", "x").qos(2, 5).props(props)), ack(Ack::Pubrec, 5));
    world.advance(seconds(10));
    assert_eq!(world.ask(publisher, pubrel(5)), ack(Ack::Pubcomp, 5));
}

// covers: MQTT-4.3.2-1, MQTT-4.3.2-2, MQTT-4.3.3-1, MQTT-4.3.3-2, MQTT-2.2.1-4, MQTT-3.3.1-1
#[test]
fn a_new_delivery_has_an_unused_identifier_and_no_dup() {
    let (mut world, subscriber, publisher) = pair(2);
    let mut open = Vec::new();
    for number in 1..=50_u16 {
        let qos = 1 + (number % 2) as u8;
        world.send(publisher, Publish::new("t", number.to_string()).qos(qos, number));
        let message = world.message(subscriber);
        assert_eq!((message.qos, message.dup), (qos, false));
        assert!(message.id != 0 && !open.contains(&message.id), "{} is in use", message.id);
        open.push(message.id);
        if number % 5 == 0 && qos == 1 {
            world.send(subscriber, puback(open.pop().expect("just pushed")));
        }
    }
}

// covers: MQTT-4.3.2-1, MQTT-2.2.1-4
#[test]
fn identifiers_go_round_past_those_in_use() {
    let (mut world, subscriber, publisher) = pair(1);
    let mut seen = vec![0_u8; 1 << 16];
    // More than there are identifiers; every 20,000th message is acknowledged only when the next
    // such one comes.
    let mut held = 0;
    for number in 0..80_000_u32 {
        world.send(publisher, Publish::new("t", "x").qos(1, 1));
        let message = world.message(subscriber);
        assert!(message.id != 0 && message.id != held, "{} is in use", message.id);
        seen[message.id as usize] = 1;
        if number % 20_000 == 0 {
            let before = std::mem::replace(&mut held, message.id);
            if before != 0 {
                world.send(subscriber, puback(before));
            }
        } else {
            world.send(subscriber, puback(message.id));
        }
        world.packets(publisher);
    }
    assert_eq!(seen.iter().filter(|seen| **seen == 1).count(), 65_535, "all but zero are used");
}

// covers: MQTT-4.3.2-3, MQTT-4.4.0-1
#[test]
fn qos_1_is_unacknowledged_until_puback() {
    let (mut world, subscriber, publisher) = pair(1);
    world.send(publisher, Publish::new("t", "x").qos(1, 1));
    let first = world.message(subscriber);
    let mut conn = subscriber;
    for _ in 0..3 {
        world.fail(conn);
        conn = world.connect(&Connect::v5("subscriber").expiry(1000).resume());
        let again = world.message(conn);
        assert_eq!((again.id, again.dup, again.text()), (first.id, true, "x"));
    }
    world.send(conn, puback(first.id));
    world.fail(conn);
    conn = world.connect(&Connect::v5("subscriber").expiry(1000).resume());
    assert_eq!(world.messages(conn), []);
}

// covers: MQTT-4.3.3-3, MQTT-4.3.3-4, MQTT-4.3.3-5, MQTT-4.3.3-6, MQTT-4.4.0-1, MQTT-3.6.2-1
#[test]
fn qos_2_goes_through_its_phases_across_connections() {
    let (mut world, subscriber, publisher) = pair(2);
    let resume = Connect::v5("subscriber").expiry(1000).resume();
    world.send(publisher, Publish::new("t", "x").qos(2, 1));
    let first = world.message(subscriber);

    world.fail(subscriber);
    let conn = world.connect(&resume);
    let again = world.message(conn);
    assert_eq!((again.id, again.dup, again.qos), (first.id, true, 2), "until PUBREC it is sent again");
    assert_eq!(world.ask(conn, pubrec(first.id)), ack(Ack::Pubrel, first.id));

    world.fail(conn);
    let conn = world.connect(&resume);
    assert_eq!(world.packets(conn), [ack(Ack::Pubrel, first.id)], "after PUBREC only PUBREL is sent again");
    world.send(conn, pubcomp(first.id));

    world.fail(conn);
    let conn = world.connect(&resume);
    assert_eq!(world.packets(conn), [], "after PUBCOMP nothing");
}

// covers: MQTT-4.3.3-7, MQTT-4.3.3-13
#[test]
fn a_publish_that_was_sent_does_not_expire() {
    let (mut world, subscriber, publisher) = pair(2);
    let resume = Connect::v5("subscriber").expiry(1000).resume();
    let props = Props::new().u32(property::MESSAGE_EXPIRY, 5);
    world.send(publisher, Publish::new("t", "x").qos(2, 1).props(props));
    let first = world.message(subscriber);
    world.fail(subscriber);
    world.advance(seconds(60));
    let conn = world.connect(&resume);
    assert_eq!(world.message(conn).id, first.id);
    world.advance(seconds(60));
    assert_eq!(world.ask(conn, pubrec(first.id)), ack(Ack::Pubrel, first.id));
}

// covers: MQTT-4.3.3-4, MQTT-3.6.2-1, MQTT-3.6.2-2, MQTT-3.6.2-3
#[test]
fn pubrec_for_nothing_is_released_as_not_found() {
    let mut world = World::new();
    for connect in [Connect::v5("a"), Connect::v5("a").maximum_packet_size(20)] {
        let conn = world.connect(&connect);
        let answer = world.ask(conn, pubrec(77));
        assert!(matches!(answer, Packet::Ack { kind: Ack::Pubrel, id: 77, code: NOT_FOUND, .. }), "{answer:?}");
        world.assert_undisturbed(conn);
    }
}

// covers: MQTT-4.3.3-4, MQTT-4.4.0-2
#[test]
fn a_refusing_pubrec_ends_the_delivery() {
    let (mut world, subscriber, publisher) = pair(2);
    world.send(publisher, Publish::new("t", "x").qos(2, 1));
    let message = world.message(subscriber);
    world.send(subscriber, acknowledge_with(PUBREC, message.id, 0x80));
    assert_eq!(world.packets(subscriber), [], "no PUBREL");
    world.fail(subscriber);
    let conn = world.connect(&Connect::v5("subscriber").expiry(1000).resume());
    assert_eq!(world.packets(conn), [], "and no PUBLISH again");
}

// covers: MQTT-4.4.0-2
#[test]
fn a_refusing_puback_ends_the_delivery() {
    let (mut world, subscriber, publisher) = pair(1);
    for code in [0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99] {
        world.send(publisher, Publish::new("t", "x").qos(1, 1));
        let message = world.message(subscriber);
        world.send(subscriber, acknowledge_with(PUBACK, message.id, code));
        assert_eq!(world.packets(subscriber), []);
    }
    world.fail(subscriber);
    let conn = world.connect(&Connect::v5("subscriber").expiry(1000).resume());
    assert_eq!(world.packets(conn), []);
}

// covers: MQTT-4.3.2-3, MQTT-4.3.3-3, MQTT-2.2.1-5
#[test]
fn acknowledgements_of_nothing_change_nothing() {
    let (mut world, subscriber, publisher) = pair(2);
    world.send(publisher, Publish::new("t", "x").qos(2, 1));
    let message = world.message(subscriber);
    world.send(subscriber, puback(message.id + 1));
    world.send(subscriber, pubcomp(message.id + 1));
    assert_eq!(world.packets(subscriber), []);
    world.fail(subscriber);
    let conn = world.connect(&Connect::v5("subscriber").expiry(1000).resume());
    assert_eq!(world.message(conn).id, message.id, "still unacknowledged");
}

// covers: MQTT-4.3.2-3, MQTT-4.3.3-3, MQTT-4.13.1-1
#[test]
fn acknowledgements_of_another_kind_are_protocol_errors() {
    let refusal = |first, id| acknowledge_with(first, id, 0x80);
    for (qos, wrong) in [(1, vec![PUBREC, PUBCOMP]), (2, vec![PUBACK, PUBCOMP])] {
        for first in wrong {
            let (mut world, subscriber, publisher) = pair(2);
            world.send(publisher, Publish::new("t", "x").qos(qos, 1));
            let message = world.message(subscriber);
            world.send(subscriber, acknowledge_with(first, message.id, 0));
            world.assert_disconnected(subscriber, 0x82);
            let conn = world.connect(&Connect::v5("subscriber").expiry(1000).resume());
            let again = world.message(conn);
            assert_eq!((again.id, again.dup), (message.id, true), "still unacknowledged");
            if first != PUBCOMP {
                world.send(conn, refusal(first, message.id));
                world.assert_disconnected(conn, 0x82);
            }
        }
    }
    // A second phase asks for PUBCOMP, and takes a first one again.
    let (mut world, subscriber, publisher) = pair(2);
    world.send(publisher, Publish::new("t", "x").qos(2, 1));
    let message = world.message(subscriber);
    for _ in 0..2 {
        world.ask(subscriber, pubrec(message.id));
    }
    world.send(subscriber, puback(message.id));
    world.assert_disconnected(subscriber, 0x82);
}

// covers: MQTT-4.13.1-1
#[test]
fn acknowledgements_with_identifier_zero_are_protocol_errors() {
    for first in [PUBACK, PUBREC, PUBREL, PUBCOMP] {
        let mut world = World::new();
        let conn = world.client("a");
        world.send(conn, packet(first, &[0, 0]));
        world.assert_disconnected(conn, 0x82);
    }
}

// covers: MQTT-3.4.2-1, MQTT-3.5.2-1, MQTT-3.6.2-1, MQTT-3.7.2-1, MQTT-4.13.1-1
#[test]
fn reason_codes_of_other_packets_are_refused_in_acknowledgements() {
    let mut world = World::new();
    for (first, codes) in [
        (PUBACK, [0x01, 0x92, 0xFF]),
        (PUBREC, [0x01, 0x92, 0xFF]),
        (PUBREL, [0x01, 0x80, 0x10]),
        (PUBCOMP, [0x01, 0x80, 0x10]),
    ] {
        for code in codes {
            let conn = world.client("a");
            world.send(conn, acknowledge_with(first, 1, code));
            let packets = world.packets(conn);
            let told = matches!(packets.as_slice(), [Packet::Disconnect { code: 0x81 | 0x82, .. }]);
            assert!(told && world.is_closed(conn), "{first:#x} with {code:#x}: {packets:?}");
        }
    }
}

// covers: MQTT-4.4.0-1
#[test]
fn nothing_is_sent_again_on_the_same_connection() {
    let (mut world, subscriber, publisher) = pair(2);
    world.send(publisher, Publish::new("t", "1").qos(1, 1));
    world.send(publisher, Publish::new("t", "2").qos(2, 2));
    assert_eq!(world.payloads(subscriber), ["1", "2"]);
    world.advance(seconds(100_000));
    assert_eq!(world.packets(subscriber), []);
}

// covers: MQTT-4.5.0-2, MQTT-4.6.0-2, MQTT-4.6.0-3, MQTT-4.6.0-4
#[test]
fn acknowledgements_keep_the_order_of_what_they_acknowledge() {
    let (mut world, _, publisher) = pair(0);
    let numbers = [7, 3, 900, 1, 65_535, 2];
    let bytes: Vec<u8> = numbers.iter().flat_map(|id| encode(Publish::new("t", "x").qos(1, *id))).collect();
    world.send(publisher, bytes);
    assert_eq!(world.packets(publisher), numbers.map(|id| ack(Ack::Puback, id)));
    let bytes: Vec<u8> = numbers.iter().flat_map(|id| encode(Publish::new("t", "x").qos(2, *id))).collect();
    world.send(publisher, bytes);
    assert_eq!(world.packets(publisher), numbers.map(|id| ack(Ack::Pubrec, id)));
    world.send(publisher, numbers.map(pubrel).concat());
    assert_eq!(world.packets(publisher), numbers.map(|id| ack(Ack::Pubcomp, id)));
}

// covers: MQTT-4.6.0-4
#[test]
fn pubrels_have_the_order_of_the_pubrecs() {
    let (mut world, subscriber, publisher) = pair(2);
    for id in 1..=4 {
        world.send(publisher, Publish::new("t", "x").qos(2, id));
    }
    let ids: Vec<u16> = world.messages(subscriber).iter().map(|message| message.id).collect();
    let order = [ids[2], ids[0], ids[3], ids[1]];
    world.send(subscriber, order.map(pubrec).concat());
    assert_eq!(world.packets(subscriber), order.map(|id| ack(Ack::Pubrel, id)));
}

fn encode(publish: Publish) -> Vec<u8> {
    crate::wire::Encode::encode(&publish, crate::wire::V5)
}

// covers: MQTT-3.4.2-1, MQTT-3.5.2-1, MQTT-3.6.2-1, MQTT-3.7.2-1
#[test]
fn every_form_of_an_acknowledgement_is_read() {
    let (mut world, subscriber, publisher) = pair(2);
    let told = Props::new().data(property::REASON_STRING, "why").user("name", "value").user("name", "value");
    let forms = |first: u8, id: u16, code: u8| {
        let [high, low] = id.to_be_bytes();
        let full = [&[high, low, code][..], &told.bytes()].concat();
        [
            packet(first, &[high, low]),
            packet(first, &[high, low, code]),
            packet(first, &[high, low, code, 0]),
            packet(first, &full),
        ]
    };
    for form in 0..4 {
        world.send(publisher, Publish::new("t", "x").qos(1, 1));
        let message = world.message(subscriber);
        world.send(subscriber, forms(PUBACK, message.id, 0x10)[form].clone());

        assert_eq!(world.packets(publisher), [ack(Ack::Puback, 1)]);
        assert_eq!(world.ask(publisher, Publish::new("t", "x").qos(2, 2)), ack(Ack::Pubrec, 2));
        assert_eq!(world.ask(publisher, forms(PUBREL, 2, 0x92)[form].clone()), ack(Ack::Pubcomp, 2));
        let message = world.message(subscriber);
        let released = world.ask(subscriber, forms(PUBREC, message.id, 0x10)[form].clone());
        assert_eq!(released, ack(Ack::Pubrel, message.id), "0x10 is no refusal");
        world.send(subscriber, forms(PUBCOMP, message.id, 0x92)[form].clone());
        assert_eq!(world.packets(subscriber), []);
    }
    world.fail(subscriber);
    let conn = world.connect(&Connect::v5("subscriber").expiry(1000).resume());
    assert_eq!(world.packets(conn), [], "all is settled");
}
