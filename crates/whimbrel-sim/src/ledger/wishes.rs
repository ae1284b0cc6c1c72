//! The requests of a session, with their times: which of its requests may decide about an event,
//! and which must.
//!
//! A request counts from when it was sent at the earliest and from its answer at the latest, until
//! a later one for the same filter has been answered. So for an event that was published after one
//! step and accepted before another, several requests may count; where all of them agree, the
//! broker's duty is known.

use std::collections::BTreeMap;

use mqtt_protocol_core::mqtt::packet::Qos;

use crate::check::topic::matches;
use crate::choice::Choice;
use crate::speech::{Message, Wanted};

/// One request for a filter.
#[derive(Clone, Debug)]
pub(super) struct Wish {
    /// The request's number in its world.
    number: u64,
    choice: Option<Choice>,
    identifier: u32,
    no_local: bool,
    /// Whether the subscription is of a kind that a durable session makes durable, and its session
    /// keeps the position.
    is_lasting: bool,
    asked: u64,
    confirmed: Option<u64>,
    ended: Option<u64>,
    /// Whether it was given up, or is to be.
    given_up: bool,
}

/// An event, as selectors see it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event<'a> {
    pub(super) message: &'a Message,
    /// Its publisher's client id.
    pub(super) publisher: &'a str,
    /// The step at which it was published.
    pub(super) published: u64,
    /// The step by which it was accepted.
    pub(super) accepted: u64,
}

impl Wish {
    pub(super) fn new(
        (number, step): (u64, u64),
        wanted: &Wanted,
        (identifier, choice): (u32, Option<Choice>),
        is_followed: bool,
    ) -> Self {
        let is_lasting = wanted.qos != Qos::AtMostOnce && !wanted.filter.starts_with("$share") && !is_followed;
        let no_local = wanted.no_local;
        Wish {
            number,
            choice,
            identifier,
            no_local,
            is_lasting,
            asked: step,
            confirmed: None,
            ended: None,
            given_up: false,
        }
    }

    fn selects(&self, event: &Event<'_>) -> bool {
        self.choice.is_none_or(|choice| choice.wants(event.message))
    }

    /// Whether it may be the request that decides about an event.
    fn may_count(&self, event: &Event<'_>) -> bool {
        self.asked <= event.accepted && self.ended.is_none_or(|ended| ended >= event.published)
    }
}

/// All requests of a session, by filter.
#[derive(Clone, Default, Debug)]
pub(super) struct Wishes(BTreeMap<String, Vec<Wish>>);

impl Wishes {
    pub(super) fn ask(&mut self, text: &str, wish: Wish) {
        self.0.entry(text.to_owned()).or_default().push(wish);
    }

    /// A request is granted: earlier ones count no more.
    pub(super) fn confirm(&mut self, text: &str, number: u64, step: u64) {
        let Some(wishes) = self.0.get_mut(text) else { return };
        for wish in wishes {
            if wish.number < number {
                wish.ended.get_or_insert(step);
            } else if wish.number == number {
                wish.confirmed = Some(step);
            }
        }
    }

    /// A request is refused.
    pub(super) fn refuse(&mut self, text: &str, number: u64) {
        if let Some(wishes) = self.0.get_mut(text) {
            wishes.retain(|wish| wish.number != number);
        }
    }

    /// The client gives a filter up: how long its requests count, and which of them was the first,
    /// is unknown.
    pub(super) fn give_up(&mut self, text: &str) {
        self.0.get_mut(text).into_iter().flatten().for_each(|wish| (wish.confirmed, wish.given_up) = (None, true));
    }

    /// How long a filter's requests count is unknown from now on.
    pub(super) fn doubt(&mut self, text: &str) {
        self.0.get_mut(text).into_iter().flatten().for_each(|wish| wish.confirmed = None);
    }

    /// As [`Wishes::doubt`], for all filters.
    pub(super) fn doubt_all(&mut self) {
        self.0.values_mut().flatten().for_each(|wish| wish.confirmed = None);
    }

    /// Requests before a given one count no more.
    pub(super) fn end(&mut self, text: &str, number: u64, step: u64) {
        let old = self.0.get_mut(text).into_iter().flatten().filter(|wish| wish.number < number);
        old.for_each(|wish| _ = wish.ended.get_or_insert(step));
    }

    /// Filters with a subscription that certainly exists.
    pub(super) fn confirmed(&self) -> impl Iterator<Item = &str> {
        let lives = |wish: &Wish| wish.confirmed.is_some() && wish.ended.is_none();
        self.0.iter().filter(move |(_, wishes)| wishes.iter().any(lives)).map(|(text, _)| &**text)
    }

