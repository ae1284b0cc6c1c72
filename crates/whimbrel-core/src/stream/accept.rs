//! Accepting an event: it gets its id, is logged if it must be, and is passed on at once or when
//! its turn comes.

use core::time::Duration;

use whimbrel_event::{
    AcceptedEvent, DomainLabel, Domains, Event, EventRef, Headers, Publisher, Qos, Reliability, Time,
};
use whimbrel_net::Net;

use crate::api::{Accepted, EventStep, Kick, Link, Output, Publish, Reason, Refusal};
use crate::broker::Broker;
use crate::content::Content;
use crate::overlay::{DomainPlace, EVENT_BYTES_MAX, Overlay, said_of};
use crate::route::{RouteAt, Target};
use crate::session::{Publication, Unreleased, WILL_AGAIN};
use crate::store::{Answer, BatchNo, Disk, HeldEvent, Key, MapValue, Recipient, SessionNo, Wait, own_place};
use crate::stream::StreamKind;
use crate::stream::holding::{hold_back, hold_if_ahead};
use crate::stream::predecessors::events_before;
use crate::topic::{Persistence, TopicSettings};

/// What becomes of an accepted event.
#[derive(Clone, Copy, Debug)]
struct AcceptOutcome {
    /// Whether a subscription wanted it, if it was passed on; `None`: it waits until it is durable,
    /// or for the events before it, and its publisher is answered then.
    matched: Option<bool>,
    /// The tag of its exactly-once publish is written.
    is_written: bool,
}

/// Where an event comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EventOrigin {
    /// A session publishes it; the session's index.
    Publish(u32),
    /// A session's will; the session's index.
    Will(u32),
    /// The broker publishes it.
    Broker,
}

/// An event that is to be accepted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Incoming<'a> {
    /// The event. With the retain mark it becomes the topic's retained message.
    pub(crate) event: &'a EventRef<'a>,
    /// Which of the broker's own streams of a kind it belongs to.
    pub(crate) binding: u8,
    /// The kind of streams.
    pub(crate) kind: StreamKind,
    /// The client that is told the result, and the tag of its publish.
    pub(crate) answer: Option<(Recipient, u16)>,
    /// Where it comes from.
    pub(crate) from: EventOrigin,
    /// The publisher's own number for it.
    pub(crate) number: Option<u64>,
}

/// The kind of streams to which an event of a topic with these settings goes.
fn kind_of(broker: &Broker, now: Time, settings: &TopicSettings, reliability: Reliability) -> StreamKind {
    if fault!(broker, DeadlineInOrdinaryStream) {
        return reliability.into();
    }
    broker.streams.deadlines.kind_of(now, settings, reliability)
}

/// Whether an event fits a frame, if other brokers may want it.
fn check_size(overlay: &Overlay, event: &EventRef<'_>) -> Result<(), Refusal> {
    let is_too_large = overlay.is_open() && event.packed_len() > EVENT_BYTES_MAX;
    if is_too_large { Err(Refusal::TooLargeForOthers) } else { Ok(()) }
}

/// Which brokers may carry an event of a topic with these domains. The will of a session from
/// another broker may have a label already, which stays.
#[inline]
fn label_of<'a>(event: &EventRef<'a>, domains: Option<&'a Domains>) -> DomainLabel<'a> {
    let own = event.headers.domains;
    if own.is_any() { domains.map_or(own, Domains::label) } else { own }
}

/// An event with this label.
///
/// # Errors
/// When this broker may not carry it.
#[cold]
fn labelled<'a>(net: &mut Net, event: &EventRef<'a>, label: DomainLabel<'a>) -> Result<EventRef<'a>, Refusal> {
    if !net.domains().may_carry_here(label) {
        net.domains().record_refusal(DomainPlace::Publish);
        return Err(Refusal::OutsideDomains);
    }
    Ok(EventRef { headers: Headers { domains: label, ..event.headers }, ..*event })
}

