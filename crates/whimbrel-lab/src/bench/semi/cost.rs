//! CPU time of the broker per delivery: semi-durable subscriptions compared with nondurable ones,
//! and this build compared with another.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::super::closed_loop::{self, Load};
use super::super::measure::Settings;
use super::super::process::CpuClock;
use super::super::report::number;
use super::super::wire::QoS;
use super::{Row, SemiArgs};

/// The additional cost of a semi-durable delivery that is allowed, if it is more than
/// [`MORE_RATIO`] allows; microseconds.
const MORE_MICROS: f64 = 0.15;

/// The ratio of the costs of a semi-durable and a nondurable delivery that is allowed, if it is
/// more than [`MORE_MICROS`] allows.
const MORE_RATIO: f64 = 1.15;

/// The ratio to the cost of another build's deliveries that is allowed: within the differences
/// between two builds of the same code.
const BUILD_RATIO: f64 = 1.05;

const NONDURABLE: &[(&str, &str)] = &[("w-durability", "nondurable")];
const SEMI_DURABLE: &[(&str, &str)] = &[("w-durability", "semi-durable")];

/// The loads: name, quality of service, subscribers.
const LOADS: [(&str, QoS, usize); 6] = [
    ("QoS 0 1→1", QoS::AtMostOnce, 1),
    ("QoS 0 1→10", QoS::AtMostOnce, 10),
    ("QoS 0 1→100", QoS::AtMostOnce, 100),
    ("QoS 1 1→1", QoS::AtLeastOnce, 1),
    ("QoS 1 1→10", QoS::AtLeastOnce, 10),
    ("QoS 1 1→100", QoS::AtLeastOnce, 100),
];

/// One variant: a program, and the terms of its subscriptions.
struct Side {
    program: PathBuf,
    user: &'static [(&'static str, &'static str)],
}

/// Compares semi-durable with nondurable subscriptions.
pub(super) fn delivery(args: &SemiArgs) -> Result<Vec<Row>> {
    let side = |user| Side { program: args.start.program(), user };
    let samples = interleaved(args, &[side(NONDURABLE), side(SEMI_DURABLE)])?;
    let mut rows = Vec::new();
    for ((name, ..), rounds) in LOADS.iter().zip(&samples) {
        let seed = args.start.seed;
        let plain = Row::median("delivery", format!("{name}: nondurable"), "µs", &column(rounds, 0), seed);
        let semi = Row::median("delivery", format!("{name}: semi-durable"), "µs", &column(rounds, 1), seed);
        let differences: Vec<f64> = rounds.iter().map(|[plain, semi]| semi - plain).collect();
        let more = Row::median("delivery", format!("{name}: semi-durable less nondurable"), "µs", &differences, seed);
        let ratio = Row::median("delivery", format!("{name}: semi-durable / nondurable"), "", &ratios(rounds), seed);
        rows.extend([plain, semi, judged(ratio, &more), more]);
    }
    Ok(rows)
}

/// The ratio decides unless the difference alone is small enough.
fn judged(ratio: Row, more: &Row) -> Row {
    let row = ratio.at_most(MORE_RATIO);
    let small = more.ours.filter(|micros| row.met == Some(false) && *micros <= MORE_MICROS);
    match small {
        None => row,
        Some(micros) => {
            let why = format!("{} µs more, {MORE_MICROS} µs are allowed", number(micros));
            Row { met: Some(true), why: Some(why), ..row }
        }
    }
}

/// Compares nondurable traffic of this build with that of another.
pub(super) fn against(args: &SemiArgs) -> Result<Vec<Row>> {
    let other = args.against.clone().context("another build to compare with is needed: --against PROGRAM")?;
    let samples =
        interleaved(args, &[Side { program: other, user: &[] }, Side { program: args.start.program(), user: &[] }])?;
    let mut rows = Vec::new();
    for ((name, ..), rounds) in LOADS.iter().zip(&samples) {
        let seed = args.start.seed;
        let other = Row::median("against", format!("{name}: other build"), "µs", &column(rounds, 0), seed);
        let this = Row::median("against", format!("{name}: this build"), "µs", &column(rounds, 1), seed);
        let ratio = Row::median("against", format!("{name}: this / other build"), "", &ratios(rounds), seed);
        rows.extend([other, this, ratio.at_most(BUILD_RATIO)]);
    }
    Ok(rows)
}

fn column(rounds: &[[f64; 2]], side: usize) -> Vec<f64> {
    rounds.iter().map(|round| round[side]).collect()
}

fn ratios(rounds: &[[f64; 2]]) -> Vec<f64> {
    rounds.iter().map(|[one, other]| other / one).collect()
}

/// The broker's CPU microseconds per delivery, by load and round; the sides alternate in a new
/// random order.
fn interleaved(args: &SemiArgs, sides: &[Side; 2]) -> Result<Vec<Vec<[f64; 2]>>> {
    let settings = args.load.settings();
    let mut random = fastrand::Rng::with_seed(args.start.seed);
    let mut samples = vec![Vec::new(); LOADS.len()];
    for round in 0..args.rounds {
        for (load, samples) in LOADS.iter().zip(&mut samples) {
            let mut pair = [0.0; 2];
            let mut order = [0, 1];
            random.shuffle(&mut order);
            for side in order {
                let context = || format!("round {} of {}, {}", round + 1, args.rounds, load.0);
                pair[side] = micros(args, &sides[side], load, &settings).with_context(context)?;
            }
            samples.push(pair);
        }
    }
    Ok(samples)
}

fn micros(args: &SemiArgs, side: &Side, load: &(&str, QoS, usize), settings: &Settings) -> Result<f64> {
    let bounds = settings.bounds;
    let load = Load {
        publishers: 1,
        subscribers: load.2,
        qos: load.1,
        body: bounds.body,
        window: bounds.window,
        unacknowledged: bounds.unacknowledged,
        user: side.user,
        lasting: false,
    };
    let broker = args.start(&side.program, "")?;
    let outcome = closed_loop::run(broker.target, &load, &settings.timing, Some(CpuClock::of(broker.pid())?))?;
    ensure!(outcome.lost == 0 && outcome.repeated == 0, "{} lost, {} repeated", outcome.lost, outcome.repeated);
    ensure!(outcome.elapsed > Duration::ZERO, "a measurement takes time");
    outcome.broker_micros().context("the broker's process is known")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(pairs: &[[f64; 2]]) -> Row {
        let differences: Vec<f64> = pairs.iter().map(|[plain, semi]| semi - plain).collect();
        judged(Row::median("d", "", "", &ratios(pairs), 1), &Row::median("d", "", "µs", &differences, 1))
    }

    #[test]
    fn whichever_is_more_of_a_share_and_a_time_is_allowed() {
        let cheap = rounds(&[[0.2, 0.3], [0.2, 0.3], [0.2, 0.3]]);
        assert_eq!(cheap.met, Some(true), "half as much again is 0.1 µs");
        assert!(cheap.why.is_some_and(|why| why.contains("0.100 µs")));
        assert_eq!(rounds(&[[2.0, 2.25]]).met, Some(true), "an eighth more");
        assert_eq!(rounds(&[[2.0, 2.4]]).met, Some(false), "0.4 µs and a fifth more");
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        assert_eq!(ratios(&[[1.0, 2.0], [10.0, 20.0]]), [2.0, 2.0]);
    }
}
