//! The rate that one SHB delivers on one core: with all subscribers connected, and while they leave
//! and return. And the same of a broker that is its own PHB.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use indicatif::ProgressBar;

use super::crowd::{Absences, Crowd};
use super::subscriber::{Counts, Keeper};
use super::topology::Topology;
use super::{CLASSES, LOGGED, RATE};
use crate::bench::process::{self, CpuClock};
use crate::experiment::chart::{Axis, Chart, Curve, Point, Style};
use crate::experiment::report::{Head, Part};
use crate::experiment::{Effort, Plan};
use crate::goal::Goal;

/// A PHB and an SHB.
pub const PLAN: Plan = Plan {
    id: "rates",
    rows: &["aggregate-rate", "rate-per-cpu", "with-disconnections", "catch-up", "rates-wrong", "log-writes"],
    measure,
};

/// One broker that is both.
pub const ONE_BROKER: Plan =
    Plan { id: "one-broker", rows: &["one-broker-rate", "one-broker-wrong"], measure: one_broker };

const AGGREGATE: Head = Head {
    id: "aggregate-rate",
    measure: "most events delivered per second by one SHB on one core, all subscribers together",
    unit: "events/s",
    paper: Some(20_000.0),
    goal: Goal::at_least(160_000.0),
};

const PER_CPU: Head = Head {
    id: "rate-per-cpu",
    measure: "events delivered at that peak per CPU second of the SHB: what one core does that has no neighbours",
    unit: "events",
    paper: None,
    goal: Goal::at_least(160_000.0),
};

const WITH_ABSENCES: Head = Head {
    id: "with-disconnections",
    measure: "the same while subscribers are away for 5 s now and then, of that peak",
    unit: "%",
    paper: Some(88.0),
    goal: Goal::at_least(95.0),
};

const CATCH_UP: Head = Head {
    id: "catch-up",
    measure: "longest time until a subscriber that was away for 5 s had caught up, at that rate",
    unit: "s",
    paper: Some(5.5),
    goal: Goal::at_most(1.0),
};

const WRONG: Head = Head {
    id: "rates-wrong",
    measure: "events lost or delivered twice in all these runs",
    unit: "events",
    paper: None,
    goal: Goal::at_most(0.0),
};

const LOG_WRITES: Head = Head {
    id: "log-writes",
    measure: "log writes per event, in both brokers together",
    unit: "writes",
    paper: Some(1.0),
    goal: Goal::exactly(1.0),
};

const ALONE: Head = Head {
    id: "one-broker-rate",
    measure: "most events delivered per second by one broker on one core that is PHB and SHB",
    unit: "events/s",
    paper: Some(20_000.0),
    goal: Goal::at_least(160_000.0),
};

const ALONE_WRONG: Head =
    Head { id: "one-broker-wrong", measure: "events lost or delivered twice in these runs", ..WRONG };

/// If subscribers are further behind, the rate is not sustained.
const LAG_MAX: Duration = Duration::from_millis(250);

/// The least part of the due events that must arrive during a measurement.
const ARRIVES: f64 = 0.98;

/// The time between two polls of the sockets.
const LOOK: Duration = Duration::from_millis(10);

/// Open files besides those of subscribers.
const OTHER_FILES: u64 = 200;

/// The parts of the peak that are tried with absences, largest first.
const PARTS: [f64; 5] = [1.0, 0.95, 0.9, 0.85, 0.8];

/// Sizes and times of a run.
struct Scale {
    /// The numbers of subscribers that are tried: from, up to, in steps of.
    sizes: [usize; 3],
    settle: Duration,
    measure: Duration,
    absences: Absences,
    /// How long absences are measured.
    absent: Duration,
}

impl Scale {
    fn of(effort: Effort) -> Scale {
        let (second, milli) = (Duration::from_secs, Duration::from_millis);
        let absences = |period, away| Absences { period, away };
        match effort {
            Effort { quick: true, .. } => Scale {
                sizes: [8, 16, 8],
                settle: milli(300),
                measure: milli(700),
                absences: absences(second(2), milli(300)),
                absent: second(2),
            },
            Effort { full: true, .. } => Scale {
                sizes: [400, 4_000, 40],
                settle: second(2),
                measure: second(5),
                absences: absences(second(300), second(5)),
                absent: second(310),
            },
            Effort { .. } => Scale {
                sizes: [400, 4_000, 80],
                settle: second(1),
                measure: second(2),
                // A tenth of the paper's period: ten times as much to catch up with.
                absences: absences(second(30), second(5)),
                absent: second(30),
            },
        }
    }
}

/// The measurement with a number of subscribers.
#[derive(Clone, Copy, Debug)]
struct Step {
    subscribers: usize,
    /// Events delivered per second.
    rate: f64,
    lag: Duration,
    /// The parts of a core that broker and generator used.
    busy: [f64; 2],
}

