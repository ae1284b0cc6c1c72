//! Shared subscriptions (4.8.2).

use whimbrel_mqtt::ConnId;

use crate::wire::{
    Connect, Message, Packet, Publish, Subscribe, Unsubscribe, acknowledge_with, option, puback, pubcomp, pubrec,
};
use crate::world::{World, seconds};

const FILTER: &str = "$share/group/t";

/// Two members with lasting sessions and that QoS, and a publisher.
fn group(world: &mut World, qos: u8) -> ([ConnId; 2], ConnId) {
    let members = ["one", "two"].map(|name| {
        let conn = world.connect(&Connect::v5(name).expiry(100));
        world.subscribe(conn, FILTER, qos);
        conn
    });
    (members, world.client("publisher"))
}

/// Publishes once; returns the index of the member that got the message, and the message.
fn chosen(world: &mut World, members: [ConnId; 2], publisher: ConnId, qos: u8) -> (usize, Message) {
    world.send(publisher, Publish::new("t", "x").qos(qos, 1));
    world.packets(publisher);
    let mut got = members.map(|member| world.messages(member));
    let index = got.iter().position(|messages| !messages.is_empty()).expect("a member gets the message");
    assert_eq!(got[0].len() + got[1].len(), 1, "only one member gets it");
    (index, got[index].remove(0))
}

fn name(index: usize) -> Connect {
    Connect::v5(["one", "two"][index]).expiry(100).resume()
}

// covers: MQTT-4.8.2-1
#[test]
fn each_message_goes_to_one_member() {
    let mut world = World::new();
    let members = ["one", "two", "three"].map(|name| {
        let conn = world.client(name);
        world.subscribe(conn, FILTER, 1);
        conn
    });
    let alone = world.client("alone");
    world.subscribe(alone, "$share/other/t", 0);
    let plain = world.client("plain");
    world.subscribe(plain, "t", 0);
    let publisher = world.client("publisher");
    for number in 1..=30 {
        world.send(publisher, Publish::new("t", number.to_string()).qos(1, number));
    }
    let mut shared = Vec::new();
    for member in members {
        let messages = world.messages(member);
        assert!(!messages.is_empty(), "every member has its part");
        shared.extend(messages.iter().map(|message| message.text().parse::<u16>().expect("a number")));
    }
    shared.sort();
    assert_eq!(shared, (1..=30).collect::<Vec<_>>());
    assert_eq!(world.messages(alone).len(), 30, "another group is another subscription");
    assert_eq!(world.messages(plain).len(), 30);
}

// covers: MQTT-4.8.2-1, MQTT-4.8.2-2, MQTT-3.8.4-7, MQTT-3.9.3-2
#[test]
fn impossible_shared_filters_are_refused() {
    let mut world = World::new();
    for filter in
        ["$share/", "$share//t", "$share/group", "$share/group/", "$share/gr+up/t", "$share/#/t", "$share/g#/t"]
    {
        let conn = world.client("a");
        world.send(conn, Subscribe::new(1, &[(filter, 0)]));
        world.assert_disconnected(conn, 0x82);
        let conn = world.client("a");
        world.send(conn, Unsubscribe { id: 1, filters: &[filter] });
        world.assert_disconnected(conn, 0x82);
    }
}

// covers: MQTT-3.8.3-4, MQTT-4.13.1-1
#[test]
fn no_local_on_a_shared_subscription_is_a_protocol_error() {
    let mut world = World::new();
    let conn = world.client("a");
    world.send(conn, Subscribe::new(1, &[("t", 0), (FILTER, option::NO_LOCAL)]));
    world.assert_disconnected(conn, 0x82);
}

// covers: MQTT-4.8.2-3
#[test]
fn each_member_gets_messages_within_the_qos_granted_to_it() {
    for published in 0..=2 {
        let mut world = World::new();
        let members = [0, 1, 2].map(|qos| {
            let conn = world.client(&format!("member {qos}"));
            world.subscribe(conn, FILTER, qos);
            conn
        });
        let publisher = world.client("publisher");
        for number in 1..=30 {
            world.send(publisher, Publish::new("t", "x").qos(published, number));
        }
        let mut total = 0;
        for (granted, member) in members.into_iter().enumerate() {
            for message in world.messages(member) {
                assert_eq!(message.qos, published.min(granted as u8));
                total += 1;
            }
        }
        assert_eq!(total, 30);
    }
}

