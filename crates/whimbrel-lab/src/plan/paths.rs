//! Two paths between two brokers that have no broker in common but the ends, and no link.

use core::cmp::Reverse;
use std::collections::BinaryHeap;

/// The greatest number of brokers of [`TimedLinks`]: a set of brokers is a `u128`, a bit for each.
pub const TIMED_MAX: usize = 128;

/// The greatest number of brokers among which a thorough search is exact.
pub const EXACT_MAX: usize = 16;

/// The greatest number of branches of a thorough search among up to [`EXACT_MAX`] brokers: there
/// are no more. Each level of branches bars one more thing for one of two paths: a broker between
/// the ends, or the direct link; the first level has one branch.
const BRANCHES_EXACT: usize = 1 << (EXACT_MAX - 1);

/// The greatest number of branches of a thorough search among more brokers.
const BRANCHES_MANY: usize = 1 << 10;

/// The greatest number of branches of a quick search.
const BRANCHES_QUICK: usize = 1 << 8;

/// The longest time of a link, nanoseconds: a day, so that no sum overflows.
pub const TIME_MAX: u64 = 86_400_000_000_000;

/// There is no path.
const NEVER: u64 = u64::MAX;

/// The links of brokers, with the time that an event takes over each.
#[derive(Clone, Debug)]
pub struct TimedLinks {
    /// By broker: its links, in order of their ends.
    arcs: Vec<Vec<Arc>>,
}

/// A link as one of its ends has it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Arc {
    to: usize,
    /// Nanoseconds.
    time: u64,
}

/// Two paths with nothing in common but their ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TwoPaths {
    /// The brokers of each, from the one end to the other.
    pub paths: [Vec<usize>; 2],
    /// The time of the slower one, nanoseconds.
    pub longer: u64,
}

impl TwoPaths {
    /// The links of both, the smaller end of each first.
    pub fn links(&self) -> impl Iterator<Item = [usize; 2]> {
        let links = self.paths.iter().flat_map(|path| path.windows(2));
        links.map(|link| [link[0].min(link[1]), link[0].max(link[1])])
    }

    /// Whether one of them is over a link, given with its smaller end first.
    pub fn is_over(&self, ends: [usize; 2]) -> bool {
        self.links().any(|link| link == ends)
    }
}

/// How much is searched for two paths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SearchDepth {
    /// 256 branches.
    Quick,
    /// All branches among up to [`EXACT_MAX`] brokers, 1,024 among more.
    Thorough,
}

/// The result of a search.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TwoPathSearch {
    /// The paths, if there are any.
    pub found: Option<TwoPaths>,
    /// Whether no branch was left out: there is nothing better.
    pub is_complete: bool,
}

/// What is barred for a path.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Barred {
    /// Brokers, a bit each.
    brokers: u128,
    /// Whether the link between the ends is barred.
    direct: bool,
}

impl Barred {
    /// All that another path between the same ends must not have in common with this one.
    pub fn by(path: &[usize]) -> Barred {
        let inner = &path[1..path.len() - 1];
        Barred { brokers: inner.iter().fold(0, |set, broker| set | 1 << broker), direct: inner.is_empty() }
    }

    /// Whether a broker is barred.
    pub fn has(&self, broker: usize) -> bool {
        self.brokers >> broker & 1 == 1
    }
}

/// The quickest ways from one broker to all others.
#[derive(Clone, Debug)]
pub struct Quickest {
    from: usize,
    /// By broker: the time of its path, nanoseconds, and the broker before it.
    least: Vec<(u64, usize)>,
}

impl Quickest {
    /// The time of the path to a broker, nanoseconds.
    pub fn time(&self, to: usize) -> Option<u64> {
        Some(self.least[to].0).filter(|time| *time < NEVER)
    }

