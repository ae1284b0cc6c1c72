//! Subscriptions of which it is known where they stand: semi-durable ones, and durable ones that
//! say so or whose client keeps the position.
//!
//! Such a subscription gets all that it wants and that comes after its place, or is told of a gap;
//! what is promised to be there is never in a gap. What its client has named as its place does not
//! come again. Whether nothing is left out is looked at when the place changes for another reason
//! than that something came, and at the end: by then it is known what was published.

use std::collections::BTreeSet;

use mqtt_protocol_core::mqtt::packet::{Property, Qos};
use whimbrel_core::store::Disk;
use whimbrel_mqtt::ConnId;

use super::Ledger;
use super::answers::Due;
use super::order::is_own;
use super::owed::Asked;
use super::places::{self, Name, Place};
use crate::check::Rule;
use crate::check::notice::Notice;
use crate::check::topic::matches;
use crate::speech::Message;

/// A range of a stream that was told as a gap, and whether that excuses a loss of what is promised
/// up to a tick.
#[derive(Clone, Debug)]
struct Gap {
    pubend: u64,
    from: u64,
    to: u64,
    excused: u64,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Follow {
    filter: String,
    is_durable: bool,
    by_token: bool,
    /// Its client says what it is sure of.
    acknowledges: bool,
    notices: bool,
    place: Place,
    /// Its client has said where it begins.
    is_named: bool,
    /// Nobody said where it begins: what was known at that step may come or not.
    vague: u64,
    /// It is durable since that step.
    promised: Option<u64>,
    /// Up to where its client had been sure when it began: what lies before that may have been
    /// given up.
    settled: Place,
    /// Up to where streams were told: something came, or a gap, or silence.
    told: Place,
    got: BTreeSet<Name>,
    gaps: Vec<Gap>,
    /// Its client has said that it is sure up to here.
    sure: Place,
    /// And was told that this is kept.
    acknowledged: Option<Place>,
    /// It is there, and its place is known.
    here: bool,
    /// It is to end, or its session has ended.
    ended: bool,
}

impl Follow {
    /// What came may come again: its client says from where on, or nobody promises that it does
    /// not.
    pub(super) fn may_go_back(&self) -> bool {
        self.by_token || !self.is_durable
    }

    /// One that begins, at that step: where the broker says, unless it has another place, and with
    /// what is left of what it was before.
    fn begin(
        filter: &str,
        (terms, unanswered): (Terms, &[Option<Place>]),
        (told, known): (Place, Option<Follow>),
        (step, here): (u64, bool),
    ) -> Follow {
        let Terms { is_durable, by_token, acknowledges, notices, from } = terms;
        let promised = known.as_ref().and_then(|known| known.promised).or(is_durable.then_some(step));
        let (is_known, mut sure, mut acknowledged) = match known {
            Some(known) => (true, known.sure, known.acknowledged),
            None => (false, Place::default(), None),
        };
        unanswered.iter().flatten().for_each(|place| sure.raise_all(place));
        let settled = sure.clone();
        // What a place does not name was there before it, or is of a later stream.
        let (place, vague, is_named) = match from.as_deref().map(places::named) {
            Some(Some(mut from)) => {
                if let Some(acknowledged) = &mut acknowledged {
                    acknowledged.lower_all(&from);
                }
                if from.is_moment() {
                    // It begins at the last ticks before it that have a name.
                    let mut begins = told;
                    begins.lower_all(&from);
                    begins.raise_rest(&from);
                    from = begins;
                }
                (from, 0, true)
            }
            // Its session keeps the position, if what nobody heard of was granted.
            None if is_known && (acknowledges || unanswered.is_empty()) => {
                let mut place = told;
                place.lower_all(&sure);
                (place, 0, false)
            }
            // As much as there is, or what comes from now on.
            Some(None) | None => (told, step, false),
        };
        sure.raise_all(&place);
        let (filter, told, got, gaps, ended) = (filter.to_owned(), place.clone(), BTreeSet::new(), Vec::new(), false);
        Follow {
            filter,
            is_durable,
            by_token,
            acknowledges,
            notices,
            place,
            is_named,
            vague,
            promised,
            settled,
            told,
            got,
            gaps,
            sure,
            acknowledged,
            here,
            ended,
        }
    }

    /// It has not ended, and a SUBSCRIBE asks for one of its kind.
    fn is_still(&self, terms: &Terms) -> bool {
        !self.ended && self.is_durable == terms.is_durable
    }

    /// Its client is back, and has not said where it is.
    fn is_parked(&self) -> bool {
        self.by_token && !self.here
    }

    /// It goes on where it is, under other terms.
    fn go_on(&mut self, terms: &Terms, told: Option<Place>) {
        (self.by_token, self.notices, self.here) = (terms.by_token, terms.notices, true);
        self.acknowledges = terms.acknowledges;
        if let Some(told) = told {
            self.told.raise_all(&told);
        }
    }

