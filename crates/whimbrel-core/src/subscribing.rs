//! Subscriptions begin, change and end.

use whimbrel_event::{EventId, Time};
use whimbrel_selector::{SharedFilter, TopicFilter};

use crate::api::{Durability, Filter, Granted, Link, Output, Refusal, RetainHandling, Start};
use crate::broker::Core;
use crate::content::Content;
use crate::follow::Follow;
use crate::route::{NO_GROUP, NO_TRACK, Subscription};
use crate::session::{Publication, Terms};

impl Core {
    pub(crate) fn subscribe(&mut self, now: Time, link: Link, filters: &[Filter<'_>], out: &mut impl Output) {
        let index = self.sessions.of(link);
        let mut results = Vec::with_capacity(filters.len());
        let mut fresh = Vec::with_capacity(filters.len());
        for asked in filters {
            let result = self.add_subscription(now, index, asked);
            if result.is_err() {
                self.sessions.stats.subscriptions_refused += 1;
            }
            fresh.push(result.is_ok_and(|new| new));
            let begins = |core: &mut Core| asked.following.wants_token.then(|| core.begins(now, index, asked));
            results.push(result.map(|_| Granted { qos: asked.granted_qos(), begins: begins(self) }));
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
        self.go_on(now, index, out);
    }

    /// Makes or changes a subscription; true if it is new.
    fn add_subscription(&mut self, now: Time, index: u32, asked: &Filter<'_>) -> Result<bool, Refusal> {
        let shared = SharedFilter::parse(asked.filter).map_err(Refusal::BadFilter)?;
        if shared.group.is_some() && asked.no_local {
            return Err(Refusal::SharedNoLocal);
        }
        if shared.group.is_some() && (asked.following.is_tracked() || !matches!(asked.following.start, Start::Own)) {
            return Err(Refusal::SharedTracked);
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
        let track = known.map(|id| self.router.get(id).track).filter(|track| *track != NO_TRACK);
        let partitions = self.cache.candidates(shared.filter, asked.selector);
        let begin = self
            .begin(now, (asked, shared.filter), track, &partitions)
            .inspect_err(|_| self.sessions.stats.starts_refused += 1)?;
        let group = match shared.group {
            Some(_) => self.join_group(index, asked, shared.filter)?,
            None => NO_GROUP,
        };
        self.sessions.get_mut(index).selector_bytes = all;
        let selector_bytes = u32::try_from(bytes).expect("selectors are bounded far below");
        let Filter { no_local, retain_as_published, identifier, selector, .. } = *asked;
        let qos = asked.granted_qos();
        let attached_only = asked.following.durability != Durability::Queued;
        let follow = Follow { index, asked, track, partitions, begin };
        if let Some(id) = known {
            let track = self.follow(now, id, follow);
            let change = |s: &mut Subscription| {
                (s.qos, s.no_local, s.retain_as_published, s.identifier) =
                    (qos, no_local, retain_as_published, identifier);
                (s.selector_bytes, s.track, s.attached_only) = (selector_bytes, track, attached_only);
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
            track: NO_TRACK,
            attached_only,
            is_durable: false,
            selector_bytes,
            spot: None,
        };
        let id = self.router.insert(new);
        let track = self.follow(now, id, follow);
        self.router.place(id, track, shared.filter, selector);
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
        let track = self.router.get(id).track;
        let lag = (track != NO_TRACK).then(|| self.tracks.get(track)).and_then(|track| track.lag.as_ref());
        // What it reads from the cache anyway is not sent twice.
        let comes = |id: EventId| {
            lag.is_some_and(|lag| self.streams.knows(id.pubend) && lag.positions.get(id.pubend) < id.tick)
        };
        let partitions = (track != NO_TRACK).then(|| self.tracks.get(track).partitions);
        let is_cached = |id| partitions.is_some_and(|partitions| self.cache.holds(&partitions, id));
        for event in self.retained.matching(filter, now) {
            if comes(event.id()) && is_cached(event.id()) {
                continue;
            }
            if !self.router.is_selected(spot, &Content(event.packed().unpack())) {
                continue;
            }
            let qos = event.qos().min(asked.granted_qos());
            let terms = Terms {
                qos,
                identifier: asked.identifier,
                group: NO_GROUP,
                retain: true,
                as_published: true,
                track: NO_TRACK,
            };
            self.sessions.offer(index, &mut Publication::of(event, 0), terms, out);
        }
    }

    pub(crate) fn unsubscribe(&mut self, now: Time, link: Link, filters: &[&str], out: &mut impl Output) {
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
    pub(crate) fn remove_subscription(&mut self, index: u32, id: u32) -> Option<(u32, bool)> {
        let text = self.router.get(id).text.clone();
        let filter = SharedFilter::parse(&text).expect("checked when it was made").filter;
        let Subscription { group, selector_bytes, track, .. } = self.router.remove(id, filter);
        if track != NO_TRACK {
            self.unfollow(track);
        }
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
}
