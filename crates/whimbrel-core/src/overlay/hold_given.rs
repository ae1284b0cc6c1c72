//! Retention holds given to other brokers: events for their durable subscriptions are logged here,
//! and kept until those brokers report that they need them no more.
//!
//! The durable part of a broker's interest is a *durable interest* in the index as soon as it
//! arrives. It is written, and then a message tells the broker the ticks after which the log counts
//! for it. No other broker waits for that: the version in force is told as always.

use std::collections::BTreeSet;

use whimbrel_event::{HostId, Tick, Time};
use whimbrel_selector::TopicFilter;
use whimbrel_wire::{BrokerMessage, GrantedStream, HoldGrant, HoldReport};

use super::Sender;
use crate::api::Output;
use crate::broker::Broker;
use crate::cursor::NOTHING;
use crate::store::{
    BatchNo, HOLDS_GIVEN_MAX, HeldInterest, HeldInterestRecord, HoldGiven, HoldRecord, InterestKey, Key, MapValue, OWN,
    OwnTicks, RestoredHolds, Wait,
};
use crate::stream::destinations::understood;

/// The interval at which an unchanged report is written nevertheless: the time of the last report
/// counts.
const HOLD_WRITTEN_EVERY: core::time::Duration = core::time::Duration::from_secs(3600);

impl Broker {
    /// Adopts the durable part of another broker's changed interest: matching events are logged
    /// from now on, and the broker is told when that is durable.
    pub(crate) fn hold_for(&mut self, now: Time, host: HostId, out: &mut dyn Output) {
        let overlay = &self.overlay;
        let Some(known) = overlay.net.interest_of(host) else { return };
        let version = known.version;
        let durable = known.entries.values().filter(|entry| entry.durable && TopicFilter::new(&entry.filter).is_ok());
        let wanted: BTreeSet<InterestKey> =
            durable.map(|entry| (entry.filter.clone(), entry.selector.clone())).collect();
        let name = overlay.net.name_of(host);
        let holds_given = &self.store.holds_given.of;
        let is_known = holds_given.contains_key(&host);
        if wanted.is_empty() && !is_known {
            return;
        }
        if !self.has_log() || !is_known && holds_given.len() >= HOLDS_GIVEN_MAX {
            return self.tell_no_log(now, host, out);
        }
        let assigned = self.streams.own.assigned();
        let number = if is_known { None } else { Some(self.store.holds_given.free_number()) };
        if let Some(number) = number {
            self.store.holds_given.of.insert(host, HoldGiven::new(now, &name, (number, assigned)));
        }
        let hold_given = self.store.holds_given.of.get_mut(&host).expect("it is there, or was just made");
        hold_given.version = version;
        let mut has_changed = !is_known;
        if hold_given.is_forfeited() && !wanted.is_empty() {
            // Events since it was given up may not have been logged.
            (hold_given.record.forfeited, has_changed) = (assigned, true);
        }
        let gone: Vec<InterestKey> =
            hold_given.entries.keys().filter(|interest| !wanted.contains(*interest)).cloned().collect();
        let fresh: Vec<InterestKey> =
            wanted.into_iter().filter(|interest| !hold_given.entries.contains_key(interest)).collect();
        has_changed |= !gone.is_empty() || !fresh.is_empty();
        // New entries first, so that no interest is out of the index for a moment.
        fresh.into_iter().for_each(|interest| self.begin_hold(host, interest, version, assigned));
        gone.iter().for_each(|interest| self.end_hold_of(host, interest));
        if has_changed {
            self.write_hold(now, host);
        }
        self.tell_grant_when_durable(now, host, out);
    }

    /// Tells a broker its hold as soon as the hold is durable.
    fn tell_grant_when_durable(&mut self, now: Time, host: HostId, out: &mut dyn Output) {
        let Some(hold_given) = self.store.holds_given.of.get(&host) else { return };
        let batch = hold_given.batch;
        let batch = if fault!(self, OwedToldEarly) { BatchNo(0) } else { batch };
        if batch <= self.store.commit_queue.committed() {
            self.tell_grant(now, host, out);
        } else if batch != BatchNo::NEVER {
            self.store.commit_queue.push(batch, Wait::Grant(host));
        }
    }