    /// The path to a broker.
    pub fn path(&self, to: usize) -> Option<Vec<usize>> {
        self.time(to)?;
        let before = |broker: &usize| (*broker != self.from).then(|| self.least[*broker].1);
        let mut path: Vec<usize> = std::iter::successors(Some(to), before).collect();
        path.reverse();
        Some(path)
    }
}

impl TimedLinks {
    /// No links yet.
    ///
    /// # Panics
    /// When there are more than [`TIMED_MAX`] brokers.
    pub fn new(brokers: usize) -> TimedLinks {
        assert!(brokers <= TIMED_MAX, "paths are found for {TIMED_MAX} brokers at most");
        TimedLinks { arcs: vec![Vec::new(); brokers] }
    }

    /// The number of brokers.
    pub fn brokers(&self) -> usize {
        self.arcs.len()
    }

    /// Adds a link with the time that it takes, nanoseconds; one that is there stays.
    ///
    /// # Panics
    /// When it takes longer than [`TIME_MAX`], or is not of these brokers.
    pub fn add(&mut self, ends: [usize; 2], time: u64) {
        assert!(time <= TIME_MAX, "a link takes a day at most");
        for [from, to] in [ends, [ends[1], ends[0]]] {
            if let Err(at) = self.arcs[from].binary_search_by_key(&to, |arc| arc.to) {
                self.arcs[from].insert(at, Arc { to, time });
            }
        }
    }

    /// Removes a link.
    pub fn remove(&mut self, ends: [usize; 2]) {
        for [from, to] in [ends, [ends[1], ends[0]]] {
            self.arcs[from].retain(|arc| arc.to != to);
        }
    }

    /// The time of a link, nanoseconds.
    pub fn time(&self, ends: [usize; 2]) -> Option<u64> {
        let arcs = &self.arcs[ends[0]];
        arcs.binary_search_by_key(&ends[1], |arc| arc.to).ok().map(|at| arcs[at].time)
    }

    /// The links, in order, the smaller end of each first.
    pub fn links(&self) -> Vec<[usize; 2]> {
        let of = |from: usize| self.arcs[from].iter().map(move |arc| [from, arc.to]).filter(|[one, other]| one < other);
        (0..self.brokers()).flat_map(of).collect()
    }

    /// The quickest paths from the first of two ends that take at most `limit` nanoseconds, without
    /// what is barred between the two.
    pub fn quickest(&self, ends: [usize; 2], barred: Barred, limit: u64) -> Quickest {
        let [from, to] = ends;
        let mut least = vec![(NEVER, from); self.brokers()];
        least[from].0 = 0;
        let mut heap = BinaryHeap::from([Reverse((0, from))]);
        while let Some(Reverse((time, at))) = heap.pop() {
            if time > least[at].0 {
                continue;
            }
            for arc in &self.arcs[at] {
                let is_direct = [at, arc.to] == [from, to] || [at, arc.to] == [to, from];
                let sum = time + arc.time;
                if sum < least[arc.to].0 && sum <= limit && !barred.has(arc.to) && !(is_direct && barred.direct) {
                    least[arc.to] = (sum, at);
                    heap.push(Reverse((sum, arc.to)));
                }
            }
        }
        Quickest { from, least }
    }

    /// Two paths of at most `limit` nanoseconds each.
    ///
    /// The two of the least sum are taken if both are quick enough. If only one of them is, finding
    /// two is hard in general (Li, McCormick and Simchi-Levi 1990), and branches are searched: of
    /// the two quickest paths, one must do without a broker that they have in common, or without
    /// their link. Exact for up to [`EXACT_MAX`] brokers if the search is thorough; else paths that
    /// exist may not be found, which [`TwoPathSearch::is_complete`] tells.
    pub fn two_paths(&self, ends: [usize; 2], limit: u64, depth: SearchDepth) -> TwoPathSearch {
        let Some(shortest) = self.shortest_two(ends) else { return TwoPathSearch { found: None, is_complete: true } };
        if shortest.longer <= limit {
            return TwoPathSearch { found: Some(shortest), is_complete: true };
        }
        let sum: u64 = shortest.paths.iter().map(|path| self.time_of(path)).sum();
        if sum.div_ceil(2) > limit {
            return TwoPathSearch { found: None, is_complete: true };
        }
        let mut branches = Branches { ends, limit, is_any_enough: true, found: None };
        let is_complete = branches.search(self, self.branches_max(depth));
        TwoPathSearch { found: branches.found, is_complete }
    }

