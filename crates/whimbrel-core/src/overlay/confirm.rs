//! Answers to SUBSCRIBE: sent when the brokers that can be reached know of the subscriptions, after
//! [`CONFIRM_MAX`] at the latest. The answer then names the brokers that have not confirmed.

use core::cell::LazyCell;
use core::time::Duration;
use std::collections::{BTreeSet, VecDeque};

use whimbrel_event::{HostId, Reliability, Time};

use super::hold_received::HoldsReceived;
use super::joining::ALL_OTHERS;
use super::net::Net;
use super::{Due, Overlay, ending, is_local};
use crate::api::{Durability, Granted, Output, Refusal, Start};
use crate::broker::Broker;
use crate::confirming::PendingSubscription;
use crate::cursor::{Cursors, Gap, GapReason};
use crate::route::Router;
use crate::shared::MemberState;
use crate::store::{BatchNo, Disk, Recipient, Store, Wait};
use crate::stream::Sources;

/// The longest time that a SUBSCRIBE waits for its confirmation.
pub const CONFIRM_MAX: Duration = Duration::from_secs(1);

/// Most waiting SUBSCRIBEs; a further one is answered at once, and names all brokers.
pub const WAITING_MAX: usize = 16_384;

/// Most subscriptions that have returned before their interest is in force; a further one is not
/// told what it misses.
pub(super) const RETURNED_MAX: usize = 1 << 20;

/// Most brokers that are named as not having confirmed; [`ALL_OTHERS`] stands for the rest.
const NAMES_MAX: usize = 64;

/// The version for a SUBSCRIBE that adds nothing to the own interest.
const NO_VERSION: u64 = 0;

/// The subscriptions of a SUBSCRIBE: each with whether it is new, and the options granted.
pub(crate) type Made = Vec<(PendingSubscription, bool, Result<Granted, Refusal>)>;

/// A SUBSCRIBE whose subscriptions exist, and that has not been answered.
#[derive(Debug)]
pub(crate) struct UnansweredSubscribe {
    pub(crate) whom: Recipient,
    pub(crate) tag: u16,
    pub(crate) index: u32,
    pub(crate) made: Made,
    /// The number of the last event that had passed when they were made.
    pub(crate) begun: u64,
}

#[derive(Debug)]
pub(crate) struct Waiter {
    pub(super) what: UnansweredSubscribe,
    /// One of the subscriptions is durable: other brokers' logs must count for it.
    is_durable: bool,
    /// Once all brokers have confirmed: the batch with the positions from which their logs count.
    batch: Option<BatchNo>,
    /// The version of the own interest that has the subscriptions; `None`: the next one.
    version: Option<u64>,
    /// The version of the session that its replica must have.
    pub(super) copied: u64,
    pub(super) due: Time,
}

impl Waiter {
    /// Whether a broker has confirmed `version`, which has the subscriptions.
    fn is_confirmed(&self, streams: &Sources, received: &HoldsReceived, host: HostId, version: u64) -> bool {
        has_confirmed(streams, host, version) && (!self.is_durable || received.is_granted(host, version))
    }
}

/// A subscription that returned, and whose interest is not yet in force everywhere.
#[derive(Debug)]
pub(super) struct Returned {
    pub(super) subscription: u32,
    pub(super) cursor: u32,
    pub(super) version: Option<u64>,
}

/// Requests and subscriptions that wait for other brokers.
#[derive(Debug, Default)]
pub(crate) struct AwaitedBrokers {
    entries: VecDeque<Waiter>,
    /// Requests that wait only for homes of shared subscriptions.
    pub(super) sharing: Vec<Waiter>,
    /// Waiting UNSUBSCRIBEs.
    pub(super) ending: Vec<ending::UnansweredUnsubscribe>,
    pub(super) returned: Vec<Returned>,
    /// A broker has confirmed a later version, or a version was named, since `returned` was last
    /// checked.
    pub(super) is_told_more: bool,
    /// Brokers that did not confirm in time: no request waits for them until they do.
    late: BTreeSet<HostId>,
    /// A broker that the first entry still waited for when all brokers were last checked. The
    /// others need not be checked until it has confirmed: each confirms by itself, and that would
    /// cost the square of their number for each subscription.
    lacking: Option<HostId>,
}

