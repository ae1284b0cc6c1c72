//! An event comes in: it gets its id, is logged if it must be, and is passed on at once or when its turn has come.

use whimbrel_event::{Event, EventRef, Publisher, Qos, Reliability, Time};

use crate::api::{Accepted, Link, Output, Publish, Refusal};
use crate::broker::Core;
use crate::content::Content;
use crate::route::RouteAt;
use crate::session::Publication;
use crate::store::{Answer, AtomNo, Disk, Held, Persistence, Wait, Whom};
use crate::stream::AHEAD_MAX;

/// Entries of the line that are handled before others have their turn.
const COMMIT_SLICE: usize = 512;

/// What becomes of an event that comes in.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Taken {
    /// It is passed on.
    Passed {
        /// Whether a subscription wanted it.
        matched: bool,
    },
    /// It waits until it is durable, or for those before it; its publisher is answered then.
    Waits,
}

/// An event that comes in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Incoming<'a> {
    pub(crate) event: EventRef<'a>,
    /// Which of the streams it belongs to.
    pub(crate) binding: u8,
    /// It becomes the topic's retained message.
    pub(crate) retain: bool,
    /// Who is told what became of it, under which tag.
    pub(crate) answer: Option<(Whom, u16)>,
}

impl Core {
    pub(crate) fn publish(&mut self, now: Time, publish: &Publish<'_>, out: &mut impl Output) {
        let Publish { link, tag, retain, ref event } = *publish;
        let qos = event.qos;
        let from = self.sessions.of(link);
        let whom = self.sessions.whom(link);
        if qos == Qos::ExactlyOnce
            && let Some(first) = self.sessions.get(from).unreleased.get(&tag).copied()
        {
            self.sessions.stats.publishes_repeated += 1;
            let result = Accepted::Repeat;
            return self.answer(whom, first, Answer::Accepted { tag, qos, result }, out);
        }
        let session = self.sessions.get(from);
        let event = EventRef { publisher: session.publisher, ..*event };
        let answer = (qos != Qos::AtMostOnce).then_some((whom, tag));
        let incoming = Incoming { event, binding: session.binding, retain, answer };
        let result = match self.accept(now, &incoming, out) {
            Ok(taken) => {
                if let Some(ahead) = self.streams.own.ahead(now) {
                    self.sessions.stats.publishers_held += 1;
                    out.hold(link, ahead - AHEAD_MAX);
                }
                if qos == Qos::ExactlyOnce {
                    let waits = matches!(taken, Taken::Waits);
                    let atom = if waits { self.store.line.last() } else { AtomNo(0) };
                    self.sessions.get_mut(from).unreleased.insert(tag, atom);
                }
                match taken {
                    Taken::Passed { matched } => Accepted::Routed { matched },
                    Taken::Waits => return,
                }
            }
            Err(refusal) => {
                self.sessions.stats.events_refused += 1;
                Accepted::Refused(refusal)
            }
        };
        if qos != Qos::AtMostOnce {
            self.answer(whom, AtomNo(0), Answer::Accepted { tag, qos, result }, out);
        }
    }

    /// The broker itself publishes.
    pub(crate) fn announce(&mut self, now: Time, event: &EventRef<'_>, retain: bool, out: &mut impl Output) {
        let event = EventRef { publisher: Publisher::UNKNOWN, ..*event };
        if self.accept(now, &Incoming { event, binding: 0, retain, answer: None }, out).is_err() {
            self.sessions.stats.events_refused += 1;
        }
    }

    /// Publishes the will of a session, if it has one.
    pub(crate) fn publish_will(&mut self, now: Time, index: u32, out: &mut impl Output) {
        let session = self.sessions.get_mut(index);
        if let Some(at) = session.will_at.take() {
            self.timers.remove(at, crate::api::Reason::WillDelay, index);
        }
        let Some(will) = session.will.take() else { return };
        let expires = will.lifetime.map(|lifetime| now.after(lifetime));
        let event = EventRef { expires, publisher: session.publisher, ..will.event.view() };
        let incoming = Incoming { event, binding: session.binding, retain: will.retain, answer: None };
        match self.accept(now, &incoming, out) {
            Ok(_) => self.sessions.stats.wills_published += 1,
            Err(_) => self.sessions.stats.events_refused += 1,
        }
    }

