//! The format of alarms.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The first level of all topics of alarms.
const ROOT: &str = "alarm";

/// The body of an alarm, as JSON.
#[derive(Serialize, Deserialize)]
struct AlarmReport {
    /// The publisher's number for it: 1, 2, 3, ...
    alarm: u64,
    /// When it was published, µs on the run's clock.
    at_us: u64,
}

/// The topic of a region's alarms.
pub fn topic(region: &str) -> String {
    format!("{ROOT}/{region}")
}

/// The body of an alarm.
pub fn write(number: u64, at: Duration) -> Vec<u8> {
    let at_us = u64::try_from(at.as_micros()).unwrap_or(u64::MAX);
    serde_json::to_vec(&AlarmReport { alarm: number, at_us }).expect("numbers can always be written as JSON")
}

/// The number of an alarm that arrived, and when it was published; `None` if it is not an alarm.
pub fn read(body: &[u8]) -> Option<(u64, Duration)> {
    let AlarmReport { alarm, at_us } = serde_json::from_slice(body).ok()?;
    Some((alarm, Duration::from_micros(at_us)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alarm_is_read_as_it_was_written() {
        let at = Duration::from_micros(1_234_567);
        assert_eq!(read(&write(7, at)), Some((7, at)));
        assert_eq!(topic("warsaw"), "alarm/warsaw");
        assert_eq!(read(b"7"), None);
    }
}
