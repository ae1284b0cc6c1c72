//! Short troubles of links and of all links of a broker, on the paper's mesh and on a sparser map.
//!
//! The brokers play one path, two paths, and paths that follow troubles round the ends (DG). One
//! fixed path, two fixed paths and flooding need no broker: they are computed over the same truth
//! of the links, with draws of loss of their own.

use std::fmt::Write;
use std::time::Duration;

use anyhow::Result;
use indicatif::ProgressBar;
use whimbrel_core::TopicTransport;
use whimbrel_event::Time;

use super::area::{Area, AreaMap};
use super::judge::EventKey;
use super::lateness::{LateCount, covered};
use super::overhead::{QUIC_BYTES, sent};
use super::runs::play_all;
use super::scene::{Contender, Preset, Technique};
use super::spread::{FixedPaths, Spreader, WaySet};
use super::stage::{AreaWorld, BEGIN, Play};
use super::tally::mean;
use super::troubles::{TroubleSpan, short_troubles};
use super::truth::{Floor, Truth};
use crate::bench::report::number;
use crate::cores::START;
use crate::experiment::chart::{Axis, Chart, Curve, Point, Style};
use crate::experiment::report::{Head, Part, Row};
use crate::experiment::{Effort, Plan};
use crate::goal::Goal;

/// Troubles on the paper's mesh.
pub const MESH: Plan = Plan { id: "short-troubles", rows: MESH_ROWS, measure: mesh };

/// Troubles on the map of cities.
pub const CITIES: Plan = Plan { id: "short-troubles-cities", rows: CITY_ROWS, measure: cities };

const MESH_ROWS: &[&str] = &[
    "short-late-dp",
    "short-late-pair",
    "short-late-qos",
    "short-late-mp",
    "short-late-dg",
    "short-late-flood",
    "short-gap-pair",
    "short-gap-qos",
    "short-gap-mp",
    "short-gap-dg",
    "short-bytes-dg",
];

const CITY_ROWS: &[&str] = &[
    "cities-late-dp",
    "cities-late-pair",
    "cities-late-qos",
    "cities-late-mp",
    "cities-late-dg",
    "cities-late-flood",
    "cities-gap-pair",
    "cities-gap-qos",
    "cities-gap-mp",
    "cities-gap-dg",
    "cities-bytes-dg",
];

/// The length of a run, and of a quick one.
const LENGTH: Duration = Duration::from_secs(600);
const QUICK_LENGTH: Duration = Duration::from_secs(60);

/// Seeds, at most: they have as many troubles as [`super::SEEDS`] runs of slots.
const SEEDS_MAX: u64 = 25;

/// How long events may take after it.
const DRAIN: Duration = Duration::from_secs(2);

/// The part of the gap that DG is to cover, per cent.
const GAP: f64 = 99.0;

/// Bytes of events that DG may send, of those of two paths.
const BYTES: f64 = 1.05;

/// What is compared, the cheapest computed version first and the dearest last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SpreadVersion {
    /// DP: one fixed path, computed.
    Fixed,
    /// Two fixed paths, computed.
    FixedPair,
    /// A version that brokers play.
    Played(Technique),
    /// All ways, computed.
    Flood,
}

impl SpreadVersion {
    /// All of them, in the order of the rows.
    const ALL: [SpreadVersion; 6] = [
        SpreadVersion::Fixed,
        SpreadVersion::FixedPair,
        SpreadVersion::Played(Technique::Reactive),
        SpreadVersion::Played(Technique::Multipath),
        SpreadVersion::Played(Technique::Targeted),
        SpreadVersion::Flood,
    ];

    fn name(self) -> &'static str {
        match self {
            SpreadVersion::Fixed => "DP",
            SpreadVersion::FixedPair => "two fixed paths",
            SpreadVersion::Played(technique) => technique.name(),
            SpreadVersion::Flood => "flooding",
        }
    }

    fn place(self) -> usize {
        SpreadVersion::ALL.iter().position(|known| *known == self).expect("it is one of them")
    }
}

/// Figures by version.
type ByVersion = [f64; SpreadVersion::ALL.len()];

/// What a seed gives.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct ShortOutcome {
    /// Events that were late or lost, per cent.
    late: ByVersion,
    /// Events counted on each link that they cross, by published event.
    crossings: ByVersion,
    /// Bytes of events on links with QUIC around each, by published event; of the versions that
    /// brokers play.
    bytes: ByVersion,
    /// Events that an omniscient router would have late, per cent.
    floor: f64,
}

