//! Subscriptions that are told their gaps.

use crate::common::{CLEAN, Got, KEPT, Rig, plain};
use core::time::Duration;
use whimbrel_core::cache::{Capacity, DefaultPlan, PartitionPlan, Plan, Policy};
use whimbrel_core::{
    CacheInterest, Durability, Filter, Granted, Input, Limits, NOTICE_TOPIC, Refusal, Segment, Start, SubscriptionSpec,
    Tell,
};
use whimbrel_event::{CheckpointToken, EventId, Qos, Qos::*, Tick};

fn semi<'a>(filter: &'a str, qos: Qos, start: Start<'a>) -> Filter<'a> {
    let (plain, durability) = (plain(filter, qos), Durability::SemiDurable);
    let spec = SubscriptionSpec { durability, notices: true, named: true, ..plain.spec };
    Filter { spec, start, wants_token: true, ..plain }
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
    rig.attach(2, "bus", crate::common::Client { window: 1, ..CLEAN });
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
    let plain = Filter { start: Start::Earliest, ..plain("t", AtMostOnce) };
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
    assert_eq!(notices.len(), 16, "one for each of its streams");
    let told = |reason: &str| {
        let reason = format!(r#""reason":"{reason}""#);
        notices.iter().filter(|notice| notice.payload.contains(&reason) && !notice.named).count()
    };
    assert_eq!((told("lost"), told("best-effort")), (8, 8), "of best effort nothing was promised");
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
    assert_eq!(assumed, 15, "one for each stream that is not named");
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
    let asked = semi("t", AtLeastOnce, Start::Earliest);
    let asked = Filter { spec: SubscriptionSpec { no_local: true, ..asked.spec }, ..asked };
    rig.subscribe_granted(2, asked).expect("granted");
    rig.publish(2, "t", "mine too", AtLeastOnce);
    assert_eq!(payloads(&rig.settled_events(2)), names(0..1));
}

fn small_cache(rig: &mut Rig, events: u64, policy: Policy) {
    let default = DefaultPlan { capacity: Capacity::Events(events), policy };
    rig.core.set_cache(rig.now, Plan { default, ..Plan::default() });
}

/// What a subscriber knows of numbered events of one stream: those it got, and those within gaps it
/// was told, by tick.
fn covered(got: &[Got], ids: &[EventId]) -> Vec<bool> {
    let gaps: Vec<(String, u64, u64)> =
        got.iter().filter(|got| got.payload.contains(r#""kind":"gap""#)).map(gap).collect();
    let within = |id: &EventId| {
        gaps.iter().any(|(pubend, from, to)| *pubend == id.pubend.to_string() && *from < id.tick.0 && id.tick.0 <= *to)
    };
    ids.iter().map(|id| within(id) || got.iter().any(|got| got.named && got.id == *id)).collect()
}

fn gap(got: &Got) -> (String, u64, u64) {
    let field = |name: &str| {
        let rest = got.payload.split(&format!("\"{name}\":\"")).nth(1).expect("a field");
        rest.split('"').next().expect("a value").to_owned()
    };
    (field("pubend"), field("from").parse().expect("a tick"), field("to").parse().expect("a tick"))
}

#[test]
fn what_the_cache_has_given_up_is_a_gap_before_what_it_has() {
    for policy in [Policy::Lrp, Policy::Random, Policy::PRIORITY, Policy::Value] {
        let mut rig = rig();
        small_cache(&mut rig, 10, policy);
        rig.attach(3, "witness", CLEAN);
        rig.subscribe_granted(3, semi("t", AtMostOnce, Start::Own)).expect("granted");
        rig.attach(2, "bus", CLEAN);
        let start = token(rig.subscribe_granted(2, semi("t", AtLeastOnce, Start::Own)));
        rig.detach(2, false);
        publish(&mut rig, 0..40);
        let ids: Vec<EventId> = rig.events(3).iter().map(|got| got.id).collect();
        rig.attach(2, "bus", CLEAN);
        rig.subscribe_granted(2, semi("t", AtLeastOnce, Start::Token(&start, &[]))).expect("granted");
        let got = rig.settled_events(2);
        assert_eq!(payloads(&got).len(), 10, "{policy:?}");
        assert!(covered(&got, &ids).iter().all(|covered| *covered), "{policy:?}");
        let mut last = 0;
        for got in &got {
            let upto = if got.named { got.id.tick.0 } else { gap(got).2 };
            let from = if got.named { got.id.tick.0 - 1 } else { gap(got).1 };
            assert!(from >= last && upto > last, "{policy:?}: in the order of ticks");
            last = upto;
        }
        assert_eq!(rig.core.gappy_clients()[0].0, "bus");
    }
}

#[test]
fn dividing_the_cache_anew_forgets_nothing_that_it_lacks() {
    let mut rig = rig();
    small_cache(&mut rig, 10, Policy::Lrp);
    rig.attach(3, "witness", CLEAN);
    rig.subscribe_granted(3, semi("#", AtMostOnce, Start::Own)).expect("granted");
    rig.attach(2, "bus", CLEAN);
    let start = token(rig.subscribe_granted(2, semi("t", AtLeastOnce, Start::Own)));
    rig.detach(2, false);
    publish(&mut rig, 0..20);
    let partition =
        PartitionPlan { filter: "t".into(), selector: None, capacity: Capacity::Events(100), policy: Policy::Random };
    rig.core.set_cache(rig.now, Plan { partitions: vec![partition], ..Plan::default() });
    publish(&mut rig, 20..30);
    assert_eq!(rig.core.cache_gauges()[0].events, 20, "what was there, and what came, is in the new partition");
    let ids: Vec<EventId> = rig.events(3).iter().map(|got| got.id).collect();
    rig.attach(2, "bus", CLEAN);
    rig.subscribe_granted(2, semi("t", AtLeastOnce, Start::Token(&start, &[]))).expect("granted");
    let got = rig.settled_events(2);
    assert_eq!(payloads(&got), names(10..30));
    assert!(covered(&got, &ids).iter().all(|covered| *covered));
}

/// Two brokers that are told of a third one's streams.
struct Two {
    publisher: Rig,
    brokers: [Rig; 2],
}

impl Two {
    fn new() -> Two {
        let mut publisher = Rig::with_seed(Limits::default(), 1);
        publisher.attach(1, "publisher", CLEAN);
        let mut brokers = [2, 3].map(|seed| Rig::with_seed(Limits::default(), seed));
        for broker in &mut brokers {
            let host = publisher.core.host();
            broker.input(Input::Host {
                host,
                reliable: 4,
                further: 4,
                birth: Tick(crate::common::START.as_nanos() - 1),
            });
            broker.core.set_buffer(vec![CacheInterest { filter: "#".into(), selector: None }]);
        }
        Two { publisher, brokers }
    }

    /// Publishes, and returns the knowledge that the publisher's broker tells.
    fn publish(&mut self, numbers: std::ops::Range<u32>) -> Vec<(EventId, Tick, String)> {
        publish(&mut self.publisher, numbers);
        core::mem::take(&mut self.publisher.edges.knowledge)
    }

    fn tell(&mut self, broker: usize, (id, after, payload): &(EventId, Tick, String)) {
        let event = crate::common::event("t", payload, AtLeastOnce);
        let segment = Segment { pubend: id.pubend, after: *after, upto: id.tick, what: Tell::Data(&event) };
        self.brokers[broker].input(Input::Knowledge(segment));
    }
}

#[test]
fn a_subscriber_moves_between_brokers_that_have_heard_different_parts() {
    let mut two = Two::new();
    let events = two.publish(0..10);
    for link in 0..2 {
        two.brokers[link].attach(2, "bus", CLEAN);
    }
    let start = token(two.brokers[0].subscribe_granted(2, semi("t", AtLeastOnce, Start::Own)));
    // Out of order, and repeated.
    for at in [1, 0, 0, 3, 2, 5, 4, 6, 1] {
        two.tell(0, &events[at]);
    }
    let got = two.brokers[0].settled_events(2);
    assert_eq!(payloads(&got), names(0..7));
    // The other broker is behind.
    for event in &events[..4] {
        two.tell(1, event);
    }
    let ids: Vec<EventId> = got.iter().map(|got| got.id).collect();
    let moved = two.brokers[1].subscribe_granted(2, semi("t", AtLeastOnce, Start::Token(&start, &ids)));
    let begins = token(moved);
    assert_eq!(begins.position(ids[6].pubend), Some(ids[6].tick), "it is ahead of what the broker has seen");
    for event in &events[4..] {
        two.tell(1, event);
    }
    let got = two.brokers[1].settled_events(2);
    assert_eq!(payloads(&got), names(7..10), "nothing older is repeated");
}

#[test]
fn what_nobody_had_asked_for_is_a_gap_up_to_where_the_interest_came_in_force() {
    let mut two = Two::new();
    two.brokers[0].core.set_buffer(vec![CacheInterest { filter: "other/#".into(), selector: None }]);
    let events = two.publish(0..4);
    two.tell(0, &events[0]);
    two.tell(0, &events[1]);
    two.brokers[0].attach(2, "bus", CLEAN);
    let start = Start::Since(crate::common::START);
    two.brokers[0].subscribe_granted(2, semi("t", AtLeastOnce, start)).expect("granted");
    two.tell(0, &events[2]);
    let got = two.brokers[0].settled_events(2);
    assert_eq!(payloads(&got), names(0..3), "what happens to be there is delivered");
    let gaps: Vec<&Got> = got.iter().filter(|got| got.payload.contains("not-buffered")).collect();
    assert!(!gaps.is_empty());
    assert!(gaps.iter().all(|told| gap(told).2 <= events[1].0.tick.0));
}

#[test]
fn what_is_lost_is_told_in_its_place() {
    let mut two = Two::new();
    let events = two.publish(0..4);
    two.brokers[0].attach(2, "bus", CLEAN);
    two.brokers[0].subscribe_granted(2, semi("t", AtLeastOnce, Start::Own)).expect("granted");
    two.tell(0, &events[0]);
    two.tell(0, &events[3]);
    assert_eq!(payloads(&two.brokers[0].settled_events(2)), names(0..1), "a hole holds back what is behind it");
    let (after, upto) = (events[1].1, events[2].0.tick);
    two.brokers[0].input(Input::Knowledge(Segment { pubend: events[0].0.pubend, after, upto, what: Tell::Lost }));
    let got = two.brokers[0].settled_events(2);
    assert_eq!(got.len(), 2);
    assert_eq!((gap(&got[0]).1, gap(&got[0]).2), (after.0, upto.0));
    assert_eq!(payloads(&got), names(3..4));
}

#[test]
fn what_waited_when_its_client_went_is_not_lost_to_what_waits_for_others() {
    let mut rig = Rig::with(Limits { session_queue_bytes: 4_000, ..Limits::default() });
    rig.attach(1, "publisher", CLEAN);
    rig.attach(2, "bus", crate::common::Client { window: 2, ..KEPT });
    rig.subscribe(2, "other", AtLeastOnce).expect("granted");
    rig.subscribe_granted(2, semi("t", AtLeastOnce, Start::Own)).expect("granted");
    publish(&mut rig, 0..20);
    let first = rig.events(2);
    assert_eq!(payloads(&first), names(0..2), "the window takes two");
    rig.detach(2, false);
    assert_eq!(rig.core.stats().queued_events, 0, "the cache has what waits");
    for _ in 0..100 {
        rig.publish(1, "other", "much", AtLeastOnce);
    }
    publish(&mut rig, 20..25);
    rig.attach(2, "bus", crate::common::Client { window: 2, ..KEPT });
    let got = rig.settled_events(2);
    let of_t: Vec<&str> = got.iter().filter(|got| got.topic == "t").map(|got| &*got.payload).collect();
    assert_eq!(of_t, names(0..25), "what was in flight comes again, and then everything else once");
    assert!(got.iter().all(|got| got.topic != NOTICE_TOPIC));
}

#[test]
fn who_keeps_its_position_gets_nothing_twice_and_nothing_before_it_has_said_where_it_is() {
    for qos in [AtLeastOnce, ExactlyOnce] {
        let mut rig = rig();
        let by_token = |start| {
            let asked = semi("t", qos, start);
            Filter { spec: SubscriptionSpec { by_token: true, ..asked.spec }, ..asked }
        };
        rig.attach(2, "bus", crate::common::Client { window: 3, ..KEPT });
        let mut position = token(rig.subscribe_granted(2, by_token(Start::Own)));
        publish(&mut rig, 0..10);
        let got = rig.events(2);
        assert_eq!(payloads(&got), names(0..3));
        // The client has had three, and is sure of two.
        got[..2].iter().for_each(|got| position.advance(got.id).expect("it fits"));
        rig.detach(2, false);
        rig.attach(2, "bus", crate::common::Client { window: 3, ..KEPT });
        assert!(payloads(&rig.settled_events(2)).is_empty(), "{qos:?}");
        rig.subscribe_granted(2, by_token(Start::Token(&position, &[]))).expect("granted");
        assert_eq!(payloads(&rig.settled_events(2)), names(2..10), "{qos:?}");
        rig.detach(2, false);
        publish(&mut rig, 10..12);
        rig.attach(2, "bus", crate::common::Client { window: 3, ..KEPT });
        assert_eq!(rig.settled_events(2), []);
        rig.subscribe_granted(2, by_token(Start::Own)).expect("granted");
        assert_eq!(payloads(&rig.settled_events(2)), names(2..12), "without a word, from what was acknowledged last");
    }
}

#[test]
fn acknowledging_moves_forward_only() {
    let mut rig = rig();
    let asked = semi("t", AtLeastOnce, Start::Own);
    let asked = Filter { spec: SubscriptionSpec { identifier: 5, by_token: true, ..asked.spec }, ..asked };
    rig.attach(2, "bus", KEPT);
    let start = token(rig.subscribe_granted(2, asked));
    publish(&mut rig, 0..4);
    let got = rig.settled_events(2);
    let mut position = start.clone();
    got[..3].iter().for_each(|got| position.advance(got.id).expect("it fits"));
    for (identifier, token, expected) in [(5, &position, true), (0, &start, true), (6, &position, false)] {
        let link = whimbrel_core::Link(2);
        rig.input(Input::Acknowledge { link, tag: 9, qos: AtLeastOnce, identifier, token });
        let accepted = rig.take(2).into_iter().any(|told| {
            matches!(told, crate::common::Told::Accepted { tag: 9, result: whimbrel_core::Accepted::Routed { .. } })
        });
        assert_eq!(accepted, expected, "{identifier}");
    }
    rig.detach(2, false);
    rig.attach(2, "bus", KEPT);
    rig.subscribe_granted(2, asked).expect("granted");
    assert_eq!(payloads(&rig.settled_events(2)), names(3..4));
}

#[test]
fn one_id_of_a_busy_stream_is_enough_however_long_the_others_have_been_quiet() {
    let mut rig = rig();
    rig.attach(2, "bus", CLEAN);
    rig.subscribe_granted(2, semi("t", AtLeastOnce, Start::Own)).expect("granted");
    rig.advance(Duration::from_secs(3_600));
    publish(&mut rig, 0..2);
    let ids: Vec<EventId> = rig.settled_events(2).iter().filter(|got| got.named).map(|got| got.id).collect();
    rig.subscribe_granted(2, semi("t", AtLeastOnce, Start::After(&ids[..1]))).expect("granted");
    assert_eq!(payloads(&rig.settled_events(2)), names(1..2));
    let since = token(rig.subscribe_granted(2, semi("t", AtLeastOnce, Start::Since(rig.now))));
    rig.subscribe_granted(2, semi("t", AtLeastOnce, Start::Token(&since, &[]))).expect("its own token");
}

#[test]
fn a_time_before_the_streams_began_is_a_gap() {
    let mut rig = rig();
    publish(&mut rig, 0..1);
    rig.attach(2, "bus", CLEAN);
    let start = Start::Since(whimbrel_event::Time::from_nanos(5));
    rig.subscribe_granted(2, semi("t", AtLeastOnce, start)).expect("granted");
    let got = rig.settled_events(2);
    assert_eq!(payloads(&got), names(0..1));
    assert!(got[0].payload.contains(r#""reason":"lost""#));
}

#[test]
fn the_token_of_a_subscription_that_has_not_been_told_of_a_gap_is_before_it() {
    let mut rig = rig();
    small_cache(&mut rig, 3, Policy::Lrp);
    rig.attach(2, "bus", crate::common::Client { window: 1, ..CLEAN });
    let start = token(rig.subscribe_granted(2, semi("t", AtLeastOnce, Start::Own)));
    rig.detach(2, false);
    publish(&mut rig, 0..10);
    rig.attach(2, "bus", crate::common::Client { window: 1, ..CLEAN });
    rig.subscribe(2, "other", AtLeastOnce).expect("granted");
    rig.publish(1, "other", "fills the window", AtLeastOnce);
    rig.subscribe_granted(2, semi("t", AtLeastOnce, Start::Token(&start, &[]))).expect("granted");
    // The same filter again asks for its own position.
    let own = token(rig.subscribe_granted(2, semi("t", AtLeastOnce, Start::Own)));
    assert!(own.pubends().all(|(pubend, tick)| Some(tick) <= start.position(pubend)));
}

#[test]
fn a_retained_message_that_comes_from_the_cache_is_not_sent_before() {
    let mut rig = rig();
    rig.attach(2, "bus", CLEAN);
    let start = token(rig.subscribe_granted(2, semi("t", AtLeastOnce, Start::Own)));
    rig.publish_as(1, "t", "kept", AtLeastOnce, true);
    rig.detach(2, false);
    rig.attach(2, "bus", CLEAN);
    rig.subscribe_granted(2, semi("t", AtLeastOnce, Start::Token(&start, &[]))).expect("granted");
    let got = rig.settled_events(2);
    assert_eq!(payloads(&got), ["kept"]);
    assert!(got[0].named && !got[0].retain);
}

#[test]
fn expired_events_are_not_recovered() {
    let mut rig = rig();
    rig.attach(2, "bus", KEPT);
    rig.subscribe_granted(2, semi("t", AtLeastOnce, Start::Own)).expect("granted");
    rig.detach(2, false);
    let event = whimbrel_event::EventRef {
        expires: Some(rig.now + Duration::from_secs(1)),
        ..crate::common::event("t", "short", AtLeastOnce)
    };
    rig.input(Input::Publish(whimbrel_core::Publish {
        link: whimbrel_core::Link(1),
        tag: 1,
        retain: false,
        number: None,
        event: &event,
    }));
    rig.advance(Duration::from_secs(2));
    publish(&mut rig, 0..1);
    rig.attach(2, "bus", KEPT);
    assert_eq!(payloads(&rig.settled_events(2)), names(0..1));
}

#[test]
fn a_nondurable_subscription_with_notices_is_told_what_it_missed_while_it_was_there() {
    let mut rig = Rig::with(Limits { tracked_queue_bytes: 0, ..Limits::default() });
    rig.attach(1, "publisher", CLEAN);
    let asked = semi("t", AtLeastOnce, Start::Own);
    let asked = Filter { spec: SubscriptionSpec { durability: Durability::Nondurable, ..asked.spec }, ..asked };
    rig.attach(2, "bus", crate::common::Client { window: 1, ..KEPT });
    rig.subscribe_granted(2, asked).expect("granted");
    publish(&mut rig, 0..5);
    assert_eq!(payloads(&rig.events(2)), names(0..1));
    rig.detach(2, false);
    publish(&mut rig, 5..8);
    rig.attach(2, "bus", crate::common::Client { window: 1, ..KEPT });
    publish(&mut rig, 8..10);
    let got = rig.settled_events(2);
    assert_eq!(payloads(&got), ["0", "8", "9"], "what was in flight comes again");
    assert_eq!(got.iter().filter(|got| got.payload.contains("slow")).count(), 1);
}
