//! A delivered message was owed to this client, once, in this form, in this order.

use std::cell::OnceCell;
use std::rc::Rc;
use std::time::Duration;

use mqtt_protocol_core::mqtt::Version;
use mqtt_protocol_core::mqtt::packet::{Property, Qos};
use whimbrel_mqtt::ConnId;

use super::book::{Flight, Grant, Owed, Publication, Session, forwarded};
use super::topic::matches;
use super::track::Name;
use super::{Checker, Rule};
use crate::speech::Message;

/// A delivery as it was seen, with the topic that its alias stands for.
pub(super) struct Delivered {
    pub(super) conn: ConnId,
    /// The client id of the receiver.
    pub(super) to: String,
    pub(super) version: Version,
    pub(super) message: Message,
    /// The subscription identifier; 0: none.
    pub(super) identifier: u32,
}

impl Delivered {
    pub(super) fn name(&self) -> String {
        let text: String = String::from_utf8_lossy(&self.message.payload).chars().take_while(|c| *c != '.').collect();
        let Message { topic, qos, retain, dup, id, .. } = &self.message;
        let (to, identifier) = (&self.to, self.identifier);
        format!(
            "{text:?} to {topic} at {to} (QoS {}, retain {retain}, DUP {dup}, id {id}, subscription {identifier})",
            *qos as u8
        )
    }

    /// Whether topic and payload are the same.
    pub(super) fn carries(&self, publication: &Publication) -> bool {
        publication.message.topic == self.message.topic && publication.message.payload == self.message.payload
    }

    fn fits(&self, owed: &Owed) -> bool {
        self.carries(&owed.publication)
            && (owed.qos, owed.retain, owed.identifier) == (self.message.qos, self.message.retain, self.identifier)
    }
}

impl Checker {
    /// The broker delivers a message.
    pub(super) fn delivered(&mut self, conn: ConnId, mut message: Message) {
        self.book.delivered += 1;
        if self.unsure {
            return;
        }
        if self.draining {
            // When all connections end, their order decides which client receives whose will.
            return;
        }
        if let Err(why) = self.resolve_alias(conn, &mut message) {
            self.broken(Rule::TopicAlias, format!("{why} on {conn:?}"));
            return;
        }
        let line = &self.lines[&conn];
        let Some(to) = line.client_id.clone() else { return };
        let identifiers = message.subscription_identifiers();
        let version = line.version.expect("a client that said CONNECT");
        let identifier = identifiers.first().copied().unwrap_or(0);
        let seen = Delivered { conn, to, version, message, identifier };
        if identifiers.len() > 1 {
            let what = format!("{} has identifiers {identifiers:?}: one copy per subscription", seen.name());
            self.broken(Rule::SubscriptionIdentifier, what);
        }
        if seen.message.dup && seen.message.qos == Qos::AtMostOnce {
            self.broken(Rule::DupFlag, format!("{}: QoS 0 is never repeated", seen.name()));
        } else if seen.message.dup {
            self.repeated(&seen);
        } else if Checker::is_notice(&seen) {
            self.noticed(&seen);
        } else if self.is_tracked(&seen) {
            self.tracked_delivery(&seen);
        } else if self.is_share(&seen) {
            self.share_delivered(&seen);
        } else {
            self.first_delivery(&seen);
        }
    }

    fn resolve_alias(&mut self, conn: ConnId, message: &mut Message) -> Result<(), String> {
        let line = self.lines.get_mut(&conn).expect("a known connection");
        match message.topic_alias() {
            None if message.topic.is_empty() => Err("neither topic nor alias".to_owned()),
            None => Ok(()),
            Some(alias) if alias == 0 || alias > line.alias_maximum => Err(format!("alias {alias} out of range")),
            Some(alias) if message.topic.is_empty() => {
                let known = line.aliases_out.get(&alias).ok_or(format!("alias {alias} is unknown"))?;
                message.topic.clone_from(known);
                Ok(())
            }
            Some(alias) => {
                line.aliases_out.insert(alias, message.topic.clone());
                Ok(())
            }
        }
    }

