//! Properties of MQTT 5: their identifiers, the packets that may have them, and their values.

use core::fmt;
use core::num::NonZeroU16;

use whimbrel_event::Attributes;

use super::wire::{Fields, Reader, Sink};
use super::{DecodeError, QoS, ReasonCode};

/// Property identifiers.
pub(crate) mod id {
    pub(crate) const PAYLOAD_FORMAT: u8 = 0x01;
    pub(crate) const MESSAGE_EXPIRY: u8 = 0x02;
    pub(crate) const CONTENT_TYPE: u8 = 0x03;
    pub(crate) const RESPONSE_TOPIC: u8 = 0x08;
    pub(crate) const CORRELATION_DATA: u8 = 0x09;
    pub(crate) const SUBSCRIPTION_ID: u8 = 0x0B;
    pub(crate) const SESSION_EXPIRY: u8 = 0x11;
    pub(crate) const ASSIGNED_CLIENT_ID: u8 = 0x12;
    pub(crate) const SERVER_KEEP_ALIVE: u8 = 0x13;
    pub(crate) const AUTHENTICATION_METHOD: u8 = 0x15;
    pub(crate) const AUTHENTICATION_DATA: u8 = 0x16;
    pub(crate) const REQUEST_PROBLEM_INFORMATION: u8 = 0x17;
    pub(crate) const WILL_DELAY: u8 = 0x18;
    pub(crate) const REQUEST_RESPONSE_INFORMATION: u8 = 0x19;
    pub(crate) const RESPONSE_INFORMATION: u8 = 0x1A;
    pub(crate) const SERVER_REFERENCE: u8 = 0x1C;
    pub(crate) const REASON_STRING: u8 = 0x1F;
    pub(crate) const RECEIVE_MAXIMUM: u8 = 0x21;
    pub(crate) const TOPIC_ALIAS_MAXIMUM: u8 = 0x22;
    pub(crate) const TOPIC_ALIAS: u8 = 0x23;
    pub(crate) const MAXIMUM_QOS: u8 = 0x24;
    pub(crate) const RETAIN_AVAILABLE: u8 = 0x25;
    pub(crate) const USER: u8 = 0x26;
    pub(crate) const MAXIMUM_PACKET_SIZE: u8 = 0x27;
    pub(crate) const WILDCARD_AVAILABLE: u8 = 0x28;
    pub(crate) const SUBSCRIPTION_IDS_AVAILABLE: u8 = 0x29;
    pub(crate) const SHARED_AVAILABLE: u8 = 0x2A;
}

/// Property sections that differ in the properties they may contain. One bit each.
#[derive(Clone, Copy)]
#[repr(u16)]
pub(crate) enum PropertyPlace {
    Connect = 1,
    ConnAck = 1 << 1,
    Publish = 1 << 2,
    Will = 1 << 3,
    /// PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK, UNSUBACK.
    Ack = 1 << 4,
    Subscribe = 1 << 5,
    Unsubscribe = 1 << 6,
    Disconnect = 1 << 7,
    Auth = 1 << 8,
}

