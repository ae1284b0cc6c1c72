//! Subscriptions, and the targets that routes have for them.

use whimbrel_event::Qos;
use whimbrel_selector::Place;

use super::{NO_CURSOR, NO_GROUP};
use crate::api::Naming;
use crate::session::Terms;
use crate::subscription::SubscriptionSpec;

/// Marks index keys that are shared subscriptions.
pub(super) const GROUP_BIT: u32 = 1 << 31;

/// Marks index keys that are partitions of the cache.
pub(super) const PARTITION_BIT: u32 = 1 << 30;

/// Marks index keys that are durable interests: subscriptions that are not confirmed yet, or have
/// ended.
pub(super) const INTEREST_BIT: u32 = 1 << 29;

/// Marks index keys that are other brokers.
pub(super) const BROKER_BIT: u32 = 1 << 28;

/// All marks.
pub(super) const MARKS: u32 = GROUP_BIT | PARTITION_BIT | INTEREST_BIT | BROKER_BIT;

/// The spot of a subscription in the index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexSpot {
    pub(crate) place: Place,
    /// It has a selector.
    pub(crate) selective: bool,
}

/// A durable interest: the events logged for a subscription that waits for its confirmation, or for
/// its end.
#[derive(Debug)]
pub(crate) struct DurableInterest {
    pub(super) number: u32,
    pub(super) spot: IndexSpot,
}

/// One subscription of one session.
#[derive(Debug)]
pub(crate) struct Subscription {
    pub(crate) session: u32,
    /// Its text, as it was asked for, `$share/…` included.
    pub(crate) text: Box<str>,
    /// Its options as they are in force.
    pub(crate) spec: SubscriptionSpec,
    pub(crate) group: u32,
    /// Its cursor, or [`NO_CURSOR`].
    pub(crate) cursor: u32,
    /// Bytes of its selector.
    pub(crate) selector_bytes: u32,
    /// Its selector, if its session is remembered.
    pub(crate) selector: Option<Box<str>>,
    /// Set by [`super::Router::place`]; `None` for a member of a group, which is in the index once
    /// for all its members.
    pub(crate) spot: Option<IndexSpot>,
}

/// The kind of a target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TargetKind {
    /// A subscription of a session.
    Session,
    /// A shared subscription.
    Group,
    /// A subscription of a session that has a cursor.
    Cursor,
    /// A partition of the cache.
    Partition,
    /// A durable interest: no delivery, but the event is logged.
    Interest,
    /// Another broker.
    Broker,
}

/// A route's entry for one subscription: all that a delivery needs of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    /// The session, shared subscription, cursor, partition, interest or broker: see `kind`.
    pub(crate) to: u32,
    pub(crate) identifier: u32,
    pub(crate) qos: Qos,
    pub(crate) kind: TargetKind,
    pub(crate) no_local: bool,
    pub(crate) retain_as_published: bool,
    /// See [`SubscriptionSpec::named`].
    pub(crate) named: bool,
    pub(crate) attached_only: bool,
    /// Its events are logged.
    pub(crate) is_durable: bool,
}

impl Target {
    /// The terms on which a session gets an event of this QoS, with or without the retain mark.
    #[inline]
    pub(crate) fn terms(&self, qos: Qos, retain: bool) -> Terms {
        let (qos, retain) = (qos.min(self.qos), retain && self.retain_as_published);
        let (group, origin, naming) = (NO_GROUP, 0, Naming::of(self.named));
        Terms { qos, identifier: self.identifier, group, origin, retain, naming, cursor: NO_CURSOR }
    }

    /// Whether all events go to a session.
    pub(super) fn is_plain(&self) -> bool {
        self.kind == TargetKind::Session && !self.no_local && !self.is_durable
    }
}

/// The target of an index key.
pub(super) fn target(subscriptions: &[Option<Subscription>], key: u32) -> Target {
    if key & MARKS != 0 {
        let kind = match key & MARKS {
            GROUP_BIT => TargetKind::Group,
            PARTITION_BIT => TargetKind::Partition,
            BROKER_BIT => TargetKind::Broker,
            _ => TargetKind::Interest,
        };
        let (to, qos, is_durable) = (key & !MARKS, Qos::ExactlyOnce, kind == TargetKind::Interest);
        return Target {
            to,
            identifier: 0,
            qos,
            kind,
            no_local: false,
            retain_as_published: false,
            named: false,
            attached_only: false,
            is_durable,
        };
    }
    let known = subscriptions[key as usize].as_ref().expect("indexed subscriptions exist");
    let (to, kind) = if known.cursor == NO_CURSOR {
        (known.session, TargetKind::Session)
    } else {
        (known.cursor, TargetKind::Cursor)
    };
    let spec = &known.spec;
    Target {
        to,
        identifier: spec.identifier,
        qos: spec.qos,
        kind,
        no_local: spec.no_local,
        retain_as_published: spec.retain_as_published,
        named: spec.named,
        attached_only: spec.is_attached_only(),
        is_durable: spec.is_durable(),
    }
}
