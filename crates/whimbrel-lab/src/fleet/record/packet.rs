//! Cuts packets out of a connection's bytes, and turns them into lines.

use std::collections::HashMap;

use whimbrel_client::QoS;
use whimbrel_mqtt::codec::{
    Ack, CodesAck, ConnAck, Connect, Disconnect, PACKET_MAX, Packet, Publish, Subscribe, UserProperties, Version,
    decode, frame,
};

use super::PacketLine;

/// One direction of a connection.
#[derive(Debug, Default)]
pub(super) struct Cut {
    /// The beginning of a packet.
    rest: Vec<u8>,
    /// Topics by their aliases.
    topics: HashMap<u16, String>,
    /// Whether bytes that are not a packet have arrived; later ones cannot be read.
    is_broken: bool,
}

impl Cut {
    /// Takes bytes, and passes complete packets to `tell`.
    pub(super) fn feed(&mut self, bytes: &[u8], mut tell: impl FnMut(PacketLine)) {
        if self.is_broken {
            return;
        }
        self.rest.extend_from_slice(bytes);
        let mut used = 0;
        loop {
            match frame(&self.rest[used..], PACKET_MAX) {
                Ok(None) => break,
                Ok(Some(cut)) => {
                    used += cut.whole.len();
                    match decode(Version::V5, cut.first_byte, cut.body) {
                        Ok(packet) => tell(told(&packet, &mut self.topics)),
                        Err(error) => tell(unreadable(error.cause)),
                    }
                }
                Err(error) => {
                    self.is_broken = true;
                    tell(unreadable(error.cause));
                    break;
                }
            }
        }
        self.rest.drain(..used);
    }
}

fn unreadable(cause: &str) -> PacketLine {
    PacketLine { packet: "unreadable".to_owned(), with: vec![pair("cause", cause)], ..PacketLine::default() }
}

fn pair(name: &str, value: impl ToString) -> (String, String) {
    (name.to_owned(), value.to_string())
}

fn user(properties: UserProperties<'_>) -> impl Iterator<Item = (String, String)> {
    properties.iter().map(|(name, value)| pair(name, value))
}

fn told(packet: &Packet<'_>, topics: &mut HashMap<u16, String>) -> PacketLine {
    let named = |name: &str| PacketLine { packet: name.to_owned(), ..PacketLine::default() };
    match packet {
        Packet::Publish(publish) => told_publish(publish, topics),
        Packet::Connect(connect) => PacketLine { with: of_connect(connect), ..named("CONNECT") },
        Packet::ConnAck(answer) => PacketLine { with: of_connack(answer), ..named("CONNACK") },
        Packet::PubAck(ack) => told_ack("PUBACK", ack),
        Packet::PubRec(ack) => told_ack("PUBREC", ack),
        Packet::PubRel(ack) => told_ack("PUBREL", ack),
        Packet::PubComp(ack) => told_ack("PUBCOMP", ack),
        Packet::Subscribe(subscribe) => {
            PacketLine { id: Some(subscribe.packet_id.get()), with: of_subscribe(subscribe), ..named("SUBSCRIBE") }
        }
        Packet::SubAck(ack) => told_codes("SUBACK", ack),
        Packet::Unsubscribe(unsubscribe) => PacketLine {
            id: Some(unsubscribe.packet_id.get()),
            with: unsubscribe.filters.iter().map(|filter| pair("filter", filter)).collect(),
            ..named("UNSUBSCRIBE")
        },
        Packet::UnsubAck(ack) => told_codes("UNSUBACK", ack),
        Packet::PingReq => named("PINGREQ"),
        Packet::PingResp => named("PINGRESP"),
        Packet::Disconnect(Disconnect { reason, properties }) => {
            let text = properties.reason_string.map(|text| pair("reason-string", text));
            PacketLine { with: core::iter::once(pair("reason", reason)).chain(text).collect(), ..named("DISCONNECT") }
        }
        Packet::Auth(auth) => PacketLine { with: vec![pair("reason", auth.reason)], ..named("AUTH") },
    }
}

fn told_publish(publish: &Publish<'_>, topics: &mut HashMap<u16, String>) -> PacketLine {
    let alias = publish.properties.topic_alias.map(core::num::NonZeroU16::get);
    if let Some(alias) = alias.filter(|_| !publish.topic.is_empty()) {
        topics.insert(alias, publish.topic.to_owned());
    }
    let of_alias = alias.filter(|_| publish.topic.is_empty()).and_then(|alias| topics.get(&alias).cloned());
    let qos = match publish.qos {
        QoS::AtMostOnce => 0,
        QoS::AtLeastOnce => 1,
        QoS::ExactlyOnce => 2,
    };
    PacketLine {
        packet: "PUBLISH".to_owned(),
        id: publish.packet_id.map(core::num::NonZeroU16::get),
        qos: Some(qos),
        dup: publish.dup,
        retain: publish.retain,
        topic: Some(of_alias.unwrap_or_else(|| publish.topic.to_owned())),
        payload: Some(String::from_utf8_lossy(publish.payload).into_owned()),
        with: user(publish.properties.user).collect(),
        ..PacketLine::default()
    }
}

