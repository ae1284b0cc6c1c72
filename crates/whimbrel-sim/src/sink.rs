//! The output of one call of the broker, collected so that it can be checked, tampered with, and
//! carried away.

use mqtt_protocol_core::mqtt::Version;
use whimbrel_mqtt::{ConnId, Output};

use crate::check::{Outcome, Seen};

/// Collects the output of one call of the broker.
pub(crate) struct Sink<'a> {
    pub(crate) outcome: Outcome,
    /// Connections to be reported when they have drained.
    pub(crate) notify: Vec<ConnId>,
    /// The number of bytes that count as waiting for a client.
    pub(crate) backlog: &'a dyn Fn(ConnId) -> usize,
}

impl Output for Sink<'_> {
    fn send(&mut self, conn: ConnId, bytes: &mut Vec<u8>) {
        let again = self.outcome.sends.iter().any(|(known, _)| *known == conn);
        assert!(!again, "a second send to {conn:?} in one call of the broker");
        self.outcome.sends.push((conn, core::mem::take(bytes)));
    }

    fn close(&mut self, conn: ConnId) {
        self.outcome.closes.push(conn);
    }

    fn backlog(&self, conn: ConnId) -> usize {
        (self.backlog)(conn)
    }

    fn notify_drained(&mut self, conn: ConnId) {
        self.notify.push(conn);
    }
}

/// Stands between the broker and all clients: how the checkers are tested.
pub trait Tamper {
    /// May change bytes before the broker reads them.
    fn mishear(&mut self, _conn: ConnId, _bytes: &mut Vec<u8>) {}

    /// May change, add or remove output of the broker. `version`: the protocol version of a
    /// connection.
    fn tamper(&mut self, _seen: Seen<'_>, _outcome: &mut Outcome, _version: &dyn Fn(ConnId) -> Version) {}
}
