//! Written → in force. Subscriptions are made, changed and ended here, also those of restored and
//! imported sessions.

use whimbrel_event::{Domains, Qos, Time};
use whimbrel_selector::SharedFilter;

use super::machine::{Asker, InForce, LoggedFrom, Made, Reserved, Written, WrittenEnd, WrittenFilter};
use super::{Request, SubscriptionSpec};
use crate::api::{Durability, Filter, Granted, Output, Refusal, Start};
use crate::broker::Broker;
use crate::cursor::{BeginAt, Follow};
use crate::overlay::{DomainPlace, Overlay};
use crate::route::{NO_CURSOR, NO_GROUP, Subscription};
use crate::store::Key;

/// A subscription that is about to be made or changed.
#[derive(Debug)]
pub(super) struct NewFilter<'a> {
    /// The request as it is granted.
    pub(super) asked: Filter<'a>,
    /// The durability is less than the client has asked for.
    pub(super) is_less: bool,
    /// Its part of the log if it is durable, or why it is refused.
    pub(super) logged: Result<Option<LoggedFrom>, Refusal>,
}

impl Broker {
    /// A SUBSCRIBE is durable: its subscriptions are made. The client is answered if it is
    /// `present`.
    pub(crate) fn on_written(&mut self, now: Time, written: Written, present: bool, out: &mut dyn Output) {
        let Written { asker, filters, at } = written;
        let Asker { index, number, .. } = asker;
        let mut new = Vec::with_capacity(filters.len());
        for WrittenFilter { request, is_less, result } in &filters {
            let mut logged = result.as_ref().map(|reserved| reserved.logged.clone()).map_err(|refusal| *refusal);
            if let Ok(Some(logged)) = &mut logged
                && let Some(newest) = self.store.filters.asking.remove(&logged.number)
            {
                logged.newest = newest;
            }
            new.push(NewFilter { asked: request.view(), is_less: *is_less, logged });
        }
        let is_there = self.sessions.is_numbered(index, number);
        if is_there {
            self.sessions.get_mut(index).memory.pending.structural -= 1;
            for text in self.make(now, asker, new, present, out) {
                // It was written, but cannot be made: for instance, its start position is invalid.
                self.remember_subscription(index, &text);
            }
            self.count_wait_since(now, asker, at);
            if !self.sessions.is_attached(index) {
                self.stay_behind(index);
            } else if !present {
                // The client that is connected now has not said where it stands.
                filters.iter().for_each(|filter| self.await_start(index, filter.request.text()));
                self.resume(now, index, out);
            }
            if self.sessions.get(index).shares().is_some() {
                self.own_confirmed(now, index, out);
            }
        }
        for WrittenFilter { request, result, .. } in filters {
            self.release_reserved(asker, &request, result, is_there);
        }
    }

    /// Gives up what was set aside for a subscription until it was in force, and what is written of
    /// it if its session has ended meanwhile.
    fn release_reserved(&mut self, asker: Asker, request: &Request, result: Result<Reserved, Refusal>, is_there: bool) {
        let Ok(Reserved { logged, interest, group }) = result else { return };
        if !is_there {
            self.store.write_queue.forget(|key| Key::Subscription(asker.number, request.text()).put(key));
            if let Some(logged) = &logged {
                self.store.write_queue.forget(|key| Key::Position(logged.number).put(key));
            }
            self.store.write_queue.seal_large();
        }
        if let Some(group) = group {
            self.expect_no_more(group);
        }
        if let Some(interest) = interest {
            let filter = SharedFilter::parse(request.text()).expect("it was checked").filter;
            self.router.remove_interest(filter, interest);
        }
    }

    /// An UNSUBSCRIBE is durable. The client is answered if it is `present`.
    pub(crate) fn on_written_end(&mut self, now: Time, written: WrittenEnd, present: bool, out: &mut dyn Output) {
        let WrittenEnd { asker, existed, interests } = written;
        for (text, interest) in interests {
            let filter = SharedFilter::parse(&text).expect("it was a subscription").filter;
            self.router.remove_interest(filter, interest);
        }
        if self.sessions.is_numbered(asker.index, asker.number) {
            self.sessions.get_mut(asker.index).memory.pending.structural -= 1;
        }
        if present {
            self.answer_end(now, asker, existed, out);
        }
    }