    /// What it has acknowledged that lies behind a place, if something does.
    fn beyond(&self, place: &Place) -> Option<Name> {
        let mut all = self.acknowledged.iter().flat_map(Place::iter);
        // Of streams that have ended nothing comes.
        all.find(|(pubend, tick)| place.names(*pubend) && place.at(*pubend) < *tick)
    }

    /// Its client has said that it is sure of an event.
    pub(super) fn is_sure_of(&self, (pubend, tick): Name) -> bool {
        tick <= self.sure.at(pubend)
    }

    /// Its connection has ended.
    pub(super) fn leave(&mut self) {
        self.here = false;
    }

    /// The machine has stopped. Of what is not durable the broker does not remember what was
    /// acknowledged since it was asked for.
    pub(super) fn crash(&mut self) {
        self.leave();
        self.acknowledged.take_if(|_| !self.is_durable);
    }

    fn covers(&self, (pubend, tick): Name) -> Option<&Gap> {
        self.gaps.iter().find(|gap| gap.pubend == pubend && gap.from < tick && tick <= gap.to)
    }
}

/// What a SUBSCRIBE says of such a subscription.
struct Terms {
    is_durable: bool,
    by_token: bool,
    acknowledges: bool,
    notices: bool,
    from: Option<String>,
}

impl Terms {
    fn of(asked: &Asked, properties: &[Property]) -> Option<Terms> {
        let term = |name: &str| asked.terms.iter().find(|(known, _)| known == name).map(|(_, value)| &**value);
        let is_less = places::property(properties, "w-granted").is_some();
        let from = term("w-from").map(str::to_owned);
        Some(Terms {
            is_durable: term("w-durability")? == "durable" && !is_less,
            by_token: term("w-ack").is_some() || from.is_some(),
            acknowledges: term("w-ack").is_some(),
            notices: term("w-notices") == Some("on"),
            from,
        })
    }
}

impl Ledger {
    /// A SUBSCRIBE with one filter is granted.
    pub(super) fn begins(&mut self, conn: ConnId, who: &str, asked: &Asked, properties: &[Property]) {
        let Some(terms) = Terms::of(asked, properties) else { return };
        let key = (who.to_owned(), asked.identifier);
        let told = places::property(properties, "w-token").and_then(|token| Place::of_token(&token));
        let known = self.follows.get_mut(&key).filter(|known| known.is_still(&terms));
        if let Some(known) = known.filter(|known| terms.from.is_none() && !known.is_parked()) {
            return known.go_on(&terms, told);
        }
        self.look_back(who, asked.identifier, false);
        let Some(told) = told else {
            // A log that has failed: everything stays as it was.
            if self.machine.disk != Disk::Poisoned {
                self.broken(Rule::Token, format!("{who} is not told where {} begins", asked.filter()));
            }
            return;
        };
        let unanswered = self.unanswered.before(who, asked);
        let mut known = self.follows.remove(&key).filter(|known| known.is_still(&terms));
        if let Some(acknowledged) = known.as_mut().and_then(|known| known.acknowledged.as_mut()) {
            unanswered.iter().flatten().for_each(|place| acknowledged.lower_all(place));
        }
        let behind = known.as_ref().filter(|_| terms.from.is_none()).and_then(|known| known.beyond(&told));
        if let Some((pubend, tick)) = behind {
            let (filter, at) = (asked.filter(), told.at(pubend));
            let what = format!("{filter} of {who} begins at {at} of {pubend:x}, and has acknowledged {tick}");
            self.broken(Rule::Token, what);
        }
        let here = self.lines.contains_key(&conn);
        self.follows
            .insert(key, Follow::begin(asked.filter(), (terms, &unanswered), (told, known), (self.steps, here)));
    }

    /// A client is there, with its session or with a new one.
    pub(super) fn returns(&mut self, conn: ConnId, who: &str, present: bool) {
        let keys: Vec<u32> = self.follows.keys().filter(|(known, _)| known == who).map(|(_, id)| *id).collect();
        for identifier in keys {
            if !present {
                self.look_back(who, identifier, false);
            }
            let follow = self.follows.get_mut(&(who.to_owned(), identifier)).expect("just seen");
            follow.ended |= !present;
            follow.here = !follow.by_token && self.lines.contains_key(&conn);
        }
    }

    /// Subscriptions are to end.
    pub(super) fn stops(&mut self, who: &str, filters: &[String]) {
        let of = |key: &(String, u32), follow: &Follow| key.0 == who && filters.contains(&follow.filter);
        let keys: Vec<u32> =
            self.follows.iter().filter(|(key, follow)| of(key, follow)).map(|((_, id), _)| *id).collect();
        for identifier in keys {
            self.look_back(who, identifier, false);
            self.follows.get_mut(&(who.to_owned(), identifier)).expect("just seen").ended = true;
        }
    }

