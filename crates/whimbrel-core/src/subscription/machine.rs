//! The states of a SUBSCRIBE or UNSUBSCRIBE. Each is a value that one step makes and the next one
//! takes: nothing refers to an earlier state. Their fields are read in this folder only, but for
//! `LoggedFrom`.
//!
//! ```text
//! Asked ──write──▶ Written ──make──▶ InForce ──answer──▶ Answered
//! ```

use whimbrel_event::Time;

use super::Request;
use crate::api::{Granted, Refusal};
use crate::route::DurableInterest;
use crate::session::Sessions;
use crate::store::{DurableNo, OwnTicks, Recipient, SessionNo};

/// The session that asks, and the connection that is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Asker {
    /// The place of the session.
    pub(crate) index: u32,
    /// The number of the session; 0 if it is not remembered. Another one may have its place when
    /// the request goes on.
    pub(crate) number: SessionNo,
    pub(crate) whom: Recipient,
    /// The client's name for the request.
    pub(crate) tag: u16,
}

impl Asker {
    /// A request of the session at `index`.
    pub(super) fn of(sessions: &Sessions, index: u32, whom: Recipient, tag: u16) -> Asker {
        Asker { index, number: sessions.get(index).memory.number, whom, tag }
    }

    /// Whether the client that asked is still connected.
    pub(super) fn is_there(&self, sessions: &Sessions) -> bool {
        sessions.attached_to(self.whom.link) == Some(self.index) && sessions.whom(self.whom.link) == self.whom
    }
}

/// A change of a session's subscriptions.
#[derive(Debug)]
pub(super) enum Change {
    /// A SUBSCRIBE.
    Subscribe(Vec<Request>),
    /// An UNSUBSCRIBE.
    Unsubscribe(Vec<Box<str>>),
}

/// A request that waits until earlier ones of its session are in force: nothing of it is written.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(super) asker: Asker,
    /// Its place among those of its session.
    pub(super) place: u16,
    pub(super) change: Change,
}

impl Asked {
    pub(crate) fn whom(&self) -> Recipient {
        self.asker.whom
    }
}

/// A SUBSCRIBE whose records are in a batch that need not be durable yet. From here on events are
/// logged for its durable subscriptions.
#[derive(Debug)]
pub(crate) struct Written {
    pub(super) asker: Asker,
    pub(super) filters: Vec<WrittenFilter>,
    /// When it was received.
    pub(super) at: Time,
}

impl Written {
    pub(crate) fn whom(&self) -> Recipient {
        self.asker.whom
    }
}

/// One filter of a SUBSCRIBE that is written.
#[derive(Debug)]
pub(super) struct WrittenFilter {
    /// The request as it is granted.
    pub(super) request: Request,
    /// The durability is less than the client has asked for.
    pub(super) is_less: bool,
    pub(super) result: Result<Reserved, Refusal>,
}

/// What is set aside for a subscription until it is in force.
#[derive(Debug, Default)]
pub(super) struct Reserved {
    /// Set if it is durable.
    pub(super) logged: Option<LoggedFrom>,
    /// Has its events logged until then, if they are not logged already.
    pub(super) interest: Option<DurableInterest>,
    /// The durable shared subscription that it is to be a member of.
    pub(super) group: Option<u32>,
}

/// Which part of the own streams a durable subscription has events in when it comes in force.
#[derive(Clone, Debug)]
pub(crate) struct LoggedFrom {
    pub(crate) number: DurableNo,
    /// Its events were logged after these ticks.
    pub(crate) start: OwnTicks,
    /// The last events that it wanted until now.
    pub(crate) newest: OwnTicks,
    /// The last ticks at which its former selector counts, if that was another one.
    pub(crate) until: Option<OwnTicks>,
}

/// An UNSUBSCRIBE whose subscriptions have ended here. The batch that says so need not be durable
/// yet: without it they live on after a restart.
#[derive(Debug)]
pub(crate) struct WrittenEnd {
    pub(super) asker: Asker,
    /// For each filter, whether there was such a subscription.
    pub(super) existed: Vec<bool>,
    /// Has their events logged until then, by their texts.
    pub(super) interests: Vec<(Box<str>, DurableInterest)>,
}

impl WrittenEnd {
    pub(crate) fn whom(&self) -> Recipient {
        self.asker.whom
    }
}

/// A SUBSCRIBE whose subscriptions exist. Its answer may wait for other brokers.
#[derive(Debug)]
pub(super) struct InForce {
    pub(super) asker: Asker,
    pub(super) made: Vec<Made>,
    /// The number of the last event that had passed when they were made.
    pub(super) begun: u64,
}

impl InForce {
    /// The place of its session.
    pub(super) fn session(&self) -> u32 {
        self.asker.index
    }
}

/// One filter of a SUBSCRIBE that is in force.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) request: Request,
    /// There was no such subscription before.
    pub(super) is_new: bool,
    /// The options granted, or why there is no subscription.
    pub(super) result: Result<Granted, Refusal>,
}

impl Made {
    /// The text of the subscription.
    pub(super) fn text(&self) -> &str {
        self.request.text()
    }
}

/// The answer to a SUBSCRIBE: nothing of it waits any more.
#[derive(Debug)]
pub(super) struct Answered {
    /// For each filter, in their order.
    pub(super) results: Vec<Result<Granted, Refusal>>,
    /// The brokers that have not confirmed it.
    pub(super) pending: Vec<Box<str>>,
}

/// An UNSUBSCRIBE that is done, and waits for the replica of its session.
#[derive(Debug)]
pub(super) struct EndInForce {
    pub(super) asker: Asker,
    pub(super) existed: Vec<bool>,
    /// The version of the session that its replica must have.
    pub(super) copied: u64,
    pub(super) due: Time,
}
