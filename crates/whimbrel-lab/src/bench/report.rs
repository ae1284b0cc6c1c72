//! The result of a comparison: rows with goals, as a table and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

use super::case::Case;
use super::compare::{Results, Series};
use super::measure::{Metric, Settings};
use super::peers::Peer;
use super::process;
use super::stats::Summary;
use crate::goal::Goal;

/// If the generator was later than this (99th percentile, microseconds; on an idle machine it is
/// less than one), a latency says more about the machine than about the broker.
const LATENESS_LIMIT: f64 = 20.0;

/// How the measurements were made.
#[derive(Clone, Debug)]
pub struct Conditions {
    /// Loads and times.
    pub settings: Settings,
    /// Rounds.
    pub rounds: u32,
    /// Seed of the order and of the bootstrap.
    pub seed: u64,
    /// The versions that the brokers report.
    pub versions: BTreeMap<&'static str, String>,
}

/// The figure of a goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Against {
    /// Our figure divided by this peer's of the same round.
    Peer(Peer),
    /// Our figure divided by that of the peer with the best median.
    Best,
    /// Our figure itself.
    Nothing,
}

/// A row that every report of its case has.
struct Wanted {
    case: Case,
    metric: Metric,
    against: Against,
    goal: Goal,
    /// Percentiles scatter: the goal counts as met if the figure's 95 % interval includes it.
    interval_decides: bool,
}

const fn at_most(case: Case, metric: Metric, against: Against, value: f64) -> Wanted {
    Wanted { case, metric, against, goal: Goal::at_most(value), interval_decides: false }
}

const fn percentile(case: Case, metric: Metric, against: Against, value: f64) -> Wanted {
    Wanted { interval_decides: true, ..at_most(case, metric, against, value) }
}

const WANTED: [Wanted; 13] = [
    at_most(Case::A, Metric::BrokerCpu, Against::Peer(Peer::Nats), 0.45),
    at_most(Case::A5, Metric::BrokerCpu, Against::Peer(Peer::Nats), 0.5),
    at_most(Case::B10, Metric::BrokerCpu, Against::Peer(Peer::Nats), 0.42),
    at_most(Case::B100, Metric::BrokerCpu, Against::Peer(Peer::Nats), 0.36),
    at_most(Case::C, Metric::BrokerCpu, Against::Peer(Peer::Nats), 0.45),
    at_most(Case::D, Metric::BrokerCpu, Against::Peer(Peer::Rumqttd), 0.22),
    at_most(Case::D5, Metric::BrokerCpu, Against::Peer(Peer::Rumqttd), 0.25),
    at_most(Case::E, Metric::BrokerCpu, Against::Peer(Peer::Rumqttd), 0.31),
    at_most(Case::F, Metric::P50, Against::Best, 0.95),
    percentile(Case::F, Metric::P99, Against::Best, 1.0),
    percentile(Case::G, Metric::Disturbance, Against::Nothing, 1.5),
    at_most(Case::Idle, Metric::ConnectionBytes, Against::Nothing, 4000.0),
    Wanted {
        case: Case::Idle,
        metric: Metric::Connects,
        against: Against::Nothing,
        goal: Goal::at_least(10_000.0),
        interval_decides: false,
    },
];

/// A comparison's result.
#[derive(Debug, Serialize)]
pub struct Report {
    experiment: &'static str,
    driver: &'static str,
    seeds: [u64; 1],
    machine: String,
    rounds: u32,
    body_bytes: usize,
    window: u64,
    unacknowledged: u64,
    seconds: f64,
    versions: BTreeMap<&'static str, String>,
    /// The rows.
    pub rows: Vec<Row>,
}