    /// A delivery with DUP: it was sent before, on another connection, and is not settled.
    fn repeated(&mut self, seen: &Delivered) {
        let Some(session) = self.book.sessions.get_mut(&seen.to) else {
            self.broken(Rule::DupFlag, format!("{} is new", seen.name()));
            return;
        };
        let id = seen.message.id;
        let known = session.flights.iter_mut().find(|f| f.id == id && seen.carries(&f.publication));
        let Some(flight) = known else {
            let new = session.owed.iter().any(|owed| seen.carries(&owed.publication));
            let rule = if new { Rule::DupFlag } else { Rule::Duplicate };
            self.broken(rule, format!("{} was not on its way", seen.name()));
            return;
        };
        if flight.sent_on.is_some() {
            let what = format!("{} was already sent on this connection", seen.name());
            self.broken(Rule::Duplicate, what);
        } else if flight.received {
            self.broken(Rule::Duplicate, format!("{} was received: PUBREL is next", seen.name()));
        } else {
            let form = (flight.qos, flight.identifier, flight.retain);
            // The connection may have ended in the same call.
            flight.sent_on = session.conn.filter(|conn| *conn == seen.conn);
            let publication = flight.publication.clone();
            let (group, name) = (flight.group.clone(), flight.name);
            if form != (seen.message.qos, seen.identifier, seen.message.retain) {
                self.broken(Rule::Integrity, format!("{} was {form:?} the first time", seen.name()));
            }
            if let Some(group) = group {
                self.share_repeated(&group, &publication, seen);
            }
            self.check_name_again(seen, name);
            self.resent_in_order(seen.conn, id);
            self.check_properties(seen, &publication, true);
            self.check_window(seen);
        }
    }

    /// A delivery that is not from a shared subscription and was not sent before.
    fn first_delivery(&mut self, seen: &Delivered) {
        let limbo = self.limbo.get_mut(&seen.conn).map(|limbo| &mut limbo.session);
        let limbo = limbo.filter(|session| session.owed.iter().any(|owed| seen.fits(owed)));
        let session = match limbo {
            Some(session) => session,
            None => match self.book.sessions.get_mut(&seen.to) {
                Some(session) => session,
                None => {
                    self.broken(Rule::Invented, format!("{}, which has no session", seen.name()));
                    return;
                }
            },
        };
        // The same content may be owed twice: published again for want of an answer, or retained
        // and asked for again. One that has not expired is meant.
        let live = |owed: &Owed| owed.publication.expires.is_none_or(|at| at >= self.now);
        let fitting = |(at, owed): (usize, &Owed)| seen.fits(owed).then(|| (!live(owed), at));
        let Some((_, at)) = session.owed.iter().enumerate().filter_map(fitting).min() else {
            let (rule, what) = self.diagnose(seen);
            self.broken(rule, format!("{}: {what}", seen.name()));
            return;
        };
        let owed = session.owed.remove(at);
        // Where the earlier one may have been dropped, the later one may be meant.
        if owed.optional
            && let Some(later) = session.owed.iter_mut().find(|other| !other.optional && seen.fits(other))
        {
            later.optional = true;
        }
        // Queues are first in, first out: optional deliveries before this one were dropped by an
        // overflow. Retained messages are read beside the queues.
        let reliable = owed.qos != Qos::AtMostOnce;
        let is_queued = |other: &Owed| !(other.replay || owed.replay);
        let is_older = |other: &Owed| other.call < owed.call && (other.qos != Qos::AtMostOnce) == reliable;
        let gone = |other: &Owed| other.optional && is_queued(other) && is_older(other);
        session.owed.retain(|other| !gone(other));
        session.delivered.insert((owed.publication.no, owed.identifier));
        let late = owed.publication.expires.is_some_and(|at| at < self.now);
        let ordered = owed.replay || {
            let publication = &owed.publication;
            let sequence = (publication.publisher.clone(), publication.is_reliable(), reliable, owed.identifier);
            let last = session.order.entry(sequence).or_default();
            let ordered = publication.is_will || publication.no >= *last;
            *last = publication.no.max(*last);
            ordered
        };
        if !ordered {
            self.broken(Rule::Order, format!("{} comes after a later one", seen.name()));
        }
        if late {
            self.broken(Rule::Expiry, format!("{} has expired", seen.name()));
        }
        self.takes_off(seen, &owed.publication, None);
        self.check_properties(seen, &owed.publication, false);
    }

    /// The publication of a message that no client published, for the hand-over.
    pub(super) fn publication_of(&self, seen: &Delivered) -> Rc<Publication> {
        Rc::new(Publication {
            no: 0,
            message: seen.message.clone(),
            accepted: self.now,
            expires: None,
            publisher: String::new(),
            is_will: false,
            id: OnceCell::new(),
        })
    }

    /// Records a first delivery as unsettled.
    pub(super) fn takes_off(&mut self, seen: &Delivered, publication: &Rc<Publication>, group: Option<String>) {
        if seen.message.qos == Qos::AtMostOnce {
            return;
        }
        let id = seen.message.id;
        let name = seen.message.user_property("w-id").and_then(Name::parse);
        let sequence = self.book.delivered;
        let Some(session) = self.book.sessions.get_mut(&seen.to) else { return };
        let taken = session.flights.iter().any(|flight| flight.id == id);
        let attached = session.conn == Some(seen.conn);
        session.flights.push(Flight {
            id,
            publication: publication.clone(),
            qos: seen.message.qos,
            identifier: seen.identifier,
            retain: seen.message.retain,
            received: false,
            sent_on: attached.then_some(seen.conn),
            sequence,
            group,
            name,
            tracked: name.is_some() || Checker::is_notice(seen),
            let_go: false,
        });
        if taken || id == 0 {
            self.broken(Rule::PacketIdentifier, format!("{}: the identifier is in use", seen.name()));
        }
        self.check_window(seen);
    }

