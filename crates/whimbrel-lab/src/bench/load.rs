//! Arguments that the ways of measuring share.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::case::Bounds;
use super::closed_loop::Timing;
use super::measure::Settings;
use super::process;

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

/// What all ways of measuring that start brokers have in common.
#[derive(Clone, Debug, clap::Args)]
pub(in crate::bench) struct StartArgs {
    /// Binary of this broker [default: the one that runs, or target/release/whimbrel]
    #[arg(long)]
    pub(in crate::bench) whimbrel: Option<PathBuf>,

    /// Core of the broker where CPU time is measured
    #[arg(long, default_value_t = 0)]
    pub(in crate::bench) broker_core: usize,

    /// Core of the generator
    #[arg(long, default_value_t = 1)]
    pub(in crate::bench) generator_core: usize,

    /// Seed of the order within a round, of drawn values and of the bootstrap
    #[arg(long, default_value_t = 1)]
    pub(in crate::bench) seed: u64,
}

impl StartArgs {
    /// This broker's program.
    pub(in crate::bench) fn program(&self) -> PathBuf {
        self.whimbrel.clone().unwrap_or_else(own_program)
    }

    /// Checks that broker and generator can have a core each.
    ///
    /// # Errors
    /// The machine has too few cores, or both are to have the same.
    pub(in crate::bench) fn check_cores(&self) -> Result<()> {
        let cores = process::cores();
        ensure!(cores >= 2, "broker and generator need a core each, and this machine has {cores}");
        ensure!(self.broker_core != self.generator_core, "broker and generator need different cores");
        Ok(())
    }

    /// Pairs each of `rounds` rounds with all things, in a new random order per round.
    pub(in crate::bench) fn shuffled<T: Copy>(&self, rounds: u32, things: &[T]) -> Vec<(u32, T)> {
        let mut random = fastrand::Rng::with_seed(self.seed);
        let mut plan = Vec::new();
        for round in 0..rounds {
            let mut order = things.to_vec();
            random.shuffle(&mut order);
            plan.extend(order.into_iter().map(|thing| (round, thing)));
        }
        plan
    }
}

/// The running program, unless it is the load generator on its own.
pub(crate) fn own_program() -> PathBuf {
    let own = std::env::current_exe().ok().filter(|path| path.file_name().is_some_and(|name| name == "whimbrel"));
    own.unwrap_or_else(|| PathBuf::from("target/release/whimbrel"))
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
