//! Asked → written. Subscriptions of sessions that are remembered are written first, and take
//! effect when that is durable: from the request on their events are logged, from its commit on
//! they are delivered. Others are made at once.

use whimbrel_event::Time;
use whimbrel_selector::SharedFilter;

use super::machine::{Asked, Asker, Change, LoggedFrom, Reserved, Written, WrittenEnd, WrittenFilter};
use super::make::NewFilter;
use super::{FormerSelector, Request, SubscriptionRecord, SubscriptionSpec, remembered};
use crate::api::{Durability, Filter, Granted, Kick, Link, Output, Refusal, Start};
use crate::broker::Broker;
use crate::route::{NO_CURSOR, NO_GROUP};
use crate::session::{NOBODY, Pause};
use crate::store::{DurableNo, Key, OwnTicks, Wait};

/// Former selectors of a subscription under which it still has events to get.
const FORMER_SELECTORS_MAX: usize = 4;

/// Requests of one session that may wait for earlier ones. Above, its client is not read.
const ASKED_MAX: u32 = 1024;

/// At this number of waiting requests, a paused client is read again.
const ASKED_LOW: u32 = ASKED_MAX / 2;

/// As [`ASKED_MAX`], with requests that were received before reading stopped: the number of packet
/// identifiers that tell them apart.
const ASKED_END: u32 = u16::MAX as u32;

/// The filters of one SUBSCRIBE that are written so far.
#[derive(Debug, Default)]
struct WrittenSoFar {
    filters: Vec<(Box<str>, Option<DurableNo>)>,
    selector_bytes: usize,
}

impl WrittenSoFar {
    /// The number that a filter has been assigned already: one SUBSCRIBE may have a filter twice.
    fn number(&self, filter: &str) -> Option<DurableNo> {
        self.filters.iter().find(|(known, _)| &**known == filter).and_then(|(_, number)| *number)
    }
}

