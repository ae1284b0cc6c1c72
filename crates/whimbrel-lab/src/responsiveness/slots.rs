//! Experiments (a) and (b): in slots of three minutes some paths are slow, or lose everything.

use std::fmt::Write;
use std::time::Duration;

use anyhow::Result;
use indicatif::ProgressBar;
use whimbrel_core::TopicTransport;
use whimbrel_event::Reliability;

use super::judge::DelayCauses;
use super::plots;
use super::runs::play_all;
use super::scene::{
    ALL_PAIRS, Contender, DEADLINE, MESH, PUBLISHERS, Preset, SHOWN, SLOTS, SlotPlan, Technique, Trouble,
};
use super::stage::{AreaWorld, BEGIN, Play};
use super::tally::{PairTally, RunTally, mean, sums};
use super::truth::Truth;
use crate::bench::report::number;
use crate::cores::START;
use crate::cores::wire::WayTruth;
use crate::experiment::chart::{Axis, Chart};
use crate::experiment::report::{Head, Part, Row};
use crate::experiment::{Effort, Plan};
use crate::goal::Goal;

/// The seeds from 1 on whose slots are played whole; of others, windows are.
const WHOLE_SEEDS: u64 = 5;

/// How long events may take after the last slot.
const DRAIN: Duration = Duration::from_secs(5);

/// How long reliable events may take after it: until the last link is there again and holes are
/// asked for.
const DRAIN_RELIABLE: Duration = Duration::from_secs(60);

/// Points above the floor that are allowed, of events that are late or lost.
const ALLOWANCE: f64 = 0.05;

/// As [`ALLOWANCE`], of events that take two paths.
const COPIES_ALLOWANCE: f64 = 0.005;

/// The difference between whole slots and windows that is allowed, points.
const AGREEMENT: f64 = 0.1;

/// The paper's figures for s5.t1, by version: events over the deadline.
const PAPER_LATE: [Option<f64>; Technique::ALL.len()] = [Some(22.0), Some(16.0), None, None, None];

/// The paper's worst losses, by version.
const PAPER_LOST: [Option<f64>; Technique::ALL.len()] = [Some(16.4), Some(1.5), Some(1.5), Some(0.2), None];

/// Slow paths.
pub const DYNAMIC: Plan = Plan { id: "dynamic-delay", rows: DYNAMIC_ROWS, measure: dynamic };

/// Paths that lose everything, best effort.
pub const FAILURE: Plan = Plan { id: "path-failure", rows: LOST_ROWS, measure: failure };

/// Paths that lose everything, reliable topics.
pub const RELIABLE: Plan = Plan {
    id: "path-failure-reliable",
    rows: &["b-reliable-lost", "b-reliable-late", "b-reliable-lost-paper", "b-reliable-late-paper"],
    measure: reliable,
};

/// Paths that lose everything, and links that lose some packets at random.
pub const LOSSY: Plan = Plan { id: "path-failure-loss", rows: &["b-loss-5-mp", "b-loss-5-mp-stream"], measure: lossy };

/// The share of packets that every link loses at random there.
const LOSS: f64 = 0.05;

/// Events that may be lost there although a way was there, per cent.
const LOSSY_ALLOWANCE: f64 = 0.01;

/// Those of the contenders stand first, in their order.
const DYNAMIC_ROWS: &[&str] = &[
    "a-late-dp",
    "a-late-bp",
    "a-late-qos",
    "a-late-mp",
    "a-late-dg",
    "a-late-dp-paper",
    "a-late-bp-paper",
    "a-late-qos-paper",
    "a-late-mp-paper",
    "a-late-dg-paper",
    "a-gap-qos",
    "a-gap-mp",
    "a-gap-dg",
    "a-gap-qos-paper",
    "a-gap-mp-paper",
    "a-gap-dg-paper",
    "a-windows",
];

