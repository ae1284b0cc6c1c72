//! Durable subscriptions at one broker, publishers at another: an event acknowledged to its
//! publisher is delivered exactly once, after any broker's death and return.

mod begun;
#[path = "../common/mod.rs"]
mod common;
#[path = "../durable/disk.rs"]
mod disk;
mod far;
mod many;
mod named;
mod net;
mod passing;
mod shares;

use core::time::Duration;

use common::{CLEAN, Client, KEPT, Told, plain};
use net::Net;
use whimbrel_core::cache::{Capacity, DefaultPlan, Plan, Policy};
use whimbrel_core::overlay::NotForgotten;
use whimbrel_core::{Durability, Filter, Input, Limits, Link, NOTICE_TOPIC, Publish, SubscriptionSpec};
use whimbrel_event::Qos;
use whimbrel_selector::Selector;

const SECOND: Duration = Duration::from_secs(1);

/// The client of the publisher, and of the subscriber.
const PUB: u32 = 1;
const SUB: u32 = 2;

const WIDE: Client = Client { window: 200, ..KEPT };

/// A publisher at the first of these brokers, and a subscriber at the last, whose subscription has
/// been answered.
fn world(brokers: usize) -> Net {
    with(Net::line(brokers))
}

fn with(mut net: Net) -> Net {
    let at = net.nodes.len() - 1;
    net.attach(0, PUB, "publisher", CLEAN);
    net.attach(at, SUB, "subscriber", WIDE);
    net.subscribe(at, SUB, plain("t/#", Qos::AtLeastOnce));
    net
}

fn publish(net: &mut Net, payloads: &[&str]) {
    for payload in payloads {
        net.publish(0, PUB, "t/a", payload);
        net.advance(Duration::from_millis(1));
    }
}

/// The events in a broker's log.
fn kept(net: &Net, node: usize) -> usize {
    net.nodes[node].disk.events()
}

fn back(net: &mut Net, node: usize) {
    assert_eq!(net.attach(node, SUB, "subscriber", WIDE), Told::Attached { present: true });
}

#[test]
fn an_event_is_logged_once_in_the_whole_system() {
    let mut net = world(3);
    net.attach(1, SUB, "another", WIDE);
    net.subscribe(1, SUB, plain("t/+", Qos::AtLeastOnce));
    publish(&mut net, &["a", "b", "c"]);
    net.publish(0, PUB, "other", "nobody wants that");
    net.advance(SECOND);
    assert_eq!(
        (net.payloads(2, SUB), net.payloads(1, SUB)),
        (vec!["a".into(), "b".into(), "c".into()], vec!["a".into(), "b".into(), "c".into()])
    );
    let logged: Vec<usize> = net.nodes.iter().map(|node| node.logged).collect();
    assert_eq!(logged, [3, 0, 0]);
}

#[test]
fn a_subscription_is_answered_when_it_is_owed_durably() {
    let mut net = Net::line(2);
    net.attach(1, SUB, "subscriber", WIDE);
    net.nodes[0].is_stuck = true;
    assert_eq!(net.subscribe(1, SUB, plain("t/#", Qos::AtLeastOnce)), SECOND, "nobody has confirmed it");
    assert_eq!(net.nodes[1].side.pending, ["b0".into()]);
    net.nodes[0].is_stuck = false;
    net.advance(SECOND * 12);
    net.attach(1, 3, "another", WIDE);
    assert!(net.subscribe(1, 3, plain("u/#", Qos::AtLeastOnce)) < Duration::from_millis(200));
    assert_eq!(net.nodes[1].side.pending, []);
    assert_eq!((net.nodes[0].disk.keys(b'o'), net.nodes[0].disk.keys(b'k')), (2, 1), "what it owes is written");
}

#[test]
fn brokers_that_have_just_begun_tell_what_they_owe_as_soon_as_there_is_a_way() {
    // For any time between their first messages and the subscription.
    for wait in 0..300 {
        let mut net = Net::young(2);
        net.advance(Duration::from_millis(wait));
        net.attach(1, SUB, "subscriber", WIDE);
        let took = net.subscribe(1, SUB, plain("t/#", Qos::AtLeastOnce));
        assert_eq!(net.nodes[1].side.pending, [], "after {wait} ms, in {took:?}");
    }
}

/// Events that wait for a commit: too many to be passed in one step.
const WAITING: usize = 700;

