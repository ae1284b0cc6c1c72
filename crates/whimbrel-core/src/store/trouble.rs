//! The log is full, or has failed.

use whimbrel_event::Time;

use super::{Answer, Disk, Wait};
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
            Disk::Full => self.refuse_waiting(),
            Disk::Poisoned if before == Disk::Poisoned => {}
            Disk::Poisoned => self.drop_waiting(now, out),
        }
        self.pass_committed(now, out);
    }

    /// The log has no room for the events that were not taken: their publishers are told so, in their turn.
    fn refuse_waiting(&mut self) {
        let refused = self.store.outbox.refuse_events();
        let Core { sessions, store, .. } = self;
        store.line.refuse(&refused, |atom, wait| match wait {
            Wait::Event(held) => {
                sessions.stats.events_refused += 1;
                let (whom, tag) = held.answer?;
                sessions.forget_unreleased(whom, tag, atom);
                let (qos, result) = (held.event.qos(), Accepted::Refused(Refusal::LogFull));
                Some(Wait::Answer(whom, Answer::Accepted { tag, qos, result }))
            }
            // What it repeats was one of them.
            Wait::Answer(whom, Answer::Accepted { tag, qos, result: Accepted::Repeat })
                if !sessions.has_unreleased(whom, tag) =>
            {
                let result = Accepted::Refused(Refusal::LogFull);
                Some(Wait::Answer(whom, Answer::Accepted { tag, qos, result }))
            }
            answer => Some(answer),
        });
    }

    /// Nobody knows whether what waits is on the disk. To refuse it could be a lie, as it may be there after a restart, and so could be
    /// to accept it: whoever waits is disconnected, and may repeat it.
    fn drop_waiting(&mut self, now: Time, out: &mut impl Output) {
        for (_, wait) in self.store.line.take_unknown() {
            let Some(whom) = wait.whom() else { continue };
            if !self.sessions.leave_line(whom) {
                continue;
            }
            let index = self.sessions.of(whom.link);
            self.sessions.stats.kicked_log_failed += 1;
            out.kicked(whom.link, Kick::LogFailed);
            self.detach(now, index, true, out);
        }
    }
}
