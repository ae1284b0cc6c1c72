//! Names of streams and positions in them.

use core::fmt;
use core::str::FromStr;

use crate::Time;

/// A publishing endpoint: one ordered stream, hosted by one broker. Printed as 16 hexadecimal digits at most.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PubendId(pub u64);

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

impl fmt::Display for Tick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.pubend, self.tick)
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
debug_as_display!(PubendId, Tick, EventId);

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
    fn an_event_id_survives_print_and_parse() {
        let id = EventId { pubend: PubendId(0xabc), tick: Tick(u64::MAX) };
        assert_eq!(id.to_string().parse(), Ok(id));
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
