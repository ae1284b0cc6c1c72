//! The events owed to a tracked subscription: one that receives the events that it missed, or
//! notices of those that it cannot get.
//!
//! Such a subscription has a position in every stream. Events before the position are never
//! delivered. Wanted events after it are owed until they are delivered, have expired, or are told
//! as a gap. Streams are told in order, so a delivery or a gap settles everything before it in its
//! stream.
//!
//! A position that a token named is known as precisely as the account knows where the broker stood
//! when it gave the token: two [`Bound`]s, with the position between them.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use whimbrel_event::Time;

use super::Rule;
use super::book::{Grant, Publication};

/// An event's name, as deliveries carry it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Name {
    pub(super) pubend: u64,
    pub(super) tick: u64,
}

impl Name {
    /// Reads a `w-id`.
    pub(super) fn parse(text: &str) -> Option<Name> {
        let (pubend, tick) = crate::speech::event_name(text)?;
        Some(Name { pubend, tick })
    }
}

/// The events at or below a position. Each field adds some.
#[derive(Clone, Default, Debug)]
pub(super) struct Bound {
    /// Events accepted up to this number.
    pub(super) no: u64,
    /// Events up to this tick, in any stream.
    pub(super) tick: u64,
    /// By stream: events up to this tick.
    pub(super) of: BTreeMap<u64, u64>,
}

impl Bound {
    /// Everything accepted up to that number.
    pub(super) fn up_to(no: u64) -> Bound {
        Bound { no, ..Bound::default() }
    }

    /// Adds a stream up to an event.
    pub(super) fn raise(&mut self, name: Name) {
        let known = self.of.entry(name.pubend).or_default();
        *known = name.tick.max(*known);
    }

    fn covers(&self, publication: &Publication) -> bool {
        let named =
            |name: &Name| name.tick <= self.tick || self.of.get(&name.pubend).is_some_and(|to| name.tick <= *to);
        publication.no <= self.no || publication.id.get().is_some_and(named)
    }
}

/// The position of a subscription: at or after `low`, and not after `high`.
#[derive(Clone, Default, Debug)]
pub(super) struct Place {
    pub(super) low: Bound,
    pub(super) high: Bound,
    /// Set: the broker's memory begins there. Of events accepted up to this number it must tell
    /// which it has.
    pub(super) oldest: Option<u64>,
}

impl Place {
    /// A position that is known exactly.
    pub(super) fn at(bound: Bound) -> Place {
        Place { low: bound.clone(), high: bound, oldest: None }
    }

    /// An unknown position, at most that after this number of accepted events.
    pub(super) fn unknown(no: u64) -> Place {
        Place { low: Bound::default(), high: Bound::up_to(no), oldest: None }
    }

    /// Where the broker's memory begins, when this number of events has been accepted.
    pub(super) fn oldest(no: u64) -> Place {
        Place { oldest: Some(no), ..Place::default() }
    }

    /// Moves to everything up to a tick.
    pub(super) fn raise_all(&mut self, tick: u64) {
        self.low.tick = self.low.tick.max(tick);
        self.high.tick = self.high.tick.max(tick);
    }

    /// Moves to an event.
    pub(super) fn raise(&mut self, name: Name) {
        self.low.raise(name);
        self.high.raise(name);
    }
}

/// An event that is owed.
#[derive(Clone, Debug)]
struct Debt {
    publication: Rc<Publication>,
    /// The position may be after it.
    optional: bool,
}

/// A range of a stream, from exclusive, to inclusive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    pub(super) pubend: u64,
    pub(super) from: u64,
    pub(super) to: u64,
}

/// The present excuses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Circumstances {
    pub(super) now: Time,
    /// The client's Maximum Packet Size.
    pub(super) packet_maximum: usize,
    /// Whether the broker has room for everything that was ever published: nothing may be missing.
    pub(super) nothing_overwritten: bool,
}

/// The terms of a SUBSCRIBE.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    pub(super) grant: Grant,
    pub(super) notices: bool,
    /// Whether it receives the events that it missed while away.
    pub(super) keeps: bool,
    /// Whether its client keeps the position: deliveries in flight when the client goes are not
    /// sent again.
    pub(super) by_token: bool,
}

