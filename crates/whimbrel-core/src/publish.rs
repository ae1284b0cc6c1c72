//! An event comes in: it gets its id, is retained if asked, and goes to everyone who wants it.

use whimbrel_event::{Event, EventRef, Qos, Time};

use crate::api::{Accepted, Output, Publish, Refusal};
use crate::broker::Core;
use crate::content::Content;
use crate::route::{NO_GROUP, Target, Wanted};
use crate::session::{Publication, Terms};

/// Who publishes: a session, or the broker itself.
pub(crate) const NOBODY: u32 = u32::MAX;

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
        let Core { sessions, router, groups: shared, retained, streams, serial, .. } = self;
        if retain && !event.payload.is_empty() {
            let bytes =
                size_of::<Event>() + event.topic.len() + event.attributes.as_bytes().len() + event.payload.len();
            let (max, bytes_max) = (sessions.limits.retained_max, sessions.limits.retained_bytes);
            if !retained.has_room(event.topic, bytes + 16, max, bytes_max) {
                retained.sweep(now);
                if !retained.has_room(event.topic, bytes + 16, max, bytes_max) {
                    return Err(Refusal::TooMuchRetained);
                }
            }
        }
        let Wanted { targets, groups } = router.route(event.topic).map_err(Refusal::BadTopic)?;
        let groups = groups.cloned();
        let binding = if from == NOBODY { 0 } else { sessions.get(from).binding };
        let id = streams.accept(binding, event.reliability, now);
        let qos = event.qos;
        *serial += 1;
        let mut publication = Publication { event: *event, id, accepted: now, serial: *serial, kept: None };
        sessions.stats.events_accepted += 1;
        sessions.stats.payload_bytes_accepted += event.payload.len() as u64;
        if retain {
            if event.payload.is_empty() {
                retained.clear(event.topic);
            } else {
                retained.set(publication.keep());
            }
        }
        let mut matched = false;
        let mut offer = |target: &Target| {
            if target.no_local && target.to == from {
                return;
            }
            matched = true;
            if target.shared {
                shared.offer(target.to, &mut publication, retain, sessions, out);
            } else {
                let retain = retain && target.retain_as_published;
                let (qos, identifier) = (qos.min(target.qos), target.identifier);
                let terms = Terms { qos, identifier, group: NO_GROUP, retain, as_published: retain };
                sessions.offer(target.to, &mut publication, terms, out);
            }
        };
        targets.iter().for_each(&mut offer);
        if let Some(groups) = groups {
            router.select(&groups, &Content { event: *event, id, accepted: now }).iter().for_each(&mut offer);
        }
        sessions.stats.events_unwanted += u64::from(!matched);
        Ok(matched)
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
