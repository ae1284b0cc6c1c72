//! The counters of the network layer.

use crate::HangUp;
use crate::domains::DomainRefusals;
use crate::traces::RerouteCause;

// tidy: table — a list of counters, each read by its name
/// Counters since the network layer was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetStats {
    /// Links that came up.
    pub links_up: u64,
    /// Links that were up and went down.
    pub links_lost: u64,
    /// Links that this broker closed, by reason.
    pub hang_ups: [u64; HangUp::ALL.len()],
    /// Frames that were not valid.
    pub frames_invalid: u64,
    /// Frames of types that this version does not know.
    pub frames_unknown: u64,
    /// Answers to probes that were never sent.
    pub bad_echoes: u64,
    /// Hellos from brokers whose clock differs by more than a minute.
    pub clocks_apart: u64,
    /// Link states that were new.
    pub states_learned: u64,
    /// Link states that were refused.
    pub states_refused: u64,
    /// Times that this broker's own name was refused.
    pub names_refused: u64,
    /// Times that the paths to all brokers were computed.
    pub ways_computed: u64,
    /// Link states of this broker at others that were greater than the one it announced.
    pub outbid: u64,
    /// Brokers that were forgotten, as nothing was heard of them for too long.
    pub brokers_expired: u64,
    /// Versions of the own interest.
    pub interest_versions: u64,
    /// Interests of other brokers that were new.
    pub interests_learned: u64,
    /// Interests of brokers that are not known, or with more entries than a frame has.
    pub interests_refused: u64,
    /// Events of this broker that other brokers wanted.
    pub events_forwarded: u64,
    /// Destinations of these events in total.
    pub destinations: u64,
    /// Destinations to which there was no path.
    pub unreachable: u64,
    /// Bytes of frames with events, without the events themselves.
    pub header_bytes: u64,
    /// Bytes of the events in these frames.
    pub event_bytes: u64,
    /// Events that were passed on to other brokers.
    pub events_relayed: u64,
    /// Own events that took two paths to each destination.
    pub events_copied: u64,
    /// Of these, those that went over further paths as well, around an end that has trouble.
    pub events_targeted: u64,
    /// Parts of trees that were not passed on, as another copy of the event has gone there.
    pub copies_joined: u64,
    /// Trees that were changed here because a link was down.
    pub repairs: u64,
    /// Parts of trees for which no path was found.
    pub repairs_given_up: u64,
    /// Frames with silence that were sent.
    pub silences_out: u64,
    /// Frames with silence for this broker.
    pub silences_in: u64,
    /// Nacks of other brokers that arrived here.
    pub nacks_in: u64,
    /// Nacks that were not passed on, as another broker has just asked for the same event.
    pub nacks_merged: u64,
    /// Events that were sent again.
    pub events_answered: u64,
    /// Times that an entry of a map was not told, as it fits no frame.
    pub entries_too_large: u64,
    /// Changes of the condition of a link's direction from this broker.
    pub conditions_changed: u64,
    /// Reports of neighbours about events that were never sent to them.
    pub bad_reports: u64,
    /// Changes of this broker's links that were flooded.
    pub flashes_out: u64,
    /// Changes of other brokers' links that were new, and were passed on.
    pub flashes_in: u64,
    /// Changes of links that are not known, or that this broker never told of.
    pub flashes_refused: u64,
    /// Events that were not reported over a link that is dark, and were sent by another way.
    pub detours: u64,
    /// Events of datagrams that were sent once more, behind the next one of their link.
    pub repeats_sent: u64,
    /// Bytes of these frames; they count as bytes of headers, too.
    pub repeat_bytes: u64,
    /// Repeated events that were taken: their own datagram has not arrived before.
    pub repeats_used: u64,
    /// Events of datagrams that were dropped as they came a second time over their link: by
    /// themselves and as a repeat.
    pub repeats_known: u64,
    /// Paths of events with a deadline that were changed here, by what is wrong with the link that
    /// was on them: it is down, or uses up more than its share of the event's margin.
    pub reroutes: [u64; RerouteCause::ALL.len()],
    /// Content that was not handed on, as a broker may not carry it; by place.
    pub domain_refusals: DomainRefusals,
    /// Messages that were sent from here.
    pub messages_out: u64,
    /// Messages for which there was no path or no room; the sender may repeat them.
    pub messages_unsent: u64,
    /// Messages for this broker.
    pub messages_in: u64,
    /// Messages for this broker that were not valid, or of an unknown kind.
    pub messages_refused: u64,
}
