//! The broker's counters and gauges as metrics.

use whimbrel_mqtt::codec::{PacketType, ReasonCode};
use whimbrel_mqtt::{Reasons, Stats};

/// Name, help text, and how the number is read.
type Row<F> = (&'static str, &'static str, F);
type Number = fn(&Stats) -> u64;
/// Name, help text, the packet with the reason code, and how the numbers are read.
type ByReason = (&'static str, &'static str, PacketType, fn(&Stats) -> &Reasons);

/// What only grows.
// tidy: table
pub const COUNTERS: &[Row<Number>] = &[
    ("whimbrel_connections_lost", "Connections that ended without a DISCONNECT and without the broker's doing", |s| {
        s.connections_lost
    }),
    ("whimbrel_connect_timeouts", "Connections closed because no CONNECT came in time", |s| s.connect_timeouts),
    ("whimbrel_keep_alive_timeouts", "Connections closed because the client was silent for too long", |s| {
        s.keep_alive_timeouts
    }),
    ("whimbrel_packets_received", "MQTT control packets received", |s| s.packets_in),
    ("whimbrel_packets_sent", "MQTT control packets sent", |s| s.packets_out),
    ("whimbrel_bytes_received", "Bytes of MQTT received", |s| s.bytes_in),
    ("whimbrel_bytes_sent", "Bytes of MQTT handed to connections", |s| s.bytes_out),
    ("whimbrel_publishes_received", "PUBLISH packets received", |s| s.publishes_in),
    ("whimbrel_publishes_sent", "PUBLISH packets sent", |s| s.publishes_out),
    ("whimbrel_acknowledgements_unknown", "Acknowledgements for which there is no delivery", |s| {
        s.acknowledgements_unknown
    }),
    ("whimbrel_reserved_properties_unknown", "User properties that begin with w- and are not known", |s| {
        s.reserved_properties_unknown
    }),
    ("whimbrel_events_accepted", "Events of clients that got their id", |s| s.core.events_accepted),
    ("whimbrel_payload_bytes_accepted", "Payload bytes of these", |s| s.core.payload_bytes_accepted),
    ("whimbrel_events_logged", "Events that were given to the journal", |s| s.core.events_logged),
    ("whimbrel_filter_records", "Filter records that were given to the journal", |s| s.core.filter_records),
    (
        "whimbrel_filter_names",
        "Durable subscriptions and other brokers that filter records name; each once per event",
        |s| s.core.filter_names,
    ),
    ("whimbrel_filter_bytes", "Bytes of filter records", |s| s.core.filter_bytes),
    (
        "whimbrel_publishers_held",
        "Events after which their publisher was held up: its stream ran ahead of the clock",
        |s| s.core.publishers_held,
    ),
    (
        "whimbrel_subscribers_held",
        "Times that a client was not read for a while: more than 1,024 of its SUBSCRIBEs and UNSUBSCRIBEs waited to be durable",
        |s| s.core.subscribers_held,
    ),
    (
        "whimbrel_publishers_over_rate",
        "Reliable events after which their publisher was held up: their topic exceeded the rate of its profile",
        |s| s.core.publishers_over_rate,
    ),
    (
        "whimbrel_events_over_rate",
        "Best-effort events that were discarded: their topic exceeded the rate of its profile",
        |s| s.core.events_over_rate,
    ),
    ("whimbrel_events_refused", "Events refused for their topic or a bound", |s| s.core.events_refused),
    (
        "whimbrel_retained_refused",
        "Events that were passed on and not retained, as that would have exceeded a bound",
        |s| s.core.retained_refused,
    ),
    ("whimbrel_publishes_repeated", "QoS 2 publishes that came again and were not published again", |s| {
        s.core.publishes_repeated
    }),
    ("whimbrel_events_unwanted", "Events that no subscription wanted", |s| s.core.events_unwanted),
    (
        "whimbrel_events_plain",
        "Events that went by the plain way: nothing about them, their publishers or their subscriptions asked for more",
        |s| s.core.events_plain,
    ),
    (
        "whimbrel_publishes_passed_through",
        "PUBLISH packets sent as they were received, with another packet identifier",
        |s| s.publishes_passed_through,
    ),
    ("whimbrel_deliveries", "Deliveries to clients", |s| s.core.deliveries),
    ("whimbrel_deliveries_recovered", "Deliveries out of the cache to subscriptions that were catching up", |s| {
        s.core.deliveries_recovered
    }),
    ("whimbrel_fell_behind", "Subscriptions that fell behind because their client took less than came", |s| {
        s.core.fell_behind
    }),
    (
        "whimbrel_streams_set_aside",
        "Times that a durable subscription lacked a part of another broker's stream, and went on with others meanwhile",
        |s| s.core.streams_set_aside,
    ),
    ("whimbrel_resumed", "Subscriptions that named a place to begin, and were given it", |s| s.core.resumed),
    ("whimbrel_starts_refused", "Places to begin that were refused", |s| s.core.starts_refused),
    (
        "whimbrel_following_refused",
        "SUBSCRIBEs refused because w-durability, w-from, w-ack, w-notices or w-replier could not be read",
        |s| s.following_refused,
    ),
    ("whimbrel_tokens_acknowledged", "Positions that clients acknowledged by token", |s| s.core.tokens_acknowledged),
    ("whimbrel_tokens_refused", "Acknowledgements by token that could not be read", |s| s.tokens_refused),
    ("whimbrel_knowledge_refused", "Parts of other brokers' streams that were refused", |s| s.core.knowledge_refused),
    ("whimbrel_deliveries_repeated", "Deliveries sent again after a reconnection", |s| s.core.deliveries_repeated),
    ("whimbrel_dropped_slow", "QoS 0 deliveries dropped because the client reads too slowly", |s| s.core.dropped_slow),
    (
        "whimbrel_dropped_queue_full",
        "Deliveries dropped because the queue of a session without its client was full",
        |s| s.core.dropped_queue_full,
    ),
    ("whimbrel_dropped_expired", "Deliveries dropped because the event had expired", |s| s.core.dropped_expired),
    ("whimbrel_dropped_too_large", "Deliveries dropped because the client does not accept packets of that size", |s| {
        s.core.dropped_too_large
    }),
    (
        "whimbrel_dropped_untaken",
        "Events of shared subscriptions that no member which was there could be sent, as they are too large for it or not allowed",
        |s| s.core.dropped_untaken,
    ),
    ("whimbrel_notices_overdue", "Notices that an event had not come by its deadline", |s| s.core.notices_overdue),
    ("whimbrel_overdue_untold", "Events that were not awaited for such notices, as too many were", |s| {
        s.core.overdue_untold
    }),
    ("whimbrel_notices_stalled", "Notices that no event had come for the period of its topic's profile", |s| {
        s.core.notices_stalled
    }),
    ("whimbrel_notices_too_large", "Notices left out because the client does not accept packets of that size", |s| {
        s.core.notices_too_large
    }),
    (
        "whimbrel_additions_left_out",
        "Packets that went without names of events, other properties of the broker, aliases or reason strings, as the client does not accept packets of that size",
        |s| s.additions_left_out,
    ),
    ("whimbrel_dropped_session_ended", "Deliveries dropped because their session ended", |s| {
        s.core.dropped_session_ended
    }),
    ("whimbrel_shared_moved", "Deliveries of shared subscriptions that moved to another member", |s| {
        s.core.shared_moved
    }),
    ("whimbrel_kicked_slow", "Clients disconnected because they read too slowly", |s| s.core.kicked_slow),
    (
        "whimbrel_kicked_log_failed",
        "Clients disconnected because the journal had failed, and nobody knew what became of their publishes",
        |s| s.core.kicked_log_failed,
    ),
    (
        "whimbrel_takeovers_cut",
        "Takeovers that did not wait until all that the old connection had sent was read: it was too much, or took too long",
        |s| s.core.takeovers_cut,
    ),
    ("whimbrel_takeovers", "Connections ended because their client id connected elsewhere", |s| s.core.takeovers),
    ("whimbrel_wills_published", "Wills published", |s| s.core.wills_published),
    ("whimbrel_sessions_expired", "Sessions that ended because their client was away too long", |s| {
        s.core.sessions_expired
    }),
    ("whimbrel_identified", "CONNECTs of which it had to be found out who sent them", |s| s.identifying),
    ("whimbrel_throttled", "How often a connection was read later because of its principal's quota", |s| s.throttled),
    ("whimbrel_subscriptions_ended", "Subscriptions that were ended because no rule allows them any more", |s| {
        s.subscriptions_ended
    }),
    ("whimbrel_deliveries_denied", "Deliveries that were dropped because no rule allows them any more", |s| {
        s.deliveries_denied
    }),
    ("whimbrel_sessions_refused", "Connections refused for the number of sessions", |s| s.core.sessions_refused),
    ("whimbrel_subscriptions_refused", "Subscriptions refused", |s| s.core.subscriptions_refused),
    ("whimbrel_selectors_refused", "SUBSCRIBEs refused because their selector is none", |s| s.selectors_refused),
    ("whimbrel_selectors_evaluations", "Selectors evaluated because the index could not tell without it", |s| {
        s.core.selector_evaluations
    }),
    ("whimbrel_selectors_steps", "Steps of these evaluations", |s| s.core.selector_steps),
    ("whimbrel_selectors_matches", "Selectors found true", |s| s.core.selector_matches),
    ("whimbrel_route_misses", "Routes computed because none was cached", |s| s.core.route_misses),
];

