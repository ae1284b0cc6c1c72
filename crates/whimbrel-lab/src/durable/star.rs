//! The paper's load at 1, 2 and 4 SHBs: 100 subscribers to 200 events/s at each. Here all SHBs
//! share a core, so it is no peak. It shows that all events arrive, that each event is logged once
//! in the whole system, and what part of a core an SHB and the PHB use as the number of SHBs grows.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use indicatif::ProgressBar;

use super::crowd::Crowd;
use super::subscriber::{Counts, Keeper};
use super::topology::Topology;
use super::{CLASSES, LOGGED, RATE};
use crate::bench::process::{self, CpuClock};
use crate::experiment::chart::{Axis, Chart, Curve, Point, Style};
use crate::experiment::report::{Head, Part};
use crate::experiment::{Effort, Plan};
use crate::goal::Goal;

/// See the module's documentation.
pub const PLAN: Plan =
    Plan { id: "star", rows: &["four-shbs", "cost-at-four", "star-wrong", "star-log-writes"], measure };

const AGGREGATE: Head = Head {
    id: "four-shbs",
    measure: "events delivered per second by 4 SHBs on one core, offered 80,000: the paper's peak of 4 machines",
    unit: "events/s",
    paper: Some(79_200.0),
    goal: Goal::at_least(79_200.0),
};

const COST: Head = Head {
    id: "cost-at-four",
    measure: "CPU of an SHB per delivery, 4 SHBs / 1 SHB with as many subscribers each",
    unit: "ratio",
    paper: None,
    goal: Goal::at_most(1.25),
};

const WRONG: Head = Head {
    id: "star-wrong",
    measure: "events lost or delivered twice in these runs",
    unit: "events",
    paper: None,
    goal: Goal::at_most(0.0),
};

const WRITES: Head = Head {
    id: "star-log-writes",
    measure: "log writes per event, in 5 brokers together",
    unit: "writes",
    paper: Some(1.0),
    goal: Goal::exactly(1.0),
};

/// The numbers of SHBs.
const SHBS: [usize; 3] = [1, 2, 4];

/// The subscribers of each SHB.
const EACH: usize = 100;

/// The time between two polls of the sockets.
const LOOK: Duration = Duration::from_millis(5);

/// The result for a number of SHBs.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    /// Events delivered per second.
    rate: f64,
    /// CPU microseconds of the SHBs per delivery, and of the PHB per event.
    costs: [f64; 2],
    writes: f64,
    counts: Counts,
}

fn once((shbs, each): (usize, usize), span: Duration, seed: u64, notes: &mut Vec<String>) -> Result<Outcome> {
    let topology = Topology::star(shbs)?;
    let mut crowd = Crowd::connect(&topology, Keeper::Client, LOOK, seed)?;
    ensure!(crowd.drain()?, "the PHB has not accepted the first events");
    crowd.add_subscribers(shbs * each)?;
    crowd.settle(span / 4)?;
    ensure!(crowd.drain()?, "the subscribers have not got everything");
    let (logged, accepted) = (topology.sum(LOGGED)?, crowd.accepted());
    crowd.run(span / 4)?;
    let clocks = topology.brokers.iter().map(|broker| broker.cpu()).collect::<Result<Vec<CpuClock>>>()?;
    let read = || clocks.iter().map(|clock| clock.read()).collect::<Result<Vec<Duration>>>();
    let (begin, cpu, received, sent) = (Instant::now(), read()?, crowd.counts().received, crowd.sent());
    crowd.run(span)?;
    let (elapsed, cpu_end) = (begin.elapsed().as_secs_f64(), read()?);
    let (delivered, events) = ((crowd.counts().received - received) as f64, (crowd.sent() - sent) as f64);
    let micros = |which: std::ops::Range<usize>| -> f64 {
        which.map(|broker| (cpu_end[broker] - cpu[broker]).as_secs_f64() * 1e6).sum()
    };
    let costs = [micros(1..clocks.len()) / delivered, micros(0..1) / events];
    ensure!(crowd.drain()?, "not everything has arrived in the end");
    let writes = (topology.sum(LOGGED)? - logged) / (crowd.accepted() - accepted) as f64;
    notes.extend(crowd.wrongs().into_iter().map(|wrong| format!("star: {shbs} SHBs: {wrong}")));
    Ok(Outcome { rate: delivered / elapsed, costs, writes, counts: crowd.counts() })
}

