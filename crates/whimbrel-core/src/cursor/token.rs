//! Clients that keep the position acknowledge tokens, are told tokens while a subscription is
//! silent, and resume by token where no broker that has their session can be reached.
//!
//! The interest was logged for the previous session, and is held for that until its owner reports
//! otherwise or is forgotten. So the logs count for the subscription from its token on, not from
//! now on, if that session cannot have ended meanwhile: the token may not be older than the
//! session's expiry. That it is the same subscription as before is up to the client.

use std::collections::BTreeMap;

use whimbrel_event::{CheckpointToken, Event, EventId, HostId, PubendId, Qos, Reliability, Tick, Time};

use super::{
    CatchUp, DueNotice, Durable, Gap, GapReason, Gaps, InForceSince, NOTHING, Positions, RemoteLogs, SilenceTimer,
    notice,
};
use crate::api::{Accepted, Filter, Link, Output, Reason, Refusal, Start};
use crate::broker::Broker;
use crate::overlay::Attachment;
use crate::session::{Publication, Unreleased};
use crate::store::{Answer, BatchNo, Disk, Key, MapValue, OWN};
use crate::stream::Sources;

impl CatchUp {
    /// A stream that is younger than the token, or not in it, may be of a broker that did not know
    /// of the session, and logged nothing for it: adds a gap.
    pub(super) fn add_younger(&mut self, start: Start<'_>, streams: &Sources) {
        let Start::Token(token, _) = start else { return };
        let is_younger = |pubend, birth| birth > token.common() || streams.position_in(token, pubend).is_none();
        let births: BTreeMap<PubendId, Tick> =
            streams.births().filter(|(pubend, birth)| is_younger(*pubend, *birth)).collect();
        for (pubend, to) in streams.positions() {
            let Some(birth) = births.get(&pubend).filter(|birth| self.positions.get(pubend) <= **birth) else {
                continue;
            };
            self.gaps.add(Gap { pubend, from: *birth, to, reason: GapReason::NotBuffered });
        }
    }
}

/// Overdue events and periods that are told before other work has its turn.
const EXPECTED_SLICE: usize = 16;

impl Broker {
    /// A client reports up to where it has safely processed the events of a subscription.
    pub(crate) fn acknowledge(
        &mut self,
        now: Time,
        (link, tag, qos): (Link, u16, Qos),
        what: (u32, &CheckpointToken),
        out: &mut dyn Output,
    ) {
        let (index, whom) = (self.sessions.of(link), self.sessions.whom(link));
        if qos == Qos::ExactlyOnce
            && let Some(first) = self.sessions.get(index).memory.pending.unreleased.get(&tag).copied()
        {
            self.sessions.stats.publishes_repeated += 1;
            return self.answer(now, whom, (first.batch, Answer::Repeat { tag, qos, number: None }), out);
        }
        let (batch, result) = match self.acknowledge_up_to(index, what.0, what.1) {
            Ok(batch) => (batch, Accepted::Routed { matched: true }),
            Err(refusal) => {
                self.sessions.stats.events_refused += 1;
                if qos == Qos::AtMostOnce {
                    out.dropped(link, refusal);
                }
                (BatchNo(0), Accepted::Refused(refusal))
            }
        };
        if qos == Qos::ExactlyOnce && !matches!(result, Accepted::Refused(_)) {
            self.sessions.get_mut(index).memory.pending.unreleased.insert(tag, Unreleased { batch, is_written: false });
        }
        let batch = if fault!(self, AcknowledgedBeforePut) { BatchNo(0) } else { batch };
        if qos != Qos::AtMostOnce {
            self.answer(now, whom, (batch, Answer::Accepted { tag, qos, result }), out);
        }
    }

