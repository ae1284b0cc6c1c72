//! The end of connections: their peers have closed them, they break a rule, or a publish was
//! refused without an answer.

use core::time::Duration;
use std::collections::BTreeSet;

use whimbrel_core::{Input as CoreInput, Link};
use whimbrel_event::Time;

use super::conn::State;
use super::outbound::Outbound;
use super::refuse::NO_WORD;
use super::{ConnId, Edge, MqttBroker, Output};
use crate::codec::ReasonCode;
use crate::config::{ENDED_WAITING_MAX, REFUSED_UNREAD};

/// Connections of [`Endings::later`] that end in one step.
const ENDINGS_SLICE: usize = 64;

/// Connections that end, but not immediately.
#[derive(Debug, Default)]
pub(super) struct Endings {
    /// Connections that the current step has to end because a publish was refused, with the reason.
    pub(super) now: Vec<(u32, ReasonCode, &'static str)>,
    /// Connections that are not read any more, with the time at which they end.
    pub(super) later: BTreeSet<(Time, u32)>,
    /// The cause of those refusals is gone: the connections in `later` end now.
    pub(super) is_released: bool,
    /// Number of connections that have ended while they waited for their sessions, with packets to
    /// handle once they have them: at most [`ENDED_WAITING_MAX`].
    pub(super) waiting: usize,
}

impl Endings {
    /// When the next connection ends; immediately when they are released.
    pub(super) fn next(&self) -> Option<Time> {
        let (at, _) = *self.later.first()?;
        Some(if self.is_released { Time::ZERO } else { at })
    }
}

impl MqttBroker {
    /// Does the remaining work of the current step, in rounds, because one ending leads to another:
    /// when a connection ends, connections that waited for its session get it, and the packets that
    /// they sent meanwhile are handled. Each round ends a connection, or handles the packets of one
    /// that waited.
    pub(super) fn finish(&mut self, now: Time, out: &mut impl Output) {
        while self.edge.is_unfinished() {
            self.look_after(now, out);
            self.take_admitted(now, out);
            while let Some((conn, reason, cause)) = self.edge.endings.now.pop() {
                self.end(now, conn, reason, cause, out);
            }
        }
    }

    pub(super) fn closed(&mut self, now: Time, conn: ConnId, out: &mut impl Output) {
        let Some(known) = self.edge.conns.get_mut(conn.0 as usize) else { return };
        if known.state.is_waiting() && !known.partial.is_empty() && self.edge.endings.waiting < ENDED_WAITING_MAX {
            // A client that does not wait for answers may have sent everything already.
            if !core::mem::replace(&mut known.rare().ended, true) {
                self.edge.endings.waiting += 1;
            }
            return;
        }
        match known.state {
            State::Gone => return,
            State::ExpectConnect | State::Identifying => {}
            State::Awaiting => self.withdraw(now, conn.0, out),
            State::Attached => self.detach(now, conn.0, true, None, out),
        }
        self.edge.stats.connections_lost += 1;
        self.edge.forget(conn.0);
    }

    /// Tells the core that a connection has ended.
    pub(super) fn detach(
        &mut self,
        now: Time,
        conn: u32,
        publish_will: bool,
        expiry: Option<Duration>,
        out: &mut impl Output,
    ) {
        // The core must get no input of this link while it detaches it.
        self.edge.conns[conn as usize].state = State::Gone;
        self.edge.stats.connections_accepted -= 1;
        let input = CoreInput::Detach { link: Link(conn), publish_will, expiry };
        self.core.handle(now, input, &mut Outbound::new(&mut self.edge, out, now));
    }

    /// Tells the core that a connection which still waits for its session has ended.
    pub(super) fn withdraw(&mut self, now: Time, conn: u32, out: &mut impl Output) {
        let input = CoreInput::Detach { link: Link(conn), publish_will: false, expiry: None };
        self.core.handle(now, input, &mut Outbound::new(&mut self.edge, out, now));
    }

    /// Ends a connection: tells the client the reason if the protocol allows it, and closes. Its
    /// will is published.
    pub(super) fn end(&mut self, now: Time, conn: u32, reason: ReasonCode, cause: &str, out: &mut impl Output) {
        match self.edge.conns[conn as usize].state {
            State::Gone => {}
            State::ExpectConnect => self.edge.refuse(conn, "", reason, cause, out),
            State::Identifying | State::Awaiting => {
                if self.edge.conns[conn as usize].state == State::Awaiting {
                    self.withdraw(now, conn, out);
                }
                let client_id = self.edge.waiting_client(conn);
                // CONNACK has no reason code for the end of the server.
                let is_shutdown = reason == ReasonCode::SERVER_SHUTTING_DOWN;
                let reason = if is_shutdown { ReasonCode::SERVER_UNAVAILABLE } else { reason };
                self.edge.refuse(conn, &client_id, reason, cause, out);
            }
            State::Attached => {
                self.edge.say_goodbye(conn, reason, cause, out);
                self.detach(now, conn, true, None, out);
                self.edge.forget(conn);
            }
        }
    }
}

impl Edge {
    /// Whether the current step has work left.
    #[inline]
    pub(super) fn is_unfinished(&self) -> bool {
        self.guard.has_found() || !self.admitted.conns.is_empty() || !self.endings.now.is_empty()
    }

    /// Ends a connection with the current step; no further packet of it is handled or acknowledged.
    pub(super) fn end_soon(&mut self, id: u32, reason: ReasonCode, cause: &'static str) {
        self.conns[id as usize].deaf = true;
        self.endings.now.push((id, reason, cause));
    }

    /// Stops reading a connection, and ends it when there is room again, or after
    /// [`REFUSED_UNREAD`]: its client then sends unacknowledged publishes again.
    pub(super) fn end_later(&mut self, now: Time, id: u32, out: &mut impl Output) {
        let conn = &mut self.conns[id as usize];
        let (is_read, at) = (!conn.is_paused(), now.after(REFUSED_UNREAD));
        conn.deaf = true;
        conn.rare().ends_at = Some(at);
        self.endings.later.insert((at, id));
        if is_read {
            out.pause(ConnId(id));
        }
    }

    /// Ends those of [`Edge::end_later`] that are due with the current step, at most
    /// [`ENDINGS_SLICE`], so that other connections are served in between.
    pub(super) fn end_due(&mut self, now: Time) {
        for _ in 0..ENDINGS_SLICE {
            let Some(&(at, id)) = self.endings.later.first() else {
                self.endings.is_released = false;
                return;
            };
            if at > now && !self.endings.is_released {
                return;
            }
            self.endings.later.pop_first();
            self.conns[id as usize].rare().ends_at = None;
            self.endings.now.push((id, ReasonCode::QUOTA_EXCEEDED, NO_WORD));
        }
    }
}
