//! The latency of events over five hops: a chain of six broker processes, publishers at the first,
//! durable subscribers at the last.
//!
//! An event is passed on when it is durable; then its publisher is answered, too. The time beyond
//! that is the path. The path delay of this machine's loopback is nothing; the virtual driver shows
//! what path delays add.

use std::time::Duration;

use anyhow::{Result, ensure};
use indicatif::ProgressBar;

use super::CLASSES;
use super::crowd::Crowd;
use super::subscriber::Keeper;
use super::topology::Topology;
use crate::bench::process;
use crate::experiment::report::{Head, Part};
use crate::experiment::{Effort, Plan};
use crate::goal::Goal;

/// See the module's documentation.
pub const PLAN: Plan = Plan { id: "chain", rows: &["latency-5-hops", "hop", "chain-wrong"], measure };

/// The links between the first broker and the last.
pub const HOPS: usize = 5;

const LATENCY: Head = Head {
    id: "latency-5-hops",
    measure: "median latency over 5 hops; goal: logging as measured in the same run, and 1 ms per hop",
    unit: "ms",
    paper: Some(50.0),
    goal: Goal::at_most(HOPS as f64),
};

const HOP: Head = Head {
    id: "hop",
    measure: "of that, what is not logging, per hop",
    unit: "ms",
    paper: Some(1.2),
    goal: Goal::at_most(1.0),
};

const WRONG: Head = Head {
    id: "chain-wrong",
    measure: "events lost or delivered twice over the chain",
    unit: "events",
    paper: None,
    goal: Goal::at_most(0.0),
};

/// The result, ms.
struct Outcome {
    latency: f64,
    p99: f64,
    logging: f64,
    wrong: u64,
}

fn once(span: Duration, seed: u64) -> Result<Outcome> {
    let topology = Topology::chain(HOPS)?;
    // Sockets are polled without pauses, so that no wait of the generator is measured.
    let mut crowd = Crowd::connect(&topology, Keeper::Client, Duration::ZERO, seed)?;
    let which = crowd.add_subscribers_at(0, CLASSES)?;
    crowd.settle(span / 4)?;
    ensure!(crowd.drain()?, "the subscribers have not got everything");
    let group = crowd.observe(which)?;
    crowd.run(span / 4)?;
    crowd.latency(group, 0.5);
    crowd.answered(0.5);
    crowd.run(span)?;
    let p99 = crowd.latency_beside(group, 0.99);
    let (latency, logging) = (crowd.latency(group, 0.5), crowd.answered(0.5));
    ensure!(crowd.drain()?, "not everything has arrived in the end");
    let counts = crowd.counts();
    Ok(Outcome { latency, p99, logging, wrong: counts.wrong() })
}

fn measure(effort: Effort, bar: &ProgressBar) -> Result<Part> {
    let cores = process::cores();
    ensure!(cores >= 2, "brokers and generator need a core each, and this machine has {cores}");
    let span = Duration::from_millis(if effort.quick { 600 } else { 10_000 });
    bar.set_length(effort.seeds);
    let mut outcomes = Vec::new();
    for seed in 1..=effort.seeds {
        outcomes.push(once(span, seed)?);
        bar.inc(1);
    }
    let of = |figure: fn(&Outcome) -> f64| -> Vec<f64> { outcomes.iter().map(figure).collect() };
    let mut logging = of(|outcome| outcome.logging);
    logging.sort_by(f64::total_cmp);
    let goal = Goal::at_most(logging[logging.len() / 2] + HOPS as f64);
    let hop = |outcome: &Outcome| (outcome.latency - outcome.logging) / HOPS as f64;
    let note = |outcome: &Outcome| {
        let Outcome { latency, p99, logging, .. } = outcome;
        format!(
            "chain: median latency {latency:.2} ms over {HOPS} hops, p99 {p99:.2} ms; publishers were answered after {logging:.2} ms"
        )
    };
    Ok(Part {
        rows: vec![
            Head { goal, ..LATENCY }.row(&of(|outcome| outcome.latency)),
            HOP.row(&of(hop)),
            WRONG.worst(&of(|outcome| outcome.wrong as f64)),
        ],
        notes: outcomes.iter().map(note).collect(),
        charts: Vec::new(),
    })
}
