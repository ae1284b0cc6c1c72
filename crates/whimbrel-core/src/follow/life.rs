//! Tracked subscriptions begin and end, leave with their client and come back with it.

use core::time::Duration;

use whimbrel_event::{CheckpointToken, EventId, PubendId, Publisher, Qos, Tick, Time};
use whimbrel_selector::SharedFilter;

use super::{Began, Begin, Durable, Gap, GapReason, Gaps, InForce, NO_PUBEND, Positions, Silence, Track};
use crate::api::{Durability, Filter, Following, Reason, Start};
use crate::broker::Broker;
use crate::cache::PartitionSet;
use crate::confirming::Confirmed;
use crate::route::NO_TRACK;
use crate::session::Marks;
use crate::store::{Key, OWN};

/// Who is back sooner has not been away, as far as the worth of what is cached is concerned.
const AWAY_MIN: Duration = Duration::from_millis(100);

/// No client is away longer than this, as far as the worth of what is cached is concerned.
const AWAY_MAX: Duration = Duration::from_secs(24 * 3600);

impl Following<'_> {
    /// Whether the core has to keep more of a subscription than the router does.
    pub(crate) fn is_tracked(&self) -> bool {
        matches!(self.durability, Durability::SemiDurable | Durability::Durable) || self.notices
    }
}

impl Filter<'_> {
    /// The most that its deliveries have. Where the client keeps the position, what it has of an exactly-once delivery of a former
    /// connection and what it asks for again could be the same event: its position makes it exactly once, not the hand-over.
    pub(crate) fn granted_qos(&self) -> Qos {
        if self.following.by_token { self.qos.min(Qos::AtLeastOnce) } else { self.qos }
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
    /// If it is durable.
    pub(crate) confirmed: Option<&'a Confirmed>,
}

impl Broker {
    /// Makes, changes or ends what is kept of a subscription, `subscription` in the router; returns the track.
    pub(crate) fn follow(&mut self, now: Time, subscription: u32, follow: Follow<'_>) -> u32 {
        let Follow { index, asked, track, partitions, begin, confirmed } = follow;
        if !asked.following.is_tracked() {
            if let Some(track) = track {
                self.sessions.untrack_queue(index, track);
                self.unfollow(track, asked.filter);
            }
            return NO_TRACK;
        }
        let filter = SharedFilter::parse(asked.filter).expect("it was checked").filter;
        let is_volatile = confirmed.is_some() && self.router.may_be_volatile(filter);
        let without = if asked.no_local { self.sessions.get(index).publisher } else { Publisher::UNKNOWN };
        let new = Track {
            id: NO_TRACK,
            session: index,
            subscription,
            without,
            qos: asked.granted_qos(),
            marks: Marks::of(asked),
            keeps: asked.following.durability != Durability::Nondurable,
            notices: asked.following.notices,
            by_token: asked.following.by_token,
            parked: false,
            lag: None,
            ahead: Positions::default(),
            unsettled: Positions::default(),
            acknowledged: Positions::default(),
            began: Began { here: self.streams.reached(now), in_force: InForce::Untold, is_named: false },
            silence: Silence { told_at: now, due: None },
            division: self.division.number,
            partitions,
            durable: confirmed.map(|confirmed| Box::new(Durable::new(confirmed, is_volatile))),
        };
        let id = match track {
            None => {
                self.sessions.track_after(index, self.serial);
                self.tracks.insert(new)
            }
            Some(id) => {
                self.change(id, new, confirmed);
                id
            }
        };
        if let Begin::Lag(lag) = begin {
            self.begin_at(now, id, asked, lag);
        }
        if confirmed.is_some() {
            self.await_owed(id);
        }
        if asked.following.by_token && self.tracks.get(id).acknowledged.is_empty() {
            // From now on the client says what it is sure of; so far that is what it has not left unanswered.
            self.tracks.get_mut(id).acknowledged = self.settled_position(index, id);
        }
        self.tracks.touch(id);
        if self.sessions.is_attached(index) {
            self.watch_silence(now, id);
        } else if self.tracks.get(id).lag.is_none() {
            // Its client has left before it was made.
            self.fall_behind(id, None, false);
            if !self.tracks.get(id).keeps {
                self.give_up(id);
            }
        }
        id
    }