#[test]
fn a_subscription_that_is_made_in_the_step_that_tells_the_interest_is_not_answered_before_it_was_told() {
    let mut net = world(2);
    net.attach(1, 3, "another", WIDE);
    net.attach(1, 4, "passing", CLEAN);
    net.advance(SECOND * 2);
    net.nodes[1].is_stuck = true;
    net.publish(1, 4, "t/a", "it is logged");
    (0..WAITING).for_each(|_| net.publish(1, 4, "nobody", "behind it"));
    net.input(1, Input::Subscribe { link: Link(3), tag: 1, filters: &[plain("u/#", Qos::AtLeastOnce)] });
    net.nodes[1].is_stuck = false;
    // An answer is to be sent at once, and the other subscription is made at the end of the waiting
    // events.
    net.input(1, Input::Subscribe { link: Link(4), tag: 1, filters: &[plain("v/#", Qos::AtMostOnce)] });
    while !net.told(1, 3).iter().any(|told| matches!(told, Told::Subscribed(_))) {
        net.advance(Duration::from_millis(1));
    }
    assert_eq!(net.nodes[1].side.pending, []);
    net.publish(0, PUB, "u/a", "one");
    net.advance(SECOND);
    assert_eq!(net.payloads(1, 3), ["one"]);
}

#[test]
fn what_others_have_acknowledged_is_given_up_and_no_sooner() {
    let mut net = world(2);
    publish(&mut net, &["a", "b"]);
    net.advance(SECOND * 3);
    assert_eq!(kept(&net, 0), 2, "it was delivered, and not acknowledged");
    assert_eq!(net.payloads(1, SUB), ["a", "b"]);
    net.advance(SECOND * 3);
    assert_eq!(kept(&net, 0), 0);
}

#[test]
fn what_a_broker_out_of_reach_is_owed_is_kept_also_after_a_restart_and_given_up_when_it_says_so() {
    let mut net = world(2);
    net.kill(1);
    publish(&mut net, &["a", "b"]);
    net.advance(SECOND * 300);
    assert_eq!(kept(&net, 0), 2, "it is out of reach, and forgotten as a neighbour");
    net.kill(0);
    net.revive(0);
    net.attach(0, PUB, "publisher", CLEAN);
    publish(&mut net, &["c"]);
    net.advance(SECOND * 300);
    assert_eq!(kept(&net, 0), 3, "also what came since the restart");
    net.revive(1);
    net.join(0, 1);
    back(&mut net, 1);
    net.advance(SECOND * 3);
    assert_eq!(net.payloads(1, SUB), ["a", "b", "c"]);
    net.advance(SECOND * 3);
    assert_eq!(kept(&net, 0), 0);
}

#[test]
fn everything_comes_once_after_either_broker_or_both_have_restarted() {
    for dies in [&[0][..], &[1], &[0, 1], &[1, 0]] {
        let mut net = world(2);
        publish(&mut net, &["a", "b"]);
        net.advance(Duration::from_millis(50));
        assert_eq!(net.payloads(1, SUB), ["a", "b"]);
        net.advance(Duration::from_millis(50));
        net.detach(1, SUB);
        publish(&mut net, &["c", "d"]);
        net.advance(Duration::from_millis(50));
        dies.iter().for_each(|node| net.kill(*node));
        net.advance(SECOND);
        if !dies.contains(&0) {
            publish(&mut net, &["e"]);
        }
        dies.iter().for_each(|node| net.revive(*node));
        net.join(0, 1);
        net.advance(SECOND * 2);
        if dies.contains(&0) {
            net.attach(0, PUB, "publisher", CLEAN);
            publish(&mut net, &["e"]);
        }
        net.advance(SECOND);
        back(&mut net, 1);
        net.advance(SECOND * 2);
        assert_eq!(net.payloads(1, SUB), ["c", "d", "e"], "{dies:?}");
        net.advance(SECOND * 3);
        assert_eq!(net.payloads(1, SUB), [""; 0], "{dies:?}");
        publish(&mut net, &["f"]);
        net.advance(SECOND);
        assert_eq!(net.payloads(1, SUB), ["f"], "{dies:?}");
    }
}

#[test]
fn another_broker_s_death_does_not_hold_up_what_others_publish() {
    let mut net = world(3);
    net.attach(1, PUB, "another", CLEAN);
    net.kill(0);
    net.kill(2);
    net.revive(2);
    net.join(1, 2);
    net.advance(SECOND * 3);
    back(&mut net, 2);
    net.publish(1, PUB, "t/b", "one");
    net.advance(SECOND);
    assert_eq!(net.payloads(2, SUB), ["one"]);
}

