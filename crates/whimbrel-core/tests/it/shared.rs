//! Shared subscriptions and retained messages.

use crate::common::{CLEAN, Client, KEPT, Rig};
use whimbrel_core::{Filter, Input, Link, Refusal, RetainHandling, Settlement, SubscriptionSpec};
use whimbrel_event::Qos::{AtLeastOnce, AtMostOnce};

const GROUP: &str = "$share/g/t";

#[test]
fn members_take_turns_and_each_event_goes_to_one() {
    let mut rig = Rig::new();
    rig.attach(1, "p", CLEAN);
    for link in 2..5 {
        rig.attach(link, &format!("m{link}"), CLEAN);
        rig.subscribe(link, GROUP, AtMostOnce).expect("granted");
    }
    for n in 0..9 {
        rig.publish(1, "t", &n.to_string(), AtLeastOnce);
    }
    let mut all: Vec<String> = (2..5)
        .flat_map(|link| {
            let got = rig.payloads(link);
            assert_eq!(got.len(), 3);
            got
        })
        .collect();
    all.sort();
    assert_eq!(all, (0..9).map(|n| n.to_string()).collect::<Vec<_>>());
}

#[test]
fn the_least_loaded_member_comes_first() {
    let mut rig = Rig::new();
    rig.attach(1, "p", CLEAN);
    for link in [2, 3] {
        rig.attach(link, &format!("m{link}"), CLEAN);
        rig.subscribe(link, GROUP, AtLeastOnce).expect("granted");
    }
    for n in 0..6 {
        rig.publish(1, "t", &n.to_string(), AtLeastOnce);
        for event in rig.events(3) {
            rig.settle(3, event.tag, Settlement::Acknowledged);
        }
    }
    assert_eq!(rig.payloads(2).len(), 1, "the member that does not acknowledge gets one");
}

#[test]
fn what_a_leaving_member_did_not_acknowledge_goes_to_another() {
    let mut rig = Rig::new();
    rig.attach(1, "p", CLEAN);
    for link in [2, 3] {
        rig.attach(link, &format!("m{link}"), Client { window: 1, ..CLEAN });
        rig.subscribe(link, GROUP, AtLeastOnce).expect("granted");
    }
    for n in 0..6 {
        rig.publish(1, "t", &n.to_string(), AtLeastOnce);
    }
    rig.detach(2, true);
    rig.take(2);
    let mut got = Vec::new();
    loop {
        let events = rig.events(3);
        let Some(event) = events.last() else { break };
        got.extend(events.iter().map(|e| e.payload.clone()));
        rig.settle(3, event.tag, Settlement::Acknowledged);
    }
    got.sort();
    assert_eq!(got, ["0", "1", "2", "3", "4", "5"]);
}

#[test]
fn a_group_of_absent_members_waits_for_the_first_to_return() {
    let mut rig = Rig::new();
    rig.attach(1, "p", CLEAN);
    for link in [2, 3] {
        rig.attach(link, &format!("m{link}"), KEPT);
        rig.subscribe(link, GROUP, AtLeastOnce).expect("granted");
        rig.detach(link, false);
    }
    for n in 0..3 {
        rig.publish(1, "t", &n.to_string(), AtLeastOnce);
    }
    rig.attach(4, "m3", KEPT);
    assert_eq!(rig.payloads(4), ["0", "1", "2"]);
    assert_eq!(rig.core.stats().queued_bytes, 0);
}

#[test]
fn a_group_ends_with_its_last_member() {
    let mut rig = Rig::new();
    rig.attach(1, "p", CLEAN);
    rig.attach(2, "m", CLEAN);
    rig.subscribe(2, GROUP, AtLeastOnce).expect("granted");
    rig.detach(2, false);
    rig.publish(1, "t", "x", AtLeastOnce);
    assert_eq!(rig.core.stats().events_unwanted, 1);
}

