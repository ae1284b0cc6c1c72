//! In force → answered. A SUBSCRIBE is answered when the brokers that can be reached know of its
//! subscriptions, after [`CONFIRM_MAX`] at the latest. The answer then names the brokers that have
//! not confirmed. An UNSUBSCRIBE is answered when the replica of the session knows of it: if the
//! session went on from an older copy, it would have the subscriptions again.
//!
//! Subscriptions with a start position, or that have moved here from another broker, are no
//! request, and wait for the same: until their own interest is in force, events of other brokers'
//! streams arrive only for the sake of other subscriptions.

use core::cell::LazyCell;
use core::time::Duration;

use whimbrel_event::{HostId, PubendId, Tick, Time};
use whimbrel_net::Net;
use whimbrel_selector::{SharedFilter, TopicFilter};

use super::awaiting::{NO_VERSION, Returned, Unconfirmed, has_confirmed};
use super::machine::{Answered, Asker, EndInForce, InForce, Made};
use crate::api::{Filter, Granted, Output, Refusal, Start};
use crate::broker::Broker;
use crate::caching::is_buffered;
use crate::cursor::{Gap, GapReason, InForceSince};
use crate::overlay::{Due, Overlay, is_local};
use crate::retained::REPLAY_SLICE;
use crate::route::NO_CURSOR;
use crate::shared::MemberState;
use crate::store::Key;
use crate::stream::Sources;

/// Stands for all brokers that are not named in the answer to a SUBSCRIBE: where more have not
/// confirmed than are named, or where the broker has never had a link.
pub const ALL_OTHERS: &str = "*";

/// The longest time that a SUBSCRIBE waits for its confirmation.
pub const CONFIRM_MAX: Duration = Duration::from_secs(1);

/// Most brokers that are named as not having confirmed; [`ALL_OTHERS`] stands for the rest.
const NAMES_MAX: usize = 64;

/// The estimated delay of the path to the farthest broker, if that is longer than this. Costs a
/// look at the path to each broker.
fn slower_than(net: &mut Net, deadline: Duration) -> Option<Duration> {
    net.ways();
    let ways = net.topology().states().map(|state| net.way(state.host));
    ways.max().filter(|way| *way > deadline)
}

impl Broker {
    /// Keeps a SUBSCRIBE until other brokers know of its subscriptions; returns it if it need not
    /// wait.
    pub(super) fn wait_for_brokers(&mut self, now: Time, what: InForce) -> Option<InForce> {
        if fault!(self, ConfirmEarly) {
            return Some(what);
        }
        if !self.overlay.is_open() {
            return Some(what);
        }
        let copied = self.structure_of(what.session());
        let overlay = &mut self.overlay;
        let groups = &self.groups;
        let is_elsewhere = |text: &str| groups.find(text).is_some_and(|id| !groups.is_home(id));
        let wanted = |made: &&Made| made.result.is_ok() && !is_local(made.text()) && !is_elsewhere(made.text());
        let is_alone = overlay.net.topology().len() < 2 && !overlay.net.is_young(now) && !overlay.net.lacks_everyone();
        let waits = |made: &Made| {
            let known = groups.find(made.text()).filter(|_| made.result.is_ok());
            known.is_some_and(|id| groups.state(id) != MemberState::Served)
        };
        let (wants_any, waits_for_home) = (what.made.iter().any(|made| wanted(&made)), what.made.iter().any(waits));
        if !waits_for_home && (is_alone || !wants_any) {
            return Some(what);
        }
        let due = if overlay.waiting.is_full() { now } else { now + CONFIRM_MAX };
        overlay.set_timer(due, Due::Confirm);
        let (is_durable, batch) = (false, None);
        if !wants_any {
            let version = Some(NO_VERSION);
            overlay.waiting.sharing.push(Unconfirmed { what, is_durable, batch, version, copied, due });
            return None;
        }
        let durable = |made: &Made| made.result.as_ref().is_ok_and(Granted::is_durable);
        let is_durable = what.made.iter().filter(wanted).any(durable);
        let entry = Unconfirmed { what, is_durable, batch, version: None, copied, due };
        overlay.waiting.entries.push_back(entry);
        // The interest stays as it is if it covers the subscriptions already.
        overlay.net.tell_interest_soon(now);
        None
    }

    /// Shortens the wait of the last SUBSCRIBE, which arrived at `at` and has waited for the log
    /// since: the time for other brokers' confirmation counts from there.
    pub(super) fn count_wait_since(&mut self, now: Time, asker: Asker, at: Time) {
        let overlay = &mut self.overlay;
        let is_same = |of: Asker| of.whom == asker.whom && of.tag == asker.tag;
        if let Some(last) = overlay.waiting.entries.back_mut().filter(|last| is_same(last.what.asker)) {
            last.due = (at + CONFIRM_MAX).max(now).min(last.due);
            let due = last.due;
            overlay.set_timer(due, Due::Confirm);
        }
    }

