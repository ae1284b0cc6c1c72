//! Bytes as a client writes and reads them, independent of the broker's codec.

use std::sync::Arc;

use mqtt_protocol_core::mqtt::packet::{v3_1_1, v5_0};

/// The protocol level of MQTT 3.1.1.
pub const V311: u8 = 4;
/// The protocol level of MQTT 5.0.
pub const V5: u8 = 5;

/// Property identifiers.
pub mod property {
    pub const PAYLOAD_FORMAT: u8 = 0x01;
    pub const MESSAGE_EXPIRY: u8 = 0x02;
    pub const CONTENT_TYPE: u8 = 0x03;
    pub const RESPONSE_TOPIC: u8 = 0x08;
    pub const CORRELATION_DATA: u8 = 0x09;
    pub const SUBSCRIPTION_ID: u8 = 0x0B;
    pub const SESSION_EXPIRY: u8 = 0x11;
    pub const ASSIGNED_CLIENT_ID: u8 = 0x12;
    pub const SERVER_KEEP_ALIVE: u8 = 0x13;
    pub const AUTH_METHOD: u8 = 0x15;
    pub const AUTH_DATA: u8 = 0x16;
    pub const REQUEST_PROBLEM_INFO: u8 = 0x17;
    pub const WILL_DELAY: u8 = 0x18;
    pub const REQUEST_RESPONSE_INFO: u8 = 0x19;
    pub const RESPONSE_INFO: u8 = 0x1A;
    pub const REASON_STRING: u8 = 0x1F;
    pub const RECEIVE_MAXIMUM: u8 = 0x21;
    pub const TOPIC_ALIAS_MAXIMUM: u8 = 0x22;
    pub const TOPIC_ALIAS: u8 = 0x23;
    pub const MAXIMUM_QOS: u8 = 0x24;
    pub const RETAIN_AVAILABLE: u8 = 0x25;
    pub const USER: u8 = 0x26;
    pub const MAXIMUM_PACKET_SIZE: u8 = 0x27;
    pub const WILDCARD_AVAILABLE: u8 = 0x28;
    pub const SUBSCRIPTION_ID_AVAILABLE: u8 = 0x29;
    pub const SHARED_AVAILABLE: u8 = 0x2A;
}

/// A packet from its first byte and what follows the remaining length.
pub fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    push_var(&mut bytes, body.len());
    bytes.extend(body);
    bytes
}

fn push_var(out: &mut Vec<u8>, mut value: usize) {
    loop {
        let low = (value % 128) as u8;
        value /= 128;
        if value == 0 {
            return out.push(low);
        }
        out.push(low | 0x80);
    }
}

/// A length of two bytes and the bytes.
pub fn field(bytes: &[u8]) -> Vec<u8> {
    let mut out = u16::try_from(bytes.len()).expect("fields of tests are short").to_be_bytes().to_vec();
    out.extend(bytes);
    out
}

/// Properties to be sent, in the order in which they are added.
#[derive(Clone, Default)]
pub struct Props(Vec<u8>);

impl Props {
    pub fn new() -> Self {
        Props::default()
    }

    fn with(mut self, id: u8, value: &[u8]) -> Self {
        self.0.push(id);
        self.0.extend(value);
        self
    }

    pub fn byte(self, id: u8, value: u8) -> Self {
        self.with(id, &[value])
    }

    pub fn u16(self, id: u8, value: u16) -> Self {
        self.with(id, &value.to_be_bytes())
    }

    pub fn u32(self, id: u8, value: u32) -> Self {
        self.with(id, &value.to_be_bytes())
    }

    pub fn var(self, id: u8, value: usize) -> Self {
        let mut bytes = Vec::new();
        push_var(&mut bytes, value);
        self.with(id, &bytes)
    }

    /// A string or binary data.
    pub fn data(self, id: u8, value: impl AsRef<[u8]>) -> Self {
        self.with(id, &field(value.as_ref()))
    }

