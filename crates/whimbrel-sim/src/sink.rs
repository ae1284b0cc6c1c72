//! What the broker does in one call, collected for those who look at it and carry it away.

use whimbrel_mqtt::{ConnId, Output};

use crate::check::Outcome;

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
