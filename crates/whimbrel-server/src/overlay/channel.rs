//! Numbers, names and priorities of a link's channels. Tables have a channel at its place in
//! [`Channel::ALL`].

use whimbrel_core::Channel;

/// The channels that are streams, the most urgent first.
pub(super) const STREAMS: [Channel; Channel::STREAMS] =
    [Channel::Control, Channel::Urgent, Channel::Reliable, Channel::BestEffort];

/// The streams that both ends open at once, in the order of their numbers. The urgent one is opened
/// with its first bytes: an earlier version of the protocol has three streams.
pub(super) const AT_ONCE: [Channel; 3] = [Channel::Control, Channel::Reliable, Channel::BestEffort];

/// Application error code of a link whose other end breaks the protocol of streams.
pub(super) const MISUSED: u32 = 2;

/// The first byte of a channel's stream.
pub(super) fn number(channel: Channel) -> u8 {
    match channel {
        Channel::Control => 0,
        Channel::Reliable => 1,
        Channel::BestEffort => 2,
        Channel::Urgent => 3,
        Channel::Datagram => 4,
    }
}

/// Names of the channels in metrics.
pub const CHANNELS: [&str; Channel::ALL.len()] = ["control", "urgent", "reliable", "best_effort", "datagram"];

/// QUIC priority of a channel: the greatest is sent first.
pub(super) fn priority(channel: Channel) -> i32 {
    match channel {
        Channel::Control => 3,
        Channel::Urgent => 2,
        Channel::Reliable => 1,
        Channel::BestEffort | Channel::Datagram => 0,
    }
}
