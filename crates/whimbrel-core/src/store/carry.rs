//! A session is exported to another broker, or imported from one.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use whimbrel_event::{Event, EventId, Packed, PubendId, Qos, Reliability, Tick, Time};
use whimbrel_selector::{Selector, SharedFilter, TopicName};

use super::Numbered;
use super::among::LowWatermark;
use super::carried::{CarriedFlight, CarriedPosition, CarriedWill, Moving, Structure};
use super::keys::{DurableNo, Key};
use super::own_ticks::{OWN, OwnTicks};
use super::position::AllPositions;
use super::wire::MapValue;
use crate::api::{Durability, Filter, Reason, Will};
use crate::broker::Broker;
use crate::cursor::{FormerInterest, Gap, GapReason, NOTHING, Positions, gap_of};
use crate::overlay::Attachment;
use crate::route::NO_CURSOR;
use crate::session::{Slot, Stage};
use crate::subscription::{CarriedOld, CarriedSubscription, FormerSelector, LoggedFrom, SubscriptionSpec};

/// Where an imported session comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SessionSource {
    /// Its owner gave it away: the state is exact.
    Owner,
    /// A replica's copy: its owner may have had more since.
    Copy,
}

impl Broker {
    /// The event of a session's will, with the label that it would get if it were published now.
    pub(crate) fn labelled_will(&self, index: u32) -> Option<Event> {
        let will = self.sessions.get(index).will.as_deref()?;
        let topic = TopicName::new(will.event.topic()).ok()?;
        let Some(domains) = self.router.profiles().domains_for(topic) else { return Some(will.event.clone()) };
        let mut event = will.event.packed().unpack();
        event.event.headers.domains = domains.label();
        Some(event.keep())
    }

    /// Encodes the part of a session that seldom changes, with this event as its will.
    pub(crate) fn export_structure(&self, index: u32, will: Option<&Event>, out: &mut Vec<u8>) {
        let session = self.sessions.get(index);
        let will = session.will.as_deref().zip(will).map(|(will, event)| CarriedWill {
            delay: will.delay,
            lifetime: will.lifetime,
            retain: will.retain,
            event: event.packed().as_bytes(),
        });
        let subscriptions = session.subscriptions.iter().map(|id| self.carried_subscription(index, *id)).collect();
        Structure { expiry: session.expiry, will, subscriptions }.put(out);
    }

