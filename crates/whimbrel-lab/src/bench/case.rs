//! The loads that brokers are compared by.

use clap::ValueEnum;

use super::closed_loop::Load;
use super::wire::QoS;

/// Name of a case, as in the table of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Case {
    /// QoS 0, one publisher to one subscriber
    A,
    /// QoS 0, one publisher to 10 subscribers
    B10,
    /// QoS 0, one publisher to 100 subscribers
    B100,
    /// QoS 0, 10 publishers to 10 subscribers, each pair with its own topic
    C,
    /// QoS 1, one publisher to one subscriber
    D,
    /// QoS 1, one publisher to 100 subscribers
    E,
}

/// Defaults for what a load leaves open.
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
    /// What this case sends to whom.
    pub fn load(self, bounds: Bounds) -> Load {
        let (publishers, subscribers, qos) = match self {
            Case::A => (1, 1, QoS::AtMostOnce),
            Case::B10 => (1, 10, QoS::AtMostOnce),
            Case::B100 => (1, 100, QoS::AtMostOnce),
            Case::C => (10, 1, QoS::AtMostOnce),
            Case::D => (1, 1, QoS::AtLeastOnce),
            Case::E => (1, 100, QoS::AtLeastOnce),
        };
        let Bounds { body, window, unacknowledged } = bounds;
        Load { publishers, subscribers, qos, body, window, unacknowledged }
    }

    /// What it is called in tables.
    pub fn title(self) -> &'static str {
        match self {
            Case::A => "QoS 0 1→1",
            Case::B10 => "QoS 0 1→10",
            Case::B100 => "QoS 0 1→100",
            Case::C => "QoS 0 10→10 own topics",
            Case::D => "QoS 1 1→1",
            Case::E => "QoS 1 1→100",
        }
    }
}
