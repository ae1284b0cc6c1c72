//! The real driver: two linked broker processes that share a core, sockets, and mobile subscribers
//! whose times are a tenth of the paper's. The publisher is at the first broker; subscribers are at
//! both, and return to either.
//!
//! Peaks are given per CPU second of the brokers while their core is fully used: that depends much
//! less on the machine's other work than events per second of the clock, which are given as well.
//! Kinds and policies alternate within each round, each with fresh brokers; ratios are taken within
//! a round.

mod load;
mod mobile;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use indicatif::ProgressBar;
use whimbrel_sim::mobility::Mobility;

use crate::bench::process;
use crate::brokers::{Broker, Setup};
use crate::experiment::chart::{Axis, Chart, Curve, Point, Style};
use crate::experiment::report::{Head, Part};
use crate::experiment::{Effort, Plan};
use crate::goal::Goal;
use load::{BROKERS, CLASSES, Figures, Kind, Load, TOPIC, VALUES_PER_CLASS};

/// The parts that the real driver measures.
pub const PLANS: &[Plan] = &[
    Plan {
        id: "peaks",
        rows: &["peak-publish", "throughput", "pwp-peak", "random-peak", "durable-peak"],
        measure: peaks,
    },
    Plan { id: "body-size", rows: &["body-size"], measure: body_size },
    Plan { id: "time-down-rate", rows: &["time-down-rate"], measure: time_down },
];

/// How many times faster subscribers move than in the paper.
const FASTER: u32 = 10;

/// Events that a partition holds: at the rates of one core, about as many mean outages as in the
/// paper.
const CAPACITY: u64 = 20_000;

/// The cores of the brokers and of the generator.
const CORES: (usize, usize) = (0, 1);

const PEAK_PUBLISH: Head = Head {
    id: "peak-publish",
    measure: "events published per CPU second of the brokers, semi-durable / nondurable",
    unit: "ratio",
    paper: None,
    goal: Goal::at_least(0.87),
};

const THROUGHPUT: Head = Head {
    id: "throughput",
    measure: "events delivered per CPU second of the brokers, semi-durable / nondurable",
    unit: "ratio",
    paper: Some(0.90),
    goal: Goal::at_least(0.93),
};

const PRIORITY: Head = Head {
    id: "pwp-peak",
    measure: "events published per CPU second of the brokers, PwP / lrp",
    unit: "ratio",
    paper: Some(0.89),
    goal: Goal::at_least(0.97),
};

const RANDOM: Head = Head {
    id: "random-peak",
    measure: "events published per CPU second of the brokers, random / lrp",
    unit: "ratio",
    paper: None,
    goal: Goal::at_least(0.95),
};

const DURABLE: Head = Head {
    id: "durable-peak",
    measure: "events published, durable (logged and synced) / semi-durable: the lesser of the ratios by clock and by CPU",
    unit: "ratio",
    paper: Some(0.06),
    goal: Goal::at_least(0.5),
};

const BODY: Head = Head {
    id: "body-size",
    measure: "least ratio of throughput, semi-durable / nondurable, with bodies of 50 to 500 bytes",
    unit: "ratio",
    paper: None,
    goal: Goal::at_least(0.93),
};

const TIME_DOWN: Head = Head {
    id: "time-down-rate",
    measure: "least ratio of throughput, semi-durable / nondurable, at 0 to 15 % of time down",
    unit: "ratio",
    paper: None,
    goal: Goal::at_least(0.93),
};

/// A kind of subscription, and the cache's overwriting policy.
#[derive(Clone, Copy)]
struct Variant {
    name: &'static str,
    kind: Kind,
    /// `None`: the broker's default.
    policy: Option<&'static str>,
}

const NONDURABLE: Variant = Variant { name: "nondurable", kind: Kind::Nondurable, policy: None };
const LRP: Variant = Variant { name: "lrp", kind: Kind::SemiDurable, policy: Some("policy = \"lrp\"") };
const PWP: Variant = Variant {
    name: "PwP",
    kind: Kind::SemiDurable,
    // Twice the mean outage, as in the paper.
    policy: Some("policy = \"priority\"\nlifetime = \"2400ms\""),
};
const DURABLE_LRP: Variant = Variant { name: "durable", kind: Kind::Durable, ..LRP };
const ANY: Variant = Variant { name: "random", kind: Kind::SemiDurable, policy: Some("policy = \"random\"") };

