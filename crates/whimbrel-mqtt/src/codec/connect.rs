//! CONNECT.

use core::num::NonZeroU16;

use super::property::{Property, PropertyPlace, PropertySink, id, read_properties};
use super::publish::{qos_from_bits, topic_name};
use super::wire::{Fields, Reader, Sink, write_with_length};
use super::{DecodeError, QoS, ReasonCode, UserProperties, Version};

const CLEAN_START: u8 = 0x02;
const WILL: u8 = 0x04;
const WILL_QOS_SHIFT: u32 = 3;
const WILL_RETAIN: u8 = 0x20;
const PASSWORD: u8 = 0x40;
const USER_NAME: u8 = 0x80;

/// A CONNECT packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Connect<'a> {
    /// The client's protocol version.
    pub version: Version,
    /// The client is a bridge of another broker: the highest bit of the protocol level, in MQTT
    /// 3.1.1 only. It is no part of the standard; bridges of mosquitto set it unless `try_private`
    /// is false.
    pub bridge: bool,
    /// Begin with a new session. In MQTT 3.1.1 (clean session) the session also ends with the
    /// connection.
    pub clean_start: bool,
    /// The longest time between packets from the client, seconds; 0: no bound.
    pub keep_alive: u16,
    /// Properties; none in MQTT 3.1.1.
    pub properties: ConnectProperties<'a>,
    /// The client identifier; empty: the server assigns one.
    pub client_id: &'a str,
    /// Published if the connection ends without a DISCONNECT.
    pub will: Option<Will<'a>>,
    /// The user's name.
    pub user_name: Option<&'a str>,
    /// The password. MQTT 3.1.1 allows it only with a user name.
    pub password: Option<&'a [u8]>,
}

/// Properties of a CONNECT.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct ConnectProperties<'a> {
    /// Seconds for which the session outlives the connection; `u32::MAX`: for ever.
    pub session_expiry: Option<u32>,
    /// Publishes with QoS above 0 that the client accepts unacknowledged; 65,535 if absent.
    pub receive_maximum: Option<NonZeroU16>,
    /// The largest packet that the client accepts, bytes; not 0.
    pub maximum_packet_size: Option<u32>,
    /// The largest topic alias that the client accepts; 0 if absent.
    pub topic_alias_maximum: Option<u16>,
    /// The client asks for response information; false if absent.
    pub request_response_information: Option<bool>,
    /// The client wants reason strings and user properties in acknowledgements; true if absent.
    pub request_problem_information: Option<bool>,
    /// The method of extended authentication.
    pub authentication_method: Option<&'a str>,
    /// Data that the method defines; only with a method.
    pub authentication_data: Option<&'a [u8]>,
    /// Name and value pairs.
    pub user: UserProperties<'a>,
}

/// A message to be published when the connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Will<'a> {
    /// The topic name.
    pub topic: &'a str,
    /// The payload of the message.
    pub payload: &'a [u8],
    /// The QoS of the publication.
    pub qos: QoS,
    /// Whether the message is to be retained.
    pub retain: bool,
    /// Properties; none in MQTT 3.1.1.
    pub properties: WillProperties<'a>,
}

/// Properties of a will.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct WillProperties<'a> {
    /// Seconds between the end of the connection and publication; 0 if absent.
    pub delay: Option<u32>,
    /// Payload Format Indicator: whether the payload is UTF-8 text.
    pub text_payload: Option<bool>,
    /// Seconds for which the message is of use once published.
    pub message_expiry: Option<u32>,
    /// The type of the payload.
    pub content_type: Option<&'a str>,
    /// The topic for a reply.
    pub response_topic: Option<&'a str>,
    /// Data that tells the requester which request a reply belongs to.
    pub correlation_data: Option<&'a [u8]>,
    /// Name and value pairs.
    pub user: UserProperties<'a>,
}

/// In MQTT 3.1.1, the bit of the protocol level that a bridge sets.
const BRIDGE: u8 = 0x80;

/// The version in which to answer a CONNECT that cannot be served, from what can be read of it: 5
/// for level 5 and above, with any protocol name, and 3.1.1 for older ones. `None` if no version of
/// MQTT has an answer; then the connection is closed without one.
pub fn answer_version(body: &[u8]) -> Option<Version> {
    let mut reader = Reader::new(body);
    let name = reader.binary().ok()?;
    let level = reader.u8().ok()? & !BRIDGE;
    match name {
        _ if level >= Version::V5.level() => Some(Version::V5),
        b"MQTT" | b"MQIsdp" => Some(Version::V4),
        _ => None,
    }
}

