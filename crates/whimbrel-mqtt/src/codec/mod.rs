//! One packet model for MQTT 3.1.1 and 5, both directions, without IO.
//!
//! [`frame`] cuts a byte stream into packets, [`decode`] turns one into a [`Packet`] that borrows
//! from it, and [`Packet::encode`] is the reverse. PUBLISH, which is nearly all of the traffic, has
//! its own fast path for decoding ([`decode_publish`]) and encoding ([`encode_publish`],
//! [`PublishLayout::patch`]), and if it has no properties, [`BarePublish`].
//!
//! Decoding checks everything that can be checked in a packet alone: a decoded packet obeys the
//! specification's rules of form and of value. Checks that need more than the packet are left to
//! the caller: the syntax of topic filters, packet ids in use, and which side may send which packet
//! (see [`Packet::check_from_client`]).

mod ack;
mod bare;
mod connack;
mod connect;
mod disconnect;
mod packet;
mod property;
mod publish;
mod reason;
mod subscribe;
mod wire;

use core::fmt;

pub use ack::{Ack, AckProperties, Codes, CodesAck, decode_ack, encode_ack};
pub use bare::BarePublish;
pub use connack::{ConnAck, ConnAckProperties};
pub use connect::{Connect, ConnectProperties, Will, WillProperties, answer_version, client_id_of};
pub use disconnect::{Auth, AuthProperties, Disconnect, DisconnectProperties};
pub use packet::{Packet, PacketType, decode};
pub use property::{SubscriptionIds, UserProperties};
pub(crate) use publish::topic_name;
pub use publish::{Publish, PublishLayout, PublishProperties, decode_publish, encode_publish};
pub use reason::ReasonCode;
pub use subscribe::{
    Filter, Filters, RetainHandling, Subscribe, SubscribeProperties, Topics, Unsubscribe, UnsubscribeProperties,
};
pub use whimbrel_event::Qos as QoS;
pub use wire::{BINARY_MAX, Frame, PACKET_MAX, REMAINING_LENGTH_MAX, SUBSCRIPTION_ID_MAX, frame};

/// Identifies a packet among those that await an answer. Zero is not a packet id.
pub type PacketId = core::num::NonZeroU16;

/// A version of MQTT.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Version {
    /// MQTT 3.1.1, protocol level 4.
    V4,
    /// MQTT 5.0, protocol level 5.
    V5,
}

impl Version {
    /// The protocol level in CONNECT.
    pub const fn level(self) -> u8 {
        match self {
            Version::V4 => 4,
            Version::V5 => 5,
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Version::V4 => "3.1.1",
            Version::V5 => "5.0",
        })
    }
}

/// The reason why bytes are not a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DecodeError {
    /// The reason code of MQTT 5 for this kind of mistake.
    pub reason: ReasonCode,
    /// The mistake itself, short enough for a reason string.
    pub cause: &'static str,
}

impl DecodeError {
    /// The packet cannot be parsed.
    pub(crate) const fn malformed(cause: &'static str) -> Self {
        DecodeError { reason: ReasonCode::MALFORMED_PACKET, cause }
    }

    /// The packet can be parsed, but the protocol does not permit its contents.
    pub(crate) const fn protocol(cause: &'static str) -> Self {
        DecodeError { reason: ReasonCode::PROTOCOL_ERROR, cause }
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason, self.cause)
    }
}

impl core::error::Error for DecodeError {}

/// The reason why a packet cannot be encoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EncodeError {
    /// A string or binary field has more than [`BINARY_MAX`] bytes.
    FieldTooLong,
    /// The packet is larger than [`PACKET_MAX`], or than the receiver accepts.
    PacketTooLarge,
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EncodeError::FieldTooLong => "a string or binary field is longer than 65,535 bytes",
            EncodeError::PacketTooLarge => "the packet is larger than the protocol or its receiver allows",
        })
    }
}

impl core::error::Error for EncodeError {}
