//! What is remembered of a session beside its subscriptions.

use core::ops::{Deref, DerefMut};
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::lazy::{Lazy, at_rest};
use crate::overlay::Attachment;
use crate::store::{BatchNo, SessionNo};

/// An exactly-once publish that its client has not released.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unreleased {
    /// What has to be durable before the client may hear that it was accepted.
    pub(crate) batch: BatchNo,
    /// The tag is written, and has to be forgotten.
    pub(crate) is_written: bool,
}

/// What has to do with its being remembered.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Its number among all that were ever remembered.
    pub(crate) number: SessionNo,
    /// It is written, and has to be forgotten when it ends.
    pub(crate) is_kept: bool,
    /// The broker went on from a copy in which it was, and its client has not been there since.
    pub(crate) is_of_copy: bool,
    /// Whose it is, if that is known: the name that its client has proved to have.
    pub(crate) principal: Option<Arc<str>>,
    /// For which attachment of its client it is, if there are other brokers.
    pub(crate) roam: Option<Box<Attachment>>,
    pending: Lazy<PendingWork>,
}

/// A delivery that could not be sent, and is written or was to fulfil another one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Abandoned {
    pub(crate) tag: u16,
    /// The shared subscription it came from, or [`crate::route::NO_GROUP`].
    pub(crate) group: u32,
    /// As of [`super::Slot::origin`].
    pub(crate) origin: u16,
}

/// What is under way of a session that is remembered.
#[derive(Debug, Default)]
pub(crate) struct PendingWork {
    /// What changes its subscriptions and waits to be durable.
    pub(crate) structural: u32,
    /// What waits for that.
    pub(crate) later: u32,
    /// How many requests have waited so, round and round.
    pub(crate) asked: u16,
    /// How many of them have had their turn: they have it in the order in which they were asked.
    pub(crate) turns: u16,
    /// Deliveries that were written and could not be sent.
    pub(crate) abandoned: Vec<Abandoned>,
    /// Exactly-once publishes that the client has not released.
    pub(crate) unreleased: BTreeMap<u16, Unreleased>,
    /// The number of an event that was refused on the present connection: greater ones are, too,
    /// until it comes again.
    pub(crate) refused_number: Option<u64>,
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
    /// Nothing is under way: it takes no memory.
    pub(super) fn rest(&mut self) {
        self.pending.rest();
    }
}

impl Deref for Memory {
    type Target = PendingWork;

    fn deref(&self) -> &PendingWork {
        &self.pending
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut PendingWork {
        &mut self.pending
    }
}
