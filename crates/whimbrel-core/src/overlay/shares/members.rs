//! The messages between the home of a shared subscription and its branches, both sides: the
//! members that a branch reports, the events that the home hands to it, and their outcome.

use core::time::Duration;

use whimbrel_event::{Event, HostId, Time};
use whimbrel_selector::{Selector, SharedFilter, TopicName};
use whimbrel_wire::{BrokerMessage, Hand, HandNumbers, Members, MembersAnswer, MembersTaken, compact};

use super::super::Sender;
use crate::api::Output;
use crate::broker::Broker;
use crate::session::Handed;
use crate::shared::{BRANCH_SILENT_MAX, Branch, Counting, HandState, NumbersTold};
use crate::store::SessionNo;

impl Broker {
    /// Handles another broker's report of its members.
    pub(in crate::overlay) fn on_members(
        &mut self,
        now: Time,
        from: Sender,
        members: &Members<'_>,
        out: &mut dyn Output,
    ) {
        let is_shared = SharedFilter::parse(members.text).is_ok_and(|shared| shared.group.is_some());
        let selector = members.selector.map(Selector::parse_canonical).transpose();
        let (true, Ok(selector)) = (is_shared, selector) else {
            self.overlay.net.refuse_message();
            return;
        };
        let known = self.groups.find(members.text);
        let branch = known.and_then(|id| self.groups.branch_mut(id, from.host));
        let stand = branch.map(|branch| (branch.incarnation, branch.number));
        // A report overtaken by a later one is ignored.
        if stand.is_some_and(|stand| stand > (from.incarnation, members.number)) {
            return;
        }
        if let Some(id) = known
            && (members.count == 0 || stand.is_some_and(|(incarnation, _)| incarnation != from.incarnation))
        {
            self.lose_branch(now, id, from.host, out);
        }
        if members.count == 0 {
            return;
        }
        let Some(id) = self.import_members(now, members.text, out) else {
            return self.tell_members_taken(
                now,
                from.host,
                (members.number, members.text),
                MembersAnswer::NotHome,
                out,
            );
        };
        if !self.take_branch(now, id, from, (members.lasts, selector.as_ref()), out) {
            let answer = (members.number, members.text);
            self.tell_members_taken(now, from.host, answer, MembersAnswer::OtherSelector, out);
            self.lose_branch(now, id, from.host, out);
            return;
        }
        let domains = self.overlay.net.domains().of(from.host);
        let branch = self.groups.branch_mut(id, from.host).expect("it was admitted");
        branch.domains = domains;
        (branch.number, branch.is_reliable) = (members.number, members.is_reliable);
        (branch.room, branch.heard, branch.told) = (members.room, now, None);
        self.groups.keep_until(id, None);
        self.attend(now, id, out);
        self.desert(now, id);
        self.groups.hand_out(id, now, &mut self.sessions, out);
        self.answer_branches(now, id, out);
        self.share_soon(now);
    }

    /// The shared subscription of another broker's members, if this broker is its home or becomes
    /// it.
    fn import_members(&mut self, now: Time, text: &str, out: &mut dyn Output) -> Option<u32> {
        let known = self.groups.find(text);
        if let Some(id) = known.filter(|id| self.groups.is_home(*id)) {
            return Some(id);
        }
        if !self.is_chosen(now, text) {
            return None;
        }
        let Some(id) = known else { return Some(self.find_or_place(text)) };
        self.begin_home(now, id, out);
        Some(id)
    }

    /// Adds another broker as a branch, with its members' interest. Returns `false` if other
    /// members share with another selector.
    fn take_branch(
        &mut self,
        now: Time,
        id: u32,
        from: Sender,
        (lasts, selector): (bool, Option<&Selector>),
        out: &mut dyn Output,
    ) -> bool {
        let is_other = self.groups.selector(id) != selector;
        if is_other && !self.groups.is_alone_but(id, from.host) {
            return false;
        }
        if self.groups.branch_mut(id, from.host).is_none() {
            self.groups.add_branch(id, Branch::new(from.host, from.incarnation, now));
        }
        self.groups.branch_mut(id, from.host).expect("it is there").lasts = lasts;
        let text: Box<str> = self.groups.text(id).into();
        let is_more = lasts && self.groups.durable(id).is_some() && !self.is_for_others(id);
        if (is_other && self.groups.own(id).is_some() || is_more) && self.ask_by_own(id, &text, selector).is_err() {
            return false;
        }
        self.groups.select(id, selector);
        let filter = SharedFilter::parse(&text).expect("it was checked").filter;
        self.enter_index(id, filter, is_other);
        self.adopt_group(now, id, out);
        true
    }

    /// Tells branches the news: the other brokers know of their members' interest, or the position
    /// is durable.
    pub(crate) fn answer_branches(&mut self, now: Time, id: u32, out: &mut dyn Output) {
        let is_durable = self.groups.durable(id).is_some();
        let is_known = self.groups.counting(id) == Counting::Yes;
        let mut told = Vec::new();
        for branch in self.groups.branches(id) {
            let answer = match (is_known, branch.lasts, is_durable) {
                (false, ..) => MembersAnswer::Coming,
                (true, true, true) => MembersAnswer::Durable,
                // Without a log a home cannot remember the position.
                (true, true, false) if self.groups.own(id).is_some() => MembersAnswer::Coming,
                (true, ..) => MembersAnswer::Taken,
            };
            if branch.told != Some(answer) {
                told.push((branch.host, branch.number, answer));
            }
        }
        let text: Box<str> = self.groups.text(id).into();
        for (host, number, answer) in told {
            self.groups.branch_mut(id, host).expect("it is one").told = Some(answer);
            self.tell_members_taken(now, host, (number, &text), answer, out);
        }
    }

