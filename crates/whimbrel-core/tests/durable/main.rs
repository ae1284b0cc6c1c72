//! Durable subscriptions: an acknowledged event is there after any crash, and is delivered exactly
//! once.

#[path = "../common/mod.rs"]
mod common;
mod copied;
mod deadlines;
mod disk;
mod exactly;
mod filter;
mod operations;
mod random;
mod restart;
mod shared;
mod shared_random;
mod token;

use core::time::Duration;

use common::{CLEAN, Client, Got, KEPT, Told, event, plain, will};
use disk::Logged;
use whimbrel_core::store::Disk;
use whimbrel_core::{
    Accepted, Durability, Filter, Input, Limits, Link, NOTICE_TOPIC, Publish, Refusal, Settlement, Start,
    SubscriptionSpec,
};
use whimbrel_core::{Persistence, Profile};
use whimbrel_event::Qos;
use whimbrel_selector::Selector;

const PUB: u32 = 1;
const SUB: u32 = 2;

/// A broker with a publisher, and a subscriber whose subscription is confirmed.
fn world(filter: &str, qos: Qos) -> Logged {
    let mut world = Logged::new();
    world.rig.attach(PUB, "publisher", CLEAN);
    join(&mut world, filter, qos);
    world
}

fn join(world: &mut Logged, filter: &str, qos: Qos) {
    world.rig.attach(SUB, "subscriber", KEPT);
    subscribe(world, plain(filter, qos));
}

fn subscribe(world: &mut Logged, filter: Filter<'_>) {
    world.rig.input(Input::Subscribe { link: Link(SUB), tag: 1, filters: &[filter] });
    world.settle();
    let told = world.rig.take(SUB);
    assert!(matches!(&told[..], [.., Told::Subscribed(results)] if results[0].is_ok()), "{told:?}");
}

fn publish(world: &mut Logged, payload: &str) {
    world.rig.publish(PUB, "t/a", payload, Qos::AtLeastOnce);
}

fn accepted(world: &mut Logged) -> usize {
    let told = world.rig.take(PUB).into_iter();
    told.filter(|told| matches!(told, Told::Accepted { result: Accepted::Routed { .. }, .. })).count()
}

/// The deliveries that the subscriber gets and acknowledges until there are no more.
fn drain(world: &mut Logged) -> Vec<Got> {
    let mut all = Vec::new();
    loop {
        world.settle();
        let got = world.rig.settled_events(SUB);
        if got.is_empty() {
            return all;
        }
        all.extend(got);
    }
}

/// Selectors of less important events, and of more important ones.
fn by_priority() -> [Selector; 2] {
    ["JMSPriority < 6", "JMSPriority > 5"].map(|text| Selector::parse(text).expect("a selector"))
}

fn payloads(got: &[Got]) -> Vec<&str> {
    got.iter().map(|got| &*got.payload).collect()
}

/// The subscriber is back with its session.
fn come_back(world: &mut Logged) {
    assert_eq!(world.rig.attach(SUB, "subscriber", KEPT), Told::Attached { present: true });
}

#[test]
fn nobody_hears_of_an_event_before_it_is_durable() {
    let mut world = world("t/#", Qos::AtLeastOnce);
    publish(&mut world, "one");
    assert_eq!((accepted(&mut world), world.rig.events(SUB)), (0, vec![]));
    world.settle();
    assert_eq!((accepted(&mut world), payloads(&drain(&mut world))), (1, vec!["one"]));
}

#[test]
fn what_nobody_durable_wants_is_not_logged_and_does_not_wait() {
    let mut world = world("other", Qos::AtLeastOnce);
    publish(&mut world, "one");
    world.settle();
    assert_eq!(accepted(&mut world), 1);
    publish(&mut world, "two");
    assert_eq!((accepted(&mut world), world.disk.events()), (1, 0), "ticks are reserved by now");
}

#[test]
fn an_absent_subscriber_gets_everything_after_a_crash() {
    let mut world = world("t/#", Qos::AtLeastOnce);
    world.rig.detach(SUB, false);
    for payload in ["a", "b", "c"] {
        publish(&mut world, payload);
    }
    world.settle();
    assert_eq!(accepted(&mut world), 3);
    world.crash();
    come_back(&mut world);
    assert_eq!(payloads(&drain(&mut world)), ["a", "b", "c"]);
    world.advance(Duration::from_secs(1));
    assert_eq!(world.disk.events(), 0, "what all have acknowledged is given up");
    world.crash();
    come_back(&mut world);
    assert_eq!(payloads(&drain(&mut world)), [""; 0]);
}

