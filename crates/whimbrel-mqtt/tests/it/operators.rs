//! What an operator is told of connections: those that are refused, those that there are, and how
//! long deliveries take; and that it can end one.

use core::time::Duration;
use std::collections::BTreeMap;

use whimbrel_core::{GapClass, Presence};
use whimbrel_event::Time;
use whimbrel_mqtt::codec::{Version, frame};
use whimbrel_mqtt::{Config, ConnId, Input, MqttBroker, Origin, Output, Traffic, TurnedAway};

use crate::packets::{packet, text};

const START: Time = Time::from_nanos(1_767_225_600_000_000_000);

#[derive(Default)]
struct Said {
    bytes: BTreeMap<u32, Vec<u8>>,
    turned_away: Vec<(u32, String, u8)>,
}

impl Output for Said {
    fn send(&mut self, conn: ConnId, bytes: &mut Vec<u8>) {
        self.bytes.entry(conn.0).or_default().append(bytes);
    }

    fn close(&mut self, _conn: ConnId) {}

    fn backlog(&self, _conn: ConnId) -> usize {
        0
    }

    fn notify_drained(&mut self, _conn: ConnId) {}

    fn turned_away(&mut self, conn: ConnId, refusal: &TurnedAway<'_>) {
        assert!(!refusal.why.is_empty());
        self.turned_away.push((conn.0, refusal.client_id.to_owned(), refusal.code));
    }
}

struct World {
    broker: MqttBroker,
    said: Said,
    now: Time,
}

/// A CONNECT of MQTT 3.1.1 with those flags.
fn connect(flags: u8, client_id: &str) -> Vec<u8> {
    packet(0x10, &[text("MQTT"), vec![4, flags, 0, 0], text(client_id)].concat())
}

/// A SUBSCRIBE of MQTT 5 with those user properties.
fn subscribe(filter: &str, properties: &[(&str, &str)]) -> Vec<u8> {
    let mut user = Vec::new();
    for (name, value) in properties {
        user.push(0x26);
        user.extend(text(name));
        user.extend(text(value));
    }
    packet(0x82, &[vec![0, 1, user.len() as u8], user, text(filter), vec![0]].concat())
}

fn publish(topic: &str) -> Vec<u8> {
    packet(0x30, &[text(topic), vec![0], b"x".to_vec()].concat())
}

impl World {
    fn new() -> World {
        let config = Config { sys_interval: None, ..Config::default() };
        World { broker: MqttBroker::new(config, 1, START), said: Said::default(), now: START }
    }

    fn handle(&mut self, input: Input<'_>) {
        self.broker.handle(self.now, input, &mut self.said);
    }

    fn open(&mut self, id: u32, origin: Origin) {
        self.handle(Input::Opened { conn: ConnId(id), origin });
    }

    fn bytes(&mut self, id: u32, bytes: &[u8]) {
        self.handle(Input::Bytes { conn: ConnId(id), bytes });
    }

    /// A client of MQTT 5 whose session outlives its connection.
    fn client(&mut self, id: u32, client_id: &str) {
        self.open(id, Origin::Wss);
        let properties = [5, 0x11, 0, 0, 1, 0];
        self.bytes(id, &packet(0x10, &[text("MQTT"), vec![5, 2, 0, 0], properties.to_vec(), text(client_id)].concat()));
        assert_eq!(self.firsts(id), [0x20]);
    }

    /// The first bytes of the packets that a connection was sent since the last look.
    fn firsts(&mut self, id: u32) -> Vec<u8> {
        let bytes = self.said.bytes.remove(&id).unwrap_or_default();
        let (mut rest, mut firsts) = (&bytes[..], Vec::new());
        while let Some(read) = frame(rest, 1 << 20).expect("packets") {
            firsts.push(read.first_byte);
            rest = &rest[read.whole.len()..];
        }
        firsts
    }

    /// Lets time pass, with all deadlines in it.
    fn pass(&mut self, span: Duration) {
        let end = self.now.after(span);
        while let Some((at, _)) = self.broker.next_deadline().filter(|(at, _)| *at <= end) {
            self.now = self.now.max(at);
            self.handle(Input::Deadline);
        }
        self.now = end;
    }

    fn count(&self, class: GapClass) -> u64 {
        let (_, latency) = self.broker.latencies().find(|(other, _)| *other == class).expect("each class is there");
        latency.count()
    }
}

