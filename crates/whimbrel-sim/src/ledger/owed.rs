//! The events owed to durable subscriptions, and the repeats that are allowed.
//!
//! A subscription of a session that outlives its connection is durable from its SUBACK on. Every
//! event that is published after that, matches, and is acknowledged to its publisher must be
//! delivered, whatever crashes. It is delivered once, unless the client had not answered it. In
//! cases that are indistinguishable from outside the broker gets the benefit: a subscription
//! that is being changed, a session that is being ended.

use std::collections::{BTreeMap, BTreeSet};

use mqtt_protocol_core::mqtt::Version;
use mqtt_protocol_core::mqtt::packet::{Property, Qos};
use whimbrel_core::Persistence;
use whimbrel_core::store::Disk;
use whimbrel_event::Time;
use whimbrel_mqtt::ConnId;

use super::Ledger;
use super::follow::Follow;
use super::places;
use super::wishes::{Wish, Wishes};
use crate::check::Rule;
use crate::choice::Choice;
use crate::speech::{Ack, Hello, Message, Said, Wanted};

/// Sessions with a shorter expiry may have ended unseen, seconds.
const EXPIRY_MIN: u32 = 1_000;

/// The content of one SUBSCRIBE.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    /// The request's number in its world.
    pub(super) number: u64,
    wanted: Vec<Wanted>,
    pub(super) identifier: u32,
    choice: Option<Choice>,
    pub(super) terms: Vec<(String, String)>,
    /// Filters that were given up before the answer.
    ended: Vec<String>,
}

impl Asked {
    /// The filter of a SUBSCRIBE that has one.
    pub(super) fn filter(&self) -> &str {
        &self.wanted[0].filter
    }
}

/// The stage of a delivery, as its client knows it.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Stage {
    /// Sent, with this quality of service.
    Sent(Qos),
    /// The broker has sent PUBREL.
    Released,
    /// Acknowledged at this time.
    Acknowledged(Time),
    /// Refused by the client.
    Refused,
}

/// An event and the filter for which it was sent, if known.
type Copy = (String, Option<String>);

/// The state of one session.
#[derive(Debug, Default)]
pub(super) struct Session {
    /// Whether it outlives its connections, and no packet is too large for its client.
    is_kept: bool,
    /// Whether no packet is too large for its client.
    takes_all: bool,
    pub(super) wishes: Wishes,
    /// By filter: the marks of events that must be delivered.
    owed: BTreeMap<String, BTreeSet<String>>,
    got: BTreeSet<Copy>,
    /// By event: packet identifiers, each with its stage.
    deliveries: BTreeMap<Copy, Vec<(u16, Stage)>>,
    /// By packet identifier: the last event sent.
    sent: BTreeMap<u16, Copy>,
    /// By packet identifier: the mark of the last message sent, retained ones included.
    carried: BTreeMap<u16, String>,
}

impl Session {
    fn stage(&mut self, id: u16) -> Option<&mut Stage> {
        let mark = self.sent.get(&id)?;
        let known = self.deliveries.get_mut(mark)?;
        known.iter_mut().rev().find(|(known, _)| *known == id).map(|(_, stage)| stage)
    }
}

/// Whether the session of a CONNECT outlives its connection for as long as any world and its client
/// takes everything, and whether its client takes everything.
fn keeps(hello: &Hello) -> (bool, bool) {
    let (mut expiry, mut takes_all) = (0, true);
    for property in &hello.properties {
        match property {
            Property::SessionExpiryInterval(p) => expiry = p.val(),
            Property::MaximumPacketSize(_) => takes_all = false,
            _ => {}
        }
    }
    let lives_on = if hello.version == Version::V5_0 { expiry >= EXPIRY_MIN } else { !hello.clean_start };
    (takes_all && lives_on, takes_all)
}

impl Ledger {
    /// A client connects.
    pub(super) fn greeted(&mut self, hello: &Hello) {
        let session = self.sessions.entry(hello.client_id.clone()).or_default();
        let (is_kept, takes_all) = keeps(hello);
        (session.is_kept, session.takes_all) = (is_kept, takes_all);
        if hello.clean_start || !is_kept {
            // The session may end now, perhaps without an answer that arrives.
            session.wishes.doubt_all();
            session.owed.clear();
            self.parted_from_all(&hello.client_id);
        }
    }

