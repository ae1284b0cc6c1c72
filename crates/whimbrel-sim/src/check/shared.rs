//! Shared subscriptions: each message goes to one member, and to another only if the first one
//! ended without settling it.
//!
//! The broker chooses the member. The order is not checked: a message that a member left behind is
//! delivered late to another.

use std::collections::BTreeMap;
use std::rc::Rc;

use mqtt_protocol_core::mqtt::packet::Qos;
use whimbrel_event::Time;

use super::book::{Flight, Publication, Session};
use super::delivery::Delivered;
use super::due::has_room;
use super::line::GRACE;
use super::topic::{matches, shared_filter};
use super::{Checker, Rule};
use crate::choice::Choice;
use crate::speech::Wanted;

/// The number of waiting messages of a shared subscription that a broker looks at: it lets others
/// pass them while they wait for busy members.
const LOOKED_AT: usize = 16;

/// Where one message of a shared subscription is.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Place {
    /// No member has it, as far as is visible.
    Free,
    /// A delivery to this member. `left`: the member's connection ended before the message was
    /// settled; at QoS 1 other members may receive it.
    With { member: String, left: bool },
    /// A member has received it.
    Done,
}

/// One message of a shared subscription.
#[derive(Debug)]
struct Share {
    publication: Rc<Publication>,
    place: Place,
    optional: bool,
}

/// One shared subscription.
#[derive(Default, Debug)]
pub(super) struct Group {
    filter: String,
    /// The selector that all members ask for.
    choice: Option<Choice>,
    /// By client id: the QoS granted.
    members: BTreeMap<String, Qos>,
    shares: Vec<Share>,
    /// Since when a message could have been given to a member.
    stuck_since: Option<Time>,
}

impl Share {
    /// Whether it may be in its group's queue.
    fn may_wait(&self) -> bool {
        matches!(self.place, Place::Free | Place::With { left: true, .. })
    }

    /// Whether it waits for a member without an excuse.
    fn waits(&self, now: Time) -> bool {
        self.place == Place::Free && !self.optional && self.publication.expires.is_none_or(|at| at > now)
    }
}

impl Group {
    /// The number of members.
    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    /// The greatest number of bytes that may wait in it.
    pub(super) fn waiting(&self, overhead: usize) -> usize {
        let waiting = self.shares.iter().filter(|share| share.may_wait());
        waiting.map(|share| share.publication.weight() + overhead).sum()
    }

    /// Its queue may have overflowed.
    pub(super) fn excuse(&mut self) {
        self.shares.iter_mut().filter(|share| share.may_wait()).for_each(|share| share.optional = true);
    }

    fn share(&mut self, publication: &Publication) -> Option<&mut Share> {
        self.shares.iter_mut().find(|share| share.publication.no == publication.no)
    }
}

impl Checker {
    pub(super) fn join_group(&mut self, id: &str, identifier: u32, choice: Option<Choice>, asked: &Wanted) {
        let packet_maximum = self.session(id).packet_maximum;
        let group = self.book.groups.entry(asked.filter.clone()).or_default();
        // A message that is too large for one member may be discarded.
        for share in &mut group.shares {
            share.optional |= share.publication.may_exceed(packet_maximum);
        }
        group.filter = shared_filter(&asked.filter).expect("a shared subscription").to_owned();
        group.choice = choice;
        group.members.insert(id.to_owned(), asked.qos);
        let share = (asked.filter.clone(), asked.qos, asked.retain_as_published);
        self.session(id).shares.insert(identifier, share);
    }

    /// Ends a membership; false if there was none.
    pub(super) fn leave_group(&mut self, id: &str, text: &str) -> bool {
        let Some(group) = self.book.groups.get_mut(text) else { return false };
        let known = group.members.remove(id).is_some();
        // Its deliveries in flight stay with it; if it goes too, they need not reach another
        // member.
        for share in &mut group.shares {
            share.optional |= matches!(&share.place, Place::With { member, .. } if member == id);
        }
        if group.members.is_empty() {
            self.book.groups.remove(text);
            self.book.ended_groups.insert(text.to_owned());
        } else {
            self.excuse_unheld(text);
        }
        known
    }

    /// A session has ended: unacknowledged messages are for other members, except exactly-once
    /// ones.
    pub(super) fn leave_groups(&mut self, id: &str) {
        let texts: Vec<String> = self.book.groups.keys().cloned().collect();
        for text in texts {
            for share in self.book.groups.get_mut(&text).into_iter().flat_map(|group| &mut group.shares) {
                if let Place::With { member, left } = &share.place
                    && member == id
                {
                    share.place = if *left { Place::Free } else { Place::Done };
                }
            }
            self.leave_group(id, &text);
        }
    }