    /// Moves all subscriptions with that identifier there; without one, exactly one subscription
    /// must be acknowledged by token. Returns the batch that must be durable before the answer.
    fn acknowledge_up_to(&mut self, index: u32, identifier: u32, token: &CheckpointToken) -> Result<BatchNo, Refusal> {
        if token.deployment() != self.sessions.limits.deployment {
            return Err(Refusal::OtherDeployment);
        }
        let is_future = |(pubend, tick)| self.streams.closed(pubend).is_some_and(|closed| tick > closed);
        if token.pubends().any(is_future) {
            return Err(Refusal::FutureStart);
        }
        let mut meant = self.cursors_of(index);
        meant.retain(|id| self.cursors.get(*id).by_token);
        if identifier != 0 {
            meant.retain(|id| self.cursors.get(*id).marks.identifier == identifier);
        }
        if meant.is_empty() || meant.len() > 1 && identifier == 0 {
            return Err(Refusal::NotAcknowledged);
        }
        let known: BTreeMap<_, _> = token.pubends().filter(|(pubend, _)| self.streams.knows(*pubend)).collect();
        let is_durable = |id: &u32| self.cursors.durable(*id).is_some();
        if self.store.disk == Disk::Poisoned && meant.iter().any(is_durable) {
            return Err(Refusal::LogFailed);
        }
        let mut batch = BatchNo(0);
        for id in meant {
            let acknowledged = &mut self.cursors.get_mut(id).acknowledged;
            for (pubend, tick) in &known {
                acknowledged.advance(*pubend, *tick);
            }
            self.align_acknowledged(id);
            self.cursors.touch(id);
            if self.cursors.durable(id).is_some() {
                batch = self.write_position(id);
            }
        }
        self.sessions.stats.tokens_acknowledged += 1;
        Ok(batch)
    }

    /// The token of a subscription at these positions, which has not been told of these gaps.
    pub(crate) fn token_at(&self, positions: &Positions, gaps: &Gaps) -> CheckpointToken {
        let mut untold = positions.clone();
        for gap in gaps.iter().filter(|gap| self.streams.knows(gap.pubend)) {
            untold.set(gap.pubend, gap.from.min(positions.get(gap.pubend)));
        }
        let latest = untold.iter().map(|(_, tick)| tick).max().unwrap_or_default();
        self.token_of(latest, &untold)
    }

    /// The token of all caught-up subscriptions. Closes the own streams up to now, so that new
    /// events are later; a stream with waiting events is named with its passed position.
    pub(crate) fn caught_up_token(&mut self, now: Time) -> CheckpointToken {
        let common = self.streams.close(now);
        self.token_of(common, &self.streams.positions().collect())
    }

    fn token_of(&self, common: Tick, positions: &Positions) -> CheckpointToken {
        let mut token = self.streams.token(self.sessions.limits.deployment, common);
        for (pubend, _) in self.streams.positions() {
            token.set(pubend, positions.get(pubend));
        }
        // Named streams of unknown brokers may be known elsewhere.
        for (pubend, tick) in positions.iter().filter(|(pubend, _)| !self.streams.knows(*pubend)) {
            // If the token is full, they begin at their birth.
            let _ = token.advance(EventId { pubend, tick });
        }
        token
    }
}

impl Broker {
    /// Sets the timer of a subscription with notices.
    pub(super) fn watch_silence(&mut self, now: Time, id: u32) {
        let span = self.sessions.limits.silence_after;
        let cursor = self.cursors.get_mut(id);
        if cursor.notices && cursor.silence.due.is_none() {
            let at = now.after(span);
            cursor.silence = SilenceTimer { told_at: now, due: Some(at) };
            self.timers.insert(at, Reason::Silence, id);
            let has_deadline = self.router.may_have_deadline_for(cursor.subscription);
            self.expected.listen(now, id, has_deadline, self.router.periods_for(cursor.subscription));
        }
    }

    /// The timer of a subscription fires: tells it of silence, if it is caught up.
    pub(crate) fn tell_silence(&mut self, now: Time, id: u32, out: &mut dyn Output) {
        let span = self.sessions.limits.silence_after;
        let cursor = self.cursors.get(id);
        let (told_at, session) = (cursor.silence.told_at, cursor.session);
        // Also if it gets events: its position in streams without events for it would stay behind.
        if cursor.notices && cursor.catch_up.is_none() {
            let token = self.silence_token(now, id);
            let cursor = self.cursors.get_mut(id);
            let terms = cursor.terms_of_notice(Qos::AtLeastOnce);
            let event = notice::silence(told_at, self.streams.silent(now), &token, now);
            cursor.silence.told_at = now;
            // A client that does not even take this is not silent.
            self.sessions.offer_tracked(session, &mut Publication::of(&event, 0), terms, out);
        }
        let cursor = self.cursors.get_mut(id);
        cursor.silence.due = None;
        if cursor.notices {
            let at = now.after(span);
            cursor.silence.due = Some(at);
            self.timers.insert(at, Reason::Silence, id);
        }
    }