/// The paper's mobility, faster.
fn mobility(fraction_down: f64) -> Mobility {
    let paper = Mobility::default();
    Mobility {
        mean_outage: paper.mean_outage / FASTER,
        fraction_down,
        graceful_rate: paper.graceful_rate * f64::from(FASTER) * fraction_down / paper.fraction_down,
        brokers: BROKERS,
        ..paper
    }
}

fn configuration(policy: &str) -> String {
    let partition = |class: u64| {
        let (low, high) = (class * VALUES_PER_CLASS, (class + 1) * VALUES_PER_CLASS - 1);
        format!(
            "[[partition]]\nfilter = \"{TOPIC}\"\nselector = \"v BETWEEN {low} AND {high}\"\n\
             capacity = \"{CAPACITY} events\"\n{policy}\n"
        )
    };
    // Both brokers cache all events, whatever subscriptions there are.
    let buffer = format!("[buffer]\nsubscribe = [\"{TOPIC}\"]\n");
    std::iter::once(buffer).chain((0..CLASSES as u64).map(partition)).collect()
}

/// Measures one variant once.
fn measure(variant: Variant, body: usize, fraction_down: f64, round: u64, effort: Effort) -> Result<Figures> {
    let setup = |name: &str, peers| Setup {
        name: name.to_owned(),
        core: CORES.0,
        own_core: CORES.1,
        peers,
        settings: variant.policy.map(configuration).unwrap_or_default(),
        has_data: variant.kind == Kind::Durable,
    };
    let home = Broker::start(setup("home", Vec::new()))?;
    let field = Broker::start(setup("field", vec![home.overlay]))?;
    home.await_links(1)?;
    let seconds = |whole: u64| Duration::from_secs(if effort.quick { 1 } else { whole });
    let load = Load {
        kind: variant.kind,
        body,
        mobility: mobility(fraction_down),
        warm_up: seconds(8),
        measure: seconds(8),
        seed: round,
    };
    let clocks = [home.cpu()?, field.cpu()?];
    load::run([home.target, field.target], &load, clocks).with_context(|| format!("measuring {}", variant.name))
}

/// The figures of variants, round by round.
struct Series {
    variants: Vec<Variant>,
    rounds: Vec<Vec<Figures>>,
}

impl Series {
    fn measure(
        variants: &[Variant],
        body: usize,
        fraction_down: f64,
        effort: Effort,
        bar: &ProgressBar,
    ) -> Result<Series> {
        let cores = process::cores();
        ensure!(cores >= 2, "brokers and generator need a core each, and this machine has {cores}");
        let mut rounds = Vec::new();
        for round in 1..=effort.seeds {
            let mut figures = Vec::new();
            for variant in variants {
                figures.push(measure(*variant, body, fraction_down, round, effort)?);
                bar.inc(1);
            }
            rounds.push(figures);
        }
        Ok(Series { variants: variants.to_vec(), rounds })
    }

    /// The ratios of a figure, variant `one` to variant `other`.
    fn ratios(&self, one: usize, other: usize, figure: fn(&Figures) -> f64) -> Vec<f64> {
        self.rounds.iter().map(|round| figure(&round[one]) / figure(&round[other])).collect()
    }

    /// The median of a figure of a variant, with its spread.
    fn point(&self, x: f64, variant: usize, figure: fn(&Figures) -> f64) -> Point {
        let mut values: Vec<f64> = self.rounds.iter().map(|round| figure(&round[variant])).collect();
        values.sort_by(f64::total_cmp);
        let spread = Some([values[0], values[values.len() - 1]]);
        Point { x, y: values[values.len() / 2], spread }
    }

