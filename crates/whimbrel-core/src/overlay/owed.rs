//! What this broker owes others: events that their durable subscriptions want are logged here, and kept until they say that they need them no more.
//!
//! What a broker's interest wants durably is a *wish* in the index from the moment in which it comes; that is written, and then the broker is told with a
//! letter after which ticks its log counts for it. Nobody else waits for that: which version is in force is told as ever.

use std::collections::BTreeSet;

use whimbrel_event::{HostId, Tick, Time};
use whimbrel_selector::TopicFilter;
use whimbrel_wire::{BrokerMessage, GrantedStream, HoldGrant, HoldReport};

use super::messages::Sender;
use super::serve::understood;
use crate::api::Output;
use crate::broker::Broker;
use crate::cursor::NOTHING;
use crate::store::{BatchNo, DEBTORS_MAX, Debt, Hold, Key, OWN, Owed, OwedEntry, OwnTicks, Restored, Value, Wait};

/// What has not changed of a report is written so often all the same: how long ago it came counts.
const HOLD_WRITTEN_EVERY: core::time::Duration = core::time::Duration::from_secs(3600);

/// One thing that is wanted, as it is looked for among what is owed.
type Wanted = (Box<str>, Option<Box<str>>);

impl Broker {
    /// Another broker's interest has changed: what it wants durably from now on is logged, and it is told so when that is durable.
    pub(super) fn owe(&mut self, now: Time, host: HostId, out: &mut dyn Output) {
        let Some(overlay) = self.overlay.as_deref() else { return };
        let Some(known) = overlay.interests.of.get(&host) else { return };
        let version = known.version;
        let durable = known.entries.values().filter(|entry| entry.durable && TopicFilter::new(&entry.filter).is_ok());
        let wanted: BTreeSet<Wanted> = durable.map(|entry| (entry.filter.clone(), entry.selector.clone())).collect();
        let name = overlay.name_of(host);
        let debts = &self.store.debts.of;
        let is_known = debts.contains_key(&host);
        if wanted.is_empty() && !is_known {
            return;
        }
        if !self.has_log() || !is_known && debts.len() >= DEBTORS_MAX {
            return self.tell_no_log(now, host, out);
        }
        let assigned = self.streams.own.assigned();
        let number = if is_known { None } else { Some(self.store.debts.free_number()) };
        if let Some(number) = number {
            self.store.debts.of.insert(host, Debt::new(now, &name, (number, assigned)));
        }
        let debt = self.store.debts.of.get_mut(&host).expect("it is there, or was just made");
        debt.version = version;
        let mut has_changed = !is_known;
        if debt.is_forfeited() && !wanted.is_empty() {
            // What came since it was given up may not have been logged.
            (debt.hold.forfeited, has_changed) = (assigned, true);
        }
        let gone: Vec<Wanted> = debt.entries.keys().filter(|wish| !wanted.contains(*wish)).cloned().collect();
        let fresh: Vec<Wanted> = wanted.into_iter().filter(|wish| !debt.entries.contains_key(wish)).collect();
        has_changed |= !gone.is_empty() || !fresh.is_empty();
        // What is new first, so that nothing that is wanted goes on is without anybody for a moment.
        fresh.into_iter().for_each(|wish| self.begin_to_owe(host, wish, version, assigned));
        gone.iter().for_each(|wish| self.owe_no_more(host, wish));
        if has_changed {
            self.write_hold(now, host);
        }
        self.wait_for_debt(now, host, out);
    }

    /// A broker that was told what it is owed before is told again, as soon as what is owed is durable.
    fn wait_for_debt(&mut self, now: Time, host: HostId, out: &mut dyn Output) {
        let Some(debt) = self.store.debts.of.get(&host) else { return };
        let batch = debt.batch;
        let batch = if fault!(self, OwedToldEarly) { BatchNo(0) } else { batch };
        if batch <= self.store.commit_queue.committed() {
            self.tell_owed(now, host, out);
        } else if batch != BatchNo::NEVER {
            self.store.commit_queue.push(batch, Wait::Grant(host));
        }
    }

    fn begin_to_owe(&mut self, host: HostId, wish: Wanted, version: u64, begin: OwnTicks) {
        let selector = understood(wish.1.as_deref());
        let filter = self.wished(&wish.0);
        let debt = self.store.debts.of.get_mut(&host).expect("it was just made");
        let in_index = self.router.insert_wish(filter, selector.as_ref(), debt.wisher());
        debt.last += 1;
        let number = debt.last;
        let written = OwedEntry { version, begin, filter: &wish.0, selector: wish.1.as_deref() };
        self.store.write_queue.put(|key| Key::Owed(host, number).put(key), |value| written.put_versioned(value));
        self.store.write_queue.seal_large();
        debt.entries.insert(wish, Owed { number, version, begin, wish: in_index });
    }

