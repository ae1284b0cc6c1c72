//! What a branch of a shared subscription has of its home: whether that knows of the members here,
//! and which of its events they have.

use std::collections::{BTreeMap, VecDeque};

use whimbrel_event::{Event, EventId, HostId, Qos, Time};
use whimbrel_wire::{HANDED_MAX, MembersAnswer};

use super::{Counting, Group, Groups};
use crate::session::Sessions;

/// Events that were settled or returned and are remembered, so that one that comes twice is not
/// delivered twice.
const OVER_MAX: usize = 4 * HANDED_MAX;

/// Events that were refused and are remembered, so that one that comes once more is over.
const REFUSED_MAX: usize = HANDED_MAX;

/// Best-effort events for branches that one step may have; others are dropped.
const PASSING_MAX: usize = 4096;

/// What is said of the members here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MembersSaid {
    pub(crate) selector: Option<Box<str>>,
    pub(crate) lasts: bool,
    pub(crate) is_reliable: bool,
}

/// What a member of a shared subscription may be told of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MemberState {
    /// It gets its part.
    Served,
    /// Others share with another selector.
    Refused,
    /// That broker, its home, has not said so yet; `None`: it is not known who it is.
    Waits(Option<HostId>),
}

/// What an event that a home hands over is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HandState {
    /// It is new: the members here get it under this tag.
    New(u16),
    /// It is here already.
    Held,
    /// It was settled, or `returned`.
    Over { returned: bool },
    /// There are more than there may be.
    Full,
}

/// What a branch has of homes.
#[derive(Debug, Default)]
pub(crate) struct HomesSeen {
    /// The home; `None`: it is not known, or is here.
    pub(crate) home: Option<HostId>,
    /// The one before, as long as the present one has not said that it knows of the members here.
    pub(crate) previous_home: Option<HostId>,
    /// The number of what is asked for; the answer repeats it.
    pub(crate) asked: u64,
    pub(crate) answer: Option<MembersAnswer>,
    pub(crate) told_at: Time,
    said: Option<MembersSaid>,
    /// Events that members have or that wait for one: by home and number, and the other way round.
    held: BTreeMap<(HostId, u64), u16>,
    tags: BTreeMap<u16, (HostId, u64)>,
    last_tag: u16,
    /// What has become of others; and in which order.
    over: BTreeMap<(HostId, u64), bool>,
    over_order: VecDeque<(HostId, u64)>,
    /// Events that were refused, as no member here can be sent them, oldest first.
    refused: VecDeque<EventId>,
}

impl HomesSeen {
    /// What an event that a home has handed over is by now; `None`: it is not known here.
    pub(crate) fn hand_state(&self, host: HostId, number: u64) -> Option<HandState> {
        let key = (host, number);
        let held = self.held.contains_key(&key).then_some(HandState::Held);
        held.or_else(|| self.over.get(&key).map(|returned| HandState::Over { returned: *returned }))
    }

    /// Takes an event that a home hands over.
    pub(crate) fn take(&mut self, host: HostId, number: u64) -> HandState {
        let key = (host, number);
        if let Some(known) = self.hand_state(host, number) {
            return known;
        }
        if self.held.len() >= 2 * HANDED_MAX {
            return HandState::Full;
        }
        loop {
            self.last_tag = self.last_tag.checked_add(1).unwrap_or(1);
            // There are many more tags than events.
            if !self.tags.contains_key(&self.last_tag) {
                break;
            }
        }
        self.held.insert(key, self.last_tag);
        self.tags.insert(self.last_tag, key);
        HandState::New(self.last_tag)
    }

    /// What was given that tag is refused; whose it is, and its number. `None` if it was refused
    /// before: its home knows of no other branch.
    pub(super) fn refuse(&mut self, tag: u16, event: EventId) -> Option<(HostId, u64)> {
        if let Some(at) = self.refused.iter().position(|known| *known == event) {
            self.refused.remove(at);
            return None;
        }
        let key = self.end(tag, true)?;
        if self.refused.len() >= REFUSED_MAX {
            self.refused.pop_front();
        }
        self.refused.push_back(event);
        Some(key)
    }

    /// What was given that tag is over; whose it is, and its number.
    fn end(&mut self, tag: u16, returned: bool) -> Option<(HostId, u64)> {
        let key = self.tags.remove(&tag)?;
        self.held.remove(&key);
        if self.over_order.len() >= OVER_MAX
            && let Some(oldest) = self.over_order.pop_front()
        {
            self.over.remove(&oldest);
        }
        self.over.insert(key, returned);
        self.over_order.push_back(key);
        Some(key)
    }
}

/// What of these numbers is told.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum NumbersTold {
    Came,
    Settled,
    Returned,
    Refused,
}

/// A shared subscription that has no member here any more.
#[derive(Debug)]
pub(crate) struct Parted {
    pub(crate) text: Box<str>,
    /// Its home.
    pub(crate) home: HostId,
    /// The number of what is said.
    pub(crate) number: u64,
    /// What members had of that home, ascending.
    pub(crate) had: Vec<u64>,
}

