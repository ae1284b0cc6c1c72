//! What an edge may ask of the broker, and what it is told.

use core::time::Duration;

use whimbrel_event::{CheckpointToken, Deployment, Event, EventId, EventRef, HostId, PubendId, Qos, Tick, Time};
use whimbrel_selector::Selector;

/// The edge's name for one attached connection. Small numbers, reused; the core keeps a table as long as the largest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Link(pub u32);

/// Bounds that an operator may set. Each protects the broker from one kind of excess.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Deliveries that may be unsettled in one session, whatever larger window its client offers.
    pub inflight_max: u16,
    /// Bytes that wait in one session for a reliable delivery.
    pub session_queue_bytes: usize,
    /// Bytes that wait in one session for a best-effort delivery.
    pub best_effort_queue_bytes: usize,
    /// Bytes that wait in all sessions together. An event counts once per session that waits for it.
    pub total_queue_bytes: usize,
    /// Sessions, attached or not.
    pub sessions_max: usize,
    /// Subscriptions in one session.
    pub subscriptions_per_session: usize,
    /// Bytes of the selectors of one session, in canonical form. Bounds what a client can make the index hold and do.
    pub selector_bytes_per_session: usize,
    /// How long a session outlives its connection at most.
    pub session_expiry_max: Duration,
    /// Retained messages.
    pub retained_max: usize,
    /// Bytes of retained messages.
    pub retained_bytes: usize,
    /// Bytes that wait in one session for its tracked subscriptions (semi-durable, or with notices); one that would exceed it reads
    /// from the cache instead, once the client takes more.
    pub tracked_queue_bytes: usize,
    /// How often a subscription with notices is told how far it has come.
    pub silence_after: Duration,
    /// What tokens are bound to.
    pub deployment: Deployment,
}

/// A fault that is built in on purpose, to see whether a test notices.
#[cfg(feature = "mutants")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// When the cache is divided anew, partitions forget what they knew to be missing.
    ForgottenOverwriting,
    /// Silence is declared over events that wait for the disk.
    ClosesOverWaiting,
    /// After a restart the empty cache passes for complete.
    CacheBelieved,
}

impl Limits {
    /// How far the queues may grow in all before those of absent sessions and of shared subscriptions grow no more: a quarter of
    /// [`Limits::total_queue_bytes`] is kept for clients that are here and have to wait for a moment.
    pub fn absent_queue_bytes(&self) -> usize {
        self.total_queue_bytes / 4 * 3
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            inflight_max: 1024,
            session_queue_bytes: 64 << 20,
            best_effort_queue_bytes: 1 << 20,
            total_queue_bytes: 1 << 30,
            sessions_max: 1_000_000,
            subscriptions_per_session: 10_000,
            selector_bytes_per_session: 1 << 20,
            session_expiry_max: Duration::from_secs(7 * 24 * 3600),
            retained_max: 1_000_000,
            retained_bytes: 1 << 30,
            tracked_queue_bytes: 256 << 10,
            silence_after: Duration::from_secs(30),
            deployment: Deployment::named("whimbrel"),
        }
    }
}

/// A message that is published when a client ends without saying goodbye.
#[derive(Clone, Debug)]
pub struct Will {
    /// The message; its own id and acceptance time mean nothing, its expiry counts from publication.
    pub event: Event,
    /// Whether it becomes the topic's retained message.
    pub retain: bool,
    /// How long after the end of the connection it waits for the session to come back.
    pub delay: Duration,
    /// How long after its publication it is of use.
    pub lifetime: Option<Duration>,
}

/// A client's connection asks for its session.
#[derive(Debug)]
pub struct Attach<'a> {
    /// The connection.
    pub link: Link,
    /// Whose session.
    pub client_id: &'a str,
    /// Begin with a new session, and forget an existing one.
    pub clean_start: bool,
    /// How long the session outlives the connection; zero: not at all.
    pub expiry: Duration,
    /// Unsettled deliveries that the client takes at once, at least 1.
    pub window: u16,
    /// Published if the connection ends without a goodbye.
    pub will: Option<Box<Will>>,
}

/// What is done with retained messages when a subscription is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RetainHandling {
    /// All that match are delivered.
    Send,
    /// They are delivered unless the subscription existed.
    SendIfNew,
    /// None is delivered.
    DoNotSend,
}

/// What a subscription gets of the time in which nobody is there for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// Reliable events wait in its session, as long as that lives and its bounds allow.
    #[default]
    Queued,
    /// Nothing: it goes on with what comes after its return.
    Nondurable,
    /// What the cache still has; the rest is a gap.
    SemiDurable,
}

/// Where a subscription begins.
#[derive(Clone, Copy, Debug, Default)]
pub enum Start<'a> {
    /// Where the session's subscription stands; a new one begins now.
    #[default]
    Own,
    /// After what a checkpoint token says, and after these events, which came later.
    Token(&'a CheckpointToken, &'a [EventId]),
    /// After these events, at least one. Other pubends begin a minute before the smallest tick that is named.
    After(&'a [EventId]),
    /// With what was accepted after that moment.
    Since(Time),
    /// With the oldest event that the cache has.
    Earliest,
}