    /// The two paths of which the slower one is as quick as can be, by a thorough search.
    pub fn quickest_two(&self, ends: [usize; 2]) -> TwoPathSearch {
        let Some(shortest) = self.shortest_two(ends) else { return TwoPathSearch { found: None, is_complete: true } };
        let limit = shortest.longer.saturating_sub(1);
        let mut branches = Branches { ends, limit, is_any_enough: false, found: Some(shortest) };
        let is_complete = branches.search(self, self.branches_max(SearchDepth::Thorough));
        TwoPathSearch { found: branches.found, is_complete }
    }

    fn branches_max(&self, depth: SearchDepth) -> usize {
        match depth {
            SearchDepth::Quick => BRANCHES_QUICK,
            SearchDepth::Thorough if self.brokers() <= EXACT_MAX => BRANCHES_EXACT,
            SearchDepth::Thorough => BRANCHES_MANY,
        }
    }

    /// The two paths with the least sum of times, after Suurballe, "Disjoint Paths in a Network"
    /// (1974).
    pub fn shortest_two(&self, ends: [usize; 2]) -> Option<TwoPaths> {
        let quickest = self.quickest(ends, Barred::default(), u64::MAX);
        let first = quickest.path(ends[1])?;
        let arrivals = self.second(&quickest, &first)?;
        let mut after = vec![None; self.brokers()];
        first[1..].windows(2).for_each(|link| after[link[0]] = Some(link[1]));
        let [from, to] = ends;
        let mut starts = [first[1]; 2];
        // Backwards, so that a link which the second path leads back over is replaced: its first
        // broker is left by the second path.
        let mut node = arrival(to);
        while node != departure(from) {
            let last = arrivals[node];
            if is_departure(last) && !is_departure(node) && broker_of(last) != broker_of(node) {
                match broker_of(last) {
                    start if start == from => starts[1] = broker_of(node),
                    inner => after[inner] = Some(broker_of(node)),
                }
            }
            node = last;
        }
        let paths = starts.map(|start| {
            let next = |broker: &usize| if *broker == to { None } else { after[*broker] };
            std::iter::once(from).chain(std::iter::successors(Some(start), next)).collect::<Vec<usize>>()
        });
        let longer = paths.iter().map(|path| self.time_of(path)).max().unwrap_or(0);
        Some(TwoPaths { paths, longer })
    }

    /// By node, the one before it on the path that makes two paths of the first one, if there is
    /// such a path.
    ///
    /// A link costs by how much it is longer than the quickest path between its ends. Links of the
    /// first path lead back only, for nothing, and a broker of it that is arrived at is left
    /// backwards.
    fn second(&self, quickest: &Quickest, first: &[usize]) -> Option<Vec<usize>> {
        let (from, to) = (first[0], first[first.len() - 1]);
        let mut before = vec![None; self.brokers()];
        let mut after = vec![None; self.brokers()];
        for link in first.windows(2) {
            after[link[0]] = Some(link[1]);
            before[link[1]] = Some(link[0]);
        }
        let start = departure(from);
        let mut least = vec![NEVER; 2 * self.brokers()];
        let mut arrivals = vec![start; 2 * self.brokers()];
        least[start] = 0;
        let mut heap = BinaryHeap::from([Reverse((0, start))]);
        while let Some(Reverse((cost, node))) = heap.pop() {
            if node == arrival(to) {
                return Some(arrivals);
            }
            if cost > least[node] {
                continue;
            }
            let broker = broker_of(node);
            let mut next = Vec::new();
            if is_departure(node) {
                let is_open = |arc: &&Arc| arc.to != from && after[broker] != Some(arc.to);
                let cost = |arc: &Arc| quickest.least[broker].0 + arc.time - quickest.least[arc.to].0;
                next.extend(self.arcs[broker].iter().filter(is_open).map(|arc| (cost(arc), arrival(arc.to))));
                next.extend(before[broker].map(|_| (0, arrival(broker))));
            } else {
                next.push((0, before[broker].map_or(departure(broker), departure)));
            }
            for (more, to) in next {
                if cost + more < least[to] {
                    least[to] = cost + more;
                    arrivals[to] = node;
                    heap.push(Reverse((cost + more, to)));
                }
            }
        }
        None
    }

