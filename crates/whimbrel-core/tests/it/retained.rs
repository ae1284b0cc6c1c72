//! Retained messages are read by new subscriptions as their clients take them, with bounded memory
//! and turns.

use core::time::Duration;

use crate::common::{CLEAN, Client, Got, KEPT, Rig, Told, event, plain};
use whimbrel_core::{
    Accepted, Durability, Filter, Input, Limits, Link, Publish, Reason, RetainHandling, Settlement, Start,
    SubscriptionSpec,
};
use whimbrel_event::Qos::{self, AtLeastOnce, AtMostOnce, ExactlyOnce};
use whimbrel_selector::Selector;

fn retain(rig: &mut Rig, topic: &str, lifetime: Option<Duration>) -> Told {
    let mut event = event(topic, "x", AtLeastOnce);
    event.expires = lifetime.map(|lifetime| rig.now.after(lifetime));
    rig.input(Input::Publish(Publish { link: Link(1), tag: 7, retain: true, number: None, event: &event }));
    rig.take(1).remove(0)
}

fn accepted(matched: bool) -> Told {
    Told::Accepted { tag: 7, result: Accepted::Routed { matched } }
}

/// The publisher's retained message, up to its last acknowledgement.
fn keep(rig: &mut Rig, topic: &str, payload: &str, qos: Qos) {
    rig.publish_as(1, topic, payload, qos, true);
    if qos == ExactlyOnce {
        rig.input(Input::Release { link: Link(1), tag: 77 });
    }
}

/// A publisher (1) that has retained `topics` messages, `r/000000` and so on, of `bytes` each.
fn filled(limits: Limits, topics: usize, bytes: usize, qos: Qos) -> Rig {
    let mut rig = Rig::with(limits);
    rig.attach(1, "p", CLEAN);
    let payload = "x".repeat(bytes);
    (0..topics).for_each(|n| keep(&mut rig, &name(n), &payload, qos));
    rig.take(1);
    rig
}

fn name(n: usize) -> String {
    format!("r/{n:06}")
}

fn topics(got: &[Got]) -> Vec<&str> {
    got.iter().map(|got| &*got.topic).collect()
}

/// Small queues, as a broker with many clients may have.
fn small() -> Limits {
    Limits { session_queue_bytes: 4_000, best_effort_queue_bytes: 4_000, ..Limits::default() }
}

#[test]
fn what_has_expired_makes_room() {
    let mut rig = Rig::with(Limits { retained_max: 2, ..Limits::default() });
    rig.attach(1, "p", CLEAN);
    assert_eq!(retain(&mut rig, "short", Some(Duration::from_millis(500))), accepted(false));
    assert_eq!(retain(&mut rig, "long", None), accepted(false));
    assert_eq!(retain(&mut rig, "more", None), accepted(false));
    assert_eq!((rig.core.stats().retained, rig.core.stats().retained_refused), (2, 1));
    rig.advance(Duration::from_millis(600));
    assert_eq!(retain(&mut rig, "more", None), accepted(false));
    assert_eq!((rig.core.stats().retained, rig.core.stats().retained_refused), (2, 1));
    rig.attach(2, "s", CLEAN);
    rig.subscribe(2, "#", AtMostOnce).expect("granted");
    assert_eq!(topics(&rig.events(2)), ["long", "more"]);
}

#[test]
fn what_replaced_one_that_would_expire_at_the_same_moment_makes_room_too() {
    let mut rig = Rig::with(Limits { retained_max: 1, ..Limits::default() });
    rig.attach(1, "p", CLEAN);
    for _ in 0..2 {
        assert_eq!(retain(&mut rig, "a", Some(Duration::from_secs(1))), accepted(false));
    }
    rig.advance(Duration::from_secs(2));
    assert_eq!(retain(&mut rig, "b", None), accepted(false));
    let stats = rig.core.stats();
    assert_eq!((stats.retained, stats.retained_refused), (1, 0));
}

