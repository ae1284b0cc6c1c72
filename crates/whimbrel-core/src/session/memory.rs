//! The remembered state of a session beside its subscriptions.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::lazy::{Lazy, at_rest};
use crate::overlay::Attachment;
use crate::store::{BatchNo, SessionNo};

/// An exactly-once publish that its client has not released.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unreleased {
    /// The batch that has to be durable before the client may be told that it was accepted.
    pub(crate) batch: BatchNo,
    /// The tag is written, and has to be removed.
    pub(crate) is_written: bool,
}

/// The state of a session that concerns its record in the log.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Its number among all that were ever remembered.
    pub(crate) number: SessionNo,
    /// It is written, and has to be removed when it ends.
    pub(crate) is_kept: bool,
    /// The broker resumed from a copy that had the session, and the client has not been connected
    /// since.
    pub(crate) is_of_copy: bool,
    /// The name that its client has proved to have, if it is known.
    pub(crate) principal: Option<Arc<str>>,
    /// Its attachment, if there are other brokers.
    pub(crate) roam: Option<Box<Attachment>>,
    pub(crate) pending: Lazy<PendingWork>,
}

/// A delivery that could not be sent, and is written or was to fulfil another one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Abandoned {
    pub(crate) tag: u16,
    /// The shared subscription it came from, or [`crate::route::NO_GROUP`].
    pub(crate) group: u32,
    /// See [`super::Slot::origin`].
    pub(crate) origin: u16,
}

/// Pending work of a remembered session.
#[derive(Debug, Default)]
pub(crate) struct PendingWork {
    /// Changes of its subscriptions that wait to be durable.
    pub(crate) structural: u32,
    /// Requests that wait for those.
    pub(crate) later: u32,
    /// The number of requests that have waited so, modulo 65,536.
    pub(crate) asked: u16,
    /// The number of these that have had their turn, in the order of their arrival.
    pub(crate) turns: u16,
    /// Deliveries that were written and could not be sent.
    pub(crate) abandoned: Vec<Abandoned>,
    /// Exactly-once publishes that the client has not released.
    pub(crate) unreleased: BTreeMap<u16, Unreleased>,
    /// The number of an event that was refused on the current connection: greater ones are refused,
    /// too, until it comes again.
    pub(crate) refused_number: Option<u64>,
}

impl PendingWork {
    /// Whether a change of the session's subscriptions is not in force yet.
    pub(crate) fn has_changes(&self) -> bool {
        self.structural + self.later > 0
    }
}

at_rest!(
    PendingWork,
    PendingWork {
        structural: 0,
        later: 0,
        asked: 0,
        turns: 0,
        abandoned: Vec::new(),
        unreleased: BTreeMap::new(),
        refused_number: None
    }
);

impl Memory {
    /// Releases the memory for pending work: there is none.
    pub(super) fn rest(&mut self) {
        self.pending.rest();
    }
}
