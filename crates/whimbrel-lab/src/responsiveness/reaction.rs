//! How soon events take a good way once the path of a pair is bad.

use std::time::Duration;

use anyhow::Result;
use indicatif::ProgressBar;
use whimbrel_sim::random::Random;

use super::runs::play_all;
use super::scene::{ALL_PAIRS, Contender, DEADLINE, MESH, PAIRS, PUBLISHERS, Preset, SLOW, Technique, Trouble};
use super::stage::{BEGIN, MeshWorld, Play};
use super::tally::mean;
use super::truth::Truth;
use crate::bench::report::number;
use crate::cores::START;
use crate::cores::wire::{NarrowLink, WayTruth};
use crate::experiment::report::{Head, Part};
use crate::experiment::{Effort, Plan};
use crate::goal::Goal;

/// See the module's documentation.
pub const PLAN: Plan = Plan {
    id: "reaction",
    rows: &["good-way-hole", "good-way-hole-p99", "good-way-slow", "good-way-slow-p99"],
    measure,
};

/// The interval of a receiver's reports of a busy link: the greater of 20 ms and a quarter of the
/// least deadline.
const REPORT_EVERY: Duration = Duration::from_millis(20);

/// Trials of each pair per seed, each at another moment, for the rows with goals; of what is only
/// noted there is one.
const TRIALS: u64 = 4;

/// The moment of the trouble is drawn from this span, milliseconds: the longest interval of probes.
const SPAN_MS: u64 = 5_000;

/// How long events are watched.
const WATCHED: Duration = Duration::from_secs(10);
const WATCHED_PAPER: Duration = Duration::from_secs(60);

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
    preset: Preset,
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
}

impl Trial {
    fn play(&self) -> Reaction {
        let Trial { kind, preset, pair, seed, number } = *self;
        let mut random = Random::new(seed << 16 | number << 8 | pair as u64);
        let moment = Duration::from_millis(random.below(SPAN_MS));
        let trouble = START + BEGIN + preset.warm_up() + moment;
        let wanted = ALL_PAIRS[pair];
        let from = PUBLISHERS[wanted.topic];
        let mut truth = Truth::mesh();
        let ends = |ends: &[usize; 2]| ends.contains(&from) && ends.contains(&wanted.to);
        let link = MESH.iter().position(|(known, _)| ends(known)).expect("it is a full mesh");
        let round = 2 * truth.way(from, wanted.to, START).delay;
        truth.change(link, trouble, |side, way| kind.of(way, MESH[link].0[side] == from));
        let contender = Contender { version: Technique::Reactive, preset };
        let mut world = MeshWorld::new(&Play::new(contender, &truth, seed << 8 | number));
        let watched = [WATCHED, WATCHED_PAPER][preset as usize];
        world.run_until(trouble + watched);
        world.fall_silent();
        world.run_until(trouble + watched + WATCHED);
        let sent = world.audience.sent[wanted.topic].iter().enumerate().filter(|(_, at)| **at >= trouble);
        let in_time = sent.map(|(number, at)| {
            let arrival = world.audience.arrival(pair, number);
            (*at, arrival.is_some_and(|arrival| arrival.since(*at) <= DEADLINE))
        });
        let in_time: Vec<_> = in_time.collect();
        let late = in_time.iter().filter(|(_, is_in_time)| !is_in_time).count();
        let good = in_time.iter().find(|(_, is_in_time)| *is_in_time).map_or(watched, |(at, _)| at.since(trouble));
        let late = 100.0 * late as f64 / in_time.len() as f64;
        Reaction { good, late, bound: 3 * REPORT_EVERY + round.mul_f64(1.5) }
    }
}

/// The value below which a share of the samples is.
fn quantile(samples: &[f64], share: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[((sorted.len() - 1) as f64 * share).ceil() as usize]
}

fn measure(effort: Effort, bar: &ProgressBar) -> Result<Part> {
    let mut jobs = Vec::new();
    for preset in Preset::ALL {
        for kind in PathTrouble::ALL {
            for pair in 0..PAIRS {
                let has_goal = preset == Preset::Own && matches!(kind, PathTrouble::Both(_));
                let trials = if has_goal { TRIALS } else { 1 };
                let trials = (1..=effort.seeds).flat_map(|seed| (0..trials).map(move |number| (seed, number)));
                jobs.extend(trials.map(|(seed, number)| Trial { kind, preset, pair, seed, number }));
            }
        }
    }
    let reactions = play_all(&jobs, bar, Trial::play);
    let of = |kind: PathTrouble, preset: Preset| {
        let is_it = move |job: &Trial| job.kind == kind && job.preset == preset;
        let of_it = jobs.iter().zip(&reactions).filter(move |(job, _)| is_it(job)).map(|(_, reaction)| reaction);
        // Otherwise the pair's events did not take the link that is bad.
        of_it.filter(|reaction| reaction.late > 0.0)
    };
    let millis = |duration: Duration| duration.as_secs_f64() * 1e3;
    let above = |kind: PathTrouble, bounds: f64| -> Vec<f64> {
        of(kind, Preset::Own).map(|reaction| millis(reaction.good) - bounds * millis(reaction.bound)).collect()
    };
    let head = |id, measure| Head { id, measure, unit: "ms", paper: None, goal: Goal::at_most(0.0) };
    let half = |head: Head, kind: PathTrouble| head.row(&above(kind, 1.0));
    let most = |head: Head, kind: PathTrouble| head.mean(&[quantile(&above(kind, 2.0), 0.99)]);
    let rows = vec![
        half(
            head("good-way-hole", "black hole → first event sent on a good way, beyond 3 reports + 1.5 RTT, median"),
            PathTrouble::HOLE,
        ),
        most(head("good-way-hole-p99", "the same, p99, beyond twice that"), PathTrouble::HOLE),
        half(
            head("good-way-slow", "delay step → first event sent on a good way, beyond 3 reports + 1.5 RTT, median"),
            PathTrouble::SLOW,
        ),
        most(head("good-way-slow-p99", "the same, p99, beyond twice that"), PathTrouble::SLOW),
    ];
    let note = |preset: Preset, kind: PathTrouble| {
        let good: Vec<f64> = of(kind, preset).map(|reaction| millis(reaction.good)).collect();
        let late: Vec<f64> = of(kind, preset).map(|reaction| reaction.late).collect();
        let [median, p99] = [0.5, 0.99].map(|share| number(quantile(&good, share)));
        format!("{} {median} (p99 {p99}), {} % late", kind.name(), number(mean(&late)))
    };
    let notes = Preset::ALL.map(|preset| {
        let kinds: Vec<String> = PathTrouble::ALL.iter().map(|kind| note(preset, *kind)).collect();
        let watched = [WATCHED, WATCHED_PAPER][preset as usize].as_secs();
        format!(
            "trouble → first event in time, ms, and late in {watched} s, BP+QoS{}: {}",
            preset.suffix(),
            kinds.join("; ")
        )
    });
    Ok(Part { rows, notes: notes.into(), charts: Vec::new() })
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