impl AwaitedBrokers {
    /// Whether the positions from which other brokers' logs count for the first entry are durable.
    /// If not, the entry is checked again when they are.
    fn is_first_written(&mut self, store: &mut Store) -> bool {
        let Some(first) = self.entries.front_mut().filter(|first| first.is_durable) else { return true };
        if store.disk == Disk::None || store.disk == Disk::Poisoned {
            return true;
        }
        let is_new = first.batch.is_none();
        let batch = *first.batch.get_or_insert(store.write_queue.last());
        let is_written = batch <= store.commit_queue.committed();
        if is_new && !is_written {
            store.commit_queue.push(batch, Wait::Made);
        }
        is_written
    }

    /// Assigns this version of the own interest to the entries without one: it has their
    /// subscriptions.
    fn name_version(&mut self, version: u64, router: &Router, cursors: &mut Cursors) {
        for entry in self.entries.iter_mut().filter(|entry| entry.version.is_none()) {
            entry.version = Some(version);
            let of = |made: &(PendingSubscription, bool, Result<Granted, Refusal>)| {
                router.cursor_of(entry.what.index, &made.0.filter)
            };
            let named = entry.what.made.iter().filter_map(of);
            named.for_each(|cursor| cursors.get_mut(cursor).began.in_force.name(version));
        }
        for one in self.returned.iter_mut().filter(|one| one.version.is_none()) {
            one.version = Some(version);
            if cursors.is_of(one.cursor, one.subscription) {
                cursors.get_mut(one.cursor).began.in_force.name(version);
            }
        }
    }

    /// Removes a broker that is forgotten.
    pub(super) fn forget_host(&mut self, host: HostId) {
        self.late.remove(&host);
    }

    /// Removes a returned subscription that has ended, or returns once more.
    pub(crate) fn forget(&mut self, cursor: u32) {
        self.returned.retain(|one| one.cursor != cursor);
    }

    /// Removes returned subscriptions that have ended, or wait for no broker any more.
    pub(super) fn forget_settled(&mut self, cursors: &Cursors) {
        let waits = |one: &Returned| !cursors.get(one.cursor).unsettled.is_empty();
        self.returned.retain(|one| cursors.is_of(one.cursor, one.subscription) && waits(one));
    }

    /// New subscriptions of unanswered SUBSCRIBEs, each with the index of its session, as far as no
    /// start position was given.
    pub(crate) fn new_ones(&self) -> impl Iterator<Item = (u32, &str)> {
        let begins = |(asked, new, result): &&(PendingSubscription, bool, Result<Granted, Refusal>)| {
            *new && result.is_ok() && matches!(asked.view().start, Start::Own)
        };
        let all = self.entries.iter().flat_map(|entry| entry.what.made.iter().map(|made| (entry.what.index, made)));
        all.filter(move |(_, made)| begins(made)).map(|(index, made)| (index, &*made.0.filter))
    }
}

/// Whether a broker has confirmed a version in all of its streams, and its reliable ones have
/// passed here up to where the version is in force.
pub(super) fn has_confirmed(streams: &Sources, host: HostId, version: u64) -> bool {
    let mut known = streams.of_host(host).peekable();
    // A broker whose streams are not followed will never confirm.
    known.peek().is_some()
        && known.all(|remote| {
            let is_passed = remote.passed >= remote.since || remote.pubend.reliability() == Reliability::BestEffort;
            remote.told >= version && is_passed
        })
}