#[test]
fn at_the_bound_a_message_is_delivered_and_not_retained_and_what_it_replaces_is_gone() {
    let room = Limits { retained_max: 1, retained_bytes: 400, ..Limits::default() };
    for qos in [AtMostOnce, AtLeastOnce, ExactlyOnce] {
        let mut rig = Rig::with(room.clone());
        rig.attach(1, "p", CLEAN);
        rig.attach(2, "s", CLEAN);
        rig.subscribe(2, "#", qos).expect("granted");
        keep(&mut rig, "a", "x", qos);
        keep(&mut rig, "b", "y", qos);
        keep(&mut rig, "a", &"z".repeat(400), qos);
        let live = rig.events(2);
        assert_eq!(topics(&live), ["a", "b", "a"], "{qos:?}");
        assert!(live.iter().all(|got| got.qos == qos && !got.retain));
        let refused = |told: &Told| matches!(told, Told::Accepted { result: Accepted::Refused(_), .. });
        assert!(!rig.take(1).iter().any(refused));
        let stats = rig.core.stats();
        assert_eq!((stats.retained, stats.retained_bytes, stats.retained_refused, stats.events_refused), (0, 0, 2, 0));
        rig.attach(3, "later", CLEAN);
        rig.subscribe(3, "#", qos).expect("granted");
        assert!(rig.events(3).is_empty(), "an older message is not the topic's any more");
        keep(&mut rig, "b", "y", qos);
        assert_eq!(rig.core.stats().retained, 1);
    }
}

#[test]
fn what_the_broker_says_of_itself_does_not_count() {
    let mut rig = Rig::with(Limits { retained_max: 1, ..Limits::default() });
    rig.attach(1, "p", CLEAN);
    for n in 0..10 {
        let topic = format!("$SYS/broker/{n}");
        rig.input(Input::Announce { event: &event(&topic, "x", AtMostOnce), retain: true });
    }
    rig.publish_as(1, "a", "x", AtLeastOnce, true);
    let stats = rig.core.stats();
    assert_eq!((stats.retained, stats.retained_refused), (1, 0));
    // A client's message there counts for the bounds.
    rig.publish_as(1, "$SYS/broker/connection/b/state", "1", AtLeastOnce, true);
    let stats = rig.core.stats();
    assert_eq!((stats.retained, stats.retained_refused), (1, 1));
    rig.attach(2, "s", CLEAN);
    rig.subscribe(2, "$SYS/#", AtMostOnce).expect("granted");
    assert_eq!(rig.settled_events(2).len(), 10);
    rig.subscribe(2, "#", AtMostOnce).expect("granted");
    assert_eq!(topics(&rig.settled_events(2)), ["a"]);
}

#[test]
fn more_than_every_queue_holds_is_read_in_topic_order_at_every_quality_of_service() {
    for qos in [AtMostOnce, AtLeastOnce, ExactlyOnce] {
        let mut rig = filled(small(), 2_000, 100, qos);
        rig.attach(2, "s", CLEAN);
        rig.subscribe(2, "#", qos).expect("granted");
        let got = rig.settled_events(2);
        let expected: Vec<String> = (0..2_000).map(name).collect();
        assert_eq!(topics(&got), expected, "{qos:?}");
        assert!(got.iter().all(|got| got.retain && got.qos == qos));
        let stats = rig.core.stats();
        let lost = stats.dropped_slow + stats.dropped_queue_full + stats.kicked_slow;
        assert_eq!((lost, stats.queued_bytes), (0, 0));
    }
}

#[test]
fn what_is_retained_comes_whole_whatever_the_durability_and_however_many_filters() {
    for durability in [Durability::Queued, Durability::Nondurable, Durability::SemiDurable, Durability::Durable] {
        for qos in [AtMostOnce, AtLeastOnce, ExactlyOnce] {
            let limits = Limits { tracked_queue_bytes: 1_024, ..small() };
            let mut rig = filled(limits, 1_000, 100, qos);
            rig.attach(2, "s", Client { window: 3, ..KEPT });
            let texts = ["r/#", "+/000500", "r/+", "none/#", "#"];
            let spec = SubscriptionSpec { durability, ..SubscriptionSpec::new(qos) };
            let filters = texts.map(|text| Filter { spec, ..plain(text, qos) });
            rig.input(Input::Subscribe { link: Link(2), tag: 1, filters: &filters });
            let got = rig.settled_events(2);
            let all: Vec<String> = (0..1_000).map(name).collect();
            let one = [name(500)];
            let expected: Vec<&String> = all.iter().chain(&one).chain(&all).chain(&all).collect();
            assert_eq!(topics(&got), expected, "{durability:?} {qos:?}");
            assert_eq!(rig.core.stats().kicked_slow, 0);
        }
    }
}