    /// Checks that the deliveries in flight on a connection are no more than its client takes.
    fn check_window(&mut self, seen: &Delivered) {
        let Some(session) = self.book.sessions.get(&seen.to) else { return };
        let count = session.flights.iter().filter(|flight| flight.sent_on == Some(seen.conn)).count();
        let most = self.lines[&seen.conn].receive_maximum.min(self.bounds.inflight_max);
        if count > most {
            self.broken(Rule::ReceiveMaximum, format!("{} is number {count} of {most}", seen.name()));
        }
    }

    /// Checks that properties are unaltered, and that the rest of the message's expiry is told.
    pub(super) fn check_properties(&mut self, seen: &Delivered, publication: &Publication, again: bool) {
        if seen.version != Version::V5_0 {
            return;
        }
        let published = forwarded(&publication.message.properties);
        let delivered = forwarded(&seen.message.properties);
        let own = |p: &&Property| matches!(p, Property::UserProperty(p) if p.key().starts_with("w-"));
        let unaltered = delivered.starts_with(&published) && delivered[published.len()..].iter().all(own);
        if !unaltered {
            let what = format!("{}: {delivered:?}, published with {published:?}", seen.name());
            self.broken(Rule::Integrity, what);
        }
        let waited = self.now.since(publication.accepted);
        let right = match (publication.message.expiry(), seen.message.expiry()) {
            (None, None) => true,
            (Some(given), Some(left)) => {
                let spent = Duration::from_secs(given.saturating_sub(left).into());
                left <= given && (again || spent.abs_diff(waited) <= Duration::from_secs(1))
            }
            _ => false,
        };
        if !right {
            let (given, left) = (publication.message.expiry(), seen.message.expiry());
            let what = format!("{}: {left:?} s left of {given:?} after {waited:?}", seen.name());
            self.broken(Rule::Expiry, what);
        }
    }

    /// The rule that a delivery breaks if it is not owed.
    fn diagnose(&self, seen: &Delivered) -> (Rule, String) {
        let session = &self.book.sessions[&seen.to];
        let owed = session.owed.iter().filter(|owed| seen.carries(&owed.publication));
        if let Some(rule) = owed.map(|owed| differs(seen, owed)).min() {
            return (rule, "owed in another form".to_owned());
        }
        let resent = |f: &&Flight| f.id == seen.message.id && seen.carries(&f.publication) && f.sent_on.is_none();
        if seen.message.qos != Qos::AtMostOnce && session.flights.iter().any(|f| resent(&f)) {
            return (Rule::DupFlag, "it was sent before".to_owned());
        }
        let content = (seen.message.topic.clone(), seen.message.payload.clone());
        let Some(publications) = self.book.history.get(&content) else {
            let will = self.book.wills.contains(&seen.message.payload);
            let rule = if will { Rule::Will } else { Rule::Invented };
            return (rule, "nobody published that yet".to_owned());
        };
        self.diagnose_known(seen, session, publications)
    }

    fn diagnose_known(&self, seen: &Delivered, session: &Session, known: &[Rc<Publication>]) -> (Rule, String) {
        let topic = &seen.message.topic;
        let subscribed = |grant: &&Grant| matches(&grant.filter, topic);
        let selected = |grant: &Grant| known.iter().any(|p| grant.wants(&p.message));
        if session.grants.iter().any(|grant| subscribed(&grant)) && !session.grants.iter().any(selected) {
            return (Rule::Selector, "no selector selects it".to_owned());
        }
        let retained = self.book.retained.get(topic).is_some_and(|p| seen.carries(p));
        if seen.message.retain && !retained {
            return (Rule::Retained, "no longer retained".to_owned());
        }
        if known.iter().any(|p| session.delivered.iter().any(|(no, _)| *no == p.no)) {
            return (Rule::Duplicate, "delivered before".to_owned());
        }
        if known.iter().any(|p| p.is_will) {
            return (Rule::Will, "not owed".to_owned());
        }
        if !session.grants.iter().any(|grant| subscribed(&grant)) {
            return (Rule::Invented, "no subscription matches".to_owned());
        }
        (Rule::Duplicate, "no longer owed".to_owned())
    }
}

/// The rule by which a delivery differs from what is owed.
fn differs(seen: &Delivered, owed: &Owed) -> Rule {
    if owed.identifier != seen.identifier {
        Rule::SubscriptionIdentifier
    } else if owed.qos != seen.message.qos {
        Rule::Qos
    } else {
        Rule::RetainFlag
    }
}
