//! Outputs of the core, encoded as packets.

use core::time::Duration;

use whimbrel_core::{
    Accepted, Channel, Delivery, EventStep, Granted, HangUp, Hop, Kick, Link, LinkOutput, Naming, Output as CoreOutput,
    PeerLink, Refusal, Sent, Unread,
};
use whimbrel_event::{AcceptedEvent, AttributesBuf, HostId, Qos, Time};

use super::conn::State;
use super::form::{Encoded, Form};
use super::guard::Denial;
use super::passing::PassingPacket;
use super::recent::Recent;
use super::refusals::{cause_of, class_of, class_of_code, granted, reason_of};
use super::refuse::RefusedPublish;
use super::review::OWN_TAG;
use super::subscribe::DENIED;
use super::{ConnId, Edge, Output};
use crate::codec::{Ack, AckProperties, Codes, CodesAck, Packet, PacketId, ReasonCode, Version};

/// The core's output: encodes packets into the connections' pending output.
pub(super) struct Outbound<'a, O> {
    pub(super) edge: &'a mut Edge,
    pub(super) driver: &'a mut O,
    pub(super) now: Time,
    /// The packet whose event is being published, if deliveries of it may be its bytes.
    pub(super) passing: Option<PassingPacket<'a>>,
}

/// The place of the last encoded PUBLISH, so that the next receiver of the same event gets a copy.
#[derive(Debug, Default, Clone, Copy)]
struct Template {
    key: Option<PublishKey>,
    conn: u32,
    start: usize,
    length: usize,
    /// Offset of the packet identifier from `start`.
    tag_at: usize,
}

/// The properties that make two PUBLISH packets equal except for their packet identifiers.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(super) struct PublishKey {
    pub(super) serial: u64,
    pub(super) version: Version,
    pub(super) qos: Qos,
    pub(super) retain: bool,
    pub(super) named: bool,
}

/// The user property of a SUBACK with a broker that does not know the subscriptions yet.
const PENDING: &str = "w-pending";

/// The user property of a SUBACK with what was granted, where that is less than was asked for.
const GRANTED: &str = "w-granted";

/// The user property of a SUBACK with the milliseconds that events take at best, where that is
/// longer than their deadline.
const INFEASIBLE: &str = "w-infeasible";

/// Property of a SUBACK: domains whose events a subscription does not get here, as the broker, or
/// the home of its group, is in none of them.
const REFUSED: &str = "w-refused";

/// The user property with the position at which a subscription begins.
const TOKEN: &str = "w-token";

/// Encoded packets that can be copied for other receivers.
#[derive(Debug, Default)]
pub(super) struct Templates {
    /// The last packets of the current step, for deliveries without and with the event's id.
    last: [Template; 2],
    /// Packets of earlier steps.
    recent: Recent,
}

impl Templates {
    /// Ends the step: its output goes to the driver.
    pub(super) fn end_step(&mut self) {
        self.last.iter_mut().for_each(|template| template.key = None);
    }
}

impl<'a, O> Outbound<'a, O> {
    /// For an input other than a PUBLISH without properties.
    pub(super) fn new(edge: &'a mut Edge, driver: &'a mut O, now: Time) -> Self {
        Outbound { edge, driver, now, passing: None }
    }
}

