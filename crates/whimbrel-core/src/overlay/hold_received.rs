//! Retention holds received from other brokers: the ticks after which their logs count for this
//! broker's durable subscriptions, and reports of the positions of these.
//!
//! A durable subscription counts on another broker's log after the ticks that the broker granted
//! for a version of the interest with that subscription. They are written with its position before
//! its SUBSCRIBE is answered. The least position of all subscriptions is reported each second while
//! it changes.

use core::time::Duration;
use std::collections::BTreeMap;

use whimbrel_event::{HOST_RELIABLE_MAX, HostId, KIND_PUBENDS_MAX, PubendId, Tick, Time};
use whimbrel_net::topology::Topology;
use whimbrel_wire::{BrokerMessage, GrantedStream, HeldStream, HoldGrant, HoldReport};

use super::Sender;
use super::{Due, Overlay};
use crate::api::Output;
use crate::broker::Broker;
use crate::cursor::NOTHING;
use crate::store::DurableNo;

/// Least time between two reports.
pub const REPORT_EVERY: Duration = Duration::from_secs(1);

/// Longest time between two reports, also if nothing has changed.
pub const REPORT_AT_LEAST: Duration = Duration::from_secs(10);

/// The age up to which a grant is recent: each report is answered with one.
const HEARD_LATELY: Duration = Duration::from_secs(30);

/// The longest time that the first question for a part of a log waits for a recent grant.
const GRANT_GRACE: Duration = Duration::from_millis(250);

/// The pause before a report while more subscriptions have moved than are counted in one turn.
const COUNT_PAUSE: Duration = Duration::from_millis(10);

/// The hold that one other broker has granted to this one.
#[derive(Debug, Default)]
struct HoldReceived {
    /// The latest version of the own interest whose durable part is granted; [`u64::MAX`]: that
    /// broker has no log, and grants nothing.
    version: u64,
    streams: Vec<GrantedStream>,
    /// The content of the last report to it, and its time.
    told: Option<(u64, Vec<HeldStream>, Vec<HostId>)>,
    told_at: Time,
    /// When its last grant arrived.
    heard_at: Time,
    /// Since when questions for its log wait for a grant.
    awaited: Option<Time>,
    /// The number of the last report, and when that was last found to be true still.
    told_seq: u64,
    true_at: Time,
    /// The number of the last report that is durable there.
    acknowledged: u64,
}

/// A durable subscription that does not count on every log yet.
#[derive(Clone, Copy, Debug)]
struct UncoveredSubscription {
    number: DurableNo,
    /// The version of the own interest that has it; `None`: the next one.
    version: Option<u64>,
    /// A broker on whose log it did not count when all were last checked.
    lacking: Option<HostId>,
}

impl UncoveredSubscription {
    fn new(number: DurableNo, version: Option<u64>) -> UncoveredSubscription {
        UncoveredSubscription { number, version, lacking: None }
    }
}

/// The holds that other brokers have granted to this one.
#[derive(Debug, Default)]
pub(crate) struct HoldsReceived {
    of: BTreeMap<HostId, HoldReceived>,
    /// The number of the last report.
    seq: u64,
    /// Durable subscriptions, by their cursors, that do not count on every log yet.
    uncovered: BTreeMap<u32, UncoveredSubscription>,
    is_timed: bool,
}

/// The reliable streams of a broker that it is told of: those that it knows.
pub(super) fn reliable_known_to(topology: &Topology, host: HostId) -> impl Iterator<Item = PubendId> + use<> {
    let known = if topology.knows_deadlines(host) { HOST_RELIABLE_MAX } else { KIND_PUBENDS_MAX };
    host.all_reliable().take(usize::from(known))
}

impl HoldsReceived {
    /// Whether another broker has granted the durable part of this version of the own interest, or
    /// has no log.
    pub(crate) fn is_granted(&self, host: HostId, version: u64) -> bool {
        self.of.get(&host).is_some_and(|hold| hold.version >= version)
    }

    /// Whether another broker durably holds its log for all subscriptions that were here at a
    /// moment, or has no log.
    pub(super) fn is_held(&self, host: HostId, since: Time) -> bool {
        self.of.get(&host).is_some_and(|hold| {
            hold.version == u64::MAX || hold.true_at >= since && hold.told_seq > 0 && hold.acknowledged >= hold.told_seq
        })
    }

