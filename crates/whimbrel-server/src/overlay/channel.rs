//! Numbers, names and priorities of a link's channels. Tables have a channel at its place in
//! [`Channel::ALL`].

use whimbrel_core::Channel;

/// The channels that are streams, the most urgent first.
pub(super) const STREAMS: [Channel; Channel::STREAMS] =
    [Channel::Control, Channel::Urgent, Channel::Reliable, Channel::BestEffort];

/// The streams that both ends open at once, in the order of their numbers. The urgent one is opened
/// with its first bytes: an earlier version of the protocol has three streams.
pub(super) const FIRST_STREAMS: [Channel; 3] = [Channel::Control, Channel::Reliable, Channel::BestEffort];

/// Application error code of a link whose other end breaks the protocol of streams.
pub(super) const MISUSED: u32 = 2;

/// Application error code of a link whose end has no memory for it.
pub(super) const FAILED: u32 = 3;

/// Close code for a broker that no rule allows; other codes are those of the core.
pub(super) const NOT_ALLOWED: u32 = 0x403;

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

/// The stream is a successor of the channel's present one, and plain: a bit of its first byte.
const PLAIN: u8 = 0x10;

/// The stream is a successor of the channel's present one, and compressed.
const PACKED: u8 = 0x20;

/// The channels whose streams may have successors.
const WITH_SUCCESSORS: [Channel; 2] = [Channel::Reliable, Channel::BestEffort];

/// Streams of the other end at once: one for each channel, and one successor. An end whose urgent
/// stream is open can thus have one successor that has not been taken up, of whichever channel.
/// Earlier versions allow none, by which they are known.
pub(super) const STREAMS_ALLOWED: u32 = Channel::STREAMS as u32 + 1;

/// The first byte of a successor.
pub(super) fn successor(channel: Channel, is_packed: bool) -> u8 {
    number(channel) | if is_packed { PACKED } else { PLAIN }
}

/// The channel of a successor's first byte, and whether the successor is compressed; `None`: it is
/// another number.
pub(super) fn succeeds(first: u8) -> Option<(Channel, bool)> {
    let forms = WITH_SUCCESSORS.into_iter().flat_map(|channel| [(channel, false), (channel, true)]);
    forms.into_iter().find(|(channel, is_packed)| successor(*channel, *is_packed) == first)
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
