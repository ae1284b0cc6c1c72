//! Passing an event on: it is retained if asked, and goes to all subscriptions and brokers that
//! want it.

use whimbrel_event::{AcceptedEvent, EventRef, Headers, Qos, Reliability, Time};

use crate::api::{Accepted, EventStep, Output, Publish, Segment, Tell};
use crate::broker::Broker;
use crate::content::Content;
use crate::cursor::{Cursor, Cursors};
use crate::overlay::EVENT_BYTES_MAX;
use crate::retained::Bounds;
use crate::route::{RouteAt, Target, TargetKind, TopicInterest};
use crate::session::{Publication, Sessions};
use crate::shared::Groups;
use crate::store::Disk;
use crate::stream::StreamKind;
use crate::stream::holding::hold_if_ahead;

impl Broker {
    /// Accepts and passes an event that needs nothing special, as most do: [`Broker::publish`]
    /// without what does not apply, in its order. False if anything is special about the event, its
    /// publisher or its subscriptions; then nothing has happened.
    pub(crate) fn publish_plain(&mut self, now: Time, publish: &Publish<'_>, out: &mut dyn Output) -> bool {
        let Publish { link, tag, retain, number, event } = *publish;
        let session = self.sessions.get(self.sessions.of(link));
        let may_be_logged = event.reliability == Reliability::Reliable && self.store.disk != Disk::None;
        let has_moved = event.reliability == Reliability::Reliable && session.memory.roam.is_some();
        let kind = StreamKind::Ordinary(event.reliability);
        let may_follow_other_kind = !session.kinds.has(self.sessions.kinds_epoch, kind);
        let waits = session.in_line() > 0 || self.streams.is_awaited() || has_moved;
        let is_too_large = self.overlay.is_open() && event.packed_len() > EVENT_BYTES_MAX;
        let is_special = retain || number.is_some() || event.qos == Qos::ExactlyOnce;
        if is_special || waits || may_follow_other_kind || is_too_large || !self.has_plain_way {
            return false;
        }
        let (publisher, binding) = (session.publisher, session.binding);
        let Broker { sessions, router, streams, serial, cache, .. } = self;
        let Some(targets) = router.plain_targets(event.topic, may_be_logged) else { return false };
        let Some((id, after)) = streams.own.assign_passing(binding, kind, now) else { return false };
        sessions.stats.events_plain += 1;
        sessions.stats.record_accepted(event);
        *serial += 1;
        let headers = Headers { retain: false, ..event.headers };
        let event = EventRef { publisher, headers, ..*event };
        let mut publication = Publication::new(AcceptedEvent { id, accepted: now, clock_offset: 0, event }, *serial);
        let qos = publication.accepted.event.qos;
        if out.wants_steps() {
            out.step(&publication.accepted, EventStep::Passed { is_logged: false });
        }
        let what = Tell::Data(&publication.accepted.event);
        out.knowledge(&Segment { pubend: id.pubend, after, upto: id.tick, what });
        for target in targets {
            if !target.attached_only || sessions.is_attached(target.to) {
                sessions.offer(target.to, &mut publication, target.terms(qos, false), out);
            }
        }
        let matched = !targets.is_empty();
        sessions.stats.events_unwanted += u64::from(!matched);
        cache.write(*serial, cache.plan().partitions.len(), &publication.accepted, now);
        hold_if_ahead(&streams.own, &mut sessions.stats, now, link, out);
        if qos != Qos::AtMostOnce {
            out.accepted(link, tag, qos, Accepted::Routed { matched });
        }
        true
    }

    /// Passes on an event of an own pubend that has its tick. Tells whether a subscription wanted
    /// it.
    // Twice on the plain path, and 35 instructions of it are those of the call.
    #[inline(always)]
    pub(crate) fn pass_own(
        &mut self,
        now: Time,
        route: RouteAt,
        publication: &mut Publication<'_>,
        retain: bool,
        out: &mut dyn Output,
    ) -> bool {
        let id = publication.accepted.id;
        let after = self.streams.own.passed(id);
        out.knowledge(&Segment {
            pubend: id.pubend,
            after,
            upto: id.tick,
            what: Tell::Data(&publication.accepted.event),
        });
        let matched = self.pass(now, route, publication, retain, out);
        if self.streams.is_awaited() {
            self.check_stalled(now, out);
        }
        matched
    }

