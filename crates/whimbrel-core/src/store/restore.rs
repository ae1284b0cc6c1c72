//! A broker is restored from what was written.

use core::fmt;
use std::collections::{BTreeMap, BTreeSet};

use whimbrel_event::{Event, HostId, Packed, Tick, Time};
use whimbrel_selector::{Selector, TopicFilter};

use super::copied::LostParts;
use super::keys::{DurableNo, Key, LastWill, Own, SessionNo, SessionRecord};
use super::own_ticks::{OWN, OwnTicks};
use super::placed::{AttachmentRecord, KnownBrokerRecord};
use super::position::{AllPositions, PositionBase};
use super::publishers::Numbered;
use super::wire::MapValue;
use super::written::{self, PositionPart};
use super::{
    Disk, EndedHostRecord, Flight, HeldInterestRecord, HoldRecord, Lost, Numbers, ProfileRecord, RestoredHolds,
};
use crate::api::{Filter, Limits, Reason, Will};
use crate::broker::Broker;
use crate::cursor::{FormerInterest, Gap, GapReason};
use crate::fault::Faults;
use crate::overlay::Attachment;
use crate::route::NO_CURSOR;
use crate::session::Unreleased;
use crate::stream::Streams;
use crate::subscription::{LoggedFrom, SubscriptionRecord, remembered};
use crate::topic::Profile;

/// The state of one stream of events in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StreamState {
    /// The tick of its last record, also if that was given up.
    pub last: Tick,
    /// The last tick that was given up.
    pub chopped: Tick,
}

/// The state of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LogState {
    /// The last reserved tick.
    pub reserved: Tick,
    /// The streams of events, by the places of their pubends among the reliable ones.
    pub events: [StreamState; OWN],
}

/// Why a broker cannot be restored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RestoreError {
    /// An entry has a name or a form that this version does not know: a newer one has written it.
    Unknown {
        /// The name of the entry.
        key: Box<[u8]>,
    },
    /// There are entries, but none that says which broker has written them.
    NoOwner,
}

impl fmt::Display for RestoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RestoreError::Unknown { key } => {
                write!(f, "the entry \"{}\" has a form that this version does not know", key.escape_ascii())
            }
            RestoreError::NoOwner => f.write_str("there are entries, but none that says which broker has written them"),
        }
    }
}

impl core::error::Error for RestoreError {}

/// Collects the entries that were written, and builds a broker from them.
#[derive(Debug, Default)]
pub struct Restoring {
    own: Option<Own>,
    sessions: BTreeMap<SessionNo, (Box<str>, SessionRecord)>,
    /// Session, filter and record; each record was parsed once, and is valid.
    subscriptions: Vec<(SessionNo, Box<str>, Box<[u8]>)>,
    positions: AllPositions,
    flights: BTreeMap<SessionNo, BTreeMap<u16, Flight>>,
    unreleased: BTreeSet<(SessionNo, u16)>,
    wills: BTreeMap<SessionNo, (Box<str>, Will)>,
    retained: Vec<Event>,
    numbers: Vec<(Box<str>, Numbered)>,
    placed: BTreeMap<SessionNo, AttachmentRecord>,
    unnamed: BTreeMap<DurableNo, OwnTicks>,
    known: BTreeMap<HostId, KnownBrokerRecord<Box<str>>>,
    early: OwnTicks,
    filtered: Option<OwnTicks>,
    lost: Lost,
    holds_given: RestoredHolds,
    is_copy: bool,
    profiles: Vec<Profile>,
    /// Filter and record of profiles that were made; each record was parsed once, and is valid.
    made: Vec<(Box<str>, Box<[u8]>)>,
    pub(crate) faults: Faults,
}

impl Restoring {
    /// Sets which topics are logged, and were: subscriptions are told of events that were not.
    pub fn set_profiles(&mut self, profiles: Vec<Profile>) {
        self.profiles = profiles;
    }

    /// The data is a copy that was made some time ago: all that was written since is lost, and
    /// clients may know of it.
    pub fn mark_as_copy(&mut self) {
        self.is_copy = true;
    }

    /// Takes one entry of the map, in any order.
    ///
    /// # Errors
    /// When the entry's key or form is not known to this version.
    pub fn entry(&mut self, key: &[u8], value: &[u8]) -> Result<(), RestoreError> {
        self.read(key, value).ok_or_else(|| RestoreError::Unknown { key: key.into() })
    }

