//! An event comes in: it gets its id, is retained if asked, and goes to everyone who wants it.

use whimbrel_event::{Event, EventId, EventRef, Publisher, Qos, Time};

use crate::api::{Accepted, Output, Publish, Refusal, Segment, Tell};
use crate::broker::Core;
use crate::content::Content;
use crate::follow::Tracks;
use crate::route::{Kind, NO_GROUP, NO_TRACK, Target, Wanted};
use crate::session::{Publication, Sessions, Terms};
use crate::shared::Groups;
use crate::stream::AHEAD_MAX;

/// Who publishes: a session, or the broker itself.
pub(crate) const NOBODY: u32 = u32::MAX;

/// Where an event comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    /// Somebody publishes it here.
    Own {
        /// Who.
        from: u32,
        /// Whether it becomes the topic's retained message.
        retain: bool,
    },
    /// Another broker has given it that name.
    Elsewhere(EventId),
}

impl Core {
    pub(crate) fn publish(&mut self, now: Time, publish: &Publish<'_>, out: &mut impl Output) {
        let Publish { link, tag, retain, ref event } = *publish;
        let qos = event.qos;
        let from = self.sessions.of(link);
        if qos == Qos::ExactlyOnce && self.sessions.get(from).unreleased.contains(&tag) {
            self.sessions.stats.publishes_repeated += 1;
            out.accepted(link, tag, qos, Accepted::Repeat);
            return;
        }
        let result = match self.route_event(now, from, event, retain, out) {
            Ok(matched) => {
                if let Some(ahead) = self.streams.own.ahead(now) {
                    self.sessions.stats.publishers_held += 1;
                    out.hold(link, ahead - AHEAD_MAX);
                }
                if qos == Qos::ExactlyOnce {
                    self.sessions.get_mut(from).unreleased.insert(tag);
                }
                Accepted::Routed { matched }
            }
            Err(refusal) => {
                self.sessions.stats.events_refused += 1;
                Accepted::Refused(refusal)
            }
        };
        if qos != Qos::AtMostOnce {
            out.accepted(link, tag, qos, result);
        }
    }

    /// Accepts an event and hands it on; tells whether a subscription wanted it.
    pub(crate) fn route_event(
        &mut self,
        now: Time,
        from: u32,
        event: &EventRef<'_>,
        retain: bool,
        out: &mut impl Output,
    ) -> Result<bool, Refusal> {
        if retain && !event.payload.is_empty() {
            self.make_room_for_retained(now, event)?;
        }
        let publisher = if from == NOBODY { Publisher::UNKNOWN } else { self.sessions.get(from).publisher };
        let event = EventRef { publisher, ..*event };
        self.pass(now, Source::Own { from, retain }, &event, None, out)
    }