impl<O: Output> Outbound<'_, O> {
    /// Handles a refusal of a publish by the core.
    #[cold]
    fn refuse(&mut self, link: Link, answer: (u16, Qos), refusal: Refusal) {
        let most = self.edge.config.core.logged_event_bytes;
        let cause = match refusal {
            Refusal::TooLargeForLog => {
                format!("{}: at most {most} bytes with its topic and properties", cause_of(refusal))
            }
            _ => cause_of(refusal).to_owned(),
        };
        let refused = RefusedPublish { class: class_of(refusal), reason: reason_of(refusal), cause: &cause };
        self.edge.record_refused(link.0, "", refused, self.driver);
        self.edge.answer_refused(self.now, link.0, answer, refused, self.driver);
    }

    #[inline]
    fn hand_out(&mut self, link: Link, delivery: &Delivery<'_>) -> Sent {
        let id = link.0;
        let conn = &self.edge.conns[id as usize];
        if let Some(who) = conn.who.as_ref().filter(|who| who.is_strict)
            && !who.grants.receives(delivery.accepted.event.topic)
        {
            self.edge.stats.deliveries_denied += 1;
            return Sent::Denied;
        }
        self.edge.pending(id, self.driver);
        let is_old = self.edge.templates.recent.is_old(delivery.serial);
        let conn = &mut *self.edge.conns[id as usize];
        let plain = delivery.serial != 0 && delivery.identifier == 0 && conn.topic_alias_maximum == 0;
        let named = delivery.naming == Naming::Event && conn.version == Version::V5;
        if let Some(passing) = self.passing.as_ref().filter(|_| plain)
            && passing.is(delivery, named, conn.version, conn.max_packet)
        {
            passing.packet.append(delivery.tag, &mut conn.pending);
            self.edge.stats.publishes_passed_through += 1;
            return self.handed_out(id, delivery);
        }
        let Delivery { serial, qos, retain, .. } = *delivery;
        let key = PublishKey { serial, version: conn.version, qos, retain, named };
        // Other subscriptions in catch-up get the same packet in another step.
        let event = &delivery.accepted.event;
        let lasts = plain && is_old && event.expires.is_none() && event.deadline_ms.is_none();
        let is_copied = lasts && self.edge.copy_recent(&key, id, delivery.tag)
            || plain && self.edge.copy_template(&key, id, delivery.tag);
        if !is_copied {
            let start = self.edge.conns[id as usize].pending.len();
            let Some(encoded) = self.edge.encode_within(id, delivery, self.now) else { return Sent::TooLarge };
            let Encoded { tag_at, form, .. } = encoded;
            self.edge.stats.additions_left_out += u64::from(form != Form::Whole);
            if plain && form == Form::Whole {
                let length = self.edge.conns[id as usize].pending.len() - start;
                self.edge.templates.last[usize::from(named)] =
                    Template { key: Some(key), conn: id, start, length, tag_at };
            }
            if lasts && form == Form::Whole {
                let Edge { templates, conns, .. } = &mut *self.edge;
                templates.recent.keep(key, tag_at, &conns[id as usize].pending[start..]);
            }
        }
        self.handed_out(id, delivery)
    }

    /// Counts a delivery that is in the output of its connection.
    #[inline]
    fn handed_out(&mut self, id: u32, delivery: &Delivery<'_>) -> Sent {
        let edge = &mut *self.edge;
        let conn = &mut edge.conns[id as usize];
        edge.stats.publishes_out += 1;
        conn.wire.traffic.publishes_out += 1;
        if edge.timing.is_due() {
            edge.timing.time(self.now, conn.wire.since, delivery);
        }
        if delivery.accepted.event.deadline_ms.is_some() {
            edge.timing.count_deadline(self.now, conn.wire.since, delivery);
        }
        if conn.pending.len() > conn.room {
            conn.full = true;
            return Sent::Full;
        }
        Sent::Open
    }
}

impl<O: Output> LinkOutput for Outbound<'_, O> {
    fn peer_bytes(&mut self, link: PeerLink, channel: Channel, bytes: &[u8]) -> usize {
        self.driver.peer_bytes(link, channel, bytes)
    }

    fn peer_hang_up(&mut self, link: PeerLink, why: HangUp) {
        self.driver.peer_hang_up(link, why);
    }

    fn peer_dial(&mut self, name: &str, address: &str) {
        self.driver.peer_dial(name, address);
    }

    fn wants_steps(&self) -> bool {
        self.driver.wants_steps()
    }

    fn hop(&mut self, event: &AcceptedEvent<'_>, hop: Hop) {
        self.driver.step(self.now, event, EventStep::Hop(hop));
    }
}