/// Those of the contenders stand first, in their order.
const LOST_ROWS: &[&str] = &[
    "b-lost-dp",
    "b-lost-bp",
    "b-lost-qos",
    "b-lost-mp",
    "b-lost-dg",
    "b-lost-dp-paper",
    "b-lost-bp-paper",
    "b-lost-qos-paper",
    "b-lost-mp-paper",
    "b-lost-dg-paper",
    "b-outside-cuts-mp",
    "b-outside-cuts-dg",
];

/// What an experiment's runs have in common.
#[derive(Clone, Copy, Debug)]
struct SlotKind {
    trouble: Trouble,
    reliability: Reliability,
    transport: TopicTransport,
    /// The share of packets that every link loses at random.
    loss: f64,
}

impl SlotKind {
    /// Links that lose nothing when they are good, and events on streams.
    fn new(trouble: Trouble, reliability: Reliability) -> SlotKind {
        SlotKind { trouble, reliability, transport: TopicTransport::Stream, loss: 0.0 }
    }
}

/// One run.
#[derive(Clone, Copy, Debug)]
struct SlotRun {
    of: SlotKind,
    contender: Contender,
    seed: u64,
    is_whole: bool,
}

impl SlotRun {
    fn play(&self) -> RunTally {
        let preset = self.contender.preset;
        let from = START + BEGIN + preset.warm_up();
        let slots = if self.is_whole { SlotPlan::whole(from) } else { SlotPlan::windows(from, preset) };
        let mesh = Truth::mesh().map(|way| WayTruth { loss: self.of.loss, ..way });
        let truth = slots.truth(&mesh, self.seed, self.of.trouble);
        let play = Play {
            reliability: self.of.reliability,
            transport: self.of.transport,
            // The judge knows troubles that begin and end, no random loss.
            is_judged: self.contender.version.reacts() && self.of.loss == 0.0,
            ..Play::new(self.contender, &truth, self.seed)
        };
        let mut world = AreaWorld::new(&play);
        world.run_until(slots.end());
        world.fall_silent();
        let drain = if self.of.reliability == Reliability::Reliable { DRAIN_RELIABLE } else { DRAIN };
        world.run_until(slots.end() + drain);
        RunTally::judged(&world, &truth, preset.settled(), |at| slots.weight(at))
    }
}

/// The runs of some contenders, by contender and seed.
struct Played {
    contenders: Vec<Contender>,
    /// By contender, then by seed.
    runs: Vec<Vec<RunTally>>,
    /// Of our own pace: the windows of the seeds whose slots were played whole.
    again: Vec<Vec<RunTally>>,
}

impl Played {
    fn new(contenders: Vec<Contender>, effort: Effort, bar: &ProgressBar, of: SlotKind, compares: bool) -> Played {
        let is_whole = |seed: u64| !effort.quick && seed <= WHOLE_SEEDS;
        let whole = if effort.quick { 0 } else { effort.seeds.min(WHOLE_SEEDS) };
        let mut jobs = Vec::new();
        for contender in &contenders {
            let run = |seed: u64| SlotRun { of, contender: *contender, seed, is_whole: is_whole(seed) };
            jobs.extend((1..=effort.seeds).map(run));
        }
        let once = jobs.len();
        let again = contenders.iter().filter(|contender| compares && contender.preset == Preset::Own);
        for contender in again {
            jobs.extend((1..=whole).map(|seed| SlotRun { of, contender: *contender, seed, is_whole: false }));
        }
        let mut results = play_all(&jobs, bar, SlotRun::play).into_iter();
        let by_seed = |results: &mut dyn Iterator<Item = RunTally>, seeds: u64, contenders: usize| {
            (0..contenders).map(|_| results.take(seeds as usize).collect()).collect::<Vec<Vec<_>>>()
        };
        let runs = by_seed(&mut results.by_ref().take(once), effort.seeds, contenders.len());
        let again =
            if whole == 0 { Vec::new() } else { by_seed(&mut results, whole, jobs[once..].len() / whole as usize) };
        let repeated: u64 = runs.iter().flatten().map(|run| run.repeated).sum();
        assert_eq!(repeated, 0, "no event arrives twice");
        Played { contenders, runs, again }
    }

