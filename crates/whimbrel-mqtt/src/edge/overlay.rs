//! The broker as one of many.

use whimbrel_core::overlay::NotForgotten;
use whimbrel_core::{OverlayConfig, TraceQuestion};
use whimbrel_event::{EventId, Time};

use super::outbound::Outbound;
use super::{Broker, Output};

impl Broker {
    /// From now on the broker is one of many; see [`whimbrel_core::Core::open_overlay`].
    ///
    /// # Panics
    /// When it is one already, or its name is none.
    pub fn open_overlay(&mut self, now: Time, config: OverlayConfig) {
        self.core.open_overlay(now, config);
    }

    /// What is known here of an event, for people; see [`whimbrel_core::Core::trace`].
    pub fn trace(&mut self, event: EventId) -> String {
        self.core.trace(event)
    }

    /// Forgets another broker for ever; see [`whimbrel_core::Core::retire_broker`].
    ///
    /// # Errors
    /// When there is no such broker, or it is alive.
    pub fn retire_broker(
        &mut self,
        now: Time,
        name: &str,
        force: bool,
        out: &mut impl Output,
    ) -> Result<usize, NotForgotten> {
        let result =
            self.core.retire_broker(now, name, force, &mut Outbound { edge: &mut self.edge, driver: out, now });
        self.edge.flush(out);
        result
    }

    /// Asks all other brokers what they know of an event; see [`whimbrel_core::Core::ask_trace`].
    pub fn ask_trace(&mut self, now: Time, event: EventId, out: &mut impl Output) -> TraceQuestion {
        let question = self.core.ask_trace(now, event, &mut Outbound { edge: &mut self.edge, driver: out, now });
        self.edge.flush(out);
        question
    }
}