/// One run of each version.
#[derive(Clone, Copy, Debug)]
struct ShortRun<'a> {
    map: &'a AreaMap,
    length: Duration,
    seed: u64,
}

impl ShortRun<'_> {
    fn play(&self) -> ShortOutcome {
        let AreaMap { area, truth } = self.map;
        let from = START + BEGIN + Preset::Own.warm_up();
        let span = TroubleSpan { from, until: from + self.length };
        let truth = short_troubles(truth, area.brokers, span, self.seed);
        let mut outcome = ShortOutcome::default();
        for version in SpreadVersion::ALL {
            let SpreadVersion::Played(technique) = version else { continue };
            let world = self.play_one(technique, &truth, span, &mut outcome);
            if technique == Technique::Reactive {
                self.compute(&world.audience.sent, &truth, span, &mut outcome);
            }
        }
        outcome
    }

    /// Has brokers play a version.
    fn play_one(
        &self,
        technique: Technique,
        truth: &Truth,
        span: TroubleSpan,
        outcome: &mut ShortOutcome,
    ) -> AreaWorld {
        let contender = Contender { version: technique, preset: Preset::Own };
        let (area, transport) = (self.map.area.clone(), TopicTransport::Datagram);
        let mut world = AreaWorld::new(&Play { area, transport, ..Play::new(contender, truth, self.seed) });
        world.run_until(span.from);
        let before = sent(&world);
        let published = |world: &AreaWorld| world.audience.sent.iter().map(Vec::len).sum::<usize>();
        let published_before = published(&world);
        world.run_until(span.until);
        world.fall_silent();
        world.run_until(span.until + DRAIN);
        let after = sent(&world);
        let each = 1.0 / (published(&world) - published_before) as f64;
        let (events, bytes) = (after.events - before.events, after.event_bytes - before.event_bytes);
        let at = SpreadVersion::Played(technique).place();
        outcome.late[at] = LateCount::of(&world, |at| weight(span, at)).late();
        outcome.crossings[at] = events as f64 * each;
        outcome.bytes[at] = (bytes as f64 + QUIC_BYTES * events as f64) * each;
        world
    }

    /// Computes the other versions, and the floor, for the same events. `sent`: when they were
    /// published, by topic.
    fn compute(&self, sent: &[Vec<Time>], truth: &Truth, span: TroubleSpan, outcome: &mut ShortOutcome) {
        let AreaMap { area, truth: good } = self.map;
        let spreader = Spreader { truth, brokers: area.brokers, seed: self.seed };
        let fixed = [SpreadVersion::Fixed, SpreadVersion::FixedPair];
        let ways = FixedWays::of(area, good, &spreader);
        let mut floor = Floor::new(truth, area.brokers);
        let (mut reached, mut best) = ([LateCount::default(); 3], LateCount::default());
        let (mut crossings, mut published) = ([0; 3], 0);
        for (topic, sent) in sent.iter().enumerate() {
            let from = area.topics[topic].from;
            for (number, at) in sent.iter().enumerate().filter(|(_, at)| weight(span, **at) > 0.0) {
                let key = EventKey { topic, number };
                published += 1;
                let flood = spreader.send(key, from, *at, &ways.all);
                crossings[2] += flood.crossings;
                for (place, of_topic) in ways.by_topic[topic].iter().enumerate() {
                    crossings[place] += spreader.send(key, from, *at, of_topic).crossings;
                }
                for (index, flow) in area.flows.iter().enumerate().filter(|(_, flow)| flow.topic == topic) {
                    reached[2].record(area, 1.0, *at, flood.arrivals[flow.to]);
                    for (place, of_flow) in ways.by_flow[index].iter().enumerate() {
                        let spread = spreader.send(key, from, *at, of_flow);
                        reached[place].record(area, 1.0, *at, spread.arrivals[flow.to]);
                    }
                    let least = floor.takes(from, flow.to, *at);
                    best.record(area, 1.0, *at, least.map(|least| *at + least));
                }
            }
        }
        for (place, version) in fixed.into_iter().chain([SpreadVersion::Flood]).enumerate() {
            outcome.late[version.place()] = reached[place].late();
            outcome.crossings[version.place()] = crossings[place] as f64 / f64::from(published);
        }
        outcome.floor = best.late();
    }
}

fn weight(span: TroubleSpan, at: Time) -> f64 {
    f64::from(u8::from(span.from <= at && at < span.until))
}

/// The directions of links of the versions that are computed: with one fixed path and with two.
struct FixedWays {
    /// By flow.
    by_flow: Vec<[WaySet; 2]>,
    /// By topic: those of all its flows.
    by_topic: Vec<[WaySet; 2]>,
    /// Flooding.
    all: WaySet,
}