    /// Excuses messages of a group that has no member left to take or keep them.
    fn excuse_unheld(&mut self, text: &str) {
        let group = self.book.groups.get_mut(text).expect("a known group");
        let holds = |(id, qos): (&String, &Qos)| {
            let session = self.book.sessions.get(id);
            session.is_some_and(|s| s.conn.is_some() || *qos != Qos::AtMostOnce && !s.expiry.is_zero())
        };
        if !group.members.iter().any(holds) {
            group.shares.iter_mut().for_each(|share| share.optional = true);
        }
    }

    /// A message is accepted: each shared subscription that matches hands it to one member.
    pub(super) fn accept_shared(&mut self, publication: &Rc<Publication>) -> bool {
        let mut matched = false;
        let sessions = &self.book.sessions;
        for (text, group) in &mut self.book.groups {
            let selected = group.choice.is_none_or(|choice| choice.wants(&publication.message));
            if !selected || !matches(&group.filter, &publication.message.topic) {
                continue;
            }
            matched = true;
            let attached = |id: &String| sessions.get(id).is_some_and(|s| s.conn.is_some());
            let keeps = |id: &String| sessions.get(id).is_some_and(|s| !s.expiry.is_zero());
            let taken = group.members.keys().any(attached);
            let kept =
                publication.is_reliable() && group.members.iter().any(|(id, qos)| *qos != Qos::AtMostOnce && keeps(id));
            // A member that has left still counts until its deliveries are settled: the queue may
            // be kept.
            let of_it = |session: &Session| session.flights.iter().any(|f| f.group.as_ref() == Some(text));
            let is_unsettled = publication.is_reliable() && sessions.values().any(of_it);
            if taken || kept || is_unsettled {
                // A member that takes best effort only may lose a message.
                let small = |id: &String| sessions.get(id).is_some_and(|s| publication.may_exceed(s.packet_maximum));
                let optional = !publication.is_reliable()
                    || !(taken || kept)
                    || group.members.iter().any(|(id, qos)| *qos == Qos::AtMostOnce || small(id));
                group.shares.push(Share { publication: publication.clone(), place: Place::Free, optional });
            }
        }
        matched
    }

    /// Whether a delivery names a shared subscription.
    pub(super) fn is_share(&self, seen: &Delivered) -> bool {
        let limbo = self.limbo.get(&seen.conn).map(|limbo| &limbo.session);
        let mut sessions = self.book.sessions.get(&seen.to).into_iter().chain(limbo);
        sessions.any(|session| session.shares.contains_key(&seen.identifier))
    }

    /// A shared subscription's message is sent to a member.
    pub(super) fn share_delivered(&mut self, seen: &Delivered) {
        let limbo = self.limbo.get(&seen.conn).map(|limbo| &limbo.session);
        let mut sessions = self.book.sessions.get(&seen.to).into_iter().chain(limbo);
        let share = sessions.find_map(|session| session.shares.get(&seen.identifier));
        let (text, granted, retain_as_published) = share.expect("asked before").clone();
        let carries = |share: &&mut Share| seen.carries(&share.publication);
        // It may have been given away earlier in the call that ended the group.
        if self.book.ended_groups.contains(&text) {
            let content = (seen.message.topic.clone(), seen.message.payload.clone());
            if let Some(publication) = self.book.history.get(&content).and_then(|known| known.last()).cloned() {
                self.takes_off(seen, &publication, None);
                return;
            }
        }
        let Some(group) = self.book.groups.get_mut(&text) else {
            self.broken(Rule::Shared, format!("{} of {text}, which has ended", seen.name()));
            return;
        };
        let given = |share: &&mut Share| matches!(&share.place, Place::With { left: false, .. } | Place::Done);
        // The same content may have been published twice. Expired ones are not meant; waiting ones
        // come first, and among them those that must be delivered.
        let now = self.now;
        let expired = |share: &Share| share.publication.expires.is_some_and(|at| at < now);
        let likely = |share: &&mut Share| (expired(share), share.place != Place::Free, share.optional);
        let free = group.shares.iter_mut().filter(|share| !given(share)).filter(carries);
        let Some(share) = free.min_by_key(likely) else {
            let given = group.shares.iter_mut().find(carries).map(|share| share.place.clone());
            self.broken(Rule::Shared, format!("{} of {text}: it is {given:?}", seen.name()));
            return;
        };
        let publication = share.publication.clone();
        let before = core::mem::replace(
            &mut share.place,
            match seen.message.qos {
                Qos::AtMostOnce => Place::Done,
                _ => Place::With { member: seen.to.clone(), left: false },
            },
        );
        if let Place::With { member, .. } = before
            && let Some(session) = self.book.sessions.get_mut(&member)
        {
            session.flights.retain(|f| f.group.as_ref() != Some(&text) || f.publication.no != publication.no);
        }
        if seen.message.qos != publication.message.qos.min(granted) {
            self.broken(Rule::Qos, format!("{} of {text}: granted {granted:?}", seen.name()));
        }
        if seen.message.retain != (publication.message.retain && retain_as_published) {
            self.broken(Rule::RetainFlag, format!("{} of {text}", seen.name()));
        }
        if publication.expires.is_some_and(|at| at < self.now) {
            self.broken(Rule::Expiry, format!("{} has expired", seen.name()));
        }
        self.takes_off(seen, &publication, Some(text));
        self.check_properties(seen, &publication, false);
    }

