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
    let nondurable = world.client("f");
    follow(&mut world, nondurable, "t", 1, Props::new().user("w-durability", "nondurable"));
    let shared = world.client("g");
    follow(&mut world, shared, "$share/g/t", 1, Props::new().user("w-durability", "nondurable"));
    world.subscribe(old, "t", 1);
    world.send(publisher, Publish::new("t", "x").qos(1, 1).props(Props::new().user("k", "v").user("w-id", "forged")));
    let mut names = Vec::new();
    for conn in [first, second, noticed, nondurable, shared] {
        let message = world.message(conn);
        let user = message.props.user();
        assert_eq!(user[..2], [("k", "v"), ("w-id", "forged")], "the event's own come first, unaltered");
        assert_eq!((user.len(), user[2].0), (3, "w-id"));
        names.push(user[2].1.to_owned());
    }
    assert!(names[0].parse::<whimbrel_event::EventId>().is_ok(), "{names:?}");
    assert!(names[0].len() <= 24, "{names:?}");
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
fn an_event_that_is_too_large_with_what_is_added_goes_without_it() {
    // Beside its payload a packet of QoS 1 with the topic `t` has 8 bytes, with a new alias 11,
    // with its name 40.
    for (maximum, aliases) in [(58, 0), (61, 0), (58, 5), (61, 5), (93, 5)] {
        let mut world = World::new();
        let small = Connect::v5("small").maximum_packet_size(maximum).topic_alias_maximum(aliases);
        let (small, large, publisher) = (world.connect(&small), world.client("large"), world.client("publisher"));
        for conn in [large, small] {
            follow_small(&mut world, conn);
        }
        let before = world.stats().additions_left_out;
        publish(&mut world, publisher, &[&"x".repeat(50), &"x".repeat(90), "y"]);
        let got = world.messages(small);
        assert_eq!(super::texts(&got), ["x".repeat(50), "y".to_owned()], "{maximum}, {aliases}");
        assert_eq!(got.iter().map(|got| name(got).is_some()).collect::<Vec<_>>(), [maximum == 93, true]);
        let whole = world.messages(large);
        assert!(whole.len() == 3 && whole.iter().all(|got| name(got).is_some()), "others get it whole: {whole:?}");
        assert_eq!(world.stats().core.dropped_too_large, 1, "90 bytes do not fit, whatever is left out");
        assert_eq!(world.stats().additions_left_out - before, u64::from(maximum != 93));
        // The alias that was not sent is not used.
        publish(&mut world, publisher, &["z"]);
        assert_eq!(world.message(small).text(), "z");
    }
}

#[test]
fn a_message_that_fits_by_its_topic_alias_goes_so_without_its_name() {
    let topic = format!("t/{}", "x".repeat(58));
    let mut world = World::new();
    let small = Connect::v5("small").maximum_packet_size(128).topic_alias_maximum(10);
    let (small, publisher) = (world.connect(&small), world.client("publisher"));
    assert_eq!(super::ask(&mut world, small, &[(&topic, 1)], semi_durable()).codes, [1]);
    for (id, length) in [(1, 5), (2, 100), (3, 5)] {
        world.send(publisher, Publish::new(&*topic, "y".repeat(length)).qos(1, id));
        let message = world.message(small);
        assert_eq!((message.text().len(), name(&message).is_some()), (length, length == 5));
    }
    assert_eq!((world.stats().core.dropped_too_large, world.stats().additions_left_out), (0, 1));
}

#[test]
fn who_asks_for_names_takes_none_that_a_publisher_has_written_for_the_broker_s() {
    let mut world = World::new();
    let (small, large) = (world.connect(&Connect::v5("small").maximum_packet_size(90)), world.client("large"));
    let publisher = world.client("publisher");
    let forged = || Props::new().user("w-id", "gggggggggWe:ggggggggggh");
    world.send(publisher, Publish::new("t", "kept").retain().qos(1, 1).props(forged()));
    for conn in [large, small] {
        follow_small(&mut world, conn);
        // A retained message has no name: that of its publisher is not the last.
        let replayed = world.message(conn);
        assert_eq!(replayed.props.user(), [("w-id", "gggggggggWe:ggggggggggh"), ("w-id", "")]);
    }
    let before = world.stats().additions_left_out;
    world.send(publisher, Publish::new("t", "x".repeat(30)).qos(1, 2).props(forged()));
    let bare = world.message(small);
    assert_eq!(bare.text(), "x".repeat(30));
    assert_eq!(bare.props.user(), [("w-id", "gggggggggWe:ggggggggggh"), ("w-id", "")], "its name does not fit");
    assert_eq!((world.stats().core.dropped_too_large, world.stats().additions_left_out), (0, before + 1));
    let whole = world.message(large);
    let names: Vec<&str> = whole.props.user().into_iter().map(|(_, name)| name).collect();
    assert!(names.len() == 2 && names[0] != names[1] && names[1].len() == 23, "{names:?}");
}

#[test]
fn a_notice_that_is_too_large_is_left_out_and_counted_apart() {
    let mut world = World::new();
    for (maximum, comes) in [(2_000, true), (60, false)] {
        let conn = world.connect(&Connect::v5("noticed").maximum_packet_size(maximum));
        assert_eq!(super::ask(&mut world, conn, &[("t", 1)], semi_durable().user("w-notices", "on")).codes, [1]);
        let before = world.stats().core.notices_too_large;
        world.advance(core::time::Duration::from_secs(60));
        assert_eq!(!world.messages(conn).is_empty(), comes);
        assert_eq!(world.stats().core.notices_too_large > before, !comes);
        assert_eq!(world.stats().core.dropped_too_large, 0, "no message was lost");
    }
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
