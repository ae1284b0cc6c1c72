//! Ticks are reserved ahead of their use, so that no later process uses them again.

use core::time::Duration;

use whimbrel_event::{Tick, Time};

use super::{Disk, Store, Wait};

/// How far ahead ticks are reserved; again when half of them are used.
const RESERVE_SPAN: Duration = Duration::from_secs(1);

impl Store {
    /// Reserves ticks if more than half of those that are reserved are used. An idle broker
    /// reserves nothing. `used`: the farthest tick of the own streams.
    pub(crate) fn renew_reservation(&mut self, now: Time, used: Tick) {
        let half = RESERVE_SPAN.as_nanos() as u64 / 2;
        if used.0 + half > self.reserving.0 && used > self.used {
            self.reserve_ticks(now, used);
        }
        self.used = used;
    }

    /// Reserves ticks beyond `used` and beyond the clock.
    pub(crate) fn reserve_ticks(&mut self, now: Time, used: Tick) {
        let upto = Tick(used.0.max(now.as_nanos()) + RESERVE_SPAN.as_nanos() as u64);
        if upto > self.reserving {
            self.reserve_upto(upto);
        }
    }

    /// Writes a batch that says nothing new: it becomes durable only if no other process has become
    /// this broker before.
    pub(crate) fn write_proof_of_owner(&mut self) {
        self.reserve_upto(Tick(self.reserving.0 + 1));
    }

    /// Lets something wait for the proof that this process is the owner, which is written now.
    pub(crate) fn await_proof_of_owner(&mut self, wait: Wait) {
        self.write_proof_of_owner();
        self.commit_queue.push(self.write_queue.last(), wait);
    }

    fn reserve_upto(&mut self, upto: Tick) {
        if matches!(self.disk, Disk::None | Disk::Poisoned) {
            return;
        }
        self.reserving = upto;
        self.write_queue.reserve(upto);
        let batch = self.write_queue.seal();
        self.commit_queue.push(batch, Wait::Reserved(upto));
    }
}
