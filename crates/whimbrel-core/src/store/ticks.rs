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
        if matches!(self.disk, Disk::None | Disk::Poisoned) {
            return;
        }
        let upto = Tick(used.0.max(now.as_nanos()) + RESERVE_SPAN.as_nanos() as u64);
        if upto <= self.reserving {
            return;
        }
        self.reserving = upto;
        self.write_queue.reserve(upto);
        let batch = self.write_queue.seal();
        self.commit_queue.push(batch, Wait::Reserved(upto));
    }
}
