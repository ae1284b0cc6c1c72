//! The fewest paths to one broker that are available as often as is asked for.

use std::collections::BTreeSet;

use super::availability::MapOutages;
use super::graph::GraphEdge;
use super::pair::PairSearch;

/// Most paths that an event takes for its availability.
pub const AVAILABLE_PATHS_MAX: usize = 4;

/// Most paths from which they are chosen: all that are in time, if there are no more.
const POOL_MAX: usize = 12;

/// Most brokers that the search for all paths goes on from.
const STEPS_MAX: usize = 4_096;

/// Rounds of the search for further paths, each of which avoids those before.
const ROUNDS_MAX: usize = 2 * POOL_MAX;

/// By how much more a link or a broker counts for each path over it.
const USED: u64 = 8;

/// Shares of time as weights of a search.
const PARTS: f64 = 1e9;

/// The availability that the paths of a topic are to have together: the share of time in which at
/// least one of them is in order; in parts per million, at least half.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Availability(u32);

impl Availability {
    /// The least and the greatest, parts per million.
    pub const RANGE_PPM: core::ops::RangeInclusive<u32> = 500_000..=999_999;

    /// One of this number of parts per million; `None` outside of [`Availability::RANGE_PPM`].
    pub fn of_ppm(ppm: u32) -> Option<Availability> {
        Availability::RANGE_PPM.contains(&ppm).then_some(Availability(ppm))
    }

    /// In parts per million.
    pub fn ppm(self) -> u32 {
        self.0
    }

    fn share(self) -> f64 {
        f64::from(self.0) / 1e6
    }
}

/// The search for paths by their availability.
#[derive(Clone, Copy, Debug)]
pub(super) struct AvailableSearch<'a> {
    pub(super) search: PairSearch<'a>,
    pub(super) outages: &'a MapOutages,
    pub(super) target: Availability,
}

/// A link, or a broker between the ends, twice: what a path needs.
type Needed = [u32; 2];

/// Some paths, and how often at least one of them is in order.
struct Chosen {
    paths: Vec<usize>,
    available: f64,
    /// The sum of their costs.
    cost: u64,
}

