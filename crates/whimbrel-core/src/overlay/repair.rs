//! Holes in other brokers' streams are asked for, until they are filled.
//!
//! A nack goes from broker to broker towards the stream's host. On its way who has lately passed on
//! the event at the end of a range sends it again, and asks for less. Who has just passed on a nack
//! for the same event for somebody else waits for that answer instead.

use core::time::Duration;
use std::collections::VecDeque;

use whimbrel_event::{EventId, HostId, PubendId, Reliability, Tick, Time};
use whimbrel_wire::{Dest, Frame, Nack, RANGES_MAX, Range};

use super::answer::{ANSWER_BYTES_MAX, ANSWER_EVENTS_MAX};
use super::forward::Sending;
use super::traces::TraceStep;
use super::{Due, Overlay};
use crate::api::{Channel, Output, PeerLink};
use crate::broker::Broker;

/// A hole is asked for after this: what takes another way may be late.
pub const REPAIR_GRACE: Duration = Duration::from_millis(5);

/// It is asked for again after this, or twice the way there and back if that is longer, and then at
/// doubling intervals, as long as nothing of it comes. When something has come the intervals begin
/// anew, as TCP's do (RFC 6298, 5.3); when a whole answer has, the rest is asked for at once.
pub const REPAIR_AGAIN: Duration = Duration::from_millis(50);

/// The longest interval.
pub const REPAIR_MAX: Duration = Duration::from_secs(1);

/// A nack goes over so many links at most: brokers that disagree about the way could send it round.
pub const NACK_HOPS_MAX: u8 = 64;

/// While one nack for an event is under way, others for it wait, no longer than this.
pub const MERGE_FOR: Duration = Duration::from_millis(200);

/// Nacks that others are merged into.
pub const OPEN_NACKS_MAX: usize = 4_096;

/// Brokers that wait for one answer.
const MERGED_MAX: usize = 64;

/// A stream with holes.
#[derive(Clone, Copy, Debug)]
pub(super) struct HoleRepair {
    pause: Duration,
    /// When the holes are asked for next.
    at: Time,
    /// The first hole, when they were asked for last.
    first: Option<(Tick, Tick)>,
    /// Events, and bytes of them, that have come as answers since.
    events: usize,
    bytes: usize,
}

impl HoleRepair {
    /// Whether as much has come as a broker answers one nack with.
    fn is_answered(&self) -> bool {
        self.events >= ANSWER_EVENTS_MAX || self.bytes >= ANSWER_BYTES_MAX
    }

    /// Whether something has come since they were asked for, with this as the first hole.
    fn has_progressed(&self, first: Option<(Tick, Tick)>) -> bool {
        let is_less = |(after, upto)| self.first.is_some_and(|(from, to)| after > from || upto < to);
        self.events > 0 || first.is_some_and(is_less)
    }
}

/// An event that was asked for over this broker.
#[derive(Debug)]
struct OpenNack {
    id: EventId,
    by: HostId,
    until: Time,
    also: Vec<HostId>,
}

/// Events that were asked for lately, oldest first.
#[derive(Debug, Default)]
pub(super) struct OpenNacks {
    all: VecDeque<OpenNack>,
}

impl OpenNacks {
    /// Somebody asks for an event. True if somebody else has just asked for it: who asks now will
    /// get it with the answer to that.
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

    /// Who waits for an event beside the one who asked first.
    fn answered(&mut self, id: EventId) -> Vec<HostId> {
        let Some(at) = self.all.iter().position(|open| open.id == id) else { return Vec::new() };
        self.all.remove(at).map_or(Vec::new(), |open| open.also)
    }
}

impl Broker {
    /// Something was learnt of a stream: if it has holes, they will be asked for.
    pub(super) fn check_holes(&mut self, now: Time, pubend: PubendId) {
        let Some(overlay) = self.overlay.as_deref_mut() else { return };
        if pubend.reliability() == Reliability::BestEffort || overlay.traffic.repairs.contains_key(&pubend) {
            return;
        }
        let Some(remote) = self.streams.remote(pubend) else { return };
        if remote.told > 0 && remote.knowledge.holes().next().is_some() {
            let at = now + REPAIR_GRACE;
            let mending = HoleRepair { pause: Duration::ZERO, at, first: None, events: 0, bytes: 0 };
            overlay.traffic.repairs.insert(pubend, mending);
            overlay.set_timer(at, Due::Repair(pubend));
        }
    }