    /// Makes or changes subscriptions of a session, or refuses them for the reason given, and goes
    /// on to the answer unless the client is not `present`. Returns the filters that could not be
    /// made although they were not refused before.
    pub(super) fn make(
        &mut self,
        now: Time,
        asker: Asker,
        filters: Vec<NewFilter<'_>>,
        present: bool,
        out: &mut dyn Output,
    ) -> Vec<Box<str>> {
        let index = asker.index;
        let (mut made, mut failed) = (Vec::with_capacity(filters.len()), Vec::new());
        for NewFilter { asked, is_less, logged } in &filters {
            let result = logged.as_ref().map_err(|refusal| *refusal);
            let result = result.and_then(|logged| self.make_subscription(now, index, asked, logged.as_ref()));
            if result.is_err() {
                self.sessions.stats.subscriptions_refused += 1;
                failed.extend(logged.is_ok().then(|| Box::from(asked.filter)));
            }
            let (qos, durability) = (asked.spec.granted_qos(), asked.spec.durability);
            let is_new = result == Ok(true);
            let result = result.map(|_| Granted {
                qos,
                durability,
                is_less: *is_less,
                begins: None,
                infeasible: None,
                refused: None,
            });
            made.push(Made { request: Request::keep(asked), is_new, result });
        }
        self.record_changed(now, index, true);
        let is_member = !self.sessions.get(index).groups.is_empty();
        if present {
            if is_member {
                // Before the interests are known that the answer waits for.
                self.adopt_groups(now, index, out);
            }
            let begun = self.serial;
            if let Some(in_force) = self.wait_for_brokers(now, InForce { asker, made, begun }) {
                self.answer_subscribe(now, in_force, Vec::new(), out);
            }
        }
        if is_member {
            self.attend_all(now, index, out);
        }
        if present {
            self.resume(now, index, out);
        }
        failed
    }

