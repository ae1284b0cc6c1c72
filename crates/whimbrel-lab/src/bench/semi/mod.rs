//! The cost of semi-durable subscriptions: per delivery, in memory, and when all their clients
//! return at once.

mod cost;
mod crowd;
mod memory;
mod storm;
mod wanted;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::compare::own_program;
use super::load::LoadArgs;
use super::peers::{Peer, Programs, Running, Setup};
use super::process;
use super::rows::{self, Row};
use super::wire::Protocol;
use crate::output::say;

/// Parts of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Section {
    /// CPU time per delivery, beside nondurable subscriptions
    Delivery,
    /// CPU time per delivery to nondurable subscriptions, beside another build (--against)
    Against,
    /// All subscribers come back at once
    Storm,
    /// Resident memory of a broker whose cache is full
    Memory,
}

/// What to measure.
#[derive(Debug, clap::Args)]
pub struct SemiArgs {
    /// Parts to measure
    #[arg(long = "section", value_enum, num_args = 1.., value_delimiter = ',', default_values = ["delivery", "storm", "memory"])]
    sections: Vec<Section>,

    /// Rounds; in each, every load is measured once with each kind of subscription
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,

    #[command(flatten)]
    load: LoadArgs,

    #[command(flatten)]
    storm: storm::StormArgs,

    /// Binary of this broker [default: the one that runs, or target/release/whimbrel]
    #[arg(long)]
    whimbrel: Option<PathBuf>,

    /// Another build of this broker to compare nondurable traffic with
    #[arg(long)]
    against: Option<PathBuf>,

    /// File for the figures as JSON
    #[arg(long)]
    json: Option<PathBuf>,

    /// Core of the broker
    #[arg(long, default_value_t = 0)]
    broker_core: usize,

    /// Core of the generator
    #[arg(long, default_value_t = 1)]
    generator_core: usize,

    /// Seed of the order within a round, of the values of events and of the bootstrap
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl SemiArgs {
    /// Starts a broker of that build, to be spoken to with MQTT 5.
    fn start(&self, program: &Path, settings: &str) -> Result<Running> {
        let programs = Programs { whimbrel: program.to_owned(), peers: PathBuf::new() };
        let (core, own_core) = (Some(self.broker_core), Some(self.generator_core));
        let setup = Setup { core, own_core, settings, ..Setup::default() };
        let mut broker = Running::start_with(Peer::Whimbrel, &programs, setup)?;
        broker.target.protocol = Protocol::Mqtt5;
        Ok(broker)
    }

    fn program(&self) -> PathBuf {
        self.whimbrel.clone().unwrap_or_else(own_program)
    }
}

/// Measures what `args` asks for, prints the table and writes the JSON; returns whether every goal
/// was met.
///
/// # Errors
/// When a broker cannot be started, refuses, or breaks the protocol.
pub fn run(args: &SemiArgs) -> Result<bool> {
    let cores = process::cores();
    ensure!(cores >= 2, "broker and generator need a core each, and this machine has {cores}");
    ensure!(args.broker_core != args.generator_core, "broker and generator need different cores");
    process::pin_thread(args.generator_core)?;
    let mut rows: Vec<Row> = Vec::new();
    for section in &args.sections {
        rows.extend(match section {
            Section::Delivery => cost::delivery(args)?,
            Section::Against => cost::against(args)?,
            Section::Storm => storm::rows(args)?,
            Section::Memory => memory::rows(args)?,
        });
    }
    say(rows::table(&rows).trim_end())?;
    if let Some(path) = &args.json {
        let text =
            rows::json("bench semi-durable", (args.seed, args.rounds), &rows).context("writing the figures as JSON")?;
        std::fs::write(path, text + "\n").with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(rows.iter().all(|row| row.met != Some(false)))
}