impl Broker {
    pub(crate) fn publish(&mut self, now: Time, publish: &Publish<'_>, out: &mut dyn Output) {
        let Publish { link, tag, retain, number, event } = *publish;
        if self.publish_plain(now, publish, out) {
            return;
        }
        let settings = self.router.settings_of(event.topic);
        let applied = (!settings.changes_nothing()).then(|| settings.apply(now, event));
        let event = applied.as_ref().unwrap_or(event);
        let publish = &Publish { event, ..*publish };
        let (qos, from) = (event.qos, self.sessions.of(link));
        let kind = kind_of(self, now, &settings, event.reliability);
        let excess = settings.rate.map_or(Duration::ZERO, |rate| self.rates.count(now, event, rate));
        let in_line = self.sessions.get(from).in_line();
        let stats = &mut self.sessions.stats;
        if !hold_back(publish, excess, in_line, stats, out) || self.keep_early(now, from, publish, out) {
            return;
        }
        let whom = self.sessions.whom(link);
        if qos == Qos::ExactlyOnce
            && let Some(first) = self.sessions.get(from).memory.pending.unreleased.get(&tag).copied()
        {
            self.sessions.stats.publishes_repeated += 1;
            return self.answer(now, whom, (first.batch, Answer::Repeat { tag, qos, number: None }), out);
        }
        let result = match number.map_or(Ok(None), |number| self.check_number(now, from, number)) {
            Ok(Some(first)) => return self.answer_repeat(now, (from, whom), first, publish, out),
            Ok(None) => {
                let after = events_before(&mut self.sessions, &self.streams.own, from, kind);
                let session = self.sessions.get(from);
                let place = session.memory.roam.as_deref().filter(|_| kind.is_reliable());
                let headers = Headers { retain, ..said_of(place, &after, event, number.is_some()) };
                let event = EventRef { publisher: session.publisher, headers, ..*event };
                let answer = (qos != Qos::AtMostOnce && !fault!(self, AnswersBeforeCommit)).then_some((whom, tag));
                let binding = session.binding;
                let from = EventOrigin::Publish(from);
                self.accept(now, &Incoming { event: &event, binding, kind, answer, from, number }, out)
            }
            Err(refusal) => Err(refusal),
        };
        let result = match result {
            Ok(taken) => {
                self.record_published(from, kind, number.is_some() || qos == Qos::ExactlyOnce);
                hold_if_ahead(&self.streams.own, &mut self.sessions.stats, now, link, out);
                let AcceptOutcome { matched, is_written } = taken;
                if qos == Qos::ExactlyOnce {
                    let batch = if matched.is_none() { self.store.commit_queue.last() } else { BatchNo(0) };
                    self.sessions.get_mut(from).memory.pending.unreleased.insert(tag, Unreleased { batch, is_written });
                }
                if matched.is_none() && fault!(self, AnswersBeforeCommit) {
                    return tell(link, Answer::Accepted { tag, qos, result: Accepted::Routed { matched: true } }, out);
                }
                let Some(matched) = matched else { return };
                Accepted::Routed { matched }
            }
            Err(refusal) => {
                self.sessions.stats.events_refused += 1;
                // The reason may be gone when the number comes again. A publish without an answer
                // is not repeated.
                if qos == Qos::AtMostOnce {
                    out.dropped(link, refusal);
                } else if let Some(number) = number {
                    self.sessions.get_mut(from).memory.pending.refused_number.get_or_insert(number);
                }
                Accepted::Refused(refusal)
            }
        };
        if qos != Qos::AtMostOnce {
            self.answer(now, whom, (BatchNo(0), Answer::Accepted { tag, qos, result }), out);
        }
    }

    /// Answers a publish whose number its client has given before; the answer waits until the first
    /// one is durable.
    fn answer_repeat(
        &mut self,
        now: Time,
        (from, whom): (u32, Recipient),
        first: BatchNo,
        publish: &Publish<'_>,
        out: &mut dyn Output,
    ) {
        let (tag, qos, number) = (publish.tag, publish.event.qos, publish.number);
        let first = if fault!(self, RepeatAnswered) { BatchNo(0) } else { first };
        self.sessions.stats.publishes_repeated += 1;
        if qos == Qos::ExactlyOnce {
            let unreleased = Unreleased { batch: first, is_written: false };
            self.sessions.get_mut(from).memory.pending.unreleased.insert(tag, unreleased);
        }
        if qos != Qos::AtMostOnce {
            self.answer(now, whom, (first, Answer::Repeat { tag, qos, number }), out);
        }
    }

    /// Checks a publisher's own number for its event. For a repeat: the batch that has to be
    /// durable before that may be answered.
    ///
    /// # Errors
    /// When a smaller number was refused on this connection, and would be taken for a repeat if
    /// this one were accepted; or when the table of numbering publishers is full.
    fn check_number(&mut self, now: Time, from: u32, number: u64) -> Result<Option<BatchNo>, Refusal> {
        let session = self.sessions.get_mut(from);
        if session.memory.pending.refused_number.is_some_and(|refused| number > refused) {
            return Err(Refusal::NumberAfterRefused);
        }
        session.memory.pending.refused_number = None;
        let publishers = &mut self.store.publishers;
        if let Some(first) = publishers.is_repeat(&session.client_id, number) {
            return Ok(Some(first));
        }
        if publishers.has_room(&session.client_id, now) { Ok(None) } else { Err(Refusal::TooManyPublishers) }
    }

