//! The cost of semi-durable subscriptions: per delivery, in memory, and when all their clients
//! return at once.

mod cost;
mod crowd;
mod memory;
mod storm;
mod wanted;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::load::{LoadArgs, StartArgs};
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

    #[command(flatten)]
    start: StartArgs,

    /// Another build of this broker to compare nondurable traffic with
    #[arg(long)]
    against: Option<PathBuf>,

    /// File for the figures as JSON
    #[arg(long)]
    json: Option<PathBuf>,
}

impl SemiArgs {
    /// Starts a broker of that build, to be spoken to with MQTT 5.
    fn start(&self, program: &Path, settings: &str) -> Result<Running> {
        let programs = Programs { whimbrel: program.to_owned(), peers: PathBuf::new() };
        let (core, own_core) = (Some(self.start.broker_core), Some(self.start.generator_core));
        let setup = Setup { core, own_core, settings, ..Setup::default() };
        let mut broker = Running::start_with(Peer::Whimbrel, &programs, setup)?;
        broker.target.protocol = Protocol::Mqtt5;
        Ok(broker)
    }
}

/// Measures what `args` asks for, prints the table and writes the JSON; returns whether every goal
/// was met.
///
/// # Errors
/// When a broker cannot be started, refuses, or breaks the protocol.
pub fn run(args: &SemiArgs) -> Result<bool> {
    args.start.check_cores()?;
    process::pin_thread(args.start.generator_core)?;
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
        let text = rows::json("bench semi-durable", (args.start.seed, args.rounds), &rows)
            .context("writing the figures as JSON")?;
        std::fs::write(path, text + "\n").with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(rows.iter().all(|row| row.met != Some(false)))
}
