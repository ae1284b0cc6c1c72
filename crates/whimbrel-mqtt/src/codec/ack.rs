//! Acknowledgements: PUBACK, PUBREC, PUBREL, PUBCOMP (one shape), and SUBACK, UNSUBACK (another).

use super::property::{Property, PropertyPlace, PropertySink, id, read_properties};
use super::publish::packet_id;
use super::wire::{Fields, Reader, Sink, write_with_length};
use super::{DecodeError, PacketId, PacketType, ReasonCode, UserProperties, Version};

/// PUBACK, PUBREC, PUBREL or PUBCOMP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ack<'a> {
    /// The packet id of the publish.
    pub packet_id: PacketId,
    /// The outcome; always success in MQTT 3.1.1.
    pub reason: ReasonCode,
    /// Properties; none in MQTT 3.1.1.
    pub properties: AckProperties<'a>,
}

impl Ack<'_> {
    /// Success, without properties.
    pub const fn success(packet_id: PacketId) -> Ack<'static> {
        Ack { packet_id, reason: ReasonCode::SUCCESS, properties: AckProperties::EMPTY }
    }
}

/// SUBACK or UNSUBACK.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CodesAck<'a> {
    /// The packet id of the SUBSCRIBE or UNSUBSCRIBE.
    pub packet_id: PacketId,
    /// One code for each filter, in their order. None in an UNSUBACK of MQTT 3.1.1.
    pub codes: Codes<'a>,
    /// Properties; none in MQTT 3.1.1.
    pub properties: AckProperties<'a>,
}

/// A list of reason codes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Codes<'a>(pub &'a [u8]);

impl<'a> Codes<'a> {
    /// All codes, in their order.
    pub fn iter(self) -> impl ExactSizeIterator<Item = ReasonCode> + use<'a> {
        self.0.iter().map(|&code| ReasonCode(code))
    }

    /// The number of codes.
    pub fn len(self) -> usize {
        self.0.len()
    }

    /// True if there is none.
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }
}

/// Properties of an acknowledgement.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct AckProperties<'a> {
    /// An explanation for people.
    pub reason_string: Option<&'a str>,
    /// Name and value pairs.
    pub user: UserProperties<'a>,
}

impl AckProperties<'_> {
    /// No properties.
    pub const EMPTY: AckProperties<'static> = AckProperties { reason_string: None, user: UserProperties::EMPTY };

    fn is_empty(&self) -> bool {
        self.reason_string.is_none() && self.user.is_empty()
    }
}

impl Fields for AckProperties<'_> {
    fn write(&self, sink: &mut impl Sink) {
        sink.put_text(id::REASON_STRING, self.reason_string);
        self.user.write(sink);
    }
}

fn ack_properties<'a>(reader: &mut Reader<'a>) -> Result<AckProperties<'a>, DecodeError> {
    let mut properties = AckProperties::EMPTY;
    let section = read_properties(reader, PropertyPlace::Ack, |property| {
        if let Property::ReasonString(value) = property {
            properties.reason_string = Some(value);
        }
    })?;
    properties.user = section.user;
    Ok(properties)
}

fn check_code(packet: PacketType, code: u8) -> Result<ReasonCode, DecodeError> {
    let reason = ReasonCode(code);
    if reason.is_defined_for(packet) {
        Ok(reason)
    } else {
        Err(DecodeError::protocol("the reason code is not defined for this packet"))
    }
}

/// Decodes the body of a PUBACK, PUBREC, PUBREL or PUBCOMP; `packet` says which.
///
/// # Errors
/// The rule of the specification that the packet breaks.
#[inline]
pub fn decode_ack(version: Version, packet: PacketType, body: &[u8]) -> Result<Ack<'_>, DecodeError> {
    if let &[high, low] = body
        && let Some(packet_id) = PacketId::new(u16::from_be_bytes([high, low]))
    {
        return Ok(Ack::success(packet_id));
    }
    decode_long_ack(version, packet, body)
}

fn decode_long_ack(version: Version, packet: PacketType, body: &[u8]) -> Result<Ack<'_>, DecodeError> {
    let mut reader = Reader::new(body);
    let mut ack = Ack::success(packet_id(&mut reader)?);
    if version == Version::V5 && !reader.is_empty() {
        ack.reason = check_code(packet, reader.u8()?)?;
        if !reader.is_empty() {
            ack.properties = ack_properties(&mut reader)?;
        }
    }
    reader.finish()?;
    Ok(ack)
}

/// Appends the short form of an acknowledgement that says success: four bytes.
#[inline]
pub fn encode_ack(packet: PacketType, packet_id: PacketId, out: &mut Vec<u8>) {
    let [high, low] = packet_id.get().to_be_bytes();
    out.extend_from_slice(&[packet.first_byte(), 2, high, low]);
}

pub(super) fn decode_codes_ack(version: Version, packet: PacketType, body: &[u8]) -> Result<CodesAck<'_>, DecodeError> {
    let mut reader = Reader::new(body);
    let packet_id = packet_id(&mut reader)?;
    let properties = match version {
        Version::V4 => AckProperties::EMPTY,
        Version::V5 => ack_properties(&mut reader)?,
    };
    let codes = Codes(reader.rest());
    match (version, packet) {
        (Version::V4, PacketType::UnsubAck) => reader.finish()?,
        _ if codes.is_empty() => return Err(DecodeError::protocol("the acknowledgement has no reason code")),
        (Version::V4, _) if codes.0.iter().any(|code| !matches!(code, 0..=2 | 0x80)) => {
            return Err(DecodeError::malformed("a return code is none of 0, 1, 2 and 0x80"));
        }
        (Version::V4, _) => {}
        (Version::V5, _) => {
            for &code in codes.0 {
                check_code(packet, code)?;
            }
        }
    }
    Ok(CodesAck { packet_id, codes, properties })
}

impl Fields for (Version, &Ack<'_>) {
    fn write(&self, sink: &mut impl Sink) {
        let (version, ack) = self;
        sink.u16(ack.packet_id.get());
        let bare = ack.properties.is_empty();
        if *version == Version::V4 || (bare && ack.reason == ReasonCode::SUCCESS) {
            return;
        }
        sink.u8(ack.reason.0);
        if !bare {
            write_with_length(&ack.properties, sink);
        }
    }
}

impl Fields for (Version, PacketType, &CodesAck<'_>) {
    fn write(&self, sink: &mut impl Sink) {
        let (version, packet, ack) = self;
        sink.u16(ack.packet_id.get());
        match (version, packet) {
            (Version::V5, _) => {
                write_with_length(&ack.properties, sink);
                sink.bytes(ack.codes.0);
            }
            (Version::V4, PacketType::UnsubAck) => {}
            (Version::V4, _) => {
                for code in ack.codes.iter() {
                    sink.u8(if code.is_error() { ReasonCode::UNSPECIFIED_ERROR.0 } else { code.0 });
                }
            }
        }
    }
}
