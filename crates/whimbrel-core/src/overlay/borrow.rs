//! Reads of other brokers' logs: parts that durable subscriptions lack are asked for, once for all
//! subscriptions with positions near each other.

use core::time::Duration;
use std::collections::BTreeMap;

use whimbrel_event::{Event, EventId, PubendId, Tick, Time};
use whimbrel_net::interest::reduce::{Even, Reduction};
use whimbrel_selector::{SharedFilter, TopicName};
use whimbrel_wire::{BrokerMessage, ReadAsk, ReadTold, compact};

use super::Due;
use super::messages::Sender;
use crate::api::Output;
use crate::broker::Broker;
use crate::store::{DurableNo, FilterEntries, REMOTE_MEMBERS_MAX, ToldPart};

/// How long a subscription in catch-up waits for others at the same place: many of them return at
/// once.
pub const READ_GRACE: Duration = Duration::from_millis(5);

/// Most entries of the interest in one question; a larger interest is reduced to this number.
const ENTRIES: usize = whimbrel_wire::READ_ENTRIES_MAX;

impl Broker {
    /// Schedules questions for another broker's log, parts of which subscriptions wait for.
    pub(crate) fn read_remote_soon(&mut self, now: Time, pubend: PubendId) {
        let Some(overlay) = self.overlay.as_deref_mut() else { return };
        if overlay.logs.reading.insert(pubend) {
            overlay.net.set_timer(now + READ_GRACE, Due::Read(pubend));
        }
    }

    /// Asks for the parts of another broker's log that subscriptions wait for, and repeats
    /// questions that were not answered.
    pub(super) fn read_remote(&mut self, now: Time, pubend: PubendId, out: &mut dyn Output) {
        if let Some(overlay) = self.overlay.as_deref_mut() {
            overlay.logs.reading.remove(&pubend);
        }
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
        let Some(overlay) = self.overlay.as_deref() else { return };
        let own = Sender { host: overlay.net.host, incarnation: overlay.net.incarnation };
        for (kind, body) in &frames {
            if let Ok(BrokerMessage::ReadAsk(ask)) = BrokerMessage::decode(*kind, body) {
                self.pass_question(now, (own, 0, true), &ask, out);
            }
        }
        if let Some(overlay) = self.overlay.as_deref_mut() {
            overlay.net.stats.reads_out += frames.len() as u64;
            if let Some(at) = next.filter(|_| overlay.logs.reading.insert(pubend)) {
                overlay.net.set_timer(at, Due::Read(pubend));
            }
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
        let Some(overlay) = self.overlay.as_deref_mut() else { return };
        let Some(pubend) = self.store.remote_reads.stream_of(told.number).filter(|pubend| pubend.host() == from.host)
        else {
            overlay.net.stats.reads_late += 1;
            return;
        };
        let mut events = Vec::with_capacity(told.events.len());
        for (tick, bytes) in &told.events {
            let id = EventId { pubend, tick: *tick };
            let Ok(mut event) = compact::read(bytes, id) else {
                overlay.net.stats.messages_refused += 1;
                return;
            };
            if TopicName::new(event.event.topic).is_err() {
                overlay.net.stats.messages_refused += 1;
                return;
            }
            // Clocks differ: the rest of the event's lifetime counts from here.
            let age = Time::from_nanos(told.now).since(event.accepted);
            event.event.expires = event.event.expires.map(|expires| {
                let lifetime = expires.since(event.accepted);
                now + lifetime.saturating_sub(age)
            });
            event.event.headers.retain = told.retained.binary_search(tick).is_ok();
            events.push(Event::keep(id, event.accepted, &event.event));
        }
        overlay.net.stats.events_borrowed += events.len() as u64;
        let told_part = ToldPart { upto: told.upto, released: told.released, lost: told.lost.clone(), events };
        let Some((pubend, cursors)) = self.store.remote_reads.keep(from.host, told.number, told_part) else { return };
        for id in cursors {
            self.rejoin(id, pubend);
        }
        // The next part is asked for at once, not when this question would have been repeated.
        if let Some(overlay) = self.overlay.as_deref_mut() {
            overlay.logs.reading.remove(&pubend);
        }
        self.read_remote_soon(now, pubend);
    }
}