    /// Descriptions of each variant's figures.
    fn notes(&self, what: &str) -> Vec<String> {
        let note = |(index, variant): (usize, &Variant)| {
            let median = |figure: fn(&Figures) -> f64| self.point(0.0, index, figure).y;
            format!(
                "{what}: {}: {:.0} events/s in, {:.0} out by the clock, core {:.0} % busy; {:.2} µs of CPU per delivery; {:.2} % lost; \
                 {:.0} returns",
                variant.name,
                median(|figures| figures.published as f64 / figures.elapsed),
                median(|figures| figures.delivered as f64 / figures.elapsed),
                median(|figures| 100.0 * figures.broker_cpu / figures.elapsed),
                median(|figures| 1e6 / figures.delivered_per_cpu()),
                median(Figures::loss),
                median(|figures| figures.returns as f64),
            )
        };
        self.variants.iter().enumerate().map(note).collect()
    }
}

const DEFAULT_BODY: usize = 50;

fn paper_fraction() -> f64 {
    Mobility::default().fraction_down
}

fn peaks(effort: Effort, bar: &ProgressBar) -> Result<Part> {
    const VARIANTS: [Variant; 5] = [NONDURABLE, LRP, PWP, ANY, DURABLE_LRP];
    bar.set_length(effort.seeds * VARIANTS.len() as u64);
    let series = Series::measure(&VARIANTS, DEFAULT_BODY, paper_fraction(), effort, bar)?;
    let published = Figures::published_per_cpu;
    // The disk makes one ratio worse, other work on the core the other: the lesser counts.
    let by_clock = series.ratios(4, 1, Figures::published_per_second).into_iter();
    let durable: Vec<f64> = by_clock.zip(series.ratios(4, 1, published)).map(|(clock, cpu)| clock.min(cpu)).collect();
    Ok(Part {
        rows: vec![
            PEAK_PUBLISH.row(&series.ratios(1, 0, published)),
            THROUGHPUT.row(&series.ratios(1, 0, Figures::delivered_per_cpu)),
            PRIORITY.row(&series.ratios(2, 1, published)),
            RANDOM.row(&series.ratios(3, 1, published)),
            DURABLE.row(&durable),
        ],
        notes: series.notes("peaks"),
        charts: Vec::new(),
    })
}

/// A series of measurements for comparison.
fn sweep(
    head: Head,
    (title, label): (&str, &str),
    steps: &[(f64, usize, f64)],
    effort: Effort,
    bar: &ProgressBar,
) -> Result<Part> {
    bar.set_length(2 * effort.seeds * steps.len() as u64);
    let mut least = vec![f64::MAX; effort.seeds as usize];
    let (mut notes, mut curves) = (Vec::new(), [Vec::new(), Vec::new()]);
    for (x, body, fraction) in steps {
        let series = Series::measure(&[NONDURABLE, LRP], *body, *fraction, effort, bar)?;
        for (least, ratio) in least.iter_mut().zip(series.ratios(1, 0, Figures::delivered_per_cpu)) {
            *least = least.min(ratio);
        }
        notes.extend(series.notes(&format!("{} {x}", head.id)));
        for (variant, curve) in curves.iter_mut().enumerate() {
            curve.push(series.point(*x, variant, |figures| figures.delivered_per_cpu() / 1000.0));
        }
    }
    let [nondurable, semi_durable] = curves;
    let curve = |name: &str, colour, points| Curve { name: name.to_owned(), colour, style: Style::Joined, points };
    let chart = Chart {
        file: format!("rate-{}", head.id),
        title: title.to_owned(),
        x: Axis::linear(label),
        y: Axis::linear("thousands of deliveries per CPU second of the brokers"),
        curves: vec![curve("nondurable", 1, nondurable), curve("semi-durable", 0, semi_durable)],
    };
    Ok(Part { rows: vec![head.row(&least)], notes, charts: vec![chart] })
}

fn body_size(effort: Effort, bar: &ProgressBar) -> Result<Part> {
    let steps = [50, 100, 200, 500].map(|body| (body as f64, body, paper_fraction()));
    sweep(BODY, ("Throughput against body size", "body, bytes"), &steps, effort, bar)
}

fn time_down(effort: Effort, bar: &ProgressBar) -> Result<Part> {
    let steps = [0.0, 0.025, 0.0742, 0.15].map(|fraction| (100.0 * fraction, DEFAULT_BODY, fraction));
    sweep(TIME_DOWN, ("Throughput against time down", "time down, %"), &steps, effort, bar)
}
