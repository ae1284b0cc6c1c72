//! Reads of other brokers' logs: parts that durable subscriptions lack are asked for, once for all
//! subscriptions with positions near each other.
//!
//! Filter records tell beforehand which events of the own log another broker may want: a retention
//! hold has a number, under which the records name the events of its durable interest. That is true
//! of the entries that the hold had when an event was accepted. So each entry of a question is
//! looked up in the hold. The part of the log before all entries were there is read without
//! records; so is everything if an entry is not in the hold.

use core::time::Duration;
use std::collections::BTreeMap;

use whimbrel_event::{EventId, HostId, PubendId, Tick, Time};
use whimbrel_net::interest::reduce::{Even, Reduction};
use whimbrel_selector::{Selector, SharedFilter, TopicFilter, TopicName};
use whimbrel_wire::{BrokerMessage, ReadAsk, ReadTold, compact};

use super::Due;
use super::Sender;
use crate::api::Output;
use crate::broker::Broker;
use crate::cursor::NOTHING;
use crate::store::{
    DurableNo, FETCH_BYTES, FilterEntries, HeldInterest, HoldGiven, LENDER, LogPlan, RECORDS_BYTES, REMOTE_MEMBERS_MAX,
    ToldPart, WantedPart, stream_of,
};
use crate::stream::destinations::understood;

/// How long a subscription in catch-up waits for others at the same place: many of them return at
/// once.
pub const READ_GRACE: Duration = Duration::from_millis(5);

/// Most entries of the interest in one question; a larger interest is reduced to this number.
const ENTRIES: usize = whimbrel_wire::READ_ENTRIES_MAX;

impl Broker {
    /// Schedules questions for another broker's log, parts of which subscriptions wait for.
    pub(crate) fn read_remote_soon(&mut self, now: Time, pubend: PubendId) {
        if !self.overlay.is_open() {
            return;
        }
        let overlay = &mut self.overlay;
        if overlay.logs.reading.insert(pubend) {
            overlay.set_timer(now + READ_GRACE, Due::Read(pubend));
        }
    }

    /// Asks for the parts of another broker's log that subscriptions wait for, and repeats
    /// questions that were not answered.
    pub(super) fn read_remote(&mut self, now: Time, pubend: PubendId, out: &mut dyn Output) {
        self.overlay.logs.reading.remove(&pubend);
        if self.store.remote_reads.is_awaited(pubend) && self.awaits_grant(now, pubend, out) {
            return;
        }
        let mut waiting = self.who_reads(pubend);
        while self.store.remote_reads.has_place(pubend)
            && let Some((&after, _)) = waiting.first_key_value()
        {
            let near = Tick(after.0.saturating_add(self.store.remote_reads.span()));
            let mut members: Vec<(DurableNo, u32)> = Vec::new();
            while let Some(first) = waiting.first_entry().filter(|first| *first.key() <= near)
                && members.len() < REMOTE_MEMBERS_MAX
            {
                members.extend(first.remove());
            }
            let Some(passed) = self.streams.followed(pubend) else { break };
            let holes = members.iter().filter_map(|(_, id)| self.cursors.durable(*id));
            let upto = holes.map(|durable| durable.remote.holes.get(pubend)).fold(passed, Tick::max);
            if upto <= after {
                break;
            }
            self.add_followers((pubend, after), &mut members);
            let entries = self.entries_of(&mut members);
            let mut durable = members.iter().filter_map(|(_, id)| self.cursors.durable(*id));
            let is_strict = durable.any(|durable| durable.remote.resumes);
            let members = members.into_iter().collect();
            self.store.remote_reads.ask(now, (pubend, after, upto), members, (entries, is_strict));
        }
        let is_held = self.held_from(now, pubend);
        let mut frames = Vec::new();
        let next = self.store.remote_reads.due(now, pubend, |question| {
            let entries = question.entries.iter().map(|(filter, selector)| (&**filter, selector.as_deref()));
            let ask = ReadAsk {
                number: question.number,
                pubend: question.pubend,
                after: question.after,
                upto: question.upto,
                is_strict: question.is_strict,
                may_be_kept: !question.is_strict && is_held.is_some_and(|from| from <= question.after),
                entries: entries.collect(),
            };
            let mut body = Vec::new();
            let kind = BrokerMessage::ReadAsk(ask).encode(&mut body);
            frames.push((kind, body));
        });
        let overlay = &self.overlay;
        let own = Sender { host: overlay.net.host(), incarnation: overlay.net.incarnation() };
        for (kind, body) in &frames {
            if let Ok(BrokerMessage::ReadAsk(ask)) = BrokerMessage::decode(*kind, body) {
                self.pass_question(now, (own, 0, true), &ask, out);
            }
        }
        let overlay = &mut self.overlay;
        overlay.stats.reads_out += frames.len() as u64;
        if let Some(at) = next.filter(|_| overlay.logs.reading.insert(pubend)) {
            overlay.set_timer(at, Due::Read(pubend));
        }
    }

