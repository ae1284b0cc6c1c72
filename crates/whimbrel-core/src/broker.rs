//! The composition: sessions come and go, subscribe, publish and settle.

use core::time::Duration;
use std::sync::Arc;

use smallvec::SmallVec;
use whimbrel_event::{Tick, Time};
use whimbrel_selector::{Expensive, Fences, SharedFilter, TopicFilter};

use crate::api::{Attach, Filter, Input, Kick, Limits, Link, Output, Reason, Refusal, RetainHandling};
use crate::content::Content;
use crate::publish::NOBODY;
use crate::retained::Retained;
use crate::route::{NO_GROUP, Router, Subscription};
use crate::session::{Publication, Sessions, Terms};
use crate::shared::Groups;
use crate::stats::Stats;
use crate::stream::{Streams, split_mix};
use crate::timers::Timers;

/// The broker's core. See the crate's documentation for how it is driven.
#[derive(Debug)]
pub struct Core {
    pub(crate) sessions: Sessions,
    pub(crate) router: Router,
    pub(crate) groups: Groups,
    pub(crate) retained: Retained,
    pub(crate) streams: Streams,
    pub(crate) timers: Timers,
    /// Numbers publications, so that an edge can tell the same event again.
    pub(crate) serial: u64,
}

impl Core {
    /// A core without sessions. `seed` is its only source of randomness.
    pub fn new(limits: Limits, mut seed: u64) -> Self {
        Core {
            sessions: Sessions::new(limits, split_mix(&mut seed)),
            router: Router::new(split_mix(&mut seed)),
            groups: Groups::new(split_mix(&mut seed)),
            retained: Retained::default(),
            streams: Streams::new(split_mix(&mut seed), Tick(0)),
            timers: Timers::default(),
            serial: 0,
        }
    }

    /// Replaces the fences that selectors refer to; one that is gone makes `within` unknown.
    pub fn set_fences(&mut self, fences: Arc<Fences>) {
        self.router.set_fences(fences);
    }

    /// Applies one input at the moment `now`, which never goes backwards.
    ///
    /// # Panics
    /// When the edge breaks the contract of [`Input`], for instance speaks for a link that is not attached.
    #[inline]
    pub fn handle(&mut self, now: Time, input: Input<'_>, out: &mut impl Output) {
        match input {
            Input::Publish(publish) => self.publish(now, &publish, out),
            Input::Settle { link, tag, by } => {
                let index = self.sessions.settle(link, tag, by, now, out);
                self.take_shared(now, index, out);
            }
            Input::Release { link, tag } => {
                let index = self.sessions.of(link);
                let known = self.sessions.get_mut(index).unreleased.remove(&tag);
                out.completed(link, tag, known);
            }
            Input::Writable { link } => {
                if let Some(index) = self.sessions.attached_to(link) {
                    self.sessions.reopen(index, now, out);
                    self.take_shared(now, index, out);
                }
            }
            other => self.handle_rare(now, other, out),
        }
        while let Some(index) = self.sessions.pop_overflowed() {
            self.cut_off(now, index, out);
        }
    }

    fn handle_rare(&mut self, now: Time, input: Input<'_>, out: &mut impl Output) {
        match input {
            Input::Attach(attach) => self.attach(now, attach, out),
            Input::Detach { link, publish_will, expiry } => {
                if let Some(index) = self.sessions.attached_to(link) {
                    if let Some(expiry) = expiry {
                        let expiry = expiry.min(self.sessions.limits.session_expiry_max);
                        self.sessions.get_mut(index).expiry = expiry;
                    }
                    self.detach(now, index, publish_will, out);
                }
            }
            Input::Subscribe { link, filters } => self.subscribe(now, link, filters, out),
            Input::Unsubscribe { link, filters } => self.unsubscribe(now, link, filters, out),
            Input::Announce { event, retain } => {
                if self.route_event(now, NOBODY, &event, retain, out).is_err() {
                    self.sessions.stats.events_refused += 1;
                }
            }
            Input::Deadline => self.expire(now, out),
            Input::Publish(_) | Input::Settle { .. } | Input::Release { .. } | Input::Writable { .. } => {
                unreachable!("handled by the caller")
            }
        }
    }

    /// When [`Input::Deadline`] is wanted, and why.
    pub fn next_deadline(&self) -> Option<(Time, Reason)> {
        self.timers.next()
    }

