//! What the broker does in one call, collected for those who look at it, tamper with it, and carry
//! it away.

use mqtt_protocol_core::mqtt::Version;
use whimbrel_mqtt::{ConnId, Output};

use crate::check::{Outcome, Seen};

/// Collects what the broker says in one call.
pub(crate) struct Sink<'a> {
    pub(crate) outcome: Outcome,
    /// Who is to be told when they have drained.
    pub(crate) notify: Vec<ConnId>,
    /// What counts as waiting for a client.
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

/// Stands between the broker and everybody else: how the checkers are tested.
pub trait Tamper {
    /// May change what the broker hears.
    fn mishear(&mut self, _conn: ConnId, _bytes: &mut Vec<u8>) {}

    /// May change, add or take away what the broker says. `version` tells what is spoken on a
    /// connection.
    fn tamper(&mut self, _seen: Seen<'_>, _outcome: &mut Outcome, _version: &dyn Fn(ConnId) -> Version) {}
}
