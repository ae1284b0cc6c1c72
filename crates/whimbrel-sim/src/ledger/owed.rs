//! What durable subscriptions are owed, and how often they may get it.
//!
//! A subscription of a session that outlives its connection is durable from its SUBACK on. Whatever is published after that, matches and is
//! acknowledged to its publisher has to come, whatever crashes; and it comes once, unless the client had not answered it.
//! What cannot be told from outside is not held against the broker: a subscription that is being changed, a session that is being ended.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use mqtt_protocol_core::mqtt::Version;
use mqtt_protocol_core::mqtt::packet::{Property, Qos};
use whimbrel_core::store::{Disk, Persistence};
use whimbrel_event::Time;
use whimbrel_mqtt::ConnId;

use super::Ledger;
use crate::check::Rule;
use crate::check::topic::matches;
use crate::choice::Choice;
use crate::speech::{Ack, Hello, Message, Wanted};

/// Sessions that are kept for a shorter time may have ended unseen, seconds.
const EXPIRY_MIN: u32 = 1_000;

/// What was acknowledged that long before a crash is durably acknowledged.
const ACK_GRACE: Duration = Duration::from_secs(1);

/// What one SUBSCRIBE asks for.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    choice: Option<Choice>,
    wanted: Vec<Wanted>,
    /// Filters that were given up before it was answered.
    ended: Vec<String>,
}

/// A filter and a selector that a session has asked for, at some time.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Wish {
    filter: String,
    is_shared: bool,
    choice: Option<Choice>,
}

/// How far a delivery is, as its client says.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Stage {
    Sent,
    /// The broker has told the client to forget the identifier.
    Released,
    /// Acknowledged, then.
    Acknowledged(Time),
    /// The client did not want it.
    Refused,
}

/// What is known of one session.
#[derive(Debug, Default)]
pub(super) struct Session {
    /// It outlives its connections, and nothing is too large for its client.
    is_kept: bool,
    /// Confirmed subscriptions, and since when.
    confirmed: BTreeMap<String, (u64, Option<Choice>)>,
    wishes: Vec<Wish>,
    /// By filter.
    owed: BTreeMap<String, BTreeSet<String>>,
    got: BTreeSet<String>,
    /// Deliveries by mark: packet identifiers and how far they are.
    deliveries: BTreeMap<String, Vec<(u16, Stage)>>,
    /// The mark that was last sent under an identifier.
    sent: BTreeMap<u16, String>,
}

impl Session {
    fn stage(&mut self, id: u16) -> Option<&mut Stage> {
        let mark = self.sent.get(&id)?;
        let known = self.deliveries.get_mut(mark)?;
        known.iter_mut().rev().find(|(known, _)| *known == id).map(|(_, stage)| stage)
    }
}

/// Whether the session of such a CONNECT outlives its connection for as long as any world, and its client takes everything.
fn keeps(hello: &Hello) -> bool {
    let (mut expiry, mut takes_all) = (0, true);
    for property in &hello.properties {
        match property {
            Property::SessionExpiryInterval(p) => expiry = p.val(),
            Property::MaximumPacketSize(_) => takes_all = false,
            _ => {}
        }
    }
    takes_all && if hello.version == Version::V5_0 { expiry >= EXPIRY_MIN } else { !hello.clean_start }
}

impl Ledger {
    /// A client connects.
    pub(super) fn greeted(&mut self, hello: &Hello) {
        let session = self.sessions.entry(hello.client_id.clone()).or_default();
        if hello.clean_start || !keeps(hello) {
            // It may end now, and it may be that nobody hears of it.
            session.confirmed.clear();
            session.owed.clear();
        }
        session.is_kept = keeps(hello);
    }

    /// It is told whether there was a session.
    pub(super) fn welcomed(&mut self, who: &str, present: bool) {
        let Some(session) = self.sessions.get_mut(who) else { return };
        if present {
            return;
        }
        let lost: Vec<String> = session.owed.values().flatten().cloned().collect();
        let confirmed = !session.confirmed.is_empty();
        // Once the log has failed, it is not durable that a session has expired: it may come back.
        let wishes = if self.disk == Disk::Poisoned { std::mem::take(&mut session.wishes) } else { Vec::new() };
        *session = Session { is_kept: session.is_kept, wishes, ..Session::default() };
        if confirmed {
            self.broken(Rule::SessionPresent, format!("the session of {who} is not there, and was owed {lost:?}"));
        }
    }

