//! Brokers begin, end and come back as other hosts, and subscribers that move between them know
//! their gaps.

use core::time::Duration;

use whimbrel_core::stream::ENDED_MAX;
use whimbrel_core::{
    Broker, CacheInterest, Channel, Durability, Filter, Granted, Input, Link, NOTICE_TOPIC, PeerInput, Publish, Start,
    SubscriptionSpec,
};
use whimbrel_event::{CheckpointToken, EventId, EventRef, Qos, Tick};
use whimbrel_selector::Selector;
use whimbrel_wire::{Frame, PreviousIdentities, PreviousIdentity};

use super::common::{Got, Told, event, plain};
use super::net::{Net, frame};
use super::{SECOND, is_answered};

/// A semi-durable subscription with notices, from `start` on.
pub(super) fn roaming(start: Start<'_>) -> Filter<'_> {
    let plain = plain("a", Qos::AtLeastOnce);
    let spec = SubscriptionSpec { durability: Durability::SemiDurable, notices: true, ..plain.spec };
    Filter { spec, start, wants_token: true, ..plain }
}

impl Net {
    pub(super) fn got(&mut self, node: usize, link: u32) -> Vec<Got> {
        let told = self.told(node, link).into_iter();
        told.filter_map(|told| if let Told::Event(got) = told { Some(got) } else { None }).collect()
    }

    fn detach(&mut self, node: usize, link: u32) {
        self.input(node, Input::Detach { link: Link(link), publish_will: false, expiry: None });
        self.told(node, link);
    }

    pub(super) fn publish_as(&mut self, node: usize, link: u32, payload: &str, importance: u8) {
        let event = EventRef { importance, ..event("a", payload, Qos::AtLeastOnce) };
        self.input(
            node,
            Input::Publish(Publish { link: Link(link), tag: 7, retain: false, number: None, event: &event }),
        );
    }

    /// The position of a subscription, by the next notice of silence.
    fn token_of_silence(&mut self, node: usize, link: u32) -> CheckpointToken {
        self.advance(SECOND * 31);
        let got = self.got(node, link);
        let silence = got.iter().rev().find(|got| got.payload.contains("silence")).expect("it is told after 30 s");
        let token = part(&silence.payload, "token").expect("with a token");
        token.parse().expect("that can be read")
    }

    /// Subscribes, and returns where the subscription begins.
    pub(super) fn begins(&mut self, node: usize, link: u32, filter: Filter<'_>) -> CheckpointToken {
        self.subscribe(node, link, filter);
        self.advance(SECOND);
        let told = self.told(node, link);
        let granted = |told: &Told| match told {
            Told::Subscribed(results) => results[0].clone().ok(),
            _ => None,
        };
        let Some(Granted { begins: Some(token), .. }) = told.iter().find_map(granted) else {
            panic!("no place to begin: {told:?}")
        };
        token
    }
}

/// The text of a JSON field between its quotes.
pub(super) fn part<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!(r#""{name}":""#))?;
    rest.split('"').next()
}

/// The deliveries of streams that had events, or else of all, by stream: events by their payload,
/// gaps by their reason. Silence is left out.
pub(super) fn story(got: &[Got]) -> Vec<String> {
    let line = |got: &Got| {
        if got.topic != NOTICE_TOPIC {
            return Some((got.id.pubend.to_string(), got.payload.clone()));
        }
        let gap = format!("gap: {}", part(&got.payload, "reason")?);
        Some((part(&got.payload, "pubend")?.to_owned(), gap))
    };
    let mut lines: Vec<(String, String)> = got.iter().filter_map(line).collect();
    let with_events: Vec<String> = names(got).iter().map(|id| id.pubend.to_string()).collect();
    if !with_events.is_empty() {
        lines.retain(|(pubend, _)| with_events.contains(pubend));
    }
    let mut story: Vec<String> = lines.into_iter().map(|(_, line)| line).collect();
    story.dedup();
    story
}

fn names(got: &[Got]) -> Vec<EventId> {
    got.iter().filter(|got| got.topic != NOTICE_TOPIC).map(|got| got.id).collect()
}

#[test]
fn who_follows_a_broker_that_comes_back_without_its_disk_is_told_what_is_lost_and_once() {
    let mut net = Net::line(2);
    net.attach(1, 1, "s");
    net.subscribe(1, 1, roaming(Start::Own));
    net.attach(0, 1, "p");
    net.advance(SECOND);
    net.publish(0, 1, "a", "one", Qos::AtLeastOnce);
    net.advance(SECOND);
    assert_eq!(story(&net.got(1, 1)), ["one"]);
    net.restart(0, 99);
    net.advance(SECOND);
    assert_eq!(story(&net.got(1, 1)), Vec::<String>::new(), "it may come back as it was");
    net.join(0, 1, Duration::from_millis(1));
    net.advance(SECOND * 2);
    let lost = net.got(1, 1);
    assert_eq!(story(&lost), ["gap: lost"]);
    let of_streams = lost.iter().filter(|got| got.payload.contains("lost")).count();
    assert_eq!(of_streams, 8, "one for each reliable stream");
    // Repeated reports have been heard once.
    net.advance(SECOND * 70);
    assert_eq!(story(&net.got(1, 1)), Vec::<String>::new());
    assert_eq!(net.nodes[1].core.topology(net.now).len(), 2);
    net.attach(0, 1, "p");
    net.publish(0, 1, "a", "two", Qos::AtLeastOnce);
    net.advance(SECOND);
    assert_eq!(story(&net.got(1, 1)), ["two"]);
}

#[test]
fn who_comes_back_after_a_host_has_ended_gets_what_is_cached_and_is_told_of_the_rest_once() {
    let mut net = Net::line(3);
    for node in [1, 2] {
        net.nodes[node].core.set_buffer(vec![CacheInterest { filter: "a".into(), selector: None }]);
    }
    net.advance(SECOND);
    net.attach(1, 1, "s");
    let start = net.begins(1, 1, roaming(Start::Own));
    net.attach(0, 1, "p");
    net.detach(1, 1);
    net.publish(0, 1, "a", "one", Qos::AtLeastOnce);
    net.publish(0, 1, "a", "two", Qos::AtLeastOnce);
    net.advance(SECOND);
    net.restart(0, 99);
    net.join(0, 1, Duration::from_millis(1));
    net.advance(SECOND * 3);
    net.attach(1, 1, "s");
    net.subscribe(1, 1, roaming(Start::Token(&start, &[])));
    net.advance(SECOND);
    let got = net.got(1, 1);
    assert_eq!(story(&got), ["one", "two", "gap: lost"]);
    // At another broker the same, from its position on: nothing is told twice.
    let token = net.token_of_silence(1, 1);
    net.attach(2, 1, "t");
    net.subscribe(2, 1, roaming(Start::Token(&token, &[])));
    net.advance(SECOND);
    assert_eq!(story(&net.got(2, 1)), Vec::<String>::new());
    // And a subscriber that knows of events only.
    net.attach(2, 2, "u");
    net.subscribe(2, 2, roaming(Start::Token(&start, &names(&got))));
    net.advance(SECOND);
    assert_eq!(story(&net.got(2, 2)), ["gap: lost"]);
}

#[test]
fn what_comes_for_the_sake_of_others_before_an_interest_is_in_force_has_its_gap_before_it() {
    let mut net = Net::line(2);
    net.attach(1, 9, "other");
    let high = Selector::parse("JMSPriority > 5").expect("it is one");
    net.subscribe(1, 9, Filter { selector: Some(&high), ..plain("a", Qos::AtLeastOnce) });
    net.attach(1, 1, "s");
    let start = net.begins(1, 1, roaming(Start::Own));
    net.detach(1, 1);
    net.attach(0, 1, "p");
    // Its interest has to go away first.
    net.advance(SECOND * 2);
    net.attach(1, 1, "s");
    net.subscribe(1, 1, roaming(Start::Token(&start, &[])));
    // The publisher's broker does not know of it yet.
    net.publish_as(0, 1, "low", 1);
    net.publish_as(0, 1, "high", 9);
    net.publish_as(0, 1, "higher", 10);
    net.advance(SECOND);
    let told = net.told(1, 1);
    assert!(is_answered(&told));
    let got: Vec<Got> =
        told.into_iter().filter_map(|told| if let Told::Event(got) = told { Some(got) } else { None }).collect();
    let places = story(&got);
    let gap = places.iter().position(|line| line == "gap: not-buffered").expect("low has not come");
    let high = places.iter().position(|line| line == "high").expect("it comes for the other");
    assert!(gap < high, "{places:?}");
    assert!(!places.contains(&"low".into()), "{places:?}");
    net.publish_as(0, 1, "lower", 1);
    net.advance(SECOND);
    assert_eq!(story(&net.got(1, 1)), ["lower"]);
}

#[test]
fn a_young_broker_answers_when_a_neighbour_has_told_it_of_all_others() {
    let mut net = Net::line(3);
    net.advance(SECOND * 3);
    net.attach(0, 1, "p");
    net.restart(2, 99);
    net.begin_attach(2, 1, "s");
    net.advance(Duration::from_millis(200));
    assert_eq!(net.told(2, 1), [], "it does not know of anyone yet, and the session may be anywhere");
    net.join(1, 2, Duration::from_millis(1));
    net.await_attached(2, 1);
    net.subscribe(2, 1, plain("a", Qos::AtLeastOnce));
    while !is_answered(&net.told(2, 1)) {
        net.advance(Duration::from_millis(1));
    }
    net.publish(0, 1, "a", "one", Qos::AtLeastOnce);
    net.advance(SECOND);
    assert_eq!(net.payloads(2, 1), ["one"]);
    // Without any other broker it is answered all the same.
    net.restart(0, 98);
    net.attach(0, 1, "s");
    net.subscribe(0, 1, plain("a", Qos::AtLeastOnce));
    net.advance(SECOND);
    assert!(is_answered(&net.told(0, 1)));
    assert_eq!(net.nodes[0].side.pending, [whimbrel_core::ALL_OTHERS.into()]);
}

/// A neighbour has named the brokers that it knows, and its knowledge of them does not arrive for
/// long.
#[test]
fn who_has_only_been_told_that_there_are_others_does_not_take_itself_for_alone() {
    let mut net = Net::new(2);
    net.drops = Box::new(|from, _, bytes| from == 0 && matches!(frame(bytes), Some(Frame::LinkState(_))));
    net.join(0, 1, Duration::from_millis(1));
    net.advance(SECOND * 2);
    net.connect_as(1, 1, "s", super::moving::RETURN);
    net.advance(SECOND * 4);
    assert!(matches!(net.told(1, 1)[..], [Told::Refused(_)]), "its session may be anywhere");
    net.connect_as(1, 1, "s", super::moving::How { clean_start: true, ..super::moving::RETURN });
    net.await_attached(1, 1);
    net.subscribe(1, 1, plain("a", Qos::AtLeastOnce));
    net.advance(SECOND * 2);
    assert!(is_answered(&net.told(1, 1)));
    assert_eq!(net.nodes[1].side.pending, [whimbrel_core::ALL_OTHERS.into()]);
}

/// The events delivered again to a client that was at one of the brokers, resumed at a broker that
/// was never linked with the others, and goes back with the token of that one.
fn again_after_a_lone_one(prepare: impl Fn(&mut Broker)) -> Vec<EventId> {
    let mut net = Net::line(2);
    net.attach(1, 1, "s");
    let start = net.begins(1, 1, roaming(Start::Own));
    net.attach(0, 1, "p");
    net.publish(0, 1, "a", "one", Qos::AtLeastOnce);
    net.advance(SECOND);
    let got = names(&net.got(1, 1));
    // The client comes to a broker that was never linked with the others, and resumes with its
    // token.
    let lone = 2;
    net.nodes.push(Net::node(lone, 55, net.now));
    prepare(&mut net.nodes[lone].core);
    net.attach(lone, 1, "s");
    net.subscribe(lone, 1, roaming(Start::Token(&start, &got)));
    net.advance(SECOND);
    let token = net.token_of_silence(lone, 1);
    net.attach(1, 2, "t");
    net.subscribe(1, 2, roaming(Start::Token(&token, &[])));
    net.advance(SECOND);
    names(&net.got(1, 2))
}

#[test]
fn a_place_in_the_stream_of_a_broker_that_is_not_known_here_is_kept() {
    assert_eq!(again_after_a_lone_one(|_| ()), []);
}

/// The test above detects a forgotten position.
#[cfg(feature = "mutants")]
#[test]
fn a_place_that_is_forgotten_is_seen() {
    let again = again_after_a_lone_one(|core| core.build_in(whimbrel_core::Mutant::StrangersForgotten));
    assert_eq!(again.len(), 1);
}

#[test]
fn many_ends_are_told_once_each_and_who_comes_later_is_not_told_of_them() {
    let mut net = Net::line(2);
    net.attach(1, 1, "s");
    net.subscribe(1, 1, roaming(Start::Own));
    net.attach(1, 2, "away");
    let start = net.begins(1, 2, roaming(Start::Own));
    net.detach(1, 2);
    let lives = ENDED_MAX + 4;
    let mut told = 0;
    for life in 0..lives {
        net.restart(0, 100 + life as u64);
        net.join(0, 1, Duration::from_millis(1));
        net.advance(SECOND * 3);
        told += net.got(1, 1).iter().filter(|got| got.payload.contains(r#""lost""#)).count();
    }
    assert_eq!(told, 8 * lives, "one for each reliable stream of each");
    // All of it is repeated.
    net.advance(SECOND * 70);
    assert_eq!(story(&net.got(1, 1)), Vec::<String>::new());
    // A broker that begins now is none of those that have lost something.
    let young = net.nodes.len();
    net.nodes.push(Net::node(young, 55, net.now));
    net.join(1, young, Duration::from_millis(1));
    net.advance(SECOND);
    net.attach(young, 1, "t");
    net.subscribe(young, 1, roaming(Start::Own));
    net.advance(SECOND * 70);
    assert_eq!(story(&net.got(young, 1)), Vec::<String>::new());
    // The position of a client that was away all the time is before the end of the first broker.
    net.attach(1, 2, "away");
    net.subscribe(1, 2, roaming(Start::Token(&start, &[])));
    net.advance(SECOND);
    assert!(story(&net.got(1, 2)).contains(&"gap: lost".into()));
}

#[test]
fn a_broker_that_is_alive_is_not_ended_by_who_says_so() {
    let mut net = Net::line(3);
    net.attach(1, 1, "s");
    net.subscribe(1, 1, roaming(Start::Own));
    net.attach(0, 1, "p");
    net.advance(SECOND);
    net.told(1, 1);
    let alive =
        net.nodes[0].core.topology(net.now).into_iter().find(|broker| &*broker.name == "b0").expect("it is there");
    let former = PreviousIdentity { host: alive.host, reliable: 4, further: 4, birth: Tick(1), upto: Tick(u64::MAX) };
    let mut frame = Vec::new();
    Frame::PreviousIdentities(PreviousIdentities { to: net.nodes[1].core.host(), hops: 0, hosts: vec![former] })
        .encode(&mut frame);
    let (_, link) = net.ends(1)[0];
    net.input(1, Input::Peer(PeerInput::Bytes { link, channel: Channel::Control, bytes: &frame }));
    net.advance(SECOND);
    net.publish(0, 1, "a", "one", Qos::AtLeastOnce);
    net.advance(SECOND);
    assert_eq!(story(&net.got(1, 1)), ["one"]);
}
