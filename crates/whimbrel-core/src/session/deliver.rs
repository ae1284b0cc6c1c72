//! Delivery with back-pressure: what goes out at once, what waits, and what is dropped when a bound is reached.

use whimbrel_event::{AcceptedEvent, Event, EventId, EventRef, Packed, Qos, Time};

use super::queue::{Queue, Queued};
use super::slot::{Slot, Stage};
use super::{Abandoned, Session, Sessions};
use crate::api::{Delivery, Link, Output, Sent};
use crate::follow::NO_PUBEND;
use crate::route::{NO_GROUP, NO_TRACK};
use crate::stats::Stats;

/// An accepted event on its way to its subscriptions; kept (copied) only if somebody has to wait for it.
pub(crate) struct Publication<'a> {
    pub(crate) event: EventRef<'a>,
    pub(crate) id: EventId,
    pub(crate) accepted: Time,
    pub(crate) serial: u64,
    pub(crate) kept: Option<Event>,
}

impl<'a> Publication<'a> {
    /// The publication of an event that was kept before.
    pub(crate) fn of(event: &'a Event, serial: u64) -> Self {
        Publication { kept: Some(event.clone()), ..Self::of_packed(event.packed(), serial) }
    }

    /// The publication of an event that is packed somewhere.
    pub(crate) fn of_packed(event: Packed<'a>, serial: u64) -> Self {
        let AcceptedEvent { id, accepted, event } = event.unpack();
        Publication { event, id, accepted, serial, kept: None }
    }

    pub(crate) fn accepted(&self) -> AcceptedEvent<'a> {
        AcceptedEvent { id: self.id, accepted: self.accepted, event: self.event }
    }

    pub(crate) fn keep(&mut self) -> Event {
        let (id, accepted, event) = (self.id, self.accepted, &self.event);
        self.kept.get_or_insert_with(|| Event::keep(id, accepted, event)).clone()
    }
}

/// Under which terms one subscription gets an event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) qos: Qos,
    pub(crate) identifier: u32,
    pub(crate) group: u32,
    /// The delivery to the own session of that shared subscription which this one fulfils; 0: none.
    pub(crate) origin: u16,
    pub(crate) retain: bool,
    /// The retain mark as published; differs in shared subscriptions only.
    pub(crate) as_published: bool,
    /// The tracked subscription it is for, or [`NO_TRACK`].
    pub(crate) track: u32,
}

impl Terms {
    fn delivery<'a>(&self, event: EventRef<'a>, id: EventId, serial: u64, tag: u16) -> Delivery<'a> {
        let Terms { qos, identifier, retain, track, .. } = *self;
        let named = track != NO_TRACK && id.pubend != NO_PUBEND;
        Delivery { event, id, serial, tag, qos, repeated: false, retain, identifier, named, track }
    }

    /// A new delivery that has got there, and is sent now if its client's answer is expected.
    pub(super) fn slot(&self, id: EventId, event: Option<Event>, stage: Stage) -> Slot {
        let Terms { qos, identifier, group, origin, retain, as_published, track } = *self;
        let (sent, repeated, rank) = (stage == Stage::Expect, false, 0);
        Slot { id, event, identifier, group, origin, qos, stage, retain, as_published, track, sent, repeated, rank }
    }
}

impl Session {
    /// Whether deliveries with that quality of service have to be durable before they are sent.
    fn prepares(&self, qos: Qos) -> bool {
        qos == Qos::ExactlyOnce && self.memory.is_kept
    }

    /// Whether the window takes a new delivery.
    fn has_room(&self, qos: Qos) -> bool {
        if self.prepares(qos) {
            return self.inflight.can_prepare();
        }
        if qos == Qos::AtMostOnce { self.inflight.is_resent() } else { self.inflight.takes_new() }
    }

    /// A new reliable delivery may go out at once.
    pub(crate) fn takes_reliable(&self, qos: Qos) -> bool {
        self.open && self.waiting.is_empty() && self.has_room(qos)
    }

    /// Its tracked subscriptions may hand out an event with that quality of service at once.
    pub(crate) fn takes_tracked(&self, qos: Qos) -> bool {
        self.tracked_is_next() && self.has_room(qos)
    }

    /// Its tracked subscriptions may hand out a delivery of a former connection again.
    pub(crate) fn takes_repeated(&self) -> bool {
        self.tracked_is_next() && self.inflight.is_resent() && self.inflight.has_room()
    }