#[test]
fn a_notice_that_is_not_answered_holds_nothing() {
    let mut world = Logged::new();
    world.rig.attach(PUB, "publisher", CLEAN);
    world.rig.attach(SUB, "subscriber", KEPT);
    let spec =
        SubscriptionSpec { durability: Durability::Durable, notices: true, ..plain("t/#", Qos::AtLeastOnce).spec };
    subscribe(&mut world, Filter { spec, ..plain("t/#", Qos::AtLeastOnce) });
    world.advance(Limits::default().silence_after);
    let told = world.rig.events(SUB);
    assert_eq!(told.iter().filter(|got| got.topic == NOTICE_TOPIC).count(), 1, "{told:?}");
    publish(&mut world, "one");
    assert_eq!(payloads(&drain(&mut world)), ["one"]);
    world.advance(Duration::from_secs(1));
    assert_eq!(world.disk.events(), 0, "the notice is in no stream");
}

#[test]
fn what_was_not_durable_was_never_acknowledged_and_never_comes() {
    let mut world = world("t/#", Qos::AtLeastOnce);
    publish(&mut world, "lost");
    world.submit();
    assert_eq!(accepted(&mut world), 0);
    world.crash();
    world.rig.attach(PUB, "publisher", CLEAN);
    come_back(&mut world);
    publish(&mut world, "new");
    world.settle();
    assert_eq!(payloads(&drain(&mut world)), ["new"]);
}

#[test]
fn what_was_delivered_and_not_acknowledged_comes_again_after_a_crash() {
    let mut world = world("t/#", Qos::AtLeastOnce);
    for payload in ["a", "b", "c"] {
        publish(&mut world, payload);
    }
    world.settle();
    let got = world.rig.events(SUB);
    world.rig.settle(SUB, got[1].tag, Settlement::Acknowledged);
    world.advance(Duration::from_millis(20));
    world.crash();
    come_back(&mut world);
    let again = drain(&mut world);
    assert_eq!(payloads(&again), ["a", "c"], "also what was acknowledged out of order does not come again");
    assert_eq!((again[0].id, again[1].id), (got[0].id, got[2].id));
}

#[test]
fn a_subscription_that_was_not_confirmed_is_not_there_after_a_crash() {
    let mut world = Logged::new();
    world.rig.attach(SUB, "subscriber", KEPT);
    world.settle();
    world.rig.input(Input::Subscribe { link: Link(SUB), tag: 1, filters: &[plain("t/#", Qos::AtLeastOnce)] });
    world.submit();
    assert_eq!(world.rig.take(SUB), []);
    world.crash();
    come_back(&mut world);
    world.rig.attach(PUB, "publisher", CLEAN);
    publish(&mut world, "one");
    world.settle();
    assert_eq!((drain(&mut world), world.disk.events()), (vec![], 0));
}

#[test]
fn an_event_between_the_request_and_its_confirmation_is_not_lost() {
    let mut world = Logged::new();
    world.rig.attach(PUB, "publisher", CLEAN);
    world.rig.attach(SUB, "subscriber", KEPT);
    world.settle();
    world.rig.input(Input::Subscribe { link: Link(SUB), tag: 1, filters: &[plain("t/#", Qos::AtLeastOnce)] });
    publish(&mut world, "between");
    world.submit();
    world.commit_some(1);
    world.crash();
    world.rig.attach(PUB, "publisher", CLEAN);
    come_back(&mut world);
    publish(&mut world, "after");
    assert_eq!(payloads(&drain(&mut world)), ["after"], "the publisher had no answer yet");
    assert_eq!(world.disk.keys(b'd'), 1);
}

