//! Subscriptions with selectors.

use crate::common::{CLEAN, Client, KEPT, Rig, Told, event, plain};
use whimbrel_core::{Filter, Input, Limits, Link, Publish, Refusal, RetainHandling, Settlement, SubscriptionSpec};
use whimbrel_event::Qos::{AtLeastOnce, AtMostOnce};
use whimbrel_event::{AttributesBuf, EventRef};
use whimbrel_selector::Selector;

/// A rig with a publisher at link 1 and subscribers at links 2 and 3.
fn rig() -> Rig {
    let mut rig = Rig::new();
    for (link, name) in [(1, "p"), (2, "a"), (3, "b")] {
        rig.attach(link, name, CLEAN);
    }
    rig
}

/// Publishes one event per speed, each with its speed as payload.
fn drive(rig: &mut Rig, topic: &str, speeds: &[&str]) {
    for speed in speeds {
        rig.publish_with(1, topic, speed, &[("speed", speed)], false);
    }
}

/// Publishes one event with QoS 1 and its speed as payload.
fn reliably(rig: &mut Rig, topic: &str, speed: &str) {
    let mut attributes = AttributesBuf::new();
    attributes.push("speed", speed);
    let event = EventRef { attributes: attributes.as_attributes(), ..event(topic, speed, AtLeastOnce) };
    rig.input(Input::Publish(Publish { link: Link(1), tag: 9, retain: false, number: None, event: &event }));
}

#[test]
fn only_events_for_which_the_selector_is_true_are_delivered() {
    let mut rig = rig();
    rig.subscribe_where(2, "t/#", "speed > 50").expect("granted");
    drive(&mut rig, "t/x", &["50", "51", "7", "5e2", "fast"]);
    rig.publish_with(1, "t/x", "no speed", &[], false);
    assert_eq!(rig.payloads(2), ["51", "5e2"]);
    assert_eq!(rig.core.stats().events_unwanted, 4, "fast, absent and small ones are wanted by nobody");
}

#[test]
fn subscriptions_with_and_without_selector_share_a_topic() {
    let mut rig = rig();
    rig.subscribe(2, "t", AtMostOnce).expect("granted");
    rig.subscribe_where(3, "t", "speed < 10").expect("granted");
    rig.subscribe_where(3, "+", "speed < 5").expect("granted");
    drive(&mut rig, "t", &["1", "7", "20"]);
    assert_eq!(rig.payloads(2), ["1", "7", "20"]);
    assert_eq!(rig.payloads(3), ["1", "1", "7"], "one copy per subscription that matches");
}

