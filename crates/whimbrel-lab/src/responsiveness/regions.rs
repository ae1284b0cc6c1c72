//! Fifty regions of a cloud: how many links two paths cross, and how near to the best that can be
//! events come while 12 % of the links are bad.

use std::fmt::Write;
use std::time::Duration;

use anyhow::Result;
use indicatif::ProgressBar;
use whimbrel_sim::random::Random;

use super::area::{AreaMap, RegionLoad};
use super::judge::{EventKey, HopLog};
use super::lateness::{LateCount, covered};
use super::runs::play_all;
use super::scene::{Contender, Preset, SlotPlan, Technique};
use super::spread::{FixedPaths, Spreader};
use super::stage::{AreaWorld, BEGIN, Play};
use super::tally::mean;
use super::truth::Floor;
use crate::bench::report::number;
use crate::cores::START;
use crate::cores::wire::WayTruth;
use crate::experiment::report::{Head, Part, Row};
use crate::experiment::{Effort, Plan};
use crate::goal::Goal;
use crate::scale::round_trips;

/// See the module's documentation.
pub const PLAN: Plan = Plan {
    id: "cloud-regions",
    rows: &[
        "regions-crossings",
        "regions-late-dp",
        "regions-late-qos",
        "regions-late-mp",
        "regions-late-dg",
        "regions-gap-qos",
        "regions-gap-mp",
        "regions-gap-dg",
    ],
    measure,
};

/// The number of regions, and of a quick run.
const REGIONS: usize = 50;
const QUICK_REGIONS: usize = 10;

/// What is published while no link has trouble, to count links.
const CROSSING_LOAD: RegionLoad = RegionLoad { topics: 24, destinations: [5, 15] };

/// What is published while links are bad.
const SLOT_LOAD: RegionLoad = RegionLoad { topics: 5, destinations: [5, 10] };

/// How long links are counted.
const COUNTED: Duration = Duration::from_secs(2);

/// How long events may take after the last slot.
const DRAIN: Duration = Duration::from_secs(2);

/// By how much longer packets take on a bad link that loses none.
const LATER: Duration = Duration::from_millis(100);

/// Seeds, at most: a run has fifty brokers.
const SEEDS_MAX: u64 = 5;

/// Links that two paths may cross, of those of one path.
const CROSSINGS: f64 = 2.3;

/// The part of the gap that two paths and DG are to cover, per cent.
const GAP: f64 = 98.0;

/// The versions that brokers play while links are bad.
const PLAYED: [Technique; 3] = [Technique::Reactive, Technique::Multipath, Technique::Targeted];

/// One world.
#[derive(Clone, Debug)]
enum RegionRun {
    /// Links are counted.
    Crossings { map: AreaMap, version: Technique, seed: u64 },
    /// Links are bad.
    Slots { map: AreaMap, version: Technique, seed: u64 },
}

/// What a world gives.
#[derive(Clone, Debug, PartialEq)]
enum RegionOutcome {
    /// By topic: links that its events have crossed, by event.
    Crossings(Vec<f64>),
    /// Events that were late or lost, per cent.
    Slots {
        /// With brokers.
        late: f64,
        /// On the shortest path without trouble.
        fixed: f64,
        /// With an omniscient router.
        floor: f64,
    },
}

impl RegionRun {
    fn play(&self) -> RegionOutcome {
        match self {
            RegionRun::Crossings { map, version, seed } => RegionOutcome::Crossings(crossings(map, *version, *seed)),
            RegionRun::Slots { map, version, seed } => slots(map, *version, *seed),
        }
    }
}

fn crossings(map: &AreaMap, version: Technique, seed: u64) -> Vec<f64> {
    let contender = Contender { version, preset: Preset::Own };
    let play = Play { area: map.area.clone(), is_judged: true, ..Play::new(contender, &map.truth, seed) };
    let mut world = AreaWorld::new(&play);
    world.run_until(START + BEGIN + contender.preset.warm_up());
    world.audience.forget();
    world.run_until(world.net.now + COUNTED);
    world.fall_silent();
    world.run_until(world.net.now + DRAIN);
    let hops = world.audience.hops.as_ref().map_or(Vec::new(), |log: &HopLog| log.sent(map.area.topics.len()));
    world.audience.sent.iter().zip(hops).map(|(sent, hops)| hops as f64 / sent.len() as f64).collect()
}