    /// A client says that it is sure up to a token.
    pub(super) fn acknowledges(&mut self, conn: ConnId, message: &Message) {
        let line = self.lines.get_mut(&conn).expect("a known connection");
        let identifier = message.user_property("w-subscription").and_then(|text| text.parse().ok()).unwrap_or(0);
        let token = message.text().to_owned();
        if let Some(who) = line.client_id.clone()
            && let Some(follow) = self.follows.get_mut(&(who, identifier))
            && let Some(place) = Place::of_token(&token)
        {
            follow.sure.raise_all(&place);
        }
        if message.qos == Qos::AtLeastOnce {
            line.due.push((self.now, Due::Acknowledged { id: message.id, identifier, token }));
        }
    }

    /// And is told that this is kept.
    pub(super) fn acknowledged(&mut self, who: &str, identifier: u32, token: &str) {
        if let Some(follow) = self.follows.get_mut(&(who.to_owned(), identifier)).filter(|follow| !follow.ended)
            && let Some(place) = Place::of_token(token)
        {
            follow.acknowledged.get_or_insert_default().raise_all(&place);
        }
    }

    /// Such a subscription gets an event, or the client is sent again what it has not answered.
    pub(super) fn follow(&mut self, conn: ConnId, mark: &str, message: &Message, (repeats, is_known): (bool, bool)) {
        let Some(who) = self.lines.get(&conn).and_then(|line| line.client_id.clone()) else { return };
        let Some(identifier) = message.subscription_identifiers().first().copied() else { return };
        let Some(name) = message.user_property("w-id").and_then(places::name) else { return };
        let Some(follow) = self.follows.get_mut(&(who.clone(), identifier)).filter(|follow| !follow.ended) else {
            return;
        };
        let (pubend, tick) = name;
        if follow.by_token && message.qos == Qos::ExactlyOnce {
            // Of a time when its session kept the position: it goes on.
            return;
        }
        let (place, told) = (follow.place.at(pubend), follow.told.at(pubend));
        let expires = self.facts[mark].message.expiry().is_some();
        let is_doubtful = !follow.acknowledges && self.unanswered.has(&who, identifier);
        let is_new = follow.got.insert(name);
        let in_gap = follow.covers(name).is_some();
        if repeats && !follow.acknowledges {
            // It may have been sent for a subscription that was given up since.
            return;
        }
        follow.told.raise(name);
        let filter = &follow.filter;
        let (rule, why) = match (is_new, follow.by_token) {
            // Its session may keep the position elsewhere.
            _ if is_doubtful => return,
            // It was not answered, and the broker has been started again.
            (true, false) if is_known => return,
            (true, _) if tick <= place => (Rule::Resumed, format!("which lies behind its place, {place}")),
            (_, true) if tick <= told => (Rule::Duplicate, format!("and was told all up to {told}")),
            // What had expired comes when the clock is set back.
            (true, _) if in_gap && !expires => (Rule::Gap, "which lies in a gap that was told".to_owned()),
            _ => return,
        };
        let what = format!("{who} gets {mark} for {filter}, at {tick} of {pubend:x}, {why}");
        self.broken(rule, what);
    }

    /// A client gets a notice.
    pub(super) fn noticed(&mut self, conn: ConnId, who: &str, message: &Message) {
        let notice = match Notice::parse(&message.payload) {
            Ok(notice) => notice,
            Err(why) => return self.broken(Rule::Gap, format!("a notice for {who} on {conn:?}: {why}")),
        };
        let Some(identifier) = message.subscription_identifiers().first().copied() else { return };
        let old = self.too_old();
        let Some(follow) = self.follows.get_mut(&(who.to_owned(), identifier)).filter(|follow| !follow.ended) else {
            return;
        };
        match notice {
            Notice::Silence { token, .. } => {
                let Some(place) = Place::of_token(&token) else {
                    return self.broken(Rule::Token, format!("{who} is told {token}, which is no token"));
                };
                follow.told.raise_all(&place);
            }
            Notice::Gap { pubend, from, to, reason } => {
                let (sure, told) = (follow.sure.at(pubend), follow.told.at(pubend));
                let (filter, is_durable) = (follow.filter.clone(), follow.is_durable);
                let excused = if reason == "released" { sure.max(old) } else { 0 };
                follow.gaps.push(Gap { pubend, from, to, excused });
                follow.told.raise((pubend, to));
                let is_doubtful = !follow.acknowledges && self.unanswered.has(who, identifier);
                let why = if from >= to {
                    "which is empty"
                } else if follow.by_token && to <= told && !message.dup && !is_doubtful {
                    "all of which it was told before"
                } else if reason == "released" && !follow.is_durable {
                    "which nobody may have given up"
                } else {
                    return;
                };
                let what = format!(
                    "{who} is told a gap from {from} to {to} of {pubend:x} ({reason}), {why}; {filter}, durable: {is_durable}, {excused}"
                );
                self.broken(Rule::Gap, what);
            }
        }
    }