    /// The tick after which the log of a stream is held for the durable subscriptions here, if its
    /// broker has granted that recently. A hold is forfeited only after a longer silence.
    pub(super) fn held_from(&self, now: Time, pubend: PubendId, max_session: Duration) -> Option<Tick> {
        let lately = HEARD_LATELY.min(max_session / 2);
        let is_heard = |hold: &&HoldReceived| hold.heard_at <= now && now.since(hold.heard_at) < lately;
        let hold = self.of.get(&pubend.host()).filter(is_heard)?;
        hold.streams.get(usize::from(pubend.reliable_place()?)).map(|stream| stream.forfeited)
    }

    /// The number of streams of a broker that its last grant was for.
    fn granted_streams(&self, host: HostId) -> usize {
        self.of.get(&host).map_or(0, |hold| hold.streams.len())
    }

    /// Whether another broker is known to have no log.
    pub(crate) fn has_no_log(&self, host: HostId) -> bool {
        self.of.get(&host).is_some_and(|hold| hold.version == u64::MAX)
    }

    /// Adds a durable subscription; the next version of the own interest has it.
    fn await_one(&mut self, cursor: u32, number: DurableNo) {
        self.uncovered.insert(cursor, UncoveredSubscription::new(number, None));
    }

    /// Removes a subscription that has ended.
    pub(crate) fn forget(&mut self, cursor: u32) {
        self.uncovered.remove(&cursor);
    }

    /// Assigns this version to the subscriptions without one: it has all of them.
    pub(crate) fn name(&mut self, version: u64) {
        self.uncovered.values_mut().for_each(|uncovered| uncovered.version = uncovered.version.or(Some(version)));
    }
}

impl Overlay {
    fn forget_uncovered(&mut self, cursor: u32) {
        self.logs.received.forget(cursor);
    }
}

impl Broker {
    /// Lets a new durable subscription count on the logs of other brokers when they have granted
    /// that.
    pub(crate) fn await_grants(&mut self, cursor: u32) {
        let Some(number) = self.cursors.durable(cursor).map(|durable| durable.number) else { return };
        if self.router.is_watched() {
            self.overlay.logs.received.await_one(cursor, number);
        }
    }

    /// Lets durable subscriptions count on the log of a new broker when it has granted that. The
    /// present version of the interest has all of them.
    pub(super) fn await_grant_of(&mut self, now: Time, host: HostId) {
        let overlay = &mut self.overlay;
        let version = overlay.net.own_interest().version();
        for cursor in self.cursors.ids() {
            let Some(durable) = self.cursors.durable(cursor) else { continue };
            if !durable.remote.is_counted(host) {
                let uncovered = UncoveredSubscription::new(durable.number, Some(version));
                overlay.logs.received.uncovered.entry(cursor).or_insert(uncovered);
            }
        }
        overlay.report_soon(now);
    }

    /// Handles a grant of another broker.
    pub(super) fn on_hold_grant(&mut self, now: Time, from: Sender, grant: HoldGrant, out: &mut dyn Output) {
        let overlay = &mut self.overlay;
        if overlay.net.topology().get(from.host).is_none() {
            // Its link state will come, and then it gets a report.
            return;
        }
        let own = overlay.net.incarnation();
        let hold = overlay.logs.received.of.entry(from.host).or_default();
        if grant.incarnation == own {
            hold.acknowledged = hold.acknowledged.max(grant.seq);
        }
        hold.heard_at = now;
        let is_awaited = hold.awaited.take().is_some();
        let version = if grant.has_log { grant.version } else { u64::MAX };
        let is_late = version < hold.version && hold.version != u64::MAX;
        let granted_before = hold.streams.len();
        if !is_late {
            (hold.version, hold.streams) = (version, grant.streams);
        }
        let further = granted_before..hold.streams.len();
        let is_unheard = hold.told.is_none() && version != u64::MAX;
        if is_awaited {
            overlay.read_now(now, from.host);
        }
        if is_unheard {
            // It keeps its log until a report tells the need, also if there is none by now.
            overlay.report_at(now + REPORT_EVERY);
        }
        if is_late {
            return;
        }
        if !grant.has_log {
            self.resume_without_log(from.host);
        }
        if granted_before > 0 && !further.is_empty() {
            self.count_on_further(from.host, further);
        }
        self.count_on(from.host);
        self.overlay.record_told(&self.streams, from.host);
        self.confirm_ready(now, out);
    }

