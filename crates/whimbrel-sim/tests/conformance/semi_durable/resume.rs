//! A client that keeps its position comes back and misses nothing.

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_event::{EventId, PubendId, Tick};
use whimbrel_mqtt::ConnId;

use super::{follow, from, gap, name, publish, semi_durable, texts};
use crate::wire::property::MESSAGE_EXPIRY;
use crate::wire::{Connect, Message, Packet, Props, Publish, option, puback, pubcomp, pubrec, pubrel};
use crate::world::{World, seconds};

fn id(message: &Message) -> EventId {
    name(message).expect("a name").parse().expect("an event id")
}

/// Publishes to `t`, numbered, from several publishers with each quality of service.
struct Load {
    publishers: Vec<ConnId>,
    sent: BTreeMap<usize, u32>,
}

impl Load {
    fn new(world: &mut World) -> Load {
        let publishers = (0..6).map(|i| world.client(&format!("publisher {i}"))).collect();
        Load { publishers, sent: BTreeMap::new() }
    }

    /// Each publisher sends one event more.
    fn go_on(&mut self, world: &mut World) {
        for (at, conn) in self.publishers.iter().enumerate() {
            let number = self.sent.entry(at).or_default();
            *number += 1;
            let qos = (at % 3) as u8;
            world.send(*conn, Publish::new("t", format!("{at}:{number}")).qos(qos, 1));
            if qos == 2 {
                world.send(*conn, pubrel(1));
            }
        }
    }

    /// What was sent has come: each once, in the order of its publisher and in that of the ticks of
    /// its stream.
    #[track_caller]
    fn check(&self, got: &[Message]) {
        let mut last: BTreeMap<usize, u32> = BTreeMap::new();
        let mut ticks: BTreeMap<PubendId, Tick> = BTreeMap::new();
        for message in got {
            let (at, number) = message.text().split_once(':').expect("publisher and number");
            let before = last.insert(at.parse().expect("a publisher"), number.parse().expect("a number")).unwrap_or(0);
            assert_eq!(before + 1, number.parse::<u32>().expect("a number"), "after publisher {at}'s {before}");
            let EventId { pubend, tick } = id(message);
            let before = ticks.insert(pubend, tick);
            assert!(before < Some(tick), "{pubend} goes on after {before:?} with {tick}");
        }
        assert_eq!(last, self.sent);
    }
}

/// The last name of each stream, as `,id,id`.
fn last_names(got: &[Message]) -> String {
    let mut last: BTreeMap<PubendId, Tick> = BTreeMap::new();
    for message in got {
        let EventId { pubend, tick } = id(message);
        last.insert(pubend, tick);
    }
    last.into_iter().map(|(pubend, tick)| format!(",{}", EventId { pubend, tick })).collect()
}

/// Answers everything that a client got, and returns the messages.
fn settle(world: &mut World, conn: ConnId) -> Vec<Message> {
    let mut messages = Vec::new();
    loop {
        let packets = world.packets(conn);
        if packets.is_empty() {
            return messages;
        }
        for packet in packets {
            match packet {
                Packet::Publish(message) => {
                    match message.qos {
                        1 => world.send(conn, puback(message.id)),
                        2 => world.send(conn, pubrec(message.id)),
                        _ => {}
                    }
                    messages.push(message);
                }
                Packet::Ack { kind: crate::wire::Ack::Pubrel, id, .. } => world.send(conn, pubcomp(id)),
                other => panic!("deliveries expected, got {other:?}"),
            }
        }
        world.advance(seconds(0));
    }
}

#[test]
fn who_vanishes_comes_back_with_its_token_and_misses_nothing() {
    for qos in 0..=2 {
        let mut world = World::new();
        let mut load = Load::new(&mut world);
        let conn = world.client("a");
        let token = follow(&mut world, conn, "t", qos, semi_durable());
        world.fail(conn);
        for _ in 0..100 {
            load.go_on(&mut world);
            world.advance(seconds(1));
        }
        let conn = world.client("a");
        follow(&mut world, conn, "t", qos, from(&token));
        load.go_on(&mut world);
        let mut got = settle(&mut world, conn);
        assert!(got.iter().all(|message| message.qos <= qos && !message.dup));
        load.go_on(&mut world);
        got.extend(settle(&mut world, conn));
        load.check(&got);
        assert_eq!(world.stats().core.resumed, 1);
    }
}

#[test]
fn later_names_beside_a_token_leave_out_what_was_there_before() {
    let mut world = World::new();
    let mut load = Load::new(&mut world);
    let conn = world.client("a");
    let token = follow(&mut world, conn, "t", 1, semi_durable());
    for _ in 0..3 {
        load.go_on(&mut world);
    }
    let mut got = settle(&mut world, conn);
    world.fail(conn);
    for _ in 0..3 {
        load.go_on(&mut world);
    }
    let conn = world.client("another name");
    follow(&mut world, conn, "t", 1, from(&(token + &last_names(&got))));
    got.extend(settle(&mut world, conn));
    load.check(&got);
}