    /// Accepts an event: gives it its id, and passes it on unless it has to wait.
    ///
    /// # Errors
    /// When its topic is none, the broker retains as much as it may, or it would have to be logged and cannot be.
    fn accept(&mut self, now: Time, incoming: &Incoming<'_>, out: &mut impl Output) -> Result<Taken, Refusal> {
        let Incoming { ref event, binding, retain, answer } = *incoming;
        let route = self.router.route(event.topic).map_err(Refusal::BadTopic)?;
        if retain && !event.payload.is_empty() {
            self.make_room_for_retained(now, event)?;
        }
        let is_logged = self.must_log(now, route, incoming);
        if is_logged {
            self.check_log(event)?;
        }
        let id = self.streams.accept(binding, event.reliability, now);
        self.sessions.stats.events_accepted += 1;
        self.sessions.stats.payload_bytes_accepted += event.payload.len() as u64;
        let mut publication = Publication { event: *event, id, accepted: now, serial: 0, kept: None };
        if !is_logged && !self.store.line.holds(id.pubend.index()) {
            return Ok(Taken::Passed { matched: self.pass_own(now, route, publication, retain, out) });
        }
        let event = publication.keep();
        if is_logged {
            self.sessions.stats.events_logged += 1;
            self.store.outbox.event(id.pubend.index(), event.clone());
        }
        let atom = self.store.outbox.seal();
        if let Some((whom, _)) = answer {
            self.sessions.stand_in_line(whom);
        }
        self.store.line.push(atom, Wait::Event(Box::new(Held { event, retain, is_logged, answer })));
        Ok(Taken::Waits)
    }

    /// Whether an event has to be logged: its topic says so, or a durable subscription wants it.
    fn must_log(&mut self, now: Time, route: RouteAt, incoming: &Incoming<'_>) -> bool {
        let Incoming { ref event, binding, .. } = *incoming;
        if self.store.disk == Disk::None || event.reliability == Reliability::BestEffort {
            return false;
        }
        let wanted = self.router.wanted(route);
        match wanted.persistence {
            Persistence::Volatile => false,
            Persistence::Persistent => true,
            Persistence::Auto if wanted.is_durable => true,
            Persistence::Auto => {
                let Some(groups) = wanted.groups.cloned() else { return false };
                // A selector may look at the name, which is not given yet, and will be greater than any other.
                let id = self.streams.own.next(binding, event.reliability, now);
                let content = Content(whimbrel_event::AcceptedEvent { id, accepted: now, event: *event });
                self.router.select(&groups, &content).iter().any(|target| target.is_durable)
            }
        }
    }

    /// Whether the log takes an event.
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

    fn make_room_for_retained(&mut self, now: Time, event: &EventRef<'_>) -> Result<(), Refusal> {
        let Core { sessions, retained, .. } = self;
        let bytes = Event::weight_of(event);
        let (max, bytes_max) = (sessions.limits.retained_max, sessions.limits.retained_bytes);
        if !retained.has_room(event.topic, bytes, max, bytes_max) {
            retained.sweep(now);
            if !retained.has_room(event.topic, bytes, max, bytes_max) {
                return Err(Refusal::TooMuchRetained);
            }
        }
        Ok(())
    }

    /// Answers a client when `after` is durable and everything that it waits for before.
    pub(crate) fn answer(&mut self, whom: Whom, after: AtomNo, answer: Answer, out: &mut impl Output) {
        if after <= self.store.line.committed() && !self.sessions.stands_in_line(whom) {
            return tell(whom.link, answer, out);
        }
        self.sessions.stand_in_line(whom);
        self.store.line.push(after, Wait::Answer(whom, answer));
    }

    /// Handles what waits no more, as far as others need not wait too long for it.
    pub(crate) fn pass_committed(&mut self, now: Time, out: &mut impl Output) {
        for _ in 0..COMMIT_SLICE {
            let Some(wait) = self.store.line.pop() else { return };
            let present = wait.whom().filter(|whom| self.sessions.leave_line(*whom));
            match wait {
                Wait::Event(held) => {
                    let route = self.router.route(held.event.topic()).expect("it was looked at when it was accepted");
                    let matched = self.pass_own(now, route, Publication::of(&held.event, 0), held.retain, out);
                    if let (Some(whom), Some((_, tag))) = (present, held.answer) {
                        let (qos, result) = (held.event.qos(), Accepted::Routed { matched });
                        tell(whom.link, Answer::Accepted { tag, qos, result }, out);
                    }
                }
                Wait::Answer(_, answer) => {
                    if let Some(whom) = present {
                        tell(whom.link, answer, out);
                    }
                }
            }
        }
    }
}

/// Answers a client that is there.
pub(crate) fn tell(link: Link, answer: Answer, out: &mut impl Output) {
    match answer {
        Answer::Accepted { tag, qos, result } => out.accepted(link, tag, qos, result),
        Answer::Completed { tag, known } => out.completed(link, tag, known),
        Answer::Release { tag, known } => out.release(link, tag, known),
    }
}