/// How a subscription follows the streams.
#[derive(Clone, Copy, Debug, Default)]
pub struct Following<'a> {
    /// What it gets of the time in which nobody is there for it.
    pub durability: Durability,
    /// Where it begins; anything but [`Start::Own`] needs [`Durability::SemiDurable`].
    pub start: Start<'a>,
    /// The client keeps the position, and acknowledges with [`Input::Acknowledge`].
    pub by_token: bool,
    /// Gaps and silence are delivered as events on the topic [`crate::NOTICE_TOPIC`].
    pub notices: bool,
    /// The answer is to name the position at which it begins.
    pub wants_token: bool,
}

/// A subscription as it was granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// The most that deliveries have.
    pub qos: Qos,
    /// Where it begins, if asked.
    pub begins: Option<CheckpointToken>,
}

/// One subscription as asked for.
#[derive(Clone, Copy, Debug)]
pub struct Filter<'a> {
    /// A topic filter, or `$share/<group>/<filter>`.
    pub filter: &'a str,
    /// The most that deliveries are to have.
    pub qos: Qos,
    /// Leave out what the same session publishes.
    pub no_local: bool,
    /// Deliver with the retain mark as published; otherwise live events have none.
    pub retain_as_published: bool,
    /// What to do with retained messages.
    pub retain_handling: RetainHandling,
    /// Delivered with every event, for the client to tell its subscriptions apart; 0: none.
    pub identifier: u32,
    /// Which events are wanted; `None`: all. A shared subscription has one selector for all its members.
    pub selector: Option<&'a Selector>,
    /// How it follows the streams.
    pub following: Following<'a>,
}

/// An event from a client.
#[derive(Clone, Copy, Debug)]
pub struct Publish<'a> {
    /// Where it came from.
    pub link: Link,
    /// The client's name for the hand-over; 0 with [`Qos::AtMostOnce`].
    pub tag: u16,
    /// It becomes the topic's retained message; an empty payload clears it.
    pub retain: bool,
    /// The event.
    pub event: EventRef<'a>,
}

/// What can happen to the core.
#[derive(Debug)]
pub enum Input<'a> {
    /// A connection asks for a session. Answered by [`Output::attached`] or [`Output::refused`].
    Attach(Attach<'a>),
    /// A connection has ended.
    Detach {
        /// Which.
        link: Link,
        /// Whether its will is to be published.
        publish_will: bool,
        /// A new expiry of the session, if the client gave one when it left.
        expiry: Option<Duration>,
    },
    /// Subscriptions are asked for. Answered by [`Output::subscribed`].
    Subscribe {
        /// By whom.
        link: Link,
        /// Which.
        filters: &'a [Filter<'a>],
    },
    /// Subscriptions end. Answered by [`Output::unsubscribed`].
    Unsubscribe {
        /// By whom.
        link: Link,
        /// The texts with which they were made.
        filters: &'a [&'a str],
    },
    /// An event arrives. Answered by [`Output::accepted`] unless it is [`Qos::AtMostOnce`].
    Publish(Publish<'a>),
    /// The broker itself publishes (its own state, for instance).
    Announce {
        /// What.
        event: EventRef<'a>,
        /// Whether it is retained.
        retain: bool,
    },
    /// The client has safely processed what a subscription that it keeps the position of got up to `token`. Answered by
    /// [`Output::accepted`] as a publish with that tag.
    Acknowledge {
        /// From whom.
        link: Link,
        /// The client's name for the hand-over; 0 with [`Qos::AtMostOnce`].
        tag: u16,
        /// How it is handed over.
        qos: Qos,
        /// Which subscription; 0: the only one that is acknowledged so.
        identifier: u32,
        /// Up to where.
        token: &'a CheckpointToken,
    },
    /// The client will not repeat the publish `tag`, which may be used anew. Answered by [`Output::completed`].
    Release {
        /// From whom.
        link: Link,
        /// Which.
        tag: u16,
    },
    /// The client has settled the delivery `tag`: acknowledged, completed, or refused it.
    Settle {
        /// From whom.
        link: Link,
        /// Which.
        tag: u16,
        /// With which packet of the hand-over.
        by: Settlement,
    },
    /// The link takes deliveries again after [`Sent::Full`].
    Writable {
        /// Which.
        link: Link,
    },
    /// There is another broker with streams of its own; a known one changes nothing.
    Host {
        /// What its pubends have in common.
        host: HostId,
        /// How many reliable streams it has.
        reliable: u8,
        /// How many best-effort streams it has.
        best_effort: u8,
        /// The tick after which they began.
        birth: Tick,
    },
    /// Something is known of a stream of another broker. In any order, and as often as it comes.
    Knowledge(Segment<'a>),
    /// [`crate::Core::next_deadline`] has come.
    Deadline,
}

/// Knowledge of a part of a stream.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// The stream.
    pub pubend: PubendId,
    /// The part begins after this tick.
    pub after: Tick,
    /// And ends with this one.
    pub upto: Tick,
    /// What is in it.
    pub what: Tell<'a>,
}

