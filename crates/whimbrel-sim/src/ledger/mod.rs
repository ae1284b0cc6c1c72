//! An observer of a broker with a log that crashes.
//!
//! As the [`crate::check::Checker`] it sees the bytes between clients and broker. But it does not
//! assume that packets act at once, and it checks promises about what survives. For that it may
//! look at the disk: when a commit has ended, it is shown which events are durable from then on.
//!
//! It identifies events by their *marks*: the beginning of a payload up to the first full stop,
//! unique to the event. A publisher that repeats an event repeats the mark.
//!
//! | module | rules |
//! |---|---|
//! | `owed` | durable subscriptions get the events they are owed, and none again after its answer |
//! | `wishes` | no subscription gets an event that it did not want when the event was accepted |
//! | `follow` | subscriptions of known position get later events once, or allowed gaps |
//! | `unanswered` | requests whose answer was not seen may have been granted |
//! | `order` | streams and publishers are in order |
//! | `end` | when all sessions have ended, nothing of them is left |
//! | `answers` | publishers are answered once, in order, and not before their events are durable |
//! | `log` | what is durable stays so |
//! | `sights` | no client sees an event before it is durable; event and name belong together |

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
use whimbrel_core::{Persistence, Profile};
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

/// An event that was published under a mark.
#[derive(Debug)]
struct Fact {
    /// Whether its profile says that it is logged.
    persistent: bool,
    /// The step at which its publisher was told that it is accepted.
    accepted: Option<u64>,
    /// The message as it was first published, and at which step.
    message: Message,
    publisher: String,
    step: u64,
    /// How many times it was published.
    times: u32,
    /// Whether its publisher numbers its events, or repeats them exactly once.
    once: bool,
    /// Shared subscriptions of which a member may have received it.
    shared: BTreeSet<String>,
}

impl Fact {
    /// The event as selectors see it. `accepted`: the step by which it was accepted.
    fn event(&self, accepted: u64) -> Event<'_> {
        Event { message: &self.message, publisher: &self.publisher, published: self.step, accepted }
    }

    /// The step by which it was last accepted, if known.
    fn accepted_at(&self) -> u64 {
        self.accepted.filter(|_| self.times == 1).unwrap_or(u64::MAX)
    }

    /// Whether it is one event although it may have been published several times.
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
    /// SUBSCRIBEs without an answer.
    asked: BTreeMap<u16, Asked>,
    /// UNSUBSCRIBEs without an answer: the request's number and the filters.
    ending: BTreeMap<u16, (u64, Vec<String>)>,
    /// The progress of streams and publishers.
    heads: Heads,
    /// Answers that the client waits for, in the order of its requests.
    due: Vec<(Time, Due)>,
    /// Whether an event that it had numbered was refused.
    has_refused: bool,
    /// Whether the last bytes of the client were no packet.
    deaf: bool,
    /// Whether the broker is closing it because of the client's bytes: how many of them were read
    /// is unknown.
    is_closing: bool,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Ledger {
    now: Time,
    /// The latest time of the broker's clock: a machine may start with an earlier one.
    latest: Time,
    profiles: Vec<Profile>,
    lines: BTreeMap<ConnId, Line>,
    facts: BTreeMap<String, Fact>,
    sessions: BTreeMap<String, Session>,
    /// By the text of the filter in the request.
    shared: BTreeMap<String, Shared>,
    /// Subscriptions whose position is known, by client id and subscription identifier.
    follows: BTreeMap<(String, u32), Follow>,
    /// Requests for them that are not answered yet.
    unanswered: Unanswered,
    /// The number of calls of the broker.
    steps: u64,
    /// The number of SUBSCRIBEs and UNSUBSCRIBEs.
    requests: u64,
    machine: Machine,
    log: Log,
    /// Marks of refused events that were not published again since.
    refused: BTreeSet<String>,
    names: Names,
    /// How long unacknowledged events are kept; `None`: without a limit.
    max_retain: Option<Duration>,
    /// Whether the order of deliveries is checked.
    has_order: bool,
    /// By client and packet identifier: the mark of each publish exactly once that is not released.
    unreleased: BTreeMap<(String, u16), String>,
    counts: Counts,
    violations: Vec<Violation>,
}

/// Counts of messages and crashes.
#[derive(Clone, Copy, Default, Debug)]
pub struct Counts {
    /// Messages that clients published, repetitions included.
    pub published: u64,
    /// Messages that the broker accepted and acknowledged.
    pub accepted: u64,
    /// Messages among these that had to be durable before.
    pub durable: u64,
    /// Messages that it refused.
    pub refused: u64,
    /// Messages that it sent to clients, repetitions included.
    pub delivered: u64,
    /// Crashes.
    pub crashes: u64,
    /// Durable shared subscriptions that may lose nothing.
    pub shared: u64,
}

/// The mark of a payload; empty payloads have none.
fn mark_of(payload: &[u8]) -> Option<String> {
    let end = payload.iter().position(|byte| *byte == b'.').unwrap_or(payload.len());
    (end > 0).then(|| String::from_utf8_lossy(&payload[..end]).into_owned())
}

impl Ledger {
    /// An observer of a fresh broker with these profiles. `max_retain`: how long it keeps
    /// unacknowledged events.
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

    /// One call of the broker, whose clock shows `clock`: its input and its output.
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

    /// At the end: nothing is left unanswered.
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

    /// Checks the order of deliveries from now on, too.
    pub(crate) fn look_at_order(&mut self) {
        self.has_order = true;
    }

    /// The broken rules, in the order in which they were seen.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// Counts of messages and crashes.
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
