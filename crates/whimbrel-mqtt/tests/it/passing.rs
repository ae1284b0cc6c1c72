//! Passing a PUBLISH through: the same bytes as encoding it, and only where these are right.

use proptest::prelude::*;
use whimbrel_event::Attributes;
use whimbrel_mqtt::Config;
use whimbrel_mqtt::codec::Version::{self, V4, V5};
use whimbrel_mqtt::codec::{BarePublish, Frame, PacketId, Publish, decode_publish, encode_publish, frame};

use crate::access::{World, packet, text};

const TOPIC: &str = "fleet/7/position";

const PUBLISHER: u32 = 0;
const SUBSCRIBER: u32 = 1;

/// The options of a client under test; the default is a plain one of MQTT 5.
#[derive(Clone)]
struct Client {
    version: Version,
    qos: u8,
    /// Properties of its CONNECT and of its SUBSCRIBE.
    connect: Vec<u8>,
    subscribe: Vec<u8>,
    /// Bits of the subscription's options besides the QoS.
    options: u8,
}

impl Client {
    fn new(version: Version, qos: u8) -> Client {
        Client { version, qos, connect: Vec::new(), subscribe: Vec::new(), options: 0 }
    }
}

/// Properties behind their length; MQTT 3.1.1 has none.
fn properties(version: Version, properties: &[u8]) -> Vec<u8> {
    match version {
        V4 => Vec::new(),
        V5 => [&[properties.len() as u8], properties].concat(),
    }
}

fn user(name: &str, value: &str) -> Vec<u8> {
    [vec![0x26], text(name), text(value)].concat()
}

/// A PUBLISH; QoS, DUP and RETAIN are in `first`.
fn publish(version: Version, first: u8, (topic, tag): (&str, u8), with: &[u8], payload: &[u8]) -> Vec<u8> {
    let tag = if first & 0x06 == 0 { vec![] } else { vec![0, tag] };
    packet(first, &[text(topic), tag, properties(version, with), payload.to_vec()].concat())
}

/// A broker with a publisher and a subscriber.
fn world(publisher: Version, subscriber: &Client) -> World {
    let mut world = World::with(Config::default());
    let level = |version| if version == V5 { 5 } else { 4 };
    for (id, version, with) in [(PUBLISHER, publisher, &[][..]), (SUBSCRIBER, subscriber.version, &subscriber.connect)]
    {
        world.open(id);
        let head = [text("MQTT"), vec![level(version), 2, 0, 60]].concat();
        world.bytes(id, &packet(0x10, &[head, properties(version, with), text(&format!("c{id}"))].concat()));
        assert_eq!(world.connack(id), 0);
    }
    let options = vec![subscriber.qos | subscriber.options];
    let with = properties(subscriber.version, &subscriber.subscribe);
    world.bytes(SUBSCRIBER, &packet(0x82, &[vec![0, 1], with, text("fleet/#"), options].concat()));
    assert_eq!(world.codes(SUBSCRIBER, 1), [subscriber.qos]);
    world
}

/// What a subscriber gets of a PUBLISH, and whether that was passed through.
fn delivered(publisher: Version, subscriber: &Client, bytes: &[u8]) -> (Option<(u8, Vec<u8>)>, bool) {
    let mut world = world(publisher, subscriber);
    world.bytes(PUBLISHER, bytes);
    let passed = world.broker.stats().publishes_passed_through;
    (world.next(SUBSCRIBER), passed == 1)
}

#[test]
fn a_packet_passes_to_subscribers_of_its_version_and_qos() {
    for (from, to) in [(V4, V4), (V4, V5), (V5, V4), (V5, V5)] {
        for (published, subscribed) in [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)] {
            let sent = publish(from, 0x30 | published << 1, (TOPIC, 9), &[], b"here");
            let qos = published.min(subscribed);
            let got = publish(to, 0x30 | qos << 1, (TOPIC, 1), &[], b"here");
            let (is, passed) = delivered(from, &Client::new(to, subscribed), &sent);
            assert_eq!(is, Some((got[0], got[2..].to_vec())), "{from:?} {published} to {to:?} {subscribed}");
            assert_eq!(passed, from == to && published == qos, "{from:?} {published} to {to:?} {subscribed}");
        }
    }
}

