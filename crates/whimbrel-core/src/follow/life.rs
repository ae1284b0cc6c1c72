//! Tracked subscriptions begin and end, leave with their client and come back with it.

use core::time::Duration;

use whimbrel_event::{CheckpointToken, Publisher, Qos, Time};

use super::{Begin, Positions, Track, notice};
use crate::api::{Accepted, Durability, Filter, Following, Link, Output, Reason, Refusal};
use crate::broker::Core;
use crate::cache::PartitionSet;
use crate::route::NO_TRACK;
use crate::session::{Publication, Terms};

impl Following<'_> {
    /// Whether the core has to keep more of a subscription than the router does.
    pub(crate) fn is_tracked(&self) -> bool {
        self.durability == Durability::SemiDurable || self.notices
    }
}

/// A subscription that is about to begin or to change.
pub(crate) struct Follow<'a> {
    /// The session.
    pub(crate) index: u32,
    pub(crate) asked: &'a Filter<'a>,
    /// What it was before.
    pub(crate) track: Option<u32>,
    pub(crate) partitions: PartitionSet,
    pub(crate) begin: Begin,
}

impl Core {
    /// Makes, changes or ends what is kept of a subscription, `id` in the router; returns the track.
    pub(crate) fn follow(&mut self, now: Time, id: u32, follow: Follow<'_>) -> u32 {
        let Follow { index, asked, track, partitions, begin } = follow;
        let following = &asked.following;
        if !following.is_tracked() {
            track.inspect(|track| self.unfollow(*track));
            return NO_TRACK;
        }
        let without = if asked.no_local { self.sessions.get(index).publisher } else { Publisher::UNKNOWN };
        let mut new = Track {
            session: index,
            subscription: id,
            without,
            qos: asked.qos,
            identifier: asked.identifier,
            retain_as_published: asked.retain_as_published,
            semi_durable: following.durability == Durability::SemiDurable,
            notices: following.notices,
            by_token: following.by_token,
            lag: None,
            ahead: Positions::default(),
            acknowledged: None,
            told_at: now,
            silence_at: None,
            division: self.division,
            partitions,
        };
        let mut resumed = None;
        match begin {
            Begin::Live => {}
            Begin::Lag(lag) => resumed = Some(lag),
            Begin::Keep => {
                let old = self.tracks.get_mut(track.expect("what is kept is there"));
                (new.ahead, new.acknowledged) = (core::mem::take(&mut old.ahead), old.acknowledged.take());
                new.lag = self.tracks.take_lag(track.expect("what is kept is there"));
            }
        }
        track.inspect(|track| self.unfollow(*track));
        let lags = new.lag.is_some();
        let track = self.tracks.insert(new);
        if let Some(lag) = resumed {
            self.sessions.stats.resumed += 1;
            if let Some(latest) = lag.positions.iter().map(|(_, tick)| tick).max() {
                self.cache.observe_outage(now.since(Time::from_nanos(latest.0)));
            }
            self.tracks.set_lag(track, lag);
            self.sessions.get_mut(index).lagging.push(track);
        } else if lags {
            self.sessions.get_mut(index).lagging.push(track);
        }
        self.watch_silence(now, track);
        track
    }

    /// Forgets a tracked subscription.
    pub(crate) fn unfollow(&mut self, id: u32) {
        let track = self.tracks.remove(id);
        if let Some(at) = track.silence_at {
            self.timers.remove(at, Reason::Silence, id);
        }
        self.sessions.get_mut(track.session).lagging.retain(|other| *other != id);
    }

    /// The position at which a subscription begins that has just been made.
    pub(crate) fn begins(&mut self, now: Time, index: u32, asked: &Filter<'_>) -> CheckpointToken {
        let id = self.router.find(index, asked.filter).expect("it has just been made");
        let track = self.router.get(id).track;
        let positions = (track != NO_TRACK).then(|| self.tracks.get(track)).and_then(|track| {
            let lag = track.lag.as_ref().map(|lag| lag.positions.clone());
            lag.or_else(|| (!track.ahead.is_empty()).then(|| self.ahead_positions(&track.ahead)))
        });
        match positions {
            Some(positions) => self.token_at(&positions),
            None => self.live_token(now),
        }
    }

    /// Where a live subscription stands that is ahead of some streams.
    fn ahead_positions(&self, ahead: &Positions) -> Positions {
        let mut positions: Positions = self.streams.positions().collect();
        for (pubend, tick) in ahead.iter() {
            positions.advance(pubend, tick);
        }
        positions
    }