#[test]
fn each_connection_without_a_session_is_told_with_its_client_id_and_reason() {
    let mut world = World::new();
    let will_at = |topic: &str| [text("MQTT"), vec![4, 0x06, 0, 0], text("willing"), text(topic), text("x")].concat();
    let asks = [
        (connect(0x03, "reserved"), "reserved", 0x81),
        (connect(0, ""), "", 0x85),
        (packet(0x10, &[text("MQTT"), vec![3, 2, 0, 0], text("old")].concat()), "old", 0x84),
        (packet(0x10, &[text("MQTT"), vec![9, 2, 0, 0, 0], text("new")].concat()), "new", 0x84),
        (packet(0x10, &will_at("$SYS/uptime")), "willing", 0x87),
        (packet(0x30, b"\0\x01tx"), "", 0x82),
    ];
    for (id, (bytes, client_id, code)) in (0..).zip(asks) {
        world.open(id, Origin::Tcp);
        world.bytes(id, &bytes);
        assert_eq!(world.said.turned_away.pop(), Some((id, client_id.to_owned(), code)), "{bytes:x?}");
    }
    world.open(9, Origin::Tcp);
    world.pass(Duration::from_secs(60));
    assert_eq!(world.said.turned_away, [(9, String::new(), 0xa0)], "no CONNECT came");
    world.client(10, "welcome");
    assert_eq!(world.said.turned_away.len(), 1);
}

#[test]
fn a_client_is_shown_with_its_connection_and_what_went_over_it() {
    let mut world = World::new();
    world.pass(Duration::from_secs(5));
    world.client(3, "a");
    world.bytes(3, &subscribe("t", &[]));
    let before = world.broker.client(world.broker.core().session("a").expect("it is there").link.expect("connected"));
    let before = before.expect("it is attached").traffic;
    for _ in 0..4 {
        world.bytes(3, &publish("t"));
    }
    let link = world.broker.core().session("a").and_then(|info| info.link).expect("connected");
    let client = world.broker.client(link).expect("it is attached");
    assert_eq!((client.conn, client.origin, client.version), (ConnId(3), Origin::Wss, Version::V5));
    assert_eq!((client.since, client.principal, client.is_bridge), (START.after(Duration::from_secs(5)), None, false));
    let Traffic { publishes_in, publishes_out, bytes_in, bytes_out } = client.traffic;
    assert_eq!((publishes_in, publishes_out), (4, 4));
    let size = publish("t").len() as u64;
    assert_eq!((bytes_in - before.bytes_in, bytes_out - before.bytes_out), (4 * size, 4 * size));
}

#[test]
fn a_client_that_is_kicked_is_told_and_its_session_stays() {
    let mut world = World::new();
    world.client(3, "a");
    world.handle(Input::Kick { conn: ConnId(3) });
    let told = world.said.bytes.remove(&3).expect("it is told");
    assert_eq!((told[0], told[2]), (0xe0, 0x98), "DISCONNECT, Administrative action");
    let info = world.broker.core().session("a").expect("the session stays");
    assert!(matches!(info.presence, Presence::Away { .. }) && info.link.is_none());
    world.handle(Input::Kick { conn: ConnId(3) });
    world.handle(Input::Kick { conn: ConnId(77) });
    assert!(world.said.bytes.is_empty(), "there is nobody to be told");
}

#[test]
fn sessions_are_found_by_the_beginning_of_their_client_ids() {
    let mut world = World::new();
    for id in 0..40 {
        world.client(id, &format!("{}-{id}", if id % 4 == 0 { "bus" } else { "tram" }));
    }
    let (mut found, mut next, mut parts) = (Vec::new(), Some(0), 0);
    while let Some(from) = next {
        let infos;
        (infos, next) = world.broker.core().sessions_named("bus-", from, 7, 7);
        found.extend(infos.into_iter().map(|info| info.client_id.into_string()));
        parts += 1;
    }
    let expected: Vec<_> = (0..40).step_by(4).map(|id| format!("bus-{id}")).collect();
    assert_eq!((found, parts), (expected, 6), "each part looks at 7 places");
    let (some, next) = world.broker.core().sessions_named("bus-", 0, 40, 3);
    assert_eq!((some.len(), next), (3, Some(9)), "at most 3, the last of them at place 8");
}

#[test]
fn deliveries_are_timed_by_class_and_only_those_of_events_that_a_client_was_there_for() {
    let mut world = World::new();
    world.client(0, "publisher");
    world.client(1, "plain");
    world.client(2, "semi");
    world.bytes(1, &subscribe("t", &[]));
    world.bytes(2, &subscribe("t", &[("w-durability", "semi-durable")]));
    assert_eq!(GapClass::ALL.map(|class| world.count(class)), [0; 3]);
    for _ in 0..610 {
        world.bytes(0, &publish("t"));
    }
    assert_eq!(GapClass::ALL.map(|class| world.count(class)), [10, 10, 0], "of 1,220 deliveries each 61st");
    // A retained message was published before it was asked for.
    let retained = packet(0x31, &[text("r"), vec![0], b"x".to_vec()].concat());
    world.bytes(0, &retained);
    for _ in 0..61 {
        world.bytes(1, &subscribe("r", &[]));
    }
    assert_eq!(GapClass::ALL.map(|class| world.count(class)), [10, 10, 0]);
}