    /// Applies the last grants to subscriptions that have got a version meanwhile: the brokers need
    /// not be asked again.
    pub(crate) fn count_on_all(&mut self) {
        let overlay = &mut self.overlay;
        let hosts: Vec<HostId> = overlay.logs.received.of.keys().copied().collect();
        if !overlay.logs.received.uncovered.is_empty() {
            hosts.into_iter().for_each(|host| self.count_on(host));
        }
    }

    /// Lets durable subscriptions count on a broker's log, as far as it has granted a version with
    /// them, and writes that.
    fn count_on(&mut self, host: HostId) {
        let HoldsReceived { of, uncovered, .. } = &mut self.overlay.logs.received;
        let Some(hold) = of.get(&host) else { return };
        let is_granted = |version: &Option<u64>| version.is_some_and(|version| version <= hold.version);
        let granted: Vec<(u32, DurableNo)> = uncovered
            .iter()
            .filter(|(_, uncovered)| is_granted(&uncovered.version))
            .map(|(cursor, uncovered)| (*cursor, uncovered.number))
            .collect();
        let streams = hold.streams.clone();
        let told = hold.told.as_ref().map_or(Vec::new(), |(_, held, _)| held.clone());
        for (cursor, number) in granted {
            let is_it = |core: &Broker| core.cursors.durable(cursor).is_some_and(|durable| durable.number == number);
            if !is_it(self) {
                self.overlay.forget_uncovered(cursor);
                continue;
            }
            for (own, stream) in (0..).zip(&streams) {
                let reported = told.get(usize::from(own)).and_then(|held| held.needed).unwrap_or_default();
                let since = stream.since.max(stream.given_up).max(reported);
                self.count_on_stream(cursor, host.reliable(own), since);
                self.count_selector_from(cursor, host.reliable(own), stream.since);
            }
            self.write_position(cursor);
            if self.counts_on_all(cursor) {
                self.overlay.forget_uncovered(cursor);
            }
        }
    }

    /// Lets durable subscriptions that count on a broker's log count on further streams of it,
    /// which its last grant is the first to name: it or this broker did not know them before.
    fn count_on_further(&mut self, host: HostId, places: core::ops::Range<usize>) {
        let Some(hold) = self.overlay.logs.received.of.get(&host) else { return };
        let streams: Vec<(usize, GrantedStream)> = places.map(|place| (place, hold.streams[place])).collect();
        for cursor in self.cursors.ids() {
            if self.cursors.durable(cursor).is_none_or(|durable| !durable.remote.is_counted(host)) {
                continue;
            }
            for (place, stream) in &streams {
                self.count_on_stream(cursor, host.reliable(*place as u8), stream.since.max(stream.given_up));
            }
            self.write_position(cursor);
        }
    }

    /// Lets a durable subscription count on the log of a stream after this tick, unless it does so
    /// already.
    fn count_on_stream(&mut self, cursor: u32, pubend: PubendId, since: Tick) {
        let Some(passed) = self.streams.followed(pubend) else { return };
        if self.cursors.durable(cursor).is_none_or(|durable| durable.remote.since.has(pubend)) {
            return self.count_on_unsure(cursor, pubend, since);
        }
        let had = passed.max(self.cursors.get(cursor).ahead.get(pubend));
        let is_open = self.has_unanswered(cursor, pubend);
        let Some(durable) = self.cursors.durable_mut(cursor) else { return };
        durable.remote.since.set(pubend, since);
        // Its events that were delivered and not acknowledged were not recorded.
        durable.remote.newest.set(pubend, passed);
        durable.remote.written.count(pubend, since, had);
        if is_open {
            // The position as written now is before that tick, and must pass it once those are
            // acknowledged.
            durable.remote.written.mark(pubend, had);
            self.keep_flights(cursor, pubend);
        }
        self.cursors.touch(cursor);
        self.record_counted(self.cursors.get(cursor).session);
    }

