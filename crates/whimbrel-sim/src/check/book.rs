//! The state that a broker must remember, as far as the bytes between it and its clients tell.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use mqtt_protocol_core::mqtt::packet::{Property, Qos};
use whimbrel_event::Time;
use whimbrel_mqtt::ConnId;

use super::Checker;
use super::shared::Group;
use super::topic::{matches, shared_filter};
use super::track::{Name, Place, Track};
use crate::choice::Choice;
use crate::speech::Message;

/// The bytes that a PUBLISH may need beside topic and payload: headers, and the few properties that
/// clients here use.
const HEADERS_MAX: usize = 200;

/// An accepted message.
#[derive(Debug)]
pub(super) struct Publication {
    /// Its number among accepted messages, from 1.
    pub(super) no: u64,
    pub(super) message: Message,
    pub(super) accepted: Time,
    pub(super) expires: Option<Time>,
    /// The client id of its publisher.
    pub(super) publisher: String,
    pub(super) is_will: bool,
    /// The broker's name for it, once a client was told it.
    pub(super) id: OnceCell<Name>,
}

impl Publication {
    /// The least bytes that it takes in a PUBLISH, and in a queue.
    pub(super) fn weight(&self) -> usize {
        self.message.topic.len() + self.message.payload.len()
    }

    /// Whether a PUBLISH with it may be larger than `most` bytes.
    pub(super) fn may_exceed(&self, most: usize) -> bool {
        self.weight() + HEADERS_MAX > most
    }

    pub(super) fn is_reliable(&self) -> bool {
        self.message.qos != Qos::AtMostOnce
    }

    pub(super) fn name(&self) -> String {
        let text: String = String::from_utf8_lossy(&self.message.payload).chars().take_while(|c| *c != '.').collect();
        format!("#{} {:?} to {}", self.no, text, self.message.topic)
    }
}

/// One subscription that is not shared.
#[derive(Clone, Debug)]
pub(super) struct Grant {
    pub(super) filter: String,
    pub(super) qos: Qos,
    pub(super) no_local: bool,
    pub(super) retain_as_published: bool,
    pub(super) identifier: u32,
    pub(super) choice: Option<Choice>,
    /// Whether the session's `tracks` say what is owed to it.
    pub(super) tracked: bool,
}

impl Grant {
    /// Whether filter and selector want a message.
    pub(super) fn wants(&self, message: &Message) -> bool {
        matches(&self.filter, &message.topic) && self.choice.is_none_or(|choice| choice.wants(message))
    }
}

/// A delivery that was not seen yet.
#[derive(Clone, Debug)]
pub(super) struct Owed {
    pub(super) publication: Rc<Publication>,
    pub(super) identifier: u32,
    pub(super) qos: Qos,
    pub(super) retain: bool,
    /// Whether it is a retained message for a new subscription.
    pub(super) replay: bool,
    /// The call of the broker in which it became owed.
    pub(super) call: u64,
    /// Whether its absence is excused: by a bound, or by an order of events that is not visible
    /// from outside.
    pub(super) optional: bool,
}

/// A delivery of QoS 1 or 2 that the client has not settled.
#[derive(Clone, Debug)]
pub(super) struct Flight {
    pub(super) id: u16,
    pub(super) publication: Rc<Publication>,
    pub(super) qos: Qos,
    pub(super) identifier: u32,
    pub(super) retain: bool,
    /// Whether the client has sent PUBREC.
    pub(super) received: bool,
    /// The connection on which it, or its PUBREL, was last sent.
    pub(super) sent_on: Option<ConnId>,
    /// Its number among the session's first deliveries.
    pub(super) sequence: u64,
    /// The shared subscription that it belongs to.
    pub(super) group: Option<String>,
    /// The event's name, if the client was told it.
    pub(super) name: Option<Name>,
    /// Whether it belongs to a tracked subscription that has not ended.
    pub(super) tracked: bool,
    /// Whether it belongs to an ended subscription whose client kept the position: it is not sent
    /// again.
    pub(super) let_go: bool,
}

impl Flight {
    /// Whether another member of its shared subscription may get it once its client's connection
    /// has ended.
    pub(super) fn may_move(&self) -> bool {
        self.group.is_some() && self.qos == Qos::AtLeastOnce
    }
}

/// A will that is not published yet.
#[derive(Clone, Debug)]
pub(super) struct Will {
    pub(super) message: Message,
    pub(super) delay: Duration,
}