    /// Assigns the own interest's new version to all requests that wait for it.
    pub(crate) fn name_version(&mut self, now: Time, out: &mut dyn Output) {
        let Broker { overlay, router, cursors, .. } = self;
        let version = overlay.net.own_interest().version();
        overlay.waiting.name_version(version, router, cursors);
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
        if !self.overlay.waiting.sharing.is_empty() {
            self.confirm_shares(now, out);
        }
        let overlay = &mut self.overlay;
        let is_counting = self.groups.brokers.is_counting();
        let Overlay { net, waiting, logs, .. } = overlay;
        if net.is_young(now)
            || !is_counting && (waiting.entries.is_empty() || waiting.lacks(net, &logs.received, &self.streams))
        {
            return;
        }
        let awaited = waiting.awaited(net, &logs.received, &self.streams);
        let mut ready = Vec::new();
        // Entries are in the order of their versions.
        while let Some(first) = self.overlay.waiting.entries.front() {
            let received = &self.overlay.logs.received;
            let lacking = first.version.and_then(|version| {
                awaited.iter().find(|host| !first.is_confirmed(&self.streams, received, **host, version)).copied()
            });
            let (index, copied) = (first.what.session(), first.copied);
            let is_told = first.version.is_some() && lacking.is_none();
            self.overlay.waiting.lacking = lacking;
            if !is_told || !self.is_copied(now, index, copied) {
                break;
            }
            let overlay = &mut self.overlay;
            if !overlay.waiting.is_first_written(&mut self.store) {
                break;
            }
            ready.extend(overlay.waiting.entries.pop_front());
        }
        for entry in ready {
            if self.waits_for_home(&entry.what) {
                self.overlay.waiting.sharing.push(entry);
            } else {
                self.answer_confirmed(now, entry, true, out);
            }
        }
        self.count_shares(now, &awaited, out);
    }

    /// Answers the requests whose time is over.
    pub(crate) fn confirm_overdue(&mut self, now: Time, out: &mut dyn Output) {
        while self.overlay.waiting.entries.front().is_some_and(|entry| entry.due <= now)
            && let Some(entry) = self.overlay.waiting.entries.pop_front()
        {
            let Overlay { net, waiting, logs, .. } = &mut self.overlay;
            waiting.record_late(&entry, net, &logs.received, &self.streams);
            let is_written = self.store.write_queue.last() <= self.store.commit_queue.committed();
            self.answer_confirmed(now, entry, is_written, out);
        }
        self.answer_ends(now, out);
        self.confirm_shares(now, out);
    }

    /// Answers a SUBSCRIBE that has waited. Names the brokers that have not confirmed it; all of
    /// them if it is durable and not yet written.
    fn answer_confirmed(&mut self, now: Time, entry: Unconfirmed, is_written: bool, out: &mut dyn Output) {
        let Unconfirmed { mut what, is_durable, version: named, .. } = entry;
        if !what.asker.is_there(&self.sessions) {
            return;
        }
        let waited = self.refuse_shares(&mut what);
        let overlay = &mut self.overlay;
        let version = named.unwrap_or(u64::MAX);
        let others = overlay.net.topology().states().filter(|state| state.host != overlay.net.host());
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
        overlay.stats.subscriptions_pending += u64::from(!pending.is_empty());
        if let Some(version) = named.filter(|version| *version != NO_VERSION && pending.is_empty()) {
            let Broker { streams, router, cursors, .. } = self;
            // Most subscriptions have no cursor, and need no look at each stream.
            let in_force = LazyCell::new(|| streams.in_force(version));
            for made in &what.made {
                if let Some(cursor) = router.cursor_of(what.session(), made.text()) {
                    cursors.get_mut(cursor).began.in_force.settle(version, || *in_force);
                }
            }
        }
        self.answer_subscribe(now, what, pending, out);
    }

