//! Delivery with back-pressure: sending at once, waiting, and dropping when a bound is reached.

use core::time::Duration;

use whimbrel_event::{AcceptedEvent, Event, EventId, Packed, Qos, Time};

use super::counted::{first_live, pop, push_bounded};
use super::inflight::ReassignedDelivery;
use super::queue::{Queue, Queued};
use super::slot::{Slot, Stage};
use super::wake::Waker;
use super::{Abandoned, Session, Sessions};
use crate::api::{Delivery, Link, Naming, Output, Sent};
use crate::cursor::NO_PUBEND;
use crate::route::{NO_CURSOR, NO_GROUP};
use crate::stats::Stats;
use crate::subscription::SubscriptionSpec;

/// How long best-effort deliveries may wait, in more bytes than
/// [`crate::Limits::best_effort_queue_bytes`], for a client that had taken all before. Many
/// publishers at once are faster than any one reader, which is not slow because of that.
const BURST_SPAN: Duration = Duration::from_secs(1);

/// A burst may take this many times that bound. [`crate::Limits::total_queue_bytes`] applies as
/// well.
pub const BURST_FACTOR: usize = 16;

/// An accepted event on its way to its subscriptions; kept (copied) only if a subscription has to
/// wait for it.
pub(crate) struct Publication<'a> {
    pub(crate) accepted: AcceptedEvent<'a>,
    /// The event's number in the consolidated stream; 0: it has none here.
    pub(crate) serial: u64,
    pub(crate) kept: Option<Event>,
}

impl<'a> Publication<'a> {
    /// The publication of an event that was accepted just now, and is not kept yet.
    pub(crate) fn new(accepted: AcceptedEvent<'a>, serial: u64) -> Self {
        Publication { accepted, serial, kept: None }
    }

    /// The publication of an event that was kept before.
    pub(crate) fn of(event: &'a Event, serial: u64) -> Self {
        Publication { kept: Some(event.clone()), ..Self::of_packed(event.packed(), serial) }
    }

    /// The publication of an event that is packed elsewhere.
    pub(crate) fn of_packed(event: Packed<'a>, serial: u64) -> Self {
        Publication { accepted: event.unpack(), serial, kept: None }
    }

    pub(crate) fn keep(&mut self) -> Event {
        self.kept.get_or_insert_with(|| self.accepted.keep()).clone()
    }
}

/// The fields that deliveries of a subscription carry beside their events.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Marks {
    /// The subscription's identifier; 0: none.
    pub(crate) identifier: u32,
    /// The retain mark as published; otherwise new events have none.
    pub(crate) retain_as_published: bool,
    /// The event's id.
    pub(crate) named: bool,
}

impl Marks {
    /// The marks of a subscription with these options.
    pub(crate) fn of(spec: &SubscriptionSpec) -> Marks {
        let SubscriptionSpec { identifier, retain_as_published, named, .. } = *spec;
        Marks { identifier, retain_as_published, named }
    }

    /// The terms for an event that was published with retain mark `retain`.
    pub(crate) fn terms(&self, qos: Qos, retain: bool) -> Terms {
        let Marks { identifier, retain_as_published, named } = *self;
        let (retain, naming) = (retain && retain_as_published, Naming::of(named));
        Terms { qos, identifier, group: NO_GROUP, origin: 0, retain, naming, cursor: NO_CURSOR }
    }
}

/// The terms under which one subscription gets an event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) qos: Qos,
    pub(crate) identifier: u32,
    pub(crate) group: u32,
    /// The delivery to the shared subscription's own session that this one settles; 0: none.
    pub(crate) origin: u16,
    pub(crate) retain: bool,
    pub(crate) naming: Naming,
    /// The cursor that it is for, or [`NO_CURSOR`].
    pub(crate) cursor: u32,
}

impl Terms {
    #[inline]
    pub(crate) fn delivery<'a>(&self, publication: &'a Publication<'_>, tag: u16) -> Delivery<'a> {
        let Terms { qos, identifier, retain, naming, cursor, .. } = *self;
        Delivery {
            accepted: &publication.accepted,
            serial: publication.serial,
            tag,
            qos,
            repeated: false,
            retain,
            identifier,
            naming,
            cursor,
        }
    }

    /// A new delivery in a stage. It is sent now if its client's answer is expected.
    pub(super) fn slot(&self, id: EventId, event: Option<Event>, stage: Stage) -> Slot {
        let Terms { qos, identifier, group, origin, retain, naming, cursor } = *self;
        let (sent, repeated, rank) = (stage == Stage::Expect, false, 0);
        Slot { id, event, identifier, group, origin, qos, stage, retain, naming, cursor, sent, repeated, rank }
    }
}

