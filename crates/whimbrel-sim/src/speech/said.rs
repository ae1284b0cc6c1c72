//! Packets from client to broker.

use mqtt_protocol_core::mqtt::Version;
use mqtt_protocol_core::mqtt::packet::{
    GenericPacketTrait, MqttString, Packet, Property, SessionExpiryInterval, SubEntry, SubscriptionIdentifier,
    UserProperty, v3_1_1, v5_0,
};
use mqtt_protocol_core::mqtt::result_code::{
    DisconnectReasonCode, PubackReasonCode, PubcompReasonCode, PubrecReasonCode, PubrelReasonCode,
};

use super::{Ack, Hello, Message, Wanted};
use crate::choice;

/// A packet as a client sends it.
#[derive(Clone, PartialEq, Debug)]
pub enum Said {
    /// CONNECT.
    Connect(Hello),
    /// PUBLISH.
    Publish(Message),
    /// One of the acknowledgements.
    Ack {
        /// The kind of acknowledgement.
        ack: Ack,
        /// The packet identifier.
        id: u16,
        /// MQTT 5 reason code; 0 is left out.
        code: u8,
    },
    /// SUBSCRIBE.
    Subscribe {
        /// Packet identifier.
        id: u16,
        /// Subscription identifier; 0: none.
        identifier: u32,
        /// The selector, a user property of MQTT 5.
        selector: Option<String>,
        /// All other user properties of MQTT 5: names and values.
        terms: Vec<(String, String)>,
        /// Filters and options.
        wanted: Vec<Wanted>,
    },
    /// UNSUBSCRIBE.
    Unsubscribe {
        /// Packet identifier.
        id: u16,
        /// Filters.
        filters: Vec<String>,
    },
    /// PINGREQ.
    Ping,
    /// DISCONNECT.
    Disconnect {
        /// MQTT 5 reason code; 0 is left out if there is no expiry.
        code: u8,
        /// MQTT 5 session expiry interval, seconds.
        expiry: Option<u32>,
    },
}

/// A packet that clients do not send: only brokers do, or AUTH.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotAClient;

impl TryFrom<Packet> for Said {
    type Error = NotAClient;

    fn try_from(packet: Packet) -> Result<Self, NotAClient> {
        let ack = |ack, id, code: Option<u8>| Said::Ack { ack, id, code: code.unwrap_or(0) };
        let filters = |entries: &[MqttString]| entries.iter().map(|filter| filter.as_str().to_owned()).collect();
        Ok(match packet {
            Packet::V3_1_1Connect(p) => Said::Connect(Hello::from(&p)),
            Packet::V3_1_1Publish(p) => Said::Publish(Message::from(&p)),
            Packet::V3_1_1Puback(p) => ack(Ack::Puback, p.packet_id(), None),
            Packet::V3_1_1Pubrec(p) => ack(Ack::Pubrec, p.packet_id(), None),
            Packet::V3_1_1Pubrel(p) => ack(Ack::Pubrel, p.packet_id(), None),
            Packet::V3_1_1Pubcomp(p) => ack(Ack::Pubcomp, p.packet_id(), None),
            Packet::V3_1_1Subscribe(p) => Said::Subscribe {
                id: p.packet_id(),
                identifier: 0,
                selector: None,
                terms: Vec::new(),
                wanted: p.entries().iter().map(Wanted::from).collect(),
            },
            Packet::V3_1_1Unsubscribe(p) => Said::Unsubscribe { id: p.packet_id(), filters: filters(p.entries()) },
            Packet::V3_1_1Pingreq(_) | Packet::V5_0Pingreq(_) => Said::Ping,
            Packet::V3_1_1Disconnect(_) => Said::Disconnect { code: 0, expiry: None },
            Packet::V5_0Connect(p) => Said::Connect(Hello::from(&p)),
            Packet::V5_0Publish(p) => Said::Publish(Message::from(&p)),
            Packet::V5_0Puback(p) => ack(Ack::Puback, p.packet_id(), p.reason_code().map(|c| c as u8)),
            Packet::V5_0Pubrec(p) => ack(Ack::Pubrec, p.packet_id(), p.reason_code().map(|c| c as u8)),
            Packet::V5_0Pubrel(p) => ack(Ack::Pubrel, p.packet_id(), p.reason_code().map(|c| c as u8)),
            Packet::V5_0Pubcomp(p) => ack(Ack::Pubcomp, p.packet_id(), p.reason_code().map(|c| c as u8)),
            Packet::V5_0Subscribe(p) => {
                let identifier = p.props().iter().find_map(|property| match property {
                    Property::SubscriptionIdentifier(p) => Some(p.val()),
                    _ => None,
                });
                let mut terms = user_properties(p.props());
                let selector = terms.iter().position(|(name, _)| name == choice::NAME);
                let selector = selector.map(|at| terms.remove(at).1);
                let wanted = p.entries().iter().map(Wanted::from).collect();
                Said::Subscribe { id: p.packet_id(), identifier: identifier.unwrap_or(0), selector, terms, wanted }
            }
            Packet::V5_0Unsubscribe(p) => Said::Unsubscribe { id: p.packet_id(), filters: filters(p.entries()) },
            Packet::V5_0Disconnect(p) => {
                let expiry = p.props().iter().flatten().find_map(|property| match property {
                    Property::SessionExpiryInterval(p) => Some(p.val()),
                    _ => None,
                });
                Said::Disconnect { code: p.reason_code().map_or(0, |c| c as u8), expiry }
            }
            _ => return Err(NotAClient),
        })
    }
}

