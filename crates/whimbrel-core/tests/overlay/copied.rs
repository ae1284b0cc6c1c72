//! Copies of sessions name only the streams in which a subscription's position differs from the
//! others, and a broker that resumes from one misses nothing and repeats nothing.

use core::time::Duration;

use whimbrel_core::cache::{Capacity, DefaultPlan, Plan, Policy};
use whimbrel_core::{Durability, Filter, SubscriptionSpec};
use whimbrel_event::Qos;
use whimbrel_wire::{BrokerMessage, Frame, MessageFrame};

use super::common::plain;
use super::net::{Net, frame};

const SECOND: Duration = Duration::from_secs(1);

/// All streams have moved since, and most subscriptions count from one tick.
const LONG: Duration = Duration::from_secs(100);

/// A publisher at the first of the brokers, a durable subscriber at the second.
fn world(brokers: usize) -> Net {
    let mut net = Net::mesh(brokers);
    net.advance(SECOND * 25);
    net.connect(0, 9, "pub");
    net.connect(1, 1, "sub");
    net.subscribe_durably(1, 1, "t", Qos::AtLeastOnce);
    net.advance(LONG);
    net
}

/// Copies that the subscriber's broker has sent, and their bytes.
fn copied(net: &Net) -> (u64, u64) {
    let stats = net.nodes[1].core.overlay_stats().unwrap();
    (stats.copies_out, stats.copies_bytes)
}

/// Bytes of a copy, while an event is delivered and acknowledged each second.
fn bytes_each(net: &mut Net) -> u64 {
    let before = copied(net);
    for payload in ["1", "2", "3", "4", "5"] {
        net.publish_all(0, 9, &[payload]);
        assert_eq!(net.settled(1, 1, SECOND), [payload]);
    }
    let after = copied(net);
    assert!(after.0 > before.0, "it is copied");
    (after.1 - before.1) / (after.0 - before.0)
}

#[test]
fn a_copy_takes_no_more_among_more_brokers() {
    let sizes = [3, 12].map(|brokers| bytes_each(&mut world(brokers)));
    println!("{sizes:?} bytes of a copy among 3 and 12 brokers");
    assert!(sizes[1] < sizes[0] + 8 && sizes[1] < 250, "{sizes:?}");
}

#[test]
fn whoever_goes_on_from_a_copy_that_names_little_gets_what_is_missing_once() {
    for unsettled in [false, true] {
        let mut net = world(6);
        bytes_each(&mut net);
        net.publish_all(0, 9, &["6"]);
        if unsettled {
            net.advance(SECOND);
            net.got(1, 1);
        } else {
            assert_eq!(net.settled(1, 1, SECOND), ["6"]);
        }
        net.kill(1);
        net.advance(SECOND);
        net.publish_all(0, 9, &["7"]);
        assert_eq!(net.connect(2, 1, "sub"), Some(true));
        let expected: &[&str] = if unsettled { &["6", "7"] } else { &["7"] };
        assert_eq!(net.settled(2, 1, SECOND * 3), expected);
        // It hears of its owner, which is gone, when that is back.
        net.revive(1, true);
        net.advance(SECOND * 20);
        assert_eq!([net.sessions_at(1), net.sessions_at(2)], [0, 1]);
        net.publish_all(0, 9, &["8"]);
        assert_eq!(net.settled(2, 1, SECOND), ["8"]);
    }
}

#[test]
fn who_left_long_ago_is_copied_as_little_and_found_where_it_stood() {
    let mut net = world(12);
    bytes_each(&mut net);
    net.leave(1, 1);
    net.advance(SECOND * 3);
    let before = copied(&net);
    net.publish_all(0, 9, &["6"]);
    net.advance(LONG);
    // Another broker is its replica now: it has the whole session.
    net.kill(2);
    net.kill(3);
    net.advance(SECOND * 30);
    let after = copied(&net);
    assert!(after.1 - before.1 < 640 * (after.0 - before.0 + 1), "{before:?} {after:?}");
    net.kill(1);
    net.advance(SECOND * 2);
    net.publish_all(0, 9, &["7"]);
    assert_eq!(net.connect(4, 1, "sub"), Some(true));
    assert_eq!(net.settled(4, 1, SECOND * 3), ["6", "7"]);
}

#[test]
fn a_deputy_that_does_not_know_a_stream_yet_gets_copies_that_name_all() {
    let mut net = world(4);
    bytes_each(&mut net);
    // A broker joins, and not all hear of it at once.
    for wait in [0, 3, 40, 400, 2_500] {
        let node = Net::node(net.nodes.len(), 77 + wait, net.now);
        net.nodes.push(node);
        net.join(net.nodes.len() - 1, 0, Duration::from_millis(200));
        net.advance(Duration::from_millis(wait));
        net.publish_all(0, 9, &["a"]);
        assert_eq!(net.settled(1, 1, SECOND / 2), ["a"]);
    }
    net.kill(1);
    net.advance(SECOND);
    net.publish_all(0, 9, &["b"]);
    assert_eq!(net.connect(2, 1, "sub"), Some(true));
    assert_eq!(net.settled(2, 1, SECOND * 3), ["b"]);
}

