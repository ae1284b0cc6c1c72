//! The branch of a shared subscription: a broker with members, whose home is another broker.

use core::time::Duration;

use whimbrel_event::{Event, HostId, Time};
use whimbrel_selector::TopicName;
use whimbrel_wire::{BrokerMessage, Hand, HandNumbers, Members, MembersAnswer, MembersTaken, compact};

use super::super::messages::Sender;
use crate::api::Output;
use crate::broker::Broker;
use crate::session::Handed;
use crate::shared::{HandState, NumbersTold};
use crate::store::SessionNo;

/// The interval at which a home is told of the members here.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// The event of a message; `None` if it is not valid.
fn event_of(now: Time, hand: &Hand<'_>) -> Option<Event> {
    let mut event = compact::read(hand.event, hand.id).ok()?;
    TopicName::new(event.event.topic).ok()?;
    // Clocks differ: the rest of the event's lifetime counts from here.
    let age = Time::from_nanos(hand.now).since(event.accepted);
    event.event.expires = event.event.expires.map(|expires| now + expires.since(event.accepted).saturating_sub(age));
    event.event.headers.retain = hand.retain;
    Some(Event::keep(hand.id, event.accepted, &event.event))
}

impl Broker {
    /// Tells the home of the members here; the previous home as well while the new one has not
    /// answered.
    pub(super) fn tell_members(&mut self, now: Time, id: u32, out: &mut dyn Output) {
        let Some(visit) = self.groups.visit_mut(id) else { return };
        visit.told_at = now;
        let (number, homes) = (visit.asked, visit.home.into_iter().chain(visit.previous_home));
        let homes: Vec<HostId> = homes.collect();
        let (said, count, room) = self.groups.members(id, &self.sessions);
        if count == 0 {
            return;
        }
        let text: Box<str> = self.groups.text(id).into();
        let (selector, lasts, is_reliable) = (said.selector.as_deref(), said.lasts, said.is_reliable);
        let members = Members { number, text: &text, selector, lasts, is_reliable, count, room };
        for home in homes {
            self.send_to(now, home, (&BrokerMessage::Members(members), false), out);
        }
    }

    /// Tells the home of the members again, every [`TELL_EVERY`].
    pub(super) fn tell_members_again(&mut self, now: Time, id: u32, out: &mut dyn Output) {
        if self.groups.visit(id).is_some_and(|visit| now.since(visit.told_at) >= TELL_EVERY) {
            self.tell_members(now, id, out);
        }
    }

    /// Handles a home's answer.
    pub(super) fn members_taken(&mut self, now: Time, from: Sender, taken: &MembersTaken<'_>, out: &mut dyn Output) {
        let Some(id) = self.groups.find(taken.text) else { return };
        let Some(visit) = self.groups.visit_mut(id) else { return };
        if visit.home != Some(from.host) || visit.asked != taken.number {
            return;
        }
        let is_news = visit.answer != Some(taken.answer);
        visit.answer = Some(taken.answer).filter(|answer| *answer != MembersAnswer::NotHome);
        if !is_news {
            return;
        }
        if taken.answer == MembersAnswer::OtherSelector {
            self.overlay.stats.shares_refused += 1;
        }
        if self.groups.is_served_elsewhere(id) {
            self.leave_previous_home(now, id, out);
            self.cease_home(id);
        }
        self.confirm_shares(now, out);
    }

    /// Tells the previous home, once the new one has the members, that there are none here any
    /// more.
    pub(super) fn leave_previous_home(&mut self, now: Time, id: u32, out: &mut dyn Output) {
        let Some(previous) = self.groups.visit_mut(id).and_then(|visit| visit.previous_home.take()) else { return };
        let (text, number): (Box<str>, _) = (self.groups.text(id).into(), self.groups.post.next_number());
        self.tell_parted(now, previous, (&text, number), out);
    }

    /// Handles an event that a home hands to a member here.
    pub(super) fn on_hand(&mut self, now: Time, from: Sender, hand: &Hand<'_>, out: &mut dyn Output) {
        let known = self.groups.find(hand.text).filter(|id| self.groups.visit(*id).is_some());
        let Some(id) = known else {
            return self.return_hand(now, from.host, hand, out);
        };
        if self.groups.own(id).is_some() {
            // This broker becomes home in a moment, or ceases to be; the event will be handed
            // again.
            return;
        }
        let Some(event) = event_of(now, hand) else {
            let overlay = &mut self.overlay;
            overlay.net.refuse_message();
            return;
        };
        let visit = self.groups.visit_mut(id).expect("it was looked at");
        let taking = if hand.number == 0 { HandState::New(0) } else { visit.take(from.host, hand.number) };
        match taking {
            HandState::New(tag) => {
                let handed = Handed { session: 0, number: SessionNo(0), tag, event };
                self.groups.hand(id, handed, now, &mut self.sessions, out);
                self.groups.tell(id, (from.host, hand.number), NumbersTold::Came);
            }
            HandState::Held => self.groups.tell(id, (from.host, hand.number), NumbersTold::Came),
            HandState::Over { returned } => {
                let told = if returned { NumbersTold::Returned } else { NumbersTold::Settled };
                self.groups.tell(id, (from.host, hand.number), told);
            }
            HandState::Full => {}
        }
        if !self.groups.is_attended(id, &self.sessions) {
            self.groups.give_back(id, &mut self.sessions);
        }
    }

    fn return_hand(&mut self, now: Time, home: HostId, hand: &Hand<'_>, out: &mut dyn Output) {
        if hand.number != 0 {
            let returned = BrokerMessage::Returned(HandNumbers { text: hand.text, numbers: vec![hand.number] });
            self.send_to(now, home, (&returned, false), out);
        }
    }

    /// Handles a home's question about handed events: reports those that are no longer here.
    pub(super) fn hands_left(&mut self, from: Sender, numbers: &HandNumbers<'_>) {
        let Some(id) = self.groups.find(numbers.text) else { return };
        for number in &numbers.numbers {
            let Some(visit) = self.groups.visit(id) else { return };
            match visit.hand_state(from.host, *number) {
                Some(HandState::Held) => {}
                Some(HandState::Over { returned: false }) => {
                    self.groups.tell(id, (from.host, *number), NumbersTold::Settled)
                }
                _ => self.groups.tell(id, (from.host, *number), NumbersTold::Returned),
            }
        }
    }
}