    /// Up to where a subscription has got and its client has answered.
    pub(crate) fn settled_position(&self, index: u32, id: u32) -> Positions {
        let untold = self.tracks.get(id).lag.as_ref().map(|lag| lag.untold());
        let mut positions = untold.unwrap_or_else(|| self.streams.positions().collect());
        self.tracks.get(id).step_back_to_settled(&mut positions);
        self.unanswered(index, id, true).into_iter().for_each(|id| step_back(&mut positions, id));
        positions
    }

    /// What is in flight for a subscription, `with_sent` also what was sent on the present connection, and what waits for it.
    fn unanswered(&self, index: u32, id: u32, with_sent: bool) -> Vec<EventId> {
        let session = self.sessions.get(index);
        let waits = session.follow.queue.iter().filter(|entry| entry.track == id).map(|entry| entry.event.id());
        let flies = session.inflight.open_of_track(id).filter(|(_, sent)| with_sent || !sent).map(|(id, _)| id);
        flies.chain(waits).collect()
    }

    /// Whether a client has not answered something of a stream that it was given, or is to be: an event, or the notice of a gap.
    pub(crate) fn has_unanswered(&self, id: u32, pubend: PubendId) -> bool {
        let index = self.tracks.get(id).session;
        let mut gaps = self.sessions.get(index).inflight.unanswered_gaps(id);
        gaps.any(|gap| gap.pubend == pubend)
            || self.unanswered(index, id, true).into_iter().any(|event| event.pubend == pubend)
    }

    /// A subscription gets other terms, and goes on where it is.
    fn change(&mut self, id: u32, mut new: Track, confirmed: Option<&Confirmed>) {
        let old = self.tracks.get_mut(id);
        let old_session = old.session;
        if let Some(mut durable) = old.durable.take() {
            match confirmed {
                Some(confirmed) => {
                    let is_volatile = new.durable.as_ref().is_some_and(|durable| durable.may_be_volatile);
                    durable.may_be_volatile = is_volatile;
                    let text = self.router.get(old.subscription).selector.as_deref();
                    durable.change(confirmed, text, self.router.fences());
                    new.durable = Some(durable);
                }
                None => {
                    let (inflight, mut waker) = self.sessions.inflight_mut(old_session);
                    inflight.lose_loading(id, &mut waker, |_| true);
                    let text = self.router.get(old.subscription).text.clone();
                    self.forget_durable(old_session, &text, &durable);
                }
            }
        }
        let old = self.tracks.get(id);
        if old.by_token && !new.by_token || old.without != new.without {
            // What it has passed, or has had elsewhere, may be wanted under the new terms if it is read again.
            self.mark_all(id, &mut new);
        }
        let old = self.tracks.get_mut(id);
        let (lag, silence) = (old.lag.take(), old.silence);
        let (ahead, mut acknowledged) = (core::mem::take(&mut old.ahead), core::mem::take(&mut old.acknowledged));
        let unsettled = core::mem::take(&mut old.unsettled);
        if !new.by_token {
            acknowledged = Positions::default();
        }
        let parked = old.parked && new.by_token;
        let (session, freed, lags) = (old.session, old.parked && !new.by_token, lag.is_some());
        let number = new.durable.as_deref().map(|durable| durable.number);
        // What it has had elsewhere may lie further on than anything that was passed here.
        let began = Began { here: old.began.here.max(new.began.here), ..old.began };
        *old = Track { id, lag, silence, ahead, unsettled, acknowledged, parked, began, ..new };
        if let Some((number, confirmed)) = number.zip(confirmed)
            && confirmed.until.is_some()
        {
            let known = self.router.get(self.tracks.get(id).subscription);
            let (text, selector) = (known.text.clone(), known.selector.clone());
            self.router.want_old(number, &text, selector.as_deref());
            self.set_all_aside(id);
        }
        if freed && lags {
            self.sessions.get_mut(session).follow.lagging.push_back(id);
        }
    }

