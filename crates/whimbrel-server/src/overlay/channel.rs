//! How channels are told apart on the wire.

use whimbrel_core::Channel;

/// Those that are streams, the most urgent first; each stands at its number.
pub(super) const STREAMS: [Channel; 3] = [Channel::Control, Channel::Reliable, Channel::BestEffort];

/// The byte that a stream begins with, and its place in tables.
pub(super) fn number(channel: Channel) -> u8 {
    match channel {
        Channel::Control => 0,
        Channel::Reliable => 1,
        Channel::BestEffort => 2,
        Channel::Datagram => 3,
    }
}

/// Their names in metrics, by their numbers.
pub const CHANNELS: [&str; 4] = ["control", "reliable", "best_effort", "datagram"];

/// Of QUIC: the greatest is sent first.
pub(super) fn priority(channel: Channel) -> i32 {
    3 - i32::from(number(channel))
}
