//! Packets of clients.

use core::time::Duration;

use whimbrel_core::{Input as CoreInput, Link, Publish as CorePublish, Settlement};
use whimbrel_event::{EventRef, Headers, Qos, Time};

use super::acknowledge::ACK_TOPIC;
use super::conn::State;
use super::outbound::Outbound;
use super::passing::PassingPacket;
use super::refusals::class_of_code;
use super::refuse::RefusedPublish;
use super::{ConnId, Edge, MqttBroker, Output};
use crate::codec::{
    Ack, BarePublish, DecodeError, Frame, Packet, PacketId, Publish, PublishProperties, ReasonCode, Version,
    answer_version, client_id_of, decode, decode_publish, topic_name,
};

/// The longest topic name, in bytes, that is remembered as checked.
const REMEMBERED_MAX: usize = 256;

/// The cause of a refusal: reason code and text.
pub(super) type Cause = (ReasonCode, &'static str);

impl MqttBroker {
    /// Handles one packet.
    #[inline]
    pub(super) fn packet(&mut self, now: Time, id: u32, frame: &Frame<'_>, out: &mut impl Output) {
        let Frame { first_byte: first, body, .. } = *frame;
        self.edge.stats.packets_in += 1;
        let conn = &self.edge.conns[id as usize];
        if conn.deaf && asks(first) {
            return;
        }
        let result = if conn.state == State::Attached && first >> 4 == 3 {
            if self.publish_bare(now, id, frame, out) {
                return;
            }
            match decode_publish(self.edge.conns[id as usize].version, first, body) {
                Ok(publish) => self.publish(now, id, &publish, out),
                Err(error) => Err(error),
            }
        } else if conn.state == State::Attached
            && first == 0x40
            && let [high, low] = *body
            && (high | low) != 0
        {
            let tag = u16::from_be_bytes([high, low]);
            self.settle(now, id, tag, Settlement::Acknowledged, out);
            Ok(())
        } else {
            self.control(now, id, first, body, out)
        };
        if let Err(error) = result {
            self.fail(now, id, body, error, out);
        }
    }

    /// Ends a connection because a packet, `body`, is invalid or refused.
    #[cold]
    pub(super) fn fail(&mut self, now: Time, id: u32, body: &[u8], error: DecodeError, out: &mut impl Output) {
        if self.edge.conns[id as usize].state == State::ExpectConnect {
            let client_id = client_id_of(body).unwrap_or_default();
            return self.edge.refuse(id, client_id, error.reason, error.cause, out);
        }
        self.end(now, id, error.reason, error.cause, out);
    }

    /// Publishes the event of a PUBLISH without properties at QoS 0 or 1. False if the packet is
    /// none, or is to be refused: then nothing has happened.
    #[inline]
    fn publish_bare(&mut self, now: Time, id: u32, frame: &Frame<'_>, out: &mut impl Output) -> bool {
        let MqttBroker { core, edge } = self;
        let version = edge.conns[id as usize].version;
        let Some(packet) = BarePublish::read(version, frame) else { return false };
        if !edge.has_plain_way || packet.qos == Qos::ExactlyOnce || packet.topic.first() == Some(&b'$') {
            return false;
        }
        // Lent while the core borrows the edge.
        let mut remembered = core::mem::take(&mut edge.last_topic);
        let is_remembered = remembered.as_bytes() == packet.topic;
        let checked = if is_remembered { None } else { topic_name(packet.topic).ok() };
        let topic = checked.or(is_remembered.then_some(&*remembered));
        let is_published = topic.is_some_and(|topic| {
            let event = EventRef::new(topic, packet.payload, packet.qos);
            if edge.may_publish(id, &event).is_err() {
                return false;
            }
            edge.stats.publishes_in += 1;
            let tag = packet.packet_id.map_or(0, PacketId::get);
            let input = CorePublish { link: Link(id), tag, retain: packet.retain, number: None, event: &event };
            let passing = Some(PassingPacket { packet, version, topic });
            core.handle(now, CoreInput::Publish(input), &mut Outbound { edge, driver: out, now, passing });
            true
        });
        if let Some(checked) = checked.filter(|checked| is_published && checked.len() <= REMEMBERED_MAX) {
            remembered.clear();
            remembered.push_str(checked);
        }
        self.edge.last_topic = remembered;
        is_published
    }

    fn control(
        &mut self,
        now: Time,
        id: u32,
        first: u8,
        body: &[u8],
        out: &mut impl Output,
    ) -> Result<(), DecodeError> {
        let conn = &self.edge.conns[id as usize];
        let (state, version) = (conn.state, conn.version);
        if state == State::ExpectConnect && first >> 4 != 1 {
            return Err(violation("the first packet is not CONNECT"));
        }
        if state == State::ExpectConnect {
            self.edge.record_version(id, body);
        } else if first >> 4 == 1 {
            return Err(violation("a second CONNECT on one connection"));
        }
        let packet = decode(version, first, body)?;
        packet.check_from_client()?;
        match packet {
            Packet::Connect(connect) => self.connect(now, id, (&connect, body), out),
            Packet::PubAck(ack) => {
                let by = if ack.reason.is_error() { Settlement::Refused } else { Settlement::Acknowledged };
                self.settle(now, id, ack.packet_id.get(), by, out);
                Ok(())
            }
            Packet::PubRec(ack) => {
                let by = if ack.reason.is_error() { Settlement::NotReceived } else { Settlement::Received };
                self.settle(now, id, ack.packet_id.get(), by, out);
                Ok(())
            }
            Packet::PubComp(ack) => {
                self.settle(now, id, ack.packet_id.get(), Settlement::Completed, out);
                Ok(())
            }
            Packet::PubRel(Ack { packet_id: tag, .. }) => {
                self.core_input(now, CoreInput::Release { link: Link(id), tag: tag.get() }, out);
                Ok(())
            }
            Packet::Subscribe(subscribe) => self.subscribe(now, id, &subscribe, out),
            Packet::Unsubscribe(unsubscribe) => self.unsubscribe(now, id, &unsubscribe, out),
            Packet::PingReq => {
                self.edge.send(id, &Packet::PingResp, out);
                Ok(())
            }
            Packet::Disconnect(disconnect) => self.disconnect(now, id, &disconnect, out),
            Packet::Auth(_) => Err(violation("AUTH without an authentication method in CONNECT")),
            Packet::Publish(_) | Packet::ConnAck(_) | Packet::SubAck(_) | Packet::UnsubAck(_) | Packet::PingResp => {
                unreachable!("publishes are handled by the caller, and what only servers send has been refused")
            }
        }
    }

    pub(super) fn core_input(&mut self, now: Time, input: CoreInput<'_>, out: &mut impl Output) {
        self.core.handle(now, input, &mut Outbound::new(&mut self.edge, out, now));
    }

    fn settle(&mut self, now: Time, id: u32, tag: u16, by: Settlement, out: &mut impl Output) {
        if out.wants_steps() && by != Settlement::Received {
            let is_refused = matches!(by, Settlement::Refused | Settlement::NotReceived);
            out.settled(now, ConnId(id), tag, is_refused);
        }
        self.core_input(now, CoreInput::Settle { link: Link(id), tag, by }, out);
    }

    #[inline]
    fn publish(&mut self, now: Time, id: u32, publish: &Publish<'_>, out: &mut impl Output) -> Result<(), DecodeError> {
        let MqttBroker { core, edge } = self;
        edge.stats.publishes_in += 1;
        let link = Link(id);
        publish.check_from_client()?;
        let tag = publish.packet_id.map_or(0, PacketId::get);
        if publish.qos == Qos::ExactlyOnce
            && core.unreleased(link)
                >= usize::from(edge.config.limits.receive_maximum) + edge.conns[id as usize].carried()
            && !core.is_unreleased(link, tag)
        {
            let reason = ReasonCode::RECEIVE_MAXIMUM_EXCEEDED;
            return Err(DecodeError { reason, cause: "more unreleased QoS 2 messages than the receive maximum" });
        }
        // The topic may be in the alias table while the core borrows the edge: it is taken out and
        // put back afterwards.
        let mut lent: Option<(u16, Box<str>)> = None;
        if let Some(alias) = publish.properties.topic_alias {
            let topic = edge.resolve_alias(id, alias.get(), publish.topic)?;
            lent = Some((alias.get(), topic));
        }
        let topic = lent.as_ref().map_or(publish.topic, |(_, topic)| topic);
        if topic == ACK_TOPIC {
            self.acknowledge(now, id, publish, out);
        } else {
            self.publish_to(now, id, topic, publish, out);
        }
        if let Some((alias, topic)) = lent {
            self.edge.return_alias(id, alias, topic);
        }
        Ok(())
    }

    #[inline]
    fn publish_to(&mut self, now: Time, id: u32, topic: &str, publish: &Publish<'_>, out: &mut impl Output) {
        let MqttBroker { core, edge } = self;
        let (link, tag) = (Link(id), publish.packet_id.map_or(0, PacketId::get));
        let mut attributes = core::mem::take(&mut edge.attributes);
        let mut event = EventRef::new(topic, publish.payload, publish.qos);
        let is_bare = edge.conns[id as usize].version == Version::V4 || publish.properties == PublishProperties::EMPTY;
        let number = if is_bare {
            Ok(None)
        } else {
            edge.with_properties(now, &mut event, &publish.properties, &mut attributes)
        };
        let allowed = number.and_then(|number| {
            allowed(topic)?;
            edge.may_publish(id, &event)?;
            Ok(number)
        });
        match allowed {
            Ok(number) => {
                let input = CorePublish { link, tag, retain: publish.retain, number, event: &event };
                core.handle(now, CoreInput::Publish(input), &mut Outbound::new(edge, out, now));
            }
            Err((reason, cause)) => {
                let refused = RefusedPublish { class: class_of_code(reason), reason, cause };
                self.refuse_publish(now, id, publish, (topic, refused), out);
            }
        }
        attributes.clear();
        self.edge.attributes = attributes;
    }
}

impl Edge {
    /// Records the version in which a CONNECT must be answered, before it is known to be
    /// well-formed. MQTT 3.1.1 has answers only to well-formed CONNECTs and to unknown versions.
    fn record_version(&mut self, id: u32, body: &[u8]) {
        let conn = &mut self.conns[id as usize];
        if let Some(version) = answer_version(body) {
            conn.version = version;
            conn.asked = version == Version::V5 || !matches!(body, [0, 4, b'M', b'Q', b'T', b'T', 4 | 0x84, ..]);
        }
    }

    /// The topic of `alias`, which becomes `topic` if that is not empty; taken out of the table.
    fn resolve_alias(&mut self, id: u32, alias: u16, topic: &str) -> Result<Box<str>, DecodeError> {
        let invalid = |cause| DecodeError { reason: ReasonCode::TOPIC_ALIAS_INVALID, cause };
        if alias > self.config.limits.topic_alias_maximum {
            return Err(invalid("the topic alias exceeds the topic alias maximum"));
        }
        let aliases = &mut self.conns[id as usize].rare().aliases_in;
        let at = usize::from(alias) - 1;
        if aliases.len() <= at {
            aliases.resize(at + 1, None);
        }
        match aliases[at].take() {
            _ if !topic.is_empty() => Ok(topic.into()),
            Some(known) => Ok(known),
            None => Err(violation("the topic alias stands for no topic")),
        }
    }

    fn return_alias(&mut self, id: u32, alias: u16, topic: Box<str>) {
        let conn = &mut self.conns[id as usize];
        if conn.state == State::Attached
            && let Some(slot) = conn.rare().aliases_in.get_mut(usize::from(alias) - 1)
        {
            *slot = Some(topic);
        }
    }

    /// Whether a client may publish an event.
    #[inline]
    fn may_publish(&self, id: u32, event: &EventRef<'_>) -> Result<(), Cause> {
        let Some(who) = &self.conns[id as usize].who else { return Ok(()) };
        let judged = who.may_publish(event.topic, event.importance, event.deadline_ms);
        judged.map_err(|denied| (denied.reason, denied.cause))
    }

    /// Adds a PUBLISH's properties to an event. The result is the publisher's own number for it.
    pub(super) fn with_properties<'a>(
        &mut self,
        now: Time,
        event: &mut EventRef<'a>,
        properties: &PublishProperties<'a>,
        attributes: &'a mut whimbrel_event::AttributesBuf,
    ) -> Result<Option<u64>, Cause> {
        let mut number = None;
        event.headers = Headers {
            text_payload: properties.text_payload,
            content_type: properties.content_type,
            response_topic: properties.response_topic,
            correlation: properties.correlation_data,
            ..Headers::EMPTY
        };
        event.expires = properties.message_expiry.map(|seconds| now.after(Duration::from_secs(seconds.into())));
        for (name, value) in properties.user.iter() {
            match name {
                "w-importance" => event.importance = importance(value)?,
                "w-seq" => number = Some(sequence(value)?),
                "w-deadline-ms" => event.deadline_ms = Some(deadline(value)?),
                name if name.starts_with("w-") => self.stats.reserved_properties_unknown += 1,
                _ => {}
            }
            attributes.push(name, value);
        }
        event.attributes = attributes.as_attributes();
        Ok(number)
    }
}

