//! Links over which each two brokers have two paths within a deadline, without a broker or a link
//! in common.
//!
//! Links are added to a plan: first those without which some pair cannot have two paths, then again
//! and again the one that helps most pairs. In the end links go that no pair needs.

use core::cmp::Reverse;
use std::time::Duration;

use super::links::{Pair, Plan};
use super::paths::{Barred, SearchDepth, TIMED_MAX, TimedLinks, TwoPaths};

/// The time of a hop beside the delay of its link, as brokers count it (`HOP_COST_US` of
/// `whimbrel-net`): what is in time here is so for them.
pub const HOP_TIME: Duration = Duration::from_micros(300);

/// The greatest number of brokers.
pub const DISJOINT_MAX: usize = TIMED_MAX;

/// A plan, and the pairs of brokers for which no links are enough.
#[derive(Clone, Debug)]
pub struct DisjointPlan {
    /// The links. The stretch holds, and the same brokers hold others together as in the plan
    /// before.
    pub plan: Plan,
    /// The number of pairs that have two paths in time.
    pub served: usize,
    /// The pairs that cannot have them, in order.
    pub lacking: Vec<Lacking>,
}

/// Two brokers that cannot have two paths in time, whatever is linked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lacking {
    /// Their numbers, the smaller one first.
    pub ends: [usize; 2],
    /// Why.
    pub shortfall: Shortfall,
}

/// Why two brokers cannot have two paths in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shortfall {
    /// Any two paths have a broker or their link in common.
    OnlyOne,
    /// The quickest path is late: it takes this long.
    FirstLate(Duration),
    /// One of any two paths is late: it takes at least this long.
    SecondLate(Duration),
    /// One of any two paths that were found is late, by a search that is not exact: it takes at
    /// least this long.
    SecondLateAsFound(Duration),
}

/// Two brokers that can have two paths in time.
#[derive(Clone, Debug)]
struct Served {
    ends: [usize; 2],
    /// Paths over all links that were measured.
    possible: TwoPaths,
    /// Paths over the links of the plan.
    paths: Option<TwoPaths>,
}

/// A plan while links are added and removed.
#[derive(Debug)]
struct Repair<'a> {
    pairs: &'a [Pair],
    /// Nanoseconds.
    deadline: u64,
    /// All links that were measured.
    measured: TimedLinks,
    /// The links of the plan.
    links: TimedLinks,
    served: Vec<Served>,
}

impl DisjointPlan {
    /// Adds links to the plan of these pairs and this stretch, and removes those that are not
    /// needed. A path is in time if the delays of its links, and [`HOP_TIME`] for each, are at most
    /// the deadline. Whether a pair can have two such paths is found exactly for up to
    /// [`EXACT_MAX`](super::paths::EXACT_MAX) brokers; among more, where
    /// [`Shortfall::SecondLateAsFound`] does not say otherwise.
    ///
    /// # Panics
    /// When there are more than [`DISJOINT_MAX`] brokers, or a delay is longer than a minute.
    pub fn new(plan: &Plan, brokers: usize, pairs: &[Pair], stretch: f64, deadline: Duration) -> DisjointPlan {
        let deadline = nanos(deadline);
        let mut measured = TimedLinks::new(brokers);
        let mut links = TimedLinks::new(brokers);
        for pair in pairs {
            let time = nanos(pair.delay + HOP_TIME);
            measured.add(pair.ends, time);
            if plan.links.binary_search(&pair.ends).is_ok() {
                links.add(pair.ends, time);
            }
        }
        let mut served = Vec::new();
        let mut lacking = Vec::new();
        for ends in (0..brokers).flat_map(|one| (one + 1..brokers).map(move |other| [one, other])) {
            match possible(&measured, ends, deadline) {
                Ok(possible) => served.push(Served { ends, possible, paths: None }),
                Err(shortfall) => lacking.push(Lacking { ends, shortfall }),
            }
        }
        let mut repair = Repair { pairs, deadline, measured, links, served };
        repair.add_necessary();
        while repair.search() > 0 {
            repair.add_helpful();
        }
        let plan = repair.remove_needless(plan, stretch);
        DisjointPlan { plan, served: repair.served.len(), lacking }
    }
}

