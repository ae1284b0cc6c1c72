//! The interface between the broker and an edge: inputs, and the outputs that answer them.

mod limits;
mod session;
mod told;

use core::time::Duration;

use whimbrel_event::{CheckpointToken, EventRef, HostId, PubendId, Qos, Tick};

pub use limits::Limits;
pub use session::{
    Attach, Durability, Filter, Granted, Publish, RetainHandling, SessionPrincipal, Start, SubscriptionSpec, Will,
};
pub use told::{Accepted, Delivery, EventStep, Kick, Naming, Output, Refusal, Sent, Unread};
pub use whimbrel_net::{Channel, HangUp, Hop, LinkOutput, PeerInput, PeerLink};

use crate::store::{BatchNo, Disk, Fetched};
use crate::topic::RankedProfile;

/// The edge's number for an attached connection. Numbers are small and reused; the core keeps a
/// table as long as the largest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Link(pub u32);

/// The inputs of the core.
#[derive(Debug)]
pub enum Input<'a> {
    /// A connection asks for a session. Answered by [`Output::attached`] or [`Output::refused`];
    /// not at once if the session may be at another broker. Until then the link is not attached,
    /// and [`Input::Detach`] is the only further input for it.
    Attach(Attach<'a>),
    /// A connection has ended.
    Detach {
        /// The connection.
        link: Link,
        /// Whether its will is to be published.
        publish_will: bool,
        /// A new expiry of the session, if the client gave one when it left.
        expiry: Option<Duration>,
    },
    /// A client asks for subscriptions. Answered by [`Output::subscribed`].
    Subscribe {
        /// The connection.
        link: Link,
        /// The client's name for it, given back with the answer.
        tag: u16,
        /// The subscriptions.
        filters: &'a [Filter<'a>],
    },
    /// A client ends subscriptions. Answered by [`Output::unsubscribed`].
    Unsubscribe {
        /// The connection.
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
        /// The event.
        event: &'a EventRef<'a>,
        /// Whether it is retained.
        retain: bool,
    },
    /// The client has safely processed a subscription's events up to `token`; the client keeps the
    /// position. Answered by [`Output::accepted`] as a publish with that tag.
    Acknowledge {
        /// The connection.
        link: Link,
        /// The client's name for the hand-over; 0 with [`Qos::AtMostOnce`].
        tag: u16,
        /// The quality of service of the hand-over.
        qos: Qos,
        /// The subscription's identifier; 0: the only subscription that is acknowledged by token.
        identifier: u32,
        /// The position up to which events are processed.
        token: &'a CheckpointToken,
    },
    /// The client will not repeat the publish `tag`, which may be used anew. Answered by
    /// [`Output::completed`].
    Release {
        /// The connection.
        link: Link,
        /// The tag of the publish.
        tag: u16,
    },
    /// The client has settled the delivery `tag`: acknowledged, completed, or refused it.
    Settle {
        /// The connection.
        link: Link,
        /// The tag of the delivery.
        tag: u16,
        /// The packet that settled it.
        by: Settlement,
    },
    /// The answer to [`Output::read_out`]: everything that the link had sent by then has been given
    /// to the edge, and handled. Ignored if it is not awaited.
    ReadOut {
        /// The connection.
        link: Link,
        /// Nothing was left unread; otherwise there was more than may be read at once.
        is_whole: bool,
    },
    /// The link takes deliveries again after [`Sent::Full`].
    Writable {
        /// The connection.
        link: Link,
    },
    /// There is another broker with streams of its own; a known one changes nothing.
    Host {
        /// The part that the numbers of its pubends have in common.
        host: HostId,
        /// The number of its streams from index 0 on, see [`whimbrel_event::KIND_PUBENDS_MAX`].
        reliable: u8,
        /// The number of its further streams.
        further: u8,
        /// The tick after which they began.
        birth: Tick,
    },
    /// A profile of topics is made, in place of one with the same filter that was made before, or
    /// removed; at this broker and all others.
    ChangeProfile {
        /// The filter of the profile, which is valid.
        filter: &'a str,
        /// The profile; `None`: it is removed.
        made: Option<&'a RankedProfile>,
    },
    /// Knowledge of a stream of another broker. May come in any order and repeatedly.
    Knowledge(Segment<'a>),
    /// [`crate::Broker::next_deadline`] has come.
    Deadline,
    /// A publish that the edge itself refuses; its answer keeps its place among those to the same
    /// link. Answered by [`Output::accepted`].
    RefusedAtEdge {
        /// The connection.
        link: Link,
        /// The client's name for the hand-over.
        tag: u16,
        /// The quality of service of the hand-over.
        qos: Qos,
        /// The edge's own reason, given back in [`Accepted::RefusedAtEdge`].
        code: u8,
    },
    /// All batches up to this one are durable.
    Committed {
        /// The last of them.
        upto: BatchNo,
    },
    /// The state of the disk has changed.
    Disk(Disk),
    /// The result of [`crate::Broker::fetch`].
    Fetched(Fetched<'a>),
    /// An operator ends a client's session, as its expiry would; the client is disconnected if it
    /// is connected.
    DropSession {
        /// The client's id; its session need not exist.
        client_id: &'a str,
    },
    /// An event on the links to other brokers.
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
    /// The content of the part.
    pub what: Tell<'a>,
}

/// The content of a part of a stream.
#[derive(Clone, Copy, Debug)]
pub enum Tell<'a> {
    /// An event at its last tick, and none before.
    Data(&'a EventRef<'a>),
    /// No event.
    Silence,
    /// Its events, if there were any, are lost for good.
    Lost,
}

/// How a client answers a delivery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Settlement {
    /// At-least-once delivery acknowledged.
    Acknowledged,
    /// First phase of exactly-once delivery: the client has the event. Answered by
    /// [`Output::release`].
    Received,
    /// Second phase of exactly-once delivery: the client has forgotten the tag.
    Completed,
    /// At-least-once delivery refused: the client does not want the event; the hand-over ends.
    Refused,
    /// Exactly-once delivery refused, instead of its first phase.
    NotReceived,
}

/// The purpose of a deadline.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Reason {
    /// The will of a session that has not returned is due.
    WillDelay,
    /// A session was without a connection for the longest time allowed.
    SessionExpiry,
    /// A connection whose session is claimed was not read to its end in time.
    ReadOut,
    /// A subscription with notices had no delivery for [`Limits::silence_after`].
    Silence,
    /// A subscription with notices expects an event by now.
    Expected,
    /// Subscriptions in catch-up are continued.
    CatchUp,
    /// Further committed entries are passed on.
    Committed,
    /// Lazy writes are due.
    Flush,
    /// The overlay has a deadline: other brokers are told or asked something, or have been silent
    /// for too long.
    Overlay,
}