#[test]
fn a_shared_subscription_cannot_leave_out_local_events() {
    let mut rig = Rig::new();
    rig.attach(1, "m", CLEAN);
    let spec = SubscriptionSpec { no_local: true, ..SubscriptionSpec::new(AtMostOnce) };
    let asked = Filter { spec, ..crate::common::plain(GROUP, AtMostOnce) };
    assert_eq!(rig.subscribe_as(1, asked), Err(Refusal::SharedNoLocal));
}

#[test]
fn a_new_subscriber_gets_the_latest_retained_message_of_each_topic() {
    let mut rig = Rig::new();
    rig.attach(1, "p", CLEAN);
    rig.publish_as(1, "r/a", "old", AtLeastOnce, true);
    rig.publish_as(1, "r/a", "new", AtLeastOnce, true);
    rig.publish_as(1, "r/b", "cleared", AtLeastOnce, true);
    rig.publish_as(1, "r/b", "", AtLeastOnce, true);
    rig.publish_as(1, "r", "parent", AtMostOnce, true);
    rig.publish_as(1, "other", "x", AtLeastOnce, true);
    rig.attach(2, "s", CLEAN);
    rig.subscribe(2, "r/#", AtLeastOnce).expect("granted");
    let got: Vec<_> = rig.events(2).into_iter().map(|e| (e.topic, e.payload, e.retain, e.qos)).collect();
    let expected = [("r", "parent", true, AtMostOnce), ("r/a", "new", true, AtLeastOnce)];
    assert_eq!(got, expected.map(|(t, p, r, q)| (t.to_string(), p.to_string(), r, q)));
}

#[test]
fn retain_handling_and_retain_as_published_are_obeyed() {
    let mut rig = Rig::new();
    rig.attach(1, "p", CLEAN);
    rig.publish_as(1, "r", "kept", AtLeastOnce, true);
    let ask = |retain_handling, retain_as_published| Filter {
        retain_handling,
        spec: SubscriptionSpec { retain_as_published, ..SubscriptionSpec::new(AtMostOnce) },
        ..crate::common::plain("r", AtMostOnce)
    };
    rig.attach(2, "s", CLEAN);
    rig.subscribe_as(2, ask(RetainHandling::DoNotSend, false)).expect("granted");
    assert!(rig.events(2).is_empty());
    rig.subscribe_as(2, ask(RetainHandling::SendIfNew, false)).expect("granted");
    assert!(rig.events(2).is_empty());
    rig.subscribe_as(2, ask(RetainHandling::Send, true)).expect("granted");
    assert_eq!(rig.events(2).len(), 1);
    rig.publish_as(1, "r", "live", AtLeastOnce, true);
    assert!(rig.events(2)[0].retain);
    rig.subscribe_as(2, ask(RetainHandling::DoNotSend, false)).expect("granted");
    rig.publish_as(1, "r", "live", AtLeastOnce, true);
    assert!(!rig.events(2)[0].retain);
}

#[test]
fn a_member_that_comes_back_gets_no_tag_again_that_it_may_still_mean() {
    let mut rig = Rig::new();
    rig.attach(1, "publisher", CLEAN);
    for (link, client_id) in [(2, "first"), (3, "second")] {
        rig.attach(link, client_id, KEPT);
        rig.subscribe(link, GROUP, AtLeastOnce).expect("granted");
    }
    rig.publish(1, "t", "1", AtLeastOnce);
    let (holder, other) = if rig.events(2).is_empty() { (3, 2) } else { (2, 3) };
    // Its client has the message and its identifier; the broker gives the message to the other
    // member, and nothing is left of it here.
    rig.detach(holder, false);
    assert_eq!(rig.payloads(other), ["1"]);
    rig.attach(holder, if holder == 2 { "first" } else { "second" }, KEPT);
    rig.publish(1, "t", "2", AtLeastOnce);
    let got = rig.events(holder);
    assert_eq!(got.iter().map(|got| (&*got.payload, got.tag)).collect::<Vec<_>>(), [("2", 2)]);
}

