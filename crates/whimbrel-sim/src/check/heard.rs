//! How packets of the broker are checked against the account, apart from deliveries.

use std::time::Duration;

use mqtt_protocol_core::mqtt::Version;
use mqtt_protocol_core::mqtt::packet::Property;
use whimbrel_mqtt::ConnId;

use super::line::{Due, Ending};
use super::{Checker, Rule};
use crate::speech::{Ack, Heard};

/// Reason code: no matching subscribers.
const NOBODY_MATCHED: u8 = 0x10;

/// Reason code: no subscription existed.
const NO_SUBSCRIPTION: u8 = 0x11;

/// Reason code: packet identifier not found.
const NOT_FOUND: u8 = 0x92;

impl Checker {
    /// The broker sends a packet.
    pub(super) fn heard(&mut self, conn: ConnId, heard: Heard) {
        let line = &self.lines[&conn];
        if line.dismissed.is_some() {
            self.broken(Rule::Handshake, format!("{heard:?} on {conn:?} after DISCONNECT"));
            return;
        }
        // A refusing CONNACK answers an unacceptable CONNECT.
        let refused = line.over.is_some_and(|(over, _)| over == Ending::Breached) && line.client_id.is_none();
        if !line.greeted && !refused && !matches!(heard, Heard::Connack { .. } | Heard::Disconnect { .. }) {
            self.broken(Rule::Handshake, format!("{heard:?} on {conn:?} before CONNACK"));
        }
        match heard {
            Heard::Connack { code, .. } if refused => {
                if code == 0 {
                    self.broken(Rule::Handshake, format!("{conn:?} is welcomed without a CONNECT"));
                }
            }
            Heard::Connack { session_present, code, properties } => {
                self.welcomed(conn, session_present, code, &properties);
            }
            Heard::Publish(message) => self.delivered(conn, message),
            Heard::Ack { ack, id, code } => self.acknowledged(conn, ack, id, code),
            Heard::Suback { id, codes, properties } => self.sub_acknowledged(conn, id, &codes, &properties),
            Heard::Unsuback { id, codes } => self.unsub_acknowledged(conn, id, &codes),
            Heard::Pong => {
                if self.take_due(conn, |due| matches!(due, Due::Pong)).is_none() {
                    self.broken(Rule::Answers, format!("PINGRESP on {conn:?} without PINGREQ"));
                }
            }
            Heard::Disconnect { code, .. } => {
                let line = self.lines.get_mut(&conn).expect("a known connection");
                line.dismissed = Some(code);
                if line.version == Some(Version::V3_1_1) {
                    self.broken(Rule::WellFormed, format!("DISCONNECT on {conn:?}, which speaks 3.1.1"));
                }
            }
            Heard::Other(packet) => {
                self.broken(Rule::WellFormed, format!("{packet:?} on {conn:?}: only clients send that"));
            }
        }
    }

    /// Takes the first due answer that fits.
    fn take_due(&mut self, conn: ConnId, fits: impl Fn(&Due) -> bool) -> Option<Due> {
        let line = self.lines.get_mut(&conn).expect("a known connection");
        let at = line.due.iter().position(|(_, due)| fits(due))?;
        Some(line.due.remove(at).1)
    }

    fn welcomed(&mut self, conn: ConnId, session_present: bool, code: u8, properties: &[Property]) {
        let line = self.lines.get_mut(&conn).expect("a known connection");
        line.greeted = true;
        for property in properties {
            if let Property::ServerKeepAlive(p) = property {
                line.keep_alive = Duration::from_secs(p.val().into());
            }
        }
        let who = line.client_id.clone();
        match self.take_due(conn, |due| matches!(due, Due::Connack { .. })) {
            Some(Due::Connack { session_present: truth }) => {
                if code != 0 {
                    self.broken(Rule::Handshake, format!("{who:?} is refused with {code:#x}"));
                } else if session_present != truth {
                    let what = format!("{who:?} is told session present = {session_present}, which is not so");
                    self.broken(Rule::SessionPresent, what);
                }
            }
            _ => self.broken(Rule::Handshake, format!("a second CONNACK on {conn:?}")),
        }
    }

