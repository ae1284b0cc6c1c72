//! Strangers at the edge: the refusal of a client has the right code, and the driver is told.

use core::time::Duration;
use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;

use whimbrel_access::{Action, Actions, Principal, Quota, Rule, Rules};
use whimbrel_event::Time;
use whimbrel_mqtt::codec::Version::{V4, V5};
use whimbrel_mqtt::codec::{Version, frame};
use whimbrel_mqtt::{
    Access, Config, ConnId, Credentials, Decision, Identity, Input, MqttBroker, Origin, Output, Unidentified,
};

const QUOTA_EXCEEDED: u8 = 0x97;
const NOT_AUTHORIZED: u8 = 0x87;
const BAD_USER: u8 = 0x86;

/// What the broker said.
#[derive(Default)]
pub(crate) struct Said {
    bytes: BTreeMap<u32, Vec<u8>>,
    pub(crate) closed: Vec<u32>,
    asked: Vec<(u32, u64, String)>,
    refused: Vec<(&'static str, String, String, u8)>,
    paused: Vec<u32>,
}

impl Output for Said {
    fn send(&mut self, conn: ConnId, bytes: &mut Vec<u8>) {
        self.bytes.entry(conn.0).or_default().append(bytes);
    }

    fn close(&mut self, conn: ConnId) {
        self.closed.push(conn.0);
    }

    fn backlog(&self, _conn: ConnId) -> usize {
        0
    }

    fn notify_drained(&mut self, _conn: ConnId) {}

    fn pause(&mut self, conn: ConnId) {
        self.paused.push(conn.0);
    }

    fn resume(&mut self, conn: ConnId) {
        self.paused.retain(|paused| *paused != conn.0);
    }

    fn identify(&mut self, conn: ConnId, ticket: u64, credentials: Credentials<'_>) {
        self.asked.push((conn.0, ticket, credentials.user_name.unwrap_or_default().to_owned()));
    }

    fn refused(&mut self, _conn: ConnId, decision: &Decision<'_>) {
        let Decision { action, principal, about, code, .. } = *decision;
        self.refused.push((action, principal.to_owned(), about.to_owned(), code));
    }
}

pub(crate) struct World {
    pub(crate) broker: MqttBroker,
    pub(crate) said: Said,
    now: Time,
}

pub(crate) fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u16).to_be_bytes()[..], text.as_bytes()].concat()
}

pub(crate) fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    assert!(body.len() < 128, "one byte of length is enough");
    [&[first, body.len() as u8], body].concat()
}

/// A CONNECT with a clean start, or one that goes on.
fn connect(
    version: Version,
    clean: bool,
    client_id: &str,
    credentials: Option<(&str, &str)>,
    will: Option<&str>,
) -> Vec<u8> {
    let mut flags = u8::from(clean) << 1;
    flags |= if will.is_some() { 0x04 } else { 0 };
    flags |= if credentials.is_some() { 0xc0 } else { 0 };
    let mut body = [text("MQTT"), vec![if version == V5 { 5 } else { 4 }, flags, 0, 60]].concat();
    if version == V5 {
        body.extend(if clean { vec![0] } else { vec![5, 0x11, 0, 0, 1, 0] });
    }
    body.extend(text(client_id));
    if let Some(topic) = will {
        body.extend(if version == V5 { vec![0] } else { vec![] });
        body.extend([text(topic), text("gone")].concat());
    }
    if let Some((user, password)) = credentials {
        body.extend([text(user), text(password)].concat());
    }
    packet(0x10, &body)
}

fn publish(version: Version, topic: &str, tag: Option<u8>) -> Vec<u8> {
    let mut body = text(topic);
    body.extend(tag.map(|tag| [0, tag]).into_iter().flatten());
    body.extend(if version == V5 { vec![0] } else { vec![] });
    body.push(b'x');
    packet(if tag.is_some() { 0x32 } else { 0x30 }, &body)
}

fn subscribe(version: Version, tag: u8, filters: &[&str]) -> Vec<u8> {
    let mut body = vec![0, tag];
    body.extend(if version == V5 { vec![0] } else { vec![] });
    filters.iter().for_each(|filter| body.extend([text(filter), vec![0]].concat()));
    packet(0x82, &body)
}

impl World {
    fn new(access: Access) -> World {
        World::with(Config { access, ..Config::default() })
    }