    /// Publishes an event of the broker itself.
    pub(crate) fn announce(&mut self, now: Time, event: &EventRef<'_>, retain: bool, out: &mut dyn Output) {
        let headers = Headers { retain, ..event.headers };
        let event = EventRef { publisher: Publisher::UNKNOWN, headers, ..*event };
        let kind = StreamKind::Ordinary(event.reliability);
        let from = EventOrigin::Broker;
        if self
            .accept(now, &Incoming { event: &event, binding: 0, kind, answer: None, from, number: None }, out)
            .is_err()
        {
            self.sessions.stats.events_refused += 1;
        }
    }

    /// Publishes the will of a session, if it has one. False if that has to be tried again, as the
    /// log has no room for it.
    pub(crate) fn publish_will(&mut self, now: Time, index: u32, out: &mut dyn Output) -> bool {
        let session = self.sessions.get_mut(index);
        if let Some(at) = session.will_at.take() {
            self.timers.remove(at, Reason::WillDelay, index);
        }
        let Some(will) = session.will.take() else { return true };
        let expires = will.lifetime.map(|lifetime| now.after(lifetime));
        let view = will.event.view();
        let headers = Headers { retain: will.retain, ..view.headers };
        let settings = self.router.settings_of(view.topic);
        let event = settings.apply(now, &EventRef { expires, publisher: session.publisher, headers, ..view });
        let (binding, from) = (session.binding, EventOrigin::Will(index));
        let kind = kind_of(self, now, &settings, event.reliability);
        let incoming = Incoming { event: &event, binding, kind, answer: None, from, number: None };
        match self.accept(now, &incoming, out) {
            Ok(_) => self.sessions.stats.wills_published += 1,
            Err(Refusal::LogFull) => {
                let at = now.after(WILL_AGAIN);
                let session = self.sessions.get_mut(index);
                (session.will, session.will_at) = (Some(will), Some(at));
                self.timers.insert(at, Reason::WillDelay, index);
                return false;
            }
            Err(_) => self.sessions.stats.events_refused += 1,
        }
        true
    }

    /// Accepts an event: labels it with the domains of its topic, assigns its id, and passes it on
    /// unless it has to wait.
    ///
    /// # Errors
    /// When its topic is invalid, it would have to be logged and cannot be, or this broker may not
    /// carry it.
    fn accept(&mut self, now: Time, incoming: &Incoming<'_>, out: &mut dyn Output) -> Result<AcceptOutcome, Refusal> {
        let route = self.router.route(incoming.event.topic).map_err(Refusal::BadTopic)?;
        let domains = self.router.domains(route);
        let (label, net) = (label_of(incoming.event, domains.as_ref()), &mut self.overlay.net);
        let labelled = if label.is_any() { None } else { Some(labelled(net, incoming.event, label)?) };
        let incoming = &Incoming { event: labelled.as_ref().unwrap_or(incoming.event), ..*incoming };
        let Incoming { event, binding, kind, answer, from, number } = *incoming;
        let retain = event.headers.retain;
        check_size(&self.overlay, event)?;
        let is_logged = self.must_log(now, route, incoming);
        if is_logged {
            self.check_log(event)?;
        }
        let assigned_at = if retain { self.retained.assignment_time(event.topic, now) } else { now };
        let id = self.streams.assign(binding, kind, assigned_at);
        if retain {
            self.retained.record_assigned(id.tick);
        }
        if from != EventOrigin::Broker {
            self.sessions.stats.record_accepted(event);
        }
        let mut publication = Publication::new(AcceptedEvent { id, accepted: now, clock_offset: 0, event: *event }, 0);
        if !is_logged {
            let may_be_forgotten = |index| self.sessions.get(index).comes_after_restart();
            let maybe_repeats = matches!(from, EventOrigin::Publish(index) if may_be_forgotten(index));
            publication.accepted.event.headers.maybe_repeat |= number.is_some() && maybe_repeats;
            if number.is_some() || matches!(from, EventOrigin::Will(_)) {
                self.remember_unlogged(now, incoming);
            }
            let is_safe = self.store.disk == Disk::None || self.streams.own.is_reserved(id.tick);
            // Events of the publisher may wait in streams of another kind, if its topic's profile
            // changed.
            let is_next = event.headers.after.iter().all(|before| !self.streams.own.is_waiting(before));
            if is_safe && is_next && self.streams.own.waiting(id.pubend) == 1 {
                self.record_unlogged_retained(retain, event.topic);
                if out.wants_steps() {
                    out.step(&publication.accepted, EventStep::Passed { is_logged });
                }
                let matched = Some(self.pass_own(now, route, &mut publication, retain, out));
                return Ok(AcceptOutcome { matched, is_written: false });
            }
            if !is_safe {
                self.store.reserve_ticks(now, id.tick);
            }
        }
        let event = publication.keep();
        if let Some(slack) = publication.accepted.slack(now).filter(|_| self.expected.is_listened_to()) {
            self.expected.await_event(now + slack, id, Some(event.clone()));
        }
        let is_written = is_logged && self.log(now, incoming, &event);
        let batch = self.store.write_queue.seal();
        if let Some((whom, _)) = answer {
            self.sessions.enter_commit_queue(whom);
        }
        if fault!(self, PassesBeforeCommit) {
            let matched = self.pass_own(now, route, &mut Publication::of(&event, 0), retain, out);
            if let Some((whom, tag)) = answer {
                let (qos, result) = (event.qos(), Accepted::Routed { matched });
                self.store.commit_queue.push(batch, Wait::Answer(whom, Answer::Accepted { tag, qos, result }));
            }
            return Ok(AcceptOutcome { matched: None, is_written });
        }
        let publisher = if let EventOrigin::Publish(index) = from { Some(self.sessions.get(index)) } else { None };
        let session = publisher.map_or(SessionNo(0), |session| session.memory.number);
        let number = publisher.zip(number.filter(|_| is_logged));
        let number = number.map(|(session, number)| (session.client_id.clone(), number));
        let held = HeldEvent { event, retain, is_logged, from, session, number, answer };
        self.store.commit_queue.push(batch, Wait::Event(Box::new(held)));
        Ok(AcceptOutcome { matched: None, is_written })
    }