    /// The part of a request that is granted, and whether that is less. The durability depends on
    /// what the broker and the session have.
    pub(super) fn grant<'a>(&self, index: u32, asked: &Filter<'a>) -> (Filter<'a>, bool) {
        let mut granted = *asked;
        let mut is_less = false;
        let Ok(SharedFilter { group, filter }) = SharedFilter::parse(asked.filter) else { return (granted, false) };
        let logs = self.remembers(index);
        let keeps = asked.spec.qos > Qos::AtMostOnce || asked.spec.by_token;
        let durability = &mut granted.spec.durability;
        *durability = match *durability {
            Durability::Queued | Durability::Durable if group.is_some() => {
                let lasts = logs && asked.spec.qos > Qos::AtMostOnce && !self.router.is_volatile(filter);
                is_less = !lasts && *durability == Durability::Durable;
                if lasts { Durability::Durable } else { Durability::Queued }
            }
            Durability::Queued | Durability::Durable if logs && keeps => Durability::Durable,
            Durability::Durable => {
                is_less = true;
                Durability::SemiDurable
            }
            other => other,
        };
        if *durability == Durability::Durable && self.router.is_volatile(filter) {
            (*durability, is_less) = (Durability::SemiDurable, true);
        }
        (granted, is_less)
    }

    /// Domains that alone may carry events of some topics under a filter, if this broker, or the
    /// home of the group, is in none of them, or there is no path to another broker in them.
    pub(super) fn refused_domains(&mut self, now: Time, text: &str) -> Option<Domains> {
        let filter = SharedFilter::checked(text);
        let home = filter.group.and_then(|_| self.choice(now, text)).unwrap_or(self.overlay.net.host());
        let Overlay { net, .. } = &mut self.overlay;
        let mut is_refused = |domains: &&Domains| {
            let label = domains.label();
            !net.domains().may_carry_here(label)
                || !net.domains().may_carry(label, home)
                || net.domains().is_divided(label)
        };
        let refused = self.router.profiles().domains_of(filter.filter).find(|domains| is_refused(domains)).cloned();
        if refused.is_some() {
            net.domains().record_refusal(DomainPlace::Subscribe);
        }
        refused
    }

    /// Checks whether a subscription may be made or changed, after `requested` others and
    /// `requested_bytes` bytes of selectors in the same request. Returns the bytes that its
    /// session's selectors take together then.
    ///
    /// # Errors
    /// When the request makes no sense, or exceeds a bound of the session.
    pub(crate) fn check_subscription(
        &self,
        index: u32,
        asked: &Filter<'_>,
        (requested, requested_bytes): (usize, usize),
    ) -> Result<usize, Refusal> {
        let shared = SharedFilter::parse(asked.filter).map_err(Refusal::BadFilter)?;
        let is_member = self.is_member(index, &shared);
        if is_member && asked.spec.no_local {
            return Err(Refusal::SharedNoLocal);
        }
        let SubscriptionSpec { durability, notices, by_token, .. } = asked.spec;
        let is_semi_durable = durability == Durability::SemiDurable;
        let is_tracked = is_semi_durable || notices || by_token || !matches!(asked.start, Start::Own);
        if is_member && is_tracked {
            return Err(Refusal::SharedTracked);
        }
        if is_member && asked.spec.is_replier {
            return Err(Refusal::SharedReplier);
        }
        let known = self.router.find(index, asked.filter);
        let held = self.sessions.get(index).subscriptions.len();
        if known.is_none() && held + requested >= self.sessions.limits.subscriptions_per_session {
            return Err(Refusal::TooManySubscriptions);
        }
        let bytes = asked.selector.map_or(0, |selector| selector.to_string().len());
        let before = known.map_or(0, |id| self.router.get(id).selector_bytes as usize);
        let all = self.sessions.get(index).selector_bytes - before + bytes;
        if bytes > before && all + requested_bytes > self.sessions.limits.selector_bytes_per_session {
            return Err(Refusal::TooManySelectors);
        }
        Ok(all)
    }

    /// Makes or changes a subscription; true if it is new.
    pub(crate) fn make_subscription(
        &mut self,
        now: Time,
        index: u32,
        asked: &Filter<'_>,
        logged: Option<&LoggedFrom>,
    ) -> Result<bool, Refusal> {
        let all = self.check_subscription(index, asked, (0, 0))?;
        let shared = SharedFilter::parse(asked.filter).expect("it was just checked");
        let known = self.router.find(index, asked.filter);
        let cursor = known.map(|id| self.router.get(id).cursor).filter(|cursor| *cursor != NO_CURSOR);
        // Events that are still to come under another selector may be in any partition.
        let changes = logged.is_some_and(|logged| logged.until.is_some());
        let old = cursor.and_then(|id| self.cursors.durable(id)).is_some_and(|durable| !durable.rare.old.is_empty());
        let partitions = self.cache.candidates(shared.filter, asked.selector.filter(|_| !changes && !old));
        let begin = self
            .begin(now, (index, known.is_none()), (asked, shared.filter), cursor, &partitions)
            .inspect_err(|_| self.sessions.stats.starts_refused += 1)?;
        let is_member = self.is_member(index, &shared);
        let group = if is_member { self.join_group(index, asked, shared.filter)? } else { NO_GROUP };
        let lasts = is_member && asked.spec.is_durable();
        let spec = asked.spec.in_force(logged.is_some() || lasts);
        // The shared subscription's own session has the position.
        let durability = if lasts { Durability::Queued } else { asked.spec.durability };
        let asked = &Filter { spec: SubscriptionSpec { durability, ..asked.spec }, ..*asked };
        let selector_bytes = self.count_selector(index, known, all);
        let selector = asked.selector;
        let text: Option<Box<str>> = selector
            .filter(|_| self.remembers(index) || self.overlay.is_open())
            .map(|selector| selector.to_string().into());
        let begins = matches!(begin, BeginAt::CatchUp(_));
        let follow = Follow { index, asked, cursor, partitions, begin, logged };
        if let Some(id) = known {
            let cursor = self.follow(now, id, follow);
            let change = |s: &mut Subscription| {
                (s.spec, s.cursor, s.selector_bytes, s.selector) = (spec, cursor, selector_bytes, text);
            };
            let stood = self.router.get(id).spot.map(|spot| spot.place);
            self.router.update(id, change, shared.filter, selector);
            let is_other = self.router.get(id).spot.map(|spot| spot.place) != stood;
            self.await_interest_again(asked, shared.filter, (id, cursor), (begins, is_other));
            return Ok(false);
        }
        let new = Subscription {
            session: index,
            text: asked.filter.into(),
            spec,
            group,
            cursor: NO_CURSOR,
            selector_bytes,
            selector: text,
            spot: None,
        };
        let id = self.router.insert(new);
        let cursor = self.follow(now, id, follow);
        self.router.place(id, cursor, shared.filter, selector);
        self.await_first_interest(index, (asked, shared.filter), (id, cursor));
        self.sessions.get_mut(index).record_subscription(id, group);
        Ok(true)
    }

    /// Records the bytes of all selectors of a session. Returns the part of this subscription, new
    /// or not.
    fn count_selector(&mut self, index: u32, known: Option<u32>, all: usize) -> u32 {
        let before = known.map_or(0, |id| self.router.get(id).selector_bytes as usize);
        let bytes = all + before - core::mem::replace(&mut self.sessions.get_mut(index).selector_bytes, all);
        u32::try_from(bytes).expect("selectors are bounded far below")
    }

    /// Ends subscriptions of a session; tells for each whether it existed.
    pub(crate) fn end_subscriptions(&mut self, index: u32, filters: &[&str]) -> Vec<bool> {
        let mut existed = Vec::with_capacity(filters.len());
        let (mut ended, mut left) = (Vec::new(), Vec::new());
        for text in filters {
            let known = self.router.find(index, text);
            existed.push(known.is_some());
            if let Some(id) = known {
                ended.push(id);
                let group = self.router.get(id).group;
                // A member with unsettled events of a shared subscription stays until they are
                // settled.
                let stays = group != NO_GROUP && self.sessions.get(index).inflight.has_of_group(group);
                let gone = self.remove_subscription(index, id, stays);
                if let Some((group, true)) = gone {
                    self.desert(self.now, group);
                    self.groups.wake_member(group, &mut self.sessions);
                }
                left.extend(gone.filter(|(_, lives)| !(stays && *lives)).map(|(group, _)| group));
            }
        }
        ended.sort_unstable();
        self.record_changed(self.now, index, true);
        let session = self.sessions.get_mut(index);
        session.subscriptions.retain(|id| ended.binary_search(id).is_err());
        if !left.is_empty() {
            left.sort_unstable();
            session.groups.retain(|group| left.binary_search(group).is_err());
            session.inflight.forget_groups(&left);
        }
        if self.retained.replays.has(index) {
            // A retained reading that has ended may have been in the way of others.
            self.turn_soon(index);
        }
        existed
    }

    /// Ends one subscription; the caller removes it from its session. Of a shared one, returns
    /// which, and whether it lives on with other members. With `stays`, the session remains a
    /// member until it has settled everything.
    pub(crate) fn remove_subscription(&mut self, index: u32, id: u32, stays: bool) -> Option<(u32, bool)> {
        let text = self.router.get(id).text.clone();
        let filter = SharedFilter::parse(&text).expect("checked when it was made").filter;
        let Subscription { group, selector_bytes, cursor, .. } = self.router.remove(id, filter);
        self.retained.replays.forget(index, id);
        if cursor != NO_CURSOR {
            self.unfollow(cursor, &text);
        }
        self.sessions.get_mut(index).selector_bytes -= selector_bytes as usize;
        (group != NO_GROUP).then(|| (group, self.leave_group(index, group, stays)))
    }
}
