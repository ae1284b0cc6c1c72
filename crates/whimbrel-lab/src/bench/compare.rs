//! All cases against all brokers, interleaved: one core for the broker, another for the generator.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::ValueEnum;

use super::case::Case;
use super::load::{LoadArgs, StartArgs};
use super::measure::{self, Sample, Settings};
use super::peers::{Peer, Programs, Running};
use super::report::{Conditions, Report};
use super::{plot, process};
use crate::output::{say, tell};
use crate::progress;

/// What to compare.
#[derive(Debug, clap::Args)]
pub struct CompareArgs {
    /// Cases to run, in this order
    #[arg(long = "case", value_enum, ignore_case = true, num_args = 1.., value_delimiter = ',', default_values_t = Case::value_variants().to_vec())]
    cases: Vec<Case>,

    /// Brokers to compare
    #[arg(long = "broker", value_enum, num_args = 1.., value_delimiter = ',', default_values_t = Peer::ALL)]
    brokers: Vec<Peer>,

    /// Rounds; in each, every case is measured once with every broker
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,

    #[command(flatten)]
    load: LoadArgs,

    #[command(flatten)]
    start: StartArgs,

    /// Folder of the peers that bench/install-peers.sh installs
    #[arg(long, default_value = "target/bench-peers")]
    peers: PathBuf,

    /// Folder for bench.json and the plots
    #[arg(long, default_value = "bench-out")]
    out: PathBuf,
}

/// The measurements of one broker in one case.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// By round; a round that failed is absent.
    pub samples: BTreeMap<u32, Sample>,
    /// Why there are no more samples.
    pub failure: Option<String>,
}

/// Everything that was measured.
pub type Results = BTreeMap<(Case, Peer), Series>;

/// Runs the comparison, prints the table and writes its files; returns whether every goal was met.
pub fn run(args: &CompareArgs) -> Result<bool> {
    args.start.check_cores()?;
    let settings = args.load.settings();
    process::allow_open_files(settings.connections as u64 + 100)?;
    process::pin_thread(args.start.generator_core)?;
    let programs = Programs { whimbrel: args.start.program(), peers: args.peers.clone() };
    let versions = versions(&args.brokers, &programs)?;
    for (peer, version) in &versions {
        tell(format_args!("{peer:<12} {version}"));
    }
    let results = measure_all(args, &settings, &programs);
    let conditions = Conditions { settings, rounds: args.rounds, seed: args.start.seed, versions };
    let report = Report::of(&results, conditions);
    say(report.table().trim_end())?;
    std::fs::create_dir_all(&args.out).with_context(|| format!("making {}", args.out.display()))?;
    let json = args.out.join("bench.json");
    let text = serde_json::to_string_pretty(&report).context("writing the report as JSON")?;
    std::fs::write(&json, text + "\n").with_context(|| format!("writing {}", json.display()))?;
    let plots = plot::write(&report, &args.out)?;
    let files: Vec<String> = [vec![json], plots].concat().iter().map(|path| path.display().to_string()).collect();
    say(format_args!("written: {}", files.join(", ")))?;
    Ok(report.all_met())
}

/// The versions of all brokers. This also finds out early that one is missing.
fn versions(brokers: &[Peer], programs: &Programs) -> Result<BTreeMap<&'static str, String>> {
    let version = |peer: &Peer| match programs.version(*peer) {
        Ok(version) => Ok((peer.name(), version)),
        Err(error) => Err(error.context(format!("{} cannot take part; --broker names those that shall", peer.name()))),
    };
    brokers.iter().map(version).collect()
}

fn measure_all(args: &CompareArgs, settings: &Settings, programs: &Programs) -> Results {
    let mut plan = Vec::new();
    let mut random = fastrand::Rng::with_seed(args.start.seed);
    for round in 0..args.rounds {
        for case in &args.cases {
            let mut brokers: Vec<Peer> = args.brokers.iter().copied().filter(|peer| peer.speaks(case.qos())).collect();
            random.shuffle(&mut brokers);
            plan.extend(brokers.into_iter().map(|peer| (round, *case, peer)));
        }
    }
    let progress = progress::bar(plan.len() as u64);
    let mut results = Results::new();
    for (round, case, peer) in plan {
        progress.set_message(format!("round {} of {}: {} {}", round + 1, args.rounds, case.id(), peer.name()));
        let series = results.entry((case, peer)).or_default();
        if series.failure.is_none() {
            let sample =
                Running::start(peer, programs, args.start.broker_core, args.start.generator_core).and_then(|broker| {
                    let is_ours = peer == Peer::Whimbrel;
                    let target = if is_ours { case.target_of_whimbrel(broker.target) } else { broker.target };
                    measure::measure(case, target, Some(broker.pid()), settings)
                });
            match sample {
                Ok(sample) => drop(series.samples.insert(round, sample)),
                Err(error) => series.failure = Some(format!("{error:#}")),
            }
        }
        progress.inc(1);
    }
    progress.finish_and_clear();
    results
}
