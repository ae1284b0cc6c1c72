//! The formats of times in recordings.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// Unix times above these are milliseconds, microseconds and nanoseconds: as seconds they would be
/// after the year 5138.
const MILLIS_FROM: f64 = 1e11;
const MICROS_FROM: f64 = 1e14;
const NANOS_FROM: f64 = 1e17;
/// The year 10000: dates have no later ones either.
const MILLIS_UNTIL: f64 = 253_402_300_800_000.0;

/// Unix time in the unit that its size implies, as ms.
pub fn unix(number: f64) -> Option<i64> {
    let millis = match number {
        _ if !number.is_finite() || number < 0.0 => return None,
        _ if number >= NANOS_FROM => number / 1e6,
        _ if number >= MICROS_FROM => number / 1e3,
        _ if number >= MILLIS_FROM => number,
        _ => number * 1e3,
    };
    (millis < MILLIS_UNTIL).then(|| millis.round() as i64)
}

/// Unix time or a date with a time of day, as ms since the Unix epoch.
pub fn millis(text: &str) -> Option<i64> {
    match text.parse::<f64>() {
        Ok(number) => unix(number),
        Err(_) => date_and_time(text),
    }
}

/// RFC 3339, also with a space for the `T`, with an offset in hours only, with `UTC` or `GMT` after
/// it, or without a zone, which is UTC: ms since the Unix epoch. A date alone is not accepted.
pub fn date_and_time(text: &str) -> Option<i64> {
    let text = ["UTC", "GMT"].iter().find_map(|zone| text.strip_suffix(zone)).unwrap_or(text).trim();
    if !text.contains(':') {
        return None;
    }
    let moment = text.parse::<Timestamp>().or_else(|_| {
        let civil = text.parse::<DateTime>()?;
        civil.to_zoned(TimeZone::UTC).map(|zoned| zoned.timestamp())
    });
    moment.ok().map(Timestamp::as_millisecond)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unix_times_have_the_unit_that_fits() {
        assert_eq!(millis("1708354800"), Some(1_708_354_800_000));
        assert_eq!(millis("1708354800.25"), Some(1_708_354_800_250));
        assert_eq!(millis("1708354800250"), Some(1_708_354_800_250));
        assert_eq!(millis("1708354800250000"), Some(1_708_354_800_250));
        assert_eq!(millis("1708354800250000000"), Some(1_708_354_800_250));
        assert_eq!(millis("0"), Some(0));
        for none in ["1e300", "1e21", "-1", "inf", "nan"] {
            assert_eq!(millis(none), None, "{none}");
        }
    }

    #[test]
    fn dates_have_a_zone_or_are_utc() {
        for text in [
            "2024-02-19T15:00:00Z",
            "2024-02-19T15:00:00",
            "2024-02-19 15:00:00",
            "2024-02-19 15:00",
            "2024-02-19 15:00:00 UTC",
            "2024-02-19 15:00:00 GMT",
            "2024-02-19T15:00:00.000Z",
            "2024-02-19 16:00:00+01:00",
            "2024-02-19 16:00:00+01",
            "2024-02-19T17:00:00+02:00",
        ] {
            assert_eq!(millis(text), Some(1_708_354_800_000), "{text}");
        }
        assert_eq!(millis("2024-02-19 15:00:00.250"), Some(1_708_354_800_250));
    }

    #[test]
    fn anything_else_is_no_time() {
        for nonsense in [
            "",
            "noon",
            "-5",
            "NaN",
            "inf",
            "2024-02-30T00:00:00Z",
            "15:00:00",
            "2024-02-19",
            "19.02.2024 15:00:00",
            "UTC",
        ] {
            assert_eq!(millis(nonsense), None, "{nonsense}");
        }
    }
}