    /// Whatever a subscription, which is about to be `new`, has passed of other brokers' streams counts as given to it.
    fn mark_all(&self, id: u32, new: &mut Track) {
        let track = self.tracks.get(id);
        let at = |pubend| match &track.lag {
            Some(lag) => lag.positions.get(pubend),
            None => self.streams.passed(pubend).max(track.ahead.get(pubend)),
        };
        let Some(durable) = new.durable.as_deref_mut() else { return };
        let streams: Vec<PubendId> = durable.far.since.iter().map(|(pubend, _)| pubend).collect();
        streams.into_iter().for_each(|pubend| durable.far.written.mark(pubend, at(pubend)));
    }

    /// A subscription begins at a place that its client has named.
    fn begin_at(&mut self, now: Time, id: u32, asked: &Filter<'_>, lag: Box<super::Lag>) {
        let index = self.tracks.get(id).session;
        self.sessions.stats.resumed += 1;
        let newest = lag.positions.iter().map(|(_, tick)| tick).max().unwrap_or_default();
        let follow = &mut self.sessions.get_mut(index).follow;
        let says_when_it_left = matches!(asked.following.start, Start::Token(..) | Start::After(_));
        if says_when_it_left && !core::mem::replace(&mut follow.away_known, true) {
            self.cache.observe_outage(now.since(Time::from_nanos(newest.0)).min(AWAY_MAX));
        }
        self.sessions.purge_track(index, id);
        self.forget_aside(id);
        let track = self.tracks.get_mut(id);
        let (inflight, mut waker) = self.sessions.inflight_mut(index);
        inflight.let_go(&mut waker, |track| track == id, false);
        inflight.leave_behind(id, track.by_token, &mut waker);
        let is_had = |durable: &&mut Durable| !durable.beyond.is_empty();
        if (track.by_token || track.qos < Qos::ExactlyOnce)
            && let Some(durable) = track.durable.as_deref_mut().filter(is_had)
        {
            durable.beyond.clear();
        }
        let is_listed = track.lag.is_some() && !track.parked;
        track.parked = false;
        track.began.here = track.began.here.max(newest);
        track.began.is_named |= !matches!(asked.following.start, Start::Own);
        track.ahead = Positions::default();
        // What comes before is not waited for any more.
        let waits = |(pubend, from): (PubendId, Tick)| (pubend, from.max(lag.positions.get(pubend)));
        track.unsettled = track.unsettled.iter().map(waits).collect();
        if track.by_token {
            let before = core::mem::replace(&mut track.acknowledged, lag.untold());
            let chopped = self.store.release.chopped.iter().filter(|_| track.durable.is_some());
            for (own, chopped) in chopped.enumerate() {
                // What it had acknowledged and is gone is told as a gap however often it is asked for.
                let pubend = self.streams.logged().host().pubend(own as u8);
                track.acknowledged.advance(pubend, before.get(pubend).min(*chopped));
            }
        }
        if let Some(durable) = track.durable.as_deref_mut().filter(|_| !track.by_token) {
            // What comes before it had elsewhere.
            let streams: Vec<PubendId> = durable.far.since.iter().map(|(pubend, _)| pubend).collect();
            streams.into_iter().for_each(|pubend| durable.far.written.mark(pubend, lag.positions.get(pubend)));
        }
        self.tracks.set_lag(id, lag);
        if !is_listed {
            self.sessions.get_mut(index).follow.lagging.push_back(id);
        }
    }

    /// A subscription begins elsewhere: no stream is set aside for it.
    fn forget_aside(&mut self, id: u32) {
        let Some(durable) = self.tracks.durable_mut(id).filter(|durable| !durable.far.aside.is_empty()) else { return };
        durable.far.barred.clear();
        durable.far.later.clear();
        durable.far.told.clear();
        let (number, aside) = (durable.number, core::mem::take(&mut durable.far.aside));
        aside.iter().for_each(|(pubend, _)| self.store.far_reads.leave(pubend, number));
    }

