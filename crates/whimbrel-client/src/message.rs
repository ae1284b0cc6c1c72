//! Messages to publish, messages that arrive, and answers.

use core::time::Duration;

use whimbrel_event::{AttributesBuf, CheckpointToken, EventId};
use whimbrel_mqtt::codec::{CodesAck, PacketId, Publish as Packet, PublishProperties, QoS, ReasonCode};

use crate::{Error, Notice};

/// User property with an event's id. The broker's own properties begin with it and stand last.
const ID: &str = "w-id";

/// User property of an event that may be a repetition.
const MAYBE_REPEAT: &str = "w-maybe-repeat";

/// User property of an event that is past its deadline, with the milliseconds by which it is.
const LATE: &str = "w-late";

/// User properties of a SUBSCRIBE that make the broker send event ids.
pub(crate) const ASK_NAMES: [&str; 4] = ["w-durability", "w-from", "w-ack", "w-notices"];

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

    /// The QoS.
    pub fn qos(mut self, qos: QoS) -> Self {
        self.qos = qos;
        self
    }

    /// Whether the broker keeps it for later subscribers; an empty payload clears what it keeps.
    pub fn retain(mut self, retain: bool) -> Self {
        self.retain = retain;
        self
    }

    /// Seconds after which the message is of no use (MQTT 5).
    pub fn expiry(mut self, seconds: u32) -> Self {
        self.expiry = Some(seconds);
        self
    }

    /// The type of the payload (MQTT 5).
    pub fn content_type(mut self, content_type: impl Into<String>) -> Self {
        self.content_type = Some(content_type.into());
        self
    }

    /// The topic for a reply, and the correlation data that the reply carries (MQTT 5).
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

    /// The publisher's own number of this message, larger than those before it under the same
    /// client id. Whimbrel's brokers acknowledge a repetition and drop it, so that a message sent
    /// again after a failure arrives once also with QoS 1 (MQTT 5).
    pub fn sequence(self, number: u64) -> Self {
        self.property(SEQUENCE, number.to_string())
    }

    /// The message as a packet with that identifier (`None` with QoS 0).
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

/// The outcome of a publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// Success, or no subscription matched ([`ReasonCode::NO_MATCHING_SUBSCRIBERS`]).
    pub reason: ReasonCode,
}

/// A message that arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Topic.
    pub topic: String,
    /// Payload.
    pub payload: Vec<u8>,
    /// QoS of the delivery.
    pub qos: QoS,
    /// The broker had retained the message.
    pub retain: bool,
    /// The message may have arrived before.
    pub dup: bool,
    /// Seconds for which the message is still of use.
    pub expiry: Option<u32>,
    /// The type of the payload.
    pub content_type: Option<String>,
    /// The topic for a reply.
    pub response_topic: Option<String>,
    /// Correlation data that a reply carries.
    pub correlation: Option<Vec<u8>>,
    /// Identifiers of the subscriptions that the message arrived for.
    pub subscription_ids: Vec<u32>,
    /// User properties in their order.
    pub properties: Vec<(String, String)>,
    /// Index of the broker's first property among `properties`; their number if there is none.
    own: usize,
}

