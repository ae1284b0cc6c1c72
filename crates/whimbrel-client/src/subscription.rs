//! Subscriptions: what to ask for, and where to begin.

use std::fmt;

use whimbrel_mqtt::codec::{Filter, QoS, RetainHandling};

use crate::Position;

/// The events that a subscription gets of the time in which its client is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Nothing: it resumes with events after the client's return.
    Nondurable,
    /// What the broker's cache still holds. Overwritten events are told as a gap.
    SemiDurable,
    /// Everything.
    Durable,
}

impl Durability {
    /// Its name in `w-durability`.
    pub fn name(self) -> &'static str {
        match self {
            Durability::Nondurable => "nondurable",
            Durability::SemiDurable => "semi-durable",
            Durability::Durable => "durable",
        }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Where a subscription begins. [`fmt::Display`] gives the text of `w-from`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// After this position.
    After(Position),
    /// After this time, by when the broker accepted an event; written as in RFC 3339:
    /// `2026-11-21T20:00:00Z`. The broker parses it.
    Since(String),
    /// With the oldest event that the broker still has.
    Earliest,
}

impl fmt::Display for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Start::After(position) => position.fmt(f),
            Start::Since(moment) => f.write_str(moment),
            Start::Earliest => f.write_str("earliest"),
        }
    }
}

/// A subscription to one topic filter, with the extensions of Whimbrel's brokers. It needs MQTT 5.
///
/// ```
/// use whimbrel_client::{Durability, QoS, Subscription};
///
/// let subscription = Subscription::to("fleet/#")
///     .qos(QoS::AtLeastOnce)
///     .selector("speed > 50")
///     .durability(Durability::SemiDurable)
///     .notices();
/// # let _ = subscription;
/// ```
#[derive(Clone, Debug)]
#[must_use = "it is only what to ask for"]
pub struct Subscription {
    pub(crate) filter: String,
    pub(crate) qos: QoS,
    pub(crate) retain_handling: RetainHandling,
    pub(crate) identifier: Option<u32>,
    selector: Option<String>,
    durability: Option<Durability>,
    from: Option<Start>,
    by_token: bool,
    notices: bool,
    replier: bool,
    properties: Vec<(String, String)>,
}

impl Subscription {
    /// A subscription to this topic filter, with QoS 0 and retained messages; all else is the
    /// broker's default.
    pub fn to(filter: impl Into<String>) -> Subscription {
        Subscription {
            filter: filter.into(),
            qos: QoS::AtMostOnce,
            retain_handling: RetainHandling::Send,
            identifier: None,
            selector: None,
            durability: None,
            from: None,
            by_token: false,
            notices: false,
            replier: false,
            properties: Vec::new(),
        }
    }

    /// The highest QoS of deliveries.
    pub fn qos(mut self, qos: QoS) -> Self {
        self.qos = qos;
        self
    }

    /// Whether messages retained before are sent.
    pub fn retained(mut self, handling: RetainHandling) -> Self {
        self.retain_handling = handling;
        self
    }

    /// An identifier that the broker sends with each message
    /// ([`crate::Message::subscription_ids`]).
    pub fn identifier(mut self, identifier: u32) -> Self {
        self.identifier = Some(identifier);
        self
    }

    /// Only messages for which this condition is true.
    pub fn selector(mut self, selector: impl Into<String>) -> Self {
        self.selector = Some(selector.into());
        self
    }

    /// What the subscription gets of the time in which this client is away.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = Some(durability);
        self
    }

    /// Where it begins; by default at the position of the session's subscription, or now. From then
    /// on the client keeps the position.
    pub fn from(mut self, start: Start) -> Self {
        self.from = Some(start);
        self
    }

    /// The client acknowledges with [`crate::Client::acknowledge`], and the broker keeps that
    /// position in the session.
    pub fn acknowledged_by_token(mut self) -> Self {
        self.by_token = true;
        self
    }

    /// Gaps and silence are told among the messages ([`crate::Message::notice`]).
    pub fn notices(mut self) -> Self {
        self.notices = true;
        self
    }

    /// The subscription answers events that ask for replies. Brokers keep that and tell each other;
    /// they do not count replies yet.
    pub fn replier(mut self) -> Self {
        self.replier = true;
        self
    }

    /// Adds another user property of the subscription.
    pub fn property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.properties.push((name.into(), value.into()));
        self
    }

    /// The start that was asked for.
    pub(crate) fn start(&self) -> Option<&Start> {
        self.from.as_ref()
    }

    /// The filter of the SUBSCRIBE packet.
    pub(crate) fn as_filter(&self) -> Filter<'_> {
        Filter { retain_handling: self.retain_handling, ..Filter::new(&self.filter, self.qos) }
    }

    /// The user properties of the SUBSCRIBE packet.
    pub(crate) fn user(&self) -> Vec<(&str, String)> {
        let given = self.properties.iter().map(|(name, value)| (name.as_str(), value.clone()));
        let mut user: Vec<_> = given.collect();
        user.extend(self.selector.as_ref().map(|selector| ("w-selector", selector.clone())));
        user.extend(self.durability.map(|durability| ("w-durability", durability.to_string())));
        user.extend(self.from.as_ref().map(|start| ("w-from", start.to_string())));
        user.extend(self.by_token.then(|| ("w-ack", "token".to_owned())));
        user.extend(self.notices.then(|| ("w-notices", "on".to_owned())));
        user.extend(self.replier.then(|| ("w-replier", "on".to_owned())));
        user
    }
}