/// One figure with its goal.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The case.
    pub id: &'static str,
    /// A description of the measured quantity.
    pub measure: String,
    /// Unit of `ours`.
    pub unit: &'static str,
    /// Always absent: the papers give no figures for this.
    pub paper: Option<f64>,
    /// Our figure: the median over the rounds, or of the ratio to a peer where the goal is a ratio.
    pub ours: Option<f64>,
    /// Smallest and largest.
    pub spread: Option<[f64; 2]>,
    /// 95 % interval of the median.
    pub interval: Option<[f64; 2]>,
    /// The goal.
    pub goal: Goal,
    /// Whether it was met; absent if that could not be measured.
    pub met: Option<bool>,
    /// Why it was not met for another reason than the figure, or why it could not be measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The figures of every broker.
    pub brokers: BTreeMap<&'static str, Figures>,
    #[serde(skip)]
    case: Case,
    #[serde(skip)]
    metric: Metric,
    #[serde(skip)]
    against: Option<Peer>,
}

/// The figures of one broker.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// Unit of `value`.
    pub unit: &'static str,
    /// The figure itself.
    pub value: Option<Summary>,
    /// Our figure divided by this one, paired within the rounds.
    pub ratio: Option<Summary>,
    /// Medians of other quantities that were measured at the same time.
    pub also: BTreeMap<String, f64>,
    /// Why the measurement ended early.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

impl Report {
    /// Evaluates the goals of the cases in `results`.
    pub fn of(results: &Results, conditions: Conditions) -> Report {
        let Conditions { settings, rounds, seed, versions } = conditions;
        let measured = |wanted: &&Wanted| results.keys().any(|(case, _)| *case == wanted.case);
        Report {
            experiment: "bench",
            driver: "real",
            seeds: [seed],
            machine: process::machine(),
            rounds,
            body_bytes: settings.bounds.body,
            window: settings.bounds.window,
            unacknowledged: settings.bounds.unacknowledged,
            seconds: settings.timing.measure.as_secs_f64(),
            versions,
            rows: WANTED.iter().filter(measured).map(|wanted| row(wanted, results, seed)).collect(),
        }
    }

    /// Whether no goal was missed.
    pub fn all_met(&self) -> bool {
        self.rows.iter().all(|row| row.met != Some(false))
    }

    /// The table as text.
    pub fn table(&self) -> String {
        let taking_part = |peer: &Peer| self.rows.iter().any(|row| row.brokers.contains_key(peer.name()));
        let columns: Vec<Peer> = Peer::ALL.into_iter().filter(taking_part).collect();
        let mut text =
            format!("\n{:<44}", format!("{}-byte bodies, medians of rounds: {}", self.body_bytes, self.rounds));
        for peer in &columns {
            let _ = write!(text, " {:>10}", peer.name());
        }
        text.push_str("   goal       ours (95 % interval, spread)                                 met\n");
        for row in &self.rows {
            let name = format!("{:<5}{}, {}", row.id, row.case.title(), row.metric.short());
            let _ = write!(text, "{name:<44}");
            for peer in &columns {
                let value = row.brokers.get(peer.name()).and_then(|figures| figures.value);
                let _ = write!(text, " {:>10}", value.map_or("-".to_owned(), |summary| number(summary.median)));
            }
            let _ = writeln!(text, "   {}", row.verdict());
        }
        for row in &self.rows {
            if let Some(why) = &row.why {
                let _ = writeln!(text, "{} {}: {why}", row.id, row.metric.short());
            }
        }
        text
    }
}

impl Row {
    /// A name short enough for the axis of a plot.
    pub fn label(&self) -> String {
        format!(
            "{} {}",
            self.id,
            if self.metric == Metric::BrokerCpu { self.case.title() } else { self.metric.short() }
        )
    }

    /// The row's metric.
    pub fn metric(&self) -> Metric {
        self.metric
    }

    fn verdict(&self) -> String {
        let goal = self.goal.to_string();
        let against = self.against.map_or(String::new(), |peer| format!(" × {}", peer.name()));
        let figure = match (self.ours, self.interval, self.spread) {
            (Some(ours), Some([low, high]), Some([min, max])) => {
                let [ours, low, high, min, max] = [ours, low, high, min, max].map(number);
                format!("{ours}{against} ({low} to {high}, {min} to {max})")
            }
            _ => "-".to_owned(),
        };
        let met = match self.met {
            Some(true) => "yes",
            Some(false) => "missed",
            None => "-",
        };
        format!("{goal:<10} {figure:<60} {met}")
    }
}

