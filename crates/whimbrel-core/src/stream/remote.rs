//! Streams of other brokers: knowledge of them is passed on in tick order.

use core::time::Duration;

use whimbrel_event::{AcceptedEvent, EventId, PubendId, Reliability, StreamClass, Tick, Time};
use whimbrel_net::traces::TraceStep;
use whimbrel_selector::TopicName;
use whimbrel_wire::{Silence, compact};

use crate::api::{Output, Segment, Tell};
use crate::broker::Broker;
use crate::cursor::{CATCH_UP_SLICE, Gap, GapReason};
use crate::overlay::Due;
use crate::retained::TOMBSTONE_LIFETIME;
use crate::session::Publication;
use crate::stream::held_back::{HeldBack, HoldOutcome};
use crate::stream::{Knowledge, Passed, RemoteArrival};
use crate::topic::LateCause;

/// Knowledge of a part of a stream.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::large_enum_variant, reason = "it is handed on at once, and never kept")]
pub(crate) enum Learnt<'a> {
    /// An event at its last tick, and none before.
    Data {
        /// The event.
        event: AcceptedEvent<'a>,
        /// It becomes its topic's retained message.
        retain: bool,
    },
    /// No event.
    Silence,
    /// Its events, if it had any, are lost for good.
    Lost,
}

impl Broker {
    /// Adds knowledge of another broker's stream, as its carrier tells it.
    pub(crate) fn learn(&mut self, now: Time, segment: &Segment<'_>, out: &mut dyn Output) {
        let Segment { pubend, after, upto, what } = *segment;
        let learnt = match what {
            Tell::Data(event) => {
                let id = EventId { pubend, tick: upto };
                let event = AcceptedEvent { id, accepted: now, clock_offset: 0, event: *event };
                Learnt::Data { event, retain: false }
            }
            Tell::Silence => Learnt::Silence,
            Tell::Lost => Learnt::Lost,
        };
        self.learn_of(now, (pubend, after, upto), learnt, Duration::ZERO, out);
    }

    /// Adds knowledge of another broker's stream, and passes on what is before the doubt horizon. A
    /// best-effort event waits at most `hold` for earlier ticks.
    pub(crate) fn learn_of(
        &mut self,
        now: Time,
        (pubend, after, upto): (PubendId, Tick, Tick),
        learnt: Learnt<'_>,
        hold: Duration,
        out: &mut dyn Output,
    ) {
        if fault!(self, DeliverTwice) {
            self.deliver_again(now, (pubend, upto), &learnt, out);
        }
        let Some(remote) = self.streams.remote(pubend).filter(|_| after < upto) else {
            self.sessions.stats.knowledge_refused += 1;
            return;
        };
        let knowledge = &mut remote.knowledge;
        let is_best_effort = pubend.reliability() == Reliability::BestEffort;
        match learnt {
            Learnt::Data { event, .. } if TopicName::new(event.event.topic).is_err() => {
                self.sessions.stats.knowledge_refused += 1;
                return;
            }
            Learnt::Data { event, retain } => {
                if is_best_effort && hold.is_zero() {
                    knowledge.silence(knowledge.base(), upto);
                }
                knowledge.silence(after, Tick(upto.0 - 1));
                let after = event.event.headers.after;
                if !after.is_empty() && !is_best_effort && knowledge.base() < upto {
                    remote.predecessors.insert(upto, after.iter().collect());
                }
                if retain && knowledge.base() < upto {
                    remote.retained.insert(upto);
                }
                knowledge.data(event.keep());
            }
            Learnt::Silence if is_best_effort => knowledge.silence(knowledge.base().min(after), upto),
            Learnt::Silence => knowledge.silence(after, upto),
            Learnt::Lost => knowledge.lost(after, upto),
        }
        self.pass_known(now, pubend, out);
        if hold.is_zero() {
            return;
        }
        let Some(remote) = self.streams.remote(pubend) else { return };
        let until = now + hold;
        match remote.hold_back(upto, until) {
            HoldOutcome::Waits => {
                self.overlay.stats.events_held_back += 1;
                self.overlay.set_timer(until, Due::HeldBack(pubend));
            }
            HoldOutcome::Passed => {}
            HoldOutcome::Full => self.pass_known(now, pubend, out),
        }
    }