/// What is so now.
// tidy: table
pub const GAUGES: &[Row<Number>] = &[
    ("whimbrel_connections", "Client connections that are open", |s| s.connections),
    ("whimbrel_clients", "Client connections whose CONNECT has been accepted", |s| s.connections_accepted),
    ("whimbrel_sessions", "Sessions", |s| s.core.sessions),
    ("whimbrel_sessions_attached", "Sessions with a connection", |s| s.core.sessions_attached),
    ("whimbrel_subscriptions", "Subscriptions, members of shared ones included", |s| s.core.subscriptions),
    ("whimbrel_subscriptions_tracked", "Subscriptions that are semi-durable or have notices", |s| {
        s.core.subscriptions_tracked
    }),
    ("whimbrel_subscriptions_lagging", "Those of them that are behind, those of absent clients included", |s| {
        s.core.subscriptions_lagging
    }),
    ("whimbrel_cache_events", "Events in the cache for semi-durable subscriptions", |s| s.core.cached_events),
    ("whimbrel_cache_bytes", "Bytes of this cache", |s| s.core.cached_bytes),
    ("whimbrel_selectors", "Selectors; equal ones under the same topic filter count once", |s| s.core.selectors),
    ("whimbrel_retained", "Retained messages, without those of the broker itself (`$SYS`)", |s| s.core.retained),
    ("whimbrel_retained_bytes", "Bytes of retained messages", |s| s.core.retained_bytes),
    ("whimbrel_queued_bytes", "Bytes that wait for clients", |s| s.core.queued_bytes),
    ("whimbrel_queued_events", "Events that wait for clients", |s| s.core.queued_events),
];

