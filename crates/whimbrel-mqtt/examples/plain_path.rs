//! Messages through a broker without sockets: bytes of publishers in, bytes for subscribers out.
//! For counting instructions, see `scripts/callgrind-plain-path.sh`.
//!
//! `plain_path ROUNDS PUBLISHERS SUBSCRIBERS QOS VERSION`: in each round each publisher sends one
//! message of 64 bytes on a topic that all subscribers want; at QoS 1 everything is acknowledged.
//! Prints how many messages were delivered.

mod packets;

use std::env;

use packets::{TOPIC, packet, text};
use whimbrel_event::Time;
use whimbrel_mqtt::{Config, ConnId, Input, MqttBroker, Origin, Output};

/// Counts deliveries, and notes the packet identifiers of those that are to be acknowledged.
#[derive(Default)]
struct Sink {
    delivered: u64,
    owed: Vec<(ConnId, [u8; 2])>,
}

impl Output for Sink {
    fn send(&mut self, conn: ConnId, bytes: &mut Vec<u8>) {
        let mut rest = &bytes[..];
        while let [first, length, behind @ ..] = rest {
            assert!(*length < 128, "packets are small here");
            let (body, behind) = behind.split_at(usize::from(*length));
            if first & 0xf0 == 0x30 {
                self.delivered += 1;
                if first & 0b110 != 0 {
                    let at = 2 + TOPIC.len();
                    self.owed.push((conn, [body[at], body[at + 1]]));
                }
            }
            rest = behind;
        }
        bytes.clear();
    }

    fn close(&mut self, conn: ConnId) {
        panic!("the broker closes {conn:?}");
    }

    fn backlog(&self, _conn: ConnId) -> usize {
        0
    }

    fn notify_drained(&mut self, _conn: ConnId) {}
}

fn main() {
    let numbers: Vec<u64> = env::args().skip(1).map(|text| text.parse().expect("a number")).collect();
    let [rounds, publishers, subscribers, qos, version] = numbers[..] else {
        panic!("plain_path ROUNDS PUBLISHERS SUBSCRIBERS QOS VERSION")
    };
    let (qos, version) = (qos as u8, version as u8);
    // MQTT 5 has a length of properties, which is 0.
    let none: &[u8] = if version == 5 { &[0] } else { &[] };
    let begin = Time::from_nanos(1_767_225_600_000_000_000);
    let mut broker = MqttBroker::new(Config { sys_interval: None, ..Config::default() }, 1, begin);
    let mut sink = Sink::default();
    for conn in 0..publishers + subscribers {
        let id = ConnId(conn as u32);
        let client = text(&format!("client {conn}"));
        let connect = packet(0x10, &[&text("MQTT"), &[version, 2, 0, 0], none, &client]);
        broker.handle(begin, Input::Opened { conn: id, origin: Origin::Tcp }, &mut sink);
        broker.handle(begin, Input::Bytes { conn: id, bytes: &connect }, &mut sink);
        if conn >= publishers {
            let subscribe = packet(0x82, &[&[0, 1], none, &text(TOPIC), &[qos]]);
            broker.handle(begin, Input::Bytes { conn: id, bytes: &subscribe }, &mut sink);
        }
    }
    let tag: &[u8] = if qos > 0 { &[0, 1] } else { &[] };
    let publish = packet(0x30 | qos << 1, &[&text(TOPIC), tag, none, &[b'.'; 64]]);
    for round in 0..rounds {
        let now = Time::from_nanos(begin.as_nanos() + (round + 1) * 1000);
        for conn in 0..publishers {
            broker.handle(now, Input::Bytes { conn: ConnId(conn as u32), bytes: &publish }, &mut sink);
            while let Some((conn, [high, low])) = sink.owed.pop() {
                broker.handle(now, Input::Bytes { conn, bytes: &[0x40, 2, high, low] }, &mut sink);
            }
        }
    }
    assert_eq!(sink.delivered, rounds * publishers * subscribers, "each message reaches each subscriber");
    println!("{}", sink.delivered);
}