pub(super) const fn violation(cause: &'static str) -> DecodeError {
    DecodeError { reason: ReasonCode::PROTOCOL_ERROR, cause }
}

/// Whether a packet is a request to the broker: PUBLISH, SUBSCRIBE, UNSUBSCRIBE. Others report what
/// the client has done.
fn asks(first: u8) -> bool {
    matches!(first >> 4, 3 | 8 | 10)
}

/// Checks a topic for publishing: those that begin with `$` are the broker's, except for reply
/// topics and the topics with which bridges of mosquitto report their state.
pub(super) fn allowed(topic: &str) -> Result<(), Cause> {
    if topic.starts_with('$') && !topic.starts_with("$replies/") && !is_state_of_bridge(topic) {
        return Err((ReasonCode::NOT_AUTHORIZED, "topics that begin with $ are the broker's own"));
    }
    Ok(())
}

/// Whether a topic is `$SYS/broker/connection/NAME/state`.
fn is_state_of_bridge(topic: &str) -> bool {
    let name = topic.strip_prefix("$SYS/broker/connection/").and_then(|rest| rest.strip_suffix("/state"));
    name.is_some_and(|name| !name.is_empty() && !name.contains('/'))
}

fn importance(value: &str) -> Result<u8, Cause> {
    value
        .parse()
        .ok()
        .filter(|importance| (1..=10).contains(importance))
        .ok_or((ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR, "w-importance is a whole number from 1 to 10"))
}

fn sequence(value: &str) -> Result<u64, Cause> {
    value.parse().map_err(|_| {
        (ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR, "w-seq is a whole number, at most 18446744073709551615")
    })
}

fn deadline(value: &str) -> Result<u32, Cause> {
    value.parse().map_err(|_| {
        (
            ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR,
            "w-deadline-ms is a whole number of milliseconds, at most 4294967295",
        )
    })
}