/// The places where a property may stand, as a sum of [`PropertyPlace`]s; 0 for unknown properties.
const fn places(property: u8) -> u16 {
    const CONNECT: u16 = PropertyPlace::Connect as u16;
    const CONNACK: u16 = PropertyPlace::ConnAck as u16;
    const PUBLISH: u16 = PropertyPlace::Publish as u16;
    const WILL: u16 = PropertyPlace::Will as u16;
    const SUBSCRIBE: u16 = PropertyPlace::Subscribe as u16;
    const DISCONNECT: u16 = PropertyPlace::Disconnect as u16;
    const AUTH: u16 = PropertyPlace::Auth as u16;
    match property {
        id::PAYLOAD_FORMAT | id::MESSAGE_EXPIRY | id::CONTENT_TYPE | id::RESPONSE_TOPIC | id::CORRELATION_DATA => {
            PUBLISH | WILL
        }
        id::SUBSCRIPTION_ID => PUBLISH | SUBSCRIBE,
        id::SESSION_EXPIRY => CONNECT | CONNACK | DISCONNECT,
        id::AUTHENTICATION_METHOD | id::AUTHENTICATION_DATA => CONNECT | CONNACK | AUTH,
        id::REQUEST_PROBLEM_INFORMATION | id::REQUEST_RESPONSE_INFORMATION => CONNECT,
        id::WILL_DELAY => WILL,
        id::SERVER_REFERENCE => CONNACK | DISCONNECT,
        id::REASON_STRING => CONNACK | PropertyPlace::Ack as u16 | DISCONNECT | AUTH,
        id::RECEIVE_MAXIMUM | id::TOPIC_ALIAS_MAXIMUM | id::MAXIMUM_PACKET_SIZE => CONNECT | CONNACK,
        id::TOPIC_ALIAS => PUBLISH,
        id::USER => u16::MAX,
        id::ASSIGNED_CLIENT_ID
        | id::SERVER_KEEP_ALIVE
        | id::RESPONSE_INFORMATION
        | id::MAXIMUM_QOS
        | id::RETAIN_AVAILABLE
        | id::WILDCARD_AVAILABLE
        | id::SUBSCRIPTION_IDS_AVAILABLE
        | id::SHARED_AVAILABLE => CONNACK,
        _ => 0,
    }
}