/// What is known of a part of a stream.
#[derive(Clone, Copy, Debug)]
pub enum Tell<'a> {
    /// An event at its last tick, and none before.
    Data(EventRef<'a>),
    /// No event.
    Silence,
    /// Whatever was in it is lost for good.
    Lost,
}

/// How a client answers a delivery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Settlement {
    /// At-least-once delivery acknowledged.
    Acknowledged,
    /// First phase of exactly-once: it has the event. Answered by [`Output::release`].
    Received,
    /// Second phase of exactly-once: it has forgotten the tag.
    Completed,
    /// It does not want the event; the hand-over ends.
    Refused,
}

/// What became of a published event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Accepted {
    /// It has its id and is on its way.
    Routed {
        /// Whether any subscription wanted it.
        matched: bool,
    },
    /// The same tag again before its release; it was accepted the first time.
    Repeat,
    /// It is not accepted.
    Refused(Refusal),
}

/// Why the core does not do what was asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// A topic filter is not well-formed.
    BadFilter(whimbrel_selector::TopicError),
    /// A topic name is not well-formed.
    BadTopic(whimbrel_selector::TopicError),
    /// A shared subscription asks to leave out the session's own events.
    SharedNoLocal,
    /// A shared subscription asks for another selector than that which its other members share.
    OtherSelector,
    /// The session has as many subscriptions as it may.
    TooManySubscriptions,
    /// The session's selectors are as long together as they may be.
    TooManySelectors,
    /// The broker has as many sessions as it may.
    TooManySessions,
    /// The broker retains as much as it may.
    TooMuchRetained,
    /// A shared subscription asks for a place to begin, for the cache or for notices.
    SharedTracked,
    /// A place to begin needs a subscription that gets what it missed.
    StartNotKept,
    /// The token belongs to another deployment.
    OtherDeployment,
    /// The place to begin lies ahead of what the broker can have sent.
    FutureStart,
    /// The place to begin names too many streams of brokers that are not known here.
    TooManyStrangers,
    /// No subscription of the session is acknowledged by token, or several are and none is named.
    NotAcknowledged,
}

/// Why the core ends a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kick {
    /// The same client id attached elsewhere.
    TakenOver,
    /// More waits for this client than its bounds allow.
    TooSlow,
}

/// What the edge did with a delivery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// Taken, and more can be.
    Open,
    /// Taken, but no more until [`Input::Writable`].
    Full,
    /// Larger than the client accepts: dropped as if it had been delivered and settled.
    TooLarge,
}

/// One event on its way to one subscription.
#[derive(Clone, Copy, Debug)]
pub struct Delivery<'a> {
    /// The event.
    pub event: EventRef<'a>,
    /// Its name.
    pub id: EventId,
    /// Deliveries with the same number carry the same event, so an edge may reuse what it encoded; 0: not known.
    pub serial: u64,
    /// Names the delivery until it is settled; 0 with [`Qos::AtMostOnce`].
    pub tag: u16,
    /// How surely it is handed over.
    pub qos: Qos,
    /// It was sent before, on another connection.
    pub repeated: bool,
    /// The retain mark.
    pub retain: bool,
    /// The subscription's identifier; 0: none.
    pub identifier: u32,
    /// The client wants to know the event's name.
    pub named: bool,
}

/// Where the core's decisions go. All calls for one link are in the order in which they take effect.
pub trait Output {
    /// The link has its session; `present` if it existed before. Repeated and waiting deliveries follow.
    fn attached(&mut self, link: Link, present: bool);
    /// The link gets no session.
    fn refused(&mut self, link: Link, why: Refusal);
    /// The edge must end this connection; the core has already let go of it.
    fn kicked(&mut self, link: Link, why: Kick);
    /// The answers to a subscribe, in its order. Retained messages follow.
    fn subscribed(&mut self, link: Link, results: &[Result<Granted, Refusal>]);
    /// The answers to an unsubscribe, in its order: whether there was such a subscription.
    fn unsubscribed(&mut self, link: Link, existed: &[bool]);
    /// The answer to a publish with a tag.
    fn accepted(&mut self, link: Link, tag: u16, qos: Qos, result: Accepted);
    /// The tag of an exactly-once publish is free again; `known` if the core had it.
    fn completed(&mut self, link: Link, tag: u16, known: bool);
    /// Second phase of an exactly-once delivery; `known` if the core has such a delivery.
    fn release(&mut self, link: Link, tag: u16, known: bool);
    /// Hand an event to the client.
    fn deliver(&mut self, link: Link, delivery: &Delivery<'_>) -> Sent;
    /// The stream to which that link publishes has run ahead of the clock: nothing should be taken from it for a while.
    fn hold(&mut self, _link: Link, _span: Duration) {}
    /// Something is known of an own stream, for whoever carries it to other brokers.
    fn knowledge(&mut self, _segment: &Segment<'_>) {}
}

/// What a deadline is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Reason {
    /// A will whose session has not come back is due.
    WillDelay,
    /// A session has been away for as long as it may.
    SessionExpiry,
    /// A subscription with notices got nothing for a while.
    Silence,
    /// Subscriptions that are catching up go on.
    CatchUp,
}
