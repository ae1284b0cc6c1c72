//! What became of the latest events here: where they came from, where they went, and what was in their way.

use std::collections::VecDeque;

use whimbrel_event::{EventId, Time};

use crate::api::PeerLink;

/// Notes that are kept: some seconds of a busy broker.
pub const TRACES_MAX: usize = 16_384;

/// What happened to an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum What {
    /// It was sent over a link.
    Sent(PeerLink),
    /// It came over a link.
    Came(PeerLink),
    /// It was not sent over a link, as too much is unsent there.
    HeldBack(PeerLink),
    /// A link that it was to take is down: it takes others.
    Repaired,
    /// There was no way around a link that is down.
    GivenUp,
    /// It was passed on here, to those who want it.
    Passed,
    /// It was sent again, as somebody lacked it.
    Answered,
}

/// One note.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Note {
    pub(super) at: Time,
    pub(super) id: EventId,
    pub(super) what: What,
}

/// The latest notes.
#[derive(Debug, Default)]
pub(super) struct Traces {
    notes: VecDeque<Note>,
}

impl Traces {
    pub(super) fn note(&mut self, at: Time, id: EventId, what: What) {
        if self.notes.len() >= TRACES_MAX {
            self.notes.pop_front();
        }
        self.notes.push_back(Note { at, id, what });
    }

    /// What is noted of an event, oldest first.
    pub(super) fn of(&self, id: EventId) -> impl Iterator<Item = &Note> {
        self.notes.iter().filter(move |note| note.id == id)
    }
}