    /// A subscription is durable no more: it holds nothing, and what is written of its position and its last deliveries is forgotten.
    fn forget_durable(&mut self, index: u32, text: &str, durable: &Durable) {
        for (pubend, _) in durable.far.aside.iter() {
            self.store.far_reads.leave(pubend, durable.number);
        }
        for _ in &durable.old {
            self.router.want_old_no_more(durable.number, text);
        }
        self.let_go_of_log(&durable.held, &durable.far.held, durable.is_near);
        let number = self.sessions.get(index).memory.number;
        self.forget_position(durable.number, &durable.far.written);
        if durable.far.unnamed != [Tick(0); OWN] {
            self.store.write_queue.forget(|key| Key::Unnamed(durable.number).put(key));
        }
        for tag in &durable.done {
            self.store.write_queue.forget(|key| Key::InFlight(number, *tag).put(key));
        }
    }

    /// Forgets a tracked subscription, which was asked for so.
    pub(crate) fn unfollow(&mut self, id: u32, text: &str) {
        let track = self.tracks.remove(id);
        if let Some(overlay) = self.overlay.as_deref_mut().filter(|_| !track.unsettled.is_empty()) {
            overlay.waiting.forget(id);
        }
        if let Some(overlay) = self.overlay.as_deref_mut() {
            overlay.logs.claims.forget(id);
        }
        if let Some(at) = track.silence.due {
            self.timers.remove(at, Reason::Silence, id);
        }
        if track.lag.is_some() {
            self.sessions.get_mut(track.session).follow.lagging.retain(|other| *other != id);
        }
        if let Some(durable) = &track.durable {
            self.forget_durable(track.session, text, durable);
        }
        self.sessions.purge_track(track.session, id);
        let (inflight, mut waker) = self.sessions.inflight_mut(track.session);
        inflight.forget_track(id, track.by_token, &mut waker);
    }

    /// The position at which a subscription begins that has just been made or changed.
    pub(crate) fn begins(&mut self, now: Time, index: u32, asked: &Filter<'_>) -> CheckpointToken {
        if let Start::Token(token, later) = asked.following.start {
            let mut begins = token.clone();
            // Where it does not fit any more, the token begins a little earlier.
            if later.iter().all(|id| begins.advance(*id).is_ok()) {
                return begins;
            }
            return token.clone();
        }
        let id = self.router.find(index, asked.filter).expect("it has just been made");
        let track = self.router.get(id).track;
        if track == NO_TRACK {
            return self.live_token(now);
        }
        let of_track = self.tracks.get(track);
        // What was sent on this connection comes to the client before this answer.
        let unsent = self.unanswered(index, track, false);
        let is_here = of_track.ahead.is_empty() && !of_track.is_behind_somewhere();
        if of_track.lag.is_none() && is_here && unsent.is_empty() {
            return self.live_token(now);
        }
        let lag = of_track.lag.as_ref();
        let mut positions = lag.map_or_else(|| self.ahead_positions(&of_track.ahead), |lag| lag.positions.clone());
        of_track.step_back_to_settled(&mut positions);
        for id in &unsent {
            step_back(&mut positions, *id);
        }
        self.token_at(&positions, lag.map_or(&Gaps::default(), |lag| &lag.gaps))
    }

    /// Where a live subscription stands that is ahead of some streams.
    pub(super) fn ahead_positions(&self, ahead: &Positions) -> Positions {
        let mut positions: Positions = self.streams.positions().collect();
        for (pubend, tick) in ahead.iter() {
            positions.advance(pubend, tick);
        }
        positions
    }

    /// The tracked subscriptions of a session.
    pub(crate) fn tracks_of(&self, index: u32) -> Vec<u32> {
        let all = self.sessions.get(index).subscriptions.iter().map(|id| self.router.get(*id).track);
        all.filter(|track| *track != NO_TRACK).collect()
    }

