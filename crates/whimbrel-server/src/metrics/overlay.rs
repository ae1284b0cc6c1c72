//! Metrics of the overlay and its links.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use whimbrel_core::HangUp;
use whimbrel_core::overlay::{DomainPlace, FrameClass, LinkInfo, Occupancy, OverlayStats, RerouteCause, RoamGauges};

use super::encoding::{put, put_family};

/// Name, help text, and how the number is read.
type Row<F> = (&'static str, &'static str, F);
type Number = fn(&OverlayStats) -> u64;
type Gauge = fn(&RoamGauges) -> u64;
type LinkNumber = fn(&LinkInfo) -> u64;
type LinkValue = fn(&LinkInfo) -> Option<f64>;
type QueueNumber = fn(&Occupancy) -> usize;

// tidy: table — a list of counters, each read by its name
const COUNTERS: &[Row<Number>] = &[
    ("whimbrel_overlay_links_up", "Links to other brokers that came up", |s| s.net.links_up),
    ("whimbrel_overlay_links_lost", "Links to other brokers that were up and are gone", |s| s.net.links_lost),
    ("whimbrel_overlay_frames_invalid", "Frames of other brokers that made no sense", |s| s.net.frames_invalid),
    ("whimbrel_overlay_frames_unknown", "Frames of types that this version does not know", |s| s.net.frames_unknown),
    ("whimbrel_overlay_bad_echoes", "Answers to probes of links that were never sent", |s| s.net.bad_echoes),
    ("whimbrel_overlay_clocks_apart", "Links that came up to a broker whose clock is more than a minute off", |s| {
        s.net.clocks_apart
    }),
    ("whimbrel_overlay_states_learned", "Link states of other brokers that were news", |s| s.net.states_learned),
    ("whimbrel_overlay_states_refused", "Link states that were not taken", |s| s.net.states_refused),
    ("whimbrel_overlay_ways_computed", "Times that the ways to all brokers were computed anew", |s| {
        s.net.ways_computed
    }),
    ("whimbrel_overlay_names_refused", "Times that this broker's own name was refused, as another one has it", |s| {
        s.net.names_refused
    }),
    ("whimbrel_overlay_outbid", "Own link states that others had and that were greater than what was told", |s| {
        s.net.outbid
    }),
    ("whimbrel_overlay_brokers_expired", "Brokers that were not heard of for too long", |s| s.net.brokers_expired),
    ("whimbrel_overlay_hosts_refused", "Brokers whose streams are not followed, as too many are", |s| s.hosts_refused),
    ("whimbrel_overlay_hosts_ended", "Brokers that came back under their name without what they had", |s| {
        s.hosts_ended
    }),
    ("whimbrel_overlay_interest_versions", "Versions of the own interest", |s| s.net.interest_versions),
    ("whimbrel_overlay_interests_learned", "Interests of other brokers that were news", |s| s.net.interests_learned),
    ("whimbrel_overlay_interests_refused", "Interests of brokers that are not known", |s| s.net.interests_refused),
    ("whimbrel_overlay_events_forwarded", "Own events that other brokers wanted", |s| s.net.events_forwarded),
    ("whimbrel_overlay_destinations", "Brokers that wanted them, all together", |s| s.net.destinations),
    ("whimbrel_overlay_unreachable", "Destinations of events to which there was no way", |s| s.net.unreachable),
    ("whimbrel_overlay_header_bytes", "Bytes of frames with events that are not the event itself", |s| {
        s.net.header_bytes
    }),
    ("whimbrel_overlay_event_bytes", "Bytes of the events in these frames", |s| s.net.event_bytes),
    ("whimbrel_overlay_events_received", "Events of other brokers that came for this one", |s| s.events_received),
    ("whimbrel_overlay_events_unwanted", "Events of other brokers that came and that nobody here wanted", |s| {
        s.events_unwanted
    }),
    ("whimbrel_overlay_events_repeated", "Events of other brokers that came and were known already", |s| {
        s.events_repeated
    }),
    (
        "whimbrel_overlay_events_held_back",
        "Best-effort events of other brokers that waited behind a hole for copies of earlier ones",
        |s| s.events_held_back,
    ),
    ("whimbrel_overlay_events_copied", "Own events that went over several ways to each broker", |s| {
        s.net.events_copied
    }),
    ("whimbrel_overlay_events_targeted", "Own events that went over further ways around a broker with trouble", |s| {
        s.net.events_targeted
    }),
    (
        "whimbrel_overlay_copies_joined",
        "Copies of events that were not passed on, as another one had gone over the same link",
        |s| s.net.copies_joined,
    ),
    (
        "whimbrel_overlay_repeats_sent",
        "Small events of datagrams that were sent once more, behind the next one of their link",
        |s| s.net.repeats_sent,
    ),
    ("whimbrel_overlay_repeat_bytes", "Bytes of these repeats", |s| s.net.repeat_bytes),
    ("whimbrel_overlay_repeats_used", "Repeated events that were taken, as their own datagram had not come", |s| {
        s.net.repeats_used
    }),
    (
        "whimbrel_overlay_repeats_known",
        "Events of datagrams that came a second time over their link, by themselves and as a repeat",
        |s| s.net.repeats_known,
    ),
    ("whimbrel_overlay_events_relayed", "Events that passed through to other brokers", |s| s.net.events_relayed),
    ("whimbrel_overlay_repairs", "Ways of events that were changed here because a link was down", |s| s.net.repairs),
    (
        "whimbrel_overlay_repairs_given_up",
        "Parts of events' ways that could not be reached around a link that was down",
        |s| s.net.repairs_given_up,
    ),
    ("whimbrel_overlay_detours", "Events with a deadline that were sent again around a link that was dark", |s| {
        s.net.detours
    }),
    ("whimbrel_overlay_conditions_changed", "Times that a link became good, slow, lossy or dark", |s| {
        s.net.conditions_changed
    }),
    ("whimbrel_overlay_flashes_out", "Such changes of own links that were told to all brokers at once", |s| {
        s.net.flashes_out
    }),
    ("whimbrel_overlay_flashes_in", "Such changes of other brokers' links that were new", |s| s.net.flashes_in),
    ("whimbrel_overlay_flashes_refused", "Such changes of links that are not known, or that were forged", |s| {
        s.net.flashes_refused
    }),
    ("whimbrel_overlay_bad_reports", "Reports of neighbours about events that were never sent to them", |s| {
        s.net.bad_reports
    }),
    ("whimbrel_overlay_silences_out", "Frames with silence that were sent", |s| s.net.silences_out),
    ("whimbrel_overlay_silences_in", "Frames with silence that came for this broker", |s| s.net.silences_in),
    (
        "whimbrel_overlay_silence_disbelieved",
        "Events that came with silence under a version that does not count any more; only the event was taken",
        |s| s.silence_disbelieved,
    ),
    ("whimbrel_overlay_nacks_out", "Nacks of this broker", |s| s.nacks_out),
    ("whimbrel_overlay_nacks_in", "Nacks of other brokers that came here", |s| s.net.nacks_in),
    (
        "whimbrel_overlay_nacks_merged",
        "Ranges of nacks that were not passed on, as another broker had just asked for the same",
        |s| s.net.nacks_merged,
    ),
    ("whimbrel_overlay_events_answered", "Events that were sent again to who lacked them", |s| s.net.events_answered),
    ("whimbrel_overlay_ranges_lost", "Ranges that were declared lost to another broker", |s| s.ranges_lost),
    (
        "whimbrel_overlay_subscriptions_pending",
        "Subscriptions that were answered although some brokers had not confirmed them",
        |s| s.subscriptions_pending,
    ),
    (
        "whimbrel_overlay_streams_stalled",
        "Times that a stream waited for an event that its publisher had published elsewhere before",
        |s| s.streams_stalled,
    ),
    (
        "whimbrel_overlay_publishers_early",
        "Publishers whose events waited at their new broker for those that they had published elsewhere before",
        |s| s.publishers_early,
    ),
    (
        "whimbrel_overlay_order_breaks",
        "Events passed before one that their publisher had published elsewhere before",
        |s| s.order_breaks,
    ),
    ("whimbrel_sessions_came", "Sessions that came from other brokers, copies included", |s| s.sessions_received),
    ("whimbrel_sessions_from_copies", "Sessions that went on from a copy", |s| s.sessions_from_copies),
    ("whimbrel_sessions_went", "Sessions that were given to other brokers", |s| s.sessions_went),
    ("whimbrel_sessions_outdated", "Sessions that belonged to other brokers when that was found out", |s| {
        s.sessions_outdated
    }),
    ("whimbrel_sessions_unreachable", "CONNECTs refused as nobody could be reached who has the session", |s| {
        s.sessions_unreachable
    }),
    ("whimbrel_session_copies_out", "Copies of sessions sent to deputies, and of what had changed of them", |s| {
        s.copies_out
    }),
    ("whimbrel_session_copies_bytes", "Bytes of such copies", |s| s.copies_bytes),
    ("whimbrel_session_copies_again", "Such copies that were not taken, and made anew", |s| s.copies_again),
    ("whimbrel_session_copies_too_large", "Sessions too large for a copy", |s| s.copies_too_large),
    ("whimbrel_session_copies_refused", "Copies of other brokers' sessions for which there was no room", |s| {
        s.copies_refused
    }),
    ("whimbrel_overlay_reads_out", "Questions for parts of other brokers' logs", |s| s.reads_out),
    ("whimbrel_overlay_reads_late", "Answers to such questions that nobody waited for", |s| s.reads_late),
    ("whimbrel_overlay_events_borrowed", "Events that were read from other brokers' logs", |s| s.events_borrowed),
    (
        "whimbrel_overlay_reads_kept",
        "Questions for parts of other brokers' logs that were answered with what had passed here before",
        |s| s.reads_kept,
    ),
    ("whimbrel_overlay_events_kept", "Logged events of other brokers that were told so", |s| s.events_kept),
    (
        "whimbrel_overlay_reads_merged",
        "Questions for parts of other brokers' logs that waited for the answer to another one",
        |s| s.reads_merged,
    ),
    ("whimbrel_overlay_reads_asked", "Questions of other brokers for parts of the log", |s| s.reads_asked),
    ("whimbrel_overlay_events_looked_at", "Logged events that were looked at for other brokers", |s| {
        s.events_looked_at
    }),
    ("whimbrel_overlay_events_lent", "Logged events that were told to other brokers", |s| s.events_lent),
    (
        "whimbrel_overlay_debts_forfeited",
        "Brokers for which nothing is kept any more although they have not said that they need nothing",
        |s| s.holds_forfeited,
    ),
    (
        "whimbrel_overlay_shares_refused",
        "Times that the home of a shared subscription refused members here, as others share with another selector",
        |s| s.shares_refused,
    ),
    ("whimbrel_overlay_entries_too_large", "Times that a retained message was not told, as it fits no frame", |s| {
        s.net.entries_too_large
    }),
    ("whimbrel_overlay_letters_out", "Letters to other brokers that were written", |s| s.net.messages_out),
    ("whimbrel_overlay_letters_unsent", "Letters to other brokers that found no way or no room", |s| {
        s.net.messages_unsent
    }),
    ("whimbrel_overlay_letters_in", "Letters of other brokers that came", |s| s.net.messages_in),
    ("whimbrel_overlay_letters_refused", "Letters of other brokers that made no sense", |s| s.net.messages_refused),
    ("whimbrel_overlay_retained_learned", "Retained messages of other brokers that were taken", |s| s.retained_learned),
    (
        "whimbrel_overlay_retained_refused",
        "Retained messages of other brokers that were not taken, for lack of room or sense",
        |s| s.retained_refused,
    ),
];

