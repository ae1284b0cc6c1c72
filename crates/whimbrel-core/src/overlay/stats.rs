//! What the overlay counts.

use crate::api::HangUp;

// tidy: table — a list of counters, each read by its name
/// Counters since the broker has become one of many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OverlayStats {
    /// Links that came up.
    pub links_up: u64,
    /// Links that were up and are gone.
    pub links_lost: u64,
    /// Links that this side ended, by reason.
    pub hang_ups: [u64; HangUp::ALL.len()],
    /// Frames that made no sense.
    pub frames_invalid: u64,
    /// Frames of types that this version does not know.
    pub frames_unknown: u64,
    /// Answers to probes that were never sent.
    pub bad_echoes: u64,
    /// Brokers whose clock is more than a minute off.
    pub clocks_apart: u64,
    /// Link states that were news.
    pub states_learned: u64,
    /// Link states that were not taken.
    pub states_refused: u64,
    /// Times that this broker's own name was refused.
    pub names_refused: u64,
    /// Times that the ways to all brokers were computed anew.
    pub ways_computed: u64,
    /// Own link states that others had, and were greater than what was told.
    pub outbid: u64,
    /// Brokers that were not heard of for too long.
    pub brokers_expired: u64,
    /// Brokers whose streams are not followed, as too many are.
    pub hosts_refused: u64,
    /// Brokers that have ended: another one came up under their name.
    pub hosts_ended: u64,
    /// Versions of the own interest.
    pub interest_versions: u64,
    /// Interests of others that were news.
    pub interests_learned: u64,
    /// Interests of brokers that are not known.
    pub interests_refused: u64,
    /// Own events that other brokers wanted.
    pub events_forwarded: u64,
    /// How many brokers wanted them, all together.
    pub destinations: u64,
    /// Destinations to which there was no way.
    pub unreachable: u64,
    /// Bytes of frames with events that are not the event itself.
    pub header_bytes: u64,
    /// Events of others that came for this broker.
    pub events_received: u64,
    /// Those of them that nobody here wanted.
    pub events_unwanted: u64,
    /// Those of them that were known already.
    pub events_repeated: u64,
    /// Events that passed through.
    pub events_relayed: u64,
    /// Trees that were changed here because a link was down.
    pub repairs: u64,
    /// Parts of trees that could not be reached.
    pub repairs_given_up: u64,
    /// Frames with silence that were sent.
    pub silences_out: u64,
    /// Frames with silence that came.
    pub silences_in: u64,
    /// What was told under a version that does not count any more: only events were taken of it.
    pub silence_disbelieved: u64,
    /// Nacks of this broker.
    pub nacks_out: u64,
    /// Nacks of others that came here.
    pub nacks_in: u64,
    /// Those of them that were not passed on, as somebody else has just asked for the same.
    pub nacks_merged: u64,
    /// Events that were sent again.
    pub events_answered: u64,
    /// Ranges that were declared lost to somebody.
    pub ranges_lost: u64,
    /// Times that a stream has waited for an event of another, which its publisher had published
    /// before.
    pub streams_stalled: u64,
    /// Publishers that had moved, and whose events waited at their new broker for those before.
    pub publishers_early: u64,
    /// Events that were passed before one that their publisher had published before.
    pub order_breaks: u64,
    /// Subscriptions that were answered although some brokers had not confirmed them.
    pub subscriptions_pending: u64,
    /// Sessions that have come from other brokers, copies included.
    pub sessions_received: u64,
    /// Those that go on from a copy.
    pub sessions_from_copies: u64,
    /// Sessions that were given to other brokers.
    pub sessions_went: u64,
    /// Sessions that were found to belong to other brokers by now.
    pub sessions_outdated: u64,
    /// CONNECTs that were refused because nobody could be reached who has the session.
    pub sessions_unreachable: u64,
    /// Copies of sessions, or of what had changed of them, that were sent to replicas.
    pub copies_out: u64,
    /// Their bytes.
    pub copies_bytes: u64,
    /// Those that were not taken, and were made anew.
    pub copies_again: u64,
    /// Sessions that are too large for a copy.
    pub copies_too_large: u64,
    /// Copies of other brokers' sessions for which there was no room.
    pub copies_refused: u64,
    /// Questions for parts of other brokers' logs, repeated ones included.
    pub reads_out: u64,
    /// Answers to such questions that nobody waits for.
    pub reads_late: u64,
    /// Events that were read there.
    pub events_borrowed: u64,
    /// Questions for parts of other brokers' logs that were answered with what had passed here
    /// before, own ones included.
    pub reads_kept: u64,
    /// Events that were told so.
    pub events_kept: u64,
    /// Such questions that waited for the answer to another one.
    pub reads_merged: u64,
    /// Questions of other brokers for parts of the own log that were taken.
    pub reads_asked: u64,
    /// Events that were looked at for these.
    pub events_looked_at: u64,
    /// Events that were told to them.
    pub events_lent: u64,
    /// Messages that were written here.
    pub messages_out: u64,
    /// Brokers to whom nothing is owed any more although they have not said so: they were not heard
    /// of for too long, or are retired.
    pub holds_forfeited: u64,
    /// Messages that found no way or no room; they are written again.
    pub messages_unsent: u64,
    /// Messages for this broker.
    pub messages_in: u64,
    /// Those of them that made no sense, or are not known here.
    pub messages_refused: u64,
    /// Times that a home has refused members here, as others share with another selector.
    pub shares_refused: u64,
    /// Retained messages of others that were taken.
    pub retained_learned: u64,
    /// Retained messages of others that were not taken, as too many are kept.
    pub retained_refused: u64,
}