    /// A broker that publishes nothing about itself.
    pub(crate) fn with(config: Config) -> World {
        let now = Time::from_nanos(1_767_225_600_000_000_000);
        let config = Config { sys_interval: None, ..config };
        World { broker: MqttBroker::new(config, 1, now), said: Said::default(), now }
    }

    fn handle(&mut self, input: Input<'_>) {
        self.broker.handle(self.now, input, &mut self.said);
        while self.broker.next_deadline().is_some_and(|(at, _)| at <= self.now) {
            self.broker.handle(self.now, Input::Deadline, &mut self.said);
        }
    }

    fn pass(&mut self, span: Duration) {
        self.now = self.now.after(span);
        self.broker.handle(self.now, Input::Deadline, &mut self.said);
    }

    pub(crate) fn open(&mut self, id: u32) {
        self.handle(Input::Opened { conn: ConnId(id), origin: Origin::Tcp });
    }

    pub(crate) fn bytes(&mut self, id: u32, bytes: &[u8]) {
        self.handle(Input::Bytes { conn: ConnId(id), bytes });
    }

    /// Opens a connection of a client with a certificate, and sends its CONNECT.
    fn certified(&mut self, id: u32, name: &str, connect: &[u8]) {
        self.open(id);
        let principal = Principal::new(name).expect("a name");
        self.handle(Input::Certified { conn: ConnId(id), principal: &principal });
        self.bytes(id, connect);
    }

    /// The next packet to a connection: its first byte and body.
    pub(crate) fn next(&mut self, id: u32) -> Option<(u8, Vec<u8>)> {
        let bytes = self.said.bytes.get_mut(&id)?;
        let (first, body, len) = {
            let read = frame(bytes, 1 << 20).expect("packets")?;
            (read.first_byte, read.body.to_vec(), read.whole.len())
        };
        bytes.drain(..len);
        Some((first, body))
    }

    /// The reason code of the CONNACK.
    pub(crate) fn connack(&mut self, id: u32) -> u8 {
        let (first, body) = self.next(id).expect("a CONNACK");
        assert_eq!(first, 0x20);
        body[1]
    }

    pub(crate) fn codes(&mut self, id: u32, count: usize) -> Vec<u8> {
        let (first, body) = self.next(id).expect("a SUBACK");
        assert_eq!(first, 0x90);
        body[body.len() - count..].to_vec()
    }

    fn answer(&mut self, result: Result<&str, Unidentified>) {
        let (conn, ticket, _) = self.said.asked.pop().expect("it was asked");
        let identity = result.map(|name| Identity { principal: Principal::new(name).expect("a name"), by_token: None });
        self.handle(Input::Identified { conn: ConnId(conn), ticket, result: identity.as_ref().map_err(|why| *why) });
    }
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| text.to_string()).collect()
}

fn access(rules: &[Rule], users: &[&str]) -> Access {
    Access {
        rules: Arc::new(Rules::new(rules).unwrap_or_else(|error| panic!("{error}"))),
        judges: !users.is_empty(),
        users: Arc::new(users.iter().map(|user| Principal::new(user).expect("a name")).collect()),
        ..Access::default()
    }
}

fn rule(principals: &[&str], topics: &[&str]) -> Rule {
    Rule {
        principals: texts(principals),
        actions: Actions::of([Action::Publish, Action::Subscribe]),
        topics: texts(topics),
        ..Rule::default()
    }
}

fn own_fleet() -> Rule {
    Rule { client_ids: Some(texts(&["%u", "%u-*"])), ..rule(&["bus-*"], &["fleet/%u/#"]) }
}

#[test]
fn without_rules_nobody_gets_in() {
    for (version, code) in [(V5, NOT_AUTHORIZED), (V4, 5)] {
        let mut world = World::new(access(&[], &[]));
        world.open(0);
        world.bytes(0, &connect(version, true, "a", None, None));
        assert_eq!(world.connack(0), code);
        assert_eq!(world.said.closed, [0]);
        assert_eq!(world.said.refused, [("connect", "anonymous".into(), String::new(), NOT_AUTHORIZED)]);
        world.certified(1, "bus-7", &connect(version, true, "a", None, None));
        assert_eq!(world.connack(1), code);
    }
}