impl AvailableSearch<'_> {
    /// The paths to a broker other than the source: of those that are in time the fewest that are
    /// available as often as is asked for together, of these the most available ones, and then the
    /// cheapest. If no [`AVAILABLE_PATHS_MAX`] are, the most available ones. Without a path in time
    /// the pair of least cost; empty: it is not reached.
    ///
    /// It is exact if no more than [`POOL_MAX`] paths are in time. Beyond that it chooses from as
    /// many that share little.
    pub(super) fn best(&self, to: u32) -> Vec<Vec<u32>> {
        let Some(pair) = self.search.best(to) else { return Vec::new() };
        let pool = self.pool(to, &pair.paths);
        let needed: Vec<BTreeSet<Needed>> = pool.iter().map(|path| needed(path)).collect();
        let mut best: Option<Chosen> = None;
        for count in 1..=AVAILABLE_PATHS_MAX.min(pool.len()) {
            let mut at: Vec<usize> = (0..count).collect();
            let mut of_count: Option<Chosen> = None;
            // Bounded by the number of subsets, some 500.
            loop {
                let cost = at.iter().map(|path| self.search.cost(&pool[*path])).sum();
                let chosen = Chosen { paths: at.clone(), available: self.available(&needed, &at), cost };
                if of_count.as_ref().is_none_or(|known| chosen.is_better(known)) {
                    of_count = Some(chosen);
                }
                if !next_subset(&mut at, pool.len()) {
                    break;
                }
            }
            let of_count = of_count.expect("there is a subset of each size");
            if best.as_ref().is_none_or(|known| of_count.available > known.available) {
                best = Some(of_count);
            }
            if best.as_ref().is_some_and(|best| best.available >= self.target.share()) {
                break;
            }
        }
        match best {
            Some(best) => best.paths.into_iter().map(|path| pool[path].clone()).collect(),
            None => {
                let [one, other] = pair.paths;
                if one == other { vec![one] } else { vec![one, other] }
            }
        }
    }

    /// How often at least one of some paths is in order, if outages do not depend on each other: by
    /// inclusion and exclusion over the sets of these paths.
    fn available(&self, needed: &[BTreeSet<Needed>], paths: &[usize]) -> f64 {
        let mut sum = 0.0;
        for set in 1..1_usize << paths.len() {
            let members = (0..paths.len()).filter(|member| set >> member & 1 == 1);
            let all: BTreeSet<Needed> = members.flat_map(|member| &needed[paths[member]]).copied().collect();
            let in_order: f64 = all.iter().map(|part| 1.0 - self.share_out(*part)).product();
            sum += if set.count_ones() % 2 == 1 { in_order } else { -in_order };
        }
        sum
    }

    fn share_out(&self, [one, other]: Needed) -> f64 {
        let hosts = &self.search.graph.hosts;
        self.outages.share_out(hosts[one as usize], hosts[other as usize])
    }

    /// The paths in time to choose from, each once.
    fn pool(&self, to: u32, known: &[Vec<u32>]) -> Vec<Vec<u32>> {
        let to_end = self.search.search(to, |_, edge| Some(edge.time_us()));
        let mut all = AllPaths { search: self.search, to, to_end: &to_end, steps: 0, found: Vec::new() };
        if all.go_on(&mut vec![self.search.source], 0) {
            return all.found;
        }
        let is_within = |at: u32| to_end[at as usize].0 <= self.search.deadline_us;
        let mut pool: Vec<Vec<u32>> = Vec::new();
        let mut add = |path: Vec<u32>| {
            if self.search.is_in_time(&path) && !pool.contains(&path) {
                pool.push(path);
            }
            pool.len() < POOL_MAX
        };
        known.iter().for_each(|path| {
            add(path.clone());
        });
        let mut used: Vec<Needed> = Vec::new();
        for _ in 0..ROUNDS_MAX {
            let path = self.search.path(to, |from, edge: &GraphEdge| {
                let weight = |part: Needed| {
                    let times = used.iter().filter(|known| **known == part).count() as u64;
                    ((self.share_out(part) * PARTS) as u64 + 1) * (1 + USED * times)
                };
                let broker = if edge.to == to { 0 } else { weight([edge.to, edge.to]) };
                is_within(edge.to).then(|| broker + weight([from.min(edge.to), from.max(edge.to)]))
            });
            let Some(path) = path else { break };
            used.extend(needed(&path));
            if !add(path) {
                break;
            }
        }
        pool
    }
}

impl Chosen {
    fn is_better(&self, other: &Chosen) -> bool {
        self.available.total_cmp(&other.available).then(other.cost.cmp(&self.cost)).is_gt()
    }
}

/// What has to be in order for a path: its links and the brokers between its ends.
fn needed(path: &[u32]) -> BTreeSet<Needed> {
    let links = path.windows(2).map(|link| [link[0].min(link[1]), link[0].max(link[1])]);
    let brokers = path[1..path.len() - 1].iter().map(|broker| [*broker, *broker]);
    links.chain(brokers).collect()
}

/// Turns an ascending choice of numbers below `count` into the next one. Returns false after the
/// last.
fn next_subset(at: &mut [usize], count: usize) -> bool {
    let size = at.len();
    let Some(place) = (0..size).rev().find(|place| at[*place] < count - size + place) else { return false };
    at[place] += 1;
    for later in place + 1..size {
        at[later] = at[later - 1] + 1;
    }
    true
}

/// All simple paths that are in time.
struct AllPaths<'a> {
    search: PairSearch<'a>,
    to: u32,
    /// By broker: the least time from it to the end, and the broker after it.
    to_end: &'a [(u64, u32)],
    steps: usize,
    found: Vec<Vec<u32>>,
}

