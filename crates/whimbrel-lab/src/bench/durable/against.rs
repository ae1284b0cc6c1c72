//! The cost of the journal for brokers without one: this build and another, both without a data
//! directory.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::super::closed_loop::{self, Load, Timing};
use super::super::peers::{Peer, Programs, Running, Setup};
use super::super::process::CpuClock;
use super::super::wire::QoS;
use super::publishers::Publishers;
use super::{DurableArgs, Grouping, Row};
use crate::progress;

/// The greatest ratio of this build's CPU time to the other's.
const TIMES: f64 = 1.03;

/// The loads: name, quality of service, subscribers; without subscribers it is publishing only.
const LOADS: [(&str, QoS, usize); 5] = [
    ("QoS 0 1→1", QoS::AtMostOnce, 1),
    ("QoS 0 1→100", QoS::AtMostOnce, 100),
    ("QoS 1 1→1", QoS::AtLeastOnce, 1),
    ("QoS 1 1→100", QoS::AtLeastOnce, 100),
    ("QoS 1 publishing, nobody subscribes", QoS::AtLeastOnce, 0),
];

/// Compares this build with the other.
pub(super) fn rows(args: &DurableArgs) -> Result<Vec<Row>> {
    let other = args.against.clone().context("another build to compare with is needed: --against PROGRAM")?;
    let programs = [other, args.start.program()];
    let all: Vec<(usize, usize)> = (0..LOADS.len()).flat_map(|load| [(load, 0), (load, 1)]).collect();
    let plan = args.start.shuffled(args.rounds, &all);
    let progress = progress::bar(plan.len() as u64);
    let mut measured: BTreeMap<(usize, usize), Vec<f64>> = BTreeMap::new();
    for (round, (load, build)) in plan {
        progress.set_message(format!("round {}: {}", round + 1, LOADS[load].0));
        let micros = micros(args, &programs[build], LOADS[load]);
        let micros = micros.with_context(|| format!("round {}, {}", round + 1, LOADS[load].0))?;
        measured.entry((load, build)).or_default().push(micros);
        progress.inc(1);
    }
    progress.finish_and_clear();
    let row = |text: String, unit, of: &[f64]| Row::median("against", text, unit, of, args.start.seed);
    let mut rows = Vec::new();
    for (load, (name, ..)) in LOADS.iter().enumerate() {
        let [other, this] = [0, 1].map(|build| &measured[&(load, build)]);
        let ratios: Vec<f64> = other.iter().zip(this).map(|(other, this)| this / other).collect();
        rows.push(row(format!("{name}: other build"), "µs", other));
        rows.push(row(format!("{name}: this build"), "µs", this));
        rows.push(row(format!("{name}: this / other build"), "", &ratios).at_most(TIMES));
    }
    Ok(rows)
}

/// The broker's CPU microseconds per delivery, or per published message without subscribers.
fn micros(args: &DurableArgs, program: &Path, (_, qos, subscribers): (&str, QoS, usize)) -> Result<f64> {
    let programs = Programs { whimbrel: program.to_owned(), peers: args.peers.clone() };
    let broker = Running::start_with(Peer::Whimbrel, &programs, Setup { disk: None, ..args.bound("") })?;
    let clock = CpuClock::of(broker.pid())?;
    let bounds = args.load.settings().bounds;
    if subscribers == 0 {
        let grouping = Grouping { publishers: 1, window: bounds.unacknowledged as usize };
        let mut publishers = Publishers::connect(broker.target, grouping, bounds.body)?;
        let rate = publishers.measure(args.timing(), Some(clock))?;
        return rate.cpu.context("the broker's process is known");
    }
    let load = Load {
        publishers: 1,
        subscribers,
        qos,
        body: bounds.body,
        window: bounds.window,
        unacknowledged: bounds.unacknowledged,
        user: &[],
        lasting: false,
    };
    let (warm_up, measure) = args.timing();
    let outcome = closed_loop::run(broker.target, &load, &Timing { warm_up, measure }, Some(clock))?;
    ensure!(outcome.lost == 0 && outcome.repeated == 0, "{} lost, {} repeated", outcome.lost, outcome.repeated);
    outcome.broker_micros().context("the broker's process is known")
}
