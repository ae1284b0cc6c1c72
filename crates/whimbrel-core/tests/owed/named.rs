//! Filter records name the brokers for which an event is logged: only these parts of the log are
//! read for each.

use core::time::Duration;

use whimbrel_core::store::{HOLDS_SHARD, StreamName};
use whimbrel_core::{Filter, Input, Link};
use whimbrel_event::Qos;
use whimbrel_selector::Selector;

use crate::common::{CLEAN, Told, plain};
use crate::disk::restoring;
use crate::net::Net;
use crate::{PUB, SECOND, SUB, WIDE, back};

/// The filters of four brokers; no other subscription wants these events.
const QUARTERS: [&str; 4] = ["t/0", "t/1", "t/2", "t/3"];

/// A publisher at b0, and behind it a broker for each of these filters, with a durable subscriber.
fn world(filters: &[&str]) -> Net {
    let mut net = Net::line(1);
    for _ in filters {
        net.grow(0);
    }
    net.advance(SECOND * 2);
    net.attach(0, PUB, "publisher", CLEAN);
    for (node, filter) in (1..).zip(filters) {
        net.attach(node, SUB, "subscriber", WIDE);
        net.subscribe(node, SUB, plain(filter, Qos::AtLeastOnce));
    }
    net.advance(SECOND * 2);
    net
}

/// Publishes `count` events, one in four for each quarter; the first is number `first`.
fn publish(net: &mut Net, first: usize, count: usize) {
    for number in first..first + count {
        net.publish(0, PUB, QUARTERS[number % 4], &number.to_string());
        net.advance(Duration::from_millis(1));
    }
}

/// The numbers of a quarter.
fn quarter(of: usize, numbers: core::ops::Range<usize>) -> Vec<String> {
    numbers.filter(|number| number % 4 == of).map(|number| number.to_string()).collect()
}

fn kill_all(net: &mut Net) {
    (1..net.nodes.len()).for_each(|node| net.kill(node));
    net.advance(SECOND);
}

/// A broker and its subscriber are back: the payloads that it gets.
fn gets(net: &mut Net, node: usize) -> Vec<String> {
    net.revive(node);
    net.join(0, node);
    net.advance(SECOND);
    back(net, node);
    net.advance(SECOND * 15);
    net.payloads(node, SUB)
}

/// Events that were looked at, and events that were told.
fn looks(net: &Net) -> (u64, u64) {
    let stats = net.stats(0);
    (stats.events_looked_at, stats.events_lent)
}

/// The first broker ends, and another process has its disk.
fn restart_first(net: &mut Net) {
    net.kill(0);
    net.revive(0);
    net.attach(0, PUB, "publisher", CLEAN);
}

#[test]
fn only_what_is_named_is_looked_at() {
    let mut net = world(&QUARTERS);
    kill_all(&mut net);
    publish(&mut net, 0, 80);
    net.advance(SECOND);
    assert_eq!((net.nodes[0].logged, net.nodes[0].disk.filters()), (80, 80), "with a record for each event");
    for of in 0..4 {
        assert_eq!(gets(&mut net, of + 1), quarter(of, 0..80));
    }
    assert_eq!(looks(&net), (80, 80));
}

#[test]
fn records_name_the_same_brokers_after_a_restart() {
    let mut net = world(&QUARTERS);
    kill_all(&mut net);
    publish(&mut net, 0, 40);
    restart_first(&mut net);
    publish(&mut net, 40, 40);
    for of in 0..4 {
        assert_eq!(gets(&mut net, of + 1), quarter(of, 0..80));
    }
    // Some came as answers to nacks.
    let (looked_at, lent) = looks(&net);
    assert_eq!((looked_at, lent >= 60), (lent, true));
    net.advance(SECOND * 5);
    assert_eq!((net.nodes[0].disk.events(), net.nodes[0].disk.filters()), (0, 0), "records go with their events");
}

#[test]
fn what_was_logged_before_there_were_numbers_is_looked_at() {
    let mut net = world(&QUARTERS);
    kill_all(&mut net);
    publish(&mut net, 0, 40);
    net.kill(0);
    let disk = &mut net.nodes[0].disk;
    disk.streams.retain(|name, _| !matches!(name, StreamName::Filter { shard: HOLDS_SHARD, .. }));
    // Holds in their former format then end before the number.
    let keys: Vec<Vec<u8>> = disk.map.keys().filter(|key| key[0] == b'k').cloned().collect();
    assert_eq!(keys.len(), 4);
    for key in keys {
        let mut value = disk.map[&key].clone();
        value[0] = 1;
        let mut read = whimbrel_core::store::Restoring::default();
        while read.entry(&key, &value).is_err() {
            value.pop().expect("it is written in the old form with a new end");
        }
        disk.map.insert(key, value);
    }
    drop(restoring(disk));
    net.revive(0);
    net.attach(0, PUB, "publisher", CLEAN);
    publish(&mut net, 40, 40);
    // Numbers that were given at the restart stay.
    restart_first(&mut net);
    publish(&mut net, 80, 40);
    for of in 0..4 {
        assert_eq!(gets(&mut net, of + 1), quarter(of, 0..120));
    }
    // Some came as answers to nacks.
    let (looked_at, lent) = looks(&net);
    assert_eq!((looked_at - 4 * 40, lent > 80), (lent - 40, true), "all of the first, and of the others what is named");
}