    fn acknowledged(&mut self, conn: ConnId, ack: Ack, id: u16, code: u8) {
        let fits = |due: &Due| match due {
            Due::Accepted { ack: kind, .. } => *kind == ack,
            Due::Release { .. } => ack == Ack::Pubrel,
            Due::Complete { .. } => ack == Ack::Pubcomp,
            _ => false,
        };
        if ack == Ack::Pubrel && self.release_again(conn, id) {
            return;
        }
        let Some(due) = self.take_due(conn, fits) else {
            self.broken(Rule::Answers, format!("{ack:?} {id} on {conn:?} for nothing"));
            return;
        };
        // A session that was cut off in this call may have been the only one that matched.
        let (wanted, truth) = match due {
            Due::Accepted { id, matched, .. } => {
                (id, code == 0 || code == NOBODY_MATCHED && (!matched || self.kicks > 0))
            }
            Due::Release { id, known } | Due::Complete { id, known } => {
                (id, if known { code == 0 } else { code == NOT_FOUND || code == 0 })
            }
            _ => unreachable!("does not fit an acknowledgement"),
        };
        if wanted != id {
            self.broken(Rule::Answers, format!("{ack:?} {id} on {conn:?}, where {wanted} is next"));
        } else if !truth {
            self.broken(Rule::Answers, format!("{ack:?} {id} on {conn:?} with {code:#x}: {due:?}"));
        }
    }

    /// PUBREL of a former connection, sent again on this one.
    fn release_again(&mut self, conn: ConnId, id: u16) -> bool {
        let line = self.lines.get_mut(&conn).expect("a known connection");
        if line.due.iter().any(|(_, due)| matches!(due, Due::Release { id: due, .. } if *due == id)) {
            return false;
        }
        let Some(session) = line.client_id.as_ref().and_then(|id| self.book.sessions.get_mut(id)) else { return false };
        let again = session.flights.iter_mut().find(|f| f.id == id && f.received && f.sent_on.is_none());
        let Some(flight) = again else { return false };
        flight.sent_on = session.conn.filter(|known| *known == conn);
        self.resent_in_order(conn, id);
        true
    }

    /// Checks that repeated deliveries keep the order of the first ones.
    pub(super) fn resent_in_order(&mut self, conn: ConnId, id: u16) {
        let line = self.lines.get_mut(&conn).expect("a known connection");
        let session = line.client_id.as_ref().and_then(|id| self.book.sessions.get(id));
        let Some(flight) = session.and_then(|s| s.flights.iter().find(|f| f.id == id)) else { return };
        let before = core::mem::replace(&mut line.resent, flight.sequence);
        if before > flight.sequence {
            let what = format!("{} is sent again on {conn:?} after a later one", flight.publication.name());
            self.broken(Rule::Order, what);
        }
    }

    fn sub_acknowledged(&mut self, conn: ConnId, id: u16, codes: &[u8], properties: &[Property]) {
        match self.take_due(conn, |due| matches!(due, Due::Suback { .. })) {
            Some(due) if due.allows(id, codes) => {
                if let Due::Suback { start: Some(start), .. } = due
                    && codes.iter().all(|code| *code < 0x80)
                {
                    self.start(conn, *start, properties);
                }
            }
            due => self.broken(Rule::Answers, format!("SUBACK {id} with {codes:02x?} on {conn:?} for {due:?}")),
        }
    }

    fn unsub_acknowledged(&mut self, conn: ConnId, id: u16, codes: &[u8]) {
        let five = self.lines[&conn].version == Some(Version::V5_0);
        let right = |existed: &[bool]| {
            let expected: Vec<u8> = existed.iter().map(|e| if *e { 0 } else { NO_SUBSCRIPTION }).collect();
            if five { codes == expected } else { codes.is_empty() }
        };
        match self.take_due(conn, |due| matches!(due, Due::Unsuback { .. })) {
            Some(Due::Unsuback { id: asked, existed }) if asked == id && right(&existed) => {}
            due => self.broken(Rule::Answers, format!("UNSUBACK {id} with {codes:02x?} on {conn:?} for {due:?}")),
        }
    }
}