    /// Its tracked subscriptions may hand out events of some quality of service.
    pub(crate) fn takes_any(&self) -> bool {
        self.tracked_is_next() && self.inflight.is_past_repeats()
    }

    /// Nothing waits that its tracked subscriptions have to let go first.
    fn tracked_is_next(&self) -> bool {
        self.open && self.follow.queue.is_empty() && !self.was_plain()
    }

    /// Something waits that came while a subscription was plain that is tracked now.
    fn was_plain(&self) -> bool {
        let is_older = |queue: &Queue| queue.first().is_some_and(|entry| entry.serial <= self.follow.plain_until);
        self.follow.plain_until != 0 && (is_older(&self.waiting) || is_older(&self.passing))
    }

    /// Notes what the edge did with a delivery.
    fn note(&mut self, tag: u16, sent: Sent, stats: &mut Stats) {
        match sent {
            Sent::Open => stats.deliveries += 1,
            Sent::Full => {
                stats.deliveries += 1;
                self.open = false;
            }
            Sent::TooLarge => {
                stats.dropped_too_large += 1;
                let slot = self.inflight.slot(tag).map(|slot| (slot.qos, slot.group, slot.origin));
                if let Some((Qos::ExactlyOnce, group, origin)) = slot.filter(|_| self.memory.is_kept) {
                    self.memory.abandoned.push(Abandoned { tag, group, origin });
                }
                self.inflight.abandon(tag);
            }
        }
    }

    /// Puts a reliable delivery into the window and hands it out, or has it prepared: then it has the tag that is returned. The caller has asked
    /// for room.
    fn hand_out(
        &mut self,
        publication: &mut Publication<'_>,
        terms: Terms,
        stats: &mut Stats,
        out: &mut dyn Output,
    ) -> Option<u16> {
        // A session that ends with its connection never sends again, unless another member has to take over.
        let keep = self.is_persistent() || self.prepares(terms.qos) || terms.group != NO_GROUP;
        let event = keep.then(|| publication.keep());
        let prepares = self.prepares(terms.qos);
        let stage = if prepares { Stage::Preparing } else { Stage::Expect };
        let slot = terms.slot(publication.id, event, stage);
        if prepares {
            return Some(self.inflight.prepare(slot));
        }
        let tag = self.inflight.push(slot);
        let sent =
            out.deliver(Link(self.link), &terms.delivery(publication.event, publication.id, publication.serial, tag));
        self.note(tag, sent, stats);
        None
    }
}

impl Sessions {
    /// Delivers an event to a session, now or later.
    pub(crate) fn offer(&mut self, to: u32, publication: &mut Publication<'_>, terms: Terms, out: &mut dyn Output) {
        let session = self.slots[to as usize].as_mut().expect("routes lead to sessions");
        if terms.qos == Qos::AtMostOnce {
            if !session.is_attached() {
                return;
            }
            if session.open && session.passing.is_empty() {
                // At most once: nothing is prepared.
                session.send_new(publication, terms, &mut self.stats, out);
                return;
            }
        } else {
            if session.takes_reliable(terms.qos) {
                if let Some(tag) = session.hand_out(publication, terms, &mut self.stats, out) {
                    self.prepared.push_back((to, tag, session.memory.number));
                }
                return;
            }
            if !session.is_attached() && !session.is_persistent() {
                return;
            }
        }
        self.enqueue(to, queued(publication, terms));
    }

    /// Delivers an event to a session for a tracked subscription, now or later, in the order of the calls; `false` if it would have to
    /// wait and may not: nothing has happened then.
    pub(crate) fn offer_tracked(
        &mut self,
        to: u32,
        publication: &mut Publication<'_>,
        terms: Terms,
        out: &mut dyn Output,
    ) -> bool {
        let Sessions { slots, limits, stats, prepared, dropped, .. } = self;
        let session = slots[to as usize].as_mut().expect("tracks lead to sessions");
        if !session.takes_tracked(terms.qos) {
            let entry = queued(publication, terms);
            let bytes = session.follow.queue.bytes() + entry.weight();
            let total = stats.queued_bytes as usize + entry.weight();
            let waits =
                session.is_attached() && bytes <= limits.tracked_queue_bytes && total <= limits.total_queue_bytes;
            if waits {
                stats.queued_events += 1;
                stats.queued_bytes += entry.weight() as u64;
                session.follow.queue.push(entry);
            }
            return waits;
        }
        if session.is_within() {
            self.hand_within(to, publication.keep(), terms);
            return true;
        }
        let before = stats.dropped_too_large;
        if let Some(tag) = session.send_new(publication, terms, stats, out) {
            prepared.push_back((to, tag, session.memory.number));
        }
        if stats.dropped_too_large != before {
            dropped.push((to, session.memory.number));
        }
        true
    }