impl AllPaths<'_> {
    /// Finds all that begin with a path, which takes `time_us`. Returns false if there are more
    /// than [`POOL_MAX`], or the search takes more than [`STEPS_MAX`] steps.
    fn go_on(&mut self, path: &mut Vec<u32>, time_us: u64) -> bool {
        let at = *path.last().expect("a path begins somewhere");
        if at == self.to {
            self.found.push(path.clone());
            return self.found.len() <= POOL_MAX;
        }
        self.steps += 1;
        if self.steps > STEPS_MAX {
            return false;
        }
        for edge in self.search.graph.edges(at) {
            let time_us = time_us + edge.time_us();
            let whole_us = time_us.saturating_add(self.to_end[edge.to as usize].0);
            if path.contains(&edge.to) || whole_us > self.search.deadline_us {
                continue;
            }
            path.push(edge.to);
            let is_all = self.go_on(path, time_us);
            path.pop();
            if !is_all {
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use proptest::prelude::*;
    use whimbrel_event::Time;

    use super::*;
    use crate::route::disjoint::tests::{all_paths, graphs};
    use crate::route::pair::tests::with_search;

    /// How often at least one path is in order: over all states of what they need.
    fn by_states(search: &AvailableSearch<'_>, paths: &[Vec<u32>]) -> f64 {
        let of: Vec<BTreeSet<Needed>> = paths.iter().map(|path| needed(path)).collect();
        let parts: Vec<Needed> = of.iter().flatten().copied().collect::<BTreeSet<_>>().into_iter().collect();
        let number: BTreeMap<Needed, usize> = parts.iter().copied().zip(0..).collect();
        let mut sum = 0.0;
        for state in 0..1_u32 << parts.len() {
            let is_up = |part: &Needed| state >> number[part] & 1 == 1;
            if of.iter().any(|path| path.iter().all(is_up)) {
                let share = |part: &Needed| {
                    let out = search.share_out(*part);
                    if is_up(part) { 1.0 - out } else { out }
                };
                sum += parts.iter().map(share).product::<f64>();
            }
        }
        sum
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
        #[test]
        fn fewer_paths_in_time_do_not_reach_the_target_and_no_others_are_better(
            graph in graphs(5), losses in proptest::collection::vec(0_u16..300, 25),
            deadline_us in 350..2_500_u64, ppm in 600_000..999_000_u32,
        ) {
            let graph = graph.with_losses(|one, other| losses[(one * 5 + other) as usize]);
            let mut outages = MapOutages::default();
            outages.observe(Time::from_nanos(1), &graph);
            outages.observe(Time::from_nanos(1) + Duration::from_secs(3_000), &graph);
            let target = Availability::of_ppm(ppm).expect("it is in the range");
            with_search(&graph, 0, deadline_us, |search| {
                let available = AvailableSearch { search, outages: &outages, target };
                for to in 1..graph.hosts.len() as u32 {
                    let found = available.best(to);
                    let mut all = all_paths(&graph, 0, to);
                    prop_assert_eq!(found.is_empty(), all.is_empty());
                    prop_assert!(found.iter().all(|path| all.contains(path)));
                    all.retain(|path| search.is_in_time(path));
                    if all.is_empty() || all.len() > POOL_MAX {
                        continue;
                    }
                    prop_assert!(found.iter().all(|path| all.contains(path)), "{:?} is late", &found);
                    let ours = by_states(&available, &found);
                    let sets = (1..1_usize << all.len()).filter(|set| set.count_ones() <= AVAILABLE_PATHS_MAX as u32);
                    for set in sets {
                        let count = set.count_ones() as usize;
                        if count > found.len() && ours >= target.share() {
                            continue;
                        }
                        let members = (0..all.len()).filter(|member| set >> member & 1 == 1);
                        let paths: Vec<Vec<u32>> = members.map(|member| all[member].clone()).collect();
                        let theirs = by_states(&available, &paths);
                        prop_assert!(theirs <= ours + 1e-9, "{:?} {} and {:?} {}", &found, ours, &paths, theirs);
                        prop_assert!(count >= found.len() || theirs < target.share() + 1e-9, "{:?}: {:?}", &found, &paths);
                    }
                }
                Ok(())
            })?;
        }
    }

    #[test]
    fn all_choices_of_a_size_come_once() {
        let mut at = vec![0, 1];
        let mut all = vec![at.clone()];
        while next_subset(&mut at, 4) {
            all.push(at.clone());
        }
        assert_eq!(all, [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]]);
    }

    #[test]
    fn availabilities_have_bounds() {
        assert_eq!([499_999, 1_000_000].map(Availability::of_ppm), [None, None]);
        assert_eq!(Availability::of_ppm(999_999).map(Availability::ppm), Some(999_999));
    }
}