    fn of(&self, contender: Contender) -> &[RunTally] {
        let at = self.contenders.iter().position(|known| *known == contender).expect("it was played");
        &self.runs[at]
    }

    /// By seed: the share of a contender's events that counts as `of` says, per cent.
    fn shares(&self, contender: Contender, of: impl Fn(&PairTally) -> f64) -> Vec<f64> {
        self.of(contender).iter().map(|run| run.share(&of)).collect()
    }

    /// The largest difference between whole slots and windows of the same seeds, points.
    fn disagreement(&self, of: impl Fn(&PairTally) -> f64) -> Option<f64> {
        let mean_of = |runs: &[RunTally]| mean(&runs.iter().map(|run| run.share(&of)).collect::<Vec<_>>());
        let difference = |(whole, windows): (&Vec<RunTally>, &Vec<RunTally>)| {
            (mean_of(&whole[..windows.len()]) - mean_of(windows)).abs()
        };
        self.runs.iter().zip(&self.again).map(difference).reduce(f64::max)
    }

    /// Values by pair, for charts.
    fn by_pair(&self, of: impl Fn(&PairTally) -> f64) -> Vec<(Contender, Vec<f64>)> {
        let values = |contender: &Contender| {
            let sums = sums(self.of(*contender));
            (*contender, sums.iter().map(&of).collect())
        };
        self.contenders.iter().map(values).collect()
    }

    /// Why events of the versions that react were late although there was a way.
    fn causes(&self, what: &str) -> String {
        let judged = self.contenders.iter().filter(|contender| contender.version.reacts());
        let of = |contender: &Contender| {
            let mut sum = DelayCauses::default();
            self.of(*contender).iter().for_each(|run| sum.add(&run.causes));
            format!("{}: {}", contender.name(), sum.text())
        };
        format!("{what}: events, {}", judged.map(of).collect::<Vec<_>>().join(" | "))
    }
}

/// What is counted, and what the truth of the links allows.
struct Counted {
    /// By contender.
    ids: &'static [&'static str],
    measure: &'static str,
    paper: [Option<f64>; Technique::ALL.len()],
    /// Points above the floor that are allowed with two paths.
    copies_allowance: f64,
    ours: fn(&PairTally) -> f64,
    floor: fn(&PairTally) -> f64,
}

impl Counted {
    /// The rows of all contenders: the direct path is as bad as the truth, the best one better, and
    /// reactions come near the floor.
    fn rows(&self, played: &Played) -> Vec<Row> {
        let row = |contender: &Contender| {
            let shares = played.shares(*contender, self.ours);
            let floor = mean(&played.shares(*contender, self.floor));
            let direct = mean(&played.shares(*contender, |pair| pair.direct_bad));
            let goal = match contender.version {
                Technique::Direct => Goal::near(direct),
                Technique::Best => Goal::at_most(direct),
                Technique::Reactive => Goal::at_most(floor + ALLOWANCE),
                Technique::Multipath | Technique::Targeted => Goal::at_most(floor + self.copies_allowance),
            };
            let (id, paper) = (self.ids[contender.place()], self.paper[contender.version as usize]);
            let mut row = Head { id, measure: self.measure, unit: "%", paper, goal }.mean(&shares);
            let _ = write!(row.measure, ", {}", contender.name());
            row.beside(floor)
        };
        played.contenders.iter().map(row).collect()
    }
}

