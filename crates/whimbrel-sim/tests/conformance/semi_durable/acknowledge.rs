//! Acknowledgement by token.

use whimbrel_mqtt::ConnId;

use super::{ask, follow, from, publish, semi_durable, texts};
use crate::wire::property::{REASON_STRING, SUBSCRIPTION_ID};
use crate::wire::{Ack, Connect, Message, Packet, Props, Publish, Will, puback, pubrel};
use crate::world::World;

/// Publishes a token to where tokens are acknowledged.
fn acknowledge(token: &str) -> Publish {
    Publish::new("$whimbrel/ack", token)
}

/// Sends an acknowledgement with QoS 1, and returns the reason code and the reason.
fn answer(world: &mut World, conn: ConnId, publish: Publish) -> (u8, String) {
    match world.ask(conn, publish.qos(1, 77)) {
        Packet::Ack { kind: Ack::Puback, id: 77, code, props } => {
            (code, props.text(REASON_STRING).unwrap_or_default().to_owned())
        }
        other => panic!("PUBACK expected, got {other:?}"),
    }
}

fn by_token() -> Props {
    semi_durable().user("w-ack", "token")
}

/// The position after a message: its token with the name of the message advanced.
fn after(token: &str, message: &Message) -> String {
    let mut token: whimbrel_event::CheckpointToken = token.parse().expect("a token");
    let id = super::name(message).expect("a name").parse().expect("an event id");
    token.advance(id).expect("it covers no more than before");
    token.to_string()
}

/// A client that follows by token has got three messages: its connection, where it began, and what
/// came.
fn three_sent() -> (World, ConnId, String, Vec<Message>) {
    let mut world = World::new();
    let publisher = world.client("publisher");
    let (conn, _) = world.reconnect(&Connect::v5("a").expiry(100));
    let token = follow(&mut world, conn, "t", 1, by_token());
    publish(&mut world, publisher, &["1", "2", "3"]);
    let messages = world.messages(conn);
    (world, conn, token, messages)
}

#[test]
fn what_the_client_acknowledged_is_where_its_session_goes_on() {
    let (mut world, conn, token, messages) = three_sent();
    for message in &messages {
        world.send(conn, puback(message.id));
    }
    assert_eq!(answer(&mut world, conn, acknowledge(&after(&token, &messages[1]))), (0, String::new()));
    world.fail(conn);
    let (conn, _) = world.reconnect(&Connect::v5("a").expiry(100).resume());
    world.packets(conn);
    follow(&mut world, conn, "t", 1, by_token());
    assert_eq!(texts(&world.messages(conn)), ["3"], "a PUBACK acknowledges nothing");
    assert_eq!(world.stats().core.tokens_acknowledged, 1);
}

#[test]
fn a_token_with_the_ids_of_later_events_acknowledges_these() {
    let (mut world, conn, token, messages) = three_sent();
    let named: Vec<_> = messages[..2].iter().map(|message| super::name(message).expect("a name")).collect();
    let position = format!("{token},{},{}", named[0], named[1]);
    assert_eq!(answer(&mut world, conn, acknowledge(&position)), (0, String::new()));
    world.fail(conn);
    let (conn, _) = world.reconnect(&Connect::v5("a").expiry(100).resume());
    follow(&mut world, conn, "t", 1, by_token());
    assert_eq!(texts(&world.messages(conn)), ["3"]);
}

#[test]
fn each_quality_of_service_acknowledges_and_nobody_gets_the_message() {
    let mut world = World::new();
    let (conn, watcher) = (world.client("a"), world.client("b"));
    for filter in ["#", "$whimbrel/#", "$whimbrel/ack"] {
        world.subscribe(watcher, filter, 2);
    }
    let token = follow(&mut world, conn, "t", 1, by_token());
    world.send(conn, acknowledge(&token).retain());
    assert_eq!(world.packets(conn), []);
    assert_eq!(answer(&mut world, conn, acknowledge(&token).retain()).0, 0);
    for _ in 0..2 {
        let answer = world.ask(conn, acknowledge(&token).qos(2, 5));
        assert_eq!(answer, crate::wire::ack(Ack::Pubrec, 5), "a repetition is answered alike");
    }
    assert_eq!(world.ask(conn, pubrel(5)), crate::wire::ack(Ack::Pubcomp, 5));
    assert_eq!(world.stats().core.tokens_acknowledged, 3);
    let late = world.client("c");
    world.subscribe(late, "$whimbrel/ack", 0);
    assert_eq!((world.packets(watcher), world.packets(late)), (vec![], vec![]));
    assert_eq!((world.stats().core.retained, world.stats().core.events_accepted), (0, 0));
}

#[test]
fn a_topic_alias_may_stand_for_the_topic() {
    let mut world = World::new();
    let conn = world.client("a");
    let token = follow(&mut world, conn, "t", 1, by_token());
    let alias = || Props::new().u16(crate::wire::property::TOPIC_ALIAS, 1);
    assert_eq!(answer(&mut world, conn, acknowledge(&token).props(alias())).0, 0);
    assert_eq!(answer(&mut world, conn, Publish::new("", &token).props(alias())).0, 0);
    assert_eq!(world.stats().core.tokens_acknowledged, 2);
}

