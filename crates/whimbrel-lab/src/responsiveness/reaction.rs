//! How soon events take a good way once the path of a pair is bad.

use std::time::Duration;

use anyhow::Result;
use indicatif::ProgressBar;
use whimbrel_event::Time;
use whimbrel_sim::random::Random;

use super::plots::{self, SampleSet};
use super::runs::play_all;
use super::scene::{
    ALL_PAIRS, Contender, DEADLINE, MESH, PAIRS, PUBLISHERS, Preset, REPORT_EVERY, SHOWN, SLOW, Technique, Trouble,
};
use super::stage::{AreaWorld, BEGIN, Play};
use super::tally::mean;
use super::truth::Truth;
use crate::bench::report::number;
use crate::cores::START;
use crate::cores::wire::{NarrowLink, WayTruth};
use crate::experiment::chart::{Axis, Chart, Style};
use crate::experiment::report::{Head, Part, Row};
use crate::experiment::{Effort, Plan};
use crate::goal::Goal;

/// See the module's documentation.
pub const PLAN: Plan = Plan {
    id: "reaction",
    rows: &["good-way-hole", "good-way-hole-p99", "good-way-slow", "good-way-slow-p99"],
    measure,
};

/// Trials of each pair per seed, each at another moment, for the rows with goals; of what is only
/// noted there is one.
const TRIALS: u64 = 4;

/// The moment of the trouble is drawn from this span, milliseconds: the longest interval of probes.
const SPAN_MS: u64 = 5_000;

/// How long events are watched.
const WATCHED: Duration = Duration::from_secs(10);
const WATCHED_PAPER: Duration = Duration::from_secs(60);

/// The span of the charts of latency over time: how long before the trouble it begins, and its
/// length.
const SHOWN_BEFORE: Duration = Duration::from_millis(500);
const SHOWN_FOR: Duration = Duration::from_secs(4);

/// Bytes per second of a link that has become narrow: less than a pair's events take; and its
/// queue.
const NARROW: NarrowLink = NarrowLink { bytes: 10_000.0, queue: Duration::from_millis(500) };

/// The kinds of trouble.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PathTrouble {
    /// Both directions.
    Both(Trouble),
    /// The events' direction is slow.
    OneWay,
    /// Half of the packets are lost at random.
    Lossy,
    /// The link carries less than is sent.
    Narrow,
}

impl PathTrouble {
    const HOLE: PathTrouble = PathTrouble::Both(Trouble::Hole);
    const SLOW: PathTrouble = PathTrouble::Both(Trouble::Slow);
    const ALL: [PathTrouble; 5] =
        [PathTrouble::HOLE, PathTrouble::SLOW, PathTrouble::OneWay, PathTrouble::Lossy, PathTrouble::Narrow];