    /// Adds an event to the open batch, with the records that have to be durable with it. Tells
    /// whether the tag of an exactly-once publish is among these.
    fn log(&mut self, now: Time, incoming: &Incoming<'_>, event: &Event) -> bool {
        let Incoming { answer, from, number, .. } = *incoming;
        let store = &mut self.store;
        store.write_queue.seal();
        let id = event.id();
        let own = own_place(id.pubend);
        self.sessions.stats.events_logged += 1;
        store.write_queue.event(own as u8, event.clone());
        store.release.logged[own] = id.tick;
        if fault!(self, WishUnnamed) || fault!(self, DebtorUnnamed) {
            store.filters.leave_out(fault!(self, DebtorUnnamed), &self.router);
        }
        store.filters.name((own, id.tick), &mut self.cursors, &self.router, &mut store.write_queue);
        if event.packed().retain() {
            let view = event.view();
            store.lazy_topics.remove(view.topic);
            let key = |key: &mut Vec<u8>| Key::Retained(view.topic).put(key);
            if view.payload.is_empty() {
                store.write_queue.forget(key);
            } else {
                store.write_queue.put(key, |value| event.packed().as_bytes().put_versioned(value));
            }
        }
        let (EventOrigin::Publish(index) | EventOrigin::Will(index)) = from else { return false };
        let session = self.sessions.get(index);
        if let Some(number) = number {
            if fault!(self, SeqApart) {
                store.publishers.record_apart(&session.client_id, (number, now), &store.write_queue);
            } else {
                store.publishers.record(
                    &session.client_id,
                    (number, now, session.stay()),
                    (true, true),
                    &mut store.write_queue,
                );
            }
        }
        if from == EventOrigin::Will(index) {
            store.write_queue.forget(|key| Key::Will(session.memory.number).put(key));
        }
        let tag = answer.filter(|_| event.qos() == Qos::ExactlyOnce && session.memory.is_kept).map(|(_, tag)| tag);
        if let Some(tag) = tag {
            store.write_queue.put(
                |key| Key::Unreleased(session.memory.number, tag).put(key),
                |value| (&[][..]).put_versioned(value),
            );
        }
        tag.is_some()
    }

    /// Updates the records of publisher numbers and wills for an event that is not logged.
    fn remember_unlogged(&mut self, now: Time, incoming: &Incoming<'_>) {
        let Incoming { from, number, .. } = *incoming;
        if !self.has_log() {
            if let (EventOrigin::Publish(index), Some(number)) = (from, number) {
                let store = &mut self.store;
                let (session, way) = (self.sessions.get(index), (false, false));
                store.publishers.record(&session.client_id, (number, now, session.stay()), way, &mut store.write_queue);
            }
            return;
        }
        let store = &mut self.store;
        let (EventOrigin::Publish(index) | EventOrigin::Will(index)) = from else { return };
        let session = self.sessions.get(index);
        if let Some(number) = number {
            store.publishers.record(
                &session.client_id,
                (number, now, session.stay()),
                (false, true),
                &mut store.write_queue,
            );
        }
        if from == EventOrigin::Will(index) {
            store.write_queue.forget(|key| Key::Will(session.memory.number).put(key));
        }
    }