#[test]
fn credentials_are_judged_while_the_connection_waits() {
    for (version, refused, busy) in [(V5, BAD_USER, QUOTA_EXCEEDED), (V4, 4, 3)] {
        let mut world = World::new(access(&[own_fleet()], &["bus-7"]));
        let hello = connect(version, true, "bus-7", Some(("bus-7", "secret")), None);
        world.open(0);
        world.bytes(0, &hello);
        assert_eq!((world.next(0), world.said.asked[0].2.as_str()), (None, "bus-7"));
        // What comes meanwhile waits.
        world.bytes(0, &subscribe(version, 1, &["fleet/bus-7/#"]));
        world.bytes(0, &publish(version, "fleet/bus-7/a", Some(2)));
        assert_eq!(world.next(0), None);
        world.answer(Ok("bus-7"));
        assert_eq!(world.connack(0), 0);
        assert_eq!(world.codes(0, 1), [0]);
        let first = world.next(0).map(|(first, _)| first);
        assert_eq!(first, Some(0x30), "its own message");

        world.open(1);
        world.bytes(1, &hello);
        world.answer(Err(Unidentified::Refused));
        assert_eq!(world.connack(1), refused);
        world.open(2);
        world.bytes(2, &hello);
        world.answer(Err(Unidentified::Busy));
        assert_eq!(world.connack(2), busy);
        // A user without a password says nothing that could be believed.
        world.open(3);
        let mut no_password = connect(version, true, "bus-7", None, None);
        let at = 9;
        no_password[at] |= 0x80;
        no_password.extend(text("bus-7"));
        no_password[1] = no_password.len() as u8 - 2;
        world.bytes(3, &no_password);
        assert_eq!(world.connack(3), refused);
    }
}

#[test]
fn an_answer_is_for_the_connection_that_was_asked_about() {
    let mut world = World::new(access(&[own_fleet()], &["bus-7", "bus-8"]));
    let hello = |name: &str| connect(V5, true, name, Some((name, "secret")), None);
    world.open(0);
    world.bytes(0, &hello("bus-7"));
    let old = world.said.asked.pop().expect("it was asked");
    world.handle(Input::Closed { conn: ConnId(0) });
    world.open(0);
    world.bytes(0, &hello("bus-8"));
    let identity = Identity { principal: Principal::new("bus-7").expect("a name"), by_token: None };
    world.handle(Input::Identified { conn: ConnId(0), ticket: old.1, result: Ok(&identity) });
    assert_eq!(world.next(0), None);
    world.answer(Ok("bus-8"));
    assert_eq!(world.connack(0), 0);
    // Who is no user any more when the answer comes is not let in.
    world.open(1);
    world.bytes(1, &hello("bus-7"));
    world.handle(Input::Access(&access(&[own_fleet()], &["bus-8"])));
    world.answer(Ok("bus-7"));
    assert_eq!(world.connack(1), BAD_USER);
}

#[test]
fn who_waits_too_long_to_be_judged_is_turned_away() {
    let mut world = World::new(access(&[own_fleet()], &["bus-7"]));
    world.open(0);
    world.bytes(0, &connect(V5, true, "bus-7", Some(("bus-7", "secret")), None));
    world.pass(whimbrel_mqtt::IDENTIFY_MAX);
    assert_eq!(world.connack(0), 0x89);
    world.answer(Ok("bus-7"));
    assert_eq!(world.next(0), None);
}

#[test]
fn enhanced_authentication_is_not_offered() {
    let mut world = World::new(access(&[own_fleet()], &["bus-7"]));
    world.open(0);
    let method = [vec![0x15], text("X")].concat();
    let body = [text("MQTT"), vec![5, 2, 0, 60, method.len() as u8], method, text("bus-7")].concat();
    world.bytes(0, &packet(0x10, &body));
    assert_eq!(world.connack(0), 0x8c);
}

