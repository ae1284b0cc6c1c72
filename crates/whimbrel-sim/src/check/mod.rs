//! Independent observers of a broker.
//!
//! A [`Checker`] stands at the broker's door. It sees the bytes that arrive there from clients, the
//! bytes that leave for them, which connections begin and end, when, and how much of what left
//! still waits for a slow client; of the broker itself it sees nothing but the gauges that must
//! stay bounded. From the bytes it keeps its own account, written from the standard and from the
//! project's promises and sharing no code with the broker: who has a session, what each
//! subscription is owed, what is retained, which wills are due. Whatever the broker says is held
//! against that account.
//!
//! What it takes for granted is that packets act in the order in which they arrive, and at once: a
//! broker that acknowledges later (because it writes to a disk first) will need the span between
//! arrival and acknowledgement.
//!
//! Each module holds the rules of one subject:
//!
//! | module | rules |
//! |---|---|
//! | `line` | what holds for one connection: packets decode, handshakes, answers, who may end it and why |
//! | `book` | what the broker must remember: sessions, subscriptions, retained messages, wills |
//! | `said`, `heard` | how packets of clients and of the broker change and test the account |
//! | `delivery` | a delivered message was owed, once, in order, and is what was published |
//! | `shared` | a shared subscription hands each message to one member |
//! | `track`, `tracked`, `notice` | a tracked subscription gets all that matched since its place, or is told of gaps |
//! | `due` | what is owed comes in time, or is excused by a bound |

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

/// What a broker must hold to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Rule {
    /// What the broker sends is well-formed, in a version that the client speaks.
    WellFormed,
    /// CONNACK comes first and once; nothing follows DISCONNECT.
    Handshake,
    /// Every request is answered once, in order, with its identifier and a true reason code;
    /// nothing unasked is answered.
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
    /// What is acknowledged or seen is durable before, where that is promised, and stays so.
    Durable,
    /// What is delivered was published, and to a topic that the client subscribed to.
    Invented,
    /// What is delivered is what the subscription's selector selects.
    Selector,
    /// Nothing is delivered twice, except with DUP after a reconnection.
    Duplicate,
    /// DUP marks what was sent before on another connection, and nothing else.
    DupFlag,
    /// One publisher's messages come in order, and so do repeated ones.
    Order,
    /// The QoS is the lesser of the publication's and the subscription's.
    Qos,
    /// The retain mark is set on retained messages and where the subscription asks for it.
    RetainFlag,
    /// The subscription's identifier comes with the message.
    SubscriptionIdentifier,
    /// Payload and properties come as they were published.
    Integrity,
    /// What has expired is not delivered; the rest carries what is left of its time.
    Expiry,
    /// What is owed is delivered.
    Delivery,
    /// A new subscription gets the latest retained message of each topic, and no other.
    Retained,
    /// A will is published when its client ended without goodbye, after its delay, once.
    Will,
    /// What is delivered to a tracked subscription names its event; each event has one name, and no
    /// other has that.
    EventId,
    /// Nothing is delivered that lies behind the place from which a subscription resumed.
    Resumed,
    /// Nothing that matched is missing between two events of a stream, unless a gap tells so;
    /// streams are in order.
    Hole,
    /// A gap is well-formed, told where it lies, and of nothing that was told before or is there.
    Gap,
    /// Tokens are given out where they are promised, and stand nowhere ahead of what was delivered.
    Token,
    /// A shared subscription's message goes to one member.
    Shared,
    /// The broker ends a connection for a reason only, and says which.
    Close,
    /// A broken or silent connection is ended.
    Abandon,
    /// What the broker holds stays within its bounds and agrees with the account.
    Gauges,
}

/// A broken rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Which.
    pub rule: Rule,
    /// When.
    pub at: Time,
    /// What was expected and what was seen.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} broken at {:?}: {}", self.rule, self.at, self.what)
    }
}

/// The bounds of the broker's configuration that excuse a loss.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Deliveries unsettled per session.
    pub inflight_max: usize,
    /// Bytes that wait in one session for reliable delivery.
    pub session_queue_bytes: usize,
    /// Bytes that wait in one session for best-effort delivery.
    pub best_effort_queue_bytes: usize,
    /// Topic Alias Maximum that the broker grants.
    pub topic_alias_max: u16,
    /// How long a connection may take to say CONNECT.
    pub connect_timeout: Duration,
    /// Client id of the witness, if there is one: it subscribes to everything, semi-durably and
    /// with QoS 0, before there is anything, over a link that takes everything at once.
    pub witness: Option<&'static str>,
    /// The broker's cache has room for everything that will ever be published.
    pub nothing_overwritten: bool,
}

/// What the broker says of its own state.
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

/// What reaches the broker.
#[derive(Clone, Copy, Debug)]
pub enum Seen<'a> {
    /// A connection begins.
    Opened(ConnId),
    /// Bytes arrive.
    Bytes(ConnId, &'a [u8]),
    /// A connection ends, not by the broker.
    Gone(ConnId),
    /// Nothing: the broker acts of its own accord.
    Nothing,
    /// The server shuts down.
    Drain,
}

/// What leaves the broker in answer.
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
    /// Counts calls of the broker.
    call: u64,
    lines: BTreeMap<ConnId, Line>,
    book: Book,
    /// Sessions that ended in this call, under the connection that they had: the broker may have
    /// sent before it knew.
    limbo: BTreeMap<ConnId, Limbo>,
    draining: bool,
    /// Packets of the client that is heard in this call.
    packets: u32,
    /// Connections that the broker ended of its own accord in this call.
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

    /// One call of the broker: what it was told and what it did. `backlog` tells how many bytes
    /// wait for a client at its end.
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
        // The witness names the events that others get.
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

    /// The faults have ceased for long enough: everything owed must have come.
    pub fn finish(&mut self, now: Time) {
        self.now = now;
        self.pass_time();
        self.nothing_is_owed();
    }

    /// What was broken, in the order in which it was seen.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// How many messages were accepted and how many deliveries were seen so far.
    pub fn counts(&self) -> (u64, u64) {
        (self.book.published, self.book.delivered)
    }

    /// Whether something is owed to a client that is there to take it.
    pub fn owes(&self) -> bool {
        !self.owed_now().is_empty()
    }

    /// Whether the account can no longer be kept: the broker cut clients off in the middle of a
    /// call, and the bytes do not tell which of the call's packets it heard before, whose will came
    /// first, or what of a shared subscription it gave away then. Nothing is judged from there on.
    pub fn is_unsure(&self) -> bool {
        self.unsure
    }

    fn broken(&mut self, rule: Rule, what: impl Into<String>) {
        self.violations.push(Violation { rule, at: self.now, what: what.into() });
    }
}
