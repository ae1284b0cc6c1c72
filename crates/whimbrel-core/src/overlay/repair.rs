//! Holes in other brokers' streams are asked for, with nacks, until they are filled.

use core::time::Duration;

use whimbrel_event::{PubendId, Reliability, Tick, Time};
use whimbrel_wire::{Nack, RANGES_MAX, Range};

use super::Due;
use super::answer::{ANSWER_BYTES_MAX, ANSWER_EVENTS_MAX};
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

impl Broker {
    /// Schedules a repair of a stream if it has holes. Called when the stream's knowledge has
    /// changed.
    pub(super) fn check_holes(&mut self, now: Time, pubend: PubendId) {
        let overlay = &mut self.overlay;
        if pubend.reliability() == Reliability::BestEffort || overlay.repairs.contains_key(&pubend) {
            return;
        }
        let Some(remote) = self.streams.remote(pubend) else { return };
        if remote.told > 0 && remote.knowledge.holes().next().is_some() {
            let at = now + REPAIR_GRACE;
            let mending = HoleRepair { pause: Duration::ZERO, at, first: None, events: 0, bytes: 0 };
            overlay.repairs.insert(pubend, mending);
            overlay.set_timer(at, Due::Repair(pubend));
        }
    }

    /// Counts an event of `bytes` bytes that has arrived as an answer. If the answer is full, the
    /// rest of the holes is asked for at once.
    pub(super) fn on_answer(&mut self, now: Time, pubend: PubendId, bytes: usize, out: &mut dyn Output) {
        let overlay = &mut self.overlay;
        let Some(mending) = overlay.repairs.get_mut(&pubend) else { return };
        (mending.events, mending.bytes) = (mending.events + 1, mending.bytes + bytes);
        if mending.is_answered() {
            overlay.timers.remove(mending.at, Due::Repair(pubend));
            self.request_holes(now, pubend, out);
        }
    }

    /// Asks for the holes of a stream, and sets the timer for asking again.
    pub(super) fn request_holes(&mut self, now: Time, pubend: PubendId, out: &mut dyn Output) {
        if fault!(self, SkipNack) {
            return;
        }
        let overlay = &mut self.overlay;
        let version = overlay.net.own_interest().version();
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
        overlay.net.ways();
        let shortest = overlay.net.answered_within(pubend.host(), REPAIR_AGAIN).min(REPAIR_MAX);
        let Some(mending) = overlay.repairs.get_mut(&pubend) else { return };
        let first = ranges.first().map(|range| (range.after, range.upto));
        let pause = if mending.has_progressed(first) { Duration::ZERO } else { mending.pause * 2 };
        let pause = pause.clamp(shortest, REPAIR_MAX);
        let at = now + pause;
        *mending = HoleRepair { pause, at, first, events: 0, bytes: 0 };
        overlay.set_timer(at, Due::Repair(pubend));
        let nack = Nack { pubend, from: overlay.net.host(), incarnation: overlay.net.incarnation(), hops: 0, ranges };
        overlay.stats.nacks_out += 1;
        overlay.net.send_nack(now, &nack, out);
    }
}
