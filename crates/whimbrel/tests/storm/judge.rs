//! The judge: from what clients saw, what the broker owed them and did not do.
//!
//! It is a pure function of a [`Book`]. An event is *due* to a subscription if it was accepted, was
//! sent after the subscription had been granted, and satisfies every condition that may have been
//! in force when it was accepted. It *may* come if one of these conditions holds and it can have
//! been accepted while the subscription was asked for. What is due and did not come is lost; what
//! came and may not is unwanted.

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_client::{EventId, PubendId, Tick};

use crate::book::{Book, Condition, History, Keeper, Moment, NEVER, Name, Published, Seen};

/// Something that the broker must not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It was due, did not come, and no gap says so.
    Lost(Name),
    /// It was due and did not come, but a gap says so.
    Reported(Name),
    /// It came more often than this subscription's rule allows.
    Twice(Name),
    /// It came after one that was published or logged later.
    Disordered { event: Name, after: Name },
    /// It came although the subscription did not want it.
    Unwanted(Name),
    /// The broker had granted the subscription and forgot its session.
    Forgotten(Moment),
    /// The broker told a gap.
    Gap(String),
    /// Something came that no publisher had sent.
    Stray(String),
}

/// What is to be said of one subscription.
#[derive(Clone, Debug)]
pub struct Verdict {
    pub subscription: String,
    /// Events that were due.
    pub due: usize,
    /// Different events that came.
    pub delivered: usize,
    /// Deliveries beyond the first that the rule allows.
    pub repeated: usize,
    pub faults: Vec<Fault>,
}

impl Verdict {
    pub fn count(&self, kind: impl Fn(&Fault) -> bool) -> usize {
        self.faults.iter().filter(|fault| kind(fault)).count()
    }

    /// Events that are missing without a word.
    pub fn silent(&self) -> usize {
        self.count(|fault| matches!(fault, Fault::Lost(_)))
    }
}

/// Judges every subscription.
pub fn judge(book: &Book) -> Vec<Verdict> {
    let published: BTreeMap<Name, &Published> = book.published.iter().map(|event| (event.name, event)).collect();
    assert_eq!(published.len(), book.published.len(), "a publisher has used a number twice");
    let ticks = ticks(book);
    book.histories.iter().map(|history| Trial::new(history, &published, &ticks).judge()).collect()
}

/// Panics with all faults if there is one that `allowed` does not excuse.
pub fn demand(verdicts: &[Verdict], allowed: impl Fn(&Fault) -> bool) {
    let mut report = String::new();
    for verdict in verdicts {
        let faults: Vec<&Fault> = verdict.faults.iter().filter(|fault| !allowed(fault)).collect();
        if !faults.is_empty() {
            let shown = &faults[..faults.len().min(8)];
            report += &format!("{}: {} faults, first {shown:?}\n", verdict.subscription, faults.len());
        }
    }
    assert!(report.is_empty(), "\n{report}");
}

/// Under which ids any subscriber has seen an event.
type Ticks = BTreeMap<Name, BTreeSet<(PubendId, Tick)>>;

fn ticks(book: &Book) -> Ticks {
    let mut ticks = Ticks::new();
    for (_, seen) in book.histories.iter().flat_map(|history| &history.seen) {
        if let Seen::Delivered { name, id: Some(id) } = seen {
            ticks.entry(*name).or_default().insert((id.pubend, id.tick));
        }
    }
    ticks
}

/// A time in which a subscription was there.
#[derive(Debug)]
struct Era {
    asked: Moment,
    granted: Moment,
    /// When its end was asked for, and granted.
    leaving: Moment,
    left: Moment,
    /// What it asked for, when, and when that was granted.
    conditions: Vec<(Condition, Moment, Moment)>,
}

impl Era {
    /// The condition that was asked for last.
    fn asks_for(&self) -> Option<Condition> {
        self.conditions.last().map(|(condition, ..)| *condition)
    }

    /// The conditions that may have been in force at some moment from `first` to `last`.
    fn conditions(&self, first: Moment, last: Moment) -> impl Iterator<Item = Condition> {
        self.conditions.iter().enumerate().filter_map(move |(index, (condition, asked, _))| {
            let over = self.conditions.get(index + 1).map_or(NEVER, |(_, _, granted)| *granted);
            (*asked <= last && first <= over).then_some(*condition)
        })
    }