    pub fn user(self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Self {
        let both = [field(name.as_ref()), field(value.as_ref())].concat();
        self.with(property::USER, &both)
    }

    /// With the length before it.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        push_var(&mut out, self.0.len());
        out.extend(&self.0);
        out
    }
}

/// Something that can be sent on a connection of either version.
pub trait Encode {
    fn encode(&self, version: u8) -> Vec<u8>;
}

impl Encode for Vec<u8> {
    fn encode(&self, _: u8) -> Vec<u8> {
        self.clone()
    }
}

impl<const N: usize> Encode for [u8; N] {
    fn encode(&self, _: u8) -> Vec<u8> {
        self.to_vec()
    }
}

/// What a client leaves behind.
#[derive(Clone)]
pub struct Will {
    pub topic: Vec<u8>,
    pub payload: Vec<u8>,
    pub qos: u8,
    pub retain: bool,
    pub props: Props,
}

impl Will {
    pub fn new(topic: &str, payload: &str) -> Self {
        Will { topic: topic.into(), payload: payload.into(), qos: 0, retain: false, props: Props::new() }
    }

    pub fn qos(self, qos: u8) -> Self {
        Will { qos, ..self }
    }

    pub fn retain(self) -> Self {
        Will { retain: true, ..self }
    }

    pub fn delay(self, seconds: u32) -> Self {
        let props = self.props.clone().u32(property::WILL_DELAY, seconds);
        Will { props, ..self }
    }

    pub fn props(self, props: Props) -> Self {
        Will { props, ..self }
    }
}

/// A CONNECT. Without other orders: clean, keep-alive 0.
#[derive(Clone)]
pub struct Connect {
    pub version: u8,
    pub client_id: Vec<u8>,
    pub clean: bool,
    pub keep_alive: u16,
    pub props: Props,
    pub will: Option<Will>,
    pub user_name: Option<Vec<u8>>,
    pub password: Option<Vec<u8>>,
}

impl Connect {
    pub fn v5(client_id: &str) -> Self {
        Connect {
            version: V5,
            client_id: client_id.into(),
            clean: true,
            keep_alive: 0,
            props: Props::new(),
            will: None,
            user_name: None,
            password: None,
        }
    }

    pub fn v311(client_id: &str) -> Self {
        Connect { version: V311, ..Connect::v5(client_id) }
    }

    /// Clean Start (or Clean Session) 0.
    pub fn resume(self) -> Self {
        Connect { clean: false, ..self }
    }

    pub fn keep_alive(self, keep_alive: u16) -> Self {
        Connect { keep_alive, ..self }
    }

    pub fn expiry(self, seconds: u32) -> Self {
        let props = self.props.clone().u32(property::SESSION_EXPIRY, seconds);
        Connect { props, ..self }
    }

    pub fn receive_maximum(self, maximum: u16) -> Self {
        let props = self.props.clone().u16(property::RECEIVE_MAXIMUM, maximum);
        Connect { props, ..self }
    }

    pub fn maximum_packet_size(self, maximum: u32) -> Self {
        let props = self.props.clone().u32(property::MAXIMUM_PACKET_SIZE, maximum);
        Connect { props, ..self }
    }

    pub fn topic_alias_maximum(self, maximum: u16) -> Self {
        let props = self.props.clone().u16(property::TOPIC_ALIAS_MAXIMUM, maximum);
        Connect { props, ..self }
    }

    pub fn props(self, props: Props) -> Self {
        Connect { props, ..self }
    }

    pub fn will(self, will: Will) -> Self {
        Connect { will: Some(will), ..self }
    }

    pub fn flags(&self) -> u8 {
        let will = self.will.as_ref().map_or(0, |will| 0x04 | will.qos << 3 | (will.retain as u8) << 5);
        (self.clean as u8) << 1 | will | (self.password.is_some() as u8) << 6 | (self.user_name.is_some() as u8) << 7
    }

