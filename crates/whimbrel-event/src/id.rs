//! Ids of hosts, streams and events, and positions in streams.

use core::fmt;
use core::str::FromStr;

use crate::{Reliability, Time};

/// Most pubends of one host: their indices are the low four bits of their ids.
pub const HOST_PUBENDS_MAX: u8 = 16;

/// Pubends of one kind at one host, at most: those of one [`StreamClass`] and one [`Reliability`].
///
/// The kinds have these indices, in this order: ordinary reliable, ordinary best-effort, deadline
/// reliable, deadline best-effort.
pub const KIND_PUBENDS_MAX: u8 = 4;

/// Most reliable pubends of one host: those of both classes.
pub const HOST_RELIABLE_MAX: u8 = 2 * KIND_PUBENDS_MAX;

/// Pubends of one host that do not count as its first: all but the ordinary reliable ones.
pub const HOST_FURTHER_MAX: u8 = HOST_PUBENDS_MAX - KIND_PUBENDS_MAX;

/// The class of a stream, which follows from the profiles of its topics.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum StreamClass {
    /// Events of topics without a deadline.
    Ordinary,
    /// Events of topics with a deadline.
    Deadline,
}

/// The bit of an index that says best effort, and the bit that says [`StreamClass::Deadline`].
const BEST_EFFORT_BIT: u8 = KIND_PUBENDS_MAX;
const DEADLINE_BIT: u8 = HOST_RELIABLE_MAX;

/// A publishing endpoint: one ordered stream, hosted by one broker. Printed as 16 hexadecimal
/// digits at most.
///
/// The low four bits are its index at its host, the others name the host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PubendId(pub u64);

impl PubendId {
    /// The host of this stream.
    pub fn host(self) -> HostId {
        HostId::new(self.0)
    }

    /// The index of this stream at its host, below [`HOST_PUBENDS_MAX`].
    pub fn index(self) -> u8 {
        (self.0 & INDEX_BITS) as u8
    }

    /// The guarantee for the events in this stream, which follows from its index (see
    /// [`KIND_PUBENDS_MAX`]).
    pub fn reliability(self) -> Reliability {
        if self.index() & BEST_EFFORT_BIT == 0 { Reliability::Reliable } else { Reliability::BestEffort }
    }

    /// The class of this stream, which follows from its index.
    pub fn class(self) -> StreamClass {
        if self.index() & DEADLINE_BIT == 0 { StreamClass::Ordinary } else { StreamClass::Deadline }
    }

    /// The place of this stream among the reliable ones of its host, below [`HOST_RELIABLE_MAX`];
    /// `None` for a stream of best effort. [`HostId::reliable`] is its inverse.
    #[inline]
    pub fn reliable_place(self) -> Option<u8> {
        let index = self.index();
        (index & BEST_EFFORT_BIT == 0).then_some((index & (KIND_PUBENDS_MAX - 1)) | (index & DEADLINE_BIT) >> 1)
    }
}

/// The host of pubends: one broker, from the creation of its data directory (without one: from its
/// start) on. A random number of 60 bits, the upper ones of 64. Printed as 16 hexadecimal digits at
/// most.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(u64);

/// The bits of a pubend's id that are its index.
const INDEX_BITS: u64 = HOST_PUBENDS_MAX as u64 - 1;

impl HostId {
    /// The host with the upper 60 of these bits; the low four are ignored.
    pub const fn new(bits: u64) -> HostId {
        HostId(bits & !INDEX_BITS)
    }

    /// The number of this host, whose low four bits are zero.
    pub fn as_u64(self) -> u64 {
        self.0
    }

    /// The reliable stream at this place among those of the host: the ordinary ones come first.
    ///
    /// # Panics
    /// When the place is not below [`HOST_RELIABLE_MAX`].
    #[inline]
    pub fn reliable(self, place: u8) -> PubendId {
        assert!(place < HOST_RELIABLE_MAX, "a host has no reliable pubend {place}");
        self.pubend((place & (KIND_PUBENDS_MAX - 1)) | (place & KIND_PUBENDS_MAX) << 1)
    }

    /// The reliable streams that a host can have, in the order of their places.
    pub fn all_reliable(self) -> impl Iterator<Item = PubendId> {
        (0..HOST_RELIABLE_MAX).map(move |place| self.reliable(place))
    }

    /// The stream with this index.
    ///
    /// # Panics
    /// When the index is not below [`HOST_PUBENDS_MAX`].
    #[inline]
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
    /// When the stream has used up all ticks (the year 2554), which only a bug can cause.
    pub fn next(last: Tick, now: Time) -> Tick {
        let successor = last.0.checked_add(1).expect("a stream must not run out of ticks");
        Tick(successor.max(now.as_nanos()))
    }
}

/// The id of one accepted event in the whole system.
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
    /// The printed form, without an allocation: it is made for every delivery with the event's id.
    pub fn text(&self) -> EventIdText {
        let mut bytes = [b':'; EVENT_ID_TEXT_MAX];
        put_number(self.pubend.0, &mut bytes[..NUMBER_DIGITS]);
        put_number(self.tick.0, &mut bytes[NUMBER_DIGITS + 1..]);
        EventIdText { bytes }
    }
}

/// The digits of numbers in an [`EventId`], by value: six bits each. Numbers of 64 bits begin with
/// one of the first 16 digits, which are not digits of another base: so this form differs from the
/// hexadecimal and decimal numbers in which ids were printed before 0.2.
const DIGITS: &[u8; 64] = b"ghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789abcdef-_";

