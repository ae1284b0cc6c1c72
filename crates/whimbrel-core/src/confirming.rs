//! Subscriptions of sessions that are remembered. A request is written first, and takes effect when
//! it is durable: from the request on its events are logged, from its commit on they are delivered.

use whimbrel_event::{CheckpointToken, EventId, Time};
use whimbrel_selector::{Selector, SharedFilter};

use crate::api::{Filter, Kick, Output, Refusal, RetainHandling, Start};
use crate::broker::Broker;
use crate::route::{self, NO_CURSOR, NO_GROUP};
use crate::session::{NOBODY, Pause};
use crate::store::{Disk, DurableNo, Key, OwnTicks, Recipient, SessionNo, Wait};
use crate::subscribing::SubscriptionChange;
use crate::subscription::{FormerSelector, SubscriptionRecord, SubscriptionSpec};

/// Former selectors of a subscription under which it still has events to get.
const FORMER_SELECTORS_MAX: usize = 4;

/// Requests of one session that may wait for earlier ones. Above, its client is not read.
const LATER_MAX: u32 = 1024;

/// At this number of waiting requests, a paused client is read again.
const LATER_LOW: u32 = LATER_MAX / 2;

/// As [`LATER_MAX`], with requests that were received before reading stopped: the number of packet
/// identifiers that tell them apart.
const LATER_END: u32 = u16::MAX as u32;

/// One subscription as asked for, kept until it is confirmed.
#[derive(Debug)]
pub(crate) struct PendingSubscription {
    pub(crate) filter: Box<str>,
    selector: Option<Selector>,
    spec: SubscriptionSpec,
    start: Begins,
    retain_handling: RetainHandling,
    wants_token: bool,
    /// Less is granted than the client has asked for.
    is_less: bool,
}

/// [`Start`], with owned data.
#[derive(Debug)]
enum Begins {
    Own,
    Token(Box<CheckpointToken>, Box<[EventId]>),
    After(Box<[EventId]>),
    Since(Time),
    Earliest,
}

impl PendingSubscription {
    pub(crate) fn keep(asked: &Filter<'_>) -> Self {
        let Filter { spec, retain_handling, wants_token, .. } = *asked;
        let start = match asked.start {
            Start::Own => Begins::Own,
            Start::Token(token, later) => Begins::Token(Box::new(token.clone()), later.into()),
            Start::After(ids) => Begins::After(ids.into()),
            Start::Since(at) => Begins::Since(at),
            Start::Earliest => Begins::Earliest,
        };
        let (filter, selector) = (asked.filter.into(), asked.selector.cloned());
        PendingSubscription { filter, selector, spec, start, retain_handling, wants_token, is_less: false }
    }

    /// Whether the answer is to name its start position.
    pub(crate) fn wants_token(&self) -> bool {
        self.wants_token
    }

    pub(crate) fn view(&self) -> Filter<'_> {
        let start = match &self.start {
            Begins::Own => Start::Own,
            Begins::Token(token, later) => Start::Token(token, later),
            Begins::After(ids) => Start::After(ids),
            Begins::Since(at) => Start::Since(*at),
            Begins::Earliest => Start::Earliest,
        };
        let PendingSubscription { spec, retain_handling, wants_token, .. } = *self;
        let (filter, selector) = (&*self.filter, self.selector.as_ref());
        Filter { filter, selector, spec, start, retain_handling, wants_token }
    }
}

/// The state of a durable subscription when it is confirmed.
#[derive(Clone, Debug)]
pub(crate) struct Confirmed {
    pub(crate) number: DurableNo,
    /// Its events were logged after these ticks.
    pub(crate) start: OwnTicks,
    /// The last events that it wanted until now.
    pub(crate) newest: OwnTicks,
    /// The last ticks at which its former selector counts, if that was another one.
    pub(crate) until: Option<OwnTicks>,
}

/// A SUBSCRIBE that waits to be durable.
#[derive(Debug)]
pub(crate) struct Confirming {
    pub(crate) whom: Recipient,
    tag: u16,
    index: u32,
    number: SessionNo,
    asked: Vec<(PendingSubscription, Result<Grant, Refusal>)>,
    /// When it was received.
    at: Time,
}

/// The result for one filter of a SUBSCRIBE.
#[derive(Debug)]
struct Grant {
    confirmed: Option<Confirmed>,
    /// What is logged for it until then.
    interest: Option<route::DurableInterest>,
    /// The durable shared subscription that it is to be a member of.
    group: Option<u32>,
}