    /// The packet with other flags than its fields call for.
    pub fn with_flags(&self, flags: u8) -> Vec<u8> {
        let mut body = field(b"MQTT");
        body.push(self.version);
        body.push(flags);
        body.extend(self.keep_alive.to_be_bytes());
        if self.version == V5 {
            body.extend(self.props.bytes());
        }
        body.extend(field(&self.client_id));
        if let Some(will) = &self.will {
            if self.version == V5 {
                body.extend(will.props.bytes());
            }
            body.extend(field(&will.topic));
            body.extend(field(&will.payload));
        }
        for text in [&self.user_name, &self.password].into_iter().flatten() {
            body.extend(field(text));
        }
        packet(0x10, &body)
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.with_flags(self.flags())
    }
}

impl Encode for Connect {
    fn encode(&self, _: u8) -> Vec<u8> {
        self.bytes()
    }
}

/// A PUBLISH to be sent. Without other orders: QoS 0, not retained.
#[derive(Clone)]
pub struct Publish {
    topic: Vec<u8>,
    payload: Vec<u8>,
    qos: u8,
    id: u16,
    retain: bool,
    dup: bool,
    props: Props,
}

impl Publish {
    pub fn new(topic: impl AsRef<[u8]>, payload: impl AsRef<[u8]>) -> Self {
        let (topic, payload) = (topic.as_ref().to_vec(), payload.as_ref().to_vec());
        Publish { topic, payload, qos: 0, id: 0, retain: false, dup: false, props: Props::new() }
    }

    pub fn qos(self, qos: u8, id: u16) -> Self {
        Publish { qos, id, ..self }
    }

    pub fn retain(self) -> Self {
        Publish { retain: true, ..self }
    }

    pub fn dup(self) -> Self {
        Publish { dup: true, ..self }
    }

    pub fn props(self, props: Props) -> Self {
        Publish { props, ..self }
    }
}

impl Encode for Publish {
    fn encode(&self, version: u8) -> Vec<u8> {
        let mut body = field(&self.topic);
        if self.qos > 0 {
            body.extend(self.id.to_be_bytes());
        }
        if version == V5 {
            body.extend(self.props.bytes());
        }
        body.extend(&self.payload);
        packet(0x30 | (self.dup as u8) << 3 | self.qos << 1 | self.retain as u8, &body)
    }
}

/// Subscription options of MQTT 5 beside the QoS.
pub mod option {
    pub const NO_LOCAL: u8 = 0x04;
    pub const RETAIN_AS_PUBLISHED: u8 = 0x08;
    pub const RETAIN_IF_NEW: u8 = 0x10;
    pub const RETAIN_NEVER: u8 = 0x20;
}

/// A SUBSCRIBE of filters with their options (the QoS in the low bits).
#[derive(Clone)]
pub struct Subscribe<'a> {
    pub id: u16,
    pub filters: &'a [(&'a str, u8)],
    pub props: Props,
}

impl<'a> Subscribe<'a> {
    pub fn new(id: u16, filters: &'a [(&'a str, u8)]) -> Self {
        Subscribe { id, filters, props: Props::new() }
    }

    pub fn props(self, props: Props) -> Self {
        Subscribe { props, ..self }
    }
}

impl Encode for Subscribe<'_> {
    fn encode(&self, version: u8) -> Vec<u8> {
        let mut body = self.id.to_be_bytes().to_vec();
        if version == V5 {
            body.extend(self.props.bytes());
        }
        for (filter, options) in self.filters {
            body.extend(field(filter.as_bytes()));
            body.push(*options);
        }
        packet(0x82, &body)
    }
}

/// An UNSUBSCRIBE.
pub struct Unsubscribe<'a> {
    pub id: u16,
    pub filters: &'a [&'a str],
}

impl Encode for Unsubscribe<'_> {
    fn encode(&self, version: u8) -> Vec<u8> {
        let mut body = self.id.to_be_bytes().to_vec();
        if version == V5 {
            body.push(0);
        }
        for filter in self.filters {
            body.extend(field(filter.as_bytes()));
        }
        packet(0xA2, &body)
    }
}

