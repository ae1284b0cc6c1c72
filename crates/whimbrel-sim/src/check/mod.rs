//! Independent observers of a broker.
//!
//! A [`Checker`] stands between a broker and its clients. It sees the bytes in both directions,
//! which connections begin and end, when, and how many of the broker's bytes still wait for a slow
//! client. Of the broker itself it sees only the gauges that must stay bounded. From the bytes it
//! keeps its own account, which is written from the standard and the project's promises and shares
//! no code with the broker: which sessions exist, what each subscription is owed, which messages
//! are retained, which wills are due. The broker's packets are checked against that account.
//!
//! It assumes that packets act in the order in which they arrive, and at once. For a broker that
//! acknowledges later, because it writes to a disk first, it would need the span between arrival
//! and acknowledgement.
//!
//! Each module holds the rules of one subject:
//!
//! | module | rules |
//! |---|---|
//! | `line` | one connection: packets decode, handshakes, answers, the side that ends it, and why |
//! | `book` | what the broker must remember: sessions, subscriptions, retained messages, wills |
//! | `said`, `heard` | how packets of clients and of the broker change and test the account |
//! | `delivery` | a delivered message was owed, once, in order, and is what was published |
//! | `shared` | a shared subscription hands each message to one member |
//! | `track`, `tracked`, `notice` | a tracked subscription gets every matching event, or a gap |
//! | `due` | owed messages are delivered in time, or excused by a bound |

mod book;
mod delivery;
mod due;
mod heard;
mod line;
pub(crate) mod notice;
mod said;
mod shared;
pub(crate) mod topic;
mod track;
mod tracked;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use whimbrel_event::Time;
use whimbrel_mqtt::ConnId;

use book::{Book, Limbo};
use line::Line;
pub(crate) use tracked::moment;
pub use tracked::moment_text;

/// A promise of the broker.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Rule {
    /// The broker's packets are well-formed, in a version that the client speaks.
    WellFormed,
    /// CONNACK comes first and once; nothing follows DISCONNECT.
    Handshake,
    /// Every request is answered once, in order, with its identifier and a true reason code; there
    /// are no other answers.
    Answers,
    /// Session Present tells the truth.
    SessionPresent,
    /// A packet identifier names one unsettled delivery.
    PacketIdentifier,
    /// No more unsettled deliveries than the client takes.
    ReceiveMaximum,
    /// No packet is larger than the client accepts.
    PacketSize,
    /// Topic aliases are in the client's range and known.
    TopicAlias,
    /// An event is durable before it is acknowledged or seen, where that is promised, and stays
    /// durable.
    Durable,
    /// A delivered message was published, on a topic to which the client subscribed.
    Invented,
    /// A delivered message is selected by the subscription's selector.
    Selector,
    /// Nothing is delivered twice, except with DUP after a reconnection.
    Duplicate,
    /// DUP marks deliveries that were sent before on another connection, and no others.
    DupFlag,
    /// One publisher's messages are delivered in order, repeated ones too.
    Order,
    /// The QoS is the lesser of the publication's and the subscription's.
    Qos,
    /// The retain flag is set on retained messages, and where the subscription asks for it.
    RetainFlag,
    /// A message has its subscription's identifier.
    SubscriptionIdentifier,
    /// Payload and properties are delivered as they were published.
    Integrity,
    /// Expired messages are not delivered; others have the rest of their expiry interval.
    Expiry,
    /// Owed messages are delivered.
    Delivery,
    /// A new subscription gets the latest retained message of each topic, and no other.
    Retained,
    /// A will is published if its client ended without DISCONNECT, after its delay, once.
    Will,
    /// A delivery to a tracked subscription names its event; an event has one name, and a name one
    /// event.
    EventId,
    /// No event is delivered from before the position at which a subscription resumed.
    Resumed,
    /// No matching event is missing between two events of a stream unless a gap tells it; streams
    /// are in order.
    Hole,
    /// A gap is well-formed, told at its place in the stream, and covers nothing that was told
    /// before or is available.
    Gap,
    /// Tokens are given where they are promised, and are nowhere ahead of what was delivered.
    Token,
    /// A shared subscription's message goes to one member.
    Shared,
    /// The broker ends a connection only for a reason, and tells which.
    Close,
    /// A broken or silent connection is ended.
    Abandon,
    /// The broker's state stays within its bounds and agrees with the account.
    Gauges,
}

/// A broken rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// The rule that was broken.
    pub rule: Rule,
    /// The time.
    pub at: Time,
    /// The expectation and the observation, in words.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} broken at {:?}: {}", self.rule, self.at, self.what)
    }
}

/// The bounds in the broker's configuration that excuse a loss.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Unsettled deliveries of one session, at most.
    pub inflight_max: usize,
    /// Bytes that wait in one session for reliable delivery, at most.
    pub session_queue_bytes: usize,
    /// Bytes that wait in one session for best-effort delivery, at most.
    pub best_effort_queue_bytes: usize,
    /// The Topic Alias Maximum that the broker grants.
    pub topic_alias_max: u16,
    /// How long a connection may take until CONNECT has arrived.
    pub connect_timeout: Duration,
    /// The client id of the witness, if there is one. It subscribes to everything, semi-durably and
    /// with QoS 0, before anything is published, over a link that takes everything at once.
    pub witness: Option<&'static str>,
    /// Whether the broker's cache has room for everything that will ever be published.
    pub nothing_overwritten: bool,
}