/// The result of sending an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    /// The edge has taken it.
    Taken,
    /// It is to be sent under this tag once the record of the delivery is durable.
    Prepared(u16),
    /// It cannot be sent to this client: it is over, or goes to another member of its shared
    /// subscription.
    Dropped,
}

/// The destination of one session's deliveries.
struct Outgoing<'a> {
    waker: Waker<'a>,
    stats: &'a mut Stats,
    /// See [`Sessions::returned`].
    returned: &'a mut Vec<ReassignedDelivery>,
    out: &'a mut dyn Output,
}

impl Session {
    /// Whether deliveries at this QoS have to be durable before they are sent.
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

    /// Whether a new reliable delivery may go out at once.
    pub(crate) fn takes_reliable(&self, qos: Qos) -> bool {
        self.open && self.waiting.is_empty() && self.has_room(qos)
    }

    /// Whether its cursors may hand out an event at this QoS at once.
    pub(crate) fn takes_tracked(&self, qos: Qos) -> bool {
        self.tracked_is_next() && self.has_room(qos)
    }

    /// Whether its cursors may hand out a delivery of a former connection again.
    pub(crate) fn takes_repeated(&self) -> bool {
        self.tracked_is_next() && self.inflight.is_resent() && self.inflight.has_room()
    }

    /// Whether its cursors may hand out events at some QoS.
    pub(crate) fn takes_any(&self) -> bool {
        self.tracked_is_next() && self.inflight.is_past_repeats()
    }

    /// Whether no waiting delivery has to go before those of its cursors.
    fn tracked_is_next(&self) -> bool {
        self.open && self.follow.queue.is_empty() && !self.was_plain()
    }

    /// Whether a delivery waits from the time before a subscription got its cursor.
    fn was_plain(&self) -> bool {
        let is_older = |queue: &Queue| queue.first().is_some_and(|entry| entry.serial <= self.follow.plain_until);
        self.follow.plain_until != 0 && (is_older(&self.waiting) || is_older(&self.passing))
    }

    /// Records the result of sending a delivery, new or repeated.
    fn record_sent(&mut self, (tag, id): (u16, EventId), sent: Sent, is_again: bool, to: &mut Outgoing<'_>) -> Fate {
        match sent {
            Sent::Open | Sent::Full => {
                to.stats.deliveries += 1;
                self.open &= sent == Sent::Open;
                return Fate::Taken;
            }
            Sent::TooLarge | Sent::Denied => {}
        }
        let taken = if is_again { self.inflight.take_unsent(tag, &mut to.waker) } else { None };
        if let Some(taken) = taken {
            if taken.is_written && self.memory.is_kept {
                self.memory.pending.abandoned.push(Abandoned { tag, group: NO_GROUP, origin: 0 });
            }
            to.returned.push(taken);
            return Fate::Dropped;
        }
        // The edge counts events that its client is not allowed to get.
        let is_too_large = sent == Sent::TooLarge;
        let is_notice = id.pubend == NO_PUBEND;
        to.stats.notices_too_large += u64::from(is_too_large && is_notice);
        to.stats.dropped_too_large += u64::from(is_too_large && !is_notice);
        let slot = self.inflight.slot(tag).map(|slot| (slot.qos, slot.group, slot.origin));
        let is_written = |qos: Qos| qos == Qos::ExactlyOnce && self.memory.is_kept;
        let is_awaited = |(qos, group, _): &(Qos, u32, u16)| is_written(*qos) || *group != NO_GROUP;
        if let Some((_, group, origin)) = slot.filter(|slot| is_again && is_awaited(slot)) {
            self.memory.pending.abandoned.push(Abandoned { tag, group, origin });
        }
        self.inflight.abandon(tag, &mut to.waker);
        Fate::Dropped
    }

    /// Puts a reliable delivery into the window and sends it, or has it prepared. The caller has
    /// asked for room.
    fn hand_out(&mut self, publication: &mut Publication<'_>, terms: Terms, to: &mut Outgoing<'_>) -> Fate {
        // A session that ends with its connection never sends again, unless another member has to
        // take the event over.
        let keep = self.is_persistent() || self.prepares(terms.qos) || terms.group != NO_GROUP;
        let event = keep.then(|| publication.keep());
        let prepares = self.prepares(terms.qos);
        let stage = if prepares { Stage::Preparing } else { Stage::Expect };
        let slot = terms.slot(publication.accepted.id, event, stage);
        if prepares {
            return Fate::Prepared(self.inflight.prepare(slot));
        }
        let tag = self.inflight.push(slot);
        let delivery = terms.delivery(publication, tag);
        let sent = to.out.deliver(Link(self.link), &delivery);
        self.record_sent((tag, publication.accepted.id), sent, false, to)
    }
}

