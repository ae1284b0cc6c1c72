//! DISCONNECT and AUTH.

use super::property::{Property, PropertyPlace, PropertySink, id, read_properties};
use super::wire::{Fields, Reader, Sink, write_with_length};
use super::{DecodeError, PacketType, ReasonCode, UserProperties, Version};

/// A DISCONNECT packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Disconnect<'a> {
    /// The reason; always success in MQTT 3.1.1.
    pub reason: ReasonCode,
    /// Properties; none in MQTT 3.1.1.
    pub properties: DisconnectProperties<'a>,
}

impl Disconnect<'_> {
    /// A DISCONNECT with this reason, without properties.
    pub const fn new(reason: ReasonCode) -> Disconnect<'static> {
        Disconnect { reason, properties: DisconnectProperties::EMPTY }
    }
}

/// Properties of a DISCONNECT.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct DisconnectProperties<'a> {
    /// Seconds for which the session outlives the connection; only from a client.
    pub session_expiry: Option<u32>,
    /// An explanation for people.
    pub reason_string: Option<&'a str>,
    /// Another server to use; only from a server.
    pub server_reference: Option<&'a str>,
    /// Name and value pairs.
    pub user: UserProperties<'a>,
}

impl DisconnectProperties<'_> {
    /// No properties.
    pub const EMPTY: DisconnectProperties<'static> = DisconnectProperties {
        session_expiry: None,
        reason_string: None,
        server_reference: None,
        user: UserProperties::EMPTY,
    };
}

/// An AUTH packet, MQTT 5 only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Auth<'a> {
    /// Success, continue or re-authenticate.
    pub reason: ReasonCode,
    /// Properties.
    pub properties: AuthProperties<'a>,
}

/// Properties of an AUTH.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct AuthProperties<'a> {
    /// The authentication method; absent only in an AUTH that has success and no properties.
    pub method: Option<&'a str>,
    /// Data that the method defines.
    pub data: Option<&'a [u8]>,
    /// An explanation for people.
    pub reason_string: Option<&'a str>,
    /// Name and value pairs.
    pub user: UserProperties<'a>,
}

fn reason(packet: PacketType, reader: &mut Reader<'_>) -> Result<ReasonCode, DecodeError> {
    let reason = ReasonCode(reader.u8()?);
    if reason.is_defined_for(packet) {
        Ok(reason)
    } else {
        Err(DecodeError::protocol("the reason code is not defined for this packet"))
    }
}

pub(super) fn decode_disconnect(version: Version, body: &[u8]) -> Result<Disconnect<'_>, DecodeError> {
    let mut reader = Reader::new(body);
    let mut disconnect = Disconnect::new(ReasonCode::SUCCESS);
    if version == Version::V5 && !reader.is_empty() {
        disconnect.reason = reason(PacketType::Disconnect, &mut reader)?;
        if !reader.is_empty() {
            let properties = &mut disconnect.properties;
            let section = read_properties(&mut reader, PropertyPlace::Disconnect, |property| match property {
                Property::SessionExpiry(value) => properties.session_expiry = Some(value),
                Property::ReasonString(value) => properties.reason_string = Some(value),
                Property::ServerReference(value) => properties.server_reference = Some(value),
                _ => {}
            })?;
            properties.user = section.user;
        }
    }
    reader.finish()?;
    Ok(disconnect)
}

pub(super) fn decode_auth(body: &[u8]) -> Result<Auth<'_>, DecodeError> {
    let mut reader = Reader::new(body);
    let mut auth = Auth { reason: ReasonCode::SUCCESS, properties: AuthProperties::default() };
    if reader.is_empty() {
        return Ok(auth);
    }
    auth.reason = reason(PacketType::Auth, &mut reader)?;
    let properties = &mut auth.properties;
    let section = read_properties(&mut reader, PropertyPlace::Auth, |property| match property {
        Property::AuthenticationMethod(value) => properties.method = Some(value),
        Property::AuthenticationData(value) => properties.data = Some(value),
        Property::ReasonString(value) => properties.reason_string = Some(value),
        _ => {}
    })?;
    properties.user = section.user;
    if properties.method.is_none() {
        return Err(DecodeError::protocol("the AUTH has no authentication method"));
    }
    reader.finish()?;
    Ok(auth)
}

impl Fields for DisconnectProperties<'_> {
    fn write(&self, sink: &mut impl Sink) {
        sink.put_u32(id::SESSION_EXPIRY, self.session_expiry);
        sink.put_text(id::REASON_STRING, self.reason_string);
        sink.put_text(id::SERVER_REFERENCE, self.server_reference);
        self.user.write(sink);
    }
}

impl Fields for (Version, &Disconnect<'_>) {
    fn write(&self, sink: &mut impl Sink) {
        let (version, disconnect) = self;
        let bare = disconnect.properties == DisconnectProperties::EMPTY;
        if *version == Version::V4 || (bare && disconnect.reason == ReasonCode::SUCCESS) {
            return;
        }
        sink.u8(disconnect.reason.0);
        if !bare {
            write_with_length(&disconnect.properties, sink);
        }
    }
}

impl Fields for AuthProperties<'_> {
    fn write(&self, sink: &mut impl Sink) {
        sink.put_text(id::AUTHENTICATION_METHOD, self.method);
        sink.put_binary(id::AUTHENTICATION_DATA, self.data);
        sink.put_text(id::REASON_STRING, self.reason_string);
        self.user.write(sink);
    }
}

impl Fields for Auth<'_> {
    fn write(&self, sink: &mut impl Sink) {
        if self.reason == ReasonCode::SUCCESS && self.properties == AuthProperties::default() {
            return;
        }
        sink.u8(self.reason.0);
        write_with_length(&self.properties, sink);
    }
}
