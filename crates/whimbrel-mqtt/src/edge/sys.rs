//! `$SYS`: the broker's state as retained messages.

use whimbrel_core::Input as CoreInput;
use whimbrel_event::{EventRef, Qos, Time};

use super::outbound::Outbound;
use super::{MqttBroker, Output};

impl MqttBroker {
    /// Updates `$SYS/broker/…`.
    pub(super) fn announce(&mut self, now: Time, out: &mut impl Output) {
        let stats = self.stats();
        let core = &stats.core;
        let uptime = now.since(self.edge.started).as_secs();
        let topics: [(&str, String); 34] = [
            ("version", format!("whimbrel {}", self.edge.config.version)),
            ("name", self.edge.config.name.clone()),
            ("uptime", format!("{uptime} seconds")),
            ("clients/connected", stats.connections_accepted.to_string()),
            ("clients/disconnected", (core.sessions - core.sessions_attached).to_string()),
            ("clients/total", core.sessions.to_string()),
            ("clients/expired", core.sessions_expired.to_string()),
            ("subscriptions/count", core.subscriptions.to_string()),
            ("subscriptions/selectors", core.selectors.to_string()),
            ("retained messages/count", core.retained.to_string()),
            ("store/messages/count", core.queued_events.to_string()),
            ("store/messages/bytes", core.queued_bytes.to_string()),
            ("messages/received", stats.packets_in.to_string()),
            ("messages/sent", stats.packets_out.to_string()),
            ("bytes/received", stats.bytes_in.to_string()),
            ("bytes/sent", stats.bytes_out.to_string()),
            ("publish/messages/received", stats.publishes_in.to_string()),
            ("publish/messages/sent", stats.publishes_out.to_string()),
            ("publish/messages/dropped", dropped(core).to_string()),
            ("publish/messages/recovered", core.deliveries_recovered.to_string()),
            ("publish/bytes/received", core.payload_bytes_accepted.to_string()),
            ("clients/slow/disconnected", core.kicked_slow.to_string()),
            ("clients/refused", stats.refused.total().to_string()),
            ("clients/ended", stats.ended.total().to_string()),
            ("wills/published", core.wills_published.to_string()),
            ("subscriptions/lagging", core.subscriptions_lagging.to_string()),
            ("cache/messages/count", core.cached_events.to_string()),
            ("cache/messages/bytes", core.cached_bytes.to_string()),
            ("gaps/overwritten", core.gaps_overwritten.to_string()),
            ("gaps/not-buffered", core.gaps_not_buffered.to_string()),
            ("gaps/lost", core.gaps_lost.to_string()),
            ("gaps/slow", core.gaps_slow.to_string()),
            ("gaps/assumed", core.gaps_assumed.to_string()),
            ("gaps/best-effort", core.gaps_best_effort.to_string()),
        ];
        for (name, value) in topics {
            let topic = format!("$SYS/broker/{name}");
            let event = EventRef::new(&topic, value.as_bytes(), Qos::AtMostOnce);
            let mut sink = Outbound::new(&mut self.edge, &mut *out, now);
            self.core.handle(now, CoreInput::Announce { event: &event, retain: true }, &mut sink);
        }
    }
}

/// The number of deliveries that were dropped, for all causes.
fn dropped(core: &whimbrel_core::Stats) -> u64 {
    core.dropped_slow
        + core.dropped_queue_full
        + core.dropped_expired
        + core.dropped_too_large
        + core.dropped_untaken
        + core.dropped_session_ended
}
