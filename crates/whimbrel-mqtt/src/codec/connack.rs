//! CONNACK.

use core::num::NonZeroU16;

use super::property::{Property, PropertyPlace, PropertySink, id, read_properties};
use super::wire::{Fields, Reader, Sink, write_with_length};
use super::{DecodeError, PacketType, QoS, ReasonCode, UserProperties, Version};

/// A CONNACK packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnAck<'a> {
    /// The server has state of an earlier connection.
    pub session_present: bool,
    /// The outcome. In MQTT 3.1.1 the nearest return code is sent.
    pub reason: ReasonCode,
    /// Properties; none in MQTT 3.1.1.
    pub properties: ConnAckProperties<'a>,
}

impl ConnAck<'_> {
    /// A refusal of the connection, without properties.
    pub fn refusal(reason: ReasonCode) -> ConnAck<'static> {
        ConnAck { session_present: false, reason, properties: ConnAckProperties::default() }
    }
}

/// Properties of a CONNACK.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct ConnAckProperties<'a> {
    /// Seconds for which the session outlives the connection, if not as the client asked.
    pub session_expiry: Option<u32>,
    /// Publishes with QoS above 0 that the server accepts unacknowledged; 65,535 if absent.
    pub receive_maximum: Option<NonZeroU16>,
    /// The highest QoS that the server accepts: 0 or 1; 2 if absent.
    pub maximum_qos: Option<QoS>,
    /// Whether the server retains messages; true if absent.
    pub retain_available: Option<bool>,
    /// The largest packet that the server accepts, bytes; not 0.
    pub maximum_packet_size: Option<u32>,
    /// The identifier that the server gave to a client without one.
    pub assigned_client_id: Option<&'a str>,
    /// The largest topic alias that the server accepts; 0 if absent.
    pub topic_alias_maximum: Option<u16>,
    /// An explanation for people.
    pub reason_string: Option<&'a str>,
    /// Whether the server accepts wildcards in filters; true if absent.
    pub wildcard_available: Option<bool>,
    /// Whether the server accepts subscription identifiers; true if absent.
    pub subscription_ids_available: Option<bool>,
    /// Whether the server accepts shared subscriptions; true if absent.
    pub shared_available: Option<bool>,
    /// The keep-alive that the client must use in place of its own, seconds.
    pub server_keep_alive: Option<u16>,
    /// The prefix of response topics.
    pub response_information: Option<&'a str>,
    /// Another server to use.
    pub server_reference: Option<&'a str>,
    /// The method of extended authentication.
    pub authentication_method: Option<&'a str>,
    /// Data that the method defines.
    pub authentication_data: Option<&'a [u8]>,
    /// Name and value pairs.
    pub user: UserProperties<'a>,
}

pub(super) fn decode_connack(version: Version, body: &[u8]) -> Result<ConnAck<'_>, DecodeError> {
    let mut reader = Reader::new(body);
    let flags = reader.u8()?;
    if flags > 1 {
        return Err(DecodeError::malformed("a reserved bit of the connect acknowledge flags is set"));
    }
    let code = reader.u8()?;
    let (reason, properties) = match version {
        Version::V4 => {
            let reason = ReasonCode::from_return_code(code)
                .ok_or(DecodeError::malformed("the connect return code is none of 0 to 5"))?;
            (reason, ConnAckProperties::default())
        }
        Version::V5 => {
            let reason = ReasonCode(code);
            if !reason.is_defined_for(PacketType::ConnAck) {
                return Err(DecodeError::protocol("the reason code is not defined for this packet"));
            }
            (reason, connack_properties(&mut reader)?)
        }
    };
    reader.finish()?;
    let session_present = flags == 1;
    if session_present && reason != ReasonCode::SUCCESS {
        return Err(DecodeError::protocol("a refused connection has a session"));
    }
    Ok(ConnAck { session_present, reason, properties })
}

fn connack_properties<'a>(reader: &mut Reader<'a>) -> Result<ConnAckProperties<'a>, DecodeError> {
    let mut properties = ConnAckProperties::default();
    let section = read_properties(reader, PropertyPlace::ConnAck, |property| match property {
        Property::SessionExpiry(value) => properties.session_expiry = Some(value),
        Property::ReceiveMaximum(value) => properties.receive_maximum = Some(value),
        Property::MaximumQoS(value) => properties.maximum_qos = Some(value),
        Property::RetainAvailable(value) => properties.retain_available = Some(value),
        Property::MaximumPacketSize(value) => properties.maximum_packet_size = Some(value),
        Property::AssignedClientId(value) => properties.assigned_client_id = Some(value),
        Property::TopicAliasMaximum(value) => properties.topic_alias_maximum = Some(value),
        Property::ReasonString(value) => properties.reason_string = Some(value),
        Property::WildcardAvailable(value) => properties.wildcard_available = Some(value),
        Property::SubscriptionIdsAvailable(value) => properties.subscription_ids_available = Some(value),
        Property::SharedAvailable(value) => properties.shared_available = Some(value),
        Property::ServerKeepAlive(value) => properties.server_keep_alive = Some(value),
        Property::ResponseInformation(value) => properties.response_information = Some(value),
        Property::ServerReference(value) => properties.server_reference = Some(value),
        Property::AuthenticationMethod(value) => properties.authentication_method = Some(value),
        Property::AuthenticationData(value) => properties.authentication_data = Some(value),
        _ => {}
    })?;
    properties.user = section.user;
    Ok(properties)
}

impl Fields for ConnAckProperties<'_> {
    fn write(&self, sink: &mut impl Sink) {
        sink.put_u32(id::SESSION_EXPIRY, self.session_expiry);
        sink.put_u16(id::RECEIVE_MAXIMUM, self.receive_maximum.map(NonZeroU16::get));
        // The property has no encoding for QoS 2: it is left out.
        let limited = self.maximum_qos.filter(|qos| *qos != QoS::ExactlyOnce);
        sink.put_flag(id::MAXIMUM_QOS, limited.map(|qos| qos == QoS::AtLeastOnce));
        sink.put_flag(id::RETAIN_AVAILABLE, self.retain_available);
        sink.put_u32(id::MAXIMUM_PACKET_SIZE, self.maximum_packet_size);
        sink.put_text(id::ASSIGNED_CLIENT_ID, self.assigned_client_id);
        sink.put_u16(id::TOPIC_ALIAS_MAXIMUM, self.topic_alias_maximum);
        sink.put_text(id::REASON_STRING, self.reason_string);
        sink.put_flag(id::WILDCARD_AVAILABLE, self.wildcard_available);
        sink.put_flag(id::SUBSCRIPTION_IDS_AVAILABLE, self.subscription_ids_available);
        sink.put_flag(id::SHARED_AVAILABLE, self.shared_available);
        sink.put_u16(id::SERVER_KEEP_ALIVE, self.server_keep_alive);
        sink.put_text(id::RESPONSE_INFORMATION, self.response_information);
        sink.put_text(id::SERVER_REFERENCE, self.server_reference);
        sink.put_text(id::AUTHENTICATION_METHOD, self.authentication_method);
        sink.put_binary(id::AUTHENTICATION_DATA, self.authentication_data);
        self.user.write(sink);
    }
}

impl Fields for (Version, &ConnAck<'_>) {
    fn write(&self, sink: &mut impl Sink) {
        let (version, connack) = self;
        sink.u8(u8::from(connack.session_present));
        match version {
            Version::V4 => sink.u8(connack.reason.to_return_code()),
            Version::V5 => {
                sink.u8(connack.reason.0);
                write_with_length(&connack.properties, sink);
            }
        }
    }
}