    /// Adds the subscriptions that still read what precedes this tick: they will need what follows
    /// it.
    fn add_followers(&self, (pubend, after): (PubendId, Tick), members: &mut Vec<(DurableNo, u32)>) {
        for (number, id) in self.store.remote_reads.followers(pubend, after) {
            let is_behind = |durable: &crate::cursor::Durable| {
                let cursor = self.cursors.get(id);
                let catch_up = cursor.catch_up.as_deref().map(|catch_up| catch_up.positions.get(pubend));
                let detached =
                    Some(durable.remote.detached.get(pubend)).filter(|_| durable.remote.detached.has(pubend));
                durable.number == number && detached.or(catch_up).is_some_and(|at| at <= after)
            };
            let has_room = members.len() < REMOTE_MEMBERS_MAX;
            if has_room && self.cursors.durable(id).is_some_and(is_behind) {
                members.push((number, id));
            }
        }
        members.sort_unstable();
        members.dedup();
    }

    /// The subscriptions that wait for a part of a stream that was not asked for, by their
    /// positions.
    fn who_reads(&mut self, pubend: PubendId) -> BTreeMap<Tick, Vec<(DurableNo, u32)>> {
        let mut all: BTreeMap<Tick, Vec<(DurableNo, u32)>> = BTreeMap::new();
        for (number, id) in self.store.remote_reads.unasked(pubend) {
            let durable = self.cursors.durable(id).filter(|durable| durable.number == number);
            match durable.filter(|durable| durable.remote.detached.has(pubend)) {
                Some(durable) => all.entry(durable.remote.detached.get(pubend)).or_default().push((number, id)),
                None => self.store.remote_reads.leave(pubend, number),
            }
        }
        all
    }

    /// The reduced interest of these subscriptions. A subscription whose interest does not fit is
    /// removed from `members`.
    fn entries_of(&self, members: &mut Vec<(DurableNo, u32)>) -> FilterEntries {
        let mut reduction = Reduction::new();
        members.retain(|(_, id)| {
            let known = self.router.get(self.cursors.get(*id).subscription);
            let filter = SharedFilter::parse(&known.text).expect("checked when it was made").filter;
            let present = known.selector.as_deref().map(crate::subscription::remembered);
            // Fences are defined at each broker separately.
            let present = present.filter(|selector| selector.fences().next().is_none());
            let old = self.cursors.durable(*id).map_or(&[][..], |durable| &durable.rare.old);
            let has_other = old.iter().any(|old| old.view().selector != known.selector.as_deref());
            let selector = present.as_ref().filter(|_| !has_other);
            reduction.insert(filter, selector).is_ok()
        });
        let entries = reduction.reduced(ENTRIES, &Even).iter();
        entries.map(|entry| (entry.filter.clone(), entry.selector.as_ref().map(|it| it.to_string().into()))).collect()
    }

    /// Takes in a part of another broker's log.
    pub(super) fn read_told(&mut self, now: Time, from: Sender, told: &ReadTold<'_>) {
        let overlay = &mut self.overlay;
        let Some(pubend) = self.store.remote_reads.stream_of(told.number).filter(|pubend| pubend.host() == from.host)
        else {
            overlay.stats.reads_late += 1;
            return;
        };
        let way = overlay.net.way(from.host);
        let mut events = Vec::with_capacity(told.events.len());
        for (tick, bytes) in &told.events {
            let id = EventId { pubend, tick: *tick };
            let Ok(mut event) = compact::read(bytes, id) else {
                overlay.net.refuse_message();
                return;
            };
            if TopicName::new(event.event.topic).is_err() {
                overlay.net.refuse_message();
                return;
            }
            event.arrive(now, Time::from_nanos(told.now).since(event.accepted) + way);
            event.event.headers.retain = told.retained.binary_search(tick).is_ok();
            events.push(event.keep());
        }
        overlay.stats.events_borrowed += events.len() as u64;
        let told_part = ToldPart { upto: told.upto, released: told.released, lost: told.lost.clone(), events };
        let Some((pubend, cursors)) = self.store.remote_reads.keep(from.host, told.number, told_part) else { return };
        for id in cursors {
            self.rejoin(id, pubend);
        }
        // The next part is asked for at once, not when this question would have been repeated.
        self.overlay.logs.reading.remove(&pubend);
        self.read_remote_soon(now, pubend);
    }
}

/// Most pairs of selectors that are compared for one question, to find whether one covers the
/// other.
const COMPARISONS_MAX: usize = 256;

/// If at least one of this many events with records may be wanted, the log is read in large parts.
const DENSE: usize = 16;

