//! Losses by the kind of subscription and by the mobility of subscribers.

use anyhow::Result;
use indicatif::ProgressBar;
use whimbrel_core::Durability;
use whimbrel_sim::mobility::Mobility;

use super::scenario::Scenario;
use super::tally::Outcome;
use super::{length, play_all};
use crate::experiment::chart::{Axis, Chart, Curve, Point, Style};
use crate::experiment::report::{Head, Part};
use crate::experiment::{Effort, Plan};
use crate::goal::Goal;
use crate::semi_durable::outage::{Away, Outages};

/// The percentage of time that a subscriber of the paper is away.
const TIME_DOWN: f64 = 7.42;

/// Nondurable and semi-durable subscriptions with the default parameters.
pub const DEFAULTS: Plan = Plan {
    id: "loss",
    rows: &["loss-nondurable", "loss-semi-durable", "loss-covered", "loss-silent", "delivered-same-rate"],
    measure: defaults,
};

/// The fraction of time down varies.
pub const TIME_DOWN_PLAN: Plan = Plan { id: "time-down", rows: &["time-down"], measure: time_down };

/// The variation of outages varies.
pub const VARIATION: Plan = Plan { id: "variation", rows: &["variation"], measure: variation };

const NONDURABLE: Head = Head {
    id: "loss-nondurable",
    measure: "events lost, nondurable (the model's time down)",
    unit: "%",
    paper: Some(7.45),
    goal: Goal::about(TIME_DOWN),
};

const SEMI_DURABLE: Head = Head {
    id: "loss-semi-durable",
    measure: "events lost, semi-durable, 10 partitions of 3,000 events, 285.29 events/s",
    unit: "%",
    paper: Some(0.18),
    goal: Goal::at_most(0.18),
};

const COVERED: Head = Head {
    id: "loss-covered",
    measure: "events lost in outages shorter than capacity / rate",
    unit: "events",
    paper: None,
    goal: Goal::at_most(0.0),
};

const SILENT: Head = Head {
    id: "loss-silent",
    measure: "events lost outside of reported gaps, or delivered twice",
    unit: "events",
    paper: None,
    goal: Goal::at_most(0.0),
};

const SAME_RATE: Head = Head {
    id: "delivered-same-rate",
    measure: "events delivered at the same rate, semi-durable / nondurable",
    unit: "ratio",
    paper: Some(1.075),
    goal: Goal::at_least(1.07),
};

fn nondurable(scenario: &Scenario) -> Scenario {
    Scenario { durability: Durability::Nondurable, ..scenario.clone() }
}

fn defaults(effort: Effort, bar: &ProgressBar) -> Result<Part> {
    bar.set_length(2 * effort.seeds);
    let scenario = Scenario { length: length(effort, 1800), ..Scenario::default() };
    let kept = play_all(&scenario, effort, bar)?;
    let not_kept = play_all(&nondurable(&scenario), effort, bar)?;
    let of = |outcomes: &[Outcome], figure: &dyn Fn(super::tally::Tally) -> f64| -> Vec<f64> {
        outcomes.iter().map(|outcome| figure(outcome.total())).collect()
    };
    let delivered = kept.iter().zip(&not_kept).map(|(kept, not)| {
        let rate = |outcome: &Outcome| outcome.total().delivered as f64 / outcome.total().expected as f64;
        rate(kept) / rate(not)
    });
    let total: u64 = kept.iter().map(|outcome| outcome.total().expected).sum();
    let computed = TIME_DOWN * Outages::exponential(12.0).residual(3000.0 / scenario.class_rate());
    Ok(Part {
        rows: vec![
            NONDURABLE.row(&of(&not_kept, &|tally| tally.loss())),
            SEMI_DURABLE.row(&of(&kept, &|tally| tally.loss())),
            COVERED.worst(&of(&kept, &|tally| tally.uncovered as f64)),
            SILENT.worst(&of(&kept, &|tally| (tally.silent + tally.repeated) as f64)),
            SAME_RATE.row(&delivered.collect::<Vec<_>>()),
        ],
        notes: vec![format!(
            "loss: {total} events were wanted by semi-durable subscribers; computed for them: {computed:.5} % lost"
        )],
        charts: Vec::new(),
    })
}