    /// An event of so many bytes came as an answer: perhaps as the last of one that was as long as
    /// answers are.
    pub(super) fn on_answer(&mut self, now: Time, pubend: PubendId, bytes: usize, out: &mut dyn Output) {
        let Some(overlay) = self.overlay.as_deref_mut() else { return };
        let Some(mending) = overlay.traffic.repairs.get_mut(&pubend) else { return };
        (mending.events, mending.bytes) = (mending.events + 1, mending.bytes + bytes);
        if mending.is_answered() {
            overlay.timers.remove(mending.at, Due::Repair(pubend));
            self.request_holes(now, pubend, out);
        }
    }

    /// Asks for the holes of a stream, and sees to it that they are asked for again.
    pub(super) fn request_holes(&mut self, now: Time, pubend: PubendId, out: &mut dyn Output) {
        if fault!(self, SkipNack) {
            return;
        }
        let Some(overlay) = self.overlay.as_deref_mut() else { return };
        let version = overlay.own_interest.version();
        let Some(remote) = self.streams.remote(pubend) else { return };
        let knowledge = &remote.knowledge;
        let range = |(after, upto): (Tick, Tick)| {
            // A hole ends before something that is known: that, or what came before it, told where.
            Range { after, upto, ends_in_data: true, version }
        };
        let ranges: Vec<Range> = knowledge.holes().map(range).take(RANGES_MAX).collect();
        if ranges.is_empty() {
            overlay.traffic.repairs.remove(&pubend);
            return;
        }
        overlay.routes.update(&overlay.topology);
        let shortest = overlay.answered_within(pubend.host(), REPAIR_AGAIN).min(REPAIR_MAX);
        let Some(mending) = overlay.traffic.repairs.get_mut(&pubend) else { return };
        let first = ranges.first().map(|range| (range.after, range.upto));
        let pause = if mending.has_progressed(first) { Duration::ZERO } else { mending.pause * 2 };
        let pause = pause.clamp(shortest, REPAIR_MAX);
        let at = now + pause;
        *mending = HoleRepair { pause, at, first, events: 0, bytes: 0 };
        overlay.set_timer(at, Due::Repair(pubend));
        let nack = Nack { pubend, from: overlay.host, incarnation: overlay.incarnation, hops: 0, ranges };
        overlay.stats.nacks_out += 1;
        overlay.send_nack(now, &nack, out);
    }

    /// Somebody lacks something.
    pub(super) fn on_nack(&mut self, now: Time, link: PeerLink, mut nack: Nack, out: &mut dyn Output) {
        let Some(overlay) = self.overlay.as_deref_mut() else { return };
        overlay.stats.nacks_in += 1;
        if nack.hops >= NACK_HOPS_MAX || nack.from == overlay.host {
            return;
        }
        nack.hops += 1;
        if nack.pubend.host() == overlay.host {
            return self.answer_nack(now, link, &nack, out);
        }
        overlay.answer_in_transit(now, &mut nack, out);
        if !nack.ranges.is_empty() {
            overlay.send_nack(now, &nack, out);
        }
    }
}

impl Overlay {
    /// Sends a nack to the next broker on the way to the stream's host.
    pub(super) fn send_nack(&mut self, now: Time, nack: &Nack, out: &mut dyn Output) {
        self.routes.update(&self.topology);
        let Some((neighbour, _)) = self.routes.next_hop(nack.pubend.host()) else { return };
        let Some(link) = self.peers.to(neighbour) else { return };
        if !self.peers.get(link).is_some_and(|peer| peer.has_room(Channel::Control)) {
            // It is asked again anyway.
            return;
        }
        let mut frame = Vec::with_capacity(64);
        Frame::Nack(nack.clone()).encode(&mut frame);
        self.send(now, link, Channel::Control, &frame, out);
    }

    /// Sends again what has passed through here lately of what somebody lacks; what is left is to
    /// be asked for farther on.
    fn answer_in_transit(&mut self, now: Time, nack: &mut Nack, out: &mut dyn Output) {
        let mut left = Vec::with_capacity(nack.ranges.len());
        for range in core::mem::take(&mut nack.ranges) {
            let mut range = range;
            while range.after < range.upto && range.ends_in_data {
                let id = EventId { pubend: nack.pubend, tick: range.upto };
                let Some(previous) = self.send_again(now, id, nack.from, out) else { break };
                // That one's previous tick is where the next one of the same chain is, if the range
                // goes on.
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

    /// Sends an event to somebody again with what its frame told that broker; its previous tick.
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

    /// An answer passes through: others that wait for the same event get it, too. What came before
    /// it they have to ask for, as `previous` is true only of the first destination.
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