    /// Tells subscriptions what has not come although it was expected, at most
    /// [`EXPECTED_SLICE`] times.
    pub(crate) fn tell_expected(&mut self, now: Time, out: &mut dyn Output) {
        for _ in 0..EXPECTED_SLICE {
            let Some(due) = self.expected.take_due(now, |id| self.streams.lacks(id)) else { return };
            let (told, to) = match &due {
                DueNotice::Overdue(id, event) => {
                    (notice::overdue(*id, event.as_ref().map(Event::topic), now), self.expected.listeners())
                }
                DueNotice::Stalled(cursor, filter) => (notice::stalled(filter, now), vec![(*cursor, false)]),
            };
            for (id, has_deadline) in to {
                let Some(cursor) = self.cursors.find(id).filter(|cursor| cursor.notices) else { continue };
                let (session, subscription) = (cursor.session, cursor.subscription);
                let is_wanted = match &due {
                    DueNotice::Overdue(id, _) if cursor.ahead.get(id.pubend) >= id.tick => false,
                    DueNotice::Overdue(_, Some(event)) => {
                        !cursor.is_own(event.view().publisher) && self.router.wants(subscription, event.packed())
                    }
                    DueNotice::Overdue(_, None) => has_deadline,
                    DueNotice::Stalled(..) => true,
                };
                // In catch-up it expects nothing yet. A client that takes no more is not told.
                if is_wanted && cursor.catch_up.is_none() {
                    let terms = cursor.terms_of_notice(Qos::AtLeastOnce);
                    let is_told = self.sessions.offer_tracked(session, &mut Publication::of(&told, 0), terms, out);
                    let stats = &mut self.sessions.stats;
                    let is_overdue = matches!(due, DueNotice::Overdue(..));
                    stats.notices_overdue += u64::from(is_told && is_overdue);
                    stats.notices_stalled += u64::from(is_told && !is_overdue);
                }
            }
        }
    }

    fn silence_token(&mut self, now: Time, id: u32) -> Box<str> {
        let passed: Positions = self.streams.positions().collect();
        self.cursors.get_mut(id).ahead.retain_above(&passed);
        let cursor = self.cursors.get(id);
        if !cursor.ahead.is_empty() || cursor.is_behind_somewhere() {
            let mut positions = self.streams.ahead_positions(&cursor.ahead);
            cursor.step_back_to_settled(&mut positions);
            self.streams.close(now);
            return self.token_at(&positions, &Gaps::default()).to_string().into();
        }
        if (self.silence.0, self.silence.1) != (now, self.serial) {
            self.silence = (now, self.serial, self.caught_up_token(now).to_string().into());
        }
        self.silence.2.clone()
    }
}

impl Broker {
    /// Whether a requested new subscription resumes one of a session that cannot be reached.
    pub(crate) fn resumes(&self, index: u32, asked: &Filter<'_>) -> bool {
        let session = self.sessions.get(index);
        let Start::Token(token, _) = asked.start else { return false };
        let oldest = self.now.as_nanos().saturating_sub(session.expiry.as_nanos().try_into().unwrap_or(u64::MAX));
        let is_without = session.memory.roam.as_deref().is_some_and(Attachment::may_resume);
        is_without && asked.spec.is_durable() && token.common() >= Tick(oldest)
    }

