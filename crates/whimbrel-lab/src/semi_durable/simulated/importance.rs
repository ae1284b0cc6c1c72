//! Loss of importance by overwriting policy, compared with computed values.
//!
//! All policies have the same events and outages. Losses depend on the few outages that outlast the
//! cache, so the computed values are for the very outages that happened; the values in the long run
//! are given as well.

use std::time::Duration;

use anyhow::Result;
use indicatif::ProgressBar;
use whimbrel_core::cache;

use super::scenario::{CLASSES, Scenario};
use super::tally::Outcome;
use super::{CAPACITIES, length, play_all};
use crate::experiment::chart::{Axis, Chart, Curve, Point, Style};
use crate::experiment::report::{Head, Part};
use crate::experiment::{Effort, Plan};
use crate::goal::Goal;
use crate::semi_durable::outage::{Observed, Outages};
use crate::semi_durable::policy::{Load, Policy};

/// The paper's comparison of policies.
pub const GAIN: Plan =
    Plan { id: "importance", rows: &["pwp-gain", "value-gain", "random-loss", "importance-silent"], measure: gain };

/// The comparison of policies with partitions of many sizes.
pub const MEMORY: Plan = Plan { id: "memory", rows: &["memory"], measure: memory };

/// The events per second at which the paper compares policies.
const RATE: f64 = 258.63;

/// The mean length of outages, seconds.
const MEAN_OUTAGE: f64 = 24.0;

const SILENT: Head = Head {
    id: "importance-silent",
    measure: "events lost outside of reported gaps, or delivered twice, under all policies",
    unit: "events",
    paper: None,
    goal: Goal::at_most(0.0),
};

const MEMORY_SILENT: Head = Head {
    id: "memory",
    measure: "events lost silently or delivered twice, under all policies and partition sizes",
    unit: "events",
    paper: None,
    goal: Goal::at_most(0.0),
};

/// A policy with its name, as the broker's setting and as it is computed.
#[derive(Clone, Copy)]
struct Both {
    name: &'static str,
    real: cache::Policy,
    computed: Policy,
}

const POLICIES: [Both; 4] = [
    Both { name: "lrp", real: cache::Policy::Lrp, computed: Policy::Lrp },
    Both { name: "random", real: cache::Policy::Random, computed: Policy::Random },
    Both {
        name: "priority",
        real: cache::Policy::Priority { protected: 200, lifetime: Duration::from_secs(48) },
        computed: Policy::Priority { share: 0.8, lifetime: 48.0 },
    },
    Both { name: "value", real: cache::Policy::Value, computed: Policy::Optimum },
];

fn scenario(effort: Effort, policy: cache::Policy, capacities: [u64; CLASSES], seconds: u64) -> Scenario {
    let length = length(effort, seconds);
    Scenario { rate: RATE, mobility: Scenario::longer_outages(), policy, capacities, length, ..Scenario::default() }
}

/// The computed part of the missed importance that a policy loses with these outages.
fn computed(policy: Policy, capacity: u64, met: &Observed) -> f64 {
    let load = Load { capacity: capacity as f64, rate: RATE / CLASSES as f64 };
    policy.losses(load, &Outages::exponential(MEAN_OUTAGE), met).weighted()
}

fn broken(outcomes: &[Outcome]) -> impl Iterator<Item = f64> {
    outcomes.iter().map(|outcome| outcome.total()).map(|total| (total.silent + total.repeated) as f64)
}

/// The median, as in the rows.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    (values[(values.len() - 1) / 2] + values[values.len() / 2]) / 2.0
}

/// The percentage by which `one` is less than `other`, seed by seed.
fn less(one: &[f64], other: &[f64]) -> Vec<f64> {
    one.iter().zip(other).map(|(one, other)| 100.0 * (1.0 - one / other)).collect()
}

