//! A branch's view of a shared subscription's home: whether the home knows of the members here, and
//! which of its events they have.

use std::collections::{BTreeMap, VecDeque};

use whimbrel_event::{Event, EventId, HostId, Qos, Time};
use whimbrel_wire::{HANDED_MAX, MembersAnswer};

use super::{Counting, Group, Groups};
use crate::session::Sessions;

/// Settled or returned events that are remembered, so that one that arrives twice is not delivered
/// twice.
const OVER_MAX: usize = 4 * HANDED_MAX;

/// Refused events that are remembered, so that one that arrives once more is over.
const REFUSED_MAX: usize = HANDED_MAX;

/// Best-effort events for branches in one step; more are dropped.
const PASSING_MAX: usize = 4096;

/// The part of a message to a home that describes the members here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MembersSaid {
    pub(crate) selector: Option<Box<str>>,
    pub(crate) lasts: bool,
    pub(crate) is_reliable: bool,
}

/// The state of a shared subscription for its members here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MemberState {
    /// They get their part of the events.
    Served,
    /// Other members have another selector.
    Refused,
    /// This broker, the home, has not confirmed them yet; `None`: the home is not known.
    Waits(Option<HostId>),
}

/// The state of an event that a home hands over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HandState {
    /// It is new: the members here get it under this tag.
    New(u16),
    /// It is here already.
    Held,
    /// It was settled, or `returned`.
    Over { returned: bool },
    /// It exceeds the bound.
    Full,
}

/// A branch's state for a shared subscription's homes.
#[derive(Debug, Default)]
pub(crate) struct HomesSeen {
    /// The home; `None`: it is not known, or is this broker.
    pub(crate) home: Option<HostId>,
    /// The previous home, until the present one has confirmed the members here.
    pub(crate) previous_home: Option<HostId>,
    /// The number of the request; the answer repeats it.
    pub(crate) asked: u64,
    pub(crate) answer: Option<MembersAnswer>,
    pub(crate) told_at: Time,
    said: Option<MembersSaid>,
    /// Events that members have or that wait for one: by home and number, and the inverse.
    held: BTreeMap<(HostId, u64), u16>,
    tags: BTreeMap<u16, (HostId, u64)>,
    last_tag: u16,
    /// Events that are over (true: returned), and their order.
    over: BTreeMap<(HostId, u64), bool>,
    over_order: VecDeque<(HostId, u64)>,
    /// Refused events, which no member here can be sent, oldest first.
    refused: VecDeque<EventId>,
}

impl HomesSeen {
    /// The state of an event that a home has handed over; `None`: it is not known here.
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

    /// Refuses the event with a tag; returns its home and number. `None` if it was refused before:
    /// its home knows of no other branch.
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

    /// Ends the event with a tag; returns its home and number.
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

/// The report about the numbers of events.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum NumbersTold {
    Came,
    Settled,
    Returned,
    Refused,
}

/// A shared subscription without members here any more.
#[derive(Debug)]
pub(crate) struct Parted {
    pub(crate) text: Box<str>,
    /// Its home.
    pub(crate) home: HostId,
    /// The number of the message.
    pub(crate) number: u64,
    /// The numbers of that home's events that members had, ascending.
    pub(crate) had: Vec<u64>,
}

/// Messages for other brokers at the end of a step.
#[derive(Debug, Default)]
pub(crate) struct Post {
    number: u64,
    /// Events to hand to branches: shared subscription with its serial number, branch, number.
    pub(crate) hands: Vec<(u32, u64, HostId, u64)>,
    /// Best-effort events, which are not confirmed.
    pub(crate) passing: Vec<(HostId, (u32, u64), Event)>,
    /// Best-effort events beyond [`PASSING_MAX`].
    pub(crate) dropped: u64,
    /// Times that a branch was passed over, as it may not carry an event.
    pub(crate) outside: u64,
    /// Reports about numbers of a shared subscription, with its serial number.
    pub(crate) numbers: Vec<(HostId, NumbersTold, (u32, u64), u64)>,
    /// Shared subscriptions whose home has to be told of the members, with their serial numbers.
    pub(crate) changed: Vec<(u32, u64)>,
    /// Shared subscriptions without members here any more.
    pub(crate) parted: Vec<Parted>,
}

impl Post {
    /// Numbers begin behind those of earlier incarnations.
    pub(crate) fn begin(&mut self, now: Time) {
        self.number = self.number.max(now.as_nanos());
    }

    /// The next number; no number is used twice.
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

    /// Reports that no member here can be sent an event of a home.
    pub(super) fn refuse(&mut self, host: HostId, group: (u32, u64), number: u64) {
        self.numbers.push((host, NumbersTold::Refused, group, number));
    }

    pub(crate) fn is_empty(&self) -> bool {
        let Post { hands, passing, numbers, changed, parted, .. } = self;
        hands.is_empty() && passing.is_empty() && numbers.is_empty() && changed.is_empty() && parted.is_empty()
    }

    /// Reports that a shared subscription has no member here any more: their events go back.
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
    /// The ids of all shared subscriptions.
    pub(crate) fn ids(&self) -> impl Iterator<Item = u32> + use<> {
        let ids: Vec<u32> = (0..).zip(&self.slots).filter(|(_, slot)| slot.is_some()).map(|(id, _)| id).collect();
        ids.into_iter()
    }

    /// Whether an id is in use.
    pub(crate) fn is_used(&self, id: u32) -> bool {
        self.slots.get(id as usize).is_some_and(Option::is_some)
    }

    /// Whether an id is in use by the shared subscription with this serial number.
    pub(crate) fn has(&self, id: u32, serial: u64) -> bool {
        self.slots.get(id as usize).and_then(Option::as_ref).is_some_and(|group| group.serial == serial)
    }