    /// Counters and gauges.
    pub fn stats(&self) -> Stats {
        let cost = self.router.cost();
        Stats {
            subscriptions: self.router.len() as u64,
            selectors: self.router.selectors() as u64,
            retained: self.retained.len() as u64,
            retained_bytes: self.retained.bytes() as u64,
            route_misses: self.router.misses,
            selector_evaluations: cost.evaluations,
            selector_steps: cost.steps,
            selector_matches: cost.matches,
            ..self.sessions.stats
        }
    }

    /// What the selectors that cost most have cost so far, most expensive first.
    pub fn expensive_selectors(&self) -> Vec<Expensive> {
        self.router.expensive()
    }

    /// The fences that selectors refer to.
    pub fn fences(&self) -> &Arc<Fences> {
        self.router.fences()
    }

    /// Exactly-once publishes of that link that it has not released.
    pub fn unreleased(&self, link: Link) -> usize {
        self.sessions.attached_to(link).map_or(0, |index| self.sessions.get(index).unreleased.len())
    }

    /// Whether that link's publish `tag` waits for its release.
    pub fn is_unreleased(&self, link: Link, tag: u16) -> bool {
        self.sessions.attached_to(link).is_some_and(|index| self.sessions.get(index).unreleased.contains(&tag))
    }

    fn attach(&mut self, now: Time, attach: Attach<'_>, out: &mut impl Output) {
        let mut known = self.sessions.find(attach.client_id);
        if let Some(index) = known {
            if let Some(old) = self.sessions.get(index).link() {
                self.sessions.stats.takeovers += 1;
                out.kicked(old, Kick::TakenOver);
                let survives = self.sessions.get(index).is_persistent();
                self.detach(now, index, true, out);
                known = survives.then_some(index);
            }
            if let Some(index) = known.filter(|_| attach.clean_start) {
                self.end(now, index, out);
                known = None;
            }
        }
        let index = match known {
            Some(index) => index,
            None if self.sessions.stats.sessions as usize >= self.sessions.limits.sessions_max => {
                self.sessions.stats.sessions_refused += 1;
                out.refused(attach.link, Refusal::TooManySessions);
                return;
            }
            None => self.sessions.create(attach.client_id),
        };
        let expiry = attach.expiry.min(self.sessions.limits.session_expiry_max);
        let session = self.sessions.get_mut(index);
        session.will = attach.will;
        session.expiry = expiry;
        if let Some(at) = session.will_at.take() {
            self.timers.remove(at, Reason::WillDelay, index);
        }
        if let Some(at) = session.expires_at.take() {
            self.timers.remove(at, Reason::SessionExpiry, index);
        }
        self.sessions.bind(index, attach.link, attach.window);
        out.attached(attach.link, known.is_some());
        self.sessions.pump(index, now, out);
        self.take_shared(now, index, out);
    }

    /// Ends the connection of a session, and the session with it if it does not outlive its connection.
    fn detach(&mut self, now: Time, index: u32, publish_will: bool, out: &mut impl Output) {
        self.sessions.unbind(index);
        let session = self.sessions.get_mut(index);
        if !publish_will {
            session.will = None;
        }
        if !session.is_persistent() {
            self.end(now, index, out);
            return;
        }
        let expires_at = now.after(session.expiry);
        session.expires_at = Some(expires_at);
        self.timers.insert(expires_at, Reason::SessionExpiry, index);
        match session.will.as_ref().map(|will| will.delay) {
            None => {}
            Some(Duration::ZERO) => self.publish_will(now, index, out),
            Some(delay) => {
                let at = now.after(delay).min(expires_at);
                session.will_at = Some(at);
                self.timers.insert(at, Reason::WillDelay, index);
            }
        }
        let mut groups = self.sessions.get(index).groups.to_vec();
        groups.retain(|group| self.groups.has_other(*group, index, &self.sessions));
        self.move_work(now, index, groups, out);
    }

    /// Ends a detached session: its will is due, its subscriptions end, what it shared goes to others.
    fn end(&mut self, now: Time, index: u32, out: &mut impl Output) {
        self.publish_will(now, index, out);
        if let Some(at) = self.sessions.get_mut(index).expires_at.take() {
            self.timers.remove(at, Reason::SessionExpiry, index);
        }
        let session = self.sessions.get_mut(index);
        session.groups = SmallVec::new();
        let subscriptions = core::mem::take(&mut session.subscriptions);
        let mut shared = Vec::new();
        for id in subscriptions {
            shared.extend(self.remove_subscription(index, id).filter(|(_, lives)| *lives).map(|(group, _)| group));
        }
        self.move_work(now, index, shared, out);
        self.sessions.remove(index);
    }