pub const PINGREQ: [u8; 2] = [0xC0, 0x00];
/// DISCONNECT with reason 0x00 (and the only one of 3.1.1).
pub const DISCONNECT: [u8; 2] = [0xE0, 0x00];

/// A DISCONNECT of MQTT 5 with a reason code and properties.
pub fn disconnect(code: u8, props: &Props) -> Vec<u8> {
    packet(0xE0, &[vec![code], props.bytes()].concat())
}

fn acknowledge(first: u8, id: u16) -> Vec<u8> {
    packet(first, &id.to_be_bytes())
}

pub fn puback(id: u16) -> Vec<u8> {
    acknowledge(0x40, id)
}

pub fn pubrec(id: u16) -> Vec<u8> {
    acknowledge(0x50, id)
}

pub fn pubrel(id: u16) -> Vec<u8> {
    acknowledge(0x62, id)
}

pub fn pubcomp(id: u16) -> Vec<u8> {
    acknowledge(0x70, id)
}

/// An acknowledgement with a reason code (MQTT 5); `first` is its first byte.
pub fn acknowledge_with(first: u8, id: u16, code: u8) -> Vec<u8> {
    let [high, low] = id.to_be_bytes();
    packet(first, &[high, low, code])
}

/// A received property.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Number(u32),
    Data(Vec<u8>),
    Pair(String, String),
}

/// Received properties with their identifiers, in their order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Properties(pub Vec<(u8, Value)>);

impl Properties {
    pub fn number(&self, id: u8) -> Option<u32> {
        self.0.iter().find_map(|(key, value)| match value {
            Value::Number(number) if *key == id => Some(*number),
            _ => None,
        })
    }

    pub fn numbers(&self, id: u8) -> Vec<u32> {
        let number = |(key, value): &(u8, Value)| match value {
            Value::Number(number) if *key == id => Some(*number),
            _ => None,
        };
        self.0.iter().filter_map(number).collect()
    }

    pub fn data(&self, id: u8) -> Option<&[u8]> {
        self.0.iter().find_map(|(key, value)| match value {
            Value::Data(data) if *key == id => Some(data.as_slice()),
            _ => None,
        })
    }

    pub fn text(&self, id: u8) -> Option<&str> {
        self.data(id).map(|data| std::str::from_utf8(data).expect("the broker's strings are UTF-8"))
    }

    pub fn has(&self, id: u8) -> bool {
        self.0.iter().any(|(key, _)| *key == id)
    }

    pub fn user(&self) -> Vec<(&str, &str)> {
        let pair = |(_, value): &'_ (u8, Value)| matches!(value, Value::Pair(..));
        let pairs = self.0.iter().filter(|entry| pair(entry));
        pairs
            .map(|(_, value)| match value {
                Value::Pair(name, value) => (name.as_str(), value.as_str()),
                _ => unreachable!("only pairs were left"),
            })
            .collect()
    }
}

/// A received PUBLISH.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// With a topic alias resolved.
    pub topic: String,
    pub payload: Vec<u8>,
    pub qos: u8,
    /// 0 at QoS 0.
    pub id: u16,
    pub retain: bool,
    pub dup: bool,
    pub props: Properties,
}

impl Message {
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.payload).expect("payloads of tests are text")
    }
}

/// Which acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ack {
    Puback,
    Pubrec,
    Pubrel,
    Pubcomp,
}

/// A received packet.
#[derive(Clone, Debug, PartialEq)]
pub enum Packet {
    Connack { present: bool, code: u8, props: Properties },
    Publish(Message),
    Ack { kind: Ack, id: u16, code: u8, props: Properties },
    Suback { id: u16, codes: Vec<u8>, props: Properties },
    Unsuback { id: u16, codes: Vec<u8>, props: Properties },
    Pingresp,
    Disconnect { code: u8, props: Properties },
    Auth { code: u8, props: Properties },
}

