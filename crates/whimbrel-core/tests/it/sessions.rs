//! Sessions: resumption, takeover, expiry, wills.

use core::time::Duration;

use crate::common::{CLEAN, Client, KEPT, Rig, Told, will};
use whimbrel_core::{Input, Kick, Limits, Link, Refusal, Settlement};
use whimbrel_event::Qos::{AtLeastOnce, AtMostOnce, ExactlyOnce};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_kept_session_gets_again_what_it_did_not_settle_and_then_what_it_missed() {
    let mut rig = Rig::new();
    rig.attach(1, "p", CLEAN);
    assert_eq!(rig.attach(2, "s", KEPT), Told::Attached { present: false });
    rig.subscribe(2, "t", ExactlyOnce).expect("granted");
    rig.publish(1, "t", "one", AtLeastOnce);
    rig.publish(1, "t", "two", AtLeastOnce);
    let first = rig.events(2);
    rig.settle(2, first[0].tag, Settlement::Acknowledged);
    rig.detach(2, false);
    rig.publish(1, "t", "best effort", AtMostOnce);
    rig.publish(1, "t", "three", AtLeastOnce);
    assert_eq!(rig.attach(3, "s", KEPT), Told::Attached { present: true });
    let again = rig.events(3);
    let seen: Vec<_> = again.iter().map(|e| (e.payload.as_str(), e.repeated, e.tag)).collect();
    assert_eq!(seen, [("two", true, first[1].tag), ("three", false, first[1].tag + 1)]);
    assert_eq!(again[0].id, first[1].id);
}

#[test]
fn an_exactly_once_delivery_resumes_in_the_phase_it_was_in() {
    let mut rig = Rig::new();
    rig.attach(1, "p", CLEAN);
    rig.attach(2, "s", KEPT);
    rig.subscribe(2, "t", ExactlyOnce).expect("granted");
    rig.publish(1, "t", "x", ExactlyOnce);
    let tag = rig.events(2)[0].tag;
    rig.settle(2, tag, Settlement::Received);
    assert_eq!(rig.take(2), [Told::Release { tag, known: true }]);
    rig.detach(2, false);
    rig.attach(3, "s", KEPT);
    assert_eq!(rig.take(3), [Told::Release { tag, known: true }]);
    rig.settle(3, tag, Settlement::Completed);
    rig.detach(3, false);
    rig.attach(4, "s", KEPT);
    assert_eq!(rig.take(4), []);
}

#[test]
fn a_smaller_window_after_a_return_is_respected() {
    let mut rig = Rig::new();
    rig.attach(1, "p", CLEAN);
    rig.attach(2, "s", KEPT);
    rig.subscribe(2, "t", AtLeastOnce).expect("granted");
    for payload in ["a", "b", "c"] {
        rig.publish(1, "t", payload, AtLeastOnce);
    }
    rig.detach(2, false);
    rig.publish(1, "t", "d", AtLeastOnce);
    rig.attach(3, "s", Client { window: 1, ..KEPT });
    let mut got = Vec::new();
    loop {
        let events = rig.events(3);
        let Some(event) = events.first() else { break };
        assert_eq!(events.len(), 1);
        got.push((event.payload.clone(), event.repeated));
        rig.settle(3, event.tag, Settlement::Acknowledged);
    }
    let expected = [("a", true), ("b", true), ("c", true), ("d", false)].map(|(p, r)| (p.to_string(), r));
    assert_eq!(got, expected);
}

#[test]
fn a_second_connection_takes_the_session_over() {
    let mut rig = Rig::new();
    rig.attach(1, "s", KEPT);
    rig.subscribe(1, "t", AtLeastOnce).expect("granted");
    assert_eq!(rig.attach(2, "s", KEPT), Told::Attached { present: true });
    assert_eq!(rig.take(1), [Told::Kicked(Kick::TakenOver)]);
    rig.publish(2, "t", "x", AtLeastOnce);
    assert_eq!(rig.events(2).len(), 1);
    // The edge may still tell that the old connection ended; that must not touch the new one.
    rig.detach(1, true);
    rig.publish(2, "t", "y", AtLeastOnce);
    assert_eq!(rig.payloads(2), ["y"]);
}

#[test]
fn a_clean_start_forgets_the_old_session() {
    let mut rig = Rig::new();
    rig.attach(1, "s", KEPT);
    rig.subscribe(1, "t", AtLeastOnce).expect("granted");
    rig.detach(1, false);
    assert_eq!(rig.attach(2, "s", Client { clean: true, ..KEPT }), Told::Attached { present: false });
    rig.publish(2, "t", "x", AtLeastOnce);
    assert!(rig.events(2).is_empty());
    assert_eq!(rig.core.stats().subscriptions, 0);
}