fn dynamic(effort: Effort, bar: &ProgressBar) -> Result<Part> {
    let of = SlotKind::new(Trouble::Slow, Reliability::BestEffort);
    let played = Played::new(Contender::all().collect(), effort, bar, of, true);
    let counted = Counted {
        ids: DYNAMIC_ROWS,
        measure: "(a) events over the deadline of 50 ms, all six pairs",
        paper: PAPER_LATE,
        copies_allowance: ALLOWANCE,
        ours: |pair| pair.late,
        floor: |pair| pair.floor_late,
    };
    let mut rows = counted.rows(&played);
    let ids = [["a-gap-qos", "a-gap-mp", "a-gap-dg"], ["a-gap-qos-paper", "a-gap-mp-paper", "a-gap-dg-paper"]];
    for (preset, ids) in Preset::ALL.into_iter().zip(ids) {
        let versions = [Technique::Reactive, Technique::Multipath, Technique::Targeted];
        rows.extend(
            ids.into_iter().zip(versions).map(|(id, version)| gap_row(id, Contender { version, preset }, &played)),
        );
    }
    let head = Head {
        id: "a-windows",
        measure: "whole slots and windows of the same seeds differ, worst version, own pace",
        unit: "points",
        paper: None,
        goal: Goal::at_most(AGREEMENT),
    };
    rows.push(match played.disagreement(|pair| pair.late) {
        Some(difference) => head.mean(&[difference]),
        None => head.unmeasured("a quick run plays windows only"),
    });
    let notes = vec![
        degradations(effort),
        by_pair_note("(a) mean latency, ms", &played.by_pair(PairTally::mean_ms)),
        played.causes("(a)"),
        "a-windows: there is no floor, as two ways of playing the same slots are compared".to_owned(),
    ];
    Ok(Part { rows, notes, charts: dynamic_charts(&played) })
}

/// The part of the gap between the direct path and the floor that a version which reacts covers.
fn gap_row(id: &'static str, contender: Contender, played: &Played) -> Row {
    let Contender { version, preset } = contender;
    let goal = if version == Technique::Reactive { 99.0 } else { 99.9 };
    let late = |version| mean(&played.shares(Contender { version, preset }, |pair| pair.late));
    let floor = mean(&played.shares(Contender { version: Technique::Direct, preset }, |pair| pair.floor_late));
    let (direct, ours) = (late(Technique::Direct), late(version));
    let measure = "(a) gap between DP and the floor that is covered";
    let head = Head { id, measure, unit: "%", paper: None, goal: Goal::at_least(goal) };
    let mut row = match direct > floor {
        true => head.mean(&[100.0 * (direct - ours) / (direct - floor)]).beside(100.0),
        false => head.unmeasured("no direct path was bad in these runs"),
    };
    let _ = write!(row.measure, ", {}", contender.name());
    row
}

/// Figure 3: how often the direct path of each pair is bad.
fn degradations(effort: Effort) -> String {
    let mut text = format!("figure 3, bad slots of {} in {} runs:", SLOTS, effort.seeds);
    for pair in ALL_PAIRS {
        let mut ends = [PUBLISHERS[pair.topic], pair.to];
        ends.sort_unstable();
        let link = MESH.iter().position(|(known, _)| *known == ends).expect("it is a full mesh");
        let bad = |seed| SlotPlan::drawn(seed, MESH.len()).iter().filter(|slot| slot[link]).count();
        let _ = write!(text, " {} {}", pair.name, (1..=effort.seeds).map(bad).sum::<usize>());
    }
    text
}

/// Values by pair and contender as one line.
pub fn by_pair_note(what: &str, contenders: &[(Contender, Vec<f64>)]) -> String {
    let mut text = format!("{what}, by pair");
    for (contender, values) in contenders {
        let values: Vec<String> = values.iter().map(|value| number(*value)).collect();
        let _ = write!(text, "; {}: {}", contender.name(), values.join(" "));
    }
    text
}

fn dynamic_charts(played: &Played) -> Vec<Chart> {
    let latency = played.by_pair(PairTally::mean_ms);
    let sums: Vec<_> = played.contenders.iter().map(|contender| (*contender, sums(played.of(*contender)))).collect();
    let bins: Vec<(Contender, &[f64])> =
        sums.iter().map(|(contender, pairs)| (*contender, pairs[SHOWN].bins.as_slice())).collect();
    let shown = [Technique::Direct, Technique::Reactive].map(|version| Contender { version, preset: Preset::Own });
    let series = shown.map(|contender| (contender, played.of(contender)[0].series.as_slice()));
    vec![
        plots::by_pair(
            "responsiveness-figure-2",
            "Latency under dynamic path delay",
            Axis::linear("mean latency, ms"),
            &latency,
        ),
        plots::distribution("responsiveness-figure-4", "Latency of s5.t1 under dynamic path delay", &bins),
        plots::over_time("responsiveness-figure-5", "Latency of s5.t1 over time, seed 1", &series),
    ]
}

