//! Proof of scale: how the state, traffic and processor time of brokers grow with the number of
//! brokers and of their subscriptions, and the figures of fifty regions of a cloud.
//!
//! Virtual only: cores with their overlay in one thread and simulated time. Bytes, entries and
//! times are exact; processor times are this machine's, by the thread's CPU clock, and so are their
//! ratios.

mod figures;
mod map;
mod people;
mod regions;
mod world;

use std::path::PathBuf;
use std::sync::OnceLock;

use anyhow::{Context, Result};
use indicatif::ProgressBar;
use whimbrel_sim::cities::RoundTrips;
use whimbrel_sim::random::Random;

use crate::bench::report::number;
use crate::experiment::chart::{Axis, Chart, Curve, Point, Style};
use crate::experiment::report::{Head, Part};
use crate::experiment::{Effort, Plan};
use crate::goal::Goal;
use crate::output::tell;
use figures::{Figures, Length, measure};
use map::Map;
use world::Ground;

/// The parts that are measured.
pub const VIRTUAL: &[Plan] = &[BROKERS, SUBSCRIPTIONS, regions::PLAN];

/// The folder of measured round trips, if it was set.
static ROUND_TRIPS: OnceLock<PathBuf> = OnceLock::new();

/// Sets the folder of measured round trips, in the format of [`whimbrel_sim::cities`].
pub fn set_round_trips(folder: PathBuf) {
    // The first call counts: there is one experiment in a process.
    let _ = ROUND_TRIPS.set(folder);
}

/// The measured round trips of the folder that was set, or those reckoned from where cities are.
///
/// # Errors
/// When the folder's files cannot be read.
pub fn round_trips() -> Result<RoundTrips> {
    match ROUND_TRIPS.get() {
        Some(folder) => RoundTrips::load(folder).context("reading measured round trips"),
        None => Ok(RoundTrips::reckoned()),
    }
}

/// Ten, a hundred, a thousand brokers.
const BROKERS: Plan = Plan {
    id: "brokers",
    rows: &[
        "state-entries",
        "state-bytes",
        "rest-bytes",
        "churn-bytes",
        "rest-cpu",
        "start-bytes",
        "start",
        "suback",
        "link-gone",
        "broker-gone",
        "event-publisher",
        "event-on-the-way",
        "event-subscriber",
        "event-destination",
    ],
    measure: brokers,
};

/// A hundred brokers with more and more subscriptions.
const SUBSCRIPTIONS: Plan = Plan {
    id: "subscriptions",
    rows: &[
        "subs-bytes",
        "subs-resident",
        "subs-rest-bytes",
        "subs-link-gone",
        "subs-event-publisher",
        "subs-event-on-the-way",
        "subs-event-subscriber",
    ],
    measure: subscriptions,
};

/// The subscriptions of each broker while the number of brokers grows.
const EACH: usize = 5;

/// The power by which n log n grows from a hundred to a thousand, with a margin for rounding.
const N_LOG_N: f64 = 1.2;

/// The power by which a linear quantity grows, with a margin.
const LINEAR: f64 = 1.1;

/// The cost of an event should depend on its subscribers only, except for look-ups.
const LOOKING_UP: f64 = 0.35;

/// A silent link is given up after 2 s, checked each 0.5 s; then that is told over the longest
/// path, with a margin of 1 s.
const GONE_SECONDS: f64 = 3.5;

const fn head(id: &'static str, measure: &'static str, unit: &'static str, most: f64) -> Head {
    Head { id, measure, unit, paper: None, goal: Goal::at_most(most) }
}

const POWER: &str = "power of n";

/// The power of x with which a quantity grows, from the last but one to the last.
fn power(all: &[Figures], x: fn(&Figures) -> usize, y: impl Fn(&Figures) -> f64) -> f64 {
    let [.., one, other] = all else { return 0.0 };
    let (before, after) = (y(one).max(f64::MIN_POSITIVE), y(other).max(f64::MIN_POSITIVE));
    (after.ln() - before.ln()) / (x(other) as f64 / x(one) as f64).ln()
}