fn row(wanted: &Wanted, results: &Results, seed: u64) -> Row {
    let Wanted { case, metric, goal, .. } = *wanted;
    let empty = Series::default();
    let series = |peer: Peer| results.get(&(case, peer)).unwrap_or(&empty);
    let ours = series(Peer::Whimbrel);
    let brokers = Peer::ALL.into_iter().filter(|peer| results.contains_key(&(case, *peer)));
    let brokers = brokers.map(|peer| (peer.name(), figures(series(peer), ours, metric, seed))).collect();
    let against = match wanted.against {
        Against::Nothing => None,
        Against::Peer(peer) => Some(peer),
        Against::Best => best(results, case, metric, seed),
    };
    let summary = match (wanted.against, against) {
        (Against::Nothing, _) => summary(ours, metric, seed),
        (_, Some(peer)) => ratio(ours, series(peer), metric, seed),
        (_, None) => None,
    };
    let mut why = loss(Peer::Whimbrel, ours).or_else(|| failure(Peer::Whimbrel, ours));
    let mut met = why.as_ref().map(|_| false);
    if why.is_none() {
        let reference = against.and_then(|peer| loss(peer, series(peer)).or_else(|| failure(peer, series(peer))));
        let late = || late(ours, seed).or_else(|| late(series(against?), seed));
        why = reference.or_else(late).or_else(|| {
            let missing = if ours.samples.is_empty() { "whimbrel" } else { against.map_or("a peer", Peer::name) };
            summary.is_none().then(|| format!("{missing} was not measured"))
        });
        met = match (&why, &summary) {
            (None, Some(summary)) => {
                Some(goal.is_met(if wanted.interval_decides { summary.interval } else { [summary.median; 2] }))
            }
            _ => None,
        };
    }
    let measure = match against {
        Some(peer) => format!("{}: {}, whimbrel / {}", case.title(), metric.title(), peer.name()),
        None => format!("{}: {}", case.title(), metric.title()),
    };
    Row {
        id: case.id(),
        measure,
        unit: if wanted.against == Against::Nothing { metric.unit() } else { "ratio" },
        paper: None,
        ours: summary.map(|summary| summary.median),
        spread: summary.map(|summary| summary.spread),
        interval: summary.map(|summary| summary.interval),
        goal,
        met,
        why,
        brokers,
        case,
        metric,
        against,
    }
}

fn figures(series: &Series, ours: &Series, metric: Metric, seed: u64) -> Figures {
    let mut others: BTreeMap<Metric, Vec<f64>> = BTreeMap::new();
    for (other, value) in series.samples.values().flatten().filter(|(other, _)| **other != metric) {
        others.entry(*other).or_default().push(*value);
    }
    let also = others.into_iter().filter_map(|(other, values)| {
        let name = format!("{} {}", other.title(), other.unit());
        Some((name.trim_end().to_owned(), Summary::of(&values, seed)?.median))
    });
    Figures {
        unit: metric.unit(),
        value: summary(series, metric, seed),
        ratio: ratio(ours, series, metric, seed),
        also: also.collect(),
        failure: series.failure.clone(),
    }
}

fn summary(series: &Series, metric: Metric, seed: u64) -> Option<Summary> {
    let values: Vec<f64> = series.samples.values().filter_map(|sample| sample.get(&metric)).copied().collect();
    Summary::of(&values, seed)
}

/// Our figures divided by theirs, round by round.
fn ratio(ours: &Series, theirs: &Series, metric: Metric, seed: u64) -> Option<Summary> {
    let ratios = ours.samples.iter().filter_map(|(round, sample)| {
        let their_value = theirs.samples.get(round)?.get(&metric)?;
        Some(sample.get(&metric)? / their_value)
    });
    Summary::of(&ratios.collect::<Vec<_>>(), seed)
}

/// The peer with the lowest median.
fn best(results: &Results, case: Case, metric: Metric, seed: u64) -> Option<Peer> {
    let medians = Peer::ALL.into_iter().filter(|peer| *peer != Peer::Whimbrel).filter_map(|peer| {
        let series = results.get(&(case, peer))?;
        Some((summary(series, metric, seed)?.median, peer))
    });
    medians.min_by(|(one, _), (other, _)| one.total_cmp(other)).map(|(_, peer)| peer)
}

