//! What an edge may ask of the broker, and what it is told.

mod limits;
mod session;
mod told;

use core::time::Duration;

use whimbrel_event::{CheckpointToken, EventRef, HostId, PubendId, Qos, Tick};

pub use limits::Limits;
pub use session::{
    Attach, Durability, Filter, Following, Granted, Publish, RetainHandling, SessionPrincipal, Start, Will,
};
pub use told::{Accepted, Delivery, EventStep, Kick, Naming, Output, Refusal, Sent, Unread};
pub use whimbrel_net::{Channel, HangUp, PeerInput, PeerLink};

use crate::store::{BatchNo, Disk, Fetched};

/// The edge's name for one attached connection. Small numbers, reused; the core keeps a table as
/// long as the largest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Link(pub u32);

/// What can happen to the core.
#[derive(Debug)]
pub enum Input<'a> {
    /// A connection asks for a session. Answered by [`Output::attached`] or [`Output::refused`], if
    /// the session may be at another broker not at once: until then the link is not attached, and
    /// the edge may only say that it is [`Input::Detach`]ed.
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
        /// The client's name for it, given back with the answer.
        tag: u16,
        /// Which.
        filters: &'a [Filter<'a>],
    },
    /// Subscriptions end. Answered by [`Output::unsubscribed`].
    Unsubscribe {
        /// By whom.
        link: Link,
        /// The client's name for it, given back with the answer.
        tag: u16,
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
    /// The client has safely processed what a subscription that it keeps the position of got up to
    /// `token`. Answered by [`Output::accepted`] as a publish with that tag.
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
    /// The client will not repeat the publish `tag`, which may be used anew. Answered by
    /// [`Output::completed`].
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
    /// What [`Output::read_out`] has asked for: what the link had sent by then has been given to
    /// the edge, and handled. Ignored if it is not awaited.
    ReadOut {
        /// Which.
        link: Link,
        /// Nothing was left unread; else there was more than may be read at once.
        is_whole: bool,
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
    /// [`crate::Broker::next_deadline`] has come.
    Deadline,
    /// A publish that the edge itself refuses; its answer keeps its place among those to the same
    /// link. Answered by [`Output::accepted`].
    RefusedAtEdge {
        /// Whose.
        link: Link,
        /// The client's name for the hand-over.
        tag: u16,
        /// How it was handed over.
        qos: Qos,
        /// The edge's own reason, given back in [`Accepted::RefusedAtEdge`].
        code: u8,
    },
    /// All batches up to this one are durable.
    Committed {
        /// The last of them.
        upto: BatchNo,
    },
    /// What the disk takes has changed.
    Disk(Disk),
    /// What was asked for with [`crate::Broker::fetch`].
    Fetched(Fetched<'a>),
    /// An operator ends the session of that client, as its expiry would; if the client is there, it
    /// is disconnected.
    DropSession {
        /// Whose; it need not exist.
        client_id: &'a str,
    },
    /// Something happens on the links to other brokers.
    Peer(PeerInput<'a>),
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
    /// At-least-once delivery refused: it does not want the event; the hand-over ends.
    Refused,
    /// The same of an exactly-once delivery, instead of its first phase.
    NotReceived,
}

/// What a deadline is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Reason {
    /// A will whose session has not come back is due.
    WillDelay,
    /// A session has been away for as long as it may.
    SessionExpiry,
    /// A connection whose session is claimed has not been read to its end in time.
    ReadOut,
    /// A subscription with notices got nothing for a while.
    Silence,
    /// Subscriptions that are catching up go on.
    CatchUp,
    /// More of what was committed is to be passed on.
    Committed,
    /// What is written lazily is to be written.
    Flush,
    /// Other brokers are to be told something, or asked, or have been silent for too long.
    Overlay,
}