fn brokers(effort: Effort, bar: &ProgressBar) -> Result<Part> {
    let sizes: &[usize] = if effort.quick { &[4, 12] } else { &[10, 100, 1_000] };
    bar.set_length(effort.seeds * sizes.len() as u64);
    let mut runs: Vec<Vec<Figures>> = Vec::new();
    for seed in 1..=effort.seeds {
        let one = |brokers: &usize| {
            (Map::of_cities(*brokers, &mut Random::new(seed)), Ground { each: EACH, moves: true, seed })
        };
        runs.push(worlds(sizes.iter().map(one), effort, bar)?);
    }
    let each = |y: fn(&Figures) -> f64| runs.iter().map(|run| power(run, |one| one.brokers, y)).collect::<Vec<f64>>();
    let last = |y: fn(&Figures) -> f64| runs.iter().filter_map(|run| run.last().map(y)).collect::<Vec<f64>>();
    let row = |id, measure, most, y: fn(&Figures) -> f64| head(id, measure, POWER, most).row(&each(y));
    let rows = vec![
        row("state-entries", "entries of a broker's state for the overlay", N_LOG_N, |one| one.entries),
        row("state-bytes", "bytes of a broker's state for the overlay", N_LOG_N, |one| one.bytes),
        row("rest-bytes", "bytes each second on a link when nothing happens", N_LOG_N, |one| one.rest),
        row(
            "churn-bytes",
            "bytes each second on a link while each broker gets a subscription each 10 s",
            N_LOG_N,
            |one| one.churn,
        ),
        row(
            "rest-cpu",
            "processor time of a broker with one to itself, each second when nothing happens",
            N_LOG_N,
            |one| one.rest_cpu,
        ),
        row("start-bytes", "bytes on a link until all that began in one moment know each other", N_LOG_N, |one| {
            one.start_bytes
        }),
        head("start", "until all of the most brokers, begun in one moment, know what all want", "s", 20.0)
            .worst(&last(|one| one.start[1])),
        head("suback", "until a SUBSCRIBE at one of the most brokers is answered", "s", 1.0)
            .worst(&last(|one| one.suback)),
        head("link-gone", "until all of the most brokers know that a link is gone without a word", "s", GONE_SECONDS)
            .worst(&last(|one| one.link_gone[0])),
        head(
            "broker-gone",
            "until all of the most brokers know that a broker is gone without a word",
            "s",
            GONE_SECONDS,
        )
        .worst(&last(|one| one.broker_gone[0])),
        row("event-publisher", "processor time of an event for one broker, at the publisher's", LOOKING_UP, |one| {
            one.event[0]
        }),
        row("event-on-the-way", "the same at a broker on the way", LOOKING_UP, |one| one.event[1]),
        row("event-subscriber", "the same at the subscriber's", LOOKING_UP, |one| one.event[2]),
        row(
            "event-destination",
            "the same at the publisher's, for each of a tenth of all brokers that want it",
            LOOKING_UP,
            |one| one.wide,
        ),
    ];
    let charts = charts("brokers", "brokers", &runs, |one| one.brokers as f64);
    Ok(Part { rows, notes: notes(&runs), charts })
}

fn subscriptions(effort: Effort, bar: &ProgressBar) -> Result<Part> {
    let (brokers, all): (usize, &[usize]) = match effort.quick {
        true => (5, &[100, 1_000]),
        false => (100, &[10_000, 100_000, 1_000_000]),
    };
    bar.set_length(effort.seeds * all.len() as u64);
    let mut runs: Vec<Vec<Figures>> = Vec::new();
    for seed in 1..=effort.seeds {
        let one = |all: &usize| {
            let map = Map::of_cities(brokers, &mut Random::new(seed));
            (map, Ground { each: all / brokers, moves: true, seed })
        };
        runs.push(worlds(all.iter().map(one), effort, bar)?);
    }
    let each =
        |y: fn(&Figures) -> f64| runs.iter().map(|run| power(run, |one| one.subscriptions, y)).collect::<Vec<f64>>();
    let last = |y: fn(&Figures) -> f64| runs.iter().filter_map(|run| run.last().map(y)).collect::<Vec<f64>>();
    let row =
        |id, measure, most, y: fn(&Figures) -> f64| head(id, measure, "power of subscriptions", most).row(&each(y));
    let rows = vec![
        row("subs-bytes", "bytes of a broker's state for the overlay", LINEAR, |one| one.bytes),
        // Memory that worlds of one seed have freed is used by those of the next.
        head("subs-resident", "memory of a broker, its subscriptions included", "power of subscriptions", LINEAR)
            .row(&each(|one| one.resident)[..1]),
        row("subs-rest-bytes", "bytes each second on a link when nothing happens", LOOKING_UP, |one| one.rest),
        head(
            "subs-link-gone",
            "until all know that a link is gone without a word, with the most subscriptions",
            "s",
            GONE_SECONDS,
        )
        .worst(&last(|one| one.link_gone[0])),
        row(
            "subs-event-publisher",
            "processor time of an event for one broker, at the publisher's",
            LOOKING_UP,
            |one| one.event[0],
        ),
        row("subs-event-on-the-way", "the same at a broker on the way", LOOKING_UP, |one| one.event[1]),
        row("subs-event-subscriber", "the same at the subscriber's", LOOKING_UP, |one| one.event[2]),
    ];
    let charts = charts("subscriptions", "subscriptions", &runs, |one| one.subscriptions as f64);
    Ok(Part { rows, notes: notes(&runs), charts })
}

