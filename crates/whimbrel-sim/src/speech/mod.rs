//! Packets between clients and brokers, in a form that is the same for both protocol versions.
//!
//! [`Said`] is a packet that a test or a simulated client sends, and [`Heard`] one that it
//! receives; `mqtt-protocol-core` encodes and decodes them.

mod heard;
mod name;
mod said;

use std::fmt;

use mqtt_protocol_core::mqtt::Version;
use mqtt_protocol_core::mqtt::packet::{
    Packet, Property, Qos, RetainHandling, SessionExpiryInterval, SubEntry, SubOpts, WillDelayInterval, v3_1_1, v5_0,
};
use whimbrel_core::NOTICE_TOPIC;

pub use heard::Heard;
pub use name::event_name;
pub use said::{NotAClient, Said, user_properties};

/// Bytes of a payload that are shown as text.
const SHOWN_MAX: usize = 24;

/// The kind of acknowledgement of a PUBLISH.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Ack {
    /// Ends QoS 1.
    Puback,
    /// QoS 2: the receiver has the message.
    Pubrec,
    /// QoS 2: the sender has forgotten it.
    Pubrel,
    /// Ends QoS 2.
    Pubcomp,
}

/// A CONNECT.
#[derive(Clone, PartialEq)]
pub struct Hello {
    /// Protocol version.
    pub version: Version,
    /// Client identifier; empty asks the broker for one.
    pub client_id: String,
    /// Clean Start, in 3.1.1 Clean Session.
    pub clean_start: bool,
    /// The keep-alive interval, seconds; 0: none.
    pub keep_alive: u16,
    /// MQTT 5 properties.
    pub properties: Vec<Property>,
    /// The will, with its MQTT 5 properties.
    pub will: Option<Message>,
}

impl Hello {
    /// An MQTT 5 CONNECT with Clean Start and nothing else.
    pub fn v5(client_id: &str) -> Self {
        Hello::new(Version::V5_0, client_id)
    }

    /// An MQTT 3.1.1 CONNECT with Clean Session and nothing else.
    pub fn v311(client_id: &str) -> Self {
        Hello::new(Version::V3_1_1, client_id)
    }

    fn new(version: Version, client_id: &str) -> Self {
        let client_id = client_id.to_owned();
        Hello { version, client_id, clean_start: true, keep_alive: 0, properties: Vec::new(), will: None }
    }

    /// Sets Clean Start or Clean Session.
    pub fn clean_start(mut self, clean: bool) -> Self {
        self.clean_start = clean;
        self
    }

    /// Sets the keep-alive, seconds.
    pub fn keep_alive(mut self, seconds: u16) -> Self {
        self.keep_alive = seconds;
        self
    }

    /// Adds a property.
    pub fn property(mut self, property: impl Into<Property>) -> Self {
        self.properties.push(property.into());
        self
    }

    /// Adds a Session Expiry Interval, seconds.
    pub fn session_expiry(self, seconds: u32) -> Self {
        self.property(SessionExpiryInterval::new(seconds).expect("any number of seconds is allowed"))
    }

    /// Sets the will.
    pub fn will(mut self, will: Message) -> Self {
        self.will = Some(will);
        self
    }

    /// Adds a Will Delay Interval, seconds, to the will.
    pub fn will_delay(mut self, seconds: u32) -> Self {
        let delay = WillDelayInterval::new(seconds).expect("any number of seconds is allowed");
        self.will.as_mut().expect("a will to delay").properties.push(delay.into());
        self
    }

    fn packet(&self) -> Packet {
        let text = "built from valid text";
        if self.version == Version::V5_0 {
            let mut builder = v5_0::Connect::builder().client_id(&*self.client_id).expect(text);
            builder = builder.clean_start(self.clean_start).keep_alive(self.keep_alive).props(self.properties.clone());
            if let Some(will) = &self.will {
                builder = builder.will_message(&*will.topic, will.payload.clone(), will.qos, will.retain).expect(text);
                builder = builder.will_props(will.properties.clone());
            }
            return builder.build().expect("a well-formed CONNECT").into();
        }
        let mut builder = v3_1_1::Connect::builder().client_id(&*self.client_id).expect(text);
        builder = builder.clean_session(self.clean_start).keep_alive(self.keep_alive);
        if let Some(will) = &self.will {
            builder = builder.will_message(&*will.topic, will.payload.clone(), will.qos, will.retain).expect(text);
        }
        builder.build().expect("a well-formed CONNECT").into()
    }
}