/// The client id of a CONNECT, as far as it can be read: also of a CONNECT that is refused for
/// another field.
pub fn client_id_of(body: &[u8]) -> Option<&str> {
    let mut reader = Reader::new(body);
    reader.binary().ok()?;
    let level = reader.u8().ok()? & !BRIDGE;
    // Connect flags and keep-alive.
    reader.u8().ok()?;
    reader.u16().ok()?;
    if level >= Version::V5.level() {
        connect_properties(&mut reader).ok()?;
    }
    reader.text("").ok()
}

/// The version of a CONNECT, and whether the client is a bridge.
fn version(reader: &mut Reader<'_>) -> Result<(Version, bool), DecodeError> {
    const fn unsupported(cause: &'static str) -> DecodeError {
        DecodeError { reason: ReasonCode::UNSUPPORTED_PROTOCOL_VERSION, cause }
    }
    let name = reader.binary()?;
    let level = reader.u8()?;
    match (name, level) {
        (b"MQTT", 4) => Ok((Version::V4, false)),
        (b"MQTT", 0x84) => Ok((Version::V4, true)),
        (b"MQTT", 5) => Ok((Version::V5, false)),
        (b"MQTT", _) => Err(unsupported("the protocol level is neither 4 (MQTT 3.1.1) nor 5")),
        (b"MQIsdp", _) => Err(unsupported("MQTT 3.1 is not supported; use 3.1.1 or 5")),
        _ => Err(unsupported("the protocol name is not MQTT")),
    }
}

/// Checks that the connect flags are consistent.
fn check_flags(version: Version, flags: u8) -> Result<(), DecodeError> {
    if flags & 1 != 0 {
        return Err(DecodeError::malformed("the reserved connect flag is set"));
    }
    if flags & WILL == 0 && flags & (WILL_RETAIN | 3 << WILL_QOS_SHIFT) != 0 {
        return Err(DecodeError::malformed("will QoS or will retain is set without the will flag"));
    }
    if version == Version::V4 && flags & PASSWORD != 0 && flags & USER_NAME == 0 {
        return Err(DecodeError::malformed("the password flag is set without the user name flag"));
    }
    Ok(())
}

pub(super) fn decode_connect(body: &[u8]) -> Result<Connect<'_>, DecodeError> {
    let mut reader = Reader::new(body);
    let (version, bridge) = version(&mut reader)?;
    let flags = reader.u8()?;
    check_flags(version, flags)?;
    let keep_alive = reader.u16()?;
    let properties = match version {
        Version::V4 => ConnectProperties::default(),
        Version::V5 => connect_properties(&mut reader)?,
    };
    let client_id = reader.text("the client identifier is not UTF-8 without U+0000")?;
    let will = if flags & WILL == 0 { None } else { Some(will(version, flags, &mut reader)?) };
    let user_name =
        if flags & USER_NAME == 0 { None } else { Some(reader.text("the user name is not UTF-8 without U+0000")?) };
    let password = if flags & PASSWORD == 0 { None } else { Some(reader.binary()?) };
    reader.finish()?;
    let clean_start = flags & CLEAN_START != 0;
    Ok(Connect { version, bridge, clean_start, keep_alive, properties, client_id, will, user_name, password })
}

fn connect_properties<'a>(reader: &mut Reader<'a>) -> Result<ConnectProperties<'a>, DecodeError> {
    let mut properties = ConnectProperties::default();
    let section = read_properties(reader, PropertyPlace::Connect, |property| match property {
        Property::SessionExpiry(value) => properties.session_expiry = Some(value),
        Property::ReceiveMaximum(value) => properties.receive_maximum = Some(value),
        Property::MaximumPacketSize(value) => properties.maximum_packet_size = Some(value),
        Property::TopicAliasMaximum(value) => properties.topic_alias_maximum = Some(value),
        Property::RequestResponseInformation(value) => properties.request_response_information = Some(value),
        Property::RequestProblemInformation(value) => properties.request_problem_information = Some(value),
        Property::AuthenticationMethod(value) => properties.authentication_method = Some(value),
        Property::AuthenticationData(value) => properties.authentication_data = Some(value),
        _ => {}
    })?;
    properties.user = section.user;
    if properties.authentication_data.is_some() && properties.authentication_method.is_none() {
        return Err(DecodeError::protocol("authentication data come without an authentication method"));
    }
    Ok(properties)
}

