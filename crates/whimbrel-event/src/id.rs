//! Names of streams and positions in them.

use core::fmt;
use core::str::FromStr;

use crate::{Reliability, Time};

/// Most pubends of one host: their indices are the low four bits of their ids.
pub const HOST_PUBENDS_MAX: u8 = 16;

/// Most reliable pubends of one host. They have the indices below this one; best effort begins here.
pub const HOST_RELIABLE_MAX: u8 = 4;

/// A publishing endpoint: one ordered stream, hosted by one broker. Printed as 16 hexadecimal digits at most.
///
/// The low four bits are its index at its host, the others name the host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PubendId(pub u64);

impl PubendId {
    /// The host of this stream.
    pub fn host(self) -> HostId {
        HostId::new(self.0)
    }

    /// Which stream of its host this is, below [`HOST_PUBENDS_MAX`].
    pub fn index(self) -> u8 {
        (self.0 & INDEX_BITS) as u8
    }

    /// What is promised of the events in this stream, which its index tells (see [`HOST_RELIABLE_MAX`]).
    pub fn reliability(self) -> Reliability {
        if self.index() < HOST_RELIABLE_MAX { Reliability::Reliable } else { Reliability::BestEffort }
    }
}

/// What hosts pubends: one broker, from the making of its data directory (without one: from its start) on. A random
/// number of 60 bits, the upper ones of 64. Printed as 16 hexadecimal digits at most.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(u64);

/// The bits of a pubend's id that are its index.
const INDEX_BITS: u64 = HOST_PUBENDS_MAX as u64 - 1;

impl HostId {
    /// The host with the upper 60 of these bits; the low four do not count.
    pub const fn new(bits: u64) -> HostId {
        HostId(bits & !INDEX_BITS)
    }

    /// The number of this host, whose low four bits are zero.
    pub fn as_u64(self) -> u64 {
        self.0
    }

    /// The stream with this index.
    ///
    /// # Panics
    /// When the index is not below [`HOST_PUBENDS_MAX`].
    pub fn pubend(self, index: u8) -> PubendId {
        assert!(index < HOST_PUBENDS_MAX, "a host has no pubend {index}");
        PubendId(self.0 | u64::from(index))
    }
}

/// A position in a stream: nanoseconds since the Unix epoch, never used twice in its stream.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Tick(pub u64);

impl Tick {
    /// The tick that follows `last` at the moment `now`: max(last + 1, now).
    ///
    /// # Panics
    /// When the stream has used up all ticks (the year 2554), which only a defect can bring about.
    pub fn next(last: Tick, now: Time) -> Tick {
        let successor = last.0.checked_add(1).expect("a stream must not run out of ticks");
        Tick(successor.max(now.as_nanos()))
    }
}

/// The name of one accepted event in the whole system.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId {
    /// The stream.
    pub pubend: PubendId,
    /// The position in it.
    pub tick: Tick,
}

impl fmt::Display for PubendId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

impl fmt::Display for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

impl fmt::Display for Tick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text().as_str())
    }
}

impl EventId {
    /// The printed form, without an allocation: it is made for every delivery that names its event.
    pub fn text(&self) -> EventIdText {
        let mut bytes = [b'0'; EVENT_ID_TEXT_MAX];
        let mut tick = self.tick.0;
        for pair in bytes[PUBEND_DIGITS + 1..].rchunks_exact_mut(2) {
            let two = (tick % 100) as u8;
            tick /= 100;
            pair.copy_from_slice(&[b'0' + two / 10, b'0' + two % 10]);
        }
        let leading = |digits: &[u8]| digits[..digits.len() - 1].iter().take_while(|digit| **digit == b'0').count();
        // The rest moves up to the first digit that counts.
        let zeros = leading(&bytes[PUBEND_DIGITS + 1..]);
        let pubend: [u8; PUBEND_DIGITS] =
            core::array::from_fn(|at| b"0123456789abcdef"[(self.pubend.0 >> (60 - 4 * at) & 0xF) as usize]);
        bytes[zeros..zeros + PUBEND_DIGITS].copy_from_slice(&pubend);
        bytes[zeros + PUBEND_DIGITS] = b':';
        EventIdText { bytes, begin: zeros + leading(&pubend) }
    }
}

