//! Publishers are answered once, in order, and not before their events are durable.

use mqtt_protocol_core::mqtt::packet::Qos;
use whimbrel_core::store::Disk;
use whimbrel_event::Time;
use whimbrel_mqtt::ConnId;

use super::Ledger;
use crate::check::Rule;
use crate::client::ACKNOWLEDGED;
use crate::speech::{Ack, Heard, Message, Said};

/// An answer that a client waits for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Due {
    /// PUBACK or PUBREC of the event with this mark.
    Accepted { ack: Ack, id: u16, mark: Option<String> },
    /// PUBACK of a token that a client has acknowledged for a subscription.
    Acknowledged { id: u16, identifier: u32, token: String },
    /// PUBCOMP.
    Completed { id: u16 },
}

impl Ledger {
    /// A client sends a packet.
    pub(super) fn said(&mut self, conn: ConnId, said: Said) {
        let line = self.lines.get_mut(&conn).expect("a known connection");
        match said {
            Said::Publish(message) if message.topic == ACKNOWLEDGED => self.acknowledges(conn, &message),
            Said::Connect(hello) => {
                self.greeted(&hello);
                let line = self.lines.get_mut(&conn).expect("a known connection");
                line.client_id = Some(hello.client_id.clone());
                if hello.clean_start {
                    self.unreleased.retain(|(client, _), _| *client != hello.client_id);
                }
                if let Some(will) = &hello.will {
                    self.note(will);
                }
            }
            Said::Publish(message) => self.published(conn, message),
            Said::Ack { ack: Ack::Pubrel, id, .. } => {
                line.due.push((self.now, Due::Completed { id }));
                if let Some(client) = line.client_id.clone() {
                    self.unreleased.remove(&(client, id));
                }
            }
            Said::Ack { ack, id, code } => self.settled(conn, ack, id, code),
            Said::Subscribe { id, .. } => self.asked(conn, id, &said),
            Said::Unsubscribe { id, filters } => self.given_up(conn, id, &filters),
            _ => {}
        }
    }

    fn published(&mut self, conn: ConnId, mut message: Message) {
        self.counts.published += 1;
        let line = self.lines.get_mut(&conn).expect("a known connection");
        if let Some(alias) = message.topic_alias() {
            if message.topic.is_empty() {
                message.topic = line.aliases_in.get(&alias).cloned().unwrap_or_default();
            } else {
                line.aliases_in.insert(alias, message.topic.clone());
            }
        }
        let client = line.client_id.clone().unwrap_or_default();
        let mark = self.note(&message);
        let ack = match message.qos {
            Qos::AtMostOnce => return,
            Qos::AtLeastOnce => Ack::Puback,
            Qos::ExactlyOnce => Ack::Pubrec,
        };
        if let Some(mark) = mark.clone().filter(|_| ack == Ack::Pubrec) {
            self.unreleased.insert((client, message.id), mark);
        }
        let line = self.lines.get_mut(&conn).expect("a known connection");
        line.due.push((self.now, Due::Accepted { ack, id: message.id, mark }));
    }

    /// The broker answers a client's request.
    pub(super) fn answered(&mut self, conn: ConnId, ack: Ack, id: u16, code: u8) {
        let line = self.lines.get_mut(&conn).expect("a known connection");
        let who = line.client_id.clone().unwrap_or_default();
        let fits = |due: &Due| match due {
            Due::Accepted { ack: a, id: i, .. } => (*a, *i) == (ack, id),
            Due::Acknowledged { id: i, .. } => ack == Ack::Puback && *i == id,
            Due::Completed { id: i } => ack == Ack::Pubcomp && *i == id,
        };
        let Some(at) = line.due.iter().position(|(_, due)| fits(due)) else {
            return self.broken(Rule::Answers, format!("{ack:?} of {id} for {who} on {conn:?}, who waits for none"));
        };
        let (since, due) = line.due.remove(at);
        // Answers of one kind are in order, by the standard; all answers to publishes together, by
        // the broker's own promise.
        let before =
            line.due[..at].iter().find(|(_, due)| (ack == Ack::Pubcomp) == matches!(due, Due::Completed { .. }));
        if let Some((since, earlier)) = before {
            let what = format!("{who} on {conn:?} is told {due:?} before {earlier:?}, asked at {since:?}");
            return self.broken(Rule::Answers, what);
        }
        match due {
            Due::Accepted { mark: Some(mark), .. } if code < 0x80 => self.accepted(&who, &mark),
            Due::Accepted { mark: Some(mark), .. } => self.refused((conn, &who), (ack, id, code), since, mark),
            Due::Acknowledged { identifier, token, .. } if code < 0x80 => self.acknowledged(&who, identifier, &token),
            Due::Accepted { .. } | Due::Acknowledged { .. } | Due::Completed { .. } => {}
        }
    }

    fn accepted(&mut self, who: &str, mark: &str) {
        let fact = self.facts.get_mut(mark).expect("what is answered was published");
        fact.accepted.get_or_insert(self.steps);
        let persistent = fact.persistent;
        self.counts.accepted += 1;
        self.counts.durable += u64::from(persistent);
        if persistent && !self.log.durable.contains(mark) {
            self.broken(Rule::Durable, format!("{who} is told that {mark} is accepted, and it is not durable"));
        }
        self.owe(mark);
    }

    fn refused(&mut self, (conn, who): (ConnId, &str), (ack, id, code): (Ack, u16, u8), since: Time, mark: String) {
        self.counts.refused += 1;
        if ack == Ack::Pubrec {
            self.unreleased.remove(&(who.to_owned(), id));
        }
        // Once a number is refused, greater ones on that connection are refused too.
        let is_numbered = self.facts[&mark].once;
        let line = self.lines.get_mut(&conn).expect("a known connection");
        let follows = line.has_refused && is_numbered;
        line.has_refused |= is_numbered;
        let excused = follows || self.machine.disk != Disk::Open || since <= self.machine.refusals_until;
        if code != 0x97 || !excused {
            self.broken(
                Rule::Answers,
                format!("{mark} of {who} is refused with {code:#04x}, disk {:?}", self.machine.disk),
            );
        }
        // A repetition of an accepted event may be refused.
        if !self.log.durable.contains(&mark) {
            self.refused.insert(mark);
        }
    }

    /// The broker sends a packet.
    pub(super) fn heard(&mut self, conn: ConnId, heard: Heard) {
        match heard {
            Heard::Ack { ack: ack @ (Ack::Puback | Ack::Pubrec | Ack::Pubcomp), id, code } => {
                self.answered(conn, ack, id, code);
            }
            Heard::Ack { ack: Ack::Pubrel, id, .. } => self.released(conn, id),
            Heard::Connack { code: 0, session_present, .. } => {
                if let Some(who) = self.lines[&conn].client_id.clone() {
                    self.welcomed(&who, session_present);
                    self.returns(conn, &who, session_present);
                }
            }
            Heard::Suback { id, codes, properties } => self.granted(conn, id, &codes, &properties),
            Heard::Unsuback { id, .. } => self.gave_up(conn, id),
            Heard::Publish(message) => self.delivered(conn, message),
            _ => {}
        }
    }
}
