//! SUBSCRIBE and UNSUBSCRIBE.

use core::fmt;

use super::property::{Property, PropertyPlace, id, read_properties};
use super::publish::{packet_id, qos_from_bits};
use super::wire::{Fields, Reader, Sink, write_with_length};
use super::{DecodeError, PacketId, QoS, UserProperties, Version};

const NO_LOCAL: u8 = 0x04;
const RETAIN_AS_PUBLISHED: u8 = 0x08;
const RETAIN_HANDLING_SHIFT: u32 = 4;
const BAD_FILTER: &str = "a topic filter is not UTF-8 without U+0000";

/// A SUBSCRIBE packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Subscribe<'a> {
    /// The packet id, which the SUBACK repeats.
    pub packet_id: PacketId,
    /// Properties; none in MQTT 3.1.1.
    pub properties: SubscribeProperties<'a>,
    /// The filters, at least one.
    pub filters: Filters<'a>,
}

/// Properties of a SUBSCRIBE.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct SubscribeProperties<'a> {
    /// Sent with each delivery; from 1 to [`super::SUBSCRIPTION_ID_MAX`].
    pub subscription_id: Option<u32>,
    /// Name and value pairs.
    pub user: UserProperties<'a>,
}

/// An UNSUBSCRIBE packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unsubscribe<'a> {
    /// The packet id, which the UNSUBACK repeats.
    pub packet_id: PacketId,
    /// Properties; none in MQTT 3.1.1.
    pub properties: UnsubscribeProperties<'a>,
    /// The filters, at least one.
    pub filters: Topics<'a>,
}

/// Properties of an UNSUBSCRIBE.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct UnsubscribeProperties<'a> {
    /// Name and value pairs.
    pub user: UserProperties<'a>,
}

/// Whether retained messages are sent when a subscription is made.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum RetainHandling {
    /// All retained messages that match are sent.
    #[default]
    Send = 0,
    /// Retained messages are sent unless the subscription existed.
    SendIfNew = 1,
    /// No retained message is sent.
    DoNotSend = 2,
}

/// One filter of a SUBSCRIBE with its options. MQTT 3.1.1 has no option but the QoS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Filter<'a> {
    /// The filter as written; its syntax is not checked here.
    pub filter: &'a str,
    /// The highest QoS of deliveries.
    pub qos: QoS,
    /// Leave out messages that the same client publishes.
    pub no_local: bool,
    /// Keep the retain flag as published.
    pub retain_as_published: bool,
    /// Whether retained messages are sent.
    pub retain_handling: RetainHandling,
}

impl<'a> Filter<'a> {
    /// A filter with no options but the QoS.
    pub const fn new(filter: &'a str, qos: QoS) -> Self {
        Filter { filter, qos, no_local: false, retain_as_published: false, retain_handling: RetainHandling::Send }
    }

    fn options(&self, version: Version) -> u8 {
        let mut options = self.qos as u8;
        if version == Version::V5 {
            if self.no_local {
                options |= NO_LOCAL;
            }
            if self.retain_as_published {
                options |= RETAIN_AS_PUBLISHED;
            }
            options |= (self.retain_handling as u8) << RETAIN_HANDLING_SHIFT;
        }
        options
    }
}

fn read_filter<'a>(version: Version, reader: &mut Reader<'a>) -> Result<Filter<'a>, DecodeError> {
    let filter = reader.text(BAD_FILTER)?;
    let options = reader.u8()?;
    let reserved = match version {
        Version::V4 => 0xfc,
        Version::V5 => 0xc0,
    };
    if options & reserved != 0 {
        return Err(DecodeError::malformed("a reserved bit of the subscription options is set"));
    }
    let qos = qos_from_bits(options & 3).ok_or(match version {
        Version::V4 => DecodeError::malformed("the requested QoS is 3"),
        Version::V5 => DecodeError::protocol("the requested QoS is 3"),
    })?;
    let retain_handling = match options >> RETAIN_HANDLING_SHIFT & 3 {
        0 => RetainHandling::Send,
        1 => RetainHandling::SendIfNew,
        2 => RetainHandling::DoNotSend,
        _ => return Err(DecodeError::protocol("the retain handling option is 3")),
    };
    let no_local = options & NO_LOCAL != 0;
    if no_local && filter.starts_with("$share/") {
        return Err(DecodeError::protocol("no local is set on a shared subscription"));
    }
    let retain_as_published = options & RETAIN_AS_PUBLISHED != 0;
    Ok(Filter { filter, qos, no_local, retain_as_published, retain_handling })
}

/// The filters of a SUBSCRIBE; those of a decoded packet are read when iterated.
#[derive(Clone, Copy)]
pub struct Filters<'a>(FilterList<'a>);

