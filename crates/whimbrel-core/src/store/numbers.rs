//! Numbers that are never used twice, also after a restart: those of sessions and of durable
//! subscriptions; and numbers of brokers with retention holds.

use super::keys::{DurableNo, Key, Own, SessionNo};
use super::wire::MapValue;
use super::write_queue::WriteQueue;

/// Numbers that are reserved with one write.
const RESERVED_AT_ONCE: u32 = 4096;

/// The first number that no subscription has.
const HOLDS_FIRST: u32 = (HOLDS_SHARD as u32) << 16;

/// The shard of filter streams whose numbers are those of brokers with retention holds.
pub const HOLDS_SHARD: u16 = u16::MAX;

/// The number by which filter records name a broker with a retention hold. Used again when that
/// broker's hold is settled.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct HoldNo(pub(crate) u16);

impl HoldNo {
    /// The number among those of durable subscriptions.
    pub(crate) fn among_durable(self) -> DurableNo {
        DurableNo(HOLDS_FIRST + u32::from(self.0))
    }
}

impl DurableNo {
    /// Whether it is the number of a broker with a retention hold.
    pub(crate) fn is_hold(self) -> bool {
        self.0 >= HOLDS_FIRST
    }
}

/// The allocators of numbers.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    /// The record as it is written, or waits to be; `None` without a log.
    own: Option<Own>,
    session: u64,
    durable: u32,
}

impl Numbers {
    /// Continues behind the numbers that were reserved.
    pub(crate) fn restored(own: Own) -> Self {
        Numbers { own: Some(own), session: own.next_session.0, durable: own.next_durable.0 }
    }

    /// Writes the broker's own record.
    pub(crate) fn write(&self, write_queue: &mut WriteQueue) {
        let own = self.own.as_ref().expect("there is a log");
        write_queue.put(|key| Key::Own.put(key), |value| own.put_versioned(value));
    }

    /// The next number for a session. If need be, adds a reservation to the open batch.
    pub(crate) fn next_session(&mut self, write_queue: &mut WriteQueue) -> SessionNo {
        self.session += 1;
        let own = self.own.as_mut().expect("there is a log");
        if self.session >= own.next_session.0 {
            own.next_session.0 = self.session + u64::from(RESERVED_AT_ONCE);
            self.write(write_queue);
        }
        SessionNo(self.session)
    }

    /// The next number for a durable subscription. If need be, adds a reservation to the open
    /// batch.
    ///
    /// # Panics
    /// After 2^32 - 2^16 of them.
    pub(crate) fn next_durable(&mut self, write_queue: &mut WriteQueue) -> DurableNo {
        self.durable += 1;
        assert!(self.durable < HOLDS_FIRST, "fewer than 2^32 - 2^16 durable subscriptions in a broker's life");
        let own = self.own.as_mut().expect("there is a log");
        if self.durable >= own.next_durable.0 {
            own.next_durable.0 = self.durable.saturating_add(RESERVED_AT_ONCE);
            self.write(write_queue);
        }
        DurableNo(self.durable)
    }
}