    /// Tells the client, and lets its subscriptions read retained messages.
    pub(super) fn answer_subscribe(
        &mut self,
        now: Time,
        in_force: InForce,
        pending: Vec<Box<str>>,
        out: &mut dyn Output,
    ) {
        let InForce { asker, made, begun } = in_force;
        let Asker { index, whom, tag, .. } = asker;
        let mut answered = Answered { results: Vec::with_capacity(made.len()), pending };
        for Made { request, result, .. } in &made {
            // The subscription may have ended meanwhile.
            let is_there = self.router.find(index, request.text()).is_some();
            let is_asked = request.wants_token() && is_there;
            let begins = is_asked.then(|| self.begins(now, index, &request.view()));
            let filter = is_asked.then(|| SharedFilter::checked(request.text()).filter);
            let deadline = filter.and_then(|filter| self.router.profiles().least_deadline(filter));
            let infeasible = deadline.and_then(|deadline| slower_than(&mut self.overlay.net, deadline));
            let refused = if is_there { self.refused_domains(now, request.text()) } else { None };
            answered.results.push(result.clone().map(|granted| Granted { begins, infeasible, refused, ..granted }));
        }
        let is_only = !self.router.is_watched() && self.router.len() <= made.len();
        self.overlay.net.record_answered(now, is_only);
        out.subscribed(whom.link, tag, &answered.results, &answered.pending);
        for Made { request, is_new, result } in &made {
            if request.reads_retained(*is_new) && result.is_ok() {
                self.begin_to_read(index, request.text(), request.view().selector, begun);
            }
        }
        self.read_retained(now, index, &mut { REPLAY_SLICE }, out);
    }

    /// Answers an UNSUBSCRIBE, at once or when the replica of its session knows of it; after
    /// [`CONFIRM_MAX`] at the latest.
    ///
    /// `existed`: for each of its filters, whether there was such a subscription.
    pub(super) fn answer_end(&mut self, now: Time, asker: Asker, existed: Vec<bool>, out: &mut dyn Output) {
        let Asker { index, whom, tag, .. } = asker;
        let copied = self.structure_of(index);
        let is_copied = self.is_copied(now, index, copied);
        let overlay = &mut self.overlay;
        if !overlay.is_open() || is_copied || overlay.waiting.is_full_of_ends() {
            out.unsubscribed(whom.link, tag, &existed);
            return self.sessions.pump(index, now, out);
        }
        let due = now + CONFIRM_MAX;
        overlay.waiting.ended.push(EndInForce { asker, existed, copied, due });
        overlay.set_timer(due, Due::Confirm);
    }

    /// Answers the waiting UNSUBSCRIBEs whose replica has confirmed, or whose time is over.
    fn answer_ends(&mut self, now: Time, out: &mut dyn Output) {
        for end in core::mem::take(&mut self.overlay.waiting.ended) {
            let Asker { index, whom, tag, .. } = end.asker;
            if !end.asker.is_there(&self.sessions) {
                continue;
            }
            if end.due > now && !self.is_copied(now, index, end.copied) {
                self.overlay.waiting.ended.push(end);
                continue;
            }
            out.unsubscribed(whom.link, tag, &end.existed);
            self.sessions.pump(index, now, out);
        }
    }

    /// Answers the requests whose homes have answered, or whose time is over.
    pub(crate) fn confirm_shares(&mut self, now: Time, out: &mut dyn Output) {
        for entry in core::mem::take(&mut self.overlay.waiting.sharing) {
            let is_copied = self.is_copied(now, entry.what.session(), entry.copied);
            if entry.due > now && (self.waits_for_home(&entry.what) || !is_copied) {
                self.overlay.waiting.sharing.push(entry);
            } else {
                let is_written = self.store.write_queue.last() <= self.store.commit_queue.committed();
                self.answer_confirmed(now, entry, is_written, out);
            }
        }
    }

    /// Whether the home of one of these subscriptions has not confirmed it.
    fn waits_for_home(&self, in_force: &InForce) -> bool {
        let mut made = in_force.made.iter().filter(|made| made.result.is_ok());
        made.any(|made| self.home_awaited(made.text()).is_some())
    }

    /// The home that has not confirmed a shared subscription; `Some(None)` if the home is not
    /// known.
    fn home_awaited(&self, text: &str) -> Option<Option<HostId>> {
        match self.groups.find(text).map(|id| self.groups.state(id)) {
            Some(MemberState::Waits(home)) => Some(home),
            _ => None,
        }
    }

    /// Ends the subscriptions that their homes have refused. Returns the homes that have not
    /// answered.
    fn refuse_shares(&mut self, in_force: &mut InForce) -> Vec<Option<HostId>> {
        let index = in_force.session();
        let mut waited = Vec::new();
        for made in in_force.made.iter_mut().filter(|made| made.result.is_ok()) {
            waited.extend(self.home_awaited(made.text()));
            let state = self.groups.find(made.text()).map(|id| self.groups.state(id));
            if state != Some(MemberState::Refused) {
                continue;
            }
            made.result = Err(Refusal::OtherSelector);
            self.sessions.stats.subscriptions_refused += 1;
            if self.remembers(index) {
                let number = self.sessions.get(index).memory.number;
                self.store.write_queue.forget(|key| Key::Subscription(number, made.text()).put(key));
                self.store.write_queue.seal();
            }
            self.end_subscriptions(index, &[made.text()]);
        }
        waited.sort_unstable();
        waited.dedup();
        waited
    }