/// An UNSUBSCRIBE that waits to be durable.
#[derive(Debug)]
pub(crate) struct Ending {
    pub(crate) whom: Recipient,
    tag: u16,
    index: u32,
    number: SessionNo,
    existed: Vec<bool>,
    /// What is logged until then: without the UNSUBSCRIBE the subscriptions live on.
    interests: Vec<(Box<str>, route::DurableInterest)>,
}

/// A SUBSCRIBE or UNSUBSCRIBE that waits for earlier ones of the same session.
#[derive(Debug)]
pub(crate) struct Later {
    pub(crate) whom: Recipient,
    tag: u16,
    index: u32,
    number: SessionNo,
    /// Its place among those of its session.
    place: u16,
    what: Structural,
}

#[derive(Debug)]
enum Structural {
    Subscribe(Vec<PendingSubscription>),
    Unsubscribe(Vec<Box<str>>),
}

/// The part of one SUBSCRIBE that was handled so far.
#[derive(Debug, Default)]
struct Requested {
    filters: Vec<(Box<str>, Option<DurableNo>)>,
    selector_bytes: usize,
}

impl Requested {
    /// The number that a filter has been assigned already.
    fn number(&self, filter: &str) -> Option<DurableNo> {
        self.filters.iter().find(|(known, _)| &**known == filter).and_then(|(_, number)| *number)
    }
}