#[test]
fn coming_back_again_and_again_with_one_token_and_growing_names_repeats_nothing() {
    let mut world = World::new();
    let mut load = Load::new(&mut world);
    let mut conn = world.client("a");
    let token = follow(&mut world, conn, "t", 2, semi_durable());
    let mut got = Vec::new();
    for round in 0..50 {
        load.go_on(&mut world);
        // Only some of what came is read before the connection breaks: the rest was not delivered,
        // as far as the client knows.
        let read = world.packets(conn).into_iter().take(round % 9);
        got.extend(read.filter_map(|packet| if let Packet::Publish(message) = packet { Some(message) } else { None }));
        world.fail(conn);
        load.go_on(&mut world);
        conn = world.client("a");
        follow(&mut world, conn, "t", 2, from(&format!("{token}{}", last_names(&got))));
    }
    got.extend(settle(&mut world, conn));
    load.check(&got);
}

#[test]
fn names_alone_begin_other_streams_a_minute_earlier_and_say_so() {
    let mut world = World::new();
    let (conn, publisher) = (world.client("a"), world.client("publisher"));
    world.advance(seconds(100));
    follow(&mut world, conn, "t", 1, semi_durable());
    publish(&mut world, publisher, &["1", "2"]);
    let got = world.messages(conn);
    world.fail(conn);
    publish(&mut world, publisher, &["3"]);
    let conn = world.client("a");
    let place = name(&got[1]).expect("a name").to_owned();
    follow(&mut world, conn, "t", 1, from(&place).user("w-notices", "on"));
    let (notices, events): (Vec<_>, Vec<_>) =
        world.messages(conn).into_iter().partition(|message| message.topic.starts_with('$'));
    assert_eq!(texts(&events), ["3"]);
    let last = id(&got[1]);
    let gaps: Vec<_> = notices.iter().map(gap).collect();
    assert_eq!(gaps.len(), 15, "one for each stream that is not named: {gaps:?}");
    let pubends: BTreeSet<&str> = gaps.iter().map(|gap| gap.pubend.as_str()).collect();
    assert!(pubends.len() == 15 && !pubends.contains(last.pubend.to_string().as_str()), "{gaps:?}");
    for gap in &gaps {
        assert_eq!((gap.reason.as_str(), gap.to), ("assumed", last.tick.0 - 60_000_000_000));
        assert!(gap.from < gap.to);
    }
    assert_eq!(world.stats().core.gaps_assumed, 15);
}

#[test]
fn a_time_begins_with_what_was_accepted_after_it() {
    let mut world = World::new();
    let publisher = world.client("publisher");
    for text in ["0", "10", "20"] {
        publish(&mut world, publisher, &[text]);
        world.advance(seconds(10));
    }
    for (place, expected) in [
        ("2026-01-01T00:00:05Z", &["10", "20"][..]),
        ("2026-01-01T02:00:05+02:00", &["10", "20"]),
        ("2026-01-01T00:00:15.5Z", &["20"]),
        ("2025-01-01T00:00:00Z", &["0", "10", "20"]),
        ("2026-01-01T00:00:30Z", &[]),
    ] {
        let conn = world.client("a");
        follow(&mut world, conn, "t", 1, from(place));
        assert_eq!(texts(&world.messages(conn)), expected, "{place}");
    }
}

#[test]
fn earliest_begins_with_the_oldest_that_is_there() {
    let mut world = World::new();
    let publisher = world.client("publisher");
    publish(&mut world, publisher, &["1", "2", "3"]);
    let conn = world.client("a");
    follow(&mut world, conn, "t", 1, from("earliest"));
    publish(&mut world, publisher, &["4"]);
    assert_eq!(texts(&world.messages(conn)), ["1", "2", "3", "4"]);
}

#[test]
fn a_window_of_one_is_kept_while_catching_up() {
    let mut world = World::new();
    let (conn, publisher) = (world.client("a"), world.client("publisher"));
    let token = follow(&mut world, conn, "t", 1, semi_durable());
    world.fail(conn);
    publish(&mut world, publisher, &["1", "2", "3"]);
    let conn = world.connect(&Connect::v5("a").receive_maximum(1));
    follow(&mut world, conn, "t", 1, from(&token));
    for (next, then) in [("1", "4"), ("2", "5"), ("3", "6"), ("4", "7")] {
        let message = world.message(conn);
        assert_eq!(message.text(), next);
        publish(&mut world, publisher, &[then]);
        assert_eq!(world.packets(conn), [], "the window is full");
        world.send(conn, puback(message.id));
    }
    assert_eq!(texts(&settle(&mut world, conn)), ["5", "6", "7"]);
}