    fn read(&mut self, key: &[u8], value: &[u8]) -> Option<()> {
        match Key::read(key)? {
            Key::Own => self.own = Some(Own::read_versioned(value)?),
            Key::Session(client_id) => {
                let kept = SessionRecord::read_versioned(value)?;
                self.sessions.insert(kept.number, (client_id.into(), kept));
            }
            Key::Subscription(session, text) => {
                let record = SubscriptionRecord::read_versioned(value, text)?;
                let selectors = record.old.iter().map(|old| old.selector).chain([record.selector]);
                if selectors.flatten().any(|text| Selector::parse_canonical(text).is_err()) {
                    return None;
                }
                self.subscriptions.push((session, text.into(), value.into()));
            }
            Key::Position(number) => self.positions.add_head(number, value)?,
            Key::Part(number, host) => {
                self.positions.parts.insert((number, host), PositionPart::read_versioned(value)?);
            }
            Key::PositionBase(number) => {
                drop(self.positions.bases.insert(number, PositionBase::read_versioned(value)?))
            }
            Key::InFlight(session, tag) => {
                self.flights.entry(session).or_default().insert(tag, Flight::read_versioned(value)?);
            }
            Key::Unreleased(session, tag) => {
                <&[u8]>::read_versioned(value)?;
                self.unreleased.insert((session, tag));
            }
            Key::Will(session) => {
                let LastWill { client_id, delay, lifetime, retain, event } = LastWill::read_versioned(value)?;
                let event = Event::copied(Packed::read(event)?);
                self.wills.insert(session, (client_id.into(), Will { event, retain, delay, lifetime }));
            }
            Key::Retained(_) => self.retained.push(Event::copied(Packed::read(<&[u8]>::read_versioned(value)?)?)),
            Key::Number(client_id) => self.numbers.push((client_id.into(), Numbered::read_versioned(value)?)),
            Key::Placed(session) => {
                self.placed.insert(session, AttachmentRecord::read_versioned(value)?);
            }
            Key::Unnamed(number) => {
                self.unnamed.insert(number, OwnTicks::read_versioned(value)?);
            }
            Key::Known(host) => {
                let KnownBrokerRecord { name, pubends, birth, incarnation } = KnownBrokerRecord::read_versioned(value)?;
                self.known.insert(host, KnownBrokerRecord { name: name.into(), pubends, birth, incarnation });
            }
            Key::Profile(filter) => {
                ProfileRecord::read_versioned(value).filter(|_| TopicFilter::new(filter).is_ok())?;
                self.made.push((filter.into(), value.into()));
            }
            Key::Filtered => self.filtered = Some(OwnTicks::read_versioned(value)?),
            Key::Lost(pubend) => *self.lost.0.get_mut(usize::from(pubend))? = LostParts::read_versioned(value)?,
            Key::HeldInterest(host, number) => {
                let entry = HeldInterestRecord::read_versioned(value)?;
                if TopicFilter::new(entry.filter).is_err() {
                    return None;
                }
                self.holds_given.entries.push((host, number, value.into()));
            }
            Key::Ended(host) => drop(self.holds_given.ended.insert(host, EndedHostRecord::read_versioned(value)?)),
            Key::Hold(host) => self.holds_given.holds.push((host, HoldRecord::read_versioned(value)?)),
            Key::Early(pubend) => *self.early.get_mut(usize::from(pubend))? = Tick::read_versioned(value)?,
        }
        Some(())
    }