impl FixedWays {
    fn of(area: &Area, good: &Truth, spreader: &Spreader<'_>) -> FixedWays {
        let paths: Vec<FixedPaths> = area.flows.iter().map(|flow| FixedPaths::of(area, good, *flow)).collect();
        let sets = |paths: &[&FixedPaths]| {
            let one: Vec<Vec<usize>> = paths.iter().map(|paths| paths.one.clone()).collect();
            let two: Vec<Vec<usize>> = paths.iter().flat_map(|paths| paths.two.clone()).collect();
            [spreader.on(&one), spreader.on(&two)]
        };
        let of_topic = |topic: usize| {
            let of_it = area.flows.iter().zip(&paths).filter(|(flow, _)| flow.topic == topic);
            sets(&of_it.map(|(_, paths)| paths).collect::<Vec<_>>())
        };
        FixedWays {
            by_flow: paths.iter().map(|paths| sets(&[paths])).collect(),
            by_topic: (0..area.topics.len()).map(of_topic).collect(),
            all: spreader.all(),
        }
    }
}

/// What is told of one map.
struct MapReport {
    ids: &'static [&'static str],
    /// In the measures of its rows.
    name: &'static str,
    chart: &'static str,
}

/// The outcomes of all seeds.
struct ShortRuns(Vec<ShortOutcome>);

impl ShortRuns {
    /// By seed.
    fn part(&self, of: fn(&ShortOutcome) -> &ByVersion, version: SpreadVersion) -> Vec<f64> {
        self.0.iter().map(|run| of(run)[version.place()]).collect()
    }

    /// Events that were late or lost, per cent.
    fn late(&self, version: SpreadVersion) -> Vec<f64> {
        self.part(|run| &run.late, version)
    }

    /// The part of the gap between one fixed path and flooding that a version covers, per cent.
    fn gap(&self, version: SpreadVersion) -> Option<f64> {
        let late = |version| mean(&self.late(version));
        covered(late(SpreadVersion::Fixed), late(SpreadVersion::Flood), late(version))
    }

    fn crossings(&self, version: SpreadVersion) -> f64 {
        mean(&self.part(|run| &run.crossings, version))
    }

    /// Bytes of an event on all links; a frame of a computed version is as long as one of one path.
    fn bytes(&self, version: SpreadVersion) -> f64 {
        let played = |version| mean(&self.part(|run| &run.bytes, version));
        let one = SpreadVersion::Played(Technique::Reactive);
        match version {
            SpreadVersion::Played(_) => played(version),
            _ => self.crossings(version) * played(one) / self.crossings(one),
        }
    }

    /// Bytes of DG, those of two paths being 1, by seed.
    fn ratios(&self) -> Vec<f64> {
        let [two, targeted] = [Technique::Multipath, Technique::Targeted]
            .map(|technique| self.part(|run| &run.bytes, SpreadVersion::Played(technique)));
        targeted.into_iter().zip(two).map(|(targeted, two)| targeted / two).collect()
    }
}

impl MapReport {
    fn measure(&self, map: &AreaMap, effort: Effort, bar: &ProgressBar) -> Part {
        let length = if effort.quick { QUICK_LENGTH } else { LENGTH };
        let jobs: Vec<ShortRun<'_>> =
            (1..=effort.seeds.min(SEEDS_MAX)).map(|seed| ShortRun { map, length, seed }).collect();
        let runs = ShortRuns(play_all(&jobs, bar, ShortRun::play));
        Part { rows: self.rows(&runs), notes: vec![self.note(&runs)], charts: vec![self.chart(&runs)] }
    }

    fn rows(&self, runs: &ShortRuns) -> Vec<Row> {
        let floor = mean(&runs.0.iter().map(|run| run.floor).collect::<Vec<_>>());
        let mut ids = self.ids.iter();
        let mut head = |measure, unit, goal| {
            let id = ids.next().expect("there is a row for each");
            Head { id, measure, unit, paper: None, goal }
        };
        let named = |mut row: Row, version: SpreadVersion| {
            let _ = write!(row.measure, ", {}, {}", self.name, version.name());
            row
        };
        let mut rows = Vec::new();
        for version in SpreadVersion::ALL {
            let head = head("short troubles: events over the deadline", "%", Goal::SHOWN);
            rows.push(named(head.mean(&runs.late(version)).beside(floor), version));
        }
        let targeted = SpreadVersion::Played(Technique::Targeted);
        for version in &SpreadVersion::ALL[1..SpreadVersion::ALL.len() - 1] {
            let goal = if *version == targeted { Goal::at_least(GAP) } else { Goal::SHOWN };
            let head = head("short troubles: gap between DP and flooding that is covered", "%", goal);
            let row = match runs.gap(*version) {
                Some(gap) => head.mean(&[gap]).beside(100.0),
                None => head.unmeasured("no path was bad in these runs"),
            };
            rows.push(named(row, *version));
        }
        let measure = "short troubles: bytes of events on links, those of BP+QoS+MP being 1";
        rows.push(named(head(measure, "times", Goal::at_most(BYTES)).mean(&runs.ratios()), targeted));
        rows
    }