    fn enqueue(&mut self, to: u32, entry: Queued) {
        let Sessions { slots, limits, stats, overflowed, .. } = self;
        let session = slots[to as usize].as_mut().expect("routes lead to sessions");
        let attached = session.is_attached();
        let reliable = entry.qos != Qos::AtMostOnce;
        let (queue, bound) = if reliable {
            (&mut session.waiting, limits.session_queue_bytes)
        } else {
            (&mut session.passing, limits.best_effort_queue_bytes)
        };
        let total = if attached { limits.total_queue_bytes } else { limits.absent_queue_bytes() };
        let dropped = push_bounded(queue, entry, bound, total, stats);
        if !reliable {
            stats.dropped_slow += dropped;
            return;
        }
        stats.dropped_queue_full += dropped;
        if dropped > 0 && attached && !session.overflowed {
            session.overflowed = true;
            overflowed.push(to);
        }
    }

    /// Hands out what waits, as far as window and link allow.
    pub(crate) fn pump(&mut self, index: u32, now: Time, out: &mut dyn Output) {
        let Sessions { slots, stats, prepared, dropped, .. } = self;
        let session = slots[index as usize].as_mut().expect("a session index in use");
        if session.is_within() {
            return self.pump_within(index, now);
        }
        if session.is_attached() && session.inflight.doubted() > 0 {
            let tags = session.inflight.ask_to_forget();
            tags.into_iter().for_each(|tag| out.release(Link(session.link), tag, true));
        }
        let before = (stats.dropped_too_large, stats.dropped_expired);
        while session.open {
            if !session.inflight.is_resent() && session.inflight.has_room() && session.send_again(stats, out) {
                continue;
            }
            if let Some(entry) = session.next_waiting(now, stats) {
                let mut publication = Publication::of(&entry.event, entry.serial);
                if let Some(tag) = session.send_new(&mut publication, terms_of(&entry), stats, out) {
                    prepared.push_back((index, tag, session.memory.number));
                }
            } else if !session.passing.is_empty() {
                let Some(entry) = pop(&mut session.passing, now, stats) else { continue };
                session.send_new(&mut Publication::of(&entry.event, 0), terms_of(&entry), stats, out);
            } else {
                break;
            }
        }
        if (stats.dropped_too_large, stats.dropped_expired) != before {
            dropped.push((index, session.memory.number));
        }
    }

    /// The link takes deliveries again.
    pub(crate) fn reopen(&mut self, index: u32) {
        self.get_mut(index).open = true;
    }

    /// What waits for tracked subscriptions is dropped: they read it from the cache. Gives it to whoever has to note what it was.
    pub(crate) fn take_tracked(&mut self, index: u32) -> Queue {
        let queue = core::mem::take(&mut self.get_mut(index).follow.queue);
        self.stats.queued_events -= queue.len() as u64;
        self.stats.queued_bytes -= queue.bytes() as u64;
        queue
    }

    /// What waits for a tracked subscription that is tracked no more waits with the rest: before what comes at the same quality of service.
    pub(crate) fn untrack_queue(&mut self, index: u32, track: u32) {
        let session = self.get_mut(index);
        for entry in session.follow.queue.iter().filter(|entry| entry.track == track).cloned().collect::<Vec<_>>() {
            let queue = if entry.qos == Qos::AtMostOnce { &mut session.passing } else { &mut session.waiting };
            queue.push(Queued { track: NO_TRACK, ..entry });
        }
        session.follow.queue.purge(|entry| entry.track != track);
    }

    /// A subscription that was plain up to the event `serial` is tracked from now on: what waits goes first, some of it may be its own.
    pub(crate) fn track_after(&mut self, index: u32, serial: u64) {
        let session = self.get_mut(index);
        if !session.waiting.is_empty() || !session.passing.is_empty() {
            session.follow.plain_until = serial;
        }
    }

    /// What waits for a tracked subscription is dropped: it begins somewhere else.
    pub(crate) fn purge_track(&mut self, index: u32, track: u32) {
        let (events, bytes) = self.get_mut(index).follow.queue.purge(|entry| entry.track != track);
        self.stats.queued_events -= events as u64;
        self.stats.queued_bytes -= bytes as u64;
    }
}

