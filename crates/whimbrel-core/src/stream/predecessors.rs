//! Order of events of publishers that move: the first events that a publisher sends at another
//! broker name their predecessors, and the stream waits there until these have been delivered.

use core::time::Duration;

use whimbrel_event::{EventId, PredecessorsBuf, PubendId, Tick, Time};
use whimbrel_wire::{Nack, Range};

use crate::api::Output;
use crate::broker::Broker;
use crate::overlay::Due;
use crate::session::Sessions;
use crate::store::DurableNo;
use crate::stream::{StreamKind, Streams};

/// The longest time that a stream waits for a predecessor.
pub const PREDECESSOR_MAX: Duration = Duration::from_secs(5);

/// A stream that waits at an event for a predecessor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stalled {
    /// The event's tick.
    pub(crate) at: Tick,
    /// One of the predecessors that it waits for.
    pub(crate) after: EventId,
    /// When the wait ends.
    pub(crate) until: Time,
}

impl Broker {
    /// Returns the tick of the first event of a stream that must not be delivered yet, as a
    /// predecessor in another stream is missing. Events that are let through although one is
    /// missing are counted.
    pub(crate) fn must_wait_at(&mut self, now: Time, pubend: PubendId, out: &mut dyn Output) -> Option<Tick> {
        if fault!(self, PredecessorIgnored) {
            return None;
        }
        loop {
            let remote = self.streams.remote(pubend)?;
            let horizon = remote.knowledge.doubt_horizon();
            let (&at, before) = remote.predecessors.first_key_value().filter(|(at, _)| **at <= horizon)?;
            let is_passed = at <= remote.knowledge.base();
            let before: Vec<EventId> = before.iter().filter(|after| !is_passed && after.pubend != pubend).collect();
            let stalled = self.streams.stalled.get(&pubend).copied().filter(|stalled| stalled.at == at);
            let missing: Vec<EventId> = before.into_iter().filter(|after| self.streams.lacks(*after)).collect();
            if !self.overlay.is_open() {
                return None;
            }
            let overlay = &mut self.overlay;
            overlay.net.ways();
            let is_over = stalled.is_some_and(|stalled| stalled.until <= now);
            let may_come = |after: &EventId| {
                let host = after.pubend.host();
                overlay.may_come_from(now, host) && !self.streams.has_ended(host)
            };
            let next = missing.iter().copied().find(|after| !is_over && may_come(after));
            let Some(after) = next else {
                overlay.stats.order_breaks += u64::from(!missing.is_empty());
                self.streams.stalled.remove(&pubend);
                self.streams.remote(pubend).expect("it was there").predecessors.remove(&at);
                continue;
            };
            if stalled.is_none() {
                overlay.stats.streams_stalled += 1;
                overlay.set_timer(now + PREDECESSOR_MAX, Due::Predecessor(pubend));
                missing.into_iter().for_each(|after| self.ask_upto(now, after, out));
            }
            let until = stalled.map_or(now + PREDECESSOR_MAX, |stalled| stalled.until);
            self.streams.stalled.insert(pubend, Stalled { at, after, until });
            return Some(at);
        }
    }

    /// Asks for everything unknown of another broker's stream up to an event, without waiting for
    /// silence.
    pub(crate) fn ask_upto(&mut self, now: Time, id: EventId, out: &mut dyn Output) {
        let overlay = &mut self.overlay;
        let Some(remote) = self.streams.remote(id.pubend) else { return };
        let (after, upto) = (remote.knowledge.doubt_horizon(), id.tick);
        // Holes before a known tick are asked for anyway.
        if after < upto && remote.knowledge.last() < upto {
            let ranges =
                vec![Range { after, upto, ends_in_data: false, version: overlay.net.own_interest().version() }];
            let (from, incarnation) = (overlay.net.host(), overlay.net.incarnation());
            overlay.stats.nacks_out += 1;
            overlay.net.send_nack(now, &Nack { pubend: id.pubend, from, incarnation, hops: 0, ranges }, out);
        }
    }

    /// Resumes streams whose predecessors have been delivered, or whose wait is over.
    pub(crate) fn check_stalled(&mut self, now: Time, out: &mut dyn Output) {
        if !self.overlay.is_open() || !self.streams.is_awaited() {
            return;
        }
        self.overlay.net.ways();
        // Bounded: each iteration ends the wait of a stream at an event, and a stream never waits
        // at the same event twice.
        let goes_on = |core: &Broker| {
            let all = core.streams.stalled.iter();
            all.map(|(pubend, stalled)| (*pubend, *stalled)).find(|(_, stalled)| !core.must_still_wait(now, stalled))
        };
        while let Some((pubend, stalled)) = goes_on(self) {
            self.pass_known(now, pubend, out);
            assert!(self.streams.stalled.get(&pubend) != Some(&stalled), "who need not wait goes on");
        }
        // Accepting events leads back here: it is done in turns, not recursively.
        if core::mem::replace(&mut self.streams.is_accepting, true) {
            return;
        }
        // Bounded as well: no session waits for a second time.
        while let Some(index) = self.streams.early.iter().copied().find(|index| !self.must_still_keep(now, *index)) {
            self.accept_early(now, index, out);
        }
        self.streams.is_accepting = false;
    }

    /// Ends the wait of durable subscriptions in catch-up for predecessors, where its time is over.
    pub(crate) fn unblock_due(&mut self, now: Time) {
        let overlay = &mut self.overlay;
        let due = overlay.logs.blocked.partition_point(|(until, _)| *until <= now);
        let due: Vec<(DurableNo, u32)> = overlay.logs.blocked.drain(..due).map(|(_, whose)| whose).collect();
        self.unblock_overdue(due);
    }

    fn must_still_wait(&self, now: Time, stalled: &Stalled) -> bool {
        let host = stalled.after.pubend.host();
        let may_come = self.overlay.may_come_from(now, host) && !self.streams.has_ended(host);
        self.streams.lacks(stalled.after) && stalled.until > now && may_come
    }
}

/// The events that have to be delivered before a publisher's next one in a kind of streams: its
/// last ones at other brokers, and in streams of other kinds if its topic may have been there.
pub(super) fn events_before(sessions: &mut Sessions, own: &Streams, from: u32, kind: StreamKind) -> PredecessorsBuf {
    let here = sessions.record_kind(from, kind).map(|binding| own.last_before(binding, kind));
    let place = sessions.get(from).memory.roam.as_deref().filter(|_| kind.is_reliable());
    match (here, place) {
        (None, None) => PredecessorsBuf::new(),
        (None, Some(place)) => place.after.clone(),
        (Some(here), None) => here,
        (Some(here), Some(place)) => here.merged(&place.after),
    }
}

impl crate::overlay::Overlay {
    /// Records that a stream waits for a predecessor, for one subscription. All of them wait
    /// equally long, so the queue is in the order of time.
    pub(crate) fn block_until(&mut self, until: Time, whose: (DurableNo, u32)) {
        if self.is_open() {
            self.logs.blocked.push_back((until, whose));
            self.set_timer(until, Due::Unblock);
        }
    }
}
