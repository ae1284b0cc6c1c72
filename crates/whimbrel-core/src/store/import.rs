//! Parts of a session that is imported from another broker: its deliveries in flight, and its
//! positions where both brokers have a state of it, as its client was at both while these could not
//! reach each other. Acknowledgements at either count.

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_event::{EventId, Qos, Tick, Time};

use super::carried::{CarriedFlight, CarriedPosition, Moving};
use super::keys::{DurableNo, Key};
use super::wire::MapValue;
use super::{BatchNo, Flight, FlightStream, SessionSource};
use crate::api::Naming;
use crate::broker::Broker;
use crate::cursor::{Gap, NO_PUBEND, notice_of};
use crate::route::{NO_CURSOR, NO_GROUP};
use crate::session::{Slot, Stage, Unreleased};

/// Positions of a session's subscriptions, by topic filter.
pub(crate) type CarriedPositions = Vec<(Box<str>, CarriedPosition)>;

impl Broker {
    /// The positions of a session's durable subscriptions.
    pub(crate) fn positions_of(&self, index: u32) -> CarriedPositions {
        let known = self.sessions.get(index).subscriptions.iter().map(|id| self.router.get(*id));
        let durable = known.filter(|known| known.cursor != NO_CURSOR && self.cursors.durable(known.cursor).is_some());
        durable.map(|known| (known.text.clone(), self.told_position(index, known.cursor))).collect()
    }

    /// A position, before each gap whose notice is not acknowledged: notices do not go along, so
    /// these gaps are told again.
    fn told_position(&self, index: u32, cursor: u32) -> CarriedPosition {
        let mut position = self.carried_position(index, cursor);
        for gap in self.sessions.get(index).inflight.unanswered_gaps(cursor) {
            let of_gap = position.streams.iter_mut().filter(|(pubend, ..)| *pubend == gap.pubend);
            of_gap.for_each(|(_, _, acked)| *acked = (*acked).min(gap.from));
        }
        position
    }

    /// Sets an imported session's positions to the farther of its own and of those that it had
    /// here.
    pub(crate) fn merge_positions(&mut self, index: u32, stood: &CarriedPositions) {
        for (text, position) in stood {
            let Some(cursor) = self.router.cursor_of(index, text) else { continue };
            if self.cursors.durable(cursor).is_some() && !self.cursors.get(cursor).by_token {
                self.merge_position(cursor, position);
                self.write_position(cursor);
            }
        }
    }

    fn merge_position(&mut self, cursor: u32, position: &CarriedPosition) {
        let streams = &self.streams;
        let began = streams.own.positions();
        let of_cursor = self.cursors.get_mut(cursor);
        let mut catch_up = of_cursor.catch_up.take().expect("whose client is not there lags");
        for (pubend, since, acked) in &position.streams {
            let own = streams.own_reliable(*pubend);
            let acked = own.map_or(*acked, |own| (*acked).min(began[own]));
            catch_up.positions.advance(*pubend, acked);
            catch_up.gaps.passed(*pubend, acked);
            of_cursor.record_read(*pubend, acked);
            of_cursor.mark(*pubend, acked);
            let durable = of_cursor.durable.as_deref_mut().expect("it is durable");
            match (own, since) {
                (Some(own), Some(since)) => durable.start.set(own, durable.start.get(own).min(*since)),
                (None, Some(since)) if durable.remote.since.has(*pubend) => {
                    let known = durable.remote.since.get(*pubend);
                    durable.remote.since.set(*pubend, known.min(*since));
                }
                _ => {}
            }
        }
        let durable = of_cursor.durable.as_deref_mut().expect("it is durable");
        let news = position.beyond.iter().filter(|id| !durable.rare.beyond.contains(id)).copied();
        let news: Vec<_> = news.collect();
        durable.rare.beyond.extend(news.iter().copied());
        news.into_iter().for_each(|id| of_cursor.mark(id.pubend, id.tick));
        catch_up.next = self.first_after(&catch_up.positions);
        self.cursors.get_mut(cursor).catch_up = Some(catch_up);
        self.cursors.touch(cursor);
    }
}

