//! An observer of a broker that has a log, and that crashes.
//!
//! As the [`crate::check::Checker`] it stands at the broker's door and sees bytes; but it does not
//! take for granted that packets act at once, and what it holds the broker to are promises about
//! what survives. For that it may look at the disk: whenever a commit has ended, it is shown which
//! events are durable from then on.
//!
//! It knows events by their *marks*: the beginning of a payload, up to the first full stop, which
//! no other event shares. A publisher that repeats an event repeats the mark.
//!
//! | module | rules |
//! |---|---|
//! | `owed` | durable subscriptions get what they are owed, and what they have answered does not come again |
//! | `wishes` | nobody gets what it did not want when it was accepted |
//! | `follow` | subscriptions whose place is known get what comes after it, once, or are told of a gap that there may be |
//! | `unanswered` | what nobody heard of may have been granted |
//! | `order` | streams and publishers are in order |
//! | `end` | when all sessions have ended, nothing of them is left |
//! | `answers` | publishers are answered once, in order, and not before what they published is durable |
//! | `log` | what is durable stays so |
//! | `sights` | nobody sees an event before it is durable; an event has one name, and no other has that |

mod answers;
mod end;
mod follow;
mod log;
mod order;
mod owed;
mod places;
mod shared;
mod sights;
mod unanswered;
mod wishes;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use mqtt_protocol_core::mqtt::Version;
use mqtt_protocol_core::mqtt::packet::Qos;
use whimbrel_core::store::{Persistence, Profile};
use whimbrel_event::Time;
use whimbrel_mqtt::ConnId;

use crate::check::topic::matches;
use crate::check::{Outcome, Rule, Seen, Violation};
use crate::packets::{greeted_version, next_packet};
use crate::speech::{Heard, Message, Said};

use answers::Due;
use follow::Follow;
use log::{Log, Machine};
use order::Heads;
use owed::{Asked, Session};
use shared::Shared;
use sights::Names;
use unanswered::Unanswered;
use wishes::Event;

/// What was published under a mark.
#[derive(Debug)]
struct Fact {
    /// Its profile says that it is logged.
    persistent: bool,
    /// A publisher was told that it is accepted, at that step.
    accepted: Option<u64>,
    /// As it was published first, and at which step.
    message: Message,
    publisher: String,
    step: u64,
    /// How often it was published.
    times: u32,
    /// Its publisher numbers its events, or repeats them exactly once.
    once: bool,
    /// Shared subscriptions of which a member may have got it.
    shared: BTreeSet<String>,
}

impl Fact {
    /// As wishes see it, if it was accepted by then.
    fn event(&self, accepted: u64) -> Event<'_> {
        Event { message: &self.message, publisher: &self.publisher, published: self.step, accepted }
    }

    /// The step by which it was accepted for the last time, if that can be told.
    fn accepted_at(&self) -> u64 {
        self.accepted.filter(|_| self.times == 1).unwrap_or(u64::MAX)
    }

    /// It is one event, however often it was published.
    fn is_single(&self, is_logged: bool) -> bool {
        self.times == 1 || self.once && is_logged
    }
}

