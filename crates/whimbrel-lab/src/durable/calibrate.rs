//! The cost of each operation of a broker on this machine, as CPU time of broker processes: input
//! for models of brokers on processors of their own.
//!
//! A few loads differ in one operation each; the differences are the costs. They are measured at
//! the rates of the experiment, as a wake-up for one event costs more than the event itself.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use indicatif::ProgressBar;
use serde_json::{Value, json};

use super::CLASSES;
use super::crowd::{ACKNOWLEDGE_EVERY, Crowd};
use super::subscriber::Keeper;
use super::topology::Topology;
use crate::bench::process::{self, CpuClock};
use crate::cores::costs::Costs;

/// The number of loads that are measured.
pub const STEPS: u64 = 5;

/// The number of times that the loads are measured until the result is plausible.
const TRIES: u32 = 3;

/// The factor by which positions are acknowledged more frequently to measure that cost.
const OFTENER: u32 = 10;

/// The subscribers of the smaller and of the larger load: in full runs, and in trial runs.
const SIZES: [[usize; 2]; 2] = [[200, 800], [8, 40]];

/// The time between two polls of the sockets.
const LOOK: Duration = Duration::from_millis(5);

/// The result of the measurement.
#[derive(Clone, Copy, Debug)]
pub struct Calibration {
    /// The cost of each operation.
    pub costs: Costs,
    /// The median time of a commit.
    pub commit: Duration,
}

/// CPU microseconds per second of the PHB and of one SHB, with their operations in that second.
#[derive(Clone, Copy, Debug)]
struct Load {
    phb: f64,
    shb: f64,
    events: f64,
    deliveries: f64,
    acknowledgements: f64,
}

fn load(shbs: usize, each: usize, acknowledge_every: Duration, span: Duration) -> Result<(Load, Duration)> {
    let mut topology = Topology::star(shbs)?;
    let mut crowd = Crowd::connect(&topology, Keeper::Client, LOOK, 1)?;
    crowd.acknowledge_every = acknowledge_every;
    crowd.add_subscribers(shbs * each)?;
    crowd.run(span / 3)?;
    let clocks = [topology.phb().cpu()?, topology.shb(0).cpu()?];
    let read = |clock: CpuClock| -> Result<f64> { Ok(clock.read()?.as_secs_f64() * 1e6) };
    let before = [read(clocks[0])?, read(clocks[1])?];
    let (begin, sent, received, acknowledged) =
        (Instant::now(), crowd.sent(), crowd.counts().received, crowd.acknowledgements);
    crowd.run(span)?;
    let elapsed = begin.elapsed().as_secs_f64();
    let load = Load {
        phb: (read(clocks[0])? - before[0]) / elapsed,
        shb: (read(clocks[1])? - before[1]) / elapsed,
        events: (crowd.sent() - sent) as f64 / elapsed,
        deliveries: (crowd.counts().received - received) as f64 / shbs as f64 / elapsed,
        acknowledgements: (crowd.acknowledgements - acknowledged) as f64 / shbs as f64 / elapsed,
    };
    ensure!(load.deliveries > 0.0, "nothing was delivered to {each} subscribers at {shbs} SHBs");
    Ok((load, topology.phb().commit_time()?))
}

/// Measures all loads. The bar moves by [`STEPS`] for each try.
///
/// # Errors
/// When brokers cannot be started, or deliveries seem to cost nothing.
pub fn measure(quick: bool, bar: &ProgressBar) -> Result<Calibration> {
    let cores = process::cores();
    ensure!(cores >= 2, "brokers and generator need a core each, and this machine has {cores}");
    for _ in 1..TRIES {
        // Other work of the machine may have burdened one load only.
        if let Ok(found) = once(quick, bar) {
            return Ok(found);
        }
    }
    once(quick, bar)
}