/// Plays the worlds of a seed, and reports the figures of each at once: the next one may take ten
/// times as long. None is dropped before all are done, as its memory would be used by the next one,
/// for which the process would not grow then.
fn worlds(all: impl Iterator<Item = (Map, Ground)>, effort: Effort, bar: &ProgressBar) -> Result<Vec<Figures>> {
    let (mut found, mut kept) = (Vec::new(), Vec::new());
    for (map, ground) in all {
        let seed = ground.seed;
        let (figures, world) = measure(map, ground, Length::of(effort.quick), bar)?;
        bar.suspend(|| tell(format_args!("seed {seed}: {}", told(&figures))));
        found.push(figures);
        kept.push(world);
    }
    Ok(found)
}

/// Descriptions of each world's figures.
fn notes(runs: &[Vec<Figures>]) -> Vec<String> {
    runs.iter().flatten().flat_map(|one| [told(one), format!("  {}", one.kinds.join(", "))]).collect()
}

fn told(one: &Figures) -> String {
    let Figures { brokers, subscriptions, links, start, start_bytes, entries, bytes, resident, rest, churn, .. } = one;
    let state = [*entries, *bytes, *resident, *start_bytes, *rest, *churn].map(number);
    let [entries, bytes, resident, start_bytes, rest, churn] = state;
    let spent = [one.rest_cpu, one.rest_cpu_in_turn, one.event[0], one.event[1], one.event[2], one.wide].map(number);
    let [cpu, in_turn, publisher, way, subscriber, wide] = spent;
    format!(
        "{brokers} brokers, {subscriptions} subscriptions, {links} links: each broker has {entries} entries ({bytes} B) for the overlay, in all {resident} B; \
         {start_bytes} B on a link in the first {:.1} s ({:.1} s until all reach each other); {rest} B/s at rest, {churn} B/s while all subscribe; \
         {cpu} µs/s of a processor at rest ({in_turn} in turn with all others); SUBACK {:.2} s ({:.2} s at most while all subscribe), {} did not know of it; an event {publisher}, {way}, {subscriber} µs at \
         publisher, way, subscriber, {wide} µs for each of many; a link gone is known after {:.2} s (an event {:.2} s late at most), a broker after {:.2} s ({:.2} s)",
        start[1],
        start[0],
        one.suback,
        one.suback_churn,
        one.pending,
        one.link_gone[0],
        one.link_gone[1],
        one.broker_gone[0],
        one.broker_gone[1],
    )
}

/// Charts of the growing quantities.
fn charts(name: &str, axis: &str, runs: &[Vec<Figures>], x: impl Fn(&Figures) -> f64) -> Vec<Chart> {
    let curve = |name: &str, colour, y: fn(&Figures) -> f64| Curve {
        name: name.to_owned(),
        colour,
        style: Style::Joined,
        points: runs.first().map_or(Vec::new(), |run| run.iter().map(|one| Point::new(x(one), y(one))).collect()),
    };
    let chart = |file: &str, title: &str, y: &str, curves| Chart {
        file: format!("scale-{name}-{file}"),
        title: title.to_owned(),
        x: Axis::logarithmic(axis),
        y: Axis::logarithmic(y),
        curves,
    };
    vec![
        chart(
            "state",
            "What a broker holds for the overlay",
            "bytes",
            vec![
                curve("state of the overlay", 0, |one| one.bytes),
                curve("memory of the process, by broker", 1, |one| one.resident),
            ],
        ),
        chart(
            "bytes",
            "What brokers say on a link",
            "bytes per second",
            vec![
                curve("at rest", 0, |one| one.rest),
                curve("each broker gets a subscription each 10 s", 1, |one| one.churn),
            ],
        ),
        chart(
            "processor",
            "What a broker's processor spends",
            "µs",
            vec![
                curve("each second at rest", 0, |one| one.rest_cpu),
                curve("an event, at the publisher's", 1, |one| one.event[0]),
                curve("an event, on the way", 2, |one| one.event[1]),
                curve("an event, at the subscriber's", 3, |one| one.event[2]),
            ],
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs each plan, shortened.
    #[test]
    fn short_runs_give_all_rows() {
        let effort = Effort { seeds: 1, quick: true, full: false };
        for plan in VIRTUAL {
            let part = (plan.measure)(effort, &ProgressBar::hidden()).expect("it is measured");
            let rows: Vec<&str> = part.rows.iter().map(|row| row.id.as_str()).collect();
            assert_eq!(rows, plan.rows);
            println!("{}", part.notes.join("\n"));
        }
    }

    #[test]
    fn the_power_is_that_of_the_last_step() {
        let figures = |brokers: usize| Figures { brokers, bytes: (brokers * brokers) as f64, ..Figures::default() };
        let all: Vec<Figures> = [1, 10, 40].map(figures).to_vec();
        assert!((power(&all, |one| one.brokers, |one| one.bytes) - 2.0).abs() < 1e-9);
    }
}
