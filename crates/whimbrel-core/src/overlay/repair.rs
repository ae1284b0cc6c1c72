//! Holes in other brokers' streams are asked for until they are filled.
//!
//! A nack goes from broker to broker towards the stream's host. A broker on its path that has
//! lately passed on the event at the end of a range sends that event again and shortens the range.
//! A broker that has just passed on another broker's nack for the same event merges the two, and
//! answers both with the one answer.

use core::time::Duration;
use std::collections::VecDeque;

use whimbrel_event::{EventId, HostId, PubendId, Reliability, Tick, Time};
use whimbrel_net::{Channel, PeerLink};
use whimbrel_wire::{Dest, Frame, Nack, RANGES_MAX, Range};

use super::Due;
use super::answer::{ANSWER_BYTES_MAX, ANSWER_EVENTS_MAX};
use super::forward::Sending;
use super::net::Net;
use super::traces::TraceStep;
use crate::api::Output;
use crate::broker::Broker;

/// How long after its discovery a hole is asked for: events that take another path may be late.
pub const REPAIR_GRACE: Duration = Duration::from_millis(5);

/// The first interval after which a hole is asked for again; twice the round trip if that is
/// longer. The interval doubles while nothing of the hole arrives. Progress resets it, as in TCP
/// (RFC 6298, 5.3); after a full answer the rest is asked for at once.
pub const REPAIR_AGAIN: Duration = Duration::from_millis(50);

/// The longest interval.
pub const REPAIR_MAX: Duration = Duration::from_secs(1);

/// Most links that a nack goes over: brokers that disagree about the path could send it in a
/// circle.
pub const NACK_HOPS_MAX: u8 = 64;

/// How long further nacks for an event are merged into the one under way.
pub const MERGE_FOR: Duration = Duration::from_millis(200);

/// Most open nacks into which others are merged.
pub const OPEN_NACKS_MAX: usize = 4_096;

/// Most further brokers that wait for one answer.
const MERGED_MAX: usize = 64;

/// The repair of a stream with holes.
#[derive(Clone, Copy, Debug)]
pub(super) struct HoleRepair {
    pause: Duration,
    /// When the holes are asked for next.
    at: Time,
    /// The first hole when they were asked for last.
    first: Option<(Tick, Tick)>,
    /// Events, and their bytes, that have arrived as answers since.
    events: usize,
    bytes: usize,
}

impl HoleRepair {
    /// Whether a full answer to one nack has arrived.
    fn is_answered(&self) -> bool {
        self.events >= ANSWER_EVENTS_MAX || self.bytes >= ANSWER_BYTES_MAX
    }

    /// Whether an answer has arrived or the first hole, now `first`, has shrunk since the last
    /// nack.
    fn has_progressed(&self, first: Option<(Tick, Tick)>) -> bool {
        let is_less = |(after, upto)| self.first.is_some_and(|(from, to)| after > from || upto < to);
        self.events > 0 || first.is_some_and(is_less)
    }
}

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
pub(super) struct OpenNacks {
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

impl Broker {
    /// Schedules a repair of a stream if it has holes. Called when the stream's knowledge has
    /// changed.
    pub(super) fn check_holes(&mut self, now: Time, pubend: PubendId) {
        let Some(overlay) = self.overlay.as_deref_mut() else { return };
        if pubend.reliability() == Reliability::BestEffort || overlay.repairs.contains_key(&pubend) {
            return;
        }
        let Some(remote) = self.streams.remote(pubend) else { return };
        if remote.told > 0 && remote.knowledge.holes().next().is_some() {
            let at = now + REPAIR_GRACE;
            let mending = HoleRepair { pause: Duration::ZERO, at, first: None, events: 0, bytes: 0 };
            overlay.repairs.insert(pubend, mending);
            overlay.net.set_timer(at, Due::Repair(pubend));
        }
    }

    /// Counts an event of `bytes` bytes that has arrived as an answer. If the answer is full, the
    /// rest of the holes is asked for at once.
    pub(super) fn on_answer(&mut self, now: Time, pubend: PubendId, bytes: usize, out: &mut dyn Output) {
        let Some(overlay) = self.overlay.as_deref_mut() else { return };
        let Some(mending) = overlay.repairs.get_mut(&pubend) else { return };
        (mending.events, mending.bytes) = (mending.events + 1, mending.bytes + bytes);
        if mending.is_answered() {
            overlay.net.timers.remove(mending.at, Due::Repair(pubend));
            self.request_holes(now, pubend, out);
        }
    }

