//! A histogram of latencies, as text.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{Value, json};

/// Latencies from a microsecond to a minute are distinguished, to two digits.
const LONGEST: u64 = 60_000_000;

/// The width of the longest bar.
const BAR: u64 = 40;

/// The quantiles that are shown.
const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];

/// Measured latencies.
pub(super) struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies(Histogram::new_with_bounds(1, LONGEST, 2).expect("the bounds are in order"))
    }
}

impl Latencies {
    pub(super) fn note(&mut self, latency: Duration) {
        self.0.saturating_record(u64::try_from(latency.as_micros()).unwrap_or(LONGEST).max(1));
    }

    pub(super) fn add(&mut self, others: &Latencies) {
        self.0.add(&others.0).expect("both have the same bounds");
    }

    /// Quantiles in a line, then a line for each power of two, in milliseconds.
    pub(super) fn lines(&self, what: &str) -> Vec<String> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let millis = |micros: u64| micros as f64 / 1e3;
        let told = QUANTILES.map(|(name, at)| format!("{name} {:.3}", millis(self.0.value_at_quantile(at))));
        let most = millis(self.0.max());
        let mut lines = vec![format!("{what}, ms: {}  max {most:.3}", told.join("  "))];
        let buckets: Vec<(u64, u64)> = self
            .0
            .iter_log(1, 2.0)
            .map(|step| (step.value_iterated_to(), step.count_since_last_iteration()))
            .skip_while(|(_, count)| *count == 0)
            .collect();
        let longest = buckets.iter().map(|(_, count)| *count).max().unwrap_or(1);
        lines.extend(buckets.into_iter().map(|(until, count)| {
            let bar = "#".repeat((count * BAR).div_ceil(longest) as usize);
            format!("  ≤ {:>10.3}  {count:>10}  {bar}", millis(until)).trim_end().to_owned()
        }));
        lines
    }

    pub(super) fn json(&self) -> Value {
        if self.0.is_empty() {
            return Value::Null;
        }
        let quantiles = QUANTILES.map(|(name, at)| (name.to_owned(), json!(self.0.value_at_quantile(at))));
        let mut told: serde_json::Map<String, Value> = quantiles.into_iter().collect();
        told.insert("mean".to_owned(), json!(self.0.mean().round() as u64));
        told.insert("max".to_owned(), json!(self.0.max()));
        told.insert("count".to_owned(), json!(self.0.len()));
        Value::Object(told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_tells_quantiles_and_buckets() {
        let mut latencies = Latencies::default();
        assert!(latencies.lines("nothing").is_empty() && latencies.json().is_null());
        for _ in 0..99 {
            latencies.note(Duration::from_micros(100));
        }
        latencies.note(Duration::from_millis(50));
        let lines = latencies.lines("latency");
        assert!(lines[0].starts_with("latency, ms: p50 0.100  p90 0.100"), "{lines:?}");
        assert!(lines[1].contains(" 99  ####"), "{lines:?}");
        let counted: u64 =
            lines[1..].iter().filter_map(|line| line.split_whitespace().nth(2)?.parse::<u64>().ok()).sum();
        assert_eq!(counted, 100, "{lines:?}");
        assert_eq!((&latencies.json()["p50"], &latencies.json()["count"]), (&json!(100), &json!(100)));
    }
}
