//! The rates that 1, 2 and 4 SHBs deliver, each on a processor of its own, by the cost of each
//! operation on this machine.
//!
//! The costs are measured in the same run with broker processes ([`calibrate`]). The cores do in
//! virtual time what they do in processes, and each operation keeps its broker's processor busy for
//! as long as it costs. Two small worlds show how much busier a processor gets with each further
//! subscriber; the number that this promises is then tried.

use std::time::Duration;

use anyhow::{Result, ensure};
use indicatif::ProgressBar;

use super::world::{Ground, World};
use crate::cores::costs::Costs;
use crate::durable::calibrate::{self, Calibration};
use crate::durable::crowd::ACKNOWLEDGE_EVERY;
use crate::durable::{CLASSES, RATE};
use crate::experiment::chart::{Axis, Chart, Curve, Point, Style};
use crate::experiment::report::{Head, Part};
use crate::experiment::{Effort, Plan};
use crate::goal::Goal;

/// See the module's documentation.
pub const PLAN: Plan = Plan {
    id: "modelled",
    rows: &["modelled-scaling", "modelled-rate", "modelled-doubled", "modelled-wrong"],
    measure,
};

const SCALING: Head = Head {
    id: "modelled-scaling",
    measure: "modelled: events delivered per second, 4 SHBs / 1 SHB",
    unit: "ratio",
    paper: Some(3.96),
    goal: Goal::at_least(3.9),
};

const AGGREGATE: Head = Head {
    id: "modelled-rate",
    measure: "modelled: most events delivered per second by 4 SHBs, each on a core of its own",
    unit: "events/s",
    paper: Some(79_200.0),
    goal: Goal::at_least(624_000.0),
};

const DOUBLED: Head = Head {
    id: "modelled-doubled",
    measure: "the same with each cost doubled, of that: a model that this does not change is none",
    unit: "ratio",
    paper: None,
    goal: Goal::at_most(0.6),
};

const WRONG: Head = Head {
    id: "modelled-wrong",
    measure: "events lost or delivered twice in these worlds",
    unit: "events",
    paper: None,
    goal: Goal::at_most(0.0),
};

/// The numbers of SHBs.
const SHBS: [usize; 3] = [1, 2, 4];

/// The paper's figures, events/s, as far as it gives them: number of SHBs, rate.
const PAPER: [(f64, f64); 2] = [(1.0, 20_000.0), (4.0, 79_200.0)];

/// The part of the promised number of subscribers that is tried first, and the reduction for each
/// further try.
const FIRST_PART: f64 = 0.97;
const LESS: f64 = 0.03;

/// The number of tries.
const TRIES: u32 = 10;

/// If subscribers are further behind, the load is not sustained; nor if less than this part of the
/// due events arrives.
const LATE_MAX: Duration = Duration::from_millis(250);
const ARRIVES: f64 = 0.98;

/// The measurement of one world.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// The parts of the time for which the busiest SHB's processor was busy, and the PHB's.
    busy: [f64; 2],
    /// Events delivered per second.
    rate: f64,
    is_sustained: bool,
    wrong: u64,
}

/// The time for which a world is measured: a whole number of acknowledgement periods, so that all
/// worlds have equally many.
fn span(effort: Effort) -> Duration {
    ACKNOWLEDGE_EVERY * if effort.quick { 2 } else { 4 }
}

fn see(shbs: usize, each: usize, ground: Ground, span: Duration) -> Result<Seen> {
    let mut world = World::star(shbs, ground)?;
    world.add_everywhere(each);
    // Until all have received an event of every publisher; a processor that is too slow falls
    // behind meanwhile.
    world.run(span);
    let busy = |world: &World| -> Vec<Duration> { (0..=shbs).map(|broker| world.net.busy(broker)).collect() };
    let (before, received) = (busy(&world), world.people.counts().received);
    world.people.latencies.reset();
    world.run(span);
    let after = busy(&world);
    let part = |broker: usize| (after[broker] - before[broker]).as_secs_f64() / span.as_secs_f64();
    let rate = (world.people.counts().received - received) as f64 / span.as_secs_f64();
    let due = (shbs * each) as f64 * (ground.rate / CLASSES as u64) as f64;
    let late = Duration::from_micros(world.people.latencies.max());
    let counts = world.people.counts();
    let shb = (0..shbs).map(|place| part(world.shb(place))).fold(0.0, f64::max);
    Ok(Seen {
        busy: [shb, part(0)],
        rate,
        is_sustained: rate >= ARRIVES * due && late <= LATE_MAX,
        wrong: counts.wrong(),
    })
}