    /// Passes on what is known of a stream, up to the doubt horizon or to an event that waits for
    /// one of another stream. Best-effort events that have waited long enough for earlier ones
    /// pass, too.
    pub(crate) fn pass_known(&mut self, now: Time, pubend: PubendId, out: &mut dyn Output) {
        let remote = self.streams.remote(pubend).expect("the stream is known");
        if remote.is_held {
            return;
        }
        remote.release_held(now);
        let waits_at = if remote.predecessors.is_empty() { None } else { self.must_wait_at(now, pubend, out) };
        let remote = self.streams.remote(pubend).expect("the stream is known");
        let mut parts = Vec::new();
        remote.knowledge.advance_while(|event| Some(event.id().tick) != waits_at, |part| parts.push(part));
        remote.held.record_passed(remote.knowledge.base());
        for part in parts {
            match part {
                Passed::Data(event) => {
                    let tick = event.id().tick;
                    let remote = self.streams.remote(pubend).expect("the stream is known");
                    (remote.passed, remote.spoke) = (tick, tick);
                    let retain = remote.retained.remove(&tick);
                    let route = self.router.route(event.topic()).expect("the topic has been checked");
                    let matched = self.pass(now, route, &mut Publication::of(&event, 0), retain, out);
                    self.overlay.stats.events_unwanted += u64::from(!matched);
                }
                Passed::Lost { after, upto } => {
                    let remote = self.streams.remote(pubend).expect("the stream is known");
                    remote.record_passed(upto);
                    remote.spoke = upto;
                    remote.lost.add(after, upto);
                    self.pass_gap(now, pubend, (after, upto), GapReason::Lost, out);
                }
                Passed::Silence { upto, .. } => {
                    self.streams.remote(pubend).expect("the stream is known").record_passed(upto);
                }
            }
        }
        if self.streams.is_awaited() {
            self.check_stalled(now, out);
        }
    }

    /// Follows a stream from tick `begin` on: before, there was no interest in it here, or it was
    /// not known which.
    pub(crate) fn begin_stream(&mut self, now: Time, pubend: PubendId, begin: Tick, out: &mut dyn Output) {
        let Some(remote) = self.streams.remote(pubend) else { return };
        remote.is_held = false;
        let before = remote.passed;
        if before < begin {
            let mut knowledge = Knowledge::new(pubend, begin);
            knowledge.merge(&remote.knowledge);
            (remote.knowledge, remote.passed, remote.spoke) = (knowledge, begin, begin);
            remote.retained = remote.retained.split_off(&Tick(begin.0 + 1));
            self.cache.miss(pubend, begin);
            self.begin_unanswered(pubend, begin);
            self.pass_gap(now, pubend, (before, begin), GapReason::NotBuffered, out);
        }
        self.pass_known(now, pubend, out);
    }

    /// Sets subscriptions that begin now, and have not been answered, to the begin of a stream:
    /// they have missed nothing of it.
    pub(crate) fn begin_unanswered(&mut self, pubend: PubendId, begin: Tick) {
        for (index, filter) in self.overlay.waiting.new_ones() {
            if let Some(cursor) = self.router.cursor_of(index, filter) {
                self.cursors.get_mut(cursor).ahead.advance(pubend, begin);
            }
        }
    }

    /// Tells a missing part to all subscriptions that may have wanted something of it.
    fn pass_gap(
        &mut self,
        now: Time,
        pubend: PubendId,
        (after, to): (Tick, Tick),
        reason: GapReason,
        out: &mut dyn Output,
    ) {
        for id in self.cursors.ids() {
            let cursor = self.cursors.get_mut(id);
            let from = after.max(cursor.ahead.get(pubend));
            if from >= to {
                continue;
            }
            // A caught-up cursor stands before the lost part; one in catch-up goes on from there
            // behind it.
            let from = cursor.catch_up.as_ref().map_or(from, |catch_up| from.max(catch_up.positions.get(pubend)));
            if self.read_remote_instead(id, pubend, (from, to)) {
                continue;
            }
            let cursor = self.cursors.get(id);
            let is_new = cursor.catch_up.as_ref().is_some_and(|catch_up| !catch_up.positions.has(pubend));
            if is_new
                && !self.sessions.is_attached(cursor.session)
                && self.cache.incomplete(&cursor.partitions, pubend) >= to
            {
                // Its client is away, and is told when it is back, as of everything that the cache
                // lacks. Until then it takes no memory for that.
                continue;
            }
            self.tell_gap(now, id, Gap { pubend, from, to, reason }, out);
        }
    }