impl Sessions {
    /// Delivers an event to a session, now or later. `false`: it cannot be sent to the client, and
    /// is over.
    pub(crate) fn offer(
        &mut self,
        to: u32,
        publication: &mut Publication<'_>,
        terms: Terms,
        out: &mut dyn Output,
    ) -> bool {
        let Sessions { slots, stats, prepared, woken, returned, .. } = self;
        let session = slots[to as usize].as_mut().expect("routes lead to sessions");
        let mut outgoing = Outgoing { waker: Waker::new(to, woken), stats, returned, out };
        if terms.qos == Qos::AtMostOnce {
            if !session.is_attached() {
                return true;
            }
            if session.open && session.passing.is_empty() {
                return session.send_new(publication, terms, &mut outgoing) != Fate::Dropped;
            }
        } else {
            if session.takes_reliable(terms.qos) {
                let fate = session.hand_out(publication, terms, &mut outgoing);
                if let Fate::Prepared(tag) = fate {
                    prepared.push_back((to, tag, session.memory.number));
                }
                return fate != Fate::Dropped;
            }
            if !session.is_attached() && !session.is_persistent() {
                return true;
            }
        }
        self.enqueue(to, queued(publication, terms));
        true
    }

    /// Delivers an event to a session for a cursor, now or later, in the order of the calls.
    /// `false` if it would have to wait and may not: then nothing has happened.
    pub(crate) fn offer_tracked(
        &mut self,
        to: u32,
        publication: &mut Publication<'_>,
        terms: Terms,
        out: &mut dyn Output,
    ) -> bool {
        let Sessions { slots, limits, stats, .. } = self;
        let session = slots[to as usize].as_mut().expect("cursors lead to sessions");
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
        self.hand_now(to, publication, terms, out);
        true
    }