    /// Tells returned subscriptions what they missed before their interest was in force.
    fn end_gaps(&mut self) {
        let overlay = &mut self.overlay;
        if !overlay.waiting.has_to_check_returned() {
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

    /// A new subscription waits for other brokers' streams until its interest is in force.
    pub(crate) fn await_first_interest(
        &mut self,
        index: u32,
        (asked, filter): (&Filter<'_>, TopicFilter<'_>),
        (subscription, cursor): (u32, u32),
    ) {
        if cursor != NO_CURSOR && self.cursors.durable(cursor).is_some() && self.resumes(index, asked) {
            self.resume_from_token(cursor);
            self.await_interest_of(subscription, cursor);
        } else {
            self.await_interest(asked, filter, (subscription, cursor));
        }
    }

    /// Waits for the interest of a new subscription with a start position: events from before it is
    /// in force are a gap. This is not so if they arrive here in any case, under each version of
    /// the own interest.
    pub(crate) fn await_interest(
        &mut self,
        asked: &Filter<'_>,
        filter: TopicFilter<'_>,
        (subscription, cursor): (u32, u32),
    ) {
        if !matches!(asked.start, Start::Own) {
            self.await_in_force(asked, filter, (subscription, cursor));
        }
    }

    /// Does so for an existing subscription. With an `other` interest than before it is treated
    /// like one that returns; so it is if it `begins` at a given position and it is unknown since
    /// when its interest is in force.
    pub(crate) fn await_interest_again(
        &mut self,
        asked: &Filter<'_>,
        filter: TopicFilter<'_>,
        (subscription, cursor): (u32, u32),
        (begins, other): (bool, bool),
    ) {
        if cursor == NO_CURSOR {
            return;
        }
        let in_force = &mut self.cursors.get_mut(cursor).began.in_force;
        if other {
            *in_force = InForceSince::Untold;
        }
        if begins && !matches!(in_force, InForceSince::After(_)) {
            self.await_in_force(asked, filter, (subscription, cursor));
        }
    }

    fn await_in_force(&mut self, asked: &Filter<'_>, filter: TopicFilter<'_>, (subscription, cursor): (u32, u32)) {
        if fault!(self, ReturnsWithoutGap) {
            return;
        }
        if is_buffered(&self.buffer, filter, asked.selector) {
            return;
        }
        let overlay = &mut self.overlay;
        if !overlay.is_open() || cursor == NO_CURSOR || overlay.waiting.is_full_of_returned() {
            return;
        }
        let of_cursor = self.cursors.get_mut(cursor);
        of_cursor.began.in_force = InForceSince::Untold;
        if !of_cursor.unsettled.is_empty() {
            overlay.waiting.forget(cursor);
        }
        // For brokers that are not known, later events are asked for when they are; earlier ones
        // are then read from their logs.
        let is_there = |pubend: PubendId| overlay.net.topology().get(pubend.host()).is_some();
        let waits = |pubend| is_there(pubend) || of_cursor.has_remote_log(pubend);
        let streams: Vec<(PubendId, Tick)> =
            self.streams.remote_positions().filter(|(pubend, _)| waits(*pubend)).collect();
        of_cursor.wait_for(streams.into_iter());
        self.await_unsettled(subscription, cursor);
    }

    /// Lets a subscription wait for brokers until they confirm its interest; not for those that
    /// have ended.
    fn await_unsettled(&mut self, subscription: u32, cursor: u32) {
        self.settle_ended(cursor);
        if !self.cursors.get(cursor).unsettled.is_empty() {
            self.overlay.waiting.returned.push(Returned { subscription, cursor, version: None });
        }
    }

    /// Waits for the interest of a subscription that has moved here. The events between its
    /// position and the start of the interest are read from the other brokers' logs.
    pub(crate) fn await_interest_of(&mut self, subscription: u32, cursor: u32) {
        let of_cursor = self.cursors.get_mut(cursor);
        if !self.overlay.is_open() || of_cursor.catch_up.is_none() || !of_cursor.keeps {
            return;
        }
        of_cursor.wait_for(self.streams.remote_positions());
        self.await_unsettled(subscription, cursor);
    }
}

impl Overlay {
    /// Sets the timers of all waiting requests anew: all that was announced is void.
    pub(crate) fn watch_waiting(&mut self, now: Time) {
        for due in self.waiting.begin_anew() {
            self.set_timer(due.max(now), Due::Confirm);
        }
    }

    /// Ends the lateness of a broker that has now confirmed all it should.
    pub(crate) fn record_told(&mut self, streams: &Sources, host: HostId) {
        self.waiting.record_told(host, &self.net, &self.logs.received, streams);
    }
}