/// Knowledge of the part of an own stream that another broker asks for.
#[derive(Debug)]
pub(super) struct Foresight {
    own: usize,
    /// The number of the asker's hold in the records.
    number: DurableNo,
    /// The tick after which the records name everything that the asker wants.
    since: Tick,
    plan: LogPlan,
}

/// The next events of an own stream that another broker may want.
pub(super) enum NextWanted {
    /// Unknown until records have been read.
    Unknown,
    /// There are none up to this tick.
    Nothing(Tick),
    /// There is one behind `after`, and perhaps more up to `upto`; `bytes` of the log are worth
    /// reading at once.
    Something { after: Tick, upto: Tick, bytes: usize },
}

impl Foresight {
    /// Whether an event may be wanted.
    pub(super) fn wants(&self, tick: Tick) -> bool {
        self.plan.wants(tick)
    }

    /// Whether any event of a range may be wanted; its first tick is excluded.
    pub(super) fn wants_any(&self, (from, to): (Tick, Tick)) -> bool {
        self.plan.next(from).is_some_and(|tick| tick <= to)
    }

    /// Records the number of events of a part just read that may be wanted.
    pub(super) fn record_found(&mut self, found: usize) {
        self.plan.record_found(found);
    }
}

/// Whether `wide` lets everything through that `narrow` does. May be false where it does.
fn covers(wide: Option<&str>, narrow: Option<&Selector>) -> bool {
    match (understood(wide), narrow) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(wide), Some(narrow)) => wide.covers(narrow),
    }
}

/// The tick of an own stream after which all entries asked for were in the hold; [`NOTHING`] if one
/// is not, or if that cannot be decided.
///
/// An entry that is in the index now has been there since it began, so all events since then were
/// matched against it. Later changes of the entry do not affect the events up to now.
fn held_since(hold_given: &HoldGiven, own: usize, asked: &[(&str, Option<&str>)]) -> Tick {
    let mut looks = COMPARISONS_MAX;
    let mut since_when = |(filter, selector): &(&str, Option<&str>)| {
        let Ok(filter) = TopicFilter::new(filter) else { return Tick(0) };
        let narrow = understood(*selector);
        let mut since = NOTHING;
        for ((held, wide), HeldInterest { begin, .. }) in &hold_given.entries {
            if begin[own] >= since || !TopicFilter::checked(held).covers(filter) {
                continue;
            }
            let mut is_covered = wide.is_none() || wide.as_deref() == *selector;
            if !is_covered && looks > 0 {
                looks -= 1;
                is_covered = covers(wide.as_deref(), narrow.as_ref());
            }
            since = if is_covered { begin[own] } else { since };
        }
        since
    };
    asked.iter().fold(Tick(0), |since, entry| since.max(since_when(entry)))
}

impl Broker {
    /// Creates the knowledge of the part behind a tick of an own stream that another broker asks
    /// for.
    pub(super) fn foresee(
        &self,
        (asker, own): (HostId, usize),
        from: Tick,
        asked: &[(&str, Option<&str>)],
    ) -> Foresight {
        let hold_given = self.store.holds_given.of.get(&asker);
        let named = hold_given.and_then(|hold_given| {
            let since = held_since(hold_given, own, asked).max(hold_given.record.named[own]);
            Some((hold_given.record.number?.among_durable(), since))
        });
        let (number, since) = named.unwrap_or((DurableNo::default(), NOTHING));
        Foresight { own, number, since, plan: LogPlan::new(own, from) }
    }

    /// Finds the next events of a part of an own stream that another broker may want, and requests
    /// the records that have to be read for that.
    pub(super) fn look_ahead_for(&mut self, known: &mut Foresight, (from, upto): (Tick, Tick)) -> NextWanted {
        let Foresight { own, number, since, plan } = known;
        if plan.upto <= from && from < *since {
            plan.extend((*since).min(upto), None);
            plan.bytes = FETCH_BYTES;
        } else if plan.upto <= from {
            let stream = stream_of(*own, *number);
            let slice = self.store.reads.slice(stream, from);
            // One look through these records takes a turn.
            let mut budget = usize::MAX;
            if plan.read_on((from, upto), *number, slice, &mut budget).is_some() {
                self.store.reads.ask(LENDER, WantedPart { stream, after: from, upto, bytes: RECORDS_BYTES });
                return NextWanted::Unknown;
            }
            plan.bytes = if plan.is_dense(DENSE) { FETCH_BYTES } else { plan.bytes };
        }
        let ends = plan.upto.min(upto);
        match plan.next(from).filter(|tick| *tick <= ends) {
            Some(tick) => NextWanted::Something { after: Tick(tick.0 - 1), upto: ends, bytes: plan.bytes },
            None => NextWanted::Nothing(ends),
        }
    }
}