fn slots(map: &AreaMap, version: Technique, seed: u64) -> RegionOutcome {
    let AreaMap { area, truth: good } = map;
    let contender = Contender { version, preset: Preset::Own };
    let plan = SlotPlan::windows(START + BEGIN + contender.preset.warm_up(), contender.preset);
    // Every second trouble is a black hole.
    let truth = plan.truth_by(good, seed, |turn, way| match turn % 2 {
        0 => WayTruth { loss: 1.0, ..way },
        _ => WayTruth { delay: way.delay + LATER, ..way },
    });
    let mut world = AreaWorld::new(&Play { area: area.clone(), ..Play::new(contender, &truth, seed) });
    world.run_until(plan.end());
    world.fall_silent();
    world.run_until(plan.end() + DRAIN);
    let spreader = Spreader { truth: &truth, brokers: area.brokers, seed };
    let mut floor = Floor::new(&truth, area.brokers);
    let (mut fixed, mut best) = (LateCount::default(), LateCount::default());
    for flow in &area.flows {
        let (from, ways) = (area.from(*flow), spreader.on(&[FixedPaths::of(area, good, *flow).one]));
        for (number, at) in world.audience.sent[flow.topic].iter().enumerate() {
            let weight = plan.weight(*at);
            if weight > 0.0 {
                let key = EventKey { topic: flow.topic, number };
                fixed.record(area, weight, *at, spreader.send(key, from, *at, &ways).arrivals[flow.to]);
                best.record(area, weight, *at, floor.takes(from, flow.to, *at).map(|least| *at + least));
            }
        }
    }
    let late = LateCount::of(&world, |at| plan.weight(at)).late();
    RegionOutcome::Slots { late, fixed: fixed.late(), floor: best.late() }
}

/// All runs.
struct RegionRuns {
    jobs: Vec<RegionRun>,
    outcomes: Vec<RegionOutcome>,
}

/// One figure of a run in which links are bad, per cent.
type SlotShare = fn(&RegionOutcome) -> Option<f64>;

impl RegionRuns {
    /// By seed and topic: links that an event crosses.
    fn crossed(&self, wanted: Technique) -> Vec<f64> {
        let of = |(job, outcome): (&RegionRun, &RegionOutcome)| match (job, outcome) {
            (RegionRun::Crossings { version, .. }, RegionOutcome::Crossings(all)) if *version == wanted => all.clone(),
            _ => Vec::new(),
        };
        self.jobs.iter().zip(&self.outcomes).flat_map(of).collect()
    }

    /// By seed.
    fn shares(&self, wanted: Technique, of: SlotShare) -> Vec<f64> {
        let is_it = |job: &RegionRun| matches!(job, RegionRun::Slots { version, .. } if *version == wanted);
        let all = self.jobs.iter().zip(&self.outcomes).filter(|(job, _)| is_it(job));
        all.filter_map(|(_, outcome)| of(outcome)).collect()
    }

    fn late(&self, version: Technique) -> Vec<f64> {
        self.shares(version, |outcome| match outcome {
            RegionOutcome::Slots { late, .. } => Some(*late),
            RegionOutcome::Crossings(_) => None,
        })
    }

    fn fixed(&self) -> Vec<f64> {
        self.shares(Technique::Reactive, |outcome| match outcome {
            RegionOutcome::Slots { fixed, .. } => Some(*fixed),
            RegionOutcome::Crossings(_) => None,
        })
    }

    fn floor(&self) -> f64 {
        mean(&self.shares(Technique::Reactive, |outcome| match outcome {
            RegionOutcome::Slots { floor, .. } => Some(*floor),
            RegionOutcome::Crossings(_) => None,
        }))
    }

