//! All packet types in one enum.

use whimbrel_event::Attributes;

use super::ack::decode_codes_ack;
use super::connack::decode_connack;
use super::connect::decode_connect;
use super::disconnect::{decode_auth, decode_disconnect};
use super::subscribe::{decode_subscribe, decode_unsubscribe};
use super::wire::{Fields, Sink, append_packet, packet_len};
use super::{
    Ack, Auth, CodesAck, ConnAck, Connect, DecodeError, Disconnect, EncodeError, Publish, Subscribe, Unsubscribe,
    UserProperties, Version, decode_ack, decode_publish, encode_publish,
};

/// The kind of a packet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names are the specification's")]
pub enum PacketType {
    Connect = 1,
    ConnAck = 2,
    Publish = 3,
    PubAck = 4,
    PubRec = 5,
    PubRel = 6,
    PubComp = 7,
    Subscribe = 8,
    SubAck = 9,
    Unsubscribe = 10,
    UnsubAck = 11,
    PingReq = 12,
    PingResp = 13,
    Disconnect = 14,
    Auth = 15,
}

impl PacketType {
    /// The kind of the packet that begins with this byte; `None` for the reserved type 0.
    #[inline]
    pub const fn from_first_byte(first_byte: u8) -> Option<PacketType> {
        Some(match first_byte >> 4 {
            1 => PacketType::Connect,
            2 => PacketType::ConnAck,
            3 => PacketType::Publish,
            4 => PacketType::PubAck,
            5 => PacketType::PubRec,
            6 => PacketType::PubRel,
            7 => PacketType::PubComp,
            8 => PacketType::Subscribe,
            9 => PacketType::SubAck,
            10 => PacketType::Unsubscribe,
            11 => PacketType::UnsubAck,
            12 => PacketType::PingReq,
            13 => PacketType::PingResp,
            14 => PacketType::Disconnect,
            15 => PacketType::Auth,
            _ => return None,
        })
    }

    /// The first byte of packets of this type; for a PUBLISH, the one without flags.
    #[inline]
    pub const fn first_byte(self) -> u8 {
        let flags = match self {
            PacketType::PubRel | PacketType::Subscribe | PacketType::Unsubscribe => 0b0010,
            _ => 0,
        };
        (self as u8) << 4 | flags
    }
}

