//! What became of the latest events here: where they came from, where they went, and what was in their way. Other brokers are asked for the same.
//!
//! Brokers tell it as lines of text. Each is a number, a space, and what happened: the number is microseconds since the first thing that is noted of the
//! event at that broker. Lines that tell for whom and why an event was sent have no number.

use core::fmt::Write;
use core::ops::ControlFlow;
use std::collections::VecDeque;

use whimbrel_event::{EventId, HostId, Tick, Time};
use whimbrel_wire::{Frame, TRACE_BYTES_MAX, TraceAsk, TraceTell};

use super::Overlay;
use super::mend::NACK_HOPS_MAX;
use crate::api::{Channel, Output};
use crate::broker::Core;
use crate::cache::{Item, PartitionSet};

/// Slots of the cache that are looked at for an event: it is the first of its stream from where the look begins.
const SLOTS_MAX: usize = 1 << 16;

/// Answers to one question that are kept.
pub const ANSWERS_MAX: usize = 4_096;

/// Notes that are kept: some seconds of a busy broker.
pub const TRACES_MAX: usize = 16_384;

/// What the broker says first that has accepted an event and still has it.
pub const ACCEPTED: &str = "accepted here";

/// What happened to an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum What {
    /// It was sent over a link.
    Sent(HostId),
    /// It came over a link.
    Came(HostId),
    /// It was not sent over a link, as too much is unsent there.
    HeldBack(HostId),
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

/// A question about an event that other brokers were asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceQuestion {
    /// For [`Core::trace_answers`].
    pub id: u64,
    /// The brokers that were asked.
    pub asked: Vec<Box<str>>,
    /// Those that were not, as there is no way to them, or no room on it.
    pub missed: Vec<Box<str>>,
}