fn loss(peer: Peer, series: &Series) -> Option<String> {
    let lost: f64 = series.samples.values().filter_map(|sample| sample.get(&Metric::Lost)).sum();
    (lost > 0.0).then(|| format!("{} lost {lost} messages", peer.name()))
}

fn late(series: &Series, seed: u64) -> Option<String> {
    let lateness = summary(series, Metric::Lateness, seed)?.median;
    let micros = number(lateness);
    (lateness > LATENESS_LIMIT)
        .then(|| format!("the generator was {micros} µs late itself (p99): this machine is too busy"))
}

fn failure(peer: Peer, series: &Series) -> Option<String> {
    series.failure.as_ref().map(|failure| format!("{}: {failure}", peer.name()))
}

/// A number with three significant digits; whole above 100, with thousands separated.
pub fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 99.95 => {
            let digits = format!("{:.0}", size);
            let mut text = String::new();
            for (index, digit) in digits.chars().enumerate() {
                if index > 0 && (digits.len() - index).is_multiple_of(3) {
                    text.push(',');
                }
                text.push(digit);
            }
            if value < 0.0 { format!("-{text}") } else { text }
        }
        size if size >= 9.995 => format!("{value:.1}"),
        size if size >= 0.9995 => format!("{value:.2}"),
        size if size >= 0.000_95 => format!("{value:.3}"),
        _ => format!("{value:.1e}"),
    }
}