    fn begin_hold(&mut self, host: HostId, interest: InterestKey, version: u64, begin: OwnTicks) {
        let selector = understood(interest.1.as_deref());
        let filter = self.index_filter(&interest.0);
        let hold_given = self.store.holds_given.of.get_mut(&host).expect("it was just made");
        let in_index = self.router.insert_interest(filter, selector.as_ref(), hold_given.interest_owner());
        hold_given.last += 1;
        let number = hold_given.last;
        let written = HeldInterestRecord { version, begin, filter: &interest.0, selector: interest.1.as_deref() };
        self.store
            .write_queue
            .put(|key| Key::HeldInterest(host, number).put(key), |value| written.put_versioned(value));
        self.store.write_queue.seal_large();
        hold_given.entries.insert(interest, HeldInterest { number, version, begin, in_index });
    }

    /// The filter under which the index has a durable interest.
    fn index_filter<'a>(&self, filter: &'a str) -> TopicFilter<'a> {
        if fault!(self, OwedNotLogged) {
            return TopicFilter::checked("nobody");
        }
        TopicFilter::checked(filter)
    }

    fn end_hold_of(&mut self, host: HostId, interest: &InterestKey) {
        let hold_given = self.store.holds_given.of.get_mut(&host).expect("it is owed something");
        let Some(held_interest) = hold_given.entries.remove(interest) else { return };
        hold_given.record_dropped(&held_interest);
        let filter = self.index_filter(&interest.0);
        self.router.remove_interest(filter, held_interest.in_index);
        self.store.write_queue.forget(|key| Key::HeldInterest(host, held_interest.number).put(key));
        self.store.write_queue.seal_large();
    }

    /// Writes a broker's hold, in one batch with changes of its entries, and counts it for the
    /// release of the log.
    fn write_hold(&mut self, now: Time, host: HostId) {
        let Some(hold_given) = self.store.holds_given.of.get_mut(&host) else { return };
        let held = hold_given.holds();
        self.store.release.holds.change(&hold_given.counted, &held);
        (hold_given.counted, hold_given.written) = (held, now);
        let hold = &HoldRecord { needed: hold_given.needed(), ..hold_given.record.clone() };
        if !fault!(self, HoldUnwritten) {
            self.store.write_queue.put(|key| Key::Hold(host).put(key), |value| hold.put_versioned(value));
        }
        hold_given.batch = self.store.write_queue.seal();
    }

    /// Tells a broker its hold, if that is durable. It acknowledges the broker's last report, if
    /// there was one.
    pub(crate) fn tell_grant(&mut self, now: Time, host: HostId, out: &mut dyn Output) {
        let Some(hold_given) = self.store.holds_given.of.get(&host) else { return };
        let is_durable = hold_given.batch <= self.store.commit_queue.committed();
        let is_durable = is_durable || fault!(self, OwedToldEarly);
        if !is_durable || hold_given.record.has_ended {
            return;
        }
        let (since, chopped, forfeited) = (hold_given.since(), self.store.release.chopped, hold_given.record.forfeited);
        let stream = |own: usize| {
            let (since, forfeited) = (since[own], forfeited[own]);
            GrantedStream { since, given_up: chopped[own].max(forfeited), forfeited }
        };
        let (incarnation, seq) = hold_given.record.report;
        let known = super::hold_received::reliable_known_to(self.overlay.net.topology(), host).count();
        let streams = (0..known).map(stream).collect();
        let grant = HoldGrant { incarnation, seq, has_log: true, version: hold_given.version, streams };
        self.send_to(now, host, (&BrokerMessage::HoldGrant(grant), false), out);
    }

    fn tell_no_log(&mut self, now: Time, host: HostId, out: &mut dyn Output) {
        let grant = HoldGrant { incarnation: 0, seq: 0, has_log: false, version: 0, streams: Vec::new() };
        self.send_to(now, host, (&BrokerMessage::HoldGrant(grant), false), out);
    }

    /// Handles a report of the positions of a broker's durable subscriptions.
    pub(super) fn on_hold_report(&mut self, now: Time, from: Sender, holds: &HoldReport, out: &mut dyn Output) {
        if !self.has_log() {
            return self.tell_no_log(now, from.host, out);
        }
        if !self.store.holds_given.of.contains_key(&from.host) {
            // Its interest has not arrived, or has no durable part. It is told when that arrives.
            return self.hold_for(now, from.host, out);
        }
        let hold_given = self.store.holds_given.of.get_mut(&from.host).expect("it was just found");
        let report = (from.incarnation, holds.seq);
        if report <= hold_given.record.report {
            return self.tell_grant_when_durable(now, from.host, out);
        }
        // A broker that does not know the streams of the deadline class, or does not know that they
        // are known here, may need them from where it needs the others.
        let tick = |own: usize, of: fn(&whimbrel_wire::HeldStream) -> Option<Tick>| match holds.streams.get(own) {
            Some(held) => of(held).unwrap_or(NOTHING),
            None => holds.streams.iter().filter_map(of).min().unwrap_or(NOTHING),
        };
        let needed: OwnTicks = core::array::from_fn(|own| tick(own, |held| held.needed));
        let needed = if fault!(self, HoldLifted) { [NOTHING; OWN] } else { needed };
        hold_given.connected = Some(core::array::from_fn(|own| tick(own, |held| held.connected)));
        let mut hold = HoldRecord {
            name: core::mem::take(&mut hold_given.record.name),
            report,
            version: holds.version,
            needed,
            replicas: holds.replicas.clone(),
            taken_over: Vec::new(),
            has_ended: false,
            at: now,
            forfeited: hold_given.record.forfeited,
            number: hold_given.record.number,
            named: hold_given.record.named,
        };
        if hold_given.is_forfeited() {
            hold.needed = [NOTHING; OWN];
        }
        let is_news = hold.needed != hold_given.record.needed
            || hold.version != hold_given.record.version
            || hold.replicas != hold_given.record.replicas
            || hold_given.record.has_ended;
        let is_due = now.since(hold_given.written) >= HOLD_WRITTEN_EVERY;
        (hold_given.record, hold_given.heard) = (hold, now);
        hold_given.dropped.retain(|(version, _)| *version > holds.version);
        if hold_given.is_settled() {
            self.drop_hold(from.host);
            return;
        }
        if is_news || is_due {
            self.write_hold(now, from.host);
        }
        self.tell_grant_when_durable(now, from.host, out);
    }

    /// Drops a broker's hold: no event is kept for it any more.
    fn drop_hold(&mut self, host: HostId) {
        let Some(hold_given) = self.store.holds_given.of.get(&host) else { return };
        let interests: Vec<InterestKey> = hold_given.entries.keys().cloned().collect();
        interests.iter().for_each(|interest| self.end_hold_of(host, interest));
        let hold_given = self.store.holds_given.of.remove(&host).expect("it was just found");
        self.store.release.holds.change(&hold_given.counted, &[NOTHING; OWN]);
        self.store.write_queue.forget(|key| Key::Hold(host).put(key));
        self.store.write_queue.seal();
    }

    /// Forfeits the hold of a broker that has not released it. If the broker returns, it is told
    /// that the events are gone.
    fn forfeit(&mut self, now: Time, host: HostId) {
        let Some(hold_given) = self.store.holds_given.of.get(&host) else { return };
        if hold_given.is_forfeited() || !self.has_log() {
            return;
        }
        let interests: Vec<InterestKey> = hold_given.entries.keys().cloned().collect();
        interests.iter().for_each(|interest| self.end_hold_of(host, interest));
        let hold_given = self.store.holds_given.of.get_mut(&host).expect("it was just found");
        (hold_given.record.needed, hold_given.record.forfeited) = ([NOTHING; OWN], [NOTHING; OWN]);
        (hold_given.record.replicas, hold_given.record.taken_over) = (Vec::new(), Vec::new());
        hold_given.dropped.clear();
        self.write_hold(now, host);
        self.overlay.stats.holds_forfeited += 1;
    }

    /// Forfeits the holds of brokers that were not heard of for longer than any session lives.
    pub(super) fn expire_holds_given(&mut self, now: Time) {
        let lifetime = self.sessions.limits.session_expiry_max;
        let holds_given = self.store.holds_given.of.iter();
        let due = holds_given
            .filter(|(_, hold_given)| !hold_given.is_forfeited() && hold_given.record.at.after(lifetime) < now)
            .map(|(host, _)| *host);
        let due: Vec<HostId> = due.collect();
        due.into_iter().for_each(|host| self.forfeit(now, host));
    }

    /// Marks the hold of an ended host. Its replicas report when they have taken over its sessions.
    /// `is_retired`: no replica takes them over.
    pub(super) fn held_host_ended(&mut self, now: Time, host: HostId, is_retired: bool) {
        if is_retired {
            return self.forfeit(now, host);
        }
        let Some(hold_given) = self.store.holds_given.of.get_mut(&host) else { return };
        if !core::mem::replace(&mut hold_given.record.has_ended, true) && self.has_log() {
            self.write_hold(now, host);
            self.check_taken_over(host);
        }
    }

    /// Records that a replica has taken over the owner's sessions of which it had a copy, also if
    /// there were none, and that its holds for them are durable.
    pub(in crate::overlay) fn on_taken_over(&mut self, now: Time, owner: HostId, replica: HostId) {
        let Some(hold_given) = self.store.holds_given.of.get_mut(&owner) else { return };
        if self.store.disk == crate::store::Disk::Poisoned
            || hold_given.record.taken_over.contains(&replica)
            || !hold_given.record.replicas.contains(&replica)
        {
            return;
        }
        hold_given.record.taken_over.push(replica);
        self.write_hold(now, owner);
        self.check_taken_over(owner);
    }

    fn check_taken_over(&mut self, owner: HostId) {
        if self.store.holds_given.of.get(&owner).is_some_and(HoldGiven::is_taken_over) {
            self.drop_hold(owner);
        }
    }

    /// Gives numbers to the holds of an earlier version, so that filter records name them from now
    /// on.
    fn number_holds(&mut self) {
        let named = self.streams.own.assigned();
        let unnumbered =
            |(host, hold_given): (&HostId, &HoldGiven)| hold_given.record.number.is_none().then_some(*host);
        let hosts: Vec<HostId> = self.store.holds_given.of.iter().filter_map(unnumbered).collect();
        for host in hosts {
            let number = self.store.holds_given.free_number();
            let hold = &mut self.store.holds_given.of.get_mut(&host).expect("it was just found").record;
            (hold.number, hold.named) = (Some(number), named);
            self.store.write_queue.put(|key| Key::Hold(host).put(key), |value| hold.put_versioned(value));
            self.store.write_queue.seal_large();
        }
    }

    /// Restores the holds after a restart, before any event is accepted.
    pub(crate) fn restore_holds_given(&mut self, now: Time, restored: RestoredHolds) {
        self.restore_ended(restored.ended);
        for (host, hold) in restored.holds {
            self.store.holds_given.of.insert(host, HoldGiven::restored(now, hold));
        }
        self.number_holds();
        for (host, number, entry) in &restored.entries {
            let entry = HeldInterestRecord::read_versioned(entry).expect("it was read before");
            let named = self.index_filter(entry.filter);
            let Some(hold_given) = self.store.holds_given.of.get_mut(host) else {
                // Its hold was to be dropped together with it.
                self.store.write_queue.forget(|key| Key::HeldInterest(*host, *number).put(key));
                self.store.write_queue.seal_large();
                continue;
            };
            let HeldInterestRecord { version, begin, filter, selector } = entry;
            let in_index = understood(selector);
            let interest = self.router.insert_interest(named, in_index.as_ref(), hold_given.interest_owner());
            hold_given.last = hold_given.last.max(*number);
            hold_given.version = hold_given.version.max(version);
            let held_interest = HeldInterest { number: *number, version, begin, in_index: interest };
            hold_given.entries.insert((filter.into(), selector.map(Box::from)), held_interest);
        }
        for hold_given in self.store.holds_given.of.values_mut() {
            let held = hold_given.holds();
            self.store.release.holds.change(&hold_given.counted, &held);
            hold_given.counted = held;
        }
        self.store.write_queue.seal();
    }
}
