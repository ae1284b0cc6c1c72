//! What may be asked for, and what is refused.

use super::{ask, follow, from, semi_durable};
use crate::wire::property::{REQUEST_PROBLEM_INFO, USER};
use crate::wire::{Connect, Packet, Props, Publish, Subscribe};
use crate::world::World;

#[test]
fn every_answer_tells_where_the_subscriptions_begin() {
    let mut world = World::new();
    let conn = world.client("a");
    let plain = ask(&mut world, conn, &[("t", 0), ("u", 1)], Props::new());
    assert_eq!((plain.codes, plain.props.has(USER)), (vec![0, 1], false), "a plain subscription gets what MQTT says");
    for props in
        [semi_durable(), Props::new().user("w-durability", "nondurable"), Props::new().user("w-notices", "off")]
    {
        let answer = ask(&mut world, conn, &[("t", 0), ("u", 1), ("v/#", 2)], props);
        assert_eq!(answer.codes, [0, 1, 2]);
        assert_eq!(answer.tokens().len(), 3, "one for each filter");
        assert!(answer.tokens().iter().all(|token| (1..=64).contains(&token.len())), "{:?}", answer.tokens());
    }
}

#[test]
fn a_filter_that_is_refused_has_an_empty_token() {
    let mut world = World::new();
    let conn = world.client("a");
    let deep = ["u"; 129].join("/");
    let answer = ask(&mut world, conn, &[("t", 0), (&deep, 1), ("v", 2)], semi_durable());
    assert_eq!(answer.codes, [0, 0x8F, 2]);
    let filled: Vec<bool> = answer.tokens().iter().map(|token| !token.is_empty()).collect();
    assert_eq!(filled, [true, false, true]);
    let answer = ask(&mut world, conn, &[(&deep, 1)], semi_durable());
    assert_eq!((answer.codes.as_slice(), answer.tokens().len()), (&[0x8F][..], 0), "nothing was granted");
}

#[test]
fn tokens_are_left_out_where_they_are_unwelcome_or_do_not_fit() {
    let mut world = World::new();
    let silent = world.connect(&Connect::v5("silent").props(Props::new().byte(REQUEST_PROBLEM_INFO, 0)));
    let small = world.connect(&Connect::v5("small").maximum_packet_size(40));
    for conn in [silent, small] {
        let answer = ask(&mut world, conn, &[("t", 1)], semi_durable());
        assert_eq!(answer.codes, [1]);
        assert!(!answer.props.has(USER));
        world.assert_undisturbed(conn);
    }
    let old = world.connect(&Connect::v311("old"));
    assert!(matches!(world.ask(old, Subscribe::new(9, &[("t", 1)])), Packet::Suback { codes, .. } if codes == [1]));
}

#[test]
fn durable_is_granted_as_semi_durable_without_a_log_and_told() {
    let mut world = World::new();
    let conn = world.client("a");
    let answer = ask(&mut world, conn, &[("t", 1)], Props::new().user("w-durability", "durable"));
    assert_eq!(answer.codes, [1]);
    let granted: Vec<_> = answer.props.user().into_iter().filter(|(name, _)| *name == "w-granted").collect();
    assert_eq!(granted, [("w-granted", "semi-durable")]);
}

#[test]
fn what_is_not_there_is_refused_with_the_reason() {
    let mut world = World::new();
    let conn = world.client("a");
    for (props, says) in [
        (Props::new().user("w-durability", "forever"), "w-durability is none of"),
        (semi_durable().user("w-durability", "semi-durable"), "w-durability is given more than once"),
        (Props::new().user("w-replier", "yes"), "w-replier is neither on nor off"),
        (semi_durable().user("w-ack", "packet"), "w-ack is not token"),
        (Props::new().user("w-ack", "token"), "ask for w-durability durable or semi-durable"),
        (semi_durable().user("w-notices", "loud"), "w-notices is neither on nor off"),
        (from("no token!"), "byte 2"),
        (from("1:2,3"), "item 2"),
        (from("12:30:00"), "2026-03-01T12:00:00Z"),
        (from("earliest").user("w-from", "earliest"), "w-from is given more than once"),
        (Props::new().user("w-from", "earliest"), "ask for w-durability durable or semi-durable"),
        (
            Props::new().user("w-durability", "nondurable").user("w-from", "earliest"),
            "ask for w-durability durable or semi-durable",
        ),
        (from("2999-01-01T00:00:00Z"), "ahead"),
        (from("1:18446744073709551615"), "ahead"),
    ] {
        let answer = ask(&mut world, conn, &[("t", 0), ("u", 1)], props);
        assert_eq!(answer.codes, [0x83, 0x83], "{says}");
        assert!(answer.reason().contains(says) && answer.reason().len() <= 200, "{says}: {}", answer.reason());
        assert!(answer.tokens().iter().all(|token| token.is_empty()));
    }
    assert_eq!(world.stats().core.subscriptions, 0);
    assert_eq!((world.stats().following_refused, world.stats().core.starts_refused), (10, 8));
}

