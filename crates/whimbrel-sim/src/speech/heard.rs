//! Packets from broker to client.

use mqtt_protocol_core::mqtt::packet::{Packet, Property};

use super::{Ack, Message};

/// A packet as a client receives it.
#[derive(Clone, PartialEq, Debug)]
pub enum Heard {
    /// CONNACK.
    Connack {
        /// Whether the session existed.
        session_present: bool,
        /// MQTT 5 reason code or 3.1.1 return code.
        code: u8,
        /// MQTT 5 properties.
        properties: Vec<Property>,
    },
    /// PUBLISH.
    Publish(Message),
    /// One of the acknowledgements.
    Ack {
        /// The kind of acknowledgement.
        ack: Ack,
        /// The packet identifier.
        id: u16,
        /// MQTT 5 reason code; 0 if left out.
        code: u8,
    },
    /// SUBACK.
    Suback {
        /// Packet identifier.
        id: u16,
        /// The code of each filter.
        codes: Vec<u8>,
        /// MQTT 5 properties.
        properties: Vec<Property>,
    },
    /// UNSUBACK.
    Unsuback {
        /// Packet identifier.
        id: u16,
        /// The code of each filter; none in 3.1.1.
        codes: Vec<u8>,
    },
    /// PINGRESP.
    Pong,
    /// DISCONNECT.
    Disconnect {
        /// Reason code.
        code: u8,
        /// Properties.
        properties: Vec<Property>,
    },
    /// A packet that only clients send, or AUTH.
    Other(Packet),
}

impl From<Packet> for Heard {
    fn from(packet: Packet) -> Self {
        let ack = |ack, id, code: Option<u8>| Heard::Ack { ack, id, code: code.unwrap_or(0) };
        match packet {
            Packet::V3_1_1Connack(p) => {
                Heard::Connack { session_present: p.session_present(), code: p.return_code() as u8, properties: vec![] }
            }
            Packet::V3_1_1Publish(p) => Heard::Publish(Message::from(&p)),
            Packet::V3_1_1Puback(p) => ack(Ack::Puback, p.packet_id(), None),
            Packet::V3_1_1Pubrec(p) => ack(Ack::Pubrec, p.packet_id(), None),
            Packet::V3_1_1Pubrel(p) => ack(Ack::Pubrel, p.packet_id(), None),
            Packet::V3_1_1Pubcomp(p) => ack(Ack::Pubcomp, p.packet_id(), None),
            Packet::V3_1_1Suback(p) => Heard::Suback {
                id: p.packet_id(),
                codes: p.return_codes().into_iter().map(|c| c as u8).collect(),
                properties: vec![],
            },
            Packet::V3_1_1Unsuback(p) => Heard::Unsuback { id: p.packet_id(), codes: vec![] },
            Packet::V3_1_1Pingresp(_) | Packet::V5_0Pingresp(_) => Heard::Pong,
            Packet::V5_0Connack(p) => Heard::Connack {
                session_present: p.session_present(),
                code: p.reason_code() as u8,
                properties: p.props().clone(),
            },
            Packet::V5_0Publish(p) => Heard::Publish(Message::from(&p)),
            Packet::V5_0Puback(p) => ack(Ack::Puback, p.packet_id(), p.reason_code().map(|c| c as u8)),
            Packet::V5_0Pubrec(p) => ack(Ack::Pubrec, p.packet_id(), p.reason_code().map(|c| c as u8)),
            Packet::V5_0Pubrel(p) => ack(Ack::Pubrel, p.packet_id(), p.reason_code().map(|c| c as u8)),
            Packet::V5_0Pubcomp(p) => ack(Ack::Pubcomp, p.packet_id(), p.reason_code().map(|c| c as u8)),
            Packet::V5_0Suback(p) => Heard::Suback {
                id: p.packet_id(),
                codes: p.reason_codes().into_iter().map(|c| c as u8).collect(),
                properties: p.props().clone(),
            },
            Packet::V5_0Unsuback(p) => {
                Heard::Unsuback { id: p.packet_id(), codes: p.reason_codes().into_iter().map(|c| c as u8).collect() }
            }
            Packet::V5_0Disconnect(p) => Heard::Disconnect {
                code: p.reason_code().map_or(0, |c| c as u8),
                properties: p.props().clone().unwrap_or_default(),
            },
            other => Heard::Other(other),
        }
    }
}
