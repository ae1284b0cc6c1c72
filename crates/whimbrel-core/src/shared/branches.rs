//! The home's view of a shared subscription's branches: how many events they take, and which they
//! have.

use core::time::Duration;
use std::collections::BTreeMap;

use whimbrel_event::{DomainLabel, Domains, Event, EventId, HostId, Qos, Time};
use whimbrel_wire::{HANDED_MAX, MembersAnswer};

use super::{Group, Groups, Post};
use crate::session::{Queued, Sessions};

/// A branch without a message for this long is gone.
pub(crate) const BRANCH_SILENT_MAX: Duration = Duration::from_secs(5);

/// The pause after which an event is handed again to a branch that has not confirmed its arrival;
/// it doubles up to [`AGAIN_MAX`].
const AGAIN: Duration = Duration::from_millis(500);
const AGAIN_MAX: Duration = Duration::from_secs(8);

/// How often a branch is asked whether it still has the events that arrived: its messages about
/// them may have been lost.
const CHECK_EVERY: Duration = Duration::from_secs(5);

/// Since when other brokers know of a home: the events that they publish from then on come to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Counting {
    /// The next version of the interest has it; waited for at most until this time.
    Next(Time),
    /// This version of the interest has it; waited for at most until this time.
    From(u64, Time),
    /// All other brokers know.
    Yes,
}

/// An event that a branch has, or will be handed.
#[derive(Debug)]
pub(crate) struct HandedEvent {
    pub(super) event: Event,
    /// The delivery to the own session that it settles; 0: none.
    pub(super) origin: u16,
    /// When it is handed again; `None`: it has arrived.
    due: Option<Time>,
    pause: Duration,
}

/// A broker with members that is not the home.
#[derive(Debug)]
pub(crate) struct Branch {
    pub(crate) host: HostId,
    /// Its incarnation: a later one has nothing of what was handed to this one.
    pub(crate) incarnation: u64,
    /// The domains that it is in, as known when its last message came.
    pub(crate) domains: Domains,
    /// The number of its last message.
    pub(crate) number: u64,
    pub(crate) lasts: bool,
    pub(crate) is_reliable: bool,
    /// The number of events that it takes at a time.
    pub(crate) room: u32,
    /// When its last message was received.
    pub(crate) heard: Time,
    /// The answer that it was sent last.
    pub(crate) told: Option<MembersAnswer>,
    pub(super) given: BTreeMap<u64, HandedEvent>,
    checked: Time,
}

impl Branch {
    pub(crate) fn new(host: HostId, incarnation: u64, now: Time) -> Branch {
        let (number, lasts, is_reliable, room, told) = (0, false, false, 0, None);
        Branch {
            host,
            incarnation,
            domains: Domains::default(),
            number,
            lasts,
            is_reliable,
            room,
            heard: now,
            told,
            given: BTreeMap::new(),
            checked: now,
        }
    }

    pub(super) fn has_room(&self) -> bool {
        self.given.len() < (self.room as usize).min(HANDED_MAX)
    }
}

impl Group {
    /// The branch with the least load relative to its room that has room, may carry the event and
    /// has not refused it. Equals take turns.
    pub(super) fn next_branch(&mut self, event: EventId, label: DomainLabel<'_>, post: &mut Post) -> Option<usize> {
        let count = self.branches.len();
        let mut best: Option<(u64, u64, usize)> = None;
        for step in 0..count {
            let at = (self.branch_turn + step) % count;
            let branch = &self.branches[at];
            let (load, room) = (branch.given.len() as u64, u64::from(branch.room));
            let is_less = |(least, its, _): (u64, u64, usize)| load * its < least * room;
            if !label.admits(&branch.domains) {
                post.outside += 1;
                continue;
            }
            if branch.has_room() && !self.refused.has(event, branch.host) && best.is_none_or(is_less) {
                best = Some((load, room, at));
            }
        }
        let (_, _, at) = best?;
        self.branch_turn = (at + 1) % count;
        Some(at)
    }

    /// Hands an event to a branch that has room. A best-effort event is not settled.
    pub(super) fn hand_over(&mut self, id: u32, at: usize, event: Event, origin: u16, post: &mut Post) {
        let branch = &mut self.branches[at];
        if event.qos() == Qos::AtMostOnce && origin == 0 {
            return post.pass(branch.host, (id, self.serial), event);
        }
        let number = post.next_number();
        branch.given.insert(number, HandedEvent { event, origin, due: None, pause: AGAIN });
        post.hands.push((id, self.serial, branch.host, number));
    }
}

impl Groups {
    /// The branches of a shared subscription.
    pub(crate) fn branches(&self, id: u32) -> &[Branch] {
        &self.get(id).branches
    }

    /// The number of events that branches have and have not settled.
    pub(crate) fn given(&self, id: u32) -> usize {
        self.get(id).branches.iter().map(|branch| branch.given.len()).sum()
    }

    pub(crate) fn branch_mut(&mut self, id: u32, host: HostId) -> Option<&mut Branch> {
        self.group(id).branches.iter_mut().find(|branch| branch.host == host)
    }

    pub(crate) fn add_branch(&mut self, id: u32, branch: Branch) {
        self.group(id).branches.push(branch);
    }