/// One connection.
#[derive(Debug, Default)]
struct Line {
    version: Option<Version>,
    client_id: Option<String>,
    inbound: Vec<u8>,
    outbound: Vec<u8>,
    aliases_in: BTreeMap<u16, String>,
    aliases_out: BTreeMap<u16, String>,
    /// SUBSCRIBE without an answer.
    asked: BTreeMap<u16, Asked>,
    /// UNSUBSCRIBE without an answer: the request's number and the filters.
    ending: BTreeMap<u16, (u64, Vec<String>)>,
    /// How far streams and publishers have come.
    heads: Heads,
    /// What the client waits for, in the order in which it asked.
    due: Vec<(Time, Due)>,
    /// It was refused an event that it had numbered.
    has_refused: bool,
    /// What it sent last was no packet.
    deaf: bool,
    /// The broker closes it over what it sends: nobody knows what was read of that.
    is_closing: bool,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Ledger {
    now: Time,
    /// The latest that the broker's clock has said: a machine may come up with an earlier one.
    latest: Time,
    profiles: Vec<Profile>,
    lines: BTreeMap<ConnId, Line>,
    facts: BTreeMap<String, Fact>,
    sessions: BTreeMap<String, Session>,
    /// By the filters as they are asked for.
    shared: BTreeMap<String, Shared>,
    /// Subscriptions of which it is known where they stand, by client id and subscription
    /// identifier.
    follows: BTreeMap<(String, u32), Follow>,
    /// What was asked for in their place, and not answered yet.
    unanswered: Unanswered,
    /// Counts calls of the broker.
    steps: u64,
    /// Counts SUBSCRIBE and UNSUBSCRIBE.
    requests: u64,
    machine: Machine,
    log: Log,
    /// Marks that a publisher was told to be refused, and that nobody has published since.
    refused: BTreeSet<String>,
    names: Names,
    /// How long what is not acknowledged is kept.
    max_retain: Option<Duration>,
    /// The order of what comes is looked at.
    has_order: bool,
    /// What each client has published exactly once and not released: packet identifier and mark.
    unreleased: BTreeMap<(String, u16), String>,
    counts: Counts,
    violations: Vec<Violation>,
}

/// What was seen.
#[derive(Clone, Copy, Default, Debug)]
pub struct Counts {
    /// Messages that clients published, repetitions included.
    pub published: u64,
    /// Messages that the broker accepted and acknowledged.
    pub accepted: u64,
    /// Of them, those that had to be durable before.
    pub durable: u64,
    /// Messages that it refused.
    pub refused: u64,
    /// Messages that it sent to clients, repetitions included.
    pub delivered: u64,
    /// Crashes.
    pub crashes: u64,
    /// Durable shared subscriptions of which nothing may be lost.
    pub shared: u64,
}

/// The mark of a payload; empty payloads have none.
fn mark_of(payload: &[u8]) -> Option<String> {
    let end = payload.iter().position(|byte| *byte == b'.').unwrap_or(payload.len());
    (end > 0).then(|| String::from_utf8_lossy(&payload[..end]).into_owned())
}

impl Ledger {
    /// An observer of a fresh broker with these profiles, which keeps what is not acknowledged that
    /// long.
    pub fn new(profiles: Vec<Profile>, max_retain: Option<Duration>, now: Time) -> Self {
        Ledger {
            now,
            latest: now,
            profiles,
            lines: BTreeMap::new(),
            facts: BTreeMap::new(),
            sessions: BTreeMap::new(),
            shared: BTreeMap::new(),
            follows: BTreeMap::new(),
            unanswered: Unanswered::default(),
            steps: 0,
            requests: 0,
            machine: Machine::default(),
            log: Log::default(),
            refused: BTreeSet::new(),
            names: Names::default(),
            max_retain,
            has_order: false,
            unreleased: BTreeMap::new(),
            counts: Counts::default(),
            violations: Vec::new(),
        }
    }

    /// One call of the broker, whose clock says `clock`: what it was told and what it did.
    pub fn observe(&mut self, (now, clock): (Time, Time), seen: Seen<'_>, outcome: &Outcome) {
        (self.now, self.latest) = (now, self.latest.max(clock));
        self.steps += 1;
        match seen {
            Seen::Opened(conn) => {
                self.lines.insert(conn, Line::default());
            }
            Seen::Bytes(conn, bytes) => {
                if let Some(line) = self.lines.get_mut(&conn) {
                    line.is_closing = outcome.closes.contains(&conn);
                }
                self.bytes_in(conn, bytes);
            }
            Seen::Gone(conn) => {
                self.lines.remove(&conn);
            }
            Seen::Nothing | Seen::Drain => {}
        }
        for (conn, bytes) in &outcome.sends {
            self.bytes_out(*conn, bytes);
        }
        for conn in &outcome.closes {
            self.lines.remove(conn);
        }
    }