/// Counters of one link since it is up.
const LINK_COUNTERS: [Row<LinkNumber>; 7] = [
    ("whimbrel_link_frames_sent", "Frames sent over a link since it is up", |l| l.counters.frames_out),
    ("whimbrel_link_frame_bytes_sent", "Bytes of frames sent over a link since it is up", |l| l.counters.bytes_out),
    ("whimbrel_link_frames_received", "Frames that came over a link since it is up", |l| l.counters.frames_in),
    ("whimbrel_link_frame_bytes_received", "Bytes that came over a link since it is up", |l| l.counters.bytes_in),
    ("whimbrel_link_events_sent", "Frames with an event sent over a link since it is up", |l| l.counters.events_out),
    ("whimbrel_link_events_received", "Frames with an event that came over a link since it is up", |l| {
        l.counters.events_in
    }),
    ("whimbrel_link_events_held_back", "Events not sent over a link since it is up, as too much was unsent", |l| {
        l.counters.events_held_back
    }),
];

/// Gauges of sessions that move.
pub const ROAMING: [Row<Gauge>; 6] = [
    ("whimbrel_session_copies", "Copies of other brokers' sessions", |r| r.copies),
    ("whimbrel_session_copy_bytes", "Bytes of copies of other brokers' sessions", |r| r.copy_bytes),
    ("whimbrel_session_claims", "What is known here of who has clients' sessions", |r| r.claims),
    ("whimbrel_session_claims_refused", "What was not noted of that, as there was no room", |r| r.claims_refused),
    ("whimbrel_sessions_given", "Sessions that others keep by now, and which are not safe there yet", |r| r.given),
    ("whimbrel_sessions_sought", "Connections that wait for their sessions", |r| r.seeking),
];