/// A packet that borrows from the bytes it was decoded from, or from the values to encode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are the specification's")]
#[allow(clippy::large_enum_variant, reason = "packets live on the stack, one at a time")]
pub enum Packet<'a> {
    Connect(Connect<'a>),
    ConnAck(ConnAck<'a>),
    Publish(Publish<'a>),
    PubAck(Ack<'a>),
    PubRec(Ack<'a>),
    PubRel(Ack<'a>),
    PubComp(Ack<'a>),
    Subscribe(Subscribe<'a>),
    SubAck(CodesAck<'a>),
    Unsubscribe(Unsubscribe<'a>),
    UnsubAck(CodesAck<'a>),
    PingReq,
    PingResp,
    Disconnect(Disconnect<'a>),
    Auth(Auth<'a>),
}

/// Decodes the packet that [`super::frame`] cut off. A CONNECT has its own version; for all others
/// `version` is that of the connection.
///
/// # Errors
/// The rule of the specification that the packet breaks.
pub fn decode(version: Version, first_byte: u8, body: &[u8]) -> Result<Packet<'_>, DecodeError> {
    let Some(packet) = PacketType::from_first_byte(first_byte) else {
        return Err(DecodeError::malformed("packet type 0 is reserved"));
    };
    if packet != PacketType::Publish && first_byte != packet.first_byte() {
        return Err(DecodeError::malformed("a reserved flag of the fixed header is not as prescribed"));
    }
    Ok(match packet {
        PacketType::Connect => Packet::Connect(decode_connect(body)?),
        PacketType::ConnAck => Packet::ConnAck(decode_connack(version, body)?),
        PacketType::Publish => Packet::Publish(decode_publish(version, first_byte, body)?),
        PacketType::PubAck => Packet::PubAck(decode_ack(version, packet, body)?),
        PacketType::PubRec => Packet::PubRec(decode_ack(version, packet, body)?),
        PacketType::PubRel => Packet::PubRel(decode_ack(version, packet, body)?),
        PacketType::PubComp => Packet::PubComp(decode_ack(version, packet, body)?),
        PacketType::Subscribe => Packet::Subscribe(decode_subscribe(version, body)?),
        PacketType::SubAck => Packet::SubAck(decode_codes_ack(version, packet, body)?),
        PacketType::Unsubscribe => Packet::Unsubscribe(decode_unsubscribe(version, body)?),
        PacketType::UnsubAck => Packet::UnsubAck(decode_codes_ack(version, packet, body)?),
        PacketType::PingReq | PacketType::PingResp if !body.is_empty() => {
            return Err(DecodeError::malformed("bytes follow after the end of the packet"));
        }
        PacketType::PingReq => Packet::PingReq,
        PacketType::PingResp => Packet::PingResp,
        PacketType::Disconnect => Packet::Disconnect(decode_disconnect(version, body)?),
        PacketType::Auth if version == Version::V4 => {
            return Err(DecodeError::malformed("packet type 15 is reserved in MQTT 3.1.1"));
        }
        PacketType::Auth => Packet::Auth(decode_auth(body)?),
    })
}

impl Fields for (Version, &Packet<'_>) {
    fn write(&self, sink: &mut impl Sink) {
        let (version, packet) = *self;
        match packet {
            Packet::Connect(packet) => packet.write(sink),
            Packet::ConnAck(packet) => (version, packet).write(sink),
            Packet::Publish(packet) => (version, packet).write(sink),
            Packet::PubAck(ack) | Packet::PubRec(ack) | Packet::PubRel(ack) | Packet::PubComp(ack) => {
                (version, ack).write(sink);
            }
            Packet::Subscribe(packet) => (version, packet).write(sink),
            Packet::Unsubscribe(packet) => (version, packet).write(sink),
            Packet::SubAck(ack) | Packet::UnsubAck(ack) => (version, packet.packet_type(), ack).write(sink),
            Packet::PingReq | Packet::PingResp => {}
            Packet::Disconnect(packet) => (version, packet).write(sink),
            Packet::Auth(packet) => packet.write(sink),
        }
    }
}

impl<'a> Packet<'a> {
    /// The packet's type.
    pub const fn packet_type(&self) -> PacketType {
        match self {
            Packet::Connect(_) => PacketType::Connect,
            Packet::ConnAck(_) => PacketType::ConnAck,
            Packet::Publish(_) => PacketType::Publish,
            Packet::PubAck(_) => PacketType::PubAck,
            Packet::PubRec(_) => PacketType::PubRec,
            Packet::PubRel(_) => PacketType::PubRel,
            Packet::PubComp(_) => PacketType::PubComp,
            Packet::Subscribe(_) => PacketType::Subscribe,
            Packet::SubAck(_) => PacketType::SubAck,
            Packet::Unsubscribe(_) => PacketType::Unsubscribe,
            Packet::UnsubAck(_) => PacketType::UnsubAck,
            Packet::PingReq => PacketType::PingReq,
            Packet::PingResp => PacketType::PingResp,
            Packet::Disconnect(_) => PacketType::Disconnect,
            Packet::Auth(_) => PacketType::Auth,
        }
    }

    /// Bytes of the packet when encoded. A CONNECT is encoded in its own version.
    ///
    /// # Errors
    /// When a field or the packet is too long.
    pub fn encoded_len(&self, version: Version) -> Result<usize, EncodeError> {
        (version, self).encoded_len().map(packet_len)
    }

    /// Appends the packet to `out`, without what MQTT 3.1.1 cannot express if that is the version.
    ///
    /// # Errors
    /// When a field or the packet is too long; `out` is unchanged then.
    pub fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        if let Packet::Publish(publish) = self {
            return encode_publish(version, publish, Attributes::EMPTY, out).map(drop);
        }
        append_packet(self.packet_type().first_byte(), &(version, self), out).map(drop)
    }

    /// Like [`Packet::encode`] for a receiver that accepts packets of at most `max` bytes: user
    /// properties, and then the reason string, are left out of answers that would be larger.
    /// Returns whether the packet is complete.
    ///
    /// # Errors
    /// When a field is too long, or the packet is too large even so; `out` is unchanged then.
    pub fn encode_within(&self, version: Version, max: usize, out: &mut Vec<u8>) -> Result<bool, EncodeError> {
        let mut packet = *self;
        let steps = [|_: &mut Packet<'a>| {}, Packet::drop_user_properties, Packet::drop_reason_string];
        for (at, shorten) in steps.into_iter().enumerate() {
            shorten(&mut packet);
            if packet.encoded_len(version)? <= max {
                return packet.encode(version, out).map(|()| at == 0);
            }
        }
        Err(EncodeError::PacketTooLarge)
    }

    /// An answer's reason string and user properties, which a client does not depend on.
    fn diagnostics(&mut self) -> Option<(&mut Option<&'a str>, &mut UserProperties<'a>)> {
        match self {
            Packet::ConnAck(ConnAck { properties, .. }) => Some((&mut properties.reason_string, &mut properties.user)),
            Packet::PubAck(Ack { properties, .. })
            | Packet::PubRec(Ack { properties, .. })
            | Packet::PubRel(Ack { properties, .. })
            | Packet::PubComp(Ack { properties, .. })
            | Packet::SubAck(CodesAck { properties, .. })
            | Packet::UnsubAck(CodesAck { properties, .. }) => {
                Some((&mut properties.reason_string, &mut properties.user))
            }
            Packet::Disconnect(Disconnect { properties, .. }) => {
                Some((&mut properties.reason_string, &mut properties.user))
            }
            Packet::Auth(Auth { properties, .. }) => Some((&mut properties.reason_string, &mut properties.user)),
            _ => None,
        }
    }

    fn drop_user_properties(&mut self) {
        if let Some((_, user)) = self.diagnostics() {
            *user = UserProperties::EMPTY;
        }
    }

    fn drop_reason_string(&mut self) {
        if let Some((reason_string, _)) = self.diagnostics() {
            *reason_string = None;
        }
    }

    /// Checks, in the server that receives a packet, that it has nothing that only a server may
    /// send.
    ///
    /// # Errors
    /// The part that a client must not send.
    pub fn check_from_client(&self) -> Result<(), DecodeError> {
        match self {
            Packet::ConnAck(_) | Packet::SubAck(_) | Packet::UnsubAck(_) | Packet::PingResp => {
                Err(DecodeError::protocol("only a server sends this packet"))
            }
            Packet::Publish(publish) => publish.check_from_client(),
            Packet::Disconnect(disconnect) if disconnect.properties.server_reference.is_some() => {
                Err(DecodeError::protocol("only a server sends a server reference"))
            }
            _ => Ok(()),
        }
    }
}