#[test]
fn records_that_cannot_be_read_are_done_without() {
    let mut net = world(&QUARTERS);
    kill_all(&mut net);
    publish(&mut net, 0, 80);
    net.nodes[0].is_damaged = true;
    for of in 0..2 {
        assert_eq!(gets(&mut net, of + 1), quarter(of, 0..80));
    }
    assert!(looks(&net).0 >= 2 * looks(&net).1);
    net.nodes[0].is_damaged = false;
    for of in 2..4 {
        assert_eq!(gets(&mut net, of + 1), quarter(of, 0..80));
    }
}

#[cfg(feature = "mutants")]
#[test]
fn without_a_name_it_would_be_missed() {
    let mut net = world(&QUARTERS);
    net.nodes[0].core.build_in(whimbrel_core::Mutant::DebtorUnnamed);
    kill_all(&mut net);
    publish(&mut net, 0, 8);
    assert_eq!(gets(&mut net, 1), [""; 0]);
}

#[test]
fn what_is_wanted_under_a_part_of_what_is_owed_is_named() {
    let mut net = world(&["t/#"]);
    net.attach(1, 3, "another", WIDE);
    net.subscribe(1, 3, plain("t/1", Qos::AtLeastOnce));
    net.advance(SECOND * 2);
    // The interest of a filter below `t/#` is told together with that, and asked for alone.
    net.input(1, Input::Unsubscribe { link: Link(SUB), tag: 2, filters: &["t/#"] });
    net.subscribe(1, SUB, plain("t/+", Qos::AtLeastOnce));
    net.advance(SECOND * 12);
    kill_all(&mut net);
    publish(&mut net, 0, 40);
    net.revive(1);
    net.join(0, 1);
    net.advance(SECOND);
    assert_eq!(net.attach(1, 3, "another", WIDE), Told::Attached { present: true });
    net.advance(SECOND * 3);
    assert_eq!(net.payloads(1, 3), quarter(1, 0..40));
    assert_eq!(looks(&net), (40, 10), "the record names the broker, not the subscription");
    back(&mut net, 1);
    net.advance(SECOND * 3);
    let all: Vec<String> = (0..40).map(|number| number.to_string()).collect();
    assert_eq!(net.payloads(1, SUB), all);
}

#[test]
fn a_part_for_which_something_else_was_owed_is_looked_at() {
    let mut net = world(&["t/0", "t/#"]);
    net.detach(1, SUB);
    net.advance(SECOND);
    publish(&mut net, 0, 8);
    net.advance(SECOND);
    assert_eq!(net.payloads(2, SUB).len(), 8);
    // A broker without a hold asks for events held for another one.
    let [low, high] = ["JMSPriority < 6", "JMSPriority > 4"].map(|text| Selector::parse(text).expect("a selector"));
    let filter = |selector| Filter { selector: Some(selector), ..plain("t/#", Qos::AtLeastOnce) };
    net.attach(1, 3, "selective", WIDE);
    net.subscribe(1, 3, filter(&low));
    publish(&mut net, 8, 8);
    net.advance(SECOND);
    net.subscribe(1, 3, filter(&high));
    net.detach(1, 3);
    publish(&mut net, 16, 8);
    net.advance(SECOND);
    kill_all(&mut net);
    publish(&mut net, 24, 8);
    restart_first(&mut net);
    publish(&mut net, 32, 8);
    assert_eq!(gets(&mut net, 1), quarter(0, 0..40));
    assert_eq!(net.attach(1, 3, "selective", WIDE), Told::Attached { present: true });
    net.advance(SECOND * 3);
    // The events have the priority that both want.
    let got = net.payloads(1, 3);
    let wanted: Vec<String> = (8..40).map(|number| number.to_string()).collect();
    assert_eq!(got, wanted);
    assert_eq!(gets(&mut net, 2), (8..40).map(|number| number.to_string()).collect::<Vec<_>>());
}

#[test]
fn who_has_what_another_broker_was_owed_gets_it() {
    // A broker loses its disk, and its sessions go to one without a hold, or with another one.
    for owes_another in [false, true] {
        let mut net = Net::moving(3);
        net.attach(0, PUB, "publisher", CLEAN);
        if owes_another {
            net.attach(1, 3, "another", WIDE);
            net.subscribe(1, 3, plain("t/1", Qos::AtLeastOnce));
        }
        net.attach(2, SUB, "subscriber", WIDE);
        net.subscribe(2, SUB, plain("t/0", Qos::AtLeastOnce));
        net.advance(SECOND * 2);
        net.detach(2, SUB);
        net.advance(SECOND * 2);
        publish(&mut net, 0, 40);
        net.kill(2);
        net.lose_disk(2);
        publish(&mut net, 40, 8);
        net.advance(SECOND * 20);
        back(&mut net, 1);
        net.advance(SECOND * 3);
        assert_eq!(net.payloads(1, SUB), quarter(0, 0..48), "{owes_another}");
        net.revive(2);
        net.join(1, 2);
        net.advance(SECOND * 20);
        net.detach(1, SUB);
        publish(&mut net, 48, 40);
        net.advance(SECOND * 3);
        back(&mut net, 2);
        net.advance(SECOND * 3);
        assert_eq!(net.payloads(2, SUB), quarter(0, 48..88), "{owes_another}");
    }
}
