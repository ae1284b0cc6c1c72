//! PUBLISH: nearly all of the traffic, so decoding and encoding have a fast path.

use core::num::NonZeroU16;

use whimbrel_event::Attributes;

use super::property::{Property, PropertyPlace, PropertySink, id, read_properties};
use super::wire::{Fields, Reader, Sink, append_packet, write_with_length};
use super::{DecodeError, EncodeError, PacketId, QoS, ReasonCode, SubscriptionIds, UserProperties, Version};

pub(super) const FIRST_BYTE: u8 = 0x30;
pub(super) const DUP: u8 = 0x08;
pub(super) const RETAIN: u8 = 0x01;

/// A PUBLISH packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Publish<'a> {
    /// The packet may have been sent before.
    pub dup: bool,
    /// The QoS.
    pub qos: QoS,
    /// The message is to be retained, or was retained.
    pub retain: bool,
    /// The topic name. Empty only where a topic alias stands for it.
    pub topic: &'a str,
    /// Present exactly if the QoS is above 0.
    pub packet_id: Option<PacketId>,
    /// Properties; none in MQTT 3.1.1.
    pub properties: PublishProperties<'a>,
    /// The payload of the message.
    pub payload: &'a [u8],
}

/// Properties of a PUBLISH.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct PublishProperties<'a> {
    /// Payload Format Indicator: whether the payload is UTF-8 text.
    pub text_payload: Option<bool>,
    /// Seconds for which the message is of use.
    pub message_expiry: Option<u32>,
    /// A number for the topic on this connection.
    pub topic_alias: Option<NonZeroU16>,
    /// The topic for a reply.
    pub response_topic: Option<&'a str>,
    /// Data that tells the requester which request a reply belongs to.
    pub correlation_data: Option<&'a [u8]>,
    /// The type of the payload.
    pub content_type: Option<&'a str>,
    /// The subscriptions that the message is delivered for; only from a server.
    pub subscription_ids: SubscriptionIds<'a>,
    /// Name and value pairs.
    pub user: UserProperties<'a>,
}

impl PublishProperties<'_> {
    /// No properties.
    pub const EMPTY: PublishProperties<'static> = PublishProperties {
        text_payload: None,
        message_expiry: None,
        topic_alias: None,
        response_topic: None,
        correlation_data: None,
        content_type: None,
        subscription_ids: SubscriptionIds::EMPTY,
        user: UserProperties::EMPTY,
    };
}

/// The QoS in the two lowest bits of a flags or options byte.
pub(crate) const fn qos_from_bits(bits: u8) -> Option<QoS> {
    match bits {
        0 => Some(QoS::AtMostOnce),
        1 => Some(QoS::AtLeastOnce),
        2 => Some(QoS::ExactlyOnce),
        _ => None,
    }
}

/// Checks a topic name for publishing: UTF-8 without U+0000 and wildcards; an empty one passes.
#[inline]
pub(crate) fn topic_name(bytes: &[u8]) -> Result<&str, DecodeError> {
    let Ok(name) = core::str::from_utf8(bytes) else {
        return Err(DecodeError::malformed("the topic name is not UTF-8"));
    };
    if has_special(bytes) { Err(special_error(bytes)) } else { Ok(name) }
}

/// Whether any byte is U+0000, `+` or `#`; eight bytes at a time, the last eight perhaps
/// overlapping.
#[inline]
fn has_special(bytes: &[u8]) -> bool {
    let Some(last) = bytes.last_chunk::<8>() else {
        return bytes.iter().any(|&b| matches!(b, 0 | b'+' | b'#'));
    };
    let (chunks, _) = bytes.as_chunks::<8>();
    chunks.iter().chain([last]).fold(0, |found, chunk| found | special_bytes(u64::from_le_bytes(*chunk))) != 0
}