// covers: MQTT-4.8.2-4
#[test]
fn a_qos_2_delivery_is_completed_with_the_member_that_comes_back() {
    let mut world = World::new();
    let (members, publisher) = group(&mut world, 2);
    let (index, message) = chosen(&mut world, members, publisher, 2);
    world.fail(members[index]);
    assert_eq!(world.messages(members[1 - index]), []);
    let back = world.connect(&name(index));
    let again = world.message(back);
    assert_eq!((again.id, again.dup, again.qos), (message.id, true, 2));
    world.send(back, pubrec(again.id));
    world.fail(back);
    let back = world.connect(&name(index));
    assert!(matches!(world.packets(back).as_slice(), [Packet::Ack { id, .. }] if *id == message.id), "PUBREL");
    world.send(back, pubcomp(message.id));
    assert_eq!(world.messages(members[1 - index]), []);
}

// covers: MQTT-4.8.2-5
#[test]
fn a_qos_2_delivery_to_a_member_whose_session_ends_goes_to_nobody_else() {
    let mut world = World::new();
    let (members, publisher) = group(&mut world, 2);
    let (index, _) = chosen(&mut world, members, publisher, 2);
    world.fail(members[index]);
    world.advance(seconds(1000));
    assert_eq!(world.messages(members[1 - index]), []);
}

// covers: MQTT-4.8.2-6, MQTT-4.4.0-2
#[test]
fn a_message_that_a_member_refuses_goes_to_nobody_else() {
    for qos in 1..=2 {
        let mut world = World::new();
        let (members, publisher) = group(&mut world, qos);
        let (index, message) = chosen(&mut world, members, publisher, qos);
        world.send(members[index], acknowledge_with([0x40, 0x50][qos as usize - 1], message.id, 0x97));
        world.fail(members[index]);
        world.advance(seconds(1000));
        assert_eq!(world.messages(members[1 - index]), [], "QoS {qos}");
        let back = world.connect(&name(index));
        assert_eq!(world.packets(back), []);
    }
}

// covers: MQTT-4.5.0-1
#[test]
fn what_a_member_did_not_acknowledge_at_qos_1_is_not_lost() {
    let mut world = World::new();
    let (members, publisher) = group(&mut world, 1);
    let (index, message) = chosen(&mut world, members, publisher, 1);
    world.fail(members[index]);
    let other = world.messages(members[1 - index]);
    let back = world.connect(&name(index));
    let mine = world.messages(back);
    assert_eq!(other.len() + mine.len(), 1, "either the other member or the returning one gets it");
    assert_eq!(other.iter().chain(&mine).next().expect("one").text(), message.text());
}

// covers: MQTT-4.5.0-1
#[test]
fn messages_wait_while_all_members_with_sessions_are_away() {
    let mut world = World::new();
    let (members, publisher) = group(&mut world, 1);
    for member in members {
        world.fail(member);
    }
    world.send(publisher, Publish::new("t", "x").qos(1, 1));
    let back = world.connect(&name(1));
    let message = world.message(back);
    assert_eq!(message.text(), "x");
    world.send(back, puback(message.id));
    let other = world.connect(&name(0));
    assert_eq!(world.messages(other), [], "once");
}

// covers: MQTT-3.10.4-1, MQTT-3.10.4-2
#[test]
fn unsubscribing_leaves_the_group() {
    let mut world = World::new();
    let (members, publisher) = group(&mut world, 0);
    let answer = world.ask(members[0], Unsubscribe { id: 5, filters: &[FILTER] });
    assert!(matches!(answer, Packet::Unsuback { id: 5, codes, .. } if codes == [0]));
    for _ in 0..10 {
        world.send(publisher, Publish::new("t", "x"));
    }
    assert_eq!(world.messages(members[0]), []);
    assert_eq!(world.messages(members[1]).len(), 10);
}
