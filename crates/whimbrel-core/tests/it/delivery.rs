//! Delivery: order, windows, back-pressure, bounds.

use core::time::Duration;

use crate::common::{CLEAN, KEPT, Rig, Told};
use whimbrel_core::{Accepted, Input, Kick, Limits, Link, Settlement, SubscriptionSpec};
use whimbrel_event::Qos::{AtLeastOnce, AtMostOnce, ExactlyOnce};

#[test]
fn events_of_one_publisher_arrive_in_tick_order_with_ids_of_one_stream() {
    let mut rig = Rig::new();
    rig.attach(1, "p", CLEAN);
    rig.attach(2, "s", CLEAN);
    rig.subscribe(2, "t/#", AtMostOnce).expect("granted");
    for payload in ["a", "b", "c"] {
        rig.publish(1, "t/x", payload, AtLeastOnce);
    }
    let events = rig.events(2);
    assert_eq!(events.iter().map(|e| e.payload.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
    assert!(events.windows(2).all(|w| w[0].id.pubend == w[1].id.pubend && w[0].id.tick < w[1].id.tick));
    assert!(events.iter().all(|e| e.qos == AtMostOnce && e.tag == 0));
}

#[test]
fn best_effort_and_reliable_events_have_streams_of_their_own() {
    let mut rig = Rig::new();
    rig.attach(1, "p", CLEAN);
    rig.subscribe(1, "t", AtLeastOnce).expect("granted");
    rig.publish(1, "t", "q0", AtMostOnce);
    rig.publish(1, "t", "q1", AtLeastOnce);
    let events = rig.events(1);
    assert_ne!(events[0].id.pubend, events[1].id.pubend);
}

#[test]
fn the_lower_qos_counts() {
    let mut rig = Rig::new();
    rig.attach(1, "c", CLEAN);
    rig.subscribe(1, "t", AtLeastOnce).expect("granted");
    for qos in [AtMostOnce, AtLeastOnce, ExactlyOnce] {
        rig.publish(1, "t", "x", qos);
    }
    assert_eq!(rig.events(1).iter().map(|e| e.qos).collect::<Vec<_>>(), [AtMostOnce, AtLeastOnce, AtLeastOnce]);
}

#[test]
fn a_full_window_holds_back_until_something_is_settled() {
    let mut rig = Rig::new();
    rig.attach(1, "p", CLEAN);
    rig.attach(2, "s", crate::common::Client { window: 2, ..CLEAN });
    rig.subscribe(2, "t", AtLeastOnce).expect("granted");
    for payload in ["a", "b", "c", "d"] {
        rig.publish(1, "t", payload, AtLeastOnce);
    }
    let first = rig.events(2);
    assert_eq!(first.iter().map(|e| e.payload.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    rig.settle(2, first[1].tag, Settlement::Acknowledged);
    assert_eq!(rig.payloads(2), ["c"]);
    rig.settle(2, first[1].tag, Settlement::Acknowledged);
    assert!(rig.payloads(2).is_empty(), "an acknowledgement counts once");
    rig.settle(2, first[0].tag, Settlement::Acknowledged);
    assert_eq!(rig.payloads(2), ["d"]);
    assert_eq!(rig.core.stats().queued_bytes, 0);
}

#[test]
fn a_full_link_gets_nothing_until_it_is_writable() {
    let mut rig = Rig::new();
    rig.attach(1, "p", CLEAN);
    rig.attach(2, "s", CLEAN);
    rig.subscribe(2, "t", AtMostOnce).expect("granted");
    rig.edges.room.insert(2, 1);
    for payload in ["a", "b", "c"] {
        rig.publish(1, "t", payload, AtMostOnce);
    }
    assert_eq!(rig.payloads(2), ["a"]);
    rig.edges.room.insert(2, 1);
    rig.input(Input::Writable { link: Link(2) });
    assert_eq!(rig.payloads(2), ["b"]);
    rig.edges.room.remove(&2);
    rig.input(Input::Writable { link: Link(2) });
    assert_eq!(rig.payloads(2), ["c"]);
}

#[test]
fn a_slow_reader_loses_the_oldest_best_effort_events_and_others_lose_nothing() {
    let limits = Limits { best_effort_queue_bytes: 2_000, ..Limits::default() };
    let mut rig = Rig::with(limits);
    rig.attach(1, "p", CLEAN);
    rig.attach(2, "slow", CLEAN);
    rig.attach(3, "fast", CLEAN);
    rig.subscribe(2, "t", AtMostOnce).expect("granted");
    rig.subscribe(3, "t", AtMostOnce).expect("granted");
    rig.edges.room.insert(2, 1);
    for n in 0..100 {
        rig.publish(1, "t", &n.to_string(), AtMostOnce);
        if n == 1 {
            // It has not taken this one for longer than a burst lasts.
            rig.advance(Duration::from_secs(1));
        }
    }
    assert_eq!(rig.payloads(3).len(), 100);
    assert_eq!(rig.payloads(2), ["0"]);
    let stats = rig.core.stats();
    assert!(stats.queued_bytes <= 2_000 && stats.dropped_slow > 0);
    rig.edges.room.remove(&2);
    rig.input(Input::Writable { link: Link(2) });
    let late = rig.payloads(2);
    assert_eq!(late.last().map(String::as_str), Some("99"));
    assert_eq!(late.len() as u64 + stats.dropped_slow, 99);
}

#[test]
fn a_burst_reaches_a_reader_that_took_all_before_and_has_a_bound_of_its_own() {
    let limits = Limits { best_effort_queue_bytes: 2_000, ..Limits::default() };
    let mut rig = Rig::with(limits);
    rig.attach(1, "p", CLEAN);
    rig.attach(2, "s", CLEAN);
    rig.subscribe(2, "t", AtMostOnce).expect("granted");
    for bursts in 1..=3 {
        rig.edges.room.insert(2, 1);
        for n in 0..100 {
            rig.publish(1, "t", &n.to_string(), AtMostOnce);
        }
        assert!(rig.core.stats().queued_bytes > 4_000);
        rig.edges.room.remove(&2);
        rig.input(Input::Writable { link: Link(2) });
        assert_eq!(rig.payloads(2).len(), 100, "burst {bursts}");
        rig.advance(Duration::from_secs(5));
    }
    assert_eq!(rig.core.stats().dropped_slow, 0);
    rig.edges.room.insert(2, 1);
    for n in 0..1_000 {
        rig.publish(1, "t", &n.to_string(), AtMostOnce);
    }
    let stats = rig.core.stats();
    assert!(stats.queued_bytes <= 16 * 2_000 && stats.dropped_slow > 0, "{stats:?}");
    // When the burst should be over the bound is the usual one again.
    rig.advance(Duration::from_secs(1));
    rig.publish(1, "t", "last", AtMostOnce);
    assert!(rig.core.stats().queued_bytes <= 2_000);
}

#[test]
fn a_reader_too_slow_for_reliable_events_is_cut_off_and_told_why() {
    let limits = Limits { session_queue_bytes: 2_000, ..Limits::default() };
    let mut rig = Rig::with(limits);
    rig.attach(1, "p", CLEAN);
    rig.attach(2, "slow", crate::common::Client { window: 1, ..CLEAN });
    rig.subscribe(2, "t", AtLeastOnce).expect("granted");
    for n in 0..100 {
        rig.publish(1, "t", &n.to_string(), AtLeastOnce);
    }
    let told = rig.take(2);
    assert_eq!(told.last(), Some(&Told::Kicked(Kick::TooSlow)));
    let stats = rig.core.stats();
    assert_eq!((stats.kicked_slow, stats.queued_bytes, stats.sessions), (1, 0, 1));
}

#[test]
fn an_absent_session_keeps_the_newest_when_its_queue_is_full() {
    let limits = Limits { session_queue_bytes: 2_000, ..Limits::default() };
    let mut rig = Rig::with(limits);
    rig.attach(1, "p", CLEAN);
    rig.attach(2, "s", KEPT);
    rig.subscribe(2, "t", AtLeastOnce).expect("granted");
    rig.detach(2, false);
    for n in 0..100 {
        rig.publish(1, "t", &n.to_string(), AtLeastOnce);
    }
    let dropped = rig.core.stats().dropped_queue_full;
    rig.attach(3, "s", crate::common::Client { window: 1000, ..KEPT });
    let got = rig.payloads(3);
    assert_eq!(got.len() as u64 + dropped, 100);
    assert_eq!(got.last().map(String::as_str), Some("99"));
}

#[test]
fn the_bound_on_all_queues_holds_for_all_of_them_together() {
    let limits = Limits { total_queue_bytes: 5_000, ..Limits::default() };
    let mut rig = Rig::with(limits);
    rig.attach(1, "p", CLEAN);
    for link in 2..20 {
        rig.attach(link, &format!("s{link}"), KEPT);
        rig.subscribe(link, "t", AtLeastOnce).expect("granted");
        rig.detach(link, false);
    }
    for n in 0..100 {
        rig.publish(1, "t", &n.to_string(), AtLeastOnce);
        assert!(rig.core.stats().queued_bytes <= 5_000);
    }
}

#[test]
fn what_the_client_cannot_take_is_dropped_and_frees_the_window() {
    let mut rig = Rig::new();
    rig.attach(1, "p", CLEAN);
    rig.attach(2, "s", crate::common::Client { window: 1, ..CLEAN });
    rig.subscribe(2, "t", AtLeastOnce).expect("granted");
    rig.edges.largest.insert(2, 3);
    rig.publish(1, "t", "too large", AtLeastOnce);
    rig.publish(1, "t", "ok", AtLeastOnce);
    assert_eq!(rig.payloads(2), ["ok"]);
    assert_eq!(rig.core.stats().dropped_too_large, 1);
}

#[test]
fn an_exactly_once_publish_is_taken_once_until_it_is_released() {
    let mut rig = Rig::new();
    rig.attach(1, "p", CLEAN);
    rig.attach(2, "s", CLEAN);
    rig.subscribe(2, "t", AtMostOnce).expect("granted");
    rig.publish(1, "t", "once", ExactlyOnce);
    rig.publish(1, "t", "once", ExactlyOnce);
    assert_eq!(rig.payloads(2), ["once"]);
    rig.input(Input::Release { link: Link(1), tag: 77 });
    rig.input(Input::Release { link: Link(1), tag: 77 });
    rig.publish(1, "t", "another", ExactlyOnce);
    assert_eq!(rig.payloads(2), ["another"]);
    let told = rig.take(1);
    let routed = Told::Accepted { tag: 77, result: Accepted::Routed { matched: true } };
    let repeat = Told::Accepted { tag: 77, result: Accepted::Repeat };
    let completed = |known| Told::Completed { tag: 77, known };
    assert_eq!(told, [routed.clone(), repeat, completed(true), completed(false), routed]);
}

#[test]
fn one_copy_per_matching_subscription() {
    let mut rig = Rig::new();
    rig.attach(1, "c", CLEAN);
    for (identifier, filter, qos) in [(5, "a/#", AtMostOnce), (6, "a/+", AtLeastOnce)] {
        let spec = SubscriptionSpec { identifier, ..SubscriptionSpec::new(qos) };
        rig.subscribe_as(1, whimbrel_core::Filter { spec, ..crate::common::plain(filter, qos) }).expect("granted");
    }
    rig.publish(1, "a/b", "x", AtLeastOnce);
    let mut got: Vec<_> = rig.events(1).iter().map(|e| (e.identifier, e.qos)).collect();
    got.sort();
    assert_eq!(got, [(5, AtMostOnce), (6, AtLeastOnce)]);
}

#[test]
fn what_expires_while_it_waits_is_not_delivered() {
    let mut rig = Rig::new();
    rig.attach(1, "p", CLEAN);
    rig.attach(2, "s", KEPT);
    rig.subscribe(2, "t", AtLeastOnce).expect("granted");
    rig.detach(2, false);
    let mut short = crate::common::event("t", "short", AtLeastOnce);
    short.expires = Some(rig.now.after(core::time::Duration::from_secs(5)));
    rig.input(Input::Publish(whimbrel_core::Publish {
        link: Link(1),
        tag: 1,
        retain: false,
        number: None,
        event: &short,
    }));
    rig.publish(1, "t", "long", AtLeastOnce);
    rig.advance(core::time::Duration::from_secs(5));
    rig.attach(3, "s", KEPT);
    assert_eq!(rig.payloads(3), ["long"]);
    assert_eq!(rig.core.stats().dropped_expired, 1);
}

#[test]
fn full_queues_of_the_absent_leave_room_for_those_who_are_here() {
    let limits = Limits { total_queue_bytes: 20_000, ..Limits::default() };
    let mut rig = Rig::with(limits);
    rig.attach(1, "p", CLEAN);
    rig.attach(2, "absent", KEPT);
    rig.subscribe(2, "t", AtLeastOnce).expect("granted");
    rig.detach(2, false);
    for n in 0..300 {
        rig.publish(1, "t", &n.to_string(), AtLeastOnce);
    }
    rig.attach(3, "here", crate::common::Client { window: 1, ..CLEAN });
    rig.subscribe(3, "u", AtLeastOnce).expect("granted");
    for n in 0..10 {
        rig.publish(1, "u", &n.to_string(), AtLeastOnce);
    }
    assert!(!rig.take(3).contains(&Told::Kicked(Kick::TooSlow)));
    assert_eq!(rig.core.stats().kicked_slow, 0);
}

#[test]
fn a_publisher_whose_stream_runs_ahead_of_the_clock_is_held_up() {
    let start = crate::common::START + Duration::from_secs(3);
    let mut rig = Rig::with_floor(whimbrel_event::Tick(start.as_nanos()));
    rig.attach(1, "publisher", CLEAN);
    rig.publish(1, "t", "early", AtLeastOnce);
    assert_eq!(rig.edges.held, [(1, Duration::from_secs(2) + Duration::from_nanos(1))]);
    rig.advance(Duration::from_secs(3));
    rig.publish(1, "t", "in time", AtLeastOnce);
    assert_eq!(rig.edges.held.len(), 1);
}