impl Step {
    fn is_sustained(&self) -> bool {
        let due = self.subscribers as f64 * (RATE / CLASSES as u64) as f64;
        self.rate >= ARRIVES * due && self.lag <= LAG_MAX
    }

    fn note(&self) -> String {
        format!(
            "{} subscribers: {:.0} events/s, slowest {:.0} ms behind, broker {:.0} % busy, generator {:.0} %",
            self.subscribers,
            self.rate,
            self.lag.as_secs_f64() * 1e3,
            100.0 * self.busy[0],
            100.0 * self.busy[1],
        )
    }
}

/// The next number of subscribers to try: while the SHB uses little of its core, most of what it
/// seems to have room for.
fn next_size(now: &Step, step: usize) -> usize {
    /// Above this part of the core each step is a small one.
    const NEAR: f64 = 0.75;
    let room = if now.busy[0] > 0.0 { (NEAR * now.subscribers as f64 / now.busy[0]) as usize } else { 0 };
    // The cost of a delivery falls with the load, so the estimated room exists; the generator may
    // be the bottleneck.
    let room = room.min(2 * now.subscribers);
    (room / step * step).max(now.subscribers + step)
}

/// Runs events for `span` and measures deliveries.
fn observe(crowd: &mut Crowd, topology: &mut Topology, span: Duration) -> Result<Step> {
    let clocks = [topology.shb(0).cpu()?, CpuClock::own()];
    let read = || -> Result<[Duration; 2]> { Ok([clocks[0].read()?, clocks[1].read()?]) };
    let (begin, cpu, before) = (Instant::now(), read()?, crowd.counts().received);
    crowd.run(span)?;
    let (elapsed, cpu_end) = (begin.elapsed().as_secs_f64(), read()?);
    let busy = [0, 1].map(|index: usize| (cpu_end[index] - cpu[index]).as_secs_f64() / elapsed);
    let rate = (crowd.counts().received - before) as f64 / elapsed;
    Ok(Step { subscribers: crowd.subscribers.len(), rate, lag: crowd.lag(), busy })
}

/// Adds subscribers until the broker does not keep up; returns the last step at which it did, and
/// how many times each event was logged in all brokers. If it does not keep up with the first ones
/// either, as on a machine with other users, its deliveries to these are the most that was seen.
fn peak(
    scale: &Scale,
    mut topology: Topology,
    seed: u64,
    bar: &ProgressBar,
    notes: &mut Vec<String>,
) -> Result<(Step, f64, Counts)> {
    let mut crowd = Crowd::connect(&topology, Keeper::Client, LOOK, seed)?;
    let [first, last, step] = scale.sizes;
    // Events before the first subscription match no interest.
    ensure!(crowd.drain()?, "the broker has not accepted the first events");
    crowd.add_subscribers(first)?;
    crowd.settle(scale.settle)?;
    ensure!(crowd.drain()?, "the first subscribers have not got everything");
    let (logged_before, accepted) = (topology.sum(LOGGED)?, crowd.accepted());
    let (mut best, mut first_step) = (None, None);
    let mut jumps = true;
    loop {
        bar.inc(1);
        crowd.run(scale.settle)?;
        let now = observe(&mut crowd, &mut topology, scale.measure)?;
        notes.push(format!("peak: {}", now.note()));
        first_step.get_or_insert(now);
        if !now.is_sustained() {
            break;
        }
        best = Some(now);
        let next = if jumps { next_size(&now, step) } else { now.subscribers + step };
        jumps &= next > now.subscribers + step;
        if next > last {
            break;
        }
        crowd.add_subscribers(next - now.subscribers)?;
    }
    let arrived = crowd.drain()?;
    let counts = crowd.counts();
    notes.extend(crowd.wrongs().into_iter().map(|wrong| format!("peak: {wrong}")));
    ensure!(arrived || best.is_some(), "the first {first} subscribers have not got everything");
    let writes = (topology.sum(LOGGED)? - logged_before) / (crowd.accepted() - accepted) as f64;
    Ok((best.or(first_step).context("the first subscribers are observed")?, writes, counts))
}

/// The result of absences.
struct Absent {
    step: Step,
    /// The longest time to catch up, seconds.
    caught_up: f64,
    counts: Counts,
    history: Vec<[f64; 3]>,
}