impl Broker {
    /// Keeps back the answer to a SUBSCRIBE until other brokers know of the subscriptions.
    ///
    /// # Errors
    /// Returns the SUBSCRIBE if it need not wait.
    pub(crate) fn wait_for_brokers(&mut self, now: Time, what: UnansweredSubscribe) -> Result<(), UnansweredSubscribe> {
        if fault!(self, ConfirmEarly) {
            return Err(what);
        }
        if self.overlay.is_none() {
            return Err(what);
        }
        let copied = self.structure_of(what.index);
        let Some(overlay) = self.overlay.as_deref_mut() else { return Err(what) };
        let groups = &self.groups;
        let is_elsewhere = |text: &str| groups.find(text).is_some_and(|id| !groups.is_home(id));
        let wanted = |(asked, _, result): &(PendingSubscription, bool, Result<Granted, Refusal>)| {
            result.is_ok() && !is_local(&asked.filter) && !is_elsewhere(&asked.filter)
        };
        let is_alone = overlay.net.topology.len() < 2 && !overlay.net.is_young(now) && !overlay.net.lacks_everyone();
        let waits = |(asked, _, result): &(PendingSubscription, bool, Result<Granted, Refusal>)| {
            let known = groups.find(&asked.filter).filter(|_| result.is_ok());
            known.is_some_and(|id| groups.state(id) != MemberState::Served)
        };
        let (wants_any, waits_for_home) = (what.made.iter().any(wanted), what.made.iter().any(waits));
        if !waits_for_home && (is_alone || !wants_any) {
            return Err(what);
        }
        let is_full = overlay.waiting.entries.len() + overlay.waiting.sharing.len() >= WAITING_MAX;
        let due = if is_full { now } else { now + CONFIRM_MAX };
        if !wants_any {
            let waiter = Waiter { what, is_durable: false, batch: None, version: Some(NO_VERSION), copied, due };
            overlay.waiting.sharing.push(waiter);
            overlay.net.set_timer(due, Due::Confirm);
            return Ok(());
        }
        let is_durable = what
            .made
            .iter()
            .filter(|made| wanted(made))
            .any(|(_, _, result)| result.as_ref().is_ok_and(|granted| granted.durability == Durability::Durable));
        overlay.waiting.entries.push_back(Waiter { what, is_durable, batch: None, version: None, copied, due });
        overlay.net.set_timer(due, Due::Confirm);
        // The interest stays as it is if it covers the subscriptions already.
        overlay.net.tell_interest_soon(now);
        Ok(())
    }

    /// Shortens the wait of the last SUBSCRIBE, which arrived at `at` and has waited for the log
    /// since: the time for other brokers' confirmation counts from there.
    pub(crate) fn confirm_since(&mut self, now: Time, (whom, tag): (Recipient, u16), at: Time) {
        let Some(overlay) = self.overlay.as_deref_mut() else { return };
        let last = overlay.waiting.entries.back_mut();
        if let Some(last) = last.filter(|last| last.what.whom == whom && last.what.tag == tag) {
            last.due = (at + CONFIRM_MAX).max(now).min(last.due);
            let due = last.due;
            overlay.net.set_timer(due, Due::Confirm);
        }
    }

    /// Assigns the own interest's new version to all requests that wait for it.
    pub(super) fn name_version(&mut self, now: Time, out: &mut dyn Output) {
        let Broker { overlay, router, cursors, .. } = self;
        let Some(overlay) = overlay.as_deref_mut() else { return };
        let version = overlay.net.own_interest.version();
        overlay.waiting.name_version(version, router, cursors);
        overlay.waiting.is_told_more = true;
        overlay.logs.received.name(version);
        self.name_roaming(version);
        self.count_on_all();
        self.name_share_versions(version);
        self.confirm_ready(now, out);
    }

    /// Answers the requests that need not wait for a broker any more.
    pub(crate) fn confirm_ready(&mut self, now: Time, out: &mut dyn Output) {
        self.end_gaps();
        self.answer_ends(now, out);
        let Some(overlay) = self.overlay.as_deref_mut() else { return };
        if !overlay.waiting.sharing.is_empty() {
            self.confirm_shares(now, out);
        }
        let Some(overlay) = self.overlay.as_deref_mut() else { return };
        let is_counting = self.groups.brokers.is_counting();
        if overlay.net.is_young(now)
            || !is_counting && (overlay.waiting.entries.is_empty() || overlay.lacks(&self.streams))
        {
            return;
        }
        let awaited = overlay.awaited(&self.streams);
        let mut ready = Vec::new();
        // Entries are in the order of their versions.
        while let Some(overlay) = self.overlay.as_deref_mut()
            && let Some(first) = overlay.waiting.entries.front()
        {
            let received = &overlay.logs.received;
            let lacking = first.version.and_then(|version| {
                awaited.iter().find(|host| !first.is_confirmed(&self.streams, received, **host, version)).copied()
            });
            let (index, copied) = (first.what.index, first.copied);
            let is_told = first.version.is_some() && lacking.is_none();
            overlay.waiting.lacking = lacking;
            if !is_told || !self.is_copied(now, index, copied) {
                break;
            }
            let Some(overlay) = self.overlay.as_deref_mut() else { break };
            if !overlay.waiting.is_first_written(&mut self.store) {
                break;
            }
            ready.extend(overlay.waiting.entries.pop_front());
        }
        for entry in ready {
            if self.waits_for_home(&entry) {
                self.overlay.as_deref_mut().expect("it was there").waiting.sharing.push(entry);
            } else {
                self.answer_made(now, entry, true, out);
            }
        }
        self.count_shares(now, &awaited, out);
    }