    /// Subscriptions are asked for.
    pub(super) fn asked(&mut self, conn: ConnId, id: u16, selector: Option<&str>, wanted: Vec<Wanted>) {
        let choice = selector.map(|text| Choice::parse(text).expect("clients here use these"));
        let line = self.lines.get_mut(&conn).expect("a known connection");
        let Some(session) = line.client_id.as_ref().and_then(|who| self.sessions.get_mut(who)) else { return };
        for one in &wanted {
            let shared = one.filter.strip_prefix("$share/g/");
            let filter = shared.unwrap_or(&one.filter).to_owned();
            session.confirmed.remove(&one.filter);
            if one.no_local || one.qos == Qos::AtMostOnce {
                // It is another kind of subscription from now on.
                session.owed.remove(&one.filter);
            }
            let wish = Wish { filter, is_shared: shared.is_some(), choice };
            if !session.wishes.contains(&wish) {
                session.wishes.push(wish);
            }
        }
        line.asked.insert(id, Asked { choice, wanted, ended: Vec::new() });
    }

    /// They are answered.
    pub(super) fn granted(&mut self, conn: ConnId, id: u16, codes: &[u8]) {
        let line = self.lines.get_mut(&conn).expect("a known connection");
        let Some(Asked { choice, wanted, ended }) = line.asked.remove(&id) else { return };
        let Some(session) = line.client_id.as_ref().and_then(|who| self.sessions.get_mut(who)) else { return };
        for (one, code) in wanted.iter().zip(codes) {
            let is_durable = (1..=2).contains(code) && !one.no_local && !one.filter.starts_with("$share");
            // Asked for again meanwhile, it is not what this says.
            let is_last = !ended.contains(&one.filter)
                && line.asked.values().all(|asked| asked.wanted.iter().all(|other| other.filter != one.filter));
            // A log that has failed takes nothing: what is granted then lives as long as the process.
            let is_logged = self.disk != Disk::Poisoned;
            if is_durable && is_last && is_logged && session.is_kept {
                session.confirmed.insert(one.filter.clone(), (self.steps, choice));
            }
        }
    }

    /// Subscriptions are to end.
    pub(super) fn given_up(&mut self, conn: ConnId, filters: &[String]) {
        let line = self.lines.get_mut(&conn).expect("a known connection");
        // What was asked for before and has no answer yet is given up with it.
        line.asked.values_mut().for_each(|asked| asked.ended.extend_from_slice(filters));
        let Some(session) = line.client_id.as_ref().and_then(|who| self.sessions.get_mut(who)) else { return };
        for filter in filters {
            session.confirmed.remove(filter);
            session.owed.remove(filter);
        }
    }

    /// A publisher was told that an event is accepted: whoever wants it is owed it.
    pub(super) fn owe(&mut self, mark: &str) {
        let fact = &self.facts[mark];
        let Message { topic, qos, .. } = &fact.message;
        let profile = self.profiles.iter().find(|profile| matches(&profile.filter, topic));
        let is_volatile = profile.is_some_and(|profile| profile.persistence == Persistence::Volatile);
        if *qos == Qos::AtMostOnce || is_volatile || fact.message.expiry().is_some() {
            return;
        }
        for session in self.sessions.values_mut() {
            for (filter, (since, choice)) in &session.confirmed {
                let wanted = choice.is_none_or(|choice| choice.wants(&fact.message));
                if *since < fact.step && wanted && matches(filter, topic) && !session.got.contains(mark) {
                    session.owed.entry(filter.clone()).or_default().insert(mark.to_owned());
                }
            }
        }
    }

