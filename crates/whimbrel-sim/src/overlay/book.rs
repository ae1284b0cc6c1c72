//! The book of a world of many brokers: it sees what clients say and hear, and nothing else, and knows what was promised.
//!
//! What a broker accepts is seen by the witness there, which tells the event's name. A subscription is followed from its SUBACK on; one that
//! is semi-durable also from broker to broker.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use mqtt_protocol_core::mqtt::packet::Qos;
use whimbrel_event::Time;

use super::client::{Class, Deed, Wish};
use crate::check::notice::{self, Notice};
use crate::check::topic;
use crate::speech::{Ack, Heard, Message, Said, user_properties};

/// How long a SUBSCRIBE may wait for other brokers, and a little.
const ANSWER_MAX: Duration = Duration::from_millis(1_050);

/// How long an event takes at most when all is well.
pub const ARRIVE_MAX: Duration = Duration::from_secs(8);

/// Violations that are told; more of them are counted only.
const VIOLATIONS_MAX: usize = 20;

/// What was promised.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Rule {
    /// Nothing comes twice on one subscription.
    Duplicate,
    /// What comes of one stream is in the order of its ticks.
    Order,
    /// What comes was asked for, and is what was published.
    Unwanted,
    /// What was accepted after the SUBACK comes, or a gap is told.
    Lost,
    /// When all is well, everything comes soon.
    Late,
    /// All brokers retain the same, and nothing older than what was accepted.
    Retained,
    /// Nothing travels to a broker that wants nothing of the kind.
    Interest,
    /// What waits between brokers is bounded.
    Bounds,
    /// Clients are answered.
    Answer,
}

/// One promise that was broken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Which.
    pub rule: Rule,
    /// How.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.rule, self.what)
    }
}

/// What was seen.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Events that were published.
    pub published: u64,
    /// Deliveries.
    pub delivered: u64,
    /// Deliveries of events of another broker.
    pub remote: u64,
    /// Gaps that were told.
    pub gaps: u64,
    /// Events that had to come, and did not as a gap was told.
    pub excused: u64,
    /// Events that had to come, and did.
    pub due: u64,
    /// Subscriptions that went on at another place or time.
    pub returned: u64,
    /// SUBACKs that named brokers.
    pub pending: u64,
}

/// A process: its machine, and which of that machine's.
pub(super) type Process = (usize, u32);

/// An event's name: its stream and tick.
type Name = (u64, u64);

struct Fact {
    key: String,
    message: Message,
    at: Process,
    sent: Time,
    is_answered: bool,
    name: Option<Name>,
}

struct Following {
    client: String,
    class: Class,
    wish: Wish,
    at: Process,
    asked: (Time, u16),
    /// When the first SUBACK came.
    began: Option<Time>,
    /// Brokers that the first SUBACK named.
    pending: Vec<String>,
    /// It is answered where it is now.
    is_answered: bool,
    is_over: bool,
    got: BTreeMap<usize, Time>,
    /// The same in order, with the place behind the notices.
    order: Vec<usize>,
    gaps: Vec<(u64, u64, u64)>,
    /// The last tick that was told of each stream, by event or gap.
    last: BTreeMap<u64, u64>,
    /// The same by event alone: what a gap hid may be found when the subscription goes on elsewhere.
    named: BTreeMap<u64, u64>,
}

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Book {
    facts: Vec<Fact>,
    by_key: BTreeMap<String, usize>,
    followings: Vec<Following>,
    /// The latest of each client.
    current: BTreeMap<usize, usize>,
    unanswered: BTreeMap<(usize, u16), usize>,
    ended: BTreeSet<Process>,
    /// What collectors got: by machine, then topic.
    retained: BTreeMap<usize, BTreeMap<String, String>>,
    /// Caches are so small that what nobody is told of may be overwritten before it is asked for.
    pub(super) is_tiny: bool,
    pub(super) counts: Counts,
    pub(super) violations: Vec<Violation>,
    pub(super) broken: u64,
}

fn key_of(message: &Message) -> String {
    let text = String::from_utf8_lossy(&message.payload[..message.payload.len().min(64)]);
    text.split(' ').next().unwrap_or_default().to_owned()
}

