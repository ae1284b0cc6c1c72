//! Loss by the size of the cache and the publishing rate, compared with computed values.

use anyhow::Result;
use indicatif::ProgressBar;
use whimbrel_sim::mobility::Mobility;

use super::scenario::Scenario;
use super::tally::{Outcome, Tally};
use super::{CAPACITIES, length, play_all};
use crate::experiment::chart::{Axis, Chart, Curve, Point, Style};
use crate::experiment::report::{Head, Part};
use crate::experiment::{Effort, Plan};
use crate::goal::Goal;
use crate::semi_durable::outage::{Away, Outages};

/// See the module's documentation.
pub const PLAN: Plan = Plan { id: "buffer", rows: &["loss-curve", "loss-curve-covered"], measure };

const CURVE: Head = Head {
    id: "loss-curve",
    measure: "loss by capacity and rate, furthest from e^(-capacity / (rate x mean outage))",
    unit: "std. errors",
    paper: None,
    goal: Goal::at_most(FURTHEST),
};

const COVERED: Head = Head {
    id: "loss-curve-covered",
    measure: "events lost in outages shorter than capacity / rate, or silently, in all these runs",
    unit: "events",
    paper: None,
    goal: Goal::at_most(0.0),
};

/// The number of standard errors by which the farthest of a few tens of points may miss the curve.
const FURTHEST: f64 = 3.0;

/// With fewer outages that outlast the cache a standard error means nothing.
const OUTAGES_MIN: f64 = 20.0;

const RATES: [f64; 2] = [100.0, 285.29];

fn measure(effort: Effort, bar: &ProgressBar) -> Result<Part> {
    let surroundings = [Mobility::default(), Scenario::longer_outages()];
    bar.set_length(effort.seeds * (surroundings.len() * RATES.len()) as u64);
    let (mut apart, mut broken, mut charts) = (Vec::new(), vec![0.0; effort.seeds as usize], Vec::new());
    for mobility in surroundings {
        let mean = mobility.mean_outage.as_secs_f64();
        let mut curves = Vec::new();
        for (colour, rate) in RATES.into_iter().enumerate() {
            let length = length(effort, 2400);
            let scenario = Scenario { rate, mobility, capacities: CAPACITIES, length, ..Scenario::default() };
            let outcomes = play_all(&scenario, effort, bar)?;
            for (count, outcome) in broken.iter_mut().zip(&outcomes) {
                let total = outcome.total();
                *count += (total.silent + total.repeated + total.uncovered) as f64;
            }
            apart.extend(distances(&scenario, &outcomes));
            curves.extend(compared(&scenario, &outcomes, colour));
        }
        charts.push(Chart {
            file: format!("loss-buffer-{mean:.0}s"),
            title: format!("Loss against buffer size, mean outage {mean:.0} s: measured, and computed"),
            x: Axis::linear("events that the ten partitions hold together"),
            y: Axis::logarithmic("events lost, %"),
            curves,
        });
    }
    let figure = |value: f64| if value.is_finite() { value } else { f64::MAX };
    let apart: Vec<f64> = apart.into_iter().map(figure).collect();
    let notes = vec![format!("loss-curve: {} points with {OUTAGES_MIN} long outages or more", apart.len())];
    let curve = if apart.is_empty() { CURVE.unmeasured("the runs are too short") } else { CURVE.worst(&apart) };
    Ok(Part { rows: vec![curve, COVERED.worst(&broken)], notes, charts })
}

/// The tally of one class over all seeds.
fn together(outcomes: &[Outcome], class: usize) -> Tally {
    let mut all = Tally::default();
    outcomes.iter().for_each(|outcome| all.add(outcome.classes[class].clone()));
    all
}

/// How far the losses of each class are from the curve, in standard errors of the curve.
fn distances(scenario: &Scenario, outcomes: &[Outcome]) -> Vec<f64> {
    let mean = scenario.mobility.mean_outage.as_secs_f64();
    let distance = |(class, capacity): (usize, &u64)| {
        let tally = together(outcomes, class);
        let (count, kept) = (tally.outages.len() as f64, *capacity as f64 / scenario.class_rate());
        let part = Outages::exponential(mean).residual(kept);
        let error = (2.0 * part * (1.0 - part * (1.0 + kept / mean)) / count).sqrt();
        let known = count * part >= OUTAGES_MIN;
        known.then(|| (tally.lost_of_missed() - part).abs() / error)
    };
    scenario.capacities.iter().enumerate().filter_map(distance).collect()
}

/// The measured points, and the curve on which they should lie.
fn compared(scenario: &Scenario, outcomes: &[Outcome], colour: usize) -> [Curve; 2] {
    let Mobility { mean_outage, fraction_down, .. } = scenario.mobility;
    let outages = Outages::exponential(mean_outage.as_secs_f64());
    let whole = |capacity: u64| (scenario.capacities.len() as u64 * capacity) as f64;
    let computed = |capacity: &u64| {
        let kept = *capacity as f64 / scenario.class_rate();
        Point::new(whole(*capacity), 100.0 * fraction_down * outages.residual(kept))
    };
    let measured = |(class, capacity): (usize, &u64)| {
        let mut losses: Vec<f64> = outcomes.iter().map(|outcome| outcome.classes[class].loss()).collect();
        losses.sort_by(f64::total_cmp);
        let spread = Some([losses[0], losses[losses.len() - 1]]);
        Point { x: whole(*capacity), y: together(outcomes, class).loss(), spread }
    };
    let curve = |name: String, style, points| Curve { name, colour, style, points };
    [
        curve(String::new(), Style::Line, scenario.capacities.iter().map(computed).collect()),
        curve(
            format!("{} events/s", scenario.rate),
            Style::Marks,
            scenario.capacities.iter().enumerate().map(measured).collect(),
        ),
    ]
}
