//! The names of events on deliveries.

use super::{follow, name, publish, semi_durable};
use crate::wire::property::SUBSCRIPTION_ID;
use crate::wire::{Connect, Props, Publish, Subscribe, option};
use crate::world::World;

#[test]
fn who_follows_the_streams_gets_names_and_others_do_not() {
    let mut world = World::new();
    let publisher = world.client("publisher");
    let (first, second, plain) = (world.client("a"), world.client("b"), world.client("c"));
    let (noticed, old) = (world.client("d"), world.connect(&Connect::v311("e")));
    for conn in [first, second] {
        follow(&mut world, conn, "t", 1, semi_durable());
    }
    follow(&mut world, plain, "t", 1, Props::new());
    follow(&mut world, noticed, "t", 1, Props::new().user("w-notices", "on"));
    world.subscribe(old, "t", 1);
    world.send(publisher, Publish::new("t", "x").qos(1, 1).props(Props::new().user("k", "v").user("w-id", "forged")));
    let mut names = Vec::new();
    for conn in [first, second, noticed] {
        let message = world.message(conn);
        let user = message.props.user();
        assert_eq!(user[..2], [("k", "v"), ("w-id", "forged")], "the event's own come first, unaltered");
        assert_eq!((user.len(), user[2].0), (3, "w-id"));
        names.push(user[2].1.to_owned());
    }
    assert!(names[0].parse::<whimbrel_event::EventId>().is_ok(), "{names:?}");
    assert!(names.iter().all(|name| *name == names[0]), "{names:?}");
    assert_eq!(world.message(plain).props.user(), [("k", "v"), ("w-id", "forged")]);
    assert_eq!(world.message(old).props.user(), []);
}

#[test]
fn names_have_one_stream_per_publisher_and_ticks_that_grow() {
    let mut world = World::new();
    let (conn, publisher) = (world.client("a"), world.client("publisher"));
    follow(&mut world, conn, "t", 1, semi_durable());
    publish(&mut world, publisher, &["1", "2", "3"]);
    let messages = world.messages(conn);
    let ids: Vec<whimbrel_event::EventId> =
        messages.iter().map(|message| name(message).expect("a name").parse().expect("an id")).collect();
    assert!(ids.is_sorted() && ids.windows(2).all(|pair| pair[0] != pair[1]), "{ids:?}");
    assert!(ids.iter().all(|id| id.pubend == ids[0].pubend), "{ids:?}");
}

#[test]
fn names_go_with_aliases_identifiers_and_each_quality_of_service() {
    let mut world = World::new();
    let (conn, publisher) = (world.connect(&Connect::v5("a").topic_alias_maximum(2)), world.client("publisher"));
    world.send(conn, Subscribe::new(1, &[("t", 2)]).props(semi_durable().var(SUBSCRIPTION_ID, 7)));
    world.packets(conn);
    for qos in 0..=2 {
        world.send(publisher, Publish::new("t", "x").qos(qos, 5));
        let message = world.message(conn);
        assert_eq!((message.qos, message.props.number(SUBSCRIPTION_ID)), (qos, Some(7)));
        assert!(name(&message).is_some(), "{message:?}");
    }
}

#[test]
fn an_event_that_is_too_large_with_its_name_is_dropped_for_that_client_alone() {
    let mut world = World::new();
    let small = world.connect(&Connect::v5("small").maximum_packet_size(70));
    let (large, publisher) = (world.client("large"), world.client("publisher"));
    for conn in [large, small] {
        follow_small(&mut world, conn);
    }
    publish(&mut world, publisher, &[&"x".repeat(50), "y"]);
    assert_eq!(world.payloads(small), ["y"], "50 bytes do not fit beside the name");
    assert_eq!(world.payloads(large), [&"x".repeat(50), "y"]);
    assert_eq!(world.stats().core.dropped_too_large, 1);
    world.subscribe(small, "t", 1);
    publish(&mut world, publisher, &[&"x".repeat(50)]);
    assert_eq!(world.payloads(small), ["x".repeat(50)], "without a name they do");
}

/// Subscribes without a look at the token, which a small client does not get.
fn follow_small(world: &mut World, conn: whimbrel_mqtt::ConnId) {
    assert_eq!(super::ask(world, conn, &[("t", 1)], semi_durable()).codes, [1]);
}

#[test]
fn retained_messages_that_are_replayed_have_no_name() {
    let mut world = World::new();
    let (conn, publisher) = (world.client("a"), world.client("publisher"));
    world.send(publisher, Publish::new("t", "kept").retain().qos(1, 1));
    follow(&mut world, conn, "t", option::RETAIN_AS_PUBLISHED, semi_durable());
    let replayed = world.message(conn);
    assert_eq!((replayed.text(), replayed.retain, name(&replayed)), ("kept", true, None));
    world.send(publisher, Publish::new("t", "live").retain().qos(1, 1));
    let live = world.message(conn);
    assert_eq!((live.text(), live.retain, name(&live).is_some()), ("live", true, true));
}