    /// Whether a subscription has had more than one selector.
    pub(super) fn has_changed(&self, text: &str) -> bool {
        self.0.get(text).is_some_and(|wishes| wishes.windows(2).any(|pair| pair[0].choice != pair[1].choice))
    }

    /// Filters that match a topic.
    pub(super) fn matching<'a>(&'a self, topic: &'a str) -> impl Iterator<Item = &'a str> {
        let matches = |text: &str| matches(text.strip_prefix("$share/g/").unwrap_or(text), topic);
        self.0.keys().map(|text| &**text).filter(move |text| matches(text))
    }

    /// The filter for which a message was sent under these identifiers, if there is only one
    /// candidate.
    pub(super) fn resolve(&self, topic: &str, identifiers: &[u32]) -> Option<String> {
        let fits = |wish: &Wish| match identifiers {
            [] => wish.identifier == 0,
            known => known.contains(&wish.identifier),
        };
        let mut texts = self.matching(topic).filter(|text| self.0[*text].iter().any(fits));
        let first = texts.next()?;
        texts.next().is_none().then(|| first.to_owned())
    }

    /// Whether a subscription may receive an event.
    pub(super) fn may(&self, who: &str, text: &str, event: &Event<'_>) -> bool {
        // An event given to a shared subscription waits for members that join later.
        let is_shared = text.starts_with("$share");
        let Some(wishes) = self.0.get(text) else { return false };
        let mut counts = wishes.iter().filter(|wish| is_shared || wish.may_count(event));
        counts.any(|wish| wish.selects(event)) && Locality::of(wishes, who, event).may
    }

    /// Whether a subscription must receive an event that was published when it certainly existed.
    pub(super) fn must(&self, who: &str, text: &str, event: &Event<'_>) -> bool {
        let Some(wishes) = self.0.get(text) else { return false };
        let mut counts = wishes.iter().filter(|wish| wish.may_count(event));
        let Some(first) = counts.next() else { return false };
        let is_sure = first.confirmed.is_some_and(|confirmed| confirmed < event.published);
        is_sure
            && std::iter::once(first).chain(counts).all(|wish| wish.is_lasting && wish.selects(event))
            && Locality::of(wishes, who, event).must
    }

    /// As [`Wishes::may`], for a subscription that also receives earlier events: these are judged
    /// by its first request. When an unlogged event came relative to requests is unknown.
    pub(super) fn may_resume(&self, who: &str, text: &str, event: &Event<'_>, is_logged: bool) -> bool {
        let Some(wishes) = self.0.get(text) else { return false };
        if !Locality::of(wishes, who, event).may {
            return false;
        }
        if !is_logged || wishes.iter().any(|wish| wish.given_up) {
            return wishes.iter().any(|wish| wish.selects(event));
        }
        let first = wishes.iter().find(|wish| wish.asked > event.accepted);
        first.is_some_and(|first| first.selects(event)) || self.may(who, text, event)
    }

    /// Whether a subscription ever had a selector that wants an event.
    pub(super) fn may_ever(&self, who: &str, text: &str, event: &Event<'_>) -> bool {
        let Some(wishes) = self.0.get(text) else { return false };
        wishes.iter().any(|wish| wish.selects(event)) && Locality::of(wishes, who, event).may
    }

    /// Whether a subscription that also receives earlier events certainly wants an event.
    pub(super) fn must_resume(&self, who: &str, text: &str, event: &Event<'_>, is_logged: bool) -> bool {
        let Some(wishes) = self.0.get(text) else { return false };
        if !Locality::of(wishes, who, event).must {
            return false;
        }
        if !is_logged || wishes.iter().any(|wish| wish.given_up) {
            return wishes.iter().all(|wish| wish.selects(event));
        }
        let mut counts = wishes.iter().filter(|wish| wish.may_count(event)).peekable();
        match counts.peek() {
            Some(_) => counts.all(|wish| wish.selects(event)),
            None => wishes.iter().find(|wish| wish.asked > event.accepted).is_some_and(|first| first.selects(event)),
        }
    }
}

/// Whether No Local lets a session have an event. Unlike selectors it counts when the event is
/// sent: each request that counted for the event, and each later one, may decide.
struct Locality {
    may: bool,
    must: bool,
}

impl Locality {
    fn of(wishes: &[Wish], who: &str, event: &Event<'_>) -> Locality {
        if who != event.publisher {
            return Locality { may: true, must: true };
        }
        let first = wishes.iter().position(|wish| wish.may_count(event)).unwrap_or(0);
        let mut deciding = wishes[first..].iter().map(|wish| !wish.no_local);
        Locality { must: deciding.clone().all(|takes| takes), may: deciding.any(|takes| takes) }
    }
}
