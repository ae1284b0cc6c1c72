//! The options of a subscription.

use whimbrel_event::Qos;

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

/// The options that a subscription has for as long as it exists: asked for by the client, granted,
/// written with its record, and carried with its session to another broker.
///
/// An option is named here, in the codec beside, and where it takes effect; all else passes the
/// struct on as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SubscriptionSpec {
    /// The greatest quality of service of deliveries.
    pub qos: Qos,
    /// The events that it gets from the time in which its client is not connected.
    pub durability: Durability,
    /// Leave out events that the same session publishes.
    pub no_local: bool,
    /// Deliver with the retain mark as published; otherwise live events have none.
    pub retain_as_published: bool,
    /// The client keeps the position, and acknowledges with [`crate::Input::Acknowledge`].
    pub by_token: bool,
    /// Gaps and silence are delivered as events on the topic [`crate::NOTICE_TOPIC`].
    pub notices: bool,
    /// Deliveries have the names of their events.
    pub named: bool,
    /// It answers events that ask for replies. Other brokers are told that such a subscription
    /// wants these events; nothing counts them yet.
    pub is_replier: bool,
    /// Delivered with every event, for the client to tell its subscriptions apart; 0: none.
    pub identifier: u32,
}

impl SubscriptionSpec {
    /// The options of a plain subscription: those that a client gets that asks for none.
    pub fn new(qos: Qos) -> SubscriptionSpec {
        SubscriptionSpec {
            qos,
            durability: Durability::default(),
            no_local: false,
            retain_as_published: false,
            by_token: false,
            notices: false,
            named: false,
            is_replier: false,
            identifier: 0,
        }
    }

    /// Whether a subscription needs a cursor, beside the router's state.
    pub(crate) fn needs_cursor(&self) -> bool {
        matches!(self.durability, Durability::SemiDurable | Durability::Durable) || self.notices
    }

    /// The highest QoS of its deliveries. If the client keeps the position, an open exactly-once
    /// delivery of a previous connection and an event that it asks for again could be the same:
    /// then the position makes deliveries exactly once, not the handshake.
    pub(crate) fn granted_qos(&self) -> Qos {
        if self.by_token { self.qos.min(Qos::AtLeastOnce) } else { self.qos }
    }

    /// The options as they are in force. `is_logged`: the subscription has a durable position, or
    /// is a member of a shared subscription that has one. A cursor that is not logged keeps events
    /// as a semi-durable one does, and without a cursor there is no position for the client to
    /// keep.
    pub(crate) fn in_force(self, is_logged: bool) -> SubscriptionSpec {
        let durability = match self.durability {
            _ if is_logged => Durability::Durable,
            Durability::Nondurable => Durability::Nondurable,
            _ if self.needs_cursor() => Durability::SemiDurable,
            other => other,
        };
        SubscriptionSpec { durability, qos: self.granted_qos(), by_token: self.by_token && self.needs_cursor(), ..self }
    }

    /// Whether its events are logged.
    pub(crate) fn is_durable(&self) -> bool {
        self.durability == Durability::Durable
    }

    /// Whether a subscription without a cursor gets no events while its session is detached.
    pub(crate) fn is_attached_only(&self) -> bool {
        self.durability == Durability::Nondurable
    }
}
