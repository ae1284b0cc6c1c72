//! The choice of the member that gets an event of a shared subscription: the least loaded of those
//! that can be sent it.
//!
//! An attached member that cannot be sent an event, as it is too large for it or not allowed, is
//! passed over, and so is a branch that has refused it. An event that no attached member can be
//! sent is over, and counted: it never holds up the others. A detached member does not count, since
//! what it takes is known only when it is back.

use std::collections::BTreeMap;

use smallvec::SmallVec;
use whimbrel_event::{EventId, HostId, Qos};
use whimbrel_wire::HANDED_MAX;

use super::{Branch, Group, Member, Post};
use crate::api::Output;
use crate::session::{Publication, Sessions, Terms};

/// Events of one shared subscription for which the branches that refused them are remembered.
const REFUSED_MAX: usize = HANDED_MAX;

/// The result of choosing a member.
#[derive(Clone, Copy, Debug)]
pub(super) enum Choice {
    /// A member at this broker.
    Member(Member),
    /// A branch, by its place.
    Branch(usize),
    /// A member or branch that has no room at the moment; others take other events.
    Busy,
    /// No member or branch has room at the moment.
    Full,
    /// No attached member can be sent the event, and no branch takes it.
    Untaken,
}

/// The branches that have refused an event, by event.
#[derive(Debug, Default)]
pub(super) struct BranchRefusals {
    by_event: BTreeMap<EventId, SmallVec<[HostId; 2]>>,
}

impl BranchRefusals {
    /// Records that a branch has refused an event. At the bound the event with the least id is
    /// forgotten, and so offered once more.
    pub(super) fn record(&mut self, event: EventId, host: HostId) {
        if self.by_event.len() >= REFUSED_MAX && !self.by_event.contains_key(&event) {
            self.by_event.pop_first();
        }
        let hosts = self.by_event.entry(event).or_default();
        if !hosts.contains(&host) {
            hosts.push(host);
        }
    }

    /// Whether a branch has refused an event.
    pub(super) fn has(&self, event: EventId, host: HostId) -> bool {
        self.by_event.get(&event).is_some_and(|hosts| hosts.contains(&host))
    }

    /// Forgets an event that was given to a member or branch, or is over.
    pub(super) fn forget(&mut self, event: EventId) {
        self.by_event.remove(&event);
    }
}

impl Member {
    /// Its terms for an event that settles the delivery `origin` to the own session.
    pub(super) fn terms(&self, group: u32, publication: &Publication<'_>, origin: u16) -> Terms {
        let event = &publication.accepted.event;
        Terms { group, origin, ..self.marks.terms(event.qos.min(self.qos), event.headers.retain) }
    }

    /// Whether its client can be sent an event, now or later.
    fn can_be_sent(&self, publication: &Publication<'_>, sessions: &Sessions, out: &mut dyn Output) -> bool {
        let Some(link) = sessions.get(self.session).link() else { return false };
        let terms = self.terms(0, publication, 0);
        let tag = u16::from(terms.qos != Qos::AtMostOnce);
        out.takes(link, &terms.delivery(publication, tag))
    }

    /// Whether it takes an event at this QoS at once.
    fn has_room(&self, qos: Qos, sessions: &Sessions) -> bool {
        let session = sessions.get(self.session);
        match qos.min(self.qos) {
            Qos::AtMostOnce => session.is_open(),
            qos => session.takes_reliable(qos),
        }
    }
}

impl Group {
    /// Chooses the member for an event: the least loaded one that has room and can be sent it,
    /// equals in turns, else a branch. Costs a look at each member and branch at most.
    pub(super) fn choose(
        &mut self,
        publication: &Publication<'_>,
        sessions: &Sessions,
        post: &mut Post,
        out: &mut dyn Output,
    ) -> Choice {
        let count = self.members.len();
        let mut best: Option<(usize, usize)> = None;
        let mut has_room = false;
        for step in 0..count {
            let at = (self.turn + step) % count;
            let member = &self.members[at];
            if member.is_leaving || !sessions.is_attached(member.session) {
                continue;
            }
            if !member.has_room(publication.accepted.event.qos, sessions) {
                continue;
            }
            has_room = true;
            let load = sessions.get(member.session).load();
            if best.is_none_or(|(least, _)| load < least) && member.can_be_sent(publication, sessions, out) {
                best = Some((load, at));
                if load == 0 {
                    break;
                }
            }
        }
        if let Some((_, at)) = best {
            self.turn = (at + 1) % count;
            return Choice::Member(self.members[at]);
        }
        let label = publication.accepted.event.headers.domains;
        if let Some(at) = self.next_branch(publication.accepted.id, label, post) {
            return Choice::Branch(at);
        }
        // Those that have room cannot be sent it.
        if !has_room && !self.branches.iter().any(Branch::has_room) {
            return Choice::Full;
        }
        let has_refused = |branch: &Branch| self.refused.has(publication.accepted.id, branch.host);
        let is_open = |branch: &Branch| branch.room > 0 && label.admits(&branch.domains) && !has_refused(branch);
        // After a restart, brokers that had members may report them again.
        let is_awaited = self.kept_until.is_some()
            || self.branches.iter().any(is_open)
            || self.members.iter().any(|member| {
                let is_busy = !member.is_leaving && !member.has_room(publication.accepted.event.qos, sessions);
                is_busy && member.can_be_sent(publication, sessions, out)
            });
        if is_awaited { Choice::Busy } else { Choice::Untaken }
    }

    /// No member here can be sent an event: it goes back to its home, where other brokers may have
    /// members for it, or is over. A home that hands it out once more knows of no others.
    pub(super) fn pass_over(&mut self, id: u32, event: EventId, origin: u16, sessions: &mut Sessions, post: &mut Post) {
        let visit = self.visit.as_deref_mut().filter(|_| self.own.is_none() && origin != 0);
        if let Some((host, number)) = visit.and_then(|visit| visit.refuse(origin, event)) {
            return post.refuse(host, (id, self.serial), number);
        }
        self.refused.forget(event);
        sessions.stats.dropped_untaken += 1;
        sessions.fulfil(self.account(id), origin);
    }
}