#[test]
fn another_selector_takes_effect_at_a_tick_also_across_a_crash() {
    let mut world = Logged::new();
    world.rig.attach(PUB, "publisher", CLEAN);
    world.rig.attach(SUB, "subscriber", KEPT);
    let [low, high] = by_priority();
    subscribe(&mut world, Filter { selector: Some(&low), ..plain("t/#", Qos::AtLeastOnce) });
    let important = |world: &mut Logged, payload: &str, importance| {
        let event = whimbrel_event::EventRef { importance, ..event("t/a", payload, Qos::AtLeastOnce) };
        world.rig.publish_event(PUB, &event, false);
    };
    important(&mut world, "low 1", 1);
    important(&mut world, "high 1", 9);
    world.settle();
    assert_eq!(world.disk.events(), 1);
    world.rig.take(SUB);
    let change = Filter { selector: Some(&high), ..plain("t/#", Qos::AtLeastOnce) };
    world.rig.input(Input::Subscribe { link: Link(SUB), tag: 1, filters: &[change] });
    important(&mut world, "low 2", 1);
    important(&mut world, "high 2", 9);
    world.settle();
    important(&mut world, "low 3", 1);
    important(&mut world, "high 3", 9);
    world.settle();
    let live: Vec<_> = world.rig.payloads(SUB);
    assert_eq!(live, ["high 2", "high 3"]);
    world.crash();
    come_back(&mut world);
    assert_eq!(payloads(&drain(&mut world)), ["low 1", "high 2", "high 3"]);
    world.advance(Duration::from_secs(1));
    assert_eq!((world.disk.events(), world.disk.keys(b'd')), (0, 1));
}

#[test]
fn who_unsubscribes_holds_nothing_and_gets_nothing() {
    let mut world = world("t/#", Qos::AtLeastOnce);
    world.rig.detach(SUB, false);
    publish(&mut world, "one");
    world.settle();
    come_back(&mut world);
    world.rig.input(Input::Unsubscribe { link: Link(SUB), tag: 1, filters: &["t/#"] });
    publish(&mut world, "two");
    world.advance(Duration::from_secs(1));
    assert_eq!(world.disk.events(), 0);
    assert_eq!((world.disk.keys(b'd'), world.disk.keys(b'p')), (0, 0));
    world.crash();
    come_back(&mut world);
    assert_eq!(drain(&mut world), vec![]);
}

#[test]
fn a_session_that_has_expired_leaves_nothing_behind() {
    let mut world = Logged::new();
    world.rig.attach(PUB, "publisher", CLEAN);
    let expiry = Duration::from_secs(5);
    world.rig.attach(SUB, "subscriber", Client { expiry, ..KEPT });
    subscribe(&mut world, plain("t/#", Qos::AtLeastOnce));
    world.rig.detach(SUB, false);
    publish(&mut world, "one");
    world.advance(Duration::from_secs(3));
    world.crash();
    assert_eq!(world.disk.events(), 1);
    world.advance(Duration::from_secs(3));
    assert_eq!(world.disk.events(), 0, "it had left before the crash");
    assert_eq!([b's', b'd', b'p', b'w'].map(|message| world.disk.keys(message)), [0; 4]);
    assert_eq!(world.rig.attach(SUB, "subscriber", KEPT), Told::Attached { present: false });
}

#[test]
fn a_clean_start_forgets_before_it_answers() {
    let mut world = world("t/#", Qos::AtLeastOnce);
    world.rig.detach(SUB, false);
    world.settle();
    world.rig.attach(SUB, "subscriber", CLEAN);
    assert_eq!(world.disk.keys(b's'), 1);
    world.settle();
    assert_eq!([b's', b'd', b'p'].map(|message| world.disk.keys(message)), [0; 3]);
    world.crash();
    assert_eq!(world.rig.attach(SUB, "subscriber", KEPT), Told::Attached { present: false });
}

#[test]
fn a_will_is_published_once_also_if_the_broker_dies() {
    let mut world = world("will", Qos::AtLeastOnce);
    let will = Some(will("will", "gone", Duration::from_secs(2)));
    world.rig.attach(3, "mortal", Client { will, ..KEPT });
    world.settle();
    world.crash();
    come_back(&mut world);
    assert_eq!(drain(&mut world), vec![]);
    world.advance(Duration::from_secs(3));
    assert_eq!(payloads(&drain(&mut world)), ["gone"]);
    world.crash();
    come_back(&mut world);
    world.advance(Duration::from_secs(3));
    assert_eq!((drain(&mut world), world.disk.keys(b'w')), (vec![], 0));
}