/// Messages that were retained when the subscription was made come first, and each missed event
/// once.
#[test]
fn a_subscription_that_begins_in_the_past_reads_first_what_is_retained() {
    let mut rig = Rig::new();
    rig.attach(1, "p", CLEAN);
    rig.attach(3, "keeps the cache in use", CLEAN);
    let spec = SubscriptionSpec::new(AtLeastOnce);
    let semi_durable = SubscriptionSpec { durability: Durability::SemiDurable, ..spec };
    rig.subscribe_as(3, Filter { spec: semi_durable, ..plain("t/#", AtLeastOnce) }).expect("granted");
    let begin = rig.now;
    rig.advance(Duration::from_secs(1));
    for n in 0..500 {
        rig.publish_as(1, &format!("t/{n:03}"), "old", AtLeastOnce, n % 5 == 0);
    }
    rig.advance(Duration::from_secs(1));
    rig.attach(2, "s", Client { window: 1, ..CLEAN });
    let start = Start::Since(begin);
    rig.subscribe_as(2, Filter { spec: semi_durable, start, ..plain("t/#", AtLeastOnce) }).expect("granted");
    rig.publish_as(1, "t/000", "new", AtLeastOnce, true);
    let got = rig.settled_events(2);
    let of = |topic: &str| got.iter().filter(|got| got.topic == topic).count();
    assert_eq!((got.len(), of("t/000"), of("t/001"), of("t/495")), (501, 2, 1, 1));
    assert_eq!(got.last().map(|got| &*got.payload), Some("new"));
}

#[test]
fn nothing_waits_in_memory_for_a_connection_that_takes_little() {
    let mut rig = filled(small(), 500, 2_000, AtMostOnce);
    rig.attach(2, "s", CLEAN);
    rig.edges.room.insert(2, 3);
    rig.subscribe(2, "r/#", AtMostOnce).expect("granted");
    let mut got = Vec::new();
    loop {
        rig.advance(Duration::from_secs(2));
        assert_eq!(rig.core.stats().queued_bytes, 0);
        let more = rig.events(2);
        if more.is_empty() {
            break;
        }
        assert!(more.len() <= 3);
        got.extend(more);
        rig.edges.room.insert(2, 3);
        rig.input(Input::Writable { link: Link(2) });
    }
    assert_eq!(got.len(), 500);
}

#[test]
fn one_turn_looks_at_a_slice_whatever_a_subscribe_asks_for() {
    let mut rig = filled(Limits::default(), 5_000, 1, AtMostOnce);
    rig.attach(2, "s", CLEAN);
    rig.attach(3, "other", CLEAN);
    rig.subscribe(3, "live", AtMostOnce).expect("granted");
    let texts: Vec<String> = (0..50).map(|n| if n % 2 == 0 { "+/+".into() } else { format!("+/00{n:04}") }).collect();
    let filters: Vec<Filter<'_>> = texts.iter().map(|text| plain(text, AtMostOnce)).collect();
    let (mut all, mut turns) = (0, 0);
    rig.input(Input::Subscribe { link: Link(2), tag: 1, filters: &filters });
    loop {
        let got = rig.events(2);
        assert!(got.len() <= 2 * 256, "{} in turn {turns}", got.len());
        all += got.len();
        if rig.core.next_deadline().is_none_or(|(at, why)| at > rig.now || why != Reason::CatchUp) {
            break;
        }
        // Other subscribers have their turn.
        rig.publish(1, "live", "now", AtMostOnce);
        assert_eq!(rig.payloads(3), ["now"]);
        rig.input(Input::Deadline);
        turns += 1;
    }
    // The same filter again replaces the subscription, and its reading begins anew.
    assert_eq!(all, 5_000 + 25);
    assert!(turns >= 15, "{turns} turns");
}

#[test]
fn one_turn_passes_over_a_slice_of_what_a_client_cannot_be_sent() {
    for qos in [AtMostOnce, AtLeastOnce, ExactlyOnce] {
        let mut rig = filled(Limits::default(), 3_000, 10, qos);
        rig.attach(2, "s", CLEAN);
        rig.edges.largest.insert(2, 3);
        rig.input(Input::Subscribe { link: Link(2), tag: 1, filters: &[plain("#", qos)] });
        let (mut passed, mut turns) = (0, 0);
        loop {
            let now_passed = rig.core.stats().dropped_too_large;
            assert!(now_passed - passed <= 2 * 256, "{qos:?}: {} in turn {turns}", now_passed - passed);
            passed = now_passed;
            if rig.core.next_deadline().is_none_or(|(at, why)| at > rig.now || why != Reason::CatchUp) {
                break;
            }
            rig.input(Input::Deadline);
            turns += 1;
        }
        assert_eq!(passed, 3_000, "{qos:?}");
    }
}

