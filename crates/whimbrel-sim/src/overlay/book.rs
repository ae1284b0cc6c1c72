//! The book of a world of many brokers: it sees only what clients send and receive, and knows what
//! was promised.
//!
//! The witness at a broker sees what that broker accepts, and learns the names of events. A
//! subscription is followed from its SUBACK on; a semi-durable one also from broker to broker.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use mqtt_protocol_core::mqtt::packet::Qos;
use whimbrel_event::Time;

use super::client::{Class, KEY, Wish};
use super::deed::Deed;
use crate::check::notice::{self, Notice};
use crate::check::topic;
use crate::speech::{Ack, Heard, Message, Said, event_name, user_properties};

/// How long a SUBSCRIBE may wait for other brokers, with a margin.
pub(super) const ANSWER_MAX: Duration = Duration::from_millis(1_050);

/// How much longer a SUBSCRIBE may wait until it is written.
pub(super) const WRITE_MAX: Duration = Duration::from_millis(500);

/// How long an event takes at most when all is well.
pub const ARRIVE_MAX: Duration = Duration::from_secs(8);

/// The number of violations that are kept as text, at most.
const VIOLATIONS_MAX: usize = 20;

/// A promise to clients.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Rule {
    /// No event is delivered twice on one subscription.
    Duplicate,
    /// Events of one stream are delivered in the order of its ticks.
    Order,
    /// A delivered message was asked for, and is as it was published.
    Unwanted,
    /// An event that was accepted after the SUBACK is delivered, or a gap is told.
    Lost,
    /// When all is well, every event is delivered within `ARRIVE_MAX`.
    Late,
    /// No event is told to be overdue that was delivered before.
    Overdue,
    /// All brokers retain the same messages, and none older than what was accepted.
    Retained,
    /// No event travels to a broker without interest in it.
    Interest,
    /// Queues between brokers are bounded.
    Bounds,
    /// Clients receive answers.
    Answer,
    /// A session exists as long as a broker has it.
    Session,
    /// A newer connection of a client ends the older one.
    Takeover,
    /// Each event is logged once.
    Logged,
}

/// One promise that was broken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// The rule that was broken.
    pub rule: Rule,
    /// A description of the violation.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.rule, self.what)
    }
}

/// The counters of one world.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Events that were published.
    pub published: u64,
    /// Deliveries.
    pub delivered: u64,
    /// Deliveries of events of another broker.
    pub remote: u64,
    /// Gaps that clients were told of.
    pub gaps: u64,
    /// Events that clients were told to be overdue.
    pub overdue: u64,
    /// Events that had to be delivered, and were not, as a gap was told.
    pub excused: u64,
    /// Events that had to be delivered, and were.
    pub due: u64,
    /// Subscriptions that continued at another place or time.
    pub returned: u64,
    /// SUBACKs that named brokers as pending.
    pub pending: u64,
    /// Publishes that clear a retained message.
    pub clearing: u64,
    /// Sessions that continued after a connection or a process ended.
    pub resumed: u64,
    /// Events that had to be delivered, were, and had been accepted by a process that ended.
    pub survived: u64,
    /// Deliveries of [`Qos::AtLeastOnce`] that were repeated.
    pub repeated: u64,
}

/// A process: its machine, and its incarnation there.
pub(super) type Process = (usize, u32);

/// An event's name: its stream and tick.
type Name = (u64, u64);

pub(super) struct Fact {
    pub(super) key: String,
    pub(super) message: Message,
    pub(super) at: Process,
    pub(super) sent: Time,
    /// What the clock of the broker showed then.
    pub(super) shown: Time,
    pub(super) is_answered: bool,
    pub(super) name: Option<Name>,
}

pub(super) struct Following {
    pub(super) client: String,
    pub(super) class: Class,
    pub(super) wish: Wish,
    pub(super) at: Process,
    pub(super) asked: (Time, u16),
    /// When the first SUBACK arrived.
    pub(super) began: Option<Time>,
    /// The brokers that the first SUBACK named as pending.
    pub(super) pending: Vec<String>,
    /// Whether its SUBSCRIBE was answered at its present broker.
    pub(super) is_answered: bool,
    pub(super) is_over: bool,
    /// By event: when it was first delivered, and the incarnation of the broker that delivered it
    /// last.
    pub(super) got: BTreeMap<usize, (Time, u32)>,
    /// The deliveries in order, each with the broker's incarnation.
    pub(super) order: Vec<(usize, u32)>,
    pub(super) gaps: Vec<(u64, u64, u64)>,
    /// The last tick of each stream, as told by event or gap.
    pub(super) last: BTreeMap<u64, u64>,
    /// The last tick of each stream as told by events alone: an event in a gap may still be found
    /// when the subscription continues at another broker.
    pub(super) named: BTreeMap<u64, u64>,
}