/// See the module's documentation.
#[derive(Clone, Debug)]
pub(super) struct Track {
    pub(super) terms: Terms,
    place: Place,
    /// By stream: the tick up to which it was told, by a delivery or a gap.
    told: BTreeMap<u64, u64>,
    owed: BTreeMap<u64, Debt>,
    delivered: BTreeSet<u64>,
    /// Whether it was given up: deliveries in flight may be completed or not.
    pub(super) ended: bool,
    /// Whether its client keeps the position, and has not named it since it returned.
    parked: bool,
}

/// Broken rules.
type Findings = Vec<(Rule, String)>;

impl Track {
    /// A subscription that begins at `place`, and is owed nothing yet.
    pub(super) fn new(terms: Terms, place: Place) -> Track {
        let (told, owed, delivered) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        Track { terms, place, told, owed, delivered, ended: false, parked: false }
    }

    /// An event was accepted that the subscription wants, published by the client `owner`.
    pub(super) fn owe(&mut self, publication: &Rc<Publication>, owner: &str) {
        let own = self.terms.grant.no_local && publication.publisher == owner;
        let known = self.owed.contains_key(&publication.no) || self.is_told(publication);
        if own || known || self.ended || !self.terms.grant.wants(&publication.message) {
            return;
        }
        let optional = self.place.high.covers(publication);
        self.owed.insert(publication.no, Debt { publication: publication.clone(), optional });
    }

    /// An accepted event has received its name; returns a complaint if it lies before what was
    /// told.
    pub(super) fn learn(&mut self, publication: &Publication) -> Option<String> {
        let name = publication.id.get()?;
        let debt = self.owed.get_mut(&publication.no)?;
        if self.place.low.covers(publication) {
            self.owed.remove(&publication.no);
            return None;
        }
        debt.optional |= self.place.high.covers(publication);
        let told = self.told(name.pubend);
        (name.tick <= told).then(|| format!("{} at {name:?} lies behind {told}, which was told", publication.name()))
    }

    /// Whether it lies before the position, was delivered, or is in a gap.
    fn is_told(&self, publication: &Publication) -> bool {
        let told = |name: &Name| name.tick <= self.told(name.pubend);
        self.place.low.covers(publication) || publication.id.get().is_some_and(told)
    }

    /// The tick up to which a stream was told.
    fn told(&self, pubend: u64) -> u64 {
        self.told.get(&pubend).copied().unwrap_or(0)
    }

    /// Removes the events of a stream before `to` (exclusive) from those owed, and finds missing
    /// ones.
    fn pass(&mut self, pubend: u64, to: u64, what: &str, circumstances: &Circumstances) -> Findings {
        let passed = |debt: &Debt| debt.publication.id.get().is_some_and(|n| n.pubend == pubend && n.tick < to);
        let gone: Vec<u64> = self.owed.iter().filter(|(_, debt)| passed(debt)).map(|(no, _)| *no).collect();
        let debts: Vec<Debt> = gone.iter().filter_map(|no| self.owed.remove(no)).collect();
        let missed = debts.iter().filter(|debt| self.must_come(debt, circumstances));
        // Without notices, subscriptions are not told of overwritten events.
        let strict = self.terms.notices || circumstances.nothing_overwritten;
        missed
            .filter(|_| strict)
            .map(|debt| (Rule::Hole, format!("{} is left out before {what}", debt.publication.name())))
            .collect()
    }

    fn must_come(&self, debt: &Debt, circumstances: &Circumstances) -> bool {
        let live = debt.publication.expires.is_none_or(|at| at > circumstances.now);
        let small = !debt.publication.may_exceed(circumstances.packet_maximum);
        let old = self.place.oldest.is_some_and(|no| debt.publication.no <= no);
        let forgotten = old && !circumstances.nothing_overwritten;
        !debt.optional && !self.ended && live && small && !forgotten
    }

