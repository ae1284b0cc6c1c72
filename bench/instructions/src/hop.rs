//! An event from broker to broker: a publisher at the first of three, a subscriber at the last.

use core::time::Duration;
use std::collections::VecDeque;

use whimbrel_core::{Channel, OverlayConfig, PeerInput, PeerLink};
use whimbrel_event::Time;
use whimbrel_mqtt::{Config, ConnId, Input, MqttBroker, Origin, Output};

use crate::counted;
use crate::packets::{TOPIC, packet, text};

const CLIENT: ConnId = ConnId(0);

/// What a broker gives to its links, and how many messages to its client.
#[derive(Default)]
struct Sent {
    frames: VecDeque<(PeerLink, Channel, Vec<u8>)>,
    delivered: u64,
}

impl Output for Sent {
    fn send(&mut self, _conn: ConnId, bytes: &mut Vec<u8>) {
        self.delivered += u64::from(bytes[0] & 0xf0 == 0x30);
        bytes.clear();
    }

    fn close(&mut self, conn: ConnId) {
        panic!("the broker closes {conn:?}");
    }

    fn backlog(&self, _conn: ConnId) -> usize {
        0
    }

    fn notify_drained(&mut self, _conn: ConnId) {}

    fn peer_bytes(&mut self, link: PeerLink, channel: Channel, bytes: &[u8]) -> usize {
        self.frames.push_back((link, channel, bytes.to_vec()));
        0
    }
}

/// Three brokers in a line. The link between brokers n and n + 1 is number n at both ends.
struct Line {
    brokers: Vec<(MqttBroker, Sent)>,
    now: Time,
    /// The broker whose work on messages is counted, once there are messages.
    counted: Option<usize>,
}

impl Line {
    fn handle(&mut self, node: usize, input: Input<'_>) {
        let (broker, sink) = &mut self.brokers[node];
        if self.counted == Some(node) {
            counted(broker, self.now, input, sink);
        } else {
            broker.handle(self.now, input, sink);
        }
    }

    /// Carries all frames until there are none.
    fn carry(&mut self) {
        while let Some(node) = self.brokers.iter().position(|(_, sink)| !sink.frames.is_empty()) {
            let (link, channel, bytes) = self.brokers[node].1.frames.pop_front().expect("there is one");
            let other = if link.0 as usize == node { node + 1 } else { link.0 as usize };
            self.handle(other, Input::Peer(PeerInput::Bytes { link, channel, bytes: &bytes }));
        }
    }

    /// Lets time pass, in steps of the brokers' deadlines.
    fn advance(&mut self, span: Duration) {
        let end = self.now.after(span);
        loop {
            self.carry();
            let due = |(broker, _): &(MqttBroker, Sent)| broker.next_deadline().map(|(at, _)| at);
            let Some(at) = self.brokers.iter().filter_map(due).min().filter(|at| *at <= end) else { break };
            self.now = self.now.max(at);
            for node in 0..self.brokers.len() {
                if due(&self.brokers[node]).is_some_and(|at| at <= self.now) {
                    self.handle(node, Input::Deadline);
                }
            }
        }
        self.now = end;
    }
}

fn overlay(node: usize) -> OverlayConfig {
    OverlayConfig {
        name: format!("b{node}").into(),
        version: "1".into(),
        addresses: Vec::new(),
        interest_max: 256,
        expects_peers: true,
        links_wanted: 0,
        surcharges: Default::default(),
        domains: Default::default(),
        routing: whimbrel_core::Routing::default(),
        pace: whimbrel_core::Pace::DEFAULT,
        moves_sessions: true,
    }
}

/// Sends `rounds` messages; the work of broker `node` (0 to 2) on them is counted. Returns the
/// number of deliveries.
pub fn run(rounds: u64, node: u64) -> u64 {
    let begin = Time::from_nanos(1_767_225_600_000_000_000);
    let broker = |node: usize| {
        let config = Config { sys_interval: None, ..Config::default() };
        let mut broker = MqttBroker::new(config, node as u64 + 1, begin);
        broker.open_overlay(begin, overlay(node));
        (broker, Sent::default())
    };
    let mut line = Line { brokers: (0..3).map(broker).collect(), now: begin, counted: None };
    for number in 0..2 {
        for (node, dialed) in [(number, true), (number + 1, false)] {
            let opened = PeerInput::Opened { link: PeerLink(number as u32), dialed, name: None };
            line.handle(node, Input::Peer(opened));
        }
    }
    line.advance(Duration::from_secs(3));
    for (node, client) in [(0, "publisher"), (2, "subscriber")] {
        line.handle(node, Input::Opened { conn: CLIENT, origin: Origin::Tcp });
        let connect = packet(0x10, &[&text("MQTT"), &[4, 2, 0, 0], &text(client)]);
        line.handle(node, Input::Bytes { conn: CLIENT, bytes: &connect });
        line.advance(Duration::from_secs(3));
    }
    line.handle(2, Input::Bytes { conn: CLIENT, bytes: &packet(0x82, &[&[0, 1], &text(TOPIC), &[0]]) });
    line.advance(Duration::from_secs(3));
    let publish = packet(0x30, &[&text(TOPIC), &[b'.'; 64]]);
    line.counted = Some(node as usize);
    for _ in 0..rounds {
        line.now = line.now.after(Duration::from_micros(1));
        line.handle(0, Input::Bytes { conn: CLIENT, bytes: &publish });
        line.carry();
    }
    assert_eq!(line.brokers[2].1.delivered, rounds, "each message reaches the subscriber");
    rounds
}