#[test]
fn any_receive_maximum_gets_everything_in_order() {
    for maximum in [1, 2, 3, 7, 100] {
        let mut world = World::new();
        let mut load = Load::new(&mut world);
        let conn = world.client("a");
        let token = follow(&mut world, conn, "t", 2, semi_durable());
        world.fail(conn);
        for _ in 0..70 {
            load.go_on(&mut world);
        }
        let conn = world.connect(&Connect::v5("a").receive_maximum(maximum));
        follow(&mut world, conn, "t", 2, from(&token));
        load.go_on(&mut world);
        load.check(&settle(&mut world, conn));
    }
}

#[test]
fn what_the_client_published_itself_stays_left_out_when_it_comes_back() {
    let mut world = World::new();
    let (conn, publisher) = (world.client("a"), world.client("publisher"));
    let token = follow(&mut world, conn, "t", 1 | option::NO_LOCAL, semi_durable());
    publish(&mut world, conn, &["own"]);
    publish(&mut world, publisher, &["other"]);
    world.fail(conn);
    let conn = world.client("a");
    follow(&mut world, conn, "t", 1 | option::NO_LOCAL, from(&token));
    assert_eq!(texts(&world.messages(conn)), ["other"]);
    let conn = world.client("a");
    follow(&mut world, conn, "t", 1, from(&token));
    assert_eq!(texts(&world.messages(conn)), ["own", "other"], "without no local");
}

#[test]
fn what_has_expired_is_not_recovered_and_is_no_gap() {
    let mut world = World::new();
    let (conn, publisher) = (world.client("a"), world.client("publisher"));
    let token = follow(&mut world, conn, "t", 1, semi_durable());
    world.fail(conn);
    for (text, lifetime) in [("short", 5), ("long", 50)] {
        let props = Props::new().u32(MESSAGE_EXPIRY, lifetime);
        world.send(publisher, Publish::new("t", text).qos(1, 1).props(props));
    }
    world.advance(seconds(10));
    let conn = world.client("a");
    follow(&mut world, conn, "t", 1, from(&token).user("w-notices", "on"));
    let message = world.message(conn);
    assert_eq!((message.text(), message.props.number(MESSAGE_EXPIRY)), ("long", Some(40)));
}

#[test]
fn what_is_recovered_passes_filter_and_selector() {
    let mut world = World::new();
    let (conn, publisher) = (world.client("a"), world.client("publisher"));
    let token = follow(&mut world, conn, "t", 1, semi_durable());
    world.fail(conn);
    for (topic, speed) in [("t", "10"), ("t", "60"), ("u", "70"), ("t", "80")] {
        world.send(publisher, Publish::new(topic, speed).qos(1, 1).props(Props::new().user("speed", speed)));
    }
    let conn = world.client("a");
    follow(&mut world, conn, "+", 1, from(&token).user("w-selector", "speed > 50 AND speed < 80"));
    assert_eq!(texts(&world.messages(conn)), ["60", "70"]);
}

#[test]
fn recovered_events_have_their_retain_mark_where_it_is_asked_for() {
    let mut world = World::new();
    let (conn, publisher) = (world.client("a"), world.client("publisher"));
    let token = follow(&mut world, conn, "t", 1, semi_durable());
    world.fail(conn);
    world.send(publisher, Publish::new("t", "x").retain().qos(1, 1));
    for (as_published, retain) in [(option::RETAIN_AS_PUBLISHED, true), (0, false)] {
        let conn = world.client("a");
        follow(&mut world, conn, "t", 1 | as_published | option::RETAIN_NEVER, from(&token));
        let message = world.message(conn);
        assert_eq!((message.text(), message.retain, name(&message).is_some()), ("x", retain, true));
    }
}

#[test]
fn streams_of_a_broker_that_is_gone_are_a_gap() {
    let mut other = World::seeded(77);
    let conn = other.client("a");
    let token = follow(&mut other, conn, "t", 1, semi_durable());
    let mut world = World::new();
    let (conn, publisher) = (world.client("a"), world.client("publisher"));
    world.advance(seconds(1));
    publish(&mut world, publisher, &["x"]);
    follow(&mut world, conn, "t", 1, from(&token).user("w-notices", "on"));
    let (notices, events): (Vec<_>, Vec<_>) =
        world.messages(conn).into_iter().partition(|message| message.topic.starts_with('$'));
    assert_eq!(texts(&events), ["x"], "a stream that the token does not know begins at its birth");
    // Four of each class of its streams were reliable, and of the others nothing was promised.
    let mut gaps: Vec<_> = notices.iter().map(gap).collect();
    gaps.sort_by_key(|gap| gap.pubend.clone());
    let reasons: Vec<&str> = gaps.iter().map(|gap| gap.reason.as_str()).collect();
    assert_eq!(reasons, [["lost"; 4], ["best-effort"; 4]].concat().repeat(2));
    assert!(gaps.iter().all(|gap| gap.from < gap.to), "{notices:?}");
}
