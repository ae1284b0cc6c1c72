//! Taking a session from its connection: what that connection has already sent is handled first.
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

use crate::api::{Link, Output, Reason, Refusal, Unread};
use crate::broker::Broker;
use crate::overlay::{Arrival, Attachment, Want};

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
