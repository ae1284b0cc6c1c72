//! Requests of a client: for its session, for subscriptions, and to publish.

use core::time::Duration;
use std::sync::Arc;

use whimbrel_event::{CheckpointToken, Event, EventId, EventRef, Qos, Time};
use whimbrel_selector::Selector;

use super::Link;

/// A message that is published when a client's connection ends without a goodbye.
#[derive(Clone, Debug)]
pub struct Will {
    /// The message. Its id and acceptance time have no meaning; its expiry counts from publication.
    pub event: Event,
    /// Whether it becomes the topic's retained message.
    pub retain: bool,
    /// How long after the end of the connection it waits for the session to return.
    pub delay: Duration,
    /// The lifetime of the message after its publication.
    pub lifetime: Option<Duration>,
}

/// The principal of a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionPrincipal {
    /// The name that the client has proved: 1 to [`crate::PRINCIPAL_BYTES_MAX`] bytes.
    pub name: Arc<str>,
    /// The client may also adopt a session of another principal, which is its own from then on.
    pub may_adopt: bool,
}

impl SessionPrincipal {
    /// The name, if it may not adopt sessions of other principals.
    pub(crate) fn stranger(&self) -> Option<&str> {
        Some(&*self.name).filter(|_| !self.may_adopt)
    }
}

/// A client's connection asks for its session.
#[derive(Debug)]
pub struct Attach<'a> {
    /// The connection.
    pub link: Link,
    /// The id of the client.
    pub client_id: &'a str,
    /// Start with a new session, and drop an existing one.
    pub clean_start: bool,
    /// How long the session outlives the connection; zero: not at all.
    pub expiry: Duration,
    /// Unsettled deliveries that the client takes at once, at least 1.
    pub window: u16,
    /// Published if the connection ends without a goodbye.
    pub will: Option<Box<Will>>,
    /// Start without the session if no broker with its state can be reached: the client knows its
    /// position itself.
    pub without_copy: bool,
    /// The principal of the session; `None`: clients are not identified, and any may have every
    /// session.
    pub principal: Option<SessionPrincipal>,
}

/// The treatment of retained messages when a subscription is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RetainHandling {
    /// All matching messages are delivered.
    Send,
    /// They are delivered unless the subscription existed.
    SendIfNew,
    /// None is delivered.
    DoNotSend,
}

/// The events that a subscription gets from the time in which its client is not connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// The default of a session that outlives its connection. With a log it is
    /// [`Durability::Durable`]; otherwise reliable events wait in the session, or in the shared
    /// subscription, as long as that lives and its bounds allow.
    #[default]
    Queued,
    /// None: the subscription continues with the events after its return.
    Nondurable,
    /// The events that the cache still has; the rest is a gap.
    SemiDurable,
    /// All events: they are logged, and kept until the subscription, or one of the members that
    /// share it, has acknowledged them. Without a log, or in a session that ends with its
    /// connection, it is [`Durability::SemiDurable`], or [`Durability::Queued`] if it is shared.
    Durable,
}

impl Durability {
    /// The name as text.
    pub fn name(self) -> &'static str {
        match self {
            Durability::Queued => "queued",
            Durability::Nondurable => "nondurable",
            Durability::SemiDurable => "semi-durable",
            Durability::Durable => "durable",
        }
    }
}

/// The start position of a subscription.
#[derive(Clone, Copy, Debug, Default)]
pub enum Start<'a> {
    /// The position of the session's subscription; a new one starts now.
    #[default]
    Own,
    /// After the position of a checkpoint token, and after these events, which came later.
    Token(&'a CheckpointToken, &'a [EventId]),
    /// After these events, at least one. Other pubends start a minute before the smallest tick that
    /// is named.
    After(&'a [EventId]),
    /// With the first event accepted after that moment.
    Since(Time),
    /// With the oldest event in the cache.
    Earliest,
}

/// The way in which a subscription follows the streams.
#[derive(Clone, Copy, Debug, Default)]
pub struct Following<'a> {
    /// The events that it gets from the time in which its client is not connected.
    pub durability: Durability,
    /// The start position; any but [`Start::Own`] needs [`Durability::SemiDurable`].
    pub start: Start<'a>,
    /// The client keeps the position, and acknowledges with [`crate::Input::Acknowledge`].
    pub by_token: bool,
    /// Gaps and silence are delivered as events on the topic [`crate::NOTICE_TOPIC`].
    pub notices: bool,
    /// The answer must name the start position.
    pub wants_token: bool,
    /// Deliveries must have the names of their events.
    pub named: bool,
}

/// A subscription as it was granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// The greatest quality of service of deliveries.
    pub qos: Qos,
    /// The events that it gets from the time in which its client is not connected.
    pub durability: Durability,
    /// The durability is less than requested.
    pub is_less: bool,
    /// The start position, if requested.
    pub begins: Option<CheckpointToken>,
}

/// A requested subscription.
#[derive(Clone, Copy, Debug)]
pub struct Filter<'a> {
    /// A topic filter, or `$share/<group>/<filter>`.
    pub filter: &'a str,
    /// The greatest quality of service of deliveries.
    pub qos: Qos,
    /// Leave out events that the same session publishes.
    pub no_local: bool,
    /// Deliver with the retain mark as published; otherwise live events have none.
    pub retain_as_published: bool,
    /// The treatment of retained messages.
    pub retain_handling: RetainHandling,
    /// Delivered with every event, for the client to tell its subscriptions apart; 0: none.
    pub identifier: u32,
    /// The selector of wanted events; `None`: all. A shared subscription has one selector for all
    /// its members.
    pub selector: Option<&'a Selector>,
    /// The way in which it follows the streams.
    pub following: Following<'a>,
}

/// An event from a client.
#[derive(Clone, Copy, Debug)]
pub struct Publish<'a> {
    /// The connection.
    pub link: Link,
    /// The client's name for the hand-over; 0 with [`Qos::AtMostOnce`].
    pub tag: u16,
    /// The event becomes the topic's retained message; an empty payload clears it.
    pub retain: bool,
    /// The publisher's own number for the event. A number that is not greater than its last one
    /// marks a repetition.
    pub number: Option<u64>,
    /// The event.
    pub event: EventRef<'a>,
}
