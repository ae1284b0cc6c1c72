//! The latest steps of events at this broker: links they came over and went over, and what
//! prevented that.

use std::collections::VecDeque;

use whimbrel_event::{EventId, HostId, Time};

/// Notes that are kept: some seconds of a busy broker.
pub const TRACES_MAX: usize = 16_384;

/// A step of an event at this broker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TraceStep {
    /// It was sent over a link.
    Sent(HostId),
    /// It was received over a link.
    Came(HostId),
    /// It was not sent over a link, as too much is unsent there.
    HeldBack(HostId),
    /// A link on its path is down: it takes others.
    Repaired,
    /// There was no way around a link that is down.
    GivenUp,
    /// It was taken for subscriptions of this broker.
    Passed,
    /// It was sent again, as another broker lacked it.
    Answered,
}

/// One note.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceNote {
    /// The time of the step.
    pub at: Time,
    /// The event.
    pub id: EventId,
    /// The step.
    pub what: TraceStep,
}

/// The latest notes, at most [`TRACES_MAX`].
#[derive(Debug, Default)]
pub(crate) struct Traces {
    notes: VecDeque<TraceNote>,
}

impl Traces {
    pub(crate) fn record(&mut self, at: Time, id: EventId, what: TraceStep) {
        if self.notes.len() >= TRACES_MAX {
            self.notes.pop_front();
        }
        self.notes.push_back(TraceNote { at, id, what });
    }

    /// The recorded steps of an event, oldest first.
    pub(crate) fn of(&self, id: EventId) -> impl Iterator<Item = &TraceNote> {
        self.notes.iter().filter(move |note| note.id == id)
    }
}
