//! A broker that is about to end answers what its clients have published before it tells them to
//! go.

use core::time::Duration;
use std::collections::BTreeMap;

use whimbrel_core::store::{BatchNo, LogState, Restoring};
use whimbrel_core::{Persistence, Profile};
use whimbrel_event::Time;
use whimbrel_mqtt::codec::frame;
use whimbrel_mqtt::{ANSWERS_WITHIN, Config, ConnId, Input, MqttBroker, Origin, Output, Reason};

use crate::packets::{packet, text};

const START: Time = Time::from_nanos(1_767_225_600_000_000_000);
const LONG: Duration = Duration::from_secs(5);

const CONNACK: u8 = 0x20;
const PUBACK: u8 = 0x40;
const PUBREC: u8 = 0x50;
const PUBCOMP: u8 = 0x70;
const DISCONNECT: u8 = 0xe0;

#[derive(Default)]
struct Said {
    bytes: BTreeMap<u32, Vec<u8>>,
    closed: Vec<u32>,
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
}

/// A broker with a log that is durable when the test says so.
struct World {
    broker: MqttBroker,
    said: Said,
    now: Time,
    taken: BatchNo,
}

fn publish(topic: &str, qos: u8, tag: u8) -> Vec<u8> {
    packet(0x30 | qos << 1, &[text(topic), vec![0, tag, 0], b"x".to_vec()].concat())
}

impl World {
    /// With that many clients, whose events on `logged` are logged.
    fn new(clients: u32) -> World {
        let config = Config { sys_interval: None, ..Config::default() };
        let restored = MqttBroker::restored(config, 1, START, Restoring::default(), &LogState::default());
        let broker = restored.expect("an empty log makes sense");
        let mut world = World { broker, said: Said::default(), now: START, taken: BatchNo(0) };
        world.broker.set_profiles(vec![Profile {
            filter: "logged".into(),
            persistence: Persistence::Persistent,
            ..Profile::default()
        }]);
        world.commit();
        for client in 0..clients {
            world.handle(Input::Opened { conn: ConnId(client), origin: Origin::Tcp });
            let id = text(&format!("client-{client}"));
            world.bytes(client, &packet(0x10, &[text("MQTT"), vec![5, 2, 0, 60, 0], id].concat()));
            assert_eq!(world.firsts(client), [CONNACK]);
        }
        world.commit();
        world
    }

    fn handle(&mut self, input: Input<'_>) {
        self.broker.handle(self.now, input, &mut self.said);
    }

    fn bytes(&mut self, id: u32, bytes: &[u8]) {
        self.handle(Input::Bytes { conn: ConnId(id), bytes });
    }

    fn drain(&mut self, within: Duration) {
        self.handle(Input::Drain { within });
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

    /// All that is to be written is durable.
    fn commit(&mut self) {
        self.broker.flush(self.now);
        while self.broker.batch().is_some() {
            self.taken = self.broker.submitted();
        }
        self.handle(Input::Committed { upto: self.taken });
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
}

#[test]
fn what_was_published_is_answered_before_the_client_is_told_to_go() {
    let mut world = World::new(3);
    world.bytes(0, &publish("logged", 1, 1));
    world.bytes(1, &publish("logged", 2, 1));
    world.drain(LONG);
    assert_eq!((world.firsts(2), &world.said.closed[..]), (vec![DISCONNECT], &[2][..]), "nothing is owed to it");
    assert_eq!((world.firsts(0), world.firsts(1)), (vec![], vec![]), "the disk has not got it");
    assert_eq!(world.said.paused, [0, 1], "they are asked for no more");
    // Read before, it comes all the same.
    world.bytes(0, &publish("logged", 1, 2));
    world.commit();
    assert_eq!(world.firsts(0), [PUBACK, PUBACK, DISCONNECT]);
    assert_eq!(world.firsts(1), [PUBREC, DISCONNECT]);
    assert_eq!(world.said.closed, [2, 0, 1]);
    assert_eq!(world.broker.stats().connections, 0);
}

#[test]
fn a_release_is_answered_too() {
    let mut world = World::new(1);
    world.bytes(0, &publish("logged", 2, 1));
    world.commit();
    assert_eq!(world.firsts(0), [PUBREC]);
    world.bytes(0, &publish("logged", 1, 2));
    world.bytes(0, &packet(0x62, &[0, 1]));
    world.drain(LONG);
    world.commit();
    let firsts = world.firsts(0);
    assert!(firsts.contains(&PUBCOMP) && firsts.ends_with(&[DISCONNECT]), "{firsts:02x?}");
}

#[test]
fn a_disk_that_does_not_answer_is_waited_for_no_longer_than_that() {
    for (within, waits) in [(LONG, ANSWERS_WITHIN), (Duration::from_millis(20), Duration::from_millis(20))] {
        let mut world = World::new(1);
        world.bytes(0, &publish("logged", 1, 1));
        world.drain(within);
        let until = world.now.after(waits);
        world.pass(waits - Duration::from_millis(1));
        assert!(world.firsts(0).is_empty());
        assert_eq!(world.broker.next_deadline(), Some((until, Reason::Leave)));
        world.pass(Duration::from_millis(1));
        assert_eq!(world.firsts(0), [DISCONNECT]);
        assert_ne!(world.broker.next_deadline().map(|(_, reason)| reason), Some(Reason::Leave));
    }
    let mut world = World::new(1);
    world.bytes(0, &publish("logged", 1, 1));
    world.drain(Duration::ZERO);
    assert_eq!(world.firsts(0), [DISCONNECT], "no time is given");
}

#[test]
fn one_who_leaves_by_itself_meanwhile_is_not_taken_for_the_next_in_its_place() {
    let mut world = World::new(1);
    world.bytes(0, &publish("logged", 1, 1));
    world.drain(LONG);
    world.handle(Input::Closed { conn: ConnId(0) });
    world.handle(Input::Opened { conn: ConnId(0), origin: Origin::Tcp });
    world.commit();
    assert_eq!((world.firsts(0), &world.said.closed[..]), (vec![], &[][..]));
    world.bytes(0, &packet(0x10, &[text("MQTT"), vec![5, 2, 0, 60, 0], text("late")].concat()));
    assert_eq!((world.firsts(0), &world.said.closed[..]), (vec![CONNACK], &[0][..]), "it is refused");
}