    fn note(&self, runs: &ShortRuns) -> String {
        let mut note =
            format!("short troubles, {}: links that an event crosses, and bytes on them with QUIC:", self.name);
        for version in SpreadVersion::ALL {
            let (crossings, bytes) = (number(runs.crossings(version)), number(runs.bytes(version)));
            let _ = write!(note, " {} {crossings} ({bytes} B);", version.name());
        }
        note.push_str(" DP, two fixed paths and flooding are computed over the same truth, without brokers");
        note
    }

    fn chart(&self, runs: &ShortRuns) -> Chart {
        let curve = |version: SpreadVersion| {
            let cost = runs.bytes(version) / runs.bytes(SpreadVersion::Fixed);
            let points = runs.gap(version).map(|gap| Point::new(cost, gap)).into_iter().collect();
            Curve { name: version.name().to_owned(), colour: version.place(), style: Style::Marks, points }
        };
        Chart {
            file: self.chart.to_owned(),
            title: format!("Gap covered against bytes, short troubles, {}", self.name),
            x: Axis::linear("bytes of events, times those of DP"),
            y: Axis::linear("gap between DP and flooding that is covered, %"),
            curves: SpreadVersion::ALL.map(curve).to_vec(),
        }
    }
}

fn mesh(effort: Effort, bar: &ProgressBar) -> Result<Part> {
    let report = MapReport { ids: MESH_ROWS, name: "mesh", chart: "responsiveness-gap-bytes" };
    Ok(report.measure(&AreaMap::mesh(), effort, bar))
}

fn cities(effort: Effort, bar: &ProgressBar) -> Result<Part> {
    let report = MapReport { ids: CITY_ROWS, name: "12 cities", chart: "responsiveness-gap-bytes-cities" };
    let map = AreaMap::cities();
    let mut part = report.measure(&map, effort, bar);
    part.notes.push(format!(
        "12 cities: {} links, deadline {} ms",
        map.truth.links.len(),
        map.area.deadline.as_millis()
    ));
    Ok(part)
}

#[cfg(test)]
mod tests {
    use super::super::area::AreaFlow;
    use super::*;

    /// A run in which some direct path loses at least a half of what is sent for three seconds.
    fn troubled(map: &AreaMap) -> ShortRun<'_> {
        let length = Duration::from_secs(40);
        let from = START + BEGIN + Preset::Own.warm_up();
        let span = TroubleSpan { from, until: from + length };
        let is_bad = |seed: &u64| {
            let truth = short_troubles(&map.truth, map.area.brokers, span, *seed);
            let lossy = |flow: &AreaFlow| {
                let looks = (0..40).map(|second| from + Duration::from_secs(second));
                looks.filter(|at| truth.way(map.area.from(*flow), flow.to, *at).loss >= 0.5).count()
            };
            map.area.flows.iter().any(|flow| lossy(flow) >= 3)
        };
        ShortRun { map, length, seed: (1..1_000).find(is_bad).expect("some seed has such a trouble") }
    }

    #[test]
    fn a_seed_is_all_there_is_to_a_run_and_no_computed_version_is_better_than_flooding() {
        let map = AreaMap::mesh();
        let run = troubled(&map);
        let outcome = run.play();
        assert_eq!(outcome, run.play());
        let late = |version: SpreadVersion| outcome.late[version.place()];
        let [one, two, flood] = [SpreadVersion::Fixed, SpreadVersion::FixedPair, SpreadVersion::Flood].map(late);
        assert!(one > two && two >= flood && flood >= outcome.floor, "{outcome:?}");
        let crossings = outcome.crossings;
        assert!(crossings[0] <= 2.0 && crossings[1] > 3.0 && crossings[5] > 10.0, "{crossings:?}");
        let [played, twice] = [Technique::Reactive, Technique::Multipath].map(SpreadVersion::Played);
        assert!(late(played) < one && late(twice) < one, "{outcome:?}");
    }
}