    /// The subscription receives an event.
    pub(super) fn deliver(&mut self, publication: &Publication, circumstances: &Circumstances) -> Findings {
        let (what, name) = (publication.name(), *publication.id.get().expect("looked up by its name"));
        let told = self.told(name.pubend);
        if self.owed.remove(&publication.no).is_none() {
            let (rule, why) = self.diagnose(publication, told);
            return vec![(rule, format!("{what}, {name:?}: {why}"))];
        }
        let mut findings = self.pass(name.pubend, name.tick, &what, circumstances);
        if name.tick <= told {
            findings.push((Rule::Gap, format!("{what}, {name:?}, lies in a gap that was told, up to {told}")));
        }
        self.delivered.insert(publication.no);
        self.told.insert(name.pubend, name.tick.max(told));
        findings
    }

    /// Why an event is not owed.
    fn diagnose(&self, publication: &Publication, told: u64) -> (Rule, &'static str) {
        let name = publication.id.get().expect("looked up by its name");
        if self.delivered.contains(&publication.no) {
            (Rule::Duplicate, "delivered before")
        } else if !self.terms.grant.wants(&publication.message) {
            let topic = super::topic::matches(&self.terms.grant.filter, &publication.message.topic);
            if topic { (Rule::Selector, "not selected") } else { (Rule::Invented, "no such topic was asked for") }
        } else if self.place.low.covers(publication) {
            (Rule::Resumed, "lies behind where the subscription began")
        } else if name.tick <= told {
            (Rule::Hole, "comes after a later one of its stream, or lies in a gap that was told")
        } else {
            (Rule::Invented, "not owed")
        }
    }

    /// Whether an event is still owed.
    pub(super) fn owes(&self, publication: &Publication) -> bool {
        self.owed.contains_key(&publication.no)
    }

    /// The subscription is told that a range is missing; `is_guess`: because the broker had to
    /// guess where to begin.
    pub(super) fn gap(&mut self, range: Range, is_guess: bool, circumstances: &Circumstances) -> Findings {
        let Range { pubend, from, to } = range;
        let told = self.told(pubend);
        let mut findings = self.pass(pubend, from.saturating_add(1), &format!("the gap {range:?}"), circumstances);
        if from >= to {
            findings.push((Rule::Gap, format!("{range:?} is empty")));
        } else if to <= told || from < told && !is_guess {
            findings.push((Rule::Gap, format!("{range:?} tells again of what was told, up to {told}")));
        }
        if circumstances.nothing_overwritten && !is_guess {
            findings.push((Rule::Gap, format!("{range:?}, though the broker has room for everything")));
        }
        let inside = |debt: &Debt| debt.publication.id.get().is_some_and(|n| n.pubend == pubend && n.tick <= to);
        self.owed.retain(|_, debt| !inside(debt));
        self.told.insert(pubend, to.max(told));
        findings
    }

    /// As [`Track::standing`], for one that continues at its position: events that its client has
    /// not settled are after it.
    pub(super) fn standing_unsettled(&self, no: u64) -> Place {
        Place { low: self.place.low.clone(), ..self.standing(no) }
    }

    /// The position, given that everything up to `no` has been accepted: what was told, and
    /// unwanted events before the first one that is owed.
    pub(super) fn standing(&self, no: u64) -> Place {
        let mut place = self.place.clone();
        let first = self.owed.first_key_value().map(|(first, _)| first - 1);
        if place.oldest.is_none() {
            place.high.no = place.high.no.max(first.unwrap_or(no).min(no));
        }
        for (pubend, tick) in &self.told {
            place.raise(Name { pubend: *pubend, tick: *tick });
        }
        place
    }

    /// The first event that must still be delivered.
    pub(super) fn due(&self, circumstances: &Circumstances) -> Option<&Publication> {
        let due = |debt: &&Debt| self.must_come(debt, circumstances);
        let strict = self.terms.notices || circumstances.nothing_overwritten;
        self.owed.values().find(due).map(|debt| &*debt.publication).filter(|_| strict && !self.parked)
    }

