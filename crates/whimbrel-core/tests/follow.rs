//! Subscriptions that are told what they miss.

mod common;

use common::{CLEAN, Got, KEPT, Rig, plain};
use core::time::Duration;
use whimbrel_core::{Durability, Filter, Following, Granted, Limits, NOTICE_TOPIC, Refusal, Start};
use whimbrel_event::{CheckpointToken, EventId, Qos, Qos::*, Tick};

fn semi<'a>(filter: &'a str, qos: Qos, start: Start<'a>) -> Filter<'a> {
    let following =
        Following { durability: Durability::SemiDurable, start, by_token: false, notices: true, wants_token: true };
    Filter { following, ..plain(filter, qos) }
}

fn token(granted: Result<Granted, Refusal>) -> CheckpointToken {
    granted.expect("granted").begins.expect("asked for")
}

fn payloads(got: &[Got]) -> Vec<&str> {
    got.iter().filter(|got| got.topic != NOTICE_TOPIC).map(|got| &*got.payload).collect()
}

/// A rig with a publisher on link 1.
fn rig() -> Rig {
    let mut rig = Rig::new();
    rig.attach(1, "publisher", CLEAN);
    rig
}

fn publish(rig: &mut Rig, numbers: std::ops::Range<u32>) {
    for number in numbers {
        rig.advance(Duration::from_millis(1));
        rig.publish(1, "t", &number.to_string(), AtLeastOnce);
    }
}

fn names(numbers: std::ops::Range<u32>) -> Vec<String> {
    numbers.map(|number| number.to_string()).collect()
}

#[test]
fn who_comes_back_with_its_token_and_ids_has_missed_nothing_and_gets_nothing_twice() {
    for qos in [AtMostOnce, AtLeastOnce, ExactlyOnce] {
        let mut rig = rig();
        rig.attach(2, "bus", CLEAN);
        let start = token(rig.subscribe_granted(2, semi("t", qos, Start::Own)));
        publish(&mut rig, 0..5);
        let got = rig.events(2);
        assert_eq!(payloads(&got), names(0..5));
        assert!(got.iter().all(|got| got.named));
        rig.detach(2, false);
        publish(&mut rig, 5..12);
        rig.attach(2, "bus", CLEAN);
        let later: Vec<EventId> = got[..3].iter().map(|got| got.id).collect();
        rig.subscribe_granted(2, semi("t", qos, Start::Token(&start, &later))).expect("granted");
        publish(&mut rig, 12..14);
        assert_eq!(payloads(&rig.settled_events(2)), names(3..14), "{qos:?}");
    }
}

#[test]
fn a_session_that_lives_on_goes_on_where_it_was() {
    let mut rig = rig();
    rig.attach(2, "bus", KEPT);
    rig.subscribe_granted(2, semi("t", AtMostOnce, Start::Own)).expect("granted");
    publish(&mut rig, 0..3);
    assert_eq!(payloads(&rig.events(2)), names(0..3));
    rig.detach(2, false);
    publish(&mut rig, 3..9);
    rig.attach(2, "bus", KEPT);
    publish(&mut rig, 9..10);
    assert_eq!(payloads(&rig.events(2)), names(3..10));
}

#[test]
fn a_client_that_takes_less_than_comes_falls_behind_and_catches_up() {
    let mut rig = Rig::with(Limits { tracked_queue_bytes: 1000, ..Limits::default() });
    rig.attach(1, "publisher", CLEAN);
    rig.attach(2, "bus", common::Client { window: 1, ..CLEAN });
    rig.subscribe_granted(2, semi("t", AtLeastOnce, Start::Own)).expect("granted");
    publish(&mut rig, 0..100);
    assert_eq!(rig.core.stats().fell_behind, 1);
    assert_eq!(payloads(&rig.settled_events(2)), names(0..100));
    assert_eq!(rig.core.stats().subscriptions_lagging, 0);
    publish(&mut rig, 100..101);
    assert_eq!(payloads(&rig.settled_events(2)), names(100..101));
}

#[test]
fn positions_that_cannot_be_ours_are_refused() {
    let mut rig = rig();
    rig.attach(2, "bus", CLEAN);
    let start = token(rig.subscribe_granted(2, semi("t", AtLeastOnce, Start::Own)));
    publish(&mut rig, 0..1);
    let id = rig.events(2)[0].id;
    let ahead = EventId { tick: Tick(id.tick.0 + 1), ..id };
    let asked = [
        (Start::After(&[ahead][..]), Refusal::FutureStart),
        (Start::Token(&start, &[ahead]), Refusal::FutureStart),
        (Start::Since(rig.now + Duration::from_nanos(1)), Refusal::FutureStart),
    ];
    for (start, refusal) in asked {
        assert_eq!(rig.subscribe_granted(2, semi("t", AtLeastOnce, start)), Err(refusal));
    }
    let foreign = CheckpointToken::new(whimbrel_event::Deployment::named("elsewhere"), Tick(1));
    let start = Start::Token(&foreign, &[]);
    assert_eq!(rig.subscribe_granted(2, semi("t", AtLeastOnce, start)), Err(Refusal::OtherDeployment));
    let plain =
        Filter { following: Following { start: Start::Earliest, ..Following::default() }, ..plain("t", AtMostOnce) };
    assert_eq!(rig.subscribe_granted(2, plain), Err(Refusal::StartNotKept));
    let shared = Filter { filter: "$share/g/t", ..semi("t", AtMostOnce, Start::Own) };
    assert_eq!(rig.subscribe_granted(2, shared), Err(Refusal::SharedTracked));
}