    /// The restored broker; its first writes are taken as any other batch. `seed` is its only
    /// source of randomness, `now` its first moment.
    ///
    /// # Errors
    /// When there are entries, but none that says which broker has written them.
    pub fn finish(mut self, limits: Limits, seed: u64, now: Time, log: &LogState) -> Result<Broker, RestoreError> {
        let mut core = Broker::new(limits, seed, now);
        core.store.bases = self.positions.take_bases().map_err(unknown_base)?;
        core.store.disk = Disk::Open;
        for (filter, value) in &self.made {
            let record = ProfileRecord::read_versioned(value).expect("it was read before");
            core.profiles.restore(filter, &record, &mut core.router);
        }
        core.set_profiles(self.profiles);
        core.set_faults(self.faults);
        let after = if self.is_copy { Tick(now.as_nanos()) } else { Tick(0) };
        core.restore_host((self.own.as_ref(), after), now, log);
        if self.own.is_none() && !(self.sessions.is_empty() && self.retained.is_empty() && self.numbers.is_empty()) {
            return Err(RestoreError::NoOwner);
        }
        core.restore_filters(self.filtered);
        core.restore_holds_given(now, self.holds_given);
        (core.store.release.early, core.store.lost) = (self.early, self.lost);
        if self.is_copy {
            core.lose_since_copy(now, &log.events.map(|stream| stream.last.max(stream.chopped)));
        }
        for (client_id, numbered) in &self.numbers {
            core.store.publishers.keep(client_id, *numbered, super::BatchNo(0));
        }
        core.restore_retained(now, self.retained);
        let mut places = BTreeMap::new();
        core.store.known = self.known;
        for (number, (client_id, kept)) in &self.sessions {
            // A client that was connected when the copy was made has left with its broker.
            let left = kept.left.or(self.is_copy.then_some(now));
            let index = core.restore_session(now, client_id, &SessionRecord { left, ..kept.clone() });
            let placed = self.placed.get(number).map(|placed| Box::new(Attachment::restored(now, placed)));
            core.sessions.get_mut(index).memory.roam = placed;
            places.insert(*number, index);
        }
        for (number, (client_id, will)) in self.wills {
            let left = self.sessions.get(&number).and_then(|(_, kept)| kept.left);
            core.restore_will((now, left), &mut places, number, &client_id, will);
        }
        core.restore_unreleased(&self.unreleased, &places);
        let mut numbers = BTreeMap::new();
        for (session, text, value) in core::mem::take(&mut self.subscriptions) {
            let record = SubscriptionRecord::read_versioned(&value, &text).expect("it was read before");
            let Some(index) = places.get(&session) else {
                core.store.write_queue.forget(|key| Key::Subscription(session, &text).put(key));
                core.store.write_queue.seal_large();
                continue;
            };
            let durable_position = record.number.and_then(|number| self.positions.find(number, &core.store.bases));
            if let Some((number, cursor)) = core.restore_subscription(now, *index, &text, &record, durable_position) {
                numbers.insert(number, cursor);
            }
        }
        core.restore_unnamed(&self.unnamed, &numbers, &self.positions);
        core.restore_all_flights(&self.flights, &places, &numbers);
        for (number, (_, kept)) in &self.sessions {
            core.sessions.get_mut(places[number]).inflight.resume_as(kept.last_tag, kept.stale_ids);
        }
        core.forget_orphans(&self.positions, &numbers);
        for (number, _) in self.sessions.iter().filter(|(_, (_, kept))| kept.left.is_none()) {
            core.remember_left(now, places[number], self.is_copy);
        }
        core.store.write_queue.seal();
        core.begin_survey(numbers.into_iter());
        places.values().for_each(|index| core.sessions.rest(*index));
        places.values().for_each(|index| core.restore_own(*index));
        // The ends of sessions and subscriptions above are a batch of their own.
        core.store.write_queue.seal();
        Ok(core)
    }
}

impl Broker {
    /// Restores deliveries in flight; they are sent again. Those without a session are forgotten.
    fn restore_all_flights(
        &mut self,
        all: &BTreeMap<SessionNo, BTreeMap<u16, Flight>>,
        places: &BTreeMap<SessionNo, u32>,
        numbers: &BTreeMap<DurableNo, u32>,
    ) {
        for (session, flights) in all {
            match places.get(session) {
                Some(index) => self.restore_flights(*index, flights, numbers),
                None => {
                    for tag in flights.keys() {
                        self.store.write_queue.forget(|key| Key::InFlight(*session, *tag).put(key));
                    }
                }
            }
        }
    }

    /// Own streams continue behind all ticks that may have been used, and behind `after`.
    fn restore_host(&mut self, (own, after): (Option<&Own>, Tick), now: Time, log: &LogState) {
        let chopped = log.events.map(|stream| stream.chopped);
        let last = log.events.map(|stream| stream.last);
        (self.store.release.chopped, self.store.release.logged) = (chopped, last);
        match own {
            Some(own) => {
                let used = |index: usize| {
                    let place = own.host.pubend(index as u8).reliable_place();
                    let of_stream = place.map_or(Tick(0), |place| {
                        let stream = log.events[usize::from(place)];
                        stream.last.max(stream.chopped)
                    });
                    if fault!(self, TickReused) {
                        return of_stream;
                    }
                    of_stream.max(log.reserved).max(after)
                };
                self.resume_host(own.host, own.birth, core::array::from_fn::<_, { Streams::COUNT }, _>(used));
                self.store.numbers = Numbers::restored(*own);
                self.store.publishers.record_restart(now);
            }
            None => {
                let host: HostId = self.streams.own.host();
                let birth = Tick(now.as_nanos().saturating_sub(1));
                let own = Own { host, birth, next_session: SessionNo(0), next_durable: DurableNo(0) };
                self.store.numbers = Numbers::restored(own);
                self.store.numbers.write(&mut self.store.write_queue);
                self.store.write_queue.seal();
            }
        }
        self.streams.own.reserve(log.reserved);
        self.store.reserving = log.reserved;
    }