impl<O: Output> CoreOutput for Outbound<'_, O> {
    #[inline]
    fn deliver(&mut self, link: Link, delivery: &Delivery<'_>) -> Sent {
        let sent = self.hand_out(link, delivery);
        if self.driver.wants_steps() && matches!(sent, Sent::Open | Sent::Full) {
            self.driver.delivered(self.now, ConnId(link.0), delivery);
        }
        sent
    }

    fn read_out(&mut self, link: Link) -> Unread {
        let unread = self.driver.read_out(ConnId(link.0));
        if unread == Unread::Nothing && self.edge.admitted.conns.contains(&link.0) {
            self.edge.admitted.superseded.push(link.0);
            return Unread::Coming;
        }
        unread
    }

    fn takes(&mut self, link: Link, delivery: &Delivery<'_>) -> bool {
        let id = link.0;
        let conn = &self.edge.conns[id as usize];
        let is_strict = conn.who.as_ref().filter(|who| who.is_strict);
        if is_strict.is_some_and(|who| !who.grants.receives(delivery.accepted.event.topic)) {
            return false;
        }
        if conn.max_packet == u32::MAX {
            return true;
        }
        let start = conn.pending.len();
        let encoded = self.edge.encode_within(id, delivery, self.now);
        let conn = &mut self.edge.conns[id as usize];
        conn.pending.truncate(start);
        if encoded.is_some_and(|encoded| encoded.alias_is_new) {
            conn.rare().aliases_out.forget_last(&self.edge.hasher);
        }
        encoded.is_some()
    }

    fn step(&mut self, event: &AcceptedEvent<'_>, step: EventStep) {
        self.driver.step(self.now, event, step);
    }

    fn copy_used(&mut self, client: &str, age: Duration) {
        self.driver.copy_used(client, age);
    }

    fn asked(&mut self, from: HostId, number: u64, question: &str) {
        self.driver.asked(from, number, question);
    }

    fn answered(&mut self, from: HostId, number: u64, answer: &str) {
        self.driver.answered(from, number, answer);
    }

    fn cork(&mut self, link: Link) {
        self.edge.conns[link.0 as usize].corked = true;
    }

    fn uncork(&mut self, link: Link) {
        self.edge.pending(link.0, self.driver);
        self.edge.conns[link.0 as usize].corked = false;
    }

    fn hold(&mut self, link: Link, span: Duration) {
        self.driver.hold(ConnId(link.0), span);
    }

    fn pause(&mut self, link: Link) {
        self.edge.conns[link.0 as usize].rare().paused = true;
        self.driver.pause(ConnId(link.0));
    }

    fn resume(&mut self, link: Link) {
        let conn = &mut self.edge.conns[link.0 as usize];
        // Packets sent meanwhile were not read: the time of its silence begins now.
        (conn.rare().paused, conn.last_heard) = (false, self.now);
        if !conn.is_paused() {
            self.driver.resume(ConnId(link.0));
        }
    }

    fn accepted(&mut self, link: Link, tag: u16, qos: Qos, result: Accepted) {
        if self.edge.conns[link.0 as usize].deaf {
            // Later publishes are not acknowledged after one was refused without an answer.
            return;
        }
        let reason = match result {
            Accepted::Routed { matched: true } => ReasonCode::SUCCESS,
            // The first phase was answered before; whether the event matched then does not matter
            // now.
            Accepted::Repeat => ReasonCode::SUCCESS,
            Accepted::Routed { matched: false } => ReasonCode::NO_MATCHING_SUBSCRIBERS,
            Accepted::Refused(refusal) => return self.refuse(link, (tag, qos), refusal),
            Accepted::RefusedAtEdge(code) => {
                // The refusal was counted and reported when the publish arrived.
                let reason = ReasonCode(code);
                let refused = RefusedPublish { class: class_of_code(reason), reason, cause: "" };
                return self.edge.answer_refused(self.now, link.0, (tag, qos), refused, self.driver);
            }
        };
        self.edge.answer_publish(link.0, (tag, qos), reason, "", self.driver);
    }

    fn dropped(&mut self, link: Link, why: Refusal) {
        self.refuse(link, (0, Qos::AtMostOnce), why);
    }

    fn completed(&mut self, link: Link, tag: u16, known: bool) {
        let reason = if known { ReasonCode::SUCCESS } else { ReasonCode::PACKET_IDENTIFIER_NOT_FOUND };
        let ack = Ack { packet_id: packet_id(tag), reason, properties: AckProperties::EMPTY };
        self.edge.send(link.0, &Packet::PubComp(ack), self.driver);
    }

    fn release(&mut self, link: Link, tag: u16, known: bool) {
        let reason = if known { ReasonCode::SUCCESS } else { ReasonCode::PACKET_IDENTIFIER_NOT_FOUND };
        if !known {
            self.edge.stats.acknowledgements_unknown += 1;
        }
        let ack = Ack { packet_id: packet_id(tag), reason, properties: AckProperties::EMPTY };
        self.edge.send(link.0, &Packet::PubRel(ack), self.driver);
    }

    fn attached(&mut self, link: Link, present: bool) {
        self.edge.greet(link.0, present, self.driver);
    }

    fn refused(&mut self, link: Link, why: Refusal) {
        let who = self.edge.conns[link.0 as usize].who.as_ref();
        if let Some(who) = who.filter(|_| why == Refusal::ForeignSession) {
            let denial = Denial { reason: reason_of(why), cause: cause_of(why) };
            let decision = denial.decision("connect", who.principal.name(), &who.client_id);
            self.driver.refused(ConnId(link.0), &decision);
        }
        let client_id = self.edge.waiting_client(link.0);
        self.edge.refuse(link.0, &client_id, reason_of(why), cause_of(why), self.driver);
    }

    fn kicked(&mut self, link: Link, why: Kick) {
        let (reason, cause) = match why {
            Kick::TakenOver => (ReasonCode::SESSION_TAKEN_OVER, "the client id connected again"),
            Kick::TooSlow => (ReasonCode::QUOTA_EXCEEDED, "more waits for this client than its queue may hold"),
            Kick::AsksTooMuch => {
                let cause =
                    "more SUBSCRIBE and UNSUBSCRIBE of this client wait to be done than there are packet identifiers";
                (ReasonCode::QUOTA_EXCEEDED, cause)
            }
            Kick::Dropped => (ReasonCode::ADMINISTRATIVE_ACTION, "an operator has ended the session"),
            Kick::LogFailed => {
                (ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR, "the log has failed; repeat what was not acknowledged")
            }
            Kick::OtherAnswer => {
                let cause =
                    "a delivery was answered with another kind of acknowledgement than its QoS and phase ask for";
                (ReasonCode::PROTOCOL_ERROR, cause)
            }
        };
        self.edge.say_goodbye(link.0, reason, cause, self.driver);
        self.edge.conns[link.0 as usize].state = State::Gone;
        self.edge.stats.connections_accepted -= 1;
        self.edge.forget(link.0);
    }

    fn subscribed(&mut self, link: Link, tag: u16, results: &[Result<Granted, Refusal>], pending: &[Box<str>]) {
        debug_assert!(self.edge.conns[link.0 as usize].state == State::Attached);
        let denied = self.edge.take_denied(link.0, tag);
        // The answers in the order of the filters; filters that were refused before the core got
        // the SUBSCRIBE have their places among them.
        let mut answers = results.iter();
        let places = denied.as_ref().map_or(results.len(), |codes| codes.len());
        let answers: Vec<_> = (0..places)
            .map(|place| match denied.as_ref().and_then(|codes| codes[place]) {
                Some(code) => (code, None),
                None => answers.next().map_or((ReasonCode::UNSPECIFIED_ERROR, None), |result| {
                    (granted(result), result.as_ref().ok().and_then(|granted| granted.begins.as_ref()))
                }),
            })
            .collect();
        let reasons: Vec<u8> = answers.iter().map(|(code, _)| code.0).collect();
        let refusal = results.iter().find_map(|result| result.as_ref().err().copied());
        let cause = refusal.map_or(if denied.is_some() { DENIED } else { "" }, cause_of);
        let mut tokens = AttributesBuf::new();
        if answers.iter().any(|(_, begins)| begins.is_some()) {
            for (_, begins) in &answers {
                tokens.push(TOKEN, &begins.map(ToString::to_string).unwrap_or_default());
            }
            if let Some(best) = results.iter().flatten().filter_map(|granted| granted.infeasible).max() {
                tokens.push(INFEASIBLE, &best.as_micros().div_ceil(1_000).to_string());
            }
        }
        if self.edge.wants_diagnostics(link.0) {
            for granted in results.iter().flatten().filter(|granted| granted.is_less) {
                tokens.push(GRANTED, granted.durability.name());
            }
        }
        if self.edge.conns[link.0 as usize].version == Version::V5 {
            pending.iter().for_each(|name| tokens.push(PENDING, name));
            let mut refused: Vec<&str> =
                results.iter().flatten().filter_map(|granted| Some(granted.refused.as_ref()?.as_str())).collect();
            refused.sort_unstable();
            refused.dedup();
            refused.into_iter().for_each(|domains| tokens.push(REFUSED, domains));
        }
        let tokens = tokens.as_attributes().into();
        self.edge.send_suback(link.0, packet_id(tag), &reasons, cause, tokens, self.driver);
        self.edge.recount(link.0);
    }

    fn unsubscribed(&mut self, link: Link, tag: u16, existed: &[bool]) {
        self.edge.recount(link.0);
        if tag == OWN_TAG {
            return;
        }
        let reason = |existed: &bool| if *existed { ReasonCode::SUCCESS } else { ReasonCode::NO_SUBSCRIPTION_EXISTED };
        let reasons: Vec<u8> = existed.iter().map(|existed| reason(existed).0).collect();
        let codes = if self.edge.conns[link.0 as usize].version == Version::V5 { &reasons[..] } else { &[] };
        let answer = CodesAck { packet_id: packet_id(tag), codes: Codes(codes), properties: AckProperties::EMPTY };
        self.edge.send(link.0, &Packet::UnsubAck(answer), self.driver);
    }
}

