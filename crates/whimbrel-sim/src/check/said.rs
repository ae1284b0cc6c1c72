//! How packets of clients change the account.

use std::time::Duration;

use mqtt_protocol_core::mqtt::Version;
use mqtt_protocol_core::mqtt::packet::{Property, Qos};
use whimbrel_mqtt::ConnId;

use super::Checker;
use super::book::{Grant, Session, Will};
use super::line::{Due, Ending};
use super::topic::shared_filter;
use super::tracked::{Fate, Start};
use crate::choice::Choice;
use crate::speech::{Ack, Hello, Message, Said, Wanted};

/// A SUBSCRIBE.
struct Request {
    tag: u16,
    identifier: u32,
    choice: Option<Choice>,
    terms: Vec<(String, String)>,
    wanted: Vec<Wanted>,
}

/// A breach of the protocol by a client.
type Breach = &'static str;

impl Checker {
    /// A client sends a packet.
    ///
    /// # Errors
    /// The breach, if the packet breaks the protocol.
    pub(super) fn said(&mut self, conn: ConnId, said: Said) -> Result<(), Breach> {
        let known = self.lines[&conn].client_id.clone();
        let Some(id) = known else {
            let Said::Connect(hello) = said else { return Err("the first packet is no CONNECT") };
            self.greeted(conn, hello);
            return Ok(());
        };
        match said {
            Said::Connect(_) => return Err("a second CONNECT"),
            Said::Publish(message) => self.published(conn, &id, message)?,
            Said::Ack { ack: Ack::Pubrel, id: tag, .. } => {
                let known = self.session(&id).unreleased.remove(&tag);
                self.owe_answer(conn, Due::Complete { id: tag, known });
            }
            Said::Ack { ack, id: tag, code } => self.settled(conn, &id, ack, tag, code),
            Said::Subscribe { id: 0, .. } | Said::Unsubscribe { id: 0, .. } => return Err("packet identifier 0"),
            Said::Subscribe { id: tag, identifier, selector, terms, wanted } => {
                let choice = selector.map(|text| Choice::parse(&text).ok_or("a selector of no known form"));
                let choice = choice.transpose()?;
                self.subscribed(conn, &id, &Request { tag, identifier, choice, terms, wanted });
            }
            Said::Unsubscribe { id: tag, filters } => {
                let existed = filters.iter().map(|filter| self.revoke(&id, filter)).collect();
                self.owe_answer(conn, Due::Unsuback { id: tag, existed });
            }
            Said::Ping => self.owe_answer(conn, Due::Pong),
            Said::Disconnect { code, expiry } => {
                if let Some(seconds) = expiry {
                    self.session(&id).expiry = Duration::from_secs(seconds.into());
                }
                self.end_line(conn, Ending::Left, code != 0);
            }
        }
        Ok(())
    }

    pub(super) fn session(&mut self, id: &str) -> &mut Session {
        self.book.sessions.get_mut(id).expect("a connected client has a session")
    }

    fn owe_answer(&mut self, conn: ConnId, due: Due) {
        let now = self.now;
        self.lines.get_mut(&conn).expect("a known connection").due.push((now, due));
    }

    fn greeted(&mut self, conn: ConnId, hello: Hello) {
        let id = hello.client_id.clone();
        self.note_terms(conn, &hello);
        let elsewhere = self.book.sessions.get(&id).and_then(|session| session.conn);
        if let Some(old) = elsewhere {
            self.end_line(old, Ending::TakenOver, true);
        }
        if hello.clean_start && self.book.sessions.contains_key(&id) {
            self.end_session(&id);
        }
        let session_present = self.book.sessions.contains_key(&id);
        let packet_maximum = self.lines[&conn].packet_maximum;
        let session = self.book.sessions.entry(id).or_default();
        (session.conn, session.packet_maximum) = (Some(conn), packet_maximum);
        (session.ends_at, session.will_at, session.overflowed) = (None, None, None);
        session.expiry = expiry_of(&hello);
        session.will = hello.will.map(|will| {
            self.book.wills.insert(will.payload.clone());
            Will { delay: delay_of(&will), message: will }
        });
        self.owe_answer(conn, Due::Connack { session_present });
    }

    fn note_terms(&mut self, conn: ConnId, hello: &Hello) {
        let line = self.lines.get_mut(&conn).expect("a known connection");
        line.client_id = Some(hello.client_id.clone());
        line.keep_alive = Duration::from_secs(hello.keep_alive.into());
        for property in &hello.properties {
            match property {
                Property::ReceiveMaximum(p) => line.receive_maximum = p.val().into(),
                Property::TopicAliasMaximum(p) => line.alias_maximum = p.val(),
                Property::MaximumPacketSize(p) => line.packet_maximum = p.val() as usize,
                _ => {}
            }
        }
    }

