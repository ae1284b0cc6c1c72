//! A replicated map becomes the same at all nodes.

use whimbrel_net::registry::KEYS_PENDING_MAX;

use crate::fabric::Fabric;
use crate::fabric::node::Change;
use crate::scenarios::{MILLI, SECOND};

/// Five nodes in a ring; the wires are in the order of their first nodes.
fn ring() -> Fabric {
    let mut fabric = Fabric::of(5);
    for number in 0..5 {
        fabric.link([number, (number + 1) % 5], MILLI * 2);
    }
    fabric.run(SECOND);
    fabric
}

#[test]
fn changes_at_the_same_time_become_one() {
    let mut fabric = ring();
    for number in 0..5 {
        fabric.put(number, "shared", Some(&format!("from {number}")));
        fabric.put(number, &format!("of {number}"), Some("own"));
    }
    fabric.run(MILLI * 10);
    assert!(fabric.has_one_map());
    let map = fabric.node(0).shelves[0].values();
    assert_eq!((map.len(), map["shared"]), (6, "from 4"), "of equal times the greater host counts");
    fabric.run(MILLI);
    fabric.put(1, "shared", None);
    fabric.put(3, "of 0", Some("another's"));
    fabric.run(MILLI * 10);
    assert!(fabric.has_one_map());
    let map = fabric.node(2).shelves[0].values();
    assert_eq!((map.len(), map.get("shared"), map["of 0"]), (5, None, "another's"));
    assert!(fabric.alive().iter().all(|number| fabric.node(*number).shelves[0].len() == 6), "a tombstone stays");
}

#[test]
fn what_was_removed_while_a_node_was_away_does_not_come_back() {
    let mut fabric = ring();
    fabric.put(0, "removed", Some("value"));
    fabric.put(0, "changed", Some("before"));
    fabric.run(SECOND);
    fabric.close(2);
    fabric.close(3);
    fabric.put(1, "removed", None);
    fabric.put(1, "changed", Some("elsewhere"));
    fabric.run(MILLI);
    fabric.put(3, "changed", Some("while away"));
    fabric.put(3, "added", Some("while away"));
    fabric.run(SECOND);
    assert!(!fabric.has_one_map());
    fabric.heal(2);
    fabric.run(SECOND);
    assert!(fabric.has_one_map());
    let map = fabric.node(4).shelves[0].values();
    assert_eq!((map.get("removed"), map["changed"], map["added"]), (None, "while away", "while away"));
}

#[test]
fn a_node_that_was_away_gets_more_keys_than_may_be_pending() {
    let mut fabric = ring();
    fabric.close(2);
    fabric.close(3);
    for number in 0..KEYS_PENDING_MAX + 1_000 {
        fabric.put(number % 3, &format!("key/{number}"), Some("value"));
    }
    for number in 0..500 {
        fabric.put(3, &format!("key/{}", number * 7), Some("while away"));
    }
    fabric.run(SECOND);
    fabric.heal(3);
    fabric.run(SECOND);
    assert!(fabric.has_one_map());
    assert_eq!(fabric.node(3).shelves[0].len(), KEYS_PENDING_MAX + 1_000);
    let away = fabric.node(0).shelves[0].values().values().filter(|value| **value == "while away").count();
    assert!((1..=500).contains(&away), "{away}: the later change of each key counts");
}

#[test]
fn maps_of_different_numbers_are_apart() {
    let mut fabric = ring();
    fabric.close(2);
    fabric.close(3);
    for (map, number) in [(0, 0), (1, 1), (1, 3)] {
        let value = format!("of map {map} by {number}");
        fabric.change(number, Change { map, key: "key", value: Some(&value) });
        fabric.change(number, Change { map, key: &value, value: Some("own") });
        fabric.run(MILLI);
    }
    fabric.heal(2);
    fabric.run(SECOND);
    assert!(fabric.has_one_map());
    let maps = [0, 1].map(|map| fabric.node(4).shelves[map].values());
    assert_eq!(maps.each_ref().map(|map| (map.len(), map["key"])), [(2, "of map 0 by 0"), (3, "of map 1 by 3")]);
}

#[test]
fn keys_beyond_those_that_may_be_pending_on_a_full_link_are_compared() {
    let mut fabric = Fabric::line(3, MILLI);
    fabric.run(SECOND);
    fabric.limit(0, Some(2_000));
    let value = "v".repeat(200);
    let keys = 2 * KEYS_PENDING_MAX;
    for number in 0..keys {
        fabric.put(0, &format!("key/{number}"), Some(&value));
    }
    let pending = |fabric: &Fabric| {
        let peer = fabric.node(0).net.neighbours().next().expect("it is up");
        peer.pending.maps[0].len()
    };
    assert_eq!(pending(&fabric), KEYS_PENDING_MAX, "the others are not noted");
    fabric.run(MILLI * 10);
    fabric.put(2, "key/0", None);
    // Before all maps are compared anyway.
    assert_eq!(fabric.node(0).told.refreshed, 0);
    fabric.run(SECOND * 3);
    assert_eq!(fabric.node(0).told.refreshed, 0);
    assert_eq!(pending(&fabric), 0);
    assert!(fabric.has_one_map());
    assert_eq!(fabric.node(2).shelves[0].values().len(), keys - 1);
}

/// Removed keys have no values, and values may have nearly the bytes of a frame.
#[test]
fn long_keys_and_large_values_end_a_frame_before_it_is_too_large() {
    let mut fabric = Fabric::of(2);
    let wire = fabric.link([0, 1], MILLI);
    fabric.run(SECOND);
    fabric.close(wire);
    fabric.run(MILLI * 10);
    let keys: Vec<String> = (0..60).map(|number| format!("{number:02}{}", "k".repeat(60_000))).collect();
    for key in &keys {
        fabric.put(0, key, Some("value"));
        fabric.put(0, key, None);
    }
    let (little, large) = ("v".repeat(65_000), "w".repeat((2 << 20) - 66_000));
    fabric.put(0, "a", Some(&little));
    fabric.put(0, "b", Some(&large));
    fabric.put(0, "c", Some("after"));
    fabric.put(0, "no frame has it", Some(&"x".repeat(2 << 20)));
    fabric.heal(wire);
    fabric.run(SECOND * 2);
    let [here, there] = [0, 1].map(|number| &fabric.node(number).shelves[0]);
    assert_eq!(there.len(), here.len() - 1, "all but one");
    assert_eq!(there.values().get("b").map(|value| value.len()), Some(large.len()));
    assert!(fabric.node(0).net.stats().entries_too_large > 0);
    assert!(fabric.alive().iter().all(|number| fabric.hung_up(*number).is_empty()));
}
