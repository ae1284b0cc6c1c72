//! The latest events at this broker: where they came from, where they went, and what prevented
//! their delivery.
//!
//! A trace is lines of text. Each is a number, a space, and a step: the number is microseconds
//! since the first step that is recorded of the event at that broker. Lines that say for which
//! broker and why an event was sent have no number.

use core::fmt::Write;
use core::ops::ControlFlow;
use std::collections::VecDeque;

use whimbrel_event::{EventId, HostId, Tick, Time};

use crate::broker::Broker;
use crate::cache::{CacheItem, PartitionSet};

/// Slots of the cache that are searched for an event: it is the first of its stream from where the
/// search begins.
const SLOTS_MAX: usize = 1 << 16;

/// Bytes of the trace of an event.
const TRACE_BYTES_MAX: usize = 16 << 10;

/// Notes that are kept: some seconds of a busy broker.
pub const TRACES_MAX: usize = 16_384;

/// Begins the line of the broker that has accepted an event and still has it; its destinations
/// follow.
pub const ACCEPTED: &str = "accepted here";

/// A step of an event at this broker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TraceStep {
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
pub(super) struct TraceNote {
    pub(super) at: Time,
    pub(super) id: EventId,
    pub(super) what: TraceStep,
}

/// The latest notes.
#[derive(Debug, Default)]
pub(super) struct Traces {
    notes: VecDeque<TraceNote>,
}

impl Traces {
    pub(super) fn record(&mut self, at: Time, id: EventId, what: TraceStep) {
        if self.notes.len() >= TRACES_MAX {
            self.notes.pop_front();
        }
        self.notes.push_back(TraceNote { at, id, what });
    }

    /// The recorded steps of an event, oldest first.
    pub(super) fn of(&self, id: EventId) -> impl Iterator<Item = &TraceNote> {
        self.notes.iter().filter(move |note| note.id == id)
    }
}

impl Broker {
    /// What this broker knows of an event, as lines of text for people, at most 16 KiB; empty if it
    /// knows nothing.
    pub fn trace(&mut self, event: EventId) -> String {
        let mut text = String::new();
        let why = self.why(event);
        let Some(overlay) = self.overlay.as_deref() else { return text };
        let mut first = None;
        for note in overlay.net.traffic.traces.of(event) {
            let after = note.at.since(*first.get_or_insert(note.at)).as_micros();
            let name = |host| overlay.net.name_of(host);
            let what = match note.what {
                TraceStep::Sent(to) => format!("sent to {}", name(to)),
                TraceStep::Came(from) => format!("came from {}", name(from)),
                TraceStep::HeldBack(to) => format!("not sent to {}: too much is unsent there", name(to)),
                TraceStep::Repaired => "a link on its way is down: another way is taken".into(),
                TraceStep::GivenUp => "no way around a link that is down".into(),
                TraceStep::Passed => "taken for subscriptions here".into(),
                TraceStep::Answered => "sent again, as somebody lacked it".into(),
            };
            let line = format!("{after} {what}\n");
            if text.len() + line.len() > TRACE_BYTES_MAX / 2 {
                break;
            }
            text.push_str(&line);
        }
        for line in why {
            if text.len() + line.len() < TRACE_BYTES_MAX {
                text.push_str(&line);
            }
        }
        text
    }

    /// The entries of other brokers' interests for which an event of an own stream is sent, if it
    /// is still cached and they are still wanted.
    fn why(&mut self, id: EventId) -> Vec<String> {
        let Broker { overlay, cache, router, .. } = self;
        let Some(overlay) = overlay.as_deref().filter(|overlay| overlay.net.is_own(id)) else { return Vec::new() };
        let partitions = PartitionSet::first(cache.plan().count());
        let from = cache.serial_for(id.pubend, Tick(id.tick.0.saturating_sub(1)));
        let mut lines = Vec::new();
        cache.read(from, &partitions, SLOTS_MAX, |item| {
            let CacheItem::Event { event, .. } = item else { return ControlFlow::Continue(()) };
            if event.id() != id {
                let is_beyond = event.id().pubend == id.pubend && event.id().tick > id.tick;
                return if is_beyond { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
            }
            lines.push(format!("{ACCEPTED}, on {}\n", event.unpack().event.topic.escape_debug()));
            for destination in overlay.destinations.iter() {
                if let Some(entry) = destination.why(event, router) {
                    let mut line = format!("for {}, which wants ", overlay.net.name_of(destination.host));
                    line.extend(entry.filter.escape_debug());
                    if let Some(selector) = &entry.selector {
                        write!(line, " with {}", selector.escape_debug()).expect("a string takes everything");
                    }
                    let path = overlay.net.routes.path(destination.host);
                    let way: Vec<_> = path.into_iter().map(|host| overlay.net.name_of(host).into_string()).collect();
                    line += &format!("; way {}\n", way.join(" > "));
                    lines.push(line);
                }
            }
            ControlFlow::Break(())
        });
        lines
    }
}
