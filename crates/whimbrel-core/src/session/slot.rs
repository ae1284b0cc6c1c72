//! One delivery that a client has not settled yet.

use whimbrel_event::{Event, EventId, Qos};

use crate::api::Naming;
use crate::cursor::NO_PUBEND;
use crate::route::NO_CURSOR;

/// What the client's next answer must be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// None yet: that it is on its way has to be durable first.
    Preparing,
    /// None yet: it was on its way before a restart, and is sent again when its subscription gets
    /// there in the log.
    Loading,
    /// Acknowledgement (at least once), or the first phase (exactly once).
    Expect,
    /// None: it has the event, and that has to be durable first.
    Receiving,
    /// Second phase of exactly-once: it has the event.
    ExpectCompleted,
    /// None: settled, but an older delivery is not.
    Settled,
}

/// One unsettled delivery.
#[derive(Debug)]
pub(crate) struct Slot {
    /// Its event's name.
    pub(crate) id: EventId,
    /// The event, while it may have to be sent again or given to somebody else.
    pub(crate) event: Option<Event>,
    pub(crate) identifier: u32,
    /// The shared subscription it came from, or [`crate::route::NO_GROUP`].
    pub(crate) group: u32,
    /// The delivery to the own session of that shared subscription which this one fulfils; 0: none.
    pub(crate) origin: u16,
    pub(crate) qos: Qos,
    pub(crate) stage: Stage,
    pub(crate) retain: bool,
    pub(crate) naming: Naming,
    /// The tracked subscription it is for, or [`crate::route::NO_CURSOR`].
    pub(crate) cursor: u32,
    /// It has been sent on the present connection.
    pub(crate) sent: bool,
    /// It has been sent on an earlier one.
    pub(crate) repeated: bool,
    /// Its place among all that were handed out since the session began: what is sent again is sent
    /// in this order.
    pub(crate) rank: u64,
}

impl Slot {
    /// The client has the event, or the delivery is over.
    pub(crate) fn is_had(&self) -> bool {
        matches!(self.stage, Stage::Settled | Stage::Receiving | Stage::ExpectCompleted)
    }

    /// The client may have got it.
    pub(crate) fn was_sent(&self) -> bool {
        self.sent || self.repeated
    }

    /// Another member of its shared subscription may get it instead: the protocol forbids that of
    /// what `was_sent` at exactly once.
    pub(super) fn may_go_to_another(&self, was_sent: bool) -> bool {
        let is_new = !was_sent && matches!(self.stage, Stage::Preparing | Stage::Expect);
        let is_open = self.qos == Qos::AtLeastOnce && self.stage == Stage::Expect;
        self.group != crate::route::NO_GROUP && self.event.is_some() && (is_new || is_open)
    }

    /// It tells of a gap or of silence, and is in no stream.
    pub(crate) fn is_notice(&self) -> bool {
        self.id.pubend == NO_PUBEND && self.event.is_some()
    }

    /// It is not over, and nothing else has to come first.
    pub(super) fn is_to_be_sent(&self) -> bool {
        !self.sent && matches!(self.stage, Stage::Expect | Stage::ExpectCompleted)
    }

    /// One that is over.
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