/// What is to be told to other brokers at the end of a step.
#[derive(Debug, Default)]
pub(crate) struct Post {
    number: u64,
    /// Events to be handed to branches: shared subscription with its serial number, branch, number.
    pub(crate) hands: Vec<(u32, u64, HostId, u64)>,
    /// Best-effort events, for which nobody answers.
    pub(crate) passing: Vec<(HostId, (u32, u64), Event)>,
    /// Those that found no room there.
    pub(crate) dropped: u64,
    /// What is told of numbers of a shared subscription, with its serial number.
    pub(crate) numbers: Vec<(HostId, NumbersTold, (u32, u64), u64)>,
    /// Shared subscriptions of which a home has to hear, with their serial numbers.
    pub(crate) changed: Vec<(u32, u64)>,
    /// Those that have no member here any more.
    pub(crate) parted: Vec<Parted>,
}

impl Post {
    /// Numbers begin behind those of earlier lives.
    pub(crate) fn begin(&mut self, now: Time) {
        self.number = self.number.max(now.as_nanos());
    }

    /// The next number: none is used twice.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    pub(super) fn pass(&mut self, host: HostId, group: (u32, u64), event: Event) {
        if self.passing.len() < PASSING_MAX {
            self.passing.push((host, group, event));
        } else {
            self.dropped += 1;
        }
    }

    /// No member here can be sent an event that a home has handed over.
    pub(super) fn refuse(&mut self, host: HostId, group: (u32, u64), number: u64) {
        self.numbers.push((host, NumbersTold::Refused, group, number));
    }

    pub(crate) fn is_empty(&self) -> bool {
        let Post { hands, passing, numbers, changed, parted, .. } = self;
        hands.is_empty() && passing.is_empty() && numbers.is_empty() && changed.is_empty() && parted.is_empty()
    }

    /// A shared subscription has no member here any more: what they had goes back.
    pub(super) fn part(&mut self, text: &str, visit: &HomesSeen) {
        for home in visit.home.into_iter().chain(visit.previous_home) {
            let number = self.next_number();
            let had = visit.held.keys().filter(|(host, _)| *host == home).map(|(_, number)| *number).collect();
            self.parted.push(Parted { text: text.into(), home, number, had });
        }
    }
}

impl Group {
    fn said(&self) -> MembersSaid {
        let stays = || self.members.iter().filter(|m| !m.is_leaving);
        MembersSaid {
            selector: self.selector.as_ref().map(|selector| selector.to_string().into()),
            lasts: stays().any(|m| m.lasts),
            is_reliable: stays().any(|m| m.qos != Qos::AtMostOnce),
        }
    }
}

impl Groups {
    /// All shared subscriptions, by their ids.
    pub(crate) fn ids(&self) -> impl Iterator<Item = u32> + use<> {
        let ids: Vec<u32> = (0..).zip(&self.slots).filter(|(_, slot)| slot.is_some()).map(|(id, _)| id).collect();
        ids.into_iter()
    }

    /// Whether there is one with that id.
    pub(crate) fn is_used(&self, id: u32) -> bool {
        self.slots.get(id as usize).is_some_and(Option::is_some)
    }

    /// Whether there is that one.
    pub(crate) fn has(&self, id: u32, serial: u64) -> bool {
        self.slots.get(id as usize).and_then(Option::as_ref).is_some_and(|group| group.serial == serial)
    }

    /// As it was asked for.
    pub(crate) fn text(&self, id: u32) -> &str {
        &self.get(id).text
    }

    /// Whether this broker is the home.
    pub(crate) fn is_home(&self, id: u32) -> bool {
        self.get(id).is_home
    }

    pub(crate) fn set_home(&mut self, id: u32, is_home: bool) {
        self.group(id).is_home = is_home;
    }

    /// What this broker has of another home.
    pub(crate) fn visit(&self, id: u32) -> Option<&HomesSeen> {
        self.get(id).visit.as_deref()
    }

    pub(crate) fn visit_mut(&mut self, id: u32) -> Option<&mut HomesSeen> {
        self.group(id).visit.as_deref_mut()
    }

    /// As [`Groups::visit_mut`], from now on.
    pub(crate) fn begin_visit(&mut self, id: u32) -> &mut HomesSeen {
        self.group(id).visit.get_or_insert_default()
    }

    /// Nothing is had of other homes any more, nor are they told.
    pub(crate) fn end_visit(&mut self, id: u32) {
        let group = self.group(id);
        let is_over =
            |visit: &HomesSeen| visit.held.is_empty() && visit.home.is_none() && visit.previous_home.is_none();
        if group.is_home && group.visit.as_deref().is_some_and(is_over) {
            group.visit = None;
        }
    }

    /// Other brokers have something to do with it.
    pub(crate) fn is_remote(&self, id: u32) -> bool {
        let group = self.get(id);
        let is_away = group.visit.is_some() || group.is_sought;
        is_away || !group.branches.is_empty() || group.counting != Counting::Yes
    }