    fn published(&mut self, conn: ConnId, id: &str, mut message: Message) -> Result<(), Breach> {
        let most = self.bounds.topic_alias_max;
        let line = self.lines.get_mut(&conn).expect("a known connection");
        if let Some(alias) = message.topic_alias() {
            if alias == 0 || alias > most {
                return Err("a topic alias out of range");
            }
            if message.topic.is_empty() {
                message.topic = line.aliases_in.get(&alias).ok_or("an unknown topic alias")?.clone();
            } else {
                line.aliases_in.insert(alias, message.topic.clone());
            }
        }
        if message.topic.is_empty() || message.topic.contains(['+', '#', '\0']) {
            return Err("a bad topic name");
        }
        let (qos, tag) = (message.qos, message.id);
        if qos == Qos::AtMostOnce && message.dup || qos != Qos::AtMostOnce && tag == 0 {
            return Err("a DUP without QoS, or a QoS without packet identifier");
        }
        match qos {
            Qos::AtMostOnce => {
                self.accept(id, message, false);
            }
            Qos::AtLeastOnce => {
                let matched = self.accept(id, message, false);
                self.owe_answer(conn, Due::Accepted { ack: Ack::Puback, id: tag, matched });
            }
            Qos::ExactlyOnce => {
                // A publish with the same identifier before its release is the same message.
                let matched = !self.session(id).unreleased.insert(tag) || self.accept(id, message, false);
                self.owe_answer(conn, Due::Accepted { ack: Ack::Pubrec, id: tag, matched });
            }
        }
        Ok(())
    }

    /// The client answers a delivery.
    fn settled(&mut self, conn: ConnId, id: &str, ack: Ack, tag: u16, code: u8) {
        let session = self.session(id);
        let known = session.flights.iter().position(|flight| flight.id == tag);
        let fits = |at: usize| match (ack, session.flights[at].qos) {
            (Ack::Puback, qos) => qos == Qos::AtLeastOnce,
            (Ack::Pubcomp, _) => session.flights[at].received,
            (_, qos) => qos == Qos::ExactlyOnce,
        };
        let known = known.filter(|at| fits(*at));
        if ack == Ack::Pubrec && code < 0x80 {
            if let Some(at) = known {
                session.flights[at].received = true;
            }
            self.owe_answer(conn, Due::Release { id: tag, known: known.is_some() });
        } else if let Some(at) = known {
            let flight = session.flights.remove(at);
            self.share_settled(id, &flight);
        }
    }

    fn subscribed(&mut self, conn: ConnId, id: &str, request: &Request) {
        let &Request { identifier, choice, .. } = request;
        let (mut codes, mut start) = (Vec::new(), None);
        for asked in &request.wanted {
            codes.push(asked.qos as u8);
            if shared_filter(&asked.filter).is_some() {
                self.join_group(id, identifier, choice, asked);
                continue;
            }
            let grant = Grant {
                filter: asked.filter.clone(),
                qos: asked.qos,
                no_local: asked.no_local,
                retain_as_published: asked.retain_as_published,
                identifier,
                choice,
                tracked: false,
            };
            start = Start::read(self, &grant, &request.terms, asked.retain_handling).map(Box::new);
            let grant = start.as_ref().map_or(grant, |start| start.terms.grant.clone());
            *codes.last_mut().expect("just pushed") = grant.qos as u8;
            if start.as_ref().is_some_and(|start| start.fate != Fate::Granted) {
                continue;
            }
            let reads = self.is_reading(id, &grant.filter);
            let new = self.grant(id, grant.clone());
            let is_sent = asked.retain_handling == 0 || asked.retain_handling == 1 && new;
            // A reading in progress continues, by the new terms.
            if is_sent || reads {
                let has_place = start.as_ref().is_some_and(|start| start.has_place() || !new);
                self.owe_retained(id, &grant, has_place || !is_sent);
            }
        }
        // The account follows one tracked subscription per SUBSCRIBE, with an identifier of its
        // own.
        self.unsure |= start.is_some() && (request.wanted.len() > 1 || identifier == 0);
        self.owe_answer(conn, Due::Suback { id: request.tag, codes, start });
    }
}

/// How long a session outlives its connection.
fn expiry_of(hello: &Hello) -> Duration {
    if hello.version == Version::V3_1_1 {
        return if hello.clean_start { Duration::ZERO } else { Duration::from_secs(u32::MAX.into()) };
    }
    let asked = hello.properties.iter().find_map(|p| match p {
        Property::SessionExpiryInterval(p) => Some(p.val()),
        _ => None,
    });
    Duration::from_secs(asked.unwrap_or(0).into())
}

fn delay_of(will: &Message) -> Duration {
    let asked = will.properties.iter().find_map(|p| match p {
        Property::WillDelayInterval(p) => Some(p.val()),
        _ => None,
    });
    Duration::from_secs(asked.unwrap_or(0).into())
}