    /// The broker answers whether there was a session.
    pub(super) fn welcomed(&mut self, who: &str, present: bool) {
        let Some(session) = self.sessions.get_mut(who) else { return };
        if present {
            return;
        }
        let lost: Vec<String> = session.owed.values().flatten().cloned().collect();
        let confirmed = session.wishes.confirmed().next().is_some();
        // After the log has failed, the expiry of a session is not durable: the session may come
        // back.
        let wishes =
            if self.machine.disk == Disk::Poisoned { std::mem::take(&mut session.wishes) } else { Wishes::default() };
        let Session { is_kept, takes_all, .. } = *session;
        *session = Session { is_kept, takes_all, wishes, ..Session::default() };
        session.wishes.doubt_all();
        self.parted_from_all(who);
        if confirmed {
            self.broken(Rule::SessionPresent, format!("the session of {who} is not there, and was owed {lost:?}"));
        }
    }

    /// A client asks for subscriptions.
    pub(super) fn asked(&mut self, conn: ConnId, id: u16, asked: &Said) {
        let Said::Subscribe { identifier, selector, terms, wanted, .. } = asked else {
            unreachable!("the caller looks")
        };
        let choice = selector.as_ref().map(|text| Choice::parse(text).expect("clients here use these"));
        self.requests += 1;
        let (number, step) = (self.requests, self.steps);
        let line = self.lines.get_mut(&conn).expect("a known connection");
        let Some(session) = line.client_id.as_ref().and_then(|who| self.sessions.get_mut(who)) else { return };
        for one in wanted {
            if one.qos == Qos::AtMostOnce {
                // It is another kind of subscription from now on.
                session.owed.remove(&one.filter);
            } else if one.no_local
                && let Some(owed) = session.owed.get_mut(&one.filter)
            {
                owed.retain(|mark| Some(&self.facts[mark].publisher) != line.client_id.as_ref());
            }
            let is_followed = terms.iter().any(|(name, _)| name == "w-durability");
            session.wishes.ask(&one.filter, Wish::new((number, step), one, (*identifier, choice), is_followed));
        }
        let takes_all = session.takes_all;
        let shared: Vec<_> = wanted.iter().map(|one| (one.filter.clone(), one.qos == Qos::AtMostOnce)).collect();
        let (wanted, terms) = (wanted.clone(), terms.clone());
        let asked = Asked { number, wanted, identifier: *identifier, choice, terms, ended: Vec::new() };
        line.asked.insert(id, asked.clone());
        let who = line.client_id.clone().expect("it has a session");
        self.asks_to_follow(&who, &asked);
        for (filter, is_best_effort) in shared {
            self.asks_to_share(&who, &filter, is_best_effort || !takes_all);
        }
    }

    /// The broker answers a SUBSCRIBE.
    pub(super) fn granted(&mut self, conn: ConnId, id: u16, codes: &[u8], properties: &[Property]) {
        let line = self.lines.get_mut(&conn).expect("a known connection");
        let Some(asked) = line.asked.remove(&id) else { return };
        let Some(who) = line.client_id.clone() else { return };
        let Some(session) = self.sessions.get_mut(&who) else { return };
        let mut joined = Vec::new();
        for (one, code) in asked.wanted.iter().zip(codes) {
            if *code >= 0x80 {
                session.wishes.refuse(&one.filter, asked.number);
                continue;
            }
            session.wishes.confirm(&one.filter, asked.number, self.steps);
            // After the log has failed, a granted subscription lives only as long as the process.
            let is_logged = self.machine.disk != Disk::Poisoned;
            if asked.ended.contains(&one.filter) || !is_logged || !session.is_kept {
                session.wishes.doubt(&one.filter);
                continue;
            }
            // If it was asked for again meanwhile, this answer does not decide.
            let is_last = line.asked.values().all(|asked| asked.wanted.iter().all(|other| other.filter != one.filter));
            if is_last && *code > 0 && one.filter.starts_with("$share") {
                joined.push(one.filter.clone());
            }
        }
        if codes.iter().all(|code| *code >= 0x80) {
            self.unanswered.refuse(&who, &asked);
        }
        let lives = !asked.ended.iter().any(|text| text == asked.filter());
        if lives && codes.iter().all(|code| *code < 0x80) {
            self.begins(conn, &who, &asked, properties);
        }
        joined.iter().for_each(|filter| self.joined(&who, filter, asked.choice));
    }