/// A plain acknowledgement with reason code 0x00.
pub fn ack(kind: Ack, id: u16) -> Packet {
    Packet::Ack { kind, id, code: 0, props: Properties::default() }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        taken
    }

    fn byte(&mut self) -> u8 {
        self.take(1)[0]
    }

    fn u16(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    fn u32(&mut self) -> u32 {
        (self.u16() as u32) << 16 | self.u16() as u32
    }

    fn var(&mut self) -> usize {
        let mut value = 0;
        for place in 0..4 {
            let byte = self.byte();
            value |= ((byte & 0x7F) as usize) << (7 * place);
            if byte & 0x80 == 0 {
                assert!(place == 0 || byte != 0, "variable byte integers are as short as possible");
                return value;
            }
        }
        panic!("a variable byte integer of more than four bytes");
    }

    fn data(&mut self) -> Vec<u8> {
        let length = self.u16() as usize;
        self.take(length).to_vec()
    }

    fn text(&mut self) -> String {
        String::from_utf8(self.data()).expect("the broker's strings are UTF-8")
    }

    fn properties(&mut self) -> Properties {
        if self.0.is_empty() {
            return Properties::default();
        }
        let length = self.var();
        let mut part = Reader(self.take(length));
        let mut props = Vec::new();
        while !part.0.is_empty() {
            let id = part.byte();
            let value = match id {
                0x01 | 0x17 | 0x19 | 0x24 | 0x25 | 0x28..=0x2A => Value::Number(part.byte() as u32),
                0x13 | 0x21..=0x23 => Value::Number(part.u16() as u32),
                0x02 | 0x11 | 0x18 | 0x27 => Value::Number(part.u32()),
                0x0B => Value::Number(part.var() as u32),
                0x03 | 0x08 | 0x09 | 0x12 | 0x15 | 0x16 | 0x1A | 0x1C | 0x1F => Value::Data(part.data()),
                0x26 => Value::Pair(part.text(), part.text()),
                other => panic!("the broker sent the unknown property {other:#x}"),
            };
            props.push((id, value));
        }
        Properties(props)
    }
}

/// What was put into properties to be sent.
pub fn read_properties(props: &Props) -> Properties {
    Reader(&props.bytes()).properties()
}

/// Takes one packet from the front of `bytes`, with its size; `None` if it is not all there.
pub fn decode(version: u8, bytes: &[u8]) -> Option<(Packet, usize)> {
    let mut length = 0;
    let mut header = 1;
    loop {
        let byte = *bytes.get(header)?;
        length |= ((byte & 0x7F) as usize) << (7 * (header - 1));
        header += 1;
        if byte & 0x80 == 0 {
            assert!(header == 2 || byte != 0, "the remaining length is as short as possible");
            break;
        }
    }
    let body = bytes.get(header..header + length)?;
    assert_well_formed(version, bytes[0], body);
    Some((decode_body(version, bytes[0], body), header + length))
}

fn decode_body(version: u8, first: u8, body: &[u8]) -> Packet {
    let mut reader = Reader(body);
    let five = version == V5;
    let packet = match (first >> 4, first & 0x0F) {
        (2, 0) => {
            let flags = reader.byte();
            assert!(flags <= 1, "reserved CONNACK flags in {flags:#x}");
            let code = reader.byte();
            assert!(!five || !reader.0.is_empty(), "CONNACK has its property length");
            Packet::Connack { present: flags == 1, code, props: reader.properties() }
        }
        (3, flags) => Packet::Publish(message(&mut reader, flags, five)),
        (kind @ (4 | 5 | 7), 0) | (kind @ 6, 2) => {
            let kind = [Ack::Puback, Ack::Pubrec, Ack::Pubrel, Ack::Pubcomp][kind as usize - 4];
            let id = reader.u16();
            assert!(five || reader.0.is_empty(), "acknowledgements of 3.1.1 have nothing but an identifier");
            let code = if reader.0.is_empty() { 0 } else { reader.byte() };
            Packet::Ack { kind, id, code, props: reader.properties() }
        }
        (kind @ (9 | 11), 0) => {
            let id = reader.u16();
            let props = if five { reader.properties() } else { Properties::default() };
            let codes = reader.take(reader.0.len()).to_vec();
            if kind == 9 { Packet::Suback { id, codes, props } } else { Packet::Unsuback { id, codes, props } }
        }
        (13, 0) => Packet::Pingresp,
        (kind @ (14 | 15), 0) if five => {
            let code = if reader.0.is_empty() { 0 } else { reader.byte() };
            let props = reader.properties();
            if kind == 14 { Packet::Disconnect { code, props } } else { Packet::Auth { code, props } }
        }
        _ => panic!("the broker sent a packet that begins with {first:#x}"),
    };
    assert!(reader.0.is_empty(), "{} bytes follow {packet:?}", reader.0.len());
    packet
}