    /// Sets the tick after which a log counts for a durable subscription that reads it already, as
    /// the log might have had something for it.
    fn count_on_unsure(&mut self, cursor: u32, pubend: PubendId, since: Tick) {
        let Some(durable) = self.cursors.durable_mut(cursor) else { return };
        if durable.remote.unsure.get(pubend) == NOTHING {
            durable.remote.unsure.set(pubend, since);
            durable.remote.written.count(pubend, since, Tick(0));
            self.cursors.touch(cursor);
            self.record_counted(self.cursors.get(cursor).session);
        }
    }

    /// Puts the present selector of a durable subscription in force in a stream after this tick, if
    /// everything before it has passed here.
    fn count_selector_from(&mut self, cursor: u32, pubend: PubendId, since: Tick) {
        if self.streams.passed(pubend) < since {
            return;
        }
        let Some(durable) = self.cursors.durable_mut(cursor).filter(|durable| durable.awaits_selector(pubend)) else {
            return;
        };
        for old in durable.rare.old.iter_mut().filter(|old| !old.remote.has(pubend)) {
            old.remote.set(pubend, since);
        }
        // The written position must not be before that tick once the former selector is forgotten.
        durable.remote.written.mark(pubend, since);
        let subscription = self.cursors.get(cursor).subscription;
        let (index, text) = (self.cursors.get(cursor).session, self.router.get(subscription).text.clone());
        self.remember_subscription(index, &text);
        // Events set aside since the request are read there, under both selectors.
        if !self.read_remote_instead(cursor, pubend, (since, since)) {
            self.rejoin(cursor, pubend);
        }
    }

    /// Whether a durable subscription counts on the logs of all known brokers with a log.
    fn counts_on_all(&mut self, cursor: u32) -> bool {
        let Broker { overlay, cursors, streams, .. } = self;
        let Some(durable) = cursors.durable(cursor).filter(|_| overlay.is_open()) else { return true };
        let awaits = |pubend: PubendId| durable.awaits_selector(pubend);
        let granted = |host: HostId| overlay.logs.received.granted_streams(host);
        let counts_there = |host: HostId| {
            durable.remote.is_counted(host) && !streams.reliable_of(host).take(granted(host)).any(awaits)
        };
        let lacks = |host: &HostId| {
            *host != overlay.net.host() && !overlay.logs.received.has_no_log(*host) && !counts_there(*host)
        };
        let topology = &overlay.net.topology();
        // Each broker grants by itself: as long as the one in `lacking` has not, the others need
        // not be checked.
        let known = overlay.logs.received.uncovered.get(&cursor).and_then(|uncovered| uncovered.lacking);
        let known = known.filter(|host| topology.get(*host).is_some() && lacks(host));
        let lacking = known.or_else(|| topology.hosts().find(lacks));
        if let Some(uncovered) = overlay.logs.received.uncovered.get_mut(&cursor) {
            uncovered.lacking = lacking;
        }
        lacking.is_none()
    }

    /// Reports the least positions of the durable subscriptions here to the other brokers.
    pub(super) fn report_holds(&mut self, now: Time, out: &mut dyn Output) {
        self.count_on_all();
        self.count_all_holds(now);
        let is_counted = !self.cursors.has_dirty();
        let overlay = &mut self.overlay;
        overlay.logs.received.is_timed = false;
        if !is_counted {
            return overlay.report_at(now + COUNT_PAUSE);
        }
        let max_retain = self.sessions.limits.max_retain;
        if max_retain.is_some_and(|max| self.store.release.remote.is_assurance_due(now, max)) {
            self.begin_round();
        }
        let overlay = &mut self.overlay;
        let is_needed = overlay.net.own_interest().has_durable();
        let others: Vec<HostId> = overlay.net.topology().hosts().filter(|host| *host != overlay.net.host()).collect();
        let mut is_granted_any = false;
        for host in others {
            let hold = self.overlay.logs.received.of.get(&host);
            is_granted_any |= hold.is_some_and(|hold| hold.told.is_some());
            let is_granted_nothing = |hold: &HoldReceived| hold.told.is_none() && matches!(hold.version, 0 | u64::MAX);
            if !is_needed && hold.is_none_or(is_granted_nothing) {
                continue;
            }
            self.report_to(now, host, is_needed, out);
        }
        if is_needed || is_granted_any {
            self.overlay.report_at(now + REPORT_EVERY);
        }
    }