impl Broker {
    /// Imports the deliveries in flight, oldest first: that is behind the largest range of unused
    /// tags. A notice ahead of the position would overtake events that are read again before it.
    pub(super) fn import_flights(
        &mut self,
        now: Time,
        index: u32,
        moving: &Moving,
        cursors: &[Option<(u32, Option<DurableNo>)>],
        source: SessionSource,
    ) {
        let flights = moving.flights.iter().map(|flight| (flight.tag, *flight));
        let mut flights: BTreeMap<u16, CarriedFlight> = flights.collect();
        // At-least-once deliveries come again anyway; with their tag only if that is unchanged.
        let is_whole = source == SessionSource::Owner;
        flights.retain(|_, flight| flight.qos == Qos::ExactlyOnce || is_whole && flight.of.is_some());
        // A gap ahead of the position is told anew in its place; else its notice comes as it was.
        let mut notices: BTreeMap<u16, (u32, Gap)> = BTreeMap::new();
        for (tag, ordinal, gap) in &moving.gaps {
            let Some((cursor, _)) = cursors.get(*ordinal as usize).copied().flatten() else { continue };
            match self.cursors.catch_up_mut(cursor) {
                Some(catch_up) if catch_up.positions.get(gap.pubend) < gap.to => {
                    catch_up.gaps.add(*gap);
                    catch_up.told.add(*gap);
                }
                _ if *tag == 0 => {}
                _ => drop(notices.insert(*tag, (cursor, *gap))),
            }
        }
        let tags = Vec::from_iter(BTreeSet::from_iter(flights.keys().chain(notices.keys()).copied()));
        let before =
            |at: usize| if at == 0 { i64::from(tags[tags.len() - 1]) - 65_535 } else { i64::from(tags[at - 1]) };
        let first = (0..tags.len()).max_by_key(|at| i64::from(tags[*at]) - before(*at)).unwrap_or(0);
        for tag in tags[first..].iter().chain(&tags[..first]) {
            let Some(flight) = flights.get(tag).copied() else {
                self.import_notice(now, index, *tag, notices[tag]);
                continue;
            };
            let of = flight.of.and_then(|(ordinal, id)| Some((*cursors.get(ordinal as usize)?.as_ref()?, id)));
            let catch_up = of.and_then(|((cursor, _), id)| Some((self.cursors.catch_up_mut(cursor)?, id)));
            let is_ahead = catch_up.is_some_and(|(catch_up, id)| catch_up.positions.get(id.pubend) < id.tick);
            of.into_iter().for_each(|((cursor, _), id)| self.cursors.get_mut(cursor).mark(id.pubend, id.tick));
            if flight.qos != Qos::ExactlyOnce && !is_ahead {
                continue;
            }
            let stage = if flight.is_received || !is_ahead { Stage::ExpectCompleted } else { Stage::Loading };
            if let Some(((cursor, _), id)) = of.filter(|_| flight.is_received)
                && let Some(durable) = self.cursors.durable_mut(cursor)
                && !durable.rare.beyond.contains(&id)
            {
                durable.rare.beyond.push(id);
            }
            let cursor = of.map_or(NO_CURSOR, |((cursor, _), _)| cursor);
            let nowhere = EventId { pubend: self.streams.own.host().pubend(0), tick: Tick(0) };
            let slot = Slot {
                id: of.map_or(nowhere, |(_, id)| id),
                event: None,
                identifier: if cursor == NO_CURSOR { 0 } else { self.cursors.get(cursor).marks.identifier },
                group: NO_GROUP,
                origin: 0,
                qos: flight.qos,
                stage,
                retain: false,
                naming: Naming::of(cursor != NO_CURSOR && self.cursors.get(cursor).marks.named),
                cursor,
                sent: false,
                repeated: true,
                rank: 0,
            };
            self.sessions.get_mut(index).inflight.restore(*tag, slot);
            self.remember_flight(index, *tag, &flight, of.and_then(|((_, number), id)| Some((number?, id))));
        }
    }

    /// Restores a notice in flight; it is sent again.
    fn import_notice(&mut self, now: Time, index: u32, tag: u16, (cursor, gap): (u32, Gap)) {
        let of_cursor = self.cursors.get(cursor);
        let qos = Qos::AtLeastOnce.min(of_cursor.qos);
        let slot = Slot {
            id: EventId { pubend: NO_PUBEND, tick: Tick(0) },
            event: Some(notice_of(&gap, now)),
            identifier: of_cursor.marks.identifier,
            group: NO_GROUP,
            origin: 0,
            qos,
            stage: Stage::Expect,
            retain: false,
            naming: Naming::beside(of_cursor.marks.named),
            cursor,
            sent: true,
            repeated: true,
            rank: 0,
        };
        self.sessions.get_mut(index).inflight.restore(tag, slot);
        // The position was first written without the notice.
        if self.cursors.durable(cursor).is_some() && self.remembers(index) {
            self.write_position(cursor);
        }
    }

    fn remember_flight(&mut self, index: u32, tag: u16, flight: &CarriedFlight, of: Option<(DurableNo, EventId)>) {
        if flight.qos != Qos::ExactlyOnce || !self.remembers(index) {
            return;
        }
        let session = self.sessions.get(index).memory.number;
        let written = match of {
            None => Flight::Unkept,
            Some((number, EventId { pubend, tick })) => {
                let own = self.streams.own_reliable(pubend);
                let whose = own.map_or(FlightStream::Other(pubend), |_| FlightStream::Own(pubend.index()));
                if flight.is_received {
                    Flight::Received { number, whose, tick }
                } else {
                    Flight::Sent { number, whose, tick }
                }
            }
        };
        self.store.write_queue.put(|key| Key::InFlight(session, tag).put(key), |value| written.put_versioned(value));
        self.store.write_queue.seal_large();
    }

    /// Imports the state of tags: publishes that the client has not released, and the last tag
    /// used.
    pub(super) fn import_tags(&mut self, index: u32, moving: &Moving) {
        let is_written = self.remembers(index);
        let session = self.sessions.get_mut(index);
        let number = session.memory.number;
        for tag in &moving.unreleased {
            session.memory.pending.unreleased.insert(*tag, Unreleased { batch: BatchNo(0), is_written });
            if is_written {
                self.store
                    .write_queue
                    .put(|key| Key::Unreleased(number, *tag).put(key), |value| (&[][..]).put_versioned(value));
                self.store.write_queue.seal_large();
            }
        }
        session.inflight.resume_after(moving.last_tag);
    }
}