    /// Tells a subscription a gap, in order, after all that waits, if there may have been an event
    /// in it.
    pub(crate) fn tell_gap(&mut self, now: Time, id: u32, gap: Gap, out: &mut dyn Output) {
        if self.streams.possible(gap).is_none() {
            return;
        }
        let session = self.add_gap(id, gap);
        if self.sessions.is_attached(session) {
            self.catch_up(now, session, &mut { CATCH_UP_SLICE }, out);
        }
    }

    /// As [`Broker::tell_gap`], at the end of the turn.
    pub(crate) fn record_gap(&mut self, id: u32, gap: Gap) {
        if self.streams.possible(gap).is_none() {
            return;
        }
        let session = self.add_gap(id, gap);
        if self.sessions.is_attached(session) {
            self.catch_up_soon(id);
        }
    }

    fn add_gap(&mut self, id: u32, gap: Gap) -> u32 {
        if self.cursors.get(id).catch_up.is_none() {
            self.fall_behind(id, None, false);
        }
        let cursor = self.cursors.get_mut(id);
        let catch_up = cursor.catch_up.as_mut().expect("it lags now");
        if catch_up.gaps.iter().all(|known| known.pubend != gap.pubend) && !catch_up.positions.has(gap.pubend) {
            // It has had no event of that stream yet, also none before the gap.
            catch_up.positions.set(gap.pubend, Tick(0));
        }
        catch_up.gaps.add(gap);
        cursor.session
    }

    /// Takes in an event that this broker wants, or wanted under an earlier interest.
    pub(crate) fn on_remote_event(&mut self, now: Time, arrival: &RemoteArrival<'_>, out: &mut dyn Output) {
        let RemoteArrival { frame, own, age, last } = arrival;
        let (own, age) = (*own, *age);
        let overlay = &mut self.overlay;
        let id = frame.id();
        let is_copy = last.is_some() && !frame.answer;
        if is_copy && self.streams.remote(id.pubend).is_some_and(|remote| remote.knows(id.tick)) {
            // The other copy has said the same.
            overlay.stats.events_received += 1;
            overlay.stats.events_repeated += 1;
            return;
        }
        let Ok(mut event) = compact::read(frame.event, id) else {
            overlay.net.refuse_event();
            return;
        };
        event.arrive(now, age);
        event.event.headers.retain = frame.retain;
        if event.late_by(now).is_some() {
            self.router.record_late_arrival(id, if frame.answer { LateCause::Loss } else { LateCause::Path });
        }
        let slack = event.slack(now);
        let deadline = event.event.deadline_ms.map(|millis| Duration::from_millis(millis.into()));
        overlay.stats.events_received += 1;
        let version = overlay.net.own_interest().version_of(own.tag);
        let Some(remote) = self.streams.remote(id.pubend) else { return };
        // Silence holds if it was told for the present interest: under the version told last, or up
        // to the tick from which that version is in force.
        let is_told = remote.told > 0 && remote.told >= remote.least;
        let is_believed = is_told && (version >= remote.told || id.tick <= remote.since);
        let is_believed = is_believed || fault!(self, IntervalAcrossVersions) && remote.told > 0;
        let after = if is_believed {
            own.previous
        } else {
            overlay.stats.silence_disbelieved += 1;
            Tick(id.tick.0 - 1)
        };
        overlay.net.record_step(now, id, TraceStep::Passed);
        // For an event older than the lifetime of tombstones it is unknown whether its retained
        // message was deleted; the map of retained messages decides.
        let retain = frame.retain && age < TOMBSTONE_LIFETIME;
        let learnt = Learnt::Data { event, retain };
        let copies = last.map_or(Duration::ZERO, |last| last.saturating_sub(age));
        // Holes of reliable streams wait until they are filled.
        let is_best_effort = id.pubend.reliability() == Reliability::BestEffort;
        let may_hold = is_believed && is_best_effort && id.pubend.class() == StreamClass::Deadline;
        let hold = if may_hold { HeldBack::span(copies, deadline, slack) } else { Duration::ZERO };
        self.learn_of(now, (id.pubend, after, id.tick), learnt, hold, out);
        if let Some(deadline) = deadline
            && let Some(remote) = self.streams.remote(id.pubend)
        {
            remote.deadline = Some(deadline);
            if !frame.answer {
                self.await_upto(id, is_believed.then_some(after), now.before(age));
            }
        }
        if frame.answer {
            self.overlay.on_answer(now, id.pubend, frame.event.len(), &mut self.streams, out);
        }
        self.overlay.check_holes(now, id.pubend, slack, copies, &mut self.streams);
    }

