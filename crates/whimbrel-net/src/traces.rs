//! The latest steps of events at this broker: links they came over and went over, and what
//! prevented that.

use std::collections::VecDeque;

use whimbrel_event::{EventId, HostId, Time};

/// Notes that are kept: some seconds of a busy broker.
pub const TRACES_MAX: usize = 16_384;

/// Why an event does not take a link that is on its path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RerouteCause {
    /// There is no link at present.
    Down,
    /// Frames do not arrive over it.
    Dark,
    /// Too many frames are lost on it.
    Lossy,
    /// It takes longer than planned.
    Slow,
}

impl RerouteCause {
    /// All of them.
    pub const ALL: [RerouteCause; 4] =
        [RerouteCause::Down, RerouteCause::Dark, RerouteCause::Lossy, RerouteCause::Slow];

    /// In one word.
    pub fn name(self) -> &'static str {
        ["down", "dark", "lossy", "slow"][self as usize]
    }
}

/// A step of an event at this broker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TraceStep {
    /// It was sent over a link.
    Sent(HostId),
    /// It was sent once more over a link, behind the next event.
    Repeated(HostId),
    /// It was received over a link, at this age, microseconds: the time since it was accepted, that
    /// on links estimated or, for one with a deadline, measured.
    Came(HostId, u64),
    /// It was received as an answer, after it was asked for: the neighbour and its age as above.
    CameAgain(HostId, u64),
    /// A copy of it ends here: what it was to bring to this neighbour has gone there before.
    Joined(HostId),
    /// It was not sent over a link, as too much is unsent there.
    HeldBack(HostId),
    /// It does not take the link to this neighbour, which is on its path, but another way.
    Rerouted(HostId, RerouteCause),
    /// There was no way around a link on its path.
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