/// Gauges of one link; without a value while it is not known.
const LINK_GAUGES: [Row<LinkValue>; 4] = [
    ("whimbrel_link_delay_seconds", "Delay of a link in one direction, by probes", |l| {
        Some(f64::from(l.delay_us?) / 1e6)
    }),
    ("whimbrel_link_loss_ratio", "Share of a link's last 64 probes that was lost", |l| Some(f64::from(l.loss) / 1e3)),
    ("whimbrel_link_clock_ahead_seconds", "How far the neighbour's clock was ahead when the link came up", |l| {
        Some(l.ahead as f64 / 1e9)
    }),
    ("whimbrel_link_unsent_bytes", "Bytes that wait to be sent over a link, where they are more than 64 KiB", |l| {
        Some(l.unsent as f64)
    }),
];

/// Gauges of what waits in front of a link's driver, of each class.
const QUEUE_GAUGES: [Row<QueueNumber>; 2] = [
    ("whimbrel_link_queued_frames", "Frames that wait in front of a link, by class", |o| o.frames),
    ("whimbrel_link_queued_bytes", "Bytes that wait in front of a link, by class", |o| o.bytes),
];

/// Encodes the overlay's counters, and gauges and counters of each link, by the neighbour's name.
pub fn encode(encoder: &mut DescriptorEncoder, stats: &OverlayStats, links: &[LinkInfo]) -> fmt::Result {
    for (name, help, read) in COUNTERS {
        put(encoder, name, help, &ConstCounter::new(read(stats)))?;
    }
    let ends = HangUp::ALL.map(label).into_iter().zip(stats.net.hang_ups);
    put_family(encoder, "whimbrel_overlay_hang_ups", "Links that this broker ended, by reason", "reason", ends)?;
    let causes = RerouteCause::ALL.map(RerouteCause::name).into_iter().zip(stats.net.reroutes);
    let help = "Ways of events with a deadline that were changed here, by what is wrong with the link that was on them";
    put_family(encoder, "whimbrel_overlay_reroutes", help, "cause", causes)?;
    let places = DomainPlace::ALL.iter().map(|place| place.name()).zip(stats.net.domain_refusals);
    let help = "Content that was not handed on or taken, as its domains do not allow it, by place";
    put_family(encoder, "whimbrel_domain_refused", help, "place", places)?;
    for (name, help, read) in LINK_COUNTERS {
        put_family(encoder, name, help, "peer", links.iter().map(|link| (&*link.name, read(link))))?;
    }
    for (name, help, read) in LINK_GAUGES {
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for link in links {
            if let Some(value) = read(link) {
                ConstGauge::new(value).encode(metric.encode_family(&[("peer", &*link.name)])?)?;
            }
        }
    }
    for (name, help, read) in QUEUE_GAUGES {
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (link, class) in links.iter().flat_map(|link| FrameClass::ALL.map(|class| (link, class))) {
            let labels = [("peer", &*link.name), ("class", class_label(class))];
            ConstGauge::new(read(&link.queued[class as usize]) as u64).encode(metric.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

/// Label of a class of frames.
fn class_label(class: FrameClass) -> &'static str {
    match class {
        FrameClass::Flash => "flash",
        FrameClass::Control => "control",
        FrameClass::Urgent => "urgent",
        FrameClass::Reliable => "reliable",
        FrameClass::BestEffort => "best_effort",
        FrameClass::Bulk => "bulk",
    }
}

/// Label of a reason.
fn label(why: HangUp) -> &'static str {
    match why {
        HangUp::NotOpen => "not_open",
        HangUp::Garbage => "garbage",
        HangUp::OtherVersion => "other_version",
        HangUp::OtherDeployment => "other_deployment",
        HangUp::ForgedName => "forged_name",
        HangUp::NameTaken => "name_taken",
        HangUp::Itself => "itself",
        HangUp::Double => "double",
        HangUp::TooMany => "too_many",
        HangUp::Silent => "silent",
        HangUp::Stuck => "stuck",
        HangUp::Rehosted => "rehosted",
        HangUp::Left => "left",
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_core::overlay::NetStats;

    use super::*;

    /// Compares with the printed form of the statistics, so that no number is without a metric.
    #[test]
    fn every_number_has_its_metric() {
        let printed = format!("{:?}", OverlayStats::default());
        let names = printed.split(['{', ',']).filter(|part| part.contains(':')).count();
        // The reasons of hang-ups, causes of reroutes and places of domains are labels, and `net`
        // has those of the network layer.
        assert_eq!(names, COUNTERS.len() + 4, "{printed}");
        let mut metrics: Vec<_> = COUNTERS.iter().map(|(name, ..)| name).collect();
        metrics.sort_unstable();
        metrics.dedup();
        assert_eq!(metrics.len(), COUNTERS.len());
    }

    #[test]
    fn each_counter_reads_the_number_of_its_name() {
        let stats = OverlayStats {
            net: NetStats { nacks_merged: 7, links_up: 3, ..NetStats::default() },
            ..OverlayStats::default()
        };
        let set: Vec<_> = COUNTERS.iter().filter(|(.., read)| read(&stats) > 0).map(|(name, ..)| *name).collect();
        assert_eq!(set, ["whimbrel_overlay_links_up", "whimbrel_overlay_nacks_merged"]);
    }

    #[test]
    fn reasons_have_different_labels() {
        let mut labels = HangUp::ALL.map(label).to_vec();
        labels.sort_unstable();
        labels.dedup();
        assert_eq!(labels.len(), HangUp::ALL.len());
    }
}