/// The state of a client's session.
#[derive(Default, Debug)]
pub(super) struct Session {
    pub(super) conn: Option<ConnId>,
    /// Its client's Maximum Packet Size.
    pub(super) packet_maximum: usize,
    pub(super) expiry: Duration,
    pub(super) ends_at: Option<Time>,
    pub(super) will: Option<Will>,
    pub(super) will_at: Option<Time>,
    pub(super) grants: Vec<Grant>,
    /// Tracked subscriptions that it has or had, by identifier.
    pub(super) tracks: BTreeMap<u32, Track>,
    /// Shared subscriptions that it has or had, by identifier.
    pub(super) shares: BTreeMap<u32, (String, Qos, bool)>,
    /// The client's QoS 2 publishes that it has not released.
    pub(super) unreleased: BTreeSet<u16>,
    pub(super) flights: Vec<Flight>,
    pub(super) owed: Vec<Owed>,
    /// The last publication delivered in each ordered sequence.
    pub(super) order: BTreeMap<(String, bool, bool, u32), u64>,
    /// Deliveries made: publication and subscription identifier.
    pub(super) delivered: BTreeSet<(u64, u32)>,
    /// When a queue of this session may last have overflowed.
    pub(super) overflowed: Option<Time>,
    /// Since when something that is owed could have been sent.
    pub(super) stuck_since: Option<Time>,
}

impl Session {
    /// The client has gone: deliveries to subscriptions whose position it keeps are not sent again.
    fn let_go(&mut self) {
        let tracks = &self.tracks;
        let is_let_go = |flight: &Flight| {
            let by_token = || tracks.get(&flight.identifier).is_some_and(|track| track.terms.by_token);
            flight.let_go || flight.tracked && by_token()
        };
        self.flights.retain(|flight| !is_let_go(flight) || flight.qos == Qos::ExactlyOnce);
    }
}

/// The state of a session when its connection ended.
#[derive(Debug)]
pub(super) struct Limbo {
    pub(super) session: Session,
    /// Whether bytes waited for the client.
    pub(super) behind: bool,
    /// Whether its window had room for another reliable delivery.
    pub(super) room: bool,
}

/// The whole account.
#[derive(Default, Debug)]
pub(super) struct Book {
    pub(super) sessions: BTreeMap<String, Session>,
    pub(super) groups: BTreeMap<String, Group>,
    /// Shared subscriptions that ended in this call.
    pub(super) ended_groups: BTreeSet<String>,
    pub(super) retained: BTreeMap<String, Rc<Publication>>,
    /// All accepted messages by content, to name what is wrong with a delivery.
    pub(super) history: BTreeMap<(String, Vec<u8>), Vec<Rc<Publication>>>,
    /// All accepted messages.
    pub(super) log: Vec<Rc<Publication>>,
    /// The number of them that the witness was told, or should have been.
    pub(super) witnessed: usize,
    /// The accepted messages that have a name.
    pub(super) names: BTreeMap<Name, Rc<Publication>>,
    /// The last tick of each stream.
    pub(super) last: BTreeMap<u64, u64>,
    /// The stream of a client's events of a kind (reliable or not).
    pub(super) streams: BTreeMap<(String, bool), u64>,
    /// The positions of subscriptions when they were given these tokens.
    pub(super) tokens: BTreeMap<String, Place>,
    /// Payloads of all wills that clients have left with the broker.
    pub(super) wills: BTreeSet<Vec<u8>>,
    pub(super) published: u64,
    pub(super) delivered: u64,
}

impl Book {
    /// The next time at which a will or the end of a session is due, and its client id.
    fn next_due(&self) -> Option<(Time, String)> {
        let due = |(id, session): (&String, &Session)| {
            let at = [session.will_at, session.ends_at].into_iter().flatten().min()?;
            Some((at, id.clone()))
        };
        self.sessions.iter().filter_map(due).min()
    }
}

impl Checker {
    /// Does what is due by time alone.
    pub(super) fn pass_time(&mut self) {
        while let Some((at, id)) = self.book.next_due().filter(|(at, _)| *at <= self.now) {
            let session = self.book.sessions.get_mut(&id).expect("just seen");
            if session.will_at.is_some_and(|due| due <= at) {
                self.publish_will(&id);
            } else {
                self.end_session(&id);
            }
        }
    }

