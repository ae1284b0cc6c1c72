//! What the cache no longer has is told as a gap.

use whimbrel_core::cache::{Capacity, DefaultPlan, PartitionPlan, Plan, Policy};
use whimbrel_event::EventId;
use whimbrel_mqtt::Config;

use super::{ask, follow, from, gap, member, name, publish, semi_durable, texts};
use crate::wire::{Connect, Props, Publish, puback};
use crate::world::{World, quiet, seconds};

fn holding(events: u64) -> Plan {
    Plan { default: DefaultPlan { capacity: Capacity::Events(events), policy: Policy::Lrp }, ..Plan::default() }
}

#[test]
fn what_was_overwritten_is_told_before_what_is_left() {
    let mut world = World::new();
    world.divide(&holding(10));
    let (conn, publisher) = (world.client("a"), world.client("publisher"));
    let token = follow(&mut world, conn, "t", 1, semi_durable());
    world.fail(conn);
    let all: Vec<String> = (1..=30).map(|number| number.to_string()).collect();
    publish(&mut world, publisher, &all.iter().map(String::as_str).collect::<Vec<_>>());
    let conn = world.client("a");
    follow(&mut world, conn, "t", 1, from(&token).user("w-notices", "on"));
    let got = world.messages(conn);
    assert_eq!(texts(&got[1..]), &all[20..]);
    let (told, first) = (gap(&got[0]), name(&got[1]).and_then(|name| name.parse::<EventId>().ok()).expect("a name"));
    assert_eq!((told.reason.as_str(), told.pubend.clone()), ("overwritten", first.pubend.to_string()));
    let position = token.parse::<whimbrel_event::CheckpointToken>().expect("a token").position(first.pubend);
    assert_eq!(Some(whimbrel_event::Tick(told.from)), position);
    assert!(told.from < told.to && told.to < first.tick.0, "{told:?} before {first}");
    assert_eq!(world.stats().core.gaps_overwritten, 1);
    assert_eq!(world.gappy_clients(), [("a".to_owned(), 1)]);
}

#[test]
fn without_notices_gaps_are_counted_only() {
    let mut world = World::new();
    world.divide(&holding(1));
    let (conn, publisher) = (world.client("a"), world.client("publisher"));
    let token = follow(&mut world, conn, "t", 1, semi_durable());
    world.fail(conn);
    publish(&mut world, publisher, &["1", "2"]);
    let conn = world.client("a");
    follow(&mut world, conn, "t", 1, from(&token));
    assert_eq!(texts(&world.messages(conn)), ["2"]);
    assert_eq!(world.stats().core.gaps_overwritten, 1);
}

#[test]
fn when_all_was_overwritten_the_gap_comes_alone() {
    let mut world = World::new();
    world.divide(&holding(5));
    let (conn, publisher) = (world.client("a"), world.client("publisher"));
    let token = follow(&mut world, conn, "t", 1, semi_durable());
    world.fail(conn);
    publish(&mut world, publisher, &["1"]);
    for _ in 0..10 {
        world.send(publisher, Publish::new("other", "x").qos(1, 1));
    }
    let conn = world.client("a");
    follow(&mut world, conn, "t", 1, from(&token).user("w-notices", "on"));
    let notice = world.message(conn);
    assert_eq!(gap(&notice).reason, "overwritten");
    publish(&mut world, publisher, &["live"]);
    assert_eq!(texts(&world.messages(conn)), ["live"]);
}

#[test]
fn a_partition_of_its_own_is_not_overwritten_by_others() {
    let mut world = World::new();
    let partition =
        PartitionPlan { filter: "t".into(), selector: None, capacity: Capacity::Events(10), policy: Policy::Lrp };
    world.divide(&Plan { partitions: vec![partition], ..holding(5) });
    let (conn, publisher) = (world.client("a"), world.client("publisher"));
    let token = follow(&mut world, conn, "t", 1, semi_durable());
    world.fail(conn);
    publish(&mut world, publisher, &["1"]);
    for _ in 0..50 {
        world.send(publisher, Publish::new("other", "x").qos(1, 1));
    }
    let conn = world.client("a");
    follow(&mut world, conn, "t", 1, from(&token).user("w-notices", "on"));
    assert_eq!(texts(&world.messages(conn)), ["1"]);
    assert_eq!(world.stats().core.gaps_overwritten, 0);
}

