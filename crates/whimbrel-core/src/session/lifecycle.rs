//! Attaching, detaching and ending sessions.

use core::time::Duration;

use whimbrel_event::Time;

use super::{Claimant, Session};
use crate::api::{Attach, Kick, Output, Reason, Refusal};
use crate::broker::Broker;
use crate::overlay::{Arrival, Attachment, ENDED_LIFETIME};
use crate::route::NO_GROUP;
use crate::store::Disk;

/// The delay until a will is tried again that the log had no room for.
pub(crate) const WILL_AGAIN: Duration = Duration::from_secs(1);

impl Broker {
    pub(crate) fn attach(&mut self, now: Time, attach: Attach<'_>, out: &mut dyn Output) {
        let will_bytes = attach.will.as_ref().map_or(0, |will| will.event.packed().as_bytes().len());
        if self.has_log() && will_bytes > self.sessions.limits.logged_event_bytes {
            return out.refused(attach.link, Refusal::TooLargeForLog);
        }
        let here = self.sessions.find(attach.client_id).map(|index| self.sessions.get(index));
        // A session that was given away is checked by its current owner, which is asked below.
        let seeks = self.has_to_seek(now);
        let is_own = |session: &&Session| !(seeks && session.is_given());
        if here.filter(is_own).is_some_and(|session| session.is_foreign_to(attach.principal.as_ref())) {
            return out.refused(attach.link, Refusal::ForeignSession);
        }
        if seeks {
            let client: Box<str> = attach.client_id.into();
            return self.seek(now, &client, Some(Arrival::of(attach)), out);
        }
        self.admit(now, attach, (None, false), out);
    }

    /// Attaches a client whose session is here, if it has one, as attachment `place`. `has_come`:
    /// the session has just been moved here from another broker.
    pub(crate) fn admit(
        &mut self,
        now: Time,
        attach: Attach<'_>,
        (place, has_come): (Option<Attachment>, bool),
        out: &mut dyn Output,
    ) {
        if let Some(unread) = self.unread_link(now, attach.client_id, out) {
            let (client, place) = (attach.client_id.into(), place.map(Box::new));
            let arrival = Box::new(Arrival::of(attach));
            return self.claim(unread, Claimant::Connection { client, arrival, place, has_come }, out);
        }
        self.bind(now, attach, (place, has_come), out);
    }

    /// As [`Broker::admit`], once nothing from the session's connection is unread.
    fn bind(
        &mut self,
        now: Time,
        attach: Attach<'_>,
        (place, has_come): (Option<Attachment>, bool),
        out: &mut dyn Output,
    ) {
        let mut known = self.sessions.find(attach.client_id);
        let mut begins_anew = has_come;
        if let Some(index) = known {
            if let Some(old) = self.sessions.get(index).link() {
                self.sessions.stats.takeovers += 1;
                out.kicked(old, Kick::TakenOver);
                let survives = self.sessions.get(index).is_persistent();
                begins_anew = self.sessions.get(index).memory.is_kept && !survives;
                self.detach(now, index, true, out);
                known = survives.then_some(index);
            }
            if let Some(index) = known.filter(|_| attach.clean_start) {
                if self.sessions.get(index).memory.is_kept && self.store.disk == Disk::Poisoned {
                    return out.refused(attach.link, Refusal::LogFailed);
                }
                begins_anew = self.sessions.get(index).memory.is_kept;
                self.end(now, index, out);
                known = None;
            }
        }
        let index = match known {
            Some(index) => index,
            None if self.sessions.stats.sessions as usize >= self.sessions.limits.sessions_max => {
                self.sessions.stats.sessions_refused += 1;
                out.refused(attach.link, Refusal::TooManySessions);
                return;
            }
            None => self.sessions.create(attach.client_id),
        };
        let expiry = attach.expiry.min(self.sessions.limits.session_expiry_max);
        let session = self.sessions.get_mut(index);
        session.will = attach.will;
        if let Some(principal) = attach.principal {
            session.memory.principal = Some(principal.name);
        }
        // It expires this long after its client has left.
        let away = session.expires_at.map(|at| session.expiry.saturating_sub(at.since(now)));
        session.expiry = expiry;
        if let Some(at) = session.will_at.take() {
            self.timers.remove(at, Reason::WillDelay, index);
        }
        if let Some(at) = session.expires_at.take() {
            self.timers.remove(at, Reason::SessionExpiry, index);
        }
        self.place_session(index, place);
        self.sessions.bind(index, attach.link, attach.window);
        self.retained.replays.come_back(index, self.serial);
        let is_after_restart = self.store.publishers.restarted_within(now, ENDED_LIFETIME)
            || self.overlay.was_any_restarted(now, &self.streams);
        self.sessions.get_mut(index).set_after_restart(is_after_restart);
        // The client is to forget the tags that it remembers.
        let is_of_copy = core::mem::take(&mut self.sessions.get_mut(index).memory.is_of_copy);
        out.attached(attach.link, known.is_some() && !is_of_copy);
        self.remember_session(index, None);
        self.record_place(now, index);
        if begins_anew && self.has_log() {
            self.cork_until_durable(self.sessions.whom(attach.link), out);
        }
        self.return_to_streams(now, index, away);
        self.attend_all(now, index, out);
        self.resume(now, index, out);
    }

