//! Attaching, detaching and ending sessions, and taking a session from its connection: what that
//! connection has already sent is handled first.
//!
//! A client that closes one connection and opens the next has its bytes in two sockets, and drivers
//! read sockets in any order. So a claimant of an attached session (a connection here, or another
//! broker) waits until the edge reports that the old connection has been read to its end, until
//! that connection ends by itself, or for [`READ_OUT_MAX`]. Claimants of one session are served in
//! the order of their arrival.

use core::time::Duration;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};

use whimbrel_event::Time;

use super::Session;
use crate::api::{Attach, Kick, Link, Output, Reason, Refusal, Unread};
use crate::broker::Broker;
use crate::overlay::{Arrival, Attachment, ENDED_LIFETIME, Want};
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
        let seeks = self.overlay.has_to_seek(now);
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
        let is_begun_anew = self.sessions.get(index).is_begun_anew();
        out.attached(attach.link, known.is_some() && !is_of_copy && !is_begun_anew);
        self.remember_session(index, None);
        self.record_place(now, index);
        let outlives = known.is_some() || !expiry.is_zero();
        self.confirm_session(self.sessions.whom(attach.link), begins_anew, outlives, out);
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
        let session = self.sessions.get_mut(index);
        let is_used = !session.is_begun_anew();
        let known = &mut session.memory.roam;
        match (known.as_deref_mut(), place) {
            (Some(known), Some(place)) => known.renew(place, is_used),
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

/// The longest wait of a claimant for the old connection to be read to its end. A socket is read in
/// one go, so this matters only where the machine has no time for that: 50 ms were too short for
/// one with two processors and a load of 14, and a longer wait costs other clients nothing.
pub const READ_OUT_MAX: Duration = Duration::from_secs(1);

/// Claimants that may wait for one connection. Beyond that, the oldest of other brokers gives way,
/// which asks again by itself; if there is none, the oldest connection, which is refused.
const CLAIMANTS_MAX: usize = 8;

/// A claimant of an attached session.
#[derive(Debug)]
pub(crate) enum Claimant {
    /// A connection of the same client at this broker, with the arguments for [`Broker::admit`].
    Connection {
        /// The client whose session it is.
        client: Box<str>,
        /// The connection.
        arrival: Box<Arrival>,
        /// The attachment that the session gets then.
        place: Option<Box<Attachment>>,
        /// The session has just come from another broker.
        has_come: bool,
    },
    /// Another broker.
    Broker(Box<Want>),
}

/// A connection from which a session is about to be taken.
#[derive(Debug)]
struct Superseded {
    until: Time,
    claimants: VecDeque<Claimant>,
}

/// All connections from which sessions are about to be taken.
#[derive(Debug, Default)]
pub(crate) struct Supersessions {
    waiting: BTreeMap<Link, Superseded>,
    /// Connections that are no longer waited for, with their claimants.
    ready: VecDeque<(Link, VecDeque<Claimant>)>,
    /// The connection whose claimants are being served.
    served: Option<Link>,
}

impl Supersessions {
    /// Whether claimants are to be served.
    #[inline]
    pub(crate) fn is_any_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Ends the wait for a connection; returns when it would have ended in any case.
    fn release(&mut self, link: Link) -> Option<Time> {
        let superseded = self.waiting.remove(&link)?;
        self.ready.push_back((link, superseded.claimants));
        Some(superseded.until)
    }

    /// Adds a claimant of a connection that is waited for. Returns the one that has to give way to
    /// it, if any.
    fn add(&mut self, link: Link, claimant: Claimant) -> Option<Claimant> {
        let claimants = &mut self.waiting.get_mut(&link).expect("it is waited for").claimants;
        let is_repeat = |known: &Claimant| match (known, &claimant) {
            (Claimant::Broker(known), Claimant::Broker(new)) => new.is_repeat_of(known),
            _ => false,
        };
        if claimants.iter().any(is_repeat) {
            return None;
        }
        claimants.push_back(claimant);
        if claimants.len() <= CLAIMANTS_MAX {
            return None;
        }
        let gives_way = claimants.iter().position(|known| matches!(known, Claimant::Broker(_)));
        claimants.remove(gives_way.unwrap_or(0))
    }

    /// Removes the claimant with connection `link`; tells whether there was one.
    pub(crate) fn withdraw(&mut self, link: Link) -> bool {
        let mut found = false;
        let mut stays = |claimant: &Claimant| {
            let is_it = matches!(claimant, Claimant::Connection { arrival, .. } if arrival.link == link);
            found |= is_it;
            !is_it
        };
        self.waiting.values_mut().for_each(|superseded| superseded.claimants.retain(&mut stays));
        self.ready.iter_mut().for_each(|(_, claimants)| claimants.retain(&mut stays));
        found
    }
}

impl Broker {
    /// The connection of a client's session, if it is to be read to its end before the session is
    /// taken from it: then the claimant is to be given to [`Broker::claim`].
    pub(crate) fn unread_link(&mut self, now: Time, client: &str, out: &mut dyn Output) -> Option<Link> {
        let index = self.sessions.find(client)?;
        let link = self.sessions.get(index).link()?;
        let supersessions = &mut self.sessions.supersessions;
        if supersessions.served == Some(link) {
            return None;
        }
        if let Entry::Vacant(place) = supersessions.waiting.entry(link) {
            if out.read_out(link) == Unread::Nothing {
                return None;
            }
            let until = now + READ_OUT_MAX;
            place.insert(Superseded { until, claimants: VecDeque::new() });
            self.timers.insert(until, Reason::ReadOut, link.0);
        }
        Some(link)
    }

    /// Has a claimant wait for a connection that [`Broker::unread_link`] returned.
    pub(crate) fn claim(&mut self, link: Link, claimant: Claimant, out: &mut dyn Output) {
        match self.sessions.supersessions.add(link, claimant) {
            Some(Claimant::Connection { arrival, .. }) => {
                self.sessions.stats.takeovers_cut += 1;
                out.refused(arrival.link, Refusal::ConnectedAgain);
            }
            // The other broker asks again.
            Some(Claimant::Broker(_)) | None => {}
        }
    }

    /// The edge has handed over what a connection had sent: all of it, or as much as it may at
    /// once.
    pub(crate) fn on_read_out(&mut self, link: Link, is_whole: bool) {
        if self.stop_waiting(link) && !is_whole {
            self.sessions.stats.takeovers_cut += 1;
        }
    }

    /// A connection was not read to its end in time. While too much waits for the disk, no
    /// connection is read ([`Broker::is_congested`]), and the time does not count.
    pub(crate) fn on_read_out_late(&mut self, now: Time, link: Link) {
        if self.is_congested()
            && let Some(superseded) = self.sessions.supersessions.waiting.get_mut(&link)
        {
            superseded.until = now + READ_OUT_MAX;
            return self.timers.insert(superseded.until, Reason::ReadOut, link.0);
        }
        if self.sessions.supersessions.release(link).is_some() {
            self.sessions.stats.takeovers_cut += 1;
        }
    }

    /// Ends the wait for a connection that has ended or was read to its end; tells whether
    /// claimants waited.
    pub(crate) fn stop_waiting(&mut self, link: Link) -> bool {
        let until = self.sessions.supersessions.release(link);
        if let Some(until) = until {
            self.timers.remove(until, Reason::ReadOut, link.0);
        }
        until.is_some()
    }

    /// Serves the claimants of connections that are no longer waited for, in the order of their
    /// arrival. The first gets the session; those behind it may have to wait for its connection.
    pub(crate) fn serve_claimants(&mut self, now: Time, out: &mut dyn Output) {
        while let Some((link, claimants)) = self.sessions.supersessions.ready.pop_front() {
            self.sessions.supersessions.served = Some(link);
            for claimant in claimants {
                match claimant {
                    Claimant::Connection { client, arrival, place, has_come } => {
                        let found = self.sessions.find(&client).map(|index| self.sessions.get(index));
                        if found.is_some_and(|session| session.is_foreign_to(arrival.principal())) {
                            out.refused(arrival.link, Refusal::ForeignSession);
                            continue;
                        }
                        let is_elsewhere = found.is_none_or(|session| session.is_given());
                        if place.is_some() && is_elsewhere {
                            // An earlier claimant was another broker, which owns the session now.
                            self.seek(now, &client, Some(*arrival), out);
                            continue;
                        }
                        let place = place.map(|place| *place);
                        self.admit(now, arrival.attach(&client), (place, has_come), out);
                    }
                    Claimant::Broker(want) => self.resume_want(now, *want, out),
                }
            }
            self.sessions.supersessions.served = None;
        }
    }
}
