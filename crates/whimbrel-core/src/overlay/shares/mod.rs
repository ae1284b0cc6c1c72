//! Shared subscriptions with members at several brokers. One broker is the home: it alone has the
//! interest and the position, and hands events to the branches.
//!
//! - `homes`: the choice of the home, and its changes; the position moves to a new home. `members`:
//!   the messages between a home and its branches, both sides.
//!
//! All communication is by routed messages. A branch reports its members each second, and an event
//! is handed again until the branch confirms its arrival; both sides recognize repetitions.

mod homes;
mod members;

use core::time::Duration;

use whimbrel_event::{DomainLabel, Event, HostId, LABEL_BYTES_MAX, Time};
use whimbrel_wire::{BrokerMessage, HANDED_MAX, Hand, HandNumbers, MESSAGE_BYTES_MAX, Members, compact};

use super::rendezvous::Candidates;
use super::{DomainPlace, Due};
use crate::api::Output;
use crate::broker::Broker;
use crate::shared::{Counting, NumbersTold, Parted};

/// The interval at which shared subscriptions with members or homes at other brokers are checked.
const CHECK_EVERY: Duration = Duration::from_millis(250);

/// Bytes of a message with an event above which it is sent in bulk.
const SMALL: usize = 4096;

/// Most bytes of such a message beside the text of the shared subscription and the event.
const BESIDE: usize = 64 + LABEL_BYTES_MAX;

/// The brokers among which homes are chosen.
#[derive(Debug, Default)]
pub(crate) struct Brokers {
    candidates: Candidates,
    /// When they last changed.
    changed_at: Time,
    /// Some home may have to be changed.
    is_unsettled: bool,
    is_due: bool,
    /// Some home is not known to all brokers.
    is_counting: bool,
}

/// Encodes the message that hands an event to a branch; `None` if it is too large.
fn hand_body(now: Time, (number, text): (u64, &str), event: &Event) -> Option<(u8, Vec<u8>)> {
    let (event, retain) = (event.packed().unpack(), event.packed().retain());
    let mut bytes = Vec::new();
    compact::write(&event, &mut bytes);
    if bytes.len() + text.len() + BESIDE > MESSAGE_BYTES_MAX {
        return None;
    }
    let mut body = Vec::with_capacity(bytes.len() + text.len() + BESIDE);
    // The receiver knows neither this broker's clock nor that of the event's broker.
    let its_now = event.accepted + event.age(now);
    let kind = BrokerMessage::Hand(Hand { number, text, now: its_now.as_nanos(), retain, id: event.id, event: &bytes })
        .encode(&mut body);
    Some((kind, body))
}

impl Brokers {
    /// Whether some home is not known to all brokers.
    pub(crate) fn is_counting(&self) -> bool {
        self.is_counting
    }
}

impl Broker {
    /// Schedules a check of shared subscriptions.
    pub(super) fn share_soon(&mut self, now: Time) {
        if !self.overlay.is_open() {
            return;
        }
        if !core::mem::replace(&mut self.groups.brokers.is_due, true) {
            self.overlay.set_timer(now + CHECK_EVERY, Due::Share);
        }
    }

    /// Checks shared subscriptions with members or homes at other brokers.
    pub(super) fn check_shares(&mut self, now: Time, out: &mut dyn Output) {
        self.groups.brokers.is_due = false;
        self.settle_homes(now, out);
        let mut has_more = self.groups.brokers.is_unsettled;
        for id in self.groups.ids() {
            // The subscription may have ended with an earlier one, whose home has refused it.
            let is_used = self.groups.is_used(id);
            if is_used && (self.groups.is_remote(id) || self.groups.kept_until(id).is_some()) {
                has_more = true;
                self.check_share(now, id, out);
            }
        }
        if has_more {
            self.share_soon(now);
        }
    }

    fn check_share(&mut self, now: Time, id: u32, out: &mut dyn Output) {
        if let Counting::Next(until) | Counting::From(_, until) = self.groups.counting(id)
            && until <= now
        {
            self.count_now(now, id, out);
        }
        self.adopt_group(now, id, out);
        self.groups.hand_again(id, now);
        for (host, numbers) in self.groups.checks(id, now) {
            let text: Box<str> = self.groups.text(id).into();
            self.send_to(now, host, (&BrokerMessage::HandsLeft(HandNumbers { text: &text, numbers }), false), out);
        }
        self.tell_members_again(now, id, out);
        if self.groups.kept_until(id).is_some_and(|until| until <= now) {
            self.groups.keep_until(id, None);
            self.groups.hand_out(id, now, &mut self.sessions, out);
        }
        // The subscription may end with its last branch.
        self.lose_silent_branches(now, id, out);
    }

