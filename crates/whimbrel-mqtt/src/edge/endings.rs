//! Connections end: their peers have closed them, they break a rule, or a publish of them was
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

/// Connections of [`Endings::later`] that end in one turn.
const ENDINGS_SLICE: usize = 64;

/// Connections that end, but not at once.
#[derive(Debug, Default)]
pub(super) struct Endings {
    /// Those that the present step has to end, as a publish was refused without an answer, and why.
    pub(super) now: Vec<(u32, ReasonCode, &'static str)>,
    /// Those that are not read any more, and when they end.
    pub(super) later: BTreeSet<(Time, u32)>,
    /// The reason for which those were refused is gone: they end now.
    pub(super) is_released: bool,
    /// Connections that have ended while they waited for their sessions, and sent what is handled
    /// once they have them: at most [`ENDED_WAITING_MAX`].
    pub(super) waiting: usize,
}

impl Endings {
    /// When the next one is due; at once when they are released.
    pub(super) fn next(&self) -> Option<Time> {
        let (at, _) = *self.later.first()?;
        Some(if self.is_released { Time::ZERO } else { at })
    }
}

impl MqttBroker {
    /// Does what the present step has left to do. One thing leads to another: with a connection
    /// that ends, those get their sessions that waited for it, and what they have sent meanwhile is
    /// handled. Each round ends a connection, or handles what one has sent while it waited.
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
            // A client that does not wait for answers may have sent all it wanted to.
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
        // The core must not be told anything of this link while it lets go.
        self.edge.conns[conn as usize].state = State::Gone;
        self.edge.stats.connections_accepted -= 1;
        let input = CoreInput::Detach { link: Link(conn), publish_will, expiry };
        self.core.handle(now, input, &mut Outbound { edge: &mut self.edge, driver: out, now });
    }

    /// Tells the core that a connection has ended which still waits for its session.
    pub(super) fn withdraw(&mut self, now: Time, conn: u32, out: &mut impl Output) {
        let input = CoreInput::Detach { link: Link(conn), publish_will: false, expiry: None };
        self.core.handle(now, input, &mut Outbound { edge: &mut self.edge, driver: out, now });
    }

    /// Ends a connection for a reason: tells the client where the protocol allows, and closes. Its
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
                // CONNACK has no word for the end of the server.
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
    /// Whether the present step has left something to do.
    #[inline]
    pub(super) fn is_unfinished(&self) -> bool {
        self.guard.has_found() || !self.admitted.conns.is_empty() || !self.endings.now.is_empty()
    }

    /// A connection ends with the present step; nothing more of it is handled or acknowledged.
    pub(super) fn end_soon(&mut self, id: u32, reason: ReasonCode, cause: &'static str) {
        self.conns[id as usize].deaf = true;
        self.endings.now.push((id, reason, cause));
    }

    /// A connection is not read any more, and ends when there is room again, or after a while: its
    /// client sends again then what was not acknowledged.
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

    /// Those of [`Edge::end_later`] whose time has come end with the present step, at most
    /// [`ENDINGS_SLICE`]: others have their turn.
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
