//! Refused publishes: how they are reported, and what happens to their connections.
//!
//! MQTT 5 has a reason code for a publish at QoS 1 and 2. MQTT 3.1.1 has no acknowledgement that
//! refuses, so the [`RefusalClass`] decides what its client gets. A publish at QoS 0 has no
//! acknowledgement in either version: it is dropped.

use whimbrel_core::{Input as CoreInput, Link};
use whimbrel_event::{Qos, Time};

use super::api::Decision;
use super::refusals::RefusalClass;
use super::subscribe::shortened;
use super::{ConnId, Edge, MqttBroker, Output};
use crate::codec::{PacketId, Publish, ReasonCode, Version};

/// The text of a DISCONNECT for a publish that is not allowed, if that ends connections.
const MAY_NOT: &str = "no rule allows what was published, and `denied` is \"disconnect\"";

/// The recorded cause for the end of a connection of MQTT 3.1.1; its client is not told.
pub(super) const NO_WORD: &str = "a publish was refused, and MQTT 3.1.1 has no acknowledgement that says no";

/// The refused publishes of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RefusedPublishes {
    /// Their number since the client connected.
    pub count: u64,
    /// The reason code of the last one, as in MQTT 5.
    pub code: u8,
    /// The cause of the last one.
    pub why: String,
    /// The beginning of the last one's topic; empty if the core has refused it.
    pub topic: String,
}

/// A refusal of a publish.
#[derive(Clone, Copy, Debug)]
pub(super) struct RefusedPublish<'a> {
    pub(super) class: RefusalClass,
    pub(super) reason: ReasonCode,
    pub(super) cause: &'a str,
}

impl MqttBroker {
    /// Refuses a publish before it reaches the core. While earlier answers wait to be durable, this
    /// one waits behind them, and is then sent without a text.
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
        // A refusal that ends the connection waits, too: publishes accepted before it are
        // acknowledged.
        let ends = refused.class == RefusalClass::Denied && self.edge.guard.disconnects_denied();
        if (tag != 0 || ends) && self.core.is_in_commit_queue(link) {
            let input = CoreInput::RefusedAtEdge { link, tag, qos: publish.qos, code: refused.reason.0 };
            self.core_input(now, input, out);
        } else {
            self.edge.answer_refused(now, id, (tag, publish.qos), refused, out);
        }
    }

    /// The refused publishes of a client since it connected; `None` if it is not connected, or
    /// there are none.
    pub fn refused_publishes(&self, client_id: &str) -> Option<&RefusedPublishes> {
        let Link(id) = self.core.link_of(client_id)?;
        self.edge.conns[id as usize].rare.as_ref()?.refused.as_deref()
    }
}

impl Edge {
    /// Counts a refused publish, and reports it to the driver and in the session's information.
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

    /// Answers a refused publish, under its tag, or treats its connection as its class demands.
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