#[test]
fn a_division_while_the_client_is_away_loses_nothing_that_has_room() {
    let mut world = World::new();
    let (conn, publisher) = (world.client("a"), world.client("publisher"));
    let token = follow(&mut world, conn, "t", 1, semi_durable());
    world.fail(conn);
    publish(&mut world, publisher, &["1", "2"]);
    let partition = PartitionPlan {
        filter: "t".into(),
        selector: None,
        capacity: Capacity::Bytes(1 << 20),
        policy: Policy::PRIORITY,
    };
    world.divide(&Plan { partitions: vec![partition], ..Plan::default() });
    publish(&mut world, publisher, &["3"]);
    let conn = world.client("a");
    follow(&mut world, conn, "t", 1, from(&token).user("w-notices", "on"));
    assert_eq!(texts(&world.messages(conn)), ["1", "2", "3"]);
}

#[test]
fn a_client_that_takes_less_than_comes_is_told_that_it_was_slow() {
    let core = whimbrel_core::Limits { tracked_queue_bytes: 1000, ..whimbrel_core::Limits::default() };
    let mut world = World::with(Config { core, ..quiet() });
    world.divide(&holding(3));
    let (conn, publisher) = (world.connect(&Connect::v5("a").receive_maximum(1)), world.client("publisher"));
    follow(&mut world, conn, "t", 1, semi_durable().user("w-notices", "on"));
    let all: Vec<String> = (0..100).map(|number| number.to_string()).collect();
    publish(&mut world, publisher, &all.iter().map(String::as_str).collect::<Vec<_>>());
    let mut got = Vec::new();
    while let [message] = &world.messages(conn)[..] {
        world.send(conn, puback(message.id));
        got.push(message.clone());
    }
    let gaps: Vec<usize> = (0..got.len()).filter(|at| member_of_notice(&got[*at])).collect();
    assert_eq!(gaps, [got.len() - 4], "one gap, and the last three behind it");
    assert_eq!(gap(&got[gaps[0]]).reason, "slow");
    assert_eq!(texts(&got[got.len() - 3..]), &all[97..]);
    assert_eq!(texts(&got[..gaps[0]]), &all[..gaps[0]], "what waited came first");
    assert_eq!((world.stats().core.gaps_slow, world.stats().core.fell_behind), (1, 1));
    publish(&mut world, publisher, &["live"]);
    assert_eq!(texts(&world.messages(conn)), ["live"]);
}

fn member_of_notice(message: &crate::wire::Message) -> bool {
    message.topic.starts_with('$') && member(message, "kind") == Some("gap")
}

#[test]
fn earliest_begins_behind_what_was_overwritten_and_a_time_before_it() {
    let mut world = World::new();
    world.divide(&holding(2));
    world.advance(seconds(1));
    let publisher = world.client("publisher");
    publish(&mut world, publisher, &["1", "2", "3"]);
    let conn = world.client("a");
    let notices = |place: &str| from(place).user("w-notices", "on");
    assert_eq!(ask(&mut world, conn, &[("t", 0)], notices("earliest")).codes, [0]);
    assert_eq!(texts(&world.messages(conn)), ["2", "3"], "nothing is missing behind the beginning");
    assert_eq!(ask(&mut world, conn, &[("t", 0)], notices("2026-01-01T00:00:00Z")).codes, [0]);
    let got = world.messages(conn);
    assert_eq!((gap(&got[0]).reason.as_str(), texts(&got[1..])), ("overwritten", vec!["2", "3"]));
    assert_eq!(ask(&mut world, conn, &[("t", 0)], Props::new()).codes, [0]);
}