#[derive(Clone, Copy)]
enum FilterList<'a> {
    /// A checked payload; the MQTT 5 form of an option byte covers that of 3.1.1.
    Encoded(&'a [u8]),
    List(&'a [Filter<'a>]),
}

impl<'a> Filters<'a> {
    /// A list of filters to encode.
    pub const fn list(filters: &'a [Filter<'a>]) -> Self {
        Filters(FilterList::List(filters))
    }

    /// All filters in their order.
    pub fn iter(self) -> impl Iterator<Item = Filter<'a>> {
        let (encoded, list) = match self.0 {
            FilterList::Encoded(payload) => (payload, &[][..]),
            FilterList::List(list) => (&[][..], list),
        };
        let mut reader = Reader::new(encoded);
        core::iter::from_fn(move || read_filter(Version::V5, &mut reader).ok()).chain(list.iter().copied())
    }
}

impl PartialEq for Filters<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Filters<'_> {}

impl fmt::Debug for Filters<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// The filters of an UNSUBSCRIBE; those of a decoded packet are read when iterated.
#[derive(Clone, Copy)]
pub struct Topics<'a>(TopicList<'a>);

#[derive(Clone, Copy)]
enum TopicList<'a> {
    /// A checked payload.
    Encoded(&'a [u8]),
    List(&'a [&'a str]),
}

impl<'a> Topics<'a> {
    /// A list of filters to encode.
    pub const fn list(filters: &'a [&'a str]) -> Self {
        Topics(TopicList::List(filters))
    }

    /// All filters in their order.
    pub fn iter(self) -> impl Iterator<Item = &'a str> {
        let (encoded, list) = match self.0 {
            TopicList::Encoded(payload) => (payload, &[][..]),
            TopicList::List(list) => (&[][..], list),
        };
        let mut reader = Reader::new(encoded);
        core::iter::from_fn(move || reader.text(BAD_FILTER).ok()).chain(list.iter().copied())
    }
}

impl PartialEq for Topics<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Topics<'_> {}

impl fmt::Debug for Topics<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

pub(super) fn decode_subscribe(version: Version, body: &[u8]) -> Result<Subscribe<'_>, DecodeError> {
    let mut reader = Reader::new(body);
    let packet_id = packet_id(&mut reader)?;
    let mut properties = SubscribeProperties::default();
    if version == Version::V5 {
        let section = read_properties(&mut reader, PropertyPlace::Subscribe, |property| {
            if let Property::SubscriptionId(value) = property {
                properties.subscription_id = Some(value);
            }
        })?;
        properties.user = section.user;
    }
    let payload = reader.rest();
    if payload.is_empty() {
        return Err(DecodeError::protocol("the SUBSCRIBE has no topic filter"));
    }
    while !reader.is_empty() {
        read_filter(version, &mut reader)?;
    }
    Ok(Subscribe { packet_id, properties, filters: Filters(FilterList::Encoded(payload)) })
}

pub(super) fn decode_unsubscribe(version: Version, body: &[u8]) -> Result<Unsubscribe<'_>, DecodeError> {
    let mut reader = Reader::new(body);
    let packet_id = packet_id(&mut reader)?;
    let mut properties = UnsubscribeProperties::default();
    if version == Version::V5 {
        properties.user = read_properties(&mut reader, PropertyPlace::Unsubscribe, |_| {})?.user;
    }
    let payload = reader.rest();
    if payload.is_empty() {
        return Err(DecodeError::protocol("the UNSUBSCRIBE has no topic filter"));
    }
    while !reader.is_empty() {
        reader.text(BAD_FILTER)?;
    }
    Ok(Unsubscribe { packet_id, properties, filters: Topics(TopicList::Encoded(payload)) })
}

impl Fields for SubscribeProperties<'_> {
    fn write(&self, sink: &mut impl Sink) {
        if let Some(value) = self.subscription_id {
            sink.u8(id::SUBSCRIPTION_ID);
            sink.variable_integer(value);
        }
        self.user.write(sink);
    }
}

impl Fields for (Version, &Subscribe<'_>) {
    fn write(&self, sink: &mut impl Sink) {
        let (version, subscribe) = self;
        sink.u16(subscribe.packet_id.get());
        if *version == Version::V5 {
            write_with_length(&subscribe.properties, sink);
        }
        for filter in subscribe.filters.iter() {
            sink.text(filter.filter);
            sink.u8(filter.options(*version));
        }
    }
}

impl Fields for (Version, &Unsubscribe<'_>) {
    fn write(&self, sink: &mut impl Sink) {
        let (version, unsubscribe) = self;
        sink.u16(unsubscribe.packet_id.get());
        if *version == Version::V5 {
            write_with_length(&unsubscribe.properties.user, sink);
        }
        for filter in unsubscribe.filters.iter() {
            sink.text(filter);
        }
    }
}