#[test]
fn retained_messages_are_there_after_a_crash() {
    let mut world = world("t/#", Qos::AtLeastOnce);
    world.rig.publish_as(PUB, "t/logged", "l", Qos::AtLeastOnce, true);
    world.rig.publish_as(PUB, "unlogged", "u", Qos::AtMostOnce, true);
    world.advance(Duration::from_secs(2));
    world.crash();
    world.rig.attach(3, "reader", CLEAN);
    world.rig.input(Input::Subscribe { link: Link(3), tag: 1, filters: &[plain("#", Qos::AtMostOnce)] });
    let mut got = world.rig.payloads(3);
    got.sort_unstable();
    assert_eq!(got, ["l", "u"]);
}

#[test]
fn a_number_that_was_accepted_is_a_repeat_also_after_a_crash() {
    let mut world = world("t/#", Qos::AtLeastOnce);
    let numbered = |world: &mut Logged, number, payload: &str| {
        let event = event("t/a", payload, Qos::AtLeastOnce);
        let publish = Publish { link: Link(PUB), tag: 9, retain: false, number: Some(number), event: &event };
        world.rig.input(Input::Publish(publish));
    };
    numbered(&mut world, 5, "five");
    numbered(&mut world, 5, "five again");
    assert_eq!(world.rig.take(PUB), [], "the repeat waits for the first");
    world.settle();
    let results: Vec<_> = world.rig.take(PUB);
    assert!(matches!(
        results[..],
        [Told::Accepted { result: Accepted::Routed { .. }, .. }, Told::Accepted { result: Accepted::Repeat, .. }]
    ));
    numbered(&mut world, 7, "seven");
    world.submit();
    world.crash();
    world.rig.attach(PUB, "publisher", CLEAN);
    numbered(&mut world, 5, "five once more");
    numbered(&mut world, 7, "seven");
    come_back(&mut world);
    assert_eq!(payloads(&drain(&mut world)), ["five", "seven"]);
}

#[test]
fn a_number_is_not_written_while_an_event_with_a_smaller_one_may_be_refused() {
    let mut world = world("t/#", Qos::AtLeastOnce);
    let numbered = |world: &mut Logged, number, topic| {
        let event = event(topic, "order", Qos::AtLeastOnce);
        world.rig.input(Input::Publish(Publish {
            link: Link(PUB),
            tag: 9,
            retain: false,
            number: Some(number),
            event: &event,
        }));
    };
    numbered(&mut world, 5, "t/a");
    numbered(&mut world, 6, "for/nobody");
    world.rig.now = world.rig.now.after(Duration::from_secs(5));
    world.rig.core.flush(world.rig.now);
    world.full(Disk::Full);
    let told = world.rig.take(PUB);
    assert!(matches!(told[0], Told::Accepted { result: Accepted::Refused(Refusal::LogFull), .. }), "{told:?}");
    world.settle();
    world.crash();
    world.rig.attach(PUB, "publisher", CLEAN);
    numbered(&mut world, 5, "t/a");
    world.settle();
    assert_eq!(accepted(&mut world), 1, "it is no repeat");
    come_back(&mut world);
    assert_eq!(payloads(&drain(&mut world)), ["order"]);
}

#[test]
fn requests_of_a_session_are_taken_up_in_their_order() {
    let mut world = world("t/#", Qos::AtLeastOnce);
    const OTHER: u32 = 3;
    world.rig.attach(OTHER, "other", KEPT);
    world.settle();
    let asks = |world: &mut Logged, filter| {
        world.rig.input(Input::Subscribe { link: Link(OTHER), tag: 1, filters: &[plain(filter, Qos::AtLeastOnce)] });
    };
    asks(&mut world, "first");
    asks(&mut world, "second");
    publish(&mut world, "is logged between");
    asks(&mut world, "third");
    world.commit_some(1);
    world.rig.input(Input::Unsubscribe { link: Link(OTHER), tag: 2, filters: &["third"] });
    world.commit_some(1);
    world.settle();
    assert_eq!(world.rig.take(OTHER).last(), Some(&Told::Unsubscribed(vec![true])));
    world.rig.publish(PUB, "third", "for nobody", Qos::AtLeastOnce);
    world.settle();
    assert_eq!(world.rig.payloads(OTHER), [""; 0]);
}

