//! An observer of a broker that has a log, and that crashes.
//!
//! As the [`crate::check::Checker`] it stands at the broker's door and sees bytes; but it does not take for granted that packets act at
//! once, and what it holds the broker to are promises about what survives. For that it may look at the disk: whenever a commit has ended, it
//! is shown which events are durable from then on.
//!
//! It knows events by their *marks*: the beginning of a payload, up to the first full stop, which no other event shares. A publisher that
//! repeats an event repeats the mark.
//!
//! | module | rules |
//! |---|---|
//! | `owed` | durable subscriptions get what they are owed, and what they have answered does not come again |
//! | `answers` | publishers are answered once, in order, and not before what they published is durable |
//! | `sights` | nobody sees an event before it is durable; an event has one name, and no other has that |

mod answers;
mod owed;
mod sights;

use std::collections::{BTreeMap, BTreeSet};

use mqtt_protocol_core::mqtt::Version;
use mqtt_protocol_core::mqtt::packet::Qos;
use whimbrel_core::store::{Disk, EVENT_HEAD, LogState, Persistence, Profile};
use whimbrel_event::{Packed, Time};
use whimbrel_mqtt::ConnId;

use crate::check::topic::matches;
use crate::check::{Outcome, Rule, Seen, Violation};
use crate::disk::Logged;
use crate::packets::{greeted_version, next_packet};
use crate::speech::{Heard, Message, Said};

use answers::Due;
use owed::{Asked, Session};

/// What was published under a mark.
#[derive(Debug)]
struct Fact {
    /// Its profile says that it is logged.
    persistent: bool,
    /// A publisher was told that it is accepted.
    accepted: bool,
    /// As it was published first, and at which step.
    message: Message,
    step: u64,
    /// How often it was published.
    times: u32,
    /// Its publisher numbers its events, or repeats them exactly once.
    once: bool,
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
    /// What the client waits for, in the order in which it asked.
    due: Vec<(Time, Due)>,
    /// It was refused an event that it had numbered.
    has_refused: bool,
    /// What it sent last was no packet.
    deaf: bool,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Ledger {
    now: Time,
    profiles: Vec<Profile>,
    lines: BTreeMap<ConnId, Line>,
    facts: BTreeMap<String, Fact>,
    sessions: BTreeMap<String, Session>,
    /// Counts calls of the broker.
    steps: u64,
    /// The last crash.
    crashed_at: Option<Time>,
    /// At the last crash: the greatest tick of each pubend that anybody was told, and the step.
    used: (BTreeMap<String, u64>, u64),
    /// The greatest tick of each pubend that anybody was told.
    told: BTreeMap<String, u64>,
    /// Where each durable event is.
    places: BTreeMap<String, (u8, u64)>,
    /// Durable events: index of the pubend and tick, and mark.
    log: BTreeMap<(u8, u64), String>,
    /// The marks of durable events.
    durable: BTreeSet<String>,
    /// Marks that a publisher was told to be refused, and that nobody has published since.
    refused: BTreeSet<String>,
    /// The marks of event ids, as they were told.
    names: BTreeMap<String, String>,
    /// What each client has published exactly once and not released: packet identifier and mark.
    unreleased: BTreeMap<(String, u16), String>,
    disk: Disk,
    /// When the log last took everything: refusals until a little later are excused.
    refusals_until: Time,
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
}

/// The mark of a payload; empty payloads have none.
fn mark_of(payload: &[u8]) -> Option<String> {
    let end = payload.iter().position(|byte| *byte == b'.').unwrap_or(payload.len());
    (end > 0).then(|| String::from_utf8_lossy(&payload[..end]).into_owned())
}

impl Ledger {
    /// An observer of a fresh broker with these profiles.
    pub fn new(profiles: Vec<Profile>, now: Time) -> Self {
        Ledger {
            now,
            profiles,
            lines: BTreeMap::new(),
            facts: BTreeMap::new(),
            sessions: BTreeMap::new(),
            steps: 0,
            crashed_at: None,
            used: (BTreeMap::new(), 0),
            told: BTreeMap::new(),
            places: BTreeMap::new(),
            log: BTreeMap::new(),
            durable: BTreeSet::new(),
            refused: BTreeSet::new(),
            names: BTreeMap::new(),
            unreleased: BTreeMap::new(),
            disk: Disk::Open,
            refusals_until: Time::ZERO,
            counts: Counts::default(),
            violations: Vec::new(),
        }
    }