    /// Accepts a message and records to which subscriptions it is owed; returns whether one
    /// matched.
    pub(super) fn accept(&mut self, publisher: &str, message: Message, is_will: bool) -> bool {
        self.book.published += 1;
        let expires = message.expiry().map(|seconds| self.now + Duration::from_secs(seconds.into()));
        let publication = Rc::new(Publication {
            no: self.book.published,
            accepted: self.now,
            expires,
            publisher: publisher.to_owned(),
            is_will,
            message,
            id: OnceCell::new(),
        });
        self.book.log.push(publication.clone());
        let content = (publication.message.topic.clone(), publication.message.payload.clone());
        self.book.history.entry(content).or_default().push(publication.clone());
        if publication.message.retain {
            if publication.message.payload.is_empty() {
                self.book.retained.remove(&publication.message.topic);
            } else {
                self.book.retained.insert(publication.message.topic.clone(), publication.clone());
            }
        }
        let mut matched = false;
        for (id, session) in &mut self.book.sessions {
            let topic = &publication.message.topic;
            // A reading before this topic delivers this message, unless live; not the former.
            let is_retained = publication.message.retain;
            if is_retained {
                session.supersede(topic);
            }
            for grant in &session.grants {
                let own = grant.no_local && id == publisher;
                if own || !grant.wants(&publication.message) {
                    continue;
                }
                matched = true;
                if grant.tracked {
                    continue;
                }
                let qos = publication.message.qos.min(grant.qos);
                let is_away = session.conn.is_none();
                let is_missed = is_away && (qos == Qos::AtMostOnce || session.expiry.is_zero());
                if is_missed && (!is_retained || publication.message.payload.is_empty()) {
                    continue;
                }
                let live = Owed {
                    publication: publication.clone(),
                    identifier: grant.identifier,
                    qos,
                    retain: is_missed || is_retained && grant.retain_as_published,
                    replay: is_missed,
                    call: self.call,
                    optional: is_missed || publication.may_exceed(session.packet_maximum),
                };
                // A live delivery that is dropped, as its client is too slow, may be read instead.
                let reads = |owed: &Owed| owed.replay && matches(&grant.filter, &owed.publication.message.topic);
                let may_be_read = is_retained && qos == Qos::AtMostOnce && session.owed.iter().any(reads);
                let read = || Owed { retain: true, replay: true, optional: true, ..live.clone() };
                session.owed.extend((may_be_read && !is_missed).then(read));
                session.owed.push(live);
            }
            let attached = session.conn.is_some();
            for track in session.tracks.values_mut().filter(|track| attached || track.terms.keeps) {
                track.owe(&publication, id);
            }
        }
        matched |= self.accept_shared(&publication);
        self.excuse_overflow();
        matched
    }

    /// A subscription is made: retained messages are owed to it. `may_come_anyway`: they may also
    /// be delivered with the events that the subscription missed.
    pub(super) fn owe_retained(&mut self, id: &str, grant: &Grant, may_come_anyway: bool) {
        let (now, packet_maximum) = (self.now, self.session(id).packet_maximum);
        let live = |p: &&Rc<Publication>| p.expires.is_none_or(|at| at > now);
        let wanted = self.book.retained.values().filter(live).filter(|p| grant.wants(&p.message));
        let owed = wanted.map(|publication| Owed {
            publication: publication.clone(),
            identifier: grant.identifier,
            qos: publication.message.qos.min(grant.qos),
            retain: true,
            replay: true,
            call: self.call,
            // The standard does not settle whether No Local keeps a client's own retained messages
            // away.
            optional: grant.no_local && publication.publisher == id
                || publication.may_exceed(packet_maximum)
                || may_come_anyway,
        });
        let owed: Vec<Owed> = owed.collect();
        self.book.sessions.get_mut(id).expect("a subscriber has a session").owed.extend(owed);
        self.excuse_overflow();
    }

    pub(super) fn publish_will(&mut self, id: &str) {
        let session = self.book.sessions.get_mut(id).expect("whose will it is");
        session.will_at = None;
        if let Some(will) = session.will.take() {
            self.accept(id, will.message, true);
        }
    }