    /// Up to which tick what is logged may have been given up although somebody lacks it.
    fn too_old(&self) -> u64 {
        self.max_retain.map_or(0, |max| self.latest.as_nanos().saturating_sub(max.as_nanos() as u64))
    }

    /// Everybody has had time: who is there has got everything.
    pub(super) fn settle_follows(&mut self) {
        for (who, identifier) in self.follows.keys().cloned().collect::<Vec<_>>() {
            self.look_back(&who, identifier, true);
        }
    }

    /// Looks whether something was left out of what a subscription was told so far; at the end,
    /// also of what it should have been told.
    fn look_back(&mut self, who: &str, identifier: u32, is_end: bool) {
        let Some(follow) = self.follows.get(&(who.to_owned(), identifier)).filter(|follow| !follow.ended) else {
            return;
        };
        // Its client may have to say first where it is.
        let is_here = follow.here && (follow.acknowledges || !self.unanswered.has(who, identifier));
        let missing = self.left_out(who, follow, is_end && is_here);
        let filter = follow.filter.clone();
        for (rule, what) in missing {
            self.broken(rule, format!("{who} has not got {what} for {filter}"));
        }
    }

    fn left_out(&self, who: &str, follow: &Follow, is_all: bool) -> Vec<(Rule, String)> {
        let Some(session) = self.sessions.get(who) else { return Vec::new() };
        let host = self.names.host;
        let mut missing = Vec::new();
        for (name, (mark, seen)) in self.known(host) {
            let (pubend, tick) = name;
            let is_due = tick > follow.place.at(pubend) && (is_all || tick <= follow.told.at(pubend));
            if !is_due
                || follow.got.contains(&name)
                || *seen <= follow.vague
                || self.is_gone(follow, host, (name, *seen))
            {
                continue;
            }
            let fact = &self.facts[mark];
            let is_under = matches(&follow.filter, &fact.message.topic) && fact.message.expiry().is_none();
            let is_logged = is_own(pubend) && self.log.durable.contains(mark);
            if !is_under || !session.wishes.must_resume(who, &follow.filter, &fact.event(*seen), is_logged) {
                continue;
            }
            // Who goes back behind what it has acknowledged finds its former selectors forgotten.
            if tick <= follow.sure.at(pubend) && session.wishes.has_changed(&follow.filter) {
                continue;
            }
            let is_promised = is_logged
                && follow.promised.is_some_and(|promised| promised < fact.step)
                && tick > follow.settled.at(pubend);
            let gap = follow.covers(name);
            let is_excused = match gap {
                Some(gap) => !is_promised || tick <= gap.excused,
                None => !follow.notices && (!is_promised || self.machine.has_released && tick <= self.too_old()),
            };
            if !is_excused {
                let rule = if gap.is_some() {
                    Rule::Gap
                } else if is_all {
                    Rule::Delivery
                } else {
                    Rule::Hole
                };
                missing.push((rule, format!("{mark}, at {tick} of {pubend:x}, promised: {is_promised}, {gap:?},")));
            }
        }
        missing.truncate(3);
        missing
    }

    /// What was never logged is gone with the process, and so is where the broker knew a
    /// subscription to be in it, unless its client says so. A stream that has ended with its
    /// broker, and that the place does not name, is nobody's.
    fn is_gone(&self, follow: &Follow, host: Option<u64>, ((pubend, _), seen): (Name, u64)) -> bool {
        let is_before = seen <= self.names.crash;
        let is_of_another = host.is_none_or(|host| pubend - pubend % 16 != host);
        is_before && (!is_own(pubend) && !follow.is_named || is_of_another && !follow.place.names(pubend))
    }

    /// Everything that has a name, with its mark and the step by which it was accepted.
    fn known(&self, host: Option<u64>) -> impl Iterator<Item = (Name, &(String, u64))> {
        let logged =
            self.log.ever.iter().filter_map(move |((pubend, tick), known)| {
                host.map(|host| ((host + u64::from(*pubend), *tick), known))
            });
        let is_logged = move |(pubend, tick): Name| {
            host == Some(pubend - pubend % 16) && self.log.ever.contains_key(&((pubend % 16) as u8, tick))
        };
        let named = self.names.all.iter().map(|(name, known)| (*name, known));
        named.filter(move |(name, _)| !is_logged(*name)).chain(logged)
    }
}
