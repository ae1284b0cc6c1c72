//! Own sessions of shared subscriptions. No client is connected to such a session: deliveries to it
//! are handed out among the members, and are settled when the member has the event.

use whimbrel_event::{Event, Qos, Time};

use super::deliver::Terms;
use super::slot::Stage;
use super::{DETACHED, Session, Sessions};
use crate::api::Link;
use crate::store::{Recipient, SessionNo};

/// Stands for the link of a session that is served without a connection.
const WITHIN: u32 = DETACHED - 1;

/// The recipient of requests on behalf of such a session: no client is answered.
pub(crate) const NOBODY: Recipient = Recipient { link: Link(WITHIN), attachment: 0 };

/// Bound of a durable shared subscription's events that wait for a member or are on their way to
/// one; the others stay in the log.
pub(crate) const SHARED_WINDOW: u16 = 4096;

/// The first character of such a session's client id: MQTT forbids it to clients.
const MARK: char = '\0';

/// The client id of a shared subscription's own session.
pub(crate) fn own_client_id(text: &str) -> String {
    format!("{MARK}{text}")
}

/// A client id as people are shown it: for a shared subscription's own session, the text of the
/// subscription.
pub(crate) fn shown(client_id: &str) -> &str {
    shared_text(client_id).unwrap_or(client_id)
}

/// The text of the shared subscription whose own session has this client id.
pub(crate) fn shared_text(client_id: &str) -> Option<&str> {
    client_id.strip_prefix(MARK)
}

/// A delivery to a shared subscription's own session, to be handed out.
#[derive(Debug)]
pub(crate) struct Handed {
    /// The session, with its number.
    pub(crate) session: u32,
    pub(crate) number: SessionNo,
    /// The tag of the delivery to it; 0: one that is not settled.
    pub(crate) tag: u16,
    pub(crate) event: Event,
}

/// Where a member's delivery of a shared subscription is settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Account {
    /// Nowhere.
    None,
    /// At the shared subscription's own session.
    Own(u32),
    /// At another broker, its home: the shared subscription's id and number here.
    Visit(u32, u64),
}

/// A delivery that is over, and where it is settled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fulfilled {
    pub(crate) account: Account,
    /// The number of the own session, if there is one.
    pub(crate) number: SessionNo,
    pub(crate) tag: u16,
}

impl Session {
    /// The most unsettled deliveries that its client takes.
    pub(crate) fn window(&self) -> u16 {
        self.inflight.window()
    }

    /// The shared subscription whose own session it is, if it is one.
    pub(crate) fn shares(&self) -> Option<&str> {
        shared_text(&self.client_id)
    }

    /// Whether it is a shared subscription's own session that is served.
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
    /// Begins to serve a shared subscription's own session. Its unsettled deliveries are handed out
    /// again, except those that members still `have`.
    pub(crate) fn bind_within(&mut self, index: u32, have: impl Iterator<Item = u16>) {
        let session = self.get_mut(index);
        assert!(!session.is_attached() && session.shares().is_some(), "only such a session is served without a link");
        let last_tag = core::mem::take(&mut session.attached).last_tag;
        (session.link, session.open) = (WITHIN, true);
        session.inflight.begin(SHARED_WINDOW, last_tag);
        have.for_each(|tag| session.inflight.pass_over(tag));
    }

    /// Stops serving a shared subscription's own session: no member is attached.
    pub(crate) fn unbind_within(&mut self, index: u32) {
        let session = self.get_mut(index);
        assert!(session.is_within(), "only what is served can be left");
        (session.link, session.open) = (DETACHED, false);
        self.handed.retain(|handed| handed.session != index);
    }

    /// Queues a delivery to a shared subscription's own session to be handed out. The caller has
    /// asked for room.
    pub(super) fn hand_within(&mut self, index: u32, event: Event, terms: Terms) {
        let session = self.slots[index as usize].as_mut().expect("cursors lead to sessions");
        self.handed.push_back(session.put_within(index, event, terms));
    }

    /// Queues waiting deliveries to be handed out, as far as the window allows.
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

    /// A member of a shared subscription has the event of delivery `tag`, or that is over for
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