    fn may(&self, event: &Published) -> bool {
        event.first <= self.left
            && event.settled() >= self.asked
            && self.conditions(event.first, event.settled()).any(|condition| condition.holds(event))
    }

    fn must(&self, event: &Published) -> bool {
        event.is_accepted()
            && event.first > self.granted
            && event.settled() < self.leaving
            && self.conditions(event.first, event.settled()).all(|condition| condition.holds(event))
    }
}

fn eras(history: &History) -> Vec<Era> {
    let mut eras: Vec<Era> = Vec::new();
    for &(at, ref seen) in &history.seen {
        let open = eras.last_mut().filter(|era| era.left == NEVER);
        match (seen, open) {
            (Seen::Asked(condition), None) => {
                let conditions = vec![(*condition, at, NEVER)];
                eras.push(Era { asked: at, granted: NEVER, leaving: NEVER, left: NEVER, conditions });
            }
            (Seen::Asked(condition), Some(era)) if era.asks_for() != Some(*condition) => {
                era.conditions.push((*condition, at, NEVER));
            }
            (Seen::Granted, Some(era)) => {
                era.granted = era.granted.min(at);
                let (.., granted) = era.conditions.last_mut().expect("an era begins with one");
                *granted = at.min(*granted);
            }
            (Seen::Refused, Some(era)) if era.conditions.len() > 1 => {
                era.conditions.pop_if(|(_, _, granted)| *granted == NEVER);
            }
            (Seen::Leaving, Some(era)) => era.leaving = era.leaving.min(at),
            (Seen::Left, Some(era)) => era.left = at,
            _ => {}
        }
    }
    eras
}

/// An event that came: when first, and under which ids, each with the connection it came in last.
type Arrival = (Moment, Vec<(Option<EventId>, usize)>);

/// The first streams of a host, whose events are reliable; those of the others are not.
const RELIABLE: u8 = 4;

/// The last delivery of each stream, with its place in it.
type Order<S> = BTreeMap<S, (u64, Name)>;

/// One subscription before the judge.
struct Trial<'a> {
    history: &'a History,
    published: &'a BTreeMap<Name, &'a Published>,
    ticks: &'a Ticks,
    eras: Vec<Era>,
    came: BTreeMap<Name, Arrival>,
    gaps: Vec<(PubendId, Tick, Tick)>,
    repeated: usize,
    faults: Vec<Fault>,
}