#[test]
fn who_changes_to_at_most_once_gets_what_waited_before_what_comes() {
    let mut world = Logged::new();
    world.rig.attach(PUB, "publisher", CLEAN);
    world.rig.attach(SUB, "subscriber", Client { window: 1, ..KEPT });
    subscribe(&mut world, plain("t/#", Qos::AtLeastOnce));
    for payload in ["in flight", "waits"] {
        publish(&mut world, payload);
    }
    world.settle();
    world.rig.publish(PUB, "t/a", "first", Qos::AtMostOnce);
    assert_eq!(world.rig.payloads(SUB), ["in flight"]);
    world.rig.input(Input::Subscribe { link: Link(SUB), tag: 1, filters: &[plain("t/#", Qos::AtMostOnce)] });
    world.settle();
    world.rig.publish(PUB, "t/a", "second", Qos::AtMostOnce);
    world.settle();
    assert_eq!(world.rig.payloads(SUB), ["first", "second"]);
}

#[test]
fn who_changes_to_at_most_once_and_back_gets_everything_in_order() {
    let mut world = Logged::new();
    world.rig.attach(PUB, "publisher", CLEAN);
    world.rig.attach(SUB, "subscriber", Client { window: 1, ..KEPT });
    subscribe(&mut world, plain("t/#", Qos::AtLeastOnce));
    for payload in ["1", "2", "3", "4"] {
        publish(&mut world, payload);
    }
    world.settle();
    for qos in [Qos::AtMostOnce, Qos::AtLeastOnce] {
        world.rig.input(Input::Subscribe { link: Link(SUB), tag: 1, filters: &[plain("t/#", qos)] });
        world.settle();
    }
    for payload in ["5", "6", "7"] {
        publish(&mut world, payload);
    }
    assert_eq!(payloads(&drain(&mut world)), ["1", "2", "3", "4", "5", "6", "7"]);
}

#[test]
fn a_full_log_refuses_what_it_would_have_to_keep_and_nothing_else() {
    let mut world = world("t/#", Qos::AtLeastOnce);
    publish(&mut world, "kept");
    world.settle();
    assert_eq!(accepted(&mut world), 1);
    publish(&mut world, "waits");
    world.full(Disk::Full);
    publish(&mut world, "refused");
    world.rig.publish(PUB, "volatile", "v", Qos::AtLeastOnce);
    world.settle();
    let told = world.rig.take(PUB);
    let refused = |told: &&Told| matches!(told, Told::Accepted { result: Accepted::Refused(Refusal::LogFull), .. });
    assert_eq!(told.iter().filter(refused).count(), 2);
    assert_eq!(told.len(), 3, "{told:?}");
    assert_eq!(payloads(&drain(&mut world)), ["kept"]);
    world.advance(Duration::from_secs(1));
    assert_eq!(world.disk.events(), 0, "positions and chops go on");
    world.full(Disk::Open);
    publish(&mut world, "again");
    assert_eq!(payloads(&drain(&mut world)), ["again"]);
}

#[test]
fn a_failed_log_disconnects_whose_fate_is_unknown_and_serves_the_rest() {
    let mut world = world("t/#", Qos::AtLeastOnce);
    publish(&mut world, "unknown");
    world.submit();
    world.full(Disk::Poisoned);
    assert!(matches!(world.rig.take(PUB)[..], [Told::Kicked(_)]));
    world.rig.attach(PUB, "publisher", CLEAN);
    publish(&mut world, "refused");
    let told = world.rig.take(PUB);
    assert!(matches!(told[..], [Told::Accepted { result: Accepted::Refused(Refusal::LogFailed), .. }]), "{told:?}");
    world.rig.attach(3, "reader", CLEAN);
    assert_eq!(world.rig.subscribe(3, "volatile", Qos::AtLeastOnce), Ok(Qos::AtLeastOnce));
    world.rig.publish(PUB, "volatile", "v", Qos::AtLeastOnce);
    assert_eq!((accepted(&mut world), world.rig.payloads(3)), (1, vec!["v".to_owned()]));
}

#[test]
fn a_log_that_has_failed_grants_what_is_there_and_no_change() {
    let [low, high] = by_priority();
    let asked = |qos, selector| Filter { selector: Some(selector), ..plain("t/#", qos) };
    let mut world = Logged::new();
    world.rig.attach(SUB, "subscriber", KEPT);
    subscribe(&mut world, asked(Qos::AtLeastOnce, &low));
    world.full(Disk::Poisoned);
    let same = asked(Qos::AtLeastOnce, &low);
    assert_eq!(world.rig.subscribe_as(SUB, same), Ok(Qos::AtLeastOnce));
    let by_token = Filter { spec: SubscriptionSpec { by_token: true, ..same.spec }, ..same };
    let from_earliest = Filter { start: Start::Earliest, ..same };
    let no_local = Filter { spec: SubscriptionSpec { no_local: true, ..same.spec }, ..same };
    let changes = [asked(Qos::AtLeastOnce, &high), asked(Qos::ExactlyOnce, &low), by_token, from_earliest, no_local];
    for change in changes {
        assert_eq!(world.rig.subscribe_as(SUB, change), Err(Refusal::LogFailed), "{change:?}");
    }
}