impl Said {
    /// The packet's bytes.
    ///
    /// # Panics
    /// When a field cannot be encoded (a packet identifier 0, text that is too long): a mistake of
    /// the caller.
    pub fn encode(&self, version: Version) -> Vec<u8> {
        self.packet(version).to_continuous_buffer()
    }

    fn packet(&self, version: Version) -> Packet {
        let five = version == Version::V5_0;
        match self {
            Said::Connect(hello) => hello.packet(),
            Said::Publish(message) => message.packet(version),
            Said::Ack { ack, id, code } if five => ack_v5(*ack, *id, *code),
            Said::Ack { ack, id, .. } => ack_v311(*ack, *id),
            Said::Subscribe { id, identifier, selector, terms, wanted } => {
                let entries: Vec<SubEntry> = wanted.iter().map(Wanted::entry).collect();
                if five {
                    let property = |id: u32| SubscriptionIdentifier::new(id).expect("in range").into();
                    let mut properties: Vec<Property> =
                        (*identifier != 0).then(|| property(*identifier)).into_iter().collect();
                    let pair = |name: &str, text: &str| UserProperty::new(name, text).expect("valid text").into();
                    properties.extend(selector.as_ref().map(|text| pair(choice::NAME, text)));
                    properties.extend(terms.iter().map(|(name, text)| pair(name, text)));
                    let builder = v5_0::Subscribe::builder().packet_id(*id).entries(entries).props(properties);
                    return builder.build().expect("a well-formed SUBSCRIBE").into();
                }
                let builder = v3_1_1::Subscribe::builder().packet_id(*id).entries(entries);
                builder.build().expect("a well-formed SUBSCRIBE").into()
            }
            Said::Unsubscribe { id, filters } if five => {
                let builder = v5_0::Unsubscribe::builder().packet_id(*id).entries(filters).expect("valid text");
                builder.build().expect("a well-formed UNSUBSCRIBE").into()
            }
            Said::Unsubscribe { id, filters } => {
                let builder = v3_1_1::Unsubscribe::builder().packet_id(*id).entries(filters).expect("valid text");
                builder.build().expect("a well-formed UNSUBSCRIBE").into()
            }
            Said::Ping if five => v5_0::Pingreq::new().into(),
            Said::Ping => v3_1_1::Pingreq::new().into(),
            Said::Disconnect { code, expiry } if five => disconnect_v5(*code, *expiry),
            Said::Disconnect { .. } => v3_1_1::Disconnect::new().into(),
        }
    }
}

/// The user properties among `properties`, in their order.
pub fn user_properties(properties: &[Property]) -> Vec<(String, String)> {
    let pair = |property: &Property| match property {
        Property::UserProperty(pair) => Some((pair.key().to_owned(), pair.val().to_owned())),
        _ => None,
    };
    properties.iter().filter_map(pair).collect()
}

fn ack_v311(ack: Ack, id: u16) -> Packet {
    let ok = "a packet identifier other than 0";
    match ack {
        Ack::Puback => v3_1_1::Puback::builder().packet_id(id).build().expect(ok).into(),
        Ack::Pubrec => v3_1_1::Pubrec::builder().packet_id(id).build().expect(ok).into(),
        Ack::Pubrel => v3_1_1::Pubrel::builder().packet_id(id).build().expect(ok).into(),
        Ack::Pubcomp => v3_1_1::Pubcomp::builder().packet_id(id).build().expect(ok).into(),
    }
}

/// Builds one kind of MQTT 5 acknowledgement, without reason code if that is 0.
macro_rules! ack {
    ($packet:ident, $reason:ident, $id:expr, $code:expr) => {{
        let builder = v5_0::$packet::builder().packet_id($id);
        let builder = match $code {
            0 => builder,
            code => builder.reason_code($reason::try_from(code).expect("a reason code of that packet")),
        };
        builder.build().expect("a packet identifier other than 0").into()
    }};
}

fn ack_v5(ack: Ack, id: u16, code: u8) -> Packet {
    match ack {
        Ack::Puback => ack!(Puback, PubackReasonCode, id, code),
        Ack::Pubrec => ack!(Pubrec, PubrecReasonCode, id, code),
        Ack::Pubrel => ack!(Pubrel, PubrelReasonCode, id, code),
        Ack::Pubcomp => ack!(Pubcomp, PubcompReasonCode, id, code),
    }
}

fn disconnect_v5(code: u8, expiry: Option<u32>) -> Packet {
    let mut builder = v5_0::Disconnect::builder();
    if code != 0 || expiry.is_some() {
        builder = builder.reason_code(DisconnectReasonCode::try_from(code).expect("a reason code of DISCONNECT"));
    }
    if let Some(seconds) = expiry {
        let property = SessionExpiryInterval::new(seconds).expect("any number of seconds is allowed");
        builder = builder.props(vec![Property::from(property)]);
    }
    builder.build().expect("a well-formed DISCONNECT").into()
}