fn will<'a>(version: Version, flags: u8, reader: &mut Reader<'a>) -> Result<Will<'a>, DecodeError> {
    let qos = qos_from_bits(flags >> WILL_QOS_SHIFT & 3).ok_or(DecodeError::malformed("the will QoS is 3"))?;
    let properties = match version {
        Version::V4 => WillProperties::default(),
        Version::V5 => will_properties(reader)?,
    };
    let topic = topic_name(reader.binary()?)?;
    if topic.is_empty() {
        return Err(DecodeError { reason: ReasonCode::TOPIC_NAME_INVALID, cause: "the will topic is empty" });
    }
    let payload = reader.binary()?;
    Ok(Will { topic, payload, qos, retain: flags & WILL_RETAIN != 0, properties })
}

fn will_properties<'a>(reader: &mut Reader<'a>) -> Result<WillProperties<'a>, DecodeError> {
    let mut properties = WillProperties::default();
    let section = read_properties(reader, PropertyPlace::Will, |property| match property {
        Property::WillDelay(value) => properties.delay = Some(value),
        Property::TextPayload(value) => properties.text_payload = Some(value),
        Property::MessageExpiry(value) => properties.message_expiry = Some(value),
        Property::ContentType(value) => properties.content_type = Some(value),
        Property::ResponseTopic(value) => properties.response_topic = Some(value),
        Property::CorrelationData(value) => properties.correlation_data = Some(value),
        _ => {}
    })?;
    properties.user = section.user;
    Ok(properties)
}

impl Fields for ConnectProperties<'_> {
    fn write(&self, sink: &mut impl Sink) {
        sink.put_u32(id::SESSION_EXPIRY, self.session_expiry);
        sink.put_u16(id::RECEIVE_MAXIMUM, self.receive_maximum.map(NonZeroU16::get));
        sink.put_u32(id::MAXIMUM_PACKET_SIZE, self.maximum_packet_size);
        sink.put_u16(id::TOPIC_ALIAS_MAXIMUM, self.topic_alias_maximum);
        sink.put_flag(id::REQUEST_RESPONSE_INFORMATION, self.request_response_information);
        sink.put_flag(id::REQUEST_PROBLEM_INFORMATION, self.request_problem_information);
        sink.put_text(id::AUTHENTICATION_METHOD, self.authentication_method);
        sink.put_binary(id::AUTHENTICATION_DATA, self.authentication_data);
        self.user.write(sink);
    }
}

impl Fields for WillProperties<'_> {
    fn write(&self, sink: &mut impl Sink) {
        sink.put_u32(id::WILL_DELAY, self.delay);
        sink.put_flag(id::PAYLOAD_FORMAT, self.text_payload);
        sink.put_u32(id::MESSAGE_EXPIRY, self.message_expiry);
        sink.put_text(id::CONTENT_TYPE, self.content_type);
        sink.put_text(id::RESPONSE_TOPIC, self.response_topic);
        sink.put_binary(id::CORRELATION_DATA, self.correlation_data);
        self.user.write(sink);
    }
}

impl Connect<'_> {
    fn flags(&self) -> u8 {
        let mut flags = 0;
        if self.clean_start {
            flags |= CLEAN_START;
        }
        if let Some(will) = &self.will {
            flags |= WILL | (will.qos as u8) << WILL_QOS_SHIFT;
            if will.retain {
                flags |= WILL_RETAIN;
            }
        }
        if self.user_name.is_some() {
            flags |= USER_NAME;
        }
        if self.password.is_some() {
            flags |= PASSWORD;
        }
        flags
    }
}

impl Fields for Connect<'_> {
    fn write(&self, sink: &mut impl Sink) {
        sink.text("MQTT");
        let bridge = if self.bridge && self.version == Version::V4 { BRIDGE } else { 0 };
        sink.u8(self.version.level() | bridge);
        sink.u8(self.flags());
        sink.u16(self.keep_alive);
        if self.version == Version::V5 {
            write_with_length(&self.properties, sink);
        }
        sink.text(self.client_id);
        if let Some(will) = &self.will {
            if self.version == Version::V5 {
                write_with_length(&will.properties, sink);
            }
            sink.text(will.topic);
            sink.binary(will.payload);
        }
        if let Some(user_name) = self.user_name {
            sink.text(user_name);
        }
        if let Some(password) = self.password {
            sink.binary(password);
        }
    }
}