    /// An event that must still be delivered, though it lies before another position.
    pub(super) fn left_out(&self, place: &Place, circumstances: &Circumstances) -> Option<String> {
        let behind = |debt: &&Debt| place.low.covers(&debt.publication) && self.must_come(debt, circumstances);
        let strict = self.terms.notices || circumstances.nothing_overwritten;
        self.owed.values().find(behind).map(|debt| debt.publication.name()).filter(|_| strict)
    }

    /// Told silence up to `tick`: no more than the delivered events were wanted. Returns the
    /// position then, and what is wrong about it.
    pub(super) fn silence(&self, tick: u64, circumstances: &Circumstances) -> (Place, Option<String>) {
        let mut place = self.standing(0);
        place.raise_all(tick);
        let earlier = |debt: &&Debt| debt.publication.id.get().is_some_and(|name| name.tick <= tick);
        let missed = self.owed.values().filter(earlier).find(|debt| self.must_come(debt, circumstances));
        (place, missed.map(|debt| format!("{} is still to come", debt.publication.name())))
    }

    /// The greatest number of bytes that may be waiting for it, if each event costs `overhead`
    /// beside its content.
    pub(super) fn waiting(&self, overhead: usize) -> usize {
        self.owed.values().map(|debt| debt.publication.weight() + overhead).sum()
    }

    /// Whether its client has returned, and has not named its position yet.
    pub(super) fn is_parked(&self) -> bool {
        self.parked
    }

    /// Its client continues without a position, from its last acknowledgement: where the
    /// subscription began.
    pub(super) fn restarted(self, terms: Terms) -> Track {
        Track::new(terms, self.place)
    }