#[test]
fn topics_outside_of_the_rules_are_refused() {
    let mut world = World::new(access(&[own_fleet()], &[]));
    world.certified(0, "bus-7", &connect(V5, true, "bus-7", None, None));
    assert_eq!(world.connack(0), 0);
    world.bytes(0, &subscribe(V5, 1, &["fleet/bus-8/#", "fleet/bus-7/+", "#", "$SYS/#", "$share/g/fleet/bus-7/#"]));
    assert_eq!(world.codes(0, 5), [NOT_AUTHORIZED, 0, NOT_AUTHORIZED, NOT_AUTHORIZED, 0]);
    world.bytes(0, &subscribe(V5, 1, &["a", "b"]));
    assert_eq!(world.codes(0, 2), [NOT_AUTHORIZED, NOT_AUTHORIZED]);
    world.bytes(0, &publish(V5, "fleet/bus-8/a", Some(7)));
    let (first, body) = world.next(0).expect("a PUBACK");
    assert_eq!((first, body[2]), (0x40, NOT_AUTHORIZED));
    world.bytes(0, &publish(V5, "fleet/bus-8/a", None));
    assert_eq!((world.next(0), world.broker.stats().publishes_refused.count(NOT_AUTHORIZED)), (None, 2));
    assert!(world.said.closed.is_empty(), "it stays connected");
    assert!(world.said.refused.contains(&("publish", "bus-7".into(), "fleet/bus-8/a".into(), NOT_AUTHORIZED)));
    assert!(world.said.refused.contains(&("subscribe", "bus-7".into(), "#".into(), NOT_AUTHORIZED)));

    // MQTT 3.1.1 has no answer that says no: it is acknowledged and dropped.
    world.certified(1, "bus-8", &connect(V4, true, "bus-8", None, None));
    assert_eq!(world.connack(1), 0);
    world.bytes(1, &subscribe(V4, 1, &["fleet/bus-7/#", "fleet/bus-8/#"]));
    assert_eq!(world.codes(1, 2), [0x80, 0]);
    world.bytes(1, &publish(V4, "fleet/bus-7/a", Some(7)));
    assert_eq!(world.next(1), Some((0x40, vec![0, 7])));
    assert_eq!(world.next(0), None, "nobody gets it");
}

#[test]
fn a_will_is_judged_as_a_publish() {
    for (version, code) in [(V5, NOT_AUTHORIZED), (V4, 5)] {
        let mut world = World::new(access(&[own_fleet()], &[]));
        world.certified(0, "bus-7", &connect(version, true, "bus-7", None, Some("fleet/bus-8/gone")));
        assert_eq!(world.connack(0), code);
        world.certified(1, "bus-7", &connect(version, true, "bus-7", None, Some("fleet/bus-7/gone")));
        assert_eq!(world.connack(1), 0);
    }
}

#[test]
fn nobody_takes_somebody_elses_session() {
    let anywhere = rule(&["tram-*"], &["rails"]);
    let mut world = World::new(access(&[own_fleet(), anywhere.clone()], &[]));
    world.certified(0, "bus-7", &connect(V5, false, "bus-7", None, None));
    assert_eq!(world.connack(0), 0);
    world.certified(1, "bus-8", &connect(V5, true, "bus-7", None, None));
    assert_eq!(world.connack(1), NOT_AUTHORIZED, "no rule allows the client id");
    world.certified(2, "tram-1", &connect(V5, true, "bus-7", None, None));
    assert_eq!(world.connack(2), NOT_AUTHORIZED, "any client id, but it is somebody else's");
    world.bytes(0, b"\xe0\x00");
    world.certified(3, "tram-1", &connect(V5, true, "bus-7", None, None));
    assert_eq!(world.connack(3), NOT_AUTHORIZED, "also while they are away");
    world.certified(4, "tram-1", &connect(V5, true, "tram-1", None, None));
    assert_eq!(world.connack(4), 0);
    world.certified(5, "bus-7", &connect(V5, false, "bus-7", None, None));
    assert_eq!(world.connack(5), 0);

    let named = Rule { client_ids: Some(texts(&["bus-*"])), ..anywhere };
    world.handle(Input::Access(&access(&[own_fleet(), named], &[])));
    world.certified(6, "tram-1", &connect(V5, true, "bus-7", None, None));
    assert_eq!(world.connack(6), 0, "a rule names the client id");
    assert_eq!(world.next(5).map(|(first, body)| (first, body[0])), Some((0xe0, 0x8e)));
}

