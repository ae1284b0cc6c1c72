//! Packets from clients.

use core::time::Duration;

use whimbrel_core::{Attach, Input as CoreInput, Link, Publish as CorePublish, Settlement};
use whimbrel_event::{
    Event, EventId, EventRef, Headers, IMPORTANCE_DEFAULT, PubendId, Publisher, Qos, Reliability, Tick, Time,
};
use whimbrel_selector::TopicName;

use super::acknowledge::ACK_TOPIC;
use super::conn::State;
use super::outbound::Outbound;
use super::{Broker, Edge, Output};
use crate::codec::{
    Ack, Connect, DecodeError, Disconnect, Packet, PacketId, Publish, PublishProperties, ReasonCode, Version, Will,
    answer_version, decode, decode_publish,
};
use crate::config::AWAIT_MAX;

/// Seconds of a session expiry that mean "never".
const NEVER: u32 = u32::MAX;

/// Why a publish is not accepted, for its acknowledgement.
pub(super) type Refused = (ReasonCode, &'static str);

impl Broker {
    /// Handles one packet.
    #[inline]
    pub(super) fn packet(&mut self, now: Time, id: u32, first: u8, body: &[u8], out: &mut impl Output) {
        self.edge.stats.packets_in += 1;
        let conn = &self.edge.conns[id as usize];
        let result = if conn.state == State::Attached && first >> 4 == 3 {
            decode_publish(conn.version, first, body).and_then(|publish| self.publish(now, id, &publish, out))
        } else if conn.state == State::Attached && first == 0x40 && body.len() == 2 {
            let tag = u16::from_be_bytes([body[0], body[1]]);
            self.settle(now, id, tag, Settlement::Acknowledged, out);
            Ok(())
        } else {
            self.control(now, id, first, body, out)
        };
        if let Err(error) = result {
            self.end(now, id, error.reason, error.cause, out);
        }
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
            self.edge.note_version(id, body);
        } else if first >> 4 == 1 {
            return Err(violation("a second CONNECT on one connection"));
        }
        let packet = decode(version, first, body)?;
        packet.check_from_client()?;
        match packet {
            Packet::Connect(connect) => self.connect(now, id, &connect, out),
            Packet::PubAck(ack) => {
                let by = if ack.reason.is_error() { Settlement::Refused } else { Settlement::Acknowledged };
                self.settle(now, id, ack.packet_id.get(), by, out);
                Ok(())
            }
            Packet::PubRec(ack) => {
                let by = if ack.reason.is_error() { Settlement::Refused } else { Settlement::Received };
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
            Packet::Subscribe(subscribe) => {
                self.subscribe(now, id, &subscribe, out);
                Ok(())
            }
            Packet::Unsubscribe(unsubscribe) => {
                self.unsubscribe(now, id, &unsubscribe, out);
                Ok(())
            }
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
        self.core.handle(now, input, &mut Outbound { edge: &mut self.edge, driver: out, now });
    }

    fn settle(&mut self, now: Time, id: u32, tag: u16, by: Settlement, out: &mut impl Output) {
        self.core_input(now, CoreInput::Settle { link: Link(id), tag, by }, out);
    }

    #[inline]
    fn publish(&mut self, now: Time, id: u32, publish: &Publish<'_>, out: &mut impl Output) -> Result<(), DecodeError> {
        let Broker { core, edge } = self;
        edge.stats.publishes_in += 1;
        let link = Link(id);
        publish.check_from_client()?;
        let tag = publish.packet_id.map_or(0, PacketId::get);
        if publish.qos == Qos::ExactlyOnce
            && core.unreleased(link)
                >= usize::from(edge.config.limits.receive_maximum) + edge.conns[id as usize].carried
            && !core.is_unreleased(link, tag)
        {
            let reason = ReasonCode::RECEIVE_MAXIMUM_EXCEEDED;
            return Err(DecodeError { reason, cause: "more unreleased QoS 2 messages than the receive maximum" });
        }
        // The topic may live in the alias table while the edge is borrowed by the core: it is lent out and put back.
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
        let Broker { core, edge } = self;
        let (link, tag) = (Link(id), publish.packet_id.map_or(0, PacketId::get));
        let mut attributes = core::mem::take(&mut edge.attributes);
        let event = EventRef {
            topic,
            attributes: whimbrel_event::Attributes::EMPTY,
            payload: publish.payload,
            headers: Headers::EMPTY,
            qos: publish.qos,
            reliability: reliability(publish.qos),
            importance: IMPORTANCE_DEFAULT,
            expires: None,
            deadline_ms: None,
            publisher: Publisher::UNKNOWN,
        };
        let event = if edge.conns[id as usize].version == Version::V4 || publish.properties == PublishProperties::EMPTY
        {
            Ok((event, None))
        } else {
            edge.with_properties(now, event, &publish.properties, &mut attributes)
        };
        let event = event.and_then(|read| allowed(topic).map(|()| read));
        match event {
            Ok((event, number)) => {
                let input = CorePublish { link, tag, retain: publish.retain, number, event };
                core.handle(now, CoreInput::Publish(input), &mut Outbound { edge, driver: out, now });
            }
            Err((reason, cause)) => self.refuse_publish(now, id, publish, reason, cause, out),
        }
        attributes.clear();
        self.edge.attributes = attributes;
    }

    /// Answers a publish that is not accepted: MQTT 5 has a code for it; otherwise it is acknowledged and dropped. The answer has its place
    /// among those that wait to be durable, and then goes without words.
    pub(super) fn refuse_publish(
        &mut self,
        now: Time,
        id: u32,
        publish: &Publish<'_>,
        reason: ReasonCode,
        cause: &str,
        out: &mut impl Output,
    ) {
        let link = Link(id);
        match publish.packet_id {
            None => self.edge.stats.publishes_refused.add(reason),
            Some(tag) if self.core.stands_in_line(link) => {
                let input = CoreInput::RefusedAtEdge { link, tag: tag.get(), qos: publish.qos, code: reason.0 };
                self.core_input(now, input, out);
            }
            Some(tag) => self.edge.answer_publish(id, tag.get(), publish.qos, reason, cause, out),
        }
    }

    fn connect(&mut self, now: Time, id: u32, connect: &Connect<'_>, out: &mut impl Output) -> Result<(), DecodeError> {
        let limits = &self.edge.config.limits;
        let keep_alive = match limits.keep_alive_max {
            0 => connect.keep_alive,
            max if connect.version == Version::V5 && (connect.keep_alive == 0 || connect.keep_alive > max) => max,
            _ => connect.keep_alive,
        };
        let alias_maximum = limits.topic_alias_out_maximum;
        let expiry = match (connect.version, connect.properties.session_expiry) {
            (Version::V5, Some(NEVER)) => Duration::MAX,
            (Version::V5, seconds) => Duration::from_secs(seconds.unwrap_or(0).into()),
            (Version::V4, _) if connect.clean_start => Duration::ZERO,
            (Version::V4, _) => Duration::MAX,
        };
        let properties = &connect.properties;
        let conn = &mut self.edge.conns[id as usize];
        conn.asked = true;
        conn.problem_information = properties.request_problem_information != Some(false);
        conn.max_packet = properties.maximum_packet_size.unwrap_or(u32::MAX);
        conn.topic_alias_maximum = properties.topic_alias_maximum.unwrap_or(0).min(alias_maximum);
        conn.expiry_zero = expiry.is_zero();
        conn.patience = Duration::from_millis(1500 * u64::from(keep_alive));
        if let Some((reason, cause)) = self.refusal(connect) {
            return Err(DecodeError { reason, cause });
        }
        let will = match &connect.will {
            Some(will) => {
                Some(Box::new(self.edge.will(now, will).map_err(|(reason, cause)| DecodeError { reason, cause })?))
            }
            None => None,
        };
        let assigned = connect.client_id.is_empty().then(|| self.edge.assign_id());
        let client_id = assigned.as_deref().unwrap_or(connect.client_id);
        self.edge.greeting = super::Greeting {
            keep_alive: (keep_alive != connect.keep_alive).then_some(keep_alive),
            // The core's bound on the expiry is told where it is smaller than what was asked for.
            expiry: (expiry > self.edge.config.core.session_expiry_max)
                .then(|| u32::try_from(self.edge.config.core.session_expiry_max.as_secs()).unwrap_or(NEVER)),
            response_information: (properties.request_response_information == Some(true))
                .then(|| self.edge.response_prefix(client_id)),
            assigned: assigned.clone(),
        };
        let version = connect.version;
        let welcome = Packet::ConnAck(self.edge.welcome(&self.edge.greeting, false)).encoded_len(version);
        if welcome.map_or(true, |bytes| bytes > self.edge.conns[id as usize].max_packet as usize) {
            let reason = ReasonCode::PACKET_TOO_LARGE;
            return Err(DecodeError { reason, cause: "the maximum packet size is too small for CONNACK" });
        }
        let attach = Attach {
            link: Link(id),
            client_id,
            clean_start: connect.clean_start,
            expiry,
            window: properties.receive_maximum.map_or(u16::MAX, core::num::NonZeroU16::get),
            will,
            without_copy: self.edge.resumes_without_copy(connect),
        };
        self.core_input(now, CoreInput::Attach(attach), out);
        if self.edge.conns[id as usize].state == State::ExpectConnect {
            // Its session may be somewhere else.
            self.edge.await_session(now, id);
            return Ok(());
        }
        // The quota begins anew with each connection; what earlier ones left unreleased does not count against it.
        self.edge.conns[id as usize].carried = self.core.unreleased(Link(id));
        Ok(())
    }

    /// Why a well-formed CONNECT is not accepted.
    fn refusal(&self, connect: &Connect<'_>) -> Option<Refused> {
        if self.edge.draining {
            return Some((ReasonCode::SERVER_UNAVAILABLE, "the broker is shutting down"));
        }
        if connect.properties.authentication_method.is_some() {
            return Some((ReasonCode::BAD_AUTHENTICATION_METHOD, "enhanced authentication is not available"));
        }
        if connect.client_id.is_empty() && connect.version == Version::V4 && !connect.clean_start {
            return Some((ReasonCode::CLIENT_IDENTIFIER_NOT_VALID, "an empty client id needs a clean session"));
        }
        None
    }

    fn disconnect(
        &mut self,
        now: Time,
        id: u32,
        disconnect: &Disconnect<'_>,
        out: &mut impl Output,
    ) -> Result<(), DecodeError> {
        let expiry = disconnect.properties.session_expiry;
        if expiry.is_some_and(|seconds| seconds > 0) && self.edge.conns[id as usize].expiry_zero {
            return Err(violation("DISCONNECT sets a session expiry although CONNECT set none"));
        }
        let expiry = expiry.map(|seconds| match seconds {
            NEVER => Duration::MAX,
            seconds => Duration::from_secs(seconds.into()),
        });
        let publish_will = disconnect.reason != ReasonCode::SUCCESS;
        self.edge.close(id, out);
        self.detach(now, id, publish_will, expiry, out);
        self.edge.forget(id);
        Ok(())
    }
}

impl Edge {
    /// Notes in which version a CONNECT must be answered, before it is known to be well-formed. MQTT 3.1.1 has answers only to
    /// well-formed ones and to unknown versions.
    fn note_version(&mut self, id: u32, body: &[u8]) {
        let conn = &mut self.conns[id as usize];
        if let Some(version) = answer_version(body) {
            conn.version = version;
            conn.asked = version == Version::V5 || !matches!(body, [0, 4, b'M', b'Q', b'T', b'T', 4, ..]);
        }
    }

    /// The topic that `alias` stands for, after `topic` (if not empty) has been put there; lent from the table.
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

    /// Adds to an event what its PUBLISH says in properties.
    fn with_properties<'a>(
        &mut self,
        now: Time,
        event: EventRef<'a>,
        properties: &PublishProperties<'a>,
        attributes: &'a mut whimbrel_event::AttributesBuf,
    ) -> Result<(EventRef<'a>, Option<u64>), Refused> {
        let mut number = None;
        let mut event = EventRef {
            headers: Headers {
                text_payload: properties.text_payload,
                content_type: properties.content_type,
                response_topic: properties.response_topic,
                correlation: properties.correlation_data,
                ..Headers::EMPTY
            },
            expires: properties.message_expiry.map(|seconds| now.after(Duration::from_secs(seconds.into()))),
            ..event
        };
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
        Ok((event, number))
    }

    /// A CONNECT's will as the core keeps it.
    fn will(&mut self, now: Time, will: &Will<'_>) -> Result<whimbrel_core::Will, Refused> {
        let invalid = (ReasonCode::TOPIC_NAME_INVALID, "the will's topic is no topic name");
        TopicName::new(will.topic).map_err(|_| invalid)?;
        allowed(will.topic)?;
        let properties = PublishProperties {
            text_payload: will.properties.text_payload,
            content_type: will.properties.content_type,
            response_topic: will.properties.response_topic,
            correlation_data: will.properties.correlation_data,
            user: will.properties.user,
            ..PublishProperties::default()
        };
        let event = EventRef {
            topic: will.topic,
            attributes: whimbrel_event::Attributes::EMPTY,
            payload: will.payload,
            headers: Headers::EMPTY,
            qos: will.qos,
            reliability: reliability(will.qos),
            importance: IMPORTANCE_DEFAULT,
            expires: None,
            deadline_ms: None,
            publisher: Publisher::UNKNOWN,
        };
        let mut attributes = whimbrel_event::AttributesBuf::new();
        let (event, _) = self.with_properties(now, event, &properties, &mut attributes)?;
        let unnamed = EventId { pubend: PubendId(0), tick: Tick(0) };
        Ok(whimbrel_core::Will {
            event: Event::keep(unnamed, now, &event),
            retain: will.retain,
            delay: Duration::from_secs(will.properties.delay.unwrap_or(0).into()),
            lifetime: will.properties.message_expiry.map(|seconds| Duration::from_secs(seconds.into())),
        })
    }

    /// Whether a client wants to go on without what brokers keep of its session, if that cannot be reached.
    fn resumes_without_copy(&mut self, connect: &Connect<'_>) -> bool {
        let mut resumes = false;
        for (name, value) in connect.properties.user.iter() {
            match (name, value) {
                ("w-session", "client") => resumes = true,
                (name, _) if name.starts_with("w-") => self.stats.reserved_properties_unknown += 1,
                _ => {}
            }
        }
        resumes
    }

    /// A connection waits for its session. It is read on, so that its end is noticed: nobody is to get a session who has gone.
    fn await_session(&mut self, now: Time, id: u32) {
        let greeting = core::mem::take(&mut self.greeting);
        let conn = &mut self.conns[id as usize];
        conn.state = State::Awaiting;
        conn.rare().greeting = Some(Box::new(greeting));
        self.watch(id, now.after(AWAIT_MAX));
    }

    /// A client id for a client that brought none.
    fn assign_id(&mut self) -> String {
        self.assigned_ids += 1;
        let mixed = self.hasher.hash_one((self.seed, self.assigned_ids));
        format!("auto-{mixed:016x}{:x}", self.assigned_ids)
    }

    /// The topic prefix under which a client may expect replies.
    fn response_prefix(&self, client_id: &str) -> String {
        format!("$replies/{:016x}/", self.hasher.hash_one(client_id))
    }
}

const fn violation(cause: &'static str) -> DecodeError {
    DecodeError { reason: ReasonCode::PROTOCOL_ERROR, cause }
}

fn reliability(qos: Qos) -> Reliability {
    if qos == Qos::AtMostOnce { Reliability::BestEffort } else { Reliability::Reliable }
}

/// Topics that begin with `$` are the broker's, but for those of replies.
fn allowed(topic: &str) -> Result<(), Refused> {
    if topic.starts_with('$') && !topic.starts_with("$replies/") {
        return Err((ReasonCode::NOT_AUTHORIZED, "topics that begin with $ are the broker's own"));
    }
    Ok(())
}

fn importance(value: &str) -> Result<u8, Refused> {
    value
        .parse()
        .ok()
        .filter(|importance| (1..=10).contains(importance))
        .ok_or((ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR, "w-importance is a whole number from 1 to 10"))
}

fn sequence(value: &str) -> Result<u64, Refused> {
    value.parse().map_err(|_| {
        (ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR, "w-seq is a whole number, at most 18446744073709551615")
    })
}

fn deadline(value: &str) -> Result<u32, Refused> {
    value.parse().map_err(|_| {
        (
            ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR,
            "w-deadline-ms is a whole number of milliseconds, at most 4294967295",
        )
    })
}