#[test]
fn who_keeps_nothing_itself_marks_nothing_as_durable() {
    let mut net = Net::line(2);
    net.attach(1, SUB, "passing", CLEAN);
    net.subscribe(1, SUB, plain("t/#", Qos::AtLeastOnce));
    net.attach(0, PUB, "publisher", CLEAN);
    publish(&mut net, &["a"]);
    net.advance(SECOND);
    assert_eq!((net.payloads(1, SUB), net.nodes[0].logged, net.nodes[0].disk.keys(b'o')), (vec!["a".into()], 0, 0));
}

#[test]
fn whoever_unsubscribes_is_owed_nothing() {
    let mut net = world(2);
    publish(&mut net, &["a"]);
    net.advance(SECOND);
    net.input(1, Input::Unsubscribe { link: Link(SUB), tag: 2, filters: &["t/#"] });
    net.advance(SECOND * 12);
    assert_eq!((kept(&net, 0), net.nodes[0].disk.keys(b'o'), net.nodes[0].disk.keys(b'k')), (0, 0, 0));
    publish(&mut net, &["b"]);
    net.advance(SECOND);
    assert_eq!(net.nodes[0].logged, 1, "nobody wants it any more");
}

#[test]
fn what_is_given_up_early_is_told_to_who_is_behind_and_to_nobody_else() {
    let limits = Limits { max_retain: Some(SECOND * 20), ..Limits::default() };
    let mut net = with(Net::with(2, limits));
    let spec =
        SubscriptionSpec { durability: Durability::Durable, notices: true, ..plain("t/#", Qos::AtLeastOnce).spec };
    net.attach(1, 3, "behind", WIDE);
    net.subscribe(1, 3, Filter { spec, ..plain("t/#", Qos::AtLeastOnce) });
    net.attach(1, 4, "there", WIDE);
    net.subscribe(1, 4, Filter { spec, ..plain("t/#", Qos::AtLeastOnce) });
    net.detach(1, 3);
    publish(&mut net, &["a", "b"]);
    net.advance(SECOND);
    assert_eq!((net.payloads(1, SUB).len(), net.payloads(1, 4).len()), (2, 2));
    net.advance(SECOND * 60);
    assert_eq!(kept(&net, 0), 0, "it is older than it may become");
    net.kill(1);
    net.revive(1);
    net.join(0, 1);
    net.advance(SECOND * 2);
    for (link, id, gaps) in [(3, "behind", 1), (4, "there", 0)] {
        assert_eq!(net.attach(1, link, id, WIDE), Told::Attached { present: true });
        net.advance(SECOND * 2);
        let got = net.got(1, link);
        let told = got.iter().filter(|got| got.topic == NOTICE_TOPIC && got.payload.contains("released"));
        assert_eq!(told.count(), gaps, "{id}: {got:?}");
    }
}

#[test]
fn who_was_there_until_lately_is_not_told_that_what_came_before_is_given_up() {
    // Bases are made each quarter of it.
    let limits = Limits { max_retain: Some(SECOND * 200), ..Limits::default() };
    for (stays, away) in [(5, 160), (20, 165), (35, 165), (50, 140), (60, 90)] {
        let mut net = with(Net::with(3, limits.clone()));
        net.attach(1, PUB, "another", CLEAN);
        net.attach(2, 3, "behind", WIDE);
        net.subscribe(2, 3, plain("t/#", Qos::AtLeastOnce));
        net.attach(2, 4, "other", WIDE);
        let noticed = SubscriptionSpec { notices: true, ..SubscriptionSpec::new(Qos::AtLeastOnce) };
        net.subscribe(2, 4, Filter { spec: noticed, ..plain("u", Qos::AtLeastOnce) });
        net.advance(SECOND * 100);
        net.detach(2, 3);
        for _ in 0..13 {
            publish(&mut net, &["a"]);
            net.publish(1, PUB, "u", "b");
            net.advance(SECOND);
            let mut others = net.payloads(2, 4);
            others.retain(|payload| !payload.contains("silence"));
            assert_eq!((others, net.payloads(2, SUB)), (vec!["b".into()], vec!["a".into()]));
            net.advance(SECOND * 14);
        }
        net.advance(SECOND * stays);
        net.detach(2, 4);
        let left = net.now;
        // Others go on.
        publish(&mut net, &["a"]);
        net.advance(SECOND * 5);
        net.kill(2);
        net.revive(2);
        net.join(1, 2);
        net.advance(SECOND * away);
        assert!(kept(&net, 0) < 13, "what is older was given up: {}", kept(&net, 0));
        assert_eq!(net.attach(2, 4, "other", WIDE), Told::Attached { present: true });
        net.advance(SECOND * 5);
        let mut told = net.payloads(2, 4);
        told.retain(|payload| payload.contains("released"));
        assert!(told.is_empty(), "{stays} and {away} s, left at {}: {told:?}", left.as_nanos());
    }
}

