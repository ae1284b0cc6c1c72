//! Connections that are silent for too long end, once it is certain that none of their bytes are
//! unread.

use whimbrel_core::{Input as CoreInput, Link, Unread};
use whimbrel_event::Time;

use super::conn::State;
use super::{ConnId, MqttBroker, Output};
use crate::codec::ReasonCode;
use crate::config::LISTEN_MAX;

impl MqttBroker {
    /// A connection has been read to its end, as far as that was possible.
    pub(super) fn has_read_out(&mut self, now: Time, conn: ConnId, is_whole: bool, out: &mut impl Output) {
        let Some(known) = self.edge.conns.get_mut(conn.0 as usize) else { return };
        let state = known.state;
        if state == State::Attached {
            self.core_input(now, CoreInput::ReadOut { link: Link(conn.0), is_whole }, out);
        }
        let known = &mut self.edge.conns[conn.0 as usize];
        let listened = known.rare.as_mut().is_some_and(|rare| core::mem::take(&mut rare.listening));
        if listened && matches!(known.state, State::Attached | State::ExpectConnect) {
            self.silent(now, conn.0, false, out);
        }
        self.edge.leave_read(conn.0);
    }

    /// Starts to read a connection that seems to be silent to its end, and returns whether there is
    /// data to read: the delay may be the broker's, not the client's.
    fn listens(&mut self, now: Time, conn: u32, out: &mut impl Output) -> bool {
        let is_coming = out.read_out(ConnId(conn)) == Unread::Coming;
        if is_coming {
            self.edge.conns[conn as usize].rare().listening = true;
            self.edge.watch(conn, now.after(LISTEN_MAX));
        }
        is_coming
    }

    /// A connection's timer has expired, or it has been read to its end: it has been silent for too
    /// long, or has sent a packet since the timer was set. `may_listen`: bytes may be unread.
    pub(super) fn silent(&mut self, now: Time, conn: u32, may_listen: bool, out: &mut impl Output) {
        let known = &self.edge.conns[conn as usize];
        let (state, patience) = (known.state, known.patience);
        let heard = if known.is_paused() { now } else { known.last_heard };
        let is_read = state == State::ExpectConnect || state == State::Attached && !patience.is_zero();
        if is_read && self.core.is_congested() {
            // No connection is read while too much waits for the disk.
            return self.edge.watch(conn, now.after(LISTEN_MAX));
        }
        match state {
            State::Gone => {}
            State::ExpectConnect if may_listen && self.listens(now, conn, out) => {}
            State::ExpectConnect => {
                self.edge.stats.connect_timeouts += 1;
                self.end(now, conn, ReasonCode::MAXIMUM_CONNECT_TIME, "no CONNECT in time", out);
            }
            State::Identifying => {
                let cause = "signing in takes too long: try again in a few seconds";
                self.end(now, conn, ReasonCode::SERVER_BUSY, cause, out);
            }
            State::Awaiting => {
                let cause = "the session was not found in time: try again";
                self.end(now, conn, ReasonCode::SERVER_UNAVAILABLE, cause, out);
            }
            State::Attached if patience.is_zero() => {}
            State::Attached => {
                let due = heard.after(patience);
                if due > now {
                    self.edge.watch(conn, due);
                } else if !(may_listen && self.listens(now, conn, out)) {
                    self.edge.stats.keep_alive_timeouts += 1;
                    self.end(now, conn, ReasonCode::KEEP_ALIVE_TIMEOUT, "nothing came within the keep-alive", out);
                }
            }
        }
    }
}
