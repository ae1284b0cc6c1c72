//! What becomes of a publish that is refused, and of its connection: with a word for it (MQTT 5 at
//! QoS 1 and 2), and without (MQTT 3.1.1, and QoS 0).

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use whimbrel_access::{Action, Actions, Principal, Rule, Rules};
use whimbrel_core::store::{BatchNo, Disk, LogState, Restoring};
use whimbrel_core::{Persistence, Profile};
use whimbrel_core::{READ_OUT_MAX, Unread};
use whimbrel_event::Time;
use whimbrel_mqtt::codec::Version::{V4, V5};
use whimbrel_mqtt::codec::{Version, frame};
use whimbrel_mqtt::{Access, Config, ConnId, Decision, Input, MqttBroker, Origin, Output, REFUSED_UNREAD, Reason};

use crate::packets::text;

const START: Time = Time::from_nanos(1_767_225_600_000_000_000);
const LOGGED_MAX: usize = 512;

const PUBACK: u8 = 0x40;
const PUBREC: u8 = 0x50;
const DISCONNECT: u8 = 0xe0;

#[derive(Default)]
struct Said {
    bytes: BTreeMap<u32, Vec<u8>>,
    closed: Vec<u32>,
    paused: Vec<u32>,
    /// What was refused: about what, and the code.
    refused: Vec<(String, u8)>,
    /// Sockets are read to their ends when that is asked for, and it takes long.
    reads_late: bool,
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

    fn read_out(&mut self, _conn: ConnId) -> Unread {
        if self.reads_late { Unread::Coming } else { Unread::Nothing }
    }

    fn refused(&mut self, _conn: ConnId, decision: &Decision<'_>) {
        assert_eq!(decision.action, "publish");
        self.refused.push((decision.about.to_owned(), decision.code));
    }
}

/// A broker with a log, and one client, who may publish everything but `secret/#`.
struct World {
    broker: MqttBroker,
    said: Said,
    now: Time,
    taken: BatchNo,
}

fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    assert!(body.len() < 1 << 14, "two bytes of length are enough");
    let length = match body.len() {
        length @ ..128 => vec![length as u8],
        length => vec![length as u8 | 0x80, (length >> 7) as u8],
    };
    [&[first], &*length, body].concat()
}

fn publish(version: Version, topic: &str, qos: u8, tag: u8, payload: &[u8]) -> Vec<u8> {
    let tag = if qos > 0 { vec![0, tag] } else { vec![] };
    let properties = if version == V5 { vec![0] } else { vec![] };
    packet(0x30 | qos << 1, &[text(topic), tag, properties, payload.to_vec()].concat())
}

impl World {
    fn new(version: Version, disconnects_denied: bool) -> World {
        let rule = |action, topic: &str| Rule {
            principals: vec!["a".to_owned()],
            actions: Actions::of([action]),
            topics: vec![topic.to_owned()],
            ..Rule::default()
        };
        let rules = [rule(Action::Publish, "open/#"), rule(Action::Publish, "logged")];
        let rules = Arc::new(Rules::new(&rules).expect("rules"));
        let access = Access { rules, disconnects_denied, ..Access::default() };
        let core = whimbrel_core::Limits { logged_event_bytes: LOGGED_MAX, ..whimbrel_core::Limits::default() };
        let config = Config { sys_interval: None, access, core, ..Config::default() };
        let restored = MqttBroker::restored(config, 1, START, Restoring::default(), &LogState::default());
        let broker = restored.expect("an empty log makes sense");
        let mut world = World { broker, said: Said::default(), now: START, taken: BatchNo(0) };
        world.broker.set_profiles(vec![Profile {
            filter: "logged".into(),
            persistence: Persistence::Persistent,
            ..Profile::default()
        }]);
        world.commit();
        world.connect(ConnId(0), version);
        world.commit();
        assert_eq!(world.packets(), [(0x20, 0)]);
        world
    }

    fn handle(&mut self, input: Input<'_>) {
        self.broker.handle(self.now, input, &mut self.said);
    }

    fn connect(&mut self, conn: ConnId, version: Version) {
        self.handle(Input::Opened { conn, origin: Origin::Tcp });
        let principal = Principal::new("a").expect("a name");
        self.handle(Input::Certified { conn, principal: &principal });
        let properties = if version == V5 { vec![0] } else { vec![] };
        let level = if version == V5 { 5 } else { 4 };
        let hello = packet(0x10, &[text("MQTT"), vec![level, 2, 0, 60], properties, text("a")].concat());
        self.handle(Input::Bytes { conn, bytes: &hello });
    }

    /// Publishes what is to be logged until the broker wants no more to be read.
    fn congest(&mut self, version: Version) {
        let publishes = (1..=200).flat_map(|tag| publish(version, "logged", 1, tag, b"x")).collect::<Vec<_>>();
        while !self.broker.is_congested() {
            self.bytes(&publishes);
        }
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.handle(Input::Bytes { conn: ConnId(0), bytes });
    }