fn failure(effort: Effort, bar: &ProgressBar) -> Result<Part> {
    let of = SlotKind::new(Trouble::Hole, Reliability::BestEffort);
    let played = Played::new(Contender::all().collect(), effort, bar, of, false);
    let counted = Counted {
        ids: LOST_ROWS,
        measure: "(b) events lost, best effort, all six pairs",
        paper: PAPER_LOST,
        copies_allowance: COPIES_ALLOWANCE,
        ours: |pair| pair.lost,
        floor: |pair| pair.floor_lost,
    };
    let late = |contender: &Contender| {
        let late = mean(&played.shares(*contender, |pair| pair.late));
        format!("{} {}", contender.name(), number(late))
    };
    let late: Vec<String> = played.contenders.iter().map(late).collect();
    let lost = played.by_pair(|pair| 100.0 * pair.lost / pair.sent);
    let latency = played.by_pair(PairTally::mean_ms);
    let mut rows = counted.rows(&played);
    let versions = [Technique::Multipath, Technique::Targeted];
    rows.extend(versions.into_iter().zip(["b-outside-cuts-mp", "b-outside-cuts-dg"]).map(|(version, id)| {
        let contender = Contender { version, preset: Preset::Own };
        outside_cuts(id, "(b) events lost although a way was there", 0.0, contender, &played)
    }));
    Ok(Part {
        rows,
        notes: vec![format!("(b) late or lost, %: {}", late.join("; ")), played.causes("(b)")],
        charts: vec![
            plots::by_pair(
                "responsiveness-figure-6a",
                "Loss under path failures",
                Axis::logarithmic("events lost, %"),
                &lost,
            ),
            plots::by_pair(
                "responsiveness-figure-6b",
                "Latency under path failures",
                Axis::logarithmic("mean latency, ms"),
                &latency,
            ),
        ],
    })
}

/// A row of the events that were lost although an omniscient router would have had a way.
fn outside_cuts(id: &'static str, measure: &'static str, most: f64, contender: Contender, played: &Played) -> Row {
    let shares = played.shares(contender, |pair| pair.lost_with_way);
    let mut row = Head { id, measure, unit: "%", paper: None, goal: Goal::at_most(most) }.mean(&shares).beside(0.0);
    let _ = write!(row.measure, ", {}", contender.name());
    row
}

fn lossy(effort: Effort, bar: &ProgressBar) -> Result<Part> {
    let contender = Contender { version: Technique::Multipath, preset: Preset::Own };
    let mut part = Part::default();
    let transports = [TopicTransport::Datagram, TopicTransport::Stream];
    let measures = [
        "(b) events lost although a way was there, datagrams, every link loses 5 %",
        "(b) events lost although a way was there, streams, every link loses 5 %",
    ];
    for ((transport, id), measure) in transports.into_iter().zip(LOSSY.rows).zip(measures) {
        let of = SlotKind { transport, loss: LOSS, ..SlotKind::new(Trouble::Hole, Reliability::BestEffort) };
        let played = Played::new(vec![contender], effort, bar, of, false);
        part.rows.push(outside_cuts(id, measure, LOSSY_ALLOWANCE, contender, &played));
    }
    Ok(part)
}