#[test]
fn what_is_logged_for_nobody_is_given_up() {
    let mut world = Logged::new();
    let filter = "t/#".into();
    world.rig.core.set_profiles(vec![Profile { filter, persistence: Persistence::Persistent, ..Profile::default() }]);
    world.rig.attach(PUB, "publisher", CLEAN);
    publish(&mut world, "one");
    world.settle();
    assert_eq!((accepted(&mut world), world.disk.events()), (1, 1));
    world.advance(Duration::from_secs(1));
    assert_eq!(world.disk.events(), 0);
}

#[test]
fn what_is_kept_too_long_is_given_up_and_told() {
    let mut world = Logged::with(Limits { max_retain: Some(Duration::from_secs(10)), ..Limits::default() });
    world.rig.attach(PUB, "publisher", CLEAN);
    join(&mut world, "t/#", Qos::AtLeastOnce);
    world.rig.detach(SUB, false);
    publish(&mut world, "old");
    world.advance(Duration::from_secs(20));
    publish(&mut world, "new");
    world.advance(Duration::from_secs(1));
    assert_eq!(world.disk.events(), 1);
    world.crash();
    come_back(&mut world);
    assert_eq!(payloads(&drain(&mut world)), ["new"]);
    assert_eq!(world.rig.core.stats().gaps_released, 1);
}

#[test]
fn a_will_that_finds_the_log_full_is_published_when_there_is_room() {
    for client in [CLEAN, KEPT] {
        let mut world = world("will", Qos::AtLeastOnce);
        let will = Some(will("will", "gone", Duration::ZERO));
        world.rig.attach(3, "mortal", Client { will, ..client });
        world.settle();
        world.full(Disk::Full);
        world.rig.detach(3, true);
        world.advance(Duration::from_secs(5));
        assert_eq!(drain(&mut world), vec![]);
        world.full(Disk::Open);
        world.advance(Duration::from_secs(2));
        assert_eq!(payloads(&drain(&mut world)), ["gone"]);
        world.advance(Duration::from_secs(5));
        assert_eq!((drain(&mut world), world.disk.keys(b'w')), (vec![], 0));
    }
}

#[test]
fn a_position_that_is_written_leaves_a_selector_that_waits_as_it_is() {
    let mut world = Logged::new();
    world.rig.attach(PUB, "publisher", CLEAN);
    world.rig.attach(SUB, "subscriber", KEPT);
    let selectors = [1, 2, 3].map(|priority| format!("JMSPriority = {priority}"));
    let selectors = selectors.map(|text| Selector::parse(&text).expect("a selector"));
    let important = |world: &mut Logged, importance: u8| {
        let payload = importance.to_string();
        let event = whimbrel_event::EventRef { importance, ..event("t/a", &payload, Qos::AtLeastOnce) };
        world.rig.publish_event(PUB, &event, false);
    };
    subscribe(&mut world, Filter { selector: Some(&selectors[0]), ..plain("t/#", Qos::AtLeastOnce) });
    important(&mut world, 1);
    world.settle();
    subscribe(&mut world, Filter { selector: Some(&selectors[1]), ..plain("t/#", Qos::AtLeastOnce) });
    let first = Filter { selector: Some(&selectors[2]), ..plain("t/#", Qos::AtLeastOnce) };
    world.rig.settle(SUB, 1, Settlement::Acknowledged);
    world.rig.input(Input::Subscribe { link: Link(SUB), tag: 1, filters: &[first] });
    // The position is written behind the records of the SUBSCRIBE, and before that is confirmed.
    world.rig.now = world.rig.now.after(Duration::from_millis(50));
    world.submit();
    world.settle();
    world.crash();
    world.rig.attach(PUB, "publisher", CLEAN);
    come_back(&mut world);
    world.settle();
    [1, 2, 3].into_iter().for_each(|importance| important(&mut world, importance));
    assert_eq!(payloads(&drain(&mut world)), ["3"], "what it asked for last");
}