impl Message {
    /// `asks_names`: a subscription of the session has asked for event ids. Without one, a property
    /// that looks like an event id is the publisher's.
    pub(crate) fn new(packet: &Packet<'_>, topic: String, asks_names: bool) -> Message {
        let properties = &packet.properties;
        let named = properties.user.iter().enumerate().filter(|(_, (name, _))| asks_names && *name == ID).last();
        let own = named.map_or_else(|| properties.user.iter().count(), |(at, _)| at);
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
            own,
        }
    }

    /// The properties that the broker has added: they begin with the last `w-id`; those before it
    /// are the publisher's. Empty unless a subscription of the session has asked for event ids with
    /// a durability, a place to begin, acknowledgement by token or notices. (In a session with such
    /// subscriptions and plain ones, a `w-id` that a publisher has written counts as the broker's
    /// on the plain ones: use two sessions.)
    pub fn own_properties(&self) -> &[(String, String)] {
        // The application may have shortened them.
        self.properties.get(self.own..).unwrap_or_default()
    }

    /// The event's id in the whole deployment, `w-id`, where the broker gives it
    /// ([`Message::own_properties`]): not with retained messages that are sent as the subscription
    /// begins, nor where the packet would exceed the client's maximum.
    pub fn id(&self) -> Option<EventId> {
        let (_, id) = self.own_properties().first()?;
        id.parse().ok()
    }

    /// Whether the event may repeat an earlier one that has another id: its publisher moved to a
    /// broker that could not ask the previous one.
    pub fn is_maybe_repeat(&self) -> bool {
        self.own_properties().iter().any(|(name, _)| name == MAYBE_REPEAT)
    }

    /// By how much the event is past its deadline, if the broker says so: it was late, or the
    /// client was away.
    pub fn late_by(&self) -> Option<Duration> {
        let (_, millis) = self.own_properties().iter().find(|(name, _)| name == LATE)?;
        millis.parse().ok().map(Duration::from_millis)
    }

    /// The broker's notice about the subscription, if the message is one
    /// ([`crate::Subscription::notices`]).
    pub fn notice(&self) -> Option<Notice> {
        Notice::read(&self.topic, &self.payload)
    }
}

/// The broker's answer to a subscribe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// For each filter, in their order: the QoS that was granted, or why it was refused.
    pub reasons: Vec<ReasonCode>,
    /// The broker's reason string, if it sent one.
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

    /// The position at which each subscription begins, in the order of the filters; `None` for a
    /// refused one. Brokers other than Whimbrel's give no tokens at all.
    pub fn tokens(&self) -> impl Iterator<Item = Option<CheckpointToken>> {
        let tokens = self.properties.iter().filter(|(name, _)| name == TOKEN);
        tokens.map(|(_, text)| text.parse().ok())
    }
}

/// An event of a connection.
#[derive(Clone, Debug)]
pub enum Event {
    /// A message arrived. It is acknowledged as it is taken from [`crate::Events`].
    Message(Message),
    /// The connection is over; nothing follows.
    Disconnected {
        /// The reason.
        reason: Error,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(properties: &[(&str, &str)], asks_names: bool) -> Message {
        let mut user = AttributesBuf::new();
        properties.iter().for_each(|(name, value)| user.push(name, value));
        let properties = PublishProperties { user: user.as_attributes().into(), ..PublishProperties::EMPTY };
        let (dup, qos, retain, topic, packet_id) = (false, QoS::AtMostOnce, false, "t", None);
        let packet = Packet { dup, qos, retain, topic, packet_id, properties, payload: b"" };
        Message::new(&packet, "t".to_owned(), asks_names)
    }

    #[test]
    fn what_a_publisher_has_written_is_never_taken_for_the_broker_s() {
        let own = "gggggggggWe:ggggggggggj";
        let forged = [("w-id", "1:2"), ("w-maybe-repeat", "1"), ("k", "v")];
        let named = |last: &[(&'static str, &'static str)]| message(&[&forged[..], last].concat(), true);
        let whole = named(&[("w-id", own), ("w-maybe-repeat", "1")]);
        assert_eq!((whole.id(), whole.is_maybe_repeat()), (own.parse().ok(), true));
        assert_eq!(whole.late_by(), None);
        let late = named(&[("w-id", own), ("w-late", "17")]);
        assert_eq!((late.id(), late.late_by()), (own.parse().ok(), Some(Duration::from_millis(17))));
        assert_eq!(message(&[("w-late", "17"), ("w-id", own)], true).late_by(), None, "its publisher's");
        let plain = named(&[("w-id", own)]);
        assert_eq!((plain.id(), plain.is_maybe_repeat()), (own.parse().ok(), false));
        assert_eq!(plain.own_properties(), [("w-id".to_owned(), own.to_owned())]);
        let withheld = named(&[("w-id", "")]);
        assert_eq!((withheld.id(), withheld.is_maybe_repeat()), (None, false));
        let not_asked = message(&forged, false);
        assert_eq!((not_asked.id(), not_asked.is_maybe_repeat(), not_asked.own_properties().len()), (None, false, 0));
    }
}
