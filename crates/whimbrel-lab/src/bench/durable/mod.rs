//! The costs of the journal and of durable subscriptions: publishing, compared with the journal
//! alone, the bare disk and JetStream; an absent session's backlog, compared with other brokers; a
//! durable delivery, compared with a nondurable one; the start on a long log; the memory of absent
//! sessions; and the cost for brokers that need none of it.

mod against;
mod alone;
mod backlog;
mod delivery;
mod memory;
mod plot;
mod publish;
mod publishers;
mod start;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use hdrhistogram::Histogram;

use super::load::{LoadArgs, StartArgs};
use super::peers::{Peer, Programs, Running, Setup};
use super::rows::{self, Row};
use crate::output::say;

/// Parts of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Section {
    /// The journal alone beside bare writes and syncs
    Journal,
    /// Publishing, beside the journal alone and JetStream
    Publish,
    /// A backlog of an absent session is queued and drained, beside other brokers
    Backlog,
    /// CPU time per delivery, beside nondurable subscriptions
    Delivery,
    /// The start on a long log
    Start,
    /// Memory of sessions that are absent
    Memory,
    /// CPU time per delivery without a data directory, beside another build (--against)
    Against,
}

/// What to measure.
#[derive(Debug, clap::Args)]
pub struct DurableArgs {
    /// Parts to measure
    #[arg(long = "section", value_enum, num_args = 1.., value_delimiter = ',', default_values = ["publish", "backlog", "delivery", "start", "memory"])]
    sections: Vec<Section>,

    /// Rounds; in each, everything is measured once
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,

    #[command(flatten)]
    load: LoadArgs,

    /// Brokers to compare with
    #[arg(long = "broker", value_enum, num_args = 1.., value_delimiter = ',', default_values_t = [Peer::Mosquitto, Peer::Rumqttd, Peer::JetStream])]
    brokers: Vec<Peer>,

    /// Folder on the disk to measure
    #[arg(long, default_value = "target/bench-durable")]
    disk: PathBuf,

    /// Publishers of the groups whose publishing is measured
    #[arg(long, num_args = 1.., value_delimiter = ',', default_values_t = [1, 16])]
    publishers: Vec<usize>,

    /// Gigabytes of the log that the broker is started on
    #[arg(long, default_value_t = 10.0)]
    gigabytes: f64,

    #[command(flatten)]
    start: StartArgs,

    /// Another build of this broker
    #[arg(long)]
    against: Option<PathBuf>,

    /// Folder of the peers that bench/install-peers.sh installs
    #[arg(long, default_value = "target/bench-peers")]
    peers: PathBuf,

    /// Folder for durable.json and the plots
    #[arg(long, default_value = "bench-out")]
    out: PathBuf,
}

impl DurableArgs {
    fn programs(&self) -> Programs {
        Programs { whimbrel: self.start.program(), peers: self.peers.clone() }
    }

    /// A broker that has all cores, with its data on the disk.
    fn free(&self, settings: &'static str) -> Setup<'_> {
        Setup { own_core: Some(self.start.generator_core), settings, disk: Some(&self.disk), ..Setup::default() }
    }

    /// A broker on its core, with its data on the disk.
    fn bound(&self, settings: &'static str) -> Setup<'_> {
        Setup { core: Some(self.start.broker_core), ..self.free(settings) }
    }

    fn start(&self, peer: Peer, setup: Setup<'_>) -> Result<Running> {
        Running::start_with(peer, &self.programs(), setup)
    }

    /// How long is measured, and how long the warm-up before it is.
    fn timing(&self) -> (Duration, Duration) {
        let timing = self.load.settings().timing;
        (timing.warm_up, timing.measure)
    }
}

/// The number of publishers, and their windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Grouping {
    publishers: usize,
    /// Unacknowledged messages of each publisher, at most.
    window: usize,
}

/// The measured rate of something that makes messages durable.
#[derive(Clone, Copy, Debug)]
struct Rate {
    /// Messages per second.
    rate: f64,
    /// CPU microseconds per message.
    cpu: Option<f64>,
    /// Commits per second.
    commits: Option<f64>,
    /// The median and 99th percentile of the time until a message was acknowledged, microseconds.
    waits: [f64; 2],
    elapsed: Duration,
}

impl Rate {
    fn of(messages: u64, elapsed: Duration, cpu: Option<Duration>, waits: &Histogram<u64>) -> Rate {
        Rate {
            rate: messages as f64 / elapsed.as_secs_f64(),
            cpu: cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / messages as f64),
            commits: None,
            waits: [0.5, 0.99].map(|quantile| waits.value_at_quantile(quantile) as f64 / 1e3),
            elapsed,
        }
    }

    fn with_commits(self, commits: u64) -> Rate {
        Rate { commits: Some(commits as f64 / self.elapsed.as_secs_f64()), ..self }
    }
}

/// A histogram for times in nanoseconds, up to ten seconds.
fn latencies() -> Histogram<u64> {
    Histogram::new_with_bounds(100, 10_000_000_000, 3).expect("these bounds are possible")
}

/// Measures what `args` asks for, prints the table and writes JSON and plots; returns whether every
/// goal was met.
///
/// # Errors
/// When a broker cannot be started, refuses, or breaks the protocol.
pub fn run(args: &DurableArgs) -> Result<bool> {
    args.start.check_cores()?;
    for folder in [&args.disk, &args.out] {
        std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    }
    let mut rows: Vec<Row> = Vec::new();
    for section in &args.sections {
        rows.extend(match section {
            Section::Journal => publish::journal(args)?,
            Section::Publish => publish::rows(args)?,
            Section::Backlog => backlog::rows(args)?,
            Section::Delivery => delivery::rows(args)?,
            Section::Start => start::rows(args)?,
            Section::Memory => memory::rows(args)?,
            Section::Against => against::rows(args)?,
        });
    }
    say(rows::table(&rows).trim_end())?;
    let text =
        rows::json("bench durable", (args.start.seed, args.rounds), &rows).context("writing the figures as JSON")?;
    let json = args.out.join("durable.json");
    std::fs::write(&json, text + "\n").with_context(|| format!("writing {}", json.display()))?;
    say(format_args!("written: {}", written(&json, &plot::write(&rows, &args.out)?)))?;
    Ok(rows.iter().all(|row| row.met != Some(false)))
}

fn written(json: &Path, plots: &[PathBuf]) -> String {
    let paths = std::iter::once(json).chain(plots.iter().map(PathBuf::as_path));
    paths.map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}