fn reliable(effort: Effort, bar: &ProgressBar) -> Result<Part> {
    let of = SlotKind::new(Trouble::Hole, Reliability::Reliable);
    let both = [Technique::Direct, Technique::Reactive];
    let contenders = Preset::ALL.into_iter().flat_map(|preset| both.map(|version| Contender { version, preset }));
    // How late an event is depends on how long its path is bad, which windows shorten.
    let effort = Effort { seeds: effort.seeds.min(WHOLE_SEEDS), ..effort };
    let played = Played::new(contenders.collect(), effort, bar, of, false);
    let ids = [["b-reliable-lost", "b-reliable-late"], ["b-reliable-lost-paper", "b-reliable-late-paper"]];
    let mut rows = Vec::new();
    for (preset, [lost, late]) in Preset::ALL.into_iter().zip(ids) {
        let contender = Contender { version: Technique::Reactive, preset };
        let head = |id, measure, value| Head { id, measure, unit: "%", paper: None, goal: Goal::at_most(value) };
        let floor = mean(&played.shares(contender, |pair| pair.floor_late));
        let lost = head(lost, "(b) events lost, reliable topics, all six pairs", 0.0);
        let late = head(late, "(b) events over the deadline, reliable topics, all six pairs", 1.0);
        // A link is there again some time, and an event that may wait for it is not lost.
        let lost = lost.mean(&played.shares(contender, |pair| pair.lost)).beside(0.0);
        let late = late.mean(&played.shares(contender, |pair| pair.late)).beside(floor);
        rows.extend([lost, late].map(|mut row| {
            let _ = write!(row.measure, ", {}", contender.name());
            row
        }));
    }
    let lost = played.by_pair(|pair| 100.0 * pair.lost / pair.sent);
    let late = played.by_pair(|pair| 100.0 * pair.late / pair.sent);
    let latency = played.by_pair(PairTally::mean_ms);
    let deadline = DEADLINE.as_millis();
    let chart = plots::by_pair(
        "responsiveness-figure-6b-reliable",
        "Latency under path failures, reliable topics",
        Axis::logarithmic("mean latency, ms"),
        &latency,
    );
    let notes = vec![
        by_pair_note("(b) reliable: lost, %", &lost),
        by_pair_note(&format!("(b) reliable: over {deadline} ms, %"), &late),
        by_pair_note("(b) reliable: mean latency, ms", &latency),
        played.causes("(b) reliable"),
    ];
    Ok(Part { rows, notes, charts: vec![chart] })
}

#[cfg(test)]
mod tests {
    use super::super::judge::DelayCause;
    use super::*;

    fn windows(version: Technique, trouble: Trouble) -> RunTally {
        let contender = Contender { version, preset: Preset::Own };
        let of = SlotKind::new(trouble, Reliability::BestEffort);
        SlotRun { of, contender, seed: 1, is_whole: false }.play()
    }

    #[test]
    fn a_seed_is_all_there_is_to_a_run() {
        let play = || windows(Technique::Reactive, Trouble::Slow);
        assert_eq!(play(), play());
    }

    #[test]
    fn a_cause_is_known_of_every_late_event_that_had_a_way() {
        for trouble in [Trouble::Slow, Trouble::Hole] {
            let causes = windows(Technique::Reactive, trouble).causes;
            assert!(causes.all() > 0 && causes.of(DelayCause::Unknown) == 0, "{trouble:?}: {}", causes.text());
        }
    }

    #[test]
    fn the_direct_path_is_as_bad_as_its_link_and_the_best_one_is_between_it_and_the_floor() {
        for trouble in [Trouble::Slow, Trouble::Hole] {
            let [direct, best] = [Technique::Direct, Technique::Best].map(|version| windows(version, trouble));
            let late = |run: &RunTally| run.share(|pair| pair.late);
            let [bad, floor] = [direct.share(|pair| pair.direct_bad), direct.share(|pair| pair.floor_late)];
            assert!(bad > 5.0, "{trouble:?}: the links of this seed are bad for {bad} %");
            assert!((late(&direct) - bad).abs() < 0.5, "{trouble:?}: {} and {bad} %", late(&direct));
            assert!(late(&best) >= floor && late(&best) < bad / 10.0, "{trouble:?}: {} %", late(&best));
            let is_lost = trouble == Trouble::Hole;
            assert_eq!(direct.share(|pair| pair.lost) > 5.0, is_lost, "{trouble:?}");
        }
    }
}
