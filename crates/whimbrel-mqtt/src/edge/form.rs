//! A PUBLISH to a client: the event, and the broker's additions as far as the client's maximum
//! permits.

use core::time::Duration;

use whimbrel_core::{Delivery, NOTICE_TOPIC, Naming};
use whimbrel_event::{AttributesBuf, EventRef, Time};

use super::Edge;
use super::conn::Aliased;
use crate::codec::{PacketId, Publish, PublishProperties, SubscriptionIds, Version, encode_publish};

/// The user property with the event's id. The broker's own properties begin with it, so that a
/// client does not mistake a publisher's property for the broker's: everything before the last
/// `w-id` is the publisher's.
const NAME: &str = "w-id";

/// The user property of an event that may be a repetition.
const MAYBE_REPEAT: &str = "w-maybe-repeat";

/// The user property of an event that is past its deadline: by how many milliseconds.
const LATE: &str = "w-late";

/// The broker's additions in a PUBLISH, as many as its client accepts.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(super) enum Form {
    /// All additions.
    Whole,
    /// No topic alias.
    Unaliased,
    /// A topic alias, but no event id.
    Unnamed,
    /// Neither alias nor id: as published, but with an empty id if its publisher has written one.
    Bare,
}

/// An encoded PUBLISH.
#[derive(Debug, Clone, Copy)]
pub(super) struct Encoded {
    /// Offset of the packet identifier from the first byte of the packet.
    pub(super) tag_at: usize,
    pub(super) form: Form,
    /// The packet introduces a topic alias.
    pub(super) alias_is_new: bool,
}

impl Edge {
    /// Encodes a delivery in the first form that its client accepts; `None` if it accepts none.
    #[inline]
    pub(super) fn encode_within(&mut self, id: u32, delivery: &Delivery<'_>, now: Time) -> Option<Encoded> {
        self.encode_form(id, delivery, Form::Whole, now).or_else(|| self.encode_less(id, delivery, now))
    }

    #[cold]
    fn encode_less(&mut self, id: u32, delivery: &Delivery<'_>, now: Time) -> Option<Encoded> {
        [Form::Unaliased, Form::Unnamed, Form::Bare]
            .into_iter()
            .filter_map(|form| {
                if self.has_form(id, delivery, form) { self.encode_form(id, delivery, form, now) } else { None }
            })
            .next()
    }

    /// Encodes a delivery in one form, if its client accepts the size.
    #[inline]
    fn encode_form(&mut self, id: u32, delivery: &Delivery<'_>, form: Form, now: Time) -> Option<Encoded> {
        let start = self.conns[id as usize].pending.len();
        let (tag_at, alias_is_new) = self.encode(id, delivery, form, now);
        let conn = &mut self.conns[id as usize];
        let length = conn.pending.len() - start;
        if let Some(tag_at) = tag_at.filter(|_| length <= conn.max_packet as usize) {
            return Some(Encoded { tag_at, form, alias_is_new });
        }
        conn.pending.truncate(start);
        if alias_is_new {
            conn.rare().aliases_out.forget_last(&self.hasher);
        }
        None
    }

    /// Whether a delivery has that form, and the form differs from those before it.
    fn has_form(&self, id: u32, delivery: &Delivery<'_>, form: Form) -> bool {
        let conn = &self.conns[id as usize];
        match form {
            Form::Whole => true,
            Form::Unaliased => conn.topic_alias_maximum > 0,
            Form::Unnamed => conn.topic_alias_maximum > 0 && delivery.naming == Naming::Event,
            Form::Bare => conn.version == Version::V5 && (delivery.naming == Naming::Event || is_notice(delivery)),
        }
    }