#[test]
fn a_session_ends_when_it_expires_and_not_before() {
    let mut rig = Rig::new();
    rig.attach(1, "s", Client { expiry: 10 * SECOND, ..KEPT });
    rig.detach(1, false);
    rig.advance(9 * SECOND);
    assert_eq!(rig.attach(2, "s", Client { expiry: 10 * SECOND, ..KEPT }), Told::Attached { present: true });
    rig.advance(100 * SECOND);
    rig.detach(2, false);
    rig.advance(10 * SECOND);
    assert_eq!(rig.core.stats().sessions_expired, 1);
    assert_eq!(rig.attach(3, "s", KEPT), Told::Attached { present: false });
}

#[test]
fn the_expiry_is_capped_and_may_be_changed_on_leaving() {
    let mut rig = Rig::with(Limits { session_expiry_max: 5 * SECOND, ..Limits::default() });
    rig.attach(1, "long", Client { expiry: Duration::MAX, ..KEPT });
    rig.attach(2, "short", Client { expiry: 4 * SECOND, ..KEPT });
    rig.detach(1, false);
    rig.input(Input::Detach { link: Link(2), publish_will: false, expiry: Some(Duration::ZERO) });
    assert_eq!(rig.core.stats().sessions, 1);
    rig.advance(5 * SECOND);
    assert_eq!(rig.core.stats().sessions, 0);
}

#[test]
fn a_will_is_published_when_the_client_vanishes_and_not_when_it_leaves() {
    let mut rig = Rig::new();
    rig.attach(1, "watcher", CLEAN);
    rig.subscribe(1, "will/#", AtMostOnce).expect("granted");
    rig.attach(2, "a", Client { will: Some(will("will/a", "gone", Duration::ZERO)), ..CLEAN });
    rig.detach(2, true);
    rig.attach(3, "b", Client { will: Some(will("will/b", "gone", Duration::ZERO)), ..CLEAN });
    rig.detach(3, false);
    assert_eq!(rig.events(1).iter().map(|e| e.topic.as_str()).collect::<Vec<_>>(), ["will/a"]);
}

#[test]
fn a_delayed_will_waits_for_the_session_and_is_dropped_when_it_returns() {
    let mut rig = Rig::new();
    rig.attach(1, "watcher", CLEAN);
    rig.subscribe(1, "will/#", AtMostOnce).expect("granted");
    let client = Client { will: Some(will("will/a", "gone", 5 * SECOND)), ..KEPT };
    rig.attach(2, "a", client.clone());
    rig.detach(2, true);
    rig.advance(4 * SECOND);
    rig.attach(3, "a", client.clone());
    rig.advance(60 * SECOND);
    assert!(rig.events(1).is_empty());
    rig.detach(3, true);
    rig.advance(5 * SECOND);
    assert_eq!(rig.events(1).len(), 1);
}

#[test]
fn a_delayed_will_is_due_when_its_session_ends() {
    let mut rig = Rig::new();
    rig.attach(1, "watcher", CLEAN);
    rig.subscribe(1, "will/#", AtMostOnce).expect("granted");
    let will = will("will/a", "gone", 50 * SECOND);
    rig.attach(2, "a", Client { expiry: 3 * SECOND, will: Some(will), ..KEPT });
    rig.detach(2, true);
    rig.advance(2 * SECOND);
    assert!(rig.events(1).is_empty());
    rig.advance(SECOND);
    assert_eq!(rig.events(1).len(), 1);
    assert_eq!(rig.core.next_deadline(), None);
}

#[test]
fn the_number_of_sessions_is_bounded() {
    let mut rig = Rig::with(Limits { sessions_max: 1, ..Limits::default() });
    rig.attach(1, "a", KEPT);
    assert_eq!(rig.attach(2, "b", KEPT), Told::Refused(Refusal::TooManySessions));
    assert_eq!(rig.attach(2, "a", KEPT), Told::Attached { present: true });
}

#[test]
fn the_number_of_subscriptions_of_a_session_is_bounded() {
    let mut rig = Rig::with(Limits { subscriptions_per_session: 1, ..Limits::default() });
    rig.attach(1, "a", KEPT);
    assert_eq!(rig.subscribe(1, "x", AtMostOnce), Ok(AtMostOnce));
    assert_eq!(rig.subscribe(1, "y", AtMostOnce), Err(Refusal::TooManySubscriptions));
    assert_eq!(rig.subscribe(1, "x", AtLeastOnce), Ok(AtLeastOnce), "changing one is no new one");
}
