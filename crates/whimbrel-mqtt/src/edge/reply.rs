//! Packets to clients other than deliveries.

use whimbrel_event::Qos;

use super::conn::State;
use super::outbound::packet_id;
use super::{Edge, Greeting, Output, TurnedAway};
use crate::codec::{
    Ack, AckProperties, Codes, CodesAck, ConnAck, ConnAckProperties, Disconnect, DisconnectProperties, Packet,
    PacketId, PacketType, ReasonCode, UserProperties, Version, encode_ack,
};

impl Edge {
    /// Encodes a packet for a connection, if necessary without reason string. A packet that is even
    /// then too large for the client is not sent, as the specification demands.
    pub(super) fn send(&mut self, id: u32, packet: &Packet<'_>, out: &impl Output) {
        self.pending(id, out);
        let conn = &mut self.conns[id as usize];
        if let Ok(is_whole) = packet.encode_within(conn.version, conn.max_packet as usize, &mut conn.pending) {
            self.stats.packets_out += 1;
            self.stats.additions_left_out += u64::from(!is_whole);
        }
    }

    /// Whether the client wants reason strings and user properties in answers.
    pub(super) fn wants_diagnostics(&self, id: u32) -> bool {
        let conn = &self.conns[id as usize];
        conn.version == Version::V5 && conn.problem_information
    }

    /// The reason string, if the client accepts them.
    fn cause<'a>(&self, id: u32, cause: &'a str) -> Option<&'a str> {
        Some(cause).filter(|cause| !cause.is_empty() && self.wants_diagnostics(id))
    }

    /// Marks a connection to be closed after its output.
    pub(super) fn close(&mut self, id: u32, out: &impl Output) {
        self.pending(id, out);
        self.conns[id as usize].closing = true;
    }

    /// Sends the end of an attached connection: DISCONNECT where the version has it, and the close.
    pub(super) fn say_goodbye(&mut self, id: u32, reason: ReasonCode, cause: &str, out: &impl Output) {
        if self.conns[id as usize].version == Version::V5 {
            // DISCONNECT may always have a reason string, also without a request for problem
            // information.
            let properties = DisconnectProperties { reason_string: Some(cause), ..DisconnectProperties::EMPTY };
            self.send(id, &Packet::Disconnect(Disconnect { reason, properties }), out);
        }
        self.stats.ended.add(reason);
        self.close(id, out);
    }

    /// Refuses a connection that has no session yet, and reports it to the driver; `client_id` is
    /// that of its CONNECT, empty if none has arrived. Only a client of a known MQTT version is
    /// answered.
    pub(super) fn refuse(&mut self, id: u32, client_id: &str, reason: ReasonCode, cause: &str, out: &mut impl Output) {
        self.stats.refused.add(reason);
        out.turned_away(super::ConnId(id), &TurnedAway { client_id, code: reason.0, why: cause });
        if self.conns[id as usize].asked {
            let properties = ConnAckProperties { reason_string: Some(cause), ..ConnAckProperties::default() };
            self.send(id, &Packet::ConnAck(ConnAck { session_present: false, reason, properties }), out);
        }
        self.close(id, out);
        self.forget(id);
    }

    /// The core has a session for a connection: sends CONNACK.
    pub(super) fn greet(&mut self, id: u32, present: bool, out: &mut impl Output) {
        let mut greeting = core::mem::take(&mut self.greeting);
        let conn = &mut self.conns[id as usize];
        if core::mem::replace(&mut conn.state, State::Attached) == State::Awaiting {
            let rare = conn.rare();
            greeting = rare.greeting.take().map_or(greeting, |greeting| *greeting);
            if core::mem::take(&mut rare.paused) {
                out.resume(super::ConnId(id));
            }
            self.admitted.conns.push(id);
        }
        let conn = &mut self.conns[id as usize];
        if let Some(who) = conn.who.as_mut().filter(|_| present) {
            // Its subscriptions may stem from other rules, or from another principal; until they
            // have been checked, deliveries are checked.
            who.is_strict = true;
            self.guard.returned.push(id);
        }
        let conn = &mut self.conns[id as usize];
        self.stats.connections_accepted += 1;
        let (patience, heard) = (conn.patience, conn.last_heard);
        if let Some(old) = conn.timer.take() {
            self.silence.remove(&(old, id));
        }
        if !patience.is_zero() {
            self.watch(id, heard.after(patience));
        }
        self.send(id, &Packet::ConnAck(self.welcome(&greeting, present)), out);
    }

    /// The CONNACK of an accepted connection.
    pub(super) fn welcome<'a>(&self, greeting: &'a Greeting, session_present: bool) -> ConnAck<'a> {
        let limits = &self.config.limits;
        let properties = ConnAckProperties {
            session_expiry: greeting.expiry,
            receive_maximum: core::num::NonZeroU16::new(limits.receive_maximum),
            maximum_packet_size: Some(limits.max_packet_size),
            assigned_client_id: greeting.assigned.as_deref(),
            topic_alias_maximum: Some(limits.topic_alias_maximum),
            server_keep_alive: greeting.keep_alive,
            response_information: greeting.response_information.as_deref(),
            ..ConnAckProperties::default()
        };
        ConnAck { session_present, reason: ReasonCode::SUCCESS, properties }
    }

    /// Sends PUBACK or PUBREC.
    pub(super) fn answer_publish(
        &mut self,
        id: u32,
        (tag, qos): (u16, Qos),
        reason: ReasonCode,
        cause: &str,
        out: &impl Output,
    ) {
        if reason == ReasonCode::SUCCESS || self.conns[id as usize].version == Version::V4 {
            // The short form, without the general encoder: it is as frequent as the publishes
            // themselves.
            let kind = if qos == Qos::AtLeastOnce { PacketType::PubAck } else { PacketType::PubRec };
            encode_ack(kind, packet_id(tag), self.pending(id, out));
            self.stats.packets_out += 1;
            return;
        }
        let properties = AckProperties { reason_string: self.cause(id, cause), ..AckProperties::EMPTY };
        let ack = Ack { packet_id: packet_id(tag), reason, properties };
        let packet = if qos == Qos::AtLeastOnce { Packet::PubAck(ack) } else { Packet::PubRec(ack) };
        self.send(id, &packet, out);
    }

    /// Sends SUBACK; `tokens` are the positions at which the subscriptions begin, and are left out
    /// if the packet would be too large for the client.
    pub(super) fn send_suback(
        &mut self,
        id: u32,
        packet_id: PacketId,
        codes: &[u8],
        cause: &str,
        tokens: UserProperties<'_>,
        out: &impl Output,
    ) {
        let properties = AckProperties { reason_string: self.cause(id, cause), user: tokens };
        let v4: Vec<u8> = codes.iter().map(|code| if *code >= 0x80 { 0x80 } else { *code }).collect();
        let codes = if self.conns[id as usize].version == Version::V4 { Codes(&v4) } else { Codes(codes) };
        self.send(id, &Packet::SubAck(CodesAck { packet_id, codes, properties }), out);
    }
}