/// A series of scenarios for comparison: the losses of both kinds of subscriptions, and the
/// computed ones of the semi-durable ones.
struct Sweep {
    head: Head,
    title: &'static str,
    label: &'static str,
    /// The values of the varied parameter, with the mobility.
    steps: Vec<(f64, Mobility)>,
}

/// The seconds that are counted in each run of a sweep.
const SWEEP_SECONDS: u64 = 600;

impl Sweep {
    fn measure(self, effort: Effort, bar: &ProgressBar) -> Result<Part> {
        bar.set_length(2 * effort.seeds * self.steps.len() as u64);
        let (mut kept, mut not_kept, mut computed) = (Vec::new(), Vec::new(), Vec::new());
        let mut broken = vec![0.0; effort.seeds as usize];
        for (x, mobility) in self.steps {
            let scenario = Scenario { mobility, length: length(effort, SWEEP_SECONDS), ..Scenario::default() };
            let outcomes = play_all(&scenario, effort, bar)?;
            for (count, outcome) in broken.iter_mut().zip(&outcomes) {
                let total = outcome.total();
                *count += (total.silent + total.repeated + total.uncovered) as f64;
            }
            kept.push(point(x, &outcomes));
            not_kept.push(point(x, &play_all(&nondurable(&scenario), effort, bar)?));
            let mean = mobility.mean_outage.as_secs_f64();
            let residual = Outages::hyper_exponential(mean, mobility.cv).residual(3000.0 / scenario.class_rate());
            computed.push(Point::new(x, 100.0 * mobility.fraction_down * residual));
        }
        let curve = |name: &str, colour, style, points| Curve { name: name.to_owned(), colour, style, points };
        let chart = Chart {
            file: format!("loss-{}", self.head.id),
            title: self.title.to_owned(),
            x: Axis::linear(self.label),
            y: Axis::logarithmic("events lost, %"),
            curves: vec![
                curve("nondurable", 1, Style::Joined, not_kept),
                curve("semi-durable", 0, Style::Marks, kept),
                curve("semi-durable, computed", 0, Style::Line, computed),
            ],
        };
        Ok(Part { rows: vec![self.head.worst(&broken)], notes: Vec::new(), charts: vec![chart] })
    }
}

/// The losses of all seeds as one point.
fn point(x: f64, outcomes: &[Outcome]) -> Point {
    let mut losses: Vec<f64> = outcomes.iter().map(|outcome| outcome.total().loss()).collect();
    losses.sort_by(f64::total_cmp);
    let spread = Some([losses[0], losses[losses.len() - 1]]);
    Point { x, y: losses[losses.len() / 2], spread }
}

fn time_down(effort: Effort, bar: &ProgressBar) -> Result<Part> {
    let usual = Mobility::default();
    let step = |fraction: f64| {
        let graceful_rate = usual.graceful_rate * fraction / usual.fraction_down;
        (100.0 * fraction, Mobility { fraction_down: fraction, graceful_rate, ..usual })
    };
    let sweep = Sweep {
        head: Head {
            id: "time-down",
            measure: "events lost silently, twice, or covered, at 0 to 15 % of time down",
            unit: "events",
            paper: None,
            goal: Goal::at_most(0.0),
        },
        title: "Loss against time down (285.29 events/s, mean outage 12 s, partitions of 3,000)",
        label: "time down, %",
        steps: [0.01, 0.025, 0.05, 0.1, 0.15].map(step).to_vec(),
    };
    sweep.measure(effort, bar)
}

fn variation(effort: Effort, bar: &ProgressBar) -> Result<Part> {
    let sweep = Sweep {
        head: Head {
            id: "variation",
            measure: "events lost silently, twice, or covered, at variations of outages of 1 to 2.5",
            unit: "events",
            paper: None,
            goal: Goal::at_most(0.0),
        },
        title: "Loss against the variation of outages (285.29 events/s, mean outage 12 s, partitions of 3,000)",
        label: "coefficient of variation",
        steps: [1.0, 1.5, 2.0, 2.5].map(|cv| (cv, Mobility { cv, ..Mobility::default() })).to_vec(),
    };
    sweep.measure(effort, bar)
}
