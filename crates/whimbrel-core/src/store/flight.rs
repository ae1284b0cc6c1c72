//! Exactly-once deliveries of sessions that are written. A delivery is durable before it is sent,
//! and its receipt is durable before the client is told to forget the tag. So neither a tag nor an
//! event is ever used twice.

use std::collections::BTreeMap;

use whimbrel_event::{EventId, PubendId, Qos, Tick, Time};

use super::keys::{DurableNo, Key, SessionNo};
use super::wire::MapValue;
use super::{Answer, BatchNo, Flight, FlightStream, Recipient, Wait};
use crate::api::{Kick, Link, Naming, Output, Settlement};
use crate::broker::Broker;
use crate::cursor::{Cursor, NOTHING};
use crate::route::{NO_CURSOR, NO_GROUP};
use crate::session::{Abandoned, Settled, Slot, Stage};

impl Broker {
    /// Writes the deliveries that are to be sent, in order, and forgets abandoned ones.
    pub(crate) fn prepare(&mut self) {
        for (index, number) in core::mem::take(&mut self.sessions.dropped) {
            if !self.sessions.is_numbered(index, number) {
                continue;
            }
            for abandoned in core::mem::take(&mut self.sessions.get_mut(index).memory.pending.abandoned) {
                let Abandoned { tag, group, origin } = abandoned;
                if self.sessions.get(index).memory.is_kept {
                    self.store.write_queue.forget(|key| Key::InFlight(number, tag).put(key));
                }
                if group != NO_GROUP {
                    self.sessions.fulfil(self.groups.account(group), origin);
                }
            }
            // Their holds may be free.
            self.cursors_of(index).into_iter().for_each(|cursor| self.cursors.touch(cursor));
        }
        while let Some((index, tag, number)) = self.sessions.prepared.pop_front() {
            if !self.sessions.is_numbered(index, number) {
                continue;
            }
            let session = self.sessions.get_mut(index);
            let Some(slot) = session.inflight.slot(tag) else { continue };
            let (id, cursor) = (slot.id, slot.cursor);
            let flight = match self.flight(cursor, Some(id)) {
                Some((number, whose, tick)) => Flight::Sent { number, whose, tick },
                None => Flight::Unkept,
            };
            self.store.write_queue.put(|key| Key::InFlight(number, tag).put(key), |value| flight.put_versioned(value));
            let batch = self.store.write_queue.seal();
            // The client has the delivery, even if it answers nothing: a replica must know its tag.
            self.record_moved(index);
            let batch = if fault!(self, PublishBeforePut) { self.store.commit_queue.last() } else { batch };
            // Once the log has failed, nothing is sent that would have to be remembered.
            if batch != BatchNo::NEVER {
                self.store.commit_queue.push(batch, Wait::Hand { session: index, number, tag });
            }
        }
    }

    /// The durable name of a delivery, if it has one: subscription, stream and tick.
    fn flight(&self, cursor: u32, id: Option<EventId>) -> Option<(DurableNo, FlightStream, Tick)> {
        let (durable, id) = (self.cursors.durable(cursor)?, id?);
        let whose = match self.streams.own_reliable(id.pubend) {
            Some(_) => FlightStream::Own(id.pubend.index()),
            None => FlightStream::Other(Some(id.pubend).filter(|pubend| durable.remote.since.has(*pubend))?),
        };
        Some((durable.number, whose, id.tick))
    }

    /// A subscription counts on the log of a stream from now on: its open deliveries of that stream
    /// are written, so that they are found in the log after a restart. Otherwise they would come
    /// again with another tag.
    pub(crate) fn keep_flights(&mut self, cursor: u32, pubend: PubendId) {
        let index = self.cursors.get(cursor).session;
        let session = self.sessions.get(index);
        let number = session.memory.number;
        if !session.memory.is_kept {
            return;
        }
        let is_its = |slot: &&Slot| slot.cursor == cursor && slot.qos == Qos::ExactlyOnce && slot.id.pubend == pubend;
        let open = session.inflight.open().filter(|(_, slot)| is_its(slot));
        let open: Vec<(u16, EventId, bool)> = open.map(|(tag, slot)| (tag, slot.id, slot.is_had())).collect();
        for (tag, id, is_had) in &open {
            let Some((of, whose, tick)) = self.flight(cursor, Some(*id)) else { continue };
            let flight = match is_had {
                true => Flight::Received { number: of, whose, tick },
                false => Flight::Sent { number: of, whose, tick },
            };
            self.store.write_queue.put(|key| Key::InFlight(number, *tag).put(key), |value| flight.put_versioned(value));
        }
        if !open.is_empty() {
            self.store.write_queue.seal();
        }
    }

    /// A delivery may be sent: its record is durable.
    pub(crate) fn hand_over(&mut self, now: Time, index: u32, number: SessionNo, tag: u16, out: &mut dyn Output) {
        if self.sessions.is_numbered(index, number) {
            self.sessions.get_mut(index).inflight.is_ready(tag);
            self.resume(now, index, out);
        }
    }

