//! Publishers and subscribers of one broker.

use whimbrel_core::cache::{Capacity, DefaultPlan, Plan, Policy};
use whimbrel_core::store::{LogState, Restoring};
use whimbrel_event::Time;
use whimbrel_mqtt::{Config, ConnId, Input, MqttBroker, Origin, Output};

use crate::counted;
use crate::packets::{TOPIC, packet, text};

/// Counts deliveries, and notes the packet identifiers of those that are to be acknowledged.
#[derive(Default)]
struct Deliveries {
    delivered: u64,
    owed: Vec<(ConnId, [u8; 2])>,
}

impl Output for Deliveries {
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

/// The clients of a broker.
pub struct Shape {
    /// Clients 0 and up.
    pub publishers: u64,
    /// Clients after these.
    pub subscribers: u64,
    /// Of publishing and of the subscriptions: 0 or 1.
    pub qos: u64,
    /// Of MQTT: 4 is 3.1.1, or 5.
    pub version: u64,
    /// Sessions are kept, and their reliable events logged.
    pub has_log: bool,
    /// The cache has [`SMALL_CACHE`] bytes, fewer than the events of a thousand rounds take.
    pub has_small_cache: bool,
}

/// One publisher and one subscriber, QoS 0, MQTT 3.1.1.
pub const PLAIN: Shape =
    Shape { publishers: 1, subscribers: 1, qos: 0, version: 4, has_log: false, has_small_cache: false };

/// See [`Shape::has_small_cache`].
const SMALL_CACHE: u64 = 128 << 10;

/// A broker with a log that is durable as soon as it is written.
struct Logged {
    broker: MqttBroker,
    sink: Deliveries,
}

impl Logged {
    /// Applies an input, and all that becomes durable by it.
    fn handle(&mut self, now: Time, input: Input<'_>) {
        counted(&mut self.broker, now, input, &mut self.sink);
        while let Some(upto) = self.broker.batch().is_some().then(|| self.broker.submitted()) {
            counted(&mut self.broker, now, Input::Committed { upto }, &mut self.sink);
        }
    }
}

/// Publishes in `rounds` rounds; returns the number of deliveries.
pub fn run(rounds: u64, shape: &Shape) -> u64 {
    let Shape { publishers, subscribers, qos, version, has_log, has_small_cache } = *shape;
    let (qos, version) = (qos as u8, version as u8);
    // MQTT 5 has a length of properties, which is 0.
    let none: &[u8] = if version == 5 { &[0] } else { &[] };
    let clean_start = if has_log { 0 } else { 2 };
    let begin = Time::from_nanos(1_767_225_600_000_000_000);
    let config = Config { sys_interval: None, ..Config::default() };
    let broker = if has_log {
        MqttBroker::restored(config, 1, begin, Restoring::default(), &LogState::default()).expect("an empty log")
    } else {
        MqttBroker::new(config, 1, begin)
    };
    let mut logged = Logged { broker, sink: Deliveries::default() };
    if has_small_cache {
        let default = DefaultPlan { capacity: Capacity::Bytes(SMALL_CACHE), policy: Policy::Lrp };
        let plan = Plan { partitions: Vec::new(), default, ceiling: SMALL_CACHE };
        logged.handle(begin, Input::Cache(&plan));
    }
    for conn in 0..publishers + subscribers {
        let id = ConnId(conn as u32);
        let client = text(&format!("client {conn}"));
        let connect = packet(0x10, &[&text("MQTT"), &[version, clean_start, 0, 0], none, &client]);
        logged.handle(begin, Input::Opened { conn: id, origin: Origin::Tcp });
        logged.handle(begin, Input::Bytes { conn: id, bytes: &connect });
        if conn >= publishers {
            let subscribe = packet(0x82, &[&[0, 1], none, &text(TOPIC), &[qos]]);
            logged.handle(begin, Input::Bytes { conn: id, bytes: &subscribe });
        }
    }
    let tag: &[u8] = if qos > 0 { &[0, 1] } else { &[] };
    let publish = packet(0x30 | qos << 1, &[&text(TOPIC), tag, none, &[b'.'; 64]]);
    for round in 0..rounds {
        let now = Time::from_nanos(begin.as_nanos() + (round + 1) * 1000);
        for conn in 0..publishers {
            logged.handle(now, Input::Bytes { conn: ConnId(conn as u32), bytes: &publish });
            while let Some((conn, [high, low])) = logged.sink.owed.pop() {
                logged.handle(now, Input::Bytes { conn, bytes: &[0x40, 2, high, low] });
            }
        }
    }
    assert_eq!(logged.sink.delivered, rounds * publishers * subscribers, "each message reaches each subscriber");
    logged.sink.delivered
}
