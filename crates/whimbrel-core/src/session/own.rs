//! Sessions that shared subscriptions have of their own. Nobody is connected to such a session:
//! what is delivered to it is handed out among the members, and is settled when the member that got
//! it has it.

use whimbrel_event::{Event, Qos, Time};

use super::deliver::Terms;
use super::slot::Stage;
use super::{DETACHED, Session, Sessions};
use crate::api::Link;
use crate::store::{Recipient, SessionNo};

/// Stands for the link of a session to which nobody is connected, and which is served all the same.
const WITHIN: u32 = DETACHED - 1;

/// Nobody: who asks for something on behalf of such a session.
pub(crate) const NOBODY: Recipient = Recipient { link: Link(WITHIN), attachment: 0 };

/// Events of a durable shared subscription that wait for a member or are on their way to one, at
/// most; the others stay in the log.
pub(crate) const SHARED_WINDOW: u16 = 4096;

/// What the client id of such a session begins with: MQTT forbids it to clients.
const MARK: char = '\0';

/// The client id of the session of a shared subscription.
pub(crate) fn own_client_id(text: &str) -> String {
    format!("{MARK}{text}")
}

/// A client id as people are shown it: that of a shared subscription's own session is the text of
/// the subscription.
pub(crate) fn shown(client_id: &str) -> &str {
    shared_text(client_id).unwrap_or(client_id)
}

/// The text of the shared subscription whose own session has that client id.
pub(crate) fn shared_text(client_id: &str) -> Option<&str> {
    client_id.strip_prefix(MARK)
}

/// What was delivered to a shared subscription's own session, and is to be handed out.
#[derive(Debug)]
pub(crate) struct Handed {
    /// The session, with its number.
    pub(crate) session: u32,
    pub(crate) number: SessionNo,
    /// The delivery to it; 0: one that nobody settles.
    pub(crate) tag: u16,
    pub(crate) event: Event,
}

/// Where it is settled what a member of a shared subscription has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Account {
    /// Nowhere.
    None,
    /// With the shared subscription's own session.
    Own(u32),
    /// With another broker, its home: the shared subscription's id and number here.
    Visit(u32, u64),
}

/// A delivery that is over, and where that is settled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fulfilled {
    pub(crate) account: Account,
    /// The number of the own session, if there is one.
    pub(crate) number: SessionNo,
    pub(crate) tag: u16,
}

impl Session {
    /// How many deliveries its client takes that are not settled.
    pub(crate) fn window(&self) -> u16 {
        self.inflight.window()
    }

    /// Whether it is a shared subscription's own session, and of which.
    pub(crate) fn shares(&self) -> Option<&str> {
        shared_text(&self.client_id)
    }

    /// Whether it is a shared subscription's own session, and is served.
    pub(super) fn is_within(&self) -> bool {
        self.link == WITHIN
    }

    /// Puts an event into the window, to be handed out. The caller has asked for room.
    fn put_within(&mut self, session: u32, event: Event, terms: Terms) -> Handed {
        let number = self.memory.number;
        let is_settled = terms.qos != Qos::AtMostOnce;
        let slot = || terms.slot(event.id(), Some(event.clone()), Stage::Expect);
        let tag = if is_settled { self.inflight.push(slot()) } else { 0 };
        Handed { session, number, tag, event }
    }
}

impl Sessions {
    /// A shared subscription's own session is served from now on. What it had under way is handed
    /// out again, but for what members still `have`.
    pub(crate) fn bind_within(&mut self, index: u32, have: impl Iterator<Item = u16>) {
        let session = self.get_mut(index);
        assert!(!session.is_attached() && session.shares().is_some(), "only such a session is served without a link");
        let last_tag = core::mem::take(&mut session.attached).last_tag;
        (session.link, session.open) = (WITHIN, true);
        session.inflight.begin(SHARED_WINDOW, last_tag);
        have.for_each(|tag| session.inflight.pass_over(tag));
    }

    /// Nobody is there to whom a shared subscription's own session could hand anything out.
    pub(crate) fn unbind_within(&mut self, index: u32) {
        let session = self.get_mut(index);
        assert!(session.is_within(), "only what is served can be left");
        (session.link, session.open) = (DETACHED, false);
        self.handed.retain(|handed| handed.session != index);
    }

    /// Has an event handed out that is delivered to a shared subscription's own session. The caller
    /// has asked for room.
    pub(super) fn hand_within(&mut self, index: u32, event: Event, terms: Terms) {
        let session = self.slots[index as usize].as_mut().expect("cursors lead to sessions");
        self.handed.push_back(session.put_within(index, event, terms));
    }

    /// Has what waits handed out, as far as the window allows.
    pub(crate) fn pump_within(&mut self, index: u32, now: Time) {
        let Sessions { slots, stats, dropped, handed, .. } = self;
        let session = slots[index as usize].as_mut().expect("a session index in use");
        let (number, before) = (session.memory.number, stats.dropped_expired);
        while !session.inflight.is_resent() && session.inflight.has_room() {
            let Some((tag, slot)) = session.inflight.resend() else { continue };
            let event = slot.event.clone().expect("persistent sessions keep what is unsettled");
            handed.push_back(Handed { session: index, number, tag, event });
        }
        while let Some(entry) = session.next_waiting(now, stats) {
            let terms = super::deliver::terms_of(&entry);
            handed.push_back(session.put_within(index, entry.event, terms));
        }
        if stats.dropped_expired != before {
            dropped.push((index, number));
        }
    }

    /// A member of a shared subscription has what that was given as `tag`, or it is over for
    /// another reason.
    pub(crate) fn fulfil(&mut self, account: Account, tag: u16) {
        let number = match account {
            Account::Own(own) => self.get(own).memory.number,
            Account::Visit(..) => SessionNo(0),
            Account::None => return,
        };
        if tag != 0 {
            self.fulfilled.push(Fulfilled { account, number, tag });
        }
    }
}
