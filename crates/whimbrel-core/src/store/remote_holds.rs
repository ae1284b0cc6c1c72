//! Holds of durable subscriptions on other brokers' streams, counted like those on own streams.

use core::time::Duration;
use std::collections::BTreeMap;

use whimbrel_event::{PubendId, Tick, Time};

use super::DurablePosition;
use crate::cursor::{Durable, NOTHING, Positions};

/// In each [`crate::Limits::max_retain`], the positions of connected, caught-up subscriptions are
/// written at most this many times for this purpose.
const ASSURED_TIMES: u32 = 4;

type HeldCount = BTreeMap<(PubendId, Tick), u32>;

/// Holds on other brokers' streams.
#[derive(Debug, Default)]
pub(crate) struct RemoteHolds {
    all: HeldCount,
    connected: HeldCount,
    /// Each connected, caught-up subscription has a written position at or beyond this, or holds
    /// the streams.
    assured: Positions,
    /// When the last round of writing them began.
    assured_at: Time,
}

fn change(counted: &mut HeldCount, before: &Positions, after: &Positions) {
    for held in after.iter() {
        *counted.entry(held).or_default() += 1;
    }
    for held in before.iter() {
        let count = counted.get_mut(&held).expect("what is held is counted");
        *count -= 1;
        if *count == 0 {
            counted.remove(&held);
        }
    }
}

fn first(counted: &HeldCount, pubend: PubendId) -> Option<Tick> {
    counted.range((pubend, Tick(0))..=(pubend, NOTHING)).next().map(|((_, tick), _)| *tick)
}

impl RemoteHolds {
    /// Replaces a subscription's holds; each side with whether it is connected and caught up.
    pub(crate) fn change(
        &mut self,
        (before, was_connected): (&Positions, bool),
        (after, is_connected): (&Positions, bool),
    ) {
        let none = const { &Positions::new() };
        change(&mut self.all, before, after);
        change(&mut self.connected, if was_connected { before } else { none }, if is_connected { after } else { none });
    }

    /// The first tick of a stream that is held by any subscription, and by a connected, caught-up
    /// one; `None`: it is not held.
    pub(crate) fn first(&self, pubend: PubendId) -> (Option<Tick>, Option<Tick>) {
        (first(&self.all, pubend), first(&self.connected, pubend))
    }

    /// Up to where each connected, caught-up subscription has a written position, or holds the
    /// stream.
    pub(crate) fn assured(&self, pubend: PubendId) -> Tick {
        self.assured.get(pubend)
    }

    /// Whether the positions of connected, caught-up subscriptions are to be written now: where
    /// logs are given up early, that is done at times, so that after a crash none is told of a gap
    /// although it missed nothing.
    pub(crate) fn is_assurance_due(&mut self, now: Time, max_retain: Duration) -> bool {
        let is_due = now.since(self.assured_at) >= max_retain / ASSURED_TIMES;
        if is_due {
            self.assured_at = now;
        }
        is_due
    }

    /// Sets up to where such positions were written.
    pub(crate) fn assure(&mut self, target: Positions) {
        self.assured = target;
    }
}

impl Durable {
    /// The ticks that the subscription holds other brokers' streams from, at that position.
    /// `passed` tells how far a stream that has begun here was passed.
    pub(crate) fn hold_remote(
        &mut self,
        position: &DurablePosition,
        passed: impl Fn(PubendId) -> Option<Tick>,
    ) -> Positions {
        if position.remote.is_empty() {
            return Positions::new();
        }
        let mut held = Positions::new();
        for remote in &position.remote {
            let (newest, hole) = (self.remote.newest.get(remote.pubend), self.remote.holes.get(remote.pubend));
            // A part that is still to be read there may have any event.
            let is_whole = !self.remote.detached.has(remote.pubend) && remote.acked >= hole;
            let has_got = is_whole
                && match passed(remote.pubend) {
                    Some(passed) => remote.acked >= newest.min(passed),
                    None => newest == Tick(0),
                };
            if !has_got {
                // Earlier events were not logged for it.
                held.set(remote.pubend, remote.acked.max(remote.since));
            } else if newest != Tick(0) {
                self.remote.newest.remove(remote.pubend);
            }
        }
        held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_counted_and_given_back() {
        let (one, two) = (PubendId(0x20), PubendId(0x21));
        let of = |ticks: &[(PubendId, u64)]| {
            ticks.iter().map(|(pubend, tick)| (*pubend, Tick(*tick))).collect::<Positions>()
        };
        let mut holds = RemoteHolds::default();
        let (none, a, b) = (of(&[]), of(&[(one, 5), (two, 9)]), of(&[(one, 3)]));
        holds.change((&none, false), (&a, true));
        holds.change((&none, false), (&b, false));
        assert_eq!(holds.first(one), (Some(Tick(3)), Some(Tick(5))));
        assert_eq!(holds.first(two), (Some(Tick(9)), Some(Tick(9))));
        holds.change((&a, true), (&b, false));
        assert_eq!((holds.first(one), holds.first(two)), ((Some(Tick(3)), None), (None, None)));
        holds.change((&b, false), (&none, false));
        holds.change((&b, false), (&none, false));
        assert_eq!(holds.first(one), (None, None));
    }
}
