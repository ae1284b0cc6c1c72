//! Publishes that are refused: what is told of them, and what becomes of their connections.
//!
//! MQTT 5 has a reason code for a publish at QoS 1 and 2. MQTT 3.1.1 has no acknowledgement that
//! says no, so what its client gets follows from the [`RefusalClass`] of the refusal. A publish at
//! QoS 0 has no acknowledgement in either version: it is dropped.

use whimbrel_core::{Input as CoreInput, Link};
use whimbrel_event::{Qos, Time};

use super::api::Decision;
use super::refusals::RefusalClass;
use super::subscribe::shortened;
use super::{ConnId, Edge, MqttBroker, Output};
use crate::codec::{PacketId, Publish, ReasonCode, Version};

/// What a DISCONNECT says to a client that publishes what it may not, where that ends connections.
const MAY_NOT: &str = "no rule allows what was published, and `denied` is \"disconnect\"";

/// What is written of a connection of MQTT 3.1.1 that ends; its client is not told.
pub(super) const NO_WORD: &str = "a publish was refused, and MQTT 3.1.1 has no acknowledgement that says no";

/// Publishes of a connection that were refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RefusedPublishes {
    /// How many, since the client connected.
    pub count: u64,
    /// The reason code of the last one, as in MQTT 5.
    pub code: u8,
    /// Why the last one was refused.
    pub why: String,
    /// The beginning of its topic; empty where the core has refused it.
    pub topic: String,
}

/// A publish that is refused.
#[derive(Clone, Copy, Debug)]
pub(super) struct RefusedPublish<'a> {
    pub(super) class: RefusalClass,
    pub(super) reason: ReasonCode,
    pub(super) cause: &'a str,
}

impl MqttBroker {
    /// Refuses a publish that the core has not heard of. The answer has its place among those that
    /// wait to be durable, and then goes without words.
    pub(super) fn refuse_publish(
        &mut self,
        now: Time,
        id: u32,
        publish: &Publish<'_>,
        (topic, refused): (&str, RefusedPublish<'_>),
        out: &mut impl Output,
    ) {
        let (link, tag) = (Link(id), publish.packet_id.map_or(0, PacketId::get));
        self.edge.record_refused(id, topic, refused, out);
        // One that ends the connection has its place, too: what was taken before it is
        // acknowledged.
        let ends = refused.class == RefusalClass::Denied && self.edge.guard.disconnects_denied();
        if (tag != 0 || ends) && self.core.is_in_commit_queue(link) {
            let input = CoreInput::RefusedAtEdge { link, tag, qos: publish.qos, code: refused.reason.0 };
            self.core_input(now, input, out);
        } else {
            self.edge.answer_refused(now, id, (tag, publish.qos), refused, out);
        }
    }

    /// The publishes that were refused to a client since it connected, if it is connected and there
    /// are any.
    pub fn refused_publishes(&self, client_id: &str) -> Option<&RefusedPublishes> {
        let Link(id) = self.core.link_of(client_id)?;
        self.edge.conns[id as usize].rare.as_ref()?.refused.as_deref()
    }
}

impl Edge {
    /// Counts a publish that is refused, and tells the driver and whoever asks for the session.
    pub(super) fn record_refused(&mut self, id: u32, topic: &str, refused: RefusedPublish<'_>, out: &mut impl Output) {
        let RefusedPublish { reason, cause, .. } = refused;
        self.stats.publishes_refused.add(reason);
        let conn = &mut self.conns[id as usize];
        let known = conn.rare().refused.get_or_insert_default();
        known.count += 1;
        (known.code, known.why, known.topic) = (reason.0, cause.to_owned(), shortened(topic).to_owned());
        let who = self.conns[id as usize].who.as_ref();
        let (principal, client_id) = who.map_or(("", ""), |who| (who.principal.name(), &*who.client_id));
        let about = shortened(topic);
        out.refused(
            ConnId(id),
            &Decision { action: "publish", principal, client_id, about, code: reason.0, why: cause },
        );
    }

    /// Answers a publish that is refused, under its tag, or does to its connection what its class
    /// says.
    pub(super) fn answer_refused(
        &mut self,
        now: Time,
        id: u32,
        (tag, qos): (u16, Qos),
        refused: RefusedPublish<'_>,
        out: &mut impl Output,
    ) {
        let RefusedPublish { class, reason, cause } = refused;
        if class == RefusalClass::Denied && self.guard.disconnects_denied() {
            return self.end_soon(id, reason, MAY_NOT);
        }
        if qos == Qos::AtMostOnce {
            return;
        }
        let has_word = self.conns[id as usize].version == Version::V5;
        match class {
            RefusalClass::Passing if !has_word => self.end_later(now, id, out),
            RefusalClass::Never if !has_word => self.end_soon(id, reason, NO_WORD),
            RefusalClass::Denied | RefusalClass::Passing | RefusalClass::Never => {
                self.answer_publish(id, (tag, qos), reason, cause, out);
            }
        }
    }
}