    /// The text of a shared subscription, as it was asked for.
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

    /// This broker's state for another home.
    pub(crate) fn visit(&self, id: u32) -> Option<&HomesSeen> {
        self.get(id).visit.as_deref()
    }

    pub(crate) fn visit_mut(&mut self, id: u32) -> Option<&mut HomesSeen> {
        self.group(id).visit.as_deref_mut()
    }

    /// As [`Groups::visit_mut`]; creates the state if there is none.
    pub(crate) fn begin_visit(&mut self, id: u32) -> &mut HomesSeen {
        self.group(id).visit.get_or_insert_default()
    }

    /// Ends the state for other homes if no event of theirs is left and none has to be told.
    pub(crate) fn end_visit(&mut self, id: u32) {
        let group = self.group(id);
        let is_over =
            |visit: &HomesSeen| visit.held.is_empty() && visit.home.is_none() && visit.previous_home.is_none();
        if group.is_home && group.visit.as_deref().is_some_and(is_over) {
            group.visit = None;
        }
    }

    /// Whether other brokers take part in a shared subscription.
    pub(crate) fn is_remote(&self, id: u32) -> bool {
        let group = self.get(id);
        let is_away = group.visit.is_some() || group.is_sought;
        is_away || !group.branches.is_empty() || group.counting != Counting::Yes
    }

    /// Has the home told of the members here, if it is another broker. If their terms have changed,
    /// it has to answer.
    pub(crate) fn record_said(&mut self, id: u32) {
        let (group, post) = self.with_post(id);
        let said = group.said();
        let Some(visit) = &mut group.visit else { return };
        if visit.said.as_ref() != Some(&said) {
            (visit.said, visit.answer, visit.asked) = (Some(said), None, post.next_number());
        }
        post.changed.push((id, group.serial));
    }

    /// Asks another home: it has to answer.
    pub(crate) fn ask_anew(&mut self, id: u32) {
        if let Some(visit) = self.visit_mut(id) {
            visit.said = None;
        }
        self.record_said(id);
    }

    /// The message to a home: the members' terms, their number, and the number of events that they
    /// take.
    pub(crate) fn members(&self, id: u32, sessions: &Sessions) -> (MembersSaid, u32, u32) {
        let group = self.get(id);
        let members = group.members.iter().filter(|m| !m.is_leaving);
        let there = members.clone().filter(|m| sessions.is_attached(m.session));
        let room: usize = there.map(|m| usize::from(sessions.get(m.session).window())).sum();
        (group.said(), members.count() as u32 + group.expected, room.min(HANDED_MAX) as u32)
    }

    /// Whether another broker has confirmed that it is the home and has the interest of the members
    /// here.
    pub(crate) fn is_served_elsewhere(&self, id: u32) -> bool {
        let Some(visit) = self.visit(id).filter(|visit| visit.home.is_some()) else { return false };
        let lasts = visit.said.as_ref().is_some_and(|said| said.lasts);
        match visit.answer {
            Some(MembersAnswer::Durable) => true,
            answer => answer == Some(MembersAnswer::Taken) && !lasts,
        }
    }

    /// The state that the members here may be told.
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

    /// A member here has an event of a home. Reports that to the home.
    pub(crate) fn settle_here(&mut self, id: u32, tag: u16) {
        let (group, post) = self.with_post(id);
        let over = group.visit.as_deref_mut().and_then(|visit| visit.end(tag, false));
        post.numbers.extend(over.map(|(host, number)| (host, NumbersTold::Settled, (id, group.serial), number)));
    }

    /// Reports the fate of an event to a home.
    pub(crate) fn tell(&mut self, id: u32, (host, number): (HostId, u64), told: NumbersTold) {
        let (group, post) = self.with_post(id);
        if number != 0 {
            post.numbers.push((host, told, (id, group.serial), number));
        }
    }

    /// Returns waiting events to their home: no member is attached.
    pub(crate) fn give_back(&mut self, id: u32, sessions: &mut Sessions) {
        let (group, post) = self.with_post(id);
        let Some(visit) = group.visit.as_deref_mut().filter(|_| group.own.is_none()) else { return };
        for entry in group.queue.iter().filter(|entry| entry.origin != 0) {
            let over = visit.end(entry.origin, true);
            post.numbers.extend(over.map(|(host, number)| (host, NumbersTold::Returned, (id, group.serial), number)));
        }
        self.drop_waiting_for_others(id, sessions);
    }

    /// Drops waiting events with an `origin`: another home, or the own session, has them.
    fn drop_waiting_for_others(&mut self, id: u32, sessions: &mut Sessions) {
        let (events, bytes) = self.group(id).queue.purge(|entry| entry.origin == 0);
        sessions.stats.queued_events -= events as u64;
        sessions.stats.queued_bytes -= bytes as u64;
    }

    /// Separates the members' events, held and waiting, from the own session or home: another
    /// broker has all of them, and hands them out again.
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

    /// Records whether its own session is being sought at other brokers.
    pub(crate) fn set_sought(&mut self, id: u32, is_sought: bool) {
        self.group(id).is_sought = is_sought;
    }

    /// Records that the own session of a shared subscription is gone.
    pub(crate) fn lose_own(&mut self, id: u32) {
        let group = self.group(id);
        (group.own, group.is_durable) = (None, false);
    }

    /// Keeps a shared subscription until a time without members here: other brokers had some.
    pub(crate) fn keep_until(&mut self, id: u32, until: Option<Time>) {
        self.group(id).kept_until = until;
    }

    /// Until when it is kept without members here.
    pub(crate) fn kept_until(&self, id: u32) -> Option<Time> {
        self.get(id).kept_until
    }
}