fn gain(effort: Effort, bar: &ProgressBar) -> Result<Part> {
    const CAPACITY: u64 = 2000;
    const SECONDS: u64 = 3600;
    bar.set_length(effort.seeds * POLICIES.len() as u64);
    let (mut measured, mut expected, mut silent) = (Vec::new(), Vec::new(), Vec::new());
    let mut notes = Vec::new();
    for Both { name, real, computed: policy } in POLICIES {
        let outcomes = play_all(&scenario(effort, real, [CAPACITY; CLASSES], SECONDS), effort, bar)?;
        let losses: Vec<f64> = outcomes.iter().map(|outcome| outcome.total().importance_loss()).collect();
        let plain = median(outcomes.iter().map(|outcome| outcome.total().loss()).collect());
        notes.push(format!("importance: {name}: E {:.4} %, L {plain:.4} %", median(losses.clone())));
        measured.push(losses);
        expected.push(
            outcomes.iter().map(|outcome| computed(policy, CAPACITY, &outcome.total().observed())).collect::<Vec<_>>(),
        );
        silent.extend(broken(&outcomes));
    }
    let [lrp, random, priority, value] = [0, 1, 2, 3];
    let outages = Outages::exponential(MEAN_OUTAGE);
    let load = Load { capacity: CAPACITY as f64, rate: RATE / CLASSES as f64 };
    let long_run = |policy: usize| {
        let loss = |policy: Policy| policy.losses(load, &outages, &outages).weighted();
        100.0 * (1.0 - loss(POLICIES[policy].computed) / loss(Policy::Lrp))
    };
    for policy in [random, priority, value] {
        let name = POLICIES[policy].name;
        notes.push(format!("importance: {name}: {:.2} % less E than lrp computed for the long run", long_run(policy)));
    }
    let head = |id, measure, paper, policy: usize| Head {
        id,
        measure,
        unit: "%",
        paper,
        goal: Goal::near(median(less(&expected[policy], &expected[lrp]))),
    };
    let times = |losses: &[f64], by: &[f64]| losses.iter().zip(by).map(|(a, b)| a / b).collect::<Vec<_>>();
    let random_head = Head {
        id: "random-loss",
        measure: "importance lost, random / lrp, against the computed ratio",
        unit: "ratio",
        paper: None,
        goal: Goal::about(median(times(&expected[random], &expected[lrp]))),
    };
    Ok(Part {
        rows: vec![
            head(
                "pwp-gain",
                "importance lost less by PwP than by lrp; goal: computed for these outages",
                Some(76.0),
                priority,
            )
            .row(&less(&measured[priority], &measured[lrp])),
            head(
                "value-gain",
                "importance lost less by value than by lrp; goal: the optimum computed for these outages",
                None,
                value,
            )
            .row(&less(&measured[value], &measured[lrp])),
            random_head.row(&times(&measured[random], &measured[lrp])),
            SILENT.worst(&silent),
        ],
        notes,
        charts: Vec::new(),
    })
}

fn memory(effort: Effort, bar: &ProgressBar) -> Result<Part> {
    bar.set_length(effort.seeds * POLICIES.len() as u64);
    let (mut curves, mut silent) = (Vec::new(), Vec::new());
    for (colour, Both { name, real, computed: policy }) in POLICIES.into_iter().enumerate() {
        let outcomes = play_all(&scenario(effort, real, CAPACITIES, 1200), effort, bar)?;
        silent.extend(broken(&outcomes));
        let outages = Outages::exponential(MEAN_OUTAGE);
        let down = 100.0 * Scenario::longer_outages().fraction_down;
        let line = CAPACITIES.iter().map(|capacity| {
            let load = Load { capacity: *capacity as f64, rate: RATE / CLASSES as f64 };
            Point::new(*capacity as f64, down * policy.losses(load, &outages, &outages).weighted())
        });
        let points = CAPACITIES.iter().enumerate().map(|(class, capacity)| {
            let losses: Vec<f64> = outcomes.iter().map(|outcome| outcome.classes[class].importance_loss()).collect();
            let ends = [f64::min, f64::max].map(|pick| losses.iter().copied().reduce(pick).expect("a seed at least"));
            Point { x: *capacity as f64, y: median(losses), spread: Some(ends) }
        });
        let computed = if policy == Policy::Optimum { "optimum" } else { "" };
        let curve = |name: &str, style, points| Curve { name: name.to_owned(), colour, style, points };
        curves.push(curve(computed, Style::Line, line.collect()));
        curves.push(curve(name, Style::Marks, points.collect()));
    }
    let chart = Chart {
        file: "importance-memory".to_owned(),
        title: "Importance lost against memory (258.63 events/s, mean outage 24 s): measured, and computed".to_owned(),
        x: Axis::linear("events that a partition holds"),
        y: Axis::logarithmic("importance lost, %"),
        curves,
    };
    Ok(Part { rows: vec![MEMORY_SILENT.worst(&silent)], notes: Vec::new(), charts: vec![chart] })
}