    fn name(self) -> &'static str {
        match self {
            PathTrouble::Both(Trouble::Hole) => "black hole",
            PathTrouble::Both(Trouble::Slow) => "slow",
            PathTrouble::OneWay => "slow one way",
            PathTrouble::Lossy => "half lost",
            PathTrouble::Narrow => "narrow",
        }
    }

    /// The truth of a direction; `is_own`: it is that of the pair's events.
    fn of(self, way: WayTruth, is_own: bool) -> WayTruth {
        match self {
            PathTrouble::Both(trouble) => trouble.of(way),
            PathTrouble::OneWay if is_own => WayTruth { delay: SLOW, ..way },
            PathTrouble::OneWay => way,
            PathTrouble::Lossy => WayTruth { loss: 0.5, ..way },
            PathTrouble::Narrow => WayTruth { rate: Some(NARROW), ..way },
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Trial {
    kind: PathTrouble,
    contender: Contender,
    pair: usize,
    seed: u64,
    number: u64,
}

/// The result of a trial.
#[derive(Clone, Copy, Debug)]
struct Reaction {
    /// From the trouble to the sending of the first event that is in time; the time that was
    /// watched if there is none.
    good: Duration,
    /// The share of the events of the time that was watched that was late or lost, per cent.
    late: f64,
    /// What [`Reaction::good`] may be: three reports, and one and a half round trips.
    bound: Duration,
    /// What it is at least for a router that has to be told: the delay of the link, for which all
    /// that was sent before still arrives.
    least: Duration,
}

/// A trial that was played.
struct PlayedTrial {
    world: AreaWorld,
    /// When the trouble began.
    trouble: Time,
    /// The round trip of the link before it.
    round: Duration,
}

impl Trial {
    fn watched(&self) -> Duration {
        [WATCHED, WATCHED_PAPER][self.contender.preset as usize]
    }

    fn play(&self) -> PlayedTrial {
        let Trial { kind, contender, pair, seed, number } = *self;
        let mut random = Random::new(seed << 16 | number << 8 | pair as u64);
        let moment = Duration::from_millis(random.below(SPAN_MS));
        let trouble = START + BEGIN + contender.preset.warm_up() + moment;
        let wanted = ALL_PAIRS[pair];
        let from = PUBLISHERS[wanted.topic];
        let mut truth = Truth::mesh();
        let ends = |ends: &[usize; 2]| ends.contains(&from) && ends.contains(&wanted.to);
        let link = MESH.iter().position(|(known, _)| ends(known)).expect("it is a full mesh");
        let round = 2 * truth.way(from, wanted.to, START).delay;
        truth.change(link, trouble, |side, way| kind.of(way, MESH[link].0[side] == from));
        let mut world = AreaWorld::new(&Play::new(contender, &truth, seed << 8 | number));
        world.run_until(trouble + self.watched());
        world.fall_silent();
        world.run_until(trouble + self.watched() + WATCHED);
        PlayedTrial { world, trouble, round }
    }

    /// Plays the trial. Returns how soon and how often events were in time.
    fn reaction(&self) -> Reaction {
        let PlayedTrial { world, trouble, round } = self.play();
        let sent = world.audience.sent[ALL_PAIRS[self.pair].topic].iter().enumerate();
        let in_time = sent.filter(|(_, at)| **at >= trouble).map(|(number, at)| {
            let arrival = world.audience.arrival(self.pair, number);
            (*at, arrival.is_some_and(|arrival| arrival.since(*at) <= DEADLINE))
        });
        let in_time: Vec<_> = in_time.collect();
        let late = in_time.iter().filter(|(_, is_in_time)| !is_in_time).count();
        let first = in_time.iter().find(|(_, is_in_time)| *is_in_time);
        let good = first.map_or(self.watched(), |(at, _)| at.since(trouble));
        let late = 100.0 * late as f64 / in_time.len() as f64;
        Reaction { good, late, bound: 3 * REPORT_EVERY + round.mul_f64(1.5), least: round / 2 }
    }

    /// Plays the trial. Returns seconds since the trouble, and latencies in ms, from
    /// [`SHOWN_BEFORE`] on for [`SHOWN_FOR`].
    fn latencies(&self) -> Vec<(f64, f64)> {
        let PlayedTrial { world, trouble, .. } = self.play();
        let sent = world.audience.sent[ALL_PAIRS[self.pair].topic].iter().enumerate();
        let from = Time::from_nanos(trouble.as_nanos() - SHOWN_BEFORE.as_nanos() as u64);
        let shown = sent.filter(|(_, at)| **at >= from && at.since(from) < SHOWN_FOR);
        let point = |(number, at): (usize, &Time)| {
            let latency = world.audience.arrival(self.pair, number)?.since(*at);
            Some((at.since(from).as_secs_f64() - SHOWN_BEFORE.as_secs_f64(), latency.as_secs_f64() * 1e3))
        };
        shown.filter_map(point).collect()
    }
}

/// The value below which a share of the samples is.
fn quantile(samples: &[f64], share: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[((sorted.len() - 1) as f64 * share).ceil() as usize]
}

/// All trials, with what they gave.
struct Reactions {
    jobs: Vec<Trial>,
    all: Vec<Reaction>,
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

impl Reactions {
    fn play(effort: Effort, bar: &ProgressBar) -> Reactions {
        let mut jobs = Vec::new();
        for preset in Preset::ALL {
            for kind in PathTrouble::ALL {
                let has_goal = preset == Preset::Own && matches!(kind, PathTrouble::Both(_));
                let contender = Contender { version: Technique::Reactive, preset };
                let trials = if has_goal { TRIALS } else { 1 };
                for pair in 0..PAIRS {
                    let trials = (1..=effort.seeds).flat_map(|seed| (0..trials).map(move |number| (seed, number)));
                    jobs.extend(trials.map(|(seed, number)| Trial { kind, contender, pair, seed, number }));
                }
            }
        }
        let all = play_all(&jobs, bar, Trial::reaction);
        Reactions { jobs, all }
    }

    fn of(&self, kind: PathTrouble, preset: Preset) -> impl Iterator<Item = &Reaction> {
        let is_it = move |job: &Trial| job.kind == kind && job.contender.preset == preset;
        let of_it = self.jobs.iter().zip(&self.all).filter(move |(job, _)| is_it(job)).map(|(_, reaction)| reaction);
        // Otherwise the pair's events did not take the link that is bad.
        of_it.filter(|reaction| reaction.late > 0.0)
    }

    /// By trial with our own pace: a time beyond a number of bounds, ms.
    fn beyond(&self, kind: PathTrouble, bounds: f64, time: fn(&Reaction) -> Duration) -> Vec<f64> {
        let beyond = |reaction: &Reaction| millis(time(reaction)) - bounds * millis(reaction.bound);
        self.of(kind, Preset::Own).map(beyond).collect()
    }

    /// The rows of one kind: the median beyond the bound, and the 99th percentile beyond twice it.
    fn rows(&self, kind: PathTrouble, [half, most]: [Head; 2]) -> [Row; 2] {
        let [good, least]: [fn(&Reaction) -> Duration; 2] = [|reaction| reaction.good, |reaction| reaction.least];
        let of = |bounds, share, time| quantile(&self.beyond(kind, bounds, time), share);
        [
            half.row(&self.beyond(kind, 1.0, good)).beside(of(1.0, 0.5, least)),
            most.mean(&[of(2.0, 0.99, good)]).beside(of(2.0, 0.99, least)),
        ]
    }

    /// The medians and the events that were late of all kinds with a preset.
    fn note(&self, preset: Preset) -> String {
        let of = |kind: &PathTrouble| {
            let good: Vec<f64> = self.of(*kind, preset).map(|reaction| millis(reaction.good)).collect();
            let late: Vec<f64> = self.of(*kind, preset).map(|reaction| reaction.late).collect();
            if good.is_empty() {
                return format!("{} none late", kind.name());
            }
            let [median, p99] = [0.5, 0.99].map(|share| number(quantile(&good, share)));
            format!("{} {median} (p99 {p99}), {} % late", kind.name(), number(mean(&late)))
        };
        let kinds: Vec<String> = PathTrouble::ALL.iter().map(of).collect();
        let watched = [WATCHED, WATCHED_PAPER][preset as usize].as_secs();
        let (suffix, kinds) = (preset.suffix(), kinds.join("; "));
        format!("trouble → first event in time, ms, and late in {watched} s, BP+QoS{suffix}: {kinds}")
    }

    /// How soon the first event was in time, of both presets.
    fn chart(&self) -> Chart {
        let both = [(Preset::Own, Style::Line), (Preset::Paper, Style::Dashes)];
        let sets = PathTrouble::ALL.into_iter().enumerate().flat_map(|(colour, kind)| {
            both.map(|(preset, style)| SampleSet {
                name: format!("{}{}", kind.name(), preset.suffix()),
                colour,
                style,
                samples: self.of(kind, preset).map(|reaction| millis(reaction.good)).collect(),
            })
        });
        let title = "Trouble of a link until the first event on a good way, BP+QoS";
        plots::cumulative("responsiveness-reaction-times", title, Axis::linear("ms"), sets.collect())
    }
}

/// Latency over time round the moment of trouble, of all versions with our own pace.
fn degradations() -> Vec<Chart> {
    let kinds = [
        (PathTrouble::HOLE, "responsiveness-black-hole", "Latency of s5.t1 round the moment of a black hole, seed 1"),
        (PathTrouble::SLOW, "responsiveness-delay-step", "Latency of s5.t1 round the moment of a delay step, seed 1"),
    ];
    let chart = |(kind, file, title)| {
        let series = Technique::ALL.map(|version| {
            let contender = Contender { version, preset: Preset::Own };
            let latencies = Trial { kind, contender, pair: SHOWN, seed: 1, number: 0 }.latencies();
            (contender, latencies)
        });
        let series = series.each_ref().map(|(contender, latencies)| (*contender, latencies.as_slice()));
        plots::over_time(file, title, &series)
    };
    kinds.into_iter().map(chart).collect()
}

fn measure(effort: Effort, bar: &ProgressBar) -> Result<Part> {
    let reactions = Reactions::play(effort, bar);
    let head = |id, measure| Head { id, measure, unit: "ms", paper: None, goal: Goal::at_most(0.0) };
    let hole = [
        head("good-way-hole", "black hole → first event sent on a good way, beyond 3 reports + 1.5 RTT, median"),
        head("good-way-hole-p99", "the same, p99, beyond twice that"),
    ];
    let slow = [
        head("good-way-slow", "delay step → first event sent on a good way, beyond 3 reports + 1.5 RTT, median"),
        head("good-way-slow-p99", "the same, p99, beyond twice that"),
    ];
    let rows = [(PathTrouble::HOLE, hole), (PathTrouble::SLOW, slow)].map(|(kind, heads)| reactions.rows(kind, heads));
    let mut notes = Preset::ALL.map(|preset| reactions.note(preset)).to_vec();
    notes.push(
        "good-way-*: the floor is the link's delay, for which all that was sent before still arrives; a receiver \
         can miss nothing before its next report (20 ms) or event (10 ms) is due"
            .to_owned(),
    );
    let mut charts = degradations();
    charts.push(reactions.chart());
    Ok(Part { rows: rows.into_iter().flatten().collect(), notes, charts })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_a_sample() {
        let samples: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!([0.0, 0.5, 0.99, 1.0].map(|share| quantile(&samples, share)), [1.0, 51.0, 100.0, 100.0]);
        assert_eq!(quantile(&[7.0], 0.99), 7.0);
    }
}
