//! Notices of silence. Those of gaps are beside what makes the gaps.

use super::{follow, from, member, name, publish, semi_durable, texts};
use crate::wire::property::{CONTENT_TYPE, PAYLOAD_FORMAT, SUBSCRIPTION_ID};
use crate::wire::{Props, Publish};
use crate::world::{World, seconds};

#[test]
fn silence_is_told_after_thirty_seconds_with_a_token_that_skips_it() {
    let mut world = World::new();
    let (conn, publisher) = (world.client("a"), world.client("publisher"));
    follow(&mut world, conn, "t", 1, semi_durable().user("w-notices", "on"));
    for number in 0..100 {
        world.send(publisher, Publish::new("other", number.to_string()).qos(1, 1));
    }
    world.advance(seconds(29));
    assert_eq!(world.packets(conn), []);
    world.advance(seconds(1));
    let notice = world.message(conn);
    assert_eq!((member(&notice, "kind"), member(&notice, "reason"), name(&notice)), (Some("silence"), None, None));
    assert_eq!((notice.qos, notice.retain), (1, false));
    assert_eq!(notice.props.text(CONTENT_TYPE), Some("application/json"));
    assert_eq!(notice.props.number(PAYLOAD_FORMAT), Some(1));
    let tick = |name| member(&notice, name).and_then(|tick| tick.parse::<u64>().ok()).expect("a tick");
    assert!(tick("from") < tick("to"));
    let token = member(&notice, "token").expect("a token").to_owned();
    world.fail(conn);
    publish(&mut world, publisher, &["x"]);
    let conn = world.client("a");
    follow(&mut world, conn, "+", 1, from(&token));
    assert_eq!(texts(&world.messages(conn)), ["x"], "what came before the silence is passed");
}

#[test]
fn silence_is_told_again_and_again_also_to_who_gets_events() {
    let mut world = World::new();
    let (conn, publisher) = (world.client("a"), world.client("publisher"));
    follow(&mut world, conn, "t", 0, Props::new().user("w-notices", "on").var(SUBSCRIPTION_ID, 3));
    world.advance(seconds(20));
    publish(&mut world, publisher, &["x"]);
    assert_eq!(world.payloads(conn), ["x"]);
    world.advance(seconds(9));
    assert_eq!(world.packets(conn), []);
    for span in [1, 30, 30] {
        world.advance(seconds(span));
        let notice = world.message(conn);
        assert_eq!(member(&notice, "kind"), Some("silence"));
        assert_eq!((notice.qos, notice.props.number(SUBSCRIPTION_ID)), (0, Some(3)));
    }
}

#[test]
fn nobody_else_is_told() {
    let mut world = World::new();
    let (tracked, plain) = (world.client("a"), world.client("b"));
    follow(&mut world, tracked, "t", 0, semi_durable());
    follow(&mut world, plain, "t", 0, Props::new());
    let watcher = world.client("c");
    for filter in ["#", "$whimbrel/#", "$whimbrel/notice"] {
        world.subscribe(watcher, filter, 0);
    }
    let noticed = world.client("d");
    follow(&mut world, noticed, "t", 0, semi_durable().user("w-notices", "on"));
    world.advance(seconds(100));
    for conn in [tracked, plain, watcher] {
        assert_eq!(world.packets(conn), []);
    }
    assert_eq!(world.packets(noticed).len(), 3);
}

#[test]
fn notices_end_with_the_subscription_and_with_off() {
    let mut world = World::new();
    let conn = world.client("a");
    follow(&mut world, conn, "t", 0, semi_durable().user("w-notices", "on"));
    follow(&mut world, conn, "t", 0, semi_durable().user("w-notices", "off"));
    world.advance(seconds(100));
    assert_eq!(world.packets(conn), []);
    follow(&mut world, conn, "t", 0, semi_durable().user("w-notices", "on"));
    world.send(conn, crate::wire::Unsubscribe { id: 3, filters: &["t"] });
    world.packets(conn);
    world.advance(seconds(100));
    assert_eq!(world.packets(conn), []);
}