    /// Adds a gap for the part of the own log, behind a resuming cursor, that was given up. Other
    /// brokers tell that of their logs.
    pub(super) fn record_chopped(&self, catch_up: &mut CatchUp) {
        for (own, chopped) in self.store.release.chopped.iter().enumerate() {
            let pubend = self.streams.logged().host().reliable(own as u8);
            let from = catch_up.positions.get(pubend);
            catch_up.gaps.add(Gap { pubend, from, to: *chopped, reason: GapReason::Released });
        }
    }

    /// Lets the logs count for a subscription from its position on; records of the own streams did
    /// not name it before.
    pub(crate) fn resume_from_token(&mut self, id: u32) {
        let assigned = self.streams.own.assigned();
        let own = [self.streams.own.host(), self.streams.logged().host()];
        let cursor = self.cursors.get(id);
        let (session, catch_up) =
            (cursor.session, cursor.catch_up.as_deref().expect("it begins at a place that was named"));
        let positions = self.streams.births().filter(|(pubend, birth)| {
            let host = pubend.host();
            let has_log =
                !own.contains(&host) && !self.streams.has_ended(host) && !self.overlay.logs.received.has_no_log(host);
            // A stream that may be younger than the token has logged nothing for it before its
            // broker knows of the interest, as for a new subscription.
            has_log && pubend.reliability() == Reliability::Reliable && catch_up.positions.get(*pubend) > *birth
        });
        let positions: Vec<(PubendId, Tick)> =
            positions.map(|(pubend, _)| (pubend, catch_up.positions.get(pubend))).collect();
        let cursor = self.cursors.get_mut(id);
        let durable = cursor.durable.as_deref_mut().expect("it is durable");
        for (pubend, at) in positions {
            durable.remote.since.set(pubend, at);
            durable.remote.newest.set(pubend, NOTHING);
            durable.remote.written.count(pubend, at, Tick(0));
            durable.remote.written.mark(pubend, at);
        }
        (durable.remote.unnamed, durable.remote.resumes) = (assigned, true);
        let number = durable.number;
        let (of_session, now) = (self.sessions.get_mut(session), self.now);
        if let Some(place) = of_session.memory.roam.as_deref_mut() {
            place.settle_later(now);
            self.overlay.roam.name_later(&of_session.client_id);
            self.record_place(now, session);
        }
        let cursor = self.cursors.get_mut(id);
        let mut catch_up = cursor.catch_up.take().expect("it was just looked at");
        self.record_unbuffered(Some(id), InForceSince::Untold, &mut catch_up);
        self.cursors.get_mut(id).catch_up = Some(catch_up);
        if self.remembers(session) && assigned != [Tick(0); OWN] {
            self.store.write_queue.put(|key| Key::Unnamed(number).put(key), |value| assigned.put_versioned(value));
            self.write_position(id);
            self.store.write_queue.seal_large();
        }
    }

    /// A broker has no log: for cursors that resume with its streams, the part behind their
    /// position is a gap.
    pub(crate) fn resume_without_log(&mut self, host: HostId) {
        let passed: Vec<(PubendId, Tick)> =
            self.streams.of_host(host).map(|remote| (remote.pubend, remote.passed)).collect();
        for id in self.cursors.ids() {
            for (pubend, to) in &passed {
                let is_believed = |remote: &RemoteLogs| remote.resumes || remote.unsure.get(*pubend) == NOTHING;
                let resumes =
                    |durable: &&mut Durable| is_believed(&durable.remote) && durable.remote.since.has(*pubend);
                let Some(durable) = self.cursors.durable_mut(id).filter(resumes) else { continue };
                let remote = &mut *durable.remote;
                remote.since.remove(*pubend);
                remote.unsure.remove(*pubend);
                remote.newest.remove(*pubend);
                remote.holes.remove(*pubend);
                let detached = Some(remote.detached.get(*pubend)).filter(|_| remote.detached.has(*pubend));
                self.rejoin(id, *pubend);
                let catch_up = self.cursors.get(id).catch_up.as_deref().map(|catch_up| catch_up.positions.get(*pubend));
                if let Some(from) = detached.or(catch_up).filter(|from| from < to) {
                    self.record_gap(id, Gap { pubend: *pubend, from, to: *to, reason: GapReason::NotBuffered });
                }
            }
        }
    }
}