    /// A client asks to end subscriptions.
    pub(super) fn given_up(&mut self, conn: ConnId, id: u16, filters: &[String]) {
        self.requests += 1;
        let number = self.requests;
        let line = self.lines.get_mut(&conn).expect("a known connection");
        // Unanswered requests for these filters are given up with them.
        line.asked.values_mut().for_each(|asked| asked.ended.extend_from_slice(filters));
        line.ending.insert(id, (number, filters.to_vec()));
        let Some(who) = line.client_id.clone() else { return };
        let Some(session) = self.sessions.get_mut(&who) else { return };
        for filter in filters {
            session.wishes.give_up(filter);
            session.owed.remove(filter);
        }
        filters.iter().for_each(|filter| self.parted(&who, filter));
        self.stops(&who, filters);
    }

    /// The broker answers an UNSUBSCRIBE.
    pub(super) fn gave_up(&mut self, conn: ConnId, id: u16) {
        let line = self.lines.get_mut(&conn).expect("a known connection");
        let Some((number, filters)) = line.ending.remove(&id) else { return };
        let Some(session) = line.client_id.as_ref().and_then(|who| self.sessions.get_mut(who)) else { return };
        filters.iter().for_each(|filter| session.wishes.end(filter, number, self.steps));
    }

    /// A publisher was told that an event is accepted: it is owed to each subscription that wants
    /// it.
    pub(super) fn owe(&mut self, mark: &str) {
        let fact = &self.facts[mark];
        let Message { topic, qos, .. } = &fact.message;
        let is_volatile = self.persistence_of(topic) == Persistence::Volatile;
        if *qos == Qos::AtMostOnce || is_volatile || fact.message.expiry().is_some() {
            return;
        }
        let event = fact.event(self.steps);
        for (who, session) in self.sessions.iter_mut().filter(|(_, session)| session.is_kept) {
            let Session { wishes, owed, .. } = session;
            for text in wishes.matching(topic).filter(|text| wishes.must(who, text, &event)) {
                owed.entry(text.to_owned()).or_default().insert(mark.to_owned());
            }
        }
        self.owe_shared(mark);
    }

    /// Whether an event is sent again because it was sent before under the same identifier.
    pub(super) fn repeats(&self, who: &str, mark: &str, message: &Message) -> bool {
        let carried = self.sessions.get(who).and_then(|session| session.carried.get(&message.id));
        message.dup && carried.is_some_and(|carried| carried == mark)
    }

    /// Whether a client has received an event before.
    pub(super) fn has_got(&self, who: &str, mark: &str) -> bool {
        let known = self.sessions.get(who).map(|session| &session.got);
        known.is_some_and(|got| got.range((mark.to_owned(), None)..).next().is_some_and(|(known, _)| known == mark))
    }

    /// A packet identifier is used anew: a client's answer no longer means the event that was sent
    /// under it before.
    pub(super) fn reuse(&mut self, who: &str, message: &Message) {
        if message.qos > Qos::AtMostOnce
            && let Some(session) = self.sessions.get_mut(who)
        {
            session.sent.remove(&message.id);
            session.carried.remove(&message.id);
        }
    }