    /// The client of a session that lives on has gone: its tracked subscriptions stay where the consolidated stream is now.
    pub(crate) fn leave_streams(&mut self, index: u32) {
        for at in 0..self.sessions.get(index).subscriptions.len() {
            let track = self.router.get(self.sessions.get(index).subscriptions[at]).track;
            if track == NO_TRACK {
                continue;
            }
            if let Some(due) = self.tracks.get_mut(track).silence_at.take() {
                self.timers.remove(due, Reason::Silence, track);
            }
            if self.tracks.get(track).lag.is_none() {
                self.fall_behind(track, None, self.serial + 1, false);
            }
        }
    }

    /// The client of a session is back after `away`; what is only for those who are there goes on with what comes now.
    pub(crate) fn return_to_streams(&mut self, now: Time, index: u32, away: Option<Duration>) {
        let mut kept = false;
        for at in 0..self.sessions.get(index).subscriptions.len() {
            let id = self.router.get(self.sessions.get(index).subscriptions[at]).track;
            if id == NO_TRACK {
                continue;
            }
            if self.tracks.get(id).semi_durable {
                kept = true;
            } else if self.tracks.take_lag(id).is_some() {
                self.sessions.get_mut(index).lagging.retain(|other| *other != id);
            }
            self.watch_silence(now, id);
        }
        if let Some(away) = away.filter(|_| kept) {
            self.cache.observe_outage(away);
        }
    }

    /// Has a subscription with notices told about silence when the time comes.
    fn watch_silence(&mut self, now: Time, id: u32) {
        let track = self.tracks.get_mut(id);
        if track.notices && track.silence_at.is_none() {
            let at = now.after(self.sessions.limits.silence_after);
            (track.silence_at, track.told_at) = (Some(at), now);
            self.timers.insert(at, Reason::Silence, id);
        }
    }

    /// A subscription may have been told nothing for a while.
    pub(crate) fn tell_silence(&mut self, now: Time, id: u32, out: &mut impl Output) {
        let span = self.sessions.limits.silence_after;
        let track = self.tracks.get(id);
        let (told_at, session, lags) = (track.told_at, track.session, track.lag.is_some());
        let mut next = told_at.after(span);
        if next <= now {
            next = now.after(span);
            if !lags && self.tracks.get(id).ahead.is_empty() {
                let token = self.live_token(now);
                let track = self.tracks.get_mut(id);
                let qos = Qos::AtLeastOnce.min(track.qos);
                let terms = Terms { qos, named: false, ..track.terms(qos, false) };
                let event = notice::silence(told_at, &token, now);
                track.told_at = now;
                // A client that does not take even this is not silent.
                self.sessions.offer_tracked(session, &mut Publication::of(&event, 0), terms, out);
            }
        }
        self.tracks.get_mut(id).silence_at = Some(next);
        self.timers.insert(next, Reason::Silence, id);
    }

    /// A client says up to where it has safely processed what a subscription got.
    pub(crate) fn acknowledge(
        &mut self,
        link: Link,
        tag: u16,
        qos: Qos,
        what: (u32, &CheckpointToken),
        out: &mut impl Output,
    ) {
        let index = self.sessions.of(link);
        if qos == Qos::ExactlyOnce && !self.sessions.get_mut(index).unreleased.insert(tag) {
            self.sessions.stats.publishes_repeated += 1;
            return out.accepted(link, tag, qos, Accepted::Repeat);
        }
        let result = self.acknowledge_up_to(index, what.0, what.1);
        if result.is_err() {
            self.sessions.get_mut(index).unreleased.remove(&tag);
            self.sessions.stats.events_refused += 1;
        }
        if qos != Qos::AtMostOnce {
            let accepted = result.map_or_else(Accepted::Refused, |()| Accepted::Routed { matched: true });
            out.accepted(link, tag, qos, accepted);
        }
    }

    fn acknowledge_up_to(&mut self, index: u32, identifier: u32, token: &CheckpointToken) -> Result<(), Refusal> {
        if token.deployment() != self.sessions.limits.deployment {
            return Err(Refusal::OtherDeployment);
        }
        let future = |(pubend, tick)| self.streams.closed(pubend).is_some_and(|closed| tick > closed);
        if token.pubends().any(future) {
            return Err(Refusal::FutureStart);
        }
        let of_session = self.sessions.get(index).subscriptions.iter().map(|id| self.router.get(*id).track);
        let by_token = |id: &u32| *id != NO_TRACK && self.tracks.get(*id).by_token;
        let named = |id: &u32| identifier == 0 || self.tracks.get(*id).identifier == identifier;
        let mut meant = of_session.filter(by_token).filter(named);
        let (Some(id), another) = (meant.next(), meant.next()) else { return Err(Refusal::NotAcknowledged) };
        if another.is_some() && identifier == 0 {
            return Err(Refusal::NotAcknowledged);
        }
        self.tracks.get_mut(id).acknowledged = Some(Box::new(token.clone()));
        self.sessions.stats.tokens_acknowledged += 1;
        Ok(())
    }
}