fn message(reader: &mut Reader<'_>, flags: u8, five: bool) -> Message {
    let qos = flags >> 1 & 3;
    assert!(qos < 3, "QoS 3");
    let topic = reader.text();
    let id = if qos > 0 { reader.u16() } else { 0 };
    assert!(qos == 0 || id != 0, "packet identifier 0");
    let props = if five { reader.properties() } else { Properties::default() };
    let payload = reader.take(reader.0.len()).to_vec();
    Message { topic, payload, qos, id, retain: flags & 1 == 1, dup: flags & 8 == 8, props }
}

/// A second opinion: the packet must also satisfy an independent codec.
fn assert_well_formed(version: u8, first: u8, body: &[u8]) {
    let shared: Arc<[u8]> = body.into();
    let flags = first & 0x0F;
    // That of a bridge has a bit of its own.
    let result = match (version & 0x7F, first >> 4) {
        (V5, 2) => v5_0::Connack::parse(body).map(|parsed| parsed.1),
        (V5, 3) => v5_0::Publish::parse(flags, shared).map(|parsed| parsed.1),
        (V5, 4) => v5_0::Puback::parse(body).map(|parsed| parsed.1),
        (V5, 5) => v5_0::Pubrec::parse(body).map(|parsed| parsed.1),
        (V5, 6) => v5_0::Pubrel::parse(body).map(|parsed| parsed.1),
        (V5, 7) => v5_0::Pubcomp::parse(body).map(|parsed| parsed.1),
        (V5, 9) => v5_0::Suback::parse(body).map(|parsed| parsed.1),
        (V5, 11) => v5_0::Unsuback::parse(body).map(|parsed| parsed.1),
        (V5, 14) => v5_0::Disconnect::parse(body).map(|parsed| parsed.1),
        (V5, 15) => v5_0::Auth::parse(body).map(|parsed| parsed.1),
        (V311, 2) => v3_1_1::Connack::parse(body).map(|parsed| parsed.1),
        (V311, 3) => v3_1_1::Publish::parse(flags, shared).map(|parsed| parsed.1),
        (V311, 4) => v3_1_1::Puback::parse(body).map(|parsed| parsed.1),
        (V311, 5) => v3_1_1::Pubrec::parse(body).map(|parsed| parsed.1),
        (V311, 6) => v3_1_1::Pubrel::parse(body).map(|parsed| parsed.1),
        (V311, 7) => v3_1_1::Pubcomp::parse(body).map(|parsed| parsed.1),
        (V311, 9) => v3_1_1::Suback::parse(body).map(|parsed| parsed.1),
        (V311, 11) => v3_1_1::Unsuback::parse(body).map(|parsed| parsed.1),
        (_, 13) => Ok(0),
        _ => panic!("MQTT {version} has no packet for a client that begins with {first:#x}"),
    };
    match result {
        Ok(used) => assert_eq!(used, body.len(), "an independent codec leaves bytes of {first:#x} {body:x?}"),
        Err(error) => panic!("an independent codec rejects {first:#x} {body:x?}: {error:?}"),
    }
}