    /// Sets since when logged events have filter records: since the broker first wrote some.
    fn restore_filters(&mut self, since: Option<OwnTicks>) {
        let store = &mut self.store;
        store.filters.since = since.unwrap_or(store.release.logged);
        if since.is_none() {
            let since = store.filters.since;
            store.write_queue.put(|key| Key::Filtered.put(key), |value| since.put_versioned(value));
            store.write_queue.seal();
        }
    }

    fn restore_retained(&mut self, now: Time, retained: Vec<Event>) {
        for event in retained {
            if event.is_expired(now) {
                self.store.lazy_topics.insert(event.topic().into());
            } else {
                self.retained.restore(event);
            }
        }
    }

    fn restore_unreleased(&mut self, unreleased: &BTreeSet<(SessionNo, u16)>, places: &BTreeMap<SessionNo, u32>) {
        for (session, tag) in unreleased {
            match places.get(session).map(|index| &mut self.sessions.get_mut(*index).memory) {
                Some(memory) if !memory.is_of_copy => {
                    let unreleased = Unreleased { batch: super::BatchNo(0), is_written: true };
                    memory.pending.unreleased.insert(*tag, unreleased);
                }
                _ => {
                    self.store.write_queue.forget(|key| Key::Unreleased(*session, *tag).put(key));
                    self.store.write_queue.seal_large();
                }
            }
        }
    }

    fn restore_session(&mut self, now: Time, client_id: &str, kept: &SessionRecord) -> u32 {
        let index = self.sessions.create(client_id);
        let expiry = kept.expiry.min(self.sessions.limits.session_expiry_max);
        // A client that was connected has left with the broker.
        let expires_at = kept.left.unwrap_or(now).after(expiry);
        let is_of_copy = self.store.lost.since().is_some_and(|since| kept.left.is_some_and(|left| left <= since));
        let session = self.sessions.get_mut(index);
        session.memory.is_of_copy = is_of_copy;
        (session.memory.number, session.memory.is_kept, session.expiry) = (kept.number, true, expiry);
        session.memory.principal.clone_from(&kept.principal);
        session.expires_at = Some(expires_at);
        // A shared subscription's own session ends with the last member.
        if session.shares().is_none() {
            self.timers.insert(expires_at, Reason::SessionExpiry, index);
        }
        index
    }

    /// Writes that the client of a session left when the broker died: otherwise its expiry would
    /// begin anew with each restart. A shared subscription's own session ends with the last member.
    fn remember_left(&mut self, now: Time, index: u32, is_copy: bool) {
        let session = self.sessions.get(index);
        if is_copy || session.shares().is_none() {
            let kept = SessionRecord::of(session, Some(now));
            let key = |key: &mut Vec<u8>| Key::Session(&session.client_id).put(key);
            self.store.write_queue.put(key, |value| kept.put_versioned(value));
            self.store.write_queue.seal_large();
        }
    }

    fn restore_will(
        &mut self,
        (now, left): (Time, Option<Time>),
        places: &mut BTreeMap<SessionNo, u32>,
        number: SessionNo,
        client_id: &str,
        will: Will,
    ) {
        let index = *places.entry(number).or_insert_with(|| {
            // The session was to end with its connection. A later session may have the same client
            // id.
            let index = self.sessions.create_unnamed(client_id);
            let session = self.sessions.get_mut(index);
            (session.memory.number, session.expires_at) = (number, Some(now));
            self.timers.insert(now, Reason::SessionExpiry, index);
            index
        });
        let session = self.sessions.get_mut(index);
        let expires_at = session.expires_at.unwrap_or(now);
        let at = left.unwrap_or(now).after(will.delay).min(expires_at).max(now);
        session.will_at = Some(at);
        session.will = Some(Box::new(will));
        self.timers.insert(at, Reason::WillDelay, index);
    }

