//! Load generator: what a broker costs per message, measured with the same load for every broker.

mod accounts;
pub mod case;
pub mod closed_loop;
pub mod link;
mod lowat;
pub mod process;
pub mod target;
#[cfg(test)]
mod test_broker;
pub mod wire;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;

use case::{Bounds, Case};
use closed_loop::{Outcome, Timing};
use process::CpuClock;
use target::Target;

/// Messages on the way to the slowest subscriber.
const DEFAULT_WINDOW: u64 = 1000;

/// Measure what a broker costs per message.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Broker to load: mqtt://HOST:PORT (MQTT 3.1.1), mqtt5://HOST:PORT or nats://HOST:PORT
    #[arg(long)]
    target: Target,

    /// Process id of the broker, to account for its CPU time
    #[arg(long)]
    pid: Option<u32>,

    /// Cases to run, in this order
    #[arg(long = "case", value_enum, num_args = 1.., value_delimiter = ',', default_values = ["a", "b10", "b100", "c", "d", "e"])]
    cases: Vec<Case>,

    #[command(flatten)]
    load: LoadArgs,

    /// Core to bind the broker to (with --pid)
    #[arg(long, requires = "pid")]
    broker_core: Option<usize>,

    /// Core to bind the generator to
    #[arg(long)]
    generator_core: Option<usize>,
}

/// What all ways of measuring have in common.
#[derive(Clone, Debug, clap::Args)]
struct LoadArgs {
    /// Bytes of a message's body
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(8..=65_536))]
    body: u32,

    /// Messages of a publisher that its slowest subscriber has not received yet, at most
    #[arg(long, default_value_t = DEFAULT_WINDOW)]
    window: u64,

    /// Messages of a publisher that the broker has not acknowledged yet, at most (QoS 1)
    #[arg(long, default_value_t = 100)]
    unacked: u64,

    /// Seconds of warm-up before each measurement
    #[arg(long, default_value_t = 0.5)]
    warm_up: f64,

    /// Seconds of each measurement
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
}

impl LoadArgs {
    fn bounds(&self) -> Bounds {
        Bounds { body: self.body as usize, window: self.window, unacknowledged: self.unacked }
    }

    fn timing(&self) -> Timing {
        Timing { warm_up: Duration::from_secs_f64(self.warm_up), measure: Duration::from_secs_f64(self.seconds) }
    }
}

/// Runs the measurement that `args` asks for and prints it. The exit code is 1 when a broker lost messages.
///
/// # Errors
/// When a broker cannot be reached, refuses, or breaks the protocol.
pub fn run(args: &Args) -> Result<ExitCode> {
    if let Some((pid, core)) = args.pid.zip(args.broker_core) {
        process::pin(pid, core)?;
    }
    if let Some(core) = args.generator_core {
        process::pin(std::process::id(), core)?;
    }
    let clock = args.pid.map(CpuClock::of).transpose()?;
    let mut clean = true;
    println!(
        "{:<24} {:>12} {:>14} {:>14} {:>10} {:>8}",
        "case", "messages/s", "broker µs/msg", "own µs/msg", "msgs/read", "lost"
    );
    for case in &args.cases {
        let outcome = closed_loop::run(args.target, &case.load(args.load.bounds()), &args.load.timing(), clock)?;
        print_outcome(*case, &outcome);
        clean &= outcome.lost == 0;
    }
    Ok(if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print_outcome(case: Case, outcome: &Outcome) {
    let broker = outcome.broker_micros().map_or("-".to_owned(), |micros| format!("{micros:.3}"));
    println!(
        "{:<24} {:>12.0} {:>14} {:>14.3} {:>10.1} {:>8}",
        format!("{case:?} {}", case.title()),
        outcome.rate(),
        broker,
        outcome.own_micros(),
        outcome.per_read(),
        outcome.lost
    );
}
