//! Times in the format of RFC 3339, with date, time and offset.

use std::borrow::Cow;

use jiff::Timestamp;
use jiff::civil::Date;
use whimbrel_event::Time;

/// A time as errors show it.
pub const EXAMPLE: &str = "2026-03-01T12:00:00Z";

/// Decimals of a second that are used: nanoseconds.
const DECIMALS: usize = 9;

/// Parses a time of RFC 3339 with any number of decimals; fractions of a nanosecond are cut off.
/// Times before 1970 mean its beginning. `None`: the text is no such time.
pub fn read(text: &str) -> Option<Time> {
    let at: Timestamp = without_more_decimals(text).parse().ok().filter(|_| has_offset(text))?;
    let nanos = at.as_nanosecond().max(0);
    Some(Time::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
}

/// The corrected form of a text that means a time in another format: a date, a time without seconds
/// or offset, or a number of seconds, milliseconds, microseconds or nanoseconds since 1970. `None`:
/// the text is none of these.
pub fn advice(text: &str) -> Option<String> {
    let meant = match text.split_once(['T', 't', ' ']) {
        Some((date, _)) => date.parse::<Date>().ok().map(|_| EXAMPLE.to_owned()),
        None => text.parse::<Date>().ok().map(|date| format!("{date}T00:00:00Z")),
    };
    let meant = meant.or_else(|| since_1970(text).map(|at| at.to_string()))?;
    Some(format!("a moment is written as in RFC 3339, with date, time and offset, as {meant}"))
}

/// The time of a number of units since 1970. The number's size tells the unit: the ranges of the
/// units do not overlap for the years 1973 to 5138.
fn since_1970(text: &str) -> Option<Timestamp> {
    let whole = text.split_once('.').map_or(text, |(whole, _)| whole);
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let count: i64 = whole.parse().ok().filter(|_| is_number)?;
    let at = match count {
        ..100_000_000_000 => Timestamp::from_second(count),
        100_000_000_000..100_000_000_000_000 => Timestamp::from_millisecond(count),
        100_000_000_000_000..100_000_000_000_000_000 => Timestamp::from_microsecond(count),
        _ => Timestamp::from_nanosecond(count.into()),
    };
    at.ok()
}

/// A time with at most [`DECIMALS`] decimals.
fn without_more_decimals(text: &str) -> Cow<'_, str> {
    let Some((whole, rest)) = text.split_once('.') else { return text.into() };
    let decimals = rest.bytes().take_while(u8::is_ascii_digit).count();
    if decimals <= DECIMALS {
        return text.into();
    }
    format!("{whole}.{}{}", &rest[..DECIMALS], &rest[decimals..]).into()
}

/// Whether a time ends with an offset of RFC 3339: Z, or hours below 24 and minutes below 60. The
/// parser accepts more than that.
fn has_offset(text: &str) -> bool {
    let is_below = |tens: u8, ones: u8, end: u8| {
        tens.is_ascii_digit() && ones.is_ascii_digit() && (tens - b'0') * 10 + (ones - b'0') < end
    };
    match text.as_bytes() {
        [.., b'Z' | b'z'] => true,
        [.., b'+' | b'-', h, hh, b':', m, mm] => is_below(*h, *hh, 24) && is_below(*m, *mm, 60),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_one_of_rfc_3339_with_any_offset_and_any_number_of_decimals() {
        let second = 1_767_225_600_000_000_000;
        for (text, nanos) in [
            ("2026-01-01T00:00:00Z", second),
            ("2026-01-01T01:30:00.000000007+01:30", second + 7),
            ("2026-01-01t00:00:00z", second),
            ("2026-01-01T00:00:00.123456789987Z", second + 123_456_789),
            (&format!("2026-01-01T01:30:00.{}+01:30", "9".repeat(60)), second + 999_999_999),
            ("1969-12-31T23:59:59Z", 0),
            ("9999-01-01T00:00:00Z", u64::MAX),
        ] {
            assert_eq!(read(text), Some(Time::from_nanos(nanos)), "{text}");
        }
        for text in [
            "",
            "2026-01-01",
            "12:00:00",
            "2026-02-30T00:00:00Z",
            "2026-01-01T00:00:00",
            "2026-01-01T00:00:00.Z",
            "2026-01-01T00:00:00+24:00",
            "2026-01-01T00:00:00+0130",
            "2026-01-01T00:00:00.1234567890123-01",
            "1767225600",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn what_means_a_moment_otherwise_is_told_how_it_is_written() {
        for (value, written) in [
            ("2026-03-01", "2026-03-01T00:00:00Z"),
            ("2026-03-01T12:00Z", EXAMPLE),
            ("2026-03-01 12:00", EXAMPLE),
            ("1767225600", "2026-01-01T00:00:00Z"),
            ("1767225600.25", "2026-01-01T00:00:00Z"),
            ("1767225600123", "2026-01-01T00:00:00.123Z"),
            ("1767225600123456", "2026-01-01T00:00:00.123456Z"),
            ("1767225600123456789", "2026-01-01T00:00:00.123456789Z"),
        ] {
            let words = "a moment is written as in RFC 3339, with date, time and offset, as ";
            assert_eq!(
                advice(value).as_deref().and_then(|advice| advice.strip_prefix(words)),
                Some(written),
                "{value}"
            );
        }
        for value in ["", "junk", "13:5", "2026-02-30", "-5", "1.2.3x", "99999999999999999999"] {
            assert_eq!(advice(value), None, "{value}");
        }
    }
}