    /// The client of a session that lives on has gone: its tracked subscriptions stay where they are, and what waits for them stays in
    /// the cache.
    pub(crate) fn leave_streams(&mut self, index: u32) {
        let tracks = self.tracks_of(index);
        self.stay_behind(index);
        for entry in self.sessions.take_tracked(index).iter() {
            let lag = self.tracks.get_mut(entry.track).lag.as_mut().expect("all of the session's lag now");
            if entry.event.id().pubend != NO_PUBEND {
                lag.next = lag.next.min(entry.serial);
                step_back(&mut lag.positions, entry.event.id());
            }
        }
        for id in tracks {
            if !self.tracks.get(id).keeps {
                self.give_up(id);
            }
            self.level_off(id);
        }
        let Broker { sessions, tracks, .. } = self;
        let (inflight, mut waker) = sessions.inflight_mut(index);
        inflight.let_go(&mut waker, |track| tracks.is_by_token(track), true);
    }

    /// Nobody is there for a session: its tracked subscriptions lag from now on.
    pub(crate) fn stay_behind(&mut self, index: u32) {
        for id in self.tracks_of(index) {
            self.tracks.touch(id);
            self.take_back_aside(id);
            if let Some(due) = self.tracks.get_mut(id).silence.due.take() {
                self.timers.remove(due, Reason::Silence, id);
            }
            if self.tracks.get(id).lag.is_none() {
                self.fall_behind(id, None, false);
            }
        }
    }

    /// What a subscription has not had is a gap, although the client was there: it gets nothing of the time when it is away.
    fn give_up(&mut self, id: u32) {
        let lag = self.tracks.get_mut(id).lag.as_mut().expect("who has left lags");
        for (pubend, to) in self.streams.positions() {
            let from = lag.positions.get(pubend);
            if from < to {
                lag.gaps.add(Gap { pubend, from, to, reason: GapReason::Slow });
                lag.positions.set(pubend, to);
            }
        }
    }

    /// The client of a session is back after `away`. What is only for those who are there goes on with what comes now; where the client
    /// keeps the position, it has to say it first.
    pub(crate) fn return_to_streams(&mut self, now: Time, index: u32, away: Option<Duration>) {
        self.sessions.get_mut(index).follow.away_known = false;
        let mut keeps = false;
        for id in self.tracks_of(index) {
            let (next, passed) = (self.serial + 1, self.streams.positions().collect());
            let track = self.tracks.get_mut(id);
            keeps |= track.keeps;
            let lag = track.lag.as_mut().expect("who was away lags");
            lag.slow = false;
            if !track.keeps {
                (lag.next, lag.positions) = (next, passed);
            }
            track.parked = track.by_token;
            self.watch_silence(now, id);
        }
        let mut lagging = self.tracks_of(index);
        lagging.retain(|id| !self.tracks.get(*id).parked);
        self.sessions.get_mut(index).follow.lagging = lagging.into();
        if let Some(away) = away.filter(|away| keeps && *away >= AWAY_MIN) {
            self.cache.observe_outage(away.min(AWAY_MAX));
            self.sessions.get_mut(index).follow.away_known = true;
        }
    }

    /// Who asked for a subscription of which the client keeps the position has gone, and somebody else is there: it gets nothing until it
    /// has said where it is.
    pub(crate) fn park(&mut self, index: u32, text: &str) {
        let Some(id) = self.router.track_of(index, text).filter(|id| self.tracks.get(*id).by_token) else { return };
        if fault!(self, BeginsForAnother) {
            return;
        }
        if self.tracks.get(id).lag.is_none() {
            self.fall_behind(id, None, false);
        }
        self.tracks.get_mut(id).parked = true;
        self.sessions.get_mut(index).follow.lagging.retain(|other| *other != id);
    }
}

/// A subscription has not got that event, or is not sure of it. Notices are in no stream.
fn step_back(positions: &mut Positions, id: EventId) {
    if id.pubend != NO_PUBEND {
        positions.set(id.pubend, positions.get(id.pubend).min(Tick(id.tick.0 - 1)));
    }
}