/// One property with its checked value.
#[derive(Clone, Copy)]
pub(crate) enum Property<'a> {
    TextPayload(bool),
    MessageExpiry(u32),
    ContentType(&'a str),
    ResponseTopic(&'a str),
    CorrelationData(&'a [u8]),
    SubscriptionId(u32),
    SessionExpiry(u32),
    AssignedClientId(&'a str),
    ServerKeepAlive(u16),
    AuthenticationMethod(&'a str),
    AuthenticationData(&'a [u8]),
    RequestProblemInformation(bool),
    WillDelay(u32),
    RequestResponseInformation(bool),
    ResponseInformation(&'a str),
    ServerReference(&'a str),
    ReasonString(&'a str),
    ReceiveMaximum(NonZeroU16),
    TopicAliasMaximum(u16),
    TopicAlias(NonZeroU16),
    MaximumQoS(QoS),
    RetainAvailable(bool),
    User(&'a str, &'a str),
    MaximumPacketSize(u32),
    WildcardAvailable(bool),
    SubscriptionIdsAvailable(bool),
    SharedAvailable(bool),
}

fn flag(reader: &mut Reader<'_>, cause: &'static str) -> Result<bool, DecodeError> {
    match reader.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(DecodeError::protocol(cause)),
    }
}

fn non_zero(reader: &mut Reader<'_>, error: DecodeError) -> Result<NonZeroU16, DecodeError> {
    NonZeroU16::new(reader.u16()?).ok_or(error)
}

fn response_topic<'a>(reader: &mut Reader<'a>) -> Result<&'a str, DecodeError> {
    let topic = reader.text("the response topic is not UTF-8 without U+0000")?;
    if topic.is_empty() || topic.contains(['+', '#']) {
        return Err(DecodeError {
            reason: ReasonCode::TOPIC_NAME_INVALID,
            cause: "the response topic is empty or has a wildcard",
        });
    }
    Ok(topic)
}

fn subscription_id(reader: &mut Reader<'_>) -> Result<u32, DecodeError> {
    match reader.variable_integer()? {
        0 => Err(DecodeError::protocol("the subscription identifier is 0")),
        value => Ok(value),
    }
}

fn maximum_qos(reader: &mut Reader<'_>) -> Result<QoS, DecodeError> {
    flag(reader, "the maximum QoS is neither 0 nor 1")
        .map(|at_least_once| if at_least_once { QoS::AtLeastOnce } else { QoS::AtMostOnce })
}

fn maximum_packet_size(reader: &mut Reader<'_>) -> Result<u32, DecodeError> {
    match reader.u32()? {
        0 => Err(DecodeError::protocol("the maximum packet size is 0")),
        value => Ok(value),
    }
}

/// Reads the value of the property whose identifier was just read.
fn read_value<'a>(property: u8, r: &mut Reader<'a>) -> Result<Property<'a>, DecodeError> {
    const ZERO_WINDOW: DecodeError = DecodeError::protocol("the receive maximum is 0");
    const ZERO_ALIAS: DecodeError =
        DecodeError { reason: ReasonCode::TOPIC_ALIAS_INVALID, cause: "the topic alias is 0" };
    Ok(match property {
        id::PAYLOAD_FORMAT => Property::TextPayload(flag(r, "the payload format indicator is neither 0 nor 1")?),
        id::MESSAGE_EXPIRY => Property::MessageExpiry(r.u32()?),
        id::CONTENT_TYPE => Property::ContentType(r.text("the content type is not UTF-8 without U+0000")?),
        id::RESPONSE_TOPIC => Property::ResponseTopic(response_topic(r)?),
        id::CORRELATION_DATA => Property::CorrelationData(r.binary()?),
        id::SUBSCRIPTION_ID => Property::SubscriptionId(subscription_id(r)?),
        id::SESSION_EXPIRY => Property::SessionExpiry(r.u32()?),
        id::ASSIGNED_CLIENT_ID => {
            Property::AssignedClientId(r.text("the assigned client identifier is not UTF-8 without U+0000")?)
        }
        id::SERVER_KEEP_ALIVE => Property::ServerKeepAlive(r.u16()?),
        id::AUTHENTICATION_METHOD => {
            Property::AuthenticationMethod(r.text("the authentication method is not UTF-8 without U+0000")?)
        }
        id::AUTHENTICATION_DATA => Property::AuthenticationData(r.binary()?),
        id::REQUEST_PROBLEM_INFORMATION => {
            Property::RequestProblemInformation(flag(r, "request problem information is neither 0 nor 1")?)
        }
        id::WILL_DELAY => Property::WillDelay(r.u32()?),
        id::REQUEST_RESPONSE_INFORMATION => {
            Property::RequestResponseInformation(flag(r, "request response information is neither 0 nor 1")?)
        }
        id::RESPONSE_INFORMATION => {
            Property::ResponseInformation(r.text("the response information is not UTF-8 without U+0000")?)
        }
        id::SERVER_REFERENCE => Property::ServerReference(r.text("the server reference is not UTF-8 without U+0000")?),
        id::REASON_STRING => Property::ReasonString(r.text("the reason string is not UTF-8 without U+0000")?),
        id::RECEIVE_MAXIMUM => Property::ReceiveMaximum(non_zero(r, ZERO_WINDOW)?),
        id::TOPIC_ALIAS_MAXIMUM => Property::TopicAliasMaximum(r.u16()?),
        id::TOPIC_ALIAS => Property::TopicAlias(non_zero(r, ZERO_ALIAS)?),
        id::MAXIMUM_QOS => Property::MaximumQoS(maximum_qos(r)?),
        id::RETAIN_AVAILABLE => Property::RetainAvailable(flag(r, "retain available is neither 0 nor 1")?),
        id::USER => {
            let name = r.text("the name of a user property is not UTF-8 without U+0000")?;
            Property::User(name, r.text("the value of a user property is not UTF-8 without U+0000")?)
        }
        id::MAXIMUM_PACKET_SIZE => Property::MaximumPacketSize(maximum_packet_size(r)?),
        id::WILDCARD_AVAILABLE => Property::WildcardAvailable(flag(r, "wildcard available is neither 0 nor 1")?),
        id::SUBSCRIPTION_IDS_AVAILABLE => {
            Property::SubscriptionIdsAvailable(flag(r, "subscription identifiers available is neither 0 nor 1")?)
        }
        id::SHARED_AVAILABLE => Property::SharedAvailable(flag(r, "shared available is neither 0 nor 1")?),
        _ => return Err(DecodeError::malformed("a property is unknown")),
    })
}

/// Reads and checks a property section; calls `visit` for each property that the result does not
/// keep.
#[inline]
pub(crate) fn read_properties<'a>(
    reader: &mut Reader<'a>,
    place: PropertyPlace,
    visit: impl FnMut(Property<'a>),
) -> Result<Section<'a>, DecodeError> {
    let len = reader.variable_integer()? as usize;
    if len == 0 {
        return Ok(Section::default());
    }
    if len > reader.len() {
        return Err(DecodeError::malformed("the property length exceeds the packet"));
    }
    read_section(reader.take(len)?, place, visit)
}

fn read_section<'a>(
    bytes: &'a [u8],
    place: PropertyPlace,
    mut visit: impl FnMut(Property<'a>),
) -> Result<Section<'a>, DecodeError> {
    let mut reader = Reader::new(bytes);
    let mut seen = 0u64;
    let mut section = Section::default();
    while !reader.is_empty() {
        let before = reader.len();
        let property = reader.u8()?;
        if places(property) & place as u16 == 0 {
            return Err(DecodeError::malformed("a property is unknown or not permitted in this packet"));
        }
        let value = read_value(property, &mut reader)?;
        let len = (before - reader.len()) as u32;
        match value {
            Property::User(..) => {
                section.user = UserProperties { source: PropertySource::Encoded(bytes), len: section.user.len + len };
            }
            Property::SubscriptionId(..) if matches!(place, PropertyPlace::Publish) => {
                section.subscription_ids = SubscriptionIds(Ids::Encoded(bytes));
            }
            value => {
                let bit = 1 << property;
                if seen & bit != 0 {
                    return Err(DecodeError::protocol("a property that may be given once is repeated"));
                }
                seen |= bit;
                visit(value);
            }
        }
    }
    Ok(section)
}

/// The parts of a property section that are read only on demand.
#[derive(Clone, Copy, Default)]
pub(crate) struct Section<'a> {
    pub(crate) user: UserProperties<'a>,
    pub(crate) subscription_ids: SubscriptionIds<'a>,
}