    fn rows(&self) -> Vec<Row> {
        let [one, two] = [Technique::Reactive, Technique::Multipath].map(|version| self.crossed(version));
        let ratios: Vec<f64> = two.iter().zip(&one).map(|(two, one)| two / one).collect();
        let named = |mut row: Row, name: &str| {
            let _ = write!(row.measure, ", {name}");
            row
        };
        let head = |id, measure, unit, goal| Head { id, measure, unit, paper: None, goal };
        let measure = "50 regions: links that two paths cross, of those of one path, topics with 5 to 15 destinations";
        let mut rows = vec![head("regions-crossings", measure, "times", Goal::at_most(CROSSINGS)).row(&ratios)];
        let measure = "50 regions, 12 % of the links bad: events over the deadline of 150 ms";
        let (fixed, floor) = (self.fixed(), self.floor());
        rows.push(named(head("regions-late-dp", measure, "%", Goal::SHOWN).mean(&fixed).beside(floor), "DP"));
        for (version, id) in PLAYED.into_iter().zip(["regions-late-qos", "regions-late-mp", "regions-late-dg"]) {
            let row = head(id, measure, "%", Goal::SHOWN).mean(&self.late(version)).beside(floor);
            rows.push(named(row, version.name()));
        }
        let measure = "50 regions, 12 % of the links bad: gap between DP and the floor that is covered";
        for (version, id) in PLAYED.into_iter().zip(["regions-gap-qos", "regions-gap-mp", "regions-gap-dg"]) {
            let goal = if version == Technique::Reactive { Goal::SHOWN } else { Goal::at_least(GAP) };
            let head = head(id, measure, "%", goal);
            let row = match covered(mean(&fixed), floor, mean(&self.late(version))) {
                Some(gap) => head.mean(&[gap]).beside(100.0),
                None => head.unmeasured("no path was bad in these runs"),
            };
            rows.push(named(row, version.name()));
        }
        rows
    }
}

fn measure(effort: Effort, bar: &ProgressBar) -> Result<Part> {
    let trips = round_trips()?;
    let regions = if effort.quick { QUICK_REGIONS } else { REGIONS };
    let (mut jobs, mut links) = (Vec::new(), Vec::new());
    for seed in 1..=effort.seeds.min(SEEDS_MAX) {
        // With one seed the same regions are drawn.
        let map = |load| AreaMap::regions(&trips, regions, load, &mut Random::new(seed));
        let [counted, bad] = [CROSSING_LOAD, SLOT_LOAD].map(map);
        links.push(bad.truth.links.len() as f64);
        let versions = [Technique::Reactive, Technique::Multipath];
        jobs.extend(versions.map(|version| RegionRun::Crossings { map: counted.clone(), version, seed }));
        jobs.extend(PLAYED.map(|version| RegionRun::Slots { map: bad.clone(), version, seed }));
    }
    let outcomes = play_all(&jobs, bar, RegionRun::play);
    let runs = RegionRuns { jobs, outcomes };
    let crossed = |version| number(mean(&runs.crossed(version)));
    let note = format!(
        "{} regions: {} links on average; one path crosses {} links, two cross {}; regions-late-dp is computed over \
         the same truth, without brokers",
        trips.sites().len().min(regions),
        number(mean(&links)),
        crossed(Technique::Reactive),
        crossed(Technique::Multipath)
    );
    Ok(Part { rows: runs.rows(), notes: vec![note], charts: Vec::new() })
}

#[cfg(test)]
mod tests {
    use whimbrel_sim::cities::RoundTrips;

    use super::*;

    fn map() -> AreaMap {
        let load = RegionLoad { topics: 2, destinations: [5, 5] };
        AreaMap::regions(&RoundTrips::reckoned(), 8, load, &mut Random::new(1))
    }

    #[test]
    fn each_event_crosses_a_link_for_each_of_its_destinations_at_least() {
        let all = [Technique::Reactive, Technique::Multipath].map(|version| crossings(&map(), version, 1));
        for (one, two) in all[0].iter().zip(&all[1]) {
            assert!((5.0..8.0).contains(one) && *two > 1.5 * one, "{one} {two}");
        }
    }

    #[test]
    fn events_come_nearer_to_the_floor_than_on_fixed_paths_and_a_seed_is_all_there_is_to_it() {
        let outcome = slots(&map(), Technique::Multipath, 1);
        assert_eq!(outcome, slots(&map(), Technique::Multipath, 1));
        let RegionOutcome::Slots { late, fixed, floor } = outcome else { panic!("it is of slots") };
        assert!(late >= floor && late < fixed, "{late} {fixed} {floor}");
    }
}