/// Digits of a number: 11 times 6 bits are 66.
const NUMBER_DIGITS: usize = 11;

/// The printed form of an [`EventId`], bytes: two numbers and a colon.
pub const EVENT_ID_TEXT_MAX: usize = NUMBER_DIGITS + 1 + NUMBER_DIGITS;

fn put_number(mut number: u64, into: &mut [u8]) {
    for digit in into.iter_mut().rev() {
        *digit = DIGITS[(number & 0x3F) as usize];
        number >>= 6;
    }
}

/// The value of each byte as a digit; [`NO_DIGIT`] if it is none.
const VALUES: [u8; 256] = {
    let mut values = [NO_DIGIT; 256];
    let mut at = 0;
    while at < DIGITS.len() {
        values[DIGITS[at] as usize] = at as u8;
        at += 1;
    }
    values
};

const NO_DIGIT: u8 = 64;

fn read_number(digits: &[u8]) -> Option<u64> {
    // A number of more than 64 bits is malformed.
    if digits.len() != NUMBER_DIGITS || VALUES[usize::from(digits[0])] >= 16 {
        return None;
    }
    digits.iter().try_fold(0, |number, digit| {
        let value = VALUES[usize::from(*digit)];
        (value != NO_DIGIT).then_some(number << 6 | u64::from(value))
    })
}

/// The printed form of an [`EventId`].
#[derive(Clone, Copy, Debug)]
pub struct EventIdText {
    bytes: [u8; EVENT_ID_TEXT_MAX],
}

impl EventIdText {
    /// The text.
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.bytes).expect("made of digits")
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
        f.write_str("an event id is <pubend>:<tick>, as `w-id` has it, or the same in hexadecimal and decimal digits")
    }
}

impl core::error::Error for InvalidEventId {}

impl FromStr for EventId {
    type Err = InvalidEventId;

    fn from_str(text: &str) -> Result<Self, InvalidEventId> {
        let (pubend, tick) = text.split_once(':').ok_or(InvalidEventId)?;
        if let Some((pubend, tick)) = read_number(pubend.as_bytes()).zip(read_number(tick.as_bytes())) {
            return Ok(EventId { pubend: PubendId(pubend), tick: Tick(tick) });
        }
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

    const NUMBERS: [u64; 9] = [0, 1, 63, 64, 0xabc, 1_795_000_000_123_456_789, 1 << 60, u64::MAX - 1, u64::MAX];

    #[test]
    fn an_event_id_survives_print_and_parse_and_never_takes_more_than_24_bytes() {
        for (pubend, tick) in NUMBERS.iter().flat_map(|pubend| NUMBERS.map(|tick| (*pubend, tick))) {
            let id = EventId { pubend: PubendId(pubend), tick: Tick(tick) };
            let text = id.to_string();
            assert_eq!((text.parse(), text.as_str()), (Ok(id), id.text().as_str()));
            assert_eq!(text.len(), 23);
        }
        let id = EventId { pubend: PubendId(0xabc), tick: Tick(u64::MAX) };
        assert_eq!(id.to_string(), "gggggggggWe:v__________");
    }

    #[test]
    fn an_event_id_as_it_was_printed_before_is_read() {
        for (pubend, tick) in NUMBERS.iter().flat_map(|pubend| NUMBERS.map(|tick| (*pubend, tick))) {
            let id = EventId { pubend: PubendId(pubend), tick: Tick(tick) };
            assert_eq!(format!("{pubend:x}:{tick}").parse(), Ok(id));
        }
    }

    #[test]
    fn a_pubend_is_its_host_and_its_index() {
        let host = HostId::new(0xabcd);
        assert_eq!((host.as_u64(), host.pubend(7)), (0xabc0, PubendId(0xabc7)));
        assert_eq!((PubendId(0xabc7).host(), PubendId(0xabc7).index()), (host, 7));
    }

    #[test]
    fn an_index_says_class_and_reliability_of_its_stream() {
        use Reliability::{BestEffort, Reliable};
        use StreamClass::{Deadline, Ordinary};
        let host = HostId::new(0xabcd);
        let kinds = [(Ordinary, Reliable), (Ordinary, BestEffort), (Deadline, Reliable), (Deadline, BestEffort)];
        for index in 0..HOST_PUBENDS_MAX {
            let pubend = host.pubend(index);
            assert_eq!((pubend.class(), pubend.reliability()), kinds[usize::from(index / KIND_PUBENDS_MAX)]);
            assert_eq!(pubend.reliable_place().is_some(), pubend.reliability() == Reliable);
            assert!(pubend.reliable_place().is_none_or(|place| host.reliable(place) == pubend));
        }
        let places = host.all_reliable().map(|pubend| (pubend.index(), pubend.reliable_place()));
        let indices = [0, 1, 2, 3, 8, 9, 10, 11];
        assert_eq!(places.collect::<Vec<_>>(), indices.into_iter().zip((0..).map(Some)).collect::<Vec<_>>());
    }

    #[test]
    fn garbage_is_no_event_id() {
        for text in [
            "",
            ":",
            "1",
            "1:",
            ":1",
            "g:1",
            "+1:2",
            "1:-2",
            "1:2:3",
            "11111111111111111:1",
            "1:18446744073709551616",
            "gggggggggWe:1",
            "abc:gggggggggWe",
            "gggggggggWe:gggggggggI",
            "wggggggggWe:gggggggggWe",
            "gggggggg We:gggggggggWe",
        ] {
            assert_eq!(text.parse::<EventId>(), Err(InvalidEventId), "{text}");
        }
    }
}
