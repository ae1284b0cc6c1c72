//! The stamp that `bench pub` writes into messages, and `bench sub` reads.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The beginning of stamped payloads.
const MARK: &[u8; 4] = b"wbn1";

/// Bytes of a stamp.
pub(super) const LENGTH: usize = 28;

/// The publisher, number and time of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    /// The publisher's number, different from that of any other publisher, also of another process
    /// on the same machine.
    pub(super) publisher: u64,
    /// The message's number: 0, 1, 2, … of this publisher.
    pub(super) sequence: u64,
    /// The time by the sender's clock, nanoseconds since the Unix epoch.
    pub(super) sent: u64,
}

impl Stamp {
    /// A payload of `length` bytes that begins with the stamp; at least [`LENGTH`].
    pub(super) fn payload(self, length: usize) -> Vec<u8> {
        let numbers = [self.publisher, self.sequence, self.sent].map(u64::to_be_bytes);
        let mut payload = [&MARK[..], numbers.as_flattened()].concat();
        payload.resize(length.max(LENGTH), b'.');
        payload
    }

    /// The stamp of a payload; `None`: another program has sent it.
    pub(super) fn of(payload: &[u8]) -> Option<Stamp> {
        let numbers = payload.strip_prefix(MARK)?.get(..LENGTH - MARK.len())?;
        let number = |at: usize| numbers[at * 8..][..8].try_into().map(u64::from_be_bytes).ok();
        Some(Stamp { publisher: number(0)?, sequence: number(1)?, sent: number(2)? })
    }

    /// The time since it was sent, by this machine's clock; zero if that is behind the sender's.
    pub(super) fn age(&self) -> Duration {
        Duration::from_nanos(now().saturating_sub(self.sent))
    }
}

/// The time by this machine's clock, nanoseconds since the Unix epoch.
pub(super) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_read_as_it_was_written_and_nothing_else_is_one() {
        let stamp = Stamp { publisher: 7 << 32 | 3, sequence: 9, sent: now() };
        for length in [0, LENGTH, 1000] {
            let payload = stamp.payload(length);
            assert_eq!((Stamp::of(&payload), payload.len()), (Some(stamp), length.max(LENGTH)));
        }
        let payload = stamp.payload(0);
        for other in [&b""[..], b"wbn1", &payload[..LENGTH - 1], &payload[1..]] {
            assert_eq!(Stamp::of(other), None, "{other:?}");
        }
    }
}