    /// A member is sent again what it had not settled on its last connection.
    pub(super) fn share_repeated(&mut self, text: &str, publication: &Publication, seen: &Delivered) {
        let Some(share) = self.book.groups.get_mut(text).and_then(|group| group.share(publication)) else { return };
        match &mut share.place {
            Place::With { member, left } if *member == seen.to => *left = false,
            place => {
                let what = format!("{} of {text} comes again: it is {place:?}", seen.name());
                self.broken(Rule::Shared, what);
            }
        }
    }

    /// A member has settled a delivery.
    pub(super) fn share_settled(&mut self, id: &str, flight: &Flight) {
        let Some(group) = flight.group.as_ref().and_then(|text| self.book.groups.get_mut(text)) else { return };
        if let Some(share) = group.share(&flight.publication)
            && matches!(&share.place, Place::With { member, .. } if member == id)
        {
            share.place = Place::Done;
        }
    }

    /// A member's connection has ended: messages that it did not acknowledge may go to others.
    pub(super) fn free_shares(&mut self, id: &str) {
        for (text, group) in &mut self.book.groups {
            for share in &mut group.shares {
                let session = &self.book.sessions[id];
                // It may have the same message from another shared subscription.
                let is_of = |f: &&Flight| f.publication.no == share.publication.no && f.group.as_ref() == Some(text);
                let flight = session.flights.iter().find(is_of);
                if let Place::With { member, left } = &mut share.place
                    && member == id
                {
                    *left = flight.is_some_and(|f| f.qos == Qos::AtLeastOnce);
                }
            }
        }
        let texts: Vec<String> = self.book.groups.keys().cloned().collect();
        for text in texts {
            self.excuse_unheld(&text);
        }
    }

    /// Checks for messages that wait although a member takes messages at once.
    pub(super) fn check_groups(&mut self) {
        let mut late = Vec::new();
        let (sessions, lines, now) = (&self.book.sessions, &self.lines, self.now);
        // A message that is too large for the connected members is passed over, or waits for
        // another.
        let takes = |id: &String, share: &Share| {
            let session = sessions.get(id)?;
            let line = lines.get(&session.conn?)?;
            let has_room = has_room(session, line, self.bounds.inflight_max) && session.owed.is_empty();
            Some(has_room && !share.publication.may_exceed(session.packet_maximum))
        };
        for (text, group) in &mut self.book.groups {
            let waiting = group.shares.iter().filter(|share| share.waits(now)).take(LOOKED_AT);
            let taker = |share: &&Share| group.members.keys().find(|id| takes(id, share) == Some(true));
            let Some((share, taker)) = waiting.filter_map(|share| Some((share, taker(&share)?))).next() else {
                group.stuck_since = None;
                continue;
            };
            let since = *group.stuck_since.get_or_insert(now);
            if now > since + GRACE {
                late.push(format!(
                    "{} of {text} waits since {since:?}, and {taker} has room",
                    share.publication.name()
                ));
                group.stuck_since = None;
            }
        }
        for what in late {
            self.broken(Rule::Shared, what);
        }
    }

    /// The messages that no member received.
    pub(super) fn shares_owed(&self) -> Vec<String> {
        let now = self.now;
        let owed = |share: &&Share| {
            // A message that a member left behind waits again, and may expire.
            let live = share.publication.expires.is_none_or(|at| at > now);
            !share.optional && (share.may_wait() && live || matches!(share.place, Place::With { left: false, .. }))
        };
        let mut names = Vec::new();
        for (text, group) in &self.book.groups {
            names.extend(
                group.shares.iter().filter(owed).map(|s| format!("{} of {text}: {:?}", s.publication.name(), s.place)),
            );
        }
        names
    }
}