#[test]
fn a_repeated_packet_passes_without_its_mark() {
    let sent = publish(V5, 0x3a, (TOPIC, 9), &[], b"here");
    let got = publish(V5, 0x32, (TOPIC, 1), &[], b"here");
    assert_eq!(delivered(V5, &Client::new(V5, 1), &sent), (Some((got[0], got[2..].to_vec())), true));
}

#[test]
fn the_retain_mark_passes_where_it_is_asked_for() {
    let sent = publish(V5, 0x31, (TOPIC, 0), &[], b"here");
    let body = sent[2..].to_vec();
    assert_eq!(delivered(V5, &Client::new(V5, 0), &sent), (Some((0x30, body.clone())), false));
    let as_published = Client { options: 0x08, ..Client::new(V5, 0) };
    assert_eq!(delivered(V5, &as_published, &sent), (Some((0x31, body)), true));
}

#[test]
fn what_a_subscriber_has_asked_for_is_not_passed_over() {
    let sent = publish(V5, 0x32, (TOPIC, 9), &[], b"here");
    let plain = Client::new(V5, 1);
    let aliases = Client { connect: vec![0x22, 0, 5], ..plain.clone() };
    let identifier = Client { subscribe: vec![0x0b, 7], ..plain.clone() };
    let kept = [vec![0x11, 0, 0, 1, 0]].concat();
    let named = Client { connect: kept, subscribe: user("w-durability", "semi-durable"), ..plain.clone() };
    for (subscriber, has) in [(aliases, &[0x23, 0, 1][..]), (identifier, &[0x0b, 7]), (named, b"w-id")] {
        let (got, passed) = delivered(V5, &subscriber, &sent);
        let (_, body) = got.expect("it is delivered");
        assert!(body.windows(has.len()).any(|part| part == has), "{body:02x?} lacks {has:02x?}");
        assert!(!passed, "{has:02x?}");
    }
    // A selector is looked at, and then the same bytes are right.
    let selective = Client { subscribe: user("w-selector", "JMSPriority < 5"), ..plain.clone() };
    assert_eq!(delivered(V5, &selective, &sent), (None, false));
    let selective = Client { subscribe: user("w-selector", "JMSPriority > 4"), ..plain };
    let (got, passed) = delivered(V5, &selective, &sent);
    assert!(got.is_some() && passed);
}

#[test]
fn a_packet_that_is_too_large_for_a_client_does_not_pass() {
    let sent = publish(V5, 0x30, (TOPIC, 0), &[], b"here");
    let client = |most: usize| Client { connect: vec![0x27, 0, 0, 0, most as u8], ..Client::new(V5, 0) };
    assert_eq!(delivered(V5, &client(sent.len() - 1), &sent), (None, false));
    assert_eq!(delivered(V5, &client(sent.len()), &sent), (Some((0x30, sent[2..].to_vec())), true));
}

#[test]
fn a_packet_with_properties_is_encoded_anew() {
    let expiry = vec![0x02, 0, 0, 0, 60];
    for with in [expiry, user("colour", "red"), user("w-importance", "7"), vec![0x01, 1]] {
        let sent = publish(V5, 0x30, (TOPIC, 0), &with, b"here");
        let (got, passed) = delivered(V5, &Client::new(V5, 0), &sent);
        assert_eq!((got, passed), (Some((0x30, sent[2..].to_vec())), false));
        let (got, passed) = delivered(V5, &Client::new(V4, 0), &sent);
        assert_eq!((got, passed), (Some((0x30, publish(V4, 0x30, (TOPIC, 0), &[], b"here")[2..].to_vec())), false));
    }
}