#[test]
fn garbage_is_refused_as_such() {
    let mut world = World::new();
    let conn = world.client("a");
    let token = follow(&mut world, conn, "t", 1, by_token());
    for (garbage, says) in [
        ("", "token"),
        ("no token", "token"),
        (&token[1..], "token"),
        (&(token.clone() + ",1"), "the payload, item 2: an event id is"),
        (&(token.clone() + &",1:2".repeat(1025)), "more than 1024 event ids"),
    ] {
        let (code, reason) = answer(&mut world, conn, acknowledge(garbage));
        assert_eq!(code, 0x99, "{garbage}");
        assert!(reason.contains(says), "{reason}");
    }
    assert_eq!(answer(&mut world, conn, Publish::new("$whimbrel/ack", [0xFF, 0xFE])).0, 0x99);
    match world.ask(conn, acknowledge("garbage").qos(2, 9)) {
        Packet::Ack { kind: Ack::Pubrec, id: 9, code: 0x99, .. } => {}
        other => panic!("PUBREC 0x99 expected, got {other:?}"),
    }
    world.send(conn, acknowledge("garbage"));
    assert_eq!(world.stats().tokens_refused, 8);
    world.assert_undisturbed(conn);
}

#[test]
fn a_token_is_for_a_subscription_that_is_acknowledged_so() {
    let mut world = World::new();
    let conn = world.client("a");
    let token = follow(&mut world, conn, "t", 1, semi_durable());
    assert_eq!(answer(&mut world, conn, acknowledge(&token)).0, 0x83);
    for (filter, identifier) in [("t", 1), ("u", 2)] {
        follow(&mut world, conn, filter, 1, by_token().var(SUBSCRIPTION_ID, identifier));
    }
    let named = |name: &str| acknowledge(&token).props(Props::new().user("w-subscription", name));
    let (code, reason) = answer(&mut world, conn, acknowledge(&token));
    assert_eq!(code, 0x83);
    assert!(reason.contains("w-subscription"), "{reason}");
    for (name, code) in [("1", 0), ("2", 0), ("3", 0x83), ("0", 0x83), ("x", 0x83), ("268435456", 0x83)] {
        assert_eq!(answer(&mut world, conn, named(name)).0, code, "{name}");
    }
    let twice = acknowledge(&token).props(Props::new().user("w-subscription", "1").user("w-subscription", "2"));
    assert_eq!(answer(&mut world, conn, twice).0, 0x83);
}

#[test]
fn a_token_from_the_future_or_from_elsewhere_is_refused() {
    let mut world = World::new();
    let conn = world.client("a");
    let token = follow(&mut world, conn, "t", 1, by_token());
    let mut future: whimbrel_event::CheckpointToken = token.parse().expect("a token");
    let (pubend, tick) = future.pubends().next().expect("it covers streams");
    future.set(pubend, whimbrel_event::Tick(tick.0 + 3_600_000_000_000));
    let mut elsewhere = whimbrel_event::CheckpointToken::new(whimbrel_event::Deployment(1), tick);
    elsewhere.cover(pubend.host(), 4, 4).expect("room");
    for token in [future.to_string(), elsewhere.to_string()] {
        let (code, reason) = answer(&mut world, conn, acknowledge(&token));
        assert_eq!(code, 0x83);
        assert!(!reason.is_empty());
    }
}

#[test]
fn a_place_to_begin_makes_the_client_keep_the_position() {
    let mut world = World::new();
    let conn = world.client("a");
    let token = follow(&mut world, conn, "t", 1, from("earliest"));
    assert_eq!(answer(&mut world, conn, acknowledge(&token)).0, 0);
}

#[test]
fn other_topics_of_the_broker_and_wills_are_refused() {
    let mut world = World::new();
    let conn = world.client("a");
    let token = follow(&mut world, conn, "t", 1, by_token());
    for topic in ["$whimbrel/notice", "$whimbrel", "$whimbrel/ack/x", "$whimbrel/other"] {
        assert_eq!(answer(&mut world, conn, Publish::new(topic, &token)).0, 0x87, "{topic}");
    }
    let (_, refused) = world.try_connect(&Connect::v5("b").will(Will::new("$whimbrel/ack", &token)));
    assert!(matches!(refused, Packet::Connack { code: 0x87, .. }), "{refused:?}");
}

#[test]
fn without_problem_information_or_in_3_1_1_the_answer_says_less() {
    let mut world = World::new();
    let props = Props::new().byte(crate::wire::property::REQUEST_PROBLEM_INFO, 0);
    let silent = world.connect(&Connect::v5("silent").props(props));
    assert_eq!(ask(&mut world, silent, &[("t", 1)], by_token()).codes, [1]);
    assert_eq!(answer(&mut world, silent, acknowledge("garbage")), (0x99, String::new()));
    let old = world.connect(&Connect::v311("old"));
    world.send(old, acknowledge("garbage").qos(1, 3));
    assert!(world.is_closed(old), "no answer of it says no");
}