impl Broker {
    /// Handles a SUBSCRIBE.
    pub(crate) fn subscribe(&mut self, now: Time, link: Link, tag: u16, filters: &[Filter<'_>], out: &mut dyn Output) {
        let (index, whom) = (self.sessions.of(link), self.sessions.whom(link));
        let asker = Asker::of(&self.sessions, index, whom, tag);
        if self.remembers(index) {
            if self.sessions.get(index).memory.pending.has_changes() {
                let change = Change::Subscribe(filters.iter().map(Request::keep).collect());
                return self.wait_for_earlier(now, asker, change, out);
            }
            return self.write(asker, filters);
        }
        if self.sessions.get(index).memory.is_kept {
            return self.subscribe_without_log(asker, filters, out);
        }
        let granted = filters.iter().map(|asked| {
            let (asked, is_less) = self.grant(index, asked);
            NewFilter { asked, is_less, logged: Ok(None) }
        });
        let granted = granted.collect();
        self.make(now, asker, granted, true, out);
    }

    /// Handles an UNSUBSCRIBE.
    pub(crate) fn unsubscribe(&mut self, now: Time, link: Link, tag: u16, filters: &[&str], out: &mut dyn Output) {
        let (index, whom) = (self.sessions.of(link), self.sessions.whom(link));
        let asker = Asker::of(&self.sessions, index, whom, tag);
        if self.remembers(index) {
            if self.sessions.get(index).memory.pending.has_changes() {
                let change = Change::Unsubscribe(filters.iter().map(|text| Box::from(*text)).collect());
                return self.wait_for_earlier(now, asker, change, out);
            }
            return self.write_end(asker, filters);
        }
        if self.sessions.get(index).memory.is_kept {
            // After a restart the subscription would be there again.
            return self.kick(now, index, Kick::LogFailed, out);
        }
        let existed = self.end_subscriptions(index, filters);
        self.answer_end(now, asker, existed, out);
    }

    /// Answers a SUBSCRIBE after the log has failed: nothing can be remembered, so subscriptions
    /// stay as they are, and new ones are refused.
    fn subscribe_without_log(&mut self, asker: Asker, filters: &[Filter<'_>], out: &mut dyn Output) {
        let known = |asked: &Filter<'_>| {
            let known = self.router.get(self.router.find(asker.index, asked.filter).ok_or(Refusal::LogFailed)?);
            let text = asked.selector.map(ToString::to_string);
            let kept = |spec: &SubscriptionSpec| (spec.granted_qos(), spec.no_local, spec.is_replier);
            let is_same = kept(&known.spec) == kept(&asked.spec);
            // A start position that is named would be forgotten, and the subscription would begin
            // elsewhere after the restart.
            let goes_on = !asked.spec.by_token && matches!(asked.start, Start::Own);
            if !is_same || !goes_on || known.selector.as_deref() != text.as_deref() {
                return Err(Refusal::LogFailed);
            }
            let durability = if known.spec.is_durable() { Durability::Durable } else { asked.spec.durability };
            Ok(Granted {
                qos: known.spec.qos,
                durability,
                is_less: false,
                begins: None,
                infeasible: None,
                refused: None,
            })
        };
        let results: Vec<_> = filters.iter().map(known).collect();
        out.subscribed(asker.whom.link, asker.tag, &results, &[]);
    }

    fn wait_for_earlier(&mut self, now: Time, asker: Asker, change: Change, out: &mut dyn Output) {
        let Asker { index, whom, .. } = asker;
        let pending = &mut self.sessions.get_mut(index).memory.pending;
        if pending.later >= ASKED_END {
            return self.kick(now, index, Kick::AsksTooMuch, out);
        }
        pending.later += 1;
        let place = pending.asked;
        pending.asked = place.wrapping_add(1);
        let batch = self.store.commit_queue.last();
        self.sessions.enter_commit_queue(whom);
        self.store.commit_queue.push(batch, Wait::Asked(Box::new(Asked { asker, place, change })));
        if self.sessions.get(index).memory.pending.later > ASKED_MAX
            && let Some(link) = self.sessions.set_paused(index, Pause::Asks, true)
        {
            self.sessions.stats.subscribers_held += 1;
            out.pause(link);
        }
    }

    /// A request that waited for earlier ones has its turn. If its client is gone, it is dropped.
    pub(crate) fn on_asked(&mut self, asked: Asked, present: bool, out: &mut dyn Output) {
        let Asker { index, number, whom, .. } = asked.asker;
        if self.sessions.is_numbered(index, number) {
            let pending = &mut self.sessions.get_mut(index).memory.pending;
            if pending.turns != asked.place || present && pending.structural > 0 {
                // It is the turn of another, or an earlier one is not done.
                if present {
                    self.sessions.enter_commit_queue(whom);
                }
                let batch = self.store.commit_queue.last();
                return self.store.commit_queue.push(batch, Wait::Asked(Box::new(asked)));
            }
            (pending.later, pending.turns) = (pending.later - 1, asked.place.wrapping_add(1));
            if pending.later <= ASKED_LOW
                && let Some(link) = self.sessions.set_paused(index, Pause::Asks, false)
            {
                out.resume(link);
            }
        }
        if !present {
            return;
        }
        match asked.change {
            Change::Subscribe(requests) => {
                let filters: Vec<_> = requests.iter().map(Request::view).collect();
                self.write(asked.asker, &filters);
            }
            Change::Unsubscribe(texts) => {
                let filters: Vec<_> = texts.iter().map(|text| &**text).collect();
                self.write_end(asked.asker, &filters);
            }
        }
    }

    /// Writes the subscriptions that are asked for.
    fn write(&mut self, asker: Asker, filters: &[Filter<'_>]) {
        let assigned = self.streams.own.assigned();
        let mut so_far = WrittenSoFar::default();
        let filters = filters.iter().map(|asked| {
            let (granted, is_less) = self.grant(asker.index, asked);
            let result = self.write_one(asker.index, &granted, &assigned, &mut so_far);
            self.store.write_queue.seal_large();
            WrittenFilter { request: Request::keep(&granted), is_less, result }
        });
        let filters = filters.collect();
        self.wait_for_commit(asker, Wait::Written(Box::new(Written { asker, filters, at: self.now })));
    }

    /// Writes a shared subscription's subscription of its own session. Nothing answers that.
    ///
    /// # Errors
    /// When it may not be made or changed.
    pub(crate) fn write_within(&mut self, own: u32, asked: &Filter<'_>, assigned: &OwnTicks) -> Result<(), Refusal> {
        let reserved = self.write_one(own, asked, assigned, &mut WrittenSoFar::default())?;
        let asker = Asker::of(&self.sessions, own, NOBODY, 0);
        let filters = vec![WrittenFilter { request: Request::keep(asked), is_less: false, result: Ok(reserved) }];
        self.wait_for_commit(asker, Wait::Written(Box::new(Written { asker, filters, at: self.now })));
        Ok(())
    }

    /// Queues a change of a session's subscriptions until the write queue's last batch is durable.
    fn wait_for_commit(&mut self, asker: Asker, wait: Wait) {
        let batch = self.store.write_queue.seal();
        self.sessions.get_mut(asker.index).memory.pending.structural += 1;
        self.sessions.enter_commit_queue(asker.whom);
        self.store.commit_queue.push(batch, wait);
    }

    /// Writes the record of a subscription, and has its events logged.
    ///
    /// # Errors
    /// When it may not be made.
    fn write_one(
        &mut self,
        index: u32,
        asked: &Filter<'_>,
        assigned: &OwnTicks,
        so_far: &mut WrittenSoFar,
    ) -> Result<Reserved, Refusal> {
        let text = asked.selector.map(ToString::to_string);
        self.check_subscription(index, asked, (so_far.filters.len(), so_far.selector_bytes))?;
        let shared = SharedFilter::parse(asked.filter).expect("it was just checked");
        let is_shared = shared.group.is_some();
        let group = if is_shared { self.expect_member(index, asked, &shared)? } else { None };
        let is_durable = asked.spec.is_durable() && group.is_none();
        let known = self.router.find(index, asked.filter).map(|id| self.router.get(id));
        let durable = known.filter(|known| known.spec.is_durable() && known.group == NO_GROUP).map(|known| {
            self.cursors.get(known.cursor).durable.as_deref().expect("a durable subscription has what is durable of it")
        });
        self.store.disk.check_subscription(is_durable, durable.is_none())?;
        let is_other = known.is_some_and(|known| known.selector.as_deref() != text.as_deref());
        let mut old: Vec<FormerSelector<'_>> =
            durable.map_or(Vec::new(), |durable| durable.rare.old.iter().map(|old| old.view()).collect());
        let until = (is_other && durable.is_some()).then_some(*assigned);
        let until = if fault!(self, SelectorAtOnce) { None } else { until };
        if let Some(upto) = until {
            if old.len() >= FORMER_SELECTORS_MAX {
                return Err(Refusal::TooManyChanges);
            }
            let selector = known.and_then(|known| known.selector.as_deref());
            old.push(FormerSelector { selector, upto, remote: Vec::new() });
        }
        let stands = || self.record_start(index, known.map(|known| known.cursor), asked, assigned);
        let (start, is_new) = (durable.map_or_else(stands, |durable| durable.start.all()), durable.is_none());
        let number = durable.map(|durable| durable.number).or_else(|| so_far.number(asked.filter));
        let number = match (is_durable, number) {
            (false, _) => None,
            (true, Some(number)) => Some(number),
            (true, None) => Some(self.store.numbers.next_durable(&mut self.store.write_queue)),
        };
        let spec = SubscriptionSpec { qos: asked.spec.granted_qos(), ..asked.spec };
        let record = SubscriptionRecord { number, spec, start, selector: text.as_deref(), old };
        let (session, write_queue) = (self.sessions.get(index).memory.number, &mut self.store.write_queue);
        write_queue.put(|key| Key::Subscription(session, asked.filter).put(key), |value| record.put_versioned(value));
        so_far.filters.push((asked.filter.into(), number));
        so_far.selector_bytes += text.as_ref().map_or(0, String::len);
        let logged = number.map(|number| LoggedFrom { number, start, newest: start, until });
        let cursor = known.map_or(NO_CURSOR, |known| known.cursor);
        let interest = number.filter(|_| is_new || is_other).map(|number| {
            if is_new {
                self.store.filters.asking.insert(number, start);
            }
            self.router.insert_interest(shared.filter, asked.selector, Some((number, cursor)))
        });
        Ok(Reserved { logged, interest, group })
    }

    /// Ends subscriptions, and writes that.
    fn write_end(&mut self, asker: Asker, filters: &[&str]) {
        let Asker { index, number, .. } = asker;
        let mut interests = Vec::new();
        for text in filters {
            let Some(id) = self.router.find(index, text) else { continue };
            let known = self.router.get(id);
            let group = known.group;
            self.store.write_queue.forget(|key| Key::Subscription(number, text).put(key));
            if group != NO_GROUP {
                let filter = SharedFilter::parse(text).expect("checked when it was made").filter;
                let interest = self.interest_if_last(index, group, filter);
                interests.extend(interest.map(|interest| (Box::from(*text), interest)));
            } else if known.spec.is_durable() {
                let durable = self.cursors.get(known.cursor).durable.as_ref().expect("a durable subscription").number;
                self.store.write_queue.forget(|key| Key::Position(durable).put(key));
                let selector = known.selector.as_deref().map(remembered);
                let filter = SharedFilter::parse(text).expect("checked when it was made").filter;
                // Its later events are behind its end in the log, too: no reader looks for them.
                interests.push((Box::from(*text), self.router.insert_interest(filter, selector.as_ref(), None)));
            }
            self.store.write_queue.seal_large();
        }
        let existed = self.end_subscriptions(index, filters);
        self.wait_for_commit(asker, Wait::WrittenEnd(Box::new(WrittenEnd { asker, existed, interests })));
    }
}
