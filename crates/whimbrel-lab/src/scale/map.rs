//! The places of brokers, and their links.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use whimbrel_sim::cities::RoundTrips;
use whimbrel_sim::random::Random;

use crate::plan::links::{Pair, Plan, STRETCH};

/// The number of links to the nearest others that each broker asks for.
const NEAREST: usize = 2;

/// The greatest distance of a broker from its city's middle, as a delay.
const WITHIN_CITY: Duration = Duration::from_micros(500);

/// Brokers, the delays between them, and their links.
pub struct Map {
    trips: RoundTrips,
    /// By broker: its city, and its distance from the city's middle.
    places: Vec<(usize, Duration)>,
    /// Pairs of brokers.
    pub links: Vec<[usize; 2]>,
}

impl Map {
    /// A number of brokers in the cities of the world. Each is linked with the two nearest, and
    /// half as many links as there are brokers lead anywhere, so that the number of links on a path
    /// grows with the logarithm of the brokers. About four links per broker.
    pub fn of_cities(brokers: usize, random: &mut Random) -> Map {
        let trips = RoundTrips::reckoned();
        let cities = trips.sites().len();
        let first = random.below(cities as u64) as usize;
        let place = |number: usize, random: &mut Random| {
            let off = random.below(WITHIN_CITY.as_nanos() as u64);
            ((first + number) % cities, Duration::from_nanos(off))
        };
        let places = (0..brokers).map(|number| place(number, random)).collect();
        Map::linked(trips, places, random)
    }

    /// One broker at each of a number of sites, linked as `whimbrel plan` proposes for measured
    /// round trips.
    pub fn of_sites(trips: &RoundTrips, most: usize, random: &mut Random) -> Map {
        let trips = trips.choose(most, random);
        let places = (0..trips.sites().len()).map(|site| (site, Duration::ZERO)).collect();
        let mut map = Map { trips, places, links: Vec::new() };
        let brokers = map.brokers();
        let pairs = (0..brokers).flat_map(|other| (0..other).map(move |one| [one, other]));
        let pairs = pairs.map(|ends| Pair { delay: map.delay(ends[0], ends[1]), ends }).collect();
        map.links = Plan::new(brokers, pairs, STRETCH).links;
        map
    }

    fn linked(trips: RoundTrips, places: Vec<(usize, Duration)>, random: &mut Random) -> Map {
        let mut map = Map { trips, places, links: Vec::new() };
        let brokers = map.places.len();
        let mut links = BTreeSet::new();
        for one in 0..brokers {
            let mut others: Vec<usize> = (0..brokers).filter(|other| *other != one).collect();
            others.sort_by_key(|other| (map.delay(one, *other), *other));
            links.extend(others.into_iter().take(NEAREST).map(|other| [one.min(other), one.max(other)]));
        }
        for _ in 0..brokers / 2 {
            let [one, other] = [0, 1].map(|_| random.below(brokers as u64) as usize);
            if one != other {
                links.insert([one.min(other), one.max(other)]);
            }
        }
        map.links = links.into_iter().collect();
        // Separate parts are joined.
        while let Some(apart) = map.distances(0, &[]).iter().position(Option::is_none) {
            map.links.push([0, apart]);
        }
        map
    }

    /// The number of brokers.
    pub fn brokers(&self) -> usize {
        self.places.len()
    }

    /// The delay from one broker directly to another. Round trips that were measured from both ends
    /// differ by some milliseconds, though they are the same path, so half of their mean counts.
    pub fn delay(&self, one: usize, other: usize) -> Duration {
        let ((from, here), (to, there)) = (self.places[one], self.places[other]);
        (self.trips.span(from, to) + self.trips.span(to, from)) / 4 + here + there
    }

    /// The number of links from one broker to each other one, without the links and brokers in
    /// `lacks`: a broker is a pair of itself.
    fn distances(&self, from: usize, lacks: &[[usize; 2]]) -> Vec<Option<usize>> {
        let mut near = vec![Vec::new(); self.brokers()];
        let is_gone = |link: &[usize; 2]| lacks.contains(link) || link.iter().any(|end| lacks.contains(&[*end, *end]));
        for [one, other] in self.links.iter().filter(|link| !is_gone(link)) {
            near[*one].push(*other);
            near[*other].push(*one);
        }
        let mut found = vec![None; self.brokers()];
        found[from] = Some(0);
        let mut open = VecDeque::from([from]);
        while let Some(node) = open.pop_front() {
            for next in &near[node] {
                if found[*next].is_none() {
                    found[*next] = found[node].map(|links| links + 1);
                    open.push_back(*next);
                }
            }
        }
        found
    }

    /// Whether all other brokers still reach each other without a link, or without a broker, which
    /// is given as a pair of itself.
    pub fn holds_without(&self, gone: [usize; 2]) -> bool {
        let is_left = |node: &usize| gone != [*node, *node];
        let from = (0..self.brokers()).find(is_left).unwrap_or(0);
        let found = self.distances(from, &[gone]);
        (0..self.brokers()).filter(is_left).all(|node| found[node].is_some())
    }

    /// The broker that is the most links away from another one.
    pub fn farthest(&self, from: usize) -> usize {
        let found = self.distances(from, &[]);
        (0..self.brokers()).max_by_key(|node| (found[*node], *node)).unwrap_or(from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brokers_are_linked_with_about_four_others_and_all_reach_each_other() {
        for brokers in [4, 10, 100, 400] {
            let map = Map::of_cities(brokers, &mut Random::new(1));
            assert!(map.distances(0, &[]).iter().all(Option::is_some));
            let each = 2.0 * map.links.len() as f64 / brokers as f64;
            assert!((2.0..5.0).contains(&each), "{each} links of each of {brokers}");
        }
        let map = Map::of_cities(100, &mut Random::new(1));
        assert!(map.links.iter().any(|link| map.holds_without(*link)));
    }

    #[test]
    fn sites_are_linked_so_that_ways_are_short_and_nobody_is_needed() {
        let map = Map::of_sites(&RoundTrips::reckoned(), 50, &mut Random::new(1));
        assert!(map.links.len() <= 100, "{} links", map.links.len());
        assert!((0..50).all(|node| map.holds_without([node, node])));
        assert!(map.links.iter().all(|link| map.holds_without(*link)));
        assert!((0..50).all(|one| (0..50).all(|other| map.delay(one, other) == map.delay(other, one))));
    }
}
