//! Durable subscriptions whose client keeps the position.

use core::time::Duration;

use whimbrel_core::cache::{Capacity, PartitionPlan, Plan, Policy};
use whimbrel_core::store::Disk;
use whimbrel_core::{
    Accepted, Durability, Filter, Input, Limits, Link, NOTICE_TOPIC, Refusal, Settlement, Start, SubscriptionSpec,
};
use whimbrel_event::{CheckpointToken, Qos, Time};
use whimbrel_selector::Selector;

use crate::common::{CLEAN, Client, Got, KEPT, START, Told, plain};
use crate::disk::Logged;
use crate::{PUB, SUB, by_priority};

/// A subscriber to other topics, that acknowledges everything at once.
const OTHER: u32 = 3;

fn by_token(start: Start<'_>) -> Filter<'_> {
    let (plain, durability) = (plain("t/#", Qos::AtLeastOnce), Durability::Durable);
    let spec = SubscriptionSpec { durability, by_token: true, notices: true, named: true, ..plain.spec };
    Filter { spec, start, wants_token: true, ..plain }
}

/// Subscribes from `start`, and returns where the subscription begins.
fn subscribe(world: &mut Logged, start: Start<'_>) -> (CheckpointToken, Vec<Got>) {
    world.rig.input(Input::Subscribe { link: Link(SUB), tag: 1, filters: &[by_token(start)] });
    world.settle();
    let (mut begins, mut got) = (None, Vec::new());
    for told in world.rig.take(SUB) {
        match told {
            Told::Subscribed(results) => begins = results[0].clone().expect("granted").begins,
            Told::Event(event) => got.push(event),
            _ => {}
        }
    }
    (begins.expect("asked for"), got)
}

/// The subscriber takes the pending events, and keeps its position; returns their payloads.
fn take_in(world: &mut Logged, position: &mut CheckpointToken) -> Vec<String> {
    let mut payloads = Vec::new();
    for got in world.rig.settled_events(SUB).into_iter().filter(|got| got.topic != NOTICE_TOPIC) {
        position.advance(got.id).expect("it fits");
        payloads.push(got.payload);
    }
    payloads
}

fn acknowledge(world: &mut Logged, token: &CheckpointToken) {
    let acknowledge = Input::Acknowledge { link: Link(SUB), tag: 9, qos: Qos::AtLeastOnce, identifier: 0, token };
    world.rig.input(acknowledge);
}

/// Events and no notices.
fn payloads(got: &[Got]) -> Vec<&str> {
    got.iter().filter(|got| got.topic != NOTICE_TOPIC).map(|got| &*got.payload).collect()
}

/// Whether a gap was told for a reason.
fn has_gap(got: &[Got], reason: &str) -> bool {
    got.iter().any(|got| got.topic == NOTICE_TOPIC && got.payload.contains(&format!("\"reason\":\"{reason}\"")))
}

/// A subscriber that has got an event and not yet acknowledged it, and its position.
fn one_event(limits: Limits) -> (Logged, CheckpointToken) {
    let mut world = Logged::with(limits);
    world.rig.attach(PUB, "publisher", CLEAN);
    world.rig.attach(SUB, "subscriber", KEPT);
    let (mut position, _) = subscribe(&mut world, Start::Own);
    world.rig.publish(PUB, "t/a", "one", Qos::AtLeastOnce);
    world.settle();
    assert_eq!(take_in(&mut world, &mut position), ["one"]);
    (world, position)
}

fn is_answered(world: &mut Logged) -> bool {
    let answer = Told::Accepted { tag: 9, result: Accepted::Routed { matched: true } };
    world.rig.take(SUB).contains(&answer)
}

#[test]
fn a_position_that_a_client_keeps_is_durable_before_that_is_said() {
    let (mut world, position) = one_event(Limits::default());
    acknowledge(&mut world, &position);
    world.submit();
    assert!(!is_answered(&mut world));
    world.settle();
    assert!(is_answered(&mut world));
    world.crash();
    world.rig.attach(SUB, "subscriber", KEPT);
    let (_, again) = subscribe(&mut world, Start::Own);
    assert_eq!(payloads(&again), [""; 0]);
}

#[cfg(feature = "mutants")]
#[test]
fn a_position_that_is_said_to_be_known_too_early_is_lost() {
    let (mut world, position) = one_event(Limits::default());
    world.rig.core.build_in(whimbrel_core::Mutant::AcknowledgedBeforePut);
    acknowledge(&mut world, &position);
    assert!(is_answered(&mut world));
    world.crash();
    world.rig.attach(SUB, "subscriber", KEPT);
    let (_, again) = subscribe(&mut world, Start::Own);
    assert_eq!(payloads(&again), ["one"]);
}

/// The subscriber asks for its first event again, is gone before that is durable, and is back over
/// another connection: the deliveries there before it has named a position.
fn another_connection(world: &mut Logged, begin: &CheckpointToken) -> Vec<Got> {
    let filters = &[by_token(Start::Token(begin, &[]))];
    world.rig.input(Input::Subscribe { link: Link(SUB), tag: 1, filters });
    world.rig.detach(SUB, false);
    world.rig.attach(SUB, "subscriber", KEPT);
    world.settle();
    world.rig.events(SUB)
}

/// As [`one_event`], with the position before the event.
fn one_event_and_the_place_before() -> (Logged, CheckpointToken, CheckpointToken) {
    let (mut world, position) = one_event(Limits::default());
    world.rig.detach(SUB, false);
    world.rig.attach(SUB, "subscriber", KEPT);
    let (begin, again) = subscribe(&mut world, Start::Own);
    assert_eq!(payloads(&again), ["one"], "it has not acknowledged it");
    (world, begin, position)
}

#[test]
fn what_another_connection_has_asked_for_is_not_sent_to_who_has_not_said_where_it_is() {
    let (mut world, begin, position) = one_event_and_the_place_before();
    assert_eq!(another_connection(&mut world, &begin), []);
    world.rig.publish(PUB, "t/a", "two", Qos::AtLeastOnce);
    world.settle();
    assert_eq!(world.rig.events(SUB), []);
    let (_, got) = subscribe(&mut world, Start::Token(&position, &[]));
    assert_eq!(payloads(&got), ["two"]);
}

#[cfg(feature = "mutants")]
#[test]
fn without_waiting_it_would_get_what_it_has_had() {
    let (mut world, begin, _) = one_event_and_the_place_before();
    world.rig.core.build_in(whimbrel_core::Mutant::BeginsForAnother);
    assert_eq!(payloads(&another_connection(&mut world, &begin)), ["one"]);
}

/// Unacknowledged events are released after a while, and the broker is restarted.
fn given_up() -> Logged {
    let (mut world, _) = one_event(Limits { max_retain: Some(Duration::from_secs(10)), ..Limits::default() });
    world.rig.detach(SUB, false);
    world.advance(Duration::from_secs(20));
    world.rig.publish(PUB, "t/a", "two", Qos::AtLeastOnce);
    world.advance(Duration::from_secs(1));
    assert_eq!(world.disk.events(), 1);
    world.crash();
    world.rig.attach(SUB, "subscriber", KEPT);
    world
}

#[test]
fn after_a_restart_a_client_stands_where_it_has_acknowledged_and_not_where_the_stream_was_given_up() {
    let (_, got) = subscribe(&mut given_up(), Start::Own);
    assert_eq!((payloads(&got), has_gap(&got, "released")), (vec!["two"], true));
}

#[cfg(feature = "mutants")]
#[test]
fn what_was_given_up_early_would_be_lost_silently() {
    let mut world = given_up();
    world.rig.core.build_in(whimbrel_core::Mutant::EarlyIsSilence);
    let (_, got) = subscribe(&mut world, Start::Own);
    assert_eq!((payloads(&got), has_gap(&got, "released")), (vec!["two"], false));
}

/// An event without a subscriber, a restart, and a client that may subscribe.
fn unlogged() -> Logged {
    let mut world = Logged::new();
    world.rig.attach(PUB, "publisher", CLEAN);
    world.rig.publish(PUB, "t/a", "unlogged", Qos::AtLeastOnce);
    world.settle();
    world.crash();
    world.rig.attach(SUB, "subscriber", KEPT);
    world
}

#[test]
fn the_log_says_nothing_of_the_time_before_a_subscription() {
    let (_, got) = subscribe(&mut unlogged(), Start::Since(START));
    assert!(has_gap(&got, "overwritten"), "{got:?}");
}

#[cfg(feature = "mutants")]
#[test]
fn what_the_log_never_had_would_be_taken_for_silence() {
    let mut world = unlogged();
    world.rig.core.build_in(whimbrel_core::Mutant::LogBeforeStart);
    let (_, got) = subscribe(&mut world, Start::Since(START));
    assert!(!has_gap(&got, "overwritten"), "{got:?}");
}

#[test]
fn that_a_client_answers_what_it_was_sent_says_nothing_of_what_it_asks_for_again() {
    let mut world = Logged::new();
    world.rig.attach(PUB, "publisher", CLEAN);
    world.rig.attach(SUB, "subscriber", Client { window: 1, ..KEPT });
    let (begin, _) = subscribe(&mut world, Start::Own);
    world.rig.publish(PUB, "t/a", "one", Qos::AtLeastOnce);
    world.settle();
    let got = world.rig.events(SUB);
    assert_eq!(payloads(&got), ["one"]);
    let (_, again) = subscribe(&mut world, Start::Token(&begin, &[]));
    assert_eq!(again, [], "its window is full");
    world.rig.settle(SUB, got[0].tag, Settlement::Acknowledged);
    world.settle();
    assert_eq!(payloads(&world.rig.events(SUB)), ["one"]);
}

#[test]
fn what_a_semi_durable_subscription_lacked_before_it_was_asked_for_again_is_told_after_a_restart() {
    let mut world = Logged::new();
    world.rig.attach(PUB, "publisher", CLEAN);
    let mut semi_durable = by_token(Start::Own);
    semi_durable.spec.durability = Durability::SemiDurable;
    let subscribe = |world: &mut Logged| {
        world.rig.attach(SUB, "subscriber", KEPT);
        world.rig.input(Input::Subscribe { link: Link(SUB), tag: 1, filters: &[semi_durable] });
        world.settle();
        world.rig.take(SUB)
    };
    subscribe(&mut world);
    world.rig.detach(SUB, false);
    world.advance(Duration::from_secs(1));
    world.rig.publish(PUB, "t/a", "missed", Qos::AtLeastOnce);
    world.advance(Duration::from_secs(1));
    let told = subscribe(&mut world);
    let missed = told.iter().find_map(|told| if let Told::Event(got) = told { Some(got.id) } else { None });
    let missed = missed.expect("the cache has it");
    world.crash();
    let told = subscribe(&mut world);
    let begins = told.iter().find_map(|told| if let Told::Subscribed(results) = told { Some(results) } else { None });
    let begins = begins.and_then(|results| results[0].clone().expect("granted").begins).expect("asked for");
    let at = begins.pubends().find(|(pubend, _)| *pubend == missed.pubend).map_or(begins.common(), |(_, tick)| tick);
    assert!(at < missed.tick, "it has not acknowledged {missed}, and begins at {at}");
}

#[test]
fn what_a_semi_durable_subscription_was_not_told_when_it_was_asked_for_again_is_told_after_a_restart() {
    let mut world = Logged::new();
    let narrow = Client { window: 1, ..KEPT };
    let (plain, durability) = (plain("t/#", Qos::AtLeastOnce), Durability::SemiDurable);
    let spec = SubscriptionSpec { durability, notices: true, named: true, ..plain.spec };
    let filter = Filter { spec, wants_token: true, ..plain };
    let subscribe = |world: &mut Logged| {
        world.rig.attach(SUB, "subscriber", narrow.clone());
        world.rig.input(Input::Subscribe { link: Link(SUB), tag: 1, filters: &[filter] });
        world.settle();
    };
    subscribe(&mut world);
    world.rig.detach(SUB, false);
    world.advance(Duration::from_secs(1));
    let away = world.rig.now;
    world.advance(Duration::from_secs(1));
    world.crash();
    subscribe(&mut world);
    let told = world.rig.events(SUB).iter().filter(|got| got.topic == NOTICE_TOPIC).count();
    assert_eq!(told, 1, "of four streams that are logged: its window is full");
    world.crash();
    world.rig.attach(SUB, "subscriber", KEPT);
    world.settle();
    let number = |text: &str, name: &str| {
        let (_, rest) = text.split_once(&format!("\"{name}\":\""))?;
        rest.split_once('"').and_then(|(value, _)| value.parse::<u64>().ok())
    };
    let at = away.as_nanos();
    let got = world.rig.settled_events(SUB);
    let is_about = |text: &str| number(text, "from") < Some(at) && Some(at) < number(text, "to");
    let told = got.iter().filter(|got| has_gap(&[(*got).clone()], "lost") && is_about(&got.payload)).count();
    assert!(told >= 3, "it was told one gap of four: {got:?}");
}

#[test]
fn a_place_before_its_beginning_that_a_client_has_named_is_known_after_a_restart() {
    let mut world = Logged::new();
    world.rig.attach(PUB, "publisher", CLEAN);
    world.rig.publish(PUB, "t/a", "early", Qos::AtLeastOnce);
    world.settle();
    world.rig.attach(SUB, "subscriber", KEPT);
    let (_, got) = subscribe(&mut world, Start::Earliest);
    assert_eq!(payloads(&got), ["early"], "the cache has it");
    world.advance(Duration::from_secs(1));
    world.crash();
    world.rig.attach(SUB, "subscriber", KEPT);
    let (_, got) = subscribe(&mut world, Start::Own);
    assert!(has_gap(&got, "overwritten"), "it has not acknowledged what was never logged: {got:?}");
}

#[test]
fn a_stream_that_has_ended_is_a_gap_also_when_the_clock_was_set_back_since() {
    let mut world = Logged::new();
    world.full(Disk::Poisoned);
    world.rig.attach(SUB, "subscriber", CLEAN);
    let mut semi_durable = by_token(Start::Own);
    semi_durable.spec.durability = Durability::SemiDurable;
    world.rig.input(Input::Subscribe { link: Link(SUB), tag: 1, filters: &[semi_durable] });
    let told = world.rig.take(SUB);
    let [Told::Subscribed(results)] = &told[..] else { panic!("{told:?}") };
    let place = results[0].clone().expect("granted").begins.expect("asked for");
    let ended = world.rig.core.host();
    world.rig.now = Time::from_nanos(world.rig.now.as_nanos() - 1_000_000);
    world.crash();
    assert_ne!(world.rig.core.host(), ended, "its streams have died with it");
    world.rig.attach(SUB, "subscriber", CLEAN);
    semi_durable.start = Start::Token(&place, &[]);
    world.rig.input(Input::Subscribe { link: Link(SUB), tag: 1, filters: &[semi_durable] });
    world.settle();
    let got = world.rig.settled_events(SUB);
    let of_ended = place.pubends().filter(|(pubend, _)| pubend.host() == ended);
    let is_told = |pubend: &str| got.iter().any(|got| got.payload.contains(&format!("\"pubend\":\"{pubend}\"")));
    let untold: Vec<String> = of_ended.map(|(pubend, _)| pubend.to_string()).filter(|text| !is_told(text)).collect();
    assert!(untold.is_empty(), "{untold:?} of {got:?}");
}

#[test]
fn what_came_before_another_selector_is_found_in_whatever_part_of_the_cache_it_is() {
    let mut world = Logged::new();
    let [low, high] = by_priority();
    let (filter, selector) = ("t/#".into(), Some(low.clone()));
    let partition = PartitionPlan { filter, selector, capacity: Capacity::Events(100), policy: Policy::Lrp };
    world.rig.core.set_cache(world.rig.now, Plan { partitions: vec![partition], ..Plan::default() });
    world.rig.attach(PUB, "publisher", CLEAN);
    let selects = |world: &mut Logged, selector: &Selector| {
        world.rig.attach(SUB, "subscriber", KEPT);
        let filter = Filter { selector: Some(selector), ..by_token(Start::Own) };
        world.rig.input(Input::Subscribe { link: Link(SUB), tag: 1, filters: &[filter] });
        world.settle();
        world.rig.settled_events(SUB)
    };
    selects(&mut world, &low);
    world.rig.publish(PUB, "t/a", "one", Qos::AtLeastOnce);
    world.settle();
    assert_eq!(payloads(&world.rig.settled_events(SUB)), ["one"]);
    for _ in 0..2 {
        world.rig.detach(SUB, false);
        assert_eq!(payloads(&selects(&mut world, &high)), ["one"], "it has not acknowledged it");
    }
}

#[test]
fn a_log_that_has_failed_takes_no_position() {
    let (mut world, position) = one_event(Limits::default());
    world.full(Disk::Poisoned);
    acknowledge(&mut world, &position);
    let refused = Told::Accepted { tag: 9, result: Accepted::Refused(Refusal::LogFailed) };
    assert_eq!(world.rig.take(SUB), [refused]);
}

#[test]
fn who_stands_where_it_has_acknowledged_has_no_gap_although_others_went_on_and_the_broker_crashed() {
    let mut world = Logged::new();
    world.rig.attach(PUB, "publisher", CLEAN);
    world.rig.attach(OTHER, "other", KEPT);
    world.rig.input(Input::Subscribe { link: Link(OTHER), tag: 1, filters: &[plain("u/#", Qos::AtLeastOnce)] });
    world.settle();
    world.rig.attach(SUB, "subscriber", KEPT);
    let (mut position, _) = subscribe(&mut world, Start::Own);
    world.rig.publish(PUB, "t/a", "one", Qos::AtLeastOnce);
    world.settle();
    take_in(&mut world, &mut position);
    acknowledge(&mut world, &position);
    world.rig.detach(SUB, false);
    for number in 0..20 {
        world.advance(Duration::from_millis(50));
        world.rig.publish(PUB, "u/a", &number.to_string(), Qos::AtLeastOnce);
        world.settle();
        world.rig.settled_events(OTHER);
    }
    world.advance(Duration::from_secs(1));
    assert_eq!(world.disk.events(), 0, "nobody needs anything");
    world.crash();
    world.rig.attach(SUB, "subscriber", KEPT);
    let (_, got) = subscribe(&mut world, Start::Token(&position, &[]));
    // Nothing is left of streams that are not reliable, and that is told.
    let gaps: Vec<&Got> = got.iter().filter(|got| got.payload.contains("released")).collect();
    assert!(gaps.is_empty(), "{gaps:?}");
    world.rig.attach(PUB, "publisher", CLEAN);
    world.rig.publish(PUB, "t/a", "two", Qos::AtLeastOnce);
    world.settle();
    let got = world.rig.settled_events(SUB);
    assert_eq!(got.iter().filter(|got| got.topic != NOTICE_TOPIC).count(), 1, "{got:?}");
}

#[test]
fn what_was_acknowledged_and_given_up_is_a_gap_however_often_it_is_asked_for() {
    let mut world = Logged::new();
    world.rig.attach(PUB, "publisher", CLEAN);
    world.rig.attach(SUB, "subscriber", KEPT);
    let (begin, _) = subscribe(&mut world, Start::Own);
    world.rig.publish(PUB, "t/a", "one", Qos::AtLeastOnce);
    world.settle();
    let mut position = begin.clone();
    take_in(&mut world, &mut position);
    acknowledge(&mut world, &position);
    world.advance(Duration::from_secs(1));
    assert_eq!(world.disk.events(), 0);
    for is_restarted in [true, false, true] {
        if is_restarted {
            world.crash();
        }
        world.rig.attach(SUB, "subscriber", KEPT);
        let (_, got) = subscribe(&mut world, Start::Token(&begin, &[]));
        assert_eq!((payloads(&got), has_gap(&got, "released")), (vec![], true), "{got:?}");
    }
}
