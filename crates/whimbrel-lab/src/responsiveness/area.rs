//! Where events go: brokers, topics with the broker of each one's publisher, and subscribers; and
//! the maps beside the paper's mesh.

use std::time::Duration;

use whimbrel_sim::cities::RoundTrips;
use whimbrel_sim::random::Random;

use super::scene::{ALL_PAIRS, BROKERS, DEADLINE, EVERY, PUBLISHERS, TOPICS};
use super::truth::Truth;
use crate::plan::disjoint::DisjointPlan;
use crate::plan::links::{Pair, Plan, STRETCH};

/// A topic with one publisher.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AreaTopic {
    /// Its name.
    pub name: String,
    /// The publisher's broker.
    pub from: usize,
}

/// A subscriber of one topic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AreaFlow {
    /// The index of the topic.
    pub topic: usize,
    /// The subscriber's broker.
    pub to: usize,
}

/// See the module's documentation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Area {
    /// The number of brokers.
    pub brokers: usize,
    /// The topics.
    pub topics: Vec<AreaTopic>,
    /// The subscribers.
    pub flows: Vec<AreaFlow>,
    /// The deadline of every event.
    pub deadline: Duration,
    /// The time between two events of a publisher.
    pub every: Duration,
}

impl Area {
    /// The paper's publishers and subscribers.
    pub fn mesh() -> Area {
        let topic = |(name, from): (&str, usize)| AreaTopic { name: name.to_owned(), from };
        Area {
            brokers: BROKERS,
            topics: TOPICS.into_iter().zip(PUBLISHERS).map(topic).collect(),
            flows: ALL_PAIRS.iter().map(|pair| AreaFlow { topic: pair.topic, to: pair.to }).collect(),
            deadline: DEADLINE,
            every: EVERY,
        }
    }

    /// The broker of the publisher of a flow.
    pub fn from(&self, flow: AreaFlow) -> usize {
        self.topics[flow.topic].from
    }
}

/// Who takes part, with the truth of the links when no link has trouble.
#[derive(Clone, PartialEq, Debug)]
pub struct AreaMap {
    /// Who takes part.
    pub area: Area,
    /// The links.
    pub truth: Truth,
}

/// Twelve cities on two continents, by their names in the simulator's table.
const CITIES: [&str; 12] = [
    "new-york",
    "toronto",
    "atlanta",
    "miami",
    "chicago",
    "dallas",
    "denver",
    "seattle",
    "los-angeles",
    "mexico-city",
    "london",
    "frankfurt",
];

/// The deadline on the map of cities: half of the round trip across a continent that Babay and Amir
/// take as a bound.
const CITY_DEADLINE: Duration = Duration::from_millis(65);

/// The topics on the map of cities: the publisher's broker, and those of the subscribers, across
/// the continent.
const CITY_FLOWS: [(usize, [usize; 2]); 3] = [(0, [8, 7]), (2, [7, 8]), (8, [1, 3])];

/// The deadline among regions of a cloud, which is about half of the longest round trip.
pub const REGION_DEADLINE: Duration = Duration::from_millis(150);

/// The time between two events of a publisher in a region.
const REGION_EVERY: Duration = Duration::from_millis(20);

/// The numbers of topics and of destinations in an area of regions.
#[derive(Clone, Copy, Debug)]
pub struct RegionLoad {
    /// Topics.
    pub topics: usize,
    /// The fewest destinations of a topic, and the most.
    pub destinations: [usize; 2],
}

impl AreaMap {
    /// The paper's mesh.
    pub fn mesh() -> AreaMap {
        AreaMap { area: Area::mesh(), truth: Truth::mesh() }
    }

