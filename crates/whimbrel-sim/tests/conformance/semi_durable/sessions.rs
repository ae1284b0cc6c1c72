//! Semi-durable subscriptions of sessions that outlive their connection, or do not.

use super::{follow, from, name, publish, semi_durable, texts};
use crate::wire::{Connect, Props, option, puback};
use crate::world::{World, seconds};

#[test]
fn a_session_that_lives_on_goes_on_where_it_stood() {
    let mut world = World::new();
    let publisher = world.client("publisher");
    let (conn, _) = world.reconnect(&Connect::v5("a").expiry(100));
    follow(&mut world, conn, "t", 1, semi_durable());
    publish(&mut world, publisher, &["1"]);
    let first = world.message(conn);
    world.send(conn, puback(first.id));
    world.fail(conn);
    publish(&mut world, publisher, &["2", "3"]);
    assert_eq!(world.stats().core.queued_events, 0, "nothing waits for who is away: the cache has it");
    let (conn, present) = world.reconnect(&Connect::v5("a").expiry(100).resume());
    assert!(present);
    publish(&mut world, publisher, &["4"]);
    assert_eq!(texts(&world.messages(conn)), ["2", "3", "4"]);
}

#[test]
fn what_was_not_acknowledged_comes_again_with_its_name_before_what_was_missed() {
    let mut world = World::new();
    let publisher = world.client("publisher");
    let (conn, _) = world.reconnect(&Connect::v5("a").expiry(100));
    follow(&mut world, conn, "t", 1, semi_durable());
    publish(&mut world, publisher, &["1"]);
    let first = world.message(conn);
    world.fail(conn);
    publish(&mut world, publisher, &["2"]);
    let (conn, _) = world.reconnect(&Connect::v5("a").expiry(100).resume());
    let messages = world.messages(conn);
    assert_eq!(texts(&messages), ["1", "2"]);
    assert_eq!((messages[0].dup, name(&messages[0])), (true, name(&first)));
    assert_eq!((messages[1].dup, name(&messages[1]).is_some()), (false, true));
}

#[test]
fn a_place_to_begin_moves_the_subscription_of_a_session() {
    let mut world = World::new();
    let publisher = world.client("publisher");
    let (conn, _) = world.reconnect(&Connect::v5("a").expiry(100));
    let token = follow(&mut world, conn, "t", 0, semi_durable());
    publish(&mut world, publisher, &["1", "2"]);
    assert_eq!(texts(&world.messages(conn)), ["1", "2"]);
    follow(&mut world, conn, "t", 0, from(&token));
    publish(&mut world, publisher, &["3"]);
    assert_eq!(texts(&world.messages(conn)), ["1", "2", "3"]);
}

#[test]
fn subscribing_again_without_a_place_keeps_the_position() {
    let mut world = World::new();
    let publisher = world.client("publisher");
    let (conn, _) = world.reconnect(&Connect::v5("a").expiry(100));
    follow(&mut world, conn, "t", 0, semi_durable());
    world.fail(conn);
    publish(&mut world, publisher, &["1"]);
    let (conn, _) = world.reconnect(&Connect::v5("a").expiry(100).resume());
    assert_eq!(texts(&world.messages(conn)), ["1"]);
    follow(&mut world, conn, "t", 0, semi_durable());
    publish(&mut world, publisher, &["2"]);
    assert_eq!(texts(&world.messages(conn)), ["2"]);
}

#[test]
fn a_session_that_is_gone_took_its_position_along() {
    let mut world = World::new();
    let publisher = world.client("publisher");
    let conn = world.client("a");
    follow(&mut world, conn, "t", 1, semi_durable());
    world.fail(conn);
    publish(&mut world, publisher, &["1"]);
    let conn = world.client("a");
    follow(&mut world, conn, "t", 1, semi_durable());
    publish(&mut world, publisher, &["2"]);
    assert_eq!(texts(&world.messages(conn)), ["2"]);
    assert_eq!(world.stats().core.subscriptions_tracked, 1);
}

#[test]
fn nondurable_subscriptions_go_on_with_what_comes_even_in_a_session_that_lives_on() {
    let mut world = World::new();
    let publisher = world.client("publisher");
    for props in [Props::new(), Props::new().user("w-notices", "on")] {
        let (conn, _) = world.reconnect(&Connect::v5("a").expiry(100));
        follow(&mut world, conn, "t", 1, props.user("w-durability", "nondurable"));
        world.fail(conn);
        publish(&mut world, publisher, &["1"]);
        let (conn, present) = world.reconnect(&Connect::v5("a").expiry(100).resume());
        assert!(present);
        publish(&mut world, publisher, &["2"]);
        assert_eq!(texts(&world.messages(conn)), ["2"]);
    }
}

#[test]
fn without_a_word_on_durability_a_session_queues_as_before() {
    let mut world = World::new();
    let publisher = world.client("publisher");
    let (conn, _) = world.reconnect(&Connect::v5("a").expiry(100));
    follow(&mut world, conn, "t", 1, Props::new());
    world.fail(conn);
    publish(&mut world, publisher, &["1"]);
    let (conn, _) = world.reconnect(&Connect::v5("a").expiry(100).resume());
    let message = world.message(conn);
    assert_eq!((message.text(), name(&message)), ("1", None));
}

#[test]
fn whoever_takes_a_session_over_goes_on_with_it() {
    let mut world = World::new();
    let publisher = world.client("publisher");
    let (old, _) = world.reconnect(&Connect::v5("a").expiry(100));
    let token = follow(&mut world, old, "t", 0, semi_durable());
    publish(&mut world, publisher, &["1"]);
    assert_eq!(texts(&world.messages(old)), ["1"]);
    let (conn, present) = world.reconnect(&Connect::v5("a").expiry(100).resume());
    assert!(present);
    world.assert_disconnected(old, 0x8E);
    publish(&mut world, publisher, &["2"]);
    assert_eq!(texts(&world.messages(conn)), ["2"]);
    let new = world.client("a");
    world.assert_disconnected(conn, 0x8E);
    follow(&mut world, new, "t", 0, from(&token));
    assert_eq!(texts(&world.messages(new)), ["1", "2"]);
}

#[test]
fn a_long_absence_is_caught_up_in_turns_without_a_seam() {
    let mut world = World::new();
    let publisher = world.client("publisher");
    let (conn, _) = world.reconnect(&Connect::v5("a").expiry(1000));
    follow(&mut world, conn, "t", option::RETAIN_AS_PUBLISHED, semi_durable());
    world.fail(conn);
    let all: Vec<String> = (0..2000).map(|number| number.to_string()).collect();
    publish(&mut world, publisher, &all[..1500].iter().map(String::as_str).collect::<Vec<_>>());
    let (conn, _) = world.reconnect(&Connect::v5("a").expiry(1000).resume());
    for text in &all[1500..] {
        publish(&mut world, publisher, &[text]);
    }
    world.advance(seconds(0));
    assert_eq!(texts(&world.messages(conn)), all);
    assert_eq!((world.stats().core.subscriptions_lagging, world.stats().core.subscriptions_tracked), (0, 1));
}