fn note(shbs: usize, each: usize, outcome: &Outcome) -> String {
    let Outcome { rate, costs: [shb, phb], writes, counts } = outcome;
    format!(
        "star: {shbs} SHBs with {each} subscribers each: {rate:.0} events/s of {} offered; {shb:.2} µs of CPU of an SHB per delivery, {phb:.1} µs of the PHB per \
         event; {writes} log writes per event; {}",
        (shbs * each) as u64 * RATE / CLASSES as u64,
        counts.note(),
    )
}

fn measure(effort: Effort, bar: &ProgressBar) -> Result<Part> {
    let cores = process::cores();
    ensure!(cores >= 2, "brokers and generator need a core each, and this machine has {cores}");
    let (each, span) = if effort.quick { (8, Duration::from_millis(600)) } else { (EACH, Duration::from_secs(8)) };
    bar.set_length(effort.seeds * SHBS.len() as u64);
    let mut rounds: Vec<[Outcome; SHBS.len()]> = Vec::new();
    let mut notes = Vec::new();
    for seed in 1..=effort.seeds {
        let mut outcome = |shbs: usize| -> Result<Outcome> {
            let outcome = once((shbs, each), span, seed, &mut notes)?;
            notes.push(note(shbs, each, &outcome));
            bar.inc(1);
            Ok(outcome)
        };
        rounds.push([outcome(SHBS[0])?, outcome(SHBS[1])?, outcome(SHBS[2])?]);
    }
    let of = |figure: fn(&[Outcome; SHBS.len()]) -> f64| -> Vec<f64> { rounds.iter().map(figure).collect() };
    let wrong =
        |round: &[Outcome; SHBS.len()]| -> f64 { round.iter().map(|outcome| outcome.counts.wrong() as f64).sum() };
    // The offered rate is not reached to the last event: events in flight at the end are not
    // counted.
    let ratio = |round: &[Outcome; SHBS.len()]| round[2].costs[0] / round[0].costs[0];
    Ok(Part {
        rows: vec![
            AGGREGATE.row(&of(|round| round[2].rate)),
            COST.row(&of(ratio)),
            WRONG.worst(&of(wrong)),
            WRITES.worst(&of(|round| round.iter().map(|outcome| outcome.writes).fold(1.0, furthest_from_one))),
        ],
        notes,
        charts: vec![cost_chart(&rounds)],
    })
}

/// The value that is farther from 1.
fn furthest_from_one(one: f64, other: f64) -> f64 {
    if (other - 1.0).abs() > (one - 1.0).abs() { other } else { one }
}

/// The part of a core that SHBs and PHB use, by the number of SHBs.
fn cost_chart(rounds: &[[Outcome; SHBS.len()]]) -> Chart {
    let point = |at: usize, figure: &dyn Fn(&Outcome) -> f64| {
        let mut values: Vec<f64> = rounds.iter().map(|round| figure(&round[at])).collect();
        values.sort_by(f64::total_cmp);
        let spread = Some([values[0], values[values.len() - 1]]);
        Point { x: SHBS[at] as f64, y: values[values.len() / 2], spread }
    };
    let curve = |name: &str, colour, figure: &dyn Fn(&Outcome) -> f64| Curve {
        name: name.to_owned(),
        colour,
        style: Style::Joined,
        points: (0..SHBS.len()).map(|at| point(at, figure)).collect(),
    };
    let rate = RATE as f64;
    Chart {
        file: "durable-star".to_owned(),
        title: "CPU by the number of SHBs, each with as many subscribers".to_owned(),
        x: Axis::linear("SHBs"),
        y: Axis::linear("part of a core, %"),
        curves: vec![
            curve("all SHBs", 0, &|outcome| outcome.costs[0] * outcome.rate / 1e4),
            curve("PHB", 1, &|outcome| outcome.costs[1] * rate / 1e4),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_few_log_writes_are_as_bad_as_too_many() {
        assert_eq!([1.0, 0.5, 1.2].into_iter().fold(1.0, furthest_from_one), 0.5);
        assert_eq!([1.0, 1.0].into_iter().fold(1.0, furthest_from_one), 1.0);
    }
}
