//! Received bytes: they are cut into packets, and the rest, an incomplete packet, is kept.

use whimbrel_core::{Input as CoreInput, Link};
use whimbrel_event::Time;

use super::conn::State;
use super::{ConnId, MqttBroker, Output};
use crate::codec::{ReasonCode, frame};
use crate::config::{AHEAD_ENOUGH, AHEAD_MAX, ANSWERS_MAX, PARTIAL_FREE};

impl MqttBroker {
    pub(super) fn receive(&mut self, now: Time, conn: ConnId, bytes: &[u8], out: &mut impl Output) {
        let id = conn.0;
        let Some(known) = self.edge.conns.get_mut(id as usize) else { return };
        if known.state == State::Gone {
            return;
        }
        known.last_heard = now;
        known.wire.traffic.bytes_in += bytes.len() as u64;
        self.edge.stats.bytes_in += bytes.len() as u64;
        if known.state.is_waiting() {
            return self.hold_back(now, id, bytes, out);
        }
        if known.wire.unread > ANSWERS_MAX {
            let cause = "the client does not read the answers to what it sends";
            return self.end(now, id, ReasonCode::QUOTA_EXCEEDED, cause, out);
        }
        let publishes = self.edge.stats.publishes_in;
        self.import_bytes(now, id, bytes, out);
        let publishes = self.edge.stats.publishes_in - publishes;
        self.edge.conns[id as usize].wire.traffic.publishes_in += publishes;
        self.edge.spend(now, id, (publishes, bytes.len()), out);
    }

    /// Keeps bytes of a connection that waits for its session, or to be identified.
    fn hold_back(&mut self, now: Time, id: u32, bytes: &[u8], out: &mut impl Output) {
        let mut partial = self.edge.take_partial(id);
        if partial.len() + bytes.len() > AHEAD_MAX {
            let cause = "the client sends more before its CONNECT is answered than is kept";
            return self.end(now, id, ReasonCode::QUOTA_EXCEEDED, cause, out);
        }
        partial.extend_from_slice(bytes);
        let is_enough = partial.len() > AHEAD_ENOUGH;
        self.edge.put_partial(id, partial);
        let conn = &mut self.edge.conns[id as usize];
        if is_enough && !conn.is_paused() {
            conn.rare().paused = true;
            out.pause(ConnId(id));
        }
        self.bound_partials(now, out);
    }

    /// Handles the bytes that connections sent while they waited for their sessions.
    pub(super) fn take_admitted(&mut self, now: Time, out: &mut impl Output) {
        while let Some(id) = self.edge.admitted.conns.pop() {
            if self.edge.conns[id as usize].state == State::Attached {
                let carried = self.core.unreleased(Link(id));
                self.edge.conns[id as usize].carry(carried);
                let ahead = self.edge.take_partial(id);
                self.import_bytes(now, id, &ahead, out);
                let known = &self.edge.conns[id as usize];
                if known.state == State::Attached && known.rare.as_ref().is_some_and(|rare| rare.ended) {
                    self.edge.close(id, out);
                    self.closed(now, ConnId(id), out);
                }
            }
            // Connections that claim these sessions may be attached next.
            while let Some(id) = self.edge.admitted.superseded.pop() {
                if self.edge.conns[id as usize].state == State::Attached {
                    self.core_input(now, CoreInput::ReadOut { link: Link(id), is_whole: true }, out);
                }
            }
        }
    }

    fn import_bytes(&mut self, now: Time, id: u32, bytes: &[u8], out: &mut impl Output) {
        let mut partial = self.edge.take_partial(id);
        let mut rest = bytes;
        if !partial.is_empty() {
            rest = self.complete(now, id, &mut partial, rest, out);
        }
        while !rest.is_empty() && self.edge.conns[id as usize].is_heard() {
            if self.edge.conns[id as usize].state.is_waiting() {
                return self.hold_back(now, id, rest, out);
            }
            match frame(rest, self.edge.config.limits.max_packet_size as usize) {
                Ok(Some(frame)) => {
                    self.packet(now, id, &frame, out);
                    rest = &rest[frame.whole.len()..];
                }
                Ok(None) if self.edge.conns[id as usize].state == State::ExpectConnect && rest[0] >> 4 != 1 => {
                    // Another protocol: its first bytes seldom make a whole packet, and more bytes
                    // would not help.
                    self.end(now, id, ReasonCode::PROTOCOL_ERROR, "the first packet is not CONNECT", out);
                }
                Ok(None) => {
                    partial.extend_from_slice(rest);
                    break;
                }
                Err(error) => self.end(now, id, error.reason, error.cause, out),
            }
        }
        if self.edge.conns[id as usize].state != State::Gone {
            self.edge.put_partial(id, partial);
            self.bound_partials(now, out);
        }
    }

    /// Ends connections, those with the largest incomplete packets first, until the total is within
    /// its limit.
    #[inline]
    fn bound_partials(&mut self, now: Time, out: &mut impl Output) {
        while self.edge.partial_bytes > self.edge.config.limits.partial_bytes {
            let sizes = self.edge.conns.iter().zip(0_u32..).map(|(conn, id)| (conn.partial.capacity(), id));
            let Some((_, largest)) = sizes.max() else { return };
            let cause = "the broker holds as much of incomplete packets as it may: try again later";
            self.end(now, largest, ReasonCode::QUOTA_EXCEEDED, cause, out);
        }
    }

    /// Adds the bytes that an incomplete packet lacks from `bytes`, and handles it if that
    /// completes it; returns the rest.
    fn complete<'a>(
        &mut self,
        now: Time,
        id: u32,
        partial: &mut Vec<u8>,
        bytes: &'a [u8],
        out: &mut impl Output,
    ) -> &'a [u8] {
        let mut rest = bytes;
        loop {
            match frame(partial, self.edge.config.limits.max_packet_size as usize) {
                Ok(Some(frame)) => {
                    debug_assert_eq!(frame.whole.len(), partial.len(), "no more is kept than one packet lacks");
                    self.packet(now, id, &frame, out);
                    *partial = Vec::new();
                    return rest;
                }
                Ok(None) if rest.is_empty() => return rest,
                Ok(None) => {
                    let lacking = lacking(partial).min(rest.len());
                    partial.extend_from_slice(&rest[..lacking]);
                    rest = &rest[lacking..];
                }
                Err(error) => {
                    self.end(now, id, error.reason, error.cause, out);
                    return &[];
                }
            }
        }
    }
}

/// The number of bytes that an incomplete packet lacks at least: 1 or more.
fn lacking(partial: &[u8]) -> usize {
    let mut length = 0_usize;
    for (index, byte) in partial.iter().skip(1).take(4).enumerate() {
        length |= usize::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return (2 + index + length).saturating_sub(partial.len()).max(1);
        }
    }
    1
}

/// Bytes of an incomplete packet that count towards the limit over all connections.
pub(super) fn counted(partial: &Vec<u8>) -> usize {
    if partial.capacity() > PARTIAL_FREE { partial.capacity() } else { 0 }
}