    /// Twelve cities, linked as `whimbrel plan --disjoint` proposes for [`CITY_DEADLINE`].
    pub fn cities() -> AreaMap {
        let trips = RoundTrips::reckoned();
        let site = |name: &&str| trips.sites().iter().position(|site| site.name == *name).expect("it is in the table");
        let sites: Vec<usize> = CITIES.iter().map(site).collect();
        let delay = |one: usize, other: usize| trips.span(sites[one], sites[other]) / 2;
        let topic = |(from, _): (usize, [usize; 2])| AreaTopic { name: CITIES[from].to_owned(), from };
        let flows = CITY_FLOWS.iter().enumerate();
        let area = Area {
            brokers: CITIES.len(),
            topics: CITY_FLOWS.into_iter().map(topic).collect(),
            flows: flows.flat_map(|(topic, (_, all))| all.map(|to| AreaFlow { topic, to })).collect(),
            deadline: CITY_DEADLINE,
            every: EVERY,
        };
        AreaMap { truth: linked(CITIES.len(), CITY_DEADLINE, delay), area }
    }

    /// Regions of a cloud, at most this many, linked as `whimbrel plan --disjoint` proposes for
    /// [`REGION_DEADLINE`]. Publishers and subscribers are drawn.
    pub fn regions(trips: &RoundTrips, most: usize, load: RegionLoad, random: &mut Random) -> AreaMap {
        let trips = trips.choose(most, random);
        let brokers = trips.sites().len();
        // Round trips that were measured from both ends differ a little.
        let delay = |one: usize, other: usize| (trips.span(one, other) + trips.span(other, one)) / 4;
        let mut area =
            Area { brokers, topics: Vec::new(), flows: Vec::new(), deadline: REGION_DEADLINE, every: REGION_EVERY };
        for topic in 0..load.topics {
            let mut left: Vec<usize> = (0..brokers).collect();
            let mut draw = |random: &mut Random| left.swap_remove(random.below(left.len() as u64) as usize);
            area.topics.push(AreaTopic { name: format!("t{topic}"), from: draw(random) });
            let [fewest, most] = load.destinations.map(|count| count.min(brokers - 1) as u64);
            for _ in 0..random.between(fewest, most) {
                area.flows.push(AreaFlow { topic, to: draw(random) });
            }
        }
        AreaMap { truth: linked(brokers, REGION_DEADLINE, delay), area }
    }
}

/// The links that `whimbrel plan --disjoint` proposes for a deadline.
fn linked(brokers: usize, deadline: Duration, delay: impl Fn(usize, usize) -> Duration) -> Truth {
    let ends = (0..brokers).flat_map(|other| (0..other).map(move |one| [one, other]));
    let pairs: Vec<Pair> = ends.map(|ends| Pair { delay: delay(ends[0], ends[1]), ends }).collect();
    let plan = Plan::new(brokers, pairs.clone(), STRETCH);
    let links = DisjointPlan::new(&plan, brokers, &pairs, STRETCH, deadline).plan.links;
    Truth::steady(links.into_iter().map(|ends| (ends, delay(ends[0], ends[1]))))
}

#[cfg(test)]
mod tests {
    use super::super::truth::Floor;
    use super::*;
    use crate::cores::START;

    #[test]
    fn the_map_of_cities_is_sparse_and_its_flows_can_be_in_time() {
        let AreaMap { area, truth } = AreaMap::cities();
        assert!((15..36).contains(&truth.links.len()), "{} links", truth.links.len());
        let mut floor = Floor::new(&truth, area.brokers);
        for flow in &area.flows {
            let least = floor.takes(area.from(*flow), flow.to, START).expect("all are linked");
            assert!(least <= area.deadline * 2 / 3, "{flow:?}: {least:?}");
        }
    }

    #[test]
    fn regions_are_the_same_with_one_seed_and_no_subscriber_is_at_its_publishers() {
        let load = RegionLoad { topics: 4, destinations: [3, 5] };
        let draw = |seed| AreaMap::regions(&RoundTrips::reckoned(), 10, load, &mut Random::new(seed));
        let AreaMap { area, .. } = draw(1);
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        for topic in 0..4 {
            let mut to: Vec<usize> = area.flows.iter().filter(|flow| flow.topic == topic).map(|flow| flow.to).collect();
            to.push(area.topics[topic].from);
            let count = to.len();
            to.sort_unstable();
            to.dedup();
            assert!(to.len() == count && (4..=6).contains(&count), "{to:?}");
        }
    }
}