/// Measures absences, with fewer and fewer subscribers until the broker keeps up.
fn with_absences(scale: &Scale, peak: usize, seed: u64, bar: &ProgressBar, notes: &mut Vec<String>) -> Result<Absent> {
    let mut last = None;
    for part in PARTS {
        bar.inc(1);
        let subscribers = ((peak as f64 * part) as usize).max(1);
        let mut topology = Topology::star(1)?;
        let mut crowd = Crowd::connect(&topology, Keeper::Client, LOOK, seed)?;
        crowd.add_subscribers(subscribers)?;
        crowd.run(scale.settle)?;
        crowd.keep_history();
        crowd.begin_absences(scale.absences);
        // Until as many return as leave.
        crowd.run(scale.absences.away + scale.settle)?;
        let step = observe(&mut crowd, &mut topology, scale.absent)?;
        let history = crowd.history();
        let times: Vec<f64> =
            crowd.subscribers.iter().flat_map(|one| &one.caught_up).map(Duration::as_secs_f64).collect();
        let (returns, worst) = (times.len(), times.iter().copied().fold(0.0, f64::max));
        notes.push(format!("absences: {}, {returns} returns caught up within {worst:.3} s", step.note()));
        crowd.end_absences()?;
        crowd.drain()?;
        notes.extend(crowd.wrongs().into_iter().map(|wrong| format!("absences: {wrong}")));
        let is_sustained = step.is_sustained() && returns > 0;
        last = Some(Absent { step, caught_up: worst, counts: crowd.counts(), history });
        if is_sustained {
            break;
        }
    }
    last.context("there are parts to try")
}

fn measure(effort: Effort, bar: &ProgressBar) -> Result<Part> {
    let cores = process::cores();
    ensure!(cores >= 2, "broker and generator need a core each, and this machine has {cores}");
    let scale = Scale::of(effort);
    process::allow_open_files(scale.sizes[1] as u64 + OTHER_FILES)?;
    bar.set_length(effort.seeds * 12);
    let (mut notes, mut history) = (Vec::new(), Vec::new());
    let mut samples: [Vec<f64>; 6] = Default::default();
    for seed in 1..=effort.seeds {
        let (best, writes, counts) = peak(&scale, Topology::star(1)?, seed, bar, &mut notes)?;
        let absent = with_absences(&scale, best.subscribers, seed, bar, &mut notes)?;
        let of_peak = if absent.step.is_sustained() { 100.0 * absent.step.rate / best.rate } else { 0.0 };
        let wrong = counts.wrong() + absent.counts.wrong();
        notes.push(format!("peak: {}", counts.note()));
        notes.push(format!("absences: {}", absent.counts.note()));
        let per_cpu = best.rate / best.busy[0];
        let values = [best.rate, per_cpu, of_peak, absent.caught_up, wrong as f64, writes];
        for (samples, value) in samples.iter_mut().zip(values) {
            samples.push(value);
        }
        history = absent.history;
    }
    let [rate, per_cpu, of_peak, caught_up, wrong, writes] = samples;
    Ok(Part {
        rows: vec![
            AGGREGATE.row(&rate),
            PER_CPU.row(&per_cpu),
            WITH_ABSENCES.row(&of_peak),
            CATCH_UP.worst(&caught_up),
            WRONG.worst(&wrong),
            LOG_WRITES.worst(&writes),
        ],
        notes,
        charts: vec![progress_chart("durable-disconnections", "Progress while subscribers go and come back", &history)],
    })
}

fn one_broker(effort: Effort, bar: &ProgressBar) -> Result<Part> {
    let cores = process::cores();
    ensure!(cores >= 2, "broker and generator need a core each, and this machine has {cores}");
    let scale = Scale::of(effort);
    process::allow_open_files(scale.sizes[1] as u64 + OTHER_FILES)?;
    bar.set_length(effort.seeds * 8);
    let (mut rates, mut wrong, mut notes) = (Vec::new(), Vec::new(), Vec::new());
    for seed in 1..=effort.seeds {
        let (best, _, counts) = peak(&scale, Topology::alone()?, seed, bar, &mut notes)?;
        rates.push(best.rate);
        wrong.push(counts.wrong() as f64);
        notes.push(counts.note());
    }
    let notes = notes.into_iter().map(|note| format!("one broker: {note}")).collect();
    Ok(Part { rows: vec![ALONE.row(&rates), ALONE_WRONG.worst(&wrong)], notes, charts: Vec::new() })
}

/// A chart of delivered and released events over time.
pub fn progress_chart(file: &str, title: &str, history: &[[f64; 3]]) -> Chart {
    let first = history.first().map_or(0.0, |first| first[1]);
    let curve = |name: &str, colour, index: usize| Curve {
        name: name.to_owned(),
        colour,
        style: Style::Line,
        points: history.iter().map(|moment| Point::new(moment[0], (moment[index] - first).max(0.0))).collect(),
    };
    Chart {
        file: file.to_owned(),
        title: title.to_owned(),
        x: Axis::linear("time, s"),
        y: Axis::linear("position in the streams, s of events"),
        curves: vec![
            curve("delivered to all who are there", 0, 1),
            curve("acknowledged by all, there or not (released)", 1, 2),
        ],
    }
}
