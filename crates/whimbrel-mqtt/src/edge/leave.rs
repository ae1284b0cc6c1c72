//! The broker takes leave of its clients. Whoever is owed answers to what it has sent gets them first: it would send again, at another broker, what was
//! accepted here.

use core::time::Duration;

use whimbrel_core::Link;
use whimbrel_event::Time;

use super::conn::State;
use super::{Broker, ConnId, Output};
use crate::codec::ReasonCode;
use crate::config::ANSWERS_WITHIN;

/// Who is still to be told to go.
#[derive(Debug)]
pub(super) struct Leave {
    /// Connections that are owed answers.
    waiting: Vec<u32>,
    /// Until when they get them.
    until: Time,
}

impl Leave {
    /// When nobody waits for answers any longer, if somebody does.
    pub(super) fn deadline(&self) -> Option<Time> {
        (!self.waiting.is_empty()).then_some(self.until)
    }
}

impl Broker {
    pub(super) fn drain(&mut self, now: Time, within: Duration, out: &mut impl Output) {
        let (until, mut waiting) = (now.after(within.min(ANSWERS_WITHIN)), Vec::new());
        for conn in 0..self.edge.conns.len() as u32 {
            let is_owed = self.edge.conns[conn as usize].state == State::Attached && self.core.owes_answers(Link(conn));
            if !is_owed || until == now {
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
        self.edge.leave = Some(Leave { waiting, until });
    }

    /// Those who have their answers are told to go, and all when it takes too long.
    pub(super) fn let_go(&mut self, now: Time, out: &mut impl Output) {
        let Some(leave) = self.edge.leave.as_mut().filter(|leave| !leave.waiting.is_empty()) else { return };
        let (is_late, mut waiting) = (now >= leave.until, core::mem::take(&mut leave.waiting));
        waiting.retain(|conn| {
            let known = &self.edge.conns[*conn as usize];
            // Another one may have come in the place of one that has ended.
            let is_there = known.state == State::Attached && known.rare.as_ref().is_some_and(|rare| rare.leaving);
            let stays = is_there && !is_late && self.core.owes_answers(Link(*conn));
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