#[test]
fn a_broker_that_is_forgotten_is_owed_nothing_at_any_other_and_told_so_when_it_comes_back() {
    let mut net = Net::line(3);
    net.attach(0, PUB, "publisher", CLEAN);
    net.attach(2, PUB, "another", CLEAN);
    let noticed =
        SubscriptionSpec { durability: Durability::Durable, notices: true, ..plain("t/#", Qos::AtLeastOnce).spec };
    let noticed = Filter { spec: noticed, ..plain("t/#", Qos::AtLeastOnce) };
    net.attach(2, SUB, "subscriber", WIDE);
    net.subscribe(2, SUB, noticed);
    net.attach(1, 3, "neighbour", WIDE);
    net.subscribe(1, 3, noticed);
    assert_eq!(net.forget(1, "b2", false), Err(NotForgotten::Reachable));
    assert_eq!(net.forget(1, "b7", true), Err(NotForgotten::Unknown));
    assert_eq!(net.forget(1, "b1", true), Err(NotForgotten::Itself));
    net.kill(2);
    publish(&mut net, &["a"]);
    net.advance(SECOND);
    assert_eq!((net.payloads(1, 3), kept(&net, 0)), (vec!["a".into()], 1));
    assert_eq!(net.forget(1, "b2", false), Ok(1));
    net.advance(SECOND * 12);
    assert_eq!((kept(&net, 0), net.nodes[0].disk.keys(b'o')), (0, 1), "b1 is still owed what it wants");
    let lost = |got: &common::Got| got.topic == NOTICE_TOPIC && got.payload.contains("lost");
    assert_eq!(net.got(1, 3).iter().filter(|got| lost(got)).count(), 8, "its streams have ended");
    // Both the broker that gives the hold and the one that received it know it after a restart.
    for node in [0, 1] {
        net.kill(node);
        net.revive(node);
    }
    net.join(0, 1);
    net.advance(SECOND * 3);
    net.revive(2);
    net.join(1, 2);
    net.advance(SECOND * 12);
    assert_eq!(net.attach(2, SUB, "subscriber", WIDE), Told::Attached { present: true });
    net.attach(0, PUB, "publisher", CLEAN);
    publish(&mut net, &["b"]);
    net.advance(SECOND * 3);
    let got = net.got(2, SUB);
    assert!(got.iter().any(|got| got.topic == NOTICE_TOPIC && got.payload.contains("released")), "{got:?}");
    let events: Vec<_> = got.iter().filter(|got| got.topic != NOTICE_TOPIC).map(|got| &*got.payload).collect();
    assert_eq!(events, ["b"]);
}

#[test]
fn a_broker_that_can_be_reached_is_forgotten_by_force_once_it_cannot() {
    let mut net = world(3);
    assert_eq!(net.forget(1, "b2", true), Ok(1));
    publish(&mut net, &["a"]);
    net.advance(SECOND);
    assert_eq!((net.payloads(2, SUB), kept(&net, 0)), (vec!["a".into()], 1));
    net.kill(2);
    publish(&mut net, &["b"]);
    net.advance(SECOND * 40);
    assert_eq!((kept(&net, 0), net.nodes[0].disk.keys(b'o')), (0, 0));
}

#[test]
fn who_was_away_longer_than_the_cache_holds_gets_everything_from_the_log_once() {
    let mut net = world(2);
    let plan = Plan { default: DefaultPlan { capacity: Capacity::Events(8), policy: Policy::Lrp }, ..Plan::default() };
    for node in [0, 1] {
        net.nodes[node].core.set_cache(net.now, plan.clone());
    }
    publish(&mut net, &["before"]);
    net.advance(SECOND);
    assert_eq!(net.payloads(1, SUB), ["before"]);
    net.detach(1, SUB);
    let wanted: Vec<String> = (0..100).map(|number| number.to_string()).collect();
    for payload in &wanted {
        publish(&mut net, &[payload]);
        net.publish(0, PUB, "other", "nobody wants that");
    }
    net.advance(SECOND);
    back(&mut net, 1);
    net.advance(SECOND);
    publish(&mut net, &["after"]);
    net.advance(SECOND * 2);
    let mut got = net.payloads(1, SUB);
    assert_eq!(got.pop().as_deref(), Some("after"));
    assert_eq!(got, wanted);
    net.advance(SECOND * 3);
    assert_eq!((net.payloads(1, SUB).len(), kept(&net, 0)), (0, 0));
}

