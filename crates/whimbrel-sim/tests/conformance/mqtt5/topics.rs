//! Topic names and filters (4.7).

use whimbrel_mqtt::Config;

use crate::wire::{Packet, Publish, Subscribe};
use crate::world::{World, quiet, seconds};

/// Which of the topics reach a subscription with that filter.
fn matched<'a>(filter: &str, topics: &[&'a str]) -> Vec<&'a str> {
    let mut world = World::new();
    let subscriber = world.client("subscriber");
    world.subscribe(subscriber, filter, 0);
    let publisher = world.client("publisher");
    for topic in topics {
        world.send(publisher, Publish::new(topic, "x"));
    }
    let seen = world.messages(subscriber);
    topics.iter().copied().filter(|topic| seen.iter().any(|message| message.topic == *topic)).collect()
}

// covers: MQTT-4.7.1-1, MQTT-4.7.1-2, MQTT-4.7.0-1
#[test]
fn wildcards_match_what_they_should() {
    let topics = ["a", "a/b", "a/b/c", "/a", "a/", "/", "a//c", "b", "a/b/c/d"];
    for (filter, expected) in [
        ("a", &["a"][..]),
        ("a/#", &["a", "a/b", "a/b/c", "a/", "a//c", "a/b/c/d"]),
        ("#", &topics),
        ("+", &["a", "b"]),
        ("/+", &["/a", "/"]),
        ("+/+", &["a/b", "/a", "a/", "/"]),
        ("a/+", &["a/b", "a/"]),
        ("a/+/c", &["a/b/c", "a//c"]),
        ("+/b/#", &["a/b", "a/b/c", "a/b/c/d"]),
        ("a/b/c/#", &["a/b/c", "a/b/c/d"]),
        ("+/#", &topics),
        ("/#", &["/a", "/"]),
        ("a/", &["a/"]),
    ] {
        assert_eq!(matched(filter, &topics), expected, "{filter}");
    }
}

// covers: MQTT-4.7.3-4
#[test]
fn matching_neither_normalizes_nor_folds() {
    // e with an accent in one character and in two; and a ligature.
    let topics = ["caf\u{E9}", "cafe\u{301}", "A", "a", "a b", " a", "\u{FB01}", "fi", "a/../b", "b", "%61"];
    for topic in topics {
        assert_eq!(matched(topic, &topics), [topic]);
    }
}

// covers: MQTT-4.7.2-1
#[test]
fn wildcards_do_not_match_topics_of_the_server() {
    let config = Config { sys_interval: Some(seconds(10)), ..quiet() };
    let mut world = World::with(config);
    let everything = world.client("everything");
    world.subscribe(everything, "#", 0);
    let second = world.client("second");
    world.subscribe(second, "+/#", 0);
    let system = world.client("system");
    world.subscribe(system, "$SYS/#", 0);
    world.advance(seconds(60));
    assert!(!world.messages(system).is_empty(), "$SYS is published");
    assert_eq!(world.messages(everything), []);
    assert_eq!(world.messages(second), []);
    let late = world.client("late");
    world.subscribe(late, "#", 0);
    assert_eq!(world.messages(late), [], "nor what is retained");
}

// covers: MQTT-4.7.2-1
#[test]
fn wildcards_do_not_match_topics_of_replies() {
    let mut world = World::new();
    let wild = world.client("wild");
    for filter in ["#", "+/#", "+/a", "/#"] {
        world.subscribe(wild, filter, 0);
    }
    let named = world.client("named");
    world.subscribe(named, "$replies/+", 0);
    let publisher = world.client("publisher");
    world.send(publisher, Publish::new("$replies/a", "x").retain());
    assert_eq!(world.payloads(named), ["x"]);
    assert_eq!(world.messages(wild), []);
    world.subscribe(wild, "#", 0);
    assert_eq!(world.messages(wild), [], "nor when it is retained");
}

// covers: MQTT-4.7.3-3
#[test]
fn the_longest_topics_are_served() {
    let mut world = World::new();
    let long = "x".repeat(65_535);
    let subscriber = world.client("subscriber");
    world.send(subscriber, Subscribe::new(1, &[(&long, 1)]));
    match world.packets(subscriber).as_slice() {
        [Packet::Suback { codes, .. }] => assert_eq!(codes, &[1]),
        other => panic!("SUBACK expected, got {other:?}"),
    }
    let publisher = world.client("publisher");
    world.send(publisher, Publish::new(&long, "x"));
    assert_eq!(world.message(subscriber).topic, long);
}

// covers: MQTT-4.7.3-1
#[test]
fn a_topic_of_separators_is_a_topic() {
    let topics = ["/", "//", "///"];
    for topic in topics {
        assert_eq!(matched(topic, &topics), [topic]);
    }
    assert_eq!(matched("+/+/+", &topics), ["//"]);
}
