//! The recipient of an answer that is due later: clients may have left by then, or others may have
//! the same place.

use whimbrel_event::Qos;

use super::{Session, Sessions};
use crate::api::Link;
use crate::store::{Publishers, Recipient, SessionNo};

/// Why nothing is read from a client for now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pause {
    /// Too many of its requests wait.
    Asks,
    /// It publishes while its earlier events from another broker have not arrived here.
    Early,
}

impl Session {
    /// Records whether the current attachment began soon after the restart of some broker.
    pub(crate) fn set_after_restart(&mut self, is_after_restart: bool) {
        self.attached.is_after_restart = is_after_restart;
    }

    /// Whether numbers that its client gave before the current attachment may be forgotten.
    pub(crate) fn comes_after_restart(&self) -> bool {
        self.attached.is_after_restart
    }

    /// Whether nothing is read from the current link, as earlier requests wait.
    pub(crate) fn is_paused(&self) -> bool {
        self.attached.paused.contains(&true)
    }
}

impl Sessions {
    /// The current recipient of answers over a link.
    pub(crate) fn whom(&self, link: Link) -> Recipient {
        Recipient { link, attachment: self.get(self.of(link)).attached.attachment }
    }

    /// The session of a recipient, if that is still attached.
    fn present(&mut self, whom: Recipient) -> Option<&mut Session> {
        let index = self.attached_to(whom.link)?;
        let session = self.slots[index as usize].as_mut().expect("links lead to sessions");
        (session.attached.attachment == whom.attachment).then_some(&mut **session)
    }

    /// The session at a place, if it is the one with this number, or, if it is not remembered, the
    /// one of this attachment.
    pub(crate) fn of_answer(&mut self, index: u32, number: SessionNo, whom: Recipient) -> Option<&mut Session> {
        let session = self.slots.get_mut(index as usize)?.as_deref_mut()?;
        let is_same = session.memory.is_kept || session.attached.attachment == whom.attachment;
        (session.memory.number == number && is_same).then_some(session)
    }

    /// Whether a repeated publish, known by its number or else by its tag, still repeats one that
    /// was not taken back meanwhile. True if its client is gone.
    pub(crate) fn is_still_repeat(
        &mut self,
        whom: Recipient,
        (tag, qos, number): (u16, Qos, Option<u64>),
        publishers: &Publishers,
    ) -> bool {
        let Some(session) = self.present(whom) else { return true };
        let Some(number) = number else { return session.memory.pending.unreleased.contains_key(&tag) };
        let is_repeat = publishers.is_repeat(&session.client_id, number).is_some();
        if !is_repeat {
            session.memory.pending.refused_number.get_or_insert(number);
            if qos == Qos::ExactlyOnce {
                session.memory.pending.unreleased.remove(&tag);
            }
        }
        is_repeat
    }

    /// Counts an answer that waits in the commit queue.
    pub(crate) fn enter_commit_queue(&mut self, whom: Recipient) {
        if let Some(session) = self.present(whom) {
            session.attached.in_commit_queue += 1;
        }
    }

    /// Whether an answer to a recipient waits in the commit queue.
    pub(crate) fn is_in_commit_queue(&mut self, whom: Recipient) -> bool {
        self.present(whom).is_some_and(|session| session.attached.in_commit_queue > 0)
    }

    /// Uncounts a waiting answer; tells whether the recipient is still there.
    pub(crate) fn leave_commit_queue(&mut self, whom: Recipient) -> bool {
        let present = self.present(whom);
        present.is_some_and(|session| {
            session.attached.in_commit_queue -= 1;
            true
        })
    }

    /// Records for one reason whether the client of a session is read. Returns its link if that
    /// changes whether it is read.
    pub(crate) fn set_paused(&mut self, index: u32, why: Pause, is_paused: bool) -> Option<Link> {
        let session = self.get_mut(index);
        let link = session.link()?;
        let paused = &mut session.attached.paused;
        let before = paused.contains(&true);
        paused[why as usize] = is_paused;
        (before != paused.contains(&true)).then_some(link)
    }

    /// Whether the session at a place is the one with this number.
    pub(crate) fn is_numbered(&self, index: u32, number: SessionNo) -> bool {
        let session = self.slots.get(index as usize).and_then(Option::as_ref);
        session.is_some_and(|session| session.memory.number == number)
    }
}