/// Digits of the longest printed form of a [`PubendId`].
const PUBEND_DIGITS: usize = 16;

/// The longest printed form of an [`EventId`], bytes: 16 digits, a colon and 20 digits.
pub const EVENT_ID_TEXT_MAX: usize = PUBEND_DIGITS + 1 + 20;

/// An [`EventId`] as it is printed.
#[derive(Clone, Copy, Debug)]
pub struct EventIdText {
    bytes: [u8; EVENT_ID_TEXT_MAX],
    /// Where the text begins; it ends with the bytes.
    begin: usize,
}

impl EventIdText {
    /// The text.
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.bytes[self.begin..]).expect("made of digits")
    }
}

macro_rules! debug_as_display {
    ($($name:ty),*) => {$(
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    )*};
}
debug_as_display!(PubendId, HostId, Tick, EventId);

/// Text that is not `<pubend>:<tick>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidEventId;

impl fmt::Display for InvalidEventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an event id is <pubend in hexadecimal>:<tick in decimal>, each at most 64 bits")
    }
}

impl core::error::Error for InvalidEventId {}

impl FromStr for EventId {
    type Err = InvalidEventId;

    fn from_str(text: &str) -> Result<Self, InvalidEventId> {
        let (pubend, tick) = text.split_once(':').ok_or(InvalidEventId)?;
        let plain = |s: &str, digits: fn(&u8) -> bool| !s.is_empty() && s.as_bytes().iter().all(digits);
        if !plain(pubend, u8::is_ascii_hexdigit) || !plain(tick, u8::is_ascii_digit) {
            return Err(InvalidEventId);
        }
        Ok(EventId {
            pubend: PubendId(u64::from_str_radix(pubend, 16).map_err(|_| InvalidEventId)?),
            tick: Tick(tick.parse().map_err(|_| InvalidEventId)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_follow_the_clock_and_never_repeat() {
        let first = Tick::next(Tick(0), Time::from_nanos(100));
        assert_eq!(first, Tick(100));
        assert_eq!(Tick::next(first, Time::from_nanos(100)), Tick(101));
        assert_eq!(Tick::next(first, Time::from_nanos(40)), Tick(101));
        assert_eq!(Tick::next(first, Time::from_nanos(900)), Tick(900));
    }

    #[test]
    fn an_event_id_is_printed_as_its_two_numbers() {
        for pubend in [0, 1, 0xabc, u64::MAX] {
            for tick in [0, 9, 10, 99, 100, 1_005, 1_795_000_000_123_456_789, u64::MAX] {
                let id = EventId { pubend: PubendId(pubend), tick: Tick(tick) };
                assert_eq!(id.to_string(), format!("{pubend:x}:{tick}"));
            }
        }
    }

    #[test]
    fn an_event_id_survives_print_and_parse() {
        let id = EventId { pubend: PubendId(0xabc), tick: Tick(u64::MAX) };
        assert_eq!(id.to_string().parse(), Ok(id));
    }

    #[test]
    fn a_pubend_is_its_host_and_its_index() {
        let host = HostId::new(0xabcd);
        assert_eq!((host.as_u64(), host.pubend(7)), (0xabc0, PubendId(0xabc7)));
        assert_eq!((PubendId(0xabc7).host(), PubendId(0xabc7).index()), (host, 7));
        assert_eq!(host.pubend(HOST_RELIABLE_MAX - 1).reliability(), Reliability::Reliable);
        assert_eq!(host.pubend(HOST_RELIABLE_MAX).reliability(), Reliability::BestEffort);
    }

    #[test]
    fn garbage_is_no_event_id() {
        for text in
            ["", ":", "1", "1:", ":1", "g:1", "+1:2", "1:-2", "1:2:3", "11111111111111111:1", "1:18446744073709551616"]
        {
            assert_eq!(text.parse::<EventId>(), Err(InvalidEventId), "{text}");
        }
    }
}