#[test]
fn a_replier_gets_what_others_get_and_a_shared_subscription_is_none() {
    let mut world = World::new();
    let (conn, publisher) = (world.client("a"), world.client("publisher"));
    let replier = || Props::new().user("w-replier", "on");
    let answer = ask(&mut world, conn, &[("t", 1), ("$share/g/t", 1)], replier());
    assert_eq!(answer.codes, [1, 0x83]);
    assert!(answer.reason().contains("w-replier is not for it"), "{}", answer.reason());
    assert!(answer.tokens().is_empty(), "it has not asked for names");
    world.send(publisher, Publish::new("t", "x").qos(1, 1));
    assert_eq!(world.message(conn).props.user(), []);
    assert_eq!(ask(&mut world, conn, &[("$share/g/t", 1)], Props::new().user("w-replier", "off")).codes, [1]);
}

#[test]
fn a_reason_string_about_a_long_place_is_short() {
    let mut world = World::new();
    let conn = world.client("a");
    let answer = ask(&mut world, conn, &[("t", 0)], from(&"x".repeat(60_000)));
    assert_eq!(answer.codes, [0x83]);
    assert!((1..=200).contains(&answer.reason().len()), "{}", answer.reason());
}

#[test]
fn a_token_of_another_deployment_is_refused() {
    let deployment = whimbrel_event::Deployment::named("elsewhere");
    let core = whimbrel_core::Limits { deployment, ..whimbrel_core::Limits::default() };
    let mut other = World::with(whimbrel_mqtt::Config { core, ..crate::world::quiet() });
    let conn = other.client("a");
    let token = follow(&mut other, conn, "t", 1, semi_durable());
    let mut world = World::new();
    let conn = world.client("a");
    let answer = ask(&mut world, conn, &[("t", 1)], from(&token));
    assert_eq!(answer.codes, [0x83]);
    assert!(answer.reason().contains("another deployment"), "{}", answer.reason());
}

#[test]
fn a_token_that_was_altered_is_refused() {
    let mut world = World::new();
    let conn = world.client("a");
    let token = follow(&mut world, conn, "t", 1, semi_durable());
    let last = if token.ends_with('A') { "B" } else { "A" };
    for text in [token[..token.len() - 1].to_owned(), token.clone() + "A", token[..token.len() - 1].to_owned() + last] {
        let answer = ask(&mut world, conn, &[("t", 1)], from(&text));
        assert_eq!(answer.codes, [0x83], "{text}");
        assert!(answer.reason().contains("checkpoint token"), "{}", answer.reason());
    }
}

#[test]
fn shared_subscriptions_have_neither_a_place_to_begin_nor_notices() {
    let mut world = World::new();
    let conn = world.client("a");
    for props in [semi_durable(), from("earliest"), Props::new().user("w-notices", "on")] {
        let answer = ask(&mut world, conn, &[("$share/g/t", 1), ("t", 1)], props);
        assert_eq!(answer.codes, [0x83, 1], "{}", answer.reason());
        assert!(answer.reason().contains("shared"), "{}", answer.reason());
    }
}

#[test]
fn what_is_refused_leaves_the_subscription_as_it_was() {
    let mut world = World::new();
    let (conn, publisher) = (world.client("a"), world.client("publisher"));
    follow(&mut world, conn, "t", 0, semi_durable());
    for props in [from("garbage!"), Props::new().user("w-durability", "endless"), from("2999-01-01T00:00:00Z")] {
        assert_eq!(ask(&mut world, conn, &[("t", 1)], props).codes, [0x83]);
    }
    super::publish(&mut world, publisher, &["x"]);
    let message = world.message(conn);
    assert_eq!((message.qos, super::name(&message).is_some()), (0, true));
}

#[test]
fn unknown_properties_are_counted() {
    let mut world = World::new();
    let conn = world.client("a");
    let props =
        semi_durable().user("w-notices", "off").user("w-strange", "1").user("w-selector", "a = 1").user("w", "x");
    follow(&mut world, conn, "t", 0, props);
    assert_eq!(world.stats().reserved_properties_unknown, 1);
}
