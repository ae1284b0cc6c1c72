//! Making, changing and ending subscriptions.

use whimbrel_event::{Qos, Time};
use whimbrel_selector::SharedFilter;

use crate::api::{Durability, Filter, Granted, Kick, Link, Output, Refusal, RetainHandling, Start};
use crate::broker::Broker;
use crate::confirming::{Confirmed, PendingSubscription};
use crate::cursor::{Begin, Follow};
use crate::overlay::UnansweredSubscribe;
use crate::retained::REPLAY_SLICE;
use crate::route::{NO_CURSOR, NO_GROUP, Subscription};
use crate::store::Recipient;
use crate::subscription::SubscriptionSpec;

/// A subscription that is about to be made or changed.
#[derive(Debug)]
pub(crate) struct SubscriptionChange<'a> {
    pub(crate) asked: Filter<'a>,
    /// The durability is less than the client has asked for.
    pub(crate) is_less: bool,
    /// Its confirmed state if it is durable, or why it is refused.
    pub(crate) confirmed: Result<Option<Confirmed>, Refusal>,
}

impl Broker {
    pub(crate) fn subscribe(
        &mut self,
        now: Time,
        (link, tag): (Link, u16),
        filters: &[Filter<'_>],
        out: &mut dyn Output,
    ) {
        let (index, whom) = (self.sessions.of(link), self.sessions.whom(link));
        if self.remembers(index) {
            return self.ask_to_subscribe(now, (whom, tag), filters, out);
        }
        if self.sessions.get(index).memory.is_kept {
            return self.subscribe_without_log(index, (link, tag), filters, out);
        }
        let making = filters.iter().map(|asked| {
            let (asked, is_less) = self.grant(index, asked);
            SubscriptionChange { asked, is_less, confirmed: Ok(None) }
        });
        let making = making.collect();
        self.make_subscriptions(now, index, making, Some((whom, tag)), out);
    }

    /// Answers a SUBSCRIBE after the log has failed: nothing can be remembered, so subscriptions
    /// stay as they are, and new ones are refused.
    fn subscribe_without_log(
        &mut self,
        index: u32,
        (link, tag): (Link, u16),
        filters: &[Filter<'_>],
        out: &mut dyn Output,
    ) {
        let known = |asked: &Filter<'_>| {
            let known = self.router.get(self.router.find(index, asked.filter).ok_or(Refusal::LogFailed)?);
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
            Ok(Granted { qos: known.spec.qos, durability, is_less: false, begins: None })
        };
        let results: Vec<_> = filters.iter().map(known).collect();
        out.subscribed(link, tag, &results, &[]);
    }

    /// Makes or changes subscriptions of a session, each with its confirmed state if it is durable,
    /// or refuses them for the reason given. Answers the client if it is there. Returns the filters
    /// that could not be made although they were not refused before.
    pub(crate) fn make_subscriptions(
        &mut self,
        now: Time,
        index: u32,
        filters: Vec<SubscriptionChange<'_>>,
        answer: Option<(Recipient, u16)>,
        out: &mut dyn Output,
    ) -> Vec<Box<str>> {
        let mut results = Vec::with_capacity(filters.len());
        let mut fresh = Vec::with_capacity(filters.len());
        for SubscriptionChange { asked, is_less, confirmed } in &filters {
            let result = confirmed.as_ref().map_err(|refusal| *refusal);
            let result = result.and_then(|confirmed| self.add_subscription(now, index, asked, confirmed.as_ref()));
            if result.is_err() {
                self.sessions.stats.subscriptions_refused += 1;
            }
            fresh.push(result.is_ok_and(|new| new));
            let (qos, durability) = (asked.spec.granted_qos(), asked.spec.durability);
            results.push(result.map(|_| Granted { qos, durability, is_less: *is_less, begins: None }));
        }
        let failed =
            filters.iter().zip(&results).filter(|(making, result)| making.confirmed.is_ok() && result.is_err());
        let failed = failed.map(|(making, _)| making.asked.filter.into()).collect();
        self.record_changed(now, index, true);
        let Some((whom, tag)) = answer else {
            self.attend_all(now, index, out);
            return failed;
        };
        // Before the interests are known that the answer waits for.
        self.adopt_groups(now, index, out);
        let made = filters.iter().zip(fresh).zip(results);
        let made =
            made.map(|((making, new), result)| (PendingSubscription::keep(&making.asked), new, result)).collect();
        let begun = self.serial;
        if let Err(unanswered) = self.wait_for_brokers(now, UnansweredSubscribe { whom, tag, index, made, begun }) {
            self.answer_subscribed(now, unanswered, &[], out);
        }
        self.attend_all(now, index, out);
        self.resume(now, index, out);
        failed
    }

    /// Answers a SUBSCRIBE, names the brokers that do not know its interest yet, and lets its
    /// subscriptions read retained messages.
    pub(crate) fn answer_subscribed(
        &mut self,
        now: Time,
        UnansweredSubscribe { whom, tag, index, made, begun }: UnansweredSubscribe,
        pending: &[Box<str>],
        out: &mut dyn Output,
    ) {
        let mut results = Vec::with_capacity(made.len());
        for (asked, _, result) in &made {
            // The subscription may have ended meanwhile.
            let is_there = self.router.find(index, &asked.filter).is_some();
            let begins = (asked.wants_token() && is_there).then(|| self.begins(now, index, &asked.view()));
            results.push(result.clone().map(|granted| Granted { begins, ..granted }));
        }
        if let Some(overlay) = self.overlay.as_deref_mut() {
            overlay.net.own_interest.record_answered(now);
        }
        out.subscribed(whom.link, tag, &results, pending);
        for (asked, new, result) in &made {
            let wanted = match asked.view().retain_handling {
                RetainHandling::Send => true,
                RetainHandling::SendIfNew => *new,
                RetainHandling::DoNotSend => false,
            };
            if wanted && result.is_ok() {
                self.begin_to_read(index, &asked.filter, asked.view().selector, begun);
            }
        }
        self.read_retained(now, index, &mut { REPLAY_SLICE }, out);
    }

    /// The part of a request that is granted, and whether that is less. The durability depends on
    /// what the broker and the session have.
    pub(crate) fn grant<'a>(&self, index: u32, asked: &Filter<'a>) -> (Filter<'a>, bool) {
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

    /// Whether a subscription still has events to get under another selector than the one asked
    /// for. These may be in any partition of the cache.
    fn has_former_selectors(&self, cursor: Option<u32>, confirmed: Option<&Confirmed>) -> bool {
        let changes = confirmed.is_some_and(|confirmed| confirmed.until.is_some());
        changes || cursor.and_then(|id| self.cursors.durable(id)).is_some_and(|durable| !durable.rare.old.is_empty())
    }

    /// Makes or changes a subscription; true if it is new.
    pub(crate) fn add_subscription(
        &mut self,
        now: Time,
        index: u32,
        asked: &Filter<'_>,
        confirmed: Option<&Confirmed>,
    ) -> Result<bool, Refusal> {
        let all = self.check_subscription(index, asked, (0, 0))?;
        let shared = SharedFilter::parse(asked.filter).expect("it was just checked");
        let known = self.router.find(index, asked.filter);
        let cursor = known.map(|id| self.router.get(id).cursor).filter(|cursor| *cursor != NO_CURSOR);
        let partitions = self
            .cache
            .candidates(shared.filter, asked.selector.filter(|_| !self.has_former_selectors(cursor, confirmed)));
        let begin = self
            .begin(now, (index, known.is_none()), (asked, shared.filter), cursor, &partitions)
            .inspect_err(|_| self.sessions.stats.starts_refused += 1)?;
        let is_member = self.is_member(index, &shared);
        let group = if is_member { self.join_group(index, asked, shared.filter)? } else { NO_GROUP };
        let lasts = is_member && asked.spec.is_durable();
        let spec = asked.spec.in_force(confirmed.is_some() || lasts);
        // The shared subscription's own session has the position.
        let durability = if lasts { Durability::Queued } else { asked.spec.durability };
        let asked = &Filter { spec: SubscriptionSpec { durability, ..asked.spec }, ..*asked };
        let selector_bytes = self.count_selector(index, known, all);
        let selector = asked.selector;
        let text: Option<Box<str>> = selector
            .filter(|_| self.remembers(index) || self.overlay.is_some())
            .map(|selector| selector.to_string().into());
        let begins = matches!(begin, Begin::CatchUp(_));
        let follow = Follow { index, asked, cursor, partitions, begin, confirmed };
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

    pub(crate) fn unsubscribe(&mut self, now: Time, (link, tag): (Link, u16), filters: &[&str], out: &mut dyn Output) {
        let (index, whom) = (self.sessions.of(link), self.sessions.whom(link));
        if self.remembers(index) {
            return self.ask_to_unsubscribe(now, (whom, tag), filters, out);
        }
        if self.sessions.get(index).memory.is_kept {
            // After a restart the subscription would be there again.
            return self.kick(now, index, Kick::LogFailed, out);
        }
        let existed = self.end_subscriptions(index, filters);
        self.answer_end(now, (whom, tag), index, existed, out);
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