    /// Whether an event has to be logged: its topic says so, or a durable subscription wants it.
    /// Records which ones do in `store.filters.wanted`.
    fn must_log(&mut self, now: Time, route: RouteAt, incoming: &Incoming<'_>) -> bool {
        let Incoming { event, binding, kind, .. } = *incoming;
        if self.store.disk == Disk::None || event.reliability == Reliability::BestEffort {
            return false;
        }
        let Broker { router, store, streams, .. } = self;
        let wanted = router.wanted(route);
        let persistence = wanted.settings.persistence;
        let who = &mut store.filters.wanted;
        who.clear();
        if persistence == Persistence::Volatile {
            return false;
        }
        let durable = |target: &&Target| target.is_durable;
        if wanted.is_durable {
            who.extend(wanted.targets.iter().filter(durable).map(|target| (target.kind, target.to)));
        }
        if let Some(groups) = wanted.groups.cloned() {
            // A selector may look at the tick, which is not assigned yet, and will be greater than
            // any other.
            let id = streams.own.next(binding, kind, now);
            let accepted = AcceptedEvent { id, accepted: now, clock_offset: 0, event: *event };
            let content = Content(&accepted);
            let selected = router.select(&groups, &content).iter().filter(durable);
            who.extend(selected.map(|target| (target.kind, target.to)));
        }
        persistence == Persistence::Persistent || !who.is_empty()
    }

    /// Checks whether the log takes an event.
    fn check_log(&self, event: &EventRef<'_>) -> Result<(), Refusal> {
        match self.store.disk {
            Disk::Full => Err(Refusal::LogFull),
            Disk::Poisoned => Err(Refusal::LogFailed),
            Disk::None | Disk::Open if event.packed_len() > self.sessions.limits.logged_event_bytes => {
                Err(Refusal::TooLargeForLog)
            }
            Disk::None | Disk::Open => Ok(()),
        }
    }

    /// Answers a client as soon as `after` is durable and all of its earlier answers are sent.
    pub(crate) fn answer(
        &mut self,
        now: Time,
        whom: Recipient,
        (after, answer): (BatchNo, Answer),
        out: &mut dyn Output,
    ) {
        let overtakes = fault!(self, AnswerOvertakes);
        if after <= self.store.commit_queue.committed() && (overtakes || !self.sessions.is_in_commit_queue(whom)) {
            return tell(whom.link, answer, out);
        }
        let is_dead = self.store.disk == Disk::Poisoned && after > self.store.commit_queue.committed();
        if is_dead || after == BatchNo::NEVER {
            self.sessions.stats.kicked_log_failed += 1;
            return self.kick(now, self.sessions.of(whom.link), Kick::LogFailed, out);
        }
        self.sessions.enter_commit_queue(whom);
        self.store.commit_queue.push(after, Wait::Answer(whom, answer));
    }

    /// An event that waited for its batch, or for those before it, is passed on; its publisher is
    /// answered if it is `present`.
    pub(crate) fn pass_held(&mut self, now: Time, held: &HeldEvent, present: Option<Recipient>, out: &mut dyn Output) {
        if !held.is_logged {
            self.record_unlogged_retained(held.retain, held.event.topic());
        }
        let route = self.router.route(held.event.topic()).expect("it was looked at when it was accepted");
        let mut publication = Publication::of(&held.event, 0);
        if out.wants_steps() {
            out.step(&publication.accepted, EventStep::Passed { is_logged: held.is_logged });
        }
        let matched = self.pass_own(now, route, &mut publication, held.retain, out);
        if let (Some(whom), Some((_, tag))) = (present, held.answer) {
            let (qos, result) = (held.event.qos(), Accepted::Routed { matched });
            tell(whom.link, Answer::Accepted { tag, qos, result }, out);
        }
    }
}

/// Sends an answer to an attached link.
pub(crate) fn tell(link: Link, answer: Answer, out: &mut dyn Output) {
    match answer {
        Answer::Accepted { tag, qos, result } => out.accepted(link, tag, qos, result),
        Answer::Repeat { tag, qos, .. } => out.accepted(link, tag, qos, Accepted::Repeat),
        Answer::Completed { tag, known } => out.completed(link, tag, known),
        Answer::Release { tag, known } => out.release(link, tag, known),
    }
}