/// The number of subscribers for which each SHB seems to have room.
fn promised(shbs: usize, sizes: [usize; 2], ground: Ground, span: Duration) -> Result<f64> {
    let [small, large] = sizes;
    let [few, many] = [see(shbs, small, ground, span)?, see(shbs, large, ground, span)?];
    ensure!(few.is_sustained && many.is_sustained, "{small} and {large} subscribers are too many to begin with");
    let slope = (many.busy[0] - few.busy[0]) / (large - small) as f64;
    ensure!(slope > 0.0, "deliveries cost nothing in {few:?} and {many:?}");
    let idle = few.busy[0] - slope * small as f64;
    Ok((1.0 - idle) / slope)
}

/// The result for a number of SHBs.
#[derive(Clone, Copy, Debug)]
struct Found {
    each: usize,
    seen: Seen,
}

/// The greatest number of subscribers at each SHB that is sustained, about.
fn peak(shbs: usize, sizes: [usize; 2], ground: Ground, span: Duration) -> Result<Found> {
    let promised = promised(shbs, sizes, ground, span)?;
    let mut part = FIRST_PART;
    for _ in 0..TRIES {
        let each = ((promised * part) as usize / CLASSES * CLASSES).max(CLASSES);
        let seen = see(shbs, each, ground, span)?;
        if seen.is_sustained {
            return Ok(Found { each, seen });
        }
        part -= LESS;
    }
    anyhow::bail!("{shbs} SHBs do not sustain what two small worlds promise: {promised:.0} subscribers each")
}

/// Small worlds that are cheap to play and yet show the cost of a subscriber.
const SIZES: [usize; 2] = [40, 80];

fn ground(calibration: &Calibration, seed: u64) -> Ground {
    let Calibration { costs, commit } = *calibration;
    Ground { costs, commit, delay: Duration::from_millis(1), rate: RATE, seed }
}

fn measure(effort: Effort, bar: &ProgressBar) -> Result<Part> {
    bar.set_length(calibrate::STEPS + effort.seeds * SHBS.len() as u64 + Costs::NAMES.len() as u64 + 1);
    let calibration = calibrate::measure(effort.quick, bar)?;
    let mut part = Part { notes: calibration.lines(), ..Part::default() };
    let mut rounds = Vec::new();
    for seed in 1..=effort.seeds {
        let mut round = Vec::new();
        for shbs in SHBS {
            let found = peak(shbs, SIZES, ground(&calibration, seed), span(effort))?;
            let [shb, phb] = found.seen.busy.map(|part| 100.0 * part);
            part.notes.push(format!(
                "modelled: {shbs} SHBs: {} subscribers each, {:.0} events/s; busiest SHB {shb:.0} % busy, PHB {phb:.0} %",
                found.each, found.seen.rate
            ));
            round.push(found);
            bar.inc(1);
        }
        rounds.push(round);
    }
    let base = ground(&calibration, 1);
    let with = |factors: [f64; 5]| -> Result<f64> {
        bar.inc(1);
        promised(4, SIZES, Ground { costs: calibration.costs.scaled(factors), ..base }, span(effort))
    };
    let usual = promised(4, SIZES, base, span(effort))?;
    for (at, name) in Costs::NAMES.into_iter().enumerate() {
        let mut factors = [1.0; 5];
        factors[at] = 2.0;
        let now = with(factors)?;
        part.notes.push(format!("modelled: with {name} at twice its cost 4 SHBs deliver {:.3} of that", now / usual));
    }
    let doubled = with([2.0; 5])? / usual;
    let rates = |at: usize| -> Vec<f64> { rounds.iter().map(|round| round[at].seen.rate).collect() };
    let ratios: Vec<f64> = rates(2).iter().zip(rates(0)).map(|(four, one)| four / one).collect();
    let wrong = |round: &Vec<Found>| round.iter().map(|found| found.seen.wrong as f64).sum();
    part.rows = vec![
        SCALING.row(&ratios),
        AGGREGATE.row(&rates(2)),
        DOUBLED.row(&[doubled]),
        WRONG.worst(&rounds.iter().map(wrong).collect::<Vec<f64>>()),
    ];
    part.charts.push(chart(&(0..SHBS.len()).map(|at| (SHBS[at] as f64, rates(at))).collect::<Vec<_>>()));
    Ok(part)
}