fn told_ack(name: &str, ack: &Ack<'_>) -> PacketLine {
    let reason = ack.reason.is_error().then(|| pair("reason", ack.reason));
    let text = ack.properties.reason_string.map(|text| pair("reason-string", text));
    PacketLine {
        packet: name.to_owned(),
        id: Some(ack.packet_id.get()),
        with: reason.into_iter().chain(text).collect(),
        ..PacketLine::default()
    }
}

fn told_codes(name: &str, ack: &CodesAck<'_>) -> PacketLine {
    let codes = ack.codes.iter().map(|code| pair("reason", code));
    let text = ack.properties.reason_string.map(|text| pair("reason-string", text));
    PacketLine {
        packet: name.to_owned(),
        id: Some(ack.packet_id.get()),
        with: codes.chain(text).chain(user(ack.properties.user)).collect(),
        ..PacketLine::default()
    }
}

fn of_connect(connect: &Connect<'_>) -> Vec<(String, String)> {
    let expiry = connect.properties.session_expiry.unwrap_or(0);
    let mut with = vec![pair("clean-start", connect.clean_start), pair("session-expiry", expiry)];
    with.extend(user(connect.properties.user));
    with
}

fn of_connack(answer: &ConnAck<'_>) -> Vec<(String, String)> {
    let mut with = vec![pair("session-present", answer.session_present), pair("reason", answer.reason)];
    with.extend(answer.properties.reason_string.map(|text| pair("reason-string", text)));
    with.extend(user(answer.properties.user));
    with
}

fn of_subscribe(subscribe: &Subscribe<'_>) -> Vec<(String, String)> {
    let mut with: Vec<(String, String)> =
        subscribe.filters.iter().map(|filter| pair("filter", format!("{} {:?}", filter.filter, filter.qos))).collect();
    with.extend(user(subscribe.properties.user));
    with
}

#[cfg(test)]
mod tests {
    use whimbrel_mqtt::codec::{PacketId, PublishProperties, ReasonCode};

    use super::*;

    fn lines(bytes: &[u8], step: usize) -> Vec<PacketLine> {
        let (mut cut, mut lines) = (Cut::default(), Vec::new());
        for bytes in bytes.chunks(step) {
            cut.feed(bytes, |line| lines.push(line));
        }
        lines
    }

    #[test]
    fn packets_are_told_wherever_reads_end_and_aliases_are_resolved() {
        let id = PacketId::new(7).expect("at least 1");
        let publish = |topic, alias: u16| {
            let mut user = whimbrel_event::AttributesBuf::new();
            user.push("w-id", "a1:5");
            let properties = PublishProperties {
                topic_alias: core::num::NonZeroU16::new(alias),
                user: user.as_attributes().into(),
                ..PublishProperties::EMPTY
            };
            let (qos, packet_id, payload) = (QoS::AtLeastOnce, Some(id), &b"{\"order\":5}"[..]);
            let publish = Publish { dup: true, qos, retain: false, topic, packet_id, properties, payload };
            let mut bytes = Vec::new();
            Packet::Publish(publish).encode(Version::V5, &mut bytes).expect("it is a packet");
            bytes
        };
        let mut bytes = [publish("freight/express/clerk-3", 4), publish("", 4)].concat();
        let refusal = Ack { reason: ReasonCode::NOT_AUTHORIZED, ..Ack::success(id) };
        Packet::PubAck(refusal).encode(Version::V5, &mut bytes).expect("it is a packet");
        for step in [1, 2, 1_000] {
            let lines = lines(&bytes, step);
            assert_eq!(lines.len(), 3, "{lines:?}");
            assert_eq!(lines[0], lines[1]);
            let PacketLine { id, qos, dup, topic, payload, .. } = &lines[1];
            assert_eq!((*id, *qos, *dup), (Some(7), Some(1), true));
            assert_eq!(
                (topic.as_deref(), payload.as_deref()),
                (Some("freight/express/clerk-3"), Some("{\"order\":5}"))
            );
            assert_eq!(lines[1].value("w-id"), Some("a1:5"));
            assert_eq!((&*lines[2].packet, lines[2].value("reason")), ("PUBACK", Some("0x87 not authorized")));
        }
    }

    #[test]
    fn what_is_no_packet_is_told_once() {
        let lines = lines(&[0x30, 0xff, 0xff, 0xff, 0xff, 0xff, 0x30, 0x00], 3);
        assert_eq!(lines.iter().map(|line| &*line.packet).collect::<Vec<_>>(), ["unreadable"]);
    }
}