    /// Under which filter the index is to name what is owed.
    fn wished<'a>(&self, filter: &'a str) -> TopicFilter<'a> {
        if fault!(self, OwedNotLogged) {
            return TopicFilter::checked("nobody");
        }
        TopicFilter::checked(filter)
    }

    fn owe_no_more(&mut self, host: HostId, wish: &Wanted) {
        let debt = self.store.debts.of.get_mut(&host).expect("it is owed something");
        let Some(owed) = debt.entries.remove(wish) else { return };
        debt.note_dropped(&owed);
        let filter = self.wished(&wish.0);
        self.router.remove_wish(filter, owed.wish);
        self.store.write_queue.forget(|key| Key::Owed(host, owed.number).put(key));
        self.store.write_queue.seal_large();
    }

    /// Writes how far the log is held for a broker, with what was written of its entries before, and counts it.
    fn write_hold(&mut self, now: Time, host: HostId) {
        let Some(debt) = self.store.debts.of.get_mut(&host) else { return };
        let held = debt.holds();
        self.store.release.holds.change(&debt.counted, &held);
        (debt.counted, debt.written) = (held, now);
        let hold = &Hold { needed: debt.needed(), ..debt.hold.clone() };
        if !fault!(self, HoldUnwritten) {
            self.store.write_queue.put(|key| Key::Hold(host).put(key), |value| hold.put_versioned(value));
        }
        debt.batch = self.store.write_queue.seal();
    }

    /// Says to a broker what it is owed, if that is durable; as an answer to its last report, if there was one.
    pub(crate) fn tell_owed(&mut self, now: Time, host: HostId, out: &mut dyn Output) {
        let Some(debt) = self.store.debts.of.get(&host) else { return };
        let is_durable = debt.batch <= self.store.commit_queue.committed();
        let is_durable = is_durable || fault!(self, OwedToldEarly);
        if !is_durable || debt.hold.has_ended {
            return;
        }
        let (since, chopped, forfeited) = (debt.since(), self.store.release.chopped, debt.hold.forfeited);
        let stream = |own: usize| {
            let (since, forfeited) = (since[own], forfeited[own]);
            GrantedStream { since, given_up: chopped[own].max(forfeited), forfeited }
        };
        let (incarnation, seq) = debt.hold.report;
        let streams = (0..OWN).map(stream).collect();
        let owes = HoldGrant { incarnation, seq, has_log: true, version: debt.version, streams };
        self.send_to(now, host, (&BrokerMessage::HoldGrant(owes), false), out);
    }

    fn tell_no_log(&mut self, now: Time, host: HostId, out: &mut dyn Output) {
        let owes = HoldGrant { incarnation: 0, seq: 0, has_log: false, version: 0, streams: Vec::new() };
        self.send_to(now, host, (&BrokerMessage::HoldGrant(owes), false), out);
    }

    /// A broker reports how far its durable subscriptions are.
    pub(super) fn on_hold_report(&mut self, now: Time, from: Sender, holds: &HoldReport, out: &mut dyn Output) {
        if !self.has_log() {
            return self.tell_no_log(now, from.host, out);
        }
        if !self.store.debts.of.contains_key(&from.host) {
            // Its interest has not come, or has nothing that is durable: it is told when that comes.
            return self.owe(now, from.host, out);
        }
        let debt = self.store.debts.of.get_mut(&from.host).expect("it was just found");
        let report = (from.incarnation, holds.seq);
        if report <= debt.hold.report {
            return self.wait_for_debt(now, from.host, out);
        }
        let tick = |own: usize, of: fn(&whimbrel_wire::HeldStream) -> Option<Tick>| {
            holds.streams.get(own).and_then(of).unwrap_or(NOTHING)
        };
        let needed: OwnTicks = core::array::from_fn(|own| tick(own, |held| held.needed));
        let needed = if fault!(self, HoldLifted) { [NOTHING; OWN] } else { needed };
        debt.near = Some(core::array::from_fn(|own| tick(own, |held| held.connected)));
        let mut hold = Hold {
            name: core::mem::take(&mut debt.hold.name),
            report,
            version: holds.version,
            needed,
            deputies: holds.replicas.clone(),
            took: Vec::new(),
            has_ended: false,
            at: now,
            forfeited: debt.hold.forfeited,
            number: debt.hold.number,
            named: debt.hold.named,
        };
        if debt.is_forfeited() {
            hold.needed = [NOTHING; OWN];
        }
        let is_news = hold.needed != debt.hold.needed
            || hold.version != debt.hold.version
            || hold.deputies != debt.hold.deputies
            || debt.hold.has_ended;
        let is_due = now.since(debt.written) >= HOLD_WRITTEN_EVERY;
        (debt.hold, debt.heard) = (hold, now);
        debt.dropped.retain(|(version, _)| *version > holds.version);
        if debt.is_settled() {
            self.settle_debt(from.host);
            return;
        }
        if is_news || is_due {
            self.write_hold(now, from.host);
        }
        self.wait_for_debt(now, from.host, out);
    }

    /// Nothing is owed to a broker any more.
    fn settle_debt(&mut self, host: HostId) {
        let Some(debt) = self.store.debts.of.get(&host) else { return };
        let wishes: Vec<Wanted> = debt.entries.keys().cloned().collect();
        wishes.iter().for_each(|wish| self.owe_no_more(host, wish));
        let debt = self.store.debts.of.remove(&host).expect("it was just found");
        self.store.release.holds.change(&debt.counted, &[NOTHING; OWN]);
        self.store.write_queue.forget(|key| Key::Hold(host).put(key));
        self.store.write_queue.seal();
    }

    /// What a broker is owed is given up although it has not said that it does not need it: if it comes back, it is told that it is gone.
    fn forfeit(&mut self, now: Time, host: HostId) {
        let Some(debt) = self.store.debts.of.get(&host) else { return };
        if debt.is_forfeited() || !self.has_log() {
            return;
        }
        let wishes: Vec<Wanted> = debt.entries.keys().cloned().collect();
        wishes.iter().for_each(|wish| self.owe_no_more(host, wish));
        let debt = self.store.debts.of.get_mut(&host).expect("it was just found");
        (debt.hold.needed, debt.hold.forfeited) = ([NOTHING; OWN], [NOTHING; OWN]);
        (debt.hold.deputies, debt.hold.took) = (Vec::new(), Vec::new());
        debt.dropped.clear();
        self.write_hold(now, host);
        if let Some(overlay) = self.overlay.as_deref_mut() {
            overlay.stats.debts_forfeited += 1;
        }
    }

    /// Gives up what is owed to brokers that were not heard of for longer than any session lives.
    pub(super) fn expire_debts(&mut self, now: Time) {
        let life = self.sessions.limits.session_expiry_max;
        let debts = self.store.debts.of.iter();
        let due =
            debts.filter(|(_, debt)| !debt.is_forfeited() && debt.hold.at.after(life) < now).map(|(host, _)| *host);
        let due: Vec<HostId> = due.collect();
        due.into_iter().for_each(|host| self.forfeit(now, host));
    }

    /// A broker will never come back as the host it was: its deputies say when they have taken over what it had. `is_retired`: nobody takes it over.
    pub(super) fn debtor_ended(&mut self, now: Time, host: HostId, is_retired: bool) {
        if is_retired {
            return self.forfeit(now, host);
        }
        let Some(debt) = self.store.debts.of.get_mut(&host) else { return };
        if !core::mem::replace(&mut debt.hold.has_ended, true) && self.has_log() {
            self.write_hold(now, host);
            self.look_at_taken(host);
        }
    }

    /// A deputy has taken over all that it had of a keeper's sessions, also if that was nothing, and what it holds for them is durable.
    pub(in crate::overlay) fn took(&mut self, now: Time, keeper: HostId, deputy: HostId) {
        let Some(debt) = self.store.debts.of.get_mut(&keeper) else { return };
        if self.store.disk == crate::store::Disk::Poisoned
            || debt.hold.took.contains(&deputy)
            || !debt.hold.deputies.contains(&deputy)
        {
            return;
        }
        debt.hold.took.push(deputy);
        self.write_hold(now, keeper);
        self.look_at_taken(keeper);
    }

    fn look_at_taken(&mut self, keeper: HostId) {
        if self.store.debts.of.get(&keeper).is_some_and(Debt::is_taken_over) {
            self.settle_debt(keeper);
        }
    }

    /// Brokers to whom an earlier version owed something are named in filter records from now on.
    fn number_debtors(&mut self) {
        let named = self.streams.own.assigned();
        let unnumbered = |(host, debt): (&HostId, &Debt)| debt.hold.number.is_none().then_some(*host);
        let hosts: Vec<HostId> = self.store.debts.of.iter().filter_map(unnumbered).collect();
        for host in hosts {
            let number = self.store.debts.free_number();
            let hold = &mut self.store.debts.of.get_mut(&host).expect("it was just found").hold;
            (hold.number, hold.named) = (Some(number), named);
            self.store.write_queue.put(|key| Key::Hold(host).put(key), |value| hold.put_versioned(value));
            self.store.write_queue.seal_large();
        }
    }

    /// What others are owed is owed again after a restart, before anything is accepted.
    pub(crate) fn restore_debts(&mut self, now: Time, restored: Restored) {
        self.restore_ended(restored.ended);
        for (host, hold) in restored.holds {
            self.store.debts.of.insert(host, Debt::restored(now, hold));
        }
        self.number_debtors();
        for (host, number, entry) in &restored.entries {
            let entry = OwedEntry::read_versioned(entry).expect("it was read before");
            let wished = self.wished(entry.filter);
            let Some(debt) = self.store.debts.of.get_mut(host) else {
                // Its hold was to be forgotten after it.
                self.store.write_queue.forget(|key| Key::Owed(*host, *number).put(key));
                self.store.write_queue.seal_large();
                continue;
            };
            let OwedEntry { version, begin, filter, selector } = entry;
            let in_index = understood(selector);
            let wish = self.router.insert_wish(wished, in_index.as_ref(), debt.wisher());
            debt.last = debt.last.max(*number);
            debt.version = debt.version.max(version);
            let owed = Owed { number: *number, version, begin, wish };
            debt.entries.insert((filter.into(), selector.map(Box::from)), owed);
        }
        for debt in self.store.debts.of.values_mut() {
            let held = debt.holds();
            self.store.release.holds.change(&debt.counted, &held);
            debt.counted = held;
        }
        self.store.write_queue.seal();
    }
}