    /// The time of a path over these links, nanoseconds.
    ///
    /// # Panics
    /// When it is not over these links.
    pub fn time_of(&self, path: &[usize]) -> u64 {
        path.windows(2).map(|link| self.time([link[0], link[1]]).expect("a path is over links")).sum()
    }
}

/// The node of a broker where links arrive; a second one is where they leave.
fn arrival(broker: usize) -> usize {
    2 * broker
}

fn departure(broker: usize) -> usize {
    2 * broker + 1
}

fn is_departure(node: usize) -> bool {
    node % 2 == 1
}

fn broker_of(node: usize) -> usize {
    node / 2
}

/// A search for two paths that are quick enough.
#[derive(Debug)]
struct Branches {
    ends: [usize; 2],
    /// The longest time of a path, nanoseconds. Paths that are found lower it, unless any are
    /// enough.
    limit: u64,
    is_any_enough: bool,
    found: Option<TwoPaths>,
}

impl Branches {
    /// Examines at most `most` branches; returns whether these were all that could matter.
    fn search(&mut self, links: &TimedLinks, most: usize) -> bool {
        let none = Barred::default();
        let Some(path) = links.quickest(self.ends, none, self.limit).path(self.ends[1]) else { return true };
        let time = links.time_of(&path);
        let mut open = vec![Branched { barred: [none; 2], paths: [path.clone(), path], times: [time; 2] }];
        for _ in 0..most {
            let Some(branch) = open.pop() else { return true };
            let longer = branch.longer();
            if longer > self.limit {
                continue;
            }
            let [one, other] = &branch.paths;
            let shared = one[1..one.len() - 1].iter().copied().find(|broker| other.contains(broker));
            if shared.is_none() && one != other {
                self.found = Some(TwoPaths { paths: branch.paths, longer });
                self.limit = longer.saturating_sub(1);
                if self.is_any_enough {
                    return true;
                }
                continue;
            }
            // With nothing barred the paths are the same, so one side is as good as the other.
            let sides = if branch.barred == [none; 2] { 1 } else { 2 };
            let mut next: Vec<Branched> =
                (0..sides).filter_map(|side| self.without(links, &branch, side, shared)).collect();
            // The quicker one is examined first.
            next.sort_by_key(|branch| Reverse(branch.longer()));
            open.append(&mut next);
        }
        open.is_empty()
    }

    /// A branch whose path on one side does without a broker, or without the link between the ends.
    fn without(&self, links: &TimedLinks, branch: &Branched, side: usize, shared: Option<usize>) -> Option<Branched> {
        let mut next = branch.clone();
        match shared {
            Some(broker) => next.barred[side].brokers |= 1 << broker,
            None => next.barred[side].direct = true,
        }
        next.paths[side] = links.quickest(self.ends, next.barred[side], self.limit).path(self.ends[1])?;
        next.times[side] = links.time_of(&next.paths[side]);
        Some(next)
    }
}

