//! Load generator: the cost of a broker per message, measured with the same load for every broker.

pub mod accounts;
pub mod case;
mod clients;
pub mod closed_loop;
pub mod compare;
mod durable;
pub mod idle;
pub mod latency;
pub mod link;
pub(crate) mod load;
pub mod lowat;
pub mod measure;
mod overlay;
pub mod peers;
mod plot;
pub mod process;
pub mod report;
mod rows;
mod semi;
pub mod stats;
pub mod target;
#[cfg(test)]
mod test_broker;
pub mod transport;
mod transports;
pub mod wire;

use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::durable::calibrate;
use crate::output::say;
use crate::progress;
use case::Case;
use load::LoadArgs;
use measure::{Metric, Sample};
use target::Target;

/// Measure what a broker costs per message
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    one: OneArgs,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Start this broker and its peers in turn, and compare them
    Compare(compare::CompareArgs),
    /// Measure what semi-durable subscriptions cost
    SemiDurable(Box<semi::SemiArgs>),
    /// Measure what the journal and durable subscriptions cost, beside the disk alone and beside
    /// other brokers
    Durable(Box<durable::DurableArgs>),
    /// Open connections to a running broker at a pace, and hold them
    Conn(clients::conn::Args),
    /// Publish to a running broker at a rate, and measure how soon it acknowledges
    Pub(clients::publish::Args),
    /// Subscribe at a running broker, and measure how soon the messages of `bench pub` come
    Sub(clients::subscribe::Args),
    /// Measure what a hop between brokers adds: time, CPU, and bytes
    Overlay(overlay::OverlayArgs),
    /// Measure what TLS and WebSocket cost the broker per message, beside plain TCP
    Transports(transports::TransportsArgs),
}

/// A measurement of one running broker.
#[derive(Debug, clap::Args)]
struct OneArgs {
    /// Broker to load: mqtt://HOST:PORT (MQTT 3.1.1), mqtt5://HOST:PORT or nats://HOST:PORT; MQTT
    /// over TLS and WebSocket with +tls, +ws or +wss, as mqtt+tls://HOST:PORT
    #[arg(long)]
    target: Option<Target>,

    /// Process id of the broker, to account for its CPU time and memory
    #[arg(long)]
    pid: Option<u32>,

    /// Cases to run, in this order
    #[arg(
        long = "case",
        value_enum,
        ignore_case = true,
        num_args = 1..,
        value_delimiter = ',',
        default_values = ["a", "b10", "b100", "c", "d", "e", "f"]
    )]
    cases: Vec<Case>,

    #[command(flatten)]
    load: LoadArgs,

    /// Core to bind the broker to (with --pid)
    #[arg(long, requires = "pid")]
    broker_core: Option<usize>,

    /// Core to bind the generator to
    #[arg(long)]
    generator_core: Option<usize>,

    /// Instead, measure what each operation of brokers of this program costs, as the modelled rows
    /// of experiments do in their own run
    #[arg(long, conflicts_with_all = ["target", "pid", "cases"])]
    calibrate: bool,

    /// With --calibrate: print the costs as JSON
    #[arg(long, requires = "calibrate")]
    json: bool,
}

/// Runs the measurement that `args` asks for and prints it. The exit code is 1 when messages were
/// lost or a goal was missed.
///
/// # Errors
/// When a broker cannot be started or reached, refuses, or breaks the protocol.
pub fn run(args: &Args) -> Result<ExitCode> {
    let passed = match &args.command {
        Some(Command::Compare(args)) => compare::run(args)?,
        Some(Command::SemiDurable(args)) => semi::run(args)?,
        Some(Command::Durable(args)) => durable::run(args)?,
        Some(Command::Conn(args)) => clients::conn::run(args)?,
        Some(Command::Pub(args)) => clients::publish::run(args)?,
        Some(Command::Sub(args)) => clients::subscribe::run(args)?,
        Some(Command::Overlay(args)) => overlay::run(args)?,
        Some(Command::Transports(args)) => transports::run(args)?,
        None => run_one(&args.one)?,
    };
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Measures one running broker; returns whether nothing was lost.
fn run_one(args: &OneArgs) -> Result<bool> {
    if args.calibrate {
        return calibrate(args.json);
    }
    let target = args.target.context("a target is needed: --target mqtt://HOST:PORT, or `bench compare`")?;
    if let Some((pid, core)) = args.pid.zip(args.broker_core) {
        process::pin(pid, core)?;
    }
    if let Some(core) = args.generator_core {
        process::pin(std::process::id(), core)?;
    }
    let mut clean = true;
    for case in &args.cases {
        let target = case.target_of_whimbrel(target);
        let sample = measure::measure(*case, target, args.pid, &args.load.settings())?;
        say(line(*case, &sample))?;
        clean &= sample.get(&Metric::Lost).is_none_or(|lost| *lost == 0.0);
    }
    Ok(clean)
}

/// Measures and prints the costs of operations.
fn calibrate(json: bool) -> Result<bool> {
    let bar = progress::bar(calibrate::STEPS);
    bar.set_message("costs");
    let found = calibrate::measure(false, &bar)?;
    bar.finish_and_clear();
    if json {
        say(found.to_json())?;
    } else {
        found.lines().iter().try_for_each(say)?;
    }
    Ok(true)
}

/// A case with its figures on one line.
fn line(case: Case, sample: &Sample) -> String {
    let mut line = format!("{:<5} {:<24}", case.id(), case.title());
    for (metric, value) in sample {
        line.push_str(&format!("  {} {} {}", metric.title(), report::number(*value), metric.unit()));
    }
    line
}