    fn enqueue(&mut self, to: u32, entry: Queued) {
        let Sessions { slots, limits, stats, overflowed, now, .. } = self;
        let session = slots[to as usize].as_mut().expect("routes lead to sessions");
        let attached = session.is_attached();
        let reliable = entry.qos != Qos::AtMostOnce;
        let (queue, bound) = if reliable {
            (&mut session.waiting, limits.session_queue_bytes)
        } else {
            session.passing.record_arrival(*now);
            let is_burst = now.since(session.passing.since()) < BURST_SPAN;
            let factor = if is_burst { BURST_FACTOR } else { 1 };
            (&mut session.passing, limits.best_effort_queue_bytes.saturating_mul(factor))
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

    /// Takes out a session that has to be cut off for exceeding its bound.
    pub(crate) fn pop_overflowed(&mut self) -> Option<u32> {
        let index = self.overflowed.pop()?;
        if let Some(session) = &mut self.slots[index as usize] {
            session.overflowed = false;
        }
        Some(index)
    }

    /// Whether a session takes retained messages at this QoS, for a reading that began when event
    /// `begun` was the last one. Its window and link need room, and no earlier event may wait for
    /// the same room.
    pub(crate) fn takes_retained(&self, index: u32, begun: u64, qos: Qos) -> bool {
        let session = self.get(index);
        let reliable = qos != Qos::AtMostOnce;
        let of_its_kind = if reliable { &*session.waiting } else { &*session.passing };
        let is_ahead = |entry: &Queued| entry.serial <= begun && (entry.qos != Qos::AtMostOnce) == reliable;
        let is_behind =
            [of_its_kind, &session.follow.queue].into_iter().any(|queue| queue.first().is_some_and(is_ahead));
        !is_behind && session.open && session.has_room(qos)
    }

    /// Delivers an event to a session at once. The caller has asked for room.
    pub(crate) fn hand_now(&mut self, to: u32, publication: &mut Publication<'_>, terms: Terms, out: &mut dyn Output) {
        let Sessions { slots, stats, prepared, dropped, woken, returned, .. } = self;
        let session = slots[to as usize].as_mut().expect("a session index in use");
        let mut outgoing = Outgoing { waker: Waker::new(to, woken), stats, returned, out };
        match session.send_new(publication, terms, &mut outgoing) {
            Fate::Taken => {}
            Fate::Prepared(tag) => prepared.push_back((to, tag, session.memory.number)),
            Fate::Dropped => {
                // Once for all that are dropped in a row of the same session.
                let whose = (to, session.memory.number);
                if dropped.last() != Some(&whose) {
                    dropped.push(whose);
                }
            }
        }
    }

    /// Sends waiting deliveries, as far as window and link allow.
    pub(crate) fn pump(&mut self, index: u32, now: Time, out: &mut dyn Output) {
        let Sessions { slots, stats, prepared, dropped, woken, returned, .. } = self;
        let session = slots[index as usize].as_mut().expect("a session index in use");
        if session.is_within() {
            return self.pump_within(index, now);
        }
        if session.has_nothing_to_send() {
            return;
        }
        if session.is_attached() && session.inflight.stale_count() > 0 {
            let tags = session.inflight.ask_to_forget();
            tags.into_iter().for_each(|tag| out.release(Link(session.link), tag, true));
        }
        let before = stats.dropped_expired;
        let mut is_dropped = false;
        let mut outgoing = Outgoing { waker: Waker::new(index, woken), stats, returned, out };
        while session.open {
            if !session.inflight.is_resent() && session.inflight.has_room() {
                let fate = session.send_again(&mut outgoing);
                is_dropped |= fate == Some(Fate::Dropped);
                if fate.is_some() {
                    continue;
                }
            }
            let fate = if let Some(entry) = session.next_waiting(now, outgoing.stats) {
                let mut publication = Publication::of(&entry.event, entry.serial);
                session.send_new(&mut publication, terms_of(&entry), &mut outgoing)
            } else if !session.passing.is_empty() {
                let Some(entry) = pop(&mut session.passing, now, outgoing.stats) else { continue };
                session.send_new(&mut Publication::of(&entry.event, 0), terms_of(&entry), &mut outgoing)
            } else {
                break;
            };
            match fate {
                Fate::Taken => {}
                Fate::Prepared(tag) => prepared.push_back((index, tag, session.memory.number)),
                Fate::Dropped => is_dropped = true,
            }
        }
        if is_dropped || outgoing.stats.dropped_expired != before {
            dropped.push((index, session.memory.number));
        }
    }
}

impl Session {
    /// Whether no delivery waits, and none of a former connection is to be sent again or forgotten:
    /// the usual case when a client has answered a delivery.
    #[inline]
    fn has_nothing_to_send(&self) -> bool {
        let waiting = self.waiting.len() | self.passing.len() | self.follow.queue.len();
        waiting == 0 && self.inflight.is_resent() && self.inflight.stale_count() == 0
    }

    /// Ends a delivery that its client has acknowledged, if that is all there is to do, but for the
    /// position of its cursor; `is_plain` tells whether a cursor is so too. Returns the cursor, or
    /// [`NO_CURSOR`]; `None` otherwise, and then nothing has happened.
    #[inline]
    pub(crate) fn acknowledge_plain(&mut self, tag: u16, is_plain: impl FnOnce(u32, EventId) -> bool) -> Option<u32> {
        let waits = !self.has_nothing_to_send() || !self.follow.lagging.is_empty() || !self.groups.is_empty();
        if waits { None } else { self.inflight.acknowledge_oldest(tag, is_plain) }
    }

    /// Takes out the waiting delivery that goes next, if the window takes it: from both queues in
    /// turns, if both have one and neither has to go first.
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

    /// Sends an event for the first time, or has it prepared. The caller has asked for room.
    fn send_new(&mut self, publication: &mut Publication<'_>, terms: Terms, to: &mut Outgoing<'_>) -> Fate {
        if terms.qos != Qos::AtMostOnce {
            return self.hand_out(publication, terms, to);
        }
        // At most once: nothing is prepared.
        let delivery = terms.delivery(publication, 0);
        let sent = to.out.deliver(Link(self.link), &delivery);
        self.record_sent((0, publication.accepted.id), sent, false, to)
    }

    /// Sends the next delivery (or release) of a former connection again, or one that was prepared.
    /// `None`: it has to wait. The caller has asked for room.
    fn send_again(&mut self, to: &mut Outgoing<'_>) -> Option<Fate> {
        let link = Link(self.link);
        let Some((tag, slot)) = self.inflight.resend() else { return self.inflight.is_resent().then_some(Fate::Taken) };
        if slot.stage == Stage::ExpectCompleted {
            to.out.release(link, tag, true);
            return Some(Fate::Taken);
        }
        let event = slot.event.clone().expect("persistent sessions keep what is unsettled");
        let Slot { qos, identifier, group, origin, retain, naming, cursor, repeated, .. } = *slot;
        let terms = Terms { qos, identifier, group, origin, retain, naming, cursor };
        let publication = Publication::of_packed(event.packed(), 0);
        let delivery = Delivery { repeated, ..terms.delivery(&publication, tag) };
        to.stats.deliveries_repeated += u64::from(repeated);
        let sent = to.out.deliver(link, &delivery);
        Some(self.record_sent((tag, event.id()), sent, true, to))
    }
}

fn queued(publication: &mut Publication<'_>, terms: Terms) -> Queued {
    let Terms { qos, identifier, group, origin, retain, naming, cursor } = terms;
    let (event, serial) = (publication.keep(), publication.serial);
    Queued { event, identifier, group, origin, qos, retain, naming, cursor, serial }
}

pub(super) fn terms_of(entry: &Queued) -> Terms {
    let Queued { qos, identifier, group, origin, retain, naming, cursor, .. } = *entry;
    Terms { qos, identifier, group, origin, retain, naming, cursor }
}