/// Not 0 exactly if one of the eight bytes is special.
#[inline]
const fn special_bytes(word: u64) -> u64 {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    const HIGH: u64 = ONES << 7;
    const HASH: u64 = ONES * b'#' as u64;
    // `+` and `#` differ in one bit.
    const MASK: u64 = !(ONES * (b'+' ^ b'#') as u64);
    let wildcard = (word & MASK) ^ HASH;
    // The well-known test for a zero byte in a word.
    (word.wrapping_sub(ONES) & !word | wildcard.wrapping_sub(ONES) & !wildcard) & HIGH
}

#[cold]
fn special_error(name: &[u8]) -> DecodeError {
    if name.contains(&0) {
        return DecodeError::malformed("the topic name has U+0000");
    }
    DecodeError { reason: ReasonCode::TOPIC_NAME_INVALID, cause: "the topic name has a wildcard" }
}

/// Decodes a PUBLISH; `first_byte` must say that it is one.
///
/// # Errors
/// The rule of the specification that the packet breaks.
#[inline]
pub fn decode_publish(version: Version, first_byte: u8, body: &[u8]) -> Result<Publish<'_>, DecodeError> {
    debug_assert_eq!(first_byte & 0xf0, FIRST_BYTE, "the caller has looked at the packet type");
    let mut reader = Reader::new(body);
    let dup = first_byte & DUP != 0;
    let qos = qos_from_bits((first_byte >> 1) & 3).ok_or(DecodeError::malformed("the QoS is 3"))?;
    let topic = topic_name(reader.binary()?)?;
    let packet_id = if qos == QoS::AtMostOnce {
        if dup {
            return Err(DecodeError::malformed("DUP is set on a QoS 0 message"));
        }
        None
    } else {
        Some(packet_id(&mut reader)?)
    };
    let properties = match version {
        Version::V4 => PublishProperties::EMPTY,
        Version::V5 => publish_properties(&mut reader)?,
    };
    if topic.is_empty() && properties.topic_alias.is_none() {
        return Err(DecodeError::protocol("the topic name is empty and no topic alias stands for it"));
    }
    let retain = first_byte & RETAIN != 0;
    Ok(Publish { dup, qos, retain, topic, packet_id, properties, payload: reader.rest() })
}

#[inline]
pub(crate) fn packet_id(reader: &mut Reader<'_>) -> Result<PacketId, DecodeError> {
    PacketId::new(reader.u16()?).ok_or(DecodeError::protocol("the packet identifier is 0"))
}

#[inline]
fn publish_properties<'a>(reader: &mut Reader<'a>) -> Result<PublishProperties<'a>, DecodeError> {
    let mut properties = PublishProperties::EMPTY;
    let section = read_properties(reader, PropertyPlace::Publish, |property| match property {
        Property::TextPayload(value) => properties.text_payload = Some(value),
        Property::MessageExpiry(value) => properties.message_expiry = Some(value),
        Property::TopicAlias(value) => properties.topic_alias = Some(value),
        Property::ResponseTopic(value) => properties.response_topic = Some(value),
        Property::CorrelationData(value) => properties.correlation_data = Some(value),
        Property::ContentType(value) => properties.content_type = Some(value),
        _ => {}
    })?;
    properties.subscription_ids = section.subscription_ids;
    properties.user = section.user;
    Ok(properties)
}

/// A PUBLISH as it is written: its own properties, then those that the server appends.
struct Body<'p, 'a> {
    version: Version,
    publish: &'p Publish<'a>,
    appended: UserProperties<'p>,
}

struct AllProperties<'p, 'a> {
    properties: &'p PublishProperties<'a>,
    appended: UserProperties<'p>,
}

impl Fields for AllProperties<'_, '_> {
    #[inline]
    fn write(&self, sink: &mut impl Sink) {
        let p = self.properties;
        sink.put_flag(id::PAYLOAD_FORMAT, p.text_payload);
        sink.put_u32(id::MESSAGE_EXPIRY, p.message_expiry);
        sink.put_u16(id::TOPIC_ALIAS, p.topic_alias.map(NonZeroU16::get));
        sink.put_text(id::RESPONSE_TOPIC, p.response_topic);
        sink.put_binary(id::CORRELATION_DATA, p.correlation_data);
        sink.put_text(id::CONTENT_TYPE, p.content_type);
        p.subscription_ids.write(sink);
        p.user.write(sink);
        self.appended.write(sink);
    }
}

