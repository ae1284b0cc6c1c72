//! Subscriptions whose position is known: semi-durable ones, and durable ones that tell it or whose
//! client keeps it.
//!
//! Such a subscription receives all wanted events after its position, or is told of a gap; events
//! whose presence is promised are never in a gap. Events up to the position that its client named
//! are not delivered again. Whether an event was left out is checked when the position changes
//! other than by a delivery, and at the end: by then it is known what was published.

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

/// A range of a stream that was told as a gap. Up to the tick `excused` it excuses even the loss of
/// promised events.
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
    /// Whether its client acknowledges tokens.
    acknowledges: bool,
    notices: bool,
    place: Place,
    /// Whether its client has said where it begins.
    is_named: bool,
    /// The step up to which known events may be delivered or not: neither side said where it
    /// begins. 0: none.
    vague: u64,
    /// The step since which it is durable.
    promised: Option<u64>,
    /// Its client's acknowledged position when it began: earlier events may have been given up.
    settled: Place,
    /// Up to where streams were told: by an event, a gap or silence.
    told: Place,
    got: BTreeSet<Name>,
    gaps: Vec<Gap>,
    /// The position that its client has acknowledged.
    sure: Place,
    /// The position of which the broker has answered that it is kept.
    acknowledged: Option<Place>,
    /// Whether it is connected, and its position is known.
    here: bool,
    /// Whether it is to end, or its session has ended.
    ended: bool,
}

impl Follow {
    /// Whether events may be delivered again: its client says from where on, or it is not durable.
    pub(super) fn may_go_back(&self) -> bool {
        self.by_token || !self.is_durable
    }

    /// A subscription that begins at a step: where the broker says, unless the client names another
    /// position. It inherits the rest of the subscription that it replaces.
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
        // Streams that a position does not name come before it or begin later.
        let (place, vague, is_named) = match from.as_deref().map(places::named) {
            Some(Some(mut from)) => {
                if let Some(acknowledged) = &mut acknowledged {
                    acknowledged.lower_all(&from);
                }
                if from.is_moment() {
                    // It begins at the last ticks before that moment that have a name.
                    let mut begins = told;
                    begins.lower_all(&from);
                    begins.raise_rest(&from);
                    from = begins;
                }
                (from, 0, true)
            }
            // Its session keeps the position, also if an unanswered request was granted.
            None if is_known && (acknowledges || unanswered.is_empty()) => {
                let mut place = told;
                place.lower_all(&sure);
                (place, 0, false)
            }
            // As much as there is, or the events from now on.
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

    /// Whether it has not ended, and a SUBSCRIBE asks for one of its kind.
    fn is_still(&self, terms: &Terms) -> bool {
        !self.ended && self.is_durable == terms.is_durable
    }

    /// Whether its client has returned and has not named its position.
    fn is_parked(&self) -> bool {
        self.by_token && !self.here
    }

    /// The subscription continues at its position, under other terms.
    fn go_on(&mut self, terms: &Terms, told: Option<Place>) {
        (self.by_token, self.notices, self.here) = (terms.by_token, terms.notices, true);
        self.acknowledges = terms.acknowledges;
        if let Some(told) = told {
            self.told.raise_all(&told);
        }
    }

    /// An acknowledged event after a position, if there is one.
    fn beyond(&self, place: &Place) -> Option<Name> {
        let mut all = self.acknowledged.iter().flat_map(Place::iter);
        // Streams that have ended deliver nothing.
        all.find(|(pubend, tick)| place.names(*pubend) && place.at(*pubend) < *tick)
    }

    /// Whether its client has acknowledged an event.
    pub(super) fn is_sure_of(&self, (pubend, tick): Name) -> bool {
        tick <= self.sure.at(pubend)
    }

    /// Its connection has ended.
    pub(super) fn leave(&mut self) {
        self.here = false;
    }

    /// The machine has stopped. If it is not durable, the broker has forgotten acknowledgements
    /// since the SUBSCRIBE.
    pub(super) fn crash(&mut self) {
        self.leave();
        self.acknowledged.take_if(|_| !self.is_durable);
    }

    fn covers(&self, (pubend, tick): Name) -> Option<&Gap> {
        self.gaps.iter().find(|gap| gap.pubend == pubend && gap.from < tick && tick <= gap.to)
    }
}

/// The terms of a SUBSCRIBE for such a subscription.
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
            // The log has failed: everything stays as it was.
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