/// Whether a frame is a message of a kind.
fn is_letter(bytes: &[u8], is_it: impl Fn(&BrokerMessage<'_>) -> bool) -> bool {
    let message = |message: MessageFrame<'_>| {
        BrokerMessage::decode(message.kind, message.body).is_ok_and(|message| is_it(&message))
    };
    matches!(frame(bytes), Some(Frame::MessageFrame(known)) if message(known))
}

/// Brokers whose caches have room for one event.
fn forgetful(count: usize) -> Net {
    let cache = Plan { default: DefaultPlan { capacity: Capacity::Events(1), policy: Policy::Lrp }, ..Plan::default() };
    let mut net = Net::mesh(count);
    net.nodes.iter_mut().for_each(|node| node.core.set_cache(net.now, cache.clone()));
    net
}

/// A durable subscription that is told gaps.
fn with_notices() -> Filter<'static> {
    let spec =
        SubscriptionSpec { durability: Durability::Durable, notices: true, ..SubscriptionSpec::new(Qos::AtLeastOnce) };
    Filter { spec, ..plain("t", Qos::AtLeastOnce) }
}

/// The owner has heard that other brokers hold their logs for its subscriber, and dies before the
/// replica knows that. The replica itself may be one of these.
#[test]
fn whoever_goes_on_from_a_copy_made_before_a_log_counted_gets_what_that_has() {
    for (client, to) in (0..4).flat_map(|client| [0, 2].map(|to| (format!("s{client}"), to))) {
        let mut net = forgetful(3);
        assert_eq!(net.connect(0, 9, "publisher"), Some(false));
        assert_eq!(net.connect(1, 1, &client), Some(false));
        net.drops = Box::new(|_, _, bytes| is_letter(bytes, |message| matches!(message, BrokerMessage::HoldGrant(_))));
        net.subscribe(1, 1, with_notices());
        net.advance(SECOND / 2);
        net.drops = Box::new(|_, _, bytes| is_letter(bytes, |message| matches!(message, BrokerMessage::Copies(_))));
        net.advance(SECOND * 2);
        net.leave(1, 1);
        net.publish_all(0, 9, &["1", "2", "3"]);
        net.advance(SECOND);
        net.kill(1);
        net.drops = Box::new(|_, _, _| false);
        net.advance(SECOND);
        assert_eq!(net.connect(to, 1, &client), Some(true), "{client} at {to}");
        net.publish_all(0, 9, &["4"]);
        let mut got = net.settled(to, 1, SECOND * 3);
        assert!(got.iter().any(|notice| notice.contains("gap")), "more may have come than was logged: {got:?}");
        got.retain(|payload| payload.len() == 1);
        assert_eq!(got, ["1", "2", "3", "4"], "{client} at {to}");
    }
}

/// That log's broker is away until it does not count any more, and comes back.
#[test]
fn a_log_that_was_not_known_to_count_is_asked_when_its_broker_comes_back() {
    let mut gone_on = 0;
    for client in (0..6).map(|client| format!("s{client}")) {
        let mut net = forgetful(4);
        assert_eq!(net.connect(0, 9, "publisher"), Some(false));
        assert_eq!(net.connect(1, 1, &client), Some(false));
        net.publish_all(0, 9, &["0"]);
        net.drops = Box::new(|from, _, bytes| {
            from == 0 && is_letter(bytes, |message| matches!(message, BrokerMessage::HoldGrant(_)))
        });
        net.subscribe(1, 1, with_notices());
        net.advance(SECOND * 2);
        net.leave(1, 1);
        net.close_all(0);
        net.advance(SECOND * 130);
        net.kill(1);
        net.drops = Box::new(|_, _, _| false);
        net.advance(SECOND);
        if net.connect(2, 1, &client) != Some(true) {
            continue;
        }
        net.advance(SECOND * 5);
        net.link_all(0);
        net.advance(SECOND * 5);
        net.settled(2, 1, SECOND);
        net.leave(2, 1);
        net.publish_all(0, 9, &["1", "2", "3"]);
        net.advance(SECOND);
        assert_eq!(net.connect(2, 2, &client), Some(true), "{client}");
        assert_eq!(net.settled(2, 2, SECOND * 3), ["1", "2", "3"], "{client}: with no gap beside them");
        gone_on += 1;
    }
    assert!(gone_on > 0);
}
