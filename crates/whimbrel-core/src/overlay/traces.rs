//! The latest events at this broker: where they came from, where they went, and what prevented
//! their delivery.
//!
//! A trace is lines of text. Each is a number, a space, and a step: the number is microseconds
//! since the first step that is recorded of the event at that broker. Lines that say for which
//! broker and why an event was sent have no number.

use core::fmt::Write;
use core::ops::ControlFlow;

use whimbrel_event::{EventId, Tick};
use whimbrel_net::traces::TraceStep;

use crate::broker::Broker;
use crate::cache::{CacheItem, PartitionSet};

/// Slots of the cache that are searched for an event: it is the first of its stream from where the
/// search begins.
const SLOTS_MAX: usize = 1 << 16;

/// Bytes of the trace of an event.
const TRACE_BYTES_MAX: usize = 16 << 10;

/// Begins the line of the broker that has accepted an event and still has it; its destinations
/// follow.
pub const ACCEPTED: &str = "accepted here";

impl Broker {
    /// What this broker knows of an event, as lines of text for people, at most 16 KiB; empty if it
    /// knows nothing.
    pub fn trace(&mut self, event: EventId) -> String {
        let mut text = String::new();
        let why = self.why(event);
        if !self.overlay.is_open() {
            return text;
        }
        let overlay = &self.overlay;
        let mut first = None;
        for note in overlay.net.trace_of(event) {
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
        if !overlay.net.is_own(id) {
            return Vec::new();
        }
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
                    let path = overlay.net.routes().path(destination.host);
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