impl fmt::Debug for Hello {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{:?} {:?}", self.version, self.client_id)?;
        f.write_str(if self.clean_start { " clean" } else { "" })?;
        write!(f, " keep-alive {}", self.keep_alive)?;
        for property in &self.properties {
            write!(f, " {property}")?;
        }
        if let Some(will) = &self.will {
            write!(f, " will {will:?}")?;
        }
        f.write_str("}")
    }
}

impl From<&v5_0::Connect> for Hello {
    fn from(packet: &v5_0::Connect) -> Self {
        let will = packet.will_topic().map(|topic| {
            let mut will = Message::new(topic, packet.will_payload().unwrap_or_default());
            will.properties.clone_from(packet.will_props());
            will.qos(packet.will_qos(), 0).retain(packet.will_retain())
        });
        Hello {
            version: Version::V5_0,
            client_id: packet.client_id().to_owned(),
            clean_start: packet.clean_start(),
            keep_alive: packet.keep_alive(),
            properties: packet.props().clone(),
            will,
        }
    }
}

impl From<&v3_1_1::Connect> for Hello {
    fn from(packet: &v3_1_1::Connect) -> Self {
        let will = packet.will_topic().map(|topic| {
            let will = Message::new(topic, packet.will_payload().unwrap_or_default());
            will.qos(packet.will_qos(), 0).retain(packet.will_retain())
        });
        Hello {
            version: Version::V3_1_1,
            client_id: packet.client_id().to_owned(),
            clean_start: packet.clean_session(),
            keep_alive: packet.keep_alive(),
            properties: Vec::new(),
            will,
        }
    }
}

/// A PUBLISH, or a will.
#[derive(Clone, PartialEq)]
pub struct Message {
    /// Topic name; may be empty with a topic alias.
    pub topic: String,
    /// Application message.
    pub payload: Vec<u8>,
    /// The quality of service.
    pub qos: Qos,
    /// The retain flag.
    pub retain: bool,
    /// The DUP flag.
    pub dup: bool,
    /// Packet identifier; 0 with QoS 0.
    pub id: u16,
    /// MQTT 5 properties.
    pub properties: Vec<Property>,
}

impl Message {
    /// A message of QoS 0.
    pub fn new(topic: &str, payload: impl Into<Vec<u8>>) -> Self {
        let (topic, payload, qos) = (topic.to_owned(), payload.into(), Qos::AtMostOnce);
        Message { topic, payload, qos, retain: false, dup: false, id: 0, properties: Vec::new() }
    }

    /// Sets QoS and packet identifier; 0 for QoS 0 and wills.
    pub fn qos(mut self, qos: Qos, id: u16) -> Self {
        (self.qos, self.id) = (qos, id);
        self
    }

    /// Sets the retain flag.
    pub fn retain(mut self, retain: bool) -> Self {
        self.retain = retain;
        self
    }

    /// Sets the DUP flag.
    pub fn dup(mut self, dup: bool) -> Self {
        self.dup = dup;
        self
    }

    /// Adds a property.
    pub fn property(mut self, property: impl Into<Property>) -> Self {
        self.properties.push(property.into());
        self
    }

    /// The payload as text.
    ///
    /// # Panics
    /// When it is not UTF-8.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.payload).expect("a payload of text")
    }

    /// The subscription identifiers in it.
    pub fn subscription_identifiers(&self) -> Vec<u32> {
        let identifier = |p: &Property| match p {
            Property::SubscriptionIdentifier(p) => Some(p.val()),
            _ => None,
        };
        self.properties.iter().filter_map(identifier).collect()
    }

    /// The topic alias in it.
    pub fn topic_alias(&self) -> Option<u16> {
        self.properties.iter().find_map(|p| match p {
            Property::TopicAlias(p) => Some(p.val()),
            _ => None,
        })
    }

    /// The value of its last user property of a name.
    pub fn user_property(&self, name: &str) -> Option<&str> {
        self.properties.iter().rev().find_map(|p| match p {
            Property::UserProperty(pair) if pair.key() == name => Some(pair.val()),
            _ => None,
        })
    }

    /// The message expiry interval in it, seconds.
    pub fn expiry(&self) -> Option<u32> {
        self.properties.iter().find_map(|p| match p {
            Property::MessageExpiryInterval(p) => Some(p.val()),
            _ => None,
        })
    }

    fn packet(&self, version: Version) -> Packet {
        let id = (self.qos != Qos::AtMostOnce).then_some(self.id);
        if version == Version::V5_0 {
            let builder = v5_0::Publish::builder().topic_name(&*self.topic).expect("a topic without wildcards");
            let builder = builder.qos(self.qos).retain(self.retain).dup(self.dup).packet_id(id);
            let builder = builder.payload(&self.payload).props(self.properties.clone());
            return builder.build().expect("a well-formed PUBLISH").into();
        }
        let builder = v3_1_1::Publish::builder().topic_name(&*self.topic).expect("a topic without wildcards");
        let builder = builder.qos(self.qos).retain(self.retain).dup(self.dup).packet_id(id).payload(&self.payload);
        builder.build().expect("a well-formed PUBLISH").into()
    }
}