    /// A client receives an event.
    pub(super) fn got(&mut self, conn: ConnId, mark: &str, message: &Message) {
        let Some(who) = self.lines[&conn].client_id.clone() else { return };
        self.got_shared(&who, mark);
        let is_volatile = self.persistence_of(&self.facts[mark].message.topic) == Persistence::Volatile;
        let Some(session) = self.sessions.get_mut(&who) else { return };
        let fact = &self.facts[mark];
        let (id, qos, topic) = (message.id, message.qos, &fact.message.topic);
        let text = session.wishes.resolve(topic, &message.subscription_identifiers());
        if session.wishes.matching(topic).next().is_none() {
            return self.broken(Rule::Invented, format!("{who} gets {mark}, which none of its filters matches"));
        }
        // If the step of acceptance is unknown, it may be any.
        let event = fact.event(fact.accepted_at());
        let follow = message.subscription_identifiers().first().and_then(|id| self.follows.get(&(who.clone(), *id)));
        let resumes = follow.is_some_and(Follow::may_go_back);
        let is_logged = self.log.durable.contains(mark);
        // A client that goes back behind its acknowledgements has lost its earlier selectors.
        let name = message.user_property("w-id").and_then(places::name);
        let is_settled = follow.zip(name).is_some_and(|(follow, name)| follow.is_sure_of(name));
        // On topics that are never logged it is semi-durable: the latest selector counts.
        let wants = |text: &str| match resumes {
            _ if message.retain => true,
            _ if is_volatile && session.wishes.has_changed(text) => session.wishes.may_ever(&who, text, &event),
            true if is_settled && session.wishes.has_changed(text) => session.wishes.may_ever(&who, text, &event),
            true => session.wishes.may_resume(&who, text, &event, is_logged),
            false => session.wishes.may(&who, text, &event),
        };
        let wanted = match &text {
            Some(text) => wants(text),
            None => session.wishes.matching(topic).any(wants),
        };
        if !wanted {
            return self.broken(Rule::Selector, format!("{who} gets {mark} for {text:?}, which it did not want then"));
        }
        let copy = (mark.to_owned(), text);
        // Shared: at least once; a member may receive it again after a crash.
        let is_shared = copy.1.as_ref().is_some_and(|text| text.starts_with("$share"));
        let is_single = copy.1.is_some() && !is_shared && fact.is_single(is_logged) && session.is_kept;
        session.got.insert(copy.clone());
        if qos == Qos::AtMostOnce {
            return;
        }
        session.carried.insert(id, mark.to_owned());
        if message.retain {
            // A retained message, or one that only its order tells apart from it.
            session.sent.remove(&id);
            return;
        }
        session.sent.insert(id, copy.clone());
        let known = session.deliveries.entry(copy).or_default();
        let before = known.last().copied();
        match known.iter_mut().find(|(known, _)| *known == id) {
            Some((_, stage)) => *stage = Stage::Sent(qos),
            None => known.push((id, Stage::Sent(qos))),
        }
        let (Some((last, stage)), true) = (before, is_single) else { return };
        let what = match (qos, stage) {
            // Its client keeps the position from now on; deliveries in flight are completed.
            (Qos::ExactlyOnce, _) if resumes => return,
            (Qos::ExactlyOnce, Stage::Sent(Qos::ExactlyOnce)) if last != id => {
                format!("as {id}, while it is on its way as {last}")
            }
            (Qos::ExactlyOnce, Stage::Released) => "and has had it".to_owned(),
            (_, Stage::Acknowledged(at)) if !self.machine.may_repeat(at) && !resumes => {
                format!("and has acknowledged it at {at:?}")
            }
            _ => return,
        };
        self.broken(Rule::Duplicate, format!("{who} gets {mark} again, {what}"));
    }

    /// A client answers a delivery.
    pub(super) fn settled(&mut self, conn: ConnId, ack: Ack, id: u16, code: u8) {
        let now = self.now;
        let line = &self.lines[&conn];
        if line.is_closing && self.machine.disk == Disk::Poisoned {
            return;
        }
        let Some(session) = line.client_id.as_ref().and_then(|who| self.sessions.get_mut(who)) else { return };
        let Some(stage) = session.stage(id) else { return };
        match ack {
            Ack::Puback => *stage = Stage::Acknowledged(now),
            Ack::Pubrec if code >= 0x80 => *stage = Stage::Refused,
            Ack::Pubrec | Ack::Pubrel | Ack::Pubcomp => {}
        }
    }

    /// The broker sends PUBREL.
    pub(super) fn released(&mut self, conn: ConnId, id: u16) {
        let line = &self.lines[&conn];
        let Some(session) = line.client_id.as_ref().and_then(|who| self.sessions.get_mut(who)) else { return };
        if let Some(stage) = session.stage(id).filter(|stage| **stage != Stage::Refused) {
            *stage = Stage::Released;
        }
    }

    /// At the end: no event is owed any more.
    pub(super) fn settle_up(&mut self) {
        let mut missing = Vec::new();
        let sessions = self.sessions.iter().filter(|_| !self.machine.has_released);
        for (who, session) in sessions {
            for (filter, marks) in session.owed.iter().filter(|_| session.is_kept) {
                let has = |mark: &str, text: Option<&String>| session.got.contains(&(mark.to_owned(), text.cloned()));
                let marks = marks.iter().filter(|mark| !has(mark, Some(filter)) && !has(mark, None));
                missing.extend(marks.map(|mark| format!("{who} has not got {mark}, and is owed it for {filter}")));
            }
        }
        for what in missing {
            self.broken(Rule::Delivery, what);
        }
    }
}