    /// Handles a client's answer to a delivery.
    pub(crate) fn settle(&mut self, now: Time, (link, tag): (Link, u16), by: Settlement, out: &mut dyn Output) {
        let index = self.sessions.of(link);
        let may_be_plain = by == Settlement::Acknowledged && self.has_plain_way && !self.retained.replays.has(index);
        let Broker { sessions, cursors, streams, .. } = &mut *self;
        // Of another broker's stream, the client may have an event that the cursor has not reached.
        let is_own = |id: EventId| streams.own_reliable(id.pubend).is_some();
        let is_plain = |cursor, id| is_own(id) && cursors.find(cursor).is_some_and(Cursor::is_plain);
        if may_be_plain && let Some(cursor) = sessions.get_mut(index).acknowledge_plain(tag, is_plain) {
            cursors.touch(cursor);
            return self.record_moved(index);
        }
        let session = self.sessions.get_mut(index);
        if by == Settlement::Completed
            && let Some(is_all) = session.inflight.forgotten(tag)
        {
            if is_all {
                self.resume(now, index, out);
            }
            return;
        }
        let slot = session.inflight.slot(tag);
        let (cursor, id) = slot.as_ref().map_or((NO_CURSOR, None), |slot| (slot.cursor, Some(slot.id)));
        let is_repeated = slot.as_ref().is_some_and(|slot| slot.repeated);
        let (group, origin) = slot.map_or((NO_GROUP, 0), |slot| (slot.group, slot.origin));
        let (inflight, mut waker) = self.sessions.inflight_mut(index);
        let settled = inflight.settle(tag, by, &mut waker);
        if settled == Settled::OtherKind {
            return self.kick(now, index, Kick::OtherAnswer, out);
        }
        self.record_moved(index);
        let session = self.sessions.get_mut(index);
        let (is_kept, number) = (session.memory.is_kept, session.memory.number);
        if cursor != NO_CURSOR && settled != Settled::Unknown {
            self.cursors.touch(cursor);
            self.record_beyond(cursor, id, is_repeated);
        }
        if group != NO_GROUP && settled != Settled::Unknown {
            if let Some(slot) = self.sessions.get_mut(index).inflight.slot(tag) {
                slot.origin = 0;
            }
            self.sessions.fulfil(self.groups.account(group), origin);
        }
        if by == Settlement::Received {
            let whom = self.sessions.whom(link);
            let known = settled == Settled::Received;
            if !(is_kept && known) {
                self.answer(now, whom, (BatchNo(0), Answer::Release { tag, known }), out);
            } else if !self.record_received(index, (whom, tag), cursor, id) {
                self.sessions.stats.kicked_log_failed += 1;
                return self.kick(now, index, Kick::LogFailed, out);
            }
        }
        if settled == Settled::Done && is_kept && by != Settlement::Acknowledged {
            match self.cursors.durable_mut(cursor) {
                // Forgotten only after the position has moved past it, or a crash would deliver it
                // again.
                Some(durable) => durable.rare.done.push(tag),
                None => {
                    self.store.write_queue.forget(|key| Key::InFlight(number, tag).put(key));
                    self.store.write_queue.seal();
                }
            }
        }
    }

    /// Notes that the client has an event that the cursor has not reached: one from before a
    /// restart, or a repeated one with an earlier event still open.
    pub(crate) fn record_beyond(&mut self, cursor: u32, id: Option<EventId>, is_repeated: bool) {
        if self.cursors.durable(cursor).is_none() {
            return;
        }
        let inflight = &self.sessions.get(self.cursors.get(cursor).session).inflight;
        let is_ahead = |id: &EventId| {
            self.resumes_after(cursor, id.pubend) < id.tick || is_repeated && inflight.lacks_before(cursor, *id)
        };
        let Some(id) = id.filter(is_ahead) else { return };
        self.cursors.get_mut(cursor).mark(id.pubend, id.tick);
        if let Some(durable) = self.cursors.durable_mut(cursor)
            && !durable.rare.beyond.contains(&id)
        {
            durable.rare.beyond.push(id);
        }
    }

    /// The tick of a stream after which a durable subscription resumes, even if the stream is
    /// detached, or not known here yet.
    fn resumes_after(&self, cursor: u32, pubend: PubendId) -> Tick {
        let cursor = self.cursors.get(cursor);
        let remote = &cursor.durable.as_deref().expect("the caller has looked").remote;
        match &cursor.catch_up {
            _ if remote.detached.has(pubend) => remote.detached.get(pubend),
            Some(catch_up) => catch_up.positions.get(pubend),
            None if remote.since.has(pubend) => self.streams.passed(pubend).max(cursor.ahead.get(pubend)),
            // A caught-up cursor has had all that was received of the stream.
            None => NOTHING,
        }
    }

