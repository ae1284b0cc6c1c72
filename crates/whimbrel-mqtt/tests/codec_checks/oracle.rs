//! The codec against an independent one, mqtt-protocol-core: whatever both accept must mean the
//! same to both, and where one refuses what the other accepts, the class of the difference is
//! listed here with its reason.

use std::sync::Arc;

use mqtt_protocol_core::mqtt::packet::{Properties, Property, SubEntry, v3_1_1, v5_0};
use mqtt_protocol_core::mqtt::result_code::MqttError;
use whimbrel_mqtt::codec::{
    Ack, AckProperties, CodesAck, ConnAckProperties, ConnectProperties, Filter, Packet, PublishProperties, Version,
    Will, decode, frame,
};

use super::MAX;

/// What a packet says, field by field, sorted by field name; fields that repeat keep their order.
type Meaning = Vec<(&'static str, String)>;

/// A class of packets that we refuse and the oracle accepts.
pub struct Stricter {
    /// Our cause.
    cause: &'static str,
    /// The rule that the oracle does not check, and where it may do so after parsing.
    why: &'static str,
    version: Version,
    /// A packet of the class.
    example: &'static [u8],
}

const fn stricter(cause: &'static str, why: &'static str, version: Version, example: &'static [u8]) -> Stricter {
    Stricter { cause, why, version, example }
}

const STRICTER: &[Stricter] = &[
    stricter(
        "a variable byte integer has more bytes than it needs",
        "MQTT-1.5.5-1: the shortest encoding",
        Version::V5,
        b"\x30\x05\0\x01a\x80\0",
    ),
    stricter(
        "bytes follow after the end of the packet",
        "its parsers stop where the packet ends and tell how far they came",
        Version::V4,
        b"\xc0\x01x",
    ),
    stricter("the reserved connect flag is set", "MQTT-3.1.2-3", Version::V4, b"\x10\x0c\0\x04MQTT\x04\x01\0\0\0\0"),
    stricter(
        "will QoS or will retain is set without the will flag",
        "MQTT-3.1.2-11, MQTT-3.1.2-13",
        Version::V4,
        b"\x10\x0c\0\x04MQTT\x04\x22\0\0\0\0",
    ),
    stricter(
        "the will QoS is 3",
        "MQTT-3.1.2-12; it panics when that QoS is read",
        Version::V4,
        b"\x10\x11\0\x04MQTT\x04\x1c\0\0\0\0\0\x01w\0\0",
    ),
    stricter("the will topic is empty", "MQTT-4.7.3-1", Version::V4, b"\x10\x10\0\x04MQTT\x04\x04\0\0\0\0\0\0\0\0"),
    stricter(
        "authentication data come without an authentication method",
        "section 3.1.2.11.10",
        Version::V5,
        b"\x10\x10\0\x04MQTT\x05\x02\0\0\x03\x16\0\0\0\0",
    ),
    stricter(
        "the topic name is empty and no topic alias stands for it",
        "section 3.3.2.1; its connection layer checks it",
        Version::V5,
        b"\x30\x03\0\0\0",
    ),
    stricter(
        "the topic name has a wildcard",
        "MQTT-3.3.2-2; its connection layer checks it",
        Version::V4,
        b"\x30\x03\0\x01#",
    ),
    stricter(
        "the response topic is empty or has a wildcard",
        "MQTT-3.3.2-14, MQTT-4.7.3-1",
        Version::V5,
        b"\x30\x08\0\x01a\x04\x08\0\x01+",
    ),
    stricter("DUP is set on a QoS 0 message", "MQTT-3.3.1-2", Version::V4, b"\x38\x03\0\x01a"),
    stricter(
        "the packet identifier is 0",
        "MQTT-2.2.1-3; it checks acknowledgements only",
        Version::V4,
        b"\x32\x05\0\x01a\0\0",
    ),
    stricter(
        "a property that may be given once is repeated",
        "section 3.8.2.1.2; it counts none of SUBSCRIBE's properties",
        Version::V5,
        b"\x82\x0b\0\x01\x04\x0b\x01\x0b\x01\0\x01a\0",
    ),
    stricter(
        "no local is set on a shared subscription",
        "MQTT-3.8.3-4",
        Version::V5,
        b"\x82\x10\0\x01\0\0\x0a$share/g/a\x04",
    ),
    stricter(
        "a reserved bit of the subscription options is set",
        "MQTT-3.8.3-4 of 3.1.1; it reads those options by the rules of MQTT 5",
        Version::V4,
        b"\x82\x06\0\x01\0\x01a\x04",
    ),
    stricter(
        "a reserved bit of the connect acknowledge flags is set",
        "section 3.2.2.1",
        Version::V4,
        b"\x20\x02\x02\0",
    ),
    stricter("a refused connection has a session", "MQTT-3.2.2-6", Version::V5, b"\x20\x03\x01\x87\0"),
    stricter(
        "the AUTH has no authentication method",
        "section 3.15.2.2.2; it asks for one only if the reason is not success",
        Version::V5,
        b"\xf0\x02\0\0",
    ),
    stricter(
        "the packet ends within a field",
        "section 3.3.2.3.1; it takes a PUBLISH without a property length, and an AUTH likewise",
        Version::V5,
        b"\x30\x03\0\x01a",
    ),
];

/// A CONNECT of 3.1.1 with the bit of bridges in its protocol level.
const OF_A_BRIDGE: &[u8] = b"\x10\x0d\0\x04MQTT\x84\x02\0\0\0\x01a";

/// Every listed difference is one.
pub fn check_list() {
    differential(OF_A_BRIDGE);
    for class in STRICTER {
        let cut = frame(class.example, MAX).expect("well-formed").expect("complete");
        assert_eq!(cut.whole.len(), class.example.len(), "{}", class.cause);
        let ours = decode(class.version, cut.first_byte, cut.body);
        assert_eq!(ours.map_err(|error| error.cause), Err(class.cause));
        assert!(parse(class.version, cut.first_byte, cut.body).is_ok(), "the oracle refuses it too: {}", class.cause);
    }
}

/// Our causes that say a string contains U+0000 (MQTT-1.5.4-2), which the oracle does not look for.
fn is_null_in_text(cause: &str) -> bool {
    cause.ends_with("without U+0000") || cause == "the topic name has U+0000"
}

/// Why the oracle refuses what we accept, if it is a known class.
fn laxer(packet: &Packet<'_>) -> Option<&'static str> {
    let share_name_is_bad = |filter: &str| filter.starts_with("$share");
    match packet {
        Packet::Connect(connect) if connect.password.is_some() && connect.user_name.is_none() => {
            Some("it refuses a password without a user name in MQTT 5 too, which section 3.1.2.9 allows")
        }
        Packet::Connect(connect) if connect.bridge => Some(
            "it does not know the bit in the protocol level of 3.1.1 by which bridges ask for subscriptions of theirs",
        ),
        Packet::Subscribe(subscribe) if subscribe.filters.iter().any(|f| share_name_is_bad(f.filter)) => {
            Some("it checks the syntax of shared filters, which here is the selector's")
        }
        Packet::Unsubscribe(unsubscribe) if unsubscribe.filters.iter().any(share_name_is_bad) => {
            Some("it checks the syntax of shared filters, which here is the selector's")
        }
        _ => None,
    }
}

/// Compares the two verdicts on one packet, and what it means to both if both accept it.
pub fn differential(bytes: &[u8]) {
    let Ok(Some(cut)) = frame(bytes, MAX) else { return };
    for version in [Version::V4, Version::V5] {
        // The oracle dispatches on the whole first byte before it parses, so that flags are not its
        // parsers' business.
        let ours = decode(version, cut.first_byte, cut.body);
        if let Err(error) = ours
            && (error.cause.contains("fixed header") || error.cause.contains("reserved in") || cut.first_byte < 0x10)
        {
            continue;
        }
        let version = match (cut.first_byte >> 4, cut.body.get(6)) {
            (1, Some(4)) => Version::V4,
            (1, Some(5)) => Version::V5,
            _ => version,
        };
        let theirs = parse(version, cut.first_byte, cut.body);
        match (ours, theirs) {
            (Ok(packet), Ok(theirs)) => assert_eq!(meaning(&packet), theirs(), "{bytes:02x?}"),
            (Err(_), Err(_)) => {}
            (Ok(packet), Err(error)) => {
                assert!(laxer(&packet).is_some(), "refused by the oracle alone ({error:?}): {packet:?} {bytes:02x?}");
            }
            (Err(error), Ok(_)) => {
                let known = is_null_in_text(error.cause) || STRICTER.iter().any(|class| class.cause == error.cause);
                assert!(known, "{version:?}: accepted by the oracle alone: {error} {bytes:02x?}");
            }
        }
    }
}

/// What the oracle accepted; read later, because it panics on reading some of what it accepts.
type Lazy = Box<dyn FnOnce() -> Meaning>;

fn sorted(mut meaning: Meaning) -> Meaning {
    meaning.sort_by_key(|(field, _)| *field);
    meaning
}

fn hex(bytes: &[u8]) -> String {
    format!("{bytes:02x?}")
}

fn put<T: ToString>(meaning: &mut Meaning, field: &'static str, value: Option<T>) {
    meaning.extend(value.map(|value| (field, value.to_string())));
}

// Ours.

fn meaning(packet: &Packet<'_>) -> Meaning {
    let mut m = Meaning::new();
    match packet {
        Packet::Connect(connect) => {
            m.push(("client id", connect.client_id.to_owned()));
            m.push(("clean", connect.clean_start.to_string()));
            m.push(("keep alive", connect.keep_alive.to_string()));
            put(&mut m, "user name", connect.user_name);
            put(&mut m, "password", connect.password.map(hex));
            connect_properties(&mut m, &connect.properties);
            if let Some(will) = &connect.will {
                will_meaning(&mut m, will);
            }
        }
        Packet::ConnAck(connack) => {
            m.push(("session present", connack.session_present.to_string()));
            m.push(("reason", connack.reason.0.to_string()));
            connack_properties(&mut m, &connack.properties);
        }
        Packet::Publish(publish) => {
            m.push(("topic", publish.topic.to_owned()));
            m.push(("payload", hex(publish.payload)));
            m.push(("qos", (publish.qos as u8).to_string()));
            m.push(("dup", publish.dup.to_string()));
            m.push(("retain", publish.retain.to_string()));
            put(&mut m, "packet id", publish.packet_id);
            publish_properties(&mut m, &publish.properties);
        }
        Packet::PubAck(ack) | Packet::PubRec(ack) | Packet::PubRel(ack) | Packet::PubComp(ack) => {
            ack_meaning(&mut m, ack);
        }
        Packet::SubAck(ack) | Packet::UnsubAck(ack) => codes_meaning(&mut m, ack),
        Packet::Subscribe(subscribe) => {
            put(&mut m, "packet id", Some(subscribe.packet_id));
            put(&mut m, "subscription id", subscribe.properties.subscription_id);
            user(&mut m, subscribe.properties.user);
            m.extend(subscribe.filters.iter().map(|filter| ("filter", filter_meaning(&filter))));
        }
        Packet::Unsubscribe(unsubscribe) => {
            put(&mut m, "packet id", Some(unsubscribe.packet_id));
            user(&mut m, unsubscribe.properties.user);
            m.extend(unsubscribe.filters.iter().map(|filter| ("filter", filter.to_owned())));
        }
        Packet::PingReq | Packet::PingResp => {}
        Packet::Disconnect(disconnect) => {
            m.push(("reason", disconnect.reason.0.to_string()));
            let p = &disconnect.properties;
            put(&mut m, "session expiry", p.session_expiry);
            put(&mut m, "server reference", p.server_reference);
            put(&mut m, "reason string", p.reason_string);
            user(&mut m, p.user);
        }
        Packet::Auth(auth) => {
            m.push(("reason", auth.reason.0.to_string()));
            let p = &auth.properties;
            put(&mut m, "method", p.method);
            put(&mut m, "data", p.data.map(hex));
            put(&mut m, "reason string", p.reason_string);
            user(&mut m, p.user);
        }
    }
    sorted(m)
}

fn user(m: &mut Meaning, user: whimbrel_mqtt::codec::UserProperties<'_>) {
    m.extend(user.iter().map(|(name, value)| ("user", format!("{name:?}={value:?}"))));
}

fn connect_properties(m: &mut Meaning, p: &ConnectProperties<'_>) {
    put(m, "session expiry", p.session_expiry);
    put(m, "receive maximum", p.receive_maximum);
    put(m, "maximum packet size", p.maximum_packet_size);
    put(m, "topic alias maximum", p.topic_alias_maximum);
    put(m, "request response", p.request_response_information.map(u8::from));
    put(m, "request problem", p.request_problem_information.map(u8::from));
    put(m, "method", p.authentication_method);
    put(m, "data", p.authentication_data.map(hex));
    user(m, p.user);
}

fn connack_properties(m: &mut Meaning, p: &ConnAckProperties<'_>) {
    put(m, "session expiry", p.session_expiry);
    put(m, "receive maximum", p.receive_maximum);
    put(m, "maximum qos", p.maximum_qos.map(|qos| qos as u8));
    put(m, "retain available", p.retain_available.map(u8::from));
    put(m, "maximum packet size", p.maximum_packet_size);
    put(m, "assigned client id", p.assigned_client_id);
    put(m, "topic alias maximum", p.topic_alias_maximum);
    put(m, "reason string", p.reason_string);
    put(m, "wildcard available", p.wildcard_available.map(u8::from));
    put(m, "subscription ids available", p.subscription_ids_available.map(u8::from));
    put(m, "shared available", p.shared_available.map(u8::from));
    put(m, "server keep alive", p.server_keep_alive);
    put(m, "response information", p.response_information);
    put(m, "server reference", p.server_reference);
    put(m, "method", p.authentication_method);
    put(m, "data", p.authentication_data.map(hex));
    user(m, p.user);
}

fn publish_properties(m: &mut Meaning, p: &PublishProperties<'_>) {
    put(m, "payload format", p.text_payload.map(u8::from));
    put(m, "message expiry", p.message_expiry);
    put(m, "topic alias", p.topic_alias);
    put(m, "response topic", p.response_topic);
    put(m, "correlation data", p.correlation_data.map(hex));
    put(m, "content type", p.content_type);
    m.extend(p.subscription_ids.iter().map(|id| ("subscription id", id.to_string())));
    user(m, p.user);
}

fn will_meaning(m: &mut Meaning, will: &Will<'_>) {
    m.push(("will topic", will.topic.to_owned()));
    m.push(("will payload", hex(will.payload)));
    m.push(("will qos", (will.qos as u8).to_string()));
    m.push(("will retain", will.retain.to_string()));
    let p = &will.properties;
    put(m, "will delay", p.delay);
    put(m, "payload format", p.text_payload.map(u8::from));
    put(m, "message expiry", p.message_expiry);
    put(m, "content type", p.content_type);
    put(m, "response topic", p.response_topic);
    put(m, "correlation data", p.correlation_data.map(hex));
    user(m, p.user);
}

fn ack_properties(m: &mut Meaning, p: &AckProperties<'_>) {
    put(m, "reason string", p.reason_string);
    user(m, p.user);
}

fn ack_meaning(m: &mut Meaning, ack: &Ack<'_>) {
    put(m, "packet id", Some(ack.packet_id));
    m.push(("reason", ack.reason.0.to_string()));
    ack_properties(m, &ack.properties);
}

fn codes_meaning(m: &mut Meaning, ack: &CodesAck<'_>) {
    put(m, "packet id", Some(ack.packet_id));
    m.extend(ack.codes.iter().map(|code| ("code", code.0.to_string())));
    ack_properties(m, &ack.properties);
}

fn filter_meaning(f: &Filter<'_>) -> String {
    let handling = f.retain_handling as u8;
    format!("{} qos {} nl {} rap {} rh {handling}", f.filter, f.qos as u8, f.no_local, f.retain_as_published)
}

// Theirs.

/// Parses one packet type of the oracle and tells how to read what was parsed.
macro_rules! parsed {
    ($parsed:expr, |$m:ident, $packet:ident| $read:expr) => {{
        let ($packet, _) = $parsed?;
        Ok(Box::new(move || {
            let mut $m = Meaning::new();
            $read;
            sorted($m)
        }) as Lazy)
    }};
}

/// An acknowledgement of MQTT 5.
macro_rules! ack_v5 {
    ($kind:ident, $body:expr) => {
        parsed!(v5_0::$kind::parse($body), |m, p| {
            put(&mut m, "packet id", Some(p.packet_id()));
            m.push(("reason", p.reason_code().map_or(0, |code| code as u8).to_string()));
            properties(&mut m, p.props().iter().flatten());
        })
    };
}

/// An acknowledgement of MQTT 3.1.1; a reason code that the oracle would take is a byte too many to
/// us.
macro_rules! ack_v4 {
    ($kind:ident, $body:expr) => {
        parsed!(v3_1_1::$kind::parse($body), |m, p| {
            put(&mut m, "packet id", Some(p.packet_id()));
            m.push(("reason", "0".to_owned()));
        })
    };
}

fn parse(version: Version, first_byte: u8, body: &[u8]) -> Result<Lazy, MqttError> {
    match version {
        Version::V4 => parse_v4(first_byte, body),
        Version::V5 => parse_v5(first_byte, body),
    }
}

fn parse_v4(first_byte: u8, body: &[u8]) -> Result<Lazy, MqttError> {
    match first_byte >> 4 {
        1 => parsed!(v3_1_1::Connect::parse(body), |m, p| {
            m.push(("client id", p.client_id().to_owned()));
            m.push(("clean", p.clean_session().to_string()));
            m.push(("keep alive", p.keep_alive().to_string()));
            put(&mut m, "user name", p.user_name());
            put(&mut m, "password", p.password().map(hex));
            if p.will_flag() {
                m.push(("will topic", p.will_topic().unwrap_or_default().to_owned()));
                m.push(("will payload", hex(p.will_payload().unwrap_or_default())));
                m.push(("will qos", (p.will_qos() as u8).to_string()));
                m.push(("will retain", p.will_retain().to_string()));
            }
        }),
        2 => parsed!(v3_1_1::Connack::parse(body), |m, p| {
            use whimbrel_mqtt::codec::ReasonCode;
            m.push(("session present", p.session_present().to_string()));
            let reason = ReasonCode::from_return_code(p.return_code() as u8).expect("0 to 5");
            m.push(("reason", reason.0.to_string()));
        }),
        3 => parsed!(v3_1_1::Publish::parse(first_byte & 0xf, Arc::from(body)), |m, p| {
            m.push(("topic", p.topic_name().to_owned()));
            m.push(("payload", hex(p.payload().as_slice())));
            m.push(("qos", (p.qos() as u8).to_string()));
            m.push(("dup", p.dup().to_string()));
            m.push(("retain", p.retain().to_string()));
            put(&mut m, "packet id", p.packet_id());
        }),
        4 => ack_v4!(Puback, body),
        5 => ack_v4!(Pubrec, body),
        6 => ack_v4!(Pubrel, body),
        7 => ack_v4!(Pubcomp, body),
        8 => parsed!(v3_1_1::Subscribe::parse(body), |m, p| {
            put(&mut m, "packet id", Some(p.packet_id()));
            m.extend(p.entries().iter().map(entry));
        }),
        9 => parsed!(v3_1_1::Suback::parse(body), |m, p| {
            put(&mut m, "packet id", Some(p.packet_id()));
            m.extend(p.return_codes().into_iter().map(|code| ("code", (code as u8).to_string())));
        }),
        10 => parsed!(v3_1_1::Unsubscribe::parse(body), |m, p| {
            put(&mut m, "packet id", Some(p.packet_id()));
            m.extend(p.entries().iter().map(|filter| ("filter", filter.as_str().to_owned())));
        }),
        11 => parsed!(v3_1_1::Unsuback::parse(body), |m, p| put(&mut m, "packet id", Some(p.packet_id()))),
        12 => parsed!(v3_1_1::Pingreq::parse(body), |m, p| assert_eq!(p.size(), 2 + m.drain(..).len())),
        13 => parsed!(v3_1_1::Pingresp::parse(body), |m, p| assert_eq!(p.size(), 2 + m.drain(..).len())),
        14 => parsed!(v3_1_1::Disconnect::parse(body), |m, p| {
            assert_eq!(p.size(), 2);
            m.push(("reason", "0".to_owned()));
        }),
        _ => Err(MqttError::MalformedPacket),
    }
}

fn parse_v5(first_byte: u8, body: &[u8]) -> Result<Lazy, MqttError> {
    match first_byte >> 4 {
        1 => parsed!(v5_0::Connect::parse(body), |m, p| read_connect(&mut m, &p)),
        2 => parsed!(v5_0::Connack::parse(body), |m, p| {
            m.push(("session present", p.session_present().to_string()));
            m.push(("reason", (p.reason_code() as u8).to_string()));
            properties(&mut m, p.props());
        }),
        3 => parsed!(v5_0::Publish::parse(first_byte & 0xf, Arc::from(body)), |m, p| {
            m.push(("topic", p.topic_name().to_owned()));
            m.push(("payload", hex(p.payload().as_slice())));
            m.push(("qos", (p.qos() as u8).to_string()));
            m.push(("dup", p.dup().to_string()));
            m.push(("retain", p.retain().to_string()));
            put(&mut m, "packet id", p.packet_id());
            properties(&mut m, p.props());
        }),
        4 => ack_v5!(Puback, body),
        5 => ack_v5!(Pubrec, body),
        6 => ack_v5!(Pubrel, body),
        7 => ack_v5!(Pubcomp, body),
        8 => parsed!(v5_0::Subscribe::parse(body), |m, p| {
            put(&mut m, "packet id", Some(p.packet_id()));
            properties(&mut m, p.props());
            m.extend(p.entries().iter().map(entry));
        }),
        9 => parsed!(v5_0::Suback::parse(body), |m, p| {
            put(&mut m, "packet id", Some(p.packet_id()));
            properties(&mut m, p.props());
            m.extend(p.reason_codes().into_iter().map(|code| ("code", (code as u8).to_string())));
        }),
        10 => parsed!(v5_0::Unsubscribe::parse(body), |m, p| {
            put(&mut m, "packet id", Some(p.packet_id()));
            properties(&mut m, p.props());
            m.extend(p.entries().iter().map(|filter| ("filter", filter.as_str().to_owned())));
        }),
        11 => parsed!(v5_0::Unsuback::parse(body), |m, p| {
            put(&mut m, "packet id", Some(p.packet_id()));
            properties(&mut m, p.props());
            m.extend(p.reason_codes().into_iter().map(|code| ("code", (code as u8).to_string())));
        }),
        12 => parsed!(v5_0::Pingreq::parse(body), |m, p| assert_eq!(p.size(), 2 + m.drain(..).len())),
        13 => parsed!(v5_0::Pingresp::parse(body), |m, p| assert_eq!(p.size(), 2 + m.drain(..).len())),
        14 => parsed!(v5_0::Disconnect::parse(body), |m, p| {
            m.push(("reason", p.reason_code().map_or(0, |code| code as u8).to_string()));
            properties(&mut m, p.props().iter().flatten());
        }),
        15 => parsed!(v5_0::Auth::parse(body), |m, p| {
            m.push(("reason", p.reason_code().map_or(0, |code| code as u8).to_string()));
            properties(&mut m, p.props().iter().flatten());
        }),
        _ => Err(MqttError::MalformedPacket),
    }
}

fn read_connect(m: &mut Meaning, p: &v5_0::Connect) {
    m.push(("client id", p.client_id().to_owned()));
    m.push(("clean", p.clean_start().to_string()));
    m.push(("keep alive", p.keep_alive().to_string()));
    put(m, "user name", p.user_name());
    put(m, "password", p.password().map(hex));
    properties(m, p.props());
    if p.will_flag() {
        m.push(("will topic", p.will_topic().unwrap_or_default().to_owned()));
        m.push(("will payload", hex(p.will_payload().unwrap_or_default())));
        m.push(("will qos", (p.will_qos() as u8).to_string()));
        m.push(("will retain", p.will_retain().to_string()));
        let will: &Properties = p.will_props();
        properties(m, will);
    }
}

fn entry(entry: &SubEntry) -> (&'static str, String) {
    let o = entry.sub_opts();
    let (qos, handling) = (o.qos() as u8, o.rh() as u8);
    ("filter", format!("{} qos {qos} nl {} rap {} rh {handling}", entry.topic_filter(), o.nl(), o.rap()))
}

fn properties<'a>(m: &mut Meaning, list: impl IntoIterator<Item = &'a Property>) {
    m.extend(list.into_iter().map(|property| match property {
        Property::PayloadFormatIndicator(p) => ("payload format", p.val().to_string()),
        Property::MessageExpiryInterval(p) => ("message expiry", p.val().to_string()),
        Property::ContentType(p) => ("content type", p.val().to_owned()),
        Property::ResponseTopic(p) => ("response topic", p.val().to_owned()),
        Property::CorrelationData(p) => ("correlation data", hex(p.val())),
        Property::SubscriptionIdentifier(p) => ("subscription id", p.val().to_string()),
        Property::SessionExpiryInterval(p) => ("session expiry", p.val().to_string()),
        Property::AssignedClientIdentifier(p) => ("assigned client id", p.val().to_owned()),
        Property::ServerKeepAlive(p) => ("server keep alive", p.val().to_string()),
        Property::AuthenticationMethod(p) => ("method", p.val().to_owned()),
        Property::AuthenticationData(p) => ("data", hex(p.val())),
        Property::RequestProblemInformation(p) => ("request problem", p.val().to_string()),
        Property::WillDelayInterval(p) => ("will delay", p.val().to_string()),
        Property::RequestResponseInformation(p) => ("request response", p.val().to_string()),
        Property::ResponseInformation(p) => ("response information", p.val().to_owned()),
        Property::ServerReference(p) => ("server reference", p.val().to_owned()),
        Property::ReasonString(p) => ("reason string", p.val().to_owned()),
        Property::ReceiveMaximum(p) => ("receive maximum", p.val().to_string()),
        Property::TopicAliasMaximum(p) => ("topic alias maximum", p.val().to_string()),
        Property::TopicAlias(p) => ("topic alias", p.val().to_string()),
        Property::MaximumQos(p) => ("maximum qos", p.val().to_string()),
        Property::RetainAvailable(p) => ("retain available", p.val().to_string()),
        Property::UserProperty(p) => ("user", format!("{:?}={:?}", p.key(), p.val())),
        Property::MaximumPacketSize(p) => ("maximum packet size", p.val().to_string()),
        Property::WildcardSubscriptionAvailable(p) => ("wildcard available", p.val().to_string()),
        Property::SubscriptionIdentifierAvailable(p) => ("subscription ids available", p.val().to_string()),
        Property::SharedSubscriptionAvailable(p) => ("shared available", p.val().to_string()),
    }));
}