fn name_of(message: &Message) -> Option<Name> {
    let (stream, tick) = message.user_property("w-id")?.split_once(':')?;
    Some((u64::from_str_radix(stream, 16).ok()?, tick.parse().ok()?))
}

impl Book {
    pub(super) fn breaks(&mut self, rule: Rule, what: String) {
        self.broken += 1;
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push(Violation { rule, what });
        }
    }

    /// A process is gone.
    pub(super) fn crashed(&mut self, process: Process) {
        self.ended.insert(process);
    }

    /// A subscriber does or hears something at a process.
    pub(super) fn note(&mut self, now: Time, (client, name): (usize, &str), at: Process, deed: Deed) {
        match deed {
            Deed::Said(Said::Publish(message)) => self.published(now, client, at, message),
            Deed::Said(_) => {}
            Deed::Subscribes { id, class, wish, goes_on } => {
                let known = self.current.get(&client).copied();
                if let Some(known) = known.filter(|_| goes_on) {
                    let following = &mut self.followings[known];
                    (following.at, following.asked, following.is_answered) = (at, (now, id), false);
                    following.last = following.named.clone();
                    self.counts.returned += 1;
                    return;
                }
                self.end(client);
                self.current.insert(client, self.followings.len());
                self.followings.push(Following {
                    client: name.to_owned(),
                    class,
                    wish,
                    at,
                    asked: (now, id),
                    began: None,
                    pending: Vec::new(),
                    is_answered: false,
                    is_over: false,
                    got: BTreeMap::new(),
                    order: Vec::new(),
                    gaps: Vec::new(),
                    last: BTreeMap::new(),
                    named: BTreeMap::new(),
                });
            }
            Deed::Unsubscribes | Deed::Gone => {
                if let Some(known) = self.current.get(&client) {
                    let following = &mut self.followings[*known];
                    following.is_answered = false;
                    if following.class != Class::SemiDurable {
                        self.end(client);
                    }
                }
            }
            Deed::Heard(heard) => self.heard(now, client, at, heard),
        }
    }

    fn end(&mut self, client: usize) {
        if let Some(known) = self.current.remove(&client) {
            self.followings[known].is_over = true;
        }
    }

    fn published(&mut self, now: Time, client: usize, at: Process, message: Message) {
        self.counts.published += 1;
        let number = self.facts.len();
        if message.qos != Qos::AtMostOnce {
            self.unanswered.insert((client, message.id), number);
        }
        let key = key_of(&message);
        self.by_key.insert(key.clone(), number);
        self.facts.push(Fact { key, message, at, sent: now, is_answered: false, name: None });
    }

    fn heard(&mut self, now: Time, client: usize, at: Process, heard: Heard) {
        match heard {
            Heard::Ack { ack: Ack::Puback | Ack::Pubcomp, id, code } => {
                let Some(fact) = self.unanswered.remove(&(client, id)) else { return };
                if code < 0x80 {
                    self.facts[fact].is_answered = true;
                } else {
                    self.breaks(Rule::Answer, format!("a publish is refused with {code:02x}"));
                }
            }
            Heard::Suback { id, codes, properties } => {
                let Some(following) = self.current.get(&client) else { return };
                let following = &mut self.followings[*following];
                if following.asked.1 != id || following.at != at {
                    return;
                }
                following.is_answered = true;
                let waited = now.since(following.asked.0);
                let who = following.client.clone();
                let named: Vec<String> = user_properties(&properties)
                    .into_iter()
                    .filter(|(name, _)| name == "w-pending")
                    .map(|p| p.1)
                    .collect();
                self.counts.pending += u64::from(!named.is_empty());
                if following.began.is_none() {
                    (following.began, following.pending) = (Some(now), named);
                }
                if codes.iter().any(|code| *code >= 0x80) {
                    self.breaks(Rule::Answer, format!("{who} is refused: {codes:02x?}"));
                }
                if waited > ANSWER_MAX {
                    self.breaks(Rule::Answer, format!("{who} waits {waited:?} for its SUBACK"));
                }
            }
            Heard::Publish(message) => {
                if let Some(following) = self.current.get(&client).copied() {
                    self.delivered(now, following, at, &message);
                }
            }
            _ => {}
        }
    }

    /// The witness at a broker hears of an event there.
    pub(super) fn witnessed(&mut self, at: Process, message: &Message) {
        if message.topic == notice::TOPIC {
            if let Ok(Notice::Gap { .. }) = Notice::parse(&message.payload) {
                self.counts.gaps += 1;
            }
            return;
        }
        let key = key_of(message);
        let Some(fact) = self.by_key.get(&key).copied() else {
            return self.breaks(Rule::Unwanted, format!("the witness of {at:?} gets {key}, which nobody published"));
        };
        let fact = &mut self.facts[fact];
        let (is_there, seen) = (fact.at == at, fact.name.is_some());
        fact.name = name_of(message);
        if !is_there || seen {
            self.breaks(
                Rule::Duplicate,
                format!("the witness of {at:?} gets {key} again, or it was published elsewhere"),
            );
        }
    }

    /// A collector gets what is retained.
    pub(super) fn collected(&mut self, node: usize, message: &Message) {
        if message.retain {
            self.retained.entry(node).or_default().insert(message.topic.clone(), key_of(message));
        }
    }

    fn delivered(&mut self, now: Time, following: usize, at: Process, message: &Message) {
        let of = &mut self.followings[following];
        let who = format!("{} ({:?})", of.client, of.class);
        if message.topic == notice::TOPIC {
            match Notice::parse(&message.payload) {
                Ok(Notice::Gap { pubend, from, to, .. }) => {
                    self.counts.gaps += 1;
                    of.gaps.push((pubend, from, to));
                    let last = of.last.entry(pubend).or_default();
                    *last = to.max(*last);
                }
                Ok(Notice::Silence { .. }) => {}
                Err(why) => {
                    return self.breaks(Rule::Unwanted, format!("{who} gets a notice that makes no sense: {why}"));
                }
            }
            return;
        }
        let key = key_of(message);
        let Some(number) = self.by_key.get(&key).copied() else {
            return self.breaks(Rule::Unwanted, format!("{who} gets {key}, which nobody published"));
        };
        self.counts.delivered += 1;
        let fact = &self.facts[number];
        self.counts.remote += u64::from(fact.at != at);
        let is_same = fact.message.topic == message.topic && fact.message.payload == message.payload;
        if !is_same || !wants(&of.wish, &fact.message) {
            let what = format!("{who} gets {key}, and wants {:?}", of.wish);
            return self.breaks(Rule::Unwanted, what);
        }
        if of.got.insert(number, now).is_some() {
            return self.breaks(Rule::Duplicate, format!("{who} gets {key} again"));
        }
        of.order.push(number);
        if of.class == Class::Plain {
            return;
        }
        let Some((stream, tick)) = name_of(message) else {
            return self.breaks(Rule::Order, format!("{who} is not told the name of {key}"));
        };
        let last = of.last.entry(stream).or_default();
        let before = core::mem::replace(last, tick.max(*last));
        of.named.insert(stream, tick);
        if tick <= before {
            self.breaks(Rule::Order, format!("{who} gets {key} ({stream:x}:{tick}) after {before}"));
        }
    }

    /// The world is over: what had to come has come. `probes` is when all had been well for a while.
    pub(super) fn close(&mut self, now: Time, names: &[String], probes: Time) {
        let lacking: Vec<(usize, u16)> = self
            .unanswered
            .iter()
            .filter(|(_, fact)| !self.is_ended(self.facts[**fact].at))
            .map(|(key, _)| *key)
            .collect();
        for (client, id) in lacking {
            self.breaks(Rule::Answer, format!("client {client} gets no answer to its publish {id}"));
        }
        for number in 0..self.followings.len() {
            self.check_order(number);
            let following = &self.followings[number];
            if following.is_over || self.is_ended(following.at) {
                continue;
            }
            if !following.is_answered {
                let text = format!("{} gets no SUBACK", following.client);
                if now.since(following.asked.0) > ANSWER_MAX {
                    self.breaks(Rule::Answer, text);
                }
                continue;
            }
            for fact in 0..self.facts.len() {
                self.check_arrival(number, fact, names, probes);
            }
        }
        self.check_retained();
    }

    fn is_ended(&self, process: Process) -> bool {
        self.ended.contains(&process)
    }

    /// Names of events are known from the witnesses; so the order is looked at also where the subscription does not tell names.
    fn check_order(&mut self, number: usize) {
        let mut last: BTreeMap<u64, u64> = BTreeMap::new();
        let mut broken = Vec::new();
        let following = &self.followings[number];
        for fact in &following.order {
            let Some((stream, tick)) = self.facts[*fact].name else { continue };
            let before = last.insert(stream, tick).unwrap_or(0);
            if tick <= before {
                broken.push(format!(
                    "{} ({:?}) gets {} out of order",
                    following.client, following.class, self.facts[*fact].key
                ));
            }
        }
        for what in broken {
            self.breaks(Rule::Order, what);
        }
    }

    fn check_arrival(&mut self, number: usize, fact: usize, names: &[String], probes: Time) {
        let (following, of) = (&self.followings[number], &self.facts[fact]);
        let Some(began) = following.began else { return };
        let is_probe = of.sent >= probes;
        let is_promised = of.is_answered && of.sent > began && !self.ended.contains(&of.at);
        let is_named = |name: &String| *name == names[of.at.0] || *name == whimbrel_core::NOBODY_YET;
        let is_pending = !is_probe && following.pending.iter().any(is_named);
        if !is_promised || is_pending || !wants(&following.wish, &of.message) {
            return;
        }
        let who = format!("{} ({:?}, at {:?}, since {:?})", following.client, following.class, following.at, began);
        let what = format!("{} of {:?}, sent at {:?}", of.key, of.at, of.sent);
        match following.got.get(&fact) {
            Some(at) => {
                self.counts.due += 1;
                let took = at.since(of.sent);
                if is_probe && took > ARRIVE_MAX {
                    self.breaks(Rule::Late, format!("{who} gets {what} after {took:?}"));
                }
            }
            None => {
                let is_excused = of.name.is_some_and(|(stream, tick)| {
                    following
                        .gaps
                        .iter()
                        .any(|(pubend, from, to)| *pubend == stream && (*from + 1..=*to).contains(&tick))
                });
                self.counts.excused += u64::from(is_excused);
                let rule = if is_probe { Rule::Late } else { Rule::Lost };
                // Who is not told of gaps may have some.
                let is_silent = self.is_tiny && following.class == Class::Plain;
                if !is_excused && !is_silent || is_probe {
                    let name = of.name.map(|(stream, tick)| format!("{stream:x}:{tick}"));
                    self.breaks(rule, format!("{who} does not get {what}, {name:?}"));
                }
            }
        }
    }

    fn check_retained(&mut self) {
        let mut all = core::mem::take(&mut self.retained).into_iter();
        let Some((first, retained)) = all.next() else { return };
        let mut broken = Vec::new();
        for (other, others) in all {
            if retained != others {
                broken.push(format!("broker {first} retains {retained:?}, broker {other} {others:?}"));
            }
        }
        let version = |key: &str| {
            let fact = &self.facts[*self.by_key.get(key)?];
            fact.name.map(|(stream, tick)| (tick, stream))
        };
        for fact in &self.facts {
            if !fact.message.retain || !fact.is_answered || self.ended.contains(&fact.at) {
                continue;
            }
            let present = retained.get(&fact.message.topic);
            let is_older =
                present.is_none_or(|key| version(key).is_some_and(|present| Some(present) < version(&fact.key)));
            if is_older {
                broken.push(format!("{present:?} is retained of {}, and {} is newer", fact.message.topic, fact.key));
            }
        }
        for what in broken {
            self.breaks(Rule::Retained, what);
        }
    }
}

fn wants(wish: &Wish, message: &Message) -> bool {
    topic::matches(&wish.filter, &message.topic) && wish.choice.is_none_or(|choice| choice.wants(message))
}
