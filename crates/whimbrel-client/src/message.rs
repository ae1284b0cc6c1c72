//! What is published and what arrives.

use whimbrel_event::{AttributesBuf, CheckpointToken, EventId};
use whimbrel_mqtt::codec::{CodesAck, PacketId, Publish as Packet, PublishProperties, QoS, ReasonCode};

use crate::{Error, Notice};

/// User property with an event's name.
const ID: &str = "w-id";

/// User property with the publisher's own number of an event.
const SEQUENCE: &str = "w-seq";

/// User property of a SUBACK with the position at which a subscription begins.
const TOKEN: &str = "w-token";

/// A message to be published.
#[derive(Clone, Debug)]
pub struct Publish {
    pub(crate) topic: String,
    pub(crate) payload: Vec<u8>,
    pub(crate) qos: QoS,
    pub(crate) retain: bool,
    pub(crate) expiry: Option<u32>,
    pub(crate) content_type: Option<String>,
    pub(crate) response_topic: Option<String>,
    pub(crate) correlation: Option<Vec<u8>>,
    pub(crate) properties: AttributesBuf,
}

impl Publish {
    /// A message with QoS 0.
    pub fn new(topic: impl Into<String>, payload: impl Into<Vec<u8>>) -> Publish {
        Publish {
            topic: topic.into(),
            payload: payload.into(),
            qos: QoS::AtMostOnce,
            retain: false,
            expiry: None,
            content_type: None,
            response_topic: None,
            correlation: None,
            properties: AttributesBuf::new(),
        }
    }

    /// How surely it is handed over.
    pub fn qos(mut self, qos: QoS) -> Self {
        self.qos = qos;
        self
    }

    /// Whether the broker keeps it for later subscribers; an empty payload clears what it keeps.
    pub fn retain(mut self, retain: bool) -> Self {
        self.retain = retain;
        self
    }

    /// Seconds for which it is of use (MQTT 5).
    pub fn expiry(mut self, seconds: u32) -> Self {
        self.expiry = Some(seconds);
        self
    }

    /// What the payload is (MQTT 5).
    pub fn content_type(mut self, content_type: impl Into<String>) -> Self {
        self.content_type = Some(content_type.into());
        self
    }

    /// Where a reply is wanted, and what it shall carry to be recognised (MQTT 5).
    pub fn respond_to(mut self, topic: impl Into<String>, correlation: Option<Vec<u8>>) -> Self {
        self.response_topic = Some(topic.into());
        self.correlation = correlation;
        self
    }

    /// Adds a user property, which selectors see as an attribute (MQTT 5).
    ///
    /// # Panics
    /// When name or value are longer than 65,535 bytes.
    pub fn property(mut self, name: impl AsRef<str>, value: impl AsRef<str>) -> Self {
        self.properties.push(name.as_ref(), value.as_ref());
        self
    }

    /// The publisher's own number of this message, larger than those before under the same client id: Whimbrel's brokers acknowledge a repetition and drop
    /// it, so that what is sent again after a failure arrives once also with QoS 1 (MQTT 5).
    pub fn sequence(self, number: u64) -> Self {
        self.property(SEQUENCE, number.to_string())
    }

    /// As a packet with that identifier (`None` with QoS 0).
    pub(crate) fn packet(&self, packet_id: Option<PacketId>, dup: bool) -> Packet<'_> {
        let properties = PublishProperties {
            message_expiry: self.expiry,
            content_type: self.content_type.as_deref(),
            response_topic: self.response_topic.as_deref(),
            correlation_data: self.correlation.as_deref(),
            user: self.properties.as_attributes().into(),
            ..PublishProperties::EMPTY
        };
        let (qos, retain) = (self.qos, self.retain);
        Packet { dup, qos, retain, topic: &self.topic, packet_id, properties, payload: &self.payload }
    }
}

/// How a publish went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// Success, or that nobody had subscribed ([`ReasonCode::NO_MATCHING_SUBSCRIBERS`]).
    pub reason: ReasonCode,
}

/// A message that arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its topic.
    pub topic: String,
    /// Its payload.
    pub payload: Vec<u8>,
    /// How surely it was handed over.
    pub qos: QoS,
    /// It was retained by the broker.
    pub retain: bool,
    /// It may have arrived before.
    pub dup: bool,
    /// Seconds for which it is still of use.
    pub expiry: Option<u32>,
    /// What the payload is.
    pub content_type: Option<String>,
    /// Where a reply is wanted.
    pub response_topic: Option<String>,
    /// What a reply shall carry.
    pub correlation: Option<Vec<u8>>,
    /// Identifiers of the subscriptions it arrived for.
    pub subscription_ids: Vec<u32>,
    /// User properties in their order.
    pub properties: Vec<(String, String)>,
}

impl Message {
    pub(crate) fn new(packet: &Packet<'_>, topic: String) -> Message {
        let properties = &packet.properties;
        Message {
            topic,
            payload: packet.payload.to_vec(),
            qos: packet.qos,
            retain: packet.retain,
            dup: packet.dup,
            expiry: properties.message_expiry,
            content_type: properties.content_type.map(Into::into),
            response_topic: properties.response_topic.map(Into::into),
            correlation: properties.correlation_data.map(Into::into),
            subscription_ids: properties.subscription_ids.iter().collect(),
            properties: properties.user.iter().map(|(name, value)| (name.into(), value.into())).collect(),
        }
    }

    /// The event's name in the whole deployment, `w-id`. Whimbrel's broker gives it with subscriptions that are semi-durable or durable or have
    /// notices on; others hand on what the publisher wrote.
    pub fn id(&self) -> Option<EventId> {
        // What the broker itself says stands last.
        let (_, id) = self.properties.iter().rev().find(|(name, _)| name == ID)?;
        id.parse().ok()
    }

    /// What the broker says about the subscription, if it is that ([`crate::Subscription::notices`]).
    pub fn notice(&self) -> Option<Notice> {
        Notice::read(&self.topic, &self.payload)
    }
}

/// How the broker answers a subscribe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// For each filter, in their order: the QoS that was granted, or why it was refused.
    pub reasons: Vec<ReasonCode>,
    /// The broker's words, where it has something to add.
    pub text: Option<String>,
    /// User properties in their order.
    pub properties: Vec<(String, String)>,
}

impl Answer {
    pub(crate) fn new(packet: &CodesAck<'_>) -> Answer {
        let properties = &packet.properties;
        Answer {
            reasons: packet.codes.iter().collect(),
            text: properties.reason_string.map(Into::into),
            properties: properties.user.iter().map(|(name, value)| (name.into(), value.into())).collect(),
        }
    }

    /// Where each subscription begins, in the order of the filters; `None` for one that was refused. Brokers that are none of Whimbrel's give no
    /// tokens at all.
    pub fn tokens(&self) -> impl Iterator<Item = Option<CheckpointToken>> {
        let tokens = self.properties.iter().filter(|(name, _)| name == TOKEN);
        tokens.map(|(_, text)| text.parse().ok())
    }
}

/// What happens on a connection.
#[derive(Clone, Debug)]
pub enum Event {
    /// A message arrived. It is acknowledged as it is taken from [`crate::Events`].
    Message(Message),
    /// The connection is over; nothing follows.
    Disconnected {
        /// Why.
        reason: Error,
    },
}