    /// The tick after which the log of a stream is held for the durable subscriptions here, if that
    /// was granted recently.
    pub(super) fn held_from(&self, now: Time, pubend: PubendId) -> Option<Tick> {
        let max_session = self.sessions.limits.session_expiry_max;
        self.overlay.logs.received.held_from(now, pubend, max_session)
    }

    /// Whether questions for a part of another broker's log must wait, as there is no recent grant.
    /// If so, sends a report once to get one.
    pub(super) fn awaits_grant(&mut self, now: Time, pubend: PubendId, out: &mut dyn Output) -> bool {
        let host = pubend.host();
        if self.held_from(now, pubend).is_some() {
            return false;
        }
        if !self.overlay.is_open() {
            return false;
        }
        let overlay = &mut self.overlay;
        let received = &mut overlay.logs.received;
        let hold = received.of.entry(host).or_default();
        let begins = hold.awaited.is_none();
        let since = *hold.awaited.get_or_insert(now);
        if hold.version == u64::MAX || now.since(since) >= GRANT_GRACE {
            return false;
        }
        overlay.logs.reading.insert(pubend);
        overlay.set_timer(since + GRANT_GRACE, Due::Read(pubend));
        self.count_all_holds(now);
        if begins && !self.cursors.has_dirty() {
            self.report_to(now, host, true, out);
        }
        true
    }

    /// The need of the durable subscriptions here in one stream.
    fn held(&self, pubend: PubendId, is_needed: bool) -> HeldStream {
        let passed = self.streams.followed(pubend).unwrap_or_default();
        let (all, connected) = self.store.release.remote.first(pubend);
        if !is_needed && all.is_none() {
            return HeldStream { needed: None, connected: None };
        }
        let needed = all.map_or(passed, |all| all.min(passed));
        let assured = if self.sessions.limits.max_retain.is_some() {
            connected.map_or(passed, |connected| connected.min(passed)).min(self.store.release.remote.assured(pubend))
        } else {
            needed
        };
        HeldStream { needed: Some(needed), connected: Some(assured.max(needed)) }
    }

    /// Reports to a broker how much of its log is needed here; `is_needed`: whether any of it may
    /// be.
    fn report_to(&mut self, now: Time, host: HostId, is_needed: bool, out: &mut dyn Output) {
        let known = reliable_known_to(self.overlay.net.topology(), host);
        let streams: Vec<HeldStream> = known.map(|pubend| self.held(pubend, is_needed)).collect();
        let replicas = self.replicas();
        let overlay = &mut self.overlay;
        let received = &mut overlay.logs.received;
        let hold = received.of.entry(host).or_default();
        let version = if hold.version == u64::MAX { 0 } else { hold.version };
        let said = (version, streams, replicas);
        let lacks = version < overlay.net.own_interest().version() && hold.version != u64::MAX;
        if !lacks && hold.told.as_ref() == Some(&said) && now.since(hold.told_at) < REPORT_AT_LEAST {
            hold.true_at = now;
            return;
        }
        received.seq += 1;
        let (version, streams, replicas) = said.clone();
        let seq = received.seq;
        let holds = HoldReport { seq, version, streams, replicas };
        if self.send_to(now, host, (&BrokerMessage::HoldReport(holds), false), out)
            && let Some(hold) = self.overlay.logs.received.of.get_mut(&host)
        {
            (hold.told, hold.told_at, hold.told_seq, hold.true_at) = (Some(said), now, seq, now);
        }
    }
}

impl Overlay {
    /// Starts regular reports if there is a durable interest.
    pub(super) fn report_soon(&mut self, now: Time) {
        if self.net.own_interest().has_durable() {
            self.report_at(now + REPORT_EVERY);
        }
    }

    /// Ends the wait of questions for the log of a broker.
    fn read_now(&mut self, now: Time, host: HostId) {
        for pubend in host.all_reliable() {
            if self.logs.reading.contains(&pubend) {
                self.set_timer(now, Due::Read(pubend));
            }
        }
    }

    fn report_at(&mut self, at: Time) {
        if !core::mem::replace(&mut self.logs.received.is_timed, true) {
            self.set_timer(at, Due::Report);
        }
    }
}
