//! Measured round trips between brokers: a file of `src,dst,rtt_ms` below a header.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};

use super::links::{BROKERS_MAX, Pair};

/// The longest name of a broker, bytes.
const NAME_BYTES_MAX: usize = 64;

/// The longest round trip, ms.
const ROUND_TRIP_MAX_MS: f64 = 60_000.0;

/// The greatest size of a file, bytes: each pair of [`BROKERS_MAX`] in both directions, with names
/// of average length.
const FILE_BYTES_MAX: u64 = 128 << 20;

/// The measured round trips.
#[derive(Clone, PartialEq, Debug)]
pub struct Trips {
    /// The brokers, in order of their names.
    pub names: Vec<String>,
    /// The pairs that were measured.
    pub pairs: Vec<Pair>,
}

impl Trips {
    /// Loads a file.
    ///
    /// # Errors
    /// When it cannot be read, or is malformed: see [`Trips::parse`].
    pub fn load(file: &Path) -> Result<Trips> {
        let reading = || format!("cannot read {}", file.display());
        let bytes = std::fs::metadata(file).with_context(reading)?.len();
        ensure!(bytes <= FILE_BYTES_MAX, "{} has more than {FILE_BYTES_MAX} bytes", file.display());
        let text = std::fs::read_to_string(file).with_context(reading)?;
        Trips::parse(&text).with_context(|| file.display().to_string())
    }

    /// Parses a text. A pair may be measured from either end or from both, of which the mean
    /// counts; a missing pair was not measured.
    ///
    /// # Errors
    /// When a row does not have three fields, has an invalid name, has no round trip of up to a
    /// minute, or is a duplicate; when there are fewer than two brokers, or more than
    /// [`BROKERS_MAX`].
    pub fn parse(text: &str) -> Result<Trips> {
        let mut measured: BTreeMap<(String, String), f64> = BTreeMap::new();
        let mut numbers: BTreeMap<String, usize> = BTreeMap::new();
        for (at, line) in text.lines().enumerate().skip(1).filter(|(_, line)| !line.trim().is_empty()) {
            let row: Vec<&str> = line.split(',').map(str::trim).collect();
            let mut take = || -> Result<()> {
                let [from, to, trip] = row[..] else { bail!("not three fields: src,dst,rtt_ms") };
                ensure!(is_name(from) && is_name(to), "a broker's name is 1 to 64 letters, digits, `.`, `_`, `-`");
                let span = trip.parse().ok().filter(|span| (0.0..=ROUND_TRIP_MAX_MS).contains(span));
                let span = span.ok_or_else(|| anyhow!("`{trip}` is no round trip, ms"))?;
                if from != to {
                    [from, to].into_iter().for_each(|name| _ = numbers.insert(name.to_owned(), 0));
                    let before = measured.insert((from.to_owned(), to.to_owned()), span);
                    ensure!(before.is_none(), "from {from} to {to} was there before");
                }
                ensure!(numbers.len() <= BROKERS_MAX, "more than {BROKERS_MAX} brokers");
                Ok(())
            };
            take().with_context(|| format!("line {}", at + 1))?;
        }
        ensure!(numbers.len() > 1, "no round trips: a head line `src,dst,rtt_ms`, and a line for each pair of brokers");
        numbers.values_mut().zip(0..).for_each(|(number, at)| *number = at);
        let pair = |((from, to), span): (&(String, String), &f64)| {
            let back = measured.get(&(to.clone(), from.clone()));
            // Counted once for both directions.
            let counts = back.is_none() || from < to;
            let span = back.map_or(*span, |back| f64::midpoint(*span, *back));
            let (one, other) = (numbers[from], numbers[to]);
            let delay = Duration::from_secs_f64(span / 2_000.0);
            counts.then_some(Pair { delay, ends: [one.min(other), one.max(other)] })
        };
        let pairs = measured.iter().filter_map(pair).collect();
        Ok(Trips { names: numbers.into_keys().collect(), pairs })
    }
}

/// Whether a broker may have this name.
fn is_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_counts_once_with_the_mean_of_both_directions() {
        let trips = Trips::parse("src,dst,rtt_ms\nb,a,10\n\na, b ,14\nc,b,7\nc,c,0\n").expect("a good file");
        let pair = |ends, micros| Pair { delay: Duration::from_micros(micros), ends };
        assert_eq!(trips.names, ["a", "b", "c"]);
        assert_eq!(trips.pairs, [pair([0, 1], 6_000), pair([1, 2], 3_500)]);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let told = |text: &str| format!("{:#}", Trips::parse(text).expect_err("wrong"));
        assert_eq!(told("head\na,b\n"), "line 2: not three fields: src,dst,rtt_ms");
        assert_eq!(told("head\na,b c,1\n"), "line 2: a broker's name is 1 to 64 letters, digits, `.`, `_`, `-`");
        assert_eq!(told("head\na,b,1\na,c,-1\n"), "line 3: `-1` is no round trip, ms");
        assert_eq!(told("head\na,b,NaN\n"), "line 2: `NaN` is no round trip, ms");
        assert_eq!(told("head\na,b,1\na,b,2\n"), "line 3: from a to b was there before");
        assert!(told("a,b,1\n").starts_with("no round trips: "));
        let many: String = (0..BROKERS_MAX).map(|number| format!("a,b{number},1\n")).collect();
        assert_eq!(told(&format!("head\n{many}")), "line 1025: more than 1024 brokers");
    }
}