/// Two paths that may have something in common: each is the quickest without what is barred for it.
#[derive(Clone, Debug)]
struct Branched {
    barred: [Barred; 2],
    paths: [Vec<usize>; 2],
    /// Nanoseconds.
    times: [u64; 2],
}

impl Branched {
    /// The time of the slower path, nanoseconds.
    fn longer(&self) -> u64 {
        self.times[0].max(self.times[1])
    }
}

#[cfg(test)]
pub(super) mod tests {
    use whimbrel_sim::random::Random;

    use super::*;

    /// A path as a check sees it: its inner brokers, a bit each, and its time.
    #[derive(Clone, Copy)]
    struct Walk {
        inner: u32,
        time: u64,
    }

    /// All simple paths between two brokers, by trying every one. `times`: by link, the smaller end
    /// first.
    fn walks(times: &[([usize; 2], u64)], at: usize, to: usize, visited: u32, time: u64, found: &mut Vec<Walk>) {
        for (ends, more) in times.iter().filter(|(ends, _)| ends.contains(&at)) {
            let next = if ends[0] == at { ends[1] } else { ends[0] };
            match next {
                next if next == to => found.push(Walk { inner: visited, time: time + more }),
                next if visited >> next & 1 == 0 => walks(times, next, to, visited | 1 << next, time + more, found),
                _ => {}
            }
        }
    }

    /// Of all pairs of paths with no broker in common but the ends, and no link, the least time of
    /// the slower one, and the least sum.
    pub fn least(times: &[([usize; 2], u64)], ends: [usize; 2]) -> Option<(u64, u64)> {
        let mut all = Vec::new();
        walks(times, ends[0], ends[1], 1 << ends[0], 0, &mut all);
        let inner = |walk: &Walk| walk.inner & !(1 << ends[0]);
        let pairs = (0..all.len()).flat_map(|one| (0..one).map(move |other| [one, other]));
        let pairs = pairs.map(|pair| pair.map(|at| all[at])).filter(|[one, other]| inner(one) & inner(other) == 0);
        let pairs: Vec<[Walk; 2]> = pairs.collect();
        let longer = pairs.iter().map(|[one, other]| one.time.max(other.time)).min()?;
        Some((longer, pairs.iter().map(|[one, other]| one.time + other.time).min()?))
    }

    /// Some links of a number of brokers, in order: `permille` of each 1,000, about.
    pub fn links(brokers: usize, permille: u64, random: &mut Random) -> Vec<([usize; 2], u64)> {
        let all = (0..brokers).flat_map(|one| (one + 1..brokers).map(move |other| [one, other]));
        let all: Vec<[usize; 2]> = all.filter(|_| random.chance(permille)).collect();
        all.into_iter().map(|ends| (ends, random.between(1, 40))).collect()
    }

    fn timed(brokers: usize, times: &[([usize; 2], u64)]) -> TimedLinks {
        let mut links = TimedLinks::new(brokers);
        times.iter().for_each(|(ends, time)| links.add(*ends, *time));
        links
    }

    /// Whether two paths are disjoint, between these ends, and take as long as they say.
    fn are_disjoint(links: &TimedLinks, ends: [usize; 2], two: &TwoPaths) -> bool {
        let [one, other] = &two.paths;
        let are_ends = two.paths.iter().all(|path| [path[0], path[path.len() - 1]] == ends);
        let is_longer = links.time_of(one).max(links.time_of(other)) == two.longer;
        let mut inner: Vec<usize> = two.paths.iter().flat_map(|path| path[1..path.len() - 1].to_vec()).collect();
        let count = inner.len();
        inner.sort_unstable();
        inner.dedup();
        one != other && are_ends && is_longer && inner.len() == count
    }