impl Broker {
    pub(crate) fn ask_to_subscribe(
        &mut self,
        now: Time,
        (whom, tag): (Recipient, u16),
        filters: &[Filter<'_>],
        out: &mut dyn Output,
    ) {
        let index = self.sessions.of(whom.link);
        if self.has_to_wait(index) {
            let what = Structural::Subscribe(filters.iter().map(PendingSubscription::keep).collect());
            return self.wait_for_others(now, (whom, tag), what, out);
        }
        self.request(index, (whom, tag), filters);
    }

    /// Writes the subscriptions that are asked for.
    fn request(&mut self, index: u32, (whom, tag): (Recipient, u16), filters: &[Filter<'_>]) {
        let assigned = self.streams.own.assigned();
        let mut requested = Requested::default();
        let asked = filters.iter().map(|asked| {
            let (granted, is_less) = self.grant(index, asked);
            let grant = self.ask_for(index, &granted, &assigned, &mut requested);
            self.store.write_queue.seal_large();
            (PendingSubscription { is_less, ..PendingSubscription::keep(&granted) }, grant)
        });
        let asked = asked.collect();
        let (number, at) = (self.sessions.get(index).memory.number, self.now);
        let confirming = Confirming { whom, tag, index, number, asked, at };
        self.wait_for_commit(index, whom, Wait::Subscribe(Box::new(confirming)));
    }

    /// Requests a shared subscription for its own session.
    ///
    /// # Errors
    /// When it may not be made or changed.
    pub(crate) fn request_within(&mut self, own: u32, asked: &Filter<'_>, assigned: &OwnTicks) -> Result<(), Refusal> {
        let grant = self.ask_for(own, asked, assigned, &mut Requested::default())?;
        let number = self.sessions.get(own).memory.number;
        let asked = vec![(PendingSubscription::keep(asked), Ok(grant))];
        let confirming = Confirming { whom: NOBODY, tag: 0, index: own, number, asked, at: self.now };
        self.wait_for_commit(own, NOBODY, Wait::Subscribe(Box::new(confirming)));
        Ok(())
    }

    pub(crate) fn ask_to_unsubscribe(
        &mut self,
        now: Time,
        (whom, tag): (Recipient, u16),
        filters: &[&str],
        out: &mut dyn Output,
    ) {
        let index = self.sessions.of(whom.link);
        if self.has_to_wait(index) {
            let what = Structural::Unsubscribe(filters.iter().map(|text| Box::from(*text)).collect());
            return self.wait_for_others(now, (whom, tag), what, out);
        }
        self.request_end(index, (whom, tag), filters);
    }

    /// Writes that subscriptions have ended.
    fn request_end(&mut self, index: u32, (whom, tag): (Recipient, u16), filters: &[&str]) {
        let number = self.sessions.get(index).memory.number;
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
        let ending = Ending { whom, tag, index, number, existed, interests };
        self.wait_for_commit(index, whom, Wait::Unsubscribe(Box::new(ending)));
    }

    /// Whether an earlier request of the session is not done yet.
    fn has_to_wait(&self, index: u32) -> bool {
        let memory = &self.sessions.get(index).memory;
        memory.pending.structural + memory.pending.later > 0
    }

    /// Queues a change of a session's subscriptions until the write queue's last batch is durable.
    fn wait_for_commit(&mut self, index: u32, whom: Recipient, wait: Wait) {
        let batch = self.store.write_queue.seal();
        self.sessions.get_mut(index).memory.pending.structural += 1;
        self.sessions.enter_commit_queue(whom);
        self.store.commit_queue.push(batch, wait);
    }

    fn wait_for_others(&mut self, now: Time, (whom, tag): (Recipient, u16), what: Structural, out: &mut dyn Output) {
        let index = self.sessions.of(whom.link);
        let session = self.sessions.get_mut(index);
        if session.memory.pending.later >= LATER_END {
            return self.kick(now, index, Kick::AsksTooMuch, out);
        }
        session.memory.pending.later += 1;
        let place = session.memory.pending.asked;
        session.memory.pending.asked = place.wrapping_add(1);
        let later = Later { whom, tag, index, number: session.memory.number, place, what };
        let batch = self.store.commit_queue.last();
        self.sessions.enter_commit_queue(whom);
        self.store.commit_queue.push(batch, Wait::Later(Box::new(later)));
        if self.sessions.get(index).memory.pending.later > LATER_MAX
            && let Some(link) = self.sessions.set_paused(index, Pause::Asks, true)
        {
            self.sessions.stats.subscribers_held += 1;
            out.pause(link);
        }
    }

    /// Writes the record of a subscription, and has its events logged.
    ///
    /// # Errors
    /// When it may not be made.
    fn ask_for(
        &mut self,
        index: u32,
        asked: &Filter<'_>,
        assigned: &OwnTicks,
        requested: &mut Requested,
    ) -> Result<Grant, Refusal> {
        let text = asked.selector.map(ToString::to_string);
        self.check_subscription(index, asked, (requested.filters.len(), requested.selector_bytes))?;
        let shared = SharedFilter::parse(asked.filter).expect("it was just checked");
        let (filter, group) = (shared.filter, self.expect_member(index, asked, &shared)?);
        let is_durable = asked.spec.is_durable() && group.is_none();
        let session = self.sessions.get(index).memory.number;
        let known = self.router.find(index, asked.filter).map(|id| self.router.get(id));
        let durable = known.filter(|known| known.spec.is_durable() && known.group == NO_GROUP).map(|known| {
            self.cursors.get(known.cursor).durable.as_deref().expect("a durable subscription has what is durable of it")
        });
        self.check_log_for(is_durable, durable.is_none())?;
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
        let (start, is_new) = (durable.map_or_else(stands, |durable| durable.start), durable.is_none());
        // One SUBSCRIBE may have the same filter twice.
        let number = durable.map(|durable| durable.number).or_else(|| requested.number(asked.filter));
        let number = match (is_durable, number) {
            (false, _) => None,
            (true, Some(number)) => Some(number),
            (true, None) => Some(self.store.numbers.next_durable(&mut self.store.write_queue)),
        };
        let spec = SubscriptionSpec { qos: asked.spec.granted_qos(), ..asked.spec };
        let record = SubscriptionRecord { number, spec, start, selector: text.as_deref(), old };
        let write_queue = &mut self.store.write_queue;
        write_queue.put(|key| Key::Subscription(session, asked.filter).put(key), |value| record.put_versioned(value));
        requested.filters.push((asked.filter.into(), number));
        requested.selector_bytes += text.as_ref().map_or(0, String::len);
        let confirmed = number.map(|number| Confirmed { number, start, newest: start, until });
        let cursor = known.map_or(NO_CURSOR, |known| known.cursor);
        let interest = number.filter(|_| is_new || is_other).map(|number| {
            if is_new {
                self.store.filters.asking.insert(number, start);
            }
            self.router.insert_interest(filter, asked.selector, Some((number, cursor)))
        });
        Ok(Grant { confirmed, interest, group })
    }

    /// Checks whether the log takes a durable subscription: another one, or a change.
    pub(crate) fn check_log_for(&self, is_durable: bool, is_new: bool) -> Result<(), Refusal> {
        match self.store.disk {
            // A client that comes back frees log, so a subscription that exists is not refused.
            Disk::Full if is_durable && is_new => Err(Refusal::LogFull),
            Disk::Poisoned if is_durable => Err(Refusal::LogFailed),
            Disk::None | Disk::Open | Disk::Full | Disk::Poisoned => Ok(()),
        }
    }

    /// A SUBSCRIBE is durable: its subscriptions are made, and the client is answered if present.
    pub(crate) fn confirm(&mut self, now: Time, confirming: Confirming, present: bool, out: &mut dyn Output) {
        let Confirming { whom, tag, index, number, asked, at } = confirming;
        let mut made = Vec::with_capacity(asked.len());
        for (asked, grant) in &asked {
            let mut confirmed = grant.as_ref().map(|grant| grant.confirmed.clone()).map_err(|refusal| *refusal);
            if let Ok(Some(confirmed)) = &mut confirmed
                && let Some(newest) = self.store.filters.asking.remove(&confirmed.number)
            {
                confirmed.newest = newest;
            }
            made.push(SubscriptionChange { asked: asked.view(), is_less: asked.is_less, confirmed });
        }
        let is_there = self.sessions.is_numbered(index, number);
        if is_there {
            self.sessions.get_mut(index).memory.pending.structural -= 1;
            let answer = present.then_some((whom, tag));
            for text in self.make_subscriptions(now, index, made, answer, out) {
                // It was written, but cannot be made: for instance, its start position is invalid.
                self.remember_subscription(index, &text);
            }
            self.confirm_since(now, (whom, tag), at);
            if !self.sessions.is_attached(index) {
                self.stay_behind(index);
            } else if !present {
                // The client that is connected now has not said where it stands.
                asked.iter().for_each(|(asked, _)| self.await_start(index, &asked.filter));
                self.resume(now, index, out);
            }
            self.own_confirmed(now, index, out);
        }
        for (asked, grant) in asked {
            if !is_there && let Ok(grant) = &grant {
                // The session ended meanwhile, without this subscription.
                self.store.write_queue.forget(|key| Key::Subscription(number, &asked.filter).put(key));
                if let Some(confirmed) = &grant.confirmed {
                    self.store.write_queue.forget(|key| Key::Position(confirmed.number).put(key));
                }
                self.store.write_queue.seal_large();
            }
            if let Ok(Grant { group: Some(group), .. }) = &grant {
                self.expect_no_more(*group);
            }
            if let Ok(Grant { interest: Some(interest), .. }) = grant {
                let filter = SharedFilter::parse(&asked.filter).expect("it was checked").filter;
                self.router.remove_interest(filter, interest);
            }
        }
    }

    /// An UNSUBSCRIBE is durable.
    pub(crate) fn confirm_end(&mut self, now: Time, ending: Ending, present: bool, out: &mut dyn Output) {
        let Ending { whom, tag, index, number, existed, interests } = ending;
        for (text, interest) in interests {
            let filter = SharedFilter::parse(&text).expect("it was a subscription").filter;
            self.router.remove_interest(filter, interest);
        }
        if self.sessions.is_numbered(index, number) {
            self.sessions.get_mut(index).memory.pending.structural -= 1;
        }
        if present {
            self.answer_end(now, (whom, tag), index, existed, out);
        }
    }

    /// A request that waited for earlier ones has its turn. If its client is gone, it is dropped.
    pub(crate) fn resume_later(&mut self, later: Later, present: bool, out: &mut dyn Output) {
        let Later { whom, index, number, place, .. } = later;
        if self.sessions.is_numbered(index, number) {
            let memory = &mut self.sessions.get_mut(index).memory;
            if memory.pending.turns != place || present && memory.pending.structural > 0 {
                // It is the turn of another, or an earlier one is not done.
                if present {
                    self.sessions.enter_commit_queue(whom);
                }
                let batch = self.store.commit_queue.last();
                return self.store.commit_queue.push(batch, Wait::Later(Box::new(later)));
            }
            (memory.pending.later, memory.pending.turns) = (memory.pending.later - 1, place.wrapping_add(1));
            if memory.pending.later <= LATER_LOW
                && let Some(link) = self.sessions.set_paused(index, Pause::Asks, false)
            {
                out.resume(link);
            }
        }
        if !present {
            return;
        }
        let Later { tag, what, .. } = later;
        match what {
            Structural::Subscribe(asked) => {
                let filters: Vec<_> = asked.iter().map(PendingSubscription::view).collect();
                self.request(index, (whom, tag), &filters);
            }
            Structural::Unsubscribe(texts) => {
                let filters: Vec<_> = texts.iter().map(|text| &**text).collect();
                self.request_end(index, (whom, tag), &filters);
            }
        }
    }
}

/// Parses a remembered selector. Its fences may be gone since: `within` is unknown for those.
pub(crate) fn remembered(text: &str) -> Selector {
    Selector::parse_canonical(text).expect("it was accepted when the subscription was made")
}
