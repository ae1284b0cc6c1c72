//! Holes in other brokers' streams are asked for, with nacks, until they are filled.

use core::time::Duration;
use std::collections::BTreeMap;

use whimbrel_event::{PubendId, Reliability, Tick, Time};
use whimbrel_wire::{Nack, RANGES_MAX, Range};

use super::answer::{ANSWER_BYTES_MAX, ANSWER_EVENTS_MAX};
use crate::api::Output;
use crate::overlay::{Due, Overlay};
use crate::stream::Sources;

/// How long after its discovery a hole is asked for: events that take another path may be late.
pub const REPAIR_GRACE: Duration = Duration::from_millis(5);

/// The longest time that a hole waits for copies of its events before it is asked for.
const COPY_GRACE_MAX: Duration = Duration::from_millis(200);

/// The first interval after which a hole is asked for again; twice the round trip if that is
/// longer. The interval doubles while nothing of the hole arrives. Progress resets it, as in TCP
/// (RFC 6298, 5.3); after a full answer the rest is asked for at once.
pub const REPAIR_AGAIN: Duration = Duration::from_millis(50);

/// The longest interval.
pub const REPAIR_MAX: Duration = Duration::from_secs(1);

/// The repair of all streams of other brokers.
#[derive(Debug, Default)]
pub(crate) struct Holes {
    /// Reliable streams with holes.
    of: BTreeMap<PubendId, HoleRepair>,
}

/// The repair of a stream with holes.
#[derive(Clone, Copy, Debug)]
struct HoleRepair {
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

impl Overlay {
    /// Schedules a repair of a stream if it has holes. Called when the stream's knowledge has
    /// changed. `slack`: what is left until the deadline of the event that has arrived, if it has
    /// one; holes wait for half of that at most. `copies`: when copies of earlier events should
    /// have arrived.
    pub(crate) fn check_holes(
        &mut self,
        now: Time,
        pubend: PubendId,
        slack: Option<Duration>,
        copies: Duration,
        streams: &mut Sources,
    ) {
        if pubend.reliability() == Reliability::BestEffort {
            return;
        }
        // Before the first time, a hole that may wait less brings that forward.
        let known = self.holes.of.get(&pubend).map(|known| (known.at, known.pause));
        if known.is_some_and(|(_, pause)| !pause.is_zero()) {
            return;
        }
        let Some(remote) = streams.remote(pubend) else { return };
        if remote.told > 0 && remote.knowledge.holes().next().is_some() {
            let copies = if fault!(self, NoCopyGrace) { Duration::ZERO } else { copies.min(COPY_GRACE_MAX) };
            let grace = REPAIR_GRACE.max(copies);
            let at = now + slack.map_or(grace, |slack| grace.min(slack / 2));
            if let Some((known, _)) = known {
                if known <= at {
                    return;
                }
                self.cancel_timer(known, Due::Repair(pubend));
            }
            let mending = HoleRepair { pause: Duration::ZERO, at, first: None, events: 0, bytes: 0 };
            self.holes.of.insert(pubend, mending);
            self.set_timer(at, Due::Repair(pubend));
        }
    }

    /// Counts an event of `bytes` bytes that has arrived as an answer. If the answer is full, the
    /// rest of the holes is asked for at once.
    pub(crate) fn on_answer(
        &mut self,
        now: Time,
        pubend: PubendId,
        bytes: usize,
        streams: &mut Sources,
        out: &mut dyn Output,
    ) {
        let Some(mending) = self.holes.of.get_mut(&pubend) else { return };
        (mending.events, mending.bytes) = (mending.events + 1, mending.bytes + bytes);
        let at = mending.at;
        if mending.is_answered() {
            self.cancel_timer(at, Due::Repair(pubend));
            self.request_holes(now, pubend, streams, out);
        }
    }

    /// Asks for the holes of a stream, and sets the timer for asking again.
    pub(crate) fn request_holes(&mut self, now: Time, pubend: PubendId, streams: &mut Sources, out: &mut dyn Output) {
        if fault!(self, SkipNack) {
            return;
        }
        let version = self.net.own_interest().version();
        let Some(remote) = streams.remote(pubend) else { return };
        let knowledge = &remote.knowledge;
        let range = |(after, upto): (Tick, Tick)| {
            // Behind a hole is something known; it, or what was told before it, gave the end of the
            // hole.
            Range { after, upto, ends_in_data: true, version }
        };
        let ranges: Vec<Range> = knowledge.holes().map(range).take(RANGES_MAX).collect();
        if ranges.is_empty() {
            self.holes.of.remove(&pubend);
            return;
        }
        self.net.ways();
        let shortest = self.net.answered_within(pubend.host(), REPAIR_AGAIN).min(REPAIR_MAX);
        let Some(mending) = self.holes.of.get_mut(&pubend) else { return };
        let first = ranges.first().map(|range| (range.after, range.upto));
        let pause = if mending.has_progressed(first) { Duration::ZERO } else { mending.pause * 2 };
        let pause = pause.clamp(shortest, REPAIR_MAX);
        let at = now + pause;
        *mending = HoleRepair { pause, at, first, events: 0, bytes: 0 };
        self.set_timer(at, Due::Repair(pubend));
        let nack = Nack { pubend, from: self.net.host(), incarnation: self.net.incarnation(), hops: 0, ranges };
        self.stats.nacks_out += 1;
        self.net.send_nack(now, &nack, out);
    }
}