#[test]
fn the_streams_of_a_broker_that_is_gone_are_lost() {
    let mut old = rig();
    old.attach(2, "bus", CLEAN);
    let start = token(old.subscribe_granted(2, semi("t", AtLeastOnce, Start::Own)));
    let mut rig = Rig::with_seed(Limits::default(), 8);
    rig.attach(1, "publisher", CLEAN);
    publish(&mut rig, 0..2);
    rig.attach(2, "bus", CLEAN);
    rig.subscribe_granted(2, semi("t", AtLeastOnce, Start::Token(&start, &[]))).expect("granted");
    let got = rig.settled_events(2);
    assert_eq!(payloads(&got), names(0..2), "what has begun since is had from its birth");
    let notices: Vec<_> = got.iter().filter(|got| got.topic == NOTICE_TOPIC).collect();
    assert_eq!(notices.len(), 8, "one for each of its streams");
    assert!(notices.iter().all(|notice| notice.payload.contains(r#""reason":"lost""#) && !notice.named));
}

#[test]
fn ids_alone_assume_where_the_other_streams_are() {
    let mut rig = rig();
    rig.advance(Duration::from_secs(300));
    rig.attach(2, "bus", CLEAN);
    rig.subscribe_granted(2, semi("t", AtLeastOnce, Start::Own)).expect("granted");
    publish(&mut rig, 0..2);
    let id = rig.events(2)[0].id;
    rig.attach(3, "tram", CLEAN);
    rig.subscribe_granted(3, semi("t", AtLeastOnce, Start::After(&[id]))).expect("granted");
    let got = rig.settled_events(3);
    assert_eq!(payloads(&got), names(1..2));
    let assumed = got.iter().filter(|got| got.payload.contains(r#""reason":"assumed""#)).count();
    assert_eq!(assumed, 7, "one for each stream that is not named");
}

#[test]
fn silence_is_told_with_a_token_that_loses_nothing() {
    let mut rig = rig();
    rig.attach(2, "bus", CLEAN);
    rig.subscribe_granted(2, semi("quiet", AtLeastOnce, Start::Own)).expect("granted");
    publish(&mut rig, 0..3);
    rig.advance(Duration::from_secs(31));
    let got = rig.settled_events(2);
    assert_eq!(got.len(), 1);
    let token = got[0].payload.split(r#""token":""#).nth(1).expect("a token").trim_end_matches("\"}");
    let token: CheckpointToken = token.parse().expect("a token");
    rig.publish(1, "quiet", "now", AtLeastOnce);
    rig.detach(2, false);
    rig.attach(2, "bus", CLEAN);
    rig.subscribe_granted(2, semi("#", AtLeastOnce, Start::Token(&token, &[]))).expect("granted");
    assert_eq!(payloads(&rig.settled_events(2)), ["now"], "the token is after what was passed in silence");
}

#[test]
fn a_time_and_the_earliest_are_places_to_begin() {
    let mut rig = rig();
    publish(&mut rig, 0..3);
    let then = rig.now;
    publish(&mut rig, 3..6);
    rig.attach(2, "bus", CLEAN);
    rig.subscribe_granted(2, semi("t", AtLeastOnce, Start::Since(then))).expect("granted");
    assert_eq!(payloads(&rig.settled_events(2)), names(3..6));
    rig.subscribe_granted(2, semi("t", AtLeastOnce, Start::Earliest)).expect("granted");
    assert_eq!(payloads(&rig.settled_events(2)), names(0..6), "a subscription may go back");
}

#[test]
fn own_events_are_left_out_also_of_what_was_missed() {
    let mut rig = rig();
    rig.attach(2, "bus", CLEAN);
    rig.publish(2, "t", "mine", AtLeastOnce);
    publish(&mut rig, 0..1);
    let asked = Filter { no_local: true, ..semi("t", AtLeastOnce, Start::Earliest) };
    rig.subscribe_granted(2, asked).expect("granted");
    rig.publish(2, "t", "mine too", AtLeastOnce);
    assert_eq!(payloads(&rig.settled_events(2)), names(0..1));
}
