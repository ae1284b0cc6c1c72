//! Deliveries of topics with a deadline: a subscriber is told that an event is late, and an
//! operator how many are in time.

use core::time::Duration;
use std::collections::BTreeMap;

use whimbrel_core::{LateCause, ListedProfile, Profile, Punctuality};
use whimbrel_event::Time;
use whimbrel_mqtt::{Config, ConnId, Input, MqttBroker, Origin, Output};

use crate::packets::{packet, text};

const START: Time = Time::from_nanos(1_767_225_600_000_000_000);
const DEADLINE: Duration = Duration::from_millis(50);
const MILLI: Duration = Duration::from_millis(1);

const PUBLISHER: ConnId = ConnId(0);
const SUBSCRIBER: ConnId = ConnId(1);

#[derive(Default)]
struct Sent(BTreeMap<u32, Vec<u8>>);

impl Output for Sent {
    fn send(&mut self, conn: ConnId, bytes: &mut Vec<u8>) {
        self.0.entry(conn.0).or_default().append(bytes);
    }

    fn close(&mut self, conn: ConnId) {
        panic!("connection {} is closed", conn.0);
    }

    fn backlog(&self, _conn: ConnId) -> usize {
        0
    }

    fn notify_drained(&mut self, _conn: ConnId) {}
}

struct World {
    broker: MqttBroker,
    sent: Sent,
    now: Time,
}

impl World {
    /// A publisher, and a subscriber of `alarm/#` that asks for event ids and takes one delivery at
    /// a time.
    fn new() -> World {
        let config = Config { sys_interval: None, ..Config::default() };
        let broker = MqttBroker::new(config, 1, START);
        let mut world = World { broker, sent: Sent::default(), now: START };
        let filter = "alarm/#".into();
        world.broker.set_profiles(vec![Profile { filter, deadline: Some(DEADLINE), ..Profile::default() }]);
        world.connect(PUBLISHER);
        world.connect(SUBSCRIBER);
        let asks = [&[0x26][..], &text("w-notices"), &text("on")].concat();
        let subscribe = [&[0, 1, asks.len() as u8][..], &asks, &text("alarm/#"), &[1]].concat();
        world.bytes(SUBSCRIBER, &packet(0x82, &subscribe));
        world.sent = Sent::default();
        world
    }

    fn connect(&mut self, conn: ConnId) {
        self.handle(Input::Opened { conn, origin: Origin::Tcp });
        let receive_maximum = [3, 0x21, 0, 1];
        let hello = [&text("MQTT")[..], &[5, 2, 0, 60], &receive_maximum, &text(&format!("c{}", conn.0))].concat();
        self.bytes(conn, &packet(0x10, &hello));
    }

    fn handle(&mut self, input: Input<'_>) {
        self.broker.handle(self.now, input, &mut self.sent);
    }

    fn bytes(&mut self, conn: ConnId, bytes: &[u8]) {
        self.handle(Input::Bytes { conn, bytes });
    }

    fn publish(&mut self, tag: u8) {
        let publish = [&text("alarm/1")[..], &[0, tag, 0], b"x"].concat();
        self.bytes(PUBLISHER, &packet(0x32, &publish));
    }

    fn acknowledge(&mut self, tag: u8) {
        self.bytes(SUBSCRIBER, &packet(0x40, &[0, tag]));
    }

    /// What the subscriber was sent since the last call, and the `w-late` in it.
    fn late(&mut self) -> (bool, Option<String>) {
        let bytes = self.sent.0.remove(&SUBSCRIBER.0).unwrap_or_default();
        let name = text("w-late");
        let at = bytes.windows(name.len()).position(|window| window == name).map(|at| at + name.len());
        let value = at.map(|at| {
            let length = usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
            String::from_utf8(bytes[at + 2..at + 2 + length].to_vec()).expect("it is text")
        });
        (!bytes.is_empty(), value)
    }

    fn punctuality(&self) -> Punctuality {
        let page = self.broker.core().topic_profiles().page(0, 10);
        let [ListedProfile { punctuality, .. }] = page.profiles[..] else { panic!("there is one profile") };
        punctuality
    }
}

#[test]
fn an_event_that_waits_for_its_client_is_late_and_says_so() {
    let mut world = World::new();
    world.publish(1);
    world.publish(2);
    assert_eq!(world.late(), (true, None), "the first is in time, and the second waits");
    world.now = world.now + MILLI * 120;
    world.acknowledge(1);
    assert_eq!(world.late(), (true, Some("70".into())));
    let punctuality = world.punctuality();
    assert_eq!(punctuality.in_time, [0, 0, 0, 0, 0, 1], "with all of its slack");
    assert_eq!(punctuality.late[LateCause::Wait as usize], 1);
    assert_eq!(punctuality.in_time_permille(), Some(500));
}

#[test]
fn an_event_at_its_deadline_is_in_time_and_a_repetition_does_not_count() {
    let mut world = World::new();
    world.publish(1);
    world.publish(2);
    world.late();
    world.now = world.now + DEADLINE;
    world.acknowledge(1);
    assert_eq!(world.late(), (true, None));
    assert_eq!(world.punctuality().in_time, [1, 0, 0, 0, 0, 1]);
    world.acknowledge(2);
    world.now = world.now + MILLI;
    world.publish(3);
    world.late();
    assert_eq!(world.punctuality().in_time, [1, 0, 0, 0, 0, 2]);
}