#[test]
fn what_a_member_that_is_back_cannot_be_sent_any_more_goes_to_another() {
    let mut rig = Rig::new();
    rig.attach(1, "p", CLEAN);
    rig.attach(2, "m2", KEPT);
    rig.subscribe(2, GROUP, AtLeastOnce).expect("granted");
    rig.publish(1, "t", "a long one", AtLeastOnce);
    rig.publish(1, "t", "s", AtLeastOnce);
    assert_eq!(rig.payloads(2), ["a long one", "s"]);
    rig.detach(2, false);
    rig.attach(3, "m3", CLEAN);
    rig.subscribe(3, GROUP, AtLeastOnce).expect("granted");
    rig.edges.largest.insert(2, 3);
    rig.attach(2, "m2", KEPT);
    assert_eq!((rig.payloads(2), rig.payloads(3)), (vec!["s".to_owned()], vec!["a long one".to_owned()]));
    assert_eq!(rig.core.stats().dropped_too_large, 0);
}

#[test]
fn best_effort_events_go_to_a_member_that_can_be_sent_them() {
    let mut rig = Rig::new();
    rig.attach(1, "p", CLEAN);
    for link in [2, 3] {
        rig.attach(link, &format!("m{link}"), CLEAN);
        rig.subscribe(link, GROUP, AtMostOnce).expect("granted");
    }
    rig.edges.largest.insert(2, 3);
    for payload in ["a long one", "another long one", "s"] {
        rig.publish(1, "t", payload, AtMostOnce);
    }
    rig.edges.largest.insert(3, 3);
    rig.publish(1, "t", "nobody's", AtMostOnce);
    let large = rig.payloads(3);
    assert_eq!(large[..2], ["a long one", "another long one"]);
    assert_eq!(rig.payloads(2).len() + large.len(), 3);
    assert_eq!(rig.core.stats().dropped_untaken, 1);
}

#[test]
fn what_only_a_busy_member_can_be_sent_lets_others_pass() {
    let mut rig = Rig::new();
    rig.attach(1, "p", CLEAN);
    rig.attach(2, "small", Client { window: 100, ..CLEAN });
    rig.attach(3, "busy", Client { window: 1, ..CLEAN });
    for link in [2, 3] {
        rig.subscribe(link, GROUP, AtLeastOnce).expect("granted");
    }
    rig.edges.largest.insert(2, 3);
    for payload in ["a long one", "a longer one", "s1", "s2"] {
        rig.publish(1, "t", payload, AtLeastOnce);
    }
    let busy = rig.events(3);
    assert_eq!(busy.iter().map(|got| &*got.payload).collect::<Vec<_>>(), ["a long one"]);
    assert_eq!(rig.payloads(2), ["s1", "s2"], "not behind what waits for the other one");
    rig.settle(3, busy[0].tag, Settlement::Acknowledged);
    assert_eq!(rig.payloads(3), ["a longer one"]);
}

#[test]
fn what_waited_for_a_member_that_is_gone_holds_up_nobody() {
    for ways in 0..3 {
        let mut rig = Rig::new();
        rig.attach(1, "p", CLEAN);
        rig.attach(2, "small", Client { window: 100, ..CLEAN });
        rig.attach(3, "large", Client { window: 1, ..if ways == 1 { KEPT } else { CLEAN } });
        rig.subscribe(3, "other", AtLeastOnce).expect("granted");
        for link in [2, 3] {
            rig.subscribe(link, GROUP, AtLeastOnce).expect("granted");
        }
        rig.edges.largest.insert(2, 3);
        // It takes nothing at the moment.
        rig.publish(1, "other", "x", AtLeastOnce);
        (0..64).for_each(|_| rig.publish(1, "t", "a long one", AtLeastOnce));
        rig.publish(1, "t", "s1", AtLeastOnce);
        assert!(rig.payloads(2).is_empty(), "behind as many as may wait for busy members");
        if ways == 2 {
            rig.input(Input::Unsubscribe { link: Link(3), tag: 9, filters: &[GROUP] });
        } else {
            rig.detach(3, false);
        }
        assert_eq!(rig.payloads(2), ["s1"], "{ways}");
        rig.publish(1, "t", "s2", AtLeastOnce);
        assert_eq!(rig.payloads(2), ["s2"], "{ways}");
        assert_eq!(rig.core.stats().dropped_untaken, 64);
    }
}
