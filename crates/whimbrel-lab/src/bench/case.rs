//! The loads with which brokers are compared.

use clap::ValueEnum;

use super::closed_loop::Load;
use super::target::Target;
use super::wire::{Protocol, QoS};

/// Name of a case, as in the table of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Case {
    /// QoS 0, one publisher to one subscriber
    A,
    /// A, with whimbrel's clients speaking MQTT 5
    A5,
    /// QoS 0, one publisher to 10 subscribers
    B10,
    /// QoS 0, one publisher to 100 subscribers
    B100,
    /// QoS 0, 10 publishers to 10 subscribers, each pair with its own topic
    C,
    /// QoS 1, one publisher to one subscriber
    D,
    /// D, with whimbrel's clients speaking MQTT 5
    D5,
    /// QoS 1, one publisher to 100 subscribers
    E,
    /// Latency at 5,000 messages per second, QoS 0, one publisher to one subscriber
    F,
    /// The same before and after another subscriber stops reading, 1,000-byte bodies
    G,
    /// Idle connections with one subscription each, on a freshly started broker
    Idle,
}

/// How a case is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Method {
    /// By a closed loop.
    Throughput(Load),
    /// By an open loop.
    Latency,
    /// By an open loop, with a subscriber that stops reading.
    Disturbed,
    /// By opening connections.
    Idle,
}

/// The parameters that the cases leave open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes of a body.
    pub body: usize,
    /// See [`Load::window`].
    pub window: u64,
    /// See [`Load::unacknowledged`].
    pub unacknowledged: u64,
}

impl Case {
    /// How this case is measured.
    pub fn method(self, bounds: Bounds) -> Method {
        let Bounds { body, window, unacknowledged } = bounds;
        let throughput = |publishers, subscribers, qos| {
            Method::Throughput(Load {
                publishers,
                subscribers,
                qos,
                body,
                window,
                unacknowledged,
                user: &[],
                lasting: false,
            })
        };
        match self {
            Case::A | Case::A5 => throughput(1, 1, QoS::AtMostOnce),
            Case::B10 => throughput(1, 10, QoS::AtMostOnce),
            Case::B100 => throughput(1, 100, QoS::AtMostOnce),
            Case::C => throughput(10, 1, QoS::AtMostOnce),
            Case::D | Case::D5 => throughput(1, 1, QoS::AtLeastOnce),
            Case::E => throughput(1, 100, QoS::AtLeastOnce),
            Case::F => Method::Latency,
            Case::G => Method::Disturbed,
            Case::Idle => Method::Idle,
        }
    }

    /// A broker's address, with the protocol in which whimbrel's clients speak in this case. Those
    /// of other brokers speak the one in which these are best.
    pub fn target_of_whimbrel(self, target: Target) -> Target {
        match (self, target.protocol) {
            (Case::A5 | Case::D5, Protocol::Mqtt311) => Target { protocol: Protocol::Mqtt5, ..target },
            _ => target,
        }
    }

    /// The quality of service of this case.
    pub fn qos(self) -> QoS {
        match self {
            Case::D | Case::D5 | Case::E => QoS::AtLeastOnce,
            _ => QoS::AtMostOnce,
        }
    }

    /// Its short name, as on the command line.
    pub fn id(self) -> &'static str {
        match self {
            Case::A => "A",
            Case::A5 => "A5",
            Case::B10 => "B10",
            Case::B100 => "B100",
            Case::C => "C",
            Case::D => "D",
            Case::D5 => "D5",
            Case::E => "E",
            Case::F => "F",
            Case::G => "G",
            Case::Idle => "Idle",
        }
    }

    /// Its title in tables.
    pub fn title(self) -> &'static str {
        match self {
            Case::A => "QoS 0 1→1",
            Case::A5 => "QoS 0 1→1, MQTT 5",
            Case::B10 => "QoS 0 1→10",
            Case::B100 => "QoS 0 1→100",
            Case::C => "QoS 0 10→10 own topics",
            Case::D => "QoS 1 1→1",
            Case::D5 => "QoS 1 1→1, MQTT 5",
            Case::E => "QoS 1 1→100",
            Case::F => "latency at 5,000/s",
            Case::G => "one subscriber stuck",
            Case::Idle => "idle connections",
        }
    }
}
