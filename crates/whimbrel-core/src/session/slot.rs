//! One delivery that a client has not settled yet.

use whimbrel_event::{Event, EventId, Qos};

use crate::api::Naming;
use crate::cursor::NO_PUBEND;
use crate::route::NO_CURSOR;

/// The next answer that a delivery expects of its client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// None yet: the record of the delivery has to be durable first.
    Preparing,
    /// None yet: it was in flight before a restart, and is sent again when its cursor gets to it in
    /// the log.
    Loading,
    /// Acknowledgement (at least once), or the first phase (exactly once).
    Expect,
    /// None: the client has the event, and the record of that has to be durable first.
    Receiving,
    /// Second phase of exactly once: the client has the event.
    ExpectCompleted,
    /// None: settled, but an older delivery is not.
    Settled,
}

/// One unsettled delivery.
#[derive(Debug)]
pub(crate) struct Slot {
    /// Its event's id.
    pub(crate) id: EventId,
    /// The event, while it may have to be sent again or given to another member.
    pub(crate) event: Option<Event>,
    pub(crate) identifier: u32,
    /// The shared subscription it came from, or [`crate::route::NO_GROUP`].
    pub(crate) group: u32,
    /// The delivery to the shared subscription's own session that this one settles; 0: none.
    pub(crate) origin: u16,
    pub(crate) qos: Qos,
    pub(crate) stage: Stage,
    pub(crate) retain: bool,
    pub(crate) naming: Naming,
    /// The cursor that it is for, or [`crate::route::NO_CURSOR`].
    pub(crate) cursor: u32,
    /// It has been sent on the current connection.
    pub(crate) sent: bool,
    /// It has been sent on an earlier connection.
    pub(crate) repeated: bool,
    /// Its place among all that were sent since the session began: repeats are sent in this order.
    pub(crate) rank: u64,
}

impl Slot {
    /// Whether the client has the event, or the delivery is over.
    pub(crate) fn is_had(&self) -> bool {
        matches!(self.stage, Stage::Settled | Stage::Receiving | Stage::ExpectCompleted)
    }

    /// Whether the client may have it.
    pub(crate) fn was_sent(&self) -> bool {
        self.sent || self.repeated
    }

    /// Whether another member of its shared subscription may get it instead. The protocol forbids
    /// that of exactly-once deliveries that `was_sent`.
    pub(super) fn may_go_to_another(&self, was_sent: bool) -> bool {
        let is_new = !was_sent && matches!(self.stage, Stage::Preparing | Stage::Expect);
        let is_open = self.qos == Qos::AtLeastOnce && self.stage == Stage::Expect;
        self.group != crate::route::NO_GROUP && self.event.is_some() && (is_new || is_open)
    }

    /// Whether it is a notice of a gap or of silence, which is in no stream.
    pub(crate) fn is_notice(&self) -> bool {
        self.id.pubend == NO_PUBEND && self.event.is_some()
    }

    /// Whether it may be sent: it is not over, and nothing else has to come first.
    pub(super) fn is_to_be_sent(&self) -> bool {
        !self.sent && matches!(self.stage, Stage::Expect | Stage::ExpectCompleted)
    }

    /// A delivery that is over.
    pub(super) fn settled(id: EventId) -> Slot {
        Slot {
            id,
            event: None,
            identifier: 0,
            group: crate::route::NO_GROUP,
            origin: 0,
            qos: Qos::AtLeastOnce,
            stage: Stage::Settled,
            retain: false,
            naming: Naming::None,
            cursor: NO_CURSOR,
            sent: false,
            repeated: false,
            rank: 0,
        }
    }
}