    /// The consolidated stream passes an event: it goes to everyone who wants it, and into the cache. Tells whether a subscription
    /// wanted it.
    ///
    /// # Errors
    /// When its topic is none.
    pub(crate) fn pass(
        &mut self,
        now: Time,
        source: Source,
        event: &EventRef<'_>,
        kept: Option<Event>,
        out: &mut impl Output,
    ) -> Result<bool, Refusal> {
        let Core { sessions, router, groups: shared, retained, streams, serial, tracks, .. } = self;
        let Wanted { targets, groups } = router.route(event.topic).map_err(Refusal::BadTopic)?;
        let groups = groups.cloned();
        let (id, from, retain) = match source {
            Source::Elsewhere(id) => (id, NOBODY, false),
            Source::Own { from, retain } => {
                let binding = if from == NOBODY { 0 } else { sessions.get(from).binding };
                let id = streams.assign(binding, event.reliability, now);
                let after = streams.own.passed(id);
                sessions.stats.events_accepted += 1;
                sessions.stats.payload_bytes_accepted += event.payload.len() as u64;
                out.knowledge(&Segment { pubend: id.pubend, after, upto: id.tick, what: Tell::Data(*event) });
                (id, from, retain)
            }
        };
        *serial += 1;
        let accepted = kept.as_ref().map_or(now, Event::accepted);
        let mut publication = Publication { event: *event, id, accepted, serial: *serial, kept };
        if retain {
            if event.payload.is_empty() {
                retained.clear(event.topic);
            } else {
                retained.set(publication.keep());
            }
        }
        let mut round = Round::new(from, now, retain, self.cache.plan().partitions.len(), &mut self.fallen);
        for target in targets {
            round.offer(target, &mut publication, shared, tracks, sessions, out);
        }
        if let Some(groups) = groups {
            for target in router.select(&groups, &Content(publication.accepted())) {
                round.offer(target, &mut publication, shared, tracks, sessions, out);
            }
        }
        let Round { matched, partition, .. } = round;
        sessions.stats.events_unwanted += u64::from(!matched);
        self.cache.write(self.serial, partition, &publication.accepted(), now);
        while let Some(track) = self.fallen.pop() {
            self.fall_behind(track, Some(id), true);
        }
        Ok(matched)
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

    /// Publishes the will of a session, if it has one.
    pub(crate) fn publish_will(&mut self, now: Time, index: u32, out: &mut impl Output) {
        let session = self.sessions.get_mut(index);
        if let Some(at) = session.will_at.take() {
            self.timers.remove(at, crate::api::Reason::WillDelay, index);
        }
        let Some(will) = session.will.take() else { return };
        let mut event = will.event.view();
        event.expires = will.lifetime.map(|lifetime| now.after(lifetime));
        match self.route_event(now, index, &event, will.retain, out) {
            Ok(_) => self.sessions.stats.wills_published += 1,
            Err(_) => self.sessions.stats.events_refused += 1,
        }
    }
}

/// One event on its way to everyone who wants it.
struct Round<'a> {
    from: u32,
    now: Time,
    retain: bool,
    matched: bool,
    /// The partition of the cache that it belongs to: the first that wants it, else the last.
    partition: usize,
    /// Tracked subscriptions that could not take it.
    fallen: &'a mut Vec<u32>,
}

impl<'a> Round<'a> {
    fn new(from: u32, now: Time, retain: bool, rest: usize, fallen: &'a mut Vec<u32>) -> Self {
        Round { from, now, retain, matched: false, partition: rest, fallen }
    }

    #[inline]
    fn offer(
        &mut self,
        target: &Target,
        publication: &mut Publication<'_>,
        shared: &mut Groups,
        tracks: &mut Tracks,
        sessions: &mut Sessions,
        out: &mut impl Output,
    ) {
        match target.kind {
            Kind::Session => {
                if target.no_local && target.to == self.from {
                    return;
                }
                self.matched = true;
                if target.attached_only && !sessions.is_attached(target.to) {
                    return;
                }
                let retain = self.retain && target.retain_as_published;
                let (qos, identifier) = (publication.event.qos.min(target.qos), target.identifier);
                let group = NO_GROUP;
                let terms = Terms { qos, identifier, group, retain, as_published: retain, track: NO_TRACK };
                sessions.offer(target.to, publication, terms, out);
            }
            Kind::Group => {
                self.matched = true;
                shared.offer(target.to, publication, self.retain, sessions, out);
            }
            Kind::Partition => self.partition = self.partition.min(target.to as usize),
            Kind::Track => self.offer_tracked(target.to, publication, tracks, sessions, out),
        }
    }

    fn offer_tracked(
        &mut self,
        id: u32,
        publication: &mut Publication<'_>,
        tracks: &mut Tracks,
        sessions: &mut Sessions,
        out: &mut impl Output,
    ) {
        let track = tracks.get_mut(id);
        if track.is_own(publication.event.publisher) {
            return;
        }
        self.matched = true;
        if track.lag.is_some() || track.has_had(publication.id) {
            return;
        }
        track.told_at = self.now;
        let terms = track.terms(publication.event.qos, self.retain);
        if !sessions.offer_tracked(track.session, publication, terms, out) {
            self.fallen.push(id);
        }
    }
}