    /// Adds a subscription as it was written; returns its number and cursor, if it is durable.
    fn restore_subscription(
        &mut self,
        now: Time,
        index: u32,
        text: &str,
        record: &SubscriptionRecord<'_>,
        position: Option<written::RestoredPosition>,
    ) -> Option<(DurableNo, u32)> {
        let selector = record.selector.map(remembered);
        let asked = Filter::again(text, selector.as_ref(), record.spec);
        let began = self.streams.own.positions();
        let logged = record.number.filter(|_| record.spec.is_durable());
        // Until the survey has found its newest event, that may be any logged one.
        let newest = self.store.release.logged;
        let logged = logged.map(|number| LoggedFrom { number, start: record.start, newest, until: None });
        if self.make_subscription(now, index, &asked, logged.as_ref()).is_err() {
            // The limits were lowered since.
            self.sessions.stats.subscriptions_refused += 1;
            return None;
        }
        let cursor = self.router.get(self.router.find(index, text).expect("it has just been made")).cursor;
        if cursor == NO_CURSOR {
            return None;
        }
        let host = self.streams.own.host();
        let chopped = self.store.release.chopped;
        let chopped = if fault!(self, HoldLost) { self.streams.logged().positions() } else { chopped };
        let early = self.store.release.early;
        let fences = self.router.fences().clone();
        let cursor_of = self.cursors.get_mut(cursor);
        let catch_up = cursor_of.catch_up.as_mut().expect("who is not there lags");
        let Some(durable) = cursor_of.durable.as_deref_mut() else {
            for (own, (start, to)) in record.start.iter().zip(began).enumerate() {
                let pubend = host.reliable(own as u8);
                if cursor_of.keeps {
                    catch_up.gaps.add(Gap { pubend, from: *start, to, reason: GapReason::Lost });
                }
                if cursor_of.by_token {
                    // Later acknowledgements of its client are not written.
                    cursor_of.acknowledged.set(pubend, (*start).min(to));
                }
            }
            return None;
        };
        let durable_position = position.as_ref().map(|position| &position.durable);
        let stored = durable_position.map_or(record.start, |durable_position| durable_position.acked);
        let had = core::array::from_fn(|own| stored[own].max(record.start[own]).min(began[own]));
        for own in 0..OWN {
            let pubend = host.reliable(own as u8);
            catch_up.positions.set(pubend, had[own].max(chopped[own]).min(began[own]));
            let to = early[own].min(chopped[own]);
            catch_up.gaps.add(Gap { pubend, from: stored[own], to, reason: GapReason::Released });
            // The subscription held nothing there, but may have wanted events that were not logged.
            let unlogged = if durable.may_be_volatile { chopped[own].min(began[own]) } else { Tick(0) };
            catch_up.gaps.add(Gap { pubend, from: had[own].max(to), to: unlogged, reason: GapReason::Overwritten });
            // A client that stands where it has acknowledged misses nothing, even if unwanted
            // events after that were given up.
            cursor_of.acknowledged.set(pubend, stored[own].min(began[own]));
        }
        if !record.spec.by_token {
            cursor_of.acknowledged = crate::cursor::Positions::default();
        }
        durable.rare.beyond = durable_position.map_or(Vec::new(), |durable_position| durable_position.all_beyond(host));
        durable.rare.old = record.old.iter().map(|old| FormerInterest::new(old, &fences)).collect();
        durable.rest();
        position.into_iter().for_each(|position| self.restore_written(cursor, position));
        self.record_lost_of(cursor, &had);
        self.cursors.touch(cursor);
        record.number.map(|number| (number, cursor))
    }

    /// The streams were logged up to `last`; from there up to now they are lost.
    fn lose_since_copy(&mut self, now: Time, last: &OwnTicks) {
        let to = Tick(now.as_nanos());
        for (own, (parts, last)) in self.store.lost.0.iter_mut().zip(last).enumerate() {
            parts.add(*last, to.max(*last));
            self.store.write_queue.put(|key| Key::Lost(own as u8).put(key), |value| parts.put_versioned(value));
        }
        self.store.write_queue.seal();
        // Later processes must not use these ticks either.
        self.store.reserve_ticks(now, to);
    }
}

/// The error for a position that refers to an unknown base.
fn unknown_base(number: DurableNo) -> RestoreError {
    let mut key = Vec::new();
    Key::Position(number).put(&mut key);
    RestoreError::Unknown { key: key.into() }
}