#[test]
fn many_absent_subscriptions_hold_what_they_need_after_a_restart() {
    const MANY: u32 = 9_000;
    let mut world = Logged::new();
    for link in 10..10 + MANY {
        world.rig.attach(link, &format!("client {link}"), KEPT);
        world.rig.input(Input::Subscribe { link: Link(link), tag: 1, filters: &[plain("t/#", Qos::AtLeastOnce)] });
    }
    world.settle();
    (10..10 + MANY).for_each(|link| world.rig.detach(link, false));
    world.rig.attach(PUB, "publisher", CLEAN);
    publish(&mut world, "one");
    world.advance(Duration::from_secs(1));
    world.crash();
    world.advance(Duration::from_secs(1));
    assert_eq!(world.disk.events(), 1);
    let last = 10 + MANY - 1;
    world.rig.attach(last, &format!("client {last}"), KEPT);
    world.settle();
    assert_eq!(world.rig.payloads(last), ["one"]);
}

/// Publishes with the retain mark, and without.
fn publish_marked(world: &mut Logged, qos: Qos) {
    for (payload, retain) in [("kept", true), ("not", false)] {
        world.rig.publish_as(PUB, "t/a", payload, qos, retain);
        world.rig.input(Input::Release { link: Link(PUB), tag: 77 });
    }
    world.settle();
}

/// Payloads with their retain marks.
fn marks(got: &[Got]) -> Vec<(&str, bool)> {
    got.iter().map(|got| (&*got.payload, got.retain)).collect()
}

#[test]
fn the_retain_mark_comes_as_published_on_every_way() {
    const MARKED: [(&str, bool); 2] = [("kept", true), ("not", false)];
    for as_published in [true, false] {
        let wanted = MARKED.map(|(payload, retain)| (payload, retain && as_published));
        for qos in [Qos::AtLeastOnce, Qos::ExactlyOnce] {
            for (durability, way) in [
                (Durability::Durable, "live"),
                (Durability::Durable, "cache"),
                (Durability::Durable, "log"),
                (Durability::Durable, "repeated after a crash"),
                (Durability::SemiDurable, "cache"),
                (Durability::SemiDurable, "queue"),
            ] {
                let mut world = Logged::new();
                world.rig.attach(PUB, "publisher", CLEAN);
                let window = if way == "queue" { 1 } else { 10 };
                world.rig.attach(SUB, "subscriber", Client { window, ..KEPT });
                let spec =
                    SubscriptionSpec { durability, retain_as_published: as_published, ..SubscriptionSpec::new(qos) };
                let filter = Filter { spec, ..plain("t/#", qos) };
                subscribe(&mut world, filter);
                let is_away = matches!(way, "cache" | "log");
                if is_away {
                    world.rig.detach(SUB, false);
                }
                publish_marked(&mut world, qos);
                if way == "repeated after a crash" {
                    assert_eq!(marks(&world.rig.events(SUB)), wanted, "sent and not answered");
                }
                if matches!(way, "log" | "repeated after a crash") {
                    world.crash();
                }
                if is_away || way == "repeated after a crash" {
                    come_back(&mut world);
                }
                let got = exactly::received_all(&mut world);
                assert_eq!(marks(&got), wanted, "{way}, {durability:?}, {qos:?}");
            }
        }
    }
}

#[test]
fn a_will_has_its_retain_mark_out_of_the_log() {
    let mut world = Logged::new();
    world.rig.attach(SUB, "subscriber", KEPT);
    let spec = SubscriptionSpec { retain_as_published: true, ..SubscriptionSpec::new(Qos::AtLeastOnce) };
    subscribe(&mut world, Filter { spec, ..plain("t/#", Qos::AtLeastOnce) });
    world.rig.detach(SUB, false);
    for (link, retain) in [(7, true), (8, false)] {
        let will = whimbrel_core::Will { retain, ..will("t/will", &retain.to_string(), Duration::ZERO) };
        world.rig.attach(link, &format!("dies {link}"), Client { will: Some(will), ..CLEAN });
        world.settle();
        world.rig.detach(link, true);
        world.settle();
    }
    world.crash();
    come_back(&mut world);
    let got = drain(&mut world);
    // Two publishers have no order among them.
    let got: std::collections::BTreeMap<_, _> = marks(&got).into_iter().collect();
    assert_eq!(got, [("true", true), ("false", false)].into());
}