    /// Encodes a delivery in one form; returns the offset of its packet identifier, and whether it
    /// introduces a topic alias.
    fn encode(&mut self, id: u32, delivery: &Delivery<'_>, form: Form, now: Time) -> (Option<usize>, bool) {
        let mut alias_is_new = false;
        let conn = &mut self.conns[id as usize];
        let event = &delivery.accepted.event;
        let identifiers = [delivery.identifier];
        let mut publish = Publish {
            dup: delivery.repeated,
            qos: delivery.qos,
            retain: delivery.retain,
            topic: event.topic,
            packet_id: PacketId::new(delivery.tag),
            properties: PublishProperties::EMPTY,
            payload: event.payload,
        };
        if conn.version == Version::V5 {
            let properties = &mut publish.properties;
            properties.text_payload = event.headers.text_payload;
            properties.message_expiry = remaining(event, now);
            properties.response_topic = event.headers.response_topic;
            properties.correlation_data = event.headers.correlation;
            properties.content_type = event.headers.content_type;
            properties.user = event.attributes.into();
            if delivery.identifier != 0 {
                properties.subscription_ids = SubscriptionIds::list(&identifiers);
            }
            if form == Form::Bare && is_notice(delivery) {
                (properties.text_payload, properties.content_type) = (None, None);
            }
        }
        if conn.topic_alias_maximum > 0 && matches!(form, Form::Whole | Form::Unnamed) {
            let aliases = &mut conn.rare.get_or_insert_default().aliases_out;
            let alias = aliases.find(event.topic, conn.topic_alias_maximum, &self.hasher);
            match alias {
                Aliased::No => {}
                Aliased::Known(alias) => {
                    publish.topic = "";
                    publish.properties.topic_alias = PacketId::new(alias);
                }
                Aliased::New(alias) => {
                    aliases.add(event.topic, &self.hasher);
                    publish.properties.topic_alias = PacketId::new(alias);
                    alias_is_new = true;
                }
            }
        }
        self.appended.clear();
        if conn.version == Version::V5 {
            append(delivery, form, now, &mut self.appended);
        }
        // A field that arrived in one packet is not too long for another; the packet's size is
        // checked by the caller.
        let layout = encode_publish(conn.version, &publish, self.appended.as_attributes(), &mut conn.pending).ok();
        (layout.map(|layout| layout.packet_id.unwrap_or(0)), alias_is_new)
    }
}

/// Appends the broker's properties to a delivery.
fn append(delivery: &Delivery<'_>, form: Form, now: Time, appended: &mut AttributesBuf) {
    match delivery.naming {
        Naming::None => {}
        Naming::Event if matches!(form, Form::Whole | Form::Unaliased) => {
            appended.push(NAME, delivery.accepted.id.text().as_str());
            if delivery.accepted.event.headers.maybe_repeat {
                appended.push(MAYBE_REPEAT, "1");
            }
            if let Some(late) = delivery.accepted.late_by(now) {
                appended.push(LATE, &millis(late).to_string());
            }
        }
        // An empty id: the event has none, and the properties before it are the publisher's.
        Naming::Event | Naming::Withheld if says_name(delivery) => appended.push(NAME, ""),
        Naming::Event | Naming::Withheld => {}
    }
}

/// Whether the publisher has given an event a property with the name of the broker's.
fn says_name(delivery: &Delivery<'_>) -> bool {
    delivery.accepted.event.attributes.get(NAME).is_some()
}

/// Whether a delivery is a notice of the broker.
fn is_notice(delivery: &Delivery<'_>) -> bool {
    delivery.naming != Naming::Event && delivery.accepted.event.topic == NOTICE_TOPIC
}

/// Whole milliseconds, rounded up: an event that is late is so by at least one.
fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// Whole seconds until an event expires, rounded up: an event is never reported as expired early.
fn remaining(event: &EventRef<'_>, now: Time) -> Option<u32> {
    let left = event.expires?.since(now);
    let seconds = left.as_secs() + u64::from(left.subsec_nanos() > 0);
    Some(u32::try_from(seconds).unwrap_or(u32::MAX))
}
