//! Nacks: a broker asks for events that it lacks.
//!
//! A nack goes from broker to broker towards the stream's host. A broker on its path that has
//! lately passed on the event at the end of a range sends that event again and shortens the range.
//! A broker that has just passed on another broker's nack for the same event merges the two, and
//! answers both with the one answer.

use core::time::Duration;
use std::collections::VecDeque;

use whimbrel_event::{EventId, HostId, Tick, Time};
use whimbrel_wire::{CopiedEvent, Dest, Frame, Nack, Repairers, StampedEvent};

use super::Sending;
use crate::event::NetEvent;
use crate::interest::own::tag_of;
use crate::io::{Io, LinkOutput};
use crate::link::queue::FrameClass;
use crate::route::TopicPaths;
use crate::{Channel, Net, PeerLink};

/// Most links that a nack, a message or a list of ended hosts goes over: brokers that disagree
/// about the path could send it in a circle.
pub const HOPS_MAX: u8 = 64;

/// How long further nacks for an event are merged into the one under way.
pub const MERGE_FOR: Duration = Duration::from_millis(200);

/// Most open nacks into which others are merged.
pub const OPEN_NACKS_MAX: usize = 4_096;

/// Most further brokers that wait for one answer.
const MERGED_MAX: usize = 64;

/// An event for which a nack has passed through this broker.
#[derive(Debug)]
struct OpenNack {
    id: EventId,
    by: HostId,
    until: Time,
    also: Vec<HostId>,
}

/// Events for which nacks have passed lately, oldest first.
#[derive(Debug, Default)]
pub(crate) struct OpenNacks {
    all: VecDeque<OpenNack>,
}

impl OpenNacks {
    /// Records a broker's nack for an event. Returns whether it is merged into another broker's
    /// open nack: the answer to that one will be sent to both.
    fn ask(&mut self, now: Time, id: EventId, by: HostId) -> bool {
        while self.all.front().is_some_and(|open| open.until <= now) {
            self.all.pop_front();
        }
        if let Some(open) = self.all.iter_mut().find(|open| open.id == id) {
            if open.by == by || open.also.len() >= MERGED_MAX {
                return false;
            }
            if !open.also.contains(&by) {
                open.also.push(by);
            }
            return true;
        }
        if self.all.len() >= OPEN_NACKS_MAX {
            self.all.pop_front();
        }
        self.all.push_back(OpenNack { id, by, until: now + MERGE_FOR, also: Vec::new() });
        false
    }

    /// Removes the open nack of an event. Returns the brokers that were merged into it.
    fn answered(&mut self, id: EventId) -> Vec<HostId> {
        let Some(at) = self.all.iter().position(|open| open.id == id) else { return Vec::new() };
        self.all.remove(at).map_or(Vec::new(), |open| open.also)
    }
}

impl Net {
    /// Handles a nack: one for an own stream is an event for the composition. Of others, what this
    /// broker cannot answer is passed on.
    pub(crate) fn on_nack(&mut self, io: &mut Io<'_>, link: PeerLink, mut nack: Nack) -> Option<NetEvent<'static>> {
        self.stats.nacks_in += 1;
        if nack.hops >= HOPS_MAX || nack.from == self.identity.host {
            return None;
        }
        nack.hops += 1;
        if nack.pubend.host() == self.identity.host {
            return Some(NetEvent::Nack { link, nack });
        }
        self.answer_in_transit(io.now, &mut nack, io.out);
        if !nack.ranges.is_empty() {
            self.send_nack(io.now, &nack, io.out);
        }
        None
    }

    /// Sends a nack to the next broker on the path to the stream's host.
    pub fn send_nack(&mut self, now: Time, nack: &Nack, out: &mut dyn LinkOutput) {
        self.routes.update(&self.topology);
        let Some((neighbour, _)) = self.routes.next_hop(nack.pubend.host()) else { return };
        let Some(link) = self.peers.to(neighbour) else { return };
        if !self.peers.get(link).is_some_and(|peer| peer.has_room(Channel::Control)) {
            // The nack is repeated by its sender anyway.
            return;
        }
        let mut frame = Vec::with_capacity(64);
        Frame::Nack(nack.clone()).encode(&mut frame);
        self.send(now, link, FrameClass::Control, &frame, out);
    }

    /// Answers a nack with events that have passed through here lately. The ranges that stay in it
    /// are to be asked for farther on.
    fn answer_in_transit(&mut self, now: Time, nack: &mut Nack, out: &mut dyn LinkOutput) {
        let mut left = Vec::with_capacity(nack.ranges.len());
        for range in core::mem::take(&mut nack.ranges) {
            let mut range = range;
            while range.after < range.upto && range.ends_in_data {
                let id = EventId { pubend: nack.pubend, tick: range.upto };
                let Some(previous) = self.answer_one(now, id, nack.from, out) else { break };
                // If the range goes on, that event's previous tick is the next event of the same
                // chain.
                range.upto = previous;
            }
            if range.after >= range.upto {
                continue;
            }
            if range.ends_in_data {
                let id = EventId { pubend: nack.pubend, tick: range.upto };
                if self.traffic.open.ask(now, id, nack.from) {
                    self.stats.nacks_merged += 1;
                    continue;
                }
            }
            left.push(range);
        }
        nack.ranges = left;
    }

    /// Sends an event to a broker again, with the data that its first frame had for that broker.
    /// Returns the previous tick.
    fn answer_one(&mut self, now: Time, id: EventId, to: HostId, out: &mut dyn LinkOutput) -> Option<Tick> {
        let bytes: Box<[u8]> = self.traffic.transit.find(id)?.into();
        let (Frame::Event(frame)
        | Frame::DeadlineEvent(StampedEvent { frame, .. })
        | Frame::CopiedEvent(CopiedEvent { stamped: StampedEvent { frame, .. }, .. })) = Frame::decode(&bytes).ok()?
        else {
            return None;
        };
        let mut told: Option<Dest> = None;
        frame.routes().ok()?.destinations(|ports, dest| {
            if told.is_none() && super::host_behind(self, ports) == Some(to) {
                told = Some(dest);
            }
        });
        if fault!(self, SilenceOfOtherInterest) {
            let (_, version) = self.interests.version_of(to)?;
            told = Some(Dest { tag: tag_of(to, version), previous: frame.default_previous });
        }
        let dest = told?;
        if !self.domains().may_answer(frame.event, to) {
            return None;
        }
        let sending = Sending {
            id,
            age_us: frame.age_us,
            deadline_ms: None,
            answer: true,
            retain: frame.retain,
            repairers: Repairers::NONE,
            by_datagram: false,
            paths: TopicPaths::One,
            last_us: None,
            event: frame.event,
        };
        self.send_again(now, &sending, to, dest, out);
        Some(dest.previous)
    }

    /// Sends an answer that passes through to the brokers whose nacks were merged as well. They
    /// must ask for earlier events themselves, as `previous` is true of the first destination only.
    pub(crate) fn answer_merged(&mut self, now: Time, sending: &Sending<'_>, previous: Tick, out: &mut dyn LinkOutput) {
        let also = self.traffic.open.answered(sending.id);
        for to in also {
            if !self.domains().may_answer(sending.event, to) {
                continue;
            }
            let destination = Dest { tag: 0, previous: Tick(sending.id.tick.0 - 1) };
            let destination = if fault!(self, MergedRangeNacks)
                && let Some((_, version)) = self.interests.version_of(to)
            {
                Dest { tag: tag_of(to, version), previous }
            } else {
                destination
            };
            self.stats.events_answered += 1;
            self.dispatch(now, sending, &[(to, destination)], out);
        }
    }
}