    /// Removes all branches, as this broker is not the home any more: they keep their events, and
    /// are told by the new home.
    pub(crate) fn clear_branches(&mut self, id: u32) {
        self.group(id).branches.clear();
    }

    /// Whether only the branch `host` has members.
    pub(crate) fn is_alone_but(&self, id: u32, host: HostId) -> bool {
        let group = self.get(id);
        let is_here = group.expected > 0 || group.members.iter().any(|m| !m.is_leaving);
        !is_here && group.branches.iter().all(|branch| branch.host == host)
    }

    /// Removes a branch that is gone: its events wait before all others. Tells whether it was a
    /// branch.
    pub(crate) fn remove_branch(&mut self, id: u32, host: HostId, sessions: &mut Sessions) -> bool {
        let group = self.group(id);
        let Some(at) = group.branches.iter().position(|branch| branch.host == host) else { return false };
        let branch = group.branches.remove(at);
        group.branch_turn = 0;
        sessions.stats.shared_moved += branch.given.len() as u64;
        for given in branch.given.into_values().rev() {
            group.wait_first(id, given, sessions);
        }
        true
    }

    /// A branch has found no member for an event, which waits before all others. Tells whether the
    /// branch had it.
    pub(crate) fn take_back(&mut self, id: u32, host: HostId, number: u64, sessions: &mut Sessions) -> bool {
        let group = self.group(id);
        let branch = group.branches.iter_mut().find(|branch| branch.host == host);
        let Some(given) = branch.and_then(|branch| branch.given.remove(&number)) else { return false };
        sessions.stats.shared_moved += 1;
        group.wait_first(id, given, sessions);
        true
    }

    /// No member at a branch can be sent an event: it waits before all others, for other members.
    /// Tells whether the branch had it.
    pub(crate) fn refuse_given(&mut self, id: u32, host: HostId, number: u64, sessions: &mut Sessions) -> bool {
        let branch = self.branch_mut(id, host);
        let Some(event) = branch.and_then(|branch| branch.given.get(&number)).map(|given| given.event.id()) else {
            return false;
        };
        self.group(id).refused.record(event, host);
        self.take_back(id, host, number, sessions)
    }

    /// Settles an event at a branch. Tells whether the branch had it.
    pub(crate) fn settle_given(&mut self, id: u32, host: HostId, number: u64, sessions: &mut Sessions) -> bool {
        let given = self.branch_mut(id, host).and_then(|branch| branch.given.remove(&number));
        if let Some(given) = &given {
            self.group(id).refused.forget(given.event.id());
            sessions.fulfil(self.account(id), given.origin);
        }
        given.is_some()
    }

    /// Records that an event has arrived at a branch: it is not handed again.
    pub(crate) fn record_arrival(&mut self, id: u32, host: HostId, number: u64) {
        if let Some(given) = self.branch_mut(id, host).and_then(|branch| branch.given.get_mut(&number)) {
            given.due = None;
        }
    }

    /// The event to write to a branch, which is handed again unless its arrival is confirmed.
    /// `None`: it is over.
    pub(crate) fn hand_now(
        &mut self,
        now: Time,
        (id, serial): (u32, u64),
        host: HostId,
        number: u64,
    ) -> Option<(&str, &Event)> {
        let group = self.slots.get_mut(id as usize)?.as_mut().filter(|group| group.serial == serial)?;
        let branch = group.branches.iter_mut().find(|branch| branch.host == host)?;
        let given = branch.given.get_mut(&number)?;
        given.due = Some(now + given.pause);
        given.pause = (given.pause * 2).min(AGAIN_MAX);
        Some((&group.text, &given.event))
    }

    /// Has events without confirmed arrival handed again.
    pub(crate) fn hand_again(&mut self, id: u32, now: Time) {
        let (group, post) = self.with_post(id);
        for branch in &group.branches {
            let due = branch.given.iter().filter(|(_, given)| given.due.is_some_and(|due| due <= now));
            post.hands.extend(due.map(|(number, _)| (id, group.serial, branch.host, *number)));
        }
    }

    /// The numbers of events that arrived at branches and are not settled, for each branch that is
    /// due to be asked.
    pub(crate) fn checks(&mut self, id: u32, now: Time) -> Vec<(HostId, Vec<u64>)> {
        let mut all = Vec::new();
        for branch in &mut self.group(id).branches {
            if now.since(branch.checked) >= CHECK_EVERY {
                branch.checked = now;
                let came = branch.given.iter().filter(|(_, given)| given.due.is_none());
                let numbers: Vec<u64> = came.map(|(number, _)| *number).take(HANDED_MAX).collect();
                all.extend((!numbers.is_empty()).then_some((branch.host, numbers)));
            }
        }
        all
    }

    pub(crate) fn counting(&self, id: u32) -> Counting {
        self.get(id).counting
    }

    pub(crate) fn set_counting(&mut self, id: u32, counting: Counting) {
        self.group(id).counting = counting;
    }
}

impl Group {
    fn wait_first(&mut self, id: u32, given: HandedEvent, sessions: &mut Sessions) {
        let entry = Queued::shared(given.event, id, given.origin);
        sessions.stats.queued_events += 1;
        sessions.stats.queued_bytes += entry.weight() as u64;
        self.queue.push_front(entry);
    }
}