    /// All that is to be written is durable.
    fn commit(&mut self) {
        self.broker.flush(self.now);
        while self.broker.batch().is_some() {
            self.taken = self.broker.submitted();
        }
        self.handle(Input::Committed { upto: self.taken });
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

    /// The packets that the client was sent since the last look: the first byte of each, and its
    /// reason code, 0 if it has none.
    fn packets(&mut self) -> Vec<(u8, u8)> {
        let bytes = self.said.bytes.remove(&0).unwrap_or_default();
        let (mut rest, mut packets) = (&bytes[..], Vec::new());
        while let Some(read) = frame(rest, 1 << 20).expect("packets") {
            let at = match read.first_byte {
                0x20 => 1,
                DISCONNECT => 0,
                _ => 2,
            };
            packets.push((read.first_byte, read.body.get(at).copied().unwrap_or(0)));
            rest = &rest[read.whole.len()..];
        }
        packets
    }

    fn is_closed(&self) -> bool {
        !self.said.closed.is_empty()
    }

    fn counted(&self, code: u8) -> u64 {
        self.broker.stats().publishes_refused.count(code)
    }
}

#[test]
fn what_may_not_be_published_is_acknowledged_where_no_word_says_no() {
    for (version, codes) in [(V5, [0x87, 0x87]), (V4, [0, 0])] {
        let mut world = World::new(version, false);
        for topic in ["secret/1", "$SYS/x"] {
            for qos in [0, 1, 2] {
                world.bytes(&publish(version, topic, qos, 3 + qos, b"x"));
            }
            assert_eq!(world.packets(), [(PUBACK, codes[0]), (PUBREC, codes[1])], "{version:?} {topic}");
        }
        assert_eq!((world.is_closed(), world.counted(0x87)), (false, 6));
        let told = |topic: &str| (topic.to_owned(), 0x87);
        assert_eq!(world.said.refused[2..4], [told("secret/1"), told("$SYS/x")]);
        let refused = world.broker.refused_publishes("a").expect("there are some");
        assert_eq!((refused.count, refused.code, refused.topic.as_str()), (6, 0x87, "$SYS/x"));
        assert!(refused.why.contains("the broker's own"), "{}", refused.why);
        assert_eq!(world.broker.refused_publishes("b"), None);
    }
}

#[test]
fn what_may_not_be_published_ends_the_connection_where_that_is_set() {
    for version in [V5, V4] {
        for qos in [0, 1, 2] {
            let mut world = World::new(version, true);
            world.bytes(&publish(version, "open/1", 1, 1, b"x"));
            let both = [publish(version, "secret/1", qos, 3, b"x"), publish(version, "open/2", 1, 4, b"x")].concat();
            world.bytes(&both);
            let told = if version == V5 { vec![(PUBACK, 0x10), (DISCONNECT, 0x87)] } else { vec![(PUBACK, 0)] };
            assert_eq!(world.packets(), told, "QoS {qos}");
            assert_eq!((world.is_closed(), world.counted(0x87)), (true, 1));
            assert_eq!(world.broker.core().stats().events_accepted, 1, "nothing behind it is taken");
        }
    }
}

#[test]
fn what_waits_for_the_disk_is_acknowledged_before_a_denied_publish_ends_the_connection() {
    for version in [V5, V4] {
        for qos in [0, 1, 2] {
            let mut world = World::new(version, true);
            world.bytes(&publish(version, "logged", 1, 1, b"x"));
            world.bytes(&publish(version, "secret/1", qos, 3, b"x"));
            assert_eq!((world.packets(), world.is_closed()), (Vec::new(), false), "the disk has not answered");
            world.commit();
            let first = world.packets()[0];
            assert_eq!((first.0, world.is_closed()), (PUBACK, true), "{version:?}, QoS {qos}");
        }
    }
}

#[test]
fn what_can_never_be_accepted_ends_a_connection_that_cannot_be_told() {
    let deep = format!("open{}", "/x".repeat(128));
    for (topic, payload, code) in [(&*deep, 1, 0x90), ("logged", LOGGED_MAX, 0x97)] {
        for (qos, first) in [(1, PUBACK), (2, PUBREC)] {
            let both = |version| {
                let next = publish(version, "open/2", 1, 4, b"x");
                [publish(version, topic, qos, 3, &vec![b'x'; payload]), next].concat()
            };
            let mut world = World::new(V5, false);
            world.bytes(&both(V5));
            assert_eq!(world.packets(), [(first, code), (PUBACK, 0x10)], "{topic}");
            assert_eq!((world.is_closed(), world.counted(code)), (false, 1));

            let mut world = World::new(V4, false);
            world.bytes(&both(V4));
            assert_eq!(world.packets(), []);
            assert_eq!((world.is_closed(), world.counted(code)), (true, 1), "{topic}");
            assert_eq!(world.broker.core().stats().events_accepted, 0, "nothing behind it is taken");
            assert_eq!(world.said.refused, [(String::new(), code)]);
        }
    }
    // At QoS 0 a message may be lost: it is counted and told.
    for version in [V5, V4] {
        let mut world = World::new(version, false);
        world.bytes(&publish(version, &deep, 0, 0, b"x"));
        assert_eq!((world.packets(), world.is_closed()), (vec![], false));
        assert_eq!((world.counted(0x90), world.said.refused.len()), (1, 1));
        assert_eq!(world.broker.refused_publishes("a").map(|refused| refused.count), Some(1));
    }
    // What is no token is invalid, and what a token says of nothing has no effect.
    let mut world = World::new(V4, false);
    world.bytes(&publish(V4, "$whimbrel/ack", 1, 3, b"junk"));
    assert_eq!((world.packets(), world.is_closed()), (vec![], true));
}

#[test]
fn what_the_log_has_no_room_for_is_not_acknowledged_and_sent_again_when_it_has() {
    for frees in [true, false] {
        let mut world = World::new(V4, false);
        world.handle(Input::Disk(Disk::Full));
        let next = publish(V4, "open/2", 1, 4, b"x");
        world.bytes(&[publish(V4, "logged", 1, 3, b"x"), next.clone()].concat());
        world.bytes(&next);
        assert_eq!((world.packets(), &*world.said.paused, world.counted(0x97)), (vec![], &[0][..], 1));
        assert_eq!(world.broker.core().stats().events_accepted, 0, "it is not read");
        world.pass(REFUSED_UNREAD - Duration::from_millis(1));
        assert!(!world.is_closed(), "nor does its silence count");
        if frees {
            world.handle(Input::Disk(Disk::Open));
        } else {
            world.pass(Duration::from_millis(1));
        }
        assert_eq!((world.packets(), world.is_closed()), (vec![], true));
        assert_eq!(world.broker.stats().ended.count(0x97), 1);
        let next = world.broker.next_deadline().map(|(_, reason)| reason);
        assert_ne!(next, Some(Reason::Refused), "nothing is left of it");
    }
    let mut world = World::new(V5, false);
    world.handle(Input::Disk(Disk::Full));
    world.bytes(&publish(V5, "logged", 1, 3, b"x"));
    assert_eq!((world.packets(), world.is_closed()), (vec![(PUBACK, 0x97)], false));
}

#[test]
fn what_was_published_before_is_answered_before_the_connection_ends() {
    for (full, topic) in [(true, "logged"), (false, "secret/1")] {
        let mut world = World::new(V4, !full);
        world.bytes(&publish(V4, "logged", 1, 1, b"x"));
        world.broker.flush(world.now);
        while world.broker.batch().is_some() {
            world.taken = world.broker.submitted();
        }
        if full {
            world.handle(Input::Disk(Disk::Full));
        }
        world.bytes(&publish(V4, topic, 1, 2, b"x"));
        assert_eq!((world.packets(), world.is_closed()), (vec![], false));
        world.handle(Input::Committed { upto: world.taken });
        assert_eq!(world.packets(), [(PUBACK, 0)]);
        world.pass(REFUSED_UNREAD);
        assert_eq!((world.packets(), world.is_closed()), (vec![], true));
    }
}

#[test]
fn while_nothing_is_read_no_client_counts_as_silent() {
    let mut world = World::new(V5, false);
    world.congest(V5);
    world.pass(Duration::from_secs(600));
    assert!(!world.is_closed(), "its PINGREQs lie in its socket");
    world.commit();
    world.pass(Duration::from_secs(2));
    assert!(world.is_closed(), "nothing came after that either");
}

#[test]
fn while_nothing_is_read_no_session_is_taken_from_what_is_unread() {
    let mut world = World::new(V5, false);
    world.said.reads_late = true;
    world.congest(V5);
    world.connect(ConnId(1), V5);
    world.pass(READ_OUT_MAX * 3);
    assert!(!world.is_closed(), "its last packets lie in its socket");
    assert_eq!(world.broker.core().stats().takeovers_cut, 0);
    world.commit();
    world.handle(Input::ReadOut { conn: ConnId(0), is_whole: true });
    assert_eq!(world.said.closed, [0]);
    assert_eq!(world.broker.core().stats().takeovers_cut, 0);
}

#[test]
fn when_there_is_room_again_those_that_wait_for_it_end_in_turns() {
    let mut world = World::new(V4, false);
    world.handle(Input::Disk(Disk::Full));
    let conns = 200;
    for conn in 1..=conns {
        let id = format!("c{conn}");
        world.handle(Input::Opened { conn: ConnId(conn), origin: Origin::Tcp });
        let principal = Principal::new("a").expect("a name");
        world.handle(Input::Certified { conn: ConnId(conn), principal: &principal });
        let hello = packet(0x10, &[text("MQTT"), vec![4, 2, 0, 60], text(&id)].concat());
        world.handle(Input::Bytes { conn: ConnId(conn), bytes: &hello });
        world.handle(Input::Bytes { conn: ConnId(conn), bytes: &publish(V4, "logged", 1, 1, b"x") });
    }
    assert!(!world.is_closed());
    world.handle(Input::Disk(Disk::Open));
    assert!((1..conns as usize / 2).contains(&world.said.closed.len()), "{}", world.said.closed.len());
    world.pass(Duration::ZERO);
    assert_eq!(world.said.closed.len(), conns as usize);
}