    /// Answers the requests whose time is over.
    pub(super) fn confirm_overdue(&mut self, now: Time, out: &mut dyn Output) {
        while let Some(overlay) = self.overlay.as_deref_mut()
            && overlay.waiting.entries.front().is_some_and(|entry| entry.due <= now)
            && let Some(entry) = overlay.waiting.entries.pop_front()
        {
            if let Some(version) = entry.version {
                let late = overlay.awaited(&self.streams).into_iter();
                let received = &overlay.logs.received;
                let late = late.filter(|host| !entry.is_confirmed(&self.streams, received, *host, version));
                let late: Vec<HostId> = late.collect();
                overlay.waiting.late.extend(late);
            }
            let is_written = self.store.write_queue.last() <= self.store.commit_queue.committed();
            self.answer_made(now, entry, is_written, out);
        }
        self.answer_ends(now, out);
        self.confirm_shares(now, out);
    }

    /// Answers a SUBSCRIBE. Names the brokers that have not confirmed it; all of them if it is
    /// durable and not yet written.
    pub(crate) fn answer_made(&mut self, now: Time, entry: Waiter, is_written: bool, out: &mut dyn Output) {
        let Waiter { what, is_durable, version: named, .. } = entry;
        let UnansweredSubscribe { whom, tag, index, mut made, begun } = what;
        if self.sessions.attached_to(whom.link) != Some(index) || self.sessions.whom(whom.link) != whom {
            return;
        }
        let waited = self.refuse_shares(index, &mut made);
        let overlay = self.overlay.as_deref_mut().expect("it was there");
        let version = named.unwrap_or(u64::MAX);
        let others = overlay.net.topology.states().filter(|state| state.host != overlay.net.host);
        let mut pending: Vec<&str> = others
            .filter(|state| {
                let is_granted = !is_durable || is_written && overlay.logs.received.is_granted(state.host, version);
                let is_late = !(is_granted && has_confirmed(&self.streams, state.host, version));
                version != NO_VERSION && is_late || waited.contains(&Some(state.host))
            })
            .map(|state| &*state.name)
            .take(NAMES_MAX + 1)
            .collect();
        if pending.len() > NAMES_MAX || overlay.net.lacks_everyone() || waited.contains(&None) {
            pending.truncate(NAMES_MAX);
            pending.push(ALL_OTHERS);
        }
        let pending: Vec<Box<str>> = pending.into_iter().map(Box::from).collect();
        overlay.net.stats.subscriptions_pending += u64::from(!pending.is_empty());
        if let Some(version) = named.filter(|version| *version != NO_VERSION && pending.is_empty()) {
            let Broker { streams, router, cursors, .. } = self;
            // Most subscriptions have no cursor, and need no look at each stream.
            let in_force = LazyCell::new(|| streams.in_force(version));
            for (asked, ..) in &made {
                if let Some(cursor) = router.cursor_of(index, &asked.filter) {
                    cursors.get_mut(cursor).began.in_force.settle(version, || *in_force);
                }
            }
        }
        self.answer_subscribed(now, UnansweredSubscribe { whom, tag, index, made, begun }, &pending, out);
    }

