//! Requests of a client: for its session, for subscriptions, and to publish.

use core::time::Duration;
use std::sync::Arc;

use whimbrel_event::{CheckpointToken, Domains, Event, EventId, EventRef, Qos, Time};
use whimbrel_selector::Selector;

use super::Link;
pub use crate::subscription::{Durability, SubscriptionSpec};

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
    /// How long events of the farthest broker take at best, if that is longer than the least
    /// deadline of the subscription's topics; told if the start position is requested.
    pub infeasible: Option<Duration>,
    /// Domains that alone may carry events of some topics under its filter, and that this broker,
    /// or the home of its group, is not in, or within which another broker has no path to here: it
    /// does not get those, or not from there.
    pub refused: Option<Domains>,
}

impl Granted {
    /// Whether all events are logged for it.
    pub(crate) fn is_durable(&self) -> bool {
        self.durability == Durability::Durable
    }
}

/// A requested subscription.
#[derive(Clone, Copy, Debug)]
pub struct Filter<'a> {
    /// A topic filter, or `$share/<group>/<filter>`.
    pub filter: &'a str,
    /// The selector of wanted events; `None`: all. A shared subscription has one selector for all
    /// its members.
    pub selector: Option<&'a Selector>,
    /// The options that it will have.
    pub spec: SubscriptionSpec,
    /// The start position; any but [`Start::Own`] needs [`Durability::SemiDurable`].
    pub start: Start<'a>,
    /// The treatment of retained messages.
    pub retain_handling: RetainHandling,
    /// The answer must name the start position.
    pub wants_token: bool,
}

impl<'a> Filter<'a> {
    /// The request of a subscription that had these options before: it goes on at its own position,
    /// and reads no retained messages.
    pub(crate) fn again(filter: &'a str, selector: Option<&'a Selector>, spec: SubscriptionSpec) -> Filter<'a> {
        let (start, retain_handling) = (Start::Own, RetainHandling::DoNotSend);
        Filter { filter, selector, spec, start, retain_handling, wants_token: false }
    }
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
    pub event: &'a EventRef<'a>,
}