    /// Awaits the events of another broker's stream that are known by now not to have been passed:
    /// the one at a tick, which was there at `then`, and the one that it was told to follow. Both
    /// have the deadline of the stream's last event, or the least of all if none has come.
    fn await_upto(&mut self, known: EventId, before: Option<Tick>, then: Time) {
        if !self.expected.is_listened_to() {
            return;
        }
        let Some(remote) = self.streams.remote(known.pubend).filter(|remote| remote.passed < known.tick) else {
            return;
        };
        let Some(deadline) = remote.deadline.or_else(|| self.router.profiles().least_of_all()) else { return };
        for (by, id, event) in remote.awaited_upto(known.tick, before, then, deadline) {
            self.expected.await_event(by, id, event.cloned());
        }
    }

    /// Takes in silence of other brokers' streams.
    pub(crate) fn on_silence(&mut self, now: Time, silence: &Silence<'_>, out: &mut dyn Output) {
        for part in &silence.parts {
            let pubend = silence.from.pubend(part.index);
            let version = self.streams.remote(pubend).map_or(0, |remote| remote.told);
            self.silence_of(now, pubend, (silence.version, part), out);
            if pubend.class() == StreamClass::Deadline && self.expected.is_listened_to() {
                let then = now.before(self.overlay.net.way(silence.from));
                // The first one of a version may follow no event.
                let before = (silence.version == version).then_some(part.after);
                self.await_upto(EventId { pubend, tick: part.upto }, before, then);
            }
            self.overlay.check_holes(now, pubend, None, Duration::ZERO, &mut self.streams);
        }
        self.overlay.record_told(&self.streams, silence.from);
        self.confirm_ready(now, out);
    }

    /// Takes in the silence of one stream.
    fn silence_of(
        &mut self,
        now: Time,
        pubend: PubendId,
        (version, part): (u64, &whimbrel_wire::Part),
        out: &mut dyn Output,
    ) {
        let overlay = &mut self.overlay;
        let began = overlay.net.own_interest().began();
        let version_now = overlay.net.own_interest().version();
        let Some(remote) = self.streams.remote(pubend) else { return };
        // Holds under any version: it may be older than the interest that was told last.
        remote.record_still((part.still, part.upto));
        // Subscriptions that were answered before the stream's broker was known did not wait for
        // it: the stream counts once its broker knows of them.
        let least = began.max(remote.least);
        let version = if fault!(self, OldVersionBelieved) { version_now } else { version };
        if version > version_now || version < remote.told.max(least) || part.upto < part.after {
            return;
        }
        let mut after = part.after;
        if remote.told < least {
            // There was no interest before, so no subscription misses anything.
            self.begin_stream(now, pubend, part.begin, out);
            // Events up to `part.since` were matched against other versions: they are asked for.
            after = after.max(part.since);
            if fault!(self, FirstSilenceBelieved) {
                after = part.begin;
            }
        }
        let Some(remote) = self.streams.remote(pubend) else { return };
        let is_more = remote.told < version;
        (remote.told, remote.since) = (version, part.since);
        self.overlay.waiting.record_told_more(is_more);
        if after < part.upto {
            let what = if part.lost { Learnt::Lost } else { Learnt::Silence };
            self.learn_of(now, (pubend, after, part.upto), what, Duration::ZERO, out);
        }
    }

    /// The built-in fault `DeliverTwice`: passes an event of another broker's stream on a second
    /// time, if it was passed on before.
    pub(crate) fn deliver_again(
        &mut self,
        now: Time,
        (pubend, upto): (PubendId, Tick),
        learnt: &Learnt<'_>,
        out: &mut dyn Output,
    ) {
        let Learnt::Data { event, .. } = learnt else { return };
        if self.streams.remote(pubend).is_some_and(|remote| remote.passed >= upto) {
            let event = event.keep();
            let route = self.router.route(event.topic()).expect("the topic has been checked");
            self.pass(now, route, &mut Publication::of(&event, 0), false, out);
        }
    }
}