/// The properties in a section that was checked before.
fn checked_properties<'a>(section: &'a [u8]) -> impl Iterator<Item = Property<'a>> {
    let mut reader = Reader::new(section);
    core::iter::from_fn(move || {
        let property = reader.u8().ok()?;
        read_value(property, &mut reader).ok()
    })
}

/// Name and value pairs in the order given; names may repeat. Pairs of a decoded packet are read
/// when iterated; pairs to encode come from [`Attributes`].
#[derive(Clone, Copy)]
pub struct UserProperties<'a> {
    source: PropertySource<'a>,
    /// Bytes when encoded.
    len: u32,
}

#[derive(Clone, Copy)]
enum PropertySource<'a> {
    /// A checked property section that contains the pairs, perhaps among other properties.
    Encoded(&'a [u8]),
    Attributes(Attributes<'a>),
}

impl<'a> UserProperties<'a> {
    /// No pairs.
    pub const EMPTY: UserProperties<'static> = UserProperties { source: PropertySource::Encoded(&[]), len: 0 };

    /// True if there is no pair.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// All pairs.
    pub fn iter(self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let (section, attributes) = match self.source {
            PropertySource::Encoded(_) if self.len == 0 => (&[][..], Attributes::EMPTY),
            PropertySource::Encoded(section) => (section, Attributes::EMPTY),
            PropertySource::Attributes(attributes) => (&[][..], attributes),
        };
        let encoded = checked_properties(section).filter_map(|property| match property {
            Property::User(name, value) => Some((name, value)),
            _ => None,
        });
        encoded.chain(attributes.iter())
    }

    /// The value of the first pair of that name.
    pub fn get(self, name: &str) -> Option<&'a str> {
        self.iter().find(|(n, _)| *n == name).map(|(_, value)| value)
    }
}

impl<'a> From<Attributes<'a>> for UserProperties<'a> {
    fn from(attributes: Attributes<'a>) -> Self {
        if attributes.is_empty() {
            return UserProperties::EMPTY;
        }
        // The encodings differ in one byte, the identifier, before each pair.
        let len = attributes.as_bytes().len() + attributes.pairs().count();
        UserProperties { source: PropertySource::Attributes(attributes), len: u32::try_from(len).unwrap_or(u32::MAX) }
    }
}