    /// Has the retained message of a passed event that was not logged written lazily.
    pub(crate) fn record_unlogged_retained(&mut self, retain: bool, topic: &str) {
        // The broker publishes its own `$` topics anew after a restart.
        let is_kept = retain && self.has_log() && !topic.starts_with('$');
        if is_kept && !self.store.lazy_topics.contains(topic) {
            self.store.lazy_topics.insert(topic.into());
        }
    }

    /// As [`Broker::record_unlogged_retained`], for the topics of taken messages, and of those that
    /// gave way to them.
    pub(crate) fn record_unlogged_topics(&mut self, news: Vec<Box<str>>, swept: Vec<Box<str>>) {
        if self.has_log() {
            self.store.lazy_topics.extend(swept);
        }
        news.iter().for_each(|topic| self.record_unlogged_retained(true, topic));
    }

    /// The consolidated stream passes an event: it goes to all targets that want it, and into the
    /// cache. Tells whether a subscription wanted it.
    pub(crate) fn pass(
        &mut self,
        now: Time,
        route: RouteAt,
        publication: &mut Publication<'_>,
        retain: bool,
        out: &mut dyn Output,
    ) -> bool {
        let has_log = retain && self.has_log();
        self.expected.record_passed(publication.accepted.id);
        let Broker { sessions, router, groups: shared, retained, streams, serial, cursors, brokers, store, .. } = self;
        let TopicInterest { targets, groups, settings, .. } = router.wanted(route);
        let groups = groups.cloned();
        *serial += 1;
        publication.serial = *serial;
        let mut is_news = false;
        if retain {
            let outcome = retained.pass(now, publication, Bounds::of(&sessions.limits, has_log));
            is_news = outcome.is_news;
            sessions.stats.retained_refused += u64::from(outcome.is_refused);
            if has_log {
                // A refused retained message is not kept, though it may have been written with the
                // event.
                let refused = outcome.is_refused.then(|| publication.accepted.event.topic.into());
                store.lazy_topics.extend(outcome.swept.into_iter().chain(refused));
            }
        }
        let is_hosted = publication.accepted.id.pubend.host() == streams.own.host();
        let mut nobody = Vec::new();
        let brokers = if is_hosted { brokers } else { &mut nobody };
        let is_own = streams.own_reliable(publication.accepted.id.pubend).is_some();
        let mut round =
            PassRound::new(now, (is_own, is_hosted), self.cache.plan().partitions.len(), &mut self.fallen, brokers);
        round.is_plain &= self.has_plain_way;
        round.heard = settings.period_of.map(|_| Vec::new());
        for target in targets {
            round.offer(target, publication, shared, cursors, sessions, out);
        }
        if let Some(groups) = groups {
            for target in router.select(&groups, &Content(&publication.accepted)) {
                round.offer(target, publication, shared, cursors, sessions, out);
            }
        }
        let PassRound { matched, partition, heard, .. } = round;
        if let (Some(profile), Some(heard)) = (settings.period_of, heard) {
            heard.into_iter().for_each(|cursor| self.expected.record_delivered(now, cursor, profile));
        }
        sessions.stats.events_unwanted += u64::from(!matched);
        self.cache.write(self.serial, partition, &publication.accepted, now);
        if !self.brokers.is_empty() {
            self.overlay.forward(now, &publication.accepted, retain, settings.paths, &mut self.brokers, out);
        }
        while let Some(cursor) = self.fallen.pop() {
            // A gap goes before the event in that case. A slow client is not its cause.
            let of_cursor = self.cursors.get(cursor);
            let inflight = &self.sessions.get(of_cursor.session).inflight;
            let is_unsettled = of_cursor.is_unsettled(publication.accepted.id)
                || inflight.loading(cursor, publication.accepted.id).is_some();
            self.fall_behind(cursor, Some(publication.accepted.id), !is_unsettled);
            if is_unsettled {
                self.catch_up_soon(cursor);
            }
        }
        if is_news {
            self.overlay.tell_retained(now, publication.accepted.event.topic, &self.retained, out);
        }
        matched
    }
}

