//! The broker disconnects its clients before it ends. The data that a connection has already sent
//! is handled first, and a client with pending answers gets them first: otherwise it would repeat
//! at another broker what was accepted here.

use core::time::Duration;

use whimbrel_core::{Link, Unread};
use whimbrel_event::Time;

use super::conn::State;
use super::{ConnId, Edge, MqttBroker, Output};
use crate::codec::ReasonCode;
use crate::config::ANSWERS_WITHIN;

/// Connections that are still to be disconnected.
#[derive(Debug)]
pub(super) struct Leave {
    waiting: Vec<u32>,
    /// The time at which they are disconnected in any case.
    until: Time,
    /// The number of them that are being read to their end. Until it is 0 all stay, because their
    /// publishes may be for each other.
    unread: usize,
    /// The last of these has just been read.
    is_read: bool,
}

impl Leave {
    /// The time at which the clients are disconnected in any case, if there are any.
    pub(super) fn deadline(&self) -> Option<Time> {
        (!self.waiting.is_empty()).then_some(self.until)
    }

    /// Takes the flag that the last connection has just been read to its end.
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

    /// Disconnects clients that have their answers, or all of them after the deadline.
    pub(super) fn let_go(&mut self, now: Time, out: &mut impl Output) {
        let Some(leave) = self.edge.leave.as_mut().filter(|leave| !leave.waiting.is_empty()) else { return };
        let is_late = now >= leave.until;
        if leave.unread > 0 && !is_late {
            return;
        }
        let mut waiting = core::mem::take(&mut leave.waiting);
        waiting.retain(|conn| {
            let known = &self.edge.conns[*conn as usize];
            // The number of an ended connection may belong to another one now.
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