impl Fields for Body<'_, '_> {
    #[inline]
    fn write(&self, sink: &mut impl Sink) {
        sink.text(self.publish.topic);
        if let Some(packet_id) = self.publish.packet_id {
            sink.u16(packet_id.get());
        }
        if self.version == Version::V5 {
            let properties = AllProperties { properties: &self.publish.properties, appended: self.appended };
            write_with_length(&properties, sink);
        }
        sink.bytes(self.publish.payload);
    }
}

fn flags(dup: bool, qos: QoS, retain: bool) -> u8 {
    FIRST_BYTE | u8::from(dup) << 3 | (qos as u8) << 1 | u8::from(retain)
}

/// Offsets, in an encoded PUBLISH, of the parts that differ between receivers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PublishLayout {
    /// Bytes of the packet.
    pub len: usize,
    /// Offset of the packet id from the first byte of the packet; `None` with QoS 0.
    pub packet_id: Option<usize>,
}

impl PublishLayout {
    /// Adapts an encoded packet, or a copy, to another receiver. QoS 1 and 2 have the same layout;
    /// `packet_id` is used with these only.
    ///
    /// # Panics
    /// When `packet` is shorter than the packet that this layout came with.
    #[inline]
    pub fn patch(&self, packet: &mut [u8], dup: bool, qos: QoS, retain: bool, packet_id: Option<PacketId>) {
        debug_assert_eq!(self.packet_id.is_some(), qos != QoS::AtMostOnce, "QoS 0 is laid out differently");
        packet[0] = flags(dup, qos, retain);
        if let (Some(at), Some(packet_id)) = (self.packet_id, packet_id) {
            packet[at..at + 2].copy_from_slice(&packet_id.get().to_be_bytes());
        }
    }
}

/// Appends a PUBLISH to `out`, with the user properties in `appended` behind its own. MQTT 3.1.1
/// has no properties; none are written there.
///
/// # Errors
/// When a field or the packet is too long; `out` is unchanged then.
#[inline]
pub fn encode_publish(
    version: Version,
    publish: &Publish<'_>,
    appended: Attributes<'_>,
    out: &mut Vec<u8>,
) -> Result<PublishLayout, EncodeError> {
    debug_assert_eq!(publish.packet_id.is_some(), publish.qos != QoS::AtMostOnce, "QoS 0 alone has no packet id");
    let before = out.len();
    let body = Body { version, publish, appended: appended.into() };
    let start = append_packet(flags(publish.dup, publish.qos, publish.retain), &body, out)? - before;
    let packet_id = publish.packet_id.map(|_| start + 2 + publish.topic.len());
    Ok(PublishLayout { len: out.len() - before, packet_id })
}

impl Fields for (Version, &Publish<'_>) {
    fn write(&self, sink: &mut impl Sink) {
        let (version, publish) = *self;
        Body { version, publish, appended: UserProperties::EMPTY }.write(sink);
    }
}

impl Publish<'_> {
    /// Checks, in the server that receives a PUBLISH, that it has nothing that only a server may
    /// send.
    ///
    /// # Errors
    /// When the packet has subscription identifiers.
    #[inline]
    pub fn check_from_client(&self) -> Result<(), DecodeError> {
        if self.properties.subscription_ids.is_empty() {
            Ok(())
        } else {
            Err(DecodeError::protocol("only a server sends subscription identifiers in a PUBLISH"))
        }
    }

    /// Bytes of the packet when encoded with the user properties in `appended`.
    ///
    /// # Errors
    /// When a field or the packet is too long.
    pub fn encoded_len(&self, version: Version, appended: Attributes<'_>) -> Result<usize, EncodeError> {
        Body { version, publish: self, appended: appended.into() }.encoded_len().map(super::wire::packet_len)
    }
}