/// One event on its way to all targets that want it.
struct PassRound<'a> {
    now: Time,
    /// It is of an own stream that may be logged.
    is_own: bool,
    /// Plain cursors are given it without further checks.
    is_plain: bool,
    /// It is of one of this broker's streams, so other brokers are sent it.
    is_hosted: bool,
    matched: bool,
    /// The cache partition that it belongs to: the first that wants it, else the last.
    partition: usize,
    /// Cursors that were given it, if its topic's profile has a period.
    heard: Option<Vec<u32>>,
    /// Cursors that could not take it.
    fallen: &'a mut Vec<u32>,
    /// Other brokers that want it, by their numbers.
    brokers: &'a mut Vec<u32>,
}

impl<'a> PassRound<'a> {
    fn new(
        now: Time,
        (is_own, is_hosted): (bool, bool),
        rest: usize,
        fallen: &'a mut Vec<u32>,
        brokers: &'a mut Vec<u32>,
    ) -> Self {
        let (matched, partition, heard) = (false, rest, None);
        PassRound { now, is_own, is_plain: is_own, is_hosted, matched, partition, heard, fallen, brokers }
    }

    #[inline]
    fn offer(
        &mut self,
        target: &Target,
        publication: &mut Publication<'_>,
        shared: &mut Groups,
        cursors: &mut Cursors,
        sessions: &mut Sessions,
        out: &mut dyn Output,
    ) {
        match target.kind {
            TargetKind::Session => {
                if target.no_local && sessions.is_own(target.to, publication.accepted.event.publisher) {
                    return;
                }
                self.matched = true;
                if target.attached_only && !sessions.is_attached(target.to) {
                    return;
                }
                let event = &publication.accepted.event;
                let terms = target.terms(event.qos, event.headers.retain);
                sessions.offer(target.to, publication, terms, out);
            }
            TargetKind::Group => {
                self.matched = true;
                shared.offer(target.to, publication, self.now, sessions, out);
            }
            TargetKind::Partition => self.partition = self.partition.min(target.to as usize),
            TargetKind::Interest => {}
            TargetKind::Broker => {
                self.matched |= self.is_hosted;
                self.brokers.push(target.to);
            }
            TargetKind::Cursor => self.offer_tracked(target.to, publication, cursors, sessions, out),
        }
    }

    fn offer_tracked(
        &mut self,
        id: u32,
        publication: &mut Publication<'_>,
        cursors: &mut Cursors,
        sessions: &mut Sessions,
        out: &mut dyn Output,
    ) {
        let event = publication.accepted.id;
        if cursors.get(id).is_own(publication.accepted.event.publisher) {
            return;
        }
        self.matched = true;
        let cursor = cursors.record_passed(id, event, self.is_own);
        let is_flying = sessions.get(cursor.session).inflight.loading(id, event).is_some();
        if is_flying || !self.is_plain || !cursor.is_plain() {
            match hindrance(cursor, publication, is_flying) {
                Some(Hindrance::Elsewhere) => return,
                Some(Hindrance::Earlier) => return self.fallen.push(id),
                None => cursor.mark(event.pubend, event.tick),
            }
        }
        cursor.silence.told_at = self.now;
        let terms = cursor.terms(publication.accepted.event.qos, publication.accepted.event.headers.retain);
        if !sessions.offer_tracked(cursor.session, publication, terms, out) {
            self.fallen.push(id);
        } else if let Some(heard) = &mut self.heard {
            heard.push(id);
        }
    }
}

/// Why a cursor is not given an event that is passed.
enum Hindrance {
    /// It has had the event, or gets it from catch-up or from another broker's log.
    Elsewhere,
    /// An event before it may be missing, or is still to be read.
    Earlier,
}

/// What keeps a cursor from being given an event, if anything does. `is_flying`: the event was in
/// flight before a restart, and is to be sent again when the cursor reads it.
fn hindrance(cursor: &mut Cursor, publication: &Publication<'_>, is_flying: bool) -> Option<Hindrance> {
    let AcceptedEvent { id, event, .. } = &publication.accepted;
    if cursor.catch_up.is_some() || cursor.has_had(*id) || cursor.is_detached(id.pubend) {
        return Some(Hindrance::Elsewhere);
    }
    // After a restart of this broker, its stream may have begun again with earlier events.
    if cursor.durable.as_deref().is_some_and(|durable| durable.rare.beyond.contains(id)) {
        return Some(Hindrance::Elsewhere);
    }
    // It comes after an event of another stream that is being read elsewhere.
    let is_blocked = event.headers.after.iter().any(|after| cursor.is_detached(after.pubend));
    (cursor.is_unsettled(*id) || is_blocked || is_flying).then_some(Hindrance::Earlier)
}