impl<'a> Trial<'a> {
    fn new(history: &'a History, published: &'a BTreeMap<Name, &'a Published>, ticks: &'a Ticks) -> Trial<'a> {
        let eras = eras(history);
        let (came, gaps, faults) = (BTreeMap::new(), Vec::new(), Vec::new());
        Trial { history, published, ticks, eras, came, gaps, repeated: 0, faults }
    }

    fn judge(mut self) -> Verdict {
        self.deliveries();
        let due = self.missing();
        let (delivered, repeated) = (self.came.len(), self.repeated);
        let subscription = self.history.subscription.clone();
        Verdict { subscription, due, delivered, repeated, faults: self.faults }
    }

    /// Everything that came: may it, as often, in this order?
    fn deliveries(&mut self) {
        let mut connection = 0;
        let mut granted = false;
        // Of each stream in this connection; of each stream and of each publisher ever, first
        // deliveries alone.
        let (mut here, mut first, mut numbers) = (Order::new(), Order::new(), Order::new());
        for &(at, ref seen) in &self.history.seen {
            match seen {
                Seen::Connected { present } => {
                    connection += 1;
                    here.clear();
                    if granted && !present {
                        self.faults.push(Fault::Forgotten(at));
                    }
                }
                Seen::Granted => granted = true,
                Seen::Left => granted = false,
                Seen::Delivered { name, id } => {
                    let (name, id) = (*name, *id);
                    let is_new_event = !self.came.contains_key(&name);
                    let is_new_id = self.note(at, name, id, connection);
                    if let Some(id) = id {
                        self.in_order(&mut here, (id.pubend, id.tick.0), name);
                        if is_new_id {
                            self.in_order(&mut first, (id.pubend, id.tick.0), name);
                        }
                    }
                    if is_new_event && !self.may_have_been_unwanted(name) {
                        self.in_order(&mut numbers, (name.publisher, name.number.into()), name);
                    }
                }
                // Of what is not reliable nothing was promised.
                Seen::Gap { pubend, .. } if pubend.index() >= RELIABLE => {}
                Seen::Gap { pubend, from, to, reason } => {
                    self.gaps.push((*pubend, *from, *to));
                    self.faults.push(Fault::Gap(format!("{reason} in {pubend} after {} up to {}", from.0, to.0)));
                }
                Seen::Stray(what) => self.faults.push(Fault::Stray(what.clone())),
                Seen::Asked(_) | Seen::Refused | Seen::Leaving => {}
            }
        }
    }

    /// Compares a delivery with what came before it in a stream, of which it has a place.
    fn in_order<S: Ord + Copy>(&mut self, last: &mut Order<S>, (stream, place): (S, u64), event: Name) {
        if let Some((_, after)) = last.get(&stream).filter(|(at, _)| *at > place) {
            let after = *after;
            self.faults.push(Fault::Disordered { event, after });
        }
        last.insert(stream, (place, event));
    }

    /// It may have become several events, of which the first ones did not satisfy the condition of
    /// that time: it may come as late as the last one.
    fn may_have_been_unwanted(&self, name: Name) -> bool {
        let conditions: usize = self.eras.iter().map(|era| era.conditions.len()).sum();
        conditions > 1 && self.published.get(&name).is_some_and(|event| event.copies() > 1)
    }

    /// Notes a delivery; whether it is the first one of this id.
    fn note(&mut self, at: Moment, name: Name, id: Option<EventId>, connection: usize) -> bool {
        let event = self.published.get(&name);
        let wanted = event.is_some_and(|event| {
            self.history.filter.matches(&event.topic) && self.eras.iter().any(|era| at >= era.asked && era.may(event))
        });
        if !wanted {
            self.faults.push(Fault::Unwanted(name));
        }
        let copies = event.map_or(0, |event| event.copies());
        let at_least_once = match self.history.keeper {
            Keeper::Client => false,
            Keeper::ExactlyOnce => event.is_some_and(|event| !event.qos2),
            Keeper::AtLeastOnce => true,
        };
        let (_, ids) = self.came.entry(name).or_insert((at, Vec::new()));
        match ids.iter_mut().find(|(known, _)| *known == id) {
            Some((_, last)) => {
                if at_least_once && *last < connection {
                    self.repeated += 1;
                } else {
                    self.faults.push(Fault::Twice(name));
                }
                *last = connection;
                false
            }
            None => {
                ids.push((id, connection));
                if wanted && ids.len() > copies {
                    self.faults.push(Fault::Twice(name));
                }
                true
            }
        }
    }

    /// What was due and did not come; gives how much was due.
    fn missing(&mut self) -> usize {
        let mut due = 0;
        for event in self.published.values() {
            if !self.history.filter.matches(&event.topic) {
                continue;
            }
            let Some(era) = self.eras.iter().find(|era| era.must(event)) else { continue };
            due += 1;
            if self.came.contains_key(&event.name) || !self.is_owed(era, event.name) {
                continue;
            }
            let fault = if self.is_told(event.name) { Fault::Reported } else { Fault::Lost };
            self.faults.push(fault(event.name));
        }
        due
    }

    /// A subscriber that leaves gives up what is still to come: then an event is missing only if a
    /// later one of its publisher came before.
    fn is_owed(&self, era: &Era, name: Name) -> bool {
        let last = Name { number: u32::MAX, ..name };
        era.leaving == NEVER || self.came.range(name..=last).any(|(_, (at, _))| *at < era.leaving)
    }

    /// Whether a gap tells that it is missing: it covers the event's tick, or where no client saw
    /// that, a part of the stream between its publisher's events before and after.
    fn is_told(&self, name: Name) -> bool {
        if let Some(ids) = self.ticks.get(&name) {
            let is_covered = |(pubend, tick): &(PubendId, Tick)| {
                self.gaps.iter().any(|(of, from, to)| of == pubend && from < tick && tick <= to)
            };
            return ids.iter().any(is_covered);
        }
        let (least, last) = (Name { number: 0, ..name }, Name { number: u32::MAX, ..name });
        let before = self.ticks.range(least..name).next_back().and_then(|(_, ids)| ids.first());
        let after = self.ticks.range(name..=last).next().and_then(|(_, ids)| ids.last());
        self.gaps.iter().any(|(of, from, to)| {
            before.is_none_or(|(pubend, tick)| of == pubend && tick < to)
                && after.is_none_or(|(pubend, tick)| of == pubend && from < tick)
                && (before.is_some() || after.is_some())
        })
    }
}