/// Rates by the number of SHBs, compared with the paper's.
fn chart(rates: &[(f64, Vec<f64>)]) -> Chart {
    let point = |(x, rates): &(f64, Vec<f64>)| {
        let mut sorted: Vec<f64> = rates.iter().map(|rate| rate / 1e3).collect();
        sorted.sort_by(f64::total_cmp);
        Point { x: *x, y: sorted[sorted.len() / 2], spread: Some([sorted[0], sorted[sorted.len() - 1]]) }
    };
    let ours: Vec<Point> = rates.iter().map(point).collect();
    let first = ours.first().map_or(0.0, |first| first.y);
    let curve = |name: &str, colour, style, points| Curve { name: name.to_owned(), colour, style, points };
    let linear = rates.iter().map(|(x, _)| Point::new(*x, first * x)).collect();
    let paper = PAPER.into_iter().map(|(x, rate)| Point::new(x, rate / 1e3)).collect();
    Chart {
        file: "durable-scaling".to_owned(),
        title: "Events delivered by 1, 2 and 4 SHBs (modelled), and the paper's".to_owned(),
        x: Axis::linear("SHBs"),
        y: Axis::logarithmic("thousands of events per second"),
        curves: vec![
            curve("modelled", 0, Style::Marks, ours),
            curve("as many times the first", 0, Style::Dashes, linear),
            curve("paper", 1, Style::Joined, paper),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Slow processors: each subscriber, to 100 events/s, keeps one busy for 2.5 % of the time,
    /// multiplied by `factor`.
    fn slow(factor: u32) -> Ground {
        let micros = |micros: u32| Duration::from_micros(u64::from(micros * factor));
        let costs = Costs {
            publish: micros(20),
            forward: micros(5),
            receive: micros(10),
            deliver: micros(250),
            acknowledge: micros(10),
        };
        Ground { costs, commit: Duration::from_millis(1), delay: Duration::from_millis(1), rate: 400, seed: 1 }
    }

    const SPAN: Duration = Duration::from_millis(500);

    #[test]
    fn four_processors_deliver_four_times_as_much_as_one_and_twice_the_cost_halves_that() {
        let [one, four] = [1, 4].map(|shbs| peak(shbs, [4, 8], slow(1), SPAN).expect("a peak"));
        assert_eq!((one.seen.wrong, four.seen.wrong), (0, 0));
        // A delivery takes 250 µs: 4,000 in a second, less the other work.
        assert!((3_000.0..4_000.0).contains(&one.seen.rate), "{one:?}");
        let ratio = four.seen.rate / one.seen.rate;
        assert!((3.5..4.5).contains(&ratio), "{one:?}, {four:?}");
        let promise = |factor| promised(4, [4, 8], slow(factor), SPAN).expect("a promise");
        let doubled = promise(2) / promise(1);
        assert!((0.4..0.6).contains(&doubled), "{doubled}");
    }

    #[test]
    fn more_than_a_processor_can_do_is_not_sustained() {
        let seen = see(1, 16, slow(3), SPAN).expect("a world");
        assert!(!seen.is_sustained && seen.busy[0] > 0.99, "{seen:?}");
    }
}