#[test]
fn a_selector_sees_payload_importance_time_and_id() {
    let mut rig = rig();
    let second = rig.now.as_nanos() / 1_000_000;
    rig.subscribe_where(2, "t", "json('$.doors') = 'open' AND JMSPriority = 5").expect("granted");
    rig.subscribe_where(3, "t", &format!("JMSTimestamp = {second} AND JMSMessageID LIKE '%:%'")).expect("granted");
    rig.publish_with(1, "t", r#"{"doors":"open"}"#, &[], false);
    rig.publish_with(1, "t", r#"{"doors":"shut"}"#, &[], false);
    assert_eq!(rig.payloads(2), [r#"{"doors":"open"}"#]);
    assert_eq!(rig.payloads(3).len(), 2);
}

#[test]
fn names_that_begin_with_w_are_no_attributes() {
    let mut rig = rig();
    rig.subscribe_where(2, "t", "\"w-importance\" IS NULL AND \"w-x\" IS NULL AND wx = 1").expect("granted");
    rig.publish_with(1, "t", "x", &[("w-importance", "9"), ("w-x", "1"), ("wx", "1")], false);
    assert_eq!(rig.payloads(2), ["x"]);
}

#[test]
fn a_selector_that_comes_after_the_topic_was_remembered_counts_and_so_does_its_end() {
    for filter in ["t", "+", "#"] {
        let mut rig = rig();
        rig.subscribe(3, filter, AtMostOnce).expect("granted");
        drive(&mut rig, "t", &["1"]);
        rig.subscribe_where(2, filter, "speed > 1").expect("granted");
        drive(&mut rig, "t", &["1", "2"]);
        rig.subscribe_where(3, filter, "speed < 2").expect("granted");
        drive(&mut rig, "t", &["1", "2"]);
        assert_eq!(rig.payloads(2), ["2", "2"], "{filter}");
        assert_eq!(rig.payloads(3), ["1", "1", "2", "1"], "{filter}: plain at first, then a selector");
        for link in [2, 3] {
            rig.input(Input::Unsubscribe { link: Link(link), tag: 1, filters: &[filter] });
            rig.take(link);
        }
        drive(&mut rig, "t", &["1", "2"]);
        assert_eq!((rig.payloads(2), rig.payloads(3)), (vec![], vec![]), "{filter}");
        assert_eq!((rig.core.stats().selectors, rig.core.stats().subscriptions), (0, 0));
    }
}

#[test]
fn further_selectors_under_a_wildcard_filter_leave_remembered_routes_alone() {
    let mut rig = rig();
    rig.subscribe_where(2, "#", "speed = 0").expect("granted");
    drive(&mut rig, "t", &["1"]);
    let misses = rig.core.stats().route_misses;
    for link in [3, 2] {
        for n in 1..20 {
            rig.subscribe_where(link, "#", &format!("speed = {n}")).expect("granted");
            drive(&mut rig, "t", &["1"]);
        }
    }
    assert_eq!(rig.core.stats().route_misses, misses, "the route says only that there are selectors");
    assert_eq!((rig.payloads(3), rig.payloads(2)), (vec!["1".to_owned()], vec!["1".to_owned()]));
}

#[test]
fn subscribing_again_replaces_selector_and_options() {
    let mut rig = rig();
    rig.subscribe_where(2, "t", "speed > 50").expect("granted");
    drive(&mut rig, "t", &["60"]);
    rig.subscribe_where(2, "t", "speed < 50").expect("granted");
    drive(&mut rig, "t", &["10", "60"]);
    let selector = Selector::parse("speed < 50").expect("a selector");
    let spec = SubscriptionSpec { identifier: 7, ..SubscriptionSpec::new(AtLeastOnce) };
    let same = Filter { selector: Some(&selector), spec, ..plain("t", AtLeastOnce) };
    rig.subscribe_as(2, same).expect("granted");
    drive(&mut rig, "t", &["20", "70"]);
    rig.subscribe(2, "t", AtLeastOnce).expect("granted");
    drive(&mut rig, "t", &["80"]);
    let events = rig.events(2);
    let got: Vec<_> = events.iter().map(|event| (event.payload.as_str(), event.identifier)).collect();
    assert_eq!(got, [("60", 0), ("10", 0), ("20", 7), ("80", 0)]);
    assert_eq!((rig.core.stats().subscriptions, rig.core.stats().selectors), (1, 0));
}

#[test]
fn equal_selectors_under_one_filter_count_once() {
    let mut rig = rig();
    rig.subscribe_where(2, "t", "speed > 50 AND fuel < 5").expect("granted");
    rig.subscribe_where(3, "t", "speed>50 and fuel<5").expect("granted");
    rig.subscribe_where(3, "+", "speed > 50 AND fuel < 5").expect("granted");
    assert_eq!(rig.core.stats().selectors, 2);
    rig.detach(2, true);
    assert_eq!(rig.core.stats().selectors, 2);
    rig.publish_with(1, "t", "x", &[("speed", "51"), ("fuel", "4")], false);
    assert_eq!(rig.payloads(3).len(), 2);
    rig.detach(3, true);
    assert_eq!(rig.core.stats().selectors, 0);
}

#[test]
fn only_retained_messages_for_which_the_selector_is_true_are_sent() {
    let mut rig = rig();
    for (topic, speed) in [("a/1", "40"), ("a/2", "60"), ("a/3", "80")] {
        rig.publish_with(1, topic, speed, &[("speed", speed)], true);
    }
    rig.subscribe_where(2, "a/+", "speed > 50").expect("granted");
    let got = rig.events(2);
    assert_eq!(got.iter().map(|event| event.payload.as_str()).collect::<Vec<_>>(), ["60", "80"]);
    assert!(got.iter().all(|event| event.retain));
    rig.subscribe_where(2, "a/+", "speed < 50").expect("granted");
    assert_eq!(rig.payloads(2), ["40"], "the new selector is the one that counts");
    let selector = Selector::parse("speed > 0").expect("a selector");
    let retain_handling = RetainHandling::SendIfNew;
    let again = Filter { selector: Some(&selector), retain_handling, ..plain("a/+", AtLeastOnce) };
    rig.subscribe_as(2, again).expect("granted");
    assert_eq!(rig.payloads(2), Vec::<String>::new(), "another selector does not make another subscription");
}

#[test]
fn a_session_that_comes_back_has_its_selectors() {
    let mut rig = rig();
    rig.attach(4, "c", KEPT);
    rig.subscribe_where(4, "t", "speed > 50").expect("granted");
    rig.detach(4, true);
    for speed in ["10", "60"] {
        reliably(&mut rig, "t", speed);
    }
    assert_eq!(rig.attach(4, "c", KEPT), Told::Attached { present: true });
    drive(&mut rig, "t", &["20", "70"]);
    assert_eq!(rig.payloads(4), ["60", "70"]);
}

#[test]
fn a_session_that_ends_takes_its_selectors_along() {
    let mut rig = rig();
    for n in 0..100 {
        rig.subscribe_where(2, &format!("t/{n}/+"), &format!("speed > {n}")).expect("granted");
    }
    assert_eq!(rig.core.stats().selectors, 100);
    rig.detach(2, true);
    assert_eq!((rig.core.stats().selectors, rig.core.stats().subscriptions), (0, 0));
    drive(&mut rig, "t/5/x", &["60"]);
    assert_eq!(rig.core.stats().deliveries, 0);
}

#[test]
fn no_local_holds_with_a_selector() {
    let mut rig = rig();
    let selector = Selector::parse("speed > 50").expect("a selector");
    let spec = SubscriptionSpec { no_local: true, ..SubscriptionSpec::new(AtLeastOnce) };
    let own = Filter { selector: Some(&selector), spec, ..plain("t", AtLeastOnce) };
    rig.subscribe_as(1, own).expect("granted");
    rig.subscribe_as(2, own).expect("granted");
    drive(&mut rig, "t", &["60"]);
    assert_eq!((rig.payloads(1), rig.payloads(2)), (vec![], vec!["60".to_owned()]));
}

const GROUP: &str = "$share/g/t";

#[test]
fn a_shared_subscription_hands_out_only_what_its_selector_selects() {
    let mut rig = rig();
    for link in [2, 3] {
        rig.subscribe_where(link, GROUP, "speed > 50").expect("granted");
    }
    drive(&mut rig, "t", &["10", "60", "20", "70"]);
    let mut all = [rig.payloads(2), rig.payloads(3)].concat();
    all.sort();
    assert_eq!(all, ["60", "70"]);
    assert_eq!(rig.core.stats().selectors, 1);
}

#[test]
fn a_member_with_another_selector_is_refused_unless_it_is_alone() {
    let mut rig = rig();
    rig.subscribe_where(2, GROUP, "speed > 50").expect("granted");
    rig.subscribe_where(2, GROUP, "speed > 60").expect("it is the only member");
    drive(&mut rig, "t", &["55", "65"]);
    assert_eq!(rig.payloads(2), ["65"]);
    assert_eq!(rig.subscribe_where(3, GROUP, "speed > 50"), Err(Refusal::OtherSelector));
    assert_eq!(rig.subscribe(3, GROUP, AtLeastOnce), Err(Refusal::OtherSelector));
    assert_eq!(rig.core.stats().subscriptions, 1, "a refused member is none");
    rig.subscribe_where(3, GROUP, "60 < speed").expect("the same in other words");
    assert_eq!(rig.subscribe_where(2, GROUP, "speed > 50"), Err(Refusal::OtherSelector), "not alone any more");
    drive(&mut rig, "t", &["55", "66", "67"]);
    let mut all = [rig.payloads(2), rig.payloads(3)].concat();
    all.sort();
    assert_eq!(all, ["66", "67"], "both members are as before");
    rig.detach(3, true);
    rig.subscribe(2, GROUP, AtLeastOnce).expect("alone again: without selector");
    drive(&mut rig, "t", &["1"]);
    assert_eq!((rig.payloads(2), rig.core.stats().selectors), (vec!["1".to_owned()], 0));
    assert_eq!(rig.core.stats().subscriptions_refused, 3);
}

#[test]
fn what_waits_in_a_shared_subscription_was_selected_when_it_came() {
    let mut rig = Rig::new();
    rig.attach(1, "p", CLEAN);
    rig.attach(2, "a", Client { window: 1, ..CLEAN });
    rig.subscribe_where(2, GROUP, "speed >= 0").expect("granted");
    for speed in ["0", "1"] {
        reliably(&mut rig, "t", speed);
    }
    rig.subscribe_where(2, GROUP, "speed > 100").expect("alone");
    let first = rig.events(2);
    assert_eq!(first.len(), 1);
    rig.settle(2, first[0].tag, Settlement::Acknowledged);
    assert_eq!(rig.payloads(2), ["1"], "the new selector is for what comes from now on");
}

#[test]
fn costs_are_told_by_name() {
    let mut rig = rig();
    rig.subscribe_where(2, "t/#", "a + b > 50").expect("granted");
    rig.subscribe_where(3, "t/+", "speed = 5").expect("granted");
    for _ in 0..50 {
        rig.publish_with(1, "t/x", "x", &[("a", "1"), ("b", "2")], false);
    }
    let expensive = rig.core.expensive_selectors();
    assert_eq!((expensive[0].filter.as_str(), expensive[0].selector.as_str()), ("t/#", "a + b > 50"));
    assert_eq!((expensive[0].cost.evaluations, expensive[0].cost.matches), (50, 0));
    assert!(expensive[0].cost.steps >= 50);
}

#[test]
fn the_selectors_of_a_session_are_bounded_together() {
    let mut rig = Rig::with(Limits { selector_bytes_per_session: 30, ..Limits::default() });
    rig.attach(1, "a", CLEAN);
    rig.attach(2, "b", CLEAN);
    assert_eq!(rig.subscribe_where(1, "t/1", "speed > 50"), Ok(AtLeastOnce));
    assert_eq!(rig.subscribe_where(1, "t/2", "speed > 50"), Ok(AtLeastOnce));
    assert_eq!(rig.subscribe_where(1, "$share/g/t", "speed > 500"), Err(Refusal::TooManySelectors));
    assert_eq!(rig.subscribe_where(2, "t/1", "speed > 50"), Ok(AtLeastOnce), "each session has its own bound");
    assert_eq!(rig.subscribe_where(1, "t/2", "speed > 5"), Ok(AtLeastOnce), "a shorter one takes its place");
    assert_eq!(rig.subscribe_where(1, "$share/g/t", "speed > 500"), Ok(AtLeastOnce));
    rig.input(Input::Unsubscribe { link: Link(1), tag: 1, filters: &["t/1", "t/2", "$share/g/t"] });
    assert_eq!(rig.subscribe_where(1, "t/3", "speed > 50 AND fuel < 20"), Ok(AtLeastOnce), "room is given back");
}
