//! Arguments that the ways of measuring share.

use std::time::Duration;

use super::case::Bounds;
use super::closed_loop::Timing;
use super::measure::Settings;

/// What all ways of measuring have in common.
#[derive(Clone, Debug, clap::Args)]
pub(in crate::bench) struct LoadArgs {
    /// Bytes of a message's body
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(8..=65_536))]
    body: u32,

    /// Messages of a publisher that its slowest subscriber has not received yet, at most: enough
    /// for a broker to batch (100 KB with 100-byte bodies), and few enough that no broker's queue
    /// drops any
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    window: u64,

    /// Messages of a publisher that the broker has not acknowledged yet, at most (QoS 1)
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=65_535))]
    unacked: u64,

    /// Seconds of warm-up before each measurement
    #[arg(long, default_value = "0.5", value_parser = seconds)]
    warm_up: Duration,

    /// Seconds of each measurement
    #[arg(long, default_value = "2", value_parser = seconds)]
    seconds: Duration,

    /// Connections in the idle case
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    connections: u32,
}

impl LoadArgs {
    /// The same, as the measurements take it.
    pub(in crate::bench) fn settings(&self) -> Settings {
        Settings {
            bounds: Bounds { body: self.body as usize, window: self.window, unacknowledged: self.unacked },
            timing: Timing { warm_up: self.warm_up, measure: self.seconds },
            connections: self.connections as usize,
        }
    }
}

/// Parses a time of up to an hour, in seconds.
///
/// # Errors
/// Why the text is none.
pub(in crate::bench) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("{text} is no number of seconds"))?;
    if !(0.0..=3600.0).contains(&seconds) {
        return Err(format!("{text} seconds: between 0 and 3600 are possible"));
    }
    Ok(Duration::from_secs_f64(seconds))
}
