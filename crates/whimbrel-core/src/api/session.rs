//! What a client asks for: its session, subscriptions, and to publish.

use core::time::Duration;
use std::sync::Arc;

use whimbrel_event::{CheckpointToken, Event, EventId, EventRef, Qos, Time};
use whimbrel_selector::Selector;

use super::Link;

/// A message that is published when a client ends without saying goodbye.
#[derive(Clone, Debug)]
pub struct Will {
    /// The message; its own id and acceptance time mean nothing, its expiry counts from
    /// publication.
    pub event: Event,
    /// Whether it becomes the topic's retained message.
    pub retain: bool,
    /// How long after the end of the connection it waits for the session to come back.
    pub delay: Duration,
    /// How long after its publication it is of use.
    pub lifetime: Option<Duration>,
}

/// Whose a session is to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionPrincipal {
    /// The name that the client has proved to have: 1 to [`crate::PRINCIPAL_BYTES_MAX`] bytes.
    pub name: Arc<str>,
    /// It may also have a session that is somebody else's, which is its own from then on.
    pub may_adopt: bool,
}

impl SessionPrincipal {
    /// Its name, if it may not have what is somebody else's.
    pub(crate) fn stranger(&self) -> Option<&str> {
        Some(&*self.name).filter(|_| !self.may_adopt)
    }
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
    /// If what brokers keep of the session cannot be reached, begin without it: the client knows
    /// itself where it stands.
    pub without_copy: bool,
    /// Whose it is to be; `None`: nobody is known, and everybody may have every session.
    pub principal: Option<SessionPrincipal>,
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
    /// What a session that outlives its connection does by itself: with a log as
    /// [`Durability::Durable`]; else reliable events wait in the session, or in the shared
    /// subscription, as long as that lives and its bounds allow.
    #[default]
    Queued,
    /// Nothing: it goes on with what comes after its return.
    Nondurable,
    /// What the cache still has; the rest is a gap.
    SemiDurable,
    /// Everything: what it wants is logged, and kept until it has acknowledged it, or one of those
    /// who share it has. Without a log, or in a session that ends with its connection, as
    /// [`Durability::SemiDurable`], or as [`Durability::Queued`] if it is shared.
    Durable,
}

impl Durability {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Durability::Queued => "queued",
            Durability::Nondurable => "nondurable",
            Durability::SemiDurable => "semi-durable",
            Durability::Durable => "durable",
        }
    }
}

/// Where a subscription begins.
#[derive(Clone, Copy, Debug, Default)]
pub enum Start<'a> {
    /// Where the session's subscription stands; a new one begins now.
    #[default]
    Own,
    /// After what a checkpoint token says, and after these events, which came later.
    Token(&'a CheckpointToken, &'a [EventId]),
    /// After these events, at least one. Other pubends begin a minute before the smallest tick that
    /// is named.
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
    /// The client keeps the position, and acknowledges with [`crate::Input::Acknowledge`].
    pub by_token: bool,
    /// Gaps and silence are delivered as events on the topic [`crate::NOTICE_TOPIC`].
    pub notices: bool,
    /// The answer is to name the position at which it begins.
    pub wants_token: bool,
    /// Deliveries are to say the names of their events.
    pub named: bool,
}

/// A subscription as it was granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// The most that deliveries have.
    pub qos: Qos,
    /// What it gets of the time in which nobody is there for it.
    pub durability: Durability,
    /// That is less than what was asked for.
    pub is_less: bool,
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
    /// Which events are wanted; `None`: all. A shared subscription has one selector for all its
    /// members.
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
    /// The publisher's own number for it: one that is not greater than the last that it gave is a
    /// repeat.
    pub number: Option<u64>,
    /// The event.
    pub event: EventRef<'a>,
}