    /// Tells other brokers what one step has changed in shared subscriptions.
    pub(crate) fn tell_shares(&mut self, now: Time, out: &mut dyn Output) {
        let mut changed = core::mem::take(&mut self.groups.post.changed);
        changed.sort_unstable();
        changed.dedup();
        // Before returned events: otherwise the home would hand them to members that have left.
        for (id, serial) in changed {
            if self.groups.has(id, serial) {
                self.tell_members(now, id, out);
            }
        }
        // A turn that refuses events hands them out again, never to a branch that refused them.
        while !self.groups.post.hands.is_empty() {
            for hand in core::mem::take(&mut self.groups.post.hands) {
                self.hand_on(now, hand, out);
            }
        }
        self.sessions.stats.dropped_slow += core::mem::take(&mut self.groups.post.dropped);
        for (host, (id, serial), event) in core::mem::take(&mut self.groups.post.passing) {
            let text = Some(id).filter(|id| self.groups.has(*id, serial)).map(|id| self.groups.text(id));
            let body = text.and_then(|text| hand_body(now, (0, text), &event));
            let label = event.packed().domains();
            let is_sent = body.is_some_and(|(kind, body)| {
                let message = BrokerMessage::Unknown(kind, &body);
                self.overlay.send_within(now, host, label, &message, body.len() > SMALL, out)
            });
            self.sessions.stats.dropped_slow += u64::from(!is_sent);
        }
        self.tell_numbers(now, out);
        for Parted { text, home, number, had } in core::mem::take(&mut self.groups.post.parted) {
            self.tell_parted(now, home, (&text, number), out);
            for numbers in had.chunks(HANDED_MAX) {
                let returned = BrokerMessage::Returned(HandNumbers { text: &text, numbers: numbers.to_vec() });
                self.send_to(now, home, (&returned, false), out);
            }
        }
        self.share_soon(now);
    }

    /// Writes an event to a branch: group, its serial number, the branch, and the event's number.
    fn hand_on(&mut self, now: Time, (id, serial, host, number): (u32, u64, HostId, u64), out: &mut dyn Output) {
        let Some((text, event)) = self.groups.hand_now(now, (id, serial), host, number) else { return };
        let body = hand_body(now, (number, text), event);
        let domains = Box::<str>::from(event.packed().domains().as_str());
        let label = DomainLabel::checked(&domains);
        if !self.overlay.net.domains().may_carry(label, host) {
            // The branch is as if none of its members could be sent it.
            self.overlay.net.domains().record_refusal(DomainPlace::SharedMember);
            let domains = self.overlay.net.domains().of(host);
            if let Some(branch) = self.groups.branch_mut(id, host) {
                branch.domains = domains;
            }
            self.groups.refuse_given(id, host, number, &mut self.sessions);
            return self.groups.hand_out(id, now, &mut self.sessions, out);
        }
        match body {
            Some((kind, body)) => {
                let message = BrokerMessage::Unknown(kind, &body);
                self.overlay.send_within(now, host, label, &message, body.len() > SMALL, out);
            }
            None => {
                self.sessions.stats.dropped_too_large += 1;
                self.groups.settle_given(id, host, number, &mut self.sessions);
            }
        }
    }

    /// Reports the outcome of events in as few messages as possible.
    fn tell_numbers(&mut self, now: Time, out: &mut dyn Output) {
        let mut all = core::mem::take(&mut self.groups.post.numbers);
        all.sort_unstable();
        all.dedup();
        for part in all.chunk_by(|a, b| (a.0, a.1, a.2) == (b.0, b.1, b.2)) {
            let (host, told, (id, serial), _) = part[0];
            if !self.groups.has(id, serial) {
                continue;
            }
            let text: Box<str> = self.groups.text(id).into();
            for part in part.chunks(HANDED_MAX) {
                let numbers = HandNumbers { text: &text, numbers: part.iter().map(|(.., number)| *number).collect() };
                let message = match told {
                    NumbersTold::Came => BrokerMessage::HandsCame(numbers),
                    NumbersTold::Settled => BrokerMessage::Handed(numbers),
                    NumbersTold::Returned => BrokerMessage::Returned(numbers),
                    NumbersTold::Refused => BrokerMessage::HandsRefused(numbers),
                };
                self.send_to(now, host, (&message, false), out);
            }
        }
    }

    /// Tells a home that there are no members here any more.
    fn tell_parted(&mut self, now: Time, home: HostId, (text, number): (&str, u64), out: &mut dyn Output) {
        let (selector, lasts, is_reliable, count, room) = (None, false, false, 0, 0);
        let members = Members { number, text, selector, lasts, is_reliable, count, room };
        self.send_to(now, home, (&BrokerMessage::Members(members), false), out);
    }
}