#[test]
fn topics_are_checked_whether_or_not_the_last_one_is_remembered() {
    let mut world = world(V4, &Client::new(V4, 0));
    for topic in ["fleet/1", "fleet/1", "fleet/2", "fleet/1", "fleet/10", "fleet/1"] {
        let sent = publish(V4, 0x30, (topic, 0), &[], b"here");
        world.bytes(PUBLISHER, &sent);
        assert_eq!(world.next(SUBSCRIBER), Some((0x30, sent[2..].to_vec())));
    }
    assert_eq!(world.broker.stats().publishes_passed_through, 6);
    // The broker's own topics are refused, and wildcards end the connection, as ever.
    world.bytes(PUBLISHER, &publish(V4, 0x30, ("$SYS/a", 0), &[], b"here"));
    assert_eq!((world.next(SUBSCRIBER), world.broker.stats().publishes_refused.total()), (None, 1));
    world.bytes(PUBLISHER, &publish(V4, 0x30, ("fleet/+", 0), &[], b"here"));
    assert_eq!((world.next(SUBSCRIBER), &world.said.closed[..]), (None, &[PUBLISHER][..]));
}

#[test]
fn a_broker_without_plain_ways_takes_none_and_sends_the_same() {
    let sent = publish(V4, 0x30, (TOPIC, 0), &[], b"here");
    for are_used in [true, false] {
        let mut world = world(V4, &Client::new(V4, 0));
        world.broker.set_plain_ways(are_used);
        world.bytes(PUBLISHER, &sent);
        assert_eq!(world.next(SUBSCRIBER), Some((0x30, sent[2..].to_vec())));
        let stats = world.broker.stats();
        assert_eq!((stats.publishes_passed_through == 1, stats.core.events_plain == 1), (are_used, are_used));
    }
}

/// The bytes of a PUBLISH without properties, well-formed but perhaps for its topic.
fn bare() -> impl Strategy<Value = (Version, Vec<u8>)> {
    let version = prop_oneof![Just(V4), Just(V5)];
    let topic = prop_oneof![4 => "[a-z/]{1,30}", 1 => "\\PC{0,20}"];
    (version, 0..16_u8, topic, 0..4_u16, prop::collection::vec(any::<u8>(), 0..300)).prop_map(
        |(version, flags, topic, tag, payload)| {
            let tag = if flags & 0x06 == 0 { vec![] } else { tag.to_be_bytes().to_vec() };
            let properties = if version == V5 { vec![0] } else { vec![] };
            let body = [text(&topic), tag, properties, payload].concat();
            let mut length = body.len();
            let mut bytes = vec![0x30 | flags];
            while length >= 0x80 {
                bytes.push((length & 0x7f) as u8 | 0x80);
                length >>= 7;
            }
            bytes.push(length as u8);
            (version, [bytes, body].concat())
        },
    )
}

proptest! {
    #[test]
    fn passing_through_equals_encoding((version, bytes) in bare(), tag in 1..=u16::MAX) {
        let cut: Frame<'_> = frame(&bytes, 1 << 20).expect("a length").expect("a packet");
        let decoded = decode_publish(version, cut.first_byte, cut.body);
        let Some(bare) = BarePublish::read(version, &cut) else {
            prop_assert!(decoded.is_err(), "one that can be decoded, and has no properties, is bare");
            return Ok(());
        };
        // Only the topic is not looked at.
        let Ok(decoded) = decoded else { return Ok(()) };
        let same = (bare.topic, bare.packet_id, bare.qos, bare.retain, bare.payload);
        let published = (decoded.topic.as_bytes(), decoded.packet_id, decoded.qos, decoded.retain, decoded.payload);
        prop_assert_eq!(same, published);
        let mut passed = vec![1, 2, 3];
        bare.append(tag, &mut passed);
        let packet_id = decoded.packet_id.and(PacketId::new(tag));
        let mut encoded = vec![1, 2, 3];
        let publish = Publish { dup: false, packet_id, ..decoded };
        encode_publish(version, &publish, Attributes::EMPTY, &mut encoded).expect("it fits");
        prop_assert_eq!(passed, encoded);
        prop_assert_eq!(bare.packet_len(), bytes.len());
    }
}