    /// One call of the broker: what it was told and what it did.
    pub fn observe(&mut self, now: Time, seen: Seen<'_>, outcome: &Outcome) {
        self.now = now;
        self.steps += 1;
        match seen {
            Seen::Opened(conn) => {
                self.lines.insert(conn, Line::default());
            }
            Seen::Bytes(conn, bytes) => self.bytes_in(conn, bytes),
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

    /// These events are durable now.
    pub(crate) fn logged(&mut self, now: Time, events: Vec<Logged>) {
        self.now = now;
        for (pubend, tick, record) in events {
            let Some(mark) = self.mark_in(&record) else { continue };
            if self.refused.contains(&mark) {
                self.broken(Rule::Answers, format!("{mark} was refused, and is in the log at {pubend}:{tick}"));
            }
            let place = *self.places.entry(mark.clone()).or_insert((pubend, tick));
            if place != (pubend, tick) && self.facts.get(&mark).is_some_and(|fact| fact.once) {
                self.broken(Rule::Duplicate, format!("{mark} is in the log at {place:?} and at {:?}", (pubend, tick)));
            }
            self.durable.insert(mark.clone());
            self.log.insert((pubend, tick), mark);
        }
    }

    /// The broker's machine has stopped, and the log was opened again: this is what it holds, and up to where its streams were given up.
    pub(crate) fn crashed(&mut self, now: Time, found: Vec<Logged>, state: &LogState) {
        self.now = now;
        self.counts.crashes += 1;
        self.crashed_at = Some(now);
        self.used = (self.told.clone(), self.steps);
        self.lines.clear();
        let mut log = BTreeMap::new();
        for (pubend, tick, record) in &found {
            let Some(mark) = self.mark_in(record) else { continue };
            log.insert((*pubend, *tick), mark);
        }
        for (place, mark) in std::mem::take(&mut self.log) {
            let (pubend, tick) = place;
            match log.get(&place) {
                Some(other) if *other == mark => {}
                Some(other) => {
                    self.broken(Rule::EventId, format!("{place:?} was {mark}, and is {other} after a crash"));
                }
                None if tick <= state.events[usize::from(pubend)].chopped.0 => {}
                None => self.broken(Rule::Durable, format!("{mark} was durable at {place:?}, and is gone")),
            }
        }
        self.logged(now, found);
        self.told(now, Disk::Open);
    }

    /// What the log takes has changed.
    pub(crate) fn told(&mut self, now: Time, disk: Disk) {
        if self.disk != Disk::Open {
            self.refusals_until = now;
        }
        self.disk = disk;
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

    /// The mark of a record of the log, which begins with its format.
    fn mark_in(&mut self, record: &[u8]) -> Option<String> {
        let packed = [&[0; EVENT_HEAD], &record[1..]].concat();
        mark_of(Packed::kept(&packed).view().payload)
    }

    /// Whether the events of a topic are logged, whoever wants them.
    fn is_persistent(&self, topic: &str) -> bool {
        let profile = self.profiles.iter().find(|profile| matches(&profile.filter, topic));
        profile.is_some_and(|profile| profile.persistence == Persistence::Persistent)
    }

    /// A client publishes, or leaves a will.
    fn note(&mut self, message: &Message) -> Option<String> {
        let mark = mark_of(&message.payload)?;
        let persistent = message.qos != Qos::AtMostOnce && self.is_persistent(&message.topic);
        let fact = self.facts.entry(mark.clone()).or_insert_with(|| {
            let once = message.user_property("w-seq").is_some();
            Fact { persistent, accepted: false, message: message.clone(), step: self.steps, times: 0, once }
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
