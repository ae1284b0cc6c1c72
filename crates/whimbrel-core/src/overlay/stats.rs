//! The counters of the overlay.

use whimbrel_net::NetStats;

// tidy: table — a list of counters, each read by its name
/// Counters since the overlay was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OverlayStats {
    /// Those of the network layer.
    pub net: NetStats,
    /// Brokers whose streams are not followed, as the bound is reached.
    pub hosts_refused: u64,
    /// Brokers that have ended: another host came up under their name.
    pub hosts_ended: u64,
    /// Events of other brokers with this broker as a destination.
    pub events_received: u64,
    /// Received events that no subscription here wanted.
    pub events_unwanted: u64,
    /// Received events that were known already.
    pub events_repeated: u64,
    /// Received events of best effort that waited behind a hole for copies of earlier ones.
    pub events_held_back: u64,
    /// Events whose previous tick was ignored, as it was told under a version no longer in force.
    pub silence_disbelieved: u64,
    /// Nacks that this broker sent.
    pub nacks_out: u64,
    /// Ranges that were declared lost to another broker.
    pub ranges_lost: u64,
    /// Times that a stream waited for an event of another stream that the publisher had published
    /// before.
    pub streams_stalled: u64,
    /// Publishers that moved and whose events waited at the new broker for their earlier ones.
    pub publishers_early: u64,
    /// Events that were delivered before an earlier one of their publisher.
    pub order_breaks: u64,
    /// Subscriptions that were answered although some brokers had not confirmed them.
    pub subscriptions_pending: u64,
    /// Sessions received from other brokers, copies included.
    pub sessions_received: u64,
    /// Sessions that went on from a copy.
    pub sessions_from_copies: u64,
    /// Sessions that were given to other brokers.
    pub sessions_went: u64,
    /// Sessions that turned out to belong to another broker by now.
    pub sessions_outdated: u64,
    /// CONNECTs that were refused because no broker with the session could be reached.
    pub sessions_unreachable: u64,
    /// Copies of sessions, or of what had changed of them, that were sent to replicas.
    pub copies_out: u64,
    /// Bytes of these copies.
    pub copies_bytes: u64,
    /// Copies that were refused by the replica, and made anew.
    pub copies_again: u64,
    /// Sessions that are too large for a copy.
    pub copies_too_large: u64,
    /// Copies of other brokers' sessions for which there was no room.
    pub copies_refused: u64,
    /// Questions for parts of other brokers' logs, repeated ones included.
    pub reads_out: u64,
    /// Answers to such questions that came too late: no read waited for them.
    pub reads_late: u64,
    /// Events that were read from other brokers' logs.
    pub events_borrowed: u64,
    /// Questions for parts of other brokers' logs that were answered from answers kept here; the
    /// questions of this broker are included.
    pub reads_kept: u64,
    /// Events in these answers.
    pub events_kept: u64,
    /// Questions that waited for the answer to another one.
    pub reads_merged: u64,
    /// Questions of other brokers for parts of the own log that were accepted.
    pub reads_asked: u64,
    /// Events of the log that were examined for these questions.
    pub events_looked_at: u64,
    /// Events of the log that were sent for these questions.
    pub events_lent: u64,
    /// Brokers whose retention holds were dropped without their word: nothing was heard of them for
    /// too long, or they are retired.
    pub holds_forfeited: u64,
    /// Times that a home refused members of this broker, as others share with another selector.
    pub shares_refused: u64,
    /// Retained messages of other brokers that were taken.
    pub retained_learned: u64,
    /// Retained messages of other brokers that were refused, as the bounds are reached.
    pub retained_refused: u64,
}
