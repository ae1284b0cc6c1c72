//! The broker takes leave of its clients. What a connection has already sent is handled first, and
//! a client that is owed answers gets them first: it would send again, at another broker, what was
//! accepted here.

use core::time::Duration;

use whimbrel_core::{Link, Unread};
use whimbrel_event::Time;

use super::conn::State;
use super::{ConnId, Edge, MqttBroker, Output};
use crate::codec::ReasonCode;
use crate::config::ANSWERS_WITHIN;

/// Connections that are still to be told to go.
#[derive(Debug)]
pub(super) struct Leave {
    waiting: Vec<u32>,
    /// Until when they wait.
    until: Time,
    /// How many of them are being read to their end. Until none is, all stay: what they have sent
    /// may be for each other.
    unread: usize,
    /// The last of these has been read just now.
    is_read: bool,
}

impl Leave {
    /// When the clients are told to go in any case, if there are any.
    pub(super) fn deadline(&self) -> Option<Time> {
        (!self.waiting.is_empty()).then_some(self.until)
    }

    /// Whether the last connection has been read to its end just now.
    pub(super) fn take_read(&mut self) -> bool {
        core::mem::take(&mut self.is_read)
    }
}

impl MqttBroker {
    pub(super) fn drain(&mut self, now: Time, within: Duration, out: &mut impl Output) {
        let until = now.after(within.min(ANSWERS_WITHIN));
        let mut unread = 0;
        for (known, conn) in self.edge.conns.iter_mut().zip(0..) {
            let is_waited_for = known.state == State::Attached && until > now;
            if is_waited_for && out.read_out(ConnId(conn)) == Unread::Coming {
                known.rare().unread = true;
                unread += 1;
            }
        }
        let mut waiting = Vec::new();
        for conn in 0..self.edge.conns.len() as u32 {
            let is_waited_for = self.edge.conns[conn as usize].state == State::Attached && until > now;
            if !is_waited_for || unread == 0 && !self.core.has_pending_answers(Link(conn)) {
                self.leave(now, conn, out);
                continue;
            }
            waiting.push(conn);
            let known = &mut self.edge.conns[conn as usize];
            let is_read = !known.is_paused();
            known.rare().leaving = true;
            if is_read {
                out.pause(ConnId(conn));
            }
        }
        self.edge.leave = Some(Leave { waiting, until, unread, is_read: false });
    }

    /// Clients that have their answers are told to go, and all when it takes too long.
    pub(super) fn let_go(&mut self, now: Time, out: &mut impl Output) {
        let Some(leave) = self.edge.leave.as_mut().filter(|leave| !leave.waiting.is_empty()) else { return };
        let is_late = now >= leave.until;
        if leave.unread > 0 && !is_late {
            return;
        }
        let mut waiting = core::mem::take(&mut leave.waiting);
        waiting.retain(|conn| {
            let known = &self.edge.conns[*conn as usize];
            // Another one may have come in the place of one that has ended.
            let is_there = known.state == State::Attached && known.rare.as_ref().is_some_and(|rare| rare.leaving);
            let stays = is_there && !is_late && self.core.has_pending_answers(Link(*conn));
            if is_there && !stays {
                self.leave(now, *conn, out);
            }
            stays
        });
        if let Some(leave) = &mut self.edge.leave {
            leave.waiting = waiting;
        }
    }

    fn leave(&mut self, now: Time, conn: u32, out: &mut impl Output) {
        self.end(now, conn, ReasonCode::SERVER_SHUTTING_DOWN, "the broker is shutting down", out);
    }
}

impl Edge {
    /// A connection has been read to its end, or has ended.
    pub(super) fn leave_read(&mut self, conn: u32) {
        let rare = self.conns[conn as usize].rare.as_mut();
        let was_unread = rare.is_some_and(|rare| core::mem::take(&mut rare.unread));
        if let Some(leave) = self.leave.as_mut().filter(|_| was_unread) {
            leave.unread -= 1;
            leave.is_read = leave.unread == 0;
        }
    }
}