    /// A session's connection has ended.
    pub(super) fn detach(&mut self, id: &str, publish_will: bool) {
        let session = self.book.sessions.get_mut(id).expect("an attached session");
        let conn = session.conn.take().expect("an attached session");
        let line = &self.lines[&conn];
        let sent = session.flights.iter().filter(|flight| flight.sent_on.is_some()).count();
        let room = sent < line.receive_maximum.min(self.bounds.inflight_max);
        let limbo = Limbo { session: Session::default(), behind: line.behind, room };
        session.stuck_since = None;
        session.tracks.values_mut().for_each(Track::leave);
        session.let_go();
        for flight in &mut session.flights {
            flight.sent_on = None;
        }
        if !publish_will {
            session.will = None;
        }
        self.free_shares(id);
        let session = self.session(id);
        if session.expiry.is_zero() {
            self.publish_will(id);
            let session = self.remove_session(id).expect("it had a connection");
            self.limbo.insert(conn, Limbo { session, ..limbo });
            return;
        }
        // Best-effort messages do not wait for the next connection. Retained messages are read on
        // then, but those already sent may be lost.
        let best_effort = |owed: &Owed| owed.qos == Qos::AtMostOnce;
        let replayed = session.owed.iter().filter(|owed| best_effort(owed) && owed.replay).cloned();
        let replayed: Vec<Owed> = replayed.map(|owed| Owed { optional: true, ..owed }).collect();
        let (passing, waiting) = session.owed.drain(..).partition(best_effort);
        session.owed = waiting;
        session.owed.extend(replayed);
        let session = Session { owed: passing, ..Session::default() };
        self.limbo.insert(conn, Limbo { session, ..limbo });
        let now = self.now;
        let session = self.session(id);
        let ends_at = now + session.expiry;
        session.ends_at = Some(ends_at);
        match session.will.as_ref().map(|will| will.delay) {
            None => {}
            Some(Duration::ZERO) => self.publish_will(id),
            Some(delay) => session.will_at = Some((now + delay).min(ends_at)),
        }
    }

    /// A session without connection ends: its will is due.
    pub(super) fn end_session(&mut self, id: &str) {
        self.publish_will(id);
        self.remove_session(id);
    }

    fn remove_session(&mut self, id: &str) -> Option<Session> {
        let session = self.book.sessions.remove(id);
        self.leave_groups(id);
        session
    }

    /// Makes a subscription; true if there was no such subscription.
    pub(super) fn grant(&mut self, id: &str, grant: Grant) -> bool {
        let session = self.book.sessions.get_mut(id).expect("a subscriber has a session");
        if !grant.tracked {
            session.tracks.retain(|_, track| track.terms.grant.filter != grant.filter);
        }
        if let Some(known) = session.grants.iter_mut().find(|known| known.filter == grant.filter) {
            // Retained messages that it has still to read are delivered by the new terms, if at
            // all.
            let of_it = |owed: &&mut Owed| owed.replay && matches(&grant.filter, &owed.publication.message.topic);
            session.owed.iter_mut().filter(of_it).for_each(|owed| owed.optional = true);
            *known = grant;
            return false;
        }
        session.grants.push(grant);
        true
    }

    /// Whether a subscription may still read retained messages.
    pub(super) fn is_reading(&self, id: &str, filter: &str) -> bool {
        let is_of_it = |owed: &Owed| owed.replay && matches(filter, &owed.publication.message.topic);
        self.book.sessions.get(id).is_some_and(|session| session.owed.iter().any(is_of_it))
    }

    /// Ends a subscription; false if there was none.
    pub(super) fn revoke(&mut self, id: &str, text: &str) -> bool {
        if shared_filter(text).is_some() {
            return self.leave_group(id, text);
        }
        let session = self.book.sessions.get_mut(id).expect("a subscriber has a session");
        let Some(at) = session.grants.iter().position(|grant| grant.filter == text) else { return false };
        let gone = session.grants.remove(at);
        let mut by_token = false;
        for track in session.tracks.values_mut().filter(|track| track.terms.grant.filter == gone.filter) {
            track.ended = true;
            by_token |= track.terms.by_token;
        }
        // Its deliveries in flight are completed; where the client kept the position, only on this
        // connection.
        for flight in session.flights.iter_mut().filter(|flight| flight.identifier == gone.identifier) {
            flight.let_go |= flight.tracked && by_token;
            flight.tracked = false;
        }
        // Deliveries that wait for an ended subscription may be made or not, and its reading ends.
        for owed in &mut session.owed {
            let is_of_it = owed.replay || owed.identifier == gone.identifier;
            owed.optional |= is_of_it && matches(text, &owed.publication.message.topic);
        }
        true
    }
}

/// The properties that travel with a message unaltered.
pub(super) fn forwarded(properties: &[Property]) -> Vec<&Property> {
    let own = |p: &&Property| {
        !matches!(
            p,
            Property::TopicAlias(_)
                | Property::MessageExpiryInterval(_)
                | Property::SubscriptionIdentifier(_)
                | Property::WillDelayInterval(_)
        )
    };
    properties.iter().filter(own).collect()
}