    /// A client gets an event.
    pub(super) fn got(&mut self, conn: ConnId, mark: &str, message: &Message) {
        let Some(who) = self.lines[&conn].client_id.clone() else { return };
        let Some(session) = self.sessions.get_mut(&who) else { return };
        let fact = &self.facts[mark];
        let of_topic = session.wishes.iter().filter(|wish| matches(&wish.filter, &fact.message.topic));
        let wants = |wish: &&Wish| wish.choice.is_none_or(|choice| choice.wants(&fact.message));
        let (count, wanted) = (of_topic.clone().count(), of_topic.clone().filter(wants).count());
        let filters: BTreeSet<&str> = of_topic.clone().map(|wish| &*wish.filter).collect();
        let has_shared = of_topic.clone().any(|wish| wish.is_shared);
        let is_single = filters.len() == 1 && !has_shared && fact.times == 1 && session.is_kept;
        session.got.insert(mark.to_owned());
        let (id, qos) = (message.id, message.qos);
        if count == 0 {
            return self.broken(Rule::Invented, format!("{who} gets {mark}, which none of its filters matches"));
        }
        if wanted == 0 {
            return self.broken(Rule::Selector, format!("{who} gets {mark}, which it has never wanted"));
        }
        if qos == Qos::AtMostOnce {
            return;
        }
        if message.retain {
            // A retained message, or one that may be told apart from such only by its order.
            session.sent.remove(&id);
            return;
        }
        session.sent.insert(id, mark.to_owned());
        let known = session.deliveries.entry(mark.to_owned()).or_default();
        let before = known.last().copied();
        match known.iter_mut().find(|(known, _)| *known == id) {
            Some((_, stage)) => *stage = Stage::Sent,
            None => known.push((id, Stage::Sent)),
        }
        let (Some((last, stage)), true) = (before, is_single) else { return };
        let what = match (qos, stage) {
            (Qos::ExactlyOnce, Stage::Sent) if last != id => format!("as {id}, while it is on its way as {last}"),
            (Qos::ExactlyOnce, Stage::Released) => "and has had it".to_owned(),
            (_, Stage::Acknowledged(at)) if !self.may_repeat(at) => format!("and has acknowledged it at {at:?}"),
            _ => return,
        };
        self.broken(Rule::Duplicate, format!("{who} gets {mark} again, {what}"));
    }

    /// Whether what was acknowledged then may not have been durably so.
    fn may_repeat(&self, at: Time) -> bool {
        let trouble = self.refusals_until >= at || self.disk != Disk::Open;
        self.crashed_at.is_some_and(|crash| at < crash && (crash < at + ACK_GRACE || trouble))
    }

    /// A client answers a delivery.
    pub(super) fn settled(&mut self, conn: ConnId, ack: Ack, id: u16, code: u8) {
        let now = self.now;
        let line = &self.lines[&conn];
        let Some(session) = line.client_id.as_ref().and_then(|who| self.sessions.get_mut(who)) else { return };
        let Some(stage) = session.stage(id) else { return };
        match ack {
            Ack::Puback => *stage = Stage::Acknowledged(now),
            Ack::Pubrec if code >= 0x80 => *stage = Stage::Refused,
            Ack::Pubrec | Ack::Pubrel | Ack::Pubcomp => {}
        }
    }

    /// The broker tells a client to forget an identifier.
    pub(super) fn released(&mut self, conn: ConnId, id: u16) {
        let line = &self.lines[&conn];
        let Some(session) = line.client_id.as_ref().and_then(|who| self.sessions.get_mut(who)) else { return };
        if let Some(stage) = session.stage(id).filter(|stage| **stage != Stage::Refused) {
            *stage = Stage::Released;
        }
    }

    /// Everybody has had time: nothing is owed any more.
    pub(super) fn settle_up(&mut self) {
        let mut missing = Vec::new();
        for (who, session) in &self.sessions {
            for (filter, marks) in session.owed.iter().filter(|_| session.is_kept) {
                let marks = marks.iter().filter(|mark| !session.got.contains(*mark));
                missing.extend(marks.map(|mark| format!("{who} has not got {mark}, and is owed it for {filter}")));
            }
        }
        for what in missing {
            self.broken(Rule::Delivery, what);
        }
    }
}
