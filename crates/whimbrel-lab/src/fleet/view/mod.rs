//! The view of a run: a live screen on a terminal, a status line every few seconds elsewhere.

mod alarms;
mod freight;
pub mod plain;
mod regions;
mod roaming;
pub mod screen;
pub mod terminal;

use std::time::Duration;

use super::board::Snapshot;

/// The data that do not change during a run.
#[derive(Clone, Debug)]
pub struct Titles {
    /// The trace that is replayed.
    pub trace: String,
    /// Its number of lines.
    pub lines: usize,
    /// Its number of vehicles.
    pub vehicles: usize,
    /// The speed relative to the recording.
    pub speed_up: f64,
    /// The broker's address, `127.0.0.1:PORT`, and whose it is.
    pub broker: String,
    /// The address at which other clients can connect: `HOST:PORT`.
    pub address: String,
    /// The URL of an own broker's console.
    pub console: Option<String>,
    /// The attribution of the data, if they need one.
    pub notice: Option<String>,
}

/// A span as `1:02:03` or `02:03`.
pub fn clock(span: Duration) -> String {
    let seconds = span.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes:02}:{seconds:02}") }
}

/// A whole number with separated thousands.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Milliseconds with a sensible number of decimals.
pub fn millis(value: f64) -> String {
    match value {
        _ if value < 10.0 => format!("{value:.2}"),
        _ if value < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// A share in hundredths of a percent as a percentage, or a dash.
pub fn percent(share: Option<u64>) -> String {
    share.map_or("–".to_owned(), |share| format!("{}.{:02} %", share / 100, share % 100))
}

/// Broken promises and messages that seem lost so far.
pub fn faults(snapshot: &Snapshot) -> u64 {
    let (tally, _, missing) = &snapshot.reliable;
    let best_effort = snapshot.best_effort.0.faults(super::checker::Promise::BestEffort);
    let freight = snapshot.freight.as_ref().map_or(0, |freight| freight.seeming_faults());
    tally.faults(super::checker::Promise::Reliable)
        + missing
        + best_effort
        + snapshot.roaming.seeming_faults()
        + freight
        + snapshot.alarms.map_or(0, |alarms| alarms.counts.faults())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shown_for_people() {
        assert_eq!(["7", "1,234", "12,345,678"], [7, 1_234, 12_345_678].map(grouped).each_ref().map(|text| &**text));
        assert_eq!(clock(Duration::from_secs(59)), "00:59");
        assert_eq!(clock(Duration::from_secs(3_723)), "1:02:03");
        assert_eq!([None, Some(10_000), Some(9_905)].map(percent), ["–", "100.00 %", "99.05 %"]);
        assert_eq!([0.416, 12.34, 512.3].map(millis), ["0.42", "12.3", "512"]);
    }
}