impl Default for UserProperties<'_> {
    fn default() -> Self {
        UserProperties::EMPTY
    }
}

impl PartialEq for UserProperties<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

impl Eq for UserProperties<'_> {}

impl fmt::Debug for UserProperties<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl Fields for UserProperties<'_> {
    #[inline]
    fn write(&self, sink: &mut impl Sink) {
        match self.source {
            _ if self.len == 0 => {}
            PropertySource::Encoded(section) if section.len() == self.len as usize => sink.bytes(section),
            PropertySource::Attributes(attributes) => {
                for pair in attributes.pairs() {
                    sink.u8(id::USER);
                    sink.bytes(pair);
                }
            }
            PropertySource::Encoded(_) => {
                for (name, value) in self.iter() {
                    sink.u8(id::USER);
                    sink.text(name);
                    sink.text(value);
                }
            }
        }
    }
}

/// The identifiers of the subscriptions that a PUBLISH is delivered for.
#[derive(Clone, Copy)]
pub struct SubscriptionIds<'a>(Ids<'a>);

#[derive(Clone, Copy)]
enum Ids<'a> {
    /// A checked property section that contains at least one identifier.
    Encoded(&'a [u8]),
    List(&'a [u32]),
}

impl<'a> SubscriptionIds<'a> {
    /// No identifiers.
    pub const EMPTY: SubscriptionIds<'static> = SubscriptionIds(Ids::List(&[]));

    /// A list of identifiers from 1 to [`super::SUBSCRIPTION_ID_MAX`]; others are left out when
    /// encoded.
    pub const fn list(ids: &'a [u32]) -> Self {
        SubscriptionIds(Ids::List(ids))
    }

    /// True if there is no identifier.
    pub fn is_empty(self) -> bool {
        matches!(self.0, Ids::List([]))
    }

    /// All identifiers.
    pub fn iter(self) -> impl Iterator<Item = u32> {
        let (section, list) = match self.0 {
            Ids::Encoded(section) => (section, &[][..]),
            Ids::List(list) => (&[][..], list),
        };
        let encoded = checked_properties(section).filter_map(|property| match property {
            Property::SubscriptionId(id) => Some(id),
            _ => None,
        });
        encoded.chain(list.iter().copied().filter(|id| (1..=super::SUBSCRIPTION_ID_MAX).contains(id)))
    }
}

impl Default for SubscriptionIds<'_> {
    fn default() -> Self {
        SubscriptionIds::EMPTY
    }
}

impl PartialEq for SubscriptionIds<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for SubscriptionIds<'_> {}

impl fmt::Debug for SubscriptionIds<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl Fields for SubscriptionIds<'_> {
    #[inline]
    fn write(&self, sink: &mut impl Sink) {
        if self.is_empty() {
            return;
        }
        for value in self.iter() {
            sink.u8(id::SUBSCRIPTION_ID);
            sink.variable_integer(value);
        }
    }
}

/// Writes single properties if they are present.
pub(crate) trait PropertySink: Sink {
    #[inline]
    fn put_flag(&mut self, property: u8, value: Option<bool>) {
        if let Some(value) = value {
            self.bytes(&[property, u8::from(value)]);
        }
    }

    #[inline]
    fn put_u16(&mut self, property: u8, value: Option<u16>) {
        if let Some(value) = value {
            self.u8(property);
            self.u16(value);
        }
    }

    #[inline]
    fn put_u32(&mut self, property: u8, value: Option<u32>) {
        if let Some(value) = value {
            self.u8(property);
            self.u32(value);
        }
    }

    #[inline]
    fn put_binary(&mut self, property: u8, value: Option<&[u8]>) {
        if let Some(value) = value {
            self.u8(property);
            self.binary(value);
        }
    }

    #[inline]
    fn put_text(&mut self, property: u8, value: Option<&str>) {
        self.put_binary(property, value.map(str::as_bytes));
    }
}

impl<S: Sink> PropertySink for S {}