#[test]
fn live_messages_and_retained_ones_come_in_turns() {
    let mut rig = filled(Limits::default(), 300, 1, AtLeastOnce);
    rig.attach(2, "s", Client { window: 1, ..CLEAN });
    rig.subscribe(2, "#", AtLeastOnce).expect("granted");
    (0..20).for_each(|n| rig.publish(1, "live", &n.to_string(), AtLeastOnce));
    let got = rig.settled_events(2);
    assert_eq!(got.len(), 320);
    let live: Vec<_> = got.iter().filter(|got| got.topic == "live").map(|got| got.payload.parse::<u32>()).collect();
    assert_eq!(live, (0..20).map(Ok).collect::<Vec<_>>());
    let last = got.iter().rposition(|got| got.topic == "live").expect("it came");
    assert!((30..=60).contains(&last), "every other one is live while some wait: the last is number {last}");
}

#[test]
fn a_message_that_changes_while_it_is_read_comes_once_and_the_newest_last() {
    for qos in [AtMostOnce, AtLeastOnce] {
        let mut rig = filled(Limits::default(), 1_000, 1, qos);
        rig.attach(2, "s", CLEAN);
        rig.edges.room.insert(2, 10);
        rig.subscribe(2, "r/#", qos).expect("granted");
        let first = rig.events(2);
        assert_eq!(first.len(), 10);
        for got in first.iter().filter(|got| got.qos == AtLeastOnce) {
            rig.settle(2, got.tag, Settlement::Acknowledged);
        }
        // One that was read, one that is to be read, one that is deleted, and one that is new.
        rig.publish_as(1, &name(3), "new", qos, true);
        rig.publish_as(1, &name(700), "new", qos, true);
        rig.publish_as(1, &name(800), "", qos, true);
        rig.publish_as(1, "r/000500a", "new", qos, true);
        rig.edges.room.remove(&2);
        rig.input(Input::Writable { link: Link(2) });
        let got = rig.settled_events(2);
        let of = |topic: &str| -> Vec<&str> {
            got.iter().filter(|got| got.topic == topic).map(|got| &*got.payload).collect()
        };
        assert_eq!((of(&name(3)), of(&name(700)), of("r/000500a")), (vec!["new"], vec!["new"], vec!["new"]));
        assert_eq!(of(&name(800)), [""], "that it is deleted is told");
        let retained = got.iter().filter(|got| got.retain).count();
        assert_eq!(retained, 1_000 - first.len() - 2);
    }
}

#[test]
fn a_session_that_comes_back_reads_on_where_it_was() {
    for qos in [AtMostOnce, AtLeastOnce] {
        let mut rig = filled(Limits::default(), 1_000, 1, qos);
        rig.attach(2, "s", KEPT);
        rig.edges.room.insert(2, 100);
        rig.subscribe(2, "#", qos).expect("granted");
        let mut got = Vec::new();
        for before in rig.events(2) {
            if qos != AtMostOnce {
                rig.settle(2, before.tag, Settlement::Acknowledged);
            }
            got.push(before.topic);
        }
        got.extend(rig.events(2).into_iter().map(|got| got.topic));
        rig.detach(2, true);
        rig.advance(Duration::from_secs(5));
        // One that was read, and one that is to be read: QoS 0 does not wait, and is read; QoS 1
        // waits, and comes once.
        rig.publish_as(1, &name(3), "while away", qos, true);
        rig.publish_as(1, &name(700), "while away", qos, true);
        rig.edges.room.remove(&2);
        assert_eq!(rig.attach(2, "s", KEPT), Told::Attached { present: true });
        let rest = rig.settled_events(2);
        let of =
            |topic: &str| rest.iter().filter(|got| got.topic == topic).map(|got| &*got.payload).collect::<Vec<_>>();
        assert_eq!(of(&name(700)), ["while away"], "{qos:?}");
        assert_eq!(of(&name(3)).len(), usize::from(qos != AtMostOnce));
        got.extend(rest.into_iter().map(|got| got.topic));
        got.sort();
        got.dedup();
        assert_eq!(got.len(), 1_000, "{qos:?}");
    }
}

#[test]
fn an_update_that_a_slow_client_does_not_get_is_read_in_its_place() {
    for leaves in [false, true] {
        let mut rig = filled(small(), 1_000, 100, AtMostOnce);
        rig.attach(2, "s", KEPT);
        let open = |rig: &mut Rig, room: usize| {
            rig.edges.room.insert(2, room);
            rig.input(Input::Writable { link: Link(2) });
        };
        open(&mut rig, 10);
        rig.subscribe(2, "r/#", AtMostOnce).expect("granted");
        assert_eq!(rig.events(2).len(), 10);
        // No burst: the queue's bound is that of a slow client.
        rig.publish_as(1, &name(998), "first", AtMostOnce, true);
        rig.advance(Duration::from_secs(2));
        rig.publish_as(1, &name(999), "new", AtMostOnce, true);
        (0..100).for_each(|_| rig.publish_as(1, &name(998), &"y".repeat(100), AtMostOnce, true));
        if leaves {
            rig.detach(2, false);
            rig.edges.room.insert(2, 5_000);
            rig.attach(2, "s", KEPT);
        }
        open(&mut rig, 5_000);
        let got = rig.settled_events(2);
        let of_last: Vec<&str> = got.iter().filter(|got| got.topic == name(999)).map(|got| &*got.payload).collect();
        assert_eq!(of_last, ["new"], "it was dropped, and read when the reading got there; it left: {leaves}");
    }
}