impl fmt::Debug for Message {
    /// Payloads are shown as text, and cut short, except for notices.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Message { topic, payload, qos, id, properties, .. } = self;
        let most = if topic == NOTICE_TOPIC { usize::MAX } else { SHOWN_MAX };
        let shown = payload[..payload.len().min(most)].escape_ascii();
        write!(f, "{{{topic:?} \"{shown}\" ({} bytes) QoS {}", payload.len(), *qos as u8)?;
        for (text, set) in [(" RETAIN", self.retain), (" DUP", self.dup)] {
            f.write_str(if set { text } else { "" })?;
        }
        write!(f, " id {id}")?;
        for property in properties {
            write!(f, " {property}")?;
        }
        f.write_str("}")
    }
}

impl From<&v5_0::Publish> for Message {
    fn from(packet: &v5_0::Publish) -> Self {
        Message {
            topic: packet.topic_name().to_owned(),
            payload: packet.payload().as_slice().to_vec(),
            qos: packet.qos(),
            retain: packet.retain(),
            dup: packet.dup(),
            id: packet.packet_id().unwrap_or(0),
            properties: packet.props().clone(),
        }
    }
}

impl From<&v3_1_1::Publish> for Message {
    fn from(packet: &v3_1_1::Publish) -> Self {
        Message {
            topic: packet.topic_name().to_owned(),
            payload: packet.payload().as_slice().to_vec(),
            qos: packet.qos(),
            retain: packet.retain(),
            dup: packet.dup(),
            id: packet.packet_id().unwrap_or(0),
            properties: Vec::new(),
        }
    }
}

/// One topic filter of a SUBSCRIBE with its options.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wanted {
    /// The topic filter.
    pub filter: String,
    /// Maximum QoS.
    pub qos: Qos,
    /// No Local (MQTT 5).
    pub no_local: bool,
    /// Retain As Published (MQTT 5).
    pub retain_as_published: bool,
    /// Retain Handling 0, 1 or 2 (MQTT 5).
    pub retain_handling: u8,
}

impl Wanted {
    /// A subscription without options.
    pub fn new(filter: &str, qos: Qos) -> Self {
        let filter = filter.to_owned();
        Wanted { filter, qos, no_local: false, retain_as_published: false, retain_handling: 0 }
    }

    pub(crate) fn entry(&self) -> SubEntry {
        let handling = match self.retain_handling {
            0 => RetainHandling::SendRetained,
            1 => RetainHandling::SendRetainedIfNotExists,
            _ => RetainHandling::DoNotSendRetained,
        };
        let options = SubOpts::new().set_qos(self.qos).set_nl(self.no_local).set_rap(self.retain_as_published);
        SubEntry::new(&*self.filter, options.set_rh(handling)).expect("a filter of valid text")
    }
}

impl fmt::Debug for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{:?} QoS {}", self.filter, self.qos as u8)?;
        for (text, set) in [(" no local", self.no_local), (" retain as published", self.retain_as_published)] {
            f.write_str(if set { text } else { "" })?;
        }
        write!(f, " retained {}}}", self.retain_handling)
    }
}

impl From<&SubEntry> for Wanted {
    fn from(entry: &SubEntry) -> Self {
        let options = entry.sub_opts();
        Wanted {
            filter: entry.topic_filter().to_owned(),
            qos: options.qos(),
            no_local: options.nl(),
            retain_as_published: options.rap(),
            retain_handling: options.rh() as u8,
        }
    }
}