    /// Writes that the client has the event of a delivery; the client is told to forget the tag
    /// when that is durable. False if it never will be.
    fn record_received(&mut self, index: u32, (whom, tag): (Recipient, u16), cursor: u32, id: Option<EventId>) -> bool {
        let number = self.sessions.get(index).memory.number;
        let received = match self.flight(cursor, id) {
            Some((number, whose, tick)) => Flight::Received { number, whose, tick },
            None => Flight::Unkept,
        };
        let key = |key: &mut Vec<u8>| Key::InFlight(number, tag).put(key);
        self.store.write_queue.put(key, |value| received.put_versioned(value));
        let batch = self.store.write_queue.seal();
        let batch = if fault!(self, ReleaseBeforePut) { self.store.commit_queue.last() } else { batch };
        self.sessions.get_mut(index).inflight.receive(tag);
        if batch == BatchNo::NEVER {
            return false;
        }
        self.sessions.enter_commit_queue(whom);
        self.store.commit_queue.push(batch, Wait::Received { whom, session: index, number, tag });
        true
    }

    /// The receipt of a delivery is durable: the client is told to forget the tag.
    pub(crate) fn received(
        &mut self,
        now: Time,
        (index, number): (u32, SessionNo),
        (link, tag): (Option<Link>, u16),
        out: &mut dyn Output,
    ) {
        if self.sessions.is_numbered(index, number) {
            self.sessions.get_mut(index).inflight.received(tag);
            match link {
                Some(link) => out.release(link, tag, true),
                // The client's next connection is told again.
                None => self.resume(now, index, out),
            }
        }
    }

    /// Restores deliveries in flight, oldest first: that is behind the largest range of unused
    /// tags.
    pub(super) fn restore_flights(
        &mut self,
        index: u32,
        flights: &BTreeMap<u16, Flight>,
        cursors: &BTreeMap<DurableNo, u32>,
    ) {
        let tags: Vec<u16> = flights.keys().copied().collect();
        let before =
            |at: usize| if at == 0 { i64::from(tags[tags.len() - 1]) - 65_535 } else { i64::from(tags[at - 1]) };
        let first = (0..tags.len()).max_by_key(|at| i64::from(tags[*at]) - before(*at)).unwrap_or(0);
        let host = self.streams.own.host();
        let (session, is_of_copy) =
            (self.sessions.get(index).memory.number, self.sessions.get(index).memory.is_of_copy);
        for tag in tags[first..].iter().chain(&tags[..first]) {
            let flight = flights[tag];
            if is_of_copy {
                self.store.write_queue.forget(|key| Key::InFlight(session, *tag).put(key));
                self.store.write_queue.seal_large();
            }
            let (number, stage) = match flight {
                Flight::Sent { number, whose, tick } => (Some((number, whose, tick)), Stage::Loading),
                Flight::Received { number, whose, tick } => (Some((number, whose, tick)), Stage::ExpectCompleted),
                Flight::Unkept => (None, Stage::ExpectCompleted),
            };
            let id = number.map_or(EventId { pubend: host.pubend(0), tick: Tick(0) }, |(_, whose, tick)| EventId {
                pubend: whose.pubend(host),
                tick,
            });
            let cursor = number.and_then(|(number, ..)| cursors.get(&number)).copied();
            if let Some(cursor) = cursor {
                self.cursors.get_mut(cursor).mark(id.pubend, id.tick);
            }
            let durable = cursor.and_then(|cursor| self.cursors.get_mut(cursor).durable.as_deref_mut());
            if let Some(durable) = durable.filter(|_| stage != Stage::Loading) {
                durable.rare.beyond.push(id);
            }
            if is_of_copy {
                // An event that the client has not got is read anew, with another tag.
                continue;
            }
            // Events behind the cursor's position, or of an ended subscription, are not read from
            // the log.
            let is_ahead = cursor
                .and_then(|cursor| self.cursors.catch_up_mut(cursor))
                .is_some_and(|catch_up| catch_up.positions.get(id.pubend) < id.tick);
            let stage = if is_ahead { stage } else { Stage::ExpectCompleted };
            let of_cursor = cursor.map(|cursor| self.cursors.get(cursor));
            let slot = Slot {
                id,
                event: None,
                identifier: of_cursor.map_or(0, |cursor| cursor.marks.identifier),
                group: NO_GROUP,
                origin: 0,
                qos: Qos::ExactlyOnce,
                stage,
                retain: false,
                naming: of_cursor.map_or(Naming::None, |cursor| Naming::of(cursor.marks.named)),
                cursor: cursor.unwrap_or(NO_CURSOR),
                sent: false,
                repeated: true,
                rank: 0,
            };
            self.sessions.get_mut(index).inflight.restore(*tag, slot);
        }
    }
}
