//! The experiments that there are.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};

use crate::experiment::{Effort, Options, Plan, measure};
use crate::output::say;
use crate::{durable, responsiveness, scale, semi_durable};

/// Repeat an experiment of the papers that this broker comes from
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    experiment: Experiment,
}

#[derive(Debug, clap::Subcommand)]
enum Experiment {
    /// Mobile subscribers that recover what they missed from memory
    SemiDurable(Options),
    /// Subscribers that lose nothing, through absences and a crash of the broker
    Durable(DurableOptions),
    /// Events with a deadline over links that become slow or lose everything
    Responsiveness(TripOptions),
    /// A thousand brokers, a million subscriptions, fifty regions of a cloud: how everything grows
    Scale(TripOptions),
}

/// What can be chosen for experiments with regions of a cloud.
#[derive(Clone, Debug, clap::Args)]
struct TripOptions {
    #[command(flatten)]
    options: Options,

    /// Folder with measured round trips (`azure_sites.csv`, `azure_rtt.csv`)
    /// [default: reckoned from where cities are]
    #[arg(long)]
    round_trips: Option<PathBuf>,
}

/// What can be chosen for the experiment on durable subscriptions.
#[derive(Clone, Debug, clap::Args)]
struct DurableOptions {
    #[command(flatten)]
    options: Options,

    /// With --real: the paper's absences, every 300 s instead of every 30 s
    #[arg(long)]
    full: bool,
}

/// Runs the experiment of `args` and prints it. The exit code is 1 when a goal was missed.
///
/// # Errors
/// When a row is not known, a broker cannot be started, or a file cannot be written.
pub fn run(args: &Args) -> Result<ExitCode> {
    let (options, report) = match &args.experiment {
        Experiment::SemiDurable(options) => {
            let plans: &[Plan] = if options.real { semi_durable::REAL } else { semi_durable::VIRTUAL };
            (options, measure("semi-durable", options, options.effort(), plans)?)
        }
        Experiment::Durable(DurableOptions { options, full }) => {
            let plans: &[Plan] = if options.real { durable::REAL } else { durable::VIRTUAL };
            // One round of the real driver takes long enough.
            let effort = if options.real { options.effort_or(1) } else { options.effort() };
            let effort = Effort { full: *full, ..effort };
            (options, measure("durable", options, effort, plans)?)
        }
        Experiment::Responsiveness(TripOptions { options, round_trips }) => {
            ensure!(!options.real, "its links are simulated: there is no --real");
            if let Some(folder) = round_trips {
                scale::set_round_trips(folder.clone());
            }
            let effort = options.effort_or(responsiveness::SEEDS);
            (options, measure("responsiveness", options, effort, responsiveness::VIRTUAL)?)
        }
        Experiment::Scale(TripOptions { options, round_trips }) => {
            ensure!(!options.real, "a thousand brokers are simulated: there is no --real");
            if let Some(folder) = round_trips {
                scale::set_round_trips(folder.clone());
            }
            // One seed takes long enough.
            let effort = options.effort_or(1);
            (options, measure("scale", options, effort, scale::VIRTUAL)?)
        }
    };
    if options.json {
        say(serde_json::to_string(&report.to_json()).context("writing the report as JSON")?)?;
    } else {
        say(report.table().trim_end())?;
    }
    Ok(if report.all_met() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