/// The broker's own figures.
#[derive(Clone, Copy, Debug)]
pub struct Gauges {
    /// Sessions.
    pub sessions: u64,
    /// Sessions with a connection.
    pub sessions_attached: u64,
    /// Subscriptions.
    pub subscriptions: u64,
    /// Bytes in all queues.
    pub queued_bytes: u64,
}

/// An input of the broker.
#[derive(Clone, Copy, Debug)]
pub enum Seen<'a> {
    /// A connection begins.
    Opened(ConnId),
    /// Bytes arrive on a connection.
    Bytes(ConnId, &'a [u8]),
    /// A connection ends, by the client or the network.
    Gone(ConnId),
    /// No input: the broker acts by itself.
    Nothing,
    /// The server shuts down.
    Drain,
}

/// The output of the broker after one input.
#[derive(Clone, Default, Debug)]
pub struct Outcome {
    /// Bytes, in the order in which they were sent.
    pub sends: Vec<(ConnId, Vec<u8>)>,
    /// Connections that the broker ends.
    pub closes: Vec<ConnId>,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Checker {
    bounds: Bounds,
    now: Time,
    /// The number of calls of the broker.
    call: u64,
    lines: BTreeMap<ConnId, Line>,
    book: Book,
    /// Sessions that ended in this call, by their connection: the broker may have sent packets
    /// before it knew.
    limbo: BTreeMap<ConnId, Limbo>,
    draining: bool,
    /// The number of packets of the client whose bytes arrived in this call.
    packets: u32,
    /// The number of connections that the broker ended by itself in this call.
    kicks: u32,
    unsure: bool,
    violations: Vec<Violation>,
}

impl Checker {
    /// A checker of a fresh broker.
    pub fn new(bounds: Bounds, now: Time) -> Self {
        Checker {
            bounds,
            now,
            call: 0,
            lines: BTreeMap::new(),
            book: Book::default(),
            limbo: BTreeMap::new(),
            draining: false,
            packets: 0,
            kicks: 0,
            unsure: false,
            violations: Vec::new(),
        }
    }

    /// One call of the broker: its input and its output. `backlog`: the number of bytes that wait
    /// for a client at the broker's end.
    pub fn observe(&mut self, now: Time, seen: Seen<'_>, outcome: &Outcome, backlog: impl Fn(ConnId) -> usize) {
        self.now = now;
        self.call += 1;
        (self.packets, self.kicks) = (0, 0);
        self.book.ended_groups.clear();
        self.pass_time();
        match seen {
            Seen::Opened(conn) => {
                self.lines.insert(conn, Line::new(now));
            }
            Seen::Bytes(conn, bytes) => self.bytes_in(conn, bytes),
            Seen::Gone(conn) => self.gone(conn),
            Seen::Nothing => {}
            Seen::Drain => self.draining = true,
        }
        for conn in &outcome.closes {
            self.broker_closes(*conn, seen);
        }
        if self.unsure {
            return;
        }
        // The witness's packets are read first: they name the events that others receive.
        let witness = self.bounds.witness;
        let (told, others): (Vec<_>, Vec<_>) = outcome.sends.iter().partition(|(conn, _)| {
            witness.is_some() && self.lines.get(conn).is_some_and(|line| line.client_id.as_deref() == witness)
        });
        for (conn, bytes) in told.into_iter().chain(others) {
            self.bytes_out(*conn, bytes);
        }
        for conn in &outcome.closes {
            self.judge_close(*conn);
        }
        for (conn, line) in &mut self.lines {
            line.behind = backlog(*conn) > 0;
        }
        self.end_of_call();
    }

    /// Compares the broker's gauges with the account.
    pub fn gauges(&mut self, now: Time, gauges: &Gauges) {
        self.now = now;
        self.pass_time();
        self.check_gauges(gauges);
    }

    /// At the end, long enough after the last fault: everything owed must have been delivered.
    pub fn finish(&mut self, now: Time) {
        self.now = now;
        self.pass_time();
        self.nothing_is_owed();
    }

    /// The broken rules, in the order in which they were seen.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// The number of accepted messages and of deliveries so far.
    pub fn counts(&self) -> (u64, u64) {
        (self.book.published, self.book.delivered)
    }

    /// Whether a connected client is owed something.
    pub fn owes(&self) -> bool {
        !self.owed_now().is_empty()
    }

    /// Whether the account can no longer be kept. The broker cut clients off in the middle of a
    /// call, and the bytes do not tell which of the call's packets it read before, which will was
    /// published first, or what it gave away of a shared subscription then. Nothing is checked from
    /// there on.
    pub fn is_unsure(&self) -> bool {
        self.unsure
    }

    fn broken(&mut self, rule: Rule, what: impl Into<String>) {
        self.violations.push(Violation { rule, at: self.now, what: what.into() });
    }
}
