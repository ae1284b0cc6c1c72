//! Numbers, names and priorities of a link's channels.

use whimbrel_core::Channel;

/// Channels that are streams, the most urgent first; each stands at its number.
pub(super) const STREAMS: [Channel; 3] = [Channel::Control, Channel::Reliable, Channel::BestEffort];

/// The first byte of a channel's stream, and the channel's place in tables.
pub(super) fn number(channel: Channel) -> u8 {
    match channel {
        Channel::Control => 0,
        Channel::Reliable => 1,
        Channel::BestEffort => 2,
        Channel::Datagram => 3,
    }
}

/// Names of the channels in metrics, by their numbers.
pub const CHANNELS: [&str; 4] = ["control", "reliable", "best_effort", "datagram"];

/// QUIC priority of a channel: the greatest is sent first.
pub(super) fn priority(channel: Channel) -> i32 {
    3 - i32::from(number(channel))
}