    fn tell_members_taken(
        &mut self,
        now: Time,
        host: HostId,
        (number, text): (u64, &str),
        answer: MembersAnswer,
        out: &mut dyn Output,
    ) {
        self.send_to(now, host, (&BrokerMessage::MembersTaken(MembersTaken { number, text, answer }), false), out);
    }

    /// Removes a branch without members, or out of reach: its events go to other members.
    pub(super) fn lose_branch(&mut self, now: Time, id: u32, host: HostId, out: &mut dyn Output) {
        if !self.groups.remove_branch(id, host, &mut self.sessions) {
            return;
        }
        self.groups.hand_out(id, now, &mut self.sessions, out);
        if self.end_if_empty(id) {
            self.desert(now, id);
        }
    }

    /// Removes branches that cannot be reached, or have been silent for too long.
    pub(super) fn lose_silent_branches(&mut self, now: Time, id: u32, out: &mut dyn Output) {
        let branches = self.groups.branches(id).iter().map(|branch| (branch.host, branch.heard));
        let lost: Vec<HostId> = branches
            .filter(|(host, heard)| now.since(*heard) >= BRANCH_SILENT_MAX || !self.is_candidate(*host))
            .map(|(host, _)| host)
            .collect();
        if lost.is_empty() {
            self.end_if_empty(id);
            return;
        }
        let text: Box<str> = self.groups.text(id).into();
        for host in lost {
            // The subscription may have ended with the previous branch.
            if self.groups.find(&text) == Some(id) {
                self.lose_branch(now, id, host, out);
            }
        }
    }

    /// The shared subscription that these numbers belong to, if it is known.
    fn handed_of(&self, numbers: &HandNumbers<'_>) -> Option<u32> {
        self.groups.find(numbers.text)
    }

    /// Records that events have arrived at a branch.
    pub(in crate::overlay) fn on_hands_arrived(&mut self, from: Sender, numbers: &HandNumbers<'_>) {
        let Some(id) = self.handed_of(numbers) else { return };
        numbers.numbers.iter().for_each(|number| self.groups.record_arrival(id, from.host, *number));
    }

    /// Settles events that members at a branch have settled.
    pub(in crate::overlay) fn hands_settled(
        &mut self,
        now: Time,
        from: Sender,
        numbers: &HandNumbers<'_>,
        out: &mut dyn Output,
    ) {
        let Some(id) = self.handed_of(numbers) else { return };
        for number in &numbers.numbers {
            self.groups.settle_given(id, from.host, *number, &mut self.sessions);
        }
        self.groups.hand_out(id, now, &mut self.sessions, out);
    }

    /// Handles events that no member at a branch can be sent: other members get them, if they can.
    pub(in crate::overlay) fn hands_refused(
        &mut self,
        now: Time,
        from: Sender,
        numbers: &HandNumbers<'_>,
        out: &mut dyn Output,
    ) {
        let Some(id) = self.handed_of(numbers) else { return };
        for number in numbers.numbers.iter().rev() {
            self.groups.refuse_given(id, from.host, *number, &mut self.sessions);
        }
        self.groups.hand_out(id, now, &mut self.sessions, out);
    }

    /// Takes back events that have found no member at a branch.
    pub(in crate::overlay) fn hands_returned(
        &mut self,
        now: Time,
        from: Sender,
        numbers: &HandNumbers<'_>,
        out: &mut dyn Output,
    ) {
        let Some(id) = self.handed_of(numbers) else { return };
        let mut is_any = false;
        for number in numbers.numbers.iter().rev() {
            is_any |= self.groups.take_back(id, from.host, *number, &mut self.sessions);
        }
        if !is_any {
            return;
        }
        // Until the branch reports room.
        self.groups.branch_mut(id, from.host).expect("it had something").room = 0;
        self.groups.hand_out(id, now, &mut self.sessions, out);
        self.desert(now, id);
    }
}

/// The interval at which a home is told of the members here.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// The event of a message whose way took `way`; `None` if it is not valid.
fn event_of(now: Time, way: Duration, hand: &Hand<'_>) -> Option<Event> {
    let mut event = compact::read(hand.event, hand.id).ok()?;
    TopicName::new(event.event.topic).ok()?;
    event.arrive(now, Time::from_nanos(hand.now).since(event.accepted) + way);
    event.event.headers.retain = hand.retain;
    Some(event.keep())
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
    pub(in crate::overlay) fn members_taken(
        &mut self,
        now: Time,
        from: Sender,
        taken: &MembersTaken<'_>,
        out: &mut dyn Output,
    ) {
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
    pub(in crate::overlay) fn on_hand(&mut self, now: Time, from: Sender, hand: &Hand<'_>, out: &mut dyn Output) {
        let known = self.groups.find(hand.text).filter(|id| self.groups.visit(*id).is_some());
        let Some(id) = known else {
            return self.return_hand(now, from.host, hand, out);
        };
        if self.groups.own(id).is_some() {
            // This broker becomes home in a moment, or ceases to be; the event will be handed
            // again.
            return;
        }
        let Some(event) = event_of(now, self.overlay.net.way(from.host), hand) else {
            self.overlay.net.refuse_message();
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
    pub(in crate::overlay) fn hands_left(&mut self, from: Sender, numbers: &HandNumbers<'_>) {
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
