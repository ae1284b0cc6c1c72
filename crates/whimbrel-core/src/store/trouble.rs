//! The log is full, or has failed.

use whimbrel_event::{Qos, Time};

use super::{Answer, Disk, Wait};
use crate::accept::{From, tell};
use crate::api::{Accepted, Kick, Output, Refusal};
use crate::broker::Core;

impl Core {
    /// What the log takes has changed.
    ///
    /// # Panics
    /// When a log that has failed is said to take something again: it does so only after it was opened anew, and so has the core been.
    pub(crate) fn disk_changed(&mut self, now: Time, disk: Disk, out: &mut impl Output) {
        let before = core::mem::replace(&mut self.store.disk, disk);
        assert!(before != Disk::Poisoned || disk == Disk::Poisoned, "a log that has failed stays so");
        match disk {
            Disk::None | Disk::Open => {}
            Disk::Full => self.refuse_waiting(out),
            Disk::Poisoned if before == Disk::Poisoned => {}
            Disk::Poisoned => {
                while self.store.line.is_due() {
                    self.pass_committed(now, out);
                }
                self.drop_waiting(now, out);
            }
        }
        self.pass_committed(now, out);
    }

    /// The log has no room for the events that were not taken: their publishers are told so.
    fn refuse_waiting(&mut self, out: &mut impl Output) {
        let refused = self.store.outbox.refuse_events();
        for wait in self.store.line.take_refused(&refused) {
            let present = wait.whom().filter(|whom| self.sessions.leave_line(*whom));
            let Wait::Event(held) = wait else { unreachable!("only events are refused") };
            self.streams.own.withdrawn(held.event.id());
            self.sessions.stats.events_refused += 1;
            let (From::Publish(index) | From::Will(index)) = held.from else { continue };
            if self.sessions.is_numbered(index, held.session)
                && self.sessions.get(index).publisher == held.event.publisher()
            {
                let session = self.sessions.get_mut(index);
                if let Some(number) = held.number {
                    self.store.publishers.take_back(&session.client_id, number);
                    session.refused_number.get_or_insert(number);
                }
                if let Some((_, tag)) = held.answer.filter(|_| held.event.qos() == Qos::ExactlyOnce) {
                    session.unreleased.remove(&tag);
                }
            }
            let Some((_, tag)) = held.answer else { continue };
            let (qos, result) = (held.event.qos(), Accepted::Refused(Refusal::LogFull));
            if let Some(whom) = present {
                tell(whom.link, Answer::Accepted { tag, qos, result }, out);
            }
        }
    }

    /// Nobody knows whether what waits is on the disk. To refuse it could be a lie, as it may be there after a restart, and so could be
    /// to accept it: whoever waits is disconnected, and may repeat it.
    fn drop_waiting(&mut self, now: Time, out: &mut impl Output) {
        for wait in self.store.line.take_unknown() {
            let Some(whom) = wait.whom() else { continue };
            if !self.sessions.leave_line(whom) {
                continue;
            }
            let index = self.sessions.of(whom.link);
            self.sessions.stats.kicked_log_failed += 1;
            self.kick(now, index, Kick::LogFailed, out);
        }
        self.store.outbox.close();
        let seed = self.store.spare_seed;
        self.streams.retire(seed, now);
    }
}