impl Session {
    /// Takes out what goes next of what waits, if the window takes it: from the two queues in turns, where both have something and nothing has to
    /// go first.
    pub(super) fn next_waiting(&mut self, now: Time, stats: &mut Stats) -> Option<Queued> {
        let plain = first_live(&mut self.waiting, now, stats).is_some_and(|qos| self.has_room(qos));
        let tracked = first_live(&mut self.follow.queue, now, stats).is_some_and(|qos| self.has_room(qos));
        let tracked = tracked && !self.was_plain();
        if !plain && !tracked {
            return None;
        }
        self.follow.turn = tracked && !(plain && self.follow.turn);
        let queue = if self.follow.turn { &mut self.follow.queue } else { &mut self.waiting };
        pop(queue, now, stats)
    }

    /// Sends an event that has not been sent before, or has it prepared: then it has the tag that is returned. The caller has asked for room.
    fn send_new(
        &mut self,
        publication: &mut Publication<'_>,
        terms: Terms,
        stats: &mut Stats,
        out: &mut dyn Output,
    ) -> Option<u16> {
        if terms.qos != Qos::AtMostOnce {
            return self.hand_out(publication, terms, stats, out);
        }
        let delivery = terms.delivery(publication.event, publication.id, publication.serial, 0);
        let sent = out.deliver(Link(self.link), &delivery);
        self.note(0, sent, stats);
        None
    }

    /// Sends the next delivery (or release) of a former connection again, or one that was prepared; false if it has to wait. The caller has asked
    /// for room.
    fn send_again(&mut self, stats: &mut Stats, out: &mut dyn Output) -> bool {
        let link = Link(self.link);
        let Some((tag, slot)) = self.inflight.resend() else { return self.inflight.is_resent() };
        if slot.stage == Stage::ExpectCompleted {
            out.release(link, tag, true);
            return true;
        }
        let event = slot.event.clone().expect("persistent sessions keep what is unsettled");
        let Slot { qos, identifier, group, origin, retain, as_published, track, repeated, .. } = *slot;
        let terms = Terms { qos, identifier, group, origin, retain, as_published, track };
        let delivery = Delivery { repeated, ..terms.delivery(event.view(), event.id(), 0, tag) };
        stats.deliveries_repeated += u64::from(repeated);
        let sent = out.deliver(link, &delivery);
        self.note(tag, sent, stats);
        true
    }
}

fn queued(publication: &mut Publication<'_>, terms: Terms) -> Queued {
    let Terms { qos, identifier, group, origin, retain, track, .. } = terms;
    Queued { event: publication.keep(), identifier, group, origin, qos, retain, track, serial: publication.serial }
}

pub(super) fn terms_of(entry: &Queued) -> Terms {
    let Queued { qos, identifier, group, origin, retain, track, .. } = *entry;
    Terms { qos, identifier, group, origin, retain, as_published: retain, track }
}

/// The quality of service of the next delivery that has not expired; those before it are accounted for.
fn first_live(queue: &mut Queue, now: Time, stats: &mut Stats) -> Option<Qos> {
    if queue.is_empty() {
        return None;
    }
    let (first, expired, bytes) = queue.first_live(now);
    stats.queued_events -= expired as u64;
    stats.queued_bytes -= bytes as u64;
    stats.dropped_expired += expired as u64;
    first.map(|entry| entry.qos)
}

/// The next delivery that has not expired, accounted for.
fn pop(queue: &mut Queue, now: Time, stats: &mut Stats) -> Option<Queued> {
    let (events, bytes) = (queue.len(), queue.bytes());
    let (entry, expired) = queue.pop_live(now);
    stats.queued_events -= (events - queue.len()) as u64;
    stats.queued_bytes -= (bytes - queue.bytes()) as u64;
    stats.dropped_expired += expired as u64;
    entry
}

/// Appends `entry`, and drops the oldest until both bounds hold; returns how many were dropped (`entry` itself, if it alone is too much).
pub(crate) fn push_bounded(queue: &mut Queue, entry: Queued, bound: usize, total: usize, stats: &mut Stats) -> u64 {
    let weight = entry.weight();
    let mut dropped = 0;
    while queue.bytes() + weight > bound || stats.queued_bytes as usize + weight > total {
        dropped += 1;
        let Some(oldest) = queue.pop() else { return dropped };
        stats.queued_events -= 1;
        stats.queued_bytes -= oldest.weight() as u64;
    }
    stats.queued_events += 1;
    stats.queued_bytes += weight as u64;
    queue.push(entry);
    dropped
}
