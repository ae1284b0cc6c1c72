//! Numbers that are given once: those of sessions and of durable subscriptions, also after a restart.

use super::keys::{DurableNo, Key, Own, SessionNo, Value};
use super::outbox::Outbox;

/// So many numbers are set aside with one write.
const SET_ASIDE: u32 = 4096;

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
    pub(crate) fn write(&self, outbox: &mut Outbox) {
        let own = self.own.as_ref().expect("there is a log");
        outbox.put(|key| Key::Own.put(key), |value| own.put_versioned(value));
    }

    /// A number for a session. What sets it aside is added to the open atom, if need be.
    pub(crate) fn next_session(&mut self, outbox: &mut Outbox) -> SessionNo {
        self.session += 1;
        let own = self.own.as_mut().expect("there is a log");
        if self.session >= own.next_session.0 {
            own.next_session.0 = self.session + u64::from(SET_ASIDE);
            self.write(outbox);
        }
        SessionNo(self.session)
    }

    /// A number for a durable subscription. What sets it aside is added to the open atom, if need be.
    ///
    /// # Panics
    /// After 2^32 of them.
    pub(crate) fn next_durable(&mut self, outbox: &mut Outbox) -> DurableNo {
        self.durable = self.durable.checked_add(1).expect("fewer than 2^32 durable subscriptions in a broker's life");
        let own = self.own.as_mut().expect("there is a log");
        if self.durable >= own.next_durable.0 {
            own.next_durable.0 = self.durable.saturating_add(SET_ASIDE);
            self.write(outbox);
        }
        DurableNo(self.durable)
    }
}