#[test]
fn a_reading_ends_with_its_subscription_and_begins_anew_where_it_is_asked_for() {
    let mut rig = filled(Limits::default(), 1_000, 1, AtMostOnce);
    rig.attach(2, "s", KEPT);
    let open = |rig: &mut Rig, room: usize| {
        rig.edges.room.insert(2, room);
        rig.input(Input::Writable { link: Link(2) });
    };
    open(&mut rig, 10);
    rig.subscribe(2, "#", AtMostOnce).expect("granted");
    assert_eq!(rig.events(2).len(), 10);
    rig.input(Input::Unsubscribe { link: Link(2), tag: 3, filters: &["#"] });
    open(&mut rig, 5_000);
    assert!(rig.settled_events(2).is_empty());
    open(&mut rig, 10);
    rig.subscribe(2, "#", AtMostOnce).expect("granted");
    assert_eq!(rig.events(2)[0].topic, name(0));
    // Only if it is new: it is not, and the reading that is under way goes on.
    let again = Filter { retain_handling: RetainHandling::SendIfNew, ..plain("#", AtMostOnce) };
    rig.subscribe_as(2, again).expect("granted");
    open(&mut rig, 10);
    assert_eq!(rig.events(2)[0].topic, name(10));
    rig.subscribe(2, "#", AtMostOnce).expect("granted");
    open(&mut rig, 5_000);
    let got = rig.settled_events(2);
    assert_eq!((got.len(), &*got[0].topic), (1_000, &*name(0)));
    // The session ends in the middle of one.
    open(&mut rig, 10);
    rig.subscribe(2, "#", AtMostOnce).expect("granted");
    assert_eq!(rig.events(2).len(), 10);
    rig.detach(2, true);
    rig.attach(2, "s", CLEAN);
    rig.edges.room.remove(&2);
    assert!(rig.settled_events(2).is_empty());
    rig.subscribe(2, "r/000001", AtMostOnce).expect("granted");
    assert_eq!(rig.settled_events(2).len(), 1);
}

#[test]
fn what_waited_for_a_session_comes_before_what_is_retained() {
    let mut rig = filled(Limits::default(), 3, 1, AtLeastOnce);
    rig.attach(2, "s", Client { window: 1, ..KEPT });
    let asked = Filter { retain_handling: RetainHandling::DoNotSend, ..plain("r/#", AtLeastOnce) };
    rig.subscribe_as(2, asked).expect("granted");
    for payload in ["first", "second", "third"] {
        rig.publish_as(1, &name(1), payload, AtLeastOnce, true);
    }
    rig.subscribe(2, "r/#", AtLeastOnce).expect("granted");
    let got = rig.settled_events(2);
    let of_one: Vec<&str> = got.iter().filter(|got| got.topic == name(1)).map(|got| &*got.payload).collect();
    assert_eq!(of_one, ["first", "second", "third", "third"]);
}

#[test]
fn another_selector_adds_nothing_to_a_reading_that_is_under_way() {
    let mut rig = Rig::new();
    rig.attach(1, "p", CLEAN);
    (0..8).for_each(|n| rig.publish_with(1, &name(n), "x", &[("n", &n.to_string())], true));
    rig.attach(2, "s", CLEAN);
    rig.edges.room.insert(2, 1);
    let selectors = ["n < 6", "n > 2"].map(|text| Selector::parse(text).expect("well-formed"));
    let first = Filter { selector: Some(&selectors[0]), ..plain("r/#", AtMostOnce) };
    rig.subscribe_as(2, first).expect("granted");
    let retain_handling = RetainHandling::DoNotSend;
    let then = Filter { selector: Some(&selectors[1]), retain_handling, ..plain("r/#", AtMostOnce) };
    rig.subscribe_as(2, then).expect("granted");
    rig.edges.room.remove(&2);
    rig.input(Input::Writable { link: Link(2) });
    let got = rig.settled_events(2);
    // The first had room; of the others, those that the first selector asked for and the second
    // wants.
    assert_eq!(topics(&got), [0, 3, 4, 5].map(name));
}