impl Edge {
    /// Copies the encoded packet of the same event, with another packet identifier; false if
    /// another packet was the last one, or it is too large for this client.
    #[inline]
    fn copy_template(&mut self, wanted: &PublishKey, id: u32, tag: u16) -> bool {
        let Template { key, conn: from, start, length, tag_at } = self.templates.last[usize::from(wanted.named)];
        if key.as_ref() != Some(wanted) {
            return false;
        }
        let at = if from == id {
            let pending = &mut self.conns[id as usize].pending;
            let at = pending.len();
            pending.extend_from_within(start..start + length);
            at
        } else {
            let [source, target] =
                self.conns.get_disjoint_mut([from as usize, id as usize]).expect("two different connections");
            if length > target.max_packet as usize {
                return false;
            }
            let at = target.pending.len();
            target.pending.extend_from_slice(&source.pending[start..start + length]);
            at
        };
        if tag != 0 {
            let pending = &mut self.conns[id as usize].pending;
            pending[at + tag_at..at + tag_at + 2].copy_from_slice(&tag.to_be_bytes());
        }
        true
    }

    /// Copies the encoded packet of a cached event; false if none is kept, or it is too large for
    /// this client.
    fn copy_recent(&mut self, key: &PublishKey, id: u32, tag: u16) -> bool {
        let conn = &mut self.conns[id as usize];
        let start = conn.pending.len();
        let is_copied = self.templates.recent.copy(key, tag, &mut conn.pending);
        let is_within = conn.pending.len() - start <= conn.max_packet as usize;
        if !is_within {
            conn.pending.truncate(start);
        }
        is_copied && is_within
    }

    /// Takes the codes of the filters of a SUBSCRIBE that were refused before the core got it.
    fn take_denied(&mut self, id: u32, tag: u16) -> Option<Box<[Option<ReasonCode>]>> {
        let denied = &mut self.conns[id as usize].rare.as_mut()?.denied;
        let place = denied.iter().position(|(other, _)| *other == tag)?;
        Some(denied.remove(place).1)
    }

    /// The subscriptions of a connection's session have changed: they are to be counted again.
    fn recount(&mut self, id: u32) {
        if self.conns[id as usize].who.is_some() {
            self.guard.counted.push(id);
        }
    }
}

/// Converts a tag of the core to a packet identifier; tags of the core are never 0.
pub(super) fn packet_id(tag: u16) -> PacketId {
    PacketId::new(tag).expect("tags begin at 1")
}
