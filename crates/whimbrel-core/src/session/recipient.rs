//! Who asked, by the time that an answer is due: clients may have left, or others have come to the
//! same place.

use whimbrel_event::Qos;

use super::{Session, Sessions};
use crate::api::Link;
use crate::store::{Publishers, Recipient, SessionNo};

/// Why nothing is read from a client for now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pause {
    /// It asks for more than is being done.
    Asks,
    /// It publishes where what it has published before has not come yet.
    Early,
}

impl Session {
    /// The present attachment began when a broker had been started again not long ago, or not.
    pub(crate) fn set_after_restart(&mut self, is_after_restart: bool) {
        self.attached.is_after_restart = is_after_restart;
    }

    /// Whether numbers that its client gave before the present attachment may be forgotten.
    pub(crate) fn comes_after_restart(&self) -> bool {
        self.attached.is_after_restart
    }

    /// Nothing is read from the present link, as what came before over it waits.
    pub(crate) fn is_paused(&self) -> bool {
        self.attached.paused.contains(&true)
    }
}

impl Sessions {
    /// Who speaks over a link at present.
    pub(crate) fn whom(&self, link: Link) -> Recipient {
        Recipient { link, attachment: self.get(self.of(link)).attached.attachment }
    }

    /// The session of somebody who may have gone.
    fn present(&mut self, whom: Recipient) -> Option<&mut Session> {
        let index = self.attached_to(whom.link)?;
        let session = self.slots[index as usize].as_mut().expect("links lead to sessions");
        (session.attached.attachment == whom.attachment).then_some(&mut **session)
    }

    /// The session at that place, if it is the one with that number, or, if it is not remembered,
    /// the one of that attachment.
    pub(crate) fn of_answer(&mut self, index: u32, number: SessionNo, whom: Recipient) -> Option<&mut Session> {
        let session = self.slots.get_mut(index as usize)?.as_deref_mut()?;
        let is_same = session.memory.is_kept || session.attached.attachment == whom.attachment;
        (session.memory.number == number && is_same).then_some(session)
    }

    /// Whether a publish that came again, known by its number or else by its tag, repeats one that
    /// was not taken back meanwhile, as far as its client is there.
    pub(crate) fn is_still_repeat(
        &mut self,
        whom: Recipient,
        (tag, qos, number): (u16, Qos, Option<u64>),
        publishers: &Publishers,
    ) -> bool {
        let Some(session) = self.present(whom) else { return true };
        let Some(number) = number else { return session.memory.unreleased.contains_key(&tag) };
        let is_repeat = publishers.is_repeat(&session.client_id, number).is_some();
        if !is_repeat {
            session.memory.refused_number.get_or_insert(number);
            if qos == Qos::ExactlyOnce {
                session.memory.unreleased.remove(&tag);
            }
        }
        is_repeat
    }

    /// An answer to that client waits in the line.
    pub(crate) fn enter_commit_queue(&mut self, whom: Recipient) {
        if let Some(session) = self.present(whom) {
            session.attached.in_commit_queue += 1;
        }
    }

    /// Whether an answer to that client waits in the line.
    pub(crate) fn is_in_commit_queue(&mut self, whom: Recipient) -> bool {
        self.present(whom).is_some_and(|session| session.attached.in_commit_queue > 0)
    }

    /// An answer to that client waits no more; whether it is still there to get it.
    pub(crate) fn leave_commit_queue(&mut self, whom: Recipient) -> bool {
        let present = self.present(whom);
        present.is_some_and(|session| {
            session.attached.in_commit_queue -= 1;
            true
        })
    }

    /// Notes whether the client of the session at that place is read, as far as that reason goes;
    /// its link, if there is one and that is news.
    pub(crate) fn set_paused(&mut self, index: u32, why: Pause, is_paused: bool) -> Option<Link> {
        let session = self.get_mut(index);
        let link = session.link()?;
        let paused = &mut session.attached.paused;
        let before = paused.contains(&true);
        paused[why as usize] = is_paused;
        (before != paused.contains(&true)).then_some(link)
    }

    /// Whether the session at that place is the one with that number.
    pub(crate) fn is_numbered(&self, index: u32, number: SessionNo) -> bool {
        let session = self.slots.get(index as usize).and_then(Option::as_ref);
        session.is_some_and(|session| session.memory.number == number)
    }
}