/// Two paths in time over all links that were measured, or why there are none.
fn possible(measured: &TimedLinks, ends: [usize; 2], deadline: u64) -> Result<TwoPaths, Shortfall> {
    if let Some(two) = measured.two_paths(ends, deadline, SearchDepth::Thorough).found {
        return Ok(two);
    }
    let first = measured.quickest(ends, Barred::default(), u64::MAX).time(ends[1]);
    if let Some(first) = first.filter(|first| *first > deadline) {
        return Err(Shortfall::FirstLate(Duration::from_nanos(first)));
    }
    let search = measured.quickest_two(ends);
    let two = search.found.ok_or(Shortfall::OnlyOne)?;
    let longer = Duration::from_nanos(two.longer);
    match search.is_complete {
        // The other search was given up before it came to these.
        _ if two.longer <= deadline => Ok(two),
        true => Err(Shortfall::SecondLate(longer)),
        false => Err(Shortfall::SecondLateAsFound(longer)),
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

impl Repair<'_> {
    /// Searches for the paths that are not known yet; returns the number of pairs without. A search
    /// is quick here: paths that are not found cost a link at worst.
    fn search(&mut self) -> usize {
        for served in self.served.iter_mut().filter(|served| served.paths.is_none()) {
            served.paths = self.links.two_paths(served.ends, self.deadline, SearchDepth::Quick).found;
        }
        self.open().count()
    }

    /// The pairs that have no paths yet.
    fn open(&self) -> impl Iterator<Item = &Served> {
        self.served.iter().filter(|served| served.paths.is_none())
    }

    /// Adds the links without which some pair has no two paths over all the others.
    fn add_necessary(&mut self) {
        for pair in self.pairs {
            let time = nanos(pair.delay + HOP_TIME);
            self.measured.remove(pair.ends);
            let is_missed = |served: &Served| {
                let search = || self.measured.two_paths(served.ends, self.deadline, SearchDepth::Quick);
                served.possible.is_over(pair.ends) && search().found.is_none()
            };
            if self.served.iter().any(is_missed) {
                self.links.add(pair.ends, time);
            }
            self.measured.add(pair.ends, time);
        }
    }

    /// Adds the link that helps most pairs, and others that help as many further ones. Without any,
    /// the links that one pair needs are added together.
    fn add_helpful(&mut self) {
        let mut helped: Vec<Vec<bool>> = self.open().map(|served| self.helpful(served.ends)).collect();
        let mut counts = vec![0_usize; self.pairs.len()];
        helped.iter().for_each(|by| add(&mut counts, by));
        let most = counts.iter().copied().max().unwrap_or(0);
        if most == 0 {
            self.add_possible();
            return;
        }
        loop {
            // Of several links the quickest one.
            let best = (0..self.pairs.len()).filter(|at| counts[*at] == most).min_by_key(|at| self.pairs[*at]);
            let Some(best) = best else { return };
            self.links.add(self.pairs[best].ends, nanos(self.pairs[best].delay + HOP_TIME));
            helped.retain(|by| !by[best]);
            counts.fill(0);
            helped.iter().for_each(|by| add(&mut counts, by));
        }
    }

    /// Adds the links of the possible paths of the pair that lacks fewest of them.
    fn add_possible(&mut self) {
        let lacks = |served: &Served| served.possible.links().filter(|ends| self.links.time(*ends).is_none()).count();
        let open = self.served.iter().enumerate().filter(|(_, served)| served.paths.is_none());
        let Some((at, _)) = open.min_by_key(|(_, served)| lacks(served)) else { return };
        let served = &mut self.served[at];
        for ends in served.possible.links() {
            self.links.add(ends, self.measured.time(ends).expect("a path is over links"));
        }
        served.paths = Some(served.possible.clone());
    }

    /// By measured pair, whether its link would help two brokers: with it they would have a second
    /// path in time, or a first one. The other path is the quickest one, or one of the two that are
    /// shortest together.
    fn helpful(&self, ends: [usize; 2]) -> Vec<bool> {
        let quickest = self.links.quickest(ends, Barred::default(), self.deadline).path(ends[1]);
        let two = quickest.as_ref().and_then(|_| self.links.shortest_two(ends));
        let two = two.into_iter().flat_map(|two| two.paths).filter(|path| self.links.time_of(path) <= self.deadline);
        let mut barred: Vec<Barred> = quickest.into_iter().chain(two).map(|path| Barred::by(&path)).collect();
        if barred.is_empty() {
            barred.push(Barred::default());
        }
        let mut is_helpful = vec![false; self.pairs.len()];
        for barred in barred {
            let there = self.links.quickest(ends, barred, self.deadline);
            let back = self.links.quickest([ends[1], ends[0]], barred, self.deadline);
            for (pair, is_helpful) in self.pairs.iter().zip(&mut is_helpful) {
                let [one, other] = pair.ends;
                let is_in_time = |near: usize, far: usize| {
                    let time = there.time(near).zip(back.time(far)).map(|(there, back)| there + back);
                    time.is_some_and(|time| time + nanos(pair.delay + HOP_TIME) <= self.deadline)
                };
                let is_new = || !barred.has(one) && !barred.has(other) && self.links.time(pair.ends).is_none();
                *is_helpful |= (is_in_time(one, other) || is_in_time(other, one)) && is_new();
            }
        }
        is_helpful
    }

    /// Removes links that are not needed, beginning with the slowest; returns the plan of the
    /// others.
    fn remove_needless(&mut self, plan: &Plan, stretch: f64) -> Plan {
        let mut links: Vec<&Pair> = self.pairs.iter().filter(|pair| self.links.time(pair.ends).is_some()).collect();
        links.sort_unstable_by_key(|pair| Reverse(*pair));
        for pair in links {
            self.links.remove(pair.ends);
            let paths = self.paths_without(pair.ends);
            let is_needless = || plan.relinked(self.pairs, self.links.links()).is_within(self.pairs, stretch);
            match paths.filter(|_| is_needless()) {
                Some(paths) => paths.into_iter().for_each(|(at, paths)| self.served[at].paths = Some(paths)),
                None => self.links.add(pair.ends, nanos(pair.delay + HOP_TIME)),
            }
        }
        plan.relinked(self.pairs, self.links.links())
    }

    /// Other paths for the pairs that have some over a link that was removed, by their places;
    /// `None`: some pair needs the link, or some broker alone would connect its ends.
    fn paths_without(&self, removed: [usize; 2]) -> Option<Vec<(usize, TwoPaths)>> {
        self.links.shortest_two(removed)?;
        let is_over = |served: &Served| served.paths.as_ref().is_some_and(|paths| paths.is_over(removed));
        let changed = self.served.iter().enumerate().filter(|(_, served)| is_over(served));
        let search = |ends| self.links.two_paths(ends, self.deadline, SearchDepth::Quick).found;
        changed.map(|(at, served)| Some((at, search(served.ends)?))).collect()
    }
}

/// Adds one to each count that is flagged.
fn add(counts: &mut [usize], flags: &[bool]) {
    counts.iter_mut().zip(flags).for_each(|(count, flag)| *count += usize::from(*flag));
}

#[cfg(test)]
mod tests {
    use whimbrel_sim::cities::RoundTrips;
    use whimbrel_sim::random::Random;

    use super::*;
    use crate::plan::links::STRETCH;
    use crate::plan::paths::tests::{least, links};

    /// By link, what an event takes over it, nanoseconds, as a check reckons it.
    fn times(pairs: &[Pair]) -> Vec<([usize; 2], u64)> {
        pairs.iter().map(|pair| (pair.ends, pair.delay.as_nanos() as u64 + 300_000)).collect()
    }

    fn planned(brokers: usize, pairs: &[Pair], deadline: Duration) -> DisjointPlan {
        let plan = Plan::new(brokers, pairs.to_vec(), STRETCH);
        DisjointPlan::new(&plan, brokers, pairs, STRETCH, deadline)
    }

    /// Whether these links are as good as all pairs: for the stretch, for who reaches whom without
    /// any one broker, and for two paths in time, where the pairs have such.
    fn is_enough(brokers: usize, pairs: &[Pair], links: &[[usize; 2]], deadline: Duration) -> bool {
        let of = |links: &[[usize; 2]]| {
            pairs.iter().filter(|pair| links.contains(&pair.ends)).copied().collect::<Vec<Pair>>()
        };
        let linked = of(links);
        let all: Vec<[usize; 2]> = pairs.iter().map(|pair| pair.ends).collect();
        let can = |pairs: &[Pair], ends| {
            least(&times(pairs), ends).is_some_and(|(longer, _)| u128::from(longer) <= deadline.as_nanos())
        };
        let reach = |links: &[[usize; 2]], gone: usize| {
            let mut reached = vec![usize::from(gone == 0)];
            for _ in 0..brokers {
                let near = links.iter().filter(|ends| !ends.contains(&gone));
                let near = near.filter(|ends| ends.iter().any(|end| reached.contains(end))).flatten();
                let near: Vec<usize> = near.copied().collect();
                reached.extend(near);
                reached.sort_unstable();
                reached.dedup();
            }
            reached
        };
        let ends = (0..brokers).flat_map(|one| (one + 1..brokers).map(move |other| [one, other]));
        let relinked = Plan::new(brokers, linked.clone(), 1.0);
        relinked.is_within(pairs, STRETCH)
            && (0..brokers).all(|gone| reach(links, gone) == reach(&all, gone))
            && ends.into_iter().all(|ends| can(&linked, ends) == can(pairs, ends))
    }

    #[test]
    fn a_plan_has_two_paths_exactly_where_all_measured_pairs_have_them() {
        let mut random = Random::new(11);
        let (mut served, mut lacking) = (0, 0);
        for world in 0..60 {
            let brokers = random.between(2, 7) as usize;
            let permille = if world % 2 == 0 { 1_000 } else { 700 };
            let pairs = links(brokers, permille, &mut random).into_iter();
            let pairs: Vec<Pair> =
                pairs.map(|(ends, time)| Pair { delay: Duration::from_millis(time), ends }).collect();
            let deadline = Duration::from_millis(random.between(10, 70));
            let made = planned(brokers, &pairs, deadline);
            assert!(is_enough(brokers, &pairs, &made.plan.links, deadline), "{pairs:?} {deadline:?}: {made:?}");
            // No link may go.
            for at in 0..made.plan.links.len() {
                let mut fewer = made.plan.links.clone();
                fewer.remove(at);
                assert!(!is_enough(brokers, &pairs, &fewer, deadline), "{at} of {made:?} is needless");
            }
            let told = made.lacking.iter().map(|lacking| (lacking.ends, lacking.shortfall));
            let all = (0..brokers).flat_map(|one| (one + 1..brokers).map(move |other| [one, other]));
            let wanted = all.filter_map(|ends| {
                let quickest = Plan::new(brokers, pairs.clone(), 1.0);
                let longer = least(&times(&pairs), ends).map(|(longer, _)| Duration::from_nanos(longer));
                match longer {
                    Some(longer) if longer <= deadline => None,
                    // A lower bound: hops are not counted.
                    _ if quickest.way(ends[0], ends[1]).is_none_or(|way| way > deadline) => Some((ends, None)),
                    longer => Some((ends, longer)),
                }
            });
            for ((ends, shortfall), (wanted, longer)) in told.clone().zip(wanted.clone()) {
                assert_eq!(ends, wanted);
                match (shortfall, longer) {
                    (Shortfall::FirstLate(time), _) => assert!(time > deadline),
                    (Shortfall::SecondLate(time), Some(longer)) => assert_eq!(time, longer),
                    (Shortfall::OnlyOne, None) => assert_eq!(least(&times(&pairs), ends), None),
                    other => panic!("{ends:?}: {other:?}"),
                }
            }
            assert_eq!((told.count(), made.served + made.lacking.len()), (wanted.count(), brokers * (brokers - 1) / 2));
            served += made.served;
            lacking += made.lacking.len();
        }
        assert!(served > 200 && lacking > 200, "{served} {lacking}");
    }

    #[test]
    fn fifty_regions_have_two_ways_over_few_links() {
        let trips = RoundTrips::reckoned().choose(50, &mut Random::new(1));
        let pairs = (0..50).flat_map(|other| (0..other).map(move |one| [one, other]));
        let pairs: Vec<Pair> = pairs.map(|ends| Pair { delay: trips.span(ends[0], ends[1]) / 2, ends }).collect();
        let deadline = Duration::from_millis(150);
        let made = planned(50, &pairs, deadline);
        let mut linked = TimedLinks::new(50);
        let mut measured = TimedLinks::new(50);
        for (ends, time) in times(&pairs) {
            measured.add(ends, time);
            if made.plan.links.contains(&ends) {
                linked.add(ends, time);
            }
        }
        let can = |links: &TimedLinks, ends| links.two_paths(ends, 150_000_000, SearchDepth::Thorough).found.is_some();
        for pair in &pairs {
            assert_eq!(can(&linked, pair.ends), can(&measured, pair.ends), "{:?}", pair.ends);
        }
        assert!(made.plan.links.len() <= 200, "{} links", made.plan.links.len());
        assert!(made.plan.is_within(&pairs, STRETCH));
        let turned: Vec<Pair> = pairs.into_iter().rev().collect();
        assert_eq!(planned(50, &turned, deadline).plan.links, made.plan.links, "whatever the order");
    }
}