    /// Ends the connection of a session, and the session with it if it does not outlive its
    /// connection.
    pub(crate) fn detach(&mut self, now: Time, index: u32, publish_will: bool, out: &mut dyn Output) {
        self.drop_early(index);
        if let Some(link) = self.sessions.get(index).link() {
            self.stop_waiting(link);
        }
        let missed = self.sessions.first_missed(index);
        self.sessions.unbind(index);
        self.retained.replays.leave(index, missed.map_or(self.serial, |first| first - 1));
        let session = self.sessions.get_mut(index);
        if !publish_will {
            session.will = None;
        }
        if !session.is_persistent() {
            self.end(now, index, out);
            return;
        }
        self.leave_streams(index);
        let session = self.sessions.get_mut(index);
        let expires_at = now.after(session.expiry);
        session.expires_at = Some(expires_at);
        self.timers.insert(expires_at, Reason::SessionExpiry, index);
        self.remember_session(index, Some(now));
        self.record_changed(now, index, true);
        let session = self.sessions.get_mut(index);
        match session.will.as_ref().map(|will| will.delay) {
            None => {}
            Some(Duration::ZERO) => drop(self.publish_will(now, index, out)),
            Some(delay) => {
                let at = now.after(delay).min(expires_at);
                session.will_at = Some(at);
                self.timers.insert(at, Reason::WillDelay, index);
            }
        }
        self.leave_work(now, index, out);
        self.sessions.rest(index);
    }

    /// Ends a session for an operator, as its expiry would.
    pub(crate) fn drop_session(&mut self, now: Time, client_id: &str, out: &mut dyn Output) {
        let found = self.sessions.find(client_id);
        // A shared subscription's own session ends with the last member.
        let Some(index) = found.filter(|index| self.sessions.get(*index).shares().is_none()) else { return };
        if let Some(link) = self.sessions.get(index).link() {
            out.kicked(link, Kick::Dropped);
            let survives = self.sessions.get(index).is_persistent();
            self.detach(now, index, true, out);
            if !survives {
                return;
            }
        }
        self.end(now, index, out);
    }

    /// Keeps the will of an ending session if the log has no room for it: an unnamed session
    /// publishes it when it expires.
    fn leave_will_behind(&mut self, now: Time, index: u32) {
        let session = self.sessions.get_mut(index);
        let (client_id, will) = (session.client_id.clone(), session.will.take());
        if let Some(at) = session.will_at.take() {
            self.timers.remove(at, Reason::WillDelay, index);
        }
        let ghost = self.sessions.create_unnamed(&client_id);
        let at = now.after(WILL_AGAIN);
        let session = self.sessions.get_mut(ghost);
        (session.will, session.expires_at) = (will, Some(at));
        self.timers.insert(at, Reason::SessionExpiry, ghost);
        self.remember_session(ghost, None);
    }

    /// Ends a session whose client has been away too long.
    pub(crate) fn expire_session(&mut self, now: Time, index: u32, out: &mut dyn Output) {
        let session = self.sessions.get_mut(index);
        session.expires_at = None;
        if session.memory.is_kept && self.store.disk == Disk::Poisoned {
            // The end cannot be written: after the restart the session would exist again, and
            // expires then.
            self.publish_will(now, index, out);
            return;
        }
        self.sessions.stats.sessions_expired += 1;
        self.end(now, index, out);
    }

    /// Ends a detached session: its will is published, its subscriptions end, its events of shared
    /// subscriptions go to other members.
    pub(crate) fn end(&mut self, now: Time, index: u32, out: &mut dyn Output) {
        if !self.publish_will(now, index, out) {
            self.leave_will_behind(now, index);
        }
        self.forget_place(index);
        self.record_ended_session(now, index);
        self.forget_session(index);
        if let Some(at) = self.sessions.get_mut(index).expires_at.take() {
            self.timers.remove(at, Reason::SessionExpiry, index);
        }
        let mut shared = self.leave_leaving(index);
        for id in core::mem::take(&mut self.sessions.get_mut(index).subscriptions) {
            let left = self.remove_subscription(index, id, false);
            shared.extend(left.filter(|(_, lives)| *lives).map(|(group, _)| group));
        }
        self.end_work(now, index, shared, out);
        self.sessions.remove(index);
    }
}

impl Broker {
    /// Sets a session's attachment, its first or a newer one.
    fn place_session(&mut self, index: u32, place: Option<Attachment>) {
        let known = &mut self.sessions.get_mut(index).memory.roam;
        match (known.as_deref_mut(), place) {
            (Some(known), Some(place)) => known.renew(place),
            (Some(known), None) => known.renew_alone(),
            (None, Some(place)) => *known = Some(Box::new(place)),
            (None, None) => {}
        }
    }
}

impl Session {
    /// Records a subscription, and the membership if it is a shared one.
    pub(crate) fn record_subscription(&mut self, id: u32, group: u32) {
        self.subscriptions.push(id);
        if group != NO_GROUP && !self.groups.contains(&group) {
            self.groups.push(group);
        }
    }
}