/// What only grows, counted for each reason code.
// tidy: table
pub const BY_REASON: &[ByReason] = &[
    ("whimbrel_connections_refused", "CONNECTs refused, by reason code of MQTT 5", PacketType::ConnAck, |s| &s.refused),
    (
        "whimbrel_connections_ended",
        "Connections ended by the broker, by reason code of MQTT 5",
        PacketType::Disconnect,
        |s| &s.ended,
    ),
    ("whimbrel_publishes_refused", "Publishes refused, by reason code of MQTT 5", PacketType::PubAck, |s| {
        &s.publishes_refused
    }),
];

/// Count of each reason, those included that have not occurred yet and that the packet may have: a
/// rate needs the 0 before the first. A connection without CONNECT in time gets no packet.
pub fn by_reason(reasons: &Reasons, packet: PacketType) -> impl Iterator<Item = (String, u64)> {
    let is_possible = move |code: u8| {
        let reason = ReasonCode(code);
        let is_silent = packet == PacketType::ConnAck && reason == ReasonCode::MAXIMUM_CONNECT_TIME;
        is_silent || reason.is_error() && reason.is_defined_for(packet)
    };
    let codes = (0..=u8::MAX).map(|code| (code, reasons.count(code)));
    codes
        .filter(move |(code, count)| *count > 0 || is_possible(*code))
        .map(|(code, count)| (format!("0x{code:02x}"), count))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with the printed form of the statistics, so that no number is without a metric.
    #[test]
    fn every_number_has_its_metric() {
        let printed = format!("{:?}", Stats::default());
        let names = printed.split(['{', ',', '(', '[']).filter(|part| part.contains(':')).count();
        // `core` is a name without a number; connections_opened and the gaps have their own labels.
        let labelled = 1 + whimbrel_core::GapReason::ALL.len();
        assert_eq!(names - 1, COUNTERS.len() + GAUGES.len() + BY_REASON.len() + labelled, "{printed}");
    }
}