    fn carried_subscription(&self, index: u32, id: u32) -> CarriedSubscription<'_> {
        let known = self.router.get(id);
        let durable = self.cursors.durable(known.cursor);
        let host = self.streams.logged().host();
        let old = durable.map_or(&[][..], |durable| &durable.rare.old).iter().map(|old| {
            let old = old.view();
            let upto = (0..).zip(old.upto).map(|(own, tick)| (host.reliable(own), tick)).chain(old.remote).collect();
            (old.selector, upto)
        });
        CarriedSubscription {
            text: &known.text,
            spec: known.spec,
            reads: self.retained.replays.reads(index, id),
            selector: known.selector.as_deref(),
            old: old.collect(),
        }
    }

    /// Encodes the part of a session that each acknowledgement changes.
    pub(crate) fn export_moving(&self, now: Time, index: u32, out: &mut Vec<u8>) {
        self.moving_of(now, index).put(out);
    }

    /// As [`Broker::export_moving`], for a receiver that knows of these streams alone.
    pub(crate) fn export_moving_among(&self, now: Time, index: u32, streams: &[PubendId], out: &mut Vec<u8>) {
        let cursors: Vec<u32> =
            self.sessions.get(index).subscriptions.iter().map(|id| self.router.get(*id).cursor).collect();
        let of =
            |at: usize| Some(cursors[at]).filter(|cursor| *cursor != NO_CURSOR).map(|cursor| self.cursors.get(cursor));
        let of_all = self.streams.low_watermark();
        let watermark = |at: usize| {
            let cursor = of(at)?;
            let positions = match cursor.catch_up.as_deref() {
                _ if cursor.by_token => cursor.acknowledged.common_tick(),
                catch_up => catch_up.and_then(|catch_up| catch_up.positions.common_tick()).or(Some(of_all)),
            };
            let since = match cursor.durable.as_deref().map(|durable| &durable.remote.since) {
                Some(since) => Some(since.common_tick().or_else(|| since.iter().next().map(|(_, since)| since))?),
                None => None,
            };
            Some(LowWatermark { at: positions?, since })
        };
        let is_silent = |at, pubend, watermark, tick| {
            of(at).is_some_and(|cursor| self.is_silent_between(cursor, pubend, watermark, tick))
        };
        self.moving_of(now, index).put_among(out, streams, watermark, is_silent);
    }

    fn moving_of(&self, now: Time, index: u32) -> Moving {
        let session = self.sessions.get(index);
        let cursors = session.subscriptions.iter().map(|id| self.router.get(*id).cursor);
        let positions = cursors.clone().map(|cursor| self.carried_position(index, cursor)).collect();
        let ordinals: BTreeMap<u32, u32> = cursors.zip(0..).filter(|(cursor, _)| *cursor != NO_CURSOR).collect();
        let flight = |(tag, slot): (u16, &Slot)| CarriedFlight {
            tag,
            qos: slot.qos,
            is_received: matches!(slot.stage, Stage::ExpectCompleted | Stage::Receiving),
            of: ordinals.get(&slot.cursor).map(|ordinal| (*ordinal, slot.id)),
        };
        let open = session.inflight.open().filter(|(_, slot)| slot.qos == Qos::ExactlyOnce || slot.was_sent());
        let flights = open.filter(|(_, slot)| !slot.is_notice());
        // No stream has notices: they would not come again.
        let gap = |(tag, slot): (u16, &Slot)| Some((tag, *ordinals.get(&slot.cursor)?, gap_of(slot.event.as_ref()?)?));
        let gaps = session.inflight.notices().filter_map(gap);
        // Gaps that came with the session and are not told here yet go on with it.
        let known = ordinals.iter().flat_map(|(cursor, ordinal)| {
            let told = self.cursors.get(*cursor).told();
            told.map(move |gap| (0, *ordinal, gap))
        });
        let committed = self.store.commit_queue.committed();
        let unreleased = session.memory.pending.unreleased.iter().filter(|(_, known)| known.batch <= committed);
        let away = session.expires_at.filter(|_| !session.is_attached()).map(|at| {
            // A session whose expiry has passed is about to end.
            session.expiry.saturating_sub(at.since(now))
        });
        let place = session.memory.roam.as_deref();
        let number = self.store.publishers.last(&session.client_id, committed);
        Moving {
            away,
            positions,
            flights: if fault!(self, CarriedWithoutFlights) { Vec::new() } else { flights.map(flight).collect() },
            gaps: gaps.chain(known).collect(),
            unreleased: unreleased.map(|(tag, _)| *tag).collect(),
            last_tag: session.last_tag(),
            stale_ids: session.inflight.stale_count(),
            number: if fault!(self, CarriedWithoutNumber) { None } else { number },
            lasts: place.map(Attachment::lasts).unwrap_or_default(),
            maybe_repeats: place.is_some_and(|place| place.maybe_repeats),
        }
    }

    pub(super) fn carried_position(&self, index: u32, cursor: u32) -> CarriedPosition {
        if cursor == NO_CURSOR || !self.cursors.get(cursor).keeps {
            return CarriedPosition::default();
        }
        let of_cursor = self.cursors.get(cursor);
        let positions =
            if of_cursor.by_token { of_cursor.acknowledged.clone() } else { self.settled_position(index, cursor) };
        let positions = if fault!(self, CarriedAhead) { self.streams.positions().collect() } else { positions };
        let Some(durable) = of_cursor.durable.as_deref() else {
            let streams = positions.iter().map(|(pubend, acked)| (pubend, None, acked));
            return CarriedPosition { streams: streams.collect(), beyond: Vec::new() };
        };
        let position = self.durable_position(cursor);
        let host = self.streams.logged().host();
        // Streams that are not followed here are in the written position all the same.
        let mut all: BTreeMap<PubendId, Tick> =
            position.remote.iter().map(|remote| (remote.pubend, remote.acked)).collect();
        all.extend(positions.iter().filter(|(pubend, _)| position.remote(*pubend).is_none()));
        let acked = |of: PubendId| all.get(&of).copied().unwrap_or_default();
        let since = |pubend: PubendId| match self.streams.own_reliable(pubend) {
            Some(own) => Some(durable.start.get(own)),
            None => durable.remote.counts_from(pubend, acked),
        };
        let streams = all.iter().map(|(pubend, acked)| (*pubend, since(*pubend), *acked)).collect();
        // The importing broker writes a position before gaps whose notices are open:
        // acknowledgements behind them go along.
        let has_open = self.sessions.get(index).inflight.unanswered_gaps(cursor).next().is_some();
        let written = if has_open { &self.written_position(cursor) } else { &position };
        let own = written.beyond.iter().map(|(own, tick)| EventId { pubend: host.pubend(*own), tick: *tick });
        let beyond = own.chain(written.remote_beyond.iter().copied()).collect();
        CarriedPosition { streams, beyond }
    }

    /// Creates a session from its exported parts, without a client. `None`: they cannot be read.
    pub(crate) fn import_session(
        &mut self,
        now: Time,
        client_id: &str,
        (structure, moving): (&[u8], &[u8]),
        (source, principal): (SessionSource, Option<&str>),
    ) -> Option<u32> {
        let (structure, moving) = (Structure::read(structure)?, Moving::read(moving)?);
        let index = self.sessions.create(client_id);
        let expiry = structure.expiry.min(self.sessions.limits.session_expiry_max);
        // Ages, not times: the clocks of two brokers differ.
        let rest = expiry.saturating_sub(moving.away.unwrap_or(Duration::ZERO));
        let expires_at = now.after(rest);
        let session = self.sessions.get_mut(index);
        (session.expiry, session.expires_at, session.memory.principal) =
            (expiry, Some(expires_at), principal.map(Arc::from));
        self.timers.insert(expires_at, Reason::SessionExpiry, index);
        let stale_ids = if source == SessionSource::Copy {
            self.stale_of_copy(index, &structure, &moving)
        } else {
            moving.stale_ids
        };
        if stale_ids > 0 {
            self.sessions.get_mut(index).inflight.mark_stale(stale_ids);
        }
        self.import_will(now, index, structure.will.as_ref());
        let left = Time::from_nanos(expires_at.as_nanos().saturating_sub(expiry.as_nanos() as u64));
        self.remember_session(index, Some(left));
        let mut cursors = Vec::with_capacity(structure.subscriptions.len());
        for (at, subscription) in structure.subscriptions.iter().enumerate() {
            let position = moving.positions.get(at).cloned().unwrap_or_default();
            cursors.push(self.import_subscription(now, index, subscription, &position));
            // A copy does not tell how far a reading is: after a crash it is over.
            if subscription.reads && source == SessionSource::Owner {
                self.begin_to_read(index, subscription.text, None, self.serial);
            }
            self.store.write_queue.seal_large();
        }
        self.retained.replays.leave(index, self.serial);
        self.import_flights(now, index, &moving, &cursors, source);
        self.import_tags(index, &moving);
        if let Some(number) = moving.number {
            self.import_number(now, client_id, number);
        }
        if self.has_log() {
            self.store.write_queue.seal();
        }
        self.sessions.rest(index);
        Some(index)
    }

    /// The number of tags that the client may use for deliveries that its previous owner made after
    /// the copy.
    fn stale_of_copy(&self, index: u32, structure: &Structure<'_>, moving: &Moving) -> u16 {
        if fault!(self, TagsTrusted) {
            return 0;
        }
        let mut levels = structure.subscriptions.iter().map(|subscription| subscription.spec.qos);
        let has_exact = levels.any(|qos| qos == Qos::ExactlyOnce)
            || moving.flights.iter().any(|flight| flight.qos == Qos::ExactlyOnce);
        if has_exact && self.sessions.get(index).shares().is_none() { u16::MAX } else { 0 }
    }

    /// Takes over the number that a publisher gave to its last event at another broker.
    pub(crate) fn import_number(&mut self, now: Time, client_id: &str, number: u64) {
        let (has_log, write_queue) = (self.has_log(), &mut self.store.write_queue);
        if self.store.publishers.has_room(client_id, now) {
            let numbered: Numbered = self.store.publishers.learn(client_id, number, now);
            if has_log {
                write_queue.put(|key| Key::Number(client_id).put(key), |value| numbered.put_versioned(value));
            }
        }
    }

    fn import_will(&mut self, now: Time, index: u32, will: Option<&CarriedWill<'_>>) {
        let Some(CarriedWill { delay, lifetime, retain, event }) = will else { return };
        let Some(event) = Packed::read(event) else { return };
        let session = self.sessions.get_mut(index);
        session.will =
            Some(Box::new(Will { event: Event::copied(event), retain: *retain, delay: *delay, lifetime: *lifetime }));
        let at = now.after(*delay).min(session.expires_at.unwrap_or(now));
        session.will_at = Some(at);
        self.timers.insert(at, Reason::WillDelay, index);
    }

    /// Adds an imported subscription; returns its cursor, and its number if it is durable.
    fn import_subscription(
        &mut self,
        now: Time,
        index: u32,
        carried: &CarriedSubscription<'_>,
        position: &CarriedPosition,
    ) -> Option<(u32, Option<DurableNo>)> {
        let selector = carried.selector.map(Selector::parse_canonical);
        let Some(selector) = selector.transpose().ok() else { return self.refuse_import() };
        let is_shared = SharedFilter::parse(carried.text).is_ok_and(|shared| shared.group.is_some());
        let durability = match carried.spec.durability {
            Durability::Durable if !self.remembers(index) && is_shared => Durability::Queued,
            Durability::Durable if !self.remembers(index) => Durability::SemiDurable,
            other => other,
        };
        let spec = SubscriptionSpec { durability, ..carried.spec };
        let asked = Filter::again(carried.text, selector.as_ref(), spec);
        if self.check_subscription(index, &asked, (0, 0)).is_err() {
            return self.refuse_import();
        }
        let assigned = self.streams.own.assigned();
        let shared = SharedFilter::parse(carried.text).expect("it was just checked");
        let Ok(group) = self.expect_member(index, &asked, &shared) else { return self.refuse_import() };
        let is_durable = durability == Durability::Durable && group.is_none();
        let logged = is_durable.then(|| {
            let number = self.store.numbers.next_durable(&mut self.store.write_queue);
            LoggedFrom { number, start: self.import_start(&position.streams), newest: assigned, until: None }
        });
        let is_made = self.make_subscription(now, index, &asked, logged.as_ref()).is_ok();
        if let Some(group) = group {
            self.expect_no_more(group);
        }
        if !is_made {
            return self.refuse_import();
        }
        let id = self.router.find(index, carried.text).expect("it has just been made");
        let cursor = self.router.get(id).cursor;
        if cursor != NO_CURSOR {
            self.import_position(cursor, position, &carried.old);
        }
        if self.remembers(index) {
            self.remember_subscription(index, carried.text);
            if let Some(logged) = &logged {
                self.write_position(cursor);
                self.store
                    .write_queue
                    .put(|key| Key::Unnamed(logged.number).put(key), |value| assigned.put_versioned(value));
            }
        }
        Some((cursor, logged.map(|logged| logged.number)))
    }

    /// Restores, per imported subscription, up to which ticks filter records do not name it.
    pub(super) fn restore_unnamed(
        &mut self,
        unnamed: &BTreeMap<DurableNo, OwnTicks>,
        cursors: &BTreeMap<DurableNo, u32>,
        positions: &AllPositions,
    ) {
        for (number, upto) in unnamed {
            let cursor = cursors.get(number).copied();
            match cursor.and_then(|cursor| self.cursors.durable_mut(cursor)) {
                Some(durable) => durable.remote.unnamed = *upto,
                None => self.store.write_queue.forget(|key| Key::Unnamed(*number).put(key)),
            }
            if let Some((cursor, position)) = cursor.zip(positions.head(*number)) {
                self.restore_untold(cursor, &position.acked);
            }
            self.store.write_queue.seal_large();
        }
    }

    /// An imported subscription may stand in own streams before its interest was logged here. The
    /// gap in between had perhaps not been told when this broker ended.
    fn restore_untold(&mut self, cursor: u32, acked: &OwnTicks) {
        let host = self.streams.own.host();
        let cursor = self.cursors.get_mut(cursor);
        let Some((durable, catch_up)) = cursor.durable.as_deref().zip(cursor.catch_up.as_deref_mut()) else { return };
        for (own, (from, to)) in (0..).zip(acked.iter().copied().zip(durable.start.all())) {
            catch_up.gaps.add(Gap { pubend: host.reliable(own), from, to, reason: GapReason::Overwritten });
        }
    }

    fn refuse_import<T>(&mut self) -> Option<T> {
        self.sessions.stats.subscriptions_refused += 1;
        None
    }

    /// After which ticks of the own streams its interest is logged: as its previous broker was
    /// told, or from now on.
    fn import_start(&self, streams: &[(PubendId, Option<Tick>, Tick)]) -> OwnTicks {
        let mut start = self.streams.own.assigned();
        for (pubend, since, _) in streams {
            if let (Some(own), Some(since)) = (self.streams.own_reliable(*pubend), since) {
                start[own] = start[own].min(*since);
            }
        }
        start
    }

    /// Marks an imported subscription where it was at its previous broker, and where earlier
    /// selectors count: its written position is not behind that.
    fn mark_imported(&mut self, cursor: u32, position: &CarriedPosition, old: &[CarriedOld<'_>]) {
        let acked = position.streams.iter().map(|(pubend, _, acked)| (*pubend, *acked));
        let beyond = position.beyond.iter().map(|id| (id.pubend, id.tick));
        let upto = old.iter().flat_map(|(_, upto)| upto.iter().copied());
        let cursor = self.cursors.get_mut(cursor);
        acked.chain(beyond).chain(upto).for_each(|(pubend, tick)| cursor.mark(pubend, tick));
    }

    /// Other brokers' logs that are not said to count for an imported subscription may hold events
    /// for it: a copy may be older than their grant. Left out are streams that began only where it
    /// stands: their logs would be read from the beginning.
    fn check_logs(&mut self, cursor: u32, position: &CarriedPosition) {
        let is_older = |pubend: PubendId, acked: Tick| {
            let mut known = self.streams.of_host(pubend.host());
            known.any(|remote| remote.pubend == pubend && remote.birth < acked)
        };
        let may_be_logged = |(pubend, since, acked): &&(PubendId, Option<Tick>, Tick)| {
            let host = pubend.host();
            let is_reliable = pubend.reliability() == Reliability::Reliable;
            let has_log = is_reliable && !self.streams.has_ended(host) && !self.overlay.logs.received.has_no_log(host);
            since.is_none() && has_log && is_older(*pubend, *acked)
        };
        let streams: Vec<_> = position.streams.iter().filter(may_be_logged).copied().collect();
        let Some(durable) = self.cursors.durable_mut(cursor).filter(|_| !streams.is_empty()) else { return };
        for (pubend, _, acked) in streams {
            durable.remote.since.set(pubend, acked);
            durable.remote.unsure.set(pubend, NOTHING);
            durable.remote.newest.set(pubend, NOTHING);
        }
    }

    /// Sets an imported subscription to its carried position.
    fn import_position(&mut self, cursor: u32, position: &CarriedPosition, old: &[CarriedOld<'_>]) {
        let began = self.streams.own.positions();
        let assigned = self.streams.own.assigned();
        let (streams, fences) = (&self.streams, self.router.fences().clone());
        let of_cursor = self.cursors.get_mut(cursor);
        let catch_up = of_cursor.catch_up.as_mut().expect("whose client is not there lags");
        let mut acknowledged = Positions::default();
        for (pubend, since, acked) in &position.streams {
            if streams.has_ended(pubend.host()) {
                // Events that were received here before were for other subscriptions.
                let to = streams.followed(*pubend).or(streams.ended_at(pubend.host())).unwrap_or_default();
                catch_up.gaps.add(Gap { pubend: *pubend, from: *acked, to, reason: GapReason::Lost });
            }
            let own = streams.own_reliable(*pubend);
            let acked = own.map_or(*acked, |own| (*acked).min(began[own]));
            catch_up.positions.set(*pubend, acked);
            acknowledged.set(*pubend, acked);
            if let (Some(durable), Some(since), None) = (of_cursor.durable.as_deref_mut(), since, own) {
                durable.remote.since.set(*pubend, *since);
                durable.remote.newest.set(*pubend, NOTHING);
                durable.remote.written.count(*pubend, *since, Tick(0));
            }
        }
        if of_cursor.by_token {
            of_cursor.acknowledged = acknowledged;
        }
        if let Some(durable) = of_cursor.durable.as_deref_mut() {
            durable.rare.beyond = position.beyond.clone();
            durable.remote.unnamed = assigned;
            for (selector, upto) in
                old.iter().filter(|(text, _)| text.is_none_or(|text| Selector::parse_canonical(text).is_ok()))
            {
                let (mut ticks, mut remote) = ([Tick(0); OWN], Vec::new());
                for (pubend, tick) in upto {
                    match streams.own_reliable(*pubend) {
                        Some(own) => ticks[own] = *tick,
                        None => remote.push((*pubend, *tick)),
                    }
                }
                let former = FormerSelector { selector: *selector, upto: ticks, remote };
                durable.rare.old.push(FormerInterest::new(&former, &fences));
            }
        }
        let mut catch_up = of_cursor.catch_up.take().expect("it lags");
        let began = &mut of_cursor.began;
        began.here = catch_up.positions.iter().map(|(_, tick)| tick).fold(began.here, Tick::max);
        began.is_named = true;
        let keeps = of_cursor.keeps;
        if keeps {
            // Everything was missed in streams that became known since.
            let unnamed = self.streams.births().filter(|(pubend, _)| position.at(*pubend).is_none());
            unnamed
                .for_each(|(pubend, birth)| catch_up.positions.set(pubend, birth.min(catch_up.positions.get(pubend))));
        }
        self.check_logs(cursor, position);
        self.record_lost(Some(cursor), &mut catch_up);
        self.mark_imported(cursor, position, old);
        let is_buffered = !keeps || self.record_unbuffered_of(cursor, &mut catch_up);
        catch_up.next = self.first_after(&catch_up.positions);
        self.cursors.get_mut(cursor).catch_up = Some(catch_up);
        self.share_positions(cursor);
        self.cursors.touch(cursor);
        let is_durable = self.cursors.durable(cursor).is_some();
        if is_durable || !is_buffered {
            self.await_interest_of(self.cursors.get(cursor).subscription, cursor);
        }
        if is_durable {
            self.await_grants(cursor);
        }
    }
}