    #[test]
    fn two_paths_are_found_exactly_where_there_are_some() {
        let mut random = Random::new(7);
        let (mut hard, mut impossible) = (0, 0);
        for _ in 0..400 {
            let brokers = random.between(2, 8) as usize;
            let times = links(brokers, 300 + random.below(500), &mut random);
            let links = timed(brokers, &times);
            for ends in (0..brokers).flat_map(|one| (0..brokers).map(move |other| [one, other])) {
                if ends[0] == ends[1] {
                    continue;
                }
                let least = least(&times, ends);
                let shortest = links.shortest_two(ends);
                let sum = |two: &TwoPaths| two.paths.iter().map(|path| links.time_of(path)).sum::<u64>();
                assert_eq!(shortest.as_ref().map(sum), least.map(|(_, sum)| sum), "{ends:?} of {times:?}");
                let quickest = links.quickest_two(ends);
                let longer = quickest.found.as_ref().map(|two| two.longer);
                assert_eq!((longer, quickest.is_complete), (least.map(|(longer, _)| longer), true), "{times:?}");
                let Some((longer, _)) = least else {
                    impossible += 1;
                    continue;
                };
                for limit in [longer - 1, longer, longer + 5] {
                    let search = links.two_paths(ends, limit, SearchDepth::Thorough);
                    assert_eq!((search.found.is_some(), search.is_complete), (limit >= longer, true), "{times:?}");
                    assert!(search.found.iter().all(|two| two.longer <= limit));
                    assert!(
                        [&search.found, &shortest].into_iter().flatten().all(|two| are_disjoint(&links, ends, two))
                    );
                }
                hard += usize::from(shortest.is_some_and(|two| two.longer > longer));
            }
        }
        assert!(hard > 50 && impossible > 100, "{hard} {impossible}");
    }

    /// Stages of two brokers, each linked with both of the next stage; then the two ends. Of each
    /// stage one broker costs more, by stage, and is on the one path or on the other, so two paths
    /// are a partition of these costs.
    fn stages(more: &[u64]) -> TimedLinks {
        let [from, to] = [2 * more.len(), 2 * more.len() + 1];
        let mut links = TimedLinks::new(2 * more.len() + 2);
        for (stage, more) in more.iter().enumerate() {
            let before = if stage == 0 { vec![from] } else { vec![2 * stage - 2, 2 * stage - 1] };
            for before in before {
                links.add([before, 2 * stage], 1 + more);
                links.add([before, 2 * stage + 1], 1);
            }
        }
        (from - 2..from).for_each(|broker| links.add([broker, to], 1));
        links
    }

    #[test]
    fn among_sixteen_brokers_a_search_is_exact() {
        let mut random = Random::new(3);
        for _ in 0..4 {
            let more: Vec<u64> = (0..7).map(|_| random.between(1_000, 9_000)).collect();
            let links = stages(&more);
            assert_eq!(links.brokers(), EXACT_MAX);
            let sum = |set: usize| more.iter().enumerate().map(|(at, more)| (set >> at & 1) as u64 * more).sum::<u64>();
            let longer = (0..128).map(|set| sum(set).max(sum(127 - set))).min().expect("there are some") + 8;
            let quickest = links.quickest_two([14, 15]);
            assert_eq!((quickest.found.map(|two| two.longer), quickest.is_complete), (Some(longer), true));
            let search = |limit| links.two_paths([14, 15], limit, SearchDepth::Thorough);
            assert_eq!(search(longer - 1), TwoPathSearch { found: None, is_complete: true });
            assert_eq!(search(longer).found.map(|two| two.longer), Some(longer));
        }
    }

    #[test]
    fn a_search_that_is_given_up_says_so() {
        // One path visits seven of the brokers that cost more: 7,014.
        let links = stages(&[1_000; 13]);
        for depth in [SearchDepth::Quick, SearchDepth::Thorough] {
            let given_up = TwoPathSearch { found: None, is_complete: false };
            assert_eq!(links.two_paths([26, 27], 6_900, depth), given_up);
            assert_eq!(links.two_paths([26, 27], 7_014, depth).found.map(|two| two.longer), Some(7_014));
        }
    }
}
