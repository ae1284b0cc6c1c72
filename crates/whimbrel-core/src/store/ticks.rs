//! Ticks are reserved ahead of their use, so that no later process uses them again.

use core::time::Duration;

use whimbrel_event::{Tick, Time};

use super::{Disk, Wait};
use crate::broker::Broker;

/// How far ahead ticks are reserved; again when half of them are used.
const RESERVE_SPAN: Duration = Duration::from_secs(1);

impl Broker {
    /// Reserves ticks if more than half of those that are reserved are used. An idle broker
    /// reserves nothing.
    pub(crate) fn renew_reservation(&mut self, now: Time) {
        let used = self.streams.own.farthest();
        let half = RESERVE_SPAN.as_nanos() as u64 / 2;
        if used.0 + half > self.store.reserving.0 && used > self.store.used {
            self.reserve_ticks(now, used);
        }
        self.store.used = used;
    }

    /// Reserves ticks beyond `used` and beyond the clock.
    pub(crate) fn reserve_ticks(&mut self, now: Time, used: Tick) {
        if matches!(self.store.disk, Disk::None | Disk::Poisoned) {
            return;
        }
        let upto = Tick(used.0.max(now.as_nanos()) + RESERVE_SPAN.as_nanos() as u64);
        if upto <= self.store.reserving {
            return;
        }
        self.store.reserving = upto;
        self.store.write_queue.reserve(upto);
        let batch = self.store.write_queue.seal();
        self.store.commit_queue.push(batch, Wait::Reserved(upto));
    }
}