#[test]
fn after_a_reload_those_who_may_not_be_there_go_and_so_do_their_subscriptions() {
    let both = [own_fleet(), rule(&["ops"], &["fleet/#", "news"])];
    let mut world = World::new(access(&both, &[]));
    for id in 10..1000 {
        let name = format!("bus-{id}");
        world.certified(id, &name, &connect(V5, true, &name, None, None));
    }
    world.certified(0, "ops", &connect(V5, false, "ops", None, None));
    world.bytes(0, &subscribe(V5, 1, &["fleet/#", "news"]));
    world.certified(1, "bus-7", &connect(V5, true, "bus-7", None, Some("fleet/bus-7/gone")));
    world.certified(2, "ops", &connect(V5, false, "away", None, None));
    world.bytes(2, &subscribe(V5, 1, &["fleet/#", "news"]));
    world.bytes(2, b"\xe0\x00");
    world.said.bytes.clear();

    let only_news = [rule(&["ops"], &["news"]), rule(&["press"], &["#"])];
    world.handle(Input::Access(&access(&only_news, &[])));
    let (first, body) = world.next(1).expect("a goodbye");
    assert_eq!((first, body[0]), (0xe0, NOT_AUTHORIZED));
    assert!((10..1000).all(|id| world.said.closed.contains(&id)), "all are looked at, some in each step");
    world.certified(3, "press", &connect(V5, true, "press", None, None));
    assert_eq!(world.connack(3), 0);
    for topic in ["fleet/bus-7/a", "news"] {
        world.bytes(3, &publish(V5, topic, None));
    }
    let topic =
        |packet: Option<(u8, Vec<u8>)>| packet.map(|(_, body)| String::from_utf8_lossy(&body[2..6]).into_owned());
    assert_eq!(topic(world.next(0)).as_deref(), Some("news"), "the will and the fleet are not for it any more");
    assert_eq!(world.next(0), None);
    // Who was away finds the same.
    world.certified(4, "ops", &connect(V5, false, "away", None, None));
    assert_eq!(world.connack(4), 0);
    while world.next(4).is_some() {}
    for topic in ["fleet/bus-7/a", "news"] {
        world.bytes(3, &publish(V5, topic, None));
    }
    assert_eq!(topic(world.next(4)).as_deref(), Some("news"));
    assert_eq!((world.next(4), world.broker.stats().subscriptions_ended), (None, 2));
}

#[test]
fn a_revoked_certificate_ends_its_connection() {
    let mut world = World::new(access(&[own_fleet()], &[]));
    world.certified(0, "bus-7", &connect(V5, true, "bus-7", None, None));
    world.said.bytes.clear();
    world.handle(Input::Revoked { conn: ConnId(0), why: "the certificate was revoked" });
    assert_eq!(world.next(0).map(|(first, body)| (first, body[0])), Some((0xe0, NOT_AUTHORIZED)));
}

#[test]
fn quotas_bound_counts_and_slow_rates() {
    let quota = Quota {
        principals: texts(&["bus-*"]),
        connections: NonZeroU32::new(2),
        publishes_per_second: NonZeroU64::new(10),
        subscriptions: NonZeroU32::new(2),
        ..Quota::default()
    };
    let mut world = World::new(Access { quotas: [quota].into(), ..access(&[own_fleet()], &[]) });
    for (id, client_id, code) in [(0, "bus-7", 0), (1, "bus-7-a", 0), (2, "bus-7-b", QUOTA_EXCEEDED)] {
        world.certified(id, "bus-7", &connect(V5, true, client_id, None, None));
        assert_eq!(world.connack(id), code);
    }
    world.bytes(1, b"\xe0\x00");
    world.certified(3, "bus-7", &connect(V5, true, "bus-7-b", None, None));
    assert_eq!(world.connack(3), 0, "one has left");
    world.bytes(0, &subscribe(V5, 1, &["fleet/bus-7/a", "fleet/bus-7/b", "fleet/bus-7/c"]));
    assert_eq!(world.codes(0, 3), [0, 0, QUOTA_EXCEEDED]);
    world.bytes(3, &subscribe(V5, 1, &["fleet/bus-7/a"]));
    assert_eq!(world.codes(3, 1), [QUOTA_EXCEEDED], "over all connections");
    world.bytes(0, &subscribe(V5, 1, &["fleet/bus-7/b"]));
    assert_eq!(world.codes(0, 1), [0], "it is there already");

    for _ in 0..12 {
        world.bytes(3, &publish(V5, "fleet/bus-7/x", None));
    }
    assert_eq!(world.said.paused, [3]);
    assert_eq!(world.broker.stats().publishes_in, 12, "nothing is lost");
    world.pass(Duration::from_millis(199));
    assert_eq!(world.said.paused, [3]);
    world.pass(Duration::from_millis(1));
    assert!(world.said.paused.is_empty());
}