    /// Its client has gone: a subscription that keeps nothing is owed nothing.
    pub(super) fn leave(&mut self) {
        self.parked = self.terms.by_token;
        if !self.terms.keeps {
            self.owed.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::OnceCell;

    use mqtt_protocol_core::mqtt::packet::Qos;

    use super::*;
    use crate::speech::Message;

    const CALM: Circumstances =
        Circumstances { now: Time::ZERO, packet_maximum: usize::MAX, nothing_overwritten: false };

    /// Events of two streams in turn, numbered from 1, at ticks that are ten times their numbers.
    fn events(count: u64) -> Vec<Rc<Publication>> {
        let event = |no: u64| {
            let message = Message::new("a", no.to_string());
            let id = OnceCell::from(Name { pubend: no % 2, tick: 10 * no });
            let (publisher, accepted) = ("p".to_owned(), Time::ZERO);
            Rc::new(Publication { no, message, accepted, expires: None, publisher, is_will: false, id })
        };
        (1..=count).map(event).collect()
    }

    fn track(place: Place) -> Track {
        let grant = Grant {
            filter: "a".to_owned(),
            qos: Qos::AtMostOnce,
            no_local: false,
            retain_as_published: false,
            identifier: 1,
            choice: None,
            tracked: true,
        };
        let mut track = Track::new(Terms { grant, notices: true, keeps: true, by_token: false }, place);
        events(8).iter().for_each(|event| track.owe(event, "c"));
        track
    }

    fn rules(findings: Findings) -> Vec<Rule> {
        findings.into_iter().map(|(rule, _)| rule).collect()
    }

    #[test]
    fn all_that_matched_in_the_order_of_each_stream_is_right() {
        let mut track = track(Place::default());
        for no in [1, 3, 2, 4, 5, 7, 6, 8] {
            assert_eq!(rules(track.deliver(&events(8)[no - 1], &CALM)), []);
        }
        assert!(track.due(&CALM).is_none());
    }

    #[test]
    fn a_hole_is_noticed_and_a_gap_explains_it() {
        let mut one = track(Place::default());
        assert_eq!(rules(one.deliver(&events(8)[2], &CALM)), [Rule::Hole], "1 is missing before 3");
        assert_eq!(rules(one.deliver(&events(8)[0], &CALM)), [Rule::Hole], "and comes too late");
        let mut other = track(Place::default());
        assert_eq!(rules(other.gap(Range { pubend: 1, from: 0, to: 45 }, false, &CALM)), []);
        assert_eq!(rules(other.deliver(&events(8)[4], &CALM)), []);
        assert_eq!(other.due(&CALM).map(|p| p.no), Some(2), "another stream");
    }

    #[test]
    fn gaps_do_not_tell_again_and_lie_before_what_follows() {
        let mut track = track(Place::default());
        let gap = |from, to| Range { pubend: 1, from, to };
        assert_eq!(rules(track.deliver(&events(8)[0], &CALM)), []);
        assert_eq!(rules(track.gap(gap(10, 10), false, &CALM)), [Rule::Gap], "empty");
        assert_eq!(rules(track.gap(gap(5, 20), false, &CALM)), [Rule::Gap], "1 was delivered");
        assert_eq!(rules(track.gap(gap(40, 60), false, &CALM)), [Rule::Hole], "3 is missing before it");
        assert_eq!(rules(track.deliver(&events(8)[4], &CALM)), [Rule::Hole], "5 lies in it");
        assert_eq!(rules(track.gap(gap(20, 60), false, &CALM)), [Rule::Gap], "all that was told");
        let roomy = Circumstances { nothing_overwritten: true, ..CALM };
        assert_eq!(rules(track.gap(gap(60, 70), false, &roomy)), [Rule::Gap], "there is room");
    }

    #[test]
    fn nothing_comes_twice_or_from_behind_the_place() {
        let mut place = Place::at(Bound::up_to(4));
        place.raise(Name { pubend: 1, tick: 50 });
        let mut track = track(place);
        assert_eq!(rules(track.deliver(&events(8)[4], &CALM)), [Rule::Resumed], "named");
        assert_eq!(rules(track.deliver(&events(8)[3], &CALM)), [Rule::Resumed], "accepted before");
        assert_eq!(rules(track.deliver(&events(8)[5], &CALM)), []);
        assert_eq!(rules(track.deliver(&events(8)[5], &CALM)), [Rule::Duplicate]);
    }

    #[test]
    fn a_place_that_is_not_known_excuses_but_keeps_the_order() {
        let mut one = track(Place::unknown(4));
        assert_eq!(rules(one.deliver(&events(8)[4], &CALM)), [], "1 and 3 may be missing");
        let mut other = track(Place::unknown(4));
        assert_eq!(rules(other.deliver(&events(8)[2], &CALM)), []);
        assert_eq!(rules(other.deliver(&events(8)[0], &CALM)), [Rule::Hole], "after a later one");
        assert_eq!(rules(other.deliver(&events(8)[6], &CALM)), [Rule::Hole], "5 was accepted later");
    }

    #[test]
    fn where_it_stands_is_behind_what_was_told_and_not_ahead_of_what_is_owed() {
        let mut one = track(Place::default());
        assert_eq!(rules(one.deliver(&events(8)[0], &CALM)), []);
        let mut again = track(one.standing(8));
        assert_eq!(rules(again.deliver(&events(8)[0], &CALM)), [Rule::Resumed]);
        assert_eq!(again.due(&CALM).map(|p| p.no), Some(2));
        one.owed.clear();
        assert!(track(one.standing(8)).due(&CALM).is_none(), "nothing was wanted up to there");
    }

    #[test]
    fn what_has_expired_or_is_too_large_may_be_missing() {
        let small = Circumstances { packet_maximum: 100, ..CALM };
        assert_eq!(rules(track(Place::default()).deliver(&events(8)[2], &small)), []);
        let mut events = events(8);
        Rc::get_mut(&mut events[0]).expect("held once").expires = Some(Time::ZERO);
        let mut track = track(Place::at(Bound::up_to(8)));
        track.place = Place::default();
        events.iter().for_each(|event| track.owe(event, "c"));
        assert_eq!(rules(track.deliver(&events[2], &CALM)), []);
    }

    #[test]
    fn names_are_read() {
        assert_eq!(Name::parse("gggggggggW2:ggggggggggx"), Some(Name { pubend: 0xab0, tick: 17 }));
        for text in ["", ":", "1", "1:", ":1", "g:1", "gggggggggW2:", "gggggggggW2:ggggggggggx:g"] {
            assert_eq!(Name::parse(text), None, "{text}");
        }
    }
}
