//! Numbers that are given once, also after a restart: those of sessions and of durable
//! subscriptions; and those of brokers that are owed something.

use super::keys::{DurableNo, Key, MapValue, Own, SessionNo};
use super::write_queue::WriteQueue;

/// So many numbers are set aside with one write.
const RESERVED_AT_ONCE: u32 = 4096;

/// The first number that no subscription has.
const HOLDS_FIRST: u32 = (HOLDS_SHARD as u32) << 16;

/// The part of all numbers that are those of brokers which are owed something, in the names of
/// filter streams.
pub const HOLDS_SHARD: u16 = u16::MAX;

/// The number by which filter records name a broker that is owed something. Given again when
/// nothing is owed to it any more.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct HoldNo(pub(crate) u16);

impl HoldNo {
    /// As it stands where subscriptions are named.
    pub(crate) fn among_durable(self) -> DurableNo {
        DurableNo(HOLDS_FIRST + u32::from(self.0))
    }
}

impl DurableNo {
    /// It is that of a broker that is owed something.
    pub(crate) fn is_hold(self) -> bool {
        self.0 >= HOLDS_FIRST
    }
}

/// The next numbers.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    /// As it is written, or waits to be; `None` without a log.
    own: Option<Own>,
    session: u64,
    durable: u32,
}

impl Numbers {
    /// The numbers go on where what was written says.
    pub(crate) fn restored(own: Own) -> Self {
        Numbers { own: Some(own), session: own.next_session.0, durable: own.next_durable.0 }
    }

    /// Writes what the broker has to know of itself.
    pub(crate) fn write(&self, write_queue: &mut WriteQueue) {
        let own = self.own.as_ref().expect("there is a log");
        write_queue.put(|key| Key::Own.put(key), |value| own.put_versioned(value));
    }

    /// A number for a session. What sets it aside is added to the open batch, if need be.
    pub(crate) fn next_session(&mut self, write_queue: &mut WriteQueue) -> SessionNo {
        self.session += 1;
        let own = self.own.as_mut().expect("there is a log");
        if self.session >= own.next_session.0 {
            own.next_session.0 = self.session + u64::from(RESERVED_AT_ONCE);
            self.write(write_queue);
        }
        SessionNo(self.session)
    }

    /// A number for a durable subscription. What sets it aside is added to the open batch, if need
    /// be.
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
