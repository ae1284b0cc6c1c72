//! Events given before a subscription's position record changes in kind, and acknowledged since, do
//! not come again after a restart.

use core::time::Duration;

use whimbrel_core::{Durability, Filter, Input, Limits, Link, Settlement, SubscriptionSpec};
use whimbrel_event::Qos;

use crate::common::{CLEAN, Got, Told, plain};
use crate::net::Net;
use crate::{PUB, SECOND, SUB, WIDE};

/// Another client of the broker in the middle, which has acknowledged one event: so there is a
/// position base.
const OTHER: u32 = 3;

fn durable(text: &str) -> Filter<'_> {
    plain(text, Qos::AtLeastOnce)
}

fn given(net: &mut Net, node: usize, link: u32) -> Vec<Got> {
    let told = net.told(node, link).into_iter();
    told.filter_map(|told| if let Told::Event(got) = told { Some(got) } else { None }).collect()
}

fn acknowledge(net: &mut Net, node: usize, link: u32, given: &[Got]) {
    let by = Settlement::Acknowledged;
    given.iter().for_each(|got| net.input(node, Input::Settle { link: Link(link), tag: got.tag, by }));
}

/// Three brokers in a line, publishers at both ends.
fn world(limits: Limits) -> Net {
    let mut net = Net::with(3, limits);
    [0, 2].into_iter().for_each(|node| drop(net.attach(node, PUB, &format!("publisher{node}"), CLEAN)));
    net.attach(1, OTHER, "other", WIDE);
    net.subscribe(1, OTHER, durable("t/#"));
    net.publish(0, PUB, "t/a", "before");
    net.advance(SECOND);
    assert_eq!(net.payloads(1, OTHER), ["before"]);
    net
}

/// The payloads that a subscriber gets when its broker is restarted.
fn again(net: &mut Net) -> Vec<String> {
    net.kill(1);
    net.advance(SECOND);
    net.revive(1);
    net.join(0, 1);
    net.join(1, 2);
    net.advance(SECOND);
    assert_eq!(net.attach(1, SUB, "subscriber", WIDE), Told::Attached { present: true });
    net.advance(SECOND * 2);
    let mut again = net.payloads(1, SUB);
    again.sort();
    again
}

#[test]
fn what_was_given_before_a_log_counted_and_acknowledged_after_does_not_come_again() {
    let mut net = world(Limits::default());
    // Its log will not count for the subscription.
    net.kill(2);
    net.advance(SECOND * 3);
    net.attach(1, SUB, "subscriber", WIDE);
    let spec = SubscriptionSpec { durability: Durability::SemiDurable, ..durable("t/#").spec };
    net.subscribe(1, SUB, Filter { spec, ..durable("t/#") });
    net.advance(SECOND * 3);
    for payload in ["x", "y"] {
        net.publish(0, PUB, "t/a", payload);
        net.advance(Duration::from_millis(10));
    }
    let given = given(&mut net, 1, SUB);
    net.subscribe(1, SUB, durable("t/#"));
    net.advance(SECOND);
    acknowledge(&mut net, 1, SUB, &given);
    net.advance(SECOND);
    assert_eq!((given.len(), again(&mut net)), (2, Vec::new()));
}

#[test]
fn what_was_acknowledged_as_a_position_ceased_to_refer_to_a_base_does_not_come_again() {
    let mut net = world(Limits { base_every: SECOND, ..Limits::default() });
    net.attach(1, SUB, "subscriber", WIDE);
    net.subscribe(1, SUB, durable("t/+"));
    net.advance(SECOND * 3);
    for payload in ["x", "y"] {
        net.publish(0, PUB, "t/a", payload);
    }
    net.advance(SECOND * 3);
    let given_first = given(&mut net, 1, SUB);
    // It changes over to a base that is ahead of the events that it was given.
    net.publish(2, PUB, "t/b", "z");
    net.advance(Duration::from_millis(50));
    let last = given(&mut net, 1, SUB);
    acknowledge(&mut net, 1, SUB, &last);
    net.advance(Duration::from_millis(200));
    // Positions are counted once, and all of the rest happens in the moment before the next count.
    // The log is held for the other client.
    let others = given(&mut net, 1, OTHER);
    acknowledge(&mut net, 1, OTHER, &others[2..]);
    net.publish(2, PUB, "t/b", "later");
    net.advance(Duration::from_millis(3));
    acknowledge(&mut net, 1, SUB, &given_first[..1]);
    net.detach(1, SUB);
    net.advance(SECOND);
    assert_eq!((given_first.len(), last.len(), again(&mut net)), (2, 1, vec!["later".into(), "y".into()]));
}