impl Core {
    /// What this broker knows of an event, as lines of text for people, at most 16 KiB; empty if it knows nothing.
    pub fn trace(&mut self, event: EventId) -> String {
        let mut text = String::new();
        let why = self.why(event);
        let Some(overlay) = self.overlay.as_deref() else { return text };
        let mut first = None;
        for note in overlay.traffic.traces.of(event) {
            let after = note.at.since(*first.get_or_insert(note.at)).as_micros();
            let name = |host| overlay.name_of(host);
            let what = match note.what {
                What::Sent(to) => format!("sent to {}", name(to)),
                What::Came(from) => format!("came from {}", name(from)),
                What::HeldBack(to) => format!("not sent to {}: too much is unsent there", name(to)),
                What::Repaired => "a link on its way is down: another way is taken".into(),
                What::GivenUp => "no way around a link that is down".into(),
                What::Passed => "taken for subscriptions here".into(),
                What::Answered => "sent again, as somebody lacked it".into(),
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

    /// For which entries of whose interest an event of an own stream is sent, as far as it is cached and they are still wanted.
    fn why(&mut self, id: EventId) -> Vec<String> {
        let Core { overlay, cache, router, .. } = self;
        let Some(overlay) = overlay.as_deref().filter(|overlay| overlay.is_own(id)) else { return Vec::new() };
        let partitions = PartitionSet::first(cache.plan().count());
        let from = cache.serial_for(id.pubend, Tick(id.tick.0.saturating_sub(1)));
        let mut lines = Vec::new();
        cache.read(from, &partitions, SLOTS_MAX, |item| {
            let Item::Event { event, .. } = item else { return ControlFlow::Continue(()) };
            if event.id() != id {
                let is_beyond = event.id().pubend == id.pubend && event.id().tick > id.tick;
                return if is_beyond { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
            }
            lines.push(format!("{ACCEPTED}, on {}\n", event.unpack().event.topic.escape_debug()));
            for destination in overlay.serves.iter() {
                if let Some(entry) = destination.why(event, router) {
                    let mut line = format!("for {}, which wants ", overlay.name_of(destination.host));
                    line.extend(entry.filter.escape_debug());
                    if let Some(selector) = &entry.selector {
                        write!(line, " with {}", selector.escape_debug()).expect("a string takes everything");
                    }
                    let path = overlay.routes.path(destination.host);
                    let way: Vec<_> = path.into_iter().map(|host| overlay.name_of(host).into_string()).collect();
                    line += &format!("; way {}\n", way.join(" > "));
                    lines.push(line);
                }
            }
            ControlFlow::Break(())
        });
        lines
    }

    /// Asks all other brokers what they know of an event. What was answered to the question before is forgotten.
    pub fn ask_trace(&mut self, now: Time, event: EventId, out: &mut impl Output) -> TraceQuestion {
        let mut question = TraceQuestion { id: 0, asked: Vec::new(), missed: Vec::new() };
        let Some(overlay) = self.overlay.as_deref_mut() else { return question };
        overlay.traffic.asked += 1;
        question.id = overlay.traffic.asked;
        overlay.traffic.told = Vec::new();
        let (id, from, hops) = (question.id, overlay.host, 0);
        let hosts: Vec<HostId> = overlay.topology.hosts().filter(|host| *host != from).collect();
        for to in hosts {
            let mut frame = Vec::with_capacity(64);
            Frame::TraceAsk(TraceAsk { to, hops, id, from, event }).encode(&mut frame);
            let is_sent = overlay.send_towards(now, to, &frame, out);
            let place = if is_sent { &mut question.asked } else { &mut question.missed };
            place.push(overlay.name_of(to));
        }
        question
    }

    /// How many brokers have answered a question so far; none if another one was asked since.
    pub fn trace_answered(&self, id: u64) -> usize {
        let overlay = self.overlay.as_deref().filter(|overlay| overlay.traffic.asked == id);
        overlay.map_or(0, |overlay| overlay.traffic.told.len())
    }

    /// What other brokers have answered so far, at most 4,096 of them: their names, and what they know.
    pub fn trace_answers(&self, id: u64) -> Vec<(Box<str>, Box<str>)> {
        let overlay = self.overlay.as_deref().filter(|overlay| overlay.traffic.asked == id);
        overlay.map_or(Vec::new(), |overlay| overlay.traffic.told.clone())
    }

    /// Somebody asks what is known here of an event.
    pub(super) fn trace_asked(&mut self, now: Time, ask: &TraceAsk, out: &mut impl Output) {
        let Some(overlay) = self.overlay.as_deref_mut() else { return };
        if ask.hops >= NACK_HOPS_MAX {
            return;
        }
        let mut frame = Vec::with_capacity(256);
        if ask.to != overlay.host {
            Frame::TraceAsk(TraceAsk { hops: ask.hops + 1, ..*ask }).encode(&mut frame);
            overlay.send_towards(now, ask.to, &frame, out);
            return;
        }
        let text = self.trace(ask.event);
        let Some(overlay) = self.overlay.as_deref_mut() else { return };
        let name = overlay.config.name.clone();
        let tell = TraceTell { to: ask.from, hops: 0, id: ask.id, host: overlay.host, name: &name, text: &text };
        Frame::TraceTell(tell).encode(&mut frame);
        overlay.send_towards(now, ask.from, &frame, out);
    }

    /// Somebody answers.
    pub(super) fn trace_told(&mut self, now: Time, tell: &TraceTell<'_>, out: &mut impl Output) {
        let Some(overlay) = self.overlay.as_deref_mut() else { return };
        if tell.to == overlay.host {
            if tell.id == overlay.traffic.asked && overlay.traffic.told.len() < ANSWERS_MAX {
                overlay.traffic.told.push((tell.name.into(), tell.text.into()));
            }
            return;
        }
        if tell.hops < NACK_HOPS_MAX {
            let mut frame = Vec::with_capacity(256);
            Frame::TraceTell(TraceTell { hops: tell.hops + 1, ..*tell }).encode(&mut frame);
            overlay.send_towards(now, tell.to, &frame, out);
        }
    }
}

impl Overlay {
    /// Sends a frame to the next broker on the way to another. False if there is none, or no room on the link to it.
    pub(super) fn send_towards(&mut self, now: Time, to: HostId, frame: &[u8], out: &mut impl Output) -> bool {
        self.routes.update(&self.topology);
        let link = self.routes.next_hop(to).and_then(|(neighbour, _)| self.peers.to(neighbour));
        let link = link.filter(|link| self.peers.get(*link).is_some_and(|peer| peer.has_room(Channel::Control)));
        if let Some(link) = link {
            self.send(now, link, Channel::Control, frame, out);
        }
        link.is_some()
    }
}