    /// A client has connected, with its session or a new one.
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

    /// A client acknowledges a token.
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

    /// The broker answers that the token is kept.
    pub(super) fn acknowledged(&mut self, who: &str, identifier: u32, token: &str) {
        if let Some(follow) = self.follows.get_mut(&(who.to_owned(), identifier)).filter(|follow| !follow.ended)
            && let Some(place) = Place::of_token(token)
        {
            follow.acknowledged.get_or_insert_default().raise_all(&place);
        }
    }

    /// Such a subscription receives an event, or one that it has not answered is sent again.
    pub(super) fn follow(&mut self, conn: ConnId, mark: &str, message: &Message, (repeats, is_known): (bool, bool)) {
        let Some(who) = self.lines.get(&conn).and_then(|line| line.client_id.clone()) else { return };
        let Some(identifier) = message.subscription_identifiers().first().copied() else { return };
        let Some(name) = message.user_property("w-id").and_then(places::name) else { return };
        let Some(follow) = self.follows.get_mut(&(who.clone(), identifier)).filter(|follow| !follow.ended) else {
            return;
        };
        let (pubend, tick) = name;
        if follow.by_token && message.qos == Qos::ExactlyOnce {
            // It is from the time when its session kept the position, and is completed.
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
            // Its session may keep another position.
            _ if is_doubtful => return,
            // It was not answered, and the broker has been started again.
            (true, false) if is_known => return,
            (true, _) if tick <= place => (Rule::Resumed, format!("which lies behind its place, {place}")),
            (_, true) if tick <= told => (Rule::Duplicate, format!("and was told all up to {told}")),
            // Expired events are delivered when the clock is set back.
            (true, _) if in_gap && !expires => (Rule::Gap, "which lies in a gap that was told".to_owned()),
            _ => return,
        };
        let what = format!("{who} gets {mark} for {filter}, at {tick} of {pubend:x}, {why}");
        self.broken(rule, what);
    }

    /// A client receives a notice.
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
            Notice::Overdue { .. } | Notice::Stalled => {}
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

    /// The tick up to which logged events may have been given up although a subscription lacks
    /// them.
    fn too_old(&self) -> u64 {
        self.max_retain.map_or(0, |max| self.latest.as_nanos().saturating_sub(max.as_nanos() as u64))
    }

    /// At the end: subscriptions that are connected have received everything.
    pub(super) fn settle_follows(&mut self) {
        for (who, identifier) in self.follows.keys().cloned().collect::<Vec<_>>() {
            self.look_back(&who, identifier, true);
        }
    }

    /// Checks whether anything was left out up to where a subscription was told; at the end, also
    /// of everything after that.
    fn look_back(&mut self, who: &str, identifier: u32, is_end: bool) {
        let Some(follow) = self.follows.get(&(who.to_owned(), identifier)).filter(|follow| !follow.ended) else {
            return;
        };
        // Its client may have to name its position first.
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
            // A client that goes back behind its acknowledgements finds its earlier selectors
            // forgotten.
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

    /// Whether an event was lost at the last crash. Events that were never logged are lost with the
    /// process, and so is the position in their streams that the broker knew, unless the client
    /// names it. A stream that ended with its host need not be delivered if the position does not
    /// name it.
    fn is_gone(&self, follow: &Follow, host: Option<u64>, ((pubend, _), seen): (Name, u64)) -> bool {
        let is_before = seen <= self.names.crash;
        let is_of_another = host.is_none_or(|host| pubend - pubend % 16 != host);
        is_before && (!is_own(pubend) && !follow.is_named || is_of_another && !follow.place.names(pubend))
    }

    /// All events with a name, each with its mark and the step by which it was accepted.
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
