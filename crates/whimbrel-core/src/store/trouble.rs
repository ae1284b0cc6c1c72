//! The log is full, or has failed.

use whimbrel_event::{Qos, Time};

use super::{Answer, Disk, Store, Wait};
use crate::api::{Accepted, Kick, Output, Refusal};
use crate::broker::Broker;
use crate::stream::EventOrigin;

impl Broker {
    /// The state of the log has changed.
    ///
    /// # Panics
    /// When a log that has failed accepts writes again: it does so only after it was opened anew,
    /// and with a new core.
    pub(crate) fn disk_changed(&mut self, now: Time, disk: Disk, out: &mut dyn Output) {
        let before = core::mem::replace(&mut self.store.disk, disk);
        assert!(before != Disk::Poisoned || disk == Disk::Poisoned, "a log that has failed stays so");
        match disk {
            Disk::None | Disk::Open => {}
            Disk::Full => self.refuse_waiting(),
            Disk::Poisoned if before == Disk::Poisoned => {}
            Disk::Poisoned => {
                while self.store.commit_queue.is_due() {
                    self.pass_committed(now, out);
                }
                self.drop_waiting(now, out);
            }
        }
        self.pass_committed(now, out);
    }

    /// The log is full: refuses the events that were not taken. Their publishers are told in order.
    fn refuse_waiting(&mut self) {
        let refused = self.store.write_queue.refuse_events();
        let Broker { sessions, store, streams, .. } = self;
        let Store { commit_queue, publishers, .. } = store;
        commit_queue.refuse(&refused, |_, wait| match wait {
            Wait::Event(held) => {
                sessions.stats.events_refused += 1;
                streams.own.withdrawn(held.event.id());
                if let Some((client_id, number)) = &held.number {
                    // Also if the publisher is away: it may come back and repeat it.
                    publishers.take_back(client_id, *number);
                }
                let (whom, tag) = held.answer?;
                if let EventOrigin::Publish(index) = held.from
                    && let Some(session) = sessions.of_answer(index, held.session, whom)
                {
                    if let Some((_, number)) = held.number {
                        session.memory.pending.refused_number.get_or_insert(number);
                    }
                    if held.event.qos() == Qos::ExactlyOnce {
                        session.memory.pending.unreleased.remove(&tag);
                    }
                }
                let (qos, result) = (held.event.qos(), Accepted::Refused(Refusal::LogFull));
                Some(Wait::Answer(whom, Answer::Accepted { tag, qos, result }))
            }
            // The repeated event was one of them.
            Wait::Answer(whom, Answer::Repeat { tag, qos, number })
                if !sessions.is_still_repeat(whom, (tag, qos, number), publishers) =>
            {
                let result = Accepted::Refused(Refusal::LogFull);
                Some(Wait::Answer(whom, Answer::Accepted { tag, qos, result }))
            }
            answer => Some(answer),
        });
    }

    /// Drops all that waits. Whether it is on the disk is unknown, so neither refusing nor
    /// accepting it would be true: its clients are disconnected, and may repeat it.
    fn drop_waiting(&mut self, now: Time, out: &mut dyn Output) {
        let unknown = self.store.commit_queue.take_unknown();
        self.store.write_queue.close();
        let seed = self.store.spare_seed;
        self.streams.retire(seed, now);
        self.rehost(now, out);
        for wait in unknown {
            let Some(whom) = wait.whom() else { continue };
            if !self.sessions.leave_commit_queue(whom) {
                continue;
            }
            let index = self.sessions.of(whom.link);
            self.sessions.stats.kicked_log_failed += 1;
            self.kick(now, index, Kick::LogFailed, out);
        }
    }
}
