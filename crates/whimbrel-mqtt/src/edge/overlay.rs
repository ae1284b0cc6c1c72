//! The broker as part of a deployment of several.

use whimbrel_core::OverlayConfig;
use whimbrel_core::overlay::{EventTrace, NotForgotten, PathsPlan};
use whimbrel_event::{EventId, HostId, Time};
use whimbrel_selector::TopicName;

use super::outbound::Outbound;
use super::{MqttBroker, Output};

impl MqttBroker {
    /// Makes the broker part of a deployment; see [`whimbrel_core::Broker::open_overlay`].
    ///
    /// # Panics
    /// When it is part of one already, or its name is invalid.
    pub fn open_overlay(&mut self, now: Time, config: OverlayConfig) {
        self.core.open_overlay(now, config);
    }

    /// What this broker knows of an event; see [`whimbrel_core::Broker::trace`].
    pub fn trace(&mut self, event: EventId) -> EventTrace {
        self.core.trace(event)
    }

    /// How events of a topic go to other brokers; see [`whimbrel_core::Broker::planned_paths`].
    pub fn planned_paths(&mut self, topic: TopicName<'_>) -> Option<PathsPlan> {
        self.core.planned_paths(topic)
    }

    /// Forgets another broker for good; see [`whimbrel_core::Broker::retire_broker`].
    ///
    /// # Errors
    /// When the broker is not known, or is alive.
    pub fn retire_broker(
        &mut self,
        now: Time,
        name: &str,
        force: bool,
        out: &mut impl Output,
    ) -> Result<usize, NotForgotten> {
        let result = self.core.retire_broker(now, name, force, &mut Outbound::new(&mut self.edge, out, now));
        self.edge.flush(out);
        result
    }

    /// Sends a question to another broker; see [`whimbrel_core::Broker::ask_broker`].
    ///
    /// # Panics
    /// When the question is too long.
    pub fn ask_broker(&mut self, now: Time, to: HostId, question: (u64, &str), out: &mut impl Output) -> bool {
        let is_sent = self.core.ask_broker(now, to, question, &mut Outbound::new(&mut self.edge, out, now));
        self.edge.flush(out);
        is_sent
    }

    /// Answers a question of another broker; see [`whimbrel_core::Broker::answer_broker`].
    ///
    /// # Panics
    /// When the answer is too long.
    pub fn answer_broker(&mut self, now: Time, to: HostId, answer: (u64, &str), out: &mut impl Output) -> bool {
        let is_sent = self.core.answer_broker(now, to, answer, &mut Outbound::new(&mut self.edge, out, now));
        self.edge.flush(out);
        is_sent
    }
}