    /// Tells returned subscriptions what they missed before their interest was in force.
    fn end_gaps(&mut self) {
        let Some(overlay) = self.overlay.as_deref_mut() else { return };
        if overlay.waiting.returned.is_empty() || !core::mem::take(&mut overlay.waiting.is_told_more) {
            return;
        }
        let Broker { cursors, streams, .. } = self;
        overlay.waiting.returned.retain(|one| cursors.is_of(one.cursor, one.subscription));
        let mut gaps = Vec::new();
        for one in &overlay.waiting.returned {
            let Some(version) = one.version else { continue };
            let unsettled = &mut cursors.get_mut(one.cursor).unsettled;
            for (pubend, from) in core::mem::take(unsettled).iter() {
                let Some(remote) = streams.remote(pubend) else { continue };
                if remote.told < version {
                    unsettled.set(pubend, from);
                } else {
                    // Events up to there were matched against the interest at the time.
                    gaps.push((one.cursor, pubend, from, remote.since));
                }
            }
        }
        let mut last = None;
        let mut tick = |version| {
            // Many return with the same version.
            let known = last.filter(|(of, _)| *of == version).unwrap_or_else(|| (version, streams.in_force(version)));
            last.insert(known).1
        };
        for one in &overlay.waiting.returned {
            let cursor = cursors.get_mut(one.cursor);
            if let Some(version) = one.version.filter(|_| cursor.unsettled.is_empty()) {
                cursor.began.in_force.settle(version, || tick(version));
            }
        }
        overlay.waiting.forget_settled(cursors);
        for (cursor, pubend, from, to) in gaps {
            if from >= to {
                // The interest was in force all the time: nothing is to be read elsewhere.
                self.rejoin(cursor, pubend);
            } else if !self.read_unsettled(cursor, pubend, (from, to)) {
                // At the end of the turn: no stream waits any more, but cursors further on in this
                // list do not have the positions yet from which they are to be read. Events given
                // to them now would be given twice.
                self.record_gap(cursor, Gap { pubend, from, to, reason: GapReason::NotBuffered });
            }
        }
    }
}

impl Overlay {
    /// Sets the timers of all waiting requests anew.
    pub(super) fn watch_waiting(&mut self, now: Time) {
        for at in 0..self.waiting.entries.len() {
            let entry = &mut self.waiting.entries[at];
            entry.version = None;
            let due = entry.due.max(now);
            self.net.set_timer(due, Due::Confirm);
        }
        for at in 0..self.waiting.ending.len() {
            let due = self.waiting.ending[at].due.max(now);
            self.net.set_timer(due, Due::Confirm);
        }
    }

    /// Whether the first entry still waits for the broker in `lacking`.
    fn lacks(&mut self, streams: &Sources) -> bool {
        self.net.routes.update(&self.net.topology);
        let AwaitedBrokers { entries, lacking, late, .. } = &self.waiting;
        let (Some(host), Some(first)) = (*lacking, entries.front()) else { return false };
        let is_awaited = |host: HostId| !late.contains(&host) && self.net.routes.is_reachable(host);
        let waits = |version| !first.is_confirmed(streams, &self.logs.received, host, version);
        host != self.net.host && is_awaited(host) && first.version.is_some_and(waits)
    }

    /// Ends the lateness of a broker that has now confirmed all it should.
    pub(super) fn record_told(&mut self, streams: &Sources, host: HostId) {
        if self.waiting.late.contains(&host) && self.has_told(streams, host) {
            self.waiting.late.remove(&host);
        }
    }

    /// Whether a broker has confirmed the own interest.
    fn has_told(&self, streams: &Sources, host: HostId) -> bool {
        let version = self.net.own_interest.version();
        let is_granted = !self.net.own_interest.has_durable() || self.logs.received.is_granted(host, version);
        is_granted && has_confirmed(streams, host, version)
    }

    /// The brokers that requests wait for: those that can be reached and are not late.
    fn awaited(&mut self, streams: &Sources) -> Vec<HostId> {
        self.net.routes.update(&self.net.topology);
        let mut late = core::mem::take(&mut self.waiting.late);
        late.retain(|host| !self.has_told(streams, *host) && self.net.topology.get(*host).is_some());
        self.waiting.late = late;
        let Overlay { net: Net { topology, routes, host, .. }, waiting, .. } = self;
        let is_awaited =
            |other: &HostId| *other != *host && routes.is_reachable(*other) && !waiting.late.contains(other);
        topology.hosts().filter(is_awaited).collect()
    }
}