fn once(quick: bool, bar: &ProgressBar) -> Result<Calibration> {
    let [small, large] = SIZES[usize::from(quick)];
    let span = Duration::from_millis(if quick { 600 } else { 4_000 });
    let mut commit = Duration::ZERO;
    let mut one = |shbs, each, acknowledge_every| -> Result<Load> {
        let (load, took) = load(shbs, each, acknowledge_every, span)?;
        commit = took;
        bar.inc(1);
        Ok(load)
    };
    let few = one(1, CLASSES, ACKNOWLEDGE_EVERY)?;
    let star = one(4, CLASSES, ACKNOWLEDGE_EVERY)?;
    let less = one(1, small, ACKNOWLEDGE_EVERY)?;
    let more = one(1, large, ACKNOWLEDGE_EVERY)?;
    let often = one(1, small, ACKNOWLEDGE_EVERY / OFTENER)?;
    Ok(Calibration { costs: solve(few, star, [less, more, often])?, commit })
}

/// The costs that explain these loads: one and four SHBs with few subscribers each; some
/// subscribers, more of them, and as many that acknowledge more frequently.
fn solve(few: Load, star: Load, [less, more, often]: [Load; 3]) -> Result<Costs> {
    let per_event = |load: Load| load.phb / load.events;
    let forward = ((per_event(star) - per_event(few)) / 3.0).max(0.0);
    let publish = (per_event(few) - forward).max(0.0);
    let rate = |load: Load| load.acknowledgements;
    let acknowledge = match rate(often) - rate(less) {
        difference if difference > 0.0 => ((often.shb - less.shb) / difference).max(0.0),
        _ => 0.0,
    };
    let without = |load: Load| load.shb - acknowledge * load.acknowledgements;
    let deliver = (without(more) - without(less)) / (more.deliveries - less.deliveries);
    ensure!(deliver > 0.0, "deliveries seem to cost {deliver:.3} µs: is the machine busy with something else?");
    let receive = ((without(less) - deliver * less.deliveries) / less.events).max(0.0);
    let micros = |micros: f64| Duration::from_nanos((micros * 1e3) as u64);
    Ok(Costs {
        publish: micros(publish),
        forward: micros(forward),
        receive: micros(receive),
        deliver: micros(deliver),
        acknowledge: micros(acknowledge),
    })
}

impl Calibration {
    /// The table's lines.
    pub fn lines(&self) -> Vec<String> {
        let operations = Costs::NAMES.into_iter().zip(self.costs.all());
        let line = |(name, cost): (&str, Duration)| format!("cost: {name:<12} {:>9.3} µs", cost.as_secs_f64() * 1e6);
        let commit =
            format!("cost: {:<12} {:>9.3} ms, of which a processor is free", "commit", self.commit.as_secs_f64() * 1e3);
        operations.map(line).chain([commit]).collect()
    }

    /// The costs as JSON, µs.
    pub fn to_json(self) -> Value {
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        let operations = Costs::NAMES.into_iter().zip(self.costs.all());
        let costs = operations.map(|(name, cost)| (name.to_owned(), json!(micros(cost)))).collect();
        json!({ "machine": process::machine(), "unit": "µs", "costs": Value::Object(costs), "commit": micros(self.commit) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The load of brokers with these costs.
    fn used(costs: [f64; 5], shbs: f64, deliveries: f64, acknowledgements: f64) -> Load {
        let [publish, forward, receive, deliver, acknowledge] = costs;
        let events = 800.0;
        Load {
            phb: events * (publish + shbs * forward),
            shb: events * receive + deliveries * deliver + acknowledgements * acknowledge,
            events,
            deliveries,
            acknowledgements,
        }
    }

    #[test]
    fn costs_are_found_in_the_loads_that_they_explain() {
        let real = [30.0, 7.0, 11.0, 1.5, 4.0];
        let load = |shbs, deliveries, acknowledgements| used(real, shbs, deliveries, acknowledgements);
        let (few, star) = (load(1.0, 800.0, 16.0), load(4.0, 800.0, 16.0));
        let three = [load(1.0, 80e3, 1_600.0), load(1.0, 240e3, 4_800.0), load(1.0, 80e3, 16e3)];
        let costs = solve(few, star, three).expect("they make sense");
        for (found, real) in costs.all().into_iter().zip(real) {
            assert!((found.as_secs_f64() * 1e6 - real).abs() < 0.01, "{costs:?}");
        }
        let [less, more, often] = three;
        let idle = Load { shb: less.shb, ..more };
        assert!(solve(few, star, [less, idle, often]).is_err(), "more deliveries at no cost");
    }
}