    /// If the home is elsewhere: it has to hear of the members here, and if they want something
    /// else than it knows, it has to answer.
    pub(crate) fn record_said(&mut self, id: u32) {
        let (group, post) = self.with_post(id);
        let said = group.said();
        let Some(visit) = &mut group.visit else { return };
        if visit.said.as_ref() != Some(&said) {
            (visit.said, visit.answer, visit.asked) = (Some(said), None, post.next_number());
        }
        post.changed.push((id, group.serial));
    }

    /// It is another home that has to answer.
    pub(crate) fn ask_anew(&mut self, id: u32) {
        if let Some(visit) = self.visit_mut(id) {
            visit.said = None;
        }
        self.record_said(id);
    }

    /// What is told to a home: what is asked for, how many members there are, and how many events
    /// they take.
    pub(crate) fn members(&self, id: u32, sessions: &Sessions) -> (MembersSaid, u32, u32) {
        let group = self.get(id);
        let members = group.members.iter().filter(|m| !m.is_leaving);
        let there = members.clone().filter(|m| sessions.is_attached(m.session));
        let room: usize = there.map(|m| usize::from(sessions.get(m.session).window())).sum();
        (group.said(), members.count() as u32 + group.expected, room.min(HANDED_MAX) as u32)
    }

    /// Another broker has said that it is the home, and has what the members here want.
    pub(crate) fn is_served_elsewhere(&self, id: u32) -> bool {
        let Some(visit) = self.visit(id).filter(|visit| visit.home.is_some()) else { return false };
        let lasts = visit.said.as_ref().is_some_and(|said| said.lasts);
        match visit.answer {
            Some(MembersAnswer::Durable) => true,
            answer => answer == Some(MembersAnswer::Taken) && !lasts,
        }
    }

    /// What the members here may be told.
    pub(crate) fn state(&self, id: u32) -> MemberState {
        let group = self.get(id);
        if group.is_sought || group.own.is_some() && !group.is_durable {
            return MemberState::Waits(None);
        }
        let Some(visit) = group.visit.as_deref().filter(|_| !group.is_home) else { return MemberState::Served };
        if self.is_served_elsewhere(id) {
            return MemberState::Served;
        }
        match visit.answer {
            Some(MembersAnswer::OtherSelector) => MemberState::Refused,
            _ => MemberState::Waits(visit.home),
        }
    }

    /// A member here has what a home has handed over. Tells that home.
    pub(crate) fn settle_here(&mut self, id: u32, tag: u16) {
        let (group, post) = self.with_post(id);
        let over = group.visit.as_deref_mut().and_then(|visit| visit.end(tag, false));
        post.numbers.extend(over.map(|(host, number)| (host, NumbersTold::Settled, (id, group.serial), number)));
    }

    /// Tells a home what has become of an event.
    pub(crate) fn tell(&mut self, id: u32, (host, number): (HostId, u64), told: NumbersTold) {
        let (group, post) = self.with_post(id);
        if number != 0 {
            post.numbers.push((host, told, (id, group.serial), number));
        }
    }

    /// Nobody is there who would take what waits: it goes back to whom it came from.
    pub(crate) fn give_back(&mut self, id: u32, sessions: &mut Sessions) {
        let (group, post) = self.with_post(id);
        let Some(visit) = group.visit.as_deref_mut().filter(|_| group.own.is_none()) else { return };
        for entry in group.queue.iter().filter(|entry| entry.origin != 0) {
            let over = visit.end(entry.origin, true);
            post.numbers.extend(over.map(|(host, number)| (host, NumbersTold::Returned, (id, group.serial), number)));
        }
        self.drop_waiting_for_others(id, sessions);
    }

    /// What waits for somebody else's sake does so no more.
    fn drop_waiting_for_others(&mut self, id: u32, sessions: &mut Sessions) {
        let (events, bytes) = self.group(id).queue.purge(|entry| entry.origin == 0);
        sessions.stats.queued_events -= events as u64;
        sessions.stats.queued_bytes -= bytes as u64;
    }

    /// What members have, or waits for them, is from now on nobody else's: somebody else has it
    /// all, and hands it out again.
    pub(crate) fn forget_origins(&mut self, id: u32, sessions: &mut Sessions) {
        self.drop_waiting_for_others(id, sessions);
        let group = self.group(id);
        for member in &group.members {
            sessions.get_mut(member.session).inflight.forget_origins(id);
        }
        if let Some(visit) = &mut group.visit {
            visit.held.clear();
            visit.tags.clear();
        }
    }

    /// Its own session is being sought at other brokers.
    pub(crate) fn set_sought(&mut self, id: u32, is_sought: bool) {
        self.group(id).is_sought = is_sought;
    }

    /// The own session of a shared subscription is gone.
    pub(crate) fn lose_own(&mut self, id: u32) {
        let group = self.group(id);
        (group.own, group.is_durable) = (None, false);
    }

    /// Other brokers had members: it stays until then though nobody is there.
    pub(crate) fn keep_until(&mut self, id: u32, until: Option<Time>) {
        self.group(id).kept_until = until;
    }

    /// Until when it stays though nobody is there.
    pub(crate) fn kept_until(&self, id: u32) -> Option<Time> {
        self.get(id).kept_until
    }
}