    /// Asks for the holes of a stream, and sets the timer for asking again.
    pub(super) fn request_holes(&mut self, now: Time, pubend: PubendId, out: &mut dyn Output) {
        if fault!(self, SkipNack) {
            return;
        }
        let Some(overlay) = self.overlay.as_deref_mut() else { return };
        let version = overlay.net.own_interest.version();
        let Some(remote) = self.streams.remote(pubend) else { return };
        let knowledge = &remote.knowledge;
        let range = |(after, upto): (Tick, Tick)| {
            // Behind a hole is something known; it, or what was told before it, gave the end of the
            // hole.
            Range { after, upto, ends_in_data: true, version }
        };
        let ranges: Vec<Range> = knowledge.holes().map(range).take(RANGES_MAX).collect();
        if ranges.is_empty() {
            overlay.repairs.remove(&pubend);
            return;
        }
        overlay.net.routes.update(&overlay.net.topology);
        let shortest = overlay.net.answered_within(pubend.host(), REPAIR_AGAIN).min(REPAIR_MAX);
        let Some(mending) = overlay.repairs.get_mut(&pubend) else { return };
        let first = ranges.first().map(|range| (range.after, range.upto));
        let pause = if mending.has_progressed(first) { Duration::ZERO } else { mending.pause * 2 };
        let pause = pause.clamp(shortest, REPAIR_MAX);
        let at = now + pause;
        *mending = HoleRepair { pause, at, first, events: 0, bytes: 0 };
        overlay.net.set_timer(at, Due::Repair(pubend));
        let nack = Nack { pubend, from: overlay.net.host, incarnation: overlay.net.incarnation, hops: 0, ranges };
        overlay.net.stats.nacks_out += 1;
        overlay.net.send_nack(now, &nack, out);
    }

    /// Handles a nack: answers it, or passes on the part of it that this broker cannot answer.
    pub(super) fn on_nack(&mut self, now: Time, link: PeerLink, mut nack: Nack, out: &mut dyn Output) {
        let Some(overlay) = self.overlay.as_deref_mut() else { return };
        overlay.net.stats.nacks_in += 1;
        if nack.hops >= NACK_HOPS_MAX || nack.from == overlay.net.host {
            return;
        }
        nack.hops += 1;
        if nack.pubend.host() == overlay.net.host {
            return self.answer_nack(now, link, &nack, out);
        }
        overlay.net.answer_in_transit(now, &mut nack, out);
        if !nack.ranges.is_empty() {
            overlay.net.send_nack(now, &nack, out);
        }
    }
}

impl Net {
    /// Sends a nack to the next broker on the path to the stream's host.
    pub(super) fn send_nack(&mut self, now: Time, nack: &Nack, out: &mut dyn Output) {
        self.routes.update(&self.topology);
        let Some((neighbour, _)) = self.routes.next_hop(nack.pubend.host()) else { return };
        let Some(link) = self.peers.to(neighbour) else { return };
        if !self.peers.get(link).is_some_and(|peer| peer.has_room(Channel::Control)) {
            // The nack is repeated by its sender anyway.
            return;
        }
        let mut frame = Vec::with_capacity(64);
        Frame::Nack(nack.clone()).encode(&mut frame);
        self.send(now, link, Channel::Control, &frame, out);
    }

    /// Answers a nack with events that have passed through here lately. The ranges that stay in it
    /// are to be asked for farther on.
    fn answer_in_transit(&mut self, now: Time, nack: &mut Nack, out: &mut dyn Output) {
        let mut left = Vec::with_capacity(nack.ranges.len());
        for range in core::mem::take(&mut nack.ranges) {
            let mut range = range;
            while range.after < range.upto && range.ends_in_data {
                let id = EventId { pubend: nack.pubend, tick: range.upto };
                let Some(previous) = self.send_again(now, id, nack.from, out) else { break };
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
    fn send_again(&mut self, now: Time, id: EventId, to: HostId, out: &mut dyn Output) -> Option<Tick> {
        let bytes: Box<[u8]> = self.traffic.transit.find(id)?.into();
        let Ok(Frame::Event(frame)) = Frame::decode(&bytes) else { return None };
        let mut told: Option<Dest> = None;
        frame.routes().ok()?.destinations(|ports, dest| {
            if told.is_none() && self.host_behind(ports) == Some(to) {
                told = Some(dest);
            }
        });
        if fault!(self, SilenceOfOtherInterest) {
            let (_, version) = self.interests.version_of(to)?;
            told =
                Some(Dest { tag: whimbrel_net::interest::own::tag_of(to, version), previous: frame.default_previous });
        }
        let dest = told?;
        self.stats.events_answered += 1;
        self.traffic.traces.record(now, id, TraceStep::Answered);
        let sending = Sending {
            id,
            age_us: frame.age_us,
            answer: true,
            retain: frame.retain,
            repairers: whimbrel_wire::Repairers::NONE,
            event: frame.event,
        };
        self.dispatch(now, &sending, &[(to, dest)], out);
        Some(dest.previous)
    }

    /// Sends an answer that passes through to the brokers whose nacks were merged as well. They
    /// must ask for earlier events themselves, as `previous` is true of the first destination only.
    pub(super) fn answer_merged(&mut self, now: Time, sending: &Sending<'_>, previous: Tick, out: &mut dyn Output) {
        let also = self.traffic.open.answered(sending.id);
        for to in also {
            let destination = Dest { tag: 0, previous: Tick(sending.id.tick.0 - 1) };
            let destination = if fault!(self, MergedRangeNacks)
                && let Some((_, version)) = self.interests.version_of(to)
            {
                Dest { tag: whimbrel_net::interest::own::tag_of(to, version), previous }
            } else {
                destination
            };
            self.stats.events_answered += 1;
            self.dispatch(now, sending, &[(to, destination)], out);
        }
    }
}