#[test]
fn another_selector_counts_from_when_the_publisher_s_broker_knows_of_it() {
    let importance = |net: &mut Net, payload: &str, importance: u8| {
        let event = whimbrel_event::EventRef { importance, ..common::event("t/a", payload, Qos::AtLeastOnce) };
        let publish = whimbrel_core::Publish { link: Link(PUB), tag: 77, retain: false, number: None, event: &event };
        net.input(0, Input::Publish(publish));
        net.advance(Duration::from_millis(1));
    };
    let [low, high] = ["JMSPriority < 5", "JMSPriority > 5"].map(|text| Selector::parse(text).expect("a selector"));
    let filter = |selector| Filter { selector: Some(selector), ..plain("t/#", Qos::AtLeastOnce) };
    for restarts in [false, true] {
        let mut net = Net::line(2);
        net.attach(0, PUB, "publisher", CLEAN);
        net.attach(1, SUB, "subscriber", WIDE);
        net.subscribe(1, SUB, filter(&low));
        // Events published while it is out of reach are still wanted under the old selector.
        net.part(1);
        importance(&mut net, "low", 1);
        importance(&mut net, "not yet high", 9);
        net.subscribe(1, SUB, filter(&high));
        importance(&mut net, "still low", 2);
        if restarts {
            net.kill(1);
            net.revive(1);
        }
        net.join(0, 1);
        net.advance(SECOND * 3);
        importance(&mut net, "high", 8);
        importance(&mut net, "low no more", 3);
        if restarts {
            back(&mut net, 1);
        }
        net.advance(SECOND * 3);
        assert_eq!(net.payloads(1, SUB), ["low", "still low", "high"], "{restarts}");
        net.advance(SECOND * 12);
        assert_eq!((kept(&net, 0), net.nodes[0].disk.keys(b'o')), (0, 1), "the old one is wanted no more");
    }
}

#[test]
fn what_is_owed_to_who_never_comes_back_expires() {
    let mut net = Net::with(2, Limits { session_expiry_max: SECOND * 3600, ..Limits::default() });
    net.attach(0, PUB, "publisher", CLEAN);
    net.attach(1, SUB, "subscriber", WIDE);
    net.subscribe(1, SUB, plain("t/#", Qos::AtLeastOnce));
    net.kill(1);
    publish(&mut net, &["a"]);
    net.advance(SECOND * 3000);
    assert_eq!(kept(&net, 0), 1);
    net.kill(0);
    net.revive(0);
    net.advance(SECOND * 700);
    assert_eq!((kept(&net, 0), net.nodes[0].disk.keys(b'o')), (0, 0), "the restart does not begin its time anew");
}

#[test]
fn the_retain_mark_comes_as_published_from_another_broker_s_log_and_its_answers() {
    for (way, is_small) in [("live", false), ("cache", false), ("log", true)] {
        let mut net = Net::line(2);
        net.attach(0, PUB, "publisher", CLEAN);
        net.attach(1, SUB, "subscriber", WIDE);
        let spec = SubscriptionSpec { retain_as_published: true, ..SubscriptionSpec::new(Qos::AtLeastOnce) };
        net.subscribe(1, SUB, Filter { spec, ..plain("t/#", Qos::AtLeastOnce) });
        if is_small {
            let default = DefaultPlan { capacity: Capacity::Events(8), policy: Policy::Lrp };
            let plan = Plan { default, ..Plan::default() };
            for node in [0, 1] {
                net.nodes[node].core.set_cache(net.now, plan.clone());
            }
        }
        if way != "live" {
            net.detach(1, SUB);
        }
        for number in 0..40_u32 {
            let payload = number.to_string();
            let event = common::event("t/a", &payload, Qos::AtLeastOnce);
            let retain = number % 2 == 0;
            net.input(0, Input::Publish(Publish { link: Link(PUB), tag: 7, retain, number: None, event: &event }));
            net.advance(Duration::from_millis(1));
        }
        net.advance(SECOND);
        if way != "live" {
            back(&mut net, 1);
        }
        let mut got = Vec::new();
        for _ in 0..20 {
            net.advance(Duration::from_millis(200));
            got.extend(net.got(1, SUB));
        }
        let got: Vec<_> = got.iter().map(|got| (got.payload.clone(), got.retain)).collect();
        let wanted: Vec<_> = (0..40_u32).map(|number| (number.to_string(), number % 2 == 0)).collect();
        assert_eq!(got, wanted, "{way}");
    }
}