/// A report of two brokers in case A.
#[cfg(test)]
pub fn example() -> Report {
    Report::of(&tests::cpu(&[1.0, 2.0], 0.0, &[2.0, 2.0], 0.0), tests::conditions())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::case::Bounds;
    use super::super::closed_loop::Timing;
    use super::super::measure::Sample;
    use super::*;

    pub fn conditions() -> Conditions {
        let bounds = Bounds { body: 100, window: 1000, unacknowledged: 100 };
        let timing = Timing { warm_up: Duration::ZERO, measure: Duration::from_secs(2) };
        let settings = Settings { bounds, timing, connections: 10 };
        Conditions { settings, rounds: 3, seed: 1, versions: BTreeMap::from([("whimbrel", "0.1.0".to_owned())]) }
    }

    pub fn series(values: &[f64], metric: Metric, lost: f64) -> Series {
        let sample = |value: &f64| Sample::from([(metric, *value), (Metric::Lost, lost), (Metric::Rate, 5.0)]);
        Series { samples: (0..).zip(values.iter().map(sample)).collect(), failure: None }
    }

    pub fn cpu(ours: &[f64], lost: f64, theirs: &[f64], their_loss: f64) -> Results {
        Results::from([
            ((Case::A, Peer::Whimbrel), series(ours, Metric::BrokerCpu, lost)),
            ((Case::A, Peer::Nats), series(theirs, Metric::BrokerCpu, their_loss)),
        ])
    }

    #[test]
    fn ratios_are_paired_within_rounds() {
        let report = Report::of(&cpu(&[1.0, 10.0, 1.5], 0.0, &[4.0, 40.0, 6.0], 0.0), conditions());
        let [row] = &report.rows[..] else { panic!("one row was expected: {report:?}") };
        assert_eq!((row.ours, row.spread, row.interval), (Some(0.25), Some([0.25, 0.25]), Some([0.25, 0.25])));
        assert_eq!((row.met, report.all_met()), (Some(true), true));
        assert!(
            report.table().contains("≤ 0.450    0.250 × nats (0.250 to 0.250, 0.250 to 0.250)"),
            "{}",
            report.table()
        );
    }

    #[test]
    fn a_missed_goal_is_missed() {
        let report = Report::of(&cpu(&[1.0, 1.1, 0.9], 0.0, &[1.0, 1.0, 1.0], 0.0), conditions());
        assert_eq!((report.rows[0].met, report.all_met()), (Some(false), false));
        assert!(report.table().contains("missed"), "{}", report.table());
    }

    #[test]
    fn losses_fail_the_row_and_the_peers_losses_void_it() {
        let report = Report::of(&cpu(&[1.0], 2.0, &[9.0], 0.0), conditions());
        assert_eq!(report.rows[0].met, Some(false));
        assert_eq!(report.rows[0].why.as_deref(), Some("whimbrel lost 2 messages"));
        let report = Report::of(&cpu(&[1.0], 0.0, &[9.0], 3.0), conditions());
        assert_eq!(report.rows[0].met, None);
        assert_eq!(report.rows[0].why.as_deref(), Some("nats lost 3 messages"));
    }

    #[test]
    fn a_broker_that_fails_is_told() {
        let mut results = cpu(&[], 0.0, &[1.0], 0.0);
        results.entry((Case::A, Peer::Whimbrel)).or_default().failure = Some("it is not there".to_owned());
        let report = Report::of(&results, conditions());
        assert_eq!(report.rows[0].why.as_deref(), Some("whimbrel: it is not there"));
        assert!(!report.all_met());
    }

    #[test]
    fn latency_is_compared_with_the_best_and_its_interval_decides_about_p99() {
        let results = Results::from([
            ((Case::F, Peer::Whimbrel), series(&[90.0, 101.0, 120.0], Metric::P99, 0.0)),
            ((Case::F, Peer::Mosquitto), series(&[500.0, 500.0, 500.0], Metric::P99, 0.0)),
            ((Case::F, Peer::Nats), series(&[100.0, 100.0, 100.0], Metric::P99, 0.0)),
        ]);
        let report = Report::of(&results, conditions());
        let row = report.rows.iter().find(|row| row.measure.contains("p99")).expect("a row for p99");
        assert_eq!(row.against, Some(Peer::Nats));
        assert_eq!((row.ours, row.met), (Some(1.01), Some(true)));
    }

    #[test]
    fn latencies_of_a_late_generator_count_for_nothing() {
        let mut ours = series(&[50.0, 50.0, 50.0], Metric::P50, 0.0);
        for sample in ours.samples.values_mut() {
            sample.insert(Metric::Lateness, 21.0);
        }
        let theirs = series(&[60.0, 60.0, 60.0], Metric::P50, 0.0);
        let report = Report::of(
            &Results::from([((Case::F, Peer::Whimbrel), ours), ((Case::F, Peer::Nats), theirs)]),
            conditions(),
        );
        assert_eq!(report.rows[0].met, None);
        assert!(report.rows[0].why.as_ref().is_some_and(|why| why.contains("21.0 µs late")), "{report:?}");
    }

    #[test]
    fn the_json_has_the_fields_of_every_experiment() {
        let json = serde_json::to_value(example()).expect("JSON");
        assert_eq!(json["experiment"], "bench");
        assert_eq!(json["driver"], "real");
        assert_eq!(json["seeds"], serde_json::json!([1]));
        assert!(json["machine"].as_str().is_some_and(|machine| machine.contains("cores")));
        let row = &json["rows"][0];
        assert_eq!(row["id"], "A");
        assert_eq!(row["goal"], serde_json::json!({ "op": "<=", "value": 0.45 }));
        assert_eq!((&row["ours"], &row["spread"]), (&serde_json::json!(0.75), &serde_json::json!([0.5, 1.0])));
        assert_eq!(row["unit"], "ratio");
        assert!(row["measure"].as_str().is_some_and(|measure| measure.contains("whimbrel / nats")));
        assert!(row.get("paper").is_some_and(serde_json::Value::is_null) && row["met"].is_boolean());
        assert_eq!(row["brokers"]["nats"]["value"]["median"], 2.0);
        assert_eq!(row["brokers"]["nats"]["also"]["delivered messages 1/s"], 5.0);
    }

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (0.000_316, "3.2e-4"),
            (0.2344, "0.234"),
            (3.64, "3.64"),
            (17.66, "17.7"),
            (1_234_567.8, "1,234,568"),
            (-1500.0, "-1,500"),
        ] {
            assert_eq!(number(value), text);
        }
    }
}