    /// Everybody has had time: nothing is left unanswered.
    pub fn finish(&mut self, now: Time) {
        self.now = now;
        let mut late = Vec::new();
        for (conn, line) in &self.lines {
            late.extend(line.due.first().map(|(since, due)| {
                let who = line.client_id.as_deref().unwrap_or("a stranger");
                format!("{who} on {conn:?} waits for {due:?} since {since:?}")
            }));
        }
        for what in late {
            self.broken(Rule::Answers, what);
        }
        self.settle_up();
        self.settle_up_shared();
        self.settle_follows();
    }

    /// From now on the order of what comes is looked at, too.
    pub(crate) fn look_at_order(&mut self) {
        self.has_order = true;
    }

    /// What was broken, in the order in which it was seen.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// What was seen.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    fn broken(&mut self, rule: Rule, what: impl Into<String>) {
        self.violations.push(Violation { rule, at: self.now, what: what.into() });
    }

    /// Whether the events of a topic are logged.
    fn persistence_of(&self, topic: &str) -> Persistence {
        let profile = self.profiles.iter().find(|profile| matches(&profile.filter, topic));
        profile.map_or(Persistence::Auto, |profile| profile.persistence)
    }

    /// A client publishes, or leaves a will.
    fn note(&mut self, message: &Message) -> Option<String> {
        let mark = mark_of(&message.payload)?;
        let persistent =
            message.qos != Qos::AtMostOnce && self.persistence_of(&message.topic) == Persistence::Persistent;
        let fact = self.facts.entry(mark.clone()).or_insert_with(|| {
            let once = message.user_property("w-seq").is_some();
            let (publisher, _) = mark.split_once('/').unwrap_or((&mark, ""));
            let (message, publisher, step) = (message.clone(), publisher.to_owned(), self.steps);
            let shared = BTreeSet::new();
            Fact { persistent, accepted: None, message, publisher, step, times: 0, once, shared }
        });
        (fact.persistent, fact.times) = (persistent, fact.times + 1);
        self.refused.remove(&mark);
        Some(mark)
    }

    fn bytes_in(&mut self, conn: ConnId, bytes: &[u8]) {
        let Some(line) = self.lines.get_mut(&conn).filter(|line| !line.deaf) else { return };
        line.inbound.extend_from_slice(bytes);
        let stream = std::mem::take(&mut line.inbound);
        let mut at = 0;
        loop {
            let line = &self.lines[&conn];
            let Some(version) = line.version.or_else(|| greeted_version(&stream)) else { break };
            match next_packet(version, &stream, &mut at).map(|packet| packet.map(Said::try_from)) {
                Ok(Some(Ok(said))) => {
                    self.lines.get_mut(&conn).expect("just seen").version = Some(version);
                    self.said(conn, said);
                }
                Ok(None) => break,
                Ok(Some(Err(_))) | Err(_) => {
                    self.lines.get_mut(&conn).expect("just seen").deaf = true;
                    break;
                }
            }
        }
        self.lines.get_mut(&conn).expect("just seen").inbound = stream[at..].to_vec();
    }

    fn bytes_out(&mut self, conn: ConnId, bytes: &[u8]) {
        let Some(line) = self.lines.get_mut(&conn) else { return };
        line.outbound.extend_from_slice(bytes);
        let (version, stream) = (line.version.unwrap_or(Version::V5_0), std::mem::take(&mut line.outbound));
        let mut at = 0;
        loop {
            match next_packet(version, &stream, &mut at) {
                Ok(Some(packet)) => self.heard(conn, Heard::from(packet)),
                Ok(None) => break,
                Err(malformed) => {
                    self.broken(Rule::WellFormed, format!("on {conn:?}: {malformed}"));
                    break;
                }
            }
        }
        self.lines.get_mut(&conn).expect("just seen").outbound = stream[at..].to_vec();
    }
}