    fn expire(&mut self, now: Time, out: &mut impl Output) {
        while let Some((reason, index)) = self.timers.pop_due(now) {
            let session = self.sessions.get_mut(index);
            match reason {
                Reason::WillDelay => {
                    session.will_at = None;
                    self.publish_will(now, index, out);
                }
                Reason::SessionExpiry => {
                    session.expires_at = None;
                    self.sessions.stats.sessions_expired += 1;
                    self.end(now, index, out);
                }
            }
        }
    }

    /// Disconnects a client for which more waits than its bounds allow.
    fn cut_off(&mut self, now: Time, index: u32, out: &mut impl Output) {
        if !self.sessions.is_attached(index) {
            return;
        }
        let link = self.sessions.get(index).link().expect("just seen to be attached");
        self.sessions.stats.kicked_slow += 1;
        out.kicked(link, Kick::TooSlow);
        self.detach(now, index, true, out);
    }

    fn subscribe(&mut self, now: Time, link: Link, filters: &[Filter<'_>], out: &mut impl Output) {
        let index = self.sessions.of(link);
        let mut results = Vec::with_capacity(filters.len());
        let mut fresh = Vec::with_capacity(filters.len());
        for asked in filters {
            let result = self.add_subscription(index, asked);
            if result.is_err() {
                self.sessions.stats.subscriptions_refused += 1;
            }
            fresh.push(result.is_ok_and(|new| new));
            results.push(result.map(|_| asked.qos));
        }
        out.subscribed(link, &results);
        for ((asked, new), result) in filters.iter().zip(fresh).zip(results) {
            let wanted = match asked.retain_handling {
                RetainHandling::Send => true,
                RetainHandling::SendIfNew => new,
                RetainHandling::DoNotSend => false,
            };
            if wanted && result.is_ok() {
                self.send_retained(now, index, asked, out);
            }
        }
        self.take_shared(now, index, out);
    }

    /// Makes or changes a subscription; true if it is new.
    fn add_subscription(&mut self, index: u32, asked: &Filter<'_>) -> Result<bool, Refusal> {
        let shared = SharedFilter::parse(asked.filter).map_err(Refusal::BadFilter)?;
        if shared.group.is_some() && asked.no_local {
            return Err(Refusal::SharedNoLocal);
        }
        let known = self.router.find(index, asked.filter);
        let held = self.sessions.get(index).subscriptions.len();
        if known.is_none() && held >= self.sessions.limits.subscriptions_per_session {
            return Err(Refusal::TooManySubscriptions);
        }
        let bytes = asked.selector.map_or(0, |selector| selector.to_string().len());
        let before = known.map_or(0, |id| self.router.get(id).selector_bytes as usize);
        let all = self.sessions.get(index).selector_bytes - before + bytes;
        if bytes > before && all > self.sessions.limits.selector_bytes_per_session {
            return Err(Refusal::TooManySelectors);
        }
        let group = match shared.group {
            Some(_) => self.join_group(index, asked, shared.filter)?,
            None => NO_GROUP,
        };
        self.sessions.get_mut(index).selector_bytes = all;
        let selector_bytes = u32::try_from(bytes).expect("selectors are bounded far below");
        let Filter { qos, no_local, retain_as_published, identifier, selector, .. } = *asked;
        if let Some(id) = known {
            let change = |s: &mut Subscription| {
                (s.qos, s.no_local, s.retain_as_published, s.identifier) =
                    (qos, no_local, retain_as_published, identifier);
                s.selector_bytes = selector_bytes;
            };
            self.router.update(id, change, shared.filter, selector);
            return Ok(false);
        }
        let text = asked.filter.into();
        let new = Subscription {
            session: index,
            text,
            qos,
            no_local,
            retain_as_published,
            identifier,
            group,
            selector_bytes,
            spot: None,
        };
        let id = self.router.insert(new, shared.filter, selector);
        let session = self.sessions.get_mut(index);
        session.subscriptions.push(id);
        if group != NO_GROUP {
            session.groups.push(group);
        }
        Ok(true)
    }

    /// Makes a session a member of a shared subscription, or changes what it asked for. A member asks for the selector that the others have,
    /// or is the only one.
    fn join_group(&mut self, index: u32, asked: &Filter<'_>, filter: TopicFilter<'_>) -> Result<u32, Refusal> {
        let (id, new) = self.groups.find_or_create(asked.filter);
        if new {
            let spot = self.router.insert_group(id, filter, asked.selector);
            self.groups.select(id, asked.selector, spot);
        } else if !self.groups.has_selector(id, asked.selector) {
            if !self.groups.is_alone(id, index) {
                return Err(Refusal::OtherSelector);
            }
            let spot = self.router.update_group(id, filter, self.groups.spot(id), asked.selector);
            self.groups.select(id, asked.selector, spot);
        }
        self.groups.join(id, index, asked);
        Ok(id)
    }

    fn send_retained(&mut self, now: Time, index: u32, asked: &Filter<'_>, out: &mut impl Output) {
        let Ok(SharedFilter { group: None, filter }) = SharedFilter::parse(asked.filter) else { return };
        let Some(id) = self.router.find(index, asked.filter) else { return };
        let spot = self.router.get(id).spot.expect("subscriptions that are not shared are in the index");
        for event in self.retained.matching(filter, now) {
            if !self.router.is_selected(spot, &Content::of(event)) {
                continue;
            }
            let qos = event.qos().min(asked.qos);
            let terms = Terms { qos, identifier: asked.identifier, group: NO_GROUP, retain: true, as_published: true };
            self.sessions.offer(index, &mut Publication::of(event, 0), terms, out);
        }
    }

    fn unsubscribe(&mut self, now: Time, link: Link, filters: &[&str], out: &mut impl Output) {
        let index = self.sessions.of(link);
        let mut existed = Vec::with_capacity(filters.len());
        let (mut ended, mut left) = (Vec::new(), Vec::new());
        for text in filters {
            let known = self.router.find(index, text);
            existed.push(known.is_some());
            if let Some(id) = known {
                ended.push(id);
                left.extend(self.remove_subscription(index, id).map(|(group, _)| group));
            }
        }
        ended.sort_unstable();
        let session = self.sessions.get_mut(index);
        session.subscriptions.retain(|id| ended.binary_search(id).is_err());
        if !left.is_empty() {
            left.sort_unstable();
            session.groups.retain(|group| left.binary_search(group).is_err());
            session.inflight.forget_groups(&left);
        }
        out.unsubscribed(link, &existed);
        self.sessions.pump(index, now, out);
    }

    /// Ends one subscription; its session has to forget it. Of a shared one, tells which, and whether it lives on with other members.
    fn remove_subscription(&mut self, index: u32, id: u32) -> Option<(u32, bool)> {
        let text = self.router.get(id).text.clone();
        let filter = SharedFilter::parse(&text).expect("checked when it was made").filter;
        let Subscription { group, selector_bytes, .. } = self.router.remove(id, filter);
        self.sessions.get_mut(index).selector_bytes -= selector_bytes as usize;
        if group == NO_GROUP {
            return None;
        }
        let spot = self.groups.spot(group);
        let last = self.groups.leave(group, index, &mut self.sessions);
        if last {
            self.router.remove_group(group, filter, spot);
        }
        Some((group, !last))
    }

    /// Gives what a member of shared subscriptions that is gone has not acknowledged to the others. Costs one look at each of its
    /// deliveries, however many the subscriptions are.
    fn move_work(&mut self, now: Time, index: u32, mut groups: Vec<u32>, out: &mut impl Output) {
        groups.sort_unstable();
        let mut taken = self.sessions.get_mut(index).inflight.take_groups(&groups);
        self.sessions.stats.shared_moved += taken.len() as u64;
        taken.sort_by_key(|(group, ..)| *group);
        for events in taken.chunk_by(|a, b| a.0 == b.0) {
            let group = events[0].0;
            let events = events.iter().map(|(_, event, retain)| (event.clone(), *retain)).collect();
            self.groups.put_back(group, events, &mut self.sessions);
            self.groups.hand_out(group, now, &mut self.sessions, out);
        }
    }

    /// Lets a session that may have room take what waits in its shared subscriptions.
    fn take_shared(&mut self, now: Time, index: u32, out: &mut impl Output) {
        for at in 0..self.sessions.get(index).groups.len() {
            let group = self.sessions.get(index).groups[at];
            self.groups.hand_out(group, now, &mut self.sessions, out);
        }
    }
}
