//! Fifty regions of a cloud, one broker in each: the delay of events relative to direct paths, and
//! how soon brokers agree again after a failure.

use std::time::Duration;

use anyhow::{Result, ensure};
use indicatif::ProgressBar;
use whimbrel_sim::cities::RoundTrips;
use whimbrel_sim::random::Random;

use super::figures::{Length, measure};
use super::map::Map;
use super::world::{Ground, World};
use super::{EACH, GONE_SECONDS, ROUND_TRIPS, head, round_trips, told};
use crate::experiment::report::Part;
use crate::experiment::{Effort, Plan};

/// See the module's documentation.
pub const PLAN: Plan = Plan {
    id: "regions",
    rows: &[
        "region-delay",
        "region-delay-most",
        "region-added",
        "region-rest-bytes",
        "region-link-gone",
        "region-broker-gone",
    ],
    measure: regions,
};

/// The number of regions.
const REGIONS: usize = 50;

/// How long any step may take, at most.
const MOST: Duration = Duration::from_secs(120);

/// The delays over the overlay relative to the direct path: of half of the paths, and of nineteen
/// of twenty.
const DELAY: [f64; 2] = [1.35, 2.5];

/// The time that brokers add to the delays of the links on a path, ms.
const ADDED_MS: f64 = 0.1;

/// Bytes per second on a link of fifty brokers at rest.
const REST_BYTES: f64 = 4_000.0;

/// The delays of events relative to direct paths, sorted; and the most that they exceed the delays
/// of the links on their path, ms.
fn delays(trips: &RoundTrips, sites: usize, seed: u64) -> Result<(Vec<f64>, f64)> {
    let mut world =
        World::new(Map::of_sites(trips, sites, &mut Random::new(seed)), Ground { each: 0, moves: false, seed });
    world.until_linked(MOST)?;
    let brokers = world.map.brokers();
    let mut subscribers = Vec::new();
    for node in 0..brokers {
        subscribers.push(world.ask_for(node, "all/#")?.0);
    }
    world.until_known(MOST)?;
    world.run(Duration::from_secs(5));
    let (mut ratios, mut added) = (Vec::new(), 0.0_f64);
    for from in 0..brokers {
        let publisher = world.come_to(&[from])?[0];
        let number = world.people.sent.len();
        world.publish((from, publisher), "all/one");
        world.run(Duration::from_secs(2));
        for (to, link) in subscribers.iter().enumerate().filter(|(to, _)| *to != from) {
            let took = world.people.delays(*link, number);
            ensure!(took.len() == 1, "an event came {} times from {from} to {to}", took.len());
            let direct = world.map.delay(from, to);
            ratios.push(took[0].as_secs_f64() / direct.as_secs_f64());
            let path = world.path(from, to)?;
            let way: Duration = path.windows(2).map(|pair| world.map.delay(pair[0], pair[1])).sum();
            ensure!(took[0] >= way, "from {from} to {to} an event was quicker than the way that it is said to take");
            added = added.max((took[0].as_secs_f64() - way.as_secs_f64()) * 1e3);
        }
        world.people.got.clear();
    }
    ratios.sort_by(f64::total_cmp);
    Ok((ratios, added))
}

fn regions(effort: Effort, bar: &ProgressBar) -> Result<Part> {
    let trips = round_trips()?;
    let sites = if effort.quick { 6 } else { REGIONS };
    bar.set_length(2 * effort.seeds);
    let (mut half, mut most, mut added, mut all) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for seed in 1..=effort.seeds {
        bar.set_message("delays");
        let (ratios, more) = delays(&trips, sites, seed)?;
        bar.inc(1);
        half.push(ratios[ratios.len() / 2]);
        most.push(ratios[ratios.len() * 19 / 20]);
        added.push(more);
        let map = Map::of_sites(&trips, sites, &mut Random::new(seed));
        all.push(measure(map, Ground { each: EACH, moves: true, seed }, Length::of(effort.quick), bar)?.0);
    }
    let each = |y: fn(&super::Figures) -> f64| all.iter().map(y).collect::<Vec<f64>>();
    let rows = vec![
        head("region-delay", "delay of an event against the direct path's, median of all pairs", "ratio", DELAY[0])
            .row(&half),
        head("region-delay-most", "the same, 95 % of all pairs", "ratio", DELAY[1]).row(&most),
        head("region-added", "what an event takes beyond the links on its way, at most", "ms", ADDED_MS).worst(&added),
        head("region-rest-bytes", "bytes each second on a link when nothing happens", "B/s", REST_BYTES)
            .row(&each(|one| one.rest)),
        head("region-link-gone", "until all know that a link is gone without a word", "s", GONE_SECONDS)
            .worst(&each(|one| one.link_gone[0])),
        head("region-broker-gone", "until all know that a broker is gone without a word", "s", GONE_SECONDS)
            .worst(&each(|one| one.broker_gone[0])),
    ];
    let whence = if ROUND_TRIPS.get().is_some() { "measured" } else { "reckoned from where cities are" };
    let mut notes = vec![format!("round trips of {} sites, {whence}", trips.sites().len().min(sites))];
    notes.extend(all.iter().map(told));
    Ok(Part { rows, notes, charts: Vec::new() })
}