impl Following {
    /// How long its SUBSCRIBE may wait.
    pub(super) fn answer_max(&self) -> Duration {
        if self.class == Class::Durable { ANSWER_MAX + WRITE_MAX } else { ANSWER_MAX }
    }
}

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Book {
    /// What the clock of the broker shows at which something happens.
    pub(super) shown: Time,
    pub(super) facts: Vec<Fact>,
    pub(super) by_key: BTreeMap<String, usize>,
    pub(super) followings: Vec<Following>,
    /// The latest subscription of each client.
    pub(super) current: BTreeMap<usize, usize>,
    pub(super) unanswered: BTreeMap<(usize, u16), usize>,
    pub(super) ended: BTreeSet<Process>,
    /// The messages that collectors received: by machine, then topic.
    pub(super) retained: BTreeMap<usize, BTreeMap<String, String>>,
    /// Machines with a disk.
    pub(super) disks: BTreeSet<usize>,
    /// Caches are so small that events for which there is no interest yet may be overwritten before
    /// they are asked for.
    pub(super) is_tiny: bool,
    pub(super) counts: Counts,
    pub(super) violations: Vec<Violation>,
    pub(super) broken: u64,
}

/// The text by which a publisher identifies a message.
pub(super) fn key_of(message: &Message) -> String {
    if let Some(key) = message.user_property(KEY) {
        return key.to_owned();
    }
    let text = String::from_utf8_lossy(&message.payload[..message.payload.len().min(64)]);
    text.split(' ').next().unwrap_or_default().to_owned()
}

pub(super) fn name_of(message: &Message) -> Option<Name> {
    message.user_property("w-id").and_then(event_name)
}

impl Book {
    pub(super) fn breaks(&mut self, rule: Rule, what: String) {
        self.broken += 1;
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push(Violation { rule, what });
        }
    }

    /// Records that a process has ended.
    pub(super) fn crashed(&mut self, process: Process) {
        self.ended.insert(process);
    }

    /// Records what a subscriber did or received at a process.
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
                    if following.class == Class::Durable {
                        return;
                    }
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
        self.counts.clearing += u64::from(message.retain && message.payload.is_empty());
        let number = self.facts.len();
        if message.qos != Qos::AtMostOnce {
            self.unanswered.insert((client, message.id), number);
        }
        let key = key_of(&message);
        self.by_key.insert(key.clone(), number);
        let shown = self.shown;
        self.facts.push(Fact { key, message, at, sent: now, shown, is_answered: false, name: None });
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
            // A client that is refused tries again.
            Heard::Connack { code, .. } if code != 0 => {}
            Heard::Connack { session_present, .. } => {
                let Some(following) = self.current.get(&client) else { return };
                let following = &mut self.followings[*following];
                // The SUBSCRIBE could not be answered before.
                following.asked.0 = following.asked.0.max(now);
                if following.class != Class::Durable || !following.is_answered {
                    return;
                }
                following.at = at;
                if !session_present {
                    let what = format!("the session of {} is gone", following.client);
                    self.breaks(Rule::Lost, what);
                }
                self.counts.resumed += 1;
            }
            Heard::Suback { id, codes, properties } => {
                let Some(following) = self.current.get(&client) else { return };
                let following = &mut self.followings[*following];
                if following.asked.1 != id || following.at != at {
                    return;
                }
                following.is_answered = true;
                let answer_max = following.answer_max();
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
                } else if named.iter().any(|name| name == whimbrel_core::ALL_OTHERS) {
                    // It has returned to a broker that knows of no others.
                    following.pending = named;
                }
                if codes.iter().any(|code| *code >= 0x80) {
                    self.breaks(Rule::Answer, format!("{who} is refused: {codes:02x?}"));
                }
                if waited > answer_max {
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

    /// The witness at a broker receives an event there.
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

    /// A collector receives a retained message.
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
                Ok(Notice::Overdue { pubend, tick }) => {
                    self.counts.overdue += 1;
                    if of.last.get(&pubend).is_some_and(|last| *last >= tick) {
                        let what = format!("{who} is told that {pubend:x}:{tick} is overdue, and is past that");
                        return self.breaks(Rule::Overdue, what);
                    }
                }
                Ok(Notice::Silence { .. } | Notice::Stalled) => {}
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
        let came = of.got.get(&number).copied();
        of.got.insert(number, (came.map_or(now, |(first, _)| first), at.1));
        if let Some((_, life)) = came {
            // A delivery that was not durably acknowledged is repeated.
            let is_allowed = of.class == Class::Durable && message.qos == Qos::AtLeastOnce;
            self.counts.repeated += 1;
            if !is_allowed || !message.dup && life == at.1 {
                self.breaks(Rule::Duplicate, format!("{who} gets {key} again"));
            }
            return;
        }
        let is_repeated = of.class == Class::Durable && of.wish.qos == Qos::AtLeastOnce;
        if is_repeated && of.order.last().is_some_and(|(_, life)| *life != at.1) {
            // Its broker continues from the position that was last written.
            of.last.clear();
        }
        of.order.push((number, if is_repeated { at.1 } else { 0 }));
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
}

pub(super) fn wants(wish: &Wish, message: &Message) -> bool {
    topic::matches(&wish.filter, &message.topic) && wish.choice.is_none_or(|choice| choice.wants(message))
}
